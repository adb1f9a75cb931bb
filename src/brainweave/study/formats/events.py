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

from brainweave._core.arrays import Codes, Mask, Matrix
from brainweave._core.exceptions import InputError, StudyError
from brainweave._core.validation import check_option
from brainweave.study.spaces import RunHeader, read_table

#: Ways to make samples of volumes.
SAMPLES = ("volumes", "blocks", "trials")
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
    it is not known. `left_out` counts what is no stimulus, by label.
    """

    onset: NDArray[np.float64]
    duration: NDArray[np.float64]
    label: NDArray[np.str_]
    stimulus: NDArray[np.str_]
    left_out: Mapping[str, int] = field(default_factory=dict)

    @classmethod
    def from_rows(cls, rows: Iterable[Sequence[Any]]) -> Events:
        """Sort rows of onset, duration, label and, if there is one, stimulus."""
        table = [(*row, "")[:4] for row in sorted(rows, key=lambda r: float(r[0]))]
        onset, duration, *texts = np.array(table, object).reshape(-1, 4).T
        label, stimulus = (text.astype(np.str_) for text in texts)
        return cls(onset.astype(float), duration.astype(float), label, stimulus)

    def __len__(self) -> int:
        return len(self.onset)

    def take(self, keep: NDArray[Any]) -> Events:
        """Keep some events: a boolean mask or positions."""
        times = self.onset[keep], self.duration[keep]
        return Events(*times, self.label[keep], self.stimulus[keep], self.left_out)

    def stimuli(self, ignore: Sequence[str] = (), keep: Sequence[str] = ()) -> Events:
        """Leave out what is no stimulus, and labels to ignore."""
        names = list(map(str, self.label))
        outside = {
            name
            for name in set(names)
            if name in (*MISSING, *ignore)
            or (name not in keep and names_no_stimulus(name))
        }
        kept = self.take(np.array([name not in outside for name in names], bool))
        left = ("n/a" if n in MISSING else n for n in names if n in outside)
        return replace(kept, left_out=dict(Counter(left)))


def names_no_stimulus(label: str, known: Sequence[str] = NOT_STIMULI) -> bool:
    """Return whether a label is one of :data:`NOT_STIMULI`, however it is written."""
    bare, *names = (re.sub(r"[\W\d_]", "", text.casefold()) for text in (label, *known))
    return any(bare in (name, f"{name}s", f"{name}es") for name in names)


def read_events(
    path: str | Path,
    *,
    label: str = "trial_type",
    stimulus: str | None = None,
    ignore: Sequence[str] = (),
    keep: Sequence[str] = (),
) -> Events:
    """Read an ``events.tsv``, by the columns named, without what is no stimulus."""
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
    ids = np.full(len(table), "")
    if stimulus is not None:
        shown = table[stimulus].str.strip().replace(list(MISSING), "")
        ids = shown.to_numpy(dtype=np.str_)
    events = Events(onset, duration, names, ids).stimuli(ignore, keep)
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


def match_volumes(
    events: Events, n_volumes: int, tr: float, hrf_delay: float = 5.0
) -> tuple[Codes, Mask]:
    """Return the event that each volume shows, -1 for none, and all that it lies under.

    Volume v lies under event e, in (n_events, n_volumes), when ``v * tr - hrf_delay``
    lies in ``[onset, onset + max(duration, tr))``. Of several, a volume shows the one
    that covers most of it: a button press takes nothing from the block it falls into.
    """
    begin = np.arange(n_volumes) * tr - hrf_delay
    onset, stop = events.onset[:, None], (events.onset + events.duration)[:, None]
    end = onset + np.maximum(events.duration, tr)[:, None] - _TIME_SLACK
    visible = (begin >= onset - _TIME_SLACK) & (begin < end)
    covered = np.minimum(begin + tr, stop) - np.maximum(begin, onset)
    covered = np.maximum(covered, 0.0)
    volume_event = np.full(n_volumes, -1, dtype=np.intp)
    most_covered = np.full(n_volumes, -1.0)
    for e in range(len(events)):
        here = visible[e] & (covered[e] >= most_covered - _TIME_SLACK)
        volume_event[here], most_covered[here] = e, covered[e, here]
    return volume_event, visible


def find_blocks(events: Events) -> Events:
    """Join neighbouring events of one category, at most 4 s apart, into blocks."""
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
    is_number = isinstance(value, int | float | np.number) and value is not True
    if not is_number or not _SHORTEST_TR <= value <= _LONGEST_TR:
        raise error(
            f"{where} is {value!r}; it must be a number of seconds (not milliseconds) "
            f"between {_SHORTEST_TR:g} and {_LONGEST_TR:g}."
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
    if apart > min(_TR_TOLERANCE, 0.5 / header.n_samples) * seconds:
        raise StudyError(
            f"{where} is {seconds:g} s, but the header of {image!r} says "
            f"{header.t_r:g} s. Correct one, or give t_r=... to overrule both."
        )
    return seconds


def check_events(events: Events, n_volumes: int, tr: float) -> int:
    """Count the events outside of their run; refuse times of another unit or run."""
    length = n_volumes * tr
    before = events.onset + np.maximum(events.duration, tr) <= 0
    outside = int(np.count_nonzero(before | (events.onset >= length)))
    longest = events.duration.max(initial=0.0)
    if longest > 2 * length or 2 * outside > len(events):
        raise StudyError(
            f"{outside} of {len(events)} events lie outside the run of {n_volumes} "
            f"volumes, {length:g} s, and the longest lasts {longest:g} s. Give seconds "
            "from the first volume, not milliseconds."
        )
    return outside


def trial_weights(
    events: Events, n_volumes: int, tr: float, *, usable: Mask, nuisance: Matrix
) -> Matrix:
    """Return weights (n_trials, n_volumes) that give one amplitude per trial.

    A model per trial (least squares separate, Mumford et al. 2012, NeuroImage 59) holds
    the trial, the sum of the other trials of each category, and the rest.
    """
    from nilearn.glm.first_level import compute_regressor

    times = np.arange(n_volumes) * tr
    regressors = np.empty((n_volumes, len(events)))
    for e in range(len(events)):
        condition = ([events.onset[e]], [events.duration[e]], [1.0])
        regressors[:, e] = compute_regressor(condition, "glover", times)[0][:, 0]
    regressors = regressors[usable]
    nuisance = nuisance[usable]
    weights = np.zeros((len(events), n_volumes))
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


def drift_columns(n_volumes: int, tr: float, high_pass: float | None) -> Matrix:
    """Return the cosines below a cut-off in Hz, without the constant."""
    from nilearn.glm.first_level import make_first_level_design_matrix

    times = np.arange(n_volumes) * tr
    drift_model = None if high_pass is None else "cosine"
    table = make_first_level_design_matrix(
        times, drift_model=drift_model, high_pass=high_pass
    )
    return table.drop(columns="constant").to_numpy(dtype=np.float64)


def standardized(columns: Matrix) -> Matrix:
    """Return columns with mean 0 and variance 1; those that are constant are zero."""
    centred = columns - columns.mean(axis=0)
    scale = centred.std(axis=0)
    return np.asarray(centred / np.where(scale > 0, scale, 1.0))


@dataclass(frozen=True)
class SamplePlan:
    """The samples of one run, before they are read.

    Labels and stimuli are empty where there is none. Samples are either the volumes
    `rows` as they are, or means of all volumes by `weights` (n_samples, n_volumes).
    `counts` tell what became of the events and volumes, for the record of a study.
    """

    labels: NDArray[np.str_]
    stimuli: NDArray[np.str_]
    onsets: NDArray[np.float64]
    rows: Codes | None = None
    weights: NDArray[np.float64] | None = None
    volume_event: Codes | None = None  # of each volume, -1 for none
    counts: dict[str, Any] = field(default_factory=dict, compare=False)

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
    sampling: Sampling | None = None,
    kept_volumes: Codes | None = None,
    confounds: Matrix | None = None,
    high_pass: float | None = DRIFT_CUTOFF,
) -> SamplePlan:
    """Plan the samples of one run; volumes other than `kept_volumes` are censored.

    `confounds` are columns of the trial models, whose drift terms stop at `high_pass`;
    from other samples they are removed before, with the drifts among them.
    """
    sampling, is_trials = sampling or Sampling(), samples == "trials"
    check_option("samples", samples, SAMPLES, owner="plan_samples")
    outside = check_events(events, n_volumes, tr)
    counts = {"events": len(events), "outside": outside, "volumes": n_volumes}
    usable = np.ones(n_volumes, dtype=bool)
    if kept_volumes is not None:
        usable = np.isin(np.arange(n_volumes), kept_volumes)
    if samples == "blocks":
        events = find_blocks(events)
    volume_event, visible = match_volumes(events, n_volumes, tr, sampling.hrf_delay)
    nuisance = np.empty((n_volumes, 0))
    confounds = np.empty((n_volumes, 0)) if confounds is None else confounds
    if is_trials or confounds.shape[1]:
        columns = [np.ones((n_volumes, 1)), drift_columns(n_volumes, tr, high_pass)]
        columns.append(standardized(confounds))
        nuisance = np.hstack(columns)
        counts |= _count_nuisance(volume_event, events.label, usable, nuisance)
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
        shown = events.take(sample_event)
        weights = trial_weights(shown, n_volumes, tr, usable=usable, nuisance=nuisance)
    if not is_trials:  # trials may share volumes
        categories = np.unique(events.label)
        under = [visible[events.label == c].any(axis=0) for c in categories]
        counts["shared_volumes"] = int((np.sum(under, axis=0) > 1).sum())
    return SamplePlan(
        # position -1, for rest, finds the empty text at the end
        np.append(events.label, "")[sample_event],
        np.append(events.stimulus, "")[sample_event],
        events.onset[sample_event] if rows is None else (rows * tr).astype(np.float64),
        rows,
        weights,
        volume_event,
        counts,
    )


def _count_nuisance(
    volume_event: Codes, labels: NDArray[Any], usable: Mask, nuisance: Matrix
) -> dict[str, Any]:
    """Count confounds and drifts, and the share of the categories that they explain."""
    # the first column is a constant
    removed, volume_event = nuisance[usable, 1:], volume_event[usable]
    removed = removed - removed.mean(axis=0)
    categories = np.append(labels, "")[volume_event][:, None] == np.unique(labels)
    courses = categories - categories.mean(axis=0)
    explained = removed @ (np.linalg.pinv(removed, rcond=1e-8) @ courses)
    n_columns, n_levels = removed.shape[1], len(np.unique(volume_event))
    return {
        "nuisance": n_columns,
        # of events that confounds are fitted with; 0: without
        "levels": n_levels if n_columns + n_levels <= ROOM * len(volume_event) else 0,
        "lost": round(float((explained**2).sum() / max((courses**2).sum(), 1e-12)), 3),
    }
