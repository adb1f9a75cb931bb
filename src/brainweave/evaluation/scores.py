"""Scores without a classifier: matching of time segments, and voxels from others.

Both need scored samples that are locked in time: the same stimuli in the same order for
all subjects.
"""

from typing import Any

from brainweave.evaluation.evaluate import evaluate
from brainweave.evaluation.measures import Matching, Measure, Reconstruction
from brainweave.evaluation.results import SubjectScores
from brainweave.evaluation.splits import SplitStudy
from brainweave.study.study import Study

__all__ = [
    "SubjectScores",
    "between_subject_matching",
    "between_subject_reconstruction",
]


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
    progress: Any = None,
) -> SubjectScores:
    """Score an alignment by matching time segments of samples it has not seen.

    Parameters
    ----------
    aligner, study, y, halves, align, match, leave_out, protocol, random_state
    n_jobs, progress
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
    return _scores(
        aligner,
        study,
        y,
        Matching(window, step),
        "matching",
        split={"halves": halves, "align": align, "match": match},
        leave_out=leave_out,
        protocol=protocol,
        random_state=random_state,
        n_jobs=n_jobs,
        progress=progress,
    )


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
    progress: Any = None,
) -> SubjectScores:
    """Score an alignment by predicting the voxels of a subject from other subjects.

    The shared features of the others are averaged and mapped back to the voxels of the
    subject that is left out, for samples that the alignment has not seen.

    Parameters
    ----------
    aligner, study, y, halves, align, match, leave_out, protocol, random_state
    n_jobs, progress
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
    return _scores(
        aligner,
        study,
        y,
        Reconstruction(score),
        score,
        split={"halves": halves, "align": align, "match": match},
        leave_out=leave_out,
        protocol=protocol,
        random_state=random_state,
        n_jobs=n_jobs,
        progress=progress,
    )


def _scores(
    aligner: Any, study: Any, y: Any, measure: Measure, score: str, **how: Any
) -> SubjectScores:
    split, records, known = evaluate(aligner, study, y, measure, **how)
    return SubjectScores.from_records(records, subjects=split.ids, score=score, **known)
