r"""Solve symmetric eigenproblems of the form *block diagonal minus low rank*.

In the eigenbasis of the blocks the matrix is ``diag(mu) - U diag(j) U.T``. It is never
formed: equal entries of ``mu`` are decoupled exactly (the deflation of Cuppen's
divide-and-conquer method, 1981), and a block iteration solves the rest. Its result is
used only if Sylvester's law of inertia confirms that no eigenvalue was missed.
"""

from collections.abc import Callable
from typing import Any

import numpy as np
import scipy.linalg
import scipy.sparse
from numpy.typing import NDArray

from brainweave._core.arrays import Matrix
from brainweave._core.exceptions import SolverError

Eigenpairs = tuple[Matrix, Matrix]
Operator = Callable[[Matrix], Matrix]

TIE = 1e-12  # entries of mu closer than this, relative to the scale, are equal
CONVERGED = 1e-12  # residuals below this, relative to the scale, are rounding
CLUSTER = 1e-10  # eigenvalues closer than this, relative to the scale, are one
WELL_CONDITIONED = 1e-7  # least squared singular value that may be inverted, relative
ALL_BUT_ORTHONORMAL = 0.3  # largest deviation of the Gram matrix's eigenvalues from 1
MANY_COLUMNS = 100  # from here on, products are faster than an eigendecomposition
WIDE_RANK = 800  # from here on, U.T @ U is faster than reflections
DENSE_LIMIT = 400  # up to this size, LAPACK is faster than an iteration
DENSE_PRODUCT = 1500  # the same for U.T @ U, where an iteration may be slow to converge
LARGEST_DENSE = 30_000  # largest full matrix that is tried (7 GB)


def smallest_eigenpairs(matrix: Matrix, k: int) -> Eigenpairs:
    """Return the k smallest eigenvalues, ascending, and their eigenvectors."""
    k = min(k, matrix.shape[0])
    how: Any = {"subset_by_index": [0, k - 1], "driver": "evr", "check_finite": False}
    try:
        values, vectors = scipy.linalg.eigh(matrix, **how)
    except scipy.linalg.LinAlgError:  # "evr" may fail if most eigenvalues are equal
        values, vectors = np.linalg.eigh(matrix)
    return values[:k], vectors[:, :k]


def smallest_of_operator(multiply: Operator, size: int, k: int) -> Eigenpairs:
    """Return the k smallest eigenpairs of a symmetric operator.

    A block iteration finds them. If a second one, from another fixed start, finds a
    smaller eigenvalue, or one of them does not converge, the matrix is formed.
    """
    if size > max(DENSE_LIMIT // 4, 4 * k):
        found = block_iteration(multiply, size, k)
        if found is not None and _nothing_below(multiply, *found):
            return found
    if size > LARGEST_DENSE:
        raise SolverError(
            f"The iterative solver could not find the {k} smallest eigenpairs of a "
            f"problem of size {size}, which is too large for the dense solver. Lower "
            "energy or n_components."
        )
    matrix = multiply(np.eye(size))
    return smallest_eigenpairs((matrix + matrix.T) / 2, k)


def _nothing_below(multiply: Operator, values: Matrix, vectors: Matrix) -> bool:
    """Return whether another iteration finds no smaller eigenvalue than the last."""
    lift = (values[-1] - values)[:, None]

    def lifted(x: Matrix) -> Matrix:
        # move what was found up to the last value: anything smaller was missed
        return multiply(x) + vectors @ (lift * (vectors.T @ x))

    again = block_iteration(lifted, len(vectors), 1, seed=1)
    if again is None:
        return False
    scale = max(np.abs(values).max(), np.sqrt((multiply(vectors) ** 2).sum(0)).max())
    return bool(again[0][0] >= values[-1] - CLUSTER * scale)


def block_iteration(
    multiply: Operator,
    size: int,
    k: int,
    *,
    inverse: tuple[float, Operator] | None = None,
    seed: int = 0,
) -> Eigenpairs | None:
    """Search the k smallest eigenpairs in a growing space (Davidson's block method).

    The space grows by the residuals of vectors that have not converged; above the shift
    of an ``inverse`` these are multiplied by it, once and twice. Return None if that
    costs about half of a full decomposition.
    """
    start = np.random.default_rng(seed).standard_normal((size, k + 4))
    limit = min(size // 4, max(1000, 12 * k))
    if limit < 2 * start.shape[1]:
        return None
    Q = np.empty((size, limit), order="F")
    MQ = np.empty((size, limit), order="F")
    H = np.empty((limit, limit))
    m, scale = 0, 1e-300
    fresh = start if inverse is None else np.hstack([start, inverse[1](start)])
    while True:
        fresh = _orthonormal_to(Q[:, :m], fresh)
        p = fresh.shape[1]
        if p == 0 or m + p > limit:
            return None
        Q[:, m : m + p], MQ[:, m : m + p] = fresh, multiply(fresh)
        H[: m + p, m : m + p] = Q[:, : m + p].T @ MQ[:, m : m + p]
        H[m : m + p, :m] = H[:m, m : m + p].T
        m += p
        values, inner = smallest_eigenpairs((H[:m, :m] + H[:m, :m].T) / 2, k)
        scale = max(scale, float(np.sqrt((MQ[:, m - p : m] ** 2).sum(axis=0).max())))
        vectors = Q[:, :m] @ inner
        residuals = MQ[:, :m] @ inner - vectors * values
        norms = np.sqrt((residuals**2).sum(axis=0))
        active = norms > CONVERGED * scale
        if not active.any():
            return values, vectors
        fresh = residuals[:, active] / norms[active]
        if inverse is not None:
            shift, solve = inverse
            low = values[active] < shift
            near = solve(fresh[:, ~low])
            fresh = np.hstack([fresh[:, low], near, solve(near)])


def _orthonormal_to(Q: Matrix, fresh: Matrix) -> Matrix:
    """Return an orthonormal basis of the part of the vectors orthogonal to Q."""
    norms = np.sqrt((fresh**2).sum(axis=0))
    fresh = fresh[:, norms > 0] / norms[norms > 0]
    how: Any = {"mode": "economic", "pivoting": True, "check_finite": False}
    for _ in range(2):  # twice is enough (Kahan and Parlett)
        fresh, R, _ = scipy.linalg.qr(fresh - Q @ (Q.T @ fresh), **how)
        fresh = fresh[:, np.abs(np.diag(R)) > 1e-10]
    return np.asarray(fresh)


def smallest_of_constant_minus_low_rank(
    level: float, U: Matrix, signs: Matrix, k: int
) -> Eigenpairs:
    """Return the k smallest eigenpairs of ``level * I - U @ diag(signs) @ U.T``.

    With the decomposition U = Q R by Householder reflections, the problem is
    ``level * I - R J R.T`` in the first columns of Q. If U is wide and all signs are
    positive, it is solved by ``U.T @ U``.
    """
    size = len(U)
    if U.shape[1] > max(WIDE_RANK, 16 * k) and (signs > 0).all():
        found = _largest_of_outer_product(U, k)
        if found is not None:
            return level - found[0], found[1]
    (packed, tau), R = scipy.linalg.qr(U, mode="raw", check_finite=False)
    R = np.triu(R[: min(U.shape)])
    values, inner = smallest_eigenpairs(-(R * signs) @ R.T, k)
    others = min(size - len(R), k)
    values = np.concatenate([values, np.zeros(others)])
    vectors = np.zeros((size, values.size), order="F")
    vectors[: len(R), : inner.shape[1]] = inner
    vectors[len(R) : len(R) + others, inner.shape[1] :] = np.eye(others)
    keep = np.argsort(values, kind="stable")[:k]
    ormqr = scipy.linalg.get_lapack_funcs("ormqr", (packed,))
    columns = min(packed.shape[1], tau.size)
    lwork = int(ormqr("L", "N", packed[:, :columns], tau, vectors, -1)[1][0])
    turned, _, _ = ormqr("L", "N", packed[:, :columns], tau, vectors[:, keep], lwork)
    return level + values[keep], np.asarray(turned)


def _largest_of_outer_product(U: Matrix, k: int) -> Eigenpairs | None:
    """Return the k largest eigenpairs of ``U @ U.T``; None if squaring loses them."""
    P = U.T @ U
    if len(P) <= DENSE_PRODUCT:
        values, q = smallest_eigenpairs(-P, k)
    else:
        values, q = smallest_of_operator(lambda x: -(P @ x), len(P), k)
    if -values[-1] <= 1e-6 * -values[0]:
        return None
    basis = scipy.linalg.qr(U @ q, mode="economic", check_finite=False)[0]
    across = U.T @ basis
    mu, turn = np.linalg.eigh(across.T @ across)
    return mu[::-1], basis @ turn[:, ::-1]


def smallest_of_diagonal_minus_low_rank(
    mu: Matrix, U: Matrix, signs: Matrix, k: int
) -> Eigenpairs:
    """Return the k smallest eigenpairs of ``diag(mu) - U @ diag(signs) @ U.T``.

    Takes O(size rank^2) time; a result that cannot be confirmed is computed again in
    O(size^3).
    """
    if np.ptp(mu) <= TIE * np.abs(mu).max():
        return smallest_of_constant_minus_low_rank(float(mu.mean()), U, signs, k)
    order = np.argsort(mu, kind="stable")
    U = U[order]
    mu, change, touched = _decouple(mu[order], U, k)
    U = U if change is None else change.T @ U
    values, vectors = _LowRankProblem(mu[touched], U[touched], signs).smallest(k)
    untouched = np.flatnonzero(~touched)
    all_values = np.concatenate([values, mu[untouched]])
    keep = np.argsort(all_values, kind="stable")[:k]
    out = np.zeros((mu.size, keep.size))
    inside = keep < values.size
    out[np.ix_(touched, inside)] = vectors[:, keep[inside]]
    out[untouched[keep[~inside] - values.size], np.flatnonzero(~inside)] = 1.0
    result = np.empty((order.size, keep.size))
    result[order] = out if change is None else change @ out
    return all_values[keep], result


class _LowRankProblem:
    """The matrix ``diag(mu) - U diag(signs) U^T`` with ascending mu.

    The few eigenvalues below all of mu are far apart, and products with the matrix find
    them. At the crowded lower edge of mu only the inverse, shifted to just below the
    edge, converges fast. By Woodbury's identity it costs no more than a product.
    """

    def __init__(self, mu: Matrix, U: Matrix, signs: Matrix) -> None:
        self.mu, self.U, self.signs = mu, U, signs
        largest = np.concatenate([np.abs(mu), (U * U).sum(axis=0)])
        self.scale = float(largest.max(initial=0.0))

    def smallest(self, k: int) -> Eigenpairs:
        """Return the k smallest eigenpairs."""
        size = self.mu.size
        k = min(k, size)
        if not size:  # U is zero
            return self.mu, self.U[:, :0]
        if size > max(DENSE_LIMIT, 2 * k):
            found = block_iteration(self.multiply, size, k, inverse=self._inverse(k))
            if found is not None and self.confirms(*found):
                return found
        return smallest_eigenpairs(
            np.diag(self.mu) - (self.U * self.signs) @ self.U.T, k
        )

    def multiply(self, x: Matrix) -> Matrix:
        """Multiply by the matrix."""
        low_rank = self.U @ (self.signs[:, None] * (self.U.T @ x))
        return np.asarray(self.mu[:, None] * x - low_rank)

    def _capacitance(self, shift: float) -> Matrix:
        scaled = self.U / (self.mu - shift)[:, None]
        return np.asarray(np.diag(self.signs) - scaled.T @ self.U)

    def count_below(self, x: float) -> int:
        """Count the eigenvalues below x."""
        negative = (np.linalg.eigvalsh(self._capacitance(x)) < 0).sum()
        return int((self.mu < x).sum() + negative - (self.signs < 0).sum())

    def confirms(self, values: Matrix, vectors: Matrix) -> bool:
        """Return whether these are the smallest eigenpairs and none is missing.

        Each vector with a small residual has an eigenvalue close to its value (Kahan):
        counting those below a gap before the last cluster shows if there are others.
        """
        residual = self.multiply(vectors) - vectors * values
        skew = np.abs(vectors.T @ vectors - np.eye(values.size)).max()
        if skew >= 1e-10 or np.sqrt((residual**2).sum()) >= CLUSTER / 4 * self.scale:
            return False
        width = CLUSTER * self.scale
        gaps = np.flatnonzero(np.diff(values, prepend=-np.inf) > width)
        below = int(gaps[-1])  # values under the last cluster
        top = values[below] - width / 4
        # any point of this interval will do: eigenvalues inside of it are ties
        bottom = top - width
        if below:
            bottom = max(bottom, values[below - 1] + width / 4)
        points, weight = np.linspace(bottom, top, 9), (self.U**2).sum(axis=1)
        amplified = [(weight / np.abs(self.mu - x)).max() for x in points]
        clear = float(points[int(np.argmin(amplified))])  # counting is best conditioned
        return self.count_below(clear) == below

    def _inverse(self, k: int) -> tuple[float, Operator] | None:
        """Return a shift just below the edge of mu, and the inverse at that shift."""
        step = max((self.mu[k] - self.mu[0]) / k, 1e-8 * self.scale)
        edge = float(self.mu[0] - step)
        if self.count_below(edge) >= k:  # all eigenvalues lie below the edge
            return None
        inverse = 1 / (self.mu - edge)
        scaled = inverse[:, None] * self.U
        factored = scipy.linalg.lu_factor(self._capacitance(edge), check_finite=False)

        def solve(b: Matrix) -> Matrix:
            inner = scipy.linalg.lu_solve(factored, scaled.T @ b, check_finite=False)
            return np.asarray(inverse[:, None] * b + scaled @ inner)

        return edge, solve


def _decouple(mu: Matrix, U: Matrix, k: int) -> tuple[Matrix, Any, NDArray[np.bool_]]:
    """Separate the directions orthogonal to U within runs of equal mu (ascending).

    Each is an eigenvector with eigenvalue mu, and at most k of each run are needed.
    Return the new diagonal, the change of basis (or None) and which entries U touches.
    """
    scale = max(np.abs(mu).max(), (U * U).sum(axis=0).max(initial=0.0), 1e-300)
    starts = np.flatnonzero(np.diff(mu, prepend=-np.inf) > TIE * scale)
    ends = np.append(starts[1:], mu.size)
    tied = ends - starts > 1
    if not tied.any():
        return mu, None, np.ones(mu.size, dtype=bool)
    blocks, levels, touched, position = [], [], [], 0
    for start, end in zip(starts[tied], ends[tied], strict=True):
        alone, part = start - position, U[start:end]
        Q, values, _ = scipy.linalg.svd(part, full_matrices=False, check_finite=False)
        Q = Q[:, values > 1e-13 * np.sqrt(scale)]
        free = _complement(Q, min(len(part) - Q.shape[1], k))
        blocks += [scipy.sparse.eye_array(alone), np.hstack([Q, free])]
        equal = np.full(Q.shape[1] + free.shape[1], mu[start:end].mean())
        levels += [mu[position:start], equal]
        touched += [True] * (alone + Q.shape[1]) + [False] * free.shape[1]
        position = end
    blocks.append(scipy.sparse.eye_array(mu.size - position))
    touched += [True] * (mu.size - position)
    change = scipy.sparse.block_diag(blocks, format="csc")
    return np.concatenate([*levels, mu[position:]]), change, np.array(touched)


def _complement(Q: Matrix, wanted: int) -> Matrix:
    """Return orthonormal columns that are orthogonal to Q, near the leading axes."""
    axes = np.eye(Q.shape[0], min(Q.shape[0], wanted + Q.shape[1]))
    residual = axes - Q @ Q[: axes.shape[1]].T
    # pivoting prefers the axes that Q leaves most untouched
    vectors = scipy.linalg.qr(residual, mode="economic", pivoting=True)[0][:, :wanted]
    return scipy.linalg.qr(vectors - Q @ (Q.T @ vectors), mode="economic")[0]


def signed_factor(affinity: Matrix) -> tuple[Any, Matrix]:
    """Factor a symmetric matrix as ``F @ diag(signs) @ F.T`` with the thinnest F.

    The factor of a diagonal matrix, such as that of a time graph, is sparse.
    """
    diagonal = np.diag(affinity)
    if np.count_nonzero(affinity) == np.count_nonzero(diagonal):
        values, vectors = diagonal, scipy.sparse.eye_array(len(affinity), format="csc")
    else:
        values, vectors = np.linalg.eigh(affinity)
    keep = np.abs(values) > 1e-13 * max(np.abs(values).max(initial=0.0), 1e-300)
    values, vectors = values[keep], vectors[:, keep]
    return vectors * np.sqrt(np.abs(values)), np.sign(values)


def polar(A: Matrix) -> Matrix:
    r"""Return the matrix with orthonormal columns (or rows, if fewer) nearest to A.

    It is :math:`A (A^\top A)^{-1/2}`: by matrix products if A is almost orthonormal, by
    the eigenbasis of :math:`A^\top A` if it is well conditioned, else by the SVD.
    """
    if A.shape[0] < A.shape[1]:
        return polar(A.T).T
    gram = A.T @ A
    squares = gram.diagonal()  # the eigenvalues spread at least as wide
    if squares.min() > WELL_CONDITIONED * squares.max():
        found = _polar_by_products(A, gram) if len(gram) >= MANY_COLUMNS else None
        if found is not None:
            return found
        values, Q = np.linalg.eigh(gram)
        if values[0] > WELL_CONDITIONED * values[-1]:
            half = Q / np.sqrt(np.sqrt(values))
            return np.asarray(A @ (half @ half.T))
    left, _, right = np.linalg.svd(A, full_matrices=False)
    return np.asarray(left @ right)


def _polar_by_products(A: Matrix, gram: Matrix) -> Matrix | None:
    """Iterate by Newton and Schulz, or return None if A is far from orthonormal."""
    n = len(gram)
    scale = n / np.trace(gram)
    rest = np.eye(n) - scale * gram
    probe = rest[:, :4]  # power iteration, to estimate the largest eigenvalue
    for _ in range(6):
        probe = rest @ (probe / max(np.linalg.norm(probe), 1e-300))
    if not np.linalg.norm(probe) < ALL_BUT_ORTHONORMAL:
        return None
    A = A * np.sqrt(scale)
    for _ in range(5):
        distance = np.linalg.norm(rest)
        if distance < 1e-6:  # one more product leaves its square
            return A if distance < n * 1e-14 else A + A @ (rest / 2)
        A = A + A @ (rest / 2 + 0.375 * (rest @ rest.T))
        rest = np.eye(n) - A.T @ A
    return None


def flip_signs(features: Matrix) -> Matrix:
    """Return the sign per column that makes its entry of largest size positive."""
    largest = features[np.abs(features).argmax(axis=0), np.arange(features.shape[1])]
    return np.where(largest < 0, -1.0, 1.0)
