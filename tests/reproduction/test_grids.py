"""Grids that vary a setting or lose samples, and their summaries."""

import numpy as np
import pandas as pd
import pytest
from numpy.testing import assert_allclose

from brainweave import (
    GDM,
    SRM,
    Hyperalignment,
    PaperGDM,
    Study,
    Subject,
    between_subject_classification,
    split_study,
)
from brainweave.evaluation.classifiers import make_classifier
from brainweave.evaluation.grid import Grid, GridStudy, run_grid
from brainweave.evaluation.measures import Matching
from reproduction.grids import (
    BothNuSVMs,
    drop_aligning_samples,
    summarise,
    vary,
    with_missing,
)
from small_grid import frame_of, small_data


def test_a_summary_is_that_of_the_evaluation_with_each_setting(tmp_path):
    X, y = small_data()
    methods = {"GDM": PaperGDM(2), "HA": Hyperalignment(2)}
    grid = Grid(GridStudy("s", split_study(X, y)), methods, measure=BothNuSVMs())
    result = run_grid(vary(grid, "energy", (0.5, 0.8)), tmp_path)
    summary = summarise(result)
    assert summary["method"].tolist() == ["GDM"] * 2 + ["HA"] * 2
    assert summary["param_energy"].tolist() == [0.5, 0.8] * 2
    assert (summary["n_folds"] == 8).all()
    for energy, row in zip((0.5, 0.8), summary.itertuples(), strict=False):
        model = PaperGDM(2, energy=energy)
        expected = between_subject_classification(model, X, y, random_state=0)
        assert_allclose(row.mean, expected.mean, atol=1e-12)
        assert_allclose(row.std, expected.std, atol=1e-12)
        assert_allclose(row.chance, expected.chance, atol=1e-12)
        beside = between_subject_classification(
            model, X, y, classifier=make_classifier("nu-svm"), random_state=0
        )
        assert_allclose(row.beside_mean, beside.mean, atol=1e-12)


def test_missing_samples_are_those_of_the_seed(tmp_path):
    X, y = small_data()
    methods = {"GDM": GDM(2), "HA": Hyperalignment(2)}
    grid = Grid(GridStudy("s", split_study(X, y)), methods)
    grids = with_missing(grid, (0.0, 0.3), repeats=2)
    result = run_grid(grids, tmp_path / "a")
    frame = (
        frame_of(result)
        .set_index(["method", "missing", "repeat"])["score"]
        .sort_index()
    )
    assert frame.loc["GDM"].notna().all()
    assert frame.loc["GDM", 0.0, 0].tolist() == frame.loc["GDM", 0.0, 1].tolist()
    assert frame.loc["GDM", 0.3, 0].tolist() != frame.loc["GDM", 0.3, 1].tolist()
    # a method locked in time cannot, and says so; the rest went on
    assert frame.loc["HA", 0.0].notna().all()
    assert frame.loc["HA", 0.3].isna().all()
    failed = summarise(result).set_index(["method", "missing"])["error"]
    assert "InputError: Hyperalignment joins samples by their row" in failed["HA", 0.3]
    again = frame_of(run_grid(grids, tmp_path / "b"))
    incidental = ["seconds", "finished"]
    pd.testing.assert_frame_equal(
        frame_of(result).drop(columns=incidental), again.drop(columns=incidental)
    )
    for shares, repeats in (((1.0,), 1), ((0.5,), 0)):
        with pytest.raises(ValueError, match=r"missing|repeats"):
            with_missing(grid, shares, repeats)


def test_moments_stay_known_when_samples_are_missing(tmp_path):
    rng = np.random.default_rng(0)
    story = rng.normal(size=(80, 3))
    X = [story @ rng.normal(size=(3, 20)) for _ in range(3)]
    # voxels of random mixtures have no places in common
    methods = {"GDM": GDM(3, graph="time", place=None), "SRM": SRM(3)}
    grid = Grid(GridStudy("story", X), methods, measure=Matching(window=3))
    result = run_grid(with_missing(grid, (0.4,)), tmp_path)
    summary = summarise(result).set_index("method")
    assert summary.loc["GDM", "mean"] > 0.95
    # SRM joins samples by row: it aligns with the moments that all subjects have left
    assert summary.loc["SRM", "n_failed"] == 0
    split = drop_aligning_samples(split_study(X), 0.4, seed=0)
    left = [[set(s.stimuli.tolist()) for s in part.aligning] for part in split.splits]
    by_all = [len(set.intersection(*part)) for part in left]
    for r in result.records:
        used = [[n] * 3 for n in by_all] if r["method"] == "SRM" else [[24] * 3] * 2
        assert r["about"]["study"]["n_aligning"] == used


def test_samples_that_are_missing_keep_their_ids():
    pairs = enumerate(zip(*small_data(), strict=True))
    study = Study(
        Subject(str(i), x, labels=known, stimuli=np.arange(len(x)) + 100)
        for i, (x, known) in pairs
    )
    split = split_study(study)
    (part, _), (whole, _) = (
        drop_aligning_samples(split, 0.5, seed=0).splits,
        split.splits,
    )
    for some, all_of_them in zip(part.aligning, whole.aligning, strict=True):
        assert some.n_samples == 6
        assert set(some.stimuli) < set(all_of_them.stimuli)
