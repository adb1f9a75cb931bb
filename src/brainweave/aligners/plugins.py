"""Aligners of other packages that are installed, by entry points.

A package names its class in its ``pyproject.toml``:

.. code-block:: toml

    [project.entry-points."brainweave.aligners"]
    my-method = "my_package:MyAligner"

``--method my-method`` then finds it, and model files may hold it.
"""

from importlib.metadata import EntryPoint, entry_points

from brainweave._core.exceptions import InputError
from brainweave.aligners.base import BaseAligner

GROUP = "brainweave.aligners"


def plugins() -> dict[str, EntryPoint]:
    """Return what installed packages offer, by the name of the method."""
    return {point.name: point for point in entry_points(group=GROUP)}


def load_plugin(point: EntryPoint) -> type[BaseAligner]:
    """Import the aligner of an entry point."""
    found = point.load()
    if isinstance(found, type) and issubclass(found, BaseAligner):
        return found
    raise InputError(
        f"The entry point {point.name} = {point.value} of {GROUP} is no subclass of "
        "BaseAligner. Correct or uninstall that package."
    )
