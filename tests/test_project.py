"""What cannot run here is at least true: workflows and hooks call make targets."""

import ast
import importlib.util
import json
import os
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
import yaml

ROOT = Path(__file__).parents[1]
TARGETS = set(re.findall(r"^([a-z-]+):.*##", (ROOT / "Makefile").read_text(), re.M))
FILES = sorted((ROOT / ".github/workflows").glob("*.yml"))


def _commands(node):
    """Find every shell command of a workflow or of the hooks."""
    if isinstance(node, dict):
        for key, value in node.items():
            if key in ("run", "entry") and isinstance(value, str):
                yield value
            else:
                yield from _commands(value)
    elif isinstance(node, list):
        for value in node:
            yield from _commands(value)


@pytest.mark.parametrize(
    "path", [*FILES, ROOT / ".pre-commit-config.yaml"], ids=lambda p: p.name
)
def test_workflows_and_hooks_call_make_targets_alone(path):
    commands = list(_commands(yaml.safe_load(path.read_text(encoding="utf-8"))))
    assert commands
    for command in commands:
        words = command.split()
        assert words[0] == "make", command
        assert set(words[1:]) <= TARGETS, command


def test_the_gate_calls_what_the_workflows_call():
    gate = (ROOT / ".ci/run").read_text(encoding="utf-8")
    called = set(re.findall(r"^make (.*)$", gate, re.M))
    gate_targets = {word for line in called for word in line.split()}
    assert gate_targets <= TARGETS
    assert {"demo", "test", "lint", "types", "contracts", "test-torch"} <= gate_targets


def test_what_is_imported_is_declared_and_what_is_declared_is_imported():
    """Libraries of src come with the package or an extra, and none comes in vain."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    required = _names(project["project"]["dependencies"])
    extras = project["project"]["optional-dependencies"].values()
    declared = required.union(*map(_names, extras))
    called = {"sklearn": "scikit-learn", "PIL": "pillow", "openneuro": "openneuro-py"}
    found = set()
    for path in (ROOT / "src").rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Import):
                found |= {alias.name.split(".")[0] for alias in node.names}
            elif isinstance(node, ast.ImportFrom) and node.module:
                found.add(node.module.split(".")[0])
    outside = found - set(sys.stdlib_module_names) - {"brainweave"}
    imported = {called.get(name, name).lower() for name in outside}
    assert imported <= declared
    assert required <= imported


def _names(requirements):
    return {re.split(r"[<>=!\[; ]", line)[0].lower() for line in requirements}


def test_the_container_installs_what_pyproject_says_and_nothing_else():
    text = (ROOT / "Dockerfile").read_text(encoding="utf-8")
    lines = text.replace("\\\n", " ").splitlines()
    installs = [line for line in lines if re.search(r"\b(pip|apt|conda)\b", line)]
    assert installs == [
        "RUN pip install --no-cache-dir build && "
        "python -m build --wheel --outdir /wheels .",
        "RUN pip install --no-cache-dir /wheels/*.whl && rm -r /wheels",
    ]
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    least = project["project"]["requires-python"].removeprefix(">=").split(".")
    images = {m for line in lines for m in re.findall(r"^FROM python:([\d.]+)", line)}
    assert len(images) == 1
    assert [int(p) for p in images.pop().split(".")] >= [int(p) for p in least]
    # all that the wheel is built from is copied, and let in by .dockerignore
    copied = {
        name
        for line in lines
        if line.startswith("COPY ") and "--from" not in line
        for name in line.split()[1:-1]
    }
    needed = {"pyproject.toml", "src", project["project"]["readme"]}
    needed |= set(project["project"]["license-files"])
    assert copied == needed
    ignored = (ROOT / ".dockerignore").read_text(encoding="utf-8").splitlines()
    assert {line[1:] for line in ignored if line.startswith("!")} == needed
    (entry,) = [line for line in lines if line.startswith("ENTRYPOINT")]
    assert list(project["project"]["scripts"]) == json.loads(entry.split(None, 1)[1])


def test_mutants_are_made_run_and_told_apart():
    """The quick form of make mutants: few changes of one small module."""
    if not hasattr(os, "fork"):
        pytest.skip("tools/mutants.py needs os.fork")
    chosen = ["--match", "Kernel.up_to_constant: return", "--sample", "3"]
    found = subprocess.run(
        [sys.executable, ROOT / "tools/mutants.py", "basis/kernels", *chosen],
        capture_output=True,
        text=True,
        check=False,
    )
    assert found.returncode == 0, found.stdout + found.stderr
    assert re.search(
        r"\| `basis/kernels` \| \d+ \| 3 \| 3 \| 0 \| 0 \| 100 % \|", found.stdout
    )


def test_mutants_that_are_explained_exist():
    tool = _load_tool("mutants")
    listed = tomllib.loads(tool.EXPLAINED.read_text(encoding="utf-8"))
    assert set(listed) <= set(tool.NEAREST)
    for module, files in tool.NEAREST.items():
        assert all((ROOT / f"tests/{name}.py").exists() for name in files)
        assert tool.explained(
            module, tool.mutants_of(tool.PACKAGE / f"{module}.py")
        ) == (listed.get(module, {}))


def _load_tool(name):
    spec = importlib.util.spec_from_file_location(name, ROOT / f"tools/{name}.py")
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module  # dataclasses look for it
    spec.loader.exec_module(module)
    return module
