"""
When brains are registered
==========================

Anatomical registration puts every voxel at roughly the same place in everybody. GDM
learns how far that holds: a map that all subjects share over places, and each subject's
deviation from it. If places do not correspond, it uses none.
"""

# %%
# Eight subjects watch the same film. Their functional maps are displaced by 4 mm, which
# is what registration typically leaves.
from brainweave import GDM, NoAlignment, score_alignment, simulate_brains

brains = simulate_brains(
    8, n_samples=160, signal=0.25, misregistration_mm=4.0, random_state=0
)
gdm = GDM(10, graph="time").fit(brains)
print(gdm.place_)

# %%
# Score it on the half of the film that did not align: how often is a segment of a
# left-out subject found in the average of the others?
methods = {
    "no alignment": NoAlignment(),
    "GDM without place": GDM(10, graph="time", place=None),
    "GDM": GDM(10, graph="time"),
}
found = {
    name: score_alignment(aligner, brains, leave_out=2, measure="matching")
    for name, aligner in methods.items()
}
for name, result in found.items():
    print(f"{name:18} {result.mean:.0%} of segments, chance {result.chance:.1%}")

# %%
import matplotlib.pyplot as plt

from brainweave.plotting import palette

_, axes = plt.subplots(figsize=(6, 2.4), layout="constrained")
axes.barh(list(found), [r.mean for r in found.values()], color=palette(3))
axes.axvline(found["GDM"].chance, color="grey", linestyle=":")
axes.set(xlabel="segments found", xlim=(0, 1))
axes.invert_yaxis()
plt.show()

# %%
# **No aligning data at all.** The shared map is a map for anyone in that space. Samples
# are standardised by their own mean and deviation.
others = simulate_brains(
    8, n_samples=160, signal=0.25, misregistration_mm=4.0, random_state=0
)
template = GDM(10, graph="time").fit(others.subset(others.ids[:-1]))
newcomer = others[others.ids[-1]]
features = template.shared_map_.transform(newcomer)
print(features.shape)

# %%
# ``template.fit_new_subject(newcomer)`` starts from the shared map and adds what can be
# learned from the newcomer's own aligning samples; without any, it is the shared map.
# On the brain, it is one picture for everyone in that space:
from nilearn.plotting import plot_glass_brain

image = template.shared_map_.to_image(0, like=newcomer)
plot_glass_brain(image, plot_abs=False, threshold=0, cmap="RdBu_r", colorbar=True)
plt.show()

# %%
# **Nothing in common but places.** Two groups who saw different films are tied by
# places, and a warning points out that nothing else ties them.
import warnings

films = [["a"]] * 4 + [["b"]] * 4
apart = simulate_brains(8, n_samples=160, films=films, signal=0.4, random_state=1)
with warnings.catch_warnings(record=True) as caught:
    warnings.simplefilter("always")
    tied = GDM(10, graph="time").fit(apart)
print(caught[0].message)

# %%
# A real story
# ------------
# 36 people heard the story Pieman; its data, 100 factors per person that lie at the
# same places for all, are public (``weights.mat`` of `timecorr
# <https://github.com/ContextLab/timecorr>`_). If ``$BRAINWEAVE_DATA`` is a folder with
# ``pieman_htfa/weights.mat``, the same three methods are scored on it.
import os
from pathlib import Path

from brainweave import load_matlab

file = Path(os.environ.get("BRAINWEAVE_DATA", "data")) / "pieman_htfa/weights.mat"
if file.exists():
    pieman = load_matlab(file, name="pieman")
    for name, aligner in methods.items():
        result = score_alignment(aligner, pieman, leave_out=6, measure="matching")
        print(f"{name:18} {result.mean:.0%} of segments, chance {result.chance:.1%}")
else:
    print(f"{file} does not exist, so Pieman is left out.")

# %%
# With 150 aligning volumes, a map that knows nothing of places is worse than none; with
# places, GDM is better than both. :doc:`/results` has this study with all methods.
#
# Places are used only if they help clearly on held-out aligning samples, so voxels that
# were selected or ordered in each subject lose nothing. ``place=None`` never uses them,
# and ``place=labels`` takes parcels of your own. See :doc:`/gdm` for the derivation.
