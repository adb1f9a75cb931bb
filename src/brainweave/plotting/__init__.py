"""Figures of studies, models and results; each function returns a matplotlib Figure.

The figures belong to no pyplot window: save them (``figure.savefig("a.svg")``), or let
a notebook show them. Matplotlib is imported when the first is drawn.
"""

from brainweave.plotting.model import (
    plot_eigenvalues,
    plot_energy,
    plot_feature_map,
    plot_shared_space,
)
from brainweave.plotting.results import (
    plot_accuracy,
    plot_confusion,
    plot_sequences,
)
from brainweave.plotting.style import palette

__all__ = [
    "palette",
    "plot_accuracy",
    "plot_confusion",
    "plot_eigenvalues",
    "plot_energy",
    "plot_feature_map",
    "plot_sequences",
    "plot_shared_space",
]
