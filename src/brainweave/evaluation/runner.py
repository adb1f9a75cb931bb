"""Run grids of evaluations: in parallel, resumable, with shared bases.

Every finished cell is stored at once. A run that was killed goes on where it stopped,
and several runs may work in one store: each takes what no other has claimed.
"""

import logging
import sys
import time
import warnings
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from os import PathLike
from threading import Event, Lock, Thread
from typing import Any

from joblib import Parallel, cpu_count, delayed
from sklearn.base import clone

from brainweave._core.arrays import process_bytes
from brainweave._core.exceptions import ClusterError, InputError
from brainweave._core.progress import Progress
from brainweave._core.version import versions
from brainweave._core.workers import WarningCollector, blas_threads, cluster_workers
from brainweave.evaluation.align_folds import Clock, takes_bases
from brainweave.evaluation.evaluate import evaluation_metadata, score_folds
from brainweave.evaluation.grid import (
    Cell,
    Grid,
    GridStudy,
    Job,
    digest,
    drop_aligning_samples,
)
from brainweave.evaluation.results import GridResult, is_complete
from brainweave.evaluation.shared_bases import Part
from brainweave.evaluation.splits import SplitStudy, subject_folds
from brainweave.evaluation.store import ResultStore
from brainweave.persistence.codec import plain

logger = logging.getLogger(__name__)

__all__ = ["Grid", "GridResult", "GridStudy", "ResultStore", "run_grid"]

WAIT = 0.2  # seconds between looks at what another run has claimed
LOOK = 0.05  # seconds between looks at the memory


def run_grid(
    grids: Grid | Sequence[Grid],
    store: str | PathLike[str] | ResultStore,
    *,
    n_jobs: int | None = None,
    retry_failed: bool = False,
    progress: Progress | None = None,
) -> GridResult:
    """Compute the cells of grids that the store does not have yet.

    Parameters
    ----------
    grids : Grid or sequence of Grid
        What to compute. Grids with the same ``GridStudy`` share its bases.
    store : path or ResultStore
        Folder of the results. Other runs, of the same grids or of others, may use it
        at the same time.
    n_jobs : int, optional
        Fits at the same time, in threads; default one per core. The result does not
        depend on it. Inside ``joblib.parallel_config(backend="dask")`` fits come one
        after another, and the workers read voxels and score folds.
    retry_failed : bool, default=False
        Whether to compute cells again whose record says that they failed.
    progress : callable, optional
        Called with the number of finished cells, of all cells, and what was done.

    Returns
    -------
    GridResult
        All cells of these grids; ``results.csv`` in the store has them too.

    Notes
    -----
    The cells of one study and half are run together: what costs a pass over voxels is
    computed once for all methods, settings, protocols and folds. A study is read only
    if one of its cells is missing, one study at a time.

    A method that fails on a cell leaves a record that says why, and the rest goes on.

    Examples
    --------
    >>> import tempfile
    >>> from brainweave import NoAlignment, PaperGDM, simulate_study
    >>> study = simulate_study(n_subjects=3, n_voxels=100, n_runs=2, categories=3)
    >>> grid = Grid(
    ...     GridStudy("simulated", study),
    ...     {"none": NoAlignment(), "GDM": PaperGDM(2, energy=0.5)},
    ... )
    >>> result = run_grid(grid, tempfile.mkdtemp())
    >>> result.summary()[["method", "n_folds", "n_failed"]]
      method  n_folds  n_failed
    0    GDM        6         0
    1   none        6         0
    """
    run = _Run(
        store if isinstance(store, ResultStore) else ResultStore(store),
        # as everywhere: None, and numbers below 1, mean one per core
        cluster_workers() or cpu_count() if n_jobs is None or n_jobs < 1 else n_jobs,
        progress,
    )
    return run.compute([grids] if isinstance(grids, Grid) else grids, retry_failed)


class _Run:
    """One call of :func:`run_grid`."""

    def __init__(
        self, store: ResultStore, workers: int, progress: Progress | None
    ) -> None:
        self.store, self.workers, self.progress = store, workers, progress
        # shapes of studies, so that finished ones need not be read
        self.shapes = ResultStore(store.folder / "studies")
        self.stored_shapes: dict[str, tuple[int, int]] = {}
        self.opened: tuple[str, SplitStudy] | None = None
        self.done = self.total = 0
        self.counting = Lock()
        self.warnings = WarningCollector()

    def compute(self, grids: Sequence[Grid], retry_failed: bool) -> GridResult:
        jobs = [job for grid in grids for job in grid.jobs(*self._shape(grid.study))]
        # grids may ask for the same cell, as one of several settings or by itself
        cells = {repr(c): c for job in jobs for c in job.cells}
        names = list(dict.fromkeys(c.name for c in cells.values()))
        for name in names:  # forget incomplete records, and failed ones if asked
            record = self.store.get(name)
            if record is not None and (
                not is_complete(record, name) or (retry_failed and record["error"])
            ):
                self.store.remove(name)
        self.total = len(names)
        waiting = self._unfinished_groups(jobs)
        self._count(names)
        logger.info(
            "%d of %d folds are in the store %s",
            self.done,
            self.total,
            self.store.folder,
        )
        with self.warnings.installed(), blas_threads(1):
            while waiting:
                before = self.done
                for group, members in waiting.items():
                    self._compute_group(group, members)
                waiting = self._unfinished_groups(jobs)
                if waiting and self.done == before:
                    time.sleep(WAIT)  # other runs have claimed all that is left
                self._count(names)
        self.opened = None
        records = {name: self._record(name) for name in names}
        # which settings are varied is up to the grid that asks, not to the record
        result = GridResult({**records[c.name], **vars(c)} for c in cells.values())
        result.write_csv(self.store.folder / "results.csv")
        return result

    # -- planning ----------------------------------------------------------------------

    def _record(self, name: str) -> dict[str, Any]:
        record = self.store.get(name)
        if record is None:  # a mean over fewer folds would look like any other
            raise InputError(
                f"The record of {name!r} vanished from {str(self.store.folder)!r}, or "
                "was damaged, after it was computed. Run the same again."
            )
        return record

    def _shape(self, study: GridStudy) -> tuple[int, int]:
        """Return the numbers of parts and subjects, reading a study at most once."""
        shape = study.known_shape()
        if shape is not None:
            return shape
        name = f"study-{digest([study.name, study.identity])}"
        known = self.shapes.get(name) or {}
        n_parts, n_subjects = known.get("n_parts"), known.get("n_subjects")
        if isinstance(n_parts, int) and isinstance(n_subjects, int):
            self.stored_shapes[study.identity] = n_parts, n_subjects
            return n_parts, n_subjects
        found = self._open(study).shape
        self.shapes.remove(name)
        self.shapes.put(name, {"n_parts": found[0], "n_subjects": found[1]})
        return found

    def _open(self, study: GridStudy) -> SplitStudy:
        if self.opened is None or self.opened[0] != study.identity:
            self.opened = None  # frees the last one first
            split = study.open()
            known = self.stored_shapes.get(study.identity, split.shape)
            if known != split.shape:
                raise InputError(
                    f"Study {study.name!r} has {split.shape[0]} parts and "
                    f"{split.shape[1]} subjects now; the store knows its version "
                    f"{study.version!r} with {known}. Give another version when the "
                    "data change."
                )
            self.opened = study.identity, split
        return self.opened[1]

    def _unfinished_groups(self, jobs: list[Job]) -> dict[tuple[Any, ...], list[Job]]:
        """Return unfinished jobs by what they share bases with: study, missing, half.

        The groups of one study follow each other, so that it is read once.
        """
        groups: dict[tuple[Any, ...], list[Job]] = {}
        once = {tuple(cell.name for cell in job.cells): job for job in jobs}
        for job in once.values():
            if not self._is_finished(job):
                key = (job.grid.study.identity, *job.variant, job.cells[0].half)
                groups.setdefault(key, []).append(job)
        order = list(dict.fromkeys(key[0] for key in groups))
        return dict(sorted(groups.items(), key=lambda item: order.index(item[0][0])))

    def _is_finished(self, job: Job) -> bool:
        return all(self.store.has(cell.name) for cell in job.cells)

    # -- computing ---------------------------------------------------------------------

    def _compute_group(self, group: tuple[Any, ...], jobs: list[Job]) -> None:
        """Compute jobs that share bases, unless another run is at it."""
        with self.store.claim(f"group-{digest(list(group))}") as ours:
            jobs = [job for job in jobs if not self._is_finished(job)]
            if not ours or not jobs:
                return
            _, share, seed, half = group
            split = drop_aligning_samples(self._open(jobs[0].grid.study), share, seed)
            part, start = split.parts[half], time.perf_counter()
            self._prepare(part, jobs)
            prepared = round(time.perf_counter() - start, 4)
            # several jobs run side by side, or one after another with all workers
            if len(jobs) == 1 or cluster_workers() is not None:
                for job in jobs:
                    self._compute(job, split, prepared, self.workers)
            else:
                Parallel(n_jobs=min(self.workers, len(jobs)), backend="threading")(
                    delayed(self._compute)(job, split, prepared, 1) for job in jobs
                )
            part.clear()

    def _prepare(self, part: Part, jobs: list[Job]) -> None:
        """Compute what jobs share, before threads read it."""
        for job in jobs:
            if not takes_bases(job.aligner):
                continue
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                try:
                    part.prepare(job.aligner, n_jobs=self.workers)
                except ClusterError:
                    raise
                except Exception:  # it fails again, and is recorded, in its job
                    continue

    def _compute(
        self, job: Job, split: SplitStudy, prepared: float, n_jobs: int
    ) -> None:
        """Compute the cells of a job that the store lacks, and store each at once.

        Whatever a method raises becomes the record of its cells.
        """
        missing = {c.fold: c for c in job.cells if not self.store.has(c.name)}
        if not missing:
            return
        first, measure, n_sharing = job.cells[0], job.grid.measure, len(missing)
        leave_out = job.grid.study.leave_out
        model = clone(job.aligner)
        if "n_jobs" in model.get_params(deep=False):
            model.set_params(n_jobs=n_jobs)
        design = {"leave_out": leave_out, "random_state": first.seed}
        common = {
            "about": evaluation_metadata(job.aligner, split, measure, **design),
            "prepared_seconds": prepared,
            "categories": split.categories,
            "versions": versions(),
        }
        tested = subject_folds(split.n_subjects, leave_out)
        of_fits, of_fold = Clock(), Clock()
        with self.warnings.collect() as warned, _peak_memory() as peak:

            def keep(cell: Cell, found: dict[str, Any]) -> None:
                facts = {
                    **common,
                    "test_subjects": [split.ids[i] for i in tested[cell.fold]],
                    "warnings": _each_once(warned),
                    "peak_mb": round(max(peak), 1),
                }
                self._store(cell, found | facts)

            try:
                for found in score_folds(
                    model,
                    split,
                    measure,
                    leave_out=leave_out,
                    protocol=first.protocol,
                    seed=first.seed,
                    only={(first.half, fold) for fold in missing},
                    n_jobs=n_jobs,
                    clock=of_fold,
                    shared=of_fits,
                ):
                    # the time of a fit is shared out among the folds that it serves
                    seconds = {k: v / n_sharing for k, v in of_fits.seconds.items()}
                    seconds |= of_fold.seconds
                    of_fold.seconds.clear()
                    cell = missing[found["fold"]]
                    keep(cell, {**found, "error": "", "seconds": seconds})
                    del missing[found["fold"]]
            except ClusterError:  # no fault of the method: all would fail
                raise
            except Exception as error:
                failure = {"error": f"{type(error).__name__}: {error}", "seconds": {}}
                for cell in missing.values():
                    keep(cell, failure)

    def _store(self, cell: Cell, found: dict[str, Any]) -> None:
        """Keep the record of a finished cell, and count it."""
        finished = datetime.now(UTC).isoformat(timespec="seconds")
        record = {**found, **vars(cell), "finished": finished}
        record.pop("voxel_scores", None)  # a number per voxel in every fold
        self.store.put(cell.name, plain(record))
        with self.counting:
            self.done += 1
            self._report_progress(
                f"{cell.study}, {cell.method}, {cell.protocol}, half {cell.half + 1}, "
                f"fold {cell.fold + 1}"
            )

    # -- progress ----------------------------------------------------------------------

    def _count(self, names: list[str]) -> None:
        self.done = sum(map(self.store.has, names))
        self._report_progress("")

    def _report_progress(self, text: str) -> None:
        if self.progress is not None:
            self.progress(self.done, self.total, text)


def _each_once(warned: Iterable[tuple[type[Warning], str]]) -> list[str]:
    """Return warnings as texts with their categories, without repetitions."""
    return list(dict.fromkeys(f"{kind.__name__}: {text}" for kind, text in warned))


@contextmanager
def _peak_memory() -> Iterator[list[float]]:
    """Yield a list whose one entry is the most memory, in MB, that the process held."""
    peak, stop = [_megabytes()], Event()

    def look() -> None:
        while not stop.wait(LOOK):
            peak[0] = max(peak[0], _megabytes())

    watch = Thread(target=look, daemon=True)
    watch.start()
    try:
        yield peak
    finally:
        stop.set()
        watch.join()


def _megabytes() -> float:
    """Return the memory of this process, or its peak so far; 0 if neither is known."""
    if process_bytes():
        return process_bytes() / 1e6
    try:
        import resource
    except ImportError:  # Windows
        return 0.0
    most = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return most / 1e6 if sys.platform == "darwin" else most / 1e3
