"""From the volumes of a run to its samples, in one of three ways.

Every way is linear in the volumes, and what it does depends on the events alone. So it
is planned before anything heavy is read: a :class:`SamplePlan` knows the labels of the
samples at once, and turns volumes into samples later.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from brainweave.exceptions import InputError
from brainweave.study.events import (
    Events,
    event_volumes,
    find_blocks,
    match_volumes,
    name_positions,
    shared_volumes,
)
from brainweave.study.timing import EventCounts, check_events
from brainweave.study.trials import trial_weights

__all__ = ["DRIFT_CUTOFF", "SAMPLES", "SamplePlan", "check_samples", "plan_samples"]

#: The ways to make samples.
SAMPLES = ("volumes", "blocks", "trials", "trials-lsa", "trials-lss")

#: Where the drift terms of trial models stop, in Hz.
DRIFT_CUTOFF = 1 / 128


@dataclass(frozen=True)
class SamplePlan:
    """The samples of one run, before they are read.

    Parameters
    ----------
    labels, stimuli : ndarray of str of shape (n_samples,)
        Category and stimulus of each sample, empty where there is none.
    onsets : ndarray of shape (n_samples,)
        Seconds from the first volume of the run: of the volume, or of the event.
    rows : ndarray of int or None
        The volumes that are samples as they are.
    weights : ndarray of shape (n_samples, n_volumes) or None
        Otherwise, what each volume gives to each sample.
    counts : EventCounts
        What became of the events.
    """

    labels: NDArray[np.str_]
    stimuli: NDArray[np.str_]
    onsets: NDArray[np.float64]
    rows: NDArray[np.int64] | None = None
    weights: NDArray[np.float64] | None = None
    counts: EventCounts = field(default=EventCounts(), compare=False)

    def __len__(self) -> int:
        return len(self.labels)

    def take(self, keep: NDArray[Any]) -> SamplePlan:
        """Keep some samples: a boolean mask or positions."""
        return SamplePlan(
            self.labels[keep],
            self.stimuli[keep],
            self.onsets[keep],
            None if self.rows is None else self.rows[keep],
            None if self.weights is None else self.weights[keep],
            self.counts,
        )

    def apply(self, volumes: NDArray[Any]) -> NDArray[Any]:
        """Turn volumes (n_volumes, n_voxels) into samples (n_samples, n_voxels)."""
        if self.weights is not None:
            weights = self.weights.astype(volumes.dtype, copy=False)
            return np.asarray(weights @ volumes)
        return np.asarray(volumes[self.rows])


def check_samples(samples: str) -> str:
    """Check the name of a way to make samples."""
    if samples not in SAMPLES:
        raise InputError(
            f"samples={samples!r} is not known; choose one of "
            f"{', '.join(map(repr, SAMPLES))}."
        )
    return samples


def plan_samples(
    events: Events,
    n_volumes: int,
    tr: float,
    *,
    samples: str = "volumes",
    hrf_delay: float = 5.0,
    keep_rest: bool = False,
    name_moments: bool = False,
    kept_volumes: NDArray[np.int64] | None = None,
    confounds: NDArray[np.float64] | None = None,
    hrf_model: str = "glover",
    high_pass: float | None = DRIFT_CUTOFF,
    max_gap: float = 4.0,
    overlap: str = "longest",
) -> SamplePlan:
    """Plan the samples of one run.

    Parameters
    ----------
    events : Events
        What was shown.
    n_volumes : int
        Number of volumes of the run.
    tr : float
        Seconds from one volume to the next.
    samples : {"volumes", "blocks", "trials", "trials-lsa", "trials-lss"}
        Every volume that shows an event; the mean of each block's volumes; or one
        estimate of a general linear model per trial, with all trials in one model
        (``"trials-lsa"``, also ``"trials"``) or a model per trial (``"trials-lss"``).
    hrf_delay : float, default=5.0
        Seconds from a stimulus to its response, for volumes and blocks.
    keep_rest : bool, default=False
        Whether volumes without an event are samples, too, without a label.
    name_moments : bool, default=False
        Whether the stimulus of a volume names the moment in it (``"scene@2.50"``).
    kept_volumes : ndarray of int or None
        The volumes that may be used; others are censored. None for all.
    confounds : ndarray of shape (n_volumes, n_confounds) or None
        Further columns of the trial models.
    hrf_model : str, default="glover"
        The response of the trial models, one of nilearn's.
    high_pass : float or None, default=1/128
        Cut-off of the trial models' drift terms, in Hz; None for none.
    max_gap : float, default=4.0
        See :func:`brainweave.study.events.find_blocks`.
    overlap : {"longest", "last", "drop", "error"}, default="longest"
        Which event a volume shows where it lies under several, for volumes and
        blocks; see :func:`brainweave.study.events.match_volumes`.

    Raises
    ------
    StudyError
        The events do not fit the run (:func:`brainweave.study.timing.check_events`).
    """
    check_samples(samples)
    counts = EventCounts(len(events), check_events(events, n_volumes, tr))
    usable = np.ones(n_volumes, dtype=bool)
    if kept_volumes is not None:
        usable[:] = False
        usable[kept_volumes] = True
    if samples == "blocks":
        events = find_blocks(events, max_gap=max_gap)
    shows = event_volumes(events, n_volumes, tr, hrf_delay=hrf_delay)
    counts = replace(counts, unseen=_count_unseen(events, shows, n_volumes * tr))
    if samples.startswith("trials"):
        # a model tells overlapping trials apart; those not scanned it cannot estimate
        seen = np.flatnonzero((shows & usable).any(axis=1))
        weights = trial_weights(
            events.take(seen),
            n_volumes,
            tr,
            separate=samples == "trials-lss",
            usable=usable,
            confounds=confounds,
            hrf_model=hrf_model,
            high_pass=high_pass,
        )
        return _plan_events(events, seen, weights, counts)
    shown = match_volumes(events, n_volumes, tr, hrf_delay=hrf_delay, overlap=overlap)
    got_none = shows.any(axis=1) & ~np.isin(np.arange(len(events)), shown)
    counts = replace(
        counts,
        shared_volumes=int(np.count_nonzero(shared_volumes(events, shows))),
        overshadowed=int(np.count_nonzero(got_none)),
    )
    if samples == "volumes":
        plan = _plan_volumes(
            events,
            shown,
            usable,
            tr,
            hrf_delay=hrf_delay,
            keep_rest=keep_rest,
            name_moments=name_moments,
        )
        return replace(plan, counts=counts)
    shown = np.where(usable, shown, -1)
    seen = np.unique(shown[shown >= 0])
    weights = np.zeros((len(seen), n_volumes))
    for row, e in enumerate(seen):
        weights[row, shown == e] = 1.0 / np.count_nonzero(shown == e)
    return _plan_events(events, seen, weights, counts)


def _count_unseen(events: Events, shows: NDArray[np.bool_], length: float) -> int:
    """Count events within the run that no volume shows: they came too late."""
    within = (events.onset < length) & (events.onset + events.duration >= 0)
    return int(np.count_nonzero(within & ~shows.any(axis=1)))


def _plan_events(
    events: Events,
    seen: NDArray[np.intp],
    weights: NDArray[np.float64],
    counts: EventCounts,
) -> SamplePlan:
    stimuli = np.full(len(events), "") if events.stimulus is None else events.stimulus
    return SamplePlan(
        events.label[seen],
        stimuli[seen],
        events.onset[seen],
        weights=weights,
        counts=counts,
    )


def _plan_volumes(
    events: Events,
    shown: NDArray[np.int64],
    usable: NDArray[np.bool_],
    tr: float,
    *,
    hrf_delay: float,
    keep_rest: bool,
    name_moments: bool,
) -> SamplePlan:
    rows = np.flatnonzero(usable if keep_rest else usable & (shown >= 0))
    n_volumes = len(shown)
    # position -1, for rest, finds the empty text at the end
    labels = np.append(events.label, "")[shown]
    if name_moments:
        stimuli = name_positions(events, shown, tr, hrf_delay=hrf_delay)
    elif events.stimulus is None:
        stimuli = np.full(n_volumes, "")
    else:
        stimuli = np.append(events.stimulus, "")[shown]
    return SamplePlan(
        labels[rows], stimuli[rows], (rows * tr).astype(np.float64), rows=rows
    )
