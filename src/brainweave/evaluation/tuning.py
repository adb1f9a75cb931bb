"""GDM with its settings chosen inside the aligning samples alone."""

import warnings
from collections.abc import Sequence
from itertools import product
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.utils.validation import check_is_fitted

from brainweave._core.exceptions import BrainweaveError, InputError
from brainweave._core.validation import check_option
from brainweave.aligners.base import BaseAligner
from brainweave.aligners.gdm.gdm import GDM
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
    """GDM that chooses energy, kernel, number of components and graph by scores.

    The aligning samples are split into two halves by category, and every setting is
    scored on them by :func:`between_subject_classification`. GDM with the best setting
    is then fitted on all aligning samples. Other samples and their labels are never
    used, so a score on them remains honest.

    Parameters
    ----------
    energies : sequence of float or None, default=(0.2, 0.35, 0.5, 0.65, 0.82, 1.0)
        Shares of the singular values to try. None: no cut, but the shrinkage that GDM
        chooses in closed form, without trying fits (``shrinkage="auto"``).
    n_components : int, "auto", or a sequence of them, default="auto"
        Numbers of shared features to try.
    kernels : sequence, default=("linear",)
        Kernels to try: a name, a pair ``(name, hp)``, or a callable.
    graphs : sequence, default=("labels",)
        Graphs to try: "labels", or a callable that makes a graph from y, such as
        ``functools.partial(label_graph, different=-0.5)``.
    leave_out : int, default=1
        Number of subjects left out at a time in the inner loop.
    protocol : {"held-out", "joint"}, default="held-out"
        How the inner loop aligns; see :func:`between_subject_classification`. If no
        setting can be scored "held-out", as for two subjects, the inner loop is joint.
    classifier : scikit-learn classifier, optional
        Default: a linear nu-SVM.
    standardize : bool or "reliability", default=True
        As in :class:`brainweave.GDM`.
    n_jobs : int, optional
        Subjects and folds worked on at the same time; default one per core.

    Attributes
    ----------
    best_params_ : dict
        The parameters of GDM that were chosen.
    best_score_ : float
        Their mean accuracy in the inner loop.
    best_estimator_ : GDM or PaperGDM
        Fitted with them on all aligning samples.
    cv_results_ : dict of str to list
        For each setting: ``params``, ``mean_test_score``, ``fold_scores``,
        ``rank_test_score`` and ``error`` (why it could not be scored, else ""). Of
        equal scores the first in the order given is chosen.
    maps_, coef_ or mixing_, bases_, n_components_, n_subjects_
        As in :class:`brainweave.GDM`.

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
        energies: Sequence[float | None] = DEFAULT_ENERGIES,
        n_components: Any = "auto",
        kernels: Sequence[Any] = ("linear",),
        graphs: Sequence[Any] = ("labels",),
        leave_out: int = 1,
        protocol: str = "held-out",
        classifier: Any = None,
        standardize: bool | str = True,
        n_jobs: int | None = None,
    ) -> None:
        self.energies = energies
        self.n_components = n_components
        self.kernels = kernels
        self.graphs = graphs
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
        settings = self._settings()
        bases = self._read_bases(subjects, y)
        split = _halves(bases, y)
        # too few subjects or samples may be left for anyone to join
        for protocol in dict.fromkeys((self.protocol, "joint")):
            scores = [self._score(split, params, protocol) for params in settings]
            failed = [s if isinstance(s, str) else "" for s in scores]
            if not all(failed):
                break
        else:
            raise InputError(
                f"None of the {len(settings)} settings of GDMCV could be scored; the "
                f"first failed with: {failed[0]}"
            )
        folds = [np.empty(0) if isinstance(s, str) else s for s in scores]
        means = np.array([f.mean() if f.size else np.nan for f in folds])
        self.cv_results_ = {
            "params": settings,
            "mean_test_score": means.tolist(),
            "fold_scores": folds,
            "rank_test_score": [
                len(means) if np.isnan(m) else int((means > m).sum()) + 1 for m in means
            ],
            "error": failed,
        }
        chosen = int(np.nanargmax(means))
        self.best_params_, self.best_score_ = settings[chosen], float(means[chosen])
        best = self._model(self.best_params_)
        best._warns_of_input = False  # warned when the samples were read
        self.best_estimator_ = best.fit(bases, y)
        for fitted, subject in zip(best.maps_, subjects, strict=True):
            fitted.space = getattr(subject, "space", None)
        maps = "coef_" if hasattr(best, "coef_") else "mixing_"
        for name in ("maps_", maps, "bases_", "n_components_", "n_subjects_"):
            setattr(self, name, getattr(best, name))

    def _solve(self, bases: list[SubjectBasis], y: Any) -> list[NDArray[Any]]:
        raise NotImplementedError("GDMCV fits through its best_estimator_.")

    def _solve_new(self, basis: SubjectBasis, y: Any) -> NDArray[Any]:
        return self.best_estimator_._solve_new(basis, y)

    @property
    def _features_are_weighed(self) -> bool:  # type: ignore[override]
        best = getattr(self, "best_estimator_", None)
        return bool(getattr(best, "_features_are_weighed", False))

    def _for_rows(self, rows: Any, y: Any) -> tuple[BaseAligner, Any]:
        return self.best_estimator_._for_rows(rows, y)

    def fit_new_subject(self, X: Any, y: Any = None) -> SubjectMap:
        """Learn the map of a new subject, as :class:`brainweave.GDM` does."""
        check_is_fitted(self, "best_estimator_")
        return self.best_estimator_.fit_new_subject(X, y)

    def _model(self, params: dict[str, Any]) -> GDM | PaperGDM:
        """Return the paper's model, or, without an energy, ours."""
        rest = {k: v for k, v in params.items() if k != "energy"}
        common: Any = {"standardize": self.standardize, "n_jobs": self.n_jobs}
        if params["energy"] is None:
            return GDM(**rest, **common)
        return PaperGDM(energy=params["energy"], **rest, **common)

    def _score(
        self, split: SplitStudy, params: dict[str, Any], protocol: str
    ) -> NDArray[Any] | str:
        """Return the scores of one setting, or why it cannot be scored."""
        with warnings.catch_warnings():
            # the final fit warns of the setting that is chosen
            warnings.simplefilter("ignore", UserWarning)
            try:
                return between_subject_classification(
                    self._model(params),
                    split,
                    leave_out=self.leave_out,
                    protocol=protocol,
                    classifier=self.classifier,
                    n_jobs=self.n_jobs,
                ).scores
            except BrainweaveError as error:
                return str(error)

    def _settings(self) -> list[dict[str, Any]]:
        """Return the parameters of GDM for every combination of the candidates."""
        counts = self.n_components
        listed = {
            "kernels": self.kernels,
            "energies": self.energies,
            "n_components": [counts] if isinstance(counts, int | str) else counts,
            "graphs": self.graphs,
        }
        for name, values in listed.items():
            given = isinstance(values, Sequence | np.ndarray) and len(values) > 0
            if isinstance(values, str) or not given:
                raise InputError(
                    f"{name} of GDMCV is a list of candidates; got {values!r}."
                )
        settings = []
        for kernel, energy, k, graph in product(*listed.values()):
            if not (callable(graph) or graph == "labels"):
                raise InputError(
                    "graphs of GDMCV are 'labels' or callables that make a graph from "
                    f"y; got {graph!r}."
                )
            named, hp = kernel if isinstance(kernel, tuple) else (kernel, None)
            params = {"n_components": k, "energy": energy, "kernel": named}
            params["kernel_params"] = None if hp is None else {"hp": hp}
            settings.append({**params, "graph": graph})
            self._model(settings[-1])._basis_settings(None)  # refuses what cannot be
        return settings


def _halves(bases: list[SubjectBasis], labels: list[Any]) -> SplitStudy:
    """Halve the samples of bases by category.

    From the samples, not from the Gram matrices: voxels get the scale of their half.
    """
    for basis in bases:
        if basis._data is None:
            raise InputError(
                f"{basis.name} is a basis without its samples, so its halves cannot be "
                "scored. Pass X to GDMCV."
            )
    study = Study(
        Subject(str(i), basis._data, labels=known, runs=basis.runs)
        for i, (basis, known) in enumerate(zip(bases, labels, strict=True))
    )
    return SplitStudy(split_in_halves(study, half_masks(study, "category")))
