"""Download files into the user's cache, and verify them.

Pooch is not used because git's file ids are the only published checksums of the Raider
files, and it cannot verify those.
"""

import hashlib
import http.client
import os
import re
import shutil
import urllib.error
import urllib.request
from dataclasses import dataclass
from os import PathLike
from pathlib import Path, PureWindowsPath

from brainweave._core.exceptions import StudyError
from brainweave._core.io import atomic_path, full_disk_is_an_error

_TIMEOUT = 30.0  # seconds without an answer of the server


@dataclass(frozen=True)
class RemoteFile:
    """A file to download: its address, and its name in the target folder.

    The checksum is ``"sha256:<hex>"``, ``"md5:<hex>"``, or ``"git:<hex>"`` for the id
    that git gives to the content of a file.
    """

    url: str
    name: str
    size: int | None = None
    checksum: str | None = None


@dataclass(frozen=True)
class DownloadPlan:
    """The files of a dataset; printing it shows what would be downloaded, and where."""

    title: str
    files: tuple[RemoteFile, ...]
    folder: Path

    def __post_init__(self) -> None:
        for name in (file.name for file in self.files):
            # Windows separates folders by backslashes too
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


def download(plan: DownloadPlan, progress: bool = True) -> list[Path]:
    """Download the missing files of a dataset, and return the paths of all.

    A file appears in the folder only if its size and checksum are right, as far as
    they are known.

    Parameters
    ----------
    plan : DownloadPlan
        Files to download.
    progress : bool, default=True
        Print the plan and show a progress bar on standard error.

    Returns
    -------
    list of Path
        Paths of all files, in the order of the plan.
    """
    if progress and plan.missing:
        announce(plan)
    for file in plan.missing:
        _download_file(file, plan.folder / file.name, progress)
    return [plan.folder / file.name for file in plan.files]


def announce(plan: DownloadPlan) -> None:
    """Print a plan on standard error."""
    from rich.console import Console

    Console(stderr=True).print(str(plan), highlight=False, markup=False, soft_wrap=True)


def _download_file(file: RemoteFile, target: Path, progress: bool) -> None:
    from rich.console import Console
    from rich.progress import wrap_file

    target.parent.mkdir(parents=True, exist_ok=True)
    request = urllib.request.Request(file.url, headers={"User-Agent": "brainweave"})
    try:
        with (
            full_disk_is_an_error(target, "fetch again"),
            atomic_path(target) as part,
        ):
            with (
                urllib.request.urlopen(request, timeout=_TIMEOUT) as response,
                wrap_file(
                    response,
                    file.size or 0,
                    description=file.name,
                    console=Console(stderr=True),
                    transient=True,
                    disable=not progress,
                ) as content,
                part.open("wb") as out,
            ):
                shutil.copyfileobj(content, out)
            _verify(file, part)
    except urllib.error.HTTPError as error:
        error.close()
        raise StudyError(
            f"{file.url} cannot be downloaded: HTTP {error.code} ({error.reason}). The "
            "source may have moved; a file that you put at "
            f"{str(target)!r} is used as it is."
        ) from error
    except (
        urllib.error.URLError,
        http.client.HTTPException,
        ConnectionError,
        TimeoutError,
    ) as error:
        raise StudyError(
            f"{file.url} cannot be reached ({error}), and {str(target)!r} is not there "
            "yet. Try again when online."
        ) from error


def _verify(file: RemoteFile, path: Path) -> None:
    size, wrong = path.stat().st_size, ""
    if file.size not in (None, size):
        wrong = f"sent {size} bytes instead of {file.size}"
    elif file.checksum is not None:
        kind, _, expected = file.checksum.partition(":")
        digest = hashlib.sha1() if kind == "git" else hashlib.new(kind)
        if kind == "git":
            digest.update(f"blob {size}\0".encode())
        digest.update(path.read_bytes())
        if digest.hexdigest() != expected:
            wrong = (
                f"does not have the expected checksum: {kind} is "
                f"{digest.hexdigest()}, not {expected}"
            )
    if wrong:
        raise StudyError(
            f"{file.url} {wrong}. Try again; if that does not help, the source has "
            "changed."
        )
