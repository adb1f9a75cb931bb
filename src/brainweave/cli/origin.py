"""How an artefact came about: said in the file itself, or in a file beside it."""

import datetime
import platform
from typing import Any

from brainweave._version import __version__


def provenance(
    command: str, options: dict[str, Any], ids: list[str], **more: Any
) -> dict[str, Any]:
    """Say when, with which command, options and versions something was made.

    Parameters
    ----------
    command : str
        Of brainweave.
    options : dict
        As they were used; none where a TOML file states them already.
    ids : list of str
        The subjects.
    **more
        What else is to be kept, such as ``study_fingerprint``.
    """
    from importlib.metadata import version

    now = datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds")
    packages = ("numpy", "scipy", "scikit-learn")
    versions = {"python": platform.python_version(), "brainweave": __version__}
    return {
        "made": now,
        "command": f"brainweave {command}",
        **({"options": options} if options else {}),
        "subjects": list(ids),
        "versions": versions | {name: version(name) for name in packages},
        **more,
    }
