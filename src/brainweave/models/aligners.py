"""Aligners in files: which there are, and how one is written and read.

A file names classes of a closed list; nothing else is ever made by loading.
"""

import re
from importlib import import_module
from typing import Any

from brainweave.aligners.base import BaseAligner
from brainweave.exceptions import ModelFileError
from brainweave.graphs import Graph
from brainweave.models.codec import Reader, Writer
from brainweave.models.learned import disagreement

# class name -> the module it lives in, imported when a file names the class
_HOME = {
    "DetSRM": "srm",
    "GDM": "gdm",
    "Hyperalignment": "hyperalignment",
    "KernelHyperalignment": "hyperalignment",
    "NoAlignment": "no_alignment",
    "Parcelwise": "parcelwise",
    "RegularizedHyperalignment": "hyperalignment",
    "RobustSRM": "robust_srm",
    "SRM": "srm",
    "Searchlight": "searchlight",
    "SemiSupervisedSRM": "semisupervised_srm",
    "SVDHyperalignment": "svd_hyperalignment",
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
    if name in _HOME or _REGISTERED.get(name, aligner) is not aligner:
        raise ModelFileError(
            f"An aligner named {name} is known already. Choose another name."
        )
    _REGISTERED[name] = aligner
    return aligner


def _class_of(name: Any) -> type[BaseAligner] | None:
    """Return the class of that name, or None if there is none."""
    if not isinstance(name, str):
        return None
    if name in _HOME:
        home = import_module(f"brainweave.aligners.{_HOME[name]}")
        found: type[BaseAligner] = getattr(home, name)
        return found
    return _REGISTERED.get(name)


def write_aligner(to: Writer, model: BaseAligner, path: str) -> dict[str, Any]:
    """Encode an aligner: its class by name, its parameters, what it learned.

    What it learned are its attributes whose names end in ``_``; what is as large as the
    data stays behind.
    """
    name = type(model).__name__
    if _class_of(name) is not type(model):
        remedy = (
            "Save its best_estimator_."
            if hasattr(model, "best_estimator_")
            else "Decorate the class with brainweave.models.register_aligner."
        )
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
    if not isinstance(params, dict) or not isinstance(state, dict):
        of.bad(path, "has no parameters or no learned values")
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
    why = disagreement(learned, cls.__name__, nested=bool(path))
    if why is not None:
        raise ModelFileError(f"{of.file} is damaged: {why}.")
    for name, value in learned.items():
        setattr(model, name, value)
    bases = [m.basis for m in learned["maps_"] if m.basis is not None]
    if bases and len(bases) == len(learned["maps_"]):
        model.bases_ = bases
    return model
