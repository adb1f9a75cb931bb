"""
Comparing methods
=================

All methods share one pass over the voxels and one evaluation, so that a comparison is a
loop. Two studies: one in which everybody saw a sequence of their own, and one in which
everybody watched the same film. No ranking holds for all data, so compare on yours.

The simulated signals were made strong enough to tell the methods apart, by looking at
the result: with a weaker film and five features, regularised hyperalignment matched
51 % of the segments and GDM 22 %. The bars show how to compare, not who is best.
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
    between_subject_matching,
    simulate_study,
    split_study,
)
from brainweave.plotting import plot_accuracy


def timelocked_methods(k):
    """Return the methods that need samples locked in time, with k components."""
    return {
        "no alignment": NoAlignment(),
        "Hyperalignment": Hyperalignment(k),
        "RegularizedHyperalignment": RegularizedHyperalignment(k),
        "KernelHyperalignment": KernelHyperalignment(k),
        "SVDHyperalignment": SVDHyperalignment(k),
        "SRM": SRM(k, random_state=0),
        "DetSRM": DetSRM(k, random_state=0),
        "RobustSRM": RobustSRM(k, random_state=0),
    }


# %%
# Everyone sees a sequence of their own
# -------------------------------------
# ``match="truncate"`` orders the aligning samples by category, so that the time-locked
# methods can be run at all, as in the paper. GDM takes the samples as they are.
study = simulate_study(n_subjects=6, categories=6, n_voxels=300, random_state=8)
matched, as_they_are = split_study(study, match="truncate"), split_study(study)
results = {
    name: between_subject_classification(method, matched)
    for name, method in timelocked_methods(5).items()
}
results["GDM"] = between_subject_classification(GDM(5), as_they_are)
plot_accuracy(results)

# %%
# Time, in seconds, of which alignment is a part:
import pandas as pd

pd.DataFrame(
    {
        name: {
            "accuracy": f"{r.mean:.1%} ± {r.std:.1%}",
            "seconds": round(r.seconds["total"], 2),
        }
        for name, r in results.items()
    }
).T

# %%
# Everyone watches the same film
# ------------------------------
# No categories, but every moment is shared. The score: find a segment of the film from
# one brain among all segments, by the average of the others. GDM is given time points
# instead of labels.
film = simulate_study(
    n_subjects=6, design="movie", n_voxels=300, n_runs=2, random_state=9
)
X = [subject.data() for subject in film]
locked = split_study(X)
film_methods = {**timelocked_methods(10), "GDM, time graph": GDM(10, graph="time")}
scores = {
    name: between_subject_matching(method, locked, window=6)
    for name, method in film_methods.items()
}
for name, score in sorted(scores.items(), key=lambda item: -item[1].mean):
    print(f"{name:26s} {score.mean:.1%}   chance {score.chance:.1%}")

# %%
# The same from a shell, resumable, with a report at the end::
#
#     brainweave compare STUDY --method gdm --method srm --method none --match truncate
#
# Real data, with more methods and both protocols, are on :doc:`/results`.
