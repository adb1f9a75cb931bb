"""Train on some subjects, predict others: one fold, with true or permuted labels.

Linear support vector machines get their tasks in the form in which they are quick. Many
features, such as voxels, are multiplied at once, where LIBSVM would multiply samples
one pair at a time. Its stopping rule is absolute, so the nu-SVMs of this package, whose
solution depends neither on scale nor on origin, get centred features of unit size.
Other classifiers get them as they are.
"""

import math
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from itertools import combinations
from typing import TYPE_CHECKING, Any, ClassVar, Self

import numpy as np
from numpy.typing import NDArray
from sklearn import config_context
from sklearn.base import clone
from sklearn.svm import SVC, NuSVC

from brainweave._core.arrays import Codes, Matrix
from brainweave._core.exceptions import InputError
from brainweave._core.labels import NO_LABEL
from brainweave._core.validation import check_option

if TYPE_CHECKING:
    from brainweave.evaluation.measures import AlignedFold
NU_MARGIN = 0.999  # at the largest feasible nu itself the solution may not be finite
WIDE = 100  # from so many features on LIBSVM's own products are slower
#: Hulls meet if their distance is less than this share of that of the means. Between
#: .02 and .2 it makes next to no difference (docs/gdm.md).
LEAST_DISTANCE = 0.05
DEFAULT = "nu-svm-means"


def make_classifier(given: Any = None, nu: float = 0.5) -> Any:
    """Return the classifier of a name, or the one that is given."""
    given = DEFAULT if given is None else given
    if not isinstance(given, str):
        return given
    check_option("classifier", given, tuple(_NAMED), owner="the evaluation")
    return _NAMED[given](nu=nu, kernel="linear")


def classifier_name(classifier: Any) -> str:
    """Return what tables and texts call a classifier."""
    return getattr(classifier, "title", None) or " ".join(repr(classifier).split())


def largest_nu(codes: Codes) -> float:
    """Return the largest nu that a nu-SVM can reach with these labels.

    With the smallest and the largest of the classes, ``2 min / (min + max)``: 1 when
    all are of one size (Chang and Lin, 2001).
    """
    counts = np.bincount(codes)
    counts = counts[counts > 0]
    return float(2 * counts.min() / (counts.min() + counts.max()))


def balanced_accuracy(true: Codes, predicted: Codes) -> float:
    """Average the share of hits over the categories that occur."""
    # not balanced_accuracy_score: it warns of predictions that occur nowhere, and takes
    # as long as training the classifier
    shown = np.bincount(true)
    hits = np.bincount(true[true == predicted], minlength=shown.size)
    return float((hits[shown > 0] / shown[shown > 0]).mean())


@dataclass(frozen=True)
class Task:
    """Features and coded labels of a fold, ready to train and test on."""

    train: NDArray[Any]
    test: NDArray[Any]
    train_codes: list[Codes]  # one array per training subject
    test_codes: list[Codes]  # one array per test subject

    def of_unit_size(self) -> "Task":
        """Centre the features, and bring them to unit size."""
        centre = self.train.mean(axis=0, dtype=np.float64)
        train, test = self.train - centre, self.test - centre
        return self._divided(train, test, np.sqrt(np.mean(np.square(train))))

    def products_of_unit_size(self, n_features: int) -> "Task":
        """Do the same to products."""
        rows = self.train.mean(axis=0)
        test = self.test - self.test.mean(axis=1, keepdims=True) - rows + rows.mean()
        train = self.train - rows - rows[:, None] + rows.mean()
        return self._divided(train, test, np.trace(train) / (len(train) * n_features))

    def _divided(self, train: Matrix, test: Matrix, size: float) -> "Task":
        if not (np.isfinite(size) and size > 0):
            return self
        return replace(self, train=train / size, test=test / size)


class FeasibleNuSVC(NuSVC):
    """The nu-SVM of LIBSVM, whose nu an evaluation may lower to what labels allow."""

    title: ClassVar[str] = "nu-SVM of LIBSVM"


def with_feasible_nu(classifier: Any, codes: Codes) -> tuple[Any, float | None]:
    """Copy a classifier; the nu of one of this package is lowered to what labels allow.

    Also return that nu; None for other classifiers, which stay as they are.
    """
    copy = clone(classifier)
    if not isinstance(copy, FeasibleNuSVC):
        return copy, None
    largest = largest_nu(codes)
    if copy.nu >= largest:
        copy.set_params(nu=NU_MARGIN * largest)
    return copy, float(copy.nu)


class SeparatingNuSVC(FeasibleNuSVC):
    """A nu-SVM, and the nearer mean for pairs of categories that it cannot separate.

    A nu-SVM draws its boundary between the nearest points of two reduced convex hulls,
    one of each category (Crisp and Burges, 1999); the smaller nu, the larger the hulls.
    Where they meet there is no boundary, and LIBSVM returns any direction, or values
    that are not finite. With weak signals and few features that is the rule. The means
    are what the hulls shrink to as nu grows. Other pairs are decided as by `NuSVC`,
    votes counted alike. The kernel is "linear" or "precomputed".

    `by_means_` has the number of each pair that is decided by means, in the order of
    `NuSVC`, and its boundary: weights of features (or of training samples), and the
    threshold.
    """

    title: ClassVar[str] = "nu-SVM, overlapping pairs by their means"
    decision_function_shape: str

    def fit(self, X: Any, y: Any, sample_weight: Any = None) -> Self:
        """Train; find the pairs whose hulls meet."""
        self.by_means_: dict[int, tuple[Matrix, float]] = {}
        try:
            super().fit(X, y, sample_weight)
        except ValueError:
            # raised after all is set if hulls meet exactly
            if np.isfinite(getattr(self, "dual_coef_", np.zeros(1))).all():
                raise
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
                across, middle = towards @ X, np.abs(towards) / 2
                if self.kernel == "linear":
                    self.by_means_[number] = across, float(across @ (middle @ X))
                else:
                    self.by_means_[number] = towards, float(across @ middle)
        return self

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

    def predict(self, X: Any) -> NDArray[Any]:
        """Predict by the votes of all pairs."""
        if not self.by_means_:
            return np.asarray(super().predict(X))
        if len(self.classes_) == 2:
            across, threshold = self.by_means_[0]
            wins = np.asarray(X, np.float64) @ across > threshold
            return np.asarray(self.classes_[np.where(wins, 0, 1)])
        shape, self.decision_function_shape = self.decision_function_shape, "ovo"
        decisions = self.decision_function(X)
        self.decision_function_shape = shape
        for number, (across, threshold) in self.by_means_.items():
            decisions[:, number] = np.asarray(X, np.float64) @ across - threshold
        votes = np.zeros((len(decisions), len(self.classes_)), np.intp)
        pairs = combinations(range(len(self.classes_)), 2)
        for (i, j), decision in zip(pairs, decisions.T, strict=True):
            votes[:, i] += decision > 0
            votes[:, j] += ~(decision > 0)
        return np.asarray(self.classes_[votes.argmax(axis=1)])


_NAMED = {DEFAULT: SeparatingNuSVC, "nu-svm": FeasibleNuSVC}


def run_task(task: Task, classifier: Any) -> tuple[Codes, dict[str, Any]]:
    """Train and predict; return the predicted codes, and what was done.

    That is the ``nu`` in use and ``n_by_means``, the number of pairs of categories
    whose means decided; None for classifiers that have no such thing.
    """
    codes = np.concatenate(task.train_codes)
    model, nu = with_feasible_nu(classifier, codes)
    predicted = np.asarray(_trained(model, task, codes).predict(task.test), np.intp)
    by_means = getattr(model, "by_means_", None)
    return predicted, {
        "nu": nu,
        "n_by_means": None if by_means is None else len(by_means),
    }


def _trained(model: Any, task: Task, codes: Codes) -> Any:
    try:
        return model.fit(task.train, codes)
    except ValueError as error:
        raise InputError(
            "The classifier cannot be trained on the features of the training subjects "
            f"({len(codes)} samples, {len(np.unique(codes))} categories): {error}"
        ) from error


def permuted_hits(
    task: Task,
    classifier: Any,
    who: Sequence[list[int]],
    draw: Callable[[int, int], Codes],
    n_permutations: int,
) -> list[int]:
    """Return how many are right after permuting the labels of every subject.

    `who` trains, and is tested. What is drawn for a subject depends on the number of
    the permutation alone, so that it is the same in every fold and in parallel.
    """
    # permuting within subjects changes no count, so one nu is feasible for all
    model, _ = with_feasible_nu(classifier, np.concatenate(task.train_codes))
    hits = []
    # the true labels were fitted before: nothing is left to validate
    with config_context(assume_finite=True, skip_parameter_validation=True):
        for number in range(n_permutations):
            train, test = (np.concatenate([draw(i, number) for i in s]) for s in who)
            _trained(model, task, train)
            hits.append(int(np.sum(model.predict(task.test) == test)))
    return hits


def prepare_tasks(
    features: list[NDArray[Any]], codes: list[Codes], ids: list[str], classifier: Any
) -> tuple[Callable[["AlignedFold"], Task], Any]:
    """Return what makes the tasks of folds with these features, and what to train."""
    widths = {f.shape[1] for f in features}
    if len(widths) > 1:
        raise InputError(
            f"The subjects have different numbers of features ({sorted(widths)}), so "
            "one classifier cannot serve them all. Align them first, or use one mask "
            "for all subjects."
        )
    (n_features,) = widths
    # not subclasses of others, which may look at their features
    known = type(classifier) in (SVC, NuSVC) or isinstance(classifier, FeasibleNuSVC)
    linear = known and classifier.kernel == "linear"
    resizes = linear and isinstance(classifier, FeasibleNuSVC)
    by_products = linear and n_features >= WIDE
    rows = [np.flatnonzero(own != NO_LABEL) for own in codes]
    table = np.concatenate([f[own] for f, own in zip(features, rows, strict=True)])
    if by_products:
        table = table.astype(float)
        if resizes:
            table -= table.mean(axis=0)  # nothing large is left to cancel out in a fold
        table = table @ table.T
        classifier = clone(classifier).set_params(kernel="precomputed")
    ends = np.cumsum([own.size for own in rows])
    places = np.split(np.arange(ends[-1]), ends[:-1])

    def make(fold: "AlignedFold") -> Task:
        for i in fold.test:
            if rows[i].size == 0:
                raise InputError(
                    f"Subject {ids[i]!r} has no labelled sample to test on. Leave it "
                    "out of the study, or split by other halves."
                )
        train_codes, test_codes = (
            [codes[i][rows[i]] for i in who] for who in (fold.train, fold.test)
        )
        if len(np.unique(np.concatenate(train_codes))) < 2:
            raise InputError(
                "The training subjects show fewer than two categories in their scored "
                "samples; there is nothing to classify."
            )
        at, tested = (
            np.concatenate([places[i] for i in who]) for who in (fold.train, fold.test)
        )
        if by_products:
            train, test = table[np.ix_(at, at)], table[np.ix_(tested, at)]
            task = Task(train, test, train_codes, test_codes)
            return task.products_of_unit_size(n_features) if resizes else task
        task = Task(table[at], table[tested], train_codes, test_codes)
        return task.of_unit_size() if resizes else task

    return make, classifier


# -- p-values --------------------------------------------------------------------------
# Each subject's labels are put into another order, the same wherever this subject
# trains or tests, since the folds of subjects who train for each other rise and fall
# together. What moves is a block, neighbouring samples of one label, within its run:
# neighbours are alike also in noise.
# The alignment is not repeated. Labels of one half may align for the scores of the
# other, so each half has a p-value of its own, and the two are combined by their Cauchy
# quantiles (Liu and Xie, 2020): uniform for halves that do not depend on each other and
# for halves that rise and fall together; between these, normal scores of any
# correlation have 5.4 % below .05 at most.


Record = dict[str, Any]

MOST_ORDERS = 1e15  # more are not counted


class LabelOrders:
    """The orders in which the labels of the scored samples of a study may come.

    From the coded labels and the runs, if known, of every subject's samples; `key`
    seeds all draws. `n_orders` differ in more than the names of categories.
    """

    def __init__(self, codes: list[Codes], runs: list[Any], key: list[int]) -> None:
        self._key = key
        self._blocks = [_blocks(*own) for own in zip(codes, runs, strict=True)]
        self.n_orders = self._count()

    def draw(self, subject: int, number: int) -> Codes:
        """Return the labels of a subject in another order, the same for a number."""
        rng = np.random.default_rng([*self._key, subject, number])
        rows = np.concatenate([row for row, _ in self._blocks[subject]])
        out = np.empty(rows.size, np.intp)
        place = 0
        for own, blocks in self._blocks[subject]:
            moved = [blocks[i] for i in rng.permutation(len(blocks))]
            out[place : place + own.size] = np.concatenate(moved)
            place += own.size
        return out[np.argsort(rows)]

    def _count(self) -> float:
        """Count orders; those that a renaming turns into each other are one."""
        total = 0.0  # a logarithm
        shapes: dict[int, list[Any]] = {}  # where and how long the blocks of a category
        for subject, runs in enumerate(self._blocks):
            for run, (_, blocks) in enumerate(runs):
                kinds = Counter((int(b[0]), b.size) for b in blocks)
                total += math.lgamma(len(blocks) + 1)
                total -= sum(math.lgamma(n + 1) for n in kinds.values())
                for (code, size), n in sorted(kinds.items()):
                    shapes.setdefault(code, []).append((subject, run, size, n))
        alike = Counter(map(tuple, shapes.values()))
        total -= sum(math.lgamma(n + 1) for n in alike.values())
        return float(min(MOST_ORDERS, round(math.exp(min(total, 40.0)))))


def _blocks(codes: Codes, runs: Any) -> list[tuple[Codes, list[Codes]]]:
    """Return, for each run, which labelled samples it has, and its blocks of labels.

    Where no run shows two categories, whole runs change places.
    """
    run_of = np.zeros(codes.size, np.intp)
    if runs is not None:
        numbers: dict[Any, int] = {}
        names = np.asarray(runs, dtype=object).tolist()
        run_of = np.array([numbers.setdefault(name, len(numbers)) for name in names])
    labelled = np.flatnonzero(codes != NO_LABEL)
    own, run_of = codes[labelled], run_of[labelled]
    if not any(np.unique(own[run_of == run]).size > 1 for run in np.unique(run_of)):
        groups, borders = np.zeros_like(run_of), np.diff(run_of) != 0
    else:
        groups, borders = run_of, np.zeros(max(0, own.size - 1), bool)
    found = []
    for group in np.unique(groups):
        rows = np.flatnonzero(groups == group)
        ends = (np.diff(own[rows]) != 0) | (np.diff(labelled[rows]) != 1)
        if borders.any():
            ends |= borders
        found.append((rows, np.split(own[rows], np.flatnonzero(ends) + 1)))
    return found


def permuted_means(records: Sequence[Record]) -> Matrix:
    """Return the mean over folds under each permutation of the labels."""
    if not records or not all("permuted_hits" in r for r in records):
        return np.empty(0)
    return np.asarray(
        np.mean([np.divide(r["permuted_hits"], r["n_test"]) for r in records], axis=0)
    )


def p_value(records: Sequence[Record]) -> float | None:
    """Compare the mean over folds with the means under permuted labels, if any."""
    n = permuted_means(records).size
    if not n:
        return None
    found = []
    for half in _halves(records):
        permuted, mean = permuted_means(half), np.mean([r["score"] for r in half])
        # a tie counts against the alignment, also one broken by rounding
        as_good = (permuted >= mean - 1e-12).sum()
        found.append((1 + as_good) / (1 + permuted.size))
    return _combined(found, n)


def smallest_p(records: Sequence[Record]) -> float | None:
    """Return what p cannot be below: for the permutations, or for few orders."""
    n = permuted_means(records).size
    if not n:
        return None
    orders = [half[0].get("n_orders", np.inf) for half in _halves(records)]
    return _combined([max(1 / (1 + n), 1 / known) for known in orders], n)


def _halves(records: Sequence[Record]) -> list[list[Record]]:
    halves: dict[int, list[Record]] = {}
    for r in records:
        halves.setdefault(r["half"], []).append(r)
    return list(halves.values())


def _combined(values: Sequence[float], n_permutations: int) -> float:
    """Combine p-values by the mean of their Cauchy quantiles (Liu and Xie, 2020)."""
    if len(values) == 1:
        return float(values[0])
    # p = 1 stands for all up to 1: alone it would outweigh any other
    highest = 1 - 0.5 / (1 + n_permutations)
    quantiles = np.tan((0.5 - np.minimum(values, highest)) * np.pi)
    return float(0.5 - np.arctan(np.mean(quantiles)) / np.pi)
