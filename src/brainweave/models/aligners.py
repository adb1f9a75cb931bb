"""Aligners in files: which there are, how one is written and read, what must fit.

A file names classes of a closed list; nothing else is ever made by loading.
"""

import re
from collections.abc import Callable, Mapping
from importlib import import_module
from typing import Any

import numpy as np

from brainweave.aligners.base import BaseAligner
from brainweave.aligners.maps import SubjectMap
from brainweave.exceptions import ModelFileError
from brainweave.graphs import Graph
from brainweave.models.codec import Node, Sizes, Writer, array_problem

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
    problem = _problem_of(learned, cls.__name__, nested=nested)
    if problem is not None:
        raise ModelFileError(f"{node.file.name} is damaged: {problem}.")
    for key, value in learned.items():
        setattr(model, key, value)
    bases = [m.basis for m in learned["maps_"] if m.basis is not None]
    if bases and len(bases) == len(learned["maps_"]):
        model.bases_ = bases
    return model


# -- what an aligner of each class must have learned -----------------------------------

Learned = Mapping[str, Any]
_ANY_KIND = "fiubUO"

# What our classes learn: a type, an array by its dimensions (K: shared features, n:
# aligning samples, M: subjects, C: classes, others: any), a list of either, or
# (dimensions, kinds) of arrays that are not of real numbers. A name with a question
# mark may be missing, or None.
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
        "spread_?": "K",
        "mixing_?": ["own K"],
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
        "classes_": ("C", _ANY_KIND),
        "labels_locked_": bool,
    },
    "Parcelwise": {
        "parcels_": list,
        "n_features_": [int],
        "aligners_": [BaseAligner],
        "feature_parcels_": ("K", _ANY_KIND),
    },
    "Searchlight": {
        "neighborhoods_": [("own", "i")],
        "joinable_": [int],
        "aligners_": [BaseAligner],
        "reference_maps_": [SubjectMap],
        "coverage_": ("K", _ANY_KIND),
        "centers_?": np.ndarray,
    },
}


def _problem_of(learned: Learned, name: str, *, nested: bool = False) -> str | None:
    """Return what does not fit together, or None if all does.

    An aligner that is nested in another may have no maps: the other one has them.
    """
    maps: Any = learned.get("maps_")
    k, stated = learned.get("n_components_"), learned.get("n_subjects_")
    empty = nested and maps == []
    if not _matches(maps, [SubjectMap], {}) or not (maps or empty):
        return "it has no maps"
    if type(k) is not int or any(m.n_components != k for m in maps):
        return f"its maps do not have the {k} shared features it states"
    if type(stated) is not int or not (empty or stated == len(maps)):
        return f"it has {len(maps)} maps, but not as many subjects"
    sizes = {"K": k}
    for key, wanted in {**_COMMON, **_CLASSES.get(name, {})}.items():
        value = learned.get(key.rstrip("?"))
        absent = value is None and key.endswith("?")
        if not absent and not _matches(value, wanted, sizes):
            return _describe_lack(key.rstrip("_?"), wanted, sizes)
    if sizes.get("M", 0) > stated:
        return f"it has noise of {sizes['M']} subjects"
    rules = _RULES[name](learned) if name in _RULES else {}
    return next((problem for problem, holds in rules.items() if not holds), None)


def _matches(value: Any, wanted: Any, sizes: Sizes) -> bool:
    if isinstance(wanted, list):
        # lengths of their own may differ
        return isinstance(value, list) and all(
            _matches(v, wanted[0], dict(sizes)) for v in value
        )
    if isinstance(wanted, type):
        whole = wanted is not int or type(value) is int  # a bool is none
        return isinstance(value, wanted) and whole
    dims, kinds = (wanted, "f") if isinstance(wanted, str) else wanted
    return array_problem(value, dims, sizes, kinds) is None


def _describe_lack(name: str, wanted: Any, sizes: Sizes) -> str:
    """Say that something learned is missing, or not as it should be."""
    several = isinstance(wanted, list)
    wanted = wanted[0] if several else wanted
    if isinstance(wanted, type):
        form = wanted.__name__
    else:
        dims = (wanted if isinstance(wanted, str) else wanted[0]).split()
        form = " x ".join(str(sizes.get(dim, "any")) for dim in dims)
    listed = "a list of " if several else ""
    return f"it does not have {listed}{form} {name.replace('_', ' ')}"


# -- rules between what was learned: the problem, and whether there is none ------------


def _gdm_rules(learned: Learned) -> dict[str, bool]:
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
                # one for all, unless they were given
                and (
                    learned.get("shrinkage_by_") == "given" or len(set(strengths)) == 1
                )
            )
        ),
        "the sums of its groups do not fit its graph": (
            isinstance(sums, list)
            and len(sums) == len(graph.groups)
            and all(
                _matches(s, "g K", {"g": len(term.names), "K": k})
                for s, term in zip(sums, graph.groups, strict=True)
            )
        ),
        "its aligning samples do not fit its graph": (
            embedding is None
            if graph.matrix is None
            else _matches(embedding, "n K", sizes)
        ),
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
    "Parcelwise": _parcel_rules,
    "Searchlight": _searchlight_rules,
}
