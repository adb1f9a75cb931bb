"""Subject: the samples of one person, and what is known of each sample."""

from typing import Any, Literal, Protocol

import numpy as np
from numpy.typing import ArrayLike, NDArray

from brainweave._arrays import for_other_process, is_torch
from brainweave._validation import check_numbers
from brainweave.exceptions import InputError, StudyError
from brainweave.study.annotations import (
    as_flags,
    as_labels,
    as_onsets,
    as_runs,
    is_missing,
    ordered_unique,
)
from brainweave.study.source import (
    RowView,
    Samples,
    ZScoreView,
    is_source,
    read_samples,
    zscore_groups,
)

__all__ = ["Space", "Subject"]


class Space(Protocol):
    """How voxels lie in the brain; the kinds are in :mod:`brainweave.study.spaces`."""

    @property
    def n_voxels(self) -> int:
        """Number of voxels, vertices or grayordinates."""

    @property
    def kind(self) -> str:
        """``"volume"``, ``"cifti"`` or ``"surface"``."""

    def to_image(self, values: ArrayLike) -> Any:
        """Put one value per voxel (or rows of them) back into an image."""


class Subject:
    """One person: samples x voxels, and a label, run, time and stimulus per sample.

    Parameters
    ----------
    id : str
        Name of the subject, unique in a study.
    samples : array-like or source of shape (n_samples, n_voxels)
        An array, a memory map, anything 2-D that has a ``shape`` and is sliced by
        columns (HDF5, zarr), or a lazy source with ``shape``, ``dtype`` and ``read()``
        (:class:`brainweave.study.source.Source`). Never modified.
    labels : array-like of str or int, optional
        Category of each sample. ``None``, NaN, ``""`` and ``"n/a"`` mean unlabelled
        and become ``None``; without ``labels`` all samples are unlabelled.
    runs : array-like of str or int, optional
        Run of each sample.
    onsets : array-like of float, optional
        Time of each sample in its run, in seconds.
    stimuli : array-like of str or int, optional
        Identity of what was shown, finer than the category; missing as in `labels`.
    aligned : array-like of bool, optional
        True where a sample took part, through its labels or ids, in the alignment that
        made these features. Scoring such samples would be circular: on pure noise they
        are classified almost perfectly. Evaluations refuse them.
    space : Space, optional
        How to go back to the brain.

    Examples
    --------
    >>> subject = Subject("01", np.zeros((3, 5)), labels=["face", None, "house"])
    >>> subject
    Subject('01': 3 samples x 5 voxels, 2 categories)
    >>> subject.select([2, 0]).labels.tolist()
    ['house', 'face']
    """

    def __init__(
        self,
        id: str | int,
        samples: Samples,
        *,
        labels: ArrayLike | None = None,
        runs: ArrayLike | None = None,
        onsets: ArrayLike | None = None,
        stimuli: ArrayLike | None = None,
        aligned: ArrayLike | None = None,
        space: Space | None = None,
    ) -> None:
        self.id = str(id)
        if not self.id:
            raise InputError("A subject needs an id that is not empty.")
        self.samples = _check_samples(self.id, samples)
        n = self.n_samples
        self.labels = as_labels("labels", self.id, labels, n)
        self.runs = as_runs(self.id, runs, n)
        self.onsets = as_onsets(self.id, onsets, n)
        self.stimuli = as_labels("stimuli", self.id, stimuli, n)
        self.aligned = as_flags("aligned", self.id, aligned, n)
        self.space = space
        if space is not None and space.n_voxels != self.n_voxels:
            raise InputError(
                f"Subject {self.id!r} has {self.n_voxels} voxels, but its space has "
                f"{space.n_voxels}. Use the mask the samples were read with."
            )

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "samples": for_other_process(self.samples)}

    @property
    def n_samples(self) -> int:
        """Number of samples."""
        return int(self.samples.shape[0])

    @property
    def n_voxels(self) -> int:
        """Number of voxels, vertices or grayordinates."""
        return int(self.samples.shape[1])

    @property
    def categories(self) -> list[Any]:
        """The labels that occur, sorted; unlabelled samples do not count."""
        return ordered_unique(self.labels)

    @property
    def run_ids(self) -> list[Any]:
        """The runs that occur, sorted."""
        return ordered_unique(self.runs)

    @property
    def n_unlabelled(self) -> int:
        """Number of samples without a label."""
        return int(self.unlabelled().sum())

    @property
    def is_lazy(self) -> bool:
        """Whether the samples still wait in a file that must be read whole."""
        return is_source(self.samples)

    def data(self) -> NDArray[Any]:
        """Return all samples as an array, reading a lazy source (each time anew)."""
        values = read_samples(self.samples)
        if values.shape != (self.n_samples, self.n_voxels):
            raise StudyError(
                f"Subject {self.id!r}: the file gave {values.shape} samples x voxels "
                f"where its header announced {(self.n_samples, self.n_voxels)}. "
                "It changed since the study was made: load the study again."
            )
        return values

    def select(self, samples: ArrayLike) -> "Subject":
        """Keep some samples, by a mask of booleans or by indices in the order wanted.

        Arrays in memory are indexed; memory maps and lazy sources are not read.
        """
        rows = _as_rows(self, samples)
        return self._replace(
            samples=_take_rows(self.samples, rows),
            **{
                name: None if values is None else values[rows]
                for name, values in self._annotations().items()
            },
        )

    def zscore(self, by: Literal["run", "all"] = "run") -> "Subject":
        """Standardise each voxel within each run, or over all samples.

        See :meth:`Study.zscore`.
        """
        groups = self._zscore_groups(by)
        if is_torch(self.samples):
            raise TypeError(
                f"Subject {self.id!r}: samples are a torch tensor, which is not "
                "standardised here. Standardise before making the Subject."
            )
        if _is_plain_array(self.samples):
            return self._replace(samples=zscore_groups(self.samples, groups))
        return self._replace(samples=ZScoreView(self.samples, groups))

    def _zscore_groups(self, by: str) -> NDArray[np.intp]:
        if by == "all":
            groups = np.zeros(self.n_samples, np.intp)
        elif by == "run":
            if self.runs is None:
                raise StudyError(
                    f"Subject {self.id!r} has no runs to standardise within. "
                    'Give runs, or use zscore(by="all").'
                )
            _, groups = np.unique(self.runs.astype(str), return_inverse=True)
        else:
            raise InputError(f'zscore(by=...) takes "run" or "all", got {by!r}.')
        counts = np.bincount(groups)
        if counts.min() < 2:
            lonely = (
                f" in run {self.runs[groups == counts.argmin()].tolist()[0]!r}"
                if by == "run" and self.runs is not None
                else ""
            )
            raise StudyError(
                f"Subject {self.id!r} has one sample{lonely}, which cannot be "
                'standardised. Drop that run, or use zscore(by="all").'
            )
        return groups

    def _annotations(self) -> dict[str, NDArray[Any] | None]:
        return {
            "labels": self.labels,
            "runs": self.runs,
            "onsets": self.onsets,
            "stimuli": self.stimuli,
            "aligned": self.aligned,
        }

    def _replace(self, **changes: Any) -> "Subject":
        fields = {"samples": self.samples, **self._annotations(), "space": self.space}
        fields.update(changes)
        return Subject(self.id, fields.pop("samples"), **fields)

    def unlabelled(self) -> NDArray[np.bool_]:
        """Mark the samples without a label."""
        if self.labels is None:
            return np.ones(self.n_samples, bool)
        return is_missing(self.labels)

    def __repr__(self) -> str:
        text = f"{self.n_samples} samples x {self.n_voxels} voxels"
        if self.labels is not None:
            text += f", {len(self.categories)} categories"
        if self.runs is not None:
            text += f", {len(self.run_ids)} runs"
        return f"Subject({self.id!r}: {text})"


def _check_samples(id: str, samples: Samples) -> Samples:
    if isinstance(samples, list | tuple):
        samples = np.asarray(samples)
    check_numbers(samples, f"Subject {id!r}: samples")
    shape = getattr(samples, "shape", None)
    if shape is None:
        raise TypeError(
            f"Subject {id!r}: samples must be an array, or have a shape and read() or "
            f"slicing by columns; got {type(samples).__name__}."
        )
    if len(shape) != 2:
        raise InputError(
            f"Subject {id!r}: samples must be 2-D (n_samples x n_voxels), got shape "
            f"{tuple(shape)}."
        )
    if shape[1] == 0:
        raise InputError(f"Subject {id!r} has no voxels: its shape is {tuple(shape)}.")
    return samples


def _is_plain_array(samples: Samples) -> bool:
    return isinstance(samples, np.ndarray) and not isinstance(samples, np.memmap)


def _take_rows(samples: Samples, rows: NDArray[np.intp]) -> Samples:
    contiguous = len(rows) > 0 and bool(np.all(np.diff(rows) == 1))
    if contiguous and isinstance(samples, np.ndarray):
        return samples[rows[0] : rows[-1] + 1]
    if is_torch(samples):  # indexed where they are, on their device
        return samples[rows.tolist()]
    if _is_plain_array(samples):
        return samples[rows]
    return RowView(samples, rows)


def _as_rows(subject: Subject, samples: ArrayLike) -> NDArray[np.intp]:
    chosen = np.asarray(samples)
    if chosen.dtype == bool:
        if chosen.shape != (subject.n_samples,):
            raise InputError(
                f"Subject {subject.id!r} has {subject.n_samples} samples, but the mask "
                f"has shape {chosen.shape}. Give one boolean per sample."
            )
        return np.flatnonzero(chosen)
    if chosen.size == 0:
        return np.empty(0, np.intp)
    if chosen.dtype.kind not in "iu" or chosen.ndim != 1:
        raise TypeError("Select samples by a 1-D mask of booleans or by 1-D indices.")
    bad = chosen[(chosen >= subject.n_samples) | (chosen < -subject.n_samples)]
    if bad.size:
        raise InputError(
            f"Subject {subject.id!r} has {subject.n_samples} samples; there is no "
            f"sample {bad[0]}."
        )
    return np.where(chosen < 0, chosen + subject.n_samples, chosen).astype(np.intp)
