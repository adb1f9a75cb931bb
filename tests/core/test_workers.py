"""Several subjects at a time: errors and warnings stay whose they are."""

import logging
import pickle
import re
import threading
import warnings
from concurrent.futures import CancelledError
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager, nullcontext
from types import SimpleNamespace

import joblib
import numpy as np
import pytest

from brainweave._core import workers
from brainweave._core.exceptions import ClusterError, InputError, StudyError
from brainweave._core.workers import WarningCollector, map_subjects


def refuse_odd(number):
    if number % 2:
        raise InputError(f"{number} is odd")
    return 10 * number


def test_the_error_of_a_process_is_that_of_the_first_subject():
    with joblib.parallel_config(backend="loky", n_jobs=2):
        assert map_subjects(refuse_odd, [0, 2, 4]) == [0, 20, 40]
        with pytest.raises(InputError, match="3 is odd"):
            map_subjects(refuse_odd, [2, 3, 5])


def test_who_does_not_listen_lets_warnings_through():
    collector = WarningCollector()
    with warnings.catch_warnings(record=True) as shown, collector.installed():
        with collector.collect() as caught:
            warnings.warn("to one", UserWarning, stacklevel=1)
        warnings.warn("to all", UserWarning, stacklevel=1)
    assert caught == [(UserWarning, "to one")]
    assert [str(warning.message) for warning in shown] == ["to all"]


def test_each_thread_collects_its_own_warnings_while_installed():
    collector = WarningCollector()
    assert not collector.is_installed

    def warn(name):
        with collector.collect() as caught:
            for _ in range(2):  # all of them, not only the first of a place
                warnings.warn(name, UserWarning, stacklevel=1)
        return caught

    with warnings.catch_warnings():
        warnings.simplefilter("error")
        before = warnings.showwarning
        with collector.installed():
            assert collector.is_installed
            found = map_subjects(warn, ["a", "b", "c"], n_jobs=3)
        assert warnings.showwarning is before
    assert found == [[(UserWarning, name)] * 2 for name in "abc"]
    assert not collector.is_installed


@pytest.fixture
def blas(monkeypatch):
    """Pretend that there are eight cores, and note the limits that BLAS is given."""
    asked = []

    @contextmanager
    def limit(number):
        asked.append(number)
        yield

    monkeypatch.setattr(workers, "cpu_count", lambda: 8)
    monkeypatch.setattr(workers, "blas_threads", limit)
    return asked


def test_one_job_per_core_and_no_more_than_subjects(blas):
    for jobs in (None, -1, 9):
        assert workers.n_workers(20, jobs) == (9 if jobs == 9 else 8)
        assert workers.n_workers(3, jobs) == 3
    assert workers.n_workers(20, 1) == 1
    assert workers.n_workers(0, None) == 0


def test_threads_share_the_cores_with_blas(blas):
    def where(*numbers):
        return threading.current_thread() is threading.main_thread(), sum(numbers)

    assert map_subjects(where, [1, 2], [3, 4], n_jobs=2) == [(False, 4), (False, 6)]
    assert blas == [4]  # threads of each of two workers
    for items, jobs in (([1, 2], 1), ([1], None)):
        blas.clear()
        assert map_subjects(where, items, n_jobs=jobs) == [(True, i) for i in items]
        assert blas == []
    assert map_subjects(where, [], n_jobs=2) == []
    with workers.subject_threads(3, 2) as over:
        assert over(where, [1, 2, 3]) == [(False, 1), (False, 2), (False, 3)]
        assert blas == [1]
    blas.clear()
    with workers.subject_threads(3, 1) as over:
        assert over(where, [1, 2], [1, 1]) == [(True, 2), (True, 3)]
    assert blas == [1]
    blas.clear()
    with workers.subject_threads(20, share_cores=True) as over:
        over(where, range(20))
        assert blas == [1]
    with pytest.raises(ValueError, match="shorter"):
        map_subjects(where, [1, 2], [1])


def test_blas_keeps_to_its_threads():
    controller = workers._thread_controller()
    before = controller.info()
    with workers.blas_threads(1):
        counts = {
            i["num_threads"] for i in controller.info() if i["user_api"] == "blas"
        }
    assert counts == {1}
    assert controller.info() == before
    assert workers._thread_controller() is controller


class Future:
    def __init__(self, answer, late=0, error=None):
        self.answer, self.late, self.error = answer, late, error

    def result(self, timeout):
        assert timeout == workers._LOOK
        self.late -= 1
        if self.late >= 0:
            raise TimeoutError
        if self.error is not None:
            raise self.error
        return self.answer


class Client:
    """What is used of a client of Dask."""

    status = "running"

    def __init__(self, *n_cores):
        self.cores, self.looks = list(n_cores) or [2], 0
        self.sent, self.cancelled, self.error, self.late = [], [], None, 0

    def ncores(self):
        self.looks += 1
        n = self.cores.pop(0) if len(self.cores) > 1 else self.cores[0]
        return {f"worker {i}": 1 for i in range(n)}

    def submit(self, function, sent, *, pure):
        assert not pure  # equal calls are different work
        self.sent.append(function(sent))
        return Future(self.sent[-1], self.late, self.error)

    def cancel(self, futures):
        self.cancelled += [pickle.loads(future.answer)[0] for future in futures]


def test_dask_gets_a_few_calls_ahead_and_answers_in_order():
    pytest.importorskip("cloudpickle")
    client = Client(2)
    calls = ((i,) for i in range(0, 40, 2))
    answers = workers._on_dask(client, refuse_odd, calls)
    assert next(answers) == (0, None)
    assert len(client.sent) == 2 * workers._AHEAD
    assert next(answers) == (20, None)
    assert len(client.sent) == 2 * workers._AHEAD + 1
    answers.close()  # nobody wants the rest
    assert client.cancelled == [10 * i for i in range(4, 18, 2)]

    client = Client(2)
    found = list(workers._on_dask(client, refuse_odd, [(i,) for i in range(20)]))
    assert [result for result, _ in found[::2]] == list(range(0, 200, 20))
    assert [str(error) for _, error in found[1::2]] == [
        f"{i} is odd" for i in range(1, 20, 2)
    ]
    assert client.cancelled == []


def test_a_late_answer_is_waited_for_while_there_are_workers():
    pytest.importorskip("cloudpickle")
    client = Client(2)
    client.late = 3
    assert list(workers._on_dask(client, refuse_odd, [(2,)])) == [(20, None)]
    assert client.looks == 1 + 3
    client = Client(2)
    client.error = OSError("gone")
    with pytest.raises(ClusterError, match="scheduler went away"):
        list(workers._on_dask(client, refuse_odd, [(2,), (4,)]))
    assert client.cancelled == [40]


def test_a_cluster_without_workers_is_given_up_after_a_while(monkeypatch):
    clock = [0.0]
    monkeypatch.setattr(
        workers,
        "time",
        SimpleNamespace(
            monotonic=lambda: clock[0],
            sleep=lambda seconds: clock.__setitem__(0, clock[0] + seconds),
        ),
    )
    assert workers._n_cores(Client(0, 0, 3)) == 3
    assert clock == [2 * workers._LOOK]
    clock[0] = 0.0
    with pytest.raises(ClusterError, match="No worker of Dask was alive for 60 s"):
        workers._n_cores(Client(0))
    assert clock == [workers.WORKER_TIMEOUT + workers._LOOK]


def test_the_loss_of_a_cluster_is_explained():
    class KilledWorker(Exception):
        pass

    died = "Workers of Dask died one after another"
    gone = "The Dask scheduler went away. Start it again."
    for error, status, told in (
        (KilledWorker(), "running", died),
        (TimeoutError(), "running", "No worker of Dask was alive for 60 s"),
        (TimeoutError(), "closed", "No worker of Dask was alive for 60 s"),
        (OSError(), "running", gone),
        (CancelledError(), "running", gone),
        (RuntimeError(), "closed", gone),
    ):
        with (
            pytest.raises(ClusterError, match=f"^{told}") as found,
            workers.explain_lost_cluster(SimpleNamespace(status=status)),
        ):
            raise error
        assert found.value.__cause__ is error
    for error, status in (
        (RuntimeError("own"), "running"),
        (InputError("own"), "closed"),
    ):
        with (
            pytest.raises(type(error), match="own"),
            workers.explain_lost_cluster(SimpleNamespace(status=status)),
        ):
            raise error
    with workers.explain_lost_cluster(SimpleNamespace(status="closed")):
        pass


@pytest.fixture
def backend(monkeypatch):
    """Put a backend of joblib in the place of the configured one."""

    def use(**attributes):
        found = SimpleNamespace(**attributes)
        monkeypatch.setattr(workers, "get_active_backend", lambda prefer: (found, 1))

    return use


def test_calls_go_to_the_configured_cluster(backend, blas):
    pytest.importorskip("cloudpickle")
    backend(supports_sharedmem=True)
    assert workers.cluster_workers() is None
    backend(supports_sharedmem=False, effective_n_jobs=lambda n: 7 if n == -1 else 0)
    assert workers.cluster_workers() == 7
    client = Client(3)
    backend(client=client)
    assert workers.cluster_workers() == 3
    assert map_subjects(refuse_odd, [2, 4], n_jobs=2) == [20, 40]
    assert len(client.sent) == 2
    assert blas == [4]
    assert map_subjects(refuse_odd, [2, 4]) == [20, 40]
    assert len(client.sent) == 4
    with pytest.raises(InputError, match="3 is odd"):
        map_subjects(refuse_odd, [2, 3, 5])
    sent = len(client.sent)
    for more in ({"n_jobs": 1}, {"threads_only": True}):  # not worth sending
        assert map_subjects(refuse_odd, [2, 4], **more) == [20, 40]
    assert map_subjects(refuse_odd, [2]) == [20]
    assert len(client.sent) == sent
    assert list(workers.on_workers(refuse_odd, [(2,), (4,)], 2)) == [20, 40]
    assert len(client.sent) == sent + 2


def test_maps_are_sent_as_copies_where_memory_is_not_shared(backend, tmp_path):
    np.save(tmp_path / "x.npy", np.arange(6.0))
    mapped = np.load(tmp_path / "x.npy", mmap_mode="c")
    backend(supports_sharedmem=False)
    (found,) = workers.on_workers(lambda x: x, [(mapped,)], 1)
    assert found is not mapped
    np.testing.assert_array_equal(found, mapped)
    backend(supports_sharedmem=True)
    (found,) = workers.on_workers(lambda x: x, [(mapped,)], 1)
    assert found is mapped


def test_a_process_that_dies_is_explained(backend, monkeypatch):
    backend(supports_sharedmem=True)

    def broken(**_):
        def run(calls):
            raise BrokenProcessPool

        return run

    monkeypatch.setattr(workers, "Parallel", broken)
    with pytest.raises(StudyError, match=r"process that read subjects died.*n_jobs=1"):
        list(workers.on_workers(refuse_odd, [(2,)], 2))


def test_maps_of_files_go_by_name(tmp_path):
    pytest.importorskip("cloudpickle")
    data = np.arange(40_000.0).reshape(200, 200)
    np.save(tmp_path / "x.npy", data)
    raw = np.memmap(tmp_path / "raw", mode="w+", shape=3 * 4096 + 80_000)
    raw[:] = np.arange(raw.size) % 251
    raw.flush()
    mapped = np.load(tmp_path / "x.npy", mmap_mode="r")
    later = np.memmap(tmp_path / "raw", np.uint8, "r", 2 * 4096 + 24, (70_000,))
    for view in (mapped, mapped[3:, ::2], mapped.T, later, later[100:]):
        closed = workers.close(view)
        assert len(closed) < 2000
        again = pickle.loads(closed)
        np.testing.assert_array_equal(again, view)
        assert not again.flags.writeable
        assert again.strides == view.strides
    changed = np.load(tmp_path / "x.npy", mmap_mode="c")
    changed[0, 0] = -1  # the file lacks this
    for held in (changed, data, raw):
        np.testing.assert_array_equal(pickle.loads(workers.close(held)), held)
    closed = workers.close(mapped)
    (tmp_path / "x.npy").unlink()
    with pytest.raises(InputError, match=r"cannot open '.*x.npy' .*No such file.*Put"):
        pickle.loads(closed)


@pytest.fixture
def distributed(monkeypatch):
    """Put a stand-in in the place of Dask's distributed; note what it is asked for."""
    asked = []

    class Connected:
        status = "running"

        def __init__(self, **where):
            asked.append(("Client", where))
            if where.get("address") == "nowhere":
                raise OSError

        def scheduler_info(self):
            return {"workers": self.workers}

        def wait_for_workers(self, n, timeout):
            asked.append(("wait", n, timeout))
            if self.status != "running":
                raise RuntimeError

        def close(self, timeout):
            asked.append(("close", timeout))
            raise OSError  # a scheduler that is gone

    def cluster(**how):
        asked.append(("LocalCluster", how))
        return nullcontext()

    Connected.workers = {}
    module = SimpleNamespace(Client=Connected, LocalCluster=cluster)
    monkeypatch.setattr(workers, "import_module", lambda name: module)
    return module, asked


def test_a_cluster_is_found_by_address_by_file_or_started(distributed, tmp_path):
    module, asked = distributed
    notes = []
    with workers.dask_client("tcp://there:1", note=notes.append) as client:
        assert type(client) is module.Client
    assert asked == [
        ("Client", {"address": "tcp://there:1", "timeout": 10}),
        ("wait", 1, 60.0),
        ("close", 10),
    ]
    assert notes == ["Waiting for a worker of tcp://there:1 ..."]
    module.Client.workers = {"one": 1}
    file = tmp_path / "scheduler.json"
    file.write_text("{}")
    asked.clear()
    with workers.dask_client(str(file), note=notes.append):
        pass
    assert asked[0] == ("Client", {"scheduler_file": str(file), "timeout": 10})
    assert len(notes) == 1
    for name, n in (("local", None), ("local:14", 14)):
        asked.clear()
        with workers.dask_client(name):
            pass
        settings = {"n_workers": n, "threads_per_worker": 1, "dashboard_address": None}
        assert asked[0] == ("LocalCluster", settings)
        assert type(asked[1][1]["address"]) is nullcontext
    asked.clear()
    with workers.dask_client("local:0"):  # no number of processes: an address
        pass
    assert asked[0][0] == "Client"


def test_a_cluster_that_does_not_answer_is_explained(distributed, monkeypatch):
    module, asked = distributed
    logger = logging.getLogger("distributed.of_this_test")
    other = logging.getLogger("undistributed")
    with pytest.raises(InputError) as error, workers.dask_client("nowhere"):
        pass
    assert str(error.value) == (
        "No Dask scheduler answers at 'nowhere' within 10 s (OSError). Give the "
        "address or the scheduler file of one that `dask scheduler` started, or "
        "local:N."
    )
    assert error.value.parameter == "dask"
    assert logger.level == logging.CRITICAL + 1
    assert other.level == logging.NOTSET
    asked.clear()
    module.Client.status = "closed"
    with (
        pytest.raises(ClusterError, match="scheduler went away"),
        workers.dask_client("there"),
    ):
        pass
    assert asked[-1] == ("close", 10)

    def missing(name):
        raise ImportError(name)

    monkeypatch.setattr(workers, "import_module", missing)
    with (
        pytest.raises(InputError, match=re.escape("install 'brainweave[cluster]'.")),
        workers.dask_client("local"),
    ):
        pass
