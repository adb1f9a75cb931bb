"""The documentation is whole: names, examples and commands are there and are true."""

import ast
import importlib
import importlib.util
import inspect
import re
from functools import cache
from pathlib import Path
from shutil import copytree

import pandas as pd
import pytest

import brainweave

ROOT = Path(__file__).parents[1]
EXAMPLES = sorted((ROOT / "examples").glob("plot_*.py"))
DOCS = sorted([*(ROOT / "docs").glob("*.md"), *(ROOT / "docs/guide").glob("*.md")])
PAGES = [ROOT / "README.md", *DOCS]
MORE = (ROOT / "docs/api/more.rst").read_text(encoding="utf-8")
REFERENCE = (ROOT / "docs/api/index.rst").read_text(encoding="utf-8")


@cache
def _commands():
    import typer.main

    from brainweave.cli.app import app

    return typer.main.get_command(app).commands


def _code(path):
    """Find what a page or example shows as code, line by line."""
    text = path.read_text(encoding="utf-8")
    if path.suffix == ".md":
        blocks = re.findall(r"^```(.*?)\n(.*?)^```", text, re.M | re.S)
        code = [block for kind, block in blocks if not kind.startswith("{")]
        yield from (line for block in code for line in block.splitlines())
        yield from re.findall(r"(?<!`)`([^`\n]+)`(?!`)", text)
    else:
        yield from re.findall(r"^# {4,}(.*)$", text, re.M)
        yield from re.findall(r"``([^`\n]+)``", text)
        strings = [n for n in ast.walk(ast.parse(text)) if isinstance(n, ast.Constant)]
        yield from (n.value for n in strings if isinstance(n.value, str))


ROOMS = ("evaluation", "plotting", "report", "study", "testing")
COMMAND_LINES = [
    pytest.param(line, id=f"{path.name}: {line[:40]}")
    for path in [*PAGES, *EXAMPLES]
    for line in (code.split(" #")[0].strip() for code in _code(path))
    if re.match(r"brainweave [a-z][a-z-]*( |$)", line) and "\n" not in line
]


@pytest.mark.parametrize("name", sorted(set(brainweave.__all__) - {"__version__"}))
def test_every_public_name_is_in_the_reference(name):
    assert re.search(rf"^   {name}$", REFERENCE, re.M)


@pytest.mark.parametrize("name", sorted(set(brainweave.__all__) - {"__version__"}))
def test_every_public_name_says_what_it_is(name):
    first = (getattr(brainweave, name).__doc__ or "").strip().splitlines()
    assert first
    assert first[0].rstrip().endswith((".", ","))


# parameters with types and descriptions; what is returned; a summary line
NUMPYDOC = {"PR01", "PR04", "PR07", "RT01", "RT03"}
NUMPYDOC |= {"SS02", "SS03", "SS04", "SS05", "SS06"}


def _documented(name):
    """Yield a public name, and its methods that document their parameters."""
    item = getattr(brainweave, name)
    if not callable(item):
        return
    yield item
    for method in vars(item).values() if isinstance(item, type) else ():
        if inspect.isfunction(method) and "Parameters\n" in (method.__doc__ or ""):
            yield method


@pytest.mark.parametrize("name", sorted(set(brainweave.__all__) - {"__version__"}))
def test_docstrings_are_in_the_form_of_numpydoc(name):
    numpydoc = pytest.importorskip("numpydoc.validate", reason="of the dev extra")
    from numpydoc import docscrape

    for item in _documented(name):
        checks = NUMPYDOC
        if isinstance(item, type) and "Parameters\n" not in item.__doc__:
            checks = NUMPYDOC - {"PR01"}  # made by functions; it lists attributes
        found = numpydoc.validate(f"{item.__module__}.{item.__qualname__}")["errors"]
        assert [text for code, text in found if code in checks] == []
        if "Parameters\n" not in (item.__doc__ or ""):
            continue
        # what may be given by position is in order; keywords are in any
        listed = docscrape.NumpyDocString(inspect.getdoc(item))["Parameters"]
        names = [name for entry in listed for name in entry.name.split(", ")]
        parameters = inspect.signature(item).parameters.values()
        placed = [p.name for p in parameters if p.kind is p.POSITIONAL_OR_KEYWORD]
        known = [name for name in placed if name in names]
        assert [name for name in names if name in placed] == known


FUNCTIONS = [
    (room, name)
    for room in ("brainweave", *(f"brainweave.{r}" for r in ROOMS))
    for name in importlib.import_module(room).__all__
    if inspect.isfunction(getattr(importlib.import_module(room), name))
]


@pytest.mark.parametrize(("room", "name"), FUNCTIONS)
def test_every_public_function_has_an_example(room, name):
    """Which the doctests run."""
    doc = getattr(importlib.import_module(room), name).__doc__
    _, _, examples = doc.partition("Examples\n")
    assert ">>> " in examples


def test_the_reference_lists_nothing_else():
    listed = set(re.findall(r"^   (\w+)$", REFERENCE, re.M)) - {"more"}
    assert listed == set(brainweave.__all__) - {"__version__"}


@pytest.mark.parametrize("name", [*(f"brainweave.{r}" for r in ROOMS), "reproduction"])
def test_what_lives_one_level_down_is_listed_once(name):
    module = importlib.import_module(name)
    part = MORE.split(f"currentmodule:: {name}\n")[1]
    listed = re.findall(r"^   (\w+)$", part.split(".. currentmodule::")[0], re.M)
    assert len(listed) == len(set(listed))
    # figure1 is figure("figure1"); constants have a line of their own
    told = {n for n in module.__all__ if n.isupper() or re.match(r"figureS?\d", n)}
    assert set(listed) == set(module.__all__) - set(brainweave.__all__) - told


def test_every_aligner_is_on_the_page_of_methods():
    from brainweave.aligners.base import BaseAligner

    page = (ROOT / "docs/which_method.md").read_text(encoding="utf-8")
    for name in brainweave.__all__:
        thing = getattr(brainweave, name)
        if isinstance(thing, type) and issubclass(thing, BaseAligner):
            assert f"`~brainweave.{name}`" in page, name


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda p: p.name)
def test_every_example_is_a_page(path):
    """It compiles, begins with a title, and imports what exists."""
    tree = ast.parse(path.read_text(encoding="utf-8"), path.name)
    title, line, *rest = (ast.get_docstring(tree) or "").splitlines()
    assert len(line) == len(title)
    assert set(line) == {"="}
    assert any(rest)
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and node.module == "brainweave":
            for name in node.names:
                assert name.name in brainweave.__all__


def test_examples_are_numbered_and_what_pages_link_to_exists():
    numbers = [int(path.name[5:7]) for path in EXAMPLES]
    assert numbers == list(range(1, len(EXAMPLES) + 1))
    stems = {path.stem for path in EXAMPLES}
    for path in [*PAGES, *EXAMPLES]:
        text = path.read_text(encoding="utf-8")
        for linked in re.findall(r"(?:tutorials/|:doc:`)(plot_\d\d_\w+)", text):
            assert linked in stems, path.name


def _contents(page):
    """Find the pages that a page lists, and those that they list."""
    yield page
    text = page.read_text(encoding="utf-8")
    for block in re.findall(r"^```\{toctree\}\n(.*?)^```", text, re.M | re.S):
        for name in re.findall(r"^[\w./]+$", block, re.M):
            listed = (page.parent / f"{name}.md").resolve()
            if listed.exists():  # other pages are made when the site is built
                yield from _contents(listed)


def test_all_pages_are_in_the_table_of_contents_once():
    listed = list(_contents(ROOT / "docs/index.md"))
    assert sorted(listed) == DOCS


def test_messages_that_are_explained_exist():
    """Troubleshooting quotes messages of the package, with ... for what varies."""
    page = (ROOT / "docs/guide/troubleshooting.md").read_text(encoding="utf-8")
    messages = re.findall(r"^\*(.+)\*\n: ", page, re.M)
    assert len(messages) > 20
    strings = {
        node.value
        for path in Path(brainweave.__file__).parent.rglob("*.py")
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.Constant) and isinstance(node.value, str)
    }
    for message in messages:
        for part in filter(None, (part.strip() for part in message.split("..."))):
            assert any(part in text for text in strings), f"{message}: {part}"


@pytest.mark.parametrize("line", COMMAND_LINES)
def test_commands_on_the_pages_exist(line):
    words, commands = line.split(), _commands()
    assert words[1] in commands, line
    options = {
        name
        for parameter in commands[words[1]].params
        for name in [*parameter.opts, *parameter.secondary_opts]
    }
    given = {word.split("=")[0] for word in words[2:] if re.match(r"--?[a-z]", word)}
    assert given <= options | {"--help"}, line


def test_pages_and_examples_show_commands():
    assert len(COMMAND_LINES) > 20


@pytest.mark.parametrize("name", ["README.md", "CONTRIBUTING.md", "SUPPORT.md"])
def test_files_that_are_linked_to_exist(name):
    text = (ROOT / name).read_text(encoding="utf-8")
    for linked in re.findall(r"\]\(([^)#:]+)\)", text):
        assert (ROOT / linked).exists(), linked


def test_make_targets_on_the_pages_exist():
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.M))
    for path in [*PAGES, ROOT / "CONTRIBUTING.md"]:
        text = path.read_text(encoding="utf-8")
        for target in re.findall(r"(?:^|`)make ([a-z-]+)", text, re.M):
            assert target in targets, f"{path.name}: make {target}"


def test_files_that_the_promises_name_exist():
    text = (ROOT / "docs/promises.md").read_text(encoding="utf-8")
    named = set(re.findall(r"`(tests/[\w/.]+)`", text))
    assert named
    for name in named:
        assert (ROOT / name).exists(), name


def test_functions_that_the_theory_names_exist():
    """Each formula names the function that implements it."""
    text = (ROOT / "docs/theory.md").read_text(encoding="utf-8")
    named = set(re.findall(r"~?(brainweave(?:\.\w+)+)", text))
    assert len(named) > 20
    for name in named:
        thing = brainweave
        for depth, part in enumerate(name.split(".")[1:], start=2):
            if not hasattr(thing, part):
                importlib.import_module(".".join(name.split(".")[:depth]))
            thing = getattr(thing, part)


def test_tables_taken_from_other_pages_are_there():
    import sys

    sys.path.insert(0, str(ROOT / "docs/_ext"))
    try:
        from markdown_tables import choose_columns, read_table
    finally:
        sys.path.pop(0)
    found = [
        (path.parent / page, heading, columns)
        for path in DOCS
        for page, heading, columns in re.findall(
            r"^```\{table-from\} (\S+)\n:heading: (.*)\n(?::columns: (.*)\n)?```",
            path.read_text(encoding="utf-8"),
            re.M,
        )
    ]
    assert found
    for page, heading, columns in found:
        rows = read_table(page.read_text(encoding="utf-8"), heading)
        assert len({len(row) for row in rows}) == 1
        if columns:
            choose_columns(rows, [c.strip() for c in columns.split(",")])


@pytest.fixture(scope="module")
def results():
    spec = importlib.util.spec_from_file_location("results", ROOT / "tools/results.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_pages_show_the_stored_results(results):
    for page in results.PAGES:
        text = page.read_text(encoding="utf-8")
        assert results.BLOCK.search(text)
        assert results.rendered(text) == text, f"{page.name}: make results-page"
    on_page = (ROOT / "docs/results.md").read_text(encoding="utf-8")
    shown = {m[1] for m in results.BLOCK.findall(on_page)}
    assert shown == {*results.COMMANDS, "place"}  # which has a command of its own


def test_a_page_that_disagrees_with_a_stored_number_is_found(results, tmp_path):
    copytree(results.STORED, tmp_path / "results")
    file = tmp_path / "results/raider_all_splits.csv"
    table = pd.read_csv(file)
    table.loc[0, "mean"] += 0.001
    table.to_csv(file, index=False)
    page = (ROOT / "README.md").read_text(encoding="utf-8")
    assert results.rendered(page, tmp_path / "results") != page


def test_a_run_is_kept_with_how_it_was_made(results, tmp_path, monkeypatch):
    monkeypatch.setattr(results, "STORED", tmp_path / "kept")
    assert results.is_stale("pieman")
    table = pd.read_csv(ROOT / "docs/results/pieman.csv").assign(seconds=1.5)
    table.to_csv(tmp_path / "pieman.csv", index=False)
    results.keep("pieman", tmp_path)
    assert not results.is_stale("pieman")
    (kept,) = results.tables("pieman", tmp_path / "kept")
    assert "seconds" not in kept
    assert "| GDM | " in results.block("pieman", tmp_path / "kept")
    monkeypatch.setattr(results, "__version__", "0.0.0")
    assert results.is_stale("pieman")
