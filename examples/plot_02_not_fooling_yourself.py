"""
How not to fool yourself
========================

Alignment methods can find agreement in any data. This example makes four common
mistakes, where possible on **pure noise**, for which the correct answer is known, and
shows how to avoid them. Read it before you write a paper.
"""

# %%
# We generate six "subjects" of white noise with meaningless labels. Chance is 1 in 5.
import warnings

import numpy as np
from sklearn.svm import NuSVC

# sphinx_gallery_thumbnail_number = 2

from brainweave import GDM, PaperGDM, between_subject_classification

rng = np.random.default_rng(0)
X = [rng.normal(size=(100, 300)) for _ in range(6)]
y = [np.tile(list("abcde"), 20) for _ in X]

# %%
# Mistake 1: scoring the samples of the fit
# -----------------------------------------
# GDM finds voxel weights that bring samples with the same label together. If we
# classify these same samples, noise becomes "decodable":
shared = GDM(4).fit(X, y).transform(X)
classifier = NuSVC(nu=0.5, kernel="linear")
classifier.fit(np.concatenate(shared[1:]), np.concatenate(y[1:]))
circular = classifier.score(shared[0], y[0])
print(f"circular accuracy on noise: {circular:.0%}, chance 20%")

# %%
# Instead, align with one half of the samples, classify the other half, and swap the
# halves, as ``between_subject_classification`` does.
honest = between_subject_classification(
    GDM(4), X, y, n_permutations=100, random_state=0
)
print(honest)

# %%
# Mistake 2: trusting in-sample agreement
# ---------------------------------------
# Alignment maximises the correlation of shared features between subjects. ``agreement``
# below is measured on the samples of the fit, ``agreement_cv`` and its p-value on
# held-out samples.
gdm = GDM(4).fit(X, y)
table = gdm.component_summary()
table[["agreement", "agreement_cv", "p"]].round(3)

# %%
# Every component of the noise agrees almost perfectly in sample, and none of them on
# held-out samples. ``alignment_check`` gives the verdict for any fitted aligner:
from brainweave import alignment_check

print(alignment_check(gdm))

# %%
# ``n_components="auto"`` keeps the components that hold up on held-out samples. On
# noise none does, and ``fit`` raises a warning:
with warnings.catch_warnings(record=True) as caught:
    warnings.simplefilter("always")
    GDM("auto").fit(X, y)
print(caught[0].category.__name__, "-", caught[0].message)

# %%
# Mistake 3: reporting the joint protocol alone
# ---------------------------------------------
# In the paper's protocol ("joint"), the *aligning* samples of the test subject take
# part in the fit of the template. The classified samples do not, so noise is at chance,
# but the template depends on the test subject. In the "held-out" protocol, the default,
# the test subject joins a finished template. We compare both on simulated data with
# signal:
from brainweave import simulate_study, split_study
from brainweave.plotting import plot_accuracy

study = simulate_study(
    n_subjects=6, categories=5, n_voxels=(300, 400), signal=1.2, random_state=1
)
split = split_study(study)  # both evaluations share one pass over the voxels
plot_accuracy(
    [
        between_subject_classification(GDM(4), split, protocol=protocol)
        for protocol in ("joint", "held-out")
    ]
)

# %%
# Mistake 4: choosing settings by the final score
# -----------------------------------------------
# The best of twelve scores is above their mean by construction. The bias grows with the
# number of settings tried (energies, masks, K, classifiers). :class:`brainweave.GDMCV`
# chooses settings inside the aligning half, so that the score of the other half is
# unbiased; see :doc:`plot_05_choosing_settings`.
energies = np.linspace(0.1, 1, 12)
noise = split_study(X, y)
scores = [
    between_subject_classification(PaperGDM(4, energy=e), noise).mean for e in energies
]
print(
    f"best of {len(scores)} settings on noise: {max(scores):.1%};",
    f"their mean: {np.mean(scores):.1%}",
)

# %%
# The figure compares three of the mistakes with the correct score.
import matplotlib.pyplot as plt

figure, ax = plt.subplots(figsize=(6, 3), layout="constrained")
names = ["circular", "in-sample agreement", "best of 12 settings", "held-out halves"]
values = [circular, table["agreement"].mean(), max(scores), honest.mean]
ax.barh(names, values, color=["#c44e52", "#c44e52", "#dd8452", "#4c72b0"])
ax.axvline(0.2, color="black", linestyle="--", linewidth=1)
ax.text(0.21, 3.36, "chance of a classifier", va="center")
ax.spines[["top", "right"]].set_visible(False)
ax.set(xlim=(0, 1), xlabel="score on pure noise")
ax.invert_yaxis()

# %%
# A checklist
# -----------
#
# - Never score samples that took part in the alignment.
# - Hold out test subjects; report joint scores only next to held-out ones.
# - Compute p-values by permutation, and report the smallest possible p-value.
# - Hold out whole runs (``halves="run"``): neighbouring volumes share slow noise.
# - Filter out slow drifts before aligning.
# - Choose settings inside the aligning data.
# - Report :func:`brainweave.alignment_check` for the final model.
