"""The Graph-based Decoding Model with a ridge: what we recommend."""

from collections.abc import Iterator
from dataclasses import KW_ONLY, dataclass
from functools import wraps
from typing import Any, ClassVar

import numpy as np

from brainweave._core.arrays import Matrix
from brainweave._core.exceptions import UniquenessWarning, warn_user
from brainweave._core.validation import check_option
from brainweave._core.workers import map_subjects, subject_threads
from brainweave.aligners.check.alignment_check import count_holding
from brainweave.aligners.gdm.agreement_choice import (
    MOST_FEATURES,
    choose_by_agreement,
    place_unit,
)
from brainweave.aligners.gdm.base import GraphAligner
from brainweave.aligners.gdm.eigenproblem import apply_graph
from brainweave.aligners.gdm.graph_parsing import is_named
from brainweave.aligners.gdm.joint import JointRidge, Regression
from brainweave.aligners.gdm.new_subject import Joined, regress_new
from brainweave.aligners.gdm.ridge import (
    amplitude,
    common_scale,
    solve_per_subject,
    solve_shrinkage,
)
from brainweave.aligners.gdm.strength import choose_strengths, runs_of, smoother_of
from brainweave.basis.basis import SubjectBasis
from brainweave.basis.linalg import flip_signs
from brainweave.graphs.builders import Graph, equal_group_weights

MOST_TRIED = 100  # components that "auto" looks at
OPTIONS = {"constraint": ("global", "subject"), "scale": ("agreement", "unit")}
OF_THE_PAPER = ("energy", "solver")


def _point_to_paper(cls: Any) -> Any:
    """Let the constructor name the class that has parameters of the paper's model."""
    init = cls.__init__

    @wraps(init)
    def __init__(self: Any, *args: Any, **params: Any) -> None:
        for name in OF_THE_PAPER:
            if name in params:
                raise TypeError(
                    f"GDM has no {name}; the paper's model is PaperGDM({name}=...)."
                )
        init(self, *args, **params)

    cls.__init__ = __init__
    return cls


@_point_to_paper
@dataclass(eq=False, repr=False)
class GDM(GraphAligner):
    r"""Align subjects by a graph of which samples belong together or apart.

    With :math:`Y = (W_1^\top \Phi_1, \dots, W_M^\top \Phi_M)` the shared features of
    all samples of all subjects and :math:`G` the graph, GDM finds the global maximum of

    .. math:: \mathrm{tr}(Y G Y^\top) \quad\text{subject to}\quad
              \sum_i (Y_i Y_i^\top + g_i W_i^\top W_i) = I ,

    the maps of each subject being shrunk by a ridge :math:`g_i`. Samples need not be
    locked in time: sequences, numbers of samples and of voxels may differ. The model
    as published, which cuts each subject's spectrum instead, is :class:`PaperGDM`.

    Parameters
    ----------
    n_components : int or "auto", default="auto"
        Number of shared features K. "auto" keeps components in their order as long as
        they hold up on samples that did not align (p < .05; see
        :func:`brainweave.alignment_check`): with a probability of .95, none behind the
        last that is shared. With labels, where a lost component costs more accuracy
        than one too many, as long as p < .3: on average less than half of one too many.
        The paper's 10, with a warning, if nothing holds up. There are no more than the
        graph informs: one per group.
    shrinkage : "auto", "ledoit-wolf", "oas", float, or one per subject, default="auto"
        The ridge in units of a subject's mean eigenvalue. "auto": the best of 12 at
        predicting groups of samples from others of the same subject, runs being left
        out, or blocks where runs are not known (a Study knows them); where no group
        repeats, "ledoit-wolf".
    constraint : {"global", "subject"}, optional
        Whether the features have unit covariance over all subjects together, in closed
        form, or in each subject, by ten rounds of an ascent from there: then samples
        that some subjects lack cost less. By default "subject" for the graphs "time"
        and "labels+time", "global" for others.
    scale : {"agreement", "unit"}, default="agreement"
        Whether the spread of a feature, the root mean square over subjects, is how
        much they agree on it, relative to the first, or 1. It is smaller in a subject
        whose samples hardly differ on the feature.
    kernel : str, callable, or one per subject, default="linear"
        "linear", "gaussian", "quadratic", "sigmoid", "precomputed" or a callable.
    kernel_params : dict, or one per subject, optional
        ``{"hp": value}``; by default the value of the paper's supplement.
    graph : "labels", "time", "labels+time", callable, Graph or matrix, default="labels"
        "labels": y are categories; all count alike. "time": y are stimulus or time ids
        (default: the row number), joined if equal. "labels+time": the sum of both; y
        has two columns, categories and ids, or categories alone if they are the same
        in all rows. A callable makes the graph from y, such as
        ``partial(label_graph, different=-0.5)``. Or a graph made by
        ``brainweave.graphs``, or a symmetric (sparse) matrix over all samples in
        subject order.
    balance : {"groups", "subjects", "none"}, optional
        How much the groups of a graph by name count: all alike, by how many subjects
        have them, or by all their pairs of samples; see :func:`label_graph`. By
        default "groups" for labels and "subjects" for time.
    standardize : bool or "reliability", default=True
        Give every voxel zero mean and unit variance over the aligning samples.
        "reliability": voxels that answer alike to equal labels count more
        (:mod:`brainweave.basis.reliability`).
    n_jobs : int, optional
        Subjects worked on at the same time; default one per core (on a GPU: two).
    device : str, optional
        Where torch is to do what touches voxels: "cuda", say. See
        :class:`SubjectBasis`.

    Attributes
    ----------
    maps_ : list of SubjectMap
        One map per subject.
    mixing_ : list of ndarray of shape (n_samples_i, K)
        The maps as mixtures of the aligning samples.
    shrinkage_ : list of float
        The ridge of each subject, and ``shrinkage_by_``, how it was found: "runs" or
        "blocks" left out, "ledoit-wolf", "oas" or "given".
    constraint_ : str
        The constraint that was used, "global" or "subject".
    scale_ : ndarray of shape (K,)
        What the features of all subjects are multiplied with for the spread that
        ``scale`` asks for.
    bases_ : list of SubjectBasis
        Reusable: pass them in place of X to fit again without reading voxels.
    eigenvalues_ : ndarray of shape (K,)
        What the edges give to each component, descending; with the constraint of each
        subject, the mean square of its features.
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
    A subject costs one Cholesky factor in place of its eigenvectors. Signs are fixed. A
    new subject is the ridge regression of its samples on what the model has for their
    groups, in closed form.

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

    _stored: ClassVar[dict[str, Any]] = {
        "shrinkage_": [float],
        "shrinkage_by_": str,
        "constraint_": str,
        "scale_": "K",
    }

    n_components: int | str = "auto"
    _: KW_ONLY
    shrinkage: Any = "auto"
    place: Any = "auto"
    place_shrinkage: Any = "auto"
    constraint: str | None = None
    scale: str = "agreement"
    kernel: Any = "linear"
    kernel_params: Any = None
    graph: Any = "labels"
    balance: str | None = None
    standardize: bool | str = True
    n_jobs: int | None = None
    device: Any = None

    _ridge = True
    _solution_name = "mixing_"
    _needs_eigenbasis = False

    @property
    def _constraint(self) -> str:
        """The constraint that is asked for, or that the graph calls for."""
        if self.constraint is not None:
            return self.constraint
        return "subject" if is_named(self.graph, "time", "labels+time") else "global"

    @property
    def _counts_alike(self) -> bool:
        return self._constraint == "subject"

    def _check_options(self) -> None:
        for name, allowed in OPTIONS.items():
            given = self._constraint if name == "constraint" else getattr(self, name)
            check_option(name, given, allowed, owner=self._owner)

    def _solve_graph(
        self, bases: list[SubjectBasis], graph: Graph
    ) -> tuple[list[Matrix], Matrix]:
        dimensions = sum(
            b.n_voxels if b.uses_covariance else b.n_samples - 1 for b in bases
        )
        most = dimensions
        if graph.matrix is None:
            groups = sum(int(np.count_nonzero(t.counts)) for t in graph.groups)
            most = min(dimensions, groups)
        k, auto = self._wanted_components(min(most, MOST_TRIED))
        with subject_threads(len(bases), self.n_jobs, share_cores=True) as each:
            joint = self._choose_ridges(bases, graph, k, each)
            found = solve_shrinkage(joint, graph, k)
            informative = found.n_informative(k)
            if auto:
                k = count_holding(self, bases, graph, found, k)
            elif k > informative:
                warn_user(
                    f"n_components={k}, but the graph informs {informative} "
                    "components: one less than it has categories, or one per stimulus. "
                    f"{informative} are kept. Use n_components='auto', or a graph of "
                    "more groups, such as graph='labels+time'.",
                    UniquenessWarning,
                )
                k = informative
            found = found.first(k)
            self.constraint_ = self._constraint_of(graph)
            if self.constraint_ == "subject":
                graph = equal_group_weights(graph)
                found = solve_per_subject(joint, graph, found)
            solved = Regression(found.maps, found.features, found.shared)
            penalties = joint.penalties(solved)
        covariances = [
            f.T @ f + p for f, p in zip(found.features, penalties, strict=True)
        ]
        self._describe(found, covariances, dimensions, graph.lengths)
        mu = found.eigenvalues
        whole = apply_graph(graph, found.template)
        targets = [whole[rows] for rows in graph.slices()]
        spread = mu / mu[0] if self.scale == "agreement" else np.ones_like(mu)
        self.scale_ = common_scale(found.features, targets, mu, spread)
        signs = flip_signs(np.concatenate(found.features))
        sizes = [
            amplitude(f, target, mu)
            for f, target in zip(found.features, targets, strict=True)
        ]
        self._keep_shared_map(found, joint, targets, sizes, signs)
        for basis in bases:
            basis.free_device_memory()
        return [
            m * (size * self.scale_ * signs)
            for m, size in zip(found.maps, sizes, strict=True)
        ], found.template * signs

    def _choose_ridges(
        self, bases: list[SubjectBasis], graph: Graph, k: int, each: Any
    ) -> JointRidge:
        """Choose the ridges of the subjects and of the shared map of places."""
        places = self._places_of(bases, graph)
        self.shrinkage_, self.shrinkage_by_ = choose_strengths(
            self.shrinkage, bases, graph, n_jobs=self.n_jobs, owner=self._owner
        )
        by_agreement = self.shrinkage == "auto" and self.shrinkage_by_ == "ledoit-wolf"
        ridge = self.place_shrinkage
        if graph.groups and (by_agreement or (places and isinstance(ridge, str))):
            smoothers = map_subjects(
                smoother_of, bases, [1.0] * len(bases), threads_only=True
            )
            choice = choose_by_agreement(
                smoothers,
                places,
                graph,
                min(k, MOST_FEATURES),
                runs=runs_of(bases),
                rho=None if by_agreement else self.shrinkage_[0],
                fixed=self.shrinkage_by_ == "given",
                over_subjects=each,
            )
            if choice is not None:
                if by_agreement or np.isfinite(choice.place):
                    self.shrinkage_ = [choice.rho] * len(bases)
                    self.shrinkage_by_ = "agreement"
                ridge = choice.place
            elif isinstance(ridge, str):
                ridge = np.inf
        self.place_ = float(ridge) if places and not isinstance(ridge, str) else np.inf
        smoothers = map_subjects(
            smoother_of, bases, self.shrinkage_, n_jobs=self.n_jobs, threads_only=True
        )
        unit = place_unit(places) if places else 1.0
        return JointRidge(smoothers, places, self.place_ * unit, over_subjects=each)

    def _places_of(
        self, bases: list[SubjectBasis], graph: Graph
    ) -> list[Matrix] | None:
        if self.place is None or graph.matrix is not None:
            return None
        known = [getattr(b, "in_places", None) for b in bases]
        return None if any(Z is None for Z in known) else known

    def _keep_shared_map(
        self, found: Any, joint: Any, targets: Any, sizes: Any, signs: Any
    ) -> None:
        self.shared_ = None
        if found.shared is not None:
            self.shared_ = [found.shared * (s * self.scale_ * signs) for s in sizes]

    def _constraint_of(self, graph: Graph) -> str:
        return self._constraint

    def _join(self, basis: SubjectBasis, laplacian: Any, target: Matrix) -> Joined:
        return regress_new(basis, target, self)

    def _misfits(self) -> Iterator[str]:
        yield from super()._misfits()
        ridges = self.shrinkage_
        one_for_all = self.shrinkage_by_ == "given" or len(set(ridges)) == 1
        if not (ridges and one_for_all and all(0 < ridge < np.inf for ridge in ridges)):
            yield "has no ridge per subject"
        if self.scale_ is self.eigenvalues_:
            yield "has eigenvalues for the scale of its features"
