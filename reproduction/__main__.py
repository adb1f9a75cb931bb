"""Run an experiment of the paper from a shell: ``python -m reproduction table2``."""

import argparse
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import reproduction
from brainweave import Study
from brainweave._core.exceptions import BrainweaveError, InputError
from brainweave.evaluation.evaluate import PROTOCOLS

TABLES = ("table2", "unaligned")
FIGURES = ("figure1", "figure2", *(f"figureS{i}" for i in range(3, 9)))
# columns of the tables that are printed; the files have all
SHOWN = (
    *("dataset", "study", "data", "method", "design", "curve", "protocol"),
    *("incompleteness", "energy", "mean", "std", "se", "beside_mean"),
    *("of_complete", "of_complete_se"),
    *("over_paper", "over_paper_se", "published", "chance", "p_value", "error"),
)


def main(words: Sequence[str] | None = None) -> int:
    """Run the experiment that the command line names, and print its table."""
    parser = _make_parser()
    options = vars(parser.parse_args(words))
    name, out, quiet = (options.pop(key) for key in ("experiment", "out", "quiet"))
    if options.pop("all_splits", False):
        for key in ("repeats", "n_permutations"):
            if options.pop(key) is not None:
                parser.error(f"--{key.replace('_', '-')} is no option of --all-splits")
        name = "raider_all_splits"
    given = {key: value for key, value in options.items() if value is not None}
    protocols = given.get("protocols")
    if protocols is not None:
        given["protocols"] = PROTOCOLS if protocols == "both" else (protocols,)
    try:
        if name in (*TABLES, *FIGURES):
            given["data"] = open_studies(options["data"] or [])
        function: Callable[..., Any] = getattr(reproduction, name)
        table = function(out=out, **given, progress=None if quiet else show_progress)
    except BrainweaveError as error:
        parser.error(str(error))
    except KeyboardInterrupt:
        print("Interrupted. The same command continues after the finished folds.")
        return 130
    columns = [column for column in SHOWN if column in table.columns]
    print(table[columns].to_string(index=False, max_colwidth=60))
    print(*sorted(out.glob(f"{name}*")), sep="\n")
    return 0


def show_progress(done: int, total: int, what: str) -> None:
    """Show how many steps are done, on one line of standard error."""
    end = "\n" if done == total else ""
    print(f"\r\x1b[K{done} of {total} {what}"[:100], end=end, file=sys.stderr)


def open_studies(entries: Sequence[str]) -> dict[str, Any] | None:
    """Return the studies that --data names, by the paper's names of the datasets."""
    folders: dict[str, list[Path]] = {}
    for entry in entries:
        name, equals, paths = entry.partition("=")
        if equals:
            folders[name] = [Path(path) for path in paths.split(",")]
            continue
        folder = Path(entry)
        inside = {n: [folder / n] for n in reproduction.datasets()}
        inside["Raider"] = [folder / "Raider.Movie", folder / "Raider.Image"]
        found = {n: ps for n, ps in inside.items() if all(p.is_dir() for p in ps)}
        if not found:
            raise InputError(
                f"--data {entry} has no folder with the name of a dataset: "
                f"{', '.join(inside)} (Raider.Movie and Raider.Image). Give such a "
                "folder, or DATASET=STUDY_FOLDER."
            )
        folders |= found
    opened = {name: tuple(map(Study.open, paths)) for name, paths in folders.items()}
    return {n: s if len(s) > 1 else s[0] for n, s in opened.items()} or None


def _make_parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m reproduction",
        description="Run an experiment of the GDM paper: a table, a figure, or one on "
        "real data. Finished folds are kept and not repeated.",
    )
    experiments = parser.add_subparsers(
        dest="experiment", required=True, metavar="EXPERIMENT"
    )

    def add(name: str, text: str) -> Callable[..., argparse.Action]:
        one = experiments.add_parser(name, help=text, description=text)
        one.add_argument(
            *("-o", "--output"),
            dest="out",
            type=Path,
            default=Path("results"),
            help="folder for tables and figures (default: results)",
        )
        one.add_argument("--random-state", type=int, help="seed (default: 0)")
        one.add_argument("-q", "--quiet", action="store_true", help="show no progress")
        return one.add_argument

    method = {"action": "append", "dest": "methods", "help": "a method; repeat it"}
    jobs: dict[str, Any] = {"type": int, "help": "fits at the same time"}
    quick: dict[str, Any] = {
        "action": "store_true",
        "default": None,
        "help": "small shapes, to try it out; the numbers mean nothing",
    }
    studies: dict[str, Any] = {
        "action": "append",
        "help": "real data: DATASET=STUDY_FOLDER (Raider=FILM,IMAGES), or a folder of "
        "study folders; what is not given is simulated in the same shape",
    }
    files: dict[str, Any] = {"type": Path, "help": "folder of the published files"}
    permutations: dict[str, Any] = {"type": int, "help": "permutations for p-values"}
    for name in TABLES:
        option = add(name, f"compare all methods: {name}")
        option("--data", **studies)
        option("--dataset", action="append", dest="datasets", help="repeat it")
        option("--method", **method)
        option("--protocol", dest="protocols", choices=[*PROTOCOLS, "both"])
        option("--n-permutations", **permutations)
        option("--quick", **quick)
        option("--n-jobs", **jobs)
    for name in FIGURES:
        option = add(name, f"draw {name}")
        option("--data", **studies)
        option("--dataset", action="append", dest="panels", help="repeat it")
        option("--protocol", choices=PROTOCOLS)
        option("--repeats", type=int, help="how often samples are removed anew")
        option("--quick", **quick)
        option("--n-jobs", **jobs)
    option = add("raider", "compare all methods on the images of Raider")
    option("--data", **files, required=True)
    option("--method", **method)
    option("--n-permutations", **permutations)
    option("--repeats", type=int, help="how often samples are removed anew")
    option("--all-splits", action="store_true", help="all 35 ways of halving the runs")
    option("--n-jobs", **jobs)
    option = add("pieman", "match time segments of a story with every method")
    option("--data", **files, required=True)
    option("--method", **method)
    option("--n-jobs", **jobs)
    option = add("registered", "match segments on registered brains, as they are")
    option("--data", **files, required=True)
    option("--n-jobs", **jobs)
    option = add("overlap", "align subjects who saw different parts of a film or story")
    option("--data", **files)
    option("--method", **method)
    option("--quick", **quick)
    return parser


if __name__ == "__main__":
    sys.exit(main())
