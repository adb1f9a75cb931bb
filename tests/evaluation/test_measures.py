"""The measure is chosen by what a study has, or by its name."""

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

from brainweave import (
    GDM,
    SRM,
    Comparison,
    NoAlignment,
    between_subject_classification,
    compare_methods,
    inter_subject_correlation,
    score_alignment,
)
from brainweave.evaluation import SubjectScores
from brainweave.evaluation.measures import Classification
from evaluation_studies import (
    locked_lists,
    score_matching,
    score_reconstruction,
    study_lists,
)

METHODS = {
    "GDM": GDM(4, graph="time"),
    "SRM": SRM(4, random_state=0),
    "without alignment": NoAlignment(),
}


@pytest.fixture(scope="module")
def film():
    """A film of which two people missed parts, with ids."""
    rng = np.random.default_rng(0)
    X = locked_lists(rng, n_subjects=4, n_samples=80, noise=1.0)
    ids = [np.arange(80), np.arange(70), np.arange(8, 80), np.arange(80)]
    return [x[t] for x, t in zip(X, ids, strict=True)], ids


@pytest.fixture(scope="module")
def compared(film):
    return compare_methods(film[0], METHODS, film[1], window=5)


def test_films_are_compared_by_matching(film, compared):
    assert not compared.errors
    for name, aligner in METHODS.items():
        alone = score_matching(aligner, *film, window=5, random_state=0)
        assert_array_equal(compared.results[name].scores, alone.scores)
        assert compared.results[name].design["measure"] == "matching"
    table = compared.to_frame().set_index("method")
    assert_allclose(table["aligned_on"], [302 / 8, 31, 302 / 8])
    assert "score: matching" in str(compared)
    assert compared.verdict.startswith("With GDM, 100\u00a0% of the film's segments")


def test_a_comparison_of_films_survives_a_file(tmp_path, compared):
    compared.save(tmp_path)
    again = Comparison.load(tmp_path)
    for name, result in compared.results.items():
        assert_array_equal(again.results[name].scores, result.scores)
        assert_array_equal(again.results[name].common, result.common)
    assert str(again) == str(compared)


def test_one_result_survives_a_file(tmp_path, film):
    result = score_reconstruction(NoAlignment(), *film)
    result.scores[0, 1] = np.nan
    result.save(tmp_path / "found.json")
    again = SubjectScores.load(tmp_path / "found.json")
    assert_array_equal(again.scores, result.scores)


def test_labels_are_classified_and_ids_are_matched(rng, film):
    X, y = study_lists(rng)
    found = score_alignment(GDM(2), X, y)
    assert_array_equal(
        found.scores, between_subject_classification(GDM(2), X, y).scores
    )
    assert found.design["measure"] == "classification"
    matched = score_alignment(NoAlignment(), *film, window=4)
    assert matched.score == "matching"
    assert_array_equal(
        matched.scores, score_matching(NoAlignment(), *film, window=4).scores
    )
    rebuilt = score_alignment(
        NoAlignment(), *film, measure="reconstruction", score="r2"
    )
    assert rebuilt.score == "r2"


def test_isc_is_the_mean_correlation_with_the_others(rng):
    X = locked_lists(rng, noise=1.0)
    found = score_alignment(NoAlignment(), X, measure="isc", protocol="joint")
    halves = [x[30:] for x in X], [x[:30] for x in X]
    for scores, half in zip(found.scores, halves, strict=True):
        assert_allclose(scores, inter_subject_correlation(half).mean(axis=1), rtol=1e-9)
    assert found.score == "isc"
    assert found.chance == 0


def test_a_measure_refuses_what_it_does_not_know(film):
    with pytest.raises(ValueError, match="measure of the evaluation must be one of"):
        score_alignment(NoAlignment(), *film, measure="accuracy")
    with pytest.raises(ValueError, match="'matching' has no parameter 'classifier'"):
        score_alignment(NoAlignment(), *film, classifier="nu-svm")
    with pytest.raises(ValueError, match="stimulus ids alone"):
        score_alignment(NoAlignment(), *film, measure="classification")


def test_a_classification_draws_no_permutations_unless_asked():
    assert Classification().n_permutations == 0
    assert Classification(n_permutations=3).n_permutations == 3
    with pytest.raises(ValueError, match="n_permutations of the evaluation must be"):
        Classification(n_permutations=-1)
