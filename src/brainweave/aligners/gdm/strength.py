r"""How much to shrink, without tuning.

The ridge of subject i is :math:`g_i = \rho\,` times the mean eigenvalue of its Gram
matrix, with one :math:`\rho` for all: the one by which a subject's own samples predict
their groups, or the features of their stimuli, best when a whole block (a run) is left
out (docs/gdm.md).
"""

from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np

from brainweave._core.arrays import Codes, Matrix
from brainweave._core.exceptions import InputError
from brainweave._core.labels import encode_labels
from brainweave._core.validation import check_number
from brainweave._core.workers import map_subjects
from brainweave.aligners.gdm.smoother import (
    DeviceSmoother,
    GramSmoother,
    NarrowSmoother,
    Smoother,
    is_semidefinite,
)
from brainweave.basis.basis import SubjectBasis, recall
from brainweave.basis.linalg import signed_factor
from brainweave.graphs.builders import NO_GROUP, Graph

#: The values of rho that are compared.
GRID = tuple(float(rho) for rho in np.geomspace(0.001, 3, 12))
#: With features of stimuli, which are many and predicted weakly.
FEATURE_GRID = (*GRID, *(float(rho) for rho in np.geomspace(3, 30, 5)[1:]))
N_BLOCKS = 4  # where there are no runs
MOST_SUBJECTS = 12  # evenly spaced, by whom rho is chosen where there are more
CHOICES = ("auto", "ledoit-wolf")
SEMIDEFINITE = ("linear", "gaussian", "quadratic")  # kernels that always are


def smoother_of(basis: SubjectBasis, rho: float) -> Smoother:
    """Return the ridge smoother of a basis, rho in units of its mean eigenvalue."""
    strength, name = rho * basis.power / basis.n_samples, basis.name
    if basis.kernel.name not in SEMIDEFINITE and not is_semidefinite(basis.gram):
        # negative eigenvalues count as zero, also in the unit
        cut = basis.cut(1.0)
        strength = rho * float(cut.values.sum()) / basis.n_samples
        return NarrowSmoother(cut.coordinates, strength, name=name)
    if basis.uses_covariance:
        return NarrowSmoother(basis._narrow, strength, name=name)
    if basis.gram_on_device is not None:
        device: Any = basis._device
        return DeviceSmoother(device, basis.gram_on_device, strength, name=name)
    return GramSmoother(basis.gram, strength, name=name)


def evenly_spaced(n: int, most: int) -> Codes:
    """Return at most so many of n subjects."""
    return np.unique(np.linspace(0, n - 1, min(n, most)).round().astype(np.intp))


def choose_strength(
    shrinkage: Any,
    bases: Sequence[SubjectBasis],
    graph: Graph,
    *,
    n_jobs: int | None,
    owner: str,
    or_later: bool = False,
) -> tuple[float, str]:
    """Return rho, and how it was found, for a parameter `shrinkage`.

    What samples are to predict are the features of stimuli, if the graph has any, or
    the groups of its first term. Where "auto" comes to the covariance, rho is NaN if
    the caller has a better way and finds it `or_later`.
    """
    if not isinstance(shrinkage, str):
        return check_rho(shrinkage, owner), "given"
    if shrinkage not in CHOICES:
        raise InputError(
            f"shrinkage of {owner} must be a number or one of "
            f"{', '.join(map(repr, CHOICES))}; got {shrinkage!r}."
        )
    if shrinkage == "auto" and graph.groups:
        chosen = evenly_spaced(len(bases), MOST_SUBJECTS)
        few = [bases[i] for i in chosen]
        featured = [term for term in graph.groups if term.features is not None]
        term = [*featured, *graph.groups][0]
        codes = [term.codes[graph.slices()[i]] for i in chosen]
        if featured:
            factor, targets = signed_factor(term.affinity)[0], []
            for i, own in zip(chosen, codes, strict=True):
                at = np.flatnonzero(own != NO_GROUP)
                weighed = term.loadings(graph.slices()[i]) @ factor
                targets.append((at, weighed[at]))
            return choose_by_features(few, targets, n_jobs)
        found = _choose_by_blocks(few, codes, n_jobs)
        if found is not None:
            return found
        if or_later:
            return np.nan, "ledoit-wolf"
    voxels = [
        b.n_voxels - b.constant_voxels.size if b.is_linear else None for b in bases
    ]
    return covariance_strength(map(_products, bases), voxels), "ledoit-wolf"


def _products(basis: SubjectBasis) -> Any:
    """Return the Gram matrix, or the samples where voxels are fewer."""
    if basis.uses_covariance:
        return basis.narrow
    return basis.gram if basis.gram_on_device is None else basis.gram_on_device


def check_rho(rho: Any, owner: str) -> float:
    """Refuse a strength that is no positive number."""
    hint = "It is in units of a subject's mean eigenvalue."
    return check_number("shrinkage", rho, "(0, inf)", owner=owner, hint=hint)


# -- by leaving out blocks -------------------------------------------------------------


def _choose_by_blocks(
    bases: Sequence[SubjectBasis], codes: Sequence[Codes], n_jobs: int | None
) -> tuple[float, str] | None:
    """Return the rho that is best for the subjects together, and what was left out."""
    parts, by_runs = [], True
    for basis, own in zip(bases, codes, strict=True):
        runs = None if basis.runs is None else encode_labels([basis.runs])[0][0]
        known = own != NO_GROUP
        known_runs = None if runs is None else runs[known]
        blocks = leave_out_blocks(own[known], known_runs)
        if blocks is not None:
            by_runs = by_runs and blocks is known_runs
            parts.append((basis, own, runs))
    if not parts:
        return None
    return _search(GRID, _criterion_at, parts, n_jobs), "runs" if by_runs else "blocks"


def _criterion_at(
    part: tuple[SubjectBasis, Codes, Codes | None], rhos: Sequence[float]
) -> list[float]:
    basis, codes, runs = part
    key = codes.tobytes() + (b"" if runs is None else runs.tobytes())
    # what a strength reaches does not depend on other subjects: folds share it
    table: dict[float, float] = recall(basis.memory, "criteria", key, dict)
    missing = [rho for rho in rhos if rho not in table]
    if missing:
        smoother = smoother_of(basis, 1.0)
        found: Any = block_criterion(smoother, codes, runs=runs, rhos=missing)
        table.update(zip(missing, found.tolist(), strict=True))
    return [table[rho] for rho in rhos]


def _search(
    grid: Sequence[float],
    criterion_at: Callable[[Any, list[float]], list[float]],
    parts: list[Any],
    n_jobs: int | None,
) -> float:
    """Return the rho at which the mean of a criterion over subjects is largest."""

    def means(places: list[int]) -> list[float]:
        rhos = [[grid[i] for i in places]] * len(parts)
        found = map_subjects(
            criterion_at, parts, rhos, n_jobs=n_jobs, threads_only=True
        )
        return [float(value) for value in np.mean(found, axis=0)]

    return grid[search_grid(means, len(grid))]


def choose_by_features(
    bases: list[SubjectBasis],
    targets: list[tuple[Codes, Matrix]],
    n_jobs: int | None,
) -> tuple[float, str]:
    """Return the rho by which held-out blocks of features are predicted best.

    Blocks are centred before they are compared: what is learned from the others knows
    the mean of a block with the wrong sign, and the more so the stronger the ridge.
    """
    parts, by_runs = [], True
    for basis, (rows, target) in zip(bases, targets, strict=True):
        blocks = np.arange(rows.size) * N_BLOCKS // rows.size
        runs = None if basis.runs is None else encode_labels([basis.runs])[0][0][rows]
        if runs is not None and np.unique(runs).size > 1:
            blocks = runs
        else:
            by_runs = False
        parts.append((basis, rows, target - target.mean(axis=0), blocks))

    def criterion_at(part: Any, rhos: list[float]) -> list[float]:
        basis, rows, target, blocks = part
        smoother = smoother_of(basis, 1.0).subset(rows)
        wanted = _centred_in_blocks(target, blocks)
        each = [smoother.at(rho).leave_out(target, blocks) for rho in rhos]
        return [_correlation(_centred_in_blocks(P, blocks), wanted) for P in each]

    best = _search(FEATURE_GRID, criterion_at, parts, n_jobs)
    return best, "runs" if by_runs else "blocks"


def _centred_in_blocks(values: Matrix, blocks: Codes) -> Matrix:
    _, of_block = np.unique(blocks, return_inverse=True)
    sums = np.zeros((of_block.max() + 1, values.shape[1]))
    np.add.at(sums, of_block, values)
    return np.asarray(values - (sums / np.bincount(of_block)[:, None])[of_block])


def search_grid(
    mean_criteria: Callable[[list[int]], list[float]], size: int = len(GRID)
) -> int:
    """Return the place in the grid of the best value, without computing all of them.

    Every third is computed, then the neighbours of the best until none is better.
    """
    known: dict[int, float] = {}
    places = list(range(1, size, 3))
    while places:
        known.update(zip(places, mean_criteria(places), strict=True))
        best = max(known, key=lambda i: known[i])
        around = (best - 1, best + 1)
        places = [i for i in around if 0 <= i < size and i not in known]
    return best


def block_criterion(
    smoother: Smoother,
    codes: Codes,
    *,
    runs: Codes | None = None,
    rhos: Sequence[float] = GRID,
) -> Matrix | None:
    """Return how well groups in left-out blocks are predicted in one subject.

    By the correlation with the truth, at each rho; None where no group repeats.
    """
    rows = np.flatnonzero(np.asarray(codes) != NO_GROUP)
    if rows.size == 0:
        return None
    own = np.asarray(codes)[rows]
    blocks = leave_out_blocks(own, None if runs is None else np.asarray(runs)[rows])
    if blocks is None:
        return None
    Q, part = group_contrasts(own), smoother.subset(rows)
    each = [part.at(rho).leave_out(Q, blocks) for rho in rhos]
    return np.array([_correlation(P, Q) for P in each])


def group_contrasts(codes: Codes) -> Matrix:
    """Return the centred one-hot contrasts of the groups that occur, weighed alike."""
    _, own = np.unique(codes, return_inverse=True)
    one_hot = np.eye(int(own.max()) + 1)[own]
    one_hot /= np.sqrt(one_hot.sum(axis=0))
    return np.asarray(one_hot - one_hot.mean(axis=0))


def leave_out_blocks(codes: Codes, runs: Codes | None = None) -> Codes | None:
    """Return the block of each sample, or None where nothing can be left out.

    Blocks are the runs, if two groups are in two of them. Otherwise the samples of each
    group are cut into 4 blocks in their order, or as many as it has samples.
    """
    codes = np.asarray(codes)
    if runs is not None and _count_repeated(codes, runs) > 1:
        return runs
    order = np.argsort(codes, kind="stable")
    _, first, sizes = np.unique(codes[order], return_index=True, return_counts=True)
    size = np.repeat(sizes, sizes)
    place = np.arange(codes.size) - np.repeat(first, sizes)  # within its group
    blocks = np.empty(codes.size, np.intp)
    blocks[order] = place * np.minimum(N_BLOCKS, size) // size
    return blocks if _count_repeated(codes, blocks) > 1 else None


def _count_repeated(codes: Codes, blocks: Codes) -> int:
    """Count the groups that occur in more than one block."""
    known = codes != NO_GROUP
    n_blocks = int(blocks.max(initial=0)) + 1
    pairs = np.unique(codes[known] * n_blocks + blocks[known])
    return int((np.bincount(pairs // n_blocks) > 1).sum())


def _correlation(a: Matrix, b: Matrix) -> float:
    a, b = a.ravel() - a.mean(), b.ravel() - b.mean()
    norm = float(np.sqrt((a @ a) * (b @ b)))
    return float(a @ b) / norm if norm > 0 else 0.0


# -- by the voxels' covariance ---------------------------------------------------------


def covariance_strength(
    products: Iterable[Matrix], n_voxels: Sequence[int | None]
) -> float:
    r"""Take rho from the shrinkage of the voxels' covariance, averaged over subjects.

    The covariance shrunk by :math:`\delta`, towards its mean eigenvalue, is a ridge of
    :math:`\rho = \delta / (1 - \delta) \cdot n / v`. For a kernel without voxels (None)
    v is the number of samples less one. If no covariance can say, it is the least rho.
    """
    values = []
    for product, known in zip(products, n_voxels, strict=True):
        n = len(product)
        v = n - 1 if known is None else known
        shrinkage = covariance_shrinkage(product, v)
        if shrinkage is not None:
            delta = min(shrinkage, 0.999)
            values.append(delta / (1 - delta) * n / v)
    if not values:
        return GRID[0]
    # a ridge acts by its order of magnitude
    return float(np.exp(np.mean(np.log(np.maximum(values, GRID[0])))))


def covariance_shrinkage(product: Matrix, n_voxels: int) -> float | None:
    """Return Ledoit and Wolf's shrinkage, from a Gram matrix or centred samples.

    None where the voxels' covariance is what it would be shrunk to, which is 0 / 0.
    """
    n, v, gram, own = len(product), n_voxels, product, product.diagonal()
    if product.shape[0] != product.shape[1]:
        gram, own = product.T @ product, (product * product).sum(axis=1)
    trace = float(own.sum()) / n  # of the covariance, as is the next
    squares = float((gram * gram).sum()) / n**2
    spread = squares - trace**2 / v
    if v < 2 or spread <= 1e-12 * squares:
        return None
    error = float((own**2).sum()) / n**2 - squares / n
    return float(np.clip(error / spread, 0.0, 1.0))
