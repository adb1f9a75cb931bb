"""Help, version and start-up time."""

import subprocess
import sys
import time

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


def seconds(*command, times=2):
    """Give the fastest of several runs."""
    best = float("inf")
    for _ in range(times):
        start = time.perf_counter()
        subprocess.run([sys.executable, *command], capture_output=True, check=True)
        best = min(best, time.perf_counter() - start)
    return best


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
    # a ratio holds on busy machines too: these take 0.5 s or more where help takes 0.3
    floor = seconds("-c", "import numpy, scipy.linalg, scipy.sparse, sklearn.base")
    assert seconds("-m", "brainweave", "--help") < floor
