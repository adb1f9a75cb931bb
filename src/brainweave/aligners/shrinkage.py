r"""GDM with a ridge in place of the hard cut: the closed form.

With :math:`S_i = K_i (K_i + g_i I)^{-1}` the ridge smoother of subject i's centred Gram
matrix and a graph of groups :math:`G = U J U^\top`, :math:`J` being signs, all follows
from :math:`P = \sum_i U_i^\top S_i U_i`, of the size of the number of groups
(docs/gdm.md). Three routes: "closed" forms P, for few groups or mixed signs; "operator"
multiplies with it, for many groups; "matrix" is for a matrix of weights, which takes an
eigendecomposition a subject.
"""

from collections.abc import Sequence
from functools import cached_property
from typing import Any

import numpy as np
import scipy.linalg
import scipy.sparse
from numpy.typing import NDArray

from brainweave._arrays import map_subjects
from brainweave.aligners.gdm_graph import Solution
from brainweave.aligners.graph_solver import Problem, apply_graph
from brainweave.exceptions import InputError
from brainweave.graphs import Graph
from brainweave.linalg import signed_factor, smallest_of_operator

Matrix = NDArray[np.float64]

#: More groups than this go to the operator, whose steps do not grow with them.
FEW_GROUPS = 400
ROUTES = ("auto", "closed", "operator", "matrix")


class Smoother:
    r"""The ridge smoother :math:`S = K (K + g I)^{-1}` of one subject.

    ``strength`` is the ridge g, in units of the centred Gram matrix. Where voxels are
    fewer, ``narrow``, the centred samples, come in its place. With ``semidefinite``
    False negative eigenvalues are looked for, and set to zero as the hard cut does;
    that takes an eigendecomposition where otherwise one Cholesky factor will do.

    Examples
    --------
    >>> X = np.random.default_rng(0).normal(size=(9, 40))
    >>> X -= X.mean(axis=0)
    >>> smoother = Smoother(X @ X.T, 3.0)
    >>> B = np.eye(9)[:, :2]
    >>> by_hand = X @ X.T @ np.linalg.inv(X @ X.T + 3 * np.eye(9)) @ B
    >>> bool(np.allclose(smoother.smooth(B), by_hand))
    True
    """

    def __init__(
        self,
        gram: Matrix | None = None,
        strength: float = 1.0,
        *,
        narrow: Matrix | None = None,
        semidefinite: bool = True,
        name: str = "X",
    ) -> None:
        self.strength = float(strength)
        if not 0 < self.strength < np.inf:
            raise InputError(
                f"The ridge of {name} must be larger than 0 and finite; got "
                f"{self.strength}. Samples that are all alike cannot be aligned."
            )
        self.name, self.narrow, self._gram = name, narrow, gram
        semidefinite = semidefinite or narrow is not None
        # with negative eigenvalues everything goes through the positive ones
        self._by_root = not (semidefinite or is_semidefinite(self.gram))

    @property
    def gram(self) -> Matrix:
        """The centred Gram matrix."""
        if self._gram is None:
            X: Any = self.narrow
            self._gram = np.asarray(X @ X.T)
        return self._gram

    @cached_property
    def _factor(self) -> Any:
        """Cholesky factor of K + g, or of the voxels' side where that is smaller."""
        X = self.narrow
        ridged = np.array(self._gram) if X is None else X.T @ X
        ridged[np.diag_indices_from(ridged)] += self.strength
        try:
            return scipy.linalg.cho_factor(
                ridged, lower=True, overwrite_a=True, check_finite=False
            )
        except scipy.linalg.LinAlgError as error:
            raise InputError(
                f"The Gram matrix of {self.name} has negative eigenvalues larger than "
                f"the ridge {self.strength:.3g}, though its kernel should have none."
            ) from error

    @cached_property
    def root(self) -> tuple[Matrix, Matrix]:
        """Eigenvectors of K with positive eigenvalues, and square roots of S's."""
        values, vectors = np.linalg.eigh(self.gram)
        keep = values > len(values) * np.finfo(np.float64).eps * values[-1]
        values = values[keep]
        return vectors[:, keep], np.sqrt(values / (values + self.strength))

    def coefficients(self, B: Any) -> Matrix:
        """Return the mixing ``(K + g)^-1 B``, B centred, (n_samples, n_columns)."""
        B = np.asarray(B.toarray() if scipy.sparse.issparse(B) else B, np.float64)
        B = B - B.mean(axis=0)  # K does not see constants, but 1 / g would
        if self._by_root:
            V, s = self.root
            return np.asarray(V @ (((1 - s**2) / self.strength)[:, None] * (V.T @ B)))
        if self.narrow is not None:  # Woodbury's identity
            X = self.narrow
            inside = scipy.linalg.cho_solve(self._factor, X.T @ B, check_finite=False)
            return np.asarray((B - X @ inside) / self.strength)
        return np.asarray(scipy.linalg.cho_solve(self._factor, B, check_finite=False))

    def features(self, mixing: Matrix) -> Matrix:
        """Return the features ``K @ mixing`` of the aligning samples."""
        if self._by_root:
            V, s = self.root
            values = self.strength * s**2 / (1 - s**2)
            return np.asarray(V @ (values[:, None] * (V.T @ mixing)))
        if self.narrow is not None:
            return np.asarray(self.narrow @ (self.narrow.T @ mixing))
        return np.asarray(self.gram @ mixing)

    def smooth(self, B: Any) -> Matrix:
        """Return ``S B``."""
        return self.features(self.coefficients(B))


def is_semidefinite(gram: Matrix) -> bool:
    """Say whether a centred Gram matrix has no negative eigenvalue beyond rounding."""
    lifted = np.array(gram)
    lifted[np.diag_indices_from(lifted)] += 1e-10 * np.abs(gram).max() * len(gram)
    try:
        scipy.linalg.cholesky(lifted, lower=True, overwrite_a=True, check_finite=False)
    except scipy.linalg.LinAlgError:
        return False
    return True


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
    chosen = _choose(graph, k) if route == "auto" else route
    problem = _Problem(list(smoothers), graph, n_jobs)
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


def _choose(graph: Graph, k: int) -> str:
    if graph.matrix is not None:
        return "matrix"
    rank = sum(len(term.names) for term in graph.groups)
    if rank <= max(FEW_GROUPS, 8 * k):
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

    def each(self, function: Any, *lists: Any) -> list[Any]:
        return map_subjects(function, self.smoothers, *lists, n_jobs=self.n_jobs)

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
        P = sum(self.each(lambda s, u: np.asarray(u.T @ s.smooth(u)), U))
        P = (P + P.T) / 2
        k = min(k, len(P))
        if (signs > 0).all():
            mu, q = _largest(P, k)
            return mu, _times(U, _divide(q, np.sqrt(np.maximum(mu, 0))))
        # P = L L^T: the problem in the coordinates that L makes orthonormal
        values, vectors = np.linalg.eigh(P)
        L = vectors * np.sqrt(np.maximum(values, 0))
        mu, a = _largest(L.T @ (signs[:, None] * L), k)
        return mu, _times(U, _divide(signs[:, None] * (L @ a), mu))

    def _operator(self, k: int) -> tuple[Matrix, list[Any]]:
        U, signs = self._columns()
        if (signs < 0).any():
            raise InputError("route='operator' needs positive weights of groups.")
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


def _largest(matrix: Matrix, k: int) -> tuple[Matrix, Matrix]:
    values, vectors = np.linalg.eigh((matrix + matrix.T) / 2)
    return values[::-1][:k], vectors[:, ::-1][:, :k]


def _divide(columns: Matrix, by: Matrix) -> Matrix:
    """Divide columns, leaving zero those of components without gain."""
    return np.asarray(columns * np.where(by > 0, 1 / np.where(by > 0, by, 1), 0.0))


def _times(U: list[Any], c: Matrix) -> list[Matrix]:
    return [np.asarray(u @ c) for u in U]
