"""The map of one subject into the shared space, and back."""

from collections.abc import Iterator
from copy import copy
from functools import cached_property
from typing import Any, ClassVar, NamedTuple

import numpy as np
import scipy.sparse
from numpy.typing import NDArray

from brainweave._core.arrays import (
    Matrix,
    as_kind_of,
    column_chunks,
    ops_for,
    to_numpy,
    working_dtype,
)
from brainweave._core.exceptions import InputError
from brainweave._core.html import map_html
from brainweave._core.stored import Stored
from brainweave._core.validation import check_option, check_samples
from brainweave.basis.basis import SubjectBasis
from brainweave.basis.device import device_for
from brainweave.basis.voxels import N_SIGNATURES, same_samples, sample_signatures


class PlacePart(NamedTuple):
    """The part of a map that all subjects share: weights of places."""

    matrix: Any  # sparse (n_voxels, n_places); None if the voxels are the places
    samples: Matrix  # (n_samples, n_places): the aligning samples in places
    weights: Matrix  # (n_places, K)
    in_voxels: bool = True  # else places are no function of the map's voxels


class SubjectMap(Stored):
    """Map of one subject between its voxels and the shared space.

    Parameters
    ----------
    mean, scale : ndarray of shape (n_voxels,)
        Mean and scale of the voxels; the scale of a constant voxel is infinite.
    isometric : bool, default=False
        Whether the way back is the transpose of the map (orthonormal weights).
    space : object, optional
        Converts voxel values to an image (``space.to_image(values)``).
    signatures : ndarray of shape (n_samples, 4), optional
        Those of the aligning samples, for :meth:`took_part`.
    objective_history : list of float, optional
        Of the descent that found the map, if there was one.
    n_undetermined : int, default=0
        Number of features that the data do not determine; they are zero.

    Attributes
    ----------
    n_components : int
        Number of shared features K.
    weights : array of shape (n_voxels, K)
        Shared features per standardised voxel.
    patterns : array of shape (K, n_voxels)
        Standardised voxels per shared feature.
    basis, coef, mixing
        Of the maps that have them, the subject's kernel coordinates, and shared
        features per coordinate (n_kept, K), or the weights as mixtures of the
        standardised aligning samples, (n_samples, K).
    """

    _stored: ClassVar[dict[str, Any]] = {
        "mean": "v",
        "scale": "v",
        "space?": object,
        "signatures?": f"samples {N_SIGNATURES}",
        "objective_history?": [float],
        "n_undetermined": int,
    }

    n_components: Any
    weights: Any
    patterns: Any
    basis: SubjectBasis | None = None
    place: PlacePart | None = None
    coef: Any = None
    mixing: Any = None

    def __init__(
        self,
        *,
        mean: Matrix,
        scale: Matrix,
        isometric: bool = False,
        space: Any = None,
        signatures: Matrix | None = None,
        objective_history: list[float] | None = None,
        n_undetermined: int = 0,
    ) -> None:
        self.mean, self.scale, self.space = mean, scale, space
        self.isometric, self.signatures = isometric, signatures
        self.objective_history = objective_history
        self.n_undetermined = n_undetermined

    def __repr__(self) -> str:
        size = f"{self.n_voxels} voxels to {self.n_components} features"
        return f"{type(self).__name__}({size})"

    _repr_html_ = map_html

    @property
    def kernel(self) -> str:
        """Name of the subject's kernel."""
        return "linear"

    @property
    def n_voxels(self) -> int:
        """Number of voxels a sample must have."""
        return int(self.mean.size)

    def took_part(self, X: Any, *, name: str = "X") -> NDArray[np.bool_]:
        """Return which samples took part in the fit of this map.

        Samples are identified by their content, in any order. A sample that was
        cleaned, smoothed or standardised since the fit is not recognised.

        Parameters
        ----------
        X : array of shape (n_samples, n_voxels)
            Samples of this subject.
        name : str, default="X"
            What messages call them.

        Returns
        -------
        ndarray of bool of shape (n_samples,)
            True for samples of the fit.
        """
        if self.signatures is None:
            raise InputError(
                "This map does not know its aligning samples: it is of a piece of the "
                "brain. Ask the map of the whole brain."
            )
        X = check_samples(X, self.n_voxels, name)
        return same_samples(sample_signatures(X), self.signatures)

    def transform(self, Z: Any, *, name: str = "Z") -> Any:
        """Map samples of this subject into the shared space.

        Parameters
        ----------
        Z : array of shape (n_samples, n_voxels)
            With the voxels of the fit, in their order.
        name : str, default="Z"
            What messages call them.

        Returns
        -------
        array of shape (n_samples, n_components)
            Shared features.
        """
        return self._apply_weights(check_samples(Z, self.n_voxels, name), name)

    @np.errstate(over="ignore", invalid="ignore")  # what is not finite is refused
    def _apply_weights(self, Z: Any, name: str) -> Any:
        """Multiply standardised samples with the weights, by chunks of columns."""
        device = device_for(Z) or getattr(self.basis, "_device", None)
        if device is not None:
            weights = self.weights.astype(np.float64) / self.scale[:, None]
            features: Any = device.weighted(Z, self.mean, weights)
            refuse_non_finite(features, name)
            return as_kind_of(Z, features)
        ops = ops_for(Z)
        features = 0
        single = working_dtype(Z) == np.float32
        for columns, raw in column_chunks(Z):
            chunk, mean = ops.array(raw), self.mean[columns]
            weights = self.weights[columns] / self.scale[columns, None]
            if single:
                chunk = ops.subtract(chunk, ops.array(mean), transient=True)
                features = features + chunk @ ops.array(weights)
            else:  # double precision can take the mean off the product
                features = features + (ops.array(weights).T @ chunk.T).T
                features -= ops.array(mean @ weights)
        refuse_non_finite(features, name)
        return as_kind_of(Z, features)

    def _standardized(self, Z: Any) -> Iterator[tuple[slice, Any]]:
        """Yield samples in chunks of columns, each voxel standardised."""
        ops = ops_for(Z)
        for columns, raw in column_chunks(Z):
            z = ops.subtract(ops.array(raw), ops.array(self.mean[columns]))
            z *= ops.array(1 / self.scale[columns])
            yield columns, z

    def aligning_features(self) -> NDArray[Any]:
        """Return the shared features of the aligning samples, without their voxels."""
        raise InputError("This map was made without aligning samples.")

    def inverse_transform(self, features: Any) -> NDArray[Any]:
        """Return the voxel patterns of shared features, mean restored.

        Parameters
        ----------
        features : array of shape (n_samples, n_components)
            Shared features, of this subject or of others.

        Returns
        -------
        ndarray of shape (n_samples, n_voxels)
            In the units of the data.
        """
        shared = self._check_features(features)
        return self._unstandardize(shared @ self.patterns, shared.dtype)

    def _unstandardize(self, voxels: NDArray[Any], dtype: Any) -> NDArray[Any]:
        """Undo the standardising."""
        scale = np.where(np.isinf(self.scale), 0, self.scale)
        return np.asarray(voxels * scale + self.mean, dtype=dtype)

    def _check_features(self, features: Any) -> NDArray[Any]:
        shared = to_numpy(features)
        if shared.ndim != 2 or shared.shape[1] != self.n_components:
            raise InputError(
                f"Shared features must be samples x {self.n_components}; got shape "
                f"{shared.shape}."
            )
        return shared

    def to_image(self, component: int, *, what: str = "patterns") -> Any:
        """Return an image of one shared feature.

        Parameters
        ----------
        component : int
            Which shared feature.
        what : {"patterns", "weights"}
            What the voxels show when the feature is active, or how they are weighted.

        Returns
        -------
        image
            In the space of the subject.
        """
        if self.space is None:
            raise InputError(
                "This subject's map does not know its brain space. Fit on a Study that "
                "was loaded from images."
            )
        check_option("what", what, ("patterns", "weights"), owner="to_image")
        values = (self.patterns if what == "patterns" else self.weights.T)[[component]]
        whole = values.toarray() if scipy.sparse.issparse(values) else values
        return self.space.to_image(np.ravel(whole))

    def detach(self) -> "SubjectMap":
        """Return the same map without a reference to the data (linear kernel)."""
        return self

    def _misfits(self) -> Iterator[str]:
        n, space = self.n_voxels, self.space
        if space is not None and space.n_voxels != n:
            yield f"has {n} voxels, its brain space {space.n_voxels}"
        if not 0 <= self.n_undetermined <= self.n_components:
            yield "has more undetermined dimensions than shared features"


def common_settings(basis: Any) -> dict[str, Any]:
    """Return what every map keeps of the basis it was learned in, or of another map."""
    kept = ("mean", "scale", "signatures", "space")
    return {name: getattr(basis, name) for name in kept}


def refuse_non_finite(features: Any, name: str) -> None:
    """Refuse samples whose features are not finite, so that they are not either."""
    if not np.isfinite(to_numpy(features)).all():
        raise InputError(
            f"{name} has NaN or infinite values. Mask these voxels or drop these "
            "samples."
        )


class WeightMap(SubjectMap):
    """A map by explicit weights (n_voxels, K), and patterns unless isometric."""

    _stored: ClassVar[dict[str, Any]] = {
        "weights": "v k",
        "patterns?": "k v",
        "isometric": bool,
    }

    def __init__(
        self, *, weights: Any, patterns: Any = None, mean: Matrix, **common: Any
    ) -> None:
        super().__init__(mean=mean, **common)
        self.weights, self._patterns = weights, patterns

    @property
    def n_components(self) -> int:
        """Number of shared features."""
        return int(self.weights.shape[1])

    @property
    def patterns(self) -> Any:
        """Standardised voxels per shared feature, (K, n_voxels)."""
        if self._patterns is not None:
            return self._patterns
        if self.isometric:
            return np.ascontiguousarray(self.weights.T)
        raise InputError("This map was made without patterns.")

    def _stored_value(self, name: str) -> Any:
        return self._patterns if name == "patterns" else super()._stored_value(name)


class BasisMap(SubjectMap):
    """A map that refers to the basis it was learned in.

    By coefficients (n_kept, K) in the coordinates of the basis, whose way back is
    `pattern_coef` (K, n_kept), by default a least-squares fit; or by a mixing
    (n_samples, K) of the standardised aligning samples X, without an eigenbasis: the
    weights are ``X.T @ mixing``, and those of its ``place`` are added to them.
    """

    _stored: ClassVar[dict[str, Any]] = {
        "basis": SubjectBasis,  # which has mean, scale and signatures
        "coef?": "c k",
        "mixing?": "n k",
        "pattern_coef?": "k c",
        "isometric": bool,
        **dict.fromkeys(("mean", "scale", "signatures")),
    }

    basis: SubjectBasis

    def __init__(
        self,
        basis: SubjectBasis,
        coef: Matrix | None = None,
        *,
        mixing: Matrix | None = None,
        pattern_coef: Matrix | None = None,
        space: Any = None,
        **common: Any,
    ) -> None:
        super().__init__(**{**common_settings(basis), "space": space}, **common)
        self.basis, self.mixing = basis, mixing
        self.coef, self.pattern_coef = coef, pattern_coef

    @property
    def kernel(self) -> str:
        """Name of the subject's kernel."""
        return self.basis.kernel.name

    @property
    def n_components(self) -> int:
        """Number of shared features."""
        return int((self.coef if self.mixing is None else self.mixing).shape[1])

    @property
    def n_voxels(self) -> int:
        """Number of voxels a sample must have (of training samples, if precomputed)."""
        precomputed = self.kernel == "precomputed"
        return self.basis.n_samples if precomputed else self.basis.n_voxels

    def _weight_mixing(self) -> Matrix:
        """Return the weights as mixtures of the aligning samples, (n_samples, K)."""
        if self.mixing is not None:
            return np.asarray(self.mixing)
        V, d = self.basis.vectors, self.basis.values
        return np.asarray(V @ (self.coef / np.sqrt(d)[:, None]))

    def aligning_features(self) -> NDArray[Any]:
        """Return the shared features of the aligning samples, without their voxels."""
        basis, mixed = self.basis, self.mixing is not None
        features = self._mixed_features() if mixed else basis.coordinates @ self.coef
        return np.asarray(features, dtype=basis.dtype)

    def _mixed_features(self) -> Matrix:
        features = self.basis.gram_times(self.mixing)
        if self.place is not None:
            features = features + self.place.samples @ self.place.weights
        return features

    @cached_property
    def weights(self) -> NDArray[Any]:
        """Shared features per standardised voxel, (n_voxels, K); linear kernel only."""
        weights, place = self.basis.combine(self._weight_mixing()), self.place
        if place is None or not place.in_voxels:
            return weights
        own = place.weights if place.matrix is None else place.matrix @ place.weights
        return weights + np.asarray(own).astype(weights.dtype)

    @cached_property
    def patterns(self) -> NDArray[Any]:
        """Standardised voxels per shared feature, (K, n_voxels); linear kernel only.

        The forward model of the weights (Haufe et al., 2014): what the voxels show when
        a feature is active. This, not the weights, is what to look at on a brain.
        """
        if self.isometric:
            return np.ascontiguousarray(self.weights.T)
        if self.mixing is None:
            V, d, back = self.basis.vectors, self.basis.values, self.pattern_coef
            if back is None:
                # regression of V sqrt(d) on V sqrt(d) coef, without forming either
                weighted = d[:, None] * self.coef
                back = np.linalg.pinv(self.coef.T @ weighted, rcond=1e-10) @ weighted.T
            mixing = np.asarray(V @ (back / np.sqrt(d)).T)
        else:
            features = self._mixed_features()
            inverse = np.linalg.pinv(features.T @ features, rcond=1e-10)
            mixing = self.basis.restrict(features @ inverse)
        return np.ascontiguousarray(self.basis.combine(mixing).T)

    def transform(self, Z: Any, *, name: str = "Z") -> Any:
        """Map samples of this subject into the shared space, (n_samples, K)."""
        Z = self.basis.check_samples(Z, name)
        if self.kernel != "linear":
            through = self.basis.kernel_to(Z, name) @ self._weight_mixing()
            return as_kind_of(Z, through)
        return self._apply_weights(Z, name)

    def detach(self) -> SubjectMap:
        """Return the same map without a reference to the data (linear kernel)."""
        if self.kernel != "linear":
            return self
        return WeightMap(
            weights=self.weights,
            patterns=None if self.isometric else self.patterns,
            isometric=self.isometric,
            objective_history=self.objective_history,
            n_undetermined=self.n_undetermined,
            **common_settings(self),
        )

    _stored_form = detach  # files hold weights of voxels where the kernel is linear

    def __reduce_ex__(self, protocol: Any) -> Any:
        """Pickle without the data, where the kernel is linear."""
        plain = self.detach()
        return super().__reduce_ex__(protocol) if plain is self else (copy, (plain,))

    def _misfits(self) -> Iterator[str]:
        yield from super()._misfits()
        if (self.coef is None) == (self.mixing is None):
            yield "has no coefficients, or two kinds of them"
        if self.coef is not None and len(self.coef) != self.basis.n_kept:
            yield "has coefficients of another basis"
        if self.mixing is not None and len(self.mixing) != self.basis.n_samples:
            yield "mixes other samples than its basis has"
