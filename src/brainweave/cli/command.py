"""How commands are declared and run: shared options, configuration files, clusters.

Commands are plain Typer functions with a console, ``context.obj``; options that several
commands share are the aliases below.
"""

import tomllib
from collections.abc import Iterable, Mapping
from contextlib import ExitStack
from difflib import get_close_matches
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import typer
from typer.core import TyperCommand

from brainweave.cli.console import Console, UsageError

# options that a configuration file cannot set
NOT_IN_FILES = {"config", "quiet", "help"}
# options that no result depends on, so that they are not written beside it
NOT_WRITTEN = NOT_IN_FILES | {"dask"}
# the table of a configuration that records how a result was made; it holds no options
MADE = "made"


class Command(TyperCommand):
    """A command that runs with a console, warnings of one line, and a cluster."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Read the options; BIDS Apps take several values after a label option."""
        return super().parse_args(
            ctx, spread_labels(args) if self.name == "run" else args
        )

    def invoke(self, ctx: Any) -> Any:
        """Run the function."""
        params = ctx.params
        if params.get("n_jobs") == 0:
            raise UsageError("--n-jobs must be a number other than 0; got 0.")
        given = [n for n in params if ctx.get_parameter_source(n).name != "DEFAULT"]
        quiet = params.get("quiet", False)
        ctx.obj = console = Console(quiet, str(ctx.info_name), params, given)
        console.make_current()
        with console.collect_warnings(), ExitStack() as stack:
            if params.get("dask") is not None:
                import joblib

                from brainweave._core.workers import dask_client

                connected = dask_client(params["dask"], note=console.note)
                client = stack.enter_context(connected)
                dask = joblib.parallel_config(backend="dask", client=client)
                stack.enter_context(dask)
            return super().invoke(ctx)


LABEL_OPTIONS = {"--participant-label", "--session-label"}


def spread_labels(arguments: list[str]) -> list[str]:
    """Repeat a label option before each of its values, once the level is given.

    Examples
    --------
    >>> spread_labels("in out group --participant-label 01 02 -q".split())[3:]
    ['--participant-label', '01', '--participant-label', '02', '-q']
    """
    out: list[str] = []
    label = ""
    for argument in arguments:
        if argument.startswith("-"):
            is_label = argument.replace("_", "-") in LABEL_OPTIONS
            label = argument if is_label and {"participant", "group"} & set(out) else ""
        elif label and out[-1] != label:
            out.append(label)
        out.append(argument)
    return out


# -- configuration files ---------------------------------------------------------------


def read_config(context: Any, path: Path | None) -> Path | None:
    """Take the defaults of a command's options from a TOML file.

    The file has a table of options for each command. The command line wins.
    """
    if path is None or context.resilient_parsing:
        return path
    command, commands = context.info_name, context.parent.command.commands
    try:
        document = tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise UsageError(f"{str(path)!r} cannot be read ({error.strerror}).") from None
    except (ValueError, RecursionError) as error:
        raise UsageError(f"{str(path)!r} is not valid TOML: {error}.") from None
    for name, table in document.items():
        if name not in {*commands, MADE} or not isinstance(table, dict):
            raise UsageError(
                f"{str(path)!r} has {name!r}, which is not a table of a command. "
                f"Options of {command} follow a line [{command}]."
            )
    own = {k.replace("-", "_"): v for k, v in document.get(command, {}).items()}
    known = {p.name for p in commands[command].params} - NOT_IN_FILES
    message = f"{str(path)!r} has '{{}}', which is not an option of {command}"
    refuse_unknown(own, known, message)
    context.default_map = own
    return path


# -- shared options --------------------------------------------------------------------


RUN, METHOD, READ, SCORE = "How to run", "Method", "How to read BIDS data", "Evaluation"


def option(text: str, *names: str, panel: str | None = None, **settings: Any) -> Any:
    """Declare an option by its help, its names and its panel."""
    return typer.Option(*names, help=text, rich_help_panel=panel, **settings)


how, method, read, score = (
    partial(option, panel=panel) for panel in (RUN, METHOD, READ, SCORE)
)

StudyFolder = Annotated[Path, typer.Argument(help="Study folder.")]
OutFolder = Annotated[Path, option("Folder for the results.", "--output", "-o")]
Param = Annotated[
    list[str] | None, option("Any other setting, NAME=VALUE. May be repeated.")
]
Report = Annotated[bool, option("Write an HTML report, too.")]
AligningHalf = Annotated[
    str | None,
    option(
        "Align with the first half of the samples, split by category, run, film or "
        "time, so that the other half can be scored. Default: align with all samples.",
        "--halves",
    ),
]

CONFIG = "TOML file of options; those on the command line take precedence."
DASK = "Address or file of a Dask scheduler, or local:4 for 4 local processes."
Config = Annotated[Path | None, how(CONFIG, callback=read_config, is_eager=True)]
Quiet = Annotated[bool, how("Print only results.", "--quiet", "-q")]
JOBS = "Number of parallel jobs. Default: one per core."
Jobs = Annotated[int | None, how(JOBS)]
Cores = Annotated[int | None, how(JOBS, "--n-jobs", "--n_cpus", "--n-cpus")]
Dask = Annotated[str | None, how(DASK, metavar="SCHEDULER")]

METHODS = (
    "gdm, paper-gdm (as published), gdmcv (chooses its settings inside the aligning "
    "samples), hyperalignment, regularized-hyperalignment, kernel-hyperalignment, "
    "svd-hyperalignment, srm, detsrm, robust-srm, semi-supervised-srm, gcca, promises, "
    "ridge, none, or a method of another package, such as fmralign:ot."
)
PARAM = (
    "Any other parameter, NAME=VALUE, such as shrinkage=0.1, energy=0.8 (paper-gdm) or "
    "kernel=gaussian. May be repeated."
)
# parameters of evaluations that --param sets; all others are those of methods
OF_SPLITTING = {"block", "border"}
OF_SCORING = (
    *("classifier", "window", "step", "enough", "score", "block", "border"),
    "leave_out",
)
SCORING = " Parameters of the evaluation: " + ", ".join(OF_SCORING) + "."
MATCH = (
    "Match the samples of all subjects first, as time-locked methods require: "
    "truncate, average or intersect."
)
PARCELS = (
    "Align parcel by parcel: an atlas file (NIfTI, dlabel; GIfTI labels or annotations "
    "of both hemispheres, separated by a comma), or schaefer-100 (200, ... 1000)."
)
RADIUS = "Align neighbourhoods of this radius in mm and average their maps."
Method = Annotated[str, method(METHODS)]
Components = Annotated[str | None, method("Number of shared features, or auto (gdm).")]
GRAPH = "Graph of gdm: labels, time (default without categories) or labels+time."
Graph = Annotated[str | None, method(GRAPH)]
MethodParam = Annotated[list[str] | None, method(PARAM, "--param")]
Match = Annotated[str | None, method(MATCH)]
Parcels = Annotated[str | None, method(PARCELS)]
Radius = Annotated[float | None, method(RADIUS, "--searchlight")]

HALVES = (
    "Split the samples into an aligning and a scored half by category (by time if "
    "there are no categories), run, film or time."
)
MEASURE = (
    "classification (default for categories), matching of time segments (default for "
    "films), reconstruction of voxels, or isc (inter-subject correlation)."
)
Halves = Annotated[str, score(HALVES)]
Measure = Annotated[str | None, score(MEASURE)]
ScoreParam = Annotated[list[str] | None, method(PARAM + SCORING, "--param")]

WHO = "Subject, with or without sub-. May be repeated. Default: all."
LABELS = ("--participant-label", "--participant_label")
SAMPLES = (
    "Use as samples volumes, blocks (means), or trials (GLM betas, one model per "
    "trial)."
)
FILMS = (
    "Films shown: runs (each run is a film that starts with it), or a table (.tsv) "
    "with columns run and film, and optionally onset, start and subject."
)
IGNORE = (
    "Label to exclude. May be repeated. Rest, fixation, responses and button presses "
    "are always excluded, unless kept with --param keep=LABEL."
)
CONFOUNDS = (
    "Confounds to remove: simple (default for fMRIPrep), scrubbing, compcor, ica_aroma "
    "or none; or a component such as motion, which may be repeated."
)
MASK = (
    "own (default: fMRIPrep's mask of each subject), common (their intersection), epi "
    "(computed from the images), or an image file."
)
SESSIONS = "Session, with or without ses-. May be repeated. Default: all."
FILTERS = "JSON file that selects runs by entities (its entry bold), as in fMRIPrep."
OTHERS = "Any other option of load_bids, NAME=VALUE."
Participants = Annotated[list[str] | None, read(WHO, *LABELS)]
Sessions = Annotated[
    list[str] | None, read(SESSIONS, "--session-label", "--session_label")
]
FilterFile = Annotated[
    Path | None, read(FILTERS, "--bids-filter-file", "--bids_filter_file")
]
BidsParam = Annotated[list[str] | None, read(OTHERS)]
Task = Annotated[str | None, read("Task, if there are several.", "--task", "-t")]
Space = Annotated[str | None, read("Space of the images, such as T1w.")]
Samples = Annotated[str | None, read(SAMPLES)]
Films = Annotated[str | None, read(FILMS)]
Ignore = Annotated[list[str] | None, read(IGNORE)]
Confounds = Annotated[list[str] | None, read(CONFOUNDS)]
Smoothing = Annotated[
    float | None, read("FWHM of the smoothing in mm.", "--smoothing-fwhm")
]
Mask = Annotated[str | None, read(MASK)]


# -- values ----------------------------------------------------------------------------


def parse_params(
    given: Iterable[str] | None, *, option: str = "--param"
) -> dict[str, Any]:
    """Read ``NAME=VALUE`` options; values are TOML, else texts.

    Examples
    --------
    >>> parse_params(["alpha=0.9", "init=random", "n_voxels=[300, 400]"])
    {'alpha': 0.9, 'init': 'random', 'n_voxels': [300, 400]}
    """
    values: dict[str, Any] = {}
    for entry in given or ():
        name, equals, text = entry.partition("=")
        name = name.strip().replace("-", "_")
        if not equals or not name.isidentifier():
            raise UsageError(
                f"{option} takes NAME=VALUE, such as alpha=0.9; got {entry!r}."
            )
        try:
            values[name] = tomllib.loads(f"value = {text}")["value"]
        except tomllib.TOMLDecodeError:
            values[name] = {"none": None}.get(text.strip().lower(), text.strip())
    return values


def scoring_params(
    given: Iterable[str] | None,
) -> tuple[dict[str, Any], dict[str, Any], list[str]]:
    """Divide ``NAME=VALUE`` options: how to split, how to score, and those of methods.

    Examples
    --------
    >>> scoring_params(["block=9", "window=6", "energy=0.8"])
    ({'block': 9}, {'window': 6}, ['energy=0.8'])
    """
    own = [e for e in given or () if e.partition("=")[0].strip() in OF_SCORING]
    scoring = parse_params(own)
    splitting = {name: scoring.pop(name) for name in OF_SPLITTING & {*scoring}}
    return splitting, scoring, [entry for entry in given or () if entry not in own]


def with_params(
    options: Mapping[str, Any], others: Mapping[str, Any]
) -> dict[str, Any]:
    """Merge options, None where they are not given, and ``NAME=VALUE`` ones.

    Examples
    --------
    >>> with_params({"task": None, "detrend": True}, {"label": None})
    {'detrend': True, 'label': None}
    """
    given = {k: v for k, v in options.items() if v is not None}
    for name in others:
        if name in given:
            shown = name.replace("_", "-")
            raise UsageError(f"{name} was given twice, by --{shown} and by --param.")
    return {**given, **others}


def refuse_unknown(names: Iterable[str], known: Iterable[str], what: str) -> None:
    """Refuse names that something does not have, and list those it has."""
    listed = known if isinstance(known, list) else sorted(known)
    for name in names:
        if name not in listed:
            close = get_close_matches(name, listed, 1)
            others = f"; choose one of {', '.join(listed[:40])}."
            hint = f". Did you mean {close[0]!r}?" if close else others
            raise UsageError(what.replace("{}", name) + hint)
