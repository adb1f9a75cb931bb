"""The command that runs the paper's experiments: reproduce."""

import inspect
from pathlib import Path
from typing import Any

from brainweave.cli import files
from brainweave.cli.cluster import Engine
from brainweave.cli.console import Console, UsageError
from brainweave.cli.options import argument, command, option
from brainweave.cli.scoring import PROTOCOLS

TABLES = ("table2", "unaligned")
FIGURES = ("figure1", "figure2", *(f"figureS{i}" for i in range(3, 9)))
REAL = ("raider", "pieman")
OVERLAP = "overlap"  # studies that overlap in part, simulated or the story
# columns of the tables that are printed; the files have all
SHOWN = (
    *("dataset", "study", "data", "method", "design", "curve", "protocol"),
    *("incompleteness", "energy", "mean", "std", "se", "beside_mean"),
    *("of_complete", "of_complete_se"),
    *("over_paper", "over_paper_se", "published", "chance", "p_value", "error"),
)
ALL = (*TABLES, *FIGURES, *REAL, OVERLAP)
# what options are called in Python, where that is not their own name
IN_PYTHON = {
    "protocol": ("protocols", "protocol"),
    "dataset": ("datasets", "panels"),
    "method": ("methods",),
}


@command(engine=Engine)
def reproduce(
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
        default=False,
    ),
    quick: bool = option(
        "Small shapes, to try it out; no real numbers.", default=False
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
    name = names[what.lower()]
    splits = all_splits and name == "raider"
    experiment = "raider_all_splits" if splits else name
    function = getattr(paper, experiment)
    documented = paper.table2 if name == "unaligned" else function
    parameters = inspect.signature(documented).parameters
    given = {
        "all_splits": all_splits and not splits,
        "dataset": dataset,
        "method": method,
        "n_permutations": n_permutations,
        "repeats": repeats,
        "quick": quick,
        "protocol": None if protocol == "joint" else protocol,
    }
    arguments: dict[str, Any] = {"random_state": random_state}
    if "n_jobs" in parameters:
        arguments["n_jobs"] = n_jobs
    for option_name, value in given.items():
        if value is None or value is False or value == []:
            continue
        names_in_python = IN_PYTHON.get(option_name, (option_name,))
        parameter = next((n for n in names_in_python if n in parameters), None)
        if parameter is None:
            where = f"{name} --all-splits" if splits else name
            shown = option_name.replace("_", "-")
            raise UsageError(f"--{shown} is no option of reproduce {where}.")
        arguments[parameter] = value
    if protocol != "joint":
        arguments |= _parse_protocol(protocol, several="protocols" in parameters)
    paths = [output]
    if name in REAL:
        paths = [_data_folder(data, name), output]
    elif name == OVERLAP:
        arguments["data"] = _data_folder(data, name) if data else None
    else:
        arguments["data"] = _open_studies(data)
    files.prepare_folder(output)
    console.resume_hint = "Run the same command again: finished cells are kept."
    with console.progress(f"Running {experiment}") as progress:
        table = function(*paths, **arguments, progress=progress)
    options = files.used_options(console, what=name)
    files.write_config(output / f"{experiment}.toml", "reproduce", options)
    written = sorted(p for p in output.glob(f"{experiment}*") if p.suffix != ".toml")
    columns = [column for column in SHOWN if column in table.columns]
    console.result(table[columns].to_string(index=False, max_colwidth=60))
    console.result("\n".join(map(str, written)))


def _parse_protocol(given: str, *, several: bool) -> dict[str, Any]:
    """Return the option of a table, which takes several protocols, or of a figure."""
    if given not in PROTOCOLS and not (several and given == "both"):
        both = ", or both" if several else " for a figure"
        raise UsageError(f"--protocol must be joint or held-out{both}; got {given!r}.")
    if not several:
        return {"protocol": given}
    return {"protocols": PROTOCOLS if given == "both" else (given,)}


def _data_folder(data: list[str] | None, name: str) -> Path:
    if not data or len(data) != 1:
        raise UsageError(f"reproduce {name} needs --data FOLDER, that of its files.")
    folder = Path(data[0])
    if not folder.is_dir():
        raise UsageError(f"There is no folder {data[0]!r}. Check --data.")
    return folder


def _open_studies(data: list[str] | None) -> dict[str, Any] | None:
    """Return the studies given by --data, by the names of the paper's datasets."""
    from brainweave.paper import datasets

    folders: dict[str, list[Path]] = {}
    for entry in data or []:
        name, equals, paths = entry.partition("=")
        folder = Path(entry)
        if equals:
            folders[name] = [Path(path) for path in paths.split(",")]
        elif folder.is_dir():
            parts = {n: [folder / n] for n in datasets()}
            parts["Raider"] = [folder / "Raider.Movie", folder / "Raider.Image"]
            found = {n: ps for n, ps in parts.items() if all(p.is_dir() for p in ps)}
            if not found:
                raise UsageError(
                    f"{entry!r} has no folder with the name of a dataset: "
                    f"{', '.join(datasets())} (Raider.Movie and Raider.Image)."
                )
            folders |= found
        else:
            raise UsageError(
                "--data takes DATASET=STUDY_FOLDER, or a folder of study folders; got "
                f"{entry!r}."
            )
    opened = {name: tuple(map(files.open_study, ps)) for name, ps in folders.items()}
    return {n: s if len(s) > 1 else s[0] for n, s in opened.items()} or None
