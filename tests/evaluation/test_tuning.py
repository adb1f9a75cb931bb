"""GDMCV: what it chooses, and that it is an aligner like any other."""

import pickle

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from sklearn.base import clone

from brainweave import (
    GDMCV,
    PaperGDM,
    Study,
    Subject,
    SubjectBasis,
    between_subject_classification,
    simulate_study,
    split_study,
)
from brainweave._core.exceptions import InputError, LabelWarning
from evaluation_studies import CountedArray, as_named_study, study_lists


@pytest.fixture
def data(rng):
    return study_lists(rng, noise=4.0)


def test_it_chooses_the_best_score_and_fits_it_on_all_samples(data):
    X, y = data
    model = GDMCV(energies=(0.2, 0.5, 0.8), n_components=(1, 2), n_jobs=1).fit(X, y)
    scores = model.cv_results_["mean_test_score"]
    assert len(scores) == 6
    assert len(set(scores)) > 1
    best = int(np.argmax(scores))
    assert model.best_score_ == scores[best] == max(scores)
    assert model.best_params_ == model.cv_results_["params"][best]
    assert [len(f) for f in model.cv_results_["fold_scores"]] == [8] * 6
    alone = PaperGDM(**model.best_params_).fit(X, y)
    for found, wanted in zip(model.transform(X), alone.transform(X), strict=True):
        assert_allclose(found, wanted, atol=1e-9)


def test_inner_scores_are_those_of_the_classification_itself(data):
    X, y = data
    # without scaling of voxels the inner halves equal halves of the samples exactly
    model = GDMCV(
        energies=(0.4, 0.9),
        n_components=2,
        kernels=("linear", ("gaussian", 5e4)),
        protocol="joint",
        standardize=False,
        n_jobs=1,
    ).fit(X, y)
    for params, scores in zip(
        model.cv_results_["params"], model.cv_results_["fold_scores"], strict=True
    ):
        expected = between_subject_classification(
            PaperGDM(**params, standardize=False), X, y, protocol="joint", n_jobs=1
        )
        assert_array_equal(scores, expected.scores)


def test_no_label_of_a_scored_sample_scales_voxels_in_the_inner_loop(data):
    X, y = data
    reliable = {"standardize": "reliability", "n_jobs": 1}
    joint = {"protocol": "joint", **reliable}
    model = GDMCV(energies=(0.4, 0.9), n_components=2, **joint).fit(X, y)
    assert all(basis.reliable for basis in model.bases_)
    for params, scores in zip(
        model.cv_results_["params"], model.cv_results_["fold_scores"], strict=True
    ):
        expected = between_subject_classification(
            PaperGDM(**params, **reliable), X, y, protocol="joint"
        )
        assert_array_equal(scores, expected.scores)
    again = GDMCV(energies=(0.4, 0.9), n_components=2, **joint).fit(model.bases_, y)
    assert again.cv_results_["mean_test_score"] == model.cv_results_["mean_test_score"]
    for basis in model.bases_:
        basis._data = None  # as in a file without the samples: of one, of two, of all
        with pytest.raises(ValueError, match="Pass X to GDMCV"):
            GDMCV(**reliable).fit(model.bases_, y)


def test_runs_are_the_blocks_of_the_inner_loop_too(data):
    X, y = data
    runs = [np.arange(len(x)) * 4 // len(x) for x in X]
    study = Study(
        Subject(str(i), x, labels=known, runs=run)
        for i, (x, known, run) in enumerate(zip(X, y, runs, strict=True))
    )
    search = {"energies": (0.6,), "n_components": 2, "n_jobs": 1}
    model = GDMCV(**search, standardize="reliability", protocol="joint").fit(study)
    expected = between_subject_classification(
        PaperGDM(2, energy=0.6, standardize="reliability"), study, protocol="joint"
    )
    assert_array_equal(model.cv_results_["fold_scores"][0], expected.scores)


def test_it_prefers_a_dimension_that_fits(rng):
    # five categories cannot be told apart by one component
    X, y = study_lists(rng, n_samples=40, n_categories=5, noise=0.5)
    model = GDMCV(energies=(0.9,), n_components=(1, 4), n_jobs=1).fit(X, y)
    assert model.best_params_["n_components"] == 4


def test_voxels_are_read_as_often_for_many_settings_as_for_one(data):
    X, y = data
    many = {
        "energies": (0.3, 0.6, 0.9),
        "kernels": ("linear", "gaussian", ("gaussian", 100.0)),
    }
    passes = []
    for settings in ({"energies": (0.3,)}, many):
        arrays = [CountedArray(x) for x in X]
        GDMCV(**settings, n_jobs=1).fit(arrays, y)
        passes.append([a.passes for a in arrays])
    assert passes[0] == passes[1]


def test_bases_serve_in_place_of_samples(data):
    X, y = data
    a = GDMCV(energies=(0.3, 0.9), n_jobs=1).fit(X, y)
    b = GDMCV(energies=(0.3, 0.9), n_jobs=1).fit([SubjectBasis(x) for x in X], y)
    assert a.best_params_ == b.best_params_
    for one, two in zip(a.coef_, b.coef_, strict=True):
        assert_allclose(one, two, atol=1e-9)


def test_it_is_an_aligner(data):
    X, y = data
    model = GDMCV(energies=(0.5, 0.9), n_jobs=1)
    shared = clone(model).fit_transform(as_named_study(X, y))
    model.fit(X, y)
    for found, wanted in zip(shared, model.transform(X), strict=True):
        assert_allclose(found, wanted, atol=1e-9)
    new = model.fit_new_subject(X[0], y[0])
    again = model.fit_new_subject(SubjectBasis(X[0]), y[0])
    assert_allclose(new.transform(X[0]), again.transform(X[0]), atol=1e-9)
    back = model.inverse_transform(shared)
    assert [b.shape for b in back] == [x.shape for x in X]
    kept = pickle.loads(pickle.dumps(model))
    assert_allclose(kept.transform(X)[1], model.transform(X)[1], atol=1e-9)
    assert kept.best_params_ == model.best_params_


def test_a_basis_of_a_new_subject_takes_the_kernel_that_was_chosen(data):
    X, y = data
    model = GDMCV(energies=(0.5,), kernels=(("gaussian", 50.0),), n_jobs=1).fit(X, y)
    new = model.fit_new_subject(X[0], y[0])
    again = model.fit_new_subject(SubjectBasis(X[0]), y[0])
    assert_allclose(new.transform(X[0]), again.transform(X[0]), atol=1e-9)
    assert again.basis.kernel.hp == 50.0


def test_a_setting_that_cannot_be_scored_says_why_and_the_rest_goes_on(data):
    X, y = data
    model = GDMCV(energies=(0.1, 0.9), n_components=(2, 30), n_jobs=1).fit(X, y)
    errors = model.cv_results_["error"]
    assert any("n_components=30 is more than" in e for e in errors)
    failed = [bool(e) for e in errors]
    assert_array_equal(np.isnan(model.cv_results_["mean_test_score"]), failed)
    n_folds = [len(scores) for scores in model.cv_results_["fold_scores"]]
    assert n_folds == [0 if error else 8 for error in errors]
    assert model.best_params_["n_components"] == 2


# a half of twelve samples of so weak a signal is not always evidence
@pytest.mark.filterwarnings("ignore:No evidence of a shared space")
def test_evaluated_like_any_aligner(data):
    X, y = data
    split = split_study(X, y)
    for protocol in ("joint", "held-out"):
        result = between_subject_classification(
            GDMCV(energies=(0.4, 0.8), protocol=protocol, n_jobs=1),
            split,
            protocol=protocol,
            leave_out=1,
            n_jobs=1,
        )
        assert result.mean > 0.6
        assert all(f["best_params"]["energy"] in (0.4, 0.8) for f in result.folds)


def test_errors_say_what_is_wrong_and_what_to_do(data):
    X, y = data
    with pytest.raises(ValueError, match="needs their categories"):
        GDMCV().fit(X)
    with pytest.raises(TypeError, match=r"energy.* needs to be a list"):
        GDMCV(energies=0.5).fit(X, y)
    for energy, error in ((82, ValueError), (0, ValueError), ("auto", TypeError)):
        with pytest.raises(error, match="energy of PaperGDM"):
            GDMCV(energies=[energy]).fit(X, y)
    with pytest.raises(ValueError, match=r"kernel.* need"):
        GDMCV(kernels=[]).fit(X, y)
    with pytest.raises(ValueError, match="kernel of PaperGDM must be a callable or"):
        GDMCV(kernels=["cubic"]).fit(X, y)
    with pytest.raises(ValueError, match="None of the 1 settings of GDMCV could be"):
        GDMCV(energies=[0.5], n_components=500).fit(X, y)
    with pytest.raises(ValueError, match="protocol of GDMCV must be one of"):
        GDMCV(protocol="fair").fit(X, y)


def test_a_setting_by_which_nobody_could_join_is_not_chosen():
    """Energies that keep fewer dimensions than shared features still fit together."""
    study = simulate_study(
        n_subjects=4, categories=6, n_voxels=(100, 120), signal=0.5, random_state=0
    )
    model = GDMCV(energies=(0.1, 0.9), n_components=5)
    result = between_subject_classification(model, study)
    assert {fold["best_params"]["energy"] for fold in result.folds} == {0.9}
    two = GDMCV(energies=(0.9,), n_components=2).fit(study.subset(study.ids[:2]))
    assert two.best_score_ > 0  # where holding out leaves one, the inner loop is joint


@pytest.mark.filterwarnings("default::brainweave._core.exceptions.LabelWarning")
def test_a_search_warns_of_its_labels_once(rng):
    X, y = study_lists(rng)
    X[1], y[1] = X[1][y[1] > 0], y[1][y[1] > 0]
    with pytest.warns(LabelWarning, match="missing in some subjects") as said:
        GDMCV(energies=(0.5, 0.9), n_components=2).fit(X, y)
    assert len([w for w in said if w.category is LabelWarning]) == 1


def test_a_candidate_that_cannot_be_is_refused_not_skipped(rng):
    X, y = study_lists(rng)
    with pytest.raises(InputError, match=r"kernel .*'cubic'"):
        GDMCV(energies=(0.5,), kernels=("linear", "cubic")).fit(X, y)


@pytest.mark.parametrize("name", ["energies", "kernels", "n_components"])
def test_a_search_without_candidates_is_refused(rng, name):
    X, y = study_lists(rng)
    with pytest.raises(InputError, match="no candidates"):
        GDMCV(**{name: []}).fit(X, y)
