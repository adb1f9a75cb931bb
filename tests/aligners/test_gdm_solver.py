"""Every route finds the same eigenpairs as LAPACK on the explicit M, ties and all."""

import numpy as np
import pytest
import scipy.linalg
import scipy.sparse
from numpy.testing import assert_allclose

from brainweave import PaperGDM, affinity_graph, label_graph, matrix_graph, time_graph
from brainweave._core.exceptions import InputError, UniquenessWarning
from brainweave.aligners.gdm import eigenproblem
from brainweave.aligners.gdm.eigenproblem import Solution, solve, subject_overlap
from brainweave.basis import linalg
from brainweave.graphs.builders import Graph

K = 10


def bases_of(rng, lengths, dims):
    """Orthonormal, centred bases, as those of subjects are."""
    dims = [dims] * len(lengths) if np.isscalar(dims) else dims
    noise = [rng.normal(size=(n, d)) for n, d in zip(lengths, dims, strict=True)]
    return [np.linalg.qr(a - a.mean(axis=0))[0] for a in noise]


def oracle(bases, graph):
    """All eigenpairs of the explicit V*^T (D - G) V*."""
    G = graph.to_sparse()
    V = scipy.linalg.block_diag(*bases)
    M = V.T @ ((scipy.sparse.diags_array(G.sum(axis=1)) - G) @ V)
    return np.linalg.eigh((M + M.T) / 2)


def check(bases, graph, route, k=K, expected=None):
    values, vectors = oracle(bases, graph) if expected is None else expected
    solution = solve(bases, graph, k, route=route)
    scale = max(np.abs(graph.degrees()).max(), np.abs(values).max())
    found = np.concatenate(solution.maps)
    wanted = min(k + 1, values.size)
    assert_allclose(solution.eigenvalues, values[:wanted], atol=1e-10 * scale, rtol=0)
    assert_allclose(found.T @ found, np.eye(wanted), atol=1e-9)
    # what is gained, below the smallest eigenvalue of the degrees alone
    spots = zip(bases, graph.slices(), strict=True)
    parts = [(V.T * graph.degrees()[rows]) @ V for V, rows in spots]
    floor = min(np.linalg.eigvalsh(part)[0] for part in parts)
    gains = floor - values[:wanted]
    assert_allclose(solution.gains, gains, atol=1e-10 * scale, rtol=0)
    # the space is compared at every gap, so inside of what was found too
    gaps = np.diff(values[: wanted + 1])
    for j in np.flatnonzero(gaps > 1e-4 * scale) + 1:
        if j <= wanted:
            cosines = np.linalg.svd(found[:, :j].T @ vectors[:, :j])[1]
            assert_allclose(cosines, 1, atol=1e-8)
    if values.size > k:
        gap = (values[k] - values[k - 1]) / scale
        assert solution.is_unique(k) if gap > 1e-7 else True
        assert not solution.is_unique(k) if gap < 1e-11 else True
    else:
        assert solution.is_unique(k)
    return solution


def unbalanced(rng, lengths, n_categories):
    shares = rng.dirichlet(np.full(n_categories, 2.0))
    return [rng.choice(n_categories, size=n, p=shares) for n in lengths]


def degenerate(kind, rng):
    """Problems with repeated eigenvalues, or hardly any structure, of every kind."""
    lengths = (60,) * 9
    bases, labels = bases_of(rng, lengths, 59), unbalanced(rng, lengths, 14)
    if kind == "exact overfit":
        return bases, label_graph(labels)
    if kind == "duplicated subjects":
        return [bases[0]] * 9, label_graph([labels[0]] * 9)
    if kind == "cut and duplicated":
        cut = bases_of(rng, (60,) * 3, 25)
        return cut * 3, label_graph(labels[:3] * 3)
    if kind == "disconnected":
        apart = [part + 100 * (i % 3) for i, part in enumerate(labels)]
        return bases, label_graph(apart, different=0)
    if kind == "two categories":
        return bases, label_graph(unbalanced(rng, lengths, 2))
    if kind == "zero degrees":
        few = [np.where(rng.random(60) < 0.6, None, part) for part in labels]
        return bases, label_graph(few, different=0)
    if kind == "negative degrees":
        A = -np.ones((14, 14)) + 0.5 * np.eye(14)
        return bases, affinity_graph([np.arange(60) % 14] * 9, A)
    if kind == "signed affinity":
        A = rng.normal(size=(14, 14))
        return bases_of(rng, lengths, 45), affinity_graph(
            [rng.permutation(np.arange(60) % 14) for _ in lengths], A + A.T
        )
    if kind == "3 and 500 samples":
        lengths = (3, 500, 3, 40)
        return bases_of(rng, lengths, (2, 499, 2, 39)), label_graph(
            [[0, 1, 2], *unbalanced(rng, (500,), 3), [2, 1, 0], np.arange(40) % 3]
        )
    if kind == "some stimuli":
        ids = [np.sort(rng.permutation(110)[:60]) for _ in lengths]
        return bases, time_graph(ids)
    if kind == "sum":
        ids = [np.sort(rng.permutation(110)[:60]) for _ in lengths]
        return bases, 0.5 * label_graph(labels) + 2 * time_graph(ids)
    raise ValueError(kind)


KINDS = [
    "exact overfit",
    "duplicated subjects",
    "cut and duplicated",
    "disconnected",
    "two categories",
    "zero degrees",
    "negative degrees",
    "signed affinity",
    "3 and 500 samples",
    "some stimuli",
    "sum",
]


@pytest.mark.parametrize("kind", KINDS)
def test_degenerate_problems_by_every_route(rng, kind, monkeypatch):
    bases, graph = degenerate(kind, rng)
    expected = oracle(bases, graph)
    for route in ("auto", "dense", "iterative"):
        check(bases, graph, route, expected=expected)
    matrix = matrix_graph(graph.to_sparse(), graph.lengths)
    check(bases, matrix, "iterative", expected=expected)
    # the iteration itself, where small problems would go to LAPACK
    monkeypatch.setattr(linalg, "DENSE_LIMIT", 0)
    check(bases, graph, "iterative", k=3, expected=expected)


@pytest.mark.parametrize("seed", range(6))
def test_repeated_eigenvalues_are_all_found(seed):
    """More categories than subjects, nothing cut: the smallest is there 8 times."""
    rng = np.random.default_rng(seed)
    lengths = (100,) * 12
    bases = bases_of(rng, lengths, 99)
    graph = label_graph(unbalanced(rng, lengths, 20))
    dense = solve(bases, graph, K, route="dense").eigenvalues
    for route in ("auto", "iterative"):
        found = solve(bases, graph, K, route=route).eigenvalues
        assert_allclose(found, dense, atol=1e-12 * np.abs(dense).max())


@pytest.mark.parametrize("equal", [True, False], ids=["equal", "unequal"])
@pytest.mark.parametrize(
    ("groups", "kind", "dims"),
    [
        (50, "time", (30,) * 6),
        (50, "signed", (30,) * 6),
        (50, "sum", (30,) * 6),
        (450, "time", (110,) * 5),
        (450, "signed", (110,) * 5),
        (450, "sum", (110,) * 5),
        (2000, "time", (60,) * 3),
        (2000, "sum", (60,) * 3),
    ],
)
def test_routes_agree_whatever_the_number_of_groups(rng, groups, kind, dims, equal):
    rows = [np.arange(groups) for _ in dims]
    if not equal:  # all but the first lack some
        lacking = [rng.permutation(groups)[: groups // 10] for _ in dims[1:]]
        rows[1:] = [np.delete(rows[0], some) for some in lacking]
    graph = time_graph(rows)
    if kind == "signed":  # every row of a circulant matrix has the same sum
        first = np.zeros(groups)
        first[[0, 1, -1, 7, -7]] = 1, 0.5, 0.5, -0.8, -0.8
        graph = affinity_graph(rows, scipy.linalg.circulant(first))
    if kind == "sum":
        graph = graph + 0.3 * time_graph([row // 2 for row in rows])
    bases = bases_of(rng, graph.lengths, dims)
    expected = oracle(bases, graph)
    routes = {check(bases, graph, "auto", expected=expected).route}
    for route in ["iterative", "dense"] + ["closed"] * equal:
        check(bases, graph, route, expected=expected)
    # one thin decomposition where there are fewer groups than dimensions
    few = groups * (1.5 if kind == "sum" else 1) < sum(dims)
    assert ("closed" in routes) == (equal and few)


def test_more_components_than_groups_by_the_closed_route(rng):
    bases = bases_of(rng, (40,) * 4, 30)
    graph = label_graph([np.arange(40) % 4] * 4)
    check(bases, graph, "closed", k=20)
    check(bases, graph, "closed", k=119)  # all of them
    check(bases, -1 * graph, "closed", k=20)  # what is separated is below the level


def test_degrees_that_differ_a_little_are_not_equal(rng):
    """An error of one in a million would be taken for none by a looser tolerance."""
    codes = [np.arange(60) % 3] * 4
    bases = bases_of(rng, (60,) * 4, 40)
    for change in (1e-3, 1e-6, 1e-9):
        graph = affinity_graph(codes, np.diag([1.0, 1.0, 1.0 + change]))
        with pytest.raises(InputError, match="all samples have the same degree"):
            solve(bases, graph, 5, route="closed")
        assert check(bases, graph, "auto", k=5).route != "closed"
        values = oracle(bases, graph)[0][:6]
        found = solve(bases, graph, 5).eigenvalues
        assert_allclose(found, values, atol=1e-12 * 80)
    rounded = affinity_graph(codes, np.diag([1.0, 1.0, 1.0 + 1e-15]))
    assert solve(bases, rounded, 5).route == "closed"


def test_a_matrix_of_weights_has_no_closed_form_even_if_degrees_are_equal(rng):
    first = np.zeros(120)
    first[[1, -1, 40, -40]] = 1
    graph = matrix_graph(scipy.linalg.circulant(first), (40,) * 3)
    bases = bases_of(rng, (40,) * 3, 20)
    with pytest.raises(InputError, match="needs a graph of groups"):
        solve(bases, graph, 5, route="closed")
    check(bases, graph, "auto", k=5)


def test_a_large_matrix_of_weights_is_solved_and_confirmed(rng, monkeypatch):
    """The iteration's own answer, and the dense one where it cannot be confirmed."""
    bases = bases_of(rng, (150,) * 4, 120)
    labels = label_graph(unbalanced(rng, (150,) * 4, 4))
    graph = matrix_graph(labels.to_sparse(), labels.lengths)
    monkeypatch.setattr(eigenproblem, "MATRIX_DENSE_SIZE", 0)
    assert check(bases, graph, "auto", k=3).route == "iterative"
    expected = oracle(bases, graph)

    def misses_the_first(multiply, size, k, **options):
        if options:  # the second look is an honest one
            return honest(multiply, size, k, **options)
        return expected[0][1 : k + 1], expected[1][:, 1 : k + 1]

    honest = linalg.block_iteration
    monkeypatch.setattr(linalg, "block_iteration", misses_the_first)
    check(bases, graph, "auto", k=3, expected=expected)


def test_overlap_of_subjects(rng):
    def overlap(blocks, lengths):
        return subject_overlap([E.T @ E for E in blocks], lengths)

    E = np.linalg.qr(rng.normal(size=(12, 12)))[0]
    assert abs(overlap(np.split(E, 3), (5, 6, 7))) < 1e-12
    one = np.linalg.qr(rng.normal(size=(4, 2)))[0]
    lengths = np.array([3, 6, 3])
    alike = [one * np.sqrt(n / 12) for n in lengths]
    assert_allclose(overlap(alike, lengths), 1)
    only = [one, 0 * one, 0 * one]
    assert abs(overlap(only, lengths)) < 1e-12


def test_no_groups_and_a_matrix(rng):
    """A graph of weights alone has no group to reduce by; routes still agree."""
    S = scipy.sparse.random_array((160, 160), density=0.05, rng=rng)
    graph = Graph((40,) * 4, matrix=scipy.sparse.csr_array(S + S.T))
    bases = bases_of(rng, (40,) * 4, 30)
    for route in ("auto", "dense", "iterative"):
        check(bases, graph, route, k=6)


def test_nearly_equal_degrees_are_not_equal(rng):
    """100 samples of one category, 101 of the other: no closed form is exact."""
    labels = [np.repeat([0, 1], 50), np.repeat([0, 1], [50, 51])]
    bases = bases_of(rng, (100, 101), 5)
    solution = check(bases, label_graph(labels, different=0), "auto", k=3)
    assert solution.route != "closed"
    with pytest.raises(InputError, match="same degree"):
        solve(bases, label_graph(labels, different=0), 3, route="closed")


def solution(gains, *, scale=1.0):
    n = len(gains)
    parts = [np.arange(2.0 * n).reshape(2, n)]
    return Solution(-gains, gains, scale, parts, parts, parts[0], "dense")


@pytest.mark.parametrize("scale", [1e-6, 1.0, 1e6])
def test_gains_and_gaps_count_from_a_billionth_of_the_scale(scale):
    found = solution(scale * np.array([1.0, 1e-7, 1e-10, -1.0]), scale=scale)
    assert [found.n_informative(k) for k in range(5)] == [0, 1, 2, 2, 2]
    # 1e-7 - 1e-10 is a gap; behind the last component nothing is known
    assert [found.is_unique(k) for k in (1, 2, 3, 4)] == [True] * 4
    tied = solution(scale * np.array([1.0, 1 - 1e-7, 1 - 1e-7 - 1e-10]), scale=scale)
    assert [tied.is_unique(k) for k in (1, 2, 3)] == [True, False, True]


def test_the_first_components_keep_what_lies_behind_them():
    whole = solution(np.array([3.0, 2.0, 1.0]))
    first = whole.first(2)
    assert_allclose(first.eigenvalues, whole.eigenvalues[:2], rtol=0)
    assert_allclose(first.gains, whole.gains, rtol=0)
    for parts in (first.maps, first.features, [first.template]):
        assert_allclose(parts[0], whole.template[:, :2], rtol=0)


def test_subjects_overlap_from_not_at_all_to_wholly(rng):
    A, B = np.diag([1.0, 0.0]), np.diag([0.0, 1.0])
    half = np.diag([0.5, 0.5])
    assert subject_overlap([half, half], (9, 9)) == pytest.approx(1)
    assert subject_overlap([A, B], (9, 9)) == pytest.approx(0, abs=1e-12)
    assert subject_overlap([0.25 * half, 0.75 * half], (3, 9)) == pytest.approx(1)
    # one feature of both, one of the first alone: k = 2, alone = 1/4 + 1/4 + 1
    mixed = [np.diag([0.5, 1.0]), np.diag([0.5, 0.0])]
    assert subject_overlap(mixed, (9, 9)) == pytest.approx(0.5)
    # coordinates do not matter, nor does a feature that nobody has
    T = rng.normal(size=(2, 2))
    turned = [np.pad(T.T @ C @ T, (0, 1)) for C in mixed]
    turned = [C + 1e-15 for C in turned]  # but for rounding
    for unit in (1e-9, 1.0, 1e9):
        overlap = subject_overlap([unit * C for C in turned], (9, 9))
        assert overlap == pytest.approx(0.5, rel=1e-4)
    small = [np.diag([0.5, 1e-9 * C[1, 1]]) for C in mixed]  # however weak
    assert subject_overlap(small, (9, 9)) == pytest.approx(0.5)


def test_a_film_of_more_than_400_time_points_is_aligned():
    """It crashed: with equal degrees the shift of the iteration was zero."""
    rng = np.random.default_rng(0)
    film = rng.normal(size=(450, 8))
    X = [film @ rng.normal(size=(8, 60)) + rng.normal(size=(450, 60)) for _ in range(9)]
    results = [
        PaperGDM(3, energy=1.0, graph="time", solver=solver).fit(X)
        for solver in ("auto", "closed", "iterative", "dense")
    ]
    for model in results:
        np.testing.assert_allclose(
            model.eigenvalues_, results[-1].eigenvalues_, rtol=1e-9
        )


@pytest.mark.parametrize("seed", [3, 5])
def test_an_eigenvalue_that_is_there_eight_times_is_found_eight_times(seed):
    """The iteration found it once or twice, then the next ones, without a word."""
    rng = np.random.default_rng(seed)
    shares = rng.dirichlet(np.full(20, 2.0))
    y = [np.append(np.arange(20), rng.choice(20, 80, p=shares)) for _ in range(12)]
    X = [rng.normal(size=(100, 150)) for _ in y]
    dense = PaperGDM(10, energy=1.0, solver="dense").fit(X, y)
    auto = PaperGDM(10, energy=1.0).fit(X, y)
    assert auto.solver_ == "iterative"
    np.testing.assert_allclose(auto.eigenvalues_, dense.eigenvalues_, rtol=1e-9)
    assert auto.n_informative_ == dense.n_informative_
    with pytest.warns(UniquenessWarning):  # the cut goes through the eight
        PaperGDM(4, energy=1.0).fit(X, y)
