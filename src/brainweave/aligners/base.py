"""What all aligners share: reading subjects, fitting, mapping, joining, scoring."""

import logging
from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from inspect import signature
from itertools import compress
from typing import Any, ClassVar, NamedTuple, Self

import numpy as np
from numpy.typing import NDArray
from sklearn.base import BaseEstimator, clone
from sklearn.utils.validation import check_is_fitted

from brainweave._core.arrays import Matrix, on_gpu, samples_of, to_numpy
from brainweave._core.exceptions import InputError, KernelWarning, warn_user
from brainweave._core.labels import as_label_list, check_labels_overlap, encode_labels
from brainweave._core.stored import Stored
from brainweave._core.subjects import find_subjects, match_subjects
from brainweave._core.validation import (
    check_fraction,
    check_list_of_subjects,
    check_numbers,
    ids_of,
    labels_per_subject,
    one_per_subject,
)
from brainweave._core.workers import map_subjects
from brainweave.aligners.maps import BasisMap, SubjectMap
from brainweave.basis.basis import SubjectBasis
from brainweave.basis.kernels import Kernel, check_kernel
from brainweave.basis.linalg import mean_pairwise_correlation
from brainweave.basis.reliability import warn_of_no_reliability
from brainweave.basis.voxels import warn_of_constant_voxels

logger = logging.getLogger(__name__)

LOST_SHARE_WARNING = 0.05  # a kernel that loses more than this is worth a warning

Labelled = tuple[list[NDArray[Any]], list[list[Any]]]  # features and labels by subject


class Stacked(NamedTuple):
    """Shared features of several subjects in one table.

    Attributes
    ----------
    features : ndarray of shape (n_samples, n_components)
        The samples of all subjects, one below the other.
    groups : ndarray of shape (n_samples,)
        Whose each sample is; for ``LeaveOneGroupOut``.
    aligned : ndarray of bool of shape (n_samples,)
        Which samples took part in the fit: scoring these would be circular.
    """

    features: NDArray[Any]
    groups: NDArray[Any]
    aligned: NDArray[np.bool_]


class BaseAligner(BaseEstimator, Stored):
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
    _is_piece = False  # fitted to a part of the brain, by another aligner
    _warns_of_input = True  # set to False by those who fit many and have warned once
    _runs: list[Any] | None = None  # of samples given as arrays: pieces of subjects
    study_fingerprint: str | None = None  # of the study it was fitted on, if recorded

    @property
    def _owner(self) -> str:
        return type(self).__name__

    # -- what a subclass implements ----------------------------------------------------

    @abstractmethod
    def _solve(self, bases: list[SubjectBasis], y: list[Any] | None) -> list[Matrix]:
        """Return a coefficient matrix (n_kept_i, K) per subject; set learned values.

        Or a mixing of samples, depending on :attr:`_solution_name`.
        """

    @abstractmethod
    def _solve_new(self, basis: SubjectBasis, y: Any) -> Matrix:
        """Return the coefficient matrix of a new subject."""

    def _joined_by(self, y: Any = None) -> set[str]:
        """Return what ties samples of different subjects, if y is known of them.

        "labels" (equal ones), "rows" (their number), anything else, or nothing.
        """
        return {"graph"}

    def _check_subjects(self, subjects: list[Any], y: list[Any] | None) -> None:
        """Refuse, before any voxel is read, what this method cannot align."""

    def _y_of(self, subject: Any) -> Any:
        """Return what is to be known of the samples of a subject that knows them."""
        return subject.labels

    def _labels_from(self, y: list[Any]) -> list[Any]:
        """Return the labels in y, which may hold more than these."""
        return y

    # -- fitting -----------------------------------------------------------------------

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
        self.__dict__.pop("_check", None)  # of another fit
        subjects = check_list_of_subjects(X, owner=self._owner)
        y = self._find_y(subjects, y)
        self._check_subjects(subjects, y)
        self.ids_ = ids_of(subjects, owner=self._owner)
        self._check_labels(y)
        self._aligning_y = None if y is None else self._labels_from(y)
        self._fit(subjects, y)
        return self

    def _fit(self, subjects: list[Any], y: list[Any] | None) -> None:
        """Learn the maps of subjects that were checked."""
        bases = self._read_bases(subjects, y)
        solution = self._solve(bases, y)
        self._set_solution(
            bases, solution, [getattr(s, "space", None) for s in subjects]
        )

    @property
    def _joins_samples(self) -> bool:
        """Whether scoring the aligning samples would be circular."""
        return bool(self._joined_by())

    def _find_y(self, subjects: list[Any], y: Any) -> list[Any] | None:
        """Take y as given, or from subjects that know their labels."""
        return labels_per_subject(subjects, y, self._y_of, owner=self._owner)

    def _check_labels(self, y: list[Any] | None) -> None:
        """Refuse labels that do not meet, or warn of them, if they join samples."""
        joined_by = self._joined_by(y)
        if y is None or "labels" not in joined_by:
            return
        names = [f"X[{i}]" for i in range(len(y))]
        check_labels_overlap(
            self._labels_from(y),
            names if self.ids_ is None else [repr(id) for id in self.ids_],
            refuse=joined_by == {"labels"},
            warn=self._warns_of_input,
        )

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
            *(subjects, labels, self.basis_settings(n), names, runs),
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
        sound = ("linear", "gaussian", "quadratic")
        lost = [0.0 if b.kernel.name in sound else b.lost_share for b in bases]
        worst, many = int(np.argmax(lost)), sum(s > LOST_SHARE_WARNING for s in lost)
        if many:
            warn_user(
                f"The {bases[worst].kernel.name} kernel is not positive semi-definite: "
                f"X[{worst}] loses {lost[worst]:.0%} of its energy, {many} of {n} "
                f"subjects more than {LOST_SHARE_WARNING:.0%}. A larger hp loses less.",
                KernelWarning,
            )
        by_reliability = getattr(self, "standardize", None) == "reliability"
        if by_reliability and self._warns_of_input:
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

    def basis_settings(self, n_subjects: int | None) -> list[tuple[Kernel, float]]:
        """Return the kernel and energy of each subject.

        Parameters
        ----------
        n_subjects : int or None
            How many; None for a new subject, which gets the first of settings that
            are given per subject.
        """
        owner, energy = self._owner, getattr(self, "energy", None)
        values = {
            "kernel": getattr(self, "kernel", "linear"),
            "kernel_params": getattr(self, "kernel_params", None),
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

    def _reader(self) -> Any:
        """Return what makes the basis of a subject, as this aligner wants it."""
        standardize = getattr(self, "standardize", True)
        if not isinstance(standardize, (bool, np.bool_)) and (
            standardize != "reliability"
        ):
            raise TypeError(
                f"standardize of {self._owner} must be True, False or 'reliability', "
                f"got {standardize!r}."
            )
        return partial(
            _read_basis,
            standardize=standardize,
            device=getattr(self, "device", None),
            eigenbasis=self._needs_eigenbasis,
            owner=self._owner,
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
        kind = "mixing" if self._solution_name == "mixing_" else "coef"
        solution: Any = {kind: coef, "isometric": self._isometric, "space": space}
        return BasisMap(basis, **solution)

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

    def _new_subject(self, X: Any, y: Any) -> tuple[SubjectBasis, Any]:
        """Check a new subject and make its basis with the settings of the fit."""
        check_is_fitted(self, "maps_")
        if y is None and hasattr(X, "labels"):
            y = self._y_of(X)
        labels = None if y is None else self._labels_from([y])[0]
        (settings,) = self.basis_settings(None)
        basis = self._reader()(X, labels, settings, "the new subject")
        if not self._is_piece:
            warn_of_constant_voxels([basis])
        if y is not None and len(y) != basis.n_samples:
            raise InputError(
                f"y has {len(y)} labels for {basis.n_samples} samples of {basis.name}."
            )
        return basis, y

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
        almost perfectly, where chance is 1 in 7::

            X = [rng.normal(size=(70, 200)) for _ in range(6)]  # nothing but noise
            y = [np.arange(70) % 7] * 6
            shared = GDM(6).fit(X, y).transform(X)
            # a classifier trained on five subjects is right on the sixth: circular

        Fit on some samples, transform and score others (:meth:`took_part` tells them
        apart), or leave it to :func:`brainweave.between_subject_classification`.
        """
        check_is_fitted(self, "maps_")
        arrays, numbers = self._pair(X, subjects)
        names = [f"X[{k}] ({self._name_of(i)})" for k, i in enumerate(numbers)]
        maps = [self.maps_[i] for i in numbers]
        found = map_subjects(
            _transform_one, maps, arrays, names, n_jobs=self._jobs(arrays)
        )
        return self._output(found)

    def fit_transform(self, X: Any, y: Any = None) -> list[Any]:
        """Fit, and return the shared features of the aligning samples.

        These features must not be scored: their labels made them, and even those of
        pure noise are classified almost perfectly. See :meth:`transform`.

        Parameters
        ----------
        X, y
            As in ``fit``.

        Returns
        -------
        list of arrays of shape (n_samples_i, n_components)
            One per subject.
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

        Returns
        -------
        list of arrays of shape (n_samples_i, n_voxels_i)
            In the units of the data that were fitted, mean restored.
        """
        check_is_fitted(self, "maps_")
        arrays, numbers = self._pair(shared, subjects)
        features = [samples_of(S) for S in arrays]
        for k, S in enumerate(features):
            check_numbers(S, f"shared[{k}]")
        return [
            self.maps_[i].inverse_transform(S)
            for S, i in zip(features, numbers, strict=True)
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
        return arrays, match_subjects(arrays, subjects, ids, n, owner=self._owner)

    def _ids(self) -> list[str] | None:
        """Return the ids, if there is one for every map."""
        ids = getattr(self, "ids_", None)
        return ids if ids is not None and len(ids) == self.n_subjects_ else None

    def _name_of(self, i: int) -> str:
        ids = self._ids()
        return f"subject {i}" if ids is None else f"subject {ids[i]!r}"

    # -- scikit-learn habits -----------------------------------------------------------

    def get_feature_names_out(self, input_features: Any = None) -> NDArray[Any]:
        """Name the shared features: gdm0, gdm1, ...

        Parameters
        ----------
        input_features : None
            Not used; scikit-learn passes it.
        """
        check_is_fitted(self, "maps_")
        stem = self._owner.lower()
        return np.array([f"{stem}{k}" for k in range(self.n_components_)], dtype=object)

    def set_output(self, *, transform: str | None = None) -> Self:
        """Choose what ``transform`` and ``fit_transform`` give.

        Parameters
        ----------
        transform : {"default", "pandas"}, optional
            Arrays, or data frames; None leaves it as it is.
        """
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
        linear = all(b.kernel.name == "linear" for b in state.get("bases_", []))
        if "_check" in state:  # its features are data, too
            state = {**state, "_check": replace(state["_check"], features=None)}
        return {
            k: v
            for k, v in state.items()
            if not (k.startswith("_aligning_") or (linear and k == "bases_"))
        }

    def stack(self, X: Any, subjects: Sequence[int | str] | None = None) -> Stacked:
        """Return the shared features of several subjects as one table, with subjects.

        What scikit-learn takes from here: ``features`` for a scaler or a classifier,
        ``groups`` for ``LeaveOneGroupOut``, and ``np.concatenate(y)`` for the labels.
        Score rows that are not ``aligned`` only.

        Parameters
        ----------
        X, subjects
            As in ``transform``.

        Returns
        -------
        Stacked
            A tuple ``(features, groups, aligned)`` with names.
        """
        check_is_fitted(self, "maps_")
        arrays = [to_numpy(a) for a in self.transform(X, subjects)]
        _, numbers = self._pair(X, subjects)
        ids = self._ids()
        names = np.array([i if ids is None else ids[i] for i in numbers])
        return Stacked(
            np.vstack(arrays),
            np.repeat(names, [len(a) for a in arrays]),
            np.concatenate(self.took_part(X, subjects)),
        )

    def took_part(
        self, X: Any, subjects: Sequence[int | str] | None = None
    ) -> list[NDArray[np.bool_]]:
        """Return which samples took part in the fit, through their labels or ids.

        Whatever is computed from the features of these is circular. Samples are known
        again by their content: one that was averaged, cleaned or standardised since
        counts as another.

        Parameters
        ----------
        X, subjects
            As in ``transform``.

        Returns
        -------
        list of ndarray of bool of shape (n_samples_i,)
            In the order of X; all False for ``NoAlignment``, which uses neither labels
            nor ids.
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

    def for_subject(self, subject: int | str) -> Any:
        """Return one subject's map as an ordinary transformer, for a Pipeline.

        Parameters
        ----------
        subject : int or str
            By position or id.

        Returns
        -------
        FunctionTransformer
            Its ``fit`` does nothing; ``transform`` maps samples x voxels.
        """
        from sklearn.preprocessing import FunctionTransformer

        check_is_fitted(self, "maps_")
        ids, n = self._ids(), self.n_subjects_
        (i,) = find_subjects([subject], ids, n, owner=self._owner)
        return FunctionTransformer(self.maps_[i].transform)

    def score(
        self, X: Any, y: Any = None, subjects: Sequence[int | str] | None = None
    ) -> float:
        """Score samples that did not align.

        With labels: accuracy of a linear support vector machine in the shared space.
        Without: mean correlation of the shared features between subjects, row by row.

        Parameters
        ----------
        X : list of arrays of shape (n_samples_i, n_voxels_i), dict, or a Study
            Without `subjects`, bare arrays are taken as new subjects, as in the folds
            of ``GridSearchCV``: each, also one alone, joins the model with the first
            half of its samples of each category. The others are scored against the
            subjects of the fit, whose aligning samples train the classifier. So are
            subjects of a dict or Study that the model does not know. A model read from
            a file has no aligning samples: it scores two new subjects or more against
            each other, in turn.
        y : list of array-like, dict, or one list for all, optional
            Their categories; by default those of the Study.
        subjects : sequence of int or str, optional
            Which fitted subjects these are, two or more. All their samples are scored,
            each subject against the others, and must not have taken part in the fit.

        Returns
        -------
        float
        """
        check_is_fitted(self, "maps_")
        entries = check_list_of_subjects(X, owner=f"score of {self._owner}", minimum=1)
        samples = [np.asarray(to_numpy(samples_of(entry))) for entry in entries]
        y = labels_per_subject(entries, y, owner=self._owner)
        labels = None
        if y is not None:
            labels = [as_label_list(part, f"y[{i}]") for i, part in enumerate(y)]
        ids = ids_of(entries, owner="score") if subjects is None else None
        known = set(ids or ()) & set(getattr(self, "ids_", None) or ())
        new = subjects is None and not known
        numbers = [] if new else self._pair(entries, subjects)[1]
        self._refuse_aligned(samples)
        template = self._aligning_features(labels) if new else None
        if len(samples) < 2 and template is None:
            hint = ", or fit the model in this session." if new else "."
            raise InputError(
                f"score of {self._owner} compares subjects, and got one. Give two or "
                f"more{hint}"
            )
        if new:
            features, labels, rows = self._join_new_subjects(samples, labels)
        else:
            pairs = zip(samples, numbers, strict=True)
            features = [to_numpy(self.maps_[i].transform(x)) for x, i in pairs]
        if labels is not None:
            return _accuracy(features, labels, template)
        if template is not None:
            mean = np.mean(template[0], axis=0)
            found = [
                mean_pairwise_correlation(np.array([own, mean[scored]]))
                for own, scored in zip(features, rows, strict=True)
            ]
            return float(np.mean(found))
        counts = {len(f) for f in features}
        if len(counts) > 1:
            raise InputError(
                f"score without labels compares row by row, but the subjects have "
                f"{sorted(counts)} samples. Pass y, or the same stimuli for all."
            )
        return float(mean_pairwise_correlation(np.array(features)).mean())

    def _refuse_aligned(self, samples: list[Any]) -> None:
        for k, x in enumerate(samples):
            for m in self.maps_:
                if getattr(m, "signatures", None) is None or m.n_voxels != x.shape[1]:
                    continue
                if m.took_part(x).any():
                    raise InputError(
                        f"X[{k}] has samples that took part in the fit: scoring them "
                        "would be circular. Score other samples, or use "
                        "brainweave.between_subject_classification."
                    )

    def _join_new_subjects(
        self, samples: list[Any], labels: list[list[Any]] | None
    ) -> tuple[list[NDArray[Any]], list[list[Any]] | None, list[NDArray[Any]]]:
        """Let new subjects join with half of their samples; return the other half.

        Features, labels, and which samples they are.
        """
        features, scored_labels, rows = [], [], []
        by_row = getattr(self, "joined_by_row_", False)
        takes_rows = "samples" in signature(self.fit_new_subject).parameters
        for k, x in enumerate(samples):
            names = [None] * len(x) if labels is None else labels[k]
            joins = _first_half(names)
            y: Any = None if labels is None else list(compress(names, joins))
            where = np.flatnonzero(joins)
            known: Any = {"samples": where} if takes_rows else {}
            new = self.fit_new_subject(
                x[joins], where if by_row and y is None else y, **known
            )
            features.append(to_numpy(new.transform(x[~joins])))
            scored_labels.append(list(compress(names, ~joins)))
            rows.append(np.flatnonzero(~joins))
        return features, None if labels is None else scored_labels, rows

    def _aligning_features(self, labels: Any) -> Labelled | None:
        """Return the shared features of the aligning samples, and their labels.

        None if the samples are gone, or are not what scored ones can be held against:
        without labels if `labels` are given, else of different numbers.
        """
        samples = self._aligning_samples()
        y = self.__dict__.get("_aligning_y")
        if any(x is None for x in samples) or (y is None and labels is not None):
            return None
        if labels is None and len({len(x) for x in samples}) > 1:
            return None
        pairs = zip(self.maps_, samples, strict=True)
        features = [to_numpy(m.transform(x)) for m, x in pairs]
        listed = [as_label_list(part, f"y[{i}]") for i, part in enumerate(y or [])]
        return features, listed

    def _aligning_samples(self) -> list[Any]:
        """Return the samples that aligned, where they are still there."""
        return [b._data for b in self.__dict__.get("bases_", [])] or [None]


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
        by_reliability = isinstance(standardize, str)
        own, groups = getattr(given, "labels", None), None
        own = labels if own is None else own
        if by_reliability and own is not None:
            groups = encode_labels([own])[0][0]
        basis = SubjectBasis(
            samples_of(given),
            kernel=kernel,
            energy=energy,
            standardize=standardize if by_reliability else bool(standardize),
            groups=groups,
            runs=runs,
            name=name,
            device=device,
        )
        basis.id = str(getattr(given, "id", ""))
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


def _first_half(labels: list[Any]) -> NDArray[np.bool_]:
    """Choose the first half of the samples of each category; None is one, too."""
    chosen = np.zeros(len(labels), dtype=bool)
    for label in dict.fromkeys(labels):
        rows = [i for i, name in enumerate(labels) if name == label]
        chosen[rows[: (len(rows) + 1) // 2]] = True
    if chosen.all():
        raise InputError(
            "score needs two samples of a category at least: one to join, one to score."
        )
    return chosen


def _transform_one(fitted: Any, samples: Any, name: str) -> Any:
    return fitted.transform(samples_of(samples), name=name)


def _accuracy(
    features: list[NDArray[Any]],
    labels: list[list[Any]],
    template: Labelled | None,
) -> float:
    """Return the accuracy of a classifier on subjects it was not trained on.

    It is trained on the template, features and labels; without one, on all subjects but
    the one that is tested.
    """
    from sklearn.model_selection import LeaveOneGroupOut, cross_val_predict
    from sklearn.svm import SVC

    X, y, groups = _labelled(features, labels)
    svm, size = SVC(kernel="linear"), np.sqrt(np.mean(np.square(X))) or 1.0
    if template is None:
        found = cross_val_predict(
            svm, X / size, y, groups=groups, cv=LeaveOneGroupOut()
        )
    else:
        train, known, _ = _labelled(*template)
        size = np.sqrt(np.mean(np.square(train))) or 1.0
        found = svm.fit(train / size, known).predict(X / size)
    return float(np.mean([a == b for a, b in zip(found.tolist(), y, strict=True)]))


def _labelled(
    features: list[NDArray[Any]], labels: list[list[Any]]
) -> tuple[NDArray[Any], list[Any], NDArray[Any]]:
    """Return the labelled samples of all subjects, their labels, and whose they are."""
    joined = [label for names in labels for label in names]
    kept = [label is not None for label in joined]
    groups = np.repeat(np.arange(len(labels)), [len(names) for names in labels])
    return np.concatenate(features)[kept], list(compress(joined, kept)), groups[kept]
