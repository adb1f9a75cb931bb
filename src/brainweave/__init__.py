"""Weave many brains into one shared space.

Names are imported when first used, so that ``import brainweave`` stays light.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from brainweave._version import __version__

# public name -> the module it lives in
_HOME = {
    "GDM": "brainweave.aligners.gdm",
    "Hyperalignment": "brainweave.aligners.hyperalignment",
    "KernelHyperalignment": "brainweave.aligners.hyperalignment",
    "RegularizedHyperalignment": "brainweave.aligners.hyperalignment",
    "SubjectMap": "brainweave.aligners.maps",
    "NoAlignment": "brainweave.aligners.none",
    "Parcelwise": "brainweave.aligners.parcelwise",
    "RobustSRM": "brainweave.aligners.robust_srm",
    "Searchlight": "brainweave.aligners.searchlight",
    "SemiSupervisedSRM": "brainweave.aligners.semisupervised_srm",
    "DetSRM": "brainweave.aligners.srm",
    "SRM": "brainweave.aligners.srm",
    "SVDHyperalignment": "brainweave.aligners.svd_hyperalignment",
    "SubjectBasis": "brainweave.basis",
    "Graph": "brainweave.graphs",
    "affinity_graph": "brainweave.graphs",
    "hyperalignment_graph": "brainweave.graphs",
    "label_graph": "brainweave.graphs",
    "matrix_graph": "brainweave.graphs",
    "neighbor_graph": "brainweave.graphs",
    "time_graph": "brainweave.graphs",
    "drop_samples": "brainweave.samples",
    "match_samples": "brainweave.samples",
}

__all__ = ["__version__", *_HOME]

if TYPE_CHECKING:
    from brainweave.aligners.gdm import GDM as GDM
    from brainweave.aligners.hyperalignment import Hyperalignment as Hyperalignment
    from brainweave.aligners.hyperalignment import (
        KernelHyperalignment as KernelHyperalignment,
    )
    from brainweave.aligners.hyperalignment import (
        RegularizedHyperalignment as RegularizedHyperalignment,
    )
    from brainweave.aligners.maps import SubjectMap as SubjectMap
    from brainweave.aligners.none import NoAlignment as NoAlignment
    from brainweave.aligners.parcelwise import Parcelwise as Parcelwise
    from brainweave.aligners.robust_srm import RobustSRM as RobustSRM
    from brainweave.aligners.searchlight import Searchlight as Searchlight
    from brainweave.aligners.semisupervised_srm import (
        SemiSupervisedSRM as SemiSupervisedSRM,
    )
    from brainweave.aligners.srm import SRM as SRM
    from brainweave.aligners.srm import DetSRM as DetSRM
    from brainweave.aligners.svd_hyperalignment import (
        SVDHyperalignment as SVDHyperalignment,
    )
    from brainweave.basis import SubjectBasis as SubjectBasis
    from brainweave.graphs import Graph as Graph
    from brainweave.graphs import affinity_graph as affinity_graph
    from brainweave.graphs import hyperalignment_graph as hyperalignment_graph
    from brainweave.graphs import label_graph as label_graph
    from brainweave.graphs import matrix_graph as matrix_graph
    from brainweave.graphs import neighbor_graph as neighbor_graph
    from brainweave.graphs import time_graph as time_graph
    from brainweave.samples import drop_samples as drop_samples
    from brainweave.samples import match_samples as match_samples


def __getattr__(name: str) -> Any:
    if name in _HOME:
        value = getattr(import_module(_HOME[name]), name)
        globals()[name] = value
        return value
    raise AttributeError(f"module 'brainweave' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted(__all__)
