"""What all aligners share: reading subjects, fitting, mapping, joining, scoring."""

from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import NDArray
from sklearn.base import BaseEstimator, clone
from sklearn.utils.validation import check_is_fitted

from brainweave._core.arrays import Matrix, on_gpu, samples_of, to_numpy
from brainweave._core.exceptions import InputError, KernelWarning, warn_user
from brainweave._core.html import aligner_html
from brainweave._core.labels import check_labels_overlap, encode_labels
from brainweave._core.stored import Stored
from brainweave._core.validation import (
    ask_if_turned,
    check_fraction,
    check_list_of_subjects,
    check_numbers,
    find_subjects,
    ids_of,
    labels_per_subject,
    match_subjects,
    one_per_subject,
)
from brainweave._core.workers import map_subjects
from brainweave.aligners.maps import BasisMap, SubjectMap
from brainweave.basis.basis import SubjectBasis
from brainweave.basis.kernels import Kernel, check_kernel
from brainweave.basis.reliability import warn_of_no_reliability
from brainweave.basis.voxels import warn_of_constant_voxels

LOST_SHARE_WARNING = 0.05  # a kernel that loses more than this is worth a warning

Who = Sequence[int | str] | None  # fitted subjects, by position or id


class BaseAligner(BaseEstimator, Stored):
    """Base of the aligners.

    A subclass implements :meth:`_solve` and :meth:`_solve_new`, and declares in
    ``_stored`` what else it learns, for model files. The parameters ``energy``,
    ``kernel``, ``kernel_params``, ``standardize``, ``n_jobs`` and ``device``, if it has
    them, are honoured here.
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

    maps_: list[SubjectMap]
    n_subjects_: int
    n_components_: int
    ids_: list[str] | None  # of the subjects, in order, if they were given with ids

    # "coef_", "mixing_", or nothing (empty): the attribute that keeps solutions
    _solution_name = "coef_"
    _isometric = False  # whether the way back is the transpose of the map
    _needs_eigenbasis = True  # of Gram matrices, even if nothing is cut
    _learns_from_labels = False  # though samples are joined otherwise
    _takes_bases = True  # else it needs the samples, and evaluations hand them over
    _from_grams = True  # all it learns follows from the subjects' Gram matrices
    _features_are_weighed = False  # their spread says how much they count
    _chooses = False  # whether a fit chooses settings that others may take over
    _is_piece = False  # fitted to a part of the brain, by another aligner
    _warns_of_input = True  # set to False by those who fit many and have warned once
    _runs: list[Any] | None = None  # of samples given as arrays: pieces of subjects
    _spaces: list[Any] | None = None  # in which the places of these lie
    study_fingerprint: str | None = None  # of the study it was fitted on, if recorded

    def _repr_html_inner(self) -> str:
        return aligner_html(self, super()._repr_html_inner())

    def _repr_mimebundle_(self, **kwargs: Any) -> dict[str, str]:
        bundle = super()._repr_mimebundle_(**kwargs)
        return bundle | {k: self._repr_html_inner() for k in bundle if k == "text/html"}

    @property
    def _owner(self) -> str:
        return type(self).__name__

    @abstractmethod
    def _solve(self, bases: list[SubjectBasis], y: list[Any] | None) -> list[Matrix]:
        """Return one matrix (n_kept_i, K) or mixing per subject; set what it learns."""

    @abstractmethod
    def _solve_new(self, basis: SubjectBasis, y: Any) -> Matrix:
        """Return the coefficient matrix of a new subject."""

    def _joined_by(self, y: Any = None) -> set[str]:
        """Return what ties samples of subjects: "labels", "rows", other, or nothing."""
        return {"graph"}

    def _settled_by(self, fits: list[Any]) -> dict[str, Any]:
        """Return the parameters that fits to some pieces of a brain settle for all."""
        return {}

    def _check_subjects(self, subjects: list[Any], y: list[Any] | None) -> None:
        """Refuse, before any voxel is read, what this method cannot align."""

    def _y_of(self, subject: Any) -> Any:
        """Return what is to be known of the samples of a subject that knows them."""
        return subject.labels

    def _labels_from(self, y: list[Any]) -> list[Any]:
        """Return the labels in y, which may hold more than these."""
        return y

    def fit(self, X: Any, y: Any = None) -> Self:
        """Learn one map per subject.

        Parameters
        ----------
        X : list of arrays of shape (n_samples_i, n_voxels_i), or a Study
            One entry per subject: an array, a data frame, or a list of rows; or a dict
            of them by subject id, or a stack (n_subjects, n_samples, n_voxels).
            Entries may also be :class:`SubjectBasis` objects, such as ``bases_`` of
            another fitted aligner, so that the voxels are not read again.
        y : list of array-like, or dict, optional
            What is known of the samples, one array per subject, in the order of X; a
            dict is matched by id; one list of labels holds for all subjects.

        Returns
        -------
        self
            With ``ids_``, by which subjects are matched from then on, if X had ids;
            else it is None, and subjects are matched by position.
        """
        self.__dict__.pop("_check", None)  # of another fit
        subjects = check_list_of_subjects(X, owner=self._owner)
        y = self._find_y(subjects, y)
        self._check_subjects(subjects, y)
        self.ids_ = ids = ids_of(subjects, owner=self._owner)
        joined_by = self._joined_by(y)
        if y is not None and "labels" in joined_by:
            names = [f"X[{i}]" for i in range(len(y))]
            check_labels_overlap(
                self._labels_from(y),
                names if ids is None else list(map(repr, ids)),
                refuse=joined_by == {"labels"},
                warn=self._warns_of_input,
            )
        self._fit(subjects, y)
        return self

    def _fit(self, subjects: list[Any], y: list[Any] | None) -> None:
        """Learn the maps of subjects that were checked."""
        bases = self._read_bases(subjects, y)
        self._set_solution(bases, self._solve(bases, y))

    @property
    def _joins_samples(self) -> bool:
        """Whether scoring the aligning samples would be circular."""
        return bool(self._joined_by())

    def _find_y(self, subjects: list[Any], y: Any) -> list[Any] | None:
        """Take y as given, or from subjects that know their labels."""
        return labels_per_subject(subjects, y, self._y_of, owner=self._owner)

    def _read_bases(
        self, subjects: list[Any], y: list[Any] | None = None
    ) -> list[SubjectBasis]:
        """Make, or take over, one basis per subject; several subjects at a time."""
        n = len(subjects)
        labels = [None] * n if y is None else self._labels_from(y)
        runs = self._runs or [getattr(s, "runs", None) for s in subjects]
        names = [f"X[{i}]" for i in range(n)]
        bases = map_subjects(
            self._reader(),
            *(subjects, labels, self._basis_settings(n), names, runs),
            n_jobs=self._jobs(subjects),
            threads_only=all(isinstance(s, SubjectBasis) for s in subjects),
        )
        for basis, space in zip(bases, self._spaces or (), strict=False):
            basis.space = space
        sound = ("linear", "gaussian", "quadratic")
        lost = [0.0 if b.kernel.name in sound else b.lost_share for b in bases]
        worst = int(np.argmax(lost))
        if lost[worst] > LOST_SHARE_WARNING:
            warn_user(
                f"The {bases[worst].kernel.name} kernel is not positive semi-definite: "
                f"X[{worst}] loses {lost[worst]:.0%} of its energy. A larger hp loses "
                "less.",
                KernelWarning,
            )
        if getattr(self, "standardize", 0) == "reliability" and self._warns_of_input:
            warn_of_no_reliability(bases)
        if not self._is_piece:
            warn_of_constant_voxels(bases)
        return bases

    def _jobs(self, arrays: list[Any]) -> int | None:
        n_jobs: int | None = getattr(self, "n_jobs", None)
        if all(map(on_gpu, arrays)):
            return 1
        # there, one may bring its voxels while another is worked on
        there = str(getattr(self, "device", None)).startswith("cuda")
        return 2 if there and n_jobs is None else n_jobs

    def _basis_settings(
        self, n_subjects: int | None, new: Any = None
    ) -> list[tuple[Kernel, float]]:
        """Return the kernel and energy of each subject; of a new one, if n is None."""
        owner, lists = self._owner, []
        defaults = {"kernel": "linear", "kernel_params": None, "energy": 1.0}
        for name, default in defaults.items():
            value = getattr(self, name, default)
            value = 1.0 if name == "energy" and value is None else value
            if n_subjects is None and isinstance(value, list | tuple):
                if any(own != value[0] for own in value):
                    if isinstance(new, SubjectBasis):
                        return [(new.kernel, new.energy)]
                    raise InputError(
                        f"The subjects of this {owner} differ in {name}: {[*value]}. "
                        "Give the new subject as a SubjectBasis with its own kernel "
                        "and energy."
                    )
                value = value[0]
            lists.append(one_per_subject(name, value, n_subjects or 1, owner=owner))
        return [
            (check_kernel(k, hp, owner=owner), check_fraction("energy", e, owner=owner))
            for k, hp, e in zip(*lists, strict=True)
        ]

    def _reader(self) -> Any:
        """Return what makes the basis of a subject, as this aligner wants it."""
        standardize = getattr(self, "standardize", True)
        known = isinstance(standardize, (bool, np.bool_))
        if not known and standardize != "reliability":
            raise TypeError(
                f"standardize of {self._owner} must be True, False or 'reliability', "
                f"got {standardize!r}."
            )
        return partial(
            _read_basis,
            standardize=bool(standardize) if known else standardize,
            device=getattr(self, "device", None),
            eigenbasis=self._needs_eigenbasis,
            owner=self._owner,
        )

    def _set_solution(self, bases: list[SubjectBasis], solution: list[Matrix]) -> None:
        self.bases_ = bases
        for name in ("coef_", "mixing_"):  # of another fit
            self.__dict__.pop(name, None)
        if self._solution_name:
            setattr(self, self._solution_name, solution)
        self.maps_ = list(map(self._make_map, bases, solution))
        self.n_subjects_ = len(bases)
        self.n_components_ = self.maps_[0].n_components

    def _make_map(self, basis: SubjectBasis, solution: Matrix) -> SubjectMap:
        kind = "mixing" if self._solution_name == "mixing_" else "coef"
        more: Any = {kind: solution, "isometric": self._isometric}
        return BasisMap(basis, **more, space=basis.space)

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
            The map of the new subject.
        """
        basis, y = self._new_subject(X, y)
        return self._make_map(basis, self._solve_new(basis, y))

    def _for_rows(self, rows: NDArray[np.intp], y: Any) -> tuple["BaseAligner", Any]:
        """Return a model and y, given that of all rows, for who has some rows only."""
        return self, None if y is None else y[rows]

    def _new_subject(self, X: Any, y: Any) -> tuple[SubjectBasis, Any]:
        """Check a new subject and make its basis with the settings of the fit."""
        check_is_fitted(self, "maps_")
        if y is None and hasattr(X, "labels"):
            y = self._y_of(X)
        labels = None if y is None else self._labels_from([y])[0]
        (settings,) = self._basis_settings(None, X)
        basis = self._reader()(X, labels, settings, "the new subject")
        if self._spaces is not None:
            (basis.space,) = self._spaces
        if not self._is_piece:
            warn_of_constant_voxels([basis])
        if y is not None and len(y) != basis.n_samples:
            raise InputError(
                f"y has {len(y)} labels for {basis.n_samples} samples of {basis.name}."
                + ask_if_turned(basis.n_samples, basis.n_voxels, len(y))
            )
        return basis, y

    def transform(self, X: Any, subjects: Who = None) -> list[Any]:
        """Map samples into the shared space.

        Parameters
        ----------
        X : list of arrays of shape (n_samples_i, n_voxels_i), or a Study
            Samples of fitted subjects. A Study, in any order and with some or all of
            the subjects, is matched by ids if the fit was on a Study, too.
        subjects : sequence of int or str, optional
            Which fitted subject each array of X belongs to, by position or id; by
            default all, in order.

        Returns
        -------
        list of arrays of shape (n_samples_i, n_components)
            In the order of X.

        Warnings
        --------
        Do not score features of the samples that were used to fit: the labels that
        made them similar would be "found" in them, and even pure noise is classified
        almost perfectly. Fit on some samples and score others (:meth:`took_part` tells
        them apart), or use :func:`brainweave.between_subject_classification`.
        """
        check_is_fitted(self, "maps_")
        arrays, numbers = self._pair(X, subjects)
        names = [f"X[{k}] ({self._name_of(i)})" for k, i in enumerate(numbers)]
        maps = [self.maps_[i] for i in numbers]
        jobs = self._jobs(arrays)
        return map_subjects(_transform_one, maps, arrays, names, n_jobs=jobs)

    def fit_transform(self, X: Any, y: Any = None) -> list[Any]:
        """Fit, and return the shared features of the aligning samples.

        These features must not be scored: even those of pure noise are classified
        almost perfectly. See :meth:`transform`.

        Parameters
        ----------
        X, y : list of array-like
            As in ``fit``.

        Returns
        -------
        list of arrays of shape (n_samples_i, n_components)
            One per subject, in the order of X.
        """
        self.fit(X, y)
        return [self._features(i) for i in range(self.n_subjects_)]

    def _features(self, i: int) -> NDArray[Any]:
        return self.maps_[i].aligning_features()

    def inverse_transform(self, shared: Any, subjects: Who = None) -> list[Any]:
        """Return the voxel patterns of subjects for shared features (linear kernel).

        Parameters
        ----------
        shared : list of arrays of shape (n_samples_i, n_components), or a Study
            Shared features, one array per subject.
        subjects : sequence of int or str, optional
            As in :meth:`transform`.

        Returns
        -------
        list of arrays of shape (n_samples_i, n_voxels_i)
            In the units of the data that were fitted, mean restored.
        """
        check_is_fitted(self, "maps_")
        found: list[Any] = []
        for entry, i in zip(*self._pair(shared, subjects), strict=True):
            features = samples_of(entry)
            check_numbers(features, f"shared[{len(found)}]")
            found.append(self.maps_[i].inverse_transform(features))
        return found

    def predict_subject(
        self, target: int | str, X: Any, subjects: Who = None
    ) -> NDArray[Any]:
        """Predict the voxels of one subject from other subjects' samples.

        The samples must be the same stimuli in the same order; their shared features
        are averaged and mapped back, mean restored.

        Parameters
        ----------
        target : int or str
            The fitted subject whose voxels are wanted, by position or id.
        X : list of arrays of shape (n_samples, n_voxels_i), or a Study
            Samples of other fitted subjects. A Study is matched by ids, as in
            :meth:`transform`; if the target is in it, its samples are not used.
        subjects : sequence of int or str, optional
            Which subjects the arrays are; by default all but the target, in order.

        Returns
        -------
        ndarray of shape (n_samples, n_voxels of the target)
            In the units of the target's data.
        """
        check_is_fitted(self, "maps_")
        ids, owner = self._ids(), self._owner
        (wanted,) = find_subjects([target], ids, self.n_subjects_, owner=owner)
        entries = check_list_of_subjects(X, owner=owner, minimum=1)
        if subjects is None and ids and ids_of(entries, owner=owner):
            entries = [s for s in entries if s.id != ids[wanted]]
        elif subjects is None:
            others = [i for i in range(self.n_subjects_) if i != wanted]
            subjects = others if ids is None else [ids[i] for i in others]
        features = [to_numpy(s) for s in self.transform(entries, subjects)]
        counts = [len(f) for f in features]
        if len(set(counts)) > 1:
            raise InputError(
                f"predict_subject needs the same stimuli for all subjects; got "
                f"{counts} samples. Average per stimulus first, or pass one subject."
            )
        return self.maps_[wanted].inverse_transform(np.mean(features, axis=0))

    def _pair(self, X: Any, subjects: Any) -> tuple[list[Any], list[int]]:
        """Return the entries of X and the positions of their subjects."""
        arrays = check_list_of_subjects(X, owner=self._owner, minimum=1)
        n, ids = self.n_subjects_, self._ids()
        return arrays, match_subjects(arrays, subjects, ids, n, owner=self._owner)

    def _ids(self) -> list[str] | None:
        """Return the ids, if there is one for every map."""
        ids = getattr(self, "ids_", None)
        return ids if ids is not None and len(ids) == self.n_subjects_ else None

    def _name_of(self, i: int) -> str:
        ids = self._ids()
        return f"subject {i}" if ids is None else f"subject {ids[i]!r}"

    def __getstate__(self) -> dict[str, Any]:
        """Pickle what mapping needs; the aligning data of linear maps stay behind."""
        state: dict[str, Any] = super().__getstate__()
        if "_check" in state:  # its features are data, too
            state = {**state, "_check": replace(state["_check"], features=None)}
        if all(b.kernel.name == "linear" for b in state.get("bases_", [])):
            state = {k: v for k, v in state.items() if k != "bases_"}
        return state

    def took_part(self, X: Any, subjects: Who = None) -> list[NDArray[np.bool_]]:
        """Return which samples took part in the fit, through their labels or ids.

        Whatever is computed from their features is circular. Samples are known again
        by their content: one that was averaged, cleaned or standardised since counts
        as another.

        Parameters
        ----------
        X, subjects : various
            As in ``transform``.

        Returns
        -------
        list of ndarray of bool of shape (n_samples_i,)
            In the order of X; all False for ``NoAlignment``.
        """
        check_is_fitted(self, "maps_")
        return [
            self._took_part(samples_of(entry), i)
            for entry, i in zip(*self._pair(X, subjects), strict=True)
        ]

    def _took_part(self, samples: Any, i: int) -> NDArray[np.bool_]:
        """Return which samples of the subject at a position took part in the fit."""
        if not self._joins_samples:
            return np.zeros(len(samples), dtype=bool)
        return self.maps_[i].took_part(samples, name=self._name_of(i))


def _read_basis(
    given: Any,
    labels: Any,
    settings: tuple[Kernel, float],
    name: str,
    runs: Any = None,
    *,
    standardize: bool | str,
    device: Any,
    eigenbasis: bool,
    owner: str,
) -> SubjectBasis:
    """Make the basis of a subject, or adapt a given one to these settings."""
    kernel, energy = settings
    if isinstance(given, SubjectBasis):
        if given.standardize != standardize:
            raise InputError(
                f"{name} is a basis with standardize={given.standardize}; "
                f"this {owner} has standardize={standardize}."
            )
        basis = given.with_kernel(kernel).cut(energy)
    else:
        own = getattr(given, "labels", None)
        own = labels if own is None else own
        weigh = standardize == "reliability" and own is not None
        basis = SubjectBasis(
            samples_of(given),
            kernel=kernel,
            energy=energy,
            standardize=standardize,
            groups=encode_labels([own])[0][0] if weigh else None,
            runs=runs,
            name=name,
            device=device,
        )
        basis.id = str(getattr(given, "id", ""))
        basis.space = getattr(given, "space", None)
    if eigenbasis or basis.energy < 1:
        _ = basis.n_kept  # the eigenbasis belongs to this stage
    return basis


def seeded_copy(estimator: Any, random_state: int | None) -> Any:
    """Copy an estimator; what has no random_state of its own gets this one."""
    copy = clone(estimator)
    free = {
        name: random_state
        for name, value in copy.get_params(deep=True).items()
        if name.split("__")[-1] == "random_state" and value is None
    }
    return copy.set_params(**free)


def _transform_one(fitted: Any, samples: Any, name: str) -> Any:
    return fitted.transform(samples_of(samples), name=name)
