"""What the work runs on: a Dask cluster or this machine, and how much memory."""

import logging
import os
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, nullcontext, suppress
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any, ClassVar

from brainweave.cli.console import DEBUG, Console, UsageError
from brainweave.cli.options import RUN_PANEL, option

WORKER_TIMEOUT = 60  # seconds to wait for the first worker of a cluster
SCHEDULER_TIMEOUT = 10  # and for the scheduler's answer


@dataclass
class Engine:
    """What the work runs on: a cluster, and how much memory."""

    panel: ClassVar[str] = RUN_PANEL
    dask: str | None = option(
        "Let the workers of a Dask cluster read the voxels: address of its scheduler, "
        "its scheduler file, or local (local:4 for 4 processes of this machine).",
        metavar="SCHEDULER",
    )
    memory_limit: str | None = option(
        "Most memory of this process, such as 2GB: fewer subjects at the same time, "
        "narrower chunks of voxels."
    )

    @contextmanager
    def running(self, console: Console) -> Iterator[None]:
        """Use the cluster and the memory limit inside."""
        with ExitStack() as stack:
            if self.memory_limit is not None:
                from brainweave._core.arrays import memory_limit

                stack.enter_context(memory_limit(self.memory_limit))
            if self.dask is not None:
                import joblib

                client = stack.enter_context(_dask_client(self.dask, console))
                dask = joblib.parallel_config(backend="dask", client=client)
                stack.enter_context(dask)
            yield


@contextmanager
def _dask_client(given: str, console: Console) -> Iterator[Any]:
    """Connect to a scheduler, or start one here, and wait for a worker."""
    try:
        distributed: Any = import_module("distributed")
    except ImportError:
        raise UsageError(
            "--dask needs Dask, which is not installed: pip install 'brainweave"
            "[cluster]'."
        ) from None
    kind, _, number = given.partition(":")
    cluster: Any = nullcontext()
    where: dict[str, Any] = {"address": given}
    if kind == "local":
        if number and not (number.isdigit() and int(number)):
            raise UsageError(
                f"--dask local:N takes a number of workers; got {given!r}."
            )
        workers = {"n_workers": int(number)} if number else {}
        cluster = distributed.LocalCluster(
            **workers, threads_per_worker=1, dashboard_address=None
        )
        where = {"address": cluster}
    elif Path(given).is_file():
        where = {"scheduler_file": given}
    elif "://" not in given and ":" not in given:
        raise UsageError(
            f"--dask takes the address of a scheduler, such as tcp://host:8786, its "
            f"scheduler file, or local; there is no file {given!r}."
        )
    _silence_dask()
    with cluster:
        try:
            client = distributed.Client(**where, timeout=SCHEDULER_TIMEOUT)
        except Exception as error:  # a file may hold anything
            raise UsageError(
                f"No Dask scheduler answers at {given!r} within {SCHEDULER_TIMEOUT} s "
                f"({type(error).__name__}). Start one by: dask scheduler, and look for "
                "its address in what that prints."
            ) from None
        try:
            _wait_for_worker(client, given, console)
            yield client
        finally:
            with suppress(Exception):  # of a scheduler that is gone
                client.close(timeout=SCHEDULER_TIMEOUT)


def _wait_for_worker(client: Any, given: str, console: Console) -> None:
    from brainweave._core.workers import explain_lost_cluster

    with explain_lost_cluster(client):
        if not client.scheduler_info()["workers"]:  # a queue may take its time
            console.note(f"Waiting for a worker of {given} ...")
        try:
            client.wait_for_workers(1, timeout=WORKER_TIMEOUT)
        except TimeoutError:
            raise UsageError(
                f"The Dask scheduler at {given!r} has no workers after "
                f"{WORKER_TIMEOUT} s. Start some by: dask worker {given}."
            ) from None


def _silence_dask() -> None:
    """Let Dask log nothing: a dead worker's tasks are done again, the rest is raised.

    For good, since its threads may log until the process ends.
    """
    if os.environ.get(DEBUG):
        return
    for name in ("asyncio", *logging.root.manager.loggerDict):
        if name.partition(".")[0] in ("asyncio", "distributed", "tornado"):
            logging.getLogger(name).setLevel(logging.CRITICAL + 1)
