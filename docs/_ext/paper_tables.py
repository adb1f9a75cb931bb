"""``paper-table``: show the settings and published numbers of the paper.

``settings`` is the paper's Table 1, ``published`` its Table 2, ``figures`` what its
figures show; all from ``reproduction/settings.toml``.
"""

from typing import Any

from docutils import nodes
from docutils.parsers.rst import Directive
from docutils.statemachine import StringList

from markdown_tables import table_lines
from reproduction import dataset, datasets
from reproduction.settings import figure, figures


def settings_table() -> list[list[str]]:
    """Return shape and settings of every dataset."""
    names = ("subjects", "samples", "voxels", "categories", "n_components", "energy")
    names = (*names, "nu", "leave_out", "graph")
    rows = [["dataset", *(name.replace("_", " ") for name in names)]]
    for known in map(dataset, datasets()):
        rows.append([known.name, *(str(getattr(known, name)) for name in names)])
    return rows


def published_table() -> list[list[str]]:
    """Return the published accuracy of every method on every dataset, in per cent."""
    methods = list(dataset(datasets()[0]).published)
    rows = [["dataset", *methods]]
    for known in map(dataset, datasets()):
        cells = [known.published.get(method) for method in methods]
        shown = [f"{c[0]:.1f} ± {c[1]:.1f}" if c else "" for c in cells]
        rows.append([known.name, *shown])
    return rows


def figures_table() -> list[list[str]]:
    """Return what every figure shows, and the command that draws it."""
    rows = [["figure", "GDM against", "kernel", "datasets", "command"]]
    for known in map(figure, figures()):
        panels = ", ".join(panel.name for panel in known.panels)
        command = f"`python -m reproduction {known.name} -o OUT`"
        rows.append([known.name, known.what, known.kernel, panels, command])
    return rows


TABLES = {
    "settings": settings_table,
    "published": published_table,
    "figures": figures_table,
}


class PaperTable(Directive):
    """Show a table of the paper."""

    required_arguments = 1

    def run(self) -> list[nodes.Node]:
        """Build it as Markdown."""
        rows = TABLES[self.arguments[0]]()
        node = nodes.container(classes=["paper-table"])
        source = StringList(table_lines(rows), "reproduction")
        self.state.nested_parse(source, self.content_offset, node)
        return [node]


def setup(app: Any) -> dict[str, bool]:
    """Register with Sphinx."""
    app.add_directive("paper-table", PaperTable)
    return {"parallel_read_safe": True}
