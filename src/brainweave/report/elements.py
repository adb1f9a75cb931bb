"""Sections, elements (texts in ``templates/report.toml``) and figures of a report."""

import base64
import csv
import io
import tomllib
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib.resources import files
from numbers import Integral, Real
from typing import Any
from urllib.parse import quote

from markupsafe import Markup

from brainweave.plotting.style import clean_text

_FORMULA = ("=", "+", "-", "@")  # begin text that a spreadsheet would run


def asset(name: str) -> str:
    """Read a file of the package's templates."""
    return files("brainweave").joinpath("templates", name).read_text(encoding="utf-8")


TEXTS: dict[str, dict[str, Any]] = tomllib.loads(asset("report.toml"))


def measure_texts(score: str) -> dict[str, str]:
    """Return what the report says of a kind of score."""
    return dict(TEXTS["measures"].get(score, TEXTS["measures"]["other"]))


def render(template: str, *, escape: bool = True, **values: Any) -> Markup:
    """Fill in a template; values are escaped unless the template is plain text."""
    from jinja2 import Environment, PackageLoader, StrictUndefined

    environment = Environment(
        loader=PackageLoader("brainweave"),
        autoescape=escape,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters["show"] = show
    return Markup(environment.get_template(template).render(**values))


MOST_PLACES = 40  # of the brain that a table shows; all are in the download


@dataclass(frozen=True)
class Table:
    """Numbers with names: shown as a table, or offered as a CSV file."""

    columns: Sequence[str]
    rows: Sequence[Sequence[Any]]

    @classmethod
    def of(cls, columns: Mapping[str, Sequence[Any]]) -> "Table":
        """Make a table of named columns, without those that are all None."""
        kept = {n: c for n, c in columns.items() if any(v is not None for v in c)}
        return cls(list(kept), list(zip(*kept.values(), strict=True)))

    def first(self, most: int) -> tuple["Table", str]:
        """Return the first rows, and words for captions where these are not all."""
        cut = f"the first {most} of " if len(self.rows) > most else ""
        return Table(self.columns, self.rows[:most]), cut

    def csv(self) -> str:
        """Write the table as CSV."""
        out = io.StringIO()
        rows = [self.columns, *self.rows]
        writer = csv.writer(out, lineterminator="\n")
        writer.writerows([_csv_cell(cell) for cell in row] for row in rows)
        return out.getvalue()

    def data_uri(self) -> str:
        """Return the CSV as a data URI."""
        return "data:text/csv;charset=utf-8," + quote(self.csv(), safe=",;:!*()'")

    def is_number(self, column: int) -> bool:
        """Whether a column holds numbers, which are aligned to the right."""
        cells = [row[column] for row in self.rows if row[column] is not None]
        kinds = [isinstance(c, Real) or str(c).endswith("\u00a0%") for c in cells]
        return column > 0 and bool(kinds) and all(kinds)


@dataclass(frozen=True)
class Element:
    """One figure, table or text of the report."""

    id: str  # unique; a link can point at it, and files are named after it
    title: str
    caption: str
    wide: bool
    figure: Markup | None = None  # HTML made by us
    table: Table | None = None  # numbers to show
    data: Table | None = None  # numbers to download; by default those shown

    @classmethod
    def make(
        cls,
        kind: str,
        values: Mapping[str, Any] | None = None,
        *,
        figure: Any = None,
        **options: Any,
    ) -> "Element":
        """Make an element with the texts of its kind, filled in with values."""
        texts, values = TEXTS["elements"][kind], values or {}
        if figure is not None and not isinstance(figure, Markup):
            figure = picture(figure, texts["label"].format(**values))
        title, below = (texts.get(n, "").format(**values) for n in ("title", "caption"))
        wide = {"wide": texts.get("wide", False), **options}
        return cls(kind, title, below, figure=figure, **wide)


@dataclass(frozen=True)
class Section:
    """A chapter of the report."""

    id: str
    title: str
    intro: str
    elements: list[Element]

    @classmethod
    def make(
        cls, id: str, elements: Sequence[Element | None], **values: str
    ) -> "Section | None":
        """Make a chapter of the elements that are not None; None without any."""
        present = [element for element in elements if element is not None]
        texts = TEXTS["sections"][id]
        title, intro = (texts.get(n, "").format(**values) for n in ("title", "intro"))
        return cls(id, title, intro, present) if present else None


def show(value: Any) -> str:
    """Write a cell for people."""
    if value is None or value != value:  # noqa: PLR0124 - NaN
        return "–"
    if isinstance(value, bool) or type(value).__name__ == "bool":
        return "yes" if value else "no"
    if isinstance(value, Real) and not isinstance(value, Integral):
        return f"{float(value):.4g}"
    return str(value)


def _csv_cell(value: Any) -> str:
    if isinstance(value, Real):
        return str(int(value)) if isinstance(value, Integral) else f"{value:.6g}"
    text = "" if value is None else clean_text(value, limit=200)
    return "'" + text if text.startswith(_FORMULA) else text


def picture(drawn: Any, label: str, *, brain: bool = False) -> Markup:
    """Return axes, a figure or a display of a brain as an ``<img>``, and close it."""
    import matplotlib as mpl
    import matplotlib.pyplot as plt
    from PIL import Image

    figure: Any = getattr(drawn, "frame_axes", drawn).figure
    out, kind = io.BytesIO(), "png" if brain else "svg"
    with mpl.rc_context(), warnings.catch_warnings():
        mpl.rcParams.update({"svg.fonttype": "none", "svg.hashsalt": "brainweave"})
        # the page's fonts draw what Matplotlib's own font lacks
        missing = "Glyph .* missing|Matplotlib currently does not"
        warnings.filterwarnings("ignore", message=missing)
        how: Any = {} if brain else {"transparent": True, "metadata": {"Date": None}}
        figure.savefig(out, format=kind, dpi=140, **how)
    plt.close(figure)
    if brain:
        # a palette of 64 colours is a quarter of the size, and looks the same
        image, out = Image.open(out), io.BytesIO()
        image.convert("RGB").quantize(64).save(out, "PNG", optimize=True)
    data = base64.b64encode(out.getvalue()).decode()
    # 1 pt is 1.4 to 1.6 px: text of 8 pt can be read, or the drawing scrolls
    width = 72 * figure.get_figwidth()
    style = f"min-width:{1.4 * width:.0f}px;max-width:{1.6 * width:.0f}px"
    source = f"data:image/{kind.replace('svg', 'svg+xml')};base64,{data}"
    drawing = '<div class="drawing"><img alt="{}" style="{}" src="{}"></div>'
    return Markup(drawing).format(label, style, source)
