"""What all aligners share: reading subjects, mapping samples, adding subjects."""

import logging
from abc import abstractmethod
from collections.abc import Callable
from functools import partial
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import NDArray
from sklearn.base import clone
from sklearn.utils.validation import check_is_fitted

from brainweave._core.arrays import Matrix, on_gpu, samples_of
from brainweave._core.exceptions import InputError, KernelWarning, warn_user
from brainweave._core.labels import check_labels_overlap, encode_labels
from brainweave._core.stored import Stored
from brainweave._core.validation import (
    check_fraction,
    check_list_of_subjects,
    ids_of,
    labels_per_subject,
    one_per_subject,
)
from brainweave._core.workers import map_subjects
from brainweave.aligners.fitted import FittedAligner
from brainweave.aligners.maps import CoordinateMap, MixingMap, SubjectMap
from brainweave.basis.basis import SubjectBasis
from brainweave.basis.kernels import Kernel, check_kernel
from brainweave.basis.reliability import warn_of_no_reliability
from brainweave.basis.voxels import warn_of_constant_voxels

logger = logging.getLogger(__name__)


LOST_SHARE_WARNING = 0.05  # a kernel that loses more than this is worth a warning


class BaseAligner(FittedAligner, Stored):
    """Base of the aligners.

    A subclass stores its parameters and implements :meth:`_solve`, which turns bases
    and what is known of the samples into one coefficient matrix per subject; everything
    else is here. Parameters that a subclass may have and that are honoured here:
    ``energy``, ``kernel``, ``kernel_params``, ``standardize``, ``n_jobs``. What else
    :meth:`_solve` learns is declared in ``_stored``, a line for each attribute, so that
    model files hold it: see :class:`brainweave._core.stored.Stored`. The size K is the
    number of shared features.
    """

    _stored: ClassVar[dict[str, Any]] = {
        "maps_": [SubjectMap],
        "n_components_": int,
        "n_subjects_": int,
        "ids_?": [str],
        "coef_?": ["kept K"],
        "mixing_?": ["samples K"],
        "bases_": None,  # as large as the data
    }

    _isometric = False  # whether the way back is the transpose of the map
    _is_piece = False  # fitted to a part of the brain, by another aligner
    _takes_bases = True  # else it needs the samples, and evaluations hand them over
    _from_grams = True  # all it learns follows from the subjects' Gram matrices
    _joins_samples = True  # through labels, ids or rows; else scoring them is honest
    study_fingerprint: str | None = None  # of the study it was fitted on, if recorded

    _runs: list[Any] | None = None  # of samples given as arrays: pieces of subjects
    _warns_of_input = True  # set to False by those who fit many and have warned once

    @property
    def _owner(self) -> str:
        return type(self).__name__

    @property
    def _solution_name(self) -> str:
        """The attribute that keeps solutions: "coef_", "mixing_", or none (empty)."""
        return "coef_"

    @property
    def _needs_eigenbasis(self) -> bool:
        """Whether a fit needs eigenvectors of Gram matrices even if nothing is cut."""
        return True

    @property
    def _learns_from_labels(self) -> bool:
        """Whether labels matter though samples are joined otherwise."""
        return False

    # -- fitting ----------------------------------------------------------------------

    def fit(self, X: Any, y: Any = None) -> Self:
        """Learn one map per subject.

        Parameters
        ----------
        X : list of arrays of shape (n_samples_i, n_voxels_i), or a Study
            One entry per subject: an array, a data frame, or a list of rows; or a dict
            of them by subject id, or a stack (n_subjects, n_samples, n_voxels).
            Entries may also be :class:`SubjectBasis` objects, such as ``bases_`` of
            another fitted aligner, so that the voxels are not read again.
        y : list of array-like, dict, or a Study, optional
            What is known of the samples, one array per subject, in the order of X; a
            dict is matched by id; one list of labels holds for all subjects. Of
            a Study the labels are taken, matched by id where X are bases with ids.

        Returns
        -------
        self

        Notes
        -----
        Fitted on a Study, or on bases that know their subject, the aligner has
        ``ids_``, and matches subjects by them from then on; on bare arrays ``ids_`` is
        None, and subjects are matched by position.
        """
        subjects = check_list_of_subjects(X, owner=self._owner)
        y = self._find_y(subjects, y)
        self._check_subjects(subjects, y)
        self.ids_ = ids_of(subjects, owner=self._owner)
        self._check_labels(y)
        self._aligning_y = None if y is None else self._labels_from(y)
        bases = self._read_bases(subjects, y)
        solution = self._solve(bases, y)
        self._set_solution(
            bases, solution, [getattr(s, "space", None) for s in subjects]
        )
        return self

    def _check_subjects(self, subjects: list[Any], y: list[Any] | None) -> None:
        """Refuse, before any voxel is read, what this method cannot align."""

    def _joins_by_label(self) -> bool:
        """Tell whether equal labels are what ties the samples of different subjects."""
        return False

    def _joins_by_row(self, y: Any) -> bool:
        """Tell whether samples are tied by their row, if y is known of them."""
        return False

    def _needs_common_labels(self) -> bool:
        """Tell whether nothing else ties them."""
        return self._joins_by_label()

    def _labels_from(self, y: list[Any]) -> list[Any]:
        """Return the labels in y, which may hold more than these."""
        return y

    def _check_labels(self, y: list[Any] | None) -> None:
        """Refuse labels that do not meet, or warn of them, if they join samples."""
        if y is None or not self._joins_by_label():
            return
        names = [f"X[{i}]" for i in range(len(y))]
        if self.ids_ is not None:
            names = [repr(id) for id in self.ids_]
        check_labels_overlap(
            self._labels_from(y),
            names,
            refuse=self._needs_common_labels(),
            warn=self._warns_of_input,
        )

    @abstractmethod
    def _solve(self, bases: list[SubjectBasis], y: list[Any] | None) -> list[Matrix]:
        """Return a coefficient matrix (n_kept_i, K) per subject; set learned values.

        Or a mixing of samples, if :attr:`_solution_name` says so.
        """

    def _find_y(self, subjects: list[Any], y: Any) -> list[Any] | None:
        """Take y as given, or from subjects that know their labels."""
        return labels_per_subject(subjects, y, self._y_of, owner=self._owner)

    def _y_of(self, subject: Any) -> Any:
        """Return what is to be known of the samples of a subject that knows them."""
        return subject.labels

    def _read_bases(
        self, subjects: list[Any], y: list[Any] | None = None
    ) -> list[SubjectBasis]:
        """Make, or take over, one basis per subject; several subjects at a time."""
        n, params = len(subjects), self.get_params(deep=False)
        labels = [None] * n if y is None else self._labels_from(y)
        runs = self._runs or [getattr(s, "runs", None) for s in subjects]
        # other processes are sent what the function refers to: not the whole aligner
        read, needs_eigenbasis = self._reader(), self._needs_eigenbasis

        def read_subject(
            subject: Any, labels: Any, runs: Any, settings: Any, i: int
        ) -> SubjectBasis:
            basis = read(subject, labels, *settings, runs=runs, name=f"X[{i}]")
            if not isinstance(subject, SubjectBasis):
                basis.id = str(getattr(subject, "id", ""))
            if needs_eigenbasis or basis.energy < 1:
                _ = basis.n_kept  # the eigenbasis belongs to this stage
            return basis

        bases = map_subjects(
            read_subject,
            *(subjects, labels, runs, self.basis_settings(n), range(n)),
            n_jobs=self._jobs(subjects),
            threads_only=all(isinstance(s, SubjectBasis) for s in subjects),
        )
        for basis in bases:
            if basis.constant_voxels.size:
                logger.info(
                    "%s: %d of %d voxels are constant and were left out",
                    basis.id or basis.name,
                    basis.constant_voxels.size,
                    basis.n_voxels,
                )
        self._warn_of_lost_energy(bases)
        if params.get("standardize") == "reliability" and self._warns_of_input:
            warn_of_no_reliability(bases)
        if not self._is_piece:
            warn_of_constant_voxels(bases)
        return bases

    def _jobs(self, arrays: list[Any]) -> int | None:
        params = self.get_params(deep=False)
        n_jobs: int | None = params.get("n_jobs")
        if all(map(on_gpu, arrays)):
            return 1
        # there, one may bring its voxels while another is worked on
        there = str(params.get("device")).startswith("cuda")
        return 2 if there and n_jobs is None else n_jobs

    def basis_settings(self, n_subjects: int | None) -> list[tuple[Kernel, float]]:
        """Return the kernel and energy of each subject.

        Parameters
        ----------
        n_subjects : int or None
            How many; None: of a new one. Settings per subject say nothing of that, so
            the first serves.
        """
        owner, params = self._owner, self.get_params(deep=False)
        energy = params.get("energy")
        values = {
            "kernel": params.get("kernel", "linear"),
            "kernel_params": params.get("kernel_params"),
            "energy": 1.0 if energy is None else energy,
        }
        lists = [
            [value[0] if isinstance(value, (list, tuple)) else value]
            if n_subjects is None
            else one_per_subject(name, value, n_subjects, owner=owner)
            for name, value in values.items()
        ]
        return [
            (check_kernel(k, hp, owner=owner), check_fraction("energy", e, owner=owner))
            for k, hp, e in zip(*lists, strict=True)
        ]

    def _reader(self) -> Callable[..., SubjectBasis]:
        """Return what makes the basis of a subject, as this aligner wants it."""
        params = self.get_params(deep=False)
        standardize = params.get("standardize", True)
        if standardize != "reliability" and not isinstance(
            standardize, (bool, np.bool_)
        ):
            raise TypeError(
                f"standardize of {self._owner} must be True, False or 'reliability', "
                f"got {standardize!r}."
            )
        return partial(
            _read_basis,
            standardize=standardize,
            device=params.get("device"),
            owner=self._owner,
        )

    def _warn_of_lost_energy(self, bases: list[SubjectBasis]) -> None:
        lost = {
            i: b.lost_share
            for i, b in enumerate(bases)
            if b.kernel.name not in ("linear", "gaussian", "quadratic")
            and b.lost_share > LOST_SHARE_WARNING
        }
        if lost:
            worst = max(lost, key=lambda i: lost[i])
            warn_user(
                f"The {bases[worst].kernel.name} kernel is not positive semi-definite: "
                f"X[{worst}] loses {lost[worst]:.0%} of its energy, {len(lost)} of "
                f"{len(bases)} subjects more than {LOST_SHARE_WARNING:.0%}. A larger "
                "hp loses less.",
                KernelWarning,
            )

    def _set_solution(
        self, bases: list[SubjectBasis], solution: list[Matrix], spaces: list[Any]
    ) -> None:
        self.bases_ = bases
        for name in ("coef_", "mixing_"):  # of another fit
            self.__dict__.pop(name, None)
        if self._solution_name:
            setattr(self, self._solution_name, solution)
        self.maps_ = [
            self._make_map(b, c, space=s)
            for b, c, s in zip(bases, solution, spaces, strict=True)
        ]
        self.n_subjects_ = len(bases)
        self.n_components_ = self.maps_[0].n_components

    def _make_map(
        self, basis: SubjectBasis, coef: Matrix, *, space: Any = None
    ) -> SubjectMap:
        kind = MixingMap if self._solution_name == "mixing_" else CoordinateMap
        return kind(basis, coef, isometric=self._isometric, space=space)

    # -- a new subject -----------------------------------------------------------------

    def fit_new_subject(self, X: Any, y: Any = None) -> SubjectMap:
        """Learn the map of a subject that was not in the fit; the model is unchanged.

        Parameters
        ----------
        X : array of shape (n_samples, n_voxels), or a Subject
            Samples of the new subject.
        y : array-like, optional
            What is known of them, as in :meth:`fit`.

        Returns
        -------
        SubjectMap
        """
        basis, y = self._new_subject(X, y)
        coef = self._solve_new(basis, y)
        return self._make_map(basis, coef, space=getattr(X, "space", None))

    @abstractmethod
    def _solve_new(self, basis: SubjectBasis, y: Any) -> Matrix:
        """Return the coefficient matrix of a new subject."""

    def _new_subject(self, X: Any, y: Any) -> tuple[SubjectBasis, Any]:
        """Check a new subject and make its basis with the settings of the fit."""
        check_is_fitted(self, "maps_")
        if y is None and hasattr(X, "labels"):
            y = self._y_of(X)
        labels = None if y is None else self._labels_from([y])[0]
        ((kernel, energy),) = self.basis_settings(None)
        basis = self._reader()(X, labels, kernel, energy, name="the new subject")
        if not self._is_piece:
            warn_of_constant_voxels([basis])
        if y is not None and len(y) != basis.n_samples:
            raise InputError(
                f"y has {len(y)} labels for {basis.n_samples} samples of {basis.name}."
            )
        return basis, y


def _read_basis(
    given: Any,
    labels: Any,
    kernel: Kernel,
    energy: float,
    *,
    standardize: bool | str,
    device: Any,
    name: str,
    owner: str,
    runs: Any = None,
) -> SubjectBasis:
    if isinstance(given, SubjectBasis):
        if given.standardize != standardize:
            raise InputError(
                f"{name} is a basis with standardize={given.standardize}; "
                f"this {owner} has standardize={standardize}."
            )
        return given.with_kernel(kernel).cut(energy)
    by_reliability = isinstance(standardize, str)
    return SubjectBasis(
        samples_of(given),
        kernel=kernel,
        energy=energy,
        standardize=standardize if by_reliability else bool(standardize),
        groups=_groups_of(given, labels) if by_reliability else None,
        runs=runs,
        name=name,
        device=device,
    )


def _groups_of(subject: Any, known: Any) -> NDArray[np.intp] | None:
    """Return the groups by which voxels are reliable: the labels, if there are any."""
    labels = getattr(subject, "labels", None)
    labels = known if labels is None else labels
    return None if labels is None else encode_labels([labels])[0][0]


def seeded_copy(estimator: Any, random_state: int | None) -> Any:
    """Copy an estimator; what has no random_state of its own gets this one."""
    copy = clone(estimator)
    free = {
        name: random_state
        for name, value in copy.get_params(deep=True).items()
        if name.split("__")[-1] == "random_state" and value is None
    }
    return copy.set_params(**free)
