"""The Graph-based Decoding Model of Li, Liu, Chen and Zhang (AAAI 2020)."""

from dataclasses import KW_ONLY, dataclass
from typing import Any

import numpy as np
from sklearn.utils.validation import check_is_fitted

from brainweave._arrays import Matrix
from brainweave._validation import check_int, check_option
from brainweave._workers import map_subjects
from brainweave.aligners.base import BaseAligner
from brainweave.aligners.components import (
    N_PERMUTATIONS,
    PAPERS_COMPONENTS,
    AlignmentCheck,
    alignment_check,
    component_table,
    count_holding,
    stored_check,
)
from brainweave.aligners.gdm_graph import (
    Solution,
    check_dimensions,
    group_sums,
    is_named,
    make_graph,
    split_labels_and_ids,
    subject_overlap,
    warn_of_shared_space,
    warn_of_uninformed,
    y_for_graph,
)
from brainweave.aligners.graph_solver import ROUTES, solve
from brainweave.aligners.maps import SubjectMap
from brainweave.aligners.new_subject import join
from brainweave.aligners.shrinkage import (
    scale_features,
    solve_per_subject,
    solve_shrinkage,
)
from brainweave.aligners.strength import choose_strengths, smoother_of
from brainweave.basis import SubjectBasis
from brainweave.graphs import Graph, count_alike, label_graph
from brainweave.linalg import flip_signs

MOST_TRIED = 100  # components that "auto" looks at
WITH_SHRINKAGE_ONLY = ("shrinkage_", "shrinkage_by_", "constraint_", "spread_")
OPTIONS = {
    "solver": ROUTES,
    "constraint": ("global", "subject"),
    "scale": ("agreement", "unit"),
}


@dataclass(eq=False, repr=False)
class GDM(BaseAligner):
    r"""Align subjects by a graph of which samples belong together or apart.

    With :math:`Y = (W_1^\top \Phi_1, \dots, W_M^\top \Phi_M)` the shared features of
    all samples of all subjects and :math:`G` the graph, GDM finds the global maximum of

    .. math:: \mathrm{tr}(Y G Y^\top) \quad\text{subject to}\quad
              \sum_i (Y_i Y_i^\top + g_i W_i^\top W_i) = I ,

    the maps of each subject being shrunk by a ridge :math:`g_i`. With ``energy`` it is
    the model of the paper: with the degrees :math:`D` and :math:`L = D - G`, the global
    minimum of

    .. math:: \mathrm{tr}(Y L Y^\top) = \tfrac12 \sum_{ij} G_{ij} \lVert y_i - y_j
              \rVert^2 \quad\text{subject to}\quad Y Y^\top = I,

    every map being restricted to the leading directions of its subject's kernel
    coordinates that hold a share ``energy`` of the singular values. Nothing has to be
    locked in time: sequences, numbers of samples and of voxels may differ.

    Parameters
    ----------
    n_components : int or "auto", optional
        Number of shared features K; by default "auto", or the paper's 10 with an
        energy. "auto" keeps components in their order as long as they hold up on
        samples that did not align (p < .05; see :func:`brainweave.alignment_check`):
        with a probability of .95, none behind the last that is shared. The paper's 10,
        with a warning, if nothing holds up. With shrinkage there are no more than the
        graph informs: one per group.
    energy : float in (0, 1], or one per subject, optional
        Share of the summed singular values that each subject keeps: the paper's
        Algorithm 1. By default nothing is cut, but shrunk.
    shrinkage : "auto", "ledoit-wolf", "oas", float, or one per subject, default="auto"
        The ridge in units of a subject's mean eigenvalue. "auto": the best of 12 at
        predicting groups of samples from others of the same subject, runs being left
        out, or blocks where runs are not known (a Study knows them); where no group
        repeats, "ledoit-wolf". Not used with an energy.
    constraint : {"global", "subject"}, optional
        Whether the features have unit covariance over all subjects together, in closed
        form, or in each subject, by ten rounds of an ascent from there: then samples
        that some subjects lack cost less. By default "subject" for the graphs "time"
        and "labels+time", "global" for others. Not used with an energy.
    scale : {"agreement", "unit"}, default="agreement"
        Whether the spread of a feature is how much subjects agree on it, relative to
        the first, or 1. With an energy it is 1.
    kernel : str, callable, or one per subject, default="linear"
        "linear", "gaussian", "quadratic", "sigmoid", "precomputed" or a callable.
    kernel_params : dict, or one per subject, optional
        ``{"hp": value}``; by default the value of the paper's supplement.
    graph : "labels", "time", "labels+time", callable, Graph or matrix, default="labels"
        "labels": y are categories; all count alike (with an energy: +1 within and -1
        between). "time": y are stimulus or time ids (default: the row number), joined
        if equal. "labels+time": the sum of both; y has two columns, categories and ids,
        or categories alone if they are the same in all rows. A callable makes
        the graph from y, such as ``partial(label_graph, different=-0.5)``. Or a graph
        made by :mod:`brainweave.graphs`, or a symmetric (sparse) matrix over all
        samples in subject order.
    balance : {"groups", "subjects", "none"}, optional
        How much the groups of a graph by name count: all alike, by how many subjects
        have them, or by all their pairs of samples; see :func:`label_graph`. By
        default "groups" for labels and "subjects" for time, and "none" with an energy.
    standardize : bool or "reliability", default=True
        Give every voxel zero mean and unit variance over the aligning samples.
        "reliability": voxels that answer alike to equal labels count more
        (:mod:`brainweave.reliability`).
    solver : {"auto", "closed", "dense", "iterative"}, default="auto"
        All give the same result; "auto" takes the cheapest that applies. For the
        eigenproblem of the paper; not used with shrinkage.
    n_jobs : int, optional
        Subjects worked on at the same time; default one per core (on a GPU: two).
    device : str, optional
        Where torch is to do what touches voxels: "cuda", say. See
        :class:`SubjectBasis`.

    Attributes
    ----------
    maps_ : list of SubjectMap
        One map per subject.
    coef_ : list of ndarray of shape (n_kept_i, K)
        The maps in kernel coordinates (with an energy).
    mixing_ : list of ndarray of shape (n_samples_i, K)
        The maps as mixtures of the aligning samples (with shrinkage).
    shrinkage_ : list of float
        The ridge of each subject, and ``shrinkage_by_``, how it was found: "runs" or
        "blocks" left out, "ledoit-wolf", "oas" or "given" (with shrinkage).
    constraint_ : str
        The constraint that was used, "global" or "subject" (with shrinkage).
    spread_ : ndarray of shape (K,)
        Standard deviation of each feature over the aligning samples (with shrinkage).
    bases_ : list of SubjectBasis
        Reusable: pass them in place of X to fit again without reading voxels.
    eigenvalues_ : ndarray of shape (K,)
        With shrinkage, what the edges give to each component, descending (with the
        constraint of each subject, the mean square of its features); with an energy the
        smallest eigenvalues of :math:`V_*^\top L V_*`, ascending.
    objective_ : float
        Their sum, the objective.
    n_informative_ : int
        Components that gain from the edges; the others are arbitrary or noise.
    is_unique_ : bool
        Whether the shared space is unique up to rotation (Proposition 3): whether there
        is a gap behind the last eigenvalue.
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
    With shrinkage a subject costs one Cholesky factor in place of its eigenvectors.
    With an energy features are scaled to unit variance over the aligning samples
    (:math:`\sqrt T` times the paper's :math:`Y`). Signs are fixed.

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
    >>> shared = GDM(n_components=2).fit_transform(X, y)
    >>> means = [np.array([s[np.equal(l, c)].mean(0) for c in range(3)])
    ...          for s, l in zip(shared, y)]
    >>> bool(np.corrcoef(means[0].ravel(), means[1].ravel())[0, 1] > 0.99)
    True
    """

    n_components: int | str | None = None
    _: KW_ONLY
    energy: Any = None
    shrinkage: Any = "auto"
    constraint: str | None = None
    scale: str = "agreement"
    kernel: Any = "linear"
    kernel_params: Any = None
    graph: Any = "labels"
    balance: str | None = None
    standardize: bool | str = True
    solver: str = "auto"
    n_jobs: int | None = None
    device: Any = None

    @property
    def _shrinks(self) -> bool:
        """Whether this is the model with a ridge, not the paper's cut."""
        return self.energy is None

    @property
    def _constraint(self) -> str:
        """The constraint that is asked for, or that the graph calls for."""
        if self.constraint is not None:
            return self.constraint
        return "subject" if is_named(self.graph, "time", "labels+time") else "global"

    @property
    def _solution_name(self) -> str:
        return "mixing_" if self._shrinks else "coef_"

    @property
    def _needs_eigenbasis(self) -> bool:
        return not self._shrinks

    # -- fitting -----------------------------------------------------------------------

    def _y_of(self, subject: Any) -> Any:
        return y_for_graph(subject, self.graph)

    def _labels_from(self, y: list[Any]) -> list[Any]:
        if is_named(self.graph, "labels+time"):
            return [split_labels_and_ids(known)[0] for known in y]
        return y

    def _joins_by_label(self) -> bool:
        graph = getattr(self.graph, "func", self.graph)  # of a partial
        if is_named(graph, "labels", "labels+time") or graph is label_graph:
            return True
        return bool(getattr(graph, "makes_label_graph", False))

    def _joins_by_row(self, y: Any) -> bool:
        return y is None and is_named(self.graph, "time")

    def _needs_common_labels(self) -> bool:
        return self._joins_by_label() and not is_named(self.graph, "labels+time")

    def _solve(self, bases: list[SubjectBasis], y: list[Any] | None) -> list[Matrix]:
        for name, allowed in OPTIONS.items():
            given = self._constraint if name == "constraint" else getattr(self, name)
            check_option(name, given, allowed, owner=self._owner)
        graph, self.joined_by_row_ = make_graph(
            self.graph,
            [b.n_samples for b in bases],
            y,
            ridge=self._shrinks,
            balance=self.balance,
            owner=self._owner,
        )
        if self._shrinks:
            maps, template = self._solve_with_shrinkage(bases, graph)
        else:
            maps, template = self._solve_with_energy(bases, graph)
        self.graph_ = graph
        # what a new subject needs: sums per group, or, without groups, every sample
        per_subject = self._shrinks and self._constraint == "subject"
        self.group_sums_ = group_sums(graph, template, alike=per_subject)
        self.embedding_ = template if graph.matrix is not None else None
        return maps

    def _solve_with_energy(
        self, bases: list[SubjectBasis], graph: Graph
    ) -> tuple[list[Matrix], Matrix]:
        """Solve the paper's model; return the maps and the template."""
        for name in WITH_SHRINKAGE_ONLY:  # of a fit before this one
            self.__dict__.pop(name, None)
        kept = [b.n_kept for b in bases]
        k, auto = self._wanted_components(sum(kept), graph)
        check_dimensions(k, kept)
        vectors = [b.vectors for b in bases]
        found = solve(vectors, graph, k, route=self.solver, n_jobs=self.n_jobs)
        if auto:
            k = count_holding(self, bases, graph, found, k)
        found = found.first(k)
        covariances = [E.T @ E for E in found.maps]
        self._describe(found, covariances, sum(kept), graph.lengths)
        # unit variance, signs fixed
        scale = np.sqrt(graph.n_samples) * flip_signs(found.template)
        pairs = zip(bases, found.maps, strict=True)
        maps = [E * scale / np.sqrt(b.values)[:, None] for b, E in pairs]
        return maps, found.template * scale

    def _solve_with_shrinkage(
        self, bases: list[SubjectBasis], graph: Graph
    ) -> tuple[list[Matrix], Matrix]:
        """Solve the model with a ridge; return the maps and the template."""
        self.shrinkage_, self.shrinkage_by_ = choose_strengths(
            self.shrinkage, bases, graph, n_jobs=self.n_jobs, owner=self._owner
        )
        smoothers = map_subjects(
            smoother_of, bases, self.shrinkage_, n_jobs=self.n_jobs, threads_only=True
        )
        dimensions = sum(
            b.n_voxels if b.uses_covariance else b.n_samples - 1 for b in bases
        )
        most = dimensions
        if graph.matrix is None:
            groups = sum(int(np.count_nonzero(t.counts)) for t in graph.groups)
            most = min(dimensions, groups)
        k, auto = self._wanted_components(most, graph)
        found = solve_shrinkage(smoothers, graph, k, n_jobs=self.n_jobs)
        informative = found.n_informative(k)
        if auto:
            k = count_holding(self, bases, graph, found, k)
        elif k > informative:
            warn_of_uninformed(k, informative)
            k = informative
        found = found.first(k)
        self.constraint_ = self._constraint
        if self.constraint_ == "subject":
            alike = count_alike(graph)
            found = solve_per_subject(smoothers, alike, found, n_jobs=self.n_jobs)
        parts = list(zip(smoothers, found.maps, found.features, strict=True))
        covariances = [f.T @ f + s.strength * (m.T @ f) for s, m, f in parts]
        self._describe(found, covariances, dimensions, graph.lengths)
        mu = found.eigenvalues
        self.spread_ = mu / mu[0] if self.scale == "agreement" else np.ones_like(mu)
        signs = flip_signs(np.concatenate(found.features))
        maps = [scale_features(m * signs, f, self.spread_) for _, m, f in parts]
        for basis in bases:
            basis.leave_device()
        return maps, found.template * signs

    def _wanted_components(self, most: int, graph: Graph) -> tuple[int, bool]:
        """Return how many components to solve for, and whether to choose from them."""
        wanted = self.n_components
        if wanted is None:
            wanted = "auto" if self._shrinks else PAPERS_COMPONENTS
        if isinstance(wanted, str):
            words = ("auto",)
            check_option(
                "n_components", wanted, words, owner=self._owner, or_number=True
            )
            capped = self._shrinks or graph.matrix is not None
            groups = sum(len(term.names) for term in graph.groups)
            return min(most, MOST_TRIED if capped else groups), True
        return check_int("n_components", wanted, minimum=1, owner=self._owner), False

    def _describe(
        self, found: Solution, covariances: list[Matrix], dimensions: int, lengths: Any
    ) -> None:
        """Record what was found, and say so when it is one of many, or not shared."""
        k = found.eigenvalues.size
        self.eigenvalues_ = np.array(found.eigenvalues)
        self.objective_ = float(found.eigenvalues.sum())
        self.n_informative_ = found.n_informative(k)
        self.is_unique_ = found.is_unique(k)
        self.solver_ = found.route
        self.overlap_ = subject_overlap(covariances, lengths)
        warn_of_shared_space(self, dimensions)

    # -- a new subject -----------------------------------------------------------------

    def fit_new_subject(
        self, X: Any, y: Any = None, *, edges: Any = None, max_iter: int = 1000
    ) -> SubjectMap:
        """Learn the map of a subject that was not in the fit; the model is unchanged.

        With shrinkage it is in closed form: the ridge regression of the new samples on
        what the model has for their groups. With an energy the paper's objective is
        minimised over the new map alone, the other subjects being fixed, with features
        of unit variance: a quadratic on the Stiefel manifold. The descent starts from
        the Procrustes solution and never rises.

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
            Most steps of the descent (with an energy).

        Returns
        -------
        SubjectMap
            With ``objective_history``, the objective after each step of a descent, and
            ``n_undetermined``, the dimensions of the shared space that no edge of the
            new samples determines (a category that they lack): its features are zero
            there. If the model itself is informed of more, `UndeterminedWarning`.
        """
        basis, y = self._new_subject(X, y)
        joined = join(self, basis, y, edges, max_iter)
        new = self._make_map(basis, joined.map, space=getattr(X, "space", None))
        new.objective_history = joined.history
        new.n_undetermined = self.n_components_ - joined.n_determined
        return new

    def _solve_new(self, basis: SubjectBasis, y: Any) -> Matrix:
        return join(self, basis, y).map

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
            How often signs are drawn for the p-values, and the seed.
        check : AlignmentCheck, optional
            What :func:`brainweave.alignment_check` found, if it is known already.

        Returns
        -------
        DataFrame
            Columns: ``eigenvalue``; ``informative``, whether the component holds up
            (p < .05) on samples that did not align, or, where that cannot be checked,
            whether it gains from the edges; ``agreement``, the mean correlation
            between subjects over time, or over samples of the same group, over the
            very samples that aligned: it is high also for noise; ``agreement_cv``, the
            same over samples that did not align, without slow trends and what is
            shared in the components before it; ``p``, that neither it nor the next are
            shared, which never falls; and ``variance_<i>``, the share of subject i's
            variance that the feature explains.
        """
        check_is_fitted(self, "maps_")
        if check is None and hasattr(self, "bases_"):
            usual = runs is None and (n_permutations, random_state) == (
                N_PERMUTATIONS,
                0,
            )
            check = (
                stored_check(self)
                if usual
                else alignment_check(
                    self,
                    runs=runs,
                    n_permutations=n_permutations,
                    random_state=random_state,
                )
            )
        return component_table(self, check)
