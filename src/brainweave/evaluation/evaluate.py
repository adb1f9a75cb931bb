"""The way from a split study to scores: align, fold by fold, and measure.

Every score of an alignment comes from :func:`score_folds`. Test subjects are aligned by
one of two protocols. "held-out": the template is learned without the test subjects, who
then join it with their own aligning samples (``fit_new_subject``). "joint", the
paper's: all take part in the fit with their aligning samples, so that one fit serves
all folds of a half. Labels of scored samples are never used to align.
"""

import re
import time
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
from sklearn.base import clone

from brainweave._core.arrays import Floats
from brainweave._core.exceptions import (
    BrainweaveError,
    ClassifierWarning,
    InputError,
    warn_user,
)
from brainweave._core.validation import check_int, check_option
from brainweave._core.workers import shown_progress
from brainweave.aligners.base import BaseAligner
from brainweave.aligners.no_alignment import NoAlignment
from brainweave.aligners.piecewise.piecewise import PER_SUBJECT
from brainweave.basis.places import is_per_subject
from brainweave.evaluation.classifiers import classifier_name
from brainweave.evaluation.comparison import SIGNIFICANT
from brainweave.evaluation.measures import (
    AlignedFold,
    Classification,
    Measure,
    ScoringContext,
    choose_measure,
    copy_with_seed,
)
from brainweave.evaluation.results import (
    INCIDENTAL,
    ClassificationResult,
    make_result,
)
from brainweave.evaluation.splits import (
    Split,
    SplitStudy,
    refuse_aligned,
    split_study,
    subject_folds,
)
from brainweave.persistence.codec import plain
from brainweave.study.study import Study, Subject

PROTOCOLS = ("joint", "held-out")
OWNER = "the evaluation"  # of parameters, in messages


# -- for users -------------------------------------------------------------------------


def score_alignment(
    aligner: Any,
    study: Study | SplitStudy | list[Any],
    y: Any = None,
    *,
    measure: Any = None,
    halves: Any = "category",
    leave_out: int = 1,
    protocol: str = "held-out",
    random_state: int | None = None,
    n_jobs: int | None = None,
    progress: Any = None,
    **options: Any,
) -> Any:
    """Score an alignment on held-out samples of left-out subjects.

    The samples of each subject are divided into two halves. One half aligns; the other,
    mapped into the shared space, is scored; then the halves are swapped. Groups of
    ``leave_out`` consecutive subjects are left out in turn.

    Parameters
    ----------
    aligner : aligner
        Any aligner of this package; it is copied, not changed.
    study : Study, list of arrays of shape (n_samples_i, n_voxels_i), or SplitStudy
        The data. A :func:`split_study` brings its own halves, or other samples to align
        with, and shares the work of several evaluations.
    y : list of array-like, optional
        Categories; by default those of the study. None or NaN marks samples without
        one, which may align but are not classified. Values of which none occurs twice
        in a subject are stimulus ids, such as times in a film.
    measure : {"classification", "matching", "reconstruction", "isc"} or Measure
        What is scored. "classification": see :func:`between_subject_classification`.
        The other measures compare each left-out subject with the average of those that
        are not left out, in what both saw, by stimulus ids, or by rows without ids.
        "matching" is the share of time segments found again; "reconstruction" predicts
        the voxels of the left-out subject from the features of the others; "isc" is the
        inter-subject correlation, averaged over features. By default classification if
        samples have two categories or more, else matching.
    halves : various
        How samples are divided; see :func:`split_study`.
    leave_out : int, default=1
        Number of subjects that are left out at a time.
    protocol : {"held-out", "joint"}, default="held-out"
        "held-out": the template is learned without the test subjects, who join it by
        ``fit_new_subject`` with their own aligning samples. "joint", the paper's: the
        aligning samples of the test subjects take part in the fit, which inflates
        accuracy [1]_. Labels of scored samples are never used to align.
    random_state : int, optional
        Seeds the permutations, and an aligner or classifier whose own ``random_state``
        is None.
    n_jobs : int, optional
        Subjects and folds worked on at the same time; default one per core. The result
        does not depend on it.
    progress : bool or callable, optional
        True draws a bar; a callable is called after each fold with the number of folds
        done, that of all folds, and what is done.
    **options : various
        The parameters of the measure: `classifier` and `n_permutations` of
        "classification"; `window`, `step` and `enough` of "matching", as in
        :func:`brainweave.time_segment_matching`, and its `standardize`: whether all
        features weigh the same; by default not those of ``GDM(scale="agreement")``,
        whose spread is how much subjects agree on them, and its `groups`, one per
        subject: subjects are then compared with other groups alone; `score` of
        "reconstruction", "correlation" or "r2".

    Returns
    -------
    ClassificationResult or SubjectScores
        The scores, and chance; ``design["standardize"]`` of matching tells whether
        features were standardised.

    References
    ----------
    .. [1] Imaging Neuroscience (2024), doi 10.1162/imag_a_00253.

    Examples
    --------
    >>> from brainweave import GDM
    >>> rng = np.random.default_rng(0)
    >>> story = rng.normal(size=(120, 5))
    >>> X = [story @ rng.normal(size=(5, 50)) for _ in range(4)]
    >>> seen = [np.arange(120), np.arange(100), np.arange(20, 120), np.arange(120)]
    >>> X = [x[own] for x, own in zip(X, seen)]
    >>> result = score_alignment(GDM(5, graph="time"), X, seen, measure="isc")
    >>> round(result.mean, 2), result.n_samples.tolist()
    (1.0, [[60, 40, 60, 60], [60, 60, 40, 60]])
    """
    start = time.perf_counter()
    if random_state is not None:
        check_int("random_state", random_state, minimum=0, owner=OWNER)
    split = split_study(study, y, halves=halves)
    chosen = choose_measure(measure, split.categories, **options)
    n_folds = len(split.splits) * len(subject_folds(split.n_subjects, leave_out))
    title = f"{type(aligner).__name__}, {protocol}"
    how: Any = {"leave_out": leave_out, "protocol": protocol, "seed": random_state}
    records = []
    with shown_progress(progress, n_folds, title) as tick:
        for record in score_folds(aligner, split, chosen, n_jobs=n_jobs, **how):
            records.append(record)
            tick()
    fields = evaluation_metadata(
        aligner, split, chosen, leave_out=leave_out, random_state=random_state
    )
    fields |= {"protocol": protocol, "seconds": time.perf_counter() - start}
    return make_result(records, categories=split.categories, **fields)


def between_subject_classification(
    aligner: Any,
    study: Study | SplitStudy | list[Any],
    y: Any = None,
    *,
    classifier: Any = None,
    n_permutations: int = 0,
    **design: Any,
) -> ClassificationResult:
    """Score an alignment by classifying the samples of subjects that were left out.

    A classifier is trained on the scored half of all subjects but a few and tested on
    those: 16 subjects, 4 left out, make 4 x 2 = 8 folds.

    Parameters
    ----------
    aligner, study, y : various
        As in :func:`score_alignment`.
    classifier : {"nu-svm-means", "nu-svm"} or scikit-learn classifier, optional
        "nu-svm", the paper's, is the linear nu-SVM of LIBSVM with nu = 0.5.
        "nu-svm-means", the default, is the same, but goes by means for pairs of
        categories that overlap so far that a nu-SVM has no boundary between them. Both
        lower a nu that unbalanced categories make infeasible, with a warning. Other
        classifiers, a ``NuSVC`` included, are used as they are.
    n_permutations : int, default=0
        How often to permute the labels of each subject for a p-value: blocks of
        neighbouring samples of one label, within their run. The alignment is not
        repeated. With few blocks p cannot be small; see ``smallest_p`` of the result.
    **design : various
        The options `halves` to `progress` of :func:`score_alignment`.

    Returns
    -------
    ClassificationResult
        Scores of all folds, chance and confusions.

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
    result: ClassificationResult = score_alignment(
        aligner, study, y, measure=measure, **design
    )
    used = [fold["nu"] for fold in result.folds if fold["nu"] is not None]
    asked = getattr(measure.classifier, "nu", 0)
    if used and min(used) < asked:
        warn_user(
            f"nu={asked:g} is infeasible for the training labels, whose categories are "
            f"of different sizes: it was lowered to {min(used):.3g} in "
            f"{sum(nu < asked for nu in used)} of {len(used)} folds. Give a smaller nu "
            "to the classifier to choose it yourself.",
            ClassifierWarning,
        )
    least = result.smallest_p
    if least is not None and least > max(SIGNIFICANT, 1 / (1 + n_permutations)):
        warn_user(
            f"The labels come in so few blocks that no p can be below {least:.2g}: "
            "neighbouring samples of one label move together. Score more blocks, or "
            "more subjects; if each sample is an estimate of its own, say so by runs.",
            ClassifierWarning,
        )
    return result


# -- scoring ---------------------------------------------------------------------------


def score_folds(
    aligner: Any,
    split: SplitStudy,
    measure: Measure,
    *,
    seed: int | None = None,
    n_jobs: int | None = None,
    **folds: Any,
) -> Iterator[dict[str, Any]]:
    """Align and score; yield a record per fold, with ``n_jobs=1`` once it is scored.

    Which folds there are is passed on to :func:`align_folds`.
    """
    check_scored(measure, split)
    # once, so that permutations are the same in all folds also without a seed
    draw = int(np.random.SeedSequence(seed).generate_state(1)[0])
    context = ScoringContext(draw, seed, n_jobs)
    seeded = copy_with_seed(aligner, seed)
    for batch in align_folds(seeded, split, n_jobs=n_jobs, **folds):
        for fold, found in measure.folds(batch, split, context):
            n_components = getattr(fold.aligner, "n_components_", None)
            yield {
                "half": fold.half,
                "fold": fold.fold,
                "test_subjects": [split.ids[i] for i in fold.test],
                "n_components": None if n_components is None else int(n_components),
                "best_params": getattr(fold.aligner, "best_params_", None),
                **found,
            }


def check_scored(measure: Measure, split: SplitStudy) -> None:
    """Refuse samples that a measure cannot score, or that align as well."""
    if not getattr(measure, "skips_aligned", False):
        for part in split.splits:
            refuse_aligned(part.scored)
    measure.check(split)


def evaluation_metadata(
    aligner: Any, split: SplitStudy, measure: Measure, **design: Any
) -> dict[str, Any]:
    """Return the fields of a result on its aligner, its study and its design."""
    params = aligner.get_params(deep=False) if hasattr(aligner, "get_params") else {}
    kept = {k: v for k, v in params.items() if k not in INCIDENTAL}
    for_people: Any = {"other": classifier_name, "arrays": False}  # JSON, or a repr
    design["measure"] = getattr(measure, "name", type(measure).__name__)
    return {
        "method": type(aligner).__name__,
        "settings": dict(plain(kept, **for_people)),
        "study": split.about(aligner),
        "design": {**split.design, **design, **plain(vars(measure), **for_people)},
    }


# -- aligning --------------------------------------------------------------------------


def align_folds(
    aligner: Any,
    split: SplitStudy,
    *,
    leave_out: int = 1,
    protocol: str = "held-out",
    only: Collection[tuple[int, int]] | None = None,
    n_jobs: int | None = None,
) -> Iterator[list[AlignedFold]]:
    """Fit an aligner for every fold, or `only` some, and map all scored samples.

    Yields the folds that share one fit, see :func:`shares_fit`.
    """
    check_option("protocol", protocol, PROTOCOLS, owner=OWNER)
    n = split.n_subjects
    folds = list(enumerate(subject_folds(n, leave_out)))
    if protocol == "held-out" and n - leave_out < 2:
        raise InputError(
            f"protocol='held-out' with leave_out={leave_out} leaves {n - leave_out} of "
            f"{n} subjects to make a template; at least 2 are needed. Leave fewer out, "
            "or pass protocol='joint', which favours test subjects."
        )
    if protocol == "held-out" and not hasattr(aligner, "fit_new_subject"):
        raise InputError(
            f"{type(aligner).__name__} has no fit_new_subject, by which a subject that "
            "is held out joins the others. Add it, or pass protocol='joint', which "
            "favours test subjects."
        )
    for number, half in enumerate(split.splits):
        chosen = [fold for fold in folds if only is None or (number, fold[0]) in only]
        if not chosen:
            continue
        half = half.for_aligner(aligner)
        half.check_locked(aligner)
        together = shares_fit(aligner, protocol)
        for batch in [chosen] if together else [[fold] for fold in chosen]:
            joining = [] if together else batch[0][1]
            found = _align(aligner, half, joining, n_jobs=n_jobs)
            yield [
                AlignedFold(
                    number, fold, test, [i for i in range(n) if i not in test], *found
                )
                for fold, test in batch
            ]


def shares_fit(aligner: Any, protocol: str) -> bool:
    """Whether one fit serves all folds of a half: nobody is held out, or learned from.

    Otherwise every fold has a fit of its own.
    """
    return protocol == "joint" or type(aligner) is NoAlignment


def _align(
    aligner: Any, half: Split, joining: list[int], *, n_jobs: int | None
) -> tuple[list[Floats], list[Any], Any]:
    """Align the subjects of a half, of whom some join when the template is finished."""
    n = half.n_subjects
    who = [i for i in range(n) if i not in joining]
    fitted, y = clone(aligner), half.y_for(aligner)
    if isinstance(fitted, BaseAligner):
        fitted._warns_of_input = False  # said once, of the whole study
        if joining:  # those have settings of their own
            lists = _settings_per_subject(fitted, n)
            fitted.set_params(**{k: [v[i] for i in who] for k, v in lists.items()})
    X = _inputs(aligner, half, who, n_jobs=n_jobs)
    with _errors_by_subject_id(half, who):
        fitted.fit(X, None if y is None else [y[i] for i in who])
    found = dict(zip(who, fitted.maps_, strict=True))
    if joining:
        new = _inputs(aligner, half, joining, n_jobs=n_jobs)
        for i, x in zip(joining, new, strict=True):
            found[i] = _join(aligner, fitted, half, i, X=x, y=_known_to(y, who, i))
    maps, from_bases = [found[i] for i in range(n)], takes_bases(aligner)
    shared = half.map_scored(maps, from_bases=from_bases, n_jobs=n_jobs)
    return shared, maps, fitted


def join_with(
    aligner: Any, fitted: Any, half: Split, who: list[int], *, i: int, rows: Any
) -> Any:
    """Let a subject, the one at i, join a fit with some of its aligning samples.

    `who` are those who were fitted; `rows` are the samples it has.
    """
    own = _known_to(half.y_for(aligner), who, i)
    subject = half.aligning.subjects[i].select(rows)
    X: Any = subject.data()
    if isinstance(aligner, BaseAligner):
        fitted, own = fitted._for_rows(rows, own)
        X = Subject(subject.id, X, runs=subject.runs, space=subject.space)
    elif own is not None:
        own = own[rows]
    return _join(aligner, fitted, half, i, X=X, y=own)


def _join(aligner: Any, fitted: Any, half: Split, i: int, *, X: Any, y: Any) -> Any:
    places = {}
    if isinstance(aligner, BaseAligner) and not takes_bases(aligner):
        lists = _settings_per_subject(aligner, half.n_subjects)
        places = {name: own[i] for name, own in lists.items() if name in PER_SUBJECT}
    with _errors_by_subject_id(half, [i], new=True):
        return fitted.fit_new_subject(X, y, **places)


def _known_to(y: list[Any] | None, who: list[int], new: int) -> Any:
    """Forget the labels, or ids, of a newcomer that no other has: they join nothing."""
    if y is None:
        return None
    table = np.array(y[new], dtype=object)
    columns = table.reshape(len(table), -1)  # one, or labels and ids
    for number, column in enumerate(columns.T):
        others = (np.asarray(y[i], dtype=object).reshape(len(y[i]), -1) for i in who)
        known = {value for other in others for value in other[:, number].tolist()}
        column[[value not in known for value in column.tolist()]] = None
    return table


def _inputs(
    aligner: Any, half: Split, who: list[int], *, n_jobs: int | None
) -> list[Any]:
    """Return what an aligner is fitted on: bases, subjects, or plain arrays."""
    if takes_bases(aligner):
        return half.bases_for(aligner, who, n_jobs=n_jobs)
    subjects = [half.aligning.subjects[i] for i in who]
    if not isinstance(aligner, BaseAligner):
        return [s.data() for s in subjects]
    # with the space, which says where voxels lie; other knowledge is passed as y
    return [Subject(s.id, s.samples, runs=s.runs, space=s.space) for s in subjects]


@contextmanager
def _errors_by_subject_id(
    half: Split, who: list[int], *, new: bool = False
) -> Iterator[None]:
    """Replace X[0], X[1], ... in errors by the ids of subjects."""
    ids = half.aligning.ids
    if ids == [str(i) for i in range(len(ids))]:  # arrays, counted
        names = [f"X[{i}]" for i in range(len(ids))]
    else:
        names = [f"sub-{id.removeprefix('sub-')}" for id in ids]
    try:
        yield
    except BrainweaveError as error:
        text = re.sub(r"\bX\[(\d+)\]", lambda k: names[who[int(k[1])]], str(error))
        if new and names[who[0]] not in text:
            text = f"{names[who[0]]}, which joins the others: {error}"
        raise type(error)(text) from error


def takes_bases(aligner: Any) -> bool:
    """Whether an aligner works on bases; some cut the brain into pieces themselves."""
    return isinstance(aligner, BaseAligner) and aligner._takes_bases


def _settings_per_subject(aligner: Any, n_subjects: int) -> dict[str, Any]:
    """Return the settings that have one entry per subject, rather than one for all."""
    found = {}
    for name, value in aligner.get_params(deep=True).items():
        kind = name.split("__")[-1]
        if not isinstance(value, list | tuple) or len(value) != n_subjects:
            continue
        dimensions = PER_SUBJECT.get(kind)
        if kind in ("kernel", "kernel_params", "energy") or (
            dimensions is not None and is_per_subject(value, dimensions)
        ):
            found[name] = value
    return found
