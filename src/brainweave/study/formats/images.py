"""NIfTI, CIFTI and GIfTI files in: studies made of runs on disk."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from nibabel.spatialimages import SpatialImage

from brainweave._core.exceptions import InputError, StudyError
from brainweave.study.films import clocked
from brainweave.study.formats.events import check_tr
from brainweave.study.formats.runs import (
    Cleaning,
    Run,
    errors_name_subject,
    study_of_runs,
)
from brainweave.study.provenance import AS_GIVEN
from brainweave.study.spaces import (
    ImageLike,
    VolumeSpace,
    image_name,
    load_image,
    reading,
    whole_image,
)
from brainweave.study.study import Study
from brainweave.study.subject import subject_entry
from brainweave.study.surface import CiftiSpace, SurfaceSpace, pair_hemispheres


def load_nifti(
    files: Mapping[str, Any],
    *,
    mask: Any = "epi",
    masker: Any = None,
    labels: Any = None,
    stimuli: Any = None,
    films: Any = None,
    t_r: float | None = None,
    cleaning: Cleaning | None = None,
    name: str = "",
) -> Study:
    """Make a study of 4-D NIfTI files, with masks that may differ between subjects.

    Parameters
    ----------
    files : mapping of str to path, image, Run, or a list of these
        Per subject id, its runs in order; :class:`brainweave.study.Run` has confounds
        and volumes to leave out.
    mask : path, image, mapping of str to these, or "epi", default="epi"
        One mask for all subjects, one per subject id, or a brain mask computed from
        each subject's own runs in their native space (:func:`epi_mask`; this reads the
        runs once). Subjects need not be on the same grid.
    masker : nilearn NiftiMasker, optional
        Reads the runs of all subjects in place of `mask`, with its own smoothing,
        filters and scaling; fitted to the first run if it is not fitted. Then no drifts
        are removed unless `cleaning` says so.
    labels : array-like or mapping of str to array-like, optional
        Label of each sample, for all subjects or per subject id.
    stimuli : array-like or mapping of str to array-like, optional
        Stimulus of each sample, in the same forms.
    films : "runs", mapping, DataFrame or path, optional
        The film that each run shows, for ids by its clock instead of `stimuli`: see
        :func:`brainweave.study.film_clock`. Runs are numbered from 1.
    t_r : float, optional
        Repetition time in seconds, instead of the headers'.
    cleaning : Cleaning, optional
        Filter, scaling and smoothing. Drifts below 1/128 Hz are removed by
        default where the repetition time is known; ``Cleaning(high_pass=None)`` leaves
        them in (for series of maps, which are no time courses).
    name : str, default=""
        Name of the study.

    Returns
    -------
    Study
        Lazy: only headers (and masks) are read.

    Examples
    --------
    >>> from nibabel import Nifti1Image
    >>> rng = np.random.default_rng(0)
    >>> runs = [Nifti1Image(rng.normal(size=(4, 4, 4, 6)), np.eye(4)) for _ in range(2)]
    >>> mask = Nifti1Image(np.ones((4, 4, 4), "uint8"), np.eye(4))
    >>> files = {"01": runs[0], "02": runs[1]}
    >>> study = load_nifti(files, mask=mask, labels=["face", "house"] * 3, t_r=2.0)
    >>> study[0]
    Subject('01': 6 samples x 64 voxels, 2 categories, 1 runs)
    """

    def space_of(id: str, images: list[ImageLike]) -> VolumeSpace:
        if masker is None:
            return volume_space(id, mask, images)
        space = VolumeSpace(_fitted(masker, images).mask_img_)
        space.masker = masker
        return space

    if masker is not None:
        mask, cleaning = masker, cleaning or Cleaning(high_pass=None)
    options: Any = {"labels": labels, "stimuli": stimuli, "films": films, "name": name}
    settings = {"source": "nifti", "mask": mask}
    return _make_study(settings, files, space_of, cleaning, t_r=t_r, **options)


def load_cifti(
    files: Mapping[str, Any],
    *,
    cleaning: Cleaning | None = None,
    **options: Any,
) -> Study:
    """Make a study of CIFTI dtseries or dscalar files.

    Parameters
    ----------
    files : mapping of str to path, image, Run, or a list of these
        Per subject id, its runs in order.
    cleaning, **options : various
        As in :func:`load_nifti`: labels, stimuli, films, t_r, name; no
        smoothing.

    Returns
    -------
    Study
        Lazy: only headers are read.

    Examples
    --------
    >>> from nibabel.cifti2 import BrainModelAxis, Cifti2Image, SeriesAxis
    >>> values = np.random.default_rng(0).normal(size=(6, 20)).astype("float32")
    >>> cortex = BrainModelAxis.from_mask(np.ones(20, bool), name="cortex_left")
    >>> run = Cifti2Image(values, (SeriesAxis(start=0, step=2, size=6), cortex))
    >>> study = load_cifti({"01": run, "02": run})
    >>> study[0]
    Subject('01': 6 samples x 20 voxels, 1 runs)
    """
    settings = {"source": "cifti", "mask": "all grayordinates"}

    def space_of(_: str, images: list[ImageLike]) -> CiftiSpace:
        return CiftiSpace(images[0])

    return _make_study(settings, files, space_of, cleaning, **options)


def load_gifti(
    files: Mapping[str, Any],
    *,
    mask: Any = None,
    masker: Any = None,
    cleaning: Cleaning | None = None,
    **options: Any,
) -> Study:
    """Make a study of functional GIfTI files, of one hemisphere or of both.

    Parameters
    ----------
    files : mapping of str to a run or a list of runs
        Per subject id. A run is a path or image, or, for both hemispheres,
        ``{"CortexLeft": left, "CortexRight": right}``. Files with ``hemi-L`` and
        ``hemi-R`` in their names are paired into runs. Or a SurfaceImage of nilearn:
        ``space.to_image`` then makes such images, too.
    mask : like a run, optional
        Vertices above zero are kept, for all subjects; all vertices by default.
    masker : nilearn SurfaceMasker, optional
        Reads SurfaceImages in place of `mask`, as in :func:`load_nifti`.
    cleaning, **options : various
        As in :func:`load_nifti`: labels, stimuli, films, t_r, name; no
        smoothing. GIfTI states no repetition time: give ``t_r`` for filters and onsets.

    Returns
    -------
    Study
        Lazy: the data of the files are not decoded.

    Examples
    --------
    >>> from nibabel.gifti import GiftiDataArray, GiftiImage
    >>> values = np.random.default_rng(0).normal(size=(6, 20)).astype("float32")
    >>> run = GiftiImage(darrays=[GiftiDataArray(volume) for volume in values])
    >>> study = load_gifti({"01": run, "02": run}, labels=["face", "house"] * 3)
    >>> study[0]
    Subject('01': 6 samples x 20 voxels, 2 categories, 1 runs)
    """
    if isinstance(mask, list | tuple):
        (mask,) = pair_hemispheres(mask)

    def space_of(_: str, images: list[ImageLike]) -> SurfaceSpace:
        if masker is None:
            return SurfaceSpace.from_run(images[0], mask)
        inside = _fitted(masker, images).mask_img_
        space = SurfaceSpace.from_run(inside, inside)
        space.masker = masker
        return space

    known: Any = "all vertices" if mask is None else mask
    if masker is not None:
        known, cleaning = masker, cleaning or Cleaning(high_pass=None)
    settings, join = {"source": "gifti", "mask": known}, pair_hemispheres
    return _make_study(settings, files, space_of, cleaning, join=join, **options)


def _fitted(masker: Any, images: Sequence[ImageLike]) -> Any:
    """Return a masker of nilearn, fitted to the first run if it is not fitted."""
    from nilearn.maskers import NiftiMasker, SurfaceMasker

    if not isinstance(masker, NiftiMasker | SurfaceMasker):
        raise TypeError(
            "masker must be a NiftiMasker or SurfaceMasker of nilearn, which keep the "
            f"voxels; got {type(masker).__name__}. Pass its values as arrays."
        )
    if not hasattr(masker, "mask_img_"):
        with reading(images[0]):
            masker.fit(images[0] if masker.mask_img is None else None)
    return masker


def volume_space(id: str, mask: Any, images: Sequence[ImageLike]) -> VolumeSpace:
    """Return the voxels inside the mask of a subject (see `mask` of `load_nifti`)."""
    mask = subject_entry("mask", mask, id)
    if isinstance(mask, str) and mask == "epi":
        return VolumeSpace(epi_mask(images))
    return VolumeSpace(mask)


def epi_mask(images: Sequence[ImageLike]) -> Any:
    """Compute a brain mask of the voxels in the masks of at least half of the runs."""
    from nilearn.masking import compute_epi_mask, intersect_masks

    masks = []
    try:
        for source in images:
            with reading(source):
                whole = whole_image(load_image(source, SpatialImage))
            # nilearn's opening of 2 voxels eats volumes only a few voxels thick
            opening = 2 if min(whole.shape[:3]) >= 10 else 0
            masks.append(compute_epi_mask(whole, opening=opening))
        return intersect_masks(masks, threshold=0.5)
    except StudyError:
        raise
    except ValueError as error:
        raise StudyError(
            f"No brain mask could be computed from {image_name(source)!r} ({error}). "
            "Runs must be on one grid. Give a mask."
        ) from error


def _make_study(
    settings: Mapping[str, Any],
    files: Any,
    space_of: Callable[[str, list[ImageLike]], Any],
    cleaning: Cleaning | None,
    *,
    labels: Any = None,
    stimuli: Any = None,
    films: Any = None,
    t_r: float | None = None,
    name: str = "",
    join: Callable[[list[Any]], list[Any]] = list,
) -> Study:
    if films is not None and stimuli is not None:
        raise InputError("Give stimuli=... or films=..., not both.")
    if t_r is not None:
        t_r = check_tr(t_r, f"t_r={t_r!r}", InputError)
    if not isinstance(files, Mapping) or not files:
        raise TypeError(
            "files must map subject ids to files, such as {'01': ['run1.nii.gz']}; got "
            f"{type(files).__name__}."
        )
    subject_runs, spaces, known = {}, {}, {}
    for id, entry in ((str(id), entry) for id, entry in files.items()):
        listed = list(entry) if isinstance(entry, list | tuple) else [entry]
        if not listed:
            raise StudyError(f"Subject {id!r} has no files. Leave it out.")
        if not any(isinstance(run, Run) for run in listed):
            with errors_name_subject(id):
                listed = join(listed)
        runs = [run if isinstance(run, Run) else Run(run) for run in listed]
        spaces[id] = space_of(id, [run.image for run in runs])
        if t_r is not None:
            runs = [replace(run, t_r=t_r) for run in runs]
        subject_runs[id] = dict(enumerate(runs, start=1))
        known[id] = {
            "labels": subject_entry("labels", labels, id),
            "stimuli": subject_entry("stimuli", stimuli, id),
        }
    everything = [run for own in subject_runs.values() for run in own.values()]
    has_confounds = any(run.confounds is not None for run in everything)
    as_given = {
        "labels": None if labels is None else AS_GIVEN,
        "stimuli": None if stimuli is None else AS_GIVEN,
        "confounds": AS_GIVEN if has_confounds else None,
    }
    told, cleaning = {**settings, **as_given}, cleaning or Cleaning()
    study = study_of_runs(name, subject_runs, spaces, cleaning, told, labels=known)
    return clocked(study, films)
