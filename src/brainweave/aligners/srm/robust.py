r"""The Robust Shared Response Model of Turek et al. (2018).

The objective of one subject, with :math:`D = X - R W^\top`, is minimal over the
individual term for :math:`S = D - C`, where :math:`C` is :math:`D` clipped to
:math:`\pm\lambda`. So :math:`S` is never kept: what the other steps need follows from
:math:`C`, which is made anew for one chunk of voxels after the other,

.. math:: (X - S) W = R + C W, \qquad (X - S)^\top R' = W R^\top R' + C^\top R',

and the objective is :math:`\langle C, D \rangle - \frac12 \langle C, C \rangle`.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import partial
from typing import Any, ClassVar, NamedTuple, cast

import numpy as np
import scipy.sparse
from numpy.typing import NDArray

from brainweave._core.arrays import (
    Floats,
    Matrix,
    NumpyOps,
    as_kind_of,
    ops_for,
    to_numpy,
)
from brainweave._core.validation import check_int, check_number, check_samples
from brainweave._core.workers import subject_threads
from brainweave.aligners.maps import WeightMap, common_settings, refuse_non_finite
from brainweave.aligners.timelocked import FromRandomStart, align_to, principal_axes
from brainweave.basis.basis import SubjectBasis
from brainweave.basis.linalg import polar

Chunks = Iterable[tuple[slice, Any]]

SETTLED = 1e-5  # change of a sample's response, relative to it, that ends the passes


class VoxelReader(NamedTuple):
    """A way to read one subject's standardised voxels again and again."""

    read: Callable[[], Chunks]  # begins a pass; its chunks may be overwritten
    ops: NumpyOps  # the operations in the precision of the chunks

    def residuals(
        self, W: Floats, R: Matrix, bound: float
    ) -> Iterable[tuple[slice, Any, Any, Any]]:
        """Return, per chunk, its columns, weights, D and C."""
        response = self.ops.array(R)
        for columns, z in self.read():
            weights = self.ops.array(W[columns])
            z -= response @ weights.T
            yield columns, weights, z, z.clip(-bound, bound)


def update_response(
    voxels: VoxelReader, W: Floats, R: Matrix, bound: float
) -> tuple[Matrix, float]:
    """Return the response ``(X - S) W`` with the best S, and the objective before."""
    ops, response, value = voxels.ops, R.copy(), 0.0
    for _, weights, D, C in voxels.residuals(W, R, bound):
        response += to_numpy(C @ weights)
        value += ops.inner(C, D) - ops.inner(C, C) / 2
    return response, value


def update_map(
    voxels: VoxelReader, W: Floats, R: Matrix, target: Matrix, *, bound: float
) -> float:
    """Turn W to the polar factor of ``(X - S).T @ target``; return the objective."""
    ops, value = voxels.ops, 0.0
    from_maps, target_there = ops.array(R.T @ target), ops.array(target)
    for columns, weights, D, C in voxels.residuals(W, R, bound):
        W[columns] = to_numpy(weights @ from_maps + C.T @ target_there)
        value += ops.inner(C, D) - ops.inner(C, C) / 2
    orthonormalize(W)
    return value


def orthonormalize(W: Floats) -> None:
    """Replace W by its polar factor, in place."""
    W[:] = polar(W.astype(np.float64))


class RobustMap(WeightMap):
    r"""A map that sets aside what is individual before it gives shared features.

    The features of a sample :math:`x` are :math:`\arg\min_r \min_s \frac12 \lVert x -
    W r - s \rVert^2 + \lambda \lVert s \rVert_1`, a robust regression on the weights
    (Huber's loss); a few wild voxels hardly move them. They are not linear in the
    sample; :attr:`weights` gives the linear part, exact for ``lam=inf``.
    """

    _stored: ClassVar[dict[str, Any]] = {
        **dict.fromkeys(("patterns", "isometric")),  # it is isometric
        "lam": float,
        "max_iter": int,
    }

    def __init__(self, *, lam: float, max_iter: int, **common: Any) -> None:
        super().__init__(isometric=True, **common)
        self.lam, self.max_iter = lam, max_iter

    def transform(self, Z: Any, *, name: str = "Z") -> Any:
        """Map samples of this subject into the shared space, (n_samples, K)."""
        Z = check_samples(Z, self.n_voxels, name)
        voxels = VoxelReader(lambda: self._standardized(Z), ops_for(Z))
        R = self.responses(voxels, Z.shape[0])
        refuse_non_finite(R, name)
        return as_kind_of(Z, R)

    def responses(self, voxels: VoxelReader, n_samples: int) -> Matrix:
        """Return the robust responses of samples: the best ones for this map alone."""
        W, R = self.weights, np.zeros((n_samples, self.n_components))
        for columns, z in voxels.read():
            R += to_numpy(z @ voxels.ops.array(W[columns]))
        if not np.isfinite(R).all() or np.isinf(self.lam):
            return R
        # each pass adds C W; a sample is done once that is below SETTLED of its
        # response, so that no sample depends on which others it came with
        moving = np.full(n_samples, True)
        for _ in range(self.max_iter):
            moved = update_response(voxels, W, R, self.lam)[0] - R
            moved = np.where(moving[:, None], moved, 0)
            R += moved
            length = np.linalg.norm(moved, axis=1)
            moving &= length > SETTLED * np.linalg.norm(R, axis=1)
            if not moving.any():
                break
        return R


@dataclass(eq=False, repr=False, kw_only=True)
class RobustSRM(FromRandomStart):
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
    max_iter : int, default=100
        Most rounds.
    tol, standardize, n_jobs, random_state : various
        As in :class:`DetSRM`.
    lam : float > 0, default=1
        Weight :math:`\lambda` of the individual terms: what the shared response leaves
        of a voxel at a time is individual as far as it exceeds ``lam``. In standard
        deviations of the voxel, or in units of the data if they are not standardised.
        Infinity leaves no individual term. BrainIAK's ``gamma``.

    Attributes
    ----------
    maps_ : list of RobustMap
        One map per subject, with orthonormal weights.
    individual_ : list of sparse arrays of shape (n_samples, n_voxels_i)
        :math:`S_i` of the aligning samples, on standardised voxels.
    shared_response_ : ndarray of shape (n_samples, K)
        R, columns in order of decreasing variance, signs fixed.
    objective_history_, n_iter_, converged_
        As in :class:`DetSRM`, by rounds; the start is without individual terms.

    Notes
    -----
    With M subjects, n samples and v voxels a round takes O(M n v K) in two passes over
    chunks of voxels; memory is O(v K) a subject beside one chunk, and 12 bytes per
    entry of the individual terms. ``transform`` follows the publication: new samples
    are freed from their individual part, in at most ``max_iter`` passes.

    References
    ----------
    Turek, J. S., Ellis, C. T., Skalaban, L. J., Turk-Browne, N. B., & Willke, T. L.
    (2018). Capturing shared and individual information in fMRI data. ICASSP.

    Examples
    --------
    An artefact of one subject is separated from the shared response:

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

    lam: float = 1.0
    max_iter: int = 100

    _from_grams = False  # the individual terms are of voxels
    _stored: ClassVar[dict[str, Any]] = {"individual_": None}  # as large as the data
    _solution_name = ""  # nothing beside the maps
    _needs_eigenbasis = False

    def _bound(self) -> float:
        hint = "The larger, the sparser the individual terms."
        return check_number("lam", self.lam, "(0, inf]", owner=self._owner, hint=hint)

    def _solve(self, bases: list[SubjectBasis], y: list[Any] | None) -> list[Floats]:
        bound, k, n = self._bound(), self._wanted_components(bases), len(bases)
        start = self._start(bases[0].n_samples, k)
        with subject_threads(n, self.n_jobs) as over_subjects:
            aligned = over_subjects(lambda b: align_to(b, start), bases)
            R = previous = np.asarray(sum(a.features for a in aligned) / n)
            power = sum(b.power for b in bases)
            iterations = self._new_iterations((power - n * float((R * R).sum())) / 2)
            subjects = [_aligning_voxels(b) for b in bases]
            maps = over_subjects(lambda b: b.combine(b.restrict(R)), bases)
            over_subjects(orthonormalize, maps)
            while iterations.go_on():
                if iterations.n_iter:
                    turn_map = partial(update_map, R=previous, target=R, bound=bound)
                    over_subjects(turn_map, subjects, maps)
                respond = partial(update_response, R=R, bound=bound)
                responses, values = zip(
                    *over_subjects(respond, subjects, maps), strict=True
                )
                previous, R = R, np.asarray(sum(responses) / n)
                # the mean of the responses lowers the objective by their distance
                gain = n / 2 * float(((R - previous) ** 2).sum())
                iterations.add(sum(values) - gain)
            turn = principal_axes(R)
            self.shared_response_ = R = R @ turn
            maps = [W @ turn.astype(W.dtype) for W in maps]

            def individual_term(voxels: VoxelReader, W: Floats) -> Any:
                each = voxels.residuals(W, R, bound)
                parts = [scipy.sparse.csc_array(to_numpy(D - C)) for *_, D, C in each]
                return scipy.sparse.csc_array(scipy.sparse.hstack(parts, format="csc"))

            self.individual_ = over_subjects(individual_term, subjects, maps)
        self._set_convergence(iterations)
        return maps

    def _make_map(self, basis: SubjectBasis, solution: Floats) -> RobustMap:
        return RobustMap(
            weights=solution,
            lam=self._bound(),
            max_iter=check_int("max_iter", self.max_iter, minimum=1, owner=self._owner),
            **common_settings(basis),
        )

    def _features(self, i: int) -> NDArray[Any]:
        basis, m = self.bases_[i], cast(RobustMap, self.maps_[i])
        R = m.responses(VoxelReader(basis.chunks, basis.ops), basis.n_samples)
        return R.astype(basis.dtype, copy=False)

    def _solve_new(self, basis: SubjectBasis, y: Any) -> Floats:
        self._check_rows(basis)
        target, bound = self.shared_response_, self._bound()
        W, voxels = basis.combine(basis.restrict(target)), _aligning_voxels(basis)
        orthonormalize(W)
        step = partial(update_map, voxels, W, target, target, bound=bound)
        iterations = self._new_iterations(step())
        while iterations.go_on():
            iterations.add(step())
        return W


def _aligning_voxels(basis: SubjectBasis) -> VoxelReader:
    # the first maps have read, and verified, the samples just before
    return VoxelReader(partial(basis.chunks, verify=False), basis.ops)
