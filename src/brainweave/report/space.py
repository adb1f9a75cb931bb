"""The shared space as a drawing that can be asked: hover, switch, turn."""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from brainweave.plotting.style import UNLABELLED, clean_text, palette
from brainweave.report.elements import TEXTS, Element, Section, Table, render
from brainweave.report.inputs import Inputs

WIDTH, HEIGHT, MARGIN = 680, 460, 40
MAX_POINTS = 6000  # more would make the page slow to open
MAX_SWITCHES = 60  # more categories are told by colour and on hover alone
MAX_FEATURES = 20  # more are not features to look at one by one
MAX_EMBEDDED = 10  # columns a reader can choose from


def space_section(inputs: Inputs) -> Section | None:
    """Place the samples of all subjects; None without shared features."""
    if inputs.shared is None:
        return None
    all_columns, axis = _columns(inputs.shared)
    n = len(all_columns)
    chosen = np.arange(n)
    if n > MAX_POINTS:
        chosen = np.linspace(0, n - 1, MAX_POINTS).astype(np.intp)
    columns = all_columns[chosen, :MAX_EMBEDDED]
    lengths = [len(a) for a in inputs.shared]
    subject = np.repeat(np.arange(len(lengths)), lengths)[chosen]
    sample = np.concatenate([np.arange(length) for length in lengths])[chosen] + 1
    known, labels, runs = [], [None] * n, [None] * n
    if inputs.sequences is not None:
        known = inputs.sequences.categories
        labels = [v for of in inputs.sequences.labels for v in of]
        runs = [v for of in inputs.sequences.runs for v in of]
    labels, runs = ([values[i] for i in chosen] for values in (labels, runs))
    names, colors = [clean_text(c) for c in known], palette(len(known))
    code_of = {c: i for i, c in enumerate(known)}
    category = np.array([code_of.get(v, len(known)) for v in labels], dtype=int)
    if (category == len(known)).any():
        names, colors = [*names, "unlabelled"], [*colors, UNLABELLED]
    places, ticks = _place(columns)
    groups, order = [], []
    for s, c in sorted(set(zip(subject.tolist(), category.tolist(), strict=True))):
        members = np.flatnonzero((subject == s) & (category == c))
        points = [(f"{x:.1f}", f"{y:.1f}") for x, y in places[members]]
        groups.append((s, c, points))
        order.append(members.tolist())
    run_names = list(dict.fromkeys(clean_text(r) for r in runs if r is not None))
    axes = [f"{axis} {k + 1}" for k in range(columns.shape[1])]
    rows = [
        [inputs.names[s], int(number), run, label, *np.round(values, 4).tolist()]
        for s, number, run, label, values in zip(
            subject, sample, runs, labels, columns, strict=True
        )
    ]
    facts = {
        "subjects": [clean_text(name) for name in inputs.names],
        "categories": names,
        "axes": axes,
        "order": order,
        "samples": sample.tolist(),
        "runs": run_names,
        "run": [-1 if r is None else run_names.index(clean_text(r)) for r in runs],
    }
    drawing = render(
        "space.html.jinja",
        groups=groups,
        subject_colors=palette(len(inputs.names)),
        category_colors=colors,
        ticks=ticks,
        facts=facts,
        width=WIDTH,
        height=HEIGHT,
        margin=MARGIN,
        max_switches=MAX_SWITCHES,
    )
    data = Table(["subject", "sample", "run", "label", *axes], rows)
    element = Element.make("shared-space", figure=drawing, data=data)
    say, left = TEXTS["drawn"], n - len(chosen)
    thinned = say["left_out"].format(n=left) if left else ""
    return Section.make("space", [element], drawn=say[inputs.drawn] + thinned)


def _columns(arrays: Sequence[NDArray[np.float64]]) -> tuple[NDArray[np.float64], str]:
    """Return columns to draw samples in, and what these are called.

    Shared features as they are when there are few; else, as for methods that stay in
    voxels, the principal components of all samples.
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


def _place(
    columns: NDArray[np.float64],
) -> tuple[NDArray[np.float64], dict[str, tuple[str, str]]]:
    """Fit the first two columns into the drawing; the script does the same."""
    xy = columns[:, :2]
    low, high = xy.min(axis=0), xy.max(axis=0)
    span = np.where(high > low, high - low, 1.0)
    room = np.array([WIDTH - 2 * MARGIN, HEIGHT - 2 * MARGIN])
    placed = MARGIN + (xy - low) / span * room
    placed[:, 1] = HEIGHT - placed[:, 1]
    ends = zip("xy", low, high, strict=True)
    return placed, {name: (f"{a:.2g}", f"{b:.2g}") for name, a, b in ends}
