"""Studies: samples of many subjects, from wherever people keep them.

Names are imported when first used, so that images and tables cost nothing before.
"""

from importlib import import_module
from typing import Any

# public name -> the module it lives in
_HOME = {
    "Study": "brainweave.study.study",
    "Subject": "brainweave.study.subject",
}

__all__ = [*_HOME]


def __getattr__(name: str) -> Any:
    if name in _HOME:
        return getattr(import_module(_HOME[name]), name)
    raise AttributeError(f"module 'brainweave.study' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted(__all__)
