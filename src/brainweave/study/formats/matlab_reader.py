"""Reads one MATLAB file in a process of its own, and writes its variables to a pipe.

Damaged files can crash SciPy's and HDF5's readers, not only make them raise; then this
process dies, and not the user's. The module ``matlab`` starts it as a script, so it
imports nothing of brainweave. Every value is a line of JSON, followed by its array in
``.npy`` format, or by the values that it holds. Nothing is pickled.
"""

import json
import os
import sys
import warnings
from types import SimpleNamespace
from typing import Any, BinaryIO

import numpy as np

# A gzip stream cannot hold more than 1032 times its own size.
_MAX_EXPANSION = 1100
_MAX_OBJECTS = 1_000_000
_MAX_DEPTH = 32


class _Unreadable(Exception):
    """The file cannot be read; the message says why."""


def _write(value: Any, out: BinaryIO, depth: int = 0) -> None:
    """Write a value, and then the values inside of it."""
    if depth > _MAX_DEPTH:
        raise _Unreadable(f"it nests cells more than {_MAX_DEPTH} deep")
    node: dict[str, Any] = {"kind": "none"}  # sparse matrices, functions, objects
    inside: list[Any] = []
    if isinstance(value, dict):
        node, inside = {"kind": "variables", "names": list(value)}, [*value.values()]
    elif isinstance(value, list):
        node, inside = {"kind": "list"}, value
    elif isinstance(value, np.ndarray) and value.dtype.names is not None:
        node = {"kind": "struct", "names": value.dtype.names, "shape": value.shape}
        inside = [value[name] for name in value.dtype.names]
    elif isinstance(value, np.ndarray) and value.dtype == object:
        node, inside = {"kind": "cell", "shape": value.shape}, list(value.ravel())
    elif isinstance(value, np.ndarray):
        node = {"kind": "array"}
    out.write(json.dumps({**node, "holds": len(inside)}).encode() + b"\n")
    if node["kind"] == "array":
        # only writes: NumPy would seek in what it takes for a file
        pipe: Any = SimpleNamespace(write=out.write)
        np.lib.format.write_array(pipe, value, allow_pickle=False)
    for entry in inside:
        _write(entry, out, depth + 1)


def _read_old(path: str) -> dict[str, Any]:
    from scipy.io import loadmat

    return {
        name: list(value.ravel()) if value.dtype == object else value
        for name, value in loadmat(path).items()
        if not name.startswith("__") and isinstance(value, np.ndarray)
    }


class _Hdf5Reader:
    """Reads the datasets of a v7.3 file, and nothing from outside of it."""

    def __init__(self, path: str) -> None:
        self.path = path
        self.n_bytes = os.path.getsize(path)
        self.n_objects = 0

    def read(self) -> dict[str, Any]:
        import h5py

        content = {}
        with h5py.File(self.path, "r") as file:
            for name in file:
                link = file.get(name, getlink=True)
                if not isinstance(link, h5py.HardLink):
                    target = getattr(link, "filename", "the same file")
                    raise _Unreadable(
                        f"{name!r} is a link into {target}, and links are not followed"
                    )
                item = file[name]
                if isinstance(item, h5py.Dataset):  # "#refs#" and structs are groups
                    content[name] = self._value(item, file, ())
        return content

    def _value(self, item: Any, file: Any, parents: tuple[int, ...]) -> Any:
        import h5py

        address = h5py.h5o.get_info(item.id).addr
        self.n_objects += 1
        if address in parents or len(parents) > _MAX_DEPTH:
            raise _Unreadable("its cells refer to each other in a circle")
        if self.n_objects > _MAX_OBJECTS:
            raise _Unreadable(f"it holds more than {_MAX_OBJECTS} objects")
        if not isinstance(item, h5py.Dataset):
            return None  # a struct in a cell
        if item.external is not None or item.is_virtual:
            raise _Unreadable(
                f"{item.name!r} lies in other files, and those are not read"
            )
        if item.nbytes > _MAX_EXPANSION * self.n_bytes:
            raise _Unreadable(
                f"{item.name!r} claims {item.nbytes} bytes in a file of {self.n_bytes}"
            )
        values = item[()]
        if h5py.check_ref_dtype(item.dtype) is h5py.Reference:
            inside = (*parents, address)
            entries = np.asarray(values).T.ravel()
            return [self._value(file[entry], file, inside) for entry in entries]
        if item.dtype.kind not in "fiubSU":
            return None
        if item.attrs.get("MATLAB_class") == b"char":
            return np.array("".join(map(chr, np.asarray(values).T.ravel())))
        return np.asarray(values).T  # HDF5 has MATLAB's dimensions in reverse


def is_hdf5(path: str | os.PathLike[str]) -> bool:
    """Tell version 7.3 from older ones: MATLAB puts 512 bytes before the signature."""
    with open(path, "rb") as file:
        start = file.read(520)
    return b"\x89HDF\r\n\x1a\n" in (start[:8], start[512:520])


def main(path: str, out: BinaryIO) -> None:
    """Read a file and write what it holds, or why that cannot be."""
    warnings.simplefilter("ignore")
    try:
        _write(_Hdf5Reader(path).read() if is_hdf5(path) else _read_old(path), out)
    except Exception as error:
        # readers of damaged files raise anything; the one who asked gets the reason
        reason = str(error).strip().split("\n")[0]
        if not isinstance(error, _Unreadable):
            reason = f"{type(error).__name__}: {reason}"
        out.write(json.dumps({"kind": "error", "reason": reason}).encode() + b"\n")
    out.flush()


if __name__ == "__main__":
    main(sys.argv[1], sys.stdout.buffer)
