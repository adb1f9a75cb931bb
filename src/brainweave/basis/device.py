"""Torch, the one way to a GPU: voxels are brought there chunk by chunk."""

from collections.abc import Iterator
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
# compute capabilities of GPUs on which double precision takes up to twice as long as
# single precision; on others it takes 32 to 64 times as long
FAST_DOUBLES = {(6, 0), (7, 0), (8, 0), (9, 0), (10, 0)}
# torch loads its linear algebra on first use, which two threads must not do at once
_LINALG = Lock()


class Device:
    """Where torch works: "cuda", "cuda:1", "cpu"."""

    def __init__(self, name: Any) -> None:
        self.torch = import_module("torch")
        self.device = self.torch.device(name)
        self.on_gpu = self.device.type == "cuda"
        if self.on_gpu and self.device.index is None and self.torch.cuda.is_available():
            self.device = self.torch.device("cuda", self.torch.cuda.current_device())

    @property
    def dtype(self) -> Any:
        """The type of products: double, unless that is far slower on this device."""
        if not self.on_gpu:
            return self.torch.float64
        fast = self.torch.cuda.get_device_capability(self.device) in FAST_DOUBLES
        return self.torch.float64 if fast else self.torch.float32

    @property
    def is_roomy(self) -> bool:
        """Whether at least half of the device's memory is free."""
        if not self.on_gpu:
            return True
        free, total = self.torch.cuda.mem_get_info(self.device)
        return bool(2 * free > total)

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

    def chunks(self, X: Any) -> Iterator[tuple[slice, Any]]:
        """Yield blocks of whole columns of X on the device."""
        n, v = X.shape
        room = DEVICE_CHUNK_BYTES
        if self.on_gpu:  # a chunk exists about ten times, for several subjects
            room = min(room, self.torch.cuda.mem_get_info(self.device)[0] // 64)
        width = int(min(v, max(256, room // (4 * n))))
        cuts = [slice(i, min(i + width, v)) for i in range(0, v, width)]
        try:
            if self.on_gpu and not on_gpu(X):
                yield from self._streamed(X, cuts)
                return
            for columns in cuts:
                block = X[:, columns]
                if not is_torch(block):  # torch may write to it: a copy
                    block = self.torch.from_numpy(np.array(block, working_dtype(block)))
                yield columns, block.to(self.device)
        finally:
            release_pages(X)

    def _streamed(self, X: Any, cuts: list[slice]) -> Iterator[tuple[slice, Any]]:
        # the next block is copied there, by a stream of its own and through one of two
        # buffers of pinned memory, while the caller works on this one
        cuda = self.torch.cuda
        copying, working = cuda.Stream(self.device), cuda.current_stream(self.device)
        buffers: list[Any] = [None, None]
        copied = [cuda.Event(), cuda.Event()]
        dtype = getattr(self.torch, working_dtype(X).name)

        def send(number: int) -> Any:
            block: Any = X[:, cuts[number]]
            block = block if is_torch(block) else np.asarray(block)
            strides = block.stride() if is_torch(block) else block.strides
            by_voxels, slot = strides[0] < strides[1], number % 2
            block = block.T if by_voxels else block
            if is_torch(block) and block.is_contiguous() and block.is_pinned():
                pinned = block
            else:
                size = block.shape[0] * block.shape[1]
                copied[slot].synchronize()  # the buffer may still be on its way
                if buffers[slot] is None:
                    buffers[slot] = self.torch.empty(size, dtype=dtype, pin_memory=True)
                pinned = buffers[slot][:size].view(block.shape)
                if is_torch(block):
                    pinned.copy_(block)
                else:
                    np.copyto(pinned.numpy(), block, casting="unsafe")
            with cuda.stream(copying):
                sent = pinned.to(self.device, non_blocking=True)
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
            gram[start:end, :end] += z[start:end] @ z[:end].T

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


def device_for(X: Any, device: Any = None) -> Device | None:
    """Return where to pass over X: as asked for, or where a tensor lies on a GPU."""
    if device is None:
        if not on_gpu(X):
            return None
        device = X.device
    try:
        found = Device(device)
    except (ImportError, RuntimeError, TypeError) as error:
        raise InputError(
            f"device={device!r} cannot be used: {error}. Torch comes with pip install "
            "'brainweave[gpu]'."
        ) from error
    if found.on_gpu and not found.torch.cuda.is_available():
        raise InputError(
            f"device={device!r}: torch finds no GPU here. Leave device out to work on "
            "the processor."
        )
    return found
