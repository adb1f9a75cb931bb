"""What a fold is scored by: classes told apart, segments found again, voxels predicted.

To add a measure, write a class with a method ``folds`` as in :class:`Measure`.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from inspect import signature
from typing import Any, Protocol, cast

import numpy as np
from sklearn.metrics import confusion_matrix

from brainweave._core.arrays import Codes, Floats, Matrix, to_numpy
from brainweave._core.exceptions import InputError
from brainweave._core.labels import NO_LABEL
from brainweave._core.validation import check_fraction, check_int, check_option
from brainweave._core.workers import map_subjects
from brainweave.aligners.base import seeded_copy
from brainweave.evaluation.classifiers import (
    LabelOrders,
    Task,
    balanced_accuracy,
    make_classifier,
    permuted_hits,
    prepare_tasks,
    run_task,
)
from brainweave.evaluation.metrics import (
    centred,
    column_correlations,
    known_mean,
    reconstruction_score,
    refuse_strangers,
    seen_by_both,
    seen_means,
    segment_hits,
    study_timeline,
    zscored,
)
from brainweave.evaluation.splits import SplitStudy
from brainweave.study.study import Study


@dataclass(frozen=True)
class AlignedFold:
    """What one fold is scored on."""

    half: int
    fold: int
    test: list[int]
    train: list[int]
    features: list[Floats]  # shared features of every subject's scored samples
    maps: list[Any]  # one per subject
    aligner: Any  # fitted


@dataclass(frozen=True)
class ScoringContext:
    """How folds are scored, whatever the measure."""

    draw: int  # seed of permutations; the same for all folds
    seed: int | None = None  # for estimators that have no random_state
    n_jobs: int | None = 1  # folds at a time; with 1 each is yielded once it is scored


Found = Iterator[tuple[AlignedFold, dict[str, Any]]]


class Measure(Protocol):
    """Scores the folds of an alignment.

    Its attributes must tell all that its scores depend on. One with ``skips_aligned``
    does not score the samples of a subject that are marked as aligned.
    """

    def check(self, split: SplitStudy) -> None:
        """Refuse a study that cannot be scored, before anything is aligned."""

    def folds(
        self, batch: list[AlignedFold], split: SplitStudy, context: ScoringContext
    ) -> Found:
        """Yield each fold of a batch, which share one fit, with its record.

        A record is a dict with at least a ``score``.
        """


def copy_with_seed(estimator: Any, random_state: int | None) -> Any:
    """Copy an estimator; what has no random_state of its own gets this one."""
    if isinstance(estimator, type) or not hasattr(estimator, "fit"):
        raise TypeError(
            "The evaluation takes an aligner, and a classifier, as objects such as "
            f"GDM(n_components=10); got {estimator!r}."
        )
    return seeded_copy(estimator, random_state)


class Classification:
    """Accuracy of a classifier on the subjects that were left out.

    The parameters are those of :func:`between_subject_classification`.
    """

    name = "classification"

    def __init__(self, classifier: Any = None, n_permutations: int = 0) -> None:
        self.classifier = make_classifier(classifier)
        self.n_permutations = check_int(
            "n_permutations", n_permutations, minimum=0, owner="the evaluation"
        )

    def check(self, split: SplitStudy) -> None:
        """Refuse a study with fewer than two categories."""
        if len(split.categories) < 2:
            raise InputError(
                "Classification needs scored samples of at least two categories, each "
                f"more than once; got {split.categories}. Pass y, or a study with "
                "labels; samples that have stimulus ids alone are scored with "
                "measure='matching'."
            )

    def folds(
        self, batch: list[AlignedFold], split: SplitStudy, context: ScoringContext
    ) -> Found:
        """Train and test; permute the training labels as often as asked."""
        half, n_categories = batch[0].half, len(split.categories)
        codes, orders = coded_labels(split, half), None
        if self.n_permutations:
            runs = [subject.runs for subject in split.splits[half].scored]
            orders = LabelOrders(codes, runs, [context.draw, half])
        seeded = copy_with_seed(self.classifier, context.seed)
        make_task, classifier = prepare_tasks(
            batch[0].features, codes, split.ids, seeded
        )

        def score(task: Task, who: Sequence[list[int]]) -> dict[str, Any]:
            predicted, told = run_task(task, classifier)
            if orders is not None:
                draw, n = orders.draw, self.n_permutations
                told["permuted_hits"] = permuted_hits(task, classifier, who, draw, n)
                told["n_orders"] = orders.n_orders
            return _classification_record(task, predicted, n_categories) | told

        at_a_time = 1 if context.n_jobs == 1 else len(batch)
        for start in range(0, len(batch), at_a_time):
            folds = batch[start : start + at_a_time]
            tasks = [make_task(fold) for fold in folds]
            who = [(fold.train, fold.test) for fold in folds]
            records = map_subjects(score, tasks, who, n_jobs=context.n_jobs)
            yield from zip(folds, records, strict=True)


def _classification_record(
    task: Task, predicted: Codes, n_categories: int
) -> dict[str, Any]:
    true = np.concatenate(task.test_codes)
    hits = true == predicted
    counts = confusion_matrix(true, predicted, labels=range(n_categories))
    ends = np.cumsum([len(codes) for codes in task.test_codes])[:-1]
    return {
        "score": float(np.mean(hits)),
        "subject_scores": [float(own.mean()) for own in np.split(hits, ends)],
        "balanced_accuracy": balanced_accuracy(true, predicted),
        "n_train": len(task.train),
        "n_test": len(task.test),
        "confusion": counts.tolist(),
    }


class _SubjectBySubject:
    """A measure of each left-out subject against the average of the others.

    Compares samples by their stimulus ids, where these differ, else row by row. Samples
    that a subject aligned with are not scored.
    """

    groups: list[Any] | None = None
    skips_aligned = True

    def check(self, split: SplitStudy) -> None:
        """Refuse scored samples that do not correspond, by rows or by ids."""
        if self.groups is not None and len(self.groups) != split.n_subjects:
            raise InputError(
                f"groups has {len(self.groups)} entries for {split.n_subjects} "
                "subjects. Give one per subject."
            )
        seen = [study_timeline(part.scored).seen for part in split.splits]
        whole = split.splits[0].scored
        ids = [s.stimuli if s.stimuli is not None else [0] for s in whole]
        refuse_strangers(np.concatenate(seen, axis=1), ids, whole.ids)

    def folds(
        self, batch: list[AlignedFold], split: SplitStudy, context: ScoringContext
    ) -> Found:
        """Score the left-out subjects of each fold."""
        for fold in batch:
            compare = _comparison(self, fold, split.splits[fold.half].scored)
            found = map_subjects(compare, fold.test, n_jobs=context.n_jobs)
            means = [_mean(f["values"]) for f in found]
            record = {
                "score": _mean([np.nan if m is None else m for m in means]),
                "subject_scores": means,
                "chance": _mean([f["chance"] for f in found]),
                "n_test": max(f["n_samples"] for f in found),
                "n_samples": [f["n_samples"] for f in found],
                "common": [f["common"] for f in found],
            }
            yield fold, record | self._told(fold.aligner)

    def _prepare(self, features: Any, aligner: Any) -> Matrix:
        """Return the features that an aligner made as they are compared."""
        return to_numpy(features)

    def _told(self, aligner: Any) -> dict[str, Any]:
        """Return what a record tells in addition."""
        return {}

    def _score(self, own: Matrix, others: Matrix, films: Codes, predict: Any) -> Any:
        """Return a score, or one per voxel, and chance.

        Rows of NaN were not seen. `predict` gives the voxels of the subject, measured
        and predicted from the others.
        """
        raise NotImplementedError


def _mean(values: Any) -> float | None:
    """Return the mean over what has a score."""
    mean = known_mean(values)
    return None if np.isnan(mean) else mean


def _comparison(
    measure: _SubjectBySubject, fold: AlignedFold, scored: Study
) -> Callable[[int], dict[str, Any]]:
    """Return what compares a left-out subject of a fold with the average of others.

    It tells the scores (NaN without any), chance, and the samples behind them.
    """
    line, groups = study_timeline(scored), measure.groups
    features = {
        i: line.place(measure._prepare(fold.features[i], fold.aligner), i)
        for i in (*fold.train, *fold.test)
    }
    compared = {
        i: tuple(j for j in fold.train if not groups or groups[j] != groups[i])
        for i in fold.test
    }
    averages = {
        who: seen_means([features[j] for j in who], axis=0)
        for who in set(compared.values())
        if who
    }

    def compare(i: int) -> dict[str, Any]:
        subject, who, places = scored.subjects[i], compared[i], line.places[i]
        own, common = features[i], [0] * len(scored)
        if subject.aligned is not None:
            own, rows = own.copy(), places[np.asarray(subject.aligned, bool)]
            own[rows[rows >= 0]] = np.nan
        for j in who:
            common[j] = int(seen_by_both(own, features[j]).sum())
        found: dict[str, Any] = {"values": np.nan, "chance": np.nan}
        others = averages[who] if any(common) else np.full_like(own, np.nan)
        both = seen_by_both(own, others)
        found |= {"n_samples": int(both.sum()), "common": common}
        if both.sum() < 2:
            return found

        def predict() -> tuple[Matrix, Matrix]:
            row_of = np.zeros(both.size, np.intp)
            known = places >= 0
            row_of[places[known]] = np.flatnonzero(known)
            truth = to_numpy(subject.samples)[row_of[both]]
            return truth, fold.maps[i].inverse_transform(others[both])

        values, chance = measure._score(own, others, line.films, predict)
        if not np.isnan(values).all():
            found["chance"] = chance
        return {**found, "values": values}

    return compare


class Matching(_SubjectBySubject):
    """Share of the time segments of left-out subjects that find themselves in others.

    The parameters are those of :func:`brainweave.score_alignment`.
    """

    name = "matching"

    def __init__(
        self,
        window: int = 9,
        step: int = 1,
        standardize: bool | str = "auto",
        enough: float = 0.5,
        groups: Sequence[Any] | None = None,
    ) -> None:
        self.window = check_int("window", window, minimum=1, owner="Matching")
        self.step = check_int("step", step, minimum=1, owner="Matching")
        if not isinstance(standardize, bool):
            check_option("standardize", standardize, ("auto",), owner="Matching")
        self.standardize = standardize
        self.enough = check_fraction("enough", enough, owner="Matching")
        self.groups = None if groups is None else list(groups)

    def _standardizes(self, aligner: Any) -> bool:
        """Whether all features of an aligner weigh the same."""
        if isinstance(self.standardize, bool):
            return self.standardize
        return not getattr(aligner, "_features_are_weighed", False)

    def _prepare(self, features: Any, aligner: Any) -> Matrix:
        prepare = zscored if self._standardizes(aligner) else centred
        return prepare(to_numpy(features))

    def _told(self, aligner: Any) -> dict[str, Any]:
        return {"standardized": self._standardizes(aligner)}

    def _score(self, own: Matrix, others: Matrix, films: Codes, predict: Any) -> Any:
        how: Any = {"window": self.window, "step": self.step, "enough": self.enough}
        found = segment_hits(own, others, films=films, **how)
        score, chance = seen_means(found, axis=1)
        return float(score), float(chance)


class Reconstruction(_SubjectBySubject):
    """How well the voxels of left-out subjects are predicted from the others.

    `score` is that of :func:`brainweave.reconstruction_score`.
    """

    name = "reconstruction"

    def __init__(self, score: str = "correlation") -> None:
        self.score = check_option(
            "score", score, ("correlation", "r2"), owner="Reconstruction"
        )

    def _score(self, own: Matrix, others: Matrix, films: Codes, predict: Any) -> Any:
        return reconstruction_score(*predict(), score=self.score), 0.0


class Correlation(_SubjectBySubject):
    """Inter-subject correlation: the mean over features of left-out subjects.

    As in :func:`brainweave.inter_subject_correlation`, with the average of the subjects
    that are not left out.
    """

    name = "isc"

    def _prepare(self, features: Any, aligner: Any) -> Matrix:
        return zscored(to_numpy(features))

    def _score(self, own: Matrix, others: Matrix, films: Codes, predict: Any) -> Any:
        return column_correlations(own, others), 0.0


MEASURES: dict[str, Any] = {
    kind.name: kind for kind in (Classification, Matching, Reconstruction, Correlation)
}


def choose_measure(measure: Any, categories: Sequence[Any], **options: Any) -> Measure:
    """Return a measure by its name, or by what a study has, with its options.

    By default it is classification if there are two categories or more, else matching.
    """
    if measure is None:
        measure = "classification" if len(categories) > 1 else "matching"
    if not isinstance(measure, str):
        if not hasattr(measure, "folds") or options:
            raise TypeError(
                f"measure is one of {', '.join(MEASURES)}, with its parameters, or an "
                f"object with the methods check and folds; got {measure!r} and "
                f"{options}."
            )
        return cast(Measure, measure)
    check_option("measure", measure, tuple(MEASURES), owner="the evaluation")
    known = signature(MEASURES[measure]).parameters
    for name in options:
        if name not in known:
            raise InputError(
                f"The measure {measure!r} has no parameter {name!r}; it has "
                f"{', '.join(known)}.",
                parameter=name,
            )
    return cast(Measure, MEASURES[measure](**options))


def coded_labels(split: SplitStudy, part: int) -> list[Codes]:
    """Return numbers for the categories of the scored samples of every subject."""
    code_of = {category: code for code, category in enumerate(split.categories)}
    return [
        np.full(s.n_samples, NO_LABEL, np.intp)
        if s.labels is None
        else np.array([code_of.get(v, NO_LABEL) for v in s.labels.tolist()])
        for s in split.splits[part].scored
    ]
