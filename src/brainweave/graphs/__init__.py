"""Graphs that say which samples, of whichever subject, belong together or apart."""

from brainweave.graphs.builders import (
    Graph,
    affinity_graph,
    feature_graph,
    label_graph,
    matrix_graph,
    neighbor_graph,
    time_graph,
)

__all__ = [
    "Graph",
    "affinity_graph",
    "feature_graph",
    "label_graph",
    "matrix_graph",
    "neighbor_graph",
    "time_graph",
]
