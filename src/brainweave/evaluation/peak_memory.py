"""How much memory the process held while something was computed."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from threading import Event, Lock, Thread
from typing import Self

__all__ = ["MemoryWatch", "resident_megabytes"]

INTERVAL = 0.05  # seconds between looks


def resident_megabytes() -> float:
    """Return the memory of this process in MB, or its peak so far if that is unknown.

    0 where not even that is known.
    """
    statm = Path("/proc/self/statm")
    if statm.exists():
        import os

        return int(statm.read_text().split()[1]) * os.sysconf("SC_PAGESIZE") / 1e6
    try:
        import resource
    except ImportError:  # Windows
        return 0.0
    most = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return most / 1e6 if sys.platform == "darwin" else most / 1e3


class MemoryWatch:
    """Looks at the memory of the process every few milliseconds.

    What is measured is the whole process: the study, and all that runs at the time.

    Examples
    --------
    >>> with MemoryWatch() as watch, watch.peak() as peak:
    ...     pass
    >>> max(peak) >= 0
    True
    """

    def __init__(self) -> None:
        self._open: list[list[float]] = []
        self._lock = Lock()
        self._stop = Event()
        self._thread: Thread | None = None

    def __enter__(self) -> Self:
        self._stop.clear()
        self._thread = Thread(target=self._look, daemon=True)
        self._thread.start()
        return self

    def __exit__(self, *error: object) -> None:
        self._stop.set()
        if self._thread is not None:
            self._thread.join()

    @contextmanager
    def peak(self) -> Iterator[list[float]]:
        """Yield a list whose one entry is the most memory seen since it was given."""
        seen = [resident_megabytes()]
        with self._lock:
            self._open.append(seen)
        try:
            yield seen
        finally:
            with self._lock:
                # by identity: equal lists are not the same
                self._open = [other for other in self._open if other is not seen]

    def _look(self) -> None:
        while not self._stop.wait(INTERVAL):
            now = resident_megabytes()
            with self._lock:
                for seen in self._open:
                    seen[0] = max(seen[0], now)
