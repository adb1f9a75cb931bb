"""
First alignment
===============

In this example, six subjects saw pictures of four categories, each in a different
order. Their voxels do not correspond, and samples of different subjects do not
correspond in time. We learn a shared space, test whether it is meaningful, and
classify the samples of one subject with a classifier trained on the others.
"""

# %%
# The data
# --------
# A :class:`brainweave.Study` contains one :class:`brainweave.Subject` per participant:
# an array of samples x voxels, the category of each sample, and its run. Here we
# simulate it; use :func:`brainweave.load_bids` or another reader for your own data.
# Note the different numbers of voxels. (No setting was tuned for this example: all
# others are defaults, and the seed is 0.)
from brainweave import simulate_study

# sphinx_gallery_thumbnail_number = 2

study = simulate_study(n_subjects=6, categories=4, n_voxels=(600, 800), random_state=0)
study.summary()

# %%
# Every subject saw a different sequence, so methods that need samples locked in time
# (hyperalignment, SRM) cannot be used.
from brainweave.plotting import plot_sequences

plot_sequences(study)

# %%
# Fit on some samples, test on others
# -----------------------------------
# We align with the first half of the samples of each category and hold out the second
# half. :doc:`plot_02_not_fooling_yourself` shows why this split is essential.
from brainweave import GDM

aligning, other = study.split_halves(by="category")
gdm = GDM(n_components=3).fit(aligning)

# %%
# Four categories have at most three shared directions (see
# :ref:`the C - 1 rule <uniqueness>`), so we request three components.
# ``alignment_check`` tests them on samples that did not take part in the fit.
from brainweave import alignment_check

check = alignment_check(gdm)
print(check)

# %%
# Plot the held-out samples on two of the three shared features. Colours show
# categories: samples of the same category are close together across all six subjects.
from brainweave.plotting import plot_shared_space

plot_shared_space(gdm.transform(other), [subject.labels for subject in other])

# %%
# Evaluate the alignment
# ----------------------
# To score the alignment, we train a classifier on five subjects and test it on the
# sixth, on samples that took no part in the alignment. The sixth subject joins a
# template that was fitted without it.
from brainweave import NoAlignment, between_subject_classification
from brainweave.plotting import plot_accuracy

result = between_subject_classification(GDM(3), study)
print(result)

# %%
# Without alignment, voxel 17 of one subject does not correspond to voxel 17 of another.
# To show this, we simulate the same design with equal numbers of voxels.
same_mask = simulate_study(n_subjects=6, categories=4, n_voxels=400, random_state=0)
plot_accuracy(
    {
        name: between_subject_classification(method, same_mask)
        for name, method in {"GDM": GDM(3), "without alignment": NoAlignment()}.items()
    }
)

# %%
# Show features on the brain
# --------------------------
# Every shared feature has a pattern in every brain: the voxel activity associated with
# the feature.
from brainweave.plotting import plot_brain

plot_brain(gdm.maps_[0].to_image(0), title="shared feature 0, first subject")

# %%
# Save the model to one file, without pickle. New subjects can join a loaded model.
import tempfile
from pathlib import Path

from brainweave import load, save

path = Path(tempfile.mkdtemp()) / "model.safetensors"
save(gdm, path)
load(path)
