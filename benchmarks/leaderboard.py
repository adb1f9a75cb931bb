"""All methods, own and of other packages, on eight benchmarks, under both protocols.

    python benchmarks/leaderboard.py -o docs/results [--data DIR] [--quick] [--page]

Every benchmark and method is a process of its own (Linux, macOS), which writes a file
under ``out/leaderboard``: stopped and started again, the command goes on where it was.
Set OMP_NUM_THREADS=1, so that each has one thread. Times are processor seconds of the
whole evaluation (all folds), memory is the peak above that of the data; both hold under
load. A method that takes more than ``--limit`` processor seconds under a protocol is
reported so. Packages that are not installed are left out of the table
(``pip install brainweave[peers]`` has them). The folder gets ``leaderboard.csv``,
``leaderboard.toml`` and the figures, and ``docs/leaderboard.md`` the tables; ``--page``
runs nothing and writes these from the CSV, ``--finished`` from the results so far.
"""

import argparse
import json
import os
import platform
import re
import resource
import sys
import time
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from signal import SIGXCPU
from typing import Any

import numpy as np
import pandas as pd

sys.path.insert(0, str(Path(__file__).parents[1]))

import brainweave as bw
from brainweave._core import __version__
from brainweave.aligners.adapters import METHODS as FOREIGN
from brainweave.aligners.timelocked import TimeLocked
from brainweave.study.spaces import common_voxels
from reproduction.overlap import DESIGNS, _film, _simulated_parts
from reproduction.real import halvings, load_pieman, load_raider_images
from reproduction.registered import load_sherlock, shuffled

ROOT = Path(__file__).parents[1]
GDM, PROTOCOLS = "GDM", ("joint", "held-out")
Score = Callable[[Any, str], Any]  # aligner, protocol: one value per unit


@dataclass(frozen=True)
class Bed:
    """A benchmark: what is compared, in what, and what the methods are told."""

    title: str
    units: str  # over which means and errors are taken
    n_components: int  # of the methods that have to be given a number
    graph: str  # of GDM
    make: Callable[[Path, bool], tuple[Score, float]]  # and the level of chance
    protocols: tuple[str, ...] = PROTOCOLS


def _raider(data: Path, quick: bool) -> tuple[Score, float]:
    study = load_raider_images(data)
    runs = [np.asarray(s.runs) for s in study]
    ways = halvings(runs[0].tolist())[:: 35 if quick else WAYS]

    def score(aligner: Any, protocol: str) -> Any:
        found = []
        for way in ways:
            halves = [np.isin(own, way) for own in runs]
            found.append(
                bw.between_subject_classification(
                    *(aligner, study),
                    halves=halves,
                    leave_out=5 if quick else 2,
                    protocol=protocol,
                    n_jobs=1,
                ).mean
            )
        return found

    return score, 1 / 7


def _segments(
    load: Callable[[Path], Any], window: int, leave_out: int
) -> Callable[[Path, bool], tuple[Score, float]]:
    def make(data: Path, quick: bool) -> tuple[Score, float]:
        study = load(data)
        if quick:
            study = study.subset(subjects=study.ids[:6])

        def score(aligner: Any, protocol: str) -> Any:
            result = bw.score_alignment(
                *(aligner, study),
                window=window,
                leave_out=3 if quick else leave_out,
                protocol=protocol,
                n_jobs=1,
                measure="matching",
            )
            return np.mean(result.scores, axis=0)  # of a subject, over directions

        n = study[0].n_samples // 2 - window + 1
        return score, 1 / max(n - 2 * (window - 1), 1)

    return make


def _categories(
    own_order: bool,
) -> Callable[[Path, bool], tuple[Score, float]]:
    def make(data: Path, quick: bool) -> tuple[Score, float]:
        studies = [
            bw.simulate_study(
                n_subjects=6,
                categories=8,
                n_runs=4,
                n_samples=240,
                n_voxels=(200, 300) if own_order else 250,
                own_sequence=own_order,
                missing_samples=0.2 if own_order else 0.0,
                random_state=seed,
            )
            for seed in range(1 if quick else 3)
        ]

        def score(aligner: Any, protocol: str) -> Any:
            found = []
            # those that need the same rows of all get them by category, as in the paper
            same_rows = own_order and isinstance(aligner, TimeLocked)
            match = "truncate" if same_rows else None
            for study in studies:
                result = bw.between_subject_classification(
                    aligner,
                    bw.split_study(study, halves="run", match=match),
                    protocol=protocol,
                    n_jobs=1,
                )
                found.append(result.mean)
            return found

        return score, 1 / 8

    return make


def _overlap(data: Path, quick: bool) -> tuple[Score, float]:
    films = [_simulated_parts(seed, quick=True) for seed in range(1 if quick else 3)]

    def score(aligner: Any, protocol: str) -> Any:
        # who needs the same samples of all can use what all saw alone
        design = "intersection" if isinstance(aligner, TimeLocked) else "groups"
        found = []
        for parts in films:
            belongs = np.arange(len(parts)) % 2
            seen = _film(parts, [list(DESIGNS[design][g]) for g in belongs])
            result = bw.score_alignment(
                aligner,
                bw.split_study(_film(parts, [[3]] * len(parts)), align=[seen]),
                groups=belongs.tolist(),
                window=9,
                protocol=protocol,
                n_jobs=1,
                measure="matching",
            )
            found.append(float(np.nanmean(result.scores)))
        return found

    return score, 0.01


def _brains(data: Path, quick: bool) -> tuple[Score, float]:
    studies = [
        common_voxels(
            bw.simulate_brains(
                *(6,),
                shape=(9, 10, 9),
                n_samples=120,
                films=["a", "b"],
                signal=0.4,
                misregistration_mm=4.0,
                mask_variability=0.02,
                random_state=seed,
            )
        )
        for seed in range(1 if quick else 3)
    ]

    def score(aligner: Any, protocol: str) -> Any:
        found = []
        for study in studies:
            a, b = (
                study.map(lambda s, f=film: s.select(s.runs == f))
                for film in ("a", "b")
            )
            result = bw.score_alignment(
                aligner,
                bw.split_study(b, align=[a]),
                protocol=protocol,
                leave_out=2,
                n_jobs=1,
                measure="matching",
            )
            found.append(float(np.mean(result.scores)))
        return found

    return score, 1 / 76


WAYS = 7  # every seventh of the 35 ways of halving: 5, the same for all methods
BEDS = {
    "categories": Bed(
        "simulated categories", "studies", 7, "labels", _categories(False)
    ),
    "unaligned": Bed(
        "simulated categories, own order", "studies", 7, "labels", _categories(True)
    ),
    "raider": Bed("Raider, images", "ways of halving", 6, "labels", _raider),
    "overlap": Bed(
        *("partly overlapping films", "studies", 10, "time", _overlap), ("joint",)
    ),
    "brains": Bed("brains off by 4 mm", "studies", 10, "time", _brains),
    "pieman": Bed("Pieman", "subjects", 30, "time", _segments(load_pieman, 10, 12)),
    "shuffled": Bed(
        "Pieman, shuffled",
        *("subjects", 30, "time"),
        _segments(lambda data: shuffled(load_pieman(data)), 10, 12),
    ),
    "sherlock": Bed("Sherlock", "subjects", 20, "time", _segments(load_sherlock, 9, 6)),
}
REAL = ("raider", "pieman", "shuffled", "sherlock")
GEOMETRY = ("brains",)  # where voxels have positions


def methods(bed: Bed) -> dict[str, Any]:
    """Return every method with the settings of a benchmark."""
    k, one = bed.n_components, {"n_jobs": 1}
    seeded: Any = {"random_state": 0, **one}
    own = {
        GDM: bw.GDM(graph=bed.graph, **one),
        "GDM, K given": bw.GDM(k, graph=bed.graph, **one),
        "paper's GDM": bw.PaperGDM(k, energy=0.82, graph=bed.graph, **one),
        "no alignment": bw.NoAlignment(**one),
        "SRM": bw.SRM(k, **seeded),
        "DetSRM": bw.DetSRM(k, **seeded),
        "RobustSRM": bw.RobustSRM(k, **seeded),
        "HA": bw.Hyperalignment(k, **one),
        "RHA": bw.RegularizedHyperalignment(k, **one),
        "SVDHA": bw.SVDHyperalignment(k, **one),
        "GCCA": bw.GCCA(k, **one),
        "ProMises": bw.ProMises(k, **one),
        "ridge": bw.RidgeAlignment(k, **one),
    }
    for name, method in FOREIGN.items():
        if name != "scipy:procrustes" and _installed(name.partition(":")[0]):
            given = k if method.n_components is not None else None
            own[name] = bw.Adapter(name, given, **seeded)
    return own


def _installed(package: str) -> bool:
    try:
        return bool(version(package))
    except ImportError:
        return False


# -- one benchmark and method, in a process of its own ---------------------------------


def cell(bed: str, method: str, data: Path, quick: bool, limit: int) -> dict[str, Any]:
    """Score a method; what cannot be scored says why."""
    task = BEDS[bed]
    score, chance = task.make(data, quick)
    aligner = methods(task)[method]
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    out: dict[str, Any] = {"chance": chance, "method": method, "bed": bed}
    for protocol in task.protocols:
        start = time.process_time()
        used = int(time.process_time())
        if limit:
            most = used + limit, resource.RLIM_INFINITY
            resource.setrlimit(resource.RLIMIT_CPU, most)
        row: dict[str, Any] = {}
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                row["scores"] = [round(float(s), 5) for s in score(aligner, protocol)]
        except Exception as error:  # a row with the reason; the others go on
            row["error"] = f"{type(error).__name__}: {error}"
        row["seconds"] = round(time.process_time() - start, 2)
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        row["megabytes"] = round((peak - before) / 1024, 1)
        out[protocol] = row
    return out


def run(
    store: Path,
    data: Path,
    beds: list[str],
    names: list[str],
    *,
    quick: bool,
    limit: int,
    finished: bool = False,
) -> Iterator[dict[str, Any]]:
    """Yield the result of every cell, computing those that are missing, if wanted."""
    for name in names:
        for bed in beds:
            if name in FOREIGN and FOREIGN[name].geometry and bed not in GEOMETRY:
                continue
            file = store / bed / (re.sub(r"\W+", "_", name) + ".json")
            if finished and not file.exists():
                continue
            if not file.exists():
                file.parent.mkdir(parents=True, exist_ok=True)
                start = time.perf_counter()
                status = _in_a_child(file, bed, name, data, quick, limit)
                if not file.exists():
                    over = os.WIFSIGNALED(status) and os.WTERMSIG(status) == SIGXCPU
                    why = f"more than {limit} processor seconds" if over else "killed"
                    failed = {"bed": bed, "method": name, "chance": None}
                    both = {p: {"error": why} for p in BEDS[bed].protocols}
                    file.write_text(json.dumps({**failed, **both}), "utf-8")
                took = time.perf_counter() - start
                print(f"{bed}: {name}, {took:.0f} s", flush=True)
            yield json.loads(file.read_text("utf-8"))


def _in_a_child(file: Path, *asked: Any) -> int:
    """Write the result of a cell by a process of its own; return how that ended."""
    child = os.fork()
    if child:
        return os.waitpid(child, 0)[1]
    code = 1
    try:
        file.write_text(json.dumps(cell(*asked)), "utf-8")
        code = 0
    finally:
        os._exit(code)


def to_frame(cells: list[dict[str, Any]]) -> pd.DataFrame:
    """Return a row per benchmark, method and protocol, with differences to GDM."""
    rows = [
        {"bed": c["bed"], "method": c["method"], "protocol": p, "chance": c["chance"]}
        | {k: c[p].get(k) for k in ("scores", "seconds", "megabytes", "error")}
        for c in cells
        for p in PROTOCOLS
        if p in c
    ]
    gdm = {(r["bed"], r["protocol"]): r["scores"] for r in rows if r["method"] == GDM}
    for row in rows:
        own, reference = row["scores"], gdm.get((row["bed"], row["protocol"]))
        if own is not None:
            row["mean"], row["se"] = _mean_and_error(own)
        if own is not None and reference is not None:
            over = np.subtract(own, reference)
            row["over_gdm"], row["over_gdm_se"] = _mean_and_error(over)
        row["scores"] = " ".join(map(str, own or []))
    return pd.DataFrame(rows)


def _mean_and_error(values: Any) -> tuple[float, float]:
    values = np.asarray(values)
    n = len(values)
    se = float(values.std(ddof=1) / np.sqrt(n)) if n > 1 else float("nan")
    return float(values.mean()), se


SHADES = {"light": ("#1f2328", "#fff"), "dark": ("#e6edf3", "#0d1117")}


# -- the page --------------------------------------------------------------------------


def page(table: pd.DataFrame, made: dict[str, Any]) -> str:
    """Write the page from the table and how it was made."""
    template = (ROOT / "docs" / "leaderboard.md").read_text("utf-8")
    parts = {"made": _made(made), "first": _first(table)}
    for protocol in PROTOCOLS:
        parts[protocol] = _scores(table[table["protocol"] == protocol])
    parts["cost"] = _cost(table)
    for name, text in parts.items():
        pattern = rf"(<!-- {name} -->\n).*?(<!-- end -->)"
        template = re.sub(
            pattern, lambda m, t=text: f"{m[1]}\n{t}\n\n{m[2]}", template, flags=re.S
        )
    return template


def _made(made: dict[str, Any]) -> str:
    packages = ", ".join(made["packages"])
    return (
        f"Run on {made['date']} with brainweave {made['version']} ({packages}) on "
        f"{made['machine']}, one thread, other work beside it. The limit was "
        f"{made['limit']} processor seconds for a method, benchmark and protocol."
    )


def _markdown(head: list[str], rows: list[list[str]]) -> str:
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


def _ordered(table: pd.DataFrame) -> tuple[list[str], list[str]]:
    """Return the benchmarks, and the methods, best first; those of few come last."""
    beds = [bed for bed in BEDS if bed in set(table["bed"])]
    known = table.groupby("method")["over_gdm"]
    few = known.count() < len(beds) / 2
    return beds, sorted(set(table["method"]), key=lambda m: (few[m], -known.mean()[m]))


def _scores(table: pd.DataFrame) -> str:
    """One row per method: the mean, and in brackets the paired difference to GDM."""
    whole = table.set_index(["method", "bed"])
    beds, names = _ordered(table)
    rows = []
    for method in names:
        cells = []
        for bed in beds:
            if (method, bed) not in whole.index:
                cells.append("")
                continue
            row = whole.loc[(method, bed)]
            if not np.isfinite(row["mean"]):
                cells.append("–")
                continue
            text = f"{100 * row['mean']:.1f}"
            if method != GDM:
                text += (
                    f" ({100 * row['over_gdm']:+.1f} ± {100 * row['over_gdm_se']:.1f})"
                )
            cells.append(text)
        rows.append([method, *cells])
    return _markdown(["accuracy, %", *(BEDS[b].title for b in beds)], rows)


def _first(table: pd.DataFrame) -> str:
    """Say, for each benchmark, who is first, and by how much over GDM."""
    lines = []
    for (bed, protocol), part in table.groupby(["bed", "protocol"], sort=False):
        found = part.dropna(subset=["mean"]).sort_values("mean", ascending=False)
        if found.empty:
            continue
        best = found.iloc[0]
        own = found[found["method"] == GDM]
        if own.empty:
            continue
        rank = int((found["mean"] > float(own["mean"].iloc[0])).sum()) + 1
        text = f"- {BEDS[str(bed)].title}, {protocol}: "
        if rank == 1:
            text += f"GDM is first of {len(found)}."
        else:
            over, error = best["over_gdm"], best["over_gdm_se"]
            text += (
                f"GDM is number {rank} of {len(found)}; {best['method']} is first, "
                f"by {100 * over:.1f} ± {100 * error:.1f}."
            )
            text += " GDM is within a standard error." if over <= error else ""
        other = found[~found["method"].str.contains("GDM")]
        if rank > 1 and not other.empty and "GDM" in best["method"]:
            text += f" {_beside(other.iloc[0])}"
        lines.append(text)
    return "\n".join(lines)


def _beside(row: Any) -> str:
    """Say how the best method that is no GDM compares with the default."""
    over, error = 100 * row["over_gdm"], 100 * row["over_gdm_se"]
    return f"Best of the others: {row['method']}, {over:+.1f} ± {error:.1f}."


def _cost(table: pd.DataFrame) -> str:
    held = table[table["protocol"] == "held-out"]
    beds, names = _ordered(held)
    held = held.set_index(["method", "bed"])
    rows = []
    for method in names:
        cells = []
        for bed in beds:
            known = (method, bed) in held.index
            row = held.loc[(method, bed)] if known else None
            good = row is not None and np.isfinite(row["mean"])
            cells.append(
                f"{row['seconds']:.1f} s, {row['megabytes']:.0f} MB" if good else ""
            )
        rows.append([method, *cells])
    return _markdown(["held-out", *(BEDS[b].title for b in beds)], rows)


def _color(method: str) -> str:
    """Return the colour of GDM, other methods of brainweave, or other packages."""
    return "#d55e00" if method == GDM else "#56b4e9" if ":" in method else "#0072b2"


def figures(table: pd.DataFrame, folder: Path, shades: Any = None) -> None:
    """Draw ranks, accuracy against time, and one panel per benchmark, twice."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot as plt
    from matplotlib.ticker import FixedLocator, NullFormatter, ScalarFormatter
    from scipy.stats import studentized_range

    held = table[table["protocol"] == "held-out"].dropna(subset=["mean"])
    wide = held.pivot(index="bed", columns="method", values="mean")
    wide = wide.loc[:, wide.notna().all()]
    ranks = wide.rank(axis=1, ascending=False).mean().sort_values()
    n, m = wide.shape
    q = float(studentized_range.ppf(0.95, m, np.inf)) / np.sqrt(2)
    distance = q * np.sqrt(m * (m + 1) / (6 * n))
    cost = held[held["method"].isin(wide.columns)].groupby("method")
    cost = pd.DataFrame(
        {"over": 100 * cost["over_gdm"].mean(), "seconds": cost["seconds"].sum()}
    ).sort_values("over")
    for shade, (ink, paper) in (shades or SHADES).items():
        style = {"text.color": ink, "axes.edgecolor": ink, "axes.labelcolor": ink}
        style |= {"xtick.color": ink, "ytick.color": ink, "svg.hashsalt": "brainweave"}
        style |= {"axes.facecolor": paper, "figure.facecolor": paper, "font.size": 9}
        style |= {"axes.spines.top": False, "axes.spines.right": False}
        with plt.rc_context(style):
            figure, axes = plt.subplots(figsize=(7, 0.25 * m + 1))
            axes.hlines(
                *(range(m), ranks - distance / 2, ranks + distance / 2),
                *("#9ba3ac",),
                linewidth=2,
            )
            colors = [*map(_color, ranks.index)]
            axes.scatter(ranks, range(m), c=colors, s=45, zorder=3)
            axes.set_yticks(range(m), ranks.index)
            axes.set_xlim(0.5, m + 0.5)
            axes.invert_yaxis()
            axes.set_xlabel(
                f"mean rank over {n} benchmarks; bars that do not overlap differ (5 %)"
            )
            _save(figure, folder / f"leaderboard_ranks_{shade}.svg")

            figure, axes = plt.subplots(figsize=(7, 5))
            colors = [*map(_color, cost.index)]
            axes.scatter(cost["seconds"], cost["over"], c=colors, s=45, zorder=3)
            low, high = cost["over"].min() - 2, cost["over"].max() + 2
            gap, taken = (high - low) / 26, []
            for name, (over, seconds) in cost.iterrows():
                x, y = 1.12 * seconds, over
                points = [(a, b) for b, a in cost.to_numpy() if a > seconds]
                near = [b for a, b in taken + points if 0.45 < a / x < 2.2]
                while any(abs(y - b) < gap for b in near):
                    y += gap / 4  # up, until it overlaps nothing
                taken.append((x, y))
                axes.annotate(
                    str(name),
                    (seconds, over),
                    (x, y),
                    va="center",
                    arrowprops={"arrowstyle": "-", "color": "#9ba3ac", "lw": 0.6},
                )
            axes.set_xscale("log")
            axes.set_xlim(0.7 * cost["seconds"].min(), 3 * cost["seconds"].max())
            axes.xaxis.set_major_locator(FixedLocator([1, 2, 5, 10, 20, 50, 100, 200]))
            axes.xaxis.set_major_formatter(ScalarFormatter())
            axes.xaxis.set_minor_formatter(NullFormatter())
            axes.set_xlabel("processor seconds, all benchmarks")
            axes.set_ylabel("accuracy less that of GDM, points")
            _save(figure, folder / f"leaderboard_time_{shade}.svg")

            beds = [bed for bed in BEDS if bed in set(table["bed"])]
            rows = -(-len(beds) // 2)
            height = 0.17 * len(set(held["method"])) + 0.6
            figure, grid = plt.subplots(
                rows, 2, figsize=(9, height * rows), squeeze=False
            )
            for axes in list(grid.flat)[len(beds) :]:
                axes.axis("off")
            for axes, bed in zip(grid.flat, beds, strict=False):
                protocol = BEDS[bed].protocols[-1]
                part = table[(table["bed"] == bed) & (table["protocol"] == protocol)]
                part = part.dropna(subset=["mean"]).sort_values("mean")
                axes.barh(
                    part["method"],
                    100 * part["mean"],
                    xerr=100 * part["se"],
                    color=[*map(_color, part["method"])],
                    error_kw={"ecolor": ink, "elinewidth": 0.8},
                )
                axes.axvline(100 * part["chance"].iloc[0], color=ink, ls=":")
                axes.set_ylim(-0.6, len(part) - 0.4)
                axes.set_title(f"{BEDS[bed].title}, {protocol}, %", fontsize=9)
                axes.tick_params(labelsize=8)
            figure.tight_layout()
            _save(figure, folder / f"leaderboard_benchmarks_{shade}.svg")


def _save(figure: Any, path: Path) -> None:
    figure.savefig(path, bbox_inches="tight", metadata={"Date": None})


def main() -> None:
    """Run what is missing, and write the tables, the figures and the page."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("-o", "--output", type=Path, default=Path("out"))
    parser.add_argument("--data", type=Path, default=ROOT / "../shared/data")
    parser.add_argument("--store", type=Path, default=ROOT / "out/leaderboard")
    parser.add_argument("--beds", nargs="+", default=list(BEDS))
    parser.add_argument("--methods", nargs="+")
    parser.add_argument("--limit", type=int, default=120)
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--page", action="store_true")
    parser.add_argument("--finished", action="store_true")
    asked = parser.parse_args()
    csv = asked.output / "leaderboard.csv"
    about = csv.with_suffix(".toml")
    if not asked.page:
        beds = asked.beds
        if asked.quick:
            beds = [b for b in beds if b in ("categories", "overlap", "brains")]
        names = asked.methods or list(methods(BEDS["categories"]))
        if asked.quick and not asked.methods:
            names = [n for n in names if n not in ("RobustSRM", "fugw:dense")]
        store = asked.store / ("quick" if asked.quick else "full")
        how: Any = {k: getattr(asked, k) for k in ("quick", "limit", "finished")}
        cells = list(run(store, asked.data, beds, names, **how))
        asked.output.mkdir(parents=True, exist_ok=True)
        to_frame(cells).to_csv(csv, index=False)
        ran = {c["method"] for c in cells}
        known = sorted(
            {n.partition(":")[0] for n in names if n in FOREIGN and n in ran}
        )
        packages = [f"{p} {version(p)}" for p in ("numpy", "scipy", *known)]
        about.write_text(
            'command = "python benchmarks/leaderboard.py -o docs/results"\n'
            f'date = "{datetime.now(UTC):%d %B %Y}"\nversion = "{__version__}"\n'
            f"limit = {asked.limit}\npackages = {json.dumps(packages)}\n"
            f'machine = "{platform.machine()}, {os.cpu_count()} cores, '
            f'Python {platform.python_version()}"\n',
            "utf-8",
        )
    import tomllib

    table = pd.read_csv(csv)
    figures(table, asked.output)
    if asked.output.resolve() == (ROOT / "docs/results").resolve():
        made = tomllib.loads(about.read_text("utf-8"))
        text = page(table, made)
        (ROOT / "docs/leaderboard.md").write_text(text, "utf-8")
    print(_scores(table[table["protocol"] == "held-out"]))


if __name__ == "__main__":
    main()
