"""What a fold is scored by: classes told apart, segments found again, voxels predicted.

To add a measure, write a class with a method ``folds`` as in :class:`Measure`.
"""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
from sklearn.metrics import confusion_matrix

from brainweave._core.arrays import Codes, Floats, Matrix, to_numpy
from brainweave._core.exceptions import InputError
from brainweave._core.labels import NO_LABEL
from brainweave._core.validation import check_int, check_option
from brainweave._core.workers import map_subjects
from brainweave.aligners.base import seeded_copy
from brainweave.aligners.gdm.gdm import GDM
from brainweave.aligners.gdm.graph_parsing import is_named
from brainweave.aligners.no_alignment import NoAlignment
from brainweave.aligners.srm.semisupervised import SemiSupervisedSRM
from brainweave.aligners.timelocked import TimeLocked
from brainweave.evaluation.classifiers import (
    Task,
    balanced_accuracy,
    make_classifier,
    permuted_hits,
    prepare_tasks,
    run_task,
)
from brainweave.evaluation.metrics import (
    centred,
    match_segments,
    reconstruction_score,
    segment_chance,
    zscored,
)
from brainweave.evaluation.permutation import LabelOrders
from brainweave.evaluation.splits import SplitStudy
from brainweave.study.study import Study


class Clock:
    """Seconds spent in each stage."""

    def __init__(self) -> None:
        self.seconds: dict[str, float] = {}

    @contextmanager
    def __call__(self, stage: str) -> Iterator[None]:
        """Add the time that passes inside to a stage."""
        start = time.perf_counter()
        try:
            yield
        finally:
            spent = time.perf_counter() - start
            self.seconds[stage] = self.seconds.get(stage, 0.0) + spent


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

    clock: Clock  # adds up the time of each stage
    draw: int  # seed of permutations; the same for all folds
    seed: int | None = None  # for estimators that have no random_state
    n_jobs: int | None = 1  # folds at a time; with 1 each is yielded once it is scored


Found = Iterator[tuple[AlignedFold, dict[str, Any]]]


class Measure(Protocol):
    """Scores the folds of an alignment.

    Its attributes must tell all that its scores depend on.
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

    def __init__(self, classifier: Any = None, n_permutations: int = 0) -> None:
        self.classifier = make_classifier(classifier)
        self.n_permutations = check_int(
            "n_permutations", n_permutations, minimum=0, owner="the evaluation"
        )

    def check(self, split: SplitStudy) -> None:
        """Refuse a study with fewer than two categories."""
        if len(split.categories) < 2:
            raise InputError(
                "Classification needs scored samples of at least two categories; got "
                f"{split.categories}. Pass y, or a study with labels."
            )

    def folds(
        self, batch: list[AlignedFold], split: SplitStudy, context: ScoringContext
    ) -> Found:
        """Train and test; permute the training labels as often as asked."""
        codes, orders = coded_labels(split, batch[0].half), None
        if self.n_permutations:
            orders = _label_orders(split, batch[0], codes, context.draw)
        with context.clock("classify"):
            seeded = copy_with_seed(self.classifier, context.seed)
            make_task, classifier = prepare_tasks(
                batch[0].features, codes, split.ids, seeded
            )
        at_a_time = 1 if context.n_jobs == 1 else len(batch)
        for start in range(0, len(batch), at_a_time):
            folds = batch[start : start + at_a_time]
            with context.clock("classify"):
                tasks = [make_task(fold) for fold in folds]
                answers = map_subjects(
                    lambda task: run_task(task, classifier),
                    tasks,
                    n_jobs=context.n_jobs,
                )
            hits: list[list[int]] = [[] for _ in folds]
            if orders is not None:
                with context.clock("permute"):
                    hits = map_subjects(
                        lambda task, fold: permuted_hits(
                            task, classifier, fold, orders, self.n_permutations
                        ),
                        tasks,
                        folds,
                        n_jobs=context.n_jobs,
                    )
            for i, (fold, task) in enumerate(zip(folds, tasks, strict=True)):
                predicted, used = answers[i]
                record = _classification_record(task, predicted, len(split.categories))
                if orders is not None:
                    record["permuted_hits"] = hits[i]
                    record["n_orders"] = orders.n_orders
                    record["halves_are"] = _how_halves_are(split, fold)
                yield fold, record | used


def _classification_record(
    task: Task, predicted: Codes, n_categories: int
) -> dict[str, Any]:
    true = np.concatenate(task.test_codes)
    counts = confusion_matrix(true, predicted, labels=range(n_categories))
    ends = np.cumsum([len(codes) for codes in task.test_codes])[:-1]
    return {
        "score": float(np.mean(true == predicted)),
        "subject_scores": [float(r.mean()) for r in np.split(true == predicted, ends)],
        "balanced_accuracy": balanced_accuracy(true, predicted),
        "n_train": len(task.train),
        "n_test": len(task.test),
        "confusion": counts.tolist(),
    }


def _label_orders(
    split: SplitStudy, fold: AlignedFold, codes: list[Codes], draw: int
) -> LabelOrders:
    # seeded by the samples: those of another half have orders of their own, the same
    # samples that several parts score have the same
    scored = [part.scored for part in split.splits]
    first = next(i for i, s in enumerate(scored) if s is scored[fold.half])
    runs = [subject.runs for subject in scored[fold.half]]
    return LabelOrders(codes, runs, [draw, first])


def _how_halves_are(split: SplitStudy, fold: AlignedFold) -> str:
    """Say how the scores of the parts of a study depend on each other."""
    if all(part.scored is split.splits[0].scored for part in split.splits):
        return "same"  # samples, so that permuted scores depend alike
    return "tied" if _labels_align(split, fold.aligner) else "apart"


def _labels_align(split: SplitStudy, aligner: Any) -> bool:
    """Whether labels may have shaped an alignment; yes, unless it is known not to."""
    inner = getattr(aligner, "aligner", aligner)  # of pieces of the brain
    by_time = isinstance(inner, TimeLocked) and not inner._learns_from_labels
    by_time &= not isinstance(inner, SemiSupervisedSRM)
    by_time |= isinstance(inner, GDM) and is_named(inner.graph, "time")
    if split.design.get("match") is not None:  # rows may correspond by label
        by_time = False
    if getattr(inner, "standardize", None) == "reliability":
        return True
    return not (by_time or isinstance(inner, NoAlignment))


class _SubjectBySubject:
    """A measure of each left-out subject against the average of the others.

    Needs scored samples locked in time: the same stimuli in the same order for all.
    """

    def check(self, split: SplitStudy) -> None:
        """Refuse scored samples that do not correspond row by row."""
        for part in split.splits:
            _check_locked(part.scored)

    def folds(
        self, batch: list[AlignedFold], split: SplitStudy, context: ScoringContext
    ) -> Found:
        """Score the left-out subjects of each fold."""
        for fold in batch:
            with context.clock("score"):
                prepare = self._preparing(fold.aligner)
                trained = [prepare(fold.features[i]) for i in fold.train]
                others = np.asarray(np.mean(trained, axis=0))
                scored = split.splits[fold.half].scored
                found = map_subjects(
                    self._score,
                    [prepare(fold.features[i]) for i in fold.test],
                    [fold.maps[i] for i in fold.test],
                    [scored.subjects[i].samples for i in fold.test],
                    [others] * len(fold.test),
                    n_jobs=context.n_jobs,
                )
            means = [float(np.nanmean(values)) for values in found]
            n_samples = scored.subjects[0].n_samples
            record = {
                "score": float(np.mean(means)),
                "subject_scores": means,
                "chance": self._chance(n_samples),
                "n_test": n_samples,
                **self._told(fold.aligner),
            }
            if np.ndim(found[0]):
                record["voxel_scores"] = found
            yield fold, record

    def _preparing(self, aligner: Any) -> Callable[[Any], Matrix]:
        """Return what is done to the features that an aligner made."""
        return to_numpy

    def _told(self, aligner: Any) -> dict[str, Any]:
        """Return what a record tells in addition."""
        return {}

    def _score(self, own: Any, fitted: Any, samples: Any, others: Matrix) -> Any:
        raise NotImplementedError

    def _chance(self, n_samples: int) -> float:
        return 0.0


class Matching(_SubjectBySubject):
    """Share of the time segments of left-out subjects that find themselves in others.

    The parameters are those of :func:`brainweave.between_subject_matching`.
    """

    def __init__(
        self, window: int = 9, step: int = 1, standardize: bool | str = "auto"
    ) -> None:
        self.window = check_int("window", window, minimum=1, owner="Matching")
        self.step = check_int("step", step, minimum=1, owner="Matching")
        if not isinstance(standardize, bool):
            check_option("standardize", standardize, ("auto",), owner="Matching")
        self.standardize = standardize

    def standardizes(self, aligner: Any) -> bool:
        """Whether all features of an aligner weigh the same."""
        if isinstance(self.standardize, bool):
            return self.standardize
        return not getattr(aligner, "_features_are_weighed", False)

    def _preparing(self, aligner: Any) -> Callable[[Any], Matrix]:
        prepare = zscored if self.standardizes(aligner) else centred
        return lambda features: prepare(to_numpy(features))

    def _told(self, aligner: Any) -> dict[str, Any]:
        return {"standardized": self.standardizes(aligner)}

    def _score(self, own: Any, fitted: Any, samples: Any, others: Matrix) -> float:
        return match_segments(own, others, window=self.window, step=self.step)

    def _chance(self, n_samples: int) -> float:
        return segment_chance(n_samples, window=self.window, step=self.step)


class Reconstruction(_SubjectBySubject):
    """How well the voxels of left-out subjects are predicted from the others.

    `score` is that of :func:`brainweave.reconstruction_score`.
    """

    def __init__(self, score: str = "correlation") -> None:
        self.score = check_option(
            "score", score, ("correlation", "r2"), owner="Reconstruction"
        )

    def _score(self, own: Any, fitted: Any, samples: Any, others: Matrix) -> Matrix:
        predicted = fitted.inverse_transform(others)
        return reconstruction_score(to_numpy(samples), predicted, score=self.score)


def coded_labels(split: SplitStudy, part: int) -> list[Codes]:
    """Return numbers for the categories of the scored samples of every subject."""
    code_of = {category: code for code, category in enumerate(split.categories)}
    return [
        np.full(s.n_samples, NO_LABEL, np.intp)
        if s.labels is None
        else np.array([code_of.get(v, NO_LABEL) for v in s.labels.tolist()])
        for s in split.splits[part].scored
    ]


def _check_locked(scored: Study) -> None:
    first = scored.subjects[0]
    for subject in scored:
        for what in ("n_samples", "labels", "stimuli"):
            own, known = getattr(subject, what), getattr(first, what)
            if own is None or known is None or np.array_equal(own, known):
                continue
            shown = {"n_samples": f"{own} samples", "labels": "other categories"}
            raise InputError(
                f"The scored samples of subject {subject.id!r} differ from those of "
                f"{first.id!r} ({shown.get(what, 'other stimuli')}). This compares "
                "subjects sample by sample: keep the stimuli that all have, in one "
                "order."
            )
