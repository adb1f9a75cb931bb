"""Aligners in files: which there are, how one is written and read, what must fit.

A file names classes of a closed list; nothing else is ever made by loading.
"""

import re
from collections.abc import Callable, Mapping
from importlib import import_module
from typing import Any

import numpy as np

from brainweave._core.exceptions import ModelFileError
from brainweave.aligners.base import BaseAligner
from brainweave.aligners.maps import SubjectMap
from brainweave.graphs.builders import Graph
from brainweave.models.codec import Node, Writer, value_problem

_REGISTERED: dict[str, type[BaseAligner]] = {}
_ATTRIBUTE = re.compile(r"[A-Za-z][A-Za-z0-9_]*_")
# learned, but as large as the data: maps work without them
_NOT_SAVED = ("bases_", "individual_")


def register_aligner(aligner: type[BaseAligner]) -> type[BaseAligner]:
    """Let model files hold an aligner that is not part of brainweave.

    Use as a decorator, in a module that is imported before loading. The class is saved
    by its name; its parameters and its learned attributes (those whose names end in
    ``_``) must be numbers, texts, arrays, graphs, aligners, maps, or lists, tuples and
    dicts of these.

    Parameters
    ----------
    aligner : type
        A subclass of the aligners' base.

    Returns
    -------
    type
        The same class.
    """
    if not (isinstance(aligner, type) and issubclass(aligner, BaseAligner)):
        raise TypeError(f"register_aligner takes an aligner class, got {aligner!r}.")
    name = aligner.__name__
    if name in _CLASSES or _REGISTERED.get(name, aligner) is not aligner:
        raise ModelFileError(
            f"An aligner named {name} is known already. Choose another name."
        )
    _REGISTERED[name] = aligner
    return aligner


def _class_of(name: Any) -> type[BaseAligner] | None:
    """Return the class of that name, or None if there is none."""
    if isinstance(name, str) and name in _CLASSES:  # imported when a file names one
        found: type[BaseAligner] = getattr(import_module("brainweave"), name)
        return found
    return _REGISTERED.get(str(name))


def write_aligner(writer: Writer, model: BaseAligner, path: str) -> dict[str, Any]:
    """Encode an aligner: its class by name, its parameters, what it learned."""
    name = type(model).__name__
    if _class_of(name) is not type(model):
        remedy = "Decorate the class with brainweave.models.register_aligner."
        if hasattr(model, "best_estimator_"):
            remedy = "Save its best_estimator_."
        raise ModelFileError(
            f"{name} is not an aligner that model files know. {remedy}"
        )
    if not path and not hasattr(model, "maps_"):
        raise ModelFileError(f"This {name} is not fitted yet: call fit, then save.")
    learned = {
        key: value
        for key, value in vars(model).items()
        if key.endswith("_") and key[0] != "_" and key not in _NOT_SAVED
    }
    dot = f"{path}." if path else ""
    return {
        "class": name,
        "params": {k: writer.encode(v, f"{dot}{k}") for k, v in _params(model).items()},
        "state": {k: writer.encode(v, f"{dot}{k}") for k, v in learned.items()},
    }


def _params(model: BaseAligner) -> dict[str, Any]:
    """Return the parameters to save: a graph in place of the function that made it."""
    params = dict(model.get_params(deep=False))
    if callable(params.get("progress")):
        params["progress"] = False  # it belongs to the session that fitted
    graph = params.get("graph")
    if callable(graph) and isinstance(getattr(model, "graph_", None), Graph):
        params["graph"] = vars(model)["graph_"]
    return params


def read_aligner(node: Node) -> BaseAligner:
    """Make an aligner of a known class, with what it learned."""
    node.check_keys("class", "params", "state")
    params, state, name = (node.value[key] for key in ("params", "state", "class"))
    cls = _class_of(name)
    if cls is None:
        raise ModelFileError(
            f"{node.file.name} holds an aligner {str(name)[:60]!r}, which this "
            "brainweave does not know. Update brainweave, or import the module that "
            "registers it."
        )
    if set(params) - set(cls._get_param_names()):
        node.refuse(f"has parameters that {name} does not take")
    model = cls(**{key: node["params"][key].decode() for key in params})
    nested = "." in node.path
    if nested and not state:  # a parameter, not fitted
        return model
    learned = {key: node["state"][key].decode() for key in state}
    for key in learned:
        if not _ATTRIBUTE.fullmatch(key) or hasattr(cls, key):
            node.refuse(f"has a learned value with the name {key[:60]!r}")
    _check_learned(node, learned, cls.__name__, nested=nested)
    for key, value in learned.items():
        setattr(model, key, value)
    bases = [m.basis for m in learned["maps_"] if m.basis is not None]
    if bases and len(bases) == len(learned["maps_"]):
        model.bases_ = bases
    return model


# -- what an aligner of each class must have learned -----------------------------------

Learned = Mapping[str, Any]
_ANY_KIND = "fiubUO"

# What our classes learn; see Node.check_values. Dimensions are K: shared features, n:
# aligning samples, M: subjects, C: classes, others: any.
_COMMON: dict[str, Any] = {"coef_?": ["own K"], "ids_?": [str]}
_TIMELOCKED: dict[str, Any] = {"shared_response_": "n K", "mixing_?": ["n K"]}
_TEMPLATE: dict[str, Any] = {**_TIMELOCKED, "template_": "n d"}
_CLASSES: dict[str, dict[str, Any]] = {
    "GDM": {
        "graph_": Graph,
        "eigenvalues_": "K",
        "n_informative_": int,
        "is_unique_": bool,
        "joined_by_row_?": bool,
        "overlap_?": float,
        "shrinkage_?": [float],
        "shrinkage_by_?": str,
        "constraint_?": str,
        "scale_?": "K",
        "mixing_?": ["own K"],
        "objective_": float,
        "solver_": str,
    },
    "PaperGDM": {
        "graph_": Graph,
        "eigenvalues_": "K",
        "n_informative_": int,
        "is_unique_": bool,
        "joined_by_row_?": bool,
        "overlap_?": float,
        "objective_": float,
        "solver_": str,
    },
    "NoAlignment": {},
    "Hyperalignment": _TEMPLATE,
    "RegularizedHyperalignment": {**_TEMPLATE, "alpha_?": float, "alpha_by_?": str},
    "KernelHyperalignment": _TEMPLATE,
    "SVDHyperalignment": {**_TIMELOCKED, "joint_": "n K", "singular_values_": "K"},
    "DetSRM": _TIMELOCKED,
    "SRM": {**_TIMELOCKED, "sigma_s_": "K K", "rho2_": "M"},
    "RobustSRM": _TIMELOCKED,
    "SemiSupervisedSRM": {
        **_TIMELOCKED,
        "theta_": "K C",
        "bias_": "C",
        "classes_": ("C", _ANY_KIND, np.ndarray),
        "labels_locked_": bool,
    },
    "Parcelwise": {
        "parcels_": list,
        "n_features_": [int],
        "aligners_": [BaseAligner],
        "feature_parcels_": ("K", _ANY_KIND, np.ndarray),
    },
    "Searchlight": {
        "neighborhoods_": [("own", "i", np.ndarray)],
        "joinable_": [int],
        "aligners_": [BaseAligner],
        "reference_maps_": [SubjectMap],
        "coverage_": ("K", _ANY_KIND, np.ndarray),
        "centers_?": np.ndarray,
    },
}


def _check_learned(node: Node, learned: Learned, name: str, *, nested: bool) -> None:
    """Refuse what does not fit together.

    An aligner that is nested in another may have no maps: the other one has them.
    """
    maps: Any = learned.get("maps_")
    k, stated = learned.get("n_components_"), learned.get("n_subjects_")
    empty = nested and maps == []
    if value_problem(maps, [SubjectMap], {}) or not (maps or empty):
        node.refuse("has no maps")
    if type(k) is not int or any(m.n_components != k for m in maps):
        node.refuse(f"has maps without the {k} shared features it states")
    if type(stated) is not int or not (empty or stated == len(maps)):
        node.refuse(f"has {len(maps)} maps, but not as many subjects")
    sizes = {"K": k}
    node.check_values(learned, {**_COMMON, **_CLASSES.get(name, {})}, sizes)
    if sizes.get("M", 0) > stated:
        node.refuse(f"has noise of {sizes['M']} subjects")
    rules = _RULES[name](learned) if name in _RULES else {}
    for problem, holds in rules.items():
        if not holds:
            node.refuse(f"is not whole: {problem}")


# -- rules between what was learned: a problem, and whether it is ruled out ------------


def _gdm_rules(learned: Learned) -> dict[str, bool]:
    k, graph = learned["n_components_"], learned["graph_"]
    sums: Any = learned.get("group_sums_")
    embedding = learned.get("embedding_")
    strengths = learned.get("shrinkage_") or []
    one_for_all = len(set(strengths)) == 1 or learned.get("shrinkage_by_") == "given"
    sums_fit = isinstance(sums, list) and len(sums) == len(graph.groups)
    if sums_fit:
        sizes = [{"g": len(term.names), "K": k} for term in graph.groups]
        sums_fit = not any(map(value_problem, sums, ["g K"] * len(sums), sizes))
    if graph.matrix is None:
        embedding_fits = embedding is None
    else:
        sizes_of_graph = {"n": graph.n_samples, "K": k}
        embedding_fits = value_problem(embedding, "n K", sizes_of_graph) is None
    return {
        "its graph is over other subjects": (
            2 <= len(graph.lengths) <= learned["n_subjects_"]
        ),
        "its number of informative components is wrong": (
            0 <= learned["n_informative_"] <= k
        ),
        "its shrinkage is not a number per subject, with the scale of features": (
            not {"shrinkage_", "shrinkage_by_"} & set(learned)
            or (
                (strengths != [] and learned.get("scale_") is not None)
                and learned["scale_"] is not learned["eigenvalues_"]
                and one_for_all
                and all(0 < rho < np.inf for rho in strengths)
            )
        ),
        "the sums of its groups do not fit its graph": sums_fit,
        "its aligning samples do not fit its graph": embedding_fits,
    }


def _parcel_rules(learned: Learned) -> dict[str, bool]:
    counts = learned["n_features_"]
    sizes = {len(learned[n]) for n in ("parcels_", "n_features_", "aligners_")}
    sizes |= {len(m.parts) for m in learned["maps_"] if hasattr(m, "parts")}
    return {
        "its parcels do not fit together": len(sizes) == 1,
        "the features of its parcels do not add up": (
            sum(counts) == learned["n_components_"]
        ),
    }


def _searchlight_rules(learned: Learned) -> dict[str, bool]:
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


_RULES: dict[str, Callable[[Learned], dict[str, bool]]] = {
    "GDM": _gdm_rules,
    "PaperGDM": _gdm_rules,
    "Parcelwise": _parcel_rules,
    "Searchlight": _searchlight_rules,
}
