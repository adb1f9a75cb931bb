"""A pass over voxels on a GPU: chunks brought there while others are worked on."""

from collections.abc import Iterator
from functools import lru_cache
from importlib import import_module
from threading import Lock
from typing import Any

import numpy as np
from numpy.typing import NDArray

from brainweave._core.arrays import (
    Floats,
    is_torch,
    on_gpu,
    release_pages,
    to_numpy,
    working_dtype,
)
from brainweave._core.exceptions import InputError

DEVICE_CHUNK_BYTES = 2**28  # wide enough to hide the start of a copy
# torch loads its linear algebra on first use, which two threads must not do at once
_LINALG = Lock()
_MEASURING = Lock()  # one thread measures, alone: all subjects are worked on alike


class Device:
    """Where a pass over voxels is done, if not by NumPy: "cuda", "cuda:1", "cpu"."""

    def __init__(self, name: Any) -> None:
        self.torch = import_module("torch")
        self.device = self.torch.device(name)
        self.on_gpu = self.device.type == "cuda"
        if self.on_gpu and self.device.index is None and self.torch.cuda.is_available():
            self.device = self.torch.device("cuda", self.torch.cuda.current_device())

    @property
    def dtype(self) -> Any:
        """The type of products: double, unless that is far slower on this device."""
        with _MEASURING:
            double = not self.on_gpu or _doubles_are_fast(str(self.device))
        return self.torch.float64 if double else self.torch.float32

    def zeros(self, *shape: int) -> Any:
        """Return zeros in double precision."""
        return self.torch.zeros(shape, dtype=self.torch.float64, device=self.device)

    def put(self, x: NDArray[Any]) -> Any:
        """Bring a small array to the device."""
        return self.torch.from_numpy(np.ascontiguousarray(x)).to(self.device)

    def put_sparse(self, x: Any) -> Any:
        """Bring a sparse array to the device, where it becomes dense."""
        x, dense = x.tocoo(), self.zeros(*x.shape)
        rows, columns = (self.put(np.asarray(i, np.int64)) for i in x.coords)
        dense[rows, columns] = self.put(x.data)
        return dense

    def joined(self, parts: list[Any]) -> Any:
        """Concatenate arrays on the device."""
        return self.torch.cat(parts)

    @property
    def is_roomy(self) -> bool:
        """Whether at least half of the device's memory is free."""
        if not self.on_gpu:
            return True
        free, total = self.torch.cuda.mem_get_info(self.device)
        return bool(2 * free > total)

    def width(self, n_samples: int, n_voxels: int) -> int:
        """Return how many columns make a chunk that suits the device's memory."""
        room = DEVICE_CHUNK_BYTES
        if self.on_gpu:  # a chunk exists about ten times, for several subjects
            room = min(room, self.torch.cuda.mem_get_info(self.device)[0] // 64)
        return int(min(n_voxels, max(256, room // (4 * n_samples))))

    def chunks(self, X: Any) -> Iterator[tuple[slice, Any]]:
        """Yield blocks of whole columns of X on the device.

        The next block is on its way, by a stream of its own and through one of two
        buffers of pinned memory, while the caller works on this one.
        """
        n, v = X.shape
        width = self.width(n, v)
        cuts = [slice(i, min(i + width, v)) for i in range(0, v, width)]
        try:
            if not self.on_gpu or (is_torch(X) and X.device.type != "cpu"):
                for columns in cuts:
                    yield columns, self._host_block(X, columns).to(self.device)
            else:
                yield from self._streamed(X, cuts)
        finally:
            release_pages(X)

    def _host_block(self, X: Any, columns: slice) -> Any:
        block = X[:, columns]
        if is_torch(block):
            return block
        block = np.asarray(block)
        if block.dtype.kind not in "f" or not block.dtype.isnative:
            block = block.astype(working_dtype(block))
        if not block.flags.writeable:  # torch warns of what it must not write to
            block = np.asarray(_Readable(block))
        return self.torch.from_numpy(block)

    def _streamed(self, X: Any, cuts: list[slice]) -> Iterator[tuple[slice, Any]]:
        cuda = self.torch.cuda
        copying, working = cuda.Stream(self.device), cuda.current_stream(self.device)
        buffers: list[Any] = [None, None]
        copied = [cuda.Event(), cuda.Event()]

        def send(number: int) -> Any:
            block, slot = self._host_block(X, cuts[number]), number % 2
            by_voxels = block.stride(0) < block.stride(1)
            block = block.T if by_voxels else block
            if not (block.is_contiguous() and block.is_pinned()):
                copied[slot].synchronize()  # the buffer may still be on its way
                if buffers[slot] is None:
                    buffers[slot] = self.torch.empty(
                        block.numel(), dtype=block.dtype, pin_memory=True
                    )
                buffer = buffers[slot][: block.numel()].view(block.shape)
                block = buffer.copy_(block)
            with cuda.stream(copying):
                sent = block.to(self.device, non_blocking=True)
                copied[slot].record(copying)
            return sent.T if by_voxels else sent

        sent = send(0)
        for number, columns in enumerate(cuts):
            here = sent
            working.wait_event(copied[number % 2])
            here.record_stream(working)
            sent = send(number + 1) if number + 1 < len(cuts) else None
            yield columns, here

    def weighted(self, X: Any, mean: Floats, weights: Floats) -> Floats:
        """Return ``(X - mean) @ weights`` as a NumPy array, in double precision."""
        total = self.zeros(X.shape[0], weights.shape[1])
        center, there = self.put(mean), self.put(weights)
        for columns, raw in self.chunks(X):
            total += (raw.double() - center[columns]) @ there[columns]
        return to_numpy(total)

    def add_products(self, gram: Any, z: Any) -> None:
        """Add ``z @ z.T`` on and below the diagonal, with 5/8 of all its products."""
        step = -(-len(z) // 4)
        for start in range(0, len(z), step):
            end = min(start + step, len(z))
            part, rows = gram[start:end, :end], z[start:end]
            if gram.dtype == z.dtype:
                part.addmm_(rows, z[:end].T)
            else:
                part += rows @ z[:end].T

    def mirror(self, gram: Any) -> None:
        """Copy what is below the diagonal to above it."""
        gram.tril_()
        gram += gram.tril(-1).T

    def center(self, gram: Any) -> Floats:
        """Centre a Gram matrix, in place; return the means that it had."""
        means = gram.mean(0)
        gram -= means
        gram -= (means - means.mean())[:, None]
        return to_numpy(means)

    def eigh(self, gram: Any) -> tuple[Floats, Any]:
        """Return the eigenvalues, descending, and the eigenvectors on the device."""
        with _LINALG:
            values, vectors = self.torch.linalg.eigh(gram)
        return to_numpy(values.flip(0)), vectors.flip(1)

    def cholesky(self, gram: Any, ridge: float) -> Any:
        """Return the factor of the matrix with a ridge; None if it is not definite."""
        ridged = gram.clone()
        ridged.diagonal().add_(ridge)
        with _LINALG:
            factor, failed = self.torch.linalg.cholesky_ex(ridged)
        return None if int(failed) else factor

    def cho_solve(self, factor: Any, B: Any) -> Any:
        """Solve by a Cholesky factor."""
        with _LINALG:
            return self.torch.cholesky_solve(B, factor)

    def inverse_factor(self, factor: Any) -> Any:
        """Invert a Cholesky factor."""
        eye = self.torch.eye(len(factor), dtype=factor.dtype, device=self.device)
        with _LINALG:
            return self.torch.linalg.solve_triangular(factor, eye, upper=False)

    def solve(self, A: Any, B: Any) -> Any:
        """Solve symmetric systems that are definite but for rounding."""
        with _LINALG:
            factor, failed = self.torch.linalg.cholesky_ex(A)
            if not bool(failed.any()):
                return self.torch.cholesky_solve(B, factor)
            return self.torch.linalg.solve(A, B)


class _Readable:
    """Memory that torch takes for writable; nobody writes to it."""

    def __init__(self, array: NDArray[Any]) -> None:
        address, _ = array.__array_interface__["data"]
        writable = {"data": (address, False)}
        self.__array_interface__ = array.__array_interface__ | writable
        self._owner = array  # alive as long as this is


@lru_cache
def _doubles_are_fast(device: str) -> bool:
    """Whether products in double precision take less than eight times as long.

    They take 1 to 2 times as long on devices for computing centres, 32 to 64 elsewhere:
    other threads' work cannot blur that.
    """
    torch = import_module("torch")
    seconds = []
    for dtype in (torch.float32, torch.float64):
        x = torch.ones((2048, 2048), dtype=dtype, device=device)
        start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        taken = []
        for _ in range(5):  # the first one loads the library
            start.record()
            x @ x
            end.record()
            torch.cuda.synchronize(device)
            taken.append(start.elapsed_time(end))
        seconds.append(min(taken))
    return bool(seconds[1] < 8 * seconds[0])


def device_for(X: Any, device: Any) -> Device | None:
    """Return where to pass over X: as asked for, or where a tensor lies on a GPU."""
    if device is None:
        if not on_gpu(X):
            return None
        device = X.device
    try:
        found = Device(device)
    except ImportError as error:
        raise InputError(
            f"device={device!r} needs torch, which is not installed: "
            "pip install 'brainweave[gpu]'."
        ) from error
    except (RuntimeError, TypeError) as error:
        raise InputError(f"torch knows no device {device!r}: {error}") from error
    if found.on_gpu and not found.torch.cuda.is_available():
        raise InputError(
            f"device={device!r}: torch finds no GPU here. Leave device out to work on "
            "the processor."
        )
    return found
