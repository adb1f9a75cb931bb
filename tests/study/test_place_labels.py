"""What brain spaces know of places: supervoxels, and patches of fsaverage."""

import nibabel as nib
import numpy as np
import pytest

from brainweave.basis.places import find_places
from brainweave.study import CiftiSpace, Study, Subject, SurfaceSpace, VolumeSpace

AFFINE = np.array([[-3.0, 0, 0, 30], [0, 3.0, 0, -40], [0, 0, 3.0, -20], [0, 0, 0, 1]])


def volume(rng, share=0.7, affine=AFFINE, shape=(9, 10, 8)):
    return VolumeSpace.from_mask(rng.random(shape) < share, affine)


def test_supervoxels_are_cubes_of_8_mm_in_world_coordinates(rng):
    space = volume(rng)
    _, labels, what = space.place_labels()
    assert what == "supervoxels of 8 mm"
    for ijk, label in zip(np.argwhere(space.mask), labels, strict=True):
        position = AFFINE[:3, :3] @ ijk + AFFINE[:3, 3]
        assert label == ",".join(str(int(np.floor(x / 8))) for x in position)


def test_masks_on_one_grid_share_the_frame_and_other_grids_do_not(rng):
    one, other = volume(rng), volume(rng, 0.5)
    moved = AFFINE + np.array([[0, 0, 0, 1.5]] + [[0] * 4] * 3)
    assert one.place_labels()[0] == other.place_labels()[0]
    assert volume(rng, affine=moved).place_labels()[0] != one.place_labels()[0]
    assert volume(rng, shape=(9, 10, 9)).place_labels()[0] != one.place_labels()[0]


def test_rounding_of_headers_moves_no_voxel_to_another_cube():
    affine = np.diag([2.0, 2.0, 2.0, 1.0])  # every fourth voxel is on a border
    noisy = affine.copy()
    noisy[:3] += 1e-6 * np.random.default_rng(0).normal(size=(3, 4))
    mask = np.ones((9, 9, 9))
    spaces = [VolumeSpace.from_mask(mask, a) for a in (affine, noisy)]
    assert spaces[0].place_labels() == spaces[1].place_labels()


def subjects_in(spaces, rng):
    return [
        Subject(str(i), rng.normal(size=(5, space.n_voxels)), space=space)
        for i, space in enumerate(spaces)
    ]


def test_unequal_masks_give_the_mean_of_the_voxels_that_a_subject_has(rng):
    spaces = [volume(rng), volume(rng, 0.4)]
    spaces[1].mask[:3] = False  # the second subject has nothing in some places
    spaces[1] = VolumeSpace.from_mask(spaces[1].mask, AFFINE)
    places = find_places("auto", subjects_in(spaces, rng), owner="GDM")
    assert places.matrices[1].sum(axis=0).min() == 0
    for space, matrix in zip(spaces, places.matrices, strict=True):
        labels = np.array(space.place_labels()[1])
        values = rng.normal(size=space.n_voxels)
        found = values @ matrix
        for j, name in enumerate(places.names):
            here = values[labels == name]
            expected = here.mean() if here.size else 0.0
            assert found[j] == pytest.approx(expected)


def test_native_grids_are_no_common_space(rng):
    spaces = [volume(rng), volume(rng, shape=(8, 9, 9))]
    found = find_places("auto", subjects_in(spaces, rng), owner="GDM")
    assert found == "the subjects are not in one space"


def test_patches_surround_the_vertices_of_fsaverage3():
    mask = np.ones(10242, bool)
    mask[[5, 700]] = False
    space = SurfaceSpace({"CortexLeft": mask, "CortexRight": 10242})
    frame, labels, what = space.place_labels()
    assert (frame, "fsaverage" in what) == ("fsaverage", True)
    assert labels[:6] == ["L-0", "L-1", "L-2", "L-3", "L-4", "L-6"]
    right = labels[10240:]
    assert right[:642] == [f"R-{i}" for i in range(642)]
    sizes = np.unique(right, return_counts=True)[1]
    assert len(sizes) == 642
    assert sizes.min() >= 12
    assert sizes.max() <= 20  # sixteen vertices to a patch


def test_coarser_meshes_of_fsaverage_have_the_same_patches():
    fine = SurfaceSpace({"CortexLeft": 10242}).place_labels()
    coarse = SurfaceSpace({"CortexLeft": 2562}).place_labels()
    assert coarse[0] == fine[0]
    assert coarse[1] == fine[1][:2562]


def test_meshes_without_a_sphere_have_no_places():
    assert SurfaceSpace({"CortexLeft": 32492}).place_labels() is None
    two = SurfaceSpace({"CortexLeft": 10242, "CortexRight": 300})
    assert [n is None for n in two.place_labels()[1][10241:10243]] == [False, True]


def cifti(structure, n_vertices, voxels=True):
    cortex = nib.cifti2.BrainModelAxis.from_surface(
        np.arange(0, n_vertices, 2), n_vertices, name=structure
    )
    axis = cortex
    if voxels:
        mask = np.zeros((6, 6, 6), bool)
        mask[1:5, 2, 3] = True
        axis = cortex + nib.cifti2.BrainModelAxis.from_mask(
            mask, name="thalamus_left", affine=AFFINE
        )
    rows = nib.cifti2.ScalarAxis(["one"])
    image = nib.Cifti2Image(np.zeros((1, len(axis)), np.float32), header=(rows, axis))
    return CiftiSpace(image)


def test_grayordinates_have_places_where_their_mesh_or_grid_is_known():
    known, other = cifti("cortex_left", 2562), cifti("cortex_left", 32492)
    _, labels, what = known.place_labels()
    expected = SurfaceSpace({"CortexLeft": 2562}).place_labels()[1][::2]
    assert labels[:1281] == expected
    assert "patches of fsaverage" in what
    assert "supervoxels of 8 mm" in what
    frame, labels, what = other.place_labels()
    assert set(labels[:-4]) == {None}
    assert labels[-4:] == ["3,-5,-2", "3,-5,-2", "2,-5,-2", "2,-5,-2"]
    assert what == "supervoxels of 8 mm"
    assert frame == cifti("cortex_left", 32492).place_labels()[0]
    assert cifti("cortex_left", 32492, voxels=False).place_labels() is None


def test_a_study_of_surfaces_is_aligned_by_patches(rng):
    from brainweave import GDM

    masks = [rng.random(2562) < 0.9 for _ in range(3)]
    story = rng.normal(size=(60, 3))
    maps = rng.normal(size=(3, 2562))
    study = Study(
        Subject(
            str(i),
            story @ maps[:, mask] + rng.normal(size=(60, mask.sum())),
            stimuli=np.arange(60),
            space=SurfaceSpace({"CortexLeft": mask}),
        )
        for i, mask in enumerate(masks)
    )
    gdm = GDM(2, graph="time", place_shrinkage=0.1).fit(study)
    assert gdm.place_.n_places == 642
    image = gdm.shared_map_.to_image(0, like=study[1])
    assert image.agg_data().shape == (2562,)
    assert not image.agg_data()[~masks[1]].any()
