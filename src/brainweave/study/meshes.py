"""Meshes of the cortex, by name or the user's own, and distances along them."""

from collections.abc import Mapping
from functools import cache
from os import PathLike
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse
from numpy.typing import NDArray

from brainweave._core.exceptions import InputError, StudyError, warn_user

#: Vertices of a hemisphere of the meshes that are known by name.
NAMED = {
    "fsaverage3": 642,
    "fsaverage4": 2562,
    "fsaverage5": 10242,
    "fsaverage6": 40962,
    "fsaverage7": 163842,
    "fsLR-32k": 32492,
}
_SIDES = {"L": "left", "R": "right"}


class Mesh(NamedTuple):
    """Positions of vertices in mm, (n, 3), and the triangles between them, (m, 3)."""

    coordinates: NDArray[Any]
    faces: NDArray[Any]


def side_of(structure: str) -> str:
    """Return "L" or "R", or the structure itself where it names no side."""
    word = structure.upper()
    sides = [s for s in ("LEFT", "RIGHT") if word.endswith(s)] or [word]
    return sides[0][0] if sides[0] in ("LEFT", "RIGHT", "L", "R") else structure


def meshes_of(given: Any, n_vertices: Mapping[str, int]) -> dict[str, Mesh]:
    """Return the mesh of each structure, whose numbers of vertices are given.

    A mesh is "auto" (by the number of vertices), a name of :data:`NAMED`, a path, an
    image, one of nilearn, or (coordinates, faces); mappings hold several.
    """
    found = {}
    for structure, n in n_vertices.items():
        if isinstance(given, str) and given in ("auto", *NAMED):
            name = given
            if given == "auto":
                name = {v: k for k, v in NAMED.items()}.get(n, "")
                if not name:
                    raise InputError(
                        f"{structure} has {n} vertices, as no mesh that is known by "
                        f"name ({NAMED}). Pass mesh={{{structure!r}: 'file.surf.gii'}}."
                    )
            mesh = named_mesh(name, side_of(structure))
        else:
            is_path = isinstance(given, PathLike)
            parts = given if is_path else getattr(given, "parts", given)
            if isinstance(parts, Mapping):
                own = {side_of(k): v for k, v in parts.items()}
                if side_of(structure) not in own:
                    raise InputError(
                        f"mesh has {list(parts)}, and nothing for {structure}. Give a "
                        "mesh for each structure of the data."
                    )
                parts = own[side_of(structure)]
            mesh = _as_mesh(parts)
        if len(mesh.coordinates) != n:
            raise InputError(
                f"The mesh of {structure} has {len(mesh.coordinates)} vertices, the "
                f"data have {n}. Give the mesh that the data were sampled on."
            )
        found[structure] = mesh
    return found


def _as_mesh(given: Any) -> Mesh:
    """Read a mesh from any of the forms in which one is given."""
    from nilearn.surface import load_surf_mesh

    try:
        mesh = load_surf_mesh(given)
        return Mesh(np.asarray(mesh.coordinates), np.asarray(mesh.faces))
    except Exception as error:  # nilearn's and nibabel's readers fail in any way
        shown = given if isinstance(given, str | PathLike) else type(given).__name__
        names, said = ", ".join(NAMED), (str(error).strip().splitlines() or [""])[0]
        raise StudyError(
            f"{str(shown)!r} is no mesh ({said}). Give a .surf.gii file, a pair of "
            f"coordinates and faces, or one of the names {names}."
        ) from error


@cache
def named_mesh(name: str, side: str, surface: str = "midthickness") -> Mesh:
    """Return a hemisphere of a standard mesh, as far as this machine has it.

    fsaverage3 to 5 come with nilearn; nilearn fetches fsaverage6 and 7, and
    templateflow fsLR-32k, if it is installed.
    """
    if side not in _SIDES:
        warn_user(
            f"Surface {side!r} names no hemisphere, so it is taken for the left one of "
            f"{name}. Name it CortexLeft or CortexRight, or pass its own mesh."
        )
        side = "L"
    if name == "fsLR-32k":
        try:
            from templateflow.api import get

            chosen = {"hemi": side, "density": "32k", "suffix": surface}
            path = get("fsLR", extension=".surf.gii", space=None, desc=None, **chosen)
            path = Path(path)
        except Exception as error:  # not installed, of the network, several files
            raise StudyError(
                f"No {surface} surface of fsLR-32k could be had from templateflow "
                f"({type(error).__name__}). Install it, pip install "
                "'brainweave[fetch]' or pass the files: mesh={'left': "
                "'L.midthickness.32k_fs_LR.surf.gii', ...}."
            ) from error
        return _as_mesh(path)
    if surface == "midthickness":
        inner, outer = (named_mesh(name, side, s) for s in ("white_matter", "pial"))
        return Mesh((inner.coordinates + outer.coordinates) / 2, inner.faces)
    from nilearn.datasets import load_fsaverage

    n, part = NAMED[name], _SIDES[side]
    nested = n < NAMED["fsaverage5"]  # whose first vertices are those of coarser ones
    fetched = {"fsaverage7": "fsaverage"}.get(name, "fsaverage5" if nested else name)
    try:
        meshes = load_fsaverage(fetched)
    except Exception as error:  # of the network, in any way
        raise StudyError(
            f"The mesh {name} is not in nilearn's cache and could not be fetched "
            f"({type(error).__name__}). Pass mesh={{'left': 'lh.surf.gii', ...}}."
        ) from error
    whole = meshes[surface].parts[part]
    if not nested:
        return _as_mesh(whole)
    from scipy.spatial import ConvexHull

    sphere = meshes["sphere"].parts[part].coordinates[:n]
    return Mesh(whole.coordinates[:n], ConvexHull(sphere).simplices)


def distance_graph(mesh: Mesh) -> scipy.sparse.csr_array:
    """Return the steps of a path along a mesh: (n_vertices, n_vertices), in mm.

    Steps go along the edges, and across each edge between the two corners that face it:
    with the edges alone paths would be up to 15 % too long.
    """
    at = np.asarray(mesh.coordinates, dtype=np.float64)
    faces = np.asarray(mesh.faces, dtype=np.intp)
    # each triangle has three edges, and a corner that faces each
    turned = np.concatenate([np.roll(faces, -k, axis=1) for k in range(3)])
    i, j = np.sort(turned[:, :2], axis=1).T
    edge_length = np.linalg.norm(at[i] - at[j], axis=1)
    order = np.lexsort((j, i))
    same = (np.diff(i[order]) == 0) & (np.diff(j[order]) == 0)
    one, other = order[:-1][same], order[1:][same]
    a, b = turned[one, 2], turned[other, 2]
    # both triangles laid flat, the edge along the first axis
    along, across = [], []
    for corner in (a, b):
        own = at[corner] - at[i[one]]
        axis = (at[j[one]] - at[i[one]]) / np.maximum(edge_length[one], 1e-9)[:, None]
        along.append((own * axis).sum(axis=1))
        squares = (own * own).sum(axis=1) - along[-1] ** 2
        across.append(np.sqrt(np.maximum(squares, 0)))
    rise = across[0] + across[1]
    crossed = along[0] + (along[1] - along[0]) * across[0] / np.maximum(rise, 1e-9)
    inside = (crossed >= 0) & (crossed <= edge_length[one])
    straight = np.hypot(along[1] - along[0], rise)
    rows = np.concatenate([i, a[inside]])
    columns = np.concatenate([j, b[inside]])
    lengths = np.concatenate([edge_length, straight[inside]])
    low, high = np.minimum(rows, columns), np.maximum(rows, columns)
    key, first = np.unique(low * len(at) + high, return_index=True)
    pair = key // len(at), key % len(at)
    steps = scipy.sparse.csr_array(
        (np.maximum(lengths[first], 1e-9), pair), [len(at)] * 2
    )
    return scipy.sparse.csr_array(steps + steps.T)
