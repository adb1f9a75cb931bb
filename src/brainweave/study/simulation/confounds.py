"""Confounds for simulated runs, named as fMRIPrep names them.

The first sources of structured noise are what the columns are made of, so that taking
them out really cleans the data.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

__all__ = ["confounds_of_run"]

_MOTION = ("trans_x", "trans_y", "trans_z", "rot_x", "rot_y", "rot_z")
_HEAD_RADIUS = 50.0  # mm, as in framewise displacement
_N_COMPCOR = 5


def confounds_of_run(
    nuisance: NDArray[np.float32],
    data: NDArray[np.float32],
    *,
    tr: float,
    lost: NDArray[np.int64],
) -> tuple[dict[str, NDArray[np.float64]], dict[str, Any]]:
    """Make the columns of a ``desc-confounds_timeseries.tsv`` and their description.

    `nuisance` are the time courses of structured noise, the strongest first; `data` the
    volumes, for the global signal; `lost` volumes get a large framewise displacement.
    """
    n_volumes = len(data)
    wanted = len(_MOTION) + 2 + _N_COMPCOR
    sources = np.zeros((n_volumes, wanted))
    n_known = min(wanted, nuisance.shape[1])
    sources[:, :n_known] = nuisance[:, :n_known]
    # a few hundredths of a millimetre; a radian moves the head's edge by its radius
    motion = 0.02 * sources[:, : len(_MOTION)]
    motion[:, 3:] /= _HEAD_RADIUS
    named = dict(zip(_MOTION, motion.T, strict=True))
    named["csf"] = 100 + sources[:, 6]
    named["white_matter"] = 100 + sources[:, 7]
    named["global_signal"] = data.mean(axis=1, dtype=np.float64)
    columns: dict[str, NDArray[np.float64]] = {}
    for name, values in named.items():
        # no derivative at first
        derivative = np.concatenate([[np.nan], np.diff(values)])
        columns[name] = values
        columns[f"{name}_derivative1"] = derivative
        columns[f"{name}_power2"] = values**2
        columns[f"{name}_derivative1_power2"] = derivative**2
    columns["framewise_displacement"] = _displacement(motion, lost)
    change = np.sqrt((np.diff(data, axis=0).astype(np.float64) ** 2).mean(axis=1))
    relative = change / max(float(change.mean()), 1e-12)
    columns["std_dvars"] = np.concatenate([[np.nan], relative])
    middle = np.arange(n_volumes) + 0.5
    for k in range(int(2 * n_volumes * tr / 128)):  # up to 1 / 128 Hz, as fMRIPrep's
        wave = np.cos(np.pi * (k + 1) * middle / n_volumes)
        columns[f"cosine{k:02d}"] = np.sqrt(2 / n_volumes) * wave
    about: dict[str, Any] = {}
    for k in range(_N_COMPCOR):
        name = f"a_comp_cor_{k:02d}"
        columns[name] = sources[:, 8 + k]
        about[name] = {
            "Method": "aCompCor",
            "Mask": "combined",
            "Retained": True,
            "SingularValue": float(_N_COMPCOR - k),
            "VarianceExplained": 0.5 / _N_COMPCOR,
            "CumulativeVarianceExplained": 0.5 * (k + 1) / _N_COMPCOR,
        }
    return columns, about


def _displacement(
    motion: NDArray[np.float64], lost: NDArray[np.int64]
) -> NDArray[np.float64]:
    steps = np.abs(np.diff(motion, axis=0))
    steps[:, 3:] *= _HEAD_RADIUS
    total = np.concatenate([[np.nan], steps.sum(axis=1)])
    # no volume that is kept may look lost
    total = np.minimum(total, 0.4)
    total[lost] = np.nan_to_num(total[lost]) + 2.0
    return np.asarray(total)
