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
    """Write a simulated study as a BIDS dataset.

    Derivatives have brain masks and confounds, in the space ``T1w`` of each subject,
    or in ``MNI152NLin2009cAsym`` if all subjects have the same voxels. Missing volumes
    are written and have a framewise displacement above 0.5 mm.

    To read the same study with :func:`brainweave.load_bids`, pass ``confounds=None``,
    ``stimulus="stim_file"``, ``Cleaning(high_pass=None)``, the ``keep_rest`` of the
    simulation and, if samples are missing, ``scrub=0.5``.

    Parameters
    ----------
    study : SimulatedStudy
        Study to write. All volumes of its runs are written.
    folder : path
        Folder to create. It must not exist, or be empty.
    task : str, default="objects"
        Name of the task, of letters and digits.
    raw : bool, default=True
        Write raw images.
    derivatives : bool, default=True
        Write preprocessed images, masks and confounds.
    events : bool, default=True
        Write the events; a film, which all subjects see alike, needs none.

    Returns
    -------
    Path
        Folder of the dataset.

    Examples
    --------
    >>> from brainweave import simulate_study
    >>> study = simulate_study(n_subjects=2, n_voxels=40, n_runs=2, random_state=0)
    >>> folder = write_bids(study, "bids", derivatives=False)
    >>> sorted(path.name for path in folder.glob("sub-01/*/*_events.tsv"))
    ['sub-01_task-objects_run-1_events.tsv', 'sub-01_task-objects_run-2_events.tsv']
    """
    target = Path(folder)
    if not isinstance(study, SimulatedStudy) or study.simulation is None:
        raise TypeError(
            f"Only a whole study of simulate_study can be written as BIDS, not a "
            f"{type(study).__name__}. Study.save writes any study."
        )
    if not task.isalnum():
        raise InputError(f"task={task!r} must consist of letters and digits.")
    if target.exists() and not target.is_dir():
        raise StudyError(f"{str(target)!r} is a file; choose a folder.")
    if target.exists() and any(target.iterdir()):
        raise StudyError(f"{target} is not empty. Choose another folder, or empty it.")
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
            if raw:
                volume = np.where(brain.mask, 100.0, 0.0).astype(np.float32)
                self._save_image(f"sub-{id}/anat/sub-{id}_T1w.nii.gz", volume, brain)
            for run in simulation.runs(subject):
                stem = f"sub-{id}/func/sub-{id}_task-{self.task}_run-{run.number}"
                if events:
                    self._write_events(stem, run.events)
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
                    self._write_derivatives(id, stem, brain, data, confounds)

    def _write_top(self, name: str, derivatives: bool) -> None:
        (self.root / "README.md").write_text(
            f"# {name}\n\nSimulated by brainweave {__version__} "
            f"(seed {self.simulation.seed}); no person was scanned.\n",
            encoding="utf-8",
        )
        people = [f"sub-{id}" for id in self.simulation.ids]
        self._save_table("participants.tsv", {"participant_id": people})
        about = {
            "Name": name,
            "BIDSVersion": "1.10.0",
            "License": "CC0",
            "GeneratedBy": [{"Name": "brainweave", "Version": __version__}],
        }
        self._save_json("dataset_description", {**about, "DatasetType": "raw"})
        bold = {"TaskName": self.task, "RepetitionTime": self.simulation.design.tr}
        self._save_json(f"task-{self.task}_bold", bold)
        if derivatives:
            made = {"DatasetType": "derivative", "DatasetLinks": {"raw": "../.."}}
            top = DERIVATIVES.as_posix()
            self._save_json(f"{top}/dataset_description", {**about, **made})
            # confounds are not part of the specification; fMRIPrep ignores them too
            ignored = self.root / DERIVATIVES / ".bidsignore"
            ignored.write_text("*_timeseries.*\n")

    def _write_events(self, stem: str, events: Any) -> None:
        from PIL import Image

        columns = {
            "onset": events.onset,
            "duration": events.duration,
            "trial_type": events.label,
            "stim_file": events.stimulus,
        }
        self._save_table(f"{stem}_events.tsv", columns)
        for name in events.stimulus:  # a valid dataset has its pictures
            picture = self._path(f"stimuli/{name}")
            if not picture.exists():
                Image.new("L", (8, 8)).save(picture)

    def _write_derivatives(
        self,
        id: str,
        stem: str,
        brain: Brain,
        data: NDArray[np.float32],
        confounds: tuple[Mapping[str, Any], Mapping[str, Any]],
    ) -> None:
        stem = f"{DERIVATIVES.as_posix()}/{stem}"
        own = f"bids:raw:sub-{id}/anat/sub-{id}_T1w.nii.gz"
        reference = {"SpatialReference": own if self.space == "T1w" else self.space}
        volume = np.zeros((*brain.mask.shape, len(data)), np.float32)
        volume[brain.mask] = data.T
        tr = self.simulation.design.tr
        bold = {"TaskName": self.task, "RepetitionTime": tr, "SkullStripped": True}
        image = f"{stem}_space-{self.space}_desc-preproc_bold"
        self._save_image(f"{image}.nii.gz", volume, brain)
        self._save_json(image, {**bold, **reference})
        mask = f"{stem}_space-{self.space}_desc-brain_mask"
        self._save_image(f"{mask}.nii.gz", brain.mask.astype(np.uint8), brain)
        self._save_json(mask, {"Type": "Brain", "RawSources": [], **reference})
        columns, about = confounds
        self._save_table(f"{stem}_desc-confounds_timeseries.tsv", columns)
        self._save_json(f"{stem}_desc-confounds_timeseries", about)

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
_N_COMPCOR = 5


def confounds_of_run(
    nuisance: NDArray[np.float32],
    data: NDArray[np.float32],
    *,
    tr: float,
    lost: NDArray[np.int64],
) -> tuple[dict[str, NDArray[np.float64]], dict[str, Any]]:
    """Make the columns of a ``desc-confounds_timeseries.tsv`` and their description.

    Volumes in `lost` get a large framewise displacement.
    """
    n_volumes = len(data)
    wanted = len(_MOTION) + 2 + _N_COMPCOR
    sources = np.zeros((n_volumes, wanted))
    n_known = min(wanted, nuisance.shape[1])
    sources[:, :n_known] = nuisance[:, :n_known]
    # translations of some 0.02 mm, and rotations that move the head's edge as far
    motion = 0.02 * sources[:, : len(_MOTION)]
    motion[:, 3:] /= _HEAD_RADIUS
    named = dict(zip(_MOTION, motion.T, strict=True))
    named["csf"] = 100 + sources[:, 6]
    named["white_matter"] = 100 + sources[:, 7]
    named["global_signal"] = data.mean(axis=1, dtype=np.float64)
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
    about: dict[str, Any] = {}
    for k in range(_N_COMPCOR):
        name = f"a_comp_cor_{k:02d}"
        columns[name] = sources[:, 8 + k]
        about[name] = {"Method": "aCompCor", "Mask": "combined", "Retained": True}
        about[name]["CumulativeVarianceExplained"] = 0.5 * (k + 1) / _N_COMPCOR
    return columns, about
