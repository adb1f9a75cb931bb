"""Raider's images, halved in all 35 ways: what each idea beyond the paper is worth.

One way of halving 8 runs is one draw: methods that differ by 4 points on it may change
places on the next. So every way is taken, both directions, and the means and their
standard errors over ways are told. Nothing is tuned on what is scored.
"""

import itertools
from collections.abc import Callable, Sequence
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from brainweave._io import write_text
from brainweave.aligners.gdm import GDM
from brainweave.aligners.hyperalignment import Hyperalignment, RegularizedHyperalignment
from brainweave.aligners.srm import SRM
from brainweave.evaluation.grid import Grid, GridStudy
from brainweave.evaluation.measures import Classification
from brainweave.evaluation.runner import run_grid
from brainweave.exceptions import InputError
from brainweave.paper.output import markdown
from brainweave.paper.real import load_raider_images
from brainweave.study.study import Study

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["halvings", "raider_all_splits"]

LEAVE_OUT = 2
PAPER = "paper's GDM, K = 10"


def methods_compared() -> dict[str, Any]:
    """Return the rows of the table."""
    reliable: Any = {"standardize": "reliability"}
    return {
        PAPER: GDM(10, energy=0.82),
        "paper's GDM, K = 6": GDM(6, energy=0.82),
        "RHA, K = 10": RegularizedHyperalignment(10),
        "SRM, K = 10": SRM(10),
        "HA, K = 10": Hyperalignment(10),
        "GDM, shrinkage, K = 6": GDM(6),
        "+ reliable voxels": GDM(6, **reliable),
        "+ labels and time, K = 20": GDM(20, graph="labels+time", **reliable),
        "RHA with reliable voxels, K = 10": RegularizedHyperalignment(10, **reliable),
    }


def halvings(runs: Sequence[Any]) -> list[tuple[Any, ...]]:
    """Return all ways of taking half of the runs, each way once with its complement.

    Examples
    --------
    >>> halvings([1, 2, 3, 4])
    [(1, 2), (1, 3), (1, 4)]
    >>> len(halvings(range(8)))
    35
    """
    known = list(dict.fromkeys(runs))
    ways = itertools.combinations(known, len(known) // 2)
    return [way for way in ways if known[0] in way]


def raider_all_splits(
    data: str | PathLike[str] | Study,
    out: str | PathLike[str],
    *,
    methods: Sequence[str] | None = None,
    most: int | None = None,
    random_state: int = 0,
    n_jobs: int | None = None,
    progress: Callable[[int, int, str], None] | None = None,
) -> "pd.DataFrame":
    """Classify Raider's images under all ways of halving the runs, both protocols.

    Parameters
    ----------
    data : path or Study
        Folder of the files (see :func:`load_raider_images`), or the study.
    out : path
        Folder for ``raider_all_splits.csv`` and ``.md``, and the store.
    methods : sequence of str, optional
        Rows of the table; default all.
    most : int, optional
        Take this many ways only.
    random_state, n_jobs, progress
        As in :func:`table2`.

    Returns
    -------
    DataFrame
        One row per method and protocol: ``mean``, its standard error ``se`` over ways
        of halving, and ``over_paper``, the mean paired difference to the paper's GDM
        with its own ``over_paper_se``.
    """
    folder = Path(out)
    folder.mkdir(parents=True, exist_ok=True)
    study = data if isinstance(data, Study) else load_raider_images(data)
    known = methods_compared()
    unknown = [m for m in methods or () if m not in known]
    if unknown:
        raise InputError(f"methods={unknown} must be some of {', '.join(known)}.")
    chosen = {m: a for m, a in known.items() if methods is None or m in methods}
    runs = [np.asarray(s.runs) for s in study]
    grids = [
        Grid(
            GridStudy(
                f"Raider, runs {' '.join(map(str, way))}",
                study,
                halves=[np.isin(own, way) for own in runs],
                leave_out=min(LEAVE_OUT, len(study) - 1),
            ),
            chosen,
            protocols=("joint", "held-out"),
            measure=Classification(),
            random_state=random_state,
        )
        for way in halvings(runs[0].tolist())[:most]
    ]
    result = run_grid(grids, folder / "store", n_jobs=n_jobs, progress=progress)
    table = _table(result.summary(), list(chosen))
    write_text(folder / "raider_all_splits.csv", table.to_csv(index=False))
    write_text(folder / "raider_all_splits.md", _text(table, len(grids)))
    return table


def _table(summary: "pd.DataFrame", methods: list[str]) -> "pd.DataFrame":
    import pandas as pd

    rows = []
    for method, protocol in itertools.product(methods, ("joint", "held-out")):
        means = _by_way(summary, method, protocol)
        paper = _by_way(summary, PAPER, protocol)
        row = {"method": method, "protocol": protocol, "mean": means.mean()}
        row |= {"se": _error(means), "n_splits": len(means)}
        if method != PAPER and len(paper) == len(means):
            difference = means - paper
            row |= {
                "over_paper": difference.mean(),
                "over_paper_se": _error(difference),
            }
        errors = summary.loc[summary["method"] == method, "error"]
        row["error"] = next((e for e in errors if isinstance(e, str) and e), "")
        rows.append(row)
    return pd.DataFrame(rows)


def _by_way(summary: "pd.DataFrame", method: str, protocol: str) -> "pd.Series[float]":
    own = summary[(summary["method"] == method) & (summary["protocol"] == protocol)]
    return own.set_index("study")["mean"].sort_index()


def _error(values: "pd.Series[float]") -> float:
    n = len(values)
    return float(values.std(ddof=1) / np.sqrt(n)) if n > 1 else float("nan")


def _text(table: "pd.DataFrame", n_splits: int) -> str:
    cells: dict[str, list[str]] = {}
    for _, row in table.iterrows():
        text = f"{100 * row['mean']:.1f} ± {100 * row['se']:.1f}"
        cells.setdefault(str(row["method"]), []).append(text)
    rows = [[method, *both] for method, both in cells.items()]
    head = [f"Raider, {n_splits} ways of halving", "joint", "held-out"]
    return markdown(head, rows)
