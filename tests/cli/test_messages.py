"""What people see while a command works, and when it cannot go on."""

import errno
import io
import os
import subprocess
import sys
import threading
import warnings
from types import SimpleNamespace
from typing import ClassVar

import pytest
import typer

from brainweave._core.exceptions import ClusterError, InputError
from brainweave._core.workers import dask_client
from brainweave.cli import console, reporting
from brainweave.cli.console import Console, run


def raising(error):
    def broken(*_):
        raise error

    return broken


@pytest.mark.parametrize(
    ("error", "code", "said"),
    [
        (MemoryError(), 1, "not enough memory. Use fewer subjects at a time"),
        (OSError(errno.ENOSPC, "No space left", "/a/b"), 1, "No space left: '/a/b'."),
        (OSError(errno.EIO, "Input/output error", "x"), 1, "output error: 'x'."),
        (OSError("no reason\ngiven"), 1, "Error: no reason given."),
    ],
)
def test_errors_of_the_machine_are_one_sentence(
    monkeypatch, tmp_path, call, error, code, said
):
    monkeypatch.setattr(reporting, "_describe_study", raising(error))
    assert said in call("info", tmp_path, code=code)[1]


def test_a_traceback_is_shown_to_those_who_ask(monkeypatch, tmp_path, capsys):
    monkeypatch.setenv("BRAINWEAVE_DEBUG", "1")
    assert run(["info", str(tmp_path / "none")]) == 1
    error = capsys.readouterr().err
    assert "Traceback" in error
    assert "Error: There is no file" in error


@pytest.mark.parametrize("how", [KeyboardInterrupt(), typer.Abort(), 130])
def test_an_interruption_is_told_however_it_comes(monkeypatch, capsys, how):
    def app(**_):
        if isinstance(how, int):  # as some versions of Typer have it
            return how
        raise how

    monkeypatch.setattr("brainweave.cli.app.app", app)
    assert run(["info"]) == 130
    assert "no partial files were left." in capsys.readouterr().err


def test_a_reader_that_goes_away_is_no_error(study):
    reading, writing = os.pipe()
    os.close(reading)
    done = subprocess.run(
        [sys.executable, "-u", "-m", "brainweave", "info", str(study)],
        stdout=writing,
        stderr=subprocess.PIPE,
        text=True,
        check=False,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
    )
    os.close(writing)
    assert (done.returncode, done.stderr) == (0, "")


def test_commands_run_in_any_thread(tmp_path):
    codes = []
    work = threading.Thread(target=lambda: codes.append(run(["info", str(tmp_path)])))
    work.start()
    work.join()
    assert codes == [
        2
    ]  # not a study: found out, not "signal only works in main thread"


# -- progress --------------------------------------------------------------------------


class Terminal(io.StringIO):
    def isatty(self):
        return True


@pytest.mark.parametrize("total", [2, None])
def test_a_terminal_gets_a_bar(monkeypatch, total):
    screen = Terminal()
    monkeypatch.setattr(sys, "stderr", screen)
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("COLUMNS", "100")
    shown = Console()
    with shown.stage("Working", total) as tick:
        tick("sub-01")
        tick("")
    text = screen.getvalue()
    assert "Working" in text
    assert ("2 of 2" in text) == (total == 2)
    assert "done in" not in text  # that is for plain lines
    assert shown.seconds["Working"] > 0


def test_lines_say_how_far_it_is(monkeypatch, capsys):
    monkeypatch.setattr(console, "LINE_EVERY", 5.0)
    clock = iter([0.0, 8.0, 9.0, 20.0, 30.0, 32.0])
    monkeypatch.setattr(console.time, "perf_counter", lambda: next(clock))
    with Console().progress("Trying") as show:
        show(3, 10, "joint")
        show(4, 10, "joint")  # too soon for another line
        show(5, 10, "held-out")
        show(10, 10, "held-out")
    lines = capsys.readouterr().err.splitlines()
    assert lines == [
        "Trying ...",
        "Trying: 3 of 10 (joint)",
        "Trying: 5 of 10 (held-out)",
        "Trying: done in 32.0 s",
    ]


def test_a_warning_is_said_once(capsys):
    shown = Console()
    with shown.collect_warnings():
        for _ in range(2):
            warnings.warn("odd\n  voxels", stacklevel=1)
    assert capsys.readouterr().err == "Warning: odd voxels\n"
    assert shown.warnings == ["odd voxels"]


# -- Dask, without a cluster -----------------------------------------------------------


class Cluster:
    """Stands for the module distributed, its clusters and its clients."""

    workers: ClassVar = {}

    def __init__(self, **settings):
        self.settings = settings
        asked.append(settings)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()

    def close(self, timeout=None):
        asked.append("closed")

    def scheduler_info(self):
        return {"workers": self.workers}

    def wait_for_workers(self, n, timeout):
        if not self.workers:
            raise TimeoutError


asked: list = []


@pytest.fixture
def distributed(monkeypatch):
    asked.clear()
    module = SimpleNamespace(LocalCluster=Cluster, Client=Cluster)
    monkeypatch.setitem(sys.modules, "distributed", module)
    return module


@pytest.mark.parametrize("given", ["local", "local:3"])
def test_workers_of_this_machine_are_started_and_ended(distributed, given, monkeypatch):
    monkeypatch.setattr(Cluster, "workers", {"one": 1})
    with dask_client(given):
        first, second = asked
    assert first["n_workers"] == (3 if given == "local:3" else None)
    assert isinstance(second["address"], Cluster)
    assert asked[2:] == ["closed"] * 2


def test_a_scheduler_without_workers_is_waited_for_and_then_named(
    distributed, tmp_path, capsys
):
    file = tmp_path / "scheduler.json"
    file.write_text("{}")
    with (
        pytest.raises(ClusterError, match=r"alive for 60 s\. Start a dask worker"),
        dask_client(str(file), note=Console().note),
    ):
        pass
    assert asked[0]["scheduler_file"] == str(file)
    assert f"Waiting for a worker of {file}" in capsys.readouterr().err


def test_dask_that_is_not_there_is_named(monkeypatch):
    monkeypatch.setitem(sys.modules, "distributed", None)
    with (
        pytest.raises(InputError, match=r"brainweave\[cluster\]"),
        dask_client("local"),
    ):
        pass
