"""The version of this package, and of the libraries that results depend on."""

import platform
from contextlib import suppress

__version__ = "0.1.0"
NUMERICAL = ("numpy", "scipy", "scikit-learn")


def versions(libraries: tuple[str, ...] = NUMERICAL) -> dict[str, str]:
    """Return the versions of this package, of Python, and of libraries, if here."""
    from importlib.metadata import PackageNotFoundError, version

    found = {"brainweave": __version__, "python": platform.python_version()}
    for name in libraries:
        with suppress(PackageNotFoundError):  # e.g. an optional library
            found[name] = version(name)
    return found
