"""Tables of Markdown pages, read for other pages."""

import re

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


def table_lines(rows: Rows) -> list[str]:
    """Return a table as Markdown that breaks no line between a mean and deviation."""
    cells = [[c.replace(" ± ", "\u00a0±\u00a0") for c in row] for row in rows]
    lines = ["| " + " | ".join(row) + " |" for row in cells]
    return [lines[0], "|" + "---|" * len(rows[0]), *lines[1:]]


def choose_columns(rows: Rows, columns: list[str]) -> Rows:
    """Return the rows with the named columns alone."""
    absent = [name for name in columns if name not in rows[0]]
    if absent:
        raise ValueError(f"The table has {rows[0]}, not {absent}.")
    places = [rows[0].index(name) for name in columns]
    return [[row[i] for i in places] for row in rows]
