"""The chapters of a report and what they are made of: texts, tables, figures.

Texts are in ``templates/report.toml``. Intervals and tests between methods are over
subjects.
"""

import base64
import io
import platform
import tomllib
import warnings
from collections.abc import Mapping, Sequence
from contextlib import suppress
from importlib.resources import files
from itertools import product
from numbers import Integral, Real
from types import SimpleNamespace
from typing import Any, TypeAlias

import numpy as np
from markupsafe import Markup

from brainweave import plotting
from brainweave._core import NUMERICAL, versions
from brainweave._core.exceptions import BrainweaveError, InputError
from brainweave.evaluation.comparison import (
    SIGNIFICANT,
    UNALIGNED,
    compare_results,
    percent,
    subject_interval,
    subject_means,
)
from brainweave.evaluation.information_map import SHOWN
from brainweave.evaluation.isc import inter_subject_correlation
from brainweave.persistence.codec import plain
from brainweave.plotting.results import labels_of, method_label
from brainweave.plotting.style import clean_text, subject_name
from brainweave.report.inputs import Inputs
from brainweave.study.provenance import describe_record


def asset(name: str) -> str:
    """Read a file of the package's templates."""
    return files("brainweave").joinpath("templates", name).read_text(encoding="utf-8")


TEXTS: dict[str, dict[str, Any]] = tomllib.loads(asset("report.toml"))


def measure_texts(score: str) -> dict[str, str]:
    """Return what the report says of a kind of score."""
    return dict(TEXTS["measures"].get(score, TEXTS["measures"]["other"]))


def render(template: str, *, escape: bool = True, **values: Any) -> Markup:
    """Fill in a template; values are escaped unless the template is plain text."""
    from jinja2 import Environment, PackageLoader, StrictUndefined

    environment = Environment(
        loader=PackageLoader("brainweave"),
        autoescape=escape,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters["show"] = show
    return Markup(environment.get_template(template).render(**values))


MOST_ROWS = 40  # of places of the brain, or of features
Part: TypeAlias = dict[str, Any]  # a chapter or element, as the template takes it


def element(
    kind: str,
    values: Mapping[str, Any] | None = None,
    *,
    figure: Any = None,
    table: Any = None,
) -> Part:
    """Make a figure, table or text with the words of its kind, filled in with values.

    Of tables that are found elsewhere as a whole, the first rows are shown.
    """
    import pandas as pd

    texts, words = TEXTS["elements"][kind], dict(values or {})
    shown = None
    if table is not None:
        frame = pd.DataFrame(table, dtype=object).dropna(axis="columns", how="all")
        if "whole" in texts:
            words["shown"] = f"all {texts['rows']}"
            if len(frame) > MOST_ROWS:
                many = f"{len(frame):,} {texts['rows']}; all are in {texts['whole']}"
                words["shown"] = f"the first {MOST_ROWS} of {many}"
            frame = frame[:MOST_ROWS]
        # what a row is about is no number to compare, also if it is one
        numbers = [i > 0 and _is_number(frame[name]) for i, name in enumerate(frame)]
        columns = list(zip(frame, numbers, strict=True))
        shown = {"columns": columns, "rows": frame.to_numpy().tolist()}
    if figure is not None and not isinstance(figure, Markup):
        figure = picture(figure, texts["label"].format(**words))
    title, below = (texts.get(n, "").format(**words) for n in ("title", "caption"))
    told = {"title": title, "caption": below, "wide": texts.get("wide", False)}
    return {"id": kind, **told, "figure": figure, "table": shown}


def _is_number(cells: Any) -> bool:
    """Whether a column holds numbers, which are aligned to the right."""
    known = cells.dropna()
    kinds = [isinstance(c, Real) or str(c).endswith("\u00a0%") for c in known]
    return bool(kinds) and all(kinds)


def section(id: str, elements: Sequence[Part | None], **values: str) -> Part | None:
    """Make a chapter of the elements that are not None; None without any."""
    present = [part for part in elements if part is not None]
    if not present:
        return None
    texts = TEXTS["sections"][id]
    title, intro = (texts.get(n, "").format(**values) for n in ("title", "intro"))
    return {"id": id, "title": title, "intro": intro, "elements": present}


def show(value: Any) -> str:
    """Write a cell for people."""
    if value is None or value != value:  # noqa: PLR0124 - NaN
        return "–"
    if isinstance(value, bool) or type(value).__name__ == "bool":
        return "yes" if value else "no"
    if isinstance(value, Real) and not isinstance(value, Integral):
        return f"{float(value):z.4g}"
    return str(value)


def picture(drawn: Any, label: str, *, brain: bool = False) -> Markup:
    """Return axes, a figure or a display of a brain as an ``<img>``, and close it."""
    import matplotlib as mpl
    import matplotlib.pyplot as plt
    from PIL import Image

    figure: Any = getattr(drawn, "frame_axes", drawn).figure
    out, kind = io.BytesIO(), "png" if brain else "svg"
    with mpl.rc_context(), warnings.catch_warnings():
        mpl.rcParams.update({"svg.fonttype": "none", "svg.hashsalt": "brainweave"})
        # the page's fonts draw what Matplotlib's own font lacks
        missing = "Glyph .* missing|Matplotlib currently does not"
        warnings.filterwarnings("ignore", message=missing)
        how: Any = {} if brain else {"transparent": True, "metadata": {"Date": None}}
        figure.savefig(out, format=kind, dpi=140, **how)
    plt.close(figure)
    if brain:
        # a palette of 64 colours is a quarter of the size, and looks the same
        image, out = Image.open(out), io.BytesIO()
        image.convert("RGB").quantize(64).save(out, "PNG", optimize=True)
    data = base64.b64encode(out.getvalue()).decode()
    # 1 pt is 1.4 to 1.6 px: text of 8 pt can be read, or the drawing scrolls
    width = 72 * figure.get_figwidth()
    style = f"min-width:{1.4 * width:.0f}px;max-width:{1.6 * width:.0f}px"
    source = f"data:image/{kind.replace('svg', 'svg+xml')};base64,{data}"
    drawing = '<div class="drawing"><img alt="{}" style="{}" src="{}"></div>'
    return Markup(drawing).format(label, style, source)


MAX_COUNTED = 16  # categories that fit into a table


def data_section(inputs: Inputs) -> Part | None:
    """Describe the samples: how many, in which order."""
    elements = []
    study, film = inputs.study, inputs.film
    if study is not None:
        if film is not None:
            everyone, n = int(film.seen.all(axis=0).sum()), film.films.size
            values = {"n": n, "all": everyone, "share": percent(everyone / n)}
            figure = plotting.plot_coverage(film, names=inputs.names)
            elements.append(element("coverage", values, figure=figure))
        elif study.categories:
            distinct = len({tuple(map(str, labels_of(s))) for s in study})
            values = {"n": len(inputs.names), "distinct": distinct}
            figure = plotting.plot_sequences(study)
            elements.append(element("sequences", values, figure=figure))
        columns: dict[str, Any] = {
            "subject": inputs.names,
            "samples": [s.n_samples for s in study],
            "of the film": film and [percent(own.mean()) for own in film.seen],
            "voxels": [s.n_voxels for s in study],
            "runs": [None if s.runs is None else len(s.run_ids) for s in study],
        }
        if len(study.categories) <= MAX_COUNTED:  # none, maybe
            for category in study.categories:
                counts = [labels_of(s).count(category) for s in study]
                columns[f"“{clean_text(category)}”"] = counts
        unlabelled = [s.n_unlabelled for s in study]
        if any(unlabelled) and study.categories:
            columns["unlabelled"] = unlabelled
        elements.append(element("subjects", table=columns))
    done = describe_record(getattr(study, "record", None))
    if done:
        steps = [{"step": name, "description": text} for name, text in done]
        elements.append(element("preprocessing", table=steps))
    return section("data", elements, done=" and preprocessing" if done else "")


def results_section(inputs: Inputs) -> Part | None:
    """Show accuracies, subject by subject, and confusions."""
    if not inputs.results:
        return None
    parts = [_accuracy(inputs), _comparisons(inputs), _accuracy_by_subject(inputs)]
    scored = inputs.main_result(inputs.panels[0][1])
    if getattr(scored.result, "confusion", None) is not None:
        drawn = plotting.plot_confusion(scored.result)
        parts.append(element("confusion", {"name": inputs.title(scored)}, figure=drawn))
    return section("results", parts, **measure_texts(scored.score))


def _accuracy(inputs: Inputs) -> Part:
    """Draw and list the methods, protocol by protocol."""
    rows: list[dict[str, Any]] = []
    drawn: dict[str, Any] = {}
    for _, members in inputs.panels:
        drawn |= {inputs.title(s): s.result for s in members}
        for scored in members:
            balanced = getattr(scored.result, "balanced_accuracy", None)
            between, n = subject_interval(scored), len(scored.scores)
            common = scored.design.get("voxels") == "common"
            row = {
                "method": scored.shown(members),
                "protocol": scored.protocol or None,
                scored.called: scored.write(scored.mean),
                "95 % interval": between and " – ".join(map(scored.write, between)),
                "SD": scored.write(float(scored.scores.std())) if n > 1 else None,
                "chance": scored.write(scored.chance),
                "aligned on": scored.aligned_on,
                "balanced accuracy": None if balanced is None else percent(balanced),
                "p (permutation)": scored.p_value,
                "smallest p possible": scored.smallest_p,
                "folds": n,
                "voxels": "in all masks" if common else None,
                "classifier": scored.design.get("classifier"),
            }
            rows.append(row)
    called, texts = inputs.results[0].called, measure_texts(inputs.results[0].score)
    return element(
        "accuracy",
        {**texts, "score": called.capitalize()},
        figure=plotting.plot_accuracy(drawn),
        table=rows,
    )


def _comparisons(inputs: Inputs) -> Part | None:
    found = []
    for protocol, members in inputs.panels:
        named = [(scored.shown(members), scored) for scored in members]
        found += [(protocol, pair) for pair in compare_results(named)]
    if not found:
        return None
    write = inputs.results[0].write
    rows = [
        {
            "methods": f"{pair.better} vs. {pair.other}",
            "protocol": protocol or None,
            "difference": write(pair.difference),
            "p": round(pair.p, 4),
            "smallest p possible": round(pair.smallest_p, 4),
            "subjects": pair.n_subjects,
        }
        for protocol, pair in found
    ]
    return element("between-methods", table=rows)


def _accuracy_by_subject(inputs: Inputs) -> Part | None:
    """Tabulate the accuracy of each subject, the worst first."""
    listed = [scored for _, members in inputs.panels for scored in members]
    accuracies = {inputs.title(scored): subject_means(scored) for scored in listed}
    known = [by_id for by_id in accuracies.values() if by_id]
    ids = list(dict.fromkeys(id for by_id in known for id in by_id))
    if len(ids) < 2:
        return None
    ids.sort(key=lambda id: known[0].get(id, 2.0))
    write, called = listed[0].write, listed[0].called
    columns: dict[str, list[Any]] = {"subject": [subject_name(id) for id in ids]}
    for title, by_id in accuracies.items():
        columns[title] = [write(by_id[id]) if id in by_id else None for id in ids]
    return element("by-subject", {"called": called}, table=columns)


def learning_section(curve: Any) -> Part | None:
    """Draw scores against the amount of people's own aligning data."""
    if curve is None:
        return None
    names = ("method", "fraction", "samples", "minutes", "mean", "se", "n_subjects")
    rows = [{name: point[name] for name in names} for point in curve.points]
    notes = {"notes": "".join(f" {note}" for note in curve.notes)}
    figure = plotting.plot_learning_curve(curve)
    part = element("learning-curve", notes, figure=figure, table=rows)
    return section("learning", [part])


PICTURES = ("excess", "baseline_excess", "difference")


def information_section(found: Any) -> Part | None:
    """Draw scores above chance, with and without alignment, and list the places."""
    if found is None:
        return None
    frame = found.to_frame()
    ranked = frame.sort_values(["p", "score"], ascending=[True, False])
    columns = ["place", "n_voxels", "score", "chance", "p", "p_fdr", "p_max"]
    if np.isfinite(frame["baseline"]).any():
        columns += ["baseline", "difference", "difference_p_fdr"]
    places = element("information-places", table=ranked[columns])
    elements = [_pictures(found, frame), places]
    return section("information", elements, summary=str(found))


def _pictures(found: Any, table: Any) -> Part | None:
    """Draw all maps with one colour scale."""
    if found.spaces[0] is None:
        return None
    known = PICTURES if np.isfinite(table["baseline"]).any() else PICTURES[:1]
    sizes = [np.nanmax(np.abs(found.voxel_values(what)), initial=0.0) for what in known]
    limit = float(max(sizes)) or 1.0
    try:
        drawn = [
            _titled(SHOWN[what].capitalize(), found.plot(what, limit=limit, title=None))
            for what in known
        ]
    except BrainweaveError as error:  # a space without a picture
        return element("maps-note", {"error": str(error)})
    return element("information-maps", figure=Markup("").join(drawn))


LIBRARIES = (*NUMERICAL, "joblib", "pandas", "nibabel", "nilearn", "matplotlib")


def model_section(inputs: Inputs) -> Part | None:
    """Show what the model learned and kept."""
    elements = []
    if getattr(inputs.model, "place_", None) is not None:
        elements.append(element("place", {"place": str(inputs.model.place_)}))
    if hasattr(inputs.model, "component_summary"):
        # a model that came back without its bases may not know any more
        with suppress(InputError):
            elements.append(_components(inputs))
    if inputs.check is not None and inputs.check.pieces is not None:
        elements.insert(0, _pieces(inputs.model, inputs.check))
    return section("model", elements)


def _pieces(model: Any, check: Any) -> Part:
    """Show how well subjects agree in each piece of the brain."""
    figure = None
    with suppress(BrainweaveError):  # a space that is not known, or without a picture
        image = model.piece_image(check.pieces["agreement"])
        space = model._places_of_pieces()[0].space
        title = TEXTS["elements"]["pieces"]["title"]
        figure = picture(plotting.plot_brain(image, space), title, brain=True)
    ranked = check.pieces.sort_values(["p", "agreement"], ascending=[True, False])
    values = {"least": f"{1 / (1 + check.n_permutations):.2g}"}
    return element("pieces", values, figure=figure, table=ranked.reset_index())


def _components(inputs: Inputs) -> Part:
    summary = inputs.model.component_summary(check=inputs.check)
    columns: dict[str, Any] = {"feature": range(len(summary))}
    if "component" in summary:  # of pieces
        summary = summary.sort_values("p", kind="stable")
        columns = {summary.index.name: summary.index, "feature": summary["component"]}
    if "graph_fit" in summary:
        columns["fit to the graph"] = summary["graph_fit"]
    if "p" in summary and np.isfinite(summary["p"]).any():  # could be checked
        columns["p < .05"] = [bool(p < SIGNIFICANT) for p in summary["p"]]
        columns["p"] = summary["p"]
        columns["agreement, held out"] = summary["agreement_cv"].round(2)
    if "agreement" in summary:
        columns["agreement, in sample"] = summary["agreement"].round(2)
        shares = summary.filter(like="variance").mean(axis=1)
        columns["variance, mean"] = [percent(v) for v in shares]
    return element("components", table={name: [*own] for name, own in columns.items()})


def details_section(inputs: Inputs) -> Part | None:
    """List settings and versions."""
    used = {**versions(LIBRARIES), "platform": platform.platform()}
    tables: dict[str, Any] = {"configuration": flatten(inputs.config)}
    tables["versions"] = used.items()
    elements = [
        element(id, table=[{"name": name, "value": value} for name, value in rows])
        for id, rows in tables.items()
        if rows
    ]
    return section("details", elements)


def flatten(config: Mapping[str, Any], prefix: str = "") -> list[list[str]]:
    """Return rows of names and values of nested settings."""
    rows = []
    for key, value in config.items():
        if isinstance(value, Mapping) and value:
            rows += flatten(value, f"{prefix}{key}.")
        else:
            text = plain(value, other=lambda v: getattr(v, "__name__", v), arrays=False)
            rows.append([f"{prefix}{key}", clean_text(text, limit=500)])
    return rows


N_MAPS, N_MAP_SUBJECTS = 3, 2  # a map takes half a second and 60 kB


def maps_section(inputs: Inputs) -> Part | None:
    """Draw the first shared features on the brains of the first subjects."""
    maps = enumerate(getattr(inputs.model, "maps_", None) or [])
    placed = [(i, own) for i, own in maps if getattr(own, "space", None) is not None]
    chosen = dict(placed[:N_MAP_SUBJECTS])
    k = min(N_MAPS, int(getattr(inputs.model, "n_components_", 0)))
    k = min(k, max(1, getattr(inputs.model, "n_informative_", k)))
    if not chosen or not k:
        return None
    check, holds, drawn = inputs.check, np.ones(k, dtype=bool), []
    if check is not None and check.pieces is None and len(check.p) >= k:
        holds = check.holds
    try:
        patterns = [own.patterns[list(range(k))] for own in chosen.values()]
        dense = [p.toarray() if hasattr(p, "toarray") else p for p in patterns]
        limit = max(float(np.abs(np.nan_to_num(p)).max(initial=0)) for p in dense)
        for feature, (i, own) in product(range(k), chosen.items()):
            doubt = "" if holds[feature] else " (does not hold up)"
            who = subject_name(inputs.names[i])
            image = own.to_image(feature)
            brain = plotting.plot_brain(image, own.space, limit=limit or 1.0)
            drawn.append(_titled(f"Shared feature {feature}, {who}{doubt}", brain))
        part = element("maps-chosen", figure=Markup("").join(drawn))
    except BrainweaveError as error:  # no voxel weights, or no picture
        part = element("maps-note", {"error": str(error)})
    fails = check is not None and check.worked is False
    values = {"subjects": f"{len(chosen)} of {len(inputs.model.maps_)} subjects"}
    values["features"] = f"{k} of {inputs.model.n_components_} shared features"
    values["caution"] = TEXTS["sections"]["maps"]["none_holds"] if fails else ""
    return section("maps", [part], **values)


def _titled(title: str, brain: Any) -> Markup:
    return Markup("<h4>{}</h4>{}").format(title, picture(brain, title, brain=True))


def space_section(inputs: Inputs) -> Part | None:
    """Place the samples of all subjects; None without shared features."""
    study, shared = inputs.study, inputs.shared
    if not shared or study is None or method_label(inputs.method) == UNALIGNED:
        return None
    named = zip(inputs.names, shared, strict=True)
    people = [[subject_name(name)] * len(x) for name, x in named]
    drawn = {"shared-space": people}
    if len(study.categories) > 1:
        labels = [labels_of(s) for s in study]
        drawn = {"shared-space": labels, "shared-space-subjects": people}
    pair = 0, min(1, shared[0].shape[1] - 1)
    elements = [
        element(kind, figure=plotting.plot_shared_space(shared, told, components=pair))
        for kind, told in drawn.items()
    ]
    return section("space", elements, drawn=TEXTS["drawn"][inputs.drawn])


MAX_COURSES = 6  # features drawn over time


def film_section(inputs: Inputs) -> Part | None:
    """Show shared features over the film, and, of held-out samples, how alike."""
    film, shared = inputs.film, inputs.shared
    if film is None or shared is None:
        return None
    # features of each half come from a model of the other, of a scale of its own
    shared = film.standardized(shared)
    n = shared[0].shape[1]
    k = min(n, MAX_COURSES)
    courses = plotting.plot_time_courses(shared, film, components=range(k))
    values = {"k": k, "all": n}
    elements = [element("time-courses", values, figure=courses)]
    if inputs.drawn == "not align":
        ids = [[None if t < 0 else t for t in own.tolist()] for own in film.places]
        found = inter_subject_correlation(shared, ids).T
        bars = {
            # NaN where a feature does not vary in a person: no zero of the mean
            f"feature {k}": SimpleNamespace(
                scores=own[np.isfinite(own)], chance=0.0, score="isc"
            )
            for k, own in enumerate(found)
            if np.isfinite(own).any()
        }
        if bars:
            drawn = plotting.plot_accuracy(bars)
            elements.append(element("correlations", figure=drawn))
    told = TEXTS["drawn"][f"film, {inputs.drawn}"]
    return section("film", elements, drawn=told)
