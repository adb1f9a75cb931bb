"""The chapter on brains: the reader chooses a shared feature and a subject."""

from copy import copy
from typing import Any

import numpy as np

from brainweave.exceptions import BrainweaveError
from brainweave.plotting.brain import plot_feature_map
from brainweave.plotting.style import subject_name
from brainweave.report.elements import TEXTS, Element, Section, Table, render
from brainweave.report.inputs import Inputs
from brainweave.report.svg import figure_png

MAX_VOXELS = 1000  # whose values a map offers for download


def maps_section(inputs: Inputs, n_components: int, n_subjects: int) -> Section | None:
    """Draw the first shared features on the brains of the first subjects."""
    chosen = dict(list(_maps_with_space(inputs).items())[:n_subjects])
    k = min(n_components, int(getattr(inputs.model, "n_components_", 0)))
    k = min(k, max(1, getattr(inputs.model, "n_informative_", k)))
    if not chosen or not k:
        return None
    try:
        element = _maps(inputs, chosen, k)
    except BrainweaveError as error:  # no voxel weights, or no picture
        element = Element.make("maps-note", {"error": str(error)})
    check = inputs.check
    fails = check is not None and check.worked is False
    caution = TEXTS["sections"]["maps"]["none_holds"] if fails else ""
    return Section.make("maps", [element], caution=caution)


def _maps_with_space(inputs: Inputs) -> dict[int, Any]:
    """Return the maps of subjects whose brain is known, from the fit or the study."""
    found = {}
    for i, one in enumerate(getattr(inputs.model, "maps_", None) or []):
        space = getattr(one, "space", None)
        if space is None and inputs.study is not None:
            one, space = copy(one), inputs.study.subjects[i].space
            one.space = space
        if space is not None:
            found[i] = one
    return found


def _maps(inputs: Inputs, maps: dict[int, Any], n_components: int) -> Element:
    """Draw features on brains, all with one colour scale."""
    patterns = {}
    for i, one in maps.items():
        first = one.patterns[list(range(n_components))]
        first = first.toarray() if hasattr(first, "toarray") else first
        patterns[i] = np.nan_to_num(np.asarray(first, dtype=float))
    limit = max(float(np.abs(p).max(initial=0.0)) for p in patterns.values()) or 1.0
    check, drawn = inputs.check, []
    holds = np.ones(n_components, dtype=bool)
    if check is not None and len(check.p) >= n_components:
        holds = check.holds
    for k in range(n_components):
        doubt = "" if holds[k] else " (does not hold up)"
        for i, one in maps.items():
            values = patterns[i][k]
            strongest = np.sort(np.argsort(-np.abs(values), kind="stable")[:MAX_VOXELS])
            title = f"Shared feature {k + 1}, {subject_name(inputs.names[i])}{doubt}"
            figure = plot_feature_map(one, k, limit=limit, colorbar=False)
            listed = len(values) > MAX_VOXELS and f"the {MAX_VOXELS} strongest"
            which = f"{listed or 'all'} of {len(values):,} voxels, counted from 0"
            rows = [[int(v), float(values[v])] for v in strongest]
            table = Table(["voxel", "pattern"], rows)
            drawn.append((k, i, title, figure_png(figure, title), table, which))
    drawing = render(
        "maps.html.jinja",
        maps=drawn,
        features=range(n_components),
        subjects={i: subject_name(inputs.names[i]) for i in maps},
        limit=f"{limit:.2g}",
    )
    return Element.make("maps-chosen", figure=drawing)
