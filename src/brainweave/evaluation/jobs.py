"""Compute the cells that share one fit, and store each at once."""

import json
import platform
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import lru_cache
from importlib.metadata import PackageNotFoundError, version
from typing import Any

import numpy as np
from sklearn.base import clone

from brainweave._version import __version__
from brainweave._warnings import Heard, WarningListener
from brainweave.evaluation.align_folds import Clock
from brainweave.evaluation.evaluate import about, score_folds
from brainweave.evaluation.grid import Cell, Job
from brainweave.evaluation.peak_memory import MemoryWatch
from brainweave.evaluation.splits import SplitStudy, subject_folds
from brainweave.evaluation.store import ResultStore

__all__ = ["JobRunner", "versions"]


@dataclass(frozen=True)
class JobRunner:
    """Computes jobs on one half of a study.

    Parameters
    ----------
    split : SplitStudy
        The data.
    store : ResultStore
        Where records go.
    watch : MemoryWatch
        Tells the memory.
    listener : WarningListener
        Hears the warnings.
    prepared : float
        Seconds that the bases took that the jobs of this half share.
    finished : callable
        Told of every cell that is stored.
    n_jobs : int, default=1
        Subjects and folds of one job at the same time; 1 if jobs run side by side.
    """

    split: SplitStudy
    store: ResultStore
    watch: MemoryWatch
    listener: WarningListener
    prepared: float
    finished: Callable[[Cell], None]
    n_jobs: int = 1

    def run(self, job: Job) -> None:
        """Compute the cells of a job that the store lacks.

        Whatever a method raises becomes the record of its cells.
        """
        missing = {c.fold: c for c in job.cells if not self.store.has(c.name)}
        if not missing:
            return
        with self.listener.heard() as heard, self.watch.peak() as peak:
            try:
                for cell, facts in self._scores(job, missing):
                    self._keep(job, cell, facts, heard, peak)
                    del missing[cell.fold]
            except Exception as error:
                facts = {"error": f"{type(error).__name__}: {error}", "seconds": {}}
                for cell in missing.values():
                    self._keep(job, cell, facts, heard, peak)

    def _scores(
        self, job: Job, missing: dict[int, Cell]
    ) -> Iterator[tuple[Cell, dict[str, Any]]]:
        first, n_sharing = job.cells[0], len(missing)
        model = clone(job.aligner)
        if "n_jobs" in model.get_params(deep=False):
            model.set_params(n_jobs=self.n_jobs)
        shared, own = Clock(), Clock()
        for found in score_folds(
            model,
            self.split,
            job.grid.measure,
            leave_out=job.grid.study.leave_out,
            protocol=first.protocol,
            seed=first.seed,
            only={(first.half, fold) for fold in missing},
            n_jobs=self.n_jobs,
            clock=own,
            shared=shared,
        ):
            # what one fit cost is shared out among the folds that it serves
            seconds = {k: v / n_sharing for k, v in shared.seconds.items()}
            facts = {**found, "error": "", "seconds": seconds | own.seconds}
            own.seconds.clear()
            yield missing[found["fold"]], facts

    def _keep(
        self,
        job: Job,
        cell: Cell,
        facts: dict[str, Any],
        heard: list[Heard],
        peak: list[float],
    ) -> None:
        tested = subject_folds(self.split.n_subjects, job.grid.study.leave_out)
        known = about(
            job.aligner,
            self.split,
            job.grid.measure,
            leave_out=job.grid.study.leave_out,
            random_state=cell.seed,
        )
        record = {
            **facts,
            **vars(cell),
            "about": known,
            "prepared_seconds": self.prepared,
            "warnings": list(
                dict.fromkeys(f"{c.__name__}: {text}" for c, text in heard)
            ),
            "peak_mb": round(max(peak), 1),
            "test_subjects": [self.split.ids[i] for i in tested[cell.fold]],
            "categories": self.split.categories,
            "versions": versions(),
            "finished": datetime.now(UTC).isoformat(timespec="seconds"),
        }
        record.pop("voxel_scores", None)  # a brain of numbers for every fold
        self.store.put(cell.name, json.loads(json.dumps(record, default=_plain)))
        self.finished(cell)


def _plain(value: Any) -> Any:
    """Put what JSON does not know into its terms."""
    if isinstance(value, np.ndarray | np.generic):
        return value.tolist()
    return repr(value)


@lru_cache(maxsize=1)
def versions() -> dict[str, str]:
    """Return the versions that results may depend on."""
    found = {"brainweave": __version__, "python": platform.python_version()}
    for name in ("numpy", "scipy", "scikit-learn"):
        try:
            found[name] = version(name)
        except PackageNotFoundError:
            found[name] = ""
    return found
