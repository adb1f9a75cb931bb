"""The chapter on accuracy: methods side by side, subjects, confusions."""

from collections.abc import Mapping
from typing import Any

import numpy as np
from markupsafe import Markup

from brainweave.plotting.results import (
    aligns_nothing,
    method_of,
    plot_confusion,
    protocol_of,
    row_shares,
)
from brainweave.plotting.style import clean_text, percent, subject_name
from brainweave.report.elements import Element, Section, Table
from brainweave.report.facts import main_result, ordered_protocols, spoken_name
from brainweave.report.inputs import Inputs
from brainweave.report.subjects import (
    compare_methods,
    interval,
    subject_accuracies,
)
from brainweave.report.svg import figure_svg

Named = tuple[str, Any]
SIGNIFICANT = 0.05
WIDE = 12  # categories above which a matrix needs the whole width
EXPLAINED = {
    "held-out": "held-out: test subjects joined a finished space",
    "joint": "joint: test subjects took part in the alignment, which favours them",
}


def results_section(inputs: Inputs) -> Section | None:
    """Show accuracies, subject by subject, and confusions."""
    if not inputs.results:
        return None
    elements = [_accuracy(inputs)]
    elements += [e for e in (_comparisons(inputs), _subjects(inputs)) if e is not None]
    elements += _confusions(inputs)
    return Section(
        "results",
        "Between-subject classification",
        "A classifier is trained on some subjects and tested on others, in the shared "
        "space. “Joint”: the test subjects' aligning samples took part in the "
        "alignment, which favours them; “held-out”: they joined a finished space.",
        elements,
    )


def panels(inputs: Inputs) -> list[tuple[str, list[Named]]]:
    """Return the results of each protocol, methods in one and the same order."""
    order = list(dict.fromkeys(method_of(*r) for r in inputs.results))
    found = []
    for protocol in ordered_protocols(inputs.results):
        members = [r for r in inputs.results if protocol_of(r[1]) == protocol]
        members.sort(key=lambda r: order.index(method_of(*r)))
        found.append((protocol, members))
    return found


def _accuracy(inputs: Inputs) -> Element:
    table, drawn = [], []
    folds = [row for name, result in inputs.results for row in _fold_rows(name, result)]
    for protocol, members in panels(inputs):
        rows = []
        for name, result in members:
            shown = _shown(name, result, members)
            rows.append(_row(shown, name, result))
            table.append(_numbers(shown, protocol, result))
        heading = Markup("<h4>{}</h4>").format(EXPLAINED.get(protocol, protocol))
        drawn.append((heading if protocol else Markup("")) + Markup("").join(rows))
    header = ["method", "protocol", "accuracy", "95 %", "SD", "balanced", "chance", "p"]
    shown_table = Table([*header, "folds"], table).without_empty_columns()
    axis = Markup('<div class="acc-axis"><span></span><div>{}</div><span></span></div>')
    ticks = Markup("").join(
        Markup('<i style="left:{}%">{} %</i>').format(t, t) for t in range(0, 101, 25)
    )
    figure = Markup('<div class="acc" role="img" aria-label="{}">{}{}</div>').format(
        "Accuracy of each method", Markup("").join(drawn), axis.format(ticks)
    )
    return Element(
        "accuracy",
        "Accuracy",
        "Bars are means over folds, dots are folds, the dashed line is chance, and the "
        "bracket is a 95 % interval of the mean over subjects (bootstrap).",
        figure=figure,
        table=shown_table,
        data=Table(
            ["method", "protocol", "fold", "test subjects", "accuracy", "chance"], folds
        ),
        wide=True,
    )


def _shown(name: str, result: Any, members: list[Named]) -> str:
    if aligns_nothing(name, result):
        same = [m for m in members if aligns_nothing(*m)]
        return "without alignment" if len(same) == 1 else clean_text(name)
    return spoken_name(name, result, members)


def _row(shown: str, name: str, result: Any) -> Markup:
    """Draw one method as a line of HTML, which stays readable at any width."""
    scores = np.asarray(result.scores, dtype=float)
    mean, chance = float(scores.mean()), float(result.chance)
    spread = np.linspace(26, 74, len(scores)) if len(scores) > 1 else [50.0]
    dots = Markup("").join(
        Markup('<i class="dot" style="left:{:.2f}%;top:{:.0f}%"></i>').format(
            100 * s, top
        )
        for s, top in zip(scores, spread, strict=True)
    )
    between = interval(result)
    bracket = Markup("")
    text = percent(mean)
    if between is not None:
        low, high = between
        bracket = Markup(
            '<i class="between" style="left:{:.2f}%;width:{:.2f}%"></i>'
        ).format(100 * low, 100 * (high - low))
        text += f" [{percent(low).split(chr(160))[0]}–{percent(high)}]"
    kind = "bar base" if aligns_nothing(name, result) else "bar"
    return Markup(
        '<div class="acc-row"><span>{}</span><div class="track">'
        '<i class="{}" style="width:{:.2f}%"></i>'
        '<i class="chance" style="left:{:.2f}%"></i>{}{}</div><b>{}</b></div>'
    ).format(shown, kind, 100 * mean, 100 * chance, bracket, dots, text)


def _numbers(shown: str, protocol: str, result: Any) -> list[Any]:
    scores = np.asarray(result.scores, dtype=float)
    balanced = getattr(result, "balanced_accuracy", None)
    between = interval(result)
    return [
        shown,
        protocol or None,
        percent(float(scores.mean())),
        None if between is None else " – ".join(map(percent, between)),
        percent(float(scores.std())) if len(scores) > 1 else None,
        None if balanced is None else percent(float(np.mean(balanced))),
        percent(float(result.chance)),
        getattr(result, "p_value", None),
        len(scores),
    ]


def _fold_rows(name: str, result: Any) -> list[list[Any]]:
    folds = list(getattr(result, "folds", None) or [])
    rows = []
    for i, score in enumerate(np.asarray(result.scores, dtype=float)):
        fold = folds[i] if i < len(folds) and isinstance(folds[i], Mapping) else {}
        who = next((v for k, v in fold.items() if "subjects" in str(k)), "")
        if isinstance(who, (list, tuple, np.ndarray)):
            who = " ".join(map(str, who))
        rows.append(
            [name, protocol_of(result), i + 1, who, float(score), float(result.chance)]
        )
    return rows


def _comparisons(inputs: Inputs) -> Element | None:
    named = [
        (_shown(n, r, members), r) for _, members in panels(inputs) for n, r in members
    ]
    found = compare_methods(named)
    rows = [
        [
            f"{c.better} over {c.other}",
            c.protocol or None,
            percent(c.difference),
            round(c.p, 4),
            c.n_subjects,
        ]
        for c in found
    ]
    if not rows:
        return None
    table = Table(["methods", "protocol", "difference", "p", "subjects"], rows)
    caption = (
        "Differences of mean accuracy on the same subjects. p: two-sided, by flipping "
        "the signs of the subjects' differences, corrected for the number of "
        "comparisons of a protocol (Holm)."
    )
    fewest = min(c.n_subjects for c in found)
    if 2 / 2**fewest > SIGNIFICANT:
        caption += (
            f" With {fewest} subjects this p cannot be below {2 / 2**fewest:.2g}: more "
            "subjects are needed to tell methods apart."
        )
    return Element(
        "between-methods",
        "Which method is better?",
        caption,
        table=table.without_empty_columns(),
        data=table,
    )


def _subjects(inputs: Inputs) -> Element | None:
    """Tabulate who is classified well: a subject that aligns badly stands out."""
    columns: dict[str, dict[str, float]] = {}
    for protocol, members in panels(inputs):
        for name, result in members:
            found = subject_accuracies(result)
            title = ", ".join(filter(None, (_shown(name, result, members), protocol)))
            if found:
                columns[title] = found
    ids = list(dict.fromkeys(id for of in columns.values() for id in of))
    if len(ids) < 2:
        return None
    first = next(iter(columns.values()))
    ids.sort(key=lambda id: first.get(id, 2.0))
    rows = [
        [
            subject_name(id),
            *(percent(of[id]) if id in of else None for of in columns.values()),
        ]
        for id in ids
    ]
    table = Table(["subject", *columns], rows)
    return Element(
        "by-subject",
        "Subject by subject",
        "Accuracy when this subject is tested, the lowest first: who is at chance "
        "here did not align.",
        table=table,
        data=table,
    )


def _confusions(inputs: Inputs) -> list[Element]:
    """Draw the confusions of the method that counts; fold the others away."""
    chosen = None
    for _, members in panels(inputs)[:1]:
        chosen = main_result(members, inputs.method)[1]
    elements = []
    for number, (name, result) in enumerate(inputs.results):
        if getattr(result, "confusion", None) is not None:
            folded = chosen is not None and result is not chosen
            elements.append(_confusion(number, name, result, folded=folded))
    return sorted(elements, key=lambda e: e.folded)


def _confusion(number: int, name: str, result: Any, *, folded: bool) -> Element:
    protocol = protocol_of(result)
    title = name if protocol in name else ", ".join(filter(None, (name, protocol)))
    counts = np.asarray(result.confusion)
    shares = row_shares(counts)
    rows = [
        [true, predicted, int(counts[i, j]), float(shares[i, j])]
        for i, true in enumerate(result.categories)
        for j, predicted in enumerate(result.categories)
    ]
    id = f"confusion-{number}"
    figure = plot_confusion(result, title="")
    return Element(
        id,
        f"Confusion: {clean_text(title, 60)}",
        "Percent of the samples of a true category (row) that were called so (column).",
        figure=figure_svg(figure, id, f"Confusion matrix of {clean_text(title)}"),
        data=Table(["true", "predicted", "samples", "share"], rows),
        wide=len(result.categories) > WIDE,
        folded=folded,
    )
