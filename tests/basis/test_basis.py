import numpy as np
import pytest
from numpy.testing import assert_allclose
from sklearn.decomposition import PCA, KernelPCA

from brainweave import SubjectBasis
from brainweave._core.exceptions import InputError
from brainweave.basis.basis import _n_for_energy, recall
from brainweave.basis.reliability import repeated_groups, scale_of_chunks


def z(X):
    return (X - X.mean(0)) / X.std(0)


@pytest.mark.parametrize("shape", [(30, 100), (60, 25), (40, 5000)])
@pytest.mark.parametrize("order", ["C", "F"])
def test_coordinates_are_principal_components(rng, shape, order):
    X = np.asarray(
        rng.normal(size=shape) + 100 * rng.normal(size=shape[1]), order=order
    )
    basis = SubjectBasis(X, energy=0.6)
    scores = PCA(basis.n_kept, svd_solver="full").fit_transform(z(X))
    signs = np.sign((scores * basis.coordinates).sum(axis=0))
    assert_allclose(basis.coordinates * signs, scores, atol=1e-8)
    assert_allclose(basis.gram, z(X) @ z(X).T, atol=1e-8 * shape[1])


@pytest.mark.parametrize("shape", [(150, 400), (400, 150)])
def test_vectors_beyond_the_energy_are_computed_when_asked_for(rng, shape):
    X = rng.normal(size=shape)
    whole, some = SubjectBasis(X), SubjectBasis(X, energy=0.3)
    assert some.eigenbasis().vectors.shape[1] == some.n_kept < whole.n_kept / 2
    assert_allclose(some.spectrum, whole.spectrum, rtol=1e-10)
    for energy in (0.1, 0.3, 0.7, 1.0):
        ours, theirs = some.cut(energy), whole.cut(energy)
        signs = np.sign((ours.vectors * theirs.vectors).sum(axis=0))
        assert_allclose(ours.vectors * signs, theirs.vectors, atol=1e-9)


def test_nonlinear_coordinates_are_kernel_principal_components(rng):
    X = rng.normal(size=(30, 50))
    basis = SubjectBasis(X, kernel="gaussian", kernel_params={"hp": 60}, energy=0.5)
    reference = KernelPCA(basis.n_kept, kernel="rbf", gamma=1 / 60).fit(z(X))
    assert_allclose(basis.values, reference.eigenvalues_, rtol=1e-9)
    new = rng.normal(size=(4, 50))
    expected = reference.transform((new - X.mean(0)) / X.std(0))
    assert_allclose(np.abs(basis.project(new)), np.abs(expected), atol=1e-9)


@pytest.mark.parametrize("shape", [(30, 100), (60, 25)])
def test_vectors_are_orthonormal(rng, shape):
    basis = SubjectBasis(rng.normal(size=shape))
    assert_allclose(basis.vectors.T @ basis.vectors, np.eye(basis.n_kept), atol=1e-11)
    assert basis.n_kept == min(shape[0] - 1, shape[1])


@pytest.mark.parametrize("scale", [np.logspace(0, -6, 20), [1] + [1e-5] * 19])
def test_vectors_stay_orthonormal_when_the_covariance_is_ill_conditioned(rng, scale):
    turn = np.linalg.qr(rng.normal(size=(20, 20)))[0]
    X = (rng.normal(size=(80, 20)) * scale) @ turn
    basis = SubjectBasis(X, standardize=False)
    assert basis.uses_covariance
    centred = X - X.mean(axis=0)
    found = basis.coordinates @ basis.coordinates.T
    assert_allclose(found, centred @ centred.T, atol=1e-10)
    assert_allclose(basis.vectors.T @ basis.vectors, np.eye(basis.n_kept), atol=1e-10)


def test_covariance_and_gram_routes_agree(rng):
    X = rng.normal(size=(60, 25))
    narrow = SubjectBasis(X, energy=0.7)
    wide = SubjectBasis(np.hstack([X, np.ones((60, 60))]), energy=0.7)  # constants
    assert narrow.uses_covariance
    assert not wide.uses_covariance
    assert_allclose(narrow.values, wide.values, rtol=1e-9)
    assert_allclose(np.abs((narrow.vectors * wide.vectors).sum(0)), 1, rtol=1e-8)


@pytest.mark.parametrize("energy", [0.01, 0.35, 0.82, 0.999, 1.0])
def test_energy_is_the_smallest_number_that_reaches_the_share(rng, energy):
    basis = SubjectBasis(rng.normal(size=(40, 200)), energy=energy)
    share = np.cumsum(np.sqrt(basis.spectrum)) / np.sqrt(basis.spectrum).sum()
    assert share[basis.n_kept - 1] >= energy - 1e-9
    assert basis.n_kept == 1 or share[basis.n_kept - 2] < energy


def test_cutting_computes_nothing_again(rng):
    X = rng.normal(size=(40, 200))
    basis = SubjectBasis(X, energy=0.9)
    lower = basis.cut(0.4)
    assert lower.eigenbasis() is basis.eigenbasis()
    assert lower.n_kept == SubjectBasis(X, energy=0.4).n_kept
    assert basis.energy == 0.9  # the original is untouched


def test_kernels_share_one_pass(rng):
    X = rng.normal(size=(30, 90))
    linear = SubjectBasis(X)
    for name, hp in (("gaussian", 90.0), ("quadratic", 10.0), ("sigmoid", 50.0)):
        params = {"hp": hp}
        again = linear.with_kernel(name, params)
        fresh = SubjectBasis(X, kernel=name, kernel_params=params)
        assert_allclose(again.gram, fresh.gram, atol=1e-9)
        assert_allclose(again.with_kernel("linear").gram, linear.gram, atol=1e-12)


def test_a_basis_that_was_used_hands_on_no_means_of_its_kernel(rng):
    """Else the features of a method would depend on which methods ran before it."""
    X, Z = rng.normal(size=(2, 30, 90))
    params = {"hp": 90.0}
    fresh = SubjectBasis(X, kernel="gaussian", kernel_params=params)
    linear = SubjectBasis(X)
    linear.kernel_to(Z)
    again = linear.with_kernel("gaussian", params)
    assert_allclose(again.kernel_to(Z), fresh.kernel_to(Z), atol=1e-12)
    back = again.with_kernel("linear")
    assert_allclose(back.kernel_to(Z), linear.kernel_to(Z), atol=1e-10)


@pytest.mark.parametrize("standardize", [True, "reliability"])
def test_few_voxels_of_float32_are_kept_so_and_multiply_in_float64(rng, standardize):
    X = (rng.normal(size=(300, 40)) + 500).astype(np.float32)
    how = {"standardize": standardize, "groups": np.arange(300) % 5}
    basis = SubjectBasis(X, **how)
    assert basis._narrow.dtype == np.float32
    assert basis.narrow.dtype == basis.in_places(None).dtype == np.float64
    exact = basis._narrow.astype(np.float64)
    S = rng.normal(size=(300, 3))
    for found, expected in (
        (basis.products(), exact @ exact.T),
        (basis.gram_times(S), exact @ (exact.T @ S)),
        (basis.power, (exact**2).sum()),
        (basis.values, np.linalg.eigvalsh(exact.T @ exact)[::-1]),
    ):
        assert_allclose(found, expected, rtol=1e-10, atol=1e-9)
    double = SubjectBasis(X.astype(np.float64), **how)
    assert_allclose(basis.narrow, double.narrow, atol=1e-4)


def test_narrow_data_change_their_kernel_and_back(rng):
    X = rng.normal(size=(50, 20))
    linear = SubjectBasis(X, energy=0.7)
    gaussian = linear.with_kernel("gaussian", {"hp": 20})
    fresh = SubjectBasis(X, kernel="gaussian", kernel_params={"hp": 20}, energy=0.7)
    assert_allclose(gaussian.values, fresh.values, rtol=1e-8)
    assert_allclose(fresh.with_kernel("linear").values, linear.values, rtol=1e-8)


def test_centred_samples_reach_the_kernel_without_standardisation(rng):
    X = rng.normal(size=(20, 40)) + 2
    basis = SubjectBasis(
        X, kernel="quadratic", kernel_params={"hp": 1}, standardize=False
    )
    centred = X - X.mean(axis=0)
    gram = (centred @ centred.T + 1) ** 2
    H = np.eye(20) - 1 / 20
    assert_allclose(basis.gram, H @ gram @ H, rtol=1e-9, atol=1e-6)


def test_float32_multiplies_in_float32_and_accumulates_in_float64(rng):
    X = (rng.normal(size=(40, 6000)) + 500 * rng.uniform(size=6000)).astype(np.float32)
    basis = SubjectBasis(X)
    exact = z(X.astype(np.float64))
    assert basis.gram.dtype == np.float64
    assert_allclose(basis.gram, exact @ exact.T, atol=1e-5 * 6000)
    assert_allclose(basis.mean, X.mean(0, dtype=np.float64), rtol=1e-6)
    assert basis.weights(np.ones((basis.n_kept, 2))).dtype == np.float32


def test_integers_and_booleans_work(rng):
    X = rng.integers(0, 100, size=(20, 30))
    assert_allclose(SubjectBasis(X).gram, SubjectBasis(X.astype(float)).gram)


def test_memory_maps_and_hdf5_stream(rng, tmp_path):
    import h5py

    X = rng.normal(size=(30, 5000))
    np.save(tmp_path / "x.npy", X)
    with h5py.File(tmp_path / "x.h5", "w") as file:
        file["x"] = X
        expected = SubjectBasis(X)
        for source in (np.load(tmp_path / "x.npy", mmap_mode="r"), file["x"]):
            basis = SubjectBasis(source)
            assert_allclose(basis.gram, expected.gram, atol=1e-9)
            coef = np.eye(basis.n_kept, 2)
            assert_allclose(
                np.abs(basis.weights(coef)), np.abs(expected.weights(coef)), atol=1e-9
            )


def test_memory_map_pages_leave_the_process(rng, tmp_path):
    """The pass over a map must not keep the whole file resident."""
    psutil = pytest.importorskip("psutil", reason="psutil measures resident memory")
    X = rng.normal(size=(100, 100_000)).astype(np.float32)  # 40 MB
    np.save(tmp_path / "x.npy", X)
    del X
    mapped = np.load(tmp_path / "x.npy", mmap_mode="r")
    SubjectBasis(mapped[:, :5000].copy())  # warm up BLAS
    before = psutil.Process().memory_info().rss
    SubjectBasis(mapped)
    assert psutil.Process().memory_info().rss - before < 20e6


def test_constant_voxels_are_recorded_and_left_out(rng):
    X = rng.normal(size=(20, 30))
    X[:, [3, 17]] = 1e6 / 3
    basis = SubjectBasis(X)
    assert basis.constant_voxels.tolist() == [3, 17]
    rest = SubjectBasis(np.delete(X, [3, 17], axis=1))
    assert_allclose(basis.gram, rest.gram, atol=1e-9)


def test_zero_eigenvalues_are_excluded(rng):
    X = rng.normal(size=(20, 3)) @ rng.normal(size=(3, 50))
    for dtype in (np.float64, np.float32):
        assert SubjectBasis(X.astype(dtype)).n_kept == 3


def test_one_direction_suffices_and_none_is_refused(rng):
    X = np.outer(rng.normal(size=10), rng.normal(size=30))
    assert SubjectBasis(X, standardize=False).n_kept == 1
    basis = SubjectBasis(X, kernel=lambda a, b: np.ones((len(a), len(b))))
    with pytest.raises(InputError, match="gives the same value for all samples"):
        _ = basis.n_kept


def test_a_precomputed_gram_matrix_stands_for_its_samples(rng):
    X = z(rng.normal(size=(10, 20)))
    basis, linear = SubjectBasis(X @ X.T, kernel="precomputed"), SubjectBasis(X)
    assert_allclose(basis.gram, linear.gram, atol=1e-10)
    assert_allclose(basis.values, linear.values, rtol=1e-9)
    assert basis.constant_voxels.size == 0


@pytest.mark.parametrize("shape", [(24, 60), (24, 10)])  # Gram matrix, covariance
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_voxels_count_by_how_reliable_they_are(rng, shape, dtype):
    groups = np.arange(24) % 4
    X = rng.normal(size=shape)
    X[:, ::2] += 3 * rng.normal(size=(4, shape[1] // 2))[groups]
    X = np.column_stack([X, groups]).astype(dtype)  # groups alone: nothing to judge by
    basis = SubjectBasis(X, standardize="reliability", groups=groups)
    chunks = [(slice(None), z(X))]
    weight = 1 / scale_of_chunks(chunks, X.shape[1], repeated_groups(groups))
    assert basis.reliable
    assert np.median(weight[:-1:2]) > np.median(weight[1:-1:2])
    assert basis.constant_voxels.tolist() == [X.shape[1] - 1]
    weighed = z(X).astype(np.float64) * weight
    rtol = 1e-4 if dtype == np.float32 else 1e-9
    assert_allclose(basis.gram, weighed @ weighed.T, atol=rtol * shape[1])
    new = rng.normal(size=(3, X.shape[1]))
    expected = ((new - X.mean(0)) / X.std(0) * weight) @ weighed.T
    assert_allclose(
        basis.products_with(new.astype(dtype)).cross, expected, atol=rtol * shape[1]
    )


def test_only_the_linear_kernel_has_weights_of_voxels(rng):
    basis = SubjectBasis(rng.normal(size=(10, 30)), kernel="gaussian")
    with pytest.raises(InputError, match="only the linear kernel has"):
        basis.weights(np.ones((basis.n_kept, 1)))


@pytest.mark.parametrize("standardize", [True, False])
def test_groups_weigh_voxels_only_if_asked(rng, standardize):
    X = rng.normal(size=(24, 60))
    basis = SubjectBasis(X, standardize=standardize, groups=np.arange(24) % 4)
    assert not basis.reliable
    assert_allclose(basis.gram, SubjectBasis(X, standardize=standardize).gram)


def test_a_precomputed_kernel_cannot_change(rng):
    X = rng.normal(size=(10, 20))
    basis = SubjectBasis(X @ X.T, kernel="precomputed")
    with pytest.raises(InputError, match="cannot change its kernel"):
        basis.with_kernel("linear")


@pytest.mark.parametrize("shape", [(30, 100), (60, 25)])
@pytest.mark.parametrize("energy", [0.5, 1.0])
def test_the_gram_matrix_as_an_operator_is_the_kept_one(rng, shape, energy):
    basis, S = (
        SubjectBasis(rng.normal(size=shape), energy=energy),
        rng.normal(size=shape),
    )
    kept = (basis.vectors * basis.values) @ basis.vectors.T
    assert_allclose(basis.gram_times(S), kept @ S, atol=1e-8)
    assert_allclose(basis.power, np.trace(kept), rtol=1e-9)
    assert_allclose(basis.gram @ basis.restrict(S), kept @ S, atol=1e-8)
    assert (basis.restrict(S) is S) == (energy == 1)


def test_a_gram_matrix_has_no_products_with_other_samples(rng):
    X = rng.normal(size=(10, 20))
    basis = SubjectBasis(X @ X.T, kernel="precomputed")
    with pytest.raises(InputError, match="is a Gram matrix: it has no voxels"):
        basis.products_with(X)


# -- kernels at the edge ---------------------------------------------------------------


def reference_projection(kernel, X, Z):
    """Centred Gram matrix, and centred kernel of other samples, straight from rows."""
    gram, cross = kernel(X, X), kernel(Z, X)
    means, grand = gram.mean(0), gram.mean()
    centred = gram - means - means[:, None] + grand
    return centred, cross - cross.mean(1, keepdims=True) - means + grand


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize(
    ("name", "hp", "kernel"),
    [
        ("quadratic", 50.0, lambda a, b: (a @ b.T + 50) ** 2),
        ("sigmoid", 4e3, lambda a, b: np.tanh(a @ b.T / 4e3)),
        (
            "gaussian",
            90.0,
            lambda a, b: np.exp(-((a[:, None] - b[None]) ** 2).sum(2) / 90),
        ),
    ],
)
def test_without_standardising_kernels_see_the_centred_samples(
    rng, dtype, name, hp, kernel
):
    mean, spread = 4 * rng.standard_normal(70), rng.uniform(0.5, 2, 70)
    X, Z = (mean + spread * rng.standard_normal((n, 70)) for n in (30, 9))
    gram, cross = reference_projection(kernel, X - X.mean(0), Z - X.mean(0))
    params = {"kernel": name, "kernel_params": {"hp": hp}, "standardize": False}
    basis = SubjectBasis(X.astype(dtype), **params)
    rtol = 1e-9 if dtype == np.float64 else 1e-3
    assert_allclose(basis.gram, gram, atol=rtol * np.abs(gram).max())
    ours = basis.kernel_to(Z.astype(dtype))
    assert_allclose(ours, cross, atol=rtol * np.abs(cross).max())


@pytest.mark.parametrize("kernel", ["gaussian", "quadratic", "sigmoid"])
@pytest.mark.parametrize("hp", [1e12, 1e18, 1e100])
def test_a_huge_hp_makes_every_kernel_linear(rng, kernel, hp):
    # their first term in 1 / hp (or hp) is the inner product
    X, Z = rng.standard_normal((25, 60)), rng.standard_normal((5, 60))
    linear = SubjectBasis(X)
    basis = SubjectBasis(X, kernel=kernel, kernel_params={"hp": hp})
    assert basis.n_kept == linear.n_kept == 24
    shares = [b.values / b.values.sum() for b in (linear, basis)]
    assert_allclose(*shares, rtol=1e-6)
    ours, expected = basis.kernel_to(Z), linear.kernel_to(Z)
    assert_allclose(ours / np.ptp(ours), expected / np.ptp(expected), atol=1e-6)


def test_an_hp_that_overflows_is_refused(rng):
    X = rng.standard_normal((25, 60))
    with pytest.raises(InputError, match=r"quadratic kernel overflows with hp=1e\+308"):
        _ = SubjectBasis(X, kernel="quadratic", kernel_params={"hp": 1e308}).gram
    X[3] *= 1e80  # of which the square overflows
    with pytest.raises(InputError, match="quadratic kernel overflows with hp=100"):
        _ = SubjectBasis(X, kernel="quadratic", standardize=False).gram


def test_a_kernel_to_which_no_two_samples_are_alike_is_refused(rng):
    X = rng.standard_normal((25, 60))
    with pytest.raises(InputError, match=r"finds no two samples alike .* larger hp"):
        _ = SubjectBasis(X, kernel="gaussian", kernel_params={"hp": 0.5}).gram
    with pytest.raises(InputError, match="finds no two samples alike"):
        _ = SubjectBasis(X, kernel=lambda a, b: np.eye(len(a), len(b))).gram


@pytest.mark.parametrize("unit", [1e-6, 1.0, 1e6])
def test_how_alike_samples_are_does_not_depend_on_the_unit_of_a_kernel(rng, unit):
    X = rng.standard_normal((25, 60))

    def kernel(share):
        return lambda a, b: unit * (np.eye(len(a), len(b)) + share * a @ b.T / 60)

    with pytest.raises(InputError, match="finds no two samples alike"):
        _ = SubjectBasis(X, kernel=kernel(1e-10)).gram
    assert SubjectBasis(X, kernel=kernel(1e-6)).gram.max() > 0.5 * unit


def with_nan(a, b):
    values = a @ b.T
    values[0, -1] = np.nan
    return values


@pytest.mark.parametrize(
    ("kernel", "message"),
    [
        (with_nan, "kernel callable gave NaN or infinite values for X"),
        (lambda a, b: np.triu(a @ b.T), "not symmetric"),
        (
            lambda a, b: a @ b[:3].T,
            r"gave shape \(25, 3\) in place of \(25, 25\) for X",
        ),
    ],
)
def test_what_a_callable_kernel_gives_is_checked(rng, kernel, message):
    with pytest.raises(InputError, match=message):
        _ = SubjectBasis(rng.standard_normal((25, 60)), kernel=kernel).gram


def test_what_a_callable_kernel_gives_is_not_changed(rng):
    X = rng.standard_normal((25, 60))
    kept = X @ X.T + 1
    given = kept.copy()
    basis = SubjectBasis(X, kernel=lambda a, b: kept)
    assert_allclose(basis.gram.mean(0), 0, atol=1e-9)
    np.testing.assert_array_equal(kept, given)


def test_a_callable_kernel_compares_new_samples_with_the_aligning_ones(rng):
    X, Z = rng.standard_normal((25, 60)), rng.standard_normal((4, 60))
    by_name, basis = SubjectBasis(X), SubjectBasis(X, kernel=lambda a, b: a @ b.T)
    assert_allclose(basis.kernel_to(Z), by_name.kernel_to(Z), atol=1e-10)


def test_what_a_callable_kernel_gives_for_new_samples_is_checked(rng):
    X = rng.standard_normal((25, 60))

    def kernel(a, b):
        return a @ b.T if len(a) == len(b) else with_nan(a, b)

    basis = SubjectBasis(X, kernel=kernel)
    with pytest.raises(InputError, match=r"kernel callable gave NaN .* for Z"):
        basis.kernel_to(X[:4])
    with pytest.raises(InputError, match="Z has NaN or infinite values"):
        basis.kernel_to(np.where(np.arange(60) == 7, np.nan, X))


@pytest.mark.parametrize(("apart", "kept"), [(1e-7, 1), (1e-10, 2)])
def test_eigenvalues_are_equal_up_to_a_billionth_of_the_largest(apart, kept):
    values = np.array([3.0, 3.0 * (1 - apart), 1.0])
    assert _n_for_energy(0.1, values, np.float64) == kept


def test_only_the_linear_kernel_is_of_voxels_as_they_are(rng):
    X = rng.normal(size=(12, 9))
    assert SubjectBasis(X).is_linear
    assert not SubjectBasis(X, kernel="gaussian").is_linear
    assert not SubjectBasis(X @ X.T, kernel="precomputed").is_linear


@pytest.mark.parametrize("standardize", [True, False])
def test_one_sample_that_is_not_finite_is_refused_by_any_kernel(rng, standardize):
    X = rng.normal(size=(12, 9))
    Z = X[:3].copy()
    Z[1, 4] = np.nan
    for kernel in ("gaussian", "sigmoid"):
        basis = SubjectBasis(X, kernel=kernel, standardize=standardize)
        with pytest.raises(InputError, match="NaN or infinite"):
            basis.kernel_to(Z)


def test_runs_are_told_for_every_sample(rng):
    X = rng.normal(size=(12, 9))
    assert SubjectBasis(X, runs=[1] * 12).runs.tolist() == [1] * 12
    with pytest.raises(InputError, match="X has 12 samples and 11 runs"):
        SubjectBasis(X, runs=[1] * 11)


def test_the_smaller_of_two_matrices_is_decomposed(rng):
    sizes = [SubjectBasis(rng.normal(size=(12, v))).uses_covariance for v in (11, 12)]
    assert sizes == [True, False]
    narrow = SubjectBasis(rng.normal(size=(12, 5)), kernel="gaussian")
    assert not narrow.uses_covariance


def test_samples_of_other_voxels_are_refused_by_every_kernel(rng):
    X = rng.normal(size=(12, 9))
    for kernel in ("linear", "gaussian", lambda a, b: a @ b[:, : a.shape[1]].T):
        basis = SubjectBasis(X, kernel=kernel)
        with pytest.raises(
            InputError, match=r"samples x 9 voxels.*got shape \(12, 8\)"
        ):
            basis.kernel_to(X[:, :8])
    basis = SubjectBasis(X @ X.T, kernel="precomputed")
    with pytest.raises(InputError, match="Z must be samples x 12 columns"):
        basis.kernel_to(X[:3] @ X[:11].T)
    with pytest.raises(InputError, match="Z has NaN or infinite values"):
        basis.kernel_to(np.full((2, 12), np.nan))


def test_a_precomputed_kernel_maps_new_samples_by_their_products(rng):
    X, Z = z(rng.normal(size=(12, 9))), rng.normal(size=(4, 9))
    basis, linear = SubjectBasis(X @ X.T, kernel="precomputed"), SubjectBasis(X)
    assert_allclose(basis.kernel_to(Z @ X.T), linear.kernel_to(Z), atol=1e-10)


def test_products_are_of_no_use_to_a_kernel_of_samples(rng):
    X = rng.normal(size=(12, 9))
    products = SubjectBasis(X).products_with(X[:3])
    by_function = SubjectBasis(X, kernel=lambda a, b: a @ b.T)
    with pytest.raises(InputError, match="got a SampleProducts"):
        by_function.kernel_to(products)
    for name in ("linear", "quadratic", "gaussian", "sigmoid"):
        params = None if name == "linear" else {"hp": 9.0}
        basis = SubjectBasis(X, kernel=name, kernel_params=params)
        assert_allclose(basis.kernel_to(products), basis.kernel_to(X[:3]), atol=1e-12)


@pytest.mark.parametrize("shape", [(24, 60), (24, 10)])
def test_a_light_basis_computes_again_what_it_gave_up(rng, shape):
    basis = SubjectBasis(rng.normal(size=shape))
    gram, values = basis.gram.copy(), basis.values
    light = basis.without_matrices()
    assert basis.is_decomposed
    assert not light.is_decomposed
    assert_allclose(light.products(), gram, atol=1e-9)
    assert basis.values is not None
    assert_allclose(basis.values, values)
    other = SubjectBasis(rng.normal(size=shape), kernel=lambda a, b: a @ b.T)
    assert other.without_matrices() is other


def test_a_kernel_tells_which_share_of_it_is_lost(rng):
    X = rng.normal(size=(20, 30))
    assert SubjectBasis(X).lost_share == 0
    values = np.r_[4.0, 3.0, 2.0, -1.0, np.zeros(15)]
    H = np.linalg.qr(np.c_[np.ones(20), rng.normal(size=(20, 19))])[0][:, 1:]
    basis = SubjectBasis((H * values) @ H.T, kernel="precomputed")
    assert_allclose(basis.lost_share, 1 / 10, rtol=1e-9)
    assert_allclose(basis.spectrum, [4, 3, 2], rtol=1e-9)


def test_a_memory_keeps_the_last_two_of_a_kind():
    made, memory = [], {}

    def make():
        made.append(len(made))
        return made[-1]

    assert [recall(memory, "halves", key, make) for key in "aba"] == [0, 1, 0]
    assert recall(memory, "others", "a", make) == 2
    assert [recall(memory, "halves", key, make) for key in "cba"] == [3, 1, 4]
    assert [recall(None, "halves", "c", make) for _ in "cc"] == [5, 6]
