"""Downloading files into a cache: announced, resumed, verified, offline once there."""

import hashlib
import http.client
import os
import re
import shutil
import socket
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from os import PathLike
from pathlib import Path, PureWindowsPath
from typing import Any, TypeAlias

from brainweave.exceptions import StudyError
from brainweave.study.formats.folder.integrity import full_disk_is_an_error

__all__ = [
    "DownloadPlan",
    "RemoteFile",
    "announce",
    "cache_folder",
    "check_name",
    "download",
    "human_size",
]

# Called with bytes done, bytes in all (0 if not known), and the file in hand.
ByteProgress: TypeAlias = Callable[[int, int, str], None]

_CHUNK = 1 << 18
_TIMEOUT = 30.0
_ATTEMPTS = 5
_WAIT = 1.0  # seconds before the second attempt, doubled for each further one


@dataclass(frozen=True)
class RemoteFile:
    """One file to download.

    Parameters
    ----------
    url : str
        Where it is.
    name : str
        Its name in the target folder.
    size : int, optional
        Its size in bytes, if known.
    checksum : str, optional
        ``"sha256:<hex>"``, ``"md5:<hex>"``, or ``"git:<hex>"``, the id that git gives
        to a file's content.
    """

    url: str
    name: str
    size: int | None = None
    checksum: str | None = None


@dataclass(frozen=True)
class DownloadPlan:
    """What is about to be downloaded: print it to know what, how much and where to."""

    title: str
    files: tuple[RemoteFile, ...]
    folder: Path

    def __post_init__(self) -> None:
        for file in self.files:
            check_name(file.name, self.folder)

    @property
    def missing(self) -> list[RemoteFile]:
        """The files that are not in the folder yet."""
        return [file for file in self.files if not (self.folder / file.name).is_file()]

    @property
    def n_bytes(self) -> int | None:
        """Bytes still to download, or None if the size of a file is not known."""
        sizes = [file.size for file in self.missing]
        return None if None in sizes else sum(size or 0 for size in sizes)

    def __str__(self) -> str:
        missing = self.missing
        if not missing:
            return f"{self.title}: all {len(self.files)} files are in {self.folder}"
        size = "size unknown" if self.n_bytes is None else human_size(self.n_bytes)
        host = missing[0].url.split("/")[2]
        files = "1 file" if len(missing) == 1 else f"{len(missing)} files"
        return f"{self.title}: {files}, {size}, from {host} into {self.folder}"


def check_name(name: str, folder: Path) -> str:
    """Refuse the name of a file that would lie outside of its folder.

    Parameters
    ----------
    name : str
        Path within the folder, as a server gave it.
    folder : Path
        The folder, for the message.
    """
    # as either system reads it: a backslash parts folders on Windows
    parts = re.split(r"[/\\]", name)
    windows = PureWindowsPath(name)
    if {"", ".", ".."} & set(parts) or windows.drive or "\0" in name:
        raise StudyError(
            f"The source lists a file {name!r}, which would lie outside of "
            f"{str(folder)!r}. It is not downloaded."
        )
    return name


def cache_folder(name: str, cache_dir: str | PathLike[str] | None = None) -> Path:
    """Return the folder of a dataset in the user's cache.

    Parameters
    ----------
    name : str
        Name of the dataset.
    cache_dir : path, optional
        Use this folder; by default ``$BRAINWEAVE_CACHE``, else the cache folder of
        the platform (``~/.cache/brainweave`` on Linux).
    """
    if cache_dir is None:
        cache_dir = os.environ.get("BRAINWEAVE_CACHE")
    if cache_dir is None:
        from platformdirs import user_cache_dir

        cache_dir = user_cache_dir("brainweave")
    return Path(cache_dir).expanduser().absolute() / name


def download(plan: DownloadPlan, progress: bool | ByteProgress = True) -> list[Path]:
    """Download what is missing, and return the paths of all files.

    A broken connection is taken up where it stopped, in this call and in the next
    one, unless the file has changed meanwhile. A file gets its name only when its
    size and its checksum agree, as far as they are known.

    Parameters
    ----------
    plan : DownloadPlan
        What to download.
    progress : bool or callable, default=True
        True announces the plan and shows a bar on standard error; a callable is
        called as ``progress(bytes_done, bytes_in_all, name)``.

    Returns
    -------
    list of Path
    """
    missing = plan.missing
    if missing:
        plan.folder.mkdir(parents=True, exist_ok=True)
        _check_room(plan)
        with _showing(plan, progress) as report:
            done, in_all = 0, plan.n_bytes or 0
            for file in missing:

                def tell(n_bytes: int, done: int = done, name: str = file.name) -> None:
                    report(done + n_bytes, in_all, name)

                done += _download_file(file, plan, tell).stat().st_size
    return [plan.folder / file.name for file in plan.files]


def announce(plan: DownloadPlan) -> Any:
    """Print a plan on standard error, and return the console that did."""
    from rich.console import Console

    console = Console(stderr=True)
    console.print(str(plan), highlight=False, markup=False, soft_wrap=True)
    return console


def human_size(n_bytes: int) -> str:
    """Write a size for people.

    Examples
    --------
    >>> human_size(4_309_835)
    '4.3 MB'
    """
    size = float(n_bytes)
    for unit in ("bytes", "kB", "MB", "GB"):
        if size < 1000:
            return f"{size:.0f} {unit}" if unit == "bytes" else f"{size:.1f} {unit}"
        size /= 1000
    return f"{size:.1f} TB"


def _check_room(plan: DownloadPlan) -> None:
    parts = (_part(plan, file) for file in plan.missing)
    there = sum(part.stat().st_size for part in parts if part.exists())
    needed = (plan.n_bytes or 0) - there
    free = shutil.disk_usage(plan.folder).free
    if needed > free:
        raise StudyError(
            f"{plan.title} needs {human_size(needed)} in {str(plan.folder)!r}, where "
            f"{human_size(free)} are free. Free some space, or choose another "
            "cache_dir."
        )


def _part(plan: DownloadPlan, file: RemoteFile) -> Path:
    return plan.folder / f"{file.name}.part"


def _download_file(
    file: RemoteFile, plan: DownloadPlan, tell: Callable[[int], None]
) -> Path:
    target, part = plan.folder / file.name, _part(plan, file)
    target.parent.mkdir(parents=True, exist_ok=True)
    for attempt in range(1, _ATTEMPTS + 1):
        try:
            with full_disk_is_an_error(part, "fetch again: it resumes"):
                complete = _receive(file, part, tell)
        except urllib.error.HTTPError as error:
            error.close()
            if error.code < 500:
                raise StudyError(
                    f"{file.url} cannot be downloaded: HTTP {error.code} "
                    f"({error.reason}). The source may have moved; files put into "
                    f"{str(plan.folder)!r} by hand are used as they are."
                ) from error
            problem: Exception = error
        except (
            urllib.error.URLError,
            http.client.HTTPException,
            ConnectionError,
            TimeoutError,
        ) as error:
            problem = error
        else:
            if complete:
                break
            problem = ConnectionError("the connection closed early")
        offline = isinstance(getattr(problem, "reason", None), socket.gaierror)
        if offline or attempt == _ATTEMPTS:
            raise StudyError(
                f"{file.url} cannot be reached ({problem}), and {str(target)!r} is not "
                "there yet. Try again when online: what has arrived is kept and "
                "resumed."
            ) from problem
        time.sleep(_WAIT * 2 ** (attempt - 1))
    _verify(file, part)
    os.replace(part, target)
    _tag_file(part).unlink(missing_ok=True)
    return target


def _receive(file: RemoteFile, part: Path, tell: Callable[[int], None]) -> bool:
    """Append to the part file what is missing; say whether it is complete."""
    start = _resumable(file, part)
    if file.size is not None and start == file.size:
        return True
    request = urllib.request.Request(file.url, headers={"User-Agent": "brainweave"})
    tag = _read_tag(part)
    if start:
        request.add_header("Range", f"bytes={start}-")
        if tag:
            request.add_header("If-Range", tag)
    try:
        response = urllib.request.urlopen(request, timeout=_TIMEOUT)
    except urllib.error.HTTPError as error:
        if error.code == 416 and start:  # nothing left to send: complete, or wrong
            error.close()
            whole = error.headers.get("Content-Range", "").rpartition("/")[2]
            if file.checksum is not None or whole == str(start):
                return True
            part.unlink()
            return False
        raise
    with response:
        if start and response.status != 206:  # the server sends all of it again
            start = 0
        now = _tag_of(response.headers)
        if start and tag and now != tag:
            part.unlink()  # another file than the one that was begun
            return False
        if not start:
            _tag_file(part).write_text(now, encoding="utf-8")
        expected = response.headers.get("Content-Length")
        with part.open("ab" if start else "wb") as out:
            received = start
            while chunk := response.read(_CHUNK):
                out.write(chunk)
                received += len(chunk)
                tell(received)
    return expected is None or received - start == int(expected)


def _resumable(file: RemoteFile, part: Path) -> int:
    """Count the bytes that need not come again; what cannot be trusted is removed."""
    start = part.stat().st_size if part.exists() else 0
    too_long = file.size is not None and start > file.size
    unknown = file.checksum is None and not _read_tag(part)
    if start and (too_long or unknown):
        part.unlink()
        return 0
    return start


def _tag_file(part: Path) -> Path:
    return part.with_name(part.name + ".tag")


def _read_tag(part: Path) -> str:
    try:
        return _tag_file(part).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError):
        return ""


def _tag_of(headers: Any) -> str:
    """Return what stands for a file's version: If-Range takes no weak ETag."""
    tag = str(headers.get("ETag") or "")
    tag = "" if tag.startswith("W/") else tag
    return tag or str(headers.get("Last-Modified") or "")


def _discard(part: Path) -> None:
    part.unlink()
    _tag_file(part).unlink(missing_ok=True)


def _verify(file: RemoteFile, part: Path) -> None:
    size = part.stat().st_size
    if file.size is not None and size != file.size:
        _discard(part)
        raise StudyError(
            f"{file.url} has {size} bytes, not the {file.size} that were announced. "
            "The download was removed; try again, and if that does not help the source "
            "has changed."
        )
    if file.checksum is None:
        return
    kind, _, expected = file.checksum.partition(":")
    digest = hashlib.sha1() if kind == "git" else hashlib.new(kind)
    if kind == "git":
        digest.update(f"blob {part.stat().st_size}\0".encode())
    with part.open("rb") as content:
        while chunk := content.read(_CHUNK):
            digest.update(chunk)
    if digest.hexdigest() != expected:
        _discard(part)
        raise StudyError(
            f"{file.url} does not have the expected checksum: {kind} is "
            f"{digest.hexdigest()}, not {expected}. The download was removed; try "
            "again, and if that does not help the source has changed."
        )


@contextmanager
def _showing(
    plan: DownloadPlan, progress: bool | ByteProgress
) -> Iterator[ByteProgress]:
    """Announce a plan and yield the function that is told of its progress."""
    if callable(progress):
        yield progress
        return
    if not progress:
        yield lambda done, in_all, name: None
        return
    from rich.progress import (
        BarColumn,
        DownloadColumn,
        Progress,
        TextColumn,
        TimeRemainingColumn,
    )

    console = announce(plan)
    columns: list[Any] = [TextColumn("{task.description}"), BarColumn()]
    columns += [DownloadColumn(), TimeRemainingColumn()]
    with Progress(*columns, console=console, transient=True) as bar:
        task = bar.add_task("starting", total=plan.n_bytes)
        yield lambda done, in_all, name: bar.update(
            task, completed=done, description=name
        )
