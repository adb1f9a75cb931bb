"""What shared work saves: an energy sweep, against ten, and a fold, against a fit.

    python benchmarks/bench_evaluation.py [--quick]

Prints ratios of times measured in the same run. The classifier guesses, so that the
alignment alone is timed. A fold aligns all subjects but one, who then joins them; its
row is processor time of one core, of the folds of one half, with its share of what
they have in common.
"""

import argparse
import time
import warnings
from collections.abc import Callable

import numpy as np
from scipy.ndimage import gaussian_filter1d
from sklearn.base import clone
from sklearn.dummy import DummyClassifier

from brainweave import (
    GDM,
    PaperGDM,
    SubjectBasis,
    between_subject_classification,
    split_study,
)
from brainweave._core.exceptions import UniquenessWarning
from brainweave.evaluation.evaluate import align_folds

ENERGIES = np.linspace(0.1, 1, 10)
SHAPE = (6, 496, 19174)  # subjects, samples, voxels
QUICK_SHAPE = (4, 80, 1000)
N_CATEGORIES = 8
FOLD_SHAPE = (20, 400, 400)  # both halves together
FOLD_QUICK_SHAPE = (4, 80, 60)


def seconds(work: Callable[[], object]) -> float:
    start = time.perf_counter()
    work()
    return time.perf_counter() - start


def processor_seconds(work: Callable[[], object]) -> float:
    start = time.process_time()
    work()
    return time.process_time() - start


def time_folds(graph: str, m: int, n: int, v: int) -> None:
    """Print the time of a fold, and of one fit to as many subjects by itself."""
    rng = np.random.default_rng(0)
    y = None
    if graph == "labels":
        y = [np.repeat(rng.permutation(n // 4) % N_CATEGORIES, 4) for _ in range(m)]
        seen = rng.normal(size=(N_CATEGORIES, 8))
        courses = [seen[own] for own in y]
    else:
        courses = [gaussian_filter1d(rng.normal(size=(n, 8)), 2, axis=0)] * m
    X = [c @ rng.normal(size=(8, v)) + 4 * rng.normal(size=(n, v)) for c in courses]
    model, split = GDM(graph=graph, n_jobs=1), split_study(X, y)
    half = split.splits[0]
    known = [s.data() for s in half.aligning], half.y_for(model)

    def fit() -> None:
        bases = [SubjectBasis(x) for x in known[0][1:]]
        clone(model).fit(bases, known[1] and known[1][1:])

    def fold(number: int) -> list[object]:
        return list(align_folds(model, split, only=[(0, number)], n_jobs=1))

    fit()
    fits, folds = 0.0, 0.0
    for number in range(m):  # in turn, for the same noise
        folds += processor_seconds(lambda number=number: fold(number))
        fits += processor_seconds(fit) if number % 4 == 0 else 0.0
    fits /= len(range(0, m, 4))
    folds /= m
    print(
        f"folds of GDM(graph={graph!r}), {m} x {n // 2} aligning samples x {v}\n"
        f"  a fit of its own              {fits:7.2f} s of processor\n"
        f"  a fold                        {folds:7.2f} s  {folds / fits:5.2f} x a fit"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="a small shape")
    quick = parser.parse_args().quick
    m, n, v = QUICK_SHAPE if quick else SHAPE
    warnings.simplefilter("ignore", UniquenessWarning)
    rng = np.random.default_rng(0)
    centroids = rng.normal(size=(N_CATEGORIES, 8))
    X, y = [], []
    for _ in range(m):
        labels = rng.permutation(np.arange(n) % N_CATEGORIES)
        signal = centroids[labels] @ rng.normal(size=(8, v))
        X.append((signal + 4 * rng.normal(size=(n, v))).astype(np.float32))
        y.append(labels)

    def evaluate(data: object, energy: float) -> None:
        between_subject_classification(
            PaperGDM(7, energy=energy),
            data,
            protocol="joint",
            classifier=DummyClassifier(),
        )

    between_subject_classification(GDM(7), [x[:, :500] for x in X], y)  # warm up
    one = seconds(lambda: evaluate(split_study(X, y), 0.82))
    split = split_study(X, y)
    sweep = seconds(lambda: [evaluate(split, e) for e in ENERGIES])
    alone = seconds(lambda: [evaluate(split_study(X, y), e) for e in ENERGIES])
    print(
        f"evaluation, {m} x {n} x {v} float32, both halves\n"
        f"  one energy                    {one:7.2f} s\n"
        f"  ten energies, shared work     {sweep:7.2f} s  {sweep / one:5.2f} x one\n"
        f"  ten energies, each from voxels{alone:7.2f} s  {alone / sweep:5.2f} x shared"
    )
    warnings.simplefilter("ignore")  # small shapes have nothing to share
    subjects, samples, voxels = FOLD_QUICK_SHAPE if quick else FOLD_SHAPE
    time_folds("labels", subjects, samples, voxels)
    time_folds("time", subjects, 2 * samples, 3 * voxels // 4)


if __name__ == "__main__":
    main()
