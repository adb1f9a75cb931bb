"""What both graph-based decoding models share: graph, new subjects, summaries."""

from abc import abstractmethod
from collections.abc import Iterator
from typing import Any, ClassVar

import numpy as np
from sklearn.utils.validation import check_is_fitted

from brainweave._core.arrays import Matrix
from brainweave._core.exceptions import (
    InputError,
    SeparateSubjectsWarning,
    UndeterminedWarning,
    UniquenessWarning,
    warn_user,
)
from brainweave._core.validation import check_int
from brainweave.aligners.base import BaseAligner
from brainweave.aligners.check.alignment_check import (
    AlignmentCheck,
    component_table,
    stored_check,
)
from brainweave.aligners.gdm.eigenproblem import Solution, subject_overlap
from brainweave.aligners.gdm.graph_parsing import (
    is_named,
    make_graph,
    split_labels_and_ids,
    y_for_graph,
)
from brainweave.aligners.gdm.new_subject import Joined, edges_of_new
from brainweave.aligners.maps import SubjectMap
from brainweave.basis.basis import SubjectBasis
from brainweave.graphs.builders import Graph, equal_group_weights, label_graph

LEAST_OVERLAP = 0.05  # classification between subjects suffers below this


class GraphAligner(BaseAligner):
    """Base of :class:`GDM` and :class:`PaperGDM`."""

    _stored: ClassVar[dict[str, Any]] = {
        "graph_": Graph,
        "group_sums_": ["groups K"],
        "embedding_?": "n K",
        "eigenvalues_": "K",
        "objective_": float,
        "n_informative_": int,
        "is_unique_": bool,
        "solver_": str,
        "overlap_": float,
        "joined_by_row_": bool,
    }

    graph: Any
    n_components: Any
    shared_: Any = None  # the map of places that all subjects share, if there is one
    _ridge: bool  # whether graphs by name have the weights of the model with a ridge

    # -- what joins samples ------------------------------------------------------------

    def _y_of(self, subject: Any) -> Any:
        return y_for_graph(subject, self.graph)

    def _labels_from(self, y: list[Any]) -> list[Any]:
        if is_named(self.graph, "labels+time"):
            return [split_labels_and_ids(known)[0] for known in y]
        return y

    def _joined_by(self, y: Any = None) -> set[str]:
        graph = getattr(self.graph, "func", self.graph)  # of a partial
        if is_named(graph, "labels+time"):
            return {"labels", "ids"}
        if is_named(graph, "labels") or graph is label_graph:
            return {"labels"}
        return {"rows"} if y is None and is_named(graph, "time") else {"graph"}

    # -- fitting -----------------------------------------------------------------------

    def _solve(self, bases: list[SubjectBasis], y: list[Any] | None) -> list[Matrix]:
        lengths = [b.n_samples for b in bases]
        graph, self.joined_by_row_ = make_graph(
            self.graph, lengths, y, ridge=self._ridge, owner=self._owner
        )
        maps, template = self._solve_graph(bases, graph)
        self.graph_ = graph
        # what a new subject needs: sums per group, or, without groups, every sample
        alike = getattr(self, "constraint_", "") == "subject"
        weighed = (equal_group_weights(graph) if alike else graph).groups
        self.group_sums_ = []
        for term, target in zip(graph.groups, weighed, strict=True):
            own, wanted = term.affinity.diagonal(), target.affinity.diagonal()
            factor = np.divide(wanted, own, out=np.ones_like(own), where=own != 0)
            sums = np.asarray(term.loadings().T @ template) * factor[:, None]
            self.group_sums_.append(sums)
        self.embedding_ = template if graph.matrix is not None else None
        return maps

    @abstractmethod
    def _solve_graph(
        self, bases: list[SubjectBasis], graph: Graph
    ) -> tuple[list[Matrix], Matrix]:
        """Return the maps and the template, (n_samples, K); set what was learned."""

    def _wanted_components(self, most: int) -> tuple[int, bool]:
        """Return how many components to solve for, and whether to choose from them."""
        wanted = self.n_components
        if isinstance(wanted, str):
            if wanted != "auto":
                raise InputError(
                    f"n_components must be a number or 'auto'; got {wanted!r}."
                )
            return most, True
        return check_int("n_components", wanted, minimum=1, owner=self._owner), False

    def _describe(
        self, found: Solution, covariances: list[Matrix], dimensions: int, lengths: Any
    ) -> None:
        """Record what was found; warn where it is one of many, or hardly shared."""
        k = found.eigenvalues.size
        self.eigenvalues_ = np.array(found.eigenvalues)
        self.objective_ = float(found.eigenvalues.sum())
        self.n_informative_ = found.n_informative(k)
        self.is_unique_ = found.is_unique(k)
        self.solver_ = found.route
        self.overlap_ = subject_overlap(covariances, lengths)
        is_auto = self.n_components == "auto"
        fewer = "" if is_auto else " Use fewer components, or n_components='auto'."
        if not self.is_unique_:
            warn_user(
                "The shared space is not unique: the last component kept and the first "
                f"left out have equal eigenvalues ({self.eigenvalues_[-1]:.6g}). "
                f"{self.n_informative_} of {k} components are informative; the others "
                f"are arbitrary directions.{fewer}",
                UniquenessWarning,
            )
        if self.overlap_ < LEAST_OVERLAP:
            warn_user(
                f"The subjects hardly overlap in the shared space ({self.overlap_:.1%} "
                f"of what they could): most of the {k} components, of {dimensions} "
                "dimensions that the subjects have together, belong to single "
                "subjects, and what is learned on some subjects will not hold for "
                f"others. {self.n_informative_} components are informative.{fewer}",
                SeparateSubjectsWarning,
            )

    # -- a new subject -----------------------------------------------------------------

    def fit_new_subject(
        self, X: Any, y: Any = None, *, edges: Any = None
    ) -> SubjectMap:
        """Learn the map of a subject that was not in the fit; the model is unchanged.

        Parameters
        ----------
        X : array of shape (n_samples, n_voxels), or a Subject
            Samples of the new subject.
        y : array-like, optional
            Categories or ids, as in :meth:`fit`; None or NaN for unlabelled samples.
        edges : (sparse) matrix of shape (n_samples, n_aligning_samples), optional
            Weights between the new samples and all aligning samples, for models whose
            graph is a matrix, or instead of y.

        Returns
        -------
        SubjectMap
            With ``n_undetermined``, the number of dimensions of the shared space that
            no edge of the new samples determines (a category that they lack), where
            features are zero, and ``objective_history``, the objective after each
            step where the map comes from a descent. Where the model itself is informed
            of more, there is an `UndeterminedWarning`.
        """
        basis, y = self._new_subject(X, y)
        joined = self._join_new(basis, y, edges)
        new = self._make_map(basis, joined.map)
        if joined.place is not None:
            new.place = joined.place
        new.objective_history = joined.history
        new.n_undetermined = self.n_components_ - joined.n_determined
        return new

    def _for_rows(self, rows: Any, y: Any) -> tuple[BaseAligner, Any]:
        if not self.joined_by_row_:
            return super()._for_rows(rows, y)
        if y is None:
            return self, rows.tolist()
        return self, np.array([*zip(y[rows], rows.tolist(), strict=True)], object)

    def _solve_new(self, basis: SubjectBasis, y: Any) -> Matrix:
        return self._join_new(basis, y).map

    def _join_new(self, basis: SubjectBasis, y: Any, edges: Any = None) -> Joined:
        laplacian, target = edges_of_new(self, basis, y, edges)
        joined = self._join(basis, laplacian, target)
        if joined.n_determined == 0:
            raise InputError(
                f"The edges of {basis.name} are the same for all its samples, so "
                "nothing determines its map. It needs samples of at least two "
                "categories."
            )
        if joined.n_determined < self.n_informative_:
            warn_user(
                f"The edges of {basis.name} determine {joined.n_determined} dimensions "
                f"of the shared space, of {self.n_informative_} that are informative; "
                "its features are zero in the others. Give it samples of the "
                "categories or stimuli that it lacks.",
                UndeterminedWarning,
            )
        return joined

    @abstractmethod
    def _join(self, basis: SubjectBasis, laplacian: Any, target: Matrix) -> Joined:
        """Fit the map of a new subject to its edges times the template."""

    # -- what the components mean ------------------------------------------------------

    def component_summary(self, *, check: AlignmentCheck | None = None) -> Any:
        """Describe each component: a pandas table with one row per component.

        Parameters
        ----------
        check : AlignmentCheck, optional
            What :func:`brainweave.alignment_check` found; by default that of the
            aligning samples.

        Returns
        -------
        DataFrame
            Indexed from 0, as the columns of what ``transform`` gives. Columns:
            ``graph_fit``, how well the feature fits the graph (larger is better: the
            eigenvalue, or minus it in the paper's model); ``informative``, whether the
            component is significant (p < .05) on held-out samples, or, where that
            cannot be checked, whether it gains from the edges; ``agreement``, the mean
            correlation between subjects over time, or over samples of the same group,
            over the very samples that aligned: it is high also for noise;
            ``agreement_cv``, the same over held-out samples, without slow
            trends and what is shared in the components before it; ``p``, that neither
            it nor the next are shared, which never falls; and ``variance_<i>``, the
            share of subject i's variance that the feature explains.
        """
        check_is_fitted(self, "maps_")
        if check is None and hasattr(self, "bases_"):
            check = stored_check(self)
        return component_table(self, check)

    # -- what must fit together in a file ----------------------------------------------

    def _misfits(self) -> Iterator[str]:
        graph = self.graph_
        if not 2 <= len(graph.lengths) <= self.n_subjects_:
            yield "has a graph of other subjects"
        if not 0 <= self.n_informative_ <= self.n_components_:
            yield "has more informative components than components"
        groups = [term.rank for term in graph.groups]
        if [len(sums) for sums in self.group_sums_] != groups:
            yield "has sums of its groups that do not fit its graph"
        n = None if graph.matrix is None else graph.n_samples
        if n != (None if self.embedding_ is None else len(self.embedding_)):
            yield "has aligning samples that do not fit its graph"
