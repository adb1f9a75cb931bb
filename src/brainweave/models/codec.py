"""From fitted objects to a JSON document and named arrays, and back.

Numbers, texts and lists are themselves in JSON. Everything else is a table with one
entry whose key says what it is: ``{"array": name}``, ``{"tuple": [...]}``, and so on.
Reading makes exactly these and nothing more, after checking every part: the document is
data, never a program.
"""

import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from math import isfinite
from pathlib import Path
from typing import Any, NamedTuple, NoReturn

import numpy as np
import scipy.sparse
from numpy.typing import NDArray

from brainweave.exceptions import ModelFileError
from brainweave.graphs import NO_GROUP, Graph, GroupTerm
from brainweave.models.container import CODES, Container, PendingArray, pending

Sizes = dict[str, int]


class Kind(NamedTuple):
    """How values of a kind are known, written and read."""

    fits: Callable[[Any], bool]
    write: Callable[["Writer", Any, str], Any]
    read: Callable[["Reader", Any, str], Any]


def misfit(
    value: Any, dims: str, sizes: Sizes, kinds: str = "f", form: Any = np.ndarray
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
        if isinstance(value, float) and isfinite(value):
            return value
        if isinstance(value, (list, range)):
            return [self.value(v, f"{path}.{i}") for i, v in enumerate(value)]
        for tag, kind in KINDS.items():
            if kind.fits(value):
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
        """Store an array under a name of its own; return the name."""
        if name in self.arrays or name == "__metadata__":
            raise ModelFileError(f"Two arrays of the model have the name {name!r}.")
        self.arrays[name] = array
        return name

    def add_bytes(self, name: str, content: bytes) -> str:
        """Store bytes under a name of their own; return the name."""
        return self.add(name, pending(np.frombuffer(content, np.uint8)))

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
                name = self.add_bytes(f"spaces.{number}.{i}", file.read_bytes())
                files.append({"suffix": file.name.removeprefix("space"), "file": name})
        self._known_spaces.append(space)
        self.spaces.append({"kind": str(space.kind), "files": files})
        return number


@contextmanager
def reading_document(container: Container) -> Iterator["Reader"]:
    """Yield what reads the document of an open file.

    Its checksum is right, so somebody wrote these values, whatever they are: any error
    that they lead to is a refusal of the file.
    """
    of = Reader(container)
    try:
        yield of
    except ModelFileError:
        raise
    except Exception as error:
        said = f"{type(error).__name__}: {error}"
        raise ModelFileError(f"{of.file} is damaged: {said}.") from error


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
        if isinstance(node, list):
            return [self.value(v, f"{path}.{i}") for i, v in enumerate(node)]
        if not isinstance(node, dict):
            return node
        ((tag, body),) = node.items()
        if tag not in KINDS:
            self.bad(path, f"is of the unknown kind {str(tag)[:40]!r}")
        return KINDS[tag].read(self, body, path)

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

    def counts(self, node: Any, path: str) -> tuple[int, ...]:
        """Return several counts."""
        return tuple(self.count(v, path) for v in self.items(node, path))

    def number(self, value: Any, path: str) -> float:
        """Return a finite number."""
        if isinstance(value, bool) or not abs(value) < 1e300:
            self.bad(path, "is not a finite number")
        return float(value)

    def shaped(
        self, name: str, path: str, dims: str, sizes: Sizes, kinds: str = "f"
    ) -> NDArray[Any]:
        """Return a stored array that has these dimensions, see :func:`misfit`."""
        self.check_fits(self.arrays[name], path, dims, sizes, kinds)
        return self.arrays[name]

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

    def content(self, name: str, path: str) -> bytes:
        """Return stored bytes."""
        return self.shaped(name, path, "bytes", {}, "u").tobytes()

    def space(self, number: Any, path: str, n_voxels: int) -> Any:
        """Return a stored brain space."""
        if number is None:
            return None
        if self.count(number, path) not in self._spaces:
            entry = self.document["spaces"][number]
            self._spaces[number] = self._make_space(entry, f"space {number}")
        space = self._spaces[number]
        if space.n_voxels != n_voxels:
            self.bad(path, f"has {n_voxels} voxels, its space {space.n_voxels}")
        return space

    def _make_space(self, body: Any, path: str) -> Any:
        from brainweave.study.spaces import load_space

        table = self.table(body, path, {"kind", "files"})
        with tempfile.TemporaryDirectory() as folder:
            paths = []
            for i, file in enumerate(self.items(table["files"], path)):
                entry = self.table(file, path, {"suffix", "file"})
                paths.append(Path(folder) / f"space{i}{entry['suffix']}")
                if paths[-1].parent != Path(folder):
                    self.bad(path, "has a file with a wrong name")
                paths[-1].write_bytes(self.content(entry["file"], path))
            return load_space(table["kind"], paths)


# -- mappings, arrays and images -------------------------------------------------------


def _write_dict(to: Writer, table: Mapping[Any, Any], path: str) -> list[Any]:
    pairs = table.items()
    return [[to.value(k, path), to.value(v, f"{path}.{k}")] for k, v in pairs]


def _is_array(value: Any) -> bool:
    is_one = isinstance(value, (np.ndarray, PendingArray))
    return is_one and value.dtype.newbyteorder("<") in CODES


def _write_array(to: Writer, array: Any, path: str) -> str:
    if id(array) not in to.known:
        made = array if isinstance(array, PendingArray) else pending(array)
        to.known[id(array)] = array, to.add(path, made)
    return str(to.known[id(array)][1])


def _write_objects(to: Writer, array: NDArray[Any], path: str) -> dict[str, Any]:
    return {
        "shape": list(array.shape),
        "items": [to.value(v, path) for v in array.ravel().tolist()],
        "text": array.dtype.kind == "U",
    }


def _read_objects(of: Reader, body: Any, path: str) -> NDArray[Any]:
    table = of.table(body, path, {"shape", "items", "text"})
    items = [of.value(v, path) for v in of.items(table["items"], path)]
    if table["text"] and not all(isinstance(item, str) for item in items):
        of.bad(path, "holds something else than texts")
    out = np.empty(len(items), dtype=object)
    out[:] = items
    whole = out.astype(str) if table["text"] else out
    return whole.reshape(of.counts(table["shape"], path))


def _is_image(value: Any) -> bool:
    return type(value).__module__.startswith("nibabel.") and hasattr(value, "to_bytes")


def _read_image(of: Reader, name: str, path: str) -> Any:
    import nibabel as nib

    return nib.Nifti1Image.from_bytes(of.content(name, path))


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
    rows, columns = of.counts(table["shape"], path)
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
    names = tuple(of.value(of.items(table["names"], path), path))
    if len(set(names)) != len(names):
        of.bad(path, "names a group twice")
    sizes = {"n": total, "g": len(names)}
    codes = of.shaped(table["codes"], path, "n", sizes, "i")
    affinity = of.shaped(table["affinity"], path, "g g", sizes)
    of.check_places(codes, path, len(names), lowest=NO_GROUP)
    if not np.isfinite(affinity).all():
        of.bad(path, "has an affinity that is not finite")
    return GroupTerm(codes.astype(np.intp), np.asarray(affinity, float), names)


# what a document calls them -> how; the module of files adds aligners, maps and bases
KINDS: dict[str, Kind] = {
    "float": Kind(
        lambda value: isinstance(value, float),
        lambda to, value, path: repr(value),
        lambda of, body, path: float(body),
    ),
    "tuple": Kind(
        lambda value: isinstance(value, tuple),
        lambda to, value, path: to.value(list(value), path),
        lambda of, body, path: tuple(of.value(of.items(body, path), path)),
    ),
    "dict": Kind(
        lambda value: isinstance(value, Mapping),
        _write_dict,
        lambda of, body, path: {of.value(k, path): of.value(v, path) for k, v in body},
    ),
    "array": Kind(_is_array, _write_array, lambda of, name, path: of.arrays[name]),
    "objects": Kind(
        lambda v: isinstance(v, np.ndarray) and v.dtype.kind in "OUS",
        _write_objects,
        _read_objects,
    ),
    "image": Kind(
        _is_image,
        lambda to, image, path: to.add_bytes(f"{path}.image", image.to_bytes()),
        _read_image,
    ),
    "sparse": Kind(scipy.sparse.issparse, _write_sparse, _read_sparse),
    "graph": Kind(lambda v: isinstance(v, Graph), _write_graph, _read_graph),
}
