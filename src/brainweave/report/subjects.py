"""Accuracy by subject: intervals, and tests between methods that are paired over them.

The folds of one subject are not independent, so every number here is over subjects.
"""

from dataclasses import dataclass, replace
from itertools import combinations, product

import numpy as np
from numpy.typing import NDArray

from brainweave.plotting.results import Scored

MAX_EXACT = 14  # subjects up to which all sign flips are tried
N_FLIPS = 9999
N_RESAMPLES = 4999
FEW = 3  # subjects below which no interval is told
TESTABLE = 5  # subjects below which no p of sign flips is below .05


@dataclass(frozen=True)
class Comparison:
    """Two methods on the same subjects.

    ``p`` is two-sided, by flipping the signs of the subjects' differences, corrected
    by Holm's method for the number of comparisons under the same protocol.
    """

    better: str
    other: str
    difference: float
    n_subjects: int
    p: float


def subject_accuracies(one: Scored) -> dict[str, float]:
    """Return the mean accuracy of each subject over the folds that tested it.

    Several subjects of one fold share its accuracy. Empty if the result does not say
    who was tested.
    """
    found: dict[str, list[float]] = {}
    if len(one.folds) != len(one.scores):
        return {}
    for fold, score in zip(one.folds, one.scores, strict=True):
        who = fold.get("test_subjects")
        if not isinstance(who, list | tuple) or not who:
            return {}
        for id in who:
            found.setdefault(str(id), []).append(float(score))
    return {id: float(np.mean(values)) for id, values in found.items()}


def interval(one: Scored) -> tuple[float, float] | None:
    """Return a 95 % interval of the mean over subjects, by resampling subjects."""
    values = np.array(list(subject_accuracies(one).values()))
    if len(values) < FEW:
        return None
    rng = np.random.default_rng(0)
    drawn = rng.integers(len(values), size=(N_RESAMPLES, len(values)))
    low, high = np.quantile(values[drawn].mean(axis=1), [0.025, 0.975])
    return float(low), float(high)


def above_chance(one: Scored) -> float | None:
    """Return the one-sided p of accuracies above chance, by flipping signs.

    None where the result does not say who was tested, or for too few subjects.
    """
    values = np.array(list(subject_accuracies(one).values())) - one.chance
    return _flip_p(values) if len(values) >= TESTABLE else None


def compare_methods(members: list[tuple[str, Scored]]) -> list[Comparison]:
    """Test all pairs of methods of one protocol, paired over their subjects."""
    pairs: list[Comparison] = []
    known = [(name, subject_accuracies(one)) for name, one in members]
    for (a, of_a), (b, of_b) in combinations(known, 2):
        common = [id for id in of_a if id in of_b]
        if len(common) < FEW:
            continue
        difference = np.array([of_a[id] - of_b[id] for id in common])
        mean, p = float(difference.mean()), _flip_p(difference, two_sided=True)
        names = (a, b) if mean >= 0 else (b, a)
        pairs.append(Comparison(*names, abs(mean), len(common), p))
    least = 0.0  # Holm
    for rank, i in enumerate(sorted(range(len(pairs)), key=lambda i: pairs[i].p)):
        least = max(least, min(1.0, pairs[i].p * (len(pairs) - rank)))
        pairs[i] = replace(pairs[i], p=least)
    return pairs


def _flip_p(values: NDArray[np.float64], *, two_sided: bool = False) -> float:
    """Return p of a mean that differs from 0, by flipping signs."""
    n, extra = len(values), int(len(values) > MAX_EXACT)
    if extra:
        signs = np.random.default_rng(0).choice([-1.0, 1.0], size=(N_FLIPS, n))
    else:
        signs = np.array(list(product((1.0, -1.0), repeat=n)))
    means, seen = signs @ values / n, float(values.mean())
    if two_sided:
        means, seen = np.abs(means), abs(seen)
    as_far = means >= seen - 1e-12
    return float((as_far.sum() + extra) / (len(signs) + extra))
