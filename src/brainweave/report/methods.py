"""A methods paragraph that can be pasted into a manuscript, with its references.

The paragraph is ``templates/methods.txt.jinja``, names and references are in
``templates/report.toml``.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from brainweave._version import __version__
from brainweave.plotting.results import Scored, is_baseline
from brainweave.plotting.style import percent, span
from brainweave.report.elements import TEXTS, render
from brainweave.report.inputs import Inputs


@dataclass(frozen=True)
class Methods:
    """The paragraph and the references it cites, in order."""

    paragraph: str
    references: list[str]


def write_methods(inputs: Inputs, *, shows_maps: bool = False) -> Methods:
    """Describe data, alignment and evaluation as far as they are known."""
    cited: dict[str, str] = {}

    def cite(short: str) -> str:
        cited[short] = TEXTS["references"][short]
        return short

    def name(method: str) -> str:
        known, short = TEXTS["methods"].get(method, (method, None))
        if short is None:
            return str(method)
        # a bracket takes the citation in, where there is one
        opened, bracket, rest = known.partition(")")
        cite(short)
        return f"{opened}; {short}){rest}" if bracket else f"{known} ({short})"

    def accuracies(members: Sequence[Scored]) -> str:
        phrases = []
        for one in members:
            details = []
            if len(one.scores) > 1:
                details.append(f"SD {percent(float(one.scores.std()))}")
            if one.p is not None:
                details.append(f"permutation p = {one.p:.3g}")
            short = TEXTS["methods"].get(one.method, ("", ""))[1]
            if short and short not in cited:
                details.append(cite(short))
            extra = f" ({'; '.join(details)})" if details else ""
            how = "" if one.aligns_nothing else "with "
            phrases.append(f"{percent(one.mean)} {how}{one.shown(members)}{extra}")
        return _join(phrases)

    model = inputs.model
    params = {} if model is None else {"graph": "", **model.get_params(deep=False)}
    energy, kernel = params.get("energy"), params.get("kernel")
    ridges = sorted(getattr(model, "shrinkage_", None) or [])
    folds = [fold for one in inputs.results for fold in one.folds or [{}]]
    nus = {fold.get("nu") for fold in folds}
    designs = [getattr(one.result, "design", None) or {} for one in inputs.results]
    together = {str(d.get("standardised_together")) for d in designs} & {"run", "all"}
    text = render(
        "methods.txt.jinja",
        escape=False,
        texts=TEXTS,
        cite=cite,
        name=name,
        accuracies=accuracies,
        join=_join,
        percent=percent,
        model=model,
        method=inputs.method,
        data=_data_phrase(inputs),
        baseline=is_baseline(inputs.method),
        inner=type(getattr(model, "aligner", None)).__name__,
        params=params,
        kernel=f"{kernel} " if isinstance(kernel, str) else "",
        energy=energy if isinstance(energy, (int, float)) and energy < 1 else None,
        n_kept=span([b.n_kept for b in inputs.bases], "components"),
        ridges=" to ".join(f"{r:.3g}" for r in sorted({*ridges[:1], *ridges[-1:]})),
        k=getattr(model, "n_components_", None),
        gaining=getattr(model, "n_informative_", None),
        check=inputs.check,
        panels=inputs.panels,
        nu=nus.pop() if len(nus) == 1 else None,
        by_means=any(fold.get("n_by_means") for fold in folds),
        together=min(together, default=None),
        chances=sorted({percent(one.chance) for one in inputs.results}),
        shows_maps=shows_maps,
        version=__version__,
    )
    return Methods(re.sub("[ \n]+", " ", text).strip(), list(cited.values()))


def _data_phrase(inputs: Inputs) -> str:
    if not inputs.names:
        return ""
    parts, where = [], ""
    if inputs.sequences is not None:
        parts.append(span(inputs.sequences.lengths, "samples"))
        n = len(inputs.sequences.categories)
        where = {0: "", 1: " in one category"}.get(n, f" in {n} categories")
    if inputs.study is not None:
        parts.append(span([s.n_voxels for s in inputs.study], "voxels"))
    detail = f" ({' and '.join(parts)} each)" if parts else ""
    return f"{len(inputs.names)} subjects{detail}{where}"


def _join(phrases: Sequence[Any]) -> str:
    *head, last = phrases
    return f"{', '.join(head)} and {last}" if head else str(last)
