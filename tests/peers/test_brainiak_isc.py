"""Inter-subject correlation and functional connectivity against BrainIAK."""

import numpy as np
import pytest
from numpy.testing import assert_allclose

import brainweave as bw

pytestmark = pytest.mark.filterwarnings("ignore")  # theirs are not ours to mend


@pytest.fixture
def isc():
    """BrainIAK's module, which needs MPI (``pip install brainiak mpich``)."""
    return pytest.importorskip("brainiak.isc", exc_type=ImportError)


def story(seed=0, n_subjects=5, n=80, k=6):
    rng = np.random.default_rng(seed)
    course = rng.normal(size=(n, k))
    return [course + (1 + i) * rng.normal(size=(n, k)) for i in range(n_subjects)]


def theirs(X):
    """They take samples x voxels x subjects."""
    return np.stack(X, axis=2)


@pytest.mark.parametrize("pairwise", [False, True])
def test_isc_is_theirs(isc, pairwise):
    X = story()
    expected = isc.isc(theirs(X), pairwise=pairwise)
    found = bw.inter_subject_correlation(X, pairwise=pairwise, standardize=False)
    assert_allclose(found, expected, atol=1e-6)  # they may compute in single precision


@pytest.mark.parametrize("pairwise", [False, True])
def test_isfc_is_theirs(isc, pairwise):
    X = story(1)
    expected = isc.isfc(theirs(X), pairwise=pairwise, vectorize_isfcs=False)
    found = bw.inter_subject_functional_connectivity(
        X, pairwise=pairwise, standardize=False
    )
    assert_allclose(found, expected, atol=1e-5)


def test_samples_that_one_subject_misses_count_as_theirs(isc):
    X = story(2)
    seen = [np.arange(80), np.arange(15, 80), *[np.arange(80)] * 3]
    gaps = theirs(X).copy()
    gaps[:15, :, 1] = np.nan
    expected = isc.isc(gaps, pairwise=True, tolerate_nans=True)
    found = bw.inter_subject_correlation(
        [x[t] for x, t in zip(X, seen, strict=True)], seen, pairwise=True
    )
    complete = np.isfinite(expected).all(axis=1)  # theirs may have none with gaps
    assert complete.sum() >= 6
    assert_allclose(found[complete], expected[complete], atol=1e-6)
