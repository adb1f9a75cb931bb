"""What removing confounds costs: accuracy without, before events, and with them.

python benchmarks/confounds.py FOLDER simulates three studies as fMRIPrep output in
FOLDER and prints between-subject accuracy (GDM, joint protocol) with nothing removed,
with drifts alone (below 1/128 Hz), and with the default confounds, which hold the same
drifts; each without regard to events and with a level for each of them. The last
column is the share of the categories' time courses that the confounds explain.
"""

import sys
import warnings
from pathlib import Path
from typing import Any

import numpy as np

from brainweave import GDM, between_subject_classification, load_bids, simulate_study
from brainweave.study import Cleaning, SimulationSettings
from brainweave.study.formats import events

ROOM = events.ROOM
DESIGNS = {
    "blocks": {},
    "events": {"design": "events"},
    "rapid events": {
        "design": "events",
        "settings": SimulationSettings(gap=(0.5, 3.0)),
    },
}


def accuracy(folder: Path, room: float, **options: Any) -> tuple[float, float]:
    """Return the accuracy, and the share that confounds and drifts explain."""
    events.ROOM = room
    study = load_bids(folder, **options)
    score = between_subject_classification(GDM(), study, protocol="joint").mean
    runs = [run for own in study.record["runs"].values() for run in own.values()]
    return score, float(np.mean([run.get("lost", 0.0) for run in runs]))


def main(out: Path) -> None:
    """Print a row per design."""
    print("design        none   drifts, with events   nilearn  with events  explained")
    for name, options in DESIGNS.items():
        folder = out / name.replace(" ", "-")
        if not folder.exists():
            made = {"n_subjects": 6, "n_voxels": 300, "n_runs": 4, "random_state": 1}
            simulate_study(**made, **options).to_bids(folder, raw=False)
        none, _ = accuracy(
            folder, 0.0, confounds=None, cleaning=Cleaning(high_pass=None)
        )
        slow, _ = accuracy(folder, 0.0, confounds=None)
        beside, _ = accuracy(folder, ROOM, confounds=None)
        before, share = accuracy(folder, 0.0)
        joint, _ = accuracy(folder, ROOM)
        print(
            f"{name:13} {none:.3f}  {slow:.3f}   {beside:.3f}         "
            f"{before:.3f}    {joint:.3f}        {share:.2f}"
        )


if __name__ == "__main__":
    warnings.simplefilter("ignore", UserWarning)
    main(Path(sys.argv[1]))
