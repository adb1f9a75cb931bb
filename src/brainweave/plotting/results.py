"""How well subjects were classified: accuracies with their folds, and confusions."""

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
from numpy.typing import NDArray

from brainweave.exceptions import InputError
from brainweave.plotting.style import (
    ACCENT,
    INK,
    MUTED,
    PAPER,
    check_not_empty,
    clean_text,
    name_ticks,
    new_figure,
    percent,
    styled,
)

if TYPE_CHECKING:
    from matplotlib.figure import Figure

BASELINES = ("noalignment", "withoutalignment", "none")
ON_ACCENT = "#fffffe"  # white on light and dark pages alike
MAX_NUMBERS = 12  # categories up to which cells of a confusion matrix hold numbers
MAX_NAMES = 30  # categories up to which rows and columns are named


class Result(Protocol):
    """What figures need of a classification result."""

    scores: NDArray[np.float64]
    categories: Sequence[Any]
    confusion: NDArray[Any]
    chance: float
    protocol: str
    method: str


def list_results(results: Any) -> list[tuple[str, Any]]:
    """Name one result, a list of results, or a mapping of names to results."""
    if results is None:
        return []
    if isinstance(results, Mapping):
        named = [(str(name), result) for name, result in results.items()]
    else:
        single = hasattr(results, "scores") or not isinstance(results, Iterable)
        listed = [results] if single else list(results)
        named = [(_method_name(r), r) for r in listed]
    for name, result in named:
        for field in ("scores", "chance"):
            if not hasattr(result, field):
                raise TypeError(
                    f"Result {name!r} is a {type(result).__name__} without "
                    f"{field!r}; give what between_subject_classification returns."
                )
        if np.size(result.scores) == 0:
            raise InputError(f"Result {name!r} has no folds.")
    return named


def _method_name(result: Any) -> str:
    name = str(getattr(result, "method", "?"))
    return "without alignment" if is_baseline(name) else name


def method_of(name: str, result: Any) -> str:
    """Return the class of the aligner; the name of a result that does not say."""
    return str(getattr(result, "method", "") or name)


def aligns_nothing(name: str, result: Any) -> bool:
    """Say whether a result is that of no alignment, by its method."""
    return is_baseline(method_of(name, result))


def is_baseline(method: str) -> bool:
    """Say whether a method is the one that aligns nothing.

    Examples
    --------
    >>> is_baseline("Without alignment"), is_baseline("GDM")
    (True, False)
    """
    squeezed = "".join(c for c in method.casefold() if c.isalnum())
    return squeezed in BASELINES


def protocol_of(result: Any) -> str:
    """Return "joint", "held-out", or "" if the result does not say."""
    return str(getattr(result, "protocol", "") or "")


def _group_by_protocol(named: list[tuple[str, Any]]) -> dict[str, list[Any]]:
    groups: dict[str, list[Any]] = {}
    for name, result in named:
        groups.setdefault(protocol_of(result), []).append((name, result))
    return groups


@styled
def plot_accuracy(results: Any) -> "Figure":
    """Draw a bar per result, its folds as dots, and the chance level.

    Parameters
    ----------
    results : result, list of results, or mapping of names to results
        What :func:`brainweave.between_subject_classification` returns; a mapping names
        the bars, else ``method`` does. Results of one protocol stand together.

    Returns
    -------
    Figure
    """
    named = list_results(results)
    check_not_empty(named, "results")
    groups = _group_by_protocol(named)
    headings: list[str] = [p for p in groups if p]
    n_slots = len(named) + 0.8 * len(headings)
    figure, (ax,) = new_figure(6.0, 0.75 + 0.34 * n_slots)
    ticks, names, y = [], [], 0.0
    chances = {float(r.chance) for _, r in named}
    for protocol, members in groups.items():
        if protocol:
            ticks.append(y)
            names.append(protocol)
            y += 0.8
        for name, result in members:
            _draw_bar(ax, y, result, muted=aligns_nothing(name, result))
            if len(chances) > 1:
                ax.vlines(result.chance, y - 0.5, y + 0.5, color=INK, linestyle="--")
            ticks.append(y)
            names.append(name)
            y += 1
    name_ticks(ax.yaxis, ticks, names)
    ax.tick_params(axis="y", length=0)
    for label in ax.get_yticklabels():
        if label.get_text() in headings:
            label.set(color=MUTED, fontstyle="italic")
    ax.set_xlim(0, 1)
    ax.set_ylim(y - 0.4, -0.6)
    ax.set_xticks(np.linspace(0, 1, 6), [f"{p} %" for p in range(0, 101, 20)])
    ax.spines["left"].set_visible(False)
    if len(chances) == 1:
        chance = chances.pop()
        ax.axvline(chance, color=INK, linestyle=(0, (4, 3)), linewidth=1.1)
        ax.set_xlabel(
            f"accuracy per fold, and mean; dashed: chance ({percent(chance)})"
        )
    else:
        ax.set_xlabel("accuracy per fold, and mean; dashed: chance")
    return figure


def _draw_bar(ax: Any, y: float, result: Any, *, muted: bool) -> None:
    scores = np.asarray(result.scores, dtype=float)
    mean = float(scores.mean())
    color, alpha = (MUTED, 0.45) if muted else (ACCENT, 0.8)
    ax.barh(y, mean, height=0.62, color=color, alpha=alpha, linewidth=0)
    spread = np.linspace(-0.2, 0.2, len(scores)) if len(scores) > 1 else [0]
    ax.scatter(
        scores,
        y + np.asarray(spread),
        s=13,
        color=INK,
        edgecolors=PAPER,
        linewidths=0.6,
        zorder=3,
        clip_on=False,
    )
    text = f"{100 * mean:.1f} %"
    if len(scores) > 1:
        text = f"{100 * mean:.1f} ± {100 * scores.std():.1f} %"
    ax.text(1.03, y, text, va="center", transform=ax.get_yaxis_transform())


@styled
def plot_confusion(result: Any, *, title: str | None = None) -> "Figure":
    """Draw the confusion matrix of a result as shares of the true category.

    Parameters
    ----------
    result : ClassificationResult
        With ``confusion`` (counts; rows are the true categories) and ``categories``.
    title : str, optional
        Default: the method and its protocol.

    Returns
    -------
    Figure
        A row without test samples stays empty.
    """
    from matplotlib.colors import LinearSegmentedColormap, to_rgba

    counts = np.asarray(result.confusion, dtype=float)
    categories = list(result.categories)
    n = len(categories)
    if counts.shape != (n, n):
        raise InputError(
            f"The confusion matrix has shape {counts.shape} for {n} categories."
        )
    shares = row_shares(counts)
    size = min(1.4 + 0.36 * max(n, 3), 6.4)
    figure, (ax,) = new_figure(size + 0.5, size)
    # from nothing to the accent colour, so that it also lies on dark paper
    r, g, b, _ = to_rgba(ACCENT)
    cmap = LinearSegmentedColormap.from_list("accent", [(r, g, b, 0.04), (r, g, b, 1)])
    ax.imshow(np.nan_to_num(shares), cmap=cmap, vmin=0, vmax=1, interpolation="none")
    if n <= MAX_NUMBERS:
        for (i, j), share in np.ndenumerate(shares):
            if np.isfinite(share) and round(100 * share) > 0:
                color = ON_ACCENT if share > 0.55 else INK
                text = f"{100 * share:.0f}"
                ax.text(j, i, text, ha="center", va="center", color=color, fontsize=8)
    if n <= MAX_NAMES:
        name_ticks(ax.xaxis, list(range(n)), categories)
        name_ticks(ax.yaxis, list(range(n)), categories)
        turn = 45 if n <= MAX_NUMBERS else 90
        for label in ax.get_xticklabels():
            label.set(rotation=turn, ha="right", rotation_mode="anchor")
            if turn == 90:
                label.set(va="center")
    ax.tick_params(length=0)
    ax.spines[:].set_visible(False)
    ax.set_xlabel("predicted")
    ax.set_ylabel("true")
    if title is None:
        title = ", ".join(filter(None, (str(result.method), protocol_of(result))))
    ax.set_title(clean_text(title), parse_math=False)
    return figure


def row_shares(counts: NDArray[Any]) -> NDArray[np.float64]:
    """Divide counts by the sum of their row; NaN where a row is empty."""
    counts = np.asarray(counts, dtype=float)
    totals = counts.sum(axis=1, keepdims=True)
    return np.divide(
        counts, totals, out=np.full(counts.shape, np.nan), where=totals > 0
    )
