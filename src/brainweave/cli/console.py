"""Results on standard output; progress, warnings and errors on standard error.

Every error becomes one sentence and an exit code. 0: done. 1: the work could not be
done, or a part of it failed. 2: wrong usage. 130: interrupted.
"""

import os
import signal
import sys
import threading
import time
import traceback
import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from itertools import pairwise
from typing import Any, TypeAlias

from brainweave._core.exceptions import BrainweaveError, ClusterError, InputError

USAGE, FAILED, INTERRUPTED = 2, 1, 130
DEBUG = "BRAINWEAVE_DEBUG"


class UsageError(InputError):
    """The command was called in a way that cannot work."""


class Unwritable(BrainweaveError):
    """A place cannot be written to."""


class PartlyFailed(BrainweaveError):
    """Some subjects or methods failed and were named; the others are done."""


def run(arguments: Sequence[str]) -> int:
    """Run the command line; return the exit code."""
    from brainweave.cli.app import app

    Console().make_current()
    try:
        with _insisting_interrupts():
            code = app(
                args=list(arguments), prog_name="brainweave", standalone_mode=False
            )
    except KeyboardInterrupt:
        return _report_interruption()
    except Exception as error:
        # Typer turns an interruption into an exception of its own
        is_abort = type(error).__name__ == "Abort"
        return _report_interruption() if is_abort else _report(error, arguments)
    if code == INTERRUPTED:  # other versions of Typer return the exit code
        return _report_interruption()
    return code if isinstance(code, int) else 0


@contextmanager
def _insisting_interrupts() -> Iterator[None]:
    """Raise an interruption once more after five seconds.

    A callback of a C library, such as the one that looks for BLAS, swallows the first.
    """
    usual = signal.getsignal(signal.SIGINT) is signal.default_int_handler
    here = threading.current_thread() is threading.main_thread()
    if not (usual and here and hasattr(signal, "setitimer")):
        yield
        return

    def insist(number: int, frame: Any) -> None:
        signal.signal(signal.SIGALRM, signal.default_int_handler)
        signal.setitimer(signal.ITIMER_REAL, 5)
        signal.signal(signal.SIGINT, signal.default_int_handler)
        raise KeyboardInterrupt

    signal.signal(signal.SIGINT, insist)
    try:
        yield
    finally:
        if signal.getsignal(signal.SIGINT) is insist:
            signal.signal(signal.SIGINT, signal.default_int_handler)
        else:
            signal.setitimer(signal.ITIMER_REAL, 0)


# -- errors ----------------------------------------------------------------------------


def _report_interruption() -> int:
    _print_error("Interrupted; no partial files were left.", _current.resume_hint)
    return INTERRUPTED


def _report(error: Exception, arguments: Sequence[str]) -> int:
    """Print what went wrong; return the exit code."""
    if os.environ.get(DEBUG):
        traceback.print_exception(error)
    code, text = _exit_code(error), f"Error: {error_message(error)}"
    if code is None:
        hint = f"This should not happen. Set {DEBUG}=1 to see where, and report it."
        _print_error(text, hint)
        return FAILED
    is_cluster = isinstance(error, ClusterError)
    text += _value_given(error, arguments)
    _print_error(text, *([_current.resume_hint] if is_cluster else []))
    return code


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
    return text + explain(text, getattr(error, "parameter", None))


def explain(text: str, parameter: str | None = None) -> str:
    """Name the options and subjects that a message of the library is about.

    Examples
    --------
    >>> console = Console(params={"task": None, "leave_out": 9})
    >>> console.make_current()
    >>> explain("Choose one with task=...")
    ' On the command line: --task.'
    >>> explain("leave_out must be >= 1", "leave_out")
    ' On the command line: --leave-out.'
    >>> console.subject_ids = ["01", "02"]
    >>> explain("X[1] has NaN values.")
    ' X[1] is sub-02.'
    >>> Console().make_current()
    """
    ids = enumerate(_current.subject_ids)
    told = [f" X[{i}] is sub-{id}." for i, id in ids if f"X[{i}]" in text]
    names = [
        f"--{name.replace('_', '-')}"
        for name in _current.params
        if name == parameter
        or any(said in text for said in (f"{name}=", f"{name}_samples("))
        or text.startswith(f"{name} ")
    ]
    if names:
        told.append(f" On the command line: {', '.join(names)}.")
    return "".join(told)


def _exit_code(error: Exception) -> int | None:
    """Return the exit code of an expected error; None for a bug."""
    code = getattr(error, "exit_code", None)  # of Typer: wrong options
    if isinstance(code, int):
        return code
    if isinstance(error, (InputError, TypeError)) and _is_ours(error):
        return USAGE
    if isinstance(error, (BrainweaveError, OSError, MemoryError, ImportError)):
        return FAILED
    return None


def _is_ours(error: Exception) -> bool:
    """Whether our own code raised it: a TypeError from elsewhere is a bug."""
    if isinstance(error, BrainweaveError):
        return True
    frames = [frame for frame, _ in traceback.walk_tb(error.__traceback__)]
    module = str(frames[-1].f_globals.get("__name__")) if frames else ""
    return module.startswith("brainweave.")


def _value_given(error: Exception, arguments: Sequence[str]) -> str:
    """Return "; got VALUE" for an option that Typer could not read, else nothing."""
    names = getattr(getattr(error, "param", None), "opts", ())
    for argument, following in pairwise((*arguments, "")):
        name, equals, joined = argument.partition("=")
        if name in names:
            return f"; got {joined if equals else following!r}."
    return ""


def _one_line(text: Any) -> str:
    return " ".join(str(text).split())


def _print_error(*lines: str) -> None:
    print(*lines, sep="\n", file=sys.stderr)


# -- progress --------------------------------------------------------------------------

Tick: TypeAlias = Callable[[str], None]
Show: TypeAlias = Callable[[int, int | None, str], None]

LINE_EVERY = 5.0  # seconds between plain lines of one stage


class Console:
    """Prints results, and the progress of work: a bar on a terminal, else lines.

    It knows the command that runs, its options (``params``) and the names of those
    that are not left at their defaults (``given``).
    """

    def __init__(
        self,
        quiet: bool = False,
        command: str = "",
        params: dict[str, Any] | None = None,
        given: Iterable[str] = (),
    ) -> None:
        self.quiet, self.command = quiet, command
        self.params, self.given = dict(params or {}), set(given)
        self.subject_ids: list[str] = []  # whom a fit calls X[0], X[1], ...
        self.resume_hint = "Run the same command again."  # after an interruption
        self.bars = not quiet and sys.stderr.isatty()
        self.seconds: dict[str, float] = {}  # of each stage
        self.warnings: list[str] = []

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
    def stage(self, title: str, total: int | None = None) -> Iterator[Tick]:
        """Show a stage of the work; yield a function to call after each step."""
        done = 0
        with self.progress(title) as show:

            def tick(what: str) -> None:
                nonlocal done
                done += 1
                show(done, total, what)

            yield tick

    @contextmanager
    def progress(self, title: str) -> Iterator[Show]:
        """Show a stage; yield a function of the steps done, of all, and the last."""
        begin = last_line = time.perf_counter()
        if not self.bars:
            self.note(f"{title} ...")
        with _rich_bar(title) if self.bars else nullcontext() as draw:

            def show(done: int, total: int | None, what: str) -> None:
                nonlocal last_line
                now = time.perf_counter()
                if draw is not None:
                    draw(done, total, what)
                elif now - last_line >= LINE_EVERY and total and done < total:
                    last_line = now
                    self.note(f"{title}: {done} of {total} ({what})")

            yield show
        spent = time.perf_counter() - begin
        self.seconds[title] = self.seconds.get(title, 0) + spent
        if not self.bars:
            self.note(f"{title}: done in {spent:.1f} s")

    @contextmanager
    def collect_warnings(self) -> Iterator[None]:
        """Show warnings as one line each, once, and remember them for the report."""
        with warnings.catch_warnings():
            warnings.simplefilter("default")
            others = "pandas|nilearn|nibabel|sklearn|joblib"
            for category in (DeprecationWarning, FutureWarning):
                warnings.filterwarnings("ignore", category=category, module=others)
            warnings.showwarning = self._show_warning
            yield

    def _show_warning(self, message: Any, *_: Any, **__: Any) -> None:
        text = _one_line(message)
        text += explain(text)
        if text not in self.warnings:
            self.warnings.append(text)
            print(f"Warning: {text}", file=sys.stderr)


@contextmanager
def _rich_bar(title: str) -> Iterator[Show]:
    from rich.console import Console as RichConsole
    from rich.progress import Progress

    with Progress(console=RichConsole(stderr=True), transient=True) as bar:
        task = bar.add_task(title, total=None)

        def draw(done: int, total: int | None, what: str) -> None:
            count = f"{done}/{total}" if total else ""
            text = " ".join(filter(None, (f"{title}:", what, count)))
            bar.update(task, completed=done, total=total, description=text)

        yield draw


_current = Console()
