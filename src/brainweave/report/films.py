"""The chapters on films: who saw what, and what people share over time."""

from types import SimpleNamespace
from typing import Any

import numpy as np

from brainweave.evaluation.comparison import percent
from brainweave.evaluation.isc import inter_subject_correlation
from brainweave.evaluation.metrics import average_seen
from brainweave.plotting import films as drawn
from brainweave.plotting import plot_accuracy, plot_confusion
from brainweave.plotting.films import SegmentsFound, Timeline
from brainweave.plotting.style import subject_name
from brainweave.report.elements import TEXTS, Element, Section, Table
from brainweave.report.inputs import Inputs

MAX_STRIPS = 40  # subjects whose samples are drawn
MAX_COURSES = 6  # features drawn over time
MAX_STRETCHES = 30  # of the film, in the confusion of segments


def coverage(inputs: Inputs, film: Timeline) -> Element:
    """Draw who saw which part of the films."""
    seen, n = film.seen, film.films.size
    everyone, more = int(seen.all(axis=0).sum()), ""
    if len(seen) > MAX_STRIPS:
        texts = TEXTS["elements"]["coverage"]
        more = texts["more"].format(drawn=MAX_STRIPS, n=len(seen))
    few = Timeline(film.places[:MAX_STRIPS], film.films, film.names, film.seconds)
    return Element.make(
        "coverage",
        {"n": n, "all": everyone, "share": percent(everyone / n), "more": more},
        figure=drawn.plot_coverage(few, names=inputs.names[:MAX_STRIPS]),
        data=Table(
            ["time", *inputs.names],
            [[film.name(t), *map(int, seen[:, t])] for t in range(n)],
        ),
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
        segments = drawn.find_segments(shared, film)
        if segments is not None:
            elements += [_by_time(film, segments), _confusion(film, segments)]
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
    means = [scores.mean() if scores.size else None for scores in known]
    names = [subject_name(name) for name in inputs.names]
    numbers = enumerate(zip(means, found, strict=True))
    rows = [[k, mean, *own] for k, (mean, own) in numbers]
    return Element.make(
        "correlations",
        figure=plot_accuracy(bars),
        data=Table(["feature", "mean", *names], rows),
    )


def _by_time(film: Timeline, segments: SegmentsFound) -> Element:
    columns = ["segment begins", "people who saw it", "share whose segment is found"]
    seen = (segments.found >= 0).sum(axis=0)
    triples = zip(segments.starts, seen, segments.matched, strict=True)
    best = int(np.nanargmax(segments.matched))
    values = {
        "mean": percent(float(np.nanmean(segments.matched))),
        "chance": percent(segments.chance),
        "best": film.name(segments.starts[best]),
    }
    return Element.make(
        "by-time",
        values,
        figure=drawn.plot_segments_found(segments, film),
        data=Table(columns, [[film.name(s), int(n), share] for s, n, share in triples]),
    )


def _confusion(film: Timeline, segments: SegmentsFound) -> Element:
    counts, first = segments.confusion(MAX_STRETCHES)
    names = [film.name(segments.starts[i]) for i in first]
    rows = [[names[i], names[j], int(n)] for (i, j), n in np.ndenumerate(counts)]
    matrix = SimpleNamespace(confusion=counts, categories=names)
    return Element.make(
        "segment-confusion",
        figure=plot_confusion(matrix, title="", axis_names=("found", "seen")),
        data=Table(["seen", "found", "segments"], rows),
    )
