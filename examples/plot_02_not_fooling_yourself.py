"""
How not to fool yourself
========================

Alignment methods are strong enough to find agreement in anything. This page makes four
classic mistakes, where it can on **pure noise**, for which the right answer is known,
and shows what to do instead. If you read one page before writing a paper, let it be
this one.
"""

# %%
# Six "subjects" of white noise, and labels that mean nothing. Chance is 1 in 5.
import warnings

import numpy as np
from sklearn.svm import NuSVC

# sphinx_gallery_thumbnail_number = 2

from brainweave import GDM, PaperGDM, between_subject_classification

rng = np.random.default_rng(0)
X = [rng.normal(size=(100, 300)) for _ in range(6)]
y = [np.tile(list("abcde"), 20) for _ in X]

# %%
# Mistake 1: scoring the samples that aligned
# -------------------------------------------
# GDM is told which samples belong together and finds voxel weights that make it so.
# Classify those same samples and noise becomes "decodable":
shared = GDM(4).fit(X, y).transform(X)
classifier = NuSVC(nu=0.5, kernel="linear")
classifier.fit(np.concatenate(shared[1:]), np.concatenate(y[1:]))
circular = classifier.score(shared[0], y[0])
print(f"circular accuracy on noise: {circular:.0%}, chance 20%")

# %%
# Instead: half of the samples align, the other half is classified, and the halves
# change roles. That is what ``between_subject_classification`` does, always.
honest = between_subject_classification(
    GDM(4), X, y, n_permutations=100, random_state=0
)
print(honest)

# %%
# Mistake 2: believing agreement in sample
# ----------------------------------------
# The correlation between subjects of the shared features is the number that alignment
# makes large. ``agreement`` below is measured on the samples that aligned;
# ``agreement_cv`` and its p-value on samples that did not.
gdm = GDM(4).fit(X, y)
table = gdm.component_summary()
table[["agreement", "agreement_cv", "p"]].round(3)

# %%
# Every component of the noise agrees almost perfectly in sample. None holds up. The
# verdict in one sentence, for any fitted aligner:
from brainweave import alignment_check

print(alignment_check(gdm))

# %%
# ``n_components="auto"`` keeps components in their order as long as they hold up. On
# noise none does, and it says so:
with warnings.catch_warnings(record=True) as caught:
    warnings.simplefilter("always")
    GDM("auto").fit(X, y)
print(caught[0].category.__name__, "-", caught[0].message)

# %%
# Mistake 3: reporting the joint protocol alone
# ---------------------------------------------
# In the paper's protocol ("joint") the *aligning* samples of the test subject take part
# in the fit of the template. Nothing of what is classified is used, and on noise it is
# at chance; but the template has seen the test subject. In the "held-out" protocol, the
# default, it has not: the subject joins a finished template. Here is real structure
# (simulated), twice:
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
# Twelve energies, twelve scores, the best one reported: the maximum of twelve is above
# their mean by construction. The more is tried (energies, masks, K, classifiers), the
# further. :class:`brainweave.GDMCV` chooses inside the aligning half, so that the score
# of the other half stays honest; see :doc:`plot_05_choosing_settings`.
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
# Three of the mistakes, and what is right, in one picture.
import matplotlib.pyplot as plt

figure, ax = plt.subplots(figsize=(6, 3), layout="constrained")
names = ["circular", "in-sample agreement", "best of 12 settings", "honest halves"]
values = [circular, table["agreement"].mean(), max(scores), honest.mean]
ax.barh(names, values, color=["#c44e52", "#c44e52", "#dd8452", "#4c72b0"])
ax.axvline(0.2, color="black", linestyle="--", linewidth=1)
ax.text(0.21, 3.36, "chance of a classifier", va="center")
ax.spines[["top", "right"]].set_visible(False)
ax.set(xlim=(0, 1), xlabel="what each number says about pure noise")
ax.invert_yaxis()

# %%
# A checklist
# -----------
#
# - Samples that aligned are never scored.
# - Test subjects are held out; a joint score stands beside that, never alone.
# - A p-value comes from permutations, and says the smallest it can be.
# - Whole runs are held out where runs exist (``halves="run"``): neighbouring volumes
#   share slow noise.
# - Slow drifts are filtered out before anything is aligned.
# - Settings are chosen inside the aligning data.
# - :func:`brainweave.alignment_check` is quoted for the final model.
