"""nilearn's images and maskers: in by the loaders, and out by to_image."""

import nibabel as nib
import numpy as np
import pytest
from nilearn.maskers import NiftiLabelsMasker, NiftiMasker, SurfaceMasker
from nilearn.surface import InMemoryMesh, PolyMesh, SurfaceImage
from numpy.testing import assert_allclose, assert_array_equal

from brainweave import GDM, Searchlight, load_gifti, load_nifti
from brainweave.study.meshes import named_mesh
from brainweave.study.study import Study

MESH = PolyMesh(
    left=InMemoryMesh(*named_mesh("fsaverage3", "L")),
    right=InMemoryMesh(*named_mesh("fsaverage3", "R")),
)
AFFINE = np.diag([4.0, 4, 4, 1])
Y = ["a", "b", "c"] * 5


def surface_image(rng, n=15):
    parts = {s: rng.normal(size=(642, n)).astype(np.float32) for s in ("left", "right")}
    return SurfaceImage(MESH, parts)


def volume(rng, n=15):
    data = rng.normal(size=(5, 5, 5, n)).astype(np.float32) + 10
    return nib.Nifti1Image(data, np.diag([4.0, 4, 4, 1]))


def test_surface_images_go_in_and_come_out(rng):
    runs = {str(i): surface_image(rng) for i in range(3)}
    study = load_gifti(runs, labels=Y)
    assert study[0].n_voxels == 1284
    own = runs["0"].data.parts
    assert_array_equal(study[0].data(), np.vstack([own["left"], own["right"]]).T)
    model = GDM(2, shrinkage=0.5, place=None).fit(study)
    image = model.maps_[0].to_image(1)
    assert isinstance(image, SurfaceImage)
    assert image.mesh is runs["0"].mesh
    whole = study[0].space.to_image(study[0].data())
    assert_array_equal(whole.data.parts["right"], own["right"])
    near = Searchlight(GDM(2, shrinkage=0.5), 40, spacing=40).fit(study)
    assert isinstance(near.maps_[0].to_image(5), SurfaceImage)


def test_a_surface_masker_reads_with_its_own_cleaning(rng):
    runs = {str(i): surface_image(rng) for i in range(2)}
    mask = {s: np.arange(642) > 10 for s in ("left", "right")}
    masker = SurfaceMasker(SurfaceImage(MESH, mask), standardize="zscore_sample")
    study = load_gifti(runs, masker=masker, labels=Y)
    assert study[0].n_voxels == 2 * 631
    assert_allclose(study[1].data(), masker.transform(runs["1"]))
    image = study[0].space.to_image(study[0].data()[0])
    expected = masker.inverse_transform(study[0].data()[0])
    for side in ("left", "right"):
        got = image.data.parts[side]
        assert_allclose(got, np.ravel(expected.data.parts[side]))


@pytest.mark.parametrize("is_fitted", [True, False])
def test_a_nifti_masker_reads_with_its_own_cleaning(rng, tmp_path, is_fitted):
    mask = nib.Nifti1Image(np.ones((5, 5, 5), np.uint8), np.diag([4.0, 4, 4, 1]))
    nib.save(volume(rng), tmp_path / "run.nii.gz")
    masker = NiftiMasker(mask, smoothing_fwhm=6, standardize="zscore_sample")
    if is_fitted:
        masker.fit()
    study = load_nifti(
        {"a": tmp_path / "run.nii.gz", "b": volume(rng)}, masker=masker, labels=Y
    )
    assert_allclose(
        study[0].data(), masker.transform(str(tmp_path / "run.nii.gz")), rtol=1e-5
    )
    values = study[1].data()[0]
    image = study[1].space.to_image(values)
    assert_allclose(image.get_fdata(), masker.inverse_transform(values).get_fdata())
    saved = study.save(tmp_path / "study")
    assert_array_equal(Study.open(tmp_path / "study")[0].data(), saved[0].data())


def test_maskers_that_average_are_refused(rng):
    labels = nib.Nifti1Image(
        np.eye(5, dtype=np.int16)[..., None] + np.zeros(5, np.int16), AFFINE
    )
    masker = NiftiLabelsMasker(labels, standardize=None).fit()
    with pytest.raises(TypeError, match="which keep the voxels"):
        load_nifti({"1": volume(rng)}, masker=masker)
    with pytest.raises(TypeError, match="must be a NiftiMasker or SurfaceMasker"):
        load_nifti({"1": volume(rng)}, masker="mask.nii.gz")
