"""``table-from``: show a table of another page, so that a number stands in one place.

In Markdown::

    ```{table-from} results.md
    :heading: Raider
    :columns: method, joint, held-out
    ```

The first table beneath the first heading that begins with ``heading`` is taken; of it,
the columns that are named, or all.
"""

import re
from pathlib import Path
from typing import Any, ClassVar

from docutils import nodes
from docutils.parsers.rst import Directive, directives
from docutils.statemachine import StringList

Rows = list[list[str]]


def read_table(text: str, heading: str) -> Rows:
    """Return the cells of the first table beneath a heading of a Markdown text."""
    found = re.search(rf"^#+\s+{re.escape(heading)}.*$", text, re.MULTILINE)
    if found is None:
        raise ValueError(f"There is no heading that begins with {heading!r}.")
    rows: Rows = []
    for line in text[found.end() :].splitlines():
        if line.startswith("|"):
            rows.append([cell.strip() for cell in line.strip().strip("|").split("|")])
        elif rows or line.startswith("#"):
            break
    if len(rows) < 3:
        raise ValueError(f"There is no table beneath {heading!r}.")
    return [rows[0], *rows[2:]]  # without the line of dashes


def choose_columns(rows: Rows, columns: list[str]) -> Rows:
    """Return the rows with the named columns alone."""
    absent = [name for name in columns if name not in rows[0]]
    if absent:
        raise ValueError(f"The table has {rows[0]}, not {absent}.")
    places = [rows[0].index(name) for name in columns]
    return [[row[i] for i in places] for row in rows]


class TableFrom(Directive):
    """Show a table of another page of the documentation."""

    required_arguments = 1
    final_argument_whitespace = True
    option_spec: ClassVar[dict[str, Any]] = {
        "heading": directives.unchanged_required,
        "columns": directives.unchanged,
    }

    def run(self) -> list[nodes.Node]:
        """Build the table from the other page as it is now."""
        env = self.state.document.settings.env
        path = Path(env.doc2path(env.docname)).parent / self.arguments[0]
        env.note_dependency(str(path.resolve()))
        try:
            rows = read_table(path.read_text("utf-8"), self.options["heading"])
            names = [c.strip() for c in self.options.get("columns", "").split(",")]
            rows = choose_columns(rows, names if names != [""] else rows[0])
        except (OSError, ValueError) as error:
            raise self.error(f"{path}: {error}") from error
        lines = ["| " + " | ".join(row) + " |" for row in rows]
        lines.insert(1, "|" + "---|" * len(rows[0]))
        node = nodes.container(classes=["table-from"])
        self.state.nested_parse(StringList(lines, str(path)), self.content_offset, node)
        return [node]


def setup(app: object) -> dict[str, bool]:
    """Register with Sphinx."""
    app.add_directive("table-from", TableFrom)
    return {"parallel_read_safe": True}
