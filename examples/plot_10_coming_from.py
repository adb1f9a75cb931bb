"""
Coming from BrainIAK, hyperalignment or fmralign
================================================

This example shows the brainweave equivalent of code for other packages and notes where
*results* differ. Building this site runs the brainweave code; ``make peers`` runs the
code of the other packages.
"""

# %%
# We simulate three subjects and one film of 256 time points. Rows are always samples.
import numpy as np

from brainweave import SRM, Hyperalignment, Parcelwise, simulate_study

study = simulate_study(
    n_subjects=3, design="movie", n_voxels=[240, 260, 250], n_runs=2, random_state=12
)
data = [subject.data() for subject in study]
[x.shape for x in data]

# %%
# BrainIAK: shared response model
# -------------------------------
# BrainIAK uses voxels x time, one array per subject, and expects standardised data:
#
# .. code-block:: python
#
#     from brainiak.funcalign.srm import SRM
#     from scipy.stats import zscore
#
#     srm = SRM(n_iter=20, features=10, rand_seed=0)
#     srm.fit([zscore(x.T, axis=1) for x in data])          # voxels x TRs
#     shared = srm.transform([zscore(x.T, axis=1) for x in data])  # features x TRs
#     w = srm.transform_subject(new.T)                      # a new subject
#
# In brainweave:
srm = SRM(n_components=10, random_state=0).fit(data)  # standardised inside, mean kept
shared = srm.transform(data)  # samples x features
weights = srm.maps_[0].weights  # voxels x features
new = srm.fit_new_subject(data[0])  # a map, with transform and inverse_transform
shared[0].shape, weights.shape

# %%
# Plot the same feature of all three subjects over the film:
import matplotlib.pyplot as plt

figure, ax = plt.subplots(figsize=(7, 2.4), layout="constrained")
for id, features in zip(study.ids, shared, strict=True):
    ax.plot(features[:, 0], label=f"sub-{id}", linewidth=1)
ax.set(xlabel="sample", ylabel="shared feature 0")
ax.legend(frameon=False, ncols=3, loc="lower right", bbox_to_anchor=(1, 1))
ax.spines[["top", "right"]].set_visible(False)

# %%
# From the same start, the iterates agree to 1.4e-10 (see :doc:`/results`). By default,
# brainweave iterates until convergence instead of ten times, and float32 stays float32.
# New subjects need all time points; use ``GDM`` for subjects who miss some.
#
# hyperalignment (the Python package): Procrustes
# ------------------------------------------------
#
# .. code-block:: python
#
#     from hyperalignment.procrustes import procrustes
#     from hyperalignment.local_template import compute_procrustes_template
#
#     template = compute_procrustes_template(np.array(data), zscore_common=False)
#     aligned = [x @ procrustes(x, template) for x in data]
#
# In brainweave, with all three levels of the published method:
model = Hyperalignment(n_components=10).fit(data)
aligned = model.transform(data)
np.round(np.corrcoef(aligned[0][:, 0], aligned[1][:, 0])[0, 1], 2)

# %%
# Numbers of voxels may differ, and no voxels x voxels matrix is built.
#
# fmralign: alignment by parcels
# ------------------------------
#
# .. code-block:: python
#
#     from fmralign import GroupAlignment
#
#     model = GroupAlignment(method="procrustes", labels=labels)
#     model.fit({"sub-01": X1, "sub-02": X2})
#     aligned = model.transform({"sub-01": Z1})
#
# In brainweave, any method works with any parcellation, and labels may be an atlas
# image:
labels = [np.arange(x.shape[1]) * 5 // x.shape[1] + 1 for x in data]
pieces = Parcelwise(SRM(5, random_state=0), labels).fit(data)
predicted = pieces.predict_subject(
    0, data[1:]
)  # the voxels of the first, from the others
predicted.shape

# %%
# Further features
# ----------------
#
# - ``GDM(graph="labels")``: different sequences, missing runs, unlabelled samples.
# - ``alignment_check(model)``: test an alignment on held-out samples.
# - ``between_subject_classification(model, study)``: one evaluation for all methods.
# - ``save`` and ``load`` for every method, without pickle.
# - ``inverse_transform`` and ``predict_subject`` for every linear method.
from brainweave import alignment_check

print(alignment_check(srm))
