"""A folder of results, one small file each, that survives kills and shared use.

A record is written to a temporary file, flushed to the disk, and linked to its name,
which fails if the name is taken: a file with a record's name is always whole, and the
first record wins. Work is claimed by locks that the operating system drops when a
process ends, however it ends; so nothing can be left behind by a killed run.
"""

import contextlib
import errno
import json
import os
import re
import sys
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from os import PathLike
from pathlib import Path
from typing import IO, Any

from brainweave._core.exceptions import InputError, warn_user
from brainweave._core.io import write_new_text
from brainweave.persistence.codec import json_checksum

__all__ = ["ResultStore"]

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
        #: the folders of the records, and of the locks of running processes
        self.cells, self.locks = self.folder / "cells", self.folder / "locks"
        for place in (self.folder, self.cells, self.locks):
            if os.path.lexists(place) and not place.is_dir():
                kind = "a link to nowhere" if place.is_symlink() else "a file"
                raise InputError(
                    f"{str(place)!r} is {kind}; a store is a folder with folders "
                    "'cells' and 'locks'. Move it away, or use another folder."
                )
            place.mkdir(parents=True, exist_ok=True)
        about = self.folder / "store.json"
        if not os.path.lexists(about):
            write_new_text(about, json.dumps({"format": FORMAT}) + "\n")
        try:
            found = _read(about)
        except (ValueError, OSError, RecursionError) as error:
            raise InputError(
                f"{str(about)!r} is damaged ({error}), so it is not known what made "
                "this store. Delete that file if brainweave made the folder: records "
                "are checked one by one. Else use another folder."
            ) from None
        if found.get("format") != FORMAT:
            raise InputError(
                f"{str(folder)!r} is a store of format {found.get('format')!r}; this "
                f"version reads format {FORMAT}. Use another folder, or the version "
                "of brainweave that made it."
            )

    def __len__(self) -> int:
        return sum(1 for _ in self.names())

    def names(self) -> Iterator[str]:
        """Return the names of all records, sorted."""
        found = sorted(self.cells.glob("*" + _SUFFIX))
        return (path.stem for path in found if not path.name.startswith("."))

    def has(self, name: str) -> bool:
        """Whether there is a file of this name; :meth:`get` tells if it is whole."""
        return self._path(name).is_file()

    def get(self, name: str) -> dict[str, Any] | None:
        """Return a record; None without one.

        What is damaged (by a full or failing disk, or by hand; no kill can do it) is
        set aside with a warning, and counts as missing.
        """
        path = self._path(name)
        if not os.path.lexists(path):
            return None
        try:
            content = _read(path)
            record: dict[str, Any] = content["record"]
            if content["checksum"] == json_checksum(record):
                return record
            raise ValueError("the record was changed")
        except (ValueError, KeyError, OSError, RecursionError):
            aside = self._set_aside(path)
            warn_user(
                f"The record {str(path)!r} is damaged; it was renamed to "
                f"{aside.name!r} and will be computed again.",
                RuntimeWarning,
            )
            return None

    def put(self, name: str, record: dict[str, Any]) -> bool:
        """Keep a record for good; False, and nothing changed, if there is one."""
        path = self._path(name)
        if os.path.lexists(path) and not path.is_file():
            self._set_aside(path)  # a folder, or a link to nowhere, is no record
        whole = {"checksum": json_checksum(record), "record": record}
        # NaN is no JSON, and no score
        text = json.dumps(whole, allow_nan=False, sort_keys=True, indent=1)
        return write_new_text(path, text + "\n")

    def _set_aside(self, path: Path) -> Path:
        aside = path.with_suffix(".damaged")
        if os.path.lexists(aside):
            aside = path.with_suffix(f".{uuid.uuid4().hex[:8]}.damaged")
        os.rename(path, aside)
        return aside

    def remove(self, name: str) -> None:
        """Forget a record, so that it is computed again."""
        self._path(name).unlink(missing_ok=True)

    @contextmanager
    def claim(self, name: str) -> Iterator[bool]:
        """Claim a piece of work; gives False if another process or thread has it.

        The claim ends with the block, or with the process.
        """
        path = self.locks / (_checked(name) + ".lock")
        if path.is_symlink():
            path.unlink()  # no lock of ours, and it may lead nowhere
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


def _checked(name: str) -> str:
    if not re.fullmatch(r"[\w.+=-]{1,200}", name) or name.startswith("."):
        raise InputError(
            f"{name!r} cannot name a record: use letters, digits and '._+=-'."
        )
    return name


def _read(path: Path) -> dict[str, Any]:
    content = json.loads(path.read_text("utf-8"))
    if not isinstance(content, dict):
        raise ValueError("not a record")
    return content


def _locked(path: Path) -> IO[bytes] | None:
    """Open and lock a file; None if it is locked already."""
    while True:
        try:
            file = path.open("ab")
        except IsADirectoryError:
            raise InputError(
                f"{str(path)!r} is a folder where a lock should be. Remove it."
            ) from None
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
        if sys.platform == "win32":
            import msvcrt

            file.seek(0)
            msvcrt.locking(file.fileno(), msvcrt.LK_NBLCK, 1)
        else:
            import fcntl

            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        taken = (errno.EWOULDBLOCK, errno.EAGAIN, errno.EACCES, errno.EDEADLK)
        if error.errno in taken:
            return False
        # a file system without locks: work may be done twice, records are not
        warn_user(
            f"{str(Path(file.name).parent)!r} cannot be locked ({error.strerror}): "
            "runs that use this store at the same time may repeat each other's work.",
            RuntimeWarning,
        )
    return True
