"""Folders that are written whole: made beside their place, then moved into it.

A process that is killed leaves a hidden folder, named after itself; whoever writes to
the same place next sees that this process is gone, and removes it.
"""

import json
import os
import shutil
import uuid
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from brainweave._io import is_alive, machine_name, write_text
from brainweave.exceptions import StudyError

__all__ = [
    "exchange",
    "move_into_place",
    "remove_remains",
    "restore",
    "working_folder",
]

# In a working folder: what is moved out of it, and what goes once that is done.
_JOURNAL = "journal.json"


@contextmanager
def working_folder(target: Path) -> Iterator[Path]:
    """Make a hidden folder to write into: within the target if it exists, or beside."""
    me = f"{machine_name()}-{os.getpid()}-{uuid.uuid4().hex[:8]}.partial"
    work = target / f".{me}" if target.exists() else _beside(target, me)
    work.mkdir()
    try:
        yield work
    finally:
        # after a rename, there is nothing left under this name
        if work.exists():
            _remove(work, target)


def move_into_place(work: Path, target: Path) -> None:
    """Rename a finished folder to its name."""
    if target.exists():  # it appeared meanwhile; a rename could hide that
        raise StudyError(f"{str(target)!r} was made by somebody else meanwhile.")
    work.rename(target)


def exchange(work: Path, target: Path, index: str, old: Sequence[str]) -> None:
    """Put finished files into an existing folder; its index changes in one step.

    Until then the old files and their index are there, afterwards the new ones;
    a journal tells whoever comes after a crash which files belong to neither.

    Parameters
    ----------
    work : Path
        Folder within the target that holds the new files, with names that are free.
    target : Path
        Folder to move them into.
    index : str
        The file that lists the others; it is moved last and replaces the old one.
    old : sequence of str
        Names of the files that go with the old index.
    """
    new = [path.name for path in work.iterdir() if path.name != index]
    write_text(work / _JOURNAL, json.dumps({"index": index, "files": [*new, *old]}))
    for name in new:
        if (target / name).exists():
            raise StudyError(f"{str(target / name)!r} was made by somebody else.")
        (work / name).rename(target / name)
    os.replace(work / index, target / index)


def restore(target: Path) -> None:
    """Bring back a study that lost its name when it was to be replaced.

    Earlier versions renamed the old folder away before they renamed the new one into
    its place; killed in between, they left it under a hidden name.
    """
    if target.exists() or not target.parent.is_dir():
        return
    for old in sorted(target.parent.glob(f".{_escaped(target.name)}.*.partial.old")):
        if old.is_dir() and not old.is_symlink():
            old.rename(target)
            return


def remove_remains(target: Path) -> None:
    """Remove the working folders of processes of this machine that are gone."""
    found = list(target.parent.glob(f".{_escaped(target.name)}.*.partial"))
    if target.is_dir():
        found += target.glob(".*.partial")
    for work in found:
        if work.is_dir() and not work.is_symlink() and _is_dead(work.name):
            _remove(work, target)


def _remove(work: Path, target: Path) -> None:
    """Remove a working folder, and the files that the index does not list."""
    try:
        journal = json.loads((work / _JOURNAL).read_text(encoding="utf-8"))
        listing = (target / journal["index"]).read_text(encoding="utf-8")
        for name in journal["files"]:
            path = target / name
            # names in an index are JSON strings, as they are here
            if path.name == name and json.dumps(name) not in listing:
                path.unlink(missing_ok=True)
    except (OSError, ValueError, KeyError, TypeError):
        pass  # no journal: nothing was moved
    shutil.rmtree(work, ignore_errors=True)


def _is_dead(name: str) -> bool:
    host, _, rest = name.removesuffix(".partial").rpartition(".")[2].partition("-")
    pid = rest.partition("-")[0]
    if host != machine_name() or not pid.isdigit():
        return False  # of another machine, or of another version
    # on Windows a signal would end the process that is asked for
    return os.name == "posix" and not is_alive(int(pid))


def _beside(target: Path, me: str) -> Path:
    return target.with_name(f".{target.name}.{me}")


def _escaped(name: str) -> str:
    return "".join(f"[{c}]" if c in "*?[" else c for c in name)
