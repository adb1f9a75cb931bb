"""Neighbourhoods of voxels: given, or within a radius of a centre."""

from collections.abc import Sequence
from numbers import Number
from typing import Any

import numpy as np
import scipy.sparse
from numpy.typing import NDArray
from scipy.spatial import cKDTree

from brainweave.aligners.piecewise import Columns
from brainweave.exceptions import InputError

Neighborhoods = list[Columns]


def neighborhoods_within(
    coordinates: NDArray[np.float64], centers: NDArray[np.float64], radius: float
) -> Neighborhoods:
    """Return the voxels within a radius of each centre, sorted."""
    tree = cKDTree(coordinates)
    # a hair more, so that rounding does not decide over voxels on the sphere
    found = tree.query_ball_point(centers, radius * (1 + 1e-9), return_sorted=True)
    return [np.asarray(voxels, dtype=np.intp) for voxels in found]


def given_neighborhoods(given: Any, n_voxels: list[int]) -> list[Neighborhoods]:
    """Return one list of neighbourhoods per subject, from one for all or one for each.

    One list is of arrays of column numbers, or a (sparse) boolean matrix of
    neighbourhoods x voxels.
    """
    if _is_per_subject(given):
        if len(given) != len(n_voxels):
            raise InputError(
                f"neighborhoods are given for {len(given)} subjects; there are "
                f"{len(n_voxels)}. Give one list for all, or one per subject."
            )
        lists = [_as_columns(part, v) for part, v in zip(given, n_voxels, strict=True)]
    else:
        if len(set(n_voxels)) > 1:
            raise InputError(
                f"One list of neighborhoods serves subjects with the same voxels; "
                f"these have {n_voxels}. Give one list per subject."
            )
        lists = [_as_columns(given, n_voxels[0])] * len(n_voxels)
    counts = [len(part) for part in lists]
    if len(set(counts)) > 1:
        raise InputError(
            f"The subjects have {counts} neighborhoods; they must correspond one by "
            "one."
        )
    return lists


def _is_per_subject(given: Any) -> bool:
    if scipy.sparse.issparse(given) or isinstance(given, np.ndarray):
        return False
    first = given[0] if len(given) else None
    if scipy.sparse.issparse(first) or getattr(first, "ndim", 1) == 2:
        return True
    return (
        isinstance(first, (list, tuple))
        and len(first) > 0
        and not isinstance(first[0], Number)
    )


def _as_columns(given: Any, n_voxels: int) -> Neighborhoods:
    is_matrix = scipy.sparse.issparse(given) or getattr(given, "ndim", 1) == 2
    if is_matrix:
        matrix = scipy.sparse.csr_array(given)
        if matrix.shape[1] != n_voxels:
            raise InputError(
                f"neighborhoods have {matrix.shape[1]} columns; the subject has "
                f"{n_voxels} voxels."
            )
        rows = np.split(matrix.indices, matrix.indptr[1:-1])
        return [np.unique(row).astype(np.intp) for row in rows]
    lists = []
    for number, part in enumerate(given):
        columns = np.unique(np.asarray(part))
        if columns.size and columns.dtype.kind not in "iu":
            raise TypeError(
                f"neighborhood {number} must hold voxel numbers, got {columns.dtype}."
            )
        if columns.size and not (columns[0] >= 0 and columns[-1] < n_voxels):
            raise InputError(
                f"neighborhood {number} has voxels {columns[0]} to {columns[-1]}; the "
                f"subject has voxels 0 to {n_voxels - 1}."
            )
        lists.append(columns.astype(np.intp))
    return lists


def coordinates_per_subject(
    coordinates: Any, n_voxels: list[int], spaces: Sequence[Any]
) -> list[NDArray[np.float64]]:
    """Return the positions of each subject's voxels, as given or from its volume."""
    n = len(n_voxels)
    if coordinates is None:
        found: list[NDArray[np.float64]] = []
        for i, space in enumerate(spaces):
            same = [j for j in range(i) if spaces[j] is space or spaces[j] == space]
            found.append(found[same[0]] if same else _positions(space, f"X[{i}]"))
        return found
    per_subject = isinstance(coordinates, (list, tuple)) and (
        getattr(coordinates[0], "ndim", 1) == 2
    )
    listed = list(coordinates) if per_subject else [coordinates] * n
    if len(listed) != n:
        raise InputError(
            f"coordinates are given for {len(listed)} subjects; there are {n}. Give "
            "one array for all, or one per subject."
        )
    if per_subject:
        arrays = [np.asarray(c, dtype=np.float64) for c in listed]
    else:  # one and the same array, so that neighbourhoods are found once
        arrays = [np.asarray(coordinates, dtype=np.float64)] * n
    for i, (array, v) in enumerate(zip(arrays, n_voxels, strict=True)):
        if array.ndim != 2 or len(array) != v:
            raise InputError(
                f"coordinates must have a row for each of the {v} voxels of X[{i}]; "
                f"got shape {array.shape}."
            )
        if not np.isfinite(array).all():
            raise InputError(f"coordinates of X[{i}] have NaN or infinite values.")
    return arrays


def _positions(space: Any, name: str) -> NDArray[np.float64]:
    mask, affine = getattr(space, "mask", None), getattr(space, "affine", None)
    if mask is None or affine is None:
        raise InputError(
            f"{name} does not know where its voxels are. Pass coordinates (a row per "
            "voxel) or neighborhoods, or fit on a Study of volumes."
        )
    return np.argwhere(np.asarray(mask)) @ affine[:3, :3].T + affine[:3, 3]
