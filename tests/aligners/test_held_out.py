"""Halves of samples, and the statistic on them, against what is written out by hand."""

import numpy as np
import pytest
import scipy.fft
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
    remove_trends,
    rows_to_test,
    select_samples,
    stretches_of,
)
from brainweave.graphs.builders import NO_GROUP
from planted import planted_study


def as_flags(half):
    return "".join("01"[int(v)] for v in half)


# -- halves ----------------------------------------------------------------------------


def test_samples_without_a_group_follow_the_one_before():
    codes = np.array([NO_GROUP, 0, 1, NO_GROUP, 1, NO_GROUP, 0, NO_GROUP])
    half, _ = halves_of([codes] * 2, None)
    assert as_flags(half) == "00001111"[:4] + "1" * 4
    none = np.full(4, NO_GROUP)
    assert as_flags(halves_of([none, none], None)[0]) == "0011"


def test_the_scan_is_cut_between_blocks_where_most_have_their_like_on_both_sides():
    codes = np.repeat([0, 1, 2, 1, 0, 2], 3)
    half, _ = halves_of([codes, codes], None)
    assert as_flags(half) == "0" * 9 + "1" * 9
    # of blocks of other lengths none is cut
    codes = np.repeat([0, 1, 0, 1], [2, 9, 2, 2])
    assert as_flags(halves_of([codes, codes], None)[0]) == "0" * 11 + "1" * 4
    # rest between two blocks of one category ends a block
    rest = np.array([0, 1, 1, NO_GROUP, 1, 1, 0])
    assert as_flags(halves_of([rest, rest], None)[0]) == "0000111"


@pytest.mark.parametrize("codes", [[0, 0, 1, 1], [0, 1, 2], [0, 0, 0, 1]])
def test_a_category_in_one_block_cannot_be_told_from_its_time(codes):
    codes = np.repeat(codes, 4)
    with pytest.raises(InputError, match="cannot be tested with this design"):
        halves_of([codes, codes], None)
    # each sample a run of its own: then they are no block
    halves_of([codes, codes], [np.arange(codes.size)] * 2)


def test_names_of_categories_do_not_matter():
    rng = np.random.default_rng(0)
    for _ in range(20):
        codes = [rng.permutation(np.arange(21) % 3) for _ in range(2)]
        runs = [np.repeat(np.arange(3), 7)] * 2
        names = rng.permutation(3)
        for known in (None, runs):
            first = halves_of(codes, known)
            renamed = halves_of([names[c] for c in codes], known)
            for a, b in zip(first, renamed, strict=True):
                assert_array_equal(a, b)


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
    runs = np.array([0, 0, 1, 1, 0, 0, 2, 2])
    assert as_flags(halves_of(codes, [runs, runs])[0]) == "00110000"
    by_samples = "".join(as_flags(half) for half in halves_of(codes, None))
    found = halves_of(codes, [runs, np.zeros(8, int)])  # one has one run
    assert "".join(map(as_flags, found)) == by_samples
    # a time point stays whole: by most of the subjects, or half of those in doubt
    film = np.arange(8)
    films = halves_of([film, film, film[::-1]], [runs] * 3)
    assert as_flags(films[0]) == "00110000"
    films = halves_of([film, film[::-1]], [runs, runs])
    assert as_flags(films[0]) == "00001100"
    assert as_flags(films[1]) == "00001100"[::-1]


def test_runs_are_divided_so_that_categories_are_in_both_halves():
    runs = np.repeat(np.arange(4), 4)
    codes = np.repeat([0, 1, 2, 3, 0, 1, 2, 3], 2)  # two in the odd runs, two in others
    assert as_flags(halves_of([codes] * 2, [runs] * 2)[0]) == "0" * 8 + "1" * 8
    apart = np.repeat([0, 1, 0, 1, 2, 3, 2, 3], 2)
    assert as_flags(halves_of([apart] * 2, [runs] * 2)[0]) == "00001111" * 2


def test_samples_next_to_aligning_ones_of_the_same_run_are_not_judged():
    codes, one = np.arange(60), np.zeros(60, int)
    held = np.arange(20, 60)
    assert rows_to_test(codes, held, one).tolist() == list(range(BORDER, 40))
    both_sides = np.arange(20, 44)  # on either side a quarter, if that is less
    assert rows_to_test(codes, both_sides, one).tolist() == list(range(6, 18))
    few = np.arange(20, 39)
    assert rows_to_test(codes, few, one).tolist() == list(range(19))
    twenty = np.arange(40, 60)
    assert rows_to_test(codes, twenty, one).tolist() == list(range(5, 20))
    turns = np.flatnonzero(np.arange(64) // 8 % 2)  # stretches of eight take turns
    middle = [row for row in range(32) if row % 8 in (2, 3, 4, 5)]
    found = rows_to_test(np.arange(72), turns, np.zeros(72, int))
    assert found.tolist() == middle
    runs = np.arange(72) // 8  # but if each is a run of its own, all are judged
    assert rows_to_test(np.arange(72), turns, runs).tolist() == list(range(32))
    # categories too, but for those without a label
    repeated = np.where(np.arange(60) % 7 == 0, NO_GROUP, np.arange(60) % 3)
    expected = [i for i in range(8, 40) if held[i] % 7 != 0]
    assert rows_to_test(repeated, held, one).tolist() == expected


# -- trends ----------------------------------------------------------------------------


def test_trends_are_removed_run_by_run(rng):
    rows = np.arange(80)
    time = np.linspace(-1, 1, 40)
    stretches = stretches_of(np.arange(80) % 4, np.repeat([0, 1], 40))
    assert [own.tolist() for own in stretches] == [list(range(40)), list(range(40, 80))]
    drift = np.concatenate([3 + 2 * time - time**2, 5 * time**2 - time])[:, None]
    white = rng.normal(size=(80, 3))
    left = remove_trends(white + drift, rows, stretches)
    assert_allclose(left, remove_trends(white, rows, stretches), atol=1e-12)
    assert_allclose(left[:40].sum(axis=0), 0, atol=1e-12)
    assert_allclose(left[40:].T @ time**2, 0, atol=1e-12)
    assert np.abs(left.T @ np.tile(time**3, 2)).max() > 1e-3  # no more than that
    # few samples lose their mean and slope alone, fewer their mean, many the cubic too
    for n, order in ((7, 0), (15, 1), (16, 2), (149, 2), (150, 3)):
        powers = np.linspace(-1, 1, n)[:, None] ** np.arange(5)
        rest = remove_trends(powers, np.arange(n), [np.arange(n)])
        gone = np.abs(rest).max(axis=0) < 1e-9
        assert gone.tolist() == [i <= order for i in range(5)]
    constant = remove_trends(np.full((30, 1), 1e6 / 3), np.arange(30), [np.arange(30)])
    assert_array_equal(constant, 0)  # no rounding that standardising would blow up


def test_a_run_of_one_category_is_not_a_stretch():
    codes, runs = np.repeat([0, 1, 0, 1], 5), np.repeat(np.arange(4), 5)
    (whole,) = stretches_of(codes, runs)
    assert whole.tolist() == list(range(20))


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
    codes = [np.tile([0, 1], 4), np.tile([0, 1], 3)]
    full = [rng.normal(size=(8, 2)), rng.normal(size=(6, 2))]
    turn = np.array([[0.0, 1.0, 0.0], [-1.0, 0.0, 0.0]])
    asked = []

    def fit(aligning, rows, stretches):  # turned, and one feature more than wanted
        asked.append([r.tolist() for r in aligning])
        assert [own[0].tolist() for own in stretches] == [
            list(range(len(r))) for r in aligning
        ]
        return tuple([f[r] @ turn for f, r in zip(full, some, strict=True)]
                     for some in (aligning, rows))  # fmt: skip

    folds, features = cross_fit(codes, None, full, fit)
    assert asked == [[[0, 1, 2, 3], [0, 1, 2]], [[4, 5, 6, 7], [3, 4, 5]]]
    assert [r.tolist() for r in folds[0].rows] == [[4, 5, 6, 7], [3, 4, 5]]
    # for pictures they are turned back; tested they are as they come, cut to size
    for found, want in zip(features, full, strict=True):
        assert_allclose(found, want, atol=1e-12)
    assert_allclose(folds[0].features[1], (full[1] @ turn)[3:, :2])
    assert [c.tolist() for c in folds[1].codes] == [[0, 1, 0, 1], [0, 1, 0]]
    assert folds[0].n_groups == 2
    # of groups that aligned the model's own mean is known
    seen = np.concatenate([full[0][:4], full[1][:3]]) @ turn[:, :2]
    first = np.array([1, 0, 1, 0, 1, 0, 1]) == 1
    assert_allclose(folds[0].template, [seen[first].mean(0), seen[~first].mean(0)])


def test_either_half_of_every_subject_needs_three_samples(rng):
    full = [rng.normal(size=(6, 1)), rng.normal(size=(5, 1))]

    def fit(aligning, rows, stretches):
        return tuple([f[r] for f, r in zip(full, some, strict=True)]
                     for some in (aligning, rows))  # fmt: skip

    codes = [np.tile([0, 1], 3), np.array([0, 1, 0, 1, 0])]
    with pytest.raises(InputError, match="too few samples to hold half of them out"):
        cross_fit(codes, None, full, fit)
    full[1], codes[1] = full[0], codes[0]
    assert len(cross_fit(codes, None, full, fit)[0]) == 2


# -- the statistic ---------------------------------------------------------------------


def fold_of(features, codes, n_runs=1):
    rows = [np.arange(len(c)) for c in codes]
    stretches = [np.array_split(r, n_runs) for r in rows]
    n_groups = max(map(max, codes)) + 1
    unknown = np.full((n_groups, features[0].shape[1]), np.nan)
    return Fold(rows, features, codes, stretches, n_groups, unknown)


def brute_statistic(features, codes):
    """The mean product of standardised features over pairs that belong together."""
    m, totals, weights = len(features), 0.0, 0.0
    for i in range(m):
        for j in range(i):
            for c in set(codes[i]) & set(codes[j]):
                a, b = features[i][codes[i] == c], features[j][codes[j] == c]
                scale = np.sqrt(len(a) * len(b) * len(codes[i]) * len(codes[j]))
                totals = totals + a.sum(axis=0) * b.sum(axis=0) / scale
                weights += np.sqrt(len(a) * len(b) / len(codes[i]) / len(codes[j]))
    return totals / weights


@pytest.mark.parametrize(("chunk", "few"), [(4_000_000, 32), (4_000_000, 0), (30, 0)])
def test_the_statistic_is_its_definition_however_many_are_drawn_at_a_time(
    rng, chunk, few, monkeypatch
):
    monkeypatch.setattr(agreement, "CHUNK", chunk)
    monkeypatch.setattr(agreement, "FEW_GROUPS", few)
    codes = [rng.integers(4, size=n) for n in (12, 15, 9)]
    features = [rng.normal(size=(len(c), 2)) for c in codes]
    fold = fold_of(features, codes)
    values = agreement._Half(fold, 7, [0]).statistics(0, 2)
    assert values.shape == (8, 2)
    whole = [remove_trends(f, np.arange(len(f)), [np.arange(len(f))]) for f in features]
    whole = [f / np.sqrt((f**2).mean(axis=0)) for f in whole]
    assert_allclose(values[0], brute_statistic(whole, codes), atol=1e-12)
    assert len(np.unique(values[:, 0])) == 8


def test_products_with_cosines_of_few_groups_are_their_sums(rng, monkeypatch):
    codes = [rng.integers(4, size=n) for n in (24, 30, 18)]
    features = [rng.normal(size=(len(c), 5)) for c in codes]
    half = agreement._Half(fold_of(features, codes, n_runs=3), 19, [0])
    by_products = half.statistics(1, 3)
    monkeypatch.setattr(agreement, "FEW_GROUPS", 0)
    assert_allclose(by_products, half.statistics(1, 3), rtol=0, atol=1e-14)


def test_of_time_points_it_is_the_correlation(rng):
    """In one order cosines are compared without the way back to time: the same."""
    features = [rng.normal(size=(30, 2)) for _ in range(3)]
    codes = [np.arange(30)] * 3
    fold = fold_of(features, codes, n_runs=2)
    half = agreement._Half(fold, 9, [0])
    assert half.in_one_order
    values = half.statistics(0, 2)
    left = [remove_trends(f, np.arange(30), fold.stretches[0]) for f in features]
    want = [
        np.corrcoef(left[i][:, 0], left[j][:, 0])[0, 1]
        for i, j in ((0, 1), (0, 2), (1, 2))
    ]
    assert_allclose(values[0, 0], np.mean(want), atol=1e-12)
    order = rng.permutation(30)  # the names of time points do not matter
    other = fold._replace(codes=[order] * 3)
    again = agreement._Half(other, 9, [0]).statistics(0, 2)
    assert_allclose(again, values, atol=1e-12)
    apart = fold._replace(codes=[order, order, order[::-1]])
    assert not agreement._Half(apart, 9, [0]).in_one_order


def test_surrogates_have_the_spectrum_of_the_data(rng):
    smooth = np.cumsum(rng.normal(size=(60, 1)), axis=0)
    fold = fold_of([smooth], [np.arange(60)])
    half = agreement._Half(fold, 4, [0])
    (cosines,), (signs,) = half.cosines, half.signs
    assert (signs[:, 0] == 1).all()
    made = half._sums(0, cosines[:, None] * signs[:, :, None])[:, :, 0]
    assert_allclose((made**2).sum(axis=0), 1)
    for one, own in zip(made.T, signs.T, strict=True):
        spectrum = scipy.fft.dct(one, norm="ortho")
        assert_allclose(spectrum, cosines[:, 0] * own, atol=1e-12)


def test_what_is_shared_is_told_from_noise_and_from_nothing(rng):
    codes = [rng.permutation(np.arange(24) % 4) for _ in range(3)]
    means = np.array([1.0, -1.0, 2.0, -2.0])
    features = [
        np.column_stack([means[c] + 0.1 * rng.normal(size=24), rng.normal(size=24)])
        for c in codes
    ]
    test = agreement.permutation_test([fold_of(features, codes)] * 2, 199, 0)
    assert test.agreement[0] > 0.8 > 0.3 > abs(test.agreement[1])
    assert test.p[0] == 1 / 200
    assert test.p[1] > 0.05
    assert test.n_together == 1
    constant = [np.column_stack([f[:, 0], np.zeros(24)]) for f in features]
    test = agreement.permutation_test([fold_of(constant, codes)] * 2, 199, 0)
    assert test.p.tolist() == [1 / 200, 1.0]
    assert test.agreement[1] == 0
    # no more than the smallest p that so many draws can give
    few = agreement.permutation_test([fold_of(features, codes)] * 2, 9, 0)
    assert few.p[0] == 1 / 10
    scaled = [1e6 * f + 7 for f in features]  # the unit of features does not matter
    again = agreement.permutation_test([fold_of(scaled, codes)] * 2, 199, 0)
    assert_allclose(again.agreement, agreement.permutation_test(
        [fold_of(features, codes)] * 2, 199, 0).agreement)  # fmt: skip


def test_weak_components_are_evidence_together(rng):
    codes = [rng.permutation(np.arange(40) % 4) for _ in range(3)]
    means = 0.3 * rng.normal(size=(4, 12))
    weak = [means[c] + rng.normal(size=(40, 12)) for c in codes]
    test = agreement.permutation_test([fold_of(weak, codes)] * 2, 199, 0)
    assert test.p[0] < 0.05
    assert test.n_together > 1
    alone = [
        agreement.permutation_test(
            [fold_of([w[:, [k]] for w in weak], codes)] * 2, 199, 0
        ).p[0]
        for k in range(12)
    ]
    assert np.median(alone) > 0.05


def test_a_component_that_repeats_another_is_not_shared_again(rng):
    """Noise with a little of what is shared in the component before it."""
    shared = rng.normal(size=(80, 1))
    features = [
        np.hstack([shared, 0.5 * shared + rng.normal(size=(80, 1))]) for _ in range(4)
    ]
    fold = fold_of(features, [np.arange(80)] * 4)
    assert agreement._Half(fold, 99, [0]).statistics(0, 2)[0, 1] > 0.1
    test = agreement.permutation_test([fold] * 2, 99, 0)
    assert test.p[0] == 0.01
    assert test.p[1] > 0.05
    assert abs(test.agreement[1]) < 0.1


def test_of_categories_what_the_model_has_for_them_is_taken_out(rng):
    """So that the second of two true components loses nothing to the noise in one."""
    codes = [rng.permutation(np.arange(48) % 3) for _ in range(3)]
    contrasts = np.array([[1.0, 1.0], [-1.0, 1.0], [0.0, -2.0]])
    features = [contrasts[c] + rng.normal(size=(48, 2)) for c in codes]
    fold = fold_of(features, codes)._replace(template=contrasts)
    half = agreement._Half(fold, 0, [0])
    half.take_out(0)
    for cosines, c in zip(half.cosines, codes, strict=True):
        f = scipy.fft.idct(cosines, axis=0, norm="ortho")
        means = np.array([f[c == k, 1].mean() for k in range(3)])
        assert abs(means[0] - means[1]) < 0.3 * abs(means[2] - means[:2].mean())
        shared = remove_trends(contrasts[c, :1], np.arange(48), [np.arange(48)])
        assert_allclose(f[:, 1] @ shared, 0, atol=1e-12)
    test = agreement.permutation_test([fold] * 2, 99, 0)
    assert test.p.tolist() == [0.01, 0.01]


@pytest.mark.parametrize(
    ("n_subjects", "n_categories", "n_blocks", "runs", "ways", "needed"),
    [
        (2, 2, 1, 1, 2, 6),  # 2 ** 2 / 2 orders
        (2, 3, 1, 1, 6, 4),
        (2, 4, 1, 1, 24, 0),
        (5, 2, 1, 1, 16, 4),
        (6, 2, 1, 1, 32, 0),
        (2, 2, 2, 1, 18, 4),
        (2, 2, 1, 2, 8, 6),
        (3, 2, 1, 2, 32, 0),
    ],
)
def test_too_few_blocks_cannot_tell(
    rng, n_subjects, n_categories, n_blocks, runs, ways, needed
):
    own = np.repeat(np.tile(np.arange(n_categories), n_blocks * runs), 5)
    codes = [own] * n_subjects
    features = [rng.normal(size=(own.size, 1)) for _ in codes]
    fold = fold_of(features, codes, n_runs=runs)
    if ways >= 20:
        assert agreement.permutation_test([fold] * 2, 19, 0).p[0] <= 1
        return
    with pytest.raises(InputError, match="cannot be tested with this design") as error:
        agreement.permutation_test([fold] * 2, 19, 0)
    assert f"in {ways} ways that differ" in str(error.value)
    per_half = needed // 2
    text = f"{needed} runs like these would do"
    assert text in str(error.value)
    more = [np.tile(own[: own.size // runs], per_half)] * n_subjects
    many = [rng.normal(size=(more[0].size, 1)) for _ in codes]
    agreement.permutation_test([fold_of(many, more, n_runs=per_half)] * 2, 19, 0)


def test_subjects_must_share_two_groups(rng):
    features = [rng.normal(size=(8, 1)) for _ in range(2)]
    apart = [np.arange(8) % 2, 2 + np.arange(8) % 2]
    one = [np.arange(8) % 2, 1 + np.arange(8) % 2]
    for codes in (apart, one):
        with pytest.raises(InputError, match="share too few groups"):
            agreement.permutation_test([fold_of(features, codes)], 9, 0)
    single = fold_of([f[:1] for f in features], [np.array([0])] * 2)
    with pytest.raises(InputError, match="share too few groups"):
        agreement.permutation_test([single], 9, 0)


def test_agreement_in_sample_is_the_same_number_with_trends(rng):
    codes = [np.array([0, 0, 1, 2, 2, NO_GROUP]), np.array([0, 1, 1, 2, 0, 2])]
    features = [rng.normal(size=(6, 2)) for _ in codes]
    known = [f[c != NO_GROUP] for f, c in zip(features, codes, strict=True)]
    scaled = [(f - f.mean(axis=0)) / f.std(axis=0) for f in known]
    want = brute_statistic(scaled, [c[c != NO_GROUP] for c in codes])
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
    half, held = _half_basis(basis, rows, held_out, [np.arange(12)])
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
    rows, held_out = [np.arange(12)] * 2, [np.arange(12, 24)] * 2
    whole = [[np.arange(12)]] * 2
    halves = [_half_basis(b, held_out[0], rows[0], whole[0])[0] for b in model.bases_]
    fewest = min(half.n_kept for half in halves)
    assert fewest < k
    seen, new = fit_by_grams(model, model.bases_, k, held_out, rows, whole)
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
    whole = [[np.arange(12)]] * 2
    seen, new = fit_by_grams(model, model.bases_, 9, rows, held_out, whole)
    assert [f.shape for f in (*seen, *new)] == [(12, 4)] * 4


def test_late_components_of_noise_do_not_seem_to_agree():
    """Their noise has no correlations over all subjects, but within each."""
    late = []
    for seed in range(6):
        rng = np.random.default_rng(seed)
        noise = [
            rng.normal(size=(60, 28)) @ rng.normal(size=(28, 30)) for _ in range(6)
        ]
        values, Q = np.linalg.eigh(sum(f.T @ f for f in noise))
        features = [f @ Q / np.sqrt(values) for f in noise]
        half = agreement._Half(fold_of(features, [np.arange(60)] * 6), 9, [0])
        half.keep_own()
        for k in range(28):
            if k >= 14:
                late.append(half.statistics(k, 1)[0, 0])
            half.take_out(k)
    assert abs(np.mean(late)) < 0.015  # .03 if features kept what they have in common


@pytest.mark.parametrize(
    ("p", "kept"),
    [
        ([0, 0, 0, 0.05, 0, 0, 0.9, 0.9], 6),  # one that is unclear ends nothing
        ([0, 0.1, 0.1, 0.1, 0.9, 0, 0, 0], 1),  # nor do late ones bring others in
        ([0, 0, 0, 0.9, 0.9, 0.9, 0.9, 0.9], 3),
        ([0.9] * 8, 0),
    ],
)
def test_an_automatic_number_has_few_false_components(monkeypatch, rng, p, kept):
    codes = [np.arange(40)] * 3
    features = [rng.normal(size=(40, 8)) for _ in range(3)]
    values = iter(p)
    monkeypatch.setattr(agreement, "p_of", lambda *_: next(values))
    test = agreement.permutation_test(
        [fold_of(features, codes)] * 2, 9, 0, by_share=True
    )
    assert test.n_kept == kept
    mean = np.cumsum(-np.log1p(-np.minimum(p, 0.999))) / np.arange(1, 9)
    assert test.n_kept == np.flatnonzero([True, *(mean <= 0.05)])[-1]
    assert np.all(np.diff(test.p) >= 0)


@pytest.mark.parametrize(
    ("means", "likely", "added"),
    [
        ([0.01, 0.01, 0.0], [0.2, 0.4], 2),  # at most as many again
        ([0.03, -0.01, 0.03], [0.2, 0.4, 0.6], 1),  # the second is below the bound
        ([0.0, 0.0], [0.9, 0.9], 0),  # at clear signal they can be excluded
        ([0.02, 0.02], [], 0),
    ],
)
def test_of_categories_components_are_added_that_may_be_shared(means, likely, added):
    values = np.vstack([means, np.tile([[0.01], [-0.01]], (50, len(means)))])
    assert agreement._count_possible(values, np.array(likely)) == added
    upper = np.array(means) + 1.28 * 0.01
    enough = upper >= 0.05 * np.mean(likely) if likely else np.zeros(len(means), bool)
    literal = next((k for k, ok in enumerate(enough) if not ok), len(means))
    assert added == min(literal, len(likely))


def test_at_weak_signal_more_of_categories_are_kept_than_are_significant():
    study = bw.simulate_study(
        n_subjects=6,
        categories=8,
        n_runs=4,
        n_samples=240,
        n_voxels=250,
        random_state=1,
    )
    aligning, _ = study.split_halves(by="run")
    likely = (bw.alignment_check(bw.GDM(7).fit(aligning)).p < 0.3).sum()
    assert likely < bw.GDM().fit(aligning).n_components_ <= 2 * likely
