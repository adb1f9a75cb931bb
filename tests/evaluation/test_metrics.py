"""Scores of shared features and reconstructions, against literal definitions."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.testing import assert_allclose
from scipy.signal import lfilter

from brainweave import (
    inter_subject_correlation,
    reconstruction_score,
    time_segment_matching,
)
from brainweave._core.exceptions import InputError
from brainweave.evaluation.metrics import segment_hits


def locked(rng, n_subjects=3, n_samples=40, k=4, noise=1.0):
    story = rng.normal(size=(n_samples, k))
    return [story + noise * rng.normal(size=story.shape) for _ in range(n_subjects)]


def literal_matching(shared, window, step, standardize=True):
    """Segment by segment, as Haxby et al. (2011) describe it."""
    z = [(s - s.mean(axis=0)) / (s.std(axis=0) if standardize else 1) for s in shared]
    starts = range(0, len(z[0]) - window + 1, step)
    scores = []
    for i, own in enumerate(z):
        others = np.mean([s for j, s in enumerate(z) if j != i], axis=0)
        hits = 0
        for s in starts:
            segment = own[s : s + window].ravel()
            found = {
                t: np.corrcoef(segment, others[t : t + window].ravel())[0, 1]
                for t in starts
                if t == s or abs(t - s) >= window
            }
            hits += max(found, key=found.get) == s
        scores.append(hits / len(starts))
    return np.array(scores)


@pytest.mark.parametrize(("window", "step"), [(5, 1), (4, 3), (1, 1)])
def test_segment_matching_equals_its_literal_definition(rng, window, step):
    shared = locked(rng, noise=2.0)
    result = time_segment_matching(shared, window=window, step=step)
    expected = literal_matching(shared, window, step)
    assert 0 < expected.mean() < 1
    assert_allclose(result.scores, expected, atol=1e-12)
    assert result.matched.shape[1] == len(range(0, 40 - window + 1, step))


def test_features_that_keep_their_spread_weigh_by_it(rng):
    told, noise = locked(rng, noise=0.2, k=2), rng.normal(size=(3, 40, 20))
    shared = [
        np.hstack([own + 3, 0.05 * n]) for own, n in zip(told, noise, strict=True)
    ]
    result = time_segment_matching(shared, window=3, standardize=False)
    expected = literal_matching(shared, 3, 1, standardize=False)
    assert_allclose(result.scores, expected, atol=1e-12)
    assert result.mean > 0.8 > 2 * time_segment_matching(shared, window=3).mean


def test_identical_subjects_match_all_their_segments(rng):
    story = rng.normal(size=(50, 3))
    assert time_segment_matching([story, 2 * story + 1, story]).mean == 1.0
    twice = [story[:10]] * 2  # no more than two segments that do not overlap
    assert time_segment_matching(twice, window=5).mean == 1.0


def test_unrelated_subjects_match_at_chance(rng):
    shared = [rng.normal(size=(400, 3)) for _ in range(4)]
    result = time_segment_matching(shared, window=3)
    assert_allclose(result.chance, 1 / 395, rtol=0.02)
    assert result.mean < 5 * result.chance


def test_chance_counts_the_segments_that_do_not_overlap():
    # segments at 0, 3, 6: each has two rivals
    shared = [np.eye(9)] * 2
    found = time_segment_matching(shared, window=3, step=3)
    assert_allclose(found.chance, 1 / 3, rtol=1e-12)


def test_chance_is_higher_in_slow_noise(rng):
    def slow():
        return lfilter([1], [1, -0.9], rng.normal(size=(200, 5)), axis=0)

    found = [time_segment_matching([slow() for _ in range(4)]) for _ in range(8)]
    hits, chance = (np.mean([getattr(f, n) for f in found]) for n in ("mean", "chance"))
    assert chance > 3 / 175
    assert 0.5 < hits / chance < 1.5


@pytest.mark.parametrize("step", [1, 2, 4])
def test_wrong_segments_win_as_often_as_a_plain_count_says(rng, step):
    own, others = np.cumsum(rng.normal(size=(2, 60, 2)), axis=1)
    starts = range(0, 56, step)
    r = [[np.corrcoef(own[t:t+5].ravel(), others[u:u+5].ravel())[0, 1]
          for u in starts] for t in starts]  # fmt: skip
    wins = [
        r[i][j] > max(r[i][k] for k, s in enumerate(starts) if abs(s - u) >= 5)
        for i, t in enumerate(starts)
        for j, u in enumerate(starts)
        if abs(t - u) >= 5
    ]
    films = np.zeros(60, dtype=int)
    _, chance = segment_hits(own, others, window=5, step=step, films=films)
    assert_allclose(chance.min(), np.mean(wins), rtol=1e-9)


def test_a_constant_subject_matches_nothing(rng):
    shared = [*locked(rng), np.ones((40, 4))]
    assert time_segment_matching(shared, window=5).scores[-1] == 0.0


def test_segments_of_shifted_subjects_do_not_match(rng):
    story = rng.normal(size=(60, 3))
    shifted = np.roll(story, 20, axis=0)
    assert time_segment_matching([story, shifted], window=5).mean < 0.1


@given(seed=st.integers(0, 2**16), shift=st.floats(-5, 5), scale=st.floats(0.1, 9))
@settings(max_examples=20, deadline=None)
def test_scores_ignore_shift_and_scale_of_features(seed, shift, scale):
    shared = locked(np.random.default_rng(seed))
    moved = [shared[0] * scale + shift, *shared[1:]]
    assert_allclose(
        time_segment_matching(shared, window=4).scores,
        time_segment_matching(moved, window=4).scores,
        atol=1e-12,
    )
    assert_allclose(
        inter_subject_correlation(shared), inter_subject_correlation(moved), atol=1e-9
    )


def test_inter_subject_correlation_is_that_of_numpy(rng):
    shared = locked(rng, n_subjects=3)
    z = [(s - s.mean(axis=0)) / s.std(axis=0) for s in shared]
    expected = np.corrcoef(shared[1][:, 2], z[0][:, 2] + z[2][:, 2])[0, 1]
    found = inter_subject_correlation(shared)
    assert found.shape == (3, 4)
    assert_allclose(found[1, 2], expected, rtol=1e-12)


def test_inter_subject_correlation_of_a_constant_feature_is_missing(rng):
    shared = locked(rng)
    shared[0][:, 1] = 7.0
    found = inter_subject_correlation(shared)
    assert np.isnan(found[0, 1])
    assert np.isfinite(np.delete(found, 1, axis=1)).all()


def test_perfect_reconstruction_scores_one(rng):
    truth = rng.normal(5, 2, size=(20, 6))
    for score in ("correlation", "r2"):
        assert_allclose(reconstruction_score(truth, truth, score=score), 1, rtol=1e-12)
    assert_allclose(reconstruction_score(truth, truth / 1000), 1, rtol=1e-12)


def test_the_mean_as_prediction_explains_nothing(rng):
    truth = rng.normal(size=(20, 6))
    mean = np.tile(truth.mean(axis=0), (20, 1))
    assert_allclose(reconstruction_score(truth, mean, score="r2"), 0, atol=1e-12)
    assert_allclose(reconstruction_score(truth, mean), 0, atol=1e-12)


@pytest.mark.parametrize("score", ["correlation", "r2"])
@pytest.mark.parametrize("value", [0.0, 3.3])
def test_a_truth_that_does_not_vary_has_no_score(rng, score, value):
    truth = np.full((10, 3), value)
    found = reconstruction_score(truth, rng.normal(size=(10, 3)), score=score)
    assert np.isnan(found).all()


def test_a_bad_prediction_may_score_far_below_minus_one(rng):
    truth = rng.normal(size=(30, 2))
    assert (reconstruction_score(truth, -10 * truth, score="r2") < -50).all()


def test_little_variation_about_a_large_mean_is_variation(rng):
    story = rng.normal(size=(40, 3))
    assert time_segment_matching([1e5 + story, story], window=5).mean == 1.0


def test_errors_say_what_is_wrong_and_what_to_do(rng):
    shared = locked(rng)
    with pytest.raises(ValueError, match="needs at least 2; got 1"):
        reconstruction_score(np.ones((1, 3)), np.ones((1, 3)))
    with pytest.raises(ValueError, match="'1': samples must be 2-D"):
        time_segment_matching([shared[0], shared[1][:, 0]])
    for name in ("window", "step"):
        with pytest.raises(ValueError, match=f"{name} of time_segment_matching must"):
            time_segment_matching(shared, **{name: 0})
    with pytest.raises(ValueError, match="no two segments of window=30"):
        time_segment_matching(shared, window=30)
    with pytest.raises(ValueError, match=r"subject '1' differ .*39 samples"):
        inter_subject_correlation([shared[0], shared[1][:-1]])
    with pytest.raises(ValueError, match="at least 2 subject"):
        time_segment_matching(shared[:1])
    shared[2][3, 1] = np.nan
    with pytest.raises(ValueError, match="without NaN or infinite values; subject 2"):
        time_segment_matching(shared)
    with pytest.raises(ValueError, match=r"one shape; got \(5, 2\) and \(5, 3\)"):
        reconstruction_score(np.zeros((5, 2)), np.zeros((5, 3)))
    with pytest.raises(ValueError, match="score of reconstruction_score must be one"):
        reconstruction_score(np.zeros((5, 2)), np.zeros((5, 2)), score="mse")
    with pytest.raises(TypeError, match="one array of shape"):
        inter_subject_correlation(np.zeros((5, 2)))


@pytest.mark.parametrize("shape", [(6,), (6, 2, 2)])
def test_voxels_are_compared_in_two_dimensions(shape):
    with pytest.raises(InputError, match="must be samples x voxels of one shape"):
        reconstruction_score(np.ones(shape), np.ones(shape))


def test_segments_that_touch_are_rivals_and_those_that_overlap_are_not(rng):
    twice = np.vstack([rng.normal(size=(3, 4))] * 2)
    found = time_segment_matching([twice, twice], window=3, step=3)
    assert found.mean == 0  # each is the other
    alternating = rng.normal(size=(2, 4))[[0, 1] * 3]
    assert time_segment_matching([alternating] * 2, window=3).mean == 1


def test_others_who_cancel_out_have_no_correlation(rng):
    x = rng.normal(size=(50, 2))
    found = inter_subject_correlation([x, 3 * x + 1, -x / 3])
    assert np.isnan(found[:2]).all()
    assert_allclose(found[2], -1)


def test_a_segment_without_a_rival_does_not_count(rng):
    """In the middle of a short film every other segment overlaps it."""
    film = rng.normal(size=(25, 3))
    X = [film + 0.1 * rng.normal(size=(25, 3)) for _ in range(3)]
    found = time_segment_matching(X, window=9)
    middle = np.arange(17) == 8
    assert (np.isnan(found.matched) == middle).all()
    ids = [np.arange(25), np.arange(24), np.arange(25)]
    gaps = time_segment_matching([x[own] for x, own in zip(X, ids, strict=True)], ids)
    assert np.isnan(gaps.matched[:, middle]).all()
    # chance is that of the segments that count: one among its rivals
    rivals = np.abs(np.arange(17) - 8)[~middle]
    assert found.chance == pytest.approx(np.mean(1 / (1 + rivals)))


def test_voxels_that_are_not_finite_have_no_score(rng):
    x, bad = rng.normal(size=(2, 6, 3))
    bad[2, 0] = np.nan
    with pytest.raises(InputError, match="The truth has NaN or infinite values"):
        reconstruction_score(bad, x)
    with pytest.raises(InputError, match="The prediction has NaN or infinite values"):
        reconstruction_score(x, bad, score="r2")
