"""The shared space as a drawing that can be asked: hover, switch, turn."""

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from brainweave.plotting.style import UNLABELLED, clean_text, palette
from brainweave.report.elements import Table
from brainweave.report.inputs import Inputs, two_dimensional

WIDTH, HEIGHT, MARGIN = 680, 460, 40
MAX_POINTS = 6000  # more would make the page slow to open
MAX_SWITCHES = 60  # more categories are told by colour and on hover alone
MAX_EMBEDDED = 10  # columns a reader can choose from


@dataclass(frozen=True)
class Group:
    """Samples of one subject and one category, at places of the drawing."""

    subject: int
    category: int
    points: list[tuple[str, str]]


@dataclass(frozen=True)
class SharedSpace:
    """All that the template and the script need."""

    groups: list[Group]
    subjects: list[str]
    subject_colors: list[str]
    categories: list[str]
    category_colors: list[str]
    axes: list[str]
    data: Table
    facts: dict[str, Any]  # for the script
    left_out: int
    drawn: str
    width: int = WIDTH
    height: int = HEIGHT
    margin: int = MARGIN

    @property
    def ticks(self) -> dict[str, dict[str, str]]:
        """The values at the ends of the two axes that are drawn first."""
        found = {}
        for axis, name in zip("xy", [*self.axes, ""][:2], strict=True):
            at = (
                list(self.data.columns).index(name) if name in self.data.columns else -1
            )
            values = [float(row[at]) for row in self.data.rows] if at >= 0 else []
            ends = (min(values), max(values)) if values else ("", "")
            texts = [f"{v:.2g}" if isinstance(v, float) else "" for v in ends]
            found[axis] = dict(zip(("low", "high"), texts, strict=True))
        return found

    @property
    def has_category_switches(self) -> bool:
        """Whether there are few enough categories for a switch each."""
        return 1 < len(self.categories) <= MAX_SWITCHES


def build_space(inputs: Inputs) -> SharedSpace | None:
    """Place the samples of all subjects; None without shared features."""
    if inputs.shared is None:
        return None
    columns, axis = two_dimensional(inputs.shared)
    columns = columns[:, :MAX_EMBEDDED]
    subject = np.repeat(np.arange(len(inputs.shared)), [len(a) for a in inputs.shared])
    sample = np.concatenate([np.arange(len(a)) for a in inputs.shared])
    labels, runs = _annotations(inputs, len(subject))
    known = inputs.sequences.categories if inputs.sequences is not None else []
    names = [clean_text(c) for c in known]
    colors = palette(len(known))
    code_of = {c: i for i, c in enumerate(known)}
    category = np.array([code_of.get(v, len(known)) for v in labels], dtype=int)
    if (category == len(known)).any():
        names, colors = [*names, "unlabelled"], [*colors, UNLABELLED]

    chosen = _thin_out(len(subject))
    kept = (subject[chosen], category[chosen], columns[chosen])
    groups, order = _group(*kept)
    run_names = list(dict.fromkeys(clean_text(r) for r in runs if r is not None))
    run_of = {r: i for i, r in enumerate(run_names)}
    axes = [f"{axis} {k + 1}" for k in range(columns.shape[1])]
    rows = [
        [inputs.names[subject[i]], int(sample[i]) + 1, runs[i], labels[i]]
        + [round(float(v), 4) for v in columns[i]]
        for i in chosen
    ]
    return SharedSpace(
        groups=groups,
        subjects=[clean_text(n) for n in inputs.names],
        subject_colors=palette(len(inputs.names)),
        categories=names,
        category_colors=colors,
        axes=axes,
        data=Table(["subject", "sample", "run", "label", *axes], rows),
        facts={
            "order": order,
            "samples": [int(sample[i]) + 1 for i in chosen],
            "runs": run_names,
            "run": [
                -1 if runs[i] is None else run_of[clean_text(runs[i])] for i in chosen
            ],
        },
        left_out=len(subject) - len(chosen),
        drawn=inputs.drawn,
    )


def _annotations(inputs: Inputs, n: int) -> tuple[list[Any], list[Any]]:
    if inputs.sequences is None:
        return [None] * n, [None] * n
    return (
        [v for labels in inputs.sequences.labels for v in labels],
        [v for runs in inputs.sequences.runs for v in runs],
    )


def _thin_out(n: int) -> NDArray[np.intp]:
    """Choose samples at equal steps when there are too many to draw."""
    if n <= MAX_POINTS:
        return np.arange(n)
    return np.linspace(0, n - 1, MAX_POINTS).astype(np.intp)


def _group(
    subject: NDArray[Any], category: NDArray[Any], columns: NDArray[np.float64]
) -> tuple[list[Group], list[list[int]]]:
    """Sort samples into groups, and say which sample each point is."""
    places = _places(columns)
    groups, order = [], []
    for s, c in sorted(
        {(int(s), int(c)) for s, c in zip(subject, category, strict=True)}
    ):
        members = np.flatnonzero((subject == s) & (category == c))
        points = [(f"{places[i, 0]:.1f}", f"{places[i, 1]:.1f}") for i in members]
        groups.append(Group(s, c, points))
        order.append(members.tolist())
    return groups, order


def _places(columns: NDArray[np.float64]) -> NDArray[np.float64]:
    """Fit the first two columns into the drawing; the script does the same."""
    xy = columns[:, :2]
    low, high = xy.min(axis=0), xy.max(axis=0)
    span = np.where(high > low, high - low, 1.0)
    room = np.array([WIDTH - 2 * MARGIN, HEIGHT - 2 * MARGIN])
    placed = MARGIN + (xy - low) / span * room
    placed[:, 1] = HEIGHT - placed[:, 1]
    return np.asarray(placed)
