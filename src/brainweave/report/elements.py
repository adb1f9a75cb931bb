"""What a report is made of: sections of small elements, each with its numbers.

What they say is in ``templates/report.toml``.
"""

import csv
import io
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from importlib.resources import files
from numbers import Integral, Real
from typing import Any
from urllib.parse import quote

from markupsafe import Markup

from brainweave.plotting.style import clean_text
from brainweave.report.svg import figure_svg

# Text that a spreadsheet would run as a formula when it opens the numbers.
_FORMULA = ("=", "+", "-", "@")
_CSV_TEXT = 200


def asset(name: str) -> str:
    """Read a text that comes with the package."""
    return files("brainweave").joinpath("templates", name).read_text(encoding="utf-8")


TEXTS: dict[str, dict[str, Any]] = tomllib.loads(asset("report.toml"))


def render(template: str, *, escape: bool = True, **values: Any) -> Markup:
    """Fill in a template; all that comes from data is escaped, except in plain text."""
    from jinja2 import Environment, PackageLoader, StrictUndefined

    environment = Environment(
        loader=PackageLoader("brainweave"),
        autoescape=escape,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    return Markup(environment.get_template(template).render(**values))


@dataclass(frozen=True)
class Table:
    """Numbers with names: shown as a table, or offered as a CSV file.

    Examples
    --------
    >>> table = Table(["method", "accuracy"], [["GDM", 0.5], ["=1+1", 0.25]])
    >>> print(table.csv(), end="")
    method,accuracy
    GDM,0.5
    '=1+1,0.25
    """

    columns: Sequence[str]
    rows: Sequence[Sequence[Any]]

    @classmethod
    def of(cls, columns: Mapping[str, Sequence[Any]]) -> "Table":
        """Make a table of named columns, without those that say nothing."""
        kept = {n: c for n, c in columns.items() if any(v is not None for v in c)}
        return cls(list(kept), list(zip(*kept.values(), strict=True)))

    def csv(self) -> str:
        """Write the table as CSV."""
        out = io.StringIO()
        rows = [self.columns, *self.rows]
        writer = csv.writer(out, lineterminator="\n")
        writer.writerows([_csv_cell(cell) for cell in row] for row in rows)
        return out.getvalue()

    def data_uri(self) -> str:
        """Return the CSV as an address that holds it whole."""
        return "data:text/csv;charset=utf-8," + quote(self.csv(), safe=",;:!*()'")

    def cells(self) -> list[list[str]]:
        """Return all cells as text for people."""
        return [[show(cell) for cell in row] for row in self.rows]

    def is_number(self, column: int) -> bool:
        """Say whether a column holds numbers, which stand right."""
        cells = [row[column] for row in self.rows if row[column] is not None]
        return column > 0 and bool(cells) and all(map(_is_number, cells))


@dataclass(frozen=True)
class Element:
    """One figure, table or text of the report."""

    id: str  # unique; a link can point at it, and files are named after it
    title: str
    caption: str
    wide: bool
    figure: Markup | None = None  # inline SVG, an image, or other HTML made by us
    table: Table | None = None  # numbers to show
    data: Table | None = None  # numbers to download; by default those shown
    legend: list[tuple[str, str]] = field(default_factory=list)  # names and colours
    folded: bool = False  # shown on demand

    @classmethod
    def make(
        cls,
        kind: str,
        told: Mapping[str, Any] | None = None,
        *,
        number: str = "",
        caption: str = "caption",
        figure: Any = None,
        **options: Any,
    ) -> "Element":
        """Make an element whose texts are known, and filled in with what is told.

        The figure is Markup or a matplotlib Figure; `number` tells elements of one kind
        apart, `caption` which of its captions holds.
        """
        known, id, told = TEXTS["elements"][kind], kind + number, told or {}
        if figure is not None and not isinstance(figure, Markup):
            figure = figure_svg(figure, id, known["label"].format(**told))
        title, below = (known.get(n, "").format(**told) for n in ("title", caption))
        wide = options.pop("wide", known.get("wide", False))
        return cls(id, title, below, wide, figure, **options)


@dataclass(frozen=True)
class Section:
    """A chapter of the report."""

    id: str
    title: str
    intro: str
    elements: list[Element]

    @classmethod
    def make(
        cls, id: str, elements: Sequence[Element | None], **told: str
    ) -> "Section | None":
        """Make a chapter of the elements that are there; None without any."""
        there = [element for element in elements if element is not None]
        known = TEXTS["sections"][id]
        title, intro = (known.get(n, "").format(**told) for n in ("title", "intro"))
        return cls(id, title, intro, there) if there else None


def show(value: Any) -> str:
    """Write a cell for people."""
    if value is None or value != value:  # noqa: PLR0124 - NaN
        return "–"
    if isinstance(value, bool) or type(value).__name__ == "bool":
        return "yes" if value else "no"
    if isinstance(value, Real) and not isinstance(value, Integral):
        return f"{float(value):.4g}"
    return str(value)


def _is_number(value: Any) -> bool:
    return isinstance(value, Real) or (
        isinstance(value, str) and value.endswith("\u00a0%") and value[0].isdigit()
    )


def _csv_cell(value: Any) -> str:
    if value is None:
        return ""
    if isinstance(value, Integral):
        return str(int(value))
    if isinstance(value, Real):
        return f"{float(value):.6g}"
    text = clean_text(value, limit=_CSV_TEXT)
    return "'" + text if text.startswith(_FORMULA) else text
