"""
A story, from a file to a report
================================

Subjects listen to the same story. There are no categories: samples are matched by
their time in the story. This example reads such a study, aligns it, compares methods on
the held-out half of the story, and writes a report.
"""

# %%
# Read the story
# --------------
# *Pieman* is a story of seven minutes that 36 subjects heard (Simony et al., 2016). The
# data are the activities of 100 brain regions every 1.5 seconds, published under
# the MIT licence at https://github.com/ContextLab/timecorr. To use them, set the
# environment variable ``BRAINWEAVE_DATA`` to a folder with ``pieman_htfa/weights.mat``.
# Otherwise we simulate twelve subjects, whose voxels do not correspond.
import os
import tempfile
from pathlib import Path

import numpy as np

from brainweave import Study, Subject, load_matlab, simulate_study

file = Path(os.environ.get("BRAINWEAVE_DATA", "")) / "pieman_htfa" / "weights.mat"
if file.is_file():
    people = load_matlab(file, name="Pieman").subjects
else:
    people = simulate_study(
        n_subjects=12, n_voxels=100, n_runs=1, repetitions=5, signal=2, design="movie"
    ).subjects
print("read from the file" if file.is_file() else "simulated", len(people), "subjects")

# %%
# The stimulus id of a sample is its time in the story, ``"Pieman@12.00"``. Samples
# with equal ids belong together.
story = Study(
    [
        Subject(
            person.id,
            person.data(),
            stimuli=[f"Pieman@{1.5 * t:.2f}" for t in range(person.n_samples)],
        )
        for person in people
    ],
    "Pieman",
)
story.summary()[["samples", "voxels", "stimuli"]]

# %%
# Align and test the alignment
# ----------------------------
# ``graph="time"`` connects samples with equal ids. ``place_`` reports whether a part of
# the maps is shared by all subjects, which helps if regions correspond, as in Pieman.
from brainweave import GDM, alignment_check

gdm = GDM(30, graph="time").fit(story)
check = alignment_check(gdm, story)
print(check, gdm.place_, sep="\n")

# %%
# The check returns features of held-out samples: each half of the story is mapped by a
# model fitted on the other half. Thin lines are subjects, the thick line is their
# mean. Where subjects agree, thin lines follow the thick one.
from brainweave.plotting import plot_time_courses

plot_time_courses(check.features, story, components=range(3))

# %%
# Compare methods
# ---------------
# We align on one half of the story. In the other half, each segment of nine samples of
# a left-out subject is matched with the average of the others. A quarter of the
# subjects is left out at a time.
from brainweave import SRM, NoAlignment, RegularizedHyperalignment, compare_methods

methods = {
    "GDM": gdm,
    "RHA": RegularizedHyperalignment(30),
    "SRM": SRM(30, random_state=0),
    "without alignment": NoAlignment(),
}
found = compare_methods(story, methods, leave_out=len(story) // 4)
print(found)

# %%
from brainweave.plotting import plot_accuracy

plot_accuracy(found.results)

# %%
# To find where in the story subjects agree, compute
# :func:`~brainweave.inter_subject_correlation` in windows of 30 samples, 45 seconds.
import matplotlib.pyplot as plt

from brainweave import inter_subject_correlation

windows = inter_subject_correlation(check.features, window=30, step=5)
figure, ax = plt.subplots(figsize=(7, 2.6), layout="constrained")
ax.plot(1.5 / 60 * (5 * np.arange(len(windows)) + 15), windows[:, :, :3].mean(axis=1))
ax.axhline(0, color="black", linewidth=0.8)
ax.set(xlabel="minutes", ylabel="inter-subject correlation")
ax.legend([f"feature {k}" for k in range(3)], frameon=False)

# %%
# Write the report
# ----------------
# The report is one file. It shows who heard what, the scores, the shared time courses,
# inter-subject correlations, and a methods paragraph.
from brainweave.report import write_report

path = write_report(
    Path(tempfile.mkdtemp()) / "story.html",
    study=story,
    model=gdm,
    results=found.results,
    title="Pieman",
)
print(f"{path.name}: {path.stat().st_size / 1e6:.1f} MB")

# %%
# From the shell, after saving the study with ``story.save("story")``::
#
#     brainweave compare story -o results --method gdm,srm,none --param leave_out=9 \
#         --n-components 30
#     brainweave fit story --n-components 30
#     brainweave report story.html --study story --model model.safetensors \
#         --results results
