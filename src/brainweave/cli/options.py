"""Options that several commands share, declared once.

A *bundle* is a dataclass of options. A command decorated with :func:`bundled` takes the
bundle as one argument; on the command line its fields are ordinary options.
"""

import inspect
import tomllib
from collections.abc import Callable, Iterable, Mapping
from dataclasses import MISSING, dataclass, fields
from functools import wraps
from pathlib import Path
from typing import Annotated, Any, get_type_hints

import typer

from brainweave.cli.config import read_config
from brainweave.cli.errors import UsageError, speak_of

METHOD_GROUP, RUN_GROUP = "Method", "How to run"


@dataclass
class Running:
    """How to run: shared by every command."""

    config: Annotated[
        Path | None,
        typer.Option(
            "--config",
            help="TOML file with any of these options; the command line wins.",
            callback=read_config,
            is_eager=True,
            rich_help_panel=RUN_GROUP,
        ),
    ] = None
    quiet: Annotated[
        bool,
        typer.Option(
            "--quiet",
            "-q",
            help="Print results only.",
            rich_help_panel=RUN_GROUP,
        ),
    ] = False


def _method_option(text: str, *names: str) -> Any:
    return typer.Option(*names, help=text, rich_help_panel=METHOD_GROUP)


Parcels = Annotated[
    str | None,
    _method_option(
        "Align parcel by parcel: an atlas image with a label per voxel, or "
        "schaefer-100 (200, ... 1000) where nilearn has it in its cache."
    ),
]
SearchlightRadius = Annotated[
    float | None,
    _method_option(
        "Align in every neighbourhood of this radius in mm, and average to one map."
    ),
]


@dataclass
class Method:
    """Which aligner, and its parameters; None leaves the aligner's own default."""

    method: Annotated[
        str,
        _method_option(
            "gdm, gdmcv (chooses its settings inside the aligning samples), "
            "hyperalignment, regularized-hyperalignment, kernel-hyperalignment, "
            "svd-hyperalignment, srm, detsrm, robust-srm, semi-supervised-srm or none."
        ),
    ] = "gdm"
    n_components: Annotated[
        str | None, _method_option("Shared features: a number, or auto (gdm).")
    ] = None
    energy: Annotated[
        float | None,
        _method_option(
            "Share of the singular values that each subject keeps; gdm: the paper's "
            "model, in place of shrinkage."
        ),
    ] = None
    shrinkage: Annotated[
        str | None,
        _method_option(
            "How far each subject is shrunk: a number, auto, ledoit-wolf or oas; gdm."
        ),
    ] = None
    constraint: Annotated[
        str | None,
        _method_option(
            "global, or subject: unit covariance in each subject, for studies that "
            "overlap in part; gdm."
        ),
    ] = None
    kernel: Annotated[
        str | None, _method_option("linear, gaussian, quadratic or sigmoid.")
    ] = None
    hp: Annotated[float | None, _method_option("Parameter of the kernel.", "--hp")] = (
        None
    )
    graph: Annotated[
        str | None,
        _method_option("labels (categories), time (stimuli) or labels+time; gdm."),
    ] = None
    standardize: Annotated[
        bool | None, _method_option("Give every voxel mean 0 and variance 1.")
    ] = None
    random_state: Annotated[
        int | None, _method_option("Seed of methods that start at random.")
    ] = None
    match: Annotated[
        str | None,
        _method_option(
            "Make the samples of all subjects correspond first: truncate, average or "
            "intersect. For methods that are locked in time."
        ),
    ] = None
    parcels: Parcels = None
    searchlight: SearchlightRadius = None
    param: Annotated[
        list[str] | None,
        _method_option("Any other parameter, NAME=VALUE; may be repeated.", "--param"),
    ] = None
    n_jobs: Annotated[
        int | None,
        typer.Option(
            help="Subjects worked on at the same time; default one per core.",
            rich_help_panel=RUN_GROUP,
        ),
    ] = None


def bundled(**bundles: type) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Spread dataclasses of options over the signature of a command."""

    def decorate(function: Callable[..., Any]) -> Callable[..., Any]:
        own = inspect.signature(function)
        hints = get_type_hints(function, include_extras=True)
        parameters = [
            p.replace(annotation=hints.get(p.name, p.annotation))
            for p in own.parameters.values()
            if p.name not in bundles
        ]
        for bundle in bundles.values():
            types = get_type_hints(bundle, include_extras=True)
            parameters += [
                inspect.Parameter(
                    f.name,
                    inspect.Parameter.KEYWORD_ONLY,
                    default=inspect.Parameter.empty
                    if f.default is MISSING
                    else f.default,
                    annotation=types[f.name],
                )
                for f in fields(bundle)
            ]

        @wraps(function)
        def command(**given: Any) -> Any:
            speak_of(given)
            if given.get("n_jobs") == 0:
                raise UsageError("--n-jobs must be a number other than 0; got 0.")
            for name, bundle in bundles.items():
                values = {f.name: given.pop(f.name) for f in fields(bundle)}
                given[name] = bundle(**values)
            return function(**given)

        del command.__wrapped__  # else the signature of the inner one would be read
        command.__signature__ = own.replace(parameters=parameters)  # type: ignore[attr-defined]
        command.__annotations__ = {p.name: p.annotation for p in parameters}
        return command

    return decorate


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
    twice = [k for k in others if options.get(k) is not None]
    if twice:
        shown = twice[0].replace("_", "-")
        raise UsageError(f"{twice[0]} was given twice: by --{shown} and by --param.")
    given = {k: v for k, v in options.items() if v is not None}
    return {**given, **others}
