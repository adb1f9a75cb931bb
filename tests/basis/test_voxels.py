"""The pass over voxels: signatures, extreme scales, changed data."""

import os
import pickle
import subprocess
import sys
from pathlib import Path

import joblib
import numpy as np
import pytest
from numpy.testing import assert_allclose

from brainweave import GDM, Study, Subject, SubjectBasis
from brainweave._core import arrays as arrays
from brainweave._core.arrays import as_sendable, backing_map
from brainweave._core.exceptions import InputError, SkippedWarning
from brainweave.basis.voxels import same_samples, sample_signatures
from evaluation_studies import three_subjects


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


def test_values_that_are_not_finite_count_as_zero_in_signatures(X):
    broken, blank = X.copy(), X.copy()
    broken[[2, 5, 9], [7, 300, 12]] = [np.nan, np.inf, -np.inf]
    blank[[2, 5, 9], [7, 300, 12]] = 0
    found = sample_signatures(broken)
    np.testing.assert_allclose(found, sample_signatures(blank), rtol=1e-9)


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


def test_the_first_value_that_is_not_finite_is_named(X):
    X[[3, 8], [650, 20]] = np.nan
    with pytest.raises(InputError, match=r"first at sample 3, voxel 650\. Mask"):
        SubjectBasis(X)


def test_a_voxel_whose_deviation_has_no_inverse_is_constant(rng):
    X = rng.standard_normal((20, 30)).astype(np.float32)
    X[:, 4] *= np.float32(1e-40)
    assert SubjectBasis(X).constant_voxels.tolist() == [4]


@pytest.mark.parametrize("shape", [(40, 12), (20, 30)])  # covariance, Gram matrix
def test_a_voxel_that_only_rounding_moves_adds_nothing_however_large_it_is(rng, shape):
    X = rng.standard_normal(shape)
    X[:, 4] = 1e20 / 3
    X[::2, 4] = np.nextafter(1e20 / 3, np.inf)
    basis, rest = SubjectBasis(X), SubjectBasis(np.delete(X, 4, axis=1))
    assert basis.constant_voxels.tolist() == [4]
    assert_allclose(basis.gram, rest.gram, atol=1e-9)
    assert_allclose(basis.values, rest.values, rtol=1e-9)


def test_single_precision_means_are_corrected(rng):
    # raw values: a mean in float32 is off by rounding, 1000 times a voxel's deviation
    X = (1e5 + 0.05 * rng.standard_normal((4000, 3))).astype(np.float32)
    exact = X.astype(np.float64)
    basis = SubjectBasis(X)
    np.testing.assert_allclose(basis.mean, exact.mean(axis=0), rtol=1e-10)
    np.testing.assert_allclose(basis.scale, exact.std(axis=0), rtol=1e-4)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize(
    "means", [0.0, 0.5, 3.0, 1e3, 1e5], ids=lambda m: f"means of {m:g}"
)
@pytest.mark.parametrize("order", ["C", "F"])
def test_centring_the_gram_matrix_is_as_good_as_centring_voxels(
    rng, dtype, means, order, monkeypatch
):
    # from none to all voxels with a mean beyond which centring the matrix loses digits
    monkeypatch.setattr(arrays, "CHUNK_BYTES", 0)
    X = rng.standard_normal((40, 900)) * rng.uniform(0.1, 10, 900)
    X += means * rng.standard_normal(900) * X.std(axis=0)
    X[:, 300:320] += 1e4  # few such voxels in a chunk
    X[:, [5, 310, 700]] = [0.0, 7.0, -1e3]
    X = np.asarray(X.astype(dtype), order=order)
    exact = X.astype(np.longdouble)
    exact -= exact.mean(axis=0)
    deviations = np.sqrt((exact**2).mean(axis=0))
    moving = np.setdiff1d(np.arange(900), [5, 310, 700])
    z = exact[:, moving] / deviations[moving]
    expected = (z @ z.T).astype(np.float64)
    basis = SubjectBasis(X)
    assert basis.constant_voxels.tolist() == [5, 310, 700]
    eps = np.finfo(dtype).eps
    atol = 20 * eps * expected.diagonal().max()
    np.testing.assert_allclose(basis.gram, expected, rtol=0, atol=atol)
    scales = deviations[moving].astype(np.float64)
    np.testing.assert_allclose(basis.scale[moving], scales, rtol=40 * eps)
    mean = X.astype(np.longdouble).mean(axis=0).astype(np.float64)
    off = np.abs(basis.mean - mean)[moving]
    limit = 20 * eps * scales + 4 * np.finfo(float).eps * np.abs(mean[moving])
    assert (off <= limit).all()


def test_many_constant_voxels_are_told(rng):
    X = [rng.standard_normal((20, 30)) for _ in range(3)]
    X[1][:, :16] = 7
    X[2][:, :15] = 7  # half of them: may be
    y = [np.arange(20) % 4] * 3
    told = r"X\[1\]: 16 of its 30 voxels are constant .* \(1 of 3 subjects\)"
    with pytest.warns(SkippedWarning, match=told) as caught:
        gdm = GDM(2).fit(X, y)
    assert [w.filename for w in caught] == [__file__]
    assert gdm.bases_[1].constant_voxels.tolist() == list(range(16))
    with pytest.warns(SkippedWarning, match="new subject: 16 of its 30 voxels"):
        gdm.fit_new_subject(X[1], y[1])


@pytest.mark.parametrize("standardize", [True, False])
def test_chunks_are_the_samples_standardised(X, standardize, monkeypatch):
    monkeypatch.setattr(arrays, "CHUNK_BYTES", 0)
    basis = SubjectBasis(X, standardize=standardize)
    columns, parts = zip(*basis.chunks(), strict=True)
    assert len(columns) > 1
    expected = X - X.mean(axis=0)
    if standardize:
        expected /= X.std(axis=0)
    assert_allclose(np.hstack(parts), expected, atol=1e-9)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("standardize", [True, False])
@pytest.mark.parametrize("n_large", [0, 20, 400])
def test_products_and_mixtures_whatever_the_means(rng, dtype, standardize, n_large):
    """None, few or most of the voxels have a mean far above their deviation."""
    mean, deviation = rng.normal(size=500), rng.uniform(0.5, 3, 500)
    mean[rng.permutation(500)[:n_large]] += 300
    X = (mean + deviation * rng.normal(size=(40, 500))).astype(dtype)
    exact = X.astype(np.float64)
    z = exact - exact.mean(axis=0)
    z = z / exact.std(axis=0) if standardize else z
    basis = SubjectBasis(X, standardize=standardize)
    tol = 1e-10 if dtype == np.float64 else 2e-4
    assert_allclose(basis.gram, z @ z.T, atol=tol * np.abs(z @ z.T).max())
    # not centred: the mean of the voxels must come off it
    mixing = rng.normal(size=(40, 3)) + 1
    found = basis.combine(mixing)
    assert_allclose(found, z.T @ mixing, atol=tol * np.abs(z.T @ mixing).max())


# -- data that changed after the fit ---------------------------------------------------


MIXING = np.random.default_rng(7).normal(size=(40, 2))


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
        "combine": lambda: basis.combine(MIXING),
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
        basis.combine(MIXING)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_any_change_is_refused_also_of_samples_that_a_mixture_leaves_out(X, dtype):
    data = X.astype(dtype)
    basis = SubjectBasis(data)
    of_two = np.eye(40, 2)
    basis.combine(of_two)
    data[30:] *= 2
    with pytest.raises(InputError, match=r"\(10 of 40 samples, first sample 30\)"):
        basis.combine(of_two)
    seen = 1e-6 if dtype == np.float64 else 10  # of values of a thousand
    for change in (seen, np.nan):
        data[:] = X
        data[1, 3] += change
        with pytest.raises(InputError, match=r"\(1 of 40 samples, first sample 1\)"):
            basis.combine(of_two)


# -- memory maps -----------------------------------------------------------------------


def mapped(tmp_path, X, mode):
    np.save(tmp_path / "x.npy", X)
    return np.load(tmp_path / "x.npy", mmap_mode=mode)


def replace_file(tmp_path, X):
    np.save(tmp_path / "new.npy", X)
    (tmp_path / "new.npy").replace(tmp_path / "x.npy")


def as_view(X):
    return np.asarray(X)  # what a Study gives


@pytest.mark.parametrize("view", [lambda X: X, as_view])
def test_a_map_cleaned_in_memory_is_read_as_it_was_cleaned(tmp_path, X, view):
    held = mapped(tmp_path, X, "c")
    held -= held.mean(axis=1, keepdims=True)
    for _ in range(2):  # the first pass must not drop what exists nowhere else
        basis = SubjectBasis(view(held))
        np.testing.assert_array_equal(basis.mean, SubjectBasis(np.array(held)).mean)
    np.testing.assert_array_equal(np.load(tmp_path / "x.npy"), X)


@pytest.mark.parametrize("mode", ["r", "c", "r+"])
def test_a_map_whose_file_was_replaced_stays_what_it_was(tmp_path, X, mode):
    held = mapped(tmp_path, X, mode)
    replace_file(tmp_path, X[::-1] ** 2)
    basis = SubjectBasis(held)
    np.testing.assert_array_equal(basis.mean, SubjectBasis(X).mean)
    basis.combine(np.eye(40, 2))  # and again


def test_the_pages_of_a_map_leave_the_process_after_a_pass(tmp_path, rng):
    smaps = Path("/proc/self/smaps")
    if not smaps.exists():
        pytest.skip("only Linux tells which pages of a map are in memory")
    X = rng.standard_normal((100, 20_000))
    held = mapped(tmp_path, X, "r")
    SubjectBasis(as_view(held))
    own = smaps.read_text().split("x.npy", 1)[1].splitlines()
    resident = next(int(line.split()[1]) for line in own if line.startswith("Rss:"))
    assert resident < 1000 < X.nbytes / 1024


def test_other_processes_get_what_this_one_holds(tmp_path, X):
    held = mapped(tmp_path, X, "r")
    assert as_sendable(held) is held
    held = mapped(tmp_path, X, "c")
    held -= 1
    view = as_view(held)[3:9]
    np.testing.assert_array_equal(as_sendable(view), X[3:9] - 1)
    assert backing_map(as_sendable(view)) is None


def test_pickles_hold_what_the_map_holds(tmp_path, X):
    held = mapped(tmp_path, X, "c")
    held -= 1
    subject = Subject("01", held)
    for thing in (subject, subject.select([7, 3, 1])):
        again = pickle.loads(pickle.dumps(thing))
        np.testing.assert_array_equal(again.data(), thing.data())


@pytest.mark.parametrize("study", [False, True])
def test_processes_of_joblib_align_what_the_caller_holds(tmp_path, rng, study):
    maps, y = [], [np.repeat(range(4), 10)] * 2
    for i in range(2):
        (tmp_path / str(i)).mkdir()
        maps.append(mapped(tmp_path / str(i), rng.standard_normal((40, 300)), "c"))
        maps[-1][:, :50] *= 20 * rng.standard_normal((40, 1))  # cleaning, say
    X = maps
    if study:
        X = Study([Subject(str(i), m, labels=y[0]) for i, m in enumerate(maps)])
    expected = GDM(3).fit([np.array(m) for m in maps], y).eigenvalues_
    with joblib.parallel_config(backend="loky", n_jobs=2):
        found = GDM(3, n_jobs=2).fit(X, y).eigenvalues_
    np.testing.assert_allclose(found, expected, rtol=1e-9)


# -- out of core ----------------------------------------------------------------------


def test_a_study_of_zarr_arrays_is_read_out_of_core(rng, tmp_path, monkeypatch):
    zarr = pytest.importorskip("zarr", reason="zarr comes with the extra dev")
    n, v = 300, 2000
    X = [rng.standard_normal((n, v + i)) for i in range(3)]
    group = zarr.open_group(tmp_path / "study.zarr", mode="w")
    for i, x in enumerate(X):
        kept = group.create_array(
            f"s{i}", shape=x.shape, chunks=(n, 100), dtype=x.dtype
        )
        kept[:] = x
    widths = []
    read = zarr.Array.__getitem__

    def counted(array, key):
        widths.append(key[1].stop - key[1].start)
        return read(array, key)

    monkeypatch.setattr(zarr.Array, "__getitem__", counted)
    y = [np.arange(n) % 3] * 3
    study = Study([Subject(f"s{i}", group[f"s{i}"], labels=y[i]) for i in range(3)])
    monkeypatch.setattr("brainweave._core.arrays.CHUNK_BYTES", 2**17)
    found = GDM(2, n_jobs=2).fit(study).transform(study)
    assert sum(widths) >= 3 * v
    assert max(widths) < v / 5
    for mine, theirs in zip(found, GDM(2).fit_transform(X, y), strict=True):
        assert_allclose(mine, theirs, atol=1e-8)


FIT = """
import re, sys
import brainweave as bw

def status(name):
    with open("/proc/self/status") as file:
        return 1024 * int(re.search(name + r":\\s+(\\d+)", file.read())[1])

def fit(folder, at_once):
    return bw.GDM(4, n_jobs=at_once).fit(bw.Study.open(folder))

fit(sys.argv[1], 1)  # imports, and a first product
with open("/proc/self/clear_refs", "w") as peak:
    peak.write("5")
before = status("VmRSS")
model = fit(sys.argv[2], int(sys.argv[3]))
print(status("VmHWM") - before)
"""


@pytest.mark.skipif(not Path("/proc/self/clear_refs").exists(), reason="asks Linux")
@pytest.mark.parametrize(("n", "at_once"), [(800, 2)])
def test_memory_of_a_fit_from_a_folder_is_what_the_documentation_says(
    tmp_path, rng, n, at_once
):
    m, v = 3, 7000
    folders = tmp_path / "small", tmp_path / "large"
    labels = np.arange(n) % 4
    for folder, rows, voxels in zip(folders, (40, n), (100, v), strict=True):
        subjects = [
            Subject(
                *(f"s{i}", rng.standard_normal((rows, voxels))),
                labels=labels[:rows],
            )
            for i in range(m)
        ]
        Study(subjects).save(folder)
    done = subprocess.run(
        [sys.executable, "-c", FIT, *folders, str(at_once)],
        env=os.environ | {"OMP_NUM_THREADS": "1"},
        **{"check": True, "capture_output": True, "text": True},
    )
    chunk = 16 * 2**20 // (8 * n)
    said = 16 * m * n**2 + at_once * (48 * n**2 + 24 * n * chunk)
    assert 0.6 * said < int(done.stdout) < 1.1 * said


def _kinds_of_voxels(rng, kind):
    X = rng.standard_normal((24, 90))
    if kind == "large means":
        X += 1000 * rng.standard_normal(90)
    elif kind == "a few large means":
        X[:, ::15] += 1e6
    elif kind == "constant voxels":
        X[:, ::15] = 7.25
    elif kind == "other units":
        X *= 10.0 ** rng.integers(-6, 7, 90)
    elif kind == "small and blank samples":
        X += 3 * rng.standard_normal(90)  # some voxels are centred, some are not
        X[5:9] *= 1e-9
        X[12:] = 0
    return X


@pytest.mark.parametrize(
    "kind",
    [
        *("plain", "large means", "a few large means", "constant voxels"),
        *("other units", "small and blank samples"),
    ],
)
@pytest.mark.parametrize("order", ["C", "F"])
@pytest.mark.parametrize("dtype", [np.float64, np.float32])
@pytest.mark.parametrize("standardize", [True, False])
@pytest.mark.parametrize("width", [90, 32])
def test_the_pass_tells_the_signatures_of_the_samples(
    rng, monkeypatch, kind, order, dtype, standardize, width
):
    X = np.asarray(_kinds_of_voxels(rng, kind), dtype=dtype, order=order)
    expected = sample_signatures(X.astype(np.float64))
    monkeypatch.setattr(arrays, "chunk_width", lambda n_samples: width)
    basis = SubjectBasis(X, standardize=standardize)
    found = basis.signatures
    norms = np.sqrt((X.astype(np.float64) ** 2).sum(axis=1))
    off = np.abs(found - expected).max(axis=1)
    # a fifth of what rounding may do
    assert (off <= 20 * np.finfo(dtype).eps * norms).all()
    assert same_samples(found, expected).all()
    for _ in basis.chunks():  # nothing was changed, and nobody says so
        pass


def test_samples_are_known_again_also_where_there_are_none():
    some, none, unknown = np.ones((3, 4)), np.zeros((0, 4)), np.full((2, 4), np.nan)
    assert same_samples(some, some).tolist() == [True] * 3
    for a in (none, unknown):
        assert same_samples(some, a).tolist() == [False] * 3
        assert not same_samples(a, some).any()
        assert len(same_samples(a, some)) == len(a)


@pytest.mark.parametrize("unit", [1e-200, 1e200])
def test_a_voxel_of_an_extreme_unit_may_be_zero_at_times(rng, unit):
    X = rng.standard_normal((12, 40))
    X[:, 5] = [0, 0, *[1, -1] * 5]  # zero, and still so less the mean
    expected = SubjectBasis(X)
    X[:, 5] *= unit
    found = SubjectBasis(X)
    assert found.constant_voxels.size == 0
    assert found.scale[5] / unit == pytest.approx(expected.scale[5], rel=1e-12)
    assert_allclose(found.gram, expected.gram, atol=1e-10)


@pytest.mark.parametrize("standardize", [True, False])
def test_products_with_other_samples(rng, standardize):
    X, Z = rng.standard_normal((12, 40)) + 2, rng.standard_normal((5, 40)) + 2
    basis = SubjectBasis(X, standardize=standardize)
    found = basis.products_with(Z)
    a, b = ((x - X.mean(axis=0)) / basis.scale for x in (X, Z))
    assert_allclose(found.cross, b @ a.T, atol=1e-10)
    assert_allclose(found.squares, (b * b).sum(axis=1), atol=1e-10)


def test_a_map_cleaned_in_memory_is_aligned_as_it_was_cleaned(tmp_path):
    X, y = three_subjects()
    maps = []
    for i, x in enumerate(X):
        np.save(tmp_path / f"{i}.npy", x)
        maps.append(np.load(tmp_path / f"{i}.npy", mmap_mode="c"))
        maps[-1] -= np.outer(np.sin(np.arange(40)), maps[-1][1])  # take out a confound
    expected = GDM(3).fit([np.array(m) for m in maps], y)
    np.testing.assert_array_equal(
        GDM(3).fit(maps, y).eigenvalues_, expected.eigenvalues_
    )


def test_a_file_replaced_before_a_fit_does_not_slip_in(tmp_path):
    X, y = three_subjects()
    for i, x in enumerate(X):
        np.save(tmp_path / f"{i}.npy", x)
    maps = [np.load(tmp_path / f"{i}.npy", mmap_mode="r") for i in range(3)]
    for i, x in enumerate(X):  # another job writes its own version
        np.save(tmp_path / "new.npy", x[::-1])
        (tmp_path / "new.npy").replace(tmp_path / f"{i}.npy")
    found = GDM(3).fit(maps, y).eigenvalues_
    np.testing.assert_array_equal(found, GDM(3).fit(X, y).eigenvalues_)


def test_swapping_two_rows_after_the_fit_does_not_bend_the_weights():
    X, y = three_subjects()
    for first in range(1, 40, 6):  # whichever rows
        gdm = GDM(3).fit(X, y)
        X[1][[0, first]] = X[1][[first, 0]]
        with pytest.raises(InputError, match=r"X\[1\] was changed in place"):
            _ = gdm.maps_[1].weights


@pytest.mark.parametrize(("dtype", "unit"), [("float32", 1e25), ("float64", 1e200)])
def test_a_large_unit_does_not_make_voxels_constant(dtype, unit):
    X, y = three_subjects()
    scaled = [(x * unit).astype(dtype) for x in X]
    gdm = GDM(3).fit(scaled, y)
    assert all(basis.constant_voxels.size == 0 for basis in gdm.bases_)
    expected = GDM(3).fit(X, y).eigenvalues_
    np.testing.assert_allclose(gdm.eigenvalues_, expected, rtol=1e-4)
    assert np.isfinite(gdm.transform(scaled)[0]).all()


def test_chunks_widen_with_the_samples_between_two_limits():
    """Four columns a sample, from 16 to 64 MiB, and never fewer than 256."""
    sizes = {10: 209715, 512: 4096, 1000: 4000, 1024: 4096, 10_000: 838, 10**6: 256}
    assert {n: arrays.chunk_width(n) for n in sizes} == sizes


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64, np.int16])
def test_values_come_back_in_the_precision_of_the_samples(dtype):
    want = np.float32 if dtype in (np.float16, np.float32) else np.float64
    for values in (np.ones(3), np.ones(3, np.float32)):
        assert arrays.as_kind_of(np.ones((2, 2), dtype), values).dtype == want


@pytest.mark.parametrize("shape", [(24, 9), (9, 24)])
def test_voxels_that_are_all_constant_are_refused(shape):
    n, v = shape
    told = f"all {v} voxels are constant over its {n} samples"
    with pytest.raises(InputError, match=told):
        SubjectBasis(np.ones(shape))
