"""
The whole brain, parcel by parcel
=================================

A single map of a whole brain mixes distant voxels. ``Parcelwise`` fits any aligner
separately to every parcel of an atlas: features do not mix parcels, many small problems
are faster than a large one, and each parcel can be scored.
"""

# %%
# We cut the voxels of a small simulated brain into eight slabs. For real data, pass an
# atlas image, such as ``nilearn.datasets.fetch_atlas_schaefer_2018().maps``: each voxel
# gets the label at its position.
import numpy as np

from brainweave import GDM, Parcelwise, between_subject_classification, simulate_study

study = simulate_study(n_subjects=5, categories=4, n_voxels=900, random_state=10)
places = np.argwhere(study.truth.masks[0])
order = places[:, 0].argsort(kind="stable").argsort(kind="stable")
parcels = order * 8 // len(order) + 1  # 0 would be background
np.bincount(parcels)[1:]

# %%
# Fit three shared features per parcel, which are concatenated.
aligning, other = study.split_halves()
model = Parcelwise(GDM(3), parcels).fit(aligning)
print(model.transform(other)[0].shape, "features of parcels", model.parcels_)

# %%
# The map of a subject is block diagonal and sparse:
weights = model.maps_[0].weights
print(f"{weights.shape}, {weights.nnz / np.prod(weights.shape):.0%} not zero")

# %%
# Score each parcel
# -----------------
# We score each parcel separately, using only its voxels. The simulated responses are
# spread over the whole brain, so every slab carries information, and all slabs together
# carry more.
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
# The space of a subject converts one value per voxel to an image.
image = study[0].space.to_image(np.array([scores[p] for p in parcels]))
print(type(image).__name__, image.shape)

# %%
# Predict the voxels of one subject from the shared features of another. This is the
# piecewise alignment of other packages, for any method.
predicted = model.predict_subject(1, [other[0].data()], subjects=[0])
predicted.shape

# %%
# ``Searchlight(aligner, radius=10)`` does the same with overlapping neighbourhoods and
# returns voxels of a reference subject. Both take ``n_jobs`` and support new subjects.
