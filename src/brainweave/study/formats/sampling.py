"""From the volumes of a run to its samples: volumes, means of blocks, trial estimates.

Every way is linear in the volumes, and what it does depends on the events alone. So it
is planned before anything heavy is read: a :class:`SamplePlan` knows the labels of the
samples at once, and turns volumes into samples later.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from brainweave._validation import check_list_option, check_option
from brainweave.exceptions import InputError, StudyError
from brainweave.study.formats.events import (
    OVERLAPS,
    Events,
    agreed_tr,
    check_events,
    check_t_r_option,
    event_volumes,
    find_blocks,
    match_volumes,
    name_positions,
    nuisance_columns,
    shared_volumes,
    trial_weights,
)
from brainweave.study.formats.runs import (
    Cleaning,
    ImageSource,
    Run,
    confound_columns,
)
from brainweave.study.options import merge_options
from brainweave.study.provenance import make_record, run_record
from brainweave.study.study import Study
from brainweave.study.subject import Subject

_SAMPLES = ("volumes", "blocks", "trials", "trials-lsa", "trials-lss")

#: Where the drift terms of trial models stop, in Hz.
DRIFT_CUTOFF = 1 / 128
#: Of a run's degrees of freedom, what events and confounds that are fitted together
#: may take; beyond, the noise that this adds outweighs the signal that it saves
#: (benchmarks/confounds.py).
ROOM = 2 / 5


@dataclass(frozen=True)
class EventRules:
    """What the events of a run say of its volumes.

    Parameters
    ----------
    ignore : str or sequence of str, default=("rest", "baseline", "fixation")
        Labels that are no category; so is ``n/a``.
    overlap : {"longest", "last", "drop", "error"}, default="longest"
        Which event a volume shows that lies under events of several categories: the
        one that covers most of it, the one that began last, none, or an error. How
        many volumes that concerns is in a warning and in the record. Trial models
        tell overlapping trials apart, and need no rule.
    moments : bool, default=False
        Add the seconds since the stimulus began to the ids of volumes, so that the
        same moment of a film has the same id in every subject.
    """

    ignore: Sequence[str] | str = ("rest", "baseline", "fixation")
    overlap: str = "longest"
    moments: bool = False

    def __post_init__(self) -> None:
        ignored = check_list_option("ignore", self.ignore, "EventRules")
        object.__setattr__(self, "ignore", tuple(map(str, ignored)))
        check_option("overlap", self.overlap, list(OVERLAPS), owner="EventRules")


@dataclass(frozen=True)
class Sampling:
    """How volumes become samples.

    Parameters
    ----------
    t_r : float, optional
        Repetition time in seconds, instead of what sidecars and headers say.
    hrf_delay : float, default=5.0
        Seconds from a stimulus to its response, for volumes and blocks.
    keep_rest : bool, default=False
        Keep volumes that show nothing, without a label.
    max_gap : float, default=4.0
        Most seconds between events of one block.
    hrf_model : str, default="glover"
        Response of the trial models, one of nilearn's.
    """

    t_r: float | None = None
    hrf_delay: float = 5.0
    keep_rest: bool = False
    max_gap: float = 4.0
    hrf_model: str = "glover"

    def __post_init__(self) -> None:
        object.__setattr__(self, "t_r", check_t_r_option(self.t_r))


@dataclass(frozen=True)
class EventCounts:
    """What became of the events of a run, and how many volumes it has."""

    events: int = 0  # those that have a category
    outside: int = 0  # of these, before or after the scan
    unseen: int = 0  # within it, but too late for a volume to show their response
    shared_volumes: int = 0  # volumes under events of more than one category
    overshadowed: int = 0  # events that got no volume, since others were preferred
    volumes: int = 0
    confounds: int = 0
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
    shown: NDArray[np.int64] | None = None  # the event of each volume, -1 for none
    counts: EventCounts = field(default=EventCounts(), compare=False)

    def __len__(self) -> int:
        return len(self.labels)

    def apply(self, volumes: NDArray[Any]) -> NDArray[Any]:
        """Turn volumes (n_volumes, n_voxels) into samples (n_samples, n_voxels)."""
        if self.weights is not None:
            weights = self.weights.astype(volumes.dtype, copy=False)
            return np.asarray(weights @ volumes)
        return np.asarray(volumes[self.rows])


def check_samples(samples: Any, owner: str = "plan_samples") -> str:
    """Check the name of a way to make samples."""
    return check_option("samples", samples, _SAMPLES, owner=owner)


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
    samples before.
    """
    rules, sampling = merge_options(
        "plan_samples", details, rules or EventRules(), sampling or Sampling()
    )
    delay = sampling.hrf_delay
    check_samples(samples)
    n_events, outside = len(events), check_events(events, n_volumes, tr)
    usable = np.ones(n_volumes, dtype=bool)
    if kept_volumes is not None:
        usable[:] = False
        usable[kept_volumes] = True
    if samples == "blocks":
        events = find_blocks(events, max_gap=sampling.max_gap)
    shows = event_volumes(events, n_volumes, tr, hrf_delay=delay)
    within = (events.onset < n_volumes * tr) & (events.onset + events.duration >= 0)
    unseen = within & ~shows.any(axis=1)
    shared = overshadowed = np.zeros(0, dtype=bool)
    rows = weights = None
    is_trials = samples.startswith("trials")
    overlap = "longest" if is_trials else rules.overlap
    n_confounds = 0 if confounds is None else confounds.shape[1]
    nuisance = None
    if is_trials or n_confounds:
        nuisance = nuisance_columns(np.arange(n_volumes) * tr, high_pass, confounds)
    shown = match_volumes(events, n_volumes, tr, hrf_delay=delay, overlap=overlap)
    if is_trials:
        # a model tells overlapping trials apart; those not scanned it cannot estimate
        event = np.flatnonzero((shows & usable).any(axis=1))
        weights = trial_weights(
            events.take(event),
            n_volumes,
            tr,
            separate=samples == "trials-lss",
            usable=usable,
            nuisance=nuisance,
            hrf_model=sampling.hrf_model,
        )
    else:
        shared = shared_volumes(events, shows)
        overshadowed = shows.any(axis=1) & ~np.isin(np.arange(len(events)), shown)
        if samples == "volumes":
            rows = np.flatnonzero(usable & (sampling.keep_rest | (shown >= 0)))
            event = shown[rows]
        else:
            event = np.unique(shown[usable & (shown >= 0)])
            member = usable & (shown == event[:, None])
            weights = member / member.sum(axis=1, keepdims=True)
    # position -1, for rest, finds the empty text at the end
    stimuli = np.full(len(events), "") if events.stimulus is None else events.stimulus
    stimuli = np.append(stimuli, "")[event]
    if rows is not None and rules.moments:
        stimuli = name_positions(events, shown, tr, hrf_delay=delay)[rows]
    return SamplePlan(
        np.append(events.label, "")[event],
        stimuli,
        events.onset[event] if rows is None else (rows * tr).astype(np.float64),
        rows,
        weights,
        shown,
        EventCounts(
            n_events,
            outside,
            int(unseen.sum()),
            int(shared.sum()),
            int(overshadowed.sum()),
            n_volumes,
            **_removed(shown, events.label, usable, nuisance, n_confounds),
        ),
    )


def _removed(
    shown: NDArray[np.int64],
    labels: NDArray[np.str_],
    usable: NDArray[np.bool_],
    nuisance: NDArray[np.float64] | None,
    n_confounds: int,
) -> dict[str, Any]:
    """Count what is removed, and say what of the categories' courses goes with it."""
    if nuisance is None:
        return {}
    # the first column is a constant
    removed, shown = nuisance[usable, 1:], shown[usable]
    removed = removed - removed.mean(axis=0)
    categories = np.append(labels, "")[shown][:, None] == np.unique(labels)
    courses = categories - categories.mean(axis=0)
    explained = removed @ (np.linalg.pinv(removed, rcond=1e-8) @ courses)
    n_columns, n_levels = removed.shape[1], len(np.unique(shown))
    return {
        "confounds": n_confounds,
        "nuisance": n_columns,
        "levels": n_levels if n_columns + n_levels <= ROOM * len(shown) else 0,
        "lost": round(float((explained**2).sum() / max((courses**2).sum(), 1e-12)), 3),
    }


@dataclass(frozen=True)
class HowToSample:
    """All that a reader of runs with events is told of samples; made by `told`."""

    samples: str
    rules: EventRules
    sampling: Sampling
    cleaning: Cleaning
    high_pass: float | None

    @classmethod
    def told(cls, owner: str, samples: str, details: Any, *groups: Any) -> HowToSample:
        """Take options in groups, events, sampling and cleaning, and one by one."""
        check_samples(samples, owner)
        rules, sampling, cleaning = merge_options(owner, details, *groups)
        high_pass = cleaning.high_pass
        if samples.startswith("trials"):  # the models have drift terms of their own
            cleaning = replace(cleaning, high_pass=None)
            high_pass = high_pass or DRIFT_CUTOFF
        return cls(samples, rules, sampling, cleaning, high_pass)

    def settings(self) -> dict[str, Any]:
        """Return everything by its name, for the record."""
        groups = (self.rules, self.sampling, self.cleaning)
        every = {name: v for group in groups for name, v in asdict(group).items()}
        return {**every, "samples": self.samples, "high_pass": self.high_pass}


@contextmanager
def naming(id: str) -> Iterator[None]:
    """Say in errors whose data they are about."""
    try:
        yield
    except (StudyError, InputError) as error:
        raise type(error)(f"Subject {id!r}: {error}") from error


def plan_run(
    run: Run,
    space: Any,
    events: Events,
    stated: Callable[[], tuple[Any, str]],
    how: HowToSample,
    *,
    n_rows: int | None = None,
) -> Run:
    """Return a run with its repetition time and with the plan of its samples.

    `stated` is asked for the time, and for who says so, if the run itself has none;
    `n_rows` is the length of its confounds. These become columns of trial models; other
    samples are cleaned of them when they are read.
    """
    run = replace(run, t_r=how.sampling.t_r).opened(space)
    n_volumes, t_r = run.header.n_samples, run.t_r
    if n_rows not in (None, n_volumes):
        raise StudyError(
            f"{run.name!r} has {n_volumes} volumes, and its confounds have {n_rows} "
            "rows. They must be of the same run."
        )
    if t_r is None:
        t_r = agreed_tr(*stated(), run.header, run.name)
    columns = confound_columns(run.confounds, n_volumes, run.name)
    try:
        plan = plan_samples(
            events,
            n_volumes,
            t_r,
            samples=how.samples,
            rules=how.rules,
            sampling=how.sampling,
            kept_volumes=run.sample_mask,
            confounds=columns,
            high_pass=how.high_pass,
        )
    except StudyError as error:
        raise StudyError(f"{run.name!r}: {error}") from error
    is_trials = how.samples.startswith("trials")
    return replace(
        run,
        confounds=None if is_trials else columns,
        levels=plan.shown if plan.counts.levels and not is_trials else None,
        t_r=t_r,
        plan=plan,
    )


def warn_of_runs(runs: Mapping[str, Run], overlap: str) -> None:
    """Warn of what runs, by their names, lost or shared, and of times that differ."""
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
            f"after their run and have no sample: {_listed(counts, 'outside')}. Check "
            "their onsets."
        )
    shared = sum(c.shared_volumes for c in counts.values())
    if shared:
        silent = sum(c.overshadowed for c in counts.values() if c.shared_volumes)
        messages.append(
            f"{shared} volumes lie under events of more than one category "
            f"({_listed(counts, 'shared_volumes')}); {OVERLAPS[overlap]}, and {silent} "
            "events have no volume of their own. Leave events out with ignore=..., or "
            "choose another rule with overlap=..."
        )
    for message in messages:
        warnings.warn(message, UserWarning, stacklevel=3)


def _listed(counts: Mapping[str, EventCounts], what: str) -> str:
    numbers = {name: getattr(count, what) for name, count in counts.items()}
    found = [f"{name}: {number}" for name, number in numbers.items() if number]
    more = f" and {len(found) - 3} more runs" if len(found) > 3 else ""
    return ", ".join(found[:3]) + more


def study_of_runs(
    name: str,
    subjects: Mapping[str, tuple[Mapping[Any, Run], Any]],
    cleaning: Cleaning,
    settings: Mapping[str, Any],
    *,
    dtype: Any = np.float32,
    known: Mapping[str, Mapping[str, Any]] | None = None,
    **more: Any,
) -> Study:
    """Make a lazy study of each subject's runs, by their names, and its space.

    `known` are labels and stimuli of each subject, where runs have no plans that bring
    them; `settings` and `more` go into the record.
    """
    listed, records = [], {}
    for id, (runs, space) in subjects.items():
        own = {} if known is None else known[id]
        listed.append(_subject_of_runs(id, runs, space, cleaning, dtype, **own))
        opened: Any = listed[-1].samples
        pairs = zip(runs, opened.runs, strict=True)
        records[id] = {str(number): run_record(run) for number, run in pairs}
    done = {**asdict(cleaning), "dtype": np.dtype(dtype).name, **settings}
    return Study(listed, name, make_record(done, listed, records, **more))


def _subject_of_runs(
    id: str,
    runs: Mapping[Any, Run],
    space: Any,
    cleaning: Cleaning,
    dtype: Any,
    **own: Any,
) -> Subject:
    with naming(id):
        source = ImageSource(list(runs.values()), space, cleaning, dtype)
    if source.shape[0] == 0:
        raise StudyError(
            f"Subject {id!r} has no samples: its events lie outside of its runs, or "
            "all are ignored or scrubbed. Check the onsets, the labels and scrub."
        )
    plans = [run.plan for run in source.runs if run.plan is not None]
    if plans:
        own = {
            what: np.concatenate([getattr(plan, what) for plan in plans])
            for what in ("labels", "stimuli")
        }
    mixed = len(set(map(type, runs))) > 1
    names = [str(number) if mixed else number for number in runs]
    numbers = np.repeat(names, [run.n_samples for run in source.runs])
    return Subject(id, source, runs=numbers, onsets=source.onsets(), space=space, **own)
