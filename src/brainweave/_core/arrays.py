"""Arrays from anywhere, in column chunks, on the processor or on a GPU.

A subject's samples may be a NumPy array, a memory map, anything two-dimensional that
can be sliced by columns (HDF5, zarr), or a torch tensor. A tensor is read as an array,
chunk by chunk; torch itself works in :mod:`brainweave.basis.device` alone.
"""

import ctypes
import mmap
from collections.abc import Iterator
from contextlib import suppress
from importlib import import_module
from typing import Any

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[Any]  # float32 or float64; the dtype follows the data
Matrix = NDArray[np.float64]
Codes = NDArray[np.intp]  # the group of each sample, or numbers of rows
Mask = NDArray[np.bool_]  # which samples, voxels or volumes

CHUNK_BYTES = 16 * 2**20  # a chunk of columns: wide enough for a fast product
WIDEST = 4  # times as wide where samples are many


def chunk_width(n_samples: int) -> int:
    """Return how many columns a chunk has: more samples are worth wider chunks."""
    wanted = min(max(CHUNK_BYTES, 32 * n_samples**2), WIDEST * CHUNK_BYTES)
    return max(256, wanted // (8 * n_samples))


def is_torch(X: Any) -> bool:
    """Whether X is a torch tensor, without importing torch."""
    return type(X).__module__.partition(".")[0] == "torch"


def on_gpu(X: Any) -> bool:
    """Whether X is a torch tensor in the memory of a GPU."""
    return is_torch(X) and X.device.type == "cuda"


def samples_of(subject: Any) -> Any:
    """Return the samples of a Subject, unread if they can be read by chunks."""
    if not hasattr(subject, "labels"):
        return subject
    whole = getattr(subject, "is_lazy", True) or is_torch(subject.samples)
    return subject.data() if whole else subject.samples


def working_dtype(X: Any) -> np.dtype[Any]:
    """Return float32 for floats of up to 32 bits, float64 for everything else."""
    name = str(X.dtype).removeprefix("torch.")
    single = name in ("float32", "float16", "bfloat16")
    return np.dtype(np.float32 if single else np.float64)


def column_chunks(X: Any) -> Iterator[tuple[slice, Any]]:
    """Cut X into blocks of whole columns, small enough to stay in the cache."""
    n_samples, n_voxels = X.shape
    width = chunk_width(n_samples)
    try:
        for start in range(0, n_voxels, width):
            columns = slice(start, min(start + width, n_voxels))
            yield columns, X[:, columns]
    finally:
        release_pages(X)


def release_pages(X: Any) -> None:
    """Take the pages of a mapped file out of this process's memory, until next used."""
    mapped = backing_map(X)  # pages of a copy-on-write map exist nowhere else
    if mapped is None or mapped.mode == "c" or not hasattr(mmap, "MADV_DONTNEED"):
        return
    with suppress(OSError, ValueError):  # advice: a closed or locked map may refuse it
        mapped._mmap.madvise(mmap.MADV_DONTNEED)


def trim_heap() -> None:
    """Return freed memory to the system, where the allocator would keep it."""
    with suppress(OSError, AttributeError, TypeError):  # glibc alone knows it
        ctypes.CDLL(None).malloc_trim(0)


def backing_map(X: Any) -> Any:
    """Return the memory map that X is, or is a view of; None if there is none."""
    while isinstance(X, np.ndarray):
        if isinstance(X, np.memmap) and getattr(X, "_mmap", None) is not None:
            return X
        X = X.base
    return None


def as_sendable(X: Any) -> Any:
    """Return X; a copy of a map whose file may lack what this process changed."""
    mapped = backing_map(X)
    return X if mapped is None or mapped.mode == "r" else np.array(X)


def to_numpy(x: Any) -> Floats:
    """Return an array, or a tensor of any device, as a NumPy array."""
    if is_torch(x):
        x = x.detach().cpu()
        x = (x.float() if "bfloat16" in str(x.dtype) else x).numpy()
    return np.asarray(x)


def as_kind_of(X: Any, values: Floats) -> Any:
    """Return values as an array, or as a tensor where X is one, in its precision."""
    values = np.asarray(values, working_dtype(X))
    if not is_torch(X):
        return values
    return import_module("torch").from_numpy(values).to(X.device)


class NumpyOps:
    """What a pass over voxels needs, on the processor."""

    def __init__(self, dtype: np.dtype[Any]) -> None:
        self.dtype = dtype
        # memory for chunks is taken once: fresh pages cost more than sums
        self._chunk: Floats = np.empty(0, dtype)

    def array(self, x: Any) -> Floats:
        """Return x in the working dtype."""
        return np.asarray(to_numpy(x), dtype=self.dtype)

    def subtract(
        self, chunk: Floats, mean: Floats, *, transient: bool = False
    ) -> Floats:
        """Return chunk - mean; what is transient is overwritten by the next call."""
        if not transient:
            return np.subtract(chunk, mean)
        if self._chunk.size < chunk.size:
            self._chunk = np.empty(chunk.size, self.dtype)
        order: Any = "F" if chunk.strides[0] < chunk.strides[1] else "C"
        out = self._chunk[: chunk.size].reshape(chunk.shape, order=order)
        return np.subtract(chunk, mean, out=out)

    def inner(self, a: Floats, b: Floats) -> float:
        """Sum the products of the entries, accumulated in float64 over the rows."""
        return float(np.einsum("ij,ij->i", a, b).sum(dtype=np.float64))


def ops_for(X: Any) -> NumpyOps:
    """Return the operations in the working precision of X."""
    return NumpyOps(working_dtype(X))
