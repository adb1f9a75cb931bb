"""Results on standard output; progress, warnings and errors on standard error.

Every error becomes one sentence and an exit code. 0: done. 1: the work could not be
done, or a part of it failed. 2: wrong usage. 130: interrupted.
"""

import os
import sys
import time
import traceback
import warnings
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import count
from typing import Any, TypeAlias

from brainweave._core.exceptions import BrainweaveError, ClusterError, InputError

USAGE, FAILED, INTERRUPTED = 2, 1, 130
DEBUG = "BRAINWEAVE_DEBUG"
Show: TypeAlias = Callable[..., None]  # to be called after each step


class UsageError(InputError):
    """The command was called in a way that cannot work."""


class PartlyFailed(BrainweaveError):
    """Some subjects or methods failed and were named; the others are done."""


def run(arguments: Sequence[str]) -> int:
    """Run the command line; return the exit code."""
    from brainweave.cli.app import app

    Console().make_current()
    try:
        code = app(args=list(arguments), prog_name="brainweave", standalone_mode=False)
    except KeyboardInterrupt:
        code = INTERRUPTED
    except Exception as error:
        # Typer turns an interruption into an exception of its own
        code = INTERRUPTED if type(error).__name__ == "Abort" else _report(error)
    if code == INTERRUPTED:  # other versions of Typer return the exit code
        told = "Interrupted; no partial files were left."
        print(told, _current.resume_hint, sep="\n", file=sys.stderr)
    return code if isinstance(code, int) else 0


# -- errors ----------------------------------------------------------------------------


def _report(error: Exception) -> int:
    """Print what went wrong; return the exit code."""
    if os.environ.get(DEBUG):
        traceback.print_exception(error)
    code, lines = _exit_code(error), [f"Error: {error_message(error)}"]
    if code is None:
        lines.append(f"This should not happen. Set {DEBUG}=1 to see where.")
    elif isinstance(error, ClusterError):
        lines.append(_current.resume_hint)
    print(*lines, sep="\n", file=sys.stderr)
    return FAILED if code is None else code


def error_message(error: Exception) -> str:
    """Return one sentence about an error, also about an unexpected one."""
    if _exit_code(error) is None:
        return f"{type(error).__name__}: {_one_line(error)}"
    if hasattr(error, "format_message"):  # of Typer
        return _one_line(error.format_message())
    if isinstance(error, OSError) and not isinstance(error, BrainweaveError):
        name = "" if error.filename is None else f": {str(error.filename)!r}"
        return f"{_one_line(error.strerror or error)}{name}."
    if isinstance(error, MemoryError):
        return "There is not enough memory. Use fewer subjects at a time (--n-jobs 1)."
    text = _one_line(error)
    if isinstance(error, UsageError):
        return text
    # the library names subjects and parameters, the command ids and options
    ids, blamed = enumerate(_current.subject_ids), getattr(error, "parameter", None)
    told = [f" X[{i}] is sub-{id}." for i, id in ids if f"X[{i}]" in text]
    for name in _current.params:
        known = (f"{name}=" in text, f"{name}_samples(" in text)
        if name == blamed or any(known) or text.startswith(f"{name} "):
            told.append(f" On the command line: --{name.replace('_', '-')}.")
    return text + "".join(told)


def _exit_code(error: Exception) -> int | None:
    """Return the exit code of an expected error; None for a bug."""
    code = getattr(error, "exit_code", None)  # of Typer: wrong options
    if isinstance(code, int):
        return code
    frames = traceback.extract_tb(error.__traceback__)
    ours = bool(frames) and "brainweave" in frames[-1].filename  # else it is a bug
    if isinstance(error, InputError) or (isinstance(error, TypeError) and ours):
        return USAGE
    if isinstance(error, (BrainweaveError, OSError, MemoryError, ImportError)):
        return FAILED
    return None


def _one_line(text: Any) -> str:
    return " ".join(str(text).split())


# -- progress --------------------------------------------------------------------------

LINE_EVERY = 5.0  # seconds between plain lines of one stage


@dataclass
class Console:
    """Prints results, and the progress of work: a bar on a terminal, else lines."""

    quiet: bool = False
    command: str = ""  # that runs
    params: dict[str, Any] = field(default_factory=dict)  # its options
    given: Collection[str] = ()  # the names of those that are not the defaults
    subject_ids: list[str] = field(default_factory=list)  # whom a fit calls X[0], ...
    resume_hint: str = "Run the same command again."  # after an interruption
    seconds: dict[str, float] = field(default_factory=dict)  # of each stage
    warnings: list[str] = field(default_factory=list)

    def make_current(self) -> None:
        """Let error messages name the options of this command, and its hint."""
        global _current
        _current = self

    def result(self, text: str) -> None:
        """Print a result on standard output."""
        try:
            print(text, flush=True)
        except BrokenPipeError:  # its reader went away, as in "brainweave info | head"
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())

    def note(self, text: str) -> None:
        """Print a remark, unless quiet."""
        if not self.quiet:
            print(text, file=sys.stderr)

    @contextmanager
    def stage(self, title: str, total: int | None = None) -> Iterator[Show]:
        """Show a stage of the work; yield a function to call after each step."""
        with self.progress(title) as show:
            done = count(1)
            yield lambda what: show(next(done), total, what)

    @contextmanager
    def progress(self, title: str) -> Iterator[Show]:
        """Show a stage; yield a function of the steps done, of all, and the last."""
        from rich.console import Console as RichConsole
        from rich.progress import Progress

        begin = last_line = time.perf_counter()
        bars = not self.quiet and sys.stderr.isatty()
        console = RichConsole(stderr=True)
        bar = Progress(console=console, disable=not bars, transient=True)
        task = bar.add_task(title, total=None)

        def show(done: int, total: int | None, what: str) -> None:
            nonlocal last_line
            told = f"{done} of {total} ({what})" if total else what
            told = f"{title}: {told}"
            bar.update(task, completed=done, total=total, description=told)
            now = time.perf_counter()
            if not bars and now - last_line >= LINE_EVERY and total and done < total:
                last_line = now
                self.note(told)

        if not bars:
            self.note(f"{title} ...")
        with bar:
            yield show
        spent = time.perf_counter() - begin
        self.seconds[title] = self.seconds.get(title, 0) + spent
        if not bars:
            self.note(f"{title}: done in {spent:.1f} s")

    @contextmanager
    def collect_warnings(self) -> Iterator[None]:
        """Show warnings as one line each, once, and remember them for the report."""

        def show(message: Any, *_: Any, **__: Any) -> None:
            text = _one_line(message)
            if text not in self.warnings:
                self.warnings.append(text)
                print(f"Warning: {text}", file=sys.stderr)

        with warnings.catch_warnings():
            warnings.simplefilter("default")
            others = "pandas|nilearn|nibabel|sklearn|joblib"
            for category in (DeprecationWarning, FutureWarning):
                warnings.filterwarnings("ignore", category=category, module=others)
            warnings.showwarning = show
            yield


_current = Console()
