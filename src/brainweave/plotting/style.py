"""Colours, sizes and text rules that all figures share."""

import unicodedata
from collections.abc import Callable, Iterable, Sequence
from functools import wraps
from typing import TYPE_CHECKING, Any, ParamSpec, TypeVar

from brainweave._core.exceptions import InputError

if TYPE_CHECKING:
    from matplotlib.axes import Axes

P = ParamSpec("P")
R = TypeVar("R")

INK = "#1f2328"
MUTED = "#656d76"
GRID = "#d8dee4"
PAPER = "#ffffff"
ACCENT = "#0072b2"
UNLABELLED = "#9ba3ac"
DASHED = (0, (4, 3))

# Okabe and Ito (2008) with a darker yellow, and purple for black; Petroff (2021); the
# colour alphabet of Green-Armytage (2010) without what is lost on black or on white.
_PALETTES = [
    "0072b2 e69f00 009e73 cc79a7 56b4e9 d55e00 b5a300 7b5ea7",
    "3f90da ffa90e bd1f01 94a4a2 832db6 a96b59 e76300 b9ac70 717581 92dadd",
    "0075dc ff0010 2bce48 ffa405 740aff 00998f c20088 993f00 5ecfe0 8f7c00 f0a3ff "
    "426600 ff5005 808080 9dcc00 990000 2f4fa8 ffa8bb 005c31 d9b800 7a3a8c d6a06a "
    "5fbf8f a9b8ff",
]

MAX_TEXT = 40  # longer names would leave no room for the figure


def palette(n: int) -> list[str]:
    """Return n colours that people with colour vision deficiencies can tell apart.

    Up to 10 suit all common kinds of colour vision, up to 24 are from a colour
    alphabet; more are equal steps of viridis.

    Parameters
    ----------
    n : int
        Number of colours.

    Returns
    -------
    list of str
        In hexadecimal.

    Examples
    --------
    >>> palette(2)
    ['#0072b2', '#e69f00']
    >>> len(set(palette(30)))
    30
    """
    for colors in map(str.split, _PALETTES):
        if n <= len(colors):
            return ["#" + color for color in colors[:n]]
    from matplotlib import colormaps
    from matplotlib.colors import to_hex

    viridis = colormaps["viridis"]
    return [to_hex(viridis(0.03 + 0.92 * i / (n - 1))) for i in range(n)]


def clean_text(value: Any, limit: int = MAX_TEXT) -> str:
    """Return a name as one line of text without characters that XML cannot hold."""
    text = "".join(
        " " if unicodedata.category(c) in ("Cc", "Cs", "Cn", "Zl", "Zp") else c
        for c in str(value)
    ).strip()
    return text if len(text) <= limit else text[: limit - 1] + "…"


def subject_name(name: Any) -> str:
    """Call a subject so that a reader knows it is one."""
    text = clean_text(name)
    return text if text.lower().startswith("sub") else f"subject {text}"


_STYLE: dict[Any, Any] = {
    "font.size": 9,
    "axes.titlesize": 10,
    "axes.titleweight": "bold",
    "axes.titlelocation": "left",
    "text.color": INK,
    "axes.edgecolor": MUTED,
    "axes.labelcolor": INK,
    "axes.titlecolor": INK,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "legend.frameon": False,
    "legend.fontsize": 8.5,
    "axes.facecolor": "none",
}


def styled(function: Callable[P, R]) -> Callable[P, R]:
    """Run a plotting function under the style of this module."""

    @wraps(function)
    def run(*args: P.args, **kwargs: P.kwargs) -> R:
        import matplotlib as mpl

        with mpl.rc_context():
            mpl.rcdefaults()
            mpl.rcParams.update(_STYLE)
            drawn = function(*args, **kwargs)
            interactive = mpl.is_interactive()
        mpl.interactive(interactive)  # the first figure of a notebook turns it on
        return drawn

    return run


def new_axes(axes: "Axes | None", width: float, height: float) -> "Axes":
    """Return the given axes, or those of a new pyplot figure (inches), tidied."""
    if axes is None:
        import matplotlib.pyplot as plt

        _, axes = plt.subplots(figsize=(width, height), layout="constrained")
    # ticks are made when the style is no longer in force
    axes.tick_params(color=MUTED, labelcolor=INK, labelsize=8.5, length=3, pad=3)
    return axes


def name_ticks(axis: Any, positions: Sequence[float], names: Iterable[Any]) -> None:
    """Put names from data at ticks, as they are: a dollar sign starts no formula."""
    axis.set_ticks(positions, [clean_text(n) for n in names], parse_math=False)


def add_legend(
    parent: Any, handles: Sequence[Any], names: Iterable[Any], **place: Any
) -> None:
    """Add a legend, beside axes by default, with names from data as they are."""
    beside = {"loc": "upper left", "bbox_to_anchor": (1.0, 1.0), "borderaxespad": 0.3}
    # Matplotlib leaves out names that begin with an underscore: a thin space protects
    texts = [clean_text(n) for n in names]
    texts = ["\u2009" + t if t.startswith("_") else t for t in texts]
    legend = parent.legend(handles, texts, handlelength=1.2, **(place or beside))
    for text in legend.get_texts():
        text.set_parse_math(False)


def draw_strips(image: Any, names: Sequence[Any], axes: "Axes | None") -> "Axes":
    """Draw a strip per subject: colours of shape (n_subjects, n_samples, RGBA)."""
    import numpy as np

    n, longest = image.shape[:2]
    ax = new_axes(axes, 6.8, 0.75 + 0.26 * max(n, 2))
    ax.imshow(image, aspect="auto", interpolation="none", extent=(0, longest, n, 0))
    ax.hlines(np.arange(1, n), 0, longest, color=PAPER, linewidth=3)
    name_ticks(ax.yaxis, list(np.arange(n) + 0.5), names)
    ax.tick_params(axis="y", length=0)
    ax.spines[:].set_visible(False)
    return ax


def check_not_empty(things: Sequence[Any], what: str) -> None:
    """Refuse to draw nothing."""
    if len(things) == 0:
        raise InputError(f"There is nothing to draw: no {what} given.")


def span(values: Sequence[int], what: str) -> str:
    """Write how many there are, as one number or the lowest and the highest."""
    ends = sorted({min(values), max(values)}) if values else []
    return f"{'–'.join(f'{n:,}' for n in ends)} {what}" if ends else ""
