"""Read one MATLAB file and write its arrays to the standard output, as ``.npz``.

Damaged files can crash the readers of SciPy and HDF5. :func:`read_matlab` therefore
runs this script in a process of its own; it imports nothing of brainweave. An error
ends the script, and the last line of its traceback is the reason that users see.
"""

import json
import os
import sys
import warnings
from typing import Any, BinaryIO

import h5py
import numpy as np
from scipy.io import loadmat

# A gzip stream cannot hold more than 1032 times its own size.
_MAX_EXPANSION = 1100


def _read_old(path: str) -> dict[str, Any]:
    """Read a file of version 4 to 7.2; structs and sparse matrices are left out."""
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


def main(path: str, out: BinaryIO) -> None:
    """Write the variables of a file: its arrays, and which of them each consists of."""
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


if __name__ == "__main__":
    main(sys.argv[1], sys.stdout.buffer)
