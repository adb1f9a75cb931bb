"""Help, version and start-up time."""

import os
import subprocess
import sys

import pytest

from brainweave import __version__

COMMANDS = [
    *("demo", "convert", "info", "fit", "transform"),
    *("add-subject", "compare", "map", "report", "run"),
]


def test_help_is_a_tour_of_all_commands(execute):
    text = execute("--help").stdout
    for command in COMMANDS:
        assert f" {command} " in text
    assert "Start with brainweave demo" in " ".join(text.split())
    assert execute("--version").stdout.strip() == f"brainweave {__version__}"


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_explains_itself(command, call):
    text, _ = call(command, "--help")
    assert ("--config" in text) == (command not in ("info", "demo"))


def seconds(*command):
    """Return the processor time of a command, which other work hardly changes."""
    before = os.times()
    subprocess.run([sys.executable, *command], capture_output=True, check=True)
    after = os.times()
    spent = after.children_user + after.children_system
    return spent - before.children_user - before.children_system


def test_help_starts_without_the_numeric_libraries():
    code = (
        "import sys\n"
        "from brainweave.cli.console import run\n"
        "run(['--help'])\n"
        "heavy = {'numpy', 'scipy', 'sklearn', 'pandas', 'nibabel', 'matplotlib'}\n"
        "sys.exit(sorted(heavy & set(sys.modules)) or 0)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr


def test_help_is_quick_beside_importing_the_numeric_libraries():
    # these take 0.5 s or more where help takes 0.3
    floor = seconds("-c", "import numpy, scipy.linalg, scipy.sparse, sklearn.base")
    assert seconds("-m", "brainweave", "--help") < floor
