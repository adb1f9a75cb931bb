"""Small symmetric eigenproblems, solved exactly and in the cheapest way.

The structured problem of this package is *block diagonal minus low rank*. In the
eigenbasis of the blocks it reads ``diag(mu) - U diag(j) U.T``, which never needs to be
formed: equal entries of ``mu`` are decoupled exactly (the deflation of the
divide-and-conquer method of Cuppen, 1981), the rest goes to a Lanczos iteration whose
step costs one thin product.
"""

from typing import Any

import numpy as np
import scipy.linalg
import scipy.sparse
import scipy.sparse.linalg
from numpy.typing import NDArray

from brainweave.exceptions import SolverError

Matrix = NDArray[np.float64]
Eigenpairs = tuple[Matrix, Matrix]

TIE = 1e-12  # entries of mu closer than this, relative to the scale, are equal
DENSE_LIMIT = 400  # below this, LAPACK on the full matrix beats any iteration


def smallest_eigenpairs(matrix: Matrix, k: int) -> Eigenpairs:
    """Give the k smallest eigenvalues, ascending, and their eigenvectors (LAPACK)."""
    k = min(k, matrix.shape[0])
    try:
        values, vectors = scipy.linalg.eigh(
            matrix, subset_by_index=[0, k - 1], driver="evr", check_finite=False
        )
    except scipy.linalg.LinAlgError:  # a search for a few fails when most are equal
        values, vectors = np.linalg.eigh(matrix)
    return values[:k], vectors[:, :k]


def smallest_of_operator(matvec: Any, size: int, k: int) -> Eigenpairs:
    """Give the k smallest eigenpairs of a symmetric operator by Lanczos iteration.

    The start is fixed, so the result is the same every time.
    """
    if size <= max(DENSE_LIMIT // 4, 2 * k + 2):
        return smallest_eigenpairs(matvec(np.eye(size)), k)
    operator = scipy.sparse.linalg.LinearOperator(
        (size, size), matvec=matvec, matmat=matvec, dtype=np.float64
    )
    start = np.random.default_rng(0).standard_normal(size)
    try:
        values, vectors = scipy.sparse.linalg.eigsh(
            operator,
            k=k,
            which="SA",
            v0=start,
            ncv=min(size, max(4 * k, 60)),
            maxiter=200 * k + 2000,
            tol=0,
        )
    except scipy.sparse.linalg.ArpackNoConvergence as error:
        raise SolverError(
            f"The iterative solver found only {len(error.eigenvalues)} of {k} "
            f"eigenpairs of a problem of size {size}. Use solver='dense', or a "
            "smaller n_components."
        ) from error
    order = np.argsort(values)
    return values[order], vectors[:, order]


def smallest_of_diagonal_minus_low_rank(
    mu: Matrix, U: Matrix, signs: Matrix, k: int
) -> Eigenpairs:
    """Give the k smallest eigenpairs of ``diag(mu) - U @ diag(signs) @ U.T``.

    Parameters
    ----------
    mu : ndarray of shape (size,)
        The diagonal.
    U : ndarray of shape (size, rank)
        The low-rank factor.
    signs : ndarray of shape (rank,)
        The signature of the low-rank part, +1 or -1.
    k : int
        How many eigenpairs.

    Notes
    -----
    Time O(size rank^2) for the decoupling and O(size rank) per Lanczos step; memory
    O(size (rank + k)). A diagonal that is constant is solved without any iteration.
    """
    order = np.argsort(mu, kind="stable")
    mu, change, touched = _decouple(mu[order], U[order], k)
    U = U[order] if change is None else change.T @ U[order]
    mu_c, U_c = mu[touched], U[touched]
    if mu_c.size == 0:
        values, vectors = mu_c, np.empty((0, 0))
    elif mu_c.size <= max(DENSE_LIMIT, 2 * k):
        values, vectors = smallest_eigenpairs(np.diag(mu_c) - (U_c * signs) @ U_c.T, k)
    else:
        values, vectors = _LowRankProblem(mu_c, U_c, signs).smallest(k)
    untouched = np.flatnonzero(~touched)
    all_values = np.concatenate([values, mu[untouched]])
    keep = np.argsort(all_values, kind="stable")[:k]
    out = np.zeros((mu.size, keep.size))
    for column, chosen in enumerate(keep):
        if chosen < values.size:
            out[touched, column] = vectors[:, chosen]
        else:
            out[untouched[chosen - values.size], column] = 1.0
    result = np.empty((order.size, keep.size))
    result[order] = out if change is None else change @ out
    return all_values[keep], result


class _LowRankProblem:
    """``diag(mu) - U diag(signs) U^T`` with ascending mu, without repeated eigenvalues.

    Few eigenvalues lie below all of mu, far apart: Lanczos finds them at once. The next
    ones sit at the crowded lower edge of mu, where only an iteration with the inverse,
    shifted to just below the edge, is fast; by Woodbury's identity it costs no more
    than a product. Sylvester's law of inertia counts the eigenvalues on either side, so
    none is missed.
    """

    def __init__(self, mu: Matrix, U: Matrix, signs: Matrix) -> None:
        self.mu, self.U, self.signs = mu, U, signs

    def multiply(self, x: Matrix) -> Matrix:
        """Multiply by the matrix."""
        columns = x.reshape(self.mu.size, -1)
        out = self.mu[:, None] * columns
        out -= self.U @ (self.signs[:, None] * (self.U.T @ columns))
        return out.reshape(x.shape)

    def _capacitance(self, shift: float) -> Matrix:
        scaled = self.U / (self.mu - shift)[:, None]
        return np.asarray(np.diag(self.signs) - scaled.T @ self.U)

    def count_below(self, x: float) -> int:
        """Count the eigenvalues below x."""
        negative = (np.linalg.eigvalsh(self._capacitance(x)) < 0).sum()
        return int((self.mu < x).sum() + negative - (self.signs < 0).sum())

    def smallest(self, k: int) -> Eigenpairs:
        """Give the k smallest eigenpairs."""
        step = (self.mu[k] - self.mu[0]) / k
        edge = float(self.mu[0] - step)
        below = min(self.count_below(edge), k)
        values, vectors = np.empty(0), np.empty((self.mu.size, 0))
        if below:
            values, vectors = smallest_of_operator(self.multiply, self.mu.size, below)
        if below < k:
            more, at_edge = self._just_above(edge, k - below)
            values = np.concatenate([values, more])
            vectors = np.linalg.qr(np.hstack([vectors, at_edge]))[0]
        if self.count_below(values[-1] - 1e-3 * step) > k - 1:
            return smallest_of_operator(self.multiply, self.mu.size, k)
        return values, vectors

    def _just_above(self, edge: float, k: int) -> Eigenpairs:
        """Give the k eigenpairs that follow the number ``edge``."""
        size = self.mu.size
        inverse = 1 / (self.mu - edge)
        scaled = inverse[:, None] * self.U
        factored = scipy.linalg.lu_factor(self._capacitance(edge))

        def solve(b: Matrix) -> Matrix:
            inner = scipy.linalg.lu_solve(factored, scaled.T @ b, check_finite=False)
            return np.asarray(inverse * b + scaled @ inner)

        linear = scipy.sparse.linalg.LinearOperator
        values, vectors = scipy.sparse.linalg.eigsh(
            linear((size, size), matvec=self.multiply, dtype=np.float64),
            k=k,
            sigma=edge,
            which="LA",
            OPinv=linear((size, size), matvec=solve, dtype=np.float64),
            v0=np.random.default_rng(0).standard_normal(size),
            ncv=min(size, 2 * k + 30),
            tol=0,
        )
        order = np.argsort(values)
        return values[order], vectors[:, order]


def _decouple(mu: Matrix, U: Matrix, k: int) -> tuple[Matrix, Any, NDArray[np.bool_]]:
    """Separate, within runs of equal mu, the directions that U does not touch.

    ``mu`` is ascending. In a run of m equal entries an orthogonal change of basis
    leaves at most ``rank`` rows of U different from zero; every other direction is an
    eigenvector with eigenvalue mu, and no more than k of them are of use. Gives the
    new diagonal, the change of basis (None: no change) and which entries U touches.
    """
    scale = max(np.abs(mu).max(), (U * U).sum(axis=0).max(initial=0.0), 1e-300)
    starts = np.flatnonzero(np.r_[True, np.diff(mu) > TIE * scale])
    ends = np.r_[starts[1:], mu.size]
    # the k smallest eigenvalues lie below the (k + rank)-th entry of mu
    tied = (ends - starts > 1) & (starts <= k + U.shape[1])
    if not tied.any():
        return mu, None, np.ones(mu.size, dtype=bool)
    blocks, levels, touched, position = [], [], [], 0
    for start, end in zip(starts[tied], ends[tied], strict=True):
        alone = start - position
        Q, values, _ = scipy.linalg.svd(
            U[start:end], full_matrices=False, check_finite=False
        )
        Q = Q[:, values > 1e-13 * np.sqrt(scale)]
        free = _complement(Q, min(end - start - Q.shape[1], k))
        blocks += [scipy.sparse.eye_array(alone), np.hstack([Q, free])]
        levels += [
            mu[position:start],
            np.full(blocks[-1].shape[1], mu[start:end].mean()),
        ]
        touched += [True] * (alone + Q.shape[1]) + [False] * free.shape[1]
        position = end
    blocks.append(scipy.sparse.eye_array(mu.size - position))
    touched += [True] * (mu.size - position)
    change = scipy.sparse.block_diag(blocks, format="csc")
    return np.concatenate([*levels, mu[position:]]), change, np.array(touched)


def _complement(Q: Matrix, wanted: int) -> Matrix:
    """Give orthonormal columns that are orthogonal to Q, near the leading axes."""
    axes = np.eye(Q.shape[0], min(Q.shape[0], wanted + Q.shape[1]))
    residual = axes - Q @ Q[: axes.shape[1]].T
    # pivoting prefers the axes that Q leaves most untouched
    vectors = scipy.linalg.qr(residual, mode="economic", pivoting=True)[0][:, :wanted]
    return scipy.linalg.qr(vectors - Q @ (Q.T @ vectors), mode="economic")[0]


def signed_factor(affinity: Matrix) -> tuple[Matrix, Matrix]:
    """Write a symmetric matrix as ``F @ diag(signs) @ F.T``, F as thin as can be."""
    values, vectors = np.linalg.eigh(affinity)
    keep = np.abs(values) > 1e-13 * max(np.abs(values).max(initial=0.0), 1e-300)
    values, vectors = values[keep], vectors[:, keep]
    return vectors * np.sqrt(np.abs(values)), np.sign(values)


def polar(A: Matrix) -> Matrix:
    """Give the orthonormal factor nearest to A (rows >= columns)."""
    left, _, right = scipy.linalg.svd(A, full_matrices=False, check_finite=False)
    return np.asarray(left @ right)


def flip_signs(features: Matrix) -> Matrix:
    """Give +1 or -1 per column, so that its entry largest in size becomes positive."""
    largest = features[np.abs(features).argmax(axis=0), np.arange(features.shape[1])]
    return np.where(largest < 0, -1.0, 1.0)
