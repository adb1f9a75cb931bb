"""BIDS datasets and the output of fMRIPrep, as studies."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping
from dataclasses import replace
from functools import partial
from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np

from brainweave._core.exceptions import InputError, StudyError, warn_user
from brainweave.study.formats.bids_files import (
    BidsRun,
    Dataset,
    find_runs,
    inherited_files,
    open_dataset,
    read_confounds,
    repetition_time,
)
from brainweave.study.formats.events import Events, read_events
from brainweave.study.formats.images import volume_space
from brainweave.study.formats.runs import Cleaning, Run
from brainweave.study.formats.sampling import EventRun, study_of_events
from brainweave.study.options import EventRules, SampleOptions, Sampling
from brainweave.study.spaces import VolumeSpace, common_space
from brainweave.study.study import Study
from brainweave.study.subject import Subject
from brainweave.study.surface import CiftiSpace, SurfaceSpace

logger = logging.getLogger(__name__)


_OTHER_GRID = (
    "Read one session or space at a time, or give a mask with resample_mask=True."
)


def load_bids(
    folder: str | PathLike[str],
    *,
    task: str | None = None,
    space: str | None = None,
    subjects: Iterable[str] | None = None,
    sessions: Iterable[str] | None = None,
    runs: Iterable[int | str] | None = None,
    entities: Mapping[str, str] | None = None,
    derivatives: Any = "auto",
    mask: Any = None,
    resample_mask: bool = False,
    samples: str = "volumes",
    label: str | None = "trial_type",
    stimulus: str | None = None,
    confounds: Any = "auto",
    scrub: float | None = None,
    events: EventRules | None = None,
    sampling: Sampling | None = None,
    cleaning: Cleaning | None = None,
    dtype: Any = np.float32,
    name: str | None = None,
    **details: Any,
) -> Study:
    """Read a BIDS dataset, raw or preprocessed by fMRIPrep, as a study.

    Names of files, tables and headers are read now, images when needed (but a computed
    mask reads the runs once). Subjects may differ in runs, samples, categories and
    voxels; a subject without any matching run is not in the study.

    Parameters
    ----------
    folder : path
        Root of a raw BIDS dataset, or of fMRIPrep's output.
    task, space : str, optional
        Needed where there are several. Surfaces (``"fsaverage5"``) and CIFTI
        (``"fsLR"``) are read as such; ``"native"`` means files without a space.
    subjects, sessions, runs : iterable, optional
        Which to read, with or without ``sub-``, ``ses-`` and ``run-``; all by default.
    entities : mapping of str to str, optional
        Other parts that file names must have, such as ``{"res": "2"}``.
    derivatives : "auto", path or None, default="auto"
        Where the preprocessed images are, None to use raw images in their native
        space, without normalisation; ``"auto"`` prefers ``derivatives/fmriprep``.
    mask : path, image, mapping of subject to either, "epi", "common" or None
        By default fMRIPrep's brain mask of each subject (voxels in the masks of all
        its runs), or ``"epi"`` for raw images: computed from the images.
        ``"common"``: voxels in the brain masks of all subjects.
    resample_mask : bool, default=False
        Put a given mask of another shape or affine on the grid of the images, instead
        of raising.
    samples : {"volumes", "blocks", "trials", "trials-lsa", "trials-lss"}
        Every volume that shows an event; the mean of each block's volumes; or one
        estimate of a general linear model per trial, with all trials of a run in one
        model (least squares all, also ``"trials"``) or with a model per trial (least
        squares separate).
    label : str or None, default="trial_type"
        Column of the events that holds the category. None: no events are needed, and
        every volume is a sample without a label.
    stimulus : str, optional
        Column of the events that holds the stimulus id, such as ``"stim_file"``.
    confounds : "auto", str, tuple, list, mapping or None, default="auto"
        What to remove: one of nilearn's strategies (``"simple"``, ``"scrubbing"``,
        ``"compcor"``, ``"ica_aroma"``), a tuple of its components, a list of columns,
        or options of nilearn's ``load_confounds``. ``"auto"`` is ``"simple"`` for
        preprocessed images and nothing for raw ones. Trial models have the confounds
        as columns. Other samples are cleaned of them, fitted together with a level for
        each event (but not its category) where both take at most two fifths of the
        run's degrees of freedom; else, as nilearn does it, without regard to events.
    scrub : float, optional
        Leave out volumes with a framewise displacement above so many mm.
    events : EventRules, optional
        Which labels are no category (rest, fixation, responses and the like never are,
        unless kept), which of several events a volume shows, and how stimuli are named.
    sampling : Sampling, optional
        The repetition time, the delay of responses, and whether rest is kept.
    cleaning : Cleaning, optional
        Trends, filters, scaling and smoothing. Drifts below 1/128 Hz (`high_pass`) are
        removed by default, like confounds, unless these hold fMRIPrep's cosines.
    dtype : dtype, default=float32
        Of the samples.
    name : str, optional
        Name of the study, by default that of the folder.
    **details
        Fields of `events`, `sampling` and `cleaning` by their names, such as
        ``ignore="cue"``, ``keep_rest=True`` or ``smoothing_fwhm=6``.

    Returns
    -------
    Study
        Lazy. Runs are numbered as in the file names. Its ``record`` says what was
        done: the settings, the repetition times, the volumes that were scrubbed,
        runs without events, events without samples, samples of each category.

    Raises
    ------
    StudyError
        Nothing matches (the message lists what there is), or a file is not what it
        should be: times in milliseconds, a sidecar that contradicts the header.

    Warns
    -----
    UserWarning
        A run has no events and is left out; repetition times differ (every run keeps
        its own); events lie outside their run; volumes lie under several events;
        responses and the like are left out.
    """
    options = SampleOptions.merge(
        "load_bids", samples, details, events, sampling, cleaning
    )
    if scrub is not None and not scrub > 0:
        raise InputError(f"scrub={scrub} must be a displacement above zero, in mm.")
    if label is None:
        if samples != "volumes":
            raise InputError(f"samples={samples!r} needs events: give label=...")
        options = replace(options, sampling=replace(options.sampling, keep_rest=True))
    dataset = open_dataset(folder, derivatives)
    found = find_runs(
        dataset,
        task=task,
        space=space,
        subjects=subjects,
        sessions=sessions,
        runs=runs,
        entities=entities,
    )
    if isinstance(confounds, str) and confounds == "auto":
        confounds = "simple" if dataset.preprocessed else None
    files, without = (found, {}) if label is None else _with_events(dataset, found)
    spaces = _find_spaces(dataset, files, mask, resample_mask)
    event_runs: dict[str, dict[Any, EventRun]] = {id: {} for id in files}
    confound_names: dict[str, None] = {}  # in order, each once
    for id, file in ((id, file) for id, listed in files.items() for file in listed):
        shown = Events.from_rows([])
        if label is not None:
            rules = {"ignore": options.rules.ignore, "keep": options.rules.keep}
            table = _events_tables(dataset, file)[0]
            shown = read_events(table, label=label, stimulus=stimulus, **rules)
        columns, usable, unsteady = read_confounds(dataset, file, confounds, scrub)
        if columns is not None:
            confound_names.update(dict.fromkeys(map(str, columns.columns)))
        event_runs[id][file.run] = EventRun(
            file.path.name,
            Run(file.image, confounds=columns, sample_mask=usable),
            shown,
            partial(repetition_time, dataset, file),
            unsteady,
        )
    study = study_of_events(
        Path(folder).resolve().name if name is None else name,
        event_runs,
        spaces,
        options,
        {
            "source": "bids",
            "task": _only(files, "task"),
            "space": _only(files, "space") if space is None else space,
            "preprocessed": dataset.preprocessed,
            "pipeline": dataset.pipeline,
            "confounds": confounds,
            "mask": _mask_used(dataset, files, mask),
            "label": label,
            "scrub": scrub,
        },
        dtype=dtype,
        confounds=list(confound_names),
        missing_runs=_missing_runs(event_runs),
        runs_without_events=without,
    )
    if label is None and options.rules.moments:
        return study.map(_name_moments)
    return study


def _name_moments(subject: Subject) -> Subject:
    """Name samples without events by their run and their time in it."""
    pairs = zip(subject.runs, subject.onsets, strict=True)  # type: ignore[arg-type]
    return subject._replace(stimuli=[f"run-{run}@{time:.2f}" for run, time in pairs])


def _only(runs: Mapping[str, list[BidsRun]], entity: str) -> str | None:
    """Return what all files say of an entity; None if they say nothing."""
    (value,) = {r.entities.get(entity) for listed in runs.values() for r in listed}
    return value


def _mask_used(dataset: Dataset, runs: Mapping[str, list[BidsRun]], mask: Any) -> Any:
    """Return the mask for the record: as given, or what stands in for it."""
    kind = next(run.kind for listed in runs.values() for run in listed)
    if kind == "cifti":
        return "all grayordinates"
    if mask is not None:
        return mask
    if kind == "surface":
        return "all vertices"
    return "runs" if dataset.preprocessed else "epi"


def _events_tables(dataset: Dataset, run: BidsRun) -> list[Path]:
    return inherited_files(dataset.raw, run, "events", ".tsv")


def _with_events(
    dataset: Dataset, found: Mapping[str, list[BidsRun]]
) -> tuple[dict[str, list[BidsRun]], dict[str, list[str]]]:
    """Return each subject's runs that have events, and the files of those without."""
    kept: dict[str, list[BidsRun]] = {}
    without: dict[str, list[str]] = {}
    for id, run in ((id, run) for id, runs in found.items() for run in runs):
        if _events_tables(dataset, run):
            kept.setdefault(id, []).append(run)
            continue
        without.setdefault(id, []).append(run.path.name)
        warn_user(
            f"Subject {id!r}: {run.path.name} has no events file and is left out.",
            UserWarning,
        )
    if not kept:
        raise StudyError(
            f"No run in {str(dataset.images)!r} has an events file. Check the raw "
            f"dataset {str(dataset.raw)!r}, or use label=None."
        )
    return kept, without


def _find_spaces(
    dataset: Dataset, runs: Mapping[str, list[BidsRun]], mask: Any, resample: bool
) -> dict[str, Any]:
    """Return the voxels of each subject, inside its own mask or a common one."""
    kinds = {run.kind for listed in runs.values() for run in listed}
    if len(kinds) > 1:
        raise StudyError(
            f"The images are of several kinds: {', '.join(sorted(kinds))}."
        )
    is_common = isinstance(mask, str) and mask == "common" and kinds == {"volume"}
    if mask is None and not dataset.preprocessed and kinds == {"volume"}:
        mask = "epi"
    mask = None if is_common else mask
    spaces = {
        id: _subject_space(dataset, id, listed, mask, resample=resample)
        for id, listed in runs.items()
    }
    if is_common:
        return dict.fromkeys(spaces, common_space(spaces.items(), _OTHER_GRID))
    return spaces


def _subject_space(
    dataset: Dataset, id: str, runs: list[BidsRun], mask: Any, *, resample: bool
) -> Any:
    """Return the voxels of one subject; without a mask those of fMRIPrep's masks."""
    images = [run.image for run in runs]
    if runs[0].kind == "cifti":
        return CiftiSpace(images[0])
    if runs[0].kind == "surface":
        return SurfaceSpace.from_run(images[0], mask)
    if mask is None:
        brains = ((id, _brain_mask(dataset, run)) for run in runs)
        return common_space(brains, _OTHER_GRID)
    if isinstance(mask, Mapping):
        mask = {str(key).removeprefix("sub-"): value for key, value in mask.items()}
    return volume_space(id, mask, images, resample)


def _brain_mask(dataset: Dataset, run: BidsRun) -> VolumeSpace:
    files = inherited_files(dataset.images, run, "desc-brain_mask", ".nii.gz")
    files = [f for f in files if ("space-" in f.name) == ("space" in run.entities)]
    if not files:
        raise StudyError(
            f"{str(run.path)!r} has no brain mask (*_desc-brain_mask.nii.gz) beside "
            'it. Give mask=..., or mask="epi" to compute one.'
        )
    return VolumeSpace(files[0])


def _missing_runs(runs: Mapping[str, Iterable[Any]]) -> dict[str, list[str]]:
    """Return, and log, which subjects lack runs that others have."""
    every = {str(run) for own in runs.values() for run in own}
    missing = {}
    for id, own in runs.items():
        lacking = sorted(every.difference(map(str, own)))
        if lacking:
            missing[id] = lacking
            logger.info("Subject %s lacks the runs %s", id, ", ".join(lacking))
    return missing
