"""The files of a study: checked when read, and the ``.tsv`` of its subjects."""

import errno
import hashlib
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from brainweave.exceptions import StudyError
from brainweave.labels import object_array
from brainweave.study.spaces import read_table
from brainweave.study.subject import Subject

_MISSING = "n/a"  # as in BIDS
# column in the file -> attribute of the subject; the last is written only if known
_COLUMNS = {
    "label": "labels",
    "run": "runs",
    "onset": "onsets",
    "stimulus": "stimuli",
    "aligned": "aligned",
}


# -- room on the disk ------------------------------------------------------------------


@contextmanager
def full_disk_is_an_error(target: Path, way_out: str) -> Iterator[None]:
    """Turn a full disk into a StudyError that names what was being written."""
    try:
        yield
    except OSError as error:
        if error.errno not in (errno.ENOSPC, errno.EDQUOT):
            raise
        raise StudyError(
            f"The disk was full before {str(target)!r} was complete. Free some space "
            f"and {way_out}."
        ) from error


def check_room(folder: Path, n_bytes: int, what: str, way_out: str) -> None:
    """Refuse, before the work, what the disk has no room for."""
    from rich.filesize import decimal

    free = shutil.disk_usage(folder).free
    if n_bytes > free:
        raise StudyError(
            f"{what} needs {decimal(n_bytes)} in {str(folder)!r}, where "
            f"{decimal(free)} are free. Free some space, or {way_out}."
        )


# -- checked when read -----------------------------------------------------------------


def described(path: Path) -> dict[str, Any]:
    """Describe a file for :func:`checked_file`."""
    digest = _file_digest(path)
    return {"file": path.name, "bytes": path.stat().st_size, "sha256": digest}


def _file_digest(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def checked_file(root: Path, entry: dict[str, Any], *, full: bool) -> Path:
    """Find a file listed by :func:`described`; `full` compares the checksum too."""
    name, bytes_saved = str(entry["file"]), entry["bytes"]
    if Path(name).name != name:
        raise StudyError(
            f"{str(root)!r}: the study names {name!r}, outside its folder."
        )
    path = root / name
    wrong = ""
    if path.is_symlink():
        wrong = "is a link, and a study's files lie in its own folder"
    elif not path.is_file():
        wrong = "is missing from the study"
    elif (size := path.stat().st_size) != bytes_saved:
        what = "cut off" if size < bytes_saved else "edited or replaced"
        wrong = f"was {what}: it has {size} bytes where {bytes_saved} were saved"
    elif full and _file_digest(path) != entry["sha256"]:
        wrong = "was edited or damaged: its checksum does not match"
    if wrong:
        raise StudyError(f"{str(path)!r} {wrong}. Restore it, or save the study again.")
    return path


# -- a row per sample, without loss of type --------------------------------------------


def sample_table(subject: Subject) -> tuple[str, dict[str, str | None]]:
    """Return the text of the table, with a header line, and the type of each column."""
    columns, types = [], {}
    for column, name in _COLUMNS.items():
        values = getattr(subject, name)
        if values is not None or column != "aligned":
            types[column], texts = _as_texts(values, subject.n_samples)
            columns.append([column, *texts])
    rows = zip(*columns, strict=True)
    return "".join("\t".join(map(_quoted, row)) + "\n" for row in rows), types


def _as_texts(values: NDArray[Any] | None, n: int) -> tuple[str | None, list[str]]:
    if values is None:
        return None, [_MISSING] * n
    listed = values.tolist()
    if values.dtype == bool:
        return "bool", [str(int(value)) for value in listed]
    if values.dtype.kind == "f":
        return "float", [_MISSING if np.isnan(v) else str(v) for v in listed]
    kind = "str" if any(isinstance(value, str) for value in listed) else "int"
    return kind, [_MISSING if value is None else str(value) for value in listed]


def _quoted(text: str) -> str:
    # csv.writer leaves a lone carriage return bare, which csv.reader takes as a line
    if any(mark in text for mark in '\t\r\n"'):
        return '"' + text.replace('"', '""') + '"'
    return text


def read_sample_table(
    path: Path, types: dict[str, str | None], n_samples: int
) -> dict[str, NDArray[Any] | None]:
    """Read a table back into the arguments of :class:`Subject`."""
    as_written: dict[str, Any] = {"header": None, "dtype": str, "na_filter": False}
    table = read_table(path, skip_blank_lines=False, encoding="utf-8", **as_written)
    header, *rows = table.to_numpy(object).tolist()
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


def _parsed(texts: tuple[str, ...], kind: str | None) -> NDArray[Any] | None:
    if kind is None:
        return None
    if kind == "bool":
        return np.array([{"0": False, "1": True}[text] for text in texts], bool)
    if kind == "float":
        return np.array([np.nan if t == _MISSING else float(t) for t in texts])
    parse = {"int": int, "str": str}[kind]
    values = [None if text == _MISSING else parse(text) for text in texts]
    return object_array(values) if None in values else np.array(values)
