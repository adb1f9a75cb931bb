"""The code of other packages that a tutorial shows runs."""

import re
import textwrap
from pathlib import Path

import numpy as np
import pytest

pytestmark = pytest.mark.filterwarnings("ignore")  # theirs are not ours to mend

TUTORIAL = Path(__file__).parents[2] / "examples/plot_10_coming_from.py"
TEXT = re.sub(r"^# ?", "", TUTORIAL.read_text(encoding="utf-8"), flags=re.M)
BLOCKS = re.findall(r"\.\. code-block:: python\n\n((?: {4}.*\n|\n)+)", TEXT)


def test_every_package_has_its_block():
    assert len(BLOCKS) == 3


@pytest.mark.parametrize(
    "block", BLOCKS, ids=["brainiak", "hyperalignment", "fmralign"]
)
def test_the_block_runs(block, rng):
    pytest.importorskip(re.search(r"from (\w+)", block)[1])
    shared = rng.normal(size=(40, 4))
    data = [
        shared @ rng.normal(size=(4, 30)) + rng.normal(size=(40, 30)) for _ in range(3)
    ]
    names = {"np": np, "data": data, "new": data[2], "labels": np.arange(30) // 10 + 1}
    names |= {"X1": data[0], "X2": data[1], "Z1": data[0]}
    exec(textwrap.dedent(block), names)
    assert {"shared", "aligned"} & set(names)
