"""The pass over one subject's voxels: standardise, check, accumulate, read again.

Samples are identified by their content, to find copies, overlaps and changes in place.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.spatial import KDTree

from brainweave._core.arrays import Matrix, NumpyOps, column_chunks, ops_for, to_numpy
from brainweave._core.exceptions import InputError, SkippedWarning, warn_user
from brainweave.basis.device import Device

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


def warn_of_constant_voxels(passes: Sequence["VoxelPass"]) -> None:
    """Warn of subjects more than half of whose voxels were left out as constant."""
    empty = [p for p in passes if p.constant_voxels.size > p.n_voxels / 2]
    if empty:
        more = f" ({len(empty)} of {len(passes)} subjects)" if len(passes) > 1 else ""
        warn_user(
            f"{empty[0].name}: {empty[0].constant_voxels.size} of its "
            f"{empty[0].n_voxels} voxels are constant over its samples and were left "
            f"out{more}. Check the mask and the file.",
            SkippedWarning,
        )


@dataclass(frozen=True)
class SampleProducts:
    """Inner products of other samples with a subject's aligning samples.

    They stand in for the samples at every energy and kernel but a callable.
    """

    cross: Matrix
    squares: Matrix


class VoxelPass:
    """Reads one subject's voxels: the base of :class:`~brainweave.SubjectBasis`.

    Samples are read and standardised in chunks of columns, and read again when voxel
    weights are wanted; signatures of the first pass show whether they were changed.
    """

    name: str
    n_samples: int
    n_voxels: int
    standardize: bool | str
    dtype: np.dtype[Any]
    mean: Matrix
    scale: Matrix
    constant_voxels: NDArray[np.intp]
    signatures: Matrix
    _data: Any
    _device: Device | None = None

    def _read_voxels(self, *, narrow: bool) -> Any:
        """Standardise column chunks and accumulate the samples' inner products.

        Return these, or, where voxels are few, the standardised samples themselves.
        """
        if self._device is not None and not narrow:
            found = self._read_on_device(self._device)
            if found is not None:
                return found
        return self._read_by_numpy(narrow=narrow)

    @np.errstate(over="ignore", invalid="ignore")  # what overflows is refused
    def _read_by_numpy(self, *, narrow: bool) -> Matrix:
        ops, n = NumpyOps(self.dtype), self.n_samples
        self.mean, self.scale = np.empty(self.n_voxels), np.empty(self.n_voxels)
        signatures = np.zeros((n, N_SIGNATURES))
        kept: list[Matrix] = []
        gram: Any = None
        for columns, raw in column_chunks(self._data):
            chunk = ops.array(raw)
            mean = _means(chunk).astype(np.float64)
            if not np.isfinite(mean).all():
                sample, voxel = np.argwhere(~np.isfinite(chunk))[0]
                raise InputError(
                    f"{self.name} has NaN or infinite values, first at sample "
                    f"{sample}, voxel {columns.start + voxel}. Mask such voxels or "
                    "drop such samples."
                )
            signatures += signed_sums(ops, chunk, columns)
            z = ops.subtract(chunk, ops.array(mean), transient=True)
            rest = _means(z)  # of single precision, what rounding left of the mean
            z -= rest
            mean += rest
            scale = _deviations(z)
            constant = scale <= self._smallest_deviation(mean)
            if self.standardize:
                z *= ops.array(np.divide(1, scale, where=~constant, out=0 * scale))
            else:
                scale = np.ones_like(mean)
            self.mean[columns] = mean
            self.scale[columns] = np.where(constant, np.inf, scale)
            if narrow:
                kept.append(z.astype(self.dtype))
            elif gram is None:  # a second matrix of this size takes time and memory
                gram = (z @ z.T).astype(np.float64, copy=False)
            else:
                gram += z @ z.T
        self.constant_voxels = np.flatnonzero(np.isinf(self.scale))
        if self.constant_voxels.size == self.n_voxels:
            raise InputError(
                f"{self.name}: all {self.n_voxels} voxels are constant over its {n} "
                "samples; there is nothing to align. Check the mask and the file."
            )
        read = np.hstack(kept) if narrow else gram
        self.signatures = signatures
        squares = _square_sums(read.T.astype(float)) if narrow else read.diagonal()
        if not all(np.isfinite(x).all() for x in (squares, signatures)):
            remedy = "" if self.standardize else ", or keep standardize=True"
            raise InputError(
                f"{self.name}: its values are too large for sums of products in "
                f"{self.dtype}. Divide the samples by a constant{remedy}."
            )
        return read

    def _smallest_deviation(self, mean: Matrix) -> Matrix:
        """Return the deviation up to which voxels of these means are constant."""
        limits = np.finfo(self.dtype)
        return np.maximum(4 * limits.eps * np.abs(mean), float(limits.tiny))

    def _read_on_device(self, device: Device) -> Any:
        """Read voxels on a device, where the inner products stay."""
        n, v, eps = self.n_samples, self.n_voxels, float(np.finfo(self.dtype).eps)
        gram, signatures = device.zeros(n, n), device.zeros(n, N_SIGNATURES)
        means, deviations = device.zeros(v), device.zeros(v)
        signs = device.put(voxel_signs(0, v)).double()
        for columns, raw in device.chunks(self._data):
            chunk = raw.to(device.dtype)
            mean = chunk.mean(0)
            z = chunk - mean
            rest = z.mean(0)
            z -= rest
            mean = mean.double() + rest
            scale = (z * z).mean(0).double().sqrt()
            # in double whatever the products are in: they are compared with the data's
            exact = chunk if chunk.dtype == signs.dtype else raw.double()
            signatures += exact @ signs[columns]
            if self.standardize:
                moving = scale > 4 * eps * mean.abs()
                z *= (moving / scale.where(moving, scale.new_ones(()))).to(z.dtype)
            means[columns], deviations[columns] = mean, scale
            device.add_products(gram, z)
        device.mirror(gram)
        mean, scale = to_numpy(means), to_numpy(deviations)
        low, high = _safe_range(self.dtype)
        plain = (scale == 0) | ((scale > low) & (scale < high))
        constant = scale <= self._smallest_deviation(mean)
        sums = to_numpy(signatures), float(gram.diagonal().sum())
        finite = all(np.isfinite(values).all() for values in sums)
        if constant.all() or not plain.all() or not finite:
            return None
        self.mean, self.signatures = mean, to_numpy(signatures)
        if not self.standardize:
            scale = np.ones_like(mean)
        self.scale = np.where(constant, np.inf, scale)
        self.constant_voxels = np.flatnonzero(constant)
        return gram

    @property
    def ops(self) -> NumpyOps:
        """The operations in the working precision of the samples."""
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
        found = np.zeros((self.n_samples, N_SIGNATURES))
        for columns, raw in column_chunks(self._data):
            chunk = self.ops.array(raw)
            if verify:
                found += signed_sums(self.ops, chunk, columns)
            yield columns, self._standardize(self.ops, chunk, columns)
        if verify:
            self._refuse_changed(found)

    def _standardize(
        self, ops: NumpyOps, chunk: Any, columns: slice, **how: bool
    ) -> Any:
        z = ops.subtract(ops.array(chunk), ops.array(self.mean[columns]), **how)
        z *= ops.array(1 / self.scale[columns])
        return z

    def _refuse_changed(self, found: Matrix) -> None:
        """Compare the signatures of samples read again with those of the first pass."""
        moved = np.abs(found - self.signatures).max(axis=1)
        changed = ~(moved <= rounding(self.signatures, self.dtype))
        if changed.any():
            raise InputError(
                f"{self.name} was changed in place after it was read ({changed.sum()} "
                f"of {self.n_samples} samples, first sample {changed.argmax()}). Fit "
                "again."
            )

    def _dense(self, Z: Any) -> Matrix:
        ops = ops_for(Z)
        return np.hstack([self._standardize(ops, z, at) for at, z in column_chunks(Z)])

    def _products_with(self, Z: Any, name: str) -> SampleProducts:
        """Read the aligning samples again beside other samples, chunk by chunk."""
        n, ops = Z.shape[0], ops_for(Z)
        cross, squares = np.zeros((n, self.n_samples)), np.zeros(n)
        for columns, x in self.chunks():
            z = self._standardize(ops, Z[:, columns], columns, transient=True)
            cross += z @ x.T
            squares += (z * z).sum(1)
        if not np.isfinite(squares).all():  # a kernel may hide it: exp(-inf) is 0
            raise InputError(f"{name} has NaN or infinite values.")
        return SampleProducts(cross, squares)

    def _combine(self, mixing: Matrix) -> NDArray[Any]:
        """Mix standardised samples into voxel patterns: ``X.T @ mixing``."""
        if self._device is not None:
            return self._combine_on_device(self._device, mixing)
        out = np.empty((self.n_voxels, mixing.shape[1]), dtype=self.dtype)
        ops, found = self.ops, np.zeros((self.n_samples, N_SIGNATURES))
        columns_of = ops.array(mixing.T)  # BLAS needs twice the time for z.T
        for columns, raw in column_chunks(self._data):
            chunk = ops.array(raw)
            found += signed_sums(ops, chunk, columns)
            z = ops.subtract(chunk, ops.array(self.mean[columns]), transient=True)
            out[columns] = (columns_of @ z).T / self.scale[columns, None]
        self._refuse_changed(found)
        return out

    def _combine_on_device(self, device: Device, mixing: Matrix) -> NDArray[Any]:
        """Mix samples on a device, in double precision."""
        out = device.zeros(self.n_voxels, mixing.shape[1])
        found = device.zeros(self.n_samples, N_SIGNATURES)
        signs = device.put(voxel_signs(0, self.n_voxels)).double()
        columns_of, mean = device.put(mixing), device.put(self.mean)
        for columns, raw in device.chunks(self._data):
            chunk = raw.double()
            found += chunk @ signs[columns]
            out[columns] = (chunk - mean[columns]).T @ columns_of
        out /= device.put(self.scale)[:, None]
        self._refuse_changed(to_numpy(found))
        return to_numpy(out).astype(self.dtype)


def _means(z: Matrix) -> Any:
    """Return the mean of each column, by a product: faster than a sum over rows."""
    return (np.full((1, len(z)), 1 / len(z), z.dtype) @ z)[0]


def _deviations(z: Matrix) -> Matrix:
    """Return the root mean square of each column, also where squares overflow."""
    with np.errstate(over="ignore", under="ignore"):
        deviations = np.sqrt(_square_sums(z) / len(z))
    low, high = _safe_range(z.dtype)
    odd = np.flatnonzero(~((deviations > low) & (deviations < high)))
    if odd.size:  # constant voxels too: few, and cheap
        part = np.asarray(z[:, odd], dtype=np.float64)
        peak = np.abs(part).max(axis=0)
        part = np.divide(part, peak, where=peak > 0, out=np.zeros_like(part))
        deviations[odd] = peak * np.sqrt(np.mean(part * part, axis=0))
    return np.asarray(deviations)


def _square_sums(z: Matrix) -> Matrix:
    return np.einsum("ij,ij->j", z, z).astype(np.float64)


def _safe_range(dtype: Any) -> tuple[float, float]:
    """Return the deviations between which squares neither vanish nor overflow."""
    limits = np.finfo(dtype)
    return np.sqrt(limits.tiny) / limits.eps, np.sqrt(limits.max) * limits.eps
