"""The graph of a GDM, by name or as given.

What is known of a sample is its category (``"labels"``), its stimulus or time id
(``"time"``), or both (``"labels+time"``): then y has two columns, category and id.
"""

from typing import Any

import numpy as np
import scipy.sparse
from numpy.typing import NDArray

from brainweave._core.exceptions import InputError
from brainweave._core.labels import as_label_list
from brainweave._core.validation import check_option
from brainweave.graphs.builders import (
    NO_GROUP,
    Graph,
    label_graph,
    matrix_graph,
    time_graph,
    weigh_groups,
)

GRAPH_NAMES = ("labels", "time", "labels+time")


def is_named(graph: Any, *names: str) -> bool:
    """Whether a graph parameter is one of these names."""
    return isinstance(graph, str) and graph in names


def y_for_graph(subject: Any, graph: Any) -> Any:
    """Return what a graph by name needs to know of a subject's samples, or None."""
    # "labels+time" is content with the labels where there are no ids: then rows count
    # as ids if all subjects have the same sequence
    labels, stimuli = subject.labels, getattr(subject, "stimuli", None)
    if is_named(graph, "time"):
        return stimuli
    if is_named(graph, "labels+time") and labels is not None and stimuli is not None:
        return labels_and_ids(labels, stimuli)
    return labels


def labels_and_ids(labels: Any, ids: Any) -> NDArray[Any]:
    """Put labels and ids side by side, as y of ``graph="labels+time"`` has them."""
    both = np.empty((len(labels), 2), dtype=object)
    both[:, 0] = as_label_list(labels, "the labels")
    both[:, 1] = as_label_list(ids, "the ids")
    return both


def split_labels_and_ids(y: Any) -> tuple[Any, Any]:
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
    """Make the graph that a parameter asks for; say whether rows serve as ids."""
    by_row = False
    if callable(graph):
        if y is None:
            raise InputError(
                f"graph of {owner} is a callable, which needs the labels or ids "
                "of the samples: fit(X, y)."
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
        made, by_row = _named_graph(graph, lengths, y, ridge, owner=owner)
    elif scipy.sparse.issparse(graph) or isinstance(graph, np.ndarray):
        made = matrix_graph(graph, lengths)
    else:
        raise TypeError(
            f"graph of {owner} must be 'labels', 'time', 'labels+time', a callable, a "
            f"Graph, or a symmetric matrix of all samples; got {type(graph).__name__}."
        )
    return (weigh_groups(made, "none") if ridge else made), by_row


def _named_graph(
    name: str, lengths: list[int], y: list[Any] | None, ridge: bool, *, owner: str
) -> tuple[Graph, bool]:
    """Make the graph of a name."""
    if y is None and name != "time":
        raise InputError(
            f"{owner} with graph={name!r} needs the categories of the samples: "
            "fit(X, y). For samples locked in time use graph='time'."
        )
    of_labels: Any = {"different": 0, "balance": "groups"} if ridge else {}
    if name == "labels":
        return label_graph(y or [], **of_labels), False
    labels, ids = None, y
    if name == "labels+time" and y is not None:
        pairs = [split_labels_and_ids(known) for known in y]
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
    known = time.groups[0].codes[time.groups[0].codes != NO_GROUP]
    if labels is None and np.bincount(known, minlength=1).max() < 2:
        raise InputError(
            "No two samples have the same id, so nothing ties the subjects: X[0] "
            f"begins with {list(ids[0])[:2]}, X[1] with {list(ids[1])[:2]}. Give the "
            "same moment the same id, in one unit, rounded; film_clock puts films that "
            "were scanned at other times on one clock."
        )
    return (time if labels is None else label_graph(labels, **of_labels) + time), by_row


def unconnected_message(graph: Graph) -> str:
    """Say which subjects no edge of the graph ties to the others; empty if none."""
    groups = graph.subject_groups
    if len(groups) == 1:
        return ""
    apart = "; ".join(", ".join(f"X[{i}]" for i in own[:6]) for own in groups[:4])
    return (
        f"The subjects fall into {len(groups)} groups without an edge between them in "
        f"the graph: {apart}. Nothing ties their maps. Check the labels or ids, leave "
        "subjects out, or align the groups apart."
    )


def is_incomplete(graph: Graph) -> bool:
    """Whether a subject lacks a group that links others, such as a time point."""
    term = graph.groups[-1]
    linking = np.flatnonzero(term.affinity.diagonal() != 0)
    return any(
        np.setdiff1d(linking, term.codes[rows]).size > 0 for rows in graph.slices()
    )
