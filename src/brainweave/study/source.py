"""Samples that are read when needed: the protocol, and views on rows and runs.

Three kinds of objects can stand for the samples of a subject: an array (or memory
map), something on disk that is sliced by columns (HDF5, zarr), and a *source*, which
knows its shape and dtype from a header and reads everything in one go.
"""

from typing import Any, Protocol, TypeAlias, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from brainweave._core.arrays import as_sendable, is_torch, to_numpy


@runtime_checkable
class Source(Protocol):
    """Samples that wait in a file until somebody calls :meth:`read`."""

    @property
    def shape(self) -> tuple[int, int]:
        """Samples and voxels, known without reading the samples."""

    @property
    def dtype(self) -> np.dtype[Any]:
        """Type of the numbers that :meth:`read` returns."""

    def read(self) -> NDArray[Any]:
        """Read all samples (n_samples x n_voxels)."""


# An ndarray, a memory map, a Source, or anything 2-D that is sliced by columns.
Samples: TypeAlias = Any


def is_source(samples: Samples) -> bool:
    """Tell whether the samples must be read whole (they cannot be sliced cheaply)."""
    if isinstance(samples, _View):
        return is_source(samples.parent)
    return isinstance(samples, Source) and not hasattr(samples, "__getitem__")


def read_samples(samples: Samples) -> NDArray[Any]:
    """Return the samples as an array; no copy where they already are one."""
    if isinstance(samples, np.ndarray):
        return np.asarray(samples)
    if isinstance(samples, Source):
        return np.asarray(samples.read())
    return to_numpy(samples if is_torch(samples) else samples[:, :])


def zscore_groups(values: NDArray[Any], groups: NDArray[np.intp]) -> NDArray[Any]:
    """Centre and scale each column within each group of rows.

    Means and deviations are taken in float64; a voxel that is constant within a
    group becomes zero there. float32 stays float32, anything else becomes float64.

    Examples
    --------
    >>> zscore_groups(np.array([[1.0], [3.0], [7.0], [7.0]]), np.array([0, 0, 1, 1])).T
    array([[-1.,  1.,  0.,  0.]])
    """
    out = np.empty(values.shape, zscored_dtype(values.dtype))
    for group in np.unique(groups):
        rows = groups == group
        block = np.asarray(values[rows], dtype=np.float64)
        mean = block.mean(axis=0)
        block -= mean
        scale = np.sqrt(np.mean(block**2, axis=0))
        # Rounding leaves a constant voxel with a deviation of some ulps of its mean.
        constant = scale <= 10 * np.finfo(np.float64).eps * np.abs(mean)
        scale[constant] = 1.0
        block /= scale
        block[:, constant] = 0.0
        out[rows] = block
    return out


def zscored_dtype(dtype: Any) -> np.dtype[Any]:
    """Type of standardised samples: float32 stays, all else becomes float64."""
    return np.dtype(np.float32 if np.dtype(dtype) == np.float32 else np.float64)


class _View:
    """Samples derived from others, computed for the columns that are asked for."""

    def __init__(self, parent: Samples, n_samples: int) -> None:
        self.parent = parent
        self.shape = n_samples, int(parent.shape[1])
        self.ndim = 2

    @property
    def dtype(self) -> np.dtype[Any]:
        return np.dtype(self.parent.dtype)

    def __len__(self) -> int:
        return self.shape[0]

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "parent": as_sendable(self.parent)}

    def _apply(self, values: NDArray[Any]) -> NDArray[Any]:
        raise NotImplementedError

    def read(self) -> NDArray[Any]:
        """Read the parent and return the derived samples."""
        return self._apply(read_samples(self.parent))

    def __getitem__(self, key: Any) -> NDArray[Any]:
        rows, columns = key if isinstance(key, tuple) else (key, slice(None))
        if is_source(self.parent):
            return np.asarray(self.read()[rows, columns])
        if isinstance(columns, int | np.integer):
            return np.asarray(self[rows, columns : columns + 1 or None][..., 0])
        return np.asarray(self._apply(np.asarray(self.parent[:, columns]))[rows])

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> NDArray[Any]:
        if copy is False:
            raise ValueError("These samples are computed when read: a copy is needed.")
        return np.asarray(self.read(), dtype=dtype)

    def __repr__(self) -> str:
        n_samples, n_voxels = self.shape
        return f"{type(self).__name__}({n_samples} x {n_voxels} of {self.parent!r})"


class RowView(_View):
    """Some rows of other samples, in the order wanted; nothing is copied."""

    def __init__(self, parent: Samples, rows: NDArray[np.intp]) -> None:
        if isinstance(parent, RowView):  # a view on a view is one view
            parent, rows = parent.parent, parent.rows[rows]
        super().__init__(parent, len(rows))
        self.rows = rows

    def _apply(self, values: NDArray[Any]) -> NDArray[Any]:
        return np.asarray(values[self.rows])


class ZScoreView(_View):
    """Other samples, each voxel standardised within groups of rows (its runs)."""

    def __init__(self, parent: Samples, groups: NDArray[np.intp]) -> None:
        super().__init__(parent, len(groups))
        self.groups = groups

    @property
    def dtype(self) -> np.dtype[Any]:
        """Type of the standardised samples."""
        return zscored_dtype(self.parent.dtype)

    def _apply(self, values: NDArray[Any]) -> NDArray[Any]:
        return zscore_groups(values, self.groups)
