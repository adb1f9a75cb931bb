r"""GDM with a ridge in place of the hard cut: in closed form, or subject by subject.

With :math:`S_i = K_i (K_i + g_i I)^{-1}` the ridge smoother of subject i's centred Gram
matrix and a graph of groups :math:`G = U J U^\top`, :math:`J` being signs, all follows
from :math:`P = \sum_i U_i^\top S_i U_i`, of the size of the number of groups
(docs/gdm.md). Three routes: "closed" forms P, for few groups or mixed signs; "operator"
multiplies with it, for many groups; "matrix" is for a matrix of weights, which takes an
eigendecomposition a subject.

Features of unit covariance in each subject come from an ascent that starts there. The
map of subject i that agrees best with targets :math:`B_i = \sum_j G_{ij} Y_j^\top` is
:math:`Y_i^\top = S_i B_i (B_i^\top S_i B_i)^{-1/2}`. All subjects take this step at
once, so their order does not matter, and no step lowers the objective: it is convex,
as no weight is negative. Few rounds are better than many: the closed form ties subjects
who share little, and the optimum drifts from that (docs/gdm.md).
"""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, cast

import numpy as np
import scipy.sparse

from brainweave._core.arrays import Matrix, is_torch, to_numpy
from brainweave._core.exceptions import InputError
from brainweave.aligners.gdm.eigenproblem import Problem, Solution, apply_graph
from brainweave.aligners.gdm.joint import JointRidge, Regression
from brainweave.aligners.gdm.smoother import DeviceSmoother, GramSmoother
from brainweave.basis.linalg import (
    signed_factor,
    smallest_eigenpairs,
    smallest_of_operator,
)
from brainweave.graphs.builders import Graph

#: More groups than this go to the operator, whose steps do not grow with them.
FEW_GROUPS = 400
MANY_GROUPS = 1200  # still few, where subjects have as many samples and more voxels
FEW_ON_DEVICE = 8192
N_DIRECTIONS = 80  # of groups, in which ridges are compared,
N_PRODUCTS = 2  # and by how many products they are found
ROUNDS = 10  # chosen on simulated studies that docs/gdm.md does not report


def solve_shrinkage(
    joint: JointRidge, graph: Graph, k: int, *, route: str = "auto"
) -> Solution:
    """Find the k leading components; fewer where fewer gain from the edges.

    No degrees are used. The maps are mixings, ``W_i = Phi_i @ maps[i]``.
    """
    chosen = _choose(joint, graph, k) if route == "auto" else route
    mu, targets = ROUTES[chosen](joint, graph, k + 1)
    scale, used = _count_gaining(mu, k, graph)
    found = joint.regress([target[:, :used] for target in targets])
    template = np.concatenate(found.features) / mu[:used]
    return Solution(
        mu, mu, scale, found.maps, found.features, template, chosen, found.shared
    )


def _count_gaining(mu: Matrix, k: int, graph: Graph) -> tuple[float, int]:
    """Return the size of eigenvalues, and how many of the first k gain from edges."""
    weights = [float(np.abs(t.affinity).max(initial=0.0)) for t in graph.groups]
    if graph.matrix is not None:
        weights.append(float(abs(graph.matrix).max()))
    scale = max(float(np.abs(mu).max(initial=0.0)), 1e-300)
    # where all samples are linked alike, all of it is rounding
    least = max(1e-12 * scale, 1e-20 * max(weights, default=0.0))
    used = min(k, int((mu > least).sum()))
    if not used:
        raise InputError(
            "No component gains from the edges of the graph: all its weights are "
            "negative, or none joins samples that differ."
        )
    return scale, used


class LeadingGroups:
    """A graph of groups in the span of what subjects share most, to be solved often.

    Of many groups with positive edges only the directions that products with ``P``
    reach from a random start: more than the components of any ridge.
    """

    def __init__(self, joint: JointRidge, graph: Graph) -> None:
        self.graph = graph
        self.U, self.signs = columns_of(graph)
        size = self.signs.size
        if size > 2 * N_DIRECTIONS and (self.signs > 0).all():
            T = np.random.default_rng(0).standard_normal((size, N_DIRECTIONS))
            for _ in range(N_PRODUCTS):
                T = np.linalg.qr(joint.multiply(self.U, T))[0]
            self.U, self.signs = [u @ T for u in self.U], self.signs[:N_DIRECTIONS]
        elif size <= 2 * N_DIRECTIONS:
            self.U = [u.toarray() for u in self.U]  # whose products are kept

    def targets(self, joint: JointRidge, k: int) -> tuple[Matrix, list[Matrix], Matrix]:
        """Return the leading eigenvalues, the targets, and these as mixtures of U."""
        mu, mixed = _closed_form(joint, self.U, self.signs, k)
        used = _count_gaining(mu, k, self.graph)[1]
        mixed = mixed[:, :used]
        return mu[:used], [u @ mixed for u in self.U], mixed


def _choose(joint: JointRidge, graph: Graph, k: int) -> str:
    if graph.matrix is not None:
        return "matrix"
    kinds = {type(smoother) for smoother in joint.smoothers}
    few = FEW_ON_DEVICE if kinds == {DeviceSmoother} else FEW_GROUPS
    if kinds == {GramSmoother}:  # all by one inverse of its samples' size
        few = max(FEW_GROUPS, min(MANY_GROUPS, *graph.lengths))
    # products converge slowly where the last of many components is noise
    if sum(term.rank for term in graph.groups) <= max(few, 100 * k):
        return "closed"
    return "operator" if is_positive(graph) else "closed"


def is_positive(graph: Graph) -> bool:
    """Whether the graph joins groups, with weights that are not negative."""
    return graph.matrix is None and all(term.is_positive for term in graph.groups)


# the routes: each returns mu and, per subject, the right-hand sides of its map


def _closed(joint: JointRidge, graph: Graph, k: int) -> tuple[Matrix, list[Any]]:
    U, signs = columns_of(graph)
    mu, mixed = _closed_form(joint, U, signs, k)
    return mu, [np.asarray(u @ mixed) for u in U]


def _operator(joint: JointRidge, graph: Graph, k: int) -> tuple[Matrix, list[Any]]:
    U, signs = columns_of(graph)
    size = signs.size

    def minus_P(x: Matrix) -> Matrix:
        return -joint.multiply(U, x.reshape(size, -1)).reshape(x.shape)

    values, q = smallest_of_operator(minus_P, size, min(k, size))
    mixed = _divide(q, np.sqrt(np.maximum(-values, 0)))
    return -values, [np.asarray(u @ mixed) for u in U]


def _matrix(joint: JointRidge, graph: Graph, k: int) -> tuple[Matrix, list[Any]]:
    """Lanczos on R^T G R with S = R R^T, whatever the graph is made of."""
    roots = joint.over_subjects(lambda s: s.root[0] * s.root[1], joint.smoothers)
    whole = Problem(roots, graph, np.zeros(graph.n_samples))
    values, vectors = smallest_of_operator(whole.apply, whole.size, min(k, whole.size))
    targets = _divide(apply_graph(graph, whole.up(vectors)), -values)
    return -values, [targets[rows] for rows in graph.slices()]


ROUTES = {"closed": _closed, "operator": _operator, "matrix": _matrix}


def columns_of(graph: Graph) -> tuple[list[Any], Matrix]:
    """Write the group terms as U J U^T: sparse U_i per subject, and the signs."""
    if graph.matrix is not None:
        raise InputError("A matrix of weights has no groups: use route='matrix'.")
    parts, signs = [], []
    for term in graph.groups:
        F, s = signed_factor(term.affinity)
        parts.append(scipy.sparse.csr_array(term.loadings() @ F))
        signs.append(s)
    U = scipy.sparse.csr_array(scipy.sparse.hstack(parts, format="csr"))
    return [U[rows] for rows in graph.slices()], np.concatenate(signs)


def _closed_form(
    joint: JointRidge, U: list[Any], signs: Matrix, k: int
) -> tuple[Matrix, Matrix]:
    """Return the leading eigenvalues, and the mixtures of U that are the targets."""
    P = joint.quadratic_form(U)
    P = (P + P.T) / 2
    if (signs > 0).all():
        mu, q = _largest(joint, P, k)
        return mu, _divide(q, np.sqrt(np.maximum(mu, 0)))
    P = to_numpy(P)
    # P = L L^T: the problem in the coordinates that L makes orthonormal
    values, vectors = np.linalg.eigh(P)
    L = vectors * np.sqrt(np.maximum(values, 0))
    mu, a = _largest(joint, L.T @ (signs[:, None] * L), k)
    return mu, _divide(signs[:, None] * (L @ a), mu)


def _largest(joint: JointRidge, P: Any, k: int) -> tuple[Matrix, Matrix]:
    if is_torch(P):
        values, vectors = cast(DeviceSmoother, joint.smoothers[0]).device.eigh(P)
        return values[:k], to_numpy(vectors[:, :k])
    values, vectors = smallest_eigenpairs(-(P + P.T) / 2, k)
    return -values, vectors


def amplitude(features: Matrix, target: Matrix, mu: Matrix) -> float:
    """Return how much larger a subject's target is than its features.

    One number for all features, weighed by mu: one on which the subject's edges or
    voxels hardly differ stays small. Samples without edges do not count.
    """
    linked = target.any(axis=1)
    if not linked.any():
        return 1.0
    wanted, size = (
        float(np.linalg.norm(np.sqrt(np.mean(of[linked] ** 2, axis=0)) * mu))
        for of in (target - target.mean(axis=0), features)
    )
    return wanted / size if size > 0 else 1.0


def common_scale(
    features: Sequence[Matrix], targets: Sequence[Matrix], mu: Matrix, spread: Matrix
) -> Matrix:
    """Return by what features have this spread, as the root mean square over subjects.

    A feature that is constant stays as it is.
    """
    squares = [
        (amplitude(f, t, mu) * np.sqrt(np.mean(f[t.any(axis=1)] ** 2, axis=0))) ** 2
        for f, t in zip(features, targets, strict=True)
        if t.any()
    ]
    found = np.sqrt(np.mean(squares, axis=0))
    return np.asarray(spread / np.where(found > 0, found, 1.0))


def _divide(columns: Matrix, by: Matrix) -> Matrix:
    """Divide columns, leaving zero those of components without gain."""
    return np.asarray(columns * np.where(by > 0, 1 / np.where(by > 0, by, 1), 0.0))


# -- features of unit covariance in every subject --------------------------------------


def solve_per_subject(joint: JointRidge, graph: Graph, start: Solution) -> Solution:
    """Ascend from the closed form; return the regressions on the template at the end.

    Groups should have equal weights, also time ids (``equal_group_weights``): the
    target of a sample is then the mean over who saw it. The eigenvalues are the root
    mean squares of the features: what the ridge leaves of unit variance.
    """
    Y, _ = ascend(joint, graph, start)
    targets = apply_graph(graph, np.concatenate(Y))
    found = joint.regress([targets[rows] for rows in graph.slices()])
    # any common rotation has the same objective: take the axes of agreement
    total = np.sum([f.T @ f for f in found.features], axis=0) / graph.n_samples
    values, axes = np.linalg.eigh((total + total.T) / 2)
    axes = axes[:, ::-1]
    return replace(
        start,
        eigenvalues=np.sqrt(np.maximum(values[::-1], 0)),
        maps=[m @ axes for m in found.maps],
        features=[f @ axes for f in found.features],
        shared=None if found.shared is None else found.shared @ axes,
        template=np.concatenate(Y) @ axes,
        route=f"{start.route}, subject",
    )


def ascend(
    joint: JointRidge,
    graph: Graph,
    start: Solution,
    *,
    max_iter: int = ROUNDS,
    tol: float = 1e-6,
) -> tuple[list[Matrix], list[float]]:
    """Return features with ``W_i^T (Phi_i Phi_i^T + g_i) W_i = I`` in every subject.

    And the objective ``tr(Y G Y^T)`` after each round, which regresses all subjects on
    their targets and whitens the features. Directions that a target does not have stay
    zero, which loses nothing of the objective.
    """
    history: list[float] = []
    Y = _whiten(joint, start)
    while True:
        whole = np.concatenate(Y)
        targets = apply_graph(graph, whole)
        history.append(float((whole * targets).sum()))
        rise = history[-1] - history[-2] if len(history) > 1 else np.inf
        if len(history) > max_iter or rise <= tol * abs(history[-1]):
            return Y, history
        each = [targets[own] for own in graph.slices()]
        Y = _whiten(joint, joint.regress(each, shortest=False))


def _whiten(joint: JointRidge, found: Regression | Solution) -> list[Matrix]:
    """Scale features so that they and penalties are I together, nearest to what is."""
    pairs = zip(found.features, joint.penalties(found), strict=True)
    return [f @ _inverse_root(f.T @ f + penalty) for f, penalty in pairs]


def _inverse_root(matrix: Matrix) -> Matrix:
    values, vectors = np.linalg.eigh((matrix + matrix.T) / 2)
    kept = values > 1e-12 * max(float(values[-1]), 1e-300)
    scaled = np.where(kept, 1 / np.sqrt(np.where(kept, values, 1)), 0)
    return np.asarray((vectors * scaled) @ vectors.T)
