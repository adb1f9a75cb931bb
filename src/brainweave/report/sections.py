"""The chapters on the model, on brains, and on how all was computed."""

import json
import platform
from collections.abc import Mapping
from contextlib import suppress
from copy import copy
from typing import Any

import numpy as np

from brainweave._version import NUMERICAL, versions
from brainweave.exceptions import BrainweaveError, InputError
from brainweave.plotting.brain import plot_feature_map
from brainweave.plotting.model import energy_curves, plot_eigenvalues, plot_energy
from brainweave.plotting.style import clean_text, percent, subject_name
from brainweave.report.elements import (
    TEXTS,
    Element,
    Section,
    Table,
    figure_png,
    render,
)
from brainweave.report.inputs import SIGNIFICANT, Inputs

LIBRARIES = (*NUMERICAL, "joblib", "pandas", "nibabel", "nilearn", "matplotlib")


def model_section(inputs: Inputs) -> Section | None:
    """Show what the model learned and kept."""
    elements = []
    if getattr(inputs.model, "eigenvalues_", None) is not None:
        elements.append(_eigenvalues(inputs.model))
    if inputs.bases and any(basis.energy < 1 for basis in inputs.bases):
        elements.append(_energy(inputs))
    if hasattr(inputs.model, "component_summary"):
        # a model that came back without its bases may not know any more
        with suppress(InputError):
            elements.append(_components(inputs))
    return Section.make("model", elements)


def _eigenvalues(model: Any) -> Element:
    values = np.asarray(model.eigenvalues_, dtype=float)
    informative = int(getattr(model, "n_informative_", len(values)))
    rows = [[k + 1, float(v), k < informative] for k, v in enumerate(values)]
    return Element.make(
        "eigenvalues",
        caption="caption_partly" if informative < len(values) else "caption",
        figure=plot_eigenvalues(model),
        data=Table(["component", "eigenvalue", "gains"], rows),
    )


def _energy(inputs: Inputs) -> Element:
    curves = energy_curves(inputs.bases)
    rows = [
        [name, k + 1, round(float(share), 5), k < basis.n_kept]
        for name, basis, curve in zip(inputs.names, inputs.bases, curves, strict=True)
        for k, share in enumerate(curve)
    ]
    return Element.make(
        "energy",
        figure=plot_energy(inputs.model, names=inputs.names),
        data=Table(["subject", "component", "cumulative share", "kept"], rows),
    )


def _components(inputs: Inputs) -> Element:
    summary = inputs.model.component_summary(check=inputs.check)
    variance = summary.filter(like="variance_").to_numpy()
    columns: dict[str, list[Any]] = {
        "component": [k + 1 for k in range(len(summary))],
        "eigenvalue": [float(v) for v in summary["eigenvalue"]],
    }
    # a model file of an older version has no held-out columns
    if "p" in summary and np.isfinite(summary["p"]).any():
        columns["holds up"] = [bool(p < SIGNIFICANT) for p in summary["p"]]
        columns["p"] = [float(p) for p in summary["p"]]
        held = summary["agreement_cv"]
        columns["agreement, held out"] = [round(float(v), 2) for v in held]
    columns["in sample"] = [round(float(v), 2) for v in summary["agreement"]]
    columns["variance"] = [percent(float(v.mean())) for v in variance]
    columns["range"] = [
        " – ".join(percent(float(f(v))) for f in (np.min, np.max)) for v in variance
    ]
    full = [[k + 1, *map(float, row)] for k, row in enumerate(variance)]
    return Element.make(
        "components",
        table=Table(list(columns), list(zip(*columns.values(), strict=True))),
        data=Table(["component", *inputs.names], full),
    )


def details_section(
    inputs: Inputs, seconds: Mapping[str, float] | None
) -> Section | None:
    """List settings, times and versions."""
    settings, spent = flatten(inputs.config), _times(inputs, seconds)
    tables = {
        "configuration": Table(["setting", "value"], settings),
        "versions": _versions(),
        "times": spent,
    }
    shown = [Element.make(id, table=t) for id, t in tables.items() if t.rows]
    return Section.make("details", shown)


def flatten(config: Mapping[str, Any], prefix: str = "") -> list[list[str]]:
    """Turn nested settings into rows of names and values."""
    rows = []
    for key, value in config.items():
        name = f"{prefix}{key}"
        if isinstance(value, Mapping):
            rows += flatten(value, f"{name}.") or [[name, "{}"]]
        else:
            rows.append([name, _setting(value)])
    return rows


def _setting(value: Any) -> str:
    if isinstance(value, str):
        return value
    if value is None or isinstance(value, (bool, int, float)):
        return repr(value)
    if hasattr(value, "shape"):
        return f"{type(value).__name__} of shape {tuple(value.shape)}"
    if isinstance(value, (list, tuple)):
        value = json.dumps([_setting(v) for v in value])
    elif callable(value):
        value = getattr(value, "__name__", type(value).__name__)
    return clean_text(value, limit=500)


def _versions() -> Table:
    """List what the numbers were computed with."""
    rows = [list(each) for each in versions(LIBRARIES).items()]
    rows.append(["platform", f"{platform.system()} {platform.machine()}"])
    return Table(["software", "version"], rows)


def _times(inputs: Inputs, seconds: Mapping[str, float] | None) -> Table:
    """Tabulate the seconds of each stage: of this run, and of each result."""
    spent = {"this run": dict(seconds or {})}
    for one in inputs.results:
        spent[clean_text(one.full_name, 60)] = dict(
            getattr(one.result, "seconds", None) or {}
        )
    stages = list(dict.fromkeys(stage for of in spent.values() for stage in of))
    stages.sort(key=lambda stage: stage == "total")  # the sum comes last
    rows = [
        [who, *(None if s not in of else round(float(of[s]), 3) for s in stages)]
        for who, of in spent.items()
        if of
    ]
    return Table(["", *map(str, stages)], rows)


# -- brains: the reader chooses a shared feature and a subject -------------------------

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
