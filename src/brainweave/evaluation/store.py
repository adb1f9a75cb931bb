"""A folder of results, one small file each, that survives kills and shared use.

A record is written to a temporary file, flushed to the disk, and linked to its name,
which fails if the name is taken: a file with a record's name is always whole, and the
first record wins. Work is claimed by locks that the operating system drops when a
process ends, however it ends; so nothing can be left behind by a killed run.
"""

import contextlib
import json
import os
import re
import uuid
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from os import PathLike
from pathlib import Path
from typing import IO, Any

from brainweave.exceptions import InputError

__all__ = ["ResultStore", "write_atomically"]

FORMAT = 1
_SUFFIX = ".json"


class ResultStore:
    """Records in a folder, safe against kills and against other runs.

    Parameters
    ----------
    folder : path
        Made if it does not exist. Several processes, also on several machines with a
        common file system, may work in one store at the same time.

    Examples
    --------
    >>> import tempfile
    >>> store = ResultStore(tempfile.mkdtemp())
    >>> store.put("first", {"accuracy": 0.5})
    True
    >>> store.put("first", {"accuracy": 0.6})  # it is there already
    False
    >>> store.get("first")
    {'accuracy': 0.5}
    """

    def __init__(self, folder: str | PathLike[str]) -> None:
        self.folder = Path(folder)
        if self.folder.exists() and not self.folder.is_dir():
            raise InputError(f"{str(folder)!r} is a file; a store is a folder.")
        for sub in (self.cells, self.locks):
            sub.mkdir(parents=True, exist_ok=True)
        about = self.folder / "store.json"
        if not about.exists():
            _create(about, {"format": FORMAT})
        found = _read(about) or {}
        if found.get("format") != FORMAT:
            raise InputError(
                f"{str(folder)!r} is a store of format {found.get('format')!r}; this "
                f"version reads format {FORMAT}. Use another folder, or the version "
                "of brainweave that made it."
            )

    @property
    def cells(self) -> Path:
        """The folder of the records."""
        return self.folder / "cells"

    @property
    def locks(self) -> Path:
        """The folder of the locks of running processes."""
        return self.folder / "locks"

    def __len__(self) -> int:
        return sum(1 for _ in self.names())

    def names(self) -> Iterator[str]:
        """Give the names of all records, sorted."""
        return (path.stem for path in sorted(self.cells.glob("*" + _SUFFIX)))

    def has(self, name: str) -> bool:
        """Whether there is a record of this name."""
        return self._path(name).is_file()

    def get(self, name: str) -> dict[str, Any] | None:
        """Give a record; None without one.

        A file that is damaged (by a full or failing disk; no kill can do it) is set
        aside with a warning, and counts as missing.
        """
        path = self._path(name)
        try:
            return _read(path)
        except ValueError:
            aside = path.with_suffix(".damaged")
            os.replace(path, aside)
            warnings.warn(
                f"The record {str(path)!r} is damaged; it was renamed to "
                f"{aside.name!r} and will be computed again.",
                RuntimeWarning,
                stacklevel=2,
            )
            return None

    def put(self, name: str, record: dict[str, Any]) -> bool:
        """Keep a record for good; False, and nothing changed, if there is one."""
        return _create(self._path(name), record)

    def remove(self, name: str) -> None:
        """Forget a record, so that it is computed again."""
        self._path(name).unlink(missing_ok=True)

    @contextmanager
    def claim(self, name: str) -> Iterator[bool]:
        """Claim a piece of work; gives False if another process or thread has it.

        The claim ends with the block, or with the process.
        """
        path = self.locks / (_checked(name) + ".lock")
        file = _locked(path)
        if file is None:
            yield False
            return
        try:
            yield True
        finally:
            with contextlib.suppress(OSError):  # Windows keeps open files
                path.unlink()
            file.close()

    def _path(self, name: str) -> Path:
        return self.cells / (_checked(name) + _SUFFIX)


def write_atomically(path: Path, text: str) -> None:
    """Replace a text file so that readers see the old or the new one, whole."""
    temporary = _temporary(path, text)
    os.replace(temporary, path)


def _checked(name: str) -> str:
    if not re.fullmatch(r"[\w.+=-]{1,200}", name) or name.startswith("."):
        raise InputError(
            f"{name!r} cannot name a record: use letters, digits and '._+=-'."
        )
    return name


def _read(path: Path) -> dict[str, Any] | None:
    try:
        content = json.loads(path.read_text("utf-8"))
    except FileNotFoundError:
        return None
    if not isinstance(content, dict):
        raise ValueError("not a record")
    return content


def _create(path: Path, record: dict[str, Any]) -> bool:
    temporary = _temporary(path, json.dumps(record, allow_nan=False, indent=1) + "\n")
    try:
        os.link(temporary, path)
    except FileExistsError:
        return False
    except OSError:  # a file system without hard links
        if path.exists():
            return False
        os.replace(temporary, path)
    finally:
        temporary.unlink(missing_ok=True)
    _flush_folder(path.parent)
    return True


def _temporary(path: Path, text: str) -> Path:
    temporary = path.with_name(f".{path.name}.{uuid.uuid4().hex[:12]}.tmp")
    with temporary.open("w", encoding="utf-8", newline="") as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())
    return temporary


def _flush_folder(folder: Path) -> None:
    """Make the new name itself durable, where folders can be flushed."""
    with contextlib.suppress(OSError):
        handle = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)


def _locked(path: Path) -> IO[bytes] | None:
    """Open and lock a file; None if it is locked already."""
    while True:
        file = path.open("ab")
        if not _try_lock(file):
            file.close()
            return None
        # the last owner may have removed the file between opening and locking
        try:
            if os.path.samestat(os.fstat(file.fileno()), os.stat(path)):
                return file
        except FileNotFoundError:
            pass
        file.close()


def _try_lock(file: IO[bytes]) -> bool:
    try:
        import fcntl
    except ImportError:  # Windows
        import msvcrt

        try:
            file.seek(0)
            msvcrt.locking(file.fileno(), msvcrt.LK_NBLCK, 1)  # type: ignore[attr-defined]
        except OSError:
            return False
        return True
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return False
    return True
