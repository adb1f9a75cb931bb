r"""Orthonormal maps nearest to a target, in coordinates or from the Gram matrix alone.

With :math:`X` the samples of one subject, :math:`K = X X^\top` and :math:`S` a target
with one row per sample, the orthonormal :math:`W` that minimises
:math:`\lVert X W - S \rVert_F` and :math:`\lVert X - S W^\top \rVert_F` is the polar
factor of :math:`X^\top S`:

.. math:: W = X^\top S \, (S^\top K S)^{-1/2} = X^\top A, \qquad X W = K A,

so :math:`K` and matrices as wide as the target are all that is needed.
"""

import warnings
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from brainweave.basis import TIED, SubjectBasis, products_on_device
from brainweave.exceptions import InputError, UniquenessWarning
from brainweave.linalg import flip_signs, polar

Matrix = NDArray[np.float64]

# squared singular values, relative to the largest, that the Gram matrix cannot resolve
SINGULAR = 1e-10
UNSURE = 1e-6  # below this, one more step restores orthonormality


@dataclass(frozen=True)
class Alignment:
    """An orthonormal map ``W = X.T @ mixing`` and the features ``X @ W``.

    The mixing is wanted at the end of an iteration only, so it is kept in two factors.
    """

    left: Matrix
    right: Matrix
    features: Matrix

    @property
    def mixing(self) -> Matrix:
        """The map as a mixture of samples, (n_samples, K)."""
        return np.asarray(self.left @ self.right)


def rotate_onto(coordinates: Matrix, target: Matrix) -> Matrix:
    """Return the orthonormal matrix that takes coordinates nearest to the target.

    Rows are orthonormal if the target is the wider one, columns if it is not.
    """
    return polar(coordinates.T @ target)


def align_each(
    bases: list[SubjectBasis], S: Matrix, over_subjects: Callable[..., list[Any]]
) -> list[Any]:
    """Align several subjects to one target; Gram matrices on a device at one go."""
    known: list[Any] = products_on_device(bases, S) or [None] * len(bases)
    return over_subjects(lambda b, product: align_to(b, S, product), bases, known)


def align_to(
    basis: SubjectBasis, S: Matrix, product: Matrix | None = None
) -> Alignment:
    """Align one subject to a target without its eigenbasis, O(n_samples^2 K)."""
    product = basis.gram_times(S) if product is None else product
    metric = S.T @ product
    values, vectors = np.linalg.eigh((metric + metric.T) / 2)
    if not values[0] > SINGULAR * values[-1]:
        return _align_in_coordinates(basis, S)
    root = (vectors / np.sqrt(values)) @ vectors.T
    features = product @ root
    if values[0] < UNSURE * values[-1]:
        step = (3 * np.eye(len(values)) - features.T @ (S @ root)) / 2  # Newton's
        step = (step + step.T) / 2
        root, features = root @ step, features @ step
    return Alignment(S, root, features)


def _align_in_coordinates(basis: SubjectBasis, S: Matrix) -> Alignment:
    """Do the same by a decomposition that completes directions the target lacks."""
    k = S.shape[1]
    check_rank(basis, k)
    Q = rotate_onto(basis.coordinates, S)
    return Alignment(
        basis.vectors, Q / np.sqrt(basis.values)[:, None], basis.coordinates @ Q
    )


def principal_axes(S: Matrix, covariance: Matrix | None = None) -> Matrix:
    """Return the rotation that sorts columns by variance, largest first, signs fixed.

    The covariance is that of the columns, unless another one is given.
    """
    metric = S.T @ S if covariance is None else covariance
    turn = np.linalg.eigh(metric)[1][:, ::-1]
    return np.asarray(turn * flip_signs(S @ turn))


def warn_of_tie(values: Matrix, k: int, *, stacklevel: int) -> None:
    """Warn if a cut after the first k of some descending variances parts equal ones."""
    if k >= values.size or values[k - 1] <= TIED * values[0]:
        return
    if values[k - 1] - values[k] <= TIED * values[0]:
        warnings.warn(
            f"The shared space is not unique: components {k} and {k + 1} are equally "
            "strong, so which directions are kept is arbitrary. Keep fewer components, "
            "or more.",
            UniquenessWarning,
            stacklevel=stacklevel + 1,
        )


def check_rank(
    basis: SubjectBasis, n_components: int, available: int | None = None
) -> None:
    """Refuse more orthonormal columns than the subject has dimensions."""
    available = basis.n_kept if available is None else available
    if available < n_components:
        raise InputError(
            f"n_components={n_components} is more than the {available} dimensions of "
            f"{basis.name} ({basis.n_samples} samples, {basis.n_voxels} voxels, energy "
            f"{basis.energy:g}). Use fewer components or more samples."
        )
