"""Runs of subjects, read and cleaned (by nilearn) when needed, and studies of them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from os import PathLike
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from brainweave._core.exceptions import InputError, StudyError, warn_user
from brainweave._core.labels import object_array
from brainweave._core.validation import check_option, format_list
from brainweave.study.formats.events import (
    DRIFT_CUTOFF,
    ROOM,
    EventRules,
    Events,
    Sampling,
    drift_columns,
    plan_samples,
    standardized,
)
from brainweave.study.provenance import make_record, run_record
from brainweave.study.spaces import (
    ImageLike,
    finite_voxels,
    image_name,
    read_table,
)
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
    nan : {"error", "zero"}, default="error"
        What to do if a voxel inside the mask is not finite at some time: refuse the
        run, or set that voxel to zero throughout the run.

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
    nan: Literal["error", "zero"] = "error"

    def __post_init__(self) -> None:
        if self.standardize is not None:
            known = ("zscore", "psc")
            check_option("standardize", self.standardize, known, owner="Cleaning")
        check_option("nan", self.nan, ("error", "zero"), owner="Cleaning")
        sizes = {"high_pass": self.high_pass, "smoothing_fwhm": self.smoothing_fwhm}
        for name, value in sizes.items():
            if (name, value) == ("high_pass", "auto") or value is None:
                continue
            if isinstance(value, str) or not value > 0:
                raise InputError(f"{name} must be above zero, got {value!r}.")


def _remove_confounds(
    values: NDArray[Any],
    confounds: NDArray[Any],
    levels: NDArray[np.intp],
    used: NDArray[np.intp],
) -> NDArray[Any]:
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
    confounds : array-like, DataFrame or path, optional
        Time courses to remove, a row per volume. A path is a table with a header
        (``.tsv``, ``.csv``), or bare columns of numbers (anything else). Missing values
        in the first row, where derivatives have none, become zero.
    sample_mask : array-like of int, optional
        Volumes that take part in the cleaning and become samples (scrubbing); all by
        default.
    t_r : float, optional
        Repetition time in seconds; by default what the header says.
    plan : SamplePlan, optional
        Turns the cleaned volumes into other samples (blocks, trials): anything with a
        length and ``apply(volumes)``, which gets an array with a row per volume of the
        whole run (zeros where `sample_mask` leaves one out).
    levels : array-like of int, optional
        The event of each volume: confounds are fitted with a level for each of them.
    header : RunHeader, optional
        What the image's header says, where it was read already.
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
        """Return the cut-off of the drifts to remove, in Hz.

        A repetition time of 1 that nobody wrote into the header is not known.
        """
        t_r = self.repetition_time
        if high_pass is None:
            return None
        if high_pass == "auto":
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

    def onsets(self) -> NDArray[Any] | None:
        """Return the time of each sample in seconds, if the TR is known."""
        if self.plan is not None:
            return np.asarray(self.plan.onsets)
        t_r = self.repetition_time
        return None if t_r is None else self.used() * float(t_r)

    def used(self) -> NDArray[np.intp]:
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


def read_run(
    run: Run | ImageLike, space: Any, cleaning: Cleaning | None = None
) -> NDArray[Any]:
    """Read one run into samples x voxels: mask, clean, make samples."""
    run = run if isinstance(run, Run) else Run(run)
    run = run.opened(space)
    cleaning = Cleaning() if cleaning is None else cleaning
    values = space.read(run.image, smoothing_fwhm=cleaning.smoothing_fwhm)
    if len(values) != run.header.n_samples:
        raise StudyError(
            f"{run.name!r} gave {len(values)} volumes where its header announced "
            f"{run.header.n_samples}. It has changed: load the study again."
        )
    if values.dtype.kind != "f":
        values = values.astype(np.float32)
    cleaned = _clean_run(run, values, cleaning)
    if run.plan is not None:
        return np.asarray(run.plan.apply(cleaned))
    used = run.used()
    return cleaned if len(used) == len(cleaned) else np.asarray(cleaned[used])


def _clean_run(run: Run, values: NDArray[Any], cleaning: Cleaning) -> NDArray[Any]:
    """Clean the volumes of `sample_mask`; the others become zero."""
    n_volumes, used = len(values), run.used()
    if used.size == 0:
        raise InputError(f"{run.name!r}: sample_mask leaves no volume at all.")
    finite = finite_voxels(values, run.name)
    if not finite.all():
        if cleaning.nan == "error":
            raise StudyError(
                f"{run.name!r}: {(~finite).sum()} of {values.shape[1]} voxels in the "
                'mask are NaN or infinite. Use a tighter mask, or nan="zero" to set '
                "them to zero."
            )
        values = np.where(finite, values, values.dtype.type(0))
    confounds = confound_columns(run.confounds, n_volumes, run.name)
    cutoff = run.cutoff(cleaning.high_pass)
    columns = with_drifts(confounds, n_volumes, run.repetition_time, cutoff)
    if columns is not None:
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
    if len(used) == n_volumes:
        return np.asarray(values)
    cleaned = np.zeros((n_volumes, values.shape[1]), values.dtype)
    cleaned[used] = values
    return cleaned


def with_drifts(
    confounds: NDArray[np.float64] | None,
    n_volumes: int,
    t_r: float | None,
    cutoff: float | None,
) -> NDArray[np.float64] | None:
    """Return the columns to remove: confounds and drifts; None if there are none."""
    columns = [] if confounds is None else [confounds]
    if cutoff is not None and t_r is not None:
        columns.append(drift_columns(n_volumes, t_r, cutoff))
    table = np.hstack(columns) if columns else np.empty((n_volumes, 0))
    return table if table.shape[1] else None


def confound_columns(
    confounds: Any, n_volumes: int, name: str
) -> NDArray[np.float64] | None:
    """Return the confounds of one run as an array, from an array, a table or a file."""
    if confounds is None:
        return None
    source = "its confounds"
    if isinstance(confounds, str | PathLike):
        source = f"its confounds {str(confounds)!r}"
        separators = {".tsv": "\t", ".csv": ","}
        separator = separators.get(Path(confounds).suffix)
        header = None if separator is None else 0
        confounds = read_table(Path(confounds), separator or r"\s+", header=header)
    try:
        values = np.array(confounds, dtype=np.float64)
    except (TypeError, ValueError) as error:
        raise StudyError(f"{name!r}: {source} are not all numbers ({error}).") from None
    if values.ndim == 1:
        values = values[:, None]
    if values.ndim != 2 or len(values) != n_volumes:
        raise StudyError(
            f"{name!r} has {n_volumes} volumes, but {source} have shape "
            f"{values.shape}. Give one row per volume."
        )
    first = values[:1]
    first[np.isnan(first)] = 0.0  # derivatives have no first value
    if not np.isfinite(values).all():
        row, column = np.argwhere(~np.isfinite(values))[0]
        which = getattr(confounds, "columns", range(values.shape[1]))[column]
        raise StudyError(
            f"{name!r}: of {source}, {which!r} is {values[row, column]:g} in row "
            f"{row + 1}. Fill it, or choose other columns."
        )
    return values


class ImageSource:
    """The runs of one subject, read and cleaned one after the other when needed.

    Only headers are read at first. :meth:`read` needs memory for the samples and for
    one run.

    Parameters
    ----------
    runs : sequence of Run or of paths
        The runs, in the order of the samples.
    space : VolumeSpace, CiftiSpace or SurfaceSpace
        Which voxels to read.
    cleaning : Cleaning, optional
        Applied to each run by itself.
    dtype : dtype, default=float32
        Type of the samples.
    """

    def __init__(
        self,
        runs: Sequence[Run | ImageLike],
        space: Any,
        cleaning: Cleaning | None = None,
        dtype: Any = np.float32,
    ) -> None:
        self.runs = [
            (run if isinstance(run, Run) else Run(run)).opened(space) for run in runs
        ]
        self.space, self.cleaning = space, cleaning
        self.dtype: np.dtype[Any] = np.dtype(dtype)
        if not self.runs:
            raise StudyError("A source of samples needs at least one run, got none.")
        self.shape = sum(run.n_samples for run in self.runs), int(space.n_voxels)

    def read(self) -> NDArray[Any]:
        """Read and clean all runs."""
        samples = np.empty(self.shape, self.dtype)
        ends = np.cumsum([run.n_samples for run in self.runs])
        for run, part in zip(self.runs, np.split(samples, ends[:-1]), strict=True):
            part[:] = read_run(run, self.space, self.cleaning)
        return samples

    def onsets(self) -> NDArray[np.float64] | None:
        """Return the time of each sample in its run, if all are known."""
        known = [times for run in self.runs if (times := run.onsets()) is not None]
        return np.concatenate(known) if len(known) == len(self.runs) else None

    def __repr__(self) -> str:
        return f"ImageSource({len(self.runs)} runs in {self.space!r})"


def plan_run(
    run: Run,
    events: Events,
    *,
    samples: str,
    rules: EventRules,
    sampling: Sampling,
    high_pass: Any,
    unsteady: int = 0,
) -> Run:
    """Return an opened run, whose repetition time is known, with a plan of its samples.

    Confounds become columns of trial models; other samples are cleaned of them when
    they are read.
    """
    n_volumes, cutoff = run.header.n_samples, run.cutoff(high_pass)
    confounds = confound_columns(run.confounds, n_volumes, run.name)
    n_confounds = 0 if confounds is None else confounds.shape[1]
    is_trials = samples.startswith("trials")
    if not is_trials:
        confounds = with_drifts(confounds, n_volumes, run.t_r, cutoff)
    try:
        plan = plan_samples(
            events,
            n_volumes,
            float(run.t_r or 0),
            samples=samples,
            rules=rules,
            sampling=sampling,
            kept_volumes=run.used(),
            confounds=confounds,
            high_pass=cutoff if is_trials else None,
        )
    except StudyError as error:
        raise StudyError(f"{run.name!r}: {error}") from error
    counts = replace(
        plan.counts, confounds=n_confounds, high_pass=cutoff, unsteady=unsteady
    )
    return replace(
        run,
        confounds=None if is_trials else confounds,
        levels=None if is_trials or not counts.levels else plan.volume_event,
        plan=replace(plan, counts=counts),
    )


def warn_of_runs(runs: Mapping[str, Run]) -> None:
    """Warn of events that were lost or share volumes, and of times that differ."""
    counts = {name: run.plan.counts for name, run in runs.items()}
    by_name = list(runs.items())
    times = {round(run.t_r or 0.0, 4): name for name, run in reversed(by_name)}
    if len(times) > 1:
        listing = ", ".join(f"{t:g} s ({file})" for t, file in times.items())
        warn_user(
            f"Repetition times differ: {listing}. Every run keeps its own; samples of "
            "methods that are locked in time would not correspond.",
            UserWarning,
        )

    def total(what: str) -> int:
        return sum(getattr(count, what) for count in counts.values())

    def listed(what: str) -> str:
        numbers = {name: getattr(count, what) for name, count in counts.items()}
        return format_list([f"{name}: {n}" for name, n in numbers.items() if n], 3)

    if total("outside"):
        warn_user(
            f"{total('outside')} of {total('events')} events lie before or after "
            f"their run and have no sample: {listed('outside')}. Check their onsets.",
            UserWarning,
        )
    if total("shared_volumes"):
        warn_user(
            f"{total('shared_volumes')} volumes lie under events of more than one "
            f"category ({listed('shared_volumes')}); each has the label of the event "
            f"that covers most of it, and {total('overshadowed')} events have no "
            "volume of their own. Leave events out with ignore=...",
            UserWarning,
        )


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
            listed = list(own_runs.values())
            source = ImageSource(listed, spaces[id], cleaning, dtype)
        if source.shape[0] == 0:
            raise StudyError(
                f"Subject {id!r} has no samples: its events lie outside of its runs, "
                "or all are ignored or scrubbed."
            )
        annotations = dict(labels[id]) if labels else {}
        if annotations.get("labels") is not None:
            source.runs = _with_levels(source.runs, annotations["labels"])
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


def _with_levels(runs: list[Run], labels: Any) -> list[Run]:
    """Return runs with a level for each stretch of one label, if all volumes have."""
    if sum(run.header.n_samples for run in runs) != len(labels):
        return runs
    listed = object_array(list(labels))
    starts = np.append(False, listed[1:] != listed[:-1]).cumsum()
    ends = np.cumsum([run.header.n_samples for run in runs])
    parts = np.split(starts, ends[:-1])
    pairs = zip(runs, parts, strict=True)
    return [r if r.levels is not None else replace(r, levels=p) for r, p in pairs]


@contextmanager
def errors_name_subject(id: str) -> Iterator[None]:
    """Begin the text of errors with the subject whose data they are about."""
    try:
        yield
    except (StudyError, InputError) as error:
        raise type(error)(f"Subject {id!r}: {error}") from error
