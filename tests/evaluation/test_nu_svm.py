"""The nu-SVM where categories can be separated, and where they overlap."""

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from sklearn.base import clone
from sklearn.pipeline import make_pipeline
from sklearn.svm import SVC, NuSVC

from brainweave import NoAlignment, between_subject_classification, split_study
from brainweave._core.exceptions import InputError
from brainweave._core.labels import NO_LABEL
from brainweave.evaluation.classifiers import (
    FeasibleNuSVC,
    SeparatingNuSVC,
    make_classifier,
    prepare_tasks,
    run_task,
)
from brainweave.evaluation.measures import AlignedFold


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


def test_errors_that_are_not_of_overlap_are_raised():
    with pytest.raises(ValueError, match="nu is infeasible"):
        SeparatingNuSVC(nu=0.9, kernel="linear").fit(np.eye(4), [0, 0, 0, 1])


def overlapping(rng, n=180):
    labels = np.tile([0, 1, 2], n // 3)
    X = [rng.normal(size=(n, 2)) for _ in range(3)]
    for x in X:
        x[labels == 2] += 20
    return X, [labels] * 3


@pytest.mark.parametrize("wrap", [lambda svm: svm, make_pipeline])
def test_a_nu_svm_that_is_given_is_used_as_it_is(rng, wrap):
    """Fold by fold the predictions of scikit-learn's own, on features as they are."""
    X, y = overlapping(rng)
    given = wrap(NuSVC(nu=0.4, kernel="linear", tol=1e-4))
    split = split_study(X, y)
    result = between_subject_classification(NoAlignment(), split, classifier=given)
    model = NoAlignment()
    for fold, accuracy in zip(result.folds, result.scores, strict=True):
        assert (fold["nu"], fold["n_by_means"]) == (None, None)
        part = split.splits[fold["half"]]
        maps = model.fit([s.data() for s in part.aligning]).maps_
        Z = [m.transform(s.data()) for m, s in zip(maps, part.scored, strict=True)]
        labels, test = [s.labels for s in part.scored], fold["fold"]
        train = [i for i in range(3) if i != test]
        svm = clone(given).fit(
            np.concatenate([Z[i] for i in train]),
            np.concatenate([labels[i] for i in train]),
        )
        assert accuracy == np.mean(svm.predict(Z[test]) == labels[test])
    assert result.classifier == " ".join(repr(given).split())


def test_an_infeasible_nu_that_is_given_is_refused_with_the_largest(rng):
    y = [np.repeat([0, 1], [30, 10])] * 3
    X = [rng.normal(size=(40, 4)) for _ in y]
    with pytest.raises(InputError, match="infeasible"):
        between_subject_classification(
            NoAlignment(), X, y, classifier=NuSVC(nu=0.8, kernel="linear")
        )


def test_every_classifier_has_a_name_of_its_own(rng):
    X, y = overlapping(rng)
    names = {}
    for given in (None, "nu-svm-means", "nu-svm", NuSVC(kernel="linear")):
        result = between_subject_classification(
            NoAlignment(), X, y, classifier=given, leave_out=1
        )
        names[str(given)] = result.classifier
        assert result.classifier in str(result)
        assert set(result.to_frame()["classifier"]) == {result.classifier}
        by_means = [fold["n_by_means"] for fold in result.folds]
        assert by_means == ([1] * 6 if "means" in result.classifier else [None] * 6)
    assert names["None"] == names["nu-svm-means"]
    assert names["None"] == "nu-SVM, overlapping pairs by their means"
    assert names["nu-svm"] == "nu-SVM of LIBSVM"
    assert names["NuSVC(kernel='linear')"] == "NuSVC(kernel='linear')"


def test_the_named_plain_one_is_that_of_libsvm(rng):
    """Its predictions are scikit-learn's, on centred features of unit size."""
    X, y = overlapping(rng)
    train = [x - np.concatenate(X[1:]).mean(axis=0) for x in X]
    size = np.sqrt(np.mean(np.square(np.concatenate(train[1:]))))
    train = [x / size for x in train]
    fold = AlignedFold(0, 0, [0], [1, 2], X, [], None)
    for name in ("nu-svm", "nu-svm-means"):
        make, svm = prepare_tasks(X, y, list("abc"), make_classifier(name))
        predicted, found = run_task(make(fold), svm)
        theirs = NuSVC(nu=0.5, kernel="linear").fit(
            np.concatenate(train[1:]), np.concatenate(y[1:])
        )
        same = np.array_equal(predicted, theirs.predict(train[0]))
        assert same == (name == "nu-svm")
        assert found["nu"] == 0.5


@pytest.mark.parametrize("width", [3, 300])  # 300: by inner products
@pytest.mark.parametrize("classifier", ["nu-svm-means", "nu-svm"])
def test_neither_scale_nor_origin_of_the_features_counts(rng, classifier, width):
    y = [np.tile([0, 1, 2, 3], 15)] * 3
    means = 0.2 * rng.normal(size=(4, width))
    X = [means[labels] + rng.normal(size=(60, width)) for labels in y]

    def predicted(factor, shift=0.0):
        model = NoAlignment(standardize=False)
        data = [factor * (x + shift) for x in X]
        return between_subject_classification(
            model, data, y, classifier=classifier
        ).confusion

    whole = predicted(1.0)
    for factor in (1e-8, 1e-4, 1e-2, 1e4, 1e8):
        assert_array_equal(predicted(factor), whole)
    assert_array_equal(predicted(1.0, shift=100.0), whole)


def test_evaluations_record_how_many_pairs_went_by_means(rng):
    X, y = overlapping(rng)
    result = between_subject_classification(NoAlignment(), X, y)
    assert [fold["n_by_means"] for fold in result.folds] == [1] * 6


@pytest.mark.parametrize("width", [99, 100])
@pytest.mark.parametrize(
    ("classifier", "by_products", "resized"),
    [
        (SVC(kernel="linear"), True, False),
        (NuSVC(kernel="linear"), True, False),
        (SVC(), False, False),
        (SeparatingNuSVC(kernel="rbf"), False, False),
        (SeparatingNuSVC(kernel="linear"), True, True),
        (FeasibleNuSVC(kernel="linear"), True, True),
    ],
)
def test_only_linear_nu_svms_of_this_package_see_resized_features(
    rng, classifier, by_products, resized, width
):
    X = [5 + 3 * rng.normal(size=(6, width)) for _ in range(3)]
    codes = [np.array([0, 1, NO_LABEL, 0, 1, 1])] * 3
    fold = AlignedFold(0, 0, [0], [1, 2], X, [], None)
    make, used = prepare_tasks(X, codes, list("abc"), classifier)
    task = make(fold)
    rows = codes[0] != NO_LABEL
    train, test = np.concatenate([x[rows] for x in X[1:]]), X[0][rows]
    if resized:
        train, test = train - train.mean(axis=0), test - train.mean(axis=0)
        size = np.sqrt((train**2).mean())
        train, test = train / size, test / size
    wide = by_products and width == 100
    if wide:
        train, test = train @ train.T, test @ train.T
    assert used.kernel == ("precomputed" if wide else classifier.kernel)
    assert_allclose(task.train, train, rtol=1e-9, atol=1e-9)
    assert_allclose(task.test, test, rtol=1e-9, atol=1e-9)


def test_large_offsets_do_not_drown_inner_products(rng):
    X = [rng.normal(size=(6, 256)) for _ in range(3)]
    codes, ids = [np.arange(6) % 2] * 3, list("abc")
    found = []
    for offset in (0.0, 1e7):
        shifted = [x + offset for x in X]
        make, _ = prepare_tasks(shifted, codes, ids, SeparatingNuSVC(kernel="linear"))
        found.append(make(AlignedFold(0, 0, [0], [1, 2], shifted, [], None)))
    assert_allclose(found[1].train, found[0].train, atol=1e-4)
    assert_allclose(found[1].test, found[0].test, atol=1e-4)
