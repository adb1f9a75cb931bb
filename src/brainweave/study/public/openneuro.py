"""Datasets of OpenNeuro, downloaded by the openneuro-py client and kept."""

import json
import re
import urllib.error
import urllib.request
from collections.abc import Iterable
from fnmatch import fnmatchcase
from os import PathLike
from pathlib import Path, PurePosixPath
from typing import Any

from brainweave._io import write_text
from brainweave._validation import check_list_option
from brainweave.exceptions import InputError, StudyError
from brainweave.study.formats.folder.integrity import full_disk_is_an_error
from brainweave.study.public.download import (
    DownloadPlan,
    RemoteFile,
    announce,
    cache_folder,
)

__all__ = ["fetch_openneuro", "openneuro_plan"]

OPENNEURO_API = "https://openneuro.org/crn/graphql"
# Kept beside the files: what was asked for, and how large each file must be.
_RECORD = ".brainweave.json"

_FILES = "id files(recursive: true) { filename size }"
_LATEST = 'query {{ dataset(id: "{id}") {{ latestSnapshot {{ {files} }} }} }}'
_TAGGED = 'query {{ snapshot(datasetId: "{id}", tag: "{tag}") {{ {files} }} }}'


def fetch_openneuro(
    accession: str,
    *,
    subjects: Iterable[str] | None = None,
    task: str | None = None,
    include: Iterable[str] | None = None,
    exclude: Iterable[str] | None = None,
    tag: str | None = None,
    cache_dir: str | PathLike[str] | None = None,
    progress: bool = True,
) -> Path:
    """Fetch a dataset of OpenNeuro, or a part of it, as a BIDS folder.

    The ``openneuro-py`` client downloads it, resumes and verifies; install it with
    ``pip install "brainweave[fetch]"``. Once complete, a dataset is used offline.

    Parameters
    ----------
    accession : str
        Such as ``"ds000105"``.
    subjects : iterable of str, optional
        Subjects to fetch, with or without ``sub-``; all by default. Files at the top
        of the dataset always come along.
    task : str, optional
        Leave out the files of other tasks.
    include, exclude : iterable of str, optional
        Patterns of paths to fetch, or not to fetch, such as ``"*/func/*"``; ``*``
        matches across folders.
    tag : str, optional
        Version of the dataset; the latest by default.
    cache_dir : path, optional
        Where to keep the files; see ``download.cache_folder``.
    progress : bool, default=True
        Announce the download on standard error; the client shows its progress in
        any case.

    Returns
    -------
    Path
        The folder, for :func:`brainweave.load_bids`.
    """
    request = _request(subjects, task, include, exclude)
    folder = _folder(accession, tag, cache_dir)
    record = _read_record(folder)
    if _is_complete(folder, record, request):
        return folder
    listing = _list_files(accession, tag)
    plan = _plan(accession, folder, listing, request)
    if progress:
        announce(plan)
    wanted = {file.name: file.size for file in plan.files}
    everything = len(wanted) == len(listing)
    _run_client(accession, tag, folder, None if everything else list(wanted))
    _check_arrived(folder, wanted)
    record["requests"] = [*record.get("requests", []), request]
    record["files"] = {**record.get("files", {}), **wanted}
    write_text(folder / _RECORD, json.dumps(record, indent=1) + "\n")
    return folder


def openneuro_plan(
    accession: str,
    *,
    subjects: Iterable[str] | None = None,
    task: str | None = None,
    include: Iterable[str] | None = None,
    exclude: Iterable[str] | None = None,
    tag: str | None = None,
    cache_dir: str | PathLike[str] | None = None,
) -> DownloadPlan:
    """Ask OpenNeuro what :func:`fetch_openneuro` would download, and how much."""
    request = _request(subjects, task, include, exclude)
    folder = _folder(accession, tag, cache_dir)
    return _plan(accession, folder, _list_files(accession, tag), request)


def _folder(
    accession: str, tag: str | None, cache_dir: str | PathLike[str] | None
) -> Path:
    if not re.fullmatch(r"ds\d{6}", accession):
        raise InputError(
            f"accession must look like 'ds000105', got {accession!r}. Find it at "
            "openneuro.org."
        )
    if tag is not None and not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9._-]*", tag):
        raise InputError(f"tag must be a version such as '1.0.0', got {tag!r}.")
    name = accession if tag is None else f"{accession}-{tag}"
    return cache_folder("openneuro", cache_dir) / name


def _plan(
    accession: str,
    folder: Path,
    listing: dict[str, int | None],
    request: dict[str, Any],
) -> DownloadPlan:
    wanted = {file: size for file, size in listing.items() if _matches(file, request)}
    if not any("/" in file for file in wanted):
        asked = {key: value for key, value in request.items() if value is not None}
        raise StudyError(
            f"{accession} has {len(listing)} files, but none in a folder that matches "
            f"{asked}."
        )
    prefix = f"https://openneuro.org/datasets/{accession}/"
    files = (RemoteFile(prefix + file, file, size) for file, size in wanted.items())
    return DownloadPlan(f"OpenNeuro {accession}", tuple(files), folder)


def _request(
    subjects: Iterable[str] | None,
    task: str | None,
    include: Iterable[str] | None,
    exclude: Iterable[str] | None,
) -> dict[str, Any]:
    def listed(name: str, values: Iterable[str] | None) -> list[str] | None:
        if values is None:
            return None
        return sorted(map(str, check_list_option(name, values, "fetch_openneuro")))

    ids = listed("subjects", subjects)
    return {
        "subjects": None if ids is None else [id.removeprefix("sub-") for id in ids],
        "task": task,
        "include": listed("include", include),
        "exclude": listed("exclude", exclude),
    }


def _matches(file: str, request: dict[str, Any]) -> bool:
    if "/" not in file:
        return True
    path = PurePosixPath(file)
    owner = next(
        (part[4:] for part in path.parts[:-1] if part.startswith("sub-")), None
    )
    if request["subjects"] is not None and owner not in (None, *request["subjects"]):
        return False
    task = re.search(r"_task-([A-Za-z0-9]+)", path.name)
    if request["task"] is not None and task and task[1] != request["task"]:
        return False
    include, exclude = request["include"], request["exclude"]
    if include is not None and not any(fnmatchcase(file, p) for p in include):
        return False
    return exclude is None or not any(fnmatchcase(file, p) for p in exclude)


def _list_files(accession: str, tag: str | None) -> dict[str, int | None]:
    """Ask OpenNeuro for the names and sizes of the files of a snapshot."""
    template = _LATEST if tag is None else _TAGGED
    query = template.format(id=accession, tag=tag, files=_FILES)
    request = urllib.request.Request(
        OPENNEURO_API,
        data=json.dumps({"query": query}).encode(),
        headers={"Content-Type": "application/json", "User-Agent": "brainweave"},
    )
    try:
        with urllib.request.urlopen(request, timeout=60) as response:
            answer = json.load(response)
    except (urllib.error.URLError, OSError, ValueError) as error:
        raise StudyError(
            f"OpenNeuro cannot be reached ({error}), and this part of {accession} has "
            "not been fetched before. Try again when online."
        ) from error
    try:
        data = answer["data"]
        snapshot = (
            data["dataset"]["latestSnapshot"] if tag is None else data["snapshot"]
        )
        return {file["filename"]: file["size"] for file in snapshot["files"]}
    except (KeyError, TypeError):
        errors = answer.get("errors") if isinstance(answer, dict) else None
        reason = errors[0].get("message") if errors else "no such dataset or version"
        version = "" if tag is None else f" version {tag}"
        raise StudyError(f"OpenNeuro has no {accession}{version}: {reason}.") from None


def _run_client(
    accession: str, tag: str | None, folder: Path, include: list[str] | None
) -> None:
    try:
        from openneuro import download
    except ImportError as error:
        raise ImportError(
            "fetch_openneuro needs the openneuro-py client: "
            'pip install "brainweave[fetch]"'
        ) from error
    folder.mkdir(parents=True, exist_ok=True)
    try:
        with full_disk_is_an_error(folder, "fetch again"):
            download(dataset=accession, tag=tag, target_dir=folder, include=include)
    except (RuntimeError, OSError, ValueError) as error:
        if isinstance(error, StudyError):
            raise
        raise StudyError(
            f"The client could not download {accession} ({error}). What has arrived "
            f"is kept in {str(folder)!r}; try again to resume."
        ) from error


def _check_arrived(folder: Path, wanted: dict[str, int | None]) -> None:
    for file, size in wanted.items():
        path = folder / file
        if not path.is_file() or (size is not None and path.stat().st_size != size):
            state = f"{path.stat().st_size} bytes" if path.is_file() else "nothing"
            raise StudyError(
                f"{str(path)!r} did not arrive in full: there is {state}, where "
                f"OpenNeuro lists {size} bytes. Try again to resume."
            )


def _read_record(folder: Path) -> dict[str, Any]:
    try:
        record = json.loads((folder / _RECORD).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return record if isinstance(record, dict) else {}


def _is_complete(folder: Path, record: dict[str, Any], request: dict[str, Any]) -> bool:
    if request not in record.get("requests", []):
        return False
    for file, size in record.get("files", {}).items():
        path = folder / file
        if _matches(file, request) and (
            not path.is_file() or (size is not None and path.stat().st_size != size)
        ):
            return False
    return True
