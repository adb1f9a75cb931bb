"""Files that know when they were changed: sizes, checksums, full disks."""

import errno
import hashlib
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from brainweave.exceptions import StudyError

__all__ = [
    "HashingWriter",
    "checked_file",
    "described",
    "file_digest",
    "flush",
    "full_disk_is_an_error",
]


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


def described(path: Path, digest: str) -> dict[str, Any]:
    """Describe a file for :func:`checked_file`."""
    return {"file": path.name, "bytes": path.stat().st_size, "sha256": digest}


def file_digest(path: Path, algorithm: str = "sha256") -> str:
    """Compute the checksum of a file."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, algorithm).hexdigest()


def checked_file(root: Path, entry: dict[str, Any], *, full: bool) -> Path:
    """Find a file listed by :func:`described`, and name it if it has changed.

    Parameters
    ----------
    root : Path
        Folder of the file.
    entry : dict
        What :func:`described` gave when the file was written.
    full : bool
        Compare the checksum too, not only the size.
    """
    name = str(entry["file"])
    if Path(name).name != name:
        raise StudyError(
            f"{str(root)!r}: the study names {name!r}, outside its folder."
        )
    path = root / name
    if path.is_symlink():
        raise StudyError(
            f"{str(path)!r} is a link, and a study's files lie in its own folder. Put "
            "the file itself there."
        )
    if not path.is_file():
        raise StudyError(
            f"{str(path)!r} is missing from the study. Restore it, or save the study "
            "again."
        )
    size = path.stat().st_size
    if size != entry["bytes"]:
        what = "cut off" if size < entry["bytes"] else "edited or replaced"
        raise StudyError(
            f"{str(path)!r} was {what}: it has {size} bytes where {entry['bytes']} "
            "were saved. Restore it, or save the study again."
        )
    if full and file_digest(path) != entry["sha256"]:
        raise StudyError(
            f"{str(path)!r} was edited or damaged: its checksum does not match. "
            "Restore it, or save the study again."
        )
    return path


def flush(file: Any) -> None:
    """Force what was written to disk."""
    file.flush()
    os.fsync(file.fileno())


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
