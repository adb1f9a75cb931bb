"""The first lines of a report: whether alignment worked."""

from dataclasses import dataclass
from typing import Any

import numpy as np

from brainweave.plotting.results import aligns_nothing, protocol_of
from brainweave.plotting.style import percent
from brainweave.report.facts import main_result, ordered_protocols, spoken_name
from brainweave.report.inputs import Inputs
from brainweave.report.subjects import above_chance, interval

SIGNIFICANT = 0.05


@dataclass(frozen=True)
class Verdict:
    """What to believe, and why.

    ``kind`` is "good", "bad" or "open".
    """

    kind: str
    title: str
    reasons: list[str]


def give_verdict(inputs: Inputs) -> Verdict | None:
    """Judge by accuracy on left-out subjects and by what the model does on new samples.

    Nothing is claimed without a test: a result without a p-value decides nothing.
    """
    evidence: list[bool | None] = []
    reasons = []
    results = [r for r in inputs.results if not aligns_nothing(*r)]
    for protocol in ordered_protocols(results)[:1]:
        members = [r for r in inputs.results if protocol_of(r[1]) == protocol]
        name, result = main_result(members, inputs.method)
        p, by = getattr(result, "p_value", None), "permutation"
        if p is None and protocol == "held-out":
            p, by = above_chance(result), "sign flips over subjects"
        evidence.append(None if p is None else bool(p < SIGNIFICANT))
        shown = spoken_name(name, result, members)
        reasons.append(_about_result(shown, result, protocol, p, by))
    if inputs.check is not None:
        evidence.append(inputs.check.worked)
        reasons.append(inputs.check.verdict)
    if not evidence:
        return None
    if True in evidence and False in evidence:
        return Verdict("open", "Unclear whether alignment worked", reasons)
    if True in evidence:
        return Verdict("good", "Alignment worked", [_short(r) for r in reasons])
    if False in evidence:
        title = "No evidence of a shared space"
        return Verdict("bad", title, [_short(r) for r in reasons])
    return Verdict("open", "Whether alignment worked was not tested", reasons)


def _about_result(
    shown: str, result: Any, protocol: str, p: float | None, by: str
) -> str:
    mean, chance = float(np.mean(result.scores)), float(result.chance)
    where = f" ({protocol})" if protocol else ""
    between = interval(result)
    spread = ""
    if between is not None:
        spread = f" (95 % interval over subjects {' to '.join(map(percent, between))})"
    text = (
        f"Samples of left-out subjects{where} are classified {percent(mean)} right "
        f"with {shown}{spread}; chance is {percent(chance)}"
    )
    if p is None:
        return f"{text}. No permutation test was run, so this alone decides nothing."
    above = "above chance" if p < SIGNIFICANT else "not above chance"
    how = "" if by == "permutation" else f" ({by})"
    return f"{text}: {above}, p = {p:.2g}{how}."


def _short(sentence: str) -> str:
    """Leave out what the title says."""
    for title in ("Alignment worked: ", "No evidence of a shared space: "):
        if sentence.startswith(title):
            rest = sentence.removeprefix(title)
            return rest[0].upper() + rest[1:]
    return sentence
