"""The ``.tsv`` of a saved subject: a row per sample, without loss of type."""

import csv
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from brainweave.exceptions import StudyError
from brainweave.study.subject import Subject

__all__ = ["read_table", "table_types", "write_table"]

_MISSING = "n/a"  # as in BIDS
# column in the file -> attribute of the subject
_COLUMNS = {
    "label": "labels",
    "run": "runs",
    "onset": "onsets",
    "stimulus": "stimuli",
}


def table_types(subject: Subject) -> dict[str, str | None]:
    """Name the type of each column: "int", "str", "float", or None if not known."""
    return {
        column: _type_of(getattr(subject, attribute))
        for column, attribute in _COLUMNS.items()
    }


def write_table(subject: Subject) -> str:
    """Give the text of the table, with a header line."""
    columns = [
        _texts(getattr(subject, attribute), subject.n_samples)
        for attribute in _COLUMNS.values()
    ]
    rows = [tuple(_COLUMNS), *zip(*columns, strict=True)]
    return "".join("\t".join(map(_quoted, row)) + "\n" for row in rows)


def read_table(
    path: Path, types: dict[str, str | None], n_samples: int
) -> dict[str, NDArray[Any] | None]:
    """Read a table back into the arguments of :class:`Subject`."""
    with path.open(encoding="utf-8", newline="") as file:
        header, *rows = csv.reader(file, delimiter="\t")
    if header != list(_COLUMNS) or len(rows) != n_samples:
        raise StudyError(
            f"{str(path)!r} has {len(rows)} rows and the columns {header}; expected "
            f"{n_samples} rows with {list(_COLUMNS)}."
        )
    columns: dict[str, NDArray[Any] | None] = {}
    for number, (column, attribute) in enumerate(_COLUMNS.items()):
        columns[attribute] = _parsed([row[number] for row in rows], types[column])
    return columns


def _type_of(values: NDArray[Any] | None) -> str | None:
    if values is None:
        return None
    if values.dtype.kind == "f":
        return "float"
    known = [value for value in values.tolist() if value is not None]
    return "str" if known and isinstance(known[0], str) else "int"


def _texts(values: NDArray[Any] | None, n_samples: int) -> list[str]:
    if values is None:
        return [_MISSING] * n_samples
    return [
        _MISSING if value is None or _is_nan(value) else str(value)
        for value in values.tolist()
    ]


def _quoted(text: str) -> str:
    # csv.writer leaves a lone carriage return bare, which csv.reader takes as a line
    if any(mark in text for mark in '\t\r\n"'):
        return '"' + text.replace('"', '""') + '"'
    return text


def _is_nan(value: Any) -> bool:
    return isinstance(value, float) and np.isnan(value)


def _parsed(texts: list[str], kind: str | None) -> NDArray[Any] | None:
    if kind is None:
        return None
    if kind == "float":
        return np.array([np.nan if t == _MISSING else float(t) for t in texts])
    values: list[int | str | None] = [
        None if t == _MISSING else int(t) if kind == "int" else t for t in texts
    ]
    if None not in values:
        return np.array(values)
    array = np.empty(len(values), object)
    array[:] = values
    return array
