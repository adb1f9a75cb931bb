r"""A subject that joins a fitted GDM, the others being fixed.

Its edges in the graph, times what the model keeps of the aligning samples, are its
target. With shrinkage the map is the ridge regression on that. With an energy it is the
minimum of :math:`\mathrm{tr}(Q^\top N Q) - 2\,\mathrm{tr}(Q^\top F)` subject to
:math:`Q^\top Q = I`, by steps that cannot rise (docs/theory.md).

Only :math:`F`, the edges to the aligning samples, knows the axes of the shared space.
In its null space (a category that the new subject lacks, a component that the edges do
not inform) every rotation of the features is as good: there the map is zero. With
:math:`F = A B^\top`, B an orthonormal basis of the axes that are determined, the
problem is solved for :math:`Q B`, and :math:`Q = (Q B) B^\top`.
"""

import warnings
from typing import Any, NamedTuple

import numpy as np
import scipy.linalg
import scipy.sparse

from brainweave._arrays import Codes, Matrix
from brainweave.aligners.gdm_graph import is_named, split_labels_and_ids
from brainweave.aligners.shrinkage import amplitude
from brainweave.aligners.strength import smoother_of
from brainweave.basis import SubjectBasis
from brainweave.exceptions import InputError, UndeterminedWarning
from brainweave.graphs import Graph, GroupTerm
from brainweave.labels import as_label_list, encode_new_labels
from brainweave.linalg import polar

UNDETERMINED = 1e-9  # a share of the edges' size that is no more than rounding


class Joined(NamedTuple):
    """A new map, the dimensions it is determined in, and the objective of its steps."""

    map: Matrix
    n_determined: int
    history: list[float] | None = None


def join(
    model: Any, basis: SubjectBasis, y: Any, edges: Any = None, max_iter: int = 1000
) -> Joined:
    """Fit the map of a new subject to a fitted GDM, and say what stays undetermined."""
    laplacian, target = _edges_of_new(
        model, _groups_of_new(model, basis.n_samples, y, edges), edges, basis
    )
    if model.energy is None:
        joined = _regress(basis, target, model)
    else:
        n_aligning = model.graph_.n_samples
        joined = _join_by_descent(basis, laplacian, target, n_aligning, max_iter)
    if joined.n_determined == 0:
        raise InputError(
            f"The edges of {basis.name} are the same for all its samples, so nothing "
            "determines its map. It needs samples of at least two categories."
        )
    if joined.n_determined < model.n_informative_:
        warnings.warn(
            f"The edges of {basis.name} determine {joined.n_determined} dimensions of "
            f"the shared space, of {model.n_informative_} that are informative; its "
            "features are zero in the others. Give it samples of the categories "
            "or stimuli that it lacks.",
            UndeterminedWarning,
            stacklevel=3,
        )
    return joined


# -- the edges of its samples ----------------------------------------------------------


def _groups_of_new(model: Any, n: int, y: Any, edges: Any) -> list[Codes]:
    """Return the groups of its samples in each term of the graph, if there are any."""
    graph: Graph = model.graph_
    if not graph.groups or (y is None and edges is not None):
        return []
    if not is_named(model.graph, "labels+time"):
        known = _row_numbers(model, n) if y is None else y
        return [encode_new_labels(known, term.names) for term in graph.groups]
    labels, ids = (None, None) if y is None else split_labels_and_ids(y)
    if labels is not None and ids is None and model.joined_by_row_:
        ids = _row_numbers(model, n)
    if ids is None:
        raise InputError(
            "This model joins samples by labels and ids: pass both for the new "
            "subject, as two columns of y."
        )
    by_label, by_id = graph.groups
    # an id that nobody else saw links nobody, as in a fit
    names = set(by_id.names)
    ids = [i if i in names else None for i in as_label_list(ids, "ids of y")]
    return [
        encode_new_labels(labels, by_label.names),
        encode_new_labels(ids, by_id.names),
    ]


def _row_numbers(model: Any, n_samples: int) -> Any:
    """Return the ids that stand for y in a model fitted without y."""
    if not getattr(model, "joined_by_row_", False):
        raise InputError(
            "This model joins samples by their labels or ids: pass those of the "
            "new subject's samples as y."
        )
    wanted = model.graph_.lengths[0]
    if n_samples != wanted:
        raise InputError(
            "This model joins samples by their row number: the new subject needs "
            f"{wanted} samples, but has {n_samples}. Pass the row numbers of its "
            "samples as y."
        )
    return range(n_samples)


def _edges_of_new(
    model: Any, codes: list[Codes], edges: Any, basis: SubjectBasis
) -> tuple[Any, Matrix]:
    """Return D - G among new samples, and G to the model's times their features."""
    graph, n = model.graph_, basis.n_samples
    embedding = getattr(model, "embedding_", None)
    degrees, target = np.zeros(n), np.zeros((n, model.n_components_))
    among_new = scipy.sparse.csr_array((n, n))
    if edges is not None:
        weights = scipy.sparse.csr_array(edges, dtype=np.float64)
        if embedding is None or weights.shape != (n, len(embedding)):
            raise InputError(
                f"edges must be new samples x aligning samples, "
                f"{(n, graph.n_samples)}, for a model whose graph is a "
                f"matrix; got {weights.shape}."
            )
        degrees += np.asarray(weights.sum(axis=1)).ravel()
        target += weights @ embedding
    elif graph.matrix is not None:
        raise InputError(
            "This model's graph is a matrix: pass edges, the weights between the "
            "new samples and all aligning samples."
        )
    for term, own, sums in zip(graph.groups, codes, model.group_sums_, strict=False):
        new = GroupTerm(own, term.affinity, term.names)
        Z = new.membership()
        degrees += Z @ (term.affinity @ (term.counts + new.counts))
        target += Z @ (term.affinity @ sums)
        among_new = among_new + Z @ scipy.sparse.csr_array(term.affinity) @ Z.T
    if not target.any():
        raise InputError(
            f"No sample of {basis.name} has an edge to an aligning sample; its map "
            "cannot be learned. Pass the labels of its samples as y."
        )
    return scipy.sparse.diags_array(degrees) - among_new, target


# -- its map ---------------------------------------------------------------------------


def _regress(basis: SubjectBasis, target: Matrix, model: Any) -> Joined:
    """Regress the target on the new samples, with a ridge; scale as the model does."""
    # where subjects were given strengths of their own, what lies in their middle
    rhos = sorted(model.shrinkage_)
    rho = rhos[0] if rhos[0] == rhos[-1] else float(np.exp(np.mean(np.log(rhos))))
    mixing, features = smoother_of(basis, rho).regress(target)
    values = np.linalg.svd(target - target.mean(axis=0), compute_uv=False)
    size = max(float(np.linalg.norm(target, 2)), 1e-300)
    scale = amplitude(features, target, model.eigenvalues_) * model.scale_
    return Joined(mixing * scale, int((values > UNDETERMINED * size).sum()))


def _join_by_descent(
    basis: SubjectBasis, laplacian: Any, target: Matrix, n_aligning: int, max_iter: int
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
    joined = descend(N, F, size=float(size), max_iter=max_iter)
    return joined._replace(map=joined.map * np.sqrt(n / basis.values[:, None]))


def descend(
    N: Matrix, F: Matrix, *, size: float = 0.0, max_iter: int = 1000, tol: float = 1e-10
) -> Joined:
    """Descend from the Procrustes solution, the polar factor of F.

    The rounding of F goes with ``size``, that of the numbers it was computed from. A
    step that lowers the objective by a smaller share than ``tol`` is the last.
    """
    _, values, axes = scipy.linalg.svd(F, full_matrices=False, check_finite=False)
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
