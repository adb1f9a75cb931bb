r"""What the methods share that need the same stimuli in the same rows.

With :math:`X` the samples of one subject, :math:`K = X X^\top` and :math:`S` a target
with one row per sample, the orthonormal :math:`W` that minimises
:math:`\lVert X W - S \rVert_F` and :math:`\lVert X - S W^\top \rVert_F` is the polar
factor of :math:`X^\top S`:

.. math:: W = X^\top S \, (S^\top K S)^{-1/2} = X^\top A, \qquad X W = K A,

so :math:`K` and matrices as wide as the target are all that is needed.
"""

from collections.abc import Sequence
from copy import copy
from dataclasses import dataclass, field
from typing import Any, ClassVar, NamedTuple

import numpy as np
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils import check_random_state

from brainweave._core.arrays import Matrix
from brainweave._core.exceptions import (
    InputError,
    LayoutWarning,
    UniquenessWarning,
    warn_user,
)
from brainweave._core.labels import as_label_list
from brainweave._core.validation import check_2d, check_int, check_number
from brainweave.aligners.base import BaseAligner
from brainweave.aligners.gdm.shared_map import Placement
from brainweave.basis.basis import TIED, SubjectBasis
from brainweave.basis.linalg import flip_signs, polar
from brainweave.basis.places import Places, find_places

ROUNDING = 1e-13  # changes of an objective below this, relative to it, are rounding

MANY_ROWS, TALL = 2000, 10  # more rows, and so many per column, are rarely samples

TURNED = (
    "Rows are samples and columns are voxels here; BrainIAK takes voxels x samples. "
    "Coming from there, pass [x.T for x in X]."
)

WAYS_OUT = (
    "Either make the rows correspond, brainweave.match_samples(X, y, how='truncate', "
    "'average' or 'intersect'), or use GDM, which needs no common time line."
)


def check_same_samples(
    subjects: Sequence[Any], y: Sequence[Any] | None, *, owner: str, warn: bool = False
) -> None:
    """Refuse rows that do not correspond; warn, if asked to, of what looks turned."""
    shapes = [
        (s.n_samples, s.n_voxels) if hasattr(s, "n_samples") else check_2d(s, f"X[{i}]")
        for i, s in enumerate(subjects)
    ]
    for i, (n, _) in enumerate(shapes):
        if n != shapes[0][0]:
            turned = f" {TURNED}" if len({v for _, v in shapes}) == 1 else ""
            raise InputError(
                f"{owner} aligns row by row, but X[0] has {shapes[0][0]} samples and "
                f"X[{i}] has {n}.{turned} {WAYS_OUT}"
            )
    known = [as_label_list(labels, f"y[{i}]") for i, labels in enumerate(y or [])]
    for i, labels in enumerate(known):
        for t, (first, own) in enumerate(zip(known[0], labels, strict=True)):
            if first != own:
                raise InputError(
                    f"{owner} aligns row by row, but y[{i}] differs from y[0], first "
                    f"at sample {t} ({own!r} and {first!r}). {WAYS_OUT}"
                )
    if warn and all(n >= max(MANY_ROWS, TALL * v) for n, v in shapes if v):
        n, v = shapes[0]
        warn_user(
            f"X[0] has {n} rows and {v} columns, which {owner} takes as {n} samples of "
            f"{v} voxels. {TURNED} Ignore this warning if rows are samples.",
            LayoutWarning,
        )


class Iterations:
    """The objective after each iteration, and whether it changes by less than tol."""

    def __init__(self, start: float, *, max_iter: int, tol: float) -> None:
        self.history, self.max_iter, self.tol = [start], max_iter, tol
        self.change = self.gained = np.inf  # by the last iteration, and by all
        self.n_iter, self.converged = 0, False

    def go_on(self) -> bool:
        """Whether another iteration is wanted."""
        return not self.converged and self.n_iter < self.max_iter

    def add(self, value: float) -> None:
        """Record the objective after one more iteration."""
        self.n_iter += 1
        self.change = abs(value - self.history[-1])
        self.gained = abs(value - self.history[0])
        self.history.append(value)
        limit = max(self.tol * self.gained, ROUNDING * abs(value))
        self.converged = self.tol > 0 and self.change <= limit


@dataclass(eq=False, repr=False)
class TimeLocked(BaseAligner):
    """Base of the aligners whose subjects share their rows."""

    n_components: int = 10

    shared_response_: Matrix = field(init=False)  # a row per aligning sample
    _stored: ClassVar[dict[str, Any]] = {"shared_response_": "n K", "mixing_?": ["n K"]}

    def _joined_by(self, y: Any = None) -> set[str]:
        return {"rows"}

    def _check_subjects(self, subjects: list[Any], y: list[Any] | None) -> None:
        warn = self._warns_of_input and y is None
        check_same_samples(subjects, y, owner=self._owner, warn=warn)

    def _n_components(self) -> int:
        k = self.n_components
        return check_int("n_components", k, minimum=1, owner=self._owner)

    def _components_up_to(self, most: int, what: str) -> int:
        """Return n_components, by default as many as there are dimensions."""
        k = most if self.n_components is None else self._n_components()
        if k > most:
            raise InputError(
                f"n_components={k} is more than the {most} dimensions {what}. Use "
                "fewer components."
            )
        return k

    def _wanted_components(self, bases: list[SubjectBasis]) -> int:
        """Return n_components, if every subject has as many dimensions."""
        k = self._n_components()
        for b in bases:
            # without an eigenbasis only the bound is known; the solver finds the rest
            most = min(b.n_samples - 1, b.n_voxels - b.constant_voxels.size)
            check_rank(b, k, most if b.energy == 1 else b.n_kept)
        return k

    def _for_rows(self, rows: Any, y: Any) -> tuple[BaseAligner, Any]:
        part = copy(self)
        for name in ("shared_response_", "template_"):
            if hasattr(self, name):
                setattr(part, name, getattr(self, name)[rows])
        return part, None if y is None else y[rows]

    def _check_rows(self, basis: SubjectBasis) -> None:
        """Refuse a new subject without a sample for each row of the shared response."""
        n = len(self.shared_response_)
        if basis.n_samples != n:
            raise InputError(
                f"{basis.name} has {basis.n_samples} samples for {n} rows of the "
                "shared response. Give the aligning samples in their order, or use "
                "GDM, which joins by labels."
            )


@dataclass(eq=False, repr=False, kw_only=True)
class Iterative(TimeLocked):
    """Base of those that iterate."""

    max_iter: int = 500
    tol: float = 1e-5
    standardize: bool | str = True
    n_jobs: int | None = None

    _stored: ClassVar[dict[str, Any]] = {
        "objective_history_": [float],
        "n_iter_": int,
        "converged_": bool,
    }

    def _new_iterations(self, start: float) -> Iterations:
        """Begin to record an iteration with the limits that the user set."""
        return Iterations(
            start,
            max_iter=check_int("max_iter", self.max_iter, minimum=1, owner=self._owner),
            tol=check_number("tol", self.tol, "[0, inf)", owner=self._owner),
        )

    def _set_convergence(self, iterations: Iterations) -> None:
        """Set what is known of the iteration, and warn if it was cut short."""
        self.objective_history_ = iterations.history
        self.n_iter_ = iterations.n_iter
        self.converged_ = iterations.converged
        if not iterations.converged and iterations.tol > 0:
            share = iterations.change / (iterations.gained or 1.0)
            warn_user(
                f"{self._owner} did not converge in {iterations.n_iter} iterations: "
                f"the last one changed the objective by {share:.1e} of all that was "
                f"gained, more than tol={iterations.tol:g}. Increase max_iter or tol.",
                ConvergenceWarning,
            )


@dataclass(eq=False, repr=False, kw_only=True)
class FromRandomStart(Iterative):
    """Base of those that descend from a random shared response."""

    random_state: Any = None

    def _start(self, n_samples: int, k: int) -> Matrix:
        """Return the shared response to start from."""
        rng = check_random_state(self.random_state)
        return np.asarray(rng.normal(size=(n_samples, k)))


class Correspondence(Placement):
    """The places by which voxels of different subjects correspond."""

    _stored: ClassVar[dict[str, Any]] = {}

    def __str__(self) -> str:
        return (
            f"Voxels correspond by {self.n_places} places ({self.what}); there is no "
            "map that all subjects share. GDM has one where subjects lie in one space."
        )


class InPlaces(TimeLocked):
    """Base of those that know which voxels of different subjects correspond."""

    _from_grams = False
    _stored: ClassVar[dict[str, Any]] = {"place_?": Correspondence}

    def _in_places(self, bases: list[SubjectBasis]) -> list[Matrix]:
        """Return the samples of each subject in the places that all have."""
        found = find_places("auto", bases, owner=self._owner)
        columns = {b.n_voxels for b in bases}
        if len(columns) == 1 and all(b.space is None for b in bases):
            found = Places(columns.pop(), [None] * len(bases), "equal columns")
        if not isinstance(found, Places):
            raise InputError(
                f"{self._owner} needs to know which voxels of the subjects correspond, "
                f"but {found}. Use one mask for all subjects, or an aligner such as "
                "SRM or GDM."
            )
        names, frame = found.names, str(found.frame or "")
        self.place_ = Correspondence(None, found.n_places, found.what, names, frame)
        return [b.in_places(m) for b, m in zip(bases, found.matrices, strict=True)]


# squared singular values, relative to the largest, that the Gram matrix cannot resolve
SINGULAR = 1e-10
UNSURE = 1e-6  # below this, one more step restores orthonormality


class Alignment(NamedTuple):
    """An orthonormal map ``W = X.T @ mixing`` and the features ``X @ W``."""

    mixing: Matrix
    features: Matrix


def rotate_onto(coordinates: Matrix, target: Matrix) -> Matrix:
    """Return the orthonormal matrix that takes coordinates nearest to the target."""
    return polar(coordinates.T @ target)


def align_to(basis: SubjectBasis, S: Matrix) -> Alignment:
    """Align one subject to a target without its eigenbasis, O(n_samples^2 K)."""
    product = basis.gram_times(S)
    metric = S.T @ product
    values, vectors = np.linalg.eigh((metric + metric.T) / 2)
    if not values[0] > SINGULAR * values[-1]:
        # a decomposition completes the directions that the target lacks
        check_rank(basis, S.shape[1])
        Q = rotate_onto(basis.coordinates, S)
        mixing = basis.vectors @ (Q / np.sqrt(basis.values)[:, None])
        return Alignment(np.asarray(mixing), basis.coordinates @ Q)
    root = (vectors / np.sqrt(values)) @ vectors.T
    features = product @ root
    if values[0] < UNSURE * values[-1]:
        step = (3 * np.eye(len(values)) - features.T @ (S @ root)) / 2  # Newton's
        step = (step + step.T) / 2
        root, features = root @ step, features @ step
    return Alignment(np.asarray(S @ root), features)


def principal_axes(S: Matrix, covariance: Matrix | None = None) -> Matrix:
    """Return the rotation that sorts columns by variance, with fixed signs."""
    metric = S.T @ S if covariance is None else covariance
    turn = np.linalg.eigh(metric)[1][:, ::-1]
    return np.asarray(turn * flip_signs(S @ turn))


def warn_of_tie(values: Matrix, k: int) -> None:
    """Warn if a cut after the first k of some descending variances parts equal ones."""
    if k >= values.size or values[k - 1] <= TIED * values[0]:
        return
    if values[k - 1] - values[k] <= TIED * values[0]:
        warn_user(
            "The shared space is not unique: the last component kept and the first "
            "left out are equally strong, so which directions are kept is "
            "arbitrary. Keep fewer components, or more.",
            UniquenessWarning,
        )


def check_rank(
    basis: SubjectBasis, n_components: int, available: int | None = None
) -> None:
    """Refuse more orthonormal columns than the subject has dimensions."""
    available = basis.n_kept if available is None else available
    if available < n_components:
        raise InputError(
            f"n_components={n_components} is more than the {available} dimensions of "
            f"{basis.name} ({basis.n_samples} samples, {basis.n_voxels} voxels, energy "
            f"{basis.energy:g}). Use fewer components or more samples."
        )
