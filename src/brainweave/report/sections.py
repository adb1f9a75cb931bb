"""The chapters of a report; each is left out when there is nothing to say."""

import json
import platform
from collections.abc import Mapping
from contextlib import suppress
from copy import copy
from importlib.metadata import PackageNotFoundError, version
from typing import Any

import numpy as np

from brainweave._version import __version__
from brainweave.exceptions import BrainweaveError, InputError
from brainweave.plotting.brain import plot_feature_map
from brainweave.plotting.model import energy_curves, plot_eigenvalues, plot_energy
from brainweave.plotting.sequences import Sequences, plot_sequences
from brainweave.plotting.style import clean_text, percent, subject_name
from brainweave.report.elements import TEXTS, Element, Section, Table
from brainweave.report.inputs import SIGNIFICANT, Inputs
from brainweave.report.svg import figure_png
from brainweave.study.told import preprocessing

MAX_STRIPS = 40  # subjects whose sequences are drawn
MAX_VOXELS = 1000  # whose values a map offers for download
MAX_COUNTED = 16  # categories that fit into a table
LIBRARIES = "numpy scipy scikit-learn joblib pandas nibabel nilearn matplotlib"


def data_section(inputs: Inputs) -> Section | None:
    """Describe the samples: how many, and in which order they were seen."""
    elements = []
    if inputs.sequences is not None:
        if inputs.sequences.categories:
            elements.append(_sequences(inputs, inputs.sequences))
        table = _subjects(inputs, inputs.sequences)
        elements.append(Element.make("subjects", table=table))
    done = preprocessing(inputs.record)
    if done:
        table = Table(["step", "what was done"], done)
        elements.append(Element.make("preprocessing", table=table))
    return Section.make("data", elements, done=" and preprocessing" if done else "")


def _subjects(inputs: Inputs, sequences: Sequences) -> Table:
    columns: dict[str, list[Any]] = {
        "subject": inputs.names,
        "samples": sequences.lengths,
    }
    if inputs.study is not None:
        columns["voxels"] = [s.n_voxels for s in inputs.study]
        columns["space"] = [getattr(s.space, "kind", None) for s in inputs.study]
    if any(run is not None for runs in sequences.runs for run in runs):
        columns["runs"] = [len(set(runs)) for runs in sequences.runs]
    columns |= _of_record(inputs)
    if len(sequences.categories) <= MAX_COUNTED:
        for category in sequences.categories:
            counts = [labels.count(category) for labels in sequences.labels]
            columns[f"“{clean_text(category)}”"] = counts
    else:
        columns["categories"] = [
            len(set(labels) - {None}) for labels in sequences.labels
        ]
    unlabelled = [labels.count(None) for labels in sequences.labels]
    if any(unlabelled):
        columns["unlabelled"] = unlabelled
    return Table.of(columns)


def _of_record(inputs: Inputs) -> dict[str, list[Any]]:
    """Return what each subject lacks or lost on the way, and how masks overlap."""
    missing, runs = (inputs.record.get(k) or {} for k in ("missing_runs", "runs"))
    columns: dict[str, list[Any]] = {
        "missing runs": [
            ", ".join(map(str, missing.get(name, []))) or None for name in inputs.names
        ]
    }
    lost = {
        id: sum(r.get("scrubbed", 0) for r in of.values()) for id, of in runs.items()
    }
    if any(lost.values()):
        columns["scrubbed volumes"] = [lost.get(name) for name in inputs.names]
    masks: list[Any] = [getattr(s.space, "mask", None) for s in inputs.study or []]
    if len({getattr(mask, "shape", None) for mask in masks} - {None}) == 1:
        sizes = [0 if mask is None else int(mask.sum()) for mask in masks]
        common = int(np.logical_and.reduce(masks).sum()) if all(sizes) else None
        if common is not None and set(sizes) != {common}:
            columns["in all masks"] = [percent(common / size) for size in sizes]
    return columns


def _sequences(inputs: Inputs, sequences: Sequences) -> Element:
    shown = list(inputs.study or sequences.labels)[:MAX_STRIPS]
    figure = plot_sequences(shown, names=inputs.names[:MAX_STRIPS], legend=False)
    n = len(sequences.labels)
    distinct = len({tuple(map(str, labels)) for labels in sequences.labels})
    kind = {n: "all_differ", 1: "all_same"}.get(distinct, "some_differ")
    texts = TEXTS["elements"]["sequences"]
    told = {
        "told": texts[kind].format(n=n, distinct=distinct),
        "more": texts["more"].format(drawn=MAX_STRIPS) if n > MAX_STRIPS else "",
    }
    listed = zip(inputs.names, sequences.labels, sequences.runs, strict=True)
    rows = [
        [name, i + 1, run, label]
        for name, labels, runs in listed
        for i, (label, run) in enumerate(zip(labels, runs, strict=True))
    ]
    return Element.make(
        "sequences",
        told,
        figure=figure,
        data=Table(["subject", "sample", "run", "label"], rows),
        legend=sequences.legend(),
    )


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


def maps_section(inputs: Inputs, n_components: int, n_subjects: int) -> Section | None:
    """Draw the first shared features on the brains of the first subjects."""
    chosen = dict(list(_maps_with_space(inputs).items())[:n_subjects])
    k = min(n_components, int(getattr(inputs.model, "n_components_", 0)))
    k = min(k, max(1, getattr(inputs.model, "n_informative_", k)))
    if not chosen:
        return None
    try:
        return Section.make(
            "maps", [e for c in range(k) for e in _maps(inputs, chosen, c)]
        )
    except BrainweaveError as error:  # no voxel weights, or no picture
        return Section.make("maps", [Element.make("maps-note", {"error": str(error)})])


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


def _maps(inputs: Inputs, maps: dict[int, Any], component: int) -> list[Element]:
    """Draw one feature on several brains, with one colour scale."""
    patterns = {}
    for i, one in maps.items():
        row = one.patterns[[component]]
        row = row.toarray() if hasattr(row, "toarray") else np.asarray(row)
        patterns[i] = np.nan_to_num(np.asarray(row, dtype=float).ravel())
    limit = max(float(np.abs(p).max(initial=0.0)) for p in patterns.values()) or 1.0
    elements = []
    for i, values in patterns.items():
        strongest = np.argsort(-np.abs(values), kind="stable")[:MAX_VOXELS]
        told = {
            "feature": component + 1,
            "subject": subject_name(inputs.names[i]),
            "which": f"the {MAX_VOXELS} strongest"
            if len(values) > MAX_VOXELS
            else "all",
            "n": len(values),
        }
        rows = [[int(v), float(values[v])] for v in np.sort(strongest)]
        figure = plot_feature_map(maps[i], component, limit=limit)
        elements.append(
            Element.make(
                "map",
                told,
                number=f"-{component}-{i}",
                figure=figure_png(figure, f"Shared feature {component + 1}"),
                data=Table(["voxel", "pattern"], rows),
            )
        )
    return elements


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
    """Turn nested settings into rows of names and values.

    Examples
    --------
    >>> flatten({"gdm": {"energy": 0.8, "graph": "labels"}})
    [['gdm.energy', '0.8'], ['gdm.graph', 'labels']]
    """
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
    rows = [["brainweave", __version__], ["Python", platform.python_version()]]
    for name in LIBRARIES.split():
        with suppress(PackageNotFoundError):  # e.g. an optional library
            rows.append([name, version(name)])
    rows.append(["platform", f"{platform.system()} {platform.machine()}"])
    return Table(["software", "version"], rows)


def _times(inputs: Inputs, seconds: Mapping[str, float] | None) -> Table:
    """Tabulate the seconds of each stage: of this run, and of each result."""
    spent = {"this run": dict(seconds or {})}
    for one in inputs.results:
        who = ", ".join(filter(None, (clean_text(one.name), one.protocol)))
        spent[who] = dict(getattr(one.result, "seconds", None) or {})
    stages = list(dict.fromkeys(stage for of in spent.values() for stage in of))
    stages.sort(key=lambda stage: stage == "total")  # the sum comes last
    rows = [
        [who, *(None if s not in of else round(float(of[s]), 3) for s in stages)]
        for who, of in spent.items()
        if of
    ]
    return Table(["", *map(str, stages)], rows)
