"""Brain models of CIFTI files, and GIfTI surfaces of one hemisphere or both."""

import re
from collections.abc import Mapping, Sequence
from functools import cache
from os import PathLike
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias

import nibabel as nib
import numpy as np
from nibabel.gifti.parse_gifti_fast import GiftiImageParser
from numpy.typing import ArrayLike

from brainweave._core.arrays import Codes, Floats, Mask
from brainweave._core.exceptions import StudyError
from brainweave.basis.places import Part
from brainweave.study.atlases import labels_of_grayordinates, labels_on_surface
from brainweave.study.meshes import distance_graph, meshes_of, side_of
from brainweave.study.spaces import (
    ImageLike,
    ImageSpace,
    RunHeader,
    check_values,
    grid_frame,
    image_name,
    load_image,
    reading,
    supervoxels,
)

_STRUCTURE = "AnatomicalStructurePrimary"
SIDES = {"L": "CortexLeft", "R": "CortexRight"}  # by hemi-<side> in file names
_NILEARN = {"CortexLeft": "left", "CortexRight": "right"}

# Vertices of a hemisphere of fsaverage3, fsaverage4 and fsaverage5.
_FSAVERAGE = (642, 2562, 10242)
_PATCHES = "patches of fsaverage, about 14 mm across"

# One image, or one per structure: {"CortexLeft": left, "CortexRight": right}.
SurfaceRun: TypeAlias = ImageLike | Mapping[str, ImageLike]
# Columns, vertices and size of the mesh of each structure.
Structures: TypeAlias = dict[str, tuple[Codes, Codes, int]]


class _Grayordinates(ImageSpace):
    """What spaces of vertices, and perhaps of voxels beside them, share."""

    #: Brain models of the voxels beside the vertices, and their columns.
    _volume: tuple[Any, Codes] | None = None
    _structures: Any  # a method that returns Structures

    def place_labels(self) -> tuple[str, list[str | None], str] | None:
        """Return the place of each grayordinate: patches of fsaverage3, cubes of 8 mm.

        Vertices of other meshes (fsLR) have none: nilearn has no sphere of theirs.
        """
        names = np.full(self.n_voxels, None, dtype=object)
        known = {}
        for name, (columns, vertices, n) in self._structures().items():
            patches = _patches(n)
            if patches is not None:
                names[columns] = [f"{side_of(name)}-{p}" for p in patches[vertices]]
                known["fsaverage"] = _PATCHES
        if self._volume is not None:
            axis, columns = self._volume
            voxels = axis.voxel[columns]
            grid, cubes, what = supervoxels(voxels, axis.volume_shape, axis.affine)
            names[columns] = cubes
            known[grid] = what
        if not known:
            return None
        return "; ".join(known), names.tolist(), " and ".join(known.values())

    def voxel_labels(self) -> tuple[str, list[Any], str]:
        """Return the structure and vertex, or the voxel, of each grayordinate."""
        names = np.full(self.n_voxels, None, dtype=object)
        structures = self._structures().items()
        for name, (columns, vertices, _) in structures:
            names[columns] = [f"{name}-{vertex}" for vertex in vertices]
        frame = f"meshes of { {name: n for name, (_, _, n) in structures} } vertices"
        if self._volume is not None:
            axis, columns = self._volume
            names[columns] = [str(voxel) for voxel in axis.voxel[columns].tolist()]
            frame += f", {grid_frame(axis.volume_shape, axis.affine)[0]}"
        return frame, names.tolist(), "grayordinates"

    def parts(self, mesh: Any = "auto") -> list[Part]:
        """Return the surfaces, and the volume, that grayordinates lie in."""
        structures = self._structures()
        meshes = meshes_of(mesh, {name: n for name, (_, _, n) in structures.items()})
        found = []
        for name, (columns, vertices, _) in structures.items():
            at = meshes[name].coordinates[vertices]
            graph = distance_graph(meshes[name])
            found.append(Part(name, columns, at, vertices, graph))
        if self._volume is not None:
            axis, columns = self._volume
            at = axis.voxel[columns] @ axis.affine[:3, :3].T + axis.affine[:3, 3]
            found.append(Part("volume", columns, at))
        return found


class CiftiSpace(_Grayordinates):
    """The grayordinates of a CIFTI file.

    Parameters
    ----------
    image : path or Cifti2Image
        A dtseries or dscalar with the brain models.
    """

    kind = "cifti"

    def __init__(self, image: ImageLike) -> None:
        self.axis = _load_cifti(image)[1]
        self.n_voxels = len(self.axis)
        inside = np.flatnonzero(self.axis.volume_mask)
        self._volume = (self.axis, inside) if inside.size else None

    def _structures(self) -> Structures:
        axis, found = self.axis, {}
        for name, n in axis.nvertices.items():
            columns = np.flatnonzero(np.asarray(axis.name) == name)
            if columns.size:
                found[name] = columns, axis.vertex[columns], n
        return found

    def header(self, run: ImageLike) -> RunHeader:
        """Check that a run has the same brain models, reading its header only."""
        image = self._load(run)
        axis = image.header.get_axis(0)
        in_seconds = getattr(axis, "unit", None) == "SECOND"
        return RunHeader(int(image.shape[0]), float(axis.step) if in_seconds else None)

    def _load(self, run: ImageLike) -> Any:
        image, axis = _load_cifti(run)
        if axis != self.axis:
            raise StudyError(
                f"{image_name(run)!r} has other brain models ({len(axis)} "
                f"grayordinates) than the first file ({self.n_voxels}). Use one space."
            )
        return image

    def _read(self, run: ImageLike, _: float | None) -> Floats:
        image = self._load(run)
        with reading(run):
            return np.ascontiguousarray(image.dataobj)

    def to_image(self, values: ArrayLike) -> Any:
        """Make a CIFTI dscalar image with a row per map."""
        maps, _ = check_values(values, self.n_voxels)
        scalars = nib.cifti2.ScalarAxis([f"map {k + 1}" for k in range(len(maps))])
        image = nib.Cifti2Image(maps, header=(scalars, self.axis))
        image.update_headers()
        image.nifti_header.set_intent("NIFTI_INTENT_CONNECTIVITY_DENSE_SCALARS")
        return image

    def labels_of(self, atlas: Any) -> Floats:
        """Return the parcel of each grayordinate in an atlas; None for none."""
        return labels_of_grayordinates(atlas, self.axis)

    def save(self, stem: Path) -> list[Path]:
        """Write the brain models as an empty dscalar image."""
        path = stem.with_name(stem.name + ".dscalar.nii")
        nib.save(self.to_image(np.zeros(self.n_voxels, np.float32)), path)
        return [path]

    def _is_same(self, other: "CiftiSpace") -> bool:
        return bool(self.axis == other.axis)

    def __repr__(self) -> str:
        return f"CiftiSpace({self.n_voxels} grayordinates)"


def _load_cifti(image: ImageLike) -> tuple[Any, Any]:
    """Open a CIFTI file, and return it and its brain models."""
    loaded = load_image(image, nib.Cifti2Image)
    axes = [loaded.header.get_axis(dimension) for dimension in range(loaded.ndim)]
    first = (nib.cifti2.SeriesAxis, nib.cifti2.ScalarAxis)
    if (
        len(axes) != 2
        or not isinstance(axes[0], first)
        or not isinstance(axes[1], nib.cifti2.BrainModelAxis)
    ):
        kinds = " x ".join(type(axis).__name__ for axis in axes)
        raise StudyError(
            f"{image_name(image)!r} is a CIFTI file of {kinds}; only dtseries and "
            "dscalar hold samples x grayordinates."
        )
    return loaded, axes[1]


class SurfaceSpace(_Grayordinates):
    """The vertices of one surface, or of several stacked.

    Parameters
    ----------
    masks : mapping of str to array-like of bool, or to int
        Per structure (``"CortexLeft"``, ``"CortexRight"``), in the order of the
        stacked vertices: which vertices are in, or how many there are.

    Examples
    --------
    >>> space = SurfaceSpace({"CortexLeft": [True, False, True]})
    >>> space.to_image([1.0, 2.0]).agg_data()
    array([1., 0., 2.], dtype=float32)
    """

    kind = "surface"

    def __init__(self, masks: Mapping[str, ArrayLike | int]) -> None:
        self.masks: dict[str, Mask] = {}
        for name, mask in masks.items():
            given = np.ones(mask) if isinstance(mask, int) else mask
            self.masks[name] = np.asarray(given, bool).ravel()
        self.n_voxels = sum(int(mask.sum()) for mask in self.masks.values())
        self.mesh: Any = None  # of runs that were nilearn's SurfaceImages
        if self.n_voxels == 0:
            raise StudyError("This surface has no vertices inside its mask.")

    @classmethod
    def from_run(
        cls, run: SurfaceRun, mask: SurfaceRun | None = None
    ) -> "SurfaceSpace":
        """Take the structures and vertex counts of a run, and of a mask if given.

        Parameters
        ----------
        run : path, GiftiImage, or a mapping of structure to either
            A functional GIfTI file, or one per hemisphere.
        mask : the same form as `run`, optional
            Vertices above zero are in (for instance, all but the medial wall).
        """
        images = _by_structure(run)
        counts = {name: _gifti_header(i).n_vertices for name, i in images.items()}
        masks: dict[str, Any] = dict(counts)
        if mask is not None:
            parts = _by_structure(mask).items()
            masks = {name: _read_gifti(image)[0] > 0 for name, image in parts}
            found = {name: len(inside) for name, inside in masks.items()}
            if list(found.items()) != list(counts.items()):
                raise StudyError(
                    f"The run has the vertices {counts}, the mask {found}. Give a mask "
                    "of the same surface for each structure, in the same order."
                )
        space = cls(masks)
        space.mesh = getattr(run, "mesh", None)
        return space

    def header(self, run: SurfaceRun) -> RunHeader:
        """Check vertex counts and count samples without decoding the data."""
        lengths = []
        for name, image in self._images_of(run).items():
            header = _gifti_header(image)
            if header.n_vertices != len(self.masks[name]):
                raise StudyError(
                    f"{image_name(image)!r} has {header.n_vertices} vertices where "
                    f"{len(self.masks[name])} are expected for {name}. Use one mesh."
                )
            lengths.append(header.n_samples)
        if len(set(lengths)) > 1:
            raise StudyError(
                f"The hemispheres of {image_name(run)!r} differ in samples: {lengths}. "
                "Give files of the same run."
            )
        return RunHeader(lengths[0])

    def _read(self, run: SurfaceRun, _: float | None) -> Floats:
        self.header(run)
        parts = self._images_of(run).items()
        return np.hstack([_read_gifti(i)[:, self.masks[name]] for name, i in parts])

    def _images_of(self, run: SurfaceRun) -> dict[str, ImageLike]:
        parts = _by_structure(run)
        one_each = len(self.masks) == len(parts) == 1
        if one_each and "surface" in {*parts, *self.masks}:
            return dict.fromkeys(self.masks, *parts.values())  # of an unknown structure
        if set(parts) != set(self.masks):
            raise StudyError(
                f"The run has the structures {list(parts)}, but {list(self.masks)} are "
                "expected. Give one file for each."
            )
        return {name: parts[name] for name in self.masks}

    def to_image(self, values: ArrayLike) -> Any:
        """Make a GIfTI image with a data array per map; a dict of them if several.

        Vertices outside the mask get zero. Of runs that were nilearn's SurfaceImages
        it makes a SurfaceImage.
        """
        maps, single = check_values(values, self.n_voxels)
        images, start = {}, 0
        for name, mask in self.masks.items():
            stop = start + int(mask.sum())
            full = np.zeros((len(maps), len(mask)), np.float32)
            full[:, mask] = maps[:, start:stop]
            images[name] = full if self.mesh is not None else _gifti_image(name, full)
            start = stop
        if self.mesh is not None:
            from nilearn.surface import SurfaceImage

            parts = {
                _NILEARN[name]: full[0] if single else full.T
                for name, full in images.items()
            }
            return SurfaceImage(self.mesh, parts)
        return next(iter(images.values())) if len(images) == 1 else images

    def _structures(self) -> Structures:
        start, found = 0, {}
        for name, mask in self.masks.items():
            vertices = np.flatnonzero(mask)
            stop = start + vertices.size
            if vertices.size:
                found[name] = np.arange(start, stop), vertices, len(mask)
            start = stop
        return found

    def labels_of(self, atlas: Any) -> Floats:
        """Return the parcel of each vertex in an atlas; None for none."""
        sizes = {name: len(mask) for name, mask in self.masks.items()}
        whole = labels_on_surface(atlas, sizes)
        return np.concatenate([whole[name][mask] for name, mask in self.masks.items()])

    def save(self, stem: Path) -> list[Path]:
        """Write one mask per structure as GIfTI."""
        paths = []
        for name, mask in self.masks.items():
            path = stem.with_name(f"{stem.name}_{name}.shape.gii")
            nib.save(_gifti_image(name, mask[None].astype(np.float32)), path)
            paths.append(path)
        return paths

    @classmethod
    def load(cls, paths: Sequence[Path]) -> "SurfaceSpace":
        """Read what :meth:`save` wrote."""
        names = [_gifti_header(path).structure for path in paths]
        masks = [_read_gifti(path)[0] > 0 for path in paths]
        return cls(dict(zip(names, masks, strict=True)))

    def _is_same(self, other: "SurfaceSpace") -> bool:
        return list(self.masks) == list(other.masks) and all(
            np.array_equal(mask, other.masks[name]) for name, mask in self.masks.items()
        )

    def __repr__(self) -> str:
        parts = ", ".join(f"{n}: {int(m.sum())}" for n, m in self.masks.items())
        return f"SurfaceSpace({parts} vertices)"


@cache
def _patches(n_vertices: int) -> Codes | None:
    """Return the nearest of the first 642 vertices for each vertex of a hemisphere."""
    # meshes of fsaverage are nested, and both hemispheres have one sphere
    if n_vertices not in _FSAVERAGE:
        return None
    from nilearn.datasets import load_fsaverage
    from scipy.spatial import cKDTree

    sphere = load_fsaverage("fsaverage5")["sphere"].parts["left"].coordinates
    coarse = cKDTree(sphere[: _FSAVERAGE[0]])
    return np.asarray(coarse.query(sphere[:n_vertices])[1], dtype=np.intp)


def _by_structure(run: SurfaceRun) -> dict[str, ImageLike]:
    """Return the images of a run by their structures."""
    if isinstance(run, Mapping):
        return dict(run)
    if hasattr(run, "mesh"):  # nilearn's SurfaceImage
        parts = run.data.parts
        return {name: parts[p] for name, p in _NILEARN.items() if p in parts}
    return {_gifti_header(run).structure or "surface": run}


def pair_hemispheres(images: Sequence[SurfaceRun]) -> list[SurfaceRun]:
    """Return a subject's files as runs: hemi-L and hemi-R of one name go together."""
    whole = any(isinstance(i, Mapping) or hasattr(i, "mesh") for i in images)
    if len(images) < 2 or whole:
        return list(images)
    sides, stems = [], []
    for image in images:
        name, inside = Path(image_name(image)).name, _gifti_header(image).structure
        mark = re.search("hemi-([LR])", name)
        sides.append(SIDES[mark[1]] if mark else inside)
        stems.append(name.replace(mark[0], "") if mark else name)
        if inside not in ("", sides[-1]):
            raise StudyError(f"{name!r} is {inside} inside. Correct one of them.")
    named_runs = all(re.search("(run|ses)-", stem) for stem in stems)
    if len(set(sides)) == 1 and (sides[0] or named_runs):
        return list(images)
    pairs: dict[str, dict[str, ImageLike]] = {}
    for image, side, stem in zip(images, sides, stems, strict=True):
        pairs.setdefault(stem, {})[side] = image
    complete = all(set(pair) == set(_NILEARN) for pair in pairs.values())
    if 2 * len(pairs) != len(images) or not complete:
        raise StudyError(
            "Which of these files are hemispheres of one run is not clear: "
            f"{', '.join(Path(image_name(image)).name for image in images)}. Give each "
            'run as {"CortexLeft": left, "CortexRight": right}.'
        )
    return [dict(sorted(pair.items())) for pair in pairs.values()]


def _gifti_image(structure: str, maps: Floats) -> Any:
    kind = {"intent": "NIFTI_INTENT_NONE", "datatype": "NIFTI_TYPE_FLOAT32"}
    rows = np.ascontiguousarray(maps, np.float32)
    arrays = [nib.gifti.GiftiDataArray(row, **kind) for row in rows]
    meta = nib.gifti.GiftiMetaData({_STRUCTURE: structure})
    return nib.gifti.GiftiImage(darrays=arrays, meta=meta)


def _read_gifti(image: ImageLike) -> Floats:
    """Read a functional GIfTI into samples x vertices."""
    if isinstance(image, np.ndarray):  # of a SurfaceImage: vertices x samples
        return np.atleast_2d(image.T)
    with reading(image):
        arrays = [array.data for array in load_image(image, nib.GiftiImage).darrays]
    if len(arrays) == 1 and arrays[0].ndim == 2:
        return np.asarray(arrays[0]).T  # one array of vertices x samples
    return np.vstack(arrays)


class _GiftiHeader(NamedTuple):
    n_samples: int
    n_vertices: int
    structure: str


def _gifti_header(image: ImageLike) -> _GiftiHeader:
    """Read what a functional GIfTI holds, without decoding its data."""
    if isinstance(image, np.ndarray):
        n_samples, n_vertices = np.atleast_2d(image.T).shape
        return _GiftiHeader(n_samples, n_vertices, "")
    if isinstance(image, str | PathLike):
        parser = _HeaderParser()
        with reading(image), nib.openers.ImageOpener(image, "rb") as file:
            parser.parse(fptr=file)
        arrays, meta = parser.img.darrays, parser.img.meta
        shapes = [tuple(array.dims) for array in arrays]
    else:
        arrays, meta = image.darrays, image.meta
        shapes = [array.data.shape for array in arrays]
    shapes = [shape[:1] if shape[1:] == (1,) else shape for shape in shapes]
    named = (m.get(_STRUCTURE) for m in (meta, *(array.meta for array in arrays)))
    structure = next(filter(None, named), "")
    if len(shapes) == 1 and len(shapes[0]) == 2:
        return _GiftiHeader(shapes[0][1], shapes[0][0], structure)
    if not shapes or len(set(shapes)) != 1 or len(shapes[0]) != 1:
        raise StudyError(
            f"{image_name(image)!r} has data arrays of shapes {sorted(set(shapes))}, "
            "not one value per vertex in each. Is it a mesh (.surf.gii)?"
        )
    return _GiftiHeader(len(shapes), shapes[0][0], structure)


class _HeaderParser(GiftiImageParser):
    """nibabel's parser of GIfTI, which leaves out the data."""

    def flush_chardata(self) -> None:
        if self.write_to == "Data":
            self._char_blocks = None
        else:
            super().flush_chardata()
