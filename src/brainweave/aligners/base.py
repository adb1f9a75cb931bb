"""What all aligners share: reading subjects, mapping samples, adding subjects."""

import logging
import warnings
from abc import abstractmethod
from collections.abc import Sequence
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray
from sklearn.base import BaseEstimator
from sklearn.utils.validation import check_is_fitted

from brainweave._arrays import map_subjects, to_numpy
from brainweave._subjects import find_subjects, ids_of, labels_of, pair
from brainweave._validation import (
    check_fraction,
    check_int,
    check_known,
    check_list_of_subjects,
    check_numbers,
    one_per_subject,
    refuse_files,
    refuse_other_shapes,
)
from brainweave.aligners.maps import CoordinateMap, SubjectMap
from brainweave.aligners.scored import Scored
from brainweave.basis import SubjectBasis
from brainweave.exceptions import InputError, KernelWarning
from brainweave.kernels import check_kernel
from brainweave.labels import check_labels_meet, encode_labels
from brainweave.reliability import warn_of_no_reliability
from brainweave.voxels import warn_of_constant_voxels

logger = logging.getLogger(__name__)

Matrix = NDArray[np.float64]

LOST_SHARE_WARNING = 0.05  # a kernel that loses more than this is worth a warning


class BaseAligner(Scored, BaseEstimator):
    """Base of the aligners.

    A subclass stores its parameters and implements :meth:`_solve`, which turns bases
    and what is known of the samples into one coefficient matrix per subject; everything
    else is here. Parameters that a subclass may have and that are honoured here:
    ``energy``, ``kernel``, ``kernel_params``, ``standardize``, ``n_jobs``.
    """

    _is_piece = False  # fitted to a part of the brain, by another aligner
    _takes_bases = True  # else it needs the samples, and evaluations hand them over
    _from_grams = True  # all it learns follows from the subjects' Gram matrices
    _joins_samples = True  # through labels, ids or rows; else scoring them is honest
    study_fingerprint: str | None = None  # of the study it was fitted on, if recorded

    ids_: list[str] | None  # of the subjects, in order, if they were given with ids

    _warns_of_input = True  # set to False by those who fit many and have warned once

    @property
    def _needs_eigenbasis(self) -> bool:
        """Whether a fit needs eigenvectors of Gram matrices even if nothing is cut."""
        return True

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
        y = self._known_samples(subjects, y)
        self._check_subjects(subjects, y)
        self.ids_ = ids_of(subjects, owner=self._owner)
        self._check_labels(y)
        bases = self._read_bases(subjects, y)
        solution = self._solve(bases, y)
        self._keep(bases, solution, [getattr(s, "space", None) for s in subjects])
        return self

    def _check_subjects(self, subjects: list[Any], y: list[Any] | None) -> None:
        """Refuse, before any voxel is read, what this method cannot align."""

    def _joins_by_label(self) -> bool:
        """Tell whether equal labels are what ties the samples of different subjects."""
        return False

    def _labels_must_meet(self) -> bool:
        """Tell whether nothing else ties them."""
        return self._joins_by_label()

    def _labels_in(self, y: list[Any]) -> list[Any]:
        """Return the labels in y, which may hold more than these."""
        return y

    def _check_labels(self, y: list[Any] | None) -> None:
        """Refuse labels that do not meet, or warn of them, if they join samples."""
        if y is None or not self._joins_by_label():
            return
        names = [f"X[{i}]" for i in range(len(y))]
        if self.ids_ is not None:
            names = [repr(id) for id in self.ids_]
        check_labels_meet(
            self._labels_in(y),
            names,
            refuse=self._labels_must_meet(),
            warn=self._warns_of_input,
            stacklevel=4,
        )

    @abstractmethod
    def _solve(self, bases: list[SubjectBasis], y: list[Any] | None) -> list[Matrix]:
        """Return a coefficient matrix (n_kept_i, K) per subject; set learned values.

        A class whose ``_make_map`` reads them so may give anything else per subject
        with K columns, such as a mixing of samples.
        """

    @property
    def _owner(self) -> str:
        return type(self).__name__

    def _known_samples(self, subjects: list[Any], y: Any) -> list[Any] | None:
        """Take y as given, or from subjects that know their labels."""
        if y is None and all(hasattr(s, "labels") for s in subjects):
            known = [s.labels for s in subjects]
            y = None if any(k is None for k in known) else known
        if y is None:
            return None
        counts = [
            s.n_samples if hasattr(s, "n_samples") else _n_rows(s, f"X[{i}]")
            for i, s in enumerate(subjects)
        ]
        ids = ids_of(subjects, owner=self._owner)
        y = check_known(y, ids, counts, owner=self._owner)
        if all(hasattr(known, "labels") for known in y):  # a Study
            y = labels_of(y, ids_of(subjects, owner=self._owner), owner=self._owner)
            if y is None:
                return None
        if len(y) != len(subjects):
            raise InputError(f"y has {len(y)} entries for {len(subjects)} subjects.")
        for i, (n, known) in enumerate(zip(counts, y, strict=True)):
            if len(known) != n:
                raise InputError(f"y[{i}] has {len(known)} labels for {n} samples.")
        return y

    def _read_bases(
        self, subjects: list[Any], y: list[Any] | None = None
    ) -> list[SubjectBasis]:
        """Make, or take over, one basis per subject; several subjects at a time."""
        n, owner = len(subjects), self._owner
        params = self.get_params(deep=False)
        kernels = one_per_subject(
            "kernel", params.get("kernel", "linear"), n, owner=owner
        )
        hps = one_per_subject(
            "kernel_params", params.get("kernel_params"), n, owner=owner
        )
        checked = [
            check_kernel(k, p, owner=owner) for k, p in zip(kernels, hps, strict=True)
        ]
        cut = params.get("energy", 1.0)
        energies = one_per_subject(
            "energy", 1.0 if cut is None else cut, n, owner=owner
        )
        energies = [check_fraction("energy", e, owner=owner) for e in energies]
        standardize = params.get("standardize", True)
        reliability = isinstance(standardize, str) and standardize == "reliability"
        if not reliability and not isinstance(standardize, (bool, np.bool_)):
            raise TypeError(
                f"standardize of {owner} must be True, False or 'reliability', got "
                f"{standardize!r}."
            )
        labels: list[Any] = [None] * n if y is None else self._labels_in(y)

        # other processes are sent what the function refers to: not the whole aligner
        needs_eigenbasis, device = self._needs_eigenbasis, params.get("device")

        def read(i: int, given: Any) -> SubjectBasis:
            if isinstance(given, SubjectBasis):
                basis = given.with_kernel(checked[i]).cut(energies[i])
                if basis.standardize != standardize:
                    raise InputError(
                        f"X[{i}] is a basis with standardize={basis.standardize}; "
                        f"{owner} has standardize={standardize}."
                    )
            else:
                basis = SubjectBasis(
                    _samples_of(given),
                    kernel=checked[i],
                    energy=energies[i],
                    standardize="reliability" if reliability else bool(standardize),
                    groups=_groups_of(given, labels[i]) if reliability else None,
                    name=f"X[{i}]",
                    device=device,
                )
                basis.id = str(getattr(given, "id", ""))
            if needs_eigenbasis or energies[i] < 1:
                _ = basis.n_kept  # the eigenbasis belongs to this stage
            return basis

        bases = map_subjects(read, range(n), subjects, n_jobs=params.get("n_jobs"))
        for basis in bases:
            if basis.constant_voxels.size:
                logger.info(
                    "%s: %d of %d voxels are constant and were left out",
                    basis.id or basis.name,
                    basis.constant_voxels.size,
                    basis.n_voxels,
                )
        self._warn_of_lost_energy(bases)
        if reliability and self._warns_of_input:
            warn_of_no_reliability(bases, stacklevel=3)
        if not self._is_piece:
            warn_of_constant_voxels(bases, stacklevel=3)
        return bases

    def _warn_of_lost_energy(self, bases: list[SubjectBasis]) -> None:
        lost = {
            i: b.lost_share
            for i, b in enumerate(bases)
            if b.kernel.name not in ("linear", "gaussian", "quadratic")
            and b.lost_share > LOST_SHARE_WARNING
        }
        if lost:
            worst = max(lost, key=lambda i: lost[i])
            warnings.warn(
                f"The {bases[worst].kernel.name} kernel is not positive semi-definite: "
                f"X[{worst}] loses {lost[worst]:.0%} of its energy, {len(lost)} of "
                f"{len(bases)} subjects more than {LOST_SHARE_WARNING:.0%}. A larger "
                "hp loses less.",
                KernelWarning,
                stacklevel=4,
            )

    def _keep(
        self, bases: list[SubjectBasis], solution: list[Matrix], spaces: list[Any]
    ) -> None:
        self.bases_ = bases
        self._keep_solution(solution)
        self.maps_ = [
            self._make_map(b, c, space=s)
            for b, c, s in zip(bases, solution, spaces, strict=True)
        ]
        self.n_subjects_ = len(bases)
        self.n_components_ = self.maps_[0].n_components

    def _keep_solution(self, solution: list[Matrix]) -> None:
        self.coef_ = solution

    def _make_map(
        self, basis: SubjectBasis, coef: Matrix, *, space: Any = None
    ) -> SubjectMap:
        return CoordinateMap(basis, coef, space=space)

    # -- using ------------------------------------------------------------------------

    def transform(
        self, X: Any, subjects: Sequence[int | str] | None = None
    ) -> list[Any]:
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
        made them similar would be "found" in them. Even pure noise is then classified
        almost perfectly, here at 99 % where chance is 14 %::

            X = [rng.normal(size=(70, 200)) for _ in range(6)]  # nothing but noise
            y = [np.arange(70) % 7] * 6
            shared = GDM(6).fit(X, y).transform(X)
            # a classifier trained on five subjects is right on the sixth: circular

        Fit on some samples, transform and score others, or leave it to
        :func:`brainweave.between_subject_classification`.
        """
        check_is_fitted(self, "maps_")
        arrays, who = self._pair(X, subjects)
        n_jobs = self.get_params(deep=False).get("n_jobs")

        def one(k: int) -> Any:
            name = f"X[{k}] ({self._name_of(who[k])})"
            return self.maps_[who[k]].transform(_samples_of(arrays[k]), name=name)

        return self._output(map_subjects(one, range(len(who)), n_jobs=n_jobs))

    def fit_transform(self, X: Any, y: Any = None) -> list[Any]:
        """Fit, and return the shared features of the aligning samples.

        These features must not be scored: their labels made them. See the warning in
        :meth:`transform`, where pure noise is classified at 99 %.
        """
        self.fit(X, y)
        return self._output([self._features(i) for i in range(self.n_subjects_)])

    def _features(self, i: int) -> NDArray[Any]:
        return self.maps_[i].aligning_features()

    def inverse_transform(
        self, shared: Any, subjects: Sequence[int | str] | None = None
    ) -> list[NDArray[Any]]:
        """Return the voxel patterns of subjects for shared features (linear kernel).

        Parameters
        ----------
        shared : list of arrays of shape (n_samples_i, n_components), or a Study
            Shared features, one array per subject; subjects of a Study are matched by
            their ids, as in :meth:`transform`.
        subjects : sequence of int or str, optional
            Which fitted subject each array belongs to, by position or id; by default
            all, in order.
        """
        check_is_fitted(self, "maps_")
        arrays, who = self._pair(shared, subjects)
        features = [_samples_of(S) for S in arrays]
        for k, S in enumerate(features):
            check_numbers(S, f"shared[{k}]")
        return [
            self.maps_[i].inverse_transform(S)
            for S, i in zip(features, who, strict=True)
        ]

    def predict_subject(
        self, target: int | str, X: Any, subjects: Sequence[int | str] | None = None
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
        """
        check_is_fitted(self, "maps_")
        (wanted,) = self._indices([target])
        entries = check_list_of_subjects(X, owner=self._owner, minimum=1)
        ids = self._ids()
        if subjects is None and ids and ids_of(entries, owner=self._owner):
            entries = [s for s in entries if s.id != ids[wanted]]
        elif subjects is None:
            others = [i for i in range(self.n_subjects_) if i != wanted]
            subjects = others if ids is None else [ids[i] for i in others]
        features = [to_numpy(s) for s in self.transform(entries, subjects)]
        counts = {len(f) for f in features}
        if len(counts) > 1:
            raise InputError(
                f"predict_subject needs the same stimuli for all subjects; got "
                f"{[len(f) for f in features]} samples. Average per stimulus first, or "
                "pass one subject."
            )
        return self.maps_[wanted].inverse_transform(np.mean(features, axis=0))

    def _pair(self, X: Any, subjects: Any) -> tuple[list[Any], list[int]]:
        arrays = check_list_of_subjects(X, owner=self._owner, minimum=1)
        n, ids = self.n_subjects_, self._ids()
        return arrays, pair(arrays, subjects, ids, n, owner=self._owner)

    def _indices(self, subjects: Any) -> list[int]:
        n, ids = self.n_subjects_, self._ids()
        return find_subjects(subjects, ids, n, owner=self._owner)

    def _ids(self) -> list[str] | None:
        """Return the ids, if there is one for every map; old model files lack them."""
        ids = getattr(self, "ids_", None)
        return ids if ids is not None and len(ids) == self.n_subjects_ else None

    def _name_of(self, i: int) -> str:
        ids = self._ids()
        return f"subject {i}" if ids is None else f"subject {ids[i]!r}"

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
        y = getattr(X, "labels", None) if y is None else y
        params = self.get_params(deep=False)
        chosen = {}
        for name, default in (
            ("kernel", "linear"),
            ("kernel_params", None),
            ("energy", 1),
        ):
            value = params.get(name, default)
            # settings per subject say nothing of a new one: the first serves
            chosen[name] = value[0] if isinstance(value, (list, tuple)) else value
        if chosen["energy"] is None:
            chosen["energy"] = 1
        if isinstance(X, SubjectBasis):
            standardize = params.get("standardize", True)
            if X.standardize != standardize:
                raise InputError(
                    f"The new subject is a basis with standardize={X.standardize}; "
                    f"this {self._owner} has standardize={standardize}."
                )
            kernel = X.with_kernel(chosen["kernel"], chosen["kernel_params"])
            basis = kernel.cut(chosen["energy"])
        else:
            basis = SubjectBasis(
                _samples_of(X),
                standardize=params.get("standardize", True),
                groups=_groups_of(X, None if y is None else self._labels_in([y])[0]),
                name="the new subject",
                device=params.get("device"),
                **chosen,
            )
        if not self._is_piece:
            warn_of_constant_voxels([basis], stacklevel=3)
        if y is not None and len(y) != basis.n_samples:
            raise InputError(
                f"y has {len(y)} labels for {basis.n_samples} samples of {basis.name}."
            )
        return basis, y

    # -- scikit-learn habits -----------------------------------------------------------

    def get_feature_names_out(self, input_features: Any = None) -> NDArray[Any]:
        """Name the shared features: gdm0, gdm1, ..."""
        check_is_fitted(self, "maps_")
        stem = self._owner.lower()
        return np.array([f"{stem}{k}" for k in range(self.n_components_)], dtype=object)

    def set_output(self, *, transform: str | None = None) -> Self:
        """Choose what transform gives: "default" (arrays) or "pandas" (data frames)."""
        if transform not in (None, "default", "pandas"):
            raise InputError(
                f"set_output takes 'default' or 'pandas'; got {transform!r}."
            )
        if transform is not None:
            self._output_kind = transform
        return self

    def _output(self, arrays: list[Any]) -> list[Any]:
        if getattr(self, "_output_kind", "default") == "default":
            return arrays
        import pandas as pd

        names = self.get_feature_names_out()
        return [pd.DataFrame(to_numpy(a), columns=names) for a in arrays]

    def __getstate__(self) -> dict[str, Any]:
        """Pickle what mapping needs; the aligning data of linear maps stay behind."""
        state: dict[str, Any] = super().__getstate__()
        if "bases_" in state and all(
            b.kernel.name == "linear" for b in state["bases_"]
        ):
            state = {k: v for k, v in state.items() if k != "bases_"}
        return state

    def _n_components(self) -> int:
        params = self.get_params(deep=False)
        return check_int(
            "n_components", params["n_components"], minimum=1, owner=self._owner
        )


def _samples_of(subject: Any) -> Any:
    """Return the samples of a Subject, which knows its labels, or the array itself."""
    return subject.data() if hasattr(subject, "labels") else subject


def _groups_of(subject: Any, known: Any) -> NDArray[np.intp] | None:
    """Return the groups by which voxels are reliable: the labels, if there are any."""
    labels = getattr(subject, "labels", None)
    labels = known if labels is None else labels
    return None if labels is None else encode_labels([labels])[0][0]


def _n_rows(X: Any, name: str) -> int:
    refuse_files(X, name)
    if not getattr(X, "shape", None):
        raise TypeError(
            f"{name} must be a 2-D array (samples x voxels), got {type(X).__name__}."
        )
    refuse_other_shapes(X, name)
    return int(X.shape[0])
