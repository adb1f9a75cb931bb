import os
from pathlib import Path

import numpy as np
import pytest
from hypothesis import Phase, settings

# the gate runs the same examples every time; HYPOTHESIS_PROFILE=explore seeks new ones
settings.register_profile("gate", derandomize=True, deadline=None)
settings.register_profile("explore", max_examples=300, deadline=None)
# tools/mutants.py asks whether a test fails, not by which smallest example
settings.register_profile(
    "mutants", derandomize=True, deadline=None, phases=[Phase.explicit, Phase.generate]
)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "gate"))


@pytest.fixture
def rng():
    return np.random.default_rng(20200207)


@pytest.fixture(scope="session")
def real_data():
    """Real data: $BRAINWEAVE_DATA, else ../shared/data of the checkout."""
    named = os.environ.get("BRAINWEAVE_DATA")
    folder = Path(named) if named else Path(__file__).parents[2] / "shared" / "data"
    if not folder.is_dir():
        pytest.skip(f"no real data at {folder}; set BRAINWEAVE_DATA to its folder")
    return folder
