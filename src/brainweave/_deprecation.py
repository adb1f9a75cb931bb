"""Names and parameters that go: kept for two minor releases, with a warning.

The rule is in CONTRIBUTING.md.
"""

import functools
import inspect
import warnings
from collections.abc import Callable
from typing import Any, TypeVar

Function = TypeVar("Function", bound=Callable[..., Any])


def deprecated_name(old: str, new: Function, *, goes_in: str) -> Function:
    """Return a function under its old name, which warns; it goes in a release."""

    @functools.wraps(new)
    def called(*args: Any, **kwargs: Any) -> Any:
        _warn(
            f"{old} is now called {new.__name__}; the old name goes in brainweave "
            f"{goes_in}."
        )
        return new(*args, **kwargs)

    return called  # type: ignore[return-value]


def deprecated_parameter(
    old: str, new: str, *, goes_in: str
) -> Callable[[Function], Function]:
    """Let a function take a keyword under its old name too, with a warning."""

    def decorate(function: Function) -> Function:
        if new not in inspect.signature(function).parameters:
            raise TypeError(f"{function.__name__} has no parameter {new!r}.")

        @functools.wraps(function)
        def called(*args: Any, **kwargs: Any) -> Any:
            if old in kwargs:
                if new in kwargs:
                    raise TypeError(
                        f"{function.__name__} got {new!r} twice, once as {old!r}."
                    )
                _warn(
                    f"{old} of {function.__name__} is now called {new}; the old name "
                    f"goes in brainweave {goes_in}."
                )
                kwargs[new] = kwargs.pop(old)
            return function(*args, **kwargs)

        return called  # type: ignore[return-value]

    return decorate


def _warn(text: str) -> None:
    warnings.warn(text, FutureWarning, stacklevel=3)
