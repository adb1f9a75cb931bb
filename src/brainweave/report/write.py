"""Write a report, from the verdict to the methods paragraph and its references."""

import os
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import date
from pathlib import Path
from typing import Any

from markupsafe import Markup

from brainweave._core import __version__
from brainweave._core.exceptions import InputError
from brainweave._core.io import write_text
from brainweave.evaluation.comparison import (
    UNALIGNED,
    Verdict,
    above_chance,
    compare_results,
    judge_alignment,
    percent,
)
from brainweave.plotting.results import method_label
from brainweave.plotting.style import span
from brainweave.report import sections
from brainweave.report.inputs import Inputs, gather
from brainweave.report.sections import TEXTS, asset, measure_texts, render
from brainweave.study.provenance import describe_record


def write_report(
    path: str | os.PathLike[str],
    *,
    study: Any = None,
    model: Any = None,
    results: Any = None,
    learning_curve: Any = None,
    information: Any = None,
    config: Mapping[str, Any] | None = None,
    title: str = "Functional alignment",
    warnings: Iterable[Any] = (),
) -> Path:
    """Write one self-contained HTML file about a study, a model and its results.

    Chapters without content are left out. The file loads nothing from elsewhere, and
    is written completely or not at all.

    Parameters
    ----------
    path : path
        File to write; its folder is created if needed. An older file is replaced.
    study : Study, optional
        The data the model was fitted on.
    model : aligner, optional
        Fitted.
    results : result, list of results, or mapping of names to results, optional
        Results of :func:`brainweave.between_subject_classification`, for one or more
        methods and protocols.
    learning_curve : LearningCurve, optional
        What :func:`brainweave.learning_curve` returned for the study.
    information : InformationMap, optional
        What :func:`brainweave.information_map` returned for the study.
    config : mapping, optional
        All settings; by default the parameters of the model.
    title : str
        Heading of the report.
    warnings : iterable of str or warnings.WarningMessage, optional
        Warnings to show, in addition to those that the report finds.

    Returns
    -------
    Path
        Path of the report.

    Examples
    --------
    >>> from brainweave import GDM
    >>> rng = np.random.default_rng(0)
    >>> y = [["a", "b", "c"] * 4, ["c", "b", "a"] * 4]
    >>> model = GDM(n_components=2).fit([rng.normal(size=(12, 20)) for _ in y], y)
    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = write_report(Path(folder) / "report.html", model=model)
    ...     path.read_text().startswith("<!doctype html>")
    True
    """
    path = Path(path)
    if path.is_dir():
        raise InputError(f"{str(path)!r} is a folder. Name a file in it.")
    inputs = gather(study=study, model=model, results=results, config=config)
    given = (study, model, learning_curve, information)
    if all(part is None for part in given) and not inputs.results:
        raise InputError("A report needs a study, a model or results; got none.")
    maps = sections.maps_section(inputs)
    shared = sections.film_section if inputs.film else sections.space_section
    chapters = [
        sections.data_section(inputs),
        sections.results_section(inputs),
        sections.learning_section(learning_curve),
        sections.information_section(information),
        shared(inputs),
        sections.model_section(inputs),
        maps,
        sections.details_section(inputs),
    ]
    text = render(
        "report.html.jinja",
        title=str(title),
        study_name=str(getattr(study, "name", "") or ""),
        today=date.today().isoformat(),
        version=__version__,
        style=Markup(asset("report.css")),
        # no connection and no script
        policy="default-src 'none'; img-src data:; style-src 'unsafe-inline'; "
        "base-uri 'none'; form-action 'none'",
        verdict=give_verdict(inputs),
        headlines=headlines(inputs),
        warnings=collect_warnings(inputs, warnings),
        methods=write_methods(inputs, shows_maps=maps is not None),
        sections=[chapter for chapter in chapters if chapter is not None],
    )
    # labels may hold anything, and half a character or a zero byte is no UTF-8 text
    write_text(path, str(text).replace("\x00", "").encode(errors="replace").decode())
    return path


def give_verdict(inputs: Inputs) -> Verdict | None:
    """Judge the first protocol that has a method which aligns, and the model."""
    for _, members in inputs.panels:
        scored = inputs.main_result(members)
        if not scored.aligns_nothing:
            mine = scored.shown(members) if scored.method == inputs.method else None
            named = {m.shown(members): m for m in members}
            return judge_alignment(named, inputs.check, method=mine)
    return judge_alignment({}, inputs.check)


def headlines(inputs: Inputs) -> list[tuple[str, str, str]]:
    """Return the numbers of the first screen, their names, and notes."""
    found = []
    for protocol, members in inputs.panels:
        scored = inputs.main_result(members)
        note = f"{scored.shown(members)}; chance {scored.write(scored.chance)}"
        note += f" ({scored.chance_is})"
        baseline = [m for m in members if m.aligns_nothing]
        if baseline and not scored.aligns_nothing:
            note += f", {UNALIGNED} {scored.write(baseline[0].mean)}"
        if scored.p_value is not None:
            note += f", p = {scored.p_value:.2g}"
        if protocol == "joint":
            note += "; too high for new subjects"
        what = ", ".join(filter(None, (scored.called, protocol)))
        found.append((scored.write(scored.mean), what, note))
    if inputs.names:
        note = span([s.n_voxels for s in inputs.study or []], "voxels")
        found.append((str(len(inputs.names)), "subjects", note))
    if inputs.study is not None:
        note = f"in {len(inputs.study.categories)} categories"
        n_samples = sum(s.n_samples for s in inputs.study)
        found.append((f"{n_samples:,}", "samples", note))
    k = getattr(inputs.model, "n_components_", None)
    if k is not None:
        check, note = inputs.check, "of the model"
        if check is not None and check.available:
            note += f"; {check.n_holding} significant on held-out samples"
        found.append((str(k), "shared features", note))
    return found


def collect_warnings(inputs: Inputs, given: Iterable[Any]) -> list[str]:
    """Say what a reader must know before believing the numbers."""
    texts = [*inputs.notes, *(str(getattr(w, "message", w)) for w in given)]
    model = inputs.model
    if "not unique" not in " ".join(texts) and not getattr(model, "is_unique_", True):
        values = {"gaining": model.n_informative_, "k": model.n_components_}
        texts.append(TEXTS["cautions"]["not_unique"].format(**values))
    # a warning raised while fitting is often also found here
    return list(dict.fromkeys(texts))


def write_methods(inputs: Inputs, *, shows_maps: bool = False) -> tuple[str, list[str]]:
    """Return the methods paragraph and the references that it cites, in order."""
    model = inputs.model
    params = {} if model is None else {"graph": "", **model.get_params(deep=False)}
    place = getattr(model, "place_", None)
    energy, kernel = params.get("energy"), params.get("kernel")
    ridge = getattr(model, "shrinkage_", None)
    scales, left_out, classifiers = (
        {r.design[name] for r in inputs.results if r.design.get(name)}
        for name in ("standardised_together", "leave_out", "classifier")
    )
    told = TEXTS["steps"]
    steps = dict(describe_record(getattr(inputs.study, "record", None)))
    if "fMRIPrep" in steps.get("images", ""):
        steps["images"] += " (Esteban et al., 2019)"
    written = render(
        "methods.txt.jinja",
        escape=False,
        **vars(inputs),
        panels=inputs.panels,
        texts=TEXTS,
        join=" and ".join,
        percent=percent,
        n_samples=span([s.n_samples for s in inputs.study or []], "samples"),
        n_categories=len(getattr(inputs.study, "categories", ())),
        n_voxels=span([s.n_voxels for s in inputs.study or []], "voxels"),
        steps=[told[n].format(text) for n, text in steps.items() if n in told],
        baseline=method_label(inputs.method) == UNALIGNED,
        inner=type(getattr(model, "aligner", None)).__name__,
        params=params,
        kernel=f"{kernel} " if isinstance(kernel, str) else "",
        energy=energy if isinstance(energy, (int, float)) and energy < 1 else None,
        n_kept=span([b.n_kept for b in getattr(model, "bases_", [])], "components"),
        ridge=None if ridge is None else f"{ridge:.3g}",
        place="" if place is None or place.what == "place=None" else str(place),
        k=getattr(model, "n_components_", None),
        gaining=getattr(model, "n_informative_", None),
        classifiers=sorted(map(str, classifiers)),
        together=min(scales & {"run", "all"}, default=None),
        chances=sorted({scored.write(scored.chance) for scored in inputs.results}),
        halves=_describe_halves(inputs.results),
        measure=measure_texts(inputs.results[0].score) if inputs.results else {},
        trained={k: v if classifiers else "" for k, v in TEXTS["trained"].items()},
        left_out=left_out.pop() if len(left_out) == 1 else None,
        tests=list(_describe_tests(inputs)),
        shows_maps=shows_maps,
        version=__version__,
    )
    text = re.sub("[ \n]+", " ", str(written)).strip()
    cited = [short for short in TEXTS["references"] if short in text]
    return text, [TEXTS["references"][s] for s in sorted(cited, key=text.index)]


def _describe_halves(results: Sequence[Any]) -> str:
    """Say which samples aligned and which were scored, if all results agree."""
    names, texts = ("halves", "block", "border"), TEXTS["halves"]
    designs = [[r.design.get(name) for name in names] for r in results]
    if not designs or any(design != designs[0] for design in designs):
        return ""
    halves, block, border = designs[0]
    if halves == "category" and not hasattr(results[0].result, "confusion"):
        halves = "time"
    text = str(texts.get("blocks" if block else halves, ""))
    return (text + texts["border"] * bool(border)).format(block=block, border=border)


def _describe_tests(inputs: Inputs) -> Iterator[str]:
    """Yield a sentence for each kind of test whose p-values the report shows."""
    texts = TEXTS["tests"]
    permuted = [r for r in inputs.results if r.p_value is not None]
    if permuted:
        counts = sorted({str(r.design.get("n_permutations")) for r in permuted})
        yield texts["permutations"].format(times=" or ".join(counts))
    rest = [r for r in inputs.results if r.p_value is None and r.protocol == "held-out"]
    if any(above_chance(r) for r in rest):
        yield texts["flips"]
    panels = ([(m.name, m) for m in members] for _, members in inputs.panels)
    if any(map(compare_results, panels)):
        yield texts["pairs"]
