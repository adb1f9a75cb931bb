"""The pass over voxels: signatures, extreme scales, changed data."""

import numpy as np
import pytest

from brainweave import SubjectBasis
from brainweave import _arrays as arrays
from brainweave.exceptions import InputError, SkippedWarning
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


# -- extreme scales --------------------------------------------------------------------


@pytest.mark.parametrize(
    ("dtype", "factor"),
    [
        (np.float32, 1e25),
        (np.float32, 1e-25),
        (np.float32, 1e30),
        (np.float64, 1e200),
        (np.float64, 1e-200),
    ],
)
@pytest.mark.parametrize("n_voxels", [60, 12])  # Gram matrix, covariance
def test_the_unit_of_the_voxels_does_not_matter(rng, dtype, factor, n_voxels):
    X = (rng.standard_normal((20, n_voxels)) + 3).astype(dtype)
    plain, scaled = SubjectBasis(X), SubjectBasis(X * dtype(factor))
    assert scaled.constant_voxels.size == 0
    rtol = 1000 * np.finfo(dtype).eps
    np.testing.assert_allclose(scaled.values, plain.values, rtol=rtol)
    np.testing.assert_allclose(
        scaled.weights(np.eye(scaled.n_kept, 2))[:, 0] ** 2,
        plain.weights(np.eye(plain.n_kept, 2))[:, 0] ** 2,
        atol=rtol,
    )


def test_voxels_of_different_units_go_together(rng):
    X = rng.standard_normal((20, 60)).astype(np.float32)
    mixed = X * np.float32(10.0) ** rng.integers(-25, 25, 60).astype(np.float32)
    np.testing.assert_allclose(
        SubjectBasis(mixed).values, SubjectBasis(X).values, rtol=1e-4
    )


@pytest.mark.parametrize("n_voxels", [60, 12])
def test_products_that_overflow_are_refused(rng, n_voxels):
    X = 1e200 * rng.standard_normal((20, n_voxels))
    with pytest.raises(InputError, match=r"X2: its values are too .* standardize"):
        SubjectBasis(X, standardize=False, name="X2")
    with pytest.raises(InputError, match="too large"):
        SubjectBasis(np.sign(X) * 1.7e308)


def test_a_voxel_whose_deviation_has_no_inverse_is_constant(rng):
    X = rng.standard_normal((20, 30)).astype(np.float32)
    X[:, 4] *= np.float32(1e-40)
    assert SubjectBasis(X).constant_voxels.tolist() == [4]


def test_single_precision_means_are_corrected(rng):
    # raw values: a mean in float32 is off by rounding, 1000 times a voxel's deviation
    X = (1e5 + 0.05 * rng.standard_normal((4000, 3))).astype(np.float32)
    exact = X.astype(np.float64)
    basis = SubjectBasis(X)
    np.testing.assert_allclose(basis.mean, exact.mean(axis=0), rtol=1e-10)
    np.testing.assert_allclose(basis.scale, exact.std(axis=0), rtol=1e-4)


def test_many_constant_voxels_are_told(rng):
    X = rng.standard_normal((20, 30))
    X[:, :16] = 7
    with pytest.warns(SkippedWarning, match="X: 16 of its 30 voxels are constant"):
        SubjectBasis(X)


# -- data that changed after the fit ---------------------------------------------------


def swap_rows(X):
    X[[4, 11]] = X[[11, 4]]


def swap_voxels(X):
    X[:, [4, 11]] = X[:, [11, 4]]


def clean(X):
    X -= X.mean(axis=1, keepdims=True)


def change_one_value(X):
    X[3, 5] += 1


@pytest.mark.parametrize("change", [swap_rows, swap_voxels, clean, change_one_value])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("read", ["combine", "products_with", "chunks"])
def test_data_changed_in_place_are_refused(X, change, dtype, read):
    data = X.astype(dtype)
    basis = SubjectBasis(data)
    again = {
        "combine": lambda: basis.combine(np.eye(40, 2)),
        "products_with": lambda: basis.products_with(X[:3]),
        "chunks": lambda: list(basis.chunks()),
    }[read]
    again()
    change(data)
    with pytest.raises(InputError, match=r"X was changed in place .* Fit again"):
        again()


def test_the_error_says_which_samples_changed(X):
    basis = SubjectBasis(X)
    swap_rows(X)
    with pytest.raises(InputError, match=r"\(2 of 40 samples, first sample 4\)"):
        basis.combine(np.eye(40, 2))
