"""GDM with its settings chosen inside the aligning samples alone."""

import warnings
from collections.abc import Callable, Sequence
from itertools import product
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray
from sklearn.utils.validation import check_is_fitted

from brainweave._progress import shown_progress
from brainweave._subjects import ids_of
from brainweave._validation import check_fraction, check_list_of_subjects, check_option
from brainweave.aligners.base import BaseAligner
from brainweave.aligners.gdm import GDM
from brainweave.aligners.maps import SubjectMap
from brainweave.basis import SubjectBasis
from brainweave.evaluation.align_folds import PROTOCOLS
from brainweave.evaluation.classification import (
    ClassificationResult,
    between_subject_classification,
)
from brainweave.evaluation.shared_bases import GramPart
from brainweave.evaluation.splits import (
    SplitStudy,
    as_study,
    named_masks,
    refuse_aligned,
)
from brainweave.exceptions import (
    AlignmentWarning,
    BrainweaveError,
    ClassifierWarning,
    InputError,
    KernelWarning,
    SeparateSubjectsWarning,
    UndeterminedWarning,
    UniquenessWarning,
)
from brainweave.graphs import label_graph
from brainweave.kernels import Kernel, check_kernel
from brainweave.study.study import Study, Subject

__all__ = ["GDMCV", "LabelGraph"]

DEFAULT_ENERGIES = (0.2, 0.35, 0.5, 0.65, 0.82, 1.0)


class LabelGraph:
    """Makes a label graph with a given weight between different categories.

    A small class, since a function bound to a weight would neither compare nor print.
    """

    makes_label_graph = True  # equal labels are what joins samples

    def __init__(self, different: float) -> None:
        self.different = float(different)

    def __call__(self, y: list[Any]) -> Any:
        """Make the graph of these labels."""
        return label_graph(y, different=self.different)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, LabelGraph) and self.different == other.different

    def __hash__(self) -> int:
        return hash(self.different)

    def __repr__(self) -> str:
        return f"LabelGraph(different={self.different:g})"


_SAID_LATER = (
    AlignmentWarning,
    ClassifierWarning,
    KernelWarning,
    SeparateSubjectsWarning,
    UndeterminedWarning,
    UniquenessWarning,
)


class GDMCV(BaseAligner):
    """GDM that chooses energy, kernel, number of components and graph by itself.

    The aligning samples are split into two halves by category. For every setting, one
    half aligns and the other is classified, subjects being left out in turn, as in
    :func:`between_subject_classification`; then the halves change roles. GDM with the
    best setting is fitted on all aligning samples. Nothing but the aligning samples and
    their labels is ever used, so a score on other samples remains honest.

    Parameters
    ----------
    energies : sequence of float, default=(0.2, 0.35, 0.5, 0.65, 0.82, 1.0)
        Shares of the singular values to try.
    n_components : int, "auto", or a sequence of them, default="auto"
        Numbers of shared features to try.
    kernels : sequence, default=("linear",)
        Kernels to try: a name, a pair ``(name, hp)``, or a callable.
    graphs : sequence, default=("labels",)
        Graphs to try: "labels"; a number, the weight between different categories where
        "labels" has -1; or a callable that makes a graph from y.
    leave_out : int, default=1
        Subjects that are left out at a time in the inner loop.
    protocol : {"joint", "held-out"}, default="joint"
        How the inner loop aligns; see :func:`between_subject_classification`.
    classifier : scikit-learn classifier, optional
        Default: a linear nu-SVM.
    standardize : bool or "reliability", default=True
        Give every voxel zero mean and unit variance over the aligning samples.
    n_jobs : int, optional
        Subjects and folds worked on at the same time; default one per core.

    Attributes
    ----------
    best_params_ : dict
        The parameters of GDM that were chosen.
    best_score_ : float
        Their mean accuracy in the inner loop.
    best_estimator_ : GDM
        Fitted with them on all aligning samples.
    cv_results_ : dict of str to list
        For each setting: ``params``, ``mean_test_score``, ``std_test_score``,
        ``fold_scores``, ``rank_test_score`` and ``error`` (why it could not be scored,
        else ""). Of equal scores the first in the order given is chosen.
    maps_, coef_, bases_, n_components_, n_subjects_
        As in :class:`brainweave.GDM`.

    Notes
    -----
    The voxels are read once: halves of the aligning samples have submatrices of its
    Gram matrix, for every kernel, and all energies share their eigenvectors. In the
    inner loop voxels keep the scale of all aligning samples.

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
        energies: Sequence[float] = DEFAULT_ENERGIES,
        n_components: Any = "auto",
        kernels: Sequence[Any] = ("linear",),
        graphs: Sequence[Any] = ("labels",),
        leave_out: int = 1,
        protocol: str = "joint",
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

    # -- fitting -----------------------------------------------------------------------

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
        kernels, energies = self._kernels(), self._energies()
        counts, graphs = self._counts(), self._graphs()
        subjects = check_list_of_subjects(X, owner=self._owner)
        refuse_aligned([s for s in subjects if isinstance(s, Subject)])
        labels = self._known_samples(subjects, y)
        if labels is None:
            raise InputError(
                "GDMCV chooses its settings by classifying samples, so it needs their "
                "categories: fit(X, y). Without categories use GDM(graph='time')."
            )
        self.ids_ = ids_of(subjects, owner=self._owner)
        self._check_labels(labels)
        bases = self._read_bases(subjects, labels)
        inner = _InnerSplit(bases, labels)
        settings, results = [], []
        total = len(kernels) * len(energies) * len(counts) * len(graphs)
        with shown_progress(progress, total, "settings") as tick:
            for kernel in kernels:
                split = inner.with_kernel(kernel)
                for energy, k, graph in product(energies, counts, graphs):
                    settings.append(_params(kernel, energy, k, graph))
                    results.append(self._score(split, energy, k, graph))
                    tick()
        self._choose(settings, results)
        spaces = [getattr(s, "space", None) for s in subjects]
        self._refit(bases, labels, spaces)
        return self

    def _joins_by_label(self) -> bool:
        return True

    def _solve(
        self, bases: list[SubjectBasis], y: list[Any] | None
    ) -> list[NDArray[Any]]:
        raise NotImplementedError("GDMCV fits through its best_estimator_.")

    def _solve_new(self, basis: SubjectBasis, y: Any) -> NDArray[Any]:
        return self.best_estimator_._solve_new(basis, y)

    def _score(
        self, split: SplitStudy, energy: float, k: Any, graph: Any
    ) -> ClassificationResult | str:
        """Score one setting, or say why it cannot be scored."""
        model = GDM(
            k,
            energy=energy,
            kernel="precomputed",
            graph=graph,
            standardize=self.standardize,
            n_jobs=self.n_jobs,
        )
        with warnings.catch_warnings():
            # the final fit says these of the setting that is chosen
            for category in _SAID_LATER:
                warnings.simplefilter("ignore", category)
            try:
                return between_subject_classification(
                    model,
                    split,
                    leave_out=self.leave_out,
                    protocol=self.protocol,
                    classifier=self.classifier,
                    n_jobs=self.n_jobs,
                )
            except BrainweaveError as error:
                return str(error)

    def _choose(
        self,
        settings: list[dict[str, Any]],
        results: list[ClassificationResult | str],
    ) -> None:
        failed = [r if isinstance(r, str) else "" for r in results]
        if all(failed):
            raise InputError(
                f"None of the {len(settings)} settings of GDMCV could be scored; the "
                f"first failed with: {failed[0]}"
            )
        folds = [np.empty(0) if isinstance(r, str) else r.scores for r in results]
        means = np.array([f.mean() if f.size else np.nan for f in folds])
        better = [(means > m).sum() for m in means]
        self.cv_results_ = {
            "params": settings,
            "mean_test_score": means.tolist(),
            "std_test_score": [float(f.std()) if f.size else np.nan for f in folds],
            "fold_scores": folds,
            "rank_test_score": [
                len(means) if np.isnan(m) else int(b) + 1
                for m, b in zip(means, better, strict=True)
            ],
            "error": failed,
        }
        best = int(np.nanargmax(means))
        self.best_params_ = settings[best]
        self.best_score_ = float(means[best])

    def _refit(
        self, bases: list[SubjectBasis], labels: list[Any], spaces: list[Any]
    ) -> None:
        best = GDM(
            **self.best_params_, standardize=self.standardize, n_jobs=self.n_jobs
        )
        best._warns_of_input = False  # said above
        self.best_estimator_ = best.fit(bases, labels)
        for fitted, space in zip(best.maps_, spaces, strict=True):
            fitted.space = space
        for name in (
            "maps_",
            "coef_",
            "bases_",
            "n_components_",
            "n_subjects_",
            "ids_",
        ):
            setattr(self, name, getattr(best, name))

    def fit_new_subject(self, X: Any, y: Any = None) -> SubjectMap:
        """Learn the map of a new subject, as :class:`brainweave.GDM` does."""
        check_is_fitted(self, "best_estimator_")
        if isinstance(X, SubjectBasis):
            chosen = self.best_params_
            kernel = X.with_kernel(chosen["kernel"], chosen["kernel_params"])
            X = kernel.cut(chosen["energy"])
        return self.best_estimator_.fit_new_subject(X, y)

    # -- candidates --------------------------------------------------------------------

    def _kernels(self) -> list[Kernel]:
        return [
            check_kernel(k[0], {"hp": k[1]}, owner=self._owner)
            if isinstance(k, tuple)
            else check_kernel(k, owner=self._owner)
            for k in _candidates("kernels", self.kernels)
        ]

    def _energies(self) -> list[float]:
        return [
            check_fraction("energies", e, owner=self._owner)
            for e in _candidates("energies", self.energies)
        ]

    def _counts(self) -> list[Any]:
        single = isinstance(self.n_components, (int, np.integer, str))
        return (
            [self.n_components]
            if single
            else _candidates("n_components", self.n_components)
        )

    def _graphs(self) -> list[str | Callable[..., Any]]:
        graphs: list[Any] = []
        for graph in _candidates("graphs", self.graphs):
            if isinstance(graph, (int, float)) and not isinstance(graph, bool):
                graphs.append(LabelGraph(graph))
            elif callable(graph) or graph == "labels":
                graphs.append(graph)
            else:
                raise InputError(
                    "graphs of GDMCV are 'labels', numbers (the weight between "
                    f"different categories) or callables; got {graph!r}."
                )
        return graphs


class _InnerSplit:
    """Halves of the aligning samples by category, for any kernel."""

    def __init__(self, bases: list[SubjectBasis], labels: list[Any]) -> None:
        self.bases = bases
        rows = [np.arange(b.n_samples)[:, None] for b in bases]
        study = as_study(rows, labels)
        masks = named_masks(study, "category")
        self.rows = (
            [np.flatnonzero(m) for m in masks],
            [np.flatnonzero(~m) for m in masks],
        )
        self.halves = [
            Study(s.select(r) for s, r in zip(study, rows_of_half, strict=True))
            for rows_of_half in self.rows
        ]

    def with_kernel(self, kernel: Kernel) -> SplitStudy:
        """Return the halves with the Gram matrices of a kernel."""
        grams = [
            basis.with_kernel(kernel).gram.astype(basis.dtype, copy=False)
            for basis in self.bases
        ]
        parts = [
            GramPart(
                self.halves[a],
                self.halves[1 - a],
                grams=grams,
                rows=self.rows[a],
                others=self.rows[1 - a],
                name=f"inner half {a + 1}",
            )
            for a in (0, 1)
        ]
        return SplitStudy(parts)


def _params(kernel: Kernel, energy: float, k: Any, graph: Any) -> dict[str, Any]:
    return {
        "n_components": k,
        "energy": energy,
        "kernel": kernel.name if kernel.function is None else kernel.function,
        "kernel_params": None if kernel.hp is None else {"hp": kernel.hp},
        "graph": graph,
    }


def _candidates(name: str, values: Any) -> list[Any]:
    if isinstance(values, str) or not isinstance(values, Sequence | np.ndarray):
        raise TypeError(f"{name} of GDMCV is a list of candidates; got {values!r}.")
    if len(values) == 0:
        raise InputError(f"{name} of GDMCV is empty; give at least one candidate.")
    return list(values)
