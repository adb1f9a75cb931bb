from fractions import Fraction

import numpy as np
import pandas as pd
import pytest
import scipy.sparse
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.testing import assert_allclose
from scipy.sparse.csgraph import connected_components

from brainweave import (
    affinity_graph,
    label_graph,
    matrix_graph,
    neighbor_graph,
    time_graph,
)
from brainweave._core.exceptions import InputError
from brainweave.aligners.gdm.eigenproblem import apply_graph
from brainweave.graphs.builders import (
    NO_GROUP,
    Graph,
    GroupTerm,
    equal_group_weights,
    weigh_groups,
)

LABELS = [["cat", "dog", None, "cat"], ["dog", "bee", "cat"]]


def some_graph(rng):
    lengths = (7, 5, 6)
    labels = [rng.integers(0, 3, n) for n in lengths]
    times = [rng.permutation(9)[:n] for n in lengths]
    S = scipy.sparse.random_array((18, 18), density=0.2, rng=rng)
    return (
        label_graph(labels)
        + 2 * time_graph(times)
        + -1 * matrix_graph(S + S.T, lengths)
    )


def test_label_graph_entries():
    G = label_graph(LABELS, same=2, different=-3).to_sparse().toarray()
    flat = LABELS[0] + LABELS[1]
    for i, a in enumerate(flat):
        for j, b in enumerate(flat):
            expected = 0 if None in (a, b) else 2 if a == b else -3
            assert G[i, j] == expected


def test_missing_markers():
    coded = [["cat", "dog", "n/a", "cat"], ["dog", "bee", "cat"]]
    a = label_graph(coded).to_sparse().toarray()
    b = label_graph(LABELS).to_sparse().toarray()
    floats = [[1.0, 2.0, np.nan, 1.0], [2.0, 0.0, 1.0]]
    c = label_graph(floats).to_sparse().toarray()
    assert_allclose(a, b)
    assert_allclose(c, b)


def test_time_and_hyperalignment_graphs():
    G = time_graph([[0, 1, 2], [2, 0]]).to_sparse().toarray()
    assert G[0, 4] == G[2, 3] == 1
    assert G.sum() == 3 + 2 + 4
    H = time_graph([[0, 1, 2], [2, 0, 1]], balance="subjects")
    assert_allclose(H.to_sparse().toarray(), 0.5 * (H.to_sparse().toarray() > 0))
    assert_allclose(H.degrees(), 1)


def test_affinity_by_table_and_by_array_agree(rng):
    A = rng.normal(size=(3, 3))
    A = A + A.T
    names = ["bee", "cat", "dog"]
    table = pd.DataFrame(A, names, names).loc[
        ["dog", "bee", "cat"], ["cat", "dog", "bee"]
    ]
    one = affinity_graph(LABELS, A).to_sparse().toarray()
    other = affinity_graph(LABELS, table).to_sparse().toarray()
    assert_allclose(one, other)
    assert one[0, 1] == pytest.approx(A[1, 2])


def test_affinities_are_symmetric_up_to_rounding(rng):
    A = np.eye(3)
    A[0, 1] = 1e-11
    G = affinity_graph(LABELS, A).to_sparse().toarray()
    assert_allclose(G, G.T, rtol=0)
    matrix_graph(A, [1, 2])
    A[0, 1] = 1e-8
    for wrong in (A, 1e-12 * A):  # whatever the unit
        for make in (affinity_graph, lambda _, A: matrix_graph(A, [1, 2])):
            with pytest.raises(InputError, match="not symmetric"):
                make(LABELS, wrong)


def test_neighbors_may_be_all_samples_of_the_others(rng):
    features = [rng.normal(size=(n, 2)) for n in (2, 3)]
    G = neighbor_graph(features, n_neighbors=2).to_sparse().toarray()
    assert_allclose(G[:2, 2:].sum(axis=0), 2)  # each of the second has both


def test_ten_neighbors_unless_said_otherwise(rng):
    features = [rng.normal(size=(30, 2)) for _ in range(2)]
    found, ten = neighbor_graph(features), neighbor_graph(features, n_neighbors=10)
    assert (found.matrix != ten.matrix).nnz == 0
    assert found.degrees().min() >= 10


def test_an_empty_graph_is_symmetric():
    assert matrix_graph(np.zeros((3, 3)), [1, 2]).degrees().tolist() == [0, 0, 0]


@pytest.mark.parametrize("kind", ["csr", "csc", "coo", "lil", "dok", "dia", "bsr"])
def test_a_sparse_matrix_may_be_of_any_kind(rng, kind):
    matrix = rng.integers(0, 3, (5, 5)) @ np.diag([1, 0, 1, 1, 1])
    matrix = matrix + matrix.T
    graph = matrix_graph(scipy.sparse.csr_array(matrix).asformat(kind), [2, 3])
    assert_allclose(graph.to_sparse().toarray(), matrix)


def test_neighbors_are_of_other_subjects_and_nearest(rng):
    features = [rng.normal(size=(n, 2)) for n in (6, 5, 7)]
    G = neighbor_graph(features, n_neighbors=1).to_sparse().toarray()
    stacked, where = np.concatenate(features), np.repeat([0, 1, 2], [6, 5, 7])
    for i in range(18):
        others = np.flatnonzero(where != where[i])
        nearest = others[((stacked[others] - stacked[i]) ** 2).sum(1).argmin()]
        assert G[i, nearest] == 1
        assert G[i, where == where[i]].sum() == 0
    assert_allclose(G, G.T)


@settings(max_examples=20, deadline=None)
@given(st.integers(0, 1000))
def test_laplacians_have_zero_row_sums_and_products_agree(seed):
    rng = np.random.default_rng(seed)
    graph = some_graph(rng)
    G = graph.to_sparse().toarray()
    assert_allclose(G, G.T, atol=1e-14)
    assert_allclose(graph.degrees(), G.sum(axis=1), atol=1e-10)
    y = rng.normal(size=(18, 3))
    assert_allclose(apply_graph(graph, y), G @ y, atol=1e-10)


@settings(max_examples=30, deadline=None)
@given(st.integers(0, 1000))
def test_connected_components_equal_scipy(seed):
    rng = np.random.default_rng(seed)
    lengths = (4, 5, 3)
    groups = [rng.integers(0, 6, n) for n in lengths]
    n_groups = len(np.unique(np.concatenate(groups)))
    A = np.triu(rng.random((n_groups, n_groups)) < 0.3).astype(float)
    S = scipy.sparse.random_array((12, 12), density=0.03, rng=rng)
    graph = affinity_graph(groups, np.maximum(A, A.T)) + matrix_graph(S + S.T, lengths)
    number, parts = graph.connected_components()
    expected, expected_parts = connected_components(graph.to_sparse())
    assert number == expected
    same = parts[:, None] == parts[None, :]
    assert np.array_equal(same, expected_parts[:, None] == expected_parts[None, :])


def test_unconnected_subjects():
    assert time_graph([[0, 1], [1, 2], [7, 8]]).subject_groups == [[0, 1], [2]]
    labels = label_graph([["a", "b"], ["a", None], [None, None]])
    assert labels.subject_groups == [[0, 1], [2]]
    cross = np.zeros((4, 4))
    cross[0, 2] = cross[2, 0] = 1
    groups = matrix_graph(cross, [1, 1, 1, 1]).subject_groups
    assert groups == [[0, 2], [1], [3]]


def test_balances_divide_by_sizes_or_by_subjects():
    y = [list("aab"), list("abbc"), list("cc")]
    A = np.array([[3.0, 1.0, 0.5], [1.0, 2.0, 0.0], [0.5, 0.0, 1.0]])
    sizes = np.array([3, 3, 3])
    graph = affinity_graph(y, A)
    by_size = weigh_groups(graph, "groups").groups[0].affinity
    assert_allclose(by_size, A / np.sqrt(np.outer(sizes, sizes)), rtol=1e-14)
    by_subject = weigh_groups(graph, "subjects").groups[0].affinity
    assert_allclose(by_subject, A / 3, rtol=1e-14)
    assert_allclose(weigh_groups(graph, "none").groups[0].affinity, A, rtol=0)
    both = weigh_groups(graph + graph, ["groups", "subjects"])
    assert_allclose(both.groups[0].affinity, by_size, rtol=0)
    assert_allclose(both.groups[1].affinity, by_subject, rtol=0)
    made = label_graph(y, balance="groups").groups[0].affinity
    by_hand = weigh_groups(label_graph(y), "groups").groups[0].affinity
    assert_allclose(made, by_hand, rtol=0)
    with pytest.raises(InputError, match="balance of the graph must be one of"):
        weigh_groups(graph, "samples")
    uneven = weigh_groups(
        affinity_graph([list("aab"), list("abbbb")], A[:2, :2]), "groups"
    )
    sizes = np.array([3, 5])
    expected = A[:2, :2] / np.sqrt(np.outer(sizes, sizes))
    assert_allclose(uneven.groups[0].affinity, expected, rtol=1e-14)


def test_groups_that_link_nobody_lose_their_weights():
    ids = [[0, 1, 5], [1, 0, 6], [1, 7, 8]]
    weighed = weigh_groups(time_graph(ids), "none")
    (term,) = weighed.groups
    assert_allclose(term.affinity.diagonal(), [1, 1, 0, 0, 0, 0], rtol=0)
    assert term.codes.tolist() == [0, 1, NO_GROUP, 1, 0, NO_GROUP, 1] + [NO_GROUP] * 2
    # groups of one subject each that an affinity joins do link them
    A = np.array([[0.0, 1.0, 0.0], [1.0, 0.0, 0.0], [0.0, 0.0, 1.0]])
    (term,) = weigh_groups(affinity_graph([["a", "c"], ["b"]], A), "none").groups
    assert_allclose(term.affinity, [[0, 1, 0], [1, 0, 0], [0, 0, 0]], rtol=0)
    assert term.codes.tolist() == [0, NO_GROUP, 1]
    # but not those of one and the same subject
    (term,) = weigh_groups(affinity_graph([["a", "b"], ["c"]], A), "none").groups
    assert not term.affinity.any()


def test_groups_count_alike_and_their_term_as_much_as_before():
    ids = [[0, 1, 2, 2], [0, 1, 1], [0, None]]
    graph = time_graph(ids) + matrix_graph(np.eye(9), [4, 3, 2])
    alike = equal_group_weights(graph)
    own, sizes = alike.groups[0].affinity.diagonal(), np.array([3, 3, 2])
    assert_allclose(own * sizes, np.average(sizes, weights=sizes), rtol=1e-14)
    assert np.count_nonzero(alike.groups[0].affinity) == 3
    assert alike.matrix is graph.matrix
    joined = affinity_graph([["a", "b"], ["a", "b"]], [[1.0, 0.5], [0.5, 1.0]])
    (term,) = equal_group_weights(joined).groups
    assert term is joined.groups[0]
    apart = affinity_graph([["a", "b"], ["a", "b"]], np.diag([4.0, 0.0]))
    assert_allclose(
        equal_group_weights(apart).groups[0].affinity, np.diag([4.0, 0.0]), rtol=0
    )


def test_a_group_without_samples_links_nothing():
    term = GroupTerm(np.array([0, 0]), np.ones((2, 2)), ("a", "b"))
    assert [ends.tolist() for ends in term.links()[1:]] == [[0], [0]]


def test_graphs_are_multiplied_by_any_number():
    graph = time_graph([[0, 1], [0]])
    assert_allclose((Fraction(1, 2) * graph).degrees(), graph.degrees() / 2, rtol=0)


def test_subjects_fall_into_groups_through_others():
    graph = time_graph([[0], [0, 1], [1], [7], [8, 7]])
    assert graph.subject_groups == [[0, 1, 2], [3, 4]]


def test_a_group_graph_never_expands():
    """A million samples: their dense graph would need 8 TB."""
    labels = [np.arange(100_000) % 8 for _ in range(10)]
    graph = label_graph(labels)
    assert_allclose(graph.degrees(), 125_000 - 7 * 125_000)
    assert graph.connected_components()[0] == 1


def test_errors():
    with pytest.raises(InputError, match=r"\[2, 3\] and \[3, 2\]"):
        _ = time_graph([[0, 1], [0, 1, 2]]) + time_graph([[0, 1, 2], [0, 1]])
    with pytest.raises(TypeError):
        _ = time_graph([[0, 1], [0, 1]]) + 1
    with pytest.raises(InputError, match="finite number"):
        _ = float("nan") * time_graph([[0], [0]])
    with pytest.raises(InputError, match=r"shape \(2, 2\); there are 3 groups"):
        affinity_graph(LABELS, np.eye(2))
    with pytest.raises(InputError, match="not symmetric"):
        affinity_graph(LABELS, np.arange(9).reshape(3, 3))
    with pytest.raises(InputError, match="lacks rows or columns for"):
        affinity_graph(LABELS, pd.DataFrame(np.eye(2), ["cat", "dog"], ["cat", "dog"]))
    rows = pd.DataFrame(np.ones((3, 2)), ["bee", "cat", "dog"], ["cat", "dog"])
    with pytest.raises(InputError, match="lacks rows or columns for groups"):
        affinity_graph(LABELS, rows)
    with pytest.raises(InputError, match=r"at least two categories; got \['cat'\]"):
        label_graph([["cat"], ["cat", None]])
    for weight in (np.nan, np.inf):
        with pytest.raises(InputError, match="groups has NaN or infinite weights"):
            affinity_graph(LABELS, np.diag([1, weight, 1]))
        with pytest.raises(InputError, match="matrix has NaN or infinite weights"):
            matrix_graph(np.diag([1, weight]), [1, 1])
        with pytest.raises(InputError, match=r"features\[1\] has NaN or infinite"):
            neighbor_graph([np.ones((3, 1)), np.full((3, 1), weight)], n_neighbors=1)
    with pytest.raises(InputError, match=r"shape \(2, 2\); .* 1 \+ 2 = 3 samples"):
        matrix_graph(np.eye(2), [1, 2])
    with pytest.raises(InputError, match=r"not symmetric. Use \(G \+ G.T\) / 2"):
        matrix_graph(np.triu(np.ones((2, 2))), [1, 1])
    for imaginary in (1j * np.eye(2), scipy.sparse.csr_array(1j * np.eye(2))):
        with pytest.raises(InputError, match="matrix must hold real numbers"):
            matrix_graph(imaginary, [1, 1])
    with pytest.raises(InputError, match="n_neighbors of neighbor_graph must be"):
        neighbor_graph([np.ones((3, 1)), np.ones((3, 1))], n_neighbors=0)
    with pytest.raises(InputError, match="only 2 samples of other subjects"):
        neighbor_graph([np.ones((3, 1)), np.ones((2, 1))], n_neighbors=3)
    with pytest.raises(InputError, match=r"features\[1\] has shape \(2, 2\)"):
        neighbor_graph([np.ones((3, 1)), np.ones((2, 2))], n_neighbors=1)


def test_sparse_features_are_refused_with_the_way_out():
    sparse = [scipy.sparse.eye_array(4)] * 2
    with pytest.raises(InputError, match="is sparse: pass it as an array"):
        neighbor_graph(sparse, n_neighbors=1)


def test_rows_of_a_matrix_may_be_tuples():
    rows = ((0.0, 1.0, 0.0), (1.0, 0.0, 2.0), (0.0, 2.0, 0.0))  # not CSR's three parts
    assert_allclose(matrix_graph(rows, [1, 2]).to_sparse().toarray(), rows, rtol=0)


def test_groups_of_one_subject_each_link_any_two_subjects():
    A = np.array([[1.0, 0.0, 0.0], [0.0, 0.0, 1.0], [0.0, 1.0, 0.0]])
    graph = affinity_graph([["a"], ["a"], ["b"], ["c"]], A)
    (term,) = weigh_groups(graph, "none").groups
    assert_allclose(term.affinity, A, rtol=0)
    (term,) = weigh_groups(2 * graph, "none").groups  # weights are kept as they are
    assert_allclose(term.affinity, 2 * A, rtol=0)
    # a link within the last subject is none between two
    graph = affinity_graph([["a"], ["a"], ["b", "c"]], 2 * A)
    (term,) = weigh_groups(graph, "none").groups
    assert_allclose(term.affinity, np.diag([2, 0, 0]), rtol=0)


def term_of(codes, *, names=("a", "b"), size=2):
    return GroupTerm(np.array(codes, int), np.eye(size), names)


def test_what_does_not_fit_in_a_graph_of_a_file_is_told():
    for fine in ([-1, 0, 1], [0, 0], [1, 1], [-1, -1], []):
        assert not list(term_of(fine)._misfits())
    for codes in ([0, 2], [-2, 1], [2, 2]):
        assert "do not exist" in " ".join(term_of(codes)._misfits())
    for wrong in (term_of([0, 1], names=("a", "a")), term_of([0, 1], size=3)):
        assert "names a group twice" in " ".join(wrong._misfits())
    wrong = GroupTerm(np.array([0, 1]), np.diag([1, np.nan]), ("a", "b"))
    assert "not finite" in " ".join(wrong._misfits())

    two, three = term_of([0, 1]), term_of([0, 1, 1])
    square = {n: scipy.sparse.csr_array(np.eye(n)) for n in (2, 3)}
    for lengths, groups, matrix in (
        ((1, 2), (three,), None),
        ((0, 3), (three, three), square[3]),
        ((1, 2), (), square[3]),
        ((), (), None),
    ):
        assert not list(Graph(lengths, groups, matrix)._misfits())
    for lengths, groups, matrix in (
        ((-1, 4), (three,), None),
        ((1, 2), (three, two), None),
        ((1, 2), (three,), square[2]),
        ((1, 2), (), square[2]),
    ):
        assert list(Graph(lengths, groups, matrix)._misfits())
