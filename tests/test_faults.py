"""Kills, full disks, files that go, workers that die, Ctrl-C: nothing is lost or wrong.

The gate has a few faults of each kind; ``make test-thorough`` has fifty kills.
"""

import json
import os
import random
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import joblib
import numpy as np
import pandas as pd
import pytest

import brainweave as bw
from brainweave._core.exceptions import BrainweaveError
from brainweave.evaluation.grid import ResultStore

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="POSIX signals, fork")

METHOD = ("--n-components", "2", "--n-jobs", "1", "-q")
KILLS = [4, pytest.param(50, marks=[pytest.mark.thorough, pytest.mark.timeout(3000)])]


class Server:
    """Has commands done, and faults happen to them, by ``fault_work.py``."""

    def __init__(self, folder):
        self.said = folder / "said"
        self.process = subprocess.Popen(
            [sys.executable, "-W", "ignore", Path(__file__).with_name("fault_work.py")],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env={**os.environ, "OMP_NUM_THREADS": "1", "MPLBACKEND": "agg"},
        )
        assert self.process.stdout.readline() == "ready\n"

    def start(self, *command, place, **job):
        job |= {"command": list(map(str, command)), "place": str(place)}
        job["said"] = str(self.said)
        print(json.dumps(job), file=self.process.stdin, flush=True)

    def wait(self):
        answer = json.loads(self.process.stdout.readline())
        answer["said"] = self.said.read_text()
        assert "Traceback" not in answer["said"], answer["said"]
        assert "should not happen" not in answer["said"], answer["said"]
        return answer

    def __call__(self, *command, place, **job):
        self.start(*command, place=place, **job)
        return self.wait()


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    server = Server(tmp_path_factory.mktemp("server"))
    yield server
    server.process.communicate()


def small_study(seed=0):
    return bw.simulate_study(
        n_subjects=3, n_voxels=30, n_runs=2, categories=3, random_state=seed
    )


@pytest.fixture(scope="module")
def study(tmp_path_factory):
    folder = tmp_path_factory.mktemp("study") / "study"
    small_study().save(folder)
    return folder


def kill_moments(server, start, n, *, changes, seconds):
    """Kill at random times, and before random changes to files, in turn."""
    rng = random.Random(n)
    for kill in range(n):
        while True:
            fault = (
                {"die_at": rng.randint(1, changes)}
                if kill % 2
                else {"signals": [[rng.uniform(0, 0.9 * seconds), signal.SIGKILL]]}
            )
            out, command = start()
            answer = server(*command, place=out, **fault)
            if answer["code"] == -signal.SIGKILL:
                yield out, command
                break
            assert answer["code"] == 0  # it was faster than the kill


def visible(folder):
    """List the files that are there under names of their own."""
    return [
        path
        for path in sorted(folder.rglob("*"))
        if path.is_file() and not path.name.startswith(".")
    ]


def assert_whole(path):
    text = "" if path.suffix in (".safetensors", ".gz") else path.read_text("utf-8")
    if path.suffix == ".json":
        json.loads(text)
    elif path.suffix == ".html":
        assert text.rstrip().endswith("</html>")
    elif path.suffix == ".safetensors":
        bw.describe(path)
    elif path.suffix in (".tsv", ".csv"):
        pd.read_csv(path, sep="\t" if path.suffix == ".tsv" else ",")
        assert text.endswith("\n")


# -- compare ---------------------------------------------------------------------------


def comparing(study, out, *more):
    return ("compare", study, "-o", out, *METHOD, *more)


def table_of(out):
    """Return the final tables, without the times."""
    tables = [
        pd.read_csv(out / name, sep="\t") for name in ("comparison.tsv", "folds.tsv")
    ]
    return pd.concat(
        [t.drop(columns=[c for c in t if "seconds" in c]) for t in tables], axis=1
    )


def records_of(out):
    found = (out / "store" / "cells").glob("[!.]*.json")
    return {path.name: path.read_bytes() for path in found}


@pytest.fixture(scope="module")
def compared(server, study, tmp_path_factory):
    """An undisturbed comparison: its table, and how long it takes."""
    out = tmp_path_factory.mktemp("whole") / "out"
    answer = server(*comparing(study, out), place=out)
    assert answer["code"] == 0, answer["said"]
    assert answer["changes"] > 100
    return table_of(out), answer


@pytest.mark.parametrize("n_kills", KILLS)
def test_killed_comparisons_lose_nothing(server, study, compared, tmp_path, n_kills):
    whole, undisturbed = compared
    outs = (tmp_path / str(k) for k in range(10 * n_kills))

    def start():
        out = next(outs)
        return out, comparing(study, out)

    scale = {k: undisturbed[k] for k in ("changes", "seconds")}
    n_kept = 0
    for out, command in kill_moments(server, start, n_kills, **scale):
        kept = records_of(out) if out.exists() else {}
        n_kept += len(kept)
        for path in visible(out) if out.exists() else []:
            if path.suffix != ".lock":
                assert_whole(path)
        if kept:
            store = ResultStore(out / "store")
            assert all(store.get(Path(name).stem) for name in kept)
        answer = server(*command, place=out)
        assert answer["code"] == 0, answer["said"]
        assert {n: r for n, r in records_of(out).items() if n in kept} == kept
        assert not list(out.rglob("*.damaged"))
        pd.testing.assert_frame_equal(table_of(out), whole)
        shutil.rmtree(out)
    assert n_kept > 0
    print(f"{n_kills} kills of compare; {n_kept} finished folds were kept")


@pytest.mark.parametrize(
    "moments", [(0.3,), pytest.param(range(1, 10), marks=pytest.mark.thorough)]
)
def test_ctrl_c_twice_ends_the_work_and_loses_nothing(
    server, study, compared, tmp_path, moments
):
    whole, undisturbed = compared
    for k, share in enumerate(m if m < 1 else m / 10 for m in moments):
        out, first = tmp_path / str(k), share * undisturbed["seconds"]
        twice = [[first, signal.SIGINT], [first + 0.03, signal.SIGINT]]
        answer = server(*comparing(study, out), place=out, signals=twice)
        assert answer["code"] in (0, 130, -signal.SIGINT), answer
        if answer["code"] == 130:
            assert "no partial files were left" in answer["said"]
        for path in visible(out) if out.exists() else []:
            if path.suffix != ".lock":
                assert_whole(path)
        assert server(*comparing(study, out), place=out)["code"] == 0
        pd.testing.assert_frame_equal(table_of(out), whole)


@pytest.mark.parametrize(("what", "share"), [("removed", 0.5), ("replaced", 0.3)])
def test_a_study_that_goes_or_changes_midway_gives_no_other_table(
    server, study, compared, tmp_path, what, share
):
    whole, undisturbed = compared
    mine, out = tmp_path / "mine", tmp_path / "out"
    shutil.copytree(study, mine)
    small_study(1).save(tmp_path / "other")
    server.start(*comparing(mine, out), place=out)
    time.sleep(share * undisturbed["seconds"])
    path = mine / "sub-02.npy"
    if what == "removed":
        path.unlink()
    else:
        os.replace(tmp_path / "other" / "sub-02.npy", path)
    answer = server.wait()
    if answer["code"] == 0:  # the file was open, and is read to its end
        pd.testing.assert_frame_equal(table_of(out), whole)
    else:
        assert answer["code"] == 1
        assert "sub-02.npy" in answer["said"]
    # the folder as it is now is refused
    answer = server(*comparing(mine, tmp_path / "again"), place=tmp_path)
    assert answer["code"] == 1
    assert "sub-02.npy" in answer["said"]


# -- run group -------------------------------------------------------------------------


@pytest.fixture(scope="module")
def participants(server, tmp_path_factory):
    """A BIDS dataset, and the bases of its subjects."""
    folder = tmp_path_factory.mktemp("bids")
    data, out = folder / "data", folder / "out"
    small_study().to_bids(data, raw=True, derivatives=False)
    answer = server("run", data, out, "participant", *METHOD[:2], "-q", place=out)
    assert answer["code"] == 0, answer["said"]
    return data, out


def group_of(out):
    """Return what the group level wrote, as far as it does not tell the time."""
    (path,) = out.glob("*_model.safetensors")
    model = bw.load(path)
    arrays = [model.eigenvalues_, *(m.weights for m in model.maps_)]
    return arrays, [p.read_text() for p in sorted(out.rglob("*_timeseries.tsv"))]


@pytest.mark.parametrize("n_kills", KILLS)
def test_killed_groups_lose_nothing(server, participants, tmp_path, n_kills):
    data, bases = participants
    outs = (tmp_path / str(k) for k in range(10 * n_kills + 2))

    def start():
        out = next(outs)
        shutil.copytree(bases, out)
        return out, ("run", data, out, "group", *METHOD[:2], "-q", "--no-report")

    out, command = start()
    undisturbed = server(*command, place=out)
    assert undisturbed["code"] == 0, undisturbed["said"]
    arrays, texts = group_of(out)
    assert len(texts) == 3
    scale = {k: undisturbed[k] for k in ("changes", "seconds")}
    for out, command in kill_moments(server, start, n_kills, **scale):
        for path in visible(out):
            assert_whole(path)
        answer = server(*command, place=out)
        assert answer["code"] == 0, answer["said"]
        again, features = group_of(out)
        assert all(map(np.array_equal, again, arrays))
        assert features == texts
        shutil.rmtree(out)
    print(f"{n_kills} kills of run group")


# -- full disks ------------------------------------------------------------------------


@pytest.fixture
def small_disk(tmp_path):
    """Mount a disk of so many kilobytes; return its folder, and a way to enlarge it."""
    place, mounted = tmp_path / "disk", []

    def mount(kilobytes):
        place.mkdir(exist_ok=True)
        size = f"size={kilobytes}k" + (",remount" if mounted else "")
        command = ["mount", "-t", "tmpfs", "-o", size, "brainweave-test", str(place)]
        if subprocess.run(command, check=False, capture_output=True).returncode:
            pytest.skip("mounting a small disk needs root")
        mounted.append(kilobytes)
        return place

    yield mount
    if mounted:
        subprocess.run(["umount", str(place)], check=True)


@pytest.mark.parametrize(
    "kilobytes",
    [60, pytest.param(range(12, 160, 12), marks=pytest.mark.thorough)],
)
def test_a_full_disk_stops_a_comparison_that_goes_on_later(
    server, study, compared, small_disk, kilobytes
):
    whole, _ = compared
    sizes = [kilobytes] if isinstance(kilobytes, int) else kilobytes
    n_full = 0
    for size in sizes:
        out = small_disk(size) / "out"
        answer = server(*comparing(study, out), place=out)
        if answer["code"] != 0:
            n_full += 1
            assert answer["code"] == 1
            assert "No space left on device" in answer["said"], answer["said"]
            kept = records_of(out)
            for path in visible(out):
                assert_whole(path)
            small_disk(4000)
            answer = server(*comparing(study, out), place=out)
            assert answer["code"] == 0, answer["said"]
            assert {n: r for n, r in records_of(out).items() if n in kept} == kept
        pd.testing.assert_frame_equal(table_of(out), whole)
        shutil.rmtree(out)
    assert n_full >= len(sizes) / 2


@pytest.fixture(scope="module")
def model(server, study):
    """A model of the study."""
    path = study.parent / "model.safetensors"
    assert server("fit", study, "-o", path, *METHOD, place=path)["code"] == 0
    return path


@pytest.mark.parametrize(
    "command",
    [
        ("fit", "{study}", "-o", "{tmp}/m.safetensors", "--n-components", "2"),
        ("transform", "{model}", "{study}", "{tmp}/out"),
        ("convert", "{study}", "{tmp}/st"),
        ("report", "{tmp}/r.html", "--study", "{study}"),
    ],
    ids=lambda command: command[0],
)
def test_a_full_disk_leaves_nothing_half_written(
    server, study, model, tmp_path, command
):
    filled = [a.format(study=study, model=model, tmp=tmp_path) for a in command]
    # files may not grow beyond a kilobyte: as on a full disk
    answer = server(*filled, "-q", place=tmp_path, limit=1024)
    assert answer["code"] == 1
    lines = [li for li in answer["said"].splitlines() if li.startswith("Error: ")]
    assert len(lines) == 1, answer["said"]
    assert [p for p in tmp_path.rglob("*") if p.is_file()] == []


@pytest.mark.parametrize("kind", ["study", "model", "report"])
def test_a_full_disk_leaves_what_was_there(server, study, small_disk, kind):
    disk = small_disk(4000)
    if kind == "study":
        target, old = disk / "st", small_study(1)
        old.save(target)
        command = ("convert", study, disk / "other", "-q")
    else:
        target = disk / ("m.safetensors" if kind == "model" else "r.html")
        make = {
            "model": ("fit", study, "-o", target, *METHOD),
            "report": ("report", target, "--study", study, "-q"),
        }
        command = make[kind]
        assert server(*command, place=disk)["code"] == 0
    before = {p: p.read_bytes() for p in disk.rglob("*") if p.is_file()}
    small_disk(shutil.disk_usage(disk).used // 1024 + 12)
    answer = server(*command, place=disk)
    assert answer["code"] == 1, answer
    assert "Error: " in answer["said"]
    assert {p: p.read_bytes() for p in disk.rglob("*") if p.is_file()} == before


# -- workers that die ------------------------------------------------------------------


class Deadly:
    """Samples that end the process that reads them, unless it is that of the tests."""

    def __init__(self, values):
        self.values, self.shape = values, values.shape
        self.dtype, self.ndim, self.home = values.dtype, 2, os.getpid()

    def __getitem__(self, key):
        if os.getpid() != self.home:
            os.kill(os.getpid(), signal.SIGKILL)
        return self.values[key]


def test_a_dead_worker_is_an_error_that_names_the_way_out(rng):
    X = [Deadly(rng.normal(size=(12, 8))) for _ in range(2)]
    y = [[0, 1, 2] * 4] * 2
    with (
        joblib.parallel_config(backend="loky"),
        pytest.raises(BrainweaveError, match=r"process .*died.*n_jobs=1"),
    ):
        bw.GDM(2, n_jobs=2).fit(X, y)
    bw.GDM(2, n_jobs=1).fit(X, y)


def test_a_killed_convert_leaves_no_process(tmp_path):
    people = bw.simulate_study(n_subjects=6, n_voxels=600, n_runs=4, categories=3)
    people.to_bids(tmp_path / "bids", raw=True, derivatives=False)
    words = ["convert", tmp_path / "bids", tmp_path / "study", "--n-jobs", "2", "-q"]
    process = subprocess.Popen(
        [sys.executable, "-m", "brainweave", *words], start_new_session=True
    )
    while not any(tmp_path.glob(".partial-*/*.npy")):
        assert process.poll() is None
        time.sleep(0.01)
    process.kill()
    assert process.wait() == -signal.SIGKILL
    for _ in range(50):
        try:
            os.killpg(process.pid, 0)
        except ProcessLookupError:
            return
        time.sleep(0.1)
    os.killpg(process.pid, signal.SIGKILL)
    pytest.fail("a process of a killed convert lived for 5 s")
