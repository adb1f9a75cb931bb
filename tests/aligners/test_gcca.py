"""GCCA against the eigenproblem on voxels, scipy's route for two sets, and GDM."""

import numpy as np
import pytest
import scipy.linalg
from numpy.testing import assert_allclose
from sklearn.cross_decomposition import CCA

import brainweave as bw
from brainweave._core.exceptions import UniquenessWarning


def study(n=50, voxels=(30, 70, 45), seed=0):
    rng = np.random.default_rng(seed)
    shared = rng.normal(size=(n, 6)) * [3, 2.5, 2, 1.6, 1.3, 1]
    return [
        shared @ rng.normal(size=(6, v)) + 2 * rng.normal(size=(n, v)) for v in voxels
    ]


def test_it_is_the_eigenproblem_of_the_ridge_smoothers():
    X = study()
    model = bw.GCCA(5, shrinkage=0.2).fit(X)
    total, each = np.zeros((50, 50)), []
    for x in X:
        z = (x - x.mean(0)) / x.std(0)
        g = 0.2 * (z * z).sum() / 50
        W = np.linalg.solve(z.T @ z + g * np.eye(z.shape[1]), z.T)
        total += z @ W
        each.append((z, W))
    values, G = np.linalg.eigh(total / 3)
    assert_allclose(model.eigenvalues_, values[::-1][:5], atol=1e-10)
    G = G[:, ::-1][:, :5] * np.sqrt(50)
    assert_allclose(np.abs(model.shared_response_), np.abs(G), atol=1e-7)
    for (z, W), features in zip(each, model.transform(X), strict=True):
        assert_allclose(np.abs(features), np.abs(z @ W @ G), atol=1e-7)


def test_two_sets_without_a_ridge_are_canonical_correlations():
    X = study(n=80, voxels=(6, 7))
    model = bw.GCCA(4, shrinkage=0).fit(X)
    a, b = CCA(4, max_iter=10_000, tol=1e-12).fit(*X).transform(*X)
    found = [np.corrcoef(a[:, k], b[:, k])[0, 1] for k in range(4)]
    assert_allclose(2 * model.eigenvalues_ - 1, found, atol=1e-5)


@pytest.mark.parametrize("rho", [0.05, 0.7])
def test_it_is_gdm_with_a_time_graph_up_to_the_scale_of_features(rho):
    X = study()
    gcca = bw.GCCA(5, shrinkage=rho).fit(X)
    gdm = bw.GDM(5, graph="time", shrinkage=rho, place=None, constraint="global")
    for a, b in zip(gcca.transform(X), gdm.fit(X).transform(X), strict=True):
        alike = [np.corrcoef(a[:, k], b[:, k])[0, 1] for k in range(5)]
        assert_allclose(np.abs(alike), 1, atol=1e-10)
    new = study(voxels=(33, 33))[0]
    a, b = (m.fit_new_subject(new).transform(new) for m in (gcca, gdm))
    alike = [np.corrcoef(a[:, k], b[:, k])[0, 1] for k in range(5)]
    assert_allclose(np.abs(alike), 1, atol=1e-10)


def test_plain_gcca_of_more_voxels_than_samples_is_not_unique_and_says_so():
    with pytest.warns(UniquenessWarning, match="equally strong"):
        bw.GCCA(5, shrinkage=0).fit(study(n=20))
    rank = bw.GCCA(3, shrinkage=0, energy=0.5).fit(study(n=20))
    U = [b.vectors for b in rank.bases_]
    stacked = scipy.linalg.svdvals(np.hstack(U)) ** 2 / 3
    assert_allclose(rank.eigenvalues_, stacked[:3], atol=1e-10)


def test_the_strength_is_chosen_where_labels_repeat_as_by_gdm():
    y = [np.arange(50) % 5] * 3
    X = study()
    model = bw.GCCA(3).fit(X, y)
    assert model.shrinkage_by_ == "blocks"
    assert bw.GCCA(3).fit(X).shrinkage_by_ == "ledoit-wolf"
