"""Studies that overlap in part: who saw parts 1 and 2, and who saw 2 and 3.

A recording has three parts. "groups": half the subjects saw parts 1 and 2, half 2 and
3. "ring": thirds of them saw 1 and 2, 2 and 3, 3 and 1, so that no part is shared by
all. Time segments of the part that a subject did not align with are then sought in the
average of the *other* groups of subjects; every part takes every role once. For
comparison: what all saw alone (the intersection), and the complete study, where all saw
the same two parts.
"""

import itertools
import warnings
from collections.abc import Sequence
from os import PathLike
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray
from sklearn.base import clone

from brainweave._progress import Progress
from brainweave.aligners.gdm import GDM
from brainweave.metrics import match_segments
from brainweave.paper.output import (
    chosen_methods,
    markdown,
    percent,
    result_folder,
    write_table,
)
from brainweave.paper.real import load_pieman
from brainweave.study.simulation.simulate import simulate_study

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["DESIGNS", "overlap"]

WINDOW = 9
#: The parts that each group of subjects saw.
DESIGNS: dict[str, list[tuple[int, ...]]] = {
    "groups": [(0, 1), (1, 2)],
    "ring": [(0, 1), (1, 2), (2, 0)],
    "complete": [(0, 1), (0, 1)],
    "intersection": [(1,), (1,)],
}
Parts = list[list[NDArray[np.float64]]]  # of each subject, the samples of each part


def overlap(
    out: str | PathLike[str],
    *,
    data: str | PathLike[str] | None = None,
    methods: Sequence[str] | None = None,
    n_components: int = 10,
    quick: bool = False,
    random_state: int = 0,
    progress: Progress | None = None,
) -> "pd.DataFrame":
    """Match time segments between groups of subjects who saw different parts.

    Parameters
    ----------
    out : path
        Folder for ``overlap.csv`` and ``overlap.md``.
    data : path, optional
        Folder of the story (see :func:`load_pieman`), which is cut into thirds, the
        factors of every subject shuffled. Default: simulated movies.
    methods : sequence of str, optional
        Rows of the table; default all.
    n_components : int, default=10
        Number of shared features.
    quick : bool, default=False
        Few subjects and voxels, to try it out.
    random_state : int, default=0
        Seed.
    progress : callable, optional
        Called with the number of finished cells, of all cells, and what was done.

    Returns
    -------
    DataFrame
        One row per method and design, with the share of segments found.
    """
    import pandas as pd

    k = n_components
    known = {
        "paper's GDM": GDM(k, energy=0.82, graph="time"),
        "GDM, shrinkage": GDM(k, graph="time"),
        "GDM, constraint of each subject": GDM(k, graph="time", constraint="subject"),
    }
    chosen = chosen_methods(known, methods)
    if data is None:
        parts = _simulated_parts(random_state, quick=quick)
    else:
        parts = _story_in_thirds(data, random_state)
    study = "simulated" if data is None else "pieman"
    folder, rows = result_folder(out), []
    for method, design in itertools.product(chosen, DESIGNS):
        scores = _score_design(parts, design, chosen[method])
        se = scores.std(ddof=1) / np.sqrt(len(scores))
        row = {"study": study, "method": method, "design": design}
        rows.append({**row, "mean": scores.mean(), "se": se})
        if progress is not None:
            progress(len(rows), len(chosen) * len(DESIGNS), f"{method}, {design}")
    table = pd.DataFrame(rows)
    cells = [
        [m, *map(percent, table.loc[table["method"] == m, "mean"])] for m in chosen
    ]
    text = markdown(["segments found, %", *DESIGNS], cells)
    write_table(folder, "overlap", table, text)
    return table


def _score_design(parts: Parts, design: str, aligner: Any) -> NDArray[np.float64]:
    """Return the share of segments found between groups, for each subject."""
    groups, n = DESIGNS[design], len(parts)
    n_parts = len(parts[0])
    belongs = np.arange(n) % len(groups)
    scores: list[list[float]] = [[] for _ in range(n)]
    for turn in range(n_parts):
        order = [(turn + p) % n_parts for p in range(n_parts)]
        X, ids = [], []
        for i, own in enumerate(parts):
            seen = [order[p] for p in groups[belongs[i]]]
            X.append(np.concatenate([own[p] for p in seen]))
            ids.append([f"{p}:{t}" for p in seen for t in range(len(own[p]))])
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # the paper's form says it separates them
            maps = clone(aligner).fit(X, ids).maps_
        for p in range(n_parts):
            mapped = np.array(
                [m.transform(x[order[p]]) for m, x in zip(maps, parts, strict=True)]
            )
            for i in range(n):
                if p not in groups[belongs[i]]:
                    others = mapped[belongs != belongs[i]].mean(axis=0)
                    scores[i].append(match_segments(mapped[i], others, window=WINDOW))
    return np.array([np.mean(s) for s in scores])


def _story_in_thirds(folder: str | PathLike[str], random_state: int) -> Parts:
    """Cut the story into thirds; the factors of each subject are shuffled."""
    rng = np.random.default_rng(random_state)
    parts = []
    for subject in load_pieman(folder):
        x = np.asarray(subject.data(), np.float64)
        parts.append(np.array_split(x[:, rng.permutation(x.shape[1])], 3))
    return parts


def _simulated_parts(random_state: int, *, quick: bool) -> Parts:
    """Simulate three movies, seen by subjects whose voxels do not correspond."""
    study = simulate_study(
        n_subjects=6 if quick else 18,
        design="movie",
        n_runs=3,
        repetitions=1,
        n_voxels=(60, 90) if quick else (200, 300),
        signal=1.6,
        structured_noise=1.0 if quick else 5.0,
        local_noise=1.0,
        random_state=random_state,
    )
    parts = []
    for s in study:
        x, runs = np.asarray(s.data(), np.float64), np.asarray(s.runs)
        parts.append([x[runs == r] for r in dict.fromkeys(runs.tolist())])
    return parts
