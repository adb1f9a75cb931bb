"""Run grids of evaluations: many methods, in parallel and resumable.

Every finished fold is kept in a folder under a hash of all that its result depends on:
the data, the settings, the protocol, the fold, the seed and the version of brainweave.
A run that was stopped continues after the folds that are there.
"""

import json
import logging
import re
import time
import uuid
import warnings
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import cached_property
from itertools import product
from os import PathLike
from pathlib import Path
from threading import Lock
from typing import Any, NamedTuple

import joblib
from joblib import Parallel, cpu_count, delayed
from sklearn.base import BaseEstimator

from brainweave._core import __version__, versions
from brainweave._core.arrays import to_numpy
from brainweave._core.exceptions import ClusterError, InputError, warn_user
from brainweave._core.io import write_text
from brainweave._core.validation import check_int, check_n_jobs, check_option
from brainweave._core.workers import (
    Progress,
    WarningCollector,
    blas_threads,
    cluster_workers,
)
from brainweave.evaluation.evaluate import (
    PROTOCOLS,
    evaluation_metadata,
    score_folds,
    shares_fit,
    takes_bases,
)
from brainweave.evaluation.measures import Classification, Measure, copy_with_seed
from brainweave.evaluation.results import INCIDENTAL, GridResult
from brainweave.evaluation.splits import SplitStudy, split_study, subject_folds
from brainweave.persistence.codec import json_checksum, plain

logger = logging.getLogger(__name__)

# -- what to compute -------------------------------------------------------------------


@dataclass(frozen=True)
class GridStudy:
    """A study in a grid: what :func:`split_study` takes, or returns.

    Or a callable that returns it, and is called only if a fold is missing. It needs the
    `shape` (numbers of splits and of subjects) of what it returns, and a `version` that
    changes when the data do. `leave_out` subjects are tested at a time.
    """

    name: str
    study: Any = field(repr=False)
    leave_out: int = 1
    version: str = ""
    shape: tuple[int, int] | None = None

    def __post_init__(self) -> None:
        if not callable(self.study):
            split = split_study(self.study)
            object.__setattr__(self, "study", split)
            object.__setattr__(self, "shape", split.shape)
        elif not (self.version and self.shape):
            name = repr(self.name)
            raise InputError(f"Study {name} is a function: give version and shape.")

    def open(self) -> SplitStudy:
        """Read and split the study."""
        split = split_study(self.study() if callable(self.study) else self.study)
        if split.shape != self.shape:
            raise InputError(
                f"Study {self.name!r} has {split.shape[0]} splits and {split.shape[1]} "
                f"subjects, but shape={self.shape} was given."
            )
        return split

    @cached_property
    def identity(self) -> str:
        """Hash of the data and of how they are split."""
        if callable(self.study):
            return _hash(self.version)
        hashes = [
            # where voxels lie matters to methods that go by neighbourhood or atlas
            [
                _hash([s.id, to_numpy(s.data()), s.labels, s.runs, s.stimuli, s.space])
                for s in study
            ]
            for split in self.study.splits
            for study in (split.aligning, split.scored)
        ]
        return _hash([self.study.design, *map(_hash, hashes)])


class Job(NamedTuple):
    """The folds that share one fit: all of a half, or a single one that is held out."""

    grid: "Grid"
    method: str
    protocol: str
    half: int
    names: dict[int, str]  # of the records, by fold; with a hash of all they depend on
    data: str  # what jobs that share bases have in common


@dataclass(frozen=True)
class Grid:
    """One study, and methods by the names that tables use, computed in this order.

    `protocols`, `measure` and `random_state` are those of :func:`score_folds`; `tags`
    are columns of tables that tell several grids of one study apart.
    """

    study: GridStudy
    methods: Mapping[str, Any]
    protocols: Sequence[str] = ("held-out",)
    measure: Measure = field(default_factory=Classification)
    random_state: int = 0
    tags: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if not self.methods:
            raise InputError(f"The grid of {self.study.name!r} has no method.")
        for protocol in self.protocols:
            check_option("protocols", protocol, PROTOCOLS, owner="Grid")
        check_int("random_state", self.random_state, minimum=0, owner="Grid")

    def jobs(self, *, kept: bool = True) -> Iterator[Job]:
        """Yield the jobs of the grid, each the folds that share one fit.

        Only what is `kept` needs names that a later run finds again.
        """
        study, shape = self.study, self.study.shape or (0, 0)
        folds = range(len(subject_folds(shape[1], study.leave_out)))
        data = study.identity if kept else str(id(study))
        common = [__version__, study.name, data, study.leave_out]
        if kept:
            common += [type(self.measure), vars(self.measure), self.random_state]
        for half, method, protocol in product(
            range(shape[0]), self.methods, self.protocols
        ):
            settings = _settings_of(self.methods[method]) if kept else id(self)
            known = _hash([*common, method, settings, protocol, half])
            words = re.sub(r"[^\w.+-]+", "-", f"{study.name}_{method}_{protocol}")
            name = f"{words[:80].lstrip('.')}_half{half}-fold{{}}_{known}"
            together = shares_fit(self.methods[method], protocol)
            for group in [folds] if together else [[f] for f in folds]:
                names = {fold: name.format(fold) for fold in group}
                yield Job(self, method, protocol, half, names, data)


def _hash(value: Any) -> str:
    try:
        return str(joblib.hash(value))
    except Exception as error:  # whatever pickling raises
        raise InputError(
            "A setting could not be recognised in a later run, so results with it "
            f"cannot be kept ({str(error)[:100]}). Define functions and classes at the "
            "top of a module, and give lists or arrays."
        ) from error


def _settings_of(value: Any) -> Any:
    """Return class and parameters of an estimator, without those of no consequence."""
    if not isinstance(value, BaseEstimator):
        return value
    params = value.get_params(deep=False).items()
    return type(value), {k: _settings_of(v) for k, v in params if k not in INCIDENTAL}


# -- where results are kept ------------------------------------------------------------


class ResultStore:
    """Records in a folder, one file each, written as a whole or not at all.

    Several processes may use the folder at the same time; they may then repeat each
    other's work.
    """

    def __init__(self, folder: str | PathLike[str]) -> None:
        self.folder = Path(folder)
        self.cells = self.folder / "cells"
        self.cells.mkdir(parents=True, exist_ok=True)

    def get(self, name: str) -> dict[str, Any] | None:
        """Return a record; None if there is none.

        A damaged record is renamed with a warning and counts as missing.
        """
        path = self.cells / f"{name}.json"
        try:
            content = json.loads(path.read_text("utf-8"))
            if content["checksum"] == json_checksum(content["record"]):
                return dict(content["record"])
        except FileNotFoundError:
            return None
        except (ValueError, KeyError, TypeError, OSError, RecursionError):
            pass
        aside = path.rename(path.with_suffix(f".{uuid.uuid4().hex[:8]}.damaged"))
        warn_user(
            f"The record {str(path)!r} is damaged; it was renamed to {aside.name!r} "
            "and will be computed again.",
            RuntimeWarning,
        )
        return None

    def put(self, name: str, record: dict[str, Any]) -> None:
        """Keep a record; one of the same name is replaced."""
        whole = {"checksum": json_checksum(record), "record": record}
        # NaN is no JSON, and no score
        text = json.dumps(whole, allow_nan=False, indent=1)
        write_text(self.cells / f"{name}.json", text + "\n")


# -- running ---------------------------------------------------------------------------


def run_grid(
    grids: Grid | Sequence[Grid],
    store: str | PathLike[str] | ResultStore | None,
    *,
    n_jobs: int | None = None,
    retry_failed: bool = False,
    progress: Progress | None = None,
) -> GridResult:
    """Compute the folds of grids that the store does not have yet; None keeps nothing.

    Grids may share a store, and those of the same data share its bases. The result
    does not depend on `n_jobs`, the number of fits at the same time in threads; inside
    ``joblib.parallel_config(backend="dask")`` fits come one after another, and the
    workers read voxels and score folds. A method that fails gets a record with its
    error, which is computed again if `retry_failed`; the others still run. `progress`
    is called with the number of finished folds, of all folds, and what was done.

    Examples
    --------
    >>> import tempfile
    >>> from brainweave import NoAlignment, PaperGDM, simulate_study
    >>> study = simulate_study(n_subjects=3, n_voxels=100, n_runs=2, categories=3)
    >>> methods = {"none": NoAlignment(), "GDM": PaperGDM(2, energy=0.5)}
    >>> run_grid(Grid(GridStudy("simulated", study), methods), tempfile.mkdtemp())
    GridResult(12 cells, 0 failed)
    """
    listed = [grids] if isinstance(grids, Grid) else list(grids)
    kept = ResultStore(store) if isinstance(store, str | PathLike) else store
    jobs = [job for grid in listed for job in grid.jobs(kept=kept is not None)]
    workers = check_n_jobs(n_jobs)
    if workers is None or workers < 1:  # as everywhere: one per core
        workers = cluster_workers() or cpu_count()
    names = {name for job in jobs for name in job.names.values()}
    found: dict[str, dict[str, Any]] = {}
    if kept is not None:
        for name in names:
            record = kept.get(name) or {}
            if record.get("name") == name and not (retry_failed and record["error"]):
                found[name] = record
        told = len(found), len(names), kept.folder
        logger.info("%d of %d folds are in the store %s", *told)
    run = _Run(kept, workers, progress, len(names), found)
    run.compute(jobs)
    # tags are up to the grid that asks, not to the record, which several may share
    return GridResult(
        {
            **run.records[name],
            "study": job.grid.study.name,
            "method": job.method,
            "protocol": job.protocol,
            "half": job.half,
            "seed": job.grid.random_state,
            "tags": dict(job.grid.tags),
        }
        for job in jobs
        for name in job.names.values()
    )


@dataclass
class _Run:
    """One call of :func:`run_grid`."""

    store: ResultStore | None
    workers: int
    progress: Progress | None
    total: int
    records: dict[str, dict[str, Any]]
    versions: dict[str, str] = field(default_factory=versions)
    counting: Any = field(default_factory=Lock)
    warnings: WarningCollector = field(default_factory=WarningCollector)

    def compute(self, jobs: list[Job]) -> None:
        """Compute what is missing, study by study, in groups that share bases."""
        self._report("")
        groups: dict[str, dict[int, dict[Any, Job]]] = {}
        for job in jobs:
            names = tuple(job.names.values())
            if not all(name in self.records for name in names):
                of_study = groups.setdefault(job.data, {})
                of_study.setdefault(job.half, {})[names] = job
        with self.warnings.installed(), blas_threads(1):
            for of_study in groups.values():
                first = next(iter(next(iter(of_study.values())).values()))
                opened = first.grid.study.open()
                for half, members in of_study.items():
                    self._compute_group(opened, half, list(members.values()))

    def _compute_group(self, split: SplitStudy, half: int, jobs: list[Job]) -> None:
        """Compute jobs that share bases, which are made before threads read them."""
        part = split.splits[half]
        for job in jobs:
            aligner = job.grid.methods[job.method]
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                try:
                    if takes_bases(aligner):
                        part.for_aligner(aligner).prepare(aligner, n_jobs=self.workers)
                except ClusterError:
                    raise
                except Exception:  # it fails again, and is recorded, in its job
                    continue
        # several jobs run side by side, or one after another with all workers
        if len(jobs) == 1 or cluster_workers() is not None:
            for job in jobs:
                self._compute(job, split, self.workers)
        else:
            Parallel(n_jobs=min(self.workers, len(jobs)), backend="threading")(
                delayed(self._compute)(job, split, 1) for job in jobs
            )
        part.clear()

    def _compute(self, job: Job, split: SplitStudy, n_jobs: int) -> None:
        """Compute the missing folds of a job."""
        missing = {f: name for f, name in job.names.items() if name not in self.records}
        grid, start = job.grid, time.perf_counter()
        tested = subject_folds(split.n_subjects, grid.study.leave_out)
        with self.warnings.collect() as warned:
            for found in _outcomes(job, split, list(missing), n_jobs):
                fold, now = found["fold"], time.perf_counter()
                texts = (f"{kind.__name__}: {text}" for kind, text in warned)
                facts = {
                    "categories": split.categories,
                    "versions": self.versions,
                    "name": missing[fold],
                    "test_subjects": [split.ids[i] for i in tested[fold]],
                    "warnings": list(dict.fromkeys(texts)),
                    "seconds": now - start,  # a fit counts for its first fold
                    "finished": datetime.now(UTC).isoformat(timespec="seconds"),
                }
                start, record = now, plain({**found, **facts})
                if self.store is not None:
                    self.store.put(record["name"], record)
                with self.counting:
                    self.records[record["name"]] = record
                    where = f"half {job.half + 1}, fold {fold + 1}"
                    about = f"{grid.study.name}, {job.method}, {job.protocol}, {where}"
                    self._report(about)

    def _report(self, text: str) -> None:
        if self.progress is not None:
            self.progress(len(self.records), self.total, text)


def _outcomes(
    job: Job, split: SplitStudy, folds: list[int], n_jobs: int
) -> Iterator[dict[str, Any]]:
    """Yield the record of each fold; of those that a method fails on with the error."""
    grid, left = job.grid, set(folds)
    aligner, leave_out = grid.methods[job.method], grid.study.leave_out
    try:
        model = copy_with_seed(aligner, None)
        design = {"leave_out": leave_out, "random_state": grid.random_state}
        about = evaluation_metadata(aligner, split, grid.measure, **design)
        if "n_jobs" in model.get_params(deep=False):
            model.set_params(n_jobs=n_jobs)
        for found in score_folds(
            model,
            split,
            grid.measure,
            leave_out=leave_out,
            protocol=job.protocol,
            seed=grid.random_state,
            only={(job.half, fold) for fold in folds},
            n_jobs=n_jobs,
        ):
            left.remove(found["fold"])
            yield {**found, "about": about, "error": ""}
    except ClusterError:  # no fault of the method: all would fail
        raise
    except Exception as error:
        for fold in sorted(left):
            yield {"fold": fold, "error": f"{type(error).__name__}: {error}"}
