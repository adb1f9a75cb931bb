"""The aligners of the package, each with settings that suit a small study.

Tests that all aligners have to pass take them from here.
"""

import numpy as np
from sklearn.base import clone

import brainweave as bw
from brainweave.aligners.base import BaseAligner
from brainweave.testing import Case

EQUAL = (40, 40, 40, 40)
VOXELWISE = (
    "it compares voxel by voxel and says so when counts differ (test_no_alignment)"
)
CORRESPOND = "it needs voxels that correspond and says so (test_ridge_alignment)"
NO_WAY_BACK = "a kernel other than the linear one has no way back to voxels"
INSIDE = "energy and standardize are those of the aligner inside: aligner__energy"
PIECES = "pieces of the brain need the voxels themselves, not a basis of all of them"
PER_VOXEL = "its parcels or neighbourhoods are made for these voxels; own tests vary"
ROBUST = "robust features are no linear function, so their mean is near zero only"

CASES: dict[str, Case] = {
    "GDM": Case(bw.GDM(3), labels=True),
    "PaperGDM": Case(bw.PaperGDM(3, energy=0.9), labels=True),
    "GDMCV": Case(bw.GDMCV(energies=(0.5, 0.9), n_components=3), labels=True),
    "NoAlignment": Case(
        bw.NoAlignment(), EQUAL, excused={"different_voxel_counts": VOXELWISE}
    ),
    "Hyperalignment": Case(bw.Hyperalignment(4)),
    "RegularizedHyperalignment": Case(bw.RegularizedHyperalignment(4, alpha=0.9)),
    "KernelHyperalignment": Case(
        bw.KernelHyperalignment(4, kernel_params={"hp": 200.0}),
        excused={"way_back": NO_WAY_BACK},
    ),
    "SVDHyperalignment": Case(bw.SVDHyperalignment(4)),
    "SRM": Case(bw.SRM(4, random_state=0)),
    "DetSRM": Case(bw.DetSRM(4, random_state=0)),
    "RobustSRM": Case(
        bw.RobustSRM(4, random_state=0), excused={"mean_is_removed": ROBUST}
    ),
    "SemiSupervisedSRM": Case(bw.SemiSupervisedSRM(4, random_state=0), labels=True),
    "Adapter": Case(
        bw.Adapter("scipy:procrustes"),
        EQUAL,
        excused={"different_voxel_counts": CORRESPOND},
    ),
    "GCCA": Case(bw.GCCA(4, shrinkage=0.1)),
    "ProMises": Case(
        bw.ProMises(4), EQUAL, excused={"different_voxel_counts": CORRESPOND}
    ),
    "RidgeAlignment": Case(
        bw.RidgeAlignment(4), EQUAL, excused={"different_voxel_counts": CORRESPOND}
    ),
    "Parcelwise": Case(
        bw.Parcelwise(bw.DetSRM(4, random_state=0), 1 + np.arange(40) % 3),
        EQUAL,
        excused={
            "parameters": INSIDE,
            "fit_on_bases": PIECES,
            "different_voxel_counts": PER_VOXEL,
        },
    ),
    "Searchlight": Case(
        bw.Searchlight(
            bw.DetSRM(4, random_state=0),
            radius=4,
            coordinates=np.arange(40.0)[:, None],
            centers=np.arange(0, 40, 4),
        ),
        EQUAL,
        excused={
            "parameters": INSIDE,
            "fit_on_bases": PIECES,
            "different_voxel_counts": PER_VOXEL,
        },
    ),
}


def exported_aligners() -> list[str]:
    names = [n for n in bw.__all__ if isinstance(getattr(bw, n), type)]
    return [n for n in names if issubclass(getattr(bw, n), BaseAligner)]


def aligner_for_scores(name):
    """Return an aligner with two features that can be scored by every measure."""
    aligner = clone(CASES[name].estimator)
    wanted: dict[str, object] = {"n_components": 2, "aligner__n_components": 2}
    if name == "Adapter":  # as many features as voxels
        wanted = {}
    if name == "KernelHyperalignment":  # other kernels have no way back to voxels
        wanted |= {"kernel": "linear", "kernel_params": None}
    return aligner.set_params(
        **{k: v for k, v in wanted.items() if k in aligner.get_params()}
    )
