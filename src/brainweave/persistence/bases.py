r"""Subjects' bases in files, and basis files.

A linear basis is stored without the samples: :math:`X^\top V`, the voxel patterns of
the kept directions, serves for all voxel weights, and is read only when those are
wanted. Other kernels compare new samples with the aligning ones, so these are stored.
"""

from collections.abc import Iterator, Mapping
from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from brainweave._core.arrays import LazyArray, Matrix, to_numpy
from brainweave._core.exceptions import InputError, ModelFileError
from brainweave.basis.basis import Spectrum, SubjectBasis
from brainweave.basis.kernels import NAMES, Kernel, check_kernel
from brainweave.basis.signatures import N_SIGNATURES
from brainweave.basis.voxels import SampleProducts
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
        self._stored_vectors = arrays["vectors"]
        self._spectrum = Spectrum(
            arrays["spectrum"], arrays["vectors"], values["lost_share"]
        )
        self._loadings: Any = arrays.get("loadings")
        self._data = arrays.get("samples")
        self._products, self._narrow = arrays.get("products"), arrays.get("narrow")
        self._shift = arrays.get("shift", np.zeros(self.n_samples))
        self._offset = values["offset"]
        self.id = ""
        self.labels: NDArray[Any] | None = None
        self.runs = None
        self.stimuli: NDArray[Any] | None = None
        self.space: Any = None

    def with_kernel(self, kernel: Any, kernel_params: Any = None) -> SubjectBasis:
        """Return the basis of another kernel, if the samples were stored."""
        other = super().with_kernel(kernel, kernel_params)
        if other is not self and self._data is None:
            raise InputError(
                f"{self.name} was stored for the {self.kernel.name} kernel, without "
                f"its samples; the {other.kernel.name} kernel needs them. Make its "
                "basis again with that kernel."
            )
        return other

    # -- voxel weights and new samples without the aligning samples -------------------

    def _voxel_loadings(self) -> NDArray[Any]:
        if self._loadings.shape[1] < self.n_kept:
            raise InputError(
                f"{self.name} was stored with {self._loadings.shape[1]} directions, "
                f"fewer than the {self.n_kept} of energy {self.energy}. Make its basis "
                "again with that energy."
            )
        return self._loadings

    def combine(self, mixing: Matrix) -> NDArray[Any]:
        """Mix standardised samples into voxel patterns: ``X.T @ mixing``."""
        if self._data is not None or self.kernel.name != "linear":
            return super().combine(mixing)
        if self._narrow is not None:
            return np.asarray(self._narrow.T @ mixing, dtype=self.dtype)
        loadings = self._voxel_loadings()
        small = (self._stored_vectors.T @ mixing).astype(loadings.dtype)
        return np.asarray(loadings @ small, dtype=self.dtype)

    def products_with(self, Z: Any, name: str = "Z") -> SampleProducts:
        """Return the inner products of other samples with the aligning ones."""
        if self._data is not None or self.kernel.name != "linear":
            return super().products_with(Z, name)
        Z = self.check_samples(Z, name)
        narrow = self._narrow
        loadings = self._voxel_loadings() if narrow is None else narrow.T
        squares, shift = np.zeros(Z.shape[0]), np.zeros(Z.shape[0])
        total: Any = 0.0
        for columns, z in self._standardized(Z):
            values = to_numpy(z).astype(np.float64)
            total = total + values @ loadings[columns]
            squares += (values * values).sum(axis=1)
            if not self.standardize:
                shift += values @ self.mean[columns]
        if not np.isfinite(squares).all():
            raise InputError(f"{name} has NaN or infinite values.")
        cross = total if narrow is not None else total @ self._stored_vectors.T
        return SampleProducts(np.asarray(cross), squares, shift)

    def chunks(self, *, verify: bool = True) -> Iterator[tuple[slice, Any]]:
        """Yield the standardised aligning samples, if they were stored."""
        if self._data is not None or self.kernel.name == "precomputed":
            return super().chunks(verify=verify)
        if self._narrow is not None:
            whole = np.asarray(self._narrow, dtype=self.dtype)
            return iter([(slice(0, self.n_voxels), whole)])
        raise InputError(
            f"{self.name} was stored without its samples. Use the study itself."
        )


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
    if kernel == "linear" and v < n:
        return kinds | {"narrow": "n v"}  # the standardised samples are the smaller
    kinds["products"] = "n n"
    if kernel == "linear":
        kinds["loadings"] = "v k"
    elif kernel != "precomputed":
        kinds |= {"samples": "n v of real", "shift": "n"}
    return kinds


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
    if name == "loadings":
        shape = (basis.n_voxels, basis.n_kept)
        return LazyArray(shape, basis.dtype, lambda: basis.combine(basis.vectors))
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
    """Write what alignment needs of one subject, so that voxels are not read again.

    A linear basis holds the eigenpairs at its energy, the inner products of the
    samples, and the voxel patterns of the kept directions (n_voxels x n_kept), which
    are read only for voxel weights. Other kernels hold their samples.

    Parameters
    ----------
    basis : SubjectBasis
        Its energy decides how much is stored: alignment can use this or less.
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
