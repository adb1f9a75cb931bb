"""What a report is made of: sections of small elements, each with its numbers."""

import csv
import io
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from numbers import Integral, Real
from typing import Any
from urllib.parse import quote

from markupsafe import Markup

from brainweave.plotting.style import clean_text

# Text that a spreadsheet would run as a formula when it opens the numbers.
_FORMULA = ("=", "+", "-", "@")
_CSV_TEXT = 200


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
        writer = csv.writer(out, lineterminator="\n")
        writer.writerows(
            [_csv_cell(v) for v in row] for row in [self.columns, *self.rows]
        )
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
    """One figure, table or text of the report.

    Parameters
    ----------
    id : str
        Unique in the report; a link can point at it, and files are named after it.
    title, caption : str
        Heading, and what is seen, in plain words.
    figure : Markup, optional
        Inline SVG, an image, or other HTML made by us.
    table, data : Table, optional
        Numbers to show, and numbers to download; by default those shown.
    legend : list of (name, colour)
        What the colours of the figure mean.
    wide, folded : bool
        Whether it takes the whole width, and whether it is shown on demand.
    """

    id: str
    title: str = ""
    caption: str = ""
    figure: Markup | None = None
    table: Table | None = None
    data: Table | None = None
    legend: list[tuple[str, str]] = field(default_factory=list)
    wide: bool = False
    folded: bool = False


@dataclass(frozen=True)
class Section:
    """A chapter of the report."""

    id: str
    title: str
    intro: str = ""
    elements: list[Element] = field(default_factory=list)


def show(value: Any) -> str:
    """Write a cell for people.

    Examples
    --------
    >>> show(0.123456), show(3), show(None), show(True)
    ('0.1235', '3', '–', 'yes')
    """
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
