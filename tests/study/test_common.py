import nibabel as nib
import numpy as np
import pytest
from numpy.testing import assert_array_equal

from brainweave import Study, Subject, simulate_study
from brainweave._core.exceptions import StudyError
from brainweave.study.spaces import VolumeSpace, common_voxels


@pytest.fixture(scope="module")
def study():
    return simulate_study(n_subjects=3, n_voxels=(200, 300), n_runs=2, categories=3)


def test_voxels_at_the_same_places_are_kept(study):
    common = common_voxels(study)
    assert len({subject.n_voxels for subject in common}) == 1
    assert common[0].n_voxels < min(subject.n_voxels for subject in study)
    for before, after in zip(study, common, strict=True):
        first = before.space.to_image(np.asarray(before.data())[0]).get_fdata()
        assert_array_equal(
            np.asarray(after.data())[0], first[after.space.mask].astype(np.float32)
        )
        assert list(after.labels) == list(before.labels)


def test_subjects_without_a_mask_are_named():
    subjects = [Subject(name, np.eye(4), labels=[0, 1, 0, 1]) for name in "ab"]
    with pytest.raises(StudyError, match="Subject 'a' has no volume mask"):
        common_voxels(Study(subjects))


def test_masks_on_other_grids_or_apart_are_refused():
    def subject(name, inside, affine):
        mask = nib.Nifti1Image(np.eye(4, dtype=np.uint8)[[inside]][None], affine)
        return Subject(name, np.ones((3, 1)), space=VolumeSpace(mask))

    moved = np.eye(4)
    moved[0, 3] = 1
    with pytest.raises(StudyError, match=r"'b': masks are on different.* Resample"):
        common_voxels(Study([subject("a", 0, np.eye(4)), subject("b", 0, moved)]))
    with pytest.raises(StudyError, match="no voxel in common"):
        common_voxels(Study([subject("a", 0, np.eye(4)), subject("b", 1, np.eye(4))]))
