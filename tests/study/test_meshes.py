"""Meshes by name and given, distances along them, and searchlights on surfaces."""

import itertools
import sys
from pathlib import Path
from types import ModuleType

import nibabel as nib
import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from scipy.sparse.csgraph import dijkstra

from brainweave import Hyperalignment, Searchlight, Study, Subject
from brainweave._core.exceptions import BrainweaveError, InputError, StudyError
from brainweave.aligners.piecewise import searchlight as module
from brainweave.study import meshes
from brainweave.study.meshes import Mesh, distance_graph, meshes_of, named_mesh
from brainweave.study.spaces import VolumeSpace
from brainweave.study.surface import CiftiSpace, SurfaceSpace


def grid_mesh(n=12, step=2.0):
    """Return a flat square of n x n vertices, each cell cut along one diagonal."""
    at = np.array(list(itertools.product(range(n), range(n), [0])), float) * step
    corner = np.array([i * n + j for i in range(n - 1) for j in range(n - 1)])
    one = np.c_[corner, corner + 1, corner + n]
    other = np.c_[corner + 1, corner + n, corner + n + 1]
    return Mesh(at, np.concatenate([one, other]))


def people(spaces, rng, n=20):
    subjects = (
        Subject(f"s{i}", rng.normal(size=(n, space.n_voxels)), space=space)
        for i, space in enumerate(spaces)
    )
    return Study(subjects)


def test_names_of_structures_tell_their_side():
    names = ("CIFTI_STRUCTURE_CORTEX_LEFT", "right", "surface", "L")
    assert [meshes.side_of(name) for name in names] == ["L", "R", "surface", "L"]


def test_distances_on_a_sphere_are_those_of_great_circles():
    mesh = named_mesh("fsaverage5", "L", "sphere")
    sources = np.arange(0, 10242, 700)
    found = dijkstra(distance_graph(mesh), indices=sources)
    at = mesh.coordinates.astype(float)
    unit = at / np.linalg.norm(at, axis=1, keepdims=True)
    exact = 100 * np.arccos(np.clip(unit[sources] @ unit.T, -1, 1))
    ratio = found[exact > 5] / exact[exact > 5]
    assert ratio.min() > 0.999  # a chord of the sphere is hardly shorter than its arc
    assert ratio.max() < 1.06
    assert ratio.mean() < 1.02


def test_paths_cross_triangles_in_their_plane():
    # without steps across an edge, one diagonal of each cell takes two edges
    graph = distance_graph(grid_mesh())
    assert_allclose(graph[0, 13], 2 * np.sqrt(2))
    assert_allclose(graph[1, 12], 2 * np.sqrt(2))
    assert graph.nnz == (graph != 0).nnz
    assert abs(graph - graph.T).max() == 0


def test_coarse_meshes_are_nested_spheres():
    for name, n in (("fsaverage3", 642), ("fsaverage4", 2562)):
        mesh = named_mesh(name, "R")
        assert mesh.coordinates.shape == (n, 3)
        assert mesh.faces.shape == (2 * n - 4, 3)  # Euler: closed, without holes


@pytest.mark.parametrize("form", ["pair", "file", "gifti", "mapping", "nilearn"])
def test_a_mesh_may_be_given_in_many_forms(form, tmp_path):
    own = grid_mesh(4)
    arrays = [
        nib.gifti.GiftiDataArray(own.coordinates.astype("f4"), "NIFTI_INTENT_POINTSET"),
        nib.gifti.GiftiDataArray(own.faces.astype("i4"), "NIFTI_INTENT_TRIANGLE"),
    ]
    image = nib.GiftiImage(darrays=arrays)
    nib.save(image, tmp_path / "lh.surf.gii")
    from nilearn.surface import InMemoryMesh, PolyMesh

    given = {
        "pair": tuple(own),
        "file": tmp_path / "lh.surf.gii",
        "gifti": str(tmp_path / "lh.surf.gii"),
        "mapping": {"left": tmp_path / "lh.surf.gii"},
        "nilearn": PolyMesh(left=InMemoryMesh(*own)),
    }[form]
    found = meshes_of(given, {"CortexLeft": 16})["CortexLeft"]
    assert_allclose(found.coordinates, own.coordinates)
    assert_array_equal(found.faces, own.faces)


@pytest.mark.parametrize(
    ("given", "text"),
    [
        ("auto", "has 16 vertices, as no mesh that is known"),
        ("fsaverage3", "has 642 vertices, the data have 16"),
        ({"right": grid_mesh(4)}, "nothing for CortexLeft"),
        ("nowhere.surf.gii", "is no mesh"),
    ],
)
def test_a_mesh_that_does_not_fit_is_refused(given, text):
    with pytest.raises(BrainweaveError, match=text):
        meshes_of(given, {"CortexLeft": 16})


def test_fslr_comes_from_templateflow(monkeypatch):
    monkeypatch.setitem(sys.modules, "templateflow.api", None)
    with pytest.raises(StudyError, match=r"pip install .brainweave\[fetch\]"):
        named_mesh("fsLR-32k", "L", "sphere")
    api = ModuleType("templateflow.api")
    asked = {}
    api.get = lambda template, **chosen: asked.update(chosen) or "L.surf.gii"
    monkeypatch.setitem(sys.modules, "templateflow", ModuleType("templateflow"))
    monkeypatch.setitem(sys.modules, "templateflow.api", api)
    monkeypatch.setattr(meshes, "_as_mesh", lambda path: path)
    assert meshes.named_mesh.__wrapped__("fsLR-32k", "L") == Path("L.surf.gii")
    assert asked["hemi"] == "L"
    assert asked["suffix"] == "midthickness"


def test_neighborhoods_follow_the_surface_and_masks(rng):
    # a strip that is folded: its ends touch in space, and are far apart along it
    mesh = grid_mesh(12)
    x = mesh.coordinates[:, 0]
    folded = np.c_[np.where(x < 11, x, 22 - x), mesh.coordinates[:, 1], 0.5 * (x > 11)]
    mask = np.ones(144, bool)
    mask[5] = False
    spaces = [SurfaceSpace({"CortexLeft": 144}), SurfaceSpace({"CortexLeft": mask})]
    model = Searchlight(Hyperalignment(2), 4.1, mesh=(folded, mesh.faces))
    model.fit(people(spaces, rng))
    near = model.neighborhoods_[0]
    distances = dijkstra(distance_graph(Mesh(folded, mesh.faces)), indices=[0])[0]
    assert_array_equal(near, np.flatnonzero(distances <= 4.1))
    assert 132 not in near  # at 0.5 mm through the air
    weights = model.maps_[1].weights
    assert weights.shape == (143, 144)
    assert_allclose(model.centers_, folded)


def test_grayordinates_stay_within_their_structure(rng):
    left = nib.cifti2.BrainModelAxis.from_surface(
        np.arange(642), 642, "CIFTI_STRUCTURE_CORTEX_LEFT"
    )
    right = nib.cifti2.BrainModelAxis.from_surface(
        np.arange(1, 642), 642, "CIFTI_STRUCTURE_CORTEX_RIGHT"
    )
    inside = nib.cifti2.BrainModelAxis.from_mask(
        np.ones((3, 3, 3)), "CIFTI_STRUCTURE_THALAMUS_LEFT", np.diag([2.0, 2, 2, 1])
    )
    axis = left + right + inside
    scalars = nib.cifti2.ScalarAxis(["map"])
    data = np.zeros((1, len(axis)), np.float32)
    space = CiftiSpace(nib.Cifti2Image(data, header=(scalars, axis)))
    model = Searchlight(Hyperalignment(2), 12, spacing=12, n_jobs=1)
    pieces = model._find_pieces([space.n_voxels] * 2, [space] * 2)
    structures = np.array([name[-5:] for name in axis.name])
    for columns in pieces.columns[0]:
        assert len(set(structures[columns])) == 1
    covered = np.unique(np.concatenate(pieces.columns[0]))
    assert covered.size == space.n_voxels  # spacing leaves nobody out
    assert len(pieces.columns[0]) < space.n_voxels / 3
    assert len(pieces.columns[0][-1]) == 27  # a sphere in the volume


def test_spaced_centers_are_far_apart_and_cover_all(rng):
    space = VolumeSpace.from_mask(np.ones((6, 6, 6)), np.diag([2.0, 2, 2, 1]))
    model = Searchlight(Hyperalignment(2), 4, spacing=4).fit(people([space] * 2, rng))
    apart = np.linalg.norm(model.centers_[:, None] - model.centers_, axis=2)
    assert apart[apart > 0].min() >= 4
    assert model.coverage_.min() >= 1
    with pytest.raises(InputError, match="spacing=5 of Searchlight is more than"):
        Searchlight(Hyperalignment(2), 4, spacing=5).fit(people([space] * 2, rng))


def test_a_new_subject_joins_on_its_own_vertices(rng):
    mesh = grid_mesh(6)
    mask = np.arange(36) != 7
    space, other = (SurfaceSpace({"CortexLeft": m}) for m in (36, mask))
    study = people([space, space], rng)
    model = Searchlight(Hyperalignment(2), 3, mesh=mesh).fit(study)
    old = study.subjects[1]
    new = Subject("new", old.data()[:, mask], space=other)
    found = model.fit_new_subject(new)
    assert found.weights.shape == (35, 36)
    same = model.fit_new_subject(Subject("same", old.data(), space=space))
    far = np.flatnonzero(
        np.linalg.norm(mesh.coordinates - mesh.coordinates[7], axis=1) > 8
    )
    assert_allclose(
        found.weights.toarray()[far - (far > 7)][:, far],
        same.weights.toarray()[far][:, far],
        atol=1e-9,
    )


def test_meshes_of_other_sizes_do_not_correspond(rng):
    spaces = [SurfaceSpace({"CortexLeft": 642}), SurfaceSpace({"CortexLeft": 2562})]
    with pytest.raises(InputError, match="different meshes for CortexLeft"):
        Searchlight(Hyperalignment(2), 10).fit(people(spaces, rng))


def test_many_neighborhoods_settle_what_a_gdm_chooses(rng, monkeypatch):
    from brainweave import GDM

    monkeypatch.setattr(module, "N_SOURCES", 3)
    monkeypatch.setattr("brainweave.aligners.piecewise.piecewise.MANY_PIECES", 10)
    monkeypatch.setattr("brainweave.aligners.piecewise.piecewise.N_PILOTS", 5)
    space = SurfaceSpace({"CortexLeft": 36})
    study = people([space] * 3, rng, n=30)
    model = Searchlight(GDM(2, graph="time", place=None), 4, mesh=grid_mesh(6)).fit(
        study
    )
    ridges = {m.shrinkage_ for m in model.aligners_}
    assert len(ridges) == 1
    assert {m.shrinkage_by_ for m in model.aligners_} == {"given"}
    own = [
        GDM(2, graph="time", place=None).fit([s.data()[:, columns] for s in study])
        for columns in [model.neighborhoods_[k] for k in (0, 9, 18, 26, 35)]
    ]
    assert_allclose(ridges.pop(), np.median([m.shrinkage_ for m in own]))
