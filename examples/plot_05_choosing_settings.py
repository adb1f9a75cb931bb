"""
Choosing energy and K without leaking
=====================================

``GDM()`` requires no tuning: it chooses the shrinkage of each subject from its own
aligning samples, and the number of shared features by testing them. The model of the
paper, ``PaperGDM(energy=...)``, keeps a given share of each subject's singular values:
the paper uses 82 % for its datasets with categories and 35 % for a film. This example
shows the effect of the energy, how to choose it without biasing the final score, and
the result of the default on the same data.
"""

# %%
from brainweave import (
    GDM,
    GDMCV,
    PaperGDM,
    between_subject_classification,
    simulate_study,
    split_study,
)

# sphinx_gallery_thumbnail_number = 2

studies = [
    simulate_study(n_subjects=5, categories=6, n_voxels=(200, 300), random_state=seed)
    for seed in range(4)
]
aligning, other = studies[0].split_halves()

# %%
# Effect of the energy
# --------------------
# Each curve shows the cumulative share of singular values of one subject of the first
# study. Dots mark the cut at 82 %.
import matplotlib.pyplot as plt
import numpy as np

figure, ax = plt.subplots(figsize=(5, 3), layout="constrained")
for basis in PaperGDM(5, energy=0.82).fit(aligning).bases_:
    share = np.cumsum(np.sqrt(basis.spectrum))
    (line,) = ax.plot(share / share[-1])
    ax.plot(
        basis.n_kept, (share / share[-1])[basis.n_kept - 1], "o", c=line.get_color()
    )
ax.set(xlabel="components", ylabel="share of singular values")

# %%
# A low energy removes responses. A high energy keeps noise, and in high dimensions the
# noise of any two subjects can be aligned. We plot the mean and
# standard error of the scores of four studies that differ only in their seed, and the
# default, which has no energy, as a band.

splits = [split_study(study) for study in studies]
energies = (0.5, 0.65, 0.75, 0.82, 0.9, 1.0)


def scores(method):
    """Score a method on all studies."""
    return np.array([between_subject_classification(method, s).mean for s in splits])


def mean_and_error(values):
    """Return the mean over studies and its standard error."""
    return values.mean(axis=-1), values.std(axis=-1, ddof=1) / len(studies) ** 0.5


curve = np.array([scores(PaperGDM(5, energy=energy)) for energy in energies])
default = scores(GDM(5))
mean, error = mean_and_error(default)

figure, ax = plt.subplots(figsize=(6, 3.2), layout="constrained")
ax.errorbar(energies, *mean_and_error(curve), marker="o", capsize=3, label="energy")
ax.axhspan(mean - error, mean + error, color="C1", alpha=0.3, label="default")
ax.axhline(1 / 6, color="black", linestyle="--", linewidth=1, label="chance")
ax.set(xlabel="energy", ylabel="accuracy", ylim=(0, 1))
ax.legend(frameon=False, ncols=3, loc="upper left")
ax.spines[["top", "right"]].set_visible(False)

# %%
# Print the best energy of each study; other data have other optima:
print([energies[i] for i in curve.argmax(axis=0)])

# %%
# Do **not** report the maximum of such a curve: it was chosen on the scored samples.
#
# Choose settings with GDMCV
# --------------------------
# ``GDMCV`` splits the *aligning* samples again, scores every setting on them, and fits
# the best one on all of them. It is an aligner and can be evaluated like any other.
# The voxels are read equally often for any number of settings.
tuned = GDMCV(energies=energies, n_components=5).fit(aligning)
print("chosen:", tuned.best_params_["energy"], f"({tuned.best_score_:.1%} inside)")

# %%
# Compare GDMCV on all four studies with the biased maximum of the curve and with the
# default:
chosen = scores(GDMCV(energies=energies, n_components=5))
for name, values in {
    "GDMCV, chosen inside": chosen,
    "best of the curve, biased": curve.max(axis=0),
    "default": default,
}.items():
    print("{:30s} {:.1%} ± {:.1%}".format(name, *mean_and_error(values)))

# %%
# Number of components
# --------------------
# C categories determine at most C - 1 components. ``n_components="auto"``, the default
# of ``GDM()``, keeps components in their order as long as p < .3 on held-out samples:
# a lost component costs more than a surplus one. We plot the fit of each component to
# the graph; larger is better:
gdm = GDM("auto").fit(aligning)
print("kept", gdm.n_components_, "of at most", len(studies[0].categories) - 1)
summary = gdm.component_summary()
ax = summary["graph_fit"].plot.bar(rot=0, figsize=(5, 3), ylabel="fit to the graph")

# %%
# The choice is based on this table. ``agreement`` is measured on the samples of the fit
# and always high; ``agreement_cv`` and its p-value are measured on held-out samples:
summary.round(3)[["graph_fit", "agreement", "agreement_cv", "p"]]

# %%
# Kernels and K can be searched together with the energy:
# ``GDMCV(kernels=["linear", ("gaussian", 5000)], n_components=[3, 5])``. On the command
# line, use ``brainweave fit STUDY --method gdmcv``.
wide = GDMCV(
    energies=(0.35, 0.65), n_components=[3, 5], kernels=["linear", ("gaussian", 5000)]
).fit(aligning)
best = np.argsort(wide.cv_results_["mean_test_score"])[::-1][:3]
for i in best:
    setting = wide.cv_results_["params"][i]
    score = wide.cv_results_["mean_test_score"][i]
    print(f"{score:.1%}", {k: setting[k] for k in ("kernel", "energy", "n_components")})
