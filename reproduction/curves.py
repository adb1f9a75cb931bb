"""Figures of accuracy against one setting, a panel per data set, as in the paper."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np
from matplotlib.figure import Figure

from brainweave._core.exceptions import InputError
from brainweave.plotting import style

if TYPE_CHECKING:
    from matplotlib.artist import Artist

__all__ = ["CurvePanel", "plot_curve_panels"]

_LINE_STYLES = ("--", "-.", ":", (0, (6, 2, 1, 2, 1, 2)))
_MARKERS = "osD^vP"


@dataclass(frozen=True)
class CurvePanel:
    """One data set: curves over a setting, and levels that do not depend on it.

    Parameters
    ----------
    title : str
        Name of the data set.
    x : sequence of float
        The setting: incompleteness, energy, number of components.
    curves : mapping of str to sequence of float
        Name of a method and its score at each x; NaN where there is none.
    errors : mapping of str to sequence of float, optional
        Standard deviations of some of the curves, drawn as a band.
    lines : mapping of str to float, optional
        Levels such as "without alignment", "best of others" and "guess".
    """

    title: str
    x: Sequence[float]
    curves: Mapping[str, Sequence[float]]
    errors: Mapping[str, Sequence[float]] = field(default_factory=dict)
    lines: Mapping[str, float] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for what in ("curves", "errors"):
            for name, values in getattr(self, what).items():
                if len(values) != len(self.x):
                    raise InputError(
                        f"Panel {self.title!r}: {what}[{name!r}] has {len(values)} "
                        f"values for {len(self.x)} points x."
                    )


@style.styled
def plot_curve_panels(
    panels: Sequence[CurvePanel],
    *,
    xlabel: str = "",
    ylabel: str = "accuracy (%)",
    scale: float = 100,
    columns: int = 3,
) -> Figure:
    """Draw one panel per data set with curves and horizontal lines.

    Parameters
    ----------
    panels : sequence of CurvePanel
        Curves and lines of the same name look the same in all panels.
    xlabel, ylabel : str
        Names of the axes.
    scale : float, default=100
        What scores are multiplied with: 100 turns shares into percent.
    columns : int, default=3
        Panels side by side.

    Returns
    -------
    Figure
        With one legend for all panels.

    Examples
    --------
    >>> panel = CurvePanel("raider", [0, 10], {"GDM": [0.6, 0.5]}, lines={"guess": 0.1})
    >>> figure = plot_curve_panels([panel], xlabel="incompleteness (%)")
    >>> figure.axes[0].get_lines()[0].get_ydata().tolist()
    [60.0, 50.0]
    """
    style.check_not_empty(panels, "panels")
    columns = max(1, min(columns, len(panels)))
    rows = -(-len(panels) // columns)
    width = 2.6 * columns + 0.4 if columns > 1 else 4.6
    figure = Figure(figsize=(width, 2.4 * rows + 0.7), layout="constrained")
    grid = figure.subplots(rows, columns, squeeze=False)
    axes = [style.new_axes(ax, 0, 0) for ax in grid.ravel()]
    curves = list(dict.fromkeys(name for panel in panels for name in panel.curves))
    lines = list(dict.fromkeys(name for panel in panels for name in panel.lines))
    colors = dict(zip(curves, style.palette(len(curves)), strict=True))
    handles: dict[str, Artist] = {}
    for ax, panel in zip(axes, panels, strict=False):
        x = np.asarray(panel.x, dtype=float)
        for name, values in panel.curves.items():
            y = scale * np.asarray(values, dtype=float)
            color = colors[name]
            marker = _MARKERS[curves.index(name) % len(_MARKERS)]
            (handles[name],) = ax.plot(
                x, y, color=color, marker=marker, markersize=4, zorder=3
            )
            if name in panel.errors:
                band = scale * np.asarray(panel.errors[name], dtype=float)
                low, high = y - band, y + band
                ax.fill_between(x, low, high, color=color, alpha=0.15, linewidth=0)
        for name, level in panel.lines.items():
            number = lines.index(name)
            handles[name] = ax.axhline(
                scale * level,
                color=style.MUTED if number else style.INK,
                linestyle=_LINE_STYLES[number % len(_LINE_STYLES)],
                linewidth=1.1,
            )
        ax.set_title(style.clean_text(panel.title), parse_math=False)
        ax.grid(axis="y", color=style.GRID, linewidth=0.6)
        ax.set_axisbelow(True)
    for ax in axes[len(panels) :]:
        ax.remove()
    figure.supxlabel(xlabel, fontsize=9, color=style.INK)
    figure.supylabel(ylabel, fontsize=9, color=style.INK)
    order = [name for name in [*curves, *lines] if name in handles]
    style.add_legend(
        figure,
        [handles[name] for name in order],
        order,
        loc="outside upper center",
        ncols=min(4, len(order)),
    )
    return figure
