"""Which aligners a model file may name; nothing else is ever made by loading."""

from importlib import import_module
from typing import Any

from brainweave.aligners.base import BaseAligner
from brainweave.exceptions import ModelFileError

# class name -> the module it lives in, imported when a file names the class
_HOME = {
    "DetSRM": "brainweave.aligners.srm",
    "GDM": "brainweave.aligners.gdm",
    "Hyperalignment": "brainweave.aligners.hyperalignment",
    "KernelHyperalignment": "brainweave.aligners.hyperalignment",
    "NoAlignment": "brainweave.aligners.no_alignment",
    "Parcelwise": "brainweave.aligners.parcelwise",
    "RegularizedHyperalignment": "brainweave.aligners.hyperalignment",
    "RobustSRM": "brainweave.aligners.robust_srm",
    "SRM": "brainweave.aligners.srm",
    "Searchlight": "brainweave.aligners.searchlight",
    "SemiSupervisedSRM": "brainweave.aligners.semisupervised_srm",
    "SVDHyperalignment": "brainweave.aligners.hyperalignment",
}
_REGISTERED: dict[str, type[BaseAligner]] = {}


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
    known = _REGISTERED.get(aligner.__name__)
    if aligner.__name__ in _HOME or (known is not None and known is not aligner):
        raise ModelFileError(
            f"An aligner named {aligner.__name__} is known already. Choose another "
            "name."
        )
    _REGISTERED[aligner.__name__] = aligner
    return aligner


def aligner_class(name: Any) -> type[BaseAligner] | None:
    """Return the class of that name, or None if there is none."""
    if not isinstance(name, str):
        return None
    if name in _HOME:
        found: type[BaseAligner] = getattr(import_module(_HOME[name]), name)
        return found
    return _REGISTERED.get(name)
