"""The clock of films: which moment of which film every sample shows.

A moment is the id ``"<film>@<seconds>"`` among the stimuli of a subject. Subjects who
were scanned at other times of the film are interpolated to the same moments.
"""

import re
from collections.abc import Iterable, Mapping
from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array

from brainweave._core.exceptions import InputError, StudyError, warn_user
from brainweave._core.validation import format_list
from brainweave.study.formats.events import check_tr
from brainweave.study.spaces import read_table
from brainweave.study.study import Study
from brainweave.study.subject import Subject, is_missing, moment, read_samples

# Of the time between two samples: clocks that differ by less are one clock, and samples
# further apart have others missing between them, over which nothing is interpolated.
_SAME, _GAP = 0.05, 1.5
_COLUMNS = {"onset": 0.0, "start": 0.0, "duration": np.inf}  # and their defaults


def film_clock(study: Study, films: Any = None) -> Study:
    """Put the samples of a film study on one clock.

    Every sample gets the id of the moment that it shows, such as ``"film@12.50"``, in
    ``Subject.stimuli``. Subjects with other repetition times, or whose scan began at
    another time of the film, are resampled by linear interpolation, with a warning:
    to the slowest clock, from the beginning of the film. Nothing is interpolated over
    volumes that are missing, or from one run to the next.

    Parameters
    ----------
    study : Study
        Its samples are volumes.
    films : "runs", mapping, DataFrame or path, optional
        What was shown in each run. ``"runs"``: one film per run, which begins with the
        run. A mapping of runs to films, or to ``(film, start)``. A table (``.tsv``)
        with columns ``run`` and ``film`` and, if needed, ``subject``, ``onset`` (second
        of the run at which the film begins, 0 by default), ``start`` (second of the
        film that is shown then, 0 by default) and ``duration``. By default the
        subjects' own stimuli.

    Returns
    -------
    Study
        The subjects, with the same ids at the same moments; volumes that show no film
        have no id, and are left out where a subject is resampled.

    Notes
    -----
    The time is that of the volume: the delay of the haemodynamic response, which all
    subjects have, is not subtracted.

    Examples
    --------
    >>> times = np.arange(0, 10, 2.5)
    >>> people = [Subject(id, np.ones((4, 1)), onsets=times) for id in ("01", "02")]
    >>> study = film_clock(Study(people), {1: ("Pieman", 60.0)})
    >>> study["01"].stimuli.tolist()
    ['Pieman@60.00', 'Pieman@62.50', 'Pieman@65.00', 'Pieman@67.50']
    >>> study["02"].times
    array([60. , 62.5, 65. , 67.5])
    """
    if films is not None:
        rows = _film_rows(study, films)
        study = study.map(lambda subject: _with_moments(subject, rows))
    problem = repeated_moment(study)
    if problem:
        raise StudyError(problem)
    study = _on_one_clock(study, _clocks(study))
    seen: set[str] = set()
    ranges = []
    for subject in study:
        if subject.stimuli is not None:
            listed = subject.stimuli[~is_missing(subject.stimuli)].tolist()
            if seen & set(listed):
                return study
            seen.update(listed)
            ranges.append(f"subject {subject.id!r} has {listed[0]!r} to {listed[-1]!r}")
    if len(study) > 1:
        raise StudyError(
            "No two subjects show the same moment of a film: "
            f"{format_list(ranges, 2, '; ')}. Check films' names, and times (seconds)."
        )
    return study


def clocked(study: Study, films: Any = None) -> Study:
    """Put a study that was read on one clock, if it shows films."""
    if films is None:
        if all(subject.films is None for subject in study):
            return study
        problem = repeated_moment(study)
        if problem:  # stimuli may be shown again
            warn_user(f"{problem} Moments stay as they are.")
            return study
    return film_clock(study, films)


def repeated_moment(study: Study) -> str:
    """Name the first moment that a subject has twice; empty text if there is none."""
    for subject in study:
        first: dict[str, int] = {}
        films: Any = () if subject.films is None else subject.films
        for row, film in enumerate(films):
            id = str(subject.stimuli[row])  # type: ignore[index]
            if film is not None and first.setdefault(id, row) != row:
                return (
                    f"Subject {subject.id!r} has the moment {id!r} twice, in samples "
                    f"{first[id]} and {row}. Give each showing of a film a name of its "
                    "own, or each run its start=..."
                )
    return ""


def _run_name(run: Any) -> str:
    """Return the name of a run for comparisons: run-01 is 1."""
    return re.sub(r"(?<!\d)0+(?=\d)", "", str(run)).removeprefix("run-")


def _film_rows(study: Study, films: Any) -> list[dict[str, Any]]:
    """Return what was shown when, a row per showing; checked."""
    import pandas as pd

    known = {_run_name(run): run for run in study.run_ids or [1]}
    where = "films"
    if isinstance(films, str) and films == "runs":
        runs = known.values()
        films = {run: run if isinstance(run, str) else f"run-{run}" for run in runs}
    elif isinstance(films, str | PathLike):
        where = f"{str(films)!r}"
        films = read_table(Path(films), dtype=str)
    if isinstance(films, Mapping):
        pairs = {r: f if isinstance(f, tuple) else (f, 0.0) for r, f in films.items()}
        shown = [(run, *pair) for run, pair in pairs.items()]
        films = pd.DataFrame(shown, columns=["run", "film", "start"])
    if not hasattr(films, "to_dict"):
        raise TypeError(
            'films must be "runs", a mapping of runs to films, a table or its path, '
            f"got {type(films).__name__}."
        )
    rows = []
    for number, given in enumerate(films.to_dict("records"), start=1):
        row: dict[str, Any] = {**_COLUMNS}
        row |= {name: cell for name, cell in given.items() if pd.notna(cell)}
        if not {"run", "film"} <= set(row):
            raise InputError(
                f"{where}: row {number} lacks a run or a film. Columns are run, film "
                f"and, if needed, subject, {', '.join(_COLUMNS)}."
            )
        if _run_name(row["run"]) not in known:
            raise InputError(
                f"{where}: no subject has run {row['run']!r}; there are "
                f"{format_list([repr(run) for run in known.values()], 5)}."
            )
        row["run"] = _run_name(row["run"])
        try:
            row |= {column: float(row[column]) for column in _COLUMNS}
            valid = row["start"] >= 0 and row["duration"] > 0
        except (TypeError, ValueError):
            valid = False
        if not valid:
            told = ", ".join(f"{column} {row[column]!r}" for column in _COLUMNS)
            raise InputError(
                f"{where}: row {number} has {told}. Give seconds: start from 0 (if the "
                "film began late in the run, that is its onset), duration above 0."
            )
        rows.append(row)
    return sorted(rows, key=lambda row: float(row["onset"]))


def _with_moments(subject: Subject, rows: Iterable[Mapping[str, Any]]) -> Subject:
    """Name the moments that a subject's samples show, by their runs and onsets."""
    if subject.onsets is None:
        raise StudyError(
            f"Subject {subject.id!r}: the times of its samples are not known. Give the "
            "repetition time, t_r=..."
        )
    runs = [1] * subject.n_samples if subject.runs is None else subject.runs
    names = np.array([_run_name(run) for run in runs])
    ids = np.full(subject.n_samples, None, object)
    for row in rows:
        who = str(row.get("subject", subject.id)).removeprefix("sub-")
        since = subject.onsets - row["onset"]
        # onsets are stated to a millisecond
        shown = (names == row["run"]) & (since > -1e-3) & (since < row["duration"])
        if who == subject.id.removeprefix("sub-"):
            times = since[shown] + row["start"]
            ids[shown] = [moment(row["film"], max(time, 0.0)) for time in times]
    return subject._replace(stimuli=ids)


def _clocks(study: Study) -> dict[str, dict[str, float]]:
    """Return the seconds between the samples of each film, by film and subject."""
    clocks: dict[str, dict[str, float]] = {}
    for subject in study:
        films, times = subject.films, subject.times
        if films is None or times is None:
            continue
        for film in dict.fromkeys(f for f in films if f is not None):
            steps = np.diff(np.sort(times[films == film]))
            if not len(steps):
                continue
            # ids are rounded: the mean over stretches without a gap is exact
            steps = steps[steps < _GAP * np.median(steps)]
            what = f"Subject {subject.id!r}: the time between samples of film {film!r}"
            seconds = check_tr(float(steps.mean()), what)
            clocks.setdefault(film, {})[subject.id] = seconds
    if not any(subject.films is not None for subject in study):
        raise StudyError(
            "No sample shows a moment of a film. Stimuli are named '<film>@<seconds>', "
            "such as 'film@12.50'; films=... makes such ids of runs."
        )
    return clocks


def _on_one_clock(study: Study, clocks: Mapping[str, Mapping[str, float]]) -> Study:
    """Name close moments alike; resample the films that subjects saw otherwise."""
    snapped: dict[str, tuple[float, float]] = {}  # by film, step and first moment
    resampled: dict[str, float] = {}  # by film, step
    for film, steps in clocks.items():
        people = [study[id].times[study[id].films == film] for id in steps]  # type: ignore[index]
        longest = int(np.argmax([len(times) for times in people]))
        step, first = list(steps.values())[longest], float(people[longest].min())
        same_step = np.allclose(list(steps.values()), step, rtol=_SAME, atol=0)
        times = np.unique(np.concatenate(people))
        apart, phases = np.diff(times), (times - first) / step
        off = np.abs(phases - np.round(phases)).max()
        if not same_step or off > max(_SAME, 0.01 / step):  # ids are rounded
            resampled[film] = max(steps.values())
        elif len(apart) and apart.min() < step / 2:
            snapped[film] = step, first
    if resampled:
        film, step = next(iter(resampled.items()))
        shown = [f"{id} every {s:.4g} s" for id, s in clocks[film].items()]
        warn_user(
            f"Film {film!r} was sampled at other times in other subjects "
            f"({format_list(shown, 3)}): {len(resampled)} of {len(clocks)} films are "
            f"interpolated, this one to one sample every {step:.4g} s. If subjects "
            "should agree, check t_r and the onsets of films."
        )
        record = {**(study.record or {}), "film_clock": resampled}
        study = Study([_resampled(s, resampled, clocks) for s in study], study.name)
        study.record = record
    return study.map(lambda subject: _snapped(subject, snapped)) if snapped else study


def _snapped(subject: Subject, grids: Mapping[str, tuple[float, float]]) -> Subject:
    """Name the moments of a subject by the nearest ones of grids."""
    films, times, ids = subject.films, subject.times, subject.stimuli
    if films is None or times is None or ids is None:
        return subject
    ids = ids.astype(object)
    for film, (step, first) in grids.items():
        here = films == film
        nearest = first + step * np.round((times[here] - first) / step)
        ids[here] = [moment(film, time) for time in nearest]
    return subject._replace(stimuli=ids)


def _resampled(
    subject: Subject, steps: Mapping[str, float], clocks: Mapping[str, Any]
) -> Subject:
    """Interpolate a subject's samples to the multiples of the steps of films."""
    films, times = subject.films, subject.times
    if films is None or times is None or not set(films) & set(steps):
        return subject
    runs = np.zeros(subject.n_samples) if subject.runs is None else subject.runs
    parts, ids = [], []  # (left, right, share of the right one) of each new sample
    for film in dict.fromkeys(f for f in films if f is not None):
        rows = np.flatnonzero(films == film)
        rows = rows[np.argsort(times[rows])]
        seconds = times[rows]
        grid, allowed = seconds, np.inf
        if film in steps:
            begin, end = np.round(seconds[[0, -1]] / steps[film], 6)
            grid = steps[film] * np.arange(np.ceil(begin), np.floor(end) + 1)
            allowed = _GAP * clocks[film].get(subject.id, np.inf)
        after = np.minimum(np.searchsorted(seconds, grid - 1e-6), len(rows) - 1)
        before = np.maximum(after - 1, 0)
        apart = seconds[after] - seconds[before]
        share = (grid - seconds[before]) / np.where(apart > 0, apart, 1.0)
        before = np.where(share > 1 - 1e-6, after, before)  # that very sample
        after = np.where(share < 1e-6, before, after)
        left, right = rows[before], rows[after]
        joined = (apart <= allowed) & (runs[left] == runs[right])
        use = (left == right) | joined
        parts.append(np.stack([left, right, share])[:, use])
        ids += [moment(film, time) for time in grid[use]]
    share, found = np.hstack(parts)[2], np.hstack(parts)[:2].astype(int)
    n_new = len(share)
    if not n_new:
        raise StudyError(
            f"Subject {subject.id!r} has no two neighbouring samples of a film to "
            "interpolate between. Leave it out."
        )
    entries = np.concatenate([1 - share, share])
    at = np.tile(np.arange(n_new), 2), found.ravel()
    weights = csr_array((entries, at), shape=(n_new, subject.n_samples))
    # what else is known is that of the nearer sample
    nearest = np.where(share < 0.5, *found)
    known = {
        name: None if (v := getattr(subject, name)) is None else v[nearest]
        for name in ("labels", "runs", "aligned")
    }
    onsets = None if subject.onsets is None else weights @ subject.onsets
    samples: Any = Interpolation(subject.samples, weights)
    if not subject.is_lazy:
        samples = samples.read()
    return subject._replace(samples=samples, stimuli=ids, onsets=onsets, **known)


class Interpolation:
    """Weighted sums of other samples, computed when they are read."""

    ndim = 2

    def __init__(self, parent: Any, weights: Any) -> None:
        self.parent, self.weights = parent, weights
        self.shape = weights.shape[0], int(parent.shape[1])
        single = getattr(parent, "dtype", None) == np.float32
        self.dtype = np.dtype(np.float32 if single else np.float64)

    def read(self) -> NDArray[Any]:
        """Read the parent and return the sums."""
        return np.asarray(self.weights.astype(self.dtype) @ read_samples(self.parent))
