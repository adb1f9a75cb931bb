"""Every tutorial runs as a script, without a warning that it does not show."""

import runpy
from pathlib import Path

import pytest

EXAMPLES = sorted((Path(__file__).parents[1] / "examples").glob("plot_*.py"))


@pytest.mark.thorough
@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)
def test_the_tutorial_runs(path, monkeypatch, tmp_path):
    import matplotlib.pyplot as plt

    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    monkeypatch.chdir(tmp_path)  # what it writes goes elsewhere
    runpy.run_path(str(path), run_name="__main__")
    assert plt.get_fignums(), "a tutorial ends in a picture"
    plt.close("all")
