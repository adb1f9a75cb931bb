r"""Whether subjects agree on held-out samples more than they would by chance.

Let :math:`h_{it}` be a held-out feature of sample t of subject i, without its slow
trends and with unit mean square over the subject's :math:`n_i` samples, and
:math:`u_{ic} = (n_i n_{ic})^{-1/2} \sum_{t \in c} h_{it}` over the :math:`n_{ic}`
samples of group c. Two subjects agree by :math:`\sum_c u_{ic} u_{jc}`: of time points
the correlation over time, of categories the correlation over all pairs of samples of
the same category. The agreement of a feature is the mean over pairs of subjects.

The null distribution comes from random signs of the cosines of each subject and run,
the same for all features: surrogates are as smooth as the data (docs/error_rates.md).

Components are tested in their order, each without what is shared in those before it.
The statistic of component k is the largest, in units of its spread, of the summed
agreements of components k to k + m - 1 for m = 1, 2, 4 (of the first, up to all that
are tried). Components hold up as long as p < .05, which is one too many in at most 5 %
of all studies; those behind the first with p >= .3 are not tested, and share its p. An
automatic number of components of a film goes by ForwardStop instead (docs/gdm.md).

The labels of one half train the model of the other, so the two statistics depend on
each other. Their null distributions are averaged quantile by quantile, as for two that
rise and fall together: p is at most too large.
"""

from functools import cached_property
from itertools import combinations
from typing import Any, NamedTuple

import numpy as np
import scipy.fft
import scipy.sparse
from scipy.special import gammaln

from brainweave._core.arrays import Codes, Matrix
from brainweave._core.exceptions import InputError
from brainweave.aligners.check.held_out import CANNOT_TELL, Fold, remove_trends
from brainweave.graphs.builders import NO_GROUP

CHUNK = 500_000  # numbers held at a time per subject: about what a cache holds
FEW_GROUPS = 32  # whose sums are products with all surrogates
SIGNS = np.array([-1, 1], np.int8)
SIGNIFICANT = 0.05
LIKELY = 0.3  # up to which p components are tested
#: Below this share of the mean agreement of the likely ones, a component of categories
#: is not kept; and how many standard deviations by chance its agreement may be larger.
NEGLIGIBLE, DOUBT = 0.05, 1.28
#: The share of components of a film that may be kept though they are not shared.
FALSE_SHARE = 0.05
NEIGHBOURS = 4  # components that are tested together with one, at most
LEAST_WAYS = 20  # in which blocks can be ordered, for p < .05


class Agreement(NamedTuple):
    """What held-out samples tell."""

    agreement: Matrix  # of each component
    p: Matrix
    n_kept: int  # by an automatic number
    n_together: int  # how many of the first are clearest together
    statistic: float  # of these
    null: Matrix  # the same by chance, (n_folds, n_permutations)


def permutation_test(
    folds: list[Fold], n_permutations: int, random_state: int, *, by_share: bool = False
) -> Agreement:
    """Test components in order, until one fails (`by_share`: too many are false)."""
    # who is tied to the others by places alone has no groups to be compared by
    each = zip(*(fold.codes for fold in folds), strict=True)
    tied = [i for i, codes in enumerate(each) if any(map(len, codes))]
    folds = [fold.of(tied) for fold in folds]
    for fold in folds:
        pairs = combinations([set(c.tolist()) for c in fold.codes], 2)
        if min(map(len, fold.codes), default=0) < 2 or all(
            len(a & b) < 2 for a, b in pairs
        ):
            raise InputError(
                "subjects share too few groups of samples once half are held out."
            )
    _refuse_few_blocks(folds)
    seeds = [[random_state, number] for number in range(len(folds))]
    halves = [_Half(f, n_permutations, s) for f, s in zip(folds, seeds, strict=True)]
    for half in halves:
        half.keep_own()
    n_components = folds[0].features[0].shape[1]
    agreement, p, first = np.empty(n_components), np.zeros(n_components), None
    n_kept, doubt = 0, 0.0
    for k in range(n_components):
        width = NEIGHBOURS if k else n_components
        values = np.array([half.statistics(k, width) for half in halves])
        clearest = _largest_sum(values)
        first, own = first or clearest, p_of(*clearest[1:])
        p[k:] = max(own, p[k])
        doubt -= float(np.log1p(-min(own, 0.999)))  # ForwardStop
        if doubt <= FALSE_SHARE * (k + 1):
            n_kept = k + 1
        found = values[:, 0].mean(axis=0)
        agreement[k : k + found.size] = found
        hopeless = not by_share or doubt > FALSE_SHARE * n_components
        if p[k] >= LIKELY and hopeless:
            n = 1 if by_share else None
            whole = [half.statistics(k, n_components, n) for half in halves]
            rest = np.mean(whole, axis=0)
            agreement[k:] = rest[0]
            if not by_share:
                n_kept = k + _count_possible(rest, agreement[:k])
            break
        for half in halves:
            half.take_out(k)
    else:
        n_kept = n_kept if by_share else n_components
    nothing = 1, 0.0, np.zeros((1, n_permutations))
    return Agreement(agreement, p, n_kept, *(first or nothing))


def _count_possible(values: Matrix, likely: Matrix) -> int:
    """Count the first components that may agree a twentieth as much as likely ones."""
    values = values[:, : likely.size]
    bound = values[0] + DOUBT * np.sqrt((values[1:] ** 2).mean(axis=0))
    possible = bound >= NEGLIGIBLE * likely.mean() if likely.size else bound > np.inf
    return int(np.append(possible, False).argmin())


def p_of(statistic: float, null: Matrix) -> float:
    """Return how often chance is as good, the folds averaged quantile by quantile."""
    averaged = np.sort(null, axis=1).mean(axis=0)
    # a tie counts against the alignment, also one broken by rounding
    return float((1 + (averaged >= statistic - 1e-9).sum()) / (1 + averaged.size))


def _largest_sum(values: Matrix) -> tuple[int, float, Matrix]:
    """Return how many components are clearest together, how clear, and by chance."""
    k = values.shape[-1]
    sizes = [*(2**e for e in range(k.bit_length()) if 2**e < k), k]
    sums = values.cumsum(axis=-1)[..., np.array(sizes) - 1]
    # signs are symmetric: the mean by chance is zero
    spread = np.sqrt((sums**2).mean(axis=1)).mean(axis=0)
    scores = sums / np.where(spread > 1e-12, spread, np.inf)
    observed = scores[:, 0].mean(axis=0)
    best = int(observed.argmax())
    return sizes[best], float(observed[best]), scores[:, 1:].max(axis=-1)


def _refuse_few_blocks(folds: list[Fold]) -> None:
    """Refuse designs in which even perfect agreement would be no evidence."""
    # blocks, samples of one group without a break, are one observation at most: if they
    # can be ordered in fewer than 20 ways, chance alone has a probability above .05
    for fold in folds:
        counts = []  # of the blocks of each group, by subject and run
        each = zip(fold.rows, fold.codes, fold.stretches, strict=True)
        for rows, codes, runs in each:
            for own in runs:
                new = (np.diff(codes[own]) != 0) | (np.diff(rows[own]) != 1)
                starts = codes[own][np.concatenate([[True], new])]
                counts.append(np.bincount(starts, minlength=fold.n_groups))
        profile = np.array(counts)
        profile = profile[:, profile.any(axis=0)]
        _, alike = np.unique(profile, axis=1, return_counts=True)
        ways = gammaln(profile.sum(axis=1) + 1) - gammaln(profile + 1).sum(axis=1)
        names = float(gammaln(alike + 1).sum())
        differing = float(ways.sum()) - names
        if differing >= np.log(LEAST_WAYS) - 1e-9:
            continue
        found = max(1, round(float(np.exp(max(0.0, differing)))))
        remedy = "Show several groups within a run."
        if ways.sum() > 0:
            n_runs = max(map(len, fold.stretches))
            needed = (np.log(LEAST_WAYS) + names) / float(ways.sum()) * n_runs
            remedy = f"{2 * int(np.ceil(needed - 1e-9))} runs like these would do."
        raise InputError(
            f"{CANNOT_TELL}: in the held-out half, blocks of samples of one group can "
            f"be ordered in {found} {'way' if found == 1 else 'ways'} that differ, so "
            f"even perfect agreement would have p = {1 / found:.2g}. {remedy}"
        )


class _Half:
    """Held-out features as cosines, run by run; those tested are taken out in turn.

    Features of held-out samples are correlated: noise that holds a little of a clear
    component would be called shared. Of categories, which aligned too, what the model
    has for them is taken out; of time points, the mean of all who have them.
    """

    def __init__(self, fold: Fold, n_permutations: int, seed: list[int]) -> None:
        self.fold, m = fold, len(fold.codes)
        self.cosines = [
            _transform(scipy.fft.dct, _unit(remove_trends(f, rows, runs)), runs)
            for rows, f, _, runs in zip(*fold[:4], strict=True)
        ]
        self.signs = []  # of all surrogates, the same for all components
        for i, own in enumerate(self.cosines):
            rng = np.random.default_rng([*seed, i])
            self.signs.append(rng.choice(SIGNS, size=(len(own), 1 + n_permutations)))
            self.signs[i][:, 0] = 1
        self.counts = np.array(
            [np.bincount(c, minlength=fold.n_groups) for c in fold.codes]
        )
        shares = np.sqrt(self.counts / self.counts.sum(axis=1, keepdims=True))
        # those who share all groups count 1
        self.n_pairs = ((shares.sum(axis=0) ** 2).sum() - m) / 2
        self.taken: list[list[Matrix]] = [[] for _ in fold.codes]
        # whether the groups are of those that aligned, as categories are
        known = fold.template[self.counts.sum(axis=0) > 0]
        self.aligned = bool(np.isfinite(known).all())
        # the same time points and runs: then cosines need no transform
        lengths = [list(map(len, own)) for own in fold.stretches]
        self.in_one_order = np.unique(fold.codes[0]).size == fold.codes[0].size and all(
            np.array_equal(codes, fold.codes[0]) and own == lengths[0]
            for codes, own in zip(fold.codes, lengths, strict=True)
        )

    def keep_own(self) -> None:
        """Take out of each feature what those before it of the same subject have.

        For time points alone: the mean that is taken out there holds the noise of every
        subject. What features of one subject have in common sums to about zero over
        subjects, so without it late components would seem to agree.
        """
        if self.aligned:
            return
        for i, features in enumerate(self.cosines):
            Q, R = np.linalg.qr(features)
            sizes = np.diagonal(R)
            self.cosines[i] = np.zeros_like(features)
            self.cosines[i][:, : len(sizes)] = Q * np.where(sizes**2 > 1e-18, sizes, 0)

    def statistics(self, first: int, width: int, n: int | None = None) -> Matrix:
        """Return agreements: as observed, then of (the first n) surrogates."""
        values = [_unit(own[:, first : first + width]) for own in self.cosines]
        signs = [own[:, :n] for own in self.signs]
        squares = self._in_order if self.in_one_order else self._by_groups
        return np.asarray(squares(values, signs) / 2 / self.n_pairs)

    def _in_order(self, values: list[Matrix], signs: list[Matrix]) -> Matrix:
        """Sum over subjects by products: groups are rows, cosines need no transform."""
        V, S = np.stack(values, axis=1), np.stack(signs, axis=2)
        total = np.zeros((S.shape[1], V.shape[2]))
        step = max(1, CHUNK // total.size)
        for start in range(0, len(V), step):
            rows = slice(start, start + step)
            total += ((S[rows].astype(np.float64) @ V[rows]) ** 2).sum(axis=0)
        return np.asarray(total - (V * V).sum(axis=(0, 1)))

    def _by_groups(self, values: list[Matrix], signs: list[Matrix]) -> Matrix:
        n, k = signs[0].shape[1], values[0].shape[1]
        if self.fold.n_groups <= FEW_GROUPS:
            every: Any = 0.0
            alone: Any = 0.0
            for i, (V, S) in enumerate(zip(values, signs, strict=True)):
                U = (self._of_groups[i] * V.T[:, None]).reshape(-1, len(V)) @ S
                every, alone = every + U, alone + U * U
            sums = (every * every - alone).reshape(k, -1, n)
            return np.asarray(sums.sum(axis=1).T)
        found = np.zeros((n, k))
        step = max(1, CHUNK // (max(map(len, [*values, self.counts[0]])) * k))
        for start in range(0, n, step):
            total, own = np.zeros((self.fold.n_groups, min(step, n - start), k)), 0.0
            for i, (V, S) in enumerate(zip(values, signs, strict=True)):
                U = self._sums(i, V[:, None] * S[:, start : start + step, None])
                total += U
                own = own + (U * U).sum(axis=0)
            found[start : start + step] = (total * total).sum(axis=0) - own
        return found

    @cached_property
    def _of_groups(self) -> list[Matrix]:
        """What sums each subject's cosines over groups, (n_groups, n)."""
        found = []
        for i, codes in enumerate(self.fold.codes):
            sizes = np.sqrt(self.counts[i][codes])
            members = np.eye(self.fold.n_groups)[codes] / sizes[:, None]
            found.append(_transform(scipy.fft.dct, members, self.fold.stretches[i]).T)
        return found

    def _sums(self, i: int, made: Matrix) -> Matrix:
        """Return the sums over groups of a subject's surrogates, weighed by size."""
        codes, (n, *shape) = self.fold.codes[i], made.shape
        made = _transform(scipy.fft.idct, made, self.fold.stretches[i])
        weights = 1 / np.sqrt(self.counts[i][codes])
        sums = scipy.sparse.csr_array(
            (weights, (codes, np.arange(n))), shape=(self.fold.n_groups, n)
        )
        return np.asarray(sums @ made.reshape(n, -1)).reshape(-1, *shape)

    def take_out(self, k: int) -> None:
        """Take what is shared in component k out of those behind it."""
        rows, _, codes, stretches, n_groups, template = self.fold
        means, counts = template[:, k], self.counts.sum(axis=0)
        if not self.aligned:
            each = zip(self.cosines, codes, stretches, strict=True)
            sums: Any = 0.0
            for cosines, own, runs in each:
                feature = _transform(scipy.fft.idct, cosines[:, k : k + 1], runs)
                sums = sums + np.bincount(own, feature[:, 0], n_groups)
            means = sums / np.maximum(counts, 1)
        for i, f in enumerate(self.cosines):
            slow = remove_trends(means[codes[i], None], rows[i], stretches[i])
            shared = _transform(scipy.fft.dct, slow, stretches[i])[:, 0]
            for other in self.taken[i]:
                shared -= other * (other @ shared)
            norm = float(np.linalg.norm(shared))
            if norm > 1e-9:
                shared /= norm
                self.taken[i].append(shared)
                f[:, k + 1 :] -= np.outer(shared, shared @ f[:, k + 1 :])


def _unit(features: Matrix) -> Matrix:
    """Return features of unit norm; those that are zero to rounding are zero."""
    norm = np.linalg.norm(features, axis=0)
    return np.asarray(features / np.where(norm > 1e-9 * norm.max(), norm, np.inf))


def _transform(function: Any, values: Matrix, runs: list[Codes]) -> Matrix:
    """Apply a cosine transform, or its inverse, to each run."""
    out = np.empty_like(values)
    for own in runs:
        out[own] = function(values[own], axis=0, norm="ortho")
    return out


def agreement_of_groups(
    features: list[Matrix], codes: list[Codes], n_groups: int
) -> Matrix:
    """Return the agreement of features as they are, trends and all."""
    known = [np.flatnonzero(c != NO_GROUP) for c in codes]
    whole = [[np.arange(len(rows))] for rows in known]
    fold = Fold(
        [np.zeros_like(rows) for rows in known],  # one time, so no trend but the mean
        [np.asarray(f)[rows] for f, rows in zip(features, known, strict=True)],
        [c[rows] for c, rows in zip(codes, known, strict=True)],
        whole,
        n_groups,
        np.empty((n_groups, 0)),
    )
    return _Half(fold, 0, [0]).statistics(0, fold.features[0].shape[1])[0]
