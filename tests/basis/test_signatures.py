"""Samples are known by sums with fixed signs: each sign, sum and comparison."""

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

from brainweave._core.arrays import chunk_width
from brainweave.basis.voxels import (
    rounding,
    same_samples,
    sample_signatures,
    voxel_signs,
)


def literal_sign(voxel, bit):
    """SplitMix64 in whole numbers."""
    mask = 2**64 - 1
    x = (voxel + 1) * 0x9E3779B97F4A7C15 & mask
    x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9 & mask
    x = (x ^ (x >> 27)) * 0x94D049BB133111EB & mask
    x ^= x >> 31
    return 1 if x >> bit & 1 else -1


def test_signs_are_bits_of_a_hash_of_the_voxel():
    expected = [[literal_sign(v, b) for b in range(4)] for v in range(300)]
    assert_array_equal(voxel_signs(0, 300), expected)
    assert_array_equal(voxel_signs(120, 130), expected[120:130])
    assert voxel_signs(0, 5).dtype == np.int8


@pytest.mark.parametrize("dtype", [np.float64, np.float32, np.int16])
def test_signatures_are_signed_sums_over_all_chunks(rng, dtype):
    voxels = chunk_width(3) + 7
    x = (100 * rng.normal(size=(3, voxels))).astype(dtype)
    signs = voxel_signs(0, voxels).astype(float)
    rtol = 1e-4 if dtype == np.float32 else 1e-10
    assert_allclose(sample_signatures(x), x.astype(float) @ signs, rtol=rtol, atol=0.05)
    part = x[:, :50]
    assert_allclose(sample_signatures(part), part.astype(float) @ signs[:50], rtol=1e-3)


def test_values_that_are_not_finite_count_as_zero(rng):
    x = rng.normal(size=(4, 30))
    filled = x.copy()
    for i, value in enumerate((np.nan, np.inf, -np.inf)):
        x[i, 3 + i], filled[i, 3 + i] = value, 0
    assert_allclose(sample_signatures(x), sample_signatures(filled), rtol=1e-12)
    large = np.full((2, 40), 3e38, np.float32)  # its sums are beyond single precision
    found = sample_signatures(large)
    assert np.isfinite(found).all()
    assert_allclose(found, large.astype(float) @ voxel_signs(0, 40))


def test_samples_are_the_same_up_to_single_precision(rng):
    b = rng.normal(size=(6, 4))
    eps = np.finfo(np.float32).eps
    largest = np.abs(b).max(axis=1)
    assert_allclose(rounding(b, np.float32), 100 * eps * largest, rtol=1e-12)
    assert_allclose(rounding(-b, np.float64), 100 * np.finfo(float).eps * largest)
    a = b[[3, 0, 0, 5, 1]].copy()
    a[1, 2] += 90 * eps * largest[0]
    a[2, 2] += 110 * eps * largest[0]
    a[3, :] += 0.5
    assert same_samples(a, b).tolist() == [True, True, False, False, True]
    assert same_samples(b[:2].tolist(), b[1:].tolist()).tolist() == [False, True]
    a[0, 1] = np.nan
    unknown = b.copy()
    unknown[1, 0] = np.inf
    assert same_samples(a, unknown).tolist() == [False, True, False, False, False]
