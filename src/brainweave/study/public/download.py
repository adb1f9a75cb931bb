"""Downloading files into a cache: announced, resumed, verified, offline once there.

Pooch neither resumes (each attempt writes a temporary file of its own) nor knows git's
ids of files, and asks for a file that is not there as often as for one that broke off.
"""

import hashlib
import http.client
import os
import re
import socket
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import count
from os import PathLike
from pathlib import Path, PureWindowsPath
from typing import Any

from brainweave._core.exceptions import StudyError
from brainweave._core.io import check_disk_space, full_disk_is_an_error
from brainweave._core.progress import Progress

_CHUNK = 1 << 18
_TIMEOUT = 30.0
_CONNECTION_ERRORS = (
    urllib.error.URLError,
    http.client.HTTPException,
    ConnectionError,
    TimeoutError,
)
_ATTEMPTS = 5
_WAIT = 1.0  # seconds before the second attempt, doubled for each further one


@dataclass(frozen=True)
class RemoteFile:
    """One file to download: where it is, and its name in the target folder.

    The checksum is ``"sha256:<hex>"``, ``"md5:<hex>"``, or ``"git:<hex>"``, the id that
    git gives to a file's content.
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
        for name in (file.name for file in self.files):
            # as either system reads it: a backslash parts folders on Windows
            parts = set(re.split(r"[/\\]", name))
            if {"", ".", ".."} & parts or PureWindowsPath(name).drive or "\0" in name:
                raise StudyError(
                    f"The source lists a file {name!r}, which would lie outside of "
                    f"{str(self.folder)!r}. It is not downloaded."
                )

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
        from rich.filesize import decimal

        missing = self.missing
        if not missing:
            return f"{self.title}: all {len(self.files)} files are in {self.folder}"
        size = "size unknown" if self.n_bytes is None else decimal(self.n_bytes)
        host = missing[0].url.split("/")[2]
        files = "1 file" if len(missing) == 1 else f"{len(missing)} files"
        return f"{self.title}: {files}, {size}, from {host} into {self.folder}"


def cache_folder(name: str, cache_dir: str | PathLike[str] | None = None) -> Path:
    """Return the folder of a dataset in the user's cache.

    That is `cache_dir`, else ``$BRAINWEAVE_CACHE``, else the cache folder of the
    platform (``~/.cache/brainweave`` on Linux).
    """
    if cache_dir is None:
        cache_dir = os.environ.get("BRAINWEAVE_CACHE")
    if cache_dir is None:
        from platformdirs import user_cache_dir

        cache_dir = user_cache_dir("brainweave")
    return Path(cache_dir).expanduser().absolute() / name


def download(plan: DownloadPlan, progress: bool | Progress = True) -> list[Path]:
    """Download what is missing, and return the paths of all files.

    A broken connection is taken up where it stopped, in this call and in the next
    one, if a checksum can tell whether the parts fit together. A file gets its name
    only when its size and its checksum agree, as far as they are known.

    Parameters
    ----------
    plan : DownloadPlan
        What to download.
    progress : bool or callable, default=True
        True announces the plan and shows a bar on standard error; a callable is
        called as ``progress(bytes_done, bytes_in_all, name)``, with 0 in all if that
        is not known.

    Returns
    -------
    list of Path
    """
    missing = plan.missing
    if missing:
        plan.folder.mkdir(parents=True, exist_ok=True)
        parts = (plan.folder / f"{file.name}.part" for file in missing)
        received = sum(part.stat().st_size for part in parts if part.exists())
        needed = (plan.n_bytes or 0) - received
        check_disk_space(plan.folder, needed, plan.title, "choose another cache_dir")
        with _progress_callback(plan, progress) as callback:
            done, total = 0, plan.n_bytes or 0
            for file in missing:

                def report(
                    n_bytes: int, done: int = done, name: str = file.name
                ) -> None:
                    callback(done + n_bytes, total, name)

                done += _download_file(file, plan.folder, report)
    return [plan.folder / file.name for file in plan.files]


def announce(plan: DownloadPlan) -> Any:
    """Print a plan on standard error, and return the console that did."""
    from rich.console import Console

    console = Console(stderr=True)
    console.print(str(plan), highlight=False, markup=False, soft_wrap=True)
    return console


def _download_file(
    file: RemoteFile, folder: Path, report: Callable[[int], None]
) -> int:
    """Download a file, in several attempts if need be, and return its size."""
    target, part = folder / file.name, folder / f"{file.name}.part"
    target.parent.mkdir(parents=True, exist_ok=True)
    for attempt in count(1):
        try:
            with full_disk_is_an_error(part, "fetch again: it resumes"):
                _append_missing(file, part, report)
            break
        except _CONNECTION_ERRORS as error:
            if isinstance(error, urllib.error.HTTPError):
                error.close()
                if error.code < 500:
                    raise StudyError(
                        f"{file.url} cannot be downloaded: HTTP {error.code} "
                        f"({error.reason}). The source may have moved; files put into "
                        f"{str(folder)!r} by hand are used as they are."
                    ) from error
            offline = isinstance(getattr(error, "reason", None), socket.gaierror)
            if offline or attempt == _ATTEMPTS:
                raise StudyError(
                    f"{file.url} cannot be reached ({error}), and {str(target)!r} is "
                    "not there yet. Try again when online: what has arrived is kept "
                    "and resumed."
                ) from error
        time.sleep(_WAIT * 2 ** (attempt - 1))
    _verify(file, part)
    os.replace(part, target)
    return target.stat().st_size


def _append_missing(
    file: RemoteFile, part: Path, report: Callable[[int], None]
) -> None:
    """Append to the part file what is missing."""
    start = part.stat().st_size if part.exists() and file.checksum else 0
    if file.size is not None and start > file.size:
        start = 0
    elif start and start == file.size:
        return
    request = urllib.request.Request(file.url, headers={"User-Agent": "brainweave"})
    if start:
        request.add_header("Range", f"bytes={start}-")
    try:
        response = urllib.request.urlopen(request, timeout=_TIMEOUT)
    except urllib.error.HTTPError as error:
        if error.code == 416 and start:  # nothing left: complete, or its checksum tells
            error.close()
            return
        raise
    with response:
        received = start if response.status == 206 else 0  # or all of it again
        left = response.headers.get("Content-Length")
        expected = None if left is None else received + int(left)
        with part.open("ab" if received else "wb") as out:
            while chunk := response.read(_CHUNK):
                out.write(chunk)
                received += len(chunk)
                report(received)
    if expected not in (None, received):
        raise ConnectionError("the connection closed early")


def _verify(file: RemoteFile, part: Path) -> None:
    size, wrong = part.stat().st_size, ""
    if file.size not in (None, size):
        wrong = f"has {size} bytes, not the {file.size} that were announced"
    elif file.checksum is not None:
        kind, _, expected = file.checksum.partition(":")
        digest = hashlib.sha1() if kind == "git" else hashlib.new(kind)
        if kind == "git":
            digest.update(f"blob {size}\0".encode())
        with part.open("rb") as content:
            while chunk := content.read(_CHUNK):
                digest.update(chunk)
        if digest.hexdigest() != expected:
            wrong = (
                f"does not have the expected checksum: {kind} is "
                f"{digest.hexdigest()}, not {expected}"
            )
    if wrong:
        part.unlink()
        raise StudyError(
            f"{file.url} {wrong}. The download was removed; try again, and if that "
            "does not help the source has changed."
        )


@contextmanager
def _progress_callback(
    plan: DownloadPlan, progress: bool | Progress
) -> Iterator[Progress]:
    """Announce a plan and yield the function that is told of its progress."""
    if callable(progress):
        yield progress
        return
    if not progress:
        yield lambda done, total, name: None
        return
    from rich import progress as shown

    columns = (shown.BarColumn(), shown.DownloadColumn(), shown.TimeRemainingColumn())
    console = announce(plan)
    with shown.Progress(
        "{task.description}", *columns, console=console, transient=True
    ) as bar:
        task = bar.add_task("starting", total=plan.n_bytes)
        yield lambda done, total, name: bar.update(
            task, completed=done, description=name
        )
