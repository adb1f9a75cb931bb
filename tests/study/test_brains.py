import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.testing import assert_allclose

from brainweave.study import SimulationSettings, simulate_study
from brainweave.study.simulation import (
    autoregressive_noise,
    choose_grid,
    double_gamma,
    draw_mask,
    smooth_fields,
)


@settings(max_examples=25, deadline=None)
@given(n_voxels=st.integers(1, 3000), seed=st.integers(0, 5))
def test_mask_has_exactly_the_voxels_asked_for_and_fits(n_voxels, seed):
    shape, _ = choose_grid(n_voxels)
    for rng in (None, np.random.default_rng(seed)):
        mask = draw_mask(shape, n_voxels, rng)
        assert mask.sum() == n_voxels


def test_brain_is_as_large_as_a_human_one_and_lies_in_the_middle():
    shape, affine = choose_grid(5000)
    mask = draw_mask(shape, 5000, np.random.default_rng(0))
    litres = mask.sum() * np.linalg.det(affine[:3, :3]) / 1e6
    assert 0.9 < litres < 1.6
    places = np.argwhere(mask) @ affine[:3, :3] + affine[:3, 3]
    assert_allclose(places.mean(axis=0), [0, -18, 10], atol=5.0)


def test_brain_is_one_piece_without_touching_the_border():
    from scipy.ndimage import label

    shape, _ = choose_grid(2000)
    mask = draw_mask(shape, 2000, np.random.default_rng(1))
    pieces, n_pieces = label(mask)
    assert np.bincount(pieces[mask]).max() > 0.98 * mask.sum()
    assert n_pieces >= 1
    inner = mask[1:-1, 1:-1, 1:-1].sum()
    assert inner > 0.97 * mask.sum()


def test_fields_are_smooth_with_unit_variance():
    rng = np.random.default_rng(2)
    fields = smooth_fields((20, 20, 20), 3, 1.5, rng)
    assert_allclose(fields.std(axis=(1, 2, 3)), 1, rtol=1e-4)
    for field in fields:
        neighbours = np.corrcoef(field[1:].ravel(), field[:-1].ravel())[0, 1]
        assert neighbours > 0.8


def test_maps_have_unit_power_and_differ_between_subjects():
    study = simulate_study(
        n_subjects=2,
        n_voxels=800,
        settings=SimulationSettings(n_shared=4),
    )
    brains = [study.simulation.brain(subject) for subject in (0, 1)]
    for brain in brains:
        assert_allclose((brain.maps**2).mean(axis=1), 1, rtol=1e-4)
        assert_allclose(brain.baseline.mean(), 100, rtol=0.02)
    agreement = brains[0].maps @ brains[1].maps.T / 800
    assert np.abs(agreement).max() < 0.35


def test_response_peaks_at_five_seconds_and_undershoots():
    response = double_gamma(0.1)
    assert_allclose(response.sum(), 1, atol=1e-12)
    assert response.argmax() == 50
    assert 140 <= response.argmin() <= 170
    assert response.min() < 0


@pytest.mark.parametrize("coefficient", [0.0, 0.3, 0.9])
def test_noise_has_unit_variance_and_the_autocorrelation_asked_for(coefficient):
    noise = autoregressive_noise(400, 500, coefficient, np.random.default_rng(5))
    assert_allclose(noise.var(), 1, rtol=0.05)
    assert_allclose(noise[0].var(), 1, rtol=0.25)  # stationary from the start
    lag = (noise[1:] * noise[:-1]).mean() / noise.var()
    assert_allclose(lag, coefficient, atol=0.03)


def test_series_can_have_coefficients_of_their_own():
    noise = autoregressive_noise(
        5000, 2, np.array([0.0, 0.9]), np.random.default_rng(6)
    )
    lags = (noise[1:] * noise[:-1]).mean(axis=0) / noise.var(axis=0)
    assert_allclose(lags, [0.0, 0.9], atol=0.06)
