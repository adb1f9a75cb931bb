"""Hear the warnings of many threads at once, each thread's apart from the others'."""

import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from threading import local
from typing import Any

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
