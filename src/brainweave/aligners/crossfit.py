"""Features of samples that did not align: half of the samples align, the other is held.

The halves change roles, so every aligning sample gets features of a model that never
saw it. The models of the halves come from submatrices of the subjects' Gram matrices:
no voxel is read again, whatever the kernel.
"""

import warnings
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.base import clone

from brainweave.basis import SubjectBasis
from brainweave.exceptions import InputError
from brainweave.graphs import NO_GROUP, Graph, GroupTerm
from brainweave.linalg import polar

Matrix = NDArray[np.float64]
Codes = NDArray[np.intp]
Rows = list[NDArray[np.intp]]

BORDER = 5  # held-out time points next to aligning ones that are not judged, at most


@dataclass(frozen=True)
class Fold:
    """One half held out: its rows and features per subject, and which are judged.

    Components are judged as the model of the other half orders them. Turning them to
    those of the full model, which knows the held-out labels, would let these choose
    what they are judged by; that is for pictures alone.
    """

    rows: Rows
    features: list[Matrix]
    turned: list[Matrix]
    judged: Rows  # positions within rows


def halves_of(codes: list[Codes], runs: list[Any] | None) -> list[NDArray[np.bool_]]:
    """Divide the samples of every subject into two halves, True being the second.

    Groups that no subject has twice, as time points, stay whole: the first half of them
    and the second. Of other groups, as categories, each subject's first and second half
    of the samples. Where every subject has several runs, whole runs are taken in turn.
    Samples without a group join the half of the sample before them.
    """
    size = max((int(c.max(initial=-1)) for c in codes), default=-1) + 1
    counts = np.array([np.bincount(c[c != NO_GROUP], minlength=size) for c in codes])
    single = np.asarray((counts <= 1).all(axis=0), dtype=bool)
    by_run = None if runs is None else [_alternating(r) for r in runs]
    if by_run is not None and any(half is None for half in by_run):
        by_run = None
    late = _late_groups(codes, single, by_run)
    halves = []
    for i, own in enumerate(codes):
        half = np.zeros(own.size, dtype=bool)
        if by_run is not None and by_run[i] is not None:
            half = by_run[i].copy()  # type: ignore[union-attr]
        for group in np.unique(own[own != NO_GROUP]):
            members = np.flatnonzero(own == group)
            if single[group]:
                half[members] = late[group]
            elif by_run is None:
                # an odd one out goes to either half by turns
                half[members[(len(members) + group % 2) // 2 :]] = True
        if by_run is None:
            _fill(half, own == NO_GROUP)
        halves.append(half)
    return halves


def _alternating(runs: Any) -> NDArray[np.bool_] | None:
    """Take every other run; None for one run, or where a run is not known."""
    listed = np.asarray(runs, dtype=object).tolist()
    if any(run is None or run != run for run in listed):  # noqa: PLR0124 (NaN)
        return None
    order = {run: n for n, run in enumerate(dict.fromkeys(listed))}
    if len(order) < 2:
        return None
    return np.array([order[run] % 2 == 1 for run in listed], dtype=bool)


def _late_groups(
    codes: list[Codes], single: NDArray[np.bool_], by_run: Any
) -> NDArray[np.bool_]:
    """Say which of the groups that are held as a whole belong to the second half."""
    late = np.zeros(single.size, dtype=bool)
    place: dict[int, float] = {}
    chosen: dict[int, bool] = {}
    for i, own in enumerate(codes):
        for row in np.flatnonzero(own != NO_GROUP):
            group = int(own[row])
            if single[group] and group not in place:
                place[group] = row / max(own.size, 1)
                chosen[group] = bool(by_run is not None and by_run[i][row])
    ordered = sorted(place, key=lambda g: (place[g], g))
    for rank, group in enumerate(ordered):
        late[group] = rank >= len(ordered) / 2 if by_run is None else chosen[group]
    return late


def _fill(half: NDArray[np.bool_], unknown: NDArray[np.bool_]) -> None:
    """Put samples without a group into the half of the sample before them."""
    known = np.flatnonzero(~unknown)
    if known.size:
        before = np.searchsorted(known, np.flatnonzero(unknown), side="right") - 1
        half[unknown] = half[known[np.maximum(before, 0)]]


def judged_rows(codes: Codes, rows: NDArray[np.intp]) -> NDArray[np.intp]:
    """Leave out what has no group, and time points next to aligning ones.

    Responses are slow: a held-out sample next to an aligning one is half known.
    """
    own = codes[rows]
    good = own != NO_GROUP
    if np.unique(own[good]).size == good.sum() and good.sum() >= 20:
        width = min(BORDER, int(good.sum()) // 10)
        aligning = np.setdiff1d(np.arange(codes.size), rows)
        near = np.abs(rows[:, None] - aligning[None, :]).min(axis=1, initial=codes.size)
        good &= near > width
    return np.flatnonzero(good)


def cross_fit(
    halves: list[NDArray[np.bool_]],
    codes: list[Codes],
    full: list[Matrix],
    fit: Callable[[Rows, Rows], tuple[list[Matrix], list[Matrix]]],
    *,
    blocks: list[NDArray[np.intp]] | None = None,
) -> list[Fold]:
    """Hold out either half.

    Parameters
    ----------
    halves, codes
        Which half and which group each sample of each subject is in.
    full : list of ndarray of shape (n_samples_i, K)
        Features of the model of all samples.
    fit : callable
        Takes the aligning and the held-out rows of each subject; gives the features of
        both under a model of the former alone.
    blocks : list of arrays of int, optional
        Features that can be rotated among each other: by default all. For pictures the
        features of the half are turned to those of the full model.
    """
    folds = []
    for held in (True, False):
        aligning = [np.flatnonzero(half != held) for half in halves]
        rows = [np.flatnonzero(half == held) for half in halves]
        short = [i for i, r in enumerate(aligning) if len(r) < 3]
        if short or any(len(r) < 2 for r in rows):
            raise InputError("There are too few samples to hold half of them out.")
        seen, new = fit(aligning, rows)
        A = np.concatenate(seen)
        B = np.concatenate([f[r] for f, r in zip(full, aligning, strict=True)])
        turned = [_columns(f, full[0].shape[1]) for f in new]
        own = [f.copy() for f in turned]
        if blocks is not None and A.shape[1] != B.shape[1]:
            raise InputError("half of the samples give another number of features.")
        if blocks is None:
            R = polar(A.T @ B)
            turned = [f @ R for f in new]
        else:
            for block in blocks:
                R = polar(A[:, block].T @ B[:, block])
                for out, f in zip(turned, new, strict=True):
                    out[:, block] = f[:, block] @ R
        judged = [judged_rows(c, r) for c, r in zip(codes, rows, strict=True)]
        folds.append(Fold(rows, own, turned, judged))
    return folds


def _columns(features: Matrix, k: int) -> Matrix:
    """Return k columns: half of the samples may have more or fewer components."""
    missing = max(0, k - features.shape[1])
    return np.pad(features[:, :k], ((0, 0), (0, missing)))


# -- models of a half ------------------------------------------------------------------


def sub_graph(graph: Graph, rows: Rows) -> Graph:
    """Return the graph of some samples of each subject."""
    starts = [s.start for s in graph.slices()]
    chosen = np.concatenate([r + s for r, s in zip(rows, starts, strict=True)])
    groups = tuple(
        GroupTerm(t.codes[chosen], t.affinity, t.names) for t in graph.groups
    )
    matrix = None if graph.matrix is None else graph.matrix[chosen][:, chosen]
    return Graph(tuple(len(r) for r in rows), groups, matrix)


class GramFit:
    """Fits an aligner to some samples of the bases of another fit.

    Parameters
    ----------
    aligner : aligner
        Whose settings to use; it is copied.
    bases : list of SubjectBasis
        Of all aligning samples.
    n_components : int
        Number of shared features.
    y : list of array-like, optional
        What the aligner needs to know of the samples.
    graph : Graph, optional
        That of all samples, for a GDM.
    """

    def __init__(
        self,
        aligner: Any,
        bases: list[SubjectBasis],
        n_components: int,
        *,
        y: list[Any] | None = None,
        graph: Graph | None = None,
    ) -> None:
        self.aligner, self.bases, self.k = aligner, bases, n_components
        self.y, self.graph = y, graph
        # coordinates are the smaller thing when there are few voxels
        self.narrow = [
            b.cut(1.0).coordinates if b.uses_covariance else None for b in bases
        ]

    def __call__(self, rows: Rows, others: Rows) -> tuple[list[Matrix], list[Matrix]]:
        """Return the features of the rows that align, and of the others."""
        pairs = [
            self._half(i, *r) for i, r in enumerate(zip(rows, others, strict=True))
        ]
        bases = [basis for basis, _ in pairs]
        model = seeded_copy(self.aligner)
        params = model.get_params(deep=False)
        # None: all there are; but of a GDM, as many as hold up, which this tells
        if params.get("n_components") is not None or self.graph is not None:
            model.set_params(n_components=self._n_components(bases))
        if self.graph is not None:
            model.set_params(graph=sub_graph(self.graph, rows))
        if isinstance(params.get("init"), np.ndarray):
            model.set_params(init="random")
        known = None
        if self.y is not None:
            known = [
                np.asarray(v, object)[r] for v, r in zip(self.y, rows, strict=True)
            ]
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # the fit of all samples has said these
            model._keep(bases, model._solve(bases, known), [None] * len(bases))
            maps = zip(model.maps_, pairs, strict=True)
            new = [np.asarray(m.transform(held), float) for m, (_, held) in maps]
        seen = [np.asarray(model._features(i), float) for i in range(len(bases))]
        return seen, new

    def _half(
        self, i: int, rows: NDArray[np.intp], others: NDArray[np.intp]
    ) -> tuple[SubjectBasis, Matrix]:
        basis, narrow = self.bases[i], self.narrow[i]
        if narrow is not None:
            half = SubjectBasis(
                narrow[rows], energy=basis.energy, standardize=False, name=basis.name
            )
            half.dtype = basis.dtype
            return half, narrow[others]
        gram = basis.gram
        half = SubjectBasis(
            gram[np.ix_(rows, rows)],
            kernel="precomputed",
            energy=basis.energy,
            standardize=basis.standardize,
            name=basis.name,
        )
        # voxels count in some methods; precision is that of the data
        half.n_voxels, half.constant_voxels = basis.n_voxels, basis.constant_voxels
        half.dtype = basis.dtype
        return half, gram[np.ix_(others, rows)]

    def _n_components(self, bases: list[SubjectBasis]) -> int:
        if self.graph is not None and not self.aligner._needs_eigenbasis:
            return self.k
        if self.graph is not None:
            return min(self.k, sum(b.n_kept for b in bases))
        each = [
            b.n_kept
            if b.energy < 1 or self.aligner._needs_eigenbasis
            else min(b.n_samples - 1, b.n_voxels - b.constant_voxels.size)
            for b in bases
        ]
        return min(self.k, *each)


class SampleFit:
    """Fits an aligner that works on voxels to some of the samples themselves."""

    def __init__(self, aligner: Any, subjects: list[Any], y: list[Any] | None) -> None:
        self.aligner, self.subjects, self.y = aligner, subjects, y

    def __call__(self, rows: Rows, others: Rows) -> tuple[list[Matrix], list[Matrix]]:
        """Return the features of the rows that align, and of the others."""
        model = seeded_copy(self.aligner)
        k = model.get_params(deep=False).get("n_components")
        if isinstance(k, int):
            model.set_params(n_components=min(k, *(len(r) - 1 for r in rows)))
        known = None
        if self.y is not None:
            known = [
                np.asarray(v, object)[r] for v, r in zip(self.y, rows, strict=True)
            ]
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # the fit of all samples has said these
            aligning = self._some(rows)
            model.fit(aligning, known)
            seen = [np.asarray(f, float) for f in model.transform(aligning)]
            new = [np.asarray(f, float) for f in model.transform(self._some(others))]
        return seen, new

    def _some(self, rows: Rows) -> list[Any]:
        return [
            s.select(r) if hasattr(s, "select") else s[r]
            for s, r in zip(self.subjects, rows, strict=True)
        ]


def seeded_copy(aligner: Any) -> Any:
    """Copy an aligner; what is random in it is the same every time."""
    model = clone(aligner)
    for name, value in model.get_params(deep=True).items():
        if name.split("__")[-1] == "random_state" and value is None:
            model.set_params(**{name: 0})
    return model
