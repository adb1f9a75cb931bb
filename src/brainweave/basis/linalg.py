r"""Solve symmetric eigenproblems of the form *block diagonal minus low rank*.

In the eigenbasis of the blocks the matrix is ``diag(mu) - U diag(j) U.T``. It is never
formed: a block iteration solves the problem. Its result is used only if a second one
finds no smaller eigenvalue.
"""

from collections.abc import Callable
from typing import Any

import numpy as np
import scipy.linalg
import scipy.sparse

from brainweave._core.arrays import Matrix
from brainweave._core.exceptions import SolverError

Eigenpairs = tuple[Matrix, Matrix]
Operator = Callable[[Matrix], Matrix]
Inverse = tuple[float, Operator]  # a shift, and the inverse at that shift

TIE = 1e-12  # entries of mu closer than this, relative to the scale, are equal
CONVERGED = 1e-12  # residuals below this, relative to the scale, are rounding
CLUSTER = 1e-10  # eigenvalues closer than this, relative to the scale, are one
WELL_CONDITIONED = 1e-7  # least squared singular value that may be inverted, relative
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


def smallest_of_operator(
    multiply: Operator, size: int, k: int, *, inverse: Inverse | None = None
) -> Eigenpairs:
    """Return the k smallest eigenpairs of a symmetric operator."""
    # what a second iteration, from another start, does not confirm is left to LAPACK
    if size > max(DENSE_LIMIT // 4, 4 * k):
        found = block_iteration(multiply, size, k, inverse=inverse)
        if found is not None and _nothing_below(multiply, *found, inverse):
            return found
    if size > LARGEST_DENSE:
        raise SolverError(
            f"The iterative solver could not find the {k} smallest eigenpairs of a "
            f"problem of size {size}, which is too large for the dense solver. Lower "
            "energy or n_components."
        )
    matrix = multiply(np.eye(size))
    return smallest_eigenpairs((matrix + matrix.T) / 2, k)


def _nothing_below(
    multiply: Operator, values: Matrix, vectors: Matrix, inverse: Inverse | None
) -> bool:
    """Return whether another iteration finds no smaller eigenvalue than the last."""
    lift = (values[-1] - values)[:, None]

    def lifted(x: Matrix) -> Matrix:
        # what was found is moved up to the last value: anything smaller was missed
        return multiply(x) + vectors @ (lift * (vectors.T @ x))

    again = block_iteration(lifted, len(vectors), 1, inverse=inverse, seed=1)
    if again is None:
        return False
    scale = max(np.abs(values).max(), np.sqrt((multiply(vectors) ** 2).sum(0)).max())
    return bool(again[0][0] >= values[-1] - CLUSTER * scale)


def block_iteration(
    multiply: Operator,
    size: int,
    k: int,
    *,
    inverse: Inverse | None = None,
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

    With U = Q R, it is ``level * I - R J R.T`` in the columns of Q; other directions
    have the level. If U is wide and all signs are positive, ``U.T @ U`` solves it.
    """
    size = len(U)
    if U.shape[1] > max(WIDE_RANK, 16 * k) and (signs > 0).all():
        found = _largest_of_outer_product(U, k)
        if found is not None:
            return level - found[0], found[1]
    others = min(max(size - U.shape[1], 0), k)  # any directions, with a sign of zero
    some = np.random.default_rng(0).standard_normal((size, others))
    signs = np.concatenate([signs, np.zeros(others)])
    Q, R = scipy.linalg.qr(np.hstack([U, some]), mode="economic", check_finite=False)
    values, inner = smallest_eigenpairs(-(R * signs) @ R.T, k)
    return level + values, Q @ inner


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

    Takes O(size rank^2) time, or O(size^3) if the result cannot be confirmed. What is
    left at the crowded edge of mu is found by the inverse just below it (Woodbury).
    """
    scale = np.abs(mu).max()
    if np.ptp(mu) <= TIE * scale:
        return smallest_of_constant_minus_low_rank(float(mu.mean()), U, signs, k)

    def multiply(x: Matrix) -> Matrix:
        return np.asarray(mu[:, None] * x - U @ (signs[:, None] * (U.T @ x)))

    if mu.size <= max(DENSE_LIMIT, 2 * k):
        return smallest_eigenpairs(np.diag(mu) - (U * signs) @ U.T, k)
    low = np.partition(mu, k)
    step = (low[k] - mu.min()) / k
    # a tie needs no close shift to be found
    edge = float(mu.min() - (step if step >= 1e-8 * scale else 1e-3 * scale))
    inverse = 1 / (mu - edge)
    scaled = inverse[:, None] * U
    factored = scipy.linalg.lu_factor(np.diag(signs) - scaled.T @ U)

    def solve(b: Matrix) -> Matrix:
        inner = scipy.linalg.lu_solve(factored, scaled.T @ b, check_finite=False)
        return np.asarray(inverse[:, None] * b + scaled @ inner)

    return smallest_of_operator(multiply, mu.size, k, inverse=(edge, solve))


def signed_factor(affinity: Matrix) -> tuple[Any, Matrix]:
    """Factor a symmetric matrix as ``F @ diag(signs) @ F.T`` with the thinnest F."""
    diagonal = np.diag(affinity)
    if np.count_nonzero(affinity) == np.count_nonzero(diagonal):
        # a diagonal matrix, such as that of a time graph: the factor is sparse
        values, vectors = diagonal, scipy.sparse.eye_array(len(affinity), format="csc")
    else:
        values, vectors = np.linalg.eigh(affinity)
    keep = np.abs(values) > 1e-13 * max(np.abs(values).max(initial=0.0), 1e-300)
    values, vectors = values[keep], vectors[:, keep]
    return vectors * np.sqrt(np.abs(values)), np.sign(values)


def polar(A: Matrix) -> Matrix:
    r"""Return the matrix with orthonormal columns (or rows, if fewer) nearest to A.

    It is :math:`A (A^\top A)^{-1/2}`: by the eigenbasis of :math:`A^\top A` if that is
    well conditioned, else by the SVD.
    """
    if A.shape[0] < A.shape[1]:
        return polar(A.T).T
    values, Q = np.linalg.eigh(A.T @ A)
    if values[0] > WELL_CONDITIONED * values[-1]:
        half = Q / np.sqrt(np.sqrt(values))
        return np.asarray(A @ (half @ half.T))
    left, _, right = np.linalg.svd(A, full_matrices=False)
    return np.asarray(left @ right)


def flip_signs(features: Matrix) -> Matrix:
    """Return the sign per column that makes its entry of largest size positive."""
    largest = features[np.abs(features).argmax(axis=0), np.arange(features.shape[1])]
    return np.where(largest < 0, -1.0, 1.0)
