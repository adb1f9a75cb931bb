"""Weave many brains into one shared space.

Names are imported when first used, so that ``import brainweave`` stays light.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from brainweave._version import __version__

# public name -> the module it lives in
_HOME: dict[str, str] = {}

__all__ = ["__version__", *_HOME]  # noqa: PLE0604


def __getattr__(name: str) -> Any:
    if name in _HOME:
        value = getattr(import_module(_HOME[name]), name)
        globals()[name] = value
        return value
    raise AttributeError(f"module 'brainweave' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted(__all__)
