"""Whether alignment worked, and what the components mean."""

from collections.abc import Iterable
from contextlib import closing
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, ClassVar, cast

import numpy as np
from numpy.typing import NDArray
from scipy.stats import false_discovery_control
from sklearn.utils.validation import check_is_fitted

from brainweave._core.arrays import Codes, Matrix, to_numpy
from brainweave._core.exceptions import (
    AlignmentWarning,
    BrainweaveError,
    InputError,
    warn_user,
)
from brainweave._core.html import check_html
from brainweave._core.stored import Stored
from brainweave._core.validation import check_int, check_list_of_subjects
from brainweave.aligners.check.agreement import (
    SIGNIFICANT,
    agreement_of_groups,
    p_of,
    permutation_test,
)
from brainweave.aligners.check.held_out import (
    CANNOT_TELL,
    cross_fit,
    fit_by_grams,
    fit_by_samples,
)
from brainweave.aligners.gdm.eigenproblem import Solution
from brainweave.aligners.piecewise.piecewise import PieceLog, fit_piece, read_samples
from brainweave.basis.basis import SubjectBasis
from brainweave.graphs.builders import NO_GROUP, Graph, time_graph

N_PERMUTATIONS = 199
PAPERS_COMPONENTS = 10  # where nothing tells how many
Draws = tuple[int, int]  # how often signs are drawn, and the seed


@dataclass(frozen=True)
class AlignmentCheck(Stored):
    """Result of :func:`alignment_check`.

    Attributes
    ----------
    reason : str
        Why the alignment cannot be checked; empty if it was checked.
    agreement_cv : ndarray of shape (n_components,)
        Agreement between subjects on each feature, on held-out samples and without slow
        trends: the mean correlation of time courses, or of samples of the
        same group. Of a piecewise aligner, that of each piece.
    p : ndarray of shape (n_components,)
        p-value of the hypothesis that neither this component nor any later one is
        shared. Of a piecewise aligner, of each piece, corrected for their number.
    n_together : int
        Number of leading components in ``agreement``, which ``p_value`` tests: those
        for which the evidence is strongest.
    n_permutations : int
        How often signs were drawn.
    pieces : DataFrame or None
        Of a piecewise aligner, a row per piece: ``agreement``, ``p``, ``n_features``,
        and p corrected by the largest statistic (``p_max``) and the false discovery
        rate (``p_fdr``).
    components : DataFrame or None
        Of a piecewise aligner, a row per component of each piece.
    features : list of ndarray of shape (n_samples_i, n_components), or None
        Shared features of every sample by a model fitted without it; for pictures.
    """

    # without the features, which files do not keep
    _stored: ClassVar[dict[str, Any]] = {
        "reason": str,
        "agreement_cv": "n",
        "p": "n",
        "n_together": int,
        "n_permutations": int,
        "pieces?": object,
        "components?": object,
    }

    reason: str = ""
    agreement_cv: Matrix = field(default_factory=lambda: np.empty(0))
    p: Matrix = field(default_factory=lambda: np.empty(0))
    n_together: int = 1
    n_permutations: int = 0
    pieces: Any = field(default=None, compare=False)
    components: Any = field(default=None, compare=False)
    features: list[Matrix] | None = field(default=None, compare=False)
    _statistic: float = field(default=0.0, compare=False)
    _null: Matrix | None = field(default=None, compare=False)

    @property
    def available(self) -> bool:
        """Whether the alignment could be checked."""
        return not self.reason

    @property
    def holds(self) -> NDArray[np.bool_]:
        """Mask of the significant components: the first ones, as long as p < .05."""
        return np.asarray(self.p < SIGNIFICANT)

    @property
    def n_holding(self) -> int:
        """Number of significant components."""
        return int(self.holds.sum())

    @property
    def p_value(self) -> float:
        """p-value of the hypothesis that nothing is shared."""
        return float(np.nanmin(self.p)) if np.isfinite(self.p).any() else float("nan")

    @property
    def agreement(self) -> float:
        """Mean agreement of the ``n_together`` components, or of the best piece."""
        if self.pieces is not None:
            return float(self.agreement_cv[int(np.nanargmin(self.p))])
        return float(self.agreement_cv[: self.n_together].mean())

    @property
    def worked(self) -> bool | None:
        """Whether a shared space was found; None if that could not be tested."""
        return bool(self.p_value < SIGNIFICANT) if self.available else None

    @property
    def verdict(self) -> str:
        """The result in one sentence."""
        if self.reason.startswith(CANNOT_TELL):
            return f"Whether alignment worked {self.reason}"
        if not self.available:
            return f"Whether alignment worked was not checked: {self.reason}"
        total, together = len(self.p), self.n_together
        what, where = "shared feature", ""
        if self.pieces is not None:
            what, where = str(self.pieces.index.name), " in the clearest"
        elif together < total:
            where = f" of the first {together if together > 1 else ''}".rstrip()
        many = f"{total} {what}s" if total > 1 else f"the {what}"
        if self.worked:
            count = f"{self.n_holding} of " if total > 1 else ""
            start, end = "Alignment worked", f"agree in {count}{many}"
        else:
            start = "No evidence of a shared space"
            end = f"agree no more than by chance in {'any of ' * (total > 1)}{many}"
        p, agreement = self.p_value, f"{where and where + ':'} {self.agreement:z.2f}"
        return (
            f"{start}: on held-out samples, subjects {end} "
            f"(correlation{agreement} without slow trends, p = {p:.2g})."
        )

    def __str__(self) -> str:
        return self.verdict

    def __repr__(self) -> str:
        return f"AlignmentCheck({self})"

    _repr_html_ = check_html


def _check_is_fitted_aligner(aligner: Any) -> None:
    if not hasattr(aligner, "fit_new_subject"):
        raise TypeError(
            "alignment_check takes a fitted aligner, such as GDM().fit(X, y); got "
            f"{type(aligner).__name__}."
        )
    check_is_fitted(aligner, "maps_")


def alignment_check(
    aligner: Any,
    X: Any = None,
    y: Any = None,
    *,
    runs: Any = None,
    n_permutations: int = N_PERMUTATIONS,
    random_state: int = 0,
) -> AlignmentCheck:
    """Test on held-out samples whether a fitted aligner found a shared space.

    Half of the aligning samples are held out: every other run, where runs are known,
    else the second half of the scan, cut between two blocks. A model fitted on the
    other half maps them, and subjects are compared; then the halves are swapped. Slow
    trends are no evidence, so polynomials of order 2 (higher in runs of more than 150
    samples) are removed from both halves. The null distribution consists of time
    courses with the observed spectrum, whose cosines have random signs, so noise may
    be autocorrelated. Components are counted in their order, as long as p < .05.

    With default options, the result is stored with the model and in its file.

    Parameters
    ----------
    aligner : aligner
        A fitted aligner. Parcelwise and Searchlight are checked piece by piece.
    X : list of arrays, or Study, optional
        The aligning samples, for models from a file, Parcelwise and Searchlight.
    y : list of array-like, optional
        The labels of the fit, if the aligner does not store them: for
        SemiSupervisedSRM, and for piecewise alignment by labels.
    runs : list of array-like, optional
        The run of every sample, if the model was not fitted on a Study with runs.
    n_permutations : int, default=199
        How often signs are drawn.
    random_state : int, default=0
        Seed of the signs.

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
    _check_is_fitted_aligner(aligner)
    check_int("n_permutations", n_permutations, minimum=1, owner="alignment_check")
    aligner = getattr(aligner, "best_estimator_", aligner)
    subjects = None if X is None else check_list_of_subjects(X, owner="alignment_check")
    if subjects is not None and len(subjects) != len(aligner.maps_):
        raise InputError(
            f"alignment_check got {len(subjects)} subjects; the model was fitted on "
            f"{len(aligner.maps_)}."
        )
    draws = n_permutations, random_state
    usual = y is None and runs is None and draws == (N_PERMUTATIONS, 0)
    known = vars(aligner).get("_check") if usual else None
    bases = getattr(aligner, "bases_", None)
    nothing = subjects is None and bases is None
    if known is not None and (nothing or known.features is not None):
        return cast(AlignmentCheck, known)
    if nothing:
        return AlignmentCheck("the model came without its aligning samples; pass X.")
    given: list[Any] = bases or subjects or []
    lengths = [int(s.n_samples if hasattr(s, "n_samples") else len(s)) for s in given]
    for name, own in (("y", y), ("runs", runs)):
        got = lengths if own is None else [len(np.atleast_1d(part)) for part in own]
        if got != lengths:
            raise InputError(
                f"{name} of alignment_check has {got} entries for the {lengths} "
                "aligning samples of the subjects. Give one per sample."
            )
    if y is None and all(hasattr(s, "labels") for s in subjects or [None]):
        y = _list_unless_missing(aligner._y_of(s) for s in subjects or [])
    if runs is None:
        runs = _list_unless_missing(getattr(s, "runs", None) for s in given)
    try:
        if not aligner._takes_bases:
            found = _check_pieces(aligner, cast(Any, subjects), y, runs, draws)
        else:
            codes = _groups_of_samples(aligner, lengths, y)
            prepared = _prepare(aligner, subjects, y)
            found, _ = _check_halves(codes, runs, *prepared, draws)
    except BrainweaveError as error:
        found = AlignmentCheck(str(error))
    if known is not None:  # one model, one answer: what is new are the features
        found = replace(cast(AlignmentCheck, known), features=found.features)
    if usual and (found.available or subjects is None):
        aligner.__dict__["_check"] = found
    return found


def stored_check(aligner: Any) -> AlignmentCheck:
    """Return what is known of a fitted aligner, or check it now."""
    return vars(aligner).get("_check") or alignment_check(aligner)


def count_holding(
    aligner: Any, bases: list[SubjectBasis], graph: Graph, found: Solution, k: int
) -> int:
    """Count a GDM's components that hold up on held-out samples; keep the check."""
    k = max(1, found.n_informative(k))
    fit = partial(fit_by_grams, aligner, bases, k, graph=graph)
    runs, draws = [b.runs for b in bases], (N_PERMUTATIONS, 0)
    full, by_share = found.first(k).features, "labels" not in aligner._joined_by()
    try:
        codes = _graph_codes(graph)
        check, kept = _check_halves(codes, runs, full, fit, draws, by_share=by_share)
    except BrainweaveError as error:
        aligner.__dict__["_check"] = AlignmentCheck(str(error))
        by_groups = all(term.features is None for term in graph.groups)
        if k > PAPERS_COMPONENTS and by_groups:
            warn_user(
                f"n_components='auto' keeps {PAPERS_COMPONENTS} of {k} components: how "
                f"many subjects share could not be tested. {error} Check the ids of "
                "the samples (same units, nothing repeated) or give n_components.",
                AlignmentWarning,
            )
        return min(k, PAPERS_COMPONENTS)
    if not check.worked:
        # a subject who joins later needs as many dimensions as there are components
        most = [b.n_kept for b in bases] if aligner._needs_eigenbasis else [k]
        k = min(k, PAPERS_COMPONENTS, *most)
        warn_user(
            f"{check.verdict} n_components='auto' keeps {k}, since their number "
            "cannot be determined; do not interpret them.",
            AlignmentWarning,
        )
    else:
        k = kept
    aligner.__dict__["_check"] = replace(
        check, agreement_cv=check.agreement_cv[:k], p=check.p[:k], features=None
    )
    return k


def _check_halves(
    codes: list[Codes],
    runs: Any,
    full: list[Matrix],
    fit: Any,
    draws: Draws,
    *,
    by_share: bool = False,
) -> tuple[AlignmentCheck, int]:
    """Check features on held-out halves; return how many an automatic number keeps."""
    folds, features = cross_fit(codes, runs, full, fit)
    test = permutation_test(folds, *draws, by_share=by_share)
    check = AlignmentCheck(
        agreement_cv=test.agreement,
        p=test.p,
        n_together=test.n_together,
        n_permutations=draws[0],
        features=features,
        _statistic=test.statistic,
        _null=test.null,
    )
    return check, max(1, test.n_kept)


def _check_pieces(
    aligner: Any, subjects: list[Any], y: Any, runs: Any, draws: Draws
) -> AlignmentCheck:
    """Check every piece by itself; the same signs for all, so that they compare."""
    import pandas as pd

    if y is None and "labels" in aligner._joined_by():
        raise InputError("the labels of the aligning samples are unknown; pass y.")
    arrays = [read_samples(s, f"X[{i}]") for i, s in enumerate(subjects)]
    spaces = [getattr(s, "space", None) for s in subjects]
    pieces = aligner._pieces_of(arrays, spaces)
    log, of_run = PieceLog(aligner._piece), runs or [None] * len(arrays)
    found = aligner._each_piece(check_local, pieces, arrays, log, y, of_run, draws)
    with closing(found) as results:
        checks = {pieces.names[number]: check for number, check in results}
    listed = [check for check in checks.values() if check.available]
    if not listed:
        raise InputError(next(iter(checks.values())).reason)
    # all had the same signs: of each draw, the largest statistic of all pieces
    largest = np.max([check._null for check in listed], axis=0)
    p = np.array([check.p_value for check in listed])
    columns = {
        "n_features": [len(check.p) for check in listed],
        "agreement": [check.agreement for check in listed],
        "p": p,
        "p_max": [p_of(check._statistic, largest) for check in listed],
        "p_fdr": false_discovery_control(p),
    }
    names = [name for name, check in checks.items() if check.available]
    table = pd.DataFrame(columns, index=pd.Index(names, name=aligner._piece))
    of_pieces = [check.components for check in listed]
    components = pd.concat(of_pieces, keys=names, names=[aligner._piece]).droplevel(1)
    return AlignmentCheck(
        agreement_cv=table["agreement"].to_numpy(),
        p=table["p_max"].to_numpy(),
        n_permutations=draws[0],
        pieces=table,
        components=components,
    )


def check_local(
    aligner: Any, X: list[Any], places: Any, y: Any, *more: Any
) -> AlignmentCheck:
    """Fit an aligner to one piece of the brain and check it, in a worker."""
    import pandas as pd

    runs, (n, seed) = more
    local = fit_piece(aligner, X, places, y, runs)
    known = None if hasattr(local, "graph_") else y
    check = alignment_check(local, y=known, n_permutations=n, random_state=seed)
    if not hasattr(local, "component_summary"):
        names = {"agreement_cv": check.agreement_cv, "p": check.p}
        table = pd.DataFrame({"informative": check.holds, **names})
    else:  # of variances the mean over subjects
        table = component_table(local, check)
        shares = table.filter(like="variance_")
        table = table.drop(columns=shares.columns).assign(variance=shares.mean(axis=1))
    components = table.rename_axis("component").reset_index()
    return replace(check, features=None, components=components)


def graph_fit(model: Any) -> Matrix:
    """Return how well each shared feature fits the graph; larger is better."""
    values = np.asarray(model.eigenvalues_, float)  # the least ones under an energy
    return values if hasattr(model, "shrinkage_") else -values


def component_table(model: Any, check: AlignmentCheck | None) -> Any:
    """Describe the components of a GDM; see :meth:`GDM.component_summary`."""
    import pandas as pd

    if not hasattr(model, "bases_") or check is None:  # of a file: the table alone
        known = getattr(model, "_component_table", None)
        if known is None:
            raise InputError(
                "This model was unpickled without its bases, so its components cannot "
                "be described. Call component_summary before pickling it, or use "
                "brainweave.save, which keeps the table."
            )
        return pd.DataFrame(known).rename_axis("component")
    k, graph = model.n_components_, model.graph_
    features = [np.asarray(model._features(i), float) for i in range(len(model.bases_))]
    agreement = nothing = np.full(k, np.nan)
    if graph.groups:
        size = len(graph.groups[0].names)
        agreement = agreement_of_groups(features, _graph_codes(graph), size)
    known = check.available
    table = {
        "graph_fit": graph_fit(model),
        "informative": check.holds if known else np.arange(k) < model.n_informative_,
        "agreement": agreement,
        "agreement_cv": check.agreement_cv if known else nothing,
        "p": check.p if known else nothing,
    }
    for i, (basis, feature) in enumerate(zip(model.bases_, features, strict=True)):
        # of a feature f = K m the weights explain f^T K f / f^T f of the trace of K
        explained = (feature * basis.gram_times(feature)).sum(axis=0)
        norm = (feature**2).sum(axis=0)
        whole = basis.power if basis.energy == 1 else float(basis.spectrum.sum())
        table[f"variance_{i}"] = explained / np.where(norm > 0, norm, 1) / whole
    return pd.DataFrame(table).rename_axis("component")


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
    if not aligner._joins_samples:
        raise InputError("nothing was aligned; every feature is a voxel.")
    if "labels" in aligner._joined_by():
        if y is None:
            raise InputError("the labels of the aligning samples are unknown; pass y.")
        graph = time_graph([np.asarray(v, object).tolist() for v in y])
        codes = [graph.groups[0].codes[rows].copy() for rows in graph.slices()]
        if aligner._joined_by() == {"labels"}:
            return codes
        # samples locked in time are a group each: all of them if all have labels
        if any((own == NO_GROUP).any() for own in codes):
            for own in codes:
                locked = own == NO_GROUP
                own[locked] = len(graph.groups[0].names) + np.arange(locked.sum())
            return codes
    if len(set(lengths)) > 1:
        raise InputError("subjects have different numbers of samples, and no labels.")
    return [np.arange(n, dtype=np.intp) for n in lengths]


def _prepare(
    aligner: Any, subjects: list[Any] | None, y: Any
) -> tuple[list[Matrix], Any]:
    """Return the features of all samples, and what fits a half of them."""
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
        return full, partial(fit_by_grams, aligner, bases, k, y=known, graph=graph)
    if subjects is None and bases is not None:
        subjects = [b._data for b in bases]
    if subjects is None or any(s is None for s in subjects):
        raise InputError(
            f"{type(aligner).__name__} needs the aligning samples: pass X."
        )
    return full, partial(fit_by_samples, aligner, subjects, y=y)
