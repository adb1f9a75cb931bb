"""Fit an aligner to many pieces of the brain, in parallel, and report on it."""

import threading
import warnings
from abc import abstractmethod
from collections import Counter
from collections.abc import Callable, Generator, Iterable, Iterator
from contextlib import closing, contextmanager
from copy import copy
from dataclasses import KW_ONLY, dataclass
from pickle import dumps, loads
from typing import Any, NamedTuple, Self

import numpy as np
from joblib import Parallel, cpu_count, delayed, effective_n_jobs
from sklearn.base import clone

from brainweave._arrays import backing_map, column_chunks, ops_for, to_numpy
from brainweave._progress import shown_progress
from brainweave._validation import (
    check_int,
    check_list_of_subjects,
    check_n_jobs,
    check_shape,
    ids_of,
)
from brainweave._workers import Payload, WarningCollector, blas_threads, cluster_workers
from brainweave.aligners.base import BaseAligner
from brainweave.aligners.maps import SubjectMap
from brainweave.aligners.pieces import Columns
from brainweave.basis import SubjectBasis
from brainweave.exceptions import InputError, SkippedWarning, SolverError
from brainweave.signatures import N_SIGNATURES, signed_sums

# what a piece with too little in it may raise; anything else is a mistake to show
LOCAL_ERRORS = (InputError, SolverError, np.linalg.LinAlgError)

_LISTENER = WarningCollector()

# of a local aligner, what is only of use to the subjects it was fitted on
NOT_FOR_NEWCOMERS = ("bases_", "coef_", "mixing_", "individual_")


class Layout(NamedTuple):
    """The pieces of the brain: their names, and per subject the columns of each."""

    names: list[Any]
    columns: list[list[Columns]]


class LocalFit(NamedTuple):
    """What was learned on a piece: an aligner that others can join, and maps."""

    aligner: Any
    maps: list[SubjectMap]


Fits = Iterable[tuple[int, LocalFit]]  # by the number of the piece, as they come
Whole = dict[str, Any]  # of a subject, what its map keeps beside those of pieces


class Part(NamedTuple):
    """A piece of one subject, which a worker cuts from the file that it opens."""

    samples: Payload
    columns: Columns


def openable(samples: Any) -> Any:
    """Return samples as they are sent to a cluster: by the name of their file."""
    if backing_map(samples) is None or not cluster_workers():
        return samples
    return loads(dumps(Payload(samples)))  # closed once, not once per piece


def part_of(samples: Any, columns: Columns) -> Any:
    """Return the voxels of a piece, or what a worker cuts them from."""
    known = isinstance(samples, Payload)
    return Part(samples, columns) if known else samples[:, columns]


def cut(part: Any) -> Any:
    """Return the voxels of a piece, where they are wanted."""
    known = isinstance(part, Part)
    return np.asarray(part.samples.open()[:, part.columns]) if known else part


class Outcome(NamedTuple):
    """A result, or why there is none, and the warnings on the way."""

    result: Any
    reason: str | None
    warned: list[tuple[type[Warning], str]]


def guarded(function: Callable[..., Any], *arguments: Any) -> Outcome:
    """Run one piece on one thread, so that n_jobs cannot change a bit of the result."""
    # in another process nobody listens yet, and BLAS has its threads
    with _listening(), _LISTENER.collect() as warned, blas_threads(1):
        try:
            return Outcome(function(*arguments), None, warned)
        except LOCAL_ERRORS as error:
            return Outcome(None, str(error), warned)


@contextmanager
def _listening() -> Iterator[None]:
    """Hear the warnings of all threads; only the main one can, else they just pass."""
    here = threading.current_thread() is threading.main_thread()
    if here and not _LISTENER.is_installed:
        with _LISTENER.installed():
            yield
    else:
        yield


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
    local.fit([cut(x) for x in X], y)
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
    joined: SubjectMap = aligner.fit_new_subject(cut(X), y)
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
        self._warned.update({category for category, _ in outcome.warned})
        for category, text in outcome.warned:
            self._first.setdefault(category, f"{self.what} {name}: {text}")
        return outcome.result

    def _example(self) -> str:
        name, reason = next(iter(self.skipped.items()))
        return f"{self.what.capitalize()} {name}: {reason}"

    def check_some_left(self) -> None:
        """Refuse if nothing could be aligned."""
        if self.skipped and len(self.skipped) == self.total:
            raise InputError(
                f"None of the {self.total} {self.what}s could be aligned. "
                f"{self._example()}"
            )

    def warn(self, *, stacklevel: int = 3) -> None:
        """Warn once of each kind."""
        if self.skipped:
            warnings.warn(
                f"{len(self.skipped)} of {self.total} {self.what}s were skipped; "
                f"skipped_ says why. {self._example()}",
                SkippedWarning,
                stacklevel=stacklevel,
            )
        for category, count in self._warned.items():
            warnings.warn(
                f"In {count} of {self.total} {self.what}s. {self._first[category]}",
                category,
                stacklevel=stacklevel,
            )


@dataclass(eq=False, repr=False)
class PiecewiseAligner(BaseAligner):
    """Base of those that fit an aligner to pieces of the brain.

    A subclass says what the pieces are (:meth:`_lay_out`) and makes whole-brain maps of
    the maps of pieces (:meth:`_gather`).
    """

    _from_grams = False
    _takes_bases = False  # a basis of all voxels cannot be cut into pieces
    _piece = "piece"  # what a piece is called

    aligner: BaseAligner
    _: KW_ONLY
    min_voxels: int = 2
    n_jobs: int | None = None
    progress: Any = False

    @abstractmethod
    def _lay_out(self, n_voxels: list[int], spaces: list[Any]) -> Layout:
        """Say which voxels of each subject belong to each piece."""

    @abstractmethod
    def _gather(self, layout: Layout, fits: Fits, whole: list[Whole]) -> None:
        """Make the maps, and set what was learned; fits come one by one, in order.

        ``whole`` is what :func:`read_whole` returned of each subject.
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
        if not isinstance(self.aligner, BaseAligner):
            raise TypeError(
                f"aligner of {self._owner} must be an aligner such as "
                f"SRM(n_components=10); got {self.aligner!r}."
            )
        subjects = check_list_of_subjects(X, owner=self._owner)
        arrays = [read_samples(s, f"X[{i}]") for i, s in enumerate(subjects)]
        self.ids_ = ids_of(subjects, owner=self._owner)
        y = self._known_samples(subjects, y)
        self._check_labels(y)
        spaces = [getattr(s, "space", None) for s in subjects]
        layout = self._lay_out([int(x.shape[1]) for x in arrays], spaces)
        parts = zip(arrays, layout.columns, spaces, strict=True)
        whole = [read_whole(*part, name=f"X[{i}]") for i, part in enumerate(parts)]
        ledger = Ledger(self._piece)
        # closed also after an error, which would keep the generator, and so the
        # listening, alive with its traceback
        runs = [getattr(s, "runs", None) for s in subjects]
        with closing(self._fits(layout, arrays, y, runs, ledger)) as fits:
            self._gather(layout, fits, whole)
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
        least = check_int("min_voxels", self.min_voxels, minimum=1, owner=self._owner)
        tried = []
        for k, name in enumerate(layout.names):
            sizes = [own[k].size for own in layout.columns]
            i = int(np.argmin(sizes))
            if sizes[i] < least:
                reason = f"X[{i}] has {sizes[i]} voxel(s) in it, fewer than "
                ledger.take(name, Outcome(None, f"{reason}min_voxels={least}.", []))
            else:
                tried.append(k)

        sent = [openable(x) for x in arrays]

        def data(k: int) -> list[Any]:
            pairs = zip(sent, layout.columns, strict=True)
            return [part_of(x, own[k]) for x, own in pairs]

        tasks = ((self.aligner, data(k), y, runs) for k in tried)
        names = [layout.names[k] for k in tried]
        with closing(self._run(fit_local, names, tasks, ledger)) as results:
            for k, local in zip(tried, results, strict=True):
                if local is not None:
                    yield k, local

    def _join(
        self,
        X: Any,
        y: Any,
        names: list[Any],
        columns_of: Callable[[int, Any], list[Columns]],
        which: list[int] | None = None,
    ) -> tuple[list[Columns], list[SubjectMap | None], Whole]:
        """Let a new subject join the aligners of all pieces, or of some.

        Return its columns, a map per piece (None where it cannot join), and the rest.
        """
        samples, space = read_samples(X, "the new subject"), getattr(X, "space", None)
        columns = columns_of(int(samples.shape[1]), space)
        whole = read_whole(samples, columns, space, name="the new subject")
        if y is None and hasattr(X, "labels"):
            y = self._known_of(X)
        ledger, sent = Ledger(self._piece), openable(samples)
        some = columns if which is None else [columns[k] for k in which]
        pairs = zip(self.aligners_, some, strict=True)
        tasks = ((local, part_of(sent, own), y) for local, own in pairs)
        with closing(self._run(join_local, names, tasks, ledger)) as results:
            joined = list(results)
        ledger.warn(stacklevel=4)
        return columns, joined, whole

    def _run(
        self,
        function: Callable[..., Any],
        names: list[Any],
        tasks: Iterable[tuple[Any, ...]],
        ledger: Ledger,
    ) -> Generator[Any]:
        """Apply a function to the pieces, in threads; yield results in their order.

        Inside ``joblib.parallel_config`` the configured backend is used.
        """

        def tell(done: int, total: int, what: str) -> None:
            self.progress(done, total)

        told = tell if callable(self.progress) else self.progress
        n_jobs = check_n_jobs(self.n_jobs)
        calls = (delayed(guarded)(function, *t) for t in tasks)
        if n_jobs is None and effective_n_jobs(None) == 1:  # nothing is configured
            n_jobs = cpu_count()
        with (
            shown_progress(told, len(names), "Aligning") as tick,
            _listening(),
            blas_threads(1),
        ):
            run = Parallel(n_jobs=n_jobs, prefer="threads", return_as="generator")
            outcomes = run(calls)
            try:
                for name, outcome in zip(names, outcomes, strict=True):
                    tick()
                    yield ledger.take(name, outcome)
            finally:
                # after an error joblib would warn of pieces that were fitted in vain
                with warnings.catch_warnings():
                    warnings.simplefilter("ignore")
                    outcomes.close()
        ledger.check_some_left()

    def _known_of(self, subject: Any) -> Any:
        return self.aligner._known_of(subject)

    def _labels_in(self, y: list[Any]) -> list[Any]:
        return self.aligner._labels_in(y)

    def _joins_by_label(self) -> bool:
        return self.aligner._joins_by_label()

    def _joins_by_row(self, y: Any) -> bool:
        return self.aligner._joins_by_row(y)

    def _labels_must_meet(self) -> bool:
        return self.aligner._labels_must_meet()

    def fit_transform(self, X: Any, y: Any = None) -> list[Any]:
        """Fit, and return what :meth:`transform` gives for the same samples."""
        return self.fit(X, y).transform(X)

    def __getstate__(self) -> dict[str, Any]:
        """Pickle everything but a progress callback, which belongs to its session."""
        state = super().__getstate__()
        if callable(state.get("progress")):
            state = {**state, "progress": False}
        return state


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


def read_whole(X: Any, pieces: list[Columns], space: Any, *, name: str) -> Whole:
    """Return what a whole-brain map keeps of a subject: mean, signatures, space.

    NaN is refused in the voxels of the pieces, and only there.
    """
    used = np.zeros(X.shape[1], dtype=bool)
    used[np.concatenate(pieces)] = True
    mean = np.empty(X.shape[1])
    signatures = np.zeros((X.shape[0], N_SIGNATURES))
    ops = ops_for(X)
    for columns, raw in column_chunks(X):
        signatures += signed_sums(ops, ops.array(raw), columns)
        chunk = to_numpy(raw)
        with np.errstate(invalid="ignore"):
            mean[columns] = chunk.mean(axis=0, dtype=np.float64)
        bad = ~np.isfinite(mean[columns]) & used[columns]
        if bad.any():
            voxel = int(np.flatnonzero(bad)[0])
            sample = int(np.flatnonzero(~np.isfinite(chunk[:, voxel]))[0])
            raise InputError(
                f"{name} has NaN or infinite values, first at sample {sample}, voxel "
                f"{columns.start + voxel}. Mask these voxels or drop these samples."
            )
    mean = np.where(np.isfinite(mean), mean, 0.0)
    return {"mean": mean, "signatures": signatures, "space": space}
