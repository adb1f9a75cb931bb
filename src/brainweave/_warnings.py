"""Warnings: of names that go, and of many threads at once."""

import functools
import inspect
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from threading import local
from typing import Any, TypeVar

Function = TypeVar("Function", bound=Callable[..., Any])
Heard = tuple[type[Warning], str]


class WarningListener:
    """Collects the warnings of each thread while work is done.

    ``warnings.catch_warnings`` changes what the whole process does, so threads cannot
    use it side by side. Here it is used once, around all of them.

    Examples
    --------
    >>> listener = WarningListener()
    >>> with listener.listening(), listener.heard() as heard:
    ...     warnings.warn("of few samples", UserWarning)
    >>> heard
    [(<class 'UserWarning'>, 'of few samples')]
    """

    def __init__(self) -> None:
        self._own = local()
        self.is_listening = False

    @contextmanager
    def listening(self) -> Iterator[None]:
        """Hear all warnings; those of threads that ask for none are shown."""
        with warnings.catch_warnings():
            show = warnings.showwarning

            def hear(message: Any, category: type[Warning], *where: Any) -> None:
                heard = getattr(self._own, "heard", None)
                if heard is None:
                    show(message, category, *where)
                else:
                    heard.append((category, str(message)))

            warnings.simplefilter("always")
            warnings.showwarning = hear  # type: ignore[assignment]
            self.is_listening = True
            try:
                yield
            finally:
                self.is_listening = False

    @contextmanager
    def heard(self) -> Iterator[list[Heard]]:
        """Return the list that the warnings of this thread go to."""
        heard: list[Heard] = []
        self._own.heard = heard
        try:
            yield heard
        finally:
            self._own.heard = None


# -- names that go: kept for two minor releases, as CONTRIBUTING.md says ---------------


def deprecated_name(old: str, new: Function, *, goes_in: str) -> Function:
    """Return a function under its old name, which warns when it is called."""

    @functools.wraps(new)
    def called(*args: Any, **kwargs: Any) -> Any:
        _warn_of_old(old, new.__name__, goes_in)
        return new(*args, **kwargs)

    return called  # type: ignore[return-value]


def deprecated_parameter(
    old: str, new: str, *, goes_in: str
) -> Callable[[Function], Function]:
    """Let a function take a keyword under its old name too, with a warning."""

    def decorate(function: Function) -> Function:
        name = function.__name__
        if new not in inspect.signature(function).parameters:
            raise TypeError(f"{name} has no parameter {new!r}.")

        @functools.wraps(function)
        def called(*args: Any, **kwargs: Any) -> Any:
            if old in kwargs:
                if new in kwargs:
                    raise TypeError(f"{name} got {new!r} twice, once as {old!r}.")
                _warn_of_old(f"{old} of {name}", new, goes_in)
                kwargs[new] = kwargs.pop(old)
            return function(*args, **kwargs)

        return called  # type: ignore[return-value]

    return decorate


def _warn_of_old(old: str, new: str, goes_in: str) -> None:
    text = f"{old} is now called {new}; the old name goes in brainweave {goes_in}."
    warnings.warn(text, FutureWarning, stacklevel=3)
