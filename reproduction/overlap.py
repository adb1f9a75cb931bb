"""Studies that overlap in part: who saw parts 1 and 2, and who saw 2 and 3.

"groups": half the subjects saw parts 1 and 2, half 2 and 3. "ring": thirds of them saw
1 and 2, 2 and 3, 3 and 1, so that no part is shared by all. Time segments that a
subject did not align with are then sought in the average of the *other* groups of
subjects; the three parts take every role once. Simulated recordings have a fourth part,
which nobody aligns with and in which all are matched; of a story in thirds it is the
part that the subject did not see. For comparison: what all saw alone (the
intersection), and the complete study, where all saw the same two parts, in two groups
for "groups" and in three for "ring", as the average of two thirds of the subjects is
less noisy than that of half.
"""

import itertools
import warnings
from collections.abc import Sequence
from os import PathLike
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from brainweave import PaperGDM, Study, Subject, score_alignment, split_study
from brainweave._core.workers import Progress
from brainweave.aligners.gdm.gdm import GDM
from brainweave.study.simulation import SimulationSettings, simulate_study
from reproduction.output import (
    markdown,
    percent,
    result_folder,
    select_methods,
    write_table,
)
from reproduction.real import load_pieman

if TYPE_CHECKING:
    import pandas as pd


WINDOW = 9
SEEDS = 6  # simulated studies
DIVISIONS = 12  # of the story's subjects into groups, at random
TURNS = 3  # the parts that align, each in every role
#: The parts that each group of subjects saw.
DESIGNS: dict[str, list[tuple[int, ...]]] = {
    "groups": [(0, 1), (1, 2)],
    "ring": [(0, 1), (1, 2), (2, 0)],
    "complete": [(0, 1)] * 2,
    "complete, 3 groups": [(0, 1)] * 3,
    "intersection": [(1,)] * 2,
}
#: The complete study that a design is compared with.
WHOLE = {"groups": "complete", "ring": "complete, 3 groups"}
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
        Folder for ``overlap_simulated.csv`` (or ``overlap_pieman.csv``) and ``.md``.
    data : path, optional
        Folder of the story (see :func:`load_pieman`), which is cut into thirds, the
        factors of every subject shuffled, for twelve random divisions of the subjects
        into groups. Default: simulated movies, six studies.
    methods : sequence of str, optional
        Rows of the table; default all.
    n_components : int, default=10
        Number of shared features.
    quick : bool, default=False
        One simulated study of 12 subjects and 100 to 150 voxels, or one division, to
        try it out.
    random_state : int, default=0
        Seed; of the first study, where several are simulated.
    progress : callable, optional
        Called with the number of finished cells, of all cells, and what was done.

    Returns
    -------
    DataFrame
        One row per method and design: ``mean``, the share of segments found, its
        standard error ``se`` over simulated studies, else subjects (NaN for one), and
        ``of_complete``, the share of what the complete study finds, with that of it
        (``of_complete_se``, by leaving out one at a time).
    """
    import pandas as pd

    k = n_components
    available = {
        "paper's GDM": PaperGDM(k, energy=0.82, graph="time"),
        "GDM, one constraint for all": GDM(k, graph="time", constraint="global"),
        "GDM, default": GDM(k, graph="time"),
    }
    chosen = select_methods(available, methods)
    studies: list[tuple[Parts, NDArray[np.intp]]]  # and the place of each subject
    if data is not None:
        study, rng = "pieman", np.random.default_rng(random_state)
        story = _story_in_thirds(data, rng)
        times = range(1 if quick else DIVISIONS)
        studies = [(story, rng.permutation(len(story))) for _ in times]
    else:
        seeds = range(random_state, random_state + (1 if quick else SEEDS))
        made = [_simulated_parts(s, quick=quick) for s in seeds]
        study, studies = "simulated", [(parts, np.arange(len(parts))) for parts in made]
    folder, rows = result_folder(out), []
    scores_of: dict[tuple[str, str], NDArray[np.float64]] = {}
    for method, design in itertools.product(chosen, DESIGNS):
        found = [
            _score_design(p, design, chosen[method], places=at) for p, at in studies
        ]
        # one value a study, or a subject where there is one study
        scores = np.mean(found, axis=1 if data is None else 0)
        scores_of[method, design] = scores
        se = scores.std(ddof=1) / np.sqrt(len(scores)) if len(scores) > 1 else np.nan
        row = {"study": study, "method": method, "design": design}
        rows.append({**row, "mean": scores.mean(), "se": se})
        if progress is not None:
            progress(len(rows), len(chosen) * len(DESIGNS), f"{method}, {design}")
    table = pd.DataFrame(rows)
    shares = [
        _share(scores_of[m, d], scores_of[m, WHOLE[d]])
        if d in WHOLE
        else (np.nan, np.nan)
        for m, d in scores_of
    ]
    table[["of_complete", "of_complete_se"]] = shares
    write_table(folder, f"overlap_{study}", table, overlap_text(table))
    return table


def overlap_text(table: "pd.DataFrame") -> str:
    """Write a row per method, a column per design, and the share of the complete."""
    head, rows = ["segments found, %"], []
    for design in DESIGNS:
        head += [design, "of complete"] if design in WHOLE else [design]
    for method, found in table.groupby("method", sort=False):
        cells = [str(method)]
        for row in found.itertuples():
            cells.append(percent(row.mean, None if np.isnan(row.se) else row.se))
            if row.design in WHOLE:
                se = row.of_complete_se
                cells.append(percent(row.of_complete, None if np.isnan(se) else se))
        rows.append(cells)
    return markdown(head, rows)


def _share(
    part: NDArray[np.float64], whole: NDArray[np.float64]
) -> tuple[float, float]:
    """Return the ratio of two means over the same units, and its standard error."""
    share, n = part.mean() / whole.mean(), len(part)
    if n < 2:
        return share, np.nan
    without = (part.sum() - part) / (whole.sum() - whole)
    return share, np.sqrt((n - 1) / n * ((without - without.mean()) ** 2).sum())


def _score_design(
    parts: Parts, design: str, aligner: Any, *, places: NDArray[np.intp]
) -> NDArray[np.float64]:
    """Return the share of segments found between groups, for each subject.

    Subjects go to the groups by their places, in turn.
    """
    groups, n = DESIGNS[design], len(parts)
    unseen = range(TURNS, len(parts[0]))  # by everybody
    belongs = places % len(groups)
    scores: list[list[float]] = [[] for _ in range(n)]
    for turn in range(TURNS):
        order = [*((turn + p) % TURNS for p in range(TURNS)), *unseen]
        seen = _film(parts, [[order[p] for p in groups[g]] for g in belongs])
        missed = [p for p in range(TURNS) if any(p not in groups[g] for g in belongs)]
        for p in unseen or missed:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # the paper's form separates them
                found = score_alignment(
                    aligner,
                    split_study(_film(parts, [[order[p]]] * n), align=[seen]),
                    groups=belongs.tolist(),
                    window=WINDOW,
                    standardize=False,
                    protocol="joint",
                    measure="matching",
                ).scores[0]
            for i in np.flatnonzero(~np.isnan(found)):
                scores[i].append(float(found[i]))
    return np.array([np.mean(s) for s in scores])


def _film(parts: Parts, shown: list[list[int]]) -> Study:
    """Return a study of the parts that were shown to each subject, with their ids."""
    people = []
    for i, (own, which) in enumerate(zip(parts, shown, strict=True)):
        ids = [f"{p}@{t}" for p in which for t in range(len(own[p]))]
        X = np.concatenate([own[p] for p in which])
        people.append(Subject(str(i), X, stimuli=ids))
    return Study(people)


def _story_in_thirds(folder: str | PathLike[str], rng: np.random.Generator) -> Parts:
    """Cut the story into thirds; the factors of each subject are shuffled."""
    parts = []
    for subject in load_pieman(folder):
        x = np.asarray(subject.data(), np.float64)
        parts.append(np.array_split(x[:, rng.permutation(x.shape[1])], 3))
    return parts


def _simulated_parts(random_state: int, *, quick: bool) -> Parts:
    """Simulate four movies, seen by subjects whose voxels do not correspond."""
    study = simulate_study(
        n_subjects=12 if quick else 18,
        design="movie",
        n_runs=TURNS + 1,
        repetitions=1,
        n_voxels=(100, 150) if quick else (200, 300),
        signal=1.6,
        random_state=random_state,
        settings=SimulationSettings(structured_noise=5.0, local_noise=1.0),
    )
    parts = []
    for s in study:
        x, runs = np.asarray(s.data(), np.float64), np.asarray(s.runs)
        parts.append([x[runs == r] for r in dict.fromkeys(runs.tolist())])
    return parts
