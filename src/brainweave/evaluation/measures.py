"""What a fold is scored by: classifying left-out subjects, or matching segments."""

from collections.abc import Iterator
from typing import Any, Protocol

import numpy as np

from brainweave._arrays import to_numpy
from brainweave._validation import check_int
from brainweave.evaluation.classification import encode_labels
from brainweave.evaluation.classifiers import (
    balanced_accuracy,
    check_permutations,
    default_classifier,
    permuted_accuracies,
    run_task,
)
from brainweave.evaluation.align_folds import AlignedFold, Clock, seeded
from brainweave.evaluation.splits import SplitStudy
from brainweave.evaluation.linear_svm import task_maker
from brainweave.metrics import match_segments, segment_chance, zscored

__all__ = ["Classification", "Matching", "Measure"]


class Measure(Protocol):
    """Scores the folds of an alignment.

    Its attributes must tell all that its scores depend on.
    """

    def folds(
        self, batch: list[AlignedFold], split: SplitStudy, *, seed: int, clock: Clock
    ) -> Iterator[tuple[AlignedFold, dict[str, Any]]]:
        """Give the folds one by one with what was measured, at least a ``score``."""


class Classification:
    """Accuracy of a classifier on the subjects that were left out.

    The same numbers as :func:`brainweave.between_subject_classification` gives.

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

    def folds(
        self, batch: list[AlignedFold], split: SplitStudy, *, seed: int, clock: Clock
    ) -> Iterator[tuple[AlignedFold, dict[str, Any]]]:
        """Train and test fold by fold."""
        with clock("classify"):
            codes = encode_labels(split)[batch[0].part]
            make, model = task_maker(
                batch, codes, split.ids, seeded(self.classifier, seed)
            )
        drawn = int(np.random.SeedSequence(seed).generate_state(1)[0])
        size = len(split.categories)
        for fold in batch:
            with clock("classify"):
                task = make(fold)
                predicted, nu = run_task(task, model)
            confusion = np.zeros((size, size), int)
            np.add.at(confusion, (task.test_codes, predicted), 1)
            found = {
                "score": float(np.mean(task.test_codes == predicted)),
                "balanced_accuracy": balanced_accuracy(task.test_codes, predicted),
                "n_train": len(task.train),
                "n_test": len(task.test),
                "nu": nu,
                "confusion": confusion.tolist(),
                "best_params": _plain(getattr(fold.aligner, "best_params_", None)),
            }
            if self.n_permutations:
                keys = [[drawn, fold.part, i] for i in fold.train]
                with clock("permute"):
                    accuracies = permuted_accuracies(
                        task, model, keys, range(self.n_permutations)
                    )
                hits = np.round(np.multiply(accuracies, len(task.test))).astype(int)
                found["permuted_hits"] = hits.tolist()
            yield fold, found


class Matching:
    """Share of the time segments of left-out subjects that find themselves in others.

    Parameters
    ----------
    window, step : int
        As in :func:`brainweave.time_segment_matching`.
    """

    def __init__(self, window: int = 9, step: int = 1) -> None:
        self.window = check_int("window", window, minimum=1, owner="Matching")
        self.step = check_int("step", step, minimum=1, owner="Matching")

    def folds(
        self, batch: list[AlignedFold], split: SplitStudy, *, seed: int, clock: Clock
    ) -> Iterator[tuple[AlignedFold, dict[str, Any]]]:
        """Match the segments of the left-out subjects with the mean of the others."""
        how = {"window": self.window, "step": self.step}
        for fold in batch:
            with clock("match"):
                features = [zscored(to_numpy(f)) for f in fold.features]
                others = np.mean([features[i] for i in fold.train], axis=0)
                scores = [match_segments(features[i], others, **how) for i in fold.test]
            yield (
                fold,
                {
                    "score": float(np.mean(scores)),
                    "chance": segment_chance(len(features[0]), **how),
                    "n_test": len(features[0]),
                },
            )


def _plain(params: dict[str, Any] | None) -> dict[str, Any] | None:
    """Put chosen settings into terms of JSON."""
    if params is None:
        return None
    simple = (type(None), bool, int, float, str, dict)
    return {k: v if isinstance(v, simple) else repr(v) for k, v in params.items()}
