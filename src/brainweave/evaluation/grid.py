"""Run grids of evaluations: many methods and settings, in parallel and resumable.

Every finished fold is kept in a folder under a hash of all that its result depends on:
the data, the settings, the protocol, the fold, the seed and the version of brainweave.
A run that was stopped continues after the folds that are there.
"""

import json
import logging
import re
import sys
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
from typing import Any

import joblib
import numpy as np
from joblib import Parallel, cpu_count, delayed
from sklearn.base import BaseEstimator, clone

from brainweave._core.arrays import to_numpy
from brainweave._core.exceptions import ClusterError, InputError, warn_user
from brainweave._core.io import write_text
from brainweave._core.progress import Progress
from brainweave._core.validation import check_fraction, check_int, check_option
from brainweave._core.version import __version__, versions
from brainweave._core.workers import WarningCollector, blas_threads, cluster_workers
from brainweave.evaluation.evaluate import (
    PROTOCOLS,
    evaluation_metadata,
    score_folds,
    takes_bases,
)
from brainweave.evaluation.measures import Classification, Clock, Measure
from brainweave.evaluation.results import INCIDENTAL, GridResult, is_complete
from brainweave.evaluation.splits import (
    Split,
    SplitStudy,
    as_study,
    select_samples,
    split_study,
    subject_folds,
)
from brainweave.persistence.codec import json_checksum, plain
from brainweave.study.samples import drop_samples
from brainweave.study.study import Study

logger = logging.getLogger(__name__)

__all__ = ["Grid", "GridResult", "GridStudy", "ResultStore", "run_grid"]


# -- what to compute -------------------------------------------------------------------


@dataclass(frozen=True)
class GridStudy:
    """A study in a grid, read when one of its folds has to be computed.

    Parameters
    ----------
    name : str
        Name of the study in tables.
    study : Study, list of arrays, SplitStudy, or callable that returns one
        The data. A callable is called only if a fold is missing; it needs `version` and
        `shape`.
    y, halves, align, match
        As in :func:`brainweave.split_study`.
    leave_out : int, default=1
        Number of subjects tested at a time.
    version : str, default=""
        Stands for the data of a callable: change it when the data change.
    shape : tuple of two ints, optional
        Numbers of splits and of subjects of what a callable returns.
    """

    name: str
    study: Any = field(repr=False)
    y: Any = field(default=None, repr=False)
    halves: Any = field(default="category", repr=False)
    align: Any = field(default=None, repr=False)
    match: str | None = None
    leave_out: int = 1
    version: str = ""
    shape: tuple[int, int] | None = None

    def __post_init__(self) -> None:
        if callable(self.study) and not (self.version and self.shape):
            raise InputError(
                f"Study {self.name!r} is read by a function: give version=..., a text "
                "that changes when its data do, and shape=(n_splits, n_subjects)."
            )

    def open(self) -> SplitStudy:
        """Read and split the study."""
        study = self.study() if callable(self.study) else self.study
        split = split_study(
            study, self.y, halves=self.halves, align=self.align, match=self.match
        )
        if split.shape != self.counts:
            raise InputError(
                f"Study {self.name!r} has {split.shape[0]} splits and {split.shape[1]} "
                f"subjects, but shape={self.counts} was given."
            )
        return split

    @property
    def counts(self) -> tuple[int, int]:
        """Numbers of splits and of subjects."""
        if self.shape is not None:
            return self.shape
        if isinstance(self.study, SplitStudy):
            return self.study.shape
        return 2 if self.align is None else len(self.align), len(self.study)

    @cached_property
    def identity(self) -> str:
        """Hash of the data and of how they are split."""
        data = self.version if callable(self.study) else _content(self.study)
        align = None if self.align is None else [_content(a) for a in self.align]
        return _hash([data, self.y, self.halves, align, self.match])


@dataclass(frozen=True)
class Cell:
    """One fold of one method on one study."""

    study: str
    method: str
    params: dict[str, Any]  # the settings that the grid varies
    protocol: str
    missing: float  # share of the aligning samples that was removed
    repeat: int
    half: int
    fold: int
    seed: int
    name: str = ""  # of its record, with a hash of all that the result depends on


@dataclass(frozen=True)
class Job:
    """The cells that share one fit: all folds of a half, or a held-out one."""

    grid: "Grid"
    aligner: Any
    cells: list[Cell]


@dataclass(frozen=True)
class Grid:
    """One study, several methods, and all that is varied.

    Parameters
    ----------
    study : GridStudy
        The data.
    methods : mapping of str to aligner
        Aligners by the names that tables use, computed in this order: with the slowest
        first, no core waits for the last.
    protocols : sequence of str, default=("held-out",)
        "held-out", "joint", or both.
    vary : mapping of str to sequence, optional
        Settings that every method of the grid is given, in all combinations:
        ``{"energy": [0.2, 0.5, 1.0]}``.
    missing : sequence of float, default=(0.0,)
        Shares of every subject's aligning samples to remove at random.
    repeats : int, default=1
        Number of repetitions, each with another seed.
    measure : Measure, optional
        How folds are scored; default :class:`Classification`.
    random_state : int, default=0
        Repetition r has the seed ``random_state + r``.
    """

    study: GridStudy
    methods: Mapping[str, Any]
    protocols: Sequence[str] = ("held-out",)
    vary: Mapping[str, Sequence[Any]] = field(default_factory=dict)
    missing: Sequence[float] = (0.0,)
    repeats: int = 1
    measure: Measure = field(default_factory=Classification)
    random_state: int = 0

    def __post_init__(self) -> None:
        if not self.methods:
            raise InputError(f"The grid of {self.study.name!r} has no method.")
        for protocol in self.protocols:
            check_option("protocols", protocol, PROTOCOLS, owner="Grid")
        check_int("repeats", self.repeats, minimum=1, owner="Grid")
        check_int("random_state", self.random_state, minimum=0, owner="Grid")
        for share in self.missing:
            check_fraction("1 - missing", 1 - share, owner="Grid")

    def jobs(self) -> Iterator[Job]:
        """Yield the jobs of the grid, each the cells that share one fit."""
        n_splits, n_subjects = self.study.counts
        folds = range(len(subject_folds(n_subjects, self.study.leave_out)))
        settings = [
            dict(zip(self.vary, values, strict=True))
            for values in product(*self.vary.values())
        ]
        where = [self.study.name, self.study.identity, self.study.leave_out]
        measure = _hash([type(self.measure), vars(self.measure)])
        for missing, repeat, half, method, params, protocol in product(
            self.missing,
            range(self.repeats),
            range(n_splits),
            self.methods,
            settings,
            self.protocols,
        ):
            aligner = clone(self.methods[method]).set_params(**params)
            seed = self.random_state + repeat
            missing = float(missing)
            about = [method, _settings_of(aligner), protocol, missing, half, seed]
            known = _hash([__version__, *where, measure, *about])
            words = re.sub(r"[^\w.+-]+", "-", f"{self.study.name}_{method}_{protocol}")
            name = f"{words[:80].lstrip('.')}_half{half}-fold{{}}_{known}"
            place = (self.study.name, method, params, protocol, missing, repeat, half)
            cells = [Cell(*place, f, seed, name.format(f)) for f in folds]
            # one fit serves all folds, or each fold has its own
            for group in [cells] if protocol == "joint" else [[c] for c in cells]:
                yield Job(self, aligner, group)


def drop_aligning_samples(split: SplitStudy, share: float, seed: int) -> SplitStudy:
    """Remove a share of every subject's aligning samples, at random.

    Samples without stimulus ids get their row numbers, so that it stays known which
    belong to the same moment.
    """
    if share == 0:
        return split
    splits = []
    for number, half in enumerate(split.splits):
        with_ids = half.aligning.map(
            lambda s: (
                s._replace(stimuli=np.arange(s.n_samples)) if s.stimuli is None else s
            )
        )
        rows = [np.arange(s.n_samples)[:, None] for s in with_ids]
        drawn = np.random.SeedSequence([seed, number]).generate_state(1)[0]
        kept = drop_samples(rows, fraction=share, random_state=int(drawn)).kept
        some = select_samples(with_ids, kept)
        splits.append(Split(some, half.scored, name=half.name))
    return split.with_splits(splits)


def _hash(value: Any) -> str:
    try:
        return str(joblib.hash(value))
    except Exception as error:  # whatever pickling raises
        raise InputError(
            "A setting has no content that could be recognised again, so results with "
            f"it cannot be kept ({error}). Define functions and classes at the top of "
            "a module, and give lists or arrays."
        ) from error


def _content(study: Any) -> Any:
    """Return what a study holds, as arrays."""
    if isinstance(study, SplitStudy):
        return [[_content(p.aligning), _content(p.scored)] for p in study.splits]
    return [
        # where voxels lie matters to methods that go by neighbourhood or atlas
        _hash([s.id, to_numpy(s.data()), s.labels, s.runs, s.stimuli, s.space])
        for s in (study if isinstance(study, Study) else as_study(study))
    ]


def _settings_of(value: Any) -> Any:
    """Return class and parameters of an estimator, without those of no consequence."""
    if not isinstance(value, BaseEstimator):
        return value
    params = value.get_params(deep=False).items()
    return type(value), {k: _settings_of(v) for k, v in params if k not in INCIDENTAL}


# -- where results are kept ------------------------------------------------------------


class ResultStore:
    """Records in a folder, one file each, written as a whole or not at all.

    Parameters
    ----------
    folder : path
        Made if it does not exist. Several processes may use it at the same time; they
        may then repeat each other's work.

    Examples
    --------
    >>> import tempfile
    >>> store = ResultStore(tempfile.mkdtemp())
    >>> store.put("first", {"accuracy": 0.5})
    >>> store.get("first")
    {'accuracy': 0.5}
    """

    def __init__(self, folder: str | PathLike[str]) -> None:
        self.folder = Path(folder)
        self.cells = self.folder / "cells"
        try:
            self.cells.mkdir(parents=True, exist_ok=True)
        except (FileExistsError, NotADirectoryError):
            raise InputError(
                f"{str(self.cells)!r} cannot be made: there is a file where a folder "
                "should be. Move it away, or use another folder."
            ) from None

    def get(self, name: str) -> dict[str, Any] | None:
        """Return a record; None if there is none.

        A damaged record is renamed with a warning and counts as missing.
        """
        path = self._path(name)
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
        write_text(self._path(name), text + "\n")

    def _path(self, name: str) -> Path:
        if not re.fullmatch(r"[\w+=-][\w.+=-]{0,199}", name):
            raise InputError(
                f"{name!r} cannot name a record: use letters, digits and '._+=-'."
            )
        return self.cells / f"{name}.json"


# -- running ---------------------------------------------------------------------------


def run_grid(
    grids: Grid | Sequence[Grid],
    store: str | PathLike[str] | ResultStore,
    *,
    n_jobs: int | None = None,
    retry_failed: bool = False,
    progress: Progress | None = None,
) -> GridResult:
    """Compute the folds of grids that the store does not have yet.

    Parameters
    ----------
    grids : Grid or sequence of Grid
        What to compute. Grids with the same ``GridStudy`` share its bases.
    store : path or ResultStore
        Folder of the results, which grids may share.
    n_jobs : int, optional
        Number of fits at the same time, in threads; default one per core. The result
        does not depend on it. Inside ``joblib.parallel_config(backend="dask")`` fits
        come one after another, and the workers read voxels and score folds.
    retry_failed : bool, default=False
        Whether to compute folds again that failed before.
    progress : callable, optional
        Called with the number of finished folds, of all folds, and what was done.

    Returns
    -------
    GridResult
        All folds of these grids; ``results.csv`` in the store has them too.

    Notes
    -----
    The folds of one study and half are run together: what costs a pass over voxels is
    computed once for all methods, settings, protocols and folds. A study is read only
    if one of its folds is missing, one study at a time. A method that fails gets a
    record with its error; the others still run.

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
    listed = [grids] if isinstance(grids, Grid) else list(grids)
    jobs = [job for grid in listed for job in grid.jobs()]
    # grids may ask for the same cell, as one of several settings or by itself
    cells = {repr(cell): cell for job in jobs for cell in job.cells}
    run = _Run(
        store if isinstance(store, ResultStore) else ResultStore(store),
        # as everywhere: None, and numbers below 1, mean one per core
        cluster_workers() or cpu_count() if n_jobs is None or n_jobs < 1 else n_jobs,
        progress,
        {cell.name for cell in cells.values()},
        retry_failed,
    )
    run.compute(jobs)
    # which settings are varied is up to the grid that asks, not to the record
    result = GridResult({**run.records[c.name], **vars(c)} for c in cells.values())
    result.write_csv(run.store.folder / "results.csv")
    return result


class _Run:
    """One call of :func:`run_grid`."""

    def __init__(
        self,
        store: ResultStore,
        workers: int,
        progress: Progress | None,
        names: set[str],
        retry_failed: bool,
    ) -> None:
        self.store, self.workers, self.progress = store, workers, progress
        self.total, self.counting = len(names), Lock()
        self.warnings = WarningCollector()
        found = {name: store.get(name) for name in names}
        self.records = {
            name: record
            for name, record in found.items()
            if record is not None
            and is_complete(record, name)
            and not (retry_failed and record["error"])
        }
        logger.info(
            "%d of %d folds are in the store %s",
            len(self.records),
            self.total,
            store.folder,
        )

    def compute(self, jobs: list[Job]) -> None:
        """Compute what is missing, study by study, in groups that share bases."""
        self._report("")
        groups: dict[str, dict[Any, dict[Any, Job]]] = {}
        for job in jobs:
            names, first = tuple(cell.name for cell in job.cells), job.cells[0]
            if not all(name in self.records for name in names):
                of_study = groups.setdefault(job.grid.study.identity, {})
                key = first.missing, first.seed if first.missing else 0, first.half
                of_study.setdefault(key, {})[names] = job
        with self.warnings.installed(), blas_threads(1):
            for of_study in groups.values():
                anyone = next(iter(next(iter(of_study.values())).values()))
                opened = anyone.grid.study.open()
                for (share, seed, half), members in of_study.items():
                    some = drop_aligning_samples(opened, share, seed)
                    self._compute_group(some, half, list(members.values()))

    def _compute_group(self, split: SplitStudy, half: int, jobs: list[Job]) -> None:
        """Compute jobs that share bases, which are made before threads read them."""
        part, start = split.splits[half], time.perf_counter()
        for job in jobs:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                try:
                    if takes_bases(job.aligner):
                        part.prepare(job.aligner, n_jobs=self.workers)
                except ClusterError:
                    raise
                except Exception:  # it fails again, and is recorded, in its job
                    continue
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

    def _compute(
        self, job: Job, split: SplitStudy, prepared: float, n_jobs: int
    ) -> None:
        """Compute the missing cells of a job; an error becomes their record."""
        missing = {c.fold: c for c in job.cells if c.name not in self.records}
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
        with self.warnings.collect() as warned:

            def keep(cell: Cell, found: dict[str, Any]) -> None:
                texts = (f"{kind.__name__}: {text}" for kind, text in warned)
                facts = {
                    "test_subjects": [split.ids[i] for i in tested[cell.fold]],
                    "warnings": list(dict.fromkeys(texts)),
                    "peak_mb": _peak_memory(),
                    "finished": datetime.now(UTC).isoformat(timespec="seconds"),
                }
                found.pop("voxel_scores", None)  # a number per voxel in every fold
                self._keep(cell, {**common, **found, **facts, **vars(cell)})

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
                    del missing[cell.fold]
            except ClusterError:  # no fault of the method: all would fail
                raise
            except Exception as error:
                for cell in missing.values():
                    text = f"{type(error).__name__}: {error}"
                    keep(cell, {"error": text, "seconds": {}})

    def _keep(self, cell: Cell, found: dict[str, Any]) -> None:
        record = plain(found)
        self.store.put(cell.name, record)
        with self.counting:
            self.records[cell.name] = record
            self._report(
                f"{cell.study}, {cell.method}, {cell.protocol}, half {cell.half + 1}, "
                f"fold {cell.fold + 1}"
            )

    def _report(self, text: str) -> None:
        if self.progress is not None:
            self.progress(len(self.records), self.total, text)


def _peak_memory() -> float:
    """Return the most memory in MB that this process has held; 0 if not known."""
    try:
        import resource
    except ImportError:  # Windows
        return 0.0
    most = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return round(most / 1e6 if sys.platform == "darwin" else most / 1e3, 1)
