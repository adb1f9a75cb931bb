"""Figures as inline SVG that follows the light and dark colours of the page."""

import base64
import io
import re
import warnings
from typing import TYPE_CHECKING
from xml.etree import ElementTree

from markupsafe import Markup

from brainweave.plotting.style import ACCENT, GRID, INK, MUTED, PAPER

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_SVG = "http://www.w3.org/2000/svg"
_XLINK = "{http://www.w3.org/1999/xlink}href"
_VARIABLES = {INK: "ink", MUTED: "muted", GRID: "grid", PAPER: "paper", ACCENT: "mark"}
_THEMED = re.compile("|".join(_VARIABLES))
_REFERENCE = re.compile(r"url\(#([^)]+)\)")
_SIZE = re.compile(r"font(?:-size)?:(?:[^;]*? )?\s*([\d.]+)px")
_DRAWING = Markup('<div class="drawing">{}</div>')
LEAST_TEXT = 11.2  # px


def figure_svg(figure: "Figure", id: str, label: str) -> Markup:
    """Return a figure as an ``<svg>`` element for the page, which may scroll.

    Text stays text; colours of the theme become variables of the page; ids get `id` in
    front, so that several figures can share a page.
    """
    import matplotlib as mpl

    out = io.BytesIO()
    with mpl.rc_context(), warnings.catch_warnings():
        mpl.rcParams.update({"svg.fonttype": "none", "svg.hashsalt": "brainweave"})
        # the page's fonts draw what Matplotlib's own font lacks
        warnings.filterwarnings("ignore", message="Glyph .* missing")
        warnings.filterwarnings("ignore", message="Matplotlib currently does not")
        figure.savefig(out, format="svg", transparent=True, metadata={"Date": None})
    root = ElementTree.fromstring(out.getvalue())
    for child in root.findall(f"{{{_SVG}}}metadata"):
        root.remove(child)
    for name in ("width", "height", "version"):
        root.attrib.pop(name, None)
    for node in root.iter():
        _adapt(node.attrib, id)
    # 1 pt of the figure is at most 1.6 px of the page, and its smallest text is never
    # drawn below what can be read: the drawing scrolls instead
    width = float(root.attrib["viewBox"].split()[2])
    sizes = [float(s) for n in root.iter() for s in _SIZE.findall(n.get("style", ""))]
    least = width * LEAST_TEXT / min(sizes) if sizes else 0.0
    root.set("style", f"max-width:{1.6 * width:.0f}px;min-width:{least:.0f}px")
    root.set("role", "img")
    root.set("aria-label", label)
    ElementTree.register_namespace("", _SVG)
    return _DRAWING.format(Markup(ElementTree.tostring(root, encoding="unicode")))


def _adapt(attributes: dict[str, str], id: str) -> None:
    if "id" in attributes:
        attributes["id"] = f"{id}-{attributes['id']}"
    if _XLINK in attributes:
        target = attributes.pop(_XLINK)
        attributes["href"] = f"#{id}-{target[1:]}" if target[:1] == "#" else target
    for name in ("clip-path", "style"):
        if name in attributes:
            value = _REFERENCE.sub(rf"url(#{id}-\1)", attributes[name])
            attributes[name] = _THEMED.sub(
                lambda m: f"var(--{_VARIABLES[m.group()]})", value
            )


def figure_png(figure: "Figure", label: str, *, dpi: int = 140) -> Markup:
    """Return a figure as an ``<img>`` that holds its pixels; for brains."""
    from PIL import Image

    out, small = io.BytesIO(), io.BytesIO()
    figure.savefig(out, format="png", dpi=dpi)
    # a palette of 64 colours is a quarter of the size, and looks the same
    Image.open(out).convert("RGB").quantize(64).save(small, "PNG", optimize=True)
    data = base64.b64encode(small.getvalue()).decode()
    image = Markup('<img class="brain" alt="{}" src="data:image/png;base64,{}">')
    return _DRAWING.format(image.format(label, data))
