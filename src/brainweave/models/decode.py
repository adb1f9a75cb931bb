"""From a JSON document and mapped arrays to fitted objects; everything is checked.

The document is data, never a program: classes come from a closed list, attributes are
those that a fit sets, and shapes must agree before an object is made.
"""

import re
import tempfile
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, NoReturn

import numpy as np
import scipy.sparse
from numpy.typing import NDArray

from brainweave.aligners.base import BaseAligner
from brainweave.exceptions import ModelFileError
from brainweave.graphs import NO_GROUP, Graph, GroupTerm
from brainweave.models.checks import disagreement
from brainweave.models.container import Container
from brainweave.models.maps import decode_map
from brainweave.models.registry import aligner_class
from brainweave.models.stored_basis import StoredBasis, decode_basis

_ATTRIBUTE = re.compile(r"[A-Za-z][A-Za-z0-9_]*_")
_SUFFIX = re.compile(r"[A-Za-z0-9._-]{1,60}")


class Decoder:
    """Makes the objects that a document describes."""

    def __init__(self, container: Container) -> None:
        self.file = repr(str(container.path))
        self.arrays = container.arrays
        self.document = container.document
        self._bases: dict[int, StoredBasis] = {}
        self._spaces: dict[int, Any] = {}

    def bad(self, path: str, why: str) -> NoReturn:
        """Refuse the file, naming the part."""
        raise ModelFileError(f"{self.file} is damaged: {path} {why}.")

    # -- plain values -----------------------------------------------------------------

    def value(self, node: Any, path: str) -> Any:
        """Decode any node."""
        if node is None or isinstance(node, (bool, int, float, str)):
            return node
        if isinstance(node, list):
            return [self.value(v, f"{path}.{i}") for i, v in enumerate(node)]
        if not isinstance(node, dict) or len(node) != 1:
            self.bad(path, "is not a value")
        ((tag, body),) = node.items()
        readers: dict[str, Callable[[Any, str], Any]] = {
            "float": self._float,
            "tuple": self._tuple,
            "dict": self._dict,
            "array": self.array,
            "objects": self._objects,
            "sparse": self._sparse,
            "image": self._image,
            "graph": self._graph,
            "aligner": self.aligner,
            "map": partial(decode_map, self),
            "basis": self.basis,
        }
        if tag not in readers:
            self.bad(path, f"is of the unknown kind {str(tag)[:40]!r}")
        return readers[tag](body, path)

    def _float(self, body: Any, path: str) -> float:
        if body not in ("nan", "inf", "-inf"):
            self.bad(path, "is not a number")
        return float(body)

    def _tuple(self, body: Any, path: str) -> tuple[Any, ...]:
        return tuple(self.value(v, path) for v in self.items(body, path))

    def _dict(self, body: Any, path: str) -> dict[Any, Any]:
        pairs = self.items(body, path)
        if not all(isinstance(pair, list) and len(pair) == 2 for pair in pairs):
            self.bad(path, "is not a table")
        out = {}
        for key, value in pairs:
            name = self.value(key, path)
            self._hashable(name, path)
            out[name] = self.value(value, f"{path}.{name}")
        return out

    def _hashable(self, name: Any, path: str) -> None:
        try:
            hash(name)
        except TypeError:
            self.bad(path, "has a name that cannot be one")

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

    def number(self, value: Any, path: str) -> float:
        """Return a finite number."""
        if isinstance(value, bool) or not isinstance(value, (int, float)):
            self.bad(path, "is not a number")
        if not abs(value) < 1e300:
            self.bad(path, "is not finite")
        return float(value)

    def array(self, name: Any, path: str) -> NDArray[Any]:
        """Return a stored array."""
        if not isinstance(name, str) or name not in self.arrays:
            self.bad(path, "refers to an array that is not there")
        return self.arrays[name]

    def shaped(
        self, name: Any, path: str, shape: tuple[int | None, ...], kinds: str = "f"
    ) -> NDArray[Any]:
        """Return a stored array of a known shape (None: any length) and kind."""
        array = self.array(name, path)
        if len(array.shape) != len(shape) or any(
            want is not None and want != have
            for want, have in zip(shape, array.shape, strict=True)
        ):
            wanted = " x ".join("any" if n is None else str(n) for n in shape)
            self.bad(path, f"has shape {array.shape} where {wanted} is needed")
        if array.dtype.kind not in kinds:
            self.bad(path, f"holds {array.dtype}")
        return array

    def _objects(self, body: Any, path: str) -> NDArray[Any]:
        table = self.table(body, path, {"shape", "items", "text"})
        lengths = self.items(table["shape"], path)
        shape = tuple(self.count(n, path) for n in lengths)
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

    def _sparse(self, body: Any, path: str) -> scipy.sparse.csr_array:
        table = self.table(body, path, {"shape", "data", "indices", "indptr"})
        sides = self.items(table["shape"], path)
        if len(sides) != 2:
            self.bad(path, "is not a matrix")
        rows, columns = (self.count(n, path) for n in sides)
        data = self.shaped(table["data"], path, (None,))
        indices = self.shaped(table["indices"], path, data.shape, "i")
        indptr = self.shaped(table["indptr"], path, (rows + 1,), "i")
        ordered = indptr[0] == 0 and indptr[-1] == data.size
        if not ordered or (np.diff(indptr) < 0).any():
            self.bad(path, "has rows that do not fit")
        if data.size and not 0 <= indices.min() <= indices.max() < columns:
            self.bad(path, "has columns that do not fit")
        matrix = scipy.sparse.csr_array((data, indices, indptr), shape=(rows, columns))
        return matrix

    def indices(self, node: Any, path: str, size: int) -> NDArray[np.intp]:
        """Decode a list of places in something of that size."""
        places = self.value(node, path)
        if (
            not isinstance(places, np.ndarray)
            or places.dtype.kind != "i"
            or places.ndim != 1
        ):
            self.bad(path, "is not a list of places")
        if places.size and not 0 <= places.min() <= places.max() < size:
            self.bad(path, f"has places outside of {size}")
        return places.astype(np.intp)

    def _image(self, name: Any, path: str) -> Any:
        import nibabel as nib

        content = self.shaped(name, path, (None,), "u")
        try:
            return nib.Nifti1Image.from_bytes(content.tobytes())
        except Exception as error:  # whatever the image library makes of it
            self.bad(path, f"is not an image ({error})")

    # -- graphs -----------------------------------------------------------------------

    def _graph(self, body: Any, path: str) -> Graph:
        table = self.table(body, path, {"lengths", "groups", "matrix"})
        lengths = tuple(self.count(n, path) for n in self.items(table["lengths"], path))
        total = sum(lengths)
        groups = tuple(
            self._term(term, f"{path}.{i}", total)
            for i, term in enumerate(self.items(table["groups"], path))
        )
        matrix = None
        if table["matrix"] is not None:
            matrix = self._sparse(table["matrix"], f"{path}.matrix")
            if matrix.shape != (total, total):
                self.bad(path, f"has a matrix {matrix.shape} for {total} samples")
        return Graph(lengths, groups, matrix)

    def _term(self, body: Any, path: str, total: int) -> GroupTerm:
        table = self.table(body, path, {"codes", "affinity", "names"})
        names = tuple(self.value(self.items(table["names"], path), path))
        for name in names:
            self._hashable(name, path)
        size = len(names)
        if len(set(names)) != size:
            self.bad(path, "names a group twice")
        codes = self.shaped(table["codes"], path, (total,), "i")
        affinity = self.shaped(table["affinity"], path, (size, size))
        if codes.size and not NO_GROUP <= codes.min() <= codes.max() < size:
            self.bad(path, "has samples in groups that do not exist")
        if not np.isfinite(affinity).all():
            self.bad(path, "has an affinity that is not finite")
        return GroupTerm(codes.astype(np.intp), np.asarray(affinity, float), names)

    # -- aligners and maps ------------------------------------------------------------

    def aligner(self, body: Any, path: str) -> BaseAligner:
        """Make an aligner of a known class, with what it learned."""
        table = self.table(body, path, {"class", "params", "state"})
        cls = aligner_class(table["class"])
        if cls is None:
            raise ModelFileError(
                f"{self.file} holds an aligner {str(table['class'])[:60]!r}, which "
                "this brainweave does not know. Update brainweave, or import the "
                "module that registers it."
            )
        params, state = table["params"], table["state"]
        if not isinstance(params, dict) or not isinstance(state, dict):
            self.bad(path, "has no parameters or no learned values")
        if set(params) - set(cls._get_param_names()):
            self.bad(path, f"has parameters that {cls.__name__} does not take")
        dot = f"{path}." if path else ""
        model = cls(**{k: self.value(v, f"{dot}{k}") for k, v in params.items()})
        if path and not state:  # a parameter, not fitted
            return model
        learned = {k: self.value(v, f"{dot}{k}") for k, v in state.items()}
        for name in learned:
            if not _ATTRIBUTE.fullmatch(name) or hasattr(cls, name):
                self.bad(path, f"has a learned value with the name {name[:60]!r}")
        self._check_learned(learned, cls.__name__, nested=bool(path))
        set_state = getattr(model, "_set_state", None)
        if set_state is not None:
            set_state(learned)
        else:
            for name, value in learned.items():
                setattr(model, name, value)
        bases = [m.basis for m in learned["maps_"] if m.basis is not None]
        if bases and len(bases) == len(learned["maps_"]):
            model.bases_ = bases
        return model

    def _check_learned(
        self, learned: dict[str, Any], name: str, *, nested: bool
    ) -> None:
        why = disagreement(learned, name, nested=nested)
        if why is not None:
            raise ModelFileError(f"{self.file} is damaged: {why}.")

    def floats(self, node: Any, path: str, ndim: int) -> NDArray[Any]:
        """Decode an array of real numbers with so many dimensions."""
        array = self.value(node, path)
        if not isinstance(array, np.ndarray) or array.dtype.kind != "f":
            self.bad(path, "is not an array of numbers")
        if array.ndim != ndim:
            self.bad(path, f"has {array.ndim} dimensions where {ndim} are needed")
        return array

    def flag(self, value: Any, path: str) -> bool:
        """Return a value that is true or false."""
        if not isinstance(value, bool):
            self.bad(path, "has a flag that is neither true nor false")
        return value

    def history(self, node: Any, path: str) -> list[float] | None:
        """Decode a list of numbers, or None."""
        if node is None:
            return None
        return [self.number(v, path) for v in self.items(node, path)]

    # -- bases and spaces -------------------------------------------------------------

    def _entry(self, what: str, number: Any, path: str) -> Any:
        entries = self.document.get(what)
        if (
            type(number) is not int
            or not isinstance(entries, list)
            or not 0 <= number < len(entries)
        ):
            self.bad(path, f"refers to one of its {what} that is not there")
        return entries[number]

    def basis(self, number: Any, path: str) -> StoredBasis:
        """Return a stored basis."""
        if isinstance(number, int) and number in self._bases:
            return self._bases[number]
        entry = self._entry("bases", number, path)
        basis = decode_basis(self, entry, f"basis {number}")
        self._bases[number] = basis
        return basis

    def space(self, number: Any, path: str, n_voxels: int) -> Any:
        """Return a stored brain space."""
        if number is None:
            return None
        if not isinstance(number, int) or number not in self._spaces:
            entry = self._entry("spaces", number, path)
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
                content = self.shaped(entry["file"], path, (None,), "u")
                paths.append(Path(folder) / f"space{i}{suffix}")
                paths[-1].write_bytes(content.tobytes())
            try:
                return load_space(table["kind"], paths)
            except Exception as error:  # whatever the image library makes of it
                self.bad(path, f"cannot be read ({error})")
