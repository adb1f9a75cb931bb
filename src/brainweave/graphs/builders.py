r"""Cross-subject graphs: which samples belong together, and which apart.

A :class:`Graph` is a sum of *group terms* :math:`Z A Z^\top`, where :math:`Z` is the
one-hot membership of the samples in groups and :math:`A` a small symmetric affinity of
the groups, and of an optional sparse matrix. Group terms are never expanded: the
degrees and all products that alignment needs follow from the groups. Samples are those
of all subjects, one subject after the other.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np
import scipy.sparse

from brainweave._core.arrays import Matrix
from brainweave._core.exceptions import InputError
from brainweave._core.labels import EncodedLabels, encode_labels
from brainweave._core.validation import check_int, check_list_of_subjects, format_list
from brainweave.graphs.terms import (
    NO_GROUP,
    Graph,
    GroupTerm,
    equal_group_weights,
    weigh_groups,
)

__all__ = [
    "NO_GROUP",
    "Graph",
    "GroupTerm",
    "affinity_graph",
    "equal_group_weights",
    "hyperalignment_graph",
    "label_graph",
    "matrix_graph",
    "neighbor_graph",
    "time_graph",
    "weigh_groups",
]


def label_graph(
    labels: Sequence[Any],
    *,
    same: float = 1.0,
    different: float = -1.0,
    missing: Any = None,
    balance: str = "none",
) -> Graph:
    """Join samples of the same category, separate those of different ones.

    Parameters
    ----------
    labels : sequence of array-like
        One array of category labels per subject.
    same, different : float
        Weight between samples of the same and of different categories.
    missing : object, optional
        A label that means *unlabelled*, besides those that always do (None, NaN, ""
        and "n/a", see :mod:`brainweave._core.labels`). Such samples get no edges.
    balance : {"groups", "subjects", "none"}, default="none"
        How much a group counts; see :func:`brainweave.graphs.builders.weigh_groups`.

    Returns
    -------
    Graph
        One group per category.

    Examples
    --------
    >>> label_graph([["a", "b"], ["b", None]]).to_sparse().toarray()
    array([[ 1., -1., -1.,  0.],
           [-1.,  1.,  1.,  0.],
           [-1.,  1.,  1.,  0.],
           [ 0.,  0.,  0.,  0.]])
    """
    encoded = _encode(labels, missing)
    if len(encoded.names) < 2:
        raise InputError(
            f"A label graph needs at least two categories; got {list(encoded.names)}. "
            "For samples locked in time without categories use graph='time'."
        )
    same_group = np.eye(len(encoded.names), dtype=bool)
    affinity = np.where(same_group, float(same), float(different))
    return _group_graph(encoded, affinity, balance)


def time_graph(
    ids: Sequence[Any], *, missing: Any = None, balance: str = "none"
) -> Graph:
    """Join samples of the same time point or stimulus, with weight 1.

    Parameters
    ----------
    ids : sequence of array-like
        One array of stimulus or time ids per subject.
    missing, balance
        As in :func:`label_graph`.

    Returns
    -------
    Graph
        One group per id.
    """
    encoded = _encode(ids, missing)
    return _group_graph(encoded, np.eye(len(encoded.names)), balance)


def hyperalignment_graph(ids: Sequence[Any], *, missing: Any = None) -> Graph:
    r"""Return the graph whose GDM objective is that of hyperalignment.

    It has 1/M between aligned samples, M being the number of subjects. For samples
    locked in time, :math:`\sum_i \lVert Y_i - S \rVert^2 = \mathrm{tr}\,
    Y (I - G) Y^\top`.

    Parameters
    ----------
    ids : sequence of array-like
        One array of stimulus or time ids per subject.
    missing
        As in :func:`label_graph`.

    Returns
    -------
    Graph
        :func:`time_graph`, divided by the number of subjects.
    """
    graph = time_graph(ids, missing=missing)
    return (1 / len(graph.lengths)) * graph


def affinity_graph(
    groups: Sequence[Any], affinity: Any, *, missing: Any = None, balance: str = "none"
) -> Graph:
    """Weigh samples by an affinity of their groups.

    Parameters
    ----------
    groups : sequence of array-like
        One array of group labels per subject.
    affinity : array-like or DataFrame of shape (n_groups, n_groups)
        Symmetric weights between groups, such as a semantic similarity of stimuli or a
        representational similarity matrix. A DataFrame is matched by its index; an
        array is in the sorted order of the group labels.
    missing, balance
        As in :func:`label_graph`.

    Returns
    -------
    Graph
        One group per label, with these weights.
    """
    encoded = _encode(groups, missing)
    names = list(encoded.names)
    if hasattr(affinity, "loc"):
        absent = [name for name in names if name not in affinity.index]
        if absent or set(affinity.index) != set(affinity.columns):
            raise InputError(
                f"The affinity table lacks rows or columns for {absent or 'groups'}."
            )
        affinity = affinity.loc[names, names]
    matrix = np.array(affinity, dtype=np.float64)
    if matrix.shape != (len(names), len(names)):
        raise InputError(
            f"The affinity has shape {matrix.shape}; there are {len(names)} groups "
            f"({format_list(map(str, names), 5)})."
        )
    return _group_graph(encoded, matrix, balance)


def neighbor_graph(
    features: Sequence[Any], *, n_neighbors: int = 10, metric: str = "euclidean"
) -> Graph:
    """Join each sample with its nearest neighbours among other subjects' samples.

    Parameters
    ----------
    features : sequence of array-like of shape (n_samples_i, n_features)
        What describes the samples: stimulus features, ratings, model embeddings.
    n_neighbors : int, default=10
        How many samples of other subjects each sample is joined with.
    metric : str, default="euclidean"
        Any metric of :class:`sklearn.neighbors.NearestNeighbors`.

    Returns
    -------
    Graph
        A sparse matrix: 1 where either sample is among the nearest of the other.
    """
    from sklearn.neighbors import NearestNeighbors

    given = check_list_of_subjects(features, owner="neighbor_graph")
    arrays = [_as_floats(f, f"features[{i}]") for i, f in enumerate(given)]
    for i, array in enumerate(arrays):
        if array.ndim != 2 or array.shape[1] != arrays[0].shape[-1]:
            raise InputError(
                f"features[{i}] has shape {array.shape}; all subjects need the same "
                f"features, (n_samples, {arrays[0].shape[-1]})."
            )
        if not np.isfinite(array).all():
            raise InputError(f"features[{i}] has NaN or infinite values.")
    lengths = tuple(len(a) for a in arrays)
    check_int("n_neighbors", n_neighbors, minimum=1, owner="neighbor_graph")
    fewest = sum(lengths) - max(lengths)
    if n_neighbors > fewest:
        raise InputError(
            f"n_neighbors is {n_neighbors}, but one subject has only {fewest} samples "
            "of other subjects to be joined with."
        )
    stacked, where = np.concatenate(arrays), np.repeat(np.arange(len(arrays)), lengths)
    rows, columns = [], []
    for i in range(len(arrays)):
        others = np.flatnonzero(where != i)
        search = NearestNeighbors(n_neighbors=n_neighbors, metric=metric)
        found = search.fit(stacked[others]).kneighbors(arrays[i], return_distance=False)
        columns.append(others[found.ravel()])
        rows.append(np.repeat(np.flatnonzero(where == i), n_neighbors))
    edges = (np.concatenate(rows), np.concatenate(columns))
    directed = scipy.sparse.csr_array(
        (np.ones(edges[0].size), edges), (where.size, where.size)
    )
    return Graph(lengths, matrix=scipy.sparse.csr_array(directed.maximum(directed.T)))


def matrix_graph(matrix: Any, lengths: Sequence[int]) -> Graph:
    """Take any symmetric matrix, dense or sparse, as the graph.

    Parameters
    ----------
    matrix : array-like or sparse matrix of shape (n_samples, n_samples)
        Weights between all samples of all subjects, in subject order.
    lengths : sequence of int
        Number of samples of each subject.

    Returns
    -------
    Graph
        With this matrix.
    """
    if scipy.sparse.issparse(matrix):
        matrix = scipy.sparse.csr_array(matrix)
        _as_floats(matrix.data, "The graph matrix")
    else:  # never as it is: a tuple of three rows would be taken for indices
        matrix = _as_floats(matrix, "The graph matrix")
    sparse = scipy.sparse.csr_array(matrix, dtype=np.float64)
    sizes = tuple(int(n) for n in lengths)
    if sparse.shape != (sum(sizes), sum(sizes)):
        raise InputError(
            f"The graph matrix has shape {sparse.shape}; the subjects have "
            f"{' + '.join(map(str, sizes))} = {sum(sizes)} samples."
        )
    if not np.isfinite(sparse.data).all():
        raise InputError("The graph matrix has NaN or infinite weights.")
    largest = np.abs(sparse.data).max(initial=0.0)
    if np.abs((sparse - sparse.T).data).max(initial=0.0) > 1e-10 * largest:
        raise InputError(
            "The graph matrix is not symmetric. Use (G + G.T) / 2 if its direction "
            "does not matter."
        )
    return Graph(sizes, matrix=sparse)


def _as_floats(values: Any, name: str) -> Matrix:
    """Return values as an array of floats; refuse what is no plain table of numbers."""
    if scipy.sparse.issparse(values):
        raise InputError(f"{name} is sparse: pass it as an array, .toarray().")
    array = np.asarray(values)
    if array.dtype.kind not in "fiub":
        raise InputError(f"{name} must hold real numbers, got dtype {array.dtype}.")
    return array.astype(np.float64)


def _encode(labels: Sequence[Any], missing: Any) -> EncodedLabels:
    lists = check_list_of_subjects(labels, owner="A graph", minimum=1)
    return encode_labels(lists, missing=missing)


def _group_graph(encoded: EncodedLabels, affinity: Matrix, balance: str) -> Graph:
    """Return the graph of one group term; balance "none" keeps lonely groups too."""
    if not np.isfinite(affinity).all():
        raise InputError("The affinity between groups has NaN or infinite weights.")
    largest = np.abs(affinity).max(initial=0.0)
    if np.abs(affinity - affinity.T).max(initial=0.0) > 1e-10 * largest:
        raise InputError("The affinity between groups is not symmetric.")
    affinity = (affinity + affinity.T) / 2
    term = GroupTerm(np.concatenate(encoded.codes), affinity, encoded.names)
    graph = Graph(tuple(map(len, encoded.codes)), (term,))
    return graph if balance == "none" else weigh_groups(graph, balance)
