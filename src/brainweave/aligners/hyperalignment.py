"""Hyperalignment (Haxby et al. 2011): whitened, with a kernel, or after a joint SVD."""

from dataclasses import KW_ONLY, dataclass
from typing import Any, ClassVar

import numpy as np
import scipy.linalg

from brainweave._core.arrays import Matrix
from brainweave._core.validation import check_number
from brainweave._core.workers import blas_threads, subject_threads
from brainweave.aligners.gdm.strength import choose_strength
from brainweave.aligners.maps import BasisMap, SubjectMap
from brainweave.aligners.timelocked import (
    Iterative,
    principal_axes,
    rotate_onto,
    warn_of_tie,
)
from brainweave.basis.basis import SubjectBasis
from brainweave.graphs.builders import time_graph


@dataclass(eq=False, repr=False)
class RotationAligner(Iterative):
    """Base of the aligners that rotate coordinates of subjects into one space."""

    n_components: int | None = None  # type: ignore[assignment]
    _: KW_ONLY
    max_iter: int = 1
    tol: float = 0.0
    energy: Any = 1.0

    def _rotate(self, coordinates: list[Matrix]) -> tuple[list[Matrix], Matrix, Matrix]:
        """Return a rotation (L_i, c) per subject, the common space and its variances.

        Coordinates are (n_samples, L_i) in an orthonormal basis; c is the largest L_i,
        so no rotation loses anything. Principal dimensions come first.
        """
        n = len(coordinates)
        power = sum(float((Z * Z).sum()) for Z in coordinates)
        size = max(Z.shape[1] for Z in coordinates)

        def objective(total: Matrix) -> float:
            return power - float((total * total).sum()) / n

        with subject_threads(n, self.n_jobs) as over_subjects:
            # level 1: each subject to the mean of those before it
            missing = size - coordinates[0].shape[1]
            aligned = [np.pad(coordinates[0], ((0, 0), (0, missing)))]
            total = aligned[0].copy()
            for Z in coordinates[1:]:
                aligned.append(Z @ rotate_onto(Z, total))
                total += aligned[-1]

            # level 2: each subject to the mean of all others, which follows at once
            iterations = self._new_iterations(objective(total))
            while iterations.go_on():
                for i, Z in enumerate(coordinates):
                    total -= aligned[i]
                    aligned[i] = Z @ rotate_onto(Z, total)
                    total += aligned[i]
                iterations.add(objective(total))

            # level 3: all to the common space of level 2, turned to its principal axes
            target = total @ principal_axes(total)
            rotations = over_subjects(lambda Z: rotate_onto(Z, target), coordinates)
        total = sum(Z @ Q for Z, Q in zip(coordinates, rotations, strict=True))
        self._set_convergence(iterations)
        self.objective_history_ = [*iterations.history, objective(total)]
        return rotations, total / n, (target * target).sum(axis=0)


class Hyperalignment(RotationAligner):
    r"""Rotate every subject onto a common mean, as Haxby et al. (2011) describe.

    With :math:`X_i` the samples of subject i (rows are time points), it lowers

    .. math:: \sum_i \lVert X_i R_i - T \rVert_F^2, \quad T = \frac1M \sum_i X_i R_i,
              \quad\text{subject to}\quad R_i^\top R_i = I

    in three levels: each subject is rotated to the mean of those before it; then each
    to the mean of all others; then all to the common space found so far. The shared
    features are its leading principal components.

    Parameters
    ----------
    n_components : int or None, default=None
        Leading dimensions of the common space to keep; None keeps all.
    max_iter : int, default=1
        Most passes of the second level; the publication does one.
    tol : float, default=0
        Stop the second level once a pass changes the objective by less than this share
        of all that was gained; 0 does all ``max_iter`` passes.
    energy, standardize, n_jobs : various
        As in :class:`DetSRM`.

    Attributes
    ----------
    maps_ : list of SubjectMap
    coef_ : list of ndarray of shape (n_kept_i, K)
        The maps in kernel coordinates.
    template_ : ndarray of shape (n_samples, c)
        The common space T in all its dimensions.
    shared_response_ : ndarray of shape (n_samples, K)
        Its leading dimensions.
    objective_history_ : list of float
        The objective after the first level, each pass of the second, and the third.
    n_iter_, converged_ : int and bool
        Passes of the second level done, and whether they settled.

    Notes
    -----
    Rotations of the at most n - 1 kernel coordinates lose nothing: time
    O(M (n^2 v + n^3)) for M subjects with n samples and v voxels, memory O(M n^2), and
    no voxels x voxels matrix. Voxel counts may differ. Nothing is random.

    References
    ----------
    Haxby, J. V., et al. (2011). A common, high-dimensional model of the
    representational space in human ventral temporal cortex. Neuron 72.

    Examples
    --------
    Two subjects that differ by a rotation become equal:

    >>> rng = np.random.default_rng(0)
    >>> X, Q = rng.normal(size=(20, 30)), np.linalg.qr(rng.normal(size=(30, 30)))[0]
    >>> a, b = Hyperalignment(standardize=False).fit_transform([X, X @ Q])
    >>> bool(np.allclose(a, b))
    True
    """

    _stored: ClassVar[dict[str, Any]] = {"template_": "n dimensions"}

    def _solve(self, bases: list[SubjectBasis], y: list[Any] | None) -> list[Matrix]:
        most = max(b.n_kept for b in bases)
        k = self._components_up_to(most, "of the common space")
        shrinks = [self._shrink(b) for b in bases]
        scaled = [b.coordinates * s for b, s in zip(bases, shrinks, strict=True)]
        rotations, self.template_, variances = self._rotate(scaled)
        warn_of_tie(variances, k)
        self.shared_response_ = self.template_[:, :k]
        return [s[:, None] * Q[:, :k] for s, Q in zip(shrinks, rotations, strict=True)]

    def _shrink(self, basis: SubjectBasis) -> Matrix:
        """Return the factor that scales each kernel coordinate before rotation."""
        return np.ones(basis.n_kept)

    def _make_map(self, basis: SubjectBasis, solution: Matrix) -> SubjectMap:
        # X = T R^T: the way back undoes the rotation, and the scaling if there is any
        shrink = self._shrink(basis)
        if (shrink == 1).all():
            return BasisMap(basis, solution, isometric=True, space=basis.space)
        back = (solution / (shrink**2)[:, None]).T
        return BasisMap(basis, solution, pattern_coef=back, space=basis.space)

    def _solve_new(self, basis: SubjectBasis, y: Any) -> Matrix:
        self._check_rows(basis)
        scale = self._shrink(basis)
        Q = rotate_onto(basis.coordinates * scale, self.template_)
        return scale[:, None] * Q[:, : self.n_components_]


@dataclass(eq=False, repr=False, kw_only=True)
class RegularizedHyperalignment(Hyperalignment):
    r"""Hyperalignment of whitened subjects: from CCA to hyperalignment.

    It lowers the objective of :class:`Hyperalignment` subject to :math:`R_i^\top C_i
    R_i = I` with :math:`C_i = (1 - \alpha) X_i^\top X_i + \alpha I`, which is
    hyperalignment of the :math:`X_i C_i^{-1/2}`. At :math:`\alpha = 0` it is canonical
    correlation analysis, at 1 hyperalignment.

    Parameters
    ----------
    n_components, max_iter, tol, energy, standardize, n_jobs : various
        As in :class:`Hyperalignment`.
    alpha : float in [0, 1], or "auto", default=0.5
        From full whitening (0, CCA) to none (1, hyperalignment). A direction of
        :math:`X_i` with squared singular value d is scaled to :math:`d / ((1 - \alpha)
        d + \alpha)`. The d of standardised samples of v voxels are about v, so values
        of interest lie close to 1, :math:`1 - \alpha` being of the order of 1 / v.
        "auto": the best of 12 at predicting the labels of a subject's own samples,
        where labels repeat (see ``shrinkage`` of :class:`GDM`), else that of Ledoit and
        Wolf.

    Attributes
    ----------
    maps_, coef_, template_, shared_response_, objective_history_, n_iter_, converged_
        As in :class:`Hyperalignment`.
    alpha_, alpha_by_ : float and str
        The alpha that was used, and how it was found: "runs" or "blocks" left out,
        "ledoit-wolf" or "given".

    Notes
    -----
    Cost as in :class:`Hyperalignment`. With fewer samples than voxels, CCA fits
    anything: at alpha near 0 aligning samples agree perfectly, whatever they hold.

    References
    ----------
    Xu, H., Lorbert, A., Ramadge, P. J., Guntupalli, J. S., & Haxby, J. V. (2012).
    Regularized hyperalignment of multi-set fMRI data. IEEE SSP Workshop.

    Examples
    --------
    CCA undoes any linear mixing of voxels, not only rotations:

    >>> rng = np.random.default_rng(0)
    >>> X, A = rng.normal(size=(20, 8)), rng.normal(size=(8, 8))
    >>> rha = RegularizedHyperalignment(alpha=0, standardize=False)
    >>> a, b = rha.fit_transform([X, X @ A])
    >>> bool(np.allclose(a, b))
    True
    """

    alpha: Any = 0.5

    _stored: ClassVar[dict[str, Any]] = {"alpha_": float, "alpha_by_": str}

    @property
    def _learns_from_labels(self) -> bool:  # type: ignore[override]
        return isinstance(self.alpha, str) and self.alpha == "auto"

    def _solve(self, bases: list[SubjectBasis], y: list[Any] | None) -> list[Matrix]:
        if self._learns_from_labels:
            # the whitening is that of a ridge alpha / (1 - alpha)
            whole = [b.cut(1.0) for b in bases]
            graph = time_graph(y or [range(b.n_samples) for b in bases])
            options: Any = {"n_jobs": self.n_jobs, "owner": self._owner}
            rho, self.alpha_by_ = choose_strength(self.alpha, whole, graph, **options)
            ridge = rho * float(np.mean([b.power / b.n_samples for b in whole]))
            self.alpha_ = ridge / (1 + ridge)
        else:
            hint = "It goes from 0 (CCA) to 1 (hyperalignment), or is 'auto'."
            known: Any = {"owner": self._owner, "hint": hint}
            self.alpha_ = check_number("alpha", self.alpha, "[0, 1]", **known)
            self.alpha_by_ = "given"
        return super()._solve(bases, y)

    def _shrink(self, basis: SubjectBasis) -> Matrix:
        return np.asarray(1 / np.sqrt((1 - self.alpha_) * basis.values + self.alpha_))


@dataclass(eq=False, repr=False, kw_only=True)
class KernelHyperalignment(Hyperalignment):
    r"""Hyperalignment of the samples in the feature space of a kernel.

    With the linear kernel it is :class:`Hyperalignment`.

    Parameters
    ----------
    n_components, max_iter, tol, energy, standardize, n_jobs : various
        As in :class:`Hyperalignment`.
    kernel, kernel_params : various
        As in :class:`GDM`; the default is "gaussian".

    Attributes
    ----------
    maps_, coef_, template_, shared_response_, objective_history_, n_iter_, converged_
        As in :class:`Hyperalignment`.

    Notes
    -----
    Cost as in :class:`Hyperalignment`. A map of a kernel other than the linear one
    keeps the subject's aligning samples, and has no way back to voxels.

    References
    ----------
    Lorbert, A., & Ramadge, P. J. (2012). Kernel hyperalignment. NIPS 25.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> X = [rng.normal(size=(20, v)) for v in (30, 40)]
    >>> kha = KernelHyperalignment(5, kernel="linear").fit_transform(X)
    >>> bool(np.allclose(kha[0], Hyperalignment(5).fit_transform(X)[0]))
    True
    """

    kernel: Any = "gaussian"
    kernel_params: Any = None


@dataclass(eq=False, repr=False)
class SVDHyperalignment(RotationAligner):
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
    max_iter, tol, energy, standardize, n_jobs : various
        As in :class:`Hyperalignment`.

    Attributes
    ----------
    maps_, mixing_
        As in :class:`DetSRM`, but the weights are not orthonormal, and the way back to
        voxels is the least-squares fit of the aligning samples.
    singular_values_ : ndarray of shape (K,)
        Of all voxels side by side.
    joint_ : ndarray of shape (n_samples, K)
        :math:`\sqrt M U \Sigma^{-1}`, the mixing of the first phase.
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
    SVD-hyperalignment for multi-subject fMRI data alignment. IEEE MLSP Workshop.

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

    _needs_eigenbasis = False
    _solution_name = "mixing_"
    _stored: ClassVar[dict[str, Any]] = {"joint_": "n K", "singular_values_": "K"}

    def _solve(self, bases: list[SubjectBasis], y: list[Any] | None) -> list[Matrix]:
        k, n = self._wanted_components(bases), bases[0].n_samples
        grams = (
            b.gram if b.energy == 1 else (b.vectors * b.values) @ b.vectors.T
            for b in bases
        )
        with blas_threads(1):
            found, U = scipy.linalg.eigh(
                sum(grams), subset_by_index=[n - k - 1, n - 1], check_finite=False
            )
        values, U = found[:0:-1], U[:, :0:-1]  # the one in front tells of a tie
        rank = int((values > 1e-12 * values[0]).sum())
        self._components_up_to(rank, "that all subjects have together")
        warn_of_tie(found[::-1], k)
        self.singular_values_ = np.sqrt(values)
        self.joint_ = np.sqrt(len(bases)) * U / self.singular_values_
        with subject_threads(len(bases), self.n_jobs) as over_subjects:
            reduced = over_subjects(lambda b: b.gram_times(self.joint_), bases)
        rotations, self.shared_response_, _ = self._rotate(reduced)
        pairs = zip(bases, rotations, strict=True)
        return [b.restrict(self.joint_ @ R) for b, R in pairs]

    def _for_rows(self, rows: Any, y: Any) -> tuple[Any, Any]:
        part: Any
        part, y = super()._for_rows(rows, y)
        # its products are sums over rows, of which there are fewer
        part.joint_ = self.joint_[rows] * (len(self.joint_) / len(rows))
        return part, y

    def _solve_new(self, basis: SubjectBasis, y: Any) -> Matrix:
        self._check_rows(basis)
        R = rotate_onto(basis.gram_times(self.joint_), self.shared_response_)
        return basis.restrict(self.joint_ @ R)
