"""Read MATLAB files that hold all subjects, in a 3-D array or in a cell of arrays."""

import subprocess
import sys
import warnings
from collections.abc import Sequence
from io import BytesIO
from os import PathLike
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import ArrayLike, NDArray

from brainweave._core.exceptions import InputError, StudyError
from brainweave._core.validation import check_list_option
from brainweave.study.provenance import AS_GIVEN, make_record
from brainweave.study.spaces import finite_voxels
from brainweave.study.study import Study
from brainweave.study.subject import Subject, subject_entry

MatFile: TypeAlias = str | PathLike[str]

# Seconds after which the reader is stopped, plus one for each of these many bytes.
_MIN_TIMEOUT = 60.0
_MIN_BYTES_PER_SECOND = 1e6
_NONE = np.empty(0, "V1")  # an entry of a cell that is no array of numbers or text
_READER = f"""
import sys
sys.path[:] = {sys.path!r}
out, sys.stdout = sys.stdout.buffer, sys.stderr  # nothing else may print there
from {__name__} import write_variables
write_variables(sys.argv[1], out)
"""


def load_matlab(
    files: MatFile | Sequence[MatFile],
    *,
    variable: str | None = None,
    labels: MatFile | ArrayLike | None = None,
    runs: ArrayLike | None = None,
    stimuli: ArrayLike | None = None,
    ids: Sequence[str] | None = None,
    name: str = "",
) -> Study:
    """Load a study from ``.mat`` files.

    Parameters
    ----------
    files : path, or list of paths
        Files that hold all subjects in one variable: a 3-D array, voxels x samples x
        subjects, or a cell with an array per subject, samples x voxels. Several files,
        such as one per hemisphere, are stacked along the voxels, subject by subject.
    variable : str, optional
        Name of the variable. Needed only if a file holds several candidates.
    labels : path or array-like, optional
        Label of each sample: one vector for all subjects, a mapping of subject ids to
        vectors, or a ``.mat`` file with a vector of numbers or a cell of strings.
    runs : array-like, optional
        Run of each sample, the same for all subjects.
    stimuli : array-like, optional
        Stimulus of each sample: one vector, or a mapping of subject ids to vectors.
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
    ...     runs=np.repeat(range(8), 7),
    ... )
    """
    listed = [files] if isinstance(files, str | PathLike) else files
    paths = [Path(file) for file in listed]
    if not paths:
        raise InputError("No MATLAB files were given.")
    parts = [_subject_arrays(path, variable) for path in paths]
    counts = [[len(array) for array in part] for part in parts]
    for path, own in zip(paths, counts, strict=True):
        if own != counts[0]:
            raise StudyError(
                f"{str(path)!r} has {own} samples per subject, {str(paths[0])!r} "
                f"{counts[0]}. Files are stacked along the voxels, subject by subject."
            )
    arrays = [np.hstack(own) for own in zip(*parts, strict=True)]
    if ids is None:
        ids = [f"{k:02d}" for k in range(1, len(arrays) + 1)]
    ids = [str(id) for id in check_list_option("ids", ids, "load_matlab")]
    if len(ids) != len(arrays):
        raise InputError(f"{len(ids)} ids were given for {len(arrays)} subjects.")
    where = None if labels is None else AS_GIVEN
    if isinstance(labels, str | PathLike):
        where = Path(labels).name
        labels = _read_labels(Path(labels))
    subjects = [
        Subject(
            id,
            samples,
            labels=subject_entry("labels", labels, id),
            runs=runs,
            stimuli=subject_entry("stimuli", stimuli, id),
        )
        for id, samples in zip(ids, arrays, strict=True)
    ]
    settings = {
        "source": "matlab",
        "files": [path.name for path in paths],
        "variable": variable,
        "labels": where,
        "stimuli": None if stimuli is None else AS_GIVEN,
    }
    return Study(subjects, name, make_record(settings, subjects, {}))


def read_matlab(path: MatFile) -> dict[str, Any]:
    """Read the variables of a ``.mat`` file of any version.

    A cell is a list of its arrays, with None for entries of another kind. Damaged files
    can crash SciPy and h5py, or never end, so a process of its own reads.
    """
    path = Path(path)
    if not path.is_file():
        raise StudyError(f"There is no file {str(path)!r}. Check the path.")
    timeout = _MIN_TIMEOUT + path.stat().st_size / _MIN_BYTES_PER_SECOND
    command = [sys.executable, "-c", _READER, str(path)]
    try:
        done = subprocess.run(
            command, capture_output=True, timeout=timeout, check=False
        )
        if done.returncode == 0:
            return _received(done.stdout)
        reason = "the reader crashed"
        if done.returncode == 1:  # of an exception, the last line names it
            reason = done.stderr.decode(errors="replace").strip().splitlines()[-1]
    except subprocess.TimeoutExpired:
        reason = f"the reader did not finish in {timeout:.0f} s"
    raise StudyError(
        f"{str(path)!r} is not a readable MATLAB file ({reason}). It may be cut off or "
        "damaged: get the file again."
    )


def write_variables(path: str, out: Any) -> None:
    """Write what :func:`read_matlab` returns as plain arrays: the reader's process."""
    arrays: Any = {}
    for name, value in read_variables(path).items():
        if isinstance(value, list):
            entries = [_NONE if entry is None else entry for entry in value]
            arrays |= {f"{i}/{name}": entry for i, entry in enumerate(entries)}
        else:
            arrays[f"/{name}"] = value
    np.savez(out, **arrays)


def _received(written: bytes) -> dict[str, Any]:
    content: dict[str, Any] = {}
    with np.load(BytesIO(written), allow_pickle=False) as file:
        for key, value in file.items():
            number, _, name = key.partition("/")
            if number:
                entry = None if value.dtype == _NONE.dtype else value
                content.setdefault(name, []).append(entry)
            else:
                content[name] = value
    return content


def read_variables(path: str) -> dict[str, Any]:
    """Read the variables of a file, in this process."""
    import h5py
    from scipy.io import loadmat

    warnings.simplefilter("ignore")
    if h5py.is_hdf5(path):
        return _read_hdf5(path)
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
    import h5py

    def read(item: Any) -> Any:
        if not isinstance(item, h5py.Dataset):  # a struct
            return None
        outside = item.file.filename != path or item.external is not None
        if outside or item.is_virtual:
            raise ValueError(f"{item.name!r} lies in other files")
        values = np.asarray(item[()]).T  # HDF5 has MATLAB's dimensions in reverse
        if item.attrs.get("MATLAB_class") == b"char":
            return np.array("".join(map(chr, values.ravel())))
        return values

    content: dict[str, Any] = {}
    with h5py.File(path, "r") as file:
        for name in file:
            value = read(file[name])
            if value is None:
                continue
            if h5py.check_ref_dtype(value.dtype) is h5py.Reference:
                content[name] = [_plain(read(file[entry])) for entry in value.ravel()]
            elif _plain(value) is not None:
                content[name] = value
    return content


def _subject_arrays(path: Path, variable: str | None) -> list[NDArray[Any]]:
    """Read one file into a (n_samples x n_voxels) array per subject."""
    content = read_matlab(path)
    cells = [name for name, value in content.items() if isinstance(value, list)]
    numbers = {n: v for n, v in content.items() if n not in cells}
    n_dims = {
        name: value.ndim
        for name, value in numbers.items()
        if value.dtype.kind in "fiu" and 1 not in value.shape[:2]
    }
    # beside what holds all subjects, matrices are ratings, coordinates and the like
    names = cells + [name for name, n in n_dims.items() if n == 3]
    names = names or [name for name, n in n_dims.items() if n == 2]
    if variable in content:
        names = [variable]
    if len(names) != 1 or variable not in (None, *names):
        raise StudyError(
            f"{str(path)!r}: {names or 'nothing in it'} could be the samples; it has "
            f"{list(content)}. Choose one with variable=..."
        )
    value = content[names[0]]
    arrays = value if isinstance(value, list) else list(np.atleast_3d(value).T)
    for number, array in enumerate(arrays, start=1):
        if not isinstance(array, np.ndarray) or array.ndim != 2 or not array.size:
            raise StudyError(
                f"{names[0]!r} in {str(path)!r}: entry {number} is not a 2-D array."
            )
        if array.dtype.kind == "f":
            finite_voxels(array, str(path))
    return [np.ascontiguousarray(array) for array in arrays]


def _read_labels(path: Path) -> Any:
    """Read the one vector of numbers, or cell of strings, in a file."""
    content = {
        name: value
        for name, value in read_matlab(path).items()
        if (None not in value if isinstance(value, list) else 1 in value.shape)
    }
    if len(content) != 1:
        known = ", ".join(map(repr, content)) or "none"
        raise StudyError(
            f"{str(path)!r} should hold one vector of labels, but has {known}. Read "
            "the labels with scipy.io.loadmat and pass them as an array."
        )
    (value,) = content.values()
    if isinstance(value, list):
        return ["".join(np.asarray(entry).ravel().astype(str)) for entry in value]
    return value.ravel()
