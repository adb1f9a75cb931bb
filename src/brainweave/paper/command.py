"""The experiments from a shell."""

import argparse
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from brainweave.exceptions import BrainweaveError
from brainweave.paper import experiments, real, settings
from brainweave.paper.methods import METHODS
from brainweave.study.study import Study

__all__ = ["main"]


def main(arguments: Sequence[str] | None = None) -> int:
    """Run ``python -m brainweave.paper``; gives the exit status."""
    parser = _parser()
    options = parser.parse_args(arguments)
    try:
        with _progress(quiet=options.quiet) as progress:
            text = _run(options, progress)
    except (BrainweaveError, OSError, TypeError) as error:
        parser.exit(2, f"{parser.prog}: {error}\n")
    except KeyboardInterrupt:
        parser.exit(130, "Stopped. The same command goes on where it stopped.\n")
    sys.stdout.write(text)
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m brainweave.paper",
        description="Reproduce the experiments of the GDM paper (AAAI 2020).",
        epilog="A run that was stopped goes on where it stopped.",
    )
    parser.add_argument(
        "what",
        choices=["table2", "unaligned", *settings.figures(), "raider", "pieman"],
        help="the experiment",
    )
    parser.add_argument("--out", type=Path, required=True, help="folder of the results")
    parser.add_argument(
        "--data",
        type=Path,
        help="raider, pieman: folder of the files. Else: folder with a saved study per "
        "dataset (DS001, ..., Raider.Movie, Raider.Image); what is not there is "
        "simulated",
    )
    parser.add_argument(
        "--datasets",
        nargs="+",
        metavar="NAME",
        help=f"{', '.join(settings.datasets())}",
    )
    parser.add_argument("--methods", nargs="+", metavar="NAME", help=", ".join(METHODS))
    parser.add_argument(
        "--protocols", nargs="+", default=["joint"], choices=["joint", "held-out"]
    )
    parser.add_argument("--permutations", type=int, metavar="N", help="for p-values")
    parser.add_argument("--repeats", type=int, metavar="N", help="of what is missing")
    parser.add_argument("--quick", action="store_true", help="small simulated shapes")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--jobs", type=int, metavar="N", help="default one per core")
    parser.add_argument("--quiet", action="store_true", help="no progress")
    return parser


def _run(options: argparse.Namespace, progress: Any) -> str:
    common = {
        "random_state": options.seed,
        "n_jobs": options.jobs,
        "progress": progress,
    }
    out, what = options.out, options.what
    optional = {"n_permutations": options.permutations, "repeats": options.repeats}
    given = {k: v for k, v in optional.items() if v is not None}
    if what in ("raider", "pieman"):
        if options.data is None:
            raise BrainweaveError(f"{what} needs --data, the folder of its files.")
        common["methods"] = options.methods
        if what == "raider":
            real.raider(options.data, out, **given, **common)
        else:
            real.pieman(options.data, out, **common)
        return (out / f"{what}.md").read_text("utf-8")
    common |= {"quick": options.quick, "data": _studies(options.data)}
    if what in ("table2", "unaligned"):
        given.pop("repeats", None)
        function = getattr(experiments, what)
        function(
            out,
            datasets=options.datasets,
            methods=options.methods,
            protocols=options.protocols,
            **given,
            **common,
        )
        return (out / f"{what}.md").read_text("utf-8")
    given.pop("n_permutations", None)
    table = experiments.figure(
        what,
        out,
        panels=options.datasets,
        protocol=options.protocols[0],
        **given,
        **common,
    )
    shown = table.drop(columns=["figure", "error"]).to_string(index=False, na_rep="")
    reasons = [e for e in table["error"].dropna().unique() if e]
    why = "".join(f"Missing: {reason}\n" for reason in reasons)
    return f"{shown}\n{why}\nDrawn in {out / what}.svg\n"


def _studies(folder: Path | None) -> dict[str, Any]:
    """Open the saved studies in a folder, by the names of the paper's datasets."""
    if folder is None:
        return {}
    if not folder.is_dir():
        raise BrainweaveError(f"There is no folder {str(folder)!r}.")
    found: dict[str, Any] = {}
    for name in settings.datasets():
        names = ["Raider.Movie", "Raider.Image"] if name == "Raider" else [name]
        if all((folder / n).is_dir() for n in names):
            studies = [Study.open(folder / n) for n in names]
            found[name] = tuple(studies) if len(studies) == 2 else studies[0]
    return found


@contextmanager
def _progress(*, quiet: bool) -> Iterator[Callable[[int, int, str], None] | None]:
    """Give a callable that shows how far a run is: a bar, or lines in a log."""
    if quiet:
        yield None
        return
    from rich.console import Console
    from rich.progress import (
        BarColumn,
        MofNCompleteColumn,
        Progress,
        TextColumn,
        TimeElapsedColumn,
    )

    console = Console(stderr=True)
    if not console.is_terminal:
        yield _lines
        return
    columns = (BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with Progress(*columns, TextColumn("{task.description}"), console=console) as bar:
        task = bar.add_task("")

        def show(done: int, total: int, text: str) -> None:
            bar.update(task, completed=done, total=total, description=text)

        yield show


def _lines(done: int, total: int, text: str) -> None:
    if done == total or done % max(1, total // 20) == 0:
        sys.stderr.write(f"{done} of {total} cells  {text}\n")
        sys.stderr.flush()
