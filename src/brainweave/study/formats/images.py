"""NIfTI, CIFTI and GIfTI files in: studies made of runs on disk."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from os import PathLike
from pathlib import Path
from typing import Any

import nibabel as nib
import numpy as np

from brainweave._core.exceptions import InputError, StudyError
from brainweave.study.formats.events import check_t_r_option
from brainweave.study.formats.runs import Cleaning, Run
from brainweave.study.formats.sampling import errors_name_subject, study_of_runs
from brainweave.study.options import merge_options, subject_entry
from brainweave.study.provenance import AS_GIVEN
from brainweave.study.spaces import (
    ImageLike,
    VolumeSpace,
    image_name,
    load_image,
    reading,
)
from brainweave.study.study import Study
from brainweave.study.surface import CiftiSpace, SurfaceSpace, pair_hemispheres


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
        as ``smoothing_fwhm``; ``dtype``. Drifts below 1/128 Hz are removed by default
        where the repetition time is known; ``high_pass=None`` leaves them in (for
        series of maps, which are no time courses).

    Returns
    -------
    Study
        Lazy: only headers (and masks) are read.
    """
    return _make_study(
        "nifti",
        files,
        lambda id, images: volume_space(id, mask, images, resample_mask),
        name,
        mask=mask,
        **options,
    )


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
    chosen = [structures] if isinstance(structures, str) else structures
    return _make_study(
        "cifti",
        files,
        lambda _, images: CiftiSpace(images[0], structures=structures),
        name,
        mask="all grayordinates" if chosen is None else ", ".join(map(str, chosen)),
        **options,
    )


def load_gifti(
    files: Mapping[str, Any], *, mask: Any = None, name: str = "", **options: Any
) -> Study:
    """Make a study of functional GIfTI files, of one hemisphere or of both.

    Parameters
    ----------
    files : mapping of str to a run or a list of runs
        Per subject id. A run is a path or image, or, for both hemispheres,
        ``{"CortexLeft": left, "CortexRight": right}``. Bare files of both hemispheres
        are paired into runs by the structure that they name inside, or else by
        ``hemi-L`` and ``hemi-R`` in their names; what stays unclear is an error.
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
    if isinstance(mask, list | tuple):
        (mask,) = pair_hemispheres(mask)
    return _make_study(
        "gifti",
        files,
        lambda _, images: SurfaceSpace.from_run(images[0], mask),
        name,
        join=_join_hemispheres,
        mask="all vertices" if mask is None else mask,
        **options,
    )


def volume_space(
    id: str, mask: Any, images: Sequence[ImageLike], resample: bool
) -> VolumeSpace:
    """Return the voxels inside the mask of a subject (see `mask` of `load_nifti`)."""
    mask = _masker_image(_entry_or_value("mask", mask, id))
    if isinstance(mask, str) and mask == "epi":
        return VolumeSpace(epi_mask(images))
    return VolumeSpace(mask_on_grid(mask, images[0]) if resample else mask)


def epi_mask(images: Sequence[ImageLike]) -> Any:
    """Compute a brain mask from the runs of one subject, on their own grid.

    Voxels that are in the mask of at least half of the runs
    (:func:`nilearn.masking.compute_epi_mask` of each).
    """
    from nilearn.masking import compute_multi_epi_mask

    loaded = [load_image(image, nib.spatialimages.SpatialImage) for image in images]
    shape = loaded[0].shape[:3]
    for image, source in zip(loaded, images, strict=True):
        if image.shape[:3] != shape:
            raise StudyError(
                f"{image_name(source)!r} has shape {image.shape[:3]}, the first run "
                f"{shape}; a computed mask needs runs on one grid."
            )
    # nilearn's opening of 2 voxels eats volumes only a few voxels thick
    opening = 2 if min(shape) >= 10 else 0
    with reading(images[0]):
        try:
            return compute_multi_epi_mask(loaded, opening=opening)
        except ValueError as error:
            raise StudyError(
                f"No brain mask could be computed from {image_name(images[0])!r} "
                f"({error}). Give a mask."
            ) from error


def mask_on_grid(mask: ImageLike, image: ImageLike) -> Any:
    """Resample a mask to the grid of an image, by nearest neighbour."""
    from nilearn.image import resample_img

    target = load_image(image, nib.spatialimages.SpatialImage)
    return resample_img(
        VolumeSpace(mask).mask_image(),
        target_affine=target.affine,
        target_shape=target.shape[:3],
        interpolation="nearest",
        force_resample=True,
        copy_header=True,
    )


def _make_study(
    source: str,
    files: Any,
    space_of: Callable[[str, list[ImageLike]], Any],
    name: str,
    *,
    mask: Any,
    join: Callable[[list[Run]], list[Run]] = list,
    labels: Any = None,
    stimuli: Any = None,
    confounds: Mapping[str, Any] | None = None,
    t_r: float | None = None,
    dtype: Any = np.float32,
    cleaning: Cleaning | None = None,
    **details: Any,
) -> Study:
    (cleaning,) = merge_options("the reader of images", details, cleaning or Cleaning())
    t_r = check_t_r_option(t_r)
    subject_runs, spaces, known = {}, {}, {}
    for id, files_of_subject in _runs_by_subject(files).items():
        with errors_name_subject(id):
            runs = join(files_of_subject)
        spaces[id] = space_of(id, [run.image for run in runs])
        if t_r is not None:
            runs = [replace(run, t_r=t_r) for run in runs]
        if confounds is not None:
            runs = _with_confounds(id, runs, subject_entry("confounds", confounds, id))
        subject_runs[id] = dict(enumerate(runs, start=1))
        known[id] = {
            "labels": _entry_or_value("labels", labels, id),
            "stimuli": _entry_or_value("stimuli", stimuli, id),
        }
    given = {"labels": labels, "stimuli": stimuli, "confounds": confounds}
    settings = {
        "source": source,
        "mask": mask,
        **{what: None if v is None else AS_GIVEN for what, v in given.items()},
    }
    options: dict[str, Any] = {"dtype": dtype, "labels": known}
    return study_of_runs(name, subject_runs, spaces, cleaning, settings, **options)


def _join_hemispheres(runs: list[Run]) -> list[Run]:
    joined = pair_hemispheres([run.image for run in runs])
    if len(joined) == len(runs):
        return runs
    given = (v for run in runs for name, v in vars(run).items() if name != "image")
    if any(value is not None for value in given):
        raise InputError(
            "A Run of one hemisphere is not joined with another: give both in one, "
            'Run({"CortexLeft": left, "CortexRight": right}, ...).'
        )
    return [Run(image) for image in joined]


def _with_confounds(id: str, runs: list[Run], confounds: Any) -> list[Run]:
    listed = list(confounds) if isinstance(confounds, list | tuple) else [confounds]
    if len(listed) != len(runs):
        raise InputError(
            f"Subject {id!r} has {len(runs)} runs, but confounds for {len(listed)}. "
            "Give one entry per run (None for a run without)."
        )
    return [replace(r, confounds=c) for r, c in zip(runs, listed, strict=True)]


def _runs_by_subject(files: Any) -> dict[str, list[Run]]:
    if isinstance(files, list | tuple) and files:
        files = _group_by_subject(files)
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


def _group_by_subject(files: Sequence[Any]) -> dict[str, list[Any]]:
    """Group files by the subject that their names begin with, ``sub-<id>``."""
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


def _masker_image(mask: Any) -> Any:
    """Return the mask image of a nilearn masker; anything else as it is."""
    if not hasattr(mask, "inverse_transform") or not hasattr(mask, "get_params"):
        return mask
    image = getattr(mask, "mask_img_", None)
    if image is None:
        raise InputError(
            f"The masker ({type(mask).__name__}) is not fitted, or keeps no voxels "
            "apart. Fit a NiftiMasker, or pass a mask image."
        )
    cleaning = {"smoothing_fwhm", "standardize", "detrend", "high_pass", "low_pass"}
    chosen = {k for k, v in mask.get_params().items() if k in cleaning and v}
    if chosen:
        raise InputError(
            f"The masker also asks for {', '.join(sorted(chosen))}; give these to the "
            "loader itself, which keeps a record of them, and a masker without them."
        )
    return image


def _entry_or_value(what: str, values: Any, id: str) -> Any:
    """Return a mapping's entry for a subject; a value that is no mapping is for all."""
    return subject_entry(what, values, id) if isinstance(values, Mapping) else values
