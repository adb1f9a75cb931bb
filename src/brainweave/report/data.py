"""The chapter on the data: what each subject saw, and how good the samples are."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from scipy import stats

from brainweave.plotting.sequences import Sequences, plot_sequences
from brainweave.plotting.style import clean_text, percent
from brainweave.reliability import analysis_of_variance, repeated_groups
from brainweave.report.elements import TEXTS, Element, Section, Table
from brainweave.report.inputs import SIGNIFICANT, Inputs
from brainweave.study.told import preprocessing

MAX_STRIPS = 40  # subjects whose sequences are drawn
MAX_COUNTED = 16  # categories that fit into a table


def data_section(inputs: Inputs) -> Section | None:
    """Describe the samples: how many, in which order, how reliable."""
    elements = []
    if inputs.sequences is not None:
        if inputs.sequences.categories:
            elements.append(_sequences(inputs, inputs.sequences))
        elements.append(_subjects(inputs, inputs.sequences))
    done = preprocessing(inputs.record)
    if done:
        table = Table(["step", "what was done"], done)
        elements.append(Element.make("preprocessing", table=table))
    return Section.make("data", elements, done=" and preprocessing" if done else "")


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


def _subjects(inputs: Inputs, sequences: Sequences) -> Element:
    columns: dict[str, list[Any]] = {
        "subject": inputs.names,
        "samples": sequences.lengths,
    }
    reliable: list[float | None] = []
    if inputs.study is not None:
        columns["voxels"] = [s.n_voxels for s in inputs.study]
        columns["space"] = [getattr(s.space, "kind", None) for s in inputs.study]
        known = zip(inputs.study, sequences.labels, sequences.runs, strict=True)
        reliable = [reliable_share(s.data(), labels, runs) for s, labels, runs in known]
        columns["reliable voxels"] = [
            None if r is None else percent(r) for r in reliable
        ]
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
    told = any(share is not None for share in reliable)
    caption = "caption_reliable" if told else "caption"
    return Element.make("subjects", caption=caption, table=Table.of(columns))


def reliable_share(X: Any, labels: Sequence[Any], runs: Sequence[Any]) -> float | None:
    """Return the share of voxels whose answers to the categories repeat.

    By a one-way analysis of variance of the mean answers in each run, less the mean of
    the run: neighbouring samples are alike also in noise. Single samples stand for runs
    where these are not known. None where categories do not repeat often enough.
    """
    rows = [i for i, label in enumerate(labels) if label is not None]
    by_run = all(runs[i] is not None for i in rows)
    cells = [(runs[i] if by_run else i, labels[i]) for i in rows]
    names = list(dict.fromkeys(cells))
    kinds = list(dict.fromkeys(label for _, label in names))
    groups = repeated_groups([kinds.index(label) for _, label in names])
    parts = list(dict.fromkeys(part for part, _ in names)) if by_run else []
    freedom = 0 if groups is None else groups.within - max(0, len(parts) - 1)
    if groups is None or freedom < 1:
        return None
    means = np.asarray(X)[rows]
    if by_run:
        codes = {name: code for code, name in enumerate(names)}
        of_cell = np.eye(len(names))[[codes[cell] for cell in cells]].T
        means = of_cell / of_cell.sum(axis=1, keepdims=True) @ means
    for part in parts:
        own = [i for i, (run, _) in enumerate(names) if run == part]
        means[own] -= means[own].mean(axis=0)
    between, within = analysis_of_variance(means, groups)
    varies = within > 0
    if not varies.any():
        return None
    ratio = between[varies] / (within[varies] * groups.within / freedom)
    return float((ratio > stats.f.isf(SIGNIFICANT, groups.between, freedom)).mean())


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
