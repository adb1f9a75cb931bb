"""Train on some subjects, predict others: one fold, with true or permuted labels."""

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn import config_context
from sklearn.base import clone
from sklearn.metrics import recall_score
from sklearn.svm import NuSVC

from brainweave._validation import check_int
from brainweave.evaluation.align_folds import AlignedFold
from brainweave.exceptions import InputError

__all__ = ["Task", "balanced_accuracy", "default_classifier", "largest_nu", "run_task"]

NU_MARGIN = 0.999  # at the largest feasible nu itself the solution may not be finite
UNLABELLED = -1

Codes = NDArray[np.intp]


def default_classifier() -> NuSVC:
    """Return the classifier of the paper: a linear nu-SVM."""
    return NuSVC(nu=0.5, kernel="linear")


def largest_nu(codes: Codes) -> float:
    """Return the largest nu that a nu-SVM can reach with these labels.

    With the smallest and the largest of the classes, ``2 min / (min + max)``: 1 when
    all are of one size (Chang and Lin, 2001).

    Examples
    --------
    >>> largest_nu(np.array([0, 0, 0, 1]))
    0.5
    """
    counts = np.bincount(codes)
    counts = counts[counts > 0]
    return float(2 * counts.min() / (counts.min() + counts.max()))


def balanced_accuracy(true: Codes, predicted: Codes) -> float:
    """Average the share of hits over the categories that occur."""
    # not balanced_accuracy_score: it warns of predictions that occur nowhere
    return float(
        recall_score(
            true, predicted, labels=np.unique(true), average="macro", zero_division=0
        )
    )


@dataclass(frozen=True)
class Task:
    """Features and coded labels of a fold, ready to train and test on."""

    train: NDArray[Any]
    test: NDArray[Any]
    train_codes: list[Codes]  # one array per training subject
    test_codes: Codes

    @classmethod
    def from_fold(cls, fold: AlignedFold, codes: list[Codes], ids: list[str]) -> "Task":
        """Take the labelled samples of a fold."""
        rows = [np.flatnonzero(c != UNLABELLED) for c in codes]
        for i in fold.test:
            if rows[i].size == 0:
                raise InputError(
                    f"Subject {ids[i]!r} has no labelled sample to test on. Leave it "
                    "out of the study, or split by other halves."
                )
        widths = {fold.features[i].shape[1] for i in range(len(codes))}
        if len(widths) > 1:
            raise InputError(
                f"The subjects have different numbers of features ({sorted(widths)}), "
                "so one classifier cannot serve them all. Align them first, or use one "
                "mask for all subjects."
            )
        train_codes = [codes[i][rows[i]] for i in fold.train]
        if len(np.unique(np.concatenate(train_codes))) < 2:
            raise InputError(
                "The training subjects show fewer than two categories in their scored "
                "samples; there is nothing to classify."
            )
        return cls(
            np.concatenate([fold.features[i][rows[i]] for i in fold.train]),
            np.concatenate([fold.features[i][rows[i]] for i in fold.test]),
            train_codes,
            np.concatenate([codes[i][rows[i]] for i in fold.test]),
        )


def nu_parameter(classifier: Any) -> str | None:
    """Name the nu of a nu-SVM, also of one inside a pipeline; None without one."""
    if isinstance(classifier, NuSVC):
        return "nu"
    for name, value in classifier.get_params(deep=True).items():
        if isinstance(value, NuSVC):
            return f"{name}__nu"
    return None


def feasible(classifier: Any, codes: Codes) -> tuple[Any, float | None]:
    """Copy a classifier with its nu lowered to what the labels allow, if need be.

    Returns
    -------
    classifier : estimator
    nu : float or None
        The nu in use; None for classifiers without one.
    """
    copy = clone(classifier)
    name = nu_parameter(copy)
    if name is None:
        return copy, None
    nu = float(copy.get_params(deep=True)[name])
    largest = largest_nu(codes)
    if nu >= largest:
        nu = NU_MARGIN * largest
        copy.set_params(**{name: nu})
    return copy, nu


def run_task(task: Task, classifier: Any) -> tuple[Codes, float | None]:
    """Train and predict; return the predicted codes and the nu in use."""
    codes = np.concatenate(task.train_codes)
    model, nu = feasible(classifier, codes)
    return np.asarray(model.fit(task.train, codes).predict(task.test), np.intp), nu


def permuted_hits(
    task: Task, classifier: Any, keys: list[list[int]], numbers: range
) -> list[int]:
    """Return how many are right after permuting the training labels of each subject.

    A permutation is drawn from the seed, its number, the part and the subject alone, so
    that it is the same in every fold and whatever runs in parallel.
    """
    # permuting within subjects changes no count, so one nu is feasible for all
    model, _ = feasible(classifier, np.concatenate(task.train_codes))
    hits = []
    # the true labels were fitted before: nothing is left to validate
    with config_context(assume_finite=True, skip_parameter_validation=True):
        for number in numbers:
            shuffled = [
                np.random.default_rng([*key, number]).permutation(codes)
                for key, codes in zip(keys, task.train_codes, strict=True)
            ]
            model.fit(task.train, np.concatenate(shuffled))
            right = model.predict(task.test) == task.test_codes
            hits.append(int(np.sum(right)))
    return hits


def check_permutations(n_permutations: Any) -> int:
    """Return the number of permutations, checked."""
    return check_int(
        "n_permutations", n_permutations, minimum=0, owner="the evaluation"
    )
