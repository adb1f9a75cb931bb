"""Samples held out, and how a model of the others maps them.

Half of the aligning samples of every subject are held out, a model of the others maps
them, and subjects are compared there; then the halves change roles. Slow trends go on
from one half to the other and are alike in all scans: they are taken out of both. The
models of the halves come from submatrices of the subjects' Gram matrices: no voxel is
read again, unless labels have shaped how voxels are scaled.
"""

import warnings
from collections.abc import Callable
from functools import lru_cache, partial
from typing import Any, NamedTuple

import numpy as np
from numpy.polynomial.legendre import legvander
from numpy.typing import NDArray

from brainweave._core.arrays import Codes, Matrix, samples_of, to_numpy, working_dtype
from brainweave._core.exceptions import InputError
from brainweave._core.labels import encode_labels
from brainweave.aligners.base import seeded_copy
from brainweave.basis.basis import SubjectBasis, recall
from brainweave.basis.linalg import polar
from brainweave.graphs.builders import NO_GROUP, Graph

Rows = list[NDArray[np.intp]]
#: Fits the aligning rows of each subject; gets the held-out ones and, in which trends
#: are removed, the stretches of the former; returns the features of both.
Fit = Callable[[Rows, Rows, list[Rows]], tuple[list[Matrix], list[Matrix]]]
Mask = NDArray[np.bool_]

BORDER = 10  # held-out samples next to aligning ones that are not judged, at most
CANNOT_TELL = "cannot be tested with this design"
FEW = 20  # held-out samples of which all are judged


class Fold(NamedTuple):
    """Held-out samples that are tested; the first four have one entry per subject.

    Components come in the order of the model of the other half: the full model knows
    the held-out labels, which must not choose what is tested.
    """

    rows: Rows  # places in time
    features: list[Matrix]
    codes: list[Codes]  # the group of each sample
    stretches: list[Rows]  # the samples of each run
    n_groups: int
    template: Matrix  # of each group and component, the mean of those that aligned

    def of(self, subjects: list[int]) -> "Fold":
        """Return the samples of some of the subjects."""
        chosen = ([own[i] for i in subjects] for own in self[:4])
        return Fold._make((*chosen, *self[4:]))


def halves_of(codes: list[Codes], runs: list[Codes] | None) -> list[Mask]:
    """Divide the samples of every subject into two halves, True being the second.

    Whole runs are taken in turn where every subject has several. Otherwise the time
    line is cut: for groups that no subject has twice, as time points, in the middle of
    the scan; for others, as categories, between two blocks of every subject, so that
    as many samples as possible have one of their own group on the other side. Samples
    without a group join the half of the sample before them; where none has one, half
    of them each.
    """
    n_groups = max(int(c.max(initial=-1)) for c in codes) + 1
    counts = [np.bincount(c[c != NO_GROUP], minlength=n_groups) for c in codes]
    single = np.asarray((np.array(counts) <= 1).all(axis=0), dtype=bool)
    by_run = None if runs is None else _by_run(codes, runs)
    in_second = _in_second_half(codes, single, by_run)
    halves = []
    for i, groups in enumerate(codes):
        known = np.flatnonzero(groups != NO_GROUP)
        alone = np.isin(groups, np.flatnonzero(single))
        if by_run is not None:
            half = by_run[i].copy()
        else:
            repeated = known[~alone[known]]
            cut = _cut(groups, repeated) if repeated.size else groups.size
            if not known.size:  # tied by places alone
                cut = groups.size // 2
            half = np.arange(groups.size) >= cut
        half[alone] = in_second[groups[alone]]
        if by_run is None and known.size:
            unknown = np.flatnonzero(groups == NO_GROUP)
            before = np.searchsorted(known, unknown, side="right") - 1
            half[unknown] = half[known[np.maximum(before, 0)]]
        halves.append(half)
    return halves


def _by_run(codes: list[Codes], runs: list[Codes]) -> list[Mask] | None:
    """Take every other run, two by two, or late ones: where most groups are in both."""
    if min(int(r.max(initial=0)) for r in runs) < 1:
        return None
    best, most = None, -1
    for way in range(3):
        halves = [(r % 2, r // 2 % 2, 2 * r > r.max())[way].astype(bool) for r in runs]
        met = sum(
            np.intersect1d(own[half], own[~half]).size
            for own, half in zip(codes, halves, strict=True)
        )
        if met > most and all(half.any() for half in halves):
            best, most = halves, met
    return best


def _in_second_half(
    codes: list[Codes], single: Mask, by_run: list[Mask] | None
) -> Mask:
    """Return which of the groups that stay whole belong to the second half.

    Most of the subjects who have it decide by their runs, or where in the scan they
    have it, on average: the order of subjects does not matter.
    """
    shown: list[Matrix] = []  # groups, and where those who have one show it
    for i, own in enumerate(codes):
        rows = np.flatnonzero(own != NO_GROUP)
        rows = rows[single[own[rows]]]
        where = rows / own.size if by_run is None else by_run[i][rows].astype(float)
        shown.append(np.array([own[rows], where]))
    groups, where = np.concatenate(shown, axis=1)
    order = np.lexsort((where, groups))
    known, first = np.unique(groups[order], return_index=True)
    parts = np.split(where[order], first[1:]) if known.size else []
    places = dict(zip(known.astype(int).tolist(), parts, strict=True))
    in_second = np.zeros(single.size, dtype=bool)
    means = {group: float(np.mean(own)) for group, own in places.items()}
    ordered = sorted(means, key=lambda group: (means[group], places[group].tolist()))
    if by_run is not None:  # where runs do not agree, half of the groups
        in_second[[group for group in ordered if means[group] > 0.5]] = True
        ordered = [group for group in ordered if means[group] == 0.5]
    in_second[ordered[(len(ordered) + 1) // 2 :]] = True
    return in_second


def _cut(groups: Codes, rows: NDArray[np.intp]) -> int:
    """Return the row at which the second half of one subject's categories begins."""
    _, own = np.unique(groups[rows], return_inverse=True)
    counts = np.cumsum(np.eye(own.max() + 1, dtype=int)[own], axis=0)
    shared = np.minimum(counts, counts[-1] - counts)[:-1]
    between = (np.diff(own) != 0) | (np.diff(rows) != 1)
    met = np.where(between, (shared > 0).sum(axis=1), -1)
    balance = shared.sum(axis=1)
    off = np.abs(2 * np.arange(1, len(rows)) - len(rows))
    best = np.lexsort((off, -balance, -met))[0] if len(rows) > 1 else 0
    if len(rows) < 2 or met[best] < 2:
        raise InputError(
            f"{CANNOT_TELL}: samples of the same group follow one another without a "
            "break, so what is alike in them may be their time. Pass "
            "runs, the run of every sample, or the samples in the order of time; give "
            "every sample a run of its own if they are independent estimates."
        )
    return int(rows[best + 1])


def rows_to_test(codes: Codes, rows: NDArray[np.intp], runs: Codes) -> NDArray[np.intp]:
    """Return which held-out rows to test: with a group, and not next to aligning ones.

    Responses are slow: a held-out sample next to an aligning one is half known.
    """
    chosen = codes[rows] != NO_GROUP
    n = int(chosen.sum())
    if n >= FEW:
        aligning = np.setdiff1d(np.arange(codes.size), rows)
        distance = np.full(rows.size, codes.size)
        for run in np.unique(runs):
            ours = np.flatnonzero(runs[rows] == run)
            theirs = aligning[runs[aligning] == run]
            if theirs.size and ours.size:
                after = np.searchsorted(theirs, rows[ours])
                near = [theirs[np.clip(after - i, 0, theirs.size - 1)] for i in (0, 1)]
                distance[ours] = np.abs(rows[ours] - near).min(axis=0)
        # a quarter on either side at most; where halves take turns, half of them stay
        chosen &= distance > min(BORDER, n // 4, int(np.median(distance[chosen])))
    return np.flatnonzero(chosen)


def stretches_of(codes: Codes, runs: Codes) -> Rows:
    """Return the samples of each run; all as one if no run has two groups."""
    known = codes != NO_GROUP
    own = [np.flatnonzero(runs == run) for run in dict.fromkeys(runs.tolist())]
    if not any(np.unique(codes[rows[known[rows]]]).size > 1 for rows in own):
        return [np.arange(codes.size)]
    return own


def remove_trends(values: Matrix, rows: Any, stretches: Rows) -> Matrix:
    """Take slow trends out of the columns, stretch by stretch; return a copy.

    Polynomials of order 2, more in long runs by the rule of AFNI at 2 s a sample (one
    for every 150 s, and one), and fewer where there are fewer than 16 samples.
    """
    out = np.array(values, dtype=float)
    for own in stretches:
        Q = trend_basis(np.asarray(rows)[own])
        out[own] -= Q @ (Q.T @ out[own])
    # a constant voxel would be scaled from rounding to noise
    out[:, np.linalg.norm(out, axis=0) <= 1e-12 * np.linalg.norm(values, axis=0)] = 0
    return out


def trend_basis(rows: Any) -> Matrix:
    """Return orthonormal columns that span the slow trends at these times."""
    return _trend_basis(np.asarray(rows, dtype=float).tobytes())


@lru_cache(maxsize=128)  # most runs have the same times
def _trend_basis(rows: bytes) -> Matrix:
    time = np.frombuffer(rows)
    width = float(np.ptp(time)) if time.size else 0.0
    order = _order(time.size) if width else 0
    basis = legvander(2 * (time - time.min(initial=np.inf)) / (width or 1) - 1, order)
    return np.asarray(np.linalg.qr(basis)[0])


def _order(n_samples: int) -> int:
    return min(n_samples // 8, max(2, 1 + n_samples // 75))


def _n_left(stretches: Rows) -> int:
    """Return how many dimensions samples can have when trends are removed."""
    return sum(len(own) - 1 - _order(len(own)) for own in stretches)


def cross_fit(
    codes: list[Codes], runs: list[Any] | None, full: list[Matrix], fit: Fit
) -> tuple[list[Fold], list[Matrix]]:
    """Hold out either half; return both folds, and the features of all samples.

    The features are rotated to `full`, those of the model of all samples.
    """
    known = encode_runs(runs)
    halves = halves_of(codes, known)
    if min(min(half.sum(), (~half).sum()) for half in halves) < 3:
        raise InputError("There are too few samples to hold half of them out.")
    of_run = known or [np.zeros(c.size, dtype=np.intp) for c in codes]
    n_groups, k = max(int(c.max()) for c in codes) + 1, full[0].shape[1]
    folds, features = [], [np.empty(f.shape) for f in full]
    for held in (True, False):
        aligning = [np.flatnonzero(half != held) for half in halves]
        rows = [np.flatnonzero(half == held) for half in halves]
        seen, new = fit(aligning, rows, _all_stretches(codes, of_run, aligning))
        each = zip(seen, full, aligning, strict=True)
        R = polar(np.sum([s.T @ f[r] for s, f, r in each], axis=0))
        for out, r, f in zip(features, rows, new, strict=True):
            out[r] = f @ R
        known_codes = [c[r] for c, r in zip(codes, aligning, strict=True)]
        template = _group_means(_pad(seen, k), known_codes, n_groups)
        chosen = [rows_to_test(*own) for own in zip(codes, rows, of_run, strict=True)]
        tested = [r[c] for r, c in zip(rows, chosen, strict=True)]
        pairs = list(zip(of_run, tested, strict=True))
        # a step in time between runs
        steps = [np.cumsum(np.diff(of[r], prepend=0) != 0) for of, r in pairs]
        fold = Fold(
            rows=[r + s for r, s in zip(tested, steps, strict=True)],
            features=[f[c] for f, c in zip(_pad(new, k), chosen, strict=True)],
            codes=[c[r] for c, r in zip(codes, tested, strict=True)],
            stretches=_all_stretches(codes, of_run, tested),
            n_groups=n_groups,
            template=template,
        )
        folds.append(fold)
        del seen, new  # before the other half is fitted
    return folds, features


def _pad(features: list[Matrix], k: int) -> list[Matrix]:
    """Return k features: half of the samples may have more or fewer components."""
    return [np.pad(f[:, :k], ((0, 0), (0, max(0, k - f.shape[1])))) for f in features]


def _group_means(features: list[Matrix], codes: list[Codes], n_groups: int) -> Matrix:
    """Return the mean of each group over all subjects; NaN where nobody has it."""
    stacked, groups = np.concatenate(features), np.concatenate(codes)
    known = groups != NO_GROUP
    counts = np.bincount(groups[known], minlength=n_groups)
    sums = np.zeros((n_groups, stacked.shape[1]))
    np.add.at(sums, groups[known], stacked[known])
    return np.asarray(sums / np.where(counts > 0, counts, np.nan)[:, None])


def _all_stretches(codes: list[Codes], runs: list[Codes], rows: Rows) -> list[Rows]:
    each = zip(codes, runs, rows, strict=True)
    return [stretches_of(c[r], of[r]) for c, of, r in each]


def encode_runs(runs: list[Any] | None) -> list[Codes] | None:
    """Return the runs of each subject as numbers; None where one is not known."""
    from pandas import factorize

    if runs is None or any(own is None for own in runs):
        return None
    encoded = [factorize(np.asarray(own, dtype=object))[0] for own in runs]
    return None if any((codes < 0).any() for codes in encoded) else encoded


def select_samples(graph: Graph, rows: Rows) -> Graph:
    """Return the graph of some samples of each subject."""
    starts = [s.start for s in graph.slices()]
    chosen = np.concatenate([r + s for r, s in zip(rows, starts, strict=True)])
    groups = tuple(term.of_samples(term.codes[chosen]) for term in graph.groups)
    matrix = None if graph.matrix is None else graph.matrix[chosen][:, chosen]
    return Graph(tuple(len(r) for r in rows), groups, matrix)


def fit_by_grams(  # noqa: PLR0917 (the last three come from cross_fit)
    aligner: Any,
    bases: list[SubjectBasis],
    k: int,
    rows: Rows,
    held_out: Rows,
    stretches: list[Rows],
    *,
    y: list[Any] | None = None,
    graph: Graph | None = None,
) -> tuple[list[Matrix], list[Matrix]]:
    """Fit a copy of an aligner to some rows of bases; return features of all rows.

    The graph is that of all samples, for a GDM.
    """
    model = seeded_copy(aligner, 0)
    each = zip(bases, rows, held_out, stretches, strict=True)
    halves, others = map(list, zip(*(_half_basis(*own) for own in each), strict=True))
    places = getattr(aligner, "_aligning_places", None)
    for i, half in enumerate(halves):
        if (memory := bases[i].memory) is not None:
            key = tuple(own.tobytes() for own in (rows[i], *stretches[i]))
            half.memory = recall(memory, "half", key, dict)
        if places is None:
            continue
        if places[i] is bases[i]._narrow and not bases[i].reliable:
            # its voxels are the places
            half.place_samples = half._data if half._narrow is None else half._narrow
        else:
            change = partial(remove_trends, rows=rows[i], stretches=stretches[i])
            half.place_samples = _Rows(places[i], rows[i], change)
    params = model.get_params(deep=False)
    if graph is None and params.get("n_components") is not None:
        for b, own in zip(halves, stretches, strict=True):
            by_basis = b.energy < 1 or model._needs_eigenbasis
            most = min(_n_left(own), b.n_voxels - b.constant_voxels.size)
            k = min(k, b.n_kept if by_basis else most)
        model.set_params(n_components=k)
    if graph is not None:
        most = sum(b.n_kept for b in halves) if model._needs_eigenbasis else k
        model.set_params(n_components=min(k, most), graph=select_samples(graph, rows))
        if "constraint" in params:  # that for which the name of its graph stands
            model.set_params(constraint=aligner.constraint_)
        model._first_ridges = getattr(aligner, "_met_ridges", None)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the fit of all samples has said these
        solution = model._solve(halves, _select_rows(y, rows))
        model._set_solution(halves, solution)
        pairs = zip(model.maps_, others, strict=True)
        new = [np.asarray(m.transform(held), float) for m, held in pairs]
        for i, m in enumerate(model.maps_):
            place = getattr(m, "place", None)
            if place is not None and places is not None:
                new[i] += places[i][held_out[i]] @ place.weights
    return [np.asarray(model._features(i), float) for i in range(len(model.maps_))], new


def fit_by_samples(
    aligner: Any,
    subjects: list[Any],
    rows: Rows,
    held_out: Rows,
    stretches: list[Rows],
    *,
    y: Any = None,
) -> tuple[list[Matrix], list[Matrix]]:
    """Do the same with an aligner that works on the voxels themselves."""
    model = seeded_copy(aligner, 0)
    k = model.get_params().get("n_components")
    if isinstance(k, int):
        model.set_params(n_components=min(k, *map(_n_left, stretches)))
    arrays = [np.asarray(to_numpy(samples_of(s)), dtype=float) for s in subjects]
    held = [x[r] for x, r in zip(arrays, held_out, strict=True)]
    aligning = [
        remove_trends(x[r], r, own)
        for x, r, own in zip(arrays, rows, stretches, strict=True)
    ]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model.fit(aligning, _select_rows(y, rows))
        seen, new = model.transform(aligning), model.transform(held)
    return [np.asarray(f, float) for f in seen], [np.asarray(f, float) for f in new]


def _select_rows(y: list[Any] | None, rows: Rows) -> list[Any] | None:
    if y is None:
        return None
    return [np.asarray(v, object)[r] for v, r in zip(y, rows, strict=True)]


def _half_basis(
    basis: SubjectBasis,
    rows: NDArray[np.intp],
    held_out: NDArray[np.intp],
    stretches: Rows,
) -> tuple[SubjectBasis, Any]:
    """Return the basis of some rows without trends, and the others as it maps them."""
    runs = None if basis.runs is None else basis.runs[rows]
    how: Any = {"energy": basis.energy, "runs": runs, "name": basis.name}

    def without_trends(values: Matrix) -> Matrix:
        return remove_trends(values, rows, stretches)

    if basis.uses_covariance and not basis.reliable:
        # few voxels: these are the smaller thing
        narrow = basis._narrow if basis.energy == 1 else basis.cut(1.0).coordinates
        aligning = _Rows(narrow, rows, without_trends)
        half = SubjectBasis(aligning, standardize=False, **how)
        half.dtype = basis.dtype
        return half, _Rows(narrow, held_out, np.asarray)
    how["standardize"] = basis.standardize
    if not basis.reliable:
        gram = basis.gram
        own = without_trends(without_trends(gram[np.ix_(rows, rows)]).T)
        half = SubjectBasis((own + own.T) / 2, kernel="precomputed", **how)
        # voxels count in some methods; precision is that of the data
        half.n_voxels, half.constant_voxels = basis.n_voxels, basis.constant_voxels
        half._gram_is_linear, half.dtype = basis.is_linear, basis.dtype
        return half, without_trends(gram[np.ix_(rows, held_out)]).T
    # labels scale the voxels: those of the held-out samples must not
    data = basis._data if basis._data is not None else basis._narrow
    groups = basis._groups
    labels = getattr(basis, "labels", None)  # of a basis from a file
    if groups is None and labels is not None:
        groups = encode_labels([labels])[0][0]
    if data is None or groups is None:
        raise InputError(
            "voxels were scaled by their reliability over all samples, held-out ones "
            "too, and the samples needed to estimate it again are missing; pass X."
        )
    voxels, held = _Rows(data, rows, without_trends), _Rows(data, held_out, np.asarray)
    voxels.dtype = held.dtype = working_dtype(data)
    half = SubjectBasis(voxels, kernel=basis.kernel, groups=groups[rows], **how)
    return half, held


class _Rows:
    """Some rows of an array that is read by columns, changed by a function."""

    ndim = 2

    def __init__(self, data: Any, rows: Codes, change: Callable[..., Matrix]) -> None:
        self.data, self.rows, self.change = data, rows, change
        self.shape, self.dtype = (len(rows), data.shape[1]), np.dtype(np.float64)

    def __array__(self, dtype: Any = None, copy: Any = None) -> Matrix:
        return np.asarray(self[:, :], dtype)

    def __getitem__(self, key: Any) -> Any:
        found = to_numpy(self.data[:, key[1]])[self.rows]
        return self.change(found).astype(self.dtype, copy=False)
