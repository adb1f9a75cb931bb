"""How voxels lie in the brain: a masked volume, CIFTI brain models, GIfTI surfaces.

A space reads a run into samples x voxels, and puts values per voxel (the weights of
a shared feature) back into the same kind of image.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from brainweave._validation import check_list_option
from brainweave.exceptions import InputError, StudyError
from brainweave.study.formats.image_files import (
    ImageLike,
    image_name,
    load_image,
    reading,
)
from brainweave.study.study import Study

__all__ = [
    "CiftiSpace",
    "RunHeader",
    "VolumeSpace",
    "common_space",
    "common_voxels",
    "to_image",
]

# Headers store affines in float32; this is the error of a voxel's position in mm.
_AFFINE_TOLERANCE = 1e-3


@dataclass(frozen=True)
class RunHeader:
    """What a header tells of a run: how many samples, and the repetition time.

    A NIfTI header that nobody filled in says 1, of no unit: ``t_r_is_default``.
    """

    n_samples: int
    t_r: float | None = None
    t_r_is_default: bool = False


def to_image(space: Any, values: ArrayLike) -> Any:
    """Put values per voxel back into the kind of image the samples came from.

    Parameters
    ----------
    space : Space or None
        :attr:`Subject.space <brainweave.study.Subject>` of the subject.
    values : array-like of shape (n_voxels,) or (n_maps, n_voxels)
        One map, or several; weights (n_voxels x n_components) are given transposed.

    Returns
    -------
    nibabel image
        NIfTI, CIFTI (dscalar) or GIfTI; a dict of GIfTI images by structure if the
        space has two hemispheres.
    """
    if space is None:
        raise InputError(
            "This subject has no space, so its values cannot be put on a brain. Load "
            "it from images, or give Subject(..., space=VolumeSpace(mask))."
        )
    return space.to_image(values)


def check_values(values: ArrayLike, n_voxels: int) -> tuple[NDArray[Any], bool]:
    """Return values as (n_maps, n_voxels) floats, and whether they were one map."""
    array = np.asarray(values)
    if array.dtype.kind not in "fiub":
        raise TypeError(f"Values for an image must be real numbers, got {array.dtype}.")
    if array.ndim not in (1, 2) or array.shape[-1] != n_voxels:
        hint = ""
        if array.ndim == 2 and array.shape[0] == n_voxels:
            hint = " It looks transposed: give values.T."
        raise InputError(
            f"The space has {n_voxels} voxels, but the values have shape "
            f"{array.shape}. Give (n_voxels,) or (n_maps, n_voxels).{hint}"
        )
    if array.dtype.kind != "f" or array.dtype.itemsize > 8 or array.dtype == np.float16:
        array = array.astype(np.float32)
    return np.atleast_2d(array), array.ndim == 1


class ImageSpace:
    """What all kinds of spaces share: they are equal if their voxels are the same."""

    kind: str
    n_voxels: int

    @classmethod
    def load(cls, paths: Sequence[Path]) -> Any:
        """Read what ``save`` wrote."""
        return cls(*paths)

    def _is_same(self, other: Any) -> bool:
        raise NotImplementedError

    def __eq__(self, other: object) -> bool:
        return isinstance(other, type(self)) and self._is_same(other)

    def __hash__(self) -> int:
        return hash((self.kind, self.n_voxels))

    def _refuse_smoothing(self, smoothing_fwhm: float | None) -> None:
        if smoothing_fwhm is not None:
            raise InputError(
                f"smoothing_fwhm works on volumes only, not on a {self.kind} space."
            )


class VolumeSpace(ImageSpace):
    """The voxels of a volume inside a mask, in C order (as in nilearn).

    Parameters
    ----------
    mask : path or nibabel image
        Voxels above zero are inside.

    Examples
    --------
    >>> import nibabel as nib
    >>> mask = nib.Nifti1Image(np.eye(2, dtype=np.uint8)[..., None], np.eye(4))
    >>> VolumeSpace(mask).to_image([5.0, 7.0]).get_fdata()[..., 0]
    array([[5., 0.], [0., 7.]])
    """

    kind = "volume"

    def __init__(self, mask: ImageLike) -> None:
        import nibabel as nib

        image = load_image(mask, nib.spatialimages.SpatialImage)
        name = image_name(mask)
        with reading(mask):
            inside = np.asarray(image.dataobj)
        if inside.ndim == 4 and inside.shape[3] == 1:
            inside = inside[..., 0]
        if inside.ndim != 3:
            raise StudyError(
                f"Mask {name!r} has shape {inside.shape}; a mask has three dimensions."
            )
        with np.errstate(invalid="ignore"):
            self.mask: NDArray[np.bool_] = np.asarray(inside > 0)
        self.affine: NDArray[np.float64] = np.asarray(image.affine, np.float64)
        self.n_voxels = int(self.mask.sum())
        if self.n_voxels == 0:
            raise StudyError(f"Mask {name!r} is empty: no voxel is above zero.")

    def header(self, run: ImageLike) -> RunHeader:
        """Check that a run fits the mask, reading its header only."""
        image = self._load(run)
        n_samples = 1 if len(image.shape) == 3 else int(image.shape[3])
        with reading(run):
            t_r, unit = _nifti_t_r(image)
        return RunHeader(n_samples, t_r, t_r == 1 and unit == "unknown")

    def _load(self, run: ImageLike) -> Any:
        import nibabel as nib

        image = load_image(run, nib.spatialimages.SpatialImage)
        name, shape = image_name(run), tuple(image.shape)
        if len(shape) not in (3, 4):
            raise StudyError(
                f"{name!r} has shape {shape}; a run has 3 or 4 dimensions."
            )
        if shape[:3] != self.mask.shape:
            raise StudyError(
                f"{name!r} has {_times(shape[:3])} voxels, its mask "
                f"{_times(self.mask.shape)}. Use a mask on the grid of the run, or let "
                "resample_mask=True put it there."
            )
        ends = np.meshgrid(*([0, n - 1] for n in self.mask.shape), [1])
        corners = np.array(ends, dtype=float).reshape(4, -1)
        shift = float(np.abs((image.affine - self.affine) @ corners).max())
        if not shift <= _AFFINE_TOLERANCE:
            raise StudyError(
                f"{name!r} and its mask have the same shape but other affines: voxels "
                f"lie up to {shift:.3g} mm apart. Use a mask on the grid of the run, "
                "or let resample_mask=True put it there."
            )
        return image

    def read(
        self, run: ImageLike, *, smoothing_fwhm: float | None = None
    ) -> NDArray[Any]:
        """Read one run into samples x voxels, of the file's own precision."""
        image = self._load(run)
        with reading(run):
            if smoothing_fwhm is not None:
                from nilearn.image import smooth_img

                image = smooth_img(image, smoothing_fwhm)
            values = scaled_data(image)[self.mask]
        return np.ascontiguousarray(np.atleast_2d(values.T))

    def to_image(self, values: ArrayLike) -> Any:
        """Make a NIfTI image: 3-D for one map, 4-D for several; zero outside."""
        import nibabel as nib

        maps, single = check_values(values, self.n_voxels)
        volume = np.zeros((*self.mask.shape, len(maps)), maps.dtype)
        volume[self.mask] = maps.T
        return nib.Nifti1Image(volume[..., 0] if single else volume, self.affine)

    def save(self, stem: Path) -> list[Path]:
        """Write the mask as an image whose name begins with `stem`."""
        import nibabel as nib

        path = stem.with_name(stem.name + ".nii.gz")
        nib.save(nib.Nifti1Image(self.mask.astype(np.uint8), self.affine), path)
        return [path]

    def _is_same(self, other: "VolumeSpace") -> bool:
        return np.array_equal(self.mask, other.mask) and np.allclose(
            self.affine, other.affine, rtol=0, atol=1e-6
        )

    def __repr__(self) -> str:
        return f"VolumeSpace({self.n_voxels} of {_times(self.mask.shape)} voxels)"


class CiftiSpace(ImageSpace):
    """The grayordinates of a CIFTI file, or those of some of its structures.

    Parameters
    ----------
    image : path or Cifti2Image
        A dtseries or dscalar with the brain models.
    structures : iterable of str, optional
        Structures to keep, such as ``"CIFTI_STRUCTURE_CORTEX_LEFT"`` or, shorter,
        ``"cortex_left"``; all by default.
    """

    kind = "cifti"

    def __init__(
        self, image: ImageLike, *, structures: Iterable[str] | None = None
    ) -> None:
        self.file_axis = self.axis = _load_cifti(image)[1]
        self.columns: Any = slice(None)
        if structures is not None:
            listed = check_list_option("structures", structures, "CiftiSpace")
            self.columns = self._columns_of(listed)
            self.axis = self.file_axis[self.columns]
        self.n_voxels = len(self.axis)

    def _columns_of(self, structures: list[str]) -> NDArray[np.intp]:
        names = np.asarray(self.file_axis.name)
        keep = np.zeros(len(names), bool)
        for structure in structures:
            wanted = f"CIFTI_STRUCTURE_{structure.upper()}"
            here = (names == structure) | (names == wanted)
            if not here.any():
                known = ", ".join(sorted(set(names.tolist())))
                raise StudyError(
                    f"There is no structure {structure!r}; known: {known}."
                )
            keep |= here
        return np.flatnonzero(keep)

    def header(self, run: ImageLike) -> RunHeader:
        """Check that a run has the same brain models, reading its header only."""
        image = self._load(run)
        axis = image.header.get_axis(0)
        in_seconds = getattr(axis, "unit", None) == "SECOND"
        return RunHeader(int(image.shape[0]), float(axis.step) if in_seconds else None)

    def _load(self, run: ImageLike) -> Any:
        image, axis = _load_cifti(run)
        if axis != self.file_axis:
            raise StudyError(
                f"{image_name(run)!r} has other brain models ({len(axis)} "
                f"grayordinates) than the first file ({len(self.file_axis)}). Give "
                "each subject runs in one and the same CIFTI space."
            )
        return image

    def read(
        self, run: ImageLike, *, smoothing_fwhm: float | None = None
    ) -> NDArray[Any]:
        """Read one run into samples x grayordinates."""
        self._refuse_smoothing(smoothing_fwhm)
        image = self._load(run)
        with reading(run):
            values = scaled_data(image)
        return np.ascontiguousarray(values[:, self.columns])

    def to_image(self, values: ArrayLike) -> Any:
        """Make a CIFTI dscalar image with a row per map."""
        import nibabel as nib

        maps, _ = check_values(values, self.n_voxels)
        scalars = nib.cifti2.ScalarAxis([f"map {k + 1}" for k in range(len(maps))])
        image = nib.Cifti2Image(maps, header=(scalars, self.axis))
        image.update_headers()
        image.nifti_header.set_intent("NIFTI_INTENT_CONNECTIVITY_DENSE_SCALARS")
        return image

    def save(self, stem: Path) -> list[Path]:
        """Write the brain models as an empty dscalar image."""
        import nibabel as nib

        path = stem.with_name(stem.name + ".dscalar.nii")
        nib.save(self.to_image(np.zeros(self.n_voxels, np.float32)), path)
        return [path]

    def _is_same(self, other: "CiftiSpace") -> bool:
        return bool(self.axis == other.axis)

    def __repr__(self) -> str:
        return f"CiftiSpace({self.n_voxels} grayordinates)"


def scaled_data(image: Any) -> NDArray[Any]:
    """Read an image's data in single precision, if its file does not hold more."""
    get_scaled = getattr(image.dataobj, "get_scaled", None)
    if get_scaled is not None:
        return np.asarray(get_scaled(np.float32))
    return np.asarray(image.dataobj)


def _nifti_t_r(image: Any) -> tuple[float | None, str]:
    """Return the repetition time in seconds, if a header states one, and its unit."""
    unit = getattr(image.header, "get_xyzt_units", lambda: ("mm", "sec"))()[1]
    zooms = image.header.get_zooms()
    if len(zooms) < 4 or not zooms[3] > 0:
        return None, unit
    return float(zooms[3]) * {"msec": 1e-3, "usec": 1e-6}.get(unit, 1.0), unit


def _load_cifti(image: ImageLike) -> tuple[Any, Any]:
    """Open a CIFTI file, and return it and its brain models."""
    import nibabel as nib

    loaded = load_image(image, nib.Cifti2Image)
    axes = [loaded.header.get_axis(dimension) for dimension in range(loaded.ndim)]
    first = (nib.cifti2.SeriesAxis, nib.cifti2.ScalarAxis)
    if (
        len(axes) != 2
        or not isinstance(axes[0], first)
        or not isinstance(axes[1], nib.cifti2.BrainModelAxis)
    ):
        kinds = " x ".join(type(axis).__name__ for axis in axes)
        raise StudyError(
            f"{image_name(image)!r} is a CIFTI file of {kinds}; only dtseries and "
            "dscalar hold samples x grayordinates."
        )
    return loaded, axes[1]


def _times(shape: Iterable[int]) -> str:
    return " x ".join(str(n) for n in shape)


def load_space(kind: str, paths: Sequence[Path]) -> Any:
    """Read a space that was saved by its ``save`` method."""
    from brainweave.study.surface import SurfaceSpace

    for space in (VolumeSpace, CiftiSpace, SurfaceSpace):
        if space.kind == kind:
            return space.load(paths)
    raise StudyError(f"Unknown kind of space {kind!r}; known: volume, cifti, surface.")


def common_voxels(study: Study) -> Study:
    """Keep the voxels that lie inside every subject's mask.

    What is left is the study as anatomy alone aligns it: the same number of voxels for
    everyone, at the same places. Comparisons without functional alignment need this;
    GDM does not. The subjects' masks must be on one grid.
    """
    spaces: list[Any] = [subject.space for subject in study]
    common = common_space(zip(study.ids, spaces, strict=True))
    subjects = [
        subject._replace(samples=subject.data()[:, common.mask[own.mask]], space=common)
        for subject, own in zip(study, spaces, strict=True)
    ]
    record = {**(study.record or {}), "voxels": "common to all subjects"}
    return Study(subjects, name=study.name, record=record)


def common_space(
    spaces: Iterable[tuple[str, Any]], remedy: str = "Resample them to one grid first."
) -> VolumeSpace:
    """Return the voxels inside of all masks on one grid, given with their subjects."""
    import nibabel as nib

    inside: Any = None
    for id, space in spaces:
        if not isinstance(space, VolumeSpace):
            raise StudyError(
                f"Subject {id!r} has no volume mask, so it is not known which of its "
                "voxels the others have too."
            )
        if inside is None:
            inside, affine = space.mask, space.affine
        same = space.mask.shape == inside.shape
        if not same or not np.allclose(
            space.affine, affine, rtol=0, atol=_AFFINE_TOLERANCE
        ):
            raise StudyError(
                f"Subject {id!r}: masks are on different grids ({inside.shape} and "
                f"{space.mask.shape}). {remedy}"
            )
        inside = inside & space.mask
    if not inside.any():
        raise StudyError("The subjects' masks have no voxel in common.")
    return VolumeSpace(nib.Nifti1Image(inside.astype(np.uint8), affine))
