import numpy as np
import pytest
import scipy.linalg
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.testing import assert_allclose
from scipy.linalg import polar as scipy_polar

from brainweave._core.exceptions import SolverError
from brainweave.basis import linalg
from brainweave.basis.linalg import (
    _orthonormal_to,
    block_iteration,
    flip_signs,
    polar,
    signed_factor,
    smallest_of_constant_minus_low_rank,
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


@pytest.mark.parametrize("unit", [1e-9, 1e9])
@pytest.mark.parametrize("size", [60, 500])
def test_the_unit_does_not_matter(rng, size, unit):
    mu = rng.choice([-2.0, 1.0, 4.0], size=size) + 1e-3 * rng.normal(size=size)
    check(unit * mu, np.sqrt(unit) * rng.normal(size=(size, 4)), np.ones(4), 7)


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


def test_a_product_of_moderate_size_is_not_searched_by_iteration(rng, monkeypatch):
    """Where the last ones lie in the bulk an iteration ends without a result."""
    U = rng.normal(size=(450, 420))
    expected = np.linalg.eigvalsh(U @ U.T)[::-1][:5]
    monkeypatch.setattr(linalg, "block_iteration", None)
    values, vectors = linalg._largest_of_outer_product(U, 5)
    assert_allclose(values, expected, rtol=1e-10)
    assert_allclose(U @ (U.T @ vectors), vectors * values, atol=1e-8 * expected[0])


def test_polar_equals_scipy(rng):
    A = rng.normal(size=(9, 4))
    assert_allclose(polar(A), scipy_polar(A)[0], atol=1e-12)


@pytest.mark.parametrize("condition", [1.0, 1.2, 30.0, 3e3, 1e5, 1e12])
@pytest.mark.parametrize("shape", [(130, 130), (300, 130), (130, 300)])
def test_polar_is_that_of_the_singular_vectors(rng, condition, shape):
    """From an eigenbasis, or by a singular value decomposition."""
    rank = min(shape)
    left = np.linalg.qr(rng.normal(size=(shape[0], rank)))[0]
    right = np.linalg.qr(rng.normal(size=(shape[1], rank)))[0]
    found = polar((7 * left * np.geomspace(1, 1 / condition, rank)) @ right.T)
    # rounding of the matrix itself turns the smallest directions by this much
    assert_allclose(found, left @ right.T, atol=1e-10 + 1e-14 * condition)


def test_signs_make_the_largest_entry_positive(rng):
    Y = rng.normal(size=(20, 5))
    flipped = Y * flip_signs(Y)
    assert (flipped.max(axis=0) >= -flipped.min(axis=0)).all()
    assert_allclose(flip_signs(-flipped), -1)
    assert_allclose(np.abs(flipped), np.abs(Y))
    assert flip_signs(np.zeros((3, 1))) == 1


@pytest.mark.parametrize("k", [1, 5])
def test_same_result_every_time(rng, k):
    mu, U = rng.normal(size=700), rng.normal(size=(700, 3))
    one = smallest_of_diagonal_minus_low_rank(mu, U, np.ones(3), k)
    two = smallest_of_diagonal_minus_low_rank(mu, U, np.ones(3), k)
    assert np.array_equal(one[1], two[1])


def crowded(rng, size=600, rank=4):
    """Some eigenvalues far below the diagonal, the others at its crowded edge."""
    mu, U = rng.uniform(size=size), rng.normal(size=(size, rank))
    return mu, U, *np.linalg.eigh(np.diag(mu) - U @ U.T)


def answers(monkeypatch, first):
    """Let the first search end in a given answer; return what the others end in."""
    found = []

    def search(*given, **options):
        found.append(block_iteration(*given, **options) if found else first)
        return found[-1]

    monkeypatch.setattr(linalg, "block_iteration", search)
    return found


@pytest.mark.parametrize("missed", [0, 2, 5, None])
def test_what_was_missed_at_a_crowded_edge_goes_to_lapack(rng, monkeypatch, missed):
    mu, U, values, vectors = crowded(rng)
    kept = np.delete(np.arange(7), missed) if missed is not None else None
    first = None if kept is None else (values[kept], vectors[:, kept])
    answers(monkeypatch, first)
    found, _ = smallest_of_diagonal_minus_low_rank(mu, U, np.ones(4), 6)
    assert_allclose(found, values[:6], atol=1e-10)


def test_a_missed_copy_of_an_eigenvalue_goes_to_lapack(rng, monkeypatch):
    mu, U, values, vectors = crowded(rng, size=300, rank=2)
    twice = np.kron(np.eye(2), U)
    once = np.vstack([vectors, 0 * vectors])[:, :4]
    answers(monkeypatch, (values[:4], once))
    found, _ = smallest_of_diagonal_minus_low_rank(np.tile(mu, 2), twice, np.ones(4), 4)
    assert_allclose(found, np.repeat(values[:2], 2), atol=1e-10)


@pytest.mark.parametrize("rank", [2, 4, 12])
def test_ten_components_of_few_groups_need_no_lapack(rng, monkeypatch, rank):
    """The paper's number of components: most of them lie at the crowded edge."""
    mu, U, expected, _ = crowded(rng, size=1000, rank=rank)
    monkeypatch.setattr(linalg, "LARGEST_DENSE", 0)
    found, vectors = smallest_of_diagonal_minus_low_rank(mu, U, np.ones(rank), 11)
    assert_allclose(found, expected[:11], atol=1e-12 * np.abs(expected).max())
    assert_allclose(vectors.T @ vectors, np.eye(11), atol=1e-10)


def test_without_the_inverse_a_crowded_edge_is_not_found(rng):
    mu, U, *_ = crowded(rng, size=1000)
    multiply = (np.diag(mu) - U @ U.T).__matmul__
    assert block_iteration(multiply, 1000, 6) is None


def test_repeated_eigenvalues_of_an_operator(rng):
    spectrum = np.concatenate([[-5.0] * 4, [-4.0] * 3, rng.uniform(0, 1, size=293)])
    Q = np.linalg.qr(rng.normal(size=(300, 300)))[0]
    A = (Q * spectrum) @ Q.T
    values, vectors = smallest_of_operator(lambda x: A @ x, 300, 7)
    assert_allclose(values, spectrum[:7], atol=1e-12)
    assert_allclose(vectors.T @ vectors, np.eye(7), atol=1e-10)


def test_what_adds_nothing_to_a_space_is_left_out(rng):
    Q = np.linalg.qr(rng.normal(size=(20, 3)))[0]
    fresh = np.column_stack([np.zeros(20), Q @ [1, 2, 3], 1e-9 * rng.normal(size=20)])
    added = _orthonormal_to(Q, fresh)
    assert added.shape == (20, 1)
    assert_allclose(np.hstack([Q, added]).T @ added, [[0], [0], [0], [1]], atol=1e-14)


def test_an_operator_with_a_gap_is_never_formed(rng):
    spectrum = np.concatenate([np.linspace(-9, -5, 6), rng.uniform(0, 1, size=994)])
    widest = []

    def multiply(x):
        widest.append(x.shape[1])
        return spectrum[:, None] * x

    values, vectors = smallest_of_operator(multiply, 1000, 6)
    assert max(widest) < 50
    assert_allclose(values, spectrum[:6], atol=1e-10)
    assert_allclose(np.abs(vectors[:6].diagonal()), 1, atol=1e-9)


@pytest.mark.parametrize("missed", [0, 3, 5])
def test_an_operator_one_of_whose_eigenvalues_was_missed_is_formed(
    rng, monkeypatch, missed
):
    spectrum = np.concatenate([np.linspace(-9, -5, 7), rng.uniform(0, 1, size=993)])
    kept = np.delete(np.arange(7), missed)
    answers(monkeypatch, (spectrum[kept], np.eye(1000)[:, kept]))
    values, _ = smallest_of_operator(lambda x: spectrum[:, None] * x, 1000, 6)
    assert_allclose(values, spectrum[:6], atol=1e-10)


def test_an_operator_too_large_to_form_that_does_not_converge(monkeypatch, rng):
    monkeypatch.setattr(linalg, "LARGEST_DENSE", 200)
    A = np.diag(np.linspace(0, 1, 300) ** 4)
    with pytest.raises(SolverError, match=r"size 300.*too large.*Lower energy"):
        smallest_of_operator(lambda x: A @ x, 300, 7)


@pytest.mark.parametrize("kind", ["plain", "ties", "few"])
def test_a_wide_factor_goes_by_its_cross_products(rng, kind, monkeypatch):
    rank, k = (3 if kind == "few" else 20), 5
    U = rng.normal(size=(300, rank)) @ rng.normal(size=(rank, 120))
    if kind != "few":  # fewer than asked for: the factor itself sees to it
        U += rng.normal(size=U.shape)
    if kind == "ties":  # the largest singular value three times
        left, values, right = np.linalg.svd(U, full_matrices=False)
        values[:3] = values[0]
        U = (left * values) @ right
    monkeypatch.setattr("brainweave.basis.linalg.WIDE_RANK", 50)
    widths = []
    qr = scipy.linalg.qr
    monkeypatch.setattr(
        "brainweave.basis.linalg.scipy.linalg.qr",
        lambda *a, **o: (widths.append(a[0].shape[1]), qr(*a, **o))[1],
    )
    values, vectors = smallest_of_constant_minus_low_rank(3.0, U, np.ones(120), k)
    assert (max(widths) >= 120) == (kind == "few")
    M = 3 * np.eye(300) - U @ U.T
    scale = np.abs(np.linalg.eigvalsh(M)).max()
    assert_allclose(values, np.linalg.eigvalsh(M)[:k], atol=1e-11 * scale)
    assert_allclose(M @ vectors, vectors * values, atol=1e-10 * scale)
    assert_allclose(vectors.T @ vectors, np.eye(k), atol=1e-12)


@pytest.mark.parametrize("rank", [1, 7, 40, 60])
def test_constant_minus_low_rank_equals_dense(rng, rank):
    U, signs = rng.normal(size=(40, rank)), rng.choice([-1.0, 1.0], size=rank)
    full = 3.0 * np.eye(40) - (U * signs) @ U.T
    expected = np.linalg.eigvalsh(full)
    for k in (1, 5, 40):
        values, vectors = smallest_of_constant_minus_low_rank(3.0, U, signs, k)
        assert_allclose(values, expected[:k], atol=1e-12 * np.abs(expected).max())
        assert_allclose(vectors.T @ vectors, np.eye(k), atol=1e-12)
        assert_allclose(full @ vectors, vectors * values, atol=1e-11)


def test_factor_of_a_diagonal_affinity_is_sparse():
    factor, signs = signed_factor(np.diag([4.0, 0.0, -9.0]))
    assert_allclose(factor.toarray(), [[2, 0], [0, 0], [0, 3]])
    assert_allclose(signs, [1, -1])


def test_weak_coupling_within_a_tie_is_kept(rng):
    mu = np.repeat([1.0, 2.0], 30)
    U = rng.normal(size=(60, 3)) * [1, 1e-3, 1e-5]
    check(mu, U, np.ones(3), 8)
    values, _ = smallest_of_diagonal_minus_low_rank(mu, U, np.ones(3), 4)
    expected = np.linalg.eigvalsh(np.diag(mu) - U @ U.T)[:4]
    assert_allclose(values - 1, expected - 1, rtol=1e-4, atol=1e-14)


def test_a_low_rank_part_of_nothing_leaves_the_diagonal():
    mu, U = np.array([2.0, 1.0, 2.0, 1.0]), np.zeros((4, 1))
    values, vectors = smallest_of_diagonal_minus_low_rank(mu, U, np.ones(1), 3)
    assert_allclose(values, [1, 1, 2])
    assert_allclose(mu[:, None] * vectors, vectors * values, atol=1e-15)
    assert_allclose(vectors.T @ vectors, np.eye(3), atol=1e-15)
