"""Read MATLAB files that hold all subjects, in a 3-D array or in a cell of arrays."""

import warnings
from collections.abc import Mapping, Sequence
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
Arrays: TypeAlias = list[NDArray[Any]]  # one 2-D array per subject

# Seconds after which a reader is stopped, plus one for each of these many bytes.
_MIN_TIMEOUT = 60.0
_MIN_BYTES_PER_SECOND = 1e6

_AXES = ("subjects", "samples", "voxels")


def load_matlab(
    files: MatFile | Sequence[MatFile],
    *,
    variable: str | None = None,
    order: Sequence[str] | None = None,
    labels: MatFile | ArrayLike | None = None,
    runs: ArrayLike | None = None,
    samples_per_run: int | None = None,
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
        Label of each sample: one vector for all subjects, a mapping of subject ids to
        vectors, or a ``.mat`` file with a vector of numbers or a cell of strings.
    runs : array-like, optional
        Run of each sample, the same for all subjects.
    samples_per_run : int, optional
        Number of samples in each run, instead of `runs`; must divide their number.
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
        labels = _read_labels(Path(labels))
    subjects = []
    for id, samples in zip(ids, arrays, strict=True):
        own = runs
        if samples_per_run is not None:
            if samples_per_run < 1 or len(samples) % samples_per_run:
                raise InputError(
                    f"samples_per_run={samples_per_run} does not divide the "
                    f"{len(samples)} samples of subject {id!r}. Give runs=..."
                )
            own = np.arange(len(samples)) // samples_per_run + 1
        subjects.append(
            Subject(
                id,
                samples,
                labels=subject_entry("labels", labels, id),
                runs=own,
                stimuli=subject_entry("stimuli", stimuli, id),
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

    SciPy reads versions 4 to 7.2, h5py reads 7.3 (HDF5). Damaged files can crash them
    or send them into an endless loop, so a process of its own reads.

    Returns
    -------
    dict of str to ndarray or list
        Arrays with MATLAB's order of dimensions. A cell is a list of its arrays, with
        None for entries of another kind. Structs and sparse matrices are left out.
    """
    from joblib.externals.loky import ProcessPoolExecutor

    path = Path(path)
    if not path.is_file():
        raise StudyError(f"There is no file {str(path)!r}. Check the path.")
    timeout = _MIN_TIMEOUT + path.stat().st_size / _MIN_BYTES_PER_SECOND
    reader = ProcessPoolExecutor(max_workers=1)
    try:
        task = reader.submit(read_variables, str(path))
        content: dict[str, Any] = task.result(timeout)
        return content
    except TimeoutError:
        reason = f"the reader did not finish in {timeout:.0f} s"
    except Exception as error:
        reason = (str(error).strip() or "the reader crashed").splitlines()[0]
    finally:
        reader.shutdown(kill_workers=True)
    raise StudyError(
        f"{str(path)!r} is not a readable MATLAB file ({reason}). It may be cut off or "
        "damaged: get the file again."
    )


def read_variables(path: str) -> dict[str, Any]:
    """Read what :func:`read_matlab` returns, in this process."""
    import h5py

    warnings.simplefilter("ignore")
    return _read_hdf5(path) if h5py.is_hdf5(path) else _read_old(path)


def _read_old(path: str) -> dict[str, Any]:
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
        wanted = [axis for axis in _AXES if axis in axes]
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
    if sorted(axes) != sorted(_AXES[-n_dimensions:]):
        raise InputError(
            f"order={tuple(order)} must be a permutation of 'voxels', 'samples' and, "
            f"for 3-D arrays, 'subjects'; the array has {n_dimensions} dimensions."
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
