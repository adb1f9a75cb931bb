"""The code that CONTRIBUTING.md shows works, and is short."""

import importlib
import re
from pathlib import Path

import numpy as np
import pytest

import brainweave as bw
from brainweave.evaluation.evaluate import score_folds
from brainweave.evaluation.grid import Grid, GridStudy, run_grid
from small_grid import frame_of

PAGE = (Path(__file__).parents[1] / "CONTRIBUTING.md").read_text(encoding="utf-8")


def shown(heading):
    """Return the code of a section."""
    section = PAGE.split(f"### {heading}\n")[1].split("\n##")[0]
    return re.search(r"^```(?:python|diff)\n(.*?)^```", section, re.M | re.S)[1]


@pytest.fixture
def defined(tmp_path, monkeypatch):
    """Return a function that imports the code of a section as a module."""
    monkeypatch.syspath_prepend(tmp_path)

    def get(heading, name):
        (tmp_path / f"shown_{name}.py").write_text(shown(heading), encoding="utf-8")
        return getattr(importlib.import_module(f"shown_{name}"), name)

    return get


@pytest.mark.parametrize(
    "heading", ["an aligner", "a measure", "a reader", "an option"]
)
def test_every_example_has_at_most_40_lines(heading):
    assert len(shown(heading).splitlines()) <= 40


def test_the_measure_scores_folds_and_grids(defined, tmp_path):
    measure = defined("a measure", "FeatureAgreement")()
    rng = np.random.default_rng(0)
    story = rng.normal(size=(60, 3))
    X = [story @ rng.normal(size=(3, 40)) for _ in range(3)]
    split, aligner = bw.split_study(X), bw.GDM(3, graph="time")
    records = list(score_folds(aligner, split, measure))
    assert len(records) == 6
    assert all(0.99 < record["score"] <= 1 for record in records)
    grid = Grid(GridStudy("movie", X), {"GDM": aligner}, measure=measure)
    table = frame_of(run_grid(grid, tmp_path))
    assert table["score"].to_list() == [record["score"] for record in records]
    with pytest.raises(ValueError, match="equal numbers of samples"):
        measure.check(bw.split_study([X[0][:-2], *X[1:]]))


def test_the_reader_reads_what_was_written(defined, tmp_path):
    load_npz = defined("a reader", "load_npz")
    study = bw.simulate_study(n_subjects=2, categories=3, n_voxels=20, random_state=0)
    for s in study:
        np.savez(
            tmp_path / f"sub-{s.id}.npz",
            samples=s.data(),
            labels=s.labels.astype(str),
            runs=s.runs.astype(str),
        )
    loaded = load_npz(tmp_path, name="pictures")
    assert loaded.ids == study.ids
    for a, b in zip(loaded, study, strict=True):
        np.testing.assert_array_equal(a.data(), b.data())
        assert a.labels.tolist() == b.labels.tolist()
    assert loaded.record["settings"]["source"] == "npz"
    assert bw.GDM(2).fit(loaded).n_components_ == 2
