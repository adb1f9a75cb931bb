"""The graph of a GDM: by name from what is known of the samples, or as given.

What is known of a sample is its category (``"labels"``), its stimulus or time id
(``"time"``), or both (``"labels+time"``): then y has two columns, category and id.
"""

from typing import Any

import numpy as np
import scipy.sparse
from numpy.typing import NDArray

from brainweave._validation import check_option
from brainweave.exceptions import InputError
from brainweave.graphs import (
    NO_GROUP,
    Graph,
    GroupTerm,
    label_graph,
    matrix_graph,
    time_graph,
    weigh_groups,
)
from brainweave.labels import as_label_list, sort_labels

Matrix = NDArray[np.float64]

GRAPH_NAMES = ("labels", "time", "labels+time")


def is_named(graph: Any, *names: str) -> bool:
    """Whether a graph parameter is one of these names."""
    return isinstance(graph, str) and graph in names


def known_of(subject: Any, graph: Any) -> Any:
    """Return what a graph by name needs to know of a subject that knows its samples.

    None where it is not known. "labels+time" is content with the labels where there
    are no ids: then rows count as ids if all subjects have the same sequence.
    """
    labels = subject.labels
    stimuli = getattr(subject, "stimuli", None)
    if is_named(graph, "time"):
        return stimuli
    if is_named(graph, "labels+time") and labels is not None and stimuli is not None:
        return paired(labels, stimuli)
    return labels


def paired(labels: Any, ids: Any) -> NDArray[Any]:
    """Put labels and ids side by side, as y of ``graph="labels+time"`` has them.

    Examples
    --------
    >>> paired(["cat", "dog"], [7, 9]).tolist()
    [['cat', 7], ['dog', 9]]
    """
    both = np.empty((len(labels), 2), dtype=object)
    both[:, 0] = as_label_list(labels, "the labels")
    both[:, 1] = as_label_list(ids, "the ids")
    return both


def split_known(y: Any) -> tuple[Any, Any]:
    """Return the labels and the ids of one subject; ids are None if y has none."""
    table = np.asarray(y, dtype=object)
    if table.ndim == 2 and table.shape[1] == 2:
        return table[:, 0].tolist(), table[:, 1].tolist()
    if table.ndim != 1:
        raise InputError(
            "graph='labels+time' takes as y, per subject, the labels, or an array of "
            f"two columns, labels and ids; got shape {table.shape}."
        )
    return y, None


def make_graph(
    graph: Any, lengths: list[int], y: list[Any] | None, *, ridge: bool, owner: str
) -> tuple[Graph, bool]:
    """Make the graph that a parameter asks for; say whether rows serve as ids.

    Parameters
    ----------
    graph : str, callable, Graph or matrix
        The parameter.
    lengths : list of int
        Number of samples of each subject.
    y : list of array-like, or None
        What is known of them.
    ridge : bool
        Whether it is for a fit with shrinkage, whose named graphs have weights of their
        own, and in which groups that link nobody play no part.
    owner : str
        Who asks, for messages.
    """
    by_row = False
    if callable(graph):
        if y is None:
            raise InputError(
                f"graph of {owner} is a callable, which needs what is known of the "
                "samples: fit(X, y)."
            )
        graph = graph(y)
    if isinstance(graph, Graph):
        if list(graph.lengths) != lengths:
            raise InputError(
                f"The graph is over {list(graph.lengths)} samples per subject; the "
                f"data have {lengths}."
            )
        made = graph
    elif isinstance(graph, str):
        check_option("graph", graph, GRAPH_NAMES, owner=owner)
        made, by_row = _by_name(graph, lengths, y, ridge=ridge, owner=owner)
    elif scipy.sparse.issparse(graph) or isinstance(graph, np.ndarray):
        made = matrix_graph(graph, lengths)
    else:
        raise TypeError(
            f"graph of {owner} must be 'labels', 'time', 'labels+time', a callable, a "
            f"Graph, or a symmetric matrix over all samples; got "
            f"{type(graph).__name__}."
        )
    if ridge:
        made = weigh_groups(made, "none")
    check_links(made)
    return made, by_row


def _by_name(
    name: str, lengths: list[int], y: list[Any] | None, *, ridge: bool, owner: str
) -> tuple[Graph, bool]:
    if y is None and name != "time":
        raise InputError(
            f"{owner} with graph={name!r} needs the categories of the samples: "
            "fit(X, y). For samples locked in time use graph='time'."
        )
    if name == "labels":
        return _labels(y, ridge=ridge), False
    labels, ids = None, y
    if name == "labels+time" and y is not None:
        pairs = [split_known(known) for known in y]
        labels = [known for known, _ in pairs]
        unknown = any(own is None for _, own in pairs)
        ids = None if unknown else [own for _, own in pairs]
        if unknown and any(list(known) != list(labels[0]) for known in labels):
            raise InputError(
                "graph='labels+time' needs the stimulus or time ids of the samples, "
                "unless all subjects have the same categories in the same rows: pass y "
                "with two columns, labels and ids, or use graph='labels'."
            )
    by_row = ids is None
    if ids is None:
        if len(set(lengths)) > 1:
            raise InputError(
                f"graph='time' without y joins samples by their row number, but the "
                f"subjects have {lengths} samples. Pass stimulus or time ids as y."
            )
        ids = [range(n) for n in lengths]
    time = time_graph(ids, balance="subjects" if ridge else "none")
    return (time if labels is None else _labels(labels, ridge=ridge) + time), by_row


def _labels(labels: Any, *, ridge: bool) -> Graph:
    return (
        label_graph(labels, different=0, balance="groups")
        if ridge
        else (label_graph(labels))
    )


def check_links(graph: Graph) -> None:
    """Refuse a graph that leaves subjects without a tie to the others."""
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


# -- a new subject in the graph --------------------------------------------------------


def groups_of_new(
    y: Any, graph: Graph, n_samples: int, *, both: bool
) -> list[NDArray[np.intp]]:
    """Find the groups of a new subject's samples among those of the model.

    Parameters
    ----------
    y : array-like
        What is known of the new samples.
    graph : Graph
        The model's.
    n_samples : int
        Number of new samples.
    both : bool
        Whether y has labels and ids, for the two terms of the graph.
    """
    if not both:
        return [codes_of(y, term, n_samples) for term in graph.groups]
    labels, ids = split_known(y)
    if ids is None:
        raise InputError(
            "This model joins samples by labels and ids: pass both for the new "
            "subject, as two columns of y."
        )
    by_label, by_id = graph.groups
    # an id that nobody else saw links nobody, as in a fit
    names = set(by_id.names)
    ids = [i if i in names else None for i in as_label_list(ids, "ids of y")]
    return [codes_of(labels, by_label, n_samples), codes_of(ids, by_id, n_samples)]


def codes_of(y: Any, term: GroupTerm, n_samples: int) -> NDArray[np.intp]:
    """Find the groups of a new subject's samples in one term."""
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


def edges_of_new(
    graph: Graph,
    codes: list[NDArray[np.intp]] | None,
    edges: Any,
    *,
    group_sums: list[Matrix],
    embedding: Matrix | None,
    n_samples: int,
    name: str,
) -> tuple[Any, Matrix]:
    """Return D - G among new samples, and G from them to the model's, times features.

    Parameters
    ----------
    graph : Graph
        The model's.
    codes : list of ndarray of int, or None
        Groups of the new samples, for each term of the graph.
    edges : (sparse) matrix or None
        Weights to all aligning samples.
    group_sums, embedding
        What the model keeps: the sums of its features over each group, and, if its
        graph is a matrix, the features.
    n_samples : int
        Number of new samples.
    name : str
        How messages call the new subject.
    """
    k = (group_sums[0] if embedding is None else embedding).shape[1]
    degrees, linear = np.zeros(n_samples), np.zeros((n_samples, k))
    inside = scipy.sparse.csr_array((n_samples, n_samples))
    if edges is not None:
        weights = scipy.sparse.csr_array(edges, dtype=np.float64)
        if embedding is None or weights.shape != (n_samples, len(embedding)):
            raise InputError(
                f"edges must be new samples x aligning samples, "
                f"{(n_samples, graph.n_samples)}, for a model whose graph is a "
                f"matrix; got {weights.shape}."
            )
        degrees += np.asarray(weights.sum(axis=1)).ravel()
        linear += weights @ embedding
    elif graph.matrix is not None:
        raise InputError(
            "This model's graph is a matrix: pass edges, the weights between the "
            "new samples and all aligning samples."
        )
    for term, own, sums in zip(graph.groups, codes or [], group_sums, strict=False):
        new = GroupTerm(own, term.affinity, term.names)
        Z = new.membership()
        degrees += Z @ (term.affinity @ (term.counts + new.counts))
        linear += Z @ (term.affinity @ sums)
        inside = inside + Z @ scipy.sparse.csr_array(term.affinity) @ Z.T
    if not linear.any():
        raise InputError(
            f"No sample of {name} has an edge to an aligning sample; its map cannot be "
            "learned. Pass the labels of its samples as y."
        )
    return scipy.sparse.diags_array(degrees) - inside, linear
