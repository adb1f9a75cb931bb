"""What is held out must not be able to change what is learned."""

from typing import ClassVar

import numpy as np
import pytest
from numpy.testing import assert_array_equal
from sklearn.linear_model import LogisticRegression
from sklearn.svm import NuSVC

from brainweave import (
    GDM,
    GDMCV,
    NoAlignment,
    Study,
    Subject,
    between_subject_classification,
    split_study,
)
from brainweave.evaluation.evaluate import align_folds
from evaluation_studies import (
    score_matching,
    score_reconstruction,
    study_lists,
    unrelated_study,
)

HALF = np.arange(24) < 12  # aligns first


def learned(model, X, y, protocol):
    """Everything that alignment gives, per fold, before any classifier."""
    split = split_study(X, y, halves=[HALF] * len(X))
    return [
        fold
        for batch in align_folds(model, split, protocol=protocol, n_jobs=1)
        for fold in batch
        if fold.half == 0
    ]


@pytest.fixture
def data(rng):
    return study_lists(rng, noise=4.0)


@pytest.mark.parametrize("protocol", ["joint", "held-out"])
def test_labels_of_classified_samples_change_nothing_learned(rng, data, protocol):
    X, y = data
    other = [np.where(HALF, known, rng.permutation(known)) for known in y]
    assert any((a != b).any() for a, b in zip(y, other, strict=True))
    before = learned(GDM(2), X, y, protocol)
    after = learned(GDM(2), X, other, protocol)
    for a, b in zip(before, after, strict=True):
        for one, two in zip(a.features, b.features, strict=True):
            assert_array_equal(one, two)


@pytest.mark.parametrize("protocol", ["joint", "held-out"])
def test_values_of_classified_samples_change_no_map(rng, data, protocol):
    X, y = data
    other = [np.where(HALF[:, None], x, rng.normal(size=x.shape)) for x in X]
    before = learned(GDM(2), X, y, protocol)
    after = learned(GDM(2), other, y, protocol)
    for a, b in zip(before, after, strict=True):
        for one, two in zip(a.maps, b.maps, strict=True):
            assert_array_equal(one.weights, two.weights)
            # nor how voxels are standardised
            assert_array_equal(one.mean, two.mean)
            assert_array_equal(one.scale, two.scale)


def test_held_out_template_ignores_everything_of_the_test_subject(rng, data):
    X, y = data
    strange = [rng.normal(size=X[0].shape), *X[1:]]
    labels = [rng.permutation(y[0]), *y[1:]]
    before = learned(GDM(2), X, y, "held-out")[0]
    after = learned(GDM(2), strange, labels, "held-out")[0]
    assert before.test == after.test == [0]
    for i in (1, 2, 3):
        assert_array_equal(before.maps[i].weights, after.maps[i].weights)
        assert_array_equal(before.features[i], after.features[i])
    assert_array_equal(before.aligner.group_sums_[0], after.aligner.group_sums_[0])
    assert not np.array_equal(before.features[0], after.features[0])


def test_joint_template_does_see_the_test_subject(rng, data):
    # the known weakness of the paper's protocol, which the other one is there for
    X, y = data
    strange = [rng.normal(size=X[0].shape), *X[1:]]
    before = learned(GDM(2), X, y, "joint")[0]
    after = learned(GDM(2), strange, y, "joint")[0]
    assert before.test == [0]
    assert not np.array_equal(before.maps[1].weights, after.maps[1].weights)


def test_labels_of_the_test_subject_change_no_prediction(rng, data):
    X, y = data
    other = [np.where(HALF, y[0], rng.permutation(y[0])), *y[1:]]

    class Recording(NuSVC):
        predictions: ClassVar[list] = []

        def predict(self, X):
            self.predictions.append(super().predict(X))
            return self.predictions[-1]

    for labels in (y, other):
        between_subject_classification(
            GDM(2),
            X,
            labels,
            halves=[HALF] * 4,
            classifier=Recording(kernel="linear"),
            n_jobs=1,
        )
    first, second = Recording.predictions[0], Recording.predictions[8]
    assert_array_equal(first, second)  # of the fold that tests subject 0
    assert (y[0] != other[0]).any()


@pytest.mark.parametrize("protocol", ["joint", "held-out"])
def test_permuting_held_out_labels_changes_nothing_that_gdmcv_chooses(
    rng, data, protocol
):
    X, y = data
    X, y = X[:3], y[:3]
    grid = GDMCV(energies=(0.3, 0.9), n_components=(1, 2), n_jobs=1)
    chosen, scored = [], []
    for _ in range(2):
        result = between_subject_classification(
            grid, X, y, halves=[HALF] * 3, protocol=protocol, n_jobs=1
        )
        folds = [f for f in result.folds if f["half"] == 0]
        chosen.append([f["best_params"] for f in folds])
        scored.append([f["accuracy"] for f in folds])
        y = [np.where(HALF, known, rng.permutation(known)) for known in y]
    assert chosen[0] == chosen[1]
    assert scored[0] != scored[1]


def test_gdmcv_sees_only_the_samples_it_is_given(rng, data):
    X, y = data
    aligning = [x[HALF] for x in X], [known[HALF] for known in y]
    alone = GDMCV(energies=(0.3, 0.9), n_jobs=1).fit(*aligning)
    inside = next(iter(learned(GDMCV(energies=(0.3, 0.9), n_jobs=1), X, y, "joint")))
    assert inside.aligner.best_params_ == alone.best_params_
    assert (
        inside.aligner.cv_results_["mean_test_score"]
        == (alone.cv_results_["mean_test_score"])
    )


def test_transform_warns_of_circular_scoring():
    rng = np.random.default_rng(0)
    X, y = [rng.normal(size=(70, 200)) for _ in range(6)], [np.arange(70) % 7] * 6
    shared = GDM(6).fit(X, y).transform(X)
    model = LogisticRegression().fit(np.concatenate(shared[1:]), np.concatenate(y[1:]))
    assert model.score(shared[0], y[0]) > 0.95  # as the docstrings say: circular
    for method in (GDM.transform, GDM.fit_transform):
        assert "noise" in method.__doc__
        assert "almost perfectly" in " ".join(method.__doc__.split())


def test_noise_that_was_transformed_is_not_scored(rng):
    study = unrelated_study(rng)
    shared = GDM(6).fit(study).transform(study)
    flags = np.ones(28, bool)
    transformed = Study(
        Subject(s.id, x, labels=s.labels, aligned=flags)
        for s, x in zip(study, shared, strict=True)
    )
    for evaluate in (
        between_subject_classification,
        score_matching,
        score_reconstruction,
    ):
        with pytest.raises(
            ValueError, match=r"28 of 28 samples of subject '0' took par"
        ):
            evaluate(NoAlignment(), transformed)
    with pytest.raises(ValueError, match="would be circular"):
        GDMCV().fit(transformed)
    flagged = study.map(lambda s: s._replace(aligned=flags))
    with pytest.raises(ValueError, match="would be circular"):
        split_study(unrelated_study(rng), align=[flagged])


def test_noise_that_aligned_is_not_scored_with_itself(rng):
    study, other = unrelated_study(rng), unrelated_study(rng)
    with pytest.raises(
        ValueError, match=r"28 of 28 samples .* took part in the alignment"
    ):
        between_subject_classification(GDM(6), split_study(study, align=[study]))
    mixed = Study(
        Subject(
            a.id,
            np.vstack([a.data()[:20], b.data()[3:5].astype(np.float32)]),
            labels=np.concatenate([a.labels[:20], b.labels[3:5]]),
        )
        for a, b in zip(other, study, strict=True)
    )
    with pytest.raises(
        ValueError, match=r"2 of 28 samples .* took part in the alignment"
    ):
        between_subject_classification(GDM(6), split_study(study, align=[mixed]))
    honest = between_subject_classification(GDM(6), split_study(study, align=[other]))
    assert honest.mean < 0.4
