"""The nu-SVM where categories can be separated, and where they overlap."""

import numpy as np
import pytest
from numpy.testing import assert_array_equal
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.svm import NuSVC

from brainweave import NoAlignment, between_subject_classification
from brainweave.evaluation.classifiers import SeparatingNuSVC, with_feasible_nu


def clouds(rng, distance, *, n=60, width=3, n_classes=4):
    centres = distance * rng.normal(size=(n_classes, width))
    y = np.repeat(np.arange(n_classes), n)
    return centres[y] + rng.normal(size=(len(y), width)), y


@pytest.mark.parametrize("n_classes", [2, 4])
def test_it_is_the_nu_svm_where_categories_are_apart(rng, n_classes):
    X, y = clouds(rng, 8.0, n_classes=n_classes)
    new = 3 * rng.normal(size=(200, 3))
    ours = SeparatingNuSVC(nu=0.3, kernel="linear").fit(X, y)
    theirs = NuSVC(nu=0.3, kernel="linear").fit(X, y)
    assert ours.by_means_ == {}
    assert_array_equal(ours.predict(new), theirs.predict(new))


def reduced_interval(x, mass):
    """The ends of the hull of numbers when no weight may exceed 1 / mass."""
    whole, rest = int(mass), mass - int(mass)

    def end(ordered):
        return (ordered[:whole].sum() + rest * ordered[min(whole, x.size - 1)]) / mass

    return end(np.sort(x)), end(np.sort(x)[::-1])


def test_pairs_go_by_means_exactly_where_the_reduced_hulls_meet(rng):
    seen = set()
    for distance in np.linspace(0.1, 3, 40):
        X, y = rng.normal(size=(100, 1)), np.repeat([0, 1], 50)
        X[y == 1] += distance
        svm = SeparatingNuSVC(nu=0.5, kernel="linear").fit(X, y)
        # sums of weights are nu n / 2, none is above 1
        low, high = (reduced_interval(X[y == c, 0], 0.5 * 100 / 2) for c in (0, 1))
        gap = max(high[0] - low[1], low[0] - high[1])
        of_means = abs(X[y == 1].mean() - X[y == 0].mean())
        if abs(gap / of_means - 0.05) > 1e-3:
            assert (len(svm.by_means_) == 1) == (gap < 0.05 * of_means)
            seen.add(len(svm.by_means_))
    assert seen == {0, 1}


def test_overlapping_categories_are_told_apart_as_well_as_can_be(rng):
    ours, theirs = [], []
    for _ in range(20):
        y = np.repeat([0, 1], 100)
        X = rng.normal(size=(200, 1)) + 1.0 * y[:, None]
        new = rng.normal(size=(2000, 1)) + np.repeat([0, 1], 1000)[:, None]
        true = np.repeat([0, 1], 1000)
        for model, scores in ((SeparatingNuSVC, ours), (NuSVC, theirs)):
            svm = model(nu=0.5, kernel="linear")
            try:
                scores.append(svm.fit(X, y).score(new, true))
            except ValueError:  # coefficients that are not finite
                scores.append(0.5)
    # the best that can be reached is the normal distribution at 1/2: 69.1 %
    assert min(ours) > 0.67
    assert np.mean(theirs) < 0.65  # what it is there for


def test_only_the_pairs_that_overlap_are_changed(rng):
    y = np.repeat([0, 1, 2], 50)
    X = rng.normal(size=(150, 2)) + np.array([[0, 0], [0.4, 0], [9, 9]])[y]
    svm = SeparatingNuSVC(nu=0.3, kernel="linear").fit(X, y)
    assert list(svm.by_means_) == [0]
    new = rng.normal(size=(300, 2)) + np.array([[0, 0], [0.4, 0], [9, 9]])[y.repeat(2)]
    far = svm.predict(new) == 2
    assert_array_equal(far, y.repeat(2) == 2)
    means = [X[y == c].mean(axis=0) for c in (0, 1)]
    nearer = [np.linalg.norm(new - m, axis=1) for m in means]
    assert_array_equal(svm.predict(new)[~far], np.argmin(nearer, axis=0)[~far])


@pytest.mark.parametrize(("n_classes", "distance"), [(2, 0.2), (5, 1.0)])
def test_inner_products_in_place_of_features_change_nothing(rng, n_classes, distance):
    X, y = clouds(rng, distance, n_classes=n_classes)
    names = np.array(["bottle", "cat", "face", "house", "shoe"])[y]
    new = rng.normal(size=(100, 3))
    linear = SeparatingNuSVC(nu=0.4, kernel="linear").fit(X, names)
    inner = SeparatingNuSVC(nu=0.4, kernel="precomputed").fit(X @ X.T, names)
    assert linear.by_means_
    assert list(linear.by_means_) == list(inner.by_means_)
    assert_array_equal(linear.predict(new), inner.predict(new @ X.T))


def test_features_without_any_difference_are_answered_too():
    y = np.repeat([0, 1, 2], 10)
    svm = SeparatingNuSVC(nu=0.5, kernel="linear").fit(np.zeros((30, 2)), y)
    assert len(svm.by_means_) == 3
    assert set(svm.predict(np.zeros((4, 2)))) <= {0, 1, 2}


def test_other_kernels_are_left_alone(rng):
    X, y = clouds(rng, 0.1)
    ours = SeparatingNuSVC(nu=0.5, kernel="rbf").fit(X, y)
    assert ours.by_means_ == {}
    theirs = NuSVC(nu=0.5, kernel="rbf").fit(X, y)
    assert_array_equal(ours.predict(X), theirs.predict(X))


def test_errors_that_are_not_of_overlap_are_raised():
    with pytest.raises(ValueError, match="nu is infeasible"):
        SeparatingNuSVC(nu=0.9, kernel="linear").fit(np.eye(4), [0, 0, 0, 1])


def test_a_pipeline_gets_it_too_and_keeps_its_own():
    pipeline = make_pipeline(StandardScaler(), NuSVC(nu=0.2, kernel="linear", tol=1e-5))
    copy, nu = with_feasible_nu(pipeline, np.array([0, 0, 1, 1]))
    assert (type(copy[-1]), copy[-1].tol, nu) == (SeparatingNuSVC, 1e-5, 0.2)
    assert type(pipeline[-1]) is NuSVC


def test_evaluations_record_how_many_pairs_went_by_means(rng):
    labels = np.tile([0, 1, 2], 60)
    X = [rng.normal(size=(180, 2)) for _ in range(3)]
    for x in X:
        x[labels == 2] += 20
    result = between_subject_classification(NoAlignment(), X, [labels] * 3)
    assert [fold["n_by_means"] for fold in result.folds] == [1] * 6
