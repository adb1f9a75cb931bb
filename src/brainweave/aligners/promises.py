"""Procrustes with a prior of place (ProMises; Andreella and Finos 2022)."""

from dataclasses import KW_ONLY, dataclass
from functools import partial
from typing import Any, ClassVar

import numpy as np

from brainweave._core.arrays import Matrix
from brainweave._core.exceptions import InputError
from brainweave._core.labels import encode_labels
from brainweave._core.validation import check_number
from brainweave._core.workers import subject_threads
from brainweave.aligners.gdm.strength import MOST_SUBJECTS, evenly_spaced, search_grid
from brainweave.aligners.timelocked import (
    InPlaces,
    Iterative,
    principal_axes,
    warn_of_tie,
)
from brainweave.basis.basis import SubjectBasis
from brainweave.basis.linalg import polar

GRID = (0.0, 0.03, 0.1, 0.3, 1.0, 3.0, 10.0, 30.0, 100.0, 1000.0)
TURNS = 10  # of the fits that are compared


@dataclass(eq=False, repr=False)
class ProMises(Iterative, InPlaces):
    r"""Rotate subjects onto their mean, as near to the places of voxels as wanted.

    With :math:`Z_i` the kernel coordinates of subject i (rows are time points), it
    lowers

    .. math:: \sum_i \lVert Z_i - T R_i^\top \rVert_F^2
              - 2 k_i \operatorname{tr}(F_i^\top R_i), \quad T = \frac1M \sum_i Z_i R_i
              \quad\text{subject to}\quad R_i^\top R_i = I

    by turns: each :math:`R_i` is the polar factor of :math:`Z_i^\top T + k_i F_i`, the
    most probable rotation under a von Mises-Fisher prior around :math:`F_i`, which maps
    every voxel to its place. Without the prior it is generalised Procrustes analysis;
    with an infinite one, registration alone.

    Parameters
    ----------
    n_components : int or None, default=None
        Leading dimensions of the common space to keep; None keeps all.
    max_iter : int, default=100
        Most iterations.
    tol : float, default=1e-4
        As in :class:`DetSRM`.
    energy, standardize, n_jobs : various
        As in :class:`DetSRM`.
    concentration : float >= 0 or "auto", default="auto"
        How much places count: :math:`k_i` in units of the mean eigenvalue of the
        subject's Gram matrix. "auto": the best of 10, from 0 to 1000. Each is used to
        fit half of the aligning samples (of the runs, if they are known) with 10
        iterations; the features of the other half are correlated with the mean of the
        other subjects. With fewer than 4 samples it is 1.

    Attributes
    ----------
    maps_ : list of SubjectMap
    coef_ : list of ndarray of shape (n_kept_i, K)
        The maps in kernel coordinates.
    template_ : ndarray of shape (n_samples, c)
        The common space T in all its dimensions.
    frame_ : ndarray of shape (n_places, c)
        Its dimensions in places.
    shared_response_ : ndarray of shape (n_samples, K)
        Its leading dimensions.
    place_ : Correspondence
        In what the voxels of subjects correspond: equal voxels, or a common space.
    concentration_ : float
        The concentration that was used.
    objective_history_, n_iter_, converged_
        As in :class:`DetSRM`.

    Notes
    -----
    This is the efficient form of the publication: rotations of the at most n - 1
    coordinates of each subject, :math:`F_i` being the identity of places in these and
    in the principal axes of the mean of the subjects. Time O(M (n^2 v + n^3)) and
    memory O(M n (n + v)) for M subjects with n samples and v voxels. The start is by
    place alone, so that nothing is random and no subject is a reference.

    References
    ----------
    Andreella, A., & Finos, L. (2022). Procrustes analysis for high-dimensional data.
    Psychometrika 87.

    Examples
    --------
    With a strong prior, voxels stay where they are:

    >>> rng = np.random.default_rng(0)
    >>> S = rng.normal(size=(30, 8))
    >>> X = [S + 0.5 * rng.normal(size=S.shape) for _ in range(3)]
    >>> weights = ProMises(concentration=1e4).fit(X).maps_[0].weights
    >>> strong = ProMises(concentration=1e8).fit(X).maps_[1].weights
    >>> bool(np.abs(weights - strong).max() < 0.01)
    True
    """

    n_components: int | None = None  # type: ignore[assignment]
    _: KW_ONLY
    concentration: float | str = "auto"
    max_iter: int = 100
    tol: float = 1e-4
    energy: Any = 1.0

    _isometric = True
    _stored: ClassVar[dict[str, Any]] = {
        "concentration_": float,
        "template_": "n dimensions",
        "frame_": "places dimensions",
    }

    def _solve(self, bases: list[SubjectBasis], y: list[Any] | None) -> list[Matrix]:
        samples, m = self._in_places(bases), len(bases)
        _, sizes, axes = np.linalg.svd(np.mean(samples, axis=0), full_matrices=False)
        rank = int((sizes > 1e-10 * sizes[0]).sum())
        most = min(rank, max(b.n_kept for b in bases))
        k = self._components_up_to(most, "of the common space")
        self.concentration_ = self._find_concentration(bases)
        self.frame_ = axes[:most].T
        coordinates = [b.coordinates for b in bases]
        identity = [self._identity(b, z) for b, z in zip(bases, samples, strict=True)]
        priors = [self._weight(b) * F for b, F in zip(bases, identity, strict=True)]
        power = sum(b.power for b in bases)

        def average(rotations: list[Matrix]) -> tuple[Matrix, float]:
            pairs = zip(coordinates, rotations, strict=True)
            T = np.asarray(sum(Z @ R for Z, R in pairs) / m)
            near = sum(map(np.vdot, priors, rotations))
            return T, power - m * float((T * T).sum()) - 2 * float(near)

        with subject_threads(m, self.n_jobs) as over_subjects:
            T, value = average(over_subjects(polar, identity))
            iterations = self._new_iterations(value)
            while iterations.go_on():
                turn_to = partial(_most_probable, target=T)
                rotations = over_subjects(turn_to, coordinates, priors)
                T, value = average(rotations)
                iterations.add(value)
        self._set_convergence(iterations)
        turn = principal_axes(T)
        self.template_, self.frame_ = T @ turn, self.frame_ @ turn
        warn_of_tie((self.template_**2).sum(axis=0), k)
        self.shared_response_ = self.template_[:, :k]
        return [R @ turn[:, :k] for R in rotations]

    def _find_concentration(self, bases: list[SubjectBasis]) -> float:
        k, n = self.concentration, bases[0].n_samples
        if not isinstance(k, str):
            return check_number("concentration", k, "[0, inf)", owner=self._owner)
        if k != "auto":
            raise InputError(
                f"concentration of {self._owner} must be a number >= 0 or 'auto'; got "
                f"{k!r}."
            )
        if n < 4:
            return 1.0
        runs = bases[0].runs
        blocks = np.arange(n) if runs is None else encode_labels([runs])[0][0]
        first = blocks < (blocks.max() + 1) // 2
        if not 1 < first.sum() < n - 1:  # of runs
            first = np.arange(n) < n // 2
        few = [bases[i] for i in evenly_spaced(len(bases), MOST_SUBJECTS)]
        folds: list[Any] = []  # bases of some samples, and coordinates of the others
        for rows in (first, ~first):
            parts, others = [], []
            for b in few:
                samples = b.in_places(None)
                part = SubjectBasis(samples[rows], energy=b.energy, standardize=False)
                part.space = b.space
                Z = part.project(samples[~rows])
                parts.append(part)
                others.append(Z - Z.mean(axis=0))
            folds.append((parts, others))

        def agreement(k: float, bases: list[Any], others: list[Matrix]) -> float:
            # how the features of other samples correlate between subjects
            model = ProMises(concentration=k, max_iter=TURNS, tol=0, n_jobs=self.n_jobs)
            maps = zip(others, model._solve(bases, None), strict=True)
            found = np.array([(Z @ R[:, : self.n_components]).ravel() for Z, R in maps])
            total = found.sum(axis=0)
            return float(np.mean([np.corrcoef(f, total - f)[0, 1] for f in found]))

        def agreements(places: list[int]) -> list[float]:
            found = [[agreement(GRID[i], *fold) for fold in folds] for i in places]
            return [float(np.mean(own)) for own in found]

        return GRID[search_grid(agreements, len(GRID))]

    def _weight(self, basis: SubjectBasis) -> float:
        return self.concentration_ * basis.power / basis.n_samples

    def _identity(self, basis: SubjectBasis, samples: Matrix) -> Matrix:
        """Return places, one to one, in the coordinates of a subject and the frame."""
        directions = basis.vectors / np.sqrt(basis.values)
        return np.asarray(directions.T @ (samples @ self.frame_))

    def _solve_new(self, basis: SubjectBasis, y: Any) -> Matrix:
        self._check_rows(basis)
        samples = basis.in_places(self.place_.places().of_new(basis))
        prior = self._weight(basis) * self._identity(basis, samples)
        R = _most_probable(basis.coordinates, prior, self.template_)
        return R[:, : self.n_components_]


def _most_probable(coordinates: Matrix, prior: Matrix, target: Matrix) -> Matrix:
    """Return the rotation onto a target that is most probable under the prior."""
    return polar(coordinates.T @ target + prior)
