"""What a subject saw and when, and the samples that follow from it.

Events are the rows of a BIDS ``events.tsv``: an onset, a duration, a category and, if
there is one, a stimulus. :mod:`brainweave.study.sampling` turns them into samples.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from brainweave._validation import check_list_option, check_option
from brainweave.exceptions import InputError, StudyError

if TYPE_CHECKING:
    import pandas as pd

__all__ = [
    "MISSING",
    "OVERLAPS",
    "Events",
    "event_volumes",
    "find_blocks",
    "match_volumes",
    "name_positions",
    "read_events",
    "shared_volumes",
]

#: Rules for volumes under several events.
OVERLAPS = ("longest", "last", "drop", "error")

#: What an empty cell of an ``events.tsv`` may hold.
MISSING = frozenset({"", "n/a", "N/A", "NA", "nan", "NaN", "None"})

# Times in events files are rounded to milliseconds or less; a volume that starts within
# this many seconds of a boundary counts as being on it.
_TIME_SLACK = 1e-3


@dataclass(frozen=True)
class Events:
    """The events of one run, sorted by onset.

    Parameters
    ----------
    onset, duration : ndarray of shape (n_events,)
        Seconds from the first volume of the run.
    label : ndarray of shape (n_events,)
        The category of each event, as text.
    stimulus : ndarray of shape (n_events,) or None
        What was shown, as text; empty text where it is not known.

    Examples
    --------
    >>> events = Events.from_rows([(6.0, 2.0, "face"), (0.0, 2.0, "house")])
    >>> events.label.tolist()
    ['house', 'face']
    """

    onset: NDArray[np.float64]
    duration: NDArray[np.float64]
    label: NDArray[np.str_]
    stimulus: NDArray[np.str_] | None = None

    @classmethod
    def from_rows(cls, rows: Iterable[Sequence[Any]]) -> Events:
        """Sort rows of onset, duration, label and, if there is one, stimulus."""
        table = sorted(rows, key=lambda row: float(row[0]))
        known = bool(table) and len(table[0]) > 3
        return cls(
            onset=np.array([row[0] for row in table], dtype=np.float64),
            duration=np.array([row[1] for row in table], dtype=np.float64),
            label=np.array([str(row[2]) for row in table], dtype=np.str_),
            stimulus=np.array([str(row[3]) for row in table], dtype=np.str_)
            if known
            else None,
        )

    def __len__(self) -> int:
        return len(self.onset)

    def take(self, keep: NDArray[Any]) -> Events:
        """Keep some events: a boolean mask or positions."""
        return Events(
            self.onset[keep],
            self.duration[keep],
            self.label[keep],
            None if self.stimulus is None else self.stimulus[keep],
        )


def read_events(
    path: str | Path,
    *,
    label: str = "trial_type",
    stimulus: str | None = None,
    ignore: Sequence[str] | str = (),
) -> Events:
    """Read a BIDS ``events.tsv``.

    Rows whose label is missing (``n/a``) or listed in `ignore` are rest and are left
    out. A missing duration counts as zero.

    Parameters
    ----------
    path : path
        The file, tab-separated, with at least ``onset`` and ``duration``.
    label : str, default="trial_type"
        The column that holds the category.
    stimulus : str or None, default=None
        The column that holds the stimulus id, for instance ``"stim_file"``.
    ignore : sequence of str
        Labels that mean "no category", such as ``"rest"``.

    Raises
    ------
    StudyError
        The file is empty, or not a table, or lacks a column that was asked for.
    """
    table = _read_table(Path(path))
    for column in ("onset", "duration", label, stimulus):
        if column is not None and column not in table.columns:
            raise StudyError(
                f"{path} has no column {column!r}; its columns are "
                f"{', '.join(map(repr, table.columns))}. {_way_out(column, label)}"
            )
    onset = _numbers(table, "onset", path)
    duration = np.nan_to_num(_numbers(table, "duration", path), nan=0.0)
    names = table[label].str.strip().to_numpy(dtype=np.str_)
    ids = (
        None
        if stimulus is None
        else np.array(
            ["" if s.strip() in MISSING else s.strip() for s in table[stimulus]],
            dtype=np.str_,
        )
    )
    ignored = map(str, check_list_option("ignore", ignore, "read_events"))
    named = ~np.isin(names, [*MISSING, *ignored])
    if np.isnan(onset[named]).any():
        row = int(np.flatnonzero(named & np.isnan(onset))[0])
        raise StudyError(f"{path}: the onset in row {row + 1} is missing.")
    wrong = named & ~(np.isfinite(onset) & np.isfinite(duration) & (duration >= 0))
    if wrong.any():
        row = int(np.flatnonzero(wrong)[0])
        raise StudyError(
            f"{path}: the event in row {row + 1} begins at {onset[row]:g} s and lasts "
            f"{duration[row]:g} s. An event needs an onset and a duration of zero or "
            'more; write "n/a" for a duration that is not known.'
        )
    events = Events(onset, duration, names, ids).take(named)
    return events.take(np.argsort(events.onset, kind="stable"))


def _read_table(path: Path) -> pd.DataFrame:
    import pandas as pd

    try:
        table = pd.read_csv(path, sep="\t", dtype=str, keep_default_na=False)
    except pd.errors.EmptyDataError:
        raise StudyError(
            f"{path} is empty: not even a header. Write the events, or remove the run "
            "(a run without any events file is left out with a note)."
        ) from None
    except (pd.errors.ParserError, UnicodeDecodeError) as error:
        raise StudyError(f"{path} is not a tab-separated table: {error}.") from None
    if len(table) == 0:
        raise StudyError(
            f"{path} has a header but no events. Write the events, or leave the run "
            "out."
        )
    return table


def _way_out(column: str, label: str) -> str:
    if column in ("onset", "duration"):
        return "BIDS wants it in every events file."
    option = "label" if column == label else "stimulus"
    return f"Choose one of them with {option}=..."


def _numbers(table: pd.DataFrame, column: str, path: str | Path) -> NDArray[np.float64]:
    values = np.empty(len(table))
    for row, text in enumerate(table[column]):
        try:
            values[row] = np.nan if text.strip() in MISSING else float(text)
        except ValueError:
            raise StudyError(
                f"{path}: the {column} in row {row + 1} is {text!r}, not a number."
            ) from None
    return values


def event_volumes(
    events: Events, n_volumes: int, tr: float, *, hrf_delay: float = 5.0
) -> NDArray[np.bool_]:
    """Say which volumes show each event, as an array (n_events, n_volumes).

    Volume v starts at ``v * tr`` and shows event e when ``v * tr - hrf_delay`` lies in
    ``[onset, onset + max(duration, tr))``: the response lags the stimulus by
    `hrf_delay` seconds, and an event shorter than a volume still gets one.
    """
    if not tr > 0:
        raise InputError(f"tr={tr!r} must be a positive number of seconds.")
    if n_volumes < 0:
        raise InputError(f"n_volumes={n_volumes} must not be negative.")
    times = np.arange(n_volumes) * tr - hrf_delay
    stop = events.onset + np.maximum(events.duration, tr)
    begun = times >= events.onset[:, None] - _TIME_SLACK
    return np.asarray(begun & (times < stop[:, None] - _TIME_SLACK))


def shared_volumes(events: Events, shows: NDArray[np.bool_]) -> NDArray[np.bool_]:
    """Mark the volumes under events of more than one category."""
    _, category = np.unique(events.label, return_inverse=True)
    n_categories = int(category.max()) + 1 if len(category) else 0
    shown = np.zeros((n_categories, shows.shape[1]), dtype=bool)
    for e, c in enumerate(category):
        shown[c] |= shows[e]
    return np.asarray(shown.sum(axis=0) > 1)


def match_volumes(
    events: Events,
    n_volumes: int,
    tr: float,
    *,
    hrf_delay: float = 5.0,
    overlap: str = "longest",
) -> NDArray[np.int64]:
    """Say which event each volume shows, -1 for none.

    See :func:`event_volumes` for when a volume shows an event. Where it shows several,
    `overlap` decides.

    Parameters
    ----------
    events : Events
        What was shown.
    n_volumes : int
        Number of volumes of the run.
    tr : float
        Seconds from one volume to the next.
    hrf_delay : float, default=5.0
        Seconds from a stimulus to its response.
    overlap : {"longest", "last", "drop", "error"}, default="longest"
        Which event counts where several do: the one that covers most of the volume
        (of equals the one that began last), so that a button press takes nothing from
        the block it falls into; the one that began last; none, where their categories
        differ; or an error in that case.

    Examples
    --------
    >>> events = Events.from_rows([(0.0, 4.0, "face"), (8.0, 0.5, "house")])
    >>> match_volumes(events, n_volumes=8, tr=2.0, hrf_delay=4.0).tolist()
    [-1, -1, 0, 0, -1, -1, 1, -1]
    """
    check_option("overlap", overlap, OVERLAPS, owner="match_volumes")
    shows = event_volumes(events, n_volumes, tr, hrf_delay=hrf_delay)
    begin = np.arange(n_volumes) * tr - hrf_delay
    found = np.full(n_volumes, -1, dtype=np.int64)
    most = np.full(n_volumes, -1.0)
    stop = events.onset + events.duration
    for e in np.argsort(events.onset, kind="stable"):
        covered = np.minimum(begin + tr, stop[e]) - np.maximum(begin, events.onset[e])
        covered = np.maximum(covered, 0.0)
        here = shows[e]
        if overlap != "last":
            here = here & (covered >= most - _TIME_SLACK)
        found[here], most[here] = e, covered[here]
    if overlap in ("drop", "error"):
        shared = shared_volumes(events, shows)
        if overlap == "error" and shared.any():
            first = int(np.flatnonzero(shared)[0])
            both = sorted(set(events.label[shows[:, first]].tolist()))
            raise StudyError(
                f"{np.count_nonzero(shared)} volumes lie under events of more than one "
                f"category, the first is volume {first} ({', '.join(both)}). Leave "
                "events out with ignore=..., or choose a rule with overlap=..."
            )
        found[shared] = -1
    return found


def name_positions(
    events: Events,
    event_of_volume: NDArray[np.int64],
    tr: float,
    *,
    hrf_delay: float = 5.0,
) -> NDArray[np.str_]:
    """Name each volume by its stimulus and the seconds into it: ``"scene-3@2.50"``.

    Volumes with the same name, in whichever subject, show the same moment of the same
    stimulus, which is what ``GDM(graph="time")`` and ``match_samples`` need. Volumes
    without an event get empty text.
    """
    what = events.label if events.stimulus is None else events.stimulus
    names = []
    for v, e in enumerate(event_of_volume):
        if e < 0:
            names.append("")
        else:
            seconds = max(v * tr - hrf_delay - events.onset[e], 0.0)
            names.append(f"{what[e]}@{seconds:.2f}")
    return np.array(names, dtype=np.str_)


def find_blocks(events: Events, *, max_gap: float = 4.0) -> Events:
    """Join neighbouring events of one category into blocks.

    Many events files list every picture of a block. Events with the same label, with
    no other event between them and at most `max_gap` seconds from the end of one to
    the onset of the next, are one block, named after its first stimulus.

    Examples
    --------
    >>> pictures = Events.from_rows([(0, 1, "face"), (2, 1, "face"), (20, 1, "face")])
    >>> blocks = find_blocks(pictures)
    >>> blocks.onset.tolist(), blocks.duration.tolist()
    ([0.0, 20.0], [3.0, 1.0])
    """
    if len(events) == 0:
        return events
    order = np.argsort(events.onset, kind="stable")
    sorted_events = events.take(order)
    stop = sorted_events.onset + sorted_events.duration
    first: list[int] = [0]
    ends: list[float] = [float(stop[0])]
    for e in range(1, len(sorted_events)):
        same = sorted_events.label[e] == sorted_events.label[e - 1]
        if same and sorted_events.onset[e] - ends[-1] <= max_gap + _TIME_SLACK:
            ends[-1] = max(ends[-1], float(stop[e]))
        else:
            first.append(e)
            ends.append(float(stop[e]))
    blocks = sorted_events.take(np.array(first))
    return Events(blocks.onset, ends - blocks.onset, blocks.label, blocks.stimulus)
