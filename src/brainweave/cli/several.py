"""Options with several values: ``--participant-label 01 02``, as BIDS Apps have it."""

from collections.abc import Sequence
from typing import Any


def spread(arguments: Sequence[str]) -> list[str]:
    """Repeat an option's name before each of its values.

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
    import typer

    from brainweave.cli.app import app

    found = typer.main.get_command(app).commands.get(command)  # type: ignore[attr-defined]
    if found is None:
        return {}, 0
    options: dict[str, Any] = {}
    needed = 0
    for parameter in found.params:
        if parameter.param_type_name == "argument":
            needed += 2 if parameter.nargs == -1 else 1
        else:
            names = (*parameter.opts, *parameter.secondary_opts)
            options |= dict.fromkeys(names, parameter)
    return options, needed
