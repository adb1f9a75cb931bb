r"""Whether alignment worked: what holds up on samples that did not align.

Any model agrees on the samples it was fitted on, also one of pure noise. So half of the
aligning samples of every subject are held out, a model of the others maps them, and
subjects are compared there; then the halves change roles. With :math:`h_{it}` the
standardised held-out feature of sample t of subject i, and
:math:`u_{ic} = n_{ic}^{-1/2} \sum_{t \in c} h_{it}` over the :math:`n_{ic}` samples of
group c, the statistic of a feature is :math:`\sum_{i<j} \sum_c u_{ic} u_{jc}`. Its null
distribution comes from shuffling the held-out labels within each subject; the model of
the other half never saw them. Labels move in the blocks in which they were shown, and
time points by circular shifts, so that slow signals do not pass for shared ones.

The labels of one half train the model of the other, so the two statistics depend on
each other. Their null distributions are averaged quantile by quantile, as for two that
rise and fall together: p is at most too large. It is corrected for the number of
components by the distribution of the largest statistic. Component k of the model of a
half stands for component k of the full model: matching them in any cleverer way would
use a model that knows the held-out labels.
"""

from dataclasses import dataclass, field
from typing import Any

import numpy as np
import scipy.sparse
from numpy.typing import NDArray
from sklearn.utils.validation import check_is_fitted

from brainweave._arrays import to_numpy
from brainweave._validation import check_int, check_list_of_subjects
from brainweave.aligners.crossfit import (
    Codes,
    Fold,
    GramFit,
    SampleFit,
    cross_fit,
    halves_of,
)
from brainweave.aligners.gdm_graph import (
    GRAPH_NAMES,
    is_named,
    known_of,
    split_known,
)
from brainweave.aligners.no_alignment import NoAlignment
from brainweave.aligners.piecewise import PiecewiseAligner
from brainweave.aligners.robust_srm import RobustSRM
from brainweave.aligners.semisupervised_srm import SemiSupervisedSRM
from brainweave.basis import SubjectBasis
from brainweave.exceptions import BrainweaveError, InputError
from brainweave.graphs import NO_GROUP, Graph, time_graph

__all__ = ["AlignmentCheck", "alignment_check"]

Matrix = NDArray[np.float64]

SIGNIFICANT = 0.05
N_PERMUTATIONS = 199
CHUNK = 4_000_000  # numbers held at a time while shuffling


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
    n_permutations : int
        How many.
    features : list of ndarray of shape (n_samples_i, n_components), or None
        Shared features of every sample under a model that was fitted without it, turned
        to those of the full model; for pictures.
    """

    reason: str = ""
    agreement_cv: Matrix = field(default_factory=lambda: np.empty(0))
    p: Matrix = field(default_factory=lambda: np.empty(0))
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
    def p_value(self) -> float:
        """Of the whole: that any component is shared."""
        return float(np.nanmin(self.p)) if np.isfinite(self.p).any() else float("nan")

    @property
    def agreement(self) -> float:
        """Mean of ``agreement_cv`` over components."""
        known = self.agreement_cv[np.isfinite(self.agreement_cv)]
        return float(known.mean()) if known.size else float("nan")

    @property
    def worked(self) -> bool | None:
        """Whether anything shared was found; None if that is not known."""
        return self.n_holding > 0 if self.available else None

    @property
    def verdict(self) -> str:
        """All this in one sentence."""
        if not self.available:
            return f"Whether alignment worked was not checked: {self.reason}"
        n, total = self.n_holding, len(self.p)
        many = f"{n} of {total} shared features" if total > 1 else "the shared feature"
        if n == 0:
            return (
                "No evidence of a shared space: on samples that did not align, "
                f"subjects agree no more than by chance in any of {total} shared "
                f"features (mean correlation {self.agreement:.2f}, p = "
                f"{self.p_value:.2g})."
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
    y, runs = _from_subjects(aligner, subjects, y, runs)
    known = getattr(aligner, "bases_", None)
    if subjects is None and known is None:
        return _from_table(aligner)
    try:
        lengths = [b.n_samples for b in known] if known else _lengths(subjects or [])
        codes = _known_groups(aligner, lengths, y)
        if runs is not None and [len(r) for r in runs] != lengths:
            raise InputError("runs do not have one entry per aligning sample.")
        folds = _folds(aligner, subjects, y, codes, runs=runs)
    except BrainweaveError as error:
        return AlignmentCheck(str(error))
    return judge(folds, codes, n_permutations=n_permutations, random_state=random_state)


def check_graph_components(
    aligner: Any, bases: list[SubjectBasis], graph: Graph, full: list[Matrix]
) -> AlignmentCheck:
    """Check the components of a GDM that is about to choose how many to keep."""
    try:
        codes = _graph_codes(graph)
        fit = GramFit(aligner, bases, full[0].shape[1], graph=graph)
        folds = cross_fit(halves_of(codes, None), codes, full, fit)
    except BrainweaveError as error:
        return AlignmentCheck(str(error))
    return judge(folds, codes, n_permutations=N_PERMUTATIONS, random_state=0)


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
        return pd.DataFrame(known).rename_axis("component")
    k, graph = model.n_components_, model.graph_
    features = [np.asarray(model._features(i), float) for i in range(len(model.bases_))]
    agreement = nothing = np.full(k, np.nan)
    if graph.groups:
        size, codes = len(graph.groups[0].names), _graph_codes(graph)
        pairs = zip(features, codes, strict=True)
        means = [group_means(f, own, size) for f, own in pairs]
        agreement = mean_pairwise_correlation(np.array(means))
    table = {
        "eigenvalue": model.eigenvalues_,
        "informative": np.arange(k) < model.n_informative_,
        "agreement": agreement,
        "agreement_cv": nothing,
        "p": nothing,
    }
    if check.available:
        table |= {
            "informative": check.holds,
            "agreement_cv": check.agreement_cv,
            "p": check.p,
        }
    for i, (basis, feature) in enumerate(zip(model.bases_, features, strict=True)):
        # of a feature f = K m the weights explain f^T K f / f^T f of the trace of K
        explained = (feature * basis.gram_times(feature)).sum(axis=0)
        norm = (feature**2).sum(axis=0)
        whole = basis.power if basis.energy == 1 else float(basis.spectrum.sum())
        table[f"variance_{i}"] = explained / np.where(norm > 0, norm, 1) / whole
    return pd.DataFrame(table).rename_axis("component")


# -- what is known of the samples ------------------------------------------------------


def _from_subjects(
    aligner: Any, subjects: list[Any] | None, y: Any, runs: Any
) -> tuple[Any, Any]:
    """Take what is not given from subjects that know it."""
    known = subjects is not None and all(hasattr(s, "labels") for s in subjects)
    if known and subjects is not None:
        if y is None:
            found = [known_of(s, _graph_setting(aligner)) for s in subjects]
            y = None if any(v is None for v in found) else found
        if runs is None:
            found = [getattr(s, "runs", None) for s in subjects]
            runs = None if any(v is None for v in found) else found
    return y, runs


def _graph_setting(aligner: Any) -> Any:
    inner = getattr(aligner, "aligner", aligner)
    return inner.get_params(deep=False).get("graph")


def _lengths(subjects: list[Any]) -> list[int]:
    return [int(s.n_samples if hasattr(s, "n_samples") else len(s)) for s in subjects]


def _graph_codes(graph: Graph) -> list[Codes]:
    if not graph.groups:
        raise InputError(
            "the graph is a matrix of weights, without groups in which subjects could "
            "be compared."
        )
    return [graph.groups[0].codes[rows] for rows in graph.slices()]


def _known_groups(aligner: Any, lengths: list[int], y: Any) -> list[Codes]:
    """Return the group of every sample: what subjects are compared by."""
    graph = getattr(aligner, "graph_", None)
    if graph is not None:
        if list(graph.lengths) != lengths:
            raise InputError("the samples given are not those the model aligned.")
        return _graph_codes(graph)
    inner, setting = getattr(aligner, "aligner", aligner), _graph_setting(aligner)
    if isinstance(inner, NoAlignment):
        raise InputError("nothing was aligned; every feature is a voxel.")
    if setting is not None and not is_named(setting, *GRAPH_NAMES):
        raise InputError("the groups of a graph of your own are not known here.")
    if y is not None and is_named(setting, "labels+time"):
        y = [split_known(known)[0] for known in y]
    by_label = inner._joins_by_label()
    if y is None and by_label:
        raise InputError("the labels of the aligning samples are not known; pass y.")
    if y is not None and (by_label or setting == "time"):
        graph = time_graph([np.asarray(v, object).tolist() for v in y])
        if list(graph.lengths) != lengths:
            raise InputError("y does not have one entry per aligning sample.")
        codes = [graph.groups[0].codes[rows].copy() for rows in graph.slices()]
        if isinstance(inner, SemiSupervisedSRM):
            codes = _with_locked(codes, len(graph.groups[0].names))
        return codes
    if len(set(lengths)) > 1:
        raise InputError("subjects have different numbers of samples, and no labels.")
    return [np.arange(n, dtype=np.intp) for n in lengths]


def _with_locked(codes: list[Codes], n_labels: int) -> list[Codes]:
    """Put samples locked in time in a group each: all of them if all have labels."""
    if all((c != NO_GROUP).all() for c in codes):
        return [np.arange(c.size, dtype=np.intp) for c in codes]
    for own in codes:
        locked = own == NO_GROUP
        own[locked] = n_labels + np.arange(locked.sum())
    return codes


# -- features --------------------------------------------------------------------------


def _folds(
    aligner: Any,
    subjects: list[Any] | None,
    y: Any,
    codes: list[Codes],
    *,
    runs: Any,
) -> list[Fold]:
    halves = halves_of(codes, runs)
    bases = getattr(aligner, "bases_", None)
    if bases is None:
        full = [np.asarray(to_numpy(f), float) for f in aligner.transform(subjects)]
    else:
        each = range(len(aligner.maps_))
        full = [np.asarray(to_numpy(aligner._features(i)), float) for i in each]
    k = full[0].shape[1]
    if not isinstance(aligner, (PiecewiseAligner, RobustSRM)):
        if bases is None:  # a model from a file, and its samples
            bases = aligner._read_bases(subjects, y)
        graph = getattr(aligner, "graph_", None)
        labels = y if graph is None and aligner._joins_by_label() else None
        fit: Any = GramFit(aligner, bases, k, y=labels, graph=graph)
        return cross_fit(halves, codes, full, fit)
    if subjects is None and bases is not None:
        subjects = [b._data for b in bases]
    if subjects is None or any(s is None for s in subjects):
        raise InputError(
            f"{type(aligner).__name__} needs the aligning samples: pass X."
        )
    blocks = None
    if isinstance(aligner, PiecewiseAligner):
        # features of a searchlight are voxels, which keep their places
        parcels = np.asarray(getattr(aligner, "feature_parcels_", ()), dtype=object)
        kinds = dict.fromkeys(parcels.tolist())
        blocks = [np.flatnonzero(parcels == kind) for kind in kinds]
    fit = SampleFit(aligner, subjects, y)
    return cross_fit(halves, codes, full, fit, blocks=blocks)


# -- statistics ------------------------------------------------------------------------


def judge(
    folds: list[Fold], codes: list[Codes], *, n_permutations: int, random_state: int
) -> AlignmentCheck:
    """Compare the agreement on held-out samples with that under shuffled labels."""
    k = folds[0].features[0].shape[1]
    observed, null, agreements = np.zeros(k), np.zeros(n_permutations), []
    for number, fold in enumerate(folds):
        held = [
            (_standardized(f[j]), c[r][j])
            for f, c, r, j in zip(
                fold.features, codes, fold.rows, fold.judged, strict=True
            )
        ]
        spots = [r[j] for r, j in zip(fold.rows, fold.judged, strict=True)]
        if any(len(c) < 2 for _, c in held) or not _meet([c for _, c in held]):
            return AlignmentCheck(
                "subjects share too few groups of samples once half are held out."
            )
        size = max(int(c.max()) for _, c in held) + 1
        agreements.append(
            mean_pairwise_correlation(
                np.array([group_means(f, c, size) for f, c in held])
            )
        )
        draws = [
            _Shuffles(c, s, [random_state, number, i], n_permutations)
            for i, ((_, c), s) in enumerate(zip(held, spots, strict=True))
        ]
        values = _statistics([f for f, _ in held], draws, size, n_permutations)
        spread = values.std(axis=0)
        values = (values - values.mean(axis=0)) / np.where(spread > 0, spread, np.inf)
        observed += values[0] / len(folds)
        null += np.sort(values[1:].max(axis=1)) / len(folds)
    # a tie counts against the alignment, also one broken by rounding
    as_good = (null[:, None] >= observed - 1e-9).sum(axis=0)
    p = (1 + as_good) / (1 + n_permutations)
    with np.errstate(invalid="ignore"):
        agreement = np.nanmean(agreements, axis=0) if agreements else np.full(k, np.nan)
    return AlignmentCheck(
        agreement_cv=agreement,
        p=p,
        n_permutations=n_permutations,
        features=_gathered(folds, codes),
    )


def _standardized(features: Matrix) -> Matrix:
    centred = features - features.mean(axis=0)
    scale = np.sqrt((centred**2).mean(axis=0))
    return np.asarray(centred / np.where(scale > 1e-12 * scale.max(), scale, np.inf))


def _meet(codes: list[Codes]) -> bool:
    """Whether some two subjects have two groups in common."""
    sets = [set(c.tolist()) for c in codes]
    pairs = [(a, b) for i, a in enumerate(sets) for b in sets[i + 1 :]]
    return any(len(a & b) >= 2 for a, b in pairs)


def _gathered(folds: list[Fold], codes: list[Codes]) -> list[Matrix]:
    """Return the held-out features of all samples, in their order."""
    k = folds[0].features[0].shape[1]
    gathered = [np.full((c.size, k), np.nan) for c in codes]
    for fold in folds:
        for out, rows, features in zip(gathered, fold.rows, fold.turned, strict=True):
            out[rows] = features
    return gathered


class _Shuffles:
    """Group codes of one subject's held-out samples: as they are, then shuffled."""

    def __init__(
        self, codes: Codes, spots: NDArray[np.intp], seed: list[int], n: int
    ) -> None:
        self.codes = codes
        self.rng = np.random.default_rng(seed)
        _, first, count = np.unique(codes, return_index=True, return_counts=True)
        self.single = np.isin(codes, codes[first[count == 1]])
        rest = np.flatnonzero(~self.single)
        changed = np.flatnonzero(
            (np.diff(codes[rest]) != 0) | (np.diff(spots[rest]) != 1)
        )
        blocks = np.split(rest, changed + 1) if rest.size else []
        if len(blocks) <= len(np.unique(codes[rest])):
            # sorted by category: the order tells nothing of time
            blocks = [np.array([r]) for r in rest]
        self.rest, self.blocks = rest, blocks
        self.equal = len({len(b) for b in blocks}) <= 1

    def draw(self, n: int, *, keep_first: bool) -> NDArray[np.intp]:
        """Return n rows of codes; the first as they are, if asked for."""
        out = np.tile(self.codes, (n, 1))
        places = np.flatnonzero(self.single)
        for row in out[1 if keep_first else 0 :]:
            if places.size > 1:
                row[places] = np.roll(row[places], self.rng.integers(places.size))
            if self.rest.size:
                order = self.rng.permutation(len(self.blocks))
                row[self.rest] = self.codes[
                    np.concatenate([self.blocks[i] for i in order])
                ]
        return out


def _statistics(
    features: list[Matrix], draws: list[_Shuffles], size: int, n_permutations: int
) -> Matrix:
    """Return the statistic of every component: as observed, then permuted."""
    k = features[0].shape[1]
    values = np.zeros((1 + n_permutations, k))
    step = max(1, CHUNK // (size * k))
    for start in range(0, 1 + n_permutations, step):
        n = min(step, 1 + n_permutations - start)
        total, own = np.zeros((n, size, k)), np.zeros((n, k))
        for F, shuffles in zip(features, draws, strict=True):
            codes = shuffles.draw(n, keep_first=start == 0)
            counts = np.bincount(shuffles.codes, minlength=size)
            weights = 1 / np.sqrt(counts[codes])
            cells = codes + size * np.arange(n)[:, None]
            columns = np.broadcast_to(np.arange(len(F)), codes.shape)
            picked = scipy.sparse.csr_array(
                (weights.ravel(), (cells.ravel(), columns.ravel())),
                shape=(n * size, len(F)),
            )
            U = np.asarray(picked @ F).reshape(n, size, k)
            total += U
            own += (U * U).sum(axis=1)
        values[start : start + n] = ((total * total).sum(axis=1) - own) / 2
    return values


def group_means(features: Matrix, codes: Codes, size: int) -> Matrix:
    """Average features over the samples of each group; NaN for a group without any."""
    known = codes != NO_GROUP
    counts = np.bincount(codes[known], minlength=size).astype(float)
    sums = np.zeros((size, features.shape[1]))
    np.add.at(sums, codes[known], features[known])
    return np.asarray(sums / np.where(counts > 0, counts, np.nan)[:, None])


def mean_pairwise_correlation(means: Matrix) -> Matrix:
    """Average over pairs of subjects the correlation over the groups both have."""
    n_subjects, _, k = means.shape
    total, pairs = np.zeros(k), np.zeros(k)
    for i in range(n_subjects):
        for j in range(i + 1, n_subjects):
            both = ~np.isnan(means[i, :, 0] + means[j, :, 0])
            if both.sum() < 2:
                continue
            a = means[i, both] - means[i, both].mean(axis=0)
            b = means[j, both] - means[j, both].mean(axis=0)
            norm = np.sqrt((a**2).sum(axis=0) * (b**2).sum(axis=0))
            total += (a * b).sum(axis=0) / np.where(norm > 0, norm, 1)
            pairs += 1
    return np.divide(total, pairs, out=np.full(k, np.nan), where=pairs > 0)


def _from_table(aligner: Any) -> AlignmentCheck:
    """Return the check that came with a model file."""
    table = getattr(aligner, "_component_table", None) or {}
    if "p" not in table:
        return AlignmentCheck("the model came without its aligning samples; pass X.")
    p = np.asarray(table["p"], float)
    if not np.isfinite(p).any():
        return AlignmentCheck("that could not be checked when the model was saved.")
    return AlignmentCheck(agreement_cv=np.asarray(table["agreement_cv"], float), p=p)
