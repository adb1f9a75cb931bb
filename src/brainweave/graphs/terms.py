"""What a graph over the samples of all subjects is, and how much its groups count.

See ``brainweave.graphs``, which makes graphs.
"""

from collections.abc import Hashable, Iterator
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar

import numpy as np
import scipy.sparse
import scipy.sparse.csgraph
from numpy.typing import NDArray

from brainweave._core.arrays import Codes, Matrix
from brainweave._core.exceptions import InputError
from brainweave._core.labels import NO_LABEL
from brainweave._core.stored import Stored
from brainweave._core.validation import check_option

NO_GROUP = NO_LABEL  # the code of a sample without a group: it gets no edges
BALANCES = ("groups", "subjects", "none")


@dataclass(frozen=True)
class GroupTerm(Stored):
    """``Z A Z^T``: group codes of all samples, and the affinity of the groups."""

    _stored: ClassVar[dict[str, Any]] = {
        "codes": "n of int",
        "affinity": "g g",
        "names": tuple,
    }

    codes: Codes
    affinity: Matrix
    names: tuple[Hashable, ...]

    @property
    def counts(self) -> Matrix:
        """Number of samples in each group."""
        known = self.codes[self.codes != NO_GROUP]
        return np.bincount(known, minlength=len(self.names)).astype(np.float64)

    @property
    def within_groups(self) -> bool:
        """Whether samples of different groups have no weight between them."""
        own = self.affinity.diagonal()
        return bool(np.count_nonzero(self.affinity) == np.count_nonzero(own))

    def degrees(self) -> Matrix:
        """Sum of the edges of every sample; it depends on the group alone."""
        per_group = np.append(self.affinity @ self.counts, 0.0)  # the last: no group
        return np.asarray(per_group[self.codes])

    def membership(self, rows: slice = slice(None)) -> scipy.sparse.csr_array:
        """Return the one-hot membership of some samples, (samples, groups)."""
        codes = self.codes[rows]
        known = np.flatnonzero(codes != NO_GROUP)
        return scipy.sparse.csr_array(
            (np.ones(known.size), (known, codes[known])),
            shape=(codes.size, len(self.names)),
        )

    def linked_groups(self) -> tuple[Codes, Codes]:
        """Return the pairs of groups with samples that have a weight between them."""
        inhabited = self.counts > 0
        a, b = np.nonzero(self.affinity)
        both = inhabited[a] & inhabited[b]
        return a[both], b[both]

    def _misfits(self) -> Iterator[str]:
        n, codes = len(self.names), self.codes
        if len(set(self.names)) != n or len(self.affinity) != n:
            yield "names a group twice, or other groups than it has"
        if not np.isfinite(self.affinity).all():
            yield "has an affinity that is not finite"
        if codes.size and not NO_GROUP <= codes.min() <= codes.max() < n:
            yield "has groups that do not exist"


@dataclass(frozen=True)
class Graph(Stored):
    """A weighted, symmetric graph over the samples of all subjects.

    Build one with the functions of ``brainweave.graphs``. Graphs over the same
    samples can be added, and multiplied by numbers.

    Examples
    --------
    >>> from brainweave.graphs.builders import label_graph, time_graph
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
            Z = term.membership()
            total = total + Z @ scipy.sparse.csr_array(term.affinity) @ Z.T
        if self.matrix is not None:
            total = total + self.matrix
        return scipy.sparse.csr_array(total)

    def connected_components(self) -> tuple[int, NDArray[np.intp]]:
        """Return the number of connected parts, and the part of each sample.

        Samples are linked through their groups, so group terms are not expanded.
        """
        size = self.n_samples
        offset = size
        rows, columns = [np.empty(0, int)], [np.empty(0, int)]
        for term in self.groups:
            a, b = term.linked_groups()
            known = np.flatnonzero(np.isin(term.codes, a))
            # members without an edge among themselves are linked through other groups
            rows += [known, offset + a]
            columns += [offset + term.codes[known], offset + b]
            offset += len(term.names)
        if self.matrix is not None:
            i, j = self.matrix.nonzero()
            rows.append(i)
            columns.append(j)
        part = _connected(np.concatenate(rows), np.concatenate(columns), offset)
        _, of_samples = np.unique(part[:size], return_inverse=True)
        return int(of_samples.max()) + 1, of_samples

    def subject_groups(self) -> list[list[int]]:
        """List the groups of subjects that no edge, direct or indirect, joins."""
        n_subjects = len(self.lengths)
        n_parts, part = self.connected_components()
        where = np.repeat(np.arange(n_subjects), self.lengths)
        group = _connected(where, n_subjects + part, n_subjects + n_parts)[:n_subjects]
        return [np.flatnonzero(group == g).tolist() for g in dict.fromkeys(group)]

    def unconnected_subjects(self) -> list[int]:
        """List the subjects none of whose samples has an edge to another subject."""
        return [group[0] for group in self.subject_groups() if len(group) == 1]

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

    Categories count alike (``1 / size``). Time ids count by how many subjects saw them,
    ``1 / number of subjects`` a sample: dividing by the size of the group there would
    let few subjects agree among themselves at the expense of the whole. On a complete
    study the two are the same.

    Parameters
    ----------
    graph : Graph
        Of groups; a matrix of weights stays as it is.
    balance : {"groups", "subjects", "none"}, or one per term
        "groups", for labels: the affinity of two groups is divided by the root of
        their sizes, so that all count alike. "subjects", for time ids: it is divided
        by the number of subjects. "none" leaves it.

    Examples
    --------
    >>> from brainweave.graphs.builders import label_graph
    >>> y = [["a", "a", "a", "b"], ["a", "b", "c", "c"]]
    >>> graph = label_graph(y, different=0)
    >>> weigh_groups(graph, "groups").groups[0].affinity.diagonal()
    array([0.25, 0.5 , 0.  ])
    """
    n_subjects = len(graph.lengths)
    each = [balance] * len(graph.groups) if isinstance(balance, str) else balance
    where = np.repeat(np.arange(n_subjects), graph.lengths)
    terms = []
    for term, how in zip(graph.groups, each, strict=True):
        check_option("balance", how, BALANCES, owner="the graph")
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

    The target of a sample is then the mean over all samples of its group, however many
    there are. Terms with an affinity between groups, and a matrix, stay as they are.
    """
    terms = []
    for term in graph.groups:
        own, sizes = term.affinity.diagonal(), term.counts
        used = (own != 0) & (sizes > 0)
        alike = own.copy()
        if term.within_groups and used.any():
            mean = np.average(own[used] * sizes[used], weights=sizes[used])
            alike[used] = mean / sizes[used]
        if not np.allclose(alike, own, rtol=1e-12, atol=0):
            term = replace(term, affinity=np.diag(alike))
        terms.append(term)
    return Graph(graph.lengths, tuple(terms), graph.matrix)


def _without_lonely_groups(term: GroupTerm, where: NDArray[np.intp]) -> GroupTerm:
    """Remove the weights of groups that link no two subjects.

    These are the groups all of whose samples, and all of whose neighbours in the
    affinity, are of one subject; `where` is each sample's subject.
    """
    known = term.codes != NO_GROUP
    present = np.zeros((int(where.max()) + 1, len(term.names)), dtype=bool)
    present[where[known], term.codes[known]] = True
    several = present.sum(axis=0) > 1
    owner = present.argmax(axis=0)  # of a group that is one subject's
    a, b = term.linked_groups()
    links = several[a] | several[b] | (owner[a] != owner[b])
    kept = np.zeros(len(term.names), dtype=bool)
    kept[a[links]] = True
    if kept.all():
        return term
    affinity = np.where(np.outer(kept, kept), term.affinity, 0.0)
    codes = np.where(known & kept[term.codes], term.codes, NO_GROUP)
    return GroupTerm(codes, affinity, term.names)
