"""The clock of a film: where the samples of all subjects lie by their stimulus ids.

An id is a whole number, or a text that ends in one: what stands before the number names
the film ("pieman:12" is time 12 of "pieman:"). Other texts are ordered as they appear.
"""

import re
from collections import Counter
from dataclasses import dataclass
from typing import Any

import numpy as np

from brainweave._core.arrays import Codes
from brainweave._core.exceptions import InputError
from brainweave.study.study import Study

LONGEST = 20  # places per time that anybody saw: more are no film, but codes


@dataclass(frozen=True)
class FilmClock:
    """Places on a common clock, one per time step, in which nobody may have a sample.

    `places` has the place of each sample of each subject, -1 without an id; `films`
    the number of the film at each place; `names` the films.
    """

    places: list[Codes]
    films: Codes
    names: list[str]

    @property
    def seen(self) -> Any:
        """Who has a sample at which place, as booleans (n_subjects, n_places)."""
        seen = np.zeros((len(self.places), self.films.size), bool)
        for own, places in zip(seen, self.places, strict=True):
            own[places[places >= 0]] = True
        return seen


def common_clock(study: Study) -> FilmClock | None:
    """Return the clock of a study, or None if the rows of all subjects correspond.

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
                return film_clock(ids, study.ids)
            shown = {"n_samples": f"{own} samples", "labels": "other categories"}
            raise InputError(
                f"The scored samples of subject {subject.id!r} differ from those of "
                f"{first.id!r} ({shown.get(what, 'other stimuli')}). This compares "
                "subjects sample by sample: give the stimulus id of every sample, as "
                "y or as stimuli of the subjects, so that what both saw is compared."
            )
    return None


def film_clock(ids: list[list[Any]], names: list[str]) -> FilmClock:
    """Put the ids of named subjects on a common clock.

    Examples
    --------
    >>> clock = film_clock([[3, 1, 2], [2, 5]], ["a", "b"])
    >>> [places.tolist() for places in clock.places], clock.films.size
    ([[2, 0, 1], [1, 4]], 5)
    """
    for name, own in zip(names, ids, strict=True):
        twice = [v for v, n in Counter(own).items() if n > 1 and v is not None]
        if twice:
            raise InputError(
                f"Subject {name!r} has the stimulus id {twice[0]!r} more than once; "
                "the ids of a film are unique within a subject."
            )
    everything = dict.fromkeys(v for own in ids for v in own if v is not None)
    parsed = {v: known for v in everything if (known := _film_and_time(v))}
    if len(parsed) < len(everything):  # in the order of the first who saw them
        parsed = {v: ("", float(i)) for i, v in enumerate(everything)}
    _check_units(ids, names, parsed)
    films = list(dict.fromkeys(film for film, _ in parsed.values()))
    place_of: dict[Any, int] = {}
    film_at: list[int] = []
    for number, film in enumerate(films):
        of_film = {v: time for v, (name, time) in parsed.items() if name == film}
        times = sorted(set(of_film.values()))
        step = np.median(np.diff(times)) if len(times) > 1 else 1
        on_grid = {t: round((t - times[0]) / step) for t in times}
        apart = len(set(on_grid.values())) == len(times)
        if not apart or max(on_grid.values()) > LONGEST * len(times):
            on_grid = {t: i for i, t in enumerate(times)}
        place_of |= {v: len(film_at) + on_grid[t] for v, t in of_film.items()}
        film_at += [number] * (1 + max(on_grid.values()))
    places = [np.array([place_of.get(v, -1) for v in own], np.intp) for own in ids]
    return FilmClock(places, np.array(film_at, np.intp), films)


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


def _film_and_time(value: Any) -> tuple[str, float] | None:
    if isinstance(value, int | float):
        return "", value
    found = re.fullmatch(r"(.*?)(\d+(?:\.\d+)?)", str(value), re.DOTALL)
    return None if found is None else (found[1], float(found[2]))


def _check_units(
    ids: list[list[Any]], names: list[str], parsed: dict[Any, Any]
) -> None:
    """Refuse subjects whose ids advance by different steps."""
    steps: dict[str, tuple[str, float]] = {}
    for name, own in zip(names, ids, strict=True):
        times: dict[str, list[float]] = {}
        for film, time in (parsed[v] for v in own if v is not None):
            times.setdefault(film, []).append(time)
        for film, known in times.items():
            if len(known) < 3:
                continue
            step = float(np.median(np.diff(sorted(known))))
            other, expected = steps.setdefault(film, (name, step))
            if not np.isclose(step, expected, rtol=0.01):
                raise InputError(
                    f"The stimulus ids of subject {name!r} advance by {step:g}, those "
                    f"of {other!r} by {expected:g}. Give them in one unit; samples of "
                    "another repetition time must be resampled to one clock."
                )
