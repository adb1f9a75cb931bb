r"""The ridge of all subjects together: a shared map of places, and deviations from it.

With :math:`Z_i = X_i B_i` the samples of subject i in places that all subjects have
(columns of zeros where it lacks one), its features are :math:`Y_i = X_i D_i + Z_i W_0`
with the penalty :math:`\sum_i g_i |D_i|^2 + h |W_0|^2`. Let :math:`A_i = g_i (K_i +
g_i)^{-1} = I - S_i`. For targets :math:`T_i` the shared map and the mixings of the
deviations, :math:`D_i = X_i^\top m_i`, are

.. math:: W_0 = (h + Q)^{-1} \sum_i Z_i^\top A_i T_i , \quad
          Q = \sum_i Z_i^\top A_i Z_i , \quad
          m_i = (K_i + g_i)^{-1} (T_i - Z_i W_0) ,

and the smoother of all samples, in place of the :math:`S_i`, is :math:`I - A + A Z (h +
Q)^{-1} Z^\top A`. Everything is a sum over subjects. Without places, or with an
infinite h, every subject has a ridge of its own (docs/gdm.md).
"""

from collections.abc import Callable, Iterator, Sequence
from copy import copy
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse
from scipy.linalg.lapack import dposv

from brainweave._core.arrays import Matrix, to_numpy, trim_heap
from brainweave.aligners.gdm.eigenproblem import Solution
from brainweave.aligners.gdm.smoother import (
    DeviceSmoother,
    Smoother,
    add_ridge,
    cho_solve,
)

BATCH = 8  # subjects whose products with groups are held at a time


class Regression(NamedTuple):
    """Ridge regressions on targets, of all subjects."""

    maps: list[Matrix]  # (n_samples_i, K): the deviations, as mixtures of samples
    features: list[Matrix]  # (n_samples_i, K)
    shared: Matrix | None  # (n_places, K): the map of places; None without


class JointRidge:
    """The ridge smoothers of subjects, tied by what they share in places.

    ``places`` are the centred samples of each subject in places, ``strength`` is the
    ridge h of the shared map, and ``over_subjects`` maps a function over lists with an
    entry per subject, in threads, say.
    """

    def __init__(
        self,
        smoothers: Sequence[Smoother],
        places: Sequence[Matrix] | None = None,
        strength: float = np.inf,
        *,
        over_subjects: Callable[..., list[Any]] = lambda f, *x: list(map(f, *x)),
    ) -> None:
        self.smoothers, self.strength = list(smoothers), float(strength)
        self.over_subjects = over_subjects
        self._given = places
        # of the columns U that were given last, shared with copies of other ridges:
        # U, the sums of P_i, Q_i and R_i, all Q_i, and, of dense U, all R_i
        self._known: list[Any] = []
        self._crossed: list[Any] = []  # U, and the sum of the transposes of R_i

    @cached_property
    def every_place(self) -> list[Matrix] | None:
        """The samples in places, also if their ridge is infinite."""
        return None if self._given is None else list(self._given)

    @property
    def places(self) -> list[Matrix] | None:
        """The samples in places, if they tie subjects."""
        return self.every_place if np.isfinite(self.strength) else None

    def at(self, strength: float) -> "JointRidge":
        """Return the same with another ridge of the shared map, all sums kept."""
        other = copy(self)
        other.strength = float(strength)
        other.__dict__.pop("_factor", None)
        return other

    def forget(self) -> None:
        """Free what is large of all subjects; it is computed again when needed."""
        for smoother in self.smoothers:
            smoother.forget("square", "_bare_factor")
        if not self.smoothers[0].keeps_products:  # there are many
            self.__dict__.pop("every_place", None)
            trim_heap()

    @cached_property
    def _factor(self) -> Any:
        """The Cholesky factor of h + Q."""
        if not self._known:
            self._set_forms([np.empty((len(Z), 0)) for Z in self.every_place or []])
        return np.linalg.cholesky(add_ridge(self._known[2], self.strength)).T, False

    def _in_batches(self, function: Callable[..., Any], *lists: Any) -> Iterator[Any]:
        """Yield results by subject: they are as large as the number of groups."""
        every = self.smoothers, *lists
        for first in range(0, len(self.smoothers), BATCH):
            some = [x[first : first + BATCH] for x in every]
            yield from self.over_subjects(function, *some)

    def _set_forms(self, U: Sequence[Any]) -> None:
        """Find, and keep, what any ridge of the shared map needs of the columns."""
        P: Any = 0.0
        Q: list[Matrix] = []
        R: list[Matrix] = []
        dense = not any(map(scipy.sparse.issparse, U))
        for own in self._in_batches(lambda s, u, Z: s.forms(u, Z), U, self.every_place):
            P = P + own[0]
            Q.append(own[1])
            R = [*R, own[2]] if dense or not R else [R[0] + own[2]]
        self._known[:] = [U, P, sum(Q), sum(R), Q, R if dense else None]

    def _sums(self, targets: Sequence[Any]) -> list[Matrix]:
        """Return ``Z_i^T A_i T_i``."""
        return self.over_subjects(
            lambda s, Z, T: Z.T @ s.residual(T), self.smoothers, self.places, targets
        )

    def regress(self, targets: Sequence[Any], *, shortest: bool = True) -> Regression:
        """Return the ridge regressions on a target per subject, (n_samples_i, K)."""
        shared: Any = None
        if self.places is not None:
            shared = cho_solve(self._factor, np.sum(self._sums(targets), axis=0))

        def one(s: Smoother, T: Any, Z: Any) -> tuple[Matrix, Matrix]:
            known = 0.0 if shared is None else Z @ shared
            mixing, features = s.regress(T - known, shortest=shortest)
            return mixing, features + known

        found = self.over_subjects(one, self.smoothers, targets, self.places or targets)
        maps, features = map(list, zip(*found, strict=True))
        return Regression(maps, features, shared)

    def multiply(self, U: Sequence[Any], x: Matrix) -> Matrix:
        """Return ``U^T S U x`` of the joint smoother; nothing is as large as U^T U."""
        alone = self.over_subjects(
            lambda s, u: u.T @ s.smooth(u @ x), self.smoothers, U
        )
        if self.places is None:
            return np.asarray(sum(alone))
        if not self._crossed or self._crossed[0] is not U:
            left = self.over_subjects(
                lambda s, Z, u: u.T @ s.residual(Z), self.smoothers, self.places, U
            )
            self._crossed[:] = [U, np.asarray(sum(left))]
        R = self._crossed[1]
        return np.asarray(sum(alone) + R @ cho_solve(self._factor, R.T @ x))

    def quadratic_form(self, U: Sequence[Any]) -> Any:
        """Return ``U^T S U`` of the joint smoother; sums are kept for the same U."""
        if self.every_place is None:
            P: Any = 0
            if all(isinstance(s, DeviceSmoother) for s in self.smoothers):
                for smoother, u in zip(self.smoothers, U, strict=True):
                    P = smoother.quadratic_form(u) + P  # there is room for one sum
                return P
            return sum(self._in_batches(lambda s, u: to_numpy(s.quadratic_form(u)), U))
        if not self._known or self._known[0] is not U:
            self._set_forms(U)
        _, P, _, R, *_ = self._known
        return P if self.places is None else P + R.T @ cho_solve(self._factor, R)

    def as_new(
        self, targets: Sequence[Matrix], mixed: Any = None
    ) -> list[tuple[Matrix, Matrix | None]]:
        """Return the coefficients and the shared map that each has as a new subject.

        The map of the others is then its shared map. Targets may be given as mixtures
        of the columns of :meth:`quadratic_form`, too.
        """
        if self.places is None:
            alone = self.over_subjects(
                lambda s, T: s.coefficients(T), self.smoothers, targets
            )
            return [(own, None) for own in alone]
        _ = self._factor
        U, *_, forms, crossed = self._known
        total = add_ridge(self._known[2], self.strength)
        given = mixed is not None and crossed is not None
        sums = [R @ mixed for R in crossed] if given else self._sums(targets)
        every = np.sum(sums, axis=0)

        def one(i: int, s: Smoother, Z: Matrix, own: Matrix) -> Any:
            others = (total - forms[i]).T
            _, shared, failed = dposv(others, every - own, overwrite_a=True)
            if failed:
                raise np.linalg.LinAlgError(f"Without {s.name}, places have no ridge.")
            if not given:
                return s.coefficients(targets[i] - Z @ shared), shared
            return s.coefficients_of(U[i], mixed, Z, -shared), shared

        numbers = list(range(len(sums)))
        return self.over_subjects(one, numbers, self.smoothers, self.places, sums)

    def penalties(self, found: Regression | Solution) -> list[Matrix]:
        """Return ``g_i D_i^T D_i + h W_0^T W_0 / M`` of each subject, (K, K)."""
        shared: Any = 0.0
        known: list[Any] = [0.0] * len(self.smoothers)
        if self.places is not None and found.shared is not None:
            W = found.shared
            shared = self.strength / len(self.smoothers) * (W.T @ W)
            known = [Z @ W for Z in self.places]
        parts = zip(self.smoothers, found.maps, found.features, known, strict=True)
        return [s.strength * (m.T @ (f - own)) + shared for s, m, f, own in parts]
