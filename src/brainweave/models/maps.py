"""How each kind of map is stored; a new kind adds a pair of functions here.

Explicit maps are stored as weights and patterns, kernel maps as a basis and
coefficients.
"""

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

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
from brainweave.models.container import PendingArray
from brainweave.voxels import N_SIGNATURES

if TYPE_CHECKING:
    from brainweave.models.decode import Decoder
    from brainweave.models.encode import Encoder

Body = dict[str, Any]


def encode_map(to: "Encoder", map_: SubjectMap, path: str) -> Body:
    """Encode a map of a known kind."""
    through_kernel = isinstance(map_, BasisMap) and map_.kernel != "linear"
    for kind, (classes, encode, _) in _KINDS.items():
        if type(map_) not in classes or through_kernel != (kind == "kernel"):
            continue
        body = {"kind": kind, **encode(to, map_, path)}
        if map_.signatures is not None and not through_kernel:
            body["signatures"] = to.value(map_.signatures, f"{path}.signatures")
        if map_.n_undetermined:
            body["n_undetermined"] = int(map_.n_undetermined)
        return body
    raise ModelFileError(
        f"{path} is a {type(map_).__name__}, which model files do not know."
    )


def decode_map(of: "Decoder", body: Any, path: str) -> SubjectMap:
    """Make the map that a table describes."""
    kind = body.get("kind") if isinstance(body, dict) else None
    if not isinstance(kind, str) or kind not in _KINDS:
        of.bad(path, "is a map of an unknown kind")
    of_all = ("kind", "signatures", "n_undetermined")
    rest = {k: v for k, v in body.items() if k not in of_all}
    found: SubjectMap = _KINDS[kind][2](of, rest, path)
    if "signatures" in body:  # files of version 1 have none
        signatures = of.floats(body["signatures"], f"{path}.signatures", 2)
        if signatures.shape[1] != N_SIGNATURES:
            of.bad(path, "has signatures of samples that are not such")
        found.signatures = signatures
    if "n_undetermined" in body:
        found.n_undetermined = of.count(body["n_undetermined"], path)
        if found.n_undetermined > found.n_components:
            of.bad(path, "has more undetermined dimensions than shared features")
    return found


# -- weights and patterns --------------------------------------------------------------


def _encode_linear(to: "Encoder", map_: WeightMap | BasisMap, path: str) -> Body:
    # an isometric map goes back by its own transpose
    known = isinstance(map_, BasisMap) or map_._patterns is not None
    back = known and not map_.isometric
    return {
        "space": to.space(map_.space, path),
        "history": to.value(map_.objective_history, path),
        "isometric": bool(map_.isometric),
        "mean": to.value(map_.mean, f"{path}.mean"),
        "scale": to.value(map_.scale, f"{path}.scale"),
        "weights": _voxels(to, map_, "weights", path),
        "patterns": _voxels(to, map_, "patterns", path) if back else None,
    }


def _voxels(to: "Encoder", map_: WeightMap | BasisMap, what: str, path: str) -> Any:
    """Add weights or patterns, computed only while they are written."""
    if isinstance(map_, WeightMap) or what in vars(map_):
        return to.value(getattr(map_, what), f"{path}.{what}")
    v, k = map_.n_voxels, map_.n_components
    shape = (v, k) if what == "weights" else (k, v)
    make = map_.make_weights if what == "weights" else map_.make_patterns
    array = PendingArray(shape, map_.basis.dtype, make)
    return {"array": to.add(f"{path}.{what}", array)}


def _decode_linear(of: "Decoder", body: Body, path: str) -> WeightMap:
    keys = {"space", "history", "isometric", "mean", "scale", "weights", "patterns"}
    table = of.table(body, path, keys)
    mean, scale, weights = _explicit(of, table, path)
    patterns = None
    if table["patterns"] is not None:
        patterns = of.floats(table["patterns"], f"{path}.patterns", 2)
        if patterns.shape != weights.shape[::-1]:
            of.bad(path, "has weights and patterns of different shapes")
    map_ = WeightMap(
        weights=weights,
        patterns=patterns,
        mean=mean,
        scale=scale,
        space=of.space(table["space"], path, len(mean)),
        isometric=of.flag(table["isometric"], path),
    )
    map_.objective_history = of.history(table["history"], path)
    return map_


def _explicit(of: "Decoder", table: Body, path: str) -> tuple[Any, Any, Any]:
    mean, scale, weights = (
        of.floats(table[key], f"{path}.{key}", ndim)
        for key, ndim in (("mean", 1), ("scale", 1), ("weights", 2))
    )
    if scale.shape != mean.shape or weights.shape[0] != len(mean):
        of.bad(path, "has weights, mean and scale of different voxels")
    return mean, scale, weights


# -- a basis and coefficients ----------------------------------------------------------


def _encode_kernel(to: "Encoder", map_: CoordinateMap | MixingMap, path: str) -> Body:
    parts = {"mixing": map_.mixing, "coef": None, "pattern_coef": None}
    if isinstance(map_, CoordinateMap):
        parts |= {"coef": map_.coef, "pattern_coef": map_.given_pattern_coef}
    return {
        "space": to.space(map_.space, path),
        "history": to.value(map_.objective_history, path),
        "isometric": bool(map_.isometric),
        "basis": to.basis(map_.basis, f"{path}.basis"),
        **{name: to.value(v, f"{path}.{name}") for name, v in parts.items()},
    }


def _decode_kernel(of: "Decoder", body: Body, path: str) -> SubjectMap:
    keys = {"space", "history", "isometric", "basis"}
    parts = ("coef", "mixing", "pattern_coef")
    table = of.table(body, path, keys | set(parts))
    basis = of.basis(table["basis"], path)
    coef, mixing, back = (
        None if table[part] is None else of.floats(table[part], f"{path}.{part}", 2)
        for part in parts
    )
    space = of.space(table["space"], path, basis.n_voxels)
    isometric = of.flag(table["isometric"], path)
    map_: SubjectMap
    if coef is not None:
        fits = mixing is None and coef.shape[0] == basis.n_kept
        fits = fits and (back is None or back.shape == coef.shape[::-1])
        map_ = CoordinateMap(
            basis, coef, pattern_coef=back, isometric=isometric, space=space
        )
    elif mixing is not None:
        fits = mixing.shape[0] == basis.n_samples and back is None
        map_ = MixingMap(basis, mixing, isometric=isometric, space=space)
    else:
        fits = False
    if not fits:
        of.bad(path, "has coefficients that do not fit its basis")
    map_.objective_history = of.history(table["history"], path)
    return map_


# -- other kinds -----------------------------------------------------------------------


def _encode_voxels(to: "Encoder", map_: VoxelMap, path: str) -> Body:
    return {
        "space": to.space(map_.space, path),
        "mean": to.value(map_.mean, f"{path}.mean"),
        "scale": to.value(map_.scale, f"{path}.scale"),
        "axes": to.value(map_.axes, f"{path}.axes"),
    }


def _decode_voxels(of: "Decoder", body: Body, path: str) -> VoxelMap:
    table = of.table(body, path, {"space", "mean", "scale", "axes"})
    mean = of.floats(table["mean"], f"{path}.mean", 1)
    scale = of.floats(table["scale"], f"{path}.scale", 1)
    axes = table["axes"]
    if axes is not None:
        axes = of.floats(axes, f"{path}.axes", 2)
    if scale.shape != mean.shape or (axes is not None and len(axes) != len(mean)):
        of.bad(path, "has mean, scale and axes of different voxels")
    space = of.space(table["space"], path, len(mean))
    return VoxelMap(axes=axes, mean=mean, scale=scale, space=space)


def _encode_robust(to: "Encoder", map_: RobustMap, path: str) -> Body:
    return {
        "space": to.space(map_.space, path),
        "history": to.value(map_.objective_history, path),
        "mean": to.value(map_.mean, f"{path}.mean"),
        "scale": to.value(map_.scale, f"{path}.scale"),
        "weights": to.value(map_.weights, f"{path}.weights"),
        "lam": to.value(map_.lam, path),
        "max_iter": int(map_.max_iter),
    }


def _decode_robust(of: "Decoder", body: Body, path: str) -> RobustMap:
    keys = {"space", "history", "mean", "scale", "weights", "lam", "max_iter"}
    table = of.table(body, path, keys)
    mean, scale, weights = _explicit(of, table, path)
    lam = of.value(table["lam"], path)
    if isinstance(lam, bool) or not isinstance(lam, (int, float)) or not lam > 0:
        of.bad(path, "has a wrong weight of its individual term")
    map_ = RobustMap(
        weights=weights,
        mean=mean,
        scale=scale,
        lam=lam,
        max_iter=of.count(table["max_iter"], path),
        space=of.space(table["space"], path, len(mean)),
    )
    map_.objective_history = of.history(table["history"], path)
    return map_


def _encode_parcels(to: "Encoder", map_: ParcelwiseMap, path: str) -> Body:
    return {
        "space": to.space(map_.space, path),
        "mean": to.value(map_.mean, f"{path}.mean"),
        "parts": [
            {
                "columns": to.value(columns, f"{path}.{i}.columns"),
                "map": to.value(local, f"{path}.{i}"),
                "n_components": int(k),
            }
            for i, (columns, local, k) in enumerate(map_.parts)
        ],
    }


def _decode_parcels(of: "Decoder", body: Body, path: str) -> ParcelwiseMap:
    table = of.table(body, path, {"space", "mean", "parts"})
    mean = of.floats(table["mean"], f"{path}.mean", 1)
    parts = []
    for i, part in enumerate(of.items(table["parts"], path)):
        where = f"{path}.{i}"
        entry = of.table(part, where, {"columns", "map", "n_components"})
        columns = of.indices(entry["columns"], where, len(mean))
        local = of.value(entry["map"], where)
        k = of.count(entry["n_components"], where)
        if local is not None and (
            not isinstance(local, SubjectMap)
            or (local.n_voxels, local.n_components) != (columns.size, k)
        ):
            of.bad(where, "has a map that does not fit its voxels")
        parts.append((columns, local, k))
    if not any(local is not None for _, local, _ in parts):
        of.bad(path, "has no parcel with a map")
    return ParcelwiseMap(
        parts, mean=mean, space=of.space(table["space"], path, len(mean))
    )


def _encode_searchlight(to: "Encoder", map_: SearchlightMap, path: str) -> Body:
    names = ("mean", "scale", "weights", "patterns")
    return {
        "space": to.space(map_.space, path),
        **{name: to.value(getattr(map_, name), f"{path}.{name}") for name in names},
    }


def _decode_searchlight(of: "Decoder", body: Body, path: str) -> SearchlightMap:
    table = of.table(body, path, {"space", "mean", "scale", "weights", "patterns"})
    mean = of.floats(table["mean"], f"{path}.mean", 1)
    scale = of.floats(table["scale"], f"{path}.scale", 1)
    weights, patterns = (of.value(table[n], path) for n in ("weights", "patterns"))
    if not scipy.sparse.issparse(weights) or not scipy.sparse.issparse(patterns):
        of.bad(path, "has no sparse weights and patterns")
    if (
        scale.shape != mean.shape
        or weights.shape[0] != len(mean)
        or patterns.shape != weights.shape[::-1]
    ):
        of.bad(path, "has weights, patterns, mean and scale that do not fit")
    return SearchlightMap(
        weights=weights,
        patterns=patterns,
        mean=mean,
        scale=scale,
        space=of.space(table["space"], path, len(mean)),
    )


_Classes = tuple[type[SubjectMap], ...]
_KINDS: dict[str, tuple[_Classes, Callable[..., Body], Callable[..., Any]]] = {
    "linear": (
        (WeightMap, CoordinateMap, MixingMap),
        _encode_linear,
        _decode_linear,
    ),
    "kernel": ((CoordinateMap, MixingMap), _encode_kernel, _decode_kernel),
    "voxels": ((VoxelMap,), _encode_voxels, _decode_voxels),
    "robust": ((RobustMap,), _encode_robust, _decode_robust),
    "parcels": ((ParcelwiseMap,), _encode_parcels, _decode_parcels),
    "searchlight": ((SearchlightMap,), _encode_searchlight, _decode_searchlight),
}
