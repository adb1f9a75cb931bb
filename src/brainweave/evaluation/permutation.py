"""p-values of classification: what is permuted, and what it is compared with.

Each subject's labels are put into another order, the same wherever this subject trains
or tests, since the folds of subjects who train for each other rise and fall together.
What moves is a block, neighbouring samples of one label, within its run: neighbours are
alike also in noise.

The alignment is not repeated. Labels of one half may align for the scores of the other,
so each half has a p-value of its own, and the two are combined by their Cauchy
quantiles (Liu and Xie, 2020): uniform for halves that do not depend on each other and
for halves that rise and fall together; between these, normal scores of any correlation
have 5.4 % below .05 at most.
"""

import math
from collections import Counter
from collections.abc import Sequence
from typing import Any

import numpy as np

from brainweave._core.arrays import Codes, Matrix
from brainweave._core.labels import NO_LABEL

Record = dict[str, Any]

MOST_ORDERS = 1e15  # more are not counted


class LabelOrders:
    """The orders in which the labels of the scored samples of a study may come.

    From the coded labels and the runs, if known, of every subject's samples; `key`
    seeds all draws. `n_orders` differ in more than the names of categories.
    """

    def __init__(self, codes: list[Codes], runs: list[Any], key: list[int]) -> None:
        self._key = key
        self._blocks = [_blocks(*own) for own in zip(codes, runs, strict=True)]
        self.n_orders = self._count()

    def draw(self, subject: int, number: int) -> Codes:
        """Return the labels of a subject in another order, the same for a number."""
        rng = np.random.default_rng([*self._key, subject, number])
        rows = np.concatenate([row for row, _ in self._blocks[subject]])
        out = np.empty(rows.size, np.intp)
        place = 0
        for own, blocks in self._blocks[subject]:
            moved = [blocks[i] for i in rng.permutation(len(blocks))]
            out[place : place + own.size] = np.concatenate(moved)
            place += own.size
        return out[np.argsort(rows)]

    def _count(self) -> float:
        """Count orders; those that a renaming turns into each other are one."""
        total = 0.0  # a logarithm
        shapes: dict[int, list[Any]] = {}  # where and how long the blocks of a category
        for subject, runs in enumerate(self._blocks):
            for run, (_, blocks) in enumerate(runs):
                kinds = Counter((int(b[0]), b.size) for b in blocks)
                total += math.lgamma(len(blocks) + 1)
                total -= sum(math.lgamma(n + 1) for n in kinds.values())
                for (code, size), n in sorted(kinds.items()):
                    shapes.setdefault(code, []).append((subject, run, size, n))
        alike = Counter(map(tuple, shapes.values()))
        total -= sum(math.lgamma(n + 1) for n in alike.values())
        return float(min(MOST_ORDERS, round(math.exp(min(total, 40.0)))))


def _blocks(codes: Codes, runs: Any) -> list[tuple[Codes, list[Codes]]]:
    """Return, for each run, which labelled samples it has, and its blocks of labels.

    Where no run shows two categories, whole runs change places.
    """
    run_of = np.zeros(codes.size, np.intp)
    if runs is not None:
        numbers: dict[Any, int] = {}
        names = np.asarray(runs, dtype=object).tolist()
        run_of = np.array([numbers.setdefault(name, len(numbers)) for name in names])
    labelled = np.flatnonzero(codes != NO_LABEL)
    own, run_of = codes[labelled], run_of[labelled]
    if not any(np.unique(own[run_of == run]).size > 1 for run in np.unique(run_of)):
        groups, borders = np.zeros_like(run_of), np.diff(run_of) != 0
    else:
        groups, borders = run_of, np.zeros(max(0, own.size - 1), bool)
    found = []
    for group in np.unique(groups):
        rows = np.flatnonzero(groups == group)
        ends = (np.diff(own[rows]) != 0) | (np.diff(labelled[rows]) != 1)
        if borders.any():
            ends |= borders
        found.append((rows, np.split(own[rows], np.flatnonzero(ends) + 1)))
    return found


def permuted_means(records: Sequence[Record]) -> Matrix:
    """Return the mean over folds under each permutation of the labels."""
    if not records or not all("permuted_hits" in r for r in records):
        return np.empty(0)
    return np.asarray(
        np.mean([np.divide(r["permuted_hits"], r["n_test"]) for r in records], axis=0)
    )


def p_value(records: Sequence[Record]) -> float | None:
    """Compare the mean over folds with the means under permuted labels, if any."""
    n = permuted_means(records).size
    if not n:
        return None
    found = []
    for half in _halves(records):
        permuted, mean = permuted_means(half), np.mean([r["score"] for r in half])
        # a tie counts against the alignment, also one broken by rounding
        as_good = (permuted >= mean - 1e-12).sum()
        found.append((1 + as_good) / (1 + permuted.size))
    return _combined(found, n)


def smallest_p(records: Sequence[Record]) -> float | None:
    """Return what p cannot be below: for the permutations, or for few orders."""
    n = permuted_means(records).size
    if not n:
        return None
    orders = [half[0].get("n_orders", np.inf) for half in _halves(records)]
    return _combined([max(1 / (1 + n), 1 / known) for known in orders], n)


def _halves(records: Sequence[Record]) -> list[list[Record]]:
    halves: dict[int, list[Record]] = {}
    for r in records:
        halves.setdefault(r["half"], []).append(r)
    return list(halves.values())


def _combined(values: Sequence[float], n_permutations: int) -> float:
    """Combine p-values by the mean of their Cauchy quantiles (Liu and Xie, 2020)."""
    if len(values) == 1:
        return float(values[0])
    # p = 1 stands for all up to 1: alone it would outweigh any other
    highest = 1 - 0.5 / (1 + n_permutations)
    quantiles = np.tan((0.5 - np.minimum(values, highest)) * np.pi)
    return float(0.5 - np.arctan(np.mean(quantiles)) / np.pi)
