"""What every doctest finds: the name ``np``, and an empty folder to work in."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest


@pytest.fixture(autouse=True)
def _doctest_names(doctest_namespace: dict[str, Any]) -> None:
    doctest_namespace["np"] = np


@pytest.fixture(autouse=True)
def _doctest_folder(request: pytest.FixtureRequest) -> None:
    if isinstance(request.node, pytest.DoctestItem):
        folder: Path = request.getfixturevalue("tmp_path")
        request.getfixturevalue("monkeypatch").chdir(folder)
