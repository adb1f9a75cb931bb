"""Work spread over processes by Dask: little is sent, and a worker may die."""

import os
import pickle
import signal
import time
import warnings

import joblib
import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

from brainweave import GDM, Study, Subject, SubjectBasis
from brainweave._arrays import Sent, backing_map, map_subjects
from brainweave.exceptions import InputError

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
    sent = pickle.dumps(Sent(value))
    voxel_sized = 4 * V * 8  # mean and scale of a basis, and some room
    assert len(sent) < (voxel_sized if kind == "basis" else 20_000)
    passed_on = pickle.dumps(pickle.loads(sent))  # as a scheduler does
    assert len(passed_on) <= len(sent)
    again = pickle.loads(passed_on).open()
    assert_array_equal(content(again), content(value))
    if kind in ("map", "view"):
        assert backing_map(again) is not None
    # files that people pickle into hold the voxels, as ever
    assert len(pickle.dumps(value)) > 400_000


def test_what_exists_only_in_memory_is_sent(study):
    path = study[0].samples.filename
    held = np.load(path, mmap_mode="c")
    held -= 1
    assert_array_equal(pickle.loads(pickle.dumps(Sent(held))).open(), held)


def test_a_worker_that_sees_another_file_says_so(study):
    path = study[0].samples.filename
    sent = pickle.dumps(Sent(study[0]))
    os.utime(path, ns=(1, 1))
    with pytest.raises(InputError, match="sees another file as"):
        pickle.loads(sent).open()
    os.unlink(path)
    with pytest.raises(InputError, match="A worker cannot open"):
        pickle.loads(sent).open()


def test_the_function_that_is_sent_holds_no_model_and_no_voxels(study, monkeypatch):
    cloudpickle = pytest.importorskip("cloudpickle", reason="comes with Dask")
    seen = []

    def spy(function, *lists, n_jobs=None):
        seen.append(len(cloudpickle.dumps(function)))
        return map_subjects(function, *lists, n_jobs=n_jobs)

    monkeypatch.setattr("brainweave.aligners.base.map_subjects", spy)
    gdm = GDM(2)
    gdm.fit(study)
    gdm.fit(study)  # fitted already
    assert max(seen) < 20_000


@pytest.fixture(scope="module")
def client():
    distributed = pytest.importorskip("distributed", reason="the extra 'cluster'")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of Dask, about its own ports and closing
        cluster = distributed.LocalCluster(
            n_workers=2, threads_per_worker=1, processes=True, dashboard_address=None
        )
        with cluster, distributed.Client(cluster) as client:
            yield client


class Slow:
    """Samples that take a while, in a worker that may be told to die."""

    def __init__(self, parent, mark):
        self.parent, self.mark = parent, mark
        self.shape, self.dtype, self.ndim = parent.shape, parent.dtype, 2

    def __getitem__(self, key):
        try:
            os.close(os.open(self.mark, os.O_CREAT | os.O_EXCL))
        except FileExistsError:
            return self.parent[key]
        time.sleep(0.2)
        os.kill(os.getpid(), signal.SIGKILL)  # whoever comes first
        return None


@pytest.mark.filterwarnings("ignore::Warning:distributed")
def test_a_study_on_disk_is_fitted_by_workers(study, client):
    expected = GDM(2).fit(study)
    with joblib.parallel_config(backend="dask"):
        gdm = GDM(2, n_jobs=2).fit(study)
        assert all(backing_map(b._data) is not None for b in gdm.bases_)
        shared = gdm.transform(study)
    for ours, theirs in zip(shared, expected.transform(study), strict=True):
        assert_allclose(ours, theirs, atol=1e-9)


@pytest.mark.skipif(not hasattr(signal, "SIGKILL"), reason="no such signal here")
@pytest.mark.filterwarnings("ignore::Warning:distributed")
def test_a_killed_worker_costs_nothing_but_time(study, tmp_path, client):
    expected = GDM(2).fit(study)
    X = [Slow(s.samples, str(tmp_path / "killed")) for s in study]
    y = [s.labels for s in study]
    with joblib.parallel_config(backend="dask"):
        before = set(client.scheduler_info()["workers"])
        gdm = GDM(2, n_jobs=2).fit(X, y)
        assert (tmp_path / "killed").exists()
        after = set(client.scheduler_info()["workers"])
    assert before != after
    assert_allclose(gdm.eigenvalues_, expected.eigenvalues_, rtol=1e-12)
    shared = gdm.transform([s.samples for s in study])
    for ours, theirs in zip(shared, expected.transform(study), strict=True):
        assert_allclose(ours, theirs, atol=1e-9)
