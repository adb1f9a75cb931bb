"""The one way from a split study to scores: align, fold by fold, and measure.

Whatever scores an alignment comes through :func:`score_folds`: the functions for users
below, the search for settings, and the runner of grids. They differ in who asks, and in
where records go.
"""

import time
from collections.abc import Callable, Collection, Iterator, Mapping
from functools import partial
from typing import Any

import numpy as np

from brainweave._core.exceptions import ClassifierWarning, warn_user
from brainweave._core.progress import shown_progress
from brainweave.evaluation.align_folds import (
    Clock,
    align_folds,
    as_seed,
    copy_with_seed,
)
from brainweave.evaluation.classifiers import classifier_name, nu_parameter
from brainweave.evaluation.comparison import SIGNIFICANT
from brainweave.evaluation.measures import (
    Classification,
    Matching,
    Measure,
    Reconstruction,
    ScoringContext,
)
from brainweave.evaluation.results import (
    INCIDENTAL,
    ClassificationResult,
    SubjectScores,
)
from brainweave.evaluation.splits import SplitStudy, split_study, subject_folds
from brainweave.persistence.codec import plain
from brainweave.study.study import Study

__all__ = [
    "between_subject_classification",
    "between_subject_matching",
    "between_subject_reconstruction",
    "evaluation_metadata",
    "score_folds",
]


def between_subject_classification(
    aligner: Any,
    study: Study | SplitStudy | list[Any],
    y: Any = None,
    *,
    halves: Any = "category",
    align: Any = None,
    match: str | None = None,
    leave_out: int = 1,
    protocol: str = "held-out",
    classifier: Any = None,
    n_permutations: int = 0,
    random_state: Any = None,
    n_jobs: int | None = None,
    progress: Any = None,
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
        samples of `study` are classified, and `halves` is not used. Samples that are
        in both are refused.
    match : {"truncate", "average", "intersect"}, optional
        Make the aligning samples correspond row by row, for methods that need them
        locked in time; see :func:`split_study`.
    leave_out : int, default=1
        How many subjects are tested at a time.
    protocol : {"held-out", "joint"}, default="held-out"
        "held-out": the template is learned without the test subjects, who join it by
        ``fit_new_subject`` with their own aligning samples. "joint", the paper's: the
        aligning samples of the test subjects take part in the fit, which leaks what is
        known of them into the template and inflates accuracy [1]_. Either way the
        labels of a test subject's aligning samples are used by methods that use labels,
        those of its classified samples never.
    classifier : {"nu-svm-means", "nu-svm"} or scikit-learn classifier, optional
        "nu-svm", the paper's, is the linear nu-SVM of LIBSVM with nu = 0.5.
        "nu-svm-means", the default, is the same but for pairs of categories that
        overlap so far that a nu-SVM has no boundary between them: their means decide,
        and how many there are is recorded. Of both, a nu that the training labels make
        infeasible (unbalanced categories) is lowered to the largest feasible one; that
        is warned about and recorded in the folds. Other classifiers, a ``NuSVC``
        included, are used as they are.
    n_permutations : int, default=0
        How often to permute the labels of each subject for a p-value: blocks of
        neighbouring samples of one label, within their run. The alignment is not
        repeated. With few blocks p cannot be small; see ``smallest_p`` of the result.
    random_state : int, Generator or None
        Seeds the permutations, and an aligner or classifier whose own ``random_state``
        is None.
    n_jobs : int, optional
        Subjects and folds worked on at the same time; default one per core. The result
        does not depend on it.
    progress : bool or callable, optional
        True draws a bar; a callable is told after each step how many are done, how many
        there are, and what is done.

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
    >>> print(result)  # doctest: +NORMALIZE_WHITESPACE
    GDM (held-out): 100.0% ± 0.0% over 8 folds, chance 33.3% (the most frequent
    category); nu-SVM, overlapping pairs by their means
    """
    measure = Classification(classifier, n_permutations)
    divide = partial(split_study, study, y, halves=halves, align=align, match=match)
    options = {"leave_out": leave_out, "protocol": protocol, "n_jobs": n_jobs}
    split, records, metadata = _evaluate(
        aligner, divide, measure, options, random_state=random_state, progress=progress
    )
    _warn_of_nu(measure.classifier, records)
    result = ClassificationResult.from_records(
        records, categories=split.categories, **metadata
    )
    _warn_of_few_orders(result)
    return result


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
    protocol: str = "held-out",
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
    GDM (held-out): matching 1.000 ± 0.000, chance 0.027
    """
    measure = Matching(window, step)
    divide = partial(split_study, study, y, halves=halves, align=align, match=match)
    options = {"leave_out": leave_out, "protocol": protocol, "n_jobs": n_jobs}
    split, records, metadata = _evaluate(
        aligner, divide, measure, options, random_state=random_state, progress=progress
    )
    return SubjectScores.from_records(
        records, subjects=split.ids, score="matching", **metadata
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
    protocol: str = "held-out",
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
    GDM (held-out): correlation 1.000 ± 0.000, chance 0.000
    """
    measure = Reconstruction(score)
    divide = partial(split_study, study, y, halves=halves, align=align, match=match)
    options = {"leave_out": leave_out, "protocol": protocol, "n_jobs": n_jobs}
    split, records, metadata = _evaluate(
        aligner, divide, measure, options, random_state=random_state, progress=progress
    )
    return SubjectScores.from_records(
        records, subjects=split.ids, score=score, **metadata
    )


def score_folds(
    aligner: Any,
    split: SplitStudy,
    measure: Measure,
    *,
    leave_out: int = 1,
    protocol: str = "held-out",
    seed: int | None = None,
    only: Collection[tuple[int, int]] | None = None,
    n_jobs: int | None = None,
    clock: Clock | None = None,
    shared: Clock | None = None,
    tick: Callable[[], None] | None = None,
) -> Iterator[dict[str, Any]]:
    """Align and score; yield a record per fold.

    A record has ``half``, ``fold``, ``test_subjects``, ``n_components``,
    ``best_params`` (of an aligner that tunes itself), and what was measured. With
    ``n_jobs=1`` it is yielded as soon as its fold is scored. `clock` adds up the time
    of single folds, `shared` that of fits which serve several (by default the same
    clock); `tick` is called after each step of a fold.
    """
    clock = Clock() if clock is None else clock
    measure.check(split)
    # once, so that permutations are the same in all folds also without a seed
    draw = int(np.random.SeedSequence(seed).generate_state(1)[0])
    context = ScoringContext(clock, draw, seed, n_jobs, tick)
    batches = align_folds(
        copy_with_seed(aligner, seed),
        split,
        leave_out=leave_out,
        protocol=protocol,
        only=only,
        n_jobs=n_jobs,
        clock=clock if shared is None else shared,
    )
    for batch in batches:
        for fold, found in measure.folds(batch, split, context):
            n_components = getattr(fold.aligner, "n_components_", None)
            yield {
                "half": fold.part,
                "fold": fold.fold,
                "test_subjects": [split.ids[i] for i in fold.test],
                "n_components": None if n_components is None else int(n_components),
                "best_params": getattr(fold.aligner, "best_params_", None),
                **found,
            }


def _evaluate(
    aligner: Any,
    divide: Callable[[], SplitStudy],
    measure: Measure,
    options: dict[str, Any],
    *,
    random_state: Any,
    progress: Any,
) -> tuple[SplitStudy, list[dict[str, Any]], dict[str, Any]]:
    """Split a study and score every fold.

    Return the split, the records of the folds, and the other fields of a result.
    """
    start, clock, seed = time.perf_counter(), Clock(), as_seed(random_state)
    with clock("bases"):
        split = divide()
    leave_out, protocol = options["leave_out"], options["protocol"]
    n_folds = len(split.parts) * len(subject_folds(split.n_subjects, leave_out))
    title = f"{type(aligner).__name__}, {protocol}"
    with shown_progress(progress, n_folds * measure.n_steps(), title) as tick:
        scored = score_folds(
            aligner, split, measure, seed=seed, clock=clock, tick=tick, **options
        )
        records = list(scored)
    clock.seconds["total"] = time.perf_counter() - start
    metadata = evaluation_metadata(
        aligner, split, measure, leave_out=leave_out, random_state=seed
    )
    return split, records, {**metadata, "protocol": protocol, "seconds": clock.seconds}


def evaluation_metadata(
    aligner: Any, split: SplitStudy, measure: Measure, **design: Any
) -> dict[str, Any]:
    """Return the fields of a result on its aligner, its study and its design."""
    params = aligner.get_params(deep=False) if hasattr(aligner, "get_params") else {}
    public = {k: v for k, v in vars(measure).items() if not k.startswith("_")}
    return {
        "method": type(aligner).__name__,
        "settings": _plain_settings(params),
        "study": split.about(),
        "design": {**split.design, **design, **_plain_settings(public)},
    }


def _warn_of_nu(classifier: Any, records: list[dict[str, Any]]) -> None:
    """Warn if the nu of a nu-SVM had to be lowered."""
    name = nu_parameter(classifier)
    if name is None:
        return
    asked = classifier.get_params(deep=True)[name]
    used = [record["nu"] for record in records]
    if min(used) < asked:
        warn_user(
            f"nu={asked:g} is infeasible for the training labels, whose categories are "
            f"of different sizes: it was lowered to {min(used):.3g} in "
            f"{sum(nu < asked for nu in used)} of {len(used)} folds. Give a "
            "smaller nu to the classifier to choose it yourself.",
            ClassifierWarning,
        )


def _warn_of_few_orders(result: ClassificationResult) -> None:
    """Warn if no p can be small, however many permutations are made."""
    least, n = result.smallest_p, len(result.permutation_scores)
    if least is not None and least > max(SIGNIFICANT, 1 / (1 + n)):
        warn_user(
            f"The labels come in so few blocks that no p can be below {least:.2g}: "
            "neighbouring samples of one label move together. Score more blocks, or "
            "more subjects; if each sample is an estimate of its own, say so by runs.",
            ClassifierWarning,
        )


def _plain_settings(given: Mapping[str, Any]) -> dict[str, Any]:
    """Return settings for people: JSON values, or their repr."""
    kept = {k: v for k, v in given.items() if k not in INCIDENTAL}
    return dict(plain(kept, other=classifier_name, arrays=False))
