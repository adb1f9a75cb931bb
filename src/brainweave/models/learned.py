"""Whether what a model learned fits together, before the model is made."""

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from brainweave.aligners.base import BaseAligner
from brainweave.aligners.maps import SubjectMap
from brainweave.graphs import Graph
from brainweave.models.codec import Sizes, misfit

Learned = Mapping[str, Any]
_ANY = "fiubUO"

# What each class learns: a type, an array by its dimensions (K: shared features, n:
# aligning samples, M: subjects, C: classes, others: any), a list of either, or
# (dimensions, kinds) of arrays that are not of real numbers. A name with a question
# mark may be missing, or None.
_ALL: dict[str, Any] = {"coef_?": ["own K"], "ids_?": [str]}
_LOCKED: dict[str, Any] = {"shared_response_": "n K", "mixing_?": ["n K"]}
_CLASSES: dict[str, dict[str, Any]] = {
    "GDM": {
        "graph_": Graph,
        "eigenvalues_": "K",
        "n_informative_": int,
        "is_unique_": bool,
        "joined_by_row_?": bool,
        "overlap_?": float,
        "shrinkage_?": [float],
        "spread_?": "K",
        "mixing_?": ["own K"],
        "objective_": float,
        "solver_": str,
    },
    "Hyperalignment": {**_LOCKED, "template_": "n d"},
    "RegularizedHyperalignment": {**_LOCKED, "template_": "n d"},
    "KernelHyperalignment": {**_LOCKED, "template_": "n d"},
    "SVDHyperalignment": {**_LOCKED, "joint_": "n K", "singular_values_": "K"},
    "DetSRM": _LOCKED,
    "SRM": {**_LOCKED, "sigma_s_": "K K", "rho2_": "M"},
    "RobustSRM": _LOCKED,
    "SemiSupervisedSRM": {
        **_LOCKED,
        "theta_": "K C",
        "bias_": "C",
        "classes_": ("C", _ANY),
        "labels_locked_": bool,
    },
    "Parcelwise": {
        "parcels_": list,
        "n_features_": [int],
        "aligners_": [BaseAligner],
        "feature_parcels_": ("K", _ANY),
    },
    "Searchlight": {
        "neighborhoods_": [("own", "i")],
        "joinable_": [int],
        "aligners_": [BaseAligner],
        "reference_maps_": [SubjectMap],
        "coverage_": ("K", _ANY),
        "centers_?": np.ndarray,
    },
}


def disagreement(learned: Learned, name: str, *, nested: bool = False) -> str | None:
    """Say what does not fit, or None if all does.

    The maps of an aligner that is nested in another one may be with that one.
    """
    maps: Any = learned.get("maps_")
    k, stated = learned.get("n_components_"), learned.get("n_subjects_")
    empty = nested and maps == []
    if not _is(maps, [SubjectMap], {}) or not (maps or empty):
        return "it has no maps"
    if type(k) is not int or any(m.n_components != k for m in maps):
        return f"its maps do not have the {k} shared features it states"
    if type(stated) is not int or not (empty or stated == len(maps)):
        return f"it has {len(maps)} maps, but not as many subjects"
    sizes = {"K": k}
    for key, wanted in {**_ALL, **_CLASSES.get(name, {})}.items():
        value = learned.get(key.rstrip("?"))
        if not _is(value, wanted, sizes) and not (key.endswith("?") and value is None):
            return _lack(key.rstrip("_?"), wanted, sizes)
    rules = _RELATIONS[name](learned) if name in _RELATIONS else {}
    if sizes.get("M", 0) > stated:
        return f"it has noise of {sizes['M']} subjects"
    return next((why for why, holds in rules.items() if not holds), None)


def _is(value: Any, wanted: Any, sizes: Sizes) -> bool:
    if isinstance(wanted, list):
        # lengths of their own may differ
        return isinstance(value, list) and all(
            _is(v, wanted[0], dict(sizes)) for v in value
        )
    if isinstance(wanted, type):
        whole = wanted is not int or type(value) is int  # a bool is none
        return isinstance(value, wanted) and whole
    dims, kinds = (wanted, "f") if isinstance(wanted, str) else wanted
    return misfit(value, dims, sizes, kinds) is None


def _lack(name: str, wanted: Any, sizes: Sizes) -> str:
    """Say of what was learned that it is missing, or not as it should be."""
    several = isinstance(wanted, list)
    wanted = wanted[0] if several else wanted
    if isinstance(wanted, type):
        form = wanted.__name__
    else:
        dims = (wanted if isinstance(wanted, str) else wanted[0]).split()
        form = " x ".join(str(sizes.get(dim, "any")) for dim in dims)
    listed = "a list of " if several else ""
    return f"it does not have {listed}{form} {name.replace('_', ' ')}"


# -- what has to agree with each other -------------------------------------------------


def _of_gdm(learned: Learned) -> dict[str, bool]:
    k, graph = learned["n_components_"], learned["graph_"]
    sums, embedding = learned.get("group_sums_"), learned.get("embedding_")
    sizes = {"K": k, "n": graph.n_samples}
    shrinks = any(f"{name}_" in learned for name in ("shrinkage", "shrinkage_by"))
    strengths = learned.get("shrinkage_") or []
    return {
        "its graph is over other subjects": (
            2 <= len(graph.lengths) <= learned["n_subjects_"]
        ),
        "its number of informative components is wrong": (
            0 <= learned["n_informative_"] <= k
        ),
        "its shrinkage is not a number per subject, with the spread of features": (
            not shrinks
            or (
                bool(strengths and learned.get("spread_") is not None)
                and all(0 < rho < np.inf for rho in strengths)
            )
        ),
        "the sums of its groups do not fit its graph": (
            isinstance(sums, list)
            and len(sums) == len(graph.groups)
            and all(
                _is(s, "g K", {"g": len(term.names), "K": k})
                for s, term in zip(sums, graph.groups, strict=True)
            )
        ),
        "its aligning samples do not fit its graph": (
            embedding is None if graph.matrix is None else _is(embedding, "n K", sizes)
        ),
    }


def _of_parcels(learned: Learned) -> dict[str, bool]:
    counts = learned["n_features_"]
    sizes = {len(learned[n]) for n in ("parcels_", "n_features_", "aligners_")}
    sizes |= {len(m.parts) for m in learned["maps_"] if hasattr(m, "parts")}
    return {
        "its parcels do not fit together": len(sizes) == 1,
        "the features of its parcels do not add up": (
            sum(counts) == learned["n_components_"]
        ),
    }


def _of_searchlight(learned: Learned) -> dict[str, bool]:
    common, joinable = learned["neighborhoods_"], learned["joinable_"]
    k, centers = learned["n_components_"], learned.get("centers_")
    return {
        "its neighbourhoods do not fit": all(
            not c.size or bool(0 <= c.min() <= c.max() < k) for c in common
        ),
        "its local models do not fit": (
            len(joinable)
            == len(learned["aligners_"])
            == len(learned["reference_maps_"])
            and all(0 <= s < len(common) for s in joinable)
        ),
        "its centres do not fit": centers is None or len(centers) == len(common),
    }


_RELATIONS: dict[str, Callable[[Learned], dict[str, bool]]] = {
    "GDM": _of_gdm,
    "Parcelwise": _of_parcels,
    "Searchlight": _of_searchlight,
}
