"""SemiSupervisedSRM: a shared response and a classifier, learned together."""

import pickle

import numpy as np
import pytest
import scipy.optimize
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.testing import assert_allclose, assert_array_equal
from sklearn.linear_model import LogisticRegression

from brainweave._core.exceptions import InputError
from brainweave.aligners.srm.semisupervised import (
    SemiSupervisedSRM,
    SubjectTerms,
    fit_classifier,
    losses_of,
    objective,
    step_map,
)
from brainweave.aligners.srm.srm import DetSRM

N_LOCKED, NAMES = 40, np.array(["cat", "dog", "sea"])


def make_study(seed=0, *, voxels=(60, 50, 70), k=4, noise=1.0, n_labelled=24):
    """Give subjects who saw one movie, and pictures in numbers and orders of theirs."""
    rng = np.random.default_rng(seed)
    movie, centroids = rng.normal(size=(N_LOCKED, k)), 1.5 * rng.normal(size=(3, k))
    X, y = [], []
    for i, v in enumerate(voxels):
        codes = rng.permutation(np.arange(n_labelled + 3 * i) % 3)
        seen = np.vstack([movie, centroids[codes]])
        X.append(
            seen @ rng.normal(size=(k, v)) + noise * rng.normal(size=(len(seen), v))
        )
        y.append([None] * N_LOCKED + NAMES[codes].tolist())
    return X, y


def labels_of(y):
    return [np.array(known[N_LOCKED:]) for known in y]


def fitted(X, y, **params):
    settings = {"alpha": 0.9, "gamma": 0.1, "random_state": 0, "max_iter": 500}
    return SemiSupervisedSRM(4, **(settings | params)).fit(X, y)


def standardized(x):
    return (x - x.mean(axis=0)) / x.std(axis=0)


def voxel_objective(model, X, y):
    """Write the published objective down on voxels."""
    total = (model.theta_**2).sum() / 2
    for x, known, m in zip(X, y, model.maps_, strict=True):
        z = standardized(x)
        distance = z[:N_LOCKED] - model.shared_response_ @ m.weights.T
        total += (1 - model.alpha) / (2 * N_LOCKED) * (distance**2).sum()
        logits = z[N_LOCKED:] @ m.weights @ model.theta_ + model.bias_
        p = np.exp(logits - logits.max(1, keepdims=True))
        p /= p.sum(1, keepdims=True)
        codes = np.searchsorted(NAMES, known[N_LOCKED:])
        loss = -np.log(p[np.arange(len(codes)), codes]).mean()
        total += model.alpha / model.gamma * loss
    return total


def test_objective_is_the_published_one_on_voxels():
    X, y = make_study()
    model = fitted(X, y)
    assert_allclose(model.objective_history_[-1], voxel_objective(model, X, y))


@settings(max_examples=10, deadline=None)
@given(
    seed=st.integers(0, 10**6),
    alpha=st.floats(0.05, 0.999),
    gamma=st.floats(0.01, 10),
)
def test_objective_never_rises(seed, alpha, gamma):
    X, y = make_study(seed, noise=3.0)
    model = fitted(X, y, alpha=alpha, gamma=gamma, random_state=seed, max_iter=6, tol=0)
    history = np.array(model.objective_history_)
    assert (np.diff(history) <= 1e-12 * history[0]).all()


def test_reduced_steps_equal_steps_on_voxels():
    """The same descent run on whole voxel matrices visits the same maps."""
    rng = np.random.default_rng(0)
    x = rng.normal(size=(30, 80))
    U, d, Vt = np.linalg.svd(x, full_matrices=False)
    R, theta = rng.normal(size=(20, 3)), rng.normal(size=(3, 4))
    theta = np.vstack([theta, np.zeros(4)])
    codes, Q = np.arange(10) % 4, np.linalg.qr(rng.normal(size=(30, 3)))[0]
    small = SubjectTerms((U * d)[:20], (U * d)[20:], codes, 0.9, 0.1, Q.copy())
    large = SubjectTerms(x[:20], x[20:], codes, 0.9, 0.1, Vt.T @ Q)
    for _ in range(5):
        before = small.Q
        for subject in (small, large):
            step_map(subject, R, theta, n_steps=1)
        assert np.abs(small.Q - before).max() > 1e-4
        assert_allclose(Vt.T @ small.Q, large.Q, atol=1e-6)


def test_gradient_vanishes_along_the_manifold_at_the_end():
    X, y = make_study()
    model = fitted(X, y, tol=1e-12, max_iter=3000)
    for basis, known, Q in zip(model.bases_, y, model.coef_, strict=True):
        rows = basis.coordinates
        codes = np.searchsorted(NAMES, known[N_LOCKED:])
        subject = SubjectTerms(
            rows[:N_LOCKED], rows[N_LOCKED:], codes, model.alpha, model.gamma
        )
        theta = np.vstack([model.theta_, model.bias_])

        def value(flat, subject=subject, theta=theta, shape=Q.shape):
            subject.Q = flat.reshape(shape)
            return objective([subject], model.shared_response_, theta)

        slope = scipy.optimize.approx_fprime(Q.ravel(), value).reshape(Q.shape)
        along = slope - Q @ (Q.T @ slope + slope.T @ Q) / 2
        assert np.abs(along).max() < 1e-2 * np.abs(slope).max()


def test_classifier_equals_scikit_learn():
    rng = np.random.default_rng(0)
    subjects = [
        SubjectTerms(
            np.empty((0, 3)), rng.normal(size=(m, 3)), np.arange(m) % 4, 0.8, 0.01
        )
        for m in (30, 50)
    ]
    for s in subjects:
        s.Q = np.eye(3)
    ours = fit_classifier(subjects, np.zeros((4, 4)))
    weights = np.concatenate([np.full(m, 1 / m) for m in (30, 50)])
    theirs = LogisticRegression(C=0.8 / 0.01, tol=1e-10, max_iter=10_000).fit(
        np.concatenate([s.labelled for s in subjects]),
        np.concatenate([s.codes for s in subjects]),
        weights,
    )
    assert_allclose(ours[:-1].T, theirs.coef_, atol=1e-4)
    intercepts = theirs.intercept_ - theirs.intercept_.mean()
    assert_allclose(ours[-1] - ours[-1].mean(), intercepts, atol=1e-4)


def test_little_alpha_is_deterministic_srm():
    X, y = make_study()
    model = fitted(X, y, alpha=1e-9, gamma=1.0, tol=1e-9)
    plain = DetSRM(4, random_state=0, tol=1e-9, standardize=False, max_iter=5000)
    locked = [standardized(x)[:N_LOCKED] for x in X]
    # the same rows, centred as the whole subject is: compare up to that mean
    shared = plain.fit(locked).shared_response_
    centred = model.shared_response_ - model.shared_response_.mean(axis=0)
    overlap = np.linalg.svd(
        np.linalg.qr(shared)[0].T @ np.linalg.qr(centred)[0], compute_uv=False
    )
    assert overlap[0] > 0.999


def test_labels_separate_classes_better_than_the_movie_alone():
    X, y = make_study(noise=3.0)
    test, truth = make_study(noise=3.0)
    strong = fitted(X, y, alpha=0.99, gamma=0.01)
    weak = fitted(X, y, alpha=0.01, gamma=10.0)

    def loss(model):
        features = model.transform([x[N_LOCKED:] for x in test])
        theta = np.vstack([model.theta_, model.bias_])
        return sum(
            losses_of(f, np.searchsorted(NAMES, t), theta)[0].mean()
            for f, t in zip(features, labels_of(truth), strict=True)
        )

    assert loss(strong) < loss(weak)


def test_predicts_other_samples_of_all_subjects():
    X, y = make_study(noise=0.5)
    train = [x[:-9] for x in X]
    model = fitted(train, [known[:-9] for known in y])
    predicted = model.predict([x[-9:] for x in X])
    for found, known in zip(predicted, y, strict=True):
        assert_array_equal(found, known[-9:])
    assert model.classes_.tolist() == ["cat", "dog", "sea"]
    assert_array_equal(model.predict([X[1][-9:]], subjects=[1])[0], y[1][-9:])


def test_a_subject_without_labels_still_joins():
    X, y = make_study()
    X[1], y[1] = X[1][:N_LOCKED], y[1][:N_LOCKED]
    model = fitted(X, y)
    assert_allclose(model.coef_[1].T @ model.coef_[1], np.eye(4), atol=1e-10)
    assert model.predict(X)[1].shape == (N_LOCKED,)


def test_all_labelled_samples_are_locked_when_there_are_no_others():
    rng = np.random.default_rng(0)
    y = NAMES[np.arange(30) % 3].tolist()
    X = [rng.normal(size=(30, 40)) for _ in range(2)]
    model = SemiSupervisedSRM(4, random_state=0, max_iter=500).fit(X, [y, y])
    assert model.labels_locked_
    assert model.shared_response_.shape == (30, 4)
    shuffled = rng.permutation(y).tolist()
    with pytest.raises(InputError, match=r"differs from y\[0\]"):
        SemiSupervisedSRM(4).fit(X, [y, shuffled])


def test_new_subject_joins_by_movie_by_labels_or_by_both():
    X, y = make_study(noise=0.3, voxels=(60, 50, 70, 55), n_labelled=30)
    model = fitted(X[:3], y[:3])
    pictures, truth = X[3][N_LOCKED:], labels_of(y)[3]
    both = model.fit_new_subject(X[3], y[3])
    movie = model.fit_new_subject(X[3][:N_LOCKED])
    by_labels = model.fit_new_subject(pictures, truth)
    for new in (both, movie, by_labels):
        assert_allclose(new.weights.T @ new.weights, np.eye(4), atol=1e-8)
    for new in (both, by_labels):
        logits = new.transform(pictures) @ model.theta_ + model.bias_
        assert np.mean(model.classes_[logits.argmax(axis=1)] == truth) > 0.95


def test_same_seed_same_bits_whatever_n_jobs_and_after_pickling():
    X, y = make_study()
    one, two = (fitted(X, y, n_jobs=n) for n in (1, 3))
    assert_array_equal(one.shared_response_, two.shared_response_)
    assert_array_equal(one.theta_, two.theta_)
    copy = pickle.loads(pickle.dumps(one))
    for a, b in zip(one.predict(X), copy.predict(X), strict=True):
        assert_array_equal(a, b)


def test_float32_stays_float32_and_predictions_agree():
    X, y = make_study()
    single = fitted([x.astype(np.float32) for x in X], y)
    assert {f.dtype for f in single.transform([x.astype("f4") for x in X])} == {
        np.dtype("float32")
    }
    for a, b in zip(single.predict(X), fitted(X, y).predict(X), strict=True):
        assert np.mean(a == b) > 0.98


def test_refuses_what_it_cannot_use_and_says_what_to_do():
    X, y = make_study()
    with pytest.raises(InputError, match=r"needs labels .* DetSRM or SRM"):
        SemiSupervisedSRM(4).fit(X)
    alone = [[None] * N_LOCKED + ["cat"] * (len(k) - N_LOCKED) for k in y]
    with pytest.raises(InputError, match="at least 2 classes; y has 1"):
        SemiSupervisedSRM(4).fit(X, alone)
    fewer = [known.copy() for known in y]
    fewer[2][0] = "cat"
    with pytest.raises(InputError, match=r"X\[0\] has 40 .* X\[2\] has 39.*GDM"):
        SemiSupervisedSRM(4).fit(X, fewer)
    X[0][50, 2] = np.inf
    with pytest.raises(InputError, match=r"X\[0\] has NaN or infinite"):
        SemiSupervisedSRM(4).fit(X, y)


@pytest.mark.parametrize(
    ("params", "error", "text"),
    [
        ({"alpha": 0}, InputError, "must be in \\(0, 1\\), got 0"),
        ({"alpha": 1.0}, InputError, "must be in \\(0, 1\\), got 1"),
        ({"gamma": 0}, InputError, "gamma of SemiSupervisedSRM must be > 0"),
        ({"gamma": "1"}, TypeError, "gamma of SemiSupervisedSRM must be a number"),
        ({"n_components": 64}, InputError, "n_components=64 is more than the"),
    ],
)
def test_wrong_parameters_are_named(params, error, text):
    X, y = make_study()
    with pytest.raises(error, match=text):
        SemiSupervisedSRM(**({"n_components": 4} | params)).fit(X, y)


def test_wrong_new_subjects_are_named():
    X, y = make_study()
    model = fitted(X, y)
    with pytest.raises(InputError, match="does not know: 'cow';"):
        model.fit_new_subject(X[0], [None] * N_LOCKED + ["cow"] * 24)
    with pytest.raises(InputError, match=r"64 samples without a label for 40 rows"):
        model.fit_new_subject(X[0])


def test_rows_correspond_where_no_sample_lacks_a_label(rng):
    X = [rng.normal(size=(12, 20)) for _ in range(4)]
    y = ["cat", "dog", "sea"] * 4
    some = [[None, *y[1:]], y]  # of one subject alone
    with pytest.raises(InputError, match=r"X\[0\] has 1 of them and X\[1\] has 0"):
        SemiSupervisedSRM(2, random_state=0).fit([X[0], X[1]], some)
    with pytest.raises(InputError, match=r"y\[1\] differs from y\[0\]"):
        SemiSupervisedSRM(2, random_state=0).fit(X[:2], [y, y[::-1]])
    model = SemiSupervisedSRM(2, random_state=0, max_iter=500).fit(X[:3], [y] * 3)
    assert model.fit_new_subject(X[3], y).n_components == 2
    with pytest.raises(InputError, match="has 2 samples without a label for 12 rows"):
        model.fit_new_subject(X[3], [None, None, *y[2:]])
