r"""Cross-subject graphs: which samples belong together, and which apart.

A :class:`Graph` is a sum of *group terms* :math:`Z A Z^\top`, where :math:`Z` is the
one-hot membership of the samples in groups and :math:`A` a small symmetric affinity of
the groups, and of an optional sparse matrix. The affinity of many stimuli is written by
their features, :math:`A = F B F^\top`. Group terms are never expanded: the
degrees and all products that alignment needs follow from the groups. Samples are those
of all subjects, one subject after the other.
"""

from collections.abc import Hashable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, ClassVar

import numpy as np
import scipy.sparse
import scipy.sparse.csgraph
from numpy.typing import NDArray

from brainweave._core.arrays import Codes, Matrix
from brainweave._core.exceptions import InputError
from brainweave._core.labels import NO_LABEL, EncodedLabels, encode_labels
from brainweave._core.stored import Stored
from brainweave._core.validation import (
    check_fraction,
    check_int,
    check_list_of_subjects,
    check_option,
    format_list,
)

NO_GROUP = NO_LABEL  # the code of a sample without a group: it gets no edges
FLOOR = 0.1  # of the largest variance of features, that all count as having at least
BALANCES = ("groups", "subjects", "none")


@dataclass(frozen=True)
class GroupTerm(Stored):
    """``Z A Z^T``: group codes of all samples, and the affinity of the groups.

    With ``features`` F of the groups, the affinity B is that of the features, and
    ``A = F B F^T``; their ``mean`` was taken off.
    """

    _stored: ClassVar[dict[str, Any]] = {
        "codes": "n of int",
        "affinity": "g g",
        "names": tuple,
        "features?": "m g",
        "mean?": "g",
    }

    codes: Codes
    affinity: Matrix
    names: tuple[Hashable, ...]
    features: Matrix | None = None
    mean: Matrix | None = None

    @property
    def counts(self) -> Matrix:
        """Number of samples in each group."""
        known = self.codes[self.codes != NO_GROUP]
        return np.bincount(known, minlength=len(self.names)).astype(np.float64)

    @property
    def within_groups(self) -> bool:
        """Whether samples of different groups have no weight between them."""
        own = self.affinity.diagonal()
        diagonal = np.count_nonzero(self.affinity) == np.count_nonzero(own)
        return bool(self.features is None and diagonal)

    @property
    def rank(self) -> int:
        """The rank of the affinity, at most."""
        return len(self.affinity)

    @property
    def is_positive(self) -> bool:
        """Whether it is known, without much work, to be positive semi-definite."""
        if self.features is None:
            return self.within_groups and bool((self.affinity.diagonal() >= 0).all())
        values = np.linalg.eigvalsh(self.affinity)
        return bool(values[0] >= -1e-12 * abs(values[-1]))

    def weigh(self, x: Matrix) -> Matrix:
        """Multiply values of the groups by their affinity."""
        if self.features is None:
            return np.asarray(self.affinity @ x)
        return np.asarray(self.features @ (self.affinity @ (self.features.T @ x)))

    def degrees(self) -> Matrix:
        """Sum of the edges of every sample; it depends on the group alone."""
        per_group = np.append(self.weigh(self.counts), 0.0)  # the last: no group
        return np.asarray(per_group[self.codes])

    def loadings(self, rows: slice = slice(None)) -> Any:
        """Return L, (samples, size of the affinity B), with ``L B L^T`` the weights."""
        Z = self.membership(rows)
        return Z if self.features is None else Z @ self.features

    def of_samples(self, codes: Codes) -> "GroupTerm":
        """Return the term of other samples, with those of its groups that they have."""
        kept = np.unique(codes[codes != NO_GROUP])
        place = np.full(len(self.names) + 1, NO_GROUP)  # the last: no group
        place[kept] = np.arange(kept.size)
        own = replace(
            self, codes=place[codes], names=tuple(np.array(self.names, object)[kept])
        )
        if self.features is not None:
            return replace(own, features=self.features[kept])
        return replace(own, affinity=self.affinity[np.ix_(kept, kept)])

    def membership(self, rows: slice = slice(None)) -> scipy.sparse.csr_array:
        """Return the one-hot membership of some samples, (samples, groups)."""
        codes = self.codes[rows]
        known = np.flatnonzero(codes != NO_GROUP)
        return scipy.sparse.csr_array(
            (np.ones(known.size), (known, codes[known])),
            shape=(codes.size, len(self.names)),
        )

    def links(self) -> tuple[Any, Codes, Codes]:
        """Return L, and the pairs of its columns with a weight between samples."""
        L = scipy.sparse.csc_array(self.loadings())
        used = np.diff(L.indptr) > 0
        a, b = np.nonzero(self.affinity)
        both = used[a] & used[b]
        return L, a[both], b[both]

    def _misfits(self) -> Iterator[str]:
        n, codes = len(self.names), self.codes
        size = len(self.affinity if self.features is None else self.features)
        if len(set(self.names)) != n or size != n:
            yield "names a group twice, or other groups than it has"
        if not np.isfinite(self.affinity).all():
            yield "has an affinity that is not finite"
        if codes.size and not NO_GROUP <= codes.min() <= codes.max() < n:
            yield "has groups that do not exist"


@dataclass(frozen=True)
class Graph(Stored):
    """A weighted, symmetric graph over the samples of all subjects.

    Graphs over the same samples can be added, and multiplied by numbers.

    Examples
    --------
    >>> labels = label_graph([["cat", "dog"], ["dog", "cat", "cat"]])
    >>> graph = 0.5 * labels + time_graph([[0, 1], [0, 1, 2]])
    >>> graph.n_samples, graph.lengths
    (5, (2, 3))
    >>> graph.degrees()
    array([2.5, 1.5, 1.5, 2.5, 1.5])
    """

    _stored: ClassVar[dict[str, Any]] = {
        "lengths": (int,),
        "groups": (GroupTerm,),
        "matrix?": "n n of sparse",
    }

    lengths: tuple[int, ...]
    groups: tuple[GroupTerm, ...] = ()
    matrix: scipy.sparse.csr_array | None = field(default=None, compare=False)

    @property
    def n_samples(self) -> int:
        """Number of samples of all subjects."""
        return sum(self.lengths)

    def _misfits(self) -> Iterator[str]:
        n = self.n_samples
        sizes = [term.codes.size for term in self.groups]
        sizes += [] if self.matrix is None else [self.matrix.shape[0]]
        if min(self.lengths, default=0) < 0 or any(size != n for size in sizes):
            yield f"does not have the same {n} samples everywhere"

    def slices(self) -> list[slice]:
        """Return the rows of each subject."""
        ends = np.cumsum(self.lengths).tolist()
        return [slice(e - n, e) for e, n in zip(ends, self.lengths, strict=True)]

    def degrees(self) -> Matrix:
        """Return the sum of the edges of each sample."""
        total = np.zeros(self.n_samples)
        for term in self.groups:
            total += term.degrees()
        if self.matrix is not None:
            total += np.asarray(self.matrix.sum(axis=1)).ravel()
        return total

    def to_sparse(self) -> scipy.sparse.csr_array:
        """Expand to a sparse (n_samples, n_samples) matrix."""
        size = self.n_samples
        total = scipy.sparse.csr_array((size, size), dtype=np.float64)
        for term in self.groups:
            L = scipy.sparse.csr_array(term.loadings())
            total = total + L @ scipy.sparse.csr_array(term.affinity) @ L.T
        if self.matrix is not None:
            total = total + self.matrix
        return scipy.sparse.csr_array(total)

    def connected_components(self) -> tuple[int, NDArray[np.intp]]:
        """Return the number of connected parts, and the part of each sample."""
        # samples are linked through their groups, so group terms are not expanded
        offset = size = self.n_samples
        rows, columns = [np.empty(0, int)], [np.empty(0, int)]
        for term in self.groups:
            L, a, b = term.links()
            sample, group = L[:, np.unique(a)].nonzero()
            # members without an edge among themselves are linked through other groups
            rows += [sample, offset + a]
            columns += [offset + np.unique(a)[group], offset + b]
            offset += L.shape[1]
        if self.matrix is not None:
            i, j = self.matrix.nonzero()
            rows.append(i)
            columns.append(j)
        part = _connected(np.concatenate(rows), np.concatenate(columns), offset)
        _, of_samples = np.unique(part[:size], return_inverse=True)
        return int(of_samples.max()) + 1, of_samples

    @cached_property
    def subject_groups(self) -> list[list[int]]:
        """The groups of subjects that no edge, direct or indirect, joins."""
        n_subjects = len(self.lengths)
        n_parts, part = self.connected_components()
        where = np.repeat(np.arange(n_subjects), self.lengths)
        group = _connected(where, n_subjects + part, n_subjects + n_parts)[:n_subjects]
        return [np.flatnonzero(group == g).tolist() for g in dict.fromkeys(group)]

    def __add__(self, other: "Graph") -> "Graph":
        if not isinstance(other, Graph):
            return NotImplemented
        if self.lengths != other.lengths:
            raise InputError(
                f"Graphs over different samples cannot be added: {list(self.lengths)} "
                f"and {list(other.lengths)} samples per subject."
            )
        matrices = [g.matrix for g in (self, other) if g.matrix is not None]
        matrix = scipy.sparse.csr_array(sum(matrices)) if matrices else None
        return Graph(self.lengths, self.groups + other.groups, matrix)

    def __mul__(self, weight: float) -> "Graph":
        weight = float(weight)
        if not np.isfinite(weight):
            raise InputError(
                f"A graph can be multiplied by a finite number; got {weight}."
            )
        groups = tuple(replace(t, affinity=weight * t.affinity) for t in self.groups)
        matrix = None if self.matrix is None else weight * self.matrix
        return Graph(self.lengths, groups, matrix)

    __rmul__ = __mul__


def _connected(i: Any, j: Any, size: int) -> NDArray[np.intp]:
    """Return the connected part of each of `size` nodes, which edges i-j join."""
    linked = scipy.sparse.coo_array((np.ones(len(i)), (i, j)), (size, size))
    return scipy.sparse.csgraph.connected_components(linked, directed=False)[1]


# -- how much groups count -------------------------------------------------------------


def weigh_groups(graph: Graph, balance: str | list[str]) -> Graph:
    """Return the graph with its group terms weighed and lonely groups left out.

    `balance` is that of :func:`label_graph`, or one per term. Time ids count by how
    many subjects saw them: dividing by the size of the group would let few subjects
    agree among themselves at the expense of the whole. If all saw all, it is the same.

    >>> graph = label_graph([["a", "a", "a", "b"], ["a", "b", "c", "c"]], different=0)
    >>> weigh_groups(graph, "groups").groups[0].affinity.diagonal()
    array([0.25, 0.5 , 0.  ])
    """
    n_subjects = len(graph.lengths)
    each = [balance] * len(graph.groups) if isinstance(balance, str) else balance
    where = np.repeat(np.arange(n_subjects), graph.lengths)
    terms = []
    for term, how in zip(graph.groups, each, strict=True):
        check_option("balance", how, BALANCES, owner="the graph")
        if term.features is not None:
            terms.append(term)
            continue
        linked = _without_lonely_groups(term, where)
        affinity = linked.affinity
        if how == "groups":
            size = np.sqrt(np.maximum(linked.counts, 1))
            affinity = affinity / size / size[:, None]
        elif how == "subjects":
            affinity = affinity / n_subjects
        terms.append(replace(linked, affinity=affinity))
    return Graph(graph.lengths, tuple(terms), graph.matrix)


def equal_group_weights(graph: Graph) -> Graph:
    """Return the graph with all groups of a term counting alike, as on average before.

    The target of a sample is then the mean over all samples of its group.
    """
    terms = []
    for term in graph.groups:
        if not term.within_groups:
            terms.append(term)
            continue
        own, sizes = term.affinity.diagonal(), term.counts
        used = (own != 0) & (sizes > 0)
        alike = own.copy()
        if used.any():
            mean = np.average(own[used] * sizes[used], weights=sizes[used])
            alike[used] = mean / sizes[used]
        if not np.allclose(alike, own, rtol=1e-12, atol=0):
            term = replace(term, affinity=np.diag(alike))
        terms.append(term)
    return Graph(graph.lengths, tuple(terms), graph.matrix)


def _without_lonely_groups(term: GroupTerm, where: NDArray[np.intp]) -> GroupTerm:
    """Remove the groups that are, with all their neighbours, of one subject.

    `where` is each sample's subject.
    """
    known = term.codes != NO_GROUP
    present = np.zeros((int(where.max()) + 1, len(term.names)), dtype=bool)
    present[where[known], term.codes[known]] = True
    several = present.sum(axis=0) > 1
    owner = present.argmax(axis=0)  # of a group that is one subject's
    _, a, b = term.links()
    links = several[a] | several[b] | (owner[a] != owner[b])
    kept = np.zeros(len(term.names), dtype=bool)
    kept[a[links]] = True
    if kept.all():
        return term
    affinity = np.where(np.outer(kept, kept), term.affinity, 0.0)
    codes = np.where(known & kept[term.codes], term.codes, NO_GROUP)
    return GroupTerm(codes, affinity, term.names)


# -- how graphs are made ---------------------------------------------------------------


def label_graph(
    labels: Sequence[Any],
    *,
    same: float = 1.0,
    different: float = -1.0,
    balance: str = "none",
) -> Graph:
    """Connect samples of the same category and separate those of others.

    Parameters
    ----------
    labels : sequence of array-like
        One array of category labels per subject. Samples without a label (None, NaN,
        "" or "n/a") get no edges.
    same, different : float
        Weight between samples of the same and of different categories.
    balance : {"groups", "subjects", "none"}, default="none"
        How much a group counts: "groups", all alike, by dividing weights by the roots
        of the group sizes; "subjects", for time ids, divided by the number of subjects.
        Both leave out groups that join no two subjects.

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
    encoded = _encode(labels)
    if len(encoded.names) < 2:
        raise InputError(
            f"A label graph needs at least two categories; got {list(encoded.names)}. "
            "For samples locked in time without categories use graph='time'."
        )
    same_group = np.eye(len(encoded.names), dtype=bool)
    affinity = np.where(same_group, float(same), float(different))
    return _group_graph(encoded, affinity, balance)


def time_graph(ids: Sequence[Any], *, balance: str = "none") -> Graph:
    """Connect samples of the same time point or stimulus with weight 1.

    Parameters
    ----------
    ids : sequence of array-like
        One array of stimulus or time ids per subject.
    balance : {"groups", "subjects", "none"}, default="none"
        How much a group counts, as in :func:`label_graph`.

    Returns
    -------
    Graph
        One group per id.

    Examples
    --------
    >>> graph = time_graph([["scene 1", "scene 2"], ["scene 2", "scene 3"]])
    >>> graph.to_sparse().toarray()[:2, 2:]  # between the two subjects
    array([[0., 0.],
           [1., 0.]])
    """
    encoded = _encode(ids)
    return _group_graph(encoded, np.eye(len(encoded.names)), balance)


def affinity_graph(
    groups: Sequence[Any], affinity: Any, *, balance: str = "none"
) -> Graph:
    """Connect samples with weights given by an affinity of their groups.

    Parameters
    ----------
    groups : sequence of array-like
        One array of group labels per subject.
    affinity : array-like or DataFrame of shape (n_groups, n_groups)
        Symmetric weights between groups, such as a semantic similarity of stimuli or a
        representational similarity matrix. A DataFrame is matched by its index; an
        array is in the sorted order of the group labels.
    balance : {"groups", "subjects", "none"}, default="none"
        How much a group counts, as in :func:`label_graph`.

    Returns
    -------
    Graph
        One group per label, with these weights.

    Examples
    --------
    >>> similarity = [[1.0, 0.5, -1.0], [0.5, 1.0, -1.0], [-1.0, -1.0, 1.0]]
    >>> graph = affinity_graph([["cat", "dog"], ["house", "cat"]], similarity)
    >>> graph.to_sparse().toarray()[:2, 2:]  # between the two subjects
    array([[-1. ,  1. ],
           [-1. ,  0.5]])
    """
    encoded = _encode(groups)
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


def feature_graph(features: Sequence[Any], *, whiten: bool | float = True) -> Graph:
    r"""Connect samples by the similarity of features of their stimuli.

    The weight of two samples is the inner product of their features, each less its mean
    over all samples: of rank d for d features, for any number of stimuli. It aligns
    subjects who saw different films by features such as embeddings or ratings.

    Parameters
    ----------
    features : sequence of array-like of shape (n_samples_i, n_features)
        One table per subject, a row per sample. Rows of NaN: no edges. Samples with the
        same features count as the same stimulus. Convolve the features of moments with
        a haemodynamic response first, such as ``glover_hrf`` of nilearn.
    whiten : bool or float, default=True
        Whether features are made uncorrelated and of equal variance, as far as they
        reach this share of the largest variance (True: 0.1), so that no direction
        counts more because the features name it often. False: inner products as they
        are.

    Returns
    -------
    Graph
        To be added to others, such as ``feature_graph(F) + time_graph(ids)``.

    Notes
    -----
    Time and memory are O(n d^2) and O(n d) for n samples. :class:`GDM` then chooses its
    ridge by predicting the features of held-out runs or blocks.

    Examples
    --------
    Two people who saw different stimuli, described by the same three features:

    >>> from brainweave import GDM
    >>> rng = np.random.default_rng(0)
    >>> F = [rng.normal(size=(40, 3)), rng.normal(size=(50, 3))]
    >>> X = [f @ rng.normal(size=(3, 30)) + rng.normal(size=(len(f), 30)) for f in F]
    >>> shared = GDM(3, graph=feature_graph).fit_transform(X, F)
    >>> weights = [np.linalg.lstsq(f - f.mean(0), s)[0] for f, s in zip(F, shared)]
    >>> bool(np.corrcoef(weights[0].ravel(), weights[1].ravel())[0, 1] > 0.95)
    True
    """
    arrays = feature_tables(features, "feature_graph")
    stacked = np.concatenate(arrays)
    known = np.isfinite(stacked).all(axis=1)
    if not known.any():
        raise InputError("No sample has features; all rows of features have NaN.")
    mean = stacked[known].mean(axis=0)
    centred = stacked[known] - mean
    unique, where = np.unique(centred, axis=0, return_inverse=True)
    codes = np.full(len(stacked), NO_GROUP)
    codes[known] = where.ravel()
    affinity = np.eye(stacked.shape[1])
    if whiten is not False:
        least = FLOOR if whiten is True else whiten
        least = check_fraction("whiten", least, owner="a graph")
        values, vectors = np.linalg.eigh(centred.T @ centred / len(centred))
        if not values[-1] > 0:
            raise InputError("The features are the same for all samples.")
        affinity = (vectors / np.maximum(values, least * values[-1])) @ vectors.T
    names = tuple(range(len(unique)))
    term = GroupTerm(codes, affinity, names, unique, mean)
    return Graph(tuple(map(len, arrays)), (term,))


def neighbor_graph(features: Sequence[Any], *, n_neighbors: int = 10) -> Graph:
    """Connect each sample with its nearest neighbours among other subjects' samples.

    Parameters
    ----------
    features : sequence of array-like of shape (n_samples_i, n_features)
        What describes the samples: stimulus features, ratings, model embeddings.
    n_neighbors : int, default=10
        Number of samples of other subjects that each sample is connected with, the
        nearest by Euclidean distance.

    Returns
    -------
    Graph
        A sparse matrix: 1 where either sample is among the nearest of the other.

    Examples
    --------
    >>> ratings = [[[1.0], [5.0]], [[4.8], [1.1], [9.0]]]
    >>> graph = neighbor_graph(ratings, n_neighbors=1)
    >>> graph.to_sparse().toarray()[:2, 2:].astype(int)  # between the two subjects
    array([[0, 1, 0],
           [1, 0, 1]])
    """
    from sklearn.neighbors import NearestNeighbors

    arrays = feature_tables(features, "neighbor_graph")
    for i, array in enumerate(arrays):
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
    nearest = []
    for i, own in enumerate(arrays):
        others = np.flatnonzero(where != i)
        search = NearestNeighbors(n_neighbors=n_neighbors)
        found = search.fit(stacked[others]).kneighbors(own, return_distance=False)
        nearest.append(others[found.ravel()])
    rows = np.repeat(np.arange(where.size), n_neighbors)
    edges = (np.ones(rows.size), (rows, np.concatenate(nearest)))
    directed = scipy.sparse.csr_array(edges, (where.size, where.size))
    return Graph(lengths, matrix=scipy.sparse.csr_array(directed.maximum(directed.T)))


def matrix_graph(matrix: Any, lengths: Sequence[int]) -> Graph:
    """Use a symmetric matrix, dense or sparse, as the graph.

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

    Examples
    --------
    >>> graph = matrix_graph([[0, 0, 1], [0, 0, -1], [1, -1, 0]], lengths=[2, 1])
    >>> graph.lengths
    (2, 1)
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
    _check_symmetric(sparse, "The graph matrix")
    return Graph(sizes, matrix=sparse)


def feature_tables(features: Sequence[Any], owner: str) -> list[Matrix]:
    """Return one table of numbers per subject, of the same features."""
    given = check_list_of_subjects(features, owner=owner, minimum=1)
    arrays = [_as_floats(f, f"features[{i}]") for i, f in enumerate(given)]
    for i, array in enumerate(arrays):
        if array.ndim != 2 or array.shape[1] != arrays[0].shape[-1]:
            raise InputError(
                f"features[{i}] has shape {array.shape}; all subjects need the same "
                f"features, (n_samples, {arrays[0].shape[-1]})."
            )
    return arrays


def _as_floats(values: Any, name: str) -> Matrix:
    """Return values as an array of floats; refuse what is no plain table of numbers."""
    if scipy.sparse.issparse(values):
        raise InputError(f"{name} is sparse: pass it as an array, .toarray().")
    array = np.asarray(values)
    if array.dtype.kind not in "fiub":
        raise InputError(f"{name} must hold real numbers, got dtype {array.dtype}.")
    return array.astype(np.float64)


def _check_symmetric(matrix: Any, name: str) -> None:
    if not np.isfinite(matrix.data).all():
        raise InputError(f"{name} has NaN or infinite weights.")
    largest = np.abs(matrix.data).max(initial=0.0)
    if np.abs((matrix - matrix.T).data).max(initial=0.0) > 1e-10 * largest:
        raise InputError(
            f"{name} is not symmetric. Use (G + G.T) / 2 if its direction does not "
            "matter."
        )


def _encode(labels: Sequence[Any]) -> EncodedLabels:
    return encode_labels(check_list_of_subjects(labels, owner="A graph", minimum=1))


def _group_graph(encoded: EncodedLabels, affinity: Matrix, balance: str) -> Graph:
    """Return the graph of one group term; balance "none" keeps lonely groups too."""
    _check_symmetric(scipy.sparse.csr_array(affinity), "The affinity between groups")
    affinity = (affinity + affinity.T) / 2
    term = GroupTerm(np.concatenate(encoded.codes), affinity, encoded.names)
    graph = Graph(tuple(map(len, encoded.codes)), (term,))
    return graph if balance == "none" else weigh_groups(graph, balance)
