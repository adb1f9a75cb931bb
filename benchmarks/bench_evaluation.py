"""What shared work saves: an energy sweep, against one fit and against ten.

    python benchmarks/bench_evaluation.py [--quick]

Prints ratios of times measured in the same run. The classifier guesses, so that the
alignment alone is timed.
"""

import argparse
import time
import warnings
from collections.abc import Callable

import numpy as np
from sklearn.dummy import DummyClassifier

from brainweave import GDM, PaperGDM, between_subject_classification, split_study
from brainweave._core.exceptions import UniquenessWarning

ENERGIES = np.linspace(0.1, 1, 10)
SHAPE = (6, 496, 19174)  # subjects, samples, voxels
QUICK_SHAPE = (4, 80, 1000)
N_CATEGORIES = 8


def seconds(work: Callable[[], object]) -> float:
    start = time.perf_counter()
    work()
    return time.perf_counter() - start


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="a small shape")
    m, n, v = QUICK_SHAPE if parser.parse_args().quick else SHAPE
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


if __name__ == "__main__":
    main()
