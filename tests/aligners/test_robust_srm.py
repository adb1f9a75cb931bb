"""RobustSRM: against a plain voxel-space descent, and as users meet it."""

import pickle

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.testing import assert_allclose, assert_array_equal
from sklearn.base import clone
from sklearn.exceptions import ConvergenceWarning

from brainweave._core.arrays import NumpyOps
from brainweave._core.exceptions import InputError
from brainweave.aligners.srm.robust import (
    RobustMap,
    RobustSRM,
    VoxelReader,
    orthonormalize,
    update_map,
    update_response,
)
from brainweave.aligners.srm.srm import DetSRM
from brainweave.basis.basis import SubjectBasis


def make_study(seed=0, *, n=40, voxels=(60, 50, 70), k=3, noise=0.1, dtype=float):
    """Give subjects with a shared response and a few large individual values each."""
    rng = np.random.default_rng(seed)
    R = rng.normal(size=(n, k))
    X, individual = [], []
    for v in voxels:
        S = np.where(rng.random((n, v)) < 0.02, rng.choice([-4.0, 4.0], (n, v)), 0)
        W = 7 * np.linalg.qr(rng.normal(size=(v, k)))[0]  # as the model has it
        X.append((R @ W.T + S + noise * rng.normal(size=(n, v)) + 5).astype(dtype))
        individual.append(S)
    return X, R, individual


def standardized(x):
    return (x - x.mean(axis=0)) / x.std(axis=0)


def shrink(v, lam):
    return np.sign(v) * np.maximum(np.abs(v) - lam, 0)


def polar(A):
    U, _, Vt = np.linalg.svd(A, full_matrices=False)
    return U @ Vt


def plain_descent(X, start, lam, n_iter):
    """Descend as the publication writes it, on whole matrices."""
    W = [polar(x.T @ start) for x in X]
    S = [np.zeros_like(x) for x in X]
    R = np.mean([x @ w for x, w in zip(X, W, strict=True)], axis=0)
    values = [objective(X, W, R, S, lam)]
    for _ in range(n_iter):
        W = [polar((x - s).T @ R) for x, s in zip(X, S, strict=True)]
        S = [shrink(x - R @ w.T, lam) for x, w in zip(X, W, strict=True)]
        R = np.mean([(x - s) @ w for x, w, s in zip(X, W, S, strict=True)], axis=0)
        values.append(objective(X, W, R, S, lam))
    return W, R, values


def objective(X, W, R, S, lam):
    return sum(
        ((x - R @ w.T - s) ** 2).sum() / 2 + lam * np.abs(s).sum()
        for x, w, s in zip(X, W, S, strict=True)
    )


def fitted(X, **params):
    settings = {"lam": 0.5, "random_state": 0, "max_iter": 300} | params
    return RobustSRM(3, **settings).fit(X)


def test_equals_plain_voxel_space_descent():
    X, _, _ = make_study()
    start = np.random.RandomState(1).normal(size=(40, 3))
    model = RobustSRM(3, lam=0.7, random_state=1, max_iter=7, tol=0).fit(X)
    W, R, values = plain_descent([standardized(x) for x in X], start, 0.7, 7)
    assert_allclose(model.objective_history_, values, rtol=1e-11)
    # columns are turned to principal axes, so compare what does not depend on axes
    shared = model.shared_response_
    assert_allclose(shared @ shared.T, R @ R.T, atol=1e-9)
    for m, w in zip(model.maps_, W, strict=True):
        assert_allclose(shared @ m.weights.T, R @ w.T, atol=1e-9)


@settings(max_examples=15, deadline=None)
@given(seed=st.integers(0, 10**6), lam=st.floats(0.01, 3), n=st.integers(8, 30))
def test_objective_never_rises(seed, lam, n):
    X, _, _ = make_study(seed, n=n, noise=1.0)
    model = RobustSRM(3, lam=lam, random_state=seed, max_iter=15, tol=0).fit(X)
    history = np.array(model.objective_history_)
    assert (np.diff(history) <= 1e-10 * history[0]).all()
    assert model.n_iter_ == 15


def test_infinite_lam_is_deterministic_srm():
    X, _, _ = make_study()
    robust = RobustSRM(3, lam=np.inf, random_state=0, max_iter=20, tol=0).fit(X)
    plain = DetSRM(3, random_state=0, max_iter=20, tol=0).fit(X)
    assert [s.nnz for s in robust.individual_] == [0, 0, 0]
    assert_allclose(
        2 * np.array(robust.objective_history_), plain.objective_history_, rtol=1e-10
    )
    assert_allclose(robust.shared_response_, plain.shared_response_, atol=1e-8)


def test_planted_individual_values_are_found():
    X, _, planted = make_study(noise=0.05)
    model = fitted(X, standardize=False, lam=1.0)
    for found, S in zip(model.individual_, planted, strict=True):
        assert_array_equal(np.sign(found.toarray()), np.sign(S))
        size = np.median(np.abs(found.data))
        assert_allclose(size, 4 - 1, atol=0.4)  # thresholding takes lam off


def test_individual_term_is_the_thresholded_residual():
    X, _, _ = make_study()
    model = fitted(X)
    for x, m, s in zip(X, model.maps_, model.individual_, strict=True):
        residual = standardized(x) - model.shared_response_ @ m.weights.T
        assert_allclose(s.toarray(), shrink(residual, 0.5), atol=1e-9)


def test_weights_are_orthonormal_and_zero_for_constant_voxels():
    X, _, _ = make_study()
    X[1][:, 4] = 3.0
    model = fitted(X)
    for m in model.maps_:
        assert_allclose(m.weights.T @ m.weights, np.eye(3), atol=1e-10)
    assert_array_equal(model.maps_[1].weights[4], 0)


def test_transform_gives_the_best_response_for_the_map():
    X, _, _ = make_study()
    model = fitted(X)
    for x, r, m in zip(X, model.transform(X), model.maps_, strict=True):
        clipped = np.clip(standardized(x) - r @ m.weights.T, -0.5, 0.5)
        assert np.abs(clipped @ m.weights).max() < 1e-3 * np.abs(r).max()


def test_transform_hardly_moves_for_a_wild_voxel():
    X, _, _ = make_study()
    model = fitted(X)
    wild = X[0].copy()
    wild[:, 11] += 50 * X[0][:, 11].std()
    m = model.maps_[0]
    robust = np.abs(m.transform(wild) - m.transform(X[0])).max()
    linear = np.abs(standardized(X[0]) - (wild - X[0].mean(0)) / X[0].std(0))
    assert robust < 0.1 * np.abs(linear @ m.weights).max()


def test_fit_transform_equals_transform():
    X, _, _ = make_study()
    model = RobustSRM(3, lam=0.5, random_state=0, max_iter=300)
    at_once = model.fit_transform(X)
    for a, b in zip(at_once, model.transform(X), strict=True):
        assert_allclose(a, b, atol=1e-10)


def test_float32_stays_float32():
    X, _, _ = make_study(dtype=np.float32)
    model = fitted(X)
    assert {s.dtype for s in model.individual_} == {np.dtype("float32")}
    assert {m.weights.dtype for m in model.maps_} == {np.dtype("float32")}
    assert {r.dtype for r in model.transform(X)} == {np.dtype("float32")}
    double = fitted([x.astype(float) for x in X])
    assert_allclose(model.shared_response_, double.shared_response_, atol=1e-3)


def test_same_seed_same_bits_whatever_n_jobs():
    X, _, _ = make_study()
    one, two = (fitted(X, n_jobs=n, max_iter=20, tol=0) for n in (1, 3))
    assert_array_equal(one.shared_response_, two.shared_response_)
    assert_array_equal(one.maps_[2].weights, two.maps_[2].weights)


def test_inputs_are_not_changed_and_bases_can_be_shared():
    X, _, _ = make_study()
    before = [x.copy() for x in X]
    model = fitted(X)
    for x, b in zip(X, before, strict=True):
        assert_array_equal(x, b)
    again = clone(model).fit(model.bases_)
    assert_array_equal(again.shared_response_, model.shared_response_)


def test_new_subject_finds_its_map():
    X, _, _ = make_study(noise=0.05, voxels=(60, 50, 70, 55))
    model = fitted(X[:3])
    before = model.shared_response_.copy()
    new = model.fit_new_subject(X[3])
    assert_allclose(new.weights.T @ new.weights, np.eye(3), atol=1e-10)
    mapped = new.transform(X[3])
    agreement = np.corrcoef(mapped.T, model.shared_response_.T)[:3, 3:].diagonal()
    assert (agreement > 0.98).all()
    assert_array_equal(model.shared_response_, before)
    with pytest.raises(InputError, match="39 samples for 40 rows of the shared"):
        model.fit_new_subject(X[3][:39])


def test_predicts_the_voxels_of_one_subject_from_the_others():
    X, _, _ = make_study(noise=0.05)
    model = fitted(X)
    predicted = model.predict_subject(1, [X[0], X[2]])
    typical = np.median(np.abs(predicted - X[1])) / X[1].std()
    assert typical < 0.15


def test_pickle_keeps_maps_and_individual_terms():
    X, _, _ = make_study()
    model = fitted(X)
    copy = pickle.loads(pickle.dumps(model))
    for a, b in zip(model.transform(X), copy.transform(X), strict=True):
        assert_array_equal(a, b)
    assert_array_equal(copy.individual_[0].toarray(), model.individual_[0].toarray())
    new = copy.fit_new_subject(X[0])
    assert_allclose(new.weights, model.maps_[0].weights, atol=0.05)


def test_responses_survive_a_target_without_full_rank():
    W = np.random.default_rng(0).normal(size=(30, 3))
    W[:, 2] = W[:, 0]
    orthonormalize(W)
    assert_allclose(W.T @ W, np.eye(3), atol=1e-10)


def test_objective_of_a_pass_is_that_of_the_best_individual_term():
    rng = np.random.default_rng(0)
    X, R = rng.normal(size=(20, 30)), rng.normal(size=(20, 2))
    W = polar(rng.normal(size=(30, 2)))
    voxels = VoxelReader(lambda: [(slice(0, 30), X.copy())], NumpyOps(X.dtype))
    response, value = update_response(voxels, W, R, 0.8)
    S = shrink(X - R @ W.T, 0.8)
    assert_allclose(value, objective([X], [W], R, [S], 0.8), rtol=1e-12)
    assert_allclose(response, (X - S) @ W, atol=1e-12)
    turned = W.copy()
    value = update_map(voxels, turned, R, R, bound=0.8)
    assert_allclose(value, objective([X], [W], R, [S], 0.8), rtol=1e-12)
    assert_allclose(turned, polar((X - S).T @ R), atol=1e-12)


def test_says_when_it_did_not_converge():
    X, _, _ = make_study(noise=1.0)
    with pytest.warns(ConvergenceWarning, match="RobustSRM did not converge in 2"):
        RobustSRM(3, random_state=0, max_iter=2).fit(X)


@pytest.mark.parametrize(
    ("params", "error", "text"),
    [
        ({"lam": 0}, InputError, "lam of RobustSRM must be > 0, got 0"),
        ({"lam": float("nan")}, InputError, "lam of RobustSRM must be > 0"),
        ({"lam": "1"}, TypeError, "lam of RobustSRM must be a number > 0, got '1'"),
        ({"n_components": 60}, InputError, "n_components=60 is more than the 39"),
    ],
)
def test_wrong_parameters_are_named(params, error, text):
    X, _, _ = make_study()
    with pytest.raises(error, match=text):
        RobustSRM(**({"n_components": 3} | params)).fit(X)


def test_nan_is_refused_in_fit_and_in_transform():
    X, _, _ = make_study()
    model = fitted(X)
    X[1][3, 5] = np.nan
    with pytest.raises(InputError, match=r"X\[1\] \(subject 1\) has NaN"):
        model.transform(X)
    with pytest.raises(InputError, match=r"X\[1\] has NaN .* sample 3, voxel 5"):
        RobustSRM(3).fit(X)


def test_wrong_subjects_are_named_with_the_way_out():
    X, _, _ = make_study()
    model = fitted(X)
    with pytest.raises(InputError, match=r"60 voxels.*got shape .*same mask"):
        model.transform([X[1]], subjects=[0])
    with pytest.raises(InputError, match=r"match_samples.*GDM"):
        RobustSRM(3).fit([X[0], X[1][:30]])
    gram = SubjectBasis(np.eye(40), kernel="precomputed")
    with pytest.raises(InputError, match="a precomputed Gram matrix"):
        RobustSRM(3).fit([X[0], gram])


def test_mean_is_removed_in_transform_as_in_fit():
    X, _, _ = make_study()
    model, moved = fitted(X), fitted([x + 100.0 for x in X])
    pairs = zip(
        model.transform(X), moved.transform([x + 100.0 for x in X]), strict=True
    )
    for a, b in pairs:
        assert_allclose(a, b, atol=1e-6)
        assert np.abs(a.mean(axis=0)).max() < 0.1 * a.std()


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_maps_become_their_polar_factor(rng, dtype):
    for scale in ([1, 1, 1], [1, 1, 1e-4], [1, 1, 0]):
        W = (rng.normal(size=(30, 3)) * scale).astype(dtype)
        before = W.astype(float)
        orthonormalize(W)
        exact = 1e-4 if dtype == np.float32 else 1e-10
        assert_allclose(W.T @ W, np.eye(3), atol=exact)
        root = W.T @ before  # symmetric, without negative eigenvalues
        assert_allclose(root, root.T, atol=exact * 10)
        assert np.linalg.eigvalsh(root).min() > -exact * 10


def test_passes_end_once_every_response_has_settled(rng):
    X = rng.normal(size=(6, 30))
    common = {"mean": np.zeros(30), "scale": np.ones(30)}
    own = RobustMap(
        weights=polar(rng.normal(size=(30, 2))), lam=0.8, max_iter=500, **common
    )
    passes = []

    def read():
        passes.append(1)
        return [(slice(0, 30), X.copy())]

    found = own.responses(VoxelReader(read, NumpyOps(X.dtype)), 6)
    assert 2 < len(passes) < 200
    own.max_iter = 1000
    again = own.responses(VoxelReader(read, NumpyOps(X.dtype)), 6)
    assert_allclose(again, found, rtol=0, atol=0)
