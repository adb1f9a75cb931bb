"""Orders of labels and p-values, against loops that follow their definition."""

import itertools

import numpy as np
import pytest
from numpy.testing import assert_allclose
from scipy import stats

from brainweave.evaluation.classifiers import (
    LabelOrders,
    p_value,
    permuted_means,
    smallest_p,
)


def literal_blocks(codes, runs):
    """Blocks of neighbouring samples of one label, by run; or whole runs, if each has
    one category."""
    n = len(codes)
    runs = [0] * n if runs is None else list(runs)
    rows = [i for i in range(n) if codes[i] >= 0]
    kinds = {r: {codes[i] for i in rows if runs[i] == r} for r in runs}
    whole = all(len(k) < 2 for k in kinds.values())
    groups = [rows] if whole else [
        [i for i in rows if runs[i] == r] for r in dict.fromkeys(runs)
    ]  # fmt: skip
    found = []
    for own in groups:
        blocks = []
        for at, i in enumerate(own):
            before = own[at - 1] if at else None
            follows = before == i - 1 and codes[before] == codes[i]
            if at and follows and runs[before] == runs[i]:
                blocks[-1].append(codes[i])
            else:
                blocks.append([codes[i]])
        if own:
            found.append((own, blocks))
    return found


def literal_draw(codes, runs, seed):
    rng, out = np.random.default_rng(seed), {}
    for rows, blocks in literal_blocks(codes, runs):
        moved = itertools.chain(*(blocks[i] for i in rng.permutation(len(blocks))))
        out |= dict(zip(rows, moved, strict=True))
    return [out[i] for i in sorted(out)]


def literal_count(codes, runs):
    """All orders of all subjects, counted up to the names of categories."""
    per_subject = []
    for own, own_runs in zip(codes, runs, strict=True):
        parts = [
            {tuple(map(tuple, order)) for order in itertools.permutations(blocks)}
            for _, blocks in literal_blocks(own, own_runs)
        ]
        per_subject.append(list(itertools.product(*parts)))
    seen = set()
    for order in itertools.product(*per_subject):
        names = {}
        seen.add(
            tuple(
                (subject, run, tuple(names.setdefault(v, len(names)) for v in block))
                for subject, of_runs in enumerate(order)
                for run, blocks in enumerate(of_runs)
                for block in blocks
            )
        )
    return len(seen)


DESIGNS = [
    ([[0, 0, 1, 1, 2, 2]], [None]),
    ([[0, 1, -1, 0, 0, 1, 2]], [[3, 3, 3, 3, 1, 1, 1]]),
    ([[0, 1, 0, 1], [1, 1, 0]], [None, list("aab")]),
    ([[0, 0, 0, 1, 1, 1]], [list("xxyyzz")]),
    ([[0, 0, 1, 1, 0, 0]], [list("xxyyzz")]),
    ([[0, 0, 1, 1], [1, 0, 0, 1]], [list("aabb"), None]),
    ([[0, -1, 0, 1, 1, -1, 1]], [list("aaabbbb")]),
    ([[1, 1, 1]], [list("aab")]),
    ([[0, 1, 2, -1]], [None]),
    ([[0, 1, 1, 0, 1, 0]], [[2, 2, 1, 1, 2, 1]]),
]


@pytest.mark.parametrize(("codes", "runs"), DESIGNS)
def test_draws_and_counts_equal_their_literal_definition(codes, runs):
    orders = LabelOrders([np.array(c) for c in codes], runs, [5, 2])
    for subject, (own, own_runs) in enumerate(zip(codes, runs, strict=True)):
        for number in range(6):
            expected = literal_draw(own, own_runs, [5, 2, subject, number])
            assert orders.draw(subject, number).tolist() == expected
    assert orders.n_orders == literal_count(codes, runs)


def test_very_many_orders_are_not_counted():
    orders = LabelOrders([np.arange(40)] * 2, [None] * 2, [0])
    assert orders.n_orders == 1e15


def record(half, score, hits, n_test=10, **more):
    hits = np.array(hits)
    return {
        "half": half,
        "score": score,
        "permuted_hits": hits,
        "n_test": n_test,
    } | more


def test_permuted_scores_are_averaged_over_folds():
    records = [record(0, 0.5, [1, 2, 3]), record(0, 0.5, [4, 1, 0], n_test=20)]
    assert_allclose(permuted_means(records), [0.15, 0.125, 0.15])
    assert permuted_means([]).shape == (0,)
    bare = {"half": 0, "score": 0.5, "n_test": 10}
    for lacking in ([], [bare], [records[0], bare]):
        assert permuted_means(lacking).shape == (0,)
        assert p_value(lacking) is None
        assert smallest_p(lacking) is None


def literal_p(records):
    found = []
    for half in dict.fromkeys(r["half"] for r in records):
        own = [r for r in records if r["half"] == half]
        means = np.mean([r["permuted_hits"] / r["n_test"] for r in own], axis=0)
        mean = np.mean([r["score"] for r in own])
        found.append(
            (1 + sum(m >= mean or np.isclose(m, mean) for m in means))
            / (1 + len(means))
        )
    if len(found) == 1:
        return found[0]
    found = np.minimum(found, 1 - 0.5 / (1 + len(means)))
    return stats.cauchy.sf(np.mean(stats.cauchy.isf(found)))


def test_p_is_that_of_its_definition(rng):
    for n_halves in (1, 2, 3):
        for n in (1, 4, 19):
            records = [
                record(half, rng.integers(3, 9) / 10, rng.integers(0, 9, n))
                for half in [*range(n_halves)] * 2
            ]
            assert p_value(records) == pytest.approx(literal_p(records), rel=1e-9)
    near = [record(0, 0.5, [5 - 5e-8])]  # less by more than rounding
    assert p_value(near) == 1 / 2
    worst = [record(0, 0.0, [5, 5, 5]), record(1, 0.9, [5, 5, 5])]
    expected = np.tan((0.5 - np.array([1 - 0.5 / 4, 1 / 4])) * np.pi).mean()
    assert p_value(worst) == pytest.approx(0.5 - np.arctan(expected) / np.pi)


def test_p_is_bounded_by_permutations_and_by_orders():
    def smallest(*orders, n=9):
        records = [
            record(half, 0.5, [5] * n, **({"n_orders": known} if known else {}))
            for half, known in enumerate(orders)
        ]
        return smallest_p(records)

    assert smallest(None) == smallest(100) == smallest(10) == pytest.approx(1 / 10)
    assert smallest(9) == pytest.approx(1 / 9)
    assert smallest(4, 4) == pytest.approx(1 / 4)
    both = stats.cauchy.sf(stats.cauchy.isf([1 / 4, 1 / 10]).mean())
    assert smallest(4, None) == pytest.approx(both)
    one = stats.cauchy.isf([1 - 0.5 / 10, 1 / 10]).mean()
    assert smallest(1, None) == pytest.approx(stats.cauchy.sf(one))
