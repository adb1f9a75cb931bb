"""Every adapter gives what its package gives when it is called directly."""

import numpy as np
import pytest
from numpy.testing import assert_allclose

import brainweave as bw
from brainweave.aligners.adapters import METHODS
from evaluation_studies import score_matching

pytestmark = pytest.mark.filterwarnings("ignore")  # theirs are not ours to mend

N, V, K = 60, 24, 4
POSITIONS = 8.0 * np.argwhere(np.ones((4, 3, 2)))
IMPORTED = {"cca-zoo": "cca_zoo", "brainiak": "brainiak.funcalign.srm"}
SINGLE = 2e-4  # of those that compute in single precision


def study(seed=0, m=4):
    rng = np.random.default_rng(seed)
    shared = rng.normal(size=(N, 6)) @ rng.normal(size=(6, V))
    X = [shared + 0.8 * rng.normal(size=(N, V)) for _ in range(m)]
    return [(x - x.mean(axis=0)) / x.std(axis=0) for x in X]


def turned(X):
    return [np.ascontiguousarray(x.T) for x in X]


def fmralign_directly(name, **params):
    def directly(X, Z, new):
        from fmralign import GroupAlignment, methods

        method = getattr(methods, name)(**params)
        group = GroupAlignment(method).fit({str(i): x for i, x in enumerate(X)})
        found = group.transform({str(i): z for i, z in enumerate(Z)})
        joined = getattr(methods, name)(**params).fit(new, group.template)
        return [*found.values()], joined.transform(new)

    return directly


def brainiak_directly(name):
    def directly(X, Z, new):
        from brainiak.funcalign import srm

        model = getattr(srm, name)(features=K, rand_seed=0).fit(turned(X))
        return (
            [z @ w for z, w in zip(Z, model.w_, strict=True)],
            new @ model.transform_subject(new.T),
        )

    return directly


def rotated_directly(X, Z, new):
    from hyperalignment.local_template import compute_procrustes_template
    from hyperalignment.procrustes import procrustes

    common = compute_procrustes_template(np.array(X))
    found = [z @ procrustes(x, common) for x, z in zip(X, Z, strict=True)]
    return found, new @ procrustes(new, common)


def searchlights_directly(name):
    def directly(X, Z, new):
        from hyperalignment import searchlight

        distances = np.linalg.norm(POSITIONS[:, None] - POSITIONS, axis=2)
        near = [np.flatnonzero(own < 20.0) for own in distances]
        apart = [own[at] for own, at in zip(distances, near, strict=True)]
        common = searchlight.searchlight_template(np.array(X), near, apart, 20.0)
        find = getattr(searchlight, name)
        each = [find(x, common, near, apart, 20.0) for x in [*X, new]]
        return [z @ T for z, T in zip([*Z], each[:-1], strict=True)], new @ each[-1]

    return directly


def nltools_directly(X, Z, new):
    from nltools.stats import align, procrustes

    # it aligns what it returns: other samples follow by least squares
    found = align(list(X), method="procrustes")
    seen = [a.T for a in found["transformed"]]
    maps = [np.linalg.lstsq(x, a)[0] for x, a in zip(X, seen, strict=True)]
    joined = procrustes(found["common_model"], new)[1]
    return [z @ W for z, W in zip(Z, maps, strict=True)], joined


def fugw_directly(X, Z, new):
    from fugw.mappings import FUGW

    distances = np.linalg.norm(POSITIONS[:, None] - POSITIONS, axis=2)
    distances /= distances.max()

    def fitted(x, target):
        unit = [a / np.linalg.norm(a, axis=0) for a in (x, target)]
        geometry = {"source_geometry": distances, "target_geometry": distances}
        return FUGW().fit(*unit, **geometry)

    common = np.mean(X, axis=0)
    for _ in range(2):
        plans = [fitted(x, common) for x in X]
        seen = [np.asarray(p.transform(x)) for p, x in zip(plans, X, strict=True)]
        common = np.mean(seen, axis=0)
    found = [np.asarray(p.transform(z)) for p, z in zip(plans, Z, strict=True)]
    return found, np.asarray(fitted(new, common).transform(new))


def views_directly(module, name):
    def directly(X, Z, new):
        from importlib import import_module

        model = getattr(import_module(module), name)(n_components=K).fit(X)
        return model.transform(Z), None

    return directly


def ica_directly(X, Z, new):
    from multiviewica import multiviewica

    np.random.seed(0)  # noqa: NPY002 - it takes no seed for its reduction
    P, W, _ = multiviewica(np.array(turned(X)), n_components=K, random_state=0)
    return [z @ (w @ p).T for z, p, w in zip(Z, P, W, strict=True)], None


DIRECTLY = {
    "fmralign:procrustes": fmralign_directly("Procrustes"),
    "fmralign:ot": fmralign_directly("OptimalTransport"),
    "fmralign:spectral-ot": fmralign_directly("SpectralOT", evecs=POSITIONS.T),
    "fmralign:ridge": fmralign_directly("RidgeAlignment"),
    "fugw:dense": fugw_directly,
    "hyperalignment:procrustes": rotated_directly,
    "hyperalignment:searchlight": searchlights_directly("searchlight_procrustes"),
    "hyperalignment:searchlight-ridge": searchlights_directly("searchlight_ridge"),
    "nltools:procrustes": nltools_directly,
    "brainiak:srm": brainiak_directly("SRM"),
    "brainiak:detsrm": brainiak_directly("DetSRM"),
    "cca-zoo:gcca": views_directly("cca_zoo.linear", "GCCA"),
    "cca-zoo:mcca": views_directly("cca_zoo.linear", "MCCA"),
    "multiviewica:multiviewica": ica_directly,
}


def test_every_method_of_a_package_is_compared():
    assert set(DIRECTLY) == {name for name in METHODS if not name.startswith("scipy:")}


def adapter(name):
    k = None if METHODS[name].n_components is None else K
    where = POSITIONS if METHODS[name].geometry else None
    return bw.Adapter(name, k, positions=where, standardize=False)


@pytest.mark.parametrize("name", DIRECTLY)
def test_the_adapter_is_the_package(name, record):
    package = name.partition(":")[0]
    pytest.importorskip(IMPORTED.get(package, package), exc_type=ImportError)
    *X, new = study(m=5)
    Z = [x[::-1].copy() for x in X]
    model = adapter(name).fit(X)
    theirs, joined = DIRECTLY[name](X, Z, new)
    ours = model.transform(Z)
    worst = 0.0
    for a, b in zip(ours, theirs, strict=True):
        # their features may have a constant, which is no part of a map
        b = np.asarray(b, dtype=np.float64)
        b = b - b.mean(axis=0)
        worst = max(worst, np.abs(a - b).max() / np.abs(b).max())
    limit = SINGLE if name.split(":")[1] in ("ot", "spectral-ot", "dense") else 1e-9
    norms = np.linalg.norm(ours), np.linalg.norm(theirs)
    record(package, name, "features", *norms, worst, f"{limit:g}")
    assert worst < limit
    mapped = model.fit_new_subject(new).transform(new)
    if joined is not None:
        joined = joined - joined.mean(axis=0)
        assert_allclose(mapped, joined, atol=limit * np.abs(joined).max())
    assert model.version_.startswith(package)


@pytest.mark.parametrize("name", DIRECTLY)
def test_it_is_saved_and_goes_through_an_evaluation(name, tmp_path):
    package = name.partition(":")[0]
    pytest.importorskip(IMPORTED.get(package, package), exc_type=ImportError)
    X = study()
    model = adapter(name).fit(X)
    loaded = bw.load(bw.save(model, tmp_path / "model.safetensors"))
    for a, b in zip(loaded.transform(X), model.transform(X), strict=True):
        assert_allclose(a, b, atol=1e-9)
    X = [np.vstack([x, x + 0.3]) for x in X[:3]]
    result = score_matching(adapter(name), X, window=3, n_jobs=1)
    assert result.mean > result.chance
