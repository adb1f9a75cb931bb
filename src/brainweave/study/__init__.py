"""Studies: samples of many subjects, from wherever people keep them.

Names are imported when first used, so that images and tables cost nothing before.
"""

from importlib import import_module
from typing import Any

# public name -> the module it lives in
_HOME = {
    "CiftiSpace": "brainweave.study.spaces",
    "Cleaning": "brainweave.study.cleaning",
    "DownloadPlan": "brainweave.study.download",
    "ImageSource": "brainweave.study.runs",
    "Run": "brainweave.study.runs",
    "SimulatedStudy": "brainweave.study.simulate",
    "Study": "brainweave.study.study",
    "Subject": "brainweave.study.subject",
    "SurfaceSpace": "brainweave.study.surface",
    "VolumeSpace": "brainweave.study.spaces",
    "fetch_haxby": "brainweave.study.fetch",
    "fetch_openneuro": "brainweave.study.openneuro",
    "fetch_raider": "brainweave.study.fetch",
    "haxby_plan": "brainweave.study.fetch",
    "load_bids": "brainweave.study.bids",
    "load_cifti": "brainweave.study.images",
    "load_gifti": "brainweave.study.images",
    "load_matlab": "brainweave.study.matlab",
    "load_nifti": "brainweave.study.images",
    "load_openfmri": "brainweave.study.openfmri",
    "open_study": "brainweave.study.folder",
    "openneuro_plan": "brainweave.study.openneuro",
    "raider_plan": "brainweave.study.fetch",
    "save_study": "brainweave.study.folder",
    "simulate_study": "brainweave.study.simulate",
    "simulate_like": "brainweave.study.simulate",
    "to_image": "brainweave.study.spaces",
    "write_bids": "brainweave.study.bids_writer",
}

__all__ = [*_HOME]


def __getattr__(name: str) -> Any:
    if name in _HOME:
        return getattr(import_module(_HOME[name]), name)
    raise AttributeError(f"module 'brainweave.study' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted(__all__)
