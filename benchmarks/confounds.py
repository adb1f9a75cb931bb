"""What removing confounds costs: accuracy without, before events, and with them.

python benchmarks/confounds.py FOLDER simulates three studies as fMRIPrep output in
FOLDER and prints between-subject accuracy (GDM, joint protocol) and the share of the
categories' time courses that the default confounds explain.
"""

import sys
import warnings
from pathlib import Path

import numpy as np

from brainweave import GDM, between_subject_classification, load_bids, simulate_study
from brainweave.study import SimulationSettings
from brainweave.study.formats import sampling

ROOM = sampling.ROOM
DESIGNS = {
    "blocks": {},
    "events": {"design": "events"},
    "rapid events": {
        "design": "events",
        "settings": SimulationSettings(gap=(0.5, 3.0)),
    },
}


def accuracy(folder: Path, confounds: str | None, room: float) -> tuple[float, float]:
    """Return the accuracy, and the share that the confounds explain."""
    sampling.ROOM = room
    study = load_bids(folder, confounds=confounds)
    score = between_subject_classification(GDM(), study, protocol="joint").mean
    runs = [run for own in study.record["runs"].values() for run in own.values()]
    return score, float(np.mean([run["lost"] for run in runs]))


def main(out: Path) -> None:
    """Print a row per design."""
    print("design        none   nilearn  with events  explained")
    for name, options in DESIGNS.items():
        folder = out / name.replace(" ", "-")
        if not folder.exists():
            made = {"n_subjects": 6, "n_voxels": 300, "n_runs": 4, "random_state": 1}
            simulate_study(**made, **options).to_bids(folder, raw=False)
        none, _ = accuracy(folder, None, 0.0)
        before, share = accuracy(folder, "auto", 0.0)
        joint, _ = accuracy(folder, "auto", ROOM)
        print(f"{name:13} {none:.3f}  {before:.3f}    {joint:.3f}        {share:.2f}")


if __name__ == "__main__":
    warnings.simplefilter("ignore", UserWarning)
    main(Path(sys.argv[1]))
