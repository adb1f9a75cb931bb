"""A table of all comparisons, printed when they are done."""

from dataclasses import dataclass

import pytest


@dataclass(frozen=True)
class Row:
    peer: str
    method: str
    compared: str
    ours: float
    theirs: float
    difference: float
    limit: str


ROWS: list[Row] = []


@pytest.fixture
def record():
    """Take note of a comparison for the table."""

    def add(peer, method, compared, ours, theirs, difference, limit):
        ROWS.append(Row(peer, method, compared, ours, theirs, difference, limit))

    return add


def pytest_terminal_summary(terminalreporter):
    if not ROWS:
        return
    write = terminalreporter.write_line
    terminalreporter.section("comparison with other implementations")
    form = "{:<16}{:<34}{:<34}{:>16}{:>16}{:>12}  {}"
    write(
        form.format("peer", "method", "compared", "ours", "theirs", "diff.", "allowed")
    )
    for r in ROWS:
        numbers = f"{r.ours:.8g}", f"{r.theirs:.8g}", f"{r.difference:.1e}"
        write(form.format(r.peer, r.method, r.compared, *numbers, r.limit))
