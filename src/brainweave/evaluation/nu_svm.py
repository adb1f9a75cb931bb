"""A nu-SVM that has an answer also where categories overlap.

A nu-SVM draws its boundary between the nearest points of two reduced convex hulls, one
of each category (Crisp and Burges, 1999); the smaller nu, the larger the hulls. Where
they meet there is no boundary: every direction is as good as any other, and LIBSVM
returns one of them, or values that are not finite. With weak signals and few features,
as when two categories leave one shared feature, that is the rule and not the exception.
"""

from itertools import combinations
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray
from sklearn.svm import NuSVC

from brainweave._arrays import Matrix

__all__ = ["SeparatingNuSVC"]


#: Hulls meet if their distance is less than this share of that of the means. Between
#: .02 and .2 it makes next to no difference (docs/gdm.md).
LEAST_DISTANCE = 0.05


class SeparatingNuSVC(NuSVC):
    """A nu-SVM, and the nearer mean for pairs of categories that it cannot separate.

    The means of two categories are what the hulls shrink to as nu grows: the same
    classifier at the largest nu. Other pairs are decided as by `NuSVC`, votes counted
    alike. For kernels other than "linear" and "precomputed" it is `NuSVC`.

    Attributes
    ----------
    by_means_ : dict of int to tuple
        The number of each pair that is decided by means, in the order of `NuSVC`, and
        its boundary: weights of features (or of training samples), and the threshold.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> y = np.repeat([0, 1], 200)
    >>> X = rng.normal(size=(400, 1)) + y[:, None]
    >>> overlapping = SeparatingNuSVC(nu=0.3, kernel="linear").fit(X, y)
    >>> len(overlapping.by_means_), round(overlapping.score(X, y), 2)
    (1, 0.67)
    """

    def fit(self, X: Any, y: Any, sample_weight: Any = None) -> Self:
        """Train; find the pairs whose hulls meet."""
        self.by_means_: dict[int, tuple[Matrix, float]] = {}
        try:
            super().fit(X, y, sample_weight)
        except ValueError:
            # raised after all is set if hulls meet exactly
            coefficients = getattr(self, "dual_coef_", np.zeros(1))
            if self._decides_alone or np.isfinite(coefficients).all():
                raise
        if self._decides_alone:
            return self
        X, rows = np.asarray(X, np.float64), np.asarray(y)
        members = [np.flatnonzero(rows == c) for c in self.classes_]
        starts = np.concatenate([[0], np.cumsum(self.n_support_)])
        for number, (i, j) in enumerate(combinations(range(len(members)), 2)):
            towards = np.zeros(len(X))  # from the mean of j to the mean of i
            towards[members[i]] = 1 / members[i].size
            towards[members[j]] = -1 / members[j].size
            nearest = np.zeros(len(X))  # the same between the hulls
            for own, row in ((i, j - 1), (j, i)):
                part = slice(starts[own], starts[own + 1])
                weights = self.dual_coef_[row, part]  # of one sign
                with np.errstate(invalid="ignore", divide="ignore"):
                    weights = weights / np.abs(weights.sum())
                nearest[self.support_[part]] = weights
            distance, of_means = self._length(X, nearest), self._length(X, towards)
            if not distance >= LEAST_DISTANCE * of_means:  # also if not finite
                middle = np.abs(towards) / 2
                self.by_means_[number] = self._boundary(X, towards, middle)
        return self

    @property
    def _decides_alone(self) -> bool:
        return self.kernel not in ("linear", "precomputed")

    def _length(self, X: Matrix, weights: Matrix) -> float:
        """Return the length of a weighted sum of samples."""
        if not np.isfinite(weights).all():
            return np.nan
        used = np.flatnonzero(weights)  # two categories of many
        weights = weights[used]
        if self.kernel == "linear":
            return float(np.linalg.norm(weights @ X[used]))
        inner = weights @ X[np.ix_(used, used)] @ weights
        return float(np.sqrt(np.maximum(inner, 0.0)))

    def _boundary(self, X: Matrix, towards: Matrix, middle: Matrix) -> Any:
        if self.kernel == "linear":
            across = towards @ X
            return across, float(across @ (middle @ X))
        return towards, float(towards @ X @ middle)

    def predict(self, X: Any) -> NDArray[Any]:
        """Predict by the votes of all pairs."""
        if not self.by_means_:
            return np.asarray(super().predict(X))
        if len(self.classes_) == 2:
            across, threshold = self.by_means_[0]
            wins = np.asarray(X, np.float64) @ across > threshold
            return np.asarray(self.classes_[np.where(wins, 0, 1)])
        shape = self.get_params(deep=False)["decision_function_shape"]
        decisions = self.set_params(decision_function_shape="ovo").decision_function(X)
        self.set_params(decision_function_shape=shape)
        for number, (across, threshold) in self.by_means_.items():
            decisions[:, number] = np.asarray(X, np.float64) @ across - threshold
        votes = np.zeros((len(decisions), len(self.classes_)), np.intp)
        pairs = combinations(range(len(self.classes_)), 2)
        for (i, j), decision in zip(pairs, decisions.T, strict=True):
            votes[:, i] += decision > 0
            votes[:, j] += ~(decision > 0)
        return np.asarray(self.classes_[votes.argmax(axis=1)])
