"""
First alignment
===============

Six people looked at pictures of four kinds, each in an order of their own. Their voxels
do not correspond, and no two samples were taken at the same moment of the same
stimulus. We learn a shared space, check that it means something, and classify one
person's brain with a classifier trained on the others.
"""

# %%
# The data
# --------
# A :class:`brainweave.Study` holds one :class:`brainweave.Subject` per person: an array
# of samples x voxels, the category of each sample, and its run. Here it is simulated;
# yours comes from :func:`brainweave.load_bids` or one of the other readers. Note the
# different numbers of voxels. (No setting was picked for a good picture: those that are
# not named are defaults, and the seed is 0.)
from brainweave import simulate_study

# sphinx_gallery_thumbnail_number = 2

study = simulate_study(n_subjects=6, categories=4, n_voxels=(600, 800), random_state=0)
study.summary()

# %%
# Everyone saw a sequence of their own. Methods that need samples locked in time
# (hyperalignment, SRM) have nothing to hold on to here.
from brainweave.plotting import plot_sequences

plot_sequences(study)

# %%
# Fit on some samples, look at others
# -----------------------------------
# The first half of the samples of each category aligns; the second is kept apart. This
# split is the one thing to get right: :doc:`plot_02_not_fooling_yourself` shows what
# happens without it.
from brainweave import GDM

aligning, other = study.split_halves(by="category")
gdm = GDM(n_components=3).fit(aligning)

# %%
# Four categories have at most three shared directions (see
# :ref:`the C - 1 rule <uniqueness>`), so three components are asked for. Are they real?
# ``alignment_check`` answers on samples that did not take part in the fit.
from brainweave import alignment_check

check = alignment_check(gdm)
print(check)

# %%
# The samples that were kept apart, on two of the three shared features. Colours are
# categories, whichever of the six people a sample is from: equal colours meet.
from brainweave.plotting import plot_shared_space

plot_shared_space(gdm.transform(other), [subject.labels for subject in other])

# %%
# How good is it?
# ---------------
# The honest score: train a classifier on five people, test it on the sixth, on samples
# that did not align, with the sixth person joining a template that was finished without
# them.
from brainweave import NoAlignment, between_subject_classification
from brainweave.plotting import plot_accuracy

result = between_subject_classification(GDM(3), study)
print(result)

# %%
# Without alignment, voxel 17 of one person says nothing about voxel 17 of another. To
# show it we simulate the same design in brains that do have equal numbers of voxels.
same_mask = simulate_study(n_subjects=6, categories=4, n_voxels=400, random_state=0)
plot_accuracy(
    {
        name: between_subject_classification(method, same_mask)
        for name, method in {"GDM": GDM(3), "without alignment": NoAlignment()}.items()
    }
)

# %%
# On the brain
# ------------
# Every shared feature has a picture in every brain: what the voxels show when the
# feature is active.
from brainweave.plotting import plot_feature_map

plot_feature_map(gdm.maps_[0], component=0, title="shared feature 0, first subject")

# %%
# Keep the model: one file without pickle, with everything a new subject needs to join.
import tempfile
from pathlib import Path

from brainweave import load, save

path = Path(tempfile.mkdtemp()) / "model.safetensors"
save(gdm, path)
load(path)
