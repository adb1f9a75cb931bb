"""What an evaluation found: the scores of folds, and what they say together.

Every evaluation gives one record per fold, a dict with at least ``half``, ``fold``,
``test_subjects`` and ``score``; the results here are made of such records, whether they
come from memory or from a store.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Self

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    import pandas as pd

__all__ = [
    "ClassificationResult",
    "SubjectScores",
    "chance_level",
    "p_value",
    "permuted_means",
]

Matrix = NDArray[np.float64]
Record = dict[str, Any]

_OF_A_FOLD = (
    "balanced_accuracy",
    "n_train",
    "n_test",
    "nu",
    "best_params",
    "n_components",
)


class _Scores:
    """What all results tell of their scores."""

    scores: Matrix
    study: dict[str, Any]

    @property
    def mean(self) -> float:
        """Mean of the scores, over folds or over parts and subjects."""
        return float(self.scores.mean())

    @property
    def std(self) -> float:
        """Standard deviation of the scores (divided by their number)."""
        return float(self.scores.std())

    @property
    def study_fingerprint(self) -> str | None:
        """Fingerprint of the study that was scored; None if it was not recorded."""
        return self.study.get("fingerprint")


@dataclass
class ClassificationResult(_Scores):
    """Accuracy of a classifier on subjects it was not trained on.

    Attributes
    ----------
    scores : ndarray of shape (n_folds,)
        Accuracy in each fold.
    folds : list of dict
        For each fold: ``half`` (which part aligned, from 0), ``fold`` (which group of
        subjects was left out), ``test_subjects``, ``accuracy``, ``balanced_accuracy``,
        ``n_train``, ``n_test``, ``nu`` (of a nu-SVM, as used), ``best_params`` (of an
        aligner that tunes itself), both None where they do not apply, and
        ``n_components`` (shared features in use).
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
        What was scored: ``name``, ``fingerprint`` (of the whole study; None where it is
        not known), ``subjects`` (ids) and ``n_samples`` (id to number of samples).
    design : dict of str to Any
        How: ``leave_out``, ``classifier``, ``n_permutations``, ``random_state``,
        ``halves`` and ``match``.
    """

    scores: Matrix
    folds: list[dict[str, Any]]
    categories: list[Any]
    confusion: NDArray[np.intp]
    chance: float
    protocol: str
    method: str
    p_value: float | None = None
    permutation_scores: Matrix = field(default_factory=lambda: np.empty(0), repr=False)
    seconds: dict[str, float] = field(default_factory=dict, repr=False)
    settings: dict[str, Any] = field(default_factory=dict, repr=False)
    study: dict[str, Any] = field(default_factory=dict, repr=False)
    design: dict[str, Any] = field(default_factory=dict, repr=False)

    @classmethod
    def from_records(
        cls, records: Sequence[Record], *, categories: list[Any], **known: Any
    ) -> Self:
        """Make a result of the records of its folds.

        Parameters
        ----------
        records : sequence of dict
            One per fold, as :class:`brainweave.evaluation.measures.Classification`
            gives them.
        categories : list
            The categories, in the order of the confusion matrices.
        **known
            The other fields: method, protocol, seconds, settings, study, design.
        """
        folds = [
            {
                **{k: r[k] for k in ("half", "fold", "test_subjects")},
                "accuracy": r["score"],
                **{k: r.get(k) for k in _OF_A_FOLD},
            }
            for r in records
        ]
        p = p_value(records)
        return cls(
            scores=np.array([r["score"] for r in records], dtype=np.float64),
            folds=folds,
            categories=list(categories),
            confusion=np.sum([r["confusion"] for r in records], axis=0, dtype=np.intp),
            chance=chance_level(records),
            p_value=None if np.isnan(p) else p,
            permutation_scores=permuted_means(records),
            **known,
        )

    @property
    def n_components(self) -> list[int]:
        """Numbers of shared features in use over the folds, sorted; most often one."""
        used = {fold.get("n_components") for fold in self.folds}
        return sorted(n for n in used if n is not None)

    @property
    def balanced_accuracy(self) -> float:
        """Mean over folds of the accuracy averaged over categories."""
        return float(np.mean([fold["balanced_accuracy"] for fold in self.folds]))

    def to_frame(self) -> "pd.DataFrame":
        """Return a tidy table with one row per fold."""
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


@dataclass
class SubjectScores(_Scores):
    """One score per part of the study and subject.

    Attributes
    ----------
    scores : ndarray of shape (n_parts, n_subjects)
        The scores; row h is of the samples that part h did not align with.
    chance : float
        What guessing reaches.
    subjects : list of str
        Ids of the subjects.
    score : str
        What was measured.
    protocol : str
        "joint" or "held-out".
    method : str
        Name of the aligner's class.
    voxel_scores : list of list of ndarray of shape (n_voxels_i,)
        Per part and subject, for scores that are made of voxels; else empty.
    seconds : dict of str to float
        Time spent in each stage.
    settings, study, design : dict of str to Any
        As in :class:`ClassificationResult`.
    """

    scores: Matrix
    chance: float
    subjects: list[str]
    score: str
    protocol: str
    method: str
    voxel_scores: list[list[Matrix]] = field(default_factory=list, repr=False)
    seconds: dict[str, float] = field(default_factory=dict, repr=False)
    settings: dict[str, Any] = field(default_factory=dict, repr=False)
    study: dict[str, Any] = field(default_factory=dict, repr=False)
    design: dict[str, Any] = field(default_factory=dict, repr=False)

    @classmethod
    def from_records(
        cls, records: Sequence[Record], *, subjects: list[str], score: str, **known: Any
    ) -> Self:
        """Make a result of the records of its folds, with scores subject by subject."""
        n_parts = 1 + max(r["half"] for r in records)
        scores = np.full((n_parts, len(subjects)), np.nan)
        voxels: list[list[Any]] = [[None] * len(subjects) for _ in range(n_parts)]
        for r in records:
            where = [subjects.index(id) for id in r["test_subjects"]]
            scores[r["half"], where] = r["subject_scores"]
            for i, values in zip(where, r.get("voxel_scores", ()), strict=False):
                voxels[r["half"]][i] = values
        has_voxels = all("voxel_scores" in r for r in records)
        return cls(
            scores=scores,
            chance=chance_level(records),
            subjects=list(subjects),
            score=score,
            voxel_scores=voxels if has_voxels else [],
            **known,
        )

    def to_frame(self) -> "pd.DataFrame":
        """Return a tidy table with one row per part and subject."""
        import pandas as pd

        half, subject = np.indices(self.scores.shape)
        return pd.DataFrame(
            {
                "method": self.method,
                "protocol": self.protocol,
                "half": half.ravel(),
                "subject": [self.subjects[i] for i in subject.ravel()],
                self.score: self.scores.ravel(),
            }
        )

    def __str__(self) -> str:
        return (
            f"{self.method} ({self.protocol}): {self.score} {self.mean:.3f} ± "
            f"{self.std:.3f}, chance {self.chance:.3f}"
        )


def chance_level(records: Sequence[Record]) -> float:
    """Return what guessing reaches: the most frequent category, or as recorded."""
    if records and all("confusion" in r for r in records):
        counts = np.sum([np.sum(r["confusion"], axis=1) for r in records], axis=0)
        return float(counts.max() / counts.sum())
    # halves may differ in length; every half weighs the same
    halves: dict[int, list[float]] = {}
    for r in records:
        if r.get("chance") is not None:
            halves.setdefault(r["half"], []).append(r["chance"])
    return float(np.mean([np.mean(v) for v in halves.values()])) if halves else np.nan


def permuted_means(records: Sequence[Record]) -> Matrix:
    """Return the mean over folds under each permutation of the training labels."""
    if not records or not all("permuted_hits" in r for r in records):
        return np.empty(0)
    return np.asarray(
        np.mean([np.divide(r["permuted_hits"], r["n_test"]) for r in records], axis=0)
    )


def p_value(records: Sequence[Record]) -> float:
    """Compare the mean over folds with the means under permuted labels."""
    permuted = permuted_means(records)
    if not permuted.size:
        return float("nan")
    mean = np.mean([r["score"] for r in records])
    # a tie counts against the alignment, also one broken by rounding
    return float((1 + (permuted >= mean - 1e-12).sum()) / (1 + permuted.size))
