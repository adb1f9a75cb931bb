"""What people see: results on standard output, everything else on standard error."""

import sys
import time
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, TypeAlias

from brainweave.cli.errors import check_interrupted, spoken

Tick: TypeAlias = Callable[[str], None]
Show: TypeAlias = Callable[[int, int | None, str], None]

LINE_EVERY = 5.0  # seconds between plain lines of one stage


class Console:
    """Tells about stages of work: a bar on a terminal, plain lines elsewhere."""

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
        start, done = time.perf_counter(), 0
        with self.counted(title, total, has_total=total is not None) as show:

            def tick(what: str) -> None:
                nonlocal done
                check_interrupted()
                done += 1
                show(done, total, what)

            yield tick
        self.seconds[title] = self.seconds.get(title, 0) + time.perf_counter() - start

    @contextmanager
    def counted(
        self, title: str, total: int | None = None, *, has_total: bool = True
    ) -> Iterator[Show]:
        """Show a stage whose work counts its own steps: (done, all, what was done)."""
        if self.bars:
            with _bar(has_total=has_total) as progress:
                task = progress.add_task(title, total=total)

                def show(done: int, total: int | None, what: str) -> None:
                    text = f"{title}: {what}" if what else title
                    progress.update(task, completed=done, total=total, description=text)

                yield show
            return
        begin = start = last = time.perf_counter()
        before = 0
        self.note(f"{title} ...")

        def tell(done: int, total: int | None, what: str) -> None:
            nonlocal last, start, before
            now = time.perf_counter()
            if done < before:  # another round of the work counts anew
                start = now
            before = done
            if done and now - last >= LINE_EVERY and done < (total or 0):
                last = now
                left = (now - start) / done * ((total or 0) - done)
                self.note(f"{title}: {done} of {total} ({what}), {left:.0f} s left")

        yield tell
        self.note(f"{title}: done in {time.perf_counter() - begin:.1f} s")

    @contextmanager
    def collect_warnings(self) -> Iterator[None]:
        """Show warnings as one line each, once, and remember them for the report."""
        with warnings.catch_warnings():
            warnings.simplefilter("default")
            others = "pandas|nilearn|nibabel|sklearn|joblib"
            for category in (DeprecationWarning, FutureWarning):
                warnings.filterwarnings("ignore", category=category, module=others)
            warnings.showwarning = self._show
            yield

    def _show(self, message: Any, *_: Any, **__: Any) -> None:
        text = spoken(" ".join(str(message).split()))
        if text not in self.warnings:
            self.warnings.append(text)
            print(f"Warning: {text}", file=sys.stderr)


def _bar(*, has_total: bool) -> Any:
    from rich import progress
    from rich.console import Console as RichConsole

    columns: list[Any] = [
        progress.SpinnerColumn(),
        progress.TextColumn("{task.description}"),
        progress.BarColumn(),
        progress.TimeElapsedColumn(),
    ]
    if has_total:
        columns += [progress.MofNCompleteColumn(), progress.TextColumn("left")]
        columns.append(progress.TimeRemainingColumn())
    return progress.Progress(*columns, console=RichConsole(stderr=True), transient=True)


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
