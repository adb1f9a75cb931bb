"""The paper's GDM with its settings chosen inside the aligning samples alone."""

import warnings
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.model_selection import ParameterGrid
from sklearn.utils.validation import check_is_fitted

from brainweave._core.exceptions import BrainweaveError, InputError
from brainweave._core.validation import check_option
from brainweave.aligners.base import BaseAligner
from brainweave.aligners.gdm.paper import PaperGDM
from brainweave.aligners.maps import SubjectMap
from brainweave.basis.basis import SubjectBasis
from brainweave.evaluation.evaluate import PROTOCOLS, between_subject_classification
from brainweave.evaluation.splits import (
    SplitStudy,
    half_masks,
    refuse_aligned,
    split_in_halves,
)
from brainweave.study.study import Study, Subject

DEFAULT_ENERGIES = (0.2, 0.35, 0.5, 0.65, 0.82, 1.0)


class GDMCV(BaseAligner):
    """The paper's GDM; chooses energy, kernel and number of components by scores.

    The aligning samples are split into two halves by category, and every setting is
    scored on them by :func:`between_subject_classification`. :class:`PaperGDM` with the
    best setting is then fitted on all aligning samples. Other samples and their labels
    are never used, so a score on them remains honest.

    Parameters
    ----------
    energies : sequence of float, default=(0.2, 0.35, 0.5, 0.65, 0.82, 1.0)
        Shares of the singular values to try.
    n_components : int, "auto", or a sequence of them, default="auto"
        Numbers of shared features to try.
    kernels : sequence, default=("linear",)
        Kernels to try: a name, a pair ``(name, hp)``, or a callable.
    leave_out : int, default=1
        Number of subjects left out at a time in the inner loop.
    protocol : {"held-out", "joint"}, default="held-out"
        How the inner loop aligns; see :func:`between_subject_classification`. If no
        setting can be scored "held-out", as for two subjects, the inner loop is joint.
    classifier : scikit-learn classifier, optional
        Default: a linear nu-SVM.
    standardize : bool or "reliability", default=True
        As in :class:`brainweave.PaperGDM`.
    n_jobs : int, optional
        Subjects and folds worked on at the same time; default one per core.

    Attributes
    ----------
    best_params_ : dict
        The parameters of PaperGDM that were chosen.
    best_score_ : float
        Their mean accuracy in the inner loop.
    best_estimator_ : PaperGDM
        Fitted with them on all aligning samples.
    cv_results_ : dict of str to list
        For each setting: ``params``, ``mean_test_score``, ``fold_scores`` and ``error``
        (why it could not be scored, else ""). Of equal scores the first in the order
        given is chosen.
    maps_, coef_, bases_, n_components_, n_subjects_
        As in :class:`brainweave.PaperGDM`.

    Notes
    -----
    The voxels are read equally often, however many settings are tried.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> patterns, y = rng.normal(size=(3, 5)), [[0, 1, 2] * 8] * 3
    >>> X = [patterns[l] @ rng.normal(size=(5, 40)) for l in y]
    >>> X = [x + 0.1 * rng.normal(size=x.shape) for x in X]
    >>> model = GDMCV(energies=(0.3, 0.6)).fit(X, y)
    >>> model.best_score_
    1.0
    """

    _needs_eigenbasis = False  # only that of the chosen kernel is needed

    def __init__(
        self,
        *,
        energies: Sequence[float] = DEFAULT_ENERGIES,
        n_components: Any = "auto",
        kernels: Sequence[Any] = ("linear",),
        leave_out: int = 1,
        protocol: str = "held-out",
        classifier: Any = None,
        standardize: bool | str = True,
        n_jobs: int | None = None,
    ) -> None:
        self.energies = energies
        self.n_components = n_components
        self.kernels = kernels
        self.leave_out = leave_out
        self.protocol = protocol
        self.classifier = classifier
        self.standardize = standardize
        self.n_jobs = n_jobs

    def _joined_by(self, y: Any = None) -> set[str]:
        return {"labels"}

    def _check_subjects(self, subjects: list[Any], y: list[Any] | None) -> None:
        check_option("protocol", self.protocol, PROTOCOLS, owner=self._owner)
        refuse_aligned([s for s in subjects if isinstance(s, Subject)])
        if y is None:
            raise InputError(
                "GDMCV chooses its settings by classifying samples, so it needs their "
                "categories: fit(X, y). Without categories use GDM(graph='time')."
            )

    def _fit(self, subjects: list[Any], y: Any) -> None:
        listed = {
            "energy": self.energies,
            "kernel": self.kernels,
            "n_components": np.ravel(np.array(self.n_components, object)).tolist(),
        }
        for name, own in listed.items():
            if hasattr(own, "__len__") and not len(own):
                raise InputError(f"GDMCV has no candidates for {name}; it needs one.")
        settings = list(ParameterGrid(listed))  # refuses what is no list
        for params in settings:
            kernel = params["kernel"]
            named, hp = kernel if isinstance(kernel, tuple) else (kernel, None)
            hp = None if hp is None else {"hp": hp}
            params |= {"kernel": named, "kernel_params": hp}
            self._model(params)._basis_settings(None)  # refuses what cannot be
        bases = self._read_bases(subjects, y)
        if any(basis._data is None for basis in bases):
            raise InputError(
                "A basis without its samples cannot be divided into halves that are "
                "scored. Pass X to GDMCV."
            )
        study = Study(
            Subject(str(i), basis._data, labels=known, runs=basis.runs)
            for i, (basis, known) in enumerate(zip(bases, y, strict=True))
        )
        # of the samples, not of Gram matrices: voxels get the scale of their half
        split = SplitStudy(split_in_halves(study, half_masks(study, "category")))
        # too few subjects or samples may be left for anyone to join
        for protocol in dict.fromkeys((self.protocol, "joint")):
            tried = [self._score(split, params, protocol) for params in settings]
            folds, failed = map(list, zip(*tried, strict=True))
            if not all(failed):
                break
        else:
            raise InputError(
                f"None of the {len(settings)} settings of GDMCV could be scored; the "
                f"first failed with: {failed[0]}"
            )
        means = [float(f.mean()) if f.size else np.nan for f in folds]
        self.cv_results_ = {
            "params": settings,
            "mean_test_score": means,
            "fold_scores": folds,
            "error": failed,
        }
        chosen = int(np.nanargmax(means))
        self.best_params_, self.best_score_ = settings[chosen], means[chosen]
        best = self._model(self.best_params_)
        best._warns_of_input = False  # warned when the samples were read
        self.best_estimator_ = best.fit(bases, y)
        for fitted, subject in zip(best.maps_, subjects, strict=True):
            fitted.space = getattr(subject, "space", None)
        for name in ("maps_", "coef_", "bases_", "n_components_", "n_subjects_"):
            setattr(self, name, getattr(best, name))

    def _solve(self, bases: list[SubjectBasis], y: Any) -> list[NDArray[Any]]:
        raise NotImplementedError("GDMCV fits through its best_estimator_.")

    def _solve_new(self, basis: SubjectBasis, y: Any) -> NDArray[Any]:
        return self.best_estimator_._solve_new(basis, y)

    def _for_rows(self, rows: Any, y: Any) -> tuple[BaseAligner, Any]:
        return self.best_estimator_._for_rows(rows, y)

    def fit_new_subject(self, X: Any, y: Any = None) -> SubjectMap:
        """Learn the map of a new subject, as :class:`brainweave.PaperGDM` does."""
        check_is_fitted(self, "best_estimator_")
        return self.best_estimator_.fit_new_subject(X, y)

    def _model(self, params: dict[str, Any]) -> PaperGDM:
        return PaperGDM(**params, standardize=self.standardize, n_jobs=self.n_jobs)

    def _score(
        self, split: SplitStudy, params: dict[str, Any], protocol: str
    ) -> tuple[NDArray[Any], str]:
        """Return the scores of one setting, and why it cannot be scored."""
        model = self._model(params)
        with warnings.catch_warnings():
            # the final fit warns of the setting that is chosen
            warnings.simplefilter("ignore", UserWarning)
            try:
                found = between_subject_classification(
                    model,
                    split,
                    leave_out=self.leave_out,
                    protocol=protocol,
                    classifier=self.classifier,
                    n_jobs=self.n_jobs,
                )
            except BrainweaveError as error:
                return np.empty(0), str(error)
        return found.scores, ""
