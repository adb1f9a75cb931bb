"""What the library chose can be followed, by those who ask."""

import logging
import subprocess
import sys

import pytest

import brainweave as bw
from brainweave.evaluation.grid import Grid, GridStudy, run_grid


@pytest.fixture
def study():
    return bw.simulate_study(
        n_subjects=3, categories=2, n_voxels=30, n_runs=2, missing_runs=1
    )


def test_nothing_is_shown_unless_it_is_asked_for():
    code = """
import brainweave as bw, numpy as np
X = [np.random.default_rng(i).normal(size=(20, 9)) for i in range(2)]
X[0][:, 3] = 1.0
bw.GDM(1).fit(X, [np.arange(20) % 2] * 2)
"""
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", code], capture_output=True, check=True
    )
    assert (done.stdout, done.stderr) == (b"", b"")
    handlers = logging.getLogger("brainweave").handlers
    assert [type(h) for h in handlers] == [logging.NullHandler]


def test_a_grid_tells_what_it_uses_again(study, tmp_path, caplog):
    grid = Grid(GridStudy("simulated", study), {"GDM": bw.PaperGDM(1, energy=0.5)})
    with caplog.at_level("DEBUG", logger="brainweave"):
        run_grid(grid, tmp_path, n_jobs=1)
        run_grid(grid, tmp_path, n_jobs=1)
    told = [text for text in caplog.messages if "folds are in the store" in text]
    assert [text.split(" of ")[0] for text in told] == ["0", "6"]
    assert "PaperGDM: 0 bases are made, 2 used again" in caplog.messages


def test_the_library_logs_choices_and_never_warnings():
    """A warning is for what users should act on; it goes through ``warnings``."""
    from pathlib import Path

    for path in Path(bw.__file__).parent.rglob("*.py"):
        text = path.read_text(encoding="utf-8")
        assert "logger.warning" not in text, path
        assert "logger.error" not in text, path
