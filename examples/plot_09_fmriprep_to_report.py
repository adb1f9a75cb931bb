"""
From fMRIPrep to a report
=========================

This example goes from fMRIPrep output to a self-contained HTML report on the command
line. We simulate a small BIDS dataset with fMRIPrep-like derivatives; replace the first
step with your own data.
"""

# %%
import shlex
import tempfile
from contextlib import chdir, redirect_stderr
from io import StringIO
from pathlib import Path

# sphinx_gallery_thumbnail_path = "report.png"

from brainweave import simulate_study

work = Path(tempfile.mkdtemp())
study = simulate_study(
    n_subjects=4,
    categories=4,
    n_voxels=(250, 350),
    n_runs=2,
    repetitions=3,
    random_state=0,
)
study.to_bids(work / "bids")
for path in sorted((work / "bids").rglob("*"))[:14]:
    print(path.relative_to(work))

# %%
# In a shell, type the commands shown after each ``$``; here a function runs them.
from brainweave.cli import main


def shell(command):
    """Run a command in the working folder and show it with its output."""
    print("$", command)
    progress = StringIO()  # bars and times, which a terminal shows while it works
    with chdir(work), redirect_stderr(progress):
        try:
            main(shlex.split(command)[1:])
        except SystemExit as done:
            if done.code:
                raise RuntimeError(progress.getvalue()) from done


# %%
# 1. Create a study folder
# ------------------------
# Confounds, masks, events and repetition times are read from the derivatives. The
# folder contains one memory-mapped array and one table per subject, and checksums.
shell("brainweave convert bids study --task objects")

# %%
# 2. Inspect the study
# --------------------
# The study records its preprocessing. Note the warning at the end: confounds are
# correlated with slow blocks (:doc:`/faq`).
shell("brainweave info study")

# %%
# 3. Compare methods
# ------------------
# ``--match truncate`` makes the samples of all subjects correspond, which SRM needs. In
# this study SRM scores higher; with ``random_state=1`` GDM does: four subjects are not
# conclusive. Report all rows, not only the best one. Score a method that was chosen by
# its score on another study.
shell(
    "brainweave compare study -o comparison --method gdm --method srm --match truncate "
    "--protocol both --n-components 3 --no-report"
)

# %%
# 4. Align and write the report
# -----------------------------
# The default method is GDM (for SRM, add ``--method srm --match truncate``).
shell("brainweave fit study -o model.safetensors --n-components 3")
shell(
    "brainweave report report.html --study study --model model.safetensors "
    "--results comparison/results.json"
)
print(
    f"report.html: {(work / 'report.html').stat().st_size / 1e6:.1f} MB, self-contained"
)

# %%
# On a cluster, use the BIDS App, with one job per subject and one for the group::
#
#     brainweave run bids/derivatives/fmriprep out participant --participant-label 01
#     brainweave run bids/derivatives/fmriprep out group
#
# The same in Python
# ------------------
# ``load_bids`` has all options (confounds, smoothing, type of samples); the study keeps
# a record of the preprocessing.
from brainweave import load_bids

loaded = load_bids(work / "bids", task="objects")
loaded.summary()[["samples", "voxels", "runs", "categories"]]

# %%
# Results of a comparison can be read and plotted:
from brainweave import Comparison
from brainweave.plotting import plot_accuracy

plot_accuracy(Comparison.load(work / "comparison").results)
