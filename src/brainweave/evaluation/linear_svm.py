"""Tasks in the form in which a linear support vector machine is quick.

LIBSVM multiplies samples one pair at a time. Without alignment the features are voxels,
tens of thousands of them, and every fold asks for the same products: here one matrix
product serves all folds of an alignment.

Its stopping rule is absolute, so that features with a large scale, which a method may
give to samples that it has not seen, take it millions of steps. The solution of a
nu-SVM does not depend on the scale: such features are brought to unit size first.
"""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.base import clone
from sklearn.svm import SVC, NuSVC

from brainweave.evaluation.align_folds import AlignedFold
from brainweave.evaluation.classifiers import UNLABELLED, Codes, Task

__all__ = ["task_maker"]

WIDE = 256  # from so many features on LIBSVM's own products are slower by far
COLUMNS = 2048  # features multiplied at a time
LARGE = 4.0  # root mean square from which on features are brought to unit size


def task_maker(
    batch: list[AlignedFold], codes: list[Codes], ids: list[str], classifier: Any
) -> tuple[Callable[[AlignedFold], Task], Any]:
    """Return what makes the tasks of folds that share their features.

    Parameters
    ----------
    batch : list of AlignedFold
        Folds of one part with the same features.
    codes : list of ndarray of int
        Labels of the scored samples of every subject.
    ids : list of str
        The subjects.
    classifier : scikit-learn classifier
        To be trained; it is not changed.

    Returns
    -------
    make : callable
        Gives the task of a fold.
    classifier : scikit-learn classifier
        What to train on these tasks: the same, or for a linear SVM on many features
        one that takes the inner products instead of the features.
    """
    features = batch[0].features
    widths = {f.shape[1] for f in features}
    linear = isinstance(classifier, SVC | NuSVC) and classifier.kernel == "linear"
    resized = linear and isinstance(classifier, NuSVC)
    if not linear or len(widths) > 1 or min(widths) < WIDE:

        def plain(fold: AlignedFold) -> Task:
            task = Task.from_fold(fold, codes, ids)
            return _resized(task, _size(task.train)) if resized else task

        return plain, classifier
    kept = [np.flatnonzero(c != UNLABELLED) for c in codes]
    products = _inner_products([f[k] for f, k in zip(features, kept, strict=True)])
    numbers = _row_numbers(codes, kept)

    def make(fold: AlignedFold) -> Task:
        # row numbers take the place of features until the task knows who is tested
        rows = Task.from_fold(replace(fold, features=numbers), codes, ids)
        train, test = rows.train[:, 0], rows.test[:, 0]
        task = replace(
            rows,
            train=products[np.ix_(train, train)],
            test=products[np.ix_(test, train)],
        )
        size = np.sqrt(task.train.diagonal().mean() / min(widths))
        return _resized(task, float(size), squared=True) if resized else task

    return make, clone(classifier).set_params(kernel="precomputed")


def _size(features: NDArray[Any]) -> float:
    """Return the root of the mean square."""
    return float(np.sqrt(np.mean(np.square(features, dtype=np.float64))))


def _resized(task: Task, size: float, *, squared: bool = False) -> Task:
    """Bring features, or their products, to unit size if they are large."""
    if not (np.isfinite(size) and size > LARGE):
        return task
    by = size**2 if squared else size
    return replace(task, train=task.train / by, test=task.test / by)


def _row_numbers(
    codes: list[Codes], kept: list[NDArray[np.intp]]
) -> list[NDArray[np.intp]]:
    """Count the labelled samples of all through, as one column per subject."""
    numbers, start = [], 0
    for c, rows in zip(codes, kept, strict=True):
        column = np.full((len(c), 1), -1)
        column[rows, 0] = np.arange(start, start + len(rows))
        start += len(rows)
        numbers.append(column)
    return numbers


def _inner_products(blocks: list[NDArray[Any]]) -> NDArray[np.float64]:
    n, width = sum(map(len, blocks)), blocks[0].shape[1]
    total = np.zeros((n, n))
    for start in range(0, width, COLUMNS):
        z = np.concatenate([b[:, start : start + COLUMNS] for b in blocks])
        total += z @ z.T
    return total
