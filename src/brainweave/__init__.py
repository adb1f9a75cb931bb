"""Weave many brains into one shared space.

Names are imported when first used, so that ``import brainweave`` stays light.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from brainweave._version import __version__

# public name -> the module it lives in
_HOME: dict[str, str] = {
    "Study": "brainweave.study.study",
    "Subject": "brainweave.study.subject",
    "fetch_haxby": "brainweave.study.fetch",
    "fetch_openneuro": "brainweave.study.openneuro",
    "fetch_raider": "brainweave.study.fetch",
    "load_bids": "brainweave.study.bids",
    "load_cifti": "brainweave.study.images",
    "load_gifti": "brainweave.study.images",
    "load_matlab": "brainweave.study.matlab",
    "load_nifti": "brainweave.study.images",
    "load_openfmri": "brainweave.study.openfmri",
    "simulate_study": "brainweave.study.simulate",
}

__all__ = ["__version__", *_HOME]  # noqa: PLE0604


def __getattr__(name: str) -> Any:
    if name in _HOME:
        value = getattr(import_module(_HOME[name]), name)
        globals()[name] = value
        return value
    raise AttributeError(f"module 'brainweave' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted(__all__)
