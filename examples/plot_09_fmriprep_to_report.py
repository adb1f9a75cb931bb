"""
From fMRIPrep to a report
=========================

The whole way on the command line, from a folder that fMRIPrep left behind to one HTML
file that can be mailed. The dataset is simulated, small so that the page takes seconds,
and written as BIDS with fMRIPrep-like derivatives; yours replaces the first step.
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
# In a shell you would type what follows each ``$``; here a small helper does it.
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
# 1. Make a study folder
# ----------------------
# Confounds, masks, events and repetition times are read from the derivatives. The
# folder is plain: one array per subject, memory-mapped, a table, checksums.
shell("brainweave convert bids study --task objects")

# %%
# 2. Look at it
# -------------
# What was done to the data stays with them. The warning at the end is worth its line:
# confounds and slow blocks have much in common in time (:doc:`/faq`).
shell("brainweave info study")

# %%
# 3. Which method suits it?
# -------------------------
# ``--match truncate`` makes the samples of all subjects correspond, which SRM needs. In
# this study SRM is ahead, and with ``random_state=1`` GDM is: four subjects decide
# little. Report all rows, not the best one; a method that was chosen by its score needs
# another study to be scored on.
shell(
    "brainweave compare study -o comparison --method gdm --method srm --match truncate "
    "--protocol both --n-components 3 --no-report"
)

# %%
# 4. Align, and write the report
# ------------------------------
# GDM unless you say otherwise (``--method srm --match truncate``).
shell("brainweave fit study -o model.safetensors --n-components 3")
shell(
    "brainweave report report.html --study study --model model.safetensors "
    "--results comparison/results.json"
)
print(
    f"report.html: {(work / 'report.html').stat().st_size / 1e6:.1f} MB, self-contained"
)

# %%
# The same as a BIDS App, one job per subject and one for the group, which is what
# clusters like::
#
#     brainweave run bids/derivatives/fmriprep out participant --participant-label 01
#     brainweave run bids/derivatives/fmriprep out group
#
# The same in Python
# ------------------
# ``load_bids`` has all the options (confounds, smoothing, what a sample is); the record
# of what was done travels with the study.
from brainweave import load_bids

loaded = load_bids(work / "bids", task="objects")
loaded.summary()[["samples", "voxels", "runs", "categories"]]
