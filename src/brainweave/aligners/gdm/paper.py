"""The Graph-based Decoding Model as published by Li, Liu, Chen and Zhang (2020)."""

from dataclasses import KW_ONLY, dataclass
from typing import Any

import numpy as np

from brainweave._core.arrays import Matrix
from brainweave._core.exceptions import InputError
from brainweave._core.validation import check_option
from brainweave.aligners.check.alignment_check import count_holding
from brainweave.aligners.gdm.base import GraphAligner
from brainweave.aligners.gdm.eigenproblem import ROUTES, solve
from brainweave.aligners.gdm.graph_parsing import unconnected_message
from brainweave.aligners.gdm.new_subject import Joined, join_by_descent
from brainweave.basis.basis import SubjectBasis
from brainweave.basis.linalg import flip_signs
from brainweave.graphs.builders import Graph

MOST_TRIED = 100  # components that "auto" looks at for a graph without groups


@dataclass(eq=False, repr=False)
class PaperGDM(GraphAligner):
    r"""Align subjects by the Graph-based Decoding Model as published (Algorithm 1).

    With :math:`Y = (W_1^\top \Phi_1, \dots, W_M^\top \Phi_M)` the shared features of
    all samples of all subjects, :math:`G` the graph, :math:`D` its degrees and
    :math:`L = D - G`, it finds the global minimum of

    .. math:: \mathrm{tr}(Y L Y^\top) = \tfrac12 \sum_{ij} G_{ij} \lVert y_i - y_j
              \rVert^2 \quad\text{subject to}\quad Y Y^\top = I,

    every map being restricted to the leading directions of its subject's kernel
    coordinates that hold a share ``energy`` of the singular values. Samples need not be
    locked in time: sequences, numbers of samples and of voxels may differ.
    :class:`GDM` shrinks the maps instead of cutting them, which is more accurate on
    most data.

    Parameters
    ----------
    n_components : int or "auto", default=10
        Number of shared features K. "auto" keeps those that hold up on samples that
        did not align (see :class:`GDM`).
    energy : float in (0, 1], or one per subject, default=0.82
        Share of the summed singular values that each subject keeps.
    graph : "labels", "time", "labels+time", callable, Graph or matrix, default="labels"
        As in :class:`GDM`; with "labels" the weights are +1 within and -1 between
        categories.
    solver : {"auto", "closed", "dense", "iterative"}, default="auto"
        How the eigenproblem is solved. All give the same result; "auto" takes the
        cheapest that applies.
    kernel, kernel_params, standardize, n_jobs, device : various
        As in :class:`GDM`.

    Attributes
    ----------
    coef_ : list of ndarray of shape (n_kept_i, K)
        The maps in kernel coordinates.
    eigenvalues_ : ndarray of shape (K,)
        The smallest eigenvalues of :math:`V_*^\top L V_*`, ascending.
    maps_, bases_, objective_, n_informative_, is_unique_, overlap_, graph_, solver_
        As in :class:`GDM`.

    Notes
    -----
    With n samples and v voxels per subject and M subjects, time is O(M (n^2 v + n^3))
    and memory O(M n^2) for graphs of groups; the (M n) x (M n) graph is never built.
    Features are scaled to unit variance over the aligning samples (:math:`\sqrt T`
    times the paper's :math:`Y`). Signs are fixed. A new subject minimises the same
    objective over its own map, the others being fixed: a quadratic on the Stiefel
    manifold, by a descent that starts from the Procrustes solution and never rises.

    References
    ----------
    Li, W., Liu, M., Chen, F., & Zhang, D. (2020). Graph-based decoding model for
    functional alignment of unaligned fMRI data. AAAI 34.

    Examples
    --------
    Two subjects with different voxels who saw three categories:

    >>> rng = np.random.default_rng(0)
    >>> X = [np.repeat(rng.normal(size=(3, v)), 8, axis=0) for v in (40, 60)]
    >>> X = [x + 0.1 * rng.normal(size=x.shape) for x in X]
    >>> a, b = PaperGDM(n_components=2).fit_transform(X, [np.arange(24) // 8] * 2)
    >>> bool(np.corrcoef(a.ravel(), b.ravel())[0, 1] > 0.99)
    True
    """

    n_components: int | str = 10
    _: KW_ONLY
    energy: Any = 0.82
    kernel: Any = "linear"
    kernel_params: Any = None
    graph: Any = "labels"
    standardize: bool | str = True
    solver: str = "auto"
    n_jobs: int | None = None
    device: Any = None

    _ridge = False

    def _solve_graph(
        self, bases: list[SubjectBasis], graph: Graph
    ) -> tuple[list[Matrix], Matrix]:
        check_option("solver", self.solver, ROUTES, owner=self._owner)
        if apart := unconnected_message(graph):
            raise InputError(apart)
        kept = [b.n_kept for b in bases]
        most = sum(len(term.names) for term in graph.groups)
        most = MOST_TRIED if graph.matrix is not None else most
        k, auto = self._wanted_components(min(sum(kept), most))
        if k > sum(kept):
            shown = " + ".join(map(str, kept[:6])) + (" + ..." if len(kept) > 6 else "")
            raise InputError(
                f"n_components={k} is more than the {sum(kept)} dimensions that the "
                f"subjects keep together ({shown}). Use fewer components or more "
                "energy."
            )
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

    def _join(self, basis: SubjectBasis, laplacian: Any, target: Matrix) -> Joined:
        return join_by_descent(basis, laplacian, target, self.graph_.n_samples)
