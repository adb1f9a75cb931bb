"""Local maps averaged into one sparse map of the whole brain."""

from typing import Any

import numpy as np
import scipy.sparse
from numpy.typing import NDArray

from brainweave._arrays import column_chunks, ops_for, to_numpy, working_dtype
from brainweave._validation import check_samples
from brainweave.aligners.maps import SubjectMap, WeightMap
from brainweave.aligners.neighborhoods import Neighborhoods
from brainweave.aligners.piecewise import Columns, sparse_row
from brainweave.exceptions import InputError

Floats = NDArray[Any]


class SearchlightMap(WeightMap):
    """A whole-brain map with sparse weights, from voxels to common voxels and back.

    Parameters
    ----------
    weights : sparse array of shape (n_voxels, n_common)
        Common voxels per standardised voxel.
    patterns : sparse array of shape (n_common, n_voxels)
        Standardised voxels per common voxel.
    mean, scale : ndarray of shape (n_voxels,)
        What standardises samples; the scale of a voxel that is in no neighbourhood, or
        constant, is infinite.
    space, signatures
        As in :class:`SubjectMap`.
    """

    def transform(self, Z: Any, *, name: str = "Z") -> Floats:
        """Map samples of this subject into the common space, (n_samples, n_common)."""
        Z = check_samples(Z, self.n_voxels, name)
        ops, dtype = ops_for(Z), working_dtype(Z)
        features = np.zeros((Z.shape[0], self.n_components), dtype)
        for columns, raw in column_chunks(Z):
            z = ops.subtract(ops.array(raw), ops.array(self.mean[columns]))
            z *= ops.array(1 / self.scale[columns])
            features += to_numpy(z) @ self.weights[columns].astype(dtype)
        if not np.isfinite(features).all():
            raise InputError(
                f"{name} has NaN or infinite values. Mask these voxels or drop these "
                "samples."
            )
        return features

    def _voxel_values(self, component: int, what: str) -> Floats:
        return sparse_row(self, component, what)


class Places:
    """Where blocks of a sparse matrix go: pairs of voxels that share a neighbourhood.

    Parameters
    ----------
    sources, targets : list of arrays of int
        Rows and columns of the blocks, one by one.
    shape : tuple of int
        Shape of the matrix.
    """

    def __init__(
        self, sources: Neighborhoods, targets: Neighborhoods, shape: tuple[int, int]
    ) -> None:
        self.sources, self.targets, self.shape = sources, targets, shape
        reached = _incidence(sources, shape[0]).T @ _incidence(targets, shape[1])
        reached = scipy.sparse.csr_array(reached)
        reached.sort_indices()
        self.indices, self.indptr = reached.indices, reached.indptr
        rows = np.repeat(np.arange(shape[0]), np.diff(self.indptr))
        self._order = rows.astype(np.int64) * shape[1] + self.indices
        self._last: tuple[int, Columns] = (-1, np.empty(0, dtype=np.intp))

    def __len__(self) -> int:
        return len(self._order)

    def find(self, number: int) -> Columns:
        """Return the places of the entries of one block, row by row."""
        if self._last[0] != number:  # subjects with the same voxels ask again
            rows = self.sources[number].astype(np.int64) * self.shape[1]
            wanted = rows[:, None] + self.targets[number]
            self._last = number, np.searchsorted(self._order, wanted.ravel())
        return self._last[1]


def _incidence(lists: Neighborhoods, n_voxels: int) -> scipy.sparse.csr_array:
    ends = np.cumsum([0, *(c.size for c in lists)])
    ones = np.ones(ends[-1], dtype=np.float32)
    return scipy.sparse.csr_array(
        (ones, np.concatenate(lists), ends), (len(lists), n_voxels)
    )


class _Average:
    """Adds up blocks, and divides each column by the number that reached it.

    So each target voxel gets the average of what its neighbourhoods say, however many.
    """

    def __init__(self, places: Places) -> None:
        self.places = places
        self.data: Floats | None = None
        self.counts = np.zeros(places.shape[1], dtype=np.int64)

    def add(self, number: int, block: Floats) -> None:
        if self.data is None:
            self.data = np.zeros(len(self.places), block.dtype)
        self.data[self.places.find(number)] += block.ravel()
        self.counts[self.places.targets[number]] += 1

    def finish(self) -> scipy.sparse.csr_array:
        places = self.places
        data = np.zeros(len(places)) if self.data is None else self.data
        share = np.divide(1, self.counts, where=self.counts > 0, out=0.0 * self.counts)
        data *= share[places.indices].astype(data.dtype)
        matrix = scipy.sparse.csr_array(
            (data, places.indices, places.indptr), places.shape, copy=True
        )
        matrix.eliminate_zeros()
        return matrix


class Collector:
    """Turns the local maps of one subject into its whole-brain map.

    Parameters
    ----------
    own, common : list of arrays of int
        Neighbourhoods of the subject and of the reference, one by one.
    n_voxels, n_common : int
        Number of voxels of the subject and of the reference.
    known : dict
        Places that other subjects with the same neighbourhoods have worked out.
    """

    def __init__(
        self,
        own: Neighborhoods,
        common: Neighborhoods,
        n_voxels: int,
        n_common: int,
        known: dict[tuple[int, int], Places],
    ) -> None:
        def places(a: Neighborhoods, b: Neighborhoods, shape: Any) -> Places:
            key = (id(a), id(b))
            if key not in known:
                known[key] = Places(a, b, shape)
            return known[key]

        self.own = own
        self.forth = _Average(places(own, common, (n_voxels, n_common)))
        self.back = _Average(places(common, own, (n_common, n_voxels)))
        self.scale = np.full(n_voxels, np.inf)

    @property
    def coverage(self) -> NDArray[np.int64]:
        """Number of neighbourhoods that reached each voxel of the reference."""
        return self.forth.counts

    def add(self, number: int, local: SubjectMap, reference: SubjectMap) -> None:
        """Add one neighbourhood, through its shared space, in both directions."""
        self.forth.add(number, local.weights @ reference.patterns)
        self.back.add(number, reference.weights @ local.patterns)
        self.scale[self.own[number]] = local.scale

    def finish(
        self, mean: NDArray[Any], signatures: NDArray[np.float64], space: Any
    ) -> SearchlightMap:
        """Return the map."""
        return SearchlightMap(
            weights=self.forth.finish(),
            patterns=self.back.finish(),
            mean=mean,
            scale=self.scale,
            space=space,
            signatures=signatures,
        )
