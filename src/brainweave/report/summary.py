"""The first screen of a report: whether alignment worked, numbers, and cautions."""

import warnings
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

from brainweave.plotting.results import Scored
from brainweave.plotting.sequences import Sequences
from brainweave.plotting.style import clean_text, percent, span, subject_name
from brainweave.report.accuracy import above_chance, interval
from brainweave.report.elements import TEXTS
from brainweave.report.inputs import SIGNIFICANT, Inputs

LOST_SHARE = 0.05  # of the energy, above which a kernel deserves a warning
MAX_CATEGORIES = 100  # above which missing ones are not told
MAX_LISTED = 6


@dataclass(frozen=True)
class Verdict:
    """What to believe ("good", "bad" or "open"), and why."""

    kind: str
    title: str
    reasons: list[str]


@dataclass(frozen=True)
class Headline:
    """A number worth a large font, what it is, and what it must be seen against."""

    value: str
    name: str
    note: str = ""


def give_verdict(inputs: Inputs) -> Verdict | None:
    """Judge by accuracy on left-out subjects and by what the model does on new samples.

    Nothing is claimed without a test: a result without a p-value decides nothing.
    """
    evidence: list[bool | None] = []
    reasons = []
    for _, members in inputs.panels:
        one = inputs.main_result(members)
        if not one.aligns_nothing:
            p, how = one.p, ""
            if p is None and one.protocol == "held-out":
                p, how = above_chance(one), " (sign flips over subjects)"
            evidence.append(None if p is None else bool(p < SIGNIFICANT))
            reasons.append(_about_result(one, one.shown(members), p, how))
            break
    if inputs.check is not None:
        evidence.append(inputs.check.worked)
        reasons.append(inputs.check.verdict)
    if not evidence:
        return None
    if True in evidence and False in evidence:
        return Verdict("open", "Unclear whether alignment worked", reasons)
    for answer, kind, title in (
        (True, "good", "Alignment worked"),
        (False, "bad", "No evidence of a shared space"),
    ):
        if answer in evidence:
            # what the title says is not said again
            short = [reason.removeprefix(f"{title}: ") for reason in reasons]
            return Verdict(kind, title, [r[0].upper() + r[1:] for r in short])
    return Verdict("open", "Whether alignment worked was not tested", reasons)


def _about_result(one: Scored, shown: str, p: float | None, how: str) -> str:
    where = f" ({one.protocol})" if one.protocol else ""
    between, spread = interval(one), ""
    if between is not None:
        spread = f" (95 % interval over subjects {' to '.join(map(percent, between))})"
    text = (
        f"Samples of left-out subjects{where} are classified {percent(one.mean)} right "
        f"with {shown}{spread}; chance is {percent(one.chance)}"
    )
    if p is None:
        return f"{text}. No permutation test was run, so this alone decides nothing."
    above = "above chance" if p < SIGNIFICANT else "not above chance"
    return f"{text}: {above}, p = {p:.2g}{how}."


def headlines(inputs: Inputs) -> list[Headline]:
    """Choose the numbers a reader wants first."""
    found = []
    for protocol, members in inputs.panels:
        one = inputs.main_result(members)
        note = f"{one.shown(members)}; chance {percent(one.chance)}"
        baseline = [m for m in members if m.aligns_nothing]
        if baseline and not one.aligns_nothing:
            note += f", without alignment {percent(baseline[0].mean)}"
        if one.p is not None:
            note += f", p = {one.p:.2g}"
        what = ", ".join(filter(None, ("accuracy", protocol)))
        found.append(Headline(percent(one.mean), what, note))
    if inputs.names:
        voxels = [s.n_voxels for s in inputs.study or []]
        note = span(voxels, "voxels") if voxels else ""
        found.append(Headline(str(len(inputs.names)), "subjects", note))
    if inputs.sequences is not None:
        categories = len(inputs.sequences.categories)
        note = f"in {categories} categories" if categories else "without labels"
        n_samples = f"{sum(inputs.sequences.lengths):,}"
        found.append(Headline(n_samples, "samples", note))
    k = getattr(inputs.model, "n_components_", None)
    if k is not None:
        check, note = inputs.check, "of the model"
        if check is not None and check.available:
            held = "none holds" if check.n_holding == 0 else f"{check.n_holding} hold"
            note = f"of the model; {held} up on samples that did not align"
        found.append(Headline(str(k), "shared features", note))
    return found


def collect_warnings(inputs: Inputs, given: Iterable[Any] = ()) -> list[str]:
    """Say what a reader must know before believing the numbers."""
    texts = list(inputs.notes)
    for warning in given:
        raised = isinstance(warning, warnings.WarningMessage)
        prefix = f"{warning.category.__name__}: " if raised else ""
        texts.append(f"{prefix}{warning.message if raised else warning}")
    model, say = inputs.model, TEXTS["cautions"]
    said = any("not unique" in text for text in texts)
    if not said and getattr(model, "is_unique_", True) is False:
        known = {"gaining": model.n_informative_, "k": model.n_components_}
        texts.append(say["not_unique"].format(**known))
    for name, basis in zip(inputs.names, inputs.bases, strict=False):
        known = {"subject": subject_name(name), "kernel": basis.kernel.name}
        constant = len(getattr(basis, "constant_voxels", ()))
        known |= {"constant": constant, "voxels": basis.n_voxels}
        if constant:
            texts.append(say["constant"].format(**known))
        if basis.energy < 1 and basis.lost_share > LOST_SHARE:
            texts.append(say["lost"].format(lost=percent(basis.lost_share), **known))
    told = any("not held by all subjects" in text for text in texts)
    if inputs.sequences is not None and not told:
        texts += _missing_categories(inputs.sequences)
    for protocol, members in inputs.panels:
        for one in members:
            if one.p is not None and one.p > SIGNIFICANT:
                known = {"shown": one.shown(members), "p": one.p}
                where = protocol or "classification"
                texts.append(say["not_above"].format(protocol=where, **known))
    # a warning raised while fitting is often also found here
    return list(dict.fromkeys(texts))


def _missing_categories(sequences: Sequences) -> Iterator[str]:
    """Name the categories that subjects lack, once for all who lack the same."""
    categories = sequences.categories
    if len(categories) > MAX_CATEGORIES:
        return
    who: dict[str, list[str]] = {}
    for name, labels in zip(sequences.names, sequences.labels, strict=True):
        lacking = [clean_text(c) for c in categories if c not in set(labels)]
        if lacking:
            who.setdefault(_listed(lacking), []).append(subject_name(name))
    for what, names in who.items():
        have = "has" if len(names) == 1 else "have"
        yield f"{_listed(names)} {have} no sample of: {what}."


def _listed(names: list[str]) -> str:
    left = len(names) - MAX_LISTED
    return ", ".join(names[:MAX_LISTED]) + (f" and {left} more" if left > 0 else "")
