"""What a fold is scored by: classes told apart, segments found again, voxels predicted.

To add a measure, write a class with a method ``folds`` as in :class:`Measure`.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray
from sklearn.metrics import confusion_matrix

from brainweave._arrays import is_torch, map_subjects, to_numpy
from brainweave._validation import check_int, check_option
from brainweave.evaluation.align_folds import AlignedFold, Clock, seeded
from brainweave.evaluation.classifiers import (
    UNLABELLED,
    Codes,
    balanced_accuracy,
    check_permutations,
    default_classifier,
    permuted_hits,
    run_task,
)
from brainweave.evaluation.linear_svm import task_maker
from brainweave.evaluation.splits import SplitStudy
from brainweave.exceptions import InputError
from brainweave.metrics import (
    match_segments,
    reconstruction_score,
    segment_chance,
    zscored,
)
from brainweave.study.study import Study

__all__ = [
    "Classification",
    "Matching",
    "Measure",
    "Reconstruction",
    "Scoring",
    "encode_labels",
]

Matrix = NDArray[np.float64]
Found = Iterator[tuple[AlignedFold, dict[str, Any]]]

PERMUTATION_BLOCK = 20  # permutations that one thread runs in a row


@dataclass(frozen=True)
class Scoring:
    """How folds are scored, whatever the measure.

    Parameters
    ----------
    clock : Clock
        Told of the time of each stage.
    draw : int
        What is random is drawn from it; the same for all folds.
    seed : int or None
        For estimators that have no random_state.
    n_jobs : int, optional
        Folds at the same time; with 1 each is given as soon as it is scored.
    tick : callable, optional
        To be called after each step.
    """

    clock: Clock
    draw: int
    seed: int | None = None
    n_jobs: int | None = 1
    tick: Callable[[], None] | None = None

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
        """Yield the folds with what was measured, at least a ``score``.

        Parameters
        ----------
        batch : list of AlignedFold
            Folds that share one fit.
        split : SplitStudy
            What they are folds of.
        how : Scoring
            Seeds, threads, and whom to tell.
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
        self.n_permutations = check_permutations(n_permutations)

    def check(self, split: SplitStudy) -> None:
        """Refuse a study with fewer than two categories."""
        encode_labels(split)

    def n_steps(self) -> int:
        """Return the steps of a fold: the true labels, and blocks of permuted ones."""
        return 1 + len(_blocks(self.n_permutations, PERMUTATION_BLOCK))

    def folds(self, batch: list[AlignedFold], split: SplitStudy, how: Scoring) -> Found:
        """Train and test; permute the training labels as often as asked."""
        with how.clock("classify"):
            codes = encode_labels(split)[batch[0].part]
            make, model = task_maker(
                batch, codes, split.ids, seeded(self.classifier, how.seed)
            )
        everything = range(len(split.categories))
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
            for fold, task, (predicted, nu), own in zip(
                group, tasks, answers, hits, strict=True
            ):
                true = task.test_codes
                found = {
                    "score": float(np.mean(true == predicted)),
                    "balanced_accuracy": balanced_accuracy(true, predicted),
                    "n_train": len(task.train),
                    "n_test": len(task.test),
                    "nu": nu,
                    "confusion": confusion_matrix(
                        true, predicted, labels=everything
                    ).tolist(),
                }
                if self.n_permutations:
                    found["permuted_hits"] = own
                yield fold, found


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
                others = self._others(fold)
                scored = split.parts[fold.part].scored
                samples = [scored.subjects[i].samples for i in fold.test]
                found = map_subjects(
                    self._score,
                    [fold.features[i] for i in fold.test],
                    [fold.maps[i] for i in fold.test],
                    samples,
                    [others] * len(fold.test),
                    n_jobs=how.n_jobs,
                )
                how.tell()
            yield fold, self._record(found, scored.subjects[0].n_samples)

    def _others(self, fold: AlignedFold) -> Matrix:
        return np.asarray(
            np.mean([to_numpy(fold.features[i]) for i in fold.train], axis=0)
        )

    def _score(self, own: Any, fitted: Any, samples: Any, others: Matrix) -> Any:
        raise NotImplementedError

    def _record(self, found: list[Any], n_samples: int) -> dict[str, Any]:
        raise NotImplementedError


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

    def _others(self, fold: AlignedFold) -> Matrix:
        features = [zscored(to_numpy(fold.features[i])) for i in fold.train]
        return np.asarray(np.mean(features, axis=0))

    def _score(self, own: Any, fitted: Any, samples: Any, others: Matrix) -> float:
        features = zscored(to_numpy(own))
        return match_segments(features, others, window=self.window, step=self.step)

    def _record(self, found: list[Any], n_samples: int) -> dict[str, Any]:
        how = {"window": self.window, "step": self.step}
        return {
            "score": float(np.mean(found)),
            "subject_scores": [float(v) for v in found],
            "chance": segment_chance(n_samples, **how),
            "n_test": n_samples,
        }


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
        truth = to_numpy(samples) if is_torch(samples) else np.asarray(samples)
        return reconstruction_score(truth, predicted, score=self.score)

    def _record(self, found: list[Any], n_samples: int) -> dict[str, Any]:
        means = [float(np.nanmean(v)) for v in found]
        return {
            "score": float(np.mean(means)),
            "subject_scores": means,
            "voxel_scores": found,
            "chance": 0.0,
            "n_test": n_samples,
        }


def encode_labels(split: SplitStudy) -> list[list[Codes]]:
    """Return numbers for the categories of the scored samples, per part and subject."""
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
        for what in ("labels", "stimuli"):
            own, known = getattr(subject, what), getattr(first, what)
            if own is None or known is None or np.array_equal(own, known):
                continue
            shown = "categories" if what == "labels" else "stimuli"
            raise InputError(
                f"The scored samples of subject {subject.id!r} show other {shown} "
                f"than those of {first.id!r} in the same rows. This score compares "
                "subjects sample by sample: bring them into one order."
            )
