"""How voxels lie in the brain, and how images are opened; surfaces have their module.

A space reads a run into samples x voxels, and puts values per voxel (the weights of
a shared feature) back into the same kind of image.
"""

import gzip
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from io import BytesIO
from os import PathLike, fspath
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import ArrayLike

from brainweave._core.arrays import Floats, Mask, Matrix
from brainweave._core.exceptions import BrainweaveError, InputError, StudyError
from brainweave._core.io import unreadable
from brainweave.basis.places import volume_labels, voxel_positions
from brainweave.study.study import Study

# Endings of files that nibabel decompresses.
_COMPRESSED = (".gz", ".bz2", ".zst", ".mgz")
#: Scanners count to 2 ** 16, and scaling adds a few digits; what is far beyond is
#: damage, such as a flipped bit in the exponent of a number.
MAX_MAGNITUDE = 1e12

# A path, or an image object of nibabel.
ImageLike: TypeAlias = Any


def image_name(image: ImageLike) -> str:
    """Name an image for messages: its path, or what it is; of several the first."""
    if isinstance(image, Mapping):
        image = next(iter(image.values()))
    if isinstance(image, str | PathLike):
        return fspath(image)
    filename = getattr(image, "get_filename", lambda: None)()
    return filename or f"{type(image).__name__} in memory"


@contextmanager
def reading(image: ImageLike) -> Iterator[None]:
    """Turn whatever goes wrong while a file is read into a StudyError with its name."""
    name = image_name(image)
    try:
        yield
    except BrainweaveError:
        raise
    except FileNotFoundError:
        raise StudyError(f"There is no file {name!r}. Check the path.") from None
    except PermissionError as error:
        raise unreadable(Path(name), error) from error
    except MemoryError as error:
        raise StudyError(
            f"{name!r} does not fit into memory ({error}). Check the shape it states."
        ) from error
    except Exception as error:
        # a damaged header makes nibabel fail in any way
        problem = "ends early" if isinstance(error, EOFError) else "is not readable"
        said = (str(error).strip() or type(error).__name__).splitlines()[0]
        raise StudyError(
            f"{name!r} {problem} ({said}). It may be cut off or damaged: get the file "
            "again."
        ) from error


def load_image(image: ImageLike, kind: type | None = None) -> Any:
    """Open an image (the header only, where the format allows) and check its kind."""
    if isinstance(image, str | PathLike):
        from nibabel.loadsave import load

        path = Path(image)
        with reading(path):
            if path.is_file():
                path.open("rb").close()  # nibabel does not say that it may not read
            image = load(path)
    if kind is not None and not isinstance(image, kind):
        raise StudyError(
            f"{image_name(image)!r} is a {type(image).__name__}, not a {kind.__name__}."
        )
    return image


def whole_image(image: Any) -> Any:
    """Return an image; a compressed one is read to the checksum behind its data."""
    from nibabel import is_proxy
    from nibabel.openers import ImageOpener

    name = str(image.get_filename() or "")
    compressed = name.lower().endswith(_COMPRESSED) and is_proxy(image.dataobj)
    if not compressed or not hasattr(image, "from_bytes"):
        return image
    with ImageOpener(name) as file:
        return type(image).from_bytes(file.read())


_LARGEST_TABLE = 2**26  # bytes of text
_MOST_COLUMNS = 20_000


def read_table(path: Path, separator: str = "\t", **options: Any) -> Any:
    """Read a table of text as a DataFrame; `options` are those of pandas."""
    import pandas as pd

    if "header" not in options:
        # else a row with more cells than the header shifts all of them by one
        options["index_col"] = False
    opened: Any = gzip.open if path.suffix == ".gz" else open
    with reading(path), opened(path, "rb") as file:
        # also what is small when compressed
        text = file.read(_LARGEST_TABLE)
        mark = separator.encode() if len(separator) == 1 else b" "
        n_columns = max(line.count(mark) for line in text.split(b"\n"))
        if len(text) == _LARGEST_TABLE or n_columns >= _MOST_COLUMNS:
            raise StudyError(
                f"{str(path)!r} has more than {_MOST_COLUMNS} columns or "
                f"{_LARGEST_TABLE >> 20} MB of text, too much for a table of events."
            )
        try:
            return pd.read_csv(BytesIO(text), sep=separator, **options)
        except pd.errors.EmptyDataError:
            raise StudyError(
                f"{str(path)!r} is empty: not even a header. Fill it, or remove it."
            ) from None
        except ValueError as error:  # so are pandas' and Unicode's errors
            kind = "tab-separated table" if separator == "\t" else "table"
            raise StudyError(f"{str(path)!r} is not a {kind} ({error}).") from None


# Headers store affines in float32; this is the error of a voxel's position in mm.
_AFFINE_TOLERANCE = 1e-3
_RESAMPLE = (
    "Put it on the grid of the run: nilearn.image.resample_to_img(mask, run, "
    'interpolation="nearest").'
)


@dataclass(frozen=True)
class RunHeader:
    """Number of samples and repetition time of a run, from its header.

    A NIfTI header that nobody filled in says 1, of no unit: ``t_r_is_default``.
    """

    n_samples: int
    t_r: float | None = None
    t_r_is_default: bool = False


def finite_voxels(values: Floats, name: str) -> Mask:
    """Return which voxels are always finite; refuse values that no image has."""
    if not values.size:
        return np.ones(values.shape[1], bool)
    # a NaN is both the least and the most
    extremes = np.abs([values.min(axis=0), values.max(axis=0)], dtype=np.float64)
    largest = extremes.max(axis=0)
    finite = np.isfinite(largest)
    most = largest[finite].max(initial=0.0)
    if most > MAX_MAGNITUDE:
        voxel = int(np.flatnonzero(largest == most)[0])
        raise StudyError(
            f"{name!r} has a value of magnitude {most:.2g} in voxel {voxel}; images "
            f"stay below {MAX_MAGNITUDE:g}. It is damaged: get the file again."
        )
    return np.asarray(finite)


# About the displacement that anatomical registration leaves between subjects, and
# some thousands of places in a brain.
_PLACE_MM = 8.0


def supervoxels(
    indices: Floats, shape: Sequence[int], affine: Floats
) -> tuple[str, Floats, str]:
    """Cut a grid into cubes of 8 mm; return the grid, each voxel's cube, and a name.

    Names of cubes, "i,j,k", count from the origin: the same for all on one grid.
    """
    # rounded as in the frame, so that headers of float32 put voxels into one cube
    frame, grid = grid_frame(shape, affine)
    positions = indices @ grid[:, :3].T + grid[:, 3]
    cubes = np.floor(np.round(positions / _PLACE_MM, 6)).astype(int)
    unique, inverse = np.unique(cubes, axis=0, return_inverse=True)
    names = np.array([f"{i},{j},{k}" for i, j, k in unique.tolist()], dtype=object)
    return frame, names[inverse.ravel()], f"supervoxels of {_PLACE_MM:g} mm"


def grid_frame(shape: Sequence[int], affine: Floats) -> tuple[str, Matrix]:
    """Return a grid in words, and its affine, rounded."""
    grid = np.round(np.asarray(affine, dtype=np.float64)[:3], 3) + 0.0
    return f"grid of {_times(shape)} voxels, affine {grid.ravel().tolist()}", grid


def check_values(values: ArrayLike, n_voxels: int) -> tuple[Floats, bool]:
    """Return values as (n_maps, n_voxels) floats, and whether they were one map."""
    array = np.asarray(values)
    if array.dtype.kind not in "fiub":
        raise TypeError(f"Values for an image must be real numbers, got {array.dtype}.")
    if array.ndim not in (1, 2) or array.shape[-1] != n_voxels:
        raise InputError(
            f"The space has {n_voxels} voxels, but the values have shape "
            f"{array.shape}. Give (n_voxels,) or (n_maps, n_voxels)."
        )
    if array.dtype.kind != "f" or array.dtype.itemsize > 8 or array.dtype == np.float16:
        array = array.astype(np.float32)
    return np.atleast_2d(array), array.ndim == 1


class ImageSpace:
    """What all kinds of spaces share: they are equal if their voxels are the same."""

    kind: str
    n_voxels: int
    #: Of nilearn, which reads the runs in place of the space, if there is one.
    masker: Any = None
    # of each kind: check a run, read it, and compare with a space of the same kind
    header: Any
    _read: Any
    _is_same: Any

    @classmethod
    def load(cls, paths: Sequence[Path]) -> Any:
        """Read what ``save`` wrote."""
        return cls(*paths)

    def read(self, run: Any, *, smoothing_fwhm: float | None = None) -> Floats:
        """Read one run into samples x voxels, of the file's own precision."""
        if smoothing_fwhm is not None and (self.kind != "volume" or self.masker):
            raise InputError(
                f"smoothing_fwhm works on volumes only, not on a {self.kind} space; a "
                "masker of nilearn has its own."
            )
        if self.masker is None:
            return self._read(run, smoothing_fwhm)
        self.header(run)
        with reading(run):
            values = self.masker.transform(run)
        return np.atleast_2d(np.asarray(values))

    def __eq__(self, other: object) -> bool:
        return isinstance(other, type(self)) and bool(self._is_same(other))

    def __hash__(self) -> int:
        return hash((self.kind, self.n_voxels))


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
        from nibabel.spatialimages import SpatialImage

        image = load_image(mask, SpatialImage)
        name = image_name(mask)
        with reading(mask):
            inside = np.asarray(whole_image(image).dataobj)
        if inside.ndim == 4 and inside.shape[3] == 1:
            inside = inside[..., 0]
        if inside.ndim != 3:
            raise StudyError(
                f"Mask {name!r} has shape {inside.shape}; a mask has three dimensions."
            )
        with np.errstate(invalid="ignore"):
            self.mask: Mask = np.asarray(inside > 0)
        self.affine: Matrix = np.asarray(image.affine, np.float64)
        self.n_voxels = int(self.mask.sum())
        if self.n_voxels == 0:
            raise StudyError(f"Mask {name!r} is empty: no voxel is above zero.")

    @classmethod
    def from_mask(cls, mask: Floats, affine: Floats) -> "VolumeSpace":
        """Make a space of an array that is above zero inside."""
        import nibabel as nib

        return cls(nib.Nifti1Image(mask.astype(np.uint8), affine))

    def header(self, run: ImageLike) -> RunHeader:
        """Check that a run fits the mask, reading its header only."""
        image = self._load(run) if self.masker is None else load_image(run)
        n_samples = 1 if len(image.shape) == 3 else int(image.shape[3])
        with reading(run):
            unit = getattr(image.header, "get_xyzt_units", lambda: ("mm", "sec"))()[1]
            zooms = image.header.get_zooms()
        t_r = None
        if len(zooms) > 3 and zooms[3] > 0:
            t_r = float(zooms[3]) * {"msec": 1e-3, "usec": 1e-6}.get(unit, 1.0)
        return RunHeader(n_samples, t_r, t_r == 1 and unit == "unknown")

    def _load(self, run: ImageLike) -> Any:
        from nibabel.spatialimages import SpatialImage

        image = load_image(run, SpatialImage)
        name, shape = image_name(run), tuple(image.shape)
        if len(shape) not in (3, 4):
            raise StudyError(
                f"{name!r} has shape {shape}; a run has 3 or 4 dimensions."
            )
        if shape[:3] != self.mask.shape:
            raise StudyError(
                f"{name!r} has {_times(shape[:3])} voxels, its mask "
                f"{_times(self.mask.shape)}. {_RESAMPLE}"
            )
        shift = self.distance(shape[:3], image.affine)
        if not shift <= _AFFINE_TOLERANCE:
            raise StudyError(
                f"{name!r} and its mask have the same shape but other affines: voxels "
                f"lie up to {shift:.3g} mm apart. {_RESAMPLE}"
            )
        return image

    def distance(self, shape: Sequence[int], affine: Floats) -> float:
        """Return how far, in mm, voxels of another grid lie from these, at most."""
        if tuple(shape) != self.mask.shape:
            return np.inf
        ends = np.meshgrid(*([0, n - 1] for n in self.mask.shape), [1])
        corners = np.array(ends, dtype=float).reshape(4, -1)
        return float(np.abs((affine - self.affine) @ corners).max())

    def _read(self, run: ImageLike, smoothing_fwhm: float | None) -> Floats:
        image = self._load(run)
        with reading(run):
            image = whole_image(image)
            if smoothing_fwhm is not None:
                from nilearn.image import smooth_img

                image = smooth_img(image, smoothing_fwhm)
            values = np.asarray(image.dataobj)[self.mask]
        return np.ascontiguousarray(np.atleast_2d(values.T))

    def to_image(self, values: ArrayLike) -> Any:
        """Make a NIfTI image: 3-D for one map, 4-D for several; zero outside."""
        import nibabel as nib

        maps, single = check_values(values, self.n_voxels)
        volume = np.zeros((*self.mask.shape, len(maps)), maps.dtype)
        volume[self.mask] = maps.T
        return nib.Nifti1Image(volume[..., 0] if single else volume, self.affine)

    def place_labels(self) -> tuple[str, list[str | None], str]:
        """Return the supervoxel of each voxel, the same for all on one grid."""
        frame, names, what = supervoxels(
            np.argwhere(self.mask), self.mask.shape, self.affine
        )
        return frame, names.tolist(), what

    def voxel_labels(self) -> tuple[str, list[Any], str]:
        """Return the number of each voxel on the grid."""
        frame, _ = grid_frame(self.mask.shape, self.affine)
        return frame, np.flatnonzero(self.mask).tolist(), "voxels of one grid"

    def labels_of(self, atlas: Any) -> Floats:
        """Return the parcel of each voxel in an atlas; 0 or None for none."""
        from brainweave.study.atlases import open_atlas, with_names

        image, names = open_atlas(atlas)
        return with_names(volume_labels(image, voxel_positions(self)), names)

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


def _times(shape: Iterable[int]) -> str:
    return " x ".join(str(n) for n in shape)


def load_space(kind: str, paths: Sequence[Path]) -> Any:
    """Read a space that was saved by its ``save`` method."""
    from brainweave.study.surface import CiftiSpace, SurfaceSpace

    for space in (VolumeSpace, CiftiSpace, SurfaceSpace):
        if space.kind == kind:
            return space.load(paths)
    raise StudyError(f"Unknown kind of space {kind!r}; known: volume, cifti, surface.")


def common_voxels(study: Study) -> Study:
    """Keep the voxels inside every subject's mask; the masks must be on one grid."""
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
    common: Any = None
    for id, space in spaces:
        if not isinstance(space, VolumeSpace):
            raise StudyError(
                f"Subject {id!r} has no volume mask, so it is not known which of its "
                "voxels the others have too."
            )
        common = common or VolumeSpace.from_mask(space.mask, space.affine)
        if not common.distance(space.mask.shape, space.affine) <= _AFFINE_TOLERANCE:
            raise StudyError(
                f"Subject {id!r}: masks are on different grids ({space.mask.shape} and "
                f"others). {remedy}"
            )
        common.mask &= space.mask
    if not common.mask.any():
        raise StudyError("The subjects' masks have no voxel in common.")
    return VolumeSpace.from_mask(common.mask, common.affine)
