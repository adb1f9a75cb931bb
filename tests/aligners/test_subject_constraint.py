"""The per-subject constraint: monotone, stationary, and made for partial overlap."""

from dataclasses import replace

import numpy as np
import pytest
import scipy.optimize
from numpy.testing import assert_allclose

from brainweave import GDM, PaperGDM, describe, load, save
from brainweave.aligners.check.alignment_check import alignment_check
from brainweave.aligners.check.held_out import fit_by_grams
from brainweave.aligners.gdm.eigenproblem import apply_graph
from brainweave.aligners.gdm.graph_parsing import labels_and_ids
from brainweave.aligners.gdm.joint import JointRidge
from brainweave.aligners.gdm.ridge import (
    _inverse_root,
    _whiten,
    ascend,
    is_positive,
    solve_per_subject,
    solve_shrinkage,
)
from brainweave.aligners.gdm.smoother import GramSmoother, mean_eigenvalue
from brainweave.graphs.builders import (
    affinity_graph,
    equal_group_weights,
    label_graph,
    matrix_graph,
    time_graph,
    weigh_groups,
)
from planted import planted_study

K = 3


def centred(x):
    return x - x.mean(axis=0)


def movie(rng, n_subjects=6, n_ids=60, voxels=40, noise=3.0, rank=4):
    """Smooth shared time courses seen through each subject's own random map."""
    shared = rng.normal(size=(n_ids, rank))
    X = [shared @ rng.normal(size=(rank, voxels)) for _ in range(n_subjects)]
    return [x + noise * rng.normal(size=x.shape) for x in X]


def started(X, ids, rho=0.3, k=K, graph=None):
    """The ridges, the graph and the closed form."""
    grams = [centred(x) @ centred(x).T for x in X]
    joint = JointRidge([GramSmoother(g, rho * mean_eigenvalue(g)) for g in grams])
    if graph is None:
        graph = weigh_groups(time_graph(ids), "subjects")
    return joint, graph, solve_shrinkage(joint, graph, k)


def best_map(smoother, target):
    """The features of the map of one subject that agrees best with a target."""
    alone = JointRidge([smoother])
    return _whiten(alone, alone.regress([target]))[0]


def overlapping(X):
    """Thirds of the subjects saw the first, the middle and the last 40 of 60."""
    ids = [np.arange(40) + 10 * (i % 3) for i in range(len(X))]
    return [x[i] for x, i in zip(X, ids, strict=True)], ids


GRAPHS = {
    "labels": lambda y: weigh_groups(label_graph(y, different=0), "groups"),
    "time": lambda y: weigh_groups(time_graph([range(len(p)) for p in y]), "subjects"),
    "labels apart": label_graph,
    "matrix": lambda y: matrix_graph(
        (label_graph(y) + time_graph([range(len(p)) for p in y])).to_sparse(),
        [len(p) for p in y],
    ),
    "time apart": lambda y: -1.0 * time_graph([range(len(p)) for p in y]),
    "matrix apart": lambda y: matrix_graph(
        -time_graph([range(len(p)) for p in y]).to_sparse(), [len(p) for p in y]
    ),
    "one apart": lambda y: affinity_graph(y, np.diag([1.0, -1.0, 1.0, 1.0])),
}


@pytest.mark.parametrize("kind", ["labels", "time"])
def test_every_subject_is_white_and_no_round_lowers_the_objective(rng, kind):
    X, y = planted_study(rng, (30, 24, 36), (70, 80, 90))
    graph = GRAPHS[kind](y)
    joint, _, start = started(X, y, graph=label_graph(y, different=0), k=2)
    Y, history = ascend(joint, graph, start, max_iter=40, tol=0)
    for smoother, own in zip(joint.smoothers, Y, strict=True):
        m = smoother.root[0] @ ((smoother.root[0].T @ own) / eigenvalues(smoother))
        assert_allclose(
            own.T @ own + smoother.strength * m.T @ own, np.eye(2), atol=1e-8
        )
    stacked, dense = np.concatenate(Y), graph.to_sparse().toarray()
    assert_allclose(np.trace(stacked.T @ dense @ stacked), history[-1], rtol=1e-9)
    assert history[-1] > history[0]
    assert (np.diff(history) >= -1e-9 * np.abs(history[-1])).all()


def eigenvalues(smoother):
    s2 = smoother.root[1][:, None] ** 2
    return smoother.strength * s2 / (1 - s2)


def test_a_step_is_the_best_of_all_maps_of_a_subject(rng):
    x = centred(rng.normal(size=(12, 20)))
    smoother, B = GramSmoother(x @ x.T, 5.0), centred(rng.normal(size=(12, 2)))
    best = float((B * best_map(smoother, B)).sum())
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
    joint, graph, start = started(X, [np.arange(60)] * 4)
    Y, _ = ascend(joint, graph, start, tol=1e-14, max_iter=2000)
    for own, smoother in zip(Y, joint.smoothers, strict=True):
        assert_allclose(best_map(smoother, sum(Y)), own, atol=1e-6)


@pytest.mark.parametrize(
    ("kind", "positive"),
    [(kind, kind in ("labels", "time")) for kind in GRAPHS],
)
def test_which_graphs_are_positive(rng, kind, positive):
    _, y = planted_study(rng, (30, 24, 36), (70, 80, 90))
    assert is_positive(GRAPHS[kind](y)) is positive


def test_groups_that_link_nobody_do_not_make_a_graph_negative():
    graph = weigh_groups(time_graph([range(5), range(1, 6)]), "subjects")
    assert 0 in graph.groups[0].affinity.diagonal()
    assert is_positive(graph)


def test_what_does_not_rise_ends_after_one_round(rng):
    joint, graph, start = started(*overlapping(movie(rng)))
    Y, _ = ascend(joint, graph, start, tol=1e-15, max_iter=5000)
    maps = [
        s.root[0] @ ((s.root[0].T @ y) / eigenvalues(s))
        for s, y in zip(joint.smoothers, Y, strict=True)
    ]
    again = ascend(joint, graph, replace(start, maps=maps, features=Y))[1]
    assert len(again) == 2


def test_a_rise_too_small_ends_it(rng):
    joint, graph, start = started(*overlapping(movie(rng)))
    every = ascend(joint, graph, start, max_iter=30, tol=0)[1]
    assert len(every) == 31
    gains = np.diff(every) / every[1:]
    tol = gains[12]
    stopped = ascend(joint, graph, start, max_iter=30, tol=tol)[1]
    assert stopped == every[: 2 + np.flatnonzero(gains <= tol)[0]]


def test_partial_overlap_does_not_split_the_subjects(rng):
    """Half saw parts 1 and 2, half 2 and 3: each component lives in both halves."""
    X = movie(rng, n_subjects=8, n_ids=90, noise=6.0)
    first, last = np.arange(60), np.arange(30, 90)
    ids = [first if i < 4 else last for i in range(8)]
    joint, graph, start = started([x[i] for x, i in zip(X, ids, strict=True)], ids)

    def uneven(features):
        power = np.array([(Y**2).sum(axis=0) for Y in features])
        halves = power[:4].sum(axis=0), power[4:].sum(axis=0)
        return np.max(np.abs(np.log(halves[0] / halves[1])))

    found, _ = ascend(joint, graph, start)
    assert uneven(found) < 0.3
    assert uneven(found) < uneven(start.features)


def test_maps_are_regressions_on_the_template(rng):
    joint, graph, start = started(*overlapping(movie(rng)))
    alike = equal_group_weights(graph)
    s = solve_per_subject(joint, alike, start)
    for i, rows in enumerate(graph.slices()):
        again = joint.smoothers[i].regress(apply_graph(alike, s.template)[rows])[0]
        assert_allclose(again, s.maps[i], atol=1e-10)
        assert_allclose(joint.smoothers[i].features(again), s.features[i], atol=1e-10)
    Y = np.concatenate(s.features)
    assert_allclose(
        Y.T @ Y / len(Y), np.diag(s.eigenvalues**2), atol=1e-10 * s.eigenvalues[0]
    )
    assert len(ascend(joint, alike, start)[1]) == 11  # ten rounds


def test_more_components_than_the_groups_tell_apart(rng):
    X, y = planted_study(rng, (30, 24, 36), (70, 80, 90))
    graph = weigh_groups(label_graph(y, different=0), "groups")
    joint, _, start = started(X, y, graph=graph, k=10)
    s = solve_per_subject(joint, graph, start)
    assert start.maps[0].shape[1] == s.maps[0].shape[1] == 3


@pytest.mark.parametrize("kind", ["time", "matrix"])
def test_the_unit_of_the_weights_does_not_matter(rng, kind):
    X, y = planted_study(rng, (30, 24, 36), (70, 80, 90))
    joint, _, start = started(X, y, graph=label_graph(y, different=0), k=2)
    ends = [
        np.concatenate(ascend(joint, unit * GRAPHS[kind](y), start)[0])
        for unit in (1e-4, 1.0, 1e4)
    ]
    assert_allclose(ends[0], ends[1], atol=1e-6)
    assert_allclose(ends[2], ends[1], atol=1e-6)


# -- as GDM does it --------------------------------------------------------------------


@pytest.mark.parametrize(
    ("graph", "used"),
    [
        ("labels", "global"),
        ("time", "global"),
        ("labels+time", "global"),
        (time_graph([range(36)] * 3), "global"),
    ],
)
@pytest.mark.parametrize("complete", [True, False])
def test_the_default_goes_by_what_subjects_lack(rng, tmp_path, graph, used, complete):
    X, y = planted_study(rng, lengths=(36, 36, 36))
    y = [y[0]] * 3 if graph == "labels+time" else y
    known = None if graph == "time" else y
    if isinstance(graph, str) and not complete:
        ids = [np.arange(36), np.arange(36), np.arange(36) + 3]
        known = {
            "labels": y,
            "time": ids,
            "labels+time": [labels_and_ids(*both) for both in zip(y, ids, strict=True)],
        }[graph]
        used = "global" if graph == "labels" else "subject"
    gdm = GDM(2, graph=graph).fit(X, known)
    assert gdm.constraint_ == used
    assert gdm.solver_.endswith(", subject") == (used == "subject")
    back = load(save(gdm, tmp_path / "model.safetensors"))
    assert back.constraint_ == used
    facts = describe(tmp_path / "model.safetensors")["facts"]
    assert facts["constraint_"] == used
    asked = GDM(2, graph=graph, constraint=used).fit(X, known)
    assert_allclose(asked.eigenvalues_, gdm.eigenvalues_, rtol=1e-12)
    other = {"global": "subject", "subject": "global"}[used]
    asked = GDM(2, graph=graph, constraint=other).fit(X, known)
    assert asked.constraint_ == other
    assert not np.allclose(asked.eigenvalues_, gdm.eigenvalues_, rtol=1e-3)


@pytest.mark.parametrize("graph", ["time", "labels+time"])
def test_the_order_of_subjects_does_not_matter(rng, graph):
    X, ids = overlapping(movie(rng))
    y = ids
    if graph == "labels+time":
        y = [np.array([[i % 4, i] for i in own], object) for own in ids]
    order = rng.permutation(len(X))
    one = GDM(3, graph=graph).fit(X, y)
    other = GDM(3, graph=graph).fit([X[i] for i in order], [y[i] for i in order])
    assert_allclose(one.eigenvalues_, other.eigenvalues_, rtol=1e-9)
    for place, i in enumerate(order):
        signs = np.sign((one._features(i) * other._features(place)).sum(axis=0))
        assert_allclose(one._features(i), other._features(place) * signs, atol=1e-7)


@pytest.mark.parametrize("constraint", ["global", "subject"])
def test_a_subject_who_lacks_samples_joins_as_itself(rng, constraint):
    X, ids = overlapping(movie(rng, n_subjects=7))  # ids of 2, 3, 5 and 7 subjects
    gdm = GDM(3, graph="time", constraint=constraint).fit(X, ids)
    for i in range(7):
        new = gdm.fit_new_subject(X[i], ids[i])
        assert_allclose(new.transform(X[i]), gdm.transform([X[i]], [i])[0], atol=1e-9)


def test_halves_have_the_constraint_of_the_whole(rng):
    """Of which the name of the graph tells; a half has a graph without a name."""
    X, ids = overlapping(movie(rng))
    checks = {}
    for constraint in (None, "subject", "global"):
        gdm = GDM(3, graph="time", constraint=constraint).fit(X, ids)
        checks[constraint] = alignment_check(gdm).agreement_cv
    assert_allclose(checks[None], checks["subject"], rtol=1e-12)
    assert not np.allclose(checks[None], checks["global"], rtol=1e-3)
    # an aligner of one's own need not have one
    gdm = PaperGDM(3, graph="time", energy=0.9).fit(X, ids)
    rows = [np.arange(0, 40, 2)] * 6
    whole = [[np.arange(20)]] * 6
    seen, _ = fit_by_grams(gdm, gdm.bases_, 3, rows, rows, whole, graph=gdm.graph_)
    assert seen[0].shape == (20, 3)


def test_missing_samples_cost_less_than_in_the_papers_form(rng):
    """A third of the samples of every subject is missing at random."""
    found = {"default": [], "paper": [], "global": []}
    for _ in range(4):
        X = movie(rng, n_subjects=9, n_ids=240, voxels=60, noise=3.0, rank=6)
        kept = [np.flatnonzero(rng.random(120) > 0.35) for _ in X]
        some = [x[own] for x, own in zip(X, kept, strict=True)]
        models = {
            "default": GDM(6, graph="time"),
            "paper": PaperGDM(6, graph="time", energy=0.82),
            "global": GDM(6, graph="time", constraint="global"),
        }
        for name, model in models.items():
            features = model.fit(some, kept).transform([x[120:] for x in X])
            found[name].append(agreement_with_others(features))
    mean = {name: np.mean(values) for name, values in found.items()}
    assert mean["default"] > mean["paper"]
    assert mean["default"] > mean["global"]


def agreement_with_others(features):
    """How well whole patterns of features correlate with the mean of the others."""
    found = []
    for i, own in enumerate(features):
        others = np.mean([f for j, f in enumerate(features) if j != i], axis=0)
        found += [np.corrcoef(a, b)[0, 1] for a, b in zip(own, others, strict=True)]
    return np.mean(found)


def test_what_is_zero_to_rounding_has_no_inverse_root():
    root = _inverse_root(np.diag([1e-15, 1e-14, 4.0]))
    assert_allclose(root, np.diag([0, 0, 0.5]), atol=1e-14)
