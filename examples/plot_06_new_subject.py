"""
Adding a new subject
====================

Add new subjects to a fitted model without a refit. The model does not change, so
results remain comparable.
"""

# %%
from brainweave import GDM, simulate_study

study = simulate_study(n_subjects=7, categories=5, n_voxels=(300, 400), random_state=0)
aligning, other = study.split_halves()
template, newcomer = aligning.subset(study.ids[:-1]), aligning[study.ids[-1]]
gdm = GDM(4).fit(template)

# %%
# Adding a subject requires only the sums of the shared features per category, which the
# model stores, not the voxels of the fitted subjects. A model file is therefore enough:
import tempfile
from pathlib import Path

from brainweave import load, save

path = Path(tempfile.mkdtemp()) / "template.safetensors"
save(gdm, path)
model = load(path)
new = model.fit_new_subject(newcomer)
print(
    f"the model file has {path.stat().st_size / 1e6:.2f} MB;",
    f"{new.n_undetermined} of {new.n_components} features are undetermined",
)

# %%
# Plot held-out samples of the new subject (squares) and of the template's subjects
# (dots) in the shared space.
import matplotlib.pyplot as plt
import numpy as np

from brainweave.plotting import palette

others = other.subset(study.ids[:-1])
test = other[study.ids[-1]]
rest, theirs = gdm.transform(others), new.transform(test.data())

color = dict(zip(study.categories, palette(5), strict=True))
figure, ax = plt.subplots(figsize=(6, 4), layout="constrained")
for subject, points in zip(others, rest, strict=True):
    ax.scatter(*points[:, :2].T, c=[color[c] for c in subject.labels], s=6, alpha=0.35)
ax.scatter(
    *theirs[:, :2].T,
    c=[color[c] for c in test.labels],
    s=34,
    marker="s",
    edgecolors="black",
    linewidths=0.6,
)
ax.set(xlabel="shared feature 0", ylabel="shared feature 1")
ax.spines[["top", "right"]].set_visible(False)
for name, shade in color.items():
    ax.scatter([], [], color=shade, label=name)
ax.scatter([], [], color="grey", s=6, label="template")
ax.scatter([], [], color="grey", s=34, marker="s", edgecolors="k", label="new subject")
ax.legend(frameon=False, bbox_to_anchor=(1, 1), loc="upper left")

# %%
# Classify the new subject with a classifier trained on the template's subjects:
from sklearn.svm import NuSVC

train = np.concatenate([s.labels for s in others])
classifier = NuSVC(nu=0.5, kernel="linear").fit(np.concatenate(rest), train)
accuracy = classifier.score(theirs, test.labels)
print(f"accuracy on the new subject: {accuracy:.0%}, chance 20%")

# %%
# How much data does a new subject need?
# --------------------------------------
# Each block has nine volumes, so 18 samples per category are two blocks. We leave out
# each subject in turn; thin lines show subjects, the thick line their mean.
sizes = (2, 4, 9, 12, 18)
curves = []
for id in study.ids:
    rest_ids = [other_id for other_id in study.ids if other_id != id]
    template, newcomer = aligning.subset(rest_ids), aligning[id]
    gdm = GDM(4).fit(template)
    scored = other.subset(rest_ids)
    features = np.concatenate(gdm.transform(scored))
    labels = np.concatenate([subject.labels for subject in scored])
    classifier = NuSVC(nu=0.5, kernel="linear").fit(features, labels)
    curve = []
    for size in sizes:
        chosen = np.concatenate(
            [np.flatnonzero(newcomer.labels == c)[:size] for c in study.categories]
        )
        joined = gdm.fit_new_subject(newcomer.select(np.sort(chosen)))
        features = joined.transform(other[id].data())
        curve.append(classifier.score(features, other[id].labels))
    curves.append(curve)
figure, ax = plt.subplots(figsize=(5.5, 3), layout="constrained")
ax.plot(sizes, np.transpose(curves), color="C0", linewidth=0.8, alpha=0.4)
ax.plot(sizes, np.mean(curves, axis=0), color="C0", marker="o", linewidth=2)
ax.axhline(0.2, color="black", linestyle="--", linewidth=1)
ax.set(xlabel="aligning samples per category", ylabel="accuracy", ylim=(0, 1))
ax.set_xticks(sizes)
ax.spines[["top", "right"]].set_visible(False)

# %%
# If the new subject lacks a category, its data do not determine all of the shared
# space. Undetermined features are set to zero, with a warning:
import warnings

with warnings.catch_warnings(record=True) as caught:
    warnings.simplefilter("always")
    partial = gdm.fit_new_subject(newcomer.select(newcomer.labels != "cat"))
print(partial.n_undetermined, "-", caught[0].message)

# %%
# On the command line, use ``brainweave add-subject model.safetensors STUDY``. All
# aligners of the package support new subjects.
