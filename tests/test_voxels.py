"""The pass over voxels: signatures, extreme scales, changed data."""

import numpy as np
import pytest

from brainweave import SubjectBasis
from brainweave import _arrays as arrays
from brainweave.voxels import same_samples, sample_signatures


@pytest.fixture
def X(rng):
    # raw fMRI values: a large mean that differs between voxels, little variance
    return rng.uniform(500, 1500, 700) + 10 * rng.standard_normal((40, 700))


def test_signatures_follow_each_sample_whatever_the_order_and_memory(X, rng):
    order = rng.permutation(len(X))
    expected = sample_signatures(X)
    assert expected.shape == (40, 4)
    np.testing.assert_allclose(sample_signatures(X[order]), expected[order], rtol=1e-9)
    np.testing.assert_allclose(
        sample_signatures(np.asfortranarray(X)), expected, rtol=1e-9
    )


def test_signatures_do_not_depend_on_the_chunks(X, monkeypatch):
    expected = sample_signatures(X)
    monkeypatch.setattr(arrays, "CHUNK_BYTES", 0)  # the narrowest chunks
    np.testing.assert_allclose(sample_signatures(X), expected, rtol=1e-9)


def test_signatures_of_models_on_disk_stay_valid():
    # the signs are fixed for good: files hold signatures
    X = np.eye(6, 300)
    assert sample_signatures(X).astype(int).tolist() == SIGNS
    assert abs(sample_signatures(np.ones((1, 10_000)))).max() < 400  # balanced


SIGNS = [
    [1, 1, 1, 1],
    [-1, -1, 1, -1],
    [1, 1, 1, 1],
    [-1, -1, 1, 1],
    [1, 1, -1, 1],
    [-1, 1, -1, 1],
]


@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.int16])
def test_same_samples_finds_exactly_the_samples_that_both_have(X, dtype):
    data = X.astype(dtype)
    a, b = sample_signatures(data[5:25]), sample_signatures(data[::-1][:25])
    assert same_samples(a, b).tolist() == [False] * 10 + [True] * 10


def test_same_samples_sees_through_single_precision_and_not_through_new_data(X, rng):
    signatures = sample_signatures(X)
    assert same_samples(sample_signatures(X.astype(np.float32)), signatures).all()
    shuffled = X[:, rng.permutation(X.shape[1])]
    other = X + rng.standard_normal(X.shape)
    for changed in (shuffled, other):
        assert not same_samples(sample_signatures(changed), signatures).any()


def test_same_samples_of_nothing_and_of_what_is_not_finite(X):
    signatures = sample_signatures(X)
    assert same_samples(signatures[:0], signatures).shape == (0,)
    assert not same_samples(signatures, signatures[:0]).any()
    broken = signatures.copy()
    broken[3, 1] = np.nan
    assert same_samples(broken, signatures).tolist() == [i != 3 for i in range(40)]
    assert same_samples(signatures, broken).tolist() == [i != 3 for i in range(40)]


@pytest.mark.parametrize("shape", [(40, 700), (40, 20)])
@pytest.mark.parametrize("kernel", ["linear", "gaussian"])
def test_a_basis_has_the_signatures_of_its_samples(X, kernel, shape):
    data = X[: shape[0], : shape[1]]
    basis = SubjectBasis(data, kernel=kernel)
    np.testing.assert_allclose(
        basis.signatures, sample_signatures(data), rtol=0, atol=1e-8
    )
    assert basis.cut(0.5).signatures is basis.signatures
    assert basis.with_kernel("quadratic").signatures is basis.signatures


def test_a_gram_matrix_has_the_signatures_of_its_rows(rng):
    half = rng.standard_normal((12, 30))
    gram = half @ half.T
    basis = SubjectBasis(gram, kernel="precomputed")
    np.testing.assert_array_equal(basis.signatures, sample_signatures(gram))
