"""Runs of subjects, read and cleaned (by nilearn) when needed, and studies of them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, Literal

import numpy as np

from brainweave._core.arrays import Codes, Floats, Matrix
from brainweave._core.exceptions import InputError, StudyError, warn_user
from brainweave._core.labels import object_array
from brainweave._core.validation import check_option, format_list
from brainweave.study.formats.events import (
    DRIFT_CUTOFF,
    ROOM,
    Events,
    Sampling,
    drift_columns,
    plan_samples,
    standardized,
)
from brainweave.study.provenance import make_record, run_record
from brainweave.study.spaces import ImageLike, finite_voxels, image_name
from brainweave.study.study import Study
from brainweave.study.subject import Subject

_CLEANED_BYTES = 2**18  # of voxels that are cleaned at a time


@dataclass(frozen=True)
class Cleaning:
    """Settings for cleaning the time course of each voxel, run by run.

    Parameters
    ----------
    standardize : {None, "zscore", "psc"}, default=None
        Scale each voxel over the run, to unit variance or percent signal change.
    high_pass : float, "auto" or None, default="auto"
        Cut-off in Hz of the drifts to remove: cosines, as in SPM and fMRIPrep, fitted
        together with the confounds. ``"auto"`` is 1/128 Hz where the repetition time
        is known and the confounds hold no cosines of fMRIPrep; None leaves them in.
    smoothing_fwhm : float, optional
        Spatial smoothing in mm, for volumes only.

    Notes
    -----
    Confounds and drifts are removed before voxels are standardised. Where events (or
    the labels of all volumes) are known, both are fitted together with a level for each
    event, so that what responses and drifts have in common stays; but only if that
    takes at most two fifths of a run's degrees of freedom.
    """

    standardize: Literal["zscore", "psc"] | None = None
    high_pass: float | Literal["auto"] | None = "auto"
    smoothing_fwhm: float | None = None

    def __post_init__(self) -> None:
        if self.standardize is not None:
            known = ("zscore", "psc")
            check_option("standardize", self.standardize, known, owner="Cleaning")
        sizes = {"high_pass": self.high_pass, "smoothing_fwhm": self.smoothing_fwhm}
        for name, value in sizes.items():
            if (name, value) == ("high_pass", "auto") or value is None:
                continue
            if isinstance(value, str) or not value > 0:
                raise InputError(f"{name} must be above zero, got {value!r}.")


def _remove_confounds(
    values: Floats, confounds: Floats, levels: Codes, used: Codes
) -> Floats:
    """Subtract confounds, fitted to the volumes used with a mean for each level."""
    constants = levels[:, None] == np.unique(levels)
    columns = standardized(confounds)
    model = np.hstack([constants, columns]).astype(np.float64)[used]
    weights = np.linalg.pinv(model, rcond=1e-8)[-columns.shape[1] :]
    cleaned = np.empty_like(values)
    step = max(1, _CLEANED_BYTES // (8 * len(values)))
    for start in range(0, values.shape[1], step):  # float64 needs memory
        part = values[:, start : start + step].astype(np.float64)
        fitted = weights @ (part - part.mean(axis=0))[used]
        cleaned[:, start : start + step] = part - columns @ fitted
    return cleaned


@dataclass(frozen=True)
class Run:
    """One run of one subject, and what samples its volumes give.

    Parameters
    ----------
    image : path or nibabel image
        4-D NIfTI, CIFTI dtseries or dscalar, functional GIfTI (or a mapping of
        structure to GIfTI, for two hemispheres).
    confounds : array-like or DataFrame, optional
        Time courses to remove, a row per volume. Missing values in the first row, where
        derivatives have none, become zero.
    sample_mask : array-like of int, optional
        Volumes that take part in the cleaning and become samples (scrubbing); all by
        default.
    t_r : float, optional
        Repetition time in seconds; by default what the header says.
    plan, levels, header : various
        What the loaders know of events and of the image's header.
    """

    image: ImageLike
    confounds: Any = None
    sample_mask: Any = None
    t_r: float | None = None
    plan: Any = None
    levels: Any = None
    header: Any = None

    @property
    def name(self) -> str:
        """Name for messages: the path of the image."""
        return image_name(self.image)

    def opened(self, space: Any) -> Run:
        """Return the run with its header, which is read unless it is known."""
        return self if self.header else replace(self, header=space.header(self.image))

    @property
    def repetition_time(self) -> float | None:
        """Seconds from volume to volume: as given, or else as the header says."""
        return self.header.t_r if self.t_r is None else self.t_r

    @property
    def n_samples(self) -> int:
        """Number of samples that the run gives."""
        return len(self.used() if self.plan is None else self.plan)

    def cutoff(self, high_pass: Any) -> float | None:
        """Return the cut-off of the drifts to remove, in Hz; None for none."""
        t_r = self.repetition_time
        if high_pass is None:
            return None
        if high_pass == "auto":
            # a repetition time of 1 that nobody wrote is not known
            guessed = self.t_r is None and self.header.t_r_is_default
            names = getattr(self.confounds, "columns", ())
            has_cosines = any(str(name).startswith("cosine") for name in names)
            known = t_r is not None and 0.5 / t_r > DRIFT_CUTOFF
            return DRIFT_CUTOFF if known and not (guessed or has_cosines) else None
        if t_r is None or high_pass >= 0.5 / t_r:
            rate = "unknown; give t_r" if t_r is None else f"{0.5 / t_r:.3g} Hz"
            raise InputError(
                f"high_pass={high_pass} Hz must be below half the sampling rate of "
                f"{self.name!r}, which is {rate}."
            )
        return float(high_pass)

    def onsets(self) -> Floats | None:
        """Return the time of each sample in seconds, if the TR is known."""
        if self.plan is not None:
            return np.asarray(self.plan.onsets)
        t_r = self.repetition_time
        return None if t_r is None else self.used() * float(t_r)

    def used(self) -> Codes:
        """Return the volumes that take part in the cleaning, in order."""
        every = np.arange(self.header.n_samples)
        if self.sample_mask is None:
            return every
        chosen = np.asarray(self.sample_mask)
        try:
            return np.unique(every[chosen if chosen.size else []])
        except IndexError as error:
            raise InputError(
                f"{self.name!r}: sample_mask does not fit: {error}."
            ) from None


def read_run(run: Run, space: Any, cleaning: Cleaning) -> Floats:
    """Read one opened run into samples x voxels: mask, clean, make samples."""
    values = space.read(run.image, smoothing_fwhm=cleaning.smoothing_fwhm)
    n_volumes, used = run.header.n_samples, run.used()
    if len(values) != n_volumes:
        raise StudyError(
            f"{run.name!r} gave {len(values)} volumes where its header announced "
            f"{n_volumes}. It has changed: load the study again."
        )
    if used.size == 0:
        raise InputError(f"{run.name!r}: sample_mask leaves no volume at all.")
    if values.dtype.kind != "f":
        values = values.astype(np.float32)
    finite = finite_voxels(values, run.name)
    if not finite.all():
        raise StudyError(
            f"{run.name!r}: {(~finite).sum()} of {values.shape[1]} voxels in the mask "
            "are NaN or infinite. Use a tighter mask."
        )
    columns = columns_to_remove(run, run.cutoff(cleaning.high_pass))
    if columns.shape[1]:
        levels = np.zeros(n_volumes, np.intp)
        if run.levels is not None:
            known = np.asarray(run.levels)
            n_fitted = len(np.unique(known[used])) + columns.shape[1]
            levels = known if n_fitted <= ROOM * len(used) else levels
        values = _remove_confounds(values, columns, levels, used)
    values = values if len(used) == n_volumes else values[used]
    if cleaning.standardize is not None:
        from nilearn.signal import clean  # slow to import, and seldom needed

        is_zscore = cleaning.standardize == "zscore"
        scale = "zscore_sample" if is_zscore else cleaning.standardize
        values = clean(values, detrend=False, standardize=scale, filter=False)
    if run.plan is None:
        return np.asarray(values)
    if len(used) < n_volumes:
        whole = np.zeros((n_volumes, values.shape[1]), values.dtype)
        whole[used] = values
        values = whole
    return np.asarray(run.plan.apply(values))


def columns_to_remove(run: Run, cutoff: float | None) -> Matrix:
    """Return the confounds of an opened run, and the drifts below a cut-off in Hz."""
    n_volumes, confounds = run.header.n_samples, run.confounds
    name = f"{run.name!r}: its confounds"
    if confounds is None:
        confounds = np.empty((n_volumes, 0))
    try:
        values = np.array(confounds, dtype=np.float64)
    except (TypeError, ValueError) as error:
        raise StudyError(f"{name} are not all numbers ({error}).") from None
    if values.ndim == 1:
        values = values[:, None]
    if values.ndim != 2 or len(values) != n_volumes:
        raise StudyError(
            f"{name} have shape {values.shape}. Give one row for each of its "
            f"{n_volumes} volumes."
        )
    first = values[:1]
    first[np.isnan(first)] = 0.0  # derivatives have no first value
    if not np.isfinite(values).all():
        row, column = np.argwhere(~np.isfinite(values))[0]
        which = getattr(confounds, "columns", range(values.shape[1]))[column]
        raise StudyError(
            f"{name}: {which!r} is {values[row, column]:g} in row {row + 1}. Fill it, "
            "or choose other columns."
        )
    if cutoff is not None and run.repetition_time is not None:
        drifts = drift_columns(n_volumes, run.repetition_time, cutoff)
        values = np.hstack([values, drifts])
    return values


class ImageSource:
    """The runs of one subject; at first only their headers are read."""

    def __init__(
        self,
        runs: Sequence[Run],
        space: Any,
        cleaning: Any = None,
        dtype: Any = np.float32,
    ) -> None:
        self.runs = [run.opened(space) for run in runs]
        self.space, self.cleaning = space, cleaning or Cleaning()
        self.dtype: np.dtype[Any] = np.dtype(dtype)
        self.shape = sum(run.n_samples for run in self.runs), int(space.n_voxels)

    def read(self) -> Floats:
        """Read and clean all runs."""
        samples = np.empty(self.shape, self.dtype)
        ends = np.cumsum([run.n_samples for run in self.runs])
        for run, part in zip(self.runs, np.split(samples, ends[:-1]), strict=True):
            part[:] = read_run(run, self.space, self.cleaning)
        return samples

    def onsets(self) -> Matrix | None:
        """Return the time of each sample in its run, if all are known."""
        known = [times for run in self.runs if (times := run.onsets()) is not None]
        return np.concatenate(known) if len(known) == len(self.runs) else None


def plan_run(
    run: Run, events: Events, samples: str, sampling: Sampling, high_pass: Any
) -> Run:
    """Return an opened run, whose repetition time is known, with a plan of samples."""
    cutoff, is_trials = run.cutoff(high_pass), samples == "trials"
    n_confounds = columns_to_remove(run, None).shape[1]
    confounds = columns_to_remove(run, None if is_trials else cutoff)
    try:
        plan = plan_samples(
            events,
            run.header.n_samples,
            float(run.t_r or 0),
            samples=samples,
            sampling=sampling,
            kept_volumes=run.used(),
            confounds=confounds,
            high_pass=cutoff if is_trials else None,
        )
    except StudyError as error:
        raise StudyError(f"{run.name!r}: {error}") from error
    plan.counts.update(confounds=n_confounds, high_pass=cutoff)
    return replace(
        run,
        confounds=None if is_trials else confounds,
        levels=plan.volume_event if plan.counts.get("levels") else None,
        plan=plan,
    )


_PROBLEMS = {
    "outside": "events lie before or after their run and have no sample (check their "
    "onsets)",
    "shared_volumes": "volumes lie under events of more than one category, and have "
    "the label of the event that covers most of them (ignore=... leaves events out)",
}


def warn_of_runs(runs: Sequence[Run]) -> None:
    """Warn of events that were lost or share volumes, and of times that differ."""
    times = {round(r.t_r or 0.0, 4): Path(r.name).name for r in reversed(runs)}
    if len(times) > 1:
        listing = ", ".join(f"{t:g} s ({file})" for t, file in times.items())
        warn_user(
            f"Repetition times differ: {listing}. Every run keeps its own; samples of "
            "methods that are locked in time would not correspond."
        )
    for what, problem in _PROBLEMS.items():
        counts = {Path(run.name).name: run.plan.counts.get(what, 0) for run in runs}
        found = [f"{name}: {n}" for name, n in counts.items() if n]
        if found:
            warn_user(f"{sum(counts.values())} {problem}: {format_list(found, 3)}.")


def study_of_runs(
    name: str,
    runs: Mapping[str, Mapping[Any, Run]],
    spaces: Mapping[str, Any],
    cleaning: Cleaning,
    settings: Mapping[str, Any],
    *,
    dtype: Any = np.float32,
    labels: Mapping[str, Mapping[str, Any]] | None = None,
    **more: Any,
) -> Study:
    """Make a lazy study of the runs of each subject, by their names, in its space.

    `labels` are labels and stimuli of each subject, where runs have no plans.
    """
    subjects, records = [], {}
    for id, own_runs in runs.items():
        with errors_name_subject(id):
            source = ImageSource(list(own_runs.values()), spaces[id], cleaning, dtype)
        if source.shape[0] == 0:
            raise StudyError(
                f"Subject {id!r} has no samples: its events lie outside of its runs, "
                "or all are ignored or scrubbed."
            )
        annotations = dict(labels[id]) if labels else {}
        known = annotations.get("labels")
        lengths = [run.header.n_samples for run in source.runs]
        if known is not None and len(known) == sum(lengths):  # of all volumes
            shown = object_array(list(known))
            levels = np.append(False, shown[1:] != shown[:-1]).cumsum()
            parts = np.split(levels, np.cumsum(lengths)[:-1])
            source.runs = [
                run if run.levels is not None else replace(run, levels=part)
                for run, part in zip(source.runs, parts, strict=True)
            ]
        plans = [run.plan for run in source.runs if run.plan is not None]
        if plans:
            annotations["labels"] = np.concatenate([plan.labels for plan in plans])
            annotations["stimuli"] = np.concatenate([plan.stimuli for plan in plans])
        mixed = len(set(map(type, own_runs))) > 1
        names = [str(number) if mixed else number for number in own_runs]
        annotations["runs"] = np.repeat(names, [run.n_samples for run in source.runs])
        annotations["onsets"] = source.onsets()
        subjects.append(Subject(id, source, space=spaces[id], **annotations))
        named_runs = zip(map(str, own_runs), source.runs, strict=True)
        records[id] = {
            number: run_record(run, cleaning.high_pass) for number, run in named_runs
        }
    cutoffs = {run["high_pass"] for own in records.values() for run in own.values()}
    high_pass = max((c for c in cutoffs if c is not None), default=None)
    settings = {**settings, "high_pass": high_pass}
    settings = {**asdict(cleaning), "dtype": np.dtype(dtype).name, **settings}
    return Study(subjects, name, make_record(settings, subjects, records, **more))


@contextmanager
def errors_name_subject(id: str) -> Iterator[None]:
    """Begin the text of errors with the subject whose data they are about."""
    try:
        yield
    except (StudyError, InputError) as error:
        raise type(error)(f"Subject {id!r}: {error}") from error
