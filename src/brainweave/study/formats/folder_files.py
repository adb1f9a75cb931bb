"""The files of a study: written whole, put in place together, checked when read.

A process that is killed leaves a hidden folder, named after itself; whoever writes to
the same place next sees that this process is gone, and removes it.
"""

import errno
import hashlib
import json
import os
import shutil
import uuid
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from glob import escape
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from brainweave._io import is_alive, machine_name, write_text
from brainweave.exceptions import StudyError
from brainweave.labels import object_array
from brainweave.study.subject import Subject

# In a working folder: what is moved out of it, and what goes once that is done.
_JOURNAL = "journal.json"


# -- into place ------------------------------------------------------------------------


@contextmanager
def working_folder(target: Path) -> Iterator[Path]:
    """Make a hidden folder to write into: within the target if it exists, or beside."""
    me = f"{machine_name()}-{os.getpid()}-{uuid.uuid4().hex[:8]}.partial"
    beside = target.with_name(f".{target.name}.{me}")
    work = target / f".{me}" if target.exists() else beside
    work.mkdir()
    try:
        yield work
    finally:
        # after a rename, there is nothing left under this name
        if work.exists():
            _remove(work, target)


def exchange(work: Path, target: Path, index: str, old: Sequence[str]) -> None:
    """Put finished files into an existing folder; its index changes in one step.

    The files in `work` have names that are free, and `index` lists them; `old` go with
    the old index. Until the index is replaced the old files are there, afterwards the
    new ones; a journal tells whoever comes after a crash which belong to neither.
    """
    new = [path.name for path in work.iterdir() if path.name != index]
    write_text(work / _JOURNAL, json.dumps({"index": index, "files": [*new, *old]}))
    for name in new:
        if (target / name).exists():
            raise StudyError(f"{str(target / name)!r} was made by somebody else.")
        (work / name).rename(target / name)
    os.replace(work / index, target / index)


def restore(target: Path) -> None:
    """Bring back a study that lost its name when it was to be replaced.

    Earlier versions renamed the old folder away before they renamed the new one into
    its place; killed in between, they left it under a hidden name.
    """
    if target.exists() or not target.parent.is_dir():
        return
    for old in sorted(target.parent.glob(f".{escape(target.name)}.*.partial.old")):
        if old.is_dir() and not old.is_symlink():
            old.rename(target)
            return


def remove_remains(target: Path) -> None:
    """Remove the working folders of processes of this machine that are gone."""
    found = list(target.parent.glob(f".{escape(target.name)}.*.partial"))
    if target.is_dir():
        found += target.glob(".*.partial")
    for work in found:
        if work.is_dir() and not work.is_symlink() and _is_dead(work.name):
            _remove(work, target)


def _remove(work: Path, target: Path) -> None:
    """Remove a working folder, and the files that the index does not list."""
    try:
        journal = json.loads((work / _JOURNAL).read_text(encoding="utf-8"))
        listing = (target / journal["index"]).read_text(encoding="utf-8")
        for name in journal["files"]:
            path = target / name
            # names in an index are JSON strings, as they are here
            if path.name == name and json.dumps(name) not in listing:
                path.unlink(missing_ok=True)
    except (OSError, ValueError, KeyError, TypeError):
        pass  # no journal: nothing was moved
    shutil.rmtree(work, ignore_errors=True)


def _is_dead(name: str) -> bool:
    host, _, rest = name.removesuffix(".partial").rpartition(".")[2].partition("-")
    pid = rest.partition("-")[0]
    if host != machine_name() or not pid.isdigit():
        return False  # of another machine, or of another version
    # on Windows a signal would end the process that is asked for
    return os.name == "posix" and not is_alive(int(pid))


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


class HashingWriter:
    """Passes on what is written, and knows its checksum at the end."""

    def __init__(self, file: Any) -> None:
        self._file = file
        self._hash = hashlib.sha256()

    def write(self, data: Any) -> int:
        """Write, and count the bytes in."""
        self._hash.update(data)
        return int(self._file.write(data))

    def digest(self) -> str:
        """Return the checksum of all that was written."""
        return self._hash.hexdigest()


def described(path: Path, digest: str | None = None) -> dict[str, Any]:
    """Describe a file for :func:`checked_file`; it is read if there is no digest."""
    digest = _file_digest(path) if digest is None else digest
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
