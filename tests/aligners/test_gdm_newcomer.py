"""A subject that was not in the fit joins the model."""

import numpy as np
import pytest
import scipy.sparse
from numpy.testing import assert_allclose
from sklearn.svm import NuSVC

from brainweave import GDM, matrix_graph
from brainweave.aligners.newcomer import descend
from brainweave.exceptions import InputError
from planted import planted_study


@pytest.fixture
def study(rng):
    return planted_study(
        rng, lengths=(80, 84, 88, 92), voxels=(120, 130, 140, 150), noise=0.9
    )


def accuracy(train, y_train, test, y_test):
    classifier = NuSVC(nu=0.5, kernel="linear").fit(train, y_train)
    return (classifier.predict(test) == y_test).mean()


def test_objective_never_rises(rng):
    lengths = (80, 84, 88, 92)
    seen = [rng.choice(4, size=n, p=[0.5, 0.25, 0.15, 0.1]) for n in lengths]
    X, y = planted_study(rng, lengths, voxels=(120, 130, 140, 150), labels=seen)
    gdm = GDM(3, energy=0.5).fit(X[:3], y[:3])
    history = np.array(gdm.fit_new_subject(X[3], y[3]).objective_history)
    assert len(history) > 2
    assert (np.diff(history) <= 1e-12 * np.abs(history[1:])).all()


def test_descent_from_anywhere_is_monotone_and_stationary(rng):
    N = rng.normal(size=(30, 30))
    N, F = N + N.T, rng.normal(size=(30, 4))
    result = descend(N, F, max_iter=20_000, tol=1e-14)
    assert (np.diff(result.history) <= 1e-9).all()
    assert_allclose(result.Q.T @ result.Q, np.eye(4), atol=1e-10)
    gradient = N @ result.Q - F
    # on the Stiefel manifold the gradient must be Q times a symmetric matrix
    multiplier = result.Q.T @ gradient
    assert_allclose(multiplier, multiplier.T, atol=1e-3)
    assert_allclose(gradient, result.Q @ multiplier, atol=1e-3)


def test_accuracy_is_within_five_points_of_a_joint_fit(rng):
    X, y = planted_study(
        rng, lengths=(120,) * 5, voxels=(150, 160, 140, 170, 155), noise=5.0
    )
    align, rest = np.arange(120) < 60, np.arange(120) >= 60
    X_align, y_align = [x[align] for x in X], [part[align] for part in y]
    joint, alone = [], []
    for out in range(5):
        others = [i for i in range(5) if i != out]
        test = X[out][rest], y[out][rest]
        y_train = np.concatenate([y[i][rest] for i in others])

        both = GDM(3, energy=0.6).fit(X_align, y_align)
        train = np.concatenate(both.transform([X[i][rest] for i in others], others))
        mapped = both.transform([test[0]], [out])[0]
        joint.append(accuracy(train, y_train, mapped, test[1]))

        gdm = GDM(3, energy=0.6).fit(
            [X_align[i] for i in others], [y_align[i] for i in others]
        )
        train = np.concatenate(gdm.transform([X[i][rest] for i in others]))
        new = gdm.fit_new_subject(X_align[out], y_align[out])
        alone.append(accuracy(train, y_train, new.transform(test[0]), test[1]))
    assert np.mean(joint) > 0.6  # chance is 0.25
    assert np.mean(joint) < 0.99  # not a ceiling that hides a difference
    assert abs(np.mean(alone) - np.mean(joint)) < 0.05


def test_features_have_unit_variance_and_the_model_is_unchanged(study):
    X, y = study
    gdm = GDM(3, energy=0.5).fit(X[:3], y[:3])
    before = [c.copy() for c in gdm.coef_]
    shared = gdm.fit_new_subject(X[3], y[3]).transform(X[3])
    assert_allclose(shared.var(axis=0), 1, rtol=1e-8)
    for a, b in zip(before, gdm.coef_, strict=True):
        assert np.array_equal(a, b)


def test_a_fitted_subject_comes_back_to_its_place(study):
    X, y = study
    gdm = GDM(3, energy=0.5).fit(X, y)
    again = gdm.fit_new_subject(X[1], y[1]).transform(X[1])
    there = gdm.transform([X[1]], [1])[0]
    for k in range(3):
        assert np.corrcoef(again[:, k], there[:, k])[0, 1] > 0.97


def test_unlabelled_samples_and_a_missing_category_are_fine(study):
    X, y = study
    gdm = GDM(3, energy=0.5).fit(X[:3], y[:3])
    labels = np.array(y[3], dtype=object)
    labels[labels == 2] = None
    assert gdm.fit_new_subject(X[3], labels).n_components == 3


def test_matrix_graphs_take_edges(study):
    X, y = study
    lengths = [len(x) for x in X[:3]]
    flat, new = np.concatenate(y[:3]), y[3]
    signs = np.where(flat[:, None] == flat[None, :], 1.0, -1.0)
    edges = np.where(new[:, None] == flat[None, :], 1.0, -1.0)
    by_matrix = GDM(3, energy=0.5, graph=matrix_graph(signs, lengths)).fit(X[:3])
    by_labels = GDM(3, energy=0.5).fit(X[:3], y[:3])
    a = by_matrix.fit_new_subject(X[3], edges=scipy.sparse.csr_array(edges))
    b = by_labels.fit_new_subject(X[3], y[3])
    # edges among the new samples themselves are all that differs
    first, second = a.transform(X[3])[:, 0], b.transform(X[3])[:, 0]
    assert np.corrcoef(first, second)[0, 1] ** 2 > 0.9
    with pytest.raises(InputError, match="pass edges"):
        by_matrix.fit_new_subject(X[3])
    with pytest.raises(InputError, match="new samples x aligning samples"):
        by_matrix.fit_new_subject(X[3], edges=edges[:, 1:])


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"y": lambda y: np.full_like(y, 9)}, r"does not know: \[9\]"),
        ({"y": lambda y: y[:-1]}, "91 labels for 92 samples"),
        ({"y": lambda y: None}, "pass those of the new subject"),
        ({"y": lambda y: [None] * len(y)}, "No sample of the new subject has an edge"),
        ({"X": lambda X: X[:3]}, "3 samples of the new subject"),
        ({"X": lambda X: X * np.nan}, "NaN or infinite"),
    ],
)
def test_errors_say_what_to_do(study, change, message):
    X, y = study
    gdm = GDM(3, energy=0.5).fit(X[:3], y[:3])
    new_X = change.get("X", lambda v: v)(X[3])
    new_y = change.get("y", lambda v: v)(y[3])
    with pytest.raises(InputError, match=message):
        gdm.fit_new_subject(new_X, new_y)


def test_too_few_dimensions_for_the_shared_features(study):
    X, y = study
    gdm = GDM(3, energy=0.5).fit(X[:3], y[:3])
    with pytest.raises(InputError, match="fewer than the 3 shared features"):
        gdm.fit_new_subject(X[3][:3], y[3][:3])
