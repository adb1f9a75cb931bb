"""The command line. Only what a command needs is imported when it runs."""

import sys
from collections.abc import Sequence


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the ``brainweave`` command and leave with its exit code."""
    from brainweave.cli.console import run

    sys.exit(run(sys.argv[1:] if arguments is None else list(arguments)))
