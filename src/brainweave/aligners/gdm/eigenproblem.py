r"""The smallest eigenpairs of :math:`V_*^\top (D - G) V_*`, by the cheapest route.

docs/theory.md says which that is; an answer of the iterative route that cannot be
confirmed is replaced by a dense one.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import scipy.linalg

from brainweave._core.arrays import Matrix
from brainweave._core.exceptions import InputError
from brainweave._core.workers import map_subjects
from brainweave.basis.linalg import (
    signed_factor,
    smallest_eigenpairs,
    smallest_of_constant_minus_low_rank,
    smallest_of_diagonal_minus_low_rank,
    smallest_of_operator,
)
from brainweave.graphs.builders import Graph, GroupTerm

ROUTES = ("auto", "closed", "dense", "iterative")
DENSE_SIZE = 1000  # up to here the dense route costs less than a tenth of a second
MATRIX_DENSE_SIZE = 6000  # a matrix of weights has no structure to exploit before this


@dataclass(frozen=True)
class Solution:
    """Components of a fit to a graph, the best first."""

    eigenvalues: Matrix  # (K + 1,): one more than asked for, where there are so many
    gains: Matrix  # (K + 1,): what each gains from the edges between samples
    scale: float  # size of the numbers, which rounding goes with
    maps: list[Matrix]
    features: list[Matrix]  # of the aligning samples of each subject
    template: Matrix  # (n_samples, K): times edges, what a new subject is fitted to
    route: str
    shared: Matrix | None = None  # (n_places, K): the shared map, with places

    def n_informative(self, k: int) -> int:
        """Count the first k components that gain from the edges."""
        return int((self.gains[:k] > 1e-9 * self.scale).sum())

    def is_unique(self, k: int) -> bool:
        """Whether there is a gap after component k (Proposition 3)."""
        if self.gains.size <= k:
            return True
        return bool(self.gains[k - 1] - self.gains[k] > 1e-9 * self.scale)

    def first(self, k: int) -> "Solution":
        """Return the first k components; what lies behind them stays known."""
        return replace(
            self,
            eigenvalues=self.eigenvalues[:k],
            maps=[m[:, :k] for m in self.maps],
            features=[f[:, :k] for f in self.features],
            template=self.template[:, :k],
            shared=None if self.shared is None else self.shared[:, :k],
        )


def subject_overlap(covariances: list[Matrix], lengths: Sequence[int]) -> float:
    """Return how far the subjects share their features, from 0 to 1 (docs/gdm.md)."""
    # in coordinates in which the covariances of all subjects add up to the identity
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
    """Find the k + 1 smallest eigenpairs E_i of M, given the orthonormal bases V_i."""
    problem = Problem(bases, graph, graph.degrees(), n_jobs)
    chosen = _choose(problem) if route == "auto" else route
    k = min(k + 1, problem.size)
    values, vectors, floor = getattr(problem, chosen)(k)
    maps = problem.split(vectors)
    features = [V @ E for V, E in zip(bases, maps, strict=True)]
    return Solution(
        eigenvalues=values,
        gains=floor - values,
        scale=max(np.abs(problem.degrees).max(), np.abs(values).max(), 1e-300),
        maps=maps,
        features=features,
        template=np.concatenate(features),
        route=chosen,
    )


def _choose(problem: "Problem") -> str:
    if problem.graph.matrix is not None:
        return "dense" if problem.size <= MATRIX_DENSE_SIZE else "iterative"
    if problem.equal_degrees and problem.rank < problem.size:
        return "closed"
    small = problem.size <= DENSE_SIZE and 8 * problem.rank > problem.size
    return "dense" if small or problem.rank > problem.size // 2 else "iterative"


class Problem:
    """The parts of M, each computed when a route needs it.

    A route returns eigenvalues, eigenvectors, and the smallest eigenvalue of the degree
    part alone, V^T D V: a component at or above it gains nothing from the edges.
    """

    def __init__(
        self,
        bases: list[Matrix],
        graph: Graph,
        degrees: Matrix,
        n_jobs: int | None = None,
    ) -> None:
        self.bases, self.graph, self.n_jobs = bases, graph, n_jobs
        self.degrees, self.rows = degrees, graph.slices()
        self.ends = np.cumsum([V.shape[1] for V in bases])
        self.size = int(self.ends[-1])
        self.rank = sum(term.rank for term in graph.groups)
        spread, largest = np.ptp(degrees), np.abs(degrees).max()
        self.equal_degrees = spread <= 1e-12 * max(largest, 1e-300)

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
        pairs = map_subjects(
            lambda i: np.linalg.eigh(self._diagonal_block(i)),
            subjects,
            n_jobs=self.n_jobs,
            threads_only=True,
        )
        floor = float(min(values[0] for values, _ in pairs))
        if self.graph.matrix is not None:
            return *smallest_of_operator(self.apply, self.size, k), floor
        U, signs = self._low_rank()
        parts = zip(pairs, self.split(U), strict=True)
        rotated = np.concatenate([Q.T @ part for (_, Q), part in parts])
        mu = np.concatenate([values for values, _ in pairs])
        values, vectors = smallest_of_diagonal_minus_low_rank(mu, rotated, signs, k)
        back = zip(pairs, self.split(vectors), strict=True)
        return values, np.concatenate([Q @ part for (_, Q), part in back]), floor

    def dense(self, k: int) -> tuple[Matrix, Matrix, float]:
        """Form M and hand it to LAPACK."""
        blocks = [self._diagonal_block(i) for i in range(len(self.bases))]
        floor = min(float(np.linalg.eigvalsh(block)[0]) for block in blocks)
        M = scipy.linalg.block_diag(*blocks)
        for term in self.graph.groups:
            B = self._group_rows(term)
            M -= B @ term.affinity @ B.T
        if self.graph.matrix is not None:
            for rows, V, end in zip(self.rows, self.bases, self.ends, strict=True):
                column = self.graph.matrix[:, rows] @ V
                M[:, end - V.shape[1] : end] -= self._down(column)
        return *smallest_eigenpairs((M + M.T) / 2, k), floor

    def split(self, stacked: Matrix) -> list[Matrix]:
        """Return the rows of each subject's dimensions."""
        return np.split(stacked, self.ends[:-1])

    def _diagonal_block(self, i: int) -> Matrix:
        V = self.bases[i]
        return np.asarray(V.T @ (self.degrees[self.rows[i], None] * V))

    def _group_rows(self, term: GroupTerm) -> Matrix:
        """Return B = V_*^T L, (S, C), L being the samples' loadings on the groups."""
        pairs = zip(self.rows, self.bases, strict=True)
        return np.concatenate(
            [np.asarray(term.loadings(rows).T @ V).T for rows, V in pairs]
        )

    def _low_rank(self) -> tuple[Matrix, Matrix]:
        """Write V_*^T G V_* of the group terms as U diag(signs) U^T."""
        factors, signs = [], []
        for term in self.graph.groups:
            F, s = signed_factor(term.affinity)
            factors.append(self._group_rows(term) @ F)
            signs.append(s)
        return np.hstack(factors), np.concatenate(signs)

    def _down(self, y: Matrix) -> Matrix:
        """Return V_*^T y."""
        pairs = zip(self.bases, self.rows, strict=True)
        return np.concatenate([V.T @ y[rows] for V, rows in pairs])

    def up(self, x: Matrix) -> Matrix:
        """Return V_* x."""
        parts = zip(self.bases, self.split(x), strict=True)
        return np.concatenate([V @ part for V, part in parts])

    def apply(self, x: Matrix) -> Matrix:
        """Multiply by M through the samples, with the graph as it is."""
        y = self.up(x.reshape(self.size, -1))
        out = self.degrees[:, None] * y - apply_graph(self.graph, y)
        return self._down(out).reshape(x.shape)


def apply_graph(graph: Graph, y: Matrix) -> Matrix:
    """Multiply by G without expanding its group terms."""
    out = np.zeros_like(y) if graph.matrix is None else np.asarray(graph.matrix @ y)
    for term in graph.groups:
        Z = term.membership()
        out += Z @ term.weigh(Z.T @ y)
    return out
