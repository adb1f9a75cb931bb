"""Tools that all layers share; and which version of this package and others runs."""

import platform
from importlib.metadata import PackageNotFoundError, version

NUMERICAL = ("numpy", "scipy", "scikit-learn")

try:
    __version__ = version("brainweave")
except PackageNotFoundError:  # sources that are not installed
    __version__ = "0.1.0.dev0"


def versions(libraries: tuple[str, ...] = NUMERICAL) -> dict[str, str]:
    """Return the versions of this package, of Python, and of libraries, if here."""
    found = {"brainweave": __version__, "python": platform.python_version()}
    for name in libraries:
        try:
            found[name] = version(name)
        except PackageNotFoundError:  # e.g. an optional library
            continue
    return found
