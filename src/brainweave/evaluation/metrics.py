"""Scores of shared features and of reconstructed voxels: numerics on arrays.

People are compared where they saw the same: on a timeline of stimulus ids, which are
moments such as "film@12.5", or numbers; other texts come in the order in which they
first appear. Who was scanned at other times is resampled beforehand, by
:func:`brainweave.study.film_clock`.
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from brainweave._core.arrays import Codes, Matrix, to_numpy
from brainweave._core.exceptions import InputError
from brainweave._core.labels import object_array
from brainweave._core.validation import (
    check_fraction,
    check_int,
    check_list_of_subjects,
    check_option,
)
from brainweave.study.study import Study, Subject
from brainweave.study.subject import split_moments

LONGEST = 20  # places per time that anybody saw: more are no film, but codes


@dataclass(frozen=True)
class Timeline:
    """Places, one per time step, in which nobody may have a sample.

    `places` has the place of each sample of each subject, -1 without an id; `films` the
    number of the film at each place; `names` the films.
    """

    places: list[Codes]
    films: Codes
    names: list[str]

    def place(self, x: Matrix, subject: int) -> Matrix:
        """Put the rows of a subject at their places among rows of NaN."""
        out = np.full((self.films.size, x.shape[1]), np.nan)
        known = self.places[subject] >= 0
        out[self.places[subject][known]] = x[known]
        return out

    @property
    def seen(self) -> Any:
        """Who has a sample at which place, as booleans (n_subjects, n_places)."""
        seen = np.zeros((len(self.places), self.films.size), bool)
        for own, places in zip(seen, self.places, strict=True):
            own[places[places >= 0]] = True
        return seen


def study_timeline(study: Study) -> Timeline:
    """Return the timeline of a study, by its rows unless these show something else.

    Refuses subjects whose samples differ while somebody has no ids.
    """
    first = study.subjects[0]
    for subject in study:
        for what in ("n_samples", "labels", "stimuli"):
            own, known = getattr(subject, what), getattr(first, what)
            if own is None or known is None or np.array_equal(own, known):
                continue
            if all(s.stimuli is not None for s in study):
                ids = [np.asarray(s.stimuli, object).tolist() for s in study]
                return timeline(ids, study.ids)
            shown = {"n_samples": f"{own} samples", "labels": "other categories"}
            raise InputError(
                f"The samples of subject {subject.id!r} differ from those of "
                f"{first.id!r} ({shown.get(what, 'other stimuli')}). This compares "
                "subjects sample by sample: give the stimulus id of every sample, as "
                "y or as stimuli of the subjects, so that what both saw is compared."
            )
    n = first.n_samples
    return Timeline([np.arange(n)] * len(study), np.zeros(n, np.intp), [])


def timeline(ids: list[list[Any]], names: list[str]) -> Timeline:
    """Put the ids of named subjects on a timeline.

    Examples
    --------
    >>> line = timeline([[3, 1, 2], [2, 5]], ["a", "b"])
    >>> [places.tolist() for places in line.places], line.films.size
    ([[2, 0, 1], [1, 4]], 5)
    """
    held = Counter(v for own in ids for v in own if v is not None)
    films, times = _films_and_times(list(held))
    moments = dict(zip(held, zip(films, times, strict=True), strict=True))
    for name, own in zip(names, ids, strict=True):
        twice = [v for v, n in Counter(own).items() if n > 1 and v is not None]
        if twice:
            raise InputError(
                f"Subject {name!r} has the stimulus id {twice[0]!r} more than once; "
                "the ids of a film are unique within a subject."
            )
    listed = list(dict.fromkeys(films))
    for film in listed:
        _check_units(film, ids, names, moments, held)
    place_of: dict[Any, int] = {}
    film_at: list[int] = []
    for number, film in enumerate(listed):
        of_film = {v: time for v, (name, time) in moments.items() if name == film}
        seconds = np.unique(list(of_film.values()))
        step = np.median(np.diff(seconds)) if seconds.size > 1 else 1
        grid = np.round((seconds - seconds[0]) / step).astype(int)
        if (np.diff(grid) == 0).any() or grid[-1] > LONGEST * seconds.size:
            grid = np.arange(seconds.size)
        at = dict(zip(seconds.tolist(), (grid + len(film_at)).tolist(), strict=True))
        place_of |= {v: at[time] for v, time in of_film.items()}
        film_at += [number] * (1 + int(grid[-1]))
    places = [np.array([place_of.get(v, -1) for v in own], np.intp) for own in ids]
    return Timeline(places, np.array(film_at, np.intp), listed)


def _films_and_times(ids: list[Any]) -> tuple[list[str], list[float]]:
    if all(isinstance(v, int | float) for v in ids):
        return [""] * len(ids), [float(v) for v in ids]
    found = split_moments(object_array(ids))
    if found is None or None in found[0].tolist():
        return [""] * len(ids), [float(i) for i in range(len(ids))]
    return found[0].tolist(), found[1].tolist()


def _check_units(
    film: str, ids: list[list[Any]], names: list[str], moments: Any, held: Any
) -> None:
    """Refuse a subject whose ids advance by longer steps, to where nobody else is."""
    steps = []
    for name, own in zip(names, ids, strict=True):
        of_film = [v for v in own if v is not None and moments[v][0] == film]
        if len(of_film) > 2:
            step = np.diff(sorted(moments[v][1] for v in of_film)).min()
            alone = sum(held[v] == 1 for v in of_film)
            steps.append((step, name, alone > 0.1 * len(of_film)))
    for step, name, elsewhere in steps:
        least, other, _ = min(steps)
        if elsewhere and step > 1.05 * least:  # ids may be rounded
            raise InputError(
                f"The stimulus ids of subject {name!r} advance by {step:g}, those of "
                f"{other!r} by {least:g}. Give them in one unit; samples of another "
                "repetition time must be resampled to one clock (film_clock)."
            )


def refuse_strangers(seen: Any, ids: list[Any], names: list[str]) -> None:
    """Refuse a subject none of whose samples anybody else has."""
    for i, own in enumerate(seen):
        if (own & np.delete(seen, i, axis=0).any(axis=0)).any():
            continue
        rest = next(k for j, k in enumerate(ids) if j != i)
        raise InputError(
            f"Subject {names[i]!r} has no stimulus id in common with the others: it "
            f"has {ids[i][0]!r} to {ids[i][-1]!r}, subject {names[not i]!r} has "
            f"{rest[0]!r} to {rest[-1]!r}. Give the ids of all in one form and unit."
        )


# -- scores ----------------------------------------------------------------------------


@dataclass(frozen=True)
class SegmentMatching:
    """How often segments of time find themselves among those of other subjects.

    Attributes
    ----------
    scores : ndarray of shape (n_subjects,)
        Share of the segments of each subject that were matched; NaN for a subject none
        of whose segments count.
    chance : float
        The share that guessing matches, for the segments that count.
    matched : ndarray of shape (n_subjects, n_segments)
        1 for a segment that was matched, 0 for one that was not, NaN for one that does
        not count.
    n_samples : ndarray of shape (n_subjects,)
        Samples of each subject that others have as well.
    """

    scores: Matrix
    chance: float
    matched: Matrix = field(repr=False)
    n_samples: Codes = field(repr=False)

    @property
    def mean(self) -> float:
        """Mean over subjects."""
        return float(np.nanmean(self.scores))


def time_segment_matching(
    shared: Sequence[Any],
    ids: Sequence[Any] | None = None,
    *,
    window: int = 9,
    step: int = 1,
    standardize: bool = True,
    enough: float = 0.5,
) -> SegmentMatching:
    """Match time segments of each subject with the average of the others.

    A segment is matched if it correlates, over its features and samples, more with the
    average of the other subjects over the same segment than with their average over any
    segment that does not overlap it. Of subjects who missed parts, what both saw is
    compared; chance then holds for the segments that count. Chance is one of the
    segments that compete or, if that is more, the share of wrong segments that win over
    all that do not overlap with them: in slow noise several times as much.

    Parameters
    ----------
    shared : list of arrays of shape (n_samples_i, n_features)
        Features of each subject.
    ids : list of array-like, optional
        Stimulus id of each sample of each subject, its time in the film, by which
        samples correspond: moments ("film@12.5") or numbers; other texts come in the
        order in which they first appear. By default rows correspond.
    window : int, default=9
        Samples per segment.
    step : int, default=1
        Samples from the start of a segment to the start of the next.
    standardize : bool, default=True
        Whether features are standardised over time, so that all weigh the same. With
        False they are centred and keep their spread: use it for features whose spread
        says how much they count, as that of ``GDM(scale="agreement")`` does.
    enough : float, default=0.5
        Share of a segment that both the subject and others must have seen.

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
    >>> seen = [np.arange(0, 100), np.arange(30, 100), np.arange(0, 60), np.arange(100)]
    >>> found = time_segment_matching([x[t] for x, t in zip(X, seen)], seen)
    >>> found.mean, found.n_samples.tolist()
    (1.0, [100, 70, 60, 100])
    """
    owner = "time_segment_matching"
    features, films = on_timeline(shared, ids, standardize, owner=owner)
    others = averages_of_others(features)
    how: Any = {"window": window, "step": step, "enough": enough, "films": films}
    found = [segment_hits(*pair, **how) for pair in zip(features, others, strict=True)]
    matched, chances = np.array(found).transpose(1, 0, 2)
    return SegmentMatching(
        scores=seen_means(matched, axis=1),
        chance=known_mean(seen_means(chances, axis=1)),
        matched=matched,
        n_samples=np.array(
            [both.sum() for both in map(seen_by_both, features, others)]
        ),
    )


def known_mean(values: Any) -> float:
    """Return the mean of what is known; without rounding where all are the same."""
    known = np.asarray(values, np.float64)
    known = known[~np.isnan(known)]
    same = known.size and (known == known[0]).all()
    return float(known[0] if same else np.mean(known) if known.size else np.nan)


def segment_hits(
    own: Matrix,
    others: Matrix,
    *,
    window: int,
    step: int,
    enough: float = 0.5,
    films: Codes,
) -> tuple[Matrix, Matrix]:
    """Return which segments match, and the chance of each; NaN where one cannot count.

    Rows of NaN were not seen. Segments count where enough was seen by both and there is
    a rival; segments do not cross from one film into another.
    """
    owner = "time_segment_matching"
    check_fraction("enough", enough, owner=owner)
    check_int("window", window, minimum=1, owner=owner)
    check_int("step", step, minimum=1, owner=owner)
    if len(own) < 2 * window:
        raise InputError(
            f"{len(own)} samples hold no two segments of window={window} samples that "
            "do not overlap. Use a shorter window."
        )
    starts = np.arange(0, len(own) - window + 1, step)
    at = np.ix_(starts, starts)
    overlap = np.abs(starts[:, None] - starts[None, :]) < window
    correlation, common = _segment_correlations(own, others, window)
    correlation, both = correlation[at], common[at] >= max(enough * window, 1)
    whole = films[starts] == films[starts + window - 1]
    both &= np.outer(whole, whole)
    comparable = both & ~overlap
    counts = np.diag(both) & comparable.any(axis=1)
    best = np.where(comparable, correlation, -np.inf).max(axis=1)
    # a segment without variation correlates with nothing, so it is not matched
    hits = np.diag(correlation) > np.maximum(best, -1)
    chance = 1 / (1 + comparable.sum(axis=1))
    if counts.any():
        found = np.where(both, correlation, -np.inf)[counts]
        chance = np.maximum(chance, _wrong_hits(found, comparable[counts], overlap))
    return tuple(np.where(counts, x, np.nan) for x in (hits, chance))  # type: ignore[return-value]


def _wrong_hits(found: Matrix, comparable: Any, overlap: Any) -> float:
    """Return how often a wrong segment wins over all that do not overlap with it.

    That is chance in slow noise, where a segment wins more often than one of so many:
    its neighbours, which are like it, are no rivals.
    """
    n, near = len(overlap), int(overlap[0].sum())
    edge = np.full((len(found), near), -np.inf)
    before = np.c_[edge, np.maximum.accumulate(found, axis=1)][:, :n]
    after = np.c_[np.maximum.accumulate(found[:, ::-1], axis=1)[:, ::-1], edge][
        :, near:
    ]
    wins = found > np.maximum(np.maximum(before, after), -1)
    return float(wins[comparable].mean())


def _segment_correlations(
    own: Matrix, others: Matrix, window: int
) -> tuple[Matrix, Matrix]:
    """Correlate all segments over the samples that both have, and count these."""
    a, b = np.nan_to_num(own), np.nan_to_num(others)
    known_a, known_b = ((~np.isnan(x[:, 0])).astype(float) for x in (own, others))
    all_seen = known_a.all() and known_b.all()

    def total(values: Matrix, side: int) -> Matrix:
        """Sum the values of own (0) or others (1) over what both have."""
        if all_seen:
            moved = np.convolve(values, np.ones(window), mode="valid")
            return np.expand_dims(moved, 1 - side)
        pair = (known_a, values) if side else (values, known_b)
        return _diagonal_sums(np.outer(*pair), window)

    inner = _diagonal_sums(a @ b.T, window)
    common = np.full_like(inner, window) if all_seen else total(known_a, 0)
    size = np.maximum((window if all_seen else common) * a.shape[1], 1)
    sums = [total(x.sum(axis=1), side) for side, x in enumerate((a, b))]
    inner -= sums[0] / size * sums[1]
    norms = []
    for side, x in enumerate((a, b)):
        squares = total((x * x).sum(axis=1), side)
        rest = squares - sums[side] ** 2 / size
        norms.append(np.sqrt(np.where(rest <= 1e-12 * squares, np.inf, rest)))
    return inner / (norms[0] * norms[1]), common


def _diagonal_sums(products: Matrix, window: int) -> Matrix:
    n_segments = len(products) - window + 1
    total = np.zeros((n_segments, n_segments))
    for w in range(window):
        total += products[w : w + n_segments, w : w + n_segments]
    return total


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
    for name, x in (("The truth", a), ("The prediction", b)):
        if not np.isfinite(x).all():
            raise InputError(f"{name} has NaN or infinite values: drop these samples.")
    varies = _scale(a) > 0
    if score == "correlation":
        correlation = column_correlations(a, b)
        constant = varies & ~(_scale(b) > 0)
        return np.where(constant, 0.0, correlation)
    rest = ((a - b) ** 2).sum(axis=0)
    whole = np.where(varies, (centred(a) ** 2).sum(axis=0), np.nan)
    return np.asarray(1 - rest / whole)


def on_timeline(
    shared: Sequence[Any], ids: Sequence[Any] | None, standardize: bool, *, owner: str
) -> tuple[list[Matrix], Codes]:
    """Return features on one timeline, rows of NaN where nothing was seen, and films.

    They are centred, or standardised.
    """
    given = check_list_of_subjects(shared, owner=owner)
    known = [None] * len(given) if ids is None else list(ids)
    if len(known) != len(given):
        raise InputError(f"ids of {owner} must have one list per subject.")
    subjects = enumerate(zip(given, known, strict=True))
    study = Study(Subject(str(i), x, stimuli=own) for i, (x, own) in subjects)
    arrays = [to_numpy(s.data()).astype(np.float64) for s in study]
    for i, array in enumerate(arrays):
        if array.shape[1] != arrays[0].shape[1] or not np.isfinite(array).all():
            raise InputError(
                f"{owner} needs the same features of all subjects, without NaN or "
                f"infinite values; subject {i} has shape {array.shape}, subject 0 "
                f"{arrays[0].shape}."
            )
    line = study_timeline(study)
    if ids is not None:
        refuse_strangers(line.seen, [s.stimuli for s in study], study.ids)
    prepare = zscored if standardize else centred
    return [line.place(prepare(x), i) for i, x in enumerate(arrays)], line.films


def seen_by_both(a: Matrix, b: Matrix) -> Any:
    """Mark the rows that neither lacks."""
    return ~np.isnan(a[:, :1] + b[:, :1]).any(axis=1)


def seen_means(values: Any, axis: int) -> Matrix:
    """Average over what is known along an axis; NaN where nothing is."""
    values = np.asarray(values)
    known = ~np.isnan(values)
    total, count = np.where(known, values, 0).sum(axis), known.sum(axis)
    return np.where(count > 0, total / np.maximum(count, 1), np.nan)


def averages_of_others(arrays: Sequence[Matrix]) -> list[Matrix]:
    """Return, for each subject, the average of the others who saw a row."""
    seen = np.sum([~np.isnan(x[:, :1]) for x in arrays], axis=0)
    total = np.sum([np.nan_to_num(x) for x in arrays], axis=0)
    found = []
    for x in arrays:
        n = seen - ~np.isnan(x[:, :1])
        others = (total - np.nan_to_num(x)) / np.maximum(n, 1)
        found.append(np.where(n > 0, others, np.nan))
    return found


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


def column_correlations(a: Matrix, b: Matrix) -> Matrix:
    """Correlate columns over the rows that both have (no NaN).

    NaN where one of them does not vary.
    """
    both = seen_by_both(a, b)
    if not both.all():
        a, b = a[both], b[both]
    if len(a) < 2:
        return np.full(a.shape[1], np.nan)
    scales = _scale(a), _scale(b)
    product = ((a - a.mean(axis=0)) * (b - b.mean(axis=0))).mean(axis=0)
    norm = scales[0] * scales[1]
    return np.asarray(
        np.divide(product, norm, np.full_like(norm, np.nan), where=norm > 0)
    )
