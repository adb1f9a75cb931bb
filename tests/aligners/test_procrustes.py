"""Rotations onto a target: the fast way against the singular value decomposition."""

import numpy as np
import pytest
from numpy.testing import assert_allclose

from brainweave.aligners.timelocked import rotate_onto
from brainweave.basis.linalg import polar


def plain(M):
    left, _, right = np.linalg.svd(M, full_matrices=False)
    return left @ right


def matrix(condition, shape=(60, 60), seed=0):
    """Return a matrix with singular values from 1 down to 1 / condition."""
    rng = np.random.default_rng(seed)
    k = min(shape)
    left, right = (np.linalg.qr(rng.normal(size=(n, k)))[0] for n in shape)
    return (left * np.geomspace(1, 1 / condition, k)) @ right.T


@pytest.mark.parametrize("shape", [(60, 60), (80, 30), (30, 80)])
@pytest.mark.parametrize("condition", [1, 1e2, 1e4, 1e5, 1e6, 2e6, 1e7])
def test_factor_is_that_of_the_singular_value_decomposition(condition, shape):
    M = matrix(condition, shape)
    assert_allclose(polar(M), plain(M), rtol=0, atol=1e-10)


@pytest.mark.parametrize("condition", [1e2, 1e4, 1e6, 1e8])
def test_factor_is_the_planted_one(condition):
    """Rounding grows with the condition of the matrix, not with its square."""
    rng = np.random.default_rng(1)
    left, right = (np.linalg.qr(rng.normal(size=(60, 60)))[0] for _ in range(2))
    M = (left * np.geomspace(1, 1 / condition, 60)) @ right.T
    assert np.abs(polar(M) - left @ right.T).max() < 1e-15 * condition + 1e-14


@pytest.mark.parametrize("shape", [(60, 60), (80, 30), (30, 80)])
def test_what_a_singular_matrix_leaves_open_is_completed(shape):
    M = matrix(1e3, shape)
    M[:, 5:] = M[:, :5] @ np.ones((5, shape[1] - 5))  # of rank five
    W = polar(M)
    narrow = W if shape[0] >= shape[1] else W.T
    assert_allclose(narrow.T @ narrow, np.eye(min(shape)), atol=1e-12)
    assert_allclose((W * M).sum(), np.linalg.norm(M, "nuc"))


def test_rotation_takes_rotated_coordinates_back():
    rng = np.random.default_rng(0)
    Z, Q = rng.normal(size=(50, 20)), np.linalg.qr(rng.normal(size=(20, 20)))[0]
    assert_allclose(rotate_onto(Z, Z @ Q), Q, atol=1e-12)
