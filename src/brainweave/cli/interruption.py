"""Ctrl-C that nothing swallows.

Python raises KeyboardInterrupt wherever it happens to be; inside a destructor or a
callback of a compiled library it is printed and lost. So it is remembered, and raised
again at the next step of the work.
"""

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

__all__ = ["check_interrupted", "listening"]

_asked = threading.Event()


@contextmanager
def listening() -> Iterator[None]:
    """Remember an interruption of the work inside."""
    _asked.clear()
    if threading.current_thread() is not threading.main_thread():
        yield  # only the main thread hears signals
        return

    def remember(*_: Any) -> None:
        _asked.set()
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGINT, remember)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)
        _asked.clear()


def check_interrupted() -> None:
    """Raise KeyboardInterrupt if one was asked for and got lost."""
    if _asked.is_set():
        raise KeyboardInterrupt
