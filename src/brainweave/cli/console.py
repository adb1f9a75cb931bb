"""What people see: results on standard output, everything else on standard error."""

import sys
import time
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, TypeAlias

from brainweave.cli.errors import spoken
from brainweave.cli.interruption import check_interrupted

Tick: TypeAlias = Callable[[str], None]

LINE_EVERY = 5.0  # seconds between plain lines of one stage


class Console:
    """Tells about stages of work, with a bar on a terminal and plain lines elsewhere.

    Parameters
    ----------
    quiet : bool
        Show results and warnings only.
    """

    def __init__(self, quiet: bool = False) -> None:
        self.quiet = quiet
        self.bars = not quiet and sys.stderr.isatty()
        self.seconds: dict[str, float] = {}
        self.warnings: list[str] = []

    def result(self, text: str) -> None:
        """Print a result on standard output."""
        print(text)

    def note(self, text: str) -> None:
        """Print a remark, unless quiet."""
        if not self.quiet:
            print(text, file=sys.stderr)

    @contextmanager
    def stage(self, title: str, total: int | None = None) -> Iterator[Tick]:
        """Show a stage of the work; call what it gives after each of its steps."""
        start = time.perf_counter()
        watch = self._bar if self.bars else self._lines
        with watch(title, total) as tick:

            def step(what: str) -> None:
                check_interrupted()
                tick(what)

            yield step
        self.seconds[title] = self.seconds.get(title, 0) + time.perf_counter() - start

    @contextmanager
    def _bar(self, title: str, total: int | None) -> Iterator[Tick]:
        with self._rich_bar(total=total is not None) as progress:
            task = progress.add_task(title, total=total)

            def tick(what: str) -> None:
                text = f"{title}: {what}" if what else title
                progress.update(task, advance=1, description=text)

            yield tick

    def _rich_bar(self, *, total: bool) -> Any:
        from rich.console import Console as RichConsole
        from rich.progress import (
            BarColumn,
            MofNCompleteColumn,
            Progress,
            SpinnerColumn,
            TextColumn,
            TimeElapsedColumn,
            TimeRemainingColumn,
        )

        columns: list[Any] = [SpinnerColumn(), TextColumn("{task.description}")]
        columns += [BarColumn(), TimeElapsedColumn()]
        if total:
            columns += [MofNCompleteColumn(), TextColumn("left"), TimeRemainingColumn()]
        console = RichConsole(stderr=True)
        return Progress(*columns, console=console, transient=True)

    @contextmanager
    def _lines(self, title: str, total: int | None) -> Iterator[Tick]:
        start = last = time.perf_counter()
        done = 0
        self.note(f"{title} ...")

        def tick(what: str) -> None:
            nonlocal done, last
            done += 1
            now = time.perf_counter()
            if now - last < LINE_EVERY or total is None or done >= total:
                return
            last = now
            left = (now - start) / done * (total - done)
            self.note(f"{title}: {done} of {total} ({what}), {left:.0f} s left")

        yield tick
        self.note(f"{title}: done in {time.perf_counter() - start:.1f} s")

    @contextmanager
    def counted(self, title: str) -> Iterator[Callable[[int, int, str], None]]:
        """Show a stage whose work counts its own steps: (done, all, what was done)."""
        if self.bars:
            with self._rich_bar(total=True) as progress:
                task = progress.add_task(title, total=None)

                def show(done: int, total: int, what: str) -> None:
                    text = f"{title}: {what}" if what else title
                    progress.update(task, completed=done, total=total, description=text)

                yield show
            return
        begin = last = time.perf_counter()
        start, before = begin, 0
        self.note(f"{title} ...")

        def tell(done: int, total: int, what: str) -> None:
            nonlocal last, start, before
            now = time.perf_counter()
            if done < before:  # another round of the work counts anew
                start = now
            before = done
            if done and (now - last >= LINE_EVERY) and done < total:
                last = now
                left = (now - start) / done * (total - done)
                self.note(f"{title}: {done} of {total} ({what}), {left:.0f} s left")

        yield tell
        self.note(f"{title}: done in {time.perf_counter() - begin:.1f} s")

    @contextmanager
    def collect_warnings(self) -> Iterator[None]:
        """Show warnings as one line each, once, and remember them for the report."""
        with warnings.catch_warnings():
            warnings.simplefilter("default")
            for module in ("pandas", "nilearn", "nibabel", "sklearn", "joblib"):
                warnings.filterwarnings(
                    "ignore", category=DeprecationWarning, module=module
                )
                warnings.filterwarnings("ignore", category=FutureWarning, module=module)
            warnings.showwarning = self._show
            yield

    def _show(self, message: Any, *_: Any, **__: Any) -> None:
        text = spoken(" ".join(str(message).split()))
        if text not in self.warnings:
            self.warnings.append(text)
            print(f"Warning: {text}", file=sys.stderr)


def table(rows: list[list[Any]], header: list[str]) -> str:
    """Lay out a table of plain text.

    Examples
    --------
    >>> print(table([["GDM", 0.8], ["SRM", 0.55]], ["method", "mean"]))
    method  mean
    GDM      0.8
    SRM     0.55
    """
    cells = [header, *([_cell(c) for c in row] for row in rows)]
    widths = [max(len(row[i]) for row in cells) for i in range(len(header))]
    numeric = [
        bool(rows) and all(isinstance(row[i], (int, float)) for row in rows)
        for i in range(len(header))
    ]
    lines = []
    for row in cells:
        parts = [
            cell.rjust(width) if right else cell.ljust(width)
            for cell, width, right in zip(row, widths, numeric, strict=True)
        ]
        lines.append("  ".join(parts).rstrip())
    return "\n".join(lines)


def _cell(value: Any) -> str:
    return f"{value:.4g}" if isinstance(value, float) else str(value)
