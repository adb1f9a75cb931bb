"""Every exported aligner passes the checks that all aligners share."""

import subprocess
import sys
from collections.abc import Callable

import numpy as np
import pytest

import brainweave as bw
from brainweave.aligners.base import BaseAligner
from brainweave.testing import CHECKS, Case, check_aligner

EQUAL = (40, 40, 40, 40)
VOXELWISE = (
    "it compares voxel by voxel and says so when counts differ (test_no_alignment)"
)
NO_WAY_BACK = "a kernel other than the linear one has no way back to voxels"

TABLE: dict[str, Callable[[], Case]] = {
    "GDM": lambda: Case(bw.GDM(3), labels=True),
    "PaperGDM": lambda: Case(bw.PaperGDM(3, energy=0.9), labels=True),
    "GDMCV": lambda: Case(bw.GDMCV(energies=(0.5, 0.9)), labels=True),
    "NoAlignment": lambda: Case(
        bw.NoAlignment(), EQUAL, excused={"different_voxel_counts": VOXELWISE}
    ),
    "Hyperalignment": lambda: Case(bw.Hyperalignment(4)),
    "RegularizedHyperalignment": lambda: Case(
        bw.RegularizedHyperalignment(4, alpha=0.9)
    ),
    "KernelHyperalignment": lambda: Case(
        bw.KernelHyperalignment(4, kernel_params={"hp": 200.0}),
        excused={"way_back": NO_WAY_BACK},
    ),
    "SVDHyperalignment": lambda: Case(bw.SVDHyperalignment(4)),
    "SRM": lambda: Case(bw.SRM(4, random_state=0)),
    "DetSRM": lambda: Case(bw.DetSRM(4, random_state=0)),
}

INSIDE = "energy and standardize are those of the aligner inside: aligner__energy"
PIECES = "pieces of the brain need the voxels themselves, not a basis of all of them"
PER_VOXEL = "its parcels or neighbourhoods are made for these voxels; own tests vary"
ROBUST = "robust features are no linear function, so their mean is near zero only"

TABLE |= {
    "RobustSRM": lambda: Case(
        bw.RobustSRM(4, random_state=0), excused={"mean_is_removed": ROBUST}
    ),
    "SemiSupervisedSRM": lambda: Case(
        bw.SemiSupervisedSRM(4, random_state=0), labels=True
    ),
    "Parcelwise": lambda: Case(
        bw.Parcelwise(bw.DetSRM(4, random_state=0), 1 + np.arange(40) % 3),
        EQUAL,
        excused={
            "parameters": INSIDE,
            "fit_on_bases": PIECES,
            "different_voxel_counts": PER_VOXEL,
        },
    ),
    "Searchlight": lambda: Case(
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


CASES = {name: TABLE[name]() for name in exported_aligners() if name in TABLE}


def test_every_exported_aligner_is_checked() -> None:
    assert set(exported_aligners()) <= set(CASES)


@pytest.mark.parametrize("check", CHECKS)
@pytest.mark.parametrize("name", CASES)
def test_aligner(name: str, check: str) -> None:
    case = CASES[name]
    if check in case.excused:
        pytest.skip(f"{name}: {case.excused[check]}")
    CHECKS[check](case)


@pytest.mark.parametrize("name", [n for n, case in CASES.items() if case.excused])
def test_excuses_are_true(name: str) -> None:
    """A check that passes after all needs no excuse."""
    case = CASES[name]
    assert set(case.excused) <= set(CHECKS)
    for check in case.excused:
        with pytest.raises((ValueError, AttributeError, AssertionError)):
            CHECKS[check](case)


def test_check_aligner_names_the_check_that_failed() -> None:
    class Forgetful(bw.DetSRM):
        def transform(self, X, subjects=None):  # type: ignore[no-untyped-def]
            return [f + 1 for f in super().transform(X, subjects)]

    with pytest.raises(AssertionError) as caught:
        check_aligner(Forgetful(4, random_state=0))
    assert caught.value.__notes__ == ["in the check 'fit_transform' of Forgetful"]
    with pytest.raises(ValueError, match="excused names no checks: speed"):
        check_aligner(bw.DetSRM(4), excused={"speed": "it is slow"})


def test_the_checks_need_no_pytest() -> None:
    code = "import sys, brainweave.testing; assert 'pytest' not in sys.modules"
    subprocess.run([sys.executable, "-c", code], check=True)
