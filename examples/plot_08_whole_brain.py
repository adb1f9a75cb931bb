"""
The whole brain, parcel by parcel
=================================

One map for a whole brain mixes voxels from opposite ends of the head. ``Parcelwise``
fits any aligner to every parcel of an atlas by itself: no feature mixes parcels, many
small problems are faster than a large one, and each parcel gets its own score.
"""

# %%
# A small "brain" whose voxels are cut into eight slabs. For yours, pass an atlas image,
# such as ``nilearn.datasets.fetch_atlas_schaefer_2018().maps``: each voxel gets the
# label at its position.
import numpy as np

from brainweave import GDM, Parcelwise, between_subject_classification, simulate_study

study = simulate_study(n_subjects=5, categories=4, n_voxels=900, random_state=10)
places = np.argwhere(study.truth.masks[0])
order = places[:, 0].argsort(kind="stable").argsort(kind="stable")
parcels = order * 8 // len(order) + 1  # 0 would be background
np.bincount(parcels)[1:]

# %%
# Three shared features per parcel, one after the other.
aligning, other = study.split_halves()
model = Parcelwise(GDM(3), parcels).fit(aligning)
print(model.transform(other)[0].shape, "features of parcels", model.parcels_)

# %%
# The map of a subject is block diagonal, and sparse:
weights = model.maps_[0].weights
print(f"{weights.shape}, {weights.nnz / np.prod(weights.shape):.0%} not zero")

# %%
# Where is the information?
# -------------------------
# Each parcel scored by itself. Everything beneath reads the voxels of one parcel only.
# The simulated responses are spread over the whole brain, so every slab carries some,
# and all together carry more.
scores = {}
for parcel in model.parcels_:
    X = [subject.data()[:, parcels == parcel] for subject in study]
    y = [subject.labels for subject in study]
    scores[parcel] = between_subject_classification(GDM(3), X, y).mean
whole = between_subject_classification(Parcelwise(GDM(3), parcels), study)

import matplotlib.pyplot as plt

figure, ax = plt.subplots(figsize=(6, 2.8), layout="constrained")
ax.bar([str(p) for p in scores], list(scores.values()))
ax.axhline(whole.mean, color="C1", label="all parcels together")
ax.axhline(whole.chance, color="black", linestyle="--", linewidth=1, label="chance")
ax.set(xlabel="parcel", ylabel="accuracy", ylim=(0, 1))
ax.legend(loc="upper right", frameon=False, ncols=2)
ax.spines[["top", "right"]].set_visible(False)

# %%
# On the brain: one number per voxel becomes an image through the subject's space.
image = study[0].space.to_image(np.array([scores[p] for p in parcels]))
print(type(image).__name__, image.shape)

# %%
# What each person's voxels would show, from the shared features of another: the
# piecewise alignment that other packages offer, for any method.
predicted = model.predict_subject(1, [other[0].data()], subjects=[0])
predicted.shape

# %%
# ``Searchlight(aligner, radius=10)`` does the same with overlapping neighbourhoods and
# returns voxels of a reference subject. Both take ``n_jobs``, and new subjects.
