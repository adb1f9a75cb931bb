r"""The Semi-Supervised Shared Response Model of Turek et al. (2017).

The maps are sought in the coordinates of each subject, as orthonormal :math:`Q_i`. On
this manifold the distance from the shared response is linear in :math:`Q_i`, and the
loss of the classifier is smooth, so with :math:`\tau` large enough the objective is
majorised at :math:`Q` by a linear function whose minimum is the polar factor of
:math:`\tau Q - \nabla`: no step can rise, and :math:`\tau` is found by trial.
"""

from copy import copy
from dataclasses import dataclass, field
from functools import partial
from typing import Any, ClassVar

import numpy as np
import scipy.optimize
from numpy.typing import NDArray
from scipy.special import log_softmax

from brainweave._core.arrays import Codes, Matrix, to_numpy
from brainweave._core.exceptions import InputError
from brainweave._core.labels import encode_labels, encode_new_labels
from brainweave._core.validation import check_number
from brainweave._core.workers import subject_threads
from brainweave.aligners.base import Who
from brainweave.aligners.timelocked import (
    WAYS_OUT,
    FromRandomStart,
    check_rank,
    check_same_samples,
    principal_axes,
)
from brainweave.basis.basis import SubjectBasis
from brainweave.basis.linalg import polar
from brainweave.graphs.builders import NO_GROUP

INNER_STEPS = 10  # of each map per round
MOST_TRIALS = 60  # doublings of tau; far more than any data need


@dataclass
class SubjectTerms:
    """The terms of one subject: rows locked in time, labelled rows, and its map Q."""

    locked: Matrix
    labelled: Matrix
    codes: Codes
    alpha: float
    gamma: float
    Q: Matrix = field(default_factory=lambda: np.empty((0, 0)))
    tau: float = 0.0  # curvature that the last step needed

    def __post_init__(self) -> None:
        # of half the squared distance from the response, and of a sample's loss
        self.row_weight = (1 - self.alpha) / max(len(self.locked), 1)
        self.label_weight = self.alpha / self.gamma / max(len(self.codes), 1)


def losses_of(features: Matrix, codes: Codes, theta: Matrix) -> tuple[Matrix, Matrix]:
    """Return the logistic loss of each sample, and its slope along the logits."""
    # the last row of theta are the intercepts of the classes
    rows, ones = np.arange(len(codes)), np.ones(len(codes))
    log_p = np.asarray(log_softmax(np.column_stack([features, ones]) @ theta, axis=1))
    slope = np.exp(log_p)
    slope[rows, codes] -= 1
    return -log_p[rows, codes], slope


def step_map(
    subject: SubjectTerms,
    R: Matrix,
    theta: Matrix,
    *,
    n_steps: int = INNER_STEPS,
    tol: float = 1e-10,
) -> None:
    """Descend over one subject's map, in place."""
    pull = subject.row_weight * (subject.locked.T @ R)
    weight = subject.label_weight

    def evaluate(Q: Matrix) -> tuple[float, Matrix]:
        losses, slope = losses_of(subject.labelled @ Q, subject.codes, theta)
        value = weight * float(losses.sum()) - float((pull * Q).sum())
        gradient = weight * (subject.labelled.T @ (slope @ theta[:-1].T)) - pull
        return value, gradient

    value, gradient = evaluate(subject.Q)
    for _ in range(n_steps):
        subject.tau /= 2  # the smaller, the longer the step
        scale = float(np.linalg.norm(gradient, 2)) or 1.0
        for _ in range(MOST_TRIALS):
            Q = polar(subject.tau * subject.Q - gradient)
            new_value, new_gradient = evaluate(Q)
            change = Q - subject.Q
            bound = value + float((gradient * change).sum())
            bound += subject.tau / 2 * float((change * change).sum())
            if new_value <= min(bound + 1e-14 * abs(value), value):
                break
            subject.tau = max(2 * subject.tau, 1e-3 * scale)
        else:
            return  # no step gains anything
        gained = value - new_value
        subject.Q, value, gradient = Q, new_value, new_gradient
        if gained <= tol * max(abs(value), 1e-300):
            return


def fit_classifier(subjects: list[SubjectTerms], before: Matrix) -> Matrix:
    """Return the best weights of the labelled features: a convex problem."""
    features = np.concatenate([s.labelled @ s.Q for s in subjects])
    codes = np.concatenate([s.codes for s in subjects])
    with_ones = np.column_stack([features, np.ones(len(codes))])  # for the intercepts
    counts = [len(s.codes) for s in subjects]
    weights = np.repeat([s.label_weight for s in subjects], counts)

    def evaluate(flat: Matrix) -> tuple[float, Matrix]:
        theta = flat.reshape(before.shape).copy()
        losses, slope = losses_of(features, codes, theta)
        theta[-1] = 0  # intercepts are free
        gradient = with_ones.T @ (slope * weights[:, None]) + theta
        return float(weights @ losses + (theta**2).sum() / 2), gradient.ravel()

    result = scipy.optimize.minimize(
        evaluate,
        before.ravel(),
        jac=True,
        method="L-BFGS-B",
        options={"maxiter": 500, "ftol": 1e-13, "gtol": 1e-8, "maxcor": 20},
    )
    better = result.fun <= evaluate(before.ravel())[0]
    return np.asarray(result.x).reshape(before.shape) if better else before


def objective(subjects: list[SubjectTerms], R: Matrix, theta: Matrix) -> float:
    """Return the value of the whole objective."""
    total = float((theta[:-1] ** 2).sum()) / 2
    for s in subjects:
        distance = s.locked - R @ s.Q.T
        total += s.row_weight / 2 * float((distance * distance).sum())
        losses, _ = losses_of(s.labelled @ s.Q, s.codes, theta)
        total += s.label_weight * float(losses.sum())
    return total


@dataclass(eq=False, repr=False, kw_only=True)
class SemiSupervisedSRM(FromRandomStart):
    r"""Shared Response Model that also separates the classes of labelled samples.

    Subject i has samples :math:`X_i` locked in time to those of the others, and
    labelled samples :math:`z_{ij}` in any number and order. With maps :math:`W_i`, the
    shared response :math:`R` and a multinomial logistic classifier :math:`(\theta, b)`
    with loss :math:`\ell`, common to all subjects, it descends

    .. math:: (1 - \alpha) \sum_i \frac{1}{2n} \lVert X_i - R W_i^\top \rVert_F^2
              + \frac{\alpha}{\gamma} \sum_i \frac{1}{m_i} \sum_{j=1}^{m_i}
              \ell(\theta^\top W_i^\top z_{ij} + b, y_{ij})
              + \frac12 \lVert \theta \rVert_F^2

    subject to :math:`W_i^\top W_i = I_K`, by turns over maps, response and classifier.
    No turn can rise. :meth:`fit` takes both kinds of samples together. Those whose
    label is None or NaN are locked in time: equally many, in the same order, for all
    subjects. If all samples of all subjects have a label, all must correspond by row.
    A subject who joins later may have labelled samples alone.

    Parameters
    ----------
    n_components : int, default=10
        Number of shared features K.
    max_iter : int, default=200
        Most rounds.
    tol, energy : various
        As in :class:`DetSRM`.
    standardize : bool or "reliability", default=True
        As in :class:`DetSRM`, over all samples of the subject. Sessions that differ in
        mean should be standardised each.
    n_jobs, random_state : various
        As in :class:`DetSRM`.
    alpha : float in (0, 1), default=0.5
        Weight of the labels against the time-locked samples. With many voxels, values
        near 1 or a small ``gamma`` are needed for labels to matter.
    gamma : float > 0, default=1
        Regularisation of the classifier.

    Attributes
    ----------
    maps_ : list of SubjectMap
        One map per subject, with orthonormal weights.
    coef_ : list of ndarray of shape (n_kept_i, K)
        The maps in kernel coordinates.
    shared_response_ : ndarray of shape (n_locked, K)
        R, columns in order of decreasing variance, signs fixed.
    classes_ : ndarray
        The labels, sorted.
    theta_, bias_ : ndarray of shape (K, n_classes) and (n_classes,)
        Weights and intercepts of the classifier.
    labels_locked_ : bool
        Whether labelled samples are locked in time, since all samples are labelled.
    objective_history_, n_iter_, converged_
        As in :class:`DetSRM`, by rounds.

    Notes
    -----
    The gradient of the objective lies in the span of the subject's samples, so maps are
    sought there, in the coordinates of its basis; every step equals the same step on
    voxels. Time O(M N^2 v) once for M subjects with N samples and v voxels, then
    O(M N^2 K) a round; memory O(M N^2).

    References
    ----------
    Turek, J. S., Willke, T. L., Chen, P.-H., & Ramadge, P. J. (2017). A semi-supervised
    method for multi-subject fMRI functional alignment. ICASSP.

    Examples
    --------
    Samples without a label (None) are locked in time, the others are not:

    >>> rng = np.random.default_rng(0)
    >>> movie, faces, houses = rng.normal(size=(30, 4)), [2, 0, 0, 0], [0, 2, 0, 0]
    >>> labels = [["face", "house"] * 6, ["house", "face", "face"] * 5]
    >>> X, y = [], []
    >>> for known, v in zip(labels, (50, 40)):
    ...     seen = [faces if name == "face" else houses for name in known]
    ...     X.append(np.vstack([movie, seen]) @ rng.normal(size=(4, v)))
    ...     y.append([None] * 30 + known)
    >>> model = SemiSupervisedSRM(4, alpha=0.9, random_state=0).fit(X, y)
    >>> [str(name) for name in model.predict([X[1][30:34]], subjects=[1])[0]]
    ['house', 'face', 'face', 'house']
    """

    alpha: float = 0.5
    gamma: float = 1.0
    max_iter: int = 200
    energy: Any = 1.0

    _isometric = True
    _stored: ClassVar[dict[str, Any]] = {
        "theta_": "K C",
        "bias_": "C",
        "classes_": "C of any",
        "labels_locked_": bool,
    }

    def _check_subjects(self, subjects: list[Any], y: list[Any] | None) -> None:
        self._alpha_and_gamma()
        if y is None:
            raise InputError(
                f"{self._owner} needs labels for some samples: fit(X, y) with None for "
                "the others. Without any labels use DetSRM or SRM."
            )
        codes, names = encode_labels(y)
        if len(names) < 2:
            raise InputError(
                f"{self._owner} needs at least 2 classes; y has {len(names)}: "
                f"{list(names)}. Without labels use DetSRM or SRM."
            )
        counts = [int((c == NO_GROUP).sum()) for c in codes]
        if not any(counts):
            check_same_samples(subjects, y, owner=self._owner)
        for i, n in enumerate(counts):
            if n != counts[0]:
                raise InputError(
                    f"{self._owner} aligns samples without a label row by row, but "
                    f"X[0] has {counts[0]} of them and X[{i}] has {n}. {WAYS_OUT}"
                )

    def _joined_by(self, y: Any = None) -> set[str]:
        return {"labels", "rows"}

    def _alpha_and_gamma(self) -> tuple[float, float]:
        owner, hint = self._owner, "For the shared response alone use DetSRM."
        alpha = check_number("alpha", self.alpha, "(0, 1)", owner=owner, hint=hint)
        return alpha, check_number("gamma", self.gamma, "(0, inf)", owner=owner)

    def _terms(
        self, basis: SubjectBasis, codes: Codes, *, lock_all: bool = True
    ) -> SubjectTerms:
        """Take the rows without a label as locked; all of them if all have one."""
        rows, labelled = basis.coordinates, codes != NO_GROUP
        locked = ~labelled if not labelled.all() else np.full(len(codes), lock_all)
        return SubjectTerms(
            rows[locked], rows[labelled], codes[labelled], *self._alpha_and_gamma()
        )

    def _solve(self, bases: list[SubjectBasis], y: list[Any] | None) -> list[Matrix]:
        codes, names = encode_labels(y or [])
        k = self._n_components()
        for b in bases:
            check_rank(b, k)
        subjects = [self._terms(b, c) for b, c in zip(bases, codes, strict=True)]
        start = self._start(len(subjects[0].locked), k)

        def mean_response() -> Matrix:
            return np.asarray(sum(s.locked @ s.Q for s in subjects) / len(subjects))

        for s in subjects:
            s.Q = polar(s.locked.T @ start)
        R = mean_response()
        theta = fit_classifier(subjects, np.zeros((k + 1, len(names))))
        iterations = self._new_iterations(objective(subjects, R, theta))
        with subject_threads(len(bases), self.n_jobs) as over_subjects:
            while iterations.go_on():
                over_subjects(partial(step_map, R=R, theta=theta), subjects)
                R = mean_response()
                theta = fit_classifier(subjects, theta)
                iterations.add(objective(subjects, R, theta))
        turn = principal_axes(R)
        self.shared_response_ = R @ turn
        kinds = {type(name) for name in names}
        self.classes_ = np.array(names, dtype=None if len(kinds) == 1 else object)
        self.labels_locked_ = any((c != NO_GROUP).all() for c in codes)
        self.theta_, self.bias_ = turn.T @ theta[:-1], theta[-1]
        self._set_convergence(iterations)
        return [s.Q @ turn for s in subjects]

    def predict(self, X: Any, subjects: Who = None) -> list[NDArray[Any]]:
        """Return the most probable label of each sample.

        Parameters
        ----------
        X, subjects : various
            As in :meth:`transform`.

        Returns
        -------
        list of arrays of shape (n_samples_i,)
            The most likely class of each sample.
        """
        features = self.transform(X, subjects)
        logits = [to_numpy(f) @ self.theta_ + self.bias_ for f in features]
        return [self.classes_[own.argmax(axis=1)] for own in logits]

    def _for_rows(self, rows: Any, y: Any) -> tuple[Any, Any]:
        if self.labels_locked_ or y is None:
            return super()._for_rows(rows, y)
        part = copy(self)
        codes = encode_new_labels(y, self.classes_.tolist())
        free = np.flatnonzero(codes == NO_GROUP)
        part.shared_response_ = self.shared_response_[np.isin(free, rows)]
        return part, y[rows]

    def _solve_new(self, basis: SubjectBasis, y: Any) -> Matrix:
        """Minimise the same objective over a map alone; labelled samples are enough."""
        check_rank(basis, self.n_components_)
        known = [None] * basis.n_samples if y is None else y
        codes = encode_new_labels(known, self.classes_.tolist())
        R, n_locked = self.shared_response_, int((codes == NO_GROUP).sum())
        # a model of labelled samples alone has locked them, too
        all_locked = self.labels_locked_ and not n_locked and len(codes) == len(R)
        if n_locked and n_locked != len(R):
            raise InputError(
                f"The new subject has {n_locked} samples without a label for {len(R)} "
                "rows of the shared response. Give them all, or labelled samples alone."
            )
        subject = self._terms(basis, codes, lock_all=all_locked)
        if n_locked or all_locked:
            subject.Q = polar(subject.locked.T @ R)
        else:
            R = R[:0]
            centred = self.theta_ - self.theta_.mean(axis=1, keepdims=True)
            subject.Q = polar(subject.labelled.T @ centred.T[subject.codes])
        limit, theta = self._new_iterations(0.0), np.vstack([self.theta_, self.bias_])
        steps, tol = 10 * limit.max_iter, 1e-3 * limit.tol
        step_map(subject, R, theta, n_steps=steps, tol=tol)
        return subject.Q
