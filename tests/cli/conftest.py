"""The real executable on a small simulated study."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

import brainweave as bw
from brainweave.cli.console import run as run_in_process
from brainweave.study import SimulationSettings

EXECUTABLE = Path(sys.executable).with_name("brainweave")


def execute(*arguments, code=0, cwd=None, **options):
    """Run the executable; check its exit code and that it never shows a traceback."""
    done = subprocess.run(
        [EXECUTABLE, *map(str, arguments)],
        capture_output=True,
        text=True,
        cwd=cwd,
        check=False,
        timeout=240,
        env={**os.environ, "OMP_NUM_THREADS": "1", "COLUMNS": "100"},
        **options,
    )
    assert "Traceback" not in done.stderr, done.stderr
    assert done.returncode == code, done.stderr + done.stdout
    return done


@pytest.fixture(name="execute", scope="session")
def _execute():
    return execute


@pytest.fixture
def call(capsys, monkeypatch):
    """Run a command in this process: for the many ways to be wrong."""
    monkeypatch.setenv("OMP_NUM_THREADS", "1")

    def run(*arguments, code=0):
        got = run_in_process([str(a) for a in arguments])
        out, err = capsys.readouterr()
        assert "Traceback" not in err, err
        assert "should not happen" not in err, err
        assert got == code, err
        return out, err

    return run


@pytest.fixture(scope="session")
def study(tmp_path_factory):
    """A small study folder, converted so that it says how it was made."""
    folder = tmp_path_factory.mktemp("data")
    bw.simulate_study(
        n_subjects=4,
        n_voxels=(90, 120),
        categories=["cat", "dog", "house"],
        n_runs=2,
        settings=SimulationSettings(n_nuisance=20),
    ).save(folder / "simulated")
    words = ("convert", folder / "simulated", folder / "study", "-q")
    assert run_in_process([str(word) for word in words]) == 0
    return folder / "study"


@pytest.fixture(scope="session")
def model(study):
    """A model of that study."""
    path = study.parent / "model.safetensors"
    how = ("--method", "paper-gdm", "--n-components", 2, "--param", "energy=0.6")
    assert run_in_process([str(w) for w in ("fit", study, "-o", path, *how, "-q")]) == 0
    return path
