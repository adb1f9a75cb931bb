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
from brainweave.models.codec import Reader, Sizes, Writer, misfit

# ours, imported when a file names one
_OURS = {
    *("DetSRM", "GDM", "Hyperalignment", "KernelHyperalignment", "NoAlignment"),
    *("Parcelwise", "RegularizedHyperalignment", "RobustSRM", "SRM", "Searchlight"),
    *("SemiSupervisedSRM", "SVDHyperalignment"),
}
_REGISTERED: dict[str, type[BaseAligner]] = {}
_ATTRIBUTE = re.compile(r"[A-Za-z][A-Za-z0-9_]*_")
# learned, but as large as the data: maps go without them
_LEFT_BEHIND = ("bases_", "individual_")


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
    if name in _OURS or _REGISTERED.get(name, aligner) is not aligner:
        raise ModelFileError(
            f"An aligner named {name} is known already. Choose another name."
        )
    _REGISTERED[name] = aligner
    return aligner


def _class_of(name: Any) -> type[BaseAligner] | None:
    """Return the class of that name, or None if there is none."""
    if isinstance(name, str) and name in _OURS:
        found: type[BaseAligner] = getattr(import_module("brainweave"), name)
        return found
    return _REGISTERED.get(str(name))


def write_aligner(to: Writer, model: BaseAligner, path: str) -> dict[str, Any]:
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
        if key.endswith("_") and key[0] != "_" and key not in _LEFT_BEHIND
    }
    dot = f"{path}." if path else ""
    return {
        "class": name,
        "params": {k: to.value(v, f"{dot}{k}") for k, v in _params(model).items()},
        "state": {k: to.value(v, f"{dot}{k}") for k, v in learned.items()},
    }


def _params(model: BaseAligner) -> dict[str, Any]:
    """Return the parameters; the graph that a function made stands for the function."""
    params = dict(model.get_params(deep=False))
    if callable(params.get("progress")):
        params["progress"] = False  # it belongs to the session that fitted
    graph = params.get("graph")
    if callable(graph) and isinstance(getattr(model, "graph_", None), Graph):
        params["graph"] = vars(model)["graph_"]
    return params


def read_aligner(of: Reader, body: Any, path: str) -> BaseAligner:
    """Make an aligner of a known class, with what it learned."""
    table = of.table(body, path, {"class", "params", "state"})
    cls = _class_of(table["class"])
    if cls is None:
        raise ModelFileError(
            f"{of.file} holds an aligner {str(table['class'])[:60]!r}, which this "
            "brainweave does not know. Update brainweave, or import the module that "
            "registers it."
        )
    params, state = table["params"], table["state"]
    if set(params) - set(cls._get_param_names()):
        of.bad(path, f"has parameters that {cls.__name__} does not take")
    dot = f"{path}." if path else ""
    model = cls(**{k: of.value(v, f"{dot}{k}") for k, v in params.items()})
    if path and not state:  # a parameter, not fitted
        return model
    learned = {k: of.value(v, f"{dot}{k}") for k, v in state.items()}
    for name in learned:
        if not _ATTRIBUTE.fullmatch(name) or hasattr(cls, name):
            of.bad(path, f"has a learned value with the name {name[:60]!r}")
    why = _disagreement(learned, cls.__name__, nested=bool(path))
    if why is not None:
        raise ModelFileError(f"{of.file} is damaged: {why}.")
    for name, value in learned.items():
        setattr(model, name, value)
    bases = [m.basis for m in learned["maps_"] if m.basis is not None]
    if bases and len(bases) == len(learned["maps_"]):
        model.bases_ = bases
    return model


# -- whether what was learned fits together -------------------------------------------

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
        "shrinkage_by_?": str,
        "constraint_?": str,
        "spread_?": "K",
        "mixing_?": ["own K"],
        "objective_": float,
        "solver_": str,
    },
    "Hyperalignment": {**_LOCKED, "template_": "n d"},
    "RegularizedHyperalignment": {
        **_LOCKED,
        "template_": "n d",
        "alpha_?": float,
        "alpha_by_?": str,
    },
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


def _disagreement(learned: Learned, name: str, *, nested: bool = False) -> str | None:
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
