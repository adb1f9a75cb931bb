"""What the paper states about GDM holds in numbers."""

import warnings

import numpy as np
import pytest
from numpy.testing import assert_allclose

from brainweave import (
    PaperGDM,
    SubjectBasis,
    label_graph,
    time_graph,
)
from brainweave._core.exceptions import SeparateSubjectsWarning, UniquenessWarning
from planted import planted_study, projector


def features(gdm):
    """Y in the paper's scaling, K x T."""
    parts = [gdm._features(i) for i in range(gdm.n_subjects_)]
    return np.concatenate(parts).T / np.sqrt(gdm.graph_.n_samples)


def test_constraint_and_objective(rng):
    X, y = planted_study(rng, lengths=(30, 41, 36))
    gdm = PaperGDM(3, energy=0.82).fit(X, y)
    Y = features(gdm)
    assert_allclose(Y @ Y.T, np.eye(3), atol=1e-12)
    G = gdm.graph_.to_sparse().toarray()
    pairwise = 0.0
    for i in range(Y.shape[1]):
        for j in range(Y.shape[1]):
            pairwise += 0.5 * G[i, j] * ((Y[:, i] - Y[:, j]) ** 2).sum()
    assert_allclose(gdm.objective_, pairwise, rtol=1e-10)


def test_no_other_maps_do_better(rng):
    """Proposition 2: random feasible solutions never have a lower objective."""
    X, y = planted_study(rng)
    gdm = PaperGDM(3, energy=0.82).fit(X, y)
    G = gdm.graph_.to_sparse().toarray()
    L = np.diag(G.sum(axis=1)) - G
    V = [b.vectors for b in gdm.bases_]
    sizes = np.cumsum([v.shape[1] for v in V])
    for _ in range(50):
        Q = np.linalg.qr(rng.normal(size=(sizes[-1], 3)))[0]
        parts = np.split(Q, sizes[:-1])
        Y = np.concatenate([v @ q for v, q in zip(V, parts, strict=True)]).T
        assert np.trace(Y @ L @ Y.T) > gdm.objective_


def test_solution_with_a_gap_is_unique_up_to_rotation(rng):
    """Proposition 3: two routes may rotate the features, not change their space."""
    X, y = planted_study(rng, lengths=(30, 41, 36))
    one, other = (
        PaperGDM(3, energy=0.82, solver=s).fit(X, y) for s in ("dense", "iterative")
    )
    assert one.is_unique_
    assert other.is_unique_
    assert_allclose(projector(features(one)), projector(features(other)), atol=1e-8)


def test_no_gap_is_reported_and_warned_about(rng):
    """Balanced categories give C - 1 informative components; the rest is arbitrary."""
    X, y = planted_study(rng, n_categories=4)
    with pytest.warns(UniquenessWarning, match="3 of 10 components are informative"):
        gdm = PaperGDM(10, energy=0.82).fit(X, y)
    assert not gdm.is_unique_
    assert gdm.n_informative_ == 3
    assert_allclose(gdm.eigenvalues_[3:], gdm.eigenvalues_[3], rtol=1e-9)
    auto = PaperGDM("auto", energy=0.82).fit(X, y)
    assert auto.n_components_ == 3
    assert auto.is_unique_
    assert_allclose(auto.eigenvalues_, gdm.eigenvalues_[:3], rtol=1e-10)


@pytest.mark.parametrize("unit", [1e-6, 1e6])
def test_whether_it_is_unique_does_not_depend_on_the_unit_of_the_edges(rng, unit):
    X, y = planted_study(rng, n_categories=4)
    # by LAPACK, whose equal eigenvalues differ by rounding
    how = {"energy": 0.82, "graph": unit * label_graph(y), "solver": "dense"}
    assert PaperGDM(3, **how).fit(X).is_unique_
    with pytest.warns(UniquenessWarning, match="3 of 5 components are informative"):
        assert not PaperGDM(5, **how).fit(X).is_unique_


def test_all_components_are_unique(rng):
    X, y = planted_study(rng)
    everything = sum(b.n_kept for b in PaperGDM(3, energy=0.2).fit(X, y).bases_)
    with pytest.warns(SeparateSubjectsWarning, match="most of the 8 components, of 8"):
        gdm = PaperGDM(everything, energy=0.2).fit(X, y)
    assert gdm.is_unique_  # K = S
    assert abs(gdm.overlap_) < 1e-12


def test_hyperalignment_objective_is_the_trace(rng):
    """sum_i |Y_i - S|^2 = tr Y (I - G_HA) Y^T with S the mean over subjects."""
    X, _ = planted_study(rng)
    times = [np.arange(36)] * 3
    graph = time_graph(times, balance="subjects")
    gdm = PaperGDM(4, energy=0.5, graph=graph).fit(X)
    Y = [gdm._features(i) / np.sqrt(108) for i in range(3)]
    mean = sum(Y) / 3
    assert_allclose(
        gdm.objective_, sum(((part - mean) ** 2).sum() for part in Y), rtol=1e-9
    )
    assert_allclose(gdm.graph_.degrees(), 1.0)


def test_time_locked_full_rank_data_are_overfitted_at_full_energy(rng):
    X = [rng.normal(size=(20, v)) for v in (50, 60, 55)]  # nothing shared at all
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UniquenessWarning)
        gdm = PaperGDM(5, energy=1.0, graph="time").fit(X)
    assert_allclose(gdm.eigenvalues_, 0, atol=1e-10)
    first, second, third = (gdm._features(i) for i in range(3))
    assert_allclose(first, second, atol=1e-6)
    assert_allclose(first, third, atol=1e-6)
    cut = PaperGDM(5, energy=0.5, graph="time").fit(X)
    assert cut.eigenvalues_[0] > 0.1


def test_truncation_commutes(rng):
    """Proposition 4: the cross kernel needs no truncation, the eigenvectors suffice."""
    X, Z = rng.normal(size=(25, 60)), rng.normal(size=(7, 60))
    basis = SubjectBasis(X, energy=0.5)
    Xs, Zs = (X - X.mean(0)) / X.std(0), (Z - X.mean(0)) / X.std(0)
    U = Xs.T @ basis.vectors / np.sqrt(basis.values)
    full = basis.kernel_to(Z) @ basis.vectors
    truncated = Zs @ U @ U.T @ Xs.T @ basis.vectors
    assert_allclose(full, truncated, atol=1e-10)


def test_time_graph_is_the_sum_over_pairs_of_subjects(rng):
    X, _ = planted_study(rng)
    gdm = PaperGDM(3, energy=0.5, graph=time_graph([np.arange(36)] * 3)).fit(X)
    Y = [gdm._features(i) / np.sqrt(108) for i in range(3)]
    pairs = sum(0.5 * ((a - b) ** 2).sum() for a in Y for b in Y)
    assert_allclose(gdm.objective_, pairs, rtol=1e-9)
