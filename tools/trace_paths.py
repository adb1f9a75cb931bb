"""Count the package's files and functions that common tasks pass through.

``python tools/trace_paths.py`` prints a table in Markdown, for the architecture page of
CONTRIBUTING. A function counts once, with its methods, inner functions and properties,
and a file counts if one of its functions runs; what imports run does not count.
``python tools/trace_paths.py FOLDER ...`` prints the sizes of packages in folders.
"""

import ast
import sys
import tempfile
import threading
import warnings
from collections.abc import Callable
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Any

import brainweave as bw
from brainweave.cli.console import run as run_command
from brainweave.report import write_report

PACKAGE = str(Path(bw.__file__).parent)
NO_NAME = {"<module>", "<lambda>", "<genexpr>", "<listcomp>", "<dictcomp>", "<setcomp>"}


@contextmanager
def traced(found: set[tuple[str, str, int]]):
    """Collect the package's functions that run, in all threads."""

    def note(frame: FrameType, event: str, _: Any) -> None:
        code = frame.f_code
        if event == "call" and code.co_filename.startswith(PACKAGE):
            found.add((code.co_filename, code.co_qualname, code.co_firstlineno))

    threading.setprofile(note)
    sys.setprofile(note)
    try:
        yield
    finally:
        sys.setprofile(None)
        threading.setprofile(None)


def tasks(folder: Path) -> dict[str, Callable[[], Any]]:
    """Return what is traced; all of it works on one small study."""
    study = bw.simulate_study(n_subjects=4, n_voxels=60, categories=3, random_state=0)
    study.to_bids(folder / "bids")
    study.save(folder / "study")
    gdm = bw.GDM().fit(study)

    def command(*words: Any) -> None:
        if run_command([*map(str, words), "-q"]) != 0:
            raise RuntimeError(f"brainweave {' '.join(map(str, words))} failed.")

    return {
        "`GDM().fit(study)`": lambda: bw.GDM().fit(study),
        "`PaperGDM().fit(study)`": lambda: bw.PaperGDM(2).fit(study),
        "`between_subject_classification(GDM(), study)`": (
            lambda: bw.between_subject_classification(bw.GDM(), study)
        ),
        "`load_bids(folder)`, and reading it": (
            lambda: [s.data() for s in bw.load_bids(folder / "bids")]
        ),
        "`compare_methods(study, ...)`": (
            lambda: bw.compare_methods(study, {"GDM": bw.GDM(), "SRM": bw.SRM(2)})
        ),
        "`write_report(study, model)`": (
            lambda: write_report(folder / "r.html", study=study, model=gdm)
        ),
        "`brainweave compare`": (
            lambda: command("compare", folder / "study", "-o", folder / "compared")
        ),
        "`brainweave run ... participant`": (
            lambda: command("run", folder / "bids", folder / "app", "participant")
        ),
    }


def size(package: Path) -> str:
    """Return the row of a table: lines, share of docstrings, files and functions."""
    texts = [path.read_text(encoding="utf-8") for path in package.rglob("*.py")]
    nodes = [node for text in texts for node in ast.walk(ast.parse(text))]
    n_lines = sum(len(text.splitlines()) for text in texts)
    functions = [n for n in nodes if isinstance(n, ast.FunctionDef)]
    documented = (ast.Module, ast.ClassDef, ast.FunctionDef)
    found = [n for n in nodes if isinstance(n, documented) and ast.get_docstring(n)]
    docs = [n.body[0] for n in found]
    n_docs = sum((doc.end_lineno or 0) - doc.lineno + 1 for doc in docs)
    cells = f"{n_lines:,}", f"{n_docs / n_lines:.0%}", len(texts), f"{len(functions):,}"
    return f"| {package} | {' | '.join(map(str, cells))} |"


def main() -> None:
    """Run each task once to import what it needs, then trace it."""
    if sys.argv[1:]:
        print("| package | lines | docstrings | files | functions |")
        print("| --- | --- | --- | --- | --- |")
        print(*(size(Path(folder)) for folder in sys.argv[1:]), sep="\n")
        return
    print("| task | files | functions |\n| --- | --- | --- |")
    warnings.simplefilter("ignore")
    with tempfile.TemporaryDirectory() as warm, tempfile.TemporaryDirectory() as cold:
        for task in tasks(Path(warm)).values():
            task()
        for name, task in tasks(Path(cold)).items():
            found: set[tuple[str, str, int]] = set()
            with traced(found):
                task()
            named = {f for f in found if f[1].rpartition(".")[2] not in NO_NAME}
            print(f"| {name} | {len({f[0] for f in named})} | {len(named)} |")


if __name__ == "__main__":
    main()
