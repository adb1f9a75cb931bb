"""Torch tensors: the same numbers, computed and returned on their device."""

import warnings

import joblib
import numpy as np
import pytest
import scipy.sparse
from numpy.testing import assert_allclose

from brainweave import GDM, SRM, DetSRM, Parcelwise, SubjectBasis, match_samples
from brainweave._core import workers
from brainweave._core.exceptions import InputError
from brainweave.aligners.gdm.smoother import DeviceSmoother
from brainweave.aligners.gdm.strength import block_criterion, smoother_of
from brainweave.basis.voxels import same_samples, sample_signatures
from brainweave.graphs.builders import NO_GROUP
from planted import planted_study

torch = pytest.importorskip("torch", reason="torch comes with the extra 'gpu'")
DEVICES = ["cpu", *(["cuda"] if torch.cuda.is_available() else [])]


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("shape", [(30, 300), (60, 25)])
def test_bases_agree_with_numpy(rng, device, shape):
    X = rng.normal(size=shape) + 10
    basis = SubjectBasis(torch.from_numpy(X).to(device))
    expected = SubjectBasis(X)
    assert_allclose(basis.gram, expected.gram, atol=1e-9)
    assert_allclose(basis.values, expected.values, rtol=1e-9)


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("kernel", ["linear", "gaussian"])
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_gdm_agrees_with_numpy_and_answers_on_the_device(rng, device, kernel, dtype):
    X, y = planted_study(rng)
    params = None if kernel == "linear" else {"hp": 150}
    tensors = [torch.from_numpy(x.astype(dtype)).to(device) for x in X]
    gdm = GDM(3, kernel=kernel, kernel_params=params)
    expected = gdm.fit([x.astype(dtype) for x in X], y).transform(X)
    eigenvalues = gdm.eigenvalues_
    shared = gdm.fit(tensors, y).transform(tensors)
    tight = dtype == "float64"
    assert_allclose(gdm.eigenvalues_, eigenvalues, rtol=1e-9 if tight else 1e-4)
    for ours, theirs in zip(shared, expected, strict=True):
        assert isinstance(ours, torch.Tensor)
        assert ours.device.type == device
        assert str(ours.dtype) == f"torch.{dtype}"
        ours = ours.cpu().numpy()
        assert_allclose(np.abs(ours), np.abs(theirs), atol=1e-7 if tight else 2e-2)


def test_nan_in_a_tensor_is_refused():
    X = torch.ones((5, 7), dtype=torch.float64)
    X[2, 3] = float("nan")
    with pytest.raises(InputError, match="first at sample 2, voxel 3"):
        SubjectBasis(X, name="X[0]")


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("kernel", ["linear", "gaussian", "quadratic", "sigmoid"])
@pytest.mark.parametrize("dtypes", [("float64", "float64"), ("float32", "float64")])
def test_tensors_and_arrays_meet_in_either_direction(rng, device, kernel, dtypes):
    X, y = planted_study(rng)
    hp = {"gaussian": 150, "quadratic": 50, "sigmoid": 400}.get(kernel)
    gdm = GDM(3, kernel=kernel, kernel_params=None if hp is None else {"hp": hp})
    fitted, mapped = ([x.astype(d) for x in X] for d in dtypes)
    expected = gdm.fit(fitted, y).transform(mapped)

    def tensors(arrays):
        return [torch.from_numpy(x).to(device) for x in arrays]

    atol = 1e-8 if "float32" not in dtypes else 2e-3
    to_array = gdm.fit(tensors(fitted), y).transform(mapped)
    to_tensor = gdm.fit(fitted, y).transform(tensors(mapped))
    for ours, theirs, both in zip(to_array, expected, to_tensor, strict=True):
        assert isinstance(ours, np.ndarray)
        assert isinstance(both, torch.Tensor)
        assert_allclose(np.abs(ours), np.abs(theirs), atol=atol)
        assert_allclose(np.abs(both.cpu().numpy()), np.abs(theirs), atol=atol)


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_signatures_of_tensors_are_those_of_arrays(rng, device, dtype):
    X = (rng.standard_normal((30, 400)) + 100).astype(dtype)
    tensor = torch.from_numpy(X).to(device)
    for signatures in (sample_signatures(tensor), SubjectBasis(tensor).signatures):
        assert same_samples(signatures, sample_signatures(X)).all()


@pytest.mark.parametrize("device", DEVICES)
def test_tensors_changed_in_place_are_refused(rng, device):
    X = torch.from_numpy(rng.standard_normal((30, 400))).to(device)
    basis = SubjectBasis(X)
    X[[3, 8]] = X[[8, 3]]
    with pytest.raises(InputError, match="changed in place"):
        basis.combine(rng.normal(size=(30, 2)))


@pytest.mark.parametrize("device", DEVICES)
def test_tensors_of_a_large_unit_keep_their_voxels(rng, device):
    X = torch.from_numpy(rng.standard_normal((30, 400)).astype("float32")).to(device)
    basis = SubjectBasis(X * 1e25)
    assert basis.constant_voxels.size == 0
    assert_allclose(basis.values, SubjectBasis(X).values, rtol=1e-4)


# -- a device that is asked for --------------------------------------------------------


def kinds_of_samples(tmp_path, X):
    np.save(tmp_path / "c.npy", X)
    np.save(tmp_path / "f.npy", np.asfortranarray(X))
    kinds = {
        "array": X,
        "by voxels": np.asfortranarray(X),
        "map": np.load(tmp_path / "c.npy", mmap_mode="r"),
        "map by voxels": np.load(tmp_path / "f.npy", mmap_mode="r"),
        "tensor": torch.from_numpy(X),
        "swapped": X.astype(X.dtype.newbyteorder()),
    }
    try:
        import h5py
    except ImportError:
        return kinds
    file = h5py.File(tmp_path / "x.h5", "w")
    return kinds | {"hdf5": file.create_dataset("x", data=X)}


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("standardize", [True, False])
def test_samples_of_every_kind_are_streamed(
    tmp_path, rng, monkeypatch, device, dtype, standardize
):
    from brainweave.basis import device as _device

    monkeypatch.setattr(_device, "DEVICE_CHUNK_BYTES", 0)  # the narrowest chunks
    X = rng.standard_normal((30, 900)) * rng.uniform(0.1, 10, 900)
    X += 100 * rng.standard_normal(900)
    X[:, [3, 700]] = [0.0, 7.0]
    X = X.astype(dtype)
    expected = SubjectBasis(X.astype(np.float64), standardize=standardize)
    for kind, samples in kinds_of_samples(tmp_path, X).items():
        basis = SubjectBasis(samples, device=device, standardize=standardize)
        assert basis._on_device is not None, kind
        assert basis.constant_voxels.tolist() == [3, 700]
        assert_allclose(basis.mean, expected.mean, rtol=1e-9, atol=1e-9)
        top = expected.values[0]
        assert_allclose(basis.values, expected.values, atol=1e-8 * top, err_msg=kind)
        assert basis._on_device is None
        assert_allclose(basis.gram, expected.gram, atol=1e-8 * top, err_msg=kind)
        assert_allclose(np.abs(basis.vectors), np.abs(expected.vectors), atol=1e-6)
        assert same_samples(basis.signatures, sample_signatures(X)).all()
        weights = basis.weights(np.eye(basis.n_kept, 2))
        theirs = expected.weights(np.eye(basis.n_kept, 2))
        assert_allclose(np.abs(weights), np.abs(theirs), atol=1e-5)


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("graph", ["labels", "time"])
def test_gdm_on_a_device_agrees_with_numpy(rng, device, graph):
    X, y = planted_study(rng)
    n = min(map(len, X))
    X, y = [x[:n] for x in X], [known[:n] for known in y]
    known = y if graph == "labels" else None
    expected = GDM(3, graph=graph).fit(X, known)
    gdm = GDM(3, graph=graph, device=device).fit(X, known)
    assert_allclose(gdm.eigenvalues_, expected.eigenvalues_, rtol=1e-8)
    for ours, theirs in zip(gdm.transform(X), expected.transform(X), strict=True):
        assert isinstance(ours, np.ndarray)
        assert_allclose(np.abs(ours), np.abs(theirs), atol=1e-7)
    if graph == "time":
        return  # where a Gaussian kernel has more than one solution
    gaussian = {"kernel": "gaussian", "kernel_params": {"hp": 150}}
    other = GDM(3, graph=graph, device=device, **gaussian).fit(X, known)
    reference = GDM(3, graph=graph, **gaussian).fit(X, known)
    assert_allclose(other.eigenvalues_, reference.eigenvalues_, rtol=1e-8)


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("shape", [(40, 300), (40, 25)])
def test_reliability_weighs_voxels_read_on_a_device(rng, device, shape):
    X, groups = rng.standard_normal(shape), np.arange(40) % 5
    X[:, :20] += groups[:, None]
    how = {"standardize": "reliability", "groups": groups}
    basis, expected = SubjectBasis(X, device=device, **how), SubjectBasis(X, **how)
    assert basis.reliable
    assert_allclose(basis.values, expected.values, rtol=1e-9)
    assert_allclose(basis.gram, expected.gram, atol=1e-9)


@pytest.mark.parametrize("device", DEVICES)
def test_bases_made_on_a_device_can_be_sent(rng, device):
    import pickle

    X = rng.standard_normal((20, 300))
    again = pickle.loads(pickle.dumps(SubjectBasis(X, device=device)))
    assert_allclose(again.values, SubjectBasis(X).values, rtol=1e-9)


@pytest.mark.parametrize("device", DEVICES)
def test_extreme_units_and_wrong_values_go_the_careful_way(rng, device):
    X = rng.standard_normal((20, 300))
    huge = SubjectBasis(1e200 * X, device=device)
    assert_allclose(huge.values, SubjectBasis(X).values, rtol=1e-9)
    X[3, 7] = np.inf
    with pytest.raises(InputError, match="first at sample 3, voxel 7"):
        SubjectBasis(X, device=device)
    with pytest.raises(InputError, match="all 300 voxels are constant"):
        SubjectBasis(np.ones((20, 300)), device=device)


def test_unknown_devices_are_refused(rng):
    X = rng.standard_normal((20, 300))
    with pytest.raises(InputError, match=r"device=.gpu. cannot be used"):
        SubjectBasis(X, device="gpu")
    if not torch.cuda.is_available():
        with pytest.raises(InputError, match="torch finds no GPU here"):
            SubjectBasis(X, device="cuda")


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("missing", [0, 7])
def test_a_smoother_on_a_device_is_that_of_numpy(rng, device, missing):
    X = rng.normal(size=(40, 300))
    codes = np.where(np.arange(40) < missing, NO_GROUP, np.arange(40) % 4)
    there, here = SubjectBasis(X, device=device), SubjectBasis(X)
    assert there.gram_on_device is not None
    ours, theirs = smoother_of(there, 0.2), smoother_of(here, 0.2)
    assert isinstance(ours, DeviceSmoother)
    B = rng.normal(size=(40, 3))
    U = scipy.sparse.csr_array(np.eye(4)[np.arange(40) % 4])
    assert_allclose(ours.regress(B)[0], theirs.regress(B)[0], atol=1e-12)
    assert_allclose(ours.smooth(B), theirs.smooth(B), atol=1e-10)
    assert_allclose(ours.quadratic_form(U).cpu(), theirs.quadratic_form(U), atol=1e-10)
    Z = B - B.mean(axis=0)
    for columns in (U, U.toarray()):
        for a, b in zip(ours.forms(columns, Z), theirs.forms(columns, Z), strict=True):
            assert_allclose(a, b, atol=1e-9)
    assert_allclose(ours.root[1], theirs.root[1], atol=1e-10)
    blocks = rng.permutation(np.repeat([0, 1, 4], [5, 20, 15]))  # of three lengths
    assert_allclose(ours.leave_out(B, blocks), theirs.leave_out(B, blocks), atol=1e-9)
    assert_allclose(
        block_criterion(ours, codes), block_criterion(theirs, codes), atol=1e-9
    )
    indefinite = DeviceSmoother(there._device, -there.gram_on_device, 1e-3)
    with pytest.raises(InputError, match="negative eigenvalues"):
        indefinite.regress(B)


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("graph", ["labels", "time", "labels+time"])
@pytest.mark.parametrize("n_components", [3, "auto"])
def test_shrinkage_on_a_device_agrees_with_numpy(rng, device, graph, n_components):
    X, y = planted_study(rng, (40, 40, 40), (90, 80, 70))
    y = [y[0]] * 3  # seen at the same times
    known = (None if graph == "time" else y,)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of too few components that hold up
        ours = GDM(n_components, graph=graph, device=device).fit(X, *known)
        theirs = GDM(n_components, graph=graph).fit(X, *known)
    assert ours.shrinkage_ == pytest.approx(theirs.shrinkage_, rel=1e-9)
    assert_allclose(ours.eigenvalues_, theirs.eigenvalues_, rtol=1e-9)
    for a, b in zip(ours.transform(X), theirs.transform(X), strict=True):
        assert_allclose(a, b, atol=1e-8)
    joined = ours.fit_new_subject(X[0], *([y[0]] if known[0] else []))
    expected = theirs.fit_new_subject(X[0], *([y[0]] if known[0] else []))
    assert_allclose(joined.transform(X[0]), expected.transform(X[0]), atol=1e-8)


@pytest.mark.parametrize("device", DEVICES)
def test_what_was_left_on_the_device_is_read_again(rng, device):
    X = rng.normal(size=(30, 200)) + 5
    there, here = SubjectBasis(X, energy=0.4, device=device), SubjectBasis(X)
    assert there.vectors.shape == (30, there.n_kept)
    assert there._on_device is None  # nor a copy here
    assert there._products is None
    expected = here.cut(0.4).project(X[:4])  # but for signs
    assert_allclose(np.abs(there.project(X[:4])), np.abs(expected), atol=1e-9)
    assert there._products is None
    wider = there.cut(0.9)
    assert wider.vectors.shape[1] == wider.n_kept == here.cut(0.9).n_kept
    assert_allclose(wider.values, here.cut(0.9).values, rtol=1e-9)
    assert_allclose(there.gram, here.gram, atol=1e-9)
    again = SubjectBasis(X, energy=0.4, device=device)
    _ = again.values
    X[3] += 1
    with pytest.raises(InputError, match="changed in place"):
        _ = again.gram


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("method", [SRM, DetSRM])
@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("voxels", [(90, 80), (90, 80, 30)])  # more than samples; fewer
def test_shared_response_models_iterate_on_a_device(rng, device, method, dtype, voxels):
    story = rng.normal(size=(40, 3))
    X = [
        (story @ rng.normal(size=(3, v)) + rng.normal(size=(40, v)) + 20).astype(dtype)
        for v in voxels
    ]
    srm = method(3, random_state=0, device=device).fit(X)
    expected = method(3, random_state=0).fit(X)
    assert srm.bases_[0]._products is None  # stayed where it was made
    tight = dtype == "float64"
    close = {"rtol": 0, "atol": 1e-8 if tight else 2e-3}
    assert_allclose(srm.shared_response_, expected.shared_response_, **close)
    for x, ours, theirs in zip(X, srm.maps_, expected.maps_, strict=True):
        assert_allclose(ours.weights, theirs.weights, **close)
        features = ours.transform(x)
        assert isinstance(features, np.ndarray)
        assert features.dtype == x.dtype
        assert_allclose(features, theirs.transform(x), **close)
    new, known = (m.fit_new_subject(X[1]) for m in (srm, expected))
    assert_allclose(new.transform(X[1]), known.transform(X[1]), **close)
    X[0][3, 4] = np.nan
    with pytest.raises(InputError, match="NaN or infinite"):
        srm.transform(X)


@pytest.mark.parametrize("device", DEVICES)
def test_weights_read_on_a_device_tell_samples_that_were_changed(rng, device):
    X, y = planted_study(rng)
    gdm = GDM(3, device=device).fit(X, y)
    X[0][2] += 1
    with pytest.raises(InputError, match="changed in place"):
        _ = gdm.maps_[0].weights


@pytest.mark.parametrize(
    ("device", "n_jobs", "expected"),
    [(None, None, None), ("cuda", None, 2), ("cuda:1", 3, 3), ("cpu", None, None)],
)
def test_threads_do_not_crowd_a_gpu(device, n_jobs, expected):
    arrays = [np.zeros((4, 5))]
    assert GDM(device=device, n_jobs=n_jobs)._jobs(arrays) == expected
    if torch.cuda.is_available():
        assert GDM(n_jobs=n_jobs)._jobs([torch.zeros(4, 5, device="cuda")]) == 1


def test_categories_of_tensors_are_averaged_as_those_of_arrays(rng):
    X = [rng.normal(size=(6, 4)), rng.normal(size=(5, 3))]
    y = [list("abcabc"), list("bacba")]
    expected = match_samples(X, y, how="average")
    found = match_samples([torch.from_numpy(x) for x in X], y, how="average")
    for ours, theirs in zip(found.X, expected.X, strict=True):
        assert isinstance(ours, torch.Tensor)
        assert_allclose(ours.numpy(), theirs, atol=1e-12)


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize(("samples", "parcels"), [(40, False), (90, False), (40, True)])
def test_places_on_a_device_agree_with_numpy(rng, device, samples, parcels):
    courses, maps = rng.normal(size=(samples, 4)), rng.normal(size=(4, 60))
    X = [
        courses @ (maps + 0.3 * rng.normal(size=maps.shape))
        + 6 * rng.normal(size=(samples, 60))
        for _ in range(5)
    ]
    place = np.arange(60) // 3 + 1 if parcels else "auto"
    how = {"graph": "time", "place": place, "place_shrinkage": 0.1}
    expected = GDM(3, **how).fit(X)
    tensors = [torch.from_numpy(x).to(device) for x in X]
    for gdm in (GDM(3, **how).fit(tensors), GDM(3, device=device, **how).fit(X)):
        assert gdm.shrinkage_ == expected.shrinkage_
        assert_allclose(gdm.eigenvalues_, expected.eigenvalues_, rtol=1e-8)
        assert_allclose(
            np.abs(gdm.shared_),
            np.abs(expected.shared_),
            atol=1e-7 * expected.scale_[0],
        )
        for ours, theirs in zip(gdm.transform(X), expected.transform(X), strict=True):
            assert_allclose(np.abs(ours), np.abs(theirs), atol=1e-6)


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("given", [None, "its own"])
def test_a_device_is_not_shared_by_processes(rng, device, given, monkeypatch):
    used = []

    def parallel(**how):
        used.append(how.get("backend"))
        return joblib.Parallel(**how)

    monkeypatch.setattr(workers, "Parallel", parallel)
    monkeypatch.setattr(workers, "WORTH_PROCESSES", 0.0)
    X = [rng.normal(size=(20, 40)) for _ in range(3)]
    if given is None:
        X = [torch.from_numpy(x).to(device) for x in X]
    own = None if given is None else device
    local = DetSRM(2, random_state=0, device=own)
    Parcelwise(local, 1 + np.arange(40) // 8, n_jobs=2).fit(X)
    assert used == [None]
