"""Scores against the amount of aligning data that left-out people have."""

import json
import warnings

import numpy as np
import pandas as pd
import pytest
from numpy.testing import assert_allclose

import brainweave as bw
from aligners.test_conformance import CASES
from brainweave.evaluation.evaluate import align_folds, join_with
from brainweave.evaluation.learning_curve import _with_part
from brainweave.evaluation.splits import split_study
from brainweave.report import write_report
from evaluation_studies import locked_lists


def registered(rng, n_subjects=5, noise=2.0, n_samples=48):
    """Subjects whose columns are places: patterns differ a little between them."""
    centroids, y = rng.normal(size=(4, 30)), np.arange(n_samples) % 4
    subjects = []
    for i in range(n_subjects):
        own = centroids + 0.5 * rng.normal(size=centroids.shape)
        x = own[y] + noise * rng.normal(size=(n_samples, 30))
        runs = np.repeat(np.arange(4), n_samples // 4)
        subjects.append(bw.Subject(f"{i:02}", x, labels=y.tolist(), runs=runs))
    return bw.Study(subjects)


@pytest.fixture
def study(rng):
    return registered(rng)


def test_the_curve_begins_at_zero_where_all_share_a_map(study):
    models = {"place": bw.GDM(2, place_shrinkage=0.1), "none": bw.GDM(2, place=None)}
    curve = bw.learning_curve(models, study, fractions=(0, 0.5, 1), leave_out=2)
    table = curve.to_frame().set_index(["method", "fraction"])
    assert table.index.tolist() == [
        *(("place", f) for f in (0, 0.5, 1)),
        *(("none", f) for f in (0.5, 1)),
    ]
    assert table["samples"].tolist() == [0, 12, 24, 12, 24]
    assert (table["n_subjects"] == 5).all()
    assert table.loc[("place", 0), "mean"] > 1.5 * curve.chance
    assert "none has no score at 0 of the aligning data" in curve.notes[0]
    assert "No shared map: place=None." in str(curve)
    assert curve.chance == 0.25
    assert "minutes" not in table


def test_with_all_data_it_is_the_held_out_evaluation(study):
    model = bw.GDM(2, place_shrinkage=0.1)
    curve = bw.learning_curve(model, study, fractions=[1], leave_out=2)
    result = bw.between_subject_classification(model, study, leave_out=2)
    own = pd.DataFrame(
        {i: s}
        for f in result.folds
        for i, s in zip(f["test_subjects"], f["subject_scores"], strict=True)
    ).mean()
    (point,) = curve.points
    assert_allclose(point["mean"], own.mean(), rtol=1e-12)
    assert_allclose(point["se"], own.std() / np.sqrt(5), rtol=1e-12)


def test_people_without_data_are_mapped_by_the_shared_map_alone(study):
    model, split = bw.GDM(2, place_shrinkage=0.1), split_study(study)
    fold, *_ = next(align_folds(model, split, leave_out=2))
    part, sizes = _with_part(fold, model, split, 0.0)
    assert sizes == [0, 0]
    for i, scored in enumerate(split.splits[0].scored):
        want = fold.features[i]
        if i in fold.test:  # their aligning half plays no part
            want = fold.aligner.shared_map_.transform(scored)
        assert_allclose(part.features[i], want, rtol=1e-12)
    assert (part.features[0] != fold.features[0]).any()


def test_the_first_rows_are_those_of_whoever_has_them(study):
    model, split = bw.DetSRM(2, random_state=0), split_study(study)
    fold, *_ = next(align_folds(model, split))
    part, sizes = _with_part(fold, model, split, 0.5)
    assert sizes == [12]
    own, shared = split.splits[0].aligning[0], fold.aligner.shared_response_
    x = own.data()[:12]
    z = (x - x.mean(axis=0)) / x.std(axis=0)
    U, _, Vt = np.linalg.svd(z.T @ shared[:12], full_matrices=False)
    assert_allclose(part.maps[0].weights, U @ Vt, atol=1e-8)


@pytest.mark.parametrize("name", CASES)
def test_every_aligner_has_a_curve(name):
    X, y = CASES[name].study()
    how = {"fractions": (0.5, 1), "leave_out": 2, "random_state": 0}
    how |= {} if CASES[name].labels else {"window": 3}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # what each says is tested by it
        curve = bw.learning_curve(CASES[name].new(), X, y, **how)
    assert curve.notes == []
    n = len(X[0]) // 2
    assert [p["samples"] for p in curve.points] == [-(-n // 2), n]
    assert {p["method"] for p in curve.points} == {name}
    assert curve.score == ("accuracy" if y is not None else "matching")


@pytest.mark.parametrize("name", CASES)
def test_joining_with_all_rows_is_joining(name):
    split, model = split_study(*CASES[name].study()), CASES[name].new()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)
        fold, *_ = next(align_folds(model, split))
        half = split.splits[0]
        rows = np.arange(half.aligning.subjects[0].n_samples)
        joined = join_with(model, fold.aligner, half, fold.train, i=0, rows=rows)
    scored = half.scored.subjects[0].samples
    assert_allclose(joined.transform(scored), fold.features[0], atol=1e-8)


@pytest.mark.parametrize(
    "model",
    [
        bw.GDM(3, graph="time"),
        bw.SRM(3, random_state=0),
        bw.SVDHyperalignment(3),
        bw.Hyperalignment(3),
    ],
    ids=lambda model: type(model).__name__,
)
def test_more_of_a_film_matches_more(rng, model):
    X = [np.asarray(x) for x in locked_lists(rng, noise=4.0)]
    curve = bw.learning_curve(model, X, fractions=(0.2, 1), window=4)
    few, all_ = curve.points
    assert curve.score == "matching"
    assert all_["mean"] > few["mean"]
    assert all_["mean"] > 3 * curve.chance
    told = ["Matched by the spread of their features: GDM."]
    assert curve.notes == (told if isinstance(model, bw.GDM) else [])


def test_more_blocks_of_a_simulated_study_decode_better():
    study = bw.simulate_study(
        n_subjects=5, n_voxels=(150, 200), categories=4, n_runs=4, random_state=2
    )
    models = {"GDM": bw.GDM(), "paper": bw.PaperGDM("auto", energy=0.8)}
    how = {"halves": "run", "leave_out": 2, "fractions": (0, 0.25, 1)}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)
        curve = bw.learning_curve(models, study, **how)
    means = curve.to_frame().set_index(["method", "fraction"])["mean"].unstack()
    assert means.columns.tolist() == [0.25, 1]  # voxels of their own: no places
    assert (means[1] > means[0.25]).all()
    assert (means[1] > 1.5 * curve.chance).all()
    assert "No shared map" in curve.notes[0]


def test_amounts_that_nobody_can_join_with_are_refused_together(study):
    with pytest.raises(
        bw.InputError, match=r"No amount could be scored.*no shared map"
    ):
        bw.learning_curve(bw.DetSRM(2), study, fractions=[0])


def test_fractions_lie_between_0_and_1(study):
    with pytest.raises(bw.InputError, match="between 0 and 1"):
        bw.learning_curve(bw.GDM(2), study, fractions=[2])


def test_a_curve_is_drawn_saved_and_reported(study, tmp_path):
    models = {"<GDM>": bw.GDM(2, place_shrinkage=0.1), "SRM": bw.DetSRM(2)}
    curve = bw.learning_curve(models, study, fractions=(0, 0.5, 1), leave_out=2)
    axes = bw.plotting.plot_learning_curve(curve)
    assert len(axes.containers) == 2
    assert "samples" in axes.get_xlabel()
    curve.save(tmp_path / "curve.json")
    table = pd.read_csv(tmp_path / "curve.tsv", sep="\t")
    assert_allclose(table["mean"], curve.to_frame()["mean"])
    assert json.loads((tmp_path / "curve.json").read_text())["notes"] == curve.notes
    page = write_report(tmp_path / "r.html", learning_curve=curve).read_text()
    assert 'id="learning-curve"' in page
    assert "SRM has no score at 0" in page
    assert "<GDM>" not in page


def test_minutes_are_known_where_samples_are_volumes(study):
    study.record = {"settings": {}, "runs": {"00": {"1": {"t_r": 1.5}}}}
    curve = bw.learning_curve(bw.GDM(2), study, fractions=[1], leave_out=2)
    assert_allclose(curve.to_frame()["minutes"], 24 * 1.5 / 60)
    study.record["settings"]["samples"] = "trials"
    curve = bw.learning_curve(bw.GDM(2), study, fractions=[1], leave_out=2)
    assert "minutes" not in curve.to_frame()


def test_a_curve_of_every_measure(rng):
    story = rng.normal(size=(60, 3))
    X = [story @ rng.normal(size=(3, 12)) for _ in range(4)]
    ids = [np.delete(np.arange(60), gone) for gone in ([], [4, 5], range(50, 60), [40])]
    seen = [x[own] for x, own in zip(X, ids, strict=True)]
    for measure, options, name in (
        ("isc", {}, "isc"),
        ("reconstruction", {"score": "r2"}, "r2"),
        (None, {"window": 4}, "matching"),
    ):
        curve = bw.learning_curve(
            bw.SRM(3, random_state=0),
            seen,
            ids,
            fractions=(0.5, 1),
            measure=measure,
            **options,
        )
        assert curve.score == name
        assert curve.to_frame()["mean"].min() > 0.8


def test_what_cannot_be_drawn_is_refused_in_a_sentence(rng):
    study = registered(rng)
    with pytest.raises(TypeError, match="fractions of learning_curve must be a list"):
        bw.learning_curve(bw.GDM(2), study, fractions=0.5)
    with pytest.raises(TypeError, match=r"takes an aligner, .* got \{\}"):
        bw.learning_curve({}, study)
    with pytest.raises(TypeError, match="methods check and folds; got 3"):
        bw.learning_curve(bw.GDM(2), study, measure=3)


def test_samples_that_are_scored_may_not_align(rng):
    study = registered(rng)
    split = split_study(study, align=[study])
    with pytest.raises(bw.InputError, match="scoring them would be circular"):
        bw.learning_curve(bw.GDM(2), split)
