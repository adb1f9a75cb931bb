"""How options are declared, shared, read, and written beside every result.

A command is a function decorated with :func:`command`. An option is a parameter of it
whose default is ``option(...)``, or a field of a *bundle*, a dataclass that several
commands share. Every command has ``--config`` and ``--quiet``, gets a console, and
shows warnings as one line each.
"""

import datetime
import inspect
import json
import re
import tomllib
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import MISSING, Field, field, fields
from difflib import get_close_matches
from functools import wraps
from pathlib import Path
from typing import Annotated, Any, get_type_hints

import typer

from brainweave._io import write_text
from brainweave._version import __version__, versions
from brainweave.cli.console import Console, UsageError, speak_of

RUN_PANEL = "How to run"
# options that say how to run, not what to do
NOT_KEPT = {"config", "quiet", "help"}
# options that a file may have, but that no result depends on
NOT_WRITTEN = NOT_KEPT | {"dask", "memory_limit"}
# the table of a configuration that says how a result came about; no options
MADE = "made"


def option(text: str, *names: str, default: Any = None, **settings: Any) -> Any:
    """Declare an option: its help, its names if not that of the parameter."""
    about = {"kind": typer.Option, "names": names, "help": text, "settings": settings}
    return field(default=default, metadata=about)


def argument(text: str, default: Any = MISSING) -> Any:
    """Declare an argument that has a place of its own."""
    about = {"kind": typer.Argument, "names": (), "help": text, "settings": {}}
    return field(default=default, metadata=about)


# -- configuration files ---------------------------------------------------------------


def read_config(context: Any, path: Path | None) -> Path | None:
    """Take the defaults of a command's options from a TOML file.

    Keys at the top apply to every command that has such an option; those in a table
    with the command's name, to this command. Options on the command line win.
    """
    if path is None or context.resilient_parsing:
        return path
    command, commands = context.info_name, context.parent.command.commands
    options = {n: {p.name for p in c.params} - NOT_KEPT for n, c in commands.items()}
    known, every = options[command], set.union(*options.values())
    document = _parse(path)
    document.pop(MADE, None)
    tables = {k: v for k, v in document.items() if isinstance(v, dict)}
    top = {_name(k): v for k, v in document.items() if k not in tables}
    for name in tables:
        if name not in commands and _name(name) not in known:
            raise UsageError(
                f"{str(path)!r} has a table [{name}], which is no command. Commands "
                f"are: {', '.join(sorted(commands))}."
            )
    own = {_name(k): v for k, v in tables.get(command, {}).items()}
    strange = f"{str(path)!r} has '{{}}', which is no option of "
    refuse_unknown(own, known, strange + command)
    refuse_unknown(top, every, f"{strange}any command")
    chosen = {**{k: v for k, v in top.items() if k in known}, **own}
    context.default_map = {**(context.default_map or {}), **chosen}
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


def _name(key: str) -> str:
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
    """Make a command of a function; bundles are spread over its options.

    The one called engine is not handed to it: what it runs on is set up around it.
    """

    def decorate(function: Callable[..., Any]) -> Callable[..., Any]:
        own = inspect.signature(function)
        hints = get_type_hints(function, include_extras=True)
        parameters = [
            _parameter(p.name, hints[p.name], p.default, kind=p.kind)
            for p in own.parameters.values()
            if p.name not in (*bundles, "console", "context")
        ]
        takes_context = "context" in own.parameters
        for bundle in bundles.values():
            types = get_type_hints(bundle, include_extras=True)
            panel = getattr(bundle, "panel", None)
            for f in fields(bundle):
                parameters.append(_parameter(f.name, types[f.name], f, panel=panel))
        parameters += [
            _parameter("config", Path | None, CONFIG),
            _parameter("quiet", bool, QUIET),
            _parameter("context", typer.Context, inspect.Parameter.empty),
        ]

        @wraps(function)
        def run(**given: Any) -> Any:
            speak_of(given)
            if given.get("n_jobs") == 0:
                raise UsageError("--n-jobs must be a number other than 0; got 0.")
            del given["config"]
            context = given["context"] if takes_context else given.pop("context")
            console = Console(given.pop("quiet"))
            console.command, console.params = context.info_name, context.params
            for name, bundle in bundles.items():
                values = {f.name: given.pop(f.name) for f in fields(bundle)}
                given[name] = bundle(**values)
            engine = given.pop("engine", None)
            with console.collect_warnings():
                if engine is None:
                    return function(**given, console=console)
                with engine.running(console):
                    return function(**given, console=console)

        del run.__wrapped__  # else the signature of the inner one would be read
        run.__signature__ = own.replace(parameters=parameters)  # type: ignore[attr-defined]
        run.__annotations__ = {p.name: p.annotation for p in parameters}
        return run

    return decorate


def _parameter(
    name: str,
    annotation: Any,
    declared: Any,
    *,
    panel: str | None = None,
    kind: Any = inspect.Parameter.KEYWORD_ONLY,
) -> inspect.Parameter:
    """Return a parameter as Typer reads it."""
    default = declared
    if isinstance(declared, Field):
        about, default = declared.metadata, declared.default
        if default is MISSING:
            default = inspect.Parameter.empty
        if about:  # else an annotation says it all
            settings = {"rich_help_panel": panel, **about["settings"]}
            flag = [f"--{name.replace('_', '-')}"] if default is False else []
            names = about["names"] or flag  # no --no-flag for what is off
            info = about["kind"](*names, help=about["help"], **settings)
            annotation = Annotated[annotation, info]
    return inspect.Parameter(name, kind, default=default, annotation=annotation)


# -- options as they were used, beside every result ------------------------------------


def effective(run: Any, **resolved: Any) -> dict[str, Any]:
    """Return all options of what runs as they were used, defaults resolved."""
    options = {k: v for k, v in run.params.items() if k not in NOT_WRITTEN}
    options.update(resolved)
    return {k: plain(v) for k, v in options.items() if v not in (None, (), [])}


def plain(value: Any) -> Any:
    """Return a value as TOML and JSON know it."""
    if isinstance(value, Path):
        return str(value)
    if isinstance(value, (list, tuple)):
        return [plain(v) for v in value]
    if isinstance(value, Mapping):
        return {str(k): plain(v) for k, v in value.items() if v is not None}
    return value if isinstance(value, (bool, int, float, str)) else str(value)


def write_config(
    path: Path,
    command: str,
    options: Mapping[str, Any],
    made: Mapping[str, Any] | None = None,
) -> Path:
    """Write options so that ``--config`` gives the same run again."""
    lines = [
        f"# brainweave {__version__}; the same again: "
        f"brainweave {command} --config {path.name}",
        f"[{command}]",
    ]
    lines += [f"{key} = {toml(value)}" for key, value in options.items()]
    if made is not None:
        known = {k: v for k, v in made.items() if v is not None}
        lines += [f"\n[{MADE}]", *(f"{k} = {toml(v)}" for k, v in known.items())]
    write_text(path, "\n".join(lines) + "\n")
    return path


def toml(value: Any) -> str:
    r"""Write a value as TOML.

    Examples
    --------
    >>> toml({"energy": 0.82, "names": ["a", 'b"'], "on": True})
    '{energy = 0.82, names = ["a", "b\\""], on = true}'
    """
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, (int, float)):
        return repr(value)
    if isinstance(value, Mapping):
        pairs = (f"{_key(k)} = {toml(v)}" for k, v in value.items())
        return "{" + ", ".join(pairs) + "}"
    if isinstance(value, (list, tuple)):
        return "[" + ", ".join(toml(v) for v in value) + "]"
    # JSON's escapes are TOML's, but for the one character TOML forbids in addition
    return json.dumps(str(value), ensure_ascii=False).replace("\x7f", "\\u007f")


def _key(name: str) -> str:
    return name if re.fullmatch(r"[A-Za-z0-9_-]+", name) else json.dumps(name)


def provenance(
    command: str, options: dict[str, Any], ids: list[str], **more: Any
) -> dict[str, Any]:
    """Say when, with which command, options and versions something was made."""
    now = datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds")
    return {
        "made": now,
        "command": f"brainweave {command}",
        **({"options": options} if options else {}),
        "subjects": list(ids),
        "versions": versions(),
        **more,
    }


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
    """Join options, of which those not given are None, and ``NAME=VALUE`` ones.

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


def spread(arguments: Sequence[str]) -> list[str]:
    """Repeat an option's name before each of its values, as BIDS Apps have it.

    Only once a command has all of its arguments, since what follows an option before
    them may be one of these.

    Examples
    --------
    >>> spread("run in out group --participant-label 01 02 -q".split())[4:]
    ['--participant-label', '01', '--participant-label', '02', '-q']
    >>> spread("convert --ignore rest BIDS STUDY".split())[1:]
    ['--ignore', 'rest', 'BIDS', 'STUDY']
    """
    options, needed = _known(arguments[0]) if arguments else ({}, 0)
    if not any(option.multiple for option in options.values()):
        return list(arguments)
    out, places, last = list(arguments[:1]), 0, None
    waiting = 0  # values that the last option still takes
    for argument in arguments[1:]:
        if argument.startswith("-") and argument != "-" and not waiting:
            name, equals, _ = argument.partition("=")
            option = options.get(name)
            last = name if option is not None and option.multiple else None
            takes = option is not None and not (option.is_flag or option.count)
            waiting = int(takes and not equals)
        elif waiting:
            waiting -= 1
        elif last is not None and places >= needed:
            out.append(last)
        else:
            places, last = places + 1, None
        out.append(argument)
    return out


def _known(command: str) -> tuple[dict[str, Any], int]:
    """Return a command's options by name, and how many arguments it has."""
    from brainweave.cli.app import app

    found = typer.main.get_command(app).commands.get(command)  # type: ignore[attr-defined]
    options: dict[str, Any] = {}
    needed = 0
    for parameter in [] if found is None else found.params:
        if parameter.param_type_name == "argument":
            needed += 2 if parameter.nargs == -1 else 1
        else:
            names = (*parameter.opts, *parameter.secondary_opts)
            options |= dict.fromkeys(names, parameter)
    return options, needed
