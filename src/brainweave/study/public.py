"""Fetch public datasets: Haxby 2001 and those of OpenNeuro, kept in a cache."""

import re
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from os import PathLike
from pathlib import Path
from typing import Any, Literal

import numpy as np

from brainweave._core.exceptions import InputError, StudyError
from brainweave._core.io import full_disk_is_an_error
from brainweave._core.validation import check_list_option, check_option
from brainweave.study.formats.runs import Cleaning, ImageSource, Run
from brainweave.study.spaces import VolumeSpace, read_table
from brainweave.study.study import Study
from brainweave.study.subject import Subject

_HAXBY_T_R = 2.5


def fetch_haxby(
    subjects: Iterable[int] | None = None,
    *,
    mask: Literal["vt", "face", "house"] = "vt",
    hrf_delay: float = 5.0,
    cache_dir: str | PathLike[str] | None = None,
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
    cache_dir : path, optional
        Folder to keep files in. By default that of nilearn's datasets
        (``$NILEARN_DATA``, else ``~/nilearn_data``).

    Returns
    -------
    Study
        Lazy study with 12 runs per subject (subject 5 has labels in 11 of them), as
        they are: neither filtered nor scaled. See :meth:`Study.zscore`.

    References
    ----------
    .. [1] Haxby, J. V. et al. (2001). Distributed and overlapping representations of
       faces and objects in ventral temporal cortex. Science 293.

    Examples
    --------
    >>> study = fetch_haxby([1, 2])  # doctest: +SKIP
    >>> aligning, other = study.zscore(by="run").split_halves()  # doctest: +SKIP
    """
    from nilearn import datasets

    check_option("mask", mask, ("vt", "face", "house"), owner="fetch_haxby")
    listed = range(1, 7) if subjects is None else subjects
    numbers = sorted(set(check_list_option("subjects", listed, "fetch_haxby")))
    if not set(numbers) <= set(range(1, 7)):
        raise InputError(f"Haxby's subjects have numbers from 1 to 6, got {numbers}.")
    folder = Path(datasets.get_data_dirs(cache_dir)[0])
    with _downloading("the Haxby data", folder):
        bunch: Any = datasets.fetch_haxby(data_dir=folder, subjects=numbers, verbose=0)
    people = []
    for position, number in enumerate(numbers):
        table = read_table(Path(bunch.session_target[position]), " ")
        by_run = table.groupby("chunks")
        late = by_run["labels"].shift(round(hrf_delay / _HAXBY_T_R), fill_value="rest")
        labels = late.where(late != "rest", "").to_numpy(np.str_)
        space = VolumeSpace(bunch[f"mask_{mask}"][position])
        run = Run(bunch.func[position], t_r=_HAXBY_T_R)
        subject = Subject(
            f"subj{number}",
            ImageSource([run], space, Cleaning(high_pass=None)),
            labels=labels,
            runs=table["chunks"].to_numpy() + 1,
            onsets=by_run.cumcount().to_numpy() * _HAXBY_T_R,
            space=space,
        )
        people.append(subject.select(labels != ""))
    return Study(people, "haxby2001")


@contextmanager
def _downloading(what: str, folder: Path) -> Iterator[None]:
    """Make the folder, and turn errors of a download into StudyErrors."""
    folder.mkdir(parents=True, exist_ok=True)
    try:
        with full_disk_is_an_error(folder, "fetch again"):
            yield
    except StudyError:
        raise
    except (RuntimeError, OSError, ValueError) as error:  # requests' are OSErrors
        said = " ".join(str(error).split())
        raise StudyError(
            f"Could not download {what} ({said}). What has arrived is kept in "
            f"{str(folder)!r}; try again when online to resume."
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
    with ``pip install "brainweave[fetch]"``.

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
        Folder to keep files in. By default that of nilearn's datasets
        (``$NILEARN_DATA``, else ``~/nilearn_data``).

    Returns
    -------
    Path
        Folder of the dataset, for :func:`brainweave.load_bids`.

    Examples
    --------
    >>> folder = fetch_openneuro("ds000105", subjects=["1", "2"])  # doctest: +SKIP
    >>> study = load_bids(folder, task="objectviewing")  # doctest: +SKIP
    """
    if not re.fullmatch(r"ds\d{6}", accession):
        raise InputError(
            f"accession must look like 'ds000105', got {accession!r}. Find it at "
            "openneuro.org."
        )
    from nilearn.datasets import get_data_dirs

    name = accession if tag is None else f"{accession}-{tag}"
    folder = Path(get_data_dirs(cache_dir)[0]) / name
    include = None
    if subjects is not None or task is not None:
        ids = ["*"] if subjects is None else subjects
        listed = check_list_option("subjects", ids, "fetch_openneuro")
        files = "" if task is None else f"/**/*_task-{task}_*"
        chosen = {f"/sub-{str(id).removeprefix('sub-')}{files}" for id in listed}
        include = [*sorted(chosen), "/*.*"]  # and the files at the top
    try:
        from openneuro import download as download_dataset
    except ImportError as error:
        raise ImportError(
            "fetch_openneuro needs the openneuro-py client: "
            'pip install "brainweave[fetch]"'
        ) from error
    with _downloading(accession, folder):
        download_dataset(dataset=accession, tag=tag, target_dir=folder, include=include)
    return folder
