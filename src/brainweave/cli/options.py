"""How options are declared, shared, and read from files.

A command is a function decorated with :func:`command`. An option is a parameter of it
whose default is ``option(...)``, or a field of a *bundle*, a dataclass that several
commands share. Every command has ``--config`` and ``--quiet``, gets a console, and
shows warnings as one line each.
"""

import inspect
import tomllib
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import MISSING, Field, field, fields
from difflib import get_close_matches
from functools import wraps
from pathlib import Path
from typing import Annotated, Any, get_type_hints

import typer

from brainweave.cli.console import Console, UsageError

RUN_PANEL = "How to run"
# options that a configuration file cannot set
NOT_IN_FILES = {"config", "quiet", "help"}
# options that no result depends on, so that they are not written beside it
NOT_WRITTEN = NOT_IN_FILES | {"dask", "memory_limit"}
# the table of a configuration that says how a result was made; it holds no options
MADE = "made"


def option(text: str, *names: str, default: Any = None, **settings: Any) -> Any:
    """Declare an option by its help and, unless the parameter's, its names."""
    declared = typer.Option, names, text, settings
    return field(default=default, metadata={"declared": declared})


def argument(text: str, default: Any = MISSING) -> Any:
    """Declare a positional argument."""
    return field(default=default, metadata={"declared": (typer.Argument, (), text, {})})


# -- configuration files ---------------------------------------------------------------


def read_config(context: Any, path: Path | None) -> Path | None:
    """Take the defaults of a command's options from a TOML file.

    Keys at the top apply to every command that has such an option; those in a table
    with the command's name, to this command. Options on the command line win.
    """
    if path is None or context.resilient_parsing:
        return path
    command, commands = context.info_name, context.parent.command.commands
    options = {
        name: {p.name for p in found.params} - NOT_IN_FILES
        for name, found in commands.items()
    }
    document = _parse(path)
    document.pop(MADE, None)
    tables = {k: v for k, v in document.items() if isinstance(v, dict)}
    for name in tables:
        if name not in commands and _parameter_name(name) not in options[command]:
            raise UsageError(
                f"{str(path)!r} has a table [{name}], which is no command. Commands "
                f"are: {', '.join(sorted(commands))}."
            )
    top = {_parameter_name(k): v for k, v in document.items() if k not in tables}
    in_table = {_parameter_name(k): v for k, v in tables.get(command, {}).items()}
    message = f"{str(path)!r} has '{{}}', which is no option of "
    refuse_unknown(in_table, options[command], message + command)
    refuse_unknown(top, set.union(*options.values()), f"{message}any command")
    shared = {k: v for k, v in top.items() if k in options[command]}
    context.default_map = {**(context.default_map or {}), **shared, **in_table}
    return path


def _parse(path: Path) -> dict[str, Any]:
    try:
        with path.open("rb") as file:
            return tomllib.load(file)
    except FileNotFoundError:
        raise UsageError(f"There is no configuration file {str(path)!r}.") from None
    except OSError as error:
        raise UsageError(f"{str(path)!r} cannot be read ({error.strerror}).") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError, RecursionError) as error:
        raise UsageError(f"{str(path)!r} is not valid TOML: {error}.") from None


def _parameter_name(key: str) -> str:
    return key.replace("-", "_")


CONFIG = option(
    "TOML file with any of these options; the command line wins.",
    "--config",
    callback=read_config,
    is_eager=True,
    rich_help_panel=RUN_PANEL,
)
QUIET = option(
    "Print results only.", "--quiet", "-q", default=False, rich_help_panel=RUN_PANEL
)

StudyFolder = Annotated[Path, typer.Argument(help="Study folder.")]
OutFolder = Annotated[
    Path, typer.Option("--output", "-o", help="Folder for the results.")
]
Overwrite = Annotated[
    bool, typer.Option("--overwrite", help="Replace a study that is there.")
]
Halves = Annotated[
    str | None,
    typer.Option(
        help="Align with the first half of the samples, by category or run, so that "
        "the others can be scored; by default all samples align."
    ),
]
Param = Annotated[
    list[str] | None,
    typer.Option(help="Any other setting, NAME=VALUE; may be repeated."),
]
Subjects = Annotated[
    str | None,
    typer.Option(
        "--subjects",
        help="Ids of the model's subjects in their order, with commas: for a model "
        "that was fitted on arrays, which have no ids.",
    ),
]


def command(**bundles: type) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Make a command of a function; the fields of bundles are options, too.

    The function gets a console and the filled bundles, but for the one called engine,
    which is set up around it.
    """

    def decorate(function: Callable[..., Any]) -> Callable[..., Any]:
        signature = inspect.signature(function)
        hints = get_type_hints(function, include_extras=True)
        parameters = [
            _typer_parameter(p.name, hints[p.name], p.default, kind=p.kind)
            for p in signature.parameters.values()
            if p.name not in (*bundles, "console")
        ]
        for bundle in bundles.values():
            types = get_type_hints(bundle, include_extras=True)
            panel = getattr(bundle, "panel", None)
            parameters += [
                _typer_parameter(f.name, types[f.name], f, panel=panel)
                for f in fields(bundle)
            ]
        parameters += [
            _typer_parameter("config", Path | None, CONFIG),
            _typer_parameter("quiet", bool, QUIET),
            _typer_parameter("context", typer.Context, inspect.Parameter.empty),
        ]

        @wraps(function)
        def run(
            *, context: typer.Context, quiet: bool, config: Any, **given: Any
        ) -> Any:
            if given.get("n_jobs") == 0:
                raise UsageError("--n-jobs must be a number other than 0; got 0.")
            console = Console(quiet)
            console.make_current()
            console.command = str(context.info_name)
            console.params = context.params
            sources = {n: context.get_parameter_source(n) for n in context.params}
            console.given = {n for n, s in sources.items() if s and s.name != "DEFAULT"}
            for name, bundle in bundles.items():
                values = {f.name: given.pop(f.name) for f in fields(bundle)}
                given[name] = bundle(**values)
            engine = given.pop("engine", None)
            running = nullcontext() if engine is None else engine.running(console)
            with console.collect_warnings(), running:
                return function(**given, console=console)

        del run.__wrapped__  # else Typer would read the signature of the function
        run.__signature__ = signature.replace(parameters=parameters)  # type: ignore[attr-defined]
        run.__annotations__ = {p.name: p.annotation for p in parameters}
        return run

    return decorate


def _typer_parameter(
    name: str,
    annotation: Any,
    default: Any,
    *,
    panel: str | None = None,
    kind: Any = inspect.Parameter.KEYWORD_ONLY,
) -> inspect.Parameter:
    """Return a parameter as Typer reads it, also of one that option() declared."""
    if isinstance(default, Field):
        declared = default.metadata.get("declared")
        no_default = default.default is MISSING
        default = inspect.Parameter.empty if no_default else default.default
        if declared is not None:  # else the annotation says it all
            typer_kind, names, text, settings = declared
            if default is False and not names:
                names = (f"--{name.replace('_', '-')}",)  # no --no-flag: it is off
            settings = {"rich_help_panel": panel, **settings}
            info = typer_kind(*names, help=text, **settings)
            annotation = Annotated[annotation, info]
    return inspect.Parameter(name, kind, default=default, annotation=annotation)


# -- NAME=VALUE ------------------------------------------------------------------------


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
    twice = [k for k in others if k in given]
    if twice:
        shown = twice[0].replace("_", "-")
        raise UsageError(f"{twice[0]} was given twice: by --{shown} and by --param.")
    return {**given, **others}


def refuse_unknown(names: Iterable[str], known: Iterable[str], what: str) -> None:
    """Refuse names that something does not have; say which it has."""
    listed = known if isinstance(known, list) else sorted(known)
    for name in names:
        if name not in listed:
            close = get_close_matches(name, listed, 1)
            others = f"; there are {', '.join(listed[:40])}."
            hint = f". Did you mean {close[0]!r}?" if close else others
            raise UsageError(what.replace("{}", name) + hint)


# -- several values --------------------------------------------------------------------


def repeat_option_names(arguments: Sequence[str]) -> list[str]:
    """Repeat an option's name before each of its values, as BIDS Apps have it.

    Only once a command has all of its arguments: before, what follows an option's value
    may be one of these.

    Examples
    --------
    >>> repeat_option_names("run in out group --participant-label 01 02 -q".split())[4:]
    ['--participant-label', '01', '--participant-label', '02', '-q']
    >>> repeat_option_names("convert --ignore rest BIDS STUDY".split())[1:]
    ['--ignore', 'rest', 'BIDS', 'STUDY']
    """
    options, n_needed = _declared(arguments[0]) if arguments else ({}, 0)
    if not any(option.multiple for option in options.values()):
        return list(arguments)
    out, n_positional = list(arguments[:1]), 0
    repeated = None  # the name of the last option, if it may be repeated
    takes_next = False  # whether the next argument is the value of the last option
    for argument in arguments[1:]:
        if argument.startswith("-") and argument != "-" and not takes_next:
            name, equals, _ = argument.partition("=")
            option = options.get(name)
            repeated = name if option is not None and option.multiple else None
            is_flag = option is None or option.is_flag or option.count
            takes_next = not is_flag and not equals
        elif takes_next:
            takes_next = False
        elif repeated is not None and n_positional >= n_needed:
            out.append(repeated)
        else:
            n_positional, repeated = n_positional + 1, None
        out.append(argument)
    return out


def _declared(command: str) -> tuple[dict[str, Any], int]:
    """Return a command's options by name, and how many arguments it needs."""
    from brainweave.cli.app import app

    found = typer.main.get_command(app).commands.get(command)  # type: ignore[attr-defined]
    options: dict[str, Any] = {}
    n_needed = 0
    for parameter in [] if found is None else found.params:
        if parameter.param_type_name == "argument":
            n_needed += 2 if parameter.nargs == -1 else 1
        else:
            names = (*parameter.opts, *parameter.secondary_opts)
            options |= dict.fromkeys(names, parameter)
    return options, n_needed
