"""Every product of a ridge smoother against the dense matrix, and how rho is chosen."""

import re

import numpy as np
import pytest
import scipy.sparse
from numpy.testing import assert_allclose, assert_array_equal

import brainweave as bw
from brainweave._core.exceptions import InputError
from brainweave.aligners.gdm.joint import JointRidge
from brainweave.aligners.gdm.smoother import (
    GramSmoother,
    NarrowSmoother,
    SpectralSmoother,
)
from brainweave.aligners.gdm.strength import (
    FEATURE_GRID,
    GRID,
    block_criterion,
    choose_by_features,
    choose_strength,
    covariance_strength,
    evenly_spaced,
    group_contrasts,
    leave_out_blocks,
    search_grid,
)


def samples(rng, n, v):
    x = rng.normal(size=(n, v)) * np.geomspace(3, 0.3, v)
    return x - x.mean(axis=0)


def dense(x, strength):
    """Return the centring, S = K (K + g)^-1 and (K + g)^-1 of centred samples."""
    n = len(x)
    H, K = np.eye(n) - 1 / n, x @ x.T
    inverse = np.linalg.inv(K + strength * np.eye(n))
    return H, K @ inverse, inverse


def spectral(x, strength):
    smoother = SpectralSmoother(*np.linalg.eigh(x @ x.T))
    smoother.strength = strength
    return smoother


KINDS = {
    "gram": lambda x, g: GramSmoother(x @ x.T, g),
    "narrow": NarrowSmoother,
    "spectral": spectral,
}


@pytest.mark.parametrize(
    ("kind", "n", "v"),
    [
        *(("gram", n, v) for n, v in ((12, 5), (70, 8), (140, 200))),
        *(("spectral", n, v) for n, v in ((12, 5), (70, 8), (140, 200))),
        *(("narrow", n, v) for n, v in ((12, 5), (70, 8), (140, 70))),
    ],
)
@pytest.mark.parametrize("strength", [0.5, 1e5])
def test_products_are_those_of_the_dense_smoother(rng, kind, n, v, strength):
    x = samples(rng, n, v)
    s = KINDS[kind](x, strength)
    H, S, inverse = dense(x, strength)
    A = np.eye(n) - S
    tol = {"rtol": 1e-7, "atol": 1e-9 * max(1, np.abs(x @ x.T).max())}
    assert s.mean_eigenvalue == pytest.approx((x * x).sum() / n)
    assert_allclose(s.gram, x @ x.T, atol=1e-10)
    Z = samples(rng, n, 3)
    for width in (2, n // 2, n // 2 + 1, n - 3, n + 1):
        one_hot = scipy.sparse.csr_array(
            (np.ones(n), (np.arange(n), rng.integers(0, width, n))), shape=(n, width)
        )
        for U in (rng.normal(size=(n, width)), one_hot):
            T = H @ (U.toarray() if scipy.sparse.issparse(U) else U)
            assert_allclose(s.smooth(U), S @ T, **tol)
            assert_allclose(s.residual(U), A @ T, **tol)
            mixing, features = s.regress(U)
            assert_allclose(features, S @ T, **tol)
            assert_allclose(s.features(mixing), S @ T, **tol)
            assert_allclose(s.quadratic_form(U), T.T @ S @ T, **tol)
            forms = s.forms(U, Z)
            expected = T.T @ S @ T, Z.T @ A @ Z, Z.T @ A @ T
            for found, want in zip(forms, expected, strict=True):
                assert_allclose(found, want, **tol)
            rows, other = np.arange(0, n, 2), np.arange(1, n, 3)
            part = s.subset(rows)
            own = x[rows] - x[rows].mean(axis=0)
            assert_allclose(part.gram, own @ own.T, atol=1e-9)
            assert part.strength == strength
            between = s.between(other, np.arange(n)) @ s.coefficients(U)
            assert_allclose(between, (x @ x.T @ inverse @ T)[other], **tol)
    root, sizes = s.root
    assert root.shape[1] == min(n - 1, v)
    assert_allclose((root * sizes**2) @ root.T, S, atol=1e-9)
    again = s.at(0.3)
    assert again.strength == pytest.approx(0.3 * s.mean_eigenvalue)
    B = rng.normal(size=(n, 2))
    expected = dense(x, again.strength)[1] @ H @ B
    assert_allclose(again.smooth(B), expected, **tol)
    assert_allclose(s.smooth(B), S @ H @ B, **tol)  # which stays as it was


def test_halves_are_decomposed_once_unless_they_are_all_alike(rng):
    x = rng.integers(-9, 9, (20, 30)).astype(float)
    x[:6] = x[0]
    whole, rows = GramSmoother(x @ x.T), np.arange(6, 20)
    assert type(whole.shared_subset(rows)) is GramSmoother  # one fit decomposes nothing
    whole.memory = {}
    first, again = whole.shared_subset(rows), whole.shared_subset(rows)
    assert type(first) is SpectralSmoother
    assert first._vectors is again._vectors
    B = rng.normal(size=(14, 2))
    wanted = whole.subset(rows).at(0.2).smooth(B)
    assert_allclose(first.at(0.2).smooth(B), wanted, atol=1e-10)
    alike = whole.shared_subset(np.arange(6)).at(0.2)
    with pytest.raises(InputError, match="negative eigenvalues"):
        alike.smooth(B[:6])


@pytest.mark.parametrize("kind", KINDS)
def test_one_triangle_of_a_factor_is_the_whole(rng, kind):
    x = samples(rng, 90, 70)
    B = rng.normal(size=(90, 2))
    whole, half = (KINDS[kind](x, 2.0) for _ in range(2))
    half.keeps_products = False
    for _ in range(2):  # as it is computed, and as it is kept
        for found, expected in zip(half.regress(B), whole.regress(B), strict=True):
            assert_array_equal(found, expected)
        assert_array_equal(half.smooth(B), whole.smooth(B))
        for smoother in (whole, half):
            factor = smoother._factor[0]
            assert_array_equal(factor, np.triu(factor))
    size = len(whole._factor[0])
    assert half._stored_factor[1].size == size * (size + 1) // 2


@pytest.mark.parametrize("rows", [90, 70, 20])
def test_narrow_samples_of_float32_multiply_in_float64(rng, rows):
    x = samples(rng, 90, 70).astype(np.float32)
    both = [NarrowSmoother(own, 2.0) for own in (x, x.astype(np.float64))]
    if rows < 90:
        both = [smoother.subset(np.arange(rows)) for smoother in both]
    single, double = both
    B = rng.normal(size=(rows, 2))
    for found, expected in zip(single.regress(B), double.regress(B), strict=True):
        assert_array_equal(found, expected)
    assert_array_equal(single.forms(B, B)[1], double.forms(B, B)[1])
    assert_array_equal(single.gram, double.gram)
    assert single.mean_eigenvalue == double.mean_eigenvalue


@pytest.mark.parametrize("kind", KINDS)
def test_blocks_are_predicted_by_refits_to_the_others(rng, kind):
    x = samples(rng, 21, 6)
    s, target = KINDS[kind](x, 2.0), samples(rng, 21, 3)
    blocks = np.array([4] * 5 + [1] * 9 + [4] * 2 + [7] * 5)
    found = s.leave_out(target, blocks)
    for block in (1, 4, 7):
        own = blocks == block
        mean_x, mean_t = x[~own].mean(axis=0), target[~own].mean(axis=0)
        z, t = x[~own] - mean_x, target[~own] - mean_t
        W = np.linalg.solve(z.T @ z + 2.0 * np.eye(6), z.T @ t)
        assert_allclose(found[own], mean_t + (x[own] - mean_x) @ W, atol=1e-9)


@pytest.mark.parametrize("strength", [0.0, -1.0, np.inf, np.nan])
def test_a_ridge_is_positive_and_finite(strength):
    message = f"The ridge of X[3] must be larger than 0 and finite; got {strength}."
    for make in (GramSmoother, NarrowSmoother):
        with pytest.raises(InputError, match=re.escape(message)):
            make(np.eye(3), strength, name="X[3]")
    with pytest.raises(InputError, match=r"matrix of X\[3\] has negative eigenvalues"):
        GramSmoother(np.diag([1.0, 1.0, -2.0]), 1.0, name="X[3]").smooth(np.eye(3))


@pytest.mark.parametrize("h", [0.7, 1e4, np.inf])
@pytest.mark.parametrize("n_subjects", [3, 9])
def test_subjects_with_places_are_one_ridge_regression(rng, h, n_subjects):
    """Deviations and the shared map solved together, in stacked voxels."""
    X = [samples(rng, 10, 6) for _ in range(n_subjects)]
    Z = [samples(rng, 10, 4) for _ in X]
    g = [1.0 + i for i in range(n_subjects)]
    joint = JointRidge(
        [GramSmoother(x @ x.T, s) for x, s in zip(X, g, strict=True)], Z, h
    )
    T = [samples(rng, 10, 2) for _ in X]
    use = [np.zeros_like(z) for z in Z] if np.isinf(h) else Z
    wide = np.hstack([np.zeros((10 * n_subjects, 6 * n_subjects)), np.vstack(use)])
    for i, x in enumerate(X):
        wide[10 * i : 10 * i + 10, 6 * i : 6 * i + 6] = x
    ridge = np.repeat([*g, h if np.isfinite(h) else 1.0], [6] * n_subjects + [4])
    gram = wide.T @ wide + np.diag(ridge)
    W = np.linalg.solve(gram, wide.T @ np.vstack(T))
    found = joint.regress(T)
    assert_allclose(np.vstack(found.features), wide @ W, atol=1e-9)
    for i, (x, m) in enumerate(zip(X, found.maps, strict=True)):
        assert_allclose(x.T @ m, W[6 * i : 6 * i + 6], atol=1e-9)
    if np.isinf(h):
        assert found.shared is None
        assert joint.places is None
    else:
        assert_allclose(found.shared, W[-4:], atol=1e-9)
    S = wide @ np.linalg.solve(gram, wide.T)
    for sparse in (False, True):
        U = [np.eye(3)[rng.integers(0, 3, 10)] for _ in X]
        stacked = np.vstack([u - u.mean(axis=0) for u in U])
        given = [scipy.sparse.csr_array(u) for u in U] if sparse else U
        P = stacked.T @ S @ stacked
        for _ in range(2):  # also with what is known from before
            assert_allclose(joint.quadratic_form(given), P, atol=1e-9)
            x = rng.normal(size=(3, 2))
            assert_allclose(joint.multiply(given, x), P @ x, atol=1e-9)
    penalties = joint.penalties(found)
    for i, penalty in enumerate(penalties):
        D = W[6 * i : 6 * i + 6]
        expected = g[i] * D.T @ D
        if np.isfinite(h):
            expected = expected + h / n_subjects * W[-4:].T @ W[-4:]
        assert_allclose(penalty, expected, atol=1e-9)
    for i, (own, shared) in enumerate(joint.as_new(T)):
        if shared is None:
            expected = np.linalg.solve(X[i] @ X[i].T + g[i] * np.eye(10), T[i])
            assert np.isinf(h)
        else:
            others = [j for j in range(n_subjects) if j != i]
            rows = np.concatenate([np.arange(10 * j, 10 * j + 10) for j in others])
            part = wide[rows]
            alone = np.linalg.solve(
                part.T @ part + np.diag(ridge), part.T @ np.vstack(T)[rows]
            )[-4:]
            assert_allclose(shared, alone, atol=1e-9)
            left = T[i] - Z[i] @ alone
            expected = np.linalg.solve(X[i] @ X[i].T + g[i] * np.eye(10), left)
        assert_allclose(own, expected, atol=1e-9)
    if np.isfinite(h):
        other = joint.at(3 * h)
        assert_allclose(
            other.regress(T).shared,
            JointRidge(joint.smoothers, Z, 3 * h).regress(T).shared,
            atol=1e-9,
        )
        assert_allclose(joint.regress(T).shared, found.shared, rtol=0)


def literal_blocks(codes, runs):
    n = len(codes)
    if runs is not None:
        repeated = [
            len({r for c, r in zip(codes, runs, strict=True) if c == g and g >= 0}) > 1
            for g in set(codes)
        ]
        if sum(repeated) > 1:
            return list(runs)
    blocks = [0] * n
    for g in set(codes):
        own = [i for i in range(n) if codes[i] == g]
        for place, i in enumerate(own):
            blocks[i] = place * min(4, len(own)) // len(own)
    return blocks if sum(codes.count(g) > 1 for g in set(codes)) > 1 else None


def test_blocks_to_leave_out_are_runs_or_parts_of_groups(rng):
    for _ in range(40):
        n = int(rng.integers(2, 14))
        codes = rng.integers(0, 5, n)
        for runs in (None, rng.integers(0, 3, n)):
            known = None if runs is None else runs.tolist()
            expected = literal_blocks(codes.tolist(), known)
            found = leave_out_blocks(codes, runs)
            assert (None if found is None else found.tolist()) == expected


def test_groups_are_predicted_alike_whatever_their_size(rng):
    codes = np.array([7, 2, 2, 7, 2, 9])
    Q = group_contrasts(codes)
    assert Q.shape == (6, 3)
    for column, g in enumerate((2, 7, 9)):
        own = (codes == g) / np.sqrt((codes == g).sum())
        assert_allclose(Q[:, column], own - own.mean(), atol=1e-12)
    x = samples(rng, 30, 12)
    labels = np.concatenate([rng.integers(0, 3, 27), [-1] * 3])
    known = labels >= 0
    s = GramSmoother(x @ x.T)
    found = block_criterion(s, labels, rhos=(0.01, 0.4, 5.0))
    part, T = s.subset(np.flatnonzero(known)), group_contrasts(labels[known])
    blocks = leave_out_blocks(labels[known])
    for value, rho in zip(found, (0.01, 0.4, 5.0), strict=True):
        predicted = part.at(rho).leave_out(T, blocks)
        assert value == pytest.approx(np.corrcoef(predicted.ravel(), T.ravel())[0, 1])
    assert block_criterion(s, np.arange(30)) is None
    assert block_criterion(s, np.full(30, -1)) is None
    assert block_criterion(s, np.zeros(30, int)) is None


def test_the_best_of_few_places_is_found_with_few_looks():
    for summit in range(12):
        looked = []

        def value(places, looked=looked, summit=summit):
            looked.extend(places)
            return [-abs(i - summit) for i in places]

        assert search_grid(value) == summit
        assert len(looked) == len(set(looked)) <= 7
        assert min(looked) >= 0
        assert max(looked) < 12
    assert search_grid(lambda places: [float(i == 4) for i in places], 5) == 4
    assert len(GRID) == 12
    assert GRID[0] == pytest.approx(0.001)
    assert GRID[-1] == pytest.approx(3)
    assert FEATURE_GRID[:12] == GRID
    assert len(FEATURE_GRID) == 16  # as the documentation says
    assert FEATURE_GRID[-1] == pytest.approx(30)
    ratios = np.diff(np.log(FEATURE_GRID[11:]))
    assert_allclose(ratios, np.log(10) / 4)


def test_some_of_many_subjects_are_asked():
    assert evenly_spaced(5, 12).tolist() == [0, 1, 2, 3, 4]
    assert evenly_spaced(12, 12).tolist() == list(range(12))
    assert evenly_spaced(9, 3).tolist() == [0, 4, 8]
    assert evenly_spaced(1, 3).tolist() == [0]


def test_where_the_strength_comes_from_is_told(rng):
    X = [rng.normal(size=(24, v)) for v in (9, 40)]
    labels, runs = [np.arange(24) % 3] * 2, np.repeat(np.arange(3), 8)
    how = {"n_jobs": 1, "owner": "GDM"}
    plain = [bw.SubjectBasis(x) for x in X]
    with_runs = [bw.SubjectBasis(x, runs=runs) for x in X]
    graph = bw.label_graph(labels)
    assert choose_strength(0.3, plain, graph, **how) == (0.3, "given")
    assert choose_strength(2, plain, graph, **how) == (2.0, "given")
    assert choose_strength("auto", plain, graph, **how)[1] == "blocks"
    assert choose_strength("auto", with_runs, graph, **how)[1] == "runs"
    mixed = [plain[0], with_runs[1]]
    assert choose_strength("auto", mixed, graph, **how)[1] == "blocks"
    by_covariance = choose_strength("ledoit-wolf", plain, graph, **how)
    assert by_covariance[1] == "ledoit-wolf"
    Z = [(x - x.mean(0)) / x.std(0) for x in X]
    expected = covariance_strength([z @ z.T for z in Z], [9, 40])
    assert by_covariance[0] == pytest.approx(expected, rel=1e-9)
    once = bw.time_graph([np.arange(24)] * 2)
    assert choose_strength("auto", plain, once, **how) == by_covariance
    message = (
        "shrinkage of GDM must be a number or one of 'auto', 'ledoit-wolf'; got 'best'."
    )
    with pytest.raises(InputError, match=f"^{re.escape(message)}$"):
        choose_strength("best", plain, graph, **how)
    for value in (0, -1, np.inf, np.nan):
        with pytest.raises(InputError, match="shrinkage of GDM must be > 0, got"):
            choose_strength(value, plain, graph, **how)
    rows = np.arange(24)
    target = [(rows, z[:, :2]) for z in Z]
    assert choose_by_features(plain, target, 1)[1] == "blocks"
    assert choose_by_features(with_runs, target, 1)[1] == "runs"
    assert choose_by_features(mixed, target, 1)[1] == "blocks"
    one_run = [bw.SubjectBasis(x, runs=np.zeros(24)) for x in X]
    assert choose_by_features(one_run, target, 1)[1] == "blocks"
