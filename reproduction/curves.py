"""Figures of GDM's accuracy against one setting, a panel per data set."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from matplotlib.figure import Figure

from brainweave.plotting import style

if TYPE_CHECKING:
    from matplotlib.artist import Artist

COLUMNS = 3  # panels side by side
_LEVELS = ((style.INK, "--"), (style.MUTED, "-."), (style.MUTED, ":"))


class CurvePanel(NamedTuple):
    """One data set: GDM over a setting, and levels that do not depend on it.

    Attributes
    ----------
    title : str
        Name of the data set.
    x : sequence of float
        The setting: incompleteness or energy.
    mean, std : sequence of float
        Accuracy at each x, and the width of its band; NaN where there is none.
    lines : mapping of str to float
        Levels such as "without alignment", "best of others" and "guess".
    """

    title: str
    x: Sequence[float]
    mean: Sequence[float]
    std: Sequence[float]
    lines: Mapping[str, float]


@style.styled
def plot_curve_panels(panels: Sequence[CurvePanel], xlabel: str) -> Figure:
    """Draw a panel per data set, with a curve, a band and horizontal lines, in percent.

    Examples
    --------
    >>> panel = CurvePanel("raider", [0, 10], [0.6, 0.5], [0.1, 0.1], {"guess": 0.1})
    >>> figure = plot_curve_panels([panel], "incompleteness (%)")
    >>> figure.axes[0].get_lines()[0].get_ydata().tolist()
    [60.0, 50.0]
    """
    columns = min(COLUMNS, len(panels))
    rows = -(-len(panels) // columns)
    width = 2.6 * columns + 0.4 if columns > 1 else 4.6
    figure = Figure(figsize=(width, 2.4 * rows + 0.7), layout="constrained")
    axes = figure.subplots(rows, columns, squeeze=False).ravel()
    handles: dict[str, Artist] = {}
    for ax, panel in zip(axes, panels, strict=False):
        style.new_axes(ax, 0, 0)
        y, band = 100 * np.array(panel.mean), 100 * np.array(panel.std)
        look = {"color": style.ACCENT, "marker": "o", "markersize": 4, "zorder": 3}
        (handles["GDM"],) = ax.plot(panel.x, y, **look)
        shade = {"color": style.ACCENT, "alpha": 0.15, "linewidth": 0}
        ax.fill_between(panel.x, y - band, y + band, **shade)
        for (name, level), (color, dashes) in zip(
            panel.lines.items(), _LEVELS, strict=False
        ):
            look = {"color": color, "linestyle": dashes, "linewidth": 1.1}
            handles[name] = ax.axhline(100 * level, **look)
        ax.set_title(style.clean_text(panel.title), parse_math=False)
        ax.grid(axis="y", color=style.GRID, linewidth=0.6)
        ax.set_axisbelow(True)
    for ax in axes[len(panels) :]:
        ax.remove()
    figure.supxlabel(xlabel, fontsize=9, color=style.INK)
    figure.supylabel("accuracy (%)", fontsize=9, color=style.INK)
    place = {"loc": "outside upper center", "ncols": min(4, len(handles))}
    style.add_legend(figure, list(handles.values()), handles, **place)
    return figure
