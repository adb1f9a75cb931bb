"""Weave many brains into one shared space.

Names are imported when first used, so that ``import brainweave`` stays light.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from brainweave._version import __version__

# public name -> the module it lives in
_HOME = {
    "affinity_graph": "brainweave.graphs",
    "alignment_check": "brainweave.aligners.components",
    "AlignmentCheck": "brainweave.aligners.components",
    "between_subject_classification": "brainweave.evaluation.classification",
    "between_subject_matching": "brainweave.evaluation.scores",
    "between_subject_reconstruction": "brainweave.evaluation.scores",
    "ClassificationResult": "brainweave.evaluation.classification",
    "describe": "brainweave.models",
    "DetSRM": "brainweave.aligners.srm",
    "drop_samples": "brainweave.samples",
    "fetch_haxby": "brainweave.study.fetch",
    "fetch_openneuro": "brainweave.study.openneuro",
    "fetch_raider": "brainweave.study.fetch",
    "GDM": "brainweave.aligners.gdm",
    "GDMCV": "brainweave.evaluation.tuning",
    "Graph": "brainweave.graphs",
    "Hyperalignment": "brainweave.aligners.hyperalignment",
    "hyperalignment_graph": "brainweave.graphs",
    "inter_subject_correlation": "brainweave.metrics",
    "KernelHyperalignment": "brainweave.aligners.hyperalignment",
    "label_graph": "brainweave.graphs",
    "load": "brainweave.models",
    "load_basis": "brainweave.models",
    "load_bids": "brainweave.study.bids",
    "load_cifti": "brainweave.study.images",
    "load_gifti": "brainweave.study.images",
    "load_matlab": "brainweave.study.matlab",
    "load_nifti": "brainweave.study.images",
    "load_openfmri": "brainweave.study.openfmri",
    "match_samples": "brainweave.samples",
    "matrix_graph": "brainweave.graphs",
    "neighbor_graph": "brainweave.graphs",
    "NoAlignment": "brainweave.aligners.none",
    "Parcelwise": "brainweave.aligners.parcelwise",
    "reconstruction_score": "brainweave.metrics",
    "RegularizedHyperalignment": "brainweave.aligners.hyperalignment",
    "RobustSRM": "brainweave.aligners.robust_srm",
    "save": "brainweave.models",
    "save_basis": "brainweave.models",
    "Searchlight": "brainweave.aligners.searchlight",
    "SemiSupervisedSRM": "brainweave.aligners.semisupervised_srm",
    "simulate_study": "brainweave.study.simulate",
    "split_study": "brainweave.evaluation.splits",
    "SRM": "brainweave.aligners.srm",
    "Study": "brainweave.study.study",
    "Subject": "brainweave.study.subject",
    "SubjectBasis": "brainweave.basis",
    "SubjectMap": "brainweave.aligners.maps",
    "SVDHyperalignment": "brainweave.aligners.svd_hyperalignment",
    "time_graph": "brainweave.graphs",
    "time_segment_matching": "brainweave.metrics",
}

__all__ = ["__version__", *_HOME]

if TYPE_CHECKING:
    from brainweave.aligners.components import AlignmentCheck as AlignmentCheck
    from brainweave.aligners.components import alignment_check as alignment_check
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
    from brainweave.evaluation.classification import (
        ClassificationResult as ClassificationResult,
    )
    from brainweave.evaluation.classification import (
        between_subject_classification as between_subject_classification,
    )
    from brainweave.evaluation.scores import (
        between_subject_matching as between_subject_matching,
    )
    from brainweave.evaluation.scores import (
        between_subject_reconstruction as between_subject_reconstruction,
    )
    from brainweave.evaluation.splits import split_study as split_study
    from brainweave.evaluation.tuning import GDMCV as GDMCV
    from brainweave.graphs import Graph as Graph
    from brainweave.graphs import affinity_graph as affinity_graph
    from brainweave.graphs import hyperalignment_graph as hyperalignment_graph
    from brainweave.graphs import label_graph as label_graph
    from brainweave.graphs import matrix_graph as matrix_graph
    from brainweave.graphs import neighbor_graph as neighbor_graph
    from brainweave.graphs import time_graph as time_graph
    from brainweave.metrics import (
        inter_subject_correlation as inter_subject_correlation,
    )
    from brainweave.metrics import reconstruction_score as reconstruction_score
    from brainweave.metrics import time_segment_matching as time_segment_matching
    from brainweave.models import describe as describe
    from brainweave.models import load as load
    from brainweave.models import load_basis as load_basis
    from brainweave.models import save as save
    from brainweave.models import save_basis as save_basis
    from brainweave.samples import drop_samples as drop_samples
    from brainweave.samples import match_samples as match_samples
    from brainweave.study.bids import load_bids as load_bids
    from brainweave.study.fetch import fetch_haxby as fetch_haxby
    from brainweave.study.fetch import fetch_raider as fetch_raider
    from brainweave.study.images import load_cifti as load_cifti
    from brainweave.study.images import load_gifti as load_gifti
    from brainweave.study.images import load_nifti as load_nifti
    from brainweave.study.matlab import load_matlab as load_matlab
    from brainweave.study.openfmri import load_openfmri as load_openfmri
    from brainweave.study.openneuro import fetch_openneuro as fetch_openneuro
    from brainweave.study.simulate import simulate_study as simulate_study
    from brainweave.study.study import Study as Study
    from brainweave.study.subject import Subject as Subject


def __getattr__(name: str) -> Any:
    if name in _HOME:
        value = getattr(import_module(_HOME[name]), name)
        globals()[name] = value
        return value
    raise AttributeError(f"module 'brainweave' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted(__all__)
