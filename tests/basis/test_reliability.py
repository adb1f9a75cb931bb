"""Weights of voxels by reliability: the analysis of variance is scipy's."""

from types import SimpleNamespace

import numpy as np
import pytest
import scipy.stats
from numpy.testing import assert_allclose

from brainweave._core.exceptions import InputError, LabelWarning
from brainweave.basis.reliability import (
    _sampling_variance,
    analysis_of_variance,
    reliability_scale,
    repeated_groups,
    warn_of_no_reliability,
)


def test_it_is_a_one_way_analysis_of_variance(rng):
    codes = rng.choice(4, size=40, p=[0.4, 0.3, 0.2, 0.1])
    codes[:3] = -1  # without a group
    X = 1e4 + rng.normal(size=(40, 30)) + rng.normal(size=(5, 30))[codes]
    groups = repeated_groups(codes)
    between, within = analysis_of_variance(X, groups)
    parts = [X[codes == c] for c in range(4)]
    assert_allclose(between / within, scipy.stats.f_oneway(*parts).statistic)
    pooled = sum(((p - p.mean(axis=0)) ** 2).sum(axis=0) for p in parts)
    assert_allclose(within, pooled / (37 - 4))


def test_chunks_of_voxels_make_no_difference(rng):
    codes, X = np.repeat(np.arange(3), 8), rng.normal(size=(24, 50))
    groups = repeated_groups(codes)
    whole = analysis_of_variance(X, groups)
    cut = [analysis_of_variance(X[:, a : a + 7], groups) for a in range(0, 50, 7)]
    for i in range(2):
        assert_allclose(np.concatenate([c[i] for c in cut]), whole[i], rtol=1e-12)


def test_formula(rng):
    codes = np.repeat(np.arange(5), 6)
    X = rng.normal(size=(30, 300)) * rng.uniform(1, 5, size=300)
    X[:, :100] += 8 * rng.normal(size=(5, 100))[codes]
    groups = repeated_groups(codes)
    msb, msw = analysis_of_variance(X, groups)
    F = msb / msw
    lam = 1 - _sampling_variance(F.mean(), 4, 25) / F.var()
    assert 0 < lam < 1
    w = 1 + lam * (F / F.mean() - 1)
    assert_allclose(1 / reliability_scale(msb, msw, groups), np.sqrt(w / msw))


def test_sampling_variance_is_that_of_noncentral_f():
    for nc in (0.0, 3.0, 40.0):
        f = scipy.stats.ncf(6, 21, nc) if nc else scipy.stats.f(6, 21)
        assert_allclose(_sampling_variance(f.mean(), 6, 21), f.var(), rtol=1e-6)


def test_noise_alone_weighs_all_voxels_alike(rng):
    codes, X = np.repeat(np.arange(7), 4), rng.normal(size=(28, 20000))
    groups = repeated_groups(codes)
    msb, msw = analysis_of_variance(X, groups)
    scaled = np.sqrt(msw) / reliability_scale(msb, msw, groups)
    assert scaled.std() < 0.1


def test_voxels_that_do_not_vary_are_left_out(rng):
    codes, X = np.repeat(np.arange(3), 4), rng.normal(size=(12, 6))
    X[:, 2] = 5.0
    groups = repeated_groups(codes)
    scale = reliability_scale(*analysis_of_variance(X, groups), groups)
    assert np.isinf(scale[2])
    assert np.isfinite(np.delete(scale, 2)).all()
    with pytest.raises(InputError, match="No voxel varies"):
        reliability_scale(*analysis_of_variance(np.ones((12, 3)), groups), groups)


def test_without_repeated_groups_there_is_no_reliability():
    assert repeated_groups(np.arange(30)) is None
    assert repeated_groups(np.full(30, -1)) is None
    assert repeated_groups(np.zeros(30, int)) is None


def test_two_groups_and_five_degrees_of_freedom_suffice():
    assert repeated_groups([0, 0, 0, 0, 1, 1, 1]).within == 5
    assert repeated_groups([0, 0, 0, 1, 1, 1]) is None
    assert repeated_groups([4] * 7) is None


def test_voxels_that_answer_to_nothing_weigh_alike():
    groups, within = repeated_groups(np.repeat([0, 1], 6)), np.array([1.0, 4.0])
    assert_allclose(reliability_scale(np.zeros(2), within, groups), [1, 2], rtol=1e-14)


def test_subjects_whose_groups_do_not_repeat_are_named():
    def basis(name, reliable=False, kernel="linear"):
        kernel = SimpleNamespace(name=kernel)
        return SimpleNamespace(name=name, reliable=reliable, kernel=kernel)

    given = basis("X[0]", kernel="precomputed"), basis("X[1]", reliable=True)
    warn_of_no_reliability(given)  # nothing to say
    with pytest.warns(LabelWarning, match=r"X\[2\] has none \(1 of 3 subjects\)"):
        warn_of_no_reliability([*given, basis("X[2]")])


def test_many_samples_tell_small_differences_in_reliability():
    groups = repeated_groups(np.repeat(np.arange(51), 40))
    F, within = np.linspace(0.1, 1.7, 30), np.linspace(0.2, 0.8, 30)
    lam = 1 - _sampling_variance(F.mean(), 50, 51 * 39) / F.var()
    assert 0 < lam < 1
    assert F.mean() < 1
    w = 1 + lam * (F / F.mean() - 1)
    scale = reliability_scale(F * within, within, groups)
    assert_allclose(scale, np.sqrt(within / w), rtol=1e-12)


def test_what_is_left_within_groups_is_small_or_nothing(rng):
    codes = np.repeat(np.arange(5), 8)
    groups = repeated_groups(codes)
    shown = rng.normal(size=(5, 50))[codes]
    assert not analysis_of_variance(1e5 * shown, groups)[1].any()  # but for rounding
    noise = rng.normal(size=(40, 50))
    found = analysis_of_variance(1e5 * shown + noise, groups)[1]
    assert_allclose(found, analysis_of_variance(noise, groups)[1], rtol=1e-3)
