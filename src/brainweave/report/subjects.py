"""Accuracy by subject: intervals, and tests between methods that are paired over them.

The folds of one subject are not independent, so every number here is over subjects.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import combinations, product
from typing import Any

import numpy as np
from numpy.typing import NDArray

from brainweave.plotting.results import protocol_of

MAX_EXACT = 14  # subjects up to which all sign flips are tried
N_FLIPS = 9999
N_RESAMPLES = 4999
FEW = 3  # subjects below which no interval is told


@dataclass(frozen=True)
class Comparison:
    """Two methods on the same subjects.

    ``p`` is two-sided, by flipping the signs of the subjects' differences, corrected
    by Holm's method for the number of comparisons under the same protocol.
    """

    protocol: str
    better: str
    other: str
    difference: float
    n_subjects: int
    p: float


def subject_accuracies(result: Any) -> dict[str, float]:
    """Return the mean accuracy of each subject over the folds that tested it alone.

    Empty if the result does not say who was tested.
    """
    found: dict[str, list[float]] = {}
    folds = list(getattr(result, "folds", None) or [])
    scores = np.asarray(result.scores, dtype=float)
    if len(folds) != len(scores):
        return {}
    for fold, score in zip(folds, scores, strict=True):
        who = fold.get("test_subjects") if isinstance(fold, Mapping) else None
        if not isinstance(who, list | tuple) or not who:
            return {}
        # several subjects of one fold share its accuracy
        for id in who:
            found.setdefault(str(id), []).append(float(score))
    return {id: float(np.mean(values)) for id, values in found.items()}


def interval(result: Any) -> tuple[float, float] | None:
    """Return a 95 % interval of the mean over subjects, by resampling subjects."""
    values = np.array(list(subject_accuracies(result).values()))
    if len(values) < FEW:
        return None
    rng = np.random.default_rng(0)
    drawn = rng.integers(len(values), size=(N_RESAMPLES, len(values)))
    low, high = np.quantile(values[drawn].mean(axis=1), [0.025, 0.975])
    return float(low), float(high)


def above_chance(result: Any) -> float | None:
    """Return p of accuracies above chance, by flipping signs over subjects.

    One-sided; None where the result does not say who was tested, or where there are
    too few subjects for any p below .05.
    """
    values = np.array(list(subject_accuracies(result).values())) - float(result.chance)
    if len(values) < 5:
        return None
    return _flip_p(values, two_sided=False)


def compare_methods(results: list[tuple[str, Any]]) -> list[Comparison]:
    """Test all pairs of methods of each protocol, paired over their subjects."""
    found: list[Comparison] = []
    for protocol in dict.fromkeys(protocol_of(r) for _, r in results):
        members = [
            (n, subject_accuracies(r)) for n, r in results if protocol_of(r) == protocol
        ]
        pairs: list[Comparison] = []
        for (a, of_a), (b, of_b) in combinations(members, 2):
            common = [id for id in of_a if id in of_b]
            if len(common) < FEW:
                continue
            difference = np.array([of_a[id] - of_b[id] for id in common])
            p = _flip_p(difference, two_sided=True)
            mean = float(difference.mean())
            names = (a, b) if mean >= 0 else (b, a)
            pairs.append(Comparison(protocol, *names, abs(mean), len(common), p))
        found += _holm(pairs)
    return found


def _holm(pairs: list[Comparison]) -> list[Comparison]:
    order = sorted(range(len(pairs)), key=lambda i: pairs[i].p)
    corrected, least = {}, 0.0
    for rank, i in enumerate(order):
        least = max(least, min(1.0, pairs[i].p * (len(pairs) - rank)))
        corrected[i] = least
    return [
        Comparison(**{**vars(pair), "p": corrected[i]}) for i, pair in enumerate(pairs)
    ]


def _flip_p(values: NDArray[np.float64], *, two_sided: bool) -> float:
    """Return p of a mean that differs from 0, by flipping signs."""
    n = len(values)
    if n <= MAX_EXACT:
        signs = np.array(list(product((1.0, -1.0), repeat=n)))
        extra = 0
    else:
        signs = np.random.default_rng(0).choice([-1.0, 1.0], size=(N_FLIPS, n))
        extra = 1
    means, seen = signs @ values / n, float(values.mean())
    if two_sided:
        means, seen = np.abs(means), abs(seen)
    as_far = means >= seen - 1e-12
    return float((as_far.sum() + extra) / (len(signs) + extra))
