"""What a subject saw and when, which volumes show it, and the samples that they give.

Events are the rows of a BIDS ``events.tsv``: an onset, a duration, a category and, if
there is one, a stimulus. Samples are volumes, means of blocks or trial estimates: all
linear in the volumes, and planned from the events before an image is read.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from brainweave._core.exceptions import InputError, StudyError
from brainweave._core.validation import check_list_option, check_option
from brainweave.study.spaces import RunHeader, read_table
from brainweave.study.subject import moment

HRF_MODEL = "glover"  # response of the trial models
#: Ways to make samples of volumes.
SAMPLES = ("volumes", "blocks", "trials", "trials-lsa", "trials-lss")
#: What an empty cell of an ``events.tsv`` may hold.
MISSING = frozenset({"", "n/a", "N/A", "NA", "nan", "NaN", "None"})

#: Labels of events that are no stimuli, in any case, with digits, blanks and signs
#: between the letters or after them, and in the plural: ``Button_press``, ``ITI 2``.
#: The first three are what a run is compared with, and are left out without a word.
NOT_STIMULI = (
    *("rest", "baseline", "fixation", "fixation cross", "blank", "null", "null event"),
    *("ITI", "ISI", "inter-trial interval", "inter-stimulus interval"),
    *("response", "button", "button press", "button response", "key press", "trigger"),
)

#: Where drifts end and signal begins, in Hz, as in SPM and fMRIPrep.
DRIFT_CUTOFF = 1 / 128
#: Of a run's degrees of freedom, what events and confounds that are fitted together
#: may take; beyond, the noise that this adds outweighs the signal that it saves
#: (benchmarks/confounds.py).
ROOM = 2 / 5
# No scanner is faster, no protocol slower (sparse sampling takes 10 to 20 s a volume).
_SHORTEST_TR, _LONGEST_TR = 0.01, 100.0
# Two statements of one repetition time may differ by rounding, not more.
_TR_TOLERANCE = 0.01
# Times in events files are rounded to milliseconds or less; a volume that starts within
# this many seconds of a boundary counts as being on it.
_TIME_SLACK = 1e-3
_MAX_GAP = 4.0  # most seconds between events of one block


@dataclass(frozen=True)
class EventRules:
    """Rules for the events of a run.

    Parameters
    ----------
    ignore : str or sequence of str, default=()
        Labels that are no category, beside ``n/a``, rest, baseline, fixation, blank,
        null, ITI, ISI, response, button (press), key press and trigger, in any case,
        plural or numbered. What was left out is in the record.
    keep : str or sequence of str, default=()
        Of these, labels that are categories all the same.
    moments : bool, default=False
        Add the seconds since the stimulus began to the ids of volumes, so that the
        same moment of a film has the same id in every subject.
    """

    ignore: Sequence[str] | str = ()
    keep: Sequence[str] | str = ()
    moments: bool = False

    def __post_init__(self) -> None:
        for name in ("ignore", "keep"):
            listed = check_list_option(name, getattr(self, name), "EventRules")
            object.__setattr__(self, name, tuple(map(str, listed)))
        both = set(self.ignore) & set(self.keep)
        if both:
            raise InputError(f"{min(both)!r} is both in ignore=... and in keep=...")


@dataclass(frozen=True)
class Sampling:
    """Settings for turning volumes into samples.

    Parameters
    ----------
    t_r : float, optional
        Repetition time in seconds, instead of what sidecars and headers say.
    hrf_delay : float, default=5.0
        Seconds from a stimulus to its response, for volumes and blocks.
    keep_rest : bool, default=False
        Keep volumes that show nothing, without a label.
    """

    t_r: float | None = None
    hrf_delay: float = 5.0
    keep_rest: bool = False

    def __post_init__(self) -> None:
        if self.t_r is not None:
            seconds = check_tr(self.t_r, f"t_r={self.t_r!r}", InputError)
            object.__setattr__(self, "t_r", seconds)


@dataclass(frozen=True)
class Events:
    """The events of one run, sorted by onset: when, what category, which stimulus.

    Times are seconds from the first volume of the run. The stimulus is empty text where
    it is not known, None if none is. `left_out` counts what is no stimulus, by label.
    """

    onset: NDArray[np.float64]
    duration: NDArray[np.float64]
    label: NDArray[np.str_]
    stimulus: NDArray[np.str_] | None = None
    left_out: Mapping[str, int] = field(default_factory=dict)

    @classmethod
    def from_rows(cls, rows: Iterable[Sequence[Any]]) -> Events:
        """Sort rows of onset, duration, label and, if there is one, stimulus."""
        table = sorted(rows, key=lambda row: float(row[0]))
        known = bool(table) and len(table[0]) > 3
        return cls(
            np.array([row[0] for row in table], dtype=np.float64),
            np.array([row[1] for row in table], dtype=np.float64),
            np.array([str(row[2]) for row in table], dtype=np.str_),
            np.array([str(row[3]) for row in table], dtype=np.str_) if known else None,
        )

    def __len__(self) -> int:
        return len(self.onset)

    def take(self, keep: NDArray[Any]) -> Events:
        """Keep some events: a boolean mask or positions."""
        stimulus = None if self.stimulus is None else self.stimulus[keep]
        columns = self.onset[keep], self.duration[keep], self.label[keep], stimulus
        return Events(*columns, self.left_out)

    def stimuli(self, rules: EventRules | None = None) -> Events:
        """Leave out what is no stimulus by the rules."""
        rules = rules or EventRules()
        names, codes, counts = np.unique(
            self.label, return_inverse=True, return_counts=True
        )
        stays = [
            name not in MISSING
            and name not in rules.ignore
            and (name in rules.keep or not names_no_stimulus(name))
            for name in map(str, names)
        ]
        left = Counter[str]()
        for name, count, stay in zip(names, counts, stays, strict=True):
            if not stay:
                left["n/a" if name in MISSING else str(name)] += int(count)
        kept = self.take(np.array(stays, bool)[codes])
        return replace(kept, left_out=dict(left))


def names_no_stimulus(label: str, known: Sequence[str] = NOT_STIMULI) -> bool:
    """Return whether a label is one of :data:`NOT_STIMULI`, however it is written."""
    bare, *names = (re.sub(r"[\W\d_]", "", text.casefold()) for text in (label, *known))
    return any(bare in (name, f"{name}s", f"{name}es") for name in names)


def read_events(
    path: str | Path,
    *,
    label: str = "trial_type",
    stimulus: str | None = None,
    rules: EventRules | None = None,
) -> Events:
    """Read a BIDS ``events.tsv``, sorted by onset.

    `label` and `stimulus` name the columns to use. Events that are no stimuli by the
    rules are left out. A missing duration counts as zero.
    """
    table = read_table(Path(path), dtype=str, keep_default_na=False)
    if len(table) == 0:
        raise StudyError(f"{path} has a header but no events. Leave the run out.")
    for column in ("onset", "duration", label, stimulus):
        if column is not None and column not in table.columns:
            raise StudyError(
                f"{path} has no column {column!r}; its columns are "
                f"{', '.join(map(repr, table.columns))}. Choose some with label=... "
                "and stimulus=...; BIDS wants onset and duration."
            )
    onset = _numbers(table["onset"], path)
    duration = np.nan_to_num(_numbers(table["duration"], path), nan=0.0)
    names = table[label].str.strip().to_numpy(dtype=np.str_)
    ids = None
    if stimulus is not None:
        ids = table[stimulus].str.strip().replace(list(MISSING), "")
        ids = ids.to_numpy(dtype=np.str_)
    events = Events(onset, duration, names, ids).stimuli(rules)
    good = np.isfinite(onset) & np.isfinite(duration) & (duration >= 0)
    for row in np.flatnonzero(np.isin(names, events.label) & ~good)[:1]:
        raise StudyError(
            f"{path}: the event in row {row + 1} begins at {onset[row]:g} s and lasts "
            f'{duration[row]:g} s. Write "n/a" for a duration that is not known.'
        )
    return events.take(np.argsort(events.onset, kind="stable"))


def _numbers(column: Any, path: str | Path) -> NDArray[np.float64]:
    try:
        cells = ("nan" if cell.strip() in MISSING else cell for cell in column)
        return np.array([float(cell) for cell in cells])
    except ValueError as error:
        raise StudyError(
            f"{path}: a cell of {column.name} is not a number ({error})."
        ) from None


def event_volumes(
    events: Events, n_volumes: int, tr: float, *, hrf_delay: float = 5.0
) -> NDArray[np.bool_]:
    """Return which volumes show each event, of shape (n_events, n_volumes).

    Volume v shows event e when ``v * tr - hrf_delay`` lies in
    ``[onset, onset + max(duration, tr))``: an event shorter than a volume has one too.
    """
    times = np.arange(n_volumes) * tr - hrf_delay
    stop = events.onset + np.maximum(events.duration, tr)
    begun = times >= events.onset[:, None] - _TIME_SLACK
    return np.asarray(begun & (times < stop[:, None] - _TIME_SLACK))


def match_volumes(
    events: Events, n_volumes: int, tr: float, *, hrf_delay: float = 5.0
) -> NDArray[np.int64]:
    """Return the event that each volume shows, -1 for none.

    Of several, the one that covers most of it counts (of equals the last), so that a
    button press takes nothing from the block it falls into.
    """
    visible = event_volumes(events, n_volumes, tr, hrf_delay=hrf_delay)
    begin = np.arange(n_volumes) * tr - hrf_delay
    volume_event = np.full(n_volumes, -1, dtype=np.int64)
    most_covered = np.full(n_volumes, -1.0)
    stop = events.onset + events.duration
    for e in range(len(events)):
        covered = np.minimum(begin + tr, stop[e]) - np.maximum(begin, events.onset[e])
        covered = np.maximum(covered, 0.0)
        here = visible[e] & (covered >= most_covered - _TIME_SLACK)
        volume_event[here], most_covered[here] = e, covered[here]
    return volume_event


def name_positions(
    events: Events,
    volume_event: NDArray[np.int64],
    tr: float,
    *,
    hrf_delay: float = 5.0,
) -> NDArray[np.str_]:
    """Name each volume by its stimulus and the seconds into it: ``"scene-3@2.50"``."""
    what = events.label if events.stimulus is None else events.stimulus
    begin = np.arange(len(volume_event)) * tr - hrf_delay
    names = [
        moment(what[e], max(time - events.onset[e], 0.0)) if e >= 0 else ""
        for time, e in zip(begin, volume_event, strict=True)
    ]
    return np.array(names, dtype=np.str_)


def find_blocks(events: Events) -> Events:
    """Join neighbouring events of one category into blocks.

    Events with the same label, with no other event between them and at most 4 s from
    the end of one to the onset of the next, are one block.
    """
    first: list[int] = []
    ends: list[float] = []
    for e, stop in enumerate(events.onset + events.duration):
        same = e > 0 and events.label[e] == events.label[e - 1]
        if same and events.onset[e] - ends[-1] <= _MAX_GAP + _TIME_SLACK:
            ends[-1] = max(ends[-1], stop)
        else:
            first.append(e)
            ends.append(stop)
    blocks = events.take(np.array(first, np.intp))
    return replace(blocks, duration=np.array(ends) - blocks.onset)


def check_tr(value: Any, where: str, error: type[ValueError] = StudyError) -> float:
    """Return a repetition time in seconds; refuse what cannot be one."""
    if isinstance(value, bool) or not isinstance(value, int | float | np.number):
        raise error(f"{where} is {value!r}, not a number of seconds, such as 2.0.")
    if not _SHORTEST_TR <= value <= _LONGEST_TR:
        in_ms = _SHORTEST_TR <= value / 1000 <= _LONGEST_TR
        hint = f" It looks like milliseconds: write {value / 1000:g}." if in_ms else ""
        raise error(
            f"{where} is {value:g} s, which no run has: between {_SHORTEST_TR:g} and "
            f"{_LONGEST_TR:g} s are expected.{hint}"
        )
    return float(value)


def resolve_tr(stated: Any, where: str, header: RunHeader, image: str) -> float:
    """Return the repetition time that a sidecar (`where`) and the header agree on."""
    if stated is None:
        if header.t_r is not None:
            return check_tr(header.t_r, f"The repetition time in {image!r}")
        raise StudyError(
            f"{image!r} has no repetition time, neither in a sidecar nor in its "
            "header. Add RepetitionTime to its JSON file, or give t_r=..."
        )
    seconds = check_tr(stated, where)
    if header.t_r is None or header.t_r_is_default:
        return seconds
    apart = abs(seconds - header.t_r)
    drift = apart * header.n_samples
    if apart > _TR_TOLERANCE * seconds or drift > seconds / 2:
        raise StudyError(
            f"{where} is {seconds:g} s, but the header of {image!r} says "
            f"{header.t_r:g} s. By the end of the run they are {drift:.3g} s apart. "
            "Correct the wrong one, or give t_r=... to overrule both."
        )
    return seconds


def check_events(events: Events, n_volumes: int, tr: float) -> int:
    """Count the events outside of their run.

    If that is more than half of them, or one lasts more than twice as long as the run,
    the times are in another unit, or of another run: an error.
    """
    length = n_volumes * tr
    before = events.onset + np.maximum(events.duration, tr) <= 0
    outside = int(np.count_nonzero(before | (events.onset >= length)))
    longest = events.duration.max(initial=0.0)
    times, problem = events.onset, ""
    if longest > 2 * length:
        times, problem = events.duration, f"An event lasts {longest:g} s"
    elif 2 * outside > len(events):
        problem = f"{outside} of {len(events)} events lie outside the run"
    if problem:
        in_milliseconds = 10 * length < times.max() <= 2000 * length
        hint = "; these look like milliseconds" if in_milliseconds else ""
        raise StudyError(
            f"{problem}, but the run has {n_volumes} volumes, {length:g} s. Onsets "
            f"(from the first volume) and durations are in seconds{hint}."
        )
    return outside


def trial_weights(
    events: Events,
    n_volumes: int,
    tr: float,
    *,
    separate: bool,
    usable: NDArray[np.bool_],
    nuisance: NDArray[np.float64],
) -> NDArray[np.float64]:
    r"""Return weights (n_trials, n_volumes) that give one amplitude per trial.

    With all trials in one model (least squares all), :math:`\hat\beta = X^+ Y`, and the
    weights are the trials' rows of :math:`X^+`. With a model per trial (least squares
    separate, [1]_), :math:`X_j` holds trial j, the sum of the other trials of each
    category, and the rest, and only the first row of :math:`X_j^+` is kept.

    References
    ----------
    .. [1] Mumford, J. A., Turner, B. O., Ashby, F. G. and Poldrack, R. A. (2012).
       Deconvolving BOLD activation in event-related designs for multivoxel pattern
       classification analyses. NeuroImage, 59(3), 2636-2643.
    """
    from nilearn.glm.first_level import compute_regressor

    times = np.arange(n_volumes) * tr
    regressors = np.empty((n_volumes, len(events)))
    for e in range(len(events)):
        condition = ([events.onset[e]], [events.duration[e]], [1.0])
        regressors[:, e] = compute_regressor(condition, HRF_MODEL, times)[0][:, 0]
    regressors = regressors[usable]
    nuisance = nuisance[usable]
    weights = np.zeros((len(events), n_volumes))
    if not separate:
        n_columns = regressors.shape[1] + nuisance.shape[1]
        if n_columns > len(regressors):
            raise StudyError(
                f"{len(events)} trials and {nuisance.shape[1]} other columns do not "
                f'fit {len(regressors)} volumes. Use samples="trials-lss", which has '
                "a model per trial, or fewer confounds."
            )
        inverse = np.linalg.pinv(np.hstack([regressors, nuisance]))
        weights[:, usable] = inverse[: len(events)]
        return weights
    categories, member = np.unique(events.label, return_inverse=True)
    sums = regressors @ np.eye(len(categories))[member]
    for j, category in enumerate(member):
        others = sums.copy()
        others[:, category] -= regressors[:, j]
        # a category with this trial alone leaves a column of rounding errors
        n_others = np.bincount(member) - (np.arange(len(categories)) == category)
        others = others[:, n_others > 0]
        design = np.hstack([regressors[:, j : j + 1], others, nuisance])
        weights[j, usable] = np.linalg.pinv(design)[0]
    return weights


def drift_columns(
    n_volumes: int, tr: float, high_pass: float | None
) -> NDArray[np.float64]:
    """Return the cosines below a cut-off in Hz, without the constant."""
    from nilearn.glm.first_level import make_first_level_design_matrix

    times = np.arange(n_volumes) * tr
    drift_model = None if high_pass is None else "cosine"
    table = make_first_level_design_matrix(
        times, drift_model=drift_model, high_pass=high_pass
    )
    return table.drop(columns="constant").to_numpy(dtype=np.float64)


def standardized(columns: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return columns with mean 0 and variance 1; those that are constant are zero."""
    centred = columns - columns.mean(axis=0)
    scale = centred.std(axis=0)
    return np.asarray(centred / np.where(scale > 0, scale, 1.0))


@dataclass(frozen=True)
class EventCounts:
    """Counts of what became of the events and volumes of a run."""

    events: int = 0  # those that have a category
    outside: int = 0  # of these, before or after the scan
    shared_volumes: int = 0  # volumes under events of more than one category
    overshadowed: int = 0  # events that got no volume, since others were preferred
    volumes: int = 0
    unsteady: int = 0  # volumes left out, before the magnetisation was steady
    confounds: int = 0
    high_pass: float | None = None  # cut-off of the drifts that are removed, in Hz
    nuisance: int = 0  # confounds and drifts that are removed
    levels: int = 0  # of events, that confounds are fitted with; 0: without
    lost: float = 0.0  # share of the categories' time courses that nuisance explains


@dataclass(frozen=True)
class SamplePlan:
    """The samples of one run, before they are read.

    Labels and stimuli are empty where there is none. Samples are either the volumes
    `rows` as they are, or means of all volumes by `weights` (n_samples, n_volumes).
    """

    labels: NDArray[np.str_]
    stimuli: NDArray[np.str_]
    onsets: NDArray[np.float64]
    rows: NDArray[np.int64] | None = None
    weights: NDArray[np.float64] | None = None
    volume_event: NDArray[np.int64] | None = None  # of each volume, -1 for none
    counts: EventCounts = field(default=EventCounts(), compare=False)

    def __len__(self) -> int:
        return len(self.labels)

    def apply(self, volumes: NDArray[Any]) -> NDArray[Any]:
        """Turn volumes (n_volumes, n_voxels) into samples (n_samples, n_voxels)."""
        if self.weights is not None:
            weights = self.weights.astype(volumes.dtype, copy=False)
            return np.asarray(weights @ volumes)
        return np.asarray(volumes[self.rows])


def plan_samples(
    events: Events,
    n_volumes: int,
    tr: float,
    *,
    samples: str = "volumes",
    rules: EventRules | None = None,
    sampling: Sampling | None = None,
    kept_volumes: NDArray[np.int64] | None = None,
    confounds: NDArray[np.float64] | None = None,
    high_pass: float | None = DRIFT_CUTOFF,
) -> SamplePlan:
    """Plan the samples of one run; volumes other than `kept_volumes` are censored.

    `confounds` are columns of the trial models, whose drift terms stop at `high_pass`;
    from other samples they are removed before, with the drifts among them.
    """
    rules, sampling = rules or EventRules(), sampling or Sampling()
    check_option("samples", samples, SAMPLES, owner="plan_samples")
    n_events, n_outside = len(events), check_events(events, n_volumes, tr)
    usable = np.ones(n_volumes, dtype=bool)
    if kept_volumes is not None:
        usable = np.isin(np.arange(n_volumes), kept_volumes)
    if samples == "blocks":
        events = find_blocks(events)
    is_trials, delay = samples.startswith("trials"), sampling.hrf_delay
    volume_event = match_volumes(events, n_volumes, tr, hrf_delay=delay)
    visible = event_volumes(events, n_volumes, tr, hrf_delay=delay)
    n_confounds = 0 if confounds is None else confounds.shape[1]
    nuisance = None
    if is_trials or n_confounds:
        columns = [np.ones((n_volumes, 1)), drift_columns(n_volumes, tr, high_pass)]
        if confounds is not None and n_confounds:
            columns.append(standardized(confounds))
        nuisance = np.hstack(columns)
    rows = weights = None
    if samples == "volumes":
        rows = np.flatnonzero(usable & (sampling.keep_rest | (volume_event >= 0)))
        sample_event = volume_event[rows]
    elif samples == "blocks":
        sample_event = np.unique(volume_event[usable & (volume_event >= 0)])
        member = usable & (volume_event == sample_event[:, None])
        weights = member / member.sum(axis=1, keepdims=True)
    else:
        # what was not scanned cannot be estimated
        sample_event = np.flatnonzero((visible & usable).any(axis=1))
        weights = trial_weights(
            events.take(sample_event),
            n_volumes,
            tr,
            separate=samples == "trials-lss",
            usable=usable,
            nuisance=np.asarray(nuisance),
        )
    # position -1, for rest, finds the empty text at the end
    stimuli = np.full(len(events), "") if events.stimulus is None else events.stimulus
    stimuli = np.append(stimuli, "")[sample_event]
    if rows is not None and rules.moments:
        stimuli = name_positions(events, volume_event, tr, hrf_delay=delay)[rows]
    counts = EventCounts(
        events=n_events,
        outside=n_outside,
        volumes=n_volumes,
        **_count_nuisance(volume_event, events.label, usable, nuisance, n_confounds),
    )
    if not is_trials:  # trials may share volumes
        preferred = np.isin(np.arange(len(events)), volume_event)
        categories = np.unique(events.label)
        shown = [visible[events.label == c].any(axis=0) for c in categories]
        counts = replace(
            counts,
            shared_volumes=int((np.sum(shown, axis=0) > 1).sum()),
            overshadowed=int((visible.any(axis=1) & ~preferred).sum()),
        )
    return SamplePlan(
        np.append(events.label, "")[sample_event],
        stimuli,
        events.onset[sample_event] if rows is None else (rows * tr).astype(np.float64),
        rows,
        weights,
        volume_event,
        counts,
    )


def _count_nuisance(
    volume_event: NDArray[np.int64],
    labels: NDArray[np.str_],
    usable: NDArray[np.bool_],
    nuisance: NDArray[np.float64] | None,
    n_confounds: int,
) -> dict[str, Any]:
    """Count confounds and drifts, and the share of the categories that they explain."""
    if nuisance is None:
        return {}
    # the first column is a constant
    removed, volume_event = nuisance[usable, 1:], volume_event[usable]
    removed = removed - removed.mean(axis=0)
    categories = np.append(labels, "")[volume_event][:, None] == np.unique(labels)
    courses = categories - categories.mean(axis=0)
    explained = removed @ (np.linalg.pinv(removed, rcond=1e-8) @ courses)
    n_columns, n_levels = removed.shape[1], len(np.unique(volume_event))
    return {
        "confounds": n_confounds,
        "nuisance": n_columns,
        "levels": n_levels if n_columns + n_levels <= ROOM * len(volume_event) else 0,
        "lost": round(float((explained**2).sum() / max((courses**2).sum(), 1e-12)), 3),
    }
