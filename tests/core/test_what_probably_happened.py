"""Usual slips are answered by what probably happened."""

import numpy as np
import pytest

from brainweave import (
    GDM,
    SRM,
    Subject,
    alignment_check,
    between_subject_classification,
    compare_methods,
    match_samples,
    simulate_study,
)
from brainweave._core.exceptions import InputError

RNG = np.random.default_rng(0)
X = [RNG.normal(size=(12, 30)) for _ in range(3)]
TURNED = [x.T for x in X]
y = [list("abcd") * 3 for _ in X]
RATINGS = [RNG.normal(size=12) for _ in X]


@pytest.fixture(scope="module")
def gdm():
    return GDM(2).fit(X, y)


@pytest.mark.parametrize(
    "call",
    [
        lambda gdm: GDM().fit(TURNED, y),
        lambda gdm: between_subject_classification(GDM(), TURNED, y),
        lambda gdm: match_samples(TURNED, y),
        lambda gdm: gdm.fit_new_subject(TURNED[0], y[0]),
        lambda gdm: Subject("01", TURNED[0], labels=y[0]),
    ],
)
def test_transposed_samples_are_recognised_by_the_number_of_labels(gdm, call):
    with pytest.raises(InputError, match=r"30 x 12: is it voxels x samples\?"):
        call(gdm)


def test_transposed_samples_are_recognised_by_the_voxels_of_the_map(gdm):
    with pytest.raises(InputError, match=r"\(30, 12\). Is it voxels x samples\?"):
        gdm.transform(TURNED)
    with pytest.raises(InputError, match="Use the same mask"):
        gdm.transform([x[:, :9] for x in X])


def test_other_numbers_of_labels_raise_no_question_of_that_kind():
    with pytest.raises(InputError, match=r"11 labels for 12 samples\.$"):
        GDM().fit(X, [labels[:11] for labels in y])


@pytest.mark.parametrize(
    "call",
    [
        lambda: GDM().fit(y, X),
        lambda: GDM().fit([np.array(labels) for labels in y], X),
        lambda: SRM(2).fit(y, X),
        lambda: between_subject_classification(GDM(), y, X),
        lambda: match_samples(y, X),
    ],
)
def test_labels_in_the_place_of_samples_are_recognised(call):
    with pytest.raises(TypeError, match="are X and y swapped"):
        call()


def test_numbers_in_the_place_of_samples_are_recognised():
    with pytest.raises(InputError, match="labels are y, the second argument"):
        GDM().fit(RATINGS, X)


def test_an_aligner_in_the_place_of_a_study_is_recognised():
    study = simulate_study(n_subjects=3, n_voxels=20, random_state=0)
    with pytest.raises(TypeError, match="aligner GDM, not samples"):
        between_subject_classification(study, GDM())
    with pytest.raises(InputError, match=r"methods .* names the aligners.* got Study"):
        compare_methods({"GDM": GDM()}, study)
    with pytest.raises(TypeError, match=r"takes a fitted aligner.* got SimulatedStudy"):
        alignment_check(study)


def test_ratings_in_the_place_of_labels_are_recognised(gdm):
    with pytest.raises(InputError, match="Ratings and other measures are no categ"):
        GDM().fit(X, RATINGS)
    with pytest.raises(InputError, match="Ratings and other measures are no labels"):
        between_subject_classification(GDM(), X, RATINGS)
    with pytest.raises(InputError, match="and 4 more; it has 'a', 'b', 'c', 'd'"):
        gdm.fit_new_subject(X[0], RATINGS[0])


def test_whole_numbers_are_categories_however_they_are_stored():
    codes = [np.arange(12) % 3 * 1.0 for _ in X]
    assert GDM(2).fit(X, codes).n_components_ == 2
    with pytest.raises(InputError, match="groups that share no label"):
        GDM(2).fit(X, [code + 3 * i for i, code in enumerate(codes)])
