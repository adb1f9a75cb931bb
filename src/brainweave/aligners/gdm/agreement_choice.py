r"""How strong the ridges are, judged by what subjects share on samples held out.

Half of the aligning samples of every subject are held out (by run or time, with a
border, as in ``alignment_check``), the others are fitted with candidates for the ridge
of the deviations and that of the shared map of places, and features are judged by how
far they tell the held-out groups apart across subjects. A subject's features are those
it would have as a new one, with the shared map of the others: many places can hold a
map of each subject, which helps nobody else. Then the halves change roles.

The criterion is the *distinctness* :math:`\mathrm{tr}(A^\top B) / |A B^\top|_F` of a
subject's features A and the mean features B of the others, rows being groups: how much
more alike matching rows are than rows at large. It is the root of the number of shared
features where A = B has features of equal size, and about 0 for noise.
"""

from collections.abc import Callable, Sequence
from itertools import zip_longest
from typing import Any, NamedTuple

import numpy as np
import scipy.linalg
import scipy.sparse
from scipy.stats import t as student

from brainweave._core.arrays import Codes, Matrix
from brainweave._core.exceptions import BrainweaveError, InputError
from brainweave.aligners.check.held_out import (
    encode_runs,
    halves_of,
    rows_to_test,
    select_samples,
    stretches_of,
    trend_basis,
)
from brainweave.aligners.gdm.eigenproblem import apply_graph
from brainweave.aligners.gdm.joint import JointRidge
from brainweave.aligners.gdm.ridge import (
    LeadingGroups,
    solve_per_subject,
    solve_shrinkage,
)
from brainweave.aligners.gdm.smoother import Smoother
from brainweave.aligners.gdm.strength import evenly_spaced
from brainweave.graphs.builders import NO_GROUP, Graph, equal_group_weights

STEP = np.sqrt(10.0)
#: Ridges that are compared, in units of mean eigenvalues.
RIDGES = tuple(float(r) for r in 0.01 * STEP ** np.arange(8))  # .01 to 32
PLACE_RIDGES = tuple(float(h) for h in 0.001 * STEP ** np.arange(8))  # .001 to 3.2
START = RIDGES.index(min(RIDGES, key=lambda r: abs(np.log(r / 0.3))))
START_PLACE = 4  # .1
MOST_SUBJECTS = 40  # evenly spaced, by whom ridges are chosen where there are more
MOST_FEATURES = 20  # that are judged, where their number is to be found
MOST_PLACES = 200  # directions of the places that are used, the leading ones
RECENT = 2  # ridges whose factors are kept, of both folds together
FEWEST = 3  # aligning samples of a subject in a half
CLEAR = 0.975  # quantile of Student's t that the gain by places must exceed,
CLEARLY_MORE = 1.04  # and the least ratio of both


class Choice(NamedTuple):
    """What was chosen: the ridge of deviations, and that of the shared map."""

    rho: float
    place: float  # infinite: no place
    #: The best ridges without places, and both with them: where to look in half of the
    #: samples first.
    met: tuple[float, float, float] | None = None


def _nearest(grid: Sequence[float], value: float) -> int:
    return int(np.abs(np.log(grid) - np.log(value)).argmin())


def choose_by_agreement(
    smoothers: Sequence[Smoother],
    places: Sequence[Matrix] | None,
    graph: Graph,
    k: int,
    *,
    runs: list[Any] | None = None,
    rho: float | None,
    fixed: bool,
    needed: bool,
    per_subject: bool,
    over_subjects: Callable[..., list[Any]],
    start: Sequence[float] | None = None,
) -> Choice | None:
    """Choose the ridges; None where no half of the samples can be held out.

    Without places the ridge alone is chosen. ``rho``, if given, is the ridge without
    places, also with places if ``fixed``; ``needed``: nothing but places ties subjects;
    ``per_subject``: the model has one constraint per subject. The search begins at
    ``start``: the ridge without places, and both with them.
    """
    chosen = evenly_spaced(len(smoothers), MOST_SUBJECTS)
    try:
        halves = _Halves(
            [smoothers[i] for i in chosen],
            None if places is None else [places[i] for i in chosen],
            _part(graph, {i: np.arange(graph.lengths[i]) for i in chosen}),
            k=k,
            runs=None if runs is None else [runs[i] for i in chosen],
            per_subject=per_subject,
            over_subjects=over_subjects,
        )
        if rho is None:
            best, without = _climb(
                lambda at: halves.judge(RIDGES[at[0]], np.inf),
                (_nearest(RIDGES, start[0] if start else RIDGES[START]),),
                (len(RIDGES),),
            )
            rho = RIDGES[best[0]]
        elif places is not None:
            without = halves.judge(rho, np.inf)
        if places is None:
            return Choice(rho, np.inf, (rho, rho, PLACE_RIDGES[START_PLACE]))
        ridges = [rho] if fixed else [rho, *(r for r in RIDGES if r > 1.5 * rho)]
        at, with_places = _climb(
            lambda at: halves.judge(ridges[at[0]], PLACE_RIDGES[at[1]]),
            (
                _nearest(ridges, start[1]) if start else min(2, len(ridges) - 1),
                _nearest(PLACE_RIDGES, start[2]) if start else START_PLACE,
            ),
            (len(ridges), len(PLACE_RIDGES)),
        )
    except BrainweaveError:
        return None
    met = rho, ridges[at[0]], PLACE_RIDGES[at[1]]
    if needed or _clearly_better(with_places, without):
        return Choice(*met[1:], met)
    return Choice(rho, np.inf, met)


def _climb(
    judge: Callable[[tuple[int, ...]], Matrix],
    start: tuple[int, ...],
    shape: tuple[int, ...],
) -> tuple[tuple[int, ...], Matrix]:
    """Return the best place of a grid by steps to better neighbours, and its scores.

    It goes along the last axis first, and on as long as that helps.
    """
    best, known = start, {start: judge(start)}
    steps = [
        axis * sign for axis in np.eye(len(shape), dtype=int)[::-1] for sign in (-1, 1)
    ]
    while True:
        before = best
        for step in steps:
            while True:
                at = tuple(np.add(best, step).tolist())
                if not all(0 <= i < n for i, n in zip(at, shape, strict=True)):
                    break
                if at not in known:
                    known[at] = judge(at)
                if not np.nanmean(known[at]) > np.nanmean(known[best]):
                    break
                best = at
        if best == before:
            return best, known[best]


def _clearly_better(scores: Matrix, than: Matrix) -> bool:
    """Whether the mean gain over subjects is large beside its standard error."""
    gains = scores - than
    own = np.nanmean(gains[:, ~np.isnan(gains).all(axis=0)], axis=0)
    if own.size < 2:
        return False
    clear = student.ppf(CLEAR, own.size - 1) * own.std(ddof=1) / np.sqrt(own.size)
    more = np.nanmean(scores) > CLEARLY_MORE * np.nanmean(than)
    return bool(own.mean() > clear and more)


def _part(graph: Graph, rows: dict[int, Codes]) -> Graph:
    """Return the graph of these samples of these subjects."""
    every = [rows.get(i, np.arange(0)) for i in range(len(graph.lengths))]
    part = select_samples(graph, every)
    return Graph(tuple(map(len, rows.values())), part.groups, part.matrix)


class _Halves:
    """Both halves of the aligning samples: what is fitted, and what judges it."""

    def __init__(
        self,
        smoothers: list[Smoother],
        places: list[Matrix] | None,
        graph: Graph,
        *,
        k: int,
        runs: list[Any] | None,
        per_subject: bool,
        over_subjects: Callable[..., list[Any]],
    ) -> None:
        term = graph.groups[0]
        codes = [term.codes[rows] for rows in graph.slices()]
        who = [np.unique(own[own != NO_GROUP]) for own in codes]
        if (np.bincount(np.concatenate(who)) > 1).sum() < 2:
            raise InputError("No two groups of samples are shared by subjects.")
        known = encode_runs(runs)
        in_second = halves_of(codes, known)
        of_run = known or [np.zeros(c.size, dtype=np.intp) for c in codes]
        self.folds, n_groups = [], len(term.names)
        for held in (True, False):
            Z_of: list[Any] = [None] * len(codes) if places is None else list(places)
            lists = smoothers, in_second, codes, of_run, Z_of
            each = enumerate(zip(*lists, strict=True))
            # who saw no more than one half takes part in the other fold alone
            fold = {
                i: _FoldOfSubject(s, h != held, c, r, places=Z, n_groups=n_groups)
                for i, (s, h, c, r, Z) in each
                if (h != held).sum() >= FEWEST
            }
            if len(fold) < 2:
                raise InputError("Too few subjects have samples in both halves.")
            part = _part(graph, {i: one.aligning for i, one in fold.items()})
            self.folds.append((fold, part))
        self.k, self.over_subjects = k, over_subjects
        self.n_subjects, self.per_subject = len(codes), per_subject
        self.unit = np.inf if places is None else place_unit(places)
        self._fitted: dict[tuple[int, float], JointRidge] = {}
        self._leading: dict[int, LeadingGroups] = {}

    def judge(self, rho: float, place: float) -> Matrix:
        """Return the distinctness of each fold (rows) and subject (columns)."""
        return np.array([self._judge(i, rho, place) for i in range(len(self.folds))])

    def _judge(self, number: int, rho: float, place: float) -> Matrix:
        fold, graph = self.folds[number]
        joint = self._joint(number, rho, place)
        if self.per_subject:
            found = solve_shrinkage(joint, graph, self.k)
            alike = equal_group_weights(graph)
            found = solve_per_subject(
                joint, alike, found.first(found.template.shape[1])
            )
            mu = found.eigenvalues
            whole = apply_graph(alike, found.template)
            targets, mixed = [whole[rows] for rows in alike.slices()], None
        else:
            if number not in self._leading:
                start = self._joint(number, RIDGES[START], np.inf)
                self._leading[number] = LeadingGroups(start, graph)
            mu, targets, mixed = self._leading[number].targets(joint, self.k)

        def held_out(i: int, own: Any) -> Matrix:
            one, (coefficients, shared) = fold[i], own
            features = np.asarray(one.between @ coefficients)  # up to a constant
            if shared is not None:
                features += one.Z_tested @ shared
            return one.group_means(features, mu)

        means = self.over_subjects(held_out, list(fold), joint.as_new(targets, mixed))
        scores = np.full(self.n_subjects, np.nan)
        scores[list(fold)] = distinctness(means)
        return scores

    def _joint(self, number: int, rho: float, place: float) -> JointRidge:
        """Return the ridges to fit; what does not depend on the place's is kept."""
        fold, _ = self.folds[number]
        joint = self._fitted.pop((number, rho), None) or JointRidge(
            [one.smoother.at(rho) for one in fold.values()],
            [one.Z for one in fold.values()] if self.unit < np.inf else None,
            over_subjects=self.over_subjects,
        )
        self._fitted[number, rho] = joint  # the last one
        for before in list(self._fitted.values())[:-RECENT]:
            for smoother in before.smoothers:
                smoother.forget()
        return joint.at(place * self.unit)


class _FoldOfSubject:
    """One subject's samples of a fold."""

    def __init__(
        self,
        smoother: Smoother,
        aligns: Any,
        codes: Codes,
        runs: Codes,
        *,
        places: Matrix | None,
        n_groups: int,
    ) -> None:
        self.aligning = np.flatnonzero(aligns)
        rows = np.flatnonzero(~aligns)
        self.tested = rows[rows_to_test(codes, rows, runs)]
        own = codes[self.tested]
        stretches = stretches_of(own, runs[self.tested])
        self.trends = [(at, trend_basis(self.tested[at])) for at in stretches]
        known = np.flatnonzero(own != NO_GROUP)
        entries = np.ones(known.size), (own[known], known)
        self._sums = scipy.sparse.csr_array(entries, (n_groups, len(own)))
        counts = np.bincount(own[known], minlength=n_groups)[:, None]
        self._counts = np.where(counts > 0, counts, np.nan)
        self.smoother = smoother.shared_subset(self.aligning)
        self.between = smoother.between(self.tested, self.aligning)
        if places is not None:
            Z = places[self.aligning]
            self.Z, self.Z_tested = Z - Z.mean(axis=0), places[self.tested]

    def group_means(self, features: Matrix, mu: Matrix) -> Matrix:
        """Return the mean features of each group, scaled by mu; NaN without samples."""
        if not self.tested.size:
            return np.full((len(self._counts), len(mu)), np.nan)
        for own, basis in self.trends:
            features[own] -= basis @ (basis.T @ features[own])
        spread = np.sqrt((features * features).mean(axis=0))  # trends have the mean
        features *= np.where(spread > 0, mu / np.where(spread > 0, spread, 1), 0)
        return np.asarray((self._sums @ features) / self._counts)


def distinctness(means: list[Matrix]) -> list[float]:
    """Return how much matching rows are more alike than others, for each subject.

    Means are groups x features, with rows of NaN for groups that a subject lacks. NaN
    for subjects without two groups that others have.
    """
    known = ~np.isnan(np.array([m[:, 0] for m in means]))
    met = known.sum(axis=0) > 1
    rows = known[:, met]
    filled = np.where(rows[:, :, None], np.array([m[met] for m in means]), 0.0)
    total, n_others = filled.sum(axis=0), rows.sum(axis=0)[:, None] - 1
    found = []
    for own, has in zip(filled, rows, strict=True):
        n = int(has.sum())
        if n < 2:
            found.append(np.nan)
            continue
        A, B = own[has], ((total - own) / n_others)[has]
        a, b = A.mean(axis=0), B.mean(axis=0)
        alike = (A.T @ A - n * np.outer(a, a)) * (B.T @ B - n * np.outer(b, b))
        size = np.sqrt(max(float(alike.sum()), 0.0))
        found.append(float(np.vdot(A, B) - n * (a @ b)) / size if size > 0 else 0.0)
    return found


def leading_directions(
    places: Sequence[Matrix], smoothers: Sequence[Any] = ()
) -> Matrix | None:
    """Return the directions in which samples in many places vary most, (p, 200).

    The rest of many places is mostly noise of each subject. None for few places.
    Smoothers of the same samples know their products.
    """
    if places[0].shape[1] <= MOST_PLACES:
        return None
    n_places, n_samples = places[0].shape[1], sum(Z.shape[0] for Z in places)
    if n_samples < n_places:  # by the samples, which are fewer
        Z = np.vstack([np.asarray(own, np.float64) for own in places])
        size = min(MOST_PLACES, n_samples)
        last = [n_samples - size, n_samples - 1]
        values, vectors = scipy.linalg.eigh(Z @ Z.T, subset_by_index=last)
        kept = values > np.finfo(values.dtype).eps * n_samples * values[-1]
        return np.asarray(Z.T @ (vectors[:, kept] / np.sqrt(values[kept])))
    pooled = np.zeros((n_places, n_places))
    for Z, own in zip_longest(places, smoothers):
        if own is not None and own.keeps_products and Z is getattr(own, "as_kept", 0):
            pooled += own.square
        else:
            Z = np.asarray(Z, np.float64)
            pooled += Z.T @ Z
    if n_places <= 2 * MOST_PLACES:  # all of them take less time
        return np.asarray(np.linalg.eigh(pooled)[1][:, -MOST_PLACES:])
    last = [n_places - MOST_PLACES, n_places - 1]
    return np.asarray(scipy.linalg.eigh(pooled, subset_by_index=last)[1])


class InDirections:
    """Samples in places along some directions, computed for who is asked for."""

    def __init__(self, places: Sequence[Any], directions: Matrix | None) -> None:
        self.places, self.directions = places, directions

    def __getitem__(self, i: int) -> Matrix:
        own, directions = np.asarray(self.places[i], np.float64), self.directions
        return own if directions is None else own @ directions


def place_unit(places: Sequence[Matrix]) -> float:
    """Return the unit of the shared map's ridge: mean eigenvalues, summed."""
    return float(sum(np.einsum("ij,ij->", Z, Z) / len(Z) for Z in places))
