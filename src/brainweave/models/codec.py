"""From fitted objects to a JSON document and named arrays, and back.

Numbers, texts and lists are themselves in JSON. Everything else is a table with one
entry whose key says what it is: ``{"array": name}``, ``{"tuple": [...]}``, and so on.
Reading makes exactly these and nothing more, after checking every part: the document is
data, never a program.
"""

import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from math import isfinite
from pathlib import Path
from typing import Any, NamedTuple, NoReturn

import numpy as np
import scipy.sparse
from numpy.typing import NDArray

from brainweave._core.exceptions import ModelFileError
from brainweave._core.labels import object_array
from brainweave.graphs.builders import NO_GROUP, Graph, GroupTerm
from brainweave.models.container import CODES, Container, PendingArray, pending

Sizes = dict[str, int]


class Kind(NamedTuple):
    """How values of a kind are recognised, written and read."""

    matches: Callable[[Any], bool]
    write: Callable[["Writer", Any, str], Any]
    read: Callable[["Node"], Any]


def value_problem(value: Any, wanted: Any, sizes: Sizes) -> str | None:
    """Return why a value is not what is wanted, or None if it is.

    Wanted is a type; a function that accepts the value; a list with what each entry
    must be; or an array, as a tuple of its dimensions, NumPy's kinds of its numbers and
    its type. Dimensions alone, "n k" say, stand for an array of floats: those in
    `sizes` must have that size, others are added to it.
    """
    if isinstance(wanted, list):
        if not isinstance(value, list):
            return "is not a list"
        # each entry may have sizes of its own
        problems = (value_problem(v, wanted[0], dict(sizes)) for v in value)
        return next(filter(None, problems), None)
    if isinstance(wanted, type):
        is_one = isinstance(value, wanted) and (wanted is not int or type(value) is int)
        return None if is_one else f"is not of type {wanted.__name__}"
    if callable(wanted):
        return None if wanted(value) else "has a wrong value"
    dims, kinds, form = (wanted, "f", np.ndarray) if isinstance(wanted, str) else wanted
    return _array_problem(value, dims, kinds, form, sizes)


def _array_problem(
    value: Any, dims: str, kinds: str, form: Any, sizes: Sizes
) -> str | None:
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


# -- writing ---------------------------------------------------------------------------


class Writer:
    """Encodes values; collects the arrays, bases and spaces that they refer to."""

    def __init__(self) -> None:
        self.arrays: dict[str, PendingArray] = {}
        self.bases: list[Any] = []
        self.spaces: list[Any] = []
        # id of an object -> the object, which keeps that id its own, and its name
        self.stored: dict[int, tuple[Any, Any]] = {}
        self._stored_spaces: list[Any] = []

    def encode(self, value: Any, path: str) -> Any:
        """Return a value as JSON; `path` names it, and its arrays."""
        if isinstance(value, np.generic):
            value = value.item()
        if value is None or isinstance(value, (bool, int, str)):
            return value
        if isinstance(value, float) and isfinite(value):
            return value
        if isinstance(value, (list, range)):
            return [self.encode(v, f"{path}.{i}") for i, v in enumerate(value)]
        for tag, kind in KINDS.items():
            if kind.matches(value):
                return {tag: kind.write(self, value, path)}
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

    def add(self, name: str, array: PendingArray) -> str:
        """Store an array; return its name."""
        if name in self.arrays or name == "__metadata__":
            raise ModelFileError(f"Two arrays of the model have the name {name!r}.")
        self.arrays[name] = array
        return name

    def add_bytes(self, name: str, content: bytes) -> str:
        """Store bytes; return their name."""
        return self.add(name, pending(np.frombuffer(content, np.uint8)))

    def space(self, space: Any, path: str) -> int | None:
        """Store the files of a brain space once; return its number."""
        if space is None:
            return None
        if space in self._stored_spaces:
            return self._stored_spaces.index(space)
        if not (hasattr(space, "save") and hasattr(space, "kind")):
            raise ModelFileError(
                f"The brain space of {path} is a {type(space).__name__}, which cannot "
                "be saved: it has no save(stem) method."
            )
        number = len(self._stored_spaces)
        files = []
        with tempfile.TemporaryDirectory() as folder:
            for i, file in enumerate(space.save(Path(folder) / "space")):
                name = self.add_bytes(f"spaces.{number}.{i}", file.read_bytes())
                files.append({"suffix": file.name.removeprefix("space"), "file": name})
        self._stored_spaces.append(space)
        self.spaces.append({"kind": str(space.kind), "files": files})
        return number


# -- reading ---------------------------------------------------------------------------


@contextmanager
def open_document(container: Container) -> Iterator["Node"]:
    """Yield the document of an open file; any error within is a refusal of the file.

    Its checksum is right, so somebody wrote these values, whatever they are.
    """
    file = repr(str(container.path))
    try:
        yield OpenFile(file, container.arrays, container.document).root
    except ModelFileError:
        raise
    except Exception as error:
        said = f"{type(error).__name__}: {error}"
        raise ModelFileError(f"{file} is damaged: {said}.") from error


@dataclass
class OpenFile:
    """What all nodes of a document share: arrays, and what was made already."""

    name: str
    arrays: dict[str, NDArray[Any]]
    document: dict[str, Any]
    bases: dict[int, Any] = field(default_factory=dict)
    spaces: dict[int, Any] = field(default_factory=dict)

    @property
    def root(self) -> "Node":
        """The whole document."""
        return Node(self, self.document, "")


@dataclass(frozen=True)
class Node:
    """A place in a document: the value there, and its path for messages."""

    file: OpenFile
    value: Any
    path: str

    def __getitem__(self, key: Any) -> "Node":
        path = f"{self.path}.{key}" if self.path else str(key)
        return Node(self.file, self.value[key], path)

    def get(self, key: str) -> "Node":
        """Return an entry that may be missing: its value is None then."""
        return self[key] if key in self.value else Node(self.file, None, key)

    def refuse(self, why: str) -> NoReturn:
        """Refuse the file, naming the place."""
        raise ModelFileError(f"{self.file.name} is damaged: {self.path} {why}.")

    def decode(self) -> Any:
        """Return what is described here."""
        if isinstance(self.value, list):
            return [child.decode() for child in self.children()]
        if not isinstance(self.value, dict):
            return self.value
        ((tag, body),) = self.value.items()
        if tag not in KINDS:
            self.refuse(f"is of the unknown kind {str(tag)[:40]!r}")
        return KINDS[tag].read(Node(self.file, body, self.path))

    def children(self) -> list["Node"]:
        """Return the nodes of a list."""
        if not isinstance(self.value, list):
            self.refuse("is not a list")
        return [self[i] for i in range(len(self.value))]

    def check_keys(self, *keys: str) -> None:
        """Refuse what is no table with exactly these entries."""
        if not isinstance(self.value, dict) or set(self.value) != set(keys):
            self.refuse(f"does not have the entries {', '.join(sorted(keys))}")

    def count(self) -> int:
        """Return a count: an integer that is not negative."""
        if type(self.value) is not int or not 0 <= self.value < 2**48:
            self.refuse("is not a count")
        return self.value

    def counts(self) -> tuple[int, ...]:
        """Return several counts."""
        return tuple(child.count() for child in self.children())

    def number(self) -> float:
        """Return a finite number."""
        if isinstance(self.value, bool) or not abs(self.value) < 1e300:
            self.refuse("is not a finite number")
        return float(self.value)

    def array(self, dims: str, sizes: Sizes, kinds: str = "f") -> NDArray[Any]:
        """Return the stored array of this name; see :func:`value_problem`."""
        found = self.file.arrays[self.value]
        self.check(found, (dims, kinds, np.ndarray), sizes)
        return found

    def check(self, value: Any, wanted: Any, sizes: Sizes) -> None:
        """Refuse a value that is not what is wanted; see :func:`value_problem`."""
        problem = value_problem(value, wanted, sizes)
        if problem is not None:
            self.refuse(problem)

    def check_values(
        self, values: Mapping[str, Any], schema: Mapping[str, Any], sizes: Sizes
    ) -> None:
        """Check values by what is wanted of each; "name?" may be missing, or None."""
        for key, wanted in schema.items():
            name = key.rstrip("?")
            value = values.get(name)
            if value is not None or not key.endswith("?"):
                where = Node(self.file, value, f"{self.path}.{name}")
                where.check(value, wanted, sizes)

    def check_indices(self, indices: NDArray[Any], n: int, lowest: int = 0) -> None:
        """Refuse indices outside of something of size n."""
        if indices.size and not lowest <= indices.min() <= indices.max() < n:
            self.refuse(f"has places, columns or groups that do not exist in {n}")

    def content(self) -> bytes:
        """Return the stored bytes of this name."""
        return self.array("bytes", {}, "u").tobytes()

    def space(self, n_voxels: int) -> Any:
        """Return the stored brain space of this number, or None if it has none."""
        if self.value is None:
            return None
        number, spaces = self.count(), self.file.spaces
        if number not in spaces:
            spaces[number] = _read_space(self.file.root["spaces"][number])
        space = spaces[number]
        if space.n_voxels != n_voxels:
            self.refuse(f"is of {n_voxels} voxels, its space {space.n_voxels}")
        return space


def _read_space(node: Node) -> Any:
    from brainweave.study.spaces import load_space

    node.check_keys("kind", "files")
    with tempfile.TemporaryDirectory() as folder:
        paths = []
        for i, file in enumerate(node["files"].children()):
            file.check_keys("suffix", "file")
            paths.append(Path(folder) / f"space{i}{file.value['suffix']}")
            if paths[-1].parent != Path(folder):
                file.refuse("has a file with a wrong name")
            paths[-1].write_bytes(file["file"].content())
        return load_space(node.value["kind"], paths)


# -- mappings, arrays and images -------------------------------------------------------


def _write_dict(writer: Writer, table: Mapping[Any, Any], path: str) -> list[Any]:
    pairs = table.items()
    return [[writer.encode(k, path), writer.encode(v, f"{path}.{k}")] for k, v in pairs]


def _read_dict(node: Node) -> dict[Any, Any]:
    return {pair[0].decode(): pair[1].decode() for pair in node.children()}


def _is_array(value: Any) -> bool:
    is_one = isinstance(value, (np.ndarray, PendingArray))
    return is_one and value.dtype.newbyteorder("<") in CODES


def _write_array(writer: Writer, array: Any, path: str) -> str:
    if id(array) not in writer.stored:
        made = array if isinstance(array, PendingArray) else pending(array)
        writer.stored[id(array)] = array, writer.add(path, made)
    return str(writer.stored[id(array)][1])


def _write_objects(writer: Writer, array: NDArray[Any], path: str) -> dict[str, Any]:
    return {
        "shape": list(array.shape),
        "items": [writer.encode(v, path) for v in array.ravel().tolist()],
        "text": array.dtype.kind == "U",
    }


def _read_objects(node: Node) -> NDArray[Any]:
    node.check_keys("shape", "items", "text")
    items = [child.decode() for child in node["items"].children()]
    out = object_array(items)
    if node.value["text"]:
        if not all(isinstance(item, str) for item in items):
            node.refuse("holds something else than texts")
        out = out.astype(str)
    return out.reshape(node["shape"].counts())


def _is_image(value: Any) -> bool:
    return type(value).__module__.startswith("nibabel.") and hasattr(value, "to_bytes")


def _read_image(node: Node) -> Any:
    import nibabel as nib

    return nib.Nifti1Image.from_bytes(node.content())


# -- sparse matrices and graphs --------------------------------------------------------


def _write_sparse(writer: Writer, matrix: Any, path: str) -> dict[str, Any]:
    matrix = scipy.sparse.csr_array(matrix)  # of any kind of sparse matrix
    matrix.sum_duplicates()
    parts = ("data", "indices", "indptr")
    return {
        "shape": [int(n) for n in matrix.shape],
        **{p: writer.add(f"{path}.{p}", pending(getattr(matrix, p))) for p in parts},
    }


def _read_sparse(node: Node) -> scipy.sparse.csr_array:
    node.check_keys("shape", "data", "indices", "indptr")
    rows, columns = node["shape"].counts()
    sizes = {"ends": rows + 1}
    data = node["data"].array("stored", sizes)
    indices = node["indices"].array("stored", sizes, "i")
    ends = node["indptr"].array("ends", sizes, "i")
    if ends[0] != 0 or ends[-1] != data.size or (np.diff(ends) < 0).any():
        node.refuse("has rows that do not fit")
    node.check_indices(indices, columns)
    return scipy.sparse.csr_array((data, indices, ends), shape=(rows, columns))


def _write_graph(writer: Writer, graph: Graph, path: str) -> dict[str, Any]:
    groups = []
    for i, term in enumerate(graph.groups):
        codes = pending(term.codes.astype(np.int32))
        groups.append(
            {
                "codes": writer.add(f"{path}.{i}.codes", codes),
                "affinity": writer.add(f"{path}.{i}.affinity", pending(term.affinity)),
                "names": writer.encode(list(term.names), f"{path}.{i}.names"),
            }
        )
    matrix = None
    if graph.matrix is not None:
        matrix = _write_sparse(writer, graph.matrix, f"{path}.matrix")
    lengths = [int(n) for n in graph.lengths]
    return {"lengths": lengths, "groups": groups, "matrix": matrix}


def _read_graph(node: Node) -> Graph:
    node.check_keys("lengths", "groups", "matrix")
    lengths = node["lengths"].counts()
    n = sum(lengths)
    groups = tuple(_read_term(term, n) for term in node["groups"].children())
    matrix = None
    if node.value["matrix"] is not None:
        matrix = _read_sparse(node["matrix"])
        if matrix.shape != (n, n):
            node.refuse(f"has a matrix {matrix.shape} for {n} samples")
    return Graph(lengths, groups, matrix)


def _read_term(node: Node, n_samples: int) -> GroupTerm:
    node.check_keys("codes", "affinity", "names")
    names = tuple(name.decode() for name in node["names"].children())
    if len(set(names)) != len(names):
        node.refuse("names a group twice")
    sizes = {"n": n_samples, "g": len(names)}
    codes = node["codes"].array("n", sizes, "i")
    affinity = node["affinity"].array("g g", sizes)
    node.check_indices(codes, len(names), lowest=NO_GROUP)
    if not np.isfinite(affinity).all():
        node.refuse("has an affinity that is not finite")
    return GroupTerm(codes.astype(np.intp), np.asarray(affinity, float), names)


# what a document calls them -> how; the module of files adds aligners, maps and bases
KINDS: dict[str, Kind] = {
    "float": Kind(
        lambda value: isinstance(value, float),
        lambda writer, value, path: repr(value),
        lambda node: float(node.value),
    ),
    "tuple": Kind(
        lambda value: isinstance(value, tuple),
        lambda writer, value, path: writer.encode(list(value), path),
        lambda node: tuple(child.decode() for child in node.children()),
    ),
    "dict": Kind(lambda value: isinstance(value, Mapping), _write_dict, _read_dict),
    "array": Kind(_is_array, _write_array, lambda node: node.file.arrays[node.value]),
    "objects": Kind(
        lambda value: isinstance(value, np.ndarray) and value.dtype.kind in "OUS",
        _write_objects,
        _read_objects,
    ),
    "image": Kind(
        _is_image,
        lambda writer, image, path: writer.add_bytes(f"{path}.image", image.to_bytes()),
        _read_image,
    ),
    "sparse": Kind(scipy.sparse.issparse, _write_sparse, _read_sparse),
    "graph": Kind(lambda value: isinstance(value, Graph), _write_graph, _read_graph),
}
