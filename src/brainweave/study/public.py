"""Fetch public datasets: Raider, Haxby 2001, and those of OpenNeuro.

Files are downloaded once, verified and kept in the user's cache.
"""

import hashlib
import http.client
import logging
import os
import re
import urllib.request
from collections.abc import Iterable
from os import PathLike
from pathlib import Path
from textwrap import shorten
from typing import Any, Literal

import numpy as np

from brainweave._core.exceptions import InputError, StudyError
from brainweave._core.io import atomic_path, full_disk_is_an_error
from brainweave._core.validation import check_list_option, check_option
from brainweave.study.formats.matlab import load_matlab
from brainweave.study.formats.runs import Cleaning, ImageSource, Run
from brainweave.study.spaces import VolumeSpace, read_table
from brainweave.study.study import Study
from brainweave.study.subject import Subject

logger = logging.getLogger(__name__)

RAIDER_URL = (
    "https://raw.githubusercontent.com/cameronphchen/SRM/"
    "0cb149b63239b60d6b444d02756c00a775fdfbd3/data/input/raider/500vx/2203TR/"
)
# Files of each part, and git's id of their content, which is their published checksum.
RAIDER_FILES = {
    "images": {
        "image_data_lh.mat": "1cdddce2fc07d7c232f2b706ca3b506d691b43f4",
        "image_data_rh.mat": "9d47d3e95e13e6cd7579f53d04cd9b5a1336e879",
        "label.mat": "8f82d62892665a5e016e6aed3a24778040c7f646",
    },
    "movie": {
        "movie_data_lh.mat": "2859bb91a5d35349148ae0798ae7338c1ee21132",
        "movie_data_rh.mat": "76f126515661551084b60cd45dd24d38fd45bd01",
    },
}
_HAXBY_T_R = 2.5
_TIMEOUT = 30.0  # seconds without an answer of the server


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


def download(url: str, target: Path, git_id: str) -> Path:
    """Download a file unless it is there, and refuse other content than git knows."""
    if target.is_file():
        return target
    logger.info("Downloading %s", url)
    target.parent.mkdir(parents=True, exist_ok=True)
    try:
        with urllib.request.urlopen(url, timeout=_TIMEOUT) as response:
            content = response.read()
    except (OSError, http.client.HTTPException) as error:
        raise StudyError(
            f"{url} cannot be downloaded ({error}). Try again when online, or put the "
            f"file there yourself: {str(target)!r}."
        ) from error
    if hashlib.sha1(f"blob {len(content)}\0".encode() + content).hexdigest() != git_id:
        raise StudyError(f"{url} does not have the expected checksum {git_id}.")
    with full_disk_is_an_error(target, "fetch again"), atomic_path(target) as work:
        work.write_bytes(content)
    return target


def fetch_raider(
    part: Literal["images", "movie"] = "images",
    *,
    cache_dir: str | PathLike[str] | None = None,
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
    check_option("part", part, list(RAIDER_FILES), owner="fetch_raider")
    folder = cache_folder("raider", cache_dir)
    left, right, *labels = (
        download(RAIDER_URL + name, folder / name, git_id)
        for name, git_id in RAIDER_FILES[part].items()
    )
    if part == "images":
        return load_matlab(
            [left, right], labels=labels[0], samples_per_run=7, name="raider"
        )
    study = load_matlab([left, right], name="raider movie")
    return study.map(
        lambda subject: subject._replace(stimuli=np.arange(subject.n_samples))
    )


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
        Show nilearn's messages.
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
    listed = range(1, 7) if subjects is None else subjects
    numbers = sorted(set(check_list_option("subjects", listed, "fetch_haxby")))
    if not set(numbers) <= set(range(1, 7)):
        raise InputError(f"Haxby's subjects have numbers from 1 to 6, got {numbers}.")
    folder = cache_folder("nilearn", cache_dir)
    folder.mkdir(parents=True, exist_ok=True)
    try:
        with full_disk_is_an_error(folder, "fetch again"):
            bunch: Any = datasets.fetch_haxby(
                data_dir=folder, subjects=numbers, url=url, verbose=int(progress)
            )
    except StudyError:
        raise
    except (OSError, ValueError) as error:  # requests' errors are OSErrors
        raise StudyError(
            f"The Haxby data could not be downloaded ({shorten(str(error), 120)}), and "
            f"they are not complete in {str(folder)!r}. Try again when online; nilearn "
            "resumes."
        ) from error
    people = []
    for position, number in enumerate(numbers):
        table = _haxby_labels(Path(bunch.session_target[position]))
        by_run = table.groupby("chunks")
        late = by_run["labels"].shift(round(hrf_delay / _HAXBY_T_R), fill_value="rest")
        labels = late.where(late != "rest", "").to_numpy(np.str_)
        onsets = by_run.cumcount().to_numpy() * _HAXBY_T_R
        runs = table["chunks"].to_numpy()
        rows = np.flatnonzero(keep_rest | (labels != ""))
        space = VolumeSpace(bunch[f"mask_{mask}"][position])
        run = Run(bunch.func[position], keep=rows, t_r=_HAXBY_T_R, segments=runs)
        source = ImageSource([run], space, cleaning or Cleaning(high_pass=None))
        n_volumes = source.runs[0].header.n_samples
        if n_volumes != len(labels):
            raise StudyError(
                f"{run.name!r} has {n_volumes} volumes, but its labels.txt has "
                f"{len(labels)} rows. Delete the folder to fetch it anew."
            )
        people.append(
            Subject(
                f"subj{number}",
                source,
                labels=labels[rows],
                runs=runs[rows] + 1,
                onsets=onsets[rows],
                space=space,
            )
        )
    return Study(people, "haxby2001")


def _haxby_labels(path: Path) -> Any:
    """Read the label and the run of each volume."""
    table = read_table(path, " ")
    try:
        return table[["labels", "chunks"]].astype({"chunks": int})
    except (KeyError, ValueError) as error:
        raise StudyError(
            f"{str(path)!r} is not a table of labels and chunks ({error})."
        ) from error


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
    with ``pip install "brainweave[fetch]"``. Offline, pass the folder of an earlier
    call to :func:`brainweave.load_bids`.

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
    if not re.fullmatch(r"ds\d{6}", accession):
        raise InputError(
            f"accession must look like 'ds000105', got {accession!r}. Find it at "
            "openneuro.org."
        )
    if tag is not None and not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9._-]*", tag):
        raise InputError(f"tag must be a version such as '1.0.0', got {tag!r}.")
    name = accession if tag is None else f"{accession}-{tag}"
    folder = cache_folder("openneuro", cache_dir) / name
    people = ["/sub-*"]
    if subjects is not None:
        listed = check_list_option("subjects", subjects, "fetch_openneuro")
        people = [f"/sub-{str(id).removeprefix('sub-')}" for id in listed]
    include = None
    if subjects is not None or task is not None:
        chosen = people if task is None else [f"{p}/**/*_task-{task}_*" for p in people]
        include = [*sorted(chosen), "/*.*"]  # and the files at the top
    try:
        from openneuro import download as download_dataset
    except ImportError as error:
        raise ImportError(
            "fetch_openneuro needs the openneuro-py client: "
            'pip install "brainweave[fetch]"'
        ) from error
    folder.mkdir(parents=True, exist_ok=True)
    try:
        with full_disk_is_an_error(folder, "fetch again"):
            download_dataset(
                dataset=accession, tag=tag, target_dir=folder, include=include
            )
    except StudyError:
        raise
    except (RuntimeError, OSError, ValueError) as error:
        said = " ".join(str(error).split())
        raise StudyError(
            f"The client could not download {accession} ({said}). What has arrived "
            f"is kept in {str(folder)!r}; try again to resume."
        ) from error
    return folder
