"""Fit an aligner to many pieces of the brain, in parallel, and report on it."""

import threading
import warnings
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from copy import copy
from dataclasses import dataclass
from typing import Any

import numpy as np
from joblib import Parallel, delayed
from numpy.typing import NDArray
from sklearn.base import clone

from brainweave._arrays import blas_threads, column_chunks, ops_for, to_numpy
from brainweave._validation import check_list_of_subjects, check_shape
from brainweave.aligners.base import BaseAligner
from brainweave.aligners.maps import SubjectMap
from brainweave.basis import SubjectBasis
from brainweave.exceptions import InputError, SkippedWarning, SolverError
from brainweave.voxels import N_SIGNATURES, signed_sums

Columns = NDArray[np.intp]
Report = Callable[[int, int], None]

# what a piece with too little in it may raise; anything else is a mistake to show
LOCAL_ERRORS = (InputError, SolverError, np.linalg.LinAlgError)

# of a local aligner, what is only of use to the subjects it was fitted on
NOT_FOR_NEWCOMERS = ("bases_", "coef_", "mixing_", "individual_")


@dataclass(frozen=True)
class Piece:
    """A named part of the brain: the columns it has in each subject."""

    name: Any
    columns: list[Columns]


@dataclass(frozen=True)
class LocalFit:
    """What was learned on a piece: maps, and an aligner that others can join."""

    aligner: Any
    maps: list[SubjectMap]


@dataclass(frozen=True)
class Outcome:
    """A result, or why there is none, and the warnings on the way."""

    result: Any
    reason: str | None
    warned: list[tuple[type[Warning], str]]


def run_pieces(
    function: Callable[..., Any],
    tasks: Iterable[tuple[Any, ...]],
    total: int,
    *,
    n_jobs: int | None,
    progress: Any,
) -> Iterator[Outcome]:
    """Apply a function to the arguments of each piece; give outcomes in their order.

    Parameters
    ----------
    function : callable
        At module level, so that other processes can run it.
    tasks : iterable of tuples
        Arguments, made one piece at a time.
    total : int
        Number of pieces.
    n_jobs : int or None
        As in joblib; None is 1, unless ``joblib.parallel_config`` says otherwise.
    progress : bool or callable
        True draws a bar; a callable is told (done, total) after each piece.
    """
    calls = (delayed(_guarded)(function, *task) for task in tasks)
    with reporter(progress, total) as report:
        outcomes = Parallel(n_jobs=n_jobs, return_as="generator")(calls)
        for done, outcome in enumerate(outcomes, start=1):
            report(done, total)
            yield outcome


def _guarded(function: Callable[..., Any], *arguments: Any) -> Outcome:
    """Run one piece on one thread, so that n_jobs cannot change a bit of the result."""
    # recording warnings is not safe beside other threads; there they just pass
    record = threading.current_thread() is threading.main_thread()
    caught: list[warnings.WarningMessage] | None = None
    with blas_threads(1):
        try:
            if record:
                with warnings.catch_warnings(record=True) as caught:
                    warnings.simplefilter("always")
                    result = function(*arguments)
            else:
                result = function(*arguments)
            reason = None
        except LOCAL_ERRORS as error:
            result, reason = None, str(error)
    warned = [(w.category, str(w.message)) for w in caught or []]
    return Outcome(result, reason, warned)


def fit_local(aligner: Any, X: list[Any], y: list[Any] | None) -> LocalFit:
    """Fit a copy of an aligner to one piece, and keep what does not hold the data."""
    local = clone(aligner)
    local._warns_of_input = False  # said once, of the whole brain
    local._is_piece = True
    if "n_jobs" in local.get_params(deep=False):
        local.set_params(n_jobs=1)  # pieces are what runs in parallel
    local.fit(X, y)
    maps = [m.detach() for m in local.maps_]
    for m in maps:
        m.signatures = None  # those of whole samples are kept with the whole map
    light = copy(local)
    for name in NOT_FOR_NEWCOMERS:
        light.__dict__.pop(name, None)
    light.maps_ = []
    return LocalFit(light, maps)


def join_local(aligner: Any, X: Any, y: Any) -> SubjectMap:
    """Let a new subject join a local aligner."""
    joined: SubjectMap = aligner.fit_new_subject(X, y)
    return joined.detach()


class Ledger:
    """Counts what was skipped and warned of, for one report at the end."""

    def __init__(self, what: str) -> None:
        self.what, self.total = what, 0
        self.skipped: dict[Any, str] = {}
        self._warned: Counter[type[Warning]] = Counter()
        self._first: dict[type[Warning], str] = {}

    def take(self, name: Any, outcome: Outcome) -> Any:
        """Record an outcome and give its result, None if there is none."""
        self.total += 1
        if outcome.reason is not None:
            self.skipped[name] = outcome.reason
        for category in {category for category, _ in outcome.warned}:
            self._warned[category] += 1
        for category, text in outcome.warned:
            self._first.setdefault(category, f"{self.what} {name}: {text}")
        return outcome.result

    def skip(self, name: Any, reason: str) -> None:
        """Record a piece that was not even tried."""
        self.total += 1
        self.skipped[name] = reason

    def close(self, *, stacklevel: int = 3) -> None:
        """Warn once of each kind; refuse if nothing is left."""
        if self.skipped:
            name, reason = next(iter(self.skipped.items()))
            if len(self.skipped) == self.total:
                raise InputError(
                    f"None of the {self.total} {self.what}s could be aligned. "
                    f"{self.what.capitalize()} {name}: {reason}"
                )
            warnings.warn(
                f"{len(self.skipped)} of {self.total} {self.what}s were skipped; "
                f"skipped_ says why. {self.what.capitalize()} {name}: {reason}",
                SkippedWarning,
                stacklevel=stacklevel + 1,
            )
        for category, count in self._warned.items():
            warnings.warn(
                f"In {count} of {self.total} {self.what}s. {self._first[category]}",
                category,
                stacklevel=stacklevel + 1,
            )


@contextmanager
def reporter(progress: Any, total: int) -> Iterator[Report]:
    """Give a function to be told of progress; it draws a bar only if that was asked."""
    if callable(progress):
        yield progress
        return
    if not isinstance(progress, (bool, np.bool_)):
        raise TypeError(
            f"progress must be True, False or a function of (done, total); got "
            f"{progress!r}."
        )
    if not progress:
        yield lambda done, total: None
        return
    from rich.progress import Progress

    with Progress(transient=True) as bar:
        task = bar.add_task("Aligning", total=total)
        yield lambda done, total: bar.update(task, completed=done)


class PiecewiseAligner(BaseAligner):
    """Base of those that fit an aligner to pieces of the brain."""

    _takes_bases = False  # a basis of all voxels cannot be cut into pieces

    aligner: Any
    progress: Any

    def _check_aligner(self) -> None:
        if not isinstance(self.aligner, BaseAligner):
            raise TypeError(
                f"aligner of {self._owner} must be an aligner such as "
                f"SRM(n_components=10); got {self.aligner!r}."
            )

    def _known_samples(self, subjects: list[Any], y: Any) -> list[Any] | None:
        known: list[Any] | None = self.aligner._known_samples(subjects, y)
        return known

    def _labels_in(self, y: list[Any]) -> list[Any]:
        return list(self.aligner._labels_in(y))

    def _joins_by_label(self) -> bool:
        return bool(self.aligner._joins_by_label())

    def _labels_must_meet(self) -> bool:
        return bool(self.aligner._labels_must_meet())

    def _read(self, X: Any) -> tuple[list[Any], list[Any]]:
        """Give the subjects, and their samples as arrays."""
        subjects = check_list_of_subjects(X, owner=self._owner)
        return subjects, [read_samples(s, f"X[{i}]") for i, s in enumerate(subjects)]

    def fit_transform(self, X: Any, y: Any = None) -> list[Any]:
        """Fit, and give the shared features of the aligning samples."""
        return self.fit(X, y).transform(X)

    def __getstate__(self) -> dict[str, Any]:
        """Pickle everything but a progress callback, which belongs to its session."""
        state = super().__getstate__()
        if callable(state.get("progress")):
            state = {**state, "progress": False}
        return state


def read_samples(subject: Any, name: str) -> Any:
    """Give the samples of a subject, refusing what has no voxels or shape."""
    if isinstance(subject, SubjectBasis):
        raise TypeError(
            f"{name} is a SubjectBasis of all voxels; pieces need the samples x voxels "
            "themselves. Pass the array."
        )
    samples = subject.data() if hasattr(subject, "labels") else subject
    check_shape(samples, name)
    return samples


def check_finite(
    X: Any, used: NDArray[np.bool_], name: str
) -> tuple[NDArray[Any], NDArray[Any]]:
    """Refuse NaN in the columns that are used.

    Return the mean of all columns, and the signatures of the samples.
    """
    means = np.empty(X.shape[1])
    signatures = np.zeros((X.shape[0], N_SIGNATURES))
    ops = ops_for(X)
    for columns, raw in column_chunks(X):
        signatures += signed_sums(ops, ops.array(raw), columns)
        chunk = to_numpy(raw)
        with np.errstate(invalid="ignore"):
            means[columns] = chunk.mean(axis=0, dtype=np.float64)
        bad = ~np.isfinite(means[columns]) & used[columns]
        if bad.any():
            voxel = int(np.flatnonzero(bad)[0])
            sample = int(np.flatnonzero(~np.isfinite(chunk[:, voxel]))[0])
            raise InputError(
                f"{name} has NaN or infinite values, first at sample {sample}, voxel "
                f"{columns.start + voxel}. Mask these voxels or drop these samples."
            )
    return np.where(np.isfinite(means), means, 0.0), signatures


def sparse_row(m: SubjectMap, component: int, what: str) -> NDArray[Any]:
    """Return the sparse weights or patterns of one shared feature, as a dense row."""
    chosen: Any = m.patterns if what == "patterns" else m.weights.T
    row: NDArray[Any] = chosen[[component % m.n_components]].toarray().ravel()
    return row
