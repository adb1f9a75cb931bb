"""Write a simulated study as a BIDS dataset with fMRIPrep-like derivatives."""

from __future__ import annotations

import json
from collections.abc import Mapping
from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from brainweave._core.exceptions import InputError, StudyError
from brainweave._core.io import atomic_folder, full_disk_is_an_error
from brainweave._core.version import __version__
from brainweave.study.simulation import Brain, SimulatedStudy, Simulation

#: Folder of the derivatives in the dataset.
DERIVATIVES = Path("derivatives") / "fmriprep"


def write_bids(
    study: SimulatedStudy,
    folder: str | PathLike[str],
    *,
    task: str = "objects",
    raw: bool = True,
    derivatives: bool = True,
    events: bool = True,
) -> Path:
    """Write a simulated study as a BIDS dataset; see ``SimulatedStudy.to_bids``."""
    target = Path(folder)
    if study.simulation is None:
        raise TypeError("Only studies of simulate_study can be written as BIDS.")
    if not task.isalnum():
        raise InputError(f"task={task!r} must consist of letters and digits.")
    if target.exists() and not (target.is_dir() and not any(target.iterdir())):
        raise StudyError(f"{str(target)!r} is not an empty folder. Choose another.")
    with (
        full_disk_is_an_error(target, "write again, or choose another folder"),
        atomic_folder(target) as work,
    ):
        writer = _Writer(study.simulation, work, task)
        writer.write(study.name or "Simulated study", raw, derivatives, events)
    return target


class _Writer:
    def __init__(self, simulation: Simulation, root: Path, task: str) -> None:
        self.simulation, self.root, self.task = simulation, root, task
        self.space = "MNI152NLin2009cAsym" if simulation.same_mask else "T1w"

    def write(self, title: str, raw: bool, derivatives: bool, events: bool) -> None:
        simulation = self.simulation
        self._write_top(title, derivatives)
        for subject, id in enumerate(simulation.ids):
            brain = simulation.brain(subject)
            maps = simulation.nuisance_maps(subject, brain)
            for run in simulation.runs(subject):
                stem = f"sub-{id}/func/sub-{id}_task-{self.task}_run-{run.number}"
                if events:
                    names = {"onset": "onset", "duration": "duration"}
                    names |= {"trial_type": "label", "stim_file": "stimulus"}
                    columns = {k: getattr(run.events, v) for k, v in names.items()}
                    self._save_table(f"{stem}_events.tsv", columns)
                data = simulation.volumes(subject, run, brain, maps)
                if raw:
                    # the faint noise that a scanner records around the brain
                    key = [simulation.seed, subject, run.number, 1000]
                    rng = np.random.default_rng(key)
                    shape = (*brain.mask.shape, run.n_volumes)
                    volume = np.abs(rng.standard_normal(shape, dtype=np.float32))
                    volume *= 0.01 * float(brain.baseline.mean())
                    volume[brain.mask] = data.T
                    self._save_image(f"{stem}_bold.nii.gz", volume, brain)
                if derivatives:
                    nuisance = simulation.signals(subject, run)[2]
                    lost = np.setdiff1d(np.arange(run.n_volumes), run.kept)
                    tr = simulation.design.tr
                    confounds = confounds_of_run(nuisance, data, tr=tr, lost=lost)
                    self._write_derivatives(stem, brain, data, confounds)

    def _write_top(self, name: str, derivatives: bool) -> None:
        made_by = {"Name": "brainweave", "Version": __version__}
        about = {"Name": name, "BIDSVersion": "1.10.0", "GeneratedBy": [made_by]}
        self._save_json("dataset_description", {**about, "DatasetType": "raw"})
        bold = {"TaskName": self.task, "RepetitionTime": self.simulation.design.tr}
        self._save_json(f"task-{self.task}_bold", bold)
        if derivatives:
            made = {"DatasetType": "derivative", "DatasetLinks": {"raw": "../.."}}
            top = DERIVATIVES.as_posix()
            self._save_json(f"{top}/dataset_description", {**about, **made})

    def _write_derivatives(
        self,
        stem: str,
        brain: Brain,
        data: NDArray[np.float32],
        confounds: Mapping[str, Any],
    ) -> None:
        stem = f"{DERIVATIVES.as_posix()}/{stem}"
        volume = np.zeros((*brain.mask.shape, len(data)), np.float32)
        volume[brain.mask] = data.T
        bold = {"TaskName": self.task, "RepetitionTime": self.simulation.design.tr}
        image = f"{stem}_space-{self.space}_desc-preproc_bold"
        self._save_image(f"{image}.nii.gz", volume, brain)
        self._save_json(image, bold)
        mask = f"{stem}_space-{self.space}_desc-brain_mask.nii.gz"
        self._save_image(mask, brain.mask.astype(np.uint8), brain)
        self._save_table(f"{stem}_desc-confounds_timeseries.tsv", confounds)

    def _path(self, place: str) -> Path:
        path = self.root / place
        path.parent.mkdir(parents=True, exist_ok=True)
        return path

    def _save_json(self, stem: str, content: Mapping[str, Any]) -> None:
        text = json.dumps(content, indent=2) + "\n"
        self._path(f"{stem}.json").write_text(text, encoding="utf-8")

    def _save_table(self, place: str, columns: Mapping[str, Any]) -> None:
        import pandas as pd

        form: Any = {"sep": "\t", "na_rep": "n/a", "float_format": "%.6g"}
        text = pd.DataFrame(columns).to_csv(index=False, lineterminator="\n", **form)
        self._path(place).write_bytes(text.encode())

    def _save_image(self, place: str, volume: NDArray[Any], brain: Brain) -> None:
        import nibabel as nib

        image = nib.Nifti1Image(volume, brain.affine)
        if volume.ndim == 4:
            zooms = (*image.header.get_zooms()[:3], self.simulation.design.tr)
            image.header.set_zooms(zooms)
        image.header.set_xyzt_units("mm", "sec")
        image.set_sform(brain.affine, code=4 if self.space != "T1w" else 1)
        image.set_qform(brain.affine, code=1)
        nib.save(image, self._path(place))


_MOTION = ("trans_x", "trans_y", "trans_z", "rot_x", "rot_y", "rot_z")
_HEAD_RADIUS = 50.0  # mm, as in framewise displacement


def confounds_of_run(
    nuisance: NDArray[np.float32],
    data: NDArray[np.float32],
    *,
    tr: float,
    lost: NDArray[np.int64],
) -> dict[str, NDArray[np.float64]]:
    """Make the columns of a ``desc-confounds_timeseries.tsv``.

    Volumes in `lost` get a large framewise displacement.
    """
    n_volumes = len(data)
    sources = np.zeros((n_volumes, 8))
    n_known = min(8, nuisance.shape[1])
    sources[:, :n_known] = nuisance[:, :n_known]
    # translations of some 0.02 mm, and rotations that move the head's edge as far
    motion = 0.02 * sources[:, : len(_MOTION)]
    motion[:, 3:] /= _HEAD_RADIUS
    named = dict(zip(_MOTION, motion.T, strict=True))
    named |= {"csf": 100 + sources[:, 6], "white_matter": 100 + sources[:, 7]}
    columns: dict[str, NDArray[np.float64]] = {}
    for name, values in named.items():
        # the first volume has no derivative
        derivative = np.concatenate([[np.nan], np.diff(values)])
        columns[name] = values
        columns[f"{name}_derivative1"] = derivative
        columns[f"{name}_power2"] = values**2
        columns[f"{name}_derivative1_power2"] = derivative**2
    steps = np.abs(np.diff(motion, axis=0))
    steps[:, 3:] *= _HEAD_RADIUS
    # no volume that is kept may exceed the threshold
    moved = np.minimum(np.concatenate([[np.nan], steps.sum(axis=1)]), 0.4)
    moved[lost] = np.nan_to_num(moved[lost]) + 2.0
    columns["framewise_displacement"] = moved
    change = np.sqrt((np.diff(data, axis=0).astype(np.float64) ** 2).mean(axis=1))
    relative = change / max(float(change.mean()), 1e-12)
    columns["std_dvars"] = np.concatenate([[np.nan], relative])
    middle = np.arange(n_volumes) + 0.5
    for k in range(int(2 * n_volumes * tr / 128)):  # up to 1 / 128 Hz, as fMRIPrep
        wave = np.cos(np.pi * (k + 1) * middle / n_volumes)
        columns[f"cosine{k:02d}"] = np.sqrt(2 / n_volumes) * wave
    return columns
