"""fMRIPrep output with the defects that real studies have."""

import shutil
from pathlib import Path

import nibabel as nib
import numpy as np

from brainweave import simulate_study
from brainweave.study import SimulationSettings

TASKS = ("objects", "words")


def messy_fmriprep(folder: Path, *, n_subjects: int = 6, seed: int = 0) -> Path:
    """Write a BIDS dataset with derivatives of two tasks.

    Subject 03 lacks run 2 of the task objects, every subject's brain mask lacks a few
    voxels of its own, and all pressed buttons while they looked at objects.
    """
    options = {
        "n_subjects": n_subjects,
        "categories": ["face", "house", "shoe"],
        "n_runs": 3,
        "repetitions": 4,
        "n_voxels": 150,
        "signal": 4.0,
        "random_state": seed,
        "settings": SimulationSettings(duration=15.0, n_nuisance=15, n_shared=6),
    }
    simulate_study(**options).to_bids(folder, task=TASKS[0], raw=False)
    other = folder.with_name(folder.name + "-other")
    words = simulate_study(**{**options, "n_runs": 1, "repetitions": 1})
    words.to_bids(other, task=TASKS[1], raw=False)
    shutil.copytree(other, folder, dirs_exist_ok=True)
    shutil.rmtree(other)
    for path in folder.rglob(f"sub-03_task-{TASKS[0]}_run-2_*"):
        path.unlink()
    for number in range(1, n_subjects + 1):
        _erode(folder, f"sub-{number:02}", number)
    for path in folder.rglob(f"*_task-{TASKS[0]}_*_events.tsv"):
        _press_buttons(path)
    return folder


def _erode(folder: Path, subject: str, number: int) -> None:
    """Take another few voxels out of the masks of each subject."""
    for path in folder.rglob(f"{subject}_*_desc-brain_mask.nii.gz"):
        image = nib.load(path)
        mask = np.asarray(image.dataobj).astype(np.uint8)
        inside = np.argwhere(mask)
        for voxel in inside[number : 2 * number + 1]:
            mask[tuple(voxel)] = 0
        nib.save(nib.Nifti1Image(mask, image.affine), path)


def _press_buttons(path: Path) -> None:
    header, *rows = path.read_text().splitlines()
    names = header.split("\t")
    pressed = []
    for row in rows:
        pressed.append(row)
        cells = dict(zip(names, row.split("\t"), strict=True))
        button = {name: "n/a" for name in names}
        button |= {"onset": f"{float(cells['onset']) + 4:g}", "duration": "0.5"}
        pressed.append("\t".join({**button, "trial_type": "button_press"}.values()))
    path.write_text("\n".join([header, *pressed]) + "\n")
