"""What each subject saw, in the order in which it was seen."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from brainweave.labels import is_missing, sort_labels
from brainweave.plotting import style

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
        return sort_labels(label for labels in self.labels for label in labels)

    @property
    def lengths(self) -> list[int]:
        """Number of samples of each subject."""
        return [len(labels) for labels in self.labels]

    def legend(self) -> list[tuple[str, str]]:
        """Return the names and colours of the categories; none if they are too many."""
        categories = self.categories
        if len(categories) > MAX_LEGEND:
            return []
        names = [style.clean_text(c) for c in categories]
        found = list(zip(names, style.palette(len(names)), strict=True))
        if any(None in labels for labels in self.labels):
            found.append(("unlabelled", style.UNLABELLED))
        return found


def read_sequences(study: Any, names: Sequence[Any] | None = None) -> Sequences:
    """Take labels and runs from a Study, or from one list of labels per subject."""
    entries = list(study)
    style.check_not_empty(entries, "subjects")
    if names is None and all(hasattr(s, "id") for s in entries):
        names = [s.id for s in entries]
    names = style.name_subjects(names, len(entries))
    labels, runs = [], []
    for entry in entries:
        is_subject = hasattr(entry, "n_samples")
        n = int(entry.n_samples) if is_subject else len(entry)
        labels.append(_listed(entry.labels if is_subject else entry, n))
        runs.append(_listed(getattr(entry, "runs", None), n))
    return Sequences([str(n) for n in names], labels, runs)


def _listed(values: Iterable[Any] | None, n: int) -> list[Any]:
    if values is None:
        return [None] * n
    listed = np.asarray(values, dtype=object).tolist()
    return [None if is_missing(v) else v for v in listed]


@style.styled
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
    colors = dict(zip(categories, style.palette(len(categories)), strict=True))
    n, longest = len(sequences.names), max(sequences.lengths)
    image = np.zeros((n, longest, 4))  # beyond a subject's last sample: nothing
    for row, labels in enumerate(sequences.labels):
        for column, label in enumerate(labels):
            image[row, column] = to_rgba(colors.get(label, style.UNLABELLED))

    figure, (ax,) = style.new_figure(7.2 if legend else 6.6, 0.75 + 0.26 * max(n, 2))
    ax.imshow(image, aspect="auto", interpolation="none", extent=(0, longest, n, 0))
    ax.hlines(np.arange(1, n), 0, longest, color=style.PAPER, linewidth=3)
    for row, runs in enumerate(sequences.runs):
        borders = [i for i in range(1, len(runs)) if runs[i] != runs[i - 1]]
        ax.vlines(borders, row, row + 1, color=style.PAPER, linewidth=1.6)
    style.name_ticks(ax.yaxis, list(np.arange(n) + 0.5), sequences.names)
    ax.tick_params(axis="y", length=0)
    ax.set_xlabel("sample, in the order seen")
    ax.spines[:].set_visible(False)
    known = sequences.legend() if legend and categories else []
    if known:
        handles = [Patch(color=color) for _, color in known]
        style.add_legend(ax, handles, [name for name, _ in known])
    return figure
