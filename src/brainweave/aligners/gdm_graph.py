"""The graph of a GDM, by name or as given, and what a fit to it finds.

What is known of a sample is its category (``"labels"``), its stimulus or time id
(``"time"``), or both (``"labels+time"``): then y has two columns, category and id.
"""

import warnings
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import scipy.sparse
from numpy.typing import NDArray

from brainweave._arrays import Matrix
from brainweave._validation import check_option
from brainweave.exceptions import InputError, SeparateSubjectsWarning, UniquenessWarning
from brainweave.graph_terms import BALANCES
from brainweave.graphs import (
    Graph,
    count_alike,
    label_graph,
    matrix_graph,
    time_graph,
    weigh_groups,
)
from brainweave.labels import as_label_list

LEAST_OVERLAP = 0.05  # classification between subjects suffers below this
GRAPH_NAMES = ("labels", "time", "labels+time")


def is_named(graph: Any, *names: str) -> bool:
    """Whether a graph parameter is one of these names."""
    return isinstance(graph, str) and graph in names


def y_for_graph(subject: Any, graph: Any) -> Any:
    """Return what a graph by name needs to know of a subject that knows its samples.

    None where it is not known. "labels+time" is content with the labels where there
    are no ids: then rows count as ids if all subjects have the same sequence.
    """
    labels = subject.labels
    stimuli = getattr(subject, "stimuli", None)
    if is_named(graph, "time"):
        return stimuli
    if is_named(graph, "labels+time") and labels is not None and stimuli is not None:
        return labels_and_ids(labels, stimuli)
    return labels


def labels_and_ids(labels: Any, ids: Any) -> NDArray[Any]:
    """Put labels and ids side by side, as y of ``graph="labels+time"`` has them.

    Examples
    --------
    >>> labels_and_ids(["cat", "dog"], [7, 9]).tolist()
    [['cat', 7], ['dog', 9]]
    """
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
    graph: Any,
    lengths: list[int],
    y: list[Any] | None,
    *,
    ridge: bool,
    balance: str | None = None,
    owner: str,
) -> tuple[Graph, bool]:
    """Make the graph that a parameter asks for; say whether rows serve as ids.

    In a fit with shrinkage (`ridge`) named graphs have weights of their own, and groups
    that link nobody play no part.
    """
    by_row = False
    if balance is not None:
        check_option("balance", balance, BALANCES, owner=owner)
        if not isinstance(graph, str):
            raise InputError(
                f"balance={balance!r} of {owner} is for graphs by name; a graph of "
                "your own is balanced as it is made: label_graph(y, balance=...)."
            )
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
        weights = ("groups", "subjects") if ridge else ("none", "none")
        weights = weights if balance is None else (balance, balance)
        made, by_row = _named_graph(graph, lengths, y, ridge, weights, owner=owner)
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
    _check_connected(made)
    return made, by_row


def _named_graph(
    name: str,
    lengths: list[int],
    y: list[Any] | None,
    ridge: bool,
    weights: tuple[str, str],
    *,
    owner: str,
) -> tuple[Graph, bool]:
    """Make the graph of a name; weights are how labels and ids are balanced."""
    if y is None and name != "time":
        raise InputError(
            f"{owner} with graph={name!r} needs the categories of the samples: "
            "fit(X, y). For samples locked in time use graph='time'."
        )
    of_labels: Any = {"different": 0 if ridge else -1, "balance": weights[0]}
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
    time = time_graph(ids, balance=weights[1])
    return (time if labels is None else label_graph(labels, **of_labels) + time), by_row


def _check_connected(graph: Graph) -> None:
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


# -- what a fit to it finds ------------------------------------------------------------


@dataclass(frozen=True)
class Solution:
    """Components of a fit to a graph, the best first."""

    eigenvalues: Matrix  # (K + 1,): one more than asked for, where there are so many
    gains: Matrix  # (K + 1,): what each gains from the edges between samples
    scale: float  # size of the numbers, which rounding goes with
    maps: list[Matrix]
    features: list[Matrix]  # of the aligning samples of each subject
    template: Matrix  # (n_samples, K): times edges, what a new subject is fitted to
    route: str
    history: list[float] | None = None  # the objective after each round, if any

    def n_informative(self, k: int) -> int:
        """Count the first k components that gain from the edges."""
        return int((self.gains[:k] > 1e-9 * self.scale).sum())

    def is_unique(self, k: int) -> bool:
        """Whether there is a gap after component k (Proposition 3)."""
        if self.gains.size <= k:
            return True
        return bool(self.gains[k - 1] - self.gains[k] > 1e-9 * self.scale)

    def first(self, k: int) -> "Solution":
        """Return the first k components; what lies behind them stays known."""
        return replace(
            self,
            eigenvalues=self.eigenvalues[:k],
            maps=[m[:, :k] for m in self.maps],
            features=[f[:, :k] for f in self.features],
            template=self.template[:, :k],
        )


def group_sums(graph: Graph, template: Matrix, *, alike: bool) -> list[Matrix]:
    """Sum the template over the samples of each group, for subjects who join later.

    With ``alike`` they are scaled so that the target of a new sample, weights times
    sums, is that of a graph whose groups count alike.
    """
    sums = []
    weighed = (count_alike(graph) if alike else graph).groups
    for term, target in zip(graph.groups, weighed, strict=True):
        own, wanted = term.affinity.diagonal(), target.affinity.diagonal()
        factor = np.divide(wanted, own, out=np.ones_like(own), where=own != 0)
        sums.append(np.asarray(term.membership().T @ template) * factor[:, None])
    return sums


def subject_overlap(covariances: list[Matrix], lengths: Sequence[int]) -> float:
    """Return how far the subjects share their features, from 0 to 1.

    The covariances of the features over the samples of each subject add up to the
    identity (if not, coordinates are taken in which they do). They are proportional
    where all subjects use all features alike (1) and orthogonal where every feature
    belongs to one subject (0), as it must be when there are as many features as the
    subjects have dimensions together.
    """
    total = np.sum(covariances, axis=0)
    values, vectors = np.linalg.eigh((total + total.T) / 2)
    kept = values > 1e-12 * max(float(values[-1]), 1e-300)
    root = vectors[:, kept] / np.sqrt(values[kept])
    k = int(kept.sum())
    alone = sum(float(((root.T @ C @ root) ** 2).sum()) for C in covariances)
    shares = np.asarray(lengths) / np.sum(lengths)
    return float(min(1.0, (k - alone) / (k * (1 - (shares**2).sum()))))


def check_dimensions(k: int, kept: list[int]) -> None:
    """Refuse more components than the subjects keep dimensions together."""
    if k > sum(kept):
        shown = " + ".join(map(str, kept[:6])) + (" + ..." if len(kept) > 6 else "")
        raise InputError(
            f"n_components={k} is more than the {sum(kept)} dimensions that the "
            f"subjects keep together ({shown}). Use fewer components or more energy."
        )


def warn_of_uninformed(k: int, informative: int) -> None:
    """Say so when more components are asked for than the graph informs."""
    warnings.warn(
        f"n_components={k}, but the graph informs {informative} components: one less "
        f"than it has categories, or one per stimulus. {informative} are kept. Use "
        "n_components='auto', or a graph of more groups, such as graph='labels+time'.",
        UniquenessWarning,
        stacklevel=5,
    )


def warn_of_shared_space(model: Any, dimensions: int) -> None:
    """Say so when what a GDM found is one of many, or hardly shared."""
    k, informative = model.eigenvalues_.size, model.n_informative_
    if not model.is_unique_:
        warnings.warn(
            "The shared space is not unique: the last component kept and the first "
            f"left out have equal eigenvalues ({model.eigenvalues_[-1]:.6g}). "
            f"{informative} of {k} components are informative; the others are "
            "arbitrary directions. n_components='auto' keeps the informative ones.",
            UniquenessWarning,
            stacklevel=6,
        )
    if model.overlap_ < LEAST_OVERLAP:
        warnings.warn(
            f"The subjects hardly overlap in the shared space ({model.overlap_:.1%} of "
            f"what they could): most of the {k} components, of {dimensions} dimensions "
            "that the subjects have together, belong to single subjects, and what is "
            f"learned on some subjects will not hold for others. {informative} "
            "components are informative. Use fewer components, or n_components='auto'.",
            SeparateSubjectsWarning,
            stacklevel=6,
        )
