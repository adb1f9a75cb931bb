"""Generalised canonical correlation analysis (MAX-VAR), regularised."""

from dataclasses import KW_ONLY, dataclass
from typing import Any, ClassVar

import numpy as np
import scipy.linalg

from brainweave._core.arrays import Matrix
from brainweave._core.workers import blas_threads
from brainweave.aligners.gdm.strength import choose_strength
from brainweave.aligners.timelocked import TimeLocked, warn_of_tie
from brainweave.basis.basis import SubjectBasis
from brainweave.basis.linalg import flip_signs
from brainweave.graphs.builders import time_graph


@dataclass(eq=False, repr=False)
class GCCA(TimeLocked):
    r"""Generalised CCA: the shared response that all subjects predict best.

    With :math:`X_i` the samples of subject i (rows are time points), it minimises

    .. math:: \sum_i \lVert X_i W_i - G \rVert_F^2 + g_i \lVert W_i \rVert_F^2
              \quad\text{subject to}\quad G^\top G = I_K ,

    which is MAX-VAR of Kettenring (1971) with a ridge. :math:`G` holds the leading
    eigenvectors of :math:`\sum_i S_i`, :math:`S_i = X_i (X_i^\top X_i + g_i)^{-1}
    X_i^\top` being the ridge smoothers, and :math:`W_i` is the ridge regression of
    :math:`G` on :math:`X_i`.

    This is :class:`GDM` with ``graph="time"``, ``constraint="global"``, ``place=None``
    and the same ``shrinkage``: each feature is equal up to its scale. GDM goes further
    where this model cannot: samples that subjects lack, categories, weights between
    groups, places, and scales by agreement.

    Parameters
    ----------
    n_components : int, default=10
        Number of shared features K.
    shrinkage : float, "auto" or "ledoit-wolf", default="auto"
        The ridges :math:`g_i`, in units of the mean eigenvalue of a subject's Gram
        matrix. 0 is plain GCCA, for an ``energy`` below 1 or fewer voxels than samples.
        "auto": chosen as :class:`RegularizedHyperalignment` chooses its ``alpha``.
    energy : float in (0, 1], or one per subject, default=1
        Share of the summed singular values that each subject keeps.
    kernel, kernel_params : various
        As in :class:`GDM`.
    standardize, n_jobs : various
        As in :class:`DetSRM`.

    Attributes
    ----------
    maps_ : list of SubjectMap
    coef_ : list of ndarray of shape (n_kept_i, K)
        The maps in kernel coordinates.
    shared_response_ : ndarray of shape (n_samples, K)
        G, scaled to unit variance, most shared components first.
    eigenvalues_ : ndarray of shape (K,)
        Of :math:`\frac1M \sum_i S_i`: 1 where all M subjects predict a component.
    shrinkage_, shrinkage_by_ : float and str
        The shrinkage that was used, and how it was found.

    Notes
    -----
    Time O(M (n^2 v + n^3)) for M subjects with n samples and v voxels, memory O(M n^2).
    Nothing is random, and the optimum is global.

    References
    ----------
    Kettenring, J. R. (1971). Canonical analysis of several sets of variables.
    Biometrika 58.

    Examples
    --------
    It undoes any linear mixing of voxels:

    >>> rng = np.random.default_rng(0)
    >>> S = rng.normal(size=(60, 3))
    >>> X = [S @ rng.normal(size=(3, v)) for v in (20, 30)]
    >>> a, b = GCCA(3, shrinkage=1e-6).fit_transform(X)
    >>> bool(np.allclose(a, b, atol=1e-3))
    True
    """

    n_components: int = 10
    _: KW_ONLY
    shrinkage: Any = "auto"
    energy: Any = 1.0
    kernel: Any = "linear"
    kernel_params: Any = None
    standardize: bool | str = True
    n_jobs: int | None = None

    _stored: ClassVar[dict[str, Any]] = {
        "eigenvalues_": "K",
        "shrinkage_": float,
        "shrinkage_by_": str,
    }

    @property
    def _learns_from_labels(self) -> bool:  # type: ignore[override]
        return isinstance(self.shrinkage, str) and self.shrinkage == "auto"

    def _solve(self, bases: list[SubjectBasis], y: list[Any] | None) -> list[Matrix]:
        k, m, n = self._wanted_components(bases), len(bases), bases[0].n_samples
        if np.isscalar(self.shrinkage) and self.shrinkage == 0:
            self.shrinkage_, self.shrinkage_by_ = 0.0, "given"
        else:
            graph = time_graph(y or [range(n)] * m)
            options: Any = {"n_jobs": self.n_jobs, "owner": self._owner}
            found = choose_strength(self.shrinkage, bases, graph, **options)
            self.shrinkage_, self.shrinkage_by_ = found
        total = np.zeros((n, n))
        for basis in bases:
            ridged = _ridged(basis, self.shrinkage_)
            half = basis.vectors * np.sqrt(basis.values / ridged)
            total += half @ half.T
        with blas_threads(1):
            values, G = scipy.linalg.eigh(total / m, subset_by_index=[n - k - 1, n - 1])
        warn_of_tie(values[::-1], k)
        self.eigenvalues_, G = values[:0:-1], G[:, :0:-1]
        self.shared_response_ = G * flip_signs(G) * np.sqrt(n)
        return [self._regress(basis) for basis in bases]

    def _regress(self, basis: SubjectBasis) -> Matrix:
        """Return the ridge regression of the shared response, in coordinates."""
        slope = np.sqrt(basis.values) / _ridged(basis, self.shrinkage_)
        return np.asarray(slope[:, None] * (basis.vectors.T @ self.shared_response_))

    def _solve_new(self, basis: SubjectBasis, y: Any) -> Matrix:
        self._check_rows(basis)
        return self._regress(basis)


def _ridged(basis: SubjectBasis, rho: float) -> Matrix:
    """Return the kept eigenvalues of a subject plus its ridge."""
    mean = basis.spectrum.sum() / basis.n_samples
    return np.asarray(basis.values + rho * mean)
