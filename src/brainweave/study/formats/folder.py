"""The plain folder format: a study on disk that is mapped, not read.

Per subject an ``.npy`` file of samples x voxels and a ``.json`` file with the label,
run, onset and stimulus of each sample; the masks as images; and ``study.json``, which
lists every file with its size and checksum. The ``.npy`` file is in Fortran order, so
that some voxels of all samples are one stretch of the disk.
"""

import contextlib
import json
import os
import re
from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np
from joblib import Parallel, delayed
from numpy.typing import NDArray

from brainweave._core import __version__
from brainweave._core.exceptions import StudyError
from brainweave._core.io import (
    atomic_folder,
    file_stamp,
    full_disk_is_an_error,
    unreadable,
    write_text,
)
from brainweave._core.workers import Progress, n_workers, shown_progress
from brainweave.persistence.codec import json_checksum
from brainweave.study.spaces import load_space
from brainweave.study.study import Study
from brainweave.study.subject import ANNOTATIONS, Subject

FORMAT = "brainweave-study"
VERSION = 2
INDEX = "study.json"
# Verifying runs at 0.5 to 2 GB a second: under a second for so many bytes.
_VERIFIED_BYTES = 2**29
_WRITTEN_BYTES = 2**26  # turned to the order of the file at a time


def save_study(
    study: Study,
    folder: str | PathLike[str],
    *,
    overwrite: bool = False,
    dtype: Any = None,
    n_jobs: int | None = 1,
    progress: bool | Progress | None = None,
) -> Study:
    """Write a study as a plain folder, all or nothing; see ``Study.save``."""
    target = Path(os.path.abspath(folder))
    _check_target(target, overwrite)
    for subject in study:
        if subject.n_samples == 0:
            raise StudyError(
                f"Subject {subject.id!r} has no samples, so the study cannot be saved. "
                "Leave it out with subset(subjects=...)."
            )
    if target.is_symlink():
        target = target.resolve()
    target.parent.mkdir(parents=True, exist_ok=True)

    def replaced() -> list[str]:
        """List the files of the study; of an index that cannot be read, itself."""
        _check_target(target, overwrite)
        listed = [INDEX]
        with contextlib.suppress(OSError, ValueError, LookupError, TypeError):
            content = json.loads((target / INDEX).read_text(encoding="utf-8"))
            for part in (*content["spaces"], *content["subjects"]):
                files = part.get("files") or [part["samples"], part["table"]]
                listed += [str(file["file"]) for file in files]
        return listed

    with (
        full_disk_is_an_error(target, "save again; nothing was left behind"),
        atomic_folder(target, replaces=replaced) as work,
    ):
        taken: set[str] = set()
        stems = [work / _free_stem(id, taken) for id in study.ids]
        entries = []
        # threads: reading, decompressing and NumPy let others run meanwhile
        workers = Parallel(n_workers(len(study), n_jobs), "threading", "generator")
        written = workers(
            delayed(_write_subject)(subject, stem, dtype)
            for subject, stem in zip(study, stems, strict=True)
        )
        with shown_progress(progress, len(study), "Writing subjects") as tick:
            for entry in written:
                entries.append(entry)
                tick(entry["id"])
        index = {
            "format": FORMAT,
            "version": VERSION,
            "brainweave": __version__,
            "name": study.name,
            "record": study.record,
            "subjects": entries,
            "spaces": _write_spaces(study, work, entries),
        }
        index["checksum"] = _index_checksum(index)
        write_text(work / INDEX, json.dumps(index, indent=1) + "\n")
    return open_study(target, verify=False)


def open_study(folder: str | PathLike[str], *, verify: bool | None = None) -> Study:
    """Open a plain folder; see ``Study.open``."""
    root = Path(folder)
    index = _read_index(root)
    try:
        if verify is None:
            sizes = [int(entry["samples"]["bytes"]) for entry in index["subjects"]]
            verify = sum(sizes) <= _VERIFIED_BYTES
        spaces = []
        for entry in index["spaces"]:
            paths = [verify_file(root, file, full=True) for file in entry["files"]]
            spaces.append(load_space(entry["kind"], paths))
        subjects = []
        for entry in index["subjects"]:
            table = verify_file(root, entry["table"], full=True)
            samples = _map_samples(root, entry["samples"], verify)
            columns = json.loads(table.read_text(encoding="utf-8"))
            space = None if entry["space"] is None else spaces[entry["space"]]
            subjects.append(Subject(entry["id"], samples, space=space, **columns))
        return Study(subjects, index["name"], index["record"])
    except (StudyError, OSError):
        raise
    except Exception as error:
        # the checksum is right, so somebody wrote these values, whatever they are
        raise StudyError(
            f"{str(root / INDEX)!r} lacks an entry or has a wrong one ({error!r})."
        ) from error


def _write_subject(subject: Subject, stem: Path, dtype: Any) -> dict[str, Any]:
    values = subject.data()
    stored = np.dtype(values.dtype if dtype is None else dtype)
    path = stem.with_name(f"{stem.name}.npy")
    kind = np.lib.format.dtype_to_descr(stored)
    header = {"descr": kind, "fortran_order": True, "shape": values.shape}
    step = max(1, _WRITTEN_BYTES // max(1, len(values) * stored.itemsize))
    with path.open("wb") as file:
        np.lib.format.write_array_header_1_0(file, header)
        for start in range(0, values.shape[1], step):  # memory for a few voxels
            voxels = np.ascontiguousarray(values[:, start : start + step].T, stored)
            file.write(voxels.data.cast("B"))
        file.flush()
        os.fsync(file.fileno())
    shape = {"shape": list(values.shape), "dtype": stored.str}
    known = {name: getattr(subject, name) for name in ANNOTATIONS}
    columns = {n: None if v is None else v.tolist() for n, v in known.items()}
    table = stem.with_name(f"{stem.name}.json")
    write_text(table, json.dumps(columns) + "\n")
    return {
        "id": subject.id,
        "samples": {**describe_file(path), **shape},
        "table": describe_file(table),
        "space": None,
    }


def _write_spaces(study: Study, work: Path, entries: list[Any]) -> list[Any]:
    """Write each distinct space once, and note in the entries which one is whose."""
    distinct: list[Any] = []
    written = []
    for subject, entry in zip(study, entries, strict=True):
        space: Any = subject.space
        if space is None:
            continue
        if space not in distinct:
            distinct.append(space)
            files = [
                describe_file(f) for f in space.save(work / f"space-{len(distinct)}")
            ]
            written.append({"kind": space.kind, "files": files})
        entry["space"] = distinct.index(space)
    return written


def _read_index(root: Path) -> dict[str, Any]:
    path = root / INDEX
    if not path.is_file():
        raise StudyError(
            f"{str(root)!r} is not a saved study: it has no {INDEX}. Check the "
            "path, or make one with Study.save(folder)."
        )
    try:
        index = json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise unreadable(path, error) from error
    except (ValueError, RecursionError) as error:
        raise StudyError(f"{str(path)!r} is cut off or damaged ({error}).") from error
    if not isinstance(index, dict) or index.get("format") != FORMAT:
        raise StudyError(f"{str(path)!r} does not describe a brainweave study.")
    if index.get("version") != VERSION:
        raise StudyError(
            f"{str(path)!r} has format version {index.get('version')!r}; this "
            f"brainweave ({__version__}) reads version {VERSION}."
        )
    if index.get("checksum") != _index_checksum(index):
        raise StudyError(
            f"{str(path)!r} was edited or damaged: its checksum does not match."
        )
    return index


def _map_samples(root: Path, entry: dict[str, Any], verify: bool) -> NDArray[Any]:
    path = verify_file(root, entry, full=False)
    try:
        samples = np.load(path, mmap_mode="r", allow_pickle=False)
    except OSError as error:
        raise unreadable(path, error) from error
    except (ValueError, EOFError) as error:
        raise StudyError(f"{str(path)!r} is not a readable array ({error}).") from error
    if list(samples.shape) != entry["shape"] or samples.dtype.str != entry["dtype"]:
        raise StudyError(
            f"{str(path)!r} was edited or replaced: it holds {samples.shape} of "
            f"{samples.dtype}."
        )
    if verify:
        verify_file(root, entry, full=True)
    return np.asanyarray(samples)


def _index_checksum(index: dict[str, Any]) -> str:
    return json_checksum({k: v for k, v in index.items() if k != "checksum"})


def _check_target(target: Path, overwrite: bool) -> None:
    """Refuse a folder that may not be replaced."""
    if not os.path.lexists(target):
        return
    if not overwrite:
        raise StudyError(
            f"{str(target)!r} exists. Choose another folder, or pass overwrite=True to "
            "replace the study in it."
        )
    if not (target / INDEX).is_file():
        raise StudyError(
            f"{str(target)!r} holds no study (no {INDEX}), so it is not replaced. "
            "Choose another folder."
        )


def _free_stem(id: str, taken: set[str]) -> str:
    """Return the beginning of a file name that any file system takes, and take it."""
    # the prefix keeps clear of dot files and of names that Windows reserves
    safe = re.sub(r"[^A-Za-z0-9._-]+", "_", id)[:80].rstrip(".")
    wanted = stem = safe if safe.startswith("sub") else f"sub-{safe}"
    number = 1
    while stem.casefold() in taken:  # "a/b" and "a_b", or "A" and "a"
        number += 1
        stem = f"{wanted}~{number}"
    taken.add(stem.casefold())
    return stem


# -- files, checked when read ----------------------------------------------------------


def describe_file(path: Path) -> dict[str, Any]:
    """Return name, size and checksum of a file, for :func:`verify_file`."""
    stamp = file_stamp(path)
    return {"file": path.name, "bytes": stamp["bytes"], "sha256": stamp["sha256"]}


def verify_file(root: Path, entry: dict[str, Any], *, full: bool) -> Path:
    """Return the path of a file that is as described; `full` compares checksums too."""
    name = str(entry["file"])
    path = root / Path(name).name
    wrong = ""
    if path.name != name or path.is_symlink():
        wrong = f"is {name!r} or a link, and a study's files lie in its own folder"
    elif not path.is_file():
        wrong = "is missing from the study"
    elif path.stat().st_size != entry["bytes"]:
        wrong = "was cut off, edited or replaced: it has another size"
    elif full and file_stamp(path)["sha256"] != entry["sha256"]:
        wrong = "was edited or damaged: its checksum does not match"
    if wrong:
        raise StudyError(f"{str(path)!r} {wrong}. Restore it, or save the study again.")
    return path
