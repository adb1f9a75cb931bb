"""Every exported aligner passes the checks that all aligners share."""

from collections.abc import Callable

import numpy as np
import pytest

import brainweave as bw
from brainweave.aligners.base import BaseAligner
from tests.aligners.check_aligner import CHECKS, Case

EQUAL = (40, 40, 40, 40)
VOXELWISE = "it compares voxel by voxel and says so when counts differ (test_none)"
NO_WAY_BACK = "a kernel other than the linear one has no way back to voxels"
CHOOSES = "it chooses the energy among several instead of taking one"

TABLE: dict[str, Callable[[], Case]] = {
    "GDM": lambda: Case(bw.GDM(3, energy=0.9), labels=True),
    "GDMCV": lambda: Case(
        bw.GDMCV(energies=(0.5, 0.9)),
        labels=True,
        excused={"energy": CHOOSES, "parameters": CHOOSES},
    ),
    "NoAlignment": lambda: Case(
        bw.NoAlignment(), EQUAL, excused={"different_voxel_counts": VOXELWISE}
    ),
    "Hyperalignment": lambda: Case(bw.Hyperalignment(4)),
    "RegularizedHyperalignment": lambda: Case(
        bw.RegularizedHyperalignment(4, alpha=0.9)
    ),
    "KernelHyperalignment": lambda: Case(
        bw.KernelHyperalignment(4, kernel_params={"hp": 200.0}),
        excused={"way_back": NO_WAY_BACK, "float32_way_back": NO_WAY_BACK},
    ),
    "SVDHyperalignment": lambda: Case(bw.SVDHyperalignment(4)),
    "SRM": lambda: Case(bw.SRM(4, random_state=0)),
    "DetSRM": lambda: Case(bw.DetSRM(4, random_state=0)),
    "RobustSRM": lambda: Case(bw.RobustSRM(4, random_state=0)),
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
        with pytest.raises((ValueError, AssertionError, np.linalg.LinAlgError)):
            CHECKS[check](case)
