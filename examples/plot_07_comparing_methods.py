"""
Comparing methods
=================

This example compares methods on two kinds of simulated studies: in one, every subject
saw a different sequence; in the other, all subjects watched the same film. Each kind is
simulated with a weak and a strong signal, three times, because a single study is not
conclusive. No ranking holds for all data, so compare methods on your own data.
"""

# %%
from brainweave import (
    GDM,
    SRM,
    SVDHyperalignment,
    DetSRM,
    Hyperalignment,
    KernelHyperalignment,
    NoAlignment,
    RegularizedHyperalignment,
    RobustSRM,
    between_subject_classification,
    score_alignment,
    simulate_study,
    split_study,
)

SIGNALS = {"weak": 1.0, "strong": 2.5}  # 2.5 is the default of simulate_study
SEEDS = range(3)


def timelocked_methods(k):
    """Return the methods that need samples locked in time, with k components."""
    return {
        "without alignment": NoAlignment(),
        "Hyperalignment": Hyperalignment(k),
        "RegularizedHyperalignment": RegularizedHyperalignment(k),
        "KernelHyperalignment": KernelHyperalignment(k),
        "SVDHyperalignment": SVDHyperalignment(k),
        "SRM": SRM(k, random_state=0),
        "DetSRM": DetSRM(k, random_state=0),
        "RobustSRM": RobustSRM(k, tol=1e-3, random_state=0),
    }


# %%
# Different sequences
# -------------------
# ``match="truncate"`` orders the aligning samples by category, as in the paper, so that
# time-locked methods can be used. GDM uses the original samples.
rows = []
for strength, signal in SIGNALS.items():
    for seed in SEEDS:
        study = simulate_study(
            n_subjects=4, categories=6, n_voxels=150, signal=signal, random_state=seed
        )
        matched, as_they_are = split_study(study, match="truncate"), split_study(study)
        results = {
            name: between_subject_classification(method, matched)
            for name, method in timelocked_methods(5).items()
        }
        results["GDM"] = between_subject_classification(GDM(5), as_they_are)
        rows += [("sequences", strength, *r) for r in results.items()]

# %%
# The same film
# -------------
# There are no categories, but all subjects share the time line. The score is the share
# of film segments of one subject that are identified from the average of the others.
# GDM uses time points instead of labels.
for strength, signal in SIGNALS.items():
    for seed in SEEDS:
        film = simulate_study(
            n_subjects=4,
            design="movie",
            n_voxels=150,
            n_runs=2,
            signal=signal,
            random_state=seed,
        )
        locked = split_study([subject.data() for subject in film])
        methods = {**timelocked_methods(10), "GDM": GDM(10, graph="time")}
        for name, method in methods.items():
            result = score_alignment(method, locked, window=6, measure="matching")
            rows.append(("film", strength, name, result))

# %%
# Mean and standard error over the three studies
# ----------------------------------------------
# Per cent correct; for the film, per cent of identified segments.
import pandas as pd

table = pd.DataFrame(
    [(kind, strength, name, 100 * r.mean) for kind, strength, name, r in rows],
    columns=["study", "signal", "method", "score"],
)
grouped = table.groupby(["study", "signal", "method"], sort=False)["score"]
mean, error = grouped.mean().unstack([0, 1]), grouped.sem().unstack([0, 1])
mean.round(1).astype(str) + " ± " + error.round(1).astype(str)

# %%
# The dashed line is chance. With a weak signal, most methods stay near it.
import matplotlib.pyplot as plt
import numpy as np

from brainweave.plotting import palette

place = np.arange(len(mean))
figure, axes = plt.subplots(
    1, 2, figsize=(9, 4.4), sharex=True, sharey=True, layout="constrained"
)
for ax, kind in zip(axes, ("sequences", "film"), strict=True):
    for shift, strength, color in zip((-0.2, 0.2), SIGNALS, palette(2), strict=True):
        scores, errors = mean[kind, strength], error[kind, strength]
        ax.barh(place + shift, scores, 0.38, xerr=errors, color=color, label=strength)
    chance = next(r.chance for k, _, _, r in rows if k == kind)
    ax.axvline(100 * chance, color="black", linestyle="--", linewidth=1)
    ax.spines[["top", "right"]].set_visible(False)
axes[0].set(
    title="different sequences", xlabel="accuracy, %", yticks=place, xlim=(0, 100)
)
axes[0].set_yticklabels(mean.index)
axes[0].invert_yaxis()
axes[1].set(title="the same film", xlabel="segments found, %")
axes[1].legend(title="signal", frameon=False, loc="upper right")

# %%
# With different sequences, GDM and regularised hyperalignment score highest and close
# to each other. With the film, regularised hyperalignment scores higher than GDM by
# more than the standard errors. The order may differ on your data.
#
# Seconds for one study, including all folds and the classifier:
pd.Series({name: round(r.seconds, 2) for name, r in results.items()})

# %%
# To run the same comparison from the shell, resumable and with a report::
#
#     brainweave compare STUDY --method gdm --method srm --method none --match truncate
#
# See :doc:`/results` for real data, more methods and both protocols.
