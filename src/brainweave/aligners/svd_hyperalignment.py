"""Hyperalignment after a joint decomposition of all subjects (Chen et al. 2014)."""

from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy.linalg
from numpy.typing import NDArray

from brainweave._arrays import blas_threads, subject_threads
from brainweave.aligners.hyperalignment import RotationAligner
from brainweave.aligners.procrustes import rotate_onto
from brainweave.aligners.timelocked import GramOnly
from brainweave.basis import SubjectBasis
from brainweave.exceptions import InputError

Matrix = NDArray[np.float64]


@dataclass(eq=False, repr=False)
class SVDHyperalignment(RotationAligner, GramOnly):
    r"""Joint SVD of all subjects, then hyperalignment in the reduced space.

    With :math:`X_i` the samples of subject i (rows are time points), the first phase
    takes the leading K singular triplets of all voxels side by side,

    .. math:: (X_1, \dots, X_M) \approx U \Sigma (V_1^\top, \dots, V_M^\top),

    the best shared response :math:`U\Sigma` of rank K without constraints; the second
    is hyperalignment of the :math:`Y_i = \sqrt M X_i V_i`: it lowers

    .. math:: \sum_i \lVert Y_i R_i - T \rVert_F^2, \quad T = \frac1M \sum_i Y_i R_i,
              \quad\text{subject to}\quad R_i^\top R_i = I_K.

    The map of subject i is :math:`\sqrt M V_i R_i`.

    Parameters
    ----------
    n_components : int, default=10
        Number of shared features K.
    reference, max_iter, tol, energy, standardize, n_jobs
        As in :class:`Hyperalignment`.

    Attributes
    ----------
    maps_ : list of SubjectMap
        One map per subject. Its weights are not orthonormal; the way back to voxels is
        the least-squares fit of the aligning samples.
    mixing_ : list of ndarray of shape (n_samples, K)
        The weights as mixtures of the standardised samples, ``X_i.T @ mixing_[i]``.
    singular_values_ : ndarray of shape (K,)
        Of all voxels side by side.
    joint_ : ndarray of shape (n_samples, K)
        :math:`\sqrt M U \Sigma^{-1}`: what turns any subject's samples into voxel
        weights of the first phase.
    shared_response_ : ndarray of shape (n_samples, K)
        T, largest dimensions first.
    objective_history_, n_iter_, converged_
        As in :class:`Hyperalignment`.

    Notes
    -----
    The joint decomposition needs only the sum of the Gram matrices, :math:`\sum_i
    X_i X_i^\top = U \Sigma^2 U^\top`: time O(M n^2 v + n^3) for M subjects with n
    samples and v voxels, memory O(M n^2). Nothing is random.

    References
    ----------
    Chen, P.-H., Guntupalli, J. S., Haxby, J. V., & Ramadge, P. J. (2014). Joint
    SVD-hyperalignment for multi-subject fMRI data alignment. IEEE International
    Workshop on Machine Learning for Signal Processing.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> S = rng.normal(size=(40, 3))
    >>> X = [S @ np.linalg.qr(rng.normal(size=(v, 3)))[0].T for v in (60, 50)]
    >>> a, b = SVDHyperalignment(3, standardize=False).fit_transform(X)
    >>> bool(np.allclose(a, b))
    True
    """

    n_components: int = 10

    def _solve(self, bases: list[SubjectBasis], y: list[Any] | None) -> list[Matrix]:
        self._joint_decomposition(bases, self._wanted_components(bases))
        with subject_threads(len(bases), self.n_jobs) as over_subjects:
            reduced = over_subjects(lambda b: b.gram_times(self.joint_), bases)
        rotations, self.shared_response_ = self._rotate(reduced)
        pairs = zip(bases, rotations, strict=True)
        return [b.restrict(self.joint_ @ R) for b, R in pairs]

    def _joint_decomposition(self, bases: list[SubjectBasis], k: int) -> None:
        grams = (
            b.gram if b.energy == 1 else (b.vectors * b.values) @ b.vectors.T
            for b in bases
        )
        n = bases[0].n_samples
        with blas_threads(1):
            values, U = scipy.linalg.eigh(
                sum(grams), subset_by_index=[n - k, n - 1], check_finite=False
            )
        values, U = values[::-1], U[:, ::-1]
        if values[-1] <= 1e-12 * values[0]:
            rank = int((values > 1e-12 * values[0]).sum())
            raise InputError(
                f"n_components={k} is more than the {rank} dimensions that all "
                "subjects have together. Use fewer components."
            )
        self.singular_values_ = np.sqrt(values)
        self.joint_ = np.sqrt(len(bases)) * U / self.singular_values_

    def _solve_new(self, basis: SubjectBasis, y: Any) -> Matrix:
        joint = self.joint_[y]
        if len(y) < len(self.joint_):
            # the axes are orthonormal over all samples only: fit them on these
            U = joint * self.singular_values_
            fitted = U @ np.linalg.pinv(U.T @ U)
            joint = self.n_subjects_ * fitted / self.singular_values_
        R = rotate_onto(basis.gram_times(joint), self.shared_response_[y])
        return basis.restrict(joint @ R)
