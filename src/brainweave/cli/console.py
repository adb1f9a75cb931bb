"""What people see: results on standard output, everything else on standard error.

Whatever goes wrong becomes one sentence and an exit code. 0: done. 1: the work could
not be done, or a part of it failed. 2: wrong usage. 130: interrupted.
"""

import errno
import os
import re
import signal
import sys
import threading
import time
import traceback
import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, TypeAlias

from brainweave.exceptions import BrainweaveError, InputError

USAGE, FAILED, INTERRUPTED = 2, 1, 130
DEBUG = "BRAINWEAVE_DEBUG"


class UsageError(InputError):
    """The command was called in a way that cannot work."""


class Unwritable(BrainweaveError):
    """A place cannot be written to."""


class PartlyFailed(BrainweaveError):
    """Some subjects failed and were named; the others are done."""


def run(arguments: Sequence[str]) -> int:
    """Run the command line; return the exit code."""
    from brainweave.cli.app import app
    from brainweave.cli.options import spread

    speak_of(())
    try:
        with listening():
            code = app(
                args=spread(arguments),
                prog_name="brainweave",
                standalone_mode=False,
            )
    except KeyboardInterrupt:
        return _interrupted()
    except Exception as error:
        # Typer turns an interruption into an exception of its own
        is_abort = type(error).__name__ == "Abort"
        return _interrupted() if is_abort else _explain(error, arguments)
    if code == INTERRUPTED:  # other versions of Typer give the exit code
        return _interrupted()
    return code if isinstance(code, int) else 0


def _interrupted() -> int:
    _tell("Interrupted. Every file that is there is whole.", _HINT[0])
    return INTERRUPTED


def _explain(error: Exception, arguments: Sequence[str]) -> int:
    if os.environ.get(DEBUG):
        traceback.print_exception(error)
    code = _exit_code(error)
    if code is None:
        _tell(
            f"Error: {explained(error)}",
            f"This should not happen. Set {DEBUG}=1 to see where, and report it.",
        )
        return FAILED
    _tell(f"Error: {_message(error)}{_value_of(error, arguments)}")
    return code


def explained(error: Exception) -> str:
    """Return one sentence about an error, also about one that nobody expected."""
    if _exit_code(error) is None:
        return f"{type(error).__name__}: {_one_line(str(error))}"
    return _message(error)


def _exit_code(error: Exception) -> int | None:
    """Return the code of an error that is expected, else None."""
    own = getattr(error, "exit_code", None)  # of Typer: wrong options
    if isinstance(own, int):
        return own
    if isinstance(error, (InputError, TypeError)) and _is_ours(error):
        return USAGE
    if isinstance(error, (BrainweaveError, OSError, MemoryError, ImportError)):
        return FAILED
    return None


def _is_ours(error: Exception) -> bool:
    """Whether our own code raised it: a TypeError from elsewhere is a mistake."""
    if isinstance(error, BrainweaveError):
        return True
    frames = [frame for frame, _ in traceback.walk_tb(error.__traceback__)]
    return bool(frames) and str(frames[-1].f_globals.get("__name__")).startswith(
        "brainweave."
    )


def _message(error: Exception) -> str:
    if hasattr(error, "format_message"):
        return _one_line(error.format_message())
    if isinstance(error, OSError) and not isinstance(error, BrainweaveError):
        return _os_message(error)
    if isinstance(error, MemoryError):
        return "There is not enough memory. Use fewer subjects at a time (--n-jobs 1)."
    text = _one_line(str(error))
    return text if isinstance(error, UsageError) else spoken(text)


def _value_of(error: Exception, arguments: Sequence[str]) -> str:
    """Return what was given for an option that could not be read, to be shown."""
    names = getattr(getattr(error, "param", None), "opts", ())
    for before, value in zip(("", *arguments), (*arguments, ""), strict=True):
        name, equals, joined = before.partition("=")
        if name in names:
            given = joined if equals else value
            percent = given.rstrip("%").strip()
            hint = ""
            if given.endswith("%") and percent.replace(".", "", 1).isdigit():
                hint = f" {percent} % is written {float(percent) / 100:g}."
            return f"; got {given!r}.{hint}"
    return ""


def _os_message(error: OSError) -> str:
    name = "" if error.filename is None else f" {str(error.filename)!r}"
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        return f"The disk is full{', writing' + name if name else ''}. Free some space."
    if error.errno in (errno.EACCES, errno.EPERM, errno.EROFS):
        return f"No permission to use{name or ' a file'}. Choose another folder."
    reason = error.strerror or str(error)
    return f"{reason}:{name}." if name else f"{_one_line(reason)}."


def _one_line(text: str) -> str:
    return " ".join(str(text).split())


def _tell(*lines: str) -> None:
    print(*lines, sep="\n", file=sys.stderr)


# -- the language of the command line --------------------------------------------------

QUOTE = "'"
_OPTIONS: set[str] = set()
_SUBJECTS: list[str] = []  # those that a fit which runs calls X[0], X[1], ...


def speak_of(names: Iterable[str]) -> None:
    """Say which options the command that runs has."""
    _OPTIONS.clear()
    _SUBJECTS.clear()
    _OPTIONS.update(names)


def subjects_are(ids: Iterable[str]) -> None:
    """Say who the subjects are that a fit of all of them knows by position."""
    _SUBJECTS[:] = ids


def _subject(found: "re.Match[str]") -> str:
    position = int(found[1])
    return f"sub-{_SUBJECTS[position]}" if position < len(_SUBJECTS) else found[0]


def spoken(text: str) -> str:
    """Turn the library's names of parameters into options of the command that runs.

    Examples
    --------
    >>> speak_of(["task", "leave_out", "n_components", "param", "match", "overwrite"])
    >>> spoken("Choose one with task=...")
    'Choose one with --task ...'
    >>> spoken("leave_out=9 leaves no subject")
    '--leave-out 9 leaves no subject'
    >>> spoken("n_components='auto' keeps the informative ones")
    '--n-components auto keeps the informative ones'
    >>> spoken("n_components of GDM must be >= 1, got 0.")
    '--n-components must be >= 1, got 0.'
    >>> spoken("Give derivatives=..., or overwrite=True.")
    'Give --param derivatives=..., or --overwrite.'
    >>> speak_of([])
    """
    text = re.sub(r"\b([a-z][a-z_]*)=(True\b|False\b|\.\.\.|[^\s,;:=]+)", _option, text)
    text = re.sub(
        r"\b([a-z][a-z_]*) of (?:[A-Z]\w+|the evaluation|load_\w+)\b", _named, text
    )
    text = re.sub(r"^([a-z][a-z_]*)(?= must be )", _named, text)
    if _SUBJECTS:
        text = re.sub(r"\bX\[(\d+)\]", _subject, text)
    if "match" in _OPTIONS:
        text = re.sub(
            r"brainweave\.match_samples\(.*?\)",
            "--match truncate, average or intersect",
            text,
        )
    return text


def _option(found: "re.Match[str]") -> str:
    name, value = found[1], found[2]
    if name in _OPTIONS:
        shown = f"--{name.replace('_', '-')}"
        if value in ("True", "False"):
            return shown if value == "True" else shown.replace("--", "--no-", 1)
        return f"{shown} {value.strip(QUOTE)}"
    for free in ("param", "bids_param"):
        if free in _OPTIONS and value == "...":
            return f"--{free.replace('_', '-')} {name}=..."
    return found[0]


def _named(found: "re.Match[str]") -> str:
    return f"--{found[1].replace('_', '-')}" if found[1] in _OPTIONS else found[0]


# -- interruptions ---------------------------------------------------------------------

_HINT = ["Run the same command again."]
_asked = threading.Event()


def resume_with(hint: str) -> None:
    """Say what to do after an interruption of what runs now."""
    _HINT[0] = hint


@contextmanager
def listening() -> Iterator[None]:
    """Remember an interruption of the work inside.

    Python raises KeyboardInterrupt wherever it happens to be; inside a destructor or a
    callback of a compiled library it is printed and lost. So it is raised again at the
    next step of the work.
    """
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


# -- progress and tables ---------------------------------------------------------------

Tick: TypeAlias = Callable[[str], None]
Show: TypeAlias = Callable[[int, int | None, str], None]

LINE_EVERY = 5.0  # seconds between plain lines of one stage


class Console:
    """Tells about stages of work: a bar on a terminal, plain lines elsewhere."""

    def __init__(self, quiet: bool = False) -> None:
        self.quiet = quiet
        self.bars = not quiet and sys.stderr.isatty()
        self.command, self.params = "", dict[str, Any]()  # that runs, as it was given
        self.seconds: dict[str, float] = {}
        self.warnings: list[str] = []

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
        """Show a stage of the work; call what it gives after each of its steps."""
        done = 0
        with self.counted(title, total, has_total=total is not None) as show:

            def tick(what: str) -> None:
                nonlocal done
                done += 1
                show(done, total, what)

            yield tick

    @contextmanager
    def counted(
        self, title: str, total: int | None = None, *, has_total: bool = True
    ) -> Iterator[Show]:
        """Show a stage whose work counts its own steps: (done, all, what was done)."""
        begin = time.perf_counter()
        with (
            self._bar(title, total, has_total)
            if self.bars
            else self._lines(title) as show
        ):

            def heard(done: int, total: int | None, what: str) -> None:
                check_interrupted()
                show(done, total, what)

            yield heard
        spent = time.perf_counter() - begin
        self.seconds[title] = self.seconds.get(title, 0) + spent
        if not self.bars:
            self.note(f"{title}: done in {spent:.1f} s")

    @contextmanager
    def _lines(self, title: str) -> Iterator[Show]:
        start = last = time.perf_counter()
        before = 0
        self.note(f"{title} ...")

        def show(done: int, total: int | None, what: str) -> None:
            nonlocal last, start, before
            now = time.perf_counter()
            if done < before:  # another round of the work counts anew
                start = now
            before = done
            if done and now - last >= LINE_EVERY and done < (total or 0):
                last = now
                left = (now - start) / done * ((total or 0) - done)
                self.note(f"{title}: {done} of {total} ({what}), {left:.0f} s left")

        yield show

    @contextmanager
    def _bar(self, title: str, total: int | None, has_total: bool) -> Iterator[Show]:
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
        console = RichConsole(stderr=True)
        with progress.Progress(*columns, console=console, transient=True) as bar:
            task = bar.add_task(title, total=total)

            def show(done: int, total: int | None, what: str) -> None:
                text = f"{title}: {what}" if what else title
                bar.update(task, completed=done, total=total, description=text)

            yield show

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
