"""Atlases: the parcel of each voxel, vertex or grayordinate, from files or by name."""

from collections.abc import Mapping
from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from brainweave._core.exceptions import InputError, StudyError
from brainweave._core.labels import object_array
from brainweave.study.meshes import side_of
from brainweave.study.spaces import ImageLike, image_name, load_image, reading

Labels = NDArray[Any]
# what tables call what is no parcel
_NOTHING = ("???", "unknown", "background", "medial_wall", "medial wall", "none")


def open_atlas(given: Any) -> tuple[Any, dict[int, str]]:
    """Return the image of an atlas, or one per hemisphere, and the names of parcels.

    An atlas is a name such as "schaefer-400", a file, an image, what nilearn's fetchers
    return, its fitted ``Parcellations``, or a mapping of hemisphere to files.
    """
    names: dict[int, str] = {}
    if isinstance(given, str) and not Path(given).exists():
        given = _named_atlas(given)
    table = getattr(given, "lut", None)
    if table is not None:
        pairs = zip(table["index"], table["name"], strict=True)
        names = {int(k): str(name) for k, name in pairs}
    for attribute in ("maps", "labels_img_"):
        given = getattr(given, attribute, given)
    if isinstance(given, str | PathLike) and Path(given).suffix != ".annot":
        given = load_image(given)
    return given, names


def _named_atlas(name: str) -> Any:
    """Return an atlas that nilearn has in its cache, or fetches."""
    kind, _, number = name.lower().partition("-")
    if kind == "glasser":
        raise StudyError(
            f"Neither nilearn nor templateflow has the atlas {name!r}. Pass its file, "
            "from balsa.wustl.edu, or for fsaverage from figshare.com."
        )
    if kind != "schaefer" or not number.isdigit():
        raise StudyError(
            f"{name!r} is neither a file nor an atlas that is known by name: "
            "schaefer-100, schaefer-200, ... schaefer-1000."
        )
    from nilearn.datasets import fetch_atlas_schaefer_2018

    try:
        return fetch_atlas_schaefer_2018(n_rois=int(number), verbose=0)
    except Exception as error:  # of the network, or no such number of parcels
        raise StudyError(
            f"nilearn could not fetch the atlas {name!r} ({error}). Give an atlas "
            "image."
        ) from error


def with_names(codes: Labels, names: Mapping[int, str]) -> Labels:
    """Return names in place of numbers, where there is a table; None is no parcel."""
    if not names:
        return codes
    kept = {k: name for k, name in names.items() if k and name.lower() not in _NOTHING}
    known, inverse = np.unique(codes, return_inverse=True)
    named = [kept.get(int(k), None if k in names or k == 0 else str(k)) for k in known]
    return object_array(named)[inverse.ravel()]


def labels_on_surface(atlas: Any, sizes: Mapping[str, int]) -> dict[str, Labels]:
    """Return the label of every vertex of each structure, which have these sizes."""
    opened, names = open_atlas(atlas)
    axes = _axes(opened)
    if axes is not None:
        whole, axis, found = _dlabel(opened), axes(1), {}
        for s, n in axis.nvertices.items():
            here = np.asarray(axis.name) == s
            found[side_of(s)] = object_array([None] * n)
            found[side_of(s)][axis.vertex[here]] = whole[here]
    else:
        data = getattr(opened, "data", opened)
        parts = data if isinstance(data, PathLike) else getattr(data, "parts", data)
        if not isinstance(parts, Mapping):
            parts = dict.fromkeys(list(sizes)[:1], parts)
        found = {side_of(str(s)): _vertex_labels(v, names) for s, v in parts.items()}
    labels = {}
    for structure, n in sizes.items():
        own = found.get(side_of(structure))
        if own is None or len(own) != n:
            has = {side: len(v) for side, v in found.items()}
            raise InputError(
                f"The atlas has labels of {has} vertices; {structure} of the data has "
                f"{n}. Give an atlas of the same mesh, for each hemisphere."
            )
        labels[structure] = own
    # parcels of two hemispheres may have one name, or one number
    sets = [{v for v in own.tolist() if v} for own in labels.values()]
    if len(sets) > 1 and set.intersection(*sets):
        for s, own in labels.items():
            names_here = [f"{side_of(s)}-{v}" if v else None for v in own.tolist()]
            labels[s] = object_array(names_here)
    return labels


def labels_of_grayordinates(atlas: Any, axis: Any) -> Labels:
    """Return the label of each grayordinate, from a dlabel file or surface labels."""
    opened, _ = open_atlas(atlas)
    axes = _axes(opened)
    if axes is None:
        labels = object_array([None] * len(axis))
        on_surface = labels_on_surface(opened, axis.nvertices)
        for structure, own in on_surface.items():
            here = np.asarray(axis.name) == structure
            labels[here] = own[axis.vertex[here]]
        return labels
    whole, given = _dlabel(opened), axes(1)
    of_place = dict(zip(_places(given), whole.tolist(), strict=True))
    found = object_array([of_place.get(place) for place in _places(axis)])
    if all(label is None for label in found):
        raise InputError(
            f"{image_name(opened)!r} has no label for any of the {len(axis)} "
            "grayordinates of the data. Give an atlas of the same CIFTI space."
        )
    return found


def _axes(opened: Any) -> Any:
    """Return what gives the axes of a CIFTI image; refuse a volume."""
    if getattr(opened, "affine", None) is not None:
        raise InputError(
            f"{image_name(opened)!r} is an atlas of a volume, the data lie on a "
            "surface. Give a dlabel file or GIfTI labels of their mesh, or sample it: "
            'nilearn.surface.vol_to_surf(atlas, mesh, interpolation="nearest_most_'
            'frequent").'
        )
    return getattr(getattr(opened, "header", None), "get_axis", None)


def _places(axis: Any) -> list[tuple[Any, ...]]:
    at = zip(axis.name, axis.vertex.tolist(), axis.voxel.tolist(), strict=True)
    return [(name, vertex, *voxel) for name, vertex, voxel in at]


def _dlabel(image: ImageLike) -> Labels:
    """Return the labels of the first map of a dlabel file."""
    axis = image.header.get_axis(0)
    if not hasattr(axis, "label"):
        raise StudyError(
            f"{image_name(image)!r} is a CIFTI file of {type(axis).__name__}, not of "
            "labels: give a .dlabel.nii file."
        )
    with reading(image):
        codes = np.asarray(image.dataobj)[0].astype(int)
    return with_names(codes, {int(k): v[0] for k, v in axis.label[0].items()})


def _vertex_labels(given: Any, names: Mapping[int, str]) -> Labels:
    """Return the labels of one hemisphere, from an array, GIfTI or annotation."""
    if isinstance(given, str | PathLike) and Path(given).suffix == ".annot":
        from nibabel.freesurfer import read_annot

        with reading(given):
            codes, _, texts = read_annot(given)
        table = {k: t.decode() for k, t in enumerate(texts)}
        # the first of a table is a parcel too, and -1 is none
        return with_names(codes + 1, {k + 1: t for k, t in table.items()})
    if isinstance(given, str | PathLike):
        given = load_image(given)
    if hasattr(given, "darrays"):
        table = given.labeltable.get_labels_as_dict()
        return with_names(np.asarray(given.darrays[0].data).astype(int), table)
    return with_names(np.asarray(given).ravel(), names)
