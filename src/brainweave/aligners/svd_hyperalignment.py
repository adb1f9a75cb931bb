"""Hyperalignment after a joint decomposition of all subjects (Chen et al. 2014)."""

from typing import Any

import numpy as np
import scipy.linalg
from numpy.typing import NDArray

from brainweave._arrays import blas_threads, subject_threads
from brainweave.aligners.hyperalignment import hyperalign
from brainweave.aligners.maps import MixingMap, SubjectMap
from brainweave.aligners.procrustes import rotate_onto
from brainweave.aligners.timelocked import GramOnly
from brainweave.basis import SubjectBasis
from brainweave.exceptions import InputError

Matrix = NDArray[np.float64]


class SVDHyperalignment(GramOnly):
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
    reference : int, default=0
        The subject that the first level of hyperalignment starts from.
    max_iter : int, default=1
        Most passes of the second level of hyperalignment.
    tol : float, default=0
        Stop these once a pass changes the objective by less than this share of all
        that was gained; 0 does all ``max_iter`` passes.
    energy : float in (0, 1], or one per subject, default=1
        Share of the summed singular values that each subject keeps.
    standardize : bool or "reliability", default=True
        Give every voxel zero mean and unit variance; else zero mean only.
    n_jobs : int, optional
        Subjects worked on at the same time; default one per core.

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
    objective_history_ : list of float
        The objective after the first level, each pass of the second, and the third.
    n_iter_ : int
        Passes of the second level done.
    converged_ : bool
        Whether these settled.

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

    def __init__(
        self,
        n_components: int = 10,
        *,
        reference: int = 0,
        max_iter: int = 1,
        tol: float = 0.0,
        energy: Any = 1.0,
        standardize: bool | str = True,
        n_jobs: int | None = None,
    ) -> None:
        self.n_components = n_components
        self.reference = reference
        self.max_iter = max_iter
        self.tol = tol
        self.energy = energy
        self.standardize = standardize
        self.n_jobs = n_jobs

    def _solve(self, bases: list[SubjectBasis], y: list[Any] | None) -> list[Matrix]:
        reference = self._reference(len(bases))
        k = self._wanted_components(bases)
        self._joint_decomposition(bases, k)
        with subject_threads(len(bases), self.n_jobs) as over_subjects:
            reduced = over_subjects(lambda b: b.gram_times(self.joint_), bases)
            found, progress = hyperalign(
                reduced, reference, self._progress, over_subjects
            )
        self.shared_response_ = found.template
        self._keep_progress(progress)
        self.objective_history_ = [*progress.history, found.objective]
        return [
            b.restrict(self.joint_ @ R)
            for b, R in zip(bases, found.rotations, strict=True)
        ]

    def _joint_decomposition(self, bases: list[SubjectBasis], k: int) -> None:
        total = sum(_kept_gram(b) for b in bases)
        n = bases[0].n_samples
        with blas_threads(1):
            values, U = scipy.linalg.eigh(
                total, subset_by_index=[n - k, n - 1], check_finite=False
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

    def _make_map(
        self, basis: SubjectBasis, solution: Matrix, *, space: Any = None
    ) -> SubjectMap:
        return MixingMap(basis, solution, space=space)

    def _solve_new(self, basis: SubjectBasis, y: Any) -> Matrix:
        joint = self.joint_[y]
        if len(y) < len(self.joint_):
            # the axes are orthonormal over all samples only: fit them on these
            U = joint * self.singular_values_
            fitted = U @ np.linalg.pinv(U.T @ U)
            joint = self.n_subjects_ * fitted / self.singular_values_
        R = rotate_onto(basis.gram_times(joint), self.shared_response_[y])
        return basis.restrict(joint @ R)


def _kept_gram(basis: SubjectBasis) -> Matrix:
    if basis.energy == 1:
        return basis.gram
    return np.asarray((basis.vectors * basis.values) @ basis.vectors.T)
