r"""GDM with a ridge in place of the hard cut: in closed form, or subject by subject.

With :math:`S_i = K_i (K_i + g_i I)^{-1}` the ridge smoother of subject i's centred Gram
matrix and a graph of groups :math:`G = U J U^\top`, :math:`J` being signs, all follows
from :math:`P = \sum_i U_i^\top S_i U_i`, of the size of the number of groups
(docs/gdm.md). Three routes: "closed" forms P, for few groups or mixed signs; "operator"
multiplies with it, for many groups; "matrix" is for a matrix of weights, which takes an
eigendecomposition a subject.

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
from typing import Any, cast

import numpy as np
import scipy.sparse

from brainweave._arrays import Matrix, is_torch, to_numpy
from brainweave._workers import map_subjects
from brainweave.aligners.gdm_graph import Solution
from brainweave.aligners.graph_solver import Problem, apply_graph
from brainweave.aligners.smoother import DeviceSmoother, GramSmoother, Smoother
from brainweave.exceptions import InputError
from brainweave.graphs import Graph
from brainweave.linalg import signed_factor, smallest_of_operator

#: More groups than this go to the operator, whose steps do not grow with them.
FEW_GROUPS = 400
MANY_GROUPS = 1200  # still few, where subjects have as many samples and more voxels
FEW_ON_DEVICE = 8192
ROUTES = ("auto", "closed", "operator", "matrix")
ROUNDS = 5  # chosen on simulated studies that docs/gdm.md does not report


def solve_shrinkage(
    smoothers: Sequence[Smoother],
    graph: Graph,
    k: int,
    *,
    route: str = "auto",
    n_jobs: int | None = None,
) -> Solution:
    """Find the k leading components; fewer where fewer gain from the edges.

    No degrees are used. The maps are mixings, ``W_i = Phi_i @ maps[i]``: the features
    of other samples are their centred kernel to the aligning samples, times this.
    """
    problem = _Problem(list(smoothers), graph, n_jobs)
    chosen = _choose(graph, k, problem.few_groups) if route == "auto" else route
    mu, targets = getattr(problem, f"_{chosen}")(k + 1)
    scale = max(float(np.abs(mu).max(initial=0.0)), 1e-300)
    used = min(k, int((mu > 1e-12 * scale).sum()))
    if not used:
        raise InputError(
            "No component gains from the edges of the graph: all its weights are "
            "negative, or none joins samples that differ."
        )
    mixing = problem.each(lambda s, B: s.coefficients(B[:, :used]), targets)
    features = problem.each(lambda s, m: s.features(m), mixing)
    template = np.concatenate(features) / mu[:used]
    return Solution(mu, mu, scale, mixing, features, template, chosen)


def _choose(graph: Graph, k: int, few: int) -> str:
    if graph.matrix is not None:
        return "matrix"
    rank = sum(len(term.names) for term in graph.groups)
    if rank <= max(few, 8 * k):
        return "closed"
    weights = [(t.affinity, t.affinity.diagonal()) for t in graph.groups]
    by_group = all(np.count_nonzero(A) == np.count_nonzero(d) for A, d in weights)
    positive = all((d >= 0).all() for _, d in weights)
    return "operator" if by_group and positive else "closed"


class _Problem:
    """The routes; each returns mu and, per subject, the right-hand sides of its map."""

    def __init__(
        self, smoothers: list[Smoother], graph: Graph, n_jobs: int | None
    ) -> None:
        self.smoothers, self.graph, self.n_jobs = smoothers, graph, n_jobs
        self.rows = graph.slices()
        kinds = {type(smoother) for smoother in smoothers}
        self.on_device = kinds == {DeviceSmoother}
        self.few_groups = FEW_ON_DEVICE if self.on_device else FEW_GROUPS
        if kinds == {GramSmoother}:  # all by one inverse of its samples' size
            most = min(MANY_GROUPS, *graph.lengths)
            self.few_groups = max(FEW_GROUPS, most)

    def each(self, function: Any, *lists: Any) -> list[Any]:
        return map_subjects(
            function, self.smoothers, *lists, n_jobs=self.n_jobs, here=True
        )

    def _columns(self) -> tuple[list[Any], Matrix]:
        """Write the group terms as U J U^T: sparse U_i per subject, and the signs."""
        if self.graph.matrix is not None:
            raise InputError("A matrix of weights has no groups: use route='matrix'.")
        parts, signs = [], []
        for term in self.graph.groups:
            F, s = signed_factor(term.affinity)
            parts.append(term.membership() @ scipy.sparse.csr_array(F))
            signs.append(s)
        U = scipy.sparse.csr_array(scipy.sparse.hstack(parts, format="csr"))
        return [U[rows] for rows in self.rows], np.concatenate(signs)

    def _closed(self, k: int) -> tuple[Matrix, list[Any]]:
        U, signs = self._columns()
        if self.on_device:  # one after the other: there is room for one sum
            P: Any = 0
            for smoother, u in zip(self.smoothers, U, strict=True):
                P = smoother.between(u) + P
        else:
            P = sum(self.each(lambda s, u: to_numpy(s.between(u)), U))
        P = (P + P.T) / 2
        if (signs > 0).all():
            mu, q = self._largest(P, k)
            return mu, _times(U, _divide(q, np.sqrt(np.maximum(mu, 0))))
        P = to_numpy(P)
        # P = L L^T: the problem in the coordinates that L makes orthonormal
        values, vectors = np.linalg.eigh(P)
        L = vectors * np.sqrt(np.maximum(values, 0))
        mu, a = self._largest(L.T @ (signs[:, None] * L), k)
        return mu, _times(U, _divide(signs[:, None] * (L @ a), mu))

    def _largest(self, P: Any, k: int) -> tuple[Matrix, Matrix]:
        if is_torch(P):
            values, vectors = cast(DeviceSmoother, self.smoothers[0]).device.eigh(P)
            return values[:k], to_numpy(vectors[:, :k])
        values, vectors = np.linalg.eigh((P + P.T) / 2)
        return values[::-1][:k], vectors[:, ::-1][:, :k]

    def _operator(self, k: int) -> tuple[Matrix, list[Any]]:
        U, signs = self._columns()
        size = signs.size

        def minus_P(x: Matrix) -> Matrix:
            columns = x.reshape(size, -1)
            total = sum(self.each(lambda s, u: u.T @ s.smooth(u @ columns), U))
            return -np.asarray(total).reshape(x.shape)

        values, q = smallest_of_operator(minus_P, size, min(k, size))
        mu = -values
        return mu, _times(U, _divide(q, np.sqrt(np.maximum(mu, 0))))

    def _matrix(self, k: int) -> tuple[Matrix, list[Any]]:
        """Lanczos on R^T G R with S = R R^T, whatever the graph is made of."""
        roots = self.each(lambda s: s.root[0] * s.root[1])
        whole = Problem(roots, self.graph, np.zeros(self.graph.n_samples))
        size = whole.size
        values, vectors = smallest_of_operator(whole.apply, size, min(k, size))
        mu = -values
        targets = _divide(apply_graph(self.graph, whole.up(vectors)), mu)
        return mu, [targets[rows] for rows in self.rows]


def scale_features(mixing: Matrix, features: Matrix, mu: Matrix | None) -> Matrix:
    """Return a mixing whose features over the aligning samples have the spread mu.

    Features on which subjects agree more then weigh more for a classifier. Without mu
    they have unit variance. A feature that is constant stays as it is.
    """
    spread = features.std(axis=0)
    spread = np.where(spread > 0, spread, 1.0)
    wanted = np.ones_like(spread) if mu is None else mu[: spread.size] / mu[0]
    return np.asarray(mixing * (wanted / spread))


def _divide(columns: Matrix, by: Matrix) -> Matrix:
    """Divide columns, leaving zero those of components without gain."""
    return np.asarray(columns * np.where(by > 0, 1 / np.where(by > 0, by, 1), 0.0))


def _times(U: list[Any], c: Matrix) -> list[Matrix]:
    return [np.asarray(u @ c) for u in U]


# -- features of unit covariance in every subject --------------------------------------


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
