"""Inter-subject correlation, of features, voxels or parcels, and its tests."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import Any

import numpy as np
from scipy import stats
from sklearn.utils import check_random_state

from brainweave._core.arrays import Matrix
from brainweave._core.exceptions import InputError
from brainweave._core.validation import check_int, check_option
from brainweave.evaluation.metrics import (
    averages_of_others,
    column_correlations,
    on_timeline,
    seen_by_both,
    seen_means,
    zscored,
)

NULLS = ("sign-flip", "phase", "shift", "bootstrap")


def inter_subject_correlation(
    shared: Sequence[Any],
    ids: Sequence[Any] | None = None,
    *,
    pairwise: bool = False,
    standardize: bool = True,
    window: int | None = None,
    step: int = 1,
) -> Matrix:
    """Correlate each feature of each subject with its average over the others.

    Parameters
    ----------
    shared : list of arrays of shape (n_samples_i, n_features)
        Features, voxels or parcels of each subject.
    ids : list of array-like, optional
        Stimulus id of each sample, as in :func:`brainweave.time_segment_matching`; what
        both saw is compared. By default rows correspond.
    pairwise : bool, default=False
        Correlate all pairs of subjects instead.
    standardize : bool, default=True
        Whether subjects are standardised over time before they are averaged, so that
        all weigh the same; with False they are averaged as they are.
    window, step : int, optional
        Correlate within windows of so many samples, each a step after the last.

    Returns
    -------
    ndarray of shape (n_subjects or n_pairs, n_features)
        Pairs in the order (0, 1), (0, 2), ..., (1, 2), ...; with `window` of shape
        (n_windows, n_subjects or n_pairs, n_features). NaN where a feature does not
        vary, or fewer than two samples were seen by both.

    References
    ----------
    Hasson, U., et al. (2004). Intersubject synchronization of cortical activity during
    natural vision. Science 303.

    Examples
    --------
    >>> x = np.random.default_rng(0).normal(size=(50, 2))
    >>> inter_subject_correlation([x, 3 * x + 1, -x]).round(2)
    array([[nan, nan],
           [nan, nan],
           [-1., -1.]])
    >>> inter_subject_correlation([x, x[10:]], [range(50), range(10, 50)]).round(2)
    array([[1., 1.],
           [1., 1.]])
    """
    owner = "inter_subject_correlation"
    features, _ = on_timeline(shared, ids, standardize, owner=owner)
    if window is None:
        return _correlations(features, pairwise)
    n = len(features[0])
    check_int("window", window, minimum=2, owner=owner)
    check_int("step", step, minimum=1, owner=owner)
    if window > n:
        raise InputError(f"window={window} is longer than the {n} samples of the film.")
    starts = range(0, n - window + 1, step)
    within = ([x[s : s + window] for x in features] for s in starts)
    return np.array([_correlations(part, pairwise) for part in within])


def inter_subject_functional_connectivity(
    shared: Sequence[Any],
    ids: Sequence[Any] | None = None,
    *,
    pairwise: bool = False,
    standardize: bool = True,
) -> Matrix:
    """Correlate every feature of a subject with every feature of the others.

    Parameters
    ----------
    shared, ids, pairwise, standardize : various
        As in :func:`inter_subject_correlation`.

    Returns
    -------
    ndarray of shape (n_subjects or n_pairs, n_features, n_features)
        Symmetric, the mean of both directions; the diagonal is the inter-subject
        correlation.

    References
    ----------
    Simony, E., et al. (2016). Dynamic reconfiguration of the default mode network
    during narrative comprehension. Nature Communications 7.

    Examples
    --------
    >>> x = np.random.default_rng(0).normal(size=(50, 2))
    >>> inter_subject_functional_connectivity([x, x[:, ::-1], x]).shape
    (3, 2, 2)
    """
    owner = "inter_subject_functional_connectivity"
    features, _ = on_timeline(shared, ids, standardize, owner=owner)
    found = []
    for a, b in _compared(features, pairwise):
        both = seen_by_both(a, b)
        za, zb = zscored(a[both]), zscored(b[both])
        crossed = za.T @ zb / max(len(za), 1)
        crossed[~np.outer(za.any(axis=0), zb.any(axis=0))] = np.nan  # constant features
        found.append((crossed + crossed.T) / 2)
    return np.array(found)


@dataclass(frozen=True)
class IscTest:
    """A test of inter-subject correlation, feature by feature.

    Attributes
    ----------
    statistic : ndarray of shape (n_features,)
        The mean over subjects, or pairs; of two groups the first less the second.
    p : ndarray of shape (n_features,)
        One-sided against zero; two-sided between groups.
    p_max : ndarray of shape (n_features,)
        Corrected for all features by the largest statistic of each draw.
    q : ndarray of shape (n_features,)
        False discovery rate (Benjamini and Hochberg).
    interval : ndarray of shape (2, n_features)
        The middle 95 % of the draws: of the statistic for "bootstrap", else of the
        statistic if there is no relation.
    how : str
        What was drawn.
    """

    statistic: Matrix
    p: Matrix
    p_max: Matrix
    q: Matrix
    interval: Matrix
    how: str


def isc_test(
    shared: Sequence[Any],
    ids: Sequence[Any] | None = None,
    *,
    null: str = "sign-flip",
    groups: Sequence[Any] | None = None,
    pairwise: bool = False,
    standardize: bool = True,
    n_draws: int = 1000,
    random_state: Any = None,
) -> IscTest:
    """Test inter-subject correlation, of one group against zero or between two groups.

    Parameters
    ----------
    shared, ids : various
        As in :func:`inter_subject_correlation`.
    null : {"sign-flip", "phase", "shift", "bootstrap"}, default="sign-flip"
        What is drawn, alike for all features of a subject. The first three make
        subjects unrelated and correlate them again: the sign of each subject's samples
        is flipped at random, the phases of their Fourier transform are randomised, or
        they are shifted in time, in a circle. "bootstrap" draws subjects with
        replacement (pairs of a subject with itself do not count) and tells how far the
        statistic would vary over subjects; its p is approximate.
    groups : sequence, optional
        Group of each subject, two in all: their membership is permuted, and `null` is
        not used.
    pairwise, standardize : bool
        As in :func:`inter_subject_correlation`.
    n_draws : int, default=1000
        Number of draws; no p is below 1 / (1 + n_draws).
    random_state : int, RandomState or None
        Seed of the draws.

    Returns
    -------
    IscTest
        Statistics and p-values.

    Notes
    -----
    Sign flips are exact for noise that is symmetric about zero, whatever its course
    over time; phases and shifts take courses that all have, such as a drift, for
    agreement. Flipping signs of the correlations themselves would not be: those of a
    subject with the average of the others depend on each other. If features are voxels,
    ``subject.space.to_image(test.statistic)`` is a map of the brain.

    References
    ----------
    Chen, G., et al. (2016). Untangling the relatedness among correlations, part I.
    NeuroImage 142.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> story = np.c_[rng.normal(size=80), np.zeros(80)]
    >>> X = [story + rng.normal(size=(80, 2)) for _ in range(8)]
    >>> isc_test(X, n_draws=200, random_state=0).p_max < 0.05
    array([ True, False])
    """
    check_int("n_draws", n_draws, minimum=1, owner="isc_test")
    check_option("null", null, NULLS, owner="isc_test")
    features, _ = on_timeline(shared, ids, standardize, owner="isc_test")
    rng = check_random_state(random_state)
    if groups is not None:
        draw, how = _membership(features, groups, pairwise), "permuted groups"
    elif null == "bootstrap":
        draw, how = _resampled(features, pairwise), "bootstrap over subjects"
    else:
        draw, how = _unrelated(features, null, pairwise), null
    seen, drawn = draw(None), np.array([draw(rng) for _ in range(n_draws)])
    known = ~np.isnan(seen)
    null_draws, found = drawn[:, known], seen[known]
    if how.startswith("bootstrap"):
        null_draws = null_draws - found
    if groups is not None:
        null_draws, found = np.abs(null_draws), np.abs(found)
    p, p_max, q = (np.full(seen.shape, np.nan) for _ in range(3))
    if known.any():
        # a tie counts, also one broken by rounding
        as_large = null_draws >= found - 1e-12
        largest = np.nanmax(null_draws, axis=1)[:, None] >= found - 1e-12
        p[known] = (1 + as_large.sum(axis=0)) / (1 + n_draws)
        p_max[known] = (1 + largest.sum(axis=0)) / (1 + n_draws)
        q[known] = stats.false_discovery_control(p[known])
    interval = np.percentile(drawn, [2.5, 97.5], axis=0)
    return IscTest(seen, p, p_max, q, interval, how)


# -- numbers ---------------------------------------------------------------------------


def _compared(features: list[Matrix], pairwise: bool) -> list[tuple[Matrix, Matrix]]:
    """Return what is correlated: two subjects, or one and the average of the others."""
    if pairwise:
        return list(combinations(features, 2))
    others = averages_of_others(features)
    for average in others:
        flat = np.nanstd(average, axis=0) < 1e-12  # they cancel out, to rounding
        average[:, flat] = np.where(np.isnan(average[:, flat]), np.nan, 0)
    return list(zip(features, others, strict=True))


def _correlations(features: list[Matrix], pairwise: bool) -> Matrix:
    if pairwise and not any(np.isnan(x[:, :1]).any() for x in features):
        z = [zscored(x) for x in features]  # once, not in every pair
        z = [np.where(x.any(axis=0), x, np.nan) for x in z]
        products = (np.einsum("nk,nk->k", a, b) for a, b in combinations(z, 2))
        return np.array(list(products)) / len(z[0])
    return np.array([column_correlations(*p) for p in _compared(features, pairwise)])


# -- draws: functions of a generator, or of None for what was observed -----------------


def _unrelated(features: list[Matrix], null: str, pairwise: bool) -> Any:
    """Break the relation of subjects, each by itself, where it has samples."""
    rows = [~np.isnan(x[:, 0]) for x in features]

    def change(x: Matrix, rng: Any) -> Matrix:
        if null == "sign-flip":
            return x * rng.choice([-1.0, 1.0])
        if null == "shift":
            return np.roll(x, rng.randint(len(x)), axis=0)
        spectrum = np.fft.rfft(x, axis=0)
        turned = slice(1, (len(x) + 1) // 2)  # neither the mean nor Nyquist
        angles = rng.uniform(0, 2 * np.pi, size=len(spectrum[turned]))
        spectrum[turned] *= np.exp(1j * angles)[:, None]
        return np.fft.irfft(spectrum, n=len(x), axis=0)

    if null == "sign-flip" and pairwise:  # the correlations change their signs alike
        found = _correlations(features, pairwise)
        first, second = np.triu_indices(len(features), 1)

        def flip(rng: Any) -> Matrix:
            signs = np.ones(len(features))
            if rng is not None:
                signs = rng.choice([-1.0, 1.0], size=len(features))
            return seen_means((signs[first] * signs[second])[:, None] * found, 0)

        return flip

    def draw(rng: Any) -> Matrix:
        changed = features
        if rng is not None:
            changed = [x.copy() for x in features]
            for x, own in zip(changed, rows, strict=True):
                x[own] = change(x[own], rng)
        return seen_means(_correlations(changed, pairwise), 0)

    return draw


def _resampled(features: list[Matrix], pairwise: bool) -> Any:
    """Draw subjects with replacement, with their correlations."""
    found, n = _correlations(features, pairwise), len(features)
    if not pairwise:
        return lambda rng: seen_means(
            found if rng is None else found[rng.randint(n, size=n)], 0
        )
    square = np.full((n, n, found.shape[1]), np.nan)
    for (i, j), values in zip(combinations(range(n), 2), found, strict=True):
        square[i, j] = square[j, i] = values
    first, second = np.triu_indices(n, 1)

    def draw(rng: Any) -> Matrix:
        who = np.arange(n) if rng is None else rng.randint(n, size=n)
        while (who == who[0]).all():  # one subject alone makes no pair
            who = rng.randint(n, size=n)
        return seen_means(square[who[first], who[second]], 0)

    return draw


def _membership(features: list[Matrix], groups: Sequence[Any], pairwise: bool) -> Any:
    """Permute who is in which of two groups."""
    names = list(dict.fromkeys(groups))
    sizes = [list(groups).count(name) for name in names]
    if len(groups) != len(features) or len(names) != 2 or min(sizes) < 2:
        raise InputError(
            "groups of isc_test must name the group of each subject, two groups of at "
            f"least 2 subjects; got {dict(zip(names, sizes, strict=True))} for "
            f"{len(features)} subjects."
        )
    first = np.array([group == names[0] for group in groups])

    def draw(rng: Any) -> Matrix:
        inside = first if rng is None else rng.permutation(first)
        a, b = (
            [x for x, chosen in zip(features, side, strict=True) if chosen]
            for side in (inside, ~inside)
        )
        mean_a, mean_b = (seen_means(_correlations(x, pairwise), 0) for x in (a, b))
        return mean_a - mean_b

    return draw
