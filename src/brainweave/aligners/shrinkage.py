r"""GDM with a ridge in place of the hard cut: the closed form.

With :math:`S_i = K_i (K_i + g_i I)^{-1}` the ridge smoother of subject i's centred Gram
matrix and :math:`Y_i = W_i^\top \Phi_i` its features, the model is

.. math:: \max \mathrm{tr}(Y G Y^\top) \quad\text{subject to}\quad
          \sum_i (Y_i Y_i^\top + g_i W_i^\top W_i) = I .

For a graph of groups, :math:`G = U J U^\top` with :math:`U = Z F` and signs
:math:`J`, everything follows from :math:`P = \sum_i U_i^\top S_i U_i`, a matrix of
the size of the number of groups. A subject costs one Cholesky factor and as many
right-hand sides as there are groups.

========= =========================================== =================================
route     when                                        cost beside the factors
========= =========================================== =================================
closed    groups, few or of mixed signs               one product of n_i^2 C a subject
operator  many groups (time), all weights positive    one product of n_i^2 a step
matrix    a matrix of weights                         an eigh a subject, then Lanczos
========= =========================================== =================================
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import scipy.linalg
import scipy.sparse
from numpy.typing import NDArray

from brainweave._arrays import map_subjects
from brainweave.aligners.graph_solver import apply_graph
from brainweave.exceptions import InputError
from brainweave.graphs import Graph, GroupTerm
from brainweave.linalg import signed_factor, smallest_of_operator

Matrix = NDArray[np.float64]

#: More groups than this go to the operator, whose steps do not grow with them.
FEW_GROUPS = 400
ROUTES = ("auto", "closed", "operator", "matrix")


class Smoother:
    r"""The ridge smoother :math:`S = K (K + g I)^{-1}` of one subject.

    Parameters
    ----------
    gram : ndarray of shape (n_samples, n_samples), optional
        Centred Gram matrix, of any kernel.
    strength : float
        The ridge g, larger than zero, in units of the Gram matrix.
    narrow : ndarray of shape (n_samples, n_voxels), optional
        Centred samples in place of the Gram matrix, where voxels are fewer: the factor
        is then of the voxels' size.
    semidefinite : bool, default=True
        False for kernels that may have negative eigenvalues (sigmoid, callables): if
        there are any they are set to zero, as the hard cut does. That takes an
        eigendecomposition, where otherwise one Cholesky factor will do.
    name : str
        How error messages call the subject.

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
        self.name = name
        self.narrow = narrow
        if narrow is not None:
            self._gram: Matrix | None = None
            semidefinite = True
            self.n_samples = len(narrow)
        elif gram is not None:
            self._gram = gram
            self.n_samples = len(gram)
        else:
            raise InputError(f"{name}: give the Gram matrix, or the samples (narrow).")
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


@dataclass(frozen=True)
class ShrinkageSolution:
    """Maps of the subjects, and what a new subject needs.

    Attributes
    ----------
    mu : ndarray of shape (K + 1,)
        Leading eigenvalues, descending, one more than asked where there is one: what
        the edges give to each component.
    mixing : list of ndarray of shape (n_samples_i, K)
        ``W_i = Phi_i @ mixing[i]``; the features of other samples are their centred
        kernel to the aligning samples, times this.
    scores : list of ndarray of shape (n_groups, K)
        Per group term, the target that a sample of the group is regressed on.
    features : list of ndarray of shape (n_samples_i, K)
        ``Y_i^T``, of the aligning samples.
    template : ndarray of shape (n_samples, K)
        Of all samples; the edges of a sample times this are its target.
    route : str
        How it was computed.
    """

    mu: Matrix
    mixing: list[Matrix]
    scores: list[Matrix]
    features: list[Matrix]
    template: Matrix
    route: str

    def n_informative(self, k: int) -> int:
        """Count the first k components that gain from the edges."""
        return int((self.mu[:k] > 1e-9 * self._scale).sum())

    def is_unique(self, k: int) -> bool:
        """Whether there is a gap in mu after component k."""
        if self.mu.size <= k:
            return True
        return bool(self.mu[k - 1] - self.mu[k] > 1e-9 * self._scale)

    @property
    def _scale(self) -> float:
        return max(float(np.abs(self.mu).max(initial=0.0)), 1e-300)


def solve_shrinkage(
    smoothers: Sequence[Smoother],
    graph: Graph,
    k: int,
    *,
    route: str = "auto",
    n_jobs: int | None = None,
) -> ShrinkageSolution:
    """Find the k leading components of the shrinkage model.

    Parameters
    ----------
    smoothers : sequence of Smoother
        One per subject.
    graph : Graph
        Over the samples of all subjects. No degrees are used.
    k : int
        Number of components. Fewer are returned where the graph has fewer directions;
        components without gain (``mu`` zero or negative) are never returned.
    route : {"auto", "closed", "operator", "matrix"}
        Forced by tests; "auto" picks the cheapest that applies.
    n_jobs : int, optional
        Subjects worked on at the same time.
    """
    lengths = [s.n_samples for s in smoothers]
    if list(graph.lengths) != lengths:
        raise InputError(
            f"The graph is over {list(graph.lengths)} samples per subject; the data "
            f"have {lengths}."
        )
    chosen = _choose(graph, k) if route == "auto" else route
    problem = _Problem(list(smoothers), graph, n_jobs)
    mu, targets = getattr(problem, f"_{chosen}")(k + 1)
    gain = mu > 1e-12 * max(float(np.abs(mu).max(initial=0.0)), 1e-300)
    used = min(k, int(gain.sum()))
    if not used:
        raise InputError(
            "No component gains from the edges of the graph: all its weights are "
            "negative, or none joins samples that differ."
        )
    mixing = problem.each(lambda s, B: s.coefficients(B[:, :used]), targets)
    features = problem.each(lambda s, m: s.features(m), mixing)
    template = np.concatenate(features) / mu[:used]
    scores = [
        np.asarray(t.affinity @ (t.membership().T @ template)) for t in graph.groups
    ]
    return ShrinkageSolution(mu, mixing, scores, features, template, chosen)


def _choose(graph: Graph, k: int) -> str:
    if graph.matrix is not None:
        return "matrix"
    rank = sum(len(term.names) for term in graph.groups)
    if rank <= max(FEW_GROUPS, 8 * k):
        return "closed"
    diagonal = [t.affinity.diagonal() for t in graph.groups if _is_diagonal(t)]
    positive = all((d >= 0).all() for d in diagonal)
    return "operator" if positive and len(diagonal) == len(graph.groups) else "closed"


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
            F, s = _signed_factor(term)
            parts.append(scipy.sparse.csr_array(term.membership() @ F))
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
        k = min(k, size)

        def minus_P(x: Matrix) -> Matrix:
            x = x.reshape(size, -1)
            total = sum(self.each(lambda s, u: u.T @ s.smooth(u @ x), U))
            return -np.asarray(total)

        values, q = smallest_of_operator(lambda x: minus_P(x).reshape(x.shape), size, k)
        mu = -values
        return mu, _times(U, _divide(q, np.sqrt(np.maximum(mu, 0))))

    def _matrix(self, k: int) -> tuple[Matrix, list[Any]]:
        """Lanczos on R^T G R with S = R R^T, whatever the graph is made of."""
        roots = self.each(lambda s: s.root[0] * s.root[1])
        ends = np.cumsum([R.shape[1] for R in roots])
        size = int(ends[-1])

        def up(x: Matrix) -> Matrix:
            parts = np.split(x, ends[:-1])
            return np.concatenate([R @ p for R, p in zip(roots, parts, strict=True)])

        def minus(x: Matrix) -> Matrix:
            y = apply_graph(self.graph, up(x.reshape(size, -1)))
            down = [R.T @ y[rows] for R, rows in zip(roots, self.rows, strict=True)]
            return -np.concatenate(down).reshape(x.shape)

        values, vectors = smallest_of_operator(minus, size, min(k, size))
        mu = -values
        targets = _divide(apply_graph(self.graph, up(vectors)), mu)
        return mu, [targets[rows] for rows in self.rows]


def join_subject(
    smoother: Smoother, graph: Graph, codes: Sequence[Any], scores: Sequence[Matrix]
) -> Matrix:
    """Return the mixing of a new subject: ridge regression on the model's scores.

    Parameters
    ----------
    smoother : Smoother
        Of the new subject.
    graph : Graph
        The model's.
    codes : sequence of ndarray of int
        Per group term, the group of each new sample; NO_GROUP for none.
    scores : sequence of ndarray of shape (n_groups, K)
        Of the solution.
    """
    target = np.zeros((smoother.n_samples, scores[0].shape[1]))
    for term, own, t in zip(graph.groups, codes, scores, strict=True):
        new = GroupTerm(np.asarray(own, np.intp), term.affinity, term.names)
        target += new.membership() @ t
    if not np.ptp(target, axis=0).any():
        raise InputError(
            f"The samples of {smoother.name} belong to no group of the model, or all "
            "to one: its map cannot be learned. Pass the labels of its samples."
        )
    return smoother.coefficients(target)


def scale_features(mixing: Matrix, features: Matrix, mu: Matrix | None) -> Matrix:
    """Return a mixing whose features over the aligning samples have the spread mu.

    Features on which subjects agree more then weigh more for a classifier. Without mu
    they have unit variance. A feature that is constant stays as it is.
    """
    spread = features.std(axis=0)
    spread = np.where(spread > 0, spread, 1.0)
    wanted = np.ones_like(spread) if mu is None else mu[: spread.size] / mu[0]
    return np.asarray(mixing * (wanted / spread))


def _is_diagonal(term: GroupTerm) -> bool:
    A = term.affinity
    return bool(np.count_nonzero(A) == np.count_nonzero(A.diagonal()))


def _signed_factor(term: GroupTerm) -> tuple[Any, Matrix]:
    if not _is_diagonal(term):
        F, signs = signed_factor(term.affinity)
        return scipy.sparse.csr_array(F), signs
    weights = term.affinity.diagonal()
    groups = np.flatnonzero(weights)
    F = scipy.sparse.csr_array(
        (np.sqrt(np.abs(weights[groups])), (groups, np.arange(groups.size))),
        shape=(weights.size, groups.size),
    )
    return F, np.sign(weights[groups])


def _largest(matrix: Matrix, k: int) -> tuple[Matrix, Matrix]:
    values, vectors = np.linalg.eigh((matrix + matrix.T) / 2)
    return values[::-1][:k], vectors[:, ::-1][:, :k]


def _divide(columns: Matrix, by: Matrix) -> Matrix:
    """Divide columns, leaving zero those of components without gain."""
    return np.asarray(columns * np.where(by > 0, 1 / np.where(by > 0, by, 1), 0.0))


def _times(U: list[Any], c: Matrix) -> list[Matrix]:
    return [np.asarray(u @ c) for u in U]
