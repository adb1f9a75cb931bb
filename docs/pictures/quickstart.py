"""The picture of the quickstart: what its own lines draw."""

import doctest
from pathlib import Path
from typing import Any

from matplotlib.figure import Figure

PAGE = Path(__file__).parents[1] / "quickstart.md"


def draw() -> dict[str, Figure]:
    """Run the lines with prompts of the page up to its first figure."""
    names: dict[str, Any] = {}
    parser = doctest.DocTestParser()
    for example in parser.get_examples(PAGE.read_text(encoding="utf-8")):
        exec(example.source, names)
        if "axes" in names:
            break
    return {"quickstart": names["axes"].figure}
