r"""Subjects' bases and maps in files.

A linear basis is stored without the samples: :math:`X^\top V`, the voxel patterns of
the kept directions, serves for all voxel weights, and is read only when those are
wanted. Other kernels compare new samples with the aligning ones, so these are stored.
Maps through voxels are stored as weights and patterns, others as a basis and
coefficients.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from math import isfinite
from typing import Any

import numpy as np
import scipy.sparse
from numpy.typing import NDArray

from brainweave._core.arrays import to_numpy
from brainweave._core.exceptions import InputError, ModelFileError
from brainweave.aligners.maps import (
    BasisMap,
    CoordinateMap,
    MixingMap,
    SubjectMap,
    WeightMap,
)
from brainweave.aligners.no_alignment import VoxelMap
from brainweave.aligners.piecewise.parcelwise import ParcelwiseMap
from brainweave.aligners.piecewise.searchlight import SearchlightMap
from brainweave.aligners.srm.robust import RobustMap
from brainweave.basis.basis import SubjectBasis, _Spectrum
from brainweave.basis.kernels import NAMES, Kernel, check_kernel
from brainweave.basis.signatures import N_SIGNATURES, sample_signatures
from brainweave.basis.voxels import SampleProducts
from brainweave.models.codec import Node, Sizes, Writer
from brainweave.models.container import PendingArray, pending

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
        self, values: Mapping[str, Any], kernel: Kernel, arrays: Mapping[str, Any]
    ) -> None:
        self.name, self.kernel, self.energy = values["name"], kernel, values["energy"]
        self.standardize, self.dtype = values["standardize"], np.dtype(values["dtype"])
        self.reliable = self.standardize == "reliability"
        self.n_samples, self.n_voxels = values["shape"]
        self.mean, self.scale = arrays["mean"], arrays["scale"]
        self.constant_voxels = np.flatnonzero(np.isinf(self.scale))
        self._stored = arrays["vectors"]
        self._spectrum = _Spectrum(
            arrays["spectrum"], self._stored, values["lost_share"]
        )
        self._loadings: Any = arrays.get("loadings")
        self._data = arrays.get("samples")
        if "products" in arrays:
            self._products = arrays["products"]
        if "narrow" in arrays:
            self._narrow = arrays["narrow"]
        self.signatures = arrays.get("signatures")
        if self.signatures is None and self._data is not None:
            self.signatures = sample_signatures(self._data)  # a file of version 1
        self._shift = arrays.get("shift", np.zeros(self.n_samples))
        self._offset = values["offset"]
        self.id = ""
        self.labels: NDArray[Any] | None = None
        self.runs = None
        self.stimuli: NDArray[Any] | None = None
        self.space: Any = None

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
        return np.asarray(loadings @ small, dtype=self.dtype)

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


_BASIS_VALUES = ("name", "kernel", "hp", "energy", "standardize", "dtype", "shape")
_BASIS_NUMBERS = ("energy", "lost_share", "offset")


def _basis_arrays(kernel: str, n: int, v: int) -> dict[str, str]:
    """Return the arrays of a basis: k of s directions, u standardised voxels."""
    dims = {"vectors": "n k", "spectrum": "s", "mean": "u", "scale": "u"}
    if kernel == "linear" and v < n:
        return dims | {"narrow": "n v"}  # the standardised samples are the smaller
    dims["products"] = "n n"
    if kernel == "linear":
        dims["loadings"] = "v k"
    elif kernel != "precomputed":
        dims |= {"samples": "n v", "shift": "n"}
    return dims


def write_basis(writer: Writer, basis: SubjectBasis, path: str) -> int:
    """Store a basis once; return its number."""
    if id(basis) in writer.stored:
        return int(writer.stored[id(basis)][1])
    kernel = basis.kernel
    if kernel.function is not None:
        raise ModelFileError(
            f"{basis.name} has a function as its kernel, which a file cannot hold: "
            "loading must never run code. Use a kernel by name, or "
            "kernel='precomputed' with your Gram matrices."
        )
    names = [*_basis_arrays(kernel.name, basis.n_samples, basis.n_voxels)]
    names += [] if basis.signatures is None else ["signatures"]
    number = len(writer.bases)
    writer.stored[id(basis)] = basis, number
    reliable = isinstance(basis.standardize, str)
    arrays = {n: writer.add(f"{path}.{n}", _basis_array(basis, n)) for n in names}
    writer.bases.append(
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
            "arrays": arrays,
        }
    )
    return number


def _basis_array(basis: SubjectBasis, name: str) -> PendingArray:
    if name == "loadings":
        shape = (basis.n_voxels, basis.n_kept)
        return PendingArray(shape, basis.dtype, lambda: basis.combine(basis.vectors))
    attributes = {"samples": "_data", "narrow": "_narrow"}
    attributes |= {"products": "_products", "shift": "_shift"}
    found = getattr(basis, attributes.get(name, name))
    return pending(np.ascontiguousarray(to_numpy(found)))


def read_basis(node: Node) -> StoredBasis:
    """Make the basis of a number once, after checking every part of it."""
    number, made = node.count(), node.file.bases
    if number not in made:
        made[number] = _make_basis(node.file.root["bases"][number])
    basis: StoredBasis = made[number]
    return basis


def _make_basis(node: Node) -> StoredBasis:
    node.check_keys(*{*_BASIS_VALUES, *_BASIS_NUMBERS}, "arrays")
    values = dict(node.value)
    known = values["kernel"] in NAMES and values["dtype"] in ("float32", "float64")
    if not known or values["standardize"] not in (True, False, "reliability"):
        node.refuse("has an unknown kernel, type or standardisation")
    for name in _BASIS_NUMBERS:
        values[name] = node[name].number()
    n, v = values["shape"] = node["shape"].counts()
    if n < 2 or v < 1 or not 0 < values["energy"] <= 1:
        node.refuse("has too few samples or voxels, or a wrong energy")
    hp = {} if values["hp"] is None else {"hp": values["hp"]}
    kernel = check_kernel(values["kernel"], hp, owner=node.path)
    basis = StoredBasis(values, kernel, _read_arrays(node["arrays"], kernel.name, n, v))
    if basis.n_kept > basis.vectors.shape[1]:
        node.refuse("has fewer directions than its energy keeps")
    return basis


def _read_arrays(node: Node, kernel: str, n: int, v: int) -> dict[str, Any]:
    dims = _basis_arrays(kernel, n, v)
    # files of version 1 have no signatures, and sums per voxel that are not used
    optional = {"signatures": "n q", "probed": "v"}
    dims |= {key: shape for key, shape in optional.items() if key in node.value}
    node.check_keys(*dims)
    sizes = {"n": n, "v": v, "q": N_SIGNATURES}
    sizes["u"] = 0 if kernel == "precomputed" else v
    arrays = {
        key: node[key].array(shape, sizes, "fiub" if key == "samples" else "f")
        for key, shape in dims.items()
    }
    spectrum = arrays["spectrum"]
    positive = spectrum.size and np.isfinite(spectrum).all() and spectrum[-1] > 0
    if not positive or (np.diff(spectrum) > 0).any():
        node.refuse("has a spectrum that is not one")
    if not 1 <= sizes["k"] <= sizes["s"]:
        node.refuse(f"has {sizes['k']} directions of {sizes['s']}")
    return arrays


@dataclass(frozen=True)
class _MapKind:
    """What is stored of a kind of map, by a schema as of :meth:`Node.check_values`.

    Its arrays have the dimensions v (voxels), k (shared features), n (samples), c (kept
    coordinates) or a (axes).
    """

    make: Any  # the class, or a function
    schema: dict[str, Any]
    other: tuple[str, ...] = ()
    classes: tuple[type[SubjectMap], ...] = ()  # if not the class alone

    @property
    def names(self) -> list[str]:
        """The names of what is stored."""
        return [key.rstrip("?") for key in self.schema]


def _kernel_map(*, coef: Any, mixing: Any, pattern_coef: Any, **rest: Any) -> Any:
    """Make the map that coefficients, or else a mixing of samples, are for."""
    if (coef is None) == (mixing is None) or (
        coef is None and pattern_coef is not None
    ):
        raise ValueError("has coefficients that do not fit its basis")
    if coef is None:
        return MixingMap(mixing=mixing, **rest)
    return CoordinateMap(coef=coef, pattern_coef=pattern_coef, **rest)


def _is_history(values: Any) -> bool:
    return values is None or all(map(isfinite, values))


_VOXELS = {"mean": "v", "scale": "v"}
_FOUND = {"history": _is_history, "isometric": bool}
_MAPS = {
    "kernel": _MapKind(
        _kernel_map,
        {"coef?": "c k", "mixing?": "n k", "pattern_coef?": "k c", **_FOUND},
        other=("basis",),
        classes=(CoordinateMap, MixingMap),
    ),
    "linear": _MapKind(
        WeightMap,
        {**_VOXELS, "weights": "v k", "patterns?": "k v", **_FOUND},
        classes=(WeightMap, CoordinateMap, MixingMap),
    ),
    "voxels": _MapKind(VoxelMap, {**_VOXELS, "axes?": "v a"}),
    "robust": _MapKind(
        RobustMap,
        {
            **_VOXELS,
            "weights": "v k",
            "history": _is_history,
            "lam": lambda weight: weight is not True and weight > 0,
            "max_iter": lambda n: type(n) is int and n >= 0,
        },
    ),
    "parcels": _MapKind(ParcelwiseMap, {"mean": "v"}, other=("parts",)),
    "searchlight": _MapKind(
        SearchlightMap,
        {
            **_VOXELS,
            "weights": ("v k", "f", scipy.sparse.csr_array),
            "patterns": ("k v", "f", scipy.sparse.csr_array),
        },
    ),
}


def write_map(writer: Writer, map_: Any, path: str) -> dict[str, Any]:
    """Encode a map of a known kind."""
    through_kernel = isinstance(map_, BasisMap) and map_.kernel != "linear"
    for name, kind in _MAPS.items():
        classes = kind.classes or (kind.make,)
        if type(map_) in classes and through_kernel == (name == "kernel"):
            break
    else:
        raise ModelFileError(
            f"{path} is a {type(map_).__name__}, which model files do not know."
        )
    body: dict[str, Any] = {"kind": name, "space": writer.space(map_.space, path)}
    if "basis" in kind.other:
        body["basis"] = write_basis(writer, map_.basis, f"{path}.basis")
    if "parts" in kind.other:
        body["parts"] = _write_parts(writer, map_.parts, path)
    for stored in kind.names:
        body[stored] = writer.encode(_stored_value(map_, stored), f"{path}.{stored}")
    if map_.signatures is not None and not through_kernel:
        body["signatures"] = writer.encode(map_.signatures, f"{path}.signatures")
    if map_.n_undetermined:
        body["n_undetermined"] = int(map_.n_undetermined)
    return body


def _stored_value(map_: Any, name: str) -> Any:
    """Return what is stored of a map; what is made of voxels is a PendingArray."""
    if name == "history":
        return map_.objective_history
    if name == "pattern_coef":
        return getattr(map_, "given_pattern_coef", None)
    if name == "coef" and isinstance(map_, MixingMap):
        return None  # the mixing says it all
    explicit = isinstance(map_, WeightMap)
    if name == "patterns" and (map_.isometric or (explicit and map_._patterns is None)):
        return None  # an isometric map goes back by its own transpose
    made_of_voxels = name in ("weights", "patterns") and isinstance(map_, BasisMap)
    if not made_of_voxels or name in vars(map_):
        return getattr(map_, name)
    v, k = map_.n_voxels, map_.n_components
    shape, make = (v, k), map_.make_weights
    if name == "patterns":
        shape, make = (k, v), map_.make_patterns
    return PendingArray(shape, map_.basis.dtype, make)


def read_map(node: Node) -> SubjectMap:
    """Make the map that a table describes."""
    kind = _MAPS[node.value["kind"]]
    optional = {"signatures", "n_undetermined"} & set(node.value)  # version 1 has none
    node.check_keys("kind", "space", *kind.names, *kind.other, *optional)
    sizes: Sizes = {"signatures": N_SIGNATURES}
    parts = {name: node[name].decode() for name in kind.names}
    if "basis" in kind.other:  # the sizes of the arrays follow from it
        basis = parts["basis"] = read_basis(node["basis"])
        sizes |= {"v": basis.n_voxels, "n": basis.n_samples, "c": basis.n_kept}
    node.check_values(parts, kind.schema, sizes)
    if "parts" in kind.other:
        parts["parts"] = _read_parts(node["parts"], sizes["v"])
    history = parts.pop("history", None)
    found = kind.make(**parts, space=node["space"].space(sizes["v"]))
    found.objective_history = history
    if "signatures" in optional:
        found.signatures = node["signatures"].decode()
        node.check(found.signatures, "rows signatures", sizes)
    if "n_undetermined" in optional:
        found.n_undetermined = node["n_undetermined"].count()
        if found.n_undetermined > found.n_components:
            node.refuse("has more undetermined dimensions than shared features")
    return found


def _write_parts(writer: Writer, parts: Any, path: str) -> list[Any]:
    return [
        {
            "columns": writer.encode(columns, f"{path}.{i}.columns"),
            "map": writer.encode(local, f"{path}.{i}"),
            "n_components": int(k),
        }
        for i, (columns, local, k) in enumerate(parts)
    ]


def _read_parts(node: Node, n_voxels: int) -> list[Any]:
    parts = []
    for part in node.children():
        part.check_keys("columns", "map", "n_components")
        columns = part["columns"].decode()
        part.check(columns, ("columns", "i", np.ndarray), {})
        part.check_indices(columns, n_voxels)
        k, local = part["n_components"].count(), part["map"].decode()
        if local is not None and (
            not isinstance(local, SubjectMap)
            or (local.n_voxels, local.n_components) != (columns.size, k)
        ):
            part.refuse("has a map that does not fit its voxels")
        parts.append((columns.astype(np.intp), local, k))
    if not any(local is not None for _, local, _ in parts):
        node.refuse("has no parcel with a map")
    return parts
