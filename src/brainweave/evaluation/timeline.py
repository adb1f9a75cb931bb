"""The timeline of a film: where the samples of all subjects lie by their stimulus ids.

Ids are moments such as "film@12.5", or numbers; other texts come in the order in which
they first appear. Who was scanned at other times is resampled beforehand, by
:func:`brainweave.study.film_clock`.
"""

from collections import Counter
from dataclasses import dataclass
from typing import Any

import numpy as np

from brainweave._core.arrays import Codes, Matrix
from brainweave._core.exceptions import InputError
from brainweave._core.labels import object_array
from brainweave.study.study import Study
from brainweave.study.subject import split_moments

LONGEST = 20  # places per time that anybody saw: more are no film, but codes


@dataclass(frozen=True)
class Timeline:
    """Places, one per time step, in which nobody may have a sample.

    `places` has the place of each sample of each subject, -1 without an id; `films` the
    number of the film at each place; `names` the films.
    """

    places: list[Codes]
    films: Codes
    names: list[str]

    def place(self, x: Matrix, subject: int) -> Matrix:
        """Put the rows of a subject at their places among rows of NaN."""
        out = np.full((self.films.size, x.shape[1]), np.nan)
        known = self.places[subject] >= 0
        out[self.places[subject][known]] = x[known]
        return out

    @property
    def seen(self) -> Any:
        """Who has a sample at which place, as booleans (n_subjects, n_places)."""
        seen = np.zeros((len(self.places), self.films.size), bool)
        for own, places in zip(seen, self.places, strict=True):
            own[places[places >= 0]] = True
        return seen


def study_timeline(study: Study) -> Timeline:
    """Return the timeline of a study, by its rows unless these show something else.

    Refuses subjects whose samples differ while somebody has no ids.
    """
    first = study.subjects[0]
    for subject in study:
        for what in ("n_samples", "labels", "stimuli"):
            own, known = getattr(subject, what), getattr(first, what)
            if own is None or known is None or np.array_equal(own, known):
                continue
            if all(s.stimuli is not None for s in study):
                ids = [np.asarray(s.stimuli, object).tolist() for s in study]
                return timeline(ids, study.ids)
            shown = {"n_samples": f"{own} samples", "labels": "other categories"}
            raise InputError(
                f"The samples of subject {subject.id!r} differ from those of "
                f"{first.id!r} ({shown.get(what, 'other stimuli')}). This compares "
                "subjects sample by sample: give the stimulus id of every sample, as "
                "y or as stimuli of the subjects, so that what both saw is compared."
            )
    n = first.n_samples
    return Timeline([np.arange(n)] * len(study), np.zeros(n, np.intp), [])


def timeline(ids: list[list[Any]], names: list[str]) -> Timeline:
    """Put the ids of named subjects on a timeline.

    Examples
    --------
    >>> line = timeline([[3, 1, 2], [2, 5]], ["a", "b"])
    >>> [places.tolist() for places in line.places], line.films.size
    ([[2, 0, 1], [1, 4]], 5)
    """
    held = Counter(v for own in ids for v in own if v is not None)
    films, times = _films_and_times(list(held))
    moments = dict(zip(held, zip(films, times, strict=True), strict=True))
    for name, own in zip(names, ids, strict=True):
        twice = [v for v, n in Counter(own).items() if n > 1 and v is not None]
        if twice:
            raise InputError(
                f"Subject {name!r} has the stimulus id {twice[0]!r} more than once; "
                "the ids of a film are unique within a subject."
            )
    listed = list(dict.fromkeys(films))
    for film in listed:
        _check_units(film, ids, names, moments, held)
    place_of: dict[Any, int] = {}
    film_at: list[int] = []
    for number, film in enumerate(listed):
        of_film = {v: time for v, (name, time) in moments.items() if name == film}
        seconds = np.unique(list(of_film.values()))
        step = np.median(np.diff(seconds)) if seconds.size > 1 else 1
        grid = np.round((seconds - seconds[0]) / step).astype(int)
        if (np.diff(grid) == 0).any() or grid[-1] > LONGEST * seconds.size:
            grid = np.arange(seconds.size)
        at = dict(zip(seconds.tolist(), (grid + len(film_at)).tolist(), strict=True))
        place_of |= {v: at[time] for v, time in of_film.items()}
        film_at += [number] * (1 + int(grid[-1]))
    places = [np.array([place_of.get(v, -1) for v in own], np.intp) for own in ids]
    return Timeline(places, np.array(film_at, np.intp), listed)


def _films_and_times(ids: list[Any]) -> tuple[list[str], list[float]]:
    if all(isinstance(v, int | float) for v in ids):
        return [""] * len(ids), [float(v) for v in ids]
    found = split_moments(object_array(ids))
    if found is None or None in found[0].tolist():
        return [""] * len(ids), [float(i) for i in range(len(ids))]
    return found[0].tolist(), found[1].tolist()


def _check_units(
    film: str, ids: list[list[Any]], names: list[str], moments: Any, held: Any
) -> None:
    """Refuse a subject whose ids advance by longer steps, to where nobody else is."""
    steps = []
    for name, own in zip(names, ids, strict=True):
        of_film = [v for v in own if v is not None and moments[v][0] == film]
        if len(of_film) > 2:
            step = np.diff(sorted(moments[v][1] for v in of_film)).min()
            alone = sum(held[v] == 1 for v in of_film)
            steps.append((step, name, alone > 0.1 * len(of_film)))
    for step, name, elsewhere in steps:
        least, other, _ = min(steps)
        if elsewhere and step > 1.05 * least:  # ids may be rounded
            raise InputError(
                f"The stimulus ids of subject {name!r} advance by {step:g}, those of "
                f"{other!r} by {least:g}. Give them in one unit; samples of another "
                "repetition time must be resampled to one clock (film_clock)."
            )


def refuse_strangers(seen: Any, ids: list[Any], names: list[str]) -> None:
    """Refuse a subject none of whose samples anybody else has."""
    for i, own in enumerate(seen):
        if (own & np.delete(seen, i, axis=0).any(axis=0)).any():
            continue
        rest = next(k for j, k in enumerate(ids) if j != i)
        raise InputError(
            f"Subject {names[i]!r} has no stimulus id in common with the others: it "
            f"has {ids[i][0]!r} to {ids[i][-1]!r}, subject {names[not i]!r} has "
            f"{rest[0]!r} to {rest[-1]!r}. Give the ids of all in one form and unit."
        )
