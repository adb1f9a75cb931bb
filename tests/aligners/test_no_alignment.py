"""No alignment: standardised voxels, and nothing else."""

import numpy as np
import pytest
from numpy.testing import assert_allclose

from brainweave import NoAlignment
from brainweave._core.exceptions import InputError


def study(seed=0, n=20, v=30):
    rng = np.random.default_rng(seed)
    return [rng.normal(5, 3, size=(n, v)) for _ in range(3)]


def test_features_are_standardised_voxels():
    X = study()
    new = study(1)
    model = NoAlignment().fit(X)
    for x, z, f in zip(X, new, model.transform(new), strict=True):
        assert_allclose(f, (z - x.mean(axis=0)) / x.std(axis=0), atol=1e-12)
    assert model.n_components_ == 30


def test_way_back_is_exact():
    X = study()
    model = NoAlignment().fit(X)
    for x, back in zip(X, model.inverse_transform(model.transform(X)), strict=True):
        assert_allclose(back, x, atol=1e-12)


def test_only_the_mean_goes_without_standardising():
    X = study()
    features = NoAlignment(standardize=False).fit_transform(X)
    assert_allclose(features[0], X[0] - X[0].mean(axis=0), atol=1e-12)


def test_constant_voxels_come_back_as_they_were():
    X = study()
    X[0][:, 3] = 7
    model = NoAlignment().fit(X)
    features = model.transform(X)
    assert_allclose(features[0][:, 3], 0, atol=0)
    assert_allclose(model.inverse_transform(features)[0], X[0], atol=1e-12)


def test_different_voxel_counts_are_refused_with_the_remedy():
    X = study()
    with pytest.raises(
        ValueError,
        match=r"X\[1\] has 29 voxels, the others have 30.*one mask.*SRM or GDM",
    ):
        NoAlignment().fit([X[0], X[1][:, :-1]])
    model = NoAlignment().fit(X)
    with pytest.raises(ValueError, match="29 voxels, the others have 30"):
        model.fit_new_subject(X[0][:, :-1])


def test_samples_may_differ_between_subjects():
    X = study()
    model = NoAlignment().fit([X[0], X[1][:-4]])
    assert [len(f) for f in model.transform([X[0], X[1][:3]])] == [20, 3]


def test_weights_are_not_formed():
    model = NoAlignment().fit(study())
    with pytest.raises(ValueError, match="no weights or patterns"):
        _ = model.maps_[0].weights
    with pytest.raises(ValueError, match="no weights or patterns"):
        _ = model.maps_[0].patterns


def test_features_of_wrong_shape_are_refused():
    model = NoAlignment().fit(study())
    with pytest.raises(ValueError, match="samples x 30 voxels"):
        model.inverse_transform([np.zeros((4, 3))] * 3)


def test_standardised_voxels_are_an_isometric_map(rng):
    model = NoAlignment().fit([rng.normal(size=(9, 5))] * 2)
    assert all(m.isometric for m in model.maps_)


def test_a_map_keeps_no_samples(rng):
    X = [rng.normal(size=(12, 5)) for _ in range(2)]
    model = NoAlignment()
    features = model.fit_transform(X)
    assert_allclose(model.maps_[0].transform(X[0]), features[0], atol=1e-12)
    with pytest.raises(InputError, match="made without aligning samples"):
        model.maps_[0].aligning_features()
