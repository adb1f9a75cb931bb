"""The names of this package and their homes."""

from .films import film_clock as film_clock
from .formats.bids import load_bids as load_bids
from .formats.events import Sampling as Sampling
from .formats.images import load_cifti as load_cifti
from .formats.images import load_gifti as load_gifti
from .formats.images import load_nifti as load_nifti
from .formats.matlab import load_matlab as load_matlab
from .formats.runs import Cleaning as Cleaning
from .formats.runs import Run as Run
from .public import fetch_haxby as fetch_haxby
from .public import fetch_openneuro as fetch_openneuro
from .simulated_brains import simulate_brains as simulate_brains
from .simulation import SimulatedStudy as SimulatedStudy
from .simulation import SimulationSettings as SimulationSettings
from .simulation import simulate_study as simulate_study
from .spaces import VolumeSpace as VolumeSpace
from .study import Study as Study
from .subject import Subject as Subject
from .surface import CiftiSpace as CiftiSpace
from .surface import SurfaceSpace as SurfaceSpace

__all__: list[str]
