"""The ``.tsv`` of a saved subject: a row per sample, without loss of type."""

from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from brainweave.exceptions import StudyError
from brainweave.labels import object_array
from brainweave.study.subject import Subject

__all__ = ["read_table", "write_table"]

_MISSING = "n/a"  # as in BIDS
# column in the file -> attribute of the subject; the last is written only if known
_COLUMNS = {
    "label": "labels",
    "run": "runs",
    "onset": "onsets",
    "stimulus": "stimuli",
    "aligned": "aligned",
}
_KINDS = ("str", "int", "float", "bool", None)


def write_table(subject: Subject) -> tuple[str, dict[str, str | None]]:
    """Return the text of the table, with a header line, and the type of each column."""
    known = {column: getattr(subject, name) for column, name in _COLUMNS.items()}
    if subject.aligned is None:
        del known["aligned"]
    columns = [_texts(values, subject.n_samples) for values in known.values()]
    rows = [list(known), *zip(*columns, strict=True)]
    text = "".join("\t".join(map(_quoted, row)) + "\n" for row in rows)
    return text, {column: _type_of(values) for column, values in known.items()}


def read_table(
    path: Path, types: dict[str, str | None], n_samples: int
) -> dict[str, NDArray[Any] | None]:
    """Read a table back into the arguments of :class:`Subject`."""
    header, *rows = _read_texts(path)
    expected = [c for c in _COLUMNS if c != "aligned" or c in types]
    if header != expected or len(rows) != n_samples:
        raise StudyError(
            f"{str(path)!r} has {len(rows)} rows and the columns {header}; expected "
            f"{n_samples} rows with {expected}."
        )
    try:
        return {
            _COLUMNS[column]: _parsed(texts, types[column])
            for column, texts in zip(header, zip(*rows, strict=True), strict=True)
        }
    except (ValueError, KeyError, OverflowError) as error:
        raise StudyError(
            f"{str(path)!r} holds what its column cannot ({error})."
        ) from error


def _read_texts(path: Path) -> list[list[str]]:
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
    rows: list[list[str]] = table.to_numpy(object).tolist()
    if not all(isinstance(text, str) for row in rows for text in row):
        raise StudyError(f"{str(path)!r} has a row that ends early.")
    return rows


def _type_of(values: NDArray[Any] | None) -> str | None:
    if values is None:
        return None
    if values.dtype.kind in "fb":
        return "float" if values.dtype.kind == "f" else "bool"
    known = [value for value in values.tolist() if value is not None]
    return "str" if known and isinstance(known[0], str) else "int"


def _texts(values: NDArray[Any] | None, n_samples: int) -> list[str]:
    if values is None:
        return [_MISSING] * n_samples
    if values.dtype == bool:
        values = values.astype(int)
    elif values.dtype.kind == "f":
        values = object_array(None if np.isnan(v) else v for v in values.tolist())
    return [_MISSING if value is None else str(value) for value in values.tolist()]


def _quoted(text: str) -> str:
    # csv.writer leaves a lone carriage return bare, which csv.reader takes as a line
    if any(mark in text for mark in '\t\r\n"'):
        return '"' + text.replace('"', '""') + '"'
    return text


def _parsed(texts: tuple[str, ...], kind: str | None) -> NDArray[Any] | None:
    if kind not in _KINDS:
        raise ValueError(f"the type {kind!r} is not known")
    if kind is None:
        return None
    if kind == "bool":
        return np.array([{"0": False, "1": True}[text] for text in texts], bool)
    if kind == "float":
        return np.array([np.nan if t == _MISSING else float(t) for t in texts])
    values = [None if t == _MISSING else int(t) if kind == "int" else t for t in texts]
    return object_array(values) if None in values else np.array(values)
