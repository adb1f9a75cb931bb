"""What other packages offer, each as two functions of plain arrays.

``fit`` takes the standardised samples of all subjects and returns their weights,
(n_voxels_i, K), and the template; ``join`` takes the samples of a subject who comes
later, and the template. A package is imported when one of its functions is called.
"""

from collections.abc import Callable
from contextlib import redirect_stdout
from dataclasses import dataclass
from io import StringIO
from typing import Any, NamedTuple

import numpy as np
import scipy.linalg

from brainweave._core.arrays import Matrix


class Wanted(NamedTuple):
    """What a user asks of a method, and where the voxels are."""

    n_components: int
    seed: int
    params: dict[str, Any]  # for the package, as they are
    positions: Matrix | None  # (n_voxels, 3), in mm, for methods that need geometry


Fit = Callable[[list[Matrix], Wanted], tuple[list[Matrix], Matrix]]
Join = Callable[[Matrix, Matrix, Wanted], Matrix]


def regress(X: Matrix, template: Matrix, wanted: Wanted) -> Matrix:
    """Let a subject join by least squares, where a package has no way of its own."""
    return np.asarray(np.linalg.lstsq(X, template)[0])


@dataclass(frozen=True)
class Method:
    """A method of another package, and what it needs beside samples locked in time."""

    package: str
    fit: Fit
    join: Join = regress
    equal_voxels: bool = False
    geometry: bool = False
    n_components: int | None = 10  # its default; None: the voxels are the features
    install: str = "pip install"


def linear_part(transform: Callable[[Matrix], Matrix], n_voxels: int) -> Matrix:
    """Return the weights of a transform that is linear up to a constant."""
    zero = np.zeros((1, n_voxels))
    return np.asarray(transform(np.eye(n_voxels)) - transform(zero), dtype=np.float64)


def to_template(map_to: Join) -> tuple[Fit, Join]:
    """Align all to the mean of all, then to the mean of what that gives."""

    def fit(X: list[Matrix], wanted: Wanted) -> tuple[list[Matrix], Matrix]:
        template = np.mean(X, axis=0)
        for _ in range(2):
            weights = [map_to(x, template, wanted) for x in X]
            template = np.mean([x @ W for x, W in zip(X, weights, strict=True)], axis=0)
        return weights, template

    return fit, map_to


def rotate(X: Matrix, template: Matrix, wanted: Wanted) -> Matrix:
    """Rotate a subject onto a template, by SciPy."""
    return np.asarray(scipy.linalg.orthogonal_procrustes(X, template)[0])


# -- fmralign, fugw --------------------------------------------------------------------


def _fmralign(name: str) -> tuple[Fit, Join]:
    def make(wanted: Wanted) -> Any:
        from fmralign import methods

        more = {}
        if name == "SpectralOT":  # positions in place of harmonics of a surface
            more = {"evecs": np.asarray(wanted.positions).T}
        return getattr(methods, name)(**{**more, **wanted.params})

    def fit(X: list[Matrix], wanted: Wanted) -> tuple[list[Matrix], Matrix]:
        from fmralign import GroupAlignment

        group = GroupAlignment(make(wanted)).fit({str(i): x for i, x in enumerate(X)})
        v = X[0].shape[1]
        weights = [
            linear_part(one.transform, v) for one in group.fitted_estimators.values()
        ]
        return weights, np.asarray(group.template, dtype=np.float64)

    def join(X: Matrix, template: Matrix, wanted: Wanted) -> Matrix:
        return linear_part(make(wanted).fit(X, template).transform, X.shape[1])

    return fit, join


def _fugw(X: Matrix, template: Matrix, wanted: Wanted) -> Matrix:
    from fugw.mappings import FUGW
    from scipy.spatial.distance import cdist

    distances = cdist(*[np.asarray(wanted.positions)] * 2)
    distances /= distances.max()
    unit = [z / np.linalg.norm(z, axis=0) for z in (X, template)]
    mapping = FUGW(**wanted.params)
    geometry = {"source_geometry": distances, "target_geometry": distances}
    mapping.fit(*unit, **geometry)
    return linear_part(lambda z: np.asarray(mapping.transform(z)), X.shape[1])


# -- hyperalignment --------------------------------------------------------------------


def _ha_template(X: list[Matrix], wanted: Wanted) -> tuple[list[Matrix], Matrix]:
    from hyperalignment.local_template import compute_procrustes_template

    template = compute_procrustes_template(np.array(X), **wanted.params)
    return [_ha_rotate(x, template, wanted) for x in X], template


def _ha_rotate(X: Matrix, template: Matrix, wanted: Wanted) -> Matrix:
    from hyperalignment.procrustes import procrustes

    return np.asarray(procrustes(X, template))


def _searchlights(wanted: Wanted) -> tuple[list[Any], list[Any], float]:
    """Return the voxels of the neighbourhood of each, and their distances."""
    from scipy.spatial.distance import cdist

    radius = float(wanted.params.get("radius", 20.0))
    distances = cdist(*[np.asarray(wanted.positions)] * 2)
    near = [np.flatnonzero(own < radius) for own in distances]
    apart = [own[at] for own, at in zip(distances, near, strict=True)]
    return near, apart, radius


def _lights(name: str) -> tuple[Fit, Join]:
    def fit(X: list[Matrix], wanted: Wanted) -> tuple[list[Matrix], Matrix]:
        from hyperalignment.searchlight import searchlight_template

        with redirect_stdout(StringIO()):
            template = searchlight_template(np.array(X), *_searchlights(wanted))
        return [join(x, template, wanted) for x in X], template

    def join(X: Matrix, template: Matrix, wanted: Wanted) -> Matrix:
        from hyperalignment import searchlight

        params = {k: v for k, v in wanted.params.items() if k != "radius"}
        lights = _searchlights(wanted)
        return np.asarray(getattr(searchlight, name)(X, template, *lights, **params))

    return fit, join


# -- nltools ---------------------------------------------------------------------------


def _nl_align(X: list[Matrix], wanted: Wanted) -> tuple[list[Matrix], Matrix]:
    from nltools.stats import align

    found = align(list(X), method="procrustes", **wanted.params)
    each = zip(X, found["transformation_matrix"], found["scale"], strict=True)
    # its transposed rotations are those of samples scaled to unit norm
    weights = [R.T * (s / np.linalg.norm(x)) for x, R, s in each]
    return weights, np.asarray(found["common_model"])


def _nl_rotate(X: Matrix, template: Matrix, wanted: Wanted) -> Matrix:
    from nltools.stats import procrustes

    *_, R, scale = procrustes(template, X)
    return np.asarray(R.T * (scale / np.linalg.norm(X)))


# -- shared response models ------------------------------------------------------------


def _brainiak(name: str) -> tuple[Fit, Join]:
    def make(wanted: Wanted) -> Any:
        from brainiak.funcalign import srm

        options = {"features": wanted.n_components, "rand_seed": wanted.seed}
        return getattr(srm, name)(**{**options, **wanted.params})

    def fit(X: list[Matrix], wanted: Wanted) -> tuple[list[Matrix], Matrix]:
        model = make(wanted).fit([np.ascontiguousarray(x.T) for x in X])
        return [np.asarray(w) for w in model.w_], np.asarray(model.s_.T)

    def join(X: Matrix, template: Matrix, wanted: Wanted) -> Matrix:
        model = make(wanted)
        model.w_, model.s_ = [], template.T
        return np.asarray(model.transform_subject(X.T))

    return fit, join


# -- several sets of variables ---------------------------------------------------------


def _cca(name: str) -> Fit:
    def fit(X: list[Matrix], wanted: Wanted) -> tuple[list[Matrix], Matrix]:
        from cca_zoo import linear

        options = {"n_components": wanted.n_components, **wanted.params}
        found = [
            np.asarray(W) for W in getattr(linear, name)(**options).fit(X).weights_
        ]
        return found, np.mean([x @ W for x, W in zip(X, found, strict=True)], axis=0)

    return fit


def _multiviewica(X: list[Matrix], wanted: Wanted) -> tuple[list[Matrix], Matrix]:
    from multiviewica import multiviewica

    options = {"n_components": wanted.n_components, "random_state": wanted.seed}
    np.random.seed(wanted.seed)  # noqa: NPY002 - of its reduction, which takes no seed
    P, W, S = multiviewica(np.array([x.T for x in X]), **{**options, **wanted.params})
    return [(w @ p).T for p, w in zip(P, W, strict=True)], np.asarray(S).T


def _join_reduced(X: Matrix, template: Matrix, wanted: Wanted) -> Matrix:
    """Let a subject join by least squares in its principal components."""
    axes = np.linalg.svd(X, full_matrices=False)[2][: wanted.n_components].T
    return np.asarray(axes @ np.linalg.lstsq(X @ axes, template)[0])


_equal: Any = {"equal_voxels": True, "n_components": None}
_placed: Any = {**_equal, "geometry": True}

#: What ``Adapter`` and ``--method`` know, by name.
METHODS: dict[str, Method] = {
    "scipy:procrustes": Method("scipy", *to_template(rotate), **_equal),
    "fmralign:procrustes": Method("fmralign", *_fmralign("Procrustes"), **_equal),
    "fmralign:ot": Method("fmralign", *_fmralign("OptimalTransport"), **_equal),
    "fmralign:spectral-ot": Method("fmralign", *_fmralign("SpectralOT"), **_placed),
    "fmralign:ridge": Method("fmralign", *_fmralign("RidgeAlignment"), **_equal),
    "fugw:dense": Method("fugw", *to_template(_fugw), **_placed),
    "hyperalignment:procrustes": Method(
        "hyperalignment", _ha_template, _ha_rotate, **_equal
    ),
    "hyperalignment:searchlight": Method(
        "hyperalignment", *_lights("searchlight_procrustes"), **_placed
    ),
    "hyperalignment:searchlight-ridge": Method(
        "hyperalignment", *_lights("searchlight_ridge"), **_placed
    ),
    "nltools:procrustes": Method(
        *("nltools", _nl_align, _nl_rotate),
        **_equal,
        install="pip install seaborn pynv h5py; pip install --no-deps",
    ),
    "brainiak:srm": Method("brainiak", *_brainiak("SRM")),
    "brainiak:detsrm": Method("brainiak", *_brainiak("DetSRM")),
    "cca-zoo:gcca": Method("cca-zoo", _cca("GCCA")),
    "cca-zoo:mcca": Method("cca-zoo", _cca("MCCA")),
    "multiviewica:multiviewica": Method(
        "multiviewica", _multiviewica, _join_reduced, equal_voxels=True
    ),
}
