"""Several subjects at a time: in threads, or on the workers of a cluster.

A worker of another process gets the names of mapped files, not their voxels: save a
large study first.
"""

import logging
import mmap
import os
import re
import time
import warnings
from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator
from concurrent.futures import BrokenExecutor, CancelledError, ThreadPoolExecutor
from contextlib import contextmanager, nullcontext, suppress
from functools import lru_cache
from importlib import import_module
from io import BytesIO
from itertools import count
from pathlib import Path
from pickle import HIGHEST_PROTOCOL, loads
from threading import local
from typing import Any, TypeVar

import numpy as np
from joblib import Parallel, cpu_count, delayed
from joblib.parallel import LokyBackend, get_active_backend
from numpy.typing import NDArray
from threadpoolctl import ThreadpoolController

from brainweave._core.arrays import as_sendable, backing_map
from brainweave._core.exceptions import (
    BrainweaveError,
    ClusterError,
    InputError,
    StudyError,
)
from brainweave._core.validation import check_n_jobs

Result = TypeVar("Result")
CaughtWarning = tuple[type[Warning], str]

WORTH_PROCESSES = 20.0  # seconds of work from which on processes are started
WORKER_TIMEOUT = 60.0  # seconds that a cluster may be without any worker
_LOOK = 1.0  # seconds between looks at a cluster that works
_AHEAD = 4  # tasks per core that wait at the scheduler, so that none has to wait


@lru_cache(maxsize=1)
def _thread_controller() -> ThreadpoolController:
    return ThreadpoolController()


def blas_threads(number: int) -> Any:
    """Limit BLAS to a number of threads, as a context: idle threads spin."""
    return _thread_controller().limit(limits=number, user_api="blas")


def cluster_workers() -> int | None:
    """Return how many workers the configured joblib backend has; None: own threads."""
    backend, _ = get_active_backend(prefer="threads")
    if getattr(backend, "supports_sharedmem", False):
        return None
    client = getattr(backend, "client", None)
    return int(backend.effective_n_jobs(-1)) if client is None else _n_cores(client)


def map_subjects(
    function: Callable[..., Result],
    *arguments: Any,
    n_jobs: int | None = None,
    threads_only: bool = False,
) -> list[Result]:
    """Apply a function to every subject, several subjects at a time in threads.

    A backend of ``joblib.parallel_config`` (such as Dask) is used instead, unless
    `threads_only`: work that reads no voxels costs more to send than to do.
    """
    items = list(zip(*arguments, strict=True))
    workers = n_workers(len(items), n_jobs)
    on_cluster = not threads_only and n_jobs != 1 and len(items) > 1
    cluster = cluster_workers() if on_cluster else None
    if cluster is None:  # plain threads start faster
        with subject_threads(len(items), n_jobs, share_cores=True) as over_subjects:
            return over_subjects(lambda item: function(*item), items)
    with blas_threads(max(1, cpu_count() // workers)):
        answers = list(_answers(function, items, max(workers, cluster)))
    return [_result_of(answer) for answer in answers]  # or the first subject's error


def n_workers(n_items: int, n_jobs: Any) -> int:
    """Return how many threads to use; None, and numbers below 1, mean one per core."""
    n_jobs = check_n_jobs(n_jobs)
    wanted = n_jobs if n_jobs is not None and n_jobs > 0 else cpu_count()
    return int(min(wanted, n_items))


@contextmanager
def subject_threads(
    n_subjects: int, n_jobs: int | None = None, *, share_cores: bool = False
) -> Iterator[Callable[..., list[Any]]]:
    """Yield a map over subjects whose threads stay alive for a whole iteration.

    BLAS keeps to one thread, so the result does not depend on the number of workers in
    a single bit. With ``share_cores``, for large matrices, subjects share the cores as
    in :func:`map_subjects`, and BLAS has all of them in between.
    """
    workers = n_workers(n_subjects, n_jobs)
    with nullcontext() if share_cores else blas_threads(1):
        if workers <= 1:
            yield lambda function, *lists: list(map(function, *lists))
            return
        n_threads = max(1, cpu_count() // workers)
        with ThreadPoolExecutor(workers) as pool:

            def over_subjects(function: Callable[..., Any], *lists: Any) -> list[Any]:
                with blas_threads(n_threads) if share_cores else nullcontext():
                    return list(pool.map(function, *lists))

            yield over_subjects


def on_workers(
    function: Callable[..., Result],
    calls: Iterable[tuple[Any, ...]],
    n_jobs: Any,
    *,
    n_small: int = 0,
) -> Generator[Result]:
    """Call a function by the configured joblib backend; yield results in order.

    Threads do small calls, which are mostly Python, one after the other. So processes
    are started where `n_small` calls take long, unless a backend is configured.
    """
    calls, each = iter(calls), 0.0
    if n_small > 2 and n_jobs != 1 and isinstance(get_active_backend()[0], LokyBackend):
        seconds = []
        for _ in range(2):  # the first may import something
            start = time.perf_counter()
            result = function(*next(calls))
            seconds.append(time.perf_counter() - start)
            yield result
        each = min(seconds)
    processes = each * n_small > WORTH_PROCESSES
    answers = _answers(function, calls, n_jobs, processes=processes)
    yield from map(_result_of, answers)


def _answers(
    function: Callable[..., Any],
    calls: Iterable[tuple[Any, ...]],
    n_jobs: Any,
    *,
    processes: bool = False,
) -> Generator[Any]:
    """Yield the result and the error of each call."""
    backend = get_active_backend(prefer="threads")[0]
    if getattr(backend, "client", None) is not None:
        yield from _on_dask(backend.client, function, calls)
        return
    if processes or not getattr(backend, "supports_sharedmem", False):
        # joblib passes mapped files on by name, which may lack what this process holds
        calls = (tuple(map(as_sendable, call)) for call in calls)
    how: Any = {"prefer": "threads", "return_as": "generator"}
    if processes:
        how |= {"backend": "loky", "max_nbytes": None}
    try:
        pool = Parallel(n_jobs=n_jobs, **how)
        yield from pool(delayed(_call)(function, call) for call in calls)
    except BrokenExecutor:
        raise StudyError(
            "A process that read subjects died; often the memory was full. Use "
            "n_jobs=1, or fewer processes, and start again."
        ) from None


def _call(function: Callable[..., Any], arguments: tuple[Any, ...]) -> Any:
    """Return a result and an error: one raised there would look like the cluster's."""
    try:
        return function(*arguments), None
    except Exception as error:
        return None, error


def _result_of(answer: Any) -> Any:
    result, error = answer
    if error is not None:
        raise error
    return result


def _on_dask(
    client: Any, function: Callable[..., Any], calls: Iterable[tuple[Any, ...]]
) -> Generator[Any]:
    """Submit whole calls to Dask; one whose worker dies is done again by another.

    joblib scatters large arguments over the workers instead, which are lost with them.
    """
    waiting: deque[Any] = deque()
    most = _AHEAD * _n_cores(client)
    try:
        for call in calls:
            with explain_lost_cluster(client):
                sent = close((function, call))
                waiting.append(client.submit(_call_closed, sent, pure=False))
            if len(waiting) >= most:
                yield loads(_wait_for(client, waiting.popleft()))
        while waiting:
            yield loads(_wait_for(client, waiting.popleft()))
    finally:
        if waiting:  # one failed, or nobody wants the rest
            with suppress(Exception):
                client.cancel(list(waiting))


def _call_closed(closed: bytes) -> bytes:
    return close(_call(*loads(closed)))


def _wait_for(client: Any, future: Any) -> Any:
    """Return what a call returned; wait for it as long as there are workers."""
    while True:
        with explain_lost_cluster(client), suppress(TimeoutError):
            return future.result(timeout=_LOOK)
        _n_cores(client)


def _n_cores(client: Any) -> int:
    """Return how many cores the workers have; wait for a worker if there is none."""
    begin = time.monotonic()
    with explain_lost_cluster(client):
        while True:
            n_cores = sum(client.ncores().values())
            if n_cores:
                return int(n_cores)
            if time.monotonic() - begin > WORKER_TIMEOUT:
                raise TimeoutError
            time.sleep(_LOOK)


@contextmanager
def explain_lost_cluster(client: Any) -> Iterator[None]:
    """Turn the loss of Dask's scheduler or workers into a ClusterError."""
    try:
        yield
    except BrainweaveError:
        raise
    except Exception as error:
        if type(error).__name__ == "KilledWorker":
            problem = (
                "Workers of Dask died one after another, often because the memory was "
                "full. Start workers with more memory."
            )
        elif isinstance(error, TimeoutError):
            seconds = f"{WORKER_TIMEOUT:.0f} s"
            problem = f"No worker of Dask was alive for {seconds}. Start a dask worker."
        elif client.status != "running" or isinstance(error, OSError | CancelledError):
            problem = "The Dask scheduler went away. Start it again."
        else:
            raise
        raise ClusterError(problem) from error


class WarningCollector:
    """Collects the warnings of each thread; ``catch_warnings`` is for all threads."""

    def __init__(self) -> None:
        self._thread = local()
        self.is_installed = False

    @contextmanager
    def installed(self) -> Iterator[None]:
        """Receive all warnings; those of threads that do not collect are shown."""
        with warnings.catch_warnings():
            show = warnings.showwarning

            def receive(message: Any, category: type[Warning], *where: Any) -> None:
                caught = getattr(self._thread, "caught", None)
                if caught is None:
                    show(message, category, *where)
                else:
                    caught.append((category, str(message)))

            warnings.simplefilter("always")
            warnings.showwarning = receive  # type: ignore[assignment]
            self.is_installed = True
            try:
                yield
            finally:
                self.is_installed = False

    @contextmanager
    def collect(self) -> Iterator[list[CaughtWarning]]:
        """Yield the list that the warnings of this thread go to."""
        self._thread.caught = []
        try:
            yield self._thread.caught
        finally:
            self._thread.caught = None


def close(value: Any) -> bytes:
    """Pickle for another machine: mapped files by name; no scheduler opens them."""
    closed, base = BytesIO(), import_module("cloudpickle").Pickler  # comes with Dask
    table = {**base.dispatch_table, np.ndarray: _name_map, np.memmap: _name_map}
    type("Closer", (base,), {"dispatch_table": table})(closed).dump(value)
    return closed.getvalue()


def _name_map(X: Any) -> Any:
    """Return how to make an array again: of a mapped one, its file and the place."""
    mapped = backing_map(X)
    if mapped is None or mapped.mode != "r":  # memory may hold what the file lacks
        return X.__reduce_ex__(HIGHEST_PROTOCOL)
    start = mapped.offset - mapped.offset % mmap.ALLOCATIONGRANULARITY
    address = np.frombuffer(mapped._mmap, np.uint8).ctypes.data
    layout = (X.shape, X.dtype, X.strides, start + X.ctypes.data - address)
    return _map_again, (os.path.realpath(mapped.filename), layout)


def _map_again(path: str, layout: Any) -> NDArray[Any]:
    shape, dtype, strides, offset = layout
    try:
        return np.ndarray(shape, dtype, np.memmap(path, mode="r"), offset, strides)
    except (OSError, ValueError, TypeError) as error:
        raise InputError(
            f"A worker cannot open {path!r} ({error}). Put the study where all workers "
            "see it under the same name."
        ) from error


SCHEDULER_TIMEOUT = 10  # seconds to wait for the scheduler's answer


@contextmanager
def dask_client(
    scheduler: str, *, note: Callable[[str], None] | None = None
) -> Iterator[Any]:
    """Connect to a Dask cluster, or start one here, and wait for a worker.

    `scheduler` is the address of a scheduler, its scheduler file, or "local" ("local:4"
    for 4 processes of this machine); `note` is told when a worker is waited for.
    """
    try:
        distributed: Any = import_module("distributed")
    except ImportError:
        message = "Dask is not installed: pip install 'brainweave[cluster]'."
        raise InputError(message, parameter="dask") from None
    cluster: Any = nullcontext()
    where: dict[str, Any] = {"address": scheduler}
    if local := re.fullmatch(r"local(?::([1-9]\d*))?", scheduler):
        cluster = where["address"] = distributed.LocalCluster(
            n_workers=int(local[1]) if local[1] else None,
            threads_per_worker=1,
            dashboard_address=None,
        )
    elif Path(scheduler).is_file():
        where = {"scheduler_file": scheduler}
    # tasks of a dead worker are done again and other errors are raised: no logs
    for name in ("asyncio", *logging.root.manager.loggerDict):
        if name.partition(".")[0] in ("asyncio", "distributed", "tornado"):
            logging.getLogger(name).setLevel(logging.CRITICAL + 1)
    with cluster:
        try:
            client = distributed.Client(**where, timeout=SCHEDULER_TIMEOUT)
        except Exception as error:  # a file may hold anything
            raise InputError(
                f"No Dask scheduler answers at {scheduler!r} within "
                f"{SCHEDULER_TIMEOUT} s ({type(error).__name__}). Give the address or "
                "the scheduler file of one that `dask scheduler` started, or local:N.",
                parameter="dask",
            ) from None
        try:
            if note is not None and not client.scheduler_info()["workers"]:
                note(f"Waiting for a worker of {scheduler} ...")
            with explain_lost_cluster(client):
                client.wait_for_workers(1, timeout=WORKER_TIMEOUT)
            yield client
        finally:
            with suppress(Exception):  # of a scheduler that is gone
                client.close(timeout=SCHEDULER_TIMEOUT)


# -- progress --------------------------------------------------------------------------


#: Called with the number of steps done, their total number and the last step.
Progress = Callable[[int, int, str], None]


@contextmanager
def shown_progress(
    progress: Progress | bool | None, total: int, what: str
) -> Iterator[Callable[..., None]]:
    """Yield a function to call after each step, as ``tick()`` or ``tick("sub-01")``.

    `progress` is a function of the number of steps done, their total number and the
    name of the last step (`what`, if it has none), or True for a bar on standard error.
    """
    if progress is None or progress is False:
        yield lambda text=what: None
    elif progress is True:
        from rich.console import Console
        from rich.progress import Progress as Bar

        # a notebook gets the text of a terminal: rich's own bar there needs ipywidgets
        console = Console(stderr=True, force_jupyter=False)
        with Bar(console=console, transient=True) as bar:
            task = bar.add_task(what, total=total)
            yield lambda text=what: bar.update(task, advance=1, description=text)
    elif callable(progress):
        steps = count(1)
        yield lambda text=what: progress(next(steps), total, text)
    else:
        raise TypeError(
            f"progress must be True, False or a function of (done, total, what); got "
            f"{progress!r}."
        )
