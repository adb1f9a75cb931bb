"""Pictures of the site: that of the front page, and those that examples return."""

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


def scrape_returned_figure(block: Any, block_vars: Any, gallery_conf: Any) -> str:
    """Show the figure that a block of an example ends with.

    The figures of brainweave belong to no pyplot window, where the gallery looks.
    """
    from matplotlib.figure import Figure
    from sphinx_gallery.scrapers import figure_rst

    known = block_vars["example_globals"]
    shown = known.get("___")
    if not isinstance(shown, Figure) or known.get("__shown__") is shown:
        return ""
    known["__shown__"] = shown
    path = next(block_vars["image_path_iterator"])
    shown.savefig(path, dpi=150)
    return figure_rst([path], gallery_conf["src_dir"])


def setup(app: Any) -> dict[str, bool]:
    """Register with Sphinx."""
    app.connect("builder-inited", draw_pictures, priority=100)
    return {"parallel_read_safe": True}
