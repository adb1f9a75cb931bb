"""Which parcel every voxel belongs to, from labels or from an atlas image."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from brainweave.exceptions import InputError
from brainweave.labels import sort_labels

Labels = NDArray[Any]


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
    if is_list_of_arrays(parcels):
        if len(parcels) != len(n_voxels):
            raise InputError(
                f"parcels of {owner} has {len(parcels)} entries for {len(n_voxels)} "
                "subjects. Give one array for all, or one per subject."
            )
        listed = [np.asarray(p) for p in parcels]
    else:
        listed = [np.asarray(parcels)] * len(n_voxels)
    for i, (labels, v) in enumerate(zip(listed, n_voxels, strict=True)):
        if labels.shape != (v,):
            raise InputError(
                f"parcels of {owner} must have one label for each of the {v} voxels of "
                f"X[{i}]; got shape {labels.shape}."
            )
    return listed


def is_list_of_arrays(parcels: Any) -> bool:
    """Whether these are labels of one subject after the other."""
    return isinstance(parcels, (list, tuple)) and any(
        isinstance(p, (list, tuple)) or getattr(p, "ndim", 0) > 0 for p in parcels
    )


def labels_at(atlas: Any, space: Any, name: str) -> Labels:
    """Look up the label of an atlas at the position of each voxel of a volume."""
    mask, affine = getattr(space, "mask", None), getattr(space, "affine", None)
    if mask is None or affine is None:
        raise InputError(
            f"{name} does not know where its voxels are, so an atlas image cannot be "
            "put on them. Fit on a Study of volumes, or pass a label per voxel."
        )
    volume = np.asarray(atlas.dataobj)
    volume = volume[..., 0] if volume.ndim == 4 and volume.shape[3] == 1 else volume
    if volume.ndim != 3:
        raise InputError(
            f"The atlas has shape {volume.shape}; parcels need one label per voxel. "
            "Probabilistic atlases must be turned into labels first."
        )
    here = np.argwhere(np.asarray(mask)) @ affine[:3, :3].T + affine[:3, 3]
    there = np.linalg.inv(np.asarray(atlas.affine, dtype=np.float64))
    index = np.rint(here @ there[:3, :3].T + there[:3, 3]).astype(int)
    inside = ((index >= 0) & (index < volume.shape)).all(axis=1)
    labels = np.zeros(len(index), dtype=volume.dtype)
    labels[inside] = volume[tuple(index[inside].T)]
    whole = labels.dtype.kind == "f" and bool((labels == np.rint(labels)).all())
    return labels.astype(np.int64) if whole else labels


def inside_parcels(labels: Labels) -> NDArray[np.bool_]:
    """Tell which voxels are not background."""
    if labels.dtype.kind in "fiub":
        return (labels != 0) & ~np.isnan(labels)
    return np.array([v not in (None, "", 0, "0") for v in labels.tolist()], dtype=bool)


def parcel_names(labels: list[Labels]) -> list[Any]:
    """Return the labels that occur in any subject, sorted, without the background."""
    known = {v for part in labels for v in part[inside_parcels(part)].tolist()}
    names = sort_labels(known)
    if not names:
        raise InputError("All voxels are background (label 0); there is no parcel.")
    return names
