"""Run the experiments from a shell: ``python -m brainweave.paper --help``."""

import sys

from brainweave.paper.command import main

if __name__ == "__main__":
    sys.exit(main())
