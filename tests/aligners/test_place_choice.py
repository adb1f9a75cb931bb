"""What the choice of ridges and the shared map promise, seen from outside."""

import numpy as np
import pytest
from numpy.testing import assert_allclose

from brainweave import GDM, InputError
from brainweave.aligners.gdm.joint import JointRidge
from brainweave.aligners.gdm.smoother import GramSmoother


def labelled(rng, n_subjects=6, voxels=40, *, own=0.3, noise=3.0, n=48):
    """Categories on maps that are alike in all subjects but for their own share."""
    y = np.arange(n) % 6
    maps = rng.normal(size=(6, voxels))
    shared = [maps + own * rng.normal(size=maps.shape) for _ in range(n_subjects)]
    return [m[y] + noise * rng.normal(size=(n, voxels)) for m in shared], [
        y
    ] * n_subjects


def film(rng, n_subjects=6, voxels=40, n=60, noise=4.0):
    courses, maps = rng.normal(size=(n, 4)), rng.normal(size=(4, voxels))
    return [
        courses @ (maps + 0.3 * rng.normal(size=maps.shape))
        + noise * rng.normal(size=(n, voxels))
        for _ in range(n_subjects)
    ]


def test_columns_that_do_not_correspond_are_not_used_as_places():
    used = 0
    for seed in range(6):
        rng = np.random.default_rng(seed)
        y = np.arange(28) % 7
        X = [
            rng.normal(size=(7, 400))[y] + 2 * rng.normal(size=(28, 400))
            for _ in range(8)
        ]
        used += GDM(6).fit(X, [y] * 8).place_.used
    assert used == 0


def test_where_places_are_not_used_the_strength_is_that_without_them(rng):
    X, y = labelled(rng, own=8.0)
    gdm, without = GDM(5).fit(X, y), GDM(5, place=None).fit(X, y)
    assert not gdm.place_.used
    assert gdm.shrinkage_by_ == without.shrinkage_by_ != "agreement"
    assert gdm.shrinkage_ == without.shrinkage_


def test_the_order_of_subjects_with_strengths_of_their_own_moves_no_choice(rng):
    X, y = labelled(rng)
    rhos = [0.1, 0.3, 1.0, 3.0, 0.2, 10.0]
    found = [
        GDM(4, shrinkage=own).fit(x, y).place_
        for own, x in ((rhos, X), (rhos[::-1], X[::-1]))
    ]
    assert found[0].ridge == found[1].ridge
    assert found[0].gain == pytest.approx(found[1].gain, rel=1e-6)
    for own in (rhos, rhos[::-1]):
        assert GDM(4, shrinkage=own).fit(X, y).shrinkage_ == own  # as given


def test_features_of_the_shared_map_are_as_large_as_those_of_fitted_subjects(rng):
    X = film(rng)
    gdm = GDM(4, graph="time", place_shrinkage=0.01, shrinkage=3.0).fit(X[:5])
    fitted = np.mean([f.std(axis=0) for f in gdm.transform(X[:5])], axis=0)
    zero_shot = gdm.shared_map_.transform(X[5]).std(axis=0)
    assert np.all(zero_shot < 2 * fitted)
    assert np.all(zero_shot > fitted / 2)


def test_the_shared_map_ignores_voxels_that_never_vary(rng):
    X = film(rng)
    gdm = GDM(3, graph="time", place_shrinkage=0.1).fit(X[:5])
    flat = X[5].copy()
    flat[:, 3] = 7.0
    z = (flat - flat.mean(axis=0)) / np.where(flat.std(axis=0) > 0, flat.std(axis=0), 1)
    z[:, 3] = 0
    expected = z @ gdm.shared_map_.weights
    assert_allclose(gdm.shared_map_.transform(flat), expected, atol=1e-9)


def test_the_shared_map_refuses_other_columns_and_single_samples(rng):
    X = film(rng)
    gdm = GDM(3, graph="time", place_shrinkage=0.1).fit(X)
    with pytest.raises(InputError, match="has 39 columns, but the 40 places"):
        gdm.shared_map_.transform(X[0][:, 1:])
    with pytest.raises(InputError, match="X has 1 samples; the shared map"):
        gdm.shared_map_.transform(X[0][:1])
    with pytest.raises(InputError, match="needs a subject that was loaded from images"):
        gdm.shared_map_.to_image(0, like=X[0])


def test_a_new_subject_is_tied_by_the_ids_that_others_saw(rng):
    X, y = labelled(rng)
    both = [np.array([*zip(own, range(48), strict=True)], object) for own in y]
    gdm = GDM(5, graph="labels+time", place=None, shrinkage=1.0).fit(X[:5], both[:5])

    def join(ids):
        pairs = np.array([*zip(y[5], ids, strict=True)], object)
        return gdm.fit_new_subject(X[5], pairs).weights

    nobody = join([None] * 48)
    assert_allclose(join(range(100, 148)), nobody, atol=1e-10)
    assert np.abs(join(range(48)) - nobody).max() > 0.01 * np.abs(nobody).max()


def test_another_ridge_of_the_shared_map_is_another_regression(rng):
    X = [x - x.mean(axis=0) for x in rng.normal(size=(3, 12, 7))]
    targets = list(rng.normal(size=(3, 12, 2)))
    joint = JointRidge([GramSmoother(x @ x.T, 2.0) for x in X], X, 0.1)
    joint.regress(targets)
    fresh = JointRidge(joint.smoothers, X, 3.0).regress(targets)
    assert_allclose(joint.at(3.0).regress(targets).shared, fresh.shared, atol=1e-12)
