"""Identify samples by their content, to find copies, overlaps and changes in place."""

from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.spatial import KDTree

from brainweave._core.arrays import Matrix, NumpyOps, column_chunks, ops_for

N_SIGNATURES = 4


def sample_signatures(X: Any) -> Matrix:
    """Return four sums of each sample's voxels with fixed signs, which identify it."""
    ops = ops_for(X)
    total = np.zeros((X.shape[0], N_SIGNATURES))
    for columns, raw in column_chunks(X):
        total += signed_sums(ops, ops.array(raw), columns)
    return total


def signed_sums(ops: NumpyOps, chunk: Any, columns: slice) -> Matrix:
    """Return the contribution of a chunk of columns to the signatures."""
    signs = voxel_signs(columns.start, columns.stop).astype(np.float64)
    with np.errstate(over="ignore", invalid="ignore"):
        sums = (chunk @ ops.array(signs)).astype(np.float64)
    if not np.isfinite(sums).all():  # values that are not finite count as zero
        sums = np.where(np.isfinite(chunk), chunk, 0).astype(np.float64) @ signs
    return np.asarray(sums)


def same_samples(a: ArrayLike, b: ArrayLike) -> NDArray[np.bool_]:
    """Return which samples of a occur in b, by their signatures."""
    a, b = np.asarray(a, np.float64), np.asarray(b, np.float64)
    known = b[np.isfinite(b).all(axis=1)]
    found = np.isfinite(a).all(axis=1)
    nearest, _ = KDTree(known).query(a[found], p=np.inf)
    found[found] = nearest <= rounding(a[found], np.float32)
    return found


def rounding(signatures: Matrix, dtype: Any) -> Matrix:
    """Return the largest rounding error of each sample's signatures."""
    # relative to the norm of the sample, about as large as a signature
    return np.asarray(100 * np.finfo(dtype).eps * np.abs(signatures).max(axis=1))


@lru_cache(maxsize=16)  # the subjects of a study share their chunks
def voxel_signs(start: int, stop: int) -> NDArray[np.int8]:
    """Return the fixed signs of some voxels, (n_voxels, 4).

    Each is a bit of a hash of the voxel's number (SplitMix64). Models store signatures,
    so signs must not depend on chunks or on a library's random generator.
    """
    x = np.arange(start + 1, stop + 1, dtype=np.uint64)
    x *= np.uint64(0x9E3779B97F4A7C15)
    x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    x ^= x >> np.uint64(31)
    bits = (x[:, None] >> np.arange(N_SIGNATURES, dtype=np.uint64)) & np.uint64(1)
    return (2 * bits.astype(np.int8) - 1).astype(np.int8, copy=False)
