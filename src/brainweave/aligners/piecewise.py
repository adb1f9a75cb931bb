"""Fit an aligner to many pieces of the brain, in parallel, and report on it."""

import threading
import warnings
from abc import abstractmethod
from collections import Counter
from collections.abc import Callable, Generator, Iterable, Iterator
from contextlib import closing, contextmanager
from copy import copy
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
from joblib import Parallel, cpu_count, delayed, effective_n_jobs
from numpy.typing import NDArray
from sklearn.base import clone

from brainweave._arrays import blas_threads, column_chunks, ops_for, to_numpy
from brainweave._progress import Progress, shown_progress
from brainweave._subjects import ids_of
from brainweave._validation import check_int, check_list_of_subjects, check_shape
from brainweave._warnings import WarningListener
from brainweave.aligners.base import BaseAligner
from brainweave.aligners.maps import SubjectMap
from brainweave.basis import SubjectBasis
from brainweave.exceptions import InputError, SkippedWarning, SolverError
from brainweave.voxels import N_SIGNATURES, signed_sums

Columns = NDArray[np.intp]

# what a piece with too little in it may raise; anything else is a mistake to show
LOCAL_ERRORS = (InputError, SolverError, np.linalg.LinAlgError)

_LISTENER = WarningListener()

# of a local aligner, what is only of use to the subjects it was fitted on
NOT_FOR_NEWCOMERS = ("bases_", "coef_", "mixing_", "individual_")


@dataclass(frozen=True)
class Layout:
    """The pieces of the brain: their names, and per subject the columns of each."""

    names: list[Any]
    columns: list[list[Columns]]


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
    """Apply a function to the arguments of each piece; yield outcomes in their order.

    Parameters
    ----------
    function : callable
        At module level, so that other processes can run it.
    tasks : iterable of tuples
        Arguments, made one piece at a time.
    total : int
        Number of pieces.
    n_jobs : int or None
        Pieces at the same time, in threads; None is one per core, or as many as
        ``joblib.parallel_config`` says, whose backend is used.
    progress : bool or callable
        True draws a bar; a callable is told (done, total) after each piece.
    """
    calls = (delayed(_guarded)(function, *task) for task in tasks)
    told = _told_of_two(progress) if callable(progress) else progress
    with shown_progress(told, total, "Aligning") as tick, _listening(), blas_threads(1):
        if n_jobs is None and effective_n_jobs(None) == 1:  # nothing is configured
            n_jobs = cpu_count()
        run = Parallel(n_jobs=n_jobs, prefer="threads", return_as="generator")
        outcomes = run(calls)
        try:
            for outcome in outcomes:
                tick()
                yield outcome
        finally:
            # after an error joblib would warn of pieces that were fitted in vain
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                outcomes.close()


def _told_of_two(progress: Callable[[int, int], None]) -> Progress:
    return lambda done, total, what: progress(done, total)


@contextmanager
def _listening() -> Iterator[None]:
    """Hear the warnings of all threads; only the main one can, else they just pass."""
    here = threading.current_thread() is threading.main_thread()
    if here and not _LISTENER.is_listening:
        with _LISTENER.listening():
            yield
    else:
        yield


def _guarded(function: Callable[..., Any], *arguments: Any) -> Outcome:
    """Run one piece on one thread, so that n_jobs cannot change a bit of the result."""
    # in another process nobody listens yet, and BLAS has its threads
    with _listening(), _LISTENER.heard() as warned, blas_threads(1):
        try:
            return Outcome(function(*arguments), None, warned)
        except LOCAL_ERRORS as error:
            return Outcome(None, str(error), warned)


def fit_local(
    aligner: Any, X: list[Any], y: list[Any] | None, runs: list[Any]
) -> LocalFit:
    """Fit a copy of an aligner to one piece, and keep what does not hold the data."""
    local = clone(aligner)
    local._runs = runs
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
        """Record an outcome and return its result, None if there is none."""
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

    def check_some_left(self) -> None:
        """Refuse if nothing could be aligned."""
        if self.skipped and len(self.skipped) == self.total:
            name, reason = next(iter(self.skipped.items()))
            raise InputError(
                f"None of the {self.total} {self.what}s could be aligned. "
                f"{self.what.capitalize()} {name}: {reason}"
            )

    def warn(self, *, stacklevel: int = 3) -> None:
        """Warn once of each kind."""
        if self.skipped:
            name, reason = next(iter(self.skipped.items()))
            warnings.warn(
                f"{len(self.skipped)} of {self.total} {self.what}s were skipped; "
                f"skipped_ says why. {self.what.capitalize()} {name}: {reason}",
                SkippedWarning,
                stacklevel=stacklevel,
            )
        for category, count in self._warned.items():
            warnings.warn(
                f"In {count} of {self.total} {self.what}s. {self._first[category]}",
                category,
                stacklevel=stacklevel,
            )


class PiecewiseAligner(BaseAligner):
    """Base of those that fit an aligner to pieces of the brain.

    A subclass says what the pieces are (:meth:`_lay_out`) and makes whole-brain maps of
    the maps of pieces (:meth:`_gather`).
    """

    _from_grams = False
    _takes_bases = False  # a basis of all voxels cannot be cut into pieces

    aligner: Any
    min_voxels: int
    n_jobs: int | None
    progress: Any
    skipped_: dict[Any, str]

    _piece = "piece"  # what a piece is called

    @abstractmethod
    def _lay_out(self, n_voxels: list[int], spaces: list[Any]) -> Layout:
        """Say which voxels of each subject belong to each piece."""

    @abstractmethod
    def _gather(
        self,
        layout: Layout,
        fits: Iterable[tuple[int, LocalFit]],
        read: list[tuple[NDArray[Any], NDArray[Any]]],
        spaces: list[Any],
    ) -> None:
        """Make the maps, and set what was learned; fits come one by one, in order.

        Of each subject were read the mean of all voxels, and its samples' signatures.
        """

    def fit(self, X: Any, y: Any = None) -> Self:
        """Learn one map per subject, piece by piece.

        Parameters
        ----------
        X : list of arrays of shape (n_samples_i, n_voxels_i), or a Study
            One entry per subject.
        y : list of array-like, optional
            What is known of the samples, handed to the aligner.

        Returns
        -------
        self
        """
        self._check_aligner()
        subjects = check_list_of_subjects(X, owner=self._owner)
        arrays = [read_samples(s, f"X[{i}]") for i, s in enumerate(subjects)]
        self.ids_ = ids_of(subjects, owner=self._owner)
        y = self._known_samples(subjects, y)
        self._check_labels(y)
        spaces = [getattr(s, "space", None) for s in subjects]
        layout = self._lay_out([int(x.shape[1]) for x in arrays], spaces)
        read = [
            check_finite(x, covered(own, x.shape[1]), f"X[{i}]")
            for i, (x, own) in enumerate(zip(arrays, layout.columns, strict=True))
        ]
        ledger = Ledger(self._piece)
        # closed also after an error, which would keep the generator, and so the
        # listening, alive with its traceback
        runs = [getattr(s, "runs", None) for s in subjects]
        with closing(self._fits(layout, arrays, y, runs, ledger)) as fits:
            self._gather(layout, fits, read, spaces)
        self.skipped_ = ledger.skipped
        ledger.warn()
        self.n_subjects_ = len(arrays)
        return self

    def _fits(
        self,
        layout: Layout,
        arrays: list[Any],
        y: list[Any] | None,
        runs: list[Any],
        ledger: Ledger,
    ) -> Generator[tuple[int, LocalFit]]:
        """Yield the pieces that could be aligned, by number, as they come."""
        tried = self._large_enough(layout, ledger)
        tasks = (
            (
                self.aligner,
                [x[:, own[k]] for x, own in zip(arrays, layout.columns, strict=True)],
                y,
                runs,
            )
            for k in tried
        )
        with closing(self._run(fit_local, tasks, len(tried))) as outcomes:
            for k, outcome in zip(tried, outcomes, strict=True):
                local = ledger.take(layout.names[k], outcome)
                if local is not None:
                    yield k, local
        ledger.check_some_left()

    def _join(
        self, samples: Any, y: Any, names: list[Any], columns: list[Columns]
    ) -> list[SubjectMap | None]:
        """Let a new subject join the aligners of the pieces; None where it cannot."""
        ledger = Ledger(self._piece)
        tasks = (
            (local, samples[:, own], y)
            for local, own in zip(self.aligners_, columns, strict=True)
        )
        with closing(self._run(join_local, tasks, len(columns))) as outcomes:
            joined = [
                ledger.take(name, outcome)
                for name, outcome in zip(names, outcomes, strict=True)
            ]
        ledger.check_some_left()
        ledger.warn(stacklevel=4)
        return joined

    def _run(self, function: Any, tasks: Any, total: int) -> Any:
        return run_pieces(
            function, tasks, total, n_jobs=self.n_jobs, progress=self.progress
        )

    def _large_enough(self, layout: Layout, ledger: Ledger) -> list[int]:
        """Return the numbers of the pieces to try; set those with few voxels aside."""
        least = check_int("min_voxels", self.min_voxels, minimum=1, owner=self._owner)
        tried = []
        for k, name in enumerate(layout.names):
            sizes = [own[k].size for own in layout.columns]
            few = [i for i, size in enumerate(sizes) if size < least]
            if few:
                ledger.skip(
                    name,
                    f"X[{few[0]}] has {sizes[few[0]]} voxel(s) in it, fewer than "
                    f"min_voxels={least}.",
                )
            else:
                tried.append(k)
        return tried

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

    def fit_transform(self, X: Any, y: Any = None) -> list[Any]:
        """Fit, and return the shared features of the aligning samples."""
        return self.fit(X, y).transform(X)

    def __getstate__(self) -> dict[str, Any]:
        """Pickle everything but a progress callback, which belongs to its session."""
        state = super().__getstate__()
        if callable(state.get("progress")):
            state = {**state, "progress": False}
        return state


def covered(columns: list[Columns], n_voxels: int) -> NDArray[np.bool_]:
    """Tell which voxels are in a piece."""
    inside = np.zeros(n_voxels, dtype=bool)
    inside[np.concatenate(columns)] = True
    return inside


def read_samples(subject: Any, name: str) -> Any:
    """Return the samples of a subject, refusing what has no voxels or shape."""
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
