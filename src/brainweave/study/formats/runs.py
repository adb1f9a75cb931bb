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
from brainweave._core.validation import check_option
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
    Confounds and drifts are removed before voxels are standardised. Where events are
    known (or the labels of all volumes: neighbours with one label), confounds and
    drifts are fitted together with a level for each event, so that what responses and
    drifts have in common stays; but only if both take at most two fifths of a run's
    degrees of freedom.
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
        for name in ("high_pass", "smoothing_fwhm"):
            value = getattr(self, name)
            if (name, value) == ("high_pass", "auto") or value is None:
                continue
            if isinstance(value, str) or not value > 0:
                raise InputError(f"{name} must be above zero, got {value!r}.")

    def apply(
        self,
        values: NDArray[Any],
        *,
        name: str,
        confounds: NDArray[Any] | None = None,
        sample_mask: NDArray[np.intp] | None = None,
        levels: NDArray[np.intp] | None = None,
    ) -> NDArray[Any]:
        """Return the volumes of `sample_mask`, cleaned; others are not looked at."""
        finite = finite_voxels(values, name)
        if not finite.all():
            if self.nan == "error":
                raise StudyError(
                    f"{name!r}: {(~finite).sum()} of {values.shape[1]} voxels in the "
                    'mask are NaN or infinite. Use a tighter mask, or nan="zero" to '
                    "set them to zero."
                )
            values = np.where(finite, values, values.dtype.type(0))
        used: Any = slice(None) if sample_mask is None else sample_mask
        if confounds is not None:
            levels = np.zeros(len(values), np.intp) if levels is None else levels
            values = _remove_confounds(values, confounds, levels, used)
        values = values[used]
        if self.standardize is None:
            return values
        from nilearn.signal import clean  # slow to import, and seldom needed

        scale = "zscore_sample" if self.standardize == "zscore" else self.standardize
        return np.asarray(clean(values, detrend=False, standardize=scale, filter=False))


def _remove_confounds(
    values: NDArray[Any],
    confounds: NDArray[Any],
    levels: NDArray[np.intp],
    used: Any,
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
    """One run of one subject, and which of its volumes are samples.

    Parameters
    ----------
    image : path or nibabel image
        4-D NIfTI, CIFTI dtseries or dscalar, functional GIfTI (or a mapping of
        structure to GIfTI, for two hemispheres).
    confounds : array-like, DataFrame or path, optional
        Time courses to remove, a row per volume. A path is read as tab-separated with
        a header (``.tsv``), comma-separated with a header (``.csv``), or as bare
        columns of numbers (anything else, such as motion parameters). Missing values
        in the first row, where derivatives have none, become zero.
    sample_mask : array-like of int, optional
        Volumes that take part in the cleaning (scrubbing); all by default.
    keep : array-like of int, optional
        Volumes that become samples, in the order wanted, counted in the whole run;
        they are picked after the cleaning. All (of `sample_mask`) by default.
    t_r : float, optional
        Repetition time in seconds; by default what the header says.
    plan : SamplePlan, optional
        Turns the cleaned volumes into samples (blocks, trials), instead of `keep`:
        anything with a length and ``apply(volumes)``, which gets an array with a row
        per volume of the whole run (zeros where `sample_mask` leaves one out).
    segments : array-like of int, optional
        If the file holds several runs one after the other: the run of each volume;
        they are cleaned separately.
    levels : array-like of int, optional
        The event of each volume: confounds are fitted with a level for each of them.
    header : RunHeader, optional
        What the image's header says, where it was read already.
    """

    image: ImageLike
    confounds: Any = None
    sample_mask: Any = None
    keep: Any = None
    t_r: float | None = None
    plan: Any = None
    segments: Any = None
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
        return len(self.rows() if self.plan is None else self.plan)

    def cutoff(self, high_pass: Any) -> float | None:
        """Return the cut-off of the drifts to remove, in Hz.

        A repetition time of 1 that nobody wrote into the header is not known.
        """
        guessed = self.t_r is None and self.header.t_r_is_default
        is_auto = isinstance(high_pass, str)
        has_cosines = any(
            str(name).startswith("cosine")
            for name in getattr(self.confounds, "columns", ())
        )
        t_r = self.repetition_time
        if high_pass is None or (is_auto and (guessed or has_cosines)):
            return None
        if is_auto:
            known = t_r is not None and 0.5 / t_r > DRIFT_CUTOFF
            return DRIFT_CUTOFF if known else None
        if t_r is None:
            raise InputError(
                f"{self.name!r} states no repetition time, which filtering needs. Give "
                "t_r."
            )
        if high_pass >= 0.5 / t_r:
            raise InputError(
                f"high_pass={high_pass} Hz is not below half the sampling rate of "
                f"{self.name!r}, {0.5 / t_r:.3g} Hz (repetition time {t_r:g} s)."
            )
        return float(high_pass)

    def onsets(self) -> NDArray[Any] | None:
        """Return the time of each sample in seconds, if the TR is known."""
        if self.plan is not None:
            return np.asarray(self.plan.onsets)
        t_r = self.repetition_time
        return None if t_r is None else self.rows() * float(t_r)

    def rows(self) -> NDArray[np.intp]:
        """Return the volumes that become samples, counted in the whole run."""
        used = self.used()
        if self.keep is None:
            return used
        keep = self._check_volumes("keep")
        lost = np.setdiff1d(keep, used)
        if lost.size:
            raise InputError(
                f"{self.name!r}: volume {lost[0]} is to be kept but sample_mask leaves "
                "it out."
            )
        return keep

    def used(self) -> NDArray[np.intp]:
        """Return the volumes that take part in the cleaning, in order."""
        return np.unique(self._check_volumes("sample_mask"))

    def _check_volumes(self, what: str) -> NDArray[np.intp]:
        """Return `keep` or `sample_mask` as numbers of volumes; all if it is None."""
        chosen, n_volumes = getattr(self, what), self.header.n_samples
        array = np.arange(n_volumes) if chosen is None else np.asarray(chosen).ravel()
        if array.dtype == bool:
            if len(array) != n_volumes:
                raise InputError(
                    f"{self.name!r} has {n_volumes} volumes, but {what} has shape "
                    f"{array.shape}."
                )
            return np.flatnonzero(array)
        array = array.astype(np.intp)
        bad = array[(array < 0) | (array >= n_volumes)]
        if bad.size:
            raise InputError(
                f"{self.name!r} has {n_volumes} volumes; {what} asks for volume "
                f"{bad[0]}."
            )
        return array


def read_run(
    run: Run | ImageLike, space: Any, cleaning: Cleaning | None = None
) -> NDArray[Any]:
    """Read one run into samples x voxels: mask, clean, keep the chosen volumes."""
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
    rows = run.rows()
    if np.array_equal(rows, np.arange(len(cleaned))):
        return cleaned  # the usual case needs no copy
    return np.asarray(cleaned[rows])


def _clean_run(run: Run, values: NDArray[Any], cleaning: Cleaning) -> NDArray[Any]:
    """Clean each segment by itself; volumes outside of `sample_mask` become zero."""
    n_volumes, used = len(values), run.used()
    confounds = confound_columns(run.confounds, n_volumes, run.name)
    segments = np.zeros(n_volumes) if run.segments is None else np.asarray(run.segments)
    if segments.shape != (n_volumes,):
        raise InputError(
            f"{run.name!r} has {n_volumes} volumes, but segments have shape "
            f"{segments.shape}. Give the run of each volume."
        )
    if used.size == 0:
        raise InputError(f"{run.name!r}: sample_mask leaves no volume at all.")
    cleaned: Any = None
    cutoff = run.cutoff(cleaning.high_pass)
    for segment in np.unique(segments[used]):
        rows = np.flatnonzero(segments == segment)
        kept = np.flatnonzero(np.isin(rows, used))
        own = None if confounds is None else confounds[rows]
        columns = with_drifts(own, len(rows), run.repetition_time, cutoff)
        levels = None
        if run.levels is not None and columns is not None:
            own_levels = np.asarray(run.levels)[rows]
            n_fitted = len(np.unique(own_levels[kept])) + columns.shape[1]
            if n_fitted <= ROOM * len(kept):
                levels = own_levels
        part = cleaning.apply(
            values if len(rows) == n_volumes else values[rows],
            name=run.name,
            confounds=columns,
            sample_mask=None if len(kept) == len(rows) else kept,
            levels=levels,
        )
        if len(part) == n_volumes:
            return part
        if cleaned is None:
            cleaned = np.zeros((n_volumes, part.shape[1]), part.dtype)
        cleaned[rows[kept]] = part
    return np.asarray(cleaned)


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
        path = Path(confounds)
        if path.suffix in (".tsv", ".csv"):
            confounds = read_table(path, "\t" if path.suffix == ".tsv" else ",")
        else:
            confounds = read_table(path, r"\s+", header=None)
    try:
        values = np.array(confounds, dtype=np.float64)
    except (TypeError, ValueError) as error:
        raise StudyError(
            f"{name!r}: {source} are not all numbers ({error}). Leave out columns of "
            "text."
        ) from None
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

    Only headers are read at first, to know the shape and to find files that do not
    fit. :meth:`read` needs memory for the samples and for one run.

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
        start = 0
        for run in self.runs:
            stop = start + run.n_samples
            samples[start:stop] = read_run(run, self.space, self.cleaning)
            start = stop
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
    they are read. `unsteady` volumes are left out since the magnetisation was not
    steady yet.
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
    times: dict[float, str] = {}
    for name, run in runs.items():
        times.setdefault(round(run.t_r or 0.0, 4), name)
    if len(times) > 1:
        listing = ", ".join(f"{t:g} s ({file})" for t, file in times.items())
        warn_user(
            f"Repetition times differ: {listing}. Every run keeps its own; samples of "
            "methods that are locked in time would not correspond.",
            UserWarning,
        )
    if any(c.outside for c in counts.values()):
        warn_user(
            f"{sum(c.outside for c in counts.values())} of "
            f"{sum(c.events for c in counts.values())} events lie before or after "
            f"their run and have no sample: {_list_counts(counts, 'outside')}. Check "
            "their onsets.",
            UserWarning,
        )
    shared = [c for c in counts.values() if c.shared_volumes]
    if shared:
        warn_user(
            f"{sum(c.shared_volumes for c in shared)} volumes lie under events of more "
            f"than one category ({_list_counts(counts, 'shared_volumes')}); each has "
            "the label of the event that covers most of it, and "
            f"{sum(c.overshadowed for c in shared)} events have no volume of their "
            "own. Leave events out with ignore=...",
            UserWarning,
        )


def _list_counts(counts: Mapping[str, Any], what: str) -> str:
    numbers = {name: getattr(count, what) for name, count in counts.items()}
    found = [f"{name}: {number}" for name, number in numbers.items() if number]
    more = f" and {len(found) - 3} more runs" if len(found) > 3 else ""
    return ", ".join(found[:3]) + more


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

    `labels` are labels and stimuli of each subject, where runs have no plans that bring
    them; `settings` and `more` go into the record.
    """
    subjects, records = [], {}
    for id, own_runs in runs.items():
        with errors_name_subject(id):
            listed = list(own_runs.values())
            source = ImageSource(listed, spaces[id], cleaning, dtype)
        if source.shape[0] == 0:
            raise StudyError(
                f"Subject {id!r} has no samples: its events lie outside of its runs, "
                "or all are ignored or scrubbed. Check the onsets, the labels and "
                "scrub."
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
