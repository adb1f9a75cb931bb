"""Options that belong together, in small objects, or one by one under their own names.

A function with many options takes most of them in frozen dataclasses with good
defaults. Its ``**details`` are fields of these by name, so that
``load_bids(folder, ignore="rest")`` is short for
``load_bids(folder, events=EventRules(ignore="rest"))``.
"""

import inspect
from collections.abc import Callable, Mapping
from dataclasses import fields, is_dataclass, replace
from difflib import get_close_matches
from typing import Any, get_args, get_type_hints

__all__ = ["gathered", "option_names"]


def gathered(owner: str, details: Mapping[str, Any], *groups: Any) -> tuple[Any, ...]:
    """Put details into the objects that have them, and return these in their order.

    `owner` is the function they were given to, for messages.

    Examples
    --------
    >>> from dataclasses import dataclass
    >>> @dataclass(frozen=True)
    ... class Noise:
    ...     local: float = 0.3
    >>> gathered("simulate", {"local": 1.0}, Noise())
    (Noise(local=1.0),)
    """
    names = [[f.name for f in fields(group)] for group in groups]
    known = [name for listed in names for name in listed]
    for name in details:
        if name not in known:
            near = get_close_matches(name, known, n=1)
            all_ = (
                f"{type(group).__name__} has {', '.join(listed)}"
                for group, listed in zip(groups, names, strict=True)
            )
            hint = f"Did you mean {near[0]}?" if near else f"{'; '.join(all_)}."
            raise TypeError(f"Unknown option {name!r} of {owner}. {hint}")
    return tuple(
        replace(group, **{name: details[name] for name in listed if name in details})
        for group, listed in zip(groups, names, strict=True)
    )


def option_names(function: Callable[..., Any]) -> list[str]:
    """List the options of a function, with the fields of objects that it takes.

    For those who have names and values only, such as a command line.
    """
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
