"""The record of how a BIDS dataset became a study, in plain values."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from brainweave._version import __version__
from brainweave.study.formats.bids.files import BidsRun
from brainweave.study.formats.image_files import image_name
from brainweave.study.formats.runs.runs import Run
from brainweave.study.formats.runs.sampling import SamplePlan
from brainweave.study.subject import Subject

__all__ = ["PlannedRun", "make_record"]


@dataclass(frozen=True)
class PlannedRun:
    """A run of a BIDS dataset, and the samples that it will give.

    Parameters
    ----------
    run : BidsRun
        Its files.
    source : Run
        How it is read.
    plan : SamplePlan
        Its samples.
    tr : float
        Its repetition time in seconds.
    n_volumes, n_scrubbed : int
        Its volumes, and how many of them are left out for motion.
    confounds : tuple of str
        The columns that are removed.
    """

    run: BidsRun
    source: Run
    plan: SamplePlan
    tr: float
    n_volumes: int
    n_scrubbed: int
    confounds: tuple[str, ...] = ()


def make_record(
    subjects: Sequence[Subject],
    planned: Mapping[str, Sequence[PlannedRun]],
    *,
    without_events: Mapping[str, Sequence[str]],
    settings: Mapping[str, Any],
) -> dict[str, Any]:
    """Tell what was done to the data, in values that JSON can hold.

    Parameters
    ----------
    subjects : sequence of Subject
        What was read.
    planned : mapping of str to sequence of PlannedRun
        The runs of each subject.
    without_events : mapping of str to sequence of str
        Per subject, the files that were left out since they have no events.
    settings : mapping of str to object
        What was asked for.
    """
    by_run = {
        id: {str(p.run.run): _run_record(p) for p in runs}
        for id, runs in planned.items()
    }
    everywhere = {run for runs in by_run.values() for run in runs}
    return {
        "brainweave": __version__,
        "settings": {name: plain(value) for name, value in settings.items()},
        "confounds": list(
            dict.fromkeys(n for ps in planned.values() for p in ps for n in p.confounds)
        ),
        "runs": by_run,
        "missing_runs": {
            id: sorted(everywhere - set(runs))
            for id, runs in by_run.items()
            if everywhere - set(runs)
        },
        "runs_without_events": {
            id: list(names) for id, names in without_events.items() if names
        },
        "samples": {s.id: _samples_by_category(s) for s in subjects},
    }


def _run_record(planned: PlannedRun) -> dict[str, Any]:
    return {
        "file": planned.run.path.name,
        "t_r": planned.tr,
        "volumes": planned.n_volumes,
        "scrubbed": planned.n_scrubbed,
        "confounds": len(planned.confounds),
        "samples": len(planned.plan),
        **asdict(planned.plan.counts),
    }


def _samples_by_category(subject: Subject) -> dict[str, int]:
    labels = [None] * subject.n_samples if subject.labels is None else subject.labels
    counts = Counter("n/a" if label is None else str(label) for label in labels)
    return dict(sorted(counts.items()))


def plain(value: Any) -> Any:
    """Return a setting as JSON can hold it; images become their names."""
    if value is None or isinstance(value, bool | int | float | str):
        return value
    if isinstance(value, np.generic):
        return value.item()
    if isinstance(value, Mapping):
        return {str(key): plain(entry) for key, entry in value.items()}
    if isinstance(value, list | tuple | set | frozenset):
        return [plain(entry) for entry in value]
    return str(image_name(value))
