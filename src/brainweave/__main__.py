"""``python -m brainweave`` is the ``brainweave`` command."""

from brainweave.cli import main

if __name__ == "__main__":
    main()
