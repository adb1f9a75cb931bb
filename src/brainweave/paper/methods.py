"""The methods that the paper compares, by the names it uses."""

from typing import Any

from brainweave.aligners.gdm import GDM
from brainweave.aligners.hyperalignment import (
    Hyperalignment,
    KernelHyperalignment,
    RegularizedHyperalignment,
    SVDHyperalignment,
)
from brainweave.aligners.no_alignment import NoAlignment
from brainweave.aligners.robust_srm import RobustSRM
from brainweave.aligners.srm import SRM, DetSRM
from brainweave.paper.settings import Dataset

__all__ = [
    "COMPETING",
    "METHODS",
    "SLOWEST_FIRST",
    "WITHOUT",
    "competing_methods",
    "gdm",
]

#: No alignment: the classifier alone.
WITHOUT = "nu-SVM"
#: The six that the paper compares GDM with.
COMPETING = ("HA", "KHA", "SVDHA", "SRM", "RSRM", "RHA")
#: All, in the order of Table 2, and the deterministic SRM.
METHODS = (WITHOUT, *COMPETING, "DetSRM", "GDM")
#: In the order to compute them in, so that no core waits for the last one.
SLOWEST_FIRST = ("RSRM", *(m for m in METHODS if m != "RSRM"))


def competing_methods(n_components: int, n_voxels: int) -> dict[str, Any]:
    """Return all methods but GDM with one number of shared features.

    Their other settings are the defaults of this package, which follow the original
    publications; what the paper chose for them is not stated there. The width of KHA's
    Gaussian kernel is the mean squared distance of two standardised samples.
    """
    k = n_components
    return {
        WITHOUT: NoAlignment(),
        "HA": Hyperalignment(k),
        "KHA": KernelHyperalignment(k, kernel_params={"hp": 2.0 * n_voxels}),
        "SVDHA": SVDHyperalignment(k),
        "SRM": SRM(k),
        "RSRM": RobustSRM(k),
        "RHA": RegularizedHyperalignment(k),
        "DetSRM": DetSRM(k),
    }


def gdm(setting: Dataset, *, kernel: str = "linear", hp: float | None = None) -> GDM:
    """Return GDM with the settings of a dataset."""
    return GDM(
        setting.n_components,
        energy=setting.energy,
        graph=setting.graph,
        kernel=kernel,
        kernel_params=None if hp is None else {"hp": hp},
    )
