"""The chapters of a report; intervals and tests between methods are over subjects."""

import platform
from collections.abc import Mapping, Sequence
from contextlib import suppress
from copy import copy
from itertools import product
from typing import Any

import numpy as np
from markupsafe import Markup

from brainweave import plotting
from brainweave._core.arrays import Matrix
from brainweave._core.exceptions import BrainweaveError, InputError
from brainweave._core.version import NUMERICAL, versions
from brainweave.evaluation.comparison import (
    SHARES,
    SIGNIFICANT,
    compare_results,
    percent,
    subject_interval,
    subject_means,
)
from brainweave.plotting.results import Scored, Sequences, row_shares
from brainweave.plotting.style import UNLABELLED, clean_text, subject_name
from brainweave.report.elements import (
    MOST_PLACES,
    TEXTS,
    Element,
    Section,
    Table,
    brain_png,
    measure_texts,
    render,
)
from brainweave.report.films import MAX_STRIPS, coverage
from brainweave.report.inputs import Inputs
from brainweave.study.provenance import describe_record

MAX_COUNTED = 16  # categories that fit into a table


def data_section(inputs: Inputs) -> Section | None:
    """Describe the samples: how many, in which order."""
    elements = []
    if inputs.sequences is not None:
        if inputs.film is not None:
            elements.append(coverage(inputs, inputs.film))
        elif inputs.sequences.categories:
            elements.append(_sequences(inputs, inputs.sequences))
        elements.append(_table_of_subjects(inputs, inputs.sequences))
    done = describe_record(inputs.record)
    if done:
        table = Table(["step", "what was done"], done)
        elements.append(Element.make("preprocessing", table=table))
    return Section.make("data", elements, done=" and preprocessing" if done else "")


def _sequences(inputs: Inputs, sequences: Sequences) -> Element:
    shown = list(inputs.study or sequences.labels)[:MAX_STRIPS]
    names, n = inputs.names[:MAX_STRIPS], len(sequences.labels)
    distinct = len({tuple(map(str, labels)) for labels in sequences.labels})
    kind = {n: "all_differ", 1: "all_same"}.get(distinct, "some_differ")
    texts = TEXTS["elements"]["sequences"]
    values = {
        "told": texts[kind].format(n=n, distinct=distinct),
        "more": texts["more"].format(drawn=MAX_STRIPS, n=n) if n > MAX_STRIPS else "",
    }
    return Element.make(
        "sequences",
        values,
        figure=plotting.plot_sequences(shown, names=names, legend=False),
        legend=sequences.legend(),
    )


def _table_of_subjects(inputs: Inputs, sequences: Sequences) -> Element:
    columns: dict[str, list[Any]] = {"subject": inputs.names}
    columns["samples"] = sequences.lengths
    if inputs.film is not None:
        columns["of the film"] = [percent(own.mean()) for own in inputs.film.seen]
    if inputs.study is not None:
        columns["voxels"] = [s.n_voxels for s in inputs.study]
        columns["space"] = [getattr(s.space, "kind", None) for s in inputs.study]
    if any(run is not None for runs in sequences.runs for run in runs):
        columns["runs"] = [len(set(runs)) for runs in sequences.runs]
    if len(sequences.categories) <= MAX_COUNTED:  # none, maybe
        for category in sequences.categories:
            counts = [labels.count(category) for labels in sequences.labels]
            columns[f"“{clean_text(category)}”"] = counts
    else:
        columns["categories"] = [len({*labels} - {None}) for labels in sequences.labels]
    unlabelled = [labels.count(None) for labels in sequences.labels]
    if any(unlabelled) and sequences.categories:
        columns["unlabelled"] = unlabelled
    return Element.make("subjects", table=Table.of(columns))


WIDE = 12  # categories above which a matrix needs the whole width


def results_section(inputs: Inputs) -> Section | None:
    """Show accuracies, subject by subject, and confusions."""
    if not inputs.results:
        return None
    parts = (_accuracy, _comparisons, _accuracy_by_subject, _confusion)
    texts = measure_texts(inputs.results[0].score)
    return Section.make("results", [part(inputs) for part in parts], **texts)


def _accuracy(inputs: Inputs) -> Element:
    """Draw the methods as lines of HTML, which stay readable at any width."""
    rows, drawn = [], []
    for protocol, members in inputs.panels:
        drawn.append((protocol, [(s, subject_interval(s)) for s in members]))
        rows += [{"method": s.shown(members), **_numbers(s)} for s in members]
    columns = {name: [row[name] for row in rows] for name in rows[0]}
    if any(columns["voxels"]):
        columns["voxels"] = [which or "own" for which in columns["voxels"]]
    classifiers, classifier = {*filter(None, columns["classifier"])}, ""
    if len(classifiers) == 1:  # named once, in the caption
        del columns["classifier"]
        classifier = f"Classifier: {classifiers.pop()}. "
    folds = [
        [
            *(s.name, s.protocol, fold.get("half"), fold.get("fold")),
            " ".join(map(str, fold.get("test_subjects", ()))),
            *(float(score), s.chance),
        ]
        for s in inputs.results
        for fold, score in zip(s.folds, s.scores, strict=True)
    ]
    called = inputs.results[0].called
    header = ["method", "protocol", "half", "fold", "test subjects", called]
    options: dict[str, Any] = {"explained": TEXTS["panels"], "called": called}
    texts = measure_texts(inputs.results[0].score)
    return Element.make(
        "accuracy",
        {**texts, "score": called.capitalize(), "classifier": classifier},
        figure=render("accuracy.html.jinja", panels=drawn, **options),
        table=Table.of(columns),
        data=Table([*header, "chance"], folds),
    )


def _numbers(scored: Scored) -> dict[str, Any]:
    each = getattr(scored.result, "balanced_accuracy", None)
    balanced = None if each is None else float(np.mean(each))
    between, n = subject_interval(scored), len(scored.scores)
    common = scored.design.get("voxels") == "common"
    return {
        "protocol": scored.protocol or None,
        "voxels": "in all masks" if common else None,
        "classifier": scored.design.get("classifier"),
        scored.called: scored.write(scored.mean),
        "95 % interval": None
        if between is None
        else " – ".join(map(scored.write, between)),
        "SD": scored.write(float(scored.scores.std())) if n > 1 else None,
        "chance": scored.write(scored.chance),
        "aligned on": scored.aligned_on,
        "balanced accuracy": None if balanced is None else percent(balanced),
        "p (permutation)": scored.p_value,
        "smallest p possible": scored.smallest_p,
        "folds": n,
    }


def _comparisons(inputs: Inputs) -> Element | None:
    found = []
    for protocol, members in inputs.panels:
        named = [(scored.shown(members), scored) for scored in members]
        found += [(protocol, pair) for pair in compare_results(named)]
    if not found:
        return None
    pairs, shares = [pair for _, pair in found], inputs.results[0].score in SHARES
    table = Table.of(
        {
            "methods": [f"{pair.better} vs. {pair.other}" for pair in pairs],
            "protocol": [protocol or None for protocol, _ in found],
            f"difference{', points' * shares}": [
                round((100 if shares else 1) * pair.difference, 1 if shares else 3)
                for pair in pairs
            ],
            "p": [round(pair.p, 4) for pair in pairs],
            "smallest p possible": [round(pair.smallest_p, 4) for pair in pairs],
            "subjects": [pair.n_subjects for pair in pairs],
        }
    )
    least, few = max(pair.smallest_p for pair in pairs), ""
    if least > SIGNIFICANT:
        fewest = min(pair.n_subjects for pair in pairs)
        text = TEXTS["elements"]["between-methods"]["few"]
        few = text.format(fewest=fewest, least=least)
    return Element.make("between-methods", {"few": few}, table=table)


def _accuracy_by_subject(inputs: Inputs) -> Element | None:
    """Tabulate the accuracy of each subject, the worst first."""
    listed = [scored for _, members in inputs.panels for scored in members]
    accuracies = {inputs.title(scored): subject_means(scored) for scored in listed}
    known = [by_id for by_id in accuracies.values() if by_id]
    ids = list(dict.fromkeys(id for by_id in known for id in by_id))
    if len(ids) < 2:
        return None
    ids.sort(key=lambda id: known[0].get(id, 2.0))
    columns: dict[str, list[Any]] = {"subject": [subject_name(id) for id in ids]}
    write = listed[0].write
    for title, by_id in accuracies.items():
        columns[title] = [write(by_id[id]) if id in by_id else None for id in ids]
    texts = {"called": listed[0].called}
    return Element.make(
        "by-subject", texts, table=Table.of(columns), wide=len(known) > 2
    )


def _confusion(inputs: Inputs) -> Element | None:
    """Draw the confusions of the method that counts."""
    scored = inputs.main_result(inputs.panels[0][1])
    counts = getattr(scored.result, "confusion", None)
    if counts is None:
        return None
    counts, categories = np.asarray(counts), list(scored.result.categories)
    shares = row_shares(counts)
    rows = [
        [categories[i], categories[j], int(n), float(shares[i, j])]
        for (i, j), n in np.ndenumerate(counts)
    ]
    return Element.make(
        "confusion",
        {"name": inputs.title(scored)},
        figure=plotting.plot_confusion(scored.result, title=""),
        data=Table(["true", "predicted", "samples", "share"], rows),
        wide=len(categories) > WIDE,
    )


def learning_section(curve: Any) -> Section | None:
    """Draw scores against the amount of people's own aligning data."""
    if curve is None:
        return None
    names = ("method", "fraction", "samples", "minutes", "mean", "se", "n_subjects")
    columns = {name: [p[name] for p in curve.points] for name in names}
    element = Element.make(
        "learning-curve",
        {"notes": "".join(f" {note}" for note in curve.notes)},
        figure=plotting.plot_learning_curve(curve),
        table=Table.of(columns),
    )
    return Section.make("learning", [element])


LIBRARIES = (*NUMERICAL, "joblib", "pandas", "nibabel", "nilearn", "matplotlib")


def model_section(inputs: Inputs) -> Section | None:
    """Show what the model learned and kept."""
    elements = []
    if getattr(inputs.model, "place_", None) is not None:
        elements.append(_place(inputs.model.place_))
    if hasattr(inputs.model, "component_summary"):
        # a model that came back without its bases may not know any more
        with suppress(InputError):
            elements.append(_components(inputs))
    if inputs.check is not None and inputs.check.pieces is not None:
        elements.append(_pieces(inputs.model, inputs.check))
    return Section.make("model", elements)


def _pieces(model: Any, check: Any) -> Element:
    """Show how well subjects agree in each piece of the brain."""
    figure = None
    with suppress(BrainweaveError):  # a space that is not known, or without a picture
        image = model.piece_image(check.pieces["agreement"])
        space = model._places_of_pieces(0)[0].space
        title = TEXTS["elements"]["pieces"]["title"]
        figure = brain_png(plotting.plot_brain(image, space), title)
    ranked = check.pieces.sort_values(["p", "agreement"], ascending=[True, False])
    data = Table.of({name: own.tolist() for name, own in ranked.reset_index().items()})
    shown, cut = data.first(MOST_PLACES)
    values = {"shown": cut, "least": f"{1 / (1 + check.n_permutations):.2g}"}
    return Element.make("pieces", values, figure=figure, table=shown, data=data)


def _place(place: Any) -> Element:
    """Say whether the maps have a part in common, or why not."""
    return Element.make("place", {"place": str(place)})


def _components(inputs: Inputs) -> Element:
    summary = inputs.model.component_summary(check=inputs.check)
    variance = summary.filter(like="variance_").to_numpy()
    columns: dict[str, Any] = {"feature": range(len(summary))}
    columns["fit to the graph"] = summary["graph_fit"]
    if "p" in summary and np.isfinite(summary["p"]).any():  # could be checked
        columns["holds up"] = [bool(p < SIGNIFICANT) for p in summary["p"]]
        columns["p"] = summary["p"]
        columns["agreement, held out"] = summary["agreement_cv"].round(2)
    columns["agreement, in sample"] = summary["agreement"].round(2)
    columns["variance, mean"] = [percent(v.mean()) for v in variance]
    columns["range"] = [f"{percent(v.min())} – {percent(v.max())}" for v in variance]
    n, text = getattr(inputs.check, "n_permutations", 0), TEXTS["elements"]
    least = text["components"]["least"].format(least=1 / (1 + n), n=n) if n else ""
    full = [[k, *row] for k, row in enumerate(variance)]
    return Element.make(
        "components",
        {"least": least},
        table=Table(list(columns), list(zip(*columns.values(), strict=True))),
        data=Table(["feature", *inputs.names], full),
    )


def details_section(inputs: Inputs) -> Section | None:
    """List settings and versions."""
    machine = f"{platform.system()} {platform.machine()}"
    used = {**versions(LIBRARIES), "platform": machine}
    tables = {
        "configuration": Table(["setting", "value"], flatten(inputs.config)),
        "versions": Table(["software", "version"], list(used.items())),
    }
    shown = [Element.make(id, table=t) for id, t in tables.items() if t.rows]
    return Section.make("details", shown)


def flatten(config: Mapping[str, Any], prefix: str = "") -> list[list[str]]:
    """Return rows of names and values of nested settings."""
    rows = []
    for key, value in config.items():
        if isinstance(value, Mapping) and value:
            rows += flatten(value, f"{prefix}{key}.")
            continue
        if hasattr(value, "shape"):
            value = f"{type(value).__name__} of shape {tuple(value.shape)}"
        elif callable(value):
            value = getattr(value, "__name__", type(value).__name__)
        rows.append([f"{prefix}{key}", clean_text(value, limit=500)])
    return rows


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
    totals = len(inputs.model.maps_), inputs.model.n_components_
    shown = texts["shown"].format(
        subjects=f"{len(chosen)} of {totals[0]} subjects",
        features=f"{k} of {totals[1]} shared features",
    )
    caution = texts["none_holds"] if fails else ""
    return Section.make("maps", [element], shown=shown, caution=caution)


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
    features = list(range(n_components))
    patterns = [map_.patterns[features] for map_ in maps.values()]
    dense = [p.toarray() if hasattr(p, "toarray") else p for p in patterns]
    limit = max(float(np.abs(np.nan_to_num(p)).max(initial=0)) for p in dense) or 1.0
    check, drawn = inputs.check, []
    holds = np.ones(n_components, dtype=bool)
    if check is not None and check.pieces is None and len(check.p) >= n_components:
        holds = check.holds
    for k, i in product(features, maps):
        doubt = "" if holds[k] else " (does not hold up)"
        title = f"Shared feature {k}, {subject_name(inputs.names[i])}{doubt}"
        brain = plotting.plot_feature_map(maps[i], k, limit=limit, colorbar=False)
        drawn.append((k, i, title, brain_png(brain, title)))
    drawing = render(
        "maps.html.jinja",
        maps=drawn,
        features=features,
        subjects={i: subject_name(inputs.names[i]) for i in maps},
        limit=f"{limit:.2g}",
    )
    return Element.make("maps-chosen", figure=drawing)


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
    chosen = np.linspace(0, n - 1, min(n, MAX_POINTS)).round().astype(np.intp)
    points = all_points[chosen, :MAX_EMBEDDED]
    axes = [f"{axis} {k}" for k in range(points.shape[1])]
    lengths = [len(features) for features in inputs.shared]
    blank = [[None] * length for length in lengths]
    known = inputs.sequences or Sequences(inputs.names, blank, blank)
    every: list[Sample] = [
        (subject, number, known.runs[subject][number], known.labels[subject][number])
        for subject, length in enumerate(lengths)
        for number in range(length)
    ]
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


def _draw_space(
    inputs: Inputs, samples: list[Sample], points: Matrix, axes: list[str]
) -> Markup:
    """Draw a group of circles per subject and category."""
    categories = [] if inputs.sequences is None else inputs.sequences.categories
    names = [clean_text(c) for c in categories]
    colors = plotting.palette(len(categories))
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
        subject_colors=plotting.palette(len(inputs.names)),
        category_colors=colors,
        ticks=ticks,
        facts=facts,
        width=WIDTH,
        height=HEIGHT,
        margin=MARGIN,
        max_switches=MAX_SWITCHES,
    )


def _coordinates(arrays: Sequence[Matrix]) -> tuple[Matrix, str]:
    """Return shared features, or principal components of many, and their name."""
    pooled = np.concatenate(arrays)
    if pooled.shape[1] == 1:
        return np.hstack([pooled, np.zeros_like(pooled)]), "shared feature"
    if pooled.shape[1] <= MAX_FEATURES:
        return pooled, "shared feature"
    from sklearn.decomposition import PCA

    n_components = min(5, *pooled.shape)
    pca = PCA(n_components, svd_solver="randomized", random_state=0)
    return pca.fit_transform(pooled), "principal component"


def _scale_points(columns: Matrix) -> tuple[Matrix, dict[str, tuple[str, str]]]:
    """Scale two columns to the drawing, as its script does; return the axes' ends."""
    xy = columns[:, :2]
    low, high = xy.min(axis=0), xy.max(axis=0)
    span = np.where(high > low, high - low, 1.0)
    room = np.array([WIDTH - 2 * MARGIN, HEIGHT - 2 * MARGIN])
    placed = MARGIN + (xy - low) / span * room
    placed[:, 1] = HEIGHT - placed[:, 1]
    ends = zip("xy", low, high, strict=True)
    return placed, {name: (f"{a:.2g}", f"{b:.2g}") for name, a, b in ends}
