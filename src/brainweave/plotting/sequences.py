"""What each subject saw, in the order in which it was seen."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from brainweave.exceptions import InputError
from brainweave.labels import is_missing
from brainweave.plotting.style import (
    PAPER,
    UNLABELLED,
    add_legend,
    check_not_empty,
    name_ticks,
    new_figure,
    ordered_names,
    palette,
    styled,
)

if TYPE_CHECKING:
    from matplotlib.figure import Figure

MAX_LEGEND = 24  # more categories are told by the order of their colours alone


@dataclass(frozen=True)
class Sequences:
    """Labels and runs of each subject's samples, under the subjects' names."""

    names: list[str]
    labels: list[list[Any]]
    runs: list[list[Any]]

    @property
    def categories(self) -> list[Any]:
        """All labels that occur, sorted."""
        return ordered_names(label for labels in self.labels for label in labels)


def read_sequences(study: Any, names: Sequence[Any] | None = None) -> Sequences:
    """Take labels and runs from a Study, or from one list of labels per subject."""
    entries = list(study)
    check_not_empty(entries, "subjects")
    if names is None:
        names = [getattr(s, "id", f"subject {i}") for i, s in enumerate(entries)]
    if len(names) != len(entries):
        raise InputError(f"{len(names)} names for {len(entries)} subjects.")
    labels, runs = [], []
    for entry in entries:
        if hasattr(entry, "n_samples"):
            n = int(entry.n_samples)
            labels.append(_listed(getattr(entry, "labels", None), n))
            runs.append(_listed(getattr(entry, "runs", None), n))
        else:
            labels.append(_listed(entry, len(entry)))
            runs.append([None] * len(entry))
    return Sequences([str(n) for n in names], labels, runs)


def _listed(values: Iterable[Any] | None, n: int) -> list[Any]:
    if values is None:
        return [None] * n
    listed = np.asarray(values, dtype=object).tolist()
    return [None if is_missing(v) else v for v in listed]


@styled
def plot_sequences(
    study: Any, *, names: Sequence[Any] | None = None, legend: bool = True
) -> "Figure":
    """Draw a strip of coloured samples per subject, one colour per category.

    Parameters
    ----------
    study : Study, or list of array-like
        Subjects with labels (and runs), or one array of labels per subject.
    names : sequence of str, optional
        What to call the subjects; default: their ids.
    legend : bool, default=True
        Say which colour is which category, if these are not too many.

    Returns
    -------
    Figure
        Gaps in a strip are borders of runs; grey samples are unlabelled.

    Examples
    --------
    >>> figure = plot_sequences([["face", "house"], ["house", "face", "face"]])
    >>> figure.axes[0].images[0].get_array().shape  # subjects x samples x RGBA
    (2, 3, 4)
    """
    from matplotlib.colors import to_rgba
    from matplotlib.patches import Patch

    sequences = read_sequences(study, names)
    categories = sequences.categories
    colors = dict(zip(categories, palette(len(categories)), strict=True))
    n, longest = len(sequences.names), max(len(s) for s in sequences.labels)
    image = np.zeros((n, longest, 4))  # beyond a subject's last sample: nothing
    for row, labels in enumerate(sequences.labels):
        for column, label in enumerate(labels):
            image[row, column] = to_rgba(colors.get(label, UNLABELLED))

    figure, (ax,) = new_figure(7.2 if legend else 6.6, 0.75 + 0.26 * max(n, 2))
    ax.imshow(image, aspect="auto", interpolation="none", extent=(0, longest, n, 0))
    ax.hlines(np.arange(1, n), 0, longest, color=PAPER, linewidth=3)
    for row, runs in enumerate(sequences.runs):
        borders = [i for i in range(1, len(runs)) if runs[i] != runs[i - 1]]
        ax.vlines(borders, row, row + 1, color=PAPER, linewidth=1.6)
    name_ticks(ax.yaxis, list(np.arange(n) + 0.5), sequences.names)
    ax.tick_params(axis="y", length=0)
    ax.set_xlabel("sample, in the order seen")
    ax.spines[:].set_visible(False)
    if legend and 0 < len(categories) <= MAX_LEGEND:
        handles = [Patch(color=colors[c]) for c in categories]
        shown: list[Any] = list(categories)
        if any(label is None for labels in sequences.labels for label in labels):
            handles.append(Patch(color=UNLABELLED))
            shown.append("unlabelled")
        add_legend(ax, handles, shown)
    return figure
