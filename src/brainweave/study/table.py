"""The ``.tsv`` of a saved subject: a row per sample, without loss of type."""

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
_ALIGNED = "aligned"
_KINDS = ("str", "int", "float", None)


def table_types(subject: Subject) -> dict[str, str | None]:
    """Name the type of each column: "int", "str", "float", or None if not known."""
    types = {
        column: _type_of(getattr(subject, attribute))
        for column, attribute in _COLUMNS.items()
    }
    return types if subject.aligned is None else {**types, _ALIGNED: "bool"}


def write_table(subject: Subject) -> str:
    """Return the text of the table, with a header line.

    The column ``aligned`` is there only if the subject says which samples were.
    """
    header = list(_COLUMNS)
    columns = [
        _texts(getattr(subject, attribute), subject.n_samples)
        for attribute in _COLUMNS.values()
    ]
    if subject.aligned is not None:
        header.append(_ALIGNED)
        columns.append(["1" if flag else "0" for flag in subject.aligned])
    rows = [header, *zip(*columns, strict=True)]
    return "".join("\t".join(map(_quoted, row)) + "\n" for row in rows)


def read_table(
    path: Path, types: dict[str, str | None], n_samples: int
) -> dict[str, NDArray[Any] | None]:
    """Read a table back into the arguments of :class:`Subject`."""
    header, columns = _read_texts(path)
    expected = [*_COLUMNS, _ALIGNED] if _ALIGNED in types else list(_COLUMNS)
    n_rows = len(columns[0]) if columns else 0
    if header != expected or n_rows != n_samples:
        raise StudyError(
            f"{str(path)!r} has {n_rows} rows and the columns {header}; expected "
            f"{n_samples} rows with {expected}."
        )
    values: dict[str, NDArray[Any] | None] = {}
    try:
        for texts, (column, attribute) in zip(columns, _COLUMNS.items(), strict=False):
            values[attribute] = _parsed(texts, types[column])
        if _ALIGNED in types:
            flags = {"0": False, "1": True}
            values[_ALIGNED] = np.array([flags[text] for text in columns[-1]], bool)
    except (ValueError, KeyError, OverflowError) as error:
        raise StudyError(
            f"{str(path)!r} holds what its column cannot ({error})."
        ) from error
    return values


def _read_texts(path: Path) -> tuple[list[str], list[list[str]]]:
    import pandas as pd

    try:
        table = pd.read_csv(
            path,
            sep="\t",
            header=None,
            dtype=str,
            keep_default_na=False,
            na_filter=False,
            skip_blank_lines=False,
            encoding="utf-8",
        )
    except (pd.errors.ParserError, pd.errors.EmptyDataError, UnicodeError) as error:
        raise StudyError(f"{str(path)!r} is not a table ({error}).") from error
    columns = [table[name].tolist() for name in table.columns]
    if not all(isinstance(text, str) for texts in columns for text in texts):
        raise StudyError(f"{str(path)!r} has a row that ends early.")
    return [texts[0] for texts in columns], [texts[1:] for texts in columns]


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
    if kind not in _KINDS:
        raise ValueError(f"the type {kind!r} is not known")
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
