"""Figures of studies, models and results.

Functions draw into the given ``axes``, or into a new pyplot figure, and return the
axes: ``plot_accuracy(results).figure.savefig("a.svg")``. Matplotlib is imported when
the first is drawn.
"""

from brainweave.plotting.films import plot_coverage, plot_time_courses
from brainweave.plotting.model import plot_brain, plot_shared_space
from brainweave.plotting.results import (
    plot_accuracy,
    plot_confusion,
    plot_learning_curve,
    plot_sequences,
)
from brainweave.plotting.style import palette

__all__ = [
    "palette",
    "plot_accuracy",
    "plot_brain",
    "plot_confusion",
    "plot_coverage",
    "plot_learning_curve",
    "plot_sequences",
    "plot_shared_space",
    "plot_time_courses",
]
