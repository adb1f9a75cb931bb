r"""Features of unit covariance in every subject: for studies that overlap in part.

The constraint of the closed form is one for all subjects together, so where half the
subjects saw other stimuli than the rest a component may live in one half and vanish in
the other. Asking it of each subject forbids that. With all others fixed the best map of
subject i is :math:`Y_i^\top = S_i B_i (B_i^\top S_i B_i)^{-1/2}`, with
:math:`B_i = \sum_{j \ne i} G_{ij} Y_j^\top`: K right-hand sides of a factor that exists
already. One subject after the other, no step lowers the objective.

Few rounds are better than many: the closed form ties subjects who share little, and the
optimum drifts from that towards what each group of them shares (docs/gdm.md).
"""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from brainweave._arrays import Matrix
from brainweave.aligners.gdm_graph import Solution
from brainweave.aligners.graph_solver import apply_graph
from brainweave.aligners.smoother import Smoother
from brainweave.graphs import Graph

ROUNDS = 5  # chosen on simulated studies that docs/gdm.md does not report


def solve_per_subject(
    smoothers: Sequence[Smoother],
    graph: Graph,
    start: Solution,
    *,
    max_iter: int = ROUNDS,
    tol: float = 1e-6,
    regress: bool = True,
) -> Solution:
    """Ascend from the closed form, one subject after the other.

    Edges within a subject play no part. The groups of the graph should count alike
    (``weigh_groups(..., "groups")``), also time ids: the target of a sample is then the
    mean over who saw it. The features of ``start`` are whitened first; for time ids it
    is that of a graph in which an id counts by how many saw it (``"subjects"``).

    The maps are the ridge regressions on the template at the end, and the eigenvalues
    the mean squares of the features; with ``regress=False``, the maps that fulfil the
    constraint, and their gains per pair of subjects.
    """
    maps = [_whiten(s, m) for s, m in zip(smoothers, start.maps, strict=True)]
    Y = [s.features(m) for s, m in zip(smoothers, maps, strict=True)]
    links = _Links(graph, Y)
    history = [links.objective()]
    for _ in range(max_iter):
        for i, smoother in enumerate(smoothers):
            maps[i] = best_map(smoother, links.from_others(i))
            links.replace(i, smoother.features(maps[i]))
        history.append(links.objective())
        if history[-1] - history[-2] <= tol * abs(history[-1]):
            break
    if regress:
        targets = apply_graph(graph, np.concatenate(Y))
        maps = [
            s.coefficients(targets[rows])
            for s, rows in zip(smoothers, links.rows, strict=True)
        ]
        final = [s.features(m) for s, m in zip(smoothers, maps, strict=True)]
        agreement = [y.T @ y / graph.n_samples for y in final]
    else:
        final, pairs = Y, len(Y) * (len(Y) - 1)
        agreement = [y.T @ links.from_others(i) / pairs for i, y in enumerate(Y)]
    # any common rotation has the same objective: take the axes of agreement
    total = np.sum(agreement, axis=0)
    values, axes = np.linalg.eigh((total + total.T) / 2)
    axes = axes[:, ::-1]
    return replace(
        start,
        eigenvalues=np.maximum(values[::-1], 0),
        maps=[m @ axes for m in maps],
        features=[y @ axes for y in final],
        template=np.concatenate(Y) @ axes,
        route=f"{start.route}, subject",
        history=history,
    )


def best_map(smoother: Smoother, target: Matrix) -> Matrix:
    """Return the mixing that agrees best with a target under the constraint.

    It is the ridge regression on the target, whitened. Directions that the target does
    not have stay zero, which loses nothing of the objective.
    """
    mixing = smoother.coefficients(target)
    centred = target - target.mean(axis=0)
    return np.asarray(mixing @ _inverse_root(centred.T @ smoother.features(mixing)))


def _whiten(smoother: Smoother, mixing: Matrix) -> Matrix:
    """Scale a mixing so that ``W^T (Phi Phi^T + g) W = I``, nearest to what it is."""
    Y = smoother.features(mixing)
    return np.asarray(
        mixing @ _inverse_root(Y.T @ Y + smoother.strength * (mixing.T @ Y))
    )


def _inverse_root(matrix: Matrix) -> Matrix:
    values, vectors = np.linalg.eigh((matrix + matrix.T) / 2)
    kept = values > 1e-12 * max(float(values[-1]), 1e-300)
    scaled = np.where(kept, 1 / np.sqrt(np.where(kept, values, 1)), 0)
    return np.asarray((vectors * scaled) @ vectors.T)


class _Links:
    """Features, and products of the graph with those of others, by sums of groups."""

    def __init__(self, graph: Graph, Y: list[Matrix]) -> None:
        self.graph, self.rows, self.Y = graph, graph.slices(), Y
        self.members: list[list[Any]] = [
            [term.membership(rows) for term in graph.groups] for rows in self.rows
        ]
        pairs = zip(self.members, Y, strict=True)
        self.own = [[Z.T @ y for Z in Zs] for Zs, y in pairs]
        self.sums = [sum(parts) for parts in zip(*self.own, strict=True)]

    def replace(self, i: int, new: Matrix) -> None:
        self.Y[i] = new
        for t, Z in enumerate(self.members[i]):
            own = Z.T @ new
            self.sums[t] = self.sums[t] + own - self.own[i][t]
            self.own[i][t] = own

    def from_others(self, i: int) -> Matrix:
        """Return sum over j != i of G_ij Y_j."""
        out = np.zeros_like(self.Y[i])
        for t, term in enumerate(self.graph.groups):
            others = self.sums[t] - self.own[i][t]
            out += self.members[i][t] @ (term.affinity @ others)
        if self.graph.matrix is not None:
            rows = self.graph.matrix[self.rows[i]]
            total = rows @ np.concatenate(self.Y)
            out += np.asarray(total - rows[:, self.rows[i]] @ self.Y[i])
        return out

    def objective(self) -> float:
        return float(sum((y * self.from_others(i)).sum() for i, y in enumerate(self.Y)))
