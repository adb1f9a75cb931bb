"""The Shared Response Models against plain voxel-space versions and planted truths."""

import warnings

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.testing import assert_allclose, assert_array_equal
from sklearn.exceptions import ConvergenceWarning

from brainweave import SRM, DetSRM
from brainweave._core.exceptions import LayoutWarning
from brainweave.aligners.srm.srm import Model, expect, sizes_of
from brainweave.aligners.timelocked import Alignment, Iterations, align_to
from brainweave.basis.basis import SubjectBasis

BOTH = (SRM, DetSRM)


def study(seed=0, n=30, voxels=(50, 40, 45), noise=0.3, k=3):
    rng = np.random.default_rng(seed)
    S = rng.normal(size=(n, k)) * np.arange(k, 0, -1)
    S -= S.mean(axis=0)
    W = [np.linalg.qr(rng.normal(size=(v, k)))[0] for v in voxels]
    X = [S @ w.T + noise * rng.normal(size=(n, len(w))) + 5 for w in W]
    return X, S, W


def polar(A):
    U, _, Vt = np.linalg.svd(A, full_matrices=False)
    return U @ Vt


def voxel_detsrm(X, start, n_iter):
    """Deterministic SRM on voxels."""
    X = [x - x.mean(axis=0) for x in X]
    S = start
    for _ in range(n_iter + 1):
        W = [polar(x.T @ S) for x in X]
        S = np.mean([x @ w for x, w in zip(X, W, strict=True)], axis=0)
    value = sum(np.sum((x - S @ w.T) ** 2) for x, w in zip(X, W, strict=True))
    return W, S, value


def voxel_srm(X, start, n_iter):
    """Probabilistic SRM on voxels; the likelihood from the full covariance."""
    X = [x - x.mean(axis=0) for x in X]
    n = len(start)
    W = [polar(x.T @ start) for x in X]
    S = np.mean([x @ w for x, w in zip(X, W, strict=True)], axis=0)
    sigma = S.T @ S / n
    pairs = list(zip(X, W, strict=True))
    rho2 = [np.sum((x - S @ w.T) ** 2) / x.size for x, w in pairs]
    likelihoods = []
    for i in range(n_iter + 1):
        stacked = np.vstack(W)
        psi = np.concatenate([np.full(len(w), r) for w, r in zip(W, rho2, strict=True)])
        full = stacked @ sigma @ stacked.T + np.diag(psi)
        data = np.hstack(X)
        value = -0.5 * (
            n * (np.linalg.slogdet(full)[1] + len(full) * np.log(2 * np.pi))
            + np.sum(data.T * np.linalg.solve(full, data.T))
        )
        likelihoods.append(value)
        C = np.linalg.inv(np.linalg.inv(sigma) + sum(1 / r for r in rho2) * np.eye(3))
        S = sum(x @ w / r for x, w, r in zip(X, W, rho2, strict=True)) @ C
        if i == n_iter:
            break
        sigma = C + S.T @ S / n
        W = [polar(x.T @ S) for x in X]
        rho2 = [
            (np.sum(x**2) - 2 * np.sum((x @ w) * S) + n * np.trace(sigma)) / x.size
            for x, w in zip(X, W, strict=True)
        ]
    return W, S, sigma, rho2, likelihoods


@pytest.mark.parametrize("voxels", [(50, 40, 45), (12, 10, 15), (20, 50, 8)])
def test_detsrm_from_gram_matrices_equals_the_voxel_space_version(voxels):
    X, _, _ = study(voxels=voxels)
    start = np.random.RandomState(1).normal(size=(30, 3))
    W, S, value = voxel_detsrm(X, start, 7)
    model = DetSRM(3, random_state=1, max_iter=7, tol=0, standardize=False).fit(X)
    assert_allclose(model.objective_history_[-1], value, rtol=1e-9)
    expected = S @ S.T
    assert_allclose(
        model.shared_response_ @ model.shared_response_.T, expected, atol=1e-8
    )
    for m, w in zip(model.maps_, W, strict=True):
        assert_allclose(m.weights @ m.weights.T, w @ w.T, atol=1e-8)


@pytest.mark.parametrize("voxels", [(50, 40, 45), (12, 10, 15), (20, 50, 8)])
def test_srm_from_gram_matrices_equals_the_voxel_space_version(voxels):
    X, _, _ = study(voxels=voxels)
    start = np.random.RandomState(1).normal(size=(30, 3))
    W, S, sigma, rho2, likelihoods = voxel_srm(X, start, 7)
    model = SRM(3, random_state=1, max_iter=7, tol=0, standardize=False).fit(X)
    assert_allclose(model.objective_history_, likelihoods, rtol=1e-9)
    assert_allclose(model.rho2_, rho2, rtol=1e-8)
    assert_allclose(np.diag(model.sigma_s_), np.linalg.eigvalsh(sigma)[::-1], rtol=1e-8)
    assert_allclose(
        model.shared_response_ @ model.shared_response_.T, S @ S.T, atol=1e-8
    )
    for m, w in zip(model.maps_, W, strict=True):
        assert_allclose(m.weights @ m.weights.T, w @ w.T, atol=1e-8)


@pytest.mark.parametrize("kind", BOTH)
def test_planted_maps_are_recovered_exactly(kind):
    X, S, W = study(2, noise=0)
    model = kind(3, standardize=False, random_state=0, max_iter=2000, tol=1e-13).fit(X)
    for x, w, m in zip(X, W, model.maps_, strict=True):
        assert_allclose(m.weights @ m.weights.T, w @ w.T, atol=1e-6)
        assert_allclose(m.inverse_transform(m.transform(x)), x, atol=1e-5)
    first, *others = model.transform(X)
    for other in others:
        assert_allclose(other, first, atol=1e-5)
    turn = np.linalg.lstsq(first, S, rcond=None)[0]
    assert_allclose(turn.T @ turn, np.eye(3), atol=1e-5)


def test_noise_and_covariance_are_found():
    X, S, _ = study(3, n=400, noise=0.5, voxels=(60, 50, 70))
    model = SRM(3, standardize=False, random_state=0).fit(X)
    assert_allclose(model.rho2_, 0.25, rtol=0.05)
    assert_allclose(np.diag(model.sigma_s_), np.var(S, axis=0), rtol=0.25)
    assert_array_equal(model.sigma_s_, np.diag(np.diag(model.sigma_s_)))


@settings(max_examples=15, deadline=None)
@given(seed=st.integers(0, 1000), noise=st.floats(0.01, 5), k=st.integers(1, 6))
def test_objectives_are_monotone(seed, noise, k):
    X, _, _ = study(seed, noise=noise, voxels=(40, 20, 12))
    det = DetSRM(k, random_state=seed, max_iter=30, tol=0).fit(X)
    rises = np.diff(det.objective_history_)
    assert (rises <= 1e-10 * det.objective_history_[0]).all()
    srm = SRM(k, random_state=seed, max_iter=30, tol=0).fit(X)
    rises = np.diff(srm.objective_history_)
    assert (rises >= -1e-10 * abs(srm.objective_history_[0])).all()
    assert srm.log_likelihood_ == srm.objective_history_[-1]
    assert len(srm.objective_history_) == srm.n_iter_ + 1 == 31


@pytest.mark.parametrize("kind", BOTH)
@pytest.mark.parametrize("energy", [1.0, 0.8])
def test_maps_are_orthonormal(kind, energy):
    X, _, _ = study(4)
    model = kind(3, random_state=0, energy=energy).fit(X)
    for m in model.maps_:
        assert_allclose(m.weights.T @ m.weights, np.eye(3), atol=1e-10)
        assert_allclose(m.patterns, m.weights.T, atol=0)


@pytest.mark.parametrize("kind", BOTH)
def test_no_eigenbasis_is_computed_unless_energy_is_cut(kind):
    X, _, _ = study(5)
    model = kind(3, random_state=0).fit(X)
    model.transform(X)
    assert not any(b.is_decomposed for b in model.bases_)


@pytest.mark.parametrize("kind", BOTH)
def test_energy_confines_the_maps(kind):
    X, _, _ = study(6)
    model = kind(2, random_state=0, energy=0.5).fit(X)
    for m, b in zip(model.maps_, model.bases_, strict=True):
        axes = b.weights(np.eye(b.n_kept))
        assert b.n_kept < 29
        assert_allclose(axes @ (axes.T @ m.weights), m.weights, atol=1e-9)


@pytest.mark.parametrize("kind", BOTH)
def test_result_is_the_same_to_the_last_bit_whatever_n_jobs(kind):
    X, _, _ = study(7)
    bases = DetSRM(3, max_iter=1, tol=0).fit(X).bases_
    one, two = (
        kind(3, random_state=5, n_jobs=n).fit(bases).shared_response_ for n in (1, 2)
    )
    assert_array_equal(one, two)


@pytest.mark.parametrize("kind", BOTH)
def test_seeds_end_at_the_same_optimum(kind):
    X, _, _ = study(8, noise=1.0)
    ends = [
        kind(3, random_state=s, tol=1e-9, max_iter=3000).fit(X).objective_history_[-1]
        for s in range(3)
    ]
    assert_allclose(ends, ends[0], rtol=1e-5)


@pytest.mark.parametrize("kind", BOTH)
def test_subject_order_does_not_matter(kind):
    X, _, _ = study(9)
    a = kind(3, random_state=0).fit(X)
    b = kind(3, random_state=0).fit(X[::-1])
    assert_allclose(a.shared_response_, b.shared_response_, atol=1e-8)


@pytest.mark.parametrize("kind", BOTH)
def test_voxel_order_does_not_matter(kind):
    X, _, _ = study(10)
    rng = np.random.default_rng(0)
    a = kind(3, random_state=0).fit_transform(X)
    b = kind(3, random_state=0).fit_transform(
        [x[:, rng.permutation(x.shape[1])] for x in X]
    )
    for one, two in zip(a, b, strict=True):
        assert_allclose(one, two, atol=1e-8)


@pytest.mark.parametrize("kind", BOTH)
def test_stopping_short_warns_and_says_how_far(kind):
    X, _, _ = study(11, noise=2.0)
    with pytest.warns(
        ConvergenceWarning, match=r"in 2 iterations.*tol=1e-09.*max_iter"
    ):
        kind(3, max_iter=2, tol=1e-9, random_state=0).fit(X)
    settled = kind(3, random_state=0).fit(X)
    assert settled.converged_
    assert settled.n_iter_ < settled.max_iter
    fixed = kind(3, max_iter=2, tol=0, random_state=0).fit(X)  # no warning: as asked
    assert fixed.n_iter_ == 2


@pytest.mark.parametrize("kind", BOTH)
def test_fewer_dimensions_than_components_is_refused(kind):
    X, _, _ = study(12)
    with pytest.raises(ValueError, match=r"n_components=30 .* 29 dimensions of X\[0\]"):
        kind(30).fit(X)
    rng = np.random.default_rng(0)
    flat = rng.normal(size=(30, 2)) @ rng.normal(size=(2, 40))
    with pytest.raises(ValueError, match=r"n_components=3 .* 2 dimensions of X\[1\]"):
        kind(3, standardize=False).fit([X[0], flat])


def test_a_target_that_a_subject_lacks_is_completed():
    rng = np.random.default_rng(13)
    x = np.zeros((20, 30))
    x[:10] = rng.normal(size=(10, 30))
    basis = SubjectBasis(x, standardize=False)
    S = np.linalg.qr(rng.normal(size=(20, 3)))[0]
    S[:, 2] = S[:, 0]  # a target of rank two
    found = align_to(basis, S)
    W = basis.combine(found.mixing)
    assert_allclose(W.T @ W, np.eye(3), atol=1e-9)
    assert_allclose((x - x.mean(axis=0)) @ W, found.features, atol=1e-9)
    A = (x - x.mean(axis=0)).T @ S
    assert_allclose(np.sum(W * A), np.linalg.norm(A, "nuc"), rtol=1e-9)


@settings(max_examples=25, deadline=None)
@given(
    seed=st.integers(0, 10_000),
    v=st.integers(4, 40),
    k=st.integers(1, 3),
    spread=st.floats(0, 7),
)
def test_polar_factor_from_the_gram_matrix_is_the_polar_factor(seed, v, k, spread):
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(15, v))
    S = rng.normal(size=(15, k)) * np.logspace(0, -spread, k)
    basis = SubjectBasis(x, standardize=False)
    x = x - x.mean(axis=0)
    found = align_to(basis, S)
    W = basis.combine(found.mixing)
    assert_allclose(W.T @ W, np.eye(k), atol=1e-7)
    assert_allclose(np.sum(W * (x.T @ S)), np.linalg.norm(x.T @ S, "nuc"), rtol=1e-7)
    assert_allclose(x @ W, found.features, atol=1e-6)


@pytest.mark.parametrize("kind", BOTH)
def test_new_subject_is_aligned_by_procrustes_to_the_shared_response(kind):
    X, _, _ = study(14, voxels=(50, 40, 45, 35))
    model = kind(3, standardize=False, random_state=0).fit(X[:3])
    new = model.fit_new_subject(X[3])
    centred = X[3] - X[3].mean(axis=0)
    assert_allclose(new.weights, polar(centred.T @ model.shared_response_), atol=1e-9)
    with pytest.raises(ValueError, match="29 samples for 30 rows of the shared"):
        model.fit_new_subject(X[3][:29])


@pytest.mark.parametrize("kind", BOTH)
def test_unequal_samples_name_both_ways_out(kind):
    X, _, _ = study(15)
    with pytest.raises(
        ValueError, match=r"X\[0\] has 30 samples and X\[2\] has 28.*match_samples.*GDM"
    ):
        kind(3).fit([X[0], X[1], X[2][:-2]])


@pytest.mark.parametrize("kind", BOTH)
def test_predicting_a_subject_restores_its_mean(kind):
    X, _, _ = study(17, noise=0.1)
    model = kind(3, random_state=0).fit(X)
    predicted = model.predict_subject(0, X[1:])
    assert_allclose(predicted.mean(axis=0), X[0].mean(axis=0), atol=1e-9)
    unexplained = np.var(X[0] - predicted) / np.var(X[0])
    assert unexplained < 0.2


def test_a_subject_joins_a_model_from_a_pickle():
    import pickle

    X, _, _ = study(18)
    model = pickle.loads(pickle.dumps(DetSRM(3, random_state=0).fit(X)))
    assert model.fit_new_subject(X[0]).n_components == 3


def test_a_shared_response_of_fewer_dimensions_has_a_likelihood(rng):
    bases = [SubjectBasis(rng.normal(size=(12, 9))) for _ in range(2)]
    features = np.column_stack([rng.normal(size=12), np.zeros(12)])
    maps = [Alignment(np.empty((12, 2)), features)] * 2
    found = [
        expect(sizes_of(bases), Model(maps, np.diag([1.0, low]), np.full(2, 1e-18)))
        for low in (0.0, -1e-16)  # as rounding leaves it
    ]
    assert np.isfinite(found[0].log_likelihood)
    assert found[1].log_likelihood == found[0].log_likelihood
    assert_array_equal(found[1].covariance, found[0].covariance)


def test_rows_that_look_like_voxels_are_warned_about_where_no_labels_tell():
    tall = [np.zeros((2000, 200))] * 2
    with pytest.warns(LayoutWarning, match="2000 rows and 200 columns"):
        DetSRM(2)._check_subjects(tall, None)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        DetSRM(2)._check_subjects(tall, [["a"] * 2000] * 2)
        for shape in ((1999, 2), (2000, 201)):
            DetSRM(2)._check_subjects([np.zeros(shape)] * 2, None)


def test_changes_that_are_rounding_end_an_iteration():
    large = Iterations(1e6 + 1, max_iter=9, tol=1e-12)
    for value in (1e6, 1e6 - 5e-8):
        assert large.go_on()
        large.add(value)
    assert large.converged
    small = Iterations(2e-6, max_iter=3, tol=1e-12)
    for value in (1e-6, 1e-6 - 1e-16, 1e-6 - 2e-16):
        assert small.go_on()
        small.add(value)
    assert not small.converged
    assert not small.go_on()  # no more than max_iter


@pytest.mark.parametrize("weakest", [1e-2, 1e-4, 3e-5])
def test_maps_stay_orthonormal_where_the_target_is_ill_conditioned(rng, weakest):
    basis = SubjectBasis(rng.normal(size=(20, 60)))
    turn = np.linalg.qr(rng.normal(size=(3, 3)))[0]
    S = (basis.vectors[:, :3] * [1, 0.5, weakest]) @ turn
    found = align_to(basis, S)
    metric = found.mixing.T @ basis.gram_times(found.mixing)
    assert_allclose(metric, np.eye(3), atol=1e-11)
    assert_allclose(found.features, basis.gram_times(found.mixing), atol=1e-10)
