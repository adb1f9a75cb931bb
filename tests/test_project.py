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
    # what pins versions that the others exclude is installed alone
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    declared |= _names(re.findall(r"install --no-deps (\S+)", makefile))
    called = {"sklearn": "scikit-learn", "PIL": "pillow", "openneuro": "openneuro-py"}
    called |= {"cca_zoo": "cca-zoo"}
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


def test_the_container_installs_the_wheel_and_nothing_else():
    text = (ROOT / "Dockerfile").read_text(encoding="utf-8")
    lines = text.replace("\\\n", " ").splitlines()
    installs = [line for line in lines if re.search(r"\b(pip|apt|conda)\b", line)]
    assert installs == [
        "RUN pip install --no-cache-dir /wheels/*.whl && rm -r /wheels",
    ]
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    least = project["project"]["requires-python"].removeprefix(">=").split(".")
    (image,) = {m for line in lines for m in re.findall(r"^FROM python:([\d.]+)", line)}
    assert [int(p) for p in image.split(".")] >= [int(p) for p in least]
    # the wheel is copied, and let in by .dockerignore
    copied = [line.split()[1:] for line in lines if line.startswith("COPY ")]
    assert copied == [["dist/*.whl", "/wheels/"]]
    ignored = (ROOT / ".dockerignore").read_text(encoding="utf-8").splitlines()
    assert [line for line in ignored if line.startswith("!")] == ["!dist"]


def test_the_container_is_a_bids_app():
    """It takes folder, output and level, as the specification of BIDS Apps says."""
    text = (ROOT / "Dockerfile").read_text(encoding="utf-8")
    command, *words = json.loads(re.search(r"^ENTRYPOINT (.*)$", text, re.M)[1])
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    assert command in project["project"]["scripts"]
    import typer.main

    from brainweave.cli.app import app

    (name,) = words
    parameters = typer.main.get_command(app).commands[name].params
    given = [p.name for p in parameters if p.param_type_name == "argument"]
    assert given == ["bids_dir", "output_dir", "analysis_level"]


def test_the_public_version_is_that_of_the_installed_package():
    from importlib.metadata import version

    import brainweave

    assert brainweave.__version__ == version("brainweave")


def test_every_supported_python_is_tested_and_named():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    tests = yaml.safe_load((ROOT / ".github/workflows/test.yml").read_text("utf-8"))
    tested = tests["jobs"]["test"]["strategy"]["matrix"]["python"]
    named = [
        line.rpartition(" ")[2]
        for line in project["project"]["classifiers"]
        if re.fullmatch(r"Programming Language :: Python :: 3\.\d+", line)
    ]
    assert tested == named
    assert project["project"]["requires-python"] == f">={tested[0]}"


@pytest.mark.parametrize("path", FILES, ids=lambda p: p.name)
def test_actions_are_pinned_and_say_their_version(path):
    used = re.findall(r"uses: (.*)$", path.read_text(encoding="utf-8"), re.M)
    assert used
    for line in used:
        assert re.fullmatch(r"[\w/-]+@[0-9a-f]{40} # v[\d.]+", line), line


def test_descriptions_for_others_agree_with_the_project():
    assert _load_tool("check_metadata").check()[0] == []


def test_a_requirement_that_the_recipe_lacks_is_found():
    tool = _load_tool("check_metadata")
    text = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
    project = tomllib.loads(text)["project"]
    assert tool.wrong_requirements(project) == []
    project["dependencies"].append("attrs>=24")
    (found,) = tool.wrong_requirements(project)
    assert "attrs >=24" in found


@pytest.mark.thorough  # examples-quick runs it
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
