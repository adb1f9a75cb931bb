"""The per-subject constraint: monotone, stationary, and made for partial overlap."""

import numpy as np
import pytest
import scipy.optimize
from numpy.testing import assert_allclose

from brainweave.aligners.graph_solver import apply_graph
from brainweave.aligners.shrinkage import (
    _inverse_root,
    best_map,
    solve_per_subject,
    solve_shrinkage,
)
from brainweave.aligners.smoother import GramSmoother, mean_eigenvalue
from brainweave.graphs import label_graph, matrix_graph, time_graph, weigh_groups
from planted import planted_study

K = 3


def centred(x):
    return x - x.mean(axis=0)


def movie(rng, n_subjects=6, n_ids=60, voxels=40, noise=3.0, rank=4):
    """Smooth shared time courses seen through each subject's own random map."""
    shared = rng.normal(size=(n_ids, rank))
    X = [shared @ rng.normal(size=(rank, voxels)) for _ in range(n_subjects)]
    return [x + noise * rng.normal(size=x.shape) for x in X]


def fitted(X, ids, rho=0.3, k=K, graph=None, **options):
    grams = [centred(x) @ centred(x).T for x in X]
    smoothers = [GramSmoother(g, rho * mean_eigenvalue(g)) for g in grams]
    if graph is None:
        graph = weigh_groups(time_graph(ids), "subjects")
    start = solve_shrinkage(smoothers, graph, k)
    return smoothers, start, solve_per_subject(smoothers, graph, start, **options)


def between(graph):
    """The dense graph without the edges within subjects."""
    G = graph.to_sparse().toarray()
    for rows in graph.slices():
        G[rows, rows] = 0
    return G


def test_no_round_lowers_the_objective(rng):
    X = movie(rng)
    ids = [np.arange(40) + 10 * (i % 3) for i in range(6)]
    _, _, solution = fitted([x[i] for x, i in zip(X, ids, strict=True)], ids)
    gains = np.diff(solution.history)
    assert len(gains) >= 2
    assert (gains >= -1e-10 * solution.history[-1]).all()


@pytest.mark.parametrize("kind", ["labels", "time", "matrix"])
def test_every_subject_is_white_and_the_objective_is_the_dense_one(rng, kind):
    X, y = planted_study(rng, (30, 24, 36), (70, 80, 90))
    graph = {
        "labels": weigh_groups(label_graph(y, different=0), "groups"),
        "time": weigh_groups(time_graph([range(len(p)) for p in y]), "subjects"),
    }.get(kind)
    if graph is None:
        sums = label_graph(y) + time_graph([range(len(p)) for p in y])
        graph = matrix_graph(sums.to_sparse(), [len(p) for p in y])
    smoothers, _, s = fitted(X, y, graph=graph, k=2, regress=False)
    for smoother, m, Y in zip(smoothers, s.maps, s.features, strict=True):
        assert_allclose(Y, smoother.gram @ m, atol=1e-9)
        assert_allclose(Y.T @ Y + smoother.strength * m.T @ Y, np.eye(2), atol=1e-9)
    stacked = np.concatenate(s.features)
    dense = stacked.T @ between(graph) @ stacked
    assert_allclose(np.trace(dense), s.history[-1], rtol=1e-9)
    assert_allclose(dense, np.diag(s.eigenvalues * 6), atol=1e-9 * np.trace(dense))


def test_a_step_is_the_best_of_all_maps_of_a_subject(rng):
    x = centred(rng.normal(size=(12, 20)))
    smoother, B = GramSmoother(x @ x.T, 5.0), centred(rng.normal(size=(12, 2)))
    best = float((B * smoother.features(best_map(smoother, B))).sum())
    # brute force over orthonormal frames in whitened coordinates
    V, s = smoother.root
    linear = (V * s).T @ B

    def lost(flat):
        Q = np.linalg.qr(flat.reshape(-1, 2))
        sign = np.sign(np.diag(Q[1]))
        return -float((Q[0] * sign * linear).sum())

    found = [
        -scipy.optimize.minimize(lost, rng.normal(size=linear.size)).fun
        for _ in range(3)
    ]
    assert_allclose(max(found), best, rtol=1e-5)
    assert best >= max(found) - 1e-9


def test_it_ends_where_no_subject_wants_to_move(rng):
    X = movie(rng, n_subjects=4)
    ids = [np.arange(60)] * 4
    smoothers, _, s = fitted(X, ids, tol=1e-14, max_iter=500, regress=False)
    for i, smoother in enumerate(smoothers):
        target = sum(Y for j, Y in enumerate(s.features) if j != i)
        assert_allclose(best_map(smoother, target), s.maps[i], atol=1e-6)


def test_partial_overlap_does_not_split_the_subjects(rng):
    """Half saw parts 1 and 2, half 2 and 3: each component lives in both halves."""
    X = movie(rng, n_subjects=8, n_ids=90, noise=6.0)
    first, last = np.arange(60), np.arange(30, 90)
    ids = [first if i < 4 else last for i in range(8)]
    _, start, s = fitted(
        [x[i] for x, i in zip(X, ids, strict=True)], ids, regress=False
    )

    def uneven(features):
        power = np.array([(Y**2).sum(axis=0) for Y in features])
        halves = power[:4].sum(axis=0), power[4:].sum(axis=0)
        return np.max(np.abs(np.log(halves[0] / halves[1])))

    assert uneven(s.features) < 0.3
    assert uneven(s.features) < uneven(start.features)


def test_maps_are_regressions_on_the_template(rng):
    """So a subject of the fit that joins anew gets its own map."""
    X = movie(rng)
    ids = [np.arange(40) + 10 * (i % 3) for i in range(6)]
    graph = weigh_groups(time_graph(ids), "groups")
    smoothers, _, s = fitted(
        [x[i] for x, i in zip(X, ids, strict=True)], ids, graph=graph
    )
    for i, rows in enumerate(graph.slices()):
        again = smoothers[i].coefficients(apply_graph(graph, s.template)[rows])
        assert_allclose(again, s.maps[i], atol=1e-10)
        assert_allclose(smoothers[i].features(again), s.features[i], atol=1e-10)
    Y = np.concatenate(s.features)
    assert_allclose(
        Y.T @ Y / len(Y), np.diag(s.eigenvalues), atol=1e-10 * s.eigenvalues[0]
    )


def test_more_components_than_the_groups_tell_apart(rng):
    X, y = planted_study(rng, (30, 24, 36), (70, 80, 90))
    graph = weigh_groups(label_graph(y, different=0), "groups")
    _, start, s = fitted(X, y, graph=graph, k=10)
    assert start.maps[0].shape[1] == s.maps[0].shape[1] == 3


def test_the_unit_of_the_weights_does_not_matter(rng):
    X = movie(rng, n_subjects=3, n_ids=30)
    graph = weigh_groups(time_graph([range(30)] * 3), "subjects")
    options = {"max_iter": 60, "tol": 1e-4}
    rounds = [
        len(fitted(X, None, graph=unit * graph, **options)[2].history)
        for unit in (1e-4, 1.0, 1e4)
    ]
    assert rounds[0] == rounds[1] == rounds[2] < 61


def test_what_is_zero_to_rounding_has_no_inverse_root():
    root = _inverse_root(np.diag([1e-15, 1e-14, 4.0]))
    assert_allclose(root, np.diag([0, 0, 0.5]), atol=1e-14)
