"""Values as JSON and arrays, in one safetensors file, and back.

:func:`plain` turns settings and results into JSON for people. :class:`Writer` and
:class:`Node` serve model files and lose nothing: what JSON cannot hold is a table with
one entry whose key is its kind, such as ``{"array": name}``. Reading makes these kinds
and nothing more, after checking every part: the document is data, never a program.

The entry ``brainweave`` of the metadata has two lines: a SHA-256 of the other, and the
document, which has the SHA-256 of all arrays with their names, types and shapes.
"""

import hashlib
import json
import os
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from math import isfinite, prod
from pathlib import Path
from typing import Any, NamedTuple, NoReturn

import numpy as np
import scipy.sparse
from numpy.typing import NDArray
from safetensors import SafetensorError, safe_open
from safetensors.numpy import save_file

from brainweave._core.exceptions import ModelFileError
from brainweave._core.io import atomic_path
from brainweave._core.labels import object_array

SUFFIX = ".safetensors"
FORMAT, VERSION = "brainweave-model", 2  # number 1 was never released
DTYPES: dict[str, np.dtype[Any]] = {
    **{f"F{8 * n}": np.dtype(f"<f{n}") for n in (8, 4, 2)},
    **{f"I{8 * n}": np.dtype(f"<i{n}") for n in (8, 4, 2, 1)},
    **{f"U{8 * n}": np.dtype(f"<u{n}") for n in (8, 4, 2, 1)},
    "BOOL": np.dtype("?"),
}
MAX_HEADER = 100_000_000  # the limit of the safetensors format

NO_FUNCTION = (
    "a model file cannot hold: loading must never run code. Use a kernel by name, or "
    "kernel='precomputed' with your Gram matrices."
)

Sizes = dict[str, int]
Table = Mapping[str, Any]
Arrays = Mapping[str, NDArray[Any]]

# what arrays "of" something hold, as NumPy's kinds of types
_HOLDING = {"float": "f", "int": "i", "real": "fiub", "any": "fiubUO", "sparse": "f"}


def plain(
    value: Any, *, other: Callable[[Any], Any] = repr, arrays: bool = True
) -> Any:
    """Return a value in terms of JSON."""
    if isinstance(value, np.generic) or (arrays and isinstance(value, np.ndarray)):
        value = value.tolist()
    if value is None or isinstance(value, bool | int | float | str):
        return value
    if isinstance(value, np.ndarray):
        return f"array of shape {value.shape}"
    if isinstance(value, Mapping):
        pairs = value.items()
        return {str(k): plain(v, other=other, arrays=arrays) for k, v in pairs}
    if isinstance(value, set | frozenset):
        value = sorted(value, key=str)
    if isinstance(value, list | tuple | range):
        return [plain(v, other=other, arrays=arrays) for v in value]
    return other(value)


def json_checksum(value: Any) -> str:
    """Return the SHA-256 of a value's JSON, in which keys are sorted."""
    return hashlib.sha256(json.dumps(value, sort_keys=True).encode()).hexdigest()


def problem_with(value: Any, kind: Any, sizes: Sizes) -> str | None:
    """Return why a value is not of a kind (see Stored), or None; add to `sizes`."""
    if isinstance(kind, list | tuple):
        if not isinstance(value, type(kind)):
            return f"is not a {type(kind).__name__}"
        # each entry may have sizes of its own
        problems = (problem_with(v, kind[0], dict(sizes)) for v in value)
        return next(filter(None, problems), None)
    if isinstance(kind, type):
        wanted: Any = int | float if kind is float else kind
        fits = isinstance(value, wanted)
        if kind in (int, float) and isinstance(value, bool):
            fits = False
        return None if fits else f"is not of type {kind.__name__}"
    if callable(kind):
        return None if kind(value) else "has a wrong value"
    return _array_problem(value, kind, sizes)


def _array_problem(value: Any, kind: str, sizes: Sizes) -> str | None:
    dims, _, holding = kind.partition(" of ")
    form = scipy.sparse.csr_array if holding == "sparse" else np.ndarray
    if not isinstance(value, form):
        return f"is not an array of numbers, {form.__name__}"
    if value.dtype.kind not in _HOLDING[holding or "float"]:
        return f"is not an array of numbers: it holds {value.dtype}"
    names = dims.split()
    if value.ndim != len(names):
        return f"has {value.ndim} dimensions where {len(names)} are needed"
    for name, size in zip(names, value.shape, strict=True):
        if size != (int(name) if name.isdigit() else sizes.setdefault(name, size)):
            what = "voxels" if name == "v" else "shapes"
            return f"has shape {value.shape}; it and the rest are of different {what}"
    return None


class Kind(NamedTuple):
    """How values of a kind are recognised, written and read."""

    matches: Callable[[Any], bool]
    write: Callable[["Writer", Any, str], Any]
    read: Callable[["Node"], Any]


class Writer:
    """Encodes values, and collects the arrays: each once, whoever refers to it."""

    def __init__(self) -> None:
        self.arrays: dict[str, Any] = {}
        self._names: dict[Any, str] = {}

    def encode(self, value: Any, path: str) -> Any:
        """Return a value as JSON; `path` names it, and its arrays."""
        if isinstance(value, np.generic):
            value = value.item()
        if value is None or isinstance(value, (bool, int, str)):
            return value
        if isinstance(value, float):
            return value if isfinite(value) else {"float": repr(value)}
        if isinstance(value, (list, range)):
            return [self.encode(v, f"{path}.{i}") for i, v in enumerate(value)]
        if isinstance(value, tuple):
            return {"tuple": self.encode(list(value), path)}
        if isinstance(value, Mapping):
            pairs = [(self.encode(k, path), f"{path}.{k}", v) for k, v in value.items()]
            return {"dict": [[key, self.encode(v, place)] for key, place, v in pairs]}
        for tag, kind in KINDS.items():
            if kind.matches(value):
                return {tag: kind.write(self, value, path)}
        if callable(value):
            raise ModelFileError(f"{path} is a function, which {NO_FUNCTION}")
        raise ModelFileError(
            f"{path} is a {type(value).__module__}.{type(value).__name__}, which a "
            "model file cannot hold. Use numbers, texts, lists or arrays."
        )

    def encode_table(self, values: Table, path: str) -> dict[str, Any]:
        """Return named values as JSON."""
        dot = f"{path}." if path else ""
        return {name: self.encode(v, f"{dot}{name}") for name, v in values.items()}

    def add(self, name: str, array: Any) -> str:
        """Store an array, unless it is stored already; return its name."""
        # files of brain masks are read anew for each subject
        is_file = array.dtype == np.uint8 and array.ndim == 1
        key = array.tobytes() if is_file else id(array)
        if key not in self._names:
            if name in self.arrays or name == "__metadata__":
                raise ModelFileError(f"Two arrays of the model have the name {name!r}.")
            self.arrays[name], self._names[key] = array, name
        return self._names[key]


@dataclass
class OpenFile:
    """An open file: its document and its arrays."""

    path: Path
    document: dict[str, Any]
    arrays: dict[str, NDArray[Any]]

    @contextmanager
    def reading(self) -> Iterator["Node"]:
        """Yield the document; any error within is a refusal of the file."""
        try:
            yield Node(self, self.document, "")
        except ModelFileError:
            raise
        except Exception as error:
            raise ModelFileError(
                f"{str(self.path)!r} is damaged: {type(error).__name__}: {error}."
            ) from error


@dataclass(frozen=True)
class Node:
    """A place in a document: the value there, and its path for messages."""

    file: OpenFile
    value: Any
    path: str

    def __getitem__(self, key: Any) -> "Node":
        path = f"{self.path}.{key}" if self.path else str(key)
        return Node(self.file, self.value[key], path)

    def refuse(self, why: str) -> NoReturn:
        """Refuse the file, naming the place."""
        file = str(self.file.path)
        raise ModelFileError(f"{file!r} is damaged: {self.path} {why}.")

    def decode(self) -> Any:
        """Return what is described here."""
        if isinstance(self.value, list):
            return [child.decode() for child in self.children()]
        if not isinstance(self.value, dict):
            return self.value
        ((tag, body),) = self.value.items()
        node = Node(self.file, body, self.path)
        if tag == "float":
            return float(body)
        if tag == "tuple":
            return tuple(child.decode() for child in node.children())
        if tag == "dict":
            return {p[0].decode(): p[1].decode() for p in node.children()}
        if tag not in KINDS:
            self.refuse(f"is of the unknown kind {str(tag)[:40]!r}")
        return KINDS[tag].read(node)

    def decode_table(self) -> dict[str, Any]:
        """Return the entries of a table, decoded."""
        return {key: self[key].decode() for key in self.value}

    def children(self) -> list["Node"]:
        """Return the nodes of a list."""
        if not isinstance(self.value, list):
            self.refuse("is not a list")
        return [self[i] for i in range(len(self.value))]

    def check_keys(self, *keys: str) -> None:
        """Refuse what is no table with exactly these entries."""
        if not isinstance(self.value, dict) or set(self.value) != set(keys):
            self.refuse(f"does not have the entries {', '.join(sorted(keys))}")

    def check_values(self, values: Table, kinds: Table, sizes: Sizes) -> None:
        """Refuse values that are not of their kinds; see :func:`problem_with`."""
        for key, kind in kinds.items():
            name = key.rstrip("?")
            value = values.get(name)
            if kind is None or (value is None and key.endswith("?")):
                continue
            problem = problem_with(value, kind, sizes)
            if problem is not None:
                Node(self.file, None, f"{self.path}.{name}").refuse(problem)


def _write_objects(writer: Writer, array: NDArray[Any], path: str) -> dict[str, Any]:
    return {
        "shape": list(array.shape),
        "items": [writer.encode(v, path) for v in array.ravel().tolist()],
        "text": array.dtype.kind == "U",
    }


def _read_objects(node: Node) -> NDArray[Any]:
    items = node["items"].decode()
    out = object_array(items)
    if node.value["text"]:
        if not all(isinstance(item, str) for item in items):
            node.refuse("holds something else than texts")
        out = out.astype(str)
    return out.reshape(node["shape"].decode())


def _write_sparse(writer: Writer, matrix: Any, path: str) -> dict[str, Any]:
    matrix = scipy.sparse.csr_array(matrix)  # of any kind of sparse matrix
    matrix.sum_duplicates()
    arrays = {part: getattr(matrix, part) for part in ("data", "indices", "indptr")}
    return {"shape": list(map(int, matrix.shape)), **writer.encode_table(arrays, path)}


def _read_sparse(node: Node) -> scipy.sparse.csr_array:
    shape = node["shape"].decode()
    parts = {name: node[name].decode() for name in ("data", "indices", "indptr")}
    kinds = {"data": "stored", "indices": "stored of int", "indptr": "ends of int"}
    node.check_values(parts, kinds, {"ends": shape[0] + 1})
    matrix = scipy.sparse.csr_array(tuple(parts.values()), shape=shape)
    matrix.check_format(full_check=True)
    return matrix


def _read_table(node: Node) -> Any:
    import pandas as pd

    columns = node.decode_table()
    return pd.DataFrame(columns).set_index(next(iter(columns)))


def _read_image(node: Node) -> Any:
    import nibabel as nib

    return nib.Nifti1Image.from_bytes(node.file.arrays[node.value].tobytes())


def _write_space(writer: Writer, space: Any, path: str) -> dict[str, Any]:
    """Store the files that a brain space writes."""
    files = []
    with tempfile.TemporaryDirectory() as folder:
        for i, file in enumerate(space.save(Path(folder) / "space")):
            name = writer.add(f"{path}.{i}", np.fromfile(file, np.uint8))
            files.append({"suffix": file.name.removeprefix("space"), "file": name})
    return {"kind": str(space.kind), "files": files}


def _read_space(node: Node) -> Any:
    from brainweave.study.spaces import load_space

    with tempfile.TemporaryDirectory() as folder:
        paths = []
        for i, file in enumerate(node["files"].children()):
            paths.append(Path(folder) / f"space{i}{file.value['suffix']}")
            if paths[-1].parent != Path(folder):
                file.refuse("has a file with a wrong name")
            paths[-1].write_bytes(node.file.arrays[file.value["file"]].tobytes())
        return load_space(node.value["kind"], paths)


# what a document calls them -> how; other modules add bases, aligners and their parts
KINDS: dict[str, Kind] = {
    "array": Kind(
        lambda value: isinstance(value, np.ndarray) and value.dtype.kind in "fiub",
        lambda writer, array, path: writer.add(path, array),
        lambda node: node.file.arrays[node.value],
    ),
    "objects": Kind(
        lambda value: isinstance(value, np.ndarray) and value.dtype.kind in "OU",
        _write_objects,
        _read_objects,
    ),
    "sparse": Kind(scipy.sparse.issparse, _write_sparse, _read_sparse),
    "table": Kind(
        lambda value: type(value).__name__ == "DataFrame",
        lambda writer, table, path: writer.encode_table(
            table.reset_index().to_dict("list"), path
        ),
        _read_table,
    ),
    "image": Kind(
        lambda value: (
            type(value).__module__.startswith("nibabel.") and hasattr(value, "to_bytes")
        ),
        lambda writer, image, path: writer.add(
            f"{path}.image", np.frombuffer(image.to_bytes(), np.uint8)
        ),
        _read_image,
    ),
    "space": Kind(
        lambda value: all(hasattr(value, n) for n in ("to_image", "save", "kind")),
        _write_space,
        _read_space,
    ),
}


def write_container(path: Path, document: Table, arrays: Arrays) -> None:
    """Write a file, all or nothing: a temporary one beside it is renamed at the end."""
    if path.suffix != SUFFIX:
        raise ModelFileError(
            f"{str(path)!r} must end in {SUFFIX}, such as {path.stem + SUFFIX!r}."
        )
    made = {}
    for name, array in arrays.items():
        dtype = array.dtype.newbyteorder("<")
        if dtype not in DTYPES.values():
            raise ModelFileError(f"{name} is {dtype}, which model files cannot hold.")
        made[name] = np.require(array, dtype, "C")
    ours = {"format": FORMAT, "version": VERSION, "arrays": _digest(made)}
    text = json.dumps({**document, **ours}, allow_nan=False)
    if len(text) > MAX_HEADER // 2:  # the header lists all arrays once more
        raise ModelFileError(
            f"{str(path)!r} would hold {len(arrays)} arrays, too many for one file. "
            "Fit a Searchlight with keep_local=False, or use fewer pieces."
        )
    try:
        with atomic_path(path) as partial:
            partial.touch()
            mode = partial.stat().st_mode
            # one entry: the library writes several in an order that varies
            metadata = {"brainweave": f"{_digest_of_text(text)}\n{text}"}
            save_file(made, partial, metadata)
            partial.chmod(mode)  # the library's file is private
    except (OSError, SafetensorError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise ModelFileError(
            f"{str(path)!r} cannot be written ({reason}). Free some space there, or "
            "choose another place."
        ) from error


def _digest(arrays: Arrays) -> str:
    """Return the SHA-256 of arrays with their names, types and shapes."""
    digest = hashlib.sha256()
    for name, values in sorted(arrays.items()):
        digest.update(json.dumps([name, values.dtype.str, values.shape]).encode())
        raw: Any = values.reshape(-1).view(np.uint8)
        digest.update(raw)
    return digest.hexdigest()


def _digest_of_text(text: str) -> str:
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()


def _damaged(why: str) -> ModelFileError:
    return ModelFileError(f"is damaged: {why}. Get the file again.")


def read_container(path: Path, *, verify: bool = True) -> OpenFile:
    """Open a file; its arrays are mapped after all checks."""
    name = repr(str(path))
    try:
        with path.open("rb") as file, safe_open(path, framework="np") as header:
            start = 8 + int.from_bytes(file.read(8), "little")
            document = _read_document(header.metadata() or {})
            arrays = dict(_map_arrays(file, start, header))
        if verify and _digest(arrays) != document.get("arrays"):
            raise _damaged("the checksum of its arrays does not match")
    except ModelFileError as refusal:
        raise ModelFileError(f"{name} {refusal}") from refusal.__cause__
    except SafetensorError as error:
        raise ModelFileError(
            f"{name} is no model file, or was cut off, appended to or damaged in its "
            f"header ({error}). Get the file again."
        ) from error
    except FileNotFoundError:
        raise ModelFileError(f"There is no file {name}. Check the path.") from None
    except OSError as error:
        raise ModelFileError(f"{name} cannot be read ({error.strerror}).") from error
    return OpenFile(path, document, arrays)


def _read_document(metadata: dict[str, str]) -> dict[str, Any]:
    """Return the document, after comparing its checksum."""
    checksum, _, text = metadata.get("brainweave", "").partition("\n")
    if not text:
        raise ModelFileError("is a safetensors file, but brainweave did not write it.")
    if _digest_of_text(text) != checksum:
        raise _damaged("the checksum of its description does not match")
    try:
        document = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise _damaged(f"its description is not readable ({error})") from error
    if not isinstance(document, dict) or document.get("format") != FORMAT:
        raise _damaged("its description is not that of a model")
    version = document.get("version")
    if version != VERSION:
        raise ModelFileError(
            f"has format version {str(version)[:20]!r}, and this brainweave reads "
            f"{VERSION}. Use the brainweave that wrote it, or a newer one."
        )
    return document


def _map_arrays(file: Any, start: int, header: Any) -> Iterator[tuple[str, Any]]:
    """Yield the arrays, mapped copy on write; they fill the file without gaps."""
    size = os.fstat(file.fileno()).st_size - start
    flat: Any = np.empty(0, np.uint8)
    if size > 0:
        flat = np.asarray(np.memmap(file, np.uint8, "c", offset=start, shape=(size,)))
    begin = 0
    for key in header.offset_keys():
        part = header.get_slice(key)
        code, shape = str(part.get_dtype()), part.get_shape()
        if code not in DTYPES:
            raise _damaged(f"array {key!r} has an unknown type")
        raw = flat[begin : begin + prod(shape) * DTYPES[code].itemsize]
        begin += raw.size
        yield key, raw.view(DTYPES[code]).reshape(shape)
