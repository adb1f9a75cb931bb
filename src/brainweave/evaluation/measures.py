"""What a fold is scored by: classes told apart, segments found again, voxels predicted.

To add a measure, write a class with a method ``folds`` as in :class:`Measure`.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
from sklearn.metrics import confusion_matrix

from brainweave._arrays import Codes, Matrix, to_numpy
from brainweave._validation import check_int, check_option
from brainweave._workers import map_subjects
from brainweave.evaluation.align_folds import AlignedFold, Clock, seeded
from brainweave.evaluation.classifiers import (
    balanced_accuracy,
    default_classifier,
    permuted_hits,
    run_task,
    task_maker,
)
from brainweave.evaluation.splits import SplitStudy
from brainweave.exceptions import InputError
from brainweave.labels import NO_LABEL
from brainweave.metrics import (
    match_segments,
    reconstruction_score,
    segment_chance,
    zscored,
)
from brainweave.study.study import Study

__all__ = ["Classification", "Matching", "Measure", "Reconstruction", "Scoring"]

Found = Iterator[tuple[AlignedFold, dict[str, Any]]]

PERMUTATION_BLOCK = 20  # permutations that one thread runs in a row


@dataclass(frozen=True)
class Scoring:
    """How folds are scored, whatever the measure."""

    clock: Clock  # told of the time of each stage
    draw: int  # what is random is drawn from it; the same for all folds
    seed: int | None = None  # for estimators that have no random_state
    n_jobs: int | None = 1  # folds at a time; with 1 each is given once it is scored
    tick: Callable[[], None] | None = None  # to be called after each step

    def tell(self, steps: int = 1) -> None:
        """Say that so many steps are done."""
        for _ in range(steps):
            if self.tick is not None:
                self.tick()


class Measure(Protocol):
    """Scores the folds of an alignment.

    Its attributes must tell all that its scores depend on.
    """

    def check(self, split: SplitStudy) -> None:
        """Refuse a study that cannot be scored, before anything is aligned."""

    def n_steps(self) -> int:
        """Return how many steps ``how`` is told of for a fold."""

    def folds(self, batch: list[AlignedFold], split: SplitStudy, how: Scoring) -> Found:
        """Yield the folds of a batch, which share one fit, with what was measured.

        That is a dict with at least a ``score``.
        """


class Classification:
    """Accuracy of a classifier on the subjects that were left out.

    Parameters
    ----------
    classifier : scikit-learn classifier, optional
        Default: a linear nu-SVM with nu = 0.5.
    n_permutations : int, default=0
        How often to permute the training labels.
    """

    def __init__(self, classifier: Any = None, n_permutations: int = 0) -> None:
        self.classifier = default_classifier() if classifier is None else classifier
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

    def n_steps(self) -> int:
        """Return the steps of a fold: the true labels, and blocks of permuted ones."""
        return 1 + len(_blocks(self.n_permutations, PERMUTATION_BLOCK))

    def folds(self, batch: list[AlignedFold], split: SplitStudy, how: Scoring) -> Found:
        """Train and test; permute the training labels as often as asked."""
        with how.clock("classify"):
            make, model = task_maker(
                batch[0].features,
                _codes(split, batch[0].part),
                split.ids,
                seeded(self.classifier, how.seed),
            )
        for number in _blocks(len(batch), 1 if how.n_jobs == 1 else len(batch)):
            group = [batch[i] for i in number]
            with how.clock("classify"):
                tasks = [make(fold) for fold in group]
                answers = map_subjects(
                    lambda task: run_task(task, model), tasks, n_jobs=how.n_jobs
                )
                how.tell(len(group))
            # drawn from the half, too: the same numbers would tie the halves together
            keys = [[[how.draw, fold.part, i] for i in fold.train] for fold in group]
            hits: list[list[int]] = [[] for _ in group]
            for numbers in _blocks(self.n_permutations, PERMUTATION_BLOCK):
                with how.clock("permute"):
                    new = map_subjects(
                        lambda task, key, numbers=numbers: permuted_hits(
                            task, model, key, numbers
                        ),
                        tasks,
                        keys,
                        n_jobs=how.n_jobs,
                    )
                    for own, more in zip(hits, new, strict=True):
                        own.extend(more)
                    how.tell(len(group))
            for fold, task, (predicted, done), own in zip(
                group, tasks, answers, hits, strict=True
            ):
                true, labels = task.test_codes, range(len(split.categories))
                counts = confusion_matrix(true, predicted, labels=labels)
                permuted = {"permuted_hits": own} if self.n_permutations else {}
                yield (
                    fold,
                    {
                        "score": float(np.mean(true == predicted)),
                        "balanced_accuracy": balanced_accuracy(true, predicted),
                        "n_train": len(task.train),
                        "n_test": len(task.test),
                        **done,
                        "confusion": counts.tolist(),
                        **permuted,
                    },
                )


class _SubjectBySubject:
    """A measure of each left-out subject against the average of the others.

    Needs scored samples locked in time: the same stimuli in the same order for all.
    """

    def check(self, split: SplitStudy) -> None:
        """Refuse scored samples that do not correspond row by row."""
        for part in split.parts:
            _check_locked(part.scored)

    def n_steps(self) -> int:
        """Return the steps of a fold."""
        return 1

    def folds(self, batch: list[AlignedFold], split: SplitStudy, how: Scoring) -> Found:
        """Score the left-out subjects of each fold."""
        for fold in batch:
            with how.clock("score"):
                trained = [self._prepared(fold.features[i]) for i in fold.train]
                others = np.asarray(np.mean(trained, axis=0))
                scored = split.parts[fold.part].scored
                found = map_subjects(
                    self._score,
                    [fold.features[i] for i in fold.test],
                    [fold.maps[i] for i in fold.test],
                    [scored.subjects[i].samples for i in fold.test],
                    [others] * len(fold.test),
                    n_jobs=how.n_jobs,
                )
                how.tell()
            means = [float(np.nanmean(values)) for values in found]
            n_samples = scored.subjects[0].n_samples
            record = {
                "score": float(np.mean(means)),
                "subject_scores": means,
                "chance": self._chance(n_samples),
                "n_test": n_samples,
            }
            if np.ndim(found[0]):
                record["voxel_scores"] = found
            yield fold, record

    def _prepared(self, features: Any) -> Matrix:
        return to_numpy(features)

    def _score(self, own: Any, fitted: Any, samples: Any, others: Matrix) -> Any:
        raise NotImplementedError

    def _chance(self, n_samples: int) -> float:
        return 0.0


class Matching(_SubjectBySubject):
    """Share of the time segments of left-out subjects that find themselves in others.

    Parameters
    ----------
    window, step : int
        As in :func:`brainweave.time_segment_matching`.
    """

    def __init__(self, window: int = 9, step: int = 1) -> None:
        self.window = check_int("window", window, minimum=1, owner="Matching")
        self.step = check_int("step", step, minimum=1, owner="Matching")

    def _prepared(self, features: Any) -> Matrix:
        return zscored(to_numpy(features))

    def _score(self, own: Any, fitted: Any, samples: Any, others: Matrix) -> float:
        how = {"window": self.window, "step": self.step}
        return match_segments(self._prepared(own), others, **how)

    def _chance(self, n_samples: int) -> float:
        return segment_chance(n_samples, window=self.window, step=self.step)


class Reconstruction(_SubjectBySubject):
    """How well the voxels of left-out subjects are predicted from the others.

    Parameters
    ----------
    score : {"correlation", "r2"}, default="correlation"
        As in :func:`brainweave.reconstruction_score`.
    """

    def __init__(self, score: str = "correlation") -> None:
        self.score = check_option(
            "score", score, ("correlation", "r2"), owner="Reconstruction"
        )

    def _score(self, own: Any, fitted: Any, samples: Any, others: Matrix) -> Matrix:
        predicted = fitted.inverse_transform(others)
        return reconstruction_score(to_numpy(samples), predicted, score=self.score)


def _codes(split: SplitStudy, part: int) -> list[Codes]:
    """Return numbers for the categories of the scored samples of every subject."""
    code_of = {category: code for code, category in enumerate(split.categories)}
    return [
        np.full(s.n_samples, NO_LABEL, np.intp)
        if s.labels is None
        else np.array([code_of.get(v, NO_LABEL) for v in s.labels.tolist()])
        for s in split.parts[part].scored
    ]


def _blocks(size: int, length: int) -> list[range]:
    return [range(s, min(s + length, size)) for s in range(0, size, length)]


def _check_locked(scored: Study) -> None:
    first = scored.subjects[0]
    for subject in scored:
        if subject.n_samples != first.n_samples:
            raise InputError(
                f"Subject {subject.id!r} has {subject.n_samples} scored samples, "
                f"{first.id!r} has {first.n_samples}. This score compares subjects "
                "sample by sample: keep the stimuli that all have, in one order."
            )
        for what, shown in (("labels", "categories"), ("stimuli", "stimuli")):
            own, known = getattr(subject, what), getattr(first, what)
            if own is None or known is None or np.array_equal(own, known):
                continue
            raise InputError(
                f"The scored samples of subject {subject.id!r} show other {shown} "
                f"than those of {first.id!r} in the same rows. This score compares "
                "subjects sample by sample: bring them into one order."
            )
