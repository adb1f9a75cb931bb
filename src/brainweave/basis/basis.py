r"""One subject's kernel coordinates: the only stage that touches voxels.

One streamed pass gives the inner products of its standardised samples. From these
follow, when first needed, the centred Gram matrix :math:`K`, its eigenpairs :math:`K =
V D V^\top` cut at an energy, and the coordinates :math:`V D^{1/2}` of the samples.
"""

from collections.abc import Callable
from copy import copy
from typing import Any, NamedTuple, Self, cast

import numpy as np
import scipy.linalg
from numpy.typing import NDArray

from brainweave._core.arrays import (
    Matrix,
    as_sendable,
    is_torch,
    to_numpy,
    working_dtype,
)
from brainweave._core.exceptions import InputError
from brainweave._core.labels import object_array
from brainweave._core.validation import check_fraction, check_samples, check_shape
from brainweave.basis.device import device_for
from brainweave.basis.kernels import (
    Centring,
    Kernel,
    center_gram,
    check_kernel,
    check_precomputed,
)
from brainweave.basis.reliability import Groups, repeated_groups, scale_of_chunks
from brainweave.basis.voxels import SampleProducts, VoxelPass, sample_signatures

#: What follows from one subject's Gram matrix alone, by kind, for fits that share it.
Memory = dict[str, dict[Any, Any]]
TIED = 1e-9  # eigenvalues that differ by less, relative to the largest, are equal


def recall(memory: Memory | None, kind: str, key: Any, make: Callable[[], Any]) -> Any:
    """Return what a memory, if there is one, keeps; or make it.

    Of a kind the last two are kept: of one half of the samples, and of the other.
    """
    known = {} if memory is None else memory.setdefault(kind, {})
    found = known[key] if key in known else known.setdefault(key, make())
    for before in list(known)[:-2]:
        known.pop(before, None)
    return found


class Spectrum(NamedTuple):
    """Eigenvalues and eigenvectors of a Gram matrix."""

    values: Matrix  # all positive ones, descending
    vectors: Matrix
    lost_share: float


def _n_for_energy(energy: float, values: Matrix, dtype: Any) -> int:
    """Return how many leading eigenvalues have this share of the sum of all roots.

    Eigenvalues equal to the last of them count too: their directions are arbitrary.
    """
    share = np.cumsum(np.sqrt(values))
    last = values[int(np.searchsorted(share, share[-1] * (energy - 1e-12)))]
    return int((values >= last - max(TIED, np.finfo(dtype).eps) * values[0]).sum())


class SubjectBasis(VoxelPass):
    """Kernel coordinates of one subject's samples.

    Parameters
    ----------
    X : array of shape (n_samples, n_voxels)
        NumPy array, memory map, anything 2-D that can be sliced by columns, or a torch
        tensor. With ``kernel="precomputed"``, the (n_samples, n_samples) Gram matrix.
    kernel : str, callable or Kernel, default="linear"
        See :mod:`brainweave.basis.kernels`.
    kernel_params : dict, optional
        ``{"hp": value}``.
    energy : float in (0, 1], default=1
        Share of the summed singular values (square roots of the eigenvalues) to keep:
        the smallest number of components that reaches it, and those as large as the
        last of them.
    standardize : bool or "reliability", default=True
        Give every voxel zero mean and unit variance; else zero mean only. Constant
        voxels are left out.
        "reliability" scales voxels by how reliably they answer to the groups; see
        :mod:`brainweave.basis.reliability`.
    groups : array-like of int, optional
        The group of each sample, negative for none: for "reliability". Where groups do
        not repeat, voxels are standardised as with True.
    runs : array-like, optional
        The run of each sample, for methods that leave runs out.
    name : str, default="X"
        How error messages call this subject.
    device : str or torch.device, optional
        Where torch reads the voxels and decomposes the Gram matrix, such as "cuda";
        samples are brought there chunk by chunk. By default tensors stay where they are
        and all else is done by NumPy.

    Attributes
    ----------
    id : str
        The subject's id, if it is known; else empty.
    runs : ndarray or None
        The run of each sample, if it is known.
    mean, scale : ndarray of shape (n_voxels,)
        What standardises new samples; the scale of a constant voxel is infinite.
    constant_voxels : ndarray of int
        Indices of the voxels that were left out.
    reliable : bool
        Whether voxels were scaled by their reliability.
    signatures : ndarray of shape (n_samples, 4)
        What identifies each sample by its content; see
        :func:`brainweave.basis.voxels.sample_signatures`.

    Notes
    -----
    Time O(n_samples^2 n_voxels + n_samples^3), memory O(n_samples^2) beside one chunk
    of columns. float32 data multiply in float32 and accumulate in float64. The data are
    referred to, not copied; voxel weights read them again, and refuse samples that were
    changed in place by more than rounding.

    Examples
    --------
    >>> X = np.random.default_rng(0).normal(size=(20, 300))
    >>> basis = SubjectBasis(X, energy=0.5)
    >>> bool(np.allclose(basis.vectors.T @ basis.vectors, np.eye(basis.n_kept)))
    True
    >>> basis.cut(0.25).n_kept < basis.n_kept
    True
    """

    space: Any = None  # where the voxels lie in the brain, if it is known
    #: Samples in places, given by who made a basis of some of a subject's samples.
    place_samples: Any = None
    memory: Memory | None = None  # of evaluations, whose folds share the basis
    _gram_is_linear = False  # of a precomputed one: known to who made it

    # what the pass over voxels left: the samples' inner products here, or on a device,
    # or the standardised samples, where voxels are fewer
    _products: Matrix | None = None
    _on_device: Any = None
    _narrow: Any = None
    # what follows from these, when it is first needed
    _centred: tuple[Matrix, Centring] | None = None
    _centring: Centring | None = None
    _spectrum: Spectrum | None = None
    _groups: NDArray[Any] | None = None  # by which voxels were scaled

    def __init__(
        self,
        X: Any,
        *,
        kernel: Any = "linear",
        kernel_params: Any = None,
        energy: float = 1.0,
        standardize: bool | str = True,
        groups: Any = None,
        runs: Any = None,
        name: str = "X",
        device: Any = None,
    ) -> None:
        self.name, self.id = name, ""
        self.energy = check_fraction("energy", energy, owner=name)
        self.kernel: Kernel = check_kernel(kernel, kernel_params, owner=name)
        self.n_samples, self.n_voxels = check_shape(X, name)
        self.runs: NDArray[Any] | None = None if runs is None else object_array(runs)
        if self.runs is not None and len(self.runs) != self.n_samples:
            raise InputError(
                f"{name} has {self.n_samples} samples and {len(self.runs)} runs. Give "
                "the run of every sample."
            )
        self.standardize, self.reliable = standardize, False
        self.dtype, self._data = working_dtype(X), X
        self._device = device_for(X, device)
        if self.kernel.name == "precomputed":
            gram = check_precomputed(to_numpy(X).astype(np.float64), name)
            self.mean = self.scale = np.empty(0)
            self.constant_voxels = np.empty(0, dtype=int)
            self.signatures = sample_signatures(gram)
            self._products, self._data = gram, None
            return
        narrow = self.uses_covariance
        read = self._read_voxels(narrow=narrow)
        if narrow:
            self._narrow = read
        elif is_torch(read):
            self._on_device = read
        else:
            self._products = read
        if standardize == "reliability" and groups is not None:
            repeated = repeated_groups(groups)
            if repeated is not None:
                self._weigh_voxels(repeated)
                self._groups = np.asarray(groups)

    def _weigh_voxels(self, groups: Groups) -> None:
        """Scale the standardised voxels anew, by how reliable they are."""
        again = scale_of_chunks(self.chunks(), self.n_voxels, groups)
        factor = np.where(np.isinf(self.scale), 0.0, 1 / again)
        self.scale = np.where(factor > 0, self.scale * again, np.inf)
        self.constant_voxels = np.flatnonzero(np.isinf(self.scale))
        if self._narrow is not None:
            self._narrow = (self._narrow * factor).astype(self.dtype)
        else:
            self._products = np.zeros((self.n_samples, self.n_samples))
            for _, z in self.chunks(verify=False):
                self._products += z @ z.T
            self.free_device_memory()  # there are products of voxels scaled otherwise
        self.reliable = True

    def __copy__(self) -> Self:
        other = type(self).__new__(type(self))
        vars(other).update(vars(self))
        return other

    def __getstate__(self) -> dict[str, Any]:
        # another process may have no such device
        state = vars(self) | {"_data": as_sendable(self._data), "_device": None}
        state["memory"] = None
        if self._on_device is not None:
            state |= {"_products": to_numpy(self._on_device), "_on_device": None}
        return state

    def without_matrices(self) -> Self:
        """Return a basis that reads and maps samples, and is light to send."""
        if not self.kernel.from_products:
            return self
        other = copy(self)
        other._products = other._narrow = other._on_device = None
        other._centred = other._spectrum = None
        return other

    @property
    def is_linear(self) -> bool:
        """Whether the Gram matrix is of voxels as they are, also one precomputed."""
        return self.kernel.name == "linear" or self._gram_is_linear

    @property
    def uses_covariance(self) -> bool:
        """Whether the voxel covariance is the smaller problem (linear kernel only)."""
        return self.kernel.name == "linear" and self.n_voxels < self.n_samples

    @property
    def narrow(self) -> Matrix:
        """The standardised samples in double precision, where voxels are fewer."""
        return np.asarray(self._narrow, np.float64)

    def products(self) -> Matrix:
        """Return the inner products of the standardised samples."""
        if self._products is None:
            if self._on_device is not None:
                self._products, self._on_device = to_numpy(self._on_device), None
            elif self._narrow is not None:
                self._products = np.asarray((X := self.narrow) @ X.T)
            else:  # given up to free memory, and needed after all
                known = self.signatures
                self._products = to_numpy(self._read_voxels(narrow=False))
                found, self.signatures = self.signatures, known
                self._refuse_changed(found)
        return self._products

    def _center(self) -> tuple[Matrix, Centring]:
        if self._centred is None:
            if self.kernel.function is not None:
                dense = self._dense(self._data)
                gram = self.kernel.call(dense, dense, self.name)
            elif self.kernel.from_products:
                products = self.products()
                squares = products.diagonal()
                with np.errstate(over="ignore", invalid="ignore"):
                    gram = self.kernel.up_to_constant(products, squares, squares)
            else:
                gram = self.products()
            self.kernel.check_gram(gram, self.name)
            # centred voxels give a centred linear kernel but for rounding: keep one
            own = self.kernel.name == "linear" and gram.flags.writeable
            self._centred = center_gram(gram, overwrite=own)
            self._centring = self._centred[1]
        return self._centred

    @property
    def gram(self) -> Matrix:
        """The centred Gram matrix of the samples."""
        return self._center()[0]

    @property
    def gram_on_device(self) -> Any:
        """The centred Gram matrix of a linear kernel, if it lies on a device."""
        if self._on_device is None or self.kernel.name != "linear":
            return None
        if self._centring is None:
            means = cast(Any, self._device).center(self._on_device)
            self._centring = Centring(means, float(means.mean()))
        return self._on_device

    def free_device_memory(self) -> None:
        """Free the device's memory; the Gram matrix is read again if it is needed."""
        self._on_device = None

    @property
    def is_decomposed(self) -> bool:
        """Whether the eigenvectors are known already."""
        return self._spectrum is not None

    def eigenbasis(self) -> Spectrum:
        """Return the eigenvalues that are not zero to rounding, and kept vectors."""
        if self._spectrum is not None:
            return self._spectrum
        covariance = self.uses_covariance
        values, vectors = self._eigenpairs(covariance)
        eps = np.finfo(self.dtype).eps
        floor = float(10 * np.sqrt(self.n_samples) * eps * max(values[0], 0))
        positive = int((values > floor).sum())  # others are zero to rounding
        if positive == 0:
            raise InputError(
                f"{self.name}: the kernel {self.kernel.name!r} gives the same value "
                "for all samples. Choose another hp, or the linear kernel."
            )
        negative = -values[values < -floor].sum()
        lost = abs(float(negative / (negative + values[:positive].sum())))
        values = values[:positive]
        vectors = vectors[:, : _n_for_energy(self.energy, values, self.dtype)]
        if is_torch(vectors):
            vectors = to_numpy(vectors.contiguous())
        elif covariance:
            own = values[: vectors.shape[1]]
            vectors = self.narrow @ (vectors / np.sqrt(own))
            if own[-1] < 1e-8 * own[0]:  # squaring cost the last their angles
                vectors = scipy.linalg.qr(vectors, mode="economic")[0]
        self._spectrum = Spectrum(values, np.ascontiguousarray(vectors), lost)
        return self._spectrum

    def _eigenpairs(self, covariance: bool) -> tuple[Matrix, Any]:
        """Return all eigenpairs, with descending eigenvalues."""
        device = cast(Any, self._device)
        if self.gram_on_device is not None:
            found = device.eigh(self.gram_on_device)
            self.free_device_memory()
            return cast(tuple[Matrix, Any], found)
        small = (X := self.narrow).T @ X if covariance else self.gram
        if device is not None:
            values, vectors = device.eigh(device.put(small))
            return values, to_numpy(vectors) if covariance else vectors
        values, vectors = np.linalg.eigh(small)
        return values[::-1], vectors[:, ::-1]

    @property
    def spectrum(self) -> Matrix:
        """All positive eigenvalues of the Gram matrix, descending, before the cut."""
        return self.eigenbasis().values

    @property
    def lost_share(self) -> float:
        """Share of the eigenvalues that a kernel with negative ones loses."""
        return self.eigenbasis().lost_share

    @property
    def n_kept(self) -> int:
        """How many components the energy keeps."""
        return _n_for_energy(self.energy, self.spectrum, self.dtype)

    @property
    def values(self) -> Matrix:
        """The kept eigenvalues, descending."""
        return self.spectrum[: self.n_kept]

    @property
    def vectors(self) -> Matrix:
        """The kept eigenvectors, (n_samples, n_kept), orthonormal columns."""
        return self.eigenbasis().vectors[:, : self.n_kept]

    @property
    def coordinates(self) -> Matrix:
        """Coordinates of the samples: ``vectors * sqrt(values)``."""
        return self.vectors * np.sqrt(self.values)

    # -- the Gram matrix as an operator, for methods that need no eigenbasis ----------

    @property
    def power(self) -> float:
        """Squared norm of the kept samples: the trace of the kept Gram matrix."""
        if self.energy < 1:
            return float(self.values.sum())
        if self.uses_covariance:
            return float((self.narrow**2).sum())
        if self.gram_on_device is not None:
            return float(self.gram_on_device.diagonal().sum())
        return float(np.trace(self.gram))

    def gram_times(self, S: Matrix) -> Matrix:
        """Multiply the kept Gram matrix with S, (n_samples, K), by the cheapest way."""
        if self.energy < 1:
            V = self.vectors
            return np.asarray(V @ (self.values[:, None] * (V.T @ S)))
        if self.uses_covariance:
            return np.asarray((X := self.narrow) @ (X.T @ S))
        if self.gram_on_device is not None:
            return to_numpy(self.gram_on_device @ cast(Any, self._device).put(S))
        return np.asarray((S.T @ self.gram).T)  # symmetric; the faster way round

    def restrict(self, mixing: Matrix) -> Matrix:
        """Project a mixing of samples, (n_samples, K), on the kept eigenvectors."""
        if self.energy == 1:
            return mixing
        return np.asarray(self.vectors @ (self.vectors.T @ mixing))

    def in_places(self, matrix: Any, dtype: Any = np.float64) -> Matrix:
        """Return the centred samples in places, (n_samples, n_places).

        They are means over the voxels of each place, by a sparse (n_voxels, n_places)
        matrix, zeros where there is none; None: voxels are places, in this precision.
        """
        if matrix is None:
            if self._narrow is not None:
                return np.asarray(self._narrow, dtype)
            whole = np.empty((self.n_samples, self.n_voxels), dtype)
            for columns, z in self.chunks():
                whole[:, columns] = z
            return whole
        if self._narrow is not None:
            return np.asarray(self.narrow @ matrix)
        found = np.zeros((self.n_samples, matrix.shape[1]))
        for columns, z in self.chunks():
            found += z @ matrix[columns]
        return found

    def cut(self, energy: float) -> Self:
        """Return the same basis at another energy; no voxel is read again."""
        energy = check_fraction("energy", energy, owner=self.name)
        if energy == self.energy:
            return self
        known = self.eigenbasis()  # once, for all energies
        other = copy(self)
        other.energy = energy
        if other.n_kept > known.vectors.shape[1]:  # not computed
            other._spectrum = None
        return other

    def with_kernel(self, kernel: Any, kernel_params: Any = None) -> "SubjectBasis":
        """Return the basis of another kernel from the same inner products."""
        new = check_kernel(kernel, kernel_params, owner=self.name)
        if new == self.kernel:
            return self
        if "precomputed" in (new.name, self.kernel.name):
            raise InputError(
                f"{self.name}: a precomputed Gram matrix cannot change its kernel."
            )
        if self.uses_covariance:
            self.products()  # once, for all kernels
        other = copy(self)
        other._centred = other._centring = other._spectrum = other.memory = None
        other.kernel = new
        if other.uses_covariance and self._narrow is None:
            other._narrow = self._dense(self._data)
        return other

    def check_samples(self, Z: Any, name: str) -> Any:
        """Refuse samples of this subject that its basis cannot map."""
        given = self.kernel.name == "precomputed"
        size, what = (self.n_samples, "columns") if given else (self.n_voxels, "voxels")
        return check_samples(Z, size, name, what)

    def kernel_to(self, Z: Any, name: str = "Z") -> Matrix:
        """Return the centred kernel of samples, or their products, to aligning ones."""
        centring = self._center()[1] if self._centring is None else self._centring
        if self.kernel.from_products:
            found = Z if isinstance(Z, SampleProducts) else self.products_with(Z, name)
            squares = np.zeros(self.n_samples)  # only one kernel has a use for them
            if self.kernel.name == "gaussian":
                squares = self.products().diagonal()
            cross = self.kernel.up_to_constant(found.cross, found.squares, squares)
            return centring.center_new(cross)
        Z = self.check_samples(Z, name)
        given = self.kernel.function is None
        samples = to_numpy(Z).astype(np.float64) if given else self._dense(Z)
        if not np.isfinite(samples).all():
            raise InputError(f"{name} has NaN or infinite values.")
        if not given:
            samples = self.kernel.call(samples, self._dense(self._data), name)
        return centring.center_new(samples)

    def products_with(self, Z: Any, name: str = "Z") -> SampleProducts:
        """Return the inner products of other samples with the aligning ones."""
        if self.kernel.name == "precomputed":
            raise InputError(f"{self.name} is a Gram matrix: it has no voxels.")
        return self._products_with(self.check_samples(Z, name), name)

    def project(self, Z: Any) -> Matrix:
        """Return the coordinates of other samples of this subject."""
        return self.kernel_to(Z) @ (self.vectors / np.sqrt(self.values))

    def weights(self, coef: Matrix) -> NDArray[Any]:
        """Turn coefficients (n_kept, K) into voxel weights (linear kernel alone)."""
        return self.combine(self.vectors @ (coef / np.sqrt(self.values)[:, None]))

    def combine(self, mixing: Matrix) -> NDArray[Any]:
        """Mix standardised samples into voxel patterns: ``X.T @ mixing``."""
        if self.kernel.name != "linear":
            raise InputError(
                f"{self.name}: only the linear kernel has voxel weights; this is the "
                f"{self.kernel.name} kernel."
            )
        return self._combine(mixing)
