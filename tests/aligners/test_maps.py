"""Maps of subjects: one interface, whatever the kind."""

import pickle

import numpy as np
import pytest
from numpy.testing import assert_array_equal
from sklearn.base import clone

import brainweave as bw
from brainweave._core.exceptions import InputError
from brainweave.aligners.maps import BasisMap, SubjectMap, WeightMap
from planted import planted_study

PARCELS = 1 + np.arange(40) % 3
ALIGNERS = {
    "coefficients": bw.GDM(3),
    "a kernel": bw.GDM(3, kernel="gaussian", kernel_params={"hp": 80}),
    "a mixing": bw.DetSRM(3),
    "a rotation": bw.Hyperalignment(3),
    "explicit weights": bw.RobustSRM(3),
    "nothing": bw.NoAlignment(),
    "parcels": bw.Parcelwise(bw.DetSRM(3), PARCELS),
    "searchlights": bw.Searchlight(
        bw.DetSRM(3),
        radius=8,
        coordinates=np.arange(40.0)[:, None],
        centers=np.arange(4, 40, 8),
    ),
}


@pytest.fixture
def data(rng):
    story = rng.standard_normal((36, 4))
    X = [
        100 + story @ rng.standard_normal((4, 40)) + rng.standard_normal((36, 40))
        for _ in range(3)
    ]
    return X, [np.arange(36) % 4] * 3


@pytest.mark.parametrize("name", ALIGNERS)
def test_every_map_knows_the_samples_it_was_learned_from(data, name, tmp_path, rng):
    X, y = data
    model = ALIGNERS[name].fit(X, y)
    loaded = bw.load(bw.save(model, tmp_path / "model.safetensors"))
    pickled = pickle.loads(pickle.dumps(model))
    new = model.fit_new_subject(X[2], y[2])
    mixed = np.vstack([X[1][[7, 3]], rng.standard_normal((2, 40)), X[1][:1] * 1.001])
    for m in (model.maps_[1], loaded.maps_[1], pickled.maps_[1]):
        assert isinstance(m, SubjectMap)
        assert m.took_part(mixed).tolist() == [True, True, False, False, False]
        assert m.took_part(X[1].astype(np.float32)).all()
        assert not m.took_part(X[0]).any()
    assert new.took_part(X[2]).all()
    assert not new.took_part(X[1]).any()
    with pytest.raises(InputError, match="Z2 must be samples x 40 voxels"):
        model.maps_[0].took_part(X[0][:, :7], name="Z2")


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("name", ["coefficients", "a mixing", "a rotation"])
def test_features_do_not_depend_on_what_was_asked_before(data, name, dtype, tmp_path):
    X = [x.astype(dtype) for x in data[0]]
    model = clone(ALIGNERS[name]).fit(X, data[1])
    first = model.transform(X)
    model.transform([x[:5] for x in X])
    loaded = bw.load(bw.save(model, tmp_path / "model.safetensors"))
    for again in (model.transform(X), loaded.transform(X)):
        assert all(np.array_equal(a, b) for a, b in zip(first, again, strict=True))


def test_voxels_outside_all_parcels_may_be_missing(data):
    X, y = data
    parcels = PARCELS.copy()
    parcels[5] = 0
    X[1][3, 5] = np.nan
    model = bw.Parcelwise(bw.DetSRM(3), parcels).fit(X, y)
    assert model.maps_[1].took_part(X[1]).all()


def test_a_map_without_signatures_says_why(data):
    X, y = data
    model = bw.Parcelwise(bw.GDM(3), PARCELS).fit(X, y)
    columns, local, _ = model.maps_[0].parts[0]
    with pytest.raises(InputError, match="it is of a piece of the brain"):
        local.took_part(X[0][:, columns])


def test_kinds_are_what_they_are_made_of(rng):
    X, y = planted_study(rng)
    coordinates = bw.PaperGDM(3, energy=0.82).fit(X, y).maps_[0]
    mixing = bw.DetSRM(3).fit(X[:2]).maps_[0]
    assert coordinates.mixing is None
    assert mixing.coef is None
    for m in (coordinates, mixing):
        assert type(m) is BasisMap
        plain = m.detach()
        assert type(plain) is WeightMap is type(pickle.loads(pickle.dumps(m)))
        assert plain.basis is None
        np.testing.assert_array_equal(plain.weights, m.weights)
        np.testing.assert_array_equal(plain.patterns, m.patterns)
        np.testing.assert_array_equal(plain.transform(X[0]), m.transform(X[0]))
        with pytest.raises(InputError, match="without aligning samples"):
            plain.aligning_features()
    # the two ways to say the same thing
    V, d = mixing.basis.vectors, mixing.basis.values
    same = BasisMap(mixing.basis, np.sqrt(d)[:, None] * (V.T @ mixing.mixing))
    np.testing.assert_allclose(same.weights, mixing.weights, atol=1e-9)


def test_a_way_back_that_was_not_kept_is_told(rng):
    X, y = planted_study(rng)
    m = bw.GDM(3).fit(X, y).maps_[0]
    bare = WeightMap(weights=m.weights, mean=m.mean, scale=m.scale)
    with pytest.raises(InputError, match="without patterns"):
        bare.inverse_transform(np.zeros((2, 3)))


def test_maps_without_a_brain_or_samples_say_so(data):
    X, _ = data
    fitted = bw.Hyperalignment(3).fit(X).maps_[0]
    with pytest.raises(InputError, match="does not know its brain space"):
        fitted.to_image(0)
    fitted.space = object()
    with pytest.raises(InputError, match="what of to_image must be one of"):
        fitted.to_image(0, what="colours")
    with pytest.raises(IndexError):
        fitted.to_image(3)
    alone = pickle.loads(pickle.dumps(bw.NoAlignment().fit(X))).maps_[0]
    with pytest.raises(InputError, match="without aligning samples"):
        alone.aligning_features()


@pytest.mark.parametrize("kernel", ["precomputed", lambda a, b: a @ b.T])
def test_nan_is_refused_by_kernels_that_hide_it(data, kernel):
    X = [x @ x.T for x in data[0]] if kernel == "precomputed" else data[0]
    model = bw.GDM(2, kernel=kernel).fit(X, data[1])
    wrong = X[0][:2].copy()
    wrong[1, 3] = np.nan
    with pytest.raises(InputError, match="NaN or infinite"):
        model.transform([wrong], subjects=[0])


@pytest.mark.parametrize("name", ALIGNERS)
def test_the_samples_of_several_subjects_are_no_samples_of_one(data, name):
    X, y = data
    own = clone(ALIGNERS[name]).fit(X, y).maps_[0]
    for several in ([X[0], X[1][:, :30]], (X[0], X[1][:, :30]), [X[0], X[1]]):
        with pytest.raises(InputError, match=r"samples x 40 voxels"):
            own.transform(several)


@pytest.mark.parametrize("kind", ["mixing", "coordinates"])
def test_patterns_are_the_regression_of_the_voxels_on_the_features(rng, kind):
    X = [rng.normal(size=(30, 50)) for _ in range(2)]
    model = bw.SVDHyperalignment(3) if kind == "mixing" else bw.Hyperalignment(3)
    own = model.fit(X).maps_[0]
    own.isometric = False
    # a small feature counts as well, and one that comes twice is halved
    mixing = rng.normal(size=(30, 3)) * [1, 1, 1e-4]
    mixing = np.column_stack([mixing, mixing[:, 0]])
    if kind == "mixing":
        own.mixing = mixing
    else:
        V, d = own.basis.vectors, own.basis.values
        own.coef = np.sqrt(d)[:, None] * (V.T @ mixing)
    Z = (X[0] - X[0].mean(axis=0)) / X[0].std(axis=0)
    np.testing.assert_allclose(own.aligning_features(), Z @ Z.T @ mixing, atol=1e-9)
    expected = np.linalg.lstsq(own.aligning_features(), Z, rcond=1e-9)[0]
    np.testing.assert_allclose(own.patterns, expected, rtol=1e-4, atol=1e-4)


def test_maps_take_a_subject_as_they_take_samples(data):
    X, _ = data
    new = bw.DetSRM(3).fit(X[:2]).fit_new_subject(bw.Subject("03", X[2]))
    assert_array_equal(new.transform(bw.Subject("03", X[2])), new.transform(X[2]))
    assert new.took_part(bw.Subject("03", X[2])).all()
