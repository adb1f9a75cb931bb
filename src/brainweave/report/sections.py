"""The chapters on the shared space, the model, brains, and how all was computed."""

import platform
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from copy import copy
from typing import Any

import numpy as np
from markupsafe import Markup
from numpy.typing import NDArray

from brainweave._core.exceptions import BrainweaveError, InputError
from brainweave._core.version import NUMERICAL, versions
from brainweave.aligners.check.alignment_check import graph_fit
from brainweave.plotting.model import (
    energy_curves,
    feature_map_figures,
    plot_eigenvalues,
    plot_energy,
)
from brainweave.plotting.style import (
    UNLABELLED,
    clean_text,
    palette,
    percent,
    subject_name,
)
from brainweave.report.elements import (
    TEXTS,
    Element,
    Section,
    Table,
    figure_png,
    render,
)
from brainweave.report.inputs import SIGNIFICANT, Inputs

LIBRARIES = (*NUMERICAL, "joblib", "pandas", "nibabel", "nilearn", "matplotlib")


def model_section(inputs: Inputs) -> Section | None:
    """Show what the model learned and kept."""
    elements = []
    if getattr(inputs.model, "eigenvalues_", None) is not None:
        elements.append(_eigenvalues(inputs.model))
    if inputs.bases and any(basis.energy < 1 for basis in inputs.bases):
        elements.append(_energy(inputs))
    if hasattr(inputs.model, "component_summary"):
        # a model that came back without its bases may not know any more
        with suppress(InputError):
            elements.append(_components(inputs))
    return Section.make("model", elements)


def _eigenvalues(model: Any) -> Element:
    values = graph_fit(model)
    informative = int(getattr(model, "n_informative_", len(values)))
    rows = [[k, float(v), k < informative] for k, v in enumerate(values)]
    return Element.make(
        "eigenvalues",
        caption="caption_partly" if informative < len(values) else "caption",
        figure=plot_eigenvalues(model),
        data=Table(["feature", "fit to the graph", "gains"], rows),
    )


def _energy(inputs: Inputs) -> Element:
    curves = energy_curves(inputs.bases)
    rows = [
        [name, k, round(float(share), 5), k < basis.n_kept]
        for name, basis, curve in zip(inputs.names, inputs.bases, curves, strict=True)
        for k, share in enumerate(curve)
    ]
    return Element.make(
        "energy",
        figure=plot_energy(inputs.model, names=inputs.names),
        data=Table(["subject", "component", "cumulative share", "kept"], rows),
    )


def _components(inputs: Inputs) -> Element:
    summary = inputs.model.component_summary(check=inputs.check)
    variance = summary.filter(like="variance_").to_numpy()
    columns: dict[str, list[Any]] = {
        "feature": list(range(len(summary))),
        "fit to the graph": [float(v) for v in summary["graph_fit"]],
    }
    # a model file of an older version has no held-out columns
    if "p" in summary and np.isfinite(summary["p"]).any():
        columns["holds up"] = [bool(p < SIGNIFICANT) for p in summary["p"]]
        columns["p"] = [float(p) for p in summary["p"]]
        held = summary["agreement_cv"]
        columns["agreement, held out"] = [round(float(v), 2) for v in held]
    columns["agreement, in sample"] = [round(float(v), 2) for v in summary["agreement"]]
    columns["variance, mean"] = [percent(float(v.mean())) for v in variance]
    columns["range"] = [
        " – ".join(percent(float(f(v))) for f in (np.min, np.max)) for v in variance
    ]
    n, least = getattr(inputs.check, "n_permutations", 0), ""
    if n:
        text = TEXTS["elements"]["components"]["least"]
        least = text.format(least=1 / (1 + n), n=n)
    full = [[k, *map(float, row)] for k, row in enumerate(variance)]
    return Element.make(
        "components",
        {"least": least},
        table=Table(list(columns), list(zip(*columns.values(), strict=True))),
        data=Table(["feature", *inputs.names], full),
    )


def details_section(
    inputs: Inputs, seconds: Mapping[str, float] | None
) -> Section | None:
    """List settings, times and versions."""
    machine = f"{platform.system()} {platform.machine()}"
    used = {**versions(LIBRARIES), "platform": machine}
    tables = {
        "configuration": Table(["setting", "value"], flatten(inputs.config)),
        "versions": Table(["software", "version"], list(used.items())),
        "times": _times(inputs, seconds),
    }
    shown = [Element.make(id, table=t) for id, t in tables.items() if t.rows]
    return Section.make("details", shown)


def flatten(config: Mapping[str, Any], prefix: str = "") -> list[list[str]]:
    """Turn nested settings into rows of names and values."""
    rows = []
    for key, value in config.items():
        name = f"{prefix}{key}"
        if isinstance(value, Mapping):
            rows += flatten(value, f"{name}.") or [[name, "{}"]]
        else:
            rows.append([name, _setting_text(value)])
    return rows


def _setting_text(value: Any) -> str:
    if isinstance(value, str):
        return value
    if value is None or isinstance(value, (bool, int, float)):
        return repr(value)
    if hasattr(value, "shape"):
        return f"{type(value).__name__} of shape {tuple(value.shape)}"
    if isinstance(value, (list, tuple)):
        value = ", ".join(_setting_text(v) for v in value) or "none"
    elif callable(value):
        value = getattr(value, "__name__", type(value).__name__)
    return clean_text(value, limit=500)


def _times(inputs: Inputs, seconds: Mapping[str, float] | None) -> Table:
    """Tabulate the seconds of each stage: of this run, and of each result."""
    spent = {"this run": seconds or {}}
    for scored in inputs.results:
        spent[inputs.title(scored)] = scored.seconds
    stages = list(dict.fromkeys(stage for times in spent.values() for stage in times))
    stages.sort(key=lambda stage: stage == "total")  # the sum comes last
    rows = [
        [name, *(round(float(times[s]), 3) if s in times else None for s in stages)]
        for name, times in spent.items()
        if times
    ]
    return Table(["", *map(str, stages)], rows)


# -- brains: the reader chooses a shared feature and a subject -------------------------

MAX_VOXELS = 1000  # whose values a map offers for download


def maps_section(inputs: Inputs, n_components: int, n_subjects: int) -> Section | None:
    """Draw the first shared features on the brains of the first subjects."""
    chosen = dict(list(_maps_with_space(inputs).items())[:n_subjects])
    k = min(n_components, int(getattr(inputs.model, "n_components_", 0)))
    k = min(k, max(1, getattr(inputs.model, "n_informative_", k)))
    if not chosen or not k:
        return None
    try:
        element = _maps_element(inputs, chosen, k)
    except BrainweaveError as error:  # no voxel weights, or no picture
        element = Element.make("maps-note", {"error": str(error)})
    check, texts = inputs.check, TEXTS["sections"]["maps"]
    fails = check is not None and check.worked is False
    caution = texts["none_holds"] if fails else ""
    counts = {
        "subjects": count_of(len(chosen), len(inputs.model.maps_), "subjects"),
        "features": count_of(k, inputs.model.n_components_, "shared features"),
    }
    shown = texts["shown"].format(**counts)
    return Section.make("maps", [element], shown=shown, caution=caution)


def count_of(shown: int, total: int, what: str) -> str:
    """Say how many are shown of how many there are.

    Examples
    --------
    >>> count_of(3, 8, "subjects"), count_of(2, 2, "subjects")
    ('3 of 8 subjects', 'all 2 subjects')
    """
    return f"{shown} of {total} {what}" if shown < total else f"all {total} {what}"


def _maps_with_space(inputs: Inputs) -> dict[int, Any]:
    """Return the maps whose space is known, from the fit or the study, by subject."""
    found = {}
    for i, map_ in enumerate(getattr(inputs.model, "maps_", None) or []):
        space = getattr(map_, "space", None)
        if space is None and inputs.study is not None:
            map_, space = copy(map_), inputs.study.subjects[i].space
            map_.space = space
        if space is not None:
            found[i] = map_
    return found


def _maps_element(inputs: Inputs, maps: dict[int, Any], n_components: int) -> Element:
    """Draw features on brains, all with one colour scale."""
    patterns = {}
    for i, map_ in maps.items():
        first = map_.patterns[list(range(n_components))]
        first = first.toarray() if hasattr(first, "toarray") else first
        patterns[i] = np.nan_to_num(np.asarray(first, dtype=float))
    limit = max(float(np.abs(p).max(initial=0.0)) for p in patterns.values()) or 1.0
    check, drawn = inputs.check, []
    holds = np.ones(n_components, dtype=bool)
    if check is not None and check.pieces is None and len(check.p) >= n_components:
        holds = check.holds
    shown = [(k, i) for k in range(n_components) for i in maps]
    figures = feature_map_figures(((maps[i], k) for k, i in shown), limit=limit)
    for (k, i), figure in zip(shown, figures, strict=True):
        doubt = "" if holds[k] else " (does not hold up)"
        title = f"Shared feature {k}, {subject_name(inputs.names[i])}{doubt}"
        values = patterns[i][k]
        strongest = np.sort(np.argsort(-np.abs(values), kind="stable")[:MAX_VOXELS])
        listed = len(values) > MAX_VOXELS and f"the {MAX_VOXELS} strongest"
        which = f"{listed or 'all'} of {len(values):,} voxels"
        rows = [[int(v), float(values[v])] for v in strongest]
        table = Table(["voxel", "pattern"], rows)
        drawn.append((k, i, title, figure_png(figure, title), table, which))
    drawing = render(
        "maps.html.jinja",
        maps=drawn,
        features=range(n_components),
        subjects={i: subject_name(inputs.names[i]) for i in maps},
        limit=f"{limit:.2g}",
    )
    return Element.make("maps-chosen", figure=drawing)


# -- the shared space as an interactive drawing ----------------------------------------

WIDTH, HEIGHT, MARGIN = 680, 460, 40
MAX_POINTS = 6000  # more would make the page slow to open
MAX_SWITCHES = 60  # more categories are told by colour and on hover alone
MAX_FEATURES = 20  # more are not features to look at one by one
MAX_EMBEDDED = 10  # columns a reader can choose from
Sample = tuple[int, int, Any, Any]  # subject, number, run and label


def space_section(inputs: Inputs) -> Section | None:
    """Place the samples of all subjects; None without shared features."""
    if inputs.shared is None:
        return None
    all_points, axis = _coordinates(inputs.shared)
    n = len(all_points)
    chosen = np.arange(n)
    if n > MAX_POINTS:
        chosen = np.linspace(0, n - 1, MAX_POINTS).astype(np.intp)
    points = all_points[chosen, :MAX_EMBEDDED]
    axes = [f"{axis} {k}" for k in range(points.shape[1])]
    every = list(_list_samples(inputs, inputs.shared))
    samples = [every[i] for i in chosen]
    rows = [
        [inputs.names[subject], *sample, *np.round(values, 4).tolist()]
        for (subject, *sample), values in zip(samples, points, strict=True)
    ]
    element = Element.make(
        "shared-space",
        figure=_draw_space(inputs, samples, points, axes),
        data=Table(["subject", "sample", "run", "label", *axes], rows),
    )
    texts, left_out = TEXTS["drawn"], n - len(chosen)
    thinned = texts["left_out"].format(n=left_out) if left_out else ""
    return Section.make("space", [element], drawn=texts[inputs.drawn] + thinned)


def _list_samples(inputs: Inputs, shared: Sequence[NDArray[Any]]) -> Iterator[Sample]:
    """Yield the subject, number, run and label of every sample, counted from 0."""
    sequences = inputs.sequences
    for subject, features in enumerate(shared):
        n = len(features)
        labels = runs = [None] * n
        if sequences is not None:
            labels, runs = sequences.labels[subject], sequences.runs[subject]
        yield from zip([subject] * n, range(n), runs, labels, strict=True)


def _draw_space(
    inputs: Inputs, samples: list[Sample], points: NDArray[np.float64], axes: list[str]
) -> Markup:
    """Draw a group of circles per subject and category."""
    categories = [] if inputs.sequences is None else inputs.sequences.categories
    names, colors = [clean_text(c) for c in categories], palette(len(categories))
    codes = {category: code for code, category in enumerate(categories)}
    groups: dict[tuple[int, int], list[int]] = {}
    for i, (subject, _, _, label) in enumerate(samples):
        code = codes.get(label, len(categories))
        groups.setdefault((subject, code), []).append(i)
    if any(code == len(categories) for _, code in groups):
        names, colors = [*names, "unlabelled"], [*colors, UNLABELLED]
    groups = dict(sorted(groups.items()))
    places, ticks = _scale_points(points)
    runs = [None if run is None else clean_text(run) for _, _, run, _ in samples]
    run_names = list(dict.fromkeys(run for run in runs if run is not None))
    facts = {
        "subjects": [clean_text(name) for name in inputs.names],
        "categories": names,
        "axes": axes,
        "order": list(groups.values()),
        "samples": [number for _, number, _, _ in samples],
        "runs": run_names,
        "run": [-1 if run is None else run_names.index(run) for run in runs],
    }
    return render(
        "space.html.jinja",
        groups=[
            (subject, code, [(f"{x:.1f}", f"{y:.1f}") for x, y in places[members]])
            for (subject, code), members in groups.items()
        ],
        subject_colors=palette(len(inputs.names)),
        category_colors=colors,
        ticks=ticks,
        facts=facts,
        width=WIDTH,
        height=HEIGHT,
        margin=MARGIN,
        max_switches=MAX_SWITCHES,
    )


def _coordinates(
    arrays: Sequence[NDArray[np.float64]],
) -> tuple[NDArray[np.float64], str]:
    """Return coordinates of all samples, and what their axes are called.

    A few shared features are drawn as they are. Of many, as for methods that stay in
    voxels, the principal components are drawn.
    """
    pooled = np.concatenate(arrays)
    if pooled.shape[1] == 1:
        return np.hstack([pooled, np.zeros_like(pooled)]), "shared feature"
    if pooled.shape[1] <= MAX_FEATURES:
        return pooled, "shared feature"
    from sklearn.decomposition import PCA

    n_components = min(5, *pooled.shape)
    pca = PCA(n_components, svd_solver="randomized", random_state=0)
    return pca.fit_transform(pooled), "principal component"


def _scale_points(
    columns: NDArray[np.float64],
) -> tuple[NDArray[np.float64], dict[str, tuple[str, str]]]:
    """Scale the first two columns to the drawing; return the ends of its axes, too.

    The script of the page does the same for other columns.
    """
    xy = columns[:, :2]
    low, high = xy.min(axis=0), xy.max(axis=0)
    span = np.where(high > low, high - low, 1.0)
    room = np.array([WIDTH - 2 * MARGIN, HEIGHT - 2 * MARGIN])
    placed = MARGIN + (xy - low) / span * room
    placed[:, 1] = HEIGHT - placed[:, 1]
    ends = zip("xy", low, high, strict=True)
    return placed, {name: (f"{a:.2g}", f"{b:.2g}") for name, a, b in ends}
