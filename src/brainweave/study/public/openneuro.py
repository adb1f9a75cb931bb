"""Fetch datasets of OpenNeuro by the openneuro-py client."""

import json
import re
import urllib.error
import urllib.request
from collections.abc import Iterable
from contextlib import suppress
from fnmatch import fnmatchcase
from os import PathLike
from pathlib import Path
from typing import Any

from brainweave._core.exceptions import InputError, StudyError
from brainweave._core.io import full_disk_is_an_error, write_text
from brainweave._core.validation import check_list_option
from brainweave.study.public.download import (
    DownloadPlan,
    RemoteFile,
    announce,
    cache_folder,
)

OPENNEURO_API = "https://openneuro.org/crn/graphql"
_LISTING = "{ id files(recursive: true) { filename size } }"
# Kept beside the files: the names and sizes of all files of the dataset, so that files
# that are complete need no network.
_LISTED = ".brainweave.json"


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

    The ``openneuro-py`` client downloads, resumes and verifies the files. Install it
    with ``pip install "brainweave[fetch]"``. A complete dataset is used offline.

    Parameters
    ----------
    accession : str
        Accession number, such as ``"ds000105"``.
    subjects : iterable of str, optional
        Subjects to fetch, with or without ``sub-``; all by default. Files at the top
        of the dataset are always fetched.
    task : str, optional
        Task to fetch; all by default.
    include : iterable of str, optional
        Patterns of paths to fetch, such as ``"*/func/*"``. ``*`` matches across
        folders.
    exclude : iterable of str, optional
        Patterns of paths not to fetch.
    tag : str, optional
        Version of the dataset; the latest by default.
    cache_dir : path, optional
        Folder to keep files in. By default ``$BRAINWEAVE_CACHE``, else the cache folder
        of the platform.
    progress : bool, default=True
        Announce the download. The client always shows its progress.

    Returns
    -------
    Path
        Folder of the dataset, for :func:`brainweave.load_bids`.
    """
    choice = _check_choice(subjects, task, include, exclude)
    folder = _folder(accession, tag, cache_dir)
    with suppress(StudyError):  # a newer version may have what this one lacks
        plan = _plan(accession, folder, _read_listing(folder), choice)
        if not _incomplete_files(plan):
            return folder
    listing = _list_files(accession, tag)
    plan = _plan(accession, folder, listing, choice)
    if progress:
        announce(plan)
    everything = len(plan.files) == len(listing)
    include = None if everything else [file.name for file in plan.files]
    _run_client(accession, tag, folder, include)
    incomplete = _incomplete_files(plan)
    if incomplete:
        raise StudyError(
            f"{len(incomplete)} files of {accession} are incomplete, among them "
            f"{str(folder / incomplete[0])!r}. Try again to resume."
        )
    write_text(folder / _LISTED, json.dumps(listing, indent=1) + "\n")
    return folder


def openneuro_plan(
    accession: str,
    *,
    subjects: Iterable[str] | None = None,
    task: str | None = None,
    cache_dir: str | PathLike[str] | None = None,
) -> DownloadPlan:
    """Ask OpenNeuro what :func:`fetch_openneuro` would download."""
    choice = _check_choice(subjects, task)
    folder = _folder(accession, None, cache_dir)
    return _plan(accession, folder, _list_files(accession, None), choice)


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
    choice: dict[str, Any],
) -> DownloadPlan:
    prefix = f"https://openneuro.org/datasets/{accession}/"
    files = tuple(
        RemoteFile(prefix + file, file, size)
        for file, size in listing.items()
        if _matches(file, choice)
    )
    if not any("/" in file.name for file in files):
        asked = {key: value for key, value in choice.items() if value is not None}
        raise StudyError(
            f"{accession} has {len(listing)} files, but none in a folder that matches "
            f"{asked}."
        )
    return DownloadPlan(f"OpenNeuro {accession}", files, folder)


def _check_choice(
    subjects: Iterable[str] | None,
    task: str | None,
    include: Iterable[str] | None = None,
    exclude: Iterable[str] | None = None,
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


def _matches(file: str, choice: dict[str, Any]) -> bool:
    if "/" not in file:
        return True
    subjects, task, include, exclude = choice.values()
    *folders, name = file.split("/")
    owner = next((part[4:] for part in folders if part.startswith("sub-")), None)
    if subjects is not None and owner not in (None, *subjects):
        return False
    shown = re.search(r"_task-([A-Za-z0-9]+)", name)
    if task is not None and shown and shown[1] != task:
        return False
    if include is not None and not any(fnmatchcase(file, p) for p in include):
        return False
    return exclude is None or not any(fnmatchcase(file, p) for p in exclude)


def _list_files(accession: str, tag: str | None) -> dict[str, int | None]:
    """Ask OpenNeuro for the names and sizes of the files of a snapshot."""
    which = f'dataset(id: "{accession}") {{ latestSnapshot {_LISTING} }}'
    if tag is not None:
        which = f'snapshot(datasetId: "{accession}", tag: "{tag}") {_LISTING}'
    request = urllib.request.Request(
        OPENNEURO_API,
        data=json.dumps({"query": f"query {{ {which} }}"}).encode(),
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
        snapshot = data["snapshot"] if tag else data["dataset"]["latestSnapshot"]
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


def _incomplete_files(plan: DownloadPlan) -> list[str]:
    """List the files that are missing, or of another size than listed."""

    def is_complete(path: Path, size: int | None) -> bool:
        return path.is_file() and size in (None, path.stat().st_size)

    return [f.name for f in plan.files if not is_complete(plan.folder / f.name, f.size)]


def _read_listing(folder: Path) -> dict[str, int | None]:
    """Read the listing of an earlier download, if there was one."""
    try:
        listing = json.loads((folder / _LISTED).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return listing if isinstance(listing, dict) else {}
