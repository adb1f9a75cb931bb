r"""The smallest eigenpairs of :math:`V_*^\top (D - G) V_*`, by the cheapest route.

======== ===================================== ==============================
route    when                                  cost beside the bases
======== ===================================== ==============================
closed   groups, all degrees equal             O(S C^2), no iteration
iterative groups, unequal degrees              O(sum L_i^3 + S C^2 + steps S C)
dense    small S, or any matrix of weights     O(S^3)
======== ===================================== ==============================

S is the sum of the subjects' dimensions L_i and C the number of groups. All routes give
the same eigenvalues and, wherever the spectrum has a gap, the same space; an answer of
the iterative route that cannot be confirmed is replaced by a dense one.
"""

import logging
from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from brainweave._arrays import blas_threads, map_subjects
from brainweave.exceptions import InputError
from brainweave.graphs import Graph, GroupTerm
from brainweave.linalg import (
    signed_factor,
    smallest_eigenpairs,
    smallest_of_constant_minus_low_rank,
    smallest_of_diagonal_minus_low_rank,
    smallest_of_operator,
)

logger = logging.getLogger(__name__)

Matrix = NDArray[np.float64]

ROUTES = ("auto", "closed", "dense", "iterative")
DENSE_SIZE = 1000  # up to here the dense route costs less than a tenth of a second
SMALL_PRODUCT = 1_000_000  # numbers in U below which one thread is fastest
MATRIX_DENSE_SIZE = 6000  # a matrix of weights has no structure to exploit before this


@dataclass(frozen=True)
class Solution:
    """Eigenpairs of M and what they say about uniqueness.

    ``floor`` is the smallest eigenvalue of the degree part alone, V^T D V: a component
    at or above it gains nothing from the edges between samples.
    """

    eigenvalues: Matrix  # K + 1 of them where there are so many
    blocks: list[Matrix]  # E_i, (L_i, K + 1)
    floor: float
    scale: float
    route: str

    def n_informative(self, k: int) -> int:
        """Count the first k components that lie below the floor."""
        return int((self.eigenvalues[:k] < self.floor - 1e-9 * self.scale).sum())

    def is_unique(self, k: int) -> bool:
        """Whether there is a gap after component k (Proposition 3)."""
        if self.eigenvalues.size <= k:
            return True
        gap = self.eigenvalues[k] - self.eigenvalues[k - 1]
        return bool(gap > 1e-9 * self.scale)


def subject_overlap(blocks: list[Matrix], lengths: Sequence[int]) -> float:
    """Return how far the subjects share their features, from 0 to 1.

    The covariances of the features over the samples of each subject, C_i = E_i^T E_i,
    add up to the identity. They are proportional where all subjects use all features
    alike (1) and orthogonal where every feature belongs to one subject (0), as it must
    be when there are as many features as the subjects have dimensions together.
    """
    return overlap_of_covariances([E.T @ E for E in blocks], lengths)


def overlap_of_covariances(covariances: list[Matrix], lengths: Sequence[int]) -> float:
    """Return the overlap from the subjects' covariances of the features.

    Where they do not add up to the identity, the features are taken in coordinates in
    which they do.
    """
    total = np.sum(covariances, axis=0)
    values, vectors = np.linalg.eigh((total + total.T) / 2)
    kept = values > 1e-12 * max(float(values[-1]), 1e-300)
    root = vectors[:, kept] / np.sqrt(values[kept])
    k = int(kept.sum())
    alone = sum(float(((root.T @ C @ root) ** 2).sum()) for C in covariances)
    shares = np.asarray(lengths) / np.sum(lengths)
    return float(min(1.0, (k - alone) / (k * (1 - (shares**2).sum()))))


def solve(
    bases: list[Matrix],
    graph: Graph,
    k: int,
    *,
    route: str = "auto",
    n_jobs: int | None = None,
) -> Solution:
    """Find the k + 1 smallest eigenpairs of M.

    Parameters
    ----------
    bases : list of ndarray of shape (n_samples_i, L_i)
        Orthonormal bases V_i of the subjects.
    graph : Graph
        Over the samples of all subjects.
    k : int
        Number of components wanted.
    route : {"auto", "closed", "dense", "iterative"}
        Forced by tests; "auto" picks the cheapest that applies.
    n_jobs : int, optional
        Subjects worked on at the same time.
    """
    problem = _Problem(bases, graph, n_jobs)
    chosen = _choose(problem) if route == "auto" else route
    logger.debug(
        "%s route for %d components of %d dimensions of %d subjects",
        chosen,
        k,
        problem.size,
        len(bases),
    )
    k = min(k + 1, problem.size)
    if chosen == "dense":
        values, vectors, floor = problem.dense(k)
    else:
        way = problem.closed if chosen == "closed" else problem.iterative
        with blas_threads(1) if problem.is_small else nullcontext():
            values, vectors, floor = way(k)
    blocks = np.split(vectors, np.cumsum(problem.dims)[:-1])
    scale = max(np.abs(problem.degrees).max(), np.abs(values).max(), 1e-300)
    return Solution(values, blocks, floor, scale, chosen)


def _choose(problem: "_Problem") -> str:
    if problem.graph.matrix is not None:
        return "dense" if problem.size <= MATRIX_DENSE_SIZE else "iterative"
    if problem.equal_degrees and problem.rank < problem.size:
        return "closed"
    small = problem.size <= DENSE_SIZE and 8 * problem.rank > problem.size
    return "dense" if small or problem.rank > problem.size // 2 else "iterative"


class _Problem:
    """The parts of M, each computed when a route needs it."""

    def __init__(self, bases: list[Matrix], graph: Graph, n_jobs: int | None) -> None:
        self.bases = bases
        self.graph = graph
        self.n_jobs = n_jobs
        self.rows = graph.slices()
        self.dims = [V.shape[1] for V in bases]
        self.size = sum(self.dims)
        self.degrees = graph.degrees()
        spread = np.ptp(self.degrees)
        self.equal_degrees = spread <= 1e-12 * max(np.abs(self.degrees).max(), 1e-300)

    @property
    def rank(self) -> int:
        """Number of groups of all terms."""
        return sum(len(term.names) for term in self.graph.groups)

    @property
    def is_small(self) -> bool:
        """Whether products are too small to gain from a second thread."""
        return self.size * max(self.rank, 1) < SMALL_PRODUCT

    def closed(self, k: int) -> tuple[Matrix, Matrix, float]:
        """Solve for ``d I - U U^T`` with one thin decomposition."""
        if self.graph.matrix is not None or not self.equal_degrees:
            raise InputError(
                "solver='closed' needs a graph of groups in which all samples have the "
                "same degree; use 'auto', 'dense' or 'iterative'."
            )
        U, signs = self._low_rank()
        floor = float(self.degrees[0])
        return *smallest_of_constant_minus_low_rank(floor, U, signs, k), floor

    def iterative(self, k: int) -> tuple[Matrix, Matrix, float]:
        """Never form M: blocks and low rank, or products with the sparse graph."""
        subjects = range(len(self.bases))
        pairs = map_subjects(self._diagonal_eigenpairs, subjects, n_jobs=self.n_jobs)
        floor = float(min(values[0] for values, _ in pairs))
        if self.graph.matrix is not None:
            values, vectors = smallest_of_operator(self._apply, self.size, k)
            return values, vectors, floor
        U, signs = self._low_rank()
        parts = np.split(U, np.cumsum(self.dims)[:-1])
        rotated = [Q.T @ part for (_, Q), part in zip(pairs, parts, strict=True)]
        mu = np.concatenate([values for values, _ in pairs])
        values, vectors = smallest_of_diagonal_minus_low_rank(
            mu, np.concatenate(rotated), signs, k
        )
        back = np.split(vectors, np.cumsum(self.dims)[:-1])
        rotated = [Q @ part for (_, Q), part in zip(pairs, back, strict=True)]
        return values, np.concatenate(rotated), floor

    def dense(self, k: int) -> tuple[Matrix, Matrix, float]:
        """Form M and hand it to LAPACK."""
        M = np.zeros((self.size, self.size))
        ends = np.cumsum(self.dims)
        floor = np.inf
        for i, (end, dim) in enumerate(zip(ends, self.dims, strict=True)):
            block = self._diagonal_block(i)
            M[end - dim : end, end - dim : end] = block
            floor = min(floor, float(np.linalg.eigvalsh(block)[0]))
        for term in self.graph.groups:
            B = self._group_rows(term)
            M -= B @ term.affinity @ B.T
        if self.graph.matrix is not None:
            for j, (rows, V) in enumerate(zip(self.rows, self.bases, strict=True)):
                column = self.graph.matrix[:, rows] @ V
                M[:, ends[j] - self.dims[j] : ends[j]] -= self._down(column)
        return *smallest_eigenpairs((M + M.T) / 2, k), floor

    def _diagonal_block(self, i: int) -> Matrix:
        V = self.bases[i]
        return np.asarray(V.T @ (self.degrees[self.rows[i], None] * V))

    def _diagonal_eigenpairs(self, i: int) -> tuple[Matrix, Matrix]:
        values, vectors = np.linalg.eigh(self._diagonal_block(i))
        return values, vectors

    def _group_rows(self, term: GroupTerm) -> Matrix:
        """Return B = V_*^T Z, (S, C)."""
        return np.concatenate(
            [
                np.asarray(term.membership(rows).T @ V).T
                for rows, V in zip(self.rows, self.bases, strict=True)
            ]
        )

    def _low_rank(self) -> tuple[Matrix, Matrix]:
        """Write V_*^T G V_* of the group terms as U diag(signs) U^T."""
        factors, signs = [], []
        for term in self.graph.groups:
            F, s = signed_factor(term.affinity)
            factors.append(self._group_rows(term) @ F)
            signs.append(s)
        return np.hstack(factors), np.concatenate(signs)

    def _up(self, x: Matrix) -> Matrix:
        parts = np.split(x, np.cumsum(self.dims)[:-1])
        return np.concatenate([V @ p for V, p in zip(self.bases, parts, strict=True)])

    def _down(self, y: Matrix) -> Matrix:
        return np.concatenate(
            [V.T @ y[rows] for V, rows in zip(self.bases, self.rows, strict=True)]
        )

    def _apply(self, x: Matrix) -> Matrix:
        """Multiply by M through the samples, with the graph as it is."""
        y = self._up(x.reshape(self.size, -1))
        out = self.degrees[:, None] * y - apply_graph(self.graph, y)
        return self._down(out).reshape(x.shape)


def apply_graph(graph: Graph, y: Matrix) -> Matrix:
    """Multiply by G without expanding its group terms."""
    out = np.zeros_like(y) if graph.matrix is None else np.asarray(graph.matrix @ y)
    for term in graph.groups:
        Z = term.membership()
        out += Z @ (term.affinity @ (Z.T @ y))
    return out
