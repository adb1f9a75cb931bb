"""Whether what a model learned fits together, before the model is made."""

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import numpy as np

from brainweave.aligners.base import BaseAligner
from brainweave.aligners.maps import SubjectMap
from brainweave.graphs import Graph

Learned = Mapping[str, Any]


def disagreement(learned: Learned, name: str, *, nested: bool = False) -> str | None:
    """Say what does not fit, or None if all does.

    Parameters
    ----------
    learned : mapping
        The learned attributes of one aligner.
    name : str
        The class of the aligner.
    nested : bool, default=False
        Whether it belongs to another aligner, which then has the maps.
    """
    first: Callable[[Learned], str | None] = partial(_check_maps, nested=nested)
    for check in (first, _check_ids, *_OF_CLASS.get(name, ())):
        why = check(learned)
        if why is not None:
            return why
    return None


def _check_maps(learned: Learned, *, nested: bool) -> str | None:
    maps, k = learned.get("maps_"), learned.get("n_components_")
    empty = nested and maps == []
    if not isinstance(maps, list) or not (maps or empty):
        return "it has no maps"
    if not all(isinstance(m, SubjectMap) for m in maps):
        return "one of its maps is not a map"
    if type(k) is not int or any(m.n_components != k for m in maps):
        return f"its maps do not have the {k} shared features it states"
    stated = learned.get("n_subjects_")
    if type(stated) is not int or not (empty or stated == len(maps)):
        return f"it has {len(maps)} maps, but not as many subjects"
    coef = learned.get("coef_", [])
    if not isinstance(coef, list) or not all(_is_floats(c, (None, k)) for c in coef):
        return f"its coefficients are not matrices with {k} columns"
    return None


def _check_ids(learned: Learned) -> str | None:
    ids = learned.get("ids_")
    texts = isinstance(ids, list) and all(isinstance(i, str) for i in ids)
    return None if ids is None or texts else "the ids of its subjects are not texts"


def _is_strengths(value: Any) -> bool:
    """Whether these are ridges of subjects: numbers larger than zero."""
    return (
        isinstance(value, list)
        and bool(value)
        and all(type(rho) is float and 0 < rho < np.inf for rho in value)
    )


def _is_floats(value: Any, shape: tuple[int | None, ...]) -> bool:
    return (
        isinstance(value, np.ndarray)
        and value.dtype.kind == "f"
        and value.ndim == len(shape)
        and all(
            want in (None, have) for want, have in zip(shape, value.shape, strict=True)
        )
    )


def _check_gdm(learned: Learned) -> str | None:
    k, graph = learned["n_components_"], learned.get("graph_")
    if not isinstance(graph, Graph):
        return "it has no graph"
    informative, sums = learned.get("n_informative_"), learned.get("group_sums_")
    sizes = [len(term.names) for term in graph.groups]
    embedding, mixing = learned.get("embedding_"), learned.get("mixing_", [])
    shrinks = any(f"{name}_" in learned for name in ("shrinkage", "shrinkage_by"))
    rules = {
        "its graph is over other subjects": (
            2 <= len(graph.lengths) <= learned["n_subjects_"]
        ),
        f"it does not have {k} eigenvalues": (
            _is_floats(learned.get("eigenvalues_"), (k,))
        ),
        "its number of informative components is wrong": (
            type(informative) is int and 0 <= informative <= k
        ),
        "it does not say whether its solution is unique": (
            isinstance(learned.get("is_unique_"), bool)
        ),
        "it does not say whether rows are ids": (
            isinstance(learned.get("joined_by_row_", False), bool)
        ),
        "the overlap of its subjects is no number": (
            isinstance(learned.get("overlap_", 0.0), float)
        ),
        "its shrinkage is not a number per subject": (
            not shrinks or _is_strengths(learned.get("shrinkage_"))
        ),
        f"it does not have the spread of {k} features": (
            not shrinks or _is_floats(learned.get("spread_"), (k,))
        ),
        f"its mixings of samples are not matrices with {k} columns": (
            isinstance(mixing, list) and all(_is_floats(m, (None, k)) for m in mixing)
        ),
        "it has no objective": isinstance(learned.get("objective_"), float),
        "it does not say how it was solved": isinstance(learned.get("solver_"), str),
        "the sums of its groups do not fit its graph": (
            isinstance(sums, list)
            and len(sums) == len(sizes)
            and all(_is_floats(s, (n, k)) for s, n in zip(sums, sizes, strict=True))
        ),
        "its aligning samples do not fit its graph": (
            embedding is None
            if graph.matrix is None
            else _is_floats(embedding, (graph.n_samples, k))
        ),
    }
    return next((why for why, holds in rules.items() if not holds), None)


# Learned arrays of the time-locked methods. K: shared features, n: aligning samples,
# M: subjects, C: classes, d: any length, the same wherever it occurs.
_COMMON: dict[str, tuple[str, ...]] = {"shared_response_": ("n", "K")}
_SHAPES: dict[str, dict[str, tuple[str, ...]]] = {
    "Hyperalignment": {**_COMMON, "template_": ("n", "d")},
    "RegularizedHyperalignment": {**_COMMON, "template_": ("n", "d")},
    "KernelHyperalignment": {**_COMMON, "template_": ("n", "d")},
    "SVDHyperalignment": {
        **_COMMON,
        "joint_": ("n", "K"),
        "singular_values_": ("K",),
    },
    "DetSRM": _COMMON,
    "SRM": {**_COMMON, "sigma_s_": ("K", "K"), "rho2_": ("M",)},
    "RobustSRM": _COMMON,
    "SemiSupervisedSRM": {**_COMMON, "theta_": ("K", "C"), "bias_": ("C",)},
}


def _check_shapes(learned: Learned, shapes: dict[str, tuple[str, ...]]) -> str | None:
    sizes = {"K": learned["n_components_"]}
    for name, dims in shapes.items():
        array: Any = learned.get(name)
        if not _is_floats(array, (None,) * len(dims)):
            return f"{name} is not an array of numbers with {len(dims)} dimensions"
        for dim, size in zip(dims, array.shape, strict=True):
            if sizes.setdefault(dim, size) != size:
                return f"{name} has shape {array.shape}, which does not fit"
    if sizes.get("M", 0) > learned["n_subjects_"]:
        return f"it has noise of {sizes['M']} subjects"
    mixing = learned.get("mixing_", [])
    if not isinstance(mixing, list) or not all(
        _is_floats(m, (sizes["n"], sizes["K"])) for m in mixing
    ):
        return "its mixings of samples do not fit its shared response"
    return None


def _check_classes(learned: Learned) -> str | None:
    classes, bias = learned.get("classes_"), learned["bias_"]
    if not isinstance(classes, np.ndarray) or classes.shape != bias.shape:
        return "its classes are not those of its classifier"
    if not isinstance(learned.get("labels_locked_"), bool):
        return "it does not say whether labelled samples are locked in time"
    return None


def _check_parcels(learned: Learned) -> str | None:
    names, counts = learned.get("parcels_"), learned.get("n_features_")
    aligners: Any = learned.get("aligners_")
    features: Any = learned.get("feature_parcels_")
    if not all(isinstance(part, list) for part in (names, counts, aligners)):
        return "it does not list its parcels"
    sizes = {len(part) for part in (names, counts, aligners) if part is not None}
    sizes |= {len(m.parts) for m in learned["maps_"] if hasattr(m, "parts")}
    if len(sizes) != 1 or not all(isinstance(a, BaseAligner) for a in aligners or []):
        return "its parcels do not fit together"
    whole = all(type(k) is int for k in counts or [])
    if not whole or sum(counts or []) != learned["n_components_"]:
        return "the features of its parcels do not add up"
    if np.shape(features) != (learned["n_components_"],):
        return "its features are not assigned to parcels"
    return None


def _check_searchlight(learned: Learned) -> str | None:
    k, centers = learned["n_components_"], learned.get("centers_")
    coverage: Any = learned.get("coverage_")
    names = ("neighborhoods_", "joinable_", "aligners_", "reference_maps_")
    lists: list[Any] = [learned.get(name) for name in names]
    if not all(isinstance(part, list) for part in lists):
        return "it does not list its neighbourhoods"
    common, joinable, aligners, references = lists
    rules = {
        "its neighbourhoods do not fit": all(_is_places(c, k) for c in common),
        "its coverage does not fit": np.shape(coverage) == (k,),
        "its local models do not fit": (
            len(joinable) == len(aligners) == len(references)
            and all(type(s) is int and 0 <= s < len(common) for s in joinable)
            and all(isinstance(a, BaseAligner) for a in aligners)
            and all(isinstance(m, SubjectMap) for m in references)
        ),
        "its centres do not fit": centers is None
        or (isinstance(centers, np.ndarray) and len(centers) == len(common)),
    }
    return next((why for why, holds in rules.items() if not holds), None)


def _is_places(value: Any, size: int) -> bool:
    return (
        isinstance(value, np.ndarray)
        and value.dtype.kind == "i"
        and value.ndim == 1
        and (not value.size or bool(0 <= value.min() <= value.max() < size))
    )


_OF_CLASS: dict[str, tuple[Callable[[Learned], str | None], ...]] = {
    "GDM": (_check_gdm,),
    **{
        name: (partial(_check_shapes, shapes=shapes),)
        for name, shapes in _SHAPES.items()
    },
}
_OF_CLASS["SemiSupervisedSRM"] += (_check_classes,)
_OF_CLASS["Parcelwise"] = (_check_parcels,)
_OF_CLASS["Searchlight"] = (_check_searchlight,)
