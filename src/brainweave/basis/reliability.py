r"""Voxels that answer the same to the same stimulus count more.

Every voxel is scaled by :math:`\sqrt{w_v / msw_v}`: to unit variance within groups, and
by how much its means of groups differ. With :math:`F_v = msb_v / msw_v` of a one-way
analysis of variance over the groups (categories) of the subject's own aligning samples,

.. math:: w_v = 1 + \lambda (F_v / \bar F - 1), \qquad
          \lambda = \max(0, 1 - \mathrm{var}_{sampling}(F) / \mathrm{var}_v(F)),

the share of the spread of F over voxels that is not chance. The sampling variance is
that of the noncentral F distribution whose mean is the voxels' mean. Where all voxels
are alike, lambda is 0 and every voxel has unit variance within groups.

The statistics of a voxel need that voxel alone, so they come from chunks of columns;
the weights need the mean of F over all voxels.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from brainweave._core.arrays import Codes, Matrix, to_numpy
from brainweave._core.exceptions import InputError, LabelWarning, warn_user


@dataclass(frozen=True)
class Groups:
    """Groups that repeat, ready to be applied to chunks of voxels."""

    rows: Codes  # samples that belong to a group
    average: Matrix  # (groups, rows): takes the mean of each group
    sizes: Matrix  # samples in each group
    between: int  # degrees of freedom
    within: int


def repeated_groups(codes: Any) -> Groups | None:
    """Return the groups of a subject's samples, or None where none repeats enough."""
    codes = np.asarray(codes)
    rows = np.flatnonzero(codes >= 0)  # others belong to no group
    if rows.size == 0:
        return None
    _, own = np.unique(codes[rows], return_inverse=True)
    sizes = np.bincount(own).astype(np.float64)
    # with fewer degrees of freedom within, the variance of F does not exist
    if len(sizes) < 2 or rows.size - len(sizes) < 5:
        return None
    average = np.eye(len(sizes))[own].T / sizes[:, None]
    n = len(sizes)
    return Groups(rows, average, sizes, between=n - 1, within=rows.size - n)


def warn_of_no_reliability(bases: Sequence[Any]) -> None:
    """Warn of subjects without repeated groups, whose voxels have unit variance."""
    plain = [b.name for b in bases if not b.reliable and b.kernel.name != "precomputed"]
    if plain:
        warn_user(
            f"standardize='reliability' needs labels that repeat: {plain[0]} has none "
            f"({len(plain)} of {len(bases)} subjects), so its voxels were standardised "
            "to unit variance instead.",
            LabelWarning,
        )


def analysis_of_variance(chunk: Any, groups: Groups) -> tuple[Matrix, Matrix]:
    """Return the mean squares between and within groups of each voxel of a chunk."""
    x = np.asarray(chunk, dtype=np.float64)[groups.rows]
    x = x - x.mean(axis=0)  # sums of squares about a large mean would lose digits
    means = groups.average @ x
    explained = groups.sizes @ means**2
    total = np.einsum("ij,ij->j", x, x)
    left = np.maximum(total - explained, 0.0)
    # a voxel that the groups explain fully leaves rounding errors only
    left[left <= 1e-12 * total] = 0.0
    return explained / groups.between, left / groups.within


def scale_of_chunks(chunks: Iterable[Any], n_voxels: int, groups: Groups) -> Matrix:
    """Return :func:`reliability_scale` of voxels that come in chunks of columns."""
    between, within = np.zeros(n_voxels), np.zeros(n_voxels)
    for columns, z in chunks:
        between[columns], within[columns] = analysis_of_variance(to_numpy(z), groups)
    return reliability_scale(between, within, groups)


def reliability_scale(between: Matrix, within: Matrix, groups: Groups) -> Matrix:
    """Return what to divide each centred voxel by: ``sqrt(msw / w)``.

    It is infinite for voxels without variance within groups, which are left out.
    """
    varies = within > 0
    if not varies.any():
        raise InputError(
            "No voxel varies within groups, so reliability cannot be estimated. Use "
            "standardize=True."
        )
    F = between[varies] / within[varies]
    mean, spread = float(F.mean()), float(F.var())
    chance = _sampling_variance(mean, groups.between, groups.within)
    share = max(0.0, 1 - chance / spread) if spread > 0 else 0.0
    weight = 1 + share * (F / mean - 1) if mean > 0 else np.ones_like(F)
    scale = np.full(within.shape, np.inf)
    positive = weight > 0
    kept = np.flatnonzero(varies)[positive]
    scale[kept] = np.sqrt(within[kept] / weight[positive])
    return scale


def _sampling_variance(mean: float, d1: int, d2: int) -> float:
    """Return the variance of the noncentral F distribution with this mean."""
    noncentral = max(0.0, mean * d1 * (d2 - 2) / d2 - d1)
    spread = (d1 + noncentral) ** 2 + (d1 + 2 * noncentral) * (d2 - 2)
    return float(2 * spread * (d2 / d1) ** 2 / ((d2 - 2) ** 2 * (d2 - 4)))
