"""From fitted objects to a JSON document and named arrays.

Numbers, texts and lists are themselves in JSON. Everything else is a table with one
entry whose key says what it is: ``{"array": name}``, ``{"tuple": [...]}``, and so on;
:mod:`brainweave.models.decode` reads exactly these and nothing more.
"""

import math
import tempfile
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse

from brainweave._arrays import to_numpy
from brainweave.aligners.base import BaseAligner
from brainweave.aligners.maps import SubjectMap
from brainweave.basis import SubjectBasis
from brainweave.exceptions import ModelFileError
from brainweave.graphs import Graph, GroupTerm
from brainweave.models.container import CODES, PendingArray, pending
from brainweave.models.maps import encode_map
from brainweave.models.registry import aligner_class

# learned, but as large as the data: maps go without them
LEFT_BEHIND = ("bases_", "individual_")


class Encoder:
    """Collects the arrays, bases and brain spaces that a document refers to."""

    def __init__(self) -> None:
        self.arrays: dict[str, PendingArray] = {}
        self.bases: list[Any] = []
        self.spaces: list[Any] = []
        self._known_arrays: dict[int, tuple[str, Any]] = {}
        self._known_bases: list[SubjectBasis] = []
        self._known_spaces: list[Any] = []

    # -- plain values -----------------------------------------------------------------

    def value(self, value: Any, path: str) -> Any:
        """Encode anything that a model may hold; path says where it is."""
        if isinstance(value, np.generic):
            value = value.item()
        if value is None or isinstance(value, (bool, int, str)):
            return value
        if isinstance(value, float):
            return value if math.isfinite(value) else {"float": repr(value)}
        if isinstance(value, range):
            value = list(value)
        if isinstance(value, list):
            return [self.value(v, f"{path}.{i}") for i, v in enumerate(value)]
        if isinstance(value, tuple):
            items = [self.value(v, f"{path}.{i}") for i, v in enumerate(value)]
            return {"tuple": items}
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
        if scipy.sparse.issparse(value):
            value = scipy.sparse.csr_array(value)
        kinds: dict[type, tuple[str, Any]] = {
            scipy.sparse.csr_array: ("sparse", self._sparse),
            Graph: ("graph", self._graph),
            BaseAligner: ("aligner", self.aligner),
            SubjectMap: ("map", partial(encode_map, self)),
            SubjectBasis: ("basis", self.basis),
        }
        for kind, (tag, encode) in kinds.items():
            if isinstance(value, kind):
                return {tag: encode(value, path)}
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
        known = self._known_arrays.get(id(array))
        if known is None:
            # the reference keeps the id from being given to another array
            known = self._known_arrays[id(array)] = (path, array)
            self.add(path, pending(array))
        return {"array": known[0]}

    def add(self, name: str, array: PendingArray) -> str:
        """Store an array under a name of its own; return the name."""
        if name in self.arrays or name == "__metadata__":
            raise ModelFileError(f"Two arrays of the model have the name {name!r}.")
        self.arrays[name] = array
        return name

    def _sparse(self, matrix: scipy.sparse.csr_array, path: str) -> dict[str, Any]:
        matrix.sum_duplicates()
        return {
            "shape": [int(n) for n in matrix.shape],
            "data": self.add(f"{path}.data", pending(matrix.data)),
            "indices": self.add(f"{path}.indices", pending(matrix.indices)),
            "indptr": self.add(f"{path}.indptr", pending(matrix.indptr)),
        }

    # -- the package's own objects ----------------------------------------------------

    def _graph(self, graph: Graph, path: str) -> dict[str, Any]:
        groups = [
            self._term(term, f"{path}.{i}") for i, term in enumerate(graph.groups)
        ]
        matrix = graph.matrix
        return {
            "lengths": [int(n) for n in graph.lengths],
            "groups": groups,
            "matrix": None
            if matrix is None
            else self._sparse(scipy.sparse.csr_array(matrix), f"{path}.matrix"),
        }

    def _term(self, term: GroupTerm, path: str) -> dict[str, Any]:
        codes = term.codes.astype(np.int32)
        return {
            "codes": self.add(f"{path}.codes", pending(codes)),
            "affinity": self.add(f"{path}.affinity", pending(term.affinity)),
            "names": self.value(list(term.names), f"{path}.names"),
        }

    def aligner(self, model: BaseAligner, path: str = "") -> dict[str, Any]:
        """Encode a fitted aligner: its class by name, its parameters, what it learned.

        What it learned are its attributes whose names end in ``_``, or what its
        method ``_get_state`` gives, a dict; what is as large as the data stays behind.
        """
        name = type(model).__name__
        if aligner_class(name) is not type(model):
            remedy = (
                "Save its best_estimator_."
                if hasattr(model, "best_estimator_")
                else "Decorate the class with brainweave.models.register_aligner."
            )
            raise ModelFileError(
                f"{name} is not an aligner that model files know. {remedy}"
            )
        if not path and not hasattr(model, "maps_"):
            raise ModelFileError(f"This {name} is not fitted yet: call fit, then save.")
        get_state = getattr(model, "_get_state", None)
        learned = get_state() if get_state is not None else vars(model)
        dot = f"{path}." if path else ""
        return {
            "class": name,
            "params": {
                key: self.value(value, f"{dot}{key}")
                for key, value in _params(model).items()
            },
            "state": {
                key: self.value(value, f"{dot}{key}")
                for key, value in learned.items()
                if key.endswith("_") and key[0] != "_" and key not in LEFT_BEHIND
            },
        }

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

    # -- bases -------------------------------------------------------------------------

    def basis(self, basis: SubjectBasis, path: str) -> int:
        """Store a basis once; return its number.

        Arrays: ``vectors`` and ``spectrum``; ``mean`` and ``scale`` of the voxels;
        ``products``, the samples' inner products, or ``narrow``, the standardised
        samples, where voxels are fewer; ``signatures`` of the samples; and for voxels
        ``loadings`` (linear kernel) or ``samples`` (the others).
        """
        for number, known in enumerate(self._known_bases):
            if known is basis:
                return number
        kernel = basis.kernel
        if kernel.function is not None:
            raise ModelFileError(
                f"{basis.name} has a function as its kernel, which a file cannot hold: "
                "loading must never run code. Use a kernel by name, or "
                "kernel='precomputed' with your Gram matrices."
            )
        parts: dict[str, PendingArray] = {
            "vectors": pending(np.ascontiguousarray(basis.vectors)),
            "spectrum": pending(basis.spectrum),
            "mean": pending(basis.mean),
            "scale": pending(basis.scale),
        }
        if basis.signatures is not None:
            parts["signatures"] = pending(basis.signatures)
        if basis.uses_covariance:
            parts["narrow"] = pending(basis._narrow)
        else:
            parts["products"] = pending(basis._products)
        data = basis._data
        if kernel.name not in ("linear", "precomputed"):
            # read when written: a lazy or mapped array is in memory only then
            raw = to_numpy(data) if not isinstance(data, np.ndarray) else data
            parts["samples"] = pending(raw)
            parts["shift"] = pending(basis._shift)
        elif kernel.name == "linear" and not basis.uses_covariance:
            shape = (basis.n_voxels, basis.n_kept)
            parts["loadings"] = PendingArray(
                shape, basis.dtype, lambda: basis.combine(basis.vectors)
            )
        self._known_bases.append(basis)
        number = len(self.bases)
        self.bases.append(
            {
                "name": basis.name,
                "kernel": kernel.name,
                "hp": kernel.hp,
                "energy": basis.energy,
                "standardize": basis.standardize
                if isinstance(basis.standardize, str)
                else bool(basis.standardize),
                "dtype": basis.dtype.name,
                "shape": [basis.n_samples, basis.n_voxels],
                "lost_share": basis.lost_share,
                "offset": float(getattr(basis, "_offset", 0.0)),
                "arrays": {
                    key: self.add(f"{path}.{key}", array)
                    for key, array in parts.items()
                },
            }
        )
        return number


def _params(model: BaseAligner) -> dict[str, Any]:
    """Return the parameters; the graph that a function made stands for the function."""
    params = dict(model.get_params(deep=False))
    if callable(params.get("progress")):
        params["progress"] = False  # it belongs to the session that fitted
    graph = params.get("graph")
    if callable(graph) and isinstance(getattr(model, "graph_", None), Graph):
        params["graph"] = vars(model)["graph_"]
    return params
