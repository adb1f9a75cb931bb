"""Methods here beside the same methods of other packages: time, memory, accuracy.

    python benchmarks/bench_methods.py [--quick] [--rounds N] [-o FOLDER]

Needs the other packages (``make bench-peers`` runs it in an environment with them).
Every row is a process of its own (Linux) with one thread, K = 10 and 10 iterations:
processor and wall seconds of fit + transform of the same data in float64, memory above
that of the data, and the accuracy on other samples of the same subjects, every subject
tested once on what the others taught a classifier, the same for all. Rounds go through
all rows of a shape in turn, and the best time of a row counts. FOLDER gets
``peers.csv``, the rows, ``peers.toml``, how they were made, and ``peers.svg``, time
against each size.
"""

import argparse
import ctypes
import itertools
import json
import logging
import os
import platform
import re
import time
import warnings
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from threadpoolctl import threadpool_limits

K, ITERATIONS = 10, 10
PAPER = [
    *[(6, 497, 2294), (6, 497, 19174), (14, 135, 19174)],
    *[(16, 242, 19174), (10, 845, 9947), (10, 734, 1000)],
]
SERIES = {
    "subjects": [(m, 300, 2000) for m in (4, 12, 36)],
    "samples": [(8, n, 2000) for n in (100, 300, 900)],
    "voxels": [(8, 300, v) for v in (500, 4000, 32000)],
}
QUICK = {"paper": [(4, 60, 150)], "voxels": [(3, 40, 60), (3, 40, 90)]}
NOT_IN_SERIES = ("RobustSRM", "RHA")
LONG = 20  # seconds: measured once
LARGEST_ROTATION = 1500  # voxels: others rotate them all, voxels x voxels
PACKAGES = ("brainweave", "brainiak", "fastsrm", "fmralign", "hyperalignment")
Data = list[np.ndarray]


def make_data(
    m: int, n: int, v: int, test: int = 140
) -> tuple[Data, Data, list[np.ndarray]]:
    """Make a shared response on top of noise: to align, to test, labels of these."""
    rng = np.random.default_rng(0)
    weights = np.linspace(1.5, 0.3, 15)
    shared = rng.standard_normal((n, 15)) * weights
    categories = 0.5 * rng.standard_normal((7, 15)) * weights
    train, other, labels = [], [], []
    for _ in range(m):
        mixing = rng.standard_normal((15, v))
        y = rng.permutation(np.arange(test) % 7)
        seen = categories[y] + 0.6 * rng.standard_normal((test, 15)) * weights
        X, Y = (S @ mixing for S in (shared, seen))
        X += 6 * rng.standard_normal(X.shape)
        Y += 6 * rng.standard_normal(Y.shape)
        mean, scale = X.mean(axis=0), X.std(axis=0)
        train.append((X - mean) / scale)
        other.append((Y - mean) / scale)
        labels.append(y)
    return train, other, labels


def ours(name: str, **options: Any) -> Callable[[Data], Any]:
    """Return what fits a method of ours, and gives the transform."""

    def run(X: Data) -> Any:
        import brainweave as bw

        return getattr(bw, name)(K, **options, n_jobs=1).fit(X).transform

    return run


def brainiak(module: str, name: str) -> Callable[[Data], Any]:
    """Return the same for BrainIAK, which takes voxels x samples."""

    def run(X: Data) -> Any:
        from importlib import import_module

        kind = getattr(import_module(f"brainiak.funcalign.{module}"), name)
        model = kind(n_iter=ITERATIONS, features=K).fit([x.T for x in X])

        def transform(Y: Data) -> Data:
            found = model.transform([y.T for y in Y])
            shared = found[0] if module == "rsrm" else found  # with individual terms
            return [s.T for s in shared]

        return transform

    return run


def fastsrm(method: str) -> Callable[[Data], Any]:
    def run(X: Data) -> Any:
        from fastsrm.identifiable_srm import IdentifiableFastSRM

        options = {"n_iter": ITERATIONS, "tol": 0, "aggregate": None}
        model = IdentifiableFastSRM(method=method, n_components=K, **options)
        model.fit([x.T for x in X])
        return lambda Y: [s.T for s in model.transform([y.T for y in Y])]

    return run


def fmralign(name: str, **options: Any) -> Callable[[Data], Any]:
    def run(X: Data) -> Any:
        from fmralign import methods
        from fmralign.alignment.group_alignment import GroupAlignment

        np.random.seed(0)  # noqa: NPY002 (its start is drawn from there)
        steps = ITERATIONS if name == "DetSRM" else 2  # its default
        model = GroupAlignment(getattr(methods, name)(**options), n_iter=steps)
        model.fit({str(i): x for i, x in enumerate(X)})

        def transform(Y: Data) -> Data:
            found = model.transform({str(i): y for i, y in enumerate(Y)})
            return [found[str(i)] for i in range(len(Y))]

        return transform

    return run


def hyperalignment(kind: str) -> Callable[[Data], Any]:
    def run(X: Data) -> Any:
        from hyperalignment.local_template import compute_template
        from hyperalignment.procrustes import procrustes

        target = compute_template(np.array(X), kind=kind, max_npc=K)
        maps = [procrustes(x, target) for x in X]
        return lambda Y: [y @ T for y, T in zip(Y, maps, strict=True)]

    return run


# ours aligns all subjects to the start, too: one round of maps that theirs lacks
ROUNDS = {"max_iter": ITERATIONS - 1, "tol": 0, "random_state": 0}
#: method, package -> fit, with whether it holds rotations of voxels x voxels
ROWS: dict[tuple[str, str], tuple[Callable[[Data], Any], bool]] = {
    ("GDM", "brainweave"): (ours("PaperGDM", graph="time", energy=0.5), False),
    ("SRM", "brainweave"): (ours("SRM", **ROUNDS), False),
    ("SRM", "BrainIAK"): (brainiak("srm", "SRM"), False),
    ("SRM", "FastSRM"): (fastsrm("prob"), False),
    ("DetSRM", "brainweave"): (ours("DetSRM", **ROUNDS), False),
    ("DetSRM", "BrainIAK"): (brainiak("srm", "DetSRM"), False),
    ("DetSRM", "FastSRM"): (fastsrm("det"), False),
    ("DetSRM", "fmralign"): (fmralign("DetSRM", n_components=K), False),
    ("RobustSRM", "brainweave"): (ours("RobustSRM", **ROUNDS), False),
    ("RobustSRM", "BrainIAK"): (brainiak("rsrm", "RSRM"), False),
    ("joint SVD", "brainweave"): (ours("SVDHyperalignment"), False),
    ("joint SVD", "hyperalignment"): (hyperalignment("pca"), False),
    ("Hyperalignment", "brainweave"): (ours("Hyperalignment"), False),
    ("Hyperalignment", "hyperalignment"): (hyperalignment("procrustes"), True),
    ("Hyperalignment", "fmralign"): (fmralign("Procrustes"), True),
    ("RHA", "brainweave"): (ours("RegularizedHyperalignment"), False),
}


def accuracy(features: Data, labels: list[np.ndarray]) -> float:
    """Classify each subject by what the others taught."""
    from sklearn.discriminant_analysis import LinearDiscriminantAnalysis

    if features[0].shape[1] > 50:  # rotations of all voxels: what carries most of them
        axes = np.linalg.svd(np.concatenate(features), full_matrices=False)[2][:K]
        features = [f @ axes.T for f in features]
    scores = []
    for i in range(len(features)):
        rest = [j for j in range(len(features)) if j != i]
        model = LinearDiscriminantAnalysis(solver="lsqr", shrinkage="auto").fit(
            np.concatenate([features[j] for j in rest]),
            np.concatenate([labels[j] for j in rest]),
        )
        scores.append(model.score(features[i], labels[i]))
    return float(np.mean(scores))


def measure(row: tuple[str, str], made: tuple[Data, Data, Any]) -> dict[str, float]:
    """Measure one row, in this process."""
    fit = ROWS[row][0]
    X, Y, labels = made
    ctypes.CDLL("libc.so.6").malloc_trim(0)  # give back what making the data took
    Path("/proc/self/clear_refs").write_text("5")  # forget the peak so far
    before, clocks = _status("VmRSS"), (time.process_time(), time.perf_counter())
    transform = fit(X)
    transform(X)
    cpu, wall = time.process_time() - clocks[0], time.perf_counter() - clocks[1]
    memory = (max(_status("VmHWM"), before) - before) / 1024
    scored = 100 * accuracy(transform(Y), labels)
    return {"cpu": cpu, "wall": wall, "memory": memory, "accuracy": scored}


def _status(field: str) -> int:
    text = Path("/proc/self/status").read_text()
    return int(re.search(rf"{field}:\s+(\d+)", text)[1])  # type: ignore[index]


def one_row(row: tuple[str, str], made: tuple[Data, Data, Any]) -> dict[str, float]:
    """Measure one row in a process of its own, which has the data already."""
    read, write = os.pipe()
    child = os.fork()
    if not child:
        try:
            os.write(write, json.dumps(measure(row, made)).encode())
        finally:
            os._exit(0)
    os.close(write)
    with os.fdopen(read) as pipe:
        text = pipe.read()
    os.waitpid(child, 0)
    return json.loads(text)


def bench(plan: dict[str, list[tuple[int, int, int]]], rounds: int) -> Iterator[Any]:
    """Measure all rows, and give those known after each shape."""
    rows: dict[tuple, dict[str, Any]] = {}
    small = make_data(3, 30, 60)[0]
    for fit, _ in ROWS.values():
        fit(small)(small)  # imports
    threadpool_limits(1)
    for kind, shape in [(k, shape) for k in plan for shape in plan[k]]:
        made = make_data(*shape)
        for again, (row, (_, square)) in itertools.product(range(rounds), ROWS.items()):
            if square and shape[2] > LARGEST_ROTATION:
                continue
            if kind != "paper" and (square or row[0] in NOT_IN_SERIES):
                continue
            key = (kind, shape, *row)
            if again and rows[key]["cpu"] > LONG:
                continue
            got = one_row(row, made)
            first = {"kind": kind, "method": row[0], "package": row[1]} | got
            first |= zip(("subjects", "samples", "voxels"), shape, strict=True)
            best = rows.setdefault(key, first)
            for clock in ("cpu", "wall"):
                best[clock] = min(best[clock], got[clock])
            told = ", ".join(f"{name} {value:.4g}" for name, value in got.items())
            print(kind, *shape, f"{', '.join(row)}: {told}", flush=True)
        yield pd.DataFrame(rows.values())


def plot(table: pd.DataFrame, path: Path) -> None:
    """Draw processor time against each size, one line per method and package."""
    import matplotlib as mpl

    mpl.use("svg")
    mpl.rcParams["svg.fonttype"] = "none"
    from matplotlib import pyplot as plt

    table = table[table["kind"] != "paper"]
    sizes = list(dict.fromkeys(table["kind"]))
    figure, (axes,) = plt.subplots(
        *(1, len(sizes)), figsize=(4 * len(sizes), 4), sharey=True, squeeze=False
    )
    colors = {method: f"C{i}" for i, method in enumerate(table["method"].unique())}
    marks = dict(zip(table["package"].unique(), "osv^D", strict=False))
    for axis, size in zip(axes, sizes, strict=True):
        part = table[table["kind"] == size]
        for (method, package), line in part.groupby(["method", "package"], sort=False):
            style = "-" if package == "brainweave" else "--"
            look = {"marker": marks[package], "color": colors[method], "ms": 4, "lw": 1}
            name = f"{method}, {package}"
            axis.loglog(line[size], line["cpu"], style, **look, label=name)
        measured = sorted(part[size].unique())
        axis.set_xticks(measured, [f"{n:,}" for n in measured])
        axis.xaxis.set_minor_locator(mpl.ticker.NullLocator())
        axis.set_xlabel(size)
    axes[0].set_ylabel("processor seconds, fit + transform")
    axes[-1].legend(fontsize=7, loc="center left", bbox_to_anchor=(1, 0.5))
    figure.savefig(path, bbox_inches="tight", metadata={"Date": None})


def describe(command: str) -> str:
    """Say where, when and with what the rows were made, as TOML."""
    cpu = re.search(r"model name\s*: (.*)", Path("/proc/cpuinfo").read_text())
    libraries = ("numpy", "scipy", "scikit-learn")
    found = {name: version(name) for name in (*PACKAGES[1:], *libraries)}
    told = ", ".join(f"{name} {v}" for name, v in found.items())
    machine = f"{os.cpu_count()} x {cpu[1] if cpu else platform.machine()}"
    return (
        f'command = "{command}"\ndate = {datetime.now(UTC).date()}\n'
        f'version = "{version("brainweave")}"\nseed = 0\n'
        f'machine = "{machine}"\nversions = "{told}"\n'
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="small shapes")
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("-o", "--out", type=Path, default=Path("out/peers"))
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    logging.disable()
    plan = QUICK if options.quick else {"paper": PAPER} | SERIES
    options.out.mkdir(parents=True, exist_ok=True)
    for table in bench(plan, options.rounds):
        table.to_csv(options.out / "peers.csv", index=False, float_format="%.4g")
        (options.out / "peers.toml").write_text(describe("make bench-peers"))
    plot(table, options.out / "peers.svg")
    print(f"Written to {options.out}.")


if __name__ == "__main__":
    main()
