"""The checks that all aligners pass."""

from brainweave_mean_template import MeanTemplate

from brainweave.testing import check_aligner


def test_it_passes_what_all_aligners_pass() -> None:
    """Fit, map, join, pickle: one case of each."""
    check_aligner(MeanTemplate())
