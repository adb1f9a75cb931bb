"""The old OpenfMRI layout: ``sub001/BOLD/task001_run001`` and onsets in cond files."""

import re
from collections.abc import Mapping, Sequence
from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np

from brainweave._core.exceptions import StudyError
from brainweave._core.validation import check_list_option, check_option
from brainweave.study.formats.events import SAMPLES, EventRules, Events, Sampling
from brainweave.study.formats.images import volume_space
from brainweave.study.formats.runs import Cleaning, EventRun, Run, study_of_events
from brainweave.study.study import Study


def load_openfmri(
    directory: str | PathLike[str],
    *,
    task: int = 1,
    subjects: Sequence[str] | str | None = None,
    runs: Sequence[int] | int | None = None,
    bold: str = "bold.nii.gz",
    mask: Any = "epi",
    confounds: str | None = None,
    samples: str = "volumes",
    events: EventRules | None = None,
    sampling: Sampling | None = None,
    cleaning: Cleaning | None = None,
    name: str | None = None,
) -> Study:
    """Make a study of a dataset in the layout of OpenfMRI.org, before BIDS.

    Parameters
    ----------
    directory : path
        The dataset, with ``sub001``, ``sub002``, … in it.
    task : int, default=1
        Number of the task to read; onsets are those of model 1.
    subjects : sequence of str, optional
        Folders to read, such as ``"sub001"``; by default all that have this task.
    runs : sequence of int, optional
        Runs to read; by default all. Subjects may lack some.
    bold : str, default="bold.nii.gz"
        Name of the image in each run's folder.
    mask : str, path, image or mapping, default="epi"
        ``"epi"`` computes one from each subject's own runs; a path that exists
        within a subject's folder (``"masks/25mm/vt.nii.gz"``) is that subject's mask;
        any other path or image is for all; a mapping gives one per subject.
    confounds : str, optional
        Name of a file in each run's folder whose columns are removed, or are columns
        of trial models, as in :func:`load_bids`; such as ``"bold_moest.txt"``.
    samples, events, sampling, cleaning
        As in :func:`load_bids`. The repetition time is by default that of
        ``scan_key.txt``, which must agree with that of the images.
    name : str, optional
        Name of the study; by default that of the folder.

    Returns
    -------
    Study
        Lazy; labels are the names in ``condition_key.txt``, runs the numbers of the
        folders.
    """
    check_option("samples", samples, SAMPLES, owner="load_openfmri")
    root, rules = Path(directory), events or EventRules()
    if not root.is_dir():
        raise StudyError(f"There is no folder {str(root)!r}. Check the path.")
    stated_tr = _scan_key_t_r(root)
    conditions = _condition_key(root, task)
    event_runs: dict[str, dict[int, EventRun]] = {}
    spaces = {}
    for folder, run_folders in _run_folders(root, task, subjects, runs).items():
        images = [_existing(path / bold) for path in run_folders.values()]
        own_mask, id = mask, folder.name
        if isinstance(mask, str | PathLike) and (folder / mask).is_file():
            own_mask = folder / mask
        spaces[id] = volume_space(id, own_mask, images)
        event_runs[id] = {}
        for (number, path), image in zip(run_folders.items(), images, strict=True):
            rows = _read_onsets(folder, path.name, conditions)
            columns = None if confounds is None else _existing(path / confounds)
            event_runs[id][number] = EventRun(
                f"{id}/{path.name}",
                Run(image, confounds=columns),
                Events.from_rows(rows).stimuli(rules),
                lambda: (stated_tr, f"The TR in {str(root / 'scan_key.txt')!r}"),
            )
    return study_of_events(
        root.name if name is None else name,
        event_runs,
        spaces,
        {
            "source": "openfmri",
            "task": task,
            "confounds": confounds,
            "mask": mask,
            "labels": "condition_key.txt",
        },
        samples=samples,
        rules=rules,
        sampling=sampling or Sampling(),
        cleaning=cleaning or Cleaning(),
    )


def _run_folders(
    root: Path, task: int, subjects: Any, runs: Any
) -> dict[Path, dict[int, Path]]:
    """Find the folders of each subject's runs, by their numbers."""
    pattern = f"BOLD/task{task:03d}_run*"
    if subjects is None:
        folders = [f for f in sorted(root.glob("sub*")) if any(f.glob(pattern))]
    else:
        listed = check_list_option("subjects", subjects, "load_openfmri")
        folders = [root / str(subject) for subject in listed]
    if not folders:
        raise StudyError(
            f"{str(root)!r} has no sub*/{pattern} folders. Is it the OpenfMRI layout, "
            "and the right task? For BIDS use load_bids."
        )
    if runs is not None:
        runs = [int(run) for run in check_list_option("runs", runs, "load_openfmri")]
    found: dict[Path, dict[int, Path]] = {}
    for folder in folders:
        if not folder.is_dir():
            raise StudyError(f"There is no subject {folder.name!r} in {str(root)!r}.")
        paths = sorted(folder.glob(f"{pattern}[0-9]"))
        numbers = {int(path.name.rpartition("_run")[2]): path for path in paths}
        found[folder] = {n: p for n, p in numbers.items() if runs is None or n in runs}
        if not found[folder]:
            which = "" if runs is None else f" among {runs}"
            raise StudyError(f"{str(folder)!r} has no run of task {task}{which}.")
    return found


def _existing(path: Path) -> Path:
    if not path.is_file():
        there = ", ".join(sorted(p.name for p in path.parent.glob("*"))) or "nothing"
        raise StudyError(
            f"There is no {path.name!r} in {str(path.parent)!r}, which has {there}."
        )
    return path


def _lines(path: Path) -> list[str]:
    try:
        return path.read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise StudyError(f"{str(path)!r} is not readable text ({error}).") from None


def _scan_key_t_r(root: Path) -> float | None:
    path = root / "scan_key.txt"
    for line in _lines(path) if path.is_file() else []:
        match = re.match(r"\s*TR\s+([0-9.]+)", line)
        if match:
            try:
                return float(match[1])
            except ValueError:
                raise StudyError(f"{str(path)!r}: {line!r} is no time.") from None
    return None


def _condition_key(root: Path, task: int) -> dict[str, str]:
    """Read the names of the conditions; early datasets leave out the task."""
    path = _existing(root / "models" / "model001" / "condition_key.txt")
    names = {}
    for line in _lines(path):
        early = line.lstrip().startswith("cond")
        fields = (f"task{task:03d} " * early + line).split(maxsplit=2)
        if len(fields) == 3 and fields[0] == f"task{task:03d}":
            names[fields[1]] = fields[2].strip()
    if not names:
        raise StudyError(f"{str(path)!r} names no condition of task {task}.")
    return names


def _read_onsets(
    folder: Path, run: str, conditions: Mapping[str, str]
) -> list[tuple[float, float, str]]:
    where = folder / "model" / "model001" / "onsets" / run
    files = sorted(where.glob("cond*.txt"))
    if not files:
        raise StudyError(
            f"{str(where)!r} has no cond*.txt: there are no onsets for this run. Leave "
            "it out with runs=[...]."
        )
    rows = []
    for path in files:
        for number, line in enumerate(_lines(path), start=1):
            if not line.strip():
                continue  # a condition that this run lacks has an empty file
            try:
                onset, duration = map(float, line.split()[:2])
                if not (np.isfinite([onset, duration]).all() and duration >= 0):
                    raise ValueError
            except ValueError:
                raise StudyError(
                    f"{str(path)!r}, line {number}: {line!r} is not an onset and a "
                    "duration of zero or more, in seconds."
                ) from None
            if path.stem not in conditions:
                raise StudyError(
                    f"{str(path)!r} is of a condition that condition_key.txt does not "
                    f"name; it names {', '.join(conditions)}."
                )
            rows.append((onset, duration, conditions[path.stem]))
    return rows
