"""Between-subject classification: trained on some subjects, tested on others.

The measure of the GDM paper, and of most papers on functional alignment since Haxby et
al. (2011).
"""

import time
import warnings
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from brainweave._arrays import map_subjects
from brainweave.evaluation.classifiers import (
    UNLABELLED,
    Codes,
    Task,
    balanced_accuracy,
    check_permutations,
    default_classifier,
    nu_parameter,
    permuted_accuracies,
    run_task,
)
from brainweave.evaluation.align_folds import (
    AlignedFold,
    Clock,
    align_folds,
    seed_from,
    seeded,
)
from brainweave.evaluation.splits import SplitStudy, split_study
from brainweave.evaluation.linear_svm import task_maker
from brainweave.exceptions import ClassifierWarning, InputError
from brainweave.study.study import Study

if TYPE_CHECKING:
    import pandas as pd

PERMUTATION_BLOCK = 20  # permutations that one thread runs in a row

__all__ = ["ClassificationResult", "between_subject_classification"]


@dataclass
class ClassificationResult:
    """Accuracy of a classifier on subjects it was not trained on.

    Attributes
    ----------
    scores : ndarray of shape (n_folds,)
        Accuracy in each fold.
    folds : list of dict
        For each fold: ``half`` (which part aligned, from 0), ``fold`` (which group of
        subjects was left out), ``test_subjects``, ``accuracy``, ``balanced_accuracy``,
        ``n_train``, ``n_test``, ``nu`` (of a nu-SVM, as used) and ``best_params`` (of
        an aligner that tunes itself), both None where they do not apply.
    categories : list
        The categories, sorted.
    confusion : ndarray of shape (n_categories, n_categories)
        Counts over all folds; rows are true, columns predicted categories.
    chance : float
        Share of the most frequent category among the tested samples: what guessing
        reaches at best, 1 / n_categories if they are balanced.
    p_value : float or None
        From permutations, ``(1 + number at least as good) / (1 + n_permutations)``.
    permutation_scores : ndarray of shape (n_permutations,)
        Mean accuracy over folds with permuted training labels.
    seconds : dict of str to float
        Time spent in each stage: "bases", "align", "join", "map", "classify",
        "permute", and "total".
    protocol : str
        "joint" or "held-out".
    method : str
        Name of the aligner's class, such as "GDM".
    settings : dict of str to Any
        The aligner's parameters in terms of JSON; see also :attr:`n_components`.
    study : dict of str to Any
        What was scored: ``name``, ``fingerprint`` (see ``Study.fingerprint``; None
        where it is not known), ``subjects`` (ids) and ``n_samples`` (id to number of
        samples that took part).
    design : dict of str to Any
        How: ``leave_out``, ``n_permutations``, ``classifier``, ``random_state`` and,
        where known, ``halves`` and ``match``.
    """

    scores: NDArray[np.float64]
    folds: list[dict[str, Any]]
    categories: list[Any]
    confusion: NDArray[np.intp]
    chance: float
    protocol: str
    method: str
    p_value: float | None = None
    permutation_scores: NDArray[np.float64] = field(
        default_factory=lambda: np.empty(0), repr=False
    )
    seconds: dict[str, float] = field(default_factory=dict, repr=False)
    settings: dict[str, Any] = field(default_factory=dict, repr=False)
    study: dict[str, Any] = field(default_factory=dict, repr=False)
    design: dict[str, Any] = field(default_factory=dict, repr=False)

    @property
    def study_fingerprint(self) -> str | None:
        """Fingerprint of the study that was scored; None if it was not recorded."""
        return self.study.get("fingerprint")

    @property
    def n_components(self) -> list[int]:
        """Numbers of shared features in use, sorted; most often one."""
        used = {fold.get("n_components") for fold in self.folds}
        return sorted(n for n in used if n is not None)

    @property
    def mean(self) -> float:
        """Mean accuracy over folds."""
        return float(self.scores.mean())

    @property
    def std(self) -> float:
        """Standard deviation of the accuracy over folds (divided by their number)."""
        return float(self.scores.std())

    @property
    def balanced_accuracy(self) -> float:
        """Mean over folds of the accuracy averaged over categories."""
        return float(np.mean([fold["balanced_accuracy"] for fold in self.folds]))

    def to_frame(self) -> "pd.DataFrame":
        """Give a tidy table with one row per fold."""
        import pandas as pd

        common = {"method": self.method, "protocol": self.protocol}
        rows = []
        for fold in self.folds:
            row = {**common, **fold, "chance": self.chance}
            row["test_subjects"] = ", ".join(fold["test_subjects"])
            rows.append(row)
        return pd.DataFrame(rows)

    def __str__(self) -> str:
        p = "" if self.p_value is None else f", p = {self.p_value:.3g}"
        return (
            f"{self.method} ({self.protocol}): {self.mean:.1%} ± {self.std:.1%} over "
            f"{len(self.folds)} folds, chance {self.chance:.1%}{p}"
        )


def between_subject_classification(
    aligner: Any,
    study: Study | SplitStudy | list[Any],
    y: Any = None,
    *,
    halves: Any = "category",
    align: Any = None,
    match: str | None = None,
    leave_out: int = 1,
    protocol: str = "joint",
    classifier: Any = None,
    n_permutations: int = 0,
    random_state: Any = None,
    n_jobs: int | None = None,
) -> ClassificationResult:
    """Score an alignment by classifying the samples of subjects that were left out.

    The samples of each subject are divided into two halves. One half aligns; the other,
    mapped into the shared space, trains a classifier on all subjects but a few and
    tests it on those; then the halves change roles. Groups of ``leave_out`` consecutive
    subjects are left out in turn: 16 subjects, 4 left out, make 4 x 2 = 8 folds.

    Parameters
    ----------
    aligner : aligner
        Any aligner of this package; it is copied, not changed.
    study : Study, list of arrays of shape (n_samples_i, n_voxels_i), or SplitStudy
        The data. A :func:`split_study` shares the work of several evaluations; it
        brings its own halves.
    y : list of array-like, optional
        Categories; by default those of the study. None or NaN marks samples without
        one, which may align but are not classified.
    halves : {"category", "run"} or list of boolean arrays, default="category"
        How samples are divided; see :func:`split_study`.
    align : list of Study, or of lists of arrays, optional
        Separate samples to align with, such as thirds of a movie: each aligns once, all
        samples of `study` are classified, and `halves` is not used.
    match : {"truncate", "average", "intersect"}, optional
        Make the aligning samples correspond row by row, for methods that need them
        locked in time; see :func:`split_study`.
    leave_out : int, default=1
        How many subjects are tested at a time.
    protocol : {"joint", "held-out"}, default="joint"
        "joint", the paper's: the aligning samples of the test subjects take part in the
        fit. "held-out": the template is learned without the test subjects, who join it
        by ``fit_new_subject`` with their own aligning samples. The first is known to
        inflate accuracy [1]_; report both. Either way the labels of a test subject's
        aligning samples are used by methods that use labels, those of its classified
        samples never.
    classifier : scikit-learn classifier, optional
        Default: ``NuSVC(nu=0.5, kernel="linear")``. A nu that the training labels make
        infeasible (unbalanced categories) is lowered to the largest feasible one; that
        is warned about and recorded in the folds.
    n_permutations : int, default=0
        How often to permute the training labels, within each subject, for a p-value.
        The alignment is not repeated.
    random_state : int, Generator or None
        Seeds the permutations, and an aligner or classifier whose own ``random_state``
        is None.
    n_jobs : int, optional
        Subjects and folds worked on at the same time; default one per core. The result
        does not depend on it.

    Returns
    -------
    ClassificationResult

    References
    ----------
    .. [1] Imaging Neuroscience (2024), doi 10.1162/imag_a_00253.

    Examples
    --------
    >>> from brainweave import GDM
    >>> rng = np.random.default_rng(0)
    >>> patterns, y = rng.normal(size=(3, 5)), [[0, 1, 2] * 8] * 4
    >>> X = [patterns[l] @ rng.normal(size=(5, 40)) for l in y]
    >>> X = [x + 0.1 * rng.normal(size=x.shape) for x in X]
    >>> result = between_subject_classification(GDM(n_components=2), X, y)
    >>> print(result)
    GDM (joint): 100.0% ± 0.0% over 8 folds, chance 33.3%
    """
    start = time.perf_counter()
    clock = Clock()
    n_permutations = check_permutations(n_permutations)
    seed = seed_from(random_state)
    with clock("bases"):
        split = split_study(study, y, halves=halves, align=align, match=match)
    codes = encode_labels(split)
    model = seeded(default_classifier() if classifier is None else classifier, seed)
    drawn = np.random.SeedSequence(seed).generate_state(1)[0]
    tally = _Tally(
        split,
        codes,
        model,
        n_permutations=n_permutations,
        seed=int(drawn),
        n_jobs=n_jobs,
    )
    batches = align_folds(
        seeded(aligner, seed),
        split,
        leave_out=leave_out,
        protocol=protocol,
        n_jobs=n_jobs,
        clock=clock,
    )
    for batch in batches:
        tally.add(batch, clock)
    _warn_of_nu(model, tally.folds)
    clock.seconds["total"] = time.perf_counter() - start
    return tally.result(type(aligner).__name__, protocol, clock.seconds)


class _Tally:
    """Collects the folds."""

    def __init__(
        self,
        split: SplitStudy,
        codes: list[list[Codes]],
        classifier: Any,
        *,
        n_permutations: int,
        seed: int,
        n_jobs: int | None,
    ) -> None:
        self.split, self.codes, self.classifier = split, codes, classifier
        self.seed, self.n_jobs = seed, n_jobs
        self.folds: list[dict[str, Any]] = []
        size = len(split.categories)
        self.confusion = np.zeros((size, size), np.intp)
        self.permuted = np.zeros(n_permutations)

    def add(self, batch: list[AlignedFold], clock: Clock) -> None:
        ids = self.split.ids
        with clock("classify"):
            make, model = task_maker(
                batch, self.codes[batch[0].part], ids, self.classifier
            )
            tasks = [make(fold) for fold in batch]
            answers = map_subjects(
                lambda task: run_task(task, model), tasks, n_jobs=self.n_jobs
            )
            for fold, task, (predicted, nu) in zip(batch, tasks, answers, strict=True):
                self._record(fold, task, predicted, nu)
        if not self.permuted.size:
            return
        with clock("permute"):
            blocks = _blocks(self.permuted.size, PERMUTATION_BLOCK)
            jobs = [
                (task, [[self.seed, fold.part, i] for i in fold.train], numbers)
                for fold, task in zip(batch, tasks, strict=True)
                for numbers in blocks
            ]
            scores = map_subjects(
                lambda job: permuted_accuracies(job[0], model, *job[1:]),
                jobs,
                n_jobs=self.n_jobs,
            )
            by_fold = np.reshape(np.concatenate(scores), (len(batch), -1))
            self.permuted += by_fold.sum(axis=0)

    def _record(
        self, fold: AlignedFold, task: Task, predicted: Codes, nu: float | None
    ) -> None:
        np.add.at(self.confusion, (task.test_codes, predicted), 1)
        self.folds.append(
            {
                "half": fold.part,
                "fold": fold.fold,
                "test_subjects": [self.split.ids[i] for i in fold.test],
                "accuracy": float(np.mean(task.test_codes == predicted)),
                "balanced_accuracy": balanced_accuracy(task.test_codes, predicted),
                "n_train": len(task.train),
                "n_test": len(task.test),
                "nu": nu,
                "best_params": getattr(fold.aligner, "best_params_", None),
            }
        )

    def result(
        self, method: str, protocol: str, seconds: dict[str, float]
    ) -> ClassificationResult:
        scores = np.array([fold["accuracy"] for fold in self.folds])
        permuted = self.permuted / len(scores)
        p_value = None
        if permuted.size:
            # a tie counts against the alignment, also one broken by rounding
            as_good = int((permuted >= scores.mean() - 1e-12).sum())
            p_value = (1 + as_good) / (1 + permuted.size)
        counts = self.confusion.sum(axis=1)
        return ClassificationResult(
            scores=scores,
            folds=self.folds,
            categories=self.split.categories,
            confusion=self.confusion,
            chance=float(counts.max() / counts.sum()),
            protocol=protocol,
            method=method,
            p_value=p_value,
            permutation_scores=permuted,
            seconds=seconds,
        )


def _blocks(size: int, length: int) -> list[range]:
    return [range(s, min(s + length, size)) for s in range(0, size, length)]


def encode_labels(split: SplitStudy) -> list[list[Codes]]:
    """Give numbers for the categories of the scored samples, per part and subject."""
    if len(split.categories) < 2:
        raise InputError(
            "Classification needs scored samples of at least two categories; got "
            f"{split.categories}. Pass y, or a study with labels."
        )
    code_of = {category: code for code, category in enumerate(split.categories)}
    return [
        [
            np.full(s.n_samples, UNLABELLED, np.intp)
            if s.labels is None
            else np.array([code_of.get(v, UNLABELLED) for v in s.labels.tolist()])
            for s in part.scored
        ]
        for part in split.parts
    ]


def _warn_of_nu(classifier: Any, folds: list[dict[str, Any]]) -> None:
    name = nu_parameter(classifier)
    if name is None:
        return
    asked = classifier.get_params(deep=True)[name]
    used = [fold["nu"] for fold in folds]
    if min(used) < asked:
        warnings.warn(
            f"nu={asked:g} is infeasible for the training labels, whose categories are "
            f"of different sizes: it was lowered to {min(used):.3g} in "
            f"{sum(nu < asked for nu in used)} of {len(used)} folds. Give a "
            "smaller nu to the classifier to choose it yourself.",
            ClassifierWarning,
            stacklevel=3,
        )
