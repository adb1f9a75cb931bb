"""BIDS datasets and the output of fMRIPrep, as studies."""

from __future__ import annotations

import logging
import warnings
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, replace
from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from brainweave.exceptions import InputError, StudyError
from brainweave.study.formats.bids.confounds import (
    RunConfounds,
    read_fmriprep_confounds,
)
from brainweave.study.formats.bids.files import (
    BidsRun,
    Dataset,
    find_runs,
    inherited,
    open_dataset,
    repetition_time,
)
from brainweave.study.formats.bids.record import PlannedRun, make_record
from brainweave.study.formats.images import epi_mask, mask_on_grid
from brainweave.study.formats.runs.cleaning import Cleaning
from brainweave.study.formats.runs.events import Events, read_events
from brainweave.study.formats.runs.rules import EventRules, Sampling
from brainweave.study.formats.runs.runs import ImageSource, Run
from brainweave.study.formats.runs.sampling import (
    DRIFT_CUTOFF,
    check_samples,
    plan_samples,
)
from brainweave.study.formats.runs.timing import (
    agreed_tr,
    describe_losses,
)
from brainweave.study.options import gathered
from brainweave.study.spaces import CiftiSpace, VolumeSpace
from brainweave.study.study import Study
from brainweave.study.subject import Subject
from brainweave.study.surface import SurfaceSpace

logger = logging.getLogger(__name__)

__all__ = ["load_bids"]


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
        as columns; other samples are cleaned of them.
    scrub : float, optional
        Leave out volumes with a framewise displacement above so many mm.
    events : EventRules, optional
        Which labels are no category, which of several events a volume shows, and how
        stimuli are named.
    sampling : Sampling, optional
        The repetition time, the delay of responses, and whether rest is kept.
    cleaning : Cleaning, optional
        Trends, filters, scaling and smoothing. With trials, `high_pass` is the cut-off
        of the models' drift terms, 1/128 Hz by default.
    dtype : dtype, default=float32
        Of the samples.
    name : str, optional
        Name of the study, by default that of the folder.
    **details
        Fields of `events`, `sampling` and `cleaning` by their names, such as
        ``ignore="rest"``, ``keep_rest=True`` or ``smoothing_fwhm=6``.

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
        its own); events lie outside their run; volumes lie under several events.
    """
    check_samples(samples)
    events, sampling, cleaning = gathered(
        "load_bids",
        details,
        EventRules() if events is None else events,
        Sampling() if sampling is None else sampling,
        Cleaning() if cleaning is None else cleaning,
    )
    if scrub is not None and not scrub > 0:
        raise InputError(f"scrub={scrub} must be a displacement above zero, in mm.")
    if label is None and samples != "volumes":
        raise InputError(f"samples={samples!r} needs events: give label=...")
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
    is_trials = samples.startswith("trials")
    how = replace(cleaning, high_pass=None) if is_trials else cleaning
    reader = _Reader(
        dataset,
        label=label,
        stimulus=stimulus,
        ignore=tuple(events.ignore),
        confounds=confounds,
        scrub=scrub,
        t_r=sampling.t_r,
        options={
            "samples": samples,
            "hrf_delay": sampling.hrf_delay,
            "keep_rest": sampling.keep_rest or label is None,
            "name_moments": events.moments,
            "hrf_model": sampling.hrf_model,
            "high_pass": cleaning.high_pass or DRIFT_CUTOFF,
            "max_gap": sampling.max_gap,
            "overlap": events.overlap,
        },
    )
    tables = {id: _with_events(id, listed, reader) for id, listed in found.items()}
    with_events = {id: [run for run, _ in listed] for id, listed in tables.items()}
    tables = {id: listed for id, listed in tables.items() if listed}
    if not tables:
        raise StudyError(
            f"No run in {str(dataset.images)!r} has an events file. Check the raw "
            f"dataset {str(dataset.raw)!r}, or use label=None."
        )
    spaces = _find_spaces(dataset, tables, mask, resample_mask)
    subjects_read = []
    planned_runs: dict[str, list[PlannedRun]] = {}
    repetition_times: dict[float, str] = {}
    for id, listed in tables.items():
        planned = [reader.plan(run, events, spaces[id]) for run, events in listed]
        for p in planned:
            repetition_times.setdefault(round(p.tr, 4), p.run.path.name)
        planned_runs[id] = planned
        subjects_read.append(_make_subject(id, planned, spaces[id], how, dtype))
    if len(repetition_times) > 1:
        listing = ", ".join(f"{t:g} s ({f})" for t, f in repetition_times.items())
        warnings.warn(
            f"Repetition times differ: {listing}. Every run keeps its own; samples of "
            "methods that are locked in time would not correspond.",
            UserWarning,
            stacklevel=2,
        )
    _log_missing_runs(planned_runs)
    counts = [
        (p.run.path.name, p.plan.counts) for ps in planned_runs.values() for p in ps
    ]
    for message in describe_losses(counts, events.overlap):
        warnings.warn(message, UserWarning, stacklevel=2)
    record = make_record(
        subjects_read,
        planned_runs,
        without_events={
            id: [run.path.name for run in listed if run not in with_events[id]]
            for id, listed in found.items()
        },
        settings={
            "source": "bids",
            "task": task,
            "space": space,
            "preprocessed": dataset.preprocessed,
            "confounds": confounds,
            "mask": mask,
            "label": label,
            "ignore": events.ignore,
            "scrub": scrub,
            "dtype": np.dtype(dtype).name,
            **asdict(how),
            **reader.options,
            # of the models of trials; other samples are filtered only on demand
            "high_pass": reader.options["high_pass"] if is_trials else how.high_pass,
        },
    )
    study_name = Path(folder).resolve().name if name is None else name
    return Study(subjects_read, study_name, record)


@dataclass(frozen=True)
class _Reader:
    """What is to be read of each run."""

    dataset: Dataset
    label: str | None
    stimulus: str | None
    ignore: tuple[str, ...]
    confounds: Any
    scrub: float | None
    t_r: float | None
    options: dict[str, Any]

    def events(self, run: BidsRun) -> Events | None:
        """Read the events of a run; None if there is no file."""
        if self.label is None:
            return Events.from_rows([])
        files = inherited(self.dataset.raw, run, "events", ".tsv")
        if not files:
            return None
        return read_events(
            files[0], label=self.label, stimulus=self.stimulus, ignore=self.ignore
        )

    def plan(self, run: BidsRun, events: Events, space: Any) -> PlannedRun:
        """Plan the samples of a run, from headers and tables alone."""
        header = _header(space, run)
        tr = self.t_r
        if tr is None:
            stated, where = repetition_time(self.dataset, run)
            tr = agreed_tr(stated, where, header, run.path)
        removed = self._confounds(run)
        is_trials = self.options["samples"].startswith("trials")
        try:
            plan = plan_samples(
                events,
                header.n_samples,
                tr,
                kept_volumes=removed.kept,
                confounds=removed.columns if is_trials else None,
                **self.options,
            )
        except StudyError as error:
            raise StudyError(f"{str(run.path)!r}: {error}") from error
        source = Run(
            run.image,
            confounds=None if is_trials else removed.columns,
            sample_mask=removed.kept,
            t_r=tr,
            plan=plan,
        )
        if self.label is None and self.options["name_moments"]:
            moments = [f"run-{run.run}@{onset:.2f}" for onset in plan.onsets]
            stimuli = np.array(moments, dtype=np.str_)
            plan = replace(plan, stimuli=stimuli)
        n_scrubbed = 0 if removed.kept is None else header.n_samples - len(removed.kept)
        return PlannedRun(
            run, source, plan, tr, header.n_samples, n_scrubbed, removed.names
        )

    def _confounds(self, run: BidsRun) -> RunConfounds:
        tables = inherited(
            self.dataset.images, run, "desc-confounds_timeseries", ".tsv"
        )
        return read_fmriprep_confounds(
            run.path,
            tables[0] if tables else None,
            confounds=self.confounds,
            scrub=self.scrub,
        )


def _with_events(
    id: str, runs: list[BidsRun], reader: _Reader
) -> list[tuple[BidsRun, Events]]:
    kept = []
    for run in runs:
        events = reader.events(run)
        if events is None:
            warnings.warn(
                f"Subject {id!r}: {run.path.name} has no events file and is left out.",
                UserWarning,
                stacklevel=3,
            )
        else:
            kept.append((run, events))
    return kept


def _log_missing_runs(planned: Mapping[str, list[PlannedRun]]) -> None:
    """Say which subjects lack runs that others have."""
    own = {id: [p.run.run for p in listed] for id, listed in planned.items()}
    every = dict.fromkeys(run for runs in own.values() for run in runs)
    for id, runs in own.items():
        missing = [str(run) for run in every if run not in runs]
        if missing:
            logger.info("Subject %s lacks the runs %s", id, ", ".join(missing))


def _header(space: Any, run: BidsRun) -> Any:
    try:
        return space.header(run.image)
    except StudyError as error:
        raise StudyError(f"Subject {run.entities['sub']!r}: {error}") from error


def _make_subject(
    id: str, planned: list[PlannedRun], space: Any, how: Cleaning, dtype: Any
) -> Subject:
    plans = [p.plan for p in planned]
    names = [p.run.run for p in planned]
    run_of: NDArray[Any] = np.array(
        names if len(set(map(type, names))) == 1 else [str(n) for n in names]
    )
    source = ImageSource([p.source for p in planned], space, how, dtype)
    if source.shape[0] == 0:
        raise StudyError(
            f"Subject {id!r} has no samples: its events lie outside of its runs, or "
            "all are ignored or scrubbed. Check the onsets, the labels and scrub."
        )
    return Subject(
        id,
        source,
        labels=np.concatenate([plan.labels for plan in plans]),
        runs=np.repeat(run_of, [len(plan) for plan in plans]),
        onsets=np.concatenate([plan.onsets for plan in plans]),
        stimuli=np.concatenate([plan.stimuli for plan in plans]),
        space=space,
    )


def _find_spaces(
    dataset: Dataset,
    found: Mapping[str, list[tuple[BidsRun, Events]]],
    mask: Any,
    resample: bool,
) -> dict[str, Any]:
    runs = {id: [run for run, _ in listed] for id, listed in found.items()}
    kinds = {run.kind for listed in runs.values() for run in listed}
    if len(kinds) > 1:
        raise StudyError(
            f"The images are of several kinds: {', '.join(sorted(kinds))}."
        )
    kind = kinds.pop()
    if kind == "cifti":
        return {id: CiftiSpace(listed[0].image) for id, listed in runs.items()}
    if kind == "surface":
        return {
            id: SurfaceSpace.from_run(listed[0].image, mask)
            for id, listed in runs.items()
        }
    if isinstance(mask, Mapping):
        mask = {str(key).removeprefix("sub-"): value for key, value in mask.items()}
        missing = [id for id in runs if id not in mask]
        if missing:
            raise InputError(
                f"mask has no entry for subject {missing[0]!r}; it has "
                f"{', '.join(map(repr, mask))}."
            )
        return {
            id: _given_mask(mask[id], listed, resample) for id, listed in runs.items()
        }
    if mask is None or (isinstance(mask, str) and mask in ("epi", "common")):
        if mask == "epi" or (mask is None and not dataset.preprocessed):
            return {
                id: VolumeSpace(epi_mask([run.image for run in listed]))
                for id, listed in runs.items()
            }
        own = {id: _brain_mask(dataset, id, listed) for id, listed in runs.items()}
        return own if mask is None else _common(own)
    return {id: _given_mask(mask, listed, resample) for id, listed in runs.items()}


def _given_mask(mask: Any, runs: list[BidsRun], resample: bool) -> VolumeSpace:
    return VolumeSpace(mask_on_grid(mask, runs[0].image) if resample else mask)


def _brain_mask(dataset: Dataset, id: str, runs: list[BidsRun]) -> VolumeSpace:
    """Voxels in fMRIPrep's masks of all runs of a subject."""
    inside: VolumeSpace | None = None
    for run in runs:
        files = inherited(dataset.images, run, "desc-brain_mask", ".nii.gz")
        files = [f for f in files if ("space-" in f.name) == ("space" in run.entities)]
        if not files:
            raise StudyError(
                f"{str(run.path)!r} has no brain mask (*_desc-brain_mask.nii.gz) "
                'beside it. Give mask=..., or mask="epi" to compute one.'
            )
        here = VolumeSpace(files[0])
        inside = here if inside is None else _intersection(inside, here, id)
    if inside is None:
        raise StudyError(f"Subject {id!r} has no runs.")
    return inside


def _common(spaces: dict[str, VolumeSpace]) -> dict[str, Any]:
    shared: VolumeSpace | None = None
    for id, space in spaces.items():
        shared = space if shared is None else _intersection(shared, space, id)
    return dict.fromkeys(spaces, shared)


def _intersection(first: VolumeSpace, second: VolumeSpace, id: str) -> VolumeSpace:
    import nibabel as nib

    if first == second:
        return first
    same_grid = first.mask.shape == second.mask.shape and np.allclose(
        first.affine, second.affine, rtol=0, atol=1e-3
    )
    if not same_grid:
        raise StudyError(
            f"Subject {id!r}: brain masks are on different grids ({first.mask.shape} "
            f"and {second.mask.shape}). Read one session or space at a time, or give a "
            "mask with resample_mask=True."
        )
    both = (first.mask & second.mask).astype(np.uint8)
    return VolumeSpace(nib.Nifti1Image(both, first.affine))
