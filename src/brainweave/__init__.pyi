"""The public names and their homes: read by type checkers and, lazily, at run time."""

from ._core.exceptions import AlignmentWarning as AlignmentWarning
from ._core.exceptions import BrainweaveError as BrainweaveError
from ._core.exceptions import ClassifierWarning as ClassifierWarning
from ._core.exceptions import ClusterError as ClusterError
from ._core.exceptions import InputError as InputError
from ._core.exceptions import KernelWarning as KernelWarning
from ._core.exceptions import LabelWarning as LabelWarning
from ._core.exceptions import LayoutWarning as LayoutWarning
from ._core.exceptions import ModelFileError as ModelFileError
from ._core.exceptions import SeparateSubjectsWarning as SeparateSubjectsWarning
from ._core.exceptions import SkippedWarning as SkippedWarning
from ._core.exceptions import SolverError as SolverError
from ._core.exceptions import StudyError as StudyError
from ._core.exceptions import UndeterminedWarning as UndeterminedWarning
from ._core.exceptions import UniquenessWarning as UniquenessWarning
from .aligners.adapters import Adapter as Adapter
from .aligners.check.alignment_check import AlignmentCheck as AlignmentCheck
from .aligners.check.alignment_check import alignment_check as alignment_check
from .aligners.gcca import GCCA as GCCA
from .aligners.gdm.gdm import GDM as GDM
from .aligners.gdm.paper import PaperGDM as PaperGDM
from .aligners.hyperalignment import Hyperalignment as Hyperalignment
from .aligners.hyperalignment import KernelHyperalignment as KernelHyperalignment
from .aligners.hyperalignment import (
    RegularizedHyperalignment as RegularizedHyperalignment,
)
from .aligners.hyperalignment import SVDHyperalignment as SVDHyperalignment
from .aligners.maps import SubjectMap as SubjectMap
from .aligners.no_alignment import NoAlignment as NoAlignment
from .aligners.piecewise.parcelwise import Parcelwise as Parcelwise
from .aligners.piecewise.searchlight import Searchlight as Searchlight
from .aligners.promises import ProMises as ProMises
from .aligners.ridge_alignment import RidgeAlignment as RidgeAlignment
from .aligners.srm.robust import RobustSRM as RobustSRM
from .aligners.srm.semisupervised import SemiSupervisedSRM as SemiSupervisedSRM
from .aligners.srm.srm import SRM as SRM
from .aligners.srm.srm import DetSRM as DetSRM
from .basis.basis import SubjectBasis as SubjectBasis
from .evaluation.comparison import Comparison as Comparison
from .evaluation.comparison import compare_methods as compare_methods
from .evaluation.evaluate import (
    between_subject_classification as between_subject_classification,
)
from .evaluation.evaluate import score_alignment as score_alignment
from .evaluation.information_map import InformationMap as InformationMap
from .evaluation.information_map import information_map as information_map
from .evaluation.isc import IscTest as IscTest
from .evaluation.isc import inter_subject_correlation as inter_subject_correlation
from .evaluation.isc import (
    inter_subject_functional_connectivity as inter_subject_functional_connectivity,
)
from .evaluation.isc import isc_test as isc_test
from .evaluation.learning_curve import learning_curve as learning_curve
from .evaluation.metrics import reconstruction_score as reconstruction_score
from .evaluation.metrics import time_segment_matching as time_segment_matching
from .evaluation.results import ClassificationResult as ClassificationResult
from .evaluation.results import LearningCurve as LearningCurve
from .evaluation.splits import split_study as split_study
from .evaluation.tuning import GDMCV as GDMCV
from .graphs.builders import Graph as Graph
from .graphs.builders import affinity_graph as affinity_graph
from .graphs.builders import feature_graph as feature_graph
from .graphs.builders import label_graph as label_graph
from .graphs.builders import matrix_graph as matrix_graph
from .graphs.builders import neighbor_graph as neighbor_graph
from .graphs.builders import time_graph as time_graph
from .persistence.models import describe as describe
from .persistence.models import load as load
from .persistence.models import register_aligner as register_aligner
from .persistence.models import save as save
from .study.connectivity import connectivity_samples as connectivity_samples
from .study.formats.bids import load_bids as load_bids
from .study.formats.images import load_cifti as load_cifti
from .study.formats.images import load_gifti as load_gifti
from .study.formats.images import load_nifti as load_nifti
from .study.formats.matlab import load_matlab as load_matlab
from .study.public import fetch_haxby as fetch_haxby
from .study.public import fetch_openneuro as fetch_openneuro
from .study.samples import drop_samples as drop_samples
from .study.samples import match_samples as match_samples
from .study.shared import add_subjects as add_subjects
from .study.shared import transform_study as transform_study
from .study.simulated_brains import simulate_brains as simulate_brains
from .study.simulation import simulate_study as simulate_study
from .study.study import Study as Study
from .study.subject import Subject as Subject

__all__: list[str]
__version__: str
