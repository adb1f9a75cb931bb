r"""Block coordinate descent for a shared response with sparse individual terms.

The objective of one subject, with :math:`D = X - R W^\top`, is minimal over the
individual term for :math:`S = D - C`, where :math:`C` is :math:`D` clipped to
:math:`\pm\lambda`. So :math:`S` is never kept: what the other steps need follows from
:math:`C`, which is made anew for one chunk of voxels after the other,

.. math:: (X - S) W = R + C W, \qquad (X - S)^\top R' = W R^\top R' + C^\top R',

and the objective is :math:`\langle C, D \rangle - \frac12 \langle C, C \rangle`.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy.sparse
from numpy.typing import NDArray

from brainweave._arrays import NumpyOps, TorchOps, to_numpy
from brainweave.aligners.timelocked import Progress
from brainweave.linalg import polar

Matrix = NDArray[np.float64]
Floats = NDArray[Any]
Chunks = Iterable[tuple[slice, Any]]

# squared singular values, relative to the largest, that a Gram matrix resolves well
WELL_CONDITIONED = {"float64": 1e-8, "float32": 1e-4}
SETTLED = 1e-5  # change of a sample's response, relative to it, that ends the passes


@dataclass(frozen=True)
class Voxels:
    """A way to read one subject's standardised voxels again and again.

    Parameters
    ----------
    read : callable
        Begins a pass: gives (columns, chunk) pairs; chunks may be overwritten.
    ops : NumpyOps or TorchOps
        The operations of the kind of array that the chunks are.
    """

    read: Callable[[], Chunks]
    ops: NumpyOps | TorchOps

    def residuals(self, W: Floats, R: Matrix) -> Iterable[tuple[slice, Any, Any]]:
        """Return, per chunk, its columns, weights, and what the maps leave of it."""
        response = self.ops.array(R)
        for columns, z in self.read():
            weights = self.ops.array(W[columns])
            z -= response @ weights.T
            yield columns, weights, z


def respond(voxels: Voxels, W: Floats, R: Matrix, bound: float) -> tuple[Matrix, float]:
    """Return the response ``(X - S) W`` with the best S, and the objective before."""
    ops, response, value = voxels.ops, R.copy(), 0.0
    for _, weights, D in voxels.residuals(W, R):
        C = ops.clip(D, bound)
        response += to_numpy(C @ weights)
        value += ops.inner(C, D) - ops.inner(C, C) / 2
    return response, value


def realign(
    voxels: Voxels,
    W: Floats,
    R: Matrix,
    target: Matrix,
    bound: float,
    *,
    measure: bool = False,
) -> float:
    """Turn W, in place, to the polar factor of ``(X - S).T @ target``.

    S is the best one for the W and R given; the objective there is returned if it is
    to be measured, else NaN.
    """
    ops, value = voxels.ops, 0.0 if measure else np.nan
    carried, wanted = ops.array(R.T @ target), ops.array(target)
    for columns, weights, D in voxels.residuals(W, R):
        C = ops.clip(D, bound)
        W[columns] = to_numpy(weights @ carried + C.T @ wanted)
        if measure:
            value += ops.inner(C, D) - ops.inner(C, C) / 2
    orthonormalize(W)
    return value


def orthonormalize(W: Floats) -> None:
    """Replace W by its polar factor, in place."""
    metric = (W.T @ W).astype(np.float64)
    values, vectors = np.linalg.eigh(metric)
    if values[0] > WELL_CONDITIONED[W.dtype.name] * values[-1]:
        W[:] = W @ ((vectors / np.sqrt(values)) @ vectors.T).astype(W.dtype)
    else:
        W[:] = polar(W.astype(np.float64))


def individual_term(
    voxels: Voxels, W: Floats, R: Matrix, bound: float
) -> scipy.sparse.csc_array:
    """Return the best individual term, samples x voxels."""
    data, rows, counts = [], [], [np.zeros(1, dtype=np.int64)]
    n_samples = R.shape[0]
    for _, _, D in voxels.residuals(W, R):
        # by voxel, so that the columns of a sparse matrix follow each other
        S = np.ascontiguousarray(to_numpy(D - voxels.ops.clip(D, bound)).T)
        present = S != 0
        data.append(S[present])
        rows.append(np.nonzero(present)[1].astype(np.int32))
        counts.append(present.sum(axis=1))
    ends = np.cumsum(np.concatenate(counts))
    return scipy.sparse.csc_array(
        (np.concatenate(data), np.concatenate(rows), ends),
        shape=(n_samples, W.shape[0]),
    )


def fit_shared(
    subjects: list[Voxels],
    maps: list[Floats],
    start: Matrix,
    bound: float,
    *,
    over_subjects: Callable[..., list[Any]],
    progress: Progress,
) -> Matrix:
    """Descend over all maps, individual terms and the shared response, by turns.

    Parameters
    ----------
    subjects : list of Voxels
        What reads the subjects' voxels.
    maps : list of ndarray of shape (n_voxels_i, K)
        ``X_i.T @ start``, overwritten by the maps.
    start : ndarray of shape (n_samples, K)
        Shared response to start from.
    bound : float
        Weight of the individual terms.
    over_subjects : callable
        ``map`` over subjects, in threads.
    progress : Progress
        Records the objective after each round of maps, individual terms and response.

    Returns
    -------
    ndarray of shape (n_samples, K)
        The shared response.
    """
    n, previous, R = len(subjects), start, start
    over_subjects(orthonormalize, maps)
    while progress.go_on():
        if progress.n_iter:
            over_subjects(
                lambda v, W, before, now: realign(v, W, before, now, bound),
                subjects,
                maps,
                [previous] * n,
                [R] * n,
            )
        results = over_subjects(
            lambda v, W, now: respond(v, W, now, bound), subjects, maps, [R] * n
        )
        previous, R = R, np.asarray(sum(response for response, _ in results) / n)
        # the mean of the responses lowers the objective by their distance from it
        gain = n / 2 * float(((R - previous) ** 2).sum())
        progress.add(sum(value for _, value in results) - gain)
    return R


def fit_one(
    voxels: Voxels,
    W: Floats,
    target: Matrix,
    bound: float,
    *,
    new_progress: Callable[[float], Progress],
) -> Progress:
    """Descend over one map and its individual term; the response stays as it is.

    ``W``, at first ``X.T @ target``, is overwritten by the map. The objective is
    recorded for each map but the last.
    """
    orthonormalize(W)
    progress = new_progress(realign(voxels, W, target, target, bound, measure=True))
    while progress.go_on():
        progress.add(realign(voxels, W, target, target, bound, measure=True))
    return progress


def responses(
    voxels: Voxels, W: Floats, n_samples: int, bound: float, *, max_iter: int
) -> Matrix:
    """Return the robust responses of samples: the best ones for the map W alone.

    Each pass adds ``C W``. A sample is done once that is below ``SETTLED`` of its
    response, so that no sample depends on which others it came with.
    """
    R = np.zeros((n_samples, W.shape[1]))
    for columns, z in voxels.read():
        R += to_numpy(z @ voxels.ops.array(W[columns]))
    if not np.isfinite(R).all() or np.isinf(bound):
        return R
    moving = np.full(n_samples, True)
    for _ in range(max_iter):
        moved = np.where(moving[:, None], respond(voxels, W, R, bound)[0] - R, 0)
        R += moved
        length = np.linalg.norm(moved, axis=1)
        moving &= length > SETTLED * np.linalg.norm(R, axis=1)
        if not moving.any():
            break
    return R
