"""The Graph-based Decoding Model with a ridge: what we recommend."""

from collections.abc import Iterator
from dataclasses import KW_ONLY, dataclass, field, replace
from functools import wraps
from typing import Any, ClassVar

import numpy as np
from sklearn.utils.validation import check_is_fitted

from brainweave._core.arrays import Matrix, trim_heap
from brainweave._core.exceptions import (
    InputError,
    SeparateSubjectsWarning,
    UniquenessWarning,
    warn_user,
)
from brainweave._core.validation import check_number, check_option
from brainweave._core.workers import map_subjects, subject_threads
from brainweave.aligners.check.agreement import NEIGHBOURS
from brainweave.aligners.check.alignment_check import count_holding
from brainweave.aligners.gdm.agreement_choice import (
    MOST_FEATURES,
    Choice,
    InDirections,
    choose_by_agreement,
    leading_directions,
    place_unit,
)
from brainweave.aligners.gdm.base import GraphAligner
from brainweave.aligners.gdm.eigenproblem import Solution, apply_graph
from brainweave.aligners.gdm.graph_parsing import (
    is_incomplete,
    is_named,
    unconnected_message,
)
from brainweave.aligners.gdm.joint import JointRidge
from brainweave.aligners.gdm.new_subject import Joined, edges_of_new, regress_new
from brainweave.aligners.gdm.ridge import (
    amplitude,
    common_scale,
    is_positive,
    solve_per_subject,
    solve_shrinkage,
)
from brainweave.aligners.gdm.shared_map import Placement, SharedMap
from brainweave.aligners.gdm.strength import choose_strength, smoother_of
from brainweave.aligners.maps import PlacePart
from brainweave.basis.basis import SubjectBasis
from brainweave.basis.linalg import flip_signs
from brainweave.basis.places import Places, find_places
from brainweave.graphs.builders import Graph, equal_group_weights

FIRST_TRIED, MOST_TRIED = 32, 100  # components that "auto" looks at
ROOM = 2**27  # bytes that products of voxels may take beside their factors
DEFAULT_PLACE_RIDGE = 0.1  # where places must be used, and nothing can be held out
OPTIONS = {"constraint": ("global", "subject"), "scale": ("agreement", "unit")}


def _point_to_paper(cls: Any) -> Any:
    """Let the constructor name the class that has an energy."""
    init = cls.__init__

    @wraps(init)
    def __init__(self: Any, *args: Any, **params: Any) -> None:
        if "energy" in params:
            raise TypeError(
                "GDM has no energy; the paper's model is PaperGDM(energy=...)."
            )
        init(self, *args, **params)

    cls.__init__ = __init__
    return cls


@_point_to_paper
@dataclass(eq=False, repr=False)
class GDM(GraphAligner):
    r"""Align subjects by a graph that connects samples that belong together.

    With :math:`Y = (W_1^\top \Phi_1, \dots, W_M^\top \Phi_M)` the shared features of
    all samples of all subjects and :math:`G` the graph, GDM finds the global maximum of

    .. math:: \mathrm{tr}(Y G Y^\top) \quad\text{subject to}\quad
              \sum_i (Y_i Y_i^\top + g_i W_i^\top W_i) = I ,

    the maps of each subject being shrunk by a ridge :math:`g_i`. Samples need not be
    locked in time: sequences, numbers of samples and of voxels may differ. Where
    subjects are registered, a map is a part that all share over places (parcels,
    supervoxels, or equal columns) and each subject's deviation from it. The model as
    published, which cuts each subject's spectrum instead, is :class:`PaperGDM`.

    Parameters
    ----------
    n_components : int or "auto", default="auto"
        Number of shared features K. "auto" tests components in their order on held-out
        samples (see :func:`brainweave.alignment_check`) and keeps as many
        as leave an expected share of false ones of at most 5 % (ForwardStop [2]_).
        With labels, it keeps them as long as p < .3, and at most as many again whose
        agreement may still be a twentieth of theirs. If none is significant, it keeps
        10, with a warning. The graph determines at most one component per group.
    shrinkage : "auto", "ledoit-wolf" or float, default="auto"
        The ridge in units of a subject's mean eigenvalue. "auto": the best of 12 (16)
        at predicting groups (features of stimuli) from other runs of the same subject,
        or blocks where runs are not known. Where no group repeats, as in a film, and
        where places are used, the one by which subjects agree best on held-out halves
        of the aligning samples.
    place : "auto", array of labels, matrix, list of these, or None, default="auto"
        Places that correspond between subjects, over which they share a map. "auto":
        what the subjects' brain spaces know (supervoxels of 8 mm, patches of a
        surface), or the columns, if all have the same number, up to 2,048. Or a label
        for each voxel (0 for none), or voxels x places. They are used if subjects agree
        clearly better with them on held-out halves of the aligning samples.
    place_shrinkage : "auto" or float, default="auto"
        The ridge of the shared map, in units of the subjects' mean eigenvalues. A
        number uses places without a test.
    constraint : {"global", "subject"}, optional
        Whether the features have unit covariance over all subjects together, in closed
        form, or in each subject, by ten rounds of an ascent from there: then samples
        that some subjects lack cost less. By default "subject" for the graphs "time"
        and "labels+time" if a subject lacks ids that others share, else "global".
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
        (default: the row number), joined if equal; they count by how many subjects have
        them. "labels+time": the sum of both; y has two columns, categories and ids, or
        categories alone if they are the same in all rows. A callable makes the graph
        from y, such as ``partial(label_graph, different=0, balance="none")``, or
        :func:`feature_graph`, with the features of the stimuli as y. A graph is over
        all samples in subject order, as is a symmetric (sparse) matrix.
    standardize : bool or "reliability", default=True
        Give every voxel zero mean and unit variance over the aligning samples.
        "reliability": voxels that respond similarly to equal labels have more weight
        (:mod:`brainweave.basis.reliability`).
    n_jobs : int, optional
        Number of parallel jobs; default one per core (on a GPU: two).
    device : str, optional
        Device on which torch reads the voxels, such as "cuda". See
        :class:`SubjectBasis`.

    Attributes
    ----------
    maps_ : list of SubjectMap
        One map per subject.
    mixing_ : list of ndarray of shape (n_samples_i, K)
        The maps as mixtures of the aligning samples.
    shrinkage_, shrinkage_by_ : float and str
        The shrinkage that was used, and how it was found: "runs" or "blocks" left out,
        "agreement" on held-out halves, "ledoit-wolf" or "given".
    place_ : Placement
        Whether subjects share a map over places: ``used``, ``ridge``, ``n_places``;
        ``str(place_)`` describes it in words.
    shared_map_ : SharedMap
        The map for new subjects in the same space, without aligning data; only if
        places are used.
    constraint_ : str
        The constraint that was used, "global" or "subject".
    bases_ : list of SubjectBasis
        Reusable: pass them in place of X to fit again without reading voxels.
    eigenvalues_ : ndarray of shape (K,)
        Contribution of the edges to each component, descending; with the constraint
        "subject", the root mean square of its features.
    objective_ : float
        Their sum, the objective.
    n_informative_ : int
        Components that gain from the edges; the others are arbitrary or noise.
    is_unique_ : bool
        Whether there is a gap behind the last eigenvalue (Proposition 3).
    overlap_ : float
        How far the subjects share their features: 1 if all use all features alike, 0 if
        every feature belongs to one subject; below 0.05, a `SeparateSubjectsWarning`.
    graph_, solver_ : Graph and str
        The graph and the solver that were used.

    Notes
    -----
    With n samples and v voxels per subject and M subjects, time is O(M (n^2 v + n^3))
    for graphs of groups; the (M n) x (M n) graph is never built. Memory is up to 16 M
    n^2 bytes, or 8 M v (n + v) where voxels are fewer, beside the subjects in work.
    With p places, time grows by O(M n p (n + p) + p^3) and memory by 8 M (n p + n q +
    q^2) + 24 p^2 bytes, q = min(p, 200); ridges are chosen on at most 40 subjects.
    Signs are fixed. A new subject is the ridge regression of its samples on what the
    model has for their groups.

    References
    ----------
    .. [1] Li, W., Liu, M., Chen, F., & Zhang, D. (2020). Graph-based decoding model
       for functional alignment of unaligned fMRI data. AAAI 34.
    .. [2] G'Sell, M. G., Wager, S., Chouldechova, A., & Tibshirani, R. (2016).
       Sequential selection procedures and false discovery rate control. JRSS B 78.

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
        "shrinkage_": float,
        "shrinkage_by_": str,
        "constraint_": str,
        "scale_": "K",
        "place_": Placement,
        "shared_?": "places K",
        "shared_amplitude_": float,
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
    standardize: bool | str = True
    n_jobs: int | None = None
    device: Any = None

    _ridge = True
    # where the search begins, of a fit to half the samples, and where it ended
    _first_ridges: Any = field(default=None, init=False)
    _met_ridges: Any = field(default=None, init=False)
    _solution_name = "mixing_"
    _needs_eigenbasis = False

    @property
    def _features_are_weighed(self) -> bool:  # type: ignore[override]
        return self.scale == "agreement"

    @property
    def _chooses(self) -> bool:  # type: ignore[override]
        place = self.place is not None and self.place_shrinkage == "auto"
        return place or isinstance(self.shrinkage, str) or self.n_components == "auto"

    def _settled_by(self, fits: list[Any]) -> dict[str, Any]:
        """Return the ridges and the number of components in the middle of the fits."""
        settled: dict[str, Any] = {}
        if isinstance(self.shrinkage, str):
            settled["shrinkage"] = float(np.median([f.shrinkage_ for f in fits]))
        if self.n_components == "auto":
            settled["n_components"] = int(np.median([f.n_components_ for f in fits]))
        if self.place is not None and self.place_shrinkage == "auto":
            ridges = [f.place_.ridge for f in fits if f.place_.used]
            if 2 * len(ridges) > len(fits):
                settled["place_shrinkage"] = float(np.median(ridges))
            else:
                settled["place"] = None
        return settled

    def _check_options(self, graph: Graph) -> None:
        """Check them; settle the constraint, which the graph may call for."""
        for name, allowed in OPTIONS.items():
            given = getattr(self, name)
            if given is not None or name != "constraint":
                check_option(name, given, allowed, owner=self._owner)
        if self.place_shrinkage != "auto":
            owner, hint = self._owner, "It is in units of mean eigenvalues, or 'auto'."
            ridge = self.place_shrinkage
            check_number("place_shrinkage", ridge, "(0, inf]", owner=owner, hint=hint)
        if self.constraint == "subject" and not is_positive(graph):
            raise InputError(
                f"constraint='subject' of {self._owner} is for graphs whose edges all "
                "attract, such as 'labels', 'time' or that of features."
            )
        by_time = is_named(self.graph, "time", "labels+time")
        own = "subject" if by_time and is_incomplete(graph) else "global"
        self.constraint_ = self.constraint or own

    def _solve_graph(
        self, bases: list[SubjectBasis], graph: Graph
    ) -> tuple[list[Matrix], Matrix]:
        self._check_options(graph)
        dimensions = sum(
            b.n_voxels if b.uses_covariance else b.n_samples - 1 for b in bases
        )
        most = dimensions
        if graph.matrix is None:
            ranks = [min(int((t.counts > 0).sum()), t.rank) for t in graph.groups]
            most = min(dimensions, sum(ranks))
        k, auto = self._wanted_components(min(most, MOST_TRIED))
        places = self._find_places(bases, graph)
        with subject_threads(len(bases), self.n_jobs, share_cores=True) as each:
            joint, directions = self._choose_ridges(bases, places, graph, k, each)
            if auto:
                found, k = self._found_to_hold(bases, joint, graph, k)
            else:
                found = solve_shrinkage(joint, graph, k)
            informative = found.n_informative(k)
            if k > informative and not auto:
                warn_user(
                    f"n_components={k}, but the graph informs {informative} "
                    "components: one less than it has categories, or one per stimulus. "
                    f"{informative} are kept. Use n_components='auto', or a graph of "
                    "more groups, such as graph='labels+time'.",
                    UniquenessWarning,
                )
                k = informative
            found = found.first(k)
            if self.constraint_ == "subject":
                graph = equal_group_weights(graph)
                found = solve_per_subject(joint, graph, found)
            pairs = zip(found.features, joint.penalties(found), strict=True)
            covariances = [f.T @ f + penalty for f, penalty in pairs]
            joint.forget()
        self._describe(found, covariances, dimensions, graph.lengths)
        mu = found.eigenvalues
        whole = apply_graph(graph, found.template)
        targets = [whole[rows] for rows in graph.slices()]
        spread = mu / mu[0] if self.scale == "agreement" else np.ones_like(mu)
        self.scale_ = common_scale(found.features, targets, mu, spread)
        signs = flip_signs(np.concatenate(found.features))
        if found.shared is not None and directions is not None:
            found = replace(found, shared=directions @ found.shared)
        maps = self._scale_maps(found, self._aligning_places, targets, signs)
        for basis in bases:
            basis.free_device_memory()
        return maps, found.template * signs

    def _found_to_hold(
        self, bases: list[SubjectBasis], joint: JointRidge, graph: Graph, most: int
    ) -> tuple[Solution, int]:
        """Return components, and how many hold up; try more as long as all do."""
        tried = min(most, FIRST_TRIED)
        while True:
            found = solve_shrinkage(joint, graph, tried)
            joint.forget()  # makes room for the models of the halves
            k = count_holding(self, bases, graph, found, tried)
            if k + NEIGHBOURS <= found.template.shape[1] or tried == most:
                return found, k
            tried = min(most, 2 * tried)

    # -- places ------------------------------------------------------------------------

    def _find_places(self, bases: list[SubjectBasis], graph: Graph) -> Places | None:
        """Find the places of the subjects and their samples in these, if any."""
        self._aligning_places = None
        reason = ""
        if self.place is None:
            reason = "place=None"
        elif graph.matrix is not None:
            reason = "a graph of weights between samples has no places"
        elif not all(b.is_linear for b in bases):
            reason = "only linear kernels have places"
        elif all(b.place_samples is not None for b in bases):  # of half the samples
            self._aligning_places = [b.place_samples for b in bases]
            n = self._aligning_places[0].shape[1]
            return Places(n, [None] * len(bases), "as of all samples")
        elif any(b._narrow is None and b._data is None for b in bases):
            reason = "the samples of the subjects are not available"
        else:
            found = find_places(self.place, bases, owner=self._owner)
            if isinstance(found, Places):
                how: Any = {"n_jobs": self.n_jobs, "threads_only": True}
                them = bases, found.matrices, [b.dtype for b in bases]
                own = map_subjects(SubjectBasis.in_places, *them, **how)
                self._aligning_places = own
                return found
            reason = found
        self.place_ = Placement(what=reason)
        return None

    def _choose_ridges(
        self,
        bases: list[SubjectBasis],
        places: Places | None,
        graph: Graph,
        k: int,
        each: Any,
    ) -> tuple[JointRidge, Matrix | None]:
        """Choose the ridges of the subjects and of the shared map of places.

        Of many places, the directions that are used come with them.
        """
        n, whole = len(bases), self._aligning_places
        how: Any = {"n_jobs": self.n_jobs, "threads_only": True}
        smoothers = map_subjects(smoother_of, bases, [1.0] * n, **how)
        sizes = [min(b.n_samples, b.n_voxels) for b in bases]
        roomy = 8 * sum(size**2 for size in sizes) <= ROOM
        for smoother, basis in zip(smoothers, bases, strict=True):
            smoother.keeps_products, smoother.memory = roomy, basis.memory
        directions = None if whole is None else leading_directions(whole, smoothers)
        Z: Any = None if whole is None else InDirections(whole, directions)
        known: Any = {"n_jobs": self.n_jobs, "owner": self._owner}
        self.shrinkage_, self.shrinkage_by_ = choose_strength(
            self.shrinkage, bases, graph, or_later=bool(graph.groups), **known
        )
        ridge, self._met_ridges = self.place_shrinkage, None
        of_film = self.shrinkage == "auto" and self.shrinkage_by_ == "ledoit-wolf"
        asked = places is not None and isinstance(ridge, str)
        apart = unconnected_message(graph)
        needed = asked and bool(apart)
        if graph.groups and (of_film or asked):
            choice = choose_by_agreement(
                smoothers,
                Z if asked else None,
                graph,
                min(k, MOST_FEATURES),
                runs=[b.runs for b in bases],
                rho=None if of_film else self.shrinkage_,
                fixed=self.shrinkage_by_ == "given",
                needed=needed,
                per_subject=self.constraint_ == "subject",
                over_subjects=each,
                start=self._first_ridges,
            )
            if not roomy:
                trim_heap()  # of the halves
            if choice is None and np.isnan(self.shrinkage_):
                self.shrinkage_, _ = choose_strength(
                    "ledoit-wolf", bases, graph, **known
                )
            if choice is None and needed:
                choice = Choice(max(1.0, self.shrinkage_), DEFAULT_PLACE_RIDGE)
            if choice is not None:
                self._met_ridges = choice.met
                ridge = choice.place if asked else ridge
                if self.shrinkage_by_ != "given" and (of_film or choice.place < np.inf):
                    self.shrinkage_, self.shrinkage_by_ = choice.rho, "agreement"
        strength = np.inf if places is None or isinstance(ridge, str) else float(ridge)
        if apart and not np.isfinite(strength):
            raise InputError(apart)
        if apart and places is not None:
            warn_user(
                f"{apart.split('. ')[0]}: only the {places.n_places} places "
                f"({places.what}) tie them, by the map that all subjects share.",
                SeparateSubjectsWarning,
            )
        if places is not None:
            self.place_ = Placement(
                ridge=strength if np.isfinite(strength) else None,
                n_places=places.n_places,
                what=places.what,
                names=places.names,
                frame="" if places.frame is None else str(places.frame),
            )
            self._aligning_matrices = places.matrices
        smoothers = [smoother.at(self.shrinkage_) for smoother in smoothers]
        tied = Z if strength < np.inf else None
        joint = JointRidge(smoothers, tied, over_subjects=each)
        if joint.every_place is not None:
            joint = joint.at(strength * place_unit(joint.every_place))
        return joint, directions

    def _scale_maps(
        self, found: Any, Z: list[Matrix] | None, targets: list[Matrix], signs: Matrix
    ) -> list[Matrix]:
        """Scale maps, and the shared one, to the spread that is asked for."""
        mu = found.eigenvalues
        sizes = [
            amplitude(f, t, mu) for f, t in zip(found.features, targets, strict=True)
        ]
        maps = list(found.maps)
        self.shared_, self.shared_amplitude_ = None, 1.0
        if found.shared is not None and Z is not None:
            self.shared_ = found.shared * signs
            linked = [i for i, target in enumerate(targets) if target.any()]
            in_places = [np.asarray(Z[i]) @ found.shared for i in linked]
            pairs = zip(in_places, linked, strict=True)
            alone = [amplitude(own, targets[i], mu) for own, i in pairs]
            self.shared_amplitude_ = float(np.exp(np.mean(np.log(alone))))
            for i in set(range(len(maps))) - set(linked):
                # nothing is known of its deviation
                maps[i], sizes[i] = np.zeros_like(maps[i]), self.shared_amplitude_
        self._amplitudes = sizes
        return [
            m * (size * self.scale_ * signs)
            for m, size in zip(maps, sizes, strict=True)
        ]

    def _set_solution(self, bases: list[SubjectBasis], solution: list[Matrix]) -> None:
        super()._set_solution(bases, solution)
        if self.shared_ is None or self._aligning_places is None:
            self._aligning_places = None
            return
        for i, own in enumerate(self.maps_):
            own.place = PlacePart(
                self._aligning_matrices[i],
                np.asarray(self._aligning_places[i]),
                self.shared_ * (self._amplitudes[i] * self.scale_),
                in_voxels=bases[i].place_samples is None,
            )

    @property
    def shared_map_(self) -> SharedMap:
        """The map for new subjects in the same space, without aligning data."""
        check_is_fitted(self, "maps_")
        if self.shared_ is None:
            raise AttributeError(f"This model has no shared map. {self.place_}")
        weights = self.shared_ * (self.shared_amplitude_ * self.scale_)
        scaled = bool(self.standardize)
        return SharedMap(weights, self.place_, scaled=scaled, place=self.place)

    # -- a new subject -----------------------------------------------------------------

    def _join_new(self, basis: SubjectBasis, y: Any, edges: Any = None) -> Joined:
        if self.shared_ is None:
            return super()._join_new(basis, y, edges)
        target = np.zeros((basis.n_samples, self.n_components_))
        if not (y is None and edges is None and not self.joined_by_row_):
            target = edges_of_new(self, basis, y, edges, needed=False)[1]
        matrix = self.place_.places().of_new(basis, self.place)
        return regress_new(basis, target, self, (matrix, basis.in_places(matrix)))

    def _join(self, basis: SubjectBasis, laplacian: Any, target: Matrix) -> Joined:
        return regress_new(basis, target, self)

    def _misfits(self) -> Iterator[str]:
        yield from super()._misfits()
        if not 0 < self.shrinkage_ < np.inf:
            yield "has no ridge"
        if self.scale_ is self.eigenvalues_:
            yield "has eigenvalues for the scale of its features"
