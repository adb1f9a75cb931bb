"""The Graph-based Decoding Model of Li, Liu, Chen and Zhang (AAAI 2020)."""

import warnings
from typing import Any

import numpy as np
import scipy.sparse
from numpy.typing import NDArray
from sklearn.utils.validation import check_is_fitted

from brainweave._validation import check_int, check_option
from brainweave.aligners.base import BaseAligner
from brainweave.aligners.components import (
    N_PERMUTATIONS,
    AlignmentCheck,
    alignment_check,
    check_graph_components,
    group_means,
    mean_pairwise_correlation,
)
from brainweave.aligners.graph_solver import ROUTES, Solution, solve, subject_overlap
from brainweave.aligners.maps import SubjectMap
from brainweave.aligners.newcomer import Descent, descend
from brainweave.basis import SubjectBasis
from brainweave.exceptions import (
    AlignmentWarning,
    InputError,
    SeparateSubjectsWarning,
    UndeterminedWarning,
    UniquenessWarning,
)
from brainweave.graphs import (
    NO_GROUP,
    Graph,
    GroupTerm,
    label_graph,
    matrix_graph,
    time_graph,
)
from brainweave.labels import as_label_list, sort_labels
from brainweave.linalg import flip_signs

Matrix = NDArray[np.float64]

GRAPH_NAMES = ("labels", "time")
LEAST_OVERLAP = 0.05  # classification between subjects suffers below this


class GDM(BaseAligner):
    r"""Align subjects by a graph of which samples belong together or apart.

    With :math:`Y = (W_1^\top \Phi_1, \dots, W_M^\top \Phi_M)` the shared features of
    all samples of all subjects, :math:`G` the graph, :math:`D` its degrees and
    :math:`L = D - G`, GDM finds the global minimum of

    .. math:: \mathrm{tr}(Y L Y^\top) = \tfrac12 \sum_{ij} G_{ij} \lVert y_i - y_j
              \rVert^2 \quad\text{subject to}\quad Y Y^\top = I,

    every map being restricted to the leading directions of its subject's kernel
    coordinates that hold a share ``energy`` of the singular values. Nothing has to be
    locked in time: sequences, numbers of samples and of voxels may differ.

    Parameters
    ----------
    n_components : int or "auto", default=10
        Number of shared features K. "auto" keeps those that hold up on samples that did
        not align (p < .05; see :func:`brainweave.alignment_check`): up to the last.
        One, with a warning, if there are none.
    energy : float in (0, 1], or one per subject, default=0.82
        Share of the summed singular values that each subject keeps.
    kernel : str, callable, or one per subject, default="linear"
        "linear", "gaussian", "quadratic", "sigmoid", "precomputed" or a callable.
    kernel_params : dict, or one per subject, optional
        ``{"hp": value}``; by default the value of the paper's supplement.
    graph : "labels", "time", callable, Graph or matrix, default="labels"
        "labels": y are categories, +1 within and -1 between. "time": y are stimulus
        or time ids (default: the row number), +1 between equal ones. A callable makes
        the graph from y, such as ``partial(label_graph, different=-0.5)``. Or a graph
        made by :mod:`brainweave.graphs`, or a symmetric (sparse) matrix over all
        samples in subject order.
    standardize : bool, default=True
        Give every voxel zero mean and unit variance over the aligning samples.
    solver : {"auto", "closed", "dense", "iterative"}, default="auto"
        All give the same result; "auto" takes the cheapest that applies.
    n_jobs : int, optional
        Subjects worked on at the same time; default one per core.
    device : str, optional
        Where torch is to do what touches voxels: "cuda", say. See
        :class:`SubjectBasis`.

    Attributes
    ----------
    maps_ : list of SubjectMap
        One map per subject.
    coef_ : list of ndarray of shape (n_kept_i, K)
        The maps in kernel coordinates.
    bases_ : list of SubjectBasis
        Reusable: pass them in place of X to fit again without reading voxels.
    eigenvalues_ : ndarray of shape (K,)
        The smallest eigenvalues of :math:`V_*^\top L V_*`, ascending.
    objective_ : float
        Their sum, the objective in the paper's scaling.
    n_informative_ : int
        Components that gain from the edges; the others are arbitrary or noise.
    is_unique_ : bool
        Whether the shared space is unique up to rotation (Proposition 3).
    overlap_ : float
        How far the subjects share their features: 1 if all use all features alike, 0 if
        every feature belongs to one subject, as it does when K is the sum of the
        subjects' dimensions. Below 0.05 there is a `SeparateSubjectsWarning`.
    joined_by_row_ : bool
        Whether row numbers serve as ids, for lack of y with ``graph="time"``.
    graph_ : Graph
        The graph that was used.
    solver_ : str
        The route that was taken.

    Notes
    -----
    With n samples and v voxels per subject and M subjects, time is O(M (n^2 v + n^3))
    and memory O(M n^2) for graphs of groups; the (M n) x (M n) graph is never built.
    Features are scaled to unit variance over the aligning samples (:math:`\sqrt T`
    times the paper's :math:`Y`), and their signs are fixed.

    References
    ----------
    Li, W., Liu, M., Chen, F., & Zhang, D. (2020). Graph-based decoding model for
    functional alignment of unaligned fMRI data. AAAI 34.

    Examples
    --------
    Two subjects with different voxels who saw categories in different orders:

    >>> rng = np.random.default_rng(0)
    >>> centroids, y = rng.normal(size=(3, 5)), [[0, 1, 2] * 8, [2, 1, 0] * 6]
    >>> X = [centroids[l] @ rng.normal(size=(5, v)) for l, v in zip(y, (40, 60))]
    >>> X = [x + 0.1 * rng.normal(size=x.shape) for x in X]
    >>> shared = GDM(n_components=2, energy=0.5).fit_transform(X, y)
    >>> means = [np.array([s[np.equal(l, c)].mean(0) for c in range(3)])
    ...          for s, l in zip(shared, y)]
    >>> bool(np.corrcoef(means[0].ravel(), means[1].ravel())[0, 1] > 0.99)
    True
    """

    def __init__(
        self,
        n_components: int | str = 10,
        *,
        energy: Any = 0.82,
        kernel: Any = "linear",
        kernel_params: Any = None,
        graph: Any = "labels",
        standardize: bool = True,
        solver: str = "auto",
        n_jobs: int | None = None,
        device: Any = None,
    ) -> None:
        self.n_components = n_components
        self.energy = energy
        self.kernel = kernel
        self.kernel_params = kernel_params
        self.graph = graph
        self.standardize = standardize
        self.solver = solver
        self.n_jobs = n_jobs
        self.device = device

    def _solve(self, bases: list[SubjectBasis], y: list[Any] | None) -> list[Matrix]:
        check_option("solver", self.solver, ROUTES, owner=self._owner)
        graph = self._make_graph([b.n_samples for b in bases], y)
        self._check_links(graph)
        named = isinstance(self.graph, str) and self.graph == "time"
        self.joined_by_row_ = named and y is None
        k = self._wanted_components(bases, graph)
        vectors = [b.vectors for b in bases]
        solution = solve(vectors, graph, k, route=self.solver, n_jobs=self.n_jobs)
        if self.n_components == "auto":
            k = self._components_that_hold_up(bases, graph, solution, k)
        self._describe(solution, k)
        blocks = [block[:, :k] for block in solution.blocks]
        self._describe_overlap(blocks, graph)
        shared = np.concatenate([V @ E for V, E in zip(vectors, blocks, strict=True)])
        signs = flip_signs(shared)
        self.graph_ = graph
        scale = np.sqrt(graph.n_samples) * signs
        self._remember_groups(shared * scale)
        return [
            E * scale / np.sqrt(b.values)[:, None]
            for b, E in zip(bases, blocks, strict=True)
        ]

    def _joins_by_label(self) -> bool:
        made_by = getattr(self.graph, "func", self.graph)  # of a partial
        named = isinstance(made_by, str) and made_by == "labels"
        return named or made_by is label_graph or hasattr(made_by, "makes_label_graph")

    def _make_graph(self, lengths: list[int], y: list[Any] | None) -> Graph:
        graph = self.graph
        if callable(graph):
            if y is None:
                raise InputError(
                    f"graph of {self._owner} is a callable, which needs what is known "
                    "of the samples: fit(X, y)."
                )
            graph = graph(y)
        if isinstance(graph, Graph):
            if list(graph.lengths) != lengths:
                raise InputError(
                    f"The graph is over {list(graph.lengths)} samples per subject; the "
                    f"data have {lengths}."
                )
            return graph
        if isinstance(graph, str):
            check_option("graph", graph, GRAPH_NAMES, owner=self._owner)
            return self._named_graph(graph, lengths, y)
        if scipy.sparse.issparse(graph) or isinstance(graph, np.ndarray):
            return matrix_graph(graph, lengths)
        raise TypeError(
            f"graph of {self._owner} must be 'labels', 'time', a callable, a Graph, "
            f"or a symmetric matrix over all samples; got {type(graph).__name__}."
        )

    def _named_graph(
        self, graph: str, lengths: list[int], y: list[Any] | None
    ) -> Graph:
        if graph == "labels":
            if y is None:
                raise InputError(
                    f"{self._owner} with graph='labels' needs the categories of the "
                    "samples: fit(X, y). For samples locked in time use graph='time'."
                )
            return label_graph(y)
        if y is None:
            if len(set(lengths)) > 1:
                raise InputError(
                    "graph='time' without y joins samples by their row number, but the "
                    f"subjects have {lengths} samples. Pass stimulus or time ids as y."
                )
            y = [range(n) for n in lengths]
        return time_graph(y)

    def _check_links(self, graph: Graph) -> None:
        lonely = graph.lonely_subjects()
        if lonely:
            named = ", ".join(f"X[{i}]" for i in lonely)
            raise InputError(
                f"No sample of {named} has an edge to another subject in the graph, so "
                "nothing ties its map to the others. Check its labels, or leave it out."
            )
        groups = graph.subject_groups()
        if len(groups) > 1:
            apart = [", ".join(f"X[{i}]" for i in group[:6]) for group in groups[:4]]
            raise InputError(
                f"The subjects fall into {len(groups)} groups without an edge between "
                f"them in the graph: {'; '.join(apart)}. Nothing ties their maps. "
                "Check the labels or ids, or align the groups apart."
            )

    def _wanted_components(self, bases: list[SubjectBasis], graph: Graph) -> int:
        available = sum(b.n_kept for b in bases)
        if isinstance(self.n_components, str):
            check_option(
                "n_components", self.n_components, ("auto",), owner=self._owner
            )
            if graph.matrix is not None:
                return min(available, 100)
            return min(available, sum(len(term.names) for term in graph.groups))
        k = check_int("n_components", self.n_components, minimum=1, owner=self._owner)
        if k > available:
            kept = " + ".join(str(b.n_kept) for b in bases[:6])
            more = " + ..." if len(bases) > 6 else ""
            raise InputError(
                f"n_components={k} is more than the {available} dimensions that the "
                f"subjects keep together ({kept}{more}). Use fewer components or more "
                "energy."
            )
        return k

    def _describe(self, solution: Solution, k: int) -> None:
        """Record the spectrum, and say so when the solution is one of many."""
        self.eigenvalues_ = solution.eigenvalues[:k].copy()
        self.objective_ = float(self.eigenvalues_.sum())
        self.n_informative_ = solution.n_informative(k)
        self.is_unique_ = solution.is_unique(k)
        self.solver_ = solution.route
        if not self.is_unique_:
            warnings.warn(
                f"The shared space is not unique: eigenvalues {k} and {k + 1} are "
                f"equal ({self.eigenvalues_[-1]:.6g}). {self.n_informative_} of {k} "
                "components are informative; the others are arbitrary directions. "
                "n_components='auto' keeps the informative ones.",
                UniquenessWarning,
                stacklevel=4,
            )

    def _describe_overlap(self, blocks: list[Matrix], graph: Graph) -> None:
        """Record how far subjects share the features, and say so when they do not."""
        self.overlap_ = subject_overlap(blocks, graph.lengths)
        if self.overlap_ < LEAST_OVERLAP:
            available = sum(len(E) for E in blocks)
            warnings.warn(
                f"The subjects hardly overlap in the shared space ({self.overlap_:.1%} "
                f"of what they could): most of the {blocks[0].shape[1]} components, of "
                f"{available} dimensions that the subjects have together, belong to "
                "single subjects, and what is learned on some subjects will not hold "
                f"for others. {self.n_informative_} components are informative. Use "
                "fewer components, or n_components='auto'.",
                SeparateSubjectsWarning,
                stacklevel=4,
            )

    def _remember_groups(self, shared: Matrix) -> None:
        """Keep what a new subject needs: sums of the shared features per group."""
        self.group_sums_ = [
            np.asarray(term.membership().T @ shared) for term in self.graph_.groups
        ]
        # without groups a new subject names its edges to each aligning sample
        self.embedding_ = shared if self.graph_.matrix is not None else None

    # -- a new subject -----------------------------------------------------------------

    def fit_new_subject(
        self, X: Any, y: Any = None, *, edges: Any = None, max_iter: int = 1000
    ) -> SubjectMap:
        """Learn the map of a subject that was not in the fit; the model is unchanged.

        The same objective is minimised over the new map alone, the other subjects being
        fixed, with features of unit variance: a quadratic on the Stiefel manifold. It
        starts from the Procrustes solution and never rises.

        Parameters
        ----------
        X : array of shape (n_samples, n_voxels), or a Subject
            Samples of the new subject.
        y : array-like, optional
            Categories or ids, as in :meth:`fit`; None or NaN for unlabelled samples.
        edges : (sparse) matrix of shape (n_samples, n_aligning_samples), optional
            Weights between the new samples and all aligning samples, for models whose
            graph is a matrix, or instead of y.
        max_iter : int, default=1000
            Most steps of the descent.

        Returns
        -------
        SubjectMap
            With ``objective_history``, the objective after each step, and
            ``n_undetermined``, the dimensions of the shared space that no edge of the
            new samples determines (a category that they lack): its features are zero
            there. If the model itself is informed of more, `UndeterminedWarning`.
        """
        basis, y = self._new_subject(X, y)
        descent, coef = self._join(basis, y, edges=edges, max_iter=max_iter)
        new = self._make_map(basis, coef, space=getattr(X, "space", None))
        new.objective_history = descent.history
        new.n_undetermined = self.n_components_ - descent.n_determined
        return new

    def _solve_new(self, basis: SubjectBasis, y: Any) -> Matrix:
        return self._join(basis, y)[1]

    def _join(
        self, basis: SubjectBasis, y: Any, *, edges: Any = None, max_iter: int = 1000
    ) -> tuple[Descent, Matrix]:
        V, k, n = basis.vectors, self.n_components_, basis.n_samples
        if basis.n_kept < k:
            raise InputError(
                f"{basis.name} keeps {basis.n_kept} dimensions, fewer than the "
                f"{k} shared features. Give more samples or a higher energy."
            )
        inside, towards = self._new_terms(basis, y, edges)
        # the paper's scaling: features of unit variance over sqrt(number of samples)
        total = self.graph_.n_samples + n
        N = V.T @ (inside @ V) * (n / total)
        F = V.T @ towards * (np.sqrt(n) / total)
        size = np.linalg.norm(towards, 2) * (np.sqrt(n) / total)
        descent = descend(N, F, size=float(size), max_iter=max_iter)
        self._report_undetermined(basis.name, descent.n_determined)
        return descent, descent.Q * np.sqrt(n / basis.values[:, None])

    def _report_undetermined(self, name: str, n_determined: int) -> None:
        if n_determined == 0:
            raise InputError(
                f"The edges of {name} are the same for all its samples, so nothing "
                "determines its map. It needs samples of at least two categories."
            )
        if n_determined < self.n_informative_:
            warnings.warn(
                f"The edges of {name} determine {n_determined} dimensions of the "
                f"shared space, of {self.n_informative_} that are informative; its "
                "features are zero in the others. Give it samples of the categories "
                "or stimuli that it lacks.",
                UndeterminedWarning,
                stacklevel=4,
            )

    def _new_terms(self, basis: SubjectBasis, y: Any, edges: Any) -> tuple[Any, Matrix]:
        """Give D - G among the new samples, and G from new samples times features."""
        n = basis.n_samples
        degrees, linear = np.zeros(n), np.zeros((n, self.n_components_))
        inside = scipy.sparse.csr_array((n, n))
        if edges is not None:
            weights = scipy.sparse.csr_array(edges, dtype=np.float64)
            if self.embedding_ is None or weights.shape != (n, len(self.embedding_)):
                raise InputError(
                    f"edges must be new samples x aligning samples, "
                    f"{(n, self.graph_.n_samples)}, for a model whose graph is a "
                    f"matrix; got {weights.shape}."
                )
            degrees += np.asarray(weights.sum(axis=1)).ravel()
            linear += weights @ self.embedding_
        elif self.graph_.matrix is not None:
            raise InputError(
                "This model's graph is a matrix: pass edges, the weights between the "
                "new samples and all aligning samples."
            )
        terms = () if y is None and edges is not None else self.graph_.groups
        if y is None and edges is None:
            y = self._row_numbers(n)
        for term, sums in zip(terms, self.group_sums_, strict=False):
            codes = _codes_of(y, term, n)
            new = GroupTerm(codes, term.affinity, term.names)
            Z = new.membership()
            counts = term.counts + new.counts
            degrees += Z @ (term.affinity @ counts)
            linear += Z @ (term.affinity @ sums)
            inside = inside + Z @ scipy.sparse.csr_array(term.affinity) @ Z.T
        if not linear.any():
            raise InputError(
                f"No sample of {basis.name} has an edge to an aligning sample; its map "
                "cannot be learned. Pass the labels of its samples as y."
            )
        return scipy.sparse.diags_array(degrees) - inside, linear

    def _row_numbers(self, n_samples: int) -> Any:
        """Return the ids that stand for y in a model fitted without y."""
        if not getattr(self, "joined_by_row_", False):
            raise InputError(
                "This model joins samples by their labels or ids: pass those of the "
                "new subject's samples as y."
            )
        if n_samples != self.graph_.lengths[0]:
            raise InputError(
                "This model joins samples by their row number: the new subject needs "
                f"{self.graph_.lengths[0]} samples, but has {n_samples}. Pass the row "
                "numbers of its samples as y."
            )
        return range(n_samples)

    # -- what the components mean ------------------------------------------------------

    def component_summary(
        self,
        *,
        runs: Any = None,
        n_permutations: int = N_PERMUTATIONS,
        random_state: int = 0,
        check: AlignmentCheck | None = None,
    ) -> Any:
        """Describe each component: a pandas table with one row per component.

        Parameters
        ----------
        runs : list of array-like, optional
            The run of every aligning sample; then whole runs are held out.
        n_permutations, random_state : int
            How often held-out labels are shuffled for the p-values, and the seed.
        check : AlignmentCheck, optional
            What :func:`brainweave.alignment_check` found, if it is known already.

        Returns
        -------
        DataFrame
            Columns: ``eigenvalue``; ``informative``, whether the component holds up
            (p < .05) on samples that did not align, or, where that cannot be checked,
            whether it gains from the edges; ``agreement``, the mean correlation
            between subjects of the group means of the feature, over the very samples
            that aligned: it is high also for noise; ``agreement_cv``, the same over
            samples that did not align; ``p``, of ``agreement_cv``, corrected for the
            number of components; and ``variance_<i>``, the share of subject i's
            variance that the feature explains.
        """
        import pandas as pd

        check_is_fitted(self, "maps_")
        if not hasattr(self, "bases_"):  # a loaded model keeps the table alone
            known = getattr(self, "_component_table", None)
            if known is None:
                raise InputError(
                    "This model came back without its bases, so its components cannot "
                    "be described. Call component_summary before pickling it, or use "
                    "brainweave.save, which keeps the table."
                )
            return pd.DataFrame(known).rename_axis("component")
        if check is None:
            check = alignment_check(
                self,
                runs=runs,
                n_permutations=n_permutations,
                random_state=random_state,
            )
        nothing = np.full(self.n_components_, np.nan)
        gains = np.arange(self.n_components_) < self.n_informative_
        table = {
            "eigenvalue": self.eigenvalues_,
            "informative": check.holds if check.available else gains,
            "agreement": self._agreement(),
            "agreement_cv": check.agreement_cv if check.available else nothing,
            "p": check.p if check.available else nothing,
        }
        for i, (basis, coef) in enumerate(zip(self.bases_, self.coef_, strict=True)):
            weighted = basis.values[:, None] * coef
            explained = (weighted**2).sum(axis=0) / (coef * weighted).sum(axis=0)
            table[f"variance_{i}"] = explained / basis.spectrum.sum()
        return pd.DataFrame(table).rename_axis("component")

    def _agreement(self) -> Matrix:
        if not self.graph_.groups:
            return np.full(self.n_components_, np.nan)
        term = self.graph_.groups[0]
        means = [
            group_means(
                np.asarray(self._features(i)), term.codes[rows], len(term.names)
            )
            for i, rows in enumerate(self.graph_.slices())
        ]
        return mean_pairwise_correlation(np.array(means))

    def _components_that_hold_up(
        self, bases: list[SubjectBasis], graph: Graph, solution: Solution, most: int
    ) -> int:
        """Count the components up to the last that holds up on held-out samples."""
        k = max(1, solution.n_informative(most))
        vectors = [b.vectors for b in bases]
        scale = np.sqrt(graph.n_samples)
        full = [
            scale * (V @ E[:, :k])
            for V, E in zip(vectors, solution.blocks, strict=True)
        ]
        check = check_graph_components(self, bases, graph, full)
        if not check.available:
            return k
        if not check.holds.any():
            warnings.warn(
                f"{check.verdict} n_components='auto' keeps one component; do not "
                "read anything into it.",
                AlignmentWarning,
                stacklevel=5,
            )
            return 1
        return int(np.flatnonzero(check.holds)[-1]) + 1


def _codes_of(y: Any, term: GroupTerm, n_samples: int) -> NDArray[np.intp]:
    """Find the groups of a new subject's samples among those of the model."""
    values = as_label_list(y, "y of the new subject")
    if len(values) != n_samples:
        raise InputError(f"y has {len(values)} labels for {n_samples} samples.")
    code_of = {name: code for code, name in enumerate(term.names)}
    unknown = sort_labels(v for v in values if v is not None and v not in code_of)
    if unknown:
        raise InputError(
            f"The new subject has labels that the model does not know: {unknown}; it "
            f"has {list(term.names[:8])}. Set them to None to leave those samples "
            "unlabelled."
        )
    return np.array([code_of.get(v, NO_GROUP) for v in values], dtype=np.intp)
