"""
Choosing energy and K without leaking
=====================================

``GDM()`` has nothing to tune: how much each subject is shrunk follows from its own
aligning samples, and the number of shared features from those that hold up. The model
of the paper, ``PaperGDM(energy=...)``, keeps a share of each subject's singular values
and cuts off the rest, and asks you for that share: the paper takes 82 % for its
datasets with categories and 35 % for a film. This page shows what the energy does, how
to choose it so that the final score stays honest, and what the default makes of the
same data.
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
from brainweave.plotting import plot_energy

# sphinx_gallery_thumbnail_number = 2

studies = [
    simulate_study(n_subjects=5, categories=6, n_voxels=(200, 300), random_state=seed)
    for seed in range(4)
]
aligning, other = studies[0].split_halves()

# %%
# What the energy keeps
# ---------------------
# Each curve is one subject of the first study: the cumulative share of its singular
# values. The dots are where 82 % cuts.
plot_energy(PaperGDM(5, energy=0.82).fit(aligning), names=studies[0].ids)

# %%
# Too little energy loses the responses; too much lets the fit use directions of noise,
# in which a high-dimensional subject can be made to agree with anyone. Here are four
# studies that differ in nothing but the seed: the mean of their scores with its
# standard error, and the default, which has no energy, as a band.
import matplotlib.pyplot as plt
import numpy as np

splits = [split_study(study) for study in studies]
energies = (0.5, 0.65, 0.75, 0.82, 0.9, 1.0)


def scores(method):
    """Score a method on all studies."""
    return np.array([between_subject_classification(method, s).mean for s in splits])


def mean_and_error(values):
    """Give the mean over studies and its standard error."""
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
# The best energy of each of these studies; data of another kind have another:
print([energies[i] for i in curve.argmax(axis=0)])

# %%
# Do **not** report the top of such a curve: it was chosen by the samples it is scored
# on.
#
# GDMCV chooses inside
# --------------------
# ``GDMCV`` splits the *aligning* samples once more, scores every setting there, and
# fits the best on all of them. It is an aligner like any other, so the outer evaluation
# does not know that anything was chosen. One pass over the voxels serves all settings.
tuned = GDMCV(energies=energies, n_components=5).fit(aligning)
print("chosen:", tuned.best_params_["energy"], f"({tuned.best_score_:.1%} inside)")

# %%
# All four studies, each chosen inside and scored outside, beside the best of the curve,
# which nobody may report, and the default:
chosen = scores(GDMCV(energies=energies, n_components=5))
for name, values in {
    "GDMCV, chosen inside": chosen,
    "best of the curve, dishonest": curve.max(axis=0),
    "default": default,
}.items():
    print("{:30s} {:.1%} ± {:.1%}".format(name, *mean_and_error(values)))

# %%
# K
# -
# C categories inform at most C - 1 components. ``n_components="auto"``, which is also
# what ``GDM()`` does, keeps components in their order as long as they hold up on
# samples that did not align. The fit of a component to the graph says how much the
# graph gives to it; larger is better:
from brainweave.plotting import plot_eigenvalues

gdm = GDM("auto").fit(aligning)
print("kept", gdm.n_components_, "of at most", len(studies[0].categories) - 1)
plot_eigenvalues(gdm)

# %%
# The table behind the choice. ``agreement`` is measured on the samples that aligned and
# is always high; ``agreement_cv`` and its p-value are not:
gdm.component_summary().round(3)[["graph_fit", "agreement", "agreement_cv", "p"]]

# %%
# Kernels, graphs and K can be searched along with the energy:
# ``GDMCV(kernels=["linear", ("gaussian", 5000)], n_components=[3, 5], graphs=["labels",
# -0.5])``. On the command line the same is ``brainweave fit STUDY --method gdmcv``.
wide = GDMCV(
    energies=(0.35, 0.65), n_components=[3, 5], kernels=["linear", ("gaussian", 5000)]
).fit(aligning)
best = np.argsort(wide.cv_results_["rank_test_score"])[:3]
for i in best:
    setting = wide.cv_results_["params"][i]
    score = wide.cv_results_["mean_test_score"][i]
    print(f"{score:.1%}", {k: setting[k] for k in ("kernel", "energy", "n_components")})
