"""Change the code in small ways and see whether the tests nearest to it notice.

``make mutants`` runs a fixed sample per module; ``python tools/mutants.py linalg
--all`` every mutant of one. A mutant is one change: a comparison, an operator, a
number, a condition, a statement or a result that is gone, two arguments swapped. It is
run in a copy of the package, in a fork of this process, with those of the nearest tests
that execute the changed line, up to the first failure. What survives is a test that is
missing, code that is not needed, or a change that no result can show; those are listed
with the reason in ``tools/equivalent_mutants.toml``.

Left alone: texts, annotations, decorators, what raise statements and warnings say,
arguments that by their meaning change no result (``HARMLESS``), and code for devices
with the conditions that lead to it, whose tests need torch (``make test-torch``). Needs
``os.fork``.
"""

import argparse
import ast
import compileall
import copy
import gc
import hashlib
import importlib
import json
import os
import py_compile
import re
import resource
import shutil
import signal
import sys
import tempfile
import time
import tomllib
from collections import Counter
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
PACKAGE = ROOT / "src" / "brainweave"
KEPT = ROOT / "build" / "mutants"  # which tests execute which lines
EXPLAINED = ROOT / "tools" / "equivalent_mutants.toml"
# module -> the tests nearest to it
GDM = ("gdm", *(f"gdm_{part}" for part in ("errors", "newcomer", "paper", "shrinkage")))
PLACE = ("place", "place_brains", "place_choice")
SHARED = ("solutions", *PLACE)
CHECK = ("halves_of_samples", "held_out", "components", "alignment_check_says_why")
CHECK += ("check_in_words", "check_is_calibrated")
ANY_ALIGNER = ("conformance", "maps", "subjects_by_id", "inputs_and_habits")
NEAREST = {
    "_core/arrays": ["core/test_arrays", "basis/test_voxels", "basis/test_basis"],
    "_core/labels": ["core/test_labels", "study/test_samples"],
    "_core/workers": ["core/test_workers", "evaluation/test_every_aligner"],
    "_core/validation": [
        *("core/test_subjects", "aligners/test_subjects_by_id", "study/test_study"),
        *("core/test_validation", "aligners/test_inputs_and_habits"),
        "aligners/test_gdm_errors",
        *("aligners/test_conformance", "basis/test_basis"),
    ],
    "study/samples": [
        *("study/test_samples", "evaluation/test_scores", "evaluation/test_splits"),
        "evaluation/test_classification",
    ],
    "graphs/builders": [
        *("graphs/test_graphs", "graphs/test_feature_graph"),
        *("aligners/test_gdm_algorithm1", "aligners/test_gdm_errors"),
    ],
    "basis/basis": [
        *("basis/test_dense_basis", "basis/test_basis"),
        "aligners/test_reliable_voxels",
    ],
    "basis/kernels": [
        f"basis/test_{name}" for name in ("kernels", "dense_basis", "basis")
    ],
    "basis/voxels": [
        f"basis/test_{name}"
        for name in ("voxels", "signatures", "dense_basis", "basis")
    ],
    "basis/linalg": ["basis/test_linalg", "evaluation/test_metrics"],
    "basis/places": [
        *("basis/test_places", "study/test_place_labels"),
        *(f"aligners/test_{name}" for name in PLACE),
    ],
    "basis/reliability": ["basis/test_reliability", "aligners/test_reliable_voxels"],
    "aligners/base": [
        f"aligners/test_{name}"
        for name in ("base", *ANY_ALIGNER, *GDM, "reliable_voxels")
    ],
    "aligners/maps": [
        *(f"aligners/test_{name}" for name in (*ANY_ALIGNER, "parcelwise")),
        *("persistence/test_models", "persistence/test_refusals"),
    ],
    "aligners/no_alignment": [
        "aligners/test_no_alignment",
        "aligners/test_conformance",
    ],
    "aligners/timelocked": [
        f"aligners/test_{name}"
        for name in ("rows_of_new", "hyperalignment", "srm", *ANY_ALIGNER)
    ],
    **{
        f"aligners/{name}": [
            f"aligners/test_{near}" for near in (name, "rows_of_new", "conformance")
        ]
        for name in ("promises", "gcca", "ridge_alignment")
    },
    "aligners/hyperalignment": [
        f"aligners/test_{name}"
        for name in ("rows_of_new", "hyperalignment", "procrustes", "conformance")
    ],
    "aligners/srm/srm": ["aligners/test_srm", "aligners/test_conformance"],
    "aligners/srm/robust": ["aligners/test_robust_srm", "aligners/test_conformance"],
    "aligners/srm/semisupervised": [
        *("aligners/test_semisupervised_srm", "aligners/test_conformance"),
    ],
    "aligners/gdm/base": [f"aligners/test_{name}" for name in (*GDM, "gdm_solver")],
    "aligners/gdm/gdm": [
        f"aligners/test_{name}" for name in (*GDM, *PLACE, "subject_constraint")
    ],
    "aligners/gdm/paper": [
        f"aligners/test_{name}"
        for name in ("solutions", *GDM, "gdm_algorithm1", "gdm_solver")
    ],
    "aligners/gdm/graph_parsing": [
        f"aligners/test_{name}"
        for name in (*GDM, "gdm_algorithm1", "subject_constraint")
    ],
    "aligners/gdm/eigenproblem": [
        f"aligners/test_{name}"
        for name in ("solutions", *GDM, "gdm_solver", "shrinkage")
    ],
    "aligners/gdm/joint": [
        f"aligners/test_{name}"
        for name in ("smoothers", "place", "place_choice", "shrinkage")
    ],
    "aligners/gdm/shared_map": [f"aligners/test_{name}" for name in SHARED],
    "aligners/gdm/agreement_choice": [
        f"aligners/test_{name}"
        for name in ("agreement_pieces", *PLACE, "gdm_shrinkage")
    ],
    "aligners/gdm/new_subject": [
        f"aligners/test_{name}" for name in ("gdm_newcomer", "place", "place_choice")
    ],
    "aligners/gdm/ridge": [
        f"aligners/test_{name}"
        for name in (
            *("solutions", "shrinkage", "gdm_shrinkage", "subject_constraint"),
            "place",
        )
    ],
    "aligners/gdm/smoother": [
        f"aligners/test_{name}"
        for name in ("smoothers", "shrinkage", "strength", "place")
    ],
    "aligners/gdm/strength": [
        f"aligners/test_{name}" for name in ("smoothers", "strength", "shrinkage")
    ],
    "aligners/check/held_out": [
        f"aligners/test_{name}"
        for name in ("halves_of_samples", "held_out", "reliable_voxels", "components")
    ],
    "aligners/check/agreement": [f"aligners/test_{name}" for name in CHECK],
    "aligners/check/alignment_check": [f"aligners/test_{name}" for name in CHECK],
    "aligners/piecewise/parcelwise": [
        *("aligners/test_parcelwise", "aligners/test_parcels"),
        *("persistence/test_models", "persistence/test_refusals"),
    ],
    "aligners/piecewise/piecewise": [
        f"aligners/test_{name}" for name in ("parcels", "parcelwise", "searchlight")
    ],
    "aligners/piecewise/searchlight": [
        *("aligners/test_searchlight", "study/test_meshes"),
        *("persistence/test_models", "persistence/test_refusals"),
    ],
    "evaluation/metrics": [
        f"evaluation/test_{name}"
        for name in ("metrics", "timeline", "scores", "gaps", "isc")
    ],
    "evaluation/splits": [
        f"evaluation/test_{name}"
        for name in ("halves", "splits", "leakage", "shared_bases", "gaps")
    ],
    "evaluation/classifiers": [
        f"evaluation/test_{name}"
        for name in ("classification", "nu_svm", "names", "label_orders", "permutation")
    ],
    "evaluation/comparison": ["evaluation/test_comparison"],
    "evaluation/evaluate": [
        "core/test_labels",
        *(
            f"evaluation/test_{name}"
            for name in ("classification", "scores", "leakage", "every_aligner")
        ),
    ],
    "evaluation/measures": [
        f"evaluation/test_{name}"
        for name in ("classification", "scores", "measures", "permutation", "nu_svm")
    ],
    "evaluation/results": [
        f"evaluation/test_{name}"
        for name in ("results", "comparison", "classification", "scores")
    ],
    "evaluation/grid": ["evaluation/test_grid"],
    "evaluation/isc": ["evaluation/test_isc", "evaluation/test_gaps"],
    "evaluation/information_map": ["evaluation/test_information_map"],
    "evaluation/learning_curve": ["evaluation/test_learning_curve"],
    "evaluation/tuning": ["evaluation/test_tuning"],
}
EVERY = ["aligners/test_defaults"]  # of any public function
LIBRARIES = (
    "hypothesis.extra.numpy",
    "scipy.sparse.linalg",
    "scipy.spatial",
    "scipy.stats",
)
LIBRARIES += (
    "sklearn.svm",
    "sklearn.model_selection",
    "sklearn.utils.estimator_checks",
)
LIBRARIES += ("pandas", "joblib", "nibabel", "h5py", "threadpoolctl", "_pytest.doctest")
HARMLESS = {"stacklevel", "check_finite", "overwrite_a", "maxsize", "strict"}
NEED_TORCH = (
    *("DeviceSmoother", "TorchOps", "products_on_device"),
    *("_read_on_device", "_combine_on_device"),
)
ASKS_FOR_TORCH = re.compile(r"\bis_torch\(|_device\b|import_module\('torch'\)")
COMPARE = {
    ast.Lt: (ast.LtE, ast.GtE),
    ast.LtE: (ast.Lt, ast.Gt),
    ast.Gt: (ast.GtE, ast.LtE),
    ast.GtE: (ast.Gt, ast.Lt),
    ast.Eq: (ast.NotEq,),
    ast.NotEq: (ast.Eq,),
    ast.Is: (ast.IsNot,),
    ast.IsNot: (ast.Is,),
    ast.In: (ast.NotIn,),
    ast.NotIn: (ast.In,),
}
OPERATORS = {
    ast.Add: ast.Sub,
    ast.Sub: ast.Add,
    ast.Mult: ast.Div,
    ast.Div: ast.Mult,
    ast.FloorDiv: ast.Mult,
    ast.Mod: ast.Mult,
    ast.Pow: ast.Mult,
    ast.BitAnd: ast.BitOr,
    ast.BitOr: ast.BitAnd,
}
MEMORY = 8 * 1024**3  # a mutant that asks for more has failed
NO_TESTS, OWN_ERROR = 5, 99  # exit codes that say nothing about a mutant
# calls whose arguments may be swapped, or never are by mistake
EITHER_WAY = ("min", "max", "minimum", "maximum", "convolve", "isinstance", "cast")
NAMES = {"min": "max", "any": "all", "argmin": "argmax", "minimum": "maximum"}
NAMES |= {new: old for old, new in NAMES.items()}


@dataclass(frozen=True)
class Mutant:
    """One change of a module's source."""

    key: str  # what is changed where, whatever the line
    line: int
    lines: range  # one of these is executed where the change is
    place: slice  # of the file's bytes
    new: str

    def source(self, original: str) -> str:
        """Return the changed source, which must be Python."""
        raw = original.encode()
        changed = raw[: self.place.start] + self.new.encode() + raw[self.place.stop :]
        ast.parse(changed)
        return changed.decode()


# --- the changes ---------------------------------------------------------------------


def mutants_of(path: Path) -> list[Mutant]:
    """Return all mutants of a file, in the order of the code."""
    source = path.read_text(encoding="utf-8")
    starts = [0]
    for line in source.encode().splitlines(keepends=True):
        starts.append(starts[-1] + len(line))
    found, seen = [], Counter[str]()
    for node, statement, scope in _places(ast.parse(source)):
        old = ast.unparse(node)
        for new in _changes(node):
            key = f"{scope}: {_short(old)} -> {_short(new)}"
            seen[key] += 1
            if seen[key] > 1:
                key += f" #{seen[key]}"
            begin = starts[node.lineno - 1] + node.col_offset
            end = starts[node.end_lineno - 1] + node.end_col_offset
            code = new if isinstance(node, ast.stmt) else f"({new})"
            last = node if hasattr(statement, "body") else statement
            lines = range(statement.lineno, last.end_lineno + 1)
            found.append(Mutant(key, node.lineno, lines, slice(begin, end), code))
    return found


def _short(text: str) -> str:
    text = " ".join(text.split())
    return text if len(text) <= 90 else f"{text[:60]} ... {text[-25:]}"


def _places(tree: ast.Module) -> Iterator[tuple[Any, Any, str]]:
    """Walk over what may be changed, with its statement and the name of its scope."""

    def walk(node: Any, statement: Any, scope: str) -> Iterator[tuple[Any, Any, str]]:
        if isinstance(node, ast.stmt):
            statement = node
        if isinstance(node, ast.Raise | ast.Assert):
            yield node, statement, scope
            return
        if _left_alone(node):
            return
        if isinstance(node, ast.expr | ast.stmt):
            yield node, statement, scope
        inner = scope
        if isinstance(node, ast.FunctionDef | ast.ClassDef):
            inner = node.name if scope == "module" else f"{scope}.{node.name}"
        for field, value in ast.iter_fields(node):
            if field in ("annotation", "returns", "decorator_list", "bases"):
                continue
            if field == "body" and _for_devices(node):
                continue
            if field == "body" and isinstance(value, list) and _text(value[0]):
                value = value[1:]
            for child in value if isinstance(value, list) else [value]:
                if isinstance(child, ast.AST):
                    yield from walk(child, statement, inner)

    yield from walk(tree, None, "module")


def _left_alone(node: ast.AST) -> bool:
    """Whether nothing in a node is changed."""
    match node:
        case ast.JoinedStr() | ast.Import() | ast.ImportFrom():
            return True
        case ast.Call(func=func):
            return _name(func) in ("warn", "debug", "info")
        case ast.keyword(arg=arg):
            return arg in HARMLESS
        case ast.FunctionDef(name=name) | ast.ClassDef(name=name):
            return name in NEED_TORCH
        case ast.BoolOp() | ast.IfExp() | ast.Compare() | ast.Expr() | ast.Return():
            return ASKS_FOR_TORCH.search(ast.unparse(node)) is not None
    return False


def _for_devices(node: ast.AST) -> bool:
    """Whether the body of a condition is for arrays on a device."""
    return isinstance(node, ast.If) and ast.unparse(node.test).startswith("is_torch(")


def _text(statement: ast.stmt) -> bool:
    return isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Constant)


def _name(node: ast.expr) -> str:
    return getattr(node, "attr", None) or getattr(node, "id", "")


def _changes(node: ast.expr | ast.stmt) -> Iterator[str]:
    """Yield the code that each change puts in the place of a node."""

    def with_(**fields: Any) -> str:
        changed = copy.copy(node)
        for name, value in fields.items():
            setattr(changed, name, value)
        return ast.unparse(changed)

    match node:
        case ast.Compare(ops=[op]):
            for other in COMPARE[type(op)]:
                yield with_(ops=[other()])
        case ast.Compare(ops=ops):
            for i, op in enumerate(ops):
                yield with_(ops=[*ops[:i], COMPARE[type(op)][0](), *ops[i + 1 :]])
        case ast.BinOp(op=op) | ast.AugAssign(op=op) if type(op) in OPERATORS:
            yield with_(op=OPERATORS[type(op)]())
        case ast.BoolOp(op=op, values=values):
            yield with_(op=ast.Or() if isinstance(op, ast.And) else ast.And())
            for i in range(len(values)):
                yield (
                    ast.unparse(values[1 - i])
                    if len(values) == 2
                    else with_(values=[*values[:i], *values[i + 1 :]])
                )
        case ast.UnaryOp(op=ast.Not() | ast.USub(), operand=operand):
            yield ast.unparse(operand)
        case ast.Constant(value=bool() as value):
            yield repr(not value)
        case ast.Constant(value=int() as value):
            yield repr(value + 1)
        case ast.Constant(value=float() as value):
            yield repr(value * 1e4 if 0 < value < 1e-2 else value + 1.0)
        case ast.IfExp(body=body, orelse=orelse):
            yield with_(body=orelse, orelse=body)
        case ast.Call(func=func, args=args):
            if _name(func) in NAMES:
                renamed = copy.copy(func)
                setattr(
                    renamed,
                    "attr" if isinstance(func, ast.Attribute) else "id",
                    NAMES[_name(func)],
                )
                yield with_(func=renamed)
            plain = not any(isinstance(arg, ast.Starred) for arg in args[:2])
            differ = len({ast.unparse(arg) for arg in args[:2]}) > 1
            if differ and plain and _name(func) not in EITHER_WAY:
                yield with_(args=[args[1], args[0], *args[2:]])
        case ast.Return(value=ast.expr() as value) if ast.unparse(value) != "None":
            yield "return None"
        case ast.Raise() | ast.Continue() | ast.Break() | ast.AugAssign():
            yield "pass"
        case ast.Expr(value=ast.Call()):
            yield "pass"
        case ast.Assign(targets=[target], value=value):
            again = isinstance(target, ast.Name) and any(
                isinstance(n, ast.Name) and n.id == target.id for n in ast.walk(value)
            )
            if again or isinstance(target, ast.Subscript):
                yield "pass"
    if isinstance(node, ast.AugAssign):
        yield "pass"


def sample(mutants: list[Mutant], n: int | None, seed: int) -> list[Mutant]:
    """Return n of the mutants; an edit elsewhere in the file moves few of them."""
    if n is None or n >= len(mutants):
        return mutants

    def rank(mutant: Mutant) -> bytes:
        return hashlib.sha256(f"{seed} {mutant.key}".encode()).digest()

    return sorted(sorted(mutants, key=rank)[:n], key=lambda m: m.line)


def explained(module: str, mutants: list[Mutant]) -> dict[str, str]:
    """Return the mutants that are known to change nothing, each with the reason."""
    known = tomllib.loads(EXPLAINED.read_text(encoding="utf-8")).get(module, {})
    gone = sorted(set(known) - {mutant.key for mutant in mutants})
    if gone:
        raise SystemExit(
            f"{EXPLAINED.name} lists mutants of {module} that are no more: {gone}"
        )
    return known


# --- running them --------------------------------------------------------------------


class Watch:
    """A pytest plugin: which tests execute which lines, or these tests alone."""

    def __init__(self, package: Path | None = None, only: list[str] | None = None):
        self.only, self.seconds, self.cov = only, {}, None
        if package is not None:
            import coverage

            self.cov = coverage.Coverage(
                data_file=None, config_file=False, include=[f"{package}/*"]
            )
            self.cov.start()

    def pytest_collection_modifyitems(self, items: list[Any]) -> None:
        """Keep the tests that are asked for, the quickest first."""
        if self.only is not None:
            place = {name: i for i, name in enumerate(self.only)}
            items[:] = sorted(
                (item for item in items if item.nodeid in place),
                key=lambda item: place[item.nodeid],
            )

    def pytest_runtest_logstart(self, nodeid: str) -> None:
        """Note which test executes lines from here on."""
        if self.cov is not None:
            self.cov.switch_context(nodeid)

    def pytest_runtest_logreport(self, report: Any) -> None:
        """Add up how long each test takes."""
        self.seconds[report.nodeid] = (
            self.seconds.get(report.nodeid, 0.0) + report.duration
        )

    def contexts(self, package: Path) -> dict[str, dict[int, list[str]]]:
        """Return the tests that executed each line; the empty one is the import."""
        self.cov.stop()
        data = self.cov.get_data()
        return {
            str(Path(path).relative_to(package)): data.contexts_by_lineno(path)
            for path in data.measured_files()
        }


class Copy:
    """A copy of the package in which one module is changed at a time."""

    def __init__(self, folder: Path):
        self.folder = folder
        shutil.copytree(
            PACKAGE,
            folder / "brainweave",
            ignore=shutil.ignore_patterns("__pycache__"),
        )
        mode = py_compile.PycInvalidationMode.CHECKED_HASH  # never a stale module
        compileall.compile_dir(str(folder), quiet=1, invalidation_mode=mode)

    def start(self, module: str, source: str | None, work: Any, seconds: float) -> int:
        """Change a module, run work() in a fork and return its process id."""
        path = self.folder / "brainweave" / f"{module}.py"
        original = (PACKAGE / f"{module}.py").read_text(encoding="utf-8")
        path.write_text(original if source is None else source, encoding="utf-8")
        pid = os.fork()
        if pid:
            return pid
        status = OWN_ERROR
        try:
            os.setpgid(0, 0)
            resource.setrlimit(resource.RLIMIT_CPU, (int(seconds) + 1,) * 2)
            resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
            if source is not None:
                quiet = os.open(os.devnull, os.O_WRONLY)
                os.dup2(quiet, 1)
                os.dup2(quiet, 2)
            sys.path.insert(0, str(self.folder))
            os.environ["PYTHONPATH"] = str(self.folder)
            os.chdir(ROOT)
            status = work()
        finally:
            sys.stdout.flush()
            sys.stderr.flush()
            os._exit(status)


def _pytest(files: list[str], watch: Watch, *more: str) -> int:
    import pytest

    without = ("cacheprovider", "xdist", "cov")
    settings = ["-x", "-q", *(f"-pno:{name}" for name in without), *more]
    settings += ["--assert=plain", "-Wignore::pytest.PytestAssertRewriteWarning"]
    return int(pytest.main([*settings, *files], plugins=[watch]))


def baseline(module: str, files: list[str], place: Copy) -> dict[str, Any]:
    """Run the tests on the unchanged module; return the lines each one executes."""
    found: dict[str, Any] = {"lines": {}, "seconds": {}, "cpu": 0.0}
    for file in files:
        one = _lines_of(file, place)
        found["seconds"] |= one["seconds"]
        found["cpu"] += one["cpu"]
        for line, names in one["lines"].get(f"{module}.py", {}).items():
            found["lines"].setdefault(line, []).extend(names)
    return found


def _lines_of(file: str, place: Copy) -> dict[str, Any]:
    """Run one file of tests, or read what is kept of its last run on the same code."""
    digest = hashlib.sha256()
    sources = sorted(PACKAGE.rglob("*.py")), sorted(ROOT.glob("tests/**/[!t]*.py"))
    for path in (*sources[0], *sources[1], ROOT / file):
        digest.update(path.read_bytes())
    notes = KEPT / f"{Path(file).stem}-{digest.hexdigest()[:16]}.json"
    package = place.folder / "brainweave"

    def work() -> int:
        watch = Watch(package)
        began = time.process_time()
        status = _pytest([file], watch, "--no-header")
        found = {
            "lines": watch.contexts(package),
            "seconds": watch.seconds,
            "cpu": time.process_time() - began,
        }
        if not status:
            notes.parent.mkdir(parents=True, exist_ok=True)
            part = notes.with_suffix(f".{os.getpid()}")
            part.write_text(json.dumps(found), encoding="utf-8")
            part.replace(notes)
        return status

    if not notes.exists():
        _, status = os.waitpid(place.start("__init__", None, work, 1200), 0)
        if status:
            raise SystemExit(f"{file} fails on the unchanged code.")
    return json.loads(notes.read_text(encoding="utf-8"))


def tests_for(mutant: Mutant, found: dict[str, Any]) -> list[str]:
    """Return the tests that execute the line, the quickest first."""
    names = {name for n in mutant.lines for name in found["lines"].get(str(n), [])}
    if "" in names:  # it is executed on import
        names |= set(found["seconds"])
    return sorted(names - {""}, key=lambda name: (found["seconds"].get(name, 0), name))


def run_module(
    module: str, chosen: list[Mutant], files: list[str], *, jobs: int, folder: Path
) -> Iterator[tuple[Mutant, str]]:
    """Yield each mutant with killed, timeout, survived or unreached."""
    copies = [Copy(folder / f"{module.replace('/', '.')}-{i}") for i in range(jobs)]
    found = baseline(module, files, copies[0])
    running: dict[int, tuple[Mutant, Copy, float]] = {}
    waiting = list(reversed(chosen))
    while waiting or running:
        while waiting and copies:
            mutant = waiting.pop()
            names = tests_for(mutant, found)
            if not names:
                yield mutant, "unreached"
                continue
            place = copies.pop()
            touched = sorted({name.split("::")[0] for name in names})
            # coverage slows tests down: what takes longer without it does not end
            limit = 20 + 2 * sum(found["seconds"].get(name, 0) for name in names)

            def work(names: list[str] = names, touched: list[str] = touched) -> int:
                return _pytest(touched, Watch(only=names))

            original = (PACKAGE / f"{module}.py").read_text(encoding="utf-8")
            pid = place.start(module, mutant.source(original), work, limit)
            running[pid] = mutant, place, time.monotonic() + 10 * limit
        if not running:
            continue
        for pid, (mutant, place, until) in list(running.items()):
            ended, status = os.waitpid(pid, os.WNOHANG)
            if not ended and time.monotonic() < until:
                continue
            with suppress(ProcessLookupError):  # and what it started
                os.killpg(pid, signal.SIGKILL)
            if not ended:
                os.waitpid(pid, 0)
            del running[pid]
            copies.append(place)
            if not ended or os.WIFSIGNALED(status):
                yield mutant, "timeout"
            else:
                code = os.WEXITSTATUS(status)
                if code in (NO_TESTS, OWN_ERROR):
                    raise SystemExit(f"{module}: {mutant.key} could not be run")
                yield mutant, "killed" if code else "survived"
        time.sleep(0.02)


def main(arguments: list[str] | None = None) -> int:
    """Run the mutants of some modules and print a table; 1 if too many survive."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("modules", nargs="*", help=f"of {', '.join(NEAREST)}; else all")
    parser.add_argument("--sample", type=int, default=15, help="mutants per module")
    parser.add_argument("--all", action="store_true", help="every mutant")
    parser.add_argument("--seed", type=int, default=0, help="of the sample")
    parser.add_argument("--jobs", type=int, default=1, help="mutants at a time")
    parser.add_argument("--match", default="", help="only those whose name has this")
    parser.add_argument("--least", type=float, default=90.0, help="score in percent")
    options = parser.parse_args(arguments)
    unknown = set(options.modules) - set(NEAREST)
    if unknown:
        parser.error(f"no tests are known for {sorted(unknown)}")
    sys.dont_write_bytecode = True
    os.environ.update(PYTHONDONTWRITEBYTECODE="1", OMP_NUM_THREADS="1")
    os.environ["HYPOTHESIS_PROFILE"] = "mutants"
    for name in LIBRARIES:  # once, for all forks
        importlib.import_module(name)
    gc.freeze()
    rows, unexplained = [], 0
    with tempfile.TemporaryDirectory(prefix="mutants-") as folder:
        for module in options.modules or NEAREST:
            mutants = mutants_of(PACKAGE / f"{module}.py")
            known = explained(module, mutants)
            wanted = [m for m in mutants if options.match in m.key]
            chosen = sample(
                wanted, None if options.all else options.sample, options.seed
            )
            files = [f"tests/{name}.py" for name in [*EVERY, *NEAREST[module]]]
            killed = equivalent = 0
            where = {"jobs": options.jobs, "folder": Path(folder)}
            for mutant, outcome in run_module(module, chosen, files, **where):
                if outcome in ("killed", "timeout"):
                    killed += 1
                    continue
                reason = known.get(mutant.key)
                equivalent += reason is not None
                unexplained += reason is None
                mark = f"changes nothing: {reason}" if reason else outcome.upper()
                print(
                    f"  {module}.py:{mutant.line} {mutant.key}\n      {mark}",
                    flush=True,
                )
            rows.append((module, len(mutants), len(chosen), killed, equivalent))
            print(_row(*rows[-1]), flush=True)
    print("\n| module | possible | tried | killed | change nothing | left | score |")
    print("|---|---|---|---|---|---|---|")
    total = ("all", *(sum(row[i] for row in rows) for i in range(1, 5)))
    for row in [*rows, total]:
        print(_row(*row))
    return int(bool(unexplained) or _score(*total[2:]) < options.least)


def _score(tried: int, killed: int, equivalent: int) -> float:
    return 100 * killed / max(tried - equivalent, 1)


def _row(module: str, possible: int, tried: int, killed: int, equivalent: int) -> str:
    score = f"{_score(tried, killed, equivalent):.0f} %"
    left = tried - killed - equivalent
    cells = (f"`{module}`", possible, tried, killed, equivalent, left, score)
    return f"| {' | '.join(map(str, cells))} |"


if __name__ == "__main__":
    sys.exit(main())
