"""Adapters where no other package is needed, or none is there."""

from importlib.metadata import PackageNotFoundError

import numpy as np
import pytest
import scipy.linalg
from numpy.testing import assert_allclose

import brainweave as bw
from brainweave._core.exceptions import InputError
from brainweave.aligners.adapters import METHODS, Method, linear_part, regress
from brainweave.cli.models import make_aligner


def study(v=10, m=3, n=30):
    rng = np.random.default_rng(0)
    shared = rng.normal(size=(n, v))
    X = [shared + 0.5 * rng.normal(size=(n, v)) for _ in range(m)]
    return [x - x.mean(axis=0) for x in X]


def test_what_the_functions_return_are_the_maps():
    *X, new = study(m=4)
    template = np.mean(X, axis=0)
    for _ in range(2):
        turns = [scipy.linalg.orthogonal_procrustes(x, template)[0] for x in X]
        template = np.mean([x @ Q for x, Q in zip(X, turns, strict=True)], axis=0)
    model = bw.Adapter("scipy:procrustes", standardize=False).fit(X)
    assert_allclose(model.shared_response_, template, atol=1e-10)
    for m, Q in zip(model.maps_, turns, strict=True):
        assert_allclose(m.weights, Q, atol=1e-10)
    Q = scipy.linalg.orthogonal_procrustes(new, template)[0]
    assert_allclose(model.fit_new_subject(new).weights, Q, atol=1e-10)
    assert model.version_.startswith("scipy ")


def test_a_package_that_is_not_there_is_one_sentence(monkeypatch):
    def missing(X, wanted):
        raise ImportError("No module named 'unheard_of'")

    method = Method(missing, equal_voxels=True)
    monkeypatch.setitem(METHODS, "unheard-of:method", method)
    with pytest.raises(InputError, match="needs the package unheard-of: pip install"):
        bw.Adapter("unheard-of:method").fit(study())
    with pytest.raises(InputError, match=r"one of 'scipy:proc.* got 'scipy:magic'"):
        bw.Adapter("scipy:magic").fit(study())


@pytest.mark.parametrize("name", METHODS)
def test_every_package_that_is_missing_is_named_with_a_remedy(name, monkeypatch):
    def missing(package):
        raise PackageNotFoundError(package)

    monkeypatch.setattr("brainweave.aligners.adapters.version", missing)
    where = np.random.default_rng(1).normal(size=(10, 3))
    method, package = METHODS[name], name.partition(":")[0]
    with pytest.raises(InputError) as error:
        bw.Adapter(name, positions=where if method.geometry else None).fit(study())
    how = method.install if package == "nltools" else "pip install"
    assert str(error.value).startswith(
        f"{name} needs the package {package}: {how} {package} ("
    )
    assert ("--no-deps" in str(error.value)) == (package == "nltools")


def test_what_a_method_needs_is_said_before_it_runs():
    X = study()
    with pytest.raises(InputError, match="voxel by voxel, but subjects have 7 to 10"):
        bw.Adapter().fit([X[0], X[1][:, :7]])
    model = bw.Adapter().fit(X)
    with pytest.raises(InputError, match="voxel by voxel, but subjects have 7 to 10"):
        model.fit_new_subject(X[0][:, :7])
    with pytest.raises(InputError, match="as many features as voxels"):
        bw.Adapter(n_components=3).fit(X)
    with pytest.raises(ValueError, match="aligns row by row"):
        bw.Adapter().fit([X[0], X[1][:20]])
    with pytest.raises(InputError, match="where its voxels are"):
        bw.Adapter("fugw:dense").fit(X)
    with pytest.raises(ValueError, match="n_components"):
        bw.Adapter("brainiak:srm", 500).fit(X)


def test_parameters_that_a_package_does_not_take_are_named(monkeypatch):
    def fit(X, wanted):
        raise TypeError("got an unexpected keyword 'sped'")

    monkeypatch.setitem(METHODS, "scipy:fast", Method(fit))
    with pytest.raises(InputError, match=r"does not take params=\{'sped': 1\}"):
        bw.Adapter("scipy:fast", params={"sped": 1}).fit(study())


def test_the_command_hands_parameters_on_and_shares_the_others():
    options = {"n_components": "7", "param": ["reg=0.5", "standardize=false"]}
    made = make_aligner("brainiak:srm", options)
    assert (made.method, made.n_components) == ("brainiak:srm", 7)
    assert made.params == {"reg": 0.5}
    assert made.standardize is False


def test_linear_weights_are_those_of_an_affine_function():
    W = np.random.default_rng(0).normal(size=(5, 3))
    assert_allclose(linear_part(lambda Z: Z @ W + 4, 5), W, atol=1e-12)
    X = np.random.default_rng(1).normal(size=(9, 5))
    assert_allclose(X @ regress(X, X @ W, None), X @ W, atol=1e-12)
