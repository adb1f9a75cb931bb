"""Report progress to a function or on a progress bar."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager

#: Called with the number of steps done, their total number and the last step.
Progress = Callable[[int, int, str], None]


@contextmanager
def shown_progress(
    progress: Progress | bool | None, total: int, what: str
) -> Iterator[Callable[..., None]]:
    """Yield a function to call after each step, as ``tick()`` or ``tick("sub-01")``.

    `progress` is a function of the number of steps done, their total number and the
    name of the last step (`what`, if it has none), or True for a bar on standard error.

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
        from rich.console import Console
        from rich.progress import Progress as Bar

        with Bar(console=Console(stderr=True), transient=True) as bar:
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
