"""Hyperalignment against the package ``hyperalignment``."""

import numpy as np
import pytest
from numpy.testing import assert_allclose

import brainweave as bw

pytestmark = pytest.mark.filterwarnings("ignore")  # theirs are not ours to mend


@pytest.fixture
def procrustes():
    return pytest.importorskip("hyperalignment.procrustes").procrustes


@pytest.fixture
def template():
    return pytest.importorskip(
        "hyperalignment.local_template"
    ).compute_procrustes_template


def study(seed=0, n=60, v=40, n_subjects=5):
    rng = np.random.default_rng(seed)
    shared = rng.normal(size=(n, v))
    X = []
    for _ in range(n_subjects):
        Q = np.linalg.qr(rng.normal(size=(v, v)))[0]
        x = shared @ Q + 0.8 * rng.normal(size=(n, v))
        X.append(x - x.mean(axis=0))
    return X


@pytest.mark.parametrize("v", [40, 100])
def test_rotation_onto_a_template(procrustes, record, v):
    """Without a rank to spare (v > n) the rotated samples are what is unique."""
    X = study(v=v)
    model = bw.Hyperalignment(standardize=False).fit(X[:4])
    ours = model.fit_new_subject(X[4]).transform(X[4])
    width = v - model.template_.shape[1]
    target = np.pad(model.template_, ((0, 0), (0, width)))
    theirs = (X[4] @ procrustes(X[4], target))[:, : ours.shape[1]]
    worst = np.abs(ours - theirs).max()
    norms = np.linalg.norm(ours), np.linalg.norm(theirs)
    record(
        *("hyperalignment", "Hyperalignment", f"rotated samples, {v} voxels"),
        *(*norms, worst, "1e-6"),
    )
    assert_allclose(ours, theirs, atol=1e-6)


@pytest.mark.parametrize("passes", [1, 50])
def test_objective_after_the_same_number_of_passes(
    procrustes, template, record, passes
):
    X = study(1)
    common = template(np.array(X), zscore_common=False, level2_iter=passes)
    aligned = [x @ procrustes(x, common) for x in X]
    value = sum(np.sum((a - np.mean(aligned, axis=0)) ** 2) for a in aligned)
    model = bw.Hyperalignment(max_iter=passes, standardize=False).fit(X)
    ours = model.objective_history_[-1]
    record(
        *("hyperalignment", "Hyperalignment", f"objective, {passes} passes"),
        *(ours, value, ours / value - 1, "+0.1 %"),
    )
    assert ours <= value * 1.001
