r"""A map for a new subject: monotone descent of a quadratic on the Stiefel manifold.

Minimise :math:`f(Q) = \mathrm{tr}(Q^\top N Q) - 2\,\mathrm{tr}(Q^\top F)` subject to
:math:`Q^\top Q = I`. With :math:`\alpha` at least the largest eigenvalue of :math:`N`,
:math:`f` is majorised at every point by a linear function on the manifold, whose
minimum is the polar factor of :math:`F + (\alpha I - N) Q`; so no step can rise.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from brainweave.linalg import polar

Matrix = NDArray[np.float64]


@dataclass(frozen=True)
class Descent:
    """Where a descent ended, and the objective after each step."""

    Q: Matrix
    history: list[float]
    converged: bool


def descend(
    N: Matrix, F: Matrix, *, max_iter: int = 1000, tol: float = 1e-10
) -> Descent:
    """Descend from the Procrustes solution, the polar factor of F."""
    # all of them: LAPACK's search for the last one alone fails when most are equal
    top = np.linalg.eigvalsh(N)[-1]
    shifted = max(float(top), 0.0) * np.eye(N.shape[0]) - N
    Q = polar(F)
    history = [_objective(N, F, Q)]
    for _ in range(max_iter):
        Q = polar(F + shifted @ Q)
        history.append(_objective(N, F, Q))
        if history[-2] - history[-1] <= tol * abs(history[-1]):
            return Descent(Q, history, True)
    return Descent(Q, history, False)


def _objective(N: Matrix, F: Matrix, Q: Matrix) -> float:
    return float(((N @ Q) * Q).sum() - 2 * (F * Q).sum())
