"""The chapters on films: who saw what, and what people share over time."""

from types import SimpleNamespace
from typing import Any

import numpy as np

from brainweave.evaluation.comparison import percent
from brainweave.evaluation.isc import inter_subject_correlation
from brainweave.evaluation.metrics import (
    average_seen,
    averages_of_others,
    known_mean,
    row_means,
    segment_hits,
)
from brainweave.plotting import films as drawn
from brainweave.plotting import plot_accuracy
from brainweave.plotting.films import Timeline
from brainweave.plotting.style import subject_name
from brainweave.report.elements import TEXTS, Element, Section, Table
from brainweave.report.inputs import Inputs

MAX_COURSES = 6  # features drawn over time
WINDOW = 9  # samples of a segment


def coverage(inputs: Inputs, film: Timeline) -> Element:
    """Draw who saw which part of the films."""
    seen, n = film.seen, film.films.size
    everyone = int(seen.all(axis=0).sum())
    rows = [[film.name(t), *map(int, seen[:, t])] for t in range(n)]
    return Element.make(
        "coverage",
        {"n": n, "all": everyone, "share": percent(everyone / n)},
        figure=drawn.plot_coverage(film, names=inputs.names),
        data=Table(["time", *inputs.names], rows),
    )


def film_section(inputs: Inputs) -> Section | None:
    """Show shared features over the film, and, of held-out samples, how alike."""
    film, shared = inputs.film, inputs.shared
    if film is None or shared is None:
        return None
    # features of each half come from a model of the other, of a scale of its own
    shared = film.standardized(shared)
    elements: list[Element | None] = [_time_courses(film, shared)]
    if inputs.drawn == "not align":
        elements.append(_correlations(inputs, film, shared))
        elements.append(_by_time(film, shared))
    texts = TEXTS["drawn"]
    told = texts["film, not align" if inputs.drawn == "not align" else "film, aligned"]
    return Section.make("film", elements, drawn=told)


def _time_courses(film: Timeline, shared: list[Any]) -> Element:
    k = min(shared[0].shape[1], MAX_COURSES)
    mean = average_seen(film.lay(shared))
    columns = ["time", *(f"feature {i}" for i in range(mean.shape[1]))]
    return Element.make(
        "time-courses",
        {"k": k, "all": shared[0].shape[1]},
        figure=drawn.plot_time_courses(shared, film, components=range(k)),
        data=Table(columns, [[film.name(t), *row] for t, row in enumerate(mean)]),
    )


def _correlations(inputs: Inputs, film: Timeline, shared: list[Any]) -> Element | None:
    ids = [[None if t < 0 else t for t in own.tolist()] for own in film.places]
    found = inter_subject_correlation(shared, ids).T
    # NaN where a feature does not vary in a person: no zero of the mean
    known = [own[np.isfinite(own)] for own in found]
    bars = {
        f"feature {k}": SimpleNamespace(scores=scores, chance=0.0, score="isc")
        for k, scores in enumerate(known)
        if scores.size
    }
    if not bars:
        return None
    names = [subject_name(name) for name in inputs.names]
    rows = [[k, known_mean(own), *own] for k, own in enumerate(found)]
    return Element.make(
        "correlations",
        figure=plot_accuracy(bars),
        data=Table(["feature", "mean", *names], rows),
    )


def _by_time(film: Timeline, shared: list[Any]) -> Element | None:
    laid = film.lay(shared)
    if film.films.size < 2 * WINDOW:
        return None
    how: Any = {"window": WINDOW, "step": WINDOW, "films": film.films}
    pairs = zip(laid, averages_of_others(laid), strict=True)
    hits, chances = np.array([segment_hits(*pair, **how) for pair in pairs]).swapaxes(
        0, 1
    )
    if np.isnan(hits).all():
        return None
    shares, chance = row_means(hits.T), known_mean(chances)
    best = int(np.nanargmax(shares))
    values = {
        "mean": percent(float(np.nanmean(shares))),
        "chance": percent(chance),
        "best": film.name(WINDOW * best),
    }
    seen = (~np.isnan(hits)).sum(axis=0)
    rows = [
        [film.name(WINDOW * i), int(n), share]
        for i, (n, share) in enumerate(zip(seen, shares, strict=True))
    ]
    columns = ["segment begins", "people who saw it", "share whose segment is found"]
    figure = drawn.plot_segments_found(shares, film, window=WINDOW, chance=chance)
    return Element.make("by-time", values, figure=figure, data=Table(columns, rows))
