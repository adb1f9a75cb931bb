"""The command that runs the paper's experiments: reproduce."""

from pathlib import Path
from typing import Annotated, Any

import typer

from brainweave.cli.config import effective, write_config
from brainweave.cli.console import Console
from brainweave.cli.errors import UsageError, resume_with
from brainweave.cli.methods import open_study
from brainweave.cli.options import Running, bundled
from brainweave.cli.scoring import PROTOCOLS, prepare_folder

TABLES = ("table2", "unaligned")
FIGURES = ("figure1", "figure2", *(f"figureS{i}" for i in range(3, 9)))
REAL = ("raider", "pieman")
OVERLAP = "overlap"  # studies that overlap in part, simulated or the story
# of all that is in the files, what is printed
SHOWN = (
    *("dataset", "study", "data", "method", "design", "curve", "protocol"),
    *("incompleteness", "energy", "mean", "std", "se", "of_complete"),
    *("over_paper", "over_paper_se"),
    *("published", "chance", "p_value", "error"),
)
ALL = (*TABLES, *FIGURES, *REAL, OVERLAP)


@bundled(running=Running)
def reproduce(
    context: typer.Context,
    what: Annotated[str, typer.Argument(help=f"One of {', '.join(ALL)}.")],
    *,
    output: Annotated[
        Path, typer.Option("--output", "-o", help="Folder for tables and figures.")
    ] = Path("results"),
    data: Annotated[
        list[str] | None,
        typer.Option(
            help="Real data, DATASET=STUDY_FOLDER (Raider=FILM,IMAGES), may be "
            "repeated, or a folder of study folders (DS001, ..., Raider.Movie and "
            "Raider.Image); what is not given is simulated in the same shape. For "
            "raider, pieman and overlap: the folder of the published files."
        ),
    ] = None,
    dataset: Annotated[
        list[str] | None,
        typer.Option(help="Datasets (panels) to run; all by default. May be repeated."),
    ] = None,
    method: Annotated[
        list[str] | None,
        typer.Option(
            help="Methods, by the paper's names (not for figures); repeat it."
        ),
    ] = None,
    protocol: Annotated[
        str, typer.Option(help="joint, the paper's; held-out; or both (tables).")
    ] = "joint",
    n_permutations: Annotated[
        int | None, typer.Option(help="Permutations for p-values (tables, raider).")
    ] = None,
    repeats: Annotated[
        int | None,
        typer.Option(help="How often samples are removed anew (figures, raider)."),
    ] = None,
    all_splits: Annotated[
        bool,
        typer.Option(
            "--all-splits",
            help="raider: all 35 ways of halving the runs, GDM with each idea added.",
        ),
    ] = False,
    quick: Annotated[
        bool,
        typer.Option("--quick", help="Small shapes, to try it out; no real numbers."),
    ] = False,
    random_state: Annotated[int, typer.Option(help="Seed.")] = 0,
    n_jobs: Annotated[int | None, typer.Option(help="Fits at the same time.")] = None,
    running: Running,
) -> None:
    """Run an experiment of the paper again: a table, a figure, or real data."""
    names = {name.lower(): name for name in ALL}
    if what.lower() not in names:
        raise UsageError(f"There is no {what!r}; choose one of {', '.join(ALL)}.")
    chosen = names[what.lower()]
    options: dict[str, Any] = {"random_state": random_state, "n_jobs": n_jobs}
    if chosen in REAL:
        _refuse(chosen, dataset=dataset, quick=quick or None)
        options["methods"] = method or None
        if protocol != "joint":
            raise UsageError(f"{chosen} always runs both protocols.")
    elif chosen == OVERLAP:
        _refuse(chosen, dataset=dataset)
        options = {"random_state": random_state, "quick": quick}
        options |= {"methods": method or None}
        options["data"] = _folder(data, chosen) if data else None
    else:
        options |= {"quick": quick, "data": _studies(data)}
    if chosen in TABLES:
        _refuse(chosen, repeats=repeats)
        options |= {
            "datasets": dataset or None,
            "methods": method or None,
            "protocols": _protocols(protocol, several=True),
            "n_permutations": n_permutations or 0,
        }
    elif chosen in FIGURES:
        _refuse(chosen, method=method, n_permutations=n_permutations)
        options |= {
            "panels": dataset or None,
            "protocol": _protocols(protocol, several=False)[0],
            "repeats": repeats or 1,
        }
    elif chosen == "raider":
        if all_splits:
            chosen = "raider_all_splits"
            alone = {"n_permutations": n_permutations, "repeats": repeats}
            _refuse("raider --all-splits", **alone)
        given = {"n_permutations": n_permutations, "repeats": repeats}
        options |= {k: v for k, v in given.items() if v is not None}
    else:
        _refuse(chosen, n_permutations=n_permutations, repeats=repeats)
    if all_splits and chosen != "raider_all_splits":
        _refuse(chosen, all_splits=True)
    real = chosen in (*REAL, "raider_all_splits")
    folder = _folder(data, what.lower()) if real else None
    prepare_folder(output)
    resume_with("Run the same command again: finished cells are kept.")
    console = Console(running.quiet)
    with console.collect_warnings():
        with console.counted(f"Running {chosen}") as progress:
            table = _run(chosen, output, folder, {**options, "progress": progress})
        used = effective(context, what=names[what.lower()])
        write_config(output / f"{chosen}.toml", "reproduce", used)
    made = sorted(p for p in output.glob(f"{chosen}*") if p.suffix != ".toml")
    shown = [column for column in SHOWN if column in table.columns]
    console.result(table[shown].to_string(index=False, max_colwidth=60))
    console.result("\n".join(map(str, made)))


def _run(name: str, output: Path, folder: Path | None, options: dict[str, Any]) -> Any:
    from brainweave import paper

    experiment = getattr(paper, name)
    if folder is not None:
        return experiment(folder, output, **options)
    return experiment(output, **options)


def _protocols(given: str, *, several: bool) -> tuple[str, ...]:
    if given == "both" and several:
        return PROTOCOLS
    if given not in PROTOCOLS:
        both = ", or both" if several else " for a figure"
        raise UsageError(f"--protocol must be joint or held-out{both}; got {given!r}.")
    return (given,)


def _refuse(name: str, **options: Any) -> None:
    for option, value in options.items():
        if value:
            shown = option.replace("_", "-")
            raise UsageError(f"--{shown} is no option of reproduce {name}.")


def _folder(data: list[str] | None, name: str) -> Path:
    if not data or len(data) != 1:
        raise UsageError(f"reproduce {name} needs --data FOLDER, that of its files.")
    folder = Path(data[0])
    if not folder.is_dir():
        raise UsageError(f"There is no folder {data[0]!r}. Check --data.")
    return folder


def _studies(data: list[str] | None) -> dict[str, Any] | None:
    """Open the studies that were given by the names of the paper's datasets."""
    studies: dict[str, Any] = {}
    for entry in data or []:
        name, equals, paths = entry.partition("=")
        if not equals and Path(entry).is_dir():
            studies |= _studies_in(Path(entry))
            continue
        if not equals:
            raise UsageError(
                "--data takes DATASET=STUDY_FOLDER, or a folder of study folders; got "
                f"{entry!r}."
            )
        opened = [open_study(Path(path)) for path in paths.split(",")]
        studies[name] = opened[0] if len(opened) == 1 else tuple(opened)
    return studies or None


def _studies_in(folder: Path) -> dict[str, Any]:
    """Open the studies of a folder that have the names of the paper's datasets."""
    from brainweave.paper import datasets

    found: dict[str, Any] = {}
    for name in datasets():
        names = ["Raider.Movie", "Raider.Image"] if name == "Raider" else [name]
        if all((folder / n).is_dir() for n in names):
            opened = [open_study(folder / n) for n in names]
            found[name] = tuple(opened) if len(opened) == 2 else opened[0]
    if not found:
        raise UsageError(
            f"{str(folder)!r} has no folder with the name of a dataset: "
            f"{', '.join(datasets())} (Raider.Movie and Raider.Image)."
        )
    return found
