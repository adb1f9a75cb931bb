r"""Subjects' bases in files.

A linear basis is stored without the samples: :math:`X^\top V`, the voxel patterns of
the kept directions, serves for all voxel weights, and is read only when those are
wanted. Other kernels compare new samples with the aligning ones, so these are stored.
"""

from collections.abc import Iterator, Mapping
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from brainweave._arrays import to_numpy
from brainweave.basis import SubjectBasis, _Spectrum
from brainweave.exceptions import InputError, ModelFileError
from brainweave.kernels import NAMES, Kernel, check_kernel
from brainweave.models.codec import Reader, Writer
from brainweave.models.container import PendingArray, pending
from brainweave.voxels import N_SIGNATURES, SampleProducts, sample_signatures

Matrix = NDArray[np.float64]


class StoredBasis(SubjectBasis):
    """A basis made from stored arrays; use it wherever a :class:`SubjectBasis` goes.

    Attributes
    ----------
    id : str
        The subject's id, if it was stored.
    labels, runs, stimuli : ndarray or None
        What is known of the samples, so that ``GDM().fit(bases)`` needs nothing else.
    space : object or None
        How voxels lie in the brain.
    """

    def __init__(
        self, about: Mapping[str, Any], kernel: Kernel, arrays: Mapping[str, Any]
    ) -> None:
        self.name, self.kernel, self.energy = about["name"], kernel, about["energy"]
        self.standardize, self.dtype = about["standardize"], np.dtype(about["dtype"])
        self.reliable = self.standardize == "reliability"
        self.n_samples, self.n_voxels = about["shape"]
        self.mean, self.scale = arrays["mean"], arrays["scale"]
        self.constant_voxels = np.flatnonzero(np.isinf(self.scale))
        self._stored = arrays["vectors"]
        self._spectrum = _Spectrum(
            arrays["spectrum"], self._stored, about["lost_share"]
        )
        self._loadings = arrays.get("loadings")
        self._data = arrays.get("samples")
        if "products" in arrays:
            self._products = arrays["products"]
        if "narrow" in arrays:
            self._narrow = arrays["narrow"]
        self.signatures = arrays.get("signatures")
        if self.signatures is None and self._data is not None:
            self.signatures = sample_signatures(self._data)  # a file of version 1
        self._shift = arrays.get("shift", np.zeros(self.n_samples))
        self._offset = about["offset"]
        self.id = ""
        self.labels: NDArray[Any] | None = None
        self.runs = None
        self.stimuli: NDArray[Any] | None = None
        self.space: Any = None

    def cut(self, energy: float) -> Self:
        """Return the same basis at another energy."""
        other = super().cut(energy)
        if other.n_kept > self._spectrum.vectors.shape[1]:
            # the directions that were not stored follow from the inner products
            other.__dict__.pop("_spectrum", None)
        return other

    def with_kernel(self, kernel: Any, kernel_params: Any = None) -> SubjectBasis:
        """Return the basis of another kernel, if the samples were stored."""
        other = super().with_kernel(kernel, kernel_params)
        if other is not self and self._data is None:
            raise InputError(
                f"{self.name} was stored for the {self.kernel.name} kernel, without "
                f"its samples; the {other.kernel.name} kernel needs them. Make its "
                "basis again with that kernel."
            )
        return other

    # -- voxel weights and new samples without the aligning samples -------------------

    def _voxel_loadings(self) -> NDArray[Any]:
        if self._loadings is None:
            raise InputError(
                f"{self.name} was stored without its voxels, so it has no voxel "
                "weights. Make its basis again."
            )
        if self._loadings.shape[1] < self.n_kept:
            raise InputError(
                f"{self.name} was stored with {self._loadings.shape[1]} directions, "
                f"fewer than the {self.n_kept} of energy {self.energy}. Make its basis "
                "again with that energy."
            )
        return self._loadings

    def combine(self, mixing: Matrix) -> NDArray[Any]:
        """Mix standardised samples into voxel patterns: ``X.T @ mixing``."""
        if self._data is not None or self.kernel.name != "linear":
            return super().combine(mixing)
        if "_narrow" in self.__dict__:
            return np.asarray(self._narrow.T @ mixing, dtype=self.dtype)
        loadings = self._voxel_loadings()
        small = (self._stored.T @ mixing).astype(loadings.dtype)
        out = np.empty((self.n_voxels, mixing.shape[1]), dtype=self.dtype)
        step = max(256, 2**20 // max(1, loadings.shape[1]))
        for start in range(0, self.n_voxels, step):
            rows = slice(start, start + step)
            out[rows] = loadings[rows] @ small
        return out

    def products_with(self, Z: Any, name: str = "Z") -> SampleProducts:
        """Return the inner products of other samples with the aligning ones."""
        if self._data is not None or self.kernel.name != "linear":
            return super().products_with(Z, name)
        Z = self.check_samples(Z, name)
        narrow = self.__dict__.get("_narrow")
        loadings = self._voxel_loadings() if narrow is None else narrow.T
        squares, shift = np.zeros(Z.shape[0]), np.zeros(Z.shape[0])
        total: Any = 0.0
        for columns, z in self._standardized(Z):
            values = to_numpy(z).astype(np.float64)
            total = total + values @ loadings[columns]
            squares += (values * values).sum(axis=1)
            if not self.standardize:
                shift += values @ self.mean[columns]
        if not np.isfinite(squares).all():
            raise InputError(f"{name} has NaN or infinite values.")
        cross = total if narrow is not None else total @ self._stored.T
        return SampleProducts(np.asarray(cross), squares, shift)

    def chunks(self, *, verify: bool = True) -> Iterator[tuple[slice, Any]]:
        """Yield the standardised aligning samples, if they were stored."""
        if self._data is not None or self.kernel.name == "precomputed":
            return super().chunks(verify=verify)
        if "_narrow" in self.__dict__:
            whole = np.asarray(self._narrow, dtype=self.dtype)
            return iter([(slice(0, self.n_voxels), whole)])
        raise InputError(
            f"{self.name} was stored without its samples. Use the study itself."
        )


# -- in a file -------------------------------------------------------------------------


def _arrays_of(kernel: str, n: int, v: int) -> dict[str, str]:
    """Return which arrays a basis is stored as, and their dimensions.

    n: samples, v: voxels, u: voxels that are standardised, k: kept directions, s: all
    directions.
    """
    dims = {"vectors": "n k", "spectrum": "s", "mean": "u", "scale": "u"}
    if kernel == "linear" and v < n:
        return dims | {"narrow": "n v"}  # the standardised samples are the smaller
    dims["products"] = "n n"
    if kernel == "linear":
        dims["loadings"] = "v k"
    elif kernel != "precomputed":
        dims |= {"samples": "n v", "shift": "n"}
    return dims


def write_basis(to: Writer, basis: SubjectBasis, path: str) -> int:
    """Store a basis once; return its number."""
    if id(basis) in to.known:
        return int(to.known[id(basis)][1])
    kernel = basis.kernel
    if kernel.function is not None:
        raise ModelFileError(
            f"{basis.name} has a function as its kernel, which a file cannot hold: "
            "loading must never run code. Use a kernel by name, or "
            "kernel='precomputed' with your Gram matrices."
        )
    names = [*_arrays_of(kernel.name, basis.n_samples, basis.n_voxels)]
    names += [] if basis.signatures is None else ["signatures"]
    number = len(to.bases)
    to.known[id(basis)] = basis, number
    reliable = isinstance(basis.standardize, str)
    to.bases.append(
        {
            "name": basis.name,
            "kernel": kernel.name,
            "hp": kernel.hp,
            "energy": basis.energy,
            "standardize": basis.standardize if reliable else bool(basis.standardize),
            "dtype": basis.dtype.name,
            "shape": [basis.n_samples, basis.n_voxels],
            "lost_share": basis.lost_share,
            "offset": float(getattr(basis, "_offset", 0.0)),
            "arrays": {n: to.add(f"{path}.{n}", _stored(basis, n)) for n in names},
        }
    )
    return number


def _stored(basis: SubjectBasis, name: str) -> PendingArray:
    if name == "loadings":
        shape = (basis.n_voxels, basis.n_kept)
        return PendingArray(shape, basis.dtype, lambda: basis.combine(basis.vectors))
    attributes = {"samples": "_data", "narrow": "_narrow"}
    attributes |= {"products": "_products", "shift": "_shift"}
    found = getattr(basis, attributes.get(name, name))
    return pending(np.ascontiguousarray(to_numpy(found)))


def read_basis(of: Reader, number: Any, path: str) -> StoredBasis:
    """Make the basis of that number once, after checking every part of it."""
    if of.count(number, path) not in of.bases:
        body = of.document["bases"][number]
        of.bases[number] = _made(of, body, f"basis {number}")
    found: StoredBasis = of.bases[number]
    return found


def _made(of: Reader, body: Any, path: str) -> StoredBasis:
    keys = {"name", "kernel", "hp", "energy", "standardize", "dtype", "shape"}
    table = dict(of.table(body, path, keys | {"lost_share", "offset", "arrays"}))
    known = table["kernel"] in NAMES and table["dtype"] in ("float32", "float64")
    if not known or table["standardize"] not in (True, False, "reliability"):
        of.bad(path, "has an unknown kernel, type or standardisation")
    for name in ("energy", "lost_share", "offset"):
        table[name] = of.number(table[name], path)
    n, v = table["shape"] = of.counts(table["shape"], path)
    if n < 2 or v < 1 or not 0 < table["energy"] <= 1:
        of.bad(path, "has too few samples or voxels, or a wrong energy")
    hp = {} if table["hp"] is None else {"hp": table["hp"]}
    kernel = check_kernel(table["kernel"], hp, owner=path)
    basis = StoredBasis(table, kernel, _read_arrays(of, table, path))
    if basis.n_kept > basis.vectors.shape[1]:
        of.bad(path, "has fewer directions than its energy keeps")
    return basis


def _read_arrays(of: Reader, about: dict[str, Any], path: str) -> dict[str, Any]:
    kernel, (n, v), names = about["kernel"], about["shape"], about["arrays"]
    dims = _arrays_of(kernel, n, v)
    # files of version 1 have no signatures, and sums per voxel that are not used
    optional = {"signatures": "n q", "probed": "v"}
    dims |= {key: shape for key, shape in optional.items() if key in names}
    table = of.table(names, path, set(dims))
    sizes = {"n": n, "v": v, "q": N_SIGNATURES}
    sizes["u"] = 0 if kernel == "precomputed" else v
    out = {}
    for key, shape in dims.items():
        kinds = "fiub" if key == "samples" else "f"
        out[key] = of.shaped(table[key], f"{path}.{key}", shape, sizes, kinds)
    spectrum = out["spectrum"]
    positive = spectrum.size and np.isfinite(spectrum).all() and spectrum[-1] > 0
    if not positive or (np.diff(spectrum) > 0).any():
        of.bad(path, "has a spectrum that is not one")
    if not 1 <= sizes["k"] <= sizes["s"]:
        of.bad(path, f"has {sizes['k']} directions of {sizes['s']}")
    return out
