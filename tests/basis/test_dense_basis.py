"""A basis against the whole standardised samples: each product, wide and narrow."""

import numpy as np
import pytest
import scipy.sparse
from numpy.testing import assert_allclose

from brainweave import SubjectBasis
from brainweave._core.exceptions import InputError


def dense(X, Z, standardize):
    mean, scale = X.mean(axis=0), X.std(axis=0) if standardize else np.ones(X.shape[1])
    scale = np.where(X.std(axis=0) > 1e-12, scale, np.inf)
    return (X - mean) / scale, (Z - mean) / scale


@pytest.mark.parametrize(("n", "v"), [(9, 30), (30, 9), (12, 12)])
@pytest.mark.parametrize("standardize", [True, False])
@pytest.mark.parametrize("energy", [1.0, 0.6])
def test_a_linear_basis_is_that_of_the_whole_samples(rng, n, v, standardize, energy):
    X = rng.normal(3, 1, size=(n, v)) * np.geomspace(1, 0.2, v)
    X[:, 2] = 4.0
    new = rng.normal(3, 1, size=(5, v))
    z, znew = dense(X, new, standardize)
    basis = SubjectBasis(X, standardize=standardize, energy=energy)
    U, sizes, axes = np.linalg.svd(z, full_matrices=False)
    kept = sizes > 1e-10 * sizes[0]
    U, sizes, axes = U[:, kept], sizes[kept], axes[kept]
    shares = np.cumsum(sizes) / sizes.sum()
    k = int(np.argmax(shares >= energy - 1e-12)) + 1
    assert (basis.n_kept, basis.spectrum.size) == (k, kept.sum())
    assert basis.constant_voxels.tolist() == [2]
    assert_allclose(basis.gram, z @ z.T, atol=1e-10)
    assert_allclose(basis.spectrum, sizes**2, rtol=1e-8)
    assert_allclose(basis.values, sizes[:k] ** 2, rtol=1e-8)
    projector = U[:, :k] @ U[:, :k].T
    V = basis.vectors
    assert_allclose(V @ V.T, projector, atol=1e-8)
    assert_allclose(V.T @ V, np.eye(k), atol=1e-10)
    assert_allclose(basis.coordinates, V * sizes[:k], atol=1e-8)
    assert basis.lost_share < 1e-12
    whole = U[:, :k] * sizes[:k] @ axes[:k]  # what is kept of the samples
    assert basis.power == pytest.approx((whole**2).sum())
    S = rng.normal(size=(n, 3))
    assert_allclose(basis.gram_times(S), whole @ whole.T @ S, atol=1e-8)
    assert_allclose(basis.restrict(S), S if energy == 1 else projector @ S, atol=1e-8)
    assert_allclose(basis.kernel_to(new), znew @ z.T, atol=1e-9)
    assert_allclose(basis.kernel_to(basis.products_with(new)), znew @ z.T, atol=1e-9)
    assert_allclose(basis.project(new), znew @ z.T @ V / sizes[:k], atol=1e-8)
    assert_allclose(basis.combine(S), z.T @ S, atol=1e-9)
    coef = rng.normal(size=(k, 2))
    assert_allclose(basis.weights(coef), z.T @ V @ (coef / sizes[:k, None]), atol=1e-8)
    assert_allclose(basis.in_places(None), z, atol=1e-12)
    places = scipy.sparse.random_array((v, 4), density=0.4, rng=rng).tocsr()
    assert_allclose(basis.in_places(places), z @ places.toarray(), atol=1e-12)
    light = basis.without_matrices()
    assert_allclose(light.products_with(new).cross, znew @ z.T, atol=1e-9)
    assert_allclose(light.gram, z @ z.T, atol=1e-9)  # is read again


@pytest.mark.parametrize(("n", "v"), [(9, 30), (30, 9)])
@pytest.mark.parametrize("kernel", ["gaussian", "quadratic"])
def test_another_kernel_follows_from_the_same_products(rng, n, v, kernel):
    X, new = rng.normal(size=(n, v)), rng.normal(size=(4, v))
    direct = SubjectBasis(X, kernel=kernel, kernel_params={"hp": 20.0})
    linear = SubjectBasis(X)
    found = linear.with_kernel(kernel, {"hp": 20.0})
    assert_allclose(found.gram, direct.gram, atol=1e-9)
    assert_allclose(found.kernel_to(new), direct.kernel_to(new), atol=1e-9)
    back = found.with_kernel("linear")
    assert_allclose(back.gram, linear.gram, atol=1e-9)
    assert_allclose(back.combine(np.eye(n)), linear.combine(np.eye(n)), atol=1e-9)
    assert found.with_kernel(kernel, {"hp": 20.0}) is found
    assert linear.with_kernel("linear") is linear
    K = direct.gram
    assert_allclose(K.sum(axis=0), 0, atol=1e-9)  # centred in feature space
    assert_allclose(direct.gram_times(np.eye(n)), K, atol=1e-9)
    with pytest.raises(InputError, match="only the linear kernel has voxel weights"):
        found.combine(np.eye(n))


def test_bases_are_cut_without_reading_again(rng):
    X = rng.normal(size=(10, 40))
    basis = SubjectBasis(X, energy=0.9)
    assert not basis.is_decomposed
    smaller = basis.cut(0.5)
    assert basis.is_decomposed
    assert smaller.cut(0.5) is smaller
    assert smaller.n_kept < basis.n_kept
    assert_allclose(smaller.vectors, basis.vectors[:, : smaller.n_kept], rtol=0)
    larger = smaller.cut(1.0)
    fresh = SubjectBasis(X)
    assert larger.n_kept == fresh.n_kept == 9
    assert_allclose(larger.values, fresh.values, rtol=1e-10)
    assert_allclose(
        larger.vectors @ larger.vectors.T, fresh.vectors @ fresh.vectors.T, atol=1e-9
    )


def test_a_gram_matrix_may_be_given(rng):
    X, new = rng.normal(size=(8, 20)), rng.normal(size=(3, 20))
    K, cross = X @ X.T, new @ X.T
    basis = SubjectBasis(K, kernel="precomputed")
    H = np.eye(8) - 1 / 8
    assert_allclose(basis.gram, H @ K @ H, atol=1e-10)
    expected = (cross - K.mean(axis=0)) @ H
    assert_allclose(basis.kernel_to(cross), expected, atol=1e-10)
    assert not basis.is_linear
    assert basis.without_matrices() is basis
    with pytest.raises(InputError, match="is a Gram matrix: it has no voxels"):
        basis.products_with(new)
    with pytest.raises(InputError, match="cannot change its kernel"):
        basis.with_kernel("linear")
    with pytest.raises(InputError, match="samples x 8 columns, one array of one subj"):
        basis.kernel_to(cross[:, :5])
    for value in (np.nan, np.inf):
        bad = cross.copy()
        bad[1, 2] = value
        with pytest.raises(InputError, match=r"^new has NaN or infinite values"):
            basis.kernel_to(bad, "new")


def test_runs_are_of_every_sample(rng):
    X = rng.normal(size=(6, 4))
    assert SubjectBasis(X, runs=[1, 1, 1, 2, 2, 2]).runs.tolist() == [1] * 3 + [2] * 3
    assert SubjectBasis(X).runs is None
    for n in (5, 7):
        with pytest.raises(InputError, match=f"^X has 6 samples and {n} runs. Give"):
            SubjectBasis(X, runs=[1] * n)
