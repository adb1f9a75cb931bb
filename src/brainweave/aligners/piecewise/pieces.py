"""Which voxels are pieces of the brain: parcels, or neighbourhoods."""

from collections.abc import Callable, Sequence
from numbers import Number
from typing import Any

import numpy as np
import scipy.sparse
from numpy.typing import NDArray
from scipy.spatial import cKDTree

from brainweave._core.exceptions import InputError
from brainweave._core.labels import sort_labels
from brainweave._core.validation import check_indices, one_per_subject

Labels = NDArray[Any]
Positions = NDArray[np.float64]
Columns = NDArray[np.intp]


def _voxel_positions(space: Any, name: str, remedy: str) -> Positions:
    """Return the positions of the voxels of a volume."""
    mask, affine = getattr(space, "mask", None), getattr(space, "affine", None)
    if mask is None or affine is None:
        raise InputError(f"{name} does not know where its voxels are. {remedy}")
    return np.argwhere(np.asarray(mask)) @ affine[:3, :3].T + affine[:3, 3]


# -- parcels ---------------------------------------------------------------------------


def labels_per_subject(
    parcels: Any, n_voxels: list[int], spaces: Sequence[Any], *, owner: str
) -> list[Labels]:
    """Return one array of labels per subject, from any of the ways to say them."""
    if parcels is None:
        raise InputError(
            f"{owner} needs parcels: a label per voxel, one such array per subject, or "
            "an atlas image."
        )
    parcels = getattr(parcels, "maps", parcels)  # what nilearn's fetchers return
    if isinstance(parcels, str) or hasattr(parcels, "__fspath__"):
        raise TypeError(
            f"parcels of {owner} must be labels or a loaded image; got the path "
            f"{parcels!r}. Load it: nibabel.load(path)."
        )
    if hasattr(parcels, "affine") and hasattr(parcels, "dataobj"):
        return [labels_at(parcels, s, f"X[{i}]") for i, s in enumerate(spaces)]
    n, per_subject = len(n_voxels), is_list_of_arrays(parcels)
    parcels = parcels if per_subject else np.asarray(parcels)
    listed = one_per_subject("parcels", parcels, n, owner=owner)
    arrays = [np.asarray(labels) for labels in listed]
    for i, (labels, v) in enumerate(zip(arrays, n_voxels, strict=True)):
        if labels.shape != (v,):
            raise InputError(
                f"parcels of {owner} must have one label for each of the {v} voxels of "
                f"X[{i}]; got shape {labels.shape}."
            )
    return arrays


def is_list_of_arrays(parcels: Any) -> bool:
    """Whether these are labels of one subject after the other."""
    return isinstance(parcels, (list, tuple)) and any(
        isinstance(p, (list, tuple)) or getattr(p, "ndim", 0) > 0 for p in parcels
    )


def labels_at(atlas: Any, space: Any, name: str) -> Labels:
    """Look up the label of an atlas at the position of each voxel of a volume."""
    remedy = "An atlas image needs a Study of volumes; or pass a label per voxel."
    here = _voxel_positions(space, name, remedy)
    volume = np.asarray(atlas.dataobj)
    volume = volume[..., 0] if volume.ndim == 4 and volume.shape[3] == 1 else volume
    if volume.ndim != 3:
        raise InputError(
            f"The atlas has shape {volume.shape}; parcels need one label per voxel. "
            "Probabilistic atlases must be turned into labels first."
        )
    there = np.linalg.inv(np.asarray(atlas.affine, dtype=np.float64))
    index = np.rint(here @ there[:3, :3].T + there[:3, 3]).astype(int)
    inside = ((index >= 0) & (index < volume.shape)).all(axis=1)
    labels = np.zeros(len(index), dtype=volume.dtype)
    labels[inside] = volume[tuple(index[inside].T)]
    whole = labels.dtype.kind == "f" and bool((labels == np.rint(labels)).all())
    return labels.astype(np.int64) if whole else labels


def parcel_names(labels: list[Labels]) -> list[Any]:
    """Return the labels that occur in any subject, sorted, without the background."""
    known = {v for part in labels for v in part[_inside_parcels(part)].tolist()}
    names = sort_labels(known)
    if not names:
        raise InputError("All voxels are background (label 0); there is no parcel.")
    return names


def _inside_parcels(labels: Labels) -> NDArray[np.bool_]:
    """Tell which voxels are not background."""
    if labels.dtype.kind in "fiub":
        return (labels != 0) & ~np.isnan(labels)
    return np.array([v not in (None, "", 0, "0") for v in labels.tolist()], dtype=bool)


# -- neighbourhoods --------------------------------------------------------------------


def neighborhoods_within(
    coordinates: Positions, centers: Positions, radius: float
) -> list[Columns]:
    """Return the voxels within a radius of each centre, sorted."""
    tree = cKDTree(coordinates)
    # a hair more, so that rounding does not decide over voxels on the sphere
    found = tree.query_ball_point(centers, radius * (1 + 1e-9), return_sorted=True)
    return [np.asarray(voxels, dtype=np.intp) for voxels in found]


def given_neighborhoods(
    given: Any, n_voxels: list[int], *, owner: str
) -> list[list[Columns]]:
    """Return one list of neighbourhoods per subject, from one for all or one for each.

    One list is of arrays of column numbers, or a (sparse) boolean matrix of
    neighbourhoods x voxels.
    """
    n = len(n_voxels)
    if _is_per_subject(given):
        listed = one_per_subject("neighborhoods", given, n, owner=owner)
        lists = [_as_columns(part, v) for part, v in zip(listed, n_voxels, strict=True)]
    elif len(set(n_voxels)) > 1:
        raise InputError(
            f"One list of neighborhoods serves subjects with the same voxels; these "
            f"have {n_voxels}. Give one list per subject."
        )
    else:
        lists = [_as_columns(given, n_voxels[0])] * n
    counts = [len(part) for part in lists]
    if len(set(counts)) > 1:
        raise InputError(
            f"The subjects have {counts} neighborhoods; they must correspond one by "
            "one."
        )
    return lists


def _is_matrix(given: Any) -> bool:
    return scipy.sparse.issparse(given) or getattr(given, "ndim", 1) == 2


def _is_per_subject(given: Any) -> bool:
    if scipy.sparse.issparse(given) or isinstance(given, np.ndarray) or not len(given):
        return False
    first = given[0]
    if _is_matrix(first):
        return True
    nested = isinstance(first, (list, tuple)) and len(first) > 0
    return nested and not isinstance(first[0], Number)


def _as_columns(given: Any, n_voxels: int) -> list[Columns]:
    if _is_matrix(given):
        matrix = scipy.sparse.csr_array(given)
        if matrix.shape[1] != n_voxels:
            raise InputError(
                f"neighborhoods have {matrix.shape[1]} columns; the subject has "
                f"{n_voxels} voxels."
            )
        given = np.split(matrix.indices, matrix.indptr[1:-1])
    return [
        np.unique(check_indices(f"neighborhood {k}", part, n_voxels, what="voxel"))
        for k, part in enumerate(given)
    ]


def coordinates_per_subject(
    coordinates: Any, n_voxels: list[int], spaces: Sequence[Any], *, owner: str
) -> list[Positions]:
    """Return the positions of each subject's voxels, as given or from its volume.

    Those of subjects with the same voxels are the same array, so that neighbourhoods
    are found once.
    """
    if coordinates is None:
        remedy = "Pass coordinates, a row per voxel, or fit on a Study of volumes."
        found: list[Positions] = []
        for i, space in enumerate(spaces):
            same = [j for j in range(i) if spaces[j] is space or spaces[j] == space]
            found.append(
                found[same[0]] if same else _voxel_positions(space, f"X[{i}]", remedy)
            )
        return found
    if not PER_SUBJECT["coordinates"](coordinates):
        coordinates = np.asarray(coordinates, dtype=np.float64)
    listed = one_per_subject("coordinates", coordinates, len(n_voxels), owner=owner)
    arrays = [np.asarray(c, dtype=np.float64) for c in listed]
    for i, (array, v) in enumerate(zip(arrays, n_voxels, strict=True)):
        if array.ndim != 2 or len(array) != v:
            raise InputError(
                f"coordinates must have a row for each of the {v} voxels of X[{i}]; "
                f"got shape {array.shape}."
            )
        if not np.isfinite(array).all():
            raise InputError(f"coordinates of X[{i}] have NaN or infinite values.")
    return arrays


# places of voxels, and whether they are given subject by subject
PER_SUBJECT: dict[str, Callable[[Any], bool]] = {
    "parcels": is_list_of_arrays,
    "neighborhoods": _is_per_subject,
    "coordinates": lambda c: isinstance(c, (list, tuple)) and _is_matrix(c[0]),
}
