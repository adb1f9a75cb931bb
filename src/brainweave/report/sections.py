"""The chapters of a report; each is left out when there is nothing to say."""

from collections.abc import Mapping
from contextlib import suppress
from copy import copy
from typing import Any

import numpy as np

from brainweave.exceptions import BrainweaveError, InputError
from brainweave.plotting.brain import plot_feature_map
from brainweave.plotting.model import energy_curves, plot_eigenvalues, plot_energy
from brainweave.plotting.sequences import MAX_LEGEND, Sequences, plot_sequences
from brainweave.plotting.style import (
    UNLABELLED,
    clean_text,
    palette,
    percent,
    subject_name,
)
from brainweave.report.elements import Element, Section, Table
from brainweave.report.facts import flatten, times, versions
from brainweave.report.inputs import Inputs
from brainweave.report.svg import figure_png, figure_svg
from brainweave.study.told import preprocessing

SIGNIFICANT = 0.05
MAX_STRIPS = 40  # subjects whose sequences are drawn
MAX_VOXELS = 1000  # whose values a map offers for download
MAX_COUNTED = 16  # categories that fit into a table


def data_section(inputs: Inputs) -> Section | None:
    """Describe the samples: how many, and in which order they were seen."""
    elements = []
    sequences = inputs.sequences
    if sequences is not None and sequences.categories:
        elements.append(_sequences(inputs, sequences))
    if sequences is not None:
        table = _subjects(inputs, sequences)
        elements.append(
            Element("subjects", "Subjects", table=table, data=table, wide=True)
        )
    record = getattr(inputs.study, "record", None)
    done = [[name, text] for name, text in preprocessing(record)]
    if done:
        table = Table(["step", "what was done"], done)
        elements.append(
            Element(
                "preprocessing", "Preprocessing", table=table, data=table, wide=True
            )
        )
    if not elements:
        return None
    title = "Data and preprocessing" if done else "Data"
    return Section("data", title, elements=elements)


def _subjects(inputs: Inputs, sequences: Sequences) -> Table:
    columns: dict[str, list[Any]] = {
        "subject": inputs.names,
        "samples": [len(labels) for labels in sequences.labels],
    }
    if inputs.study is not None:
        columns["voxels"] = [s.n_voxels for s in inputs.study]
        columns["space"] = [getattr(s.space, "kind", "–") for s in inputs.study]
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
    rows = list(zip(*columns.values(), strict=True))
    return Table(list(columns), rows)


def _of_record(inputs: Inputs) -> dict[str, list[Any]]:
    """Return what each subject lacks or lost on the way, and how masks overlap."""
    columns: dict[str, list[Any]] = {}
    record = getattr(inputs.study, "record", None) or {}
    missing = record.get("missing_runs") or {}
    if missing:
        listed = [", ".join(map(str, missing.get(n, []))) or None for n in inputs.names]
        columns["missing runs"] = listed
    runs = record.get("runs") or {}
    lost = {
        id: sum(r.get("scrubbed", 0) for r in of.values()) for id, of in runs.items()
    }
    if any(lost.values()):
        columns["scrubbed volumes"] = [lost.get(n) for n in inputs.names]
    masks: list[Any] = [getattr(s.space, "mask", None) for s in inputs.study or []]
    same_grid = masks and all(
        m is not None and m.shape == getattr(masks[0], "shape", None) for m in masks
    )
    if same_grid:
        common = int(np.logical_and.reduce(masks).sum())
        if any(int(m.sum()) != common for m in masks):
            columns["in all masks"] = [percent(common / int(m.sum())) for m in masks]
    return columns


def _sequences(inputs: Inputs, sequences: Sequences) -> Element:
    labels = sequences.labels[:MAX_STRIPS]
    shown = list(inputs.study or labels)[:MAX_STRIPS]
    figure = plot_sequences(shown, names=inputs.names[:MAX_STRIPS], legend=False)
    n = len(sequences.labels)
    distinct = len({tuple(map(str, s)) for s in sequences.labels})
    if distinct == 1 and n > 1:
        told = f"All {n} subjects saw the same sequence."
    elif distinct == n:
        told = f"All {n} subjects saw different sequences."
    else:
        told = f"The {n} subjects saw {distinct} different sequences."
    caption = f"{told} Each strip is a subject, each colour a category; gaps part runs."
    if n > MAX_STRIPS:
        caption += f" The first {MAX_STRIPS} subjects are drawn."
    rows = [
        [name, i + 1, run, label]
        for name, known, runs in zip(
            inputs.names, sequences.labels, sequences.runs, strict=True
        )
        for i, (label, run) in enumerate(zip(known, runs, strict=True))
    ]
    return Element(
        "sequences",
        "What each subject saw, in order",
        caption,
        figure=figure_svg(figure, "sequences", "A strip of samples per subject"),
        data=Table(["subject", "sample", "run", "label"], rows),
        legend=_legend(sequences),
        wide=True,
    )


def _legend(sequences: Sequences) -> list[tuple[str, str]]:
    categories = sequences.categories
    if len(categories) > MAX_LEGEND:
        return []
    names = [clean_text(c) for c in categories]
    legend = list(zip(names, palette(len(names)), strict=True))
    if any(None in labels for labels in sequences.labels):
        legend.append(("unlabelled", UNLABELLED))
    return legend


def model_section(inputs: Inputs) -> Section | None:
    """Show what the model learned and kept."""
    elements = []
    if getattr(inputs.model, "eigenvalues_", None) is not None:
        elements.append(_eigenvalues(inputs))
    if inputs.bases and any(basis.energy < 1 for basis in inputs.bases):
        elements.append(_energy(inputs))
    if hasattr(inputs.model, "component_summary"):
        # a model that came back without its bases may not know any more
        with suppress(InputError):
            elements.append(_components(inputs))
    if not elements:
        return None
    return Section("model", "What was learned", elements=elements)


def _eigenvalues(inputs: Inputs) -> Element:
    values = np.asarray(inputs.model.eigenvalues_, dtype=float)
    informative = int(getattr(inputs.model, "n_informative_", len(values)))
    caption = "All components gain from the graph, as those of noise do too."
    if informative < len(values):
        caption = (
            "Components beyond the dashed line gain nothing from the graph: another "
            "choice of directions there would be as good. The others gain, as those of "
            "noise do too."
        )
    rows = [[k + 1, float(v), k < informative] for k, v in enumerate(values)]
    return Element(
        "eigenvalues",
        "Eigenvalues",
        caption,
        figure=figure_svg(
            plot_eigenvalues(inputs.model), "eigenvalues", "Eigenvalue per component"
        ),
        data=Table(["component", "eigenvalue", "gains"], rows),
    )


def _energy(inputs: Inputs) -> Element:
    rows = []
    curves = energy_curves(inputs.bases)
    for name, basis, share in zip(inputs.names, inputs.bases, curves, strict=True):
        rows += [
            [name, k + 1, round(float(s), 5), k < basis.n_kept]
            for k, s in enumerate(share)
        ]
    figure = plot_energy(inputs.model, names=inputs.names)
    return Element(
        "energy",
        "Energy kept of each subject",
        "Cumulative share of the singular values; the dot is the cut.",
        figure=figure_svg(figure, "energy", "Cumulative singular values per subject"),
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
    return Element(
        "components",
        "Components",
        "Agreement: mean correlation between subjects of the feature's category means, "
        "over samples that did not align (held out), and over the samples the model "
        "was fitted on (in sample), where it is high also for noise. p: by "
        "permutation, corrected for the number of components. "
        "Variance: share of a subject's variance that the feature explains, mean and "
        "range over subjects. The download has it for each subject.",
        table=Table(list(columns), list(zip(*columns.values(), strict=True))),
        data=Table(["component", *inputs.names], full),
        wide=True,
    )


def maps_section(
    inputs: Inputs, *, n_components: int, n_subjects: int
) -> Section | None:
    """Draw the first shared features on the brains of the first subjects."""
    maps = {
        i: one
        for i, m in enumerate(getattr(inputs.model, "maps_", None) or [])
        if (one := _with_space(inputs, i, m)) is not None
    }
    k = min(n_components, int(getattr(inputs.model, "n_components_", 0)))
    informative = getattr(inputs.model, "n_informative_", k)
    k = min(k, max(1, informative))
    elements: list[Element] = []
    chosen = list(maps)[:n_subjects]
    for component in range(k):
        limit = None
        for i in chosen:
            try:
                limit = limit or _limit([maps[j] for j in chosen], component)
                elements.append(_map(inputs, i, maps[i], component, limit))
            except BrainweaveError as error:  # no voxel weights, or no picture
                note = Element("maps-note", caption=str(error), wide=True)
                return Section("maps", "On the brain", elements=[note])
    if not elements:
        return None
    return Section(
        "maps",
        "On the brain",
        "What the voxels of a subject show when a shared feature is active, in "
        "standard deviations of the voxel per standard deviation of the feature; one "
        "colour scale for all subjects of a feature. The same feature may lie "
        "elsewhere in each brain: that is what functional alignment allows for.",
        elements,
    )


def _with_space(inputs: Inputs, subject: int, one: Any) -> Any:
    """Return a subject's map if its brain is known, from the fit or from the study."""
    if getattr(one, "space", None) is not None:
        return one
    space = inputs.study.subjects[subject].space if inputs.study is not None else None
    if space is None:
        return None
    one = copy(one)
    one.space = space
    return one


def _limit(maps: list[Any], component: int) -> float:
    """Return the largest value of a feature on any of these brains."""
    rows = [np.asarray(_pattern(m, component), dtype=float) for m in maps]
    return (
        max(float(np.abs(np.nan_to_num(row)).max(initial=0.0)) for row in rows) or 1.0
    )


def _pattern(one: Any, component: int) -> Any:
    row = one.patterns[[component]] if hasattr(one.patterns, "toarray") else None
    return one.patterns[component] if row is None else row.toarray().ravel()


def _map(
    inputs: Inputs, subject: int, one: Any, component: int, limit: float | None
) -> Element:
    name = subject_name(inputs.names[subject])
    title = f"Shared feature {component + 1}, {name}"
    values = np.asarray(_pattern(one, component), dtype=float)
    figure = plot_feature_map(one, component, limit=limit)
    strongest = np.argsort(-np.abs(values), kind="stable")[:MAX_VOXELS]
    rows = [[int(v), float(values[v])] for v in np.sort(strongest)]
    which = f"the {MAX_VOXELS} strongest" if len(values) > MAX_VOXELS else "all"
    return Element(
        f"map-{component}-{subject}",
        title,
        f"The download has {which} of {len(values)} voxels, counted from 0.",
        figure=figure_png(figure, title),
        data=Table(["voxel", "pattern"], rows),
    )


def details_section(
    inputs: Inputs, *, seconds: Mapping[str, float] | None = None
) -> Section:
    """List settings, times and versions."""
    elements = []
    if inputs.config:
        table = Table(["setting", "value"], flatten(inputs.config))
        elements.append(
            Element("configuration", "Configuration", table=table, data=table)
        )
    elements.append(Element("versions", "Versions", table=versions(), data=versions()))
    spent = times(inputs, seconds)
    if spent is not None:
        elements.append(
            Element("times", "Seconds per stage", table=spent, data=spent, wide=True)
        )
    return Section("details", "Details", elements=elements)
