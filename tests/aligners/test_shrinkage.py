"""The closed form of the shrinkage model equals its dense eigenproblem."""

import threading
import warnings
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
import scipy.linalg
import scipy.sparse
from numpy.testing import assert_allclose

from brainweave import GDM, PaperGDM, SubjectBasis
from brainweave._core.exceptions import InputError, UniquenessWarning
from brainweave.aligners.gdm.eigenproblem import apply_graph
from brainweave.aligners.gdm.graph_parsing import labels_and_ids
from brainweave.aligners.gdm.joint import JointRidge
from brainweave.aligners.gdm.ridge import amplitude, common_scale, solve_shrinkage
from brainweave.aligners.gdm.smoother import (
    GramSmoother,
    NarrowSmoother,
    _invert_lower,
    is_semidefinite,
    mean_eigenvalue,
)
from brainweave.aligners.gdm.strength import smoother_of
from brainweave.graphs.builders import (
    NO_GROUP,
    affinity_graph,
    label_graph,
    matrix_graph,
    time_graph,
    weigh_groups,
)
from planted import planted_study

K = 3
LENGTHS = (30, 24, 36)


def positive(gram):
    values, vectors = np.linalg.eigh(gram)
    return (vectors * np.maximum(values, 0)) @ vectors.T


def dense_oracle(grams, strengths, G):
    """Maximise tr(Y G Y^T), sum (Y Y^T + g W^T W) = I, densely over W = Phi m.

    Y_i^T = K_i m_i and W_i^T W_i = m_i^T K_i m_i, so this is the pencil
    (K G K, K^2 + g K) on the range of K.
    """
    star = scipy.linalg.block_diag(*map(positive, grams))
    g = np.repeat(strengths, [len(k) for k in grams])
    d, V = np.linalg.eigh(star)
    V = V[:, d > 1e-9 * d.max()]
    left = V.T @ star @ G @ star @ V
    right = V.T @ (star @ star + 0.5 * (g[:, None] * star + star * g)) @ V
    values, m = scipy.linalg.eigh((left + left.T) / 2, (right + right.T) / 2)
    return values[::-1], (star @ V @ m[:, ::-1])


def study(rng, lengths=LENGTHS, **options):
    return planted_study(rng, lengths, (70, 80, 90), **options)


def grams_of(X, kernel="linear", hp=None):
    params = None if hp is None else {"hp": hp}
    bases = [SubjectBasis(x, kernel=kernel, kernel_params=params) for x in X]
    return [b.gram for b in bases], bases


def smoothers_of(grams, rho=0.2):
    rhos = np.broadcast_to(rho, len(grams))
    return [
        GramSmoother(k, r * mean_eigenvalue(k), name=f"X[{i}]")
        for i, (k, r) in enumerate(zip(grams, rhos, strict=True))
    ]


def compare(smoothers, graph, *, route="auto", k=K):
    solution = solve_shrinkage(JointRidge(smoothers), graph, k, route=route)
    G = graph.to_sparse().toarray()
    strengths = [s.strength for s in smoothers]
    mu, Y = dense_oracle([s.gram for s in smoothers], strengths, G)
    assert_allclose(solution.eigenvalues[:k], mu[:k], rtol=1e-8, atol=1e-10 * mu[0])
    ours = np.concatenate(solution.features)
    assert_allclose(ours @ ours.T, Y[:, :k] @ Y[:, :k].T, atol=1e-8)
    assert_constraint(smoothers, solution)
    return solution


def assert_constraint(smoothers, solution):
    total = sum(
        y.T @ y + s.strength * m.T @ y
        for s, m, y in zip(smoothers, solution.maps, solution.features, strict=True)
    )
    assert_allclose(total, np.eye(len(total)), atol=1e-8)


def a_graph(kind, y, rng):
    lengths = [len(part) for part in y]
    if kind == "labels":
        return weigh_groups(label_graph(y, different=0), "groups")
    if kind == "paper's labels":
        return label_graph(y)
    if kind == "time":
        return weigh_groups(time_graph([range(n) for n in lengths]), "subjects")
    if kind == "sum":
        return a_graph("labels", y, rng) + 0.7 * a_graph("time", y, rng)
    if kind == "affinity":
        A = 0.3 * rng.normal(size=(4, 4))
        return affinity_graph(y, A + A.T + np.diag([3.0, 2.0, 1.0, -2.0]))
    if kind == "unlabelled":
        y = [[None if rng.random() < 0.2 else v for v in part] for part in y]
        return a_graph("labels", y, rng)
    if kind == "incomplete":  # time ids that some saw and others did not
        ids = [np.arange(n) + 7 * i for i, n in enumerate(lengths)]
        return weigh_groups(time_graph(ids), "subjects")
    T = sum(lengths)
    S = scipy.sparse.random_array((T, T), density=0.1, rng=rng)
    S.data -= 0.3
    graph = matrix_graph(S + S.T, lengths)
    return graph if kind == "matrix" else a_graph("labels", y, rng) + 0.1 * graph


KINDS = [
    "labels",
    "paper's labels",
    "time",
    "sum",
    "affinity",
    "unlabelled",
    "incomplete",
    "matrix",
    "labels and matrix",
]


@pytest.mark.parametrize("kind", KINDS)
def test_closed_form_is_the_dense_eigenproblem(rng, kind):
    X, y = study(rng)
    k = 2 if kind == "affinity" else K
    compare(smoothers_of(grams_of(X)[0]), a_graph(kind, y, rng), k=k)


@pytest.mark.parametrize("route", ["closed", "operator", "matrix"])
@pytest.mark.parametrize("kind", ["labels", "time", "sum"])
def test_all_routes_agree(rng, kind, route):
    X, y = study(rng)
    compare(smoothers_of(grams_of(X)[0]), a_graph(kind, y, rng), route=route)


@pytest.mark.parametrize(
    ("kernel", "hp"),
    [("gaussian", 150.0), ("quadratic", 100.0), ("sigmoid", 30.0)],
)
def test_any_kernel(rng, kernel, hp):
    X, y = study(rng)
    _, bases = grams_of(X, kernel, hp)
    compare([smoother_of(b, 0.2) for b in bases], a_graph("sum", y, rng))


def test_negative_eigenvalues_count_for_nothing_even_below_the_ridge(rng):
    X, y = study(rng)
    indefinite, clipped = [], []
    for gram in grams_of(X)[0]:
        values, V = np.linalg.eigh(gram)
        values[1:4] = -0.05 * mean_eigenvalue(gram)  # orthogonal to constants
        indefinite.append((V * values) @ V.T)
        clipped.append((V * np.maximum(values, 0)) @ V.T)
    graph = a_graph("labels", y, rng)
    g = [0.2 * mean_eigenvalue(k) for k in clipped]
    bases = [SubjectBasis(k, kernel="precomputed") for k in indefinite]
    found = [smoother_of(b, 0.2) for b in bases]
    plain = [GramSmoother(k, s) for k, s in zip(clipped, g, strict=True)]
    one = solve_shrinkage(JointRidge(found), graph, K)
    other = solve_shrinkage(JointRidge(plain), graph, K)
    assert_allclose(one.eigenvalues, other.eigenvalues, rtol=1e-9, atol=1e-12)
    for a, b in zip(one.features, other.features, strict=True):
        assert_allclose(a @ a.T, b @ b.T, atol=1e-9)
    for mixing, gram in zip(one.maps, indefinite, strict=True):
        assert_allclose(positive(gram) @ mixing, gram @ mixing, atol=1e-7)


def test_strength_of_each_subject(rng):
    X, y = study(rng)
    smoothers = smoothers_of(grams_of(X)[0], rho=(0.01, 0.3, 2.0))
    compare(smoothers, a_graph("sum", y, rng))


def test_unbalanced_categories(rng):
    labels = [rng.choice(4, size=n, p=[0.6, 0.2, 0.1, 0.1]) for n in LENGTHS]
    X, y = study(rng, labels=labels)
    compare(smoothers_of(grams_of(X)[0]), a_graph("labels", y, rng))


def test_fewer_voxels_than_samples(rng):
    X, y = planted_study(rng, LENGTHS, (9, 12, 15))
    X = [x - x.mean(axis=0) for x in X]
    by_samples = smoothers_of([x @ x.T for x in X])
    by_voxels = [
        NarrowSmoother(x, s.strength) for x, s in zip(X, by_samples, strict=True)
    ]
    graph = a_graph("sum", y, rng)
    compare(by_voxels, graph)
    one, other = (
        solve_shrinkage(JointRidge(s), graph, K) for s in (by_samples, by_voxels)
    )
    for x, *maps in zip(X, one.maps, other.maps, strict=True):
        a, b = (x.T @ m for m in maps)  # the weights of the voxels
        assert_allclose(a @ a.T, b @ b.T, atol=1e-8 * np.abs(a).max() ** 2)


@pytest.mark.parametrize("kind", ["labels", "time"])
def test_no_ridge_is_the_paper_at_full_energy(rng, kind):
    lengths = (24, 24, 24)
    labels = [rng.permutation(np.arange(24) % 4) for _ in lengths]
    # more samples than voxels, or else every time course is shared without a ridge
    X, y = planted_study(rng, lengths, (10, 11, 12), labels=labels)
    ids = y if kind == "labels" else [range(24)] * 3
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UniquenessWarning)
        paper = PaperGDM(K, energy=1, graph=kind).fit_transform(X, ids)
    graph = label_graph(y) if kind == "labels" else time_graph(ids)
    paper = np.concatenate(paper)
    for rho, tolerance in ((1e-4, 1e-1), (1e-6, 1e-3), (1e-8, 1e-5)):
        ours = solve_shrinkage(JointRidge(smoothers_of(grams_of(X)[0], rho)), graph, K)
        Y = np.concatenate(ours.features)
        assert_allclose(Y @ Y.T * len(Y), paper @ paper.T, rtol=0, atol=tolerance)


def test_mapping_the_aligning_samples_gives_their_features(rng):
    X, y = study(rng)
    grams, bases = grams_of(X)
    solution = solve_shrinkage(
        JointRidge(smoothers_of(grams)), a_graph("labels", y, rng), K
    )
    for x, basis, m, Y in zip(X, bases, solution.maps, solution.features, strict=True):
        assert_allclose(basis.kernel_to(x) @ m, Y, atol=1e-10)


def test_new_subject_is_ridge_regression_on_the_scores(rng):
    X, y = study(rng)
    ids = [np.arange(len(part)) for part in y]
    gdm = GDM(K, shrinkage=0.2, scale="unit", standardize=False, graph="labels+time")
    gdm.fit(X, [labels_and_ids(a, b) for a, b in zip(y, ids, strict=True)])
    x = rng.normal(size=(20, 50))
    labels, ids = rng.integers(4, size=20), rng.permutation(24)[:20]
    known = [None, None, None, *labels[3:]]
    new = gdm.fit_new_subject(x, labels_and_ids(known, ids))
    x = x - x.mean(axis=0)
    by_label, by_time = (
        term.affinity @ sums
        for term, sums in zip(gdm.graph_.groups, gdm.group_sums_, strict=True)
    )
    target = by_time[ids]
    target[3:] += by_label[labels[3:]]
    # brute force: minimise |X W + b - target|^2 + g |W|^2 over W and b
    g = 0.2 * mean_eigenvalue(x @ x.T)
    padded = np.vstack([np.column_stack([x, np.ones(20)]), np.zeros((50, 51))])
    padded[20:, :50] = np.sqrt(g) * np.eye(50)
    W = np.linalg.lstsq(padded, np.vstack([target, np.zeros((50, K))]), rcond=None)[0]
    features = x @ W[:50]
    mu = gdm.eigenvalues_
    sizes = [np.linalg.norm(mu * of.std(axis=0)) for of in (target, features)]
    features *= gdm.scale_ * sizes[0] / sizes[1]
    assert_allclose(new.aligning_features(), features, atol=1e-9)


def test_a_fitted_subject_that_joins_anew_gets_its_own_map(rng):
    X, y = study(rng)
    graph = a_graph("sum", y, rng)
    smoothers = smoothers_of(grams_of(X)[0])
    solution = solve_shrinkage(JointRidge(smoothers), graph, K)
    for i, rows in enumerate(graph.slices()):
        target = apply_graph(graph, solution.template)[rows]
        again = smoothers[i].regress(target)[0]
        assert_allclose(again, solution.maps[i], atol=1e-10)


def test_many_groups_go_to_the_operator(rng):
    lengths = (450, 430)
    X = [rng.normal(size=(n, 30)) for n in lengths]
    X = [x - x.mean(axis=0) for x in X]
    smoothers = [NarrowSmoother(x, 20.0) for x in X]
    graph = time_graph([range(n) for n in lengths])
    solution = solve_shrinkage(JointRidge(smoothers), graph, K)
    assert solution.route == "operator"
    closed = solve_shrinkage(JointRidge(smoothers), graph, K, route="closed")
    assert_allclose(solution.eigenvalues, closed.eigenvalues, rtol=1e-9)
    # unless nearly as many components are wanted
    assert solve_shrinkage(JointRidge(smoothers), graph, 60).route == "closed"
    # or some groups push others away, which the operator cannot do
    both = graph + label_graph([np.arange(n) % 3 for n in lengths])
    assert compare(smoothers, both).route == "closed"


@pytest.mark.parametrize("rho", [1e-8, 2e-4, 0.1, 500, 1e8])
@pytest.mark.parametrize("n_groups", [5, 25, 90])
def test_what_a_smoother_does_between_groups(rng, rho, n_groups):
    X = rng.normal(size=(40, 70))
    X -= X.mean(axis=0)
    gram = X @ X.T
    g = rho * np.trace(gram) / 40
    U = np.zeros((40, n_groups))
    rows = np.arange(3, 40)  # some samples are of no group
    U[rows, rng.integers(0, n_groups, rows.size)] = rng.uniform(0.5, 2, rows.size)
    smoother = GramSmoother(gram, g)
    found = smoother.quadratic_form(scipy.sparse.csr_array(U))
    assert "_inverse_factor" not in smoother.__dict__  # nor of a thousand subjects
    values, V = np.linalg.eigh(gram)
    values[0] = 0  # of constants, to rounding
    by_hand = U.T @ (V * (values / (values + g))) @ (V.T @ U)
    assert_allclose(found, by_hand, rtol=0, atol=1e-10 * np.abs(by_hand).max())


def test_one_smoother_may_serve_two_threads_at_once(rng, monkeypatch):
    X = rng.normal(size=(12, 20))
    X -= X.mean(axis=0)
    one = GramSmoother(X @ X.T, 3.0)
    both = threading.Barrier(2, timeout=30)

    def together(matrix):
        both.wait()
        return _invert_lower(matrix)

    monkeypatch.setattr("brainweave.aligners.gdm.smoother._invert_lower", together)
    U = scipy.sparse.eye_array(12, format="csr")
    with ThreadPoolExecutor(2) as pool:
        found = list(pool.map(one.quadratic_form, [U, U]))
    assert_allclose(found[0], one.smooth(np.eye(12)), atol=1e-12)
    assert_allclose(found[1], found[0], rtol=1e-12)


@pytest.mark.parametrize("n", [1, 64, 65, 200])
def test_a_triangle_is_inverted_by_halves(rng, n):
    L = np.tril(rng.normal(size=(n, n))) + 3 * np.sqrt(n) * np.eye(n)
    found = _invert_lower(L)
    assert_allclose(found @ L, np.eye(n), atol=1e-12)
    assert_allclose(np.triu(found, 1), 0, atol=1e-14)


def test_many_groups_of_many_samples_are_solved_by_an_inverse(rng):
    X = [rng.normal(size=(450, 460)) for _ in range(2)]
    smoothers = smoothers_of([x @ x.T for x in (x - x.mean(axis=0) for x in X)])
    graph = time_graph([range(450)] * 2)
    solution = solve_shrinkage(JointRidge(smoothers), graph, K)
    assert solution.route == "closed"
    other = solve_shrinkage(JointRidge(smoothers), graph, K, route="operator")
    assert_allclose(solution.eigenvalues, other.eigenvalues, rtol=1e-9)


def test_few_groups_are_solved_in_closed_form(rng):
    X, y = study(rng)
    graph = a_graph("time", y, rng)
    assert len(graph.groups[0].names) > 8 * K
    assert compare(smoothers_of(grams_of(X)[0]), graph).route == "closed"


@pytest.mark.parametrize("route", ["closed", "operator"])
def test_routes_of_groups_refuse_a_matrix(rng, route):
    X, y = study(rng)
    smoothers = smoothers_of(grams_of(X)[0])
    with pytest.raises(InputError, match="A matrix of weights has no groups"):
        solve_shrinkage(
            JointRidge(smoothers), a_graph("labels and matrix", y, rng), K, route=route
        )


def test_no_component_without_gain(rng):
    X, y = study(rng)
    smoothers = smoothers_of(grams_of(X)[0])
    solution = solve_shrinkage(JointRidge(smoothers), a_graph("labels", y, rng), 10)
    assert solution.n_informative(10) == solution.maps[0].shape[1] == 3
    with pytest.raises(InputError, match="No component gains"):
        solve_shrinkage(JointRidge(smoothers), -1 * a_graph("labels", y, rng), 2)


@pytest.mark.parametrize("rho", [1e-8, 1e-3, 1.0])
def test_few_voxels_are_mixed_by_the_shortest_mixing(rng, rho):
    x = rng.normal(size=(200, 6))
    x = np.column_stack([x, x[:, 0], x[:, 1] + x[:, 2]])  # two say nothing new
    x -= x.mean(axis=0)
    B = rng.normal(size=(200, 3))
    g = rho * (x * x).sum() / 200
    smoother = NarrowSmoother(x, g)
    mixing, features = smoother.regress(B)
    weights = np.linalg.solve(x.T @ x + g * np.eye(8), x.T @ (B - B.mean(axis=0)))
    size = np.abs(weights).max()
    assert_allclose(x.T @ mixing, weights, atol=1e-6 * size)
    assert_allclose(features, x @ weights, atol=1e-9 * np.abs(x @ weights).max())
    assert_allclose(smoother.smooth(B), features)
    shortest = np.linalg.lstsq(x.T, weights, rcond=1e-10)[0]
    assert np.linalg.norm(mixing) < 1.0001 * np.linalg.norm(shortest)


@pytest.mark.parametrize("voxels", [1, 2, 10])
@pytest.mark.parametrize("rho", [1e-6, 1e-3, "auto"])
def test_few_voxels_in_float32_are_as_in_float64(rng, voxels, rho):
    X, y = planted_study(rng, (2000,) * 3, (voxels,) * 3)
    X = [x.astype(np.float32) for x in X]
    known = [x.astype(np.float64) for x in X]
    k = min(voxels, K)
    ours, wanted = (GDM(k, shrinkage=rho).fit(of, y) for of in (X, known))
    for got, want in zip(ours.transform(X), wanted.transform(known), strict=True):
        assert_allclose(got, want, atol=1e-5 * np.abs(want).max())
    got = ours.fit_new_subject(X[0], y[0]).transform(X[0])
    want = wanted.fit_new_subject(known[0], y[0]).transform(known[0])
    assert_allclose(got, want, atol=1e-5 * np.abs(want).max())
    basis = SubjectBasis(X[0])  # by inner products, as evaluations do
    got = basis.kernel_to(X[0]) @ ours.maps_[0].mixing
    want = wanted.maps_[0].transform(known[0])
    assert_allclose(got, want, atol=1e-5 * np.abs(want).max())


def test_uniqueness_is_a_gap(rng):
    X, y = study(rng)
    smoothers = smoothers_of(grams_of(X)[0])
    solution = solve_shrinkage(JointRidge(smoothers), a_graph("labels", y, rng), 2)
    assert solution.is_unique(2)
    twice = [GramSmoother(np.eye(8) - 1 / 8, 1.0)] * 2
    tied = solve_shrinkage(JointRidge(twice), time_graph([range(8)] * 2), 2)
    assert not tied.is_unique(2)


def test_scaled_features_spread_by_agreement_over_subjects(rng):
    X, y = study(rng)
    y = [list(y[0]), list(y[1]), [*y[2][:20], *[None] * (LENGTHS[2] - 20)]]
    smoothers, graph = smoothers_of(grams_of(X)[0]), label_graph(y, different=0)
    s = solve_shrinkage(JointRidge(smoothers), graph, K)
    mu, whole = s.eigenvalues[:K], apply_graph(graph, s.template)
    targets = [whole[rows] for rows in graph.slices()]
    for spread in (mu / mu[0], np.ones(K)):
        scale = common_scale(s.features, targets, mu, spread)
        squares, linked = np.zeros(K), [slice(None), slice(None), slice(20)]
        for f, target, rows in zip(s.features, targets, linked, strict=True):
            size = amplitude(f, target, mu)
            left, right = size * f[rows], (target - target.mean(axis=0))[rows]
            # as large as the target, and otherwise as it was
            assert_allclose(np.linalg.norm(left * mu), np.linalg.norm(right * mu))
            squares += np.mean((left * scale) ** 2, axis=0) / 3
        assert_allclose(np.sqrt(squares), spread)
    assert amplitude(np.zeros((9, K)), np.ones((9, K)), mu) == 1


def test_lonely_groups_weigh_nothing():
    ids = [["a", "b", "only0"], ["b", "a", "only1"]]
    graph = weigh_groups(time_graph(ids), "subjects")
    assert_allclose(graph.groups[0].affinity.diagonal(), [0.5, 0.5, 0, 0])
    assert graph.groups[0].codes.tolist() == [0, 1, NO_GROUP, 1, 0, NO_GROUP]
    # a group of one subject that another's is tied to is not lonely
    A = np.eye(4)
    A[2, 3] = A[3, 2] = 1
    kept = weigh_groups(affinity_graph(ids, A), "none").groups[0]
    assert_allclose(kept.affinity, A)


def test_unequal_counts_weigh_alike(rng):
    y = [rng.choice(3, size=40, p=[0.7, 0.2, 0.1]) for _ in range(3)]
    graph = weigh_groups(label_graph(y, different=0), "groups")
    Z = graph.groups[0].membership().toarray()
    assert_allclose(np.diag(Z.T @ graph.to_sparse().toarray() @ Z), Z.sum(axis=0))


def test_errors_name_the_subject(rng):
    with pytest.raises(InputError, match=r"ridge of X\[1\]"):
        GramSmoother(np.zeros((4, 4)), 0.0, name="X[1]")
    X = [rng.normal(size=(4, 9)) for _ in range(3)]
    with pytest.raises(InputError, match="samples per subject"):
        GDM(1, graph=time_graph([range(3)] * 2)).fit(X[:2])
    model = GDM(1, graph="time", shrinkage=1.0).fit(X[:2])
    with pytest.raises(InputError, match="No sample of the new subject has an edge"):
        model.fit_new_subject(X[2], [None] * 4)


@pytest.mark.parametrize("kind", [GramSmoother, NarrowSmoother])
def test_a_smoother_of_another_strength_is_made_anew(rng, kind):
    X = rng.normal(size=(20, 8))
    X -= X.mean(axis=0)
    data = X @ X.T if kind is GramSmoother else X
    B, blocks = rng.normal(size=(20, 3)), np.arange(20) // 5
    used = kind(data, 1.0)
    _, s = used.root
    used.leave_out(B - B.mean(axis=0), blocks)  # and all that is kept of it
    stronger = used.at(2.0)
    strength = 2 * np.trace(X @ X.T) / 20
    fresh = kind(data, strength)
    assert_allclose(stronger.strength, strength)
    assert_allclose(stronger.smooth(B), fresh.smooth(B), rtol=1e-10)
    assert_allclose(stronger.root[1], fresh.root[1], rtol=1e-10)
    for some in (stronger.leave_out, fresh.leave_out):
        found = some(B - B.mean(axis=0), blocks)
        assert_allclose(found, fresh.leave_out(B - B.mean(axis=0), blocks), rtol=1e-10)
    assert_allclose(used.root[1], s, rtol=0)


def test_the_root_leaves_out_what_rounding_made_of_a_gram_matrix(rng):
    for rank in (1, 2):
        X = rng.normal(size=(40, rank))
        X -= X.mean(axis=0)
        V, s = GramSmoother(X @ X.T, 1.0).root
        assert V.shape == (40, rank)
        by_hand = X @ np.linalg.inv(X.T @ X + np.eye(rank)) @ X.T
        assert_allclose((V * s**2) @ V.T, by_hand, atol=1e-12)


def test_a_gram_matrix_is_semidefinite_up_to_rounding_of_any_unit(rng):
    X = rng.normal(size=(30, 4))
    for unit in (1e-9, 1.0, 1e9):
        gram = unit * (X @ X.T)
        assert is_semidefinite(gram) is True
        assert is_semidefinite(gram - 1e-12 * np.abs(gram).max() * np.eye(30)) is True
        assert is_semidefinite(gram - 1e-7 * np.abs(gram).max() * np.eye(30)) is False


@pytest.mark.parametrize("kind", [GramSmoother, NarrowSmoother])
def test_some_of_the_samples_are_centred_anew(rng, kind):
    X = rng.normal(size=(20, 8))
    X -= X.mean(axis=0)
    data = X @ X.T if kind is GramSmoother else X
    B, rows = rng.normal(size=(20, 3)), np.array([1, 4, 5, 9, 12, 18])
    for some in (rows, np.arange(20)):
        part = X[some] - X[some].mean(axis=0)
        K, Y = part @ part.T, B[some] - B[some].mean(axis=0)
        found = kind(data, 0.7, name="X[3]").subset(some)
        assert (found.strength, found.name) == (0.7, "X[3]")
        by_hand = K @ np.linalg.solve(K + 0.7 * np.eye(len(some)), Y)
        assert_allclose(found.smooth(B[some]), by_hand, atol=1e-12)
        assert_allclose(found.mean_eigenvalue, np.trace(K) / len(some))
