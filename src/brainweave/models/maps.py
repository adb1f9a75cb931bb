"""How maps are stored: one line of a table for each kind.

Explicit maps are stored as weights and patterns, kernel maps as a basis and
coefficients.
"""

from collections.abc import Callable
from dataclasses import dataclass
from math import isfinite
from typing import Any

import numpy as np
import scipy.sparse

from brainweave.aligners.maps import (
    BasisMap,
    CoordinateMap,
    MixingMap,
    SubjectMap,
    WeightMap,
)
from brainweave.aligners.no_alignment import VoxelMap
from brainweave.aligners.parcelwise import ParcelwiseMap
from brainweave.aligners.robust_srm import RobustMap
from brainweave.aligners.searchlight import SearchlightMap
from brainweave.exceptions import ModelFileError
from brainweave.models.bases import read_basis, write_basis
from brainweave.models.codec import Reader, Sizes, Writer
from brainweave.models.container import PendingArray
from brainweave.voxels import N_SIGNATURES


@dataclass(frozen=True)
class _MapKind:
    """What is stored of a kind of map.

    Its arrays have the dimensions v (voxels), k (shared features), n (samples), c (kept
    coordinates) or a (axes); a question mark says that there may be none.
    """

    make: Any  # the class, or a function
    arrays: dict[str, str]
    values: tuple[str, ...] = ()
    other: tuple[str, ...] = ()
    classes: tuple[type[SubjectMap], ...] = ()  # if not the class alone


def _kernel_map(*, coef: Any, mixing: Any, pattern_coef: Any, **rest: Any) -> Any:
    """Make the map that coefficients, or else a mixing of samples, are for."""
    if (coef is None) == (mixing is None) or (
        coef is None and pattern_coef is not None
    ):
        raise ValueError("has coefficients that do not fit its basis")
    if coef is None:
        return MixingMap(mixing=mixing, **rest)
    return CoordinateMap(coef=coef, pattern_coef=pattern_coef, **rest)


# plain values: the attribute they are, and what they must be
_VALUES: dict[str, tuple[str, Callable[[Any], bool]]] = {
    "history": ("objective_history", lambda h: h is None or all(map(isfinite, h))),
    "isometric": ("isometric", lambda flag: isinstance(flag, bool)),
    "lam": ("lam", lambda weight: weight is not True and weight > 0),
    "max_iter": ("max_iter", lambda n: type(n) is int and n >= 0),
}
_VOXELS = {"mean": "v", "scale": "v"}
_MAPS = {
    "kernel": _MapKind(
        _kernel_map,
        {"coef": "c k?", "mixing": "n k?", "pattern_coef": "k c?"},
        ("history", "isometric"),
        ("basis",),
        classes=(CoordinateMap, MixingMap),
    ),
    "linear": _MapKind(
        WeightMap,
        {**_VOXELS, "weights": "v k", "patterns": "k v?"},
        ("history", "isometric"),
        classes=(WeightMap, CoordinateMap, MixingMap),
    ),
    "voxels": _MapKind(VoxelMap, {**_VOXELS, "axes": "v a?"}),
    "robust": _MapKind(
        RobustMap, {**_VOXELS, "weights": "v k"}, ("history", "lam", "max_iter")
    ),
    "parcels": _MapKind(ParcelwiseMap, {"mean": "v"}, (), ("parts",)),
    "searchlight": _MapKind(
        SearchlightMap, {**_VOXELS, "weights": "v k", "patterns": "k v"}
    ),
}


def write_map(to: Writer, map_: Any, path: str) -> dict[str, Any]:
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
    body: dict[str, Any] = {"kind": name, "space": to.space(map_.space, path)}
    for plain in kind.values:
        body[plain] = to.value(getattr(map_, _VALUES[plain][0]), path)
    if "basis" in kind.other:
        body["basis"] = write_basis(to, map_.basis, f"{path}.basis")
    if "parts" in kind.other:
        body["parts"] = _write_parts(to, map_.parts, path)
    for array in kind.arrays:
        body[array] = to.value(_stored(map_, array), f"{path}.{array}")
    if map_.signatures is not None and not through_kernel:
        body["signatures"] = to.value(map_.signatures, f"{path}.signatures")
    if map_.n_undetermined:
        body["n_undetermined"] = int(map_.n_undetermined)
    return body


def _stored(map_: Any, name: str) -> Any:
    """Return an array of a map; what is made of voxels waits until it is written."""
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


def read_map(of: Reader, body: Any, path: str) -> SubjectMap:
    """Make the map that a table describes."""
    name = body["kind"]
    kind = _MAPS[name]
    optional = {"signatures", "n_undetermined"} & set(body)  # version 1 has none
    table = of.table(
        body,
        path,
        {"kind", "space", *kind.values, *kind.other, *kind.arrays, *optional},
    )
    sizes: Sizes = {"signatures": N_SIGNATURES}
    parts: dict[str, Any] = {}
    if "basis" in kind.other:  # the sizes of the arrays follow from it
        basis = parts["basis"] = read_basis(of, table["basis"], path)
        sizes |= {"v": basis.n_voxels, "n": basis.n_samples, "c": basis.n_kept}
    for array, dims in kind.arrays.items():
        parts[array] = value = of.value(table[array], f"{path}.{array}")
        if value is not None or not dims.endswith("?"):
            is_sparse = name == "searchlight" and array in ("weights", "patterns")
            form = scipy.sparse.csr_array if is_sparse else np.ndarray
            where = f"{path}.{array}"
            of.check_fits(value, where, dims.rstrip("?"), sizes, "f", form)
    for plain in kind.values:
        parts[plain] = of.value(table[plain], path)
        if not _VALUES[plain][1](parts[plain]):
            of.bad(path, f"has a wrong {plain}")
    if "parts" in kind.other:
        parts["parts"] = _read_parts(of, table["parts"], path, sizes)
    history = parts.pop("history", None)
    found = kind.make(**parts, space=of.space(table["space"], path, sizes["v"]))
    found.objective_history = history
    if "signatures" in optional:
        found.signatures = of.value(table["signatures"], path)
        of.check_fits(found.signatures, path, "rows signatures", sizes)
    if "n_undetermined" in optional:
        found.n_undetermined = of.count(table["n_undetermined"], path)
        if found.n_undetermined > found.n_components:
            of.bad(path, "has more undetermined dimensions than shared features")
    return found


# -- parcels ---------------------------------------------------------------------------


def _write_parts(to: Writer, parts: Any, path: str) -> list[Any]:
    return [
        {
            "columns": to.value(columns, f"{path}.{i}.columns"),
            "map": to.value(local, f"{path}.{i}"),
            "n_components": int(k),
        }
        for i, (columns, local, k) in enumerate(parts)
    ]


def _read_parts(of: Reader, node: Any, path: str, sizes: Sizes) -> list[Any]:
    parts = []
    for i, part in enumerate(of.items(node, path)):
        where = f"{path}.{i}"
        entry = of.table(part, where, {"columns", "map", "n_components"})
        columns = of.value(entry["columns"], where)
        local = of.value(entry["map"], where)
        of.check_fits(columns, where, "places", {}, "i")
        of.check_places(columns, where, sizes["v"])
        k = of.count(entry["n_components"], where)
        if local is not None and (
            not isinstance(local, SubjectMap)
            or (local.n_voxels, local.n_components) != (columns.size, k)
        ):
            of.bad(where, "has a map that does not fit its voxels")
        parts.append((columns.astype(np.intp), local, k))
    if not any(local is not None for _, local, _ in parts):
        of.bad(path, "has no parcel with a map")
    return parts
