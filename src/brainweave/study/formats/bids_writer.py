"""Write a simulated study as a BIDS dataset with fMRIPrep-like derivatives."""

from __future__ import annotations

import json
from collections.abc import Mapping
from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from brainweave._core import __version__
from brainweave._core.arrays import Codes
from brainweave._core.exceptions import InputError, StudyError
from brainweave._core.io import atomic_folder, full_disk_is_an_error
from brainweave.study.formats.events import DRIFT_CUTOFF, drift_columns
from brainweave.study.simulation import Brain, SimulatedStudy, Simulation, Single

#: Folder of the derivatives in the dataset.
DERIVATIVES = "derivatives/fmriprep"


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
        self.in_template = simulation.same_mask

    def write(self, title: str, raw: bool, derivatives: bool, events: bool) -> None:
        simulation, tr = self.simulation, self.simulation.design.tr
        made_by = {"Name": "brainweave", "Version": __version__}
        about = {"Name": title, "BIDSVersion": "1.10.0", "GeneratedBy": [made_by]}
        self._save_json("dataset_description", {**about, "DatasetType": "raw"})
        bold = {"TaskName": self.task, "RepetitionTime": tr}
        self._save_json(f"task-{self.task}_bold", bold)
        if derivatives:
            made = {"DatasetType": "derivative", "DatasetLinks": {"raw": "../.."}}
            self._save_json(f"{DERIVATIVES}/dataset_description", {**about, **made})
        for subject, id in enumerate(simulation.ids):
            brain = simulation.brain(subject)
            maps = simulation.nuisance_maps(subject, brain)
            for run in simulation.runs(subject):
                stem = f"sub-{id}/func/sub-{id}_task-{self.task}_run-{run.number}"
                if events:
                    shown = run.events
                    table = {"onset": shown.onset, "duration": shown.duration}
                    more = {"trial_type": shown.label, "stim_file": shown.stimulus}
                    self._save_table(f"{stem}_events.tsv", table | more)
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
                    stem = f"{DERIVATIVES}/{stem}"
                    space = "MNI152NLin2009cAsym" if self.in_template else "T1w"
                    image = f"{stem}_space-{space}_desc-preproc_bold"
                    volume = np.zeros((*brain.mask.shape, len(data)), np.float32)
                    volume[brain.mask] = data.T
                    self._save_image(f"{image}.nii.gz", volume, brain)
                    self._save_json(image, bold)
                    mask = f"{stem}_space-{space}_desc-brain_mask.nii.gz"
                    self._save_image(mask, brain.mask.astype(np.uint8), brain)
                    nuisance = simulation.signals(subject, run)[2]
                    lost = np.setdiff1d(np.arange(run.n_volumes), run.kept)
                    confounds = confounds_of_run(nuisance, data, tr=tr, lost=lost)
                    place = f"{stem}_desc-confounds_timeseries.tsv"
                    self._save_table(place, confounds)

    def _path(self, place: str) -> Path:
        path = self.root / place
        path.parent.mkdir(parents=True, exist_ok=True)
        return path

    def _save_json(self, stem: str, content: Mapping[str, Any]) -> None:
        text = json.dumps(content, indent=2) + "\n"
        self._path(f"{stem}.json").write_text(text, encoding="utf-8")

    def _save_table(self, place: str, columns: Any) -> None:
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
        image.set_sform(brain.affine, code=4 if self.in_template else 1)
        image.set_qform(brain.affine, code=1)
        nib.save(image, self._path(place))


_MOTION = ["trans_x", "trans_y", "trans_z", "rot_x", "rot_y", "rot_z"]
_HEAD_RADIUS = 50.0  # mm, as in framewise displacement


def confounds_of_run(
    nuisance: Single, data: Single, *, tr: float, lost: Codes
) -> pd.DataFrame:
    """Make a table of confounds; `lost` volumes have a large displacement."""
    sources = np.zeros((len(data), 8))
    sources[:, : nuisance.shape[1]] = nuisance[:, :8]
    # translations of some 0.02 mm, and rotations that move the head's edge as far
    to_mm = np.repeat([1.0, _HEAD_RADIUS], 3)
    motion = pd.DataFrame(0.02 * sources[:, :6] / to_mm, columns=_MOTION)
    values = motion.assign(csf=100 + sources[:, 6], white_matter=100 + sources[:, 7])
    slopes = values.diff()  # the first volume has none
    table = values.join(slopes.add_suffix("_derivative1"))
    table = table.join((table**2).add_suffix("_power2"))
    # no volume that is kept may exceed the threshold
    moved = (slopes[_MOTION].abs() * to_mm).sum(axis=1, skipna=False).clip(upper=0.4)
    moved[lost] = moved[lost].fillna(0) + 2.0
    table["framewise_displacement"] = moved
    change = np.sqrt((np.diff(data, axis=0).astype(np.float64) ** 2).mean(axis=1))
    relative = change / max(float(change.mean()), 1e-12)
    table["std_dvars"] = np.append(np.nan, relative)
    for k, wave in enumerate(drift_columns(len(data), tr, DRIFT_CUTOFF).T):
        table[f"cosine{k:02d}"] = wave
    return table
