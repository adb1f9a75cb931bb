"""Studies that overlap in part: who saw parts 1 and 2, and who saw 2 and 3.

A recording has three parts. "groups": half the subjects saw parts 1 and 2, half 2 and
3. "ring": thirds of them saw 1 and 2, 2 and 3, 3 and 1, so that no part is shared by
all. Time segments of the part that a subject did not align with are then sought in the
average of the *other* groups of subjects; every part takes every role once. For
comparison: what all saw alone (the intersection), and the complete study, where all saw
the same two parts.
"""

import warnings
from collections.abc import Callable, Sequence
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray
from sklearn.base import clone

from brainweave._io import write_text
from brainweave.aligners.gdm import GDM
from brainweave.exceptions import InputError
from brainweave.metrics import match_segments
from brainweave.paper.output import markdown
from brainweave.paper.real import load_pieman
from brainweave.study.simulation.simulate import simulate_study

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["DESIGNS", "overlap", "score_design", "simulated_parts", "story_in_thirds"]

WINDOW = 9
#: The parts that each group of subjects saw.
DESIGNS: dict[str, list[tuple[int, ...]]] = {
    "groups": [(0, 1), (1, 2)],
    "ring": [(0, 1), (1, 2), (2, 0)],
    "complete": [(0, 1), (0, 1)],
    "intersection": [(1,), (1,)],
}
Parts = list[list[NDArray[np.float64]]]


def methods_compared(n_components: int) -> dict[str, Any]:
    """Return the rows of the table."""
    k = n_components
    return {
        "paper's GDM": GDM(k, energy=0.82, graph="time"),
        "GDM, shrinkage": GDM(k, graph="time"),
        "GDM, constraint of each subject": GDM(k, graph="time", constraint="subject"),
    }


def overlap(
    out: str | PathLike[str],
    *,
    data: str | PathLike[str] | None = None,
    methods: Sequence[str] | None = None,
    n_components: int = 10,
    quick: bool = False,
    random_state: int = 0,
    progress: Callable[[int, int, str], None] | None = None,
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

    known = methods_compared(n_components)
    unknown = [m for m in methods or () if m not in known]
    if unknown:
        raise InputError(f"methods={unknown} must be some of {', '.join(known)}.")
    chosen = {m: a for m, a in known.items() if methods is None or m in methods}
    if data is None:
        parts = simulated_parts(random_state, quick=quick)
    else:
        parts = story_in_thirds(data, random_state)
    folder, rows = Path(out), []
    folder.mkdir(parents=True, exist_ok=True)
    total = len(chosen) * len(DESIGNS)
    for method, aligner in chosen.items():
        for design in DESIGNS:
            scores = score_design(parts, design, aligner)
            se = scores.std(ddof=1) / np.sqrt(len(scores))
            row = {"study": "simulated" if data is None else "pieman"}
            rows.append({**row, "method": method, "design": design})
            rows[-1] |= {"mean": scores.mean(), "se": se}
            if progress is not None:
                progress(len(rows), total, f"{method}, {design}")
    table = pd.DataFrame(rows)
    write_text(folder / "overlap.csv", table.to_csv(index=False))
    cells = [
        [m, *(f"{100 * v:.1f}" for v in table.loc[table["method"] == m, "mean"])]
        for m in chosen
    ]
    write_text(folder / "overlap.md", markdown(["segments found, %", *DESIGNS], cells))
    return table


def score_design(parts: Parts, design: str, aligner: Any) -> NDArray[np.float64]:
    """Return the share of segments found between groups, for each subject.

    Parameters
    ----------
    parts : list of lists of arrays
        ``parts[i][p]`` are the samples of part p of subject i.
    design : str
        One of ``DESIGNS``.
    aligner : aligner
        That takes ids of samples as y.

    Returns
    -------
    ndarray of shape (n_subjects,)
    """
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


def story_in_thirds(folder: str | PathLike[str], random_state: int = 0) -> Parts:
    """Cut the story into thirds; the factors of each subject are shuffled.

    Parameters
    ----------
    folder : path
        See :func:`load_pieman`.
    random_state : int, default=0
        Seed of the shuffling.

    Returns
    -------
    list of lists of arrays
        Per subject, three parts.
    """
    rng = np.random.default_rng(random_state)
    parts = []
    for subject in load_pieman(folder):
        x = np.asarray(subject.data(), np.float64)
        parts.append(np.array_split(x[:, rng.permutation(x.shape[1])], 3))
    return parts


def simulated_parts(random_state: int = 0, *, quick: bool = False) -> Parts:
    """Simulate three movies, seen by subjects whose voxels do not correspond.

    Parameters
    ----------
    random_state : int, default=0
        Seed.
    quick : bool, default=False
        Few subjects and voxels.

    Returns
    -------
    list of lists of arrays
        Per subject, three parts.
    """
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
