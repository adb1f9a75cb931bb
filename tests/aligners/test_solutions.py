"""Solutions of graph problems against dense matrices, and what is read from them."""

import re

import numpy as np
import pytest
import scipy.linalg
from numpy.testing import assert_allclose, assert_array_equal

import brainweave as bw
from brainweave._core.exceptions import InputError
from brainweave.aligners.gdm.eigenproblem import Solution, solve, subject_overlap
from brainweave.aligners.gdm.ridge import amplitude, common_scale
from brainweave.aligners.gdm.shared_map import Placement, SharedMap


def orthonormal(rng, lengths, ranks):
    return [
        np.linalg.qr(rng.normal(size=(n, r)))[0]
        for n, r in zip(lengths, ranks, strict=True)
    ]


LENGTHS, RANKS = (9, 7, 8), (5, 4, 6)


def graphs(rng):
    labels = [rng.integers(0, 3, n) for n in LENGTHS]
    A = rng.normal(size=(3, 3))
    S = rng.normal(size=(24, 24))
    same = [np.arange(7)] * 3
    return {
        "groups": (bw.label_graph(labels, same=2, different=-0.5), LENGTHS),
        "affinity": (bw.affinity_graph(labels, A + A.T), LENGTHS),
        "matrix": (bw.matrix_graph(S + S.T, LENGTHS), LENGTHS),
        "both": (
            bw.label_graph(labels) + bw.matrix_graph(S + S.T, LENGTHS), LENGTHS
        ),
        "time": (bw.time_graph(same), (7, 7, 7)),
    }  # fmt: skip


@pytest.mark.parametrize("kind", ["groups", "affinity", "matrix", "both", "time"])
@pytest.mark.parametrize("route", ["auto", "closed", "dense", "iterative"])
def test_every_route_gives_the_smallest_eigenpairs_of_the_matrix(rng, kind, route):
    graph, lengths = graphs(rng)[kind]
    bases = orthonormal(rng, lengths, RANKS)
    if route == "closed" and kind != "time":
        with pytest.raises(InputError, match="solver='closed' needs a graph of groups"):
            solve(bases, graph, 2, route=route)
        return
    V = scipy.linalg.block_diag(*bases)
    G = graph.to_sparse().toarray()
    D = np.diag(G.sum(axis=1))
    values, vectors = np.linalg.eigh(V.T @ (D - G) @ V)
    blocks = [
        b.T @ (graph.degrees()[rows][:, None] * b)
        for b, rows in zip(bases, graph.slices(), strict=True)
    ]
    floor = min(np.linalg.eigvalsh(block)[0] for block in blocks)
    found = solve(bases, graph, 3, route=route)
    assert_allclose(found.eigenvalues, values[:4], atol=1e-8)
    assert_allclose(found.gains, floor - values[:4], atol=1e-8)
    assert found.scale == pytest.approx(
        max(np.abs(D).max(), np.abs(values[:4]).max()), rel=1e-8
    )
    expected = V @ vectors[:, :4]
    signs = np.sign((found.template * expected).sum(axis=0))
    assert_allclose(found.template, expected * signs, atol=1e-6)
    assert_allclose(np.concatenate(found.features), found.template, rtol=0)
    for b, m, f in zip(bases, found.maps, found.features, strict=True):
        assert_allclose(b @ m, f, atol=1e-12)
    wanted = {"time": "closed"}.get(kind, "dense")
    assert found.route == (wanted if route == "auto" else route)
    whole = solve(bases, graph, 40, route="dense")
    assert_allclose(whole.eigenvalues, values, atol=1e-9)


@pytest.mark.parametrize(
    ("ranks", "route"), [((3, 3, 2), "closed"), ((3, 2, 2), "dense")]
)
def test_as_many_groups_as_dimensions_leave_nothing_in_closed_form(rng, ranks, route):
    bases = orthonormal(rng, (7, 7, 7), ranks)
    found = solve(bases, bw.time_graph([np.arange(7)] * 3), 2)
    assert found.route == route


def test_components_count_as_long_as_they_gain():
    gains = np.array([3.0, 1.0, 1.0 - 1e-10, 2e-9, 0.0])
    found = Solution(
        -gains, gains, 1.0, [np.eye(5)] * 2, [np.eye(5)[:3]] * 2, np.eye(5), "dense"
    )
    assert [found.n_informative(k) for k in (1, 2, 3, 4, 5, 9)] == [1, 2, 3, 4, 4, 4]
    assert [found.is_unique(k) for k in range(1, 7)] == [
        True, False, True, True, True, True,
    ]  # fmt: skip
    larger = Solution(-gains, gains, 10.0, [], [], np.eye(5), "dense")
    assert larger.n_informative(4) == 3
    assert not larger.is_unique(4)
    two = found.first(2)
    assert two.eigenvalues.size == 2
    assert two.gains.size == 5  # what lies behind stays known
    assert not two.is_unique(2)
    assert [m.shape for m in two.maps] == [(5, 2)] * 2
    assert [f.shape for f in two.features] == [(3, 2)] * 2
    assert two.template.shape == (5, 2)
    assert two.shared is None
    assert_array_equal(two.template, np.eye(5)[:, :2])


def literal_overlap(covariances, lengths):
    total = sum(covariances)
    values = np.linalg.eigvalsh(total)
    k = (values > 1e-12 * values.max()).sum()
    inverse = np.linalg.pinv(total, rcond=1e-12, hermitian=True)
    alone = sum(np.trace(inverse @ C @ inverse @ C) for C in covariances)
    shares = np.array(lengths) / sum(lengths)
    return min(1.0, (k - alone) / (k * (1 - sum(shares**2))))


def test_overlap_is_between_features_of_one_subject_and_of_all(rng):
    A = rng.normal(size=(4, 6))
    same = A @ A.T
    assert subject_overlap([same] * 3, (5, 5, 5)) == pytest.approx(1)
    apart = [np.diag([1.0, 2, 0, 0]), np.diag([0, 0, 3.0, 1])]
    assert subject_overlap(apart, (5, 5)) == pytest.approx(0, abs=1e-12)
    for lengths in ((5, 5, 5), (3, 8, 20)):
        covariances = [(B := rng.normal(size=(4, 3))) @ B.T * n for n in lengths]
        covariances[0][:, 3] = covariances[0][3] = 0
        expected = literal_overlap(covariances, lengths)
        assert subject_overlap(covariances, lengths) == pytest.approx(expected)
        flat = [C * np.outer([1, 1, 1, 0], [1, 1, 1, 0]) for C in covariances]
        expected = literal_overlap(flat, lengths)
        assert subject_overlap(flat, lengths) == pytest.approx(expected)


def test_a_target_is_larger_than_features_by_one_number_for_all(rng):
    features, mu = rng.normal(size=(8, 3)), np.array([0.9, 0.5, 0.1])
    target = rng.normal(size=(8, 3)) + 2
    target[[1, 5]] = 0  # without edges
    linked = [i for i in range(8) if i not in (1, 5)]

    def size(values):
        spread = [
            np.sqrt(np.mean([values[i, j] ** 2 for i in linked])) for j in range(3)
        ]
        return np.sqrt(sum((s * m) ** 2 for s, m in zip(spread, mu, strict=True)))

    expected = size(target - target.mean(axis=0)) / size(features)
    assert amplitude(features, target, mu) == pytest.approx(expected)
    assert amplitude(features, 0 * target, mu) == 1.0
    assert amplitude(0 * features, target, mu) == 1.0
    nobody = rng.normal(size=(8, 3)), np.zeros((8, 3))
    spread = np.array([1.0, 0.5, 0.2])
    other = rng.normal(size=(6, 3)), rng.normal(size=(6, 3))
    found = common_scale(
        [features, nobody[0], other[0]], [target, nobody[1], other[1]], mu, spread
    )
    squares = []
    for f, t in ((features, target), other):
        rows = t.any(axis=1)
        squares.append((amplitude(f, t, mu) ** 2) * (f[rows] ** 2).mean(axis=0))
    assert_allclose(found, spread / np.sqrt(np.mean(squares, axis=0)), rtol=1e-12)
    flat = features * [1, 0, 1]
    assert common_scale([flat], [target], mu, spread)[1] == spread[1]


@pytest.mark.parametrize("n", [6, 7])
def test_more_components_than_are_kept_are_refused(rng, n):
    X = [rng.normal(size=(6, 3)) for _ in range(n)]
    shown = " + ".join(["3"] * 6) + (" + ..." if n > 6 else "")
    message = (
        f"n_components=40 is more than the {3 * n} dimensions that the subjects keep "
        f"together ({shown}). Use fewer components or more energy."
    )
    with pytest.raises(InputError, match=f"^{re.escape(message)}$"):
        bw.PaperGDM(40, energy=1.0, graph="time").fit(X)


def test_signs_and_sizes_of_the_papers_features_are_fixed(rng):
    labels = [np.arange(12) % 3] * 3
    X = [
        np.eye(3)[y] @ rng.normal(size=(3, 9)) + rng.normal(size=(12, 9))
        for y in labels
    ]
    model = bw.PaperGDM(2, energy=0.9).fit(X, labels)
    stacked = np.concatenate(model.transform(X))
    assert_allclose(np.sqrt((stacked**2).mean(axis=0)), 1, atol=1e-10)
    assert (stacked[np.abs(stacked).argmax(axis=0), [0, 1]] > 0).all()
    G = model.graph_.to_sparse().toarray()
    Y = stacked / np.sqrt(36)
    expected = np.diag(Y.T @ (np.diag(G.sum(axis=1)) - G) @ Y)
    assert_allclose(model.eigenvalues_, expected, atol=1e-9)


def test_samples_of_anyone_are_mapped_by_their_own_mean_and_deviation(rng):
    placement = Placement(0.5, 6, "equal columns")
    weights = rng.normal(size=(6, 2))
    x = rng.normal(3, 2, size=(9, 6))
    x[:, 4] = 1.5  # never varies
    centred, scale = x - x.mean(axis=0), x.std(axis=0)
    z = np.divide(centred, scale, out=np.zeros_like(x), where=scale > 1e-12)
    for given in (x, bw.Subject("a", x)):
        assert_allclose(SharedMap(weights, placement).transform(given), z @ weights)
    raw = SharedMap(weights, placement, scaled=False)
    assert_allclose(raw.transform(x), centred @ weights, atol=1e-12)
    own = SharedMap(weights, placement).map_for(x)
    assert_allclose(own.patterns, np.linalg.pinv(weights), atol=1e-12)
    assert_allclose(own.mean, x.mean(axis=0))
    assert not own.took_part(x).any()
    assert own.space is None
    two = SharedMap(weights, placement).map_for(x[:2])
    assert_allclose(two.mean, x[:2].mean(axis=0))
    with pytest.raises(InputError, match=r"^someone has 1 samples; the shared map"):
        SharedMap(weights, placement).map_for(x[:1], name="someone")
    with pytest.raises(InputError, match="to_image needs a subject that was loaded"):
        SharedMap(weights, placement).to_image(0, like=bw.Subject("a", x))


def test_a_placement_tells_what_was_chosen():
    used = Placement(0.25, 6, "equal columns", tuple("abcdef"), "MNI")
    assert used.used
    assert str(used) == (
        "A map shared by all subjects over 6 places (equal columns), ridge 0.25, and "
        "each subject's deviation from it."
    )
    assert str(Placement()) == "No shared map: place=None."
    assert not Placement().used
    tried = Placement(None, 6, "equal columns")
    assert str(tried).startswith("No shared map: 6 places (equal columns) did not")
    assert not list(used._misfits())
    assert not list(Placement(None, 6)._misfits())
    for names in (tuple("abcde"), ()):
        wrong = Placement(0.25, 6, "equal columns", names)
        assert list(wrong._misfits()) == ["names other places than it has"]
    places = used.places()
    assert (places.what, places.names, places.frame) == (
        "equal columns", tuple("abcdef"), "MNI",
    )  # fmt: skip


@pytest.mark.parametrize("unit", [1e-6, 1.0])
@pytest.mark.parametrize("kind", ["matrix", "one group"])
def test_a_graph_that_links_all_samples_alike_is_refused(rng, kind, unit):
    """What is left of it is rounding, of which no feature can be made."""
    X = [rng.normal(size=(32, 20)) for _ in range(3)]
    graph = {
        "matrix": bw.matrix_graph(np.ones((96, 96)), [32] * 3),
        "one group": bw.time_graph([[0] * 32] * 3),
    }[kind]
    model = bw.GDM(1, graph=unit * graph, shrinkage=0.3, place=None)
    with pytest.raises(InputError, match="No component gains from the edges"):
        model.fit(X)
    apart = bw.time_graph([np.arange(32) // 16] * 3)
    fitted = bw.GDM(1, graph=unit * apart, shrinkage=0.3, place=None).fit(X)
    assert fitted.overlap_ > 0
