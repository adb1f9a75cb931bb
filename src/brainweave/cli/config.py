"""Options from a TOML file, and the effective options written beside every result."""

import datetime
import json
import re
import tomllib
from collections.abc import Mapping
from difflib import get_close_matches
from enum import Enum
from pathlib import Path
from typing import Any

from brainweave._io import write_text
from brainweave._version import __version__, versions
from brainweave.cli.errors import UsageError

# options that say how to run, not what to do
NOT_KEPT = {"config", "quiet", "help"}
# options that a file may have, but that no result depends on
NOT_WRITTEN = NOT_KEPT | {"dask", "memory_limit"}
# the table of a configuration that says how a result came about; no options
MADE = "made"


def read_config(context: Any, path: Path | None) -> Path | None:
    """Take the defaults of a command's options from a TOML file.

    Keys at the top apply to every command that has such an option; those in a table
    with the command's name, to this command. Options on the command line win.
    """
    if path is None or context.resilient_parsing:
        return path
    command = context.info_name
    known = {p.name for p in context.command.params if p.name} - NOT_KEPT
    document = _parse(path)
    document.pop(MADE, None)
    tables = {k: v for k, v in document.items() if isinstance(v, dict)}
    top = {_name(k): v for k, v in document.items() if k not in tables}
    others = set(context.parent.command.commands) if context.parent else set()
    for name in tables:
        if name not in others and _name(name) not in known:
            raise UsageError(
                f"{str(path)!r} has a table [{name}], which is no command. Commands "
                f"are: {', '.join(sorted(others))}."
            )
    own = {_name(k): v for k, v in tables.get(command, {}).items()}
    _refuse_unknown(own, known, path, command)
    commands = context.parent.command.commands.values() if context.parent else []
    every = {p.name for c in (*commands, context.command) for p in c.params if p.name}
    _refuse_unknown(top, every - NOT_KEPT, path, "any command")
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


def _refuse_unknown(
    values: Mapping[str, Any], known: set[str], path: Path, command: str
) -> None:
    for name in values:
        if name not in known:
            close = get_close_matches(name, known, 1)
            hint = f" Did you mean {close[0]!r}?" if close else ""
            raise UsageError(
                f"{str(path)!r} has {name!r}, which is no option of {command}.{hint}"
            )


def _name(key: str) -> str:
    return key.replace("-", "_")


def effective(context: Any, **resolved: Any) -> dict[str, Any]:
    """Return all options of a command as they were used, defaults resolved."""
    options = {k: v for k, v in context.params.items() if k not in NOT_WRITTEN}
    options.update(resolved)
    return {k: plain(v) for k, v in options.items() if v not in (None, (), [])}


def plain(value: Any) -> Any:
    """Return a value as TOML and JSON know it."""
    if isinstance(value, Enum):
        return value.value
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
