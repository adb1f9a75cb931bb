"""The parcel of each voxel, vertex and grayordinate, from all kinds of atlases."""

from types import SimpleNamespace

import nibabel as nib
import numpy as np
import pandas as pd
import pytest

from brainweave import DetSRM, Parcelwise, Study, Subject
from brainweave._core.exceptions import BrainweaveError
from brainweave.study.spaces import VolumeSpace
from brainweave.study.surface import CiftiSpace, SurfaceSpace

AFFINE = np.diag([2.0, 2, 2, 1])
N = 642
CODES = np.repeat([0, 1, 2], 214)


def volume():
    return VolumeSpace.from_mask(np.ones((4, 4, 4)), AFFINE)


def gifti_labels(codes, names):
    table = nib.gifti.GiftiLabelTable()
    for key, name in enumerate(names):
        label = nib.gifti.GiftiLabel(key)
        label.label = name
        table.labels.append(label)
    array = nib.gifti.GiftiDataArray(codes.astype("i4"), "NIFTI_INTENT_LABEL")
    return nib.GiftiImage(darrays=[array], labeltable=table)


def brain_models(sides=("LEFT", "RIGHT"), n=N):
    axes = [
        nib.cifti2.BrainModelAxis.from_surface(
            np.arange(n), N, f"CIFTI_STRUCTURE_CORTEX_{side}"
        )
        for side in sides
    ]
    return sum(axes[1:], axes[0])


def dlabel(axis, codes):
    names = {0: ("???", (0, 0, 0, 0)), 1: ("V1", (1, 0, 0, 1)), 2: ("MT", (0, 1, 0, 1))}
    labels = nib.cifti2.LabelAxis(["atlas"], [names])
    return nib.Cifti2Image(codes[None].astype("f4"), header=(labels, axis))


def cifti_space(axis):
    scalars = nib.cifti2.ScalarAxis(["map"])
    data = np.zeros((1, len(axis)), "f4")
    return CiftiSpace(nib.Cifti2Image(data, header=(scalars, axis)))


def test_volumes_take_images_files_and_named_tables(tmp_path):
    labels = np.zeros((4, 4, 4), np.int16)
    labels[:2], labels[2:] = 1, 2
    image = nib.Nifti1Image(labels, AFFINE)
    nib.save(image, tmp_path / "atlas.nii.gz")
    for given in (image, tmp_path / "atlas.nii.gz", str(tmp_path / "atlas.nii.gz")):
        assert volume().labels_of(given).tolist() == labels.ravel().tolist()
    lut = pd.DataFrame({"index": [0, 1, 2], "name": ["Background", "A1", "V4"]})
    named = volume().labels_of(SimpleNamespace(maps=image, lut=lut))
    assert named.tolist() == ["A1"] * 32 + ["V4"] * 32
    assert volume().labels_of(SimpleNamespace(labels_img_=image))[0] == 1


def test_hemispheres_take_gifti_labels_annotations_and_surface_images(tmp_path):
    space = SurfaceSpace({"CortexLeft": CODES != 2, "CortexRight": N})
    gii = {s: gifti_labels(CODES, ["???", "V1", "MT"]) for s in ("left", "right")}
    found = space.labels_of(gii)
    assert found[:214].tolist() == [None] * 214
    assert set(found[214:428]) == {"L-V1"}  # told apart from the one on the right
    assert set(found[428:].tolist()) == {None, "R-V1", "R-MT"}
    colors = np.c_[np.arange(3) * 30, np.zeros((3, 3)), np.arange(3)].astype(int)
    files = {}
    for side in ("lh", "rh"):
        path = tmp_path / f"{side}.test.annot"
        texts = ["unknown", f"{side}V1", f"{side}MT"]
        nib.freesurfer.write_annot(path, CODES, colors, texts, fill_ctab=True)
        files["left" if side == "lh" else "right"] = path
    assert set(space.labels_of(files).tolist()) == {None, "lhV1", "rhV1", "rhMT"}
    from nilearn.surface import SurfaceImage

    from brainweave.study.meshes import named_mesh

    mesh = {s: tuple(named_mesh("fsaverage3", s)) for s in "LR"}
    from nilearn.surface import InMemoryMesh, PolyMesh

    poly = PolyMesh(left=InMemoryMesh(*mesh["L"]), right=InMemoryMesh(*mesh["R"]))
    image = SurfaceImage(poly, {"left": CODES, "right": CODES + 3})
    assert set(space.labels_of(image).tolist()) <= {0, 1, 3, 4, 5}


def test_grayordinates_take_dlabel_files_of_more_vertices(tmp_path):
    whole, part = brain_models(), brain_models(n=500)
    nib.save(dlabel(whole, np.tile(CODES, 2)), tmp_path / "atlas.dlabel.nii")
    found = cifti_space(part).labels_of(tmp_path / "atlas.dlabel.nii")
    expected = np.array([None, "V1", "MT"], object)[CODES[:500]]
    assert found.tolist() == [*expected, *expected]
    labels = cifti_space(part).labels_of(
        {s: gifti_labels(CODES, ["???", "V1", "MT"]) for s in ("left", "right")}
    )
    assert set(labels.tolist()) == {None, "L-V1", "L-MT", "R-V1", "R-MT"}
    on_mesh = SurfaceSpace({"CortexLeft": N}).labels_of(tmp_path / "atlas.dlabel.nii")
    assert on_mesh.tolist() == np.array([None, "V1", "MT"], object)[CODES].tolist()


def test_parcels_have_the_names_of_the_atlas(rng):
    space = SurfaceSpace({"CortexLeft": N})
    atlas = {"left": gifti_labels(CODES, ["???", "V1", "MT"])}
    people = [
        Subject(str(i), rng.normal(size=(20, N)).astype("f4"), space=space)
        for i in range(3)
    ]
    model = Parcelwise(DetSRM(2, random_state=0), atlas).fit(Study(people))
    assert model.parcels_ == ["MT", "V1"]
    assert model.maps_[0].parts[1][0].tolist() == np.flatnonzero(CODES == 1).tolist()


@pytest.mark.parametrize(
    ("space", "atlas", "text"),
    [
        (volume(), "glasser", "Neither nilearn nor templateflow has the atlas"),
        (volume(), "juelich-3", "neither a file nor an atlas that is known by name"),
        (volume(), dlabel(brain_models(), np.tile(CODES, 2)), "the data are volumes"),
        (
            SurfaceSpace({"CortexLeft": N}),
            nib.Nifti1Image(np.ones((2, 2, 2)), AFFINE),
            "vol_to_surf",
        ),
        (SurfaceSpace({"CortexLeft": 9}), {"left": CODES}, "labels of {'L': 642}"),
        (SurfaceSpace({"CortexLeft": N}), {"right": CODES}, "same mesh"),
        (
            cifti_space(brain_models(("LEFT",))),
            dlabel(brain_models(("RIGHT",)), CODES),
            "has no label for any",
        ),
        (
            cifti_space(brain_models()),
            cifti_space(brain_models()).to_image(np.zeros(2 * N)),
            "not of labels",
        ),
    ],
)
def test_an_atlas_of_another_space_is_refused(space, atlas, text):
    with pytest.raises(BrainweaveError, match=f"(?i){text}"):
        space.labels_of(atlas)
