r"""Whether subjects agree on held-out samples more than they would by chance.

With :math:`h_{it}` the standardised held-out feature of sample t of subject i, and
:math:`u_{ic} = n_{ic}^{-1/2} \sum_{t \in c} h_{it}` over the :math:`n_{ic}` samples of
group c, the statistic of a feature is :math:`\sum_{i<j} \sum_c u_{ic} u_{jc}`. Its null
distribution comes from shuffling the held-out labels within each subject; the model of
the other half never saw them. Labels move in the blocks in which they were shown, and
time points by circular shifts, so that slow signals do not pass for shared ones.

The labels of one half train the model of the other, so the two statistics depend on
each other. Their null distributions are averaged quantile by quantile, as for two that
rise and fall together: p is at most too large. It is corrected for the number of
components by the distribution of the largest statistic. The statistics of a component
and all behind it are also added up: many weak ones together can be evidence where none
is alone. Component k of the model of a half stands for component k of the full model:
matching them in any cleverer way would use a model that knows the held-out labels.
"""

import numpy as np
import scipy.sparse
from numpy.typing import NDArray

from brainweave._core.arrays import Codes, Matrix
from brainweave._core.exceptions import InputError
from brainweave.aligners.check.held_out import Fold
from brainweave.basis.linalg import mean_pairwise_correlation
from brainweave.graphs.builders import NO_GROUP

CHUNK = 250_000  # numbers held at a time while shuffling: what a cache holds


def permutation_test(
    folds: list[Fold], n_permutations: int, random_state: int
) -> tuple[Matrix, Matrix, Matrix]:
    """Return the agreement on held-out samples, and two p under shuffled labels.

    That of each component, and that of each and all behind it together.
    """
    k = folds[0].features[0].shape[1]
    observed, null, agreements = np.zeros(k), np.zeros(n_permutations), []
    observed_rest, null_rest = np.zeros(k), np.zeros((n_permutations, k))
    for number, fold in enumerate(folds):
        if min(map(len, fold.codes)) < 2 or not _share_two_groups(fold.codes):
            raise InputError(
                "subjects share too few groups of samples once half are held out."
            )
        held = [_standardized(f) for f in fold.features]
        size = max(int(c.max()) for c in fold.codes) + 1
        agreements.append(agreement_of_groups(held, fold.codes, size))
        pairs = enumerate(zip(fold.codes, fold.rows, strict=True))
        draws = [
            _Shuffles(codes, positions, [random_state, number, i])
            for i, (codes, positions) in pairs
        ]
        values = _z_scores(_statistics(held, draws, size, n_permutations))
        observed += values[0] / len(folds)
        null += np.sort(values[1:].max(axis=1)) / len(folds)
        rest = _z_scores(np.cumsum(values[:, ::-1], axis=1)[:, ::-1])
        observed_rest += rest[0] / len(folds)
        null_rest += np.sort(rest[1:], axis=0) / len(folds)
    # a tie counts against the alignment, also one broken by rounding
    as_good = (null[:, None] >= observed - 1e-9).sum(axis=0)
    as_good_rest = (null_rest >= observed_rest - 1e-9).sum(axis=0)
    with np.errstate(invalid="ignore"):
        agreement = np.nanmean(agreements, axis=0)
    return (
        agreement,
        (1 + as_good) / (1 + n_permutations),
        (1 + as_good_rest) / (1 + n_permutations),
    )


def _z_scores(values: Matrix) -> Matrix:
    """Standardise statistics over what was observed and all permutations."""
    spread = values.std(axis=0)
    centred = values - values.mean(axis=0)
    return np.asarray(centred / np.where(spread > 0, spread, np.inf))


def _standardized(features: Matrix) -> Matrix:
    centred = features - features.mean(axis=0)
    scale = np.sqrt((centred**2).mean(axis=0))
    return np.asarray(centred / np.where(scale > 1e-12 * scale.max(), scale, np.inf))


def _share_two_groups(codes: list[Codes]) -> bool:
    """Whether some two subjects have two groups in common."""
    sets = [set(c.tolist()) for c in codes]
    pairs = [(a, b) for i, a in enumerate(sets) for b in sets[i + 1 :]]
    return any(len(a & b) >= 2 for a, b in pairs)


class _Shuffles:
    """Group codes of one subject's held-out samples: as they are, then shuffled."""

    def __init__(self, codes: Codes, positions: Codes, seed: list[int]) -> None:
        self.codes, self.rng = codes, np.random.default_rng(seed)
        _, first, count = np.unique(codes, return_index=True, return_counts=True)
        single = np.isin(codes, codes[first[count == 1]])
        self.single, self.repeated = np.flatnonzero(single), np.flatnonzero(~single)
        own, positions = codes[self.repeated], positions[self.repeated]
        changed = np.flatnonzero((np.diff(own) != 0) | (np.diff(positions) != 1))
        blocks = np.split(self.repeated, changed + 1)
        if len(blocks) <= len(np.unique(own)):
            # sorted by category: the order tells nothing of time
            blocks = list(self.repeated[:, None])
        self.blocks = np.full((len(blocks), max(map(len, blocks))), -1)
        for out, rows in zip(self.blocks, blocks, strict=True):
            out[: len(rows)] = rows

    def draw(self, n: int, *, keep_first: bool) -> NDArray[np.intp]:
        """Return n rows of codes; the first as they are, if asked for."""
        out = np.tile(self.codes, (n, 1))
        shuffled = out[1 if keep_first else 0 :]
        if not self.repeated.size:  # no group twice, as of time points
            shifts = self.rng.integers(len(self.codes), size=(len(shuffled), 1))
            shuffled[:] = self.codes[np.arange(len(self.codes)) - shifts]
            return out
        for row in shuffled:
            if self.single.size > 1:
                shift = self.rng.integers(self.single.size)
                row[self.single] = np.roll(row[self.single], shift)
            moved = self.blocks[self.rng.permutation(len(self.blocks))]
            row[self.repeated] = self.codes[moved[moved >= 0]]
        return out


def _statistics(
    features: list[Matrix], draws: list[_Shuffles], size: int, n_permutations: int
) -> Matrix:
    """Return the statistic of every component: as observed, then permuted."""
    k = features[0].shape[1]
    values = np.zeros((1 + n_permutations, k))
    step = max(1, CHUNK // (size * k))
    for start in range(0, 1 + n_permutations, step):
        n = min(step, 1 + n_permutations - start)
        total, own = np.zeros((n, size, k)), np.zeros((n, k))
        for F, shuffles in zip(features, draws, strict=True):
            codes = shuffles.draw(n, keep_first=start == 0)
            counts = np.bincount(shuffles.codes, minlength=size)
            weights = np.repeat(1 / np.sqrt(np.maximum(counts, 1)), counts)
            # each shuffle has a row per group, with the samples of the group
            rows = np.argsort(codes, axis=1, kind="stable").ravel()
            ends = np.concatenate([[0], np.cumsum(np.tile(counts, n))])
            sums = scipy.sparse.csr_array(
                (np.tile(weights, n), rows, ends), shape=(n * size, len(F))
            )
            U = np.asarray(sums @ F).reshape(n, size, k)
            total += U
            U *= U
            own += U.sum(axis=1)
        total *= total
        values[start : start + n] = (total.sum(axis=1) - own) / 2
    return values


def agreement_of_groups(
    features: list[Matrix], codes: list[Codes], size: int
) -> Matrix:
    """Correlate the means of each feature over the groups between subjects."""
    means = np.full((len(features), size, features[0].shape[1]), np.nan)
    for out, own, of_samples in zip(means, codes, features, strict=True):
        known = np.flatnonzero(own != NO_GROUP)
        sums, counts = np.zeros_like(out), np.bincount(own[known], minlength=size)
        np.add.at(sums, own[known], of_samples[known])
        out[counts > 0] = sums[counts > 0] / counts[counts > 0, None]
    return mean_pairwise_correlation(means)
