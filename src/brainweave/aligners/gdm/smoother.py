r"""The ridge smoother :math:`S = K (K + g I)^{-1}` of one subject, in three kinds.

By the Gram matrix of its samples; by the samples themselves, where voxels are fewer; or
by a Gram matrix that lies on a device, with all products there. ``strength`` is the
ridge g, in units of the centred Gram matrix.
"""

# ruff: noqa: D102 (the methods are described in the first class)

from abc import ABC, abstractmethod
from copy import copy
from functools import cached_property
from typing import Any, cast

import numpy as np
import scipy.linalg
import scipy.sparse

from brainweave._core.arrays import Codes, Matrix, to_numpy
from brainweave._core.exceptions import InputError
from brainweave.basis.basis import Memory, recall
from brainweave.basis.device import Device


class Smoother(ABC):
    """What all kinds have in common."""

    n_samples: int
    #: Whether products of voxels are kept beside the factor; else computed again.
    keeps_products = True
    #: Where evaluations keep what several fits need of a subject's samples.
    memory: Memory | None = None

    def __init__(self, strength: float, name: str) -> None:
        self.strength, self.name = float(strength), name
        if not 0 < self.strength < np.inf:
            raise InputError(
                f"The ridge of {name} must be larger than 0 and finite; got "
                f"{self.strength}. Samples that are all alike cannot be aligned."
            )

    @property
    @abstractmethod
    def gram(self) -> Matrix:
        """The centred Gram matrix."""

    @property
    def mean_eigenvalue(self) -> float:
        """The mean eigenvalue of the Gram matrix."""
        return mean_eigenvalue(self.gram)

    _factorise: Any  # returns what cho_solve takes, of K + g or its counterpart

    @cached_property
    def _stored_factor(self) -> Any:
        """The Cholesky factor; of many, its size and one triangle."""
        factor = self._factorise()
        if self.keeps_products:
            return factor
        return len(factor[0]), scipy.linalg.lapack.dtrttp(factor[0])[0]

    @property
    def _factor(self) -> Any:
        if self.keeps_products:
            return self._stored_factor
        return scipy.linalg.lapack.dtpttr(*self._stored_factor)[0], False

    @abstractmethod
    def _solve(self, B: Matrix) -> Matrix:
        """Return ``(K + g)^-1 B`` for centred B."""

    @abstractmethod
    def features(self, mixing: Matrix) -> Matrix:
        """Return the features ``K @ mixing`` of the aligning samples."""

    def _inverse_blocks(self, blocks: list[Codes]) -> list[Matrix]:
        """Return ``(K + g)^-1`` for the rows and columns of each block."""
        raise NotImplementedError

    def _inverse_factor(self) -> Matrix:
        """Return T with ``T^T T`` the inverse; it is not kept, there are many."""
        return _invert_lower(self._factor[0].T)

    @abstractmethod
    def subset(self, rows: Codes) -> "Smoother":
        """Return the smoother of some of the samples, centred again."""

    def shared_subset(self, rows: Codes) -> "Smoother":
        """Return the same in a form that serves all ridges, if several fits ask."""
        if self.memory is None:
            return self.subset(rows)

        def eigenpairs() -> Any:
            part = self.subset(rows)
            # samples that are all alike leave rounding, whose factor may fail
            some = part.mean_eigenvalue > 1e-9 * self.mean_eigenvalue
            of_gram = isinstance(part, GramSmoother)
            return np.linalg.eigh(part.gram) if some and of_gram else None

        found = recall(self.memory, "eigenpairs", rows.tobytes(), eigenpairs)
        return SpectralSmoother(*found, name=self.name) if found else self.subset(rows)

    def coefficients(self, target: Any) -> Matrix:
        """Return what features of any samples are linear in: see :meth:`between`."""
        return self._solve(_centred(target))

    def coefficients_of(self, U: Any, of_U: Matrix, Z: Matrix, of_Z: Matrix) -> Matrix:
        """Return :meth:`coefficients` of mixtures of columns."""
        return self.coefficients(U @ of_U + Z @ of_Z)

    def between(self, to: Codes, of: Codes) -> Matrix:
        """Return what takes coefficients of some samples to features of others."""
        return self.gram[np.ix_(to, of)]

    def at(self, rho: float) -> "Smoother":
        """Return the same of another strength, in units of the mean eigenvalue."""
        other = copy(self)
        other.strength = rho * self.mean_eigenvalue
        other.forget()
        return other

    def forget(self, *more: str) -> None:
        """Free what follows from the strength; it is computed again when needed."""
        for derived in ("_stored_factor", "_kept_factor", "root", *more):
            self.__dict__.pop(derived, None)

    def regress(self, target: Any, *, shortest: bool = True) -> tuple[Matrix, Matrix]:
        """Return the mixing of the ridge regression on a target, and its features."""
        mixing = self._solve(_centred(target))  # K is blind to constants, 1 / g is not
        return mixing, self.features(mixing)

    def smooth(self, B: Any) -> Matrix:
        """Return ``S B``."""
        return self.regress(B)[1]

    def quadratic_form(self, U: Any) -> Any:
        """Return ``U^T S U``, for sparse U too."""
        return np.asarray(U.T @ self.smooth(U))

    def residual(self, B: Any) -> Matrix:
        """Return ``A B``, what the smoother leaves of B: ``A = I - S``."""
        return np.asarray(self.strength * self._solve(_centred(B)))

    def forms(self, U: Any, Z: Matrix) -> tuple[Matrix, Matrix, Matrix]:
        """Return ``U^T S U``, ``Z^T A Z`` and ``Z^T A U`` for centred Z."""
        left = self.residual(Z)
        return to_numpy(self.quadratic_form(U)), Z.T @ left, np.asarray(U.T @ left).T

    @cached_property
    def root(self) -> tuple[Matrix, Matrix]:
        """Eigenvectors of K with positive eigenvalues, and square roots of S's."""
        values, vectors = np.linalg.eigh(self.gram)
        keep = values > len(values) * np.finfo(np.float64).eps * values[-1]
        values = values[keep]
        return vectors[:, keep], np.sqrt(values / (values + self.strength))

    def leave_out(self, contrasts: Matrix, blocks: Codes) -> Matrix:
        """Predict the centred contrasts of each block of samples from the others."""
        residual = self.strength * self._solve(contrasts)
        predicted = np.array(contrasts)
        each = [np.flatnonzero(blocks == block) for block in np.unique(blocks)]
        for rows, inverse in zip(each, self._inverse_blocks(each), strict=True):
            inside = self.strength * inverse - 1 / self.n_samples
            predicted[rows] -= np.linalg.solve(inside, residual[rows])
        return predicted

    def _cholesky(self, gram: Matrix, ridge: float) -> Any:
        """Factorise a matrix plus the ridge, for :func:`scipy.linalg.cho_solve`."""
        try:  # NumPy's releases the GIL; its transpose is taken without a copy
            return np.linalg.cholesky(add_ridge(gram, ridge)).T, False
        except np.linalg.LinAlgError as error:
            raise _not_semidefinite(self) from error


class GramSmoother(Smoother):
    """The smoother of a Gram matrix, by its Cholesky factor."""

    def __init__(self, gram: Matrix, strength: float = 1.0, *, name: str = "X"):
        super().__init__(strength, name)
        self._gram, self.n_samples = gram, len(gram)

    @property
    def gram(self) -> Matrix:
        return self._gram

    def _factorise(self) -> Any:
        return self._cholesky(self._gram, self.strength)

    def _solve(self, B: Matrix) -> Matrix:
        return cho_solve(self._factor, B)

    def features(self, mixing: Matrix) -> Matrix:
        return np.asarray(self._gram @ mixing)

    def quadratic_form(self, U: Any) -> Any:
        """Return ``U^T S U``; by ``S = I - g (K + g)^-1`` where U is wide."""
        # which loses digits where the ridge is far from the eigenvalues
        wide = 2 * U.shape[1] > self.n_samples
        if not (wide and 1e-4 < self.strength / self.mean_eigenvalue < 1e3):
            return super().quadratic_form(U)
        half = _half(self._inverse_factor(), U)
        return _centred_square(U) - self.strength * (half.T @ half)

    def forms(self, U: Any, Z: Matrix) -> tuple[Matrix, Matrix, Matrix]:
        k = U.shape[1]
        if k + Z.shape[1] >= self.n_samples:
            return super().forms(U, Z)
        both = _solve_lower(self._factor[0].T, np.hstack([_centred(U), Z]))
        left = self.strength * (both.T @ both)
        return _centred_square(U) - left[:k, :k], left[k:, k:], left[k:, :k]

    def subset(self, rows: Codes) -> Smoother:
        gram = self._gram
        if len(rows) < self.n_samples:
            gram = _center(gram[np.ix_(rows, rows)])
        return GramSmoother(gram, self.strength, name=self.name)

    def _inverse_blocks(self, blocks: list[Codes]) -> list[Matrix]:
        T = self._inverse_factor()
        return [T[:, rows].T @ T[:, rows] for rows in blocks]


class SpectralSmoother(GramSmoother):
    """The smoother of a Gram matrix by its eigenpairs, which serve all ridges."""

    def __init__(self, values: Matrix, vectors: Matrix, *, name: str = "X"):
        Smoother.__init__(self, 1.0, name)
        self._values, self._vectors = values[:, None], vectors
        self.n_samples = len(vectors)
        self._known: dict[str, Any] = {}  # shared with copies of other ridges

    @cached_property
    def _gram(self) -> Matrix:  # type: ignore[override]
        return np.asarray((self._vectors * self._values.T) @ self._vectors.T)

    @property
    def mean_eigenvalue(self) -> float:
        return float(self._values.mean())

    def _solve(self, B: Matrix) -> Matrix:
        inside = (self._vectors.T @ B) / (self._values + self.strength)
        return np.asarray(self._vectors @ inside)

    def _inside(self, kind: str, columns: Any) -> Matrix:
        """Return centred columns in eigenvectors: those given last are known."""
        if kind not in self._known or self._known[kind][0] is not columns:
            by = np.matmul if kind == "Z" else _half  # Z is centred
            self._known[kind] = columns, by(self._vectors.T, columns)
        return cast(Matrix, self._known[kind][1])

    def quadratic_form(self, U: Any) -> Any:
        of_U = self._inside("U", U)
        return of_U.T @ (self._values / (self._values + self.strength) * of_U)

    def forms(self, U: Any, Z: Matrix) -> tuple[Matrix, Matrix, Matrix]:
        of_U, of_Z = self._inside("U", U), self._inside("Z", Z)
        left = self.strength / (self._values + self.strength)
        root = np.sqrt(left) * of_Z
        return self.quadratic_form(U), root.T @ root, of_Z.T @ (left * of_U)

    def coefficients_of(self, U: Any, of_U: Matrix, Z: Matrix, of_Z: Matrix) -> Matrix:
        both = self._inside("U", U) @ of_U + self._inside("Z", Z) @ of_Z
        return np.asarray(self._vectors @ (both / (self._values + self.strength)))


class NarrowSmoother(Smoother):
    """The smoother of centred samples, whose factor is of the voxels' size."""

    def __init__(self, samples: Matrix, strength: float = 1.0, *, name: str = "X"):
        super().__init__(strength, name)
        self.as_kept, self.n_samples = samples, len(samples)
        self._no_places = np.empty((len(samples), 0))
        self._known: list[Any] = [None] * 3  # shared with copies of other ridges

    @property
    def samples(self) -> Matrix:
        """The samples, in double precision."""
        return np.asarray(self.as_kept, np.float64)

    @cached_property
    def gram(self) -> Matrix:
        return np.asarray((X := self.samples) @ X.T)

    @property
    def mean_eigenvalue(self) -> float:
        return float((self.samples**2).sum() / self.n_samples)

    def subset(self, rows: Codes) -> Smoother:
        part = np.asarray(self.as_kept[rows], np.float64)
        part = part - part.mean(axis=0)
        if self._is_wide(rows):
            return GramSmoother(part @ part.T, self.strength, name=self.name)
        return NarrowSmoother(part, self.strength, name=self.name)

    def _is_wide(self, rows: Codes) -> bool:
        """Whether so few samples have a smaller Gram matrix than covariance."""
        return 5 * len(rows) < 4 * self.as_kept.shape[1]

    def at(self, rho: float) -> Smoother:
        if self.keeps_products:
            _ = self.square  # once, for all strengths
        return super().at(rho)

    def between(self, to: Codes, of: Codes) -> Matrix:
        if self._is_wide(of):  # coefficients of the subset are of samples
            return np.asarray((X := self.samples)[to] @ X[of].T)
        return self.samples[to]

    @cached_property
    def square(self) -> Matrix:
        """The products of voxels."""
        return np.asarray((X := self.samples).T @ X)

    def _factorise(self) -> Any:
        factor = self._cholesky(self.square, self.strength)
        self._free_products()
        return factor

    def _free_products(self) -> None:
        if not self.keeps_products:
            for large in ("square", "_bare_factor"):
                self.__dict__.pop(large, None)

    def quadratic_form(self, U: Any) -> Any:
        return self.forms(U, self._no_places)[0]

    def forms(self, U: Any, Z: Matrix) -> tuple[Matrix, Matrix, Matrix]:
        k, (to_both, U_to_Z, square) = U.shape[1], self._products(U, Z)
        both = _solve_lower(self._factor[0].T, to_both)
        left = both.T @ both
        return left[:k, :k], square - left[k:, k:], U_to_Z.T - left[k:, :k]

    def coefficients_of(self, U: Any, of_U: Matrix, Z: Matrix, of_Z: Matrix) -> Matrix:
        of_both = np.vstack([of_U, of_Z])
        return cho_solve(self._factor, self._products(U, Z)[0] @ of_both)

    def _products(self, U: Any, Z: Matrix) -> Any:
        """Return ``X^T (U, Z)``, ``U^T Z`` and ``Z^T Z``: known to other ridges."""
        if self._known[0] is not U or self._known[1] is not Z:
            to_U, to_Z = np.asarray(U.T @ (X := self.samples)).T, X.T @ Z
            found = np.hstack([to_U, to_Z]), np.asarray(U.T @ Z), Z.T @ Z
            if scipy.sparse.issparse(U):
                return found
            self._known[:] = [U, Z, found]
        return self._known[2]

    @cached_property
    def _bare_factor(self) -> Any:
        """The factor without a ridge, but for what rounding needs."""
        square = self.square
        least = 4 * len(square) * np.finfo(np.float64).eps
        return self._cholesky(square, least * float(square.diagonal().sum()))

    def _solve(self, B: Matrix) -> Matrix:
        X = self.samples  # Woodbury's identity
        inside = cho_solve(self._factor, X.T @ B)
        return np.asarray((B - X @ inside) / self.strength)

    def regress(self, target: Any, *, shortest: bool = True) -> tuple[Matrix, Matrix]:
        """Return a mixing that has the weights of the regression, and its features.

        ``(K + g)^-1`` times the target has 1 / g of what no voxel explains beside it,
        which cancels in the weights to the rounding of the data: not in float32. The
        shortest mixing has nothing of it.
        """
        X, weights = self.samples, self.coefficients(target)
        if not shortest:
            features = np.asarray(X @ weights)
            return (_centred(target) - features) / self.strength, features
        inside = cho_solve(self._bare_factor, weights)
        rest = weights - X.T @ (X @ inside)  # what the little ridge took
        inside += cho_solve(self._bare_factor, rest)
        self._free_products()
        return np.asarray(X @ inside), np.asarray(X @ weights)

    def smooth(self, B: Any) -> Matrix:
        return np.asarray(self.samples @ self.coefficients(B))

    def coefficients(self, target: Any) -> Matrix:
        return cho_solve(self._factor, self.samples.T @ _centred(target))

    def features(self, mixing: Matrix) -> Matrix:
        return np.asarray((X := self.samples) @ (X.T @ mixing))

    def _inverse_blocks(self, blocks: list[Codes]) -> list[Matrix]:
        parts = [self.as_kept[rows] for rows in blocks]
        return [
            (np.eye(len(X)) - X @ cho_solve(self._factor, X.T)) / self.strength
            for X in parts
        ]


class DeviceSmoother(Smoother):
    """The smoother of a Gram matrix that lies on a device; small things come back."""

    _kept_factor: Any = None

    def __init__(
        self, device: Device, gram: Any, strength: float = 1.0, *, name: str = "X"
    ) -> None:
        super().__init__(strength, name)
        self.device, self._device_gram, self.n_samples = device, gram, len(gram)

    @property
    def gram(self) -> Matrix:
        return to_numpy(self._device_gram)

    @property
    def mean_eigenvalue(self) -> float:
        return mean_eigenvalue(self._device_gram)

    def subset(self, rows: Codes) -> Smoother:
        gram = self._device_gram
        if len(rows) < self.n_samples:
            there = self.device.put(rows)
            gram = _center(gram[there][:, there])
        return DeviceSmoother(self.device, gram, self.strength, name=self.name)

    @property
    def _factor(self) -> Any:
        if self._kept_factor is not None:
            return self._kept_factor
        factor = self.device.cholesky(self._device_gram, self.strength)
        if factor is None:
            raise _not_semidefinite(self)
        if self.device.is_roomy:
            self._kept_factor = factor
        return factor

    def _solve(self, B: Matrix) -> Matrix:
        return to_numpy(self.device.cho_solve(self._factor, self.device.put(B)))

    def features(self, mixing: Matrix) -> Matrix:
        return to_numpy(self._device_gram @ self.device.put(mixing))

    def quadratic_form(self, U: Any) -> Any:
        """Return ``U^T S U``, which stays on the device."""
        sparse = scipy.sparse.issparse(U)
        there = self.device.put_sparse(U) if sparse else self.device.put(U)
        mixing = self.device.cho_solve(self._factor, there - there.mean(0))
        return there.T @ (self._device_gram @ mixing)

    def _inverse_blocks(self, blocks: list[Codes]) -> list[Matrix]:
        T = self.device.inverse_factor(self._factor)
        parts = [T[:, self.device.put(rows)] for rows in blocks]
        return [to_numpy(part.T @ part) for part in parts]


def mean_eigenvalue(gram: Any) -> float:
    """Return the mean eigenvalue of a Gram matrix, also of one on a device."""
    return float(gram.diagonal().sum()) / len(gram)


def _centred(B: Any) -> Matrix:
    B = np.asarray(B.toarray() if scipy.sparse.issparse(B) else B, np.float64)
    return np.asarray(B - B.mean(axis=0))


def _half(T: Matrix, U: Any) -> Matrix:
    """Return ``T U``, of the centred columns of U."""
    means = np.asarray(U.sum(axis=0)).ravel() / U.shape[0]
    return np.asarray(U.T @ T.T).T - np.outer(T.sum(axis=1), means)


def _centred_square(U: Any) -> Matrix:
    """Return ``U^T U`` of centred columns."""
    square, sums = U.T @ U, np.asarray(U.sum(axis=0)).ravel()
    dense = square.toarray() if scipy.sparse.issparse(square) else square
    return np.asarray(dense - np.outer(sums, sums) / U.shape[0])


def _invert_lower(L: Matrix) -> Matrix:
    """Invert a lower triangular matrix by halves: matrix products release the GIL."""
    if len(L) <= 64:
        return np.asarray(np.linalg.inv(L), np.float64)
    half = len(L) // 2
    inverse = np.zeros_like(L)
    inverse[:half, :half] = _invert_lower(L[:half, :half])
    inverse[half:, half:] = _invert_lower(L[half:, half:])
    below = L[half:, :half] @ inverse[:half, :half]
    inverse[half:, :half] = -inverse[half:, half:] @ below
    return inverse


def _solve_lower(L: Matrix, B: Matrix) -> Matrix:
    """Solve a lower triangular system by halves."""
    if len(L) <= 64:
        return np.asarray(np.linalg.inv(L) @ B, np.float64)
    half = len(L) // 2
    top = _solve_lower(L[:half, :half], B[:half])
    below = _solve_lower(L[half:, half:], B[half:] - L[half:, :half] @ top)
    return np.concatenate([top, below])


def add_ridge(gram: Matrix, ridge: float) -> Matrix:
    """Return a copy of a matrix with a constant added to its diagonal."""
    ridged = np.array(gram, np.float64)
    ridged[np.diag_indices_from(ridged)] += ridge
    return ridged


def cho_solve(factor: Any, B: Matrix) -> Matrix:
    """Solve with a Cholesky factor."""
    return np.asarray(scipy.linalg.cho_solve(factor, B, check_finite=False))


def _center(gram: Any) -> Any:
    means = gram.mean(0)
    return gram - means - means[:, None] + means.mean()


def is_semidefinite(gram: Matrix) -> bool:
    """Say whether a centred Gram matrix has no negative eigenvalue beyond rounding."""
    try:
        np.linalg.cholesky(add_ridge(gram, 1e-10 * np.abs(gram).max() * len(gram)))
    except np.linalg.LinAlgError:
        return False
    return True


def _not_semidefinite(smoother: Smoother) -> InputError:
    return InputError(
        f"The Gram matrix of {smoother.name} has negative eigenvalues larger than the "
        f"ridge {smoother.strength:.3g}, though its kernel should have none."
    )
