"""What the methods share that need the same stimuli in the same rows."""

import warnings
from collections.abc import Sequence
from dataclasses import KW_ONLY, dataclass, field
from typing import Any

import numpy as np
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils import check_random_state
from sklearn.utils.validation import check_is_fitted

from brainweave._arrays import Matrix
from brainweave._validation import check_2d, check_indices, check_int, check_number
from brainweave.aligners.base import BaseAligner
from brainweave.aligners.maps import MixingMap, SubjectMap
from brainweave.aligners.procrustes import check_rank
from brainweave.basis import SubjectBasis
from brainweave.exceptions import InputError, LayoutWarning
from brainweave.labels import as_label_list

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
    subjects: Sequence[Any], y: Sequence[Any] | None, *, owner: str
) -> None:
    """Refuse subjects whose rows cannot, or by their labels do not, correspond."""
    shapes = [_shape_of(s, f"X[{i}]") for i, s in enumerate(subjects)]
    for i, (n, _) in enumerate(shapes):
        if n != shapes[0][0]:
            turned = f" {TURNED}" if len({v for _, v in shapes}) == 1 else ""
            raise InputError(
                f"{owner} aligns row by row, but X[0] has {shapes[0][0]} samples and "
                f"X[{i}] has {n}.{turned} {WAYS_OUT}"
            )
    known = [as_label_list(labels, f"y[{i}]") for i, labels in enumerate(y or [])]
    for i, labels in enumerate(known):
        pairs = enumerate(zip(known[0], labels, strict=True))
        differing = [t for t, (a, b) in pairs if a != b]
        if differing:
            t = differing[0]
            raise InputError(
                f"{owner} aligns row by row, but y[{i}] differs from y[0] in "
                f"{len(differing)} of {len(labels)} samples, first at sample {t} "
                f"({labels[t]!r} and {known[0][t]!r}). {WAYS_OUT}"
            )


def warn_of_layout(subjects: Sequence[Any], *, owner: str) -> None:
    """Warn of arrays with far more rows than any scan has, for their columns."""
    shapes = [_shape_of(s, "X") for s in subjects]
    if all(n >= max(MANY_ROWS, TALL * v) for n, v in shapes if v):
        n, v = shapes[0]
        warnings.warn(
            f"X[0] has {n} rows and {v} columns, which {owner} takes as {n} samples of "
            f"{v} voxels. {TURNED} If these are the samples, all is well.",
            LayoutWarning,
            stacklevel=4,
        )


def _shape_of(subject: Any, name: str) -> tuple[int, int]:
    if hasattr(subject, "n_samples"):
        return int(subject.n_samples), int(subject.n_voxels)
    return check_2d(subject, name)


class Progress:
    """The objective after each iteration, and whether it has settled.

    It has once an iteration changes it by no more than ``tol`` times all that was
    gained since the start, which depends neither on the scale of the data nor on the
    noise that no iteration can remove. With ``tol=0`` every iteration is done.
    """

    def __init__(self, start: float, *, max_iter: int, tol: float) -> None:
        self.history = [start]
        self.max_iter, self.tol = max_iter, tol
        self.converged = False

    @property
    def n_iter(self) -> int:
        """Number of iterations done."""
        return len(self.history) - 1

    def go_on(self) -> bool:
        """Whether another iteration is wanted."""
        return not self.converged and self.n_iter < self.max_iter

    def add(self, value: float) -> None:
        """Record the objective after one more iteration."""
        change = abs(value - self.history[-1])
        self.history.append(value)
        gained = abs(value - self.history[0])
        self.converged = self.tol > 0 and change <= max(
            self.tol * gained, ROUNDING * abs(value)
        )


@dataclass(eq=False, repr=False)
class TimeLocked(BaseAligner):
    """Base of the aligners whose subjects share their rows.

    A subclass sets ``shared_response_``, one row per aligning sample, when it solves.
    """

    n_components: int = 10
    _: KW_ONLY
    max_iter: int = 500
    tol: float = 1e-5
    energy: Any = 1.0
    standardize: bool | str = True
    n_jobs: int | None = None

    shared_response_: Matrix = field(init=False)

    def _check_subjects(self, subjects: list[Any], y: list[Any] | None) -> None:
        check_same_samples(subjects, y, owner=self._owner)
        if self._warns_of_input and y is None:
            warn_of_layout(subjects, owner=self._owner)

    def _progress(self, start: float) -> Progress:
        """Begin to record an iteration with the limits that the user set."""
        return Progress(
            start,
            max_iter=check_int("max_iter", self.max_iter, minimum=1, owner=self._owner),
            tol=check_number("tol", self.tol, "[0, inf)", owner=self._owner),
        )

    def _keep_progress(self, progress: Progress) -> None:
        """Set what is known of the iteration, and say so if it was cut short."""
        self.objective_history_ = progress.history
        self.n_iter_ = progress.n_iter
        self.converged_ = progress.converged
        if not progress.converged and progress.tol > 0:
            change = abs(progress.history[-1] - progress.history[-2])
            gained = abs(progress.history[-1] - progress.history[0]) or 1.0
            warnings.warn(
                f"{self._owner} did not converge in {progress.n_iter} iterations: the "
                f"last one still changed the objective by {change / gained:.1e} of all "
                f"that was gained, more than tol={progress.tol:g}. Increase max_iter "
                "or tol; tol=0 asks for exactly max_iter iterations.",
                ConvergenceWarning,
                stacklevel=4,
            )

    def _wanted_components(self, bases: list[SubjectBasis]) -> int:
        """Return n_components, if every subject has as many dimensions."""
        k = self._n_components()
        for b in bases:
            # without an eigenbasis only the bound is known; the solver finds the rest
            most = min(b.n_samples - 1, b.n_voxels - b.constant_voxels.size)
            check_rank(b, k, most if b.energy == 1 else b.n_kept)
        return k

    def fit_new_subject(
        self, X: Any, y: Any = None, *, samples: Any = None
    ) -> SubjectMap:
        """Learn the map of a subject that was not in the fit; the model is unchanged.

        The new subject is aligned to the stored shared response.

        Parameters
        ----------
        X : array of shape (n_samples, n_voxels), or a Subject
            Samples of the new subject, in the order of the aligning samples.
        y : ignored
            Rows correspond by their number.
        samples : array-like of int, optional
            Which aligning samples the rows of X are, for a subject that has only some
            of them; by default all, in order.

        Returns
        -------
        SubjectMap
        """
        check_is_fitted(self, "maps_")
        n = len(self.shared_response_)
        rows = np.arange(n)
        if samples is not None:
            rows = check_indices("samples", samples, n, what="row")
        given, _ = _shape_of(X, "the new subject")
        if len(rows) != given:
            raise InputError(
                f"The new subject has {given} samples for {len(rows)} rows of the "
                "shared response. Say which aligning samples they are: "
                "fit_new_subject(X, samples=[...]), or use GDM, which joins by labels."
            )
        basis, _ = self._new_subject(X, None)
        solution = self._solve_new(basis, rows)
        return self._make_map(basis, solution, space=getattr(X, "space", None))


@dataclass(eq=False, repr=False, kw_only=True)
class FromRandomStart(TimeLocked):
    """Base of those that descend from a random shared response, or a given one."""

    init: Any = "random"
    random_state: Any = None

    def _start(self, n_samples: int, k: int) -> Matrix:
        """Return the shared response to start from: the one given, or a random one."""
        if isinstance(self.init, str):
            if self.init != "random":
                raise InputError(
                    f"init of {self._owner} must be 'random' or a shared response of "
                    f"shape (n_samples, n_components); got {self.init!r}."
                )
            rng = check_random_state(self.random_state)
            return np.asarray(rng.normal(size=(n_samples, k)))
        start = np.asarray(self.init, dtype=np.float64)
        if start.shape != (n_samples, k):
            raise InputError(
                f"init of {self._owner} must have shape {(n_samples, k)} (samples x "
                f"n_components); got {start.shape}."
            )
        if not np.isfinite(start).all():
            raise InputError(f"init of {self._owner} has NaN or infinite values.")
        return start


class GramOnly(TimeLocked):
    """Base of those whose maps are mixings of samples, so that no eigenbasis is needed.

    ``_solve`` returns one mixing (n_samples, K) per subject.
    """

    _needs_eigenbasis = False

    def _keep_solution(self, solution: list[Matrix]) -> None:
        self.mixing_ = solution

    def _make_map(
        self, basis: SubjectBasis, solution: Matrix, *, space: Any = None
    ) -> SubjectMap:
        return MixingMap(basis, solution, isometric=self._isometric, space=space)

    @property
    def coef_(self) -> list[Matrix]:  # type: ignore[override]
        """The maps in kernel coordinates; computing them needs the eigenbases."""
        known = [m.coef for m in self.maps_]
        if any(c is None for c in known):
            raise AttributeError("coef_ is not kept when a fitted model is pickled.")
        return known
