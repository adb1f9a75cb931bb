"""The chapter on accuracy: methods side by side, subjects, confusions."""

from typing import Any

import numpy as np
from markupsafe import Markup

from brainweave.plotting.results import Scored, plot_confusion, row_shares
from brainweave.plotting.style import clean_text, percent, subject_name
from brainweave.report.elements import Element, Section, Table
from brainweave.report.inputs import SIGNIFICANT, Inputs
from brainweave.report.subjects import (
    Comparison,
    compare_methods,
    interval,
    subject_accuracies,
)
from brainweave.report.svg import figure_svg

WIDE = 12  # categories above which a matrix needs the whole width
EXPLAINED = {
    "held-out": "held-out: test subjects joined a finished space",
    "joint": "joint: test subjects took part in the alignment, which favours them",
}


def results_section(inputs: Inputs) -> Section | None:
    """Show accuracies, subject by subject, and confusions."""
    if not inputs.results:
        return None
    found = [_accuracy(inputs), _comparisons(inputs), _subjects(inputs)]
    return Section(
        "results",
        "Between-subject classification",
        "A classifier is trained on some subjects and tested on others, in the shared "
        "space. “Joint”: the test subjects' aligning samples took part in the "
        "alignment, which favours them; “held-out”: they joined a finished space.",
        [e for e in found if e is not None] + _confusions(inputs),
    )


def _accuracy(inputs: Inputs) -> Element:
    drawn, rows = Markup(""), []
    for protocol, members in inputs.panels:
        if protocol:
            drawn += Markup("<h4>{}</h4>").format(EXPLAINED.get(protocol, protocol))
        for one in members:
            drawn += _bar(one, one.shown(members))
            rows.append({"method": one.shown(members), **_numbers(one)})
    ticks = Markup("").join(
        Markup('<i style="left:{}%">{} %</i>').format(t, t) for t in range(0, 101, 25)
    )
    folds = [row for one in inputs.results for row in _fold_rows(one)]
    header = ["method", "protocol", "fold", "test subjects", "accuracy", "chance"]
    return Element(
        "accuracy",
        "Accuracy",
        "Bars are means over folds, dots are folds, the dashed line is chance, and the "
        "bracket is a 95 % interval of the mean over subjects (bootstrap).",
        figure=Markup(
            '<div class="acc" role="img" aria-label="Accuracy of each method">{}'
            '<div class="acc-axis"><span></span><div>{}</div><span></span></div></div>'
        ).format(drawn, ticks),
        table=Table.of({name: [row[name] for row in rows] for name in rows[0]}),
        data=Table(header, folds),
        wide=True,
    )


def _bar(one: Scored, shown: str) -> Markup:
    """Draw one method as a line of HTML, which stays readable at any width."""
    spread = np.linspace(26, 74, len(one.scores)) if len(one.scores) > 1 else [50.0]
    dot = Markup('<i class="dot" style="left:{:.2f}%;top:{:.0f}%"></i>')
    places = zip(one.scores, spread, strict=True)
    marks = Markup("").join(dot.format(100 * score, top) for score, top in places)
    between, text = interval(one), percent(one.mean)
    if between is not None:
        low, high = between
        bracket = '<i class="between" style="left:{:.2f}%;width:{:.2f}%"></i>'
        marks = Markup(bracket).format(100 * low, 100 * (high - low)) + marks
        text += f" [{percent(low).split(chr(160))[0]}–{percent(high)}]"
    kind = "bar base" if one.aligns_nothing else "bar"
    return Markup(
        '<div class="acc-row"><span>{}</span><div class="track">'
        '<i class="{}" style="width:{:.2f}%"></i>'
        '<i class="chance" style="left:{:.2f}%"></i>{}</div><b>{}</b></div>'
    ).format(shown, kind, 100 * one.mean, 100 * one.chance, marks, text)


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
    found: list[tuple[str, Comparison]] = []
    for protocol, members in inputs.panels:
        named = [(one.shown(members), one) for one in members]
        found += [(protocol, pair) for pair in compare_methods(named)]
    if not found:
        return None
    pairs = [pair for _, pair in found]
    table = Table.of(
        {
            "methods": [f"{pair.better} over {pair.other}" for pair in pairs],
            "protocol": [protocol or None for protocol, _ in found],
            "difference": [percent(pair.difference) for pair in pairs],
            "p": [round(pair.p, 4) for pair in pairs],
            "subjects": [pair.n_subjects for pair in pairs],
        }
    )
    caption = (
        "Differences of mean accuracy on the same subjects. p: two-sided, by flipping "
        "the signs of the subjects' differences, corrected for the number of "
        "comparisons of a protocol (Holm)."
    )
    fewest = min(pair.n_subjects for pair in pairs)
    if 2 / 2**fewest > SIGNIFICANT:
        caption += (
            f" With {fewest} subjects this p cannot be below {2 / 2**fewest:.2g}: more "
            "subjects are needed to tell methods apart."
        )
    title = "Which method is better?"
    return Element("between-methods", title, caption, table=table, wide=True)


def _subjects(inputs: Inputs) -> Element | None:
    """Tabulate who is classified well: a subject that aligns badly stands out."""
    columns: dict[str, dict[str, float]] = {}
    for protocol, members in inputs.panels:
        for one in members:
            title = ", ".join(filter(None, (one.shown(members), protocol)))
            columns[title] = subject_accuracies(one)
    known = [of for of in columns.values() if of]
    ids = list(dict.fromkeys(id for of in known for id in of))
    if len(ids) < 2:
        return None
    ids.sort(key=lambda id: known[0].get(id, 2.0))
    shown: dict[str, list[Any]] = {"subject": [subject_name(id) for id in ids]}
    for title, of in columns.items():
        shown[title] = [percent(of[id]) if id in of else None for id in ids]
    return Element(
        "by-subject",
        "Subject by subject",
        "Accuracy when this subject is tested, the lowest first: who is at chance "
        "here did not align.",
        table=Table.of(shown),
        wide=len(known) > 2,
    )


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
    told = not one.protocol or one.protocol in one.name
    title = one.name if told else f"{one.name}, {one.protocol}"
    counts, categories = np.asarray(one.result.confusion), one.result.categories
    shares = row_shares(counts)
    rows = [
        [true, predicted, int(counts[i, j]), float(shares[i, j])]
        for i, true in enumerate(categories)
        for j, predicted in enumerate(categories)
    ]
    id, label = f"confusion-{number}", f"Confusion matrix of {clean_text(title)}"
    return Element(
        id,
        f"Confusion: {clean_text(title, 60)}",
        "Percent of the samples of a true category (row) that were called so (column).",
        figure=figure_svg(plot_confusion(one.result, title=""), id, label),
        data=Table(["true", "predicted", "samples", "share"], rows),
        wide=len(categories) > WIDE,
        folded=folded,
    )
