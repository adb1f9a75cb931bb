"""Segment matching and reconstruction on samples that did not align."""

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

from brainweave import (
    GDM,
    SRM,
    NoAlignment,
    PaperGDM,
    Study,
    Subject,
    between_subject_classification,
    load_matlab,
    reconstruction_score,
    split_study,
    time_segment_matching,
)
from brainweave.evaluation.grid import Grid, GridStudy
from evaluation_studies import (
    locked_lists,
    score_matching,
    score_reconstruction,
    study_lists,
)

PROTOCOLS = ("joint", "held-out")


def test_joint_matching_equals_fit_transform_and_match(rng):
    X = locked_lists(rng, noise=4.0)
    found = score_matching(GDM(4, graph="time"), X, window=4, protocol="joint")
    for half in (0, 1):
        fit, score = (slice(0, 30), slice(30, 60))[:: 1 if half == 0 else -1]
        model = GDM(4, graph="time").fit([x[fit] for x in X])
        shared = model.transform([x[score] for x in X])
        expected = time_segment_matching(shared, window=4, standardize=False)
        assert_allclose(found.scores[half], expected.scores, atol=1e-12)
        assert_allclose(found.chance, expected.chance, rtol=1e-12)
    assert 0.2 < found.mean < 1


@pytest.mark.parametrize("protocol", PROTOCOLS)
@pytest.mark.parametrize("model", [GDM(4, graph="time"), SRM(4, random_state=0)])
def test_locked_subjects_match_far_above_chance(rng, protocol, model):
    X = locked_lists(rng, noise=0.5)
    result = score_matching(model, X, window=5, protocol=protocol)
    assert result.scores.shape == (2, 4)
    assert result.mean > 0.9 > 10 * result.chance


def test_matching_honours_a_spread_that_means_agreement(rng):
    X = locked_lists(rng, noise=4.0)
    known = {"window": 4, "protocol": "joint"}
    by_agreement = GDM(4, graph="time")
    given = score_matching(by_agreement, X, **known)
    as_they_are = score_matching(by_agreement, X, standardize=False, **known)
    alike = score_matching(by_agreement, X, standardize=True, **known)
    assert_array_equal(given.scores, as_they_are.scores)
    assert (given.scores != alike.scores).any()
    assert given.design["standardize"] is False
    assert "features by their spread" in str(given)
    for model in (GDM(4, graph="time", scale="unit"), SRM(4, random_state=0)):
        result = score_matching(model, X, **known)
        assert result.design["standardize"] is True
        assert "spread" not in str(result)
    with pytest.raises(ValueError, match="standardize"):
        score_matching(by_agreement, X, standardize="never")


def test_joint_reconstruction_equals_predict_subject(rng):
    X = locked_lists(rng, noise=1.0)
    found = score_reconstruction(GDM(4, graph="time"), X, score="r2", protocol="joint")
    model = GDM(4, graph="time").fit([x[:30] for x in X])
    for i in range(4):
        others = [x[30:] for j, x in enumerate(X) if j != i]
        predicted = model.predict_subject(i, others)
        expected = reconstruction_score(X[i][30:], predicted, score="r2")
        assert_allclose(found.scores[0, i], expected.mean(), atol=1e-9)


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_voxels_are_predicted_better_with_alignment(rng, protocol):
    X = locked_lists(rng, noise=1.0)
    split = split_study(X)
    plain = score_reconstruction(NoAlignment(), split, protocol=protocol)
    gdm = score_reconstruction(GDM(4, graph="time"), split, protocol=protocol)
    assert gdm.mean > plain.mean + 0.3


def test_table_has_one_row_per_half_and_subject(rng):
    result = score_matching(
        GDM(3, graph="time"), locked_lists(rng, n_subjects=3), window=5
    )
    table = result.to_frame()
    assert table["half"].tolist() == [0, 0, 0, 1, 1, 1]
    assert table["subject"].tolist() == ["0", "1", "2"] * 2
    assert_allclose(table["matching"], result.scores.ravel(), rtol=0)


def test_scored_samples_must_correspond(rng):
    X, y = study_lists(rng)
    with pytest.raises(
        ValueError, match=r"samples of subject '1' differ .* \(other categories\)"
    ):
        score_matching(GDM(2), X, y, window=3)
    with pytest.raises(
        ValueError, match=r"'1' differ from those of '0' \(10 samples\)"
    ):
        score_reconstruction(GDM(2, graph="time"), [X[0], X[1][:20]])


def test_only_the_linear_kernel_predicts_voxels(rng):
    X = locked_lists(rng)
    model = GDM(2, graph="time", kernel="gaussian")
    with pytest.raises(ValueError, match="only the linear kernel"):
        score_reconstruction(model, X)


def test_a_story_is_matched_between_real_subjects(real_data):
    study = load_matlab(real_data / "pieman_htfa" / "weights.mat")
    result = score_matching(PaperGDM(10, graph="time", energy=0.7), study, window=10)
    assert result.mean > 10 * 0.0081  # a guess among segments that do not overlap
    assert result.mean > 5 * result.chance  # which is more for slow responses
    assert np.isfinite(result.scores).all()


def test_without_a_protocol_test_subjects_are_held_out(rng):
    """What is not asked for does not leak: all three, and grids."""
    X, y = study_lists(rng, noise=12.0)
    locked = locked_lists(rng, noise=4.0)
    by_time = PaperGDM(4, graph="time", energy=0.8)
    for measure, model, data in (
        (between_subject_classification, PaperGDM(2, energy=0.8), (X, y)),
        (score_matching, by_time, (locked,)),
        (score_reconstruction, by_time, (locked,)),
    ):
        default = measure(model, *data)
        assert default.protocol == "held-out"
        held = measure(model, *data, protocol="held-out")
        assert_array_equal(default.scores, held.scores)
        joint = measure(model, *data, protocol="joint")
        assert not np.array_equal(default.scores, joint.scores)
    assert Grid(GridStudy("s", split_study(X, y)), {"GDM": GDM(2)}).protocols == (
        "held-out",
    )


@pytest.mark.parametrize("silent", [0, 1])
def test_stimuli_that_one_subject_does_not_tell_cannot_differ(rng, silent):
    X = locked_lists(rng, n_subjects=3, n_samples=24)
    stimuli = [[f"s{t}" for t in range(24)]] * 3
    stimuli[silent] = None
    labels = np.arange(24) % 2
    study = Study(
        Subject(f"{i}", x, labels=labels, stimuli=shown)
        for i, (x, shown) in enumerate(zip(X, stimuli, strict=True))
    )
    result = score_matching(SRM(2, random_state=0), study, window=3)
    assert result.scores.shape == (2, 3)
