"""The command that runs the paper's experiments: reproduce."""

from pathlib import Path
from typing import Any

import typer

from brainweave.cli.config import effective, write_config
from brainweave.cli.console import Console
from brainweave.cli.errors import UsageError, resume_with
from brainweave.cli.options import Engine, argument, command, option
from brainweave.cli.scoring import PROTOCOLS
from brainweave.cli.studies import open_study, prepare_folder

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


@command(engine=Engine)
def reproduce(
    context: typer.Context,
    what: str = argument(f"One of {', '.join(ALL)}."),
    *,
    output: Path = option(
        "Folder for tables and figures.", "--output", "-o", default=Path("results")
    ),
    data: list[str] | None = option(
        "Real data, DATASET=STUDY_FOLDER (Raider=FILM,IMAGES), may be repeated, or a "
        "folder of study folders (DS001, ..., Raider.Movie and Raider.Image); what is "
        "not given is simulated in the same shape. For raider, pieman and overlap: the "
        "folder of the published files."
    ),
    dataset: list[str] | None = option(
        "Datasets (panels) to run; all by default. May be repeated."
    ),
    method: list[str] | None = option(
        "Methods, by the paper's names (not for figures); repeat it."
    ),
    protocol: str = option(
        "joint, the paper's; held-out; or both (tables).", default="joint"
    ),
    n_permutations: int | None = option("Permutations for p-values (tables, raider)."),
    repeats: int | None = option(
        "How often samples are removed anew (figures, raider)."
    ),
    all_splits: bool = option(
        "raider: all 35 ways of halving the runs, GDM with each idea added.",
        "--all-splits",
        default=False,
    ),
    quick: bool = option(
        "Small shapes, to try it out; no real numbers.", "--quick", default=False
    ),
    random_state: int = option("Seed.", default=0),
    n_jobs: int | None = option("Fits at the same time."),
    console: Console,
) -> None:
    """Run an experiment of the paper again: a table, a figure, or real data."""
    from brainweave import paper

    names = {name.lower(): name for name in ALL}
    if what.lower() not in names:
        raise UsageError(f"There is no {what!r}; choose one of {', '.join(ALL)}.")
    chosen = named = names[what.lower()]
    numbers = {"n_permutations": n_permutations, "repeats": repeats}
    options: dict[str, Any] = {"random_state": random_state, "n_jobs": n_jobs}
    places = [output]
    if chosen != "raider":
        _refuse(chosen, all_splits=all_splits)
    if chosen in TABLES:
        _refuse(chosen, repeats=repeats)
        options |= {
            "quick": quick,
            "data": _studies(data),
            "datasets": dataset or None,
            "methods": method or None,
            "protocols": _protocols(protocol, several=True),
            "n_permutations": n_permutations or 0,
        }
    elif chosen in FIGURES:
        _refuse(chosen, method=method, n_permutations=n_permutations)
        options |= {
            "quick": quick,
            "data": _studies(data),
            "panels": dataset or None,
            "protocol": _protocols(protocol, several=False)[0],
            "repeats": repeats or 1,
        }
    elif chosen == OVERLAP:
        _refuse(chosen, dataset=dataset, **numbers)
        options = {"random_state": random_state, "quick": quick}
        options |= {"methods": method or None}
        options["data"] = _folder(data, chosen) if data else None
    else:
        _refuse(chosen, dataset=dataset, quick=quick)
        if protocol != "joint":
            raise UsageError(f"{chosen} always runs both protocols.")
        if chosen == "pieman" or all_splits:
            _refuse("raider --all-splits" if all_splits else chosen, **numbers)
        options |= {"methods": method or None}
        options |= {k: v for k, v in numbers.items() if v is not None}
        chosen = "raider_all_splits" if all_splits else chosen
        places = [_folder(data, named), output]
    prepare_folder(output)
    resume_with("Run the same command again: finished cells are kept.")
    with console.counted(f"Running {chosen}") as progress:
        table = getattr(paper, chosen)(*places, **options, progress=progress)
    used = effective(context, what=named)
    write_config(output / f"{chosen}.toml", "reproduce", used)
    made = sorted(p for p in output.glob(f"{chosen}*") if p.suffix != ".toml")
    shown = [column for column in SHOWN if column in table.columns]
    console.result(table[shown].to_string(index=False, max_colwidth=60))
    console.result("\n".join(map(str, made)))


def _protocols(given: str, *, several: bool) -> tuple[str, ...]:
    if given == "both" and several:
        return PROTOCOLS
    if given not in PROTOCOLS:
        both = ", or both" if several else " for a figure"
        raise UsageError(f"--protocol must be joint or held-out{both}; got {given!r}.")
    return (given,)


def _refuse(name: str, **options: Any) -> None:
    for given, value in options.items():
        if value:
            shown = given.replace("_", "-")
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
        studies[name] = _opened([Path(path) for path in paths.split(",")])
    return studies or None


def _opened(paths: list[Path]) -> Any:
    opened = [open_study(path) for path in paths]
    return opened[0] if len(opened) == 1 else tuple(opened)


def _studies_in(folder: Path) -> dict[str, Any]:
    """Open the studies of a folder that have the names of the paper's datasets."""
    from brainweave.paper import datasets

    found: dict[str, Any] = {}
    for name in datasets():
        names = ["Raider.Movie", "Raider.Image"] if name == "Raider" else [name]
        if all((folder / n).is_dir() for n in names):
            found[name] = _opened([folder / n for n in names])
    if not found:
        raise UsageError(
            f"{str(folder)!r} has no folder with the name of a dataset: "
            f"{', '.join(datasets())} (Raider.Movie and Raider.Image)."
        )
    return found
