"""Inter-subject correlation against its formulas, and whether its tests are valid."""

from itertools import combinations

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from scipy import stats

from brainweave import (
    Subject,
    inter_subject_correlation,
    inter_subject_functional_connectivity,
    isc_test,
)
from brainweave.evaluation.isc import NULLS
from brainweave.study.spaces import VolumeSpace


def story(rng, n_subjects=5, n=60, k=3, noise=1.0):
    course = rng.normal(size=(n, k))
    return [
        3 + i * (course + noise * rng.normal(size=(n, k)))
        for i in range(1, 1 + n_subjects)
    ]


def autoregressive(rng, n_subjects, n, k, rho=0.6):
    """AR(1) noise, unrelated between subjects and features, in its steady state."""
    X = rng.normal(size=(n_subjects, n, k))
    X[:, 1:] *= np.sqrt(1 - rho**2)
    for t in range(1, n):
        X[:, t] += rho * X[:, t - 1]
    return list(X)


def test_leave_one_out_is_the_correlation_with_the_mean_of_the_others(rng):
    X = story(rng)
    found = inter_subject_correlation(X, standardize=False)
    for i, f in np.ndindex(5, 3):
        others = np.mean([x[:, f] for j, x in enumerate(X) if j != i], axis=0)
        assert_allclose(found[i, f], np.corrcoef(X[i][:, f], others)[0, 1], rtol=1e-12)
    # scale matters to that average, and not to one of standardised subjects
    assert not np.allclose(found, inter_subject_correlation(X))
    z = [(x - x.mean(axis=0)) / x.std(axis=0) for x in X]
    assert_allclose(
        inter_subject_correlation(X),
        inter_subject_correlation(z, standardize=False),
        rtol=1e-12,
    )


def test_pairwise_is_the_correlation_of_pairs(rng):
    X = story(rng)
    found = inter_subject_correlation(X, pairwise=True)
    for row, (a, b) in zip(found, combinations(X, 2), strict=True):
        expected = [np.corrcoef(a[:, f], b[:, f])[0, 1] for f in range(3)]
        assert_allclose(row, expected, rtol=1e-12)


def test_what_both_saw_is_correlated(rng):
    X = story(rng, n_subjects=3)
    ids = [np.arange(60), np.arange(20, 60), np.r_[0:30, 40:60]]
    seen = [x[t] for x, t in zip(X, ids, strict=True)]
    pairs = inter_subject_correlation(seen, ids, pairwise=True)
    for row, (i, j) in zip(pairs, combinations(range(3), 2), strict=True):
        both = np.intersect1d(ids[i], ids[j])
        expected = [np.corrcoef(X[i][both, f], X[j][both, f])[0, 1] for f in range(3)]
        assert_allclose(row, expected, rtol=1e-10)
    single = inter_subject_correlation(seen, ids, standardize=False)
    centred = [x - s.mean(axis=0) for x, s in zip(X, seen, strict=True)]
    others = np.full((60, 3), np.nan)
    for t in range(60):  # of those who saw it
        rows = [c[t] for c, own in zip(centred[1:], ids[1:], strict=True) if t in own]
        others[t] = np.mean(rows, axis=0) if rows else np.nan
    assert not np.isnan(others).any()
    expected = [np.corrcoef(X[0][:, f], others[:, f])[0, 1] for f in range(3)]
    assert_allclose(single[0], expected, rtol=1e-10)


def test_windows_are_correlated_one_by_one(rng):
    X = story(rng, n_subjects=4)
    found = inter_subject_correlation(X, standardize=False, window=20, step=10)
    assert found.shape == (5, 4, 3)
    part = [x[10:30] for x in X]
    assert_allclose(
        found[1], inter_subject_correlation(part, standardize=False), rtol=1e-9
    )
    with pytest.raises(ValueError, match="window=61 is longer than the 60 samples"):
        inter_subject_correlation(X, window=61)


@pytest.mark.parametrize("pairwise", [False, True])
def test_functional_connectivity_is_the_mean_of_both_directions(rng, pairwise):
    X = story(rng, n_subjects=4)
    found = inter_subject_functional_connectivity(
        X, pairwise=pairwise, standardize=False
    )
    sides = list(combinations(X, 2))
    if not pairwise:
        sides = [
            (x, np.mean([o for j, o in enumerate(X) if j != i], axis=0))
            for i, x in enumerate(X)
        ]
    for matrix, (a, b) in zip(found, sides, strict=True):
        crossed = np.corrcoef(a.T, b.T)[:3, 3:]
        assert_allclose(matrix, (crossed + crossed.T) / 2, rtol=1e-9, atol=1e-12)
    diagonal = np.diagonal(found, axis1=1, axis2=2)
    isc = inter_subject_correlation(X, pairwise=pairwise, standardize=False)
    assert_allclose(diagonal, isc, rtol=1e-9)


def test_a_constant_feature_has_no_connectivity(rng):
    X = story(rng)
    X[0][:, 1] = 7
    found = inter_subject_functional_connectivity(X)
    assert np.isnan(found[0, 1]).all()
    assert np.isfinite(found[1:]).all()


def uniform_p(values, n_draws):
    """Return p of a test that p-values, spread over their steps, are uniform."""
    spread = values - np.random.default_rng(0).uniform(size=len(values)) / (1 + n_draws)
    return stats.kstest(spread, "uniform").pvalue


@pytest.mark.parametrize("null", ["sign-flip", "phase", "shift"])
@pytest.mark.parametrize("pairwise", [False, True])
def test_p_values_of_autoregressive_noise_are_uniform(rng, null, pairwise):
    """A hundred studies, each a feature."""
    X = autoregressive(rng, 10, 100, 100)
    found = isc_test(X, null=null, pairwise=pairwise, n_draws=99, random_state=0)
    assert uniform_p(found.p, 99) > 0.001
    assert 0.005 < np.mean(found.p <= 0.1) < 0.25


@pytest.mark.thorough
@pytest.mark.parametrize("null", ["sign-flip", "phase", "shift"])
@pytest.mark.parametrize("pairwise", [False, True])
def test_p_values_of_a_thousand_studies_are_uniform(null, pairwise):
    found, rng = [], np.random.default_rng(1)
    for seed in range(50):  # of 20 features each
        X = autoregressive(rng, 10, 120, 20)
        how = {"n_draws": 199, "random_state": seed}
        found.append(isc_test(X, null=null, pairwise=pairwise, **how).p)
    p = np.concatenate(found)
    assert uniform_p(p, 199) > 0.001
    assert_allclose(np.mean(p <= 0.05), 0.05, atol=3.5 * np.sqrt(0.05 * 0.95 / 1000))


@pytest.mark.thorough
@pytest.mark.parametrize("pairwise", [False, True])
def test_p_values_between_a_thousand_pairs_of_groups_are_uniform(pairwise):
    found, rng = [], np.random.default_rng(2)
    for seed in range(50):
        course = autoregressive(rng, 1, 80, 20)[0]
        X = [course + 2 * x for x in autoregressive(rng, 12, 80, 20)]
        how = {"n_draws": 199, "random_state": seed, "groups": [0, 1] * 6}
        found.append(isc_test(X, pairwise=pairwise, **how).p)
    p = np.concatenate(found)
    assert uniform_p(p, 199) > 0.001


@pytest.mark.parametrize("null", NULLS)
def test_a_story_is_found_and_noise_is_not(rng, null):
    course = np.c_[rng.normal(size=(80, 1)), np.zeros((80, 3))]
    X = [course + rng.normal(size=(80, 4)) for _ in range(10)]
    X = [x[:-5] if i == 2 else x for i, x in enumerate(X)]
    ids = [range(len(x)) for x in X]
    found = isc_test(X, ids, null=null, pairwise=True, n_draws=199, random_state=0)
    assert found.p[0] == 1 / 200
    assert found.p_max[0] < 0.05
    assert found.q[0] < 0.05
    assert (found.p[1:] > 0.01).all()
    assert (found.p_max >= found.p).all()
    assert_allclose(found.q, stats.false_discovery_control(found.p), rtol=1e-12)
    isc = inter_subject_correlation(X, ids, pairwise=True)
    assert_allclose(found.statistic, isc.mean(axis=0), rtol=1e-12)


def test_the_bootstrap_draws_subjects_and_drops_their_pairs_with_themselves(rng):
    X = story(rng, n_subjects=6, noise=2.0)
    found = isc_test(X, null="bootstrap", pairwise=True, n_draws=300, random_state=3)
    square = np.full((6, 6, 3), np.nan)
    pairs = inter_subject_correlation(X, pairwise=True)
    for (i, j), values in zip(combinations(range(6), 2), pairs, strict=True):
        square[i, j] = square[j, i] = values
    state, drawn = np.random.RandomState(3), []
    for _ in range(300):
        who = state.randint(6, size=6)
        values = [square[a, b] for a, b in combinations(who, 2) if a != b]
        drawn.append(np.mean(values, axis=0))
    mean, drawn = pairs.mean(axis=0), np.array(drawn)
    expected = (1 + (drawn - mean >= mean).sum(axis=0)) / 301
    assert_allclose(found.p, expected, rtol=1e-12)
    assert_allclose(found.interval, np.percentile(drawn, [2.5, 97.5], axis=0))
    # of three subjects, a ninth of the draws would be of one alone, without a pair
    few = isc_test(X[:3], null="bootstrap", pairwise=True, n_draws=50, random_state=3)
    assert np.isfinite(few.interval).all()


@pytest.mark.parametrize("pairwise", [False, True])
def test_groups_that_follow_different_stories_are_told_apart(rng, pairwise):
    course = np.c_[rng.normal(size=(80, 1)), rng.normal(size=(80, 1))]
    shown = [course * ([1, 1] if i % 2 else [0, 1]) for i in range(12)]
    X = [s + rng.normal(size=s.shape) for s in shown]
    groups = ["b" if i % 2 else "a" for i in range(12)]
    found = isc_test(X, groups=groups, pairwise=pairwise, n_draws=199, random_state=0)
    assert found.statistic[0] < -0.2  # the first group, "a", has no story there
    assert found.p[0] < 0.02
    assert found.p[1] > 0.02
    parts = [[x for x, g in zip(X, groups, strict=True) if g == name] for name in "ab"]
    means = [
        inter_subject_correlation(p, pairwise=pairwise).mean(axis=0) for p in parts
    ]
    assert_allclose(found.statistic, means[0] - means[1], rtol=1e-12)
    with pytest.raises(ValueError, match="two groups of at least 2 subjects"):
        isc_test(X, groups=["a"] * 12)


def test_draws_follow_the_seed_and_leave_the_samples_alone(rng):
    X = story(rng)
    before = [x.copy() for x in X]
    a, b = (isc_test(X, null="phase", n_draws=20, random_state=1) for _ in range(2))
    assert_array_equal(a.p, b.p)
    assert_array_equal(before, X)
    with pytest.raises(ValueError, match="null of isc_test must be one"):
        isc_test(X, null="permutation")


def test_voxels_of_a_mask_become_a_map_of_the_brain(rng):
    grid = np.zeros((4, 4, 3), bool)
    grid[1:3, :, 1] = True
    space = VolumeSpace.from_mask(grid, np.diag([3.0, 3.0, 3.0, 1.0]))
    course = rng.normal(size=(60, 1)) * (np.arange(8) < 4)  # half the voxels follow it
    people = [
        Subject(f"s{i}", course + rng.normal(size=(60, 8)), space=space)
        for i in range(6)
    ]
    found = isc_test([s.data() for s in people], n_draws=99, random_state=0)
    shown = np.where(found.p_max < 0.05, found.statistic, 0)
    image = people[0].space.to_image(shown)
    assert image.shape == grid.shape
    values = image.get_fdata()
    assert_allclose(values[grid], shown)
    assert (values[1, :, 1] > 0.3).all()
    assert (values[~grid] == 0).all()
    assert (values[2, :, 1] == 0).all()
