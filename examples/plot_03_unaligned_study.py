"""
An unaligned study with missing runs
====================================

In this example every subject has a different sequence and mask, two subjects lack a
run, one of them also a category, and a tenth of the volumes was lost to motion.
GDM uses all remaining samples.
"""

# %%
import warnings

from brainweave import simulate_study
from brainweave.plotting import plot_sequences

study = simulate_study(
    n_subjects=6,
    categories=5,
    n_voxels=(300, 400),
    missing_runs=2,
    missing_categories=1,
    missing_samples=0.1,
    random_state=2,
)
study.summary()[["samples", "voxels", "runs", "categories"]]

# %%
# Gaps in the plot are borders between runs.
plot_sequences(study)

# %%
# Time-locked methods
# -------------------
# SRM and hyperalignment reject such data; the error message lists alternatives:
from brainweave import SRM, BrainweaveError

try:
    SRM(4).fit(study)
except BrainweaveError as error:
    print(error)

# %%
# ``match_samples`` makes the rows of all subjects correspond by label, as the paper did
# for its comparison. Its summary lists the dropped samples:
from brainweave import match_samples

with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # of the category that subject 06 lacks
    matched = match_samples(study, how="truncate")
matched.summary.groupby("category").sum()

# %%
# A category that one subject lacks is lost for all subjects. GDM keeps every sample. It
# warns about the missing category, so that you notice misspelled labels:
from brainweave import GDM

aligning, other = study.split_halves()
with warnings.catch_warnings(record=True) as caught:
    warnings.simplefilter("always")
    gdm = GDM(4).fit(aligning)
print(caught[0].message)

# %%
# Subject 06 never saw a bottle, but the shared space represents bottles, as learned
# from the other subjects. We can therefore predict the response of subject 06:
bottles = other["01"].select(other["01"].labels == "bottle")
predicted = gdm.predict_subject("06", [bottles], subjects=["01"])
predicted.shape

# %%
# Evaluate the alignment
# ----------------------
# We score the available runs between subjects. Chance is the share of the largest
# category, which is not 1 in 5 when data are missing.
from brainweave import between_subject_classification
from brainweave.plotting import plot_confusion

with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    result = between_subject_classification(GDM(4), study)
print(result)
plot_confusion(result)
