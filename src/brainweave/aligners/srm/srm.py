"""The Shared Response Model of Chen et al. (2015), probabilistic and deterministic."""

from abc import abstractmethod
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple

import numpy as np

from brainweave._core.arrays import Matrix
from brainweave._core.workers import subject_threads
from brainweave.aligners.timelocked import (
    ROUNDING,
    Alignment,
    FromRandomStart,
    Iterations,
    align_to,
    principal_axes,
)
from brainweave.basis.basis import SubjectBasis


@dataclass(eq=False, repr=False, kw_only=True)
class _SharedResponseModel(FromRandomStart):
    """Base of :class:`DetSRM` and :class:`SRM`."""

    energy: Any = 1.0
    device: Any = None

    _isometric = True
    _needs_eigenbasis = False
    _solution_name = "mixing_"

    def _solve(self, bases: list[SubjectBasis], y: list[Any] | None) -> list[Matrix]:
        k = self._wanted_components(bases)
        start = self._start(bases[0].n_samples, k)
        with subject_threads(len(bases), self.n_jobs) as over_subjects:
            aligned, turn, iterations = self._iterate(bases, start, over_subjects)
        self._set_convergence(iterations)
        mixings = []
        for basis, a in zip(bases, aligned, strict=True):
            mixings.append(basis.restrict(a.mixing @ turn))
            basis.free_device_memory()
        return mixings

    @abstractmethod
    def _iterate(
        self, bases: list[SubjectBasis], start: Matrix, over_subjects: Any
    ) -> tuple[list[Alignment], Matrix, Iterations]:
        """Return the maps, the rotation that orders components, and the history."""

    def _solve_new(self, basis: SubjectBasis, y: Any) -> Matrix:
        self._check_rows(basis)
        return basis.restrict(align_to(basis, self.shared_response_).mixing)


class DetSRM(_SharedResponseModel):
    r"""Deterministic Shared Response Model.

    With :math:`X_i` the samples of subject i (rows are time points), it descends

    .. math:: \sum_i \lVert X_i - S W_i^\top \rVert_F^2
              \quad\text{subject to}\quad W_i^\top W_i = I_K

    by turns: every :math:`W_i` is the polar factor of :math:`X_i^\top S`, and
    :math:`S` the mean of the :math:`X_i W_i`. No step can rise.

    Parameters
    ----------
    n_components : int, default=10
        Number of shared features K.
    max_iter : int, default=500
        Most iterations.
    tol : float, default=1e-5
        Stop once an iteration changes the objective by less than this share of all
        that was gained; 0 does all ``max_iter`` iterations.
    energy : float in (0, 1], or one per subject, default=1
        Share of the summed singular values that each subject keeps.
    standardize : bool or "reliability", default=True
        Give every voxel zero mean and unit variance; else zero mean only.
        "reliability": voxels that answer alike to equal labels count more
        (:mod:`brainweave.basis.reliability`).
    n_jobs : int, optional
        Number of parallel jobs; default one per core. The result does not depend on
        it.
    random_state : int, RandomState or None
        Seed of the random start.
    device : str, optional
        Where torch reads the voxels and multiplies Gram matrices, such as "cuda". See
        :class:`SubjectBasis`.

    Attributes
    ----------
    maps_ : list of SubjectMap
        One map per subject, with orthonormal weights.
    mixing_ : list of ndarray of shape (n_samples, K)
        The weights as mixtures of the standardised samples, ``X_i.T @ mixing_[i]``.
    shared_response_ : ndarray of shape (n_samples, K)
        S, columns in order of decreasing variance, signs fixed.
    objective_history_ : list of float
        The objective at the start and after each iteration.
    n_iter_, converged_ : int and bool
        Iterations done, and whether the objective settled.

    Notes
    -----
    Everything is computed from the Gram matrices, exactly: time O(M n^2 v) once for M
    subjects with n samples and v voxels, then O(M n^2 K) an iteration; memory O(M n^2).
    A second fit on ``bases_`` reads no voxel.

    References
    ----------
    Chen, P.-H., Chen, J., Yeshurun, Y., Hasson, U., Haxby, J., & Ramadge, P. J. (2015).
    A reduced-dimension fMRI shared response model. NIPS 28.

    Examples
    --------
    Subjects with different voxels who share a response of three dimensions:

    >>> rng = np.random.default_rng(0)
    >>> S = rng.normal(size=(40, 3))
    >>> W = [np.linalg.qr(rng.normal(size=(v, 3)))[0] for v in (60, 50, 70)]
    >>> X = [S @ w.T for w in W]
    >>> srm = DetSRM(n_components=3, standardize=False, random_state=0)
    >>> a, b, c = srm.fit_transform(X)
    >>> bool(np.allclose(a, b) and np.allclose(a, c))
    True
    """

    def _iterate(
        self, bases: list[SubjectBasis], start: Matrix, over_subjects: Any
    ) -> tuple[list[Alignment], Matrix, Iterations]:
        power = sum(b.power for b in bases)

        def step(S: Matrix) -> tuple[list[Alignment], Matrix, float]:
            aligned = over_subjects(lambda b: align_to(b, S), bases)
            mean = sum(a.features for a in aligned) / len(bases)
            return aligned, mean, power - len(bases) * float((mean * mean).sum())

        aligned, S, value = step(start)
        iterations = self._new_iterations(value)
        while iterations.go_on():
            aligned, S, value = step(S)
            iterations.add(value)
        turn = principal_axes(S)
        self.shared_response_ = S @ turn
        return aligned, turn, iterations


class Model(NamedTuple):
    """Parameters of the probabilistic model; the maps come with their features."""

    maps: list[Alignment]
    sigma: Matrix
    rho2: Matrix


class Posterior(NamedTuple):
    """Mean (n_samples, K) and covariance of the shared response; the likelihood."""

    mean: Matrix
    covariance: Matrix
    log_likelihood: float


class SRM(_SharedResponseModel):
    r"""Probabilistic Shared Response Model.

    The samples of subject i at time t are drawn from

    .. math:: x_{it} \mid s_t \sim N(W_i s_t + \mu_i, \rho_i^2 I), \qquad
              s_t \sim N(0, \Sigma_s), \qquad W_i^\top W_i = I_K.

    Expectation maximisation climbs the likelihood of the data; no step can fall. The E
    step gives the posterior of :math:`s_t`, with covariance :math:`C = (\Sigma_s^{-1} +
    \sum_i \rho_i^{-2} I)^{-1}` and mean :math:`C \sum_i \rho_i^{-2} W_i^\top x_{it}`;
    the M step :math:`\Sigma_s`, the :math:`\rho_i^2` and, by a polar factor, the
    :math:`W_i`.

    Parameters
    ----------
    n_components : int, default=10
        Number of shared features K.
    max_iter, tol, energy, standardize, n_jobs, random_state, device : various
        As in :class:`DetSRM`; ``tol`` is of the log-likelihood.

    Attributes
    ----------
    maps_, mixing_, n_iter_, converged_
        As in :class:`DetSRM`.
    shared_response_ : ndarray of shape (n_samples, K)
        Posterior mean of the shared response.
    sigma_s_ : ndarray of shape (K, K)
        Covariance of the shared response; diagonal, since components are rotated to be
        uncorrelated under the model, in order of decreasing variance.
    rho2_ : ndarray of shape (n_subjects,)
        Noise variance per voxel of each subject.
    objective_history_, log_likelihood_
        The log-likelihood at the start and after each iteration, and its last value.

    Notes
    -----
    Cost and reference as in :class:`DetSRM`. Constant voxels do not count.

    Examples
    --------
    The noise of each subject is found:

    >>> rng = np.random.default_rng(0)
    >>> S, noise = rng.normal(size=(80, 3)), (0.1, 0.2, 0.3)
    >>> W = [np.linalg.qr(rng.normal(size=(50, 3)))[0] for _ in noise]
    >>> X = [S @ w.T + s * rng.normal(size=(80, 50)) for w, s in zip(W, noise)]
    >>> srm = SRM(n_components=3, standardize=False, random_state=0).fit(X)
    >>> np.sqrt(srm.rho2_).round(1)
    array([0.1, 0.2, 0.3])
    """

    _stored: ClassVar[dict[str, Any]] = {
        "sigma_s_": "K K",
        "rho2_": "fitted",
        "log_likelihood_": float,
    }

    def _iterate(
        self, bases: list[SubjectBasis], start: Matrix, over_subjects: Any
    ) -> tuple[list[Alignment], Matrix, Iterations]:
        def align(S: Matrix) -> list[Alignment]:
            return list(over_subjects(lambda b: align_to(b, S), bases))

        sizes, aligned = sizes_of(bases), align(start)
        mean = np.asarray(sum(a.features for a in aligned) / len(bases))
        model = maximise(sizes, aligned, mean)
        posterior = expect(sizes, model)
        iterations = self._new_iterations(posterior.log_likelihood)
        while iterations.go_on():
            S = posterior.mean
            model = maximise(sizes, align(S), S, posterior.covariance)
            posterior = expect(sizes, model)
            iterations.add(posterior.log_likelihood)
        turn = principal_axes(posterior.mean, model.sigma)
        self.shared_response_ = posterior.mean @ turn
        self.sigma_s_ = np.diag(np.linalg.eigvalsh(model.sigma)[::-1])
        self.rho2_ = model.rho2
        self.log_likelihood_ = posterior.log_likelihood
        return model.maps, turn, iterations


def sizes_of(bases: list[SubjectBasis]) -> tuple[Matrix, Matrix, int]:
    """Return the summed squares and voxels of each subject, and the samples of all."""
    n_voxels = [b.n_voxels - b.constant_voxels.size for b in bases]
    return np.array([b.power for b in bases]), np.array(n_voxels), bases[0].n_samples


def expect(sizes: tuple[Matrix, Matrix, int], model: Model) -> Posterior:
    """Return the posterior of the shared response, and the data's likelihood."""
    power, n_voxels, n_samples = sizes
    precision = 1 / model.rho2
    summed = sum(w * a.features for w, a in zip(precision, model.maps, strict=True))
    # in the eigenbasis of sigma nothing has to be inverted, not even a rank below K
    variances, Q = np.linalg.eigh(model.sigma)
    variances = np.maximum(variances, 0)
    tightness = 1 + precision.sum() * variances
    covariance = (Q * (variances / tightness)) @ Q.T
    mean = summed @ covariance
    log_det = (n_voxels * np.log(model.rho2)).sum() + np.log(tightness).sum()
    constant = n_voxels.sum() * np.log(2 * np.pi)
    fit = (power * precision).sum() - (summed * mean).sum()
    value = -0.5 * (n_samples * (log_det + constant) + fit)
    return Posterior(np.asarray(mean), covariance, float(value))


def maximise(
    sizes: tuple[Matrix, Matrix, int],
    aligned: list[Alignment],
    S: Matrix,
    covariance: Matrix | float = 0.0,
) -> Model:
    """Return the parameters that make a shared response, and the maps, most likely."""
    power, n_voxels, n_samples = sizes
    sigma = np.asarray(covariance + S.T @ S / n_samples)
    agreement = np.array([(a.features * S).sum() for a in aligned])
    residual = power - 2 * agreement + n_samples * np.trace(sigma)
    floor = ROUNDING * power  # what noiseless data leave is rounding
    return Model(aligned, sigma, np.maximum(residual, floor) / (n_samples * n_voxels))
