"""SRM, DetSRM, RobustSRM and SemiSupervisedSRM against BrainIAK."""

import numpy as np
import pytest
from numpy.testing import assert_allclose

import brainweave as bw
from brainweave.aligners.srm.srm import Model, expect, maximise, sizes_of
from brainweave.aligners.timelocked import Alignment, align_to
from brainweave.basis.basis import SubjectBasis
from brainweave.basis.linalg import flip_signs

pytestmark = pytest.mark.filterwarnings("ignore")  # theirs are not ours to mend

K = 5
WORSE = 1e-3  # a converged objective may be worse than theirs by this share


@pytest.fixture
def funcalign():
    """BrainIAK's module, which needs MPI (``pip install brainiak mpich``)."""
    return pytest.importorskip("brainiak.funcalign.srm", exc_type=ImportError)


def study(seed=0, n=60, voxels=(80, 90, 70, 100), scale=1.0):
    rng = np.random.default_rng(seed)
    S = rng.normal(size=(n, K)) * np.arange(K, 0, -1)
    X = []
    for v in voxels:
        x = S @ np.linalg.qr(rng.normal(size=(v, K)))[0].T
        x = scale * (x + 0.3 * rng.normal(size=x.shape))
        X.append(x - x.mean(axis=0))
    return X


def theirs(X):
    """They take voxels x samples."""
    return [np.ascontiguousarray(x.T) for x in X]


def by_variance(S, covariance):
    """Give the rotation that puts components in our order, with our signs."""
    turn = np.linalg.eigh(covariance)[1][:, ::-1]
    return turn * flip_signs(S @ turn)


# They add 0.001 to the diagonal of X^T S before each decomposition. In data this large
# it is too small to see, so that iterates of the same start can be compared.
LARGE = 1e3


@pytest.mark.parametrize("n_iter", [2, 5, 10])
def test_detsrm_iterates(funcalign, record, monkeypatch, n_iter):
    X = study(scale=LARGE)
    start = funcalign.DetSRM(n_iter=0, features=K, rand_seed=1).fit(theirs(X)).s_.T
    other = funcalign.DetSRM(n_iter=n_iter, features=K, rand_seed=1).fit(theirs(X))
    model = bw.DetSRM(K, max_iter=n_iter - 1, tol=0, standardize=False)
    monkeypatch.setattr(model, "_start", lambda *_: start)
    model.fit(X)
    S = other.s_.T
    turn = by_variance(S, S.T @ S)
    worst = np.abs(model.shared_response_ - S @ turn).max() / np.abs(S).max()
    for m, w in zip(model.maps_, other.w_, strict=True):
        worst = max(worst, np.abs(m.weights - w @ turn).max())
    norms = np.linalg.norm(model.shared_response_), np.linalg.norm(S)
    record("BrainIAK", "DetSRM", f"iterate {n_iter}, |S|", *norms, worst, "1e-6")
    assert worst < 1e-6


@pytest.mark.parametrize("n_iter", [1, 5, 10])
def test_srm_iterates(funcalign, record, n_iter):
    X = study(scale=LARGE)
    begin = funcalign.SRM(n_iter=0, features=K, rand_seed=1).fit(theirs(X))
    other = funcalign.SRM(n_iter=n_iter, features=K, rand_seed=1).fit(theirs(X))
    bases = [SubjectBasis(x, standardize=False) for x in X]
    sizes = sizes_of(bases)
    maps = [Alignment(None, x @ w) for x, w in zip(X, begin.w_, strict=True)]
    model = Model(maps, np.eye(K), np.ones(len(X)))
    for _ in range(n_iter):
        posterior = expect(sizes, model)
        S, covariance, _ = posterior
        model = maximise(sizes, [align_to(b, S) for b in bases], S, covariance)
    S = other.s_.T
    worst = np.abs(posterior.mean - S).max() / np.abs(S).max()
    worst = max(worst, np.abs(model.rho2 / other.rho2_ - 1).max())
    scale = np.abs(other.sigma_s_).max()
    worst = max(worst, np.abs(model.sigma - other.sigma_s_).max() / scale)
    for b, a, w in zip(bases, model.maps, other.w_, strict=True):
        worst = max(worst, np.abs(b.combine(a.mixing) - w).max())
    record(
        *("BrainIAK", "SRM", f"iterate {n_iter}, rho^2 of subject 0"),
        *(model.rho2[0], other.rho2_[0], worst, "1e-6"),
    )
    assert worst < 1e-6


def test_detsrm_objective(funcalign, record):
    X = study(2)
    other = funcalign.DetSRM(n_iter=300, features=K).fit(theirs(X))
    parts = zip(X, other.w_, strict=True)
    value = sum(np.sum((x - other.s_.T @ w.T) ** 2) for x, w in parts)
    model = bw.DetSRM(K, standardize=False, random_state=0, max_iter=1000, tol=1e-9)
    ours = model.fit(X).objective_history_[-1]
    record("BrainIAK", "DetSRM", "converged", ours, value, ours / value - 1, "+0.1 %")
    assert ours <= value * (1 + WORSE)


def test_srm_likelihood(funcalign, record):
    X = study(3)
    other = funcalign.SRM(n_iter=300, features=K).fit(theirs(X))
    bases = [SubjectBasis(x, standardize=False) for x in X]
    maps = [Alignment(None, x @ w) for x, w in zip(X, other.w_, strict=True)]
    theirs_at = Model(maps, other.sigma_s_, other.rho2_)
    value = expect(sizes_of(bases), theirs_at).log_likelihood
    model = bw.SRM(K, standardize=False, random_state=0, max_iter=1000, tol=1e-9)
    ours = model.fit(X).log_likelihood_
    record(
        *("BrainIAK", "SRM", "converged log-likelihood"),
        *(ours, value, (value - ours) / abs(value), "+0.1 %"),
    )
    assert ours >= value - WORSE * abs(value)


def test_robust_srm_objective(funcalign, record):
    rsrm = pytest.importorskip("brainiak.funcalign.rsrm")
    X = study(4)
    rng = np.random.default_rng(4)
    for x in X:
        x += 4 * (rng.random(x.shape) < 0.02) * rng.normal(size=x.shape)
        x -= x.mean(axis=0)
    lam = 0.5
    other = rsrm.RSRM(n_iter=300, features=K, gamma=lam).fit(theirs(X))
    value = other._objective_function(theirs(X), other.w_, other.r_, other.s_, lam)
    model = bw.RobustSRM(
        *(K,), lam=lam, standardize=False, random_state=0, max_iter=1000, tol=1e-8
    )
    ours = model.fit(X).objective_history_[-1]
    record(
        "BrainIAK", "RobustSRM", "converged", ours, value, ours / value - 1, "+0.1 %"
    )
    assert ours <= value * (1 + WORSE)


def test_semisupervised_srm_objective(funcalign, record):
    sssrm = pytest.importorskip("brainiak.funcalign.sssrm", exc_type=ImportError)
    rng = np.random.default_rng(5)
    X = study(5, n=30, voxels=(40, 50, 45))
    Z, y = [], []
    for x in X:
        labels = rng.permutation(np.arange(18) % 3)
        z = rng.normal(size=(3, x.shape[1]))[labels] + rng.normal(size=(18, x.shape[1]))
        Z.append(z - z.mean(axis=0))
        y.append(labels)
    alpha, gamma = 0.6, 1.0
    other = sssrm.SSSRM(n_iter=20, features=K, gamma=gamma, alpha=alpha, rand_seed=0)
    other.fit(theirs(X), y, theirs(Z))
    value = other._objective_function(
        theirs(X), theirs(Z), y, other.w_, other.s_, other.theta_, other.bias_
    )
    together = [np.vstack([x, z]) for x, z in zip(X, Z, strict=True)]
    known = [[None] * 30 + labels.tolist() for labels in y]
    ours = min(  # the objective has several optima; either may find a lesser one
        bw.SemiSupervisedSRM(
            *(K,), alpha=alpha, gamma=gamma, standardize=False, random_state=seed
        )
        .fit(together, known)
        .objective_history_[-1]
        for seed in range(5)
    )
    record(
        *("BrainIAK", "SemiSupervisedSRM", "converged, best of 5 starts"),
        *(ours, value, ours / value - 1, "+0.1 %"),
    )
    assert ours <= value * (1 + WORSE)


def test_new_subject(funcalign, record):
    X = study(6)
    model = bw.DetSRM(K, standardize=False, random_state=0).fit(X[:3])
    other = funcalign.DetSRM(n_iter=10, features=K).fit(theirs(X[:3]))
    other.s_ = model.shared_response_.T
    w = other.transform_subject(theirs(X)[3])
    ours = model.fit_new_subject(X[3]).weights
    worst = np.abs(ours - w).max()
    norms = np.linalg.norm(ours), np.linalg.norm(w)
    record("BrainIAK", "DetSRM", "map of a new subject, |W|", *norms, worst, "1e-6")
    assert_allclose(ours, w, atol=1e-6)
