"""Subject: the samples of one person, and what is known of each sample."""

import hashlib
import json
from collections.abc import Callable, Iterable
from typing import Any, Literal, Protocol

import numpy as np
from numpy.typing import ArrayLike, NDArray

from brainweave._core.arrays import as_sendable, is_torch, to_numpy
from brainweave._core.exceptions import InputError, StudyError
from brainweave._core.labels import as_label_list, object_array, sort_labels
from brainweave._core.validation import check_numbers, check_option, refuse_other_shapes
from brainweave.study.source import (
    RowView,
    Samples,
    ZScoreView,
    is_source,
    read_samples,
    zscore_groups,
)

_LARGEST = int(np.iinfo(np.int64).max)
# one entry per sample, or None
_ANNOTATIONS = ("labels", "runs", "onsets", "stimuli", "aligned")


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
        self.samples = _check_samples(samples, f"Subject {self.id!r}: samples")
        self.labels = self._check_annotation("labels", labels, _as_labels)
        self.runs = self._check_annotation("runs", runs, _as_labels)
        self.onsets = self._check_annotation("onsets", onsets, _as_onsets)
        self.stimuli = self._check_annotation("stimuli", stimuli, _as_labels)
        self.aligned = self._check_annotation("aligned", aligned, _as_flags)
        self.space = space
        incomplete = self.runs is None or is_missing(self.runs).any()
        if runs is not None and incomplete and self.n_samples:
            raise InputError(
                f"Subject {self.id!r}: a run is missing for some samples. Give one per "
                "sample, or no runs at all."
            )
        if space is not None and space.n_voxels != self.n_voxels:
            raise InputError(
                f"Subject {self.id!r} has {self.n_voxels} voxels, but its space has "
                f"{space.n_voxels}. Use the mask the samples were read with."
            )

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "samples": as_sendable(self.samples)}

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
        return [] if self.labels is None else sort_labels(self.labels.tolist())

    @property
    def run_ids(self) -> list[Any]:
        """The runs that occur, sorted."""
        return [] if self.runs is None else sort_labels(self.runs.tolist())

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
        """Keep some samples.

        Arrays in memory are indexed; memory maps and lazy sources are not read.

        Parameters
        ----------
        samples : array-like of bool or int
            A mask, or indices in the order wanted.
        """
        rows = self._as_rows(samples)
        changes: dict[str, Any] = {"samples": _take_rows(self.samples, rows)}
        for name in _ANNOTATIONS:
            values = getattr(self, name)
            changes[name] = None if values is None else values[rows]
        return self._replace(**changes)

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
        check_option("by", by, ("run", "all"), owner="zscore")
        runs = np.zeros(self.n_samples, int) if by == "all" else self.runs
        if runs is None:
            raise StudyError(
                f"Subject {self.id!r} has no runs to standardise within. "
                'Give runs, or use zscore(by="all").'
            )
        _, groups = np.unique(runs.astype(str), return_inverse=True)
        counts = np.bincount(groups)
        if counts.min() < 2:
            short_run = runs[groups == counts.argmin()].tolist()[0]
            where = f" in run {short_run!r}" if by == "run" else ""
            raise StudyError(
                f"Subject {self.id!r} has one sample{where}, which cannot be "
                'standardised. Drop that run, or use zscore(by="all").'
            )
        return groups

    def _replace(self, **changes: Any) -> "Subject":
        fields = {n: getattr(self, n) for n in ("samples", *_ANNOTATIONS, "space")}
        return Subject(self.id, **{**fields, **changes})

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

    def _check_annotation(
        self, name: str, values: ArrayLike | None, convert: Callable[..., Any]
    ) -> NDArray[Any] | None:
        """Return one converted entry per sample; None if nothing is given."""
        if values is None:
            return None
        if isinstance(values, list | tuple | range):
            # NumPy would turn [1, None, "a"] or [1, "a"] into text without a word.
            array = object_array(values)
        elif isinstance(values, np.ma.MaskedArray) and values.ndim == 1:
            array = object_array(values.tolist())  # None where masked
        else:
            array = np.asarray(values)
        if array.shape != (self.n_samples,):
            raise InputError(
                f"Subject {self.id!r} has {self.n_samples} samples, but {name} have "
                f"shape {array.shape}. Give one per sample."
            )
        entries: NDArray[Any] | None = convert(array, f"Subject {self.id!r}: {name}")
        return entries

    def _as_rows(self, samples: ArrayLike) -> NDArray[np.intp]:
        chosen = np.asarray(samples)
        if chosen.size == 0 and chosen.dtype != bool:
            return np.empty(0, np.intp)
        if chosen.dtype.kind not in "biu" or chosen.ndim != 1:
            raise TypeError(
                "Select samples by a 1-D mask of booleans or by 1-D indices."
            )
        try:
            return np.arange(self.n_samples)[chosen]
        except IndexError as error:
            raise InputError(
                f"Subject {self.id!r} has {self.n_samples} samples: {error}. Give a "
                "boolean for each, or indices of some."
            ) from None


def is_missing(values: NDArray[Any]) -> NDArray[np.bool_]:
    """Mark the entries that are ``None``, as a subject keeps missing labels."""
    if values.dtype != object:
        return np.zeros(values.shape, bool)
    return np.array([value is None for value in values], dtype=bool)


def _as_labels(array: NDArray[Any], owner: str) -> NDArray[Any] | None:
    """Return one label per sample: int64, str, or objects if some are ``None``.

    Floats that are whole numbers become int (MATLAB stores labels so). What is
    missing, :mod:`brainweave._core.labels` says; None if all are.
    """
    if array.dtype.kind in "iu" and (not array.size or array.max() <= _LARGEST):
        return array.astype(np.int64)
    cleaned = as_label_list(array, owner)
    if array.dtype.kind != "U":
        cleaned = [None if v is None else _as_label(v, owner) for v in cleaned]
    kinds = {type(value) for value in cleaned if value is not None}
    if len(kinds) > 1:
        raise InputError(
            f"{owner} mix text and numbers. Make all of them strings or all of them "
            "whole numbers."
        )
    if not kinds:
        return None
    return object_array(cleaned) if None in cleaned else np.array(cleaned)


def _as_onsets(array: NDArray[Any], owner: str) -> NDArray[np.float64]:
    """Check one time in seconds per sample; NaN where it is not known."""
    try:
        return array.astype(np.float64)
    except (TypeError, ValueError):
        raise InputError(
            f"{owner} must be numbers, in seconds; got {array[0]!r}."
        ) from None


def _as_flags(array: NDArray[Any], owner: str) -> NDArray[np.bool_]:
    if not all(isinstance(value, bool | np.bool_) for value in array.tolist()):
        raise TypeError(f"{owner} holds one True or False per sample.")
    return array.astype(bool)


def _as_label(value: Any, owner: str) -> int | str:
    """Return a label as text or as an int that is kept exactly."""
    if isinstance(value, str):
        return value
    if not isinstance(value, int | float):  # bool is int
        raise TypeError(
            f"{owner} are strings or whole numbers, got {type(value).__name__} "
            f"{value!r}."
        )
    if isinstance(value, float) and not value.is_integer():
        raise InputError(
            f"{owner} are strings or whole numbers, got {value}. Turn categories into "
            "strings first."
        )
    if abs(value) > _LARGEST:
        raise InputError(
            f"{owner} hold the number {int(value)}, which is larger than {_LARGEST}, "
            "the largest that is kept exactly. Turn them into strings."
        )
    return int(value)


def _check_samples(samples: Samples, name: str) -> Samples:
    if isinstance(samples, list | tuple):
        samples = np.asarray(samples)
    check_numbers(samples, name)
    shape = getattr(samples, "shape", None)
    if shape is None:
        raise TypeError(
            f"{name} must be an array, or have a shape and read() or slicing by "
            f"columns; got {type(samples).__name__}."
        )
    refuse_other_shapes(samples, name)
    if shape[1] == 0:
        raise InputError(f"{name} have no voxels: their shape is {tuple(shape)}.")
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


# -- fingerprints ----------------------------------------------------------------------

WHOLE = 2**21  # subjects with so many numbers, or fewer, are read whole
N_BLOCKS, BLOCK = 8, 32  # of larger ones, so many blocks of so many voxels


def fingerprint(subjects: Iterable[Subject]) -> str:
    """Return a text that two studies share if they hold the same content.

    It covers each subject's id, shape, labels, runs, stimuli and samples, whatever the
    order of the subjects and whether samples are in memory, mapped or lazy; not the
    name, the onsets or the brain space. Of subjects with more than 2 million numbers
    all samples of 256 voxels are read (a lazy source is read whole), so a change in a
    few other voxels is not seen.

    Examples
    --------
    >>> a, b = (Subject(i, np.full((2, 3), i), labels=["x", "y"]) for i in (1, 2))
    >>> fingerprint([a, b]) == fingerprint([b, a])
    True
    >>> fingerprint([a, b]) == fingerprint([a, b.select([1, 0])])
    False
    """
    entries = sorted(([s.id, _digest(s)] for s in subjects), key=lambda e: e[0])
    return hashlib.sha256(json.dumps(entries).encode()).hexdigest()


def _digest(subject: Subject) -> str:
    annotations = [
        None if values is None else values.tolist()
        for values in (subject.labels, subject.runs, subject.stimuli)
    ]
    head = [subject.n_samples, subject.n_voxels, *annotations]
    content = hashlib.sha256(json.dumps(head).encode())
    samples: Any = subject.data() if subject.is_lazy else subject.samples
    for columns in _sampled_columns(subject.n_samples, subject.n_voxels):
        values = to_numpy(samples[:, columns])
        # as float64, so that the same numbers count as the same; and no negative zero
        numbers = np.ascontiguousarray(values, dtype="<f8") + 0.0
        content.update(numbers.data)
    return content.hexdigest()


def _sampled_columns(n_samples: int, n_voxels: int) -> list[slice]:
    """Choose the voxels to read, by the shape alone; neighbours share a disk page."""
    if n_samples * n_voxels <= WHOLE or n_voxels <= N_BLOCKS * BLOCK:
        return [slice(0, n_voxels)]
    starts = np.linspace(0, n_voxels - BLOCK, N_BLOCKS).astype(int)
    return [slice(int(start), int(start) + BLOCK) for start in starts]
