"""
Alignment of registered brains
==============================

After anatomical registration, voxels roughly correspond between subjects. GDM uses
this: it learns a map over places that all subjects share, and each subject's deviation
from it. It ignores places if they do not correspond.
"""

# %%
# A shared map and deviations
# ---------------------------
# Eight subjects watch the same film. Their functional maps are displaced by 4 mm, a
# typical error of registration.
from brainweave import GDM, NoAlignment, score_alignment, simulate_brains

brains = simulate_brains(
    8, n_samples=160, signal=0.25, misregistration_mm=4.0, random_state=0
)
gdm = GDM(10, graph="time").fit(brains)
print(gdm.place_)

# %%
# Score it on the held-out half of the film: how often is a segment of a
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
# Subjects without aligning data
# ------------------------------
# The shared map applies to any subject in that space. Samples are standardised by their
# own mean and deviation.
template = GDM(10, graph="time").fit(brains.subset(brains.ids[:-1]))
newcomer = brains[brains.ids[-1]]
features = template.shared_map_.transform(newcomer)
print(features.shape)

# %%
# ``template.fit_new_subject(newcomer)`` starts from the shared map and adds a deviation
# learned from the new subject's aligning samples; without any, it returns the shared
# map. Plot the first feature of the shared map on the brain:
from nilearn.plotting import plot_glass_brain

image = template.shared_map_.to_image(0, like=newcomer)
plot_glass_brain(image, plot_abs=False, threshold=0, cmap="RdBu_r", colorbar=True)
plt.show()

# %%
# Groups without common stimuli
# -----------------------------
# Places link two groups who saw different films. A warning points out that nothing else
# links them.
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
# 36 subjects heard the story Pieman. The data, 100 factors per subject at places that
# are the same for all, are public (``weights.mat`` of `timecorr
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
    print(f"This page was built without Pieman: {file} does not exist.")

# %%
# With 150 aligning volumes, GDM without places scores lower than no alignment; with
# places, it scores higher than both. :doc:`/results` shows this study with all methods.
#
# Share a map
# -----------
# A model file contains the shared map, so others can apply it to their subjects in the
# same space without your data. We save the model of 35 subjects of Pieman (seven of the
# simulated subjects if the file is missing), load it, map the last subject, and
# correlate its features with the mean of the others.
import tempfile

import numpy as np

from brainweave import load, save

study = pieman if file.exists() else brains
others, last = study.subset(study.ids[:-1]), study[study.ids[-1]]
path = Path(tempfile.mkdtemp()) / "shared_map.safetensors"
save(GDM(10, graph="time").fit(others), path)

model = load(path)
features = model.shared_map_.transform(last)
mean = np.mean(model.transform(others), axis=0)
r = [np.corrcoef(features[:, k], mean[:, k])[0, 1] for k in range(10)]
print(f"{path.stat().st_size / 1e6:.1f} MB, mean correlation {np.mean(r):.2f}")

# %%
# Places are used only if they clearly help on held-out aligning samples, so they do no
# harm if voxels were selected or ordered in each subject. Set ``place=None`` to ignore
# places, and ``place=labels`` to use your own parcels. :doc:`/gdm` has the derivation.
