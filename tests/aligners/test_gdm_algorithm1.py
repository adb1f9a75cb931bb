"""GDM agrees with the literal Algorithm 1, whatever the graph, kernel, dtype, route."""

import warnings

import numpy as np
import pytest
import scipy.sparse
from numpy.testing import assert_allclose

from algorithm1 import algorithm_1, naive_kernel_scheme
from brainweave import (
    PaperGDM,
    affinity_graph,
    label_graph,
    matrix_graph,
    neighbor_graph,
    time_graph,
)
from brainweave._core.exceptions import (
    InputError,
    KernelWarning,
    SeparateSubjectsWarning,
    UniquenessWarning,
)
from planted import planted_study, projector

K = 3
ROUTES = ["auto", "closed", "dense", "iterative"]


def dense_graph(kind, lengths, y, rng):
    """The same graph twice: as users write it, and densely, entry by entry."""
    T = sum(lengths)
    flat = np.concatenate([np.asarray(part, dtype=object) for part in y])
    where = np.concatenate([np.arange(n) for n in lengths])
    G = np.zeros((T, T))
    if kind == "labels":
        for i in range(T):
            for j in range(T):
                if flat[i] is not None and flat[j] is not None:
                    G[i, j] = 1 if flat[i] == flat[j] else -1
        return label_graph(y), G
    if kind == "time":
        G[:] = where[:, None] == where[None, :]
        return time_graph([np.arange(n) for n in lengths]), G
    if kind == "hyperalignment":
        G[:] = (where[:, None] == where[None, :]) / len(lengths)
        times = [np.arange(n) for n in lengths]
        return (1 / len(lengths)) * time_graph(times), G
    if kind == "affinity":
        A = rng.normal(size=(4, 4))
        A = A + A.T
        G[:] = A[np.ix_(flat.astype(int), flat.astype(int))]
        return affinity_graph(y, A), G
    if kind == "sparse":
        S = scipy.sparse.random_array((T, T), density=0.1, rng=rng)
        S = scipy.sparse.csr_array(S + S.T)
        S.data -= 0.4  # positive and negative weights
        return matrix_graph(S, lengths), S.toarray()
    if kind == "neighbors":
        graph = neighbor_graph(
            [rng.normal(size=(n, 3)) for n in lengths], n_neighbors=4
        )
        return graph, graph.to_sparse().toarray()
    if kind == "sum":
        labels, G_labels = dense_graph("labels", lengths, y, rng)
        times, G_times = dense_graph("time", lengths, y, rng)
        return 0.5 * labels + 2 * times, 0.5 * G_labels + 2 * G_times
    if kind == "sum with matrix":
        labels, G_labels = dense_graph("labels", lengths, y, rng)
        sparse, G_sparse = dense_graph("sparse", lengths, y, rng)
        return labels + 3 * sparse, G_labels + 3 * G_sparse
    raise ValueError(kind)


def compare(X, graph, G, *, kernels=None, energies=None, route="auto", rtol=1e-8, k=K):
    M = len(X)
    kernels = kernels or [("linear", None)] * M
    energies = energies or [0.6] * M
    literal = algorithm_1([x.T for x in X], k, energies, G, kernels)
    gdm = PaperGDM(
        k,
        energy=energies,
        kernel=[name for name, _ in kernels],
        kernel_params=[None if hp is None else {"hp": hp} for _, hp in kernels],
        graph=graph,
        solver=route,
    )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UniquenessWarning)
        warnings.simplefilter("ignore", KernelWarning)
        warnings.simplefilter("ignore", SeparateSubjectsWarning)
        shared = gdm.fit_transform(X)
    assert [b.n_kept for b in gdm.bases_] == literal.dims
    scale = np.abs(literal.eigenvalues).max()
    assert_allclose(
        gdm.eigenvalues_, literal.eigenvalues[:k], rtol=rtol, atol=rtol * scale
    )
    Y = np.concatenate(shared).T / np.sqrt(literal.Y.shape[1])
    tol = 1000 * np.finfo(X[0].dtype).eps  # the features come in the data's dtype
    assert_allclose(Y @ Y.T, np.eye(k), atol=tol)
    objective = np.trace(Y @ literal.L @ Y.T)
    assert_allclose(gdm.objective_, objective, rtol=1e-7, atol=max(tol, 1e-7) * scale)
    gap = literal.eigenvalues[k] - literal.eigenvalues[k - 1]
    assert gdm.is_unique_ == (gap > 1e-9 * scale)
    if gap > 1e-3 * scale:
        difference = projector(Y) - projector(literal.Y)
        assert np.abs(difference).max() < (1e-6 if rtol < 1e-7 else 1e-3)
    return gdm, literal, gap > 1e-3 * scale


@pytest.mark.parametrize("route", ROUTES)
@pytest.mark.parametrize(
    "kind",
    [
        "labels",
        "time",
        "hyperalignment",
        "affinity",
        "sparse",
        "neighbors",
        "sum",
        "sum with matrix",
    ],
)
def test_every_graph_by_every_route(rng, kind, route):
    X, y = planted_study(rng)
    graph, G = dense_graph(kind, [len(x) for x in X], y, rng)
    if route == "closed" and kind not in ("labels", "time", "hyperalignment", "sum"):
        with pytest.raises(InputError, match="all samples have the same degree"):
            compare(X, graph, G, route=route)
    else:
        compare(X, graph, G, route=route)


@pytest.mark.parametrize("route", ["auto", "dense", "iterative"])
@pytest.mark.parametrize("case", ["unbalanced", "missing labels", "dropped"])
def test_unbalanced_missing_and_dropped_samples(rng, case, route):
    X, y = planted_study(rng, lengths=(40, 33, 37), voxels=(70, 60, 90))
    if case == "missing labels":
        y = [np.array(part, dtype=object) for part in y]
        for part in y:
            part[rng.permutation(len(part))[:7]] = None
    if case == "dropped":
        keep = [np.sort(rng.permutation(len(x))[: int(0.8 * len(x))]) for x in X]
        X = [x[rows] for x, rows in zip(X, keep, strict=True)]
        y = [part[rows] for part, rows in zip(y, keep, strict=True)]
    graph, G = dense_graph("labels", [len(x) for x in X], y, rng)
    _, _, gap = compare(X, graph, G, route=route)
    assert gap  # so the shared space itself was compared


@pytest.mark.parametrize("route", ["auto", "dense", "iterative"])
@pytest.mark.parametrize("k", [5, 10])
def test_more_components_than_the_graph_informs(rng, k, route):
    X, y = planted_study(rng, lengths=(41, 33, 38))
    graph, G = dense_graph("labels", [len(x) for x in X], y, rng)
    gdm, _, _ = compare(X, graph, G, route=route, k=k)
    assert gdm.n_informative_ == 3  # four categories, centred


@pytest.mark.parametrize("route", ["auto", "dense", "iterative"])
def test_full_energy_has_ties_and_routes_still_agree(rng, route):
    X, y = planted_study(rng, lengths=(41, 33, 38))
    graph, G = dense_graph("labels", [len(x) for x in X], y, rng)
    compare(X, graph, G, route=route, energies=[1.0] * 3, k=8)


@pytest.mark.parametrize(
    "kernel",
    [("linear", None), ("gaussian", 150.0), ("quadratic", 50.0), ("sigmoid", 80.0)],
)
@pytest.mark.parametrize("voxels", [(20, 25, 18), (70, 80, 90)], ids=["few", "many"])
def test_every_kernel_with_voxels_below_and_above_samples(rng, kernel, voxels):
    X, y = planted_study(rng, voxels=voxels)
    graph, G = dense_graph("labels", [len(x) for x in X], y, rng)
    gdm, literal, _ = compare(X, graph, G, kernels=[kernel] * 3)
    new = [rng.normal(size=(5, v)) for v in voxels]
    ours = gdm.transform(new)
    theirs = [f(z.T) for f, z in zip(literal.maps, new, strict=True)]
    scale = np.sqrt(literal.Y.shape[1])
    ours = np.concatenate(ours) / scale
    theirs = np.concatenate([t.T for t in theirs])
    rotation = np.linalg.lstsq(ours, theirs, rcond=None)[0]
    assert_allclose(ours @ rotation, theirs, atol=1e-7)
    assert_allclose(rotation.T @ rotation, np.eye(K), atol=1e-6)


def test_kernels_and_energies_of_each_subject(rng):
    X, y = planted_study(rng)
    graph, G = dense_graph("labels", [len(x) for x in X], y, rng)
    kernels = [("linear", None), ("gaussian", 120.0), ("quadratic", 30.0)]
    compare(X, graph, G, kernels=kernels, energies=[0.4, 0.7, 0.9])


def test_float32_agrees_to_its_own_precision(rng):
    X, y = planted_study(rng)
    X = [x.astype(np.float32) for x in X]
    graph, G = dense_graph("labels", [len(x) for x in X], y, rng)
    gdm, _, gap = compare(X, graph, G, rtol=2e-6)
    assert gap
    assert gdm.transform(X)[0].dtype == np.float32


def test_float32_at_full_energy_agrees_as_float64_does(rng):
    """Without a cut the bases span everything, so rounding of the data has no say."""
    X, y = planted_study(rng)
    X = [x.astype(np.float32) for x in X]
    graph, G = dense_graph("labels", [len(x) for x in X], y, rng)
    compare(X, graph, G, energies=[1.0] * 3, rtol=1e-8)


def test_large_iterative_problem_agrees_with_dense(rng):
    """Beyond the size at which the iterative route would quietly go dense."""
    lengths = (270, 281, 276)
    seen = [rng.choice(5, size=n, p=[0.3, 0.25, 0.2, 0.15, 0.1]) for n in lengths]
    X, y = planted_study(
        rng, lengths, voxels=(330, 340, 350), n_categories=5, labels=seen
    )
    graph = label_graph(y)
    results = [
        PaperGDM(9, energy=0.82, solver=s, graph=graph).fit(X)
        for s in ("dense", "iterative")
    ]
    assert sum(b.n_kept for b in results[0].bases_) > 450
    assert_allclose(results[1].eigenvalues_, results[0].eigenvalues_, rtol=1e-10)
    Y = [np.concatenate([g._features(i) for i in range(3)]).T for g in results]
    assert np.abs(projector(Y[0]) - projector(Y[1])).max() < 1e-6


@pytest.mark.parametrize("kind", ["labels", "time", "sparse"])
def test_naive_kernel_scheme_is_a_second_oracle(rng, kind):
    X, y = planted_study(rng)
    graph, G = dense_graph(kind, [len(x) for x in X], y, rng)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UniquenessWarning)
        gdm = PaperGDM(K, energy=1.0, graph=graph).fit(X)
    L = np.diag(G.sum(axis=1)) - G
    values, Y = naive_kernel_scheme([b.gram for b in gdm.bases_], L, K)
    scale = np.abs(values).max()
    assert_allclose(gdm.eigenvalues_, values[:K], rtol=1e-7, atol=1e-8 * scale)
    if gdm.is_unique_:
        ours = np.concatenate([gdm._features(i) for i in range(3)]).T
        assert np.abs(projector(ours) - projector(Y)).max() < 1e-5
