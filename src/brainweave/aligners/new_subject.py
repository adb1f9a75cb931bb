r"""A map for a new subject: monotone descent of a quadratic on the Stiefel manifold.

Minimise :math:`f(Q) = \mathrm{tr}(Q^\top N Q) - 2\,\mathrm{tr}(Q^\top F)` subject to
:math:`Q^\top Q = I`. With :math:`\alpha` at least the largest eigenvalue of :math:`N`,
:math:`f` is majorised at every point by a linear function on the manifold, whose
minimum is the polar factor of :math:`F + (\alpha I - N) Q`; so no step can rise.

Only :math:`F`, the edges to the aligning samples, knows the axes of the shared space.
Where :math:`F` has a null space (a category that the new subject lacks, a component
that the edges do not inform), :math:`f` is the same for every rotation and reflection
of the features in it: they would be arbitrary. There the map is zero, the solution of
least norm. With :math:`F = A B^\top`, B an orthonormal basis of the axes that are
determined, the problem is solved for :math:`Q B`, and :math:`Q = (Q B) B^\top`.
"""

from dataclasses import dataclass

import numpy as np
import scipy.linalg
from numpy.typing import NDArray

from brainweave.linalg import polar

Matrix = NDArray[np.float64]

UNDETERMINED = 1e-9  # a share of the edges' size that is no more than rounding


@dataclass(frozen=True)
class Descent:
    """Where a descent ended, and the objective after each step."""

    Q: Matrix
    history: list[float]
    converged: bool
    n_determined: int  # dimensions of the shared space that F determines


def descend(
    N: Matrix,
    F: Matrix,
    *,
    size: float | None = None,
    max_iter: int = 1000,
    tol: float = 1e-10,
) -> Descent:
    """Descend from the Procrustes solution, the polar factor of F.

    Parameters
    ----------
    N : ndarray of shape (n_kept, n_kept)
        The quadratic term.
    F : ndarray of shape (n_kept, K)
        The linear term.
    size : float, optional
        Size of the numbers that F was computed from, which its rounding goes with;
        default: its own.
    max_iter : int, default=1000
        Most steps.
    tol : float, default=1e-10
        A step that lowers the objective by a smaller share is the last.
    """
    _, values, axes = scipy.linalg.svd(F, full_matrices=False, check_finite=False)
    size = max(size or 0.0, float(values.max(initial=0.0)))
    axes = axes[values > UNDETERMINED * size]  # B^T
    if not len(axes):
        return Descent(np.zeros_like(F), [0.0], True, 0)
    F = F @ axes.T
    # all of them: LAPACK's search for the last one alone fails when most are equal
    top = np.linalg.eigvalsh(N)[-1]
    shifted = max(float(top), 0.0) * np.eye(N.shape[0]) - N
    Q = polar(F)
    history = [_objective(N, F, Q)]
    converged = False
    while not converged and len(history) <= max_iter:
        Q = polar(F + shifted @ Q)
        history.append(_objective(N, F, Q))
        converged = history[-2] - history[-1] <= tol * abs(history[-1])
    return Descent(Q @ axes, history, converged, len(axes))


def _objective(N: Matrix, F: Matrix, Q: Matrix) -> float:
    return float(((N @ Q) * Q).sum() - 2 * (F * Q).sum())
