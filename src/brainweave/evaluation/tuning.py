"""GDM with its settings chosen inside the aligning samples alone."""

import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import product
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray
from sklearn.utils.validation import check_is_fitted

from brainweave._core.exceptions import (
    AlignmentWarning,
    BrainweaveError,
    ClassifierWarning,
    InputError,
    KernelWarning,
    SeparateSubjectsWarning,
    UndeterminedWarning,
    UniquenessWarning,
)
from brainweave._core.progress import shown_progress
from brainweave._core.validation import (
    check_fraction,
    check_list_of_subjects,
    check_option,
    ids_of,
)
from brainweave.aligners.base import BaseAligner
from brainweave.aligners.gdm.gdm import GDM
from brainweave.aligners.gdm.paper import PaperGDM
from brainweave.aligners.maps import SubjectMap
from brainweave.basis.basis import SubjectBasis
from brainweave.basis.kernels import Kernel, check_kernel
from brainweave.evaluation.evaluate import PROTOCOLS, between_subject_classification
from brainweave.evaluation.splits import (
    Split,
    SplitStudy,
    as_study,
    half_masks,
    refuse_aligned,
    select_samples,
)
from brainweave.graphs.builders import label_graph
from brainweave.study.study import Study, Subject

__all__ = ["GDMCV", "LabelGraph"]

DEFAULT_ENERGIES = (0.2, 0.35, 0.5, 0.65, 0.82, 1.0)


@dataclass(frozen=True)
class LabelGraph:
    """Makes a label graph with a given weight between different categories.

    A small class, since a function bound to a weight would neither compare nor print.
    """

    different: float
    makes_label_graph = True  # equal labels are what joins samples

    def __call__(self, y: list[Any]) -> Any:
        """Make the graph of these labels."""
        return label_graph(y, different=self.different)


_WARNED_LATER = (  # by the final fit, of the setting that is chosen
    AlignmentWarning,
    ClassifierWarning,
    KernelWarning,
    SeparateSubjectsWarning,
    UndeterminedWarning,
    UniquenessWarning,
)


class GDMCV(BaseAligner):
    """GDM that chooses energy, kernel, number of components and graph by scores.

    The aligning samples are split into two halves by category. For every setting, one
    half aligns and the other is classified, subjects being left out in turn, as in
    :func:`between_subject_classification`; then the halves change roles. GDM with the
    best setting is fitted on all aligning samples. Nothing but the aligning samples and
    their labels is ever used, so a score on other samples remains honest.

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
        Graphs to try: "labels"; a number, the weight between different categories where
        "labels" has -1; or a callable that makes a graph from y.
    leave_out : int, default=1
        Subjects that are left out at a time in the inner loop.
    protocol : {"held-out", "joint"}, default="held-out"
        How the inner loop aligns; see :func:`between_subject_classification`. A setting
        by which no new subject could join is then not chosen. Where there is none by
        which one could, as for two subjects, the inner loop is joint.
    classifier : scikit-learn classifier, optional
        Default: a linear nu-SVM.
    standardize : bool or "reliability", default=True
        Give every voxel zero mean and unit variance over the aligning samples.
        "reliability": voxels that answer alike to equal labels count more
        (:mod:`brainweave.basis.reliability`).
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
        For each setting: ``params``, ``mean_test_score``, ``std_test_score``,
        ``fold_scores``, ``rank_test_score`` and ``error`` (why it could not be scored,
        else ""). Of equal scores the first in the order given is chosen.
    maps_, coef_ or mixing_, bases_, n_components_, n_subjects_
        As in :class:`brainweave.GDM`.

    Notes
    -----
    The voxels are read once: halves of the aligning samples have submatrices of its
    Gram matrix, for every kernel, and all energies share their eigenvectors. In the
    inner loop voxels keep the scale of all aligning samples. Not with
    ``standardize="reliability"``: labels of scored samples would have shaped it. Each
    half is then read by itself, once.

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

    _needs_eigenbasis = False  # only the chosen kernel's is needed

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

    def fit(self, X: Any, y: Any = None, *, progress: Any = None) -> Self:
        """Choose the settings, then learn one map per subject.

        Parameters
        ----------
        X : list of arrays of shape (n_samples_i, n_voxels_i), or a Study
            The aligning samples, or their bases (linear kernel).
        y : list of array-like, optional
            Their categories; by default those of the study.
        progress : bool or callable, optional
            True draws a bar; a callable is told after each setting how many were
            tried, how many there are, and what is done.

        Returns
        -------
        self
        """
        check_option("protocol", self.protocol, PROTOCOLS, owner=self._owner)
        kernels, *others = self._candidates()
        subjects = check_list_of_subjects(X, owner=self._owner)
        refuse_aligned([s for s in subjects if isinstance(s, Subject)])
        labels = self._find_y(subjects, y)
        if labels is None:
            raise InputError(
                "GDMCV chooses its settings by classifying samples, so it needs their "
                "categories: fit(X, y). Without categories use GDM(graph='time')."
            )
        self.ids_ = ids_of(subjects, owner=self._owner)
        self._check_labels(labels)
        bases = self._read_bases(subjects, labels)
        total = len(kernels) * int(np.prod([len(values) for values in others]))
        of_voxels = _halves_of_voxels(bases, labels)
        # too few subjects or samples may be left for anyone to join
        for protocol in dict.fromkeys((self.protocol, "joint")):
            settings: list[dict[str, Any]] = []
            scores: list[NDArray[Any] | str] = []
            with shown_progress(progress, total, "settings") as tick:
                for kernel in kernels:
                    split = of_voxels or _halves_of_grams(bases, labels, kernel)
                    for energy, k, graph in product(*others):
                        hp = None if kernel.hp is None else {"hp": kernel.hp}
                        settings.append(
                            {
                                "n_components": k,
                                "energy": energy,
                                "kernel": kernel.function or kernel.name,
                                "kernel_params": hp,
                                "graph": graph,
                            }
                        )
                        scores.append(self._score(split, settings[-1], protocol))
                        tick()
            if not all(isinstance(score, str) for score in scores):
                break
        self._choose(settings, scores)
        best = self._model(self.best_params_)
        best._warns_of_input = False  # warned above
        self.best_estimator_ = best.fit(bases, labels)
        for fitted, subject in zip(best.maps_, subjects, strict=True):
            fitted.space = getattr(subject, "space", None)
        maps = "coef_" if hasattr(best, "coef_") else "mixing_"
        for name in ("maps_", maps, "bases_", "n_components_", "n_subjects_", "ids_"):
            setattr(self, name, getattr(best, name))
        return self

    def _joined_by(self, y: Any = None) -> set[str]:
        return {"labels"}

    def _solve(
        self, bases: list[SubjectBasis], y: list[Any] | None
    ) -> list[NDArray[Any]]:
        raise NotImplementedError("GDMCV fits through its best_estimator_.")

    def _solve_new(self, basis: SubjectBasis, y: Any) -> NDArray[Any]:
        return self.best_estimator_._solve_new(basis, y)

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
        self, split: Any, params: dict[str, Any], protocol: str
    ) -> NDArray[Any] | str:
        """Return the scores of one setting, or why it cannot be scored."""
        if split.splits[0].of_grams:
            params = {**params, "kernel": "precomputed", "kernel_params": None}
        with warnings.catch_warnings():
            for category in _WARNED_LATER:
                warnings.simplefilter("ignore", category)
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

    def _choose(
        self, settings: list[dict[str, Any]], scores: list[NDArray[Any] | str]
    ) -> None:
        failed = [s if isinstance(s, str) else "" for s in scores]
        if all(failed):
            raise InputError(
                f"None of the {len(settings)} settings of GDMCV could be scored; the "
                f"first failed with: {failed[0]}"
            )
        folds = [np.empty(0) if isinstance(s, str) else s for s in scores]
        means = np.array([f.mean() if f.size else np.nan for f in folds])
        self.cv_results_ = {
            "params": settings,
            "mean_test_score": means.tolist(),
            "std_test_score": [float(f.std()) if f.size else np.nan for f in folds],
            "fold_scores": folds,
            "rank_test_score": [
                len(means) if np.isnan(m) else int((means > m).sum()) + 1 for m in means
            ],
            "error": failed,
        }
        best = int(np.nanargmax(means))
        self.best_params_, self.best_score_ = settings[best], float(means[best])

    def _candidates(self) -> tuple[list[Any], ...]:
        """Return the kernels, energies, numbers of components and graphs to try."""
        owner, counts = self._owner, self.n_components
        listed = {
            "kernels": self.kernels,
            "energies": self.energies,
            "n_components": [counts] if isinstance(counts, int | str) else counts,
            "graphs": self.graphs,
        }
        for name, values in listed.items():
            if isinstance(values, str) or not isinstance(values, Sequence | np.ndarray):
                raise TypeError(
                    f"{name} of GDMCV is a list of candidates; got {values!r}."
                )
            if len(values) == 0:
                raise InputError(
                    f"{name} of GDMCV is empty; give at least one candidate."
                )
        kernels = [
            check_kernel(k[0], {"hp": k[1]}, owner=owner)
            if isinstance(k, tuple)
            else check_kernel(k, owner=owner)
            for k in self.kernels
        ]
        hint = "None does not cut, but shrinks, by a strength found in closed form."
        for energy in self.energies:
            if energy is not None:
                check_fraction("energies", energy, owner=owner, hint=hint)
        graphs = []
        for graph in self.graphs:
            weight = isinstance(graph, int | float) and not isinstance(graph, bool)
            if not (weight or callable(graph) or graph == "labels"):
                raise InputError(
                    "graphs of GDMCV are 'labels', numbers (the weight between "
                    f"different categories) or callables; got {graph!r}."
                )
            graphs.append(LabelGraph(float(graph)) if weight else graph)
        return kernels, list(self.energies), list(listed["n_components"]), graphs


def _halves_of_grams(
    bases: list[SubjectBasis], labels: list[Any], kernel: Kernel
) -> SplitStudy:
    """Halve the aligning samples by category, with the Gram matrices of a kernel.

    Halves have submatrices of the Gram matrix of all, so nothing but that is needed:
    centring a submatrix of a centred matrix is the same as centring it alone. Voxels
    keep the scale of all the samples.
    """
    study = _with_runs(bases, [np.arange(b.n_samples)[:, None] for b in bases], labels)
    grams = [b.with_kernel(kernel).gram.astype(b.dtype, copy=False) for b in bases]

    def half(rows: list[NDArray[Any]], columns: list[NDArray[Any]]) -> Study:
        return Study(
            s.select(row)._replace(samples=gram[np.ix_(row, column)])
            for s, gram, row, column in zip(study, grams, rows, columns, strict=True)
        )

    first = half_masks(study, "category")
    second = [~mask for mask in first]
    return SplitStudy(
        [
            Split(half(own, own), half(other, own), name=name, of_grams=True)
            for name, own, other in (("1", first, second), ("2", second, first))
        ]
    )


def _halves_of_voxels(
    bases: list[SubjectBasis], labels: list[Any]
) -> SplitStudy | None:
    """Halve the samples themselves where labels have scaled the voxels, else None."""
    if not any(basis.reliable for basis in bases):
        return None
    for basis in bases:
        if basis._data is None:
            raise InputError(
                f"{basis.name} was scaled by the reliability of its voxels over all "
                "samples, and is without the samples that could tell it for a half of "
                "them. Pass X to GDMCV."
            )
    study = _with_runs(bases, [basis._data for basis in bases], labels)
    masks = half_masks(study, "category")
    halves = [select_samples(study, m) for m in (masks, [~mask for mask in masks])]
    return SplitStudy([Split(*halves, name="1"), Split(*halves[::-1], name="2")])


def _with_runs(bases: list[SubjectBasis], samples: list[Any], y: list[Any]) -> Study:
    pairs = zip(as_study(samples, y), bases, strict=True)
    return Study(subject._replace(runs=basis.runs) for subject, basis in pairs)
