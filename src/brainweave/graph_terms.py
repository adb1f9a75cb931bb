r"""What a graph over the samples of all subjects is: terms of groups, and a matrix.

A *group term* is :math:`Z A Z^\top`, where :math:`Z` is the one-hot membership of the
samples in groups and :math:`A` a small symmetric affinity of the groups. It is never
expanded: the degrees and all products that alignment needs follow from the groups.
"""

from collections.abc import Hashable
from dataclasses import dataclass, field

import numpy as np
import scipy.sparse
import scipy.sparse.csgraph
from numpy.typing import NDArray

from brainweave.exceptions import InputError
from brainweave.labels import NO_LABEL, Codes

Matrix = NDArray[np.float64]

NO_GROUP = NO_LABEL  # the code of a sample without a group: it gets no edges


@dataclass(frozen=True)
class GroupTerm:
    """``Z A Z^T``: group codes of all samples, and the affinity of the groups."""

    codes: Codes
    affinity: Matrix
    names: tuple[Hashable, ...]

    @property
    def counts(self) -> Matrix:
        """Number of samples in each group."""
        known = self.codes[self.codes != NO_GROUP]
        return np.bincount(known, minlength=len(self.names)).astype(np.float64)

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


@dataclass(frozen=True)
class Graph:
    """A weighted, symmetric graph over the samples of all subjects.

    Build one with the functions of :mod:`brainweave.graphs`. Graphs over the same
    samples can be added, and multiplied by numbers.

    Examples
    --------
    >>> from brainweave.graphs import label_graph, time_graph
    >>> labels = label_graph([["cat", "dog"], ["dog", "cat", "cat"]])
    >>> graph = 0.5 * labels + time_graph([[0, 1], [0, 1, 2]])
    >>> graph.n_samples, graph.lengths
    (5, (2, 3))
    >>> graph.degrees()
    array([2.5, 1.5, 1.5, 2.5, 1.5])
    """

    lengths: tuple[int, ...]
    groups: tuple[GroupTerm, ...] = ()
    matrix: scipy.sparse.csr_array | None = field(default=None, compare=False)

    @property
    def n_samples(self) -> int:
        """Number of samples of all subjects."""
        return sum(self.lengths)

    def slices(self) -> list[slice]:
        """Return the rows of each subject."""
        ends = np.cumsum(self.lengths)
        return [
            slice(int(e - n), int(e)) for e, n in zip(ends, self.lengths, strict=True)
        ]

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
        """Count the connected parts and say to which each sample belongs.

        Samples are linked through their groups, so group terms are not expanded.
        """
        size = self.n_samples
        rows, columns, offset = [], [], size
        for term in self.groups:
            a, b = np.nonzero(term.affinity)
            known = np.flatnonzero(np.isin(term.codes, a))
            # members without an edge among themselves are linked through other groups
            rows += [known, offset + a]
            columns += [offset + term.codes[known], offset + b]
            offset += len(term.names)
        if self.matrix is not None:
            coo = self.matrix.tocoo()
            rows.append(coo.row)
            columns.append(coo.col)
        i = np.concatenate([*rows, np.empty(0, int)]).astype(int)
        j = np.concatenate([*columns, np.empty(0, int)]).astype(int)
        linked = scipy.sparse.coo_array((np.ones(i.size), (i, j)), (offset, offset))
        _, labels = scipy.sparse.csgraph.connected_components(linked, directed=False)
        _, of_samples = np.unique(labels[:size], return_inverse=True)
        return int(of_samples.max()) + 1, of_samples

    def subject_groups(self) -> list[list[int]]:
        """List the groups of subjects that no edge, direct or indirect, joins."""
        n_subjects = len(self.lengths)
        n_parts, part = self.connected_components()
        where = np.repeat(np.arange(n_subjects), self.lengths)
        size = n_subjects + n_parts
        linked = scipy.sparse.coo_array(
            (np.ones(where.size), (where, n_subjects + part)), (size, size)
        )
        _, group = scipy.sparse.csgraph.connected_components(linked, directed=False)
        found: dict[int, list[int]] = {}
        for i in range(n_subjects):
            found.setdefault(int(group[i]), []).append(i)
        return list(found.values())

    def lonely_subjects(self) -> list[int]:
        """List the subjects none of whose samples has an edge to another subject."""
        n_subjects = len(self.lengths)
        linked = np.zeros(n_subjects, dtype=bool)
        where = np.repeat(np.arange(n_subjects), self.lengths)
        for term in self.groups:
            present = np.zeros((n_subjects, len(term.names)), dtype=bool)
            known = term.codes != NO_GROUP
            present[where[known], term.codes[known]] = True
            reached = present.astype(float) @ (term.affinity != 0)
            others = present.sum(axis=0) - present > 0
            linked |= (reached * others).any(axis=1)
        if self.matrix is not None:
            coo = self.matrix.tocoo()
            across = (where[coo.row] != where[coo.col]) & (coo.data != 0)
            linked[where[coo.row[across]]] = True
        return [int(i) for i in np.flatnonzero(~linked)]

    def __add__(self, other: "Graph") -> "Graph":
        if not isinstance(other, Graph):
            return NotImplemented
        if self.lengths != other.lengths:
            raise InputError(
                f"Graphs over different samples cannot be added: {list(self.lengths)} "
                f"and {list(other.lengths)} samples per subject."
            )
        matrices = [g.matrix for g in (self, other) if g.matrix is not None]
        matrix = None
        if matrices:
            matrix = scipy.sparse.csr_array(sum(matrices[1:], start=matrices[0]))
        return Graph(self.lengths, self.groups + other.groups, matrix)

    def __mul__(self, weight: float) -> "Graph":
        weight = float(weight)
        if not np.isfinite(weight):
            raise InputError(
                f"A graph can be multiplied by a finite number; got {weight}."
            )
        groups = tuple(
            GroupTerm(t.codes, weight * t.affinity, t.names) for t in self.groups
        )
        matrix = None if self.matrix is None else weight * self.matrix
        return Graph(self.lengths, groups, matrix)

    __rmul__ = __mul__
