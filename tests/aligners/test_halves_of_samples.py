"""How samples are held out for the check, against loops that follow its rules."""

import numpy as np
import pytest
from numpy.testing import assert_allclose

import brainweave as bw
from brainweave._core.exceptions import InputError
from brainweave.aligners.check.agreement import p_of
from brainweave.aligners.check.held_out import (
    encode_runs,
    halves_of,
    remove_trends,
    rows_to_test,
    select_samples,
    stretches_of,
    trend_basis,
)


def literal_cut(groups):
    """Try every border between blocks: groups on both sides, samples, the middle."""
    rows = [t for t, g in enumerate(groups) if g >= 0]
    best, at = None, None
    for j in range(1, len(rows)):
        same = groups[rows[j]] == groups[rows[j - 1]] and rows[j] == rows[j - 1] + 1
        if same:
            continue
        early, late = ([groups[t] for t in part] for part in (rows[:j], rows[j:]))
        both = [min(early.count(g), late.count(g)) for g in set(early) | set(late)]
        worth = (sum(n > 0 for n in both), sum(both), -abs(2 * j - len(rows)))
        if best is None or worth > best:
            best, at = worth, rows[j]
    return None if best is None or best[0] < 2 else at


def literal_half(groups, cut):
    half = []
    for t, g in enumerate(groups):
        if g >= 0:
            half.append(t >= cut)
        elif any(v >= 0 for v in groups[:t]):
            half.append(half[-1])
        else:  # before the first sample of a group
            half.append(next(u for u, v in enumerate(groups) if v >= 0) >= cut)
    return half


def test_the_time_line_is_cut_where_a_loop_cuts_it(rng):
    told = 0
    for _ in range(60):
        codes = []
        for _ in range(2):  # blocks of three groups, some samples of none
            blocks = rng.integers(-1, 3, 9), rng.integers(1, 4, 9)
            codes.append(np.repeat(*blocks))
        every = [np.bincount(c[c >= 0], minlength=3) for c in codes]
        if (np.array(every) <= 1).all(axis=0).any():
            continue  # groups that stay whole are divided otherwise
        cuts = [literal_cut(c.tolist()) for c in codes]
        if None in cuts:
            with pytest.raises(InputError, match="cannot be tested with this design"):
                halves_of(codes, None)
            continue
        told += 1
        for c, cut, half in zip(codes, cuts, halves_of(codes, None), strict=True):
            assert half.tolist() == literal_half(c.tolist(), cut)
    assert told > 20


def test_runs_are_halved_in_the_way_that_most_groups_are_in_both(rng):
    for n_runs in (2, 3, 4, 5, 7):
        runs = [np.repeat(np.arange(n_runs), 4)] * 2
        for _ in range(10):
            codes = [rng.integers(0, 5, 4 * n_runs) for _ in runs]
            counts = np.array([np.bincount(c, minlength=5) for c in codes])
            if (counts <= 1).all(axis=0).any():
                continue
            ways = [
                [[int(r) % 2 == 1 for r in own] for own in runs],
                [[int(r) // 2 % 2 == 1 for r in own] for own in runs],
                [[2 * int(r) > n_runs - 1 for r in own] for own in runs],
            ]
            best, most = None, -1
            for way in ways:
                met = 0
                for c, half in zip(codes, way, strict=True):
                    sides = [
                        {g for g, h in zip(c.tolist(), half, strict=True) if h == side}
                        for side in (False, True)
                    ]
                    met += len(sides[0] & sides[1])
                if met > most and all(any(half) for half in way):
                    best, most = way, met
            assert [h.tolist() for h in halves_of(codes, runs)] == best


def test_time_points_are_divided_in_the_middle_of_the_film():
    for n in (6, 7):
        codes = [np.arange(n)] * 2
        for half in halves_of(codes, None):
            assert half.tolist() == [t >= (n + 1) // 2 for t in range(n)]
    moved = [np.arange(6), np.array([5, 4, 3, 2, 1, 0])]  # on average all at one time
    first, second = halves_of(moved, None)
    assert first.sum() == second.sum() == 3
    assert first.tolist() == second[::-1].tolist()
    runs = [np.repeat([0, 1], 4)] * 3
    codes = [np.arange(8), np.arange(8), np.roll(np.arange(8), 4)]
    halves = halves_of(codes, runs)  # most of those who have it decide
    assert [h.tolist() for h in halves] == [(c >= 4).tolist() for c in codes]


@pytest.mark.parametrize("n", [12, 19, 20, 21, 48, 90])
def test_rows_next_to_aligning_ones_are_not_tested(rng, n):
    for pattern in ("half", "turns", "random"):
        size = 2 * n
        held = {
            "half": np.arange(size) >= n,
            "turns": np.arange(size) % 2 == 1,
            "random": rng.random(size) < 0.5,
        }[pattern]
        codes = rng.integers(-1, 6, size) if pattern == "random" else np.arange(size)
        for runs in (np.zeros(size, int), np.arange(size) // (size // 3)):
            rows = np.flatnonzero(held)
            known = [t for t in rows if codes[t] >= 0]
            keep = set(known)
            if len(known) >= 20:
                aligning = [t for t in range(size) if not held[t]]
                distance = {
                    t: min((abs(t - u) for u in aligning if runs[u] == runs[t]),
                           default=size)
                    for t in known
                }  # fmt: skip
                border = min(10, len(known) // 4, int(np.median([*distance.values()])))
                keep = {t for t in known if distance[t] > border}
            assert set(rows[rows_to_test(codes, rows, runs)].tolist()) == keep


@pytest.mark.parametrize("n", [1, 2, 7, 8, 15, 16, 23, 24, 75, 149, 150, 230, 300])
def test_trends_are_polynomials_whose_order_grows_with_the_run(rng, n):
    order = min(n // 8, max(2, 1 + n // 75))
    time = np.cumsum(rng.integers(1, 4, n))
    values = rng.normal(size=(n, 2))
    scaled = (time - time[0]) / max(1, np.ptp(time))
    design = scaled[:, None] ** np.arange(order + 1)
    expected = values - design @ np.linalg.lstsq(design, values)[0]
    before = values.copy()
    found = remove_trends(values, time, [np.arange(n)])
    assert_allclose(found, expected, atol=1e-9)
    assert_allclose(values, before, rtol=0)
    assert trend_basis(time).shape == (n, order + 1)
    both = remove_trends(
        np.vstack([values, values]),
        np.concatenate([time, time]),
        [np.arange(n), n + np.arange(n)],
    )
    assert_allclose(both, np.vstack([expected] * 2), atol=1e-9)
    at_once = remove_trends(values, np.zeros(n), [np.arange(n)])
    assert_allclose(at_once, values - values.mean(axis=0), atol=1e-12)
    line = np.column_stack([time, np.full(n, 3.3)])
    left = remove_trends(line, time, [np.arange(n)])
    assert not left[:, 1].any()
    assert left[:, 0].any() == (1 < n < 8)


def test_runs_are_stretches_if_any_has_two_groups():
    def found(codes, runs):
        return [own.tolist() for own in stretches_of(np.array(codes), np.array(runs))]

    assert found([0, 1, 1, 1], [5, 5, 2, 2]) == [[0, 1], [2, 3]]
    assert found([0, 0, 1, 1], [5, 5, 2, 2]) == [[0, 1, 2, 3]]
    assert found([0, -1, 1, 1], [5, 5, 2, 2]) == [[0, 1, 2, 3]]
    assert found([0, 1, 0, 1], [7, 3, 7, 3]) == [[0, 1, 2, 3]]
    assert found([0, 1, 2, 1], [7, 3, 7, 3]) == [[0, 2], [1, 3]]


def test_runs_are_numbered_in_the_order_in_which_they_appear():
    first, second = encode_runs([["b", "b", "a"], [3, 1, 3]])
    assert first.tolist() == [0, 0, 1]
    assert second.tolist() == [0, 1, 0]
    assert encode_runs(None) is encode_runs([["a", "b"], None]) is None
    assert encode_runs([["a", None], ["a", "b"]]) is None
    assert encode_runs([["a", "b"], [float("nan"), 1]]) is None


def test_the_graph_of_some_samples_is_that_part_of_its_matrix(rng):
    labels = [rng.integers(0, 4, n) for n in (7, 5, 6)]
    S = rng.normal(size=(18, 18))
    graph = bw.label_graph(labels) + bw.matrix_graph(S + S.T, [7, 5, 6])
    rows = [np.array([5, 0, 2]), np.array([1, 4]), np.array([3, 2, 1, 5])]
    part = select_samples(graph, rows)
    at = np.concatenate([rows[0], 7 + rows[1], 12 + rows[2]])
    whole = graph.to_sparse().toarray()
    assert_allclose(part.to_sparse().toarray(), whole[np.ix_(at, at)], atol=1e-12)
    assert part.lengths == (3, 2, 4)


def test_p_counts_how_often_the_averaged_folds_are_as_good(rng):
    null = rng.normal(size=(2, 39))
    averaged = (np.sort(null[0]) + np.sort(null[1])) / 2
    for statistic in (-9.0, 0.1, averaged[-1], averaged[-2] + 1e-10, 9.0):
        as_good = sum(v >= statistic - 1e-9 for v in averaged)
        assert p_of(statistic, null) == (1 + as_good) / 40
    assert p_of(averaged[-1] + 1e-7, null) == 1 / 40
