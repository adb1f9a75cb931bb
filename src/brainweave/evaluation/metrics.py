"""Scores of shared features and of reconstructed voxels: numerics on arrays."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from brainweave._core.arrays import Matrix, to_numpy
from brainweave._core.exceptions import InputError
from brainweave._core.validation import check_int, check_list_of_subjects, check_option


@dataclass(frozen=True)
class SegmentMatching:
    """How often segments of time find themselves among those of other subjects.

    Attributes
    ----------
    scores : ndarray of shape (n_subjects,)
        Share of the segments of each subject that were matched.
    chance : float
        The share that guessing matches.
    n_segments : int
        Segments per subject.
    window : int
        Samples per segment.
    standardized : bool
        Whether all features weighed the same; else each weighed by its spread.
    """

    scores: Matrix
    chance: float
    n_segments: int
    window: int
    standardized: bool = True

    @property
    def mean(self) -> float:
        """Mean over subjects."""
        return float(self.scores.mean())

    @property
    def std(self) -> float:
        """Standard deviation over subjects (divided by their number)."""
        return float(self.scores.std())


def time_segment_matching(
    shared: Sequence[Any],
    *,
    window: int = 9,
    step: int = 1,
    standardize: bool = True,
) -> SegmentMatching:
    """Match segments of time of each subject with the average of the others.

    A segment is matched if it correlates, over its features and samples, more with the
    average of the other subjects over the same segment than with their average over any
    segment that does not overlap it.

    Parameters
    ----------
    shared : list of arrays of shape (n_samples, n_features)
        Features of each subject, locked in time.
    window : int, default=9
        Samples per segment.
    step : int, default=1
        Samples from the start of a segment to the start of the next.
    standardize : bool, default=True
        Whether features are standardised over time, so that all weigh the same. With
        False they are centred and keep their spread: use it for features whose spread
        says how much they count, as that of ``GDM(scale="agreement")`` does.

    Returns
    -------
    SegmentMatching
        Accuracy of each subject, and chance.

    Notes
    -----
    Time O(M n^2 (k + w)) and memory O(n^2) for M subjects, n samples, k features and
    segments of w samples.

    References
    ----------
    Haxby, J. V., et al. (2011). A common, high-dimensional model of the
    representational space in human ventral temporal cortex. Neuron 72.
    Chen, P.-H., et al. (2015). A reduced-dimension fMRI shared response model. NIPS 28.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> story = rng.normal(size=(100, 5))
    >>> X = [story + 0.5 * rng.normal(size=story.shape) for _ in range(4)]
    >>> time_segment_matching(X).mean
    1.0
    """
    arrays = _time_locked(shared, owner="time_segment_matching")
    features = [zscored(s) if standardize else centred(s) for s in arrays]
    total = np.sum(features, axis=0)
    scores = [
        match_segments(own, total - own, window=window, step=step) for own in features
    ]
    return SegmentMatching(
        scores=np.array(scores),
        chance=segment_chance(len(total), window=window, step=step),
        n_segments=len(_segment_starts(len(total), window, step)),
        window=window,
        standardized=bool(standardize),
    )


def segment_chance(n_samples: int, *, window: int, step: int) -> float:
    """Return how often guessing is right, among segments that do not overlap."""
    starts = _segment_starts(n_samples, window, step)
    apart = np.abs(starts[:, None] - starts[None, :]) >= window
    return float(np.mean(1 / (1 + apart.sum(axis=1))))


def match_segments(own: Any, others: Any, *, window: int = 9, step: int = 1) -> float:
    """Return the share of a subject's segments that match the same one of the others.

    As in :func:`time_segment_matching`, with the average of the others given.
    """
    a, b = _time_locked([own, others], owner="match_segments")
    starts = _segment_starts(len(a), window, step)
    correlation = _segment_correlations(a, b, window)[np.ix_(starts, starts)]
    overlap = np.abs(starts[:, None] - starts[None, :]) < window
    rivals = np.where(overlap, -np.inf, correlation)
    # a segment without variation correlates with nothing, so it is not matched
    return float(np.mean(np.diag(correlation) > np.maximum(rivals.max(axis=1), -1)))


def _segment_correlations(a: Matrix, b: Matrix, window: int) -> Matrix:
    """Correlate every segment of a with every one of b, without copying segments."""
    n_segments, size = len(a) - window + 1, window * a.shape[1]
    products = a @ b.T
    inner = np.zeros((n_segments, n_segments))
    for w in range(window):
        inner += products[w : w + n_segments, w : w + n_segments]
    mean_a, mean_b = (_moving_sum(x.sum(axis=1), window) / size for x in (a, b))
    inner -= size * np.outer(mean_a, mean_b)
    norms = []
    for x, mean in ((a, mean_a), (b, mean_b)):
        squares = _moving_sum((x * x).sum(axis=1), window)
        rest = squares - size * mean**2
        flat = rest <= 1e-12 * squares
        norms.append(np.sqrt(np.where(flat, np.inf, rest)))
    return np.asarray(inner / np.outer(*norms))


def _moving_sum(values: Matrix, window: int) -> Matrix:
    return np.convolve(values, np.ones(window), mode="valid")


def _segment_starts(n_samples: int, window: int, step: int) -> NDArray[np.intp]:
    check_int("window", window, minimum=1, owner="time_segment_matching")
    check_int("step", step, minimum=1, owner="time_segment_matching")
    if n_samples < 2 * window:
        raise InputError(
            f"{n_samples} samples hold no two segments of window={window} samples that "
            "do not overlap. Use a shorter window."
        )
    return np.arange(0, n_samples - window + 1, step)


def inter_subject_correlation(shared: Sequence[Any]) -> Matrix:
    """Correlate each feature of each subject with its average over the others.

    Parameters
    ----------
    shared : list of arrays of shape (n_samples, n_features)
        Features of each subject, locked in time. They are standardised over time before
        they are averaged.

    Returns
    -------
    ndarray of shape (n_subjects, n_features)
        NaN where a feature does not vary.

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
    """
    arrays = _time_locked(shared, owner="inter_subject_correlation")
    features = [zscored(array) for array in arrays]
    total = np.sum(features, axis=0)
    correlations = []
    for own in features:
        others = total - own
        others[:, others.std(axis=0) < 1e-12] = 0  # they cancel out, to rounding
        correlations.append(_column_correlations(own, others))
    return np.array(correlations)


def reconstruction_score(
    truth: Any, predicted: Any, *, score: str = "correlation"
) -> Matrix:
    """Score predicted voxels against measured ones, voxel by voxel.

    Parameters
    ----------
    truth, predicted : arrays of shape (n_samples, n_voxels)
        Measured and predicted samples.
    score : {"correlation", "r2"}, default="correlation"
        Correlation over samples, or the share of the variance that is explained, which
        is negative when the prediction is worse than the mean.

    Returns
    -------
    ndarray of shape (n_voxels,)
        NaN for voxels that do not vary in the truth, which say nothing of a prediction;
        a correlation is 0 where the prediction alone does not vary.

    Examples
    --------
    >>> truth = np.array([[1.0, 0.0], [2.0, 0.0], [3.0, 0.0]])
    >>> reconstruction_score(truth, truth + 1, score="r2")
    array([-0.5,  nan])
    """
    check_option("score", score, ("correlation", "r2"), owner="reconstruction_score")
    a, b = (to_numpy(x).astype(np.float64) for x in (truth, predicted))
    if a.ndim != 2 or a.shape != b.shape:
        raise InputError(
            "Truth and prediction must be samples x voxels of one shape; got "
            f"{a.shape} and {b.shape}."
        )
    if len(a) < 2:
        raise InputError(f"A score over samples needs at least 2; got {len(a)}.")
    varies = _scale(a) > 0
    if score == "correlation":
        correlation = _column_correlations(a, b)
        constant = varies & ~(_scale(b) > 0)
        return np.where(constant, 0.0, correlation)
    centred = a - a.mean(axis=0)
    rest = ((a - b) ** 2).sum(axis=0)
    whole = np.where(varies, (centred**2).sum(axis=0), np.nan)
    return np.asarray(1 - rest / whole)


def _time_locked(shared: Sequence[Any], *, owner: str) -> list[Matrix]:
    """Return the subjects' features as float64, refusing unequal numbers of samples."""
    entries = check_list_of_subjects(shared, owner=owner)
    arrays = [to_numpy(s).astype(np.float64) for s in entries]
    first = arrays[0].shape
    for i, array in enumerate(arrays):
        if array.ndim != 2 or array.shape != first:
            raise InputError(
                f"{owner} compares samples x features row by row: subject {i} has "
                f"shape {array.shape}, subject 0 has {first}. Use the same stimuli for "
                "all."
            )
        if not np.isfinite(array).all():
            raise InputError(f"Subject {i} has NaN or infinite features.")
    return arrays


def _scale(x: Matrix) -> Matrix:
    """Return standard deviations over samples, exactly 0 for columns of one value."""
    deviation = x.std(axis=0)
    rounding = 10 * np.finfo(np.float64).eps * np.abs(x).max(axis=0)
    return np.where(deviation <= rounding, 0.0, deviation)


def zscored(x: NDArray[Any]) -> Matrix:
    """Bring columns to zero mean and unit variance; constant ones become zero."""
    x = np.asarray(x, dtype=np.float64)
    scale = _scale(x)
    return (x - x.mean(axis=0)) / np.where(scale > 0, scale, np.inf)


def centred(x: NDArray[Any]) -> Matrix:
    """Bring columns to zero mean; they keep their spread."""
    x = np.asarray(x, dtype=np.float64)
    return np.asarray(x - x.mean(axis=0))


def _column_correlations(a: Matrix, b: Matrix) -> Matrix:
    """Correlate the columns of two arrays; NaN where one of them does not vary."""
    scales = _scale(a), _scale(b)
    product = ((a - a.mean(axis=0)) * (b - b.mean(axis=0))).mean(axis=0)
    norm = scales[0] * scales[1]
    return np.asarray(
        np.divide(product, norm, np.full_like(norm, np.nan), where=norm > 0)
    )
