"""``table-from``: show a table of another page, so that a number stands in one place.

In Markdown::

    ```{table-from} results.md
    :heading: Raider
    :columns: method, joint, held-out
    ```

The first table beneath the first heading that begins with ``heading`` is taken; of it,
the columns that are named, or all.
"""

from pathlib import Path
from typing import Any, ClassVar

from docutils import nodes
from docutils.parsers.rst import Directive, directives
from docutils.statemachine import StringList

from markdown_tables import choose_columns, read_table, table_lines


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
        node = nodes.container(classes=["table-from"])
        self.state.nested_parse(
            StringList(table_lines(rows), str(path)), self.content_offset, node
        )
        return [node]


def setup(app: object) -> dict[str, bool]:
    """Register with Sphinx."""
    app.add_directive("table-from", TableFrom)
    return {"parallel_read_safe": True}
