import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.testing import assert_allclose
from scipy.linalg import polar as scipy_polar

from brainweave.linalg import (
    flip_signs,
    polar,
    signed_factor,
    smallest_of_diagonal_minus_low_rank,
    smallest_of_operator,
)


def check(mu, U, signs, k):
    values, vectors = smallest_of_diagonal_minus_low_rank(mu, U, signs, k)
    full = np.diag(mu) - (U * signs) @ U.T
    spectrum = np.linalg.eigvalsh(full)
    scale, expected = np.abs(spectrum).max(), spectrum[:k]
    assert_allclose(values, expected, rtol=1e-9, atol=1e-10 * scale)
    assert_allclose(vectors.T @ vectors, np.eye(k), atol=1e-9)
    assert_allclose(full @ vectors, vectors * values, atol=1e-7 * scale)


@settings(max_examples=60, deadline=None)
@given(
    st.integers(0, 10_000),
    st.sampled_from([60, 500]),
    st.integers(1, 6),
    st.sampled_from(["distinct", "equal", "few levels", "clusters", "zero coupling"]),
    st.integers(1, 12),
)
def test_diagonal_minus_low_rank_equals_dense(seed, size, rank, kind, k):
    rng = np.random.default_rng(seed)
    mu = {
        "distinct": rng.normal(size=size),
        "equal": np.full(size, -3.0),
        "few levels": rng.choice([-2.0, -1.0, 4.0], size=size),
        "clusters": rng.choice([-2.0, 5.0], size=size) + 1e-9 * rng.normal(size=size),
        "zero coupling": rng.normal(size=size),
    }[kind]
    U = rng.normal(size=(size, rank))
    if kind == "zero coupling":
        U[rng.permutation(size)[: size // 2]] = 0
    check(mu, U, rng.choice([-1.0, 1.0], size=rank), k)


def test_strong_low_rank_part_far_below_the_diagonal(rng):
    mu = 1000 + rng.uniform(size=900)
    check(mu, 30 * rng.normal(size=(900, 7)), np.ones(7), 12)


def test_operator_route_equals_dense(rng):
    A = rng.normal(size=(300, 300))
    A = A + A.T
    values, vectors = smallest_of_operator(lambda x: A @ x, 300, 6)
    assert_allclose(values, np.linalg.eigvalsh(A)[:6], rtol=1e-9)
    assert_allclose(A @ vectors, vectors * values, atol=1e-7)


def test_signed_factor_rebuilds_and_is_thin(rng):
    F = rng.normal(size=(6, 2))
    A = F @ np.diag([1.0, -1.0]) @ F.T
    factor, signs = signed_factor(A)
    assert factor.shape == (6, 2)
    assert sorted(signs) == [-1, 1]
    assert_allclose((factor * signs) @ factor.T, A, atol=1e-12)


def test_polar_equals_scipy(rng):
    A = rng.normal(size=(9, 4))
    assert_allclose(polar(A), scipy_polar(A)[0], atol=1e-12)


def test_signs_make_the_largest_entry_positive(rng):
    Y = rng.normal(size=(20, 5))
    flipped = Y * flip_signs(Y)
    assert (flipped.max(axis=0) >= -flipped.min(axis=0)).all()
    assert_allclose(flip_signs(-flipped), -1)


@pytest.mark.parametrize("k", [1, 5])
def test_same_result_every_time(rng, k):
    mu, U = rng.normal(size=700), rng.normal(size=(700, 3))
    one = smallest_of_diagonal_minus_low_rank(mu, U, np.ones(3), k)
    two = smallest_of_diagonal_minus_low_rank(mu, U, np.ones(3), k)
    assert np.array_equal(one[1], two[1])
