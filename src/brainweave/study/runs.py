"""Runs of one subject, read and cleaned when needed."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from brainweave.exceptions import InputError, StudyError
from brainweave.study.cleaning import Cleaning, read_confounds
from brainweave.study.files import ImageLike, image_name
from brainweave.study.spaces import RunHeader

__all__ = ["ImageSource", "Run", "read_run"]


@dataclass(frozen=True)
class Run:
    """One run of one subject, and which of its volumes are samples.

    Parameters
    ----------
    image : path or nibabel image
        4-D NIfTI, CIFTI dtseries or dscalar, functional GIfTI (or a mapping of
        structure to GIfTI, for two hemispheres).
    confounds : array-like, DataFrame or path, optional
        Time courses to remove, a row per volume; see
        :func:`brainweave.study.cleaning.read_confounds`.
    sample_mask : array-like of int, optional
        Volumes that take part in the cleaning (scrubbing); all by default.
    keep : array-like of int, optional
        Volumes that become samples, in the order wanted, counted in the whole run;
        they are picked after the cleaning. All (of `sample_mask`) by default.
    t_r : float, optional
        Repetition time in seconds; by default what the header says.
    """

    image: ImageLike
    confounds: Any = None
    sample_mask: Any = None
    keep: Any = None
    t_r: float | None = None

    @property
    def name(self) -> str:
        """Name for messages: the path of the image."""
        image = self.image
        if isinstance(image, Mapping):
            image = next(iter(image.values()))
        return image_name(image)

    def rows(self, n_volumes: int) -> NDArray[np.intp]:
        """Give the volumes that become samples, counted in the whole run."""
        used = _volumes(self.sample_mask, n_volumes, "sample_mask", self.name)
        if self.keep is None:
            return used
        keep = _volumes(self.keep, n_volumes, "keep", self.name)
        lost = np.setdiff1d(keep, used)
        if lost.size:
            raise InputError(
                f"{self.name!r}: volume {lost[0]} is to be kept but sample_mask leaves "
                "it out."
            )
        return keep


def read_run(
    run: Run | ImageLike, space: Any, cleaning: Cleaning | None = None
) -> NDArray[Any]:
    """Read one run into samples x voxels: mask, clean, keep the chosen volumes.

    Parameters
    ----------
    run : Run, path or image
        What to read.
    space : VolumeSpace, CiftiSpace or SurfaceSpace
        Which voxels; a run that does not fit (shape, affine, brain models, number of
        vertices) is an error that says how.
    cleaning : Cleaning, optional
        Detrending, filters, scaling; nothing by default.

    Returns
    -------
    ndarray of shape (n_samples, n_voxels)
        float32, or float64 if the file holds float64.
    """
    run = run if isinstance(run, Run) else Run(run)
    cleaning = Cleaning() if cleaning is None else cleaning
    header = space.header(run.image)
    values = space.read(run.image, smoothing_fwhm=cleaning.smoothing_fwhm)
    if values.dtype.kind != "f":
        values = values.astype(np.float32)
    rows = run.rows(len(values))
    used = _volumes(run.sample_mask, len(values), "sample_mask", run.name)
    values = cleaning.apply(
        values,
        name=run.name,
        confounds=read_confounds(run.confounds, len(values), run.name),
        sample_mask=None if run.sample_mask is None else used,
        t_r=run.t_r if run.t_r is not None else header.t_r,
    )
    if len(rows) == len(used) and np.array_equal(rows, used):
        return values
    position = np.full(int(used.max(initial=0)) + 1, -1)
    position[used] = np.arange(len(used))
    return np.asarray(values[position[rows]])


class ImageSource:
    """The runs of one subject, read and cleaned one after the other when needed.

    Only headers are read at first, to know the shape and to find files that do not
    fit. :meth:`read` needs memory for the samples and for one run.

    Parameters
    ----------
    runs : sequence of Run or of paths
        The runs, in the order of the samples.
    space : VolumeSpace, CiftiSpace or SurfaceSpace
        Which voxels to read.
    cleaning : Cleaning, optional
        Applied to each run by itself.
    dtype : dtype, default=float32
        Type of the samples.
    """

    def __init__(
        self,
        runs: Sequence[Run | ImageLike],
        space: Any,
        cleaning: Cleaning | None = None,
        dtype: Any = np.float32,
    ) -> None:
        self.runs = [run if isinstance(run, Run) else Run(run) for run in runs]
        self.space = space
        self.cleaning = Cleaning() if cleaning is None else cleaning
        self._dtype: np.dtype[Any] = np.dtype(dtype)
        if not self.runs:
            raise StudyError("A source of samples needs at least one run, got none.")
        self.headers: list[RunHeader] = [space.header(run.image) for run in self.runs]
        pairs = zip(self.runs, self.headers, strict=True)
        #: per run, the volumes that are samples
        self.rows = [run.rows(header.n_samples) for run, header in pairs]

    @property
    def shape(self) -> tuple[int, int]:
        """Samples of all runs, and voxels."""
        return sum(len(rows) for rows in self.rows), int(self.space.n_voxels)

    @property
    def dtype(self) -> np.dtype[Any]:
        """Type of the samples that will be read."""
        return self._dtype

    def read(self) -> NDArray[Any]:
        """Read and clean all runs."""
        samples = np.empty(self.shape, self._dtype)
        start = 0
        for run, rows in zip(self.runs, self.rows, strict=True):
            values = read_run(run, self.space, self.cleaning)
            if len(values) != len(rows):
                raise StudyError(
                    f"{run.name!r} gave {len(values)} samples where its header "
                    f"announced {len(rows)}. It has changed: load the study again."
                )
            samples[start : start + len(rows)] = values
            start += len(rows)
        return samples

    def run_of_samples(self) -> NDArray[np.intp]:
        """Give the number of each sample's run, from 1."""
        numbers = range(1, len(self.rows) + 1)
        return np.repeat(list(numbers), [len(rows) for rows in self.rows])

    def onsets(self) -> NDArray[np.float64] | None:
        """Time of each sample in its run in seconds, if all runs tell their TR."""
        times = []
        for run, header, rows in zip(self.runs, self.headers, self.rows, strict=True):
            t_r = run.t_r if run.t_r is not None else header.t_r
            if t_r is None:
                return None
            times.append(rows * t_r)
        return np.concatenate(times)

    def __repr__(self) -> str:
        return f"ImageSource({len(self.runs)} runs in {self.space!r})"


def _volumes(chosen: Any, n_volumes: int, what: str, name: str) -> NDArray[np.intp]:
    if chosen is None:
        return np.arange(n_volumes)
    array = np.asarray(chosen)
    if array.dtype == bool:
        if array.shape != (n_volumes,):
            raise InputError(
                f"{name!r} has {n_volumes} volumes, but {what} has shape {array.shape}."
            )
        return np.flatnonzero(array)
    array = array.astype(np.intp).ravel()
    bad = array[(array < 0) | (array >= n_volumes)]
    if bad.size:
        raise InputError(
            f"{name!r} has {n_volumes} volumes; {what} asks for volume {bad[0]}."
        )
    return array
