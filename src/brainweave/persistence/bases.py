"""Subjects' bases in files: the samples, and what alignment computes of them."""

from collections.abc import Mapping
from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from brainweave._core.arrays import to_numpy
from brainweave._core.exceptions import ModelFileError
from brainweave.basis.basis import Spectrum, SubjectBasis
from brainweave.basis.kernels import NAMES, Kernel, check_kernel
from brainweave.basis.signatures import N_SIGNATURES
from brainweave.persistence.codec import KINDS, Kind, Node, OpenFile, Writer
from brainweave.persistence.container import (
    BASIS,
    read_container,
    write_document,
)

_PER_SAMPLE = ("labels", "runs", "stimuli")


class StoredBasis(SubjectBasis):
    """A basis made from stored arrays; use it wherever a :class:`SubjectBasis` goes.

    Attributes
    ----------
    id : str
        The subject's id, if it was stored.
    labels, runs, stimuli : ndarray or None
        What is known of the samples, so that ``GDM().fit(bases)`` needs nothing else.
    space : object or None
        How voxels lie in the brain.
    """

    labels: NDArray[Any] | None = None
    stimuli: NDArray[Any] | None = None
    space: Any = None

    def __init__(
        self, values: Mapping[str, Any], kernel: Kernel, arrays: Mapping[str, Any]
    ) -> None:
        self.name, self.kernel, self.energy = values["name"], kernel, values["energy"]
        self.standardize, self.dtype = values["standardize"], np.dtype(values["dtype"])
        self.reliable = self.standardize == "reliability"
        self.n_samples, self.n_voxels = values["shape"]
        self.mean, self.scale = arrays["mean"], arrays["scale"]
        self.constant_voxels = np.flatnonzero(np.isinf(self.scale))
        self.signatures = arrays["signatures"]
        self._spectrum = Spectrum(
            arrays["spectrum"], arrays["vectors"], values["lost_share"]
        )
        self._data = arrays.get("samples")
        self._products, self._narrow = arrays.get("products"), arrays.get("narrow")
        self._shift = arrays.get("shift", np.zeros(self.n_samples))
        self._offset = values["offset"]
        self.id, self.runs = "", None


# -- bases as values -------------------------------------------------------------------


def _is_number(value: Any) -> bool:
    return type(value) is float and abs(value) < 1e300


# what is stored of every basis, and what it must be
_VALUES: dict[str, Any] = {
    "name": str,
    "kernel": lambda name: name in NAMES,
    "hp?": object,
    "energy": _is_number,
    "standardize": lambda how: how in (True, False, "reliability"),
    "dtype": lambda name: name in ("float32", "float64"),
    "shape": [int],
    "lost_share": _is_number,
    "offset": _is_number,
}


def _array_kinds(kernel: str, n: int, v: int) -> dict[str, str]:
    """Return the arrays of a basis: k of s directions, u standardised voxels."""
    kinds = {"vectors": "n k", "spectrum": "s", "mean": "u", "scale": "u"}
    kinds["signatures"] = f"n {N_SIGNATURES}"
    if kernel == "precomputed":
        return kinds | {"products": "n n"}
    kinds |= {"samples": "n v of real", "shift": "n"}
    # the standardised samples, where voxels are fewer
    return kinds | (
        {"narrow": "n v"} if kernel == "linear" and v < n else {"products": "n n"}
    )


def _write_basis(writer: Writer, basis: SubjectBasis, path: str) -> dict[str, Any]:
    kernel = basis.kernel
    if kernel.function is not None:
        raise ModelFileError(
            f"{basis.name} has a function as its kernel, which a file cannot hold: "
            "loading must never run code. Use a kernel by name, or "
            "kernel='precomputed' with your Gram matrices."
        )
    names = _array_kinds(kernel.name, basis.n_samples, basis.n_voxels)
    values = {
        "name": basis.name,
        "kernel": kernel.name,
        "hp": kernel.hp,
        "energy": float(basis.energy),
        "standardize": basis.standardize,
        "dtype": basis.dtype.name,
        "shape": [basis.n_samples, basis.n_voxels],
        "lost_share": float(basis.lost_share),
        "offset": float(getattr(basis, "_offset", 0.0)),
    }
    arrays = {name: _stored_array(basis, name) for name in names}
    encoded = writer.encode_table(values, path)
    return {**encoded, "arrays": writer.encode_table(arrays, path)}


def _stored_array(basis: SubjectBasis, name: str) -> Any:
    if name == "products":
        return np.ascontiguousarray(basis.products())
    private = {"samples": "_data", "narrow": "_narrow", "shift": "_shift"}
    return np.ascontiguousarray(to_numpy(getattr(basis, private.get(name, name))))


def _read_basis(node: Node) -> StoredBasis:
    """Make a basis after checking every part of it."""
    node.check_keys("arrays", *(key.rstrip("?") for key in _VALUES))
    values = {key: node[key].decode() for key in node.value if key != "arrays"}
    node.check_values(values, _VALUES, {})
    n, v = values["shape"]
    if n < 2 or v < 1 or not 0 < values["energy"] <= 1:
        node.refuse("has too few samples or voxels, or a wrong energy")
    hp = {} if values["hp"] is None else {"hp": values["hp"]}
    kernel = check_kernel(values["kernel"], hp, owner=node.path)
    kinds = _array_kinds(kernel.name, n, v)
    node["arrays"].check_keys(*kinds)
    arrays = node["arrays"].decode_table()
    sizes = {"n": n, "v": v, "u": 0 if kernel.name == "precomputed" else v}
    node["arrays"].check_values(arrays, kinds, sizes)
    spectrum = arrays["spectrum"]
    positive = spectrum.size and np.isfinite(spectrum).all() and spectrum[-1] > 0
    if not positive or (np.diff(spectrum) > 0).any():
        node.refuse("has a spectrum that is not one")
    basis = StoredBasis(values, kernel, arrays)
    if not 1 <= basis.n_kept <= sizes["k"] <= sizes["s"]:
        node.refuse(f"keeps {basis.n_kept} of {sizes['k']} directions of {sizes['s']}")
    return basis


KINDS["basis"] = Kind(
    lambda value: isinstance(value, SubjectBasis), _write_basis, _read_basis, once=True
)


# -- basis files -----------------------------------------------------------------------


def save_basis(
    basis: SubjectBasis,
    path: str | PathLike[str],
    *,
    subject: Any = None,
    provenance: Mapping[str, Any] | None = None,
) -> Path:
    """Write one subject's samples and what alignment computes of them.

    The file holds the samples, their inner products, and the eigenpairs at the energy
    of the basis, so that alignment reads voxels only for voxel weights.

    Parameters
    ----------
    basis : SubjectBasis
        What was computed of the subject's samples.
    path : path
        Where to; the suffix must be ``.safetensors``.
    subject : Subject, optional
        Whose basis it is: its id, labels, runs, stimuli and space are stored.
    provenance : mapping, optional
        How it was made.

    Returns
    -------
    Path
        The file.
    """
    if not isinstance(basis, SubjectBasis):
        raise TypeError(f"save_basis takes a SubjectBasis, got {type(basis).__name__}.")
    subject = basis if subject is None else subject
    more = {key: getattr(subject, key, None) for key in (*_PER_SAMPLE, "space")}
    more["id"] = str(getattr(subject, "id", ""))
    return write_document(Path(path), BASIS, basis, more, provenance)


def load_basis(path: str | PathLike[str], *, verify: bool = True) -> StoredBasis:
    """Read a basis file; it goes wherever a subject's samples go in ``fit``.

    Parameters
    ----------
    path : path
        What :func:`save_basis` wrote.
    verify : bool, default=True
        Compare the checksums of all arrays.

    Returns
    -------
    StoredBasis
        A :class:`SubjectBasis` that also knows its ``id``, ``labels``, ``runs``,
        ``stimuli`` and ``space``.
    """
    return basis_from(read_container(Path(path), kind=BASIS, verify=verify))


def basis_from(file: OpenFile) -> StoredBasis:
    """Make the basis of an open file."""
    with file.reading() as document:
        basis = document["basis"].decode()
        if not isinstance(basis, StoredBasis):
            document["basis"].refuse("is not a basis")
        basis.id = str(document["id"].value)
        for key in _PER_SAMPLE:
            values = document[key].decode()
            if values is not None:
                if np.shape(values) != (basis.n_samples,):
                    document[key].refuse(
                        f"are not one for each of {basis.n_samples} samples"
                    )
                values = np.array(values)  # used one by one: out of the mapped file
            setattr(basis, key, values)
        basis.space = document["space"].decode()
        if basis.space is not None and basis.space.n_voxels != basis.n_voxels:
            document["space"].refuse(f"has other than {basis.n_voxels} voxels")
    return basis
