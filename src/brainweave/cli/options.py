"""How options are declared, shared and read.

A command is a function decorated with :func:`command`. An option is a parameter of it
whose default is ``option(...)``, or a field of a *bundle*, a dataclass that several
commands share. Every command has ``--config`` and ``--quiet``, gets a console, and
shows warnings as one line each.
"""

import inspect
import tomllib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, nullcontext
from dataclasses import MISSING, Field, dataclass, field, fields
from functools import wraps
from importlib import import_module
from pathlib import Path
from typing import Annotated, Any, ClassVar, get_type_hints

import typer

from brainweave.cli.config import read_config
from brainweave.cli.console import Console
from brainweave.cli.errors import UsageError, speak_of

RUN_PANEL = "How to run"


def option(text: str, *names: str, default: Any = None, **settings: Any) -> Any:
    """Declare an option: its help, its names if not that of the parameter."""
    about = {"kind": typer.Option, "names": names, "help": text, "settings": settings}
    return field(default=default, metadata=about)


def argument(text: str, default: Any = MISSING) -> Any:
    """Declare an argument that has a place of its own."""
    about = {"kind": typer.Argument, "names": (), "help": text, "settings": {}}
    return field(default=default, metadata=about)


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
NO_WORKERS = 60  # seconds to wait for the first worker of a cluster
NO_SCHEDULER = 10  # and for the scheduler's answer


@dataclass
class Engine:
    """What the work runs on."""

    panel: ClassVar[str] = RUN_PANEL
    dask: str | None = option(
        "Let the workers of a Dask cluster read the voxels: address of its scheduler, "
        "its scheduler file, or local (local:4 for 4 processes of this machine).",
        metavar="SCHEDULER",
    )
    memory_limit: str | None = option(
        "Most memory of this process, such as 2GB: fewer subjects at the same time, "
        "narrower chunks of voxels."
    )

    @contextmanager
    def running(self, console: Console) -> Iterator[None]:
        """Set it up, and take it down."""
        with ExitStack() as stack:
            if self.memory_limit is not None:
                from brainweave._arrays import memory_limit

                stack.enter_context(memory_limit(self.memory_limit))
            if self.dask is not None:
                import joblib

                stack.enter_context(_dask_client(self.dask, console))
                stack.enter_context(joblib.parallel_config(backend="dask"))
            yield


@contextmanager
def _dask_client(given: str, console: Console) -> Iterator[None]:
    """Connect to a scheduler, or start one here, and wait for a worker."""
    try:
        distributed: Any = import_module("distributed")
    except ImportError:
        raise UsageError(
            "--dask needs Dask, which is not installed: pip install 'brainweave"
            "[cluster]'."
        ) from None
    kind, _, number = given.partition(":")
    cluster: Any = nullcontext()
    where: dict[str, Any] = {"address": given}
    if kind == "local":
        if number and not (number.isdigit() and int(number)):
            raise UsageError(
                f"--dask local:N takes a number of workers; got {given!r}."
            )
        many = {"n_workers": int(number)} if number else {}
        one = {"threads_per_worker": 1, "dashboard_address": None}
        cluster = distributed.LocalCluster(**many, **one)
        where = {"address": cluster}
    elif Path(given).is_file():
        where = {"scheduler_file": given}
    elif "://" not in given and ":" not in given:
        raise UsageError(
            f"--dask takes the address of a scheduler, such as tcp://host:8786, its "
            f"scheduler file, or local; there is no file {given!r}."
        )
    with cluster:
        try:
            client = distributed.Client(**where, timeout=NO_SCHEDULER)
        except Exception as error:  # a file may hold anything
            raise UsageError(
                f"No Dask scheduler answers at {given!r} within {NO_SCHEDULER} s "
                f"({type(error).__name__}). Start one by: dask scheduler, and look for "
                "its address in what that prints."
            ) from None
        with client:
            _await_workers(client, given, console)
            yield


def _await_workers(client: Any, given: str, console: Console) -> None:
    """Wait for the first worker; a queue may take its time."""
    if not client.scheduler_info()["workers"]:
        console.note(f"Waiting for a worker of {given} ...")
    try:
        client.wait_for_workers(1, timeout=NO_WORKERS)
    except TimeoutError:
        raise UsageError(
            f"The Dask scheduler at {given!r} has no workers after {NO_WORKERS} s. "
            f"Start some by: dask worker {given}."
        ) from None


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
            if p.name not in bundles and p.name != "console"
        ]
        for bundle in bundles.values():
            types = get_type_hints(bundle, include_extras=True)
            panel = getattr(bundle, "panel", None)
            for f in fields(bundle):
                parameters.append(_parameter(f.name, types[f.name], f, panel=panel))
        parameters += [
            _parameter("config", Path | None, CONFIG),
            _parameter("quiet", bool, QUIET),
        ]

        @wraps(function)
        def run(**given: Any) -> Any:
            speak_of(given)
            if given.get("n_jobs") == 0:
                raise UsageError("--n-jobs must be a number other than 0; got 0.")
            del given["config"]
            console = Console(given.pop("quiet"))
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
            info = about["kind"](*about["names"], help=about["help"], **settings)
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


def refuse_unknown(names: Iterable[str], known: Sequence[str], what: str) -> None:
    """Refuse names that something does not have; say which it has."""
    for name in names:
        if name not in known:
            said = what.replace("{}", name)
            raise UsageError(f"{said}; there are {', '.join(known[:40])}.")


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
