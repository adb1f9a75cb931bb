"""The experiments of the GDM paper (Li, Liu, Chen and Zhang, AAAI 2020).

``table2``, ``figure1``, ``figure2`` and ``figureS3`` to ``figureS8`` run on the paper's
datasets where they are given, and on simulated studies of the same shape where not;
``raider`` and ``pieman`` evaluate all methods on two small real studies. From a shell:
``python -m reproduction table2 -o results``.
"""

from reproduction.experiments import (
    figure,
    figure1,
    figure2,
    figureS3,
    figureS4,
    figureS5,
    figureS6,
    figureS7,
    figureS8,
    table2,
    unaligned,
)
from reproduction.overlap import overlap
from reproduction.real import (
    load_pieman,
    load_raider_images,
    pieman,
    raider,
    raider_all_splits,
)
from reproduction.registered import load_sherlock, registered
from reproduction.settings import (
    METHODS,
    Dataset,
    Figure,
    dataset,
    datasets,
    figures,
)

__all__ = [
    "METHODS",
    "Dataset",
    "Figure",
    "dataset",
    "datasets",
    "figure",
    "figure1",
    "figure2",
    "figureS3",
    "figureS4",
    "figureS5",
    "figureS6",
    "figureS7",
    "figureS8",
    "figures",
    "load_pieman",
    "load_raider_images",
    "load_sherlock",
    "overlap",
    "pieman",
    "raider",
    "raider_all_splits",
    "registered",
    "table2",
    "unaligned",
]
