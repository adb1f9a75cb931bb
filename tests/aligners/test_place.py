"""Place: a shared map and each subject's deviation from it."""

import numpy as np
import pytest
import scipy.linalg
from numpy.testing import assert_allclose

from brainweave.aligners.gdm.joint import JointRidge
from brainweave.aligners.gdm.ridge import solve_shrinkage
from brainweave.aligners.gdm.smoother import GramSmoother, NarrowSmoother
from brainweave.graphs.builders import label_graph, time_graph, weigh_groups


def centred(x):
    return x - x.mean(axis=0)


def study(rng, lengths=(14, 11, 17), voxels=(9, 12, 30), n_places=6):
    X = [centred(rng.normal(size=s)) for s in zip(lengths, voxels, strict=True)]
    B = [
        rng.normal(size=(v, n_places)) * (rng.random((v, n_places)) < 0.4)
        for v in voxels
    ]
    B[1][:, 2] = 0  # a place that this subject lacks
    return X, [x @ b for x, b in zip(X, B, strict=True)], B


def smoothers_of(X, g, kind):
    if kind == "voxels":
        return [NarrowSmoother(x, s) for x, s in zip(X, g, strict=True)]
    return [GramSmoother(x @ x.T, s) for x, s in zip(X, g, strict=True)]


def dense(X, Z, g, h):
    """Kernel and design of the multi-task problem, written out."""
    sizes = np.cumsum([0, *(x.shape[1] for x in X)])
    n, p = sum(map(len, X)), Z[0].shape[1]
    design = np.zeros((n, sizes[-1] + p))
    row = 0
    for i, (x, z) in enumerate(zip(X, Z, strict=True)):
        rows = slice(row, row := row + len(x))
        design[rows, sizes[i] : sizes[i + 1]] = x / np.sqrt(g[i])
        design[rows, sizes[-1] :] = z / np.sqrt(h)
    return design, sizes


GRAPHS = {
    "labels": lambda rng, n: weigh_groups(
        label_graph([rng.integers(0, 5, size=m) for m in n], different=0), "groups"
    ),
    "labels apart": lambda rng, n: label_graph([rng.integers(0, 4, size=m) for m in n]),
    "incomplete film": lambda rng, n: weigh_groups(
        time_graph([rng.permutation(20)[:m] for m in n]), "subjects"
    ),
    "both": lambda rng, n: (
        label_graph([rng.integers(0, 4, size=m) for m in n], different=0)
        + time_graph([rng.permutation(20)[:m] for m in n])
    ),
}


@pytest.mark.parametrize("kind", ["samples", "voxels"])
@pytest.mark.parametrize("route", ["closed", "operator"])
@pytest.mark.parametrize("name", GRAPHS)
def test_components_are_those_of_the_dense_multi_task_problem(rng, name, route, kind):
    if (route, name) == ("operator", "labels apart"):
        pytest.skip("the operator needs weights that are not negative")
    X, Z, _ = study(rng)
    g, h, k = (0.7, 2.0, 5.0), 1.3, 3
    graph = GRAPHS[name](rng, [len(x) for x in X])
    joint = JointRidge(smoothers_of(X, g, kind), Z, h)
    found = solve_shrinkage(joint, graph, k, route=route)
    design, sizes = dense(X, Z, g, h)
    G = graph.to_sparse().toarray()
    # maximise tr(W^T F^T G F W) subject to W^T (F^T F + I) W = I
    values, W = scipy.linalg.eigh(
        design.T @ G @ design, design.T @ design + np.eye(design.shape[1])
    )
    values, W = values[::-1][:k], W[:, ::-1][:, :k]
    assert_allclose(found.eigenvalues[:k], values, rtol=1e-8, atol=1e-10)
    ours = np.concatenate(found.features)
    signs = np.sign((ours * (design @ W)).sum(axis=0))
    assert_allclose(ours, design @ W * signs, atol=1e-8)
    assert_allclose(found.shared, W[sizes[-1] :] / np.sqrt(h) * signs, atol=1e-8)
    for i, x in enumerate(X):
        own = W[sizes[i] : sizes[i + 1]] / np.sqrt(g[i]) * signs
        assert_allclose(x.T @ found.maps[i], own, atol=1e-8)


@pytest.mark.parametrize("name", GRAPHS)
def test_an_infinite_ridge_of_the_shared_map_is_the_model_without_place(rng, name):
    X, Z, _ = study(rng)
    graph = GRAPHS[name](rng, [len(x) for x in X])
    smoothers = smoothers_of(X, (0.7, 2.0, 5.0), "samples")
    without = solve_shrinkage(JointRidge(smoothers), graph, 3)
    assert solve_shrinkage(JointRidge(smoothers, Z, np.inf), graph, 3).shared is None
    nearly = solve_shrinkage(JointRidge(smoothers, Z, 1e14), graph, 3)
    assert_allclose(nearly.eigenvalues, without.eigenvalues, rtol=1e-10)
    for a, b in zip(nearly.features, without.features, strict=True):
        assert_allclose(a @ a.T, b @ b.T, atol=1e-10)


def test_with_strong_ridges_of_the_deviations_all_have_one_map(rng):
    X, Z, _ = study(rng)
    targets = [centred(rng.normal(size=(len(x), 2))) for x in X]
    joint = JointRidge(smoothers_of(X, (1e12,) * 3, "samples"), Z, 0.5)
    found = joint.regress(targets)
    pooled, wanted = np.concatenate(Z), np.concatenate(targets)
    one = np.linalg.solve(pooled.T @ pooled + 0.5 * np.eye(6), pooled.T @ wanted)
    assert_allclose(found.shared, one, atol=1e-8)
    assert_allclose(np.concatenate(found.features), pooled @ one, atol=1e-8)


def test_places_that_are_the_voxels_take_a_route_of_their_own(rng):
    X = [centred(rng.normal(size=(n, 8))) for n in (20, 15, 30)]
    graph = GRAPHS["incomplete film"](rng, [20, 15, 20])
    X[2] = centred(X[2][:20])
    known = smoothers_of(X, (0.3, 1.0, 2.0), "voxels")
    by_voxels = JointRidge(known, [s.samples for s in known], 0.4)
    general = JointRidge(smoothers_of(X, (0.3, 1.0, 2.0), "samples"), X, 0.4)
    one, other = (solve_shrinkage(j, graph, 3) for j in (by_voxels, general))
    assert_allclose(one.eigenvalues, other.eigenvalues, rtol=1e-9)
    signs = np.sign((one.shared * other.shared).sum(axis=0))
    assert_allclose(one.shared, other.shared * signs, atol=1e-9)


def test_sums_over_subjects_are_kept_for_other_ridges_of_the_shared_map(rng):
    X, Z, _ = study(rng)
    graph = GRAPHS["labels"](rng, [len(x) for x in X])
    smoothers = smoothers_of(X, (0.7, 2.0, 5.0), "samples")
    joint = JointRidge(smoothers, Z, 0.1)
    solve_shrinkage(joint, graph, 2)
    again = solve_shrinkage(joint.at(3.0), graph, 2)
    fresh = solve_shrinkage(JointRidge(smoothers, Z, 3.0), graph, 2)
    assert_allclose(again.eigenvalues, fresh.eigenvalues, rtol=1e-12)
    assert_allclose(np.abs(again.shared), np.abs(fresh.shared), atol=1e-10)


def test_penalties_are_those_of_the_maps(rng):
    X, Z, _ = study(rng)
    g, h = (0.7, 2.0, 5.0), 1.3
    joint = JointRidge(smoothers_of(X, g, "samples"), Z, h)
    found = joint.regress([centred(rng.normal(size=(len(x), 2))) for x in X])
    for x, m, s, penalty in zip(
        X, found.mixings, g, joint.penalties(found), strict=True
    ):
        D = x.T @ m
        expected = s * D.T @ D + h / 3 * found.shared.T @ found.shared
        assert_allclose(penalty, expected, atol=1e-9)
