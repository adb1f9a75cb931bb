"""The voxels that all subjects of a study share, place by place."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from brainweave.exceptions import StudyError
from brainweave.study.spaces import VolumeSpace
from brainweave.study.study import Study
from brainweave.study.subject import Subject

__all__ = ["common_mask", "common_voxels"]


def common_voxels(study: Study) -> Study:
    """Keep the voxels that lie inside every subject's mask.

    What is left is the study as anatomy alone aligns it: the same number of voxels for
    everyone, at the same places. Comparisons without functional alignment need this;
    GDM does not.

    Parameters
    ----------
    study : Study
        Its subjects' masks must be on one grid.

    Returns
    -------
    Study
    """
    spaces: list[Any] = [subject.space for subject in study]
    shared = common_mask(study)
    import nibabel as nib

    image = nib.Nifti1Image(shared.astype(np.uint8), spaces[0].affine)
    space = VolumeSpace(image)

    def kept(subject: Subject, own: Any) -> Subject:
        inside = shared[own.mask]
        values = np.asarray(subject.data())[:, inside]
        return subject._replace(samples=values, space=space)

    subjects = [kept(*pair) for pair in zip(study, spaces, strict=True)]
    record = {**(study.record or {}), "voxels": "common to all subjects"}
    return Study(subjects, name=study.name, record=record)


def common_mask(study: Study) -> NDArray[np.bool_]:
    """Return which voxels of the grid lie inside every subject's mask.

    Parameters
    ----------
    study : Study
        Its subjects' masks must be on one grid.
    """
    spaces: list[Any] = [subject.space for subject in study]
    for subject, space in zip(study, spaces, strict=True):
        if not isinstance(space, VolumeSpace):
            raise StudyError(
                f"Subject {subject.id!r} has no volume mask, so it is not known which "
                "of its voxels the others have too."
            )
        same = space.mask.shape == spaces[0].mask.shape
        if not same or not np.allclose(space.affine, spaces[0].affine, atol=1e-3):
            raise StudyError(
                f"The mask of subject {subject.id!r} is on another grid than that of "
                f"{study.subjects[0].id!r}. Resample them to one grid first."
            )
    shared = np.logical_and.reduce([space.mask for space in spaces])
    if not shared.any():
        raise StudyError("The subjects' masks have no voxel in common.")
    return np.asarray(shared, dtype=bool)
