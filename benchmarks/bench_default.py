"""The default beside SRM: processor seconds of a fit, and the share of each stage.

    python benchmarks/bench_default.py [-o docs/results] [--repeats 3] [--quick]

All are measured in turn in one run on one thread, the best of each; ratios to our SRM
with 10 features say more than seconds, since they hardly depend on the machine. The
data are simulated: a film that all saw or categories, on top of components of each
subject and noise. Where FastSRM and fmralign are installed, they are fitted to the same
samples, which correspond. ``make bench-default`` writes the table into docs/speed.md.
"""

import argparse
import platform
import time
import warnings
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from datetime import UTC, datetime
from functools import partial, wraps
from importlib.util import find_spec
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np
import pandas as pd
from packaging.version import Version

from bench_methods import fastsrm, fmralign
from brainweave import GDM, SRM, DetSRM, __version__
from brainweave._core.workers import blas_threads
from brainweave.aligners.gdm import gdm as default

# subjects, samples, voxels, categories (0: a film)
SHAPES = [
    (6, 497, 2294, 8),
    (14, 135, 19174, 2),
    (10, 845, 9947, 4),
    (10, 734, 1000, 0),
    (20, 1600, 400, 0),
    (6, 2200, 1000, 0),
]
PLACES = 1000
QUICK_SHAPES = [(4, 60, 300, 4), (4, 120, 40, 0)]
#: Fits of other packages: 10 features, 10 iterations.
PEERS = {
    "fastsrm": ("SRM(10), FastSRM", fastsrm("prob")),
    "fmralign": ("DetSRM(10), fmralign", fmralign("DetSRM", n_components=10)),
}
#: Functions of a fit whose time is told, outside of each other.
STAGES = {
    "choose_strength": "ridges",
    "choose_by_agreement": "ridges",
    "leading_directions": "ridges",
    "solve_shrinkage": "components",
    "solve_per_subject": "components",
    "count_holding": "check",
}


def make_data(m: int, n: int, v: int, categories: int) -> tuple[list[Any], Any]:
    """Make what all saw, own components with a decaying spectrum, and noise."""
    rng = np.random.default_rng(0)
    if categories:
        shared, strength = np.eye(categories)[np.arange(n) % categories], 1.0
    else:
        shared = rng.standard_normal((n, 20))
        strength = np.linspace(0.6, 0.1, 20)
    X = []
    for _ in range(m):
        own = rng.standard_normal((n, 40)) * np.linspace(1.5, 0.2, 40)
        x = own @ rng.standard_normal((40, v)) + rng.standard_normal((n, v))
        topography = rng.standard_normal((shared.shape[1], v))
        X.append(x + (shared * strength) @ topography)
    return X, [np.arange(n) % categories] * m if categories else None


@contextmanager
def stage_timer(seconds: dict[str, float]) -> Iterator[None]:
    """Add up the processor time of the stages of a fit."""
    inside: list[str] = []

    def timed(function: Callable[..., Any], stage: str) -> Callable[..., Any]:
        @wraps(function)
        def call(*args: Any, **options: Any) -> Any:
            if inside:  # a fit to half of the samples
                return function(*args, **options)
            inside.append(stage)
            start = time.process_time()
            try:
                return function(*args, **options)
            finally:
                inside.pop()
                spent = time.process_time() - start
                seconds[stage] = seconds.get(stage, 0.0) + spent

        return call

    with ExitStack() as stack:
        for name, stage in STAGES.items():
            wrapped = timed(getattr(default, name), stage)
            stack.enter_context(patch.object(default, name, wrapped))
        yield


def measure(shape: tuple[int, ...], repeats: int) -> list[dict[str, Any]]:
    """Fit all models in turn; return a row for each."""
    X, y = make_data(*shape)
    graph, k = ("labels", shape[3] - 1) if shape[3] else ("time", 10)
    how: dict[str, Any] = {"graph": graph, "n_jobs": 1}
    v = shape[2]  # at most 1,000 places: parcels of voxels, or the columns
    parcels: Any = "auto" if v <= PLACES else 1 + np.arange(v) * PLACES // v
    models = {
        "SRM(10)": SRM(10, random_state=0, n_jobs=1),
        "DetSRM(10), 10 rounds": DetSRM(
            10, max_iter=10, tol=0, random_state=0, n_jobs=1
        ),
        "GDM()": GDM(**how),
        f"GDM({k})": GDM(k, **how),
        "GDM(place=None)": GDM(place=None, **how),
        f"GDM({k}, place=None)": GDM(k, place=None, **how),
        "ridge given, no place": GDM(k, shrinkage=0.3, place=None, **how),
        "ridges given, places": GDM(
            k, shrinkage=0.3, place=parcels, place_shrinkage=0.1, **how
        ),
        "ridges chosen, places": GDM(k, place=parcels, **how),
    }
    if v <= PLACES:
        del models["ridges chosen, places"]  # the same as with K components
    fits: dict[str, Any] = {name: partial(m.fit, X, y) for name, m in models.items()}
    few = [x[:, :50] for x in X]
    for name in ("SRM(10)", "GDM()"):
        models[name].fit(few, y)  # imports
    for package in filter(find_spec, PEERS):
        name, fit = PEERS[package]
        fit(few)
        fits[name] = partial(fit, X)
    best: dict[str, dict[str, Any]] = {}
    for _ in range(repeats):
        for name, fit in fits.items():
            stages: dict[str, float] = {}
            start = time.process_time()
            with stage_timer(stages):
                fit()
            total = time.process_time() - start
            if name not in best or total < best[name]["seconds"]:
                names = dict.fromkeys(STAGES.values())
                shares = {s: stages.get(s, 0.0) / total for s in names}
                best[name] = {"seconds": total, **shares}
    floor = best["SRM(10)"]["seconds"]
    sizes = dict(
        zip(("subjects", "samples", "voxels", "categories"), shape, strict=True)
    )
    return [
        {**sizes, "model": name, "ratio": row["seconds"] / floor, **row}
        for name, row in best.items()
    ]


def main() -> None:
    """Measure; write after each shape."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("-o", "--output", type=Path)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--quick", action="store_true", help="small shapes, seconds")
    parser.add_argument("--shapes", help="which, from 0, such as 3,4")
    asked = parser.parse_args()
    shapes = QUICK_SHAPES if asked.quick else SHAPES
    if asked.shapes:
        shapes = [shapes[int(i)] for i in asked.shapes.split(",")]
    warnings.simplefilter("ignore")
    if not all(map(find_spec, PEERS)):
        print("For rows of FastSRM and fmralign: make .venv-peers/.ready, and again.")
    rows: list[dict[str, Any]] = []
    with blas_threads(1):
        for shape in shapes:
            for row in measure(shape, asked.repeats):
                rows.append(row)
                numbers = (f"{row[s]:5.0%} {s}" for s in dict.fromkeys(STAGES.values()))
                m, n, v, categories, model = list(row.values())[:5]
                print(
                    f"{m:>3} x {n:>4} x {v:>5} {'labels' if categories else 'film':>6} "
                    f"{model:>22} {row['seconds']:7.2f} s {row['ratio']:6.2f} x SRM "
                    f"{' '.join(numbers)}",
                    flush=True,
                )
    if asked.output:
        write(pd.DataFrame(rows), asked.output)


def write(table: pd.DataFrame, folder: Path) -> None:
    """Write the table, and how it was made; shapes that were not asked for stay."""
    folder.mkdir(parents=True, exist_ok=True)
    file = folder / "default_speed.csv"
    if file.exists():
        sizes = list(table.columns[:4])
        known = pd.read_csv(file)
        other = ~known.set_index(sizes).index.isin(table.set_index(sizes).index)
        table = pd.concat([known[other], table])
        order = [
            SHAPES.index(s) if s in SHAPES else -1
            for s in zip(*(table[c] for c in sizes), strict=True)
        ]
        table = table.iloc[np.argsort(order, kind="stable")]
    table.to_csv(file, index=False, float_format="%.4g", lineterminator="\n")
    lines = [
        'command = "make bench-default"',
        f"date = {datetime.now(UTC).date()}",
        f'version = "{Version(__version__).base_version}"',
        "seed = 0",
        f'machine = "One thread, {platform.machine()}"',
    ]
    (folder / "default_speed.toml").write_text("\n".join(lines) + "\n", "utf-8")


if __name__ == "__main__":
    main()
