"""Keep measured results as small files, and write the pages that show them.

``make results`` runs what is missing in docs/results or was made by another version or
command, then writes the pages; ``make results-page`` writes them, and runs nothing. A
page has blocks ``<!-- result: NAME -->`` to ``<!-- end -->``; what is between is
written here, the rest by hand. What ``outdated`` says in the
file beside a table is shown with it, and the table is run again.
"""

import argparse
import os
import re
import shlex
import subprocess
import sys
import tomllib
from collections.abc import Callable
from datetime import UTC, date, datetime
from pathlib import Path
from shutil import copyfile

import pandas as pd
from packaging.version import Version
from scipy.stats import binomtest

from brainweave import __version__

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT))

from reproduction.output import (  # noqa: E402
    markdown,
    pieman_text,
    raider_text,
    splits_text,
    table_text,
)
from reproduction.overlap import overlap_text  # noqa: E402
from reproduction.registered import registered_text  # noqa: E402

STORED = ROOT / "docs/results"
PAGES = [
    ROOT / name
    for name in (
        *("docs/results.md", "docs/gdm.md", "docs/speed.md", "docs/error_rates.md"),
        *("README.md", "paper/paper.md"),
    )
]
SHAPES = ("DS105ROI", "DS011", "DS001", "DS232")
#: What is run for a result, after "python -m reproduction".
COMMANDS = {
    "raider": "raider --data DIR -o OUT --n-permutations 200",
    "pieman": "pieman --data DIR -o OUT",
    "raider_all_splits": "raider --data DIR -o OUT --all-splits",
    "registered": "registered --data DIR -o OUT",
    "overlap_simulated": "overlap -o OUT",
    "overlap_pieman": "overlap --data DIR -o OUT",
    "table2": " ".join(["table2 -o OUT", *(f"--dataset {name}" for name in SHAPES)]),
}
#: Tables beside the one of the result's own name; figures are kept in docs.
BESIDE = {"raider": ("raider_components", "raider_choices")}
FIGURES = {"raider": ("raider_energy.svg", "raider_incompleteness.svg")}
#: Shorter forms of a result that is stored under another name.
SHORT = {"peers_seconds": "peers"}
BLOCK = re.compile(r"(<!-- result: (\w+) -->\n).*?(<!-- end -->)", re.S)


def tables(name: str, folder: Path) -> list[pd.DataFrame]:
    """Read the tables of a result."""
    files = [folder / f"{n}.csv" for n in (name, *BESIDE.get(name, ()))]
    found = [pd.read_csv(file, dtype={"error": str}) for file in files]
    return [t.fillna({"error": ""}) if "error" in t else t for t in found]


def by_shape(table: pd.DataFrame) -> tuple[pd.DataFrame, list[str]]:
    """Return what bench_methods.py measured, shapes as text, and these in order."""
    table = table[table["kind"] == "paper"].copy()
    sizes = table[["subjects", "samples", "voxels"]].astype(str)
    table["shape"] = sizes.agg(" x ".join, axis=1)
    return table, list(dict.fromkeys(table["shape"]))


def peers_seconds_text(table: pd.DataFrame) -> str:
    """Write the processor seconds of methods that several packages have."""
    table, shapes = by_shape(table)
    wide = table.pivot_table("cpu", ["method", "package"], "shape", sort=False)
    packages = wide.reset_index().groupby("method")["package"].nunique()
    rows = [
        [*names, *("" if pd.isna(x) else f"{x:.2f}" for x in row[shapes])]
        for names, row in wide.iterrows()
        if packages[names[0]] > 1
    ]
    methods = list(dict.fromkeys(table["method"]))
    rows.sort(key=lambda row: methods.index(row[0]))
    return markdown(["method", "package", *shapes], rows)


def peers_text(table: pd.DataFrame) -> str:
    """Write what benchmarks/bench_methods.py measured, a column per shape."""
    table, shapes = by_shape(table)
    known = table.set_index(["method", "package", "shape"]).sort_index()
    methods = list(dict.fromkeys(table["method"]))
    pairs = dict.fromkeys(zip(table["method"], table["package"], strict=True))
    rows = sorted(pairs, key=lambda row: methods.index(row[0]))

    def cells(form: str) -> list[list[str]]:
        lines = []
        for row in rows:
            found = known.loc[row]
            texts = [
                form.format(**found.loc[s]) if s in found.index else "" for s in shapes
            ]
            lines.append([*row, *texts])
        return lines

    losses = []
    for (method, package, shape), theirs in known.iterrows():
        here = known.loc[(method, "brainweave", shape)]
        for name, form, margin in (
            *(("cpu", "{:.2f} s", 0), ("memory", "{:.0f} MB", 10)),
            ("accuracy", "{:.1f} %", 1),
        ):
            gap = here[name] - theirs[name]
            if (-gap if name == "accuracy" else gap) > margin:
                both = " to ".join(form.format(x[name]) for x in (here, theirs))
                losses.append(f"- {method}, {shape}, {package}: {both}")
    head = ["method", "package", *shapes]
    seconds = markdown(head, cells("{cpu:.2f}"))
    others = markdown(head, cells("{memory:.0f}, {accuracy:.1f}"))
    return (
        f"Processor seconds of fit and transform:\n\n{seconds}\nMemory in MB above "
        f"that of the data, and accuracy in per cent:\n\n{others}\nWhere brainweave "
        "loses, its number first (memory by 10 MB, accuracy by one per cent):\n\n"
        + ("\n".join(losses) or "- nowhere")
        + "\n"
    )


def error_rates_text(table: pd.DataFrame) -> str:
    """Write what benchmarks/error_rates.py counted, a column per number of subjects."""
    subjects = list(dict.fromkeys(table["n_subjects"]))

    def lines(part: pd.DataFrame, what: str) -> str:
        groups = part.groupby(["design", what], sort=False)
        rows = []
        for (design, value), found in groups:
            by_size = found.set_index("n_subjects")
            cells = [percent_with_interval(by_size.loc[n]) for n in subjects]
            rows.append([design, f"{value:g}", *cells])
        head = [f"{n} subjects" for n in subjects]
        return markdown(["design", what, *head], rows)

    noise = table[table["signal"] == 0].rename(columns={"ar": "autocorrelation"})
    drifting = noise["drift"] > 0
    pooled = []
    for name, part in (("no drift", noise[~drifting]), ("drifts", noise[drifting])):
        counts = part[["studies", "worked", "cannot tell"]].sum()
        pooled.append([name, percent_with_interval(counts)])
    return (
        "False alarms: percentage of studies of noise in which the check finds a "
        "shared space, with 95 % binomial intervals.\n\n"
        f"{lines(noise[~drifting], 'autocorrelation')}\n"
        "The same with linear and quadratic drifts that differ between subjects and "
        "are five times as large as the noise:\n\n"
        f"{lines(noise[drifting], 'autocorrelation')}\n"
        f"All designs together:\n\n{markdown(['noise', 'false alarms'], pooled)}\n"
        "Power: percentage of studies with a shared signal in which the check finds "
        "it. *Signal* is its standard deviation in a voxel. The noise has an "
        "autocorrelation of .5; it is the sum of independent noise in each voxel, with "
        "a standard deviation of 1, and of five patterns.\n\n"
        f"{lines(table[table['signal'] > 0], 'signal')}"
    )


def percent_with_interval(row: pd.Series) -> str:
    """Write a share of studies with its exact 95 % interval."""
    found, n = int(row["worked"]), int(row["studies"] - row["cannot tell"])
    if n == 0:
        return "cannot be tested"
    low, high = binomtest(found, n).proportion_ci(method="exact")
    return f"{100 * found / n:.1f} ({100 * low:.1f} to {100 * high:.1f})"


def place_text(table: pd.DataFrame) -> str:
    """Write what benchmarks/place.py measured, a table per condition."""
    keys = ["misregistration_mm", "own_topography"]
    parts = []
    for condition, part in table.groupby("condition", sort=False):
        methods = list(dict.fromkeys(part["method"]))
        groups = part.groupby([*keys, "method"])["accuracy"]
        means, errors = groups.mean(), groups.sem()
        used = part[part["method"] == "GDM"].groupby(keys)["used"].mean()
        rows = [
            [
                *(f"{value:g}" for value in cell),
                *(mean_with_error(means[*cell, m], errors[*cell, m]) for m in methods),
                f"{100 * used[cell]:.0f}",
            ]
            for cell in dict.fromkeys(part[keys].itertuples(index=False, name=None))
        ]
        head = ["mm", "own", *methods, "GDM uses place"]
        parts.append(f"{condition.capitalize()}:\n\n{markdown(head, rows)}\n")
    n = table["seed"].nunique()
    return (
        "\n".join(parts)
        + f"\nShare of segments found in per cent, mean ± standard error over {n} "
        "simulated studies; mm is the misregistration, own the share of each subject's "
        "topography that is its own, and the last column the share of fits in which "
        "GDM chose to use places. Where it does not, it maps nobody zero-shot; those "
        f"studies are left out of its mean.\n\n{place_losses(table)}"
    )


def mean_with_error(mean: float, error: float) -> str:
    """Write a share in per cent with its standard error, where there are several."""
    if pd.isna(mean):
        return ""
    return f"{100 * mean:.1f}" + ("" if pd.isna(error) else f" ± {100 * error:.1f}")


def place_losses(table: pd.DataFrame) -> str:
    """Say where GDM with places is below the better of its two alternatives."""
    keys = ["condition", "misregistration_mm", "own_topography"]
    losses = []
    for where, part in table.groupby(keys, sort=False):
        wide = part.pivot_table("accuracy", "seed", "method")
        for name in ("GDM", "GDM, common voxels"):
            others = [f"{name}, place=None", "no alignment"]
            known = [m for m in others if m in wide]
            if name not in wide or not known:
                continue
            better = wide[wide[known].mean().idxmax()]
            gaps = (100 * (better - wide[name])).dropna()
            if gaps.mean() > 2 * gaps.sem():
                cell = f"{where[0]}, {where[1]:g} mm, own {where[2]:g}"
                losses.append(
                    f"- {name}, {cell}: {gaps.mean():.1f} ± {gaps.sem():.1f} points "
                    f"below *{better.name}*"
                )
    told = (
        "Where GDM is below the better of no alignment and GDM without place by more "
        "than two standard errors of the difference:"
    )
    return f"{told}\n\n" + ("\n".join(losses) or "- nowhere") + "\n"


def default_speed_text(table: pd.DataFrame) -> str:
    """Write what benchmarks/bench_default.py measured, a row per fit."""
    stages = list(table.columns[7:])
    rows = []
    for row in table.to_dict("records"):
        shape = f"{row['subjects']} x {row['samples']} x {row['voxels']}"
        kind = "labels" if row["categories"] else "film"
        shares = [f"{100 * row[s]:.0f}" if row[s] else "" for s in stages]
        numbers = [f"{row['seconds']:.2f}", f"{row['ratio']:.2f}"]
        rows.append([f"{shape}, {kind}", row["model"], *numbers, *shares])
    head = ["shape", "model", "seconds", "x SRM", *(f"{s}, %" for s in stages)]
    return markdown(head, rows)


TEXTS: dict[str, Callable[..., str]] = {
    "raider": raider_text,
    "pieman": pieman_text,
    "raider_all_splits": splits_text,
    "registered": registered_text,
    "overlap_simulated": overlap_text,
    "overlap_pieman": overlap_text,
    "table2": lambda table: table_text(table, published=True),
    "peers": peers_text,
    "peers_seconds": peers_seconds_text,
    "default_speed": default_speed_text,
    "error_rates": error_rates_text,
    "place": place_text,
}


def block(name: str, folder: Path) -> str:
    """Write the command of a result, when it was run, and its tables."""
    stored = SHORT.get(name, name)
    made = tomllib.loads((folder / f"{stored}.toml").read_text("utf-8"))
    day: date = made["date"]
    told = f"{day.day} {day:%B %Y}, version {made['version']}, seed {made['seed']}."
    told += "".join(f" {made[key]}." for key in ("machine", "versions") if key in made)
    told = " ".join([told, *made.get("outdated", "").split()])
    text = TEXTS[name](*tables(stored, folder))
    return f"```\n{made['command']}\n```\n\nRun on {told}\n\n{text}"


def rendered(page: str, folder: Path = STORED) -> str:
    """Return a page with what is stored in its blocks."""
    return BLOCK.sub(lambda m: f"{m[1]}\n{block(m[2], folder)}\n{m[3]}", page)


def write_pages() -> None:
    """Write all pages anew."""
    for page in PAGES:
        page.write_text(rendered(page.read_text("utf-8")), "utf-8")


def keep(name: str, folder: Path, seed: int = 0) -> None:
    """Keep the tables that a command wrote, and how they were made."""
    STORED.mkdir(exist_ok=True)
    for own in (name, *BESIDE.get(name, ())):
        table = pd.read_csv(folder / f"{own}.csv")
        table = table.drop(columns="seconds", errors="ignore")  # never the same twice
        text = table.to_csv(index=False, float_format="%.8g", lineterminator="\n")
        (STORED / f"{own}.csv").write_text(text, "utf-8")
    for figure in FIGURES.get(name, ()):
        copyfile(folder / figure, ROOT / "docs" / figure)
    written = datetime.fromtimestamp((folder / f"{name}.csv").stat().st_mtime, UTC)
    lines = [
        f'command = "python -m reproduction {COMMANDS[name]}"',
        f"date = {written.date()}",
        f'version = "{release()}"',
        f"seed = {seed}",
    ]
    (STORED / f"{name}.toml").write_text("\n".join(lines) + "\n", "utf-8")


def release() -> str:
    """Return the release that this version belongs to: 0.2.0 for 0.2.0.dev12."""
    return Version(__version__).base_version


def is_stale(name: str) -> bool:
    """Whether a result is missing, or of another version or command."""
    try:
        made = tomllib.loads((STORED / f"{name}.toml").read_text("utf-8"))
        tables(name, STORED)
    except FileNotFoundError:
        return True
    now = f"python -m reproduction {COMMANDS[name]}", release()
    return "outdated" in made or (made["command"], made["version"]) != now


def run(name: str, data: Path | None, out: Path) -> None:
    """Run the command of a result; what a stopped run has finished is not repeated."""
    words = shlex.split(COMMANDS[name])
    if "DIR" in words and data is None:
        print(f"{name}: not run, no data; set BRAINWEAVE_DATA (docs/reproduction.md).")
        return
    real = {"DIR": str(data), "OUT": str(out)}
    words = [real.get(word, word) for word in words]
    subprocess.run([sys.executable, "-m", "reproduction", *words], cwd=ROOT, check=True)
    keep(name, out)


def find_data() -> Path | None:
    """Return the folder of the real data, as the tests find it."""
    given = os.environ.get("BRAINWEAVE_DATA")
    places = [Path(given)] if given else [ROOT.parent / "shared/data"]
    return next((place for place in places if place.is_dir()), None)


def main() -> None:
    """Run what is stale, and write the pages."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*", help="results to run, stale or not")
    parser.add_argument("--page", action="store_true", help="run nothing")
    parser.add_argument("--from", dest="folder", type=Path, help="keep a finished run")
    asked = parser.parse_args()
    if unknown := [name for name in asked.names if name not in COMMANDS]:
        parser.error(f"no result {unknown[0]!r}; there are {', '.join(COMMANDS)}")
    for name in asked.names or filter(is_stale, COMMANDS):
        if asked.folder:
            keep(name, asked.folder)
        elif not asked.page:
            run(name, find_data(), ROOT / "out/results")
    write_pages()


if __name__ == "__main__":
    main()
