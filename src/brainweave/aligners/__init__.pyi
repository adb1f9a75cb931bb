"""The aligners and their homes."""

from .check.alignment_check import AlignmentCheck as AlignmentCheck
from .check.alignment_check import alignment_check as alignment_check
from .gdm.gdm import GDM as GDM
from .gdm.paper import PaperGDM as PaperGDM
from .hyperalignment import Hyperalignment as Hyperalignment
from .hyperalignment import KernelHyperalignment as KernelHyperalignment
from .hyperalignment import RegularizedHyperalignment as RegularizedHyperalignment
from .hyperalignment import SVDHyperalignment as SVDHyperalignment
from .maps import SubjectMap as SubjectMap
from .no_alignment import NoAlignment as NoAlignment
from .piecewise.parcelwise import Parcelwise as Parcelwise
from .piecewise.searchlight import Searchlight as Searchlight
from .srm.robust import RobustSRM as RobustSRM
from .srm.semisupervised import SemiSupervisedSRM as SemiSupervisedSRM
from .srm.srm import SRM as SRM
from .srm.srm import DetSRM as DetSRM

__all__: list[str]
