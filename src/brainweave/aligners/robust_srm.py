"""The Robust Shared Response Model of Turek et al. (2018)."""

from numbers import Real
from typing import Any, cast

import numpy as np
import scipy.sparse
from numpy.typing import NDArray

from brainweave._arrays import column_chunks, ops_for, subject_threads
from brainweave._validation import check_int, check_samples
from brainweave.aligners.maps import WeightMap
from brainweave.aligners.procrustes import align_to
from brainweave.aligners.robust_solver import (
    Chunks,
    Floats,
    Voxels,
    fit_one,
    fit_shared,
    individual_term,
    responses,
)
from brainweave.aligners.timelocked import TimeLocked
from brainweave.basis import SubjectBasis
from brainweave.exceptions import InputError
from brainweave.linalg import flip_signs

Matrix = NDArray[np.float64]


class RobustMap(WeightMap):
    r"""A map that sets aside what is individual before it gives shared features.

    The features of a sample :math:`x` are :math:`\arg\min_r \min_s \frac12 \lVert x -
    W r - s \rVert^2 + \lambda \lVert s \rVert_1`, a robust regression on the weights
    (Huber's loss); a few wild voxels hardly move them. They are not linear in the
    sample; :attr:`weights` gives the linear part, exact for ``lam=inf``.

    Parameters
    ----------
    weights, mean, scale, space, signatures
        As in :class:`SubjectMap`; the weights are orthonormal.
    lam : float
        Weight of the individual term.
    max_iter : int
        Most passes over the voxels.
    """

    def __init__(
        self,
        *,
        weights: Floats,
        mean: Matrix,
        scale: Matrix,
        lam: float,
        max_iter: int,
        space: Any = None,
        signatures: Matrix | None = None,
    ) -> None:
        super().__init__(
            weights=weights,
            isometric=True,
            mean=mean,
            scale=scale,
            space=space,
            signatures=signatures,
        )
        self.lam, self.max_iter = lam, max_iter

    def transform(self, Z: Any, *, name: str = "Z") -> Any:
        """Map samples of this subject into the shared space, (n_samples, K)."""
        Z = check_samples(Z, self.n_voxels, name)
        voxels = self._voxels(Z)
        return voxels.ops.array(self._responses(voxels, Z.shape[0], name))

    def individual(self, Z: Any, *, name: str = "Z") -> scipy.sparse.csc_array:
        """Return what of the samples is individual, standardised, samples x voxels."""
        Z = check_samples(Z, self.n_voxels, name)
        voxels = self._voxels(Z)
        R = self._responses(voxels, Z.shape[0], name)
        return individual_term(voxels, self.weights, R, self.lam)

    def _voxels(self, Z: Any) -> Voxels:
        ops = ops_for(Z)

        def read() -> Chunks:
            for columns, raw in column_chunks(Z):
                z = ops.subtract(ops.array(raw), ops.array(self.mean[columns]))
                z *= ops.array(1 / self.scale[columns])
                yield columns, z

        return Voxels(read, ops)

    def _responses(self, voxels: Voxels, n_samples: int, name: str) -> Matrix:
        R = responses(voxels, self.weights, n_samples, self.lam, max_iter=self.max_iter)
        if not np.isfinite(R).all():
            raise InputError(
                f"{name} has NaN or infinite values. Mask these voxels or drop these "
                "samples."
            )
        return R


class RobustSRM(TimeLocked):
    r"""Shared Response Model with a sparse individual term per subject.

    With :math:`X_i` the samples of subject i (rows are time points), it descends

    .. math:: \sum_i \tfrac12 \lVert X_i - R W_i^\top - S_i \rVert_F^2 + \lambda
              \lVert S_i \rVert_1 \quad\text{subject to}\quad W_i^\top W_i = I_K

    by turns over the maps :math:`W_i` (a polar factor), the individual terms
    :math:`S_i` (soft thresholding) and the shared response :math:`R` (a mean). No turn
    can rise. Without the individual terms it is :class:`DetSRM`.

    Parameters
    ----------
    n_components : int, default=10
        Number of shared features K.
    lam : float > 0, default=1
        Weight :math:`\lambda` of the individual terms: what the shared response leaves
        of a voxel at a time is individual as far as it exceeds ``lam``. In standard
        deviations of the voxel, or in units of the data if they are not standardised.
        Infinity leaves no individual term. BrainIAK's ``gamma``.
    max_iter : int, default=100
        Most rounds.
    tol : float, default=1e-5
        Stop once a round changes the objective by less than this share of all that was
        gained; 0 does all ``max_iter`` rounds.
    init : "random" or array of shape (n_samples, K), default="random"
        Shared response that the first maps are aligned to.
    energy : float in (0, 1], or one per subject, default=1
        Share of the summed singular values that each subject keeps; the model is of the
        samples without the rest.
    standardize : bool or "reliability", default=True
        Give every voxel zero mean and unit variance; else zero mean only.
    random_state : int, RandomState or None
        Seed of the random start.
    n_jobs : int, optional
        Subjects worked on at the same time; default one per core. The result does not
        depend on it.

    Attributes
    ----------
    maps_ : list of RobustMap
        One map per subject, with orthonormal weights. Their ``individual(Z)`` gives the
        individual term of other samples.
    individual_ : list of sparse arrays of shape (n_samples, n_voxels_i)
        :math:`S_i` of the aligning samples, on standardised voxels.
    shared_response_ : ndarray of shape (n_samples, K)
        R, columns in order of decreasing variance, signs fixed.
    objective_history_ : list of float
        The objective at the start, without individual terms, and after each round.
    n_iter_ : int
        Rounds done.
    converged_ : bool
        Whether the objective settled.

    Notes
    -----
    With M subjects, n samples and v voxels a round takes O(M n v K) in two passes over
    chunks of voxels; memory is O(v K) a subject beside one chunk, until the individual
    terms are made: 12 bytes per entry that is not zero (8 in float32). ``transform``
    follows the publication: new samples are freed from their individual part, with the
    map fixed, by alternation, which may take as many passes as ``max_iter``.

    References
    ----------
    Turek, J. S., Ellis, C. T., Skalaban, L. J., Turk-Browne, N. B., & Willke, T. L.
    (2018). Capturing shared and individual information in fMRI data. ICASSP.

    Examples
    --------
    An artefact of one subject is told from the shared response:

    >>> rng = np.random.default_rng(0)
    >>> R = rng.normal(size=(40, 2))
    >>> W = [np.linalg.qr(rng.normal(size=(v, 2)))[0] for v in (30, 50, 40)]
    >>> X = [R @ w.T for w in W]
    >>> X[1][7, 3] += 5
    >>> model = RobustSRM(2, lam=0.5, standardize=False, random_state=0).fit(X)
    >>> [s.nnz for s in model.individual_]
    [0, 1, 0]
    >>> model.individual_[1][7, 3].round(1)
    np.float64(4.3)
    """

    def __init__(
        self,
        n_components: int = 10,
        *,
        lam: float = 1.0,
        max_iter: int = 100,
        tol: float = 1e-5,
        init: Any = "random",
        energy: Any = 1.0,
        standardize: bool | str = True,
        random_state: Any = None,
        n_jobs: int | None = None,
    ) -> None:
        self.n_components = n_components
        self.lam = lam
        self.max_iter = max_iter
        self.tol = tol
        self.init = init
        self.energy = energy
        self.standardize = standardize
        self.random_state = random_state
        self.n_jobs = n_jobs

    _from_grams = False  # the individual terms are of voxels
    _needs_eigenbasis = False

    def _check_subjects(self, subjects: list[Any], y: list[Any] | None) -> None:
        super()._check_subjects(subjects, y)
        self._bound()

    def _bound(self) -> float:
        lam: Any = self.lam
        if isinstance(lam, bool) or not isinstance(lam, Real):
            raise TypeError(f"lam of {self._owner} must be a number > 0, got {lam!r}.")
        if not float(lam) > 0:
            raise InputError(
                f"lam of {self._owner} must be > 0, got {lam}. The larger, the sparser "
                "the individual terms."
            )
        return float(lam)

    def _solve(self, bases: list[SubjectBasis], y: list[Any] | None) -> list[Floats]:
        bound, k, n = self._bound(), self._wanted_components(bases), len(bases)
        start = self._start(bases[0].n_samples, k)
        with subject_threads(n, self.n_jobs) as over_subjects:
            aligned = over_subjects(lambda b: align_to(b, start), bases)
            R = np.asarray(sum(a.features for a in aligned) / n)
            power = sum(b.power for b in bases)
            progress = self._progress((power - n * float((R * R).sum())) / 2)
            subjects = [_voxels_of(b) for b in bases]
            maps = over_subjects(lambda b: b.combine(b.restrict(R)), bases)
            R = fit_shared(
                subjects,
                maps,
                R,
                bound,
                over_subjects=over_subjects,
                progress=progress,
            )
            turn = np.linalg.eigh(R.T @ R)[1][:, ::-1]
            turn = turn * flip_signs(R @ turn)
            self.shared_response_ = R = R @ turn
            maps = [W @ turn.astype(W.dtype) for W in maps]
            self.individual_ = over_subjects(
                lambda v, W: individual_term(v, W, R, bound), subjects, maps
            )
        self._keep_progress(progress)
        return maps

    def _keep_solution(self, solution: list[Matrix]) -> None:
        """Keep nothing beside the maps: they are in voxels, not in coordinates."""

    def _make_map(
        self, basis: SubjectBasis, solution: Floats, *, space: Any = None
    ) -> RobustMap:
        return RobustMap(
            weights=solution,
            mean=basis.mean,
            scale=basis.scale,
            lam=self._bound(),
            max_iter=check_int("max_iter", self.max_iter, minimum=1, owner=self._owner),
            space=space,
            signatures=basis.signatures,
        )

    def _features(self, i: int) -> NDArray[Any]:
        basis, m = self.bases_[i], cast(RobustMap, self.maps_[i])
        voxels = Voxels(basis.chunks, basis.ops)
        R = responses(voxels, m.weights, basis.n_samples, m.lam, max_iter=m.max_iter)
        return R.astype(basis.dtype, copy=False)

    def _solve_new(self, basis: SubjectBasis, y: Any) -> Floats:
        target, bound = self.shared_response_[y], self._bound()
        W = basis.combine(basis.restrict(target))
        fit_one(_voxels_of(basis), W, target, bound, new_progress=self._progress)
        return W


def _voxels_of(basis: SubjectBasis) -> Voxels:
    """Read the aligning samples of a subject, without what the energy cuts off."""
    if basis.kernel.name != "linear":
        raise InputError(
            f"{basis.name} is a basis of the {basis.kernel.name} kernel; RobustSRM "
            "works on voxels. Pass the samples."
        )
    # the first maps have read, and verified, the samples just before
    if basis.energy == 1:
        return Voxels(lambda: basis.chunks(verify=False), basis.ops)
    V = basis.ops.array(basis.vectors)

    def read() -> Chunks:
        for columns, z in basis.chunks(verify=False):
            yield columns, V @ (V.T @ z)

    return Voxels(read, basis.ops)
