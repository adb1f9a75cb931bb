"""How much each group of a graph counts in a shrinkage fit.

The constraint of the model is the identity, so no degrees are needed and groups may be
weighed freely. Categories count alike (``1 / size``). Time ids count by how many
subjects saw them, ``1 / number of subjects`` a sample: dividing by the size of the
group there would let few subjects agree among themselves at the expense of the whole.
On a complete study the two are the same.
"""

import numpy as np
from numpy.typing import NDArray

from brainweave._validation import check_option
from brainweave.graph_terms import NO_GROUP, Graph, GroupTerm

Matrix = NDArray[np.float64]

BALANCES = ("groups", "subjects", "none")


def weigh_groups(graph: Graph, balance: str | list[str]) -> Graph:
    """Return the graph with its group terms weighed and lonely groups left out.

    Parameters
    ----------
    graph : Graph
        Of groups; a matrix of weights stays as it is.
    balance : {"groups", "subjects", "none"}, or one per term
        "groups", for labels: the affinity of two groups is divided by the root of
        their sizes, so that all count alike. "subjects", for time ids: it is divided
        by the number of subjects. "none" leaves it.

    Examples
    --------
    >>> from brainweave.graphs import label_graph
    >>> y = [["a", "a", "a", "b"], ["a", "b", "c", "c"]]
    >>> graph = label_graph(y, different=0)
    >>> weigh_groups(graph, "groups").groups[0].affinity.diagonal()
    array([0.25, 0.5 , 0.  ])
    """
    n_subjects = len(graph.lengths)
    each = [balance] * len(graph.groups) if isinstance(balance, str) else list(balance)
    where = np.repeat(np.arange(n_subjects), graph.lengths)
    terms = []
    for term, how in zip(graph.groups, each, strict=True):
        check_option("balance", how, BALANCES, owner="the graph")
        linked = without_lonely_groups(term, where)
        affinity = linked.affinity
        if how == "groups":
            size = np.sqrt(np.maximum(linked.counts, 1))
            affinity = affinity / size / size[:, None]
        elif how == "subjects":
            affinity = affinity / n_subjects
        terms.append(GroupTerm(linked.codes, affinity, term.names))
    return Graph(graph.lengths, tuple(terms), graph.matrix)


def count_alike(graph: Graph) -> Graph:
    """Return a graph all of whose groups count alike, each term as much as before.

    The target of a sample is then the mean over who saw the same, however many that
    are. Terms with an affinity between groups, and a matrix, stay as they are.
    """
    terms = []
    for term in graph.groups:
        own, sizes = term.affinity.diagonal(), term.counts
        used = (own != 0) & (sizes > 0)
        if np.count_nonzero(term.affinity) > np.count_nonzero(own) or not used.any():
            terms.append(term)
            continue
        mean = np.average(own[used] * sizes[used], weights=sizes[used])
        alike = np.zeros_like(own)
        alike[used] = mean / sizes[used]
        terms.append(GroupTerm(term.codes, np.diag(alike), term.names))
    return Graph(graph.lengths, tuple(terms), graph.matrix)


def without_lonely_groups(term: GroupTerm, where: NDArray[np.intp]) -> GroupTerm:
    """Take the weights off groups that link nobody.

    Such are the groups all of whose samples, and all of whose neighbours in the
    affinity, are of one subject. Their samples keep shaping the basis.

    Parameters
    ----------
    term : GroupTerm
        Over the samples of all subjects.
    where : ndarray of int
        The subject of each sample.
    """
    known = np.asarray(term.codes != NO_GROUP)
    present = np.zeros((int(where.max()) + 1, len(term.names)), dtype=bool)
    rows = np.flatnonzero(known)
    present[where[rows], term.codes[rows]] = True
    several = np.count_nonzero(present, axis=0) > 1
    # the subject of a group that has one; a neighbour in another subject links it
    owner = present.argmax(axis=0)
    a, b = np.nonzero(term.affinity)
    inhabited = np.count_nonzero(present, axis=0) > 0
    links = inhabited[a] & inhabited[b]
    links &= several[a] | several[b] | (owner[a] != owner[b])
    kept = np.zeros(len(term.names), dtype=np.bool_)
    kept[a[links]] = True
    if bool(np.all(kept)):
        return term
    affinity = np.where(np.outer(kept, kept), term.affinity, 0.0)
    return GroupTerm(
        np.where(known & kept[term.codes], term.codes, NO_GROUP), affinity, term.names
    )
