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
    """
    if progress is None or progress is False:
        yield lambda text=what: None
        return
    if progress is True:
        from rich.console import Console
        from rich.progress import Progress as Bar

        # a notebook gets the text of a terminal: rich's own bar there needs ipywidgets
        console = Console(stderr=True, force_jupyter=False)
        with Bar(console=console, transient=True) as bar:
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
