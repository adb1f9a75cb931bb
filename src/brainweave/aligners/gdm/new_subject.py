r"""A subject that joins a fitted GDM, the others being fixed.

Its edges in the graph, times what the model keeps of the aligning samples, are its
target. With shrinkage the map is the ridge regression on that. With an energy it is the
minimum of :math:`\mathrm{tr}(Q^\top N Q) - 2\,\mathrm{tr}(Q^\top F)` subject to
:math:`Q^\top Q = I`, by steps that cannot rise, on the axes that F determines; in the
others, as of a category that it lacks, the map is zero (docs/theory.md).
"""

from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
import scipy.linalg
import scipy.sparse
from scipy.sparse.linalg import aslinearoperator

from brainweave._core.arrays import Codes, Matrix
from brainweave._core.exceptions import InputError
from brainweave._core.labels import as_label_list, encode_new_labels
from brainweave.aligners.gdm.graph_parsing import is_named, split_labels_and_ids
from brainweave.aligners.gdm.ridge import amplitude
from brainweave.aligners.gdm.strength import smoother_of
from brainweave.aligners.maps import PlacePart
from brainweave.basis.basis import SubjectBasis
from brainweave.basis.linalg import polar
from brainweave.graphs.builders import NO_GROUP, GroupTerm, feature_tables

UNDETERMINED = 1e-9  # a share of the edges' size that is no more than rounding


class Joined(NamedTuple):
    """A new map, the dimensions it is determined in, and the objective of its steps."""

    map: Matrix
    n_determined: int
    history: list[float] | None = None
    place: PlacePart | None = None


# -- the edges of its samples ----------------------------------------------------------


def _by_features(term: GroupTerm, y: Any, basis: SubjectBasis) -> GroupTerm:
    """Return a term for samples of which features are known, or ids."""
    unknown = np.full(basis.n_samples, NO_GROUP)
    given = 0 if y is None else np.ndim(y)
    if term.features is None:
        codes = encode_new_labels(y, term.names) if given == 1 else unknown
        return replace(term, codes=codes)
    if given == 1:
        return replace(term, codes=unknown)
    d = term.features.shape[1]
    if np.shape(y) != (basis.n_samples, d):
        raise InputError(
            f"This model joins samples by {d} features: pass those of {basis.name} as "
            f"y, {(basis.n_samples, d)}; got {'none' if y is None else np.shape(y)}."
        )
    (own,) = feature_tables([y], "feature_graph")
    known = np.asarray(np.isfinite(own).all(axis=1))
    codes = np.where(known, np.arange(len(own)), NO_GROUP)
    own = np.where(known[:, None], own - np.asarray(term.mean), 0.0)
    return replace(term, codes=codes, names=tuple(range(len(own))), features=own)


def _groups_of_new(model: Any, n: int, y: Any) -> list[Codes]:
    """Return the groups of its samples in each term of a graph of groups."""
    terms = model.graph_.groups
    # places tie who saw other things than all others
    lenient = is_named(model.graph, "time") and model.shared_ is not None
    known = [_row_numbers(model, n) if y is None else y] * len(terms)
    if is_named(model.graph, "labels+time"):
        labels, ids = (None, None) if y is None else split_labels_and_ids(y)
        if labels is not None and ids is None and model.joined_by_row_:
            ids = _row_numbers(model, n)
        if ids is None:
            raise InputError(
                "This model joins samples by labels and ids: pass both for the new "
                "subject, as two columns of y."
            )
        known, lenient = [labels, ids], True
    if lenient:  # an id that nobody else saw links nobody, as in a fit
        listed, names = as_label_list(known[-1], "ids of y"), set(terms[-1].names)
        known[-1] = [i if i in names else None for i in listed]
    pairs = zip(known, terms, strict=True)
    return [encode_new_labels(own, term.names) for own, term in pairs]


def _row_numbers(model: Any, n_samples: int) -> Any:
    """Return the ids that stand for y in a model fitted without y."""
    if not model.joined_by_row_ or n_samples != model.graph_.lengths[0]:
        raise InputError(
            "This model joins samples by their labels, ids or rows: pass those of the "
            f"new subject's {n_samples} samples as y."
        )
    return range(n_samples)


def edges_of_new(
    model: Any, basis: SubjectBasis, y: Any, edges: Any = None, *, needed: bool = True
) -> tuple[Any, Matrix]:
    """Return D - G among new samples, and G to the model's times their features."""
    graph, n = model.graph_, basis.n_samples
    # the terms of the graph for the new samples, if there are any
    terms = list(graph.groups) if y is not None or edges is None else []
    if any(term.features is not None for term in terms):
        terms = [_by_features(term, y, basis) for term in terms]
    elif terms:
        codes = zip(terms, _groups_of_new(model, n, y), strict=True)
        terms = [replace(term, codes=own) for term, own in codes]
    embedding = getattr(model, "embedding_", None)
    degrees, target = np.zeros(n), np.zeros((n, model.n_components_))
    among_new = aslinearoperator(scipy.sparse.csr_array((n, n)))
    if edges is not None:
        weights = scipy.sparse.csr_array(edges, dtype=np.float64)
        if embedding is None or weights.shape != (n, len(embedding)):
            raise InputError(
                f"edges must be new samples x aligning samples, {(n, graph.n_samples)},"
                f" for a model whose graph is a matrix; got {weights.shape}."
            )
        degrees += np.asarray(weights.sum(axis=1)).ravel()
        target += weights @ embedding
    elif graph.matrix is not None:
        raise InputError(
            "This model's graph is a matrix: pass edges, the weights between the "
            "new samples and all aligning samples."
        )
    for term, new, sums in zip(graph.groups, terms, model.group_sums_, strict=False):
        L, A = new.loadings(), term.affinity
        sizes = term.loadings().sum(axis=0) + L.sum(axis=0)
        degrees += L @ (A @ sizes)
        target += L @ (A @ sums)
        among_new += aslinearoperator(L) @ aslinearoperator(A) @ aslinearoperator(L.T)
    if needed and not target.any():
        raise InputError(
            f"No sample of {basis.name} has an edge to an aligning sample; its map "
            "cannot be learned. Pass the labels of its samples as y."
        )
    return aslinearoperator(scipy.sparse.diags_array(degrees)) - among_new, target


# -- its map ---------------------------------------------------------------------------


def regress_new(
    basis: SubjectBasis, target: Matrix, model: Any, places: Any = None
) -> Joined:
    """Regress the target on the new samples, with a ridge; scale as the model does.

    With ``places``, the matrix and the samples in places, what is regressed is what the
    shared map leaves of the target; samples without edges tell nothing of that.
    """
    smoother = smoother_of(basis, model.shrinkage_)
    values = np.linalg.svd(target - target.mean(axis=0), compute_uv=False)
    size = max(float(np.linalg.norm(target, 2)), 1e-300)
    n_determined = int((values > UNDETERMINED * size).sum())
    if places is None:
        mixing, features = smoother.regress(target)
        scale = amplitude(features, target, model.eigenvalues_) * model.scale_
        return Joined(mixing * scale, n_determined)
    matrix, Z = places
    known, linked = Z @ model.shared_, np.asarray(target.any(axis=1))
    if linked.any():
        centred = target - target[linked].mean(axis=0)
        left = np.where(linked[:, None], centred - known, 0.0)
        mixing, features = smoother.regress(left)
        scale = amplitude(features + known, target, model.eigenvalues_) * model.scale_
    else:
        mixing, n_determined = np.zeros_like(target), 0
        scale = model.shared_amplitude_ * model.scale_
    part = PlacePart(matrix, Z, model.shared_ * scale)
    return Joined(mixing * scale, n_determined, place=part)


def join_by_descent(
    basis: SubjectBasis, laplacian: Any, target: Matrix, n_aligning: int
) -> Joined:
    """Minimise the paper's objective over the new map alone."""
    V, n, k = basis.vectors, basis.n_samples, target.shape[1]
    if basis.n_kept < k:
        raise InputError(
            f"{basis.name} keeps {basis.n_kept} dimensions, fewer than the {k} shared "
            "features. Give more samples or a higher energy."
        )
    # the paper's scaling: features of unit variance over sqrt(number of samples)
    total = n_aligning + n
    N = V.T @ (laplacian @ V) * (n / total)
    F = V.T @ target * (np.sqrt(n) / total)
    size = np.linalg.norm(target, 2) * (np.sqrt(n) / total)
    joined = descend(N, F, size=float(size))
    return joined._replace(map=joined.map * np.sqrt(n / basis.values[:, None]))


def descend(
    N: Matrix, F: Matrix, *, size: float = 0.0, max_iter: int = 1000, tol: float = 1e-10
) -> Joined:
    """Descend from the Procrustes solution, the polar factor of F."""
    _, values, axes = scipy.linalg.svd(F, full_matrices=False, check_finite=False)
    # the rounding of F goes with that of the numbers it was computed from
    size = max(size, float(values.max(initial=0.0)))
    axes = axes[values > UNDETERMINED * size]  # B^T
    if not len(axes):
        return Joined(np.zeros_like(F), 0, [0.0])
    F = F @ axes.T
    # all of them: LAPACK's search for the last one alone fails when most are equal
    top = np.linalg.eigvalsh(N)[-1]
    shifted = max(float(top), 0.0) * np.eye(N.shape[0]) - N

    def objective(Q: Matrix) -> float:
        return float(((N @ Q) * Q).sum() - 2 * (F * Q).sum())

    Q = polar(F)
    history = [objective(Q)]
    for _ in range(max_iter):
        Q = polar(F + shifted @ Q)
        history.append(objective(Q))
        if history[-2] - history[-1] <= tol * abs(history[-1]):
            break
    return Joined(Q @ axes, len(axes), history)
