"""Whether times make sense: the repetition time of a run, and its events within it.

Milliseconds where seconds are due give a study with a few samples left, and no error
anywhere. So what a run states about time is compared with what else is known of it.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from brainweave.exceptions import InputError, StudyError
from brainweave.study.events import Events
from brainweave.study.spaces import RunHeader

__all__ = [
    "EventCounts",
    "agreed_tr",
    "check_events",
    "check_t_r_option",
    "checked_tr",
    "describe_losses",
]

# No scanner is faster, no protocol slower (sparse sampling takes 10 to 20 s a volume).
_SHORTEST_TR, _LONGEST_TR = 0.01, 100.0
# Two statements of one repetition time may differ by rounding, not more.
_TR_TOLERANCE = 0.01


@dataclass(frozen=True)
class EventCounts:
    """What became of the events of a run.

    Parameters
    ----------
    events : int
        Events that have a category.
    outside : int
        Of these, how many lie before or after the scan.
    unseen : int
        How many lie within it, but too late for a volume to show their response.
    shared_volumes : int
        Volumes under events of more than one category.
    overshadowed : int
        Events within the scan that got no volume, since others were preferred.
    """

    events: int = 0
    outside: int = 0
    unseen: int = 0
    shared_volumes: int = 0
    overshadowed: int = 0


def checked_tr(value: Any, where: str) -> float:
    """Return a repetition time in seconds, if it can be one.

    Parameters
    ----------
    value : object
        What was stated.
    where : str
        Who stated it, for messages.
    """
    if isinstance(value, bool) or not isinstance(value, int | float | np.number):
        raise StudyError(
            f"{where} is {value!r}, not a number. Write the seconds from one volume to "
            "the next, such as 2.0."
        )
    seconds = float(value)
    if not _SHORTEST_TR <= seconds <= _LONGEST_TR:
        hint = ""
        if _SHORTEST_TR <= seconds / 1000 <= _LONGEST_TR:
            hint = f" It looks like milliseconds: write {seconds / 1000:g}."
        raise StudyError(
            f"{where} is {seconds:g} s, which no run has: between {_SHORTEST_TR:g} and "
            f"{_LONGEST_TR:g} s are expected.{hint}"
        )
    return seconds


def agreed_tr(
    stated: float | None, where: str, header: RunHeader, image: str | Path
) -> float:
    """Return the repetition time of a run that its sidecar and its header agree on.

    Parameters
    ----------
    stated : float or None
        What a sidecar says, None if there is none.
    where : str
        Which file says so, for messages.
    header : RunHeader
        What the image's header says.
    image : path
        The image, for messages.
    """
    if stated is None and header.t_r is None:
        raise StudyError(
            f"{str(image)!r} has no repetition time, neither in a sidecar nor in its "
            "header. Add RepetitionTime to its JSON file, or give t_r=..."
        )
    if stated is None:
        return checked_tr(header.t_r, f"The repetition time in {str(image)!r}")
    stated = checked_tr(stated, where)
    if header.t_r is None or header.t_r_is_default:
        return stated
    apart = abs(stated - header.t_r)
    drift = apart * header.n_samples
    if apart > _TR_TOLERANCE * stated or drift > stated / 2:
        raise StudyError(
            f"{where} is {stated:g} s, but the header of {str(image)!r} says "
            f"{header.t_r:g} s. By the end of the run they are {drift:.3g} s apart. "
            "Correct the wrong one, or give t_r=... to overrule both."
        )
    return stated


def check_t_r_option(t_r: Any) -> float | None:
    """Check a repetition time that the user gave."""
    if t_r is None:
        return None
    try:
        return checked_tr(t_r, f"t_r={t_r!r}")
    except StudyError as error:
        raise InputError(str(error)) from None


def check_events(events: Events, n_volumes: int, tr: float) -> int:
    """Check that events fit their run, and count those that lie outside of it.

    Parameters
    ----------
    events : Events
        What was shown.
    n_volumes : int
        Number of volumes of the run.
    tr : float
        Seconds from one volume to the next.

    Returns
    -------
    int
        Events that end before the first volume or begin after the last one.

    Raises
    ------
    StudyError
        An event lasts more than twice as long as the run, or more than half of the
        events lie outside of it: the times are in another unit, or of another run.
    """
    length = n_volumes * tr
    if len(events) == 0:
        return 0
    longest = int(np.argmax(events.duration))
    if events.duration[longest] > 2 * length:
        raise StudyError(
            f"The event at {events.onset[longest]:g} s lasts "
            f"{events.duration[longest]:g} s, but the run has {n_volumes} volumes, "
            f"{length:g} s. Durations are in seconds{_unit(events.duration, length)}."
        )
    before = events.onset + np.maximum(events.duration, tr) <= 0
    outside = int(np.count_nonzero(before | (events.onset >= length)))
    if 2 * outside > len(events):
        raise StudyError(
            f"{outside} of {len(events)} events lie outside the run, which has "
            f"{n_volumes} volumes, {length:g} s; onsets go from "
            f"{events.onset.min():g} to {events.onset.max():g}. Onsets are in seconds "
            f"from the first volume{_unit(events.onset, length)}."
        )
    return outside


def _unit(times: Any, length: float) -> str:
    looks = 10 * length < times.max() <= 2000 * length
    return "; these look like milliseconds" if looks else ""


def describe_losses(
    counts: Iterable[tuple[str, EventCounts]], overlap: str
) -> list[str]:
    """Say in words what was lost or shared, for one warning each.

    Parameters
    ----------
    counts : iterable of (str, EventCounts)
        Name and counts of each run.
    overlap : str
        The rule that volumes under two events followed.
    """
    counts = list(counts)
    messages = []
    outside = [(name, c) for name, c in counts if c.outside]
    if outside:
        lost = sum(c.outside for _, c in outside)
        whole = sum(c.events for _, c in counts)
        messages.append(
            f"{lost} of {whole} events lie before or after their run and have no "
            f"sample: {_named((n, c.outside) for n, c in outside)}. Check their onsets."
        )
    shared = [(name, c) for name, c in counts if c.shared_volumes]
    if shared:
        volumes = sum(c.shared_volumes for _, c in shared)
        silent = sum(c.overshadowed for _, c in shared)
        messages.append(
            f"{volumes} volumes lie under events of more than one category "
            f"({_named((n, c.shared_volumes) for n, c in shared)}); "
            f"{_RULES[overlap]}, and {silent} events have no volume of their own. "
            "Leave events out with ignore=..., or choose another rule with overlap=..."
        )
    return messages


_RULES = {
    "longest": "each has the label of the event that covers most of it",
    "last": "each has the label of the event that began last",
    "drop": "none of them has a label",
}


def _named(counts: Iterable[tuple[str, int]], limit: int = 3) -> str:
    listed = [f"{name}: {count}" for name, count in counts]
    more = f" and {len(listed) - limit} more runs" if len(listed) > limit else ""
    return ", ".join(listed[:limit]) + more
