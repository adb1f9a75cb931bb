"""NIfTI, CIFTI and GIfTI files in: studies made of runs on disk."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np

from brainweave.exceptions import InputError, StudyError
from brainweave.study.formats.image_files import (
    ImageLike,
    image_name,
    load_image,
    reading,
)
from brainweave.study.formats.runs.cleaning import Cleaning
from brainweave.study.formats.runs.runs import ImageSource, Run, read_run
from brainweave.study.options import gathered
from brainweave.study.spaces import CiftiSpace, VolumeSpace, to_image
from brainweave.study.study import Study
from brainweave.study.subject import Subject
from brainweave.study.surface import SurfaceSpace

__all__ = [
    "ImageSource",
    "Run",
    "epi_mask",
    "load_cifti",
    "load_gifti",
    "load_nifti",
    "mask_on_grid",
    "read_run",
    "to_image",
]


def load_nifti(
    files: Mapping[str, Any],
    *,
    mask: Any = "epi",
    resample_mask: bool = False,
    name: str = "",
    **options: Any,
) -> Study:
    """Make a study of 4-D NIfTI files, with masks that may differ between subjects.

    Parameters
    ----------
    files : mapping of str to path, image, Run, or a list of these
        Per subject id, its runs in order. Or a list of files whose names begin with
        their subject, ``sub-01_...``: the files of one subject are its runs.
    mask : path, image, fitted masker, mapping of str to these, or "epi", default="epi"
        One mask for all subjects (of a nilearn masker its ``mask_img_``), one per
        subject id, or a brain mask computed from each subject's own runs in their
        native space (:func:`epi_mask`; this reads the runs once). Subjects need not
        be on the same grid.
    resample_mask : bool, default=False
        Put a mask of another shape or affine on the grid of the subject's first run
        (nearest neighbour) instead of raising.
    name : str, default=""
        Name of the study.
    **options
        ``labels``, ``stimuli``: one per sample, per subject id (a mapping), or for
        all subjects; ``t_r``; ``confounds``: per subject id, one per run;
        ``cleaning``: a :class:`brainweave.study.Cleaning`, or its fields by name, such
        as ``smoothing_fwhm``; ``dtype``.

    Returns
    -------
    Study
        Lazy: only headers (and masks) are read.
    """
    runs = _listed_runs(files)
    mask = {id: _of_masker(m) for id, m in mask.items()} if _is_map(mask) else mask
    mask = _of_masker(mask)
    spaces = {}
    for id, listed in runs.items():
        images = [run.image for run in listed]
        chosen = mask[_of_subject("mask", mask, id)] if _is_map(mask) else mask
        if isinstance(chosen, str) and chosen == "epi":
            spaces[id] = VolumeSpace(epi_mask(images))
        elif resample_mask:
            spaces[id] = VolumeSpace(mask_on_grid(chosen, images[0]))
        else:
            spaces[id] = VolumeSpace(chosen)
    return _make_study(runs, spaces, name, **options)


def load_cifti(
    files: Mapping[str, Any],
    *,
    structures: Sequence[str] | None = None,
    name: str = "",
    **options: Any,
) -> Study:
    """Make a study of CIFTI dtseries or dscalar files.

    Parameters
    ----------
    files : mapping of str to path, image, Run, or a list of these
        Per subject id, its runs in order.
    structures : sequence of str, optional
        Structures to keep, such as ``"cortex_left"``; all by default.
    name : str, default=""
        Name of the study.
    **options
        As in :func:`load_nifti` (without smoothing).

    Returns
    -------
    Study
        Lazy: only headers are read.
    """
    runs = _listed_runs(files)
    spaces = {
        id: CiftiSpace(listed[0].image, structures=structures)
        for id, listed in runs.items()
    }
    return _make_study(runs, spaces, name, **options)


def load_gifti(
    files: Mapping[str, Any], *, mask: Any = None, name: str = "", **options: Any
) -> Study:
    """Make a study of functional GIfTI files, of one hemisphere or of both.

    Parameters
    ----------
    files : mapping of str to a run or a list of runs
        Per subject id. A run is a path or image, or, for both hemispheres,
        ``{"CortexLeft": left, "CortexRight": right}``.
    mask : like a run, optional
        Vertices above zero are kept, for all subjects; all vertices by default.
    name : str, default=""
        Name of the study.
    **options
        As in :func:`load_nifti` (without smoothing). GIfTI states no repetition
        time: give ``t_r`` for filters and onsets.

    Returns
    -------
    Study
        Lazy: the data of the files are not decoded.
    """
    runs = _listed_runs(files)
    spaces = {
        id: SurfaceSpace.from_run(listed[0].image, mask) for id, listed in runs.items()
    }
    return _make_study(runs, spaces, name, **options)


def epi_mask(images: Sequence[ImageLike]) -> Any:
    """Compute a brain mask from the runs of one subject, on their own grid.

    Voxels that are in the mask of at least half of the runs
    (:func:`nilearn.masking.compute_epi_mask` of each).

    Parameters
    ----------
    images : sequence of paths or images
        Runs on the same grid.

    Returns
    -------
    Nifti1Image
    """
    import nibabel as nib
    from nilearn.masking import compute_multi_epi_mask

    loaded = [load_image(image, nib.spatialimages.SpatialImage) for image in images]
    for image, source in zip(loaded, images, strict=True):
        if image.shape[:3] != loaded[0].shape[:3]:
            raise StudyError(
                f"{image_name(source)!r} has shape {image.shape[:3]}, the first run "
                f"{loaded[0].shape[:3]}; a computed mask needs runs on one grid."
            )
    name = image_name(images[0])
    with reading(images[0]):
        try:
            # one run at a time, each read whole once
            return compute_multi_epi_mask(loaded, opening=_opening(loaded[0].shape))
        except ValueError as error:
            raise StudyError(
                f"No brain mask could be computed from {name!r} ({error}). Give a mask."
            ) from error


def mask_on_grid(mask: ImageLike, image: ImageLike) -> Any:
    """Resample a mask to the grid of an image, by nearest neighbour.

    Parameters
    ----------
    mask : path or image
        Voxels above zero are inside.
    image : path or image
        Its grid is used, its data are not read.

    Returns
    -------
    Nifti1Image
    """
    import nibabel as nib
    from nilearn.image import resample_img

    space = VolumeSpace(mask)
    target = load_image(image, nib.spatialimages.SpatialImage)
    binary = nib.Nifti1Image(space.mask.astype(np.uint8), space.affine)
    return resample_img(
        binary,
        target_affine=target.affine,
        target_shape=target.shape[:3],
        interpolation="nearest",
        force_resample=True,
        copy_header=True,
    )


def _opening(shape: tuple[int, ...]) -> int:
    # nilearn's opening of 2 voxels eats volumes only a few voxels thick.
    return 2 if min(shape[:3]) >= 10 else 0


def _make_study(
    runs: Mapping[str, list[Run]],
    spaces: Mapping[str, Any],
    name: str,
    *,
    labels: Any = None,
    stimuli: Any = None,
    confounds: Mapping[str, Any] | None = None,
    t_r: float | None = None,
    dtype: Any = np.float32,
    cleaning: Cleaning | None = None,
    **details: Any,
) -> Study:
    (how,) = gathered("the reader of images", details, cleaning or Cleaning())
    subjects = []
    for id, listed in runs.items():
        listed = _with_options(id, listed, confounds, t_r)
        try:
            source = ImageSource(listed, spaces[id], how, dtype)
        except (StudyError, InputError) as error:
            raise type(error)(f"Subject {id!r}: {error}") from error
        given = {"labels": labels, "stimuli": stimuli}
        for what, values in given.items():
            if _is_map(values):
                given[what] = values[_of_subject(what, values, id)]
        subjects.append(
            Subject(
                id,
                source,
                runs=source.run_of_samples(),
                onsets=source.onsets(),
                space=spaces[id],
                **given,
            )
        )
    return Study(subjects, name)


def _with_options(
    id: str, runs: list[Run], confounds: Mapping[str, Any] | None, t_r: float | None
) -> list[Run]:
    if t_r is not None:
        runs = [replace(run, t_r=t_r) for run in runs]
    if confounds is None:
        return runs
    listed = confounds[_of_subject("confounds", confounds, id)]
    listed = list(listed) if isinstance(listed, list | tuple) else [listed]
    if len(listed) != len(runs):
        raise InputError(
            f"Subject {id!r} has {len(runs)} runs, but confounds for {len(listed)}. "
            "Give one entry per run (None for a run without)."
        )
    return [replace(r, confounds=c) for r, c in zip(runs, listed, strict=True)]


def _listed_runs(files: Any) -> dict[str, list[Run]]:
    if isinstance(files, list | tuple) and files:
        files = _by_name(files)
    if not isinstance(files, Mapping):
        raise TypeError(
            "files must map subject ids to files, such as {'01': ['run1.nii.gz']}; got "
            f"{type(files).__name__}."
        )
    listed = {}
    for id, entry in files.items():
        runs = list(entry) if isinstance(entry, list | tuple) else [entry]
        if not runs:
            raise StudyError(f"Subject {id!r} has no files. Leave it out.")
        listed[str(id)] = [run if isinstance(run, Run) else Run(run) for run in runs]
    if not listed:
        raise StudyError("No files were given.")
    return listed


def _by_name(files: Sequence[Any]) -> dict[str, list[Any]]:
    """Sort files into subjects by their names; refuse a list that does not say."""
    found: dict[str, list[Any]] = {}
    for file in files:
        stem = Path(file).name if isinstance(file, str | PathLike) else ""
        if not stem.startswith("sub-"):
            shown = repr(str(file)) if stem else f"a {type(file).__name__}"
            raise TypeError(
                f"files is a list with {shown}, which does not say whose it is: names "
                "must begin with sub-. Map subject ids to files instead: "
                "{'01': ['run1.nii.gz', 'run2.nii.gz'], ...}."
            )
        id = stem.split("_")[0].split(".")[0].removeprefix("sub-")
        found.setdefault(id, []).append(file)
    return found


def _of_masker(mask: Any) -> Any:
    """Return the mask image of a nilearn masker; anything else as it is."""
    if not hasattr(mask, "inverse_transform") or not hasattr(mask, "get_params"):
        return mask
    image = getattr(mask, "mask_img_", None)
    if image is None:
        raise InputError(
            f"The masker ({type(mask).__name__}) is not fitted, or keeps no voxels "
            "apart. Fit a NiftiMasker, or pass a mask image."
        )
    asked = {"smoothing_fwhm", "standardize", "detrend", "high_pass", "low_pass"}
    chosen = {k for k, v in mask.get_params().items() if k in asked and v}
    if chosen:
        raise InputError(
            f"The masker also asks for {', '.join(sorted(chosen))}; give these to the "
            "loader itself, which keeps a record of them, and a masker without them."
        )
    return image


def _is_map(values: Any) -> bool:
    return isinstance(values, Mapping)


def _of_subject(what: str, values: Mapping[str, Any], id: str) -> str:
    if id not in values:
        known = ", ".join(map(repr, values))
        raise InputError(
            f"There is no {what} for subject {id!r}; there is for {known}."
        )
    return id
