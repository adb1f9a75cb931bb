"""The picture of the front page."""

import runpy
from pathlib import Path
from typing import Any


def draw_pictures(app: Any) -> None:
    """Run the scripts in ``docs/pictures``; what they draw goes to ``_static``."""
    here = Path(app.srcdir)
    out = here / "_static" / "generated"
    out.mkdir(parents=True, exist_ok=True)
    for script in (here / "pictures").glob("*.py"):
        target = out / f"{script.stem}.svg"
        if not target.exists() or target.stat().st_mtime < script.stat().st_mtime:
            for name, figure in runpy.run_path(str(script))["draw"]().items():
                figure.savefig(out / f"{name}.svg")


def setup(app: Any) -> dict[str, bool]:
    """Register with Sphinx."""
    app.connect("builder-inited", draw_pictures, priority=100)
    return {"parallel_read_safe": True}
