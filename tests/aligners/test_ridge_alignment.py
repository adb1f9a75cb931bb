"""Ridge regression between subjects, against scikit-learn's on the voxels."""

import numpy as np
import pytest
from numpy.testing import assert_allclose
from sklearn.linear_model import Ridge

import brainweave as bw
from brainweave._core.exceptions import InputError
from brainweave.aligners.gdm.strength import FEATURE_GRID


def study(n=40, v=25, m=4, noise=1.0, seed=0):
    rng = np.random.default_rng(seed)
    shared = rng.normal(size=(n, 5)) @ rng.normal(size=(5, v))
    return [
        shared + shared @ rng.normal(size=(v, v)) / v + noise * rng.normal(size=(n, v))
        for _ in range(m)
    ]


def standardized(X):
    return [(x - x.mean(0)) / x.std(0) for x in X]


def predicted(x, target, rho):
    """The ridge regression written out; rho is in units of the mean eigenvalue."""
    strength = rho * (x * x).sum() / len(x)
    return Ridge(strength, fit_intercept=False).fit(x, target)


@pytest.mark.parametrize("v", [25, 60])
@pytest.mark.parametrize("target", ["leave-one-out", "mean", 2])
def test_maps_are_ridge_regressions_on_the_target(target, v):
    X = study(v=v)
    Z = standardized(X)
    model = bw.RidgeAlignment(target=target, shrinkage=0.3).fit(X)
    total = sum(Z)
    template = Z[2] if target == 2 else total / 4
    wanted = {
        "leave-one-out": [(total - z) / 3 for z in Z],
        "mean": [template] * 4,
        2: [template] * 4,
    }[target]
    axes = np.linalg.svd(template, full_matrices=False)[2][:39]  # its rank
    for i, (features, z) in enumerate(zip(model.transform(X), Z, strict=True)):
        theirs = predicted(z, wanted[i] @ axes.T, 0.3).predict(z)
        if i == target:
            theirs = template @ axes.T
        # axes have no sign, and distances between features need none
        assert_allclose(features @ features.T, theirs @ theirs.T, atol=1e-7 * v)
    new = model.fit_new_subject(X[1])
    theirs = predicted(Z[1], template, 0.3).predict(Z[1])
    ours = new.transform(X[1])
    assert_allclose(ours @ ours.T, theirs @ theirs.T, atol=1e-7 * v)


def test_all_axes_keep_the_distances_between_predicted_patterns():
    X = study(v=60)
    new = [x[:7] + 0.1 for x in X]
    model = bw.RidgeAlignment(shrinkage=1.0, target="mean").fit(X)
    Z = standardized(X)
    ridge = predicted(Z[0], sum(Z) / 4, 1.0)
    theirs = ridge.predict((new[0] - X[0].mean(0)) / X[0].std(0))
    ours = model.transform(new)[0]
    assert_allclose(ours @ ours.T, theirs @ theirs.T, atol=1e-6)


@pytest.mark.parametrize("noise", [0.3, 4.0])
def test_the_strength_is_that_of_cross_validation(noise):
    """Every subject predicts the mean of the others in quarters that are left out."""
    X = study(noise=noise, n=44)
    Z, quarters = standardized(X), np.arange(44) * 4 // 44
    axes = np.linalg.svd(sum(Z), full_matrices=False)[2][:6]

    def centred(values):
        return np.concatenate(
            [values[quarters == q] - values[quarters == q].mean(0) for q in range(4)]
        )

    scores = np.zeros(len(FEATURE_GRID))
    for z in Z:
        target = (sum(Z) - z) / 3 @ axes.T
        for j, rho in enumerate(FEATURE_GRID):
            strength = rho * (z * z).sum() / 44
            out = np.zeros_like(target)
            for q in range(4):
                train = quarters != q
                ridge = Ridge(strength).fit(z[train], target[train])
                out[~train] = ridge.predict(z[~train])
            both = centred(out).ravel(), centred(target).ravel()
            scores[j] += np.corrcoef(*both)[0, 1]
    model = bw.RidgeAlignment(6).fit(X)
    assert model.shrinkage_ == FEATURE_GRID[int(scores.argmax())]


def test_a_mean_that_contains_the_subject_does_not_flatter_the_strength():
    X = study(noise=6.0, m=3)
    chosen = bw.RidgeAlignment(target="mean").fit(X).shrinkage_
    assert chosen == bw.RidgeAlignment().fit(X).shrinkage_


def test_one_subject_may_be_the_target_of_others_with_other_voxels():
    X = [x[:, :w] for x, w in zip(study(v=30), (30, 20, 25, 10), strict=True)]
    model = bw.RidgeAlignment(5, target=1).fit(X)
    own = bw.NoAlignment().fit([X[1]] * 2).transform([X[1]] * 2)[0]
    back = model.transform(X)[1] @ np.linalg.lstsq(model.transform(X)[1], own)[0]
    assert np.corrcoef(back.ravel(), own.ravel())[0, 1] > 0.8
    with pytest.raises(InputError, match="which voxels of the subjects correspond"):
        bw.RidgeAlignment(5).fit(X)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"target": "best"}, "target of RidgeAlignment must be"),
        ({"target": 4}, "target"),
        ({"shrinkage": "oas"}, "shrinkage of RidgeAlignment must be"),
        ({"shrinkage": 0}, "shrinkage of RidgeAlignment must be > 0"),
        ({"n_components": 26}, "n_components=26 is more than the 25 dimensions"),
    ],
)
def test_settings_that_make_no_sense_are_refused(options, message):
    with pytest.raises(ValueError, match=message):
        bw.RidgeAlignment(**options).fit(study())


def test_a_model_file_maps_alike(tmp_path):
    X = study(v=60)
    for target in ("leave-one-out", 0):
        model = bw.RidgeAlignment(4, target=target, shrinkage=0.5).fit(X)
        loaded = bw.load(bw.save(model, tmp_path / "ridge.safetensors"))
        pairs = zip(loaded.transform(X), model.transform(X), strict=True)
        for a, b in pairs:
            assert_allclose(a, b, atol=1e-10)
        a, b = (m.fit_new_subject(X[0]).transform(X[0]) for m in (loaded, model))
        assert_allclose(a, b, atol=1e-10)


@pytest.mark.parametrize("aligner", [bw.RidgeAlignment(3), bw.ProMises(3)])
def test_places_are_said_to_be_where_voxels_correspond(aligner, tmp_path):
    model = aligner.fit(study())
    bw.save(model, tmp_path / "m.safetensors")
    for place in (model.place_, bw.load(tmp_path / "m.safetensors").place_):
        assert str(place).startswith("Voxels correspond by 25 places (equal columns)")
