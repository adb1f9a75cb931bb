"""feature_graph: samples joined by features of the stimuli, of low rank."""

import time
import warnings
from dataclasses import replace

import numpy as np
import pytest
from numpy.testing import assert_allclose

from benchmarks.features import CELLS, by_ridge, scores, simulate
from brainweave import (
    GDM,
    PaperGDM,
    SubjectBasis,
    affinity_graph,
    feature_graph,
    load,
    save,
    time_graph,
    time_segment_matching,
)
from brainweave._core.exceptions import InputError
from brainweave.aligners.gdm.new_subject import edges_of_new
from brainweave.aligners.gdm.strength import FEATURE_GRID


@pytest.fixture
def films(rng):
    """Return features and voxels of three people, who saw some stimuli in common."""
    shown = rng.normal(size=(60, 4)) * [3, 2, 1, 0.5]
    F = [shown[:25], shown[20:50], shown[[3, 30, 59, *range(40, 58)]]]
    X = [f @ rng.normal(size=(4, 40)) + rng.normal(size=(len(f), 40)) for f in F]
    return X, F


def dense(F, whiten):
    """Return the same graph with an affinity of all stimuli with all, written out."""
    rows = np.concatenate(F)
    centred = rows - rows.mean(axis=0)
    metric = np.eye(rows.shape[1])
    if whiten:
        values, vectors = np.linalg.eigh(np.cov(centred.T, bias=True))
        metric = vectors @ np.diag(1 / np.maximum(values, 0.1 * values[-1])) @ vectors.T
    unique, where = np.unique(centred, axis=0, return_inverse=True)
    groups = np.split(where.ravel(), np.cumsum([len(f) for f in F])[:-1])
    return affinity_graph(groups, unique @ metric @ unique.T)


@pytest.mark.parametrize("whiten", [False, True])
def test_it_is_the_affinity_graph_of_inner_products(films, whiten):
    _, F = films
    found, wanted = feature_graph(F, whiten=whiten), dense(F, whiten)
    assert_allclose(
        found.to_sparse().toarray(), wanted.to_sparse().toarray(), atol=1e-8
    )
    assert_allclose(found.degrees(), wanted.degrees(), atol=1e-8)
    assert found.groups[0].rank == 4


MODELS = {
    "closed": GDM(3, shrinkage=0.3, place=None),
    "place": GDM(3, shrinkage=0.3, place_shrinkage=0.1),
    "subject": GDM(3, shrinkage=0.3, place=None, constraint="subject"),
    "paper": PaperGDM(3),
}


@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize("whiten", [False, True])
@pytest.mark.parametrize("with_time", [False, True])
def test_models_are_those_of_the_dense_graph(
    films, name, whiten, with_time, monkeypatch
):
    # the dense affinity is not known to be positive semi-definite, but is
    monkeypatch.setattr("brainweave.aligners.gdm.gdm.is_positive", lambda graph: True)
    X, F = films
    graphs = [feature_graph(F, whiten=whiten), dense(F, whiten)]
    if with_time:
        ids = [range(25), range(20, 50), [3, 30, 59, *range(40, 58)]]
        graphs = [0.3 * graph + time_graph(ids) for graph in graphs]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        found, wanted = (
            MODELS[name].__class__(**{**MODELS[name].get_params(), "graph": g}).fit(X)
            for g in graphs
        )
    for ours, theirs in zip(found.maps_, wanted.maps_, strict=True):
        assert_allclose(ours.weights, theirs.weights, atol=1e-8)


def test_a_new_subject_with_other_stimuli_joins_as_by_all_edges(films):
    X, F = films
    how = MODELS["closed"].get_params()
    graph = feature_graph(F[:2])
    found = GDM(**{**how, "graph": graph}).fit(X[:2])
    matrix = graph.to_sparse().toarray()
    wanted = GDM(**{**how, "graph": matrix}).fit(X[:2])
    rows = [f - np.concatenate(F[:2]).mean(axis=0) for f in F]
    edges = rows[2] @ graph.groups[0].affinity @ np.concatenate(rows[:2]).T
    assert_allclose(
        abs(found.fit_new_subject(X[2], F[2]).weights),
        abs(wanted.fit_new_subject(X[2], edges=edges).weights),
        atol=1e-8,
    )
    laplacian, _ = edges_of_new(found, SubjectBasis(X[2]), F[2])
    among = rows[2] @ graph.groups[0].affinity @ rows[2].T
    degrees = edges.sum(axis=1) + among.sum(axis=1)
    assert_allclose(laplacian @ np.eye(len(F[2])), np.diag(degrees) - among, atol=1e-8)


def test_a_new_subject_joins_by_features_and_places(films, tmp_path):
    X, F = films
    seen = np.flatnonzero([(f == np.concatenate(F[:2])).all(1).any() for f in F[2]])
    how = MODELS["place"].get_params()
    found = GDM(**{**how, "graph": feature_graph(F[:2], whiten=False)}).fit(X[:2])
    wanted = GDM(**{**how, "graph": dense(F[:2], False)}).fit(X[:2])
    centred = np.concatenate(F[:2])
    unique = np.unique(centred - centred.mean(axis=0), axis=0)
    own = F[2][seen] - centred.mean(axis=0)
    ids = [int(np.flatnonzero((unique == row).all(axis=1))[0]) for row in own]
    new = X[2][seen]
    theirs = wanted.fit_new_subject(new, ids)
    save(found, tmp_path / "model.safetensors")
    for model in (found, load(tmp_path / "model.safetensors")):
        ours = model.fit_new_subject(new, F[2][seen])
        assert_allclose(ours.weights, theirs.weights, atol=1e-8)


def test_the_strength_predicts_held_out_blocks_best(films):
    """Against ridge regressions that were never shown the block."""
    X, F = films
    model = GDM(3, graph=feature_graph, place=None).fit(X, F)
    term = model.graph_.groups[0]
    values, vectors = np.linalg.eigh(term.affinity)
    root = vectors * np.sqrt(values)
    criteria = np.zeros(len(FEATURE_GRID))
    for x, f in zip(X, F, strict=True):
        Z, T = (x - x.mean(0)) / x.std(0), f @ root
        unit = (Z**2).sum() / len(Z)
        blocks = np.arange(len(Z)) * 4 // len(Z)
        for i, rho in enumerate(FEATURE_GRID):
            P, Q = [], []
            for block in range(4):
                a, b = blocks != block, blocks == block
                A, mean = Z[a] - Z[a].mean(0), T[a].mean(0)
                inside = np.linalg.inv(A @ A.T + rho * unit * np.eye(a.sum()))
                p = (Z[b] - Z[a].mean(0)) @ A.T @ inside @ (T[a] - mean)
                P.append(p - p.mean(0))
                Q.append(T[b] - T[b].mean(0))
            P, Q = np.concatenate(P).ravel(), np.concatenate(Q).ravel()
            criteria[i] += np.corrcoef(P, Q)[0, 1]
    assert model.shrinkage_ == FEATURE_GRID[int(criteria.argmax())]
    assert model.shrinkage_by_ == "blocks"
    assert max(FEATURE_GRID) == pytest.approx(30)


def test_weak_signals_are_given_a_strong_ridge():
    films = simulate(0)
    model = GDM(2, graph=feature_graph, place=None).fit(films.X, films.F)
    assert model.shrinkage_ > 3


def test_people_with_different_films_share_a_space_by_meaning():
    """Segments of a film that nobody was aligned by; and no worse than plain ridge."""
    how = CELLS["as it is"]
    found = [dict(scores(simulate(seed, **how))) for seed in (300, 301)]
    gdm = np.array([s["GDM, feature_graph"] for s in found])
    ridge = np.array([s["ridge + PCA"] for s in found])
    assert (gdm > 0.5).all()  # chance is below .02
    assert (gdm >= ridge).all()
    films = simulate(300, **how)
    shuffled = [np.random.default_rng(0).permutation(f) for f in films.F]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        wrong = GDM(10, graph=feature_graph).fit(films.X, shuffled)
    shared = wrong.transform(films.common)
    assert time_segment_matching(shared, standardize=False).scores.mean() < 0.1


def test_the_baseline_is_ridge_and_principal_components():
    films = simulate(0, n_people=2, n_samples=60, n_voxels=50)
    assert [s.shape for s in by_ridge(films)] == [(60, 10)] * 2


def test_nothing_grows_faster_than_the_stimuli(rng):
    """Four times the stimuli, each seen by one of four times as many people."""
    seconds = []
    for n in (8, 32):
        F = [rng.normal(size=(150, 20)) for _ in range(n)]
        X = [f @ rng.normal(size=(20, 50)) + rng.normal(size=(150, 50)) for f in F]
        model = GDM(5, graph=feature_graph(F), shrinkage=1.0, place=None, n_jobs=1)
        model.fit(X)
        times = []
        for _ in range(3):
            start = time.process_time()
            model.set_params(graph=feature_graph(F)).fit(X)
            times.append(time.process_time() - start)
        seconds.append(min(times))
    assert seconds[1] < 8 * seconds[0]  # cubic would be 64 x
    term = model.graph_.groups[0]
    held = sum(np.size(v) for v in (term.codes, term.affinity, term.features))
    assert held < 2 * 32 * 150 * 20
    assert model.group_sums_[0].shape == (20, 5)


def test_samples_without_features_have_no_edges(films):
    X, F = films
    gaps = [f.copy() for f in F]
    gaps[1][[0, 5]] = np.nan
    graph = feature_graph(gaps)
    edges = graph.to_sparse().toarray()
    assert not edges[[25, 30]].any()
    assert np.isfinite(edges).all()
    new = (
        GDM(2, graph=feature_graph, place=None)
        .fit(X, gaps)
        .fit_new_subject(X[1], gaps[1])
    )
    assert np.isfinite(new.weights).all()


def test_features_that_meet_nowhere_do_not_tie_subjects():
    F = [np.eye(4)[[0, 1, 0]], np.eye(4)[[2, 3, 3]]]
    centred = feature_graph(F, whiten=False)
    assert centred.subject_groups == [[0, 1]]  # centred, all have all
    term = centred.groups[0]
    apart = centred.__class__(
        centred.lengths,
        (
            replace(
                term, codes=np.arange(6), names=tuple(range(6)), features=np.vstack(F)
            ),
        ),
    )
    assert apart.subject_groups == [[0], [1]]
    wanted = affinity_graph(
        [range(3), range(3, 6)], np.concatenate(F) @ np.concatenate(F).T
    )
    assert apart.connected_components()[0] == wanted.connected_components()[0] == 4


@pytest.mark.parametrize(
    ("given", "how", "told"),
    [
        ([np.ones((3, 2)), np.ones((3, 1))], {}, r"features\[1\] has shape \(3, 1\)"),
        ([np.ones((3, 2)), np.ones((4, 2))], {}, "same for all samples"),
        ([np.full((3, 2), np.nan)] * 2, {}, "No sample has features"),
        ([[["a", "b"]], [["c", "d"]]], {}, "real numbers"),
        ([np.eye(3)] * 2, {"whiten": 2.0}, "whiten"),
    ],
)
def test_what_is_no_table_of_features_is_refused(given, how, told):
    with pytest.raises(InputError, match=told):
        feature_graph(given, **how)


def test_a_new_subject_without_its_features_is_told_so(films):
    X, F = films
    model = GDM(2, graph=feature_graph, place=None).fit(X, F)
    with pytest.raises(
        InputError, match="by 4 features: pass those of the new subject"
    ):
        model.fit_new_subject(X[0])
    with pytest.raises(InputError, match="No sample of the new subject has an edge"):
        model.fit_new_subject(X[0], np.arange(25))
