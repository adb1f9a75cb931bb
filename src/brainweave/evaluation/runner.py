"""Run grids of evaluations: in parallel, resumable, with shared bases.

Every finished cell is stored at once. A run that was killed goes on where it stopped,
and several runs may work in one store: each takes what no other has claimed.
"""

import logging
import time
import warnings
from collections.abc import Sequence
from os import PathLike
from threading import Lock
from typing import Any

from joblib import Parallel, cpu_count, delayed

from brainweave._arrays import blas_threads
from brainweave._progress import Progress
from brainweave._warnings import WarningListener
from brainweave.evaluation.align_folds import takes_bases
from brainweave.evaluation.fingerprint import digest
from brainweave.evaluation.grid import Cell, Grid, GridStudy, Job, without
from brainweave.evaluation.grid_result import GridResult, is_sound
from brainweave.evaluation.jobs import JobRunner
from brainweave.evaluation.peak_memory import MemoryWatch
from brainweave.evaluation.splits import SplitStudy
from brainweave.evaluation.store import ResultStore
from brainweave.exceptions import InputError

logger = logging.getLogger(__name__)

__all__ = ["Grid", "GridResult", "GridStudy", "ResultStore", "run_grid"]

WAIT = 0.2  # seconds between looks at what another run has claimed


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
        depend on it.
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
    >>> from brainweave import GDM, NoAlignment, simulate_study
    >>> study = simulate_study(n_subjects=3, n_voxels=100, n_runs=2, categories=3)
    >>> grid = Grid(
    ...     GridStudy("simulated", study),
    ...     {"none": NoAlignment(), "GDM": GDM(2, energy=0.5)},
    ... )
    >>> result = run_grid(grid, tempfile.mkdtemp())
    >>> result.summary()[["method", "n_folds", "n_failed"]]
      method  n_folds  n_failed
    0    GDM        6         0
    1   none        6         0
    """
    run = _Run(
        [grids] if isinstance(grids, Grid) else list(grids),
        store if isinstance(store, ResultStore) else ResultStore(store),
        n_jobs=n_jobs,
        retry_failed=retry_failed,
        progress=progress,
    )
    return run.all()


class _Run:
    """One call of :func:`run_grid`."""

    def __init__(
        self,
        grids: list[Grid],
        store: ResultStore,
        *,
        n_jobs: int | None,
        retry_failed: bool,
        progress: Progress | None,
    ) -> None:
        self.grids, self.store, self.progress = grids, store, progress
        self.retry_failed = retry_failed
        # as everywhere: None, and numbers below 1, mean one per core
        self.workers = cpu_count() if n_jobs is None or n_jobs < 1 else n_jobs
        # what is known of studies, so that finished ones need not be read
        self.shapes = ResultStore(store.folder / "studies")
        self.promised: dict[str, Any] = {}
        self.opened: tuple[str, SplitStudy] | None = None
        self.done = self.total = 0
        self.counting = Lock()
        self.listener, self.watch = WarningListener(), MemoryWatch()

    def all(self) -> GridResult:
        jobs = [
            job for grid in self.grids for job in grid.jobs(*self._shape(grid.study))
        ]
        # grids may ask for the same cell, as one of several settings or by itself
        cells = {repr(c): c for job in jobs for c in job.cells}
        names = list(dict.fromkeys(c.name for c in cells.values()))
        self._check_known(names)
        self.total = len(names)
        waiting = self._groups(jobs)
        self._count(names)
        logger.info(
            "%d of %d folds are in the store %s",
            self.done,
            self.total,
            self.store.folder,
        )
        with self.watch, self.listener.listening(), blas_threads(1):
            while waiting:
                before = self.done
                for group, members in waiting.items():
                    self._group(group, members)
                waiting = self._groups(jobs)
                if waiting and self.done == before:
                    time.sleep(WAIT)  # other runs have claimed all that is left
                self._count(names)
        self.opened = None
        result = GridResult(self.store, list(cells.values()))
        result.write_csv(self.store.folder / "results.csv")
        return result

    # -- planning ----------------------------------------------------------------------

    def _check_known(self, names: list[str]) -> None:
        """Set aside records that are damaged; forget failed ones, if asked."""
        for name in names:
            record = self.store.get(name)
            if record is None:
                continue
            if not is_sound(record, name) or (self.retry_failed and record["error"]):
                self.store.remove(name)

    def _shape(self, study: GridStudy) -> tuple[int, int]:
        """Return the numbers of parts and subjects, reading a study at most once."""
        shape = study.known_shape()
        if shape is not None:
            return shape
        name = f"study-{digest([study.name, study.identity])}"
        known = self.shapes.get(name) or {}
        n_parts, n_subjects = known.get("n_parts"), known.get("n_subjects")
        if isinstance(n_parts, int) and isinstance(n_subjects, int):
            self.promised[study.identity] = n_parts, n_subjects
            return n_parts, n_subjects
        split = self._open(study)
        self.shapes.remove(name)
        found = len(split.parts), split.n_subjects
        self.shapes.put(name, {"n_parts": found[0], "n_subjects": found[1]})
        return found

    def _open(self, study: GridStudy) -> SplitStudy:
        if self.opened is None or self.opened[0] != study.identity:
            self.opened = None  # frees the last one first
            split = study.open()
            found = len(split.parts), split.n_subjects
            if self.promised.get(study.identity, found) != found:
                raise InputError(
                    f"Study {study.name!r} has {found[0]} parts and {found[1]} "
                    f"subjects now; the store knows its version {study.version!r} "
                    f"with {self.promised[study.identity]}. Give another version when "
                    "the data change."
                )
            self.opened = study.identity, split
        return self.opened[1]

    def _groups(self, jobs: list[Job]) -> dict[tuple[Any, ...], list[Job]]:
        """Put unfinished jobs together that share bases: study, what is missing, half.

        Of one study all come in a row, so that it is read once.
        """
        groups: dict[tuple[Any, ...], list[Job]] = {}
        once = {tuple(cell.name for cell in job.cells): job for job in jobs}
        for job in once.values():
            if not self._is_finished(job):
                key = (job.grid.study.identity, *job.variant, job.half)
                groups.setdefault(key, []).append(job)
        order = list(dict.fromkeys(key[0] for key in groups))
        return dict(sorted(groups.items(), key=lambda item: order.index(item[0][0])))

    def _is_finished(self, job: Job) -> bool:
        return all(self.store.has(cell.name) for cell in job.cells)

    # -- computing ---------------------------------------------------------------------

    def _group(self, group: tuple[Any, ...], jobs: list[Job]) -> None:
        """Compute jobs that share bases, unless another run is at it."""
        with self.store.claim(f"group-{digest(list(group))}") as ours:
            jobs = [job for job in jobs if not self._is_finished(job)]
            if not ours or not jobs:
                return
            _, share, seed, half = group
            split = without(self._open(jobs[0].grid.study), share, seed)
            part = split.parts[half]
            start = time.perf_counter()
            self._prepare(part, jobs)
            workers = min(self.workers, len(jobs))
            runner = JobRunner(
                split,
                self.store,
                self.watch,
                self.listener,
                prepared=round(time.perf_counter() - start, 4),
                finished=self._finished,
                n_jobs=self.workers if len(jobs) == 1 else 1,
            )
            if workers == 1:
                for job in jobs:
                    runner.run(job)
            else:
                Parallel(n_jobs=workers, backend="threading")(
                    delayed(runner.run)(job) for job in jobs
                )
            part.clear()

    def _prepare(self, part: Any, jobs: list[Job]) -> None:
        """Compute what jobs share, before threads read it."""
        for job in jobs:
            if not takes_bases(job.aligner):
                continue
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                try:
                    part.prepare(job.aligner, n_jobs=self.workers)
                except Exception:  # it fails again, and is recorded, in its job
                    continue

    # -- progress ----------------------------------------------------------------------

    def _count(self, names: list[str]) -> None:
        self.done = sum(map(self.store.has, names))
        self._say("")

    def _finished(self, cell: Cell) -> None:
        with self.counting:
            self.done += 1
            self._say(
                f"{cell.study}, {cell.method}, {cell.protocol}, half {cell.half + 1}, "
                f"fold {cell.fold + 1}"
            )

    def _say(self, text: str) -> None:
        if self.progress is not None:
            self.progress(self.done, self.total, text)
