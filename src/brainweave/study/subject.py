"""Subject: the samples of one person, and what is known of each sample.

Three kinds of objects can stand for samples: an array (or memory map), something on
disk that is sliced by columns (HDF5, zarr), and a *source*, which knows its shape and
dtype from a header and reads everything in one go.
"""

import hashlib
import json
import re
from collections.abc import Iterable, Mapping
from typing import Any, Literal, TypeAlias

import numpy as np
from numpy.typing import ArrayLike

from brainweave._core.arrays import (
    Codes,
    Floats,
    Mask,
    Matrix,
    as_sendable,
    is_torch,
    to_numpy,
)
from brainweave._core.exceptions import InputError, StudyError
from brainweave._core.labels import as_label_list, object_array, sort_labels
from brainweave._core.validation import ask_if_turned, check_2d, check_option

_LARGEST = int(np.iinfo(np.int64).max)
# one entry per sample, or None
ANNOTATIONS = ("labels", "runs", "onsets", "stimuli", "aligned")
_MOMENT = re.compile(r"(.+)@(-?\d+(?:\.\d+)?)", re.DOTALL)  # of a film, in seconds

# An ndarray, a memory map, a source, or anything 2-D that is sliced by columns.
Samples: TypeAlias = Any


def is_source(samples: Samples) -> bool:
    """Return whether the samples must be read whole (they cannot be sliced cheaply)."""
    if isinstance(samples, View):
        return is_source(samples.parent)
    return hasattr(samples, "read") and not hasattr(samples, "__getitem__")


def read_samples(samples: Samples) -> Floats:
    """Return the samples as an array; no copy where they already are one."""
    if isinstance(samples, np.ndarray):
        return np.asarray(samples)
    if isinstance(samples, View) or is_source(samples):
        return np.asarray(samples.read())
    return to_numpy(samples if is_torch(samples) else samples[:, :])


class View:
    """Rows of other samples, standardised within groups first if these are given.

    Nothing is copied: values are computed for the columns that are asked for.
    """

    ndim = 2

    def __init__(
        self, parent: Samples, rows: Codes, groups: Codes | None = None
    ) -> None:
        if isinstance(parent, View) and groups is None:  # a view on a view is one view
            parent, rows, groups = parent.parent, parent.rows[rows], parent.groups
        self.parent: Samples = parent
        self.rows, self.groups = rows, groups
        self.shape = len(rows), int(parent.shape[1])
        self.dtype = np.dtype(getattr(parent, "dtype", np.float64))
        if groups is not None and self.dtype != np.float32:
            self.dtype = np.dtype(np.float64)

    def __len__(self) -> int:
        return self.shape[0]

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "parent": as_sendable(self.parent)}

    def _apply(self, values: Floats) -> Floats:
        if self.groups is not None:
            values = _zscore_groups(values, self.groups)
        return np.asarray(values[self.rows])

    def read(self) -> Floats:
        """Read the parent and return the derived samples."""
        return self._apply(read_samples(self.parent))

    def __getitem__(self, key: Any) -> Floats:
        rows, columns = key if isinstance(key, tuple) else (key, slice(None))
        if is_source(self.parent):
            return np.asarray(self.read()[rows, columns])
        if isinstance(columns, int | np.integer):
            return np.asarray(self[rows, columns : columns + 1 or None][..., 0])
        return np.asarray(self._apply(np.asarray(self.parent[:, columns]))[rows])

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> Floats:
        if copy is False:
            raise ValueError("These samples are computed when read: a copy is needed.")
        return np.asarray(self.read(), dtype=dtype)


def _zscore_groups(values: Floats, groups: Codes) -> Floats:
    """Standardise columns in groups of rows, in float64; constant ones become 0."""
    is_single = values.dtype == np.float32
    out = np.empty(values.shape, np.float32 if is_single else np.float64)
    for group in np.unique(groups):
        rows = groups == group
        block = np.asarray(values[rows], dtype=np.float64)
        mean = block.mean(axis=0)
        block -= mean
        scale = np.sqrt(np.mean(block**2, axis=0))
        # Rounding leaves a constant voxel with a deviation of some ulps of its mean.
        constant = scale <= 10 * np.finfo(np.float64).eps * np.abs(mean)
        scale[constant] = 1.0
        block /= scale
        block[:, constant] = 0.0
        out[rows] = block
    return out


class Subject:
    """One person: samples x voxels, and a label, run, time and stimulus per sample.

    Parameters
    ----------
    id : str
        Name of the subject, unique in a study.
    samples : array-like or source of shape (n_samples, n_voxels)
        An array, a memory map, anything 2-D that has a ``shape`` and is sliced by
        columns (HDF5, zarr), or a lazy source with ``shape``, ``dtype`` and
        ``read()``. Never modified.
    labels : array-like of str or int, optional
        Category of each sample. ``None``, NaN, ``""`` and ``"n/a"`` mean unlabelled
        and become ``None``; without ``labels`` all samples are unlabelled.
    runs : array-like of str or int, optional
        Run of each sample.
    onsets : array-like of float, optional
        Time of each sample in its run, in seconds.
    stimuli : array-like of str or int, optional
        Identity of what was shown, finer than the category; missing as in `labels`.
        A moment of a film is ``"<film>@<seconds>"``, such as ``"film@12.50"``: samples
        with equal ids show the same moment. See :attr:`films` and :attr:`times`.
    aligned : array-like of bool, optional
        True where a sample took part, through its labels or ids, in the alignment that
        made these features. Scoring such samples would be circular: on pure noise they
        are classified almost perfectly. Evaluations refuse them.
    space : VolumeSpace, CiftiSpace or SurfaceSpace, optional
        Brain space of the voxels, for images.

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
        space: Any = None,
    ) -> None:
        self.id = str(id)
        if not self.id:
            raise InputError("A subject needs an id that is not empty.")
        if isinstance(samples, list | tuple):
            samples = np.asarray(samples)
        name = f"Subject {self.id!r}: samples"
        shape = check_2d(samples, name)
        if shape[1] == 0:
            raise InputError(f"{name} have no voxels: their shape is {shape}.")
        self.samples = samples
        self.labels = self._check_annotation("labels", labels)
        self.runs = self._check_annotation("runs", runs)
        self.onsets = self._check_annotation("onsets", onsets)
        self.stimuli = self._check_annotation("stimuli", stimuli)
        self.aligned = self._check_annotation("aligned", aligned)
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
    def films(self) -> Floats | None:
        """Film of each sample, None where none is; no array if no stimulus is a moment.

        Of the stimulus ``"film@12.50"``, the film is ``"film"``.
        """
        moments = split_moments(self.stimuli)
        return None if moments is None else moments[0]

    @property
    def times(self) -> Matrix | None:
        """Seconds into the film of each sample, NaN where none is; see `films`."""
        moments = split_moments(self.stimuli)
        return None if moments is None else moments[1]

    @property
    def n_unlabelled(self) -> int:
        """Number of samples without a label."""
        return int(self.unlabelled().sum())

    @property
    def is_lazy(self) -> bool:
        """Whether the samples still wait in a file that must be read whole."""
        return is_source(self.samples)

    def data(self) -> Floats:
        """Return all samples as an array, reading a lazy source (each time anew)."""
        values = read_samples(self.samples)
        if values.shape != (self.n_samples, self.n_voxels):
            raise StudyError(
                f"Subject {self.id!r}: the file gave {values.shape} samples x voxels "
                f"where its header had {(self.n_samples, self.n_voxels)}. Reload it."
            )
        return values

    def select(self, samples: ArrayLike) -> "Subject":
        """Keep some samples.

        Arrays in memory are indexed; memory maps and lazy sources are not read.

        Parameters
        ----------
        samples : array-like of bool or int
            A mask, or indices in the order wanted.

        Returns
        -------
        Subject
            With these samples.
        """
        chosen = np.asarray(samples)
        if chosen.size == 0 and chosen.dtype != bool:
            chosen = chosen.astype(np.intp)
        if chosen.dtype.kind not in "biu" or chosen.ndim != 1:
            raise TypeError(
                "Select samples by a 1-D mask of booleans or by 1-D indices."
            )
        try:
            rows = np.arange(self.n_samples)[chosen]
        except IndexError as error:
            raise InputError(
                f"Subject {self.id!r} has {self.n_samples} samples: {error}."
            ) from None
        known = {name: getattr(self, name) for name in ANNOTATIONS}
        chosen_of = {n: None if v is None else v[rows] for n, v in known.items()}
        contiguous = len(rows) > 0 and bool(np.all(np.diff(rows) == 1))
        if contiguous and isinstance(self.samples, np.ndarray):
            kept: Samples = self.samples[rows[0] : rows[-1] + 1]
        elif is_torch(self.samples):  # indexed where they are, on their device
            kept = self.samples[rows.tolist()]
        elif _is_plain_array(self.samples):
            kept = self.samples[rows]
        else:
            kept = View(self.samples, rows)
        return self._replace(samples=kept, **chosen_of)

    def zscore(self, by: Literal["run", "all"] = "run") -> "Subject":
        """Standardise each voxel within each run, or over all samples.

        See :meth:`Study.zscore`.
        """
        check_option("by", by, ("run", "all"), owner="zscore")
        runs = np.zeros(self.n_samples, int) if by == "all" else self.runs
        if runs is None:
            raise StudyError(
                f"Subject {self.id!r} has no runs to standardise within. "
                'Give runs, or use zscore(by="all").'
            )
        if is_torch(self.samples):
            raise TypeError(
                f"Subject {self.id!r} is a torch tensor: standardise it before."
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
        if _is_plain_array(self.samples):
            return self._replace(samples=_zscore_groups(self.samples, groups))
        rows = np.arange(self.n_samples)
        return self._replace(samples=View(self.samples, rows, groups))

    def _replace(self, **changes: Any) -> "Subject":
        fields = {n: getattr(self, n) for n in ("samples", *ANNOTATIONS, "space")}
        return Subject(self.id, **{**fields, **changes})

    def unlabelled(self) -> Mask:
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

    def _check_annotation(self, name: str, values: ArrayLike | None) -> Floats | None:
        """Return one entry of the right kind per sample; None if nothing is given."""
        if values is None:
            return None
        owner = f"Subject {self.id!r}: {name}"
        # NumPy would turn [1, None, "a"] into text; what is masked becomes None
        if isinstance(values, np.ma.MaskedArray):
            values = values.tolist()
        is_list = isinstance(values, list | tuple | range)
        array = object_array(values) if is_list else np.asarray(values)  # type: ignore[arg-type]
        if array.shape != (self.n_samples,):
            raise InputError(
                f"Subject {self.id!r} has {self.n_samples} samples, but {name} have "
                f"shape {array.shape}. Give one per sample."
                + ask_if_turned(self.n_samples, self.n_voxels, array.size)
            )
        if name == "aligned":
            if not all(isinstance(value, bool | np.bool_) for value in array.tolist()):
                raise TypeError(f"{owner} holds one True or False per sample.")
            return array.astype(bool)
        if name != "onsets":
            return _as_labels(array, owner)
        try:
            return array.astype(np.float64)
        except (TypeError, ValueError):
            raise InputError(
                f"{owner} must be numbers, in seconds; got {array[0]!r}."
            ) from None


def moment(film: Any, seconds: float) -> str:
    """Return the id of a moment of a film; time has a resolution of 10 ms."""
    return f"{film}@{seconds + 0.0:.2f}"


def split_moments(
    stimuli: Floats | None,
) -> tuple[Floats, Matrix] | None:
    """Return film and seconds of ids that are moments, None if no id is one."""
    if stimuli is None or stimuli.dtype.kind not in "UO":
        return None
    found = [_MOMENT.fullmatch(s) if isinstance(s, str) else None for s in stimuli]
    if not any(found):
        return None
    films = object_array([None if m is None else m[1] for m in found])
    return films, np.array([np.nan if m is None else float(m[2]) for m in found])


def subject_entry(what: str, values: Any, id: str) -> Any:
    """Return a mapping's entry for a subject; a value that is no mapping is for all."""
    if isinstance(values, Mapping):
        if id not in values:
            known = ", ".join(map(repr, values))
            raise InputError(
                f"There is no {what} for subject {id!r}; there is for {known}."
            )
        return values[id]
    return values


def is_missing(values: Floats) -> Mask:
    """Mark the entries that are ``None``, as a subject keeps missing labels."""
    if values.dtype != object:
        return np.zeros(values.shape, bool)
    return np.array([value is None for value in values], dtype=bool)


def _as_labels(array: Floats, owner: str) -> Floats | None:
    """Return int64, str, or objects where some are None; None if all are missing."""
    if array.dtype.kind in "iu" and (not array.size or array.max() <= _LARGEST):
        return array.astype(np.int64)
    cleaned = as_label_list(array, owner)
    known = [value for value in cleaned if value is not None]
    if not known:
        return None
    if not all(isinstance(value, str) for value in known):
        for value in known:  # bool is int
            whole = isinstance(value, float) and value.is_integer()
            if not (whole or isinstance(value, int)) or abs(value) > _LARGEST:
                raise InputError(
                    f"{owner} must be all strings or all whole numbers up to "
                    f"{_LARGEST}, got {value!r}. Ratings and other measures are no "
                    "labels: pass them to fit as y, with GDM(graph=neighbor_graph)."
                )
        cleaned = [None if value is None else int(value) for value in cleaned]
    return object_array(cleaned) if None in cleaned else np.array(cleaned)


def _is_plain_array(samples: Samples) -> bool:
    return isinstance(samples, np.ndarray) and not isinstance(samples, np.memmap)


# -- fingerprints ----------------------------------------------------------------------

WHOLE = 2**21  # subjects with so many numbers, or fewer, are read whole
N_BLOCKS, BLOCK = 8, 32  # of larger ones, so many blocks of so many voxels


def fingerprint(subjects: Iterable[Subject]) -> str:
    """Return a text that two studies share if they hold the same content.

    It covers ids, shapes, labels, runs, stimuli and samples, in any order of subjects.
    Of subjects with more than 2 million numbers, 256 voxels are read (a lazy source is
    read whole), so a change in a few other voxels is not seen.
    """
    entries = sorted(([s.id, _digest(s)] for s in subjects), key=lambda e: e[0])
    return hashlib.sha256(json.dumps(entries).encode()).hexdigest()


def _digest(subject: Subject) -> str:
    n_samples, n_voxels = subject.n_samples, subject.n_voxels
    annotations = [
        None if values is None else values.tolist()
        for values in (subject.labels, subject.runs, subject.stimuli)
    ]
    content = hashlib.sha256(json.dumps([n_samples, n_voxels, *annotations]).encode())
    samples: Any = subject.data() if subject.is_lazy else subject.samples
    starts, width = [0], n_voxels
    if n_samples * n_voxels > WHOLE and n_voxels > N_BLOCKS * BLOCK:
        starts = np.linspace(0, n_voxels - BLOCK, N_BLOCKS).astype(int).tolist()
        width = BLOCK
    for start in starts:
        values = to_numpy(samples[:, start : start + width])
        # as float64, so that the same numbers count as the same; and no negative zero
        numbers = np.ascontiguousarray(values, dtype="<f8") + 0.0
        content.update(numbers.data)
    return content.hexdigest()
