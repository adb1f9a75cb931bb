"""Numbers that identify a sample by its content: copies, overlaps, changes in place."""

from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.spatial import KDTree

from brainweave._core.arrays import (
    Matrix,
    NumpyOps,
    TorchOps,
    column_chunks,
    ops_for,
    to_numpy,
)

N_SIGNATURES = 4


def sample_signatures(X: Any) -> Matrix:
    """Return four numbers per sample of X that identify it.

    Each is the sum of the sample's voxels, every voxel with a fixed random sign. So
    they follow from the sample's content alone, whatever the order of the samples, the
    memory layout or the kind of array, up to the rounding of its dtype; another
    sample, or the same with its voxels in another order, has others. Values that are
    not finite count as zero.
    """
    ops = ops_for(X)
    total = np.zeros((X.shape[0], N_SIGNATURES))
    for columns, raw in column_chunks(X):
        total += signed_sums(ops, ops.array(raw), columns)
    return total


def signed_sums(ops: NumpyOps | TorchOps, chunk: Any, columns: slice) -> Matrix:
    """Return what a chunk of columns adds to the signatures of its samples."""
    signs = voxel_signs(columns.start, columns.stop).astype(np.float64)
    with np.errstate(over="ignore", invalid="ignore"):
        sums = to_numpy(chunk @ ops.array(signs)).astype(np.float64)
    if not np.isfinite(sums).all():
        values = to_numpy(chunk)
        sums = np.where(np.isfinite(values), values, 0).astype(np.float64) @ signs
    return np.asarray(sums)


def same_samples(a: ArrayLike, b: ArrayLike) -> NDArray[np.bool_]:
    """Return which samples of a occur in b, by their signatures.

    Samples that were stored in single precision in between are found, too.
    """
    a, b = np.asarray(a, np.float64), np.asarray(b, np.float64)
    known = b[np.isfinite(b).all(axis=1)]
    found = np.isfinite(a).all(axis=1)
    nearest, _ = KDTree(known).query(a[found], p=np.inf)
    found[found] = nearest <= rounding(a[found], np.float32)
    return found


def rounding(signatures: Matrix, dtype: Any) -> Matrix:
    """Return how far rounding may move each sample's signatures.

    A signature is about as large as the sample's norm, to which the rounding of its sum
    is relative; a sum of 50,000 float32 voxels is off by 3e-6 of that at most.
    """
    return np.asarray(100 * np.finfo(dtype).eps * np.abs(signatures).max(axis=1))


@lru_cache(maxsize=16)  # the subjects of a study have the same chunks
def voxel_signs(start: int, stop: int) -> NDArray[np.int8]:
    """Return the fixed signs of some voxels, (n_voxels, 4).

    Each is a bit of a hash of the voxel's number (SplitMix64), so that it depends
    neither on the chunk nor on a library's random generator: models keep signatures.
    """
    x = np.arange(start + 1, stop + 1, dtype=np.uint64)
    x *= np.uint64(0x9E3779B97F4A7C15)
    x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    x ^= x >> np.uint64(31)
    bits = (x[:, None] >> np.arange(N_SIGNATURES, dtype=np.uint64)) & np.uint64(1)
    return (2 * bits.astype(np.int8) - 1).astype(np.int8, copy=False)
