"""Write files and folders atomically, and find out whether files changed.

A file is written under a temporary name in its folder, forced to disk, then renamed, so
whatever has its final name is complete. After an error nothing is left behind; a killed
process leaves a file or folder whose name starts with ``.partial-``.
"""

import errno
import hashlib
import os
import shutil
import tempfile
import uuid
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from brainweave._core.exceptions import InputError, StudyError


@contextmanager
def atomic_path(path: Path) -> Iterator[Path]:
    """Yield a temporary path, which is renamed to `path` if no error is raised."""
    work = _temporary_path(path)
    try:
        yield work
        with work.open("rb+") as file:
            os.fsync(file.fileno())
        os.replace(work, path)
    finally:
        work.unlink(missing_ok=True)


def write_text(path: Path, text: str) -> None:
    """Write a text file, UTF-8; its folder is made if need be."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with atomic_path(path) as work:
        work.write_bytes(text.encode("utf-8"))


@contextmanager
def atomic_folder(
    path: Path, *, replaces: Callable[[], Collection[str]] = list
) -> Iterator[Path]:
    """Yield a temporary folder, which is renamed to `path` if no error is raised.

    `replaces` lists the files in `path` that an earlier call wrote, and is asked at the
    end. What others put there stays; a new file with such a name is an error.
    """
    path = path.absolute()
    path.parent.mkdir(parents=True, exist_ok=True)
    work = _temporary_path(path)
    work.mkdir()
    try:
        yield work
        if path.exists():
            _replace_folder(work, path, set(replaces()))
        else:
            work.rename(path)
    finally:
        shutil.rmtree(work, ignore_errors=True)


def _replace_folder(work: Path, path: Path, ours: set[str]) -> None:
    """Replace a folder by a new one, into which the files of others are moved."""
    others = _files(path) - ours
    taken = sorted(others & _files(work))
    if taken:
        raise InputError(
            f"{str(path / taken[0])!r} was not written by brainweave, so it is not "
            "replaced. Move it, or choose another folder."
        )
    # of a process that is killed from here on, the old folder is left beside
    old = path.with_name(f"{path.name[-100:]}.replaced-{uuid.uuid4().hex[:12]}")
    path.rename(old)
    try:
        work.rename(path)
    except OSError:
        old.rename(path)
        raise
    for name in others:
        (path / name).parent.mkdir(parents=True, exist_ok=True)
        (old / name).rename(path / name)
    shutil.rmtree(old, ignore_errors=True)


def _files(folder: Path) -> set[str]:
    """List the files, links and empty folders in a folder, relative to it."""
    return {
        p.relative_to(folder).as_posix()
        for p in folder.rglob("*")
        if p.is_symlink() or not p.is_dir() or not any(p.iterdir())
    }


def check_can_write(path: Path) -> None:
    """Raise the OSError that writing a file or folder would end in, if any."""
    folder = path.absolute().parent
    while not folder.exists() and folder != folder.parent:
        folder = folder.parent
    with tempfile.TemporaryFile(dir=folder):
        pass


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


def _temporary_path(path: Path) -> Path:
    # a name may have 255 bytes; libraries know the format by its end
    return path.with_name(f".partial-{uuid.uuid4().hex[:12]}-{path.name[-100:]}")


def unreadable(path: Path, error: OSError) -> StudyError:
    """Return the error of a file that is there but cannot be read."""
    way_out = "Check the disk, or get the file again"
    if isinstance(error, PermissionError):
        way_out = "Ask its owner for permission to read it"
    reason = error.strerror or str(error)
    return StudyError(f"{str(path)!r} cannot be read ({reason}). {way_out}.")


def file_stamp(path: Path) -> dict[str, Any]:
    """Return size, time and checksum of a file, for :func:`has_changed`."""
    stat = path.stat()
    with path.open("rb") as file:
        digest = hashlib.file_digest(file, "sha256").hexdigest()
    return {"bytes": stat.st_size, "modified": stat.st_mtime_ns, "sha256": digest}


def has_changed(path: Path, stamp: Any) -> bool:
    """Whether a file differs from when it was stamped: by size, time, checksum."""
    if not isinstance(stamp, dict) or not path.is_file():
        return True
    stat = path.stat()
    if (stat.st_size, stat.st_mtime_ns) == (stamp.get("bytes"), stamp.get("modified")):
        return False
    return bool(file_stamp(path)["sha256"] != stamp.get("sha256"))
