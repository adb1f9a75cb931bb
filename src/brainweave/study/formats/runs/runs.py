"""Runs of one subject, read and cleaned when needed."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from brainweave.exceptions import InputError, StudyError
from brainweave.study.formats.image_files import ImageLike, image_name
from brainweave.study.formats.runs.cleaning import Cleaning, read_confounds
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
        :func:`brainweave.study.formats.runs.cleaning.read_confounds`.
    sample_mask : array-like of int, optional
        Volumes that take part in the cleaning (scrubbing); all by default.
    keep : array-like of int, optional
        Volumes that become samples, in the order wanted, counted in the whole run;
        they are picked after the cleaning. All (of `sample_mask`) by default.
    t_r : float, optional
        Repetition time in seconds; by default what the header says.
    plan : SamplePlan, optional
        Turns the cleaned volumes into samples (blocks, trials), instead of `keep`:
        anything with a length and ``apply(volumes)``, which gets an array with a row
        per volume of the whole run (zeros where `sample_mask` leaves one out).
    segments : array-like of int, optional
        If the file holds several runs one after the other: the run of each volume;
        they are cleaned separately.
    """

    image: ImageLike
    confounds: Any = None
    sample_mask: Any = None
    keep: Any = None
    t_r: float | None = None
    plan: Any = None
    segments: Any = None

    @property
    def name(self) -> str:
        """Name for messages: the path of the image."""
        image = self.image
        if isinstance(image, Mapping):
            image = next(iter(image.values()))
        return image_name(image)

    def rows(self, n_volumes: int) -> NDArray[np.intp]:
        """Return the volumes that become samples, counted in the whole run."""
        used = np.unique(
            _volumes(self.sample_mask, n_volumes, "sample_mask", self.name)
        )
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

    def n_samples(self, n_volumes: int) -> int:
        """Count the samples that a run of so many volumes gives."""
        return len(self.rows(n_volumes)) if self.plan is None else len(self.plan)


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
    cleaned, used = _clean_run(run, values, cleaning, header.t_r)
    if run.plan is None and run.keep is None:
        return cleaned
    if len(used) < len(values):
        values = np.zeros((len(values), cleaned.shape[1]), cleaned.dtype)
        values[used] = cleaned
    else:
        values = cleaned
    if run.plan is None:
        return np.asarray(values[run.rows(len(values))])
    return np.asarray(run.plan.apply(values))


def _clean_run(
    run: Run, values: NDArray[Any], cleaning: Cleaning, t_r: float | None
) -> tuple[NDArray[Any], NDArray[np.intp]]:
    """Clean the volumes of `sample_mask`, and say which ones those are."""
    n_volumes = len(values)
    used = _volumes(run.sample_mask, n_volumes, "sample_mask", run.name)
    confounds = read_confounds(run.confounds, n_volumes, run.name)
    t_r = run.t_r if run.t_r is not None else t_r
    segments = np.zeros(n_volumes, np.intp)
    if run.segments is not None:
        segments = np.asarray(run.segments)
        if segments.shape != (n_volumes,):
            raise InputError(
                f"{run.name!r} has {n_volumes} volumes, but segments have shape "
                f"{segments.shape}. Give the run of each volume."
            )
    # np.unique sorts, but the runs must come out in the order of the volumes
    _, first = np.unique(segments, return_index=True)
    cleaned = []
    order = []
    for start in np.sort(first):
        rows = np.flatnonzero(segments == segments[start])
        kept = np.flatnonzero(np.isin(rows, used))
        if kept.size == 0:
            continue
        cleaned.append(
            cleaning.apply(
                values if len(rows) == n_volumes else values[rows],
                name=run.name,
                confounds=None if confounds is None else confounds[rows],
                sample_mask=None if len(kept) == len(rows) else kept,
                t_r=t_r,
            )
        )
        order.append(rows[kept])
    if not cleaned:
        raise InputError(f"{run.name!r}: sample_mask leaves no volume at all.")
    if len(cleaned) == 1:
        return cleaned[0], order[0]
    joined, order_of_rows = np.vstack(cleaned), np.concatenate(order)
    ascending = np.argsort(order_of_rows)
    return joined[ascending], order_of_rows[ascending]


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
        #: samples of each run
        self.counts = [run.n_samples(header.n_samples) for run, header in pairs]

    @property
    def shape(self) -> tuple[int, int]:
        """Samples of all runs, and voxels."""
        return sum(self.counts), int(self.space.n_voxels)

    @property
    def dtype(self) -> np.dtype[Any]:
        """Type of the samples that will be read."""
        return self._dtype

    def read(self) -> NDArray[Any]:
        """Read and clean all runs."""
        samples = np.empty(self.shape, self._dtype)
        start = 0
        for run, count in zip(self.runs, self.counts, strict=True):
            values = read_run(run, self.space, self.cleaning)
            if len(values) != count:
                raise StudyError(
                    f"{run.name!r} gave {len(values)} samples where its header "
                    f"announced {count}. It has changed: load the study again."
                )
            samples[start : start + count] = values
            start += count
        return samples

    def run_of_samples(self) -> NDArray[np.intp]:
        """Return the number of each sample's run, from 1."""
        return np.repeat(np.arange(1, len(self.runs) + 1), self.counts)

    def onsets(self) -> NDArray[np.float64] | None:
        """Time of each sample in its run in seconds, if all runs tell their TR."""
        times = []
        for run, header in zip(self.runs, self.headers, strict=True):
            t_r = run.t_r if run.t_r is not None else header.t_r
            if run.plan is not None:
                times.append(np.asarray(run.plan.onsets))
            elif t_r is None:
                return None
            else:
                times.append(run.rows(header.n_samples) * t_r)
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
