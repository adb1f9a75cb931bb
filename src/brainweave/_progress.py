"""Tell how far something is: to a function, on a bar, or not at all."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

#: Told how many steps are done, how many there are, and what was done last.
Progress = Callable[[int, int, str], None]


@contextmanager
def shown_progress(
    progress: Progress | bool | None, total: int, what: str
) -> Iterator[Callable[..., None]]:
    """Return what is to be called after each step, so that progress is shown.

    Parameters
    ----------
    progress : callable, bool or None
        Called with the number of steps that are done, of all, and what was done; True
        draws a bar on the standard error; None or False shows nothing.
    total : int
        Number of steps.
    what : str
        What is done; a step may name itself instead, ``tick("sub-01")``.

    Examples
    --------
    >>> with shown_progress(print, 2, "subjects") as tick:
    ...     tick()
    ...     tick("sub-02")
    1 2 subjects
    2 2 sub-02
    """
    if progress is None or progress is False:
        yield lambda text=what: None
        return
    if progress is True:
        with _bar() as bar:
            task = bar.add_task(what, total=total)
            yield lambda text=what: bar.update(task, advance=1, description=text)
        return
    if not callable(progress):
        raise TypeError(
            f"progress must be True, False or a function of (done, total, what); got "
            f"{progress!r}."
        )
    done = 0

    def tick(text: str = what) -> None:
        nonlocal done
        done += 1
        progress(done, total, text)

    yield tick


def _bar() -> Any:
    from rich.console import Console
    from rich.progress import Progress as Bar

    return Bar(console=Console(stderr=True), transient=True)
