"""Procrustes with a prior of place, against rotations of all voxels by SVD."""

import numpy as np
import pytest
import scipy.linalg
from numpy.testing import assert_allclose

import brainweave as bw
from brainweave._core.exceptions import InputError


def study(n=40, v=15, m=4, noise=0.7, seed=0):
    rng = np.random.default_rng(seed)
    shared = rng.normal(size=(n, v)) * np.linspace(2, 0.5, v)
    return [shared + noise * rng.normal(size=(n, v)) for _ in range(m)]


def promises(X, k, n_iter):
    """The publication's iteration on all voxels, by SVD, from registration."""
    Z = [(x - x.mean(0)) / x.std(0) for x in X]
    weights = [k * (z * z).sum() / len(z) for z in Z]
    template = sum(Z) / len(Z)
    for _ in range(n_iter):
        rotations = []
        for z, w in zip(Z, weights, strict=True):
            U, _, V = np.linalg.svd(z.T @ template + w * np.eye(z.shape[1]))
            rotations.append(U @ V)
        template = sum(z @ R for z, R in zip(Z, rotations, strict=True)) / len(Z)
    return Z, rotations, template


@pytest.mark.parametrize("k", [0.0, 0.3, 5.0])
@pytest.mark.filterwarnings("ignore:.*did not converge")
def test_with_more_samples_than_voxels_it_is_the_rotation_of_voxels(k):
    X = study()
    model = bw.ProMises(concentration=k, max_iter=4, tol=0).fit(X)
    Z, rotations, template = promises(X, k, 4)
    turn = scipy.linalg.orthogonal_procrustes(template, model.template_)[0]
    for z, R, ours in zip(Z, rotations, model.transform(X), strict=True):
        assert_allclose(ours, z @ R @ turn, atol=1e-6)
    U, _, V = np.linalg.svd(Z[1].T @ template + k * (Z[1] ** 2).sum() / 40 * np.eye(15))
    new = model.fit_new_subject(X[1]).transform(X[1])
    assert_allclose(new, Z[1] @ U @ V @ turn, atol=1e-6)


STRENGTHS = (0.0, 0.03, 0.1, 0.3, 1.0, 3.0, 10.0, 30.0, 100.0, 1000.0)


def agreements(X, k, columns, halves):
    """Fit one half, correlate features of the other with the mean of the others."""
    Z = [(x - x.mean(0)) / x.std(0) for x in X]
    found = []
    for rows, others in (halves, halves[::-1]):
        model = bw.ProMises(concentration=k, max_iter=10, tol=0, standardize=False)
        model.fit([z[rows] for z in Z])
        features = [f[:, :columns] for f in model.transform([z[others] for z in Z])]
        features = [(f - f.mean(0)).ravel() for f in features]
        for i, own in enumerate(features):
            rest = np.mean(features[:i] + features[i + 1 :], axis=0)
            found.append(np.corrcoef(own, rest)[0, 1])
    return np.mean(found)


@pytest.mark.parametrize("seed", [0, 1, 2])
@pytest.mark.parametrize("kind", ["registered", "shuffled", "near"])
def test_the_concentration_is_the_best_for_samples_that_are_left_out(kind, seed):
    X = study(n=60, v=20, noise=1.0, seed=seed)
    rng = np.random.default_rng(seed)
    if kind == "shuffled":
        X = [x[:, rng.permutation(20)] for x in X]
    if kind == "near":
        turns = [
            scipy.linalg.expm(0.15 * (A - A.T)) for A in rng.normal(size=(4, 20, 20))
        ]
        X = [x @ Q for x, Q in zip(X, turns, strict=True)]
    halves = (np.arange(30), np.arange(30, 60))
    expected = [agreements(X, k, 5, halves) for k in STRENGTHS]
    chosen = bw.ProMises(5).fit(X).concentration_
    at = STRENGTHS.index(chosen)
    # it climbs from every third: best of its neighbours and of these
    nearby = {1, 4, 7, max(at - 1, 0), at, min(at + 1, 9)}
    assert expected[at] == max(expected[i] for i in nearby)
    if kind == "registered":
        assert chosen >= 10
    if kind == "shuffled":
        assert chosen <= 0.1


def test_known_runs_are_the_halves_and_a_model_keeps_what_it_chose():
    X = [np.vstack([x[::2], x[1::2]]) for x in study(n=40)]
    order = np.argsort(np.arange(40) % 2, kind="stable")
    runs = np.arange(40) % 2
    mixed = [x[np.argsort(order)] for x in X]
    subjects = [bw.Subject(str(i), x, runs=runs) for i, x in enumerate(mixed)]
    by_runs = bw.ProMises(4).fit(bw.Study(subjects))
    assert by_runs.concentration_ == bw.ProMises(4).fit(X).concentration_
    assert by_runs.concentration_ != bw.ProMises(4).fit(mixed).concentration_
    given = bw.ProMises(4, concentration=by_runs.concentration_).fit(mixed)
    for a, b in zip(given.transform(mixed), by_runs.transform(mixed), strict=True):
        assert_allclose(a, b, atol=1e-10)
    assert bw.ProMises(1).fit([x[:3] for x in X]).concentration_ == 1
    with pytest.raises(ValueError, match="concentration of ProMises must be"):
        bw.ProMises(concentration="strong").fit(X)


def test_no_turn_raises_the_objective_and_the_optimum_is_generalised_procrustes():
    X = study(v=60)
    for k in (0.0, 1.0):
        history = bw.ProMises(concentration=k, tol=1e-8).fit(X).objective_history_
        assert (np.diff(history) <= 1e-9 * abs(history[0])).all()
    rotated = bw.Hyperalignment(max_iter=300, tol=1e-10).fit(X).objective_history_[-1]
    ours = bw.ProMises(concentration=0, max_iter=500, tol=1e-10).fit(X)
    assert ours.objective_history_[-1] < rotated * 1.02


def test_a_strong_prior_is_registration_and_a_weak_one_finds_a_permutation():
    X = study(v=30, noise=0.2, n=60)
    order = np.random.default_rng(1).permutation(30)
    X[2] = X[2][:, order]

    def agreement(k):
        a, _, c, _ = bw.ProMises(concentration=k).fit(X).transform(X)
        return np.corrcoef(a.ravel(), c.ravel())[0, 1]

    assert agreement(0.0) > 0.9
    assert agreement(1e4) < 0.5


def test_places_may_be_those_of_a_common_space_with_other_masks():
    brains = bw.simulate_brains(n_subjects=4, random_state=0)
    brains = brains[0] if isinstance(brains, tuple) else brains
    model = bw.ProMises(5).fit(brains)
    assert model.place_.n_places > 0
    new = model.fit_new_subject(brains[1])
    a, b = new.transform(brains[1].data()), model.transform(brains)[1]
    assert np.corrcoef(a.ravel(), b.ravel())[0, 1] > 0.99


def test_voxels_without_places_are_refused():
    X = [x[:, :w] for x, w in zip(study(), (15, 12, 15, 15), strict=True)]
    with pytest.raises(InputError, match="different numbers of columns"):
        bw.ProMises().fit(X)
    with pytest.raises(ValueError, match="concentration"):
        bw.ProMises(concentration=-1).fit(study())


def test_a_model_file_maps_and_joins_alike(tmp_path):
    X = study(v=60)
    model = bw.ProMises(4).fit(X)
    loaded = bw.load(bw.save(model, tmp_path / "promises.safetensors"))
    for a, b in zip(loaded.transform(X), model.transform(X), strict=True):
        assert_allclose(a, b, atol=1e-10)
    a, b = (m.fit_new_subject(X[0]).transform(X[0]) for m in (loaded, model))
    assert_allclose(a, b, atol=1e-10)
