"""Fetch public datasets: Raider, Haxby 2001, and those of OpenNeuro.

Files are downloaded once, verified and kept in the user's cache. ``raider_plan``,
``haxby_plan`` and ``openneuro_plan`` return what would be downloaded. Pooch is not used
because git's file ids are the only published checksums of the Raider files, and it
cannot verify those.
"""

import hashlib
import http.client
import json
import os
import re
import shutil
import urllib.error
import urllib.request
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass
from os import PathLike
from pathlib import Path, PureWindowsPath
from textwrap import shorten
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from brainweave._core.exceptions import InputError, StudyError
from brainweave._core.io import atomic_path, full_disk_is_an_error, write_text
from brainweave._core.validation import check_list_option, check_option
from brainweave.study.formats.matlab import load_matlab
from brainweave.study.formats.runs import Cleaning, ImageSource, Run
from brainweave.study.spaces import VolumeSpace, reading
from brainweave.study.study import Study
from brainweave.study.subject import Subject

_TIMEOUT = 30.0  # seconds without an answer of the server

# The commit of the repository whose file ids are listed below.
_RAIDER_COMMIT = "0cb149b63239b60d6b444d02756c00a775fdfbd3"
RAIDER_URL = (
    f"https://raw.githubusercontent.com/cameronphchen/SRM/{_RAIDER_COMMIT}"
    "/data/input/raider/500vx/2203TR/"
)
# size in bytes and git's id of the content, by name
_RAIDER_IMAGES = {
    "image_data_lh.mat": (2154777, "1cdddce2fc07d7c232f2b706ca3b506d691b43f4"),
    "image_data_rh.mat": (2154845, "9d47d3e95e13e6cd7579f53d04cd9b5a1336e879"),
    "label.mat": (213, "8f82d62892665a5e016e6aed3a24778040c7f646"),
}
_RAIDER_MOVIE = {
    "movie_data_lh.mat": (14915139, "2859bb91a5d35349148ae0798ae7338c1ee21132"),
    "movie_data_rh.mat": (14864733, "76f126515661551084b60cd45dd24d38fd45bd01"),
}

# where nilearn downloads from
HAXBY_URL = "http://data.pymvpa.org/datasets/haxby2001/"
_HAXBY_T_R = 2.5

# Kept beside the files of OpenNeuro: the sizes of the files that arrived, by what was
# asked for, so that what is complete needs no network.
_FETCHED = ".brainweave.json"


@dataclass(frozen=True)
class RemoteFile:
    """A file to download: its address, and its name in the target folder.

    `git_id` is the id that git gives to the content of the file.
    """

    url: str
    name: str
    size: int | None = None
    git_id: str | None = None


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
    from rich.console import Console
    from rich.progress import wrap_file

    if progress and plan.missing:
        announce(plan)
    for file in plan.missing:
        target = plan.folder / file.name
        target.parent.mkdir(parents=True, exist_ok=True)
        request = urllib.request.Request(file.url, headers={"User-Agent": "brainweave"})
        bar: dict[str, Any] = {"console": Console(stderr=True), "transient": True}
        bar |= {"description": file.name, "disable": not progress}
        try:
            with (
                full_disk_is_an_error(target, "fetch again"),
                atomic_path(target) as part,
            ):
                with (
                    urllib.request.urlopen(request, timeout=_TIMEOUT) as response,
                    wrap_file(response, file.size or 0, **bar) as content,
                    part.open("wb") as out,
                ):
                    shutil.copyfileobj(content, out)
                _verify(file, part.read_bytes())
        except (OSError, http.client.HTTPException) as error:
            if isinstance(error, urllib.error.HTTPError):
                error.close()
            raise StudyError(
                f"{file.url} cannot be downloaded ({error}), and {str(target)!r} is "
                "not there yet. Try again when online; a file that you put there is "
                "used as it is."
            ) from error
    return [plan.folder / file.name for file in plan.files]


def announce(plan: DownloadPlan) -> None:
    """Print a plan on standard error."""
    from rich.console import Console

    Console(stderr=True).print(str(plan), highlight=False, markup=False, soft_wrap=True)


def _verify(file: RemoteFile, content: bytes) -> None:
    """Refuse content of another size, or with another id, than the file has."""
    size, wrong = len(content), ""
    if file.size not in (None, size):
        wrong = f"sent {size} bytes instead of {file.size}"
    elif file.git_id is not None:
        found = hashlib.sha1(f"blob {size}\0".encode() + content).hexdigest()
        if found != file.git_id:
            wrong = f"does not have the expected checksum: {found}, not {file.git_id}"
    if wrong:
        raise StudyError(
            f"{file.url} {wrong}. Try again; if that does not help, the source has "
            "changed."
        )


def raider_plan(
    part: Literal["images", "movie"] = "images",
    cache_dir: str | PathLike[str] | None = None,
) -> DownloadPlan:
    """Return what :func:`fetch_raider` would download."""
    check_option("part", part, ("images", "movie"), owner="fetch_raider")
    listed = _RAIDER_IMAGES if part == "images" else _RAIDER_MOVIE
    files = tuple(
        RemoteFile(RAIDER_URL + name, name, size, id)
        for name, (size, id) in listed.items()
    )
    return DownloadPlan(f"Raider, {part}", files, cache_folder("raider", cache_dir))


def fetch_raider(
    part: Literal["images", "movie"] = "images",
    *,
    cache_dir: str | PathLike[str] | None = None,
    progress: bool = True,
) -> Study:
    """Fetch the Raider study: ventral temporal cortex of ten subjects [1]_ [2]_.

    Parameters
    ----------
    part : {"images", "movie"}, default="images"
        ``"images"``: responses to 7 categories of pictures, averaged over time, in 8
        runs (56 samples). ``"movie"``: the time course of the film.
    cache_dir : path, optional
        Folder to keep files in. By default ``$BRAINWEAVE_CACHE``, else the cache folder
        of the platform.
    progress : bool, default=True
        Announce the download and show a progress bar.

    Returns
    -------
    Study
        Study with 500 voxels of each hemisphere per subject. Images have labels 1 to 7
        and runs 1 to 8. Movie samples are aligned in time, with their numbers as
        stimuli.

    Notes
    -----
    The files accompany [2]_ and state no licence. Cite both.

    References
    ----------
    .. [1] Haxby, J. V. et al. (2011). A common, high-dimensional model of the
       representational space in human ventral temporal cortex. Neuron 72(2).
    .. [2] Chen, P.-H. et al. (2015). A reduced-dimension fMRI shared response model.
       Advances in Neural Information Processing Systems 28.
    """
    left, right, *labels = download(raider_plan(part, cache_dir), progress)
    if part == "images":
        return load_matlab(
            [left, right], labels=labels[0], samples_per_run=7, name="raider"
        )
    study = load_matlab([left, right], name="raider movie")
    return study.map(
        lambda subject: Subject(
            subject.id, subject.samples, stimuli=np.arange(subject.n_samples)
        )
    )


def haxby_plan(
    subjects: Iterable[int] | None = None,
    cache_dir: str | PathLike[str] | None = None,
) -> DownloadPlan:
    """Return what :func:`fetch_haxby` would download."""
    # nilearn deletes an archive once it is unpacked: look for its BOLD file
    files = tuple(
        RemoteFile(f"{HAXBY_URL}subj{n}-2010.01.14.tar.gz", f"subj{n}/bold.nii.gz")
        for n in _haxby_numbers(subjects)
    )
    folder = cache_folder("nilearn", cache_dir) / "haxby2001"
    return DownloadPlan("Haxby 2001 (by nilearn, some 300 MB a subject)", files, folder)


def _haxby_numbers(subjects: Iterable[int] | None) -> list[int]:
    listed = range(1, 7) if subjects is None else subjects
    listed = check_list_option("subjects", listed, "fetch_haxby")
    unknown = [number for number in listed if str(number) not in set("123456")]
    if unknown:
        raise InputError(f"Haxby's subjects have numbers from 1 to 6, got {unknown}.")
    return sorted({int(number) for number in listed})


def fetch_haxby(
    subjects: Iterable[int] | None = None,
    *,
    mask: Literal["vt", "face", "house"] = "vt",
    hrf_delay: float = 5.0,
    keep_rest: bool = False,
    cache_dir: str | PathLike[str] | None = None,
    progress: bool = True,
    url: str | None = None,
    cleaning: Cleaning | None = None,
) -> Study:
    """Fetch the Haxby 2001 study: faces, houses and objects in native space [1]_.

    The data are downloaded by :func:`nilearn.datasets.fetch_haxby`, which verifies
    and resumes downloads. Each subject has a mask of its own, so voxel counts differ.

    Parameters
    ----------
    subjects : iterable of int, optional
        Numbers from 1 to 6; all by default.
    mask : {"vt", "face", "house"}, default="vt"
        Ventral temporal cortex, or its face- or house-responsive part.
    hrf_delay : float, default=5.0
        Seconds by which the response lags the stimulus; rounded to volumes of 2.5 s.
    keep_rest : bool, default=False
        Keep the volumes of rest as unlabelled samples.
    cache_dir : path, optional
        Folder to keep files in. By default ``$BRAINWEAVE_CACHE``, else the cache folder
        of the platform.
    progress : bool, default=True
        Announce the download and show nilearn's messages.
    url : str, optional
        A mirror of the data.
    cleaning : Cleaning, optional
        Detrending, filtering, scaling and smoothing of each run, such as
        ``Cleaning(smoothing_fwhm=6, high_pass=None)``; by default nothing is done.

    Returns
    -------
    Study
        Lazy study with 12 runs per subject (subject 5 has labels in 11 of them).

    References
    ----------
    .. [1] Haxby, J. V. et al. (2001). Distributed and overlapping representations of
       faces and objects in ventral temporal cortex. Science 293.
    """
    from nilearn import datasets

    check_option("mask", mask, ("vt", "face", "house"), owner="fetch_haxby")
    how = cleaning or Cleaning(high_pass=None)
    numbers = _haxby_numbers(subjects)
    plan = haxby_plan(numbers, cache_dir)
    plan.folder.parent.mkdir(parents=True, exist_ok=True)
    report = progress and bool(plan.missing)
    if report:
        announce(plan)
    where = {"data_dir": plan.folder.parent, "url": url}
    try:
        with full_disk_is_an_error(plan.folder, "fetch again"):
            bunch: Any = datasets.fetch_haxby(
                subjects=numbers, verbose=int(report), **where
            )
    except StudyError:
        raise
    except (OSError, ValueError) as error:  # requests' errors are OSErrors
        raise StudyError(
            f"The Haxby data could not be downloaded ({shorten(str(error), 120)}), and "
            f"they are not complete in {str(plan.folder)!r}. Try again when online; "
            "nilearn resumes."
        ) from error
    listed = []
    for position, number in enumerate(numbers):
        n_late = round(hrf_delay / _HAXBY_T_R)
        labels, runs = _haxby_labels(Path(bunch.session_target[position]), n_late)
        keep = None if keep_rest else np.flatnonzero(labels != "rest")
        rows = np.arange(len(labels)) if keep is None else keep
        space = VolumeSpace(bunch[f"mask_{mask}"][position])
        run = Run(bunch.func[position], keep=keep, t_r=_HAXBY_T_R, segments=runs)
        source = ImageSource([run], space, how)
        n_volumes = source.runs[0].header.n_samples
        if n_volumes != len(labels):
            raise StudyError(
                f"{run.name!r} has {n_volumes} volumes, but its labels.txt has "
                f"{len(labels)} rows. Delete the folder to fetch it anew."
            )
        first = np.array([np.flatnonzero(runs == run)[0] for run in runs])
        listed.append(
            Subject(
                f"subj{number}",
                source,
                labels=np.where(labels == "rest", "", labels)[rows],
                runs=runs[rows] + 1,
                onsets=((np.arange(len(runs)) - first) * _HAXBY_T_R)[rows],
                space=space,
            )
        )
    return Study(listed, "haxby2001")


def _haxby_labels(path: Path, n_late: int) -> tuple[NDArray[np.str_], NDArray[np.intp]]:
    """Read the label and the run of each volume; labels move later within runs."""
    with reading(path):
        rows = [line.split() for line in path.read_text().split("\n") if line.strip()]
    if rows and rows[0] == ["labels", "chunks"]:
        rows = rows[1:]
    try:
        labels, runs = [row[0] for row in rows], [int(row[1]) for row in rows]
    except (IndexError, ValueError) as error:
        raise StudyError(
            f"{str(path)!r} is not a table of labels and chunks ({error})."
        ) from error
    late = np.full(len(labels), "rest", dtype=np.array(labels).dtype)
    for run in set(runs):
        here = np.flatnonzero(np.array(runs) == run)
        late[here[n_late:]] = np.array(labels)[here[: max(len(here) - n_late, 0)]]
    return late, np.array(runs)


def fetch_openneuro(
    accession: str,
    *,
    subjects: Iterable[str] | None = None,
    task: str | None = None,
    tag: str | None = None,
    cache_dir: str | PathLike[str] | None = None,
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
        Task whose files to fetch; by default all files of the subjects.
    tag : str, optional
        Version of the dataset; the latest by default.
    cache_dir : path, optional
        Folder to keep files in. By default ``$BRAINWEAVE_CACHE``, else the cache folder
        of the platform.

    Returns
    -------
    Path
        Folder of the dataset, for :func:`brainweave.load_bids`.
    """
    folder = _openneuro_folder(accession, tag, cache_dir)
    people = ["/sub-*"]
    if subjects is not None:
        listed = check_list_option("subjects", subjects, "fetch_openneuro")
        people = [f"/sub-{str(id).removeprefix('sub-')}" for id in listed]
    include = None
    if subjects is not None or task is not None:
        chosen = people if task is None else [f"{p}/**/*_task-{task}_*" for p in people]
        include = [*sorted(chosen), "/*.*"]  # and the files at the top
    asked, fetched = json.dumps(include), {}
    with suppress(OSError, ValueError):
        fetched = json.loads((folder / _FETCHED).read_text(encoding="utf-8"))
    if asked in fetched and all(
        (folder / name).is_file() and (folder / name).stat().st_size == size
        for name, size in fetched[asked].items()
    ):
        return folder
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
    except StudyError:
        raise
    except (RuntimeError, OSError, ValueError) as error:
        said = " ".join(str(error).split())
        raise StudyError(
            f"The client could not download {accession} ({said}). What has arrived "
            f"is kept in {str(folder)!r}; try again to resume."
        ) from error
    fetched[asked] = {
        path.relative_to(folder).as_posix(): path.stat().st_size
        for path in sorted(folder.rglob("*"))
        if path.is_file() and path.name != _FETCHED
    }
    write_text(folder / _FETCHED, json.dumps(fetched, indent=1) + "\n")
    return folder


def openneuro_plan(accession: str, cache_dir: Any = None, **choice: Any) -> str:
    """Return what :func:`fetch_openneuro` would do; only its client knows the sizes."""
    folder = _openneuro_folder(accession, None, cache_dir)
    chosen = ", ".join(f"{name} {v}" for name, v in choice.items() if v is not None)
    return f"OpenNeuro {accession} ({chosen or 'all files'}), into {folder}"


def _openneuro_folder(
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
