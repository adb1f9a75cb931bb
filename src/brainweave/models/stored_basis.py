r"""A subject's basis as it comes back from a file.

A linear basis is stored without the samples: :math:`X^\top V`, the voxel patterns of
the kept directions, serves for all voxel weights, and is read only when those are
wanted. Other kernels compare new samples with the aligning ones, so these are stored.
"""

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, Self

import numpy as np
from numpy.typing import NDArray

from brainweave._arrays import to_numpy
from brainweave.basis import SampleProducts, SubjectBasis, _Spectrum
from brainweave.exceptions import BrainweaveError, InputError
from brainweave.kernels import NAMES, Kernel, check_kernel
from brainweave.voxels import N_SIGNATURES, sample_signatures

if TYPE_CHECKING:
    from brainweave.models.decode import Decoder

Matrix = NDArray[np.float64]


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
        self,
        *,
        kernel: Kernel,
        energy: float,
        standardize: bool | str,
        name: str,
        dtype: np.dtype[Any],
        shape: tuple[int, int],
        mean: Matrix,
        scale: Matrix,
        vectors: Matrix,
        spectrum: Matrix,
        lost_share: float,
        products: Matrix | None = None,
        narrow: Matrix | None = None,
        loadings: NDArray[Any] | None = None,
        samples: NDArray[Any] | None = None,
        signatures: Matrix | None = None,
        shift: Matrix | None = None,
        offset: float = 0.0,
    ) -> None:
        self.name, self.kernel, self.energy = name, kernel, energy
        self.standardize, self.dtype = standardize, dtype
        self.reliable = standardize == "reliability"
        self.n_samples, self.n_voxels = shape
        self.mean, self.scale = mean, scale
        self.constant_voxels = np.flatnonzero(np.isinf(scale))
        self._stored = vectors
        self._spectrum = _Spectrum(spectrum, vectors, lost_share)
        self._loadings = loadings
        self._data = samples
        if products is not None:
            self._products = products
        if narrow is not None:
            self._narrow = narrow
        if signatures is None and samples is not None:
            signatures = sample_signatures(samples)  # a file of version 1
        self.signatures = signatures
        self._shift = np.zeros(self.n_samples) if shift is None else shift
        self._offset = offset
        self.id = ""
        self.labels: NDArray[Any] | None = None
        self.runs: NDArray[Any] | None = None
        self.stimuli: NDArray[Any] | None = None
        self.space: Any = None

    def cut(self, energy: float) -> Self:
        """Return the same basis at another energy."""
        other = super().cut(energy)
        if other.n_kept > self._spectrum.vectors.shape[1]:
            # the directions that were not stored follow from the inner products
            other.__dict__.pop("_spectrum", None)
        return other

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
        if self._loadings is None:
            raise InputError(
                f"{self.name} was stored without its voxels, so it has no voxel "
                "weights. Make its basis again."
            )
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
        if "_narrow" in self.__dict__:
            return np.asarray(self._narrow.T @ mixing, dtype=self.dtype)
        loadings = self._voxel_loadings()
        small = (self._stored.T @ mixing).astype(loadings.dtype)
        out = np.empty((self.n_voxels, mixing.shape[1]), dtype=self.dtype)
        step = max(256, 2**20 // max(1, loadings.shape[1]))
        for start in range(0, self.n_voxels, step):
            rows = slice(start, start + step)
            out[rows] = loadings[rows] @ small
        return out

    def products_with(self, Z: Any, name: str = "Z") -> SampleProducts:
        """Return the inner products of other samples with the aligning ones."""
        if self._data is not None or self.kernel.name != "linear":
            return super().products_with(Z, name)
        Z = self.check_samples(Z, name)
        narrow = self.__dict__.get("_narrow")
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
        cross = total if narrow is not None else total @ self._stored.T
        return SampleProducts(np.asarray(cross), squares, shift)

    def chunks(self, *, verify: bool = True) -> Iterator[tuple[slice, Any]]:
        """Yield the standardised aligning samples, if they were stored."""
        if self._data is not None or self.kernel.name == "precomputed":
            return super().chunks(verify=verify)
        if "_narrow" in self.__dict__:
            whole = np.asarray(self._narrow, dtype=self.dtype)
            return iter([(slice(0, self.n_voxels), whole)])
        raise InputError(
            f"{self.name} was stored without its samples. Use the study itself."
        )


def decode_basis(of: "Decoder", body: Any, path: str) -> StoredBasis:
    """Make the basis that a table describes, after checking every part of it."""
    keys = {"name", "kernel", "hp", "energy", "standardize", "dtype", "shape"}
    table = of.table(body, path, keys | {"lost_share", "offset", "arrays"})
    texts = isinstance(table["name"], str) and table["kernel"] in NAMES
    if not texts or table["dtype"] not in ("float32", "float64"):
        of.bad(path, "has an unknown kernel or type")
    if not isinstance(table["standardize"], bool) and (
        table["standardize"] != "reliability"
    ):
        of.bad(path, "does not say whether it is standardised")
    sides = of.items(table["shape"], path)
    if len(sides) != 2:
        of.bad(path, "has no shape")
    n, v = (of.count(side, path) for side in sides)
    energy = of.number(table["energy"], path)
    if n < 2 or v < 1 or not 0 < energy <= 1:
        of.bad(path, "has too few samples or voxels, or a wrong energy")
    try:
        hp = {} if table["hp"] is None else {"hp": table["hp"]}
        kernel = check_kernel(table["kernel"], hp, owner=path)
    except BrainweaveError as error:
        of.bad(path, f"has a wrong kernel: {error}")
    basis = StoredBasis(
        kernel=kernel,
        energy=energy,
        standardize=table["standardize"],
        name=table["name"],
        dtype=np.dtype(table["dtype"]),
        shape=(n, v),
        lost_share=of.number(table["lost_share"], path),
        offset=of.number(table["offset"], path),
        **_decode_arrays(of, table["arrays"], path, kernel=kernel.name, shape=(n, v)),
    )
    if basis.n_kept > basis.vectors.shape[1]:
        of.bad(path, "has fewer directions than its energy keeps")
    return basis


def _decode_arrays(
    of: "Decoder", names: Any, path: str, *, kernel: str, shape: tuple[int, int]
) -> dict[str, Any]:
    n, v = shape
    precomputed = kernel == "precomputed"
    voxels = 0 if precomputed else v
    needed: dict[str, tuple[int | None, ...]] = {
        "vectors": (n, None),
        "spectrum": (None,),
        "mean": (voxels,),
        "scale": (voxels,),
    }
    if kernel == "linear" and v < n:
        needed["narrow"] = (n, v)
    else:
        needed["products"] = (n, n)
        if kernel == "linear":
            needed["loadings"] = (v, None)
        elif not precomputed:
            needed |= {"samples": (n, v), "shift": (n,)}
    # files of version 1 have no signatures, and sums per voxel that are not used
    optional = {"signatures": (n, N_SIGNATURES), "probed": (v,)}
    present = set(names) if isinstance(names, dict) else set()
    needed |= {key: dims for key, dims in optional.items() if key in present}
    table = of.table(names, path, set(needed))
    out = {
        key: of.shaped(
            table[key], f"{path}.{key}", dims, "fiub" if key == "samples" else "f"
        )
        for key, dims in needed.items()
        if key != "probed"
    }
    kept, spectrum = out["vectors"].shape[1], out["spectrum"]
    positive = spectrum.size and np.isfinite(spectrum).all() and spectrum[-1] > 0
    if not positive or (np.diff(spectrum) > 0).any():
        of.bad(path, "has a spectrum that is not one")
    if not 1 <= kept <= spectrum.size:
        of.bad(path, f"has {kept} directions of {spectrum.size}")
    if kernel == "linear" and v >= n and out["loadings"].shape[1] != kept:
        of.bad(path, "has voxel patterns of other directions")
    return out
