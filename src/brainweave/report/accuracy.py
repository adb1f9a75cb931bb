"""The chapter on accuracy: methods side by side, subjects, confusions."""

from typing import Any

import numpy as np

from brainweave.plotting.results import Scored, plot_confusion, row_shares
from brainweave.plotting.style import clean_text, percent, subject_name
from brainweave.report import subjects
from brainweave.report.elements import TEXTS, Element, Section, Table, render
from brainweave.report.inputs import SIGNIFICANT, Inputs
from brainweave.report.subjects import interval

WIDE = 12  # categories above which a matrix needs the whole width


def results_section(inputs: Inputs) -> Section | None:
    """Show accuracies, subject by subject, and confusions."""
    if not inputs.results:
        return None
    found = [_accuracy(inputs), _comparisons(inputs), _subjects(inputs)]
    return Section.make("results", [*found, *_confusions(inputs)])


def _accuracy(inputs: Inputs) -> Element:
    """Draw the methods as lines of HTML, which stay readable at any width."""
    rows, drawn = [], []
    for protocol, members in inputs.panels:
        drawn.append((protocol, [(one, interval(one)) for one in members]))
        rows += [{"method": one.shown(members), **_numbers(one)} for one in members]
    folds = [row for one in inputs.results for row in _fold_rows(one)]
    header = ["method", "protocol", "fold", "test subjects", "accuracy", "chance"]
    return Element.make(
        "accuracy",
        figure=render(
            "accuracy.html.jinja",
            panels=drawn,
            explained=TEXTS["panels"],
            percent=percent,
        ),
        table=Table.of({name: [row[name] for row in rows] for name in rows[0]}),
        data=Table(header, folds),
    )


def _numbers(one: Scored) -> dict[str, Any]:
    balanced = getattr(one.result, "balanced_accuracy", None)
    between, n = interval(one), len(one.scores)
    return {
        "protocol": one.protocol or None,
        "accuracy": percent(one.mean),
        "95 %": None if between is None else " – ".join(map(percent, between)),
        "SD": percent(float(one.scores.std())) if n > 1 else None,
        "balanced": None if balanced is None else percent(float(np.mean(balanced))),
        "chance": percent(one.chance),
        "p": one.p,
        "folds": n,
    }


def _fold_rows(one: Scored) -> list[list[Any]]:
    rows = []
    for i, score in enumerate(one.scores):
        fold = one.folds[i] if i < len(one.folds) else {}
        who = next((v for k, v in fold.items() if "subjects" in str(k)), "")
        if isinstance(who, (list, tuple, np.ndarray)):
            who = " ".join(map(str, who))
        rows.append([one.name, one.protocol, i + 1, who, float(score), one.chance])
    return rows


def _comparisons(inputs: Inputs) -> Element | None:
    found: list[tuple[str, subjects.Comparison]] = []
    for protocol, members in inputs.panels:
        named = [(one.shown(members), one) for one in members]
        found += [(protocol, pair) for pair in subjects.compare_methods(named)]
    if not found:
        return None
    pairs = [pair for _, pair in found]
    table = Table.of(
        {
            "methods": [f"{pair.better} over {pair.other}" for pair in pairs],
            "protocol": [protocol or None for protocol, _ in found],
            "difference, points": [round(100 * pair.difference, 1) for pair in pairs],
            "p": [round(pair.p, 4) for pair in pairs],
            "subjects": [pair.n_subjects for pair in pairs],
        }
    )
    fewest, few = min(pair.n_subjects for pair in pairs), ""
    least = 2 / 2**fewest
    if least > SIGNIFICANT:
        text = TEXTS["elements"]["between-methods"]["few"]
        few = text.format(fewest=fewest, least=least)
    return Element.make("between-methods", {"few": few}, table=table)


def _subjects(inputs: Inputs) -> Element | None:
    """Tabulate who is classified well: a subject that aligns badly stands out."""
    columns: dict[str, dict[str, float]] = {}
    for protocol, members in inputs.panels:
        for one in members:
            title = ", ".join(filter(None, (one.shown(members), protocol)))
            columns[title] = subjects.subject_accuracies(one)
    known = [of for of in columns.values() if of]
    ids = list(dict.fromkeys(id for of in known for id in of))
    if len(ids) < 2:
        return None
    ids.sort(key=lambda id: known[0].get(id, 2.0))
    shown: dict[str, list[Any]] = {"subject": [subject_name(id) for id in ids]}
    for title, of in columns.items():
        shown[title] = [percent(of[id]) if id in of else None for id in ids]
    return Element.make("by-subject", table=Table.of(shown), wide=len(known) > 2)


def _confusions(inputs: Inputs) -> list[Element]:
    """Draw the confusions of the method that counts; fold the others away."""
    chosen = inputs.main_result(inputs.panels[0][1])
    elements = [
        _confusion(number, one, folded=one is not chosen)
        for number, one in enumerate(inputs.results)
        if getattr(one.result, "confusion", None) is not None
    ]
    return sorted(elements, key=lambda e: e.folded)


def _confusion(number: int, one: Scored, *, folded: bool) -> Element:
    counts, categories = np.asarray(one.result.confusion), one.result.categories
    shares = row_shares(counts)
    rows = [
        [true, predicted, int(counts[i, j]), float(shares[i, j])]
        for i, true in enumerate(categories)
        for j, predicted in enumerate(categories)
    ]
    return Element.make(
        "confusion",
        {"name": clean_text(one.full_name, 60)},
        number=f"-{number}",
        figure=plot_confusion(one.result, title=""),
        data=Table(["true", "predicted", "samples", "share"], rows),
        wide=folded or len(categories) > WIDE,
        folded=folded,
    )
