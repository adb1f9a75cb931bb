"""The chapter on accuracy: methods side by side, subjects, confusions.

The folds of one subject are not independent, so intervals and tests between methods are
over subjects.
"""

from dataclasses import dataclass, replace
from itertools import combinations, product
from typing import Any

import numpy as np
from numpy.typing import NDArray

from brainweave.plotting.results import Scored, plot_confusion, row_shares
from brainweave.plotting.style import clean_text, percent, subject_name
from brainweave.report.elements import TEXTS, Element, Section, Table, render
from brainweave.report.inputs import SIGNIFICANT, Inputs

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
            columns[title] = subject_accuracies(one)
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


# -- over subjects ---------------------------------------------------------------------

MAX_EXACT = 14  # subjects up to which all sign flips are tried
N_FLIPS = 9999
N_RESAMPLES = 4999
FEW = 3  # subjects below which no interval is told
TESTABLE = 5  # subjects below which no p of sign flips is below .05


@dataclass(frozen=True)
class Comparison:
    """Two methods on the same subjects.

    ``p`` is two-sided, by flipping the signs of the subjects' differences, corrected
    by Holm's method for the number of comparisons under the same protocol.
    """

    better: str
    other: str
    difference: float
    n_subjects: int
    p: float


def subject_accuracies(one: Scored) -> dict[str, float]:
    """Return the mean accuracy of each subject over the folds that tested it.

    Several subjects of one fold share its accuracy. Empty if the result does not say
    who was tested.
    """
    found: dict[str, list[float]] = {}
    if len(one.folds) != len(one.scores):
        return {}
    for fold, score in zip(one.folds, one.scores, strict=True):
        who = fold.get("test_subjects")
        if not isinstance(who, list | tuple) or not who:
            return {}
        for id in who:
            found.setdefault(str(id), []).append(float(score))
    return {id: float(np.mean(values)) for id, values in found.items()}


def interval(one: Scored) -> tuple[float, float] | None:
    """Return a 95 % interval of the mean over subjects, by resampling subjects."""
    values = np.array(list(subject_accuracies(one).values()))
    if len(values) < FEW:
        return None
    rng = np.random.default_rng(0)
    drawn = rng.integers(len(values), size=(N_RESAMPLES, len(values)))
    low, high = np.quantile(values[drawn].mean(axis=1), [0.025, 0.975])
    return float(low), float(high)


def above_chance(one: Scored) -> float | None:
    """Return the one-sided p of accuracies above chance, by flipping signs.

    None where the result does not say who was tested, or for too few subjects.
    """
    values = np.array(list(subject_accuracies(one).values())) - one.chance
    return _flip_p(values) if len(values) >= TESTABLE else None


def compare_methods(members: list[tuple[str, Scored]]) -> list[Comparison]:
    """Test all pairs of methods of one protocol, paired over their subjects."""
    pairs: list[Comparison] = []
    known = [(name, subject_accuracies(one)) for name, one in members]
    for (a, of_a), (b, of_b) in combinations(known, 2):
        common = [id for id in of_a if id in of_b]
        if len(common) < FEW:
            continue
        difference = np.array([of_a[id] - of_b[id] for id in common])
        mean, p = float(difference.mean()), _flip_p(difference, two_sided=True)
        names = (a, b) if mean >= 0 else (b, a)
        pairs.append(Comparison(*names, abs(mean), len(common), p))
    least = 0.0  # Holm
    for rank, i in enumerate(sorted(range(len(pairs)), key=lambda i: pairs[i].p)):
        least = max(least, min(1.0, pairs[i].p * (len(pairs) - rank)))
        pairs[i] = replace(pairs[i], p=least)
    return pairs


def _flip_p(values: NDArray[np.float64], *, two_sided: bool = False) -> float:
    """Return p of a mean that differs from 0, by flipping signs."""
    n, extra = len(values), int(len(values) > MAX_EXACT)
    if extra:
        signs = np.random.default_rng(0).choice([-1.0, 1.0], size=(N_FLIPS, n))
    else:
        signs = np.array(list(product((1.0, -1.0), repeat=n)))
    means, seen = signs @ values / n, float(values.mean())
    if two_sided:
        means, seen = np.abs(means), abs(seen)
    as_far = means >= seen - 1e-12
    return float((as_far.sum() + extra) / (len(signs) + extra))
