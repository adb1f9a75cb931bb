"""Scores without a classifier: matching of time segments, and voxels from others.

Both need scored samples that are locked in time: the same stimuli in the same order for
all subjects.
"""

import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from brainweave._arrays import is_torch, map_subjects, to_numpy
from brainweave.evaluation.mapping import (
    AlignedFold,
    Clock,
    align_folds,
    seed_from,
    seeded,
)
from brainweave.evaluation.splits import SplitStudy, split_study
from brainweave.exceptions import InputError
from brainweave.metrics import (
    match_segments,
    reconstruction_score,
    segment_chance,
    zscored,
)
from brainweave.study.study import Study

if TYPE_CHECKING:
    import pandas as pd

__all__ = [
    "SubjectScores",
    "between_subject_matching",
    "between_subject_reconstruction",
]

Matrix = NDArray[np.float64]


@dataclass
class SubjectScores:
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
        Name of the aligner.
    voxel_scores : list of list of ndarray of shape (n_voxels_i,)
        Per part and subject, for scores that are made of voxels; else empty.
    seconds : dict of str to float
        Time spent in each stage.
    """

    scores: Matrix
    chance: float
    subjects: list[str]
    score: str
    protocol: str
    method: str
    voxel_scores: list[list[Matrix]] = field(default_factory=list, repr=False)
    seconds: dict[str, float] = field(default_factory=dict, repr=False)

    @property
    def mean(self) -> float:
        """Mean over parts and subjects."""
        return float(self.scores.mean())

    @property
    def std(self) -> float:
        """Standard deviation over parts and subjects (divided by their number)."""
        return float(self.scores.std())

    def to_frame(self) -> "pd.DataFrame":
        """Give a tidy table with one row per part and subject."""
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


def between_subject_matching(
    aligner: Any,
    study: Study | SplitStudy | list[Any],
    y: Any = None,
    *,
    window: int = 9,
    step: int = 1,
    halves: Any = "category",
    align: Any = None,
    match: str | None = None,
    leave_out: int = 1,
    protocol: str = "joint",
    random_state: Any = None,
    n_jobs: int | None = None,
) -> SubjectScores:
    """Score an alignment by matching time segments of samples it has not seen.

    Parameters
    ----------
    aligner, study, y, halves, align, match, leave_out, protocol, random_state, n_jobs
        As in :func:`between_subject_classification`. Without categories
        ``halves="category"`` is the first half of the samples against the second.
    window, step : int
        As in :func:`brainweave.time_segment_matching`. A subject that is left out is
        matched with the average of those that are not.

    Returns
    -------
    SubjectScores

    Examples
    --------
    >>> from brainweave import GDM
    >>> rng = np.random.default_rng(0)
    >>> story = rng.normal(size=(120, 5))
    >>> X = [story @ rng.normal(size=(5, 50)) for _ in range(4)]
    >>> print(between_subject_matching(GDM(5, graph="time"), X))
    GDM (joint): matching 1.000 ± 0.000, chance 0.027
    """

    def score(fold: AlignedFold, i: int) -> float:
        own, others = zscored(fold.features[i]), _others(fold, standardized=True)
        return match_segments(own, others, window=window, step=step)

    run = _Run(study, y, halves=halves, align=align, match=match)
    scores = run.each_subject(
        score,
        aligner,
        leave_out=leave_out,
        protocol=protocol,
        random_state=random_state,
        n_jobs=n_jobs,
    )
    lengths = [part.scored.subjects[0].n_samples for part in run.split.parts]
    chance = float(
        np.mean([segment_chance(n, window=window, step=step) for n in lengths])
    )
    return run.result(np.array(scores), chance, "matching", aligner, protocol)


def between_subject_reconstruction(
    aligner: Any,
    study: Study | SplitStudy | list[Any],
    y: Any = None,
    *,
    score: str = "correlation",
    halves: Any = "category",
    align: Any = None,
    match: str | None = None,
    leave_out: int = 1,
    protocol: str = "joint",
    random_state: Any = None,
    n_jobs: int | None = None,
) -> SubjectScores:
    """Score an alignment by predicting the voxels of a subject from other subjects.

    The shared features of the others are averaged and mapped back to the voxels of the
    subject that is left out, for samples that the alignment has not seen.

    Parameters
    ----------
    aligner, study, y, halves, align, match, leave_out, protocol, random_state, n_jobs
        As in :func:`between_subject_classification`.
    score : {"correlation", "r2"}, default="correlation"
        As in :func:`brainweave.reconstruction_score`; a subject's score is the mean
        over its voxels that vary.

    Returns
    -------
    SubjectScores
        With ``voxel_scores``, which can be put on the brain.

    Examples
    --------
    >>> from brainweave import GDM
    >>> rng = np.random.default_rng(0)
    >>> story = rng.normal(size=(60, 3))
    >>> X = [story @ rng.normal(size=(3, 50)) for _ in range(4)]
    >>> print(between_subject_reconstruction(GDM(3, graph="time"), X))
    GDM (joint): correlation 1.000 ± 0.000, chance 0.000
    """

    def predict(fold: AlignedFold, i: int) -> Matrix:
        predicted = fold.maps[i].inverse_transform(_others(fold, standardized=False))
        samples = run.split.parts[fold.part].scored.subjects[i].samples
        truth = to_numpy(samples) if is_torch(samples) else np.asarray(samples)
        return reconstruction_score(truth, predicted, score=score)

    run = _Run(study, y, halves=halves, align=align, match=match)
    voxels = run.each_subject(
        predict,
        aligner,
        leave_out=leave_out,
        protocol=protocol,
        random_state=random_state,
        n_jobs=n_jobs,
    )
    means = np.array([[np.nanmean(v) for v in part] for part in voxels])
    result = run.result(means, 0.0, score, aligner, protocol)
    result.voxel_scores = voxels
    return result


class _Run:
    """A split study that is locked in time, scored subject by subject."""

    def __init__(self, study: Any, y: Any, **how: Any) -> None:
        self.start, self.clock = time.perf_counter(), Clock()
        with self.clock("bases"):
            self.split = split_study(study, y, **how)
        for part in self.split.parts:
            _check_scored(part.scored)

    def each_subject(
        self,
        score: Any,
        aligner: Any,
        *,
        random_state: Any,
        n_jobs: int | None,
        **how: Any,
    ) -> list[list[Any]]:
        """Give score(fold, subject) for every part and subject."""
        found: list[list[Any]] = [
            [None] * self.split.n_subjects for _ in self.split.parts
        ]
        model = seeded(aligner, seed_from(random_state))
        for batch in align_folds(
            model, self.split, n_jobs=n_jobs, clock=self.clock, **how
        ):
            with self.clock("score"):
                pairs = list(_tested(batch))
                folds, subjects = [p[0] for p in pairs], [p[1] for p in pairs]
                values = map_subjects(score, folds, subjects, n_jobs=n_jobs)
                for fold, i, value in zip(folds, subjects, values, strict=True):
                    found[fold.part][i] = value
        return found

    def result(
        self, scores: Matrix, chance: float, score: str, aligner: Any, protocol: str
    ) -> SubjectScores:
        self.clock.seconds["total"] = time.perf_counter() - self.start
        return SubjectScores(
            scores=scores,
            chance=chance,
            subjects=self.split.ids,
            score=score,
            protocol=protocol,
            method=type(aligner).__name__,
            seconds=self.clock.seconds,
        )


def _tested(batch: list[AlignedFold]) -> Iterator[tuple[AlignedFold, int]]:
    for fold in batch:
        for i in fold.test:
            yield fold, i


def _others(fold: AlignedFold, *, standardized: bool) -> Matrix:
    features = [to_numpy(fold.features[i]) for i in fold.train]
    return np.mean([zscored(f) if standardized else f for f in features], axis=0)


def _check_scored(scored: Study) -> None:
    first = scored.subjects[0]
    for subject in scored:
        if subject.n_samples != first.n_samples:
            raise InputError(
                f"Subject {subject.id!r} has {subject.n_samples} scored samples, "
                f"{first.id!r} has {first.n_samples}. This score compares subjects "
                "sample by sample: keep the stimuli that all have, in one order."
            )
        if subject.labels is None or first.labels is None:
            continue
        if not np.array_equal(subject.labels, first.labels):
            raise InputError(
                f"The scored samples of subject {subject.id!r} show other categories "
                f"than those of {first.id!r} in the same rows. This score compares "
                "subjects sample by sample: bring them into one order."
            )
