"""Work spread over processes by Dask: little is sent, and a worker may die."""

import os
import pickle
import signal
import subprocess
import sys
import time
import warnings
from contextlib import contextmanager, suppress

import joblib
import numpy as np
import pandas as pd
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from sklearn.base import clone
from sklearn.exceptions import ConvergenceWarning

from brainweave import (
    GDM,
    SRM,
    DetSRM,
    PaperGDM,
    Parcelwise,
    Study,
    Subject,
    SubjectBasis,
    between_subject_classification,
    load,
    simulate_brains,
    simulate_study,
)
from brainweave._core.arrays import backing_map
from brainweave._core.exceptions import ClusterError, InputError
from brainweave._core.workers import close, map_subjects
from brainweave.cli.console import run as run_command
from evaluation_studies import score_matching, study_lists

N, V = 40, 20_000  # 6.4 MB a subject, of which the Gram matrix is 13 kB


@pytest.fixture
def study(tmp_path, rng):
    shared = rng.standard_normal((N, 3))
    subjects = [
        Subject(
            f"{i}",
            shared @ rng.standard_normal((3, V)) + rng.standard_normal((N, V)),
            labels=np.arange(N) % 4,
        )
        for i in range(4)
    ]
    return Study(subjects).save(tmp_path / "study")


def views(study):
    samples = study[0].samples
    return {
        "subject": study[0],
        "rows": study[0].select([7, 3, 1]),
        "map": samples,
        "view": np.asarray(samples)[3:9, ::-2],
        "basis": SubjectBasis(samples),
    }


def content(value):
    if hasattr(value, "data") and callable(value.data):
        return value.data()
    return value.combine(np.eye(N, 2)) if hasattr(value, "combine") else value


@pytest.mark.parametrize("kind", ["subject", "rows", "map", "view", "basis"])
def test_mapped_voxels_are_not_sent(study, kind):
    value = views(study)[kind]
    sent = close(value)
    voxel_sized = 4 * V * 8  # mean and scale of a basis, and some room
    assert len(sent) < (voxel_sized if kind == "basis" else 20_000)
    again = pickle.loads(sent)
    assert_array_equal(content(again), content(value))
    if kind in ("map", "view"):
        assert backing_map(again) is not None
    # files that people pickle into hold the voxels, as ever
    assert len(pickle.dumps(value)) > 400_000


def test_what_exists_only_in_memory_is_sent(study):
    path = study[0].samples.filename
    held = np.load(path, mmap_mode="c")
    held -= 1
    assert_array_equal(pickle.loads(close(held)), held)


def test_a_worker_that_cannot_see_the_file_reports_it(study):
    sent = close(study[0])
    os.unlink(study[0].samples.filename)
    with pytest.raises(InputError, match="A worker cannot open"):
        pickle.loads(sent)


def test_the_function_that_is_sent_holds_no_model_and_no_voxels(study, monkeypatch):
    cloudpickle = pytest.importorskip("cloudpickle", reason="comes with Dask")
    seen = []

    def spy(function, *lists, n_jobs=None, threads_only=False):
        seen.append(len(cloudpickle.dumps(function)))
        return map_subjects(function, *lists, n_jobs=n_jobs)

    monkeypatch.setattr("brainweave.aligners.base.map_subjects", spy)
    gdm = GDM(2)
    gdm.fit(study)
    gdm.fit(study)  # fitted already
    assert max(seen) < 20_000


@pytest.fixture
def sent(monkeypatch):
    """Pretend to have a cluster: pickle all that goes to it; return the sizes."""
    pytest.importorskip("cloudpickle", reason="comes with Dask")
    sizes = []

    def send(calls):
        for function, arguments, named in calls:
            there = close((function, arguments, named))
            function, arguments, named = pickle.loads(there)
            back = close(function(*arguments, **named))
            sizes.append(max(len(there), len(back)))
            yield pickle.loads(back)

    monkeypatch.setattr("brainweave._core.workers.cluster_workers", lambda: 2)
    monkeypatch.setattr(
        "brainweave._core.workers.Parallel", lambda **options: lambda calls: send(calls)
    )
    return sizes


# mean, scale, weights and the like of one subject; the voxels of a half are 20 V
PASS = 8 * V * 8


@pytest.mark.parametrize("aligner", [GDM(2), PaperGDM(2, energy=0.6), SRM(2)])
def test_no_stage_of_an_evaluation_sends_voxels(study, sent, aligner):
    result = between_subject_classification(aligner, study, random_state=0)
    assert len(sent) > 8  # the bases of two halves, and the folds
    assert max(sent) < PASS
    alone = between_subject_classification(aligner, study, n_jobs=1, random_state=0)
    assert_array_equal(result.scores, alone.scores)


def test_a_transform_sends_no_voxels(study, sent):
    gdm = GDM(2).fit(study)
    found = gdm.transform(study)
    assert len(sent) == 8
    assert max(sent) < PASS
    for ours, theirs in zip(found, GDM(2, n_jobs=1).fit_transform(study), strict=True):
        assert_allclose(ours, theirs, atol=1e-9)


def test_a_fit_of_bases_stays_where_they_are(study, sent):
    bases = GDM(2, n_jobs=1).fit(study).bases_
    for aligner in (
        GDM(2),
        PaperGDM(2, energy=0.6),
        PaperGDM(2, energy=0.6, solver="iterative"),
    ):
        aligner.fit(bases, [s.labels for s in study])
    assert sent == []


def test_commands_send_no_voxels(study, sent, tmp_path):
    folder = study[0].samples.filename.parent
    for command, what in (("fit", "model.safetensors"), ("compare", "out")):
        del sent[:]
        more = [] if command == "fit" else ["--no-report"]
        at = tmp_path / what
        assert run_command([command, str(folder), "-o", str(at), "-q", *more]) == 0
        assert sent
        assert max(sent) < PASS


def test_the_app_makes_bases_on_workers(sent, tmp_path):
    people = simulate_study(n_subjects=2, n_voxels=60, categories=3, n_runs=2)
    people.to_bids(tmp_path / "bids", raw=True, derivatives=False)
    places = [str(tmp_path / "bids"), str(tmp_path / "out")]
    assert run_command(["run", *places, "participant", "-q"]) == 0
    assert len(sent) == 2
    assert len(list((tmp_path / "out").rglob("*basis.safetensors"))) == 2


@contextmanager
def two_workers():
    distributed = pytest.importorskip("distributed", reason="the extra 'cluster'")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of Dask, about its own ports and closing
        cluster = distributed.LocalCluster(
            n_workers=2, threads_per_worker=1, processes=True, dashboard_address=None
        )
        with cluster, distributed.Client(cluster) as client:
            yield client


@pytest.fixture(scope="module")
def client():
    with two_workers() as client:
        yield client


class Slow:
    """Samples that take a while, in a worker that may be told to die."""

    def __init__(self, parent, mark):
        self.parent, self.mark = parent, mark
        self.shape, self.dtype, self.ndim = parent.shape, parent.dtype, 2

    def __getitem__(self, key):
        try:
            with open(self.mark, "x") as file:  # whoever comes first
                file.write(str(os.getpid()))
        except FileExistsError:
            return self.parent[key]
        time.sleep(0.2)
        os.kill(os.getpid(), signal.SIGKILL)
        return None


def a_worker_of(client):
    """Return the process of a worker that answers, if need be of one started again."""
    while True:  # until pytest's timeout
        with suppress(Exception):  # of a dead worker that is still listed
            return min(client.run(os.getpid).values())
        time.sleep(0.1)


def assert_dead(pid):
    """Wait until a process is gone: the one that started it takes notice."""
    for _ in range(600):
        try:
            os.kill(pid, 0)
        except ProcessLookupError:
            return
        time.sleep(0.1)
    raise AssertionError(f"The process {pid} is alive.")


@pytest.mark.filterwarnings("ignore::Warning:distributed")
def test_a_study_on_disk_is_fitted_by_workers(study, client):
    expected = GDM(2).fit(study)
    with joblib.parallel_config(backend="dask"):
        gdm = GDM(2, n_jobs=2).fit(study)
        assert all(backing_map(b._data) is not None for b in gdm.bases_)
        shared = gdm.transform(study)
    for ours, theirs in zip(shared, expected.transform(study), strict=True):
        assert_allclose(ours, theirs, atol=1e-9)


@pytest.mark.filterwarnings("ignore::Warning:distributed")
@pytest.mark.parametrize("whole", [True, False], ids=["whole brain", "parcels"])
def test_places_are_the_same_by_workers(tmp_path, client, whole):
    shape = (6, 7, 6)
    brains = simulate_brains(3, shape=shape, n_samples=60, mask_variability=0.1)
    study = brains.save(tmp_path / "study")
    sizes = [subject.n_voxels for subject in study]
    assert len(set(sizes)) > 1
    local = GDM(2, graph="time", place_shrinkage=0.1)
    parcels = [1 + np.arange(n) * 3 // n for n in sizes]
    aligner = local if whole else Parcelwise(local, parcels)
    expected = clone(aligner).fit(study)
    with joblib.parallel_config(backend="dask", n_jobs=2):
        found = clone(aligner).fit(study)
        shared = found.transform(study)
    pairs = [(found, expected)]
    if not whole:
        pairs = list(zip(found.aligners_, expected.aligners_, strict=True))
    for ours, theirs in pairs:
        assert theirs.place_.used
        assert ours.place_ == theirs.place_
        assert_allclose(ours.shared_, theirs.shared_, atol=1e-9)
    for ours, theirs in zip(shared, expected.transform(study), strict=True):
        assert_allclose(ours, theirs, atol=1e-9)
    own = {} if whole else {"parcels": parcels[0]}
    new = Subject("new", study[0].data(), space=study[0].space)
    with joblib.parallel_config(backend="dask", n_jobs=2):
        zero_shot = found.fit_new_subject(new, **own).transform(new.data())
    alone = expected.fit_new_subject(new, **own).transform(new.data())
    assert_allclose(zero_shot, alone, atol=1e-9)


@pytest.mark.filterwarnings("ignore::Warning:distributed")
def test_what_workers_warn_of_is_told_once(rng, client):
    X = [rng.normal(size=(20, 30)) for _ in range(3)]
    model = Parcelwise(DetSRM(3, max_iter=1, random_state=0), 1 + np.arange(30) // 10)
    told = pytest.warns(ConvergenceWarning, match="In 3 of 3 parcels")
    with joblib.parallel_config(backend="dask"), told as caught:
        model.fit(X)
    assert [w.category for w in caught].count(ConvergenceWarning) == 1


@pytest.mark.filterwarnings("ignore::Warning:distributed")
def test_workers_score_as_one_process_does(rng, client):
    X, y = study_lists(rng)
    y = [y[0]] * 4
    alone = between_subject_classification(GDM(2), X, y)
    matched = score_matching(GDM(2), X, y, window=3)
    with joblib.parallel_config(backend="dask"):
        apart = between_subject_classification(GDM(2), X, y, n_jobs=2)
        held = score_matching(GDM(2), X, y, window=3, n_jobs=2)
    assert_allclose(apart.scores, alone.scores, atol=1e-12)
    assert held.scores.shape == (2, 4)
    assert_allclose(held.scores, matched.scores, atol=1e-12)


@pytest.mark.filterwarnings("ignore::Warning:distributed")
def test_commands_take_the_address_of_a_scheduler(study, client, tmp_path, capsys):
    folder = str(study[0].samples.filename.parent)
    dask = ["--dask", client.scheduler.address]
    for name, more in (("here", []), ("there", dask)):
        at = str(tmp_path / name)
        fit = ["fit", folder, "-o", f"{at}.safetensors", "-q", *more]
        assert run_command(fit) == 0
        compare = ["compare", folder, "-o", at, "-q", "--no-report", *more]
        assert run_command(compare) == 0
    models = [load(tmp_path / f"{name}.safetensors") for name in ("here", "there")]
    for ours, theirs in zip(*(m.mixing_ for m in models), strict=True):
        assert_allclose(ours, theirs, atol=1e-12)
    tables = [(tmp_path / n / "folds.tsv").read_text() for n in ("here", "there")]
    assert tables[0] == tables[1]
    assert client.run(lambda: "brainweave" in sys.modules)  # they did the work
    assert "dask" not in (tmp_path / "there.toml").read_text()


@pytest.mark.filterwarnings("ignore::Warning:distributed")
def test_the_paper_is_reproduced_by_workers(client, tmp_path):
    from reproduction import table2

    def done(dask_scheduler):
        return dask_scheduler.transition_counter

    before = client.run_on_scheduler(done)
    options = {"quick": True, "datasets": ["DS105ROI"], "methods": ["GDM", "SRM"]}
    tables = [table2(tmp_path / "here", **options)]
    assert client.run_on_scheduler(done) == before
    with joblib.parallel_config(backend="dask", client=client):
        tables.append(table2(tmp_path / "there", **options))
    assert client.run_on_scheduler(done) > before
    pd.testing.assert_frame_equal(
        *(t.drop(columns="seconds", errors="ignore") for t in tables)
    )


@pytest.mark.parametrize(
    ("given", "told"),
    [
        ("tcp://127.0.0.1:1", "No Dask scheduler answers at 'tcp://127.0.0.1:1'"),
        ("nothing.json", "No Dask scheduler answers at 'nothing.json'"),
        ("local:x", "or local:N."),
    ],
)
@pytest.mark.filterwarnings("ignore::Warning:distributed")
def test_a_cluster_that_is_not_there_is_named(study, monkeypatch, capsys, given, told):
    pytest.importorskip("distributed", reason="the extra 'cluster'")
    monkeypatch.setattr("brainweave._core.workers.SCHEDULER_TIMEOUT", 1)
    folder = str(study[0].samples.filename.parent)
    assert run_command(["fit", folder, "--dask", given, "-q"]) == 2
    assert told in capsys.readouterr().err


def test_without_dask_the_extra_is_named(study, monkeypatch, capsys):
    monkeypatch.setitem(sys.modules, "distributed", None)
    folder = str(study[0].samples.filename.parent)
    assert run_command(["fit", folder, "--dask", "local", "-q"]) == 2
    assert "pip install 'brainweave[cluster]'" in capsys.readouterr().err


CLUSTER = """
import sys, distributed
if __name__ == "__main__":
    cluster = distributed.LocalCluster(
        n_workers=2, threads_per_worker=1, dashboard_address=None
    )
    print(cluster.scheduler_address, flush=True)
    sys.stdin.read()
"""


@pytest.fixture
def cluster(tmp_path):
    """A scheduler in another process, which may be killed with its workers."""
    pytest.importorskip("distributed", reason="the extra 'cluster'")
    (tmp_path / "cluster.py").write_text(CLUSTER)
    process = subprocess.Popen(
        [sys.executable, tmp_path / "cluster.py"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    )
    process.address = process.stdout.readline().strip()
    yield process
    process.kill()
    process.communicate()


@pytest.fixture
def at_submission(monkeypatch):
    """Return a function that lets something happen when the k-th task is submitted."""
    distributed = pytest.importorskip("distributed", reason="the extra 'cluster'")
    submit = distributed.Client.submit

    def arrange(k, act):
        count = iter(range(10_000))

        def counted(self, *arguments, **options):
            future = submit(self, *arguments, **options)
            if next(count) == k:
                act()
            return future

        monkeypatch.setattr(distributed.Client, "submit", counted)

    return arrange


def moments(some, all_):
    """Some moments always, all of them in the thorough suite."""
    more = [k for k in all_ if k not in some]
    return [*some, *(pytest.param(k, marks=pytest.mark.thorough) for k in more)]


def nap(samples):
    time.sleep(0.05)
    return float(samples.sum())


@pytest.mark.skipif(not hasattr(signal, "SIGKILL"), reason="no such signal here")
@pytest.mark.filterwarnings("ignore::Warning:distributed")
@pytest.mark.parametrize("k", moments([12], range(0, 20, 2)))
def test_tasks_of_a_killed_worker_are_done_by_another(rng, client, at_submission, k):
    X = [rng.standard_normal((N, 50)) for _ in range(20)]
    victim = a_worker_of(client)
    at_submission(k, lambda: (time.sleep(0.1), os.kill(victim, signal.SIGKILL)))
    with joblib.parallel_config(backend="dask"):
        assert map_subjects(nap, X) == [float(x.sum()) for x in X]
    assert_dead(victim)


@pytest.mark.filterwarnings("ignore::Warning:distributed")
@pytest.mark.parametrize("k", moments([13], range(1, 40, 4)))
def test_a_killed_scheduler_is_one_sentence_and_the_work_goes_on_later(
    study, cluster, at_submission, monkeypatch, tmp_path, capfd, k
):
    monkeypatch.setattr("brainweave._core.workers.SCHEDULER_TIMEOUT", 2)
    folder = str(study[0].samples.filename.parent)
    words = ["compare", folder, "-o", str(tmp_path / "out"), "-q", "--no-report"]
    at_submission(k, cluster.kill)
    assert run_command([*words, "--dask", cluster.address]) == 1
    assert capfd.readouterr().err.splitlines() == [
        "Error: The Dask scheduler went away. Start it again.",
        "Run the same command again; finished folds are kept.",
    ]
    assert run_command(words) == 0
    table = pd.read_csv(tmp_path / "out" / "folds.tsv", sep="\t")
    assert len(table) == 2 * 2 * 2 * len(study)  # methods, protocols, halves


@pytest.mark.filterwarnings("ignore::Warning:distributed")
def test_a_cluster_without_workers_is_named(monkeypatch):
    distributed = pytest.importorskip("distributed", reason="the extra 'cluster'")
    monkeypatch.setattr("brainweave._core.workers.WORKER_TIMEOUT", 1)
    cluster = distributed.LocalCluster(n_workers=0, dashboard_address=None)
    with (
        cluster,
        distributed.Client(cluster),
        joblib.parallel_config(backend="dask", wait_for_workers_timeout=1),
        pytest.raises(ClusterError, match=r"No worker .* was alive for 1 s\. Start"),
    ):
        map_subjects(nap, [np.zeros((3, 4))] * 2)


def die(samples):
    os.kill(os.getpid(), signal.SIGKILL)


@pytest.mark.skipif(not hasattr(signal, "SIGKILL"), reason="no such signal here")
@pytest.mark.filterwarnings("ignore::Warning:distributed")
def test_a_task_that_kills_every_worker_is_given_up():
    # a worker that dies while it starts is not started again: a cluster of its own
    with two_workers() as client:
        client.cluster.scheduler.allowed_failures = 1  # four take long
        with (
            joblib.parallel_config(backend="dask"),
            pytest.raises(ClusterError, match=r"died one after another.*more memory\."),
        ):
            map_subjects(die, [np.zeros((3, 4))] * 2)


@pytest.mark.filterwarnings("ignore::Warning:distributed")
def test_an_error_of_a_task_is_not_taken_for_one_of_the_cluster(client):
    with (
        joblib.parallel_config(backend="dask"),
        pytest.raises(FileNotFoundError, match="nowhere"),
    ):
        map_subjects(os.stat, ["nowhere"] * 2)


@pytest.mark.skipif(not hasattr(signal, "SIGKILL"), reason="no such signal here")
@pytest.mark.filterwarnings("ignore::Warning:distributed")
def test_a_killed_worker_costs_nothing_but_time(study, tmp_path, client):
    expected = GDM(2).fit(study)
    X = [Slow(s.samples, str(tmp_path / "killed")) for s in study]
    y = [s.labels for s in study]
    with joblib.parallel_config(backend="dask"):
        gdm = GDM(2, n_jobs=2).fit(X, y)
    killed = int((tmp_path / "killed").read_text())
    assert killed != os.getpid()
    assert_dead(killed)
    assert_allclose(gdm.eigenvalues_, expected.eigenvalues_, rtol=1e-12)
    shared = gdm.transform([s.samples for s in study])
    for ours, theirs in zip(shared, expected.transform(study), strict=True):
        assert_allclose(ours, theirs, atol=1e-9)
