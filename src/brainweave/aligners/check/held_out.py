"""Samples held out, and how a model of the others maps them.

Any model agrees on the samples it was fitted on, also one of pure noise. So half of the
aligning samples of every subject are held out, a model of the others maps them, and
subjects are compared there; then the halves change roles. The models of the halves come
from submatrices of the subjects' Gram matrices: no voxel is read again, unless labels
have shaped how voxels are scaled. Then those of the half alone must.
"""

import warnings
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from brainweave._core.arrays import Codes, Matrix, is_torch
from brainweave._core.exceptions import InputError
from brainweave._core.labels import encode_labels
from brainweave.aligners.base import seeded_copy
from brainweave.basis.basis import SubjectBasis
from brainweave.basis.linalg import polar
from brainweave.graphs.builders import NO_GROUP, Graph, GroupTerm

Rows = list[NDArray[np.intp]]
Mask = NDArray[np.bool_]

#: Held-out time points next to aligning ones that are not judged, at most. With 5, weak
#: agreement of smooth noise at the border added up over components (27 of 150 studies).
BORDER = 10


@dataclass(frozen=True)
class Fold:
    """Held-out samples that are tested: rows, features and groups of each subject.

    Components come in the order of the model of the other half. Rotating them to the
    full model, which knows the held-out labels, would let these choose what is tested.
    """

    rows: Rows
    features: list[Matrix]
    codes: list[Codes]


# -- halves ----------------------------------------------------------------------------


def halves_of(codes: list[Codes], runs: list[Any] | None) -> list[Mask]:
    """Divide the samples of every subject into two halves, True being the second.

    Groups that no subject has twice, as time points, stay whole: the first half of them
    and the second. Of other groups, as categories, each subject's first and second half
    of the samples. Where every subject has several runs, whole runs are taken in turn.
    Samples without a group join the half of the sample before them.
    """
    size = max(int(c.max(initial=-1)) for c in codes) + 1
    counts = np.array([np.bincount(c[c != NO_GROUP], minlength=size) for c in codes])
    single = np.asarray((counts <= 1).all(axis=0), dtype=bool)
    found = [] if runs is None else [_every_other_run(r) for r in runs]
    by_run = [half for half in found if half is not None]
    if len(by_run) < len(codes):
        by_run = []
    in_second = _in_second_half(codes, single, by_run)
    halves = []
    for i, groups in enumerate(codes):
        known = np.flatnonzero(groups != NO_GROUP)
        half = by_run[i].copy() if by_run else np.zeros(groups.size, dtype=bool)
        for group in np.unique(groups[known]):
            members = np.flatnonzero(groups == group)
            if single[group]:
                half[members] = in_second[group]
            elif not by_run:
                # an odd one out goes to either half by turns
                half[members[(len(members) + group % 2) // 2 :]] = True
        if not by_run and known.size:
            unknown = np.flatnonzero(groups == NO_GROUP)
            before = np.searchsorted(known, unknown, side="right") - 1
            half[unknown] = half[known[np.maximum(before, 0)]]
        halves.append(half)
    return halves


def _every_other_run(runs: Any) -> Mask | None:
    """Take every other run; None for one run, or where a run is not known."""
    listed = np.asarray(runs, dtype=object).tolist()
    if any(run is None or run != run for run in listed):  # noqa: PLR0124 (NaN)
        return None
    order = {run: n for n, run in enumerate(dict.fromkeys(listed))}
    if len(order) < 2:
        return None
    return np.array([order[run] % 2 == 1 for run in listed], dtype=bool)


def _in_second_half(codes: list[Codes], single: Mask, by_run: list[Mask]) -> Mask:
    """Return which of the groups that stay whole belong to the second half."""
    in_second = np.zeros(single.size, dtype=bool)
    place: dict[int, float] = {}  # where the first subject who has it shows a group
    for i, groups in enumerate(codes):
        for row in np.flatnonzero(groups != NO_GROUP):
            group = int(groups[row])
            if single[group] and group not in place:
                place[group] = row / groups.size
                in_second[group] = bool(by_run) and by_run[i][row]
    if not by_run:
        ordered = sorted(place, key=lambda group: (place[group], group))
        in_second[ordered[(len(ordered) + 1) // 2 :]] = True
    return in_second


def rows_to_test(codes: Codes, rows: NDArray[np.intp]) -> NDArray[np.intp]:
    """Return which held-out rows to test: with a group, and not next to aligning ones.

    Responses are slow: a held-out time point next to an aligning one is half known.
    """
    groups = codes[rows]
    chosen = groups != NO_GROUP
    n = int(chosen.sum())
    if np.unique(groups[chosen]).size == n and n >= 20:
        aligning = np.setdiff1d(np.arange(codes.size), rows)
        distance = np.abs(rows[:, None] - aligning).min(axis=1, initial=codes.size)
        # a quarter on either side at most; where runs take turns, half of them stay
        chosen &= distance > min(BORDER, n // 4, int(np.median(distance[chosen])))
    return np.flatnonzero(chosen)


def cross_fit(
    halves: list[Mask],
    codes: list[Codes],
    full: list[Matrix],
    fit: Callable[[Rows, Rows], tuple[list[Matrix], list[Matrix]]],
    *,
    blocks: list[NDArray[np.intp]] | None = None,
) -> tuple[list[Fold], list[Matrix]]:
    """Hold out either half; return both folds, and features of all samples to look at.

    `fit` takes the aligning and the held-out rows of each subject, and gives the
    features of both under a model of the former alone. To look at they are rotated to
    `full`, those of the model of all samples, within each of the `blocks` of features
    that can be rotated among each other; by default all can.
    """
    if min(min(half.sum(), (~half).sum()) for half in halves) < 3:
        raise InputError("There are too few samples to hold half of them out.")
    folds, k = [], full[0].shape[1]
    features = [np.empty(f.shape) for f in full]
    for held in (True, False):
        aligning = [np.flatnonzero(half != held) for half in halves]
        rows = [np.flatnonzero(half == held) for half in halves]
        seen, new = fit(aligning, rows)
        wanted = [f[r] for f, r in zip(full, aligning, strict=True)]
        rotated = _rotate(new, np.concatenate(seen), np.concatenate(wanted), blocks)
        for out, r, f in zip(features, rows, rotated, strict=True):
            out[r] = f
        # half of the samples may have more or fewer components
        own = [np.pad(f[:, :k], ((0, 0), (0, max(0, k - f.shape[1])))) for f in new]
        chosen = [rows_to_test(c, r) for c, r in zip(codes, rows, strict=True)]
        tested = [r[c] for r, c in zip(rows, chosen, strict=True)]
        folds.append(
            Fold(
                tested,
                [f[c] for f, c in zip(own, chosen, strict=True)],
                [c[r] for c, r in zip(codes, tested, strict=True)],
            )
        )
    return folds, features


def _rotate(
    features: list[Matrix],
    A: Matrix,
    B: Matrix,
    blocks: list[NDArray[np.intp]] | None,
) -> list[Matrix]:
    """Apply the rotation that takes A to B to features, in blocks if there are any."""
    if blocks is None:
        R = polar(A.T @ B)
        return [f @ R for f in features]
    if A.shape[1] != B.shape[1]:
        raise InputError("half of the samples give another number of features.")
    rotated = [f.copy() for f in features]
    for block in blocks:
        R = polar(A[:, block].T @ B[:, block])
        for out, f in zip(rotated, features, strict=True):
            out[:, block] = f[:, block] @ R
    return rotated


# -- models of a half ------------------------------------------------------------------


def select_samples(graph: Graph, rows: Rows) -> Graph:
    """Return the graph of some samples of each subject."""
    starts = [s.start for s in graph.slices()]
    chosen = np.concatenate([r + s for r, s in zip(rows, starts, strict=True)])
    groups = tuple(
        GroupTerm(t.codes[chosen], t.affinity, t.names) for t in graph.groups
    )
    matrix = None if graph.matrix is None else graph.matrix[chosen][:, chosen]
    return Graph(tuple(len(r) for r in rows), groups, matrix)


def fit_by_grams(
    aligner: Any,
    bases: list[SubjectBasis],
    k: int,
    rows: Rows,
    held_out: Rows,
    *,
    y: list[Any] | None = None,
    graph: Graph | None = None,
) -> tuple[list[Matrix], list[Matrix]]:
    """Fit a copy of an aligner to some rows of bases; return features of all rows.

    `graph` is that of all samples, for a GDM.
    """
    model = seeded_copy(aligner, 0)
    pairs = [_half_basis(*each) for each in zip(bases, rows, held_out, strict=True)]
    halves = [basis for basis, _ in pairs]
    params = model.get_params(deep=False)
    # None: all there are; but of a GDM, as many as hold up, which this tells
    if graph is not None or params.get("n_components") is not None:
        most = _n_available(model, halves, graph)
        model.set_params(n_components=k if most is None else min(k, most))
    if graph is not None:
        # what the name of its graph stands for: weights that it has, a constraint
        known = {"balance": None, "constraint": getattr(aligner, "_constraint", None)}
        named = {name: value for name, value in known.items() if name in params}
        model.set_params(graph=select_samples(graph, rows), **named)
    if isinstance(params.get("init"), np.ndarray):
        model.set_params(init="random")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the fit of all samples has said these
        solution = model._solve(halves, _select_rows(y, rows))
        model._set_solution(halves, solution, [None] * len(halves))
        maps = zip(model.maps_, pairs, strict=True)
        new = [np.asarray(m.transform(held), float) for m, (_, held) in maps]
    return [np.asarray(m.aligning_features(), float) for m in model.maps_], new


def fit_by_samples(
    aligner: Any, subjects: list[Any], rows: Rows, held_out: Rows, *, y: Any = None
) -> tuple[list[Matrix], list[Matrix]]:
    """Do the same with an aligner that works on the voxels themselves."""
    model = seeded_copy(aligner, 0)
    k = model.get_params().get("n_components")
    if isinstance(k, int):
        model.set_params(n_components=min(k, *(len(r) - 1 for r in rows)))
    aligning, held = (
        [
            s.select(r) if hasattr(s, "select") else s[r]
            for s, r in zip(subjects, some, strict=True)
        ]
        for some in (rows, held_out)
    )
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
    basis: SubjectBasis, rows: NDArray[np.intp], held_out: NDArray[np.intp]
) -> tuple[SubjectBasis, Any]:
    """Return the basis of some rows of another, and the others as it maps them."""
    runs = None if basis.runs is None else basis.runs[rows]
    how: Any = {"energy": basis.energy, "runs": runs, "name": basis.name}
    if basis.uses_covariance and not basis.reliable:
        narrow = basis.cut(1.0).coordinates  # few voxels: these are the smaller thing
        half = SubjectBasis(narrow[rows], standardize=False, **how)
        half.dtype = basis.dtype
        return half, narrow[held_out]
    how["standardize"] = basis.standardize
    if not basis.reliable:
        gram = basis.gram
        half = SubjectBasis(gram[np.ix_(rows, rows)], kernel="precomputed", **how)
        # voxels count in some methods; precision is that of the data
        half.n_voxels, half.constant_voxels = basis.n_voxels, basis.constant_voxels
        half.dtype = basis.dtype
        return half, gram[np.ix_(held_out, rows)]
    # labels scale the voxels: those of the held-out samples must not
    data = basis._data if basis._data is not None else basis.__dict__.get("_narrow")
    groups = getattr(basis, "_groups", None)
    labels = getattr(basis, "labels", None)  # of a basis from a file
    if groups is None and labels is not None:
        groups = encode_labels([labels])[0][0]
    if data is None or groups is None:
        raise InputError(
            "voxels were scaled by their reliability over all samples, held-out ones "
            "too, and the samples that could tell it anew are not here; pass X."
        )
    own, held = (
        data[r] if is_torch(data) else _Rows(data, r) for r in (rows, held_out)
    )
    half = SubjectBasis(own, kernel=basis.kernel, groups=groups[rows], **how)
    return half, held


class _Rows:
    """Some rows of an array that is read by columns."""

    ndim = 2

    def __init__(self, data: Any, rows: NDArray[np.intp]) -> None:
        self.data, self.rows = data, rows
        self.shape, self.dtype = (len(rows), data.shape[1]), data.dtype

    def __getitem__(self, key: Any) -> Any:
        return self.data[:, key[1]][self.rows]


def _n_available(
    model: Any, bases: list[SubjectBasis], graph: Graph | None
) -> int | None:
    """Return how many components the bases can have; None for any number."""
    if graph is not None:
        return sum(b.n_kept for b in bases) if model._needs_eigenbasis else None
    return min(
        b.n_kept
        if b.energy < 1 or model._needs_eigenbasis
        else min(b.n_samples - 1, b.n_voxels - b.constant_voxels.size)
        for b in bases
    )
