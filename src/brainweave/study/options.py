"""Options of readers and simulations: in small objects, or one by one by name."""

import inspect
from collections.abc import Callable, Mapping
from dataclasses import fields, is_dataclass, replace
from difflib import get_close_matches
from typing import Any, get_args, get_type_hints


def merge_options(
    owner: str, options: Mapping[str, Any], *groups: Any
) -> tuple[Any, ...]:
    """Return the groups (frozen dataclasses) with the options set that were given.

    So ``load_bids(folder, ignore="rest")`` is short for
    ``load_bids(folder, events=EventRules(ignore="rest"))``.
    """
    names = {type(group).__name__: [f.name for f in fields(group)] for group in groups}
    known = [name for listed in names.values() for name in listed]
    for name in options:
        if name not in known:
            near = get_close_matches(name, known, n=1)
            listing = (f"{kind} has {', '.join(n)}" for kind, n in names.items())
            hint = f"Did you mean {near[0]}?" if near else f"{'; '.join(listing)}."
            raise TypeError(f"Unknown option {name!r} of {owner}. {hint}")
    return tuple(
        replace(group, **{name: options[name] for name in own if name in options})
        for group, own in zip(groups, names.values(), strict=True)
    )


def option_names(function: Callable[..., Any]) -> list[str]:
    """List the options of a function, with the fields of objects that it takes."""
    hints = get_type_hints(function)
    names: list[str] = []
    for parameter in inspect.signature(function).parameters.values():
        if parameter.kind is parameter.VAR_KEYWORD:
            continue
        kinds = [k for k in get_args(hints.get(parameter.name)) if is_dataclass(k)]
        if kinds:
            names += [f.name for kind in kinds for f in fields(kind)]
        else:
            names.append(parameter.name)
    return names
