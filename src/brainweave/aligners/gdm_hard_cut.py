"""The paper's GDM: every subject cut at an energy, the maps by one eigenproblem."""

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from brainweave.aligners.graph_solver import solve, subject_overlap
from brainweave.aligners.new_subject import Descent, descend
from brainweave.basis import SubjectBasis
from brainweave.exceptions import InputError
from brainweave.graphs import Graph
from brainweave.linalg import flip_signs

Matrix = NDArray[np.float64]


@dataclass(frozen=True)
class Found:
    """The first K components of a fit, ready to be kept.

    Attributes
    ----------
    maps : list of ndarray
        Per subject, coefficients of its coordinates or a mixing of its samples.
    eigenvalues : ndarray of shape (K,)
        The best first.
    n_informative : int
        How many components gain from the edges.
    is_unique : bool
        Whether there is a gap behind the last.
    route : str
        How it was solved.
    template : ndarray of shape (n_samples, K)
        What the edges of a new subject are multiplied with.
    overlap : float
        How far subjects share the features.
    dimensions : int
        Those that the subjects have together.
    """

    maps: list[Matrix]
    eigenvalues: Matrix
    n_informative: int
    is_unique: bool
    route: str
    template: Matrix
    overlap: float
    dimensions: int


class HardCut:
    """The eigenproblem of the paper.

    Parameters
    ----------
    bases : list of SubjectBasis
        Cut at their energies.
    graph : Graph
        Over all samples.
    route : str
        Which solver.
    n_jobs : int, optional
        Subjects worked on at the same time.
    """

    def __init__(
        self,
        bases: list[SubjectBasis],
        graph: Graph,
        *,
        route: str,
        n_jobs: int | None,
    ) -> None:
        self.bases, self.graph, self.route, self.n_jobs = bases, graph, route, n_jobs
        self.vectors = [b.vectors for b in bases]

    def most(self) -> int:
        """Return the number of components that there can be."""
        return sum(b.n_kept for b in self.bases)

    def refusal(self, k: int) -> str:
        """Say why k components are too many."""
        kept = " + ".join(str(b.n_kept) for b in self.bases[:6])
        more = " + ..." if len(self.bases) > 6 else ""
        return (
            f"n_components={k} is more than the {self.most()} dimensions that the "
            f"subjects keep together ({kept}{more}). Use fewer components or more "
            "energy."
        )

    def solve(self, k: int) -> int:
        """Find k components; return how many of them gain from the edges."""
        self.solution = solve(
            self.vectors, self.graph, k, route=self.route, n_jobs=self.n_jobs
        )
        return self.solution.n_informative(k)

    def features(self, k: int) -> list[Matrix]:
        """Return the first k features of the aligning samples."""
        scale = np.sqrt(self.graph.n_samples)
        pairs = zip(self.vectors, self.solution.blocks, strict=True)
        return [scale * (V @ E[:, :k]) for V, E in pairs]

    def found(self, k: int) -> Found:
        """Return the first k components, of unit variance, their signs fixed."""
        solution, graph = self.solution, self.graph
        blocks = [block[:, :k] for block in solution.blocks]
        pairs = zip(self.vectors, blocks, strict=True)
        shared = np.concatenate([V @ E for V, E in pairs])
        scale = np.sqrt(graph.n_samples) * flip_signs(shared)
        return Found(
            maps=[
                E * scale / np.sqrt(b.values)[:, None]
                for b, E in zip(self.bases, blocks, strict=True)
            ],
            eigenvalues=solution.eigenvalues[:k].copy(),
            n_informative=solution.n_informative(k),
            is_unique=solution.is_unique(k),
            route=solution.route,
            template=shared * scale,
            overlap=subject_overlap(blocks, graph.lengths),
            dimensions=self.most(),
        )


def join_by_descent(
    basis: SubjectBasis,
    inside: Any,
    towards: Matrix,
    *,
    n_aligning: int,
    max_iter: int = 1000,
) -> tuple[Descent, Matrix]:
    """Return the map of a new subject: the paper's objective over it alone.

    Parameters
    ----------
    basis : SubjectBasis
        Of the new subject.
    inside : matrix of shape (n_samples, n_samples)
        D - G among the new samples.
    towards : ndarray of shape (n_samples, K)
        The edges to the aligning samples, times their features.
    n_aligning : int
        Number of these.
    max_iter : int, default=1000
        Most steps of the descent.
    """
    V, n, k = basis.vectors, basis.n_samples, towards.shape[1]
    if basis.n_kept < k:
        raise InputError(
            f"{basis.name} keeps {basis.n_kept} dimensions, fewer than the {k} shared "
            "features. Give more samples or a higher energy."
        )
    # the paper's scaling: features of unit variance over sqrt(number of samples)
    total = n_aligning + n
    N = V.T @ (inside @ V) * (n / total)
    F = V.T @ towards * (np.sqrt(n) / total)
    size = np.linalg.norm(towards, 2) * (np.sqrt(n) / total)
    descent = descend(N, F, size=float(size), max_iter=max_iter)
    return descent, descent.Q * np.sqrt(n / basis.values[:, None])
