"""From fitted objects to a JSON document and named arrays, and back.

Numbers, texts and lists are themselves in JSON. Everything else is a table with one
entry whose key says what it is: ``{"array": name}``, ``{"tuple": [...]}``, and so on.
Reading makes exactly these and nothing more, after checking every part: the document is
data, never a program.
"""

import math
import re
import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NamedTuple, NoReturn

import numpy as np
import scipy.sparse
from numpy.typing import NDArray

from brainweave.exceptions import ModelFileError
from brainweave.graphs import NO_GROUP, Graph, GroupTerm
from brainweave.models.container import CODES, Container, PendingArray, pending

_SUFFIX = re.compile(r"[A-Za-z0-9._-]{1,60}")
Sizes = dict[str, int]


class Kind(NamedTuple):
    """How objects of a class are written and read."""

    type: type
    write: Callable[["Writer", Any, str], Any]
    read: Callable[["Reader", Any, str], Any]


# what a document calls them -> how; the modules that know aligners, maps and bases add
# theirs
KINDS: dict[str, Kind] = {}


def misfit(
    value: Any,
    dims: str,
    sizes: Sizes,
    kinds: str = "f",
    form: Any = np.ndarray,
) -> str | None:
    """Say why an array does not have these dimensions, or None if it has.

    Dimensions are letters with blanks; the same letter is the same size. Those that
    are known are given, those of new letters are added. Kinds are NumPy's of numbers.
    """
    if not isinstance(value, form):
        return f"is not an array of numbers, {form.__name__}"
    if value.dtype.kind not in kinds:
        return f"is not an array of numbers: it holds {value.dtype}"
    names = dims.split()
    if value.ndim != len(names):
        return f"has {value.ndim} dimensions where {len(names)} are needed"
    for name, size in zip(names, value.shape, strict=True):
        if sizes.setdefault(name, size) != size:
            what = "voxels" if name == "v" else "shapes"
            return f"has shape {value.shape}; it and the rest are of different {what}"
    return None


class Writer:
    """Collects the arrays, bases and brain spaces that a document refers to."""

    def __init__(self) -> None:
        self.arrays: dict[str, PendingArray] = {}
        self.bases: list[Any] = []
        self.spaces: list[Any] = []
        # the object itself keeps its id from being given to another
        self.known: dict[int, tuple[Any, Any]] = {}
        self._known_spaces: list[Any] = []

    def value(self, value: Any, path: str) -> Any:
        """Encode anything that a model may hold; path says where it is."""
        if isinstance(value, np.generic):
            value = value.item()
        if value is None or isinstance(value, (bool, int, str)):
            return value
        if isinstance(value, float):
            return value if math.isfinite(value) else {"float": repr(value)}
        if isinstance(value, (list, tuple, range)):
            items = [self.value(v, f"{path}.{i}") for i, v in enumerate(value)]
            return {"tuple": items} if isinstance(value, tuple) else items
        if isinstance(value, Mapping):
            return {
                "dict": [
                    [self.value(k, path), self.value(v, f"{path}.{k}")]
                    for k, v in value.items()
                ]
            }
        return self._object(value, path)

    def _object(self, value: Any, path: str) -> Any:
        if isinstance(value, np.ndarray):
            return self._array(value, path)
        if isinstance(value, PendingArray):
            return {"array": self.add(path, value)}
        if scipy.sparse.issparse(value):
            return {"sparse": _write_sparse(self, value, path)}
        for tag, kind in KINDS.items():
            if isinstance(value, kind.type):
                return {tag: kind.write(self, value, path)}
        if type(value).__module__.startswith("nibabel.") and hasattr(value, "to_bytes"):
            content = np.frombuffer(value.to_bytes(), np.uint8)
            return {"image": self.add(f"{path}.image", pending(content))}
        if callable(value):
            raise ModelFileError(
                f"{path} is a function ({getattr(value, '__name__', value)!r}), which "
                "a model file cannot hold: loading must never run code. Use a kernel "
                "by name, or kernel='precomputed' with your Gram matrices."
            )
        raise ModelFileError(
            f"{path} is a {type(value).__module__}.{type(value).__name__}, which a "
            "model file cannot hold. Use numbers, texts, lists or arrays."
        )

    def _array(self, array: np.ndarray[Any, Any], path: str) -> Any:
        if array.dtype.newbyteorder("<") not in CODES:
            if array.dtype.kind not in "OUS":
                raise ModelFileError(f"{path} holds {array.dtype}, which has no place.")
            items = [self.value(v, path) for v in array.ravel().tolist()]
            text = array.dtype.kind == "U"
            shape = list(array.shape)
            return {"objects": {"shape": shape, "items": items, "text": text}}
        if id(array) not in self.known:
            self.known[id(array)] = array, self.add(path, pending(array))
        return {"array": self.known[id(array)][1]}

    def add(self, name: str, array: PendingArray) -> str:
        """Store an array under a name of its own; return the name."""
        if name in self.arrays or name == "__metadata__":
            raise ModelFileError(f"Two arrays of the model have the name {name!r}.")
        self.arrays[name] = array
        return name

    def space(self, space: Any, path: str) -> int | None:
        """Store the files of a brain space once; return its number."""
        if space is None:
            return None
        if space in self._known_spaces:
            return self._known_spaces.index(space)
        if not (hasattr(space, "save") and hasattr(space, "kind")):
            raise ModelFileError(
                f"The brain space of {path} is a {type(space).__name__}, which cannot "
                "be saved: it has no save(stem) method."
            )
        number = len(self._known_spaces)
        files = []
        with tempfile.TemporaryDirectory() as folder:
            for i, file in enumerate(space.save(Path(folder) / "space")):
                content = np.frombuffer(file.read_bytes(), np.uint8)
                name = self.add(f"spaces.{number}.{i}", pending(content))
                files.append({"suffix": file.name.removeprefix("space"), "file": name})
        self._known_spaces.append(space)
        self.spaces.append({"kind": str(space.kind), "files": files})
        return number


class Reader:
    """Makes the objects that a document describes."""

    def __init__(self, container: Container) -> None:
        self.file = repr(str(container.path))
        self.arrays = container.arrays
        self.document = container.document
        self.bases: dict[int, Any] = {}
        self._spaces: dict[int, Any] = {}

    def bad(self, path: str, why: str) -> NoReturn:
        """Refuse the file, naming the part."""
        raise ModelFileError(f"{self.file} is damaged: {path} {why}.")

    def value(self, node: Any, path: str) -> Any:
        """Decode any node."""
        if node is None or isinstance(node, (bool, int, float, str)):
            return node
        if isinstance(node, list):
            return [self.value(v, f"{path}.{i}") for i, v in enumerate(node)]
        if not isinstance(node, dict) or len(node) != 1:
            self.bad(path, "is not a value")
        ((tag, body),) = node.items()
        if tag in KINDS:
            return KINDS[tag].read(self, body, path)
        plain: dict[str, Callable[[Any, str], Any]] = {
            "float": self._float,
            "tuple": lambda body, path: tuple(self.value(self.items(body, path), path)),
            "dict": self._dict,
            "array": self.array,
            "objects": self._objects,
            "image": self._image,
        }
        if tag not in plain:
            self.bad(path, f"is of the unknown kind {str(tag)[:40]!r}")
        return plain[tag](body, path)

    def _float(self, body: Any, path: str) -> float:
        if body not in ("nan", "inf", "-inf"):
            self.bad(path, "is not a number")
        return float(body)

    def _dict(self, body: Any, path: str) -> dict[Any, Any]:
        pairs = self.items(body, path)
        if not all(isinstance(pair, list) and len(pair) == 2 for pair in pairs):
            self.bad(path, "is not a table")
        names = self.names([key for key, _ in pairs], path)
        values = [self.value(value, path) for _, value in pairs]
        return dict(zip(names, values, strict=True))

    def names(self, node: Any, path: str) -> list[Any]:
        """Return a list of what can be a key."""
        found = self.value(self.items(node, path), path)
        try:
            hash(tuple(found))
        except TypeError:
            self.bad(path, "has a name that cannot be one")
        return list(found)

    def items(self, body: Any, path: str) -> list[Any]:
        """Return a list."""
        if not isinstance(body, list):
            self.bad(path, "is not a list")
        return body

    def table(self, body: Any, path: str, keys: set[str]) -> dict[str, Any]:
        """Return a table that has exactly these entries."""
        if not isinstance(body, dict) or set(body) != keys:
            self.bad(path, f"does not have the entries {', '.join(sorted(keys))}")
        return body

    def count(self, value: Any, path: str) -> int:
        """Return a count: an integer that is not negative."""
        if type(value) is not int or not 0 <= value < 2**48:
            self.bad(path, "is not a count")
        return int(value)

    def counts(self, node: Any, path: str, n: int | None = None) -> tuple[int, ...]:
        """Return several counts, n of them if that is known."""
        found = tuple(self.count(v, path) for v in self.items(node, path))
        if n not in (None, len(found)):
            self.bad(path, f"has {len(found)} sizes where {n} are needed")
        return found

    def number(self, value: Any, path: str) -> float:
        """Return a finite number."""
        if isinstance(value, bool) or not isinstance(value, (int, float)):
            self.bad(path, "is not a number")
        if not abs(value) < 1e300:
            self.bad(path, "is not finite")
        return float(value)

    def flag(self, value: Any, path: str) -> bool:
        """Return a value that is true or false."""
        if not isinstance(value, bool):
            self.bad(path, "has a flag that is neither true nor false")
        return value

    def array(self, name: Any, path: str) -> NDArray[Any]:
        """Return a stored array."""
        if not isinstance(name, str) or name not in self.arrays:
            self.bad(path, "refers to an array that is not there")
        return self.arrays[name]

    def shaped(
        self, name: Any, path: str, dims: str, sizes: Sizes, kinds: str = "f"
    ) -> NDArray[Any]:
        """Return a stored array that has these dimensions, see :func:`misfit`."""
        array = self.array(name, path)
        self.check_fits(array, path, dims, sizes, kinds)
        return array

    def check_fits(
        self, value: Any, path: str, dims: str, sizes: Sizes, *rest: Any
    ) -> None:
        """Refuse what is no array of these dimensions, see :func:`misfit`."""
        why = misfit(value, dims, sizes, *rest)
        if why is not None:
            self.bad(path, why)

    def check_places(
        self, places: NDArray[Any], path: str, n: int, lowest: int = 0
    ) -> None:
        """Refuse places outside of something of that size."""
        if places.size and not lowest <= places.min() <= places.max() < n:
            self.bad(path, f"has places, columns or groups that do not exist in {n}")

    def _objects(self, body: Any, path: str) -> NDArray[Any]:
        table = self.table(body, path, {"shape", "items", "text"})
        shape = self.counts(table["shape"], path)
        items = [self.value(v, path) for v in self.items(table["items"], path)]
        out = np.empty(len(items), dtype=object)
        out[:] = items
        text = self.flag(table["text"], path)
        if text and not all(isinstance(item, str) for item in items):
            self.bad(path, "holds something else than texts")
        try:
            return (out.astype(str) if text else out).reshape(shape)
        except ValueError:
            self.bad(path, f"has {len(items)} entries for shape {shape}")

    def _image(self, name: Any, path: str) -> Any:
        import nibabel as nib

        content = self.shaped(name, path, "bytes", {}, "u")
        try:
            return nib.Nifti1Image.from_bytes(content.tobytes())
        except Exception as error:  # whatever the image library makes of it
            self.bad(path, f"is not an image ({error})")

    def entry(self, what: str, number: Any, path: str) -> Any:
        """Return one of the bases or spaces that the document lists."""
        entries = self.document.get(what)
        if (
            type(number) is not int
            or not isinstance(entries, list)
            or not 0 <= number < len(entries)
        ):
            self.bad(path, f"refers to one of its {what} that is not there")
        return entries[number]

    def space(self, number: Any, path: str, n_voxels: int) -> Any:
        """Return a stored brain space."""
        if number is None:
            return None
        entry = self.entry("spaces", number, path)
        if number not in self._spaces:
            self._spaces[number] = self._make_space(entry, f"space {number}")
        space = self._spaces[number]
        if space.n_voxels != n_voxels:
            self.bad(path, f"has {n_voxels} voxels, its space {space.n_voxels}")
        return space

    def _make_space(self, body: Any, path: str) -> Any:
        from brainweave.study.spaces import load_space

        table = self.table(body, path, {"kind", "files"})
        if not isinstance(table["kind"], str):
            self.bad(path, "has no kind")
        with tempfile.TemporaryDirectory() as folder:
            paths = []
            for i, file in enumerate(self.items(table["files"], path)):
                entry = self.table(file, path, {"suffix", "file"})
                suffix = entry["suffix"]
                if not isinstance(suffix, str) or not _SUFFIX.fullmatch(suffix):
                    self.bad(path, "has a file with a wrong name")
                content = self.shaped(entry["file"], path, "bytes", {}, "u")
                paths.append(Path(folder) / f"space{i}{suffix}")
                paths[-1].write_bytes(content.tobytes())
            try:
                return load_space(table["kind"], paths)
            except Exception as error:  # whatever the image library makes of it
                self.bad(path, f"cannot be read ({error})")


# -- sparse matrices and graphs --------------------------------------------------------


def _write_sparse(to: Writer, matrix: Any, path: str) -> dict[str, Any]:
    matrix = scipy.sparse.csr_array(matrix)  # of any kind of sparse matrix
    matrix.sum_duplicates()
    parts = ("data", "indices", "indptr")
    return {
        "shape": [int(n) for n in matrix.shape],
        **{p: to.add(f"{path}.{p}", pending(getattr(matrix, p))) for p in parts},
    }


def _read_sparse(of: Reader, body: Any, path: str) -> scipy.sparse.csr_array:
    table = of.table(body, path, {"shape", "data", "indices", "indptr"})
    rows, columns = of.counts(table["shape"], path, 2)
    sizes = {"ends": rows + 1}
    data = of.shaped(table["data"], path, "stored", sizes)
    indices = of.shaped(table["indices"], path, "stored", sizes, "i")
    indptr = of.shaped(table["indptr"], path, "ends", sizes, "i")
    ordered = indptr[0] == 0 and indptr[-1] == data.size
    if not ordered or (np.diff(indptr) < 0).any():
        of.bad(path, "has rows that do not fit")
    of.check_places(indices, path, columns)
    return scipy.sparse.csr_array((data, indices, indptr), shape=(rows, columns))


def _write_graph(to: Writer, graph: Graph, path: str) -> dict[str, Any]:
    matrix = graph.matrix
    return {
        "lengths": [int(n) for n in graph.lengths],
        "groups": [
            {
                "codes": to.add(f"{path}.{i}.codes", pending(t.codes.astype(np.int32))),
                "affinity": to.add(f"{path}.{i}.affinity", pending(t.affinity)),
                "names": to.value(list(t.names), f"{path}.{i}.names"),
            }
            for i, t in enumerate(graph.groups)
        ],
        "matrix": None
        if matrix is None
        else _write_sparse(to, matrix, f"{path}.matrix"),
    }


def _read_graph(of: Reader, body: Any, path: str) -> Graph:
    table = of.table(body, path, {"lengths", "groups", "matrix"})
    lengths = of.counts(table["lengths"], path)
    total = sum(lengths)
    groups = tuple(
        _read_term(of, term, f"{path}.{i}", total)
        for i, term in enumerate(of.items(table["groups"], path))
    )
    matrix = None
    if table["matrix"] is not None:
        matrix = _read_sparse(of, table["matrix"], f"{path}.matrix")
        if matrix.shape != (total, total):
            of.bad(path, f"has a matrix {matrix.shape} for {total} samples")
    return Graph(lengths, groups, matrix)


def _read_term(of: Reader, body: Any, path: str, total: int) -> GroupTerm:
    table = of.table(body, path, {"codes", "affinity", "names"})
    names = tuple(of.names(table["names"], path))
    if len(set(names)) != len(names):
        of.bad(path, "names a group twice")
    sizes = {"n": total, "g": len(names)}
    codes = of.shaped(table["codes"], path, "n", sizes, "i")
    affinity = of.shaped(table["affinity"], path, "g g", sizes)
    of.check_places(codes, path, len(names), lowest=NO_GROUP)
    if not np.isfinite(affinity).all():
        of.bad(path, "has an affinity that is not finite")
    return GroupTerm(codes.astype(np.intp), np.asarray(affinity, float), names)


KINDS["sparse"] = Kind(scipy.sparse.csr_array, _write_sparse, _read_sparse)
KINDS["graph"] = Kind(Graph, _write_graph, _read_graph)
