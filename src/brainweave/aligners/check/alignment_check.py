"""Whether alignment worked, and what the components mean."""

from collections.abc import Iterable
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.utils.validation import check_is_fitted

from brainweave._core.arrays import Codes, Matrix, to_numpy
from brainweave._core.exceptions import (
    AlignmentWarning,
    BrainweaveError,
    InputError,
    warn_user,
)
from brainweave._core.validation import check_int, check_list_of_subjects
from brainweave.aligners.check.agreement import agreement_of_groups, permutation_test
from brainweave.aligners.check.held_out import (
    Fold,
    cross_fit,
    fit_by_grams,
    fit_by_samples,
    halves_of,
)
from brainweave.aligners.gdm.graph_parsing import (
    GRAPH_NAMES,
    is_named,
    split_labels_and_ids,
)
from brainweave.aligners.gdm.solution import Solution
from brainweave.basis.basis import SubjectBasis
from brainweave.graphs.builders import NO_GROUP, Graph, time_graph

__all__ = ["AlignmentCheck", "alignment_check"]


SIGNIFICANT = 0.05
TWO_LOOKS = 5  # all components together must be so much clearer than the clearest
N_PERMUTATIONS = 199
PAPERS_COMPONENTS = 10  # where nothing tells how many


@dataclass(frozen=True)
class AlignmentCheck:
    """What :func:`alignment_check` found.

    Attributes
    ----------
    reason : str
        Why alignment cannot be checked; empty if it was.
    agreement_cv : ndarray of shape (n_components,)
        Mean correlation between subjects of the group means of each feature, over
        samples that did not align.
    p : ndarray of shape (n_components,)
        From permutations, corrected for the number of components.
    p_rest : ndarray of shape (n_components,)
        From permutations: that neither this component nor any behind it is shared.
    n_permutations : int
        How many.
    features : list of ndarray of shape (n_samples_i, n_components), or None
        Shared features of every sample under a model that was fitted without it, turned
        to those of the full model; for pictures.
    """

    reason: str = ""
    agreement_cv: Matrix = field(default_factory=lambda: np.empty(0))
    p: Matrix = field(default_factory=lambda: np.empty(0))
    p_rest: Matrix = field(default_factory=lambda: np.empty(0))
    n_permutations: int = 0
    features: list[Matrix] | None = field(default=None, repr=False, compare=False)

    @property
    def available(self) -> bool:
        """Whether alignment could be checked."""
        return not self.reason

    @property
    def holds(self) -> NDArray[np.bool_]:
        """Which components hold up."""
        return np.asarray(self.p < SIGNIFICANT)

    @property
    def n_holding(self) -> int:
        """How many components hold up."""
        return int(self.holds.sum())

    @property
    def n_to_keep(self) -> int:
        """Components up to the last that holds up, alone or with those behind it.

        Many weak components together can be evidence where none is alone. 0 if there
        is no evidence of any.
        """
        if not self.worked:
            return 0
        alone, empty = np.flatnonzero(self.holds), ~(self.p_rest < SIGNIFICANT)
        together = int(empty.argmax()) if empty.any() else len(empty)
        return max(int(alone[-1]) + 1 if alone.size else 1, together)

    @property
    def p_value(self) -> float:
        """Of the whole: that any component is shared.

        That of the clearest component; or five times that of all together, if that is
        less: looking twice then gives no more false alarms than .06 in place of .05.
        """
        ways = [*self.p, *(TWO_LOOKS * self.p_rest[:1])]
        return float(np.nanmin(ways)) if np.isfinite(ways).any() else float("nan")

    @property
    def agreement(self) -> float:
        """Mean of ``agreement_cv`` over components."""
        known = self.agreement_cv[np.isfinite(self.agreement_cv)]
        return float(known.mean()) if known.size else float("nan")

    @property
    def worked(self) -> bool | None:
        """Whether anything shared was found; None if that is not known."""
        return bool(self.p_value < SIGNIFICANT) if self.available else None

    @property
    def verdict(self) -> str:
        """All this in one sentence."""
        if not self.available:
            return f"Whether alignment worked was not checked: {self.reason}"
        n, total = self.n_holding, len(self.p)
        many = f"{n} of {total} shared features" if total > 1 else "the shared feature"
        if not self.worked:
            return (
                "No evidence of a shared space: on samples that did not align, "
                f"subjects agree no more than by chance in any of {total} shared "
                f"features (mean correlation {self.agreement:.2f}, p = "
                f"{self.p_value:.2g})."
            )
        if n == 0:
            return (
                "Alignment worked: on samples that did not align, subjects agree in "
                f"the {total} shared features together (mean correlation "
                f"{self.agreement:.2f}, p = {self.p_value:.2g}), though in none alone."
            )
        kept = np.nanmean(self.agreement_cv[self.holds])
        return (
            "Alignment worked: on samples that did not align, subjects agree in "
            f"{many} (mean correlation {kept:.2f} there, p = {self.p_value:.2g})."
        )

    def __str__(self) -> str:
        return self.verdict


def alignment_check(
    aligner: Any,
    X: Any = None,
    y: Any = None,
    *,
    runs: Any = None,
    n_permutations: int = N_PERMUTATIONS,
    random_state: int = 0,
) -> AlignmentCheck:
    """Check on samples that did not align whether a fitted aligner found anything.

    Half of the aligning samples are held out by run, where `runs` are known, else the
    second half of every category, or of the time line; then the halves change roles.

    Parameters
    ----------
    aligner : aligner
        Fitted. A model file brings the answer of the model that was saved.
    X : list of arrays, or Study, optional
        The aligning samples, needed by methods that are no functions of Gram matrices
        (RobustSRM from a file, Parcelwise, Searchlight); of a Study, y and runs too.
    y : list of array-like, optional
        What the aligner was fitted with, where it does not keep it: for
        SemiSupervisedSRM, and for piecewise alignment by labels.
    runs : list of array-like, optional
        The run of every sample.
    n_permutations : int, default=199
        How often held-out labels are shuffled.
    random_state : int, default=0
        Seed of the shuffling.

    Returns
    -------
    AlignmentCheck
        ``worked``, ``p_value``, ``agreement_cv`` and ``p`` per component, ``verdict``.

    Examples
    --------
    >>> from brainweave import GDM
    >>> rng = np.random.default_rng(0)
    >>> y = [["a", "b", "c"] * 8, ["c", "b", "a"] * 8, ["b", "c", "a"] * 8]
    >>> noise = [rng.normal(size=(24, 50)) for _ in y]
    >>> check = alignment_check(GDM(n_components=2).fit(noise, y))
    >>> check.worked, str(check).split(":")[0]
    (False, 'No evidence of a shared space')
    """
    check_is_fitted(aligner, "maps_")
    check_int("n_permutations", n_permutations, minimum=1, owner="alignment_check")
    aligner = getattr(aligner, "best_estimator_", aligner)
    subjects = None if X is None else check_list_of_subjects(X, owner="alignment_check")
    if subjects is not None and len(subjects) != len(aligner.maps_):
        raise InputError(
            f"alignment_check got {len(subjects)} subjects; the model was fitted on "
            f"{len(aligner.maps_)}."
        )
    if subjects is not None and all(hasattr(s, "labels") for s in subjects):
        if y is None:
            y = _list_unless_missing(aligner._y_of(s) for s in subjects)
        if runs is None:
            runs = _list_unless_missing(getattr(s, "runs", None) for s in subjects)
    bases = getattr(aligner, "bases_", None)
    if subjects is None and bases is None:
        return _check_of_file(aligner)
    try:
        lengths = [
            int(s.n_samples if hasattr(s, "n_samples") else len(s))
            for s in (bases or subjects or [])
        ]
        codes = _groups_of_samples(aligner, lengths, y)
        if runs is not None and [len(r) for r in runs] != lengths:
            raise InputError("runs do not have one entry per aligning sample.")
        full, fit, blocks = _prepare_halves(aligner, subjects, y)
        found = cross_fit(halves_of(codes, runs), codes, full, fit, blocks=blocks)
        return _check_folds(*found, n_permutations, random_state)
    except BrainweaveError as error:
        return AlignmentCheck(str(error))


def count_holding(
    aligner: Any, bases: list[SubjectBasis], graph: Graph, found: Solution, k: int
) -> int:
    """Count a GDM's components that hold up on held-out samples."""
    k = max(1, found.n_informative(k))
    fit = partial(fit_by_grams, aligner, bases, k, graph=graph)
    try:
        codes, full = _graph_codes(graph), found.first(k).features
        held_out = cross_fit(halves_of(codes, None), codes, full, fit)
        check = _check_folds(*held_out, N_PERMUTATIONS, 0)
    except BrainweaveError:
        return k
    if check.worked:
        return check.n_to_keep
    # a subject who joins later needs as many dimensions as there are components
    kept = [b.n_kept for b in bases] if aligner._needs_eigenbasis else [k]
    k = min(k, PAPERS_COMPONENTS, *kept)
    warn_user(
        f"{check.verdict} n_components='auto' keeps {k}, since nothing tells how many; "
        "do not read anything into them.",
        AlignmentWarning,
    )
    return k


def _check_folds(
    folds: list[Fold], features: list[Matrix], n_permutations: int, random_state: int
) -> AlignmentCheck:
    agreement, p, rest = permutation_test(folds, n_permutations, random_state)
    return AlignmentCheck("", agreement, p, rest, n_permutations, features)


def _check_of_file(aligner: Any) -> AlignmentCheck:
    """Return the check that came with a model file."""
    table = getattr(aligner, "_component_table", None) or {}
    if "p" not in table:
        return AlignmentCheck("the model came without its aligning samples; pass X.")
    p = np.asarray(table["p"], float)
    if not np.isfinite(p).any():
        return AlignmentCheck("that could not be checked when the model was saved.")
    rest = np.asarray(table.get("p_rest", np.full_like(p, np.nan)), float)
    agreement = np.asarray(table["agreement_cv"], float)
    return AlignmentCheck(agreement_cv=agreement, p=p, p_rest=rest)


def graph_fit(model: Any) -> Matrix:
    """Return how well each shared feature fits the graph; larger is better.

    These are the eigenvalues, or minus them under an energy, where the problem is one
    of least eigenvalues.
    """
    values = np.asarray(model.eigenvalues_, float)
    return values if hasattr(model, "shrinkage_") else -values


def component_table(model: Any, check: AlignmentCheck | None) -> Any:
    """Describe the components of a GDM; see :meth:`GDM.component_summary`."""
    import pandas as pd

    if not hasattr(model, "bases_") or check is None:  # of a file: the table alone
        known = getattr(model, "_component_table", None)
        if known is None:
            raise InputError(
                "This model came back without its bases, so its components cannot "
                "be described. Call component_summary before pickling it, or use "
                "brainweave.save, which keeps the table."
            )
        if "eigenvalue" in known:  # a file of an older version
            rest = {name: v for name, v in known.items() if name != "eigenvalue"}
            known = {"graph_fit": graph_fit(model), **rest}
        return pd.DataFrame(known).rename_axis("component")
    k, graph = model.n_components_, model.graph_
    features = [np.asarray(model._features(i), float) for i in range(len(model.bases_))]
    agreement = nothing = np.full(k, np.nan)
    if graph.groups:
        size = len(graph.groups[0].names)
        agreement = agreement_of_groups(features, _graph_codes(graph), size)
    table = {
        "graph_fit": graph_fit(model),
        "informative": np.arange(k) < model.n_informative_,
        "agreement": agreement,
        "agreement_cv": nothing,
        "p": nothing,
        "p_rest": nothing,
    }
    if check.available:
        table |= {
            "informative": check.holds,
            "agreement_cv": check.agreement_cv,
            "p": check.p,
            "p_rest": check.p_rest,
        }
    for i, (basis, feature) in enumerate(zip(model.bases_, features, strict=True)):
        # of a feature f = K m the weights explain f^T K f / f^T f of the trace of K
        explained = (feature * basis.gram_times(feature)).sum(axis=0)
        norm = (feature**2).sum(axis=0)
        whole = basis.power if basis.energy == 1 else float(basis.spectrum.sum())
        table[f"variance_{i}"] = explained / np.where(norm > 0, norm, 1) / whole
    return pd.DataFrame(table).rename_axis("component")


# -- what is known of the samples ------------------------------------------------------


def _list_unless_missing(known: Iterable[Any]) -> list[Any] | None:
    """Return what is known of all subjects; None if it is not known of one."""
    found = list(known)
    return None if any(k is None for k in found) else found


def _graph_codes(graph: Graph) -> list[Codes]:
    if not graph.groups:
        raise InputError(
            "the graph is a matrix of weights, without groups in which subjects could "
            "be compared."
        )
    return [graph.groups[0].codes[rows] for rows in graph.slices()]


def _groups_of_samples(aligner: Any, lengths: list[int], y: Any) -> list[Codes]:
    """Return the group of every sample: what subjects are compared by."""
    graph = getattr(aligner, "graph_", None)
    if graph is not None:
        if list(graph.lengths) != lengths:
            raise InputError("the samples given are not those the model aligned.")
        return _graph_codes(graph)
    inner = getattr(aligner, "aligner", aligner)
    setting = inner.get_params(deep=False).get("graph")
    if not inner._joins_samples:
        raise InputError("nothing was aligned; every feature is a voxel.")
    if setting is not None and not is_named(setting, *GRAPH_NAMES):
        raise InputError("the groups of a graph of your own are not known here.")
    if y is not None and is_named(setting, "labels+time"):
        y = [split_labels_and_ids(known)[0] for known in y]
    by_label = "labels" in inner._joined_by()
    if y is None and by_label:
        raise InputError("the labels of the aligning samples are not known; pass y.")
    if y is not None and (by_label or setting == "time"):
        graph = time_graph([np.asarray(v, object).tolist() for v in y])
        if list(graph.lengths) != lengths:
            raise InputError("y does not have one entry per aligning sample.")
        codes = [graph.groups[0].codes[rows].copy() for rows in graph.slices()]
        if setting is None and inner._joined_by() != {"labels"}:
            codes = _with_time_locked(codes, len(graph.groups[0].names))
        return codes
    if len(set(lengths)) > 1:
        raise InputError("subjects have different numbers of samples, and no labels.")
    return [np.arange(n, dtype=np.intp) for n in lengths]


def _with_time_locked(codes: list[Codes], n_labels: int) -> list[Codes]:
    """Put samples locked in time in a group each: all of them if all have labels."""
    if all((c != NO_GROUP).all() for c in codes):
        return [np.arange(c.size, dtype=np.intp) for c in codes]
    for own in codes:
        locked = own == NO_GROUP
        own[locked] = n_labels + np.arange(locked.sum())
    return codes


def _prepare_halves(
    aligner: Any, subjects: list[Any] | None, y: Any
) -> tuple[list[Matrix], Any, Any]:
    """Return all features, what fits a half, and features that rotate together."""
    bases = getattr(aligner, "bases_", None)
    if bases is None:
        found = aligner.transform(subjects)
    else:
        found = [aligner._features(i) for i in range(len(aligner.maps_))]
    full = [np.asarray(to_numpy(f), float) for f in found]
    if aligner._from_grams:
        if bases is None:  # a model from a file, and its samples
            bases = aligner._read_bases(subjects, y)
        graph = getattr(aligner, "graph_", None)
        labels = "labels" in aligner._joined_by() or aligner._learns_from_labels
        known = y if graph is None and labels else None
        k = full[0].shape[1]
        fit = partial(fit_by_grams, aligner, bases, k, y=known, graph=graph)
        return full, fit, None
    if subjects is None and bases is not None:
        subjects = [b._data for b in bases]
    if subjects is None or any(s is None for s in subjects):
        raise InputError(
            f"{type(aligner).__name__} needs the aligning samples: pass X."
        )
    blocks = None
    if not aligner._takes_bases:  # piecewise
        # features of a searchlight are voxels, which keep their places
        parcels = np.asarray(getattr(aligner, "feature_parcels_", ()), dtype=object)
        kinds = dict.fromkeys(parcels.tolist())
        blocks = [np.flatnonzero(parcels == kind) for kind in kinds]
    return full, partial(fit_by_samples, aligner, subjects, y=y), blocks
