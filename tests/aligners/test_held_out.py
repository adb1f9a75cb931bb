"""Halves of samples, and the statistic on them, against what is written out by hand."""

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

import brainweave as bw
from brainweave._core.exceptions import InputError
from brainweave.aligners.base import BaseAligner
from brainweave.aligners.check import agreement
from brainweave.aligners.check.held_out import (
    BORDER,
    Fold,
    _half_basis,
    cross_fit,
    fit_by_grams,
    halves_of,
    rows_to_test,
    select_samples,
)
from brainweave.graphs.builders import NO_GROUP
from planted import planted_study


def as_flags(half):
    return "".join("01"[int(v)] for v in half)


# -- halves ----------------------------------------------------------------------------


def test_samples_without_a_group_follow_the_one_before():
    codes = np.array([NO_GROUP, 0, NO_GROUP, 0, NO_GROUP, 1, NO_GROUP, 1, NO_GROUP])
    half, _ = halves_of([codes] * 2, None)
    assert as_flags(half) == "000110011"  # those before the first go with the first
    none = np.full(4, NO_GROUP)
    assert as_flags(halves_of([none, none], None)[0]) == "0000"


def test_an_odd_sample_goes_to_either_half_by_turns():
    codes = np.array([0, 0, 0, 1, 1, 1])
    half, _ = halves_of([codes] * 2, None)
    assert as_flags(half) == "011" + "001"


def test_a_category_that_one_subject_has_once_is_divided_in_the_others():
    often, once = halves_of([np.array([0, 0, 0, 0, 1, 1]), np.array([0, 1, 1])], None)
    assert as_flags(often) == "0011" + "01"
    assert as_flags(once) == "1" + "01"


def test_time_points_are_early_or_late_by_their_share_of_the_film():
    early, late = halves_of([np.arange(10), 10 + np.arange(20)], None)
    assert as_flags(early) == "0" * 5 + "1" * 5
    assert as_flags(late) == "0" * 10 + "1" * 10
    # whoever shows a point first decides for all
    first, other = halves_of([np.arange(6), np.array([5, 4, 3, 0])], None)
    assert as_flags(first) == "000111"
    assert as_flags(other) == "1110"


def test_runs_are_taken_in_turn_where_all_have_several():
    codes = [np.array([0, 1] * 4)] * 2
    runs = ["a", "a", "b", "b", "a", "a", "c", "c"]
    assert as_flags(halves_of(codes, [runs, runs])[0]) == "00110000"
    by_samples = "".join(as_flags(half) for half in halves_of(codes, None))
    one_run = ["a"] * 8
    for unknown in (one_run, [None, *runs[1:]], [float("nan"), *runs[1:]]):
        found = halves_of(codes, [runs, unknown])
        assert "".join(map(as_flags, found)) == by_samples
    # a time point stays whole: its run in the first subject who saw it
    films = halves_of([np.arange(8), np.arange(8)[::-1]], [runs, runs])
    assert as_flags(films[0]) == "00110000"
    assert as_flags(films[1]) == "00110000"[::-1]


def test_time_points_next_to_aligning_ones_are_not_judged():
    codes = np.arange(60)
    held = np.arange(20, 60)
    assert rows_to_test(codes, held).tolist() == list(range(BORDER, 40))
    both_sides = np.arange(20, 44)  # on either side a quarter, if that is less
    assert rows_to_test(codes, both_sides).tolist() == list(range(6, 18))
    few = np.arange(20, 39)
    assert rows_to_test(codes, few).tolist() == list(range(19))
    twenty = np.arange(40, 60)
    assert rows_to_test(codes, twenty).tolist() == list(range(5, 20))
    turns = np.flatnonzero(np.arange(64) // 8 % 2)  # runs of eight take turns
    middle = [row for row in range(32) if row % 8 in (2, 3, 4, 5)]
    assert rows_to_test(np.arange(72), turns).tolist() == middle
    # categories repeat: all are judged but those without a label
    repeated = np.where(np.arange(60) % 7 == 0, NO_GROUP, np.arange(60) % 3)
    expected = np.flatnonzero(held % 7 != 0).tolist()
    assert rows_to_test(repeated, held).tolist() == expected


@pytest.mark.parametrize("kind", ["labels", "time", "both", "matrix"])
def test_the_graph_of_a_half_is_that_part_of_the_matrix(rng, kind):
    y = [rng.integers(3, size=n) for n in (7, 9)]
    graph = bw.label_graph(y)
    if kind == "time":
        graph = bw.time_graph([range(7), range(9)])
    if kind == "both":
        graph = graph + 2 * bw.time_graph([range(7), range(9)])
    if kind == "matrix":
        graph = bw.matrix_graph(graph.to_sparse(), (7, 9))
    rows = [np.array([0, 2, 5]), np.array([1, 8])]
    part = select_samples(graph, rows)
    assert part.lengths == (3, 2)
    chosen = [0, 2, 5, 7 + 1, 7 + 8]
    whole = graph.to_sparse().toarray()
    assert_allclose(part.to_sparse().toarray(), whole[np.ix_(chosen, chosen)])


def test_either_half_is_held_out_once(rng):
    halves = [np.arange(8) % 2 == 1, np.arange(6) < 3]
    codes = [np.arange(8) // 4, np.arange(6) // 3]
    full = [rng.normal(size=(8, 2)), rng.normal(size=(6, 2))]
    turn = np.array([[0.0, 1.0, 0.0], [-1.0, 0.0, 0.0]])
    asked = []

    def fit(aligning, rows):  # features that are turned, and one more than wanted
        asked.append([r.tolist() for r in aligning])
        return tuple([f[r] @ turn for f, r in zip(full, some, strict=True)]
                     for some in (aligning, rows))  # fmt: skip

    folds, features = cross_fit(halves, codes, full, fit)
    assert asked == [[[0, 2, 4, 6], [3, 4, 5]], [[1, 3, 5, 7], [0, 1, 2]]]
    assert [r.tolist() for r in folds[0].rows] == [[1, 3, 5, 7], [0, 1, 2]]
    # for pictures they are turned back; tested they are as they come, cut to size
    for found, want in zip(features, full, strict=True):
        assert_allclose(found, want, atol=1e-12)
    assert_allclose(folds[0].features[1], (full[1] @ turn)[:3, :2])
    assert [c.tolist() for c in folds[1].codes] == [[0, 0, 1, 1], [1, 1, 1]]
    # blocks of features that cannot be mixed are turned apart
    _, apart = cross_fit(
        halves,
        codes,
        full,
        lambda *rows: tuple(
            [-f[r] for f, r in zip(full, s, strict=True)] for s in rows
        ),
        blocks=[np.array([0]), np.array([1])],
    )
    for found, want in zip(apart, full, strict=True):
        assert_allclose(found, want, atol=1e-12)
    with pytest.raises(InputError, match="another number of features"):
        cross_fit(halves, codes, full, fit, blocks=[np.array([0, 1])])


@pytest.mark.parametrize(("n", "enough"), [(5, False), (6, True)])
@pytest.mark.parametrize("first", [True, False])
def test_either_half_of_every_subject_needs_three_samples(rng, n, enough, first):
    halves = [np.arange(6) < 3, (np.arange(n) < 3) == first]
    codes = [np.zeros(6, int), np.zeros(n, int)]
    full = [rng.normal(size=(6, 1)), rng.normal(size=(n, 1))]

    def fit(*rows):
        return tuple([f[r] for f, r in zip(full, some, strict=True)] for some in rows)

    if enough:
        assert len(cross_fit(halves, codes, full, fit)[0]) == 2
        return
    with pytest.raises(InputError, match="too few samples to hold half of them out"):
        cross_fit(halves, codes, full, fit)


# -- the statistic ---------------------------------------------------------------------


def brute_statistic(features, codes):
    """Sum over pairs of subjects and groups of the products of scaled group sums."""
    total = np.zeros(features[0].shape[1])
    for i in range(len(features)):
        for j in range(i):
            for c in set(codes[i]) & set(codes[j]):
                u = [
                    f[own == c].sum(axis=0) / np.sqrt((own == c).sum())
                    for f, own in ((features[i], codes[i]), (features[j], codes[j]))
                ]
                total += u[0] * u[1]
    return total


@pytest.mark.parametrize("chunk", [4_000_000, 30])
def test_the_statistic_is_its_definition_however_many_are_shuffled_at_a_time(
    rng, chunk, monkeypatch
):
    monkeypatch.setattr(agreement, "CHUNK", chunk)
    codes = [rng.integers(4, size=n) for n in (12, 15, 9)]
    features = [rng.normal(size=(len(c), 2)) for c in codes]
    positions = [np.arange(len(c)) for c in codes]
    draws = [agreement._Shuffles(c, s, [0, i]) for i, (c, s) in
             enumerate(zip(codes, positions, strict=True))]  # fmt: skip
    values = agreement._statistics(features, draws, 4, 7)
    assert values.shape == (8, 2)
    assert_allclose(values[0], brute_statistic(features, codes), atol=1e-12)
    again = [agreement._Shuffles(c, s, [0, i]) for i, (c, s) in
             enumerate(zip(codes, positions, strict=True))]  # fmt: skip
    shuffled = [d.draw(8, keep_first=True) for d in again]
    for n in range(8):
        now = [s[n] for s in shuffled]
        assert_allclose(values[n], brute_statistic(features, now), atol=1e-12)


def test_labels_move_in_the_blocks_in_which_they_were_shown():
    codes = np.array([0, 0, 0, 1, 1, 2, 2, 0, 0, 1])
    positions = np.arange(10)
    shuffles = agreement._Shuffles(codes, positions, [0])
    assert [b[b >= 0].tolist() for b in shuffles.blocks] == [
        [0, 1, 2], [3, 4], [5, 6], [7, 8], [9]
    ]  # fmt: skip
    drawn = shuffles.draw(50, keep_first=True)
    assert_array_equal(drawn[0], codes)
    assert (drawn[1:] != codes).any(axis=1).mean() > 0.5
    for row in drawn:
        assert np.bincount(row).tolist() == [5, 3, 2]
        runs = np.split(row, np.flatnonzero(np.diff(row)) + 1)
        assert len(runs) <= 5  # never torn
    assert (shuffles.draw(50, keep_first=False)[0] != codes).any()
    # a gap in time ends a block; in sorted labels every sample is one
    gap = agreement._Shuffles(codes, np.where(positions > 0, positions + 1, 0), [0])
    assert (gap.blocks >= 0).sum(axis=1).tolist() == [1, 2, 2, 2, 2, 1]
    in_order = agreement._Shuffles(np.sort(codes), positions, [0])
    assert_array_equal(in_order.blocks, np.arange(10)[:, None])


def test_time_points_are_shifted_as_a_ring():
    codes = np.array([4, 7, 5, 9, 1])
    drawn = agreement._Shuffles(codes, np.arange(5), [3]).draw(60, keep_first=False)
    rings = {tuple(np.roll(codes, k)) for k in range(5)}
    assert {tuple(row) for row in drawn} == rings


def folds_of(features, codes):
    rows = [np.arange(len(c)) for c in codes]
    one = Fold(rows, features, codes)
    return [one, one]


def test_what_is_shared_is_told_from_noise_and_from_nothing(rng):
    codes = [rng.permutation(np.arange(24) % 4) for _ in range(3)]
    means = rng.normal(size=4)
    features = [
        np.column_stack([means[c] + 0.1 * rng.normal(size=24), rng.normal(size=24)])
        for c in codes
    ]
    agreed, p, rest = agreement.permutation_test(folds_of(features, codes), 199, 0)
    assert agreed[0] > 0.95 > abs(agreed[1])
    assert p[0] == rest[0] == 1 / 200
    assert min(p[1], rest[1]) > 0.05
    constant = [np.column_stack([f[:, 0], np.zeros(24)]) for f in features]
    agreed, p, rest = agreement.permutation_test(folds_of(constant, codes), 199, 0)
    assert p.tolist() == rest.tolist() == [1 / 200, 1.0]
    assert agreed[1] == 0
    # no more than the smallest p that so many permutations can give
    assert agreement.permutation_test(folds_of(features, codes), 9, 0)[1][0] == 1 / 10
    scaled = [1e6 * f + 7 for f in features]  # the unit of features does not matter
    assert agreement.permutation_test(folds_of(scaled, codes), 199, 0)[1][0] == 1 / 200


def test_weak_components_are_evidence_together(rng):
    codes = [rng.permutation(np.arange(40) % 4) for _ in range(3)]
    means = 0.45 * rng.normal(size=(4, 12))
    weak = [means[c] + rng.normal(size=(40, 12)) for c in codes]
    _, p, rest = agreement.permutation_test(folds_of(weak, codes), 199, 0)
    assert rest[0] < 0.05 < np.median(p)
    assert_allclose(rest[-1], agreement.permutation_test(
        folds_of([w[:, -1:] for w in weak], codes), 199, 0)[1])  # fmt: skip


def test_subjects_must_share_two_groups(rng):
    features = [rng.normal(size=(8, 1)) for _ in range(2)]
    apart = [np.arange(8) % 2, 2 + np.arange(8) % 2]
    one = [np.arange(8) % 2, 1 + np.arange(8) % 2]
    for codes in (apart, one):
        with pytest.raises(InputError, match="share too few groups"):
            agreement.permutation_test(folds_of(features, codes), 9, 0)
    with pytest.raises(InputError, match="share too few groups"):
        agreement.permutation_test(
            folds_of([f[:1] for f in features], [[0], [0]]), 9, 0
        )


def test_agreement_is_the_correlation_of_group_means(rng):
    codes = [np.array([0, 0, 1, 2, 2, NO_GROUP]), np.array([0, 1, 1, 2, 0, 2])]
    features = [rng.normal(size=(6, 2)) for _ in codes]
    means = [
        np.array([f[c == k].mean(axis=0) for k in range(3)])
        for f, c in zip(features, codes, strict=True)
    ]
    want = [np.corrcoef(means[0][:, k], means[1][:, k])[0, 1] for k in range(2)]
    assert_allclose(agreement.agreement_of_groups(features, codes, 3), want)


# -- models of a half ------------------------------------------------------------------


@pytest.mark.parametrize("reliable", [False, True])
def test_a_half_keeps_runs_precision_and_number_of_voxels(rng, reliable):
    X, y = planted_study(rng, (24, 24), (40, 40))
    x = X[0].astype(np.float32)
    x[:, 3] = 1
    how = {"standardize": "reliability", "groups": y[0]} if reliable else {}
    basis = bw.SubjectBasis(x, runs=np.arange(24) // 6, name="X[0]", **how)
    assert basis.reliable == reliable
    rows, held_out = np.arange(12), np.arange(12, 24)
    half, held = _half_basis(basis, rows, held_out)
    assert (half.n_samples, half.n_voxels, half.dtype) == (12, 40, np.float32)
    assert half.constant_voxels.tolist() == [3]
    assert half.runs.tolist() == [0] * 6 + [1] * 6
    assert half.reliable == reliable
    assert held.shape[0] == 12


@pytest.mark.parametrize("energy", [0.6, 1.0])
def test_a_model_of_a_half_has_as_many_components_as_the_half_can(rng, energy):
    X, _ = planted_study(rng, (24, 24), (40, 40))
    k = min(bw.SubjectBasis(x, energy=energy).n_kept for x in X)
    model = bw.DetSRM(k, energy=energy, random_state=0).fit(X)
    fewest = min(bw.SubjectBasis(x[12:], energy=energy).n_kept for x in X)
    assert fewest < k
    rows, held_out = [np.arange(12)] * 2, [np.arange(12, 24)] * 2
    seen, new = fit_by_grams(model, model.bases_, k, held_out, rows)
    assert [f.shape for f in (*seen, *new)] == [(12, fewest)] * 4
    assert bw.alignment_check(model, n_permutations=19).available


class Leading(BaseAligner):
    """Somebody's own: the leading principal components of every subject."""

    def __init__(self, n_components=2, *, standardize=True):
        self.n_components, self.standardize = n_components, standardize

    def _solve(self, bases, y):
        return [self._solve_new(basis, y) for basis in bases]

    def _solve_new(self, basis, y):
        assert self.n_components <= basis.n_kept
        return np.eye(basis.n_kept, self.n_components)


def test_principal_components_of_a_half_are_no_more_than_its_rank(rng):
    X = [rng.normal(size=(24, 40)) for _ in range(2)]
    for x in X:
        x[:12] = rng.normal(size=(12, 4)) @ rng.normal(size=(4, 40))
    model = Leading(9).fit(X)
    rows, held_out = [np.arange(12)] * 2, [np.arange(12, 24)] * 2
    seen, new = fit_by_grams(model, model.bases_, 9, rows, held_out)
    assert [f.shape for f in (*seen, *new)] == [(12, 4)] * 4
