"""Places: what anatomical registration tells us that subjects have in common.

Voxel, vertex or parcel j of registered subjects is roughly the same place. Samples in
places are means over the voxels of each: parcels, supervoxels, patches of a surface,
or, where all subjects have the same few columns, the columns themselves. Masks may
differ: a subject without a voxel in a place has zeros there.
"""

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from os import PathLike
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse
from numpy.typing import NDArray

from brainweave._core.arrays import Matrix
from brainweave._core.exceptions import InputError
from brainweave._core.labels import object_array

MOST_COLUMNS = 2048  # that are places by themselves


@dataclass(frozen=True)
class Places:
    """The places of a study."""

    n_places: int
    #: per subject, sparse (n_voxels, n_places) means; None: every voxel is a place
    matrices: list[Any]
    what: str  #: what they are, in words
    names: tuple[Hashable, ...] | None = None  #: subjects who join later have the same
    frame: Any = None  #: the space in which they lie, if it is known

    def of_new(self, subject: Any, place: Any = "auto") -> Any:
        """Return the matrix of a subject that joins; ``place`` is that of the model."""
        n = _n_columns(subject)
        if not (isinstance(place, str) and place == "auto"):
            if is_per_subject(place):
                raise InputError(
                    "The model was given places per subject, and none of a new one. "
                    "Fit with labels that hold for all, or with images."
                )
            space = getattr(subject, "space", None)
            labels, matrices = _read_given(place, [space], [n], "the model")
            return _means(labels[0], self.names or ()) if labels else matrices[0]
        if self.names is None:
            if n != self.n_places:
                raise InputError(
                    f"The new subject has {n} columns, but the {self.n_places} places "
                    "of the model are its columns. Use the same parcels or mask."
                )
            return None
        found = _labels_in(getattr(subject, "space", None))
        if found is None or str(found[0]) != str(self.frame):
            raise InputError(
                f"The places of the model are {self.what}; the new subject is not in "
                "that space. Load it from images in the space of the others."
            )
        return _means(found[1], self.names)


def find_places(place: Any, subjects: Sequence[Any], *, owner: str) -> Places | str:
    """Find the places of subjects, or say in words why there are none.

    `place` is what :class:`GDM` takes, "auto" allowing at most 2,048 equal columns, as
    a parameter of the class `owner`. Subjects may be arrays or bases, too.
    """
    columns = [_n_columns(s) for s in subjects]
    if not (isinstance(place, str) and place == "auto"):
        spaces = [getattr(s, "space", None) for s in subjects]
        return _given_places(*_read_given(place, spaces, columns, owner))
    found = [_labels_in(getattr(s, "space", None)) for s in subjects]
    known = [own for own in found if own is not None]
    if len(known) == len(found) and len({own[0] for own in known}) == 1:
        frame, what = known[0][0], known[0][2]
        names = sorted({name for own in known for name in own[1] if name is not None})
        matrices = [_means(own[1], names) for own in known]
        if all(list(own[1]) == names for own in known):  # every voxel is a place
            matrices = [None] * len(known)
        return Places(len(names), matrices, what, tuple(names), frame)
    if known:
        return "the subjects are not in one space"
    if len(set(columns)) > 1:
        return "subjects have different numbers of columns, and no common space"
    if columns[0] > MOST_COLUMNS:
        return (
            f"{columns[0]} columns without a brain space are too many to be places by "
            "themselves; pass place=, a label for each"
        )
    return Places(columns[0], [None] * len(columns), "equal columns")


def is_per_subject(given: Any, dimensions: int = 1) -> bool:
    """Return whether places are given as a list of arrays, one per subject."""
    listed = isinstance(given, list | tuple) and len(given) > 0
    return listed and np.ndim(given[0]) >= dimensions


def _given_places(labels: list[Any], matrices: list[Any]) -> Places:
    if not labels:
        return Places(matrices[0].shape[1], matrices, "places as given")
    names = list(dict.fromkeys(n for own in labels for n in own if n is not None))
    means = [_means(own, names) for own in labels]
    return Places(len(names), means, "parcels as given", tuple(names), "given")


def _read_given(
    place: Any, spaces: Sequence[Any], columns: list[int], owner: str
) -> tuple[list[Any], list[Any]]:
    """Return the labels of each subject's voxels, or else voxels x places."""
    if is_atlas(place):
        place = [labels_at(place, s, f"X[{i}]") for i, s in enumerate(spaces)]
    each = place if is_per_subject(place) else [place] * len(columns)
    if len(each) != len(columns):
        raise InputError(
            f"place of {owner} has {len(each)} entries for {len(columns)} subjects."
        )
    if not all(scipy.sparse.issparse(own) or np.ndim(own) == 2 for own in each):
        labels = []
        for i, (own, n) in enumerate(zip(each, columns, strict=True)):
            if np.ndim(own) != 1 or len(own) != n:
                what = repr(own) if isinstance(own, str) else np.shape(own)
                raise InputError(
                    f"place of {owner} must be 'auto', None, a label for each of the "
                    f"{n} voxels of X[{i}], a matrix of voxels x places, or an atlas "
                    f"image (load a file by nibabel.load(path)); got {what}."
                )
            named = np.asarray(own, dtype=object).tolist()
            labels.append([None if v in (None, 0) or v != v else v for v in named])  # noqa: PLR0124
        return labels, []
    matrices = [scipy.sparse.csr_array(own, dtype=np.float64) for own in each]
    for own, n in zip(matrices, columns, strict=True):
        if own.shape != (wanted := (n, matrices[0].shape[1])):
            raise InputError(
                f"place of {owner} must be voxels x places, {wanted}; got {own.shape}."
            )
    return [], matrices


# -- places of the pieces of a brain ---------------------------------------------------


class PieceSpace(NamedTuple):
    """The places of the voxels of one piece: as much of a space as an aligner needs."""

    frame: Any
    names: list[Any]
    what: str

    @property
    def n_voxels(self) -> int:
        """Number of voxels in the piece."""
        return len(self.names)

    def place_labels(self) -> tuple[Any, list[Any], str]:
        """Return the frame, the place of each voxel, and what places are."""
        return self.frame, self.names, self.what


class PlacesOfPieces:
    """Cuts the places of subjects to pieces of the brain.

    In a piece, voxels of one grid or mesh are places themselves, whatever the masks, up
    to 2,048 of all subjects together; in larger ones, the places of the whole brain,
    means over the voxels inside the piece.
    """

    def __init__(
        self, place: Any, spaces: list[Any], columns: list[int], owner: str
    ) -> None:
        self._spaces = spaces
        self._matrices: list[Any] = []
        self._found = isinstance(place, str) and place == "auto"
        if self._found:
            self._labels = [_labels_in(s, "voxel_labels") for s in spaces]
            return
        labels, self._matrices = _read_given(place, spaces, columns, owner)
        what = "parcels as given"
        self._labels = [("given", object_array(own), what) for own in labels]

    @cached_property
    def _coarse(self) -> list[Any]:
        return [_labels_in(s) for s in self._spaces]

    def cut(self, pieces: Sequence[NDArray[Any]]) -> tuple[list[Any], Any]:
        """Return the spaces of a piece, given by voxels, and the ``place`` to set."""
        if self._matrices:
            pairs = zip(self._matrices, pieces, strict=True)
            cut = [scipy.sparse.csr_array(own[rows]) for own, rows in pairs]
            used = np.flatnonzero(sum(abs(own).sum(axis=0) for own in cut))
            return [None] * len(pieces), [own[:, used] for own in cut]
        labels = self._labels
        if self._found and sum(map(len, pieces)) > MOST_COLUMNS:
            each = zip(labels, pieces, strict=True)
            voxels = {v for own, at in each if own is not None for v in own[1][at]}
            labels = self._coarse if len(voxels) > MOST_COLUMNS else labels
        return [
            None if own is None else PieceSpace(own[0], own[1][at].tolist(), own[2])
            for own, at in zip(labels, pieces, strict=True)
        ], "auto"


def _labels_in(space: Any, kind: str = "place_labels") -> Any:
    """Return the frame, the label of each voxel, and what they are, if it is known."""
    found = getattr(space, kind, lambda: None)()
    return found and (found[0], object_array(found[1]), found[2])


# -- where voxels lie ------------------------------------------------------------------


class Part(NamedTuple):
    """Voxels of a subject that lie in one volume, or on one surface."""

    name: str
    columns: NDArray[np.intp]
    positions: Matrix
    vertices: Any = None  # on a surface: the number of each on its mesh
    steps: Any = None  # sparse: lengths of the steps between all vertices of the mesh


def parts_of(space: Any, name: str, mesh: Any = "auto", *, remedy: str) -> list[Part]:
    """Return where the voxels of a subject lie."""
    find = getattr(space, "parts", None)
    if find is not None:
        return list(find(mesh))
    if getattr(space, "mask", None) is None or getattr(space, "affine", None) is None:
        raise InputError(f"{name} does not know where its voxels are. {remedy}")
    at = voxel_positions(space)
    return [Part("volume", np.arange(len(at)), at)]


def is_atlas(given: Any) -> bool:
    """Return whether labels are given as an image, a file or the name of an atlas."""
    if isinstance(given, str):
        return given != "auto"
    kinds = ("dataobj", "darrays", "maps", "labels_img_", "mesh")
    named = isinstance(given, PathLike | Mapping)
    return named or any(hasattr(given, kind) for kind in kinds)


def labels_at(atlas: Any, space: Any, name: str) -> NDArray[Any]:
    """Look up the label of an atlas at each voxel of a subject."""
    find = getattr(space, "labels_of", None)
    if find is not None:
        return np.asarray(find(atlas))
    remedy = "An atlas needs a Study of images; or pass a label per voxel."
    (part,) = parts_of(space, name, remedy=remedy)
    return volume_labels(getattr(atlas, "maps", atlas), part.positions)


def volume_labels(atlas: Any, positions: Matrix) -> NDArray[Any]:
    """Look up the label of a volume at positions in mm; zero outside of it."""
    if getattr(atlas, "affine", None) is None:
        raise InputError(
            f"The data are volumes, the atlas is a {type(atlas).__name__}. Give an "
            "image of labels, such as schaefer-400."
        )
    volume = np.asarray(atlas.dataobj)
    if volume.ndim == 4 and volume.shape[3] == 1:
        volume = volume[..., 0]
    if volume.ndim != 3:
        raise InputError(
            f"The atlas has shape {volume.shape}; labels need one number per voxel. "
            "Probabilistic atlases must be turned into labels first."
        )
    there = np.linalg.inv(np.asarray(atlas.affine, dtype=np.float64))
    index = np.rint(positions @ there[:3, :3].T + there[:3, 3]).astype(int)
    inside = ((index >= 0) & (index < volume.shape)).all(axis=1)
    labels = np.zeros(len(index), dtype=volume.dtype)
    labels[inside] = volume[tuple(index[inside].T)]
    whole = labels.dtype.kind == "f" and bool((labels == np.rint(labels)).all())
    return labels.astype(np.int64) if whole else labels


def voxel_positions(space: Any) -> Matrix:
    """Return the positions of the voxels of a volume, in mm."""
    affine = space.affine
    at = np.argwhere(np.asarray(space.mask)) @ affine[:3, :3].T + affine[:3, 3]
    return np.asarray(at)


def _means(labels: Sequence[Any], names: Sequence[Any]) -> Any:
    """Return the sparse matrix that averages the voxels of each place."""
    place_of = {name: j for j, name in enumerate(names)}
    where = np.array([place_of.get(name, -1) for name in labels])
    rows = np.flatnonzero(where >= 0)
    columns = where[rows]
    shares = 1 / np.bincount(columns, minlength=len(names))[columns]
    shape = len(labels), len(names)
    return scipy.sparse.csr_array((shares, (rows, columns)), shape)


def _n_columns(subject: Any) -> int:
    known = getattr(subject, "n_voxels", None)
    return int(np.shape(subject)[1] if known is None else known)
