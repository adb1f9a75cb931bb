"""From the volumes of a run to its samples: volumes, means of blocks, trial estimates.

Every way is linear in the volumes, and what it does depends on the events alone. So it
is planned before anything heavy is read: a :class:`SamplePlan` knows the labels of the
samples at once, and turns volumes into samples later.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from brainweave._core.exceptions import InputError, StudyError, warn_user
from brainweave._core.labels import object_array
from brainweave.study.formats.events import (
    DRIFT_CUTOFF,
    NOT_STIMULI,
    OVERLAPS,
    Events,
    check_events,
    drift_columns,
    event_volumes,
    find_blocks,
    match_volumes,
    name_positions,
    names_no_stimulus,
    nuisance_columns,
    resolve_tr,
    shared_volumes,
    trial_weights,
)
from brainweave.study.formats.runs import (
    ROOM,
    Cleaning,
    ImageSource,
    Run,
    confound_columns,
    with_drifts,
)
from brainweave.study.options import (
    EventRules,
    SampleOptions,
    Sampling,
    check_samples,
    merge_options,
)
from brainweave.study.provenance import make_record, run_record
from brainweave.study.study import Study
from brainweave.study.subject import Subject


@dataclass(frozen=True)
class EventCounts:
    """What became of the events of a run, and how many volumes it has."""

    events: int = 0  # those that have a category
    outside: int = 0  # of these, before or after the scan
    unseen: int = 0  # within it, but too late for a volume to show their response
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
    **details: Any,
) -> SamplePlan:
    """Plan the samples of one run; `details` are fields of `rules` and `sampling`.

    Volumes other than `kept_volumes` are censored; `confounds` are further columns of
    the trial models, whose drift terms stop at `high_pass`, or are removed from other
    samples before, together with the drifts among them.
    """
    rules, sampling = merge_options(
        "plan_samples", details, rules or EventRules(), sampling or Sampling()
    )
    check_samples(samples)
    n_events, n_outside = len(events), check_events(events, n_volumes, tr)
    usable = np.ones(n_volumes, dtype=bool)
    if kept_volumes is not None:
        usable = np.isin(np.arange(n_volumes), kept_volumes)
    if samples == "blocks":
        events = find_blocks(events, max_gap=sampling.max_gap)
    is_trials, delay = samples.startswith("trials"), sampling.hrf_delay
    volume_event = match_volumes(
        events,
        n_volumes,
        tr,
        hrf_delay=delay,
        # a model tells overlapping trials apart and needs no rule
        overlap="longest" if is_trials else rules.overlap,
    )
    visible = event_volumes(events, n_volumes, tr, hrf_delay=delay)
    n_confounds = 0 if confounds is None else confounds.shape[1]
    nuisance = None
    if is_trials or n_confounds:
        drifts = drift_columns(n_volumes, tr, high_pass)
        nuisance = nuisance_columns(drifts, confounds)
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
            nuisance=nuisance,
            hrf_model=sampling.hrf_model,
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
        **_count_lost(events, visible, None if is_trials else volume_event, tr),
        **_count_nuisance(volume_event, events.label, usable, nuisance, n_confounds),
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


def _count_lost(
    events: Events,
    visible: NDArray[np.bool_],
    volume_event: NDArray[np.int64] | None,
    tr: float,
) -> dict[str, int]:
    """Count events without a volume; `volume_event` is None if they share volumes."""
    has_volume = visible.any(axis=1)
    begins_within = events.onset < visible.shape[1] * tr
    within = begins_within & (events.onset + events.duration >= 0)
    counts = {"unseen": int((within & ~has_volume).sum())}
    if volume_event is not None:
        preferred = np.isin(np.arange(len(events)), volume_event)
        counts["shared_volumes"] = int(shared_volumes(events, visible).sum())
        counts["overshadowed"] = int((has_volume & ~preferred).sum())
    return counts


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


@dataclass(frozen=True)
class EventRun:
    """A run, by a name for warnings, and its events; its samples are not planned yet.

    `stated_tr` returns a repetition time and where it is stated; `unsteady` volumes are
    left out since the magnetisation was not steady yet.
    """

    name: str
    run: Run
    events: Events
    stated_tr: Callable[[], tuple[Any, str]]
    unsteady: int = 0

    def planned(self, space: Any, options: SampleOptions) -> Run:
        """Return the run with its repetition time and the plan of its samples.

        Confounds become columns of trial models; other samples are cleaned of them when
        they are read.
        """
        run = replace(self.run, t_r=options.sampling.t_r).opened(space)
        n_volumes = run.header.n_samples
        if run.t_r is None:
            stated = self.stated_tr()
            run = replace(run, t_r=resolve_tr(*stated, run.header, run.name))
        high_pass = run.cutoff(options.high_pass)
        confounds = confound_columns(run.confounds, n_volumes, run.name)
        n_confounds = 0 if confounds is None else confounds.shape[1]
        is_trials = options.samples.startswith("trials")
        if not is_trials:
            confounds = with_drifts(confounds, n_volumes, run.t_r, high_pass)
        try:
            plan = plan_samples(
                self.events,
                n_volumes,
                float(run.t_r or 0),
                samples=options.samples,
                rules=options.rules,
                sampling=options.sampling,
                kept_volumes=run.used(),
                confounds=confounds,
                high_pass=high_pass if is_trials else None,
            )
        except StudyError as error:
            raise StudyError(f"{run.name!r}: {error}") from error
        counts = replace(
            plan.counts,
            confounds=n_confounds,
            high_pass=high_pass,
            unsteady=self.unsteady,
        )
        return replace(
            run,
            confounds=None if is_trials else confounds,
            levels=None if is_trials or not counts.levels else plan.volume_event,
            plan=replace(plan, counts=counts),
        )


def study_of_events(
    name: str,
    runs: Mapping[str, Mapping[Any, EventRun]],
    spaces: Mapping[str, Any],
    options: SampleOptions,
    settings: Mapping[str, Any],
    **more: Any,
) -> Study:
    """Make a lazy study of the runs of each subject, by their numbers, in its space.

    `settings` and `more` are those of :func:`study_of_runs`.
    """
    planned: dict[str, dict[Any, Run]] = {}
    by_name: dict[str, Run] = {}
    for id, listed in runs.items():
        with errors_name_subject(id):
            planned[id] = {n: r.planned(spaces[id], options) for n, r in listed.items()}
        by_name |= {run.name: planned[id][number] for number, run in listed.items()}
    warn_of_runs(by_name, options.rules.overlap)
    left_out = Counter[str]()
    for run in (run for listed in runs.values() for run in listed.values()):
        left_out.update(run.events.left_out)
    _warn_of_left_out(left_out, options.rules)
    more["left_out"] = dict(sorted(left_out.items()))
    settings = {**settings, **options.settings()}
    return study_of_runs(name, planned, spaces, options.cleaning, settings, **more)


def warn_of_runs(runs: Mapping[str, Run], overlap: str) -> None:
    """Warn of events that were lost or share volumes, and of times that differ."""
    counts = {name: run.plan.counts for name, run in runs.items()}
    messages = []
    times: dict[float, str] = {}
    for name, run in runs.items():
        times.setdefault(round(run.t_r or 0.0, 4), name)
    if len(times) > 1:
        listing = ", ".join(f"{t:g} s ({file})" for t, file in times.items())
        messages.append(
            f"Repetition times differ: {listing}. Every run keeps its own; samples of "
            "methods that are locked in time would not correspond."
        )
    lost = sum(c.outside for c in counts.values())
    if lost:
        messages.append(
            f"{lost} of {sum(c.events for c in counts.values())} events lie before or "
            f"after their run and have no sample: {_list_counts(counts, 'outside')}. "
            "Check their onsets."
        )
    shared = sum(c.shared_volumes for c in counts.values())
    if shared:
        silent = sum(c.overshadowed for c in counts.values() if c.shared_volumes)
        messages.append(
            f"{shared} volumes lie under events of more than one category "
            f"({_list_counts(counts, 'shared_volumes')}); {OVERLAPS[overlap]}, and "
            f"{silent} events have no volume of their own. Leave events out with "
            "ignore=..., or choose another rule with overlap=..."
        )
    for message in messages:
        warn_user(message, UserWarning)


def _warn_of_left_out(counts: Mapping[str, int], rules: EventRules) -> None:
    """Name events that a rule leaves out, but for those of rest."""
    quiet = {*rules.ignore, "n/a"}
    names = [
        name
        for name in sorted(counts)
        if name not in quiet and not names_no_stimulus(name, NOT_STIMULI[:3])
    ]
    if names:
        listed = ", ".join(f"{name} ({counts[name]})" for name in names)
        warn_user(
            f"Events that are no stimuli by their labels are left out: {listed}. Keep "
            "one as a category with keep=..., or name it in ignore=... to agree.",
            UserWarning,
        )


def _list_counts(counts: Mapping[str, EventCounts], what: str) -> str:
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
