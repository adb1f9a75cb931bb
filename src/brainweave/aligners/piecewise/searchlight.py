"""Any aligner in every neighbourhood of voxels, averaged to one whole-brain map."""

from collections.abc import Sequence
from dataclasses import KW_ONLY, dataclass
from functools import partial
from typing import Any, ClassVar

import numpy as np
import scipy.sparse
from numpy.typing import NDArray
from scipy.sparse.csgraph import dijkstra
from scipy.spatial import cKDTree
from sklearn.utils.validation import check_is_fitted

from brainweave._core.arrays import to_numpy, working_dtype
from brainweave._core.exceptions import InputError
from brainweave._core.validation import check_indices, check_number, check_samples
from brainweave.aligners.base import BaseAligner
from brainweave.aligners.maps import SubjectMap, WeightMap, refuse_non_finite
from brainweave.aligners.piecewise.piecewise import (
    Columns,
    Fits,
    MapSettings,
    Pieces,
    PiecewiseAligner,
    Positions,
    once_per_space,
    places_per_subject,
)
from brainweave.basis.places import Part, parts_of


class SearchlightMap(WeightMap):
    """A whole-brain map with sparse weights, from voxels to common voxels and back."""

    _stored: ClassVar[dict[str, Any]] = {
        "weights": "v k of sparse",
        "patterns": "k v of sparse",
    }

    def transform(self, Z: Any, *, name: str = "Z") -> NDArray[Any]:
        """Map samples of this subject into the common space, (n_samples, n_common)."""
        Z = check_samples(Z, self.n_voxels, name)
        dtype = working_dtype(Z)
        features = np.zeros((Z.shape[0], self.n_components), dtype)
        for columns, z in self._standardized(Z):
            features += to_numpy(z) @ self.weights[columns].astype(dtype)
        refuse_non_finite(features, name)
        return features


class BlockPattern:
    """The entries of a sparse matrix that blocks ``rows[k]`` x ``columns[k]`` reach."""

    def __init__(
        self, rows: list[Columns], columns: list[Columns], shape: tuple[int, int]
    ) -> None:
        self.rows, self.columns, self.shape = rows, columns, shape
        members = []  # neighbourhoods x voxels, 1 where one has the voxel
        for lists, n in zip((rows, columns), shape, strict=True):
            ends = np.cumsum([0, *(c.size for c in lists)])
            ones = np.ones(ends[-1], dtype=np.float32)
            of_lists = (ones, np.concatenate(lists), ends)
            members.append(scipy.sparse.csr_array(of_lists, (len(lists), n)))
        entries = scipy.sparse.csr_array(members[0].T @ members[1])
        entries.sort_indices()
        # half the memory where there are not billions of entries
        kind = np.int32 if entries.nnz < np.iinfo(np.int32).max else np.int64
        self.indices, self.indptr = (
            own.astype(kind) for own in (entries.indices, entries.indptr)
        )
        row_of_entry = np.repeat(np.arange(shape[0]), np.diff(self.indptr))
        self._flat = row_of_entry.astype(np.int64) * shape[1] + self.indices
        self._last: tuple[int, Columns] = (-1, np.empty(0, dtype=np.intp))

    def entries_of(self, k: int) -> Columns:
        """Return the numbers of the entries of one block, row by row."""
        if self._last[0] != k:  # subjects with the same voxels ask again
            rows = self.rows[k].astype(np.int64) * self.shape[1]
            flat = rows[:, None] + self.columns[k]
            self._last = k, np.searchsorted(self._flat, flat.ravel())
        return self._last[1]

    def average(self, sums: NDArray[Any], blocks: list[int]) -> scipy.sparse.csr_array:
        """Divide each column of summed blocks, in place, by how many reach it."""
        counts = count_blocks(self.columns, blocks, self.shape[1])
        share = np.divide(1, counts, where=counts > 0, out=0.0 * counts)
        for start in range(0, sums.size, _AT_ONCE):
            some = slice(start, start + _AT_ONCE)
            sums[some] *= share[self.indices[some]].astype(sums.dtype)
        matrix = scipy.sparse.csr_array((sums, self.indices, self.indptr), self.shape)
        if len(blocks) < len(self.columns):  # else subjects share the pattern
            matrix = matrix.copy()
            matrix.eliminate_zeros()
        return matrix


_AT_ONCE = 2**20  # entries that are divided at a time


def count_blocks(columns: list[Columns], blocks: list[int], n: int) -> NDArray[np.intp]:
    """Count the blocks that reach each of n columns."""
    return np.bincount(np.concatenate([columns[k] for k in blocks]), minlength=n)


class MapBuilder:
    """Sums the local maps of one subject, forth and back, to its whole-brain map."""

    def __init__(self, own: list[Columns], forth: BlockPattern, back: BlockPattern):
        self.own, self.scale = own, np.full(forth.shape[0], np.inf)
        self.patterns, self.sums = (forth, back), [np.empty(0), np.empty(0)]
        self.blocks: list[int] = []

    def add(self, k: int, local: SubjectMap, reference: SubjectMap) -> None:
        """Add one neighbourhood, through its shared space, in both directions."""
        forth = local.weights @ reference.patterns
        back = reference.weights @ local.patterns
        for i, (pattern, block) in enumerate(
            zip(self.patterns, (forth, back), strict=True)
        ):
            if not self.blocks:
                self.sums[i] = np.zeros(pattern.indices.size, block.dtype)
            self.sums[i][pattern.entries_of(k)] += block.ravel()
        self.blocks.append(k)
        self.scale[self.own[k]] = local.scale

    def build(self, settings: MapSettings) -> SearchlightMap:
        """Return the map: of each target voxel, the average of its neighbourhoods."""
        pairs = zip(self.patterns, self.sums, strict=True)
        weights, patterns = (p.average(sums, self.blocks) for p, sums in pairs)
        self.sums = []  # they are the data of the maps now
        return SearchlightMap(
            weights=weights, patterns=patterns, scale=self.scale, **settings
        )


def map_builders(
    lists: list[list[Columns]], n_voxels: list[int], common: list[Columns], n: int
) -> list[MapBuilder]:
    """Return a builder per subject; subjects with equal lists share their patterns."""
    different = {id(own): (own, v) for own, v in zip(lists, n_voxels, strict=True)}
    patterns = {
        key: (BlockPattern(own, common, (v, n)), BlockPattern(common, own, (n, v)))
        for key, (own, v) in different.items()
    }
    return [MapBuilder(own, *patterns[id(own)]) for own in lists]


@dataclass(eq=False, repr=False)
class Searchlight(PiecewiseAligner):
    r"""Align every neighbourhood of voxels, and average to one map of the whole brain.

    In each neighbourhood :math:`s` an aligner is fitted, with weights :math:`W_{is}`
    and patterns :math:`P_{is}` of subject i. Together they take voxels of subject i to
    voxels of the first subject r, :math:`W_{is} P_{rs}`. The whole-brain map averages
    them over the :math:`n_u` neighbourhoods that contain a voxel u of the reference,

    .. math:: T_i[\cdot, u] = \frac{1}{n_u} \sum_{s \ni u} (W_{is} P_{rs})[\cdot, u],

    and the shared features are the standardised voxels of the reference.

    Parameters
    ----------
    aligner : aligner
        Fitted anew to each neighbourhood; its kernel must be linear.
    radius : float
        Neighbourhoods are all voxels within this distance of a centre, in the units of
        the coordinates (mm for images). On surfaces distances go along the mesh, and
        hemispheres and the volume of a CIFTI file stay apart.
    n_jobs, progress : various
        As in :class:`Parcelwise`, of neighbourhoods.
    coordinates : array of shape (n_voxels, n_dimensions), or one per subject, optional
        Positions of the voxels; by default those of the subjects' volumes.
    mesh : str, mesh or mapping, default="auto"
        Of subjects on surfaces: a name (fsaverage3 to fsaverage7, fsLR-32k), a file or
        pair (coordinates, faces) for each hemisphere, ``{"left": ..., "right": ...}``,
        or nilearn's PolyMesh. "auto" goes by the number of vertices.
    centers : array-like of int, optional
        The voxels of the reference that are centres; by default all.
    spacing : float, optional
        Take as centres no two voxels nearer than this, as many as there are. Half the
        radius is as good as all voxels, and several times as fast.
    keep_local : bool, default=True
        Keep what a new subject needs to join. False saves memory.

    Attributes
    ----------
    maps_ : list of SearchlightMap
        One map per subject; sparse weights (n_voxels_i, n_voxels_reference).
    coverage_ : ndarray of shape (n_voxels_reference,)
        Number of neighbourhoods that contain each voxel; where it is zero the feature
        is zero.
    skipped_ : dict
        Number of each skipped neighbourhood, and why.
    n_searchlights_ : int
        Neighbourhoods that were aligned.
    neighborhoods_, centers_, center_voxels_
        The neighbourhoods in the reference, and the positions and the voxels of their
        centres.
    joinable_, aligners_, reference_maps_ : list
        Numbers of the neighbourhoods that a new subject can join, what it joins there,
        and the local map of the reference; empty without ``keep_local``.

    Notes
    -----
    With s voxels in each of N neighbourhoods, the maps take O(N s^2) time and memory;
    the fits take what the aligner takes, N times. Neighbourhoods with fewer than two
    voxels in any subject are skipped. Of many neighbourhoods, 24 settle
    what a :class:`GDM` chooses by itself (ridges, number of components) for all.
    Distances along a mesh are those of shortest paths over edges and across pairs of
    triangles, at most some per cent too long.

    References
    ----------
    Guntupalli, J. S., et al. (2016). A model of representational spaces in human
    cortex. Cerebral Cortex 26.

    Examples
    --------
    Voxels on a line whose neighbours are swapped from subject to subject:

    >>> from brainweave.aligners.hyperalignment import Hyperalignment
    >>> rng = np.random.default_rng(0)
    >>> first = rng.normal(size=(40, 12))
    >>> second = first.reshape(40, 6, 2)[:, :, ::-1].reshape(40, 12)
    >>> model = Searchlight(
    ...     Hyperalignment(), radius=2, coordinates=np.arange(12.0)[:, None]
    ... )
    >>> a, b = model.fit([first, second]).transform([first, second])
    >>> bool(np.corrcoef(a[:, 5], b[:, 5])[0, 1] > 0.9)
    True
    >>> bool(np.corrcoef(first[:, 5], second[:, 5])[0, 1] < 0.3)
    True
    """

    _piece = "neighborhood"
    _settles = True
    _stored: ClassVar[dict[str, Any]] = {
        "neighborhoods_": ["voxels of int"],
        "joinable_": [int],
        "aligners_": [BaseAligner],
        "reference_maps_": [SubjectMap],
        "coverage_": "K of int",
        "centers_": np.ndarray,
        "center_voxels_": np.ndarray,
        "n_searchlights_": int,
    }

    radius: float | None = None
    _: KW_ONLY
    coordinates: Any = None
    mesh: Any = "auto"
    centers: Any = None
    spacing: float | None = None
    keep_local: bool = True

    def _find_pieces(self, n_voxels: list[int], spaces: list[Any]) -> Pieces:
        radius = check_number("radius", self.radius, "(0, inf)", owner=self._owner)
        layouts = self._layouts(self.coordinates, n_voxels, spaces)
        reference = layouts[0]
        centers = self._choose_centers(reference, n_voxels[0], radius)
        if not centers.size:
            raise InputError("There are no neighborhoods.")
        self.centers_ = positions_of(reference)[centers]
        self.center_voxels_ = centers
        found = {
            key: neighborhoods_around(parts, reference, centers, radius)
            for key, parts in {id(parts): parts for parts in layouts}.items()
        }
        lists = [found[id(parts)] for parts in layouts]
        return Pieces(list(range(centers.size)), lists)

    def _layouts(
        self, coordinates: Any, n_voxels: list[int], spaces: Sequence[Any]
    ) -> list[list[Part]]:
        """Return where each subject's voxels lie; equal spaces share a list."""
        if coordinates is not None:
            given = "coordinates", coordinates, n_voxels
            listed = places_per_subject(*given, owner=self._owner)
            known = {id(at): [Part("volume", np.arange(len(at)), at)] for at in listed}
            return [known[id(at)] for at in listed]
        remedy = "Pass coordinates, a row per voxel, or fit on a Study of images."
        find = partial(parts_of, mesh=self.mesh, remedy=remedy)
        return once_per_space(find, spaces)

    def _choose_centers(self, parts: list[Part], n: int, radius: float) -> Columns:
        """Return the voxels of the reference that are centres."""
        if self.centers is not None:
            return check_indices("centers", self.centers, n, what="voxel")
        columns = np.concatenate([part.columns for part in parts])
        if self.spacing is None:
            return np.sort(columns)
        spacing = check_number("spacing", self.spacing, "(0, inf)", owner=self._owner)
        if spacing > radius:
            raise InputError(
                f"spacing={spacing:g} of {self._owner} is more than radius={radius:g}, "
                "so that voxels between centres would be in no neighborhood."
            )
        # a hair less: voxels at this very distance are far enough
        near = neighborhoods_around(parts, parts, columns, spacing * (1 - 1e-6))
        free, chosen = np.ones(n, dtype=bool), []
        for voxel, others in zip(columns.tolist(), near, strict=True):
            if free[voxel]:
                chosen.append(voxel)
                free[others] = False
        return np.sort(np.array(chosen, dtype=np.intp))

    def _combine(self, pieces: Pieces, fits: Fits, settings: list[MapSettings]) -> None:
        columns = pieces.columns
        sizes = [of_map["mean"].size for of_map in settings]
        builders = map_builders(columns, sizes, columns[0], sizes[0])
        self.neighborhoods_, self.n_components_ = columns[0], sizes[0]
        self.joinable_, self.aligners_, self.reference_maps_ = [], [], []
        for k, local in fits:
            maps, local.maps_ = local.maps_, []  # new subjects can still join
            for builder, m in zip(builders, maps, strict=True):
                builder.add(k, m, maps[0])
            if self.keep_local:
                self.joinable_.append(k)
                self.aligners_.append(local)
                self.reference_maps_.append(maps[0])
        aligned = builders[0].blocks
        self.n_searchlights_ = len(aligned)
        self.coverage_ = count_blocks(columns[0], aligned, sizes[0])
        pairs = zip(builders, settings, strict=True)
        self.maps_ = [builder.build(of_map) for builder, of_map in pairs]

    def fit_new_subject(
        self, X: Any, y: Any = None, *, coordinates: Any = None
    ) -> SearchlightMap:
        """Learn the map of a subject that was not in the fit; the model is unchanged.

        Parameters
        ----------
        X, y : list of array-like
            Samples of the new subject, and what is known of them.
        coordinates : array of shape (n_voxels, n_dimensions), optional
            Positions of its voxels, if they are not those of the reference.

        Returns
        -------
        SearchlightMap
            Averaged over the neighbourhoods in which the new subject can be aligned;
            a warning names the others.
        """
        check_is_fitted(self, "maps_")
        if not self.aligners_:
            raise InputError(
                f"This {self._owner} was fitted with keep_local=False, so no subject "
                "can join. Fit again with keep_local=True."
            )

        def columns_of(n: int, space: Any) -> list[Columns]:
            if coordinates is None and not space:
                if n == self.n_components_:
                    return list(self.neighborhoods_)
                raise InputError(
                    f"The new subject has {n} voxels, the reference "
                    f"{self.n_components_}: pass its coordinates."
                )
            given = None if coordinates is None else [coordinates]
            (parts,) = self._layouts(given, [n], [space])
            around, known = np.arange(len(self.centers_)), self.maps_[0].space
            reference = [Part("volume", around, np.asarray(self.centers_))]
            if any(part.vertices is not None for part in parts) and known:
                (reference,) = self._layouts(None, [], [known])
                around = np.asarray(self.center_voxels_)
            radius = float(self.radius or 0)
            return neighborhoods_around(parts, reference, around, radius)

        common = self.neighborhoods_
        names = list(range(len(common)))
        found = self._join_pieces(X, y, self.joinable_, names, columns_of)
        own, maps, settings = found
        sizes = [settings["mean"].size]
        (builder,) = map_builders([own], sizes, common, self.n_components_)
        for k, reference in zip(self.joinable_, self.reference_maps_, strict=True):
            if k in maps:
                builder.add(k, maps[k], reference)
        return builder.build(settings)

    def _places_of_pieces(self) -> tuple[SubjectMap, dict[Any, Columns]]:
        return self.maps_[0], dict(enumerate(self.neighborhoods_))


def positions_of(parts: Sequence[Part]) -> Positions:
    """Return the positions of all voxels of a subject, in their order."""
    order = np.concatenate([part.columns for part in parts])
    return np.concatenate([part.positions for part in parts])[np.argsort(order)]


def neighborhoods_around(
    parts: Sequence[Part], of_reference: Sequence[Part], centers: Columns, radius: float
) -> list[Columns]:
    """Return a subject's voxels within a radius of voxels of the reference, sorted."""
    found = [np.empty(0, dtype=np.intp)] * len(centers)
    own = {part.name: part for part in parts}
    # a hair more, so that rounding does not decide over voxels on the sphere
    radius *= 1 + 1e-9
    for part in of_reference:
        mine = own.get(part.name)
        rows = {column: row for row, column in enumerate(part.columns.tolist())}
        here = [(k, rows[c]) for k, c in enumerate(centers.tolist()) if c in rows]
        if mine is None or not here:
            continue
        numbers, at = (np.array(x, dtype=np.intp) for x in zip(*here, strict=True))
        if part.vertices is None:
            tree, centre = cKDTree(mine.positions), part.positions[at]
            near = tree.query_ball_point(centre, radius, return_sorted=True)
        else:
            near = neighborhoods_along(mine, part, at, radius)
        for k, voxels in zip(numbers.tolist(), near, strict=True):
            found[k] = mine.columns[np.asarray(voxels, dtype=np.intp)]
    return found


N_SOURCES = 128  # vertices from which distances are found at a time


def neighborhoods_along(
    part: Part, of_reference: Part, at: Columns, radius: float
) -> list[Columns]:
    """Return the vertices within a radius, along the mesh, of some of the reference."""
    if part.steps is None or part.steps.shape != of_reference.steps.shape:
        raise InputError(
            f"Subjects have different meshes for {part.name}, so that their vertices "
            "do not correspond. Resample them to one mesh."
        )
    place = np.full(part.steps.shape[0], -1)
    place[part.vertices] = np.arange(part.vertices.size)
    found: list[Columns] = []
    for start in range(0, at.size, N_SOURCES):
        sources = of_reference.vertices[at[start : start + N_SOURCES]]
        distances = dijkstra(part.steps, indices=sources, limit=radius)
        rows, vertices = np.nonzero(np.isfinite(distances))
        voxels = place[vertices]
        rows, voxels = rows[voxels >= 0], voxels[voxels >= 0]
        ends = np.searchsorted(rows, np.arange(1, len(sources)))
        found += [np.sort(own) for own in np.split(voxels, ends)]
    return found
