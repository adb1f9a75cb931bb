"""Read MATLAB files that hold all subjects, in a 3-D array or in a cell of arrays."""

import json
import os
import subprocess
import sys
import warnings
from collections.abc import Mapping, Sequence
from io import BytesIO
from os import PathLike
from pathlib import Path
from typing import Any, BinaryIO, TypeAlias

import numpy as np
from numpy.typing import ArrayLike, NDArray

from brainweave._core.exceptions import InputError, StudyError
from brainweave._core.validation import check_list_option
from brainweave.study.provenance import AS_GIVEN, make_record
from brainweave.study.spaces import finite_voxels
from brainweave.study.study import Study
from brainweave.study.subject import Subject, subject_entry

MatFile: TypeAlias = str | PathLike[str]
Arrays: TypeAlias = list[NDArray[Any]]  # one 2-D array per subject

# Damaged files can crash the readers of SciPy and HDF5, or send them into an endless
# loop. So a process of its own reads them; it is stopped after this many seconds, plus
# one for each of these many bytes, which slow disks deliver. The last line of its
# traceback is the reason that users see.
_MIN_TIMEOUT = 60.0
_MIN_BYTES_PER_SECOND = 1e6
_READER = """
import sys
path, *sys.path = sys.argv[1:]
from brainweave.study.formats.matlab import write_variables
write_variables(path, sys.stdout.buffer)
"""
# A gzip stream cannot hold more than 1032 times its own size.
_MAX_EXPANSION = 1100

_AXES = {"voxels", "samples", "subjects"}


def load_matlab(
    files: MatFile | Sequence[MatFile],
    *,
    variable: str | None = None,
    order: Sequence[str] | None = None,
    labels: MatFile | ArrayLike | None = None,
    runs: ArrayLike | None = None,
    samples_per_run: int | Sequence[int] | None = None,
    stimuli: ArrayLike | None = None,
    ids: Sequence[str] | None = None,
    name: str = "",
) -> Study:
    """Load a study from ``.mat`` files.

    Parameters
    ----------
    files : path, or list of paths
        Files that hold all subjects in one variable: a 3-D array, or a cell with a
        2-D array per subject. Several files, such as one per hemisphere, are stacked
        along the voxels, subject by subject.
    variable : str, optional
        Name of the variable. Needed only if a file holds several candidates.
    order : sequence of str, optional
        Meaning of the dimensions. For 3-D arrays, a permutation of ``"voxels"``,
        ``"samples"`` and ``"subjects"``; by default in this order, as in the Raider
        files. For arrays in a cell, ``("samples", "voxels")`` by default, or the
        reverse.
    labels : path or array-like, optional
        Label of each sample. One vector is used for all subjects. A matrix with a
        column per subject, a list of vectors or a mapping of subject ids to vectors
        gives each subject its own. A path names a ``.mat`` file with a vector, a
        matrix, a cell of vectors or a cell of strings.
    runs : array-like, optional
        Run of each sample, the same for all subjects.
    samples_per_run : int or sequence of int, optional
        Number of samples in each run, instead of `runs`. An int must divide the
        number of samples.
    stimuli : array-like, optional
        Stimulus of each sample, in the forms of `labels` except a path.
    ids : sequence of str, optional
        Ids of the subjects; ``"01"``, ``"02"``, … by default.
    name : str, default=""
        Name of the study.

    Returns
    -------
    Study
        Study with its samples in memory, (n_samples, n_voxels) per subject.

    Examples
    --------
    >>> study = load_matlab(  # doctest: +SKIP
    ...     ["image_data_lh.mat", "image_data_rh.mat"],
    ...     labels="label.mat",
    ...     samples_per_run=7,
    ... )
    """
    listed = [files] if isinstance(files, str | PathLike) else list(files)
    if not listed:
        raise InputError("No MATLAB files were given.")
    parts = [_subject_arrays(Path(file), variable, order) for file in listed]
    arrays = _stack_voxels(parts, [Path(file) for file in listed])
    if ids is None:
        width = max(2, len(str(len(arrays))))
        ids = [f"{number:0{width}d}" for number in range(1, len(arrays) + 1)]
    ids = [str(id) for id in check_list_option("ids", ids, "load_matlab")]
    if len(ids) != len(arrays):
        raise InputError(f"{len(ids)} ids were given for {len(arrays)} subjects.")
    if runs is not None and samples_per_run is not None:
        raise InputError("Give runs or samples_per_run, not both.")
    where = None if labels is None else AS_GIVEN
    if isinstance(labels, str | PathLike):
        where = Path(labels).name
        labels = _read_labels(Path(labels), len(arrays))
    subjects = []
    for position, (id, samples) in enumerate(zip(ids, arrays, strict=True)):
        own = runs
        if samples_per_run is not None:
            own = _runs_from_counts(samples_per_run, len(samples), id)
        subjects.append(
            Subject(
                id,
                samples,
                labels=_of_subject("labels", labels, position, ids),
                runs=own,
                stimuli=_of_subject("stimuli", stimuli, position, ids),
            )
        )
    settings = {
        "source": "matlab",
        "files": [Path(file).name for file in listed],
        "variable": variable,
        "labels": where,
        "stimuli": None if stimuli is None else AS_GIVEN,
    }
    return Study(subjects, name, make_record(settings, subjects, {}))


def read_matlab(path: MatFile) -> dict[str, Any]:
    """Read the variables of a ``.mat`` file of any version.

    SciPy reads versions 4 to 7.2, h5py reads 7.3 (HDF5), both in a process of its own,
    because damaged files can crash them. Links to other files are refused.

    Parameters
    ----------
    path : path
        The file to read.

    Returns
    -------
    dict of str to ndarray or list
        Arrays with MATLAB's order of dimensions. A cell is a list of its arrays, with
        None for entries of another kind. Structs and sparse matrices are left out.
    """
    path = Path(path)
    if not path.is_file():
        raise StudyError(f"There is no file {str(path)!r}. Check the path.")
    timeout = _MIN_TIMEOUT + path.stat().st_size / _MIN_BYTES_PER_SECOND
    try:
        done = subprocess.run(
            [sys.executable, "-P", "-c", _READER, str(path.absolute()), *sys.path],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            check=False,
            timeout=timeout,
        )
        if done.returncode == 0:
            return unpack(done.stdout)
        last = done.stderr.decode(errors="replace").strip().rpartition("\n")[2]
        reason = last or "the reader crashed"
    except subprocess.TimeoutExpired:
        reason = f"the reader did not finish in {timeout:.0f} s"
    raise StudyError(
        f"{str(path)!r} is not a readable MATLAB file ({reason}). It may be cut off or "
        "damaged: get the file again."
    )


def unpack(content: bytes) -> dict[str, Any]:
    """Return the variables that :func:`write_variables` wrote."""
    with np.load(BytesIO(content), allow_pickle=False) as arrays:
        index = json.loads(str(arrays["index"]))

        def find(entry: Any) -> Any:
            if isinstance(entry, list):
                return [find(one) for one in entry]
            return None if entry is None else arrays[entry]

        return {name: find(entry) for name, entry in index.items()}


def write_variables(path: str, out: BinaryIO) -> None:
    """Write the arrays of a file as ``.npz``, and which of them each variable has."""
    import h5py

    warnings.simplefilter("ignore")
    content = _read_hdf5(path) if h5py.is_hdf5(path) else _read_old(path)
    arrays: dict[str, Any] = {}

    def add(value: Any) -> Any:
        if isinstance(value, list):
            return [add(entry) for entry in value]
        if value is None:
            return None
        arrays[f"a{len(arrays)}"] = value
        return f"a{len(arrays) - 1}"

    index = {name: add(value) for name, value in content.items()}
    np.savez(out, index=np.array(json.dumps(index)), **arrays)


def _read_old(path: str) -> dict[str, Any]:
    """Read a file of version 4 to 7.2; structs and sparse matrices are left out."""
    from scipy.io import loadmat

    content = {}
    for name, value in loadmat(path).items():
        if isinstance(value, np.ndarray) and value.dtype == object:
            content[name] = [_plain(entry) for entry in value.ravel()]
        elif not name.startswith("__") and _plain(value) is not None:
            content[name] = value
    return content


def _plain(value: Any) -> Any:
    """Return an array of numbers or text as it is, and None for anything else."""
    is_plain = isinstance(value, np.ndarray) and value.dtype.kind in "fiucbSU"
    return value if is_plain else None


def _read_hdf5(path: str) -> dict[str, Any]:
    """Read the datasets of a version 7.3 file, and nothing from outside of it."""
    import h5py

    content: dict[str, Any] = {}
    left = _MAX_EXPANSION * os.path.getsize(path)

    def read(item: Any) -> Any:
        nonlocal left
        if not isinstance(item, h5py.Dataset):  # a struct
            return None
        if item.external is not None or item.is_virtual:
            sys.exit(f"{item.name!r} lies in other files, and those are not read")
        left -= item.nbytes
        if left < 0:
            n_bytes = os.path.getsize(path)
            sys.exit(f"{item.name!r} claims {item.nbytes} bytes in a file of {n_bytes}")
        values = np.asarray(item[()]).T  # HDF5 has MATLAB's dimensions in reverse
        if item.attrs.get("MATLAB_class") == b"char":
            return np.array("".join(map(chr, values.ravel())))
        return values

    with h5py.File(path, "r") as file:
        for name in file:
            link = file.get(name, getlink=True)
            if not isinstance(link, h5py.HardLink):
                target = getattr(link, "filename", "the same file")
                sys.exit(f"{name!r} is a link into {target}; links are not followed")
            value = read(file[name])
            if value is None:
                continue
            if h5py.check_ref_dtype(value.dtype) is h5py.Reference:
                content[name] = [_plain(read(file[entry])) for entry in value.ravel()]
            elif _plain(value) is not None:
                content[name] = value
    return content


def _subject_arrays(
    path: Path, variable: str | None, order: Sequence[str] | None
) -> Arrays:
    """Read one file into a (n_samples x n_voxels) array per subject."""
    name, value = _select_variable(path, read_matlab(path), variable)
    if isinstance(value, list):
        axes = _check_order(order or ("samples", "voxels"), 2)
        for number, entry in enumerate(value, start=1):
            if not isinstance(entry, np.ndarray) or entry.ndim != 2 or not entry.size:
                raise StudyError(
                    f"{name!r} in {str(path)!r} is a cell whose entry {number} is not "
                    "a 2-D array."
                )
        arrays = [entry if axes[0] == "samples" else entry.T for entry in value]
    else:
        axes = _check_order(order or ("voxels", "samples", "subjects"), value.ndim)
        wanted = [a for a in ("subjects", "samples", "voxels") if a in axes]
        moved = np.transpose(value, [axes.index(axis) for axis in wanted])
        arrays = list(moved) if "subjects" in axes else [moved]
    for array in arrays:
        if array.dtype.kind == "f":
            finite_voxels(array, str(path))
    return [np.ascontiguousarray(array) for array in arrays]


def _check_order(order: Sequence[str], n_dimensions: int) -> list[str]:
    axes = list(order)
    if n_dimensions == 2 and len(axes) == 3:  # MATLAB drops a last dimension of 1
        axes = [axis for axis in axes if axis != "subjects"]
    if len(set(axes)) != len(axes) or not set(axes) <= _AXES or len(axes) < 2:
        raise InputError(
            f"order={tuple(order)} must be a permutation of 'voxels', 'samples' and, "
            "for 3-D arrays, 'subjects'."
        )
    if len(axes) != n_dimensions:
        raise InputError(
            f"order={tuple(order)} names {len(axes)} dimensions, but the array has "
            f"{n_dimensions}."
        )
    return axes


def _select_variable(
    path: Path, content: Mapping[str, Any], variable: str | None
) -> tuple[str, Any]:
    if variable is not None:
        if variable not in content:
            known = ", ".join(map(repr, content)) or "nothing"
            raise StudyError(f"{str(path)!r} has no {variable!r}; it has {known}.")
        return variable, content[variable]
    candidates = {
        name: value
        for name, value in content.items()
        if isinstance(value, list)
        or (value.dtype.kind in "fiu" and value.ndim >= 2 and 1 not in value.shape[:2])
    }
    # beside an array for all subjects, matrices are ratings, coordinates and the like
    candidates = {
        name: value
        for name, value in candidates.items()
        if isinstance(value, list) or value.ndim == 3
    } or candidates
    if len(candidates) != 1:
        known = ", ".join(map(repr, candidates or content)) or "nothing"
        raise StudyError(
            f"{str(path)!r} has {len(candidates)} variables that could be the samples "
            f"({known}). Choose one with variable=..."
        )
    return next(iter(candidates.items()))


def _stack_voxels(parts: list[Arrays], files: list[Path]) -> Arrays:
    first = parts[0]
    for part, file in zip(parts[1:], files[1:], strict=True):
        if len(part) != len(first):
            raise StudyError(
                f"{str(file)!r} has {len(part)} subjects, {str(files[0])!r} has "
                f"{len(first)}. Files are stacked subject by subject."
            )
        for number, (one, other) in enumerate(zip(first, part, strict=True), start=1):
            if len(one) != len(other):
                raise StudyError(
                    f"Subject {number} has {len(other)} samples in {str(file)!r}, but "
                    f"{len(one)} in {str(files[0])!r}. Files are stacked along voxels."
                )
    return [np.hstack(arrays) for arrays in zip(*parts, strict=True)]


def _runs_from_counts(
    counts: int | Sequence[int], n_samples: int, id: str
) -> NDArray[np.intp]:
    if isinstance(counts, int | np.integer):
        if counts < 1 or n_samples % counts:
            raise InputError(
                f"samples_per_run={counts} does not divide the {n_samples} samples of "
                f"subject {id!r}. Give a list with the length of each run."
            )
        counts = [int(counts)] * (n_samples // int(counts))
    if sum(counts) != n_samples:
        raise InputError(
            f"samples_per_run adds up to {sum(counts)}, but subject {id!r} has "
            f"{n_samples} samples."
        )
    return np.repeat(np.arange(1, len(counts) + 1), counts)


def _read_labels(path: Path, n_subjects: int) -> Any:
    def could_be_labels(value: Any) -> bool:
        if isinstance(value, list):
            return all(entry is not None for entry in value)
        return 1 in value.shape or (value.ndim == 2 and n_subjects in value.shape)

    found = read_matlab(path)
    content = {name: value for name, value in found.items() if could_be_labels(value)}
    if len(content) != 1:
        known = ", ".join(map(repr, content)) or "none"
        raise StudyError(
            f"{str(path)!r} should hold one vector of labels, but has {known}. Read "
            "the labels with scipy.io.loadmat and pass them as an array."
        )
    value = next(iter(content.values()))
    if isinstance(value, list):
        if len(value) == n_subjects and np.asarray(value[0]).dtype.kind in "fiu":
            return [np.asarray(entry).ravel() for entry in value]  # one per subject
        # a cell of strings
        return ["".join(np.asarray(entry).ravel().astype(str)) for entry in value]
    return value.ravel() if 1 in value.shape else value


def _of_subject(what: str, values: Any, position: int, ids: Sequence[str]) -> Any:
    n_subjects = len(ids)
    if isinstance(values, Mapping):
        return subject_entry(what, values, ids[position])
    if isinstance(values, list | tuple) and len(values) == n_subjects:
        entry = values[position]
        if isinstance(entry, list | tuple | np.ndarray):
            return entry
    if isinstance(values, np.ndarray) and values.ndim == 2:
        if values.shape[1] != n_subjects:
            raise InputError(
                "labels and stimuli that differ between subjects need a column for "
                f"each of the {n_subjects} subjects; got shape {values.shape}."
            )
        return values[:, position]
    return values
