"""Fetch the Raider and Haxby 2001 datasets.

Files are downloaded once, verified and kept. ``raider_plan`` and ``haxby_plan`` return
what would be downloaded.
"""

import urllib.error
import urllib.request
from collections.abc import Iterable
from os import PathLike
from pathlib import Path
from textwrap import shorten
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from brainweave._core.exceptions import InputError, StudyError
from brainweave._core.io import full_disk_is_an_error
from brainweave._core.validation import check_list_option, check_option
from brainweave.study.formats.matlab import load_matlab
from brainweave.study.formats.runs import Cleaning, ImageSource, Run
from brainweave.study.public.download import (
    DownloadPlan,
    RemoteFile,
    announce,
    cache_folder,
    download,
)
from brainweave.study.spaces import VolumeSpace, reading
from brainweave.study.study import Study
from brainweave.study.subject import Subject

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


def raider_plan(
    part: Literal["images", "movie"] = "images",
    cache_dir: str | PathLike[str] | None = None,
) -> DownloadPlan:
    """Return what :func:`fetch_raider` would download."""
    check_option("part", part, ("images", "movie"), owner="fetch_raider")
    listed = _RAIDER_IMAGES if part == "images" else _RAIDER_MOVIE
    files = tuple(
        RemoteFile(RAIDER_URL + name, name, size, f"git:{id}")
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
    url: str | None = None,
) -> DownloadPlan:
    """Return what :func:`fetch_haxby` would download; ask the server for sizes."""
    folder = cache_folder("nilearn", cache_dir) / "haxby2001"
    url = HAXBY_URL if url is None else url
    files = []
    for number in _haxby_numbers(subjects):
        # nilearn deletes an archive once it is unpacked: look for its BOLD file
        archive = f"subj{number}-2010.01.14.tar.gz"
        name = f"subj{number}/bold.nii.gz"
        there = (folder / name).is_file()
        size = None if there else _remote_size(url + archive)
        files.append(RemoteFile(url + archive, name, size))
    return DownloadPlan("Haxby 2001 (by nilearn)", tuple(files), folder)


def _haxby_numbers(subjects: Iterable[int] | None) -> list[int]:
    if subjects is None:
        return list(range(1, 7))
    listed = check_list_option("subjects", subjects, "fetch_haxby")
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
    check_option("mask", mask, ("vt", "face", "house"), owner="fetch_haxby")
    how = cleaning or Cleaning(high_pass=None)
    numbers = _haxby_numbers(subjects)
    plan = haxby_plan(numbers, cache_dir, url)
    bunch = _nilearn_haxby(plan, numbers, progress, url)
    listed = []
    for position, number in enumerate(numbers):
        labels, runs = _haxby_labels(Path(bunch.session_target[position]))
        labels = _shift_labels(labels, runs, round(hrf_delay / _HAXBY_T_R))
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


def _remote_size(url: str) -> int | None:
    request = urllib.request.Request(url, method="HEAD")
    try:
        with urllib.request.urlopen(request, timeout=10) as response:
            length = response.headers.get("Content-Length")
    except (urllib.error.URLError, OSError):
        return None
    return None if length is None else int(length)


def _nilearn_haxby(
    plan: DownloadPlan, numbers: list[int], progress: bool, url: str | None
) -> Any:
    from nilearn.datasets import fetch_haxby as fetch

    root = plan.folder.parent
    root.mkdir(parents=True, exist_ok=True)
    report = progress and bool(plan.missing)
    if report:
        announce(plan)
    try:
        with full_disk_is_an_error(plan.folder, "fetch again"):
            return fetch(data_dir=root, subjects=numbers, url=url, verbose=int(report))
    except (OSError, ValueError) as error:  # requests' errors are OSErrors
        if isinstance(error, StudyError):
            raise
        reason = shorten(str(error), 120)
        raise StudyError(
            f"The Haxby data could not be downloaded ({reason}), and they are not "
            f"complete in {str(plan.folder)!r}. Try again when online; nilearn resumes."
        ) from error


def _haxby_labels(path: Path) -> tuple[NDArray[np.str_], NDArray[np.intp]]:
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
    return np.array(labels), np.array(runs)


def _shift_labels(
    labels: NDArray[np.str_], runs: NDArray[np.intp], n_volumes: int
) -> NDArray[np.str_]:
    """Move labels later by some volumes within each run."""
    shifted = np.full(len(labels), "rest", dtype=labels.dtype)
    for run in np.unique(runs):
        rows = np.flatnonzero(runs == run)
        n_kept = max(len(rows) - n_volumes, 0)
        shifted[rows[len(rows) - n_kept :]] = labels[rows[:n_kept]]
    return shifted
