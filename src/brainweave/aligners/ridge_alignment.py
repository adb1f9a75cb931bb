"""Ridge regression between subjects: from the voxels of each to those of the others."""

from dataclasses import KW_ONLY, dataclass
from typing import Any, ClassVar

import numpy as np

from brainweave._core.arrays import Matrix
from brainweave._core.exceptions import InputError
from brainweave._core.validation import check_int
from brainweave._core.workers import map_subjects
from brainweave.aligners.gdm.strength import (
    MOST_SUBJECTS,
    check_rho,
    choose_by_features,
    smoother_of,
)
from brainweave.aligners.timelocked import InPlaces
from brainweave.basis.basis import SubjectBasis
from brainweave.basis.linalg import flip_signs


@dataclass(eq=False, repr=False)
class RidgeAlignment(InPlaces):
    r"""Predict a template, or one subject, from every subject by ridge regression.

    With :math:`X_i` the samples of subject i (rows are time points) and :math:`T_i` its
    target, the map of subject i minimises

    .. math:: \lVert X_i W_i - T_i V \rVert_F^2 + g_i \lVert W_i \rVert_F^2,

    where the columns of :math:`V` are the leading principal axes of the template. With
    all of them, distances between features are those between predicted patterns.

    Parameters
    ----------
    n_components : int or None, default=None
        Leading axes of the template to predict; None: all, as many as it has.
    target : "leave-one-out", "mean" or int, default="leave-one-out"
        What each subject predicts: the mean of the others, the mean of all, or the
        subject at this position (pairwise). The means need voxels that correspond:
        equal numbers, or a common brain space.
    shrinkage : float or "auto", default="auto"
        The ridge :math:`g_i`, in units of the mean eigenvalue of the subject's Gram
        matrix. "auto": the best of 16 at predicting the target in blocks of aligning
        samples (runs, if they are known, else quarters) that are left out. Whatever the
        target, the mean of the others is predicted for that, as a mean of all contains
        the noise it is predicted from.
    standardize, n_jobs : various
        As in :class:`DetSRM`.

    Attributes
    ----------
    maps_ : list of SubjectMap
    mixing_ : list of ndarray of shape (n_samples, K)
        The weights as mixtures of the standardised samples, ``X_i.T @ mixing_[i]``.
    shared_response_ : ndarray of shape (n_samples, K)
        The template on its axes, which subjects who join later predict.
    shrinkage_ : float
        The ridge that was used.
    place_ : Correspondence
        In what the voxels of subjects correspond.

    Notes
    -----
    Time O(M (n^2 v + n^3)) for M subjects with n samples and v voxels, and six to eight
    inverses a subject for the strength; memory O(M n (n + v)). Nothing is random.

    References
    ----------
    Ferrante, M., Boccato, T., Ozcelik, F., VanRullen, R., & Toschi, N. (2024). Through
    their eyes: multi-subject brain decoding with simple alignment techniques. Imaging
    Neuroscience 2.

    Bazeille, T., DuPre, E., Richard, H., Poline, J.-B., & Thirion, B. (2021). An
    empirical evaluation of functional alignment using inter-subject decoding.
    NeuroImage 245.

    Examples
    --------
    Subjects who differ by a mixing of voxels predict each other:

    >>> rng = np.random.default_rng(0)
    >>> S = rng.normal(size=(60, 4))
    >>> X = [S @ rng.normal(size=(4, 30)) for _ in range(3)]
    >>> a, b, c = RidgeAlignment(4, target=0).fit_transform(X)
    >>> bool(np.corrcoef(a.ravel(), b.ravel())[0, 1] > 0.99)
    True
    """

    n_components: int | None = None  # type: ignore[assignment]
    _: KW_ONLY
    target: int | str = "leave-one-out"
    shrinkage: float | str = "auto"
    standardize: bool | str = True
    n_jobs: int | None = None

    _solution_name = "mixing_"
    _needs_eigenbasis = False
    _stored: ClassVar[dict[str, Any]] = {"shrinkage_": float}

    def _solve(self, bases: list[SubjectBasis], y: list[Any] | None) -> list[Matrix]:
        n, target, owner = len(bases), self.target, self._owner
        reference = None  # the subject that all others predict, if it is no mean
        if not isinstance(target, str):
            known: Any = {"minimum": 0, "maximum": n - 1, "owner": owner}
            reference = check_int("target", target, **known)
        elif target not in ("leave-one-out", "mean"):
            raise InputError(
                f"target of {owner} must be 'leave-one-out', 'mean' or the position of "
                f"a subject; got {target!r}."
            )
        if reference is None:
            samples = self._in_places(bases)
            total = np.sum(samples, axis=0)
            template = total / n
            others = [(total - own) / (n - 1) for own in samples]
        else:
            template = bases[reference].in_places(None)
            others = [template] * n
        U, sizes, axes = np.linalg.svd(template, full_matrices=False)
        rank = int((sizes > 1e-10 * sizes[0]).sum())
        k = self._components_up_to(rank, "of the template")
        axes = axes[:k].T * flip_signs(U[:, :k])
        self.shared_response_ = template @ axes
        honest = [own @ axes for own in others]
        if not isinstance(self.shrinkage, str):
            self.shrinkage_ = check_rho(self.shrinkage, owner)
        elif self.shrinkage == "auto":
            asked = [i for i in range(n) if i != reference][:MOST_SUBJECTS]
            parts = [(np.arange(len(template)), honest[i]) for i in asked]
            few = [bases[i] for i in asked]
            self.shrinkage_ = choose_by_features(few, parts, self.n_jobs)[0]
        else:
            raise InputError(
                f"shrinkage of {owner} must be a number > 0 or 'auto'; got "
                f"{self.shrinkage!r}."
            )
        targets = [self.shared_response_] * n if target == "mean" else honest
        mixings = map_subjects(
            self._regress, bases, targets, n_jobs=self.n_jobs, threads_only=True
        )
        if reference is not None:  # which needs no prediction of itself
            power = (self.shared_response_**2).sum(axis=0)
            mixings[reference] = self.shared_response_ / power
        return mixings

    def _regress(self, basis: SubjectBasis, target: Matrix) -> Matrix:
        return smoother_of(basis, self.shrinkage_).regress(target)[0]

    def _solve_new(self, basis: SubjectBasis, y: Any) -> Matrix:
        self._check_rows(basis)
        return self._regress(basis, self.shared_response_)
