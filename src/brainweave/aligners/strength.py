r"""How much to shrink, without tuning.

The ridge of subject i is :math:`g_i = \rho\,` times the mean eigenvalue of its Gram
matrix, with one :math:`\rho` for all subjects. It is chosen by how well a subject's own
samples predict their groups when a whole block (a run) is left out. No model has to be
fitted for that: with :math:`H = S + 1/n` and centred contrasts :math:`Q`, the
predictions of block b from the others are

.. math:: P_b = Q_b - (I - H_{bb})^{-1} (Q - H Q)_b ,

and :math:`I - H = g (K + g I)^{-1} - 1/n` takes one inverse per value.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy.linalg
from numpy.typing import NDArray

from brainweave._arrays import map_subjects
from brainweave.exceptions import InputError
from brainweave.graphs import NO_GROUP

Matrix = NDArray[np.float64]
Codes = NDArray[np.intp]

#: The values of rho that are compared.
GRID = tuple(float(rho) for rho in np.geomspace(0.001, 3, 12))
N_BLOCKS = 4  # where there are no runs


def mean_eigenvalue(gram: Matrix) -> float:
    """Return the mean eigenvalue of a Gram matrix, the unit of rho."""
    return float(np.trace(gram) / len(gram))


def group_contrasts(codes: Codes) -> Matrix:
    """Return the centred one-hot contrasts of the groups that occur.

    Groups weigh alike: a contrast is divided by the root of the group's size.
    """
    _, own = np.unique(codes, return_inverse=True)
    one_hot = np.eye(int(own.max()) + 1)[own]
    one_hot /= np.sqrt(one_hot.sum(axis=0))
    return np.asarray(one_hot - one_hot.mean(axis=0))


def leave_out_blocks(codes: Codes, runs: Any = None) -> Codes | None:
    """Return the block of each sample, or None where nothing can be left out.

    Parameters
    ----------
    codes : ndarray of int
        Group of each sample; all known.
    runs : array-like, optional
        The blocks, if there are at least two with samples. Otherwise the samples of
        each group are cut into 4 blocks in their order, or as many as it has samples.

    Notes
    -----
    A group of one block cannot be predicted from the others. With fewer than two
    groups in two blocks there is nothing to choose by.
    """
    codes = np.asarray(codes)
    if runs is not None and len(np.unique(runs)) > 1:
        blocks = np.unique(np.asarray(runs), return_inverse=True)[1]
        if _repeated(codes, blocks) > 1:
            return np.asarray(blocks, np.intp)
    blocks = np.zeros(codes.size, np.intp)
    for group in np.unique(codes):
        rows = np.flatnonzero(codes == group)
        blocks[rows] = np.arange(rows.size) * min(N_BLOCKS, rows.size) // rows.size
    return blocks if _repeated(codes, blocks) > 1 else None


def _repeated(codes: Codes, blocks: Codes) -> int:
    """Count the groups that occur in more than one block."""
    pairs = np.unique(np.column_stack([codes, blocks]), axis=0)
    return int((np.bincount(pairs[:, 0]) > 1).sum())


def leave_block_out(
    gram: Matrix, contrasts: Matrix, blocks: Codes, strength: float
) -> Matrix:
    """Predict the contrasts of each block from the other blocks, in closed form.

    Parameters
    ----------
    gram : ndarray of shape (n_samples, n_samples)
        Centred Gram matrix.
    contrasts : ndarray of shape (n_samples, n_contrasts)
        Centred over the samples.
    blocks : ndarray of int
        Block of each sample.
    strength : float
        The ridge g.
    """
    n = len(gram)
    ridged = np.array(gram)
    ridged[np.diag_indices(n)] += strength
    factor, info = scipy.linalg.lapack.dpotrf(ridged, lower=1, overwrite_a=1)
    if info == 0:
        inverse, info = scipy.linalg.lapack.dpotri(factor, lower=1, overwrite_c=1)
    if info != 0:
        raise InputError(
            "A Gram matrix has negative eigenvalues larger than the ridge "
            f"{strength:.3g}. Take its positive part first."
        )
    lower = np.tril(inverse)
    inverse = lower + np.tril(lower, -1).T
    residual = strength * (inverse @ contrasts)
    predicted = np.array(contrasts)
    for block in np.unique(blocks):
        rows = np.flatnonzero(blocks == block)
        inside = strength * inverse[np.ix_(rows, rows)] - 1 / n
        predicted[rows] -= np.linalg.solve(inside, residual[rows])
    return predicted


@dataclass(frozen=True)
class Strength:
    """The chosen rho, and what each value of the grid reached.

    Attributes
    ----------
    rho : float
        The ridge in units of a subject's mean eigenvalue.
    grid : ndarray
        The values compared; empty if there was nothing to compare by.
    criterion : ndarray
        For each, the mean over subjects of the correlation of predictions and truth.
    how : str
        "blocks", "ledoit-wolf" or "oas".
    """

    rho: float
    grid: Matrix
    criterion: Matrix
    how: str


def choose_strength(
    grams: Sequence[Matrix],
    codes: Sequence[Codes],
    *,
    runs: Sequence[Any] | None = None,
    grid: Sequence[float] = GRID,
    semidefinite: bool = True,
    n_jobs: int | None = None,
) -> Strength | None:
    """Choose rho by leaving out blocks of each subject's own samples.

    Parameters
    ----------
    grams : sequence of ndarray of shape (n_samples_i, n_samples_i)
        Centred Gram matrices.
    codes : sequence of ndarray of int
        Groups of the samples; those without one (NO_GROUP) take no part.
    runs : sequence of array-like, optional
        Run of each sample.
    grid : sequence of float
        The values of rho to compare.
    semidefinite : bool, default=True
        False for kernels that may have negative eigenvalues, which are set to zero.
    n_jobs : int, optional
        Subjects worked on at the same time.

    Returns
    -------
    Strength, or None if no subject has groups that repeat

    Notes
    -----
    It sees no sample but those that align, and no subject sees another.
    """
    each = map_subjects(
        lambda i: block_criterion(
            grams[i],
            codes[i],
            runs=None if runs is None else runs[i],
            grid=grid,
            semidefinite=semidefinite,
        ),
        range(len(grams)),
        n_jobs=n_jobs,
    )
    return best_strength(each, grid)


def best_strength(
    criteria: Sequence[Matrix | None], grid: Sequence[float] = GRID
) -> Strength | None:
    """Return the rho that is best for the subjects together; None if none can say."""
    found = [c for c in criteria if c is not None]
    if not found:
        return None
    criterion = np.mean(found, axis=0)
    return Strength(
        float(grid[int(criterion.argmax())]), np.asarray(grid), criterion, "blocks"
    )


def block_criterion(
    gram: Matrix,
    codes: Codes,
    *,
    runs: Any = None,
    grid: Sequence[float] = GRID,
    semidefinite: bool = True,
) -> Matrix | None:
    """Return what each value of the grid reaches in one subject.

    None where no group repeats. Parameters are as in :func:`choose_strength`.
    """
    rows = np.flatnonzero(np.asarray(codes) != NO_GROUP)
    if rows.size == 0:
        return None
    own = np.asarray(codes)[rows]
    blocks = leave_out_blocks(own, None if runs is None else np.asarray(runs)[rows])
    if blocks is None:
        return None
    if rows.size < len(gram):
        gram = _centred(gram[np.ix_(rows, rows)])
    if not semidefinite:
        gram = positive_part(gram)
    Q, unit = group_contrasts(own), mean_eigenvalue(gram)
    return np.array(
        [_correlation(leave_block_out(gram, Q, blocks, rho * unit), Q) for rho in grid]
    )


def covariance_strength(
    grams: Sequence[Matrix],
    n_voxels: Sequence[int | None],
    how: str = "ledoit-wolf",
) -> Strength:
    r"""Take rho from the shrinkage of the voxels' covariance, averaged over subjects.

    The covariance shrunk by :math:`\delta`, towards its mean eigenvalue, is a ridge of
    :math:`\rho = \delta / (1 - \delta) \cdot n / v`. Both ways need the Gram matrix
    alone. For a kernel without voxels v is the number of samples less one.

    Parameters
    ----------
    grams : sequence of ndarray
        Centred Gram matrices.
    n_voxels : sequence of int or None
        Number of voxels of each subject; None for other kernels than the linear one.
    how : {"ledoit-wolf", "oas"}
        Ledoit and Wolf (2004), or the oracle approximating shrinkage of Chen et al.
        (2010).
    """
    if how not in ("ledoit-wolf", "oas"):
        raise InputError(f"how must be 'ledoit-wolf' or 'oas'; got {how!r}.")
    values = []
    for gram, known in zip(grams, n_voxels, strict=True):
        n = len(gram)
        v = n - 1 if known is None else known
        delta = min(covariance_shrinkage(gram, v, how), 0.999)
        values.append(delta / (1 - delta) * n / v)
    # a ridge acts by its order of magnitude
    rho = float(np.exp(np.mean(np.log(np.maximum(values, GRID[0])))))
    return Strength(rho, np.empty(0), np.empty(0), how)


def covariance_shrinkage(gram: Matrix, n_voxels: int, how: str) -> float:
    """Return the shrinkage of the voxels' covariance from the samples' Gram matrix."""
    n, v = len(gram), n_voxels
    trace = np.trace(gram) / n  # of the covariance, as is the next
    squares = float((gram * gram).sum()) / n**2
    if how == "oas":
        alpha, mean = squares / v**2, trace / v
        below = (n + 1) * (alpha - mean**2 / v)
        return float(1.0 if below <= 0 else min((alpha + mean**2) / below, 1.0))
    spread = squares - trace**2 / v
    error = float((gram.diagonal() ** 2).sum()) / n**2 - squares / n
    return float(0.0 if spread <= 0 else np.clip(error / spread, 0.0, 1.0))


def positive_part(gram: Matrix) -> Matrix:
    """Return a Gram matrix with its negative eigenvalues set to zero."""
    values, vectors = np.linalg.eigh(gram)
    if values[0] >= 0:
        return gram
    return np.asarray((vectors * np.maximum(values, 0)) @ vectors.T)


def _centred(gram: Matrix) -> Matrix:
    means = gram.mean(axis=0)
    return np.asarray(gram - means - means[:, None] + means.mean())


def _correlation(a: Matrix, b: Matrix) -> float:
    a, b = a.ravel() - a.mean(), b.ravel() - b.mean()
    norm = float(np.sqrt((a @ a) * (b @ b)))
    return float(a @ b) / norm if norm > 0 else 0.0
