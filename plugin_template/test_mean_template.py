"""Run the checks that all aligners must pass."""

from brainweave_mean_template import MeanTemplate

from brainweave.testing import check_aligner


def test_mean_template_passes_all_checks() -> None:
    """Fit, transform, add a subject and pickle."""
    check_aligner(MeanTemplate())
