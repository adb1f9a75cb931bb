"""
A film with missing parts
=========================

Six subjects watched a film in the scanner; three of them missed parts. Time-locked
methods align on the parts that all subjects saw, GDM on all samples. The first half of
this example uses the command line and files, the second half Python and arrays.
"""

# %%
# A BIDS dataset without events
# -----------------------------
# We simulate a dataset of a film, which has no events. Missed
# volumes have a framewise displacement above 0.5 mm, as after large movements. Replace
# this step with your own data.
import shlex
import tempfile
from contextlib import chdir, redirect_stderr
from io import StringIO
from pathlib import Path

from brainweave import simulate_study

work = Path(tempfile.mkdtemp())
simulated = simulate_study(
    n_subjects=6,
    n_voxels=150,
    n_runs=2,
    design="movie",
    missing_parts=3,
    random_state=1,
)
simulated.to_bids(work / "bids", task="film", events=False)

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
# With ``--films runs`` each run is a film that starts with the run; pass a table for
# other films and times. ``scrub`` removes volumes with motion. ``standardize`` z-scores
# voxels within each run; otherwise the first shared feature may be the difference
# between runs.
shell(
    "brainweave convert bids film --task film --films runs --param scrub=0.5 "
    "--param standardize=zscore -q"
)
shell("brainweave info film")

# %%
# Compare methods
# ---------------
# The study has stimulus ids and no categories, so segments of the film are matched.
# Choose another measure with ``--measure isc`` or ``reconstruction``. The column
# ``aligned_on`` lists the number of aligning samples of each method.
shell(
    "brainweave compare film -o results --method gdm,srm,none --n-components 8 "
    "--protocol held-out"
)

# %%
# Align and write the report
# --------------------------
# The report shows who saw what, the scores, and the shared time courses of all subjects
# with their inter-subject correlations.
shell("brainweave fit film --n-components 8")
shell(
    "brainweave report film.html --study film --model model.safetensors "
    "--results results"
)

# %%
# As a BIDS App (add ``--participant-label 01`` for one job per subject)::
#
#     brainweave run bids out participant --task film --films runs
#     brainweave run bids out group --task film --films runs
#
# The same in Python
# ------------------
# Pass arrays with the ids of their samples: integers, seconds, or strings such as
# ``"film@12.50"``.
from brainweave import (
    GDM,
    SRM,
    NoAlignment,
    RegularizedHyperalignment,
    Study,
    compare_methods,
)
from brainweave.plotting import plot_coverage

film = Study.open(work / "film")
X = [person.data() for person in film]
ids = [person.stimuli for person in film]
plot_coverage(film)

# %%
methods = {
    "GDM": GDM(8, graph="time"),
    "RHA": RegularizedHyperalignment(8),
    "SRM": SRM(8, random_state=0),
    "without alignment": NoAlignment(),
}
found = compare_methods(X, methods, ids)
found.to_frame()[["method", "mean", "chance", "aligned_on"]]

# %%
from brainweave.plotting import plot_accuracy

plot_accuracy(found.results)

# %%
# Time courses of subjects who missed parts have gaps; the mean at each time is over the
# subjects who saw it. The figure shows features of held-out samples.
from brainweave import alignment_check
from brainweave.plotting import plot_time_courses

gdm = GDM(8, graph="time").fit(film)
plot_time_courses(alignment_check(gdm, film).features, film, components=range(4))

# %%
# The result lists the number of samples behind each score, by half and subject.
found.results["GDM"].to_frame()[["half", "subject", "matching", "samples"]]
