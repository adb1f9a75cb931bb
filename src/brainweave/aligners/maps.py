"""The map of one subject into the shared space, and back."""

from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from brainweave._arrays import column_chunks, ops_for, to_numpy, working_dtype
from brainweave._validation import check_samples
from brainweave.basis import SubjectBasis
from brainweave.exceptions import InputError

Matrix = NDArray[np.float64]


class SubjectMap:
    """What an aligner learned for one subject.

    Made from a basis and coefficients in its coordinates, from a basis and a mixing of
    its samples (which needs no eigenbasis), or from explicit voxel weights
    (``basis=None``).

    Parameters
    ----------
    basis : SubjectBasis, optional
        The subject's kernel coordinates.
    coef : ndarray of shape (n_kept, K), optional
        Shared features per coordinate.
    mixing : ndarray of shape (n_samples, K), optional
        In place of ``coef``: the weights as mixtures of the standardised aligning
        samples, ``X.T @ mixing``; within what the energy keeps.
    isometric : bool, default=False
        Whether the way back is the transpose of the map (orthonormal weights).
    pattern_coef : ndarray of shape (K, n_kept), optional
        Coordinates per shared feature, for the way back. Default: the least-squares fit
        of the aligning samples' coordinates on their shared features.
    weights : ndarray of shape (n_voxels, K), optional
        Shared features per standardised voxel, when there is no basis.
    patterns : ndarray of shape (K, n_voxels), optional
        Standardised voxels per shared feature, when there is no basis.
    mean, scale : ndarray of shape (n_voxels,), optional
        What standardises samples, when there is no basis.
    space : object, optional
        Knows how to turn voxel values into an image (``space.to_image(values)``).
    """

    def __init__(
        self,
        basis: SubjectBasis | None = None,
        coef: Matrix | None = None,
        *,
        mixing: Matrix | None = None,
        isometric: bool = False,
        pattern_coef: Matrix | None = None,
        weights: NDArray[Any] | None = None,
        patterns: NDArray[Any] | None = None,
        mean: Matrix | None = None,
        scale: Matrix | None = None,
        space: Any = None,
    ) -> None:
        self.basis, self.mixing, self._pattern_coef = basis, mixing, pattern_coef
        self.isometric, self.space = isometric, space
        if coef is not None or mixing is None:
            self.__dict__["coef"] = coef
        self.objective_history: list[float] | None = None  # of a descent, if any
        self.n_undetermined = 0  # dimensions of the shared space it says nothing of
        if basis is not None:
            self.mean, self.scale = basis.mean, basis.scale
        elif weights is None or mean is None or scale is None:
            raise InputError("A map needs a basis, or weights with mean and scale.")
        else:
            self.mean, self.scale = mean, scale
            self.__dict__["weights"] = weights
            if patterns is not None:
                self.__dict__["patterns"] = patterns

    @property
    def kernel(self) -> str:
        """Name of the subject's kernel."""
        return "linear" if self.basis is None else self.basis.kernel.name

    @property
    def n_components(self) -> int:
        """Number of shared features."""
        for known in (self.mixing, self.__dict__.get("coef")):
            if known is not None:
                return int(known.shape[1])
        return int(self.weights.shape[1])

    @property
    def n_voxels(self) -> int:
        """Number of voxels a sample must have (of training samples, if precomputed)."""
        if self.basis is not None and self.kernel == "precomputed":
            return self.basis.n_samples
        return int(self.mean.size)

    @cached_property
    def weights(self) -> NDArray[Any]:
        """Shared features per standardised voxel, (n_voxels, K); linear kernel only."""
        if self.basis is not None and self.mixing is not None:
            return self.basis.combine(self.mixing)
        basis, coef = self._from_basis("weights")
        return basis.weights(coef)

    @cached_property
    def coef(self) -> Matrix | None:
        """Shared features per kernel coordinate, (n_kept, K)."""
        if self.basis is None or self.mixing is None:
            return None
        V = self.basis.vectors
        return np.asarray(np.sqrt(self.basis.values)[:, None] * (V.T @ self.mixing))

    @cached_property
    def patterns(self) -> NDArray[Any]:
        """Standardised voxels per shared feature, (K, n_voxels); linear kernel only.

        The forward model of the weights (Haufe et al., 2014): what the voxels show when
        a feature is active. This, not the weights, is what to look at on a brain.
        """
        if self.isometric:
            return np.ascontiguousarray(self.weights.T)
        if self.basis is not None and self.mixing is not None:
            features = self.basis.gram_times(self.mixing)
            inverse = np.linalg.pinv(features.T @ features, rcond=1e-10)
            mixing = self.basis.restrict(features @ inverse)
            return np.ascontiguousarray(self.basis.combine(mixing).T)
        basis, _ = self._from_basis("patterns")
        mixing = basis.vectors @ (self.pattern_coef / np.sqrt(basis.values)).T
        return np.ascontiguousarray(basis.combine(mixing).T)

    @property
    def pattern_coef(self) -> Matrix:
        """Coordinates per shared feature, (K, n_kept)."""
        if self._pattern_coef is not None:
            return self._pattern_coef
        basis, coef = self._from_basis("patterns")
        if self.isometric:
            return coef.T
        weighted = basis.values[:, None] * coef
        # regression of V sqrt(d) on V sqrt(d) coef, without forming either
        return np.asarray(np.linalg.pinv(coef.T @ weighted, rcond=1e-10) @ weighted.T)

    def _from_basis(self, what: str) -> tuple[SubjectBasis, Matrix]:
        if self.basis is None or self.coef is None:
            raise InputError(f"This map was made without {what}.")
        return self.basis, self.coef

    def aligning_features(self) -> NDArray[Any]:
        """Give the shared features of the aligning samples, without their voxels."""
        if self.basis is not None and self.mixing is not None:
            basis, features = self.basis, self.basis.gram_times(self.mixing)
        else:
            basis, coef = self._from_basis("aligning samples")
            features = basis.coordinates @ coef
        return features.astype(basis.dtype, copy=False)

    def transform(self, Z: Any, *, name: str = "Z") -> Any:
        """Map samples of this subject into the shared space, (n_samples, K)."""
        if self.basis is not None:
            Z = self.basis.check_samples(Z, name)
        else:
            Z = check_samples(Z, self.n_voxels, name)
        if self.kernel != "linear":
            return ops_for(Z).array(self._through_kernel(Z, name))
        ops = ops_for(Z)
        features: Any = 0
        single = working_dtype(Z) == np.float32
        for columns, raw in column_chunks(Z):
            chunk, mean = ops.array(raw), self.mean[columns]
            weights = self.weights[columns] / self.scale[columns, None]
            if single:
                chunk = ops.subtract(chunk, ops.array(mean), transient=True)
                features = features + chunk @ ops.array(weights)
            else:  # double precision can take the mean off the product
                features = features + (chunk @ ops.array(weights))
                features -= ops.array(mean @ weights)
        if not np.isfinite(to_numpy(features)).all():
            raise InputError(
                f"{name} has NaN or infinite values. Mask these voxels or drop these "
                "samples."
            )
        return features

    def _through_kernel(self, Z: Any, name: str) -> Matrix:
        if self.basis is not None and self.mixing is not None:
            return self.basis.kernel_to(Z, name) @ self.mixing
        basis, coef = self._from_basis("weights")
        return basis.project(Z, name) @ coef

    def inverse_transform(self, features: Any) -> NDArray[Any]:
        """Give the voxel patterns that go with shared features, mean restored."""
        shared = to_numpy(features)
        if shared.ndim != 2 or shared.shape[1] != self.n_components:
            raise InputError(
                f"Shared features must be samples x {self.n_components}; got shape "
                f"{shared.shape}."
            )
        scale = np.where(np.isinf(self.scale), 0, self.scale)
        voxels = (shared @ self.patterns) * scale + self.mean
        return np.asarray(voxels, dtype=shared.dtype)

    def to_image(self, component: int, *, what: str = "patterns") -> Any:
        """Put the weights or patterns of one shared feature on the brain.

        Parameters
        ----------
        component : int
            Which shared feature.
        what : {"patterns", "weights"}
            What the voxels show when the feature is active, or how they are weighed.
        """
        if self.space is None:
            raise InputError(
                "This subject's map does not know its brain space. Fit on a Study that "
                "was loaded from images."
            )
        if what not in ("patterns", "weights"):
            raise InputError(f"what must be 'patterns' or 'weights'; got {what!r}.")
        if not -self.n_components <= component < self.n_components:
            raise InputError(
                f"component must be below {self.n_components}; got {component}."
            )
        values = (
            self.patterns[component]
            if what == "patterns"
            else (self.weights[:, component])
        )
        return self.space.to_image(np.asarray(values))

    def detach(self) -> "SubjectMap":
        """Give the same map without a reference to the data (linear kernel)."""
        if self.kernel != "linear" or self.basis is None:
            return self
        alone = SubjectMap(
            weights=self.weights,
            patterns=None if self.isometric else self.patterns,
            isometric=self.isometric,
            mean=self.mean,
            scale=self.scale,
            space=self.space,
        )
        alone.n_undetermined = self.n_undetermined
        return alone

    def __getstate__(self) -> dict[str, Any]:
        return dict(self.detach().__dict__)
