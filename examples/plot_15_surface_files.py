"""
From surface files to an information map
========================================

Load a film from GIfTI pairs, from CIFTI dense series and from volumes in MNI space, and
map where subjects share information, with an atlas of the same kind. The maps are drawn
on inflated brains.
"""

# %%
# Simulate a film
# ---------------
# Ten subjects watch a film. A region of the left temporal lobe responds to it in all of
# them, with a different topography in each. The mesh is fsaverage5, which nilearn
# contains, and the atlas divides each hemisphere into twelve patches.
import tempfile
from pathlib import Path

import nibabel as nib
import numpy as np
from scipy.spatial import cKDTree

from brainweave import GDM, Parcelwise, information_map
from brainweave import load_cifti, load_gifti, load_nifti
from brainweave.study import SurfaceSpace
from brainweave.study.meshes import named_mesh

folder = Path(tempfile.mkdtemp())
rng = np.random.default_rng(0)
film = rng.normal(size=(60, 4))
ids = [f"film:{t}" for t in range(60)]
center = [-55, -45, 0]


def respond(n_voxels, region):
    """Return noise in all voxels, and responses to the film in those of a region."""
    X = rng.normal(size=(60, n_voxels)).astype(np.float32)
    X[:, region] += film @ rng.normal(size=(4, region.size)) / 3
    return X


cortex = named_mesh("fsaverage5", "L").coordinates
sphere = named_mesh("fsaverage5", "L", "sphere").coordinates
region = np.flatnonzero(np.linalg.norm(cortex - center, axis=1) < 20)
patch = 1 + cKDTree(sphere[:12]).query(sphere)[1]
subjects = [f"{i + 1:02}" for i in range(10)]

# %%
# GIfTI pairs
# -----------
# Write one file per subject and hemisphere, as fMRIPrep does, and the atlas as a
# ``label.gii`` for each hemisphere.
space = SurfaceSpace({"CortexLeft": 10242, "CortexRight": 10242})
gifti = {}
for id in subjects:
    images = space.to_image(respond(20484, region))
    for side, image in images.items():
        name = f"sub-{id}_task-film_hemi-{side[6]}_space-fsaverage5_bold.func.gii"
        nib.save(image, folder / name)
        gifti.setdefault(id, []).append(folder / name)
labels = {}
for side in ("left", "right"):
    array = nib.gifti.GiftiDataArray(patch.astype(np.int32), "NIFTI_INTENT_LABEL")
    labels[side] = folder / f"{side}.label.gii"
    nib.save(nib.GiftiImage(darrays=[array]), labels[side])

# %%
# Files with ``hemi-L`` and ``hemi-R`` in their names are paired.
study = load_gifti(gifti, stimuli=ids, name="GIfTI pairs")
print(study[0], study[0].space)

# %%
# Each parcel is aligned on one half of the film and scored on the other half, in
# subjects that were left out. Patches of the same number in both hemispheres are told
# apart.
aligner = GDM(4, graph="time", place=None, shrinkage=0.5)
found = information_map(Parcelwise(aligner, labels), study, leave_out=5)
print(found)
found.to_frame().sort_values("p").head(3).round(3)

# %%
# ``found.save("maps")`` writes the map as ``shape.gii`` files, and a table. The same
# steps as commands:
#
# .. code-block:: bash
#
#    brainweave convert BIDS_FOLDER STUDY --space fsaverage5
#    brainweave map STUDY --parcels left.label.gii,right.label.gii
found.plot("excess", title="GIfTI pairs: score above chance")

# %%
# CIFTI dense series
# ------------------
# A CIFTI file holds both hemispheres. The atlas is a ``dlabel`` file, with a table of
# names. Meshes are recognised by their number of vertices; files of the HCP are on
# fsLR-32k, which ``pip install "brainweave[fetch]"`` adds.
from nibabel.cifti2 import BrainModelAxis, Cifti2Image, LabelAxis, SeriesAxis

left, right = (
    BrainModelAxis.from_mask(np.ones(10242, bool), name=f"cortex_{side}")
    for side in ("left", "right")
)
axis = left + right
names = {0: ("???", (0, 0, 0, 0))}
for k in range(1, 13):
    names[k] = f"L-{k}", (1, 1, 1, 1)
    names[12 + k] = f"R-{k}", (1, 1, 1, 1)
codes = np.concatenate([patch, 12 + patch])[None].astype(np.float32)
nib.save(
    Cifti2Image(codes, (LabelAxis(["patches"], [names]), axis)),
    folder / "atlas.dlabel.nii",
)
cifti = {}
for id in subjects:
    series = SeriesAxis(start=0, step=2, size=60)
    cifti[id] = folder / f"sub-{id}_task-film_bold.dtseries.nii"
    nib.save(Cifti2Image(respond(20484, region), (series, axis)), cifti[id])

study = load_cifti(cifti, stimuli=ids, name="CIFTI dense series")
model = Parcelwise(aligner, folder / "atlas.dlabel.nii")
found = information_map(model, study, leave_out=5)
print(found)
found.plot("excess", title="CIFTI dense series: score above chance")

# %%
# Volumes in MNI space
# --------------------
# The atlas is a NIfTI image on any grid in the same space. Here it consists of the 24
# parts of the brain that are nearest to 24 points.
from nilearn.datasets import load_mni152_brain_mask
from nilearn.masking import unmask

mask = load_mni152_brain_mask(resolution=8)
at = nib.affines.apply_affine(mask.affine, np.argwhere(mask.get_fdata() > 0))
points = at[np.linspace(0, len(at) - 1, 24).astype(int)]
points[0] = center
atlas = unmask(1.0 + cKDTree(points).query(at)[1], mask)
nib.save(atlas, folder / "atlas.nii.gz")
near = np.flatnonzero(np.linalg.norm(at - center, axis=1) < 25)
volumes = {}
for id in subjects:
    volumes[id] = folder / f"sub-{id}_task-film_space-MNI152NLin6Asym_bold.nii.gz"
    nib.save(unmask(respond(len(at), near), mask), volumes[id])

study = load_nifti(volumes, mask=mask, stimuli=ids, t_r=2, name="volumes")
found = information_map(
    Parcelwise(aligner, folder / "atlas.nii.gz"), study, leave_out=5
)
print(found)

# %%
# ``brainweave map STUDY --parcels atlas.nii.gz`` does the same. nilearn projects the
# map to the inflated surface.
from nilearn.plotting import plot_img_on_surf

image = found.to_image("excess")
peak = nib.affines.apply_affine(
    image.affine, np.argwhere(image.get_fdata() == image.get_fdata().max()).mean(axis=0)
)
print("centre of the best parcel, in mm:", peak.round(), "- planted at", center)
plot_img_on_surf(
    image,
    hemispheres=["left", "right"],
    views=["lateral"],
    inflate=True,
    vmax=float(image.get_fdata().max()),
    cbar_tick_format="%.2f",
    cmap="RdBu_r",
    title="MNI volumes: score above chance",
)
