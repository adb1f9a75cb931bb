r"""Features of unit covariance in every subject: for studies that overlap in part.

The constraint of the closed form is one for all subjects together, so where half the
subjects saw other stimuli than the rest a component may live in one half and vanish in
the other. Asking it of each subject,

.. math:: \max \sum_{i \ne j} \mathrm{tr}(Y_i G_{ij} Y_j^\top) \quad\text{s.t.}\quad
          W_i^\top (\Phi_i \Phi_i^\top + g_i I) W_i = I \text{ for every } i,

forbids that. In whitened coordinates (:math:`S_i = R_i R_i^\top`,
:math:`Y_i^\top = R_i Q_i`) the maps are orthonormal :math:`Q_i`, and with all other
subjects fixed the objective is linear in :math:`Q_i`: the best one is the polar factor
of :math:`R_i^\top B_i`, :math:`B_i = \sum_{j \ne i} G_{ij} Y_j^\top`. It needs no root:

.. math:: Y_i^\top = S_i B_i (B_i^\top S_i B_i)^{-1/2} .

One subject after the other, no step lowers the objective. A step costs K right-hand
sides of a factor that exists already.

Few rounds are better than many. The objective does not ask that subjects who share
little agree, so where two groups of subjects share one part of three its optimum drifts
towards what each group shares within itself; the closed form ties them, and a few
rounds from there keep the tie (docs/gdm.md has the numbers). The maps that leave are
the ridge regressions on the template which the whitened features make, as a new
subject's is: features that a subject predicts badly come out small.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from brainweave.aligners.graph_solver import apply_graph
from brainweave.aligners.shrinkage import ShrinkageSolution, Smoother
from brainweave.exceptions import InputError
from brainweave.graphs import Graph

Matrix = NDArray[np.float64]

ROUNDS = 5  # chosen on simulated studies that docs/gdm.md does not report


@dataclass(frozen=True)
class SubjectSolution(ShrinkageSolution):
    """Maps under the constraint of each subject.

    ``mu`` are the mean squares of the features (with ``regress=False``: their gains per
    pair of subjects), ``scores`` the template, and ``history`` the objective after each
    round, the start first.
    """

    history: list[float]


def solve_per_subject(
    smoothers: Sequence[Smoother],
    graph: Graph,
    start: ShrinkageSolution,
    *,
    max_iter: int = ROUNDS,
    tol: float = 1e-6,
    regress: bool = True,
) -> SubjectSolution:
    """Ascend from the closed form, one subject after the other.

    Parameters
    ----------
    smoothers : sequence of Smoother
        One per subject.
    graph : Graph
        Over the samples of all subjects; edges within a subject play no part in the
        ascent. Its groups should count alike (``weigh_groups(..., "groups")``), also
        time ids: the target of a sample is then the mean over who saw it.
    start : ShrinkageSolution
        The closed form, whose features are whitened first. For time ids, that of a
        graph in which an id counts by how many saw it (``"subjects"``).
    max_iter : int, default=5
        Most rounds over the subjects.
    tol : float, default=1e-6
        Stop when a round gains less than this share of the objective.
    regress : bool, default=True
        Whether the maps are the ridge regressions on the template at the end, or those
        that fulfil the constraint.
    """
    if len(smoothers) < 2:
        raise InputError("The constraint of each subject needs at least two subjects.")
    links = _Links(graph)
    maps = [_whiten(s, m) for s, m in zip(smoothers, start.mixing, strict=True)]
    Y = [s.features(m) for s, m in zip(smoothers, maps, strict=True)]
    links.start(Y)
    history = [_objective(links, Y)]
    for _ in range(max_iter):
        for i, smoother in enumerate(smoothers):
            maps[i] = best_map(smoother, links.from_others(i, Y))
            links.replace(i, Y, smoother.features(maps[i]))
        history.append(_objective(links, Y))
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
        agreement = [y.T @ links.from_others(i, Y) / pairs for i, y in enumerate(Y)]
    # any common rotation has the same objective: take the axes of agreement
    total = np.sum(agreement, axis=0)
    values, axes = np.linalg.eigh((total + total.T) / 2)
    axes = axes[:, ::-1]
    stacked = np.concatenate(Y) @ axes
    scores = [
        np.asarray(t.affinity @ (t.membership().T @ stacked)) for t in graph.groups
    ]
    return SubjectSolution(
        np.maximum(values[::-1], 0),
        [m @ axes for m in maps],
        scores,
        [y @ axes for y in final],
        stacked,
        "subject",
        history,
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
    """Products with the graph between subjects, kept up to date by sums of groups."""

    def __init__(self, graph: Graph) -> None:
        self.graph, self.rows = graph, graph.slices()
        self.members: list[list[Any]] = [
            [term.membership(rows) for term in graph.groups] for rows in self.rows
        ]

    def start(self, Y: list[Matrix]) -> None:
        self.own = [
            [Z.T @ y for Z in Zs] for Zs, y in zip(self.members, Y, strict=True)
        ]
        self.sums = [sum(parts) for parts in zip(*self.own, strict=True)]

    def replace(self, i: int, Y: list[Matrix], new: Matrix) -> None:
        Y[i] = new
        for t, Z in enumerate(self.members[i]):
            own = Z.T @ new
            self.sums[t] = self.sums[t] + own - self.own[i][t]
            self.own[i][t] = own

    def from_others(self, i: int, Y: list[Matrix]) -> Matrix:
        """Return sum over j != i of G_ij Y_j."""
        out = np.zeros_like(Y[i])
        for t, (term, Z) in enumerate(
            zip(self.graph.groups, self.members[i], strict=True)
        ):
            out += Z @ (term.affinity @ (self.sums[t] - self.own[i][t]))
        if self.graph.matrix is not None:
            rows = self.graph.matrix[self.rows[i]]
            total = rows @ np.concatenate(Y)
            out += np.asarray(total - rows[:, self.rows[i]] @ Y[i])
        return out


def _objective(links: _Links, Y: list[Matrix]) -> float:
    return float(sum((Y[i] * links.from_others(i, Y)).sum() for i in range(len(Y))))
