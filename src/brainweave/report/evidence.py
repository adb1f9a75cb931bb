"""The chapters on the evidence: the samples, and how well they were classified.

The folds of one subject are not independent, so intervals and tests between methods are
over subjects.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy import stats

from brainweave.basis.reliability import analysis_of_variance, repeated_groups
from brainweave.evaluation.comparison import (
    PairedTest,
    compare_results,
    sign_flip_p,
    smallest_flip_p,
    subject_means,
)
from brainweave.plotting.results import (
    Scored,
    Sequences,
    plot_confusion,
    plot_sequences,
    row_shares,
)
from brainweave.plotting.style import clean_text, percent, subject_name
from brainweave.report.elements import TEXTS, Element, Section, Table, render
from brainweave.report.inputs import SIGNIFICANT, Inputs
from brainweave.study.provenance import describe_record, was_scrubbed

MAX_STRIPS = 40  # subjects whose sequences are drawn
MAX_COUNTED = 16  # categories that fit into a table


def data_section(inputs: Inputs) -> Section | None:
    """Describe the samples: how many, in which order, how reliable."""
    elements = []
    if inputs.sequences is not None:
        if inputs.sequences.categories:
            elements.append(_sequences(inputs, inputs.sequences))
        elements.append(_table_of_subjects(inputs, inputs.sequences))
    done = describe_record(inputs.record)
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
    values = {
        "told": texts[kind].format(n=n, distinct=distinct),
        "more": texts["more"].format(drawn=MAX_STRIPS, n=n) if n > MAX_STRIPS else "",
    }
    subjects = zip(inputs.names, sequences.labels, sequences.runs, strict=True)
    rows = [
        [name, i, run, label]
        for name, labels, runs in subjects
        for i, (label, run) in enumerate(zip(labels, runs, strict=True))
    ]
    return Element.make(
        "sequences",
        values,
        figure=figure,
        data=Table(["subject", "sample", "run", "label"], rows),
        legend=sequences.legend(),
    )


def _table_of_subjects(inputs: Inputs, sequences: Sequences) -> Element:
    columns: dict[str, list[Any]] = {
        "subject": inputs.names,
        "samples": sequences.lengths,
    }
    reliable: list[float | None] = []
    if inputs.study is not None:
        columns["voxels"] = [s.n_voxels for s in inputs.study]
        columns["space"] = [getattr(s.space, "kind", None) for s in inputs.study]
        reliable = [
            reliable_share(s.data(), labels, runs)
            for s, labels, runs in zip(
                inputs.study, sequences.labels, sequences.runs, strict=True
            )
        ]
        columns["reliable voxels"] = [
            None if r is None else percent(r) for r in reliable
        ]
    if any(run is not None for runs in sequences.runs for run in runs):
        columns["runs"] = [len(set(runs)) for runs in sequences.runs]
    columns |= _record_columns(inputs)
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
    any_reliable = any(share is not None for share in reliable)
    caption = "caption_reliable" if any_reliable else "caption"
    common = TEXTS["elements"]["subjects"]["common"]
    values = {"common": common if "in all masks" in columns else ""}
    return Element.make("subjects", values, caption=caption, table=Table.of(columns))


def reliable_share(X: Any, labels: Sequence[Any], runs: Sequence[Any]) -> float | None:
    """Return the share of voxels whose responses to the categories repeat.

    By a one-way analysis of variance of the mean responses in each run, less the mean
    of the run, as neighbouring samples are alike also in noise. Where runs are not
    known, each sample counts as one. None where categories repeat too seldom.
    """
    rows = [i for i, label in enumerate(labels) if label is not None]
    by_run = all(runs[i] is not None for i in rows)
    cell_of_row = [(runs[i] if by_run else i, labels[i]) for i in rows]
    cells = list(dict.fromkeys(cell_of_row))
    categories = list(dict.fromkeys(label for _, label in cells))
    groups = repeated_groups([categories.index(label) for _, label in cells])
    run_names = list(dict.fromkeys(run for run, _ in cells)) if by_run else []
    freedom = 0 if groups is None else groups.within - max(0, len(run_names) - 1)
    if groups is None or freedom < 1:
        return None
    means = np.asarray(X)[rows]
    if by_run:
        codes = {cell: code for code, cell in enumerate(cells)}
        members = np.eye(len(cells))[[codes[cell] for cell in cell_of_row]].T
        means = members / members.sum(axis=1, keepdims=True) @ means
    for name in run_names:
        in_run = [i for i, (run, _) in enumerate(cells) if run == name]
        means[in_run] -= means[in_run].mean(axis=0)
    between, within = analysis_of_variance(means, groups)
    varies = within > 0
    if not varies.any():
        return None
    ratio = between[varies] / (within[varies] * groups.within / freedom)
    return float((ratio > stats.f.isf(SIGNIFICANT, groups.between, freedom)).mean())


def _record_columns(inputs: Inputs) -> dict[str, list[Any]]:
    """Return columns of missing runs, scrubbed volumes and the overlap of masks."""
    missing, runs = (inputs.record.get(k) or {} for k in ("missing_runs", "runs"))
    columns: dict[str, list[Any]] = {
        "missing runs": [
            ", ".join(map(str, missing.get(name, []))) or None for name in inputs.names
        ]
    }
    scrubbed = {
        id: sum(run.get("scrubbed", 0) for run in of_subject.values())
        for id, of_subject in runs.items()
    }
    if any(scrubbed.values()):
        done = was_scrubbed(inputs.record.get("settings") or {})
        title = "scrubbed volumes" if done else "volumes left out"
        columns[title] = [scrubbed.get(name) for name in inputs.names]
    masks: list[Any] = [getattr(s.space, "mask", None) for s in inputs.study or []]
    if len({getattr(mask, "shape", None) for mask in masks} - {None}) == 1:
        sizes = [0 if mask is None else int(mask.sum()) for mask in masks]
        common = int(np.logical_and.reduce(masks).sum()) if all(sizes) else None
        if common is not None and set(sizes) != {common}:
            columns["in all masks"] = [percent(common / size) for size in sizes]
    return columns


# -- accuracy: methods side by side, subjects, confusions ------------------------------

WIDE = 12  # categories above which a matrix needs the whole width


def results_section(inputs: Inputs) -> Section | None:
    """Show accuracies, subject by subject, and confusions."""
    if not inputs.results:
        return None
    tables = [_accuracy(inputs), _comparisons(inputs), _accuracy_by_subject(inputs)]
    return Section.make("results", [*tables, *_confusions(inputs)])


def _accuracy(inputs: Inputs) -> Element:
    """Draw the methods as lines of HTML, which stay readable at any width."""
    rows, drawn = [], []
    for protocol, members in inputs.panels:
        drawn.append((protocol, [(scored, interval(scored)) for scored in members]))
        rows += [
            {"method": scored.shown(members), **_numbers(scored)} for scored in members
        ]
    columns = {name: [row[name] for row in rows] for name in rows[0]}
    if any(columns["voxels"]):
        columns["voxels"] = [which or "own" for which in columns["voxels"]]
    classifiers = list(dict.fromkeys(filter(None, columns["classifier"])))
    if len(classifiers) == 1:
        del columns["classifier"]  # said once, below
    folds = [row for scored in inputs.results for row in _fold_rows(scored)]
    header = ["method", "protocol", "half", "fold", "test subjects", "accuracy"]
    return Element.make(
        "accuracy",
        {
            "classifier": f"Classifier: {classifiers[0]}. "
            if len(classifiers) == 1
            else ""
        },
        figure=render(
            "accuracy.html.jinja",
            panels=drawn,
            explained=TEXTS["panels"],
            percent=percent,
        ),
        table=Table.of(columns),
        data=Table([*header, "chance"], folds),
    )


def _numbers(scored: Scored) -> dict[str, Any]:
    balanced = getattr(scored.result, "balanced_accuracy", None)
    between, n = interval(scored), len(scored.scores)
    common = scored.design.get("voxels") == "common"
    return {
        "protocol": scored.protocol or None,
        "voxels": "in all masks" if common else None,
        "classifier": scored.design.get("classifier"),
        "accuracy": percent(scored.mean),
        "95 % interval": None if between is None else " – ".join(map(percent, between)),
        "SD over folds": percent(float(scored.scores.std())) if n > 1 else None,
        "chance": percent(scored.chance),
        "balanced accuracy": None
        if balanced is None
        else percent(float(np.mean(balanced))),
        "p (permutation)": scored.p,
        "smallest p possible": getattr(scored.result, "smallest_p", None),
        "folds": n,
    }


def _fold_rows(scored: Scored) -> list[list[Any]]:
    rows = []
    for fold, score in zip(scored.folds, scored.scores, strict=True):
        tested = " ".join(map(str, fold.get("test_subjects", ())))
        head = [scored.name, scored.protocol, fold.get("half"), fold.get("fold")]
        rows.append([*head, tested, float(score), scored.chance])
    return rows


def _comparisons(inputs: Inputs) -> Element | None:
    found: list[tuple[str, PairedTest]] = []
    for protocol, members in inputs.panels:
        named = [(scored.shown(members), scored) for scored in members]
        found += [(protocol, pair) for pair in compare_results(named)]
    if not found:
        return None
    pairs = [pair for _, pair in found]
    table = Table.of(
        {
            "methods": [f"{pair.better} vs. {pair.other}" for pair in pairs],
            "protocol": [protocol or None for protocol, _ in found],
            "difference, points": [round(100 * pair.difference, 1) for pair in pairs],
            "p": [round(pair.p, 4) for pair in pairs],
            "smallest p possible": [round(pair.smallest_p, 4) for pair in pairs],
            "subjects": [pair.n_subjects for pair in pairs],
        }
    )
    fewest, few = min(pair.n_subjects for pair in pairs), ""
    least = max(pair.smallest_p for pair in pairs)
    if least > SIGNIFICANT:
        text = TEXTS["elements"]["between-methods"]["few"]
        few = text.format(fewest=fewest, least=least)
    return Element.make("between-methods", {"few": few}, table=table)


def _accuracy_by_subject(inputs: Inputs) -> Element | None:
    """Tabulate the accuracy of each subject, the worst first."""
    accuracies: dict[str, dict[str, float]] = {}
    for _, members in inputs.panels:
        for scored in members:
            accuracies[inputs.title(scored)] = subject_means(scored)
    known = [by_id for by_id in accuracies.values() if by_id]
    ids = list(dict.fromkeys(id for by_id in known for id in by_id))
    if len(ids) < 2:
        return None
    ids.sort(key=lambda id: known[0].get(id, 2.0))
    columns: dict[str, list[Any]] = {"subject": [subject_name(id) for id in ids]}
    for title, by_id in accuracies.items():
        columns[title] = [percent(by_id[id]) if id in by_id else None for id in ids]
    return Element.make("by-subject", table=Table.of(columns), wide=len(known) > 2)


def _confusions(inputs: Inputs) -> list[Element]:
    """Draw the confusions of the method that counts; fold the others away."""
    chosen = inputs.main_result(inputs.panels[0][1])
    elements = [
        _confusion(number, scored, inputs.title(scored), folded=scored is not chosen)
        for number, scored in enumerate(inputs.results)
        if getattr(scored.result, "confusion", None) is not None
    ]
    return sorted(elements, key=lambda e: e.folded)


def _confusion(number: int, scored: Scored, title: str, *, folded: bool) -> Element:
    counts, categories = np.asarray(scored.result.confusion), scored.result.categories
    shares = row_shares(counts)
    rows = [
        [true, predicted, int(counts[i, j]), float(shares[i, j])]
        for i, true in enumerate(categories)
        for j, predicted in enumerate(categories)
    ]
    return Element.make(
        "confusion",
        {"name": title},
        number=f"-{number}",
        figure=plot_confusion(scored.result, title=""),
        data=Table(["true", "predicted", "samples", "share"], rows),
        wide=folded or len(categories) > WIDE,
        folded=folded,
    )


# -- over subjects ---------------------------------------------------------------------

MIN_SUBJECTS = 3  # for an interval


def interval(scored: Scored) -> tuple[float, float] | None:
    """Return a 95 % interval of the mean over subjects, by the t distribution.

    Resampling subjects gives intervals that are far too narrow for a handful of them.
    """
    values = np.array(list(subject_means(scored).values()))
    n = len(values)
    if n < MIN_SUBJECTS:
        return None
    half = stats.t.isf(0.025, n - 1) * values.std(ddof=1) / np.sqrt(n)
    low, high = np.clip(values.mean() + np.array([-half, half]), 0, 1)
    return float(low), float(high)


@dataclass(frozen=True)
class Tested:
    """A p-value, the smallest that its test could have given, and which test it is."""

    p: float
    smallest: float | None
    how: str

    @property
    def can_tell(self) -> bool:
        """Whether a small enough p was possible at all."""
        return self.smallest is None or self.smallest < SIGNIFICANT

    def __str__(self) -> str:
        if self.smallest is None:
            return f"p = {self.p:.2g}, {self.how}"
        if self.p <= self.smallest * (1 + 1e-9):
            return f"p = {self.p:.2g}, {self.how}: the smallest p possible"
        return f"p = {self.p:.2g}, {self.how}; smallest p possible {self.smallest:.2g}"


def above_chance(scored: Scored, *others: Scored) -> Tested | None:
    """Test accuracies against chance: by the result's permutations, else sign flips.

    Sign flips are one-sided over subjects, of the held-out protocol alone: joint
    accuracies are above chance in noise. The best of it and `others` is corrected for
    the choice. None where there is no test.
    """
    chosen = f", corrected for the choice among {len(others) + 1} methods"
    if scored.p is not None:
        smallest = getattr(scored.result, "smallest_p", None)
        times = len(others) + 1  # Bonferroni
        return Tested(
            min(1.0, times * scored.p),
            None if smallest is None else min(1.0, times * smallest),
            "permuted labels" + (chosen if others else ""),
        )
    found = [(subject_means(s), s.chance) for s in (scored, *others)]
    ids = [id for id in found[0][0] if all(id in means for means, _ in found)]
    if scored.protocol != "held-out" or not ids:
        return None
    rows = [[means[id] - chance for id in ids] for means, chance in found]
    how = f"sign flips over {len(ids)} subjects" + (chosen if others else "")
    return Tested(sign_flip_p(rows), smallest_flip_p(len(ids)), how)
