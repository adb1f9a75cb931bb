"""The pass over one subject's voxels: standardise, check, accumulate, read again."""

from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.spatial import KDTree

from brainweave._arrays import NumpyOps, TorchOps, column_chunks, ops_for, to_numpy
from brainweave.exceptions import InputError

Matrix = NDArray[np.float64]
N_SIGNATURES = 4


def sample_signatures(X: Any) -> Matrix:
    """Return a few numbers per sample that tell it from every other.

    Each is the sum of the sample's voxels, every voxel with a fixed random sign. So
    they follow from the sample's content alone, whatever the order of the samples, the
    memory layout or the kind of array, up to the rounding of its dtype; another
    sample, or the same with its voxels in another order, has others.

    Parameters
    ----------
    X : array of shape (n_samples, n_voxels)
        NumPy array, memory map, anything 2-D that can be sliced by columns, or a torch
        tensor.

    Returns
    -------
    ndarray of shape (n_samples, 4)
    """
    ops = ops_for(X)
    total = np.zeros((X.shape[0], N_SIGNATURES))
    for columns, raw in column_chunks(X):
        chunk = ops.array(raw)
        total += to_numpy(chunk @ ops.array(_voxel_signs(columns)))
    return total


def same_samples(
    a: ArrayLike, b: ArrayLike, *, dtype: Any = np.float32
) -> NDArray[np.bool_]:
    """Return which samples of a occur among those of b.

    Parameters
    ----------
    a, b : array of shape (n_samples, 4)
        What :func:`sample_signatures` returned for either.
    dtype : dtype, default=float32
        Whose rounding to allow for: that of the less precise side. The default finds
        samples again that were stored in single precision in between.

    Returns
    -------
    ndarray of bool of shape (n_samples of a,)
    """
    a, b = np.asarray(a, np.float64), np.asarray(b, np.float64)
    known = b[np.isfinite(b).all(axis=1)]
    found = np.isfinite(a).all(axis=1)
    if not known.size or not found.any():
        return np.zeros(len(a), dtype=bool)
    nearest, _ = KDTree(known).query(a[found], p=np.inf)
    found[found] = nearest <= _rounding(a[found], dtype)
    return found


def _rounding(signatures: Matrix, dtype: Any) -> Matrix:
    """Return how far rounding may move each sample's signatures.

    A signature is about as large as the sample's norm, to which the rounding of its sum
    is relative; a sum of 50,000 float32 voxels is off by 3e-6 of that at most.
    """
    return np.asarray(100 * np.finfo(dtype).eps * np.abs(signatures).max(axis=1))


def _voxel_signs(columns: slice) -> Matrix:
    """Return the fixed signs of some voxels, (n_voxels, 4).

    Each is a bit of a hash of the voxel's number (SplitMix64), so that it depends
    neither on the chunk nor on a library's random generator: models keep signatures.
    """
    x = np.arange(columns.start + 1, columns.stop + 1, dtype=np.uint64)
    x *= np.uint64(0x9E3779B97F4A7C15)
    x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    x ^= x >> np.uint64(31)
    bits = (x[:, None] >> np.arange(N_SIGNATURES, dtype=np.uint64)) & np.uint64(1)
    return 2.0 * bits - 1


class VoxelPass:
    """What of a :class:`~brainweave.SubjectBasis` touches voxels.

    Samples are read in chunks of columns and standardised chunk by chunk; a chunk is
    dropped before the next one comes. The data are referred to, not copied, and read
    again when voxel weights are wanted; sums taken on the first pass tell whether they
    were changed since.
    """

    name: str
    n_samples: int
    n_voxels: int
    standardize: bool
    dtype: np.dtype[Any]
    mean: Matrix
    scale: Matrix
    constant_voxels: NDArray[np.intp]
    signatures: Matrix
    _data: Any
    _probed: Matrix

    def _read_voxels(self, *, narrow: bool) -> tuple[Matrix, Matrix, float]:
        """Standardise column chunks and accumulate the samples' inner products.

        Gives these (or, where voxels are few, the standardised samples themselves) and
        what undoes the centring of voxels: products of the samples with the mean, and
        of the mean with itself.
        """
        ops = ops_for(self._data)
        n = self.n_samples
        rows = ops.array(np.vstack([np.full(n, 1 / n), _probe(n)]))
        self.mean, self.scale = np.empty(self.n_voxels), np.empty(self.n_voxels)
        self._probed = np.empty(self.n_voxels)
        self.signatures = np.zeros((n, N_SIGNATURES))
        kept: list[Matrix] = []
        gram: Any = None
        shift, offset = np.zeros(n), 0.0
        for columns, raw in column_chunks(self._data):
            chunk = ops.array(raw)
            mean, probed = to_numpy(rows @ chunk).astype(np.float64)
            if not np.isfinite(mean).all():
                self._refuse_non_finite(columns, to_numpy(chunk))
            signs = ops.array(_voxel_signs(columns))
            self.signatures += to_numpy(chunk @ signs)
            z = ops.subtract(chunk, ops.array(mean), transient=True)
            # a float32 mean is off by rounding; the mean of what is left is not
            rest = rows[:1] @ z
            z -= rest
            mean += to_numpy(rest)[0]
            squares = ops.column_square_sums(z)
            constant = squares <= n * (4 * np.finfo(self.dtype).eps * np.abs(mean)) ** 2
            if self.standardize:
                scale = np.sqrt(squares / n)
                z *= ops.array(np.divide(1, scale, where=~constant, out=0 * scale))
            else:
                scale = np.ones_like(mean)
                shift += to_numpy(z @ ops.array(mean)).astype(np.float64)
                offset += float(mean @ mean)
            self.mean[columns], self._probed[columns] = mean, probed
            self.scale[columns] = np.where(constant, np.inf, scale)
            if narrow:
                kept.append(to_numpy(z).astype(np.float64))
            else:
                gram = ops.add_gram(gram, z)
        self.constant_voxels = np.flatnonzero(np.isinf(self.scale))
        if self.constant_voxels.size == self.n_voxels:
            raise InputError(
                f"{self.name}: all {self.n_voxels} voxels are constant over its "
                f"{n} samples; there is nothing to align. Check the mask and the file."
            )
        return np.hstack(kept) if narrow else ops.full(gram), shift, offset

    def _refuse_non_finite(self, columns: slice, chunk: Any) -> None:
        bad = ~np.isfinite(chunk)
        sample, voxel = np.argwhere(bad)[0]
        raise InputError(
            f"{self.name} has NaN or infinite values, first at sample {sample}, voxel "
            f"{columns.start + voxel} ({bad.any(axis=0).sum()} such voxels in columns "
            f"{columns.start}-{columns.stop - 1}). Mask these voxels or drop these "
            "samples."
        )

    def _standardized(
        self, Z: Any, *, verify: bool = False
    ) -> Iterator[tuple[Any, Any]]:
        """Yield column chunks of Z standardised with this subject's mean and scale."""
        ops = ops_for(Z)
        probe = ops.array(_probe(self.n_samples)) if verify else None
        for columns, raw in column_chunks(Z):
            chunk = ops.array(raw)
            if verify:
                self._refuse_changed(columns, to_numpy(probe @ chunk), chunk)
            z = ops.subtract(chunk, ops.array(self.mean[columns]))
            z *= ops.array(1 / self.scale[columns])
            yield columns, z

    def _refuse_changed(self, columns: slice, probed: Matrix, chunk: Any) -> None:
        """Compare sums over samples with those of the first pass."""
        before, mean = self._probed[columns], self.mean[columns]
        spread = self.scale[columns] if self.standardize else to_numpy(chunk).std(0)
        # far above the rounding of sums, far below what another order of samples does
        rounding = 100 * np.finfo(self.dtype).eps * (np.abs(before) + np.abs(mean))
        rounding += 0.01 * spread / np.sqrt(self.n_samples)
        if (np.abs(probed - before) > rounding).any():
            raise InputError(
                f"{self.name} was changed in place after it was read; its voxel "
                "weights can no longer be computed. Fit again."
            )

    @property
    def ops(self) -> NumpyOps | TorchOps:
        """The operations for the kind of array that the samples are."""
        return ops_for(self._data)

    def chunks(self, *, verify: bool = True) -> Iterator[tuple[slice, Any]]:
        """Read the aligning samples again, standardised, by chunks of columns.

        For the methods that work on voxels. Each chunk is new and may be overwritten.
        Changed data are refused, unless the caller has just verified them.
        """
        if self._data is None:
            raise InputError(
                f"{self.name} is a precomputed Gram matrix, which has no voxels."
            )
        return self._standardized(self._data, verify=verify)

    def _dense(self, Z: Any) -> Matrix:
        out = np.hstack([to_numpy(z) for _, z in self._standardized(Z)])
        return out if self.standardize else out + self.mean

    def _combine(self, mixing: Matrix) -> NDArray[Any]:
        """Mix standardised samples into voxel patterns: ``X.T @ mixing``."""
        out = np.empty((self.n_voxels, mixing.shape[1]), dtype=self.dtype)
        ops, single = ops_for(self._data), self.dtype == np.float32
        # one more column tells whether the data are still those of the first pass
        extended = np.column_stack([mixing, _probe(self.n_samples)])
        columns_of, sums = ops.array(extended), extended.sum(axis=0)
        for columns, raw in column_chunks(self._data):
            chunk, mean = ops.array(raw), self.mean[columns]
            # double precision can take the mean off the product, and spare a copy
            z = chunk
            if single:
                z = ops.subtract(chunk, ops.array(mean), transient=True)
            mixed = to_numpy(z.T @ columns_of).astype(np.float64, copy=False)
            of_mean = mean[:, None] * sums
            probed = mixed[:, -1] + of_mean[:, -1] if single else mixed[:, -1]
            self._refuse_changed(columns, probed, chunk)
            if not single:
                mixed -= of_mean
            out[columns] = mixed[:, :-1] / self.scale[columns, None]
        return out


def _probe(n_samples: int) -> Matrix:
    """Give fixed random signs over samples, whose sums reveal changed data."""
    signs = np.random.default_rng(n_samples).integers(0, 2, n_samples)
    return (2.0 * signs - 1) / n_samples
