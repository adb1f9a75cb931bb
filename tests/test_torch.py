"""Torch tensors: the same numbers, computed and returned on their device."""

import numpy as np
import pytest
from numpy.testing import assert_allclose

from brainweave import GDM, SubjectBasis
from brainweave.exceptions import InputError
from brainweave.voxels import same_samples, sample_signatures
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
        basis.combine(np.eye(30, 2))


@pytest.mark.parametrize("device", DEVICES)
def test_tensors_of_a_large_unit_keep_their_voxels(rng, device):
    X = torch.from_numpy(rng.standard_normal((30, 400)).astype("float32")).to(device)
    basis = SubjectBasis(X * 1e25)
    assert basis.constant_voxels.size == 0
    assert_allclose(basis.values, SubjectBasis(X).values, rtol=1e-4)
