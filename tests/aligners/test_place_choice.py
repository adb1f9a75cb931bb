"""What the choice of ridges and the shared map promise, seen from outside."""

import warnings

import numpy as np
import pytest
from numpy.testing import assert_allclose

from brainweave import GDM, InputError, SeparateSubjectsWarning, alignment_check
from brainweave.aligners.gdm import gdm as default
from brainweave.aligners.gdm.agreement_choice import distinctness
from brainweave.aligners.gdm.joint import JointRidge
from brainweave.aligners.gdm.ridge import LeadingGroups, solve_shrinkage
from brainweave.aligners.gdm.smoother import GramSmoother, NarrowSmoother
from brainweave.graphs.builders import label_graph, time_graph


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


def many_times(rng, n_subjects=10):
    X = film(rng, n_subjects, voxels=12, n=170, noise=1.0)
    X = [x - x.mean(axis=0) for x in X]
    smoothers = [NarrowSmoother(x, 20.0) for x in X]
    return X, smoothers, time_graph([range(170)] * n_subjects)


@pytest.mark.parametrize("place", [np.inf, 3.0])
def test_many_groups_are_compared_in_the_span_of_what_is_shared_most(rng, place):
    X, smoothers, graph = many_times(rng)
    leading = LeadingGroups(JointRidge(smoothers, X, 30.0), graph)
    assert leading.U[0].shape == (170, 80)
    for strength in (2.0, 200.0):  # other ridges than it was found with
        others = [NarrowSmoother(x, strength) for x in X]
        joint = JointRidge(others, X, place)
        mu, targets, mixed = leading.targets(joint, 4)
        found = solve_shrinkage(joint, graph, 4)
        assert_allclose(mu, found.eigenvalues[:4], rtol=1e-4)
        ours = np.concatenate(joint.regress(targets).features)
        theirs = np.concatenate(found.features)
        angles = np.linalg.svd(np.linalg.qr(ours)[0].T @ np.linalg.qr(theirs)[0])[1]
        assert angles.min() > 0.9999
        assert_allclose(targets[0], leading.U[0] @ mixed, atol=1e-12)
        for one, other in zip(
            joint.as_new(targets, mixed), joint.as_new(targets), strict=True
        ):
            assert_allclose(one[0], other[0], atol=1e-9)
            if place < np.inf:
                assert_allclose(one[1], other[1], atol=1e-9)


def test_whether_places_are_used_is_decided_by_all_groups(rng, monkeypatch):
    X = film(rng, 5, n=400, noise=10.0)
    found = []
    for directions in (12, 10**6):
        monkeypatch.setattr("brainweave.aligners.gdm.ridge.N_DIRECTIONS", directions)
        found.append(GDM(3, graph="time", shrinkage=1.0).fit(X).place_)
    assert found[0].used
    assert found[0].ridge == found[1].ridge


@pytest.mark.parametrize(("n_groups", "different"), [(5, 0), (5, -1), (165, -1)])
def test_few_groups_and_those_apart_are_compared_as_they_are(rng, n_groups, different):
    _, smoothers, _ = many_times(rng, 3)
    graph = label_graph([np.arange(170) % n_groups] * 3, different=different)
    joint = JointRidge(smoothers)
    leading = LeadingGroups(joint, graph)
    assert leading.U[0].shape == (170, n_groups)
    mu = leading.targets(joint, 3)[0]
    assert_allclose(mu, solve_shrinkage(joint, graph, 3).eigenvalues[:3])


def test_sums_are_of_all_subjects_however_few_are_held_at_a_time(rng, monkeypatch):
    X, smoothers, graph = many_times(rng)
    found = []
    for batch in (3, 100):
        monkeypatch.setattr("brainweave.aligners.gdm.joint.BATCH", batch)
        for places, h in ((X, 5.0), (None, np.inf)):
            joint = JointRidge(smoothers, places, h)
            found.append(solve_shrinkage(joint, graph, 4).eigenvalues)
    assert_allclose(found[0], found[2], rtol=1e-12)
    assert_allclose(found[1], found[3], rtol=1e-12)
    assert found[0][0] > found[1][0]  # places can only add


@pytest.mark.parametrize("kind", [GramSmoother, NarrowSmoother])
def test_products_that_are_kept_are_those_of_the_columns_given(rng, kind):
    x = rng.normal(size=(20, 8))
    x -= x.mean(axis=0)
    S = x @ np.linalg.inv(x.T @ x + 3 * np.eye(8)) @ x.T
    smoother = kind(x if kind is NarrowSmoother else x @ x.T, 3.0)
    U, Z = rng.normal(size=(2, 20, 5))
    Z -= Z.mean(axis=0)
    centred = np.eye(20) - 1 / 20
    for columns, places in ((U, Z), (U, 2 * Z), (-U[:, :2], 2 * Z), (U, Z)):
        P, Q, R = smoother.forms(columns, places)
        assert_allclose(P, columns.T @ S @ columns, atol=1e-12)
        assert_allclose(Q, places.T @ (centred - S) @ places, atol=1e-12)
        assert_allclose(R, places.T @ (centred - S) @ columns, atol=1e-12)
        assert_allclose(smoother.quadratic_form(columns), P, atol=1e-12)


def test_more_components_are_tried_as_long_as_all_of_them_hold_up(rng, monkeypatch):
    X, tried = film(rng, noise=1.0), []
    counting = default.count_holding

    def counted(aligner, bases, graph, found, k):
        tried.append(k)
        return counting(aligner, bases, graph, found, k)

    monkeypatch.setattr(default, "count_holding", counted)
    whole = GDM(graph="time", place=None).fit(X)
    assert tried == [32]
    assert whole.n_components_ == 4
    monkeypatch.setattr(default, "FIRST_TRIED", 3)
    grown = GDM(graph="time", place=None).fit(X)
    assert tried[1:] == [3, 6, 12]  # what is tested beside its neighbours is no end
    assert grown.n_components_ == 4
    for a, b in zip(grown.transform(X), whole.transform(X), strict=True):
        assert_allclose(a, b, atol=1e-9)


def test_an_earlier_fit_does_not_tell_where_ridges_are_sought(rng):
    X, first = film(rng), film(np.random.default_rng(5), noise=1.0)
    twice = GDM(3, graph="time").fit(first).fit(X)
    once = GDM(3, graph="time").fit(X)
    assert twice.shrinkage_ == once.shrinkage_
    assert twice._first_ridges is None
    assert_allclose(twice.transform(X)[0], once.transform(X)[0], atol=1e-12)


def test_one_who_is_tied_by_places_alone_does_not_hinder_the_choice(rng):
    signal = rng.normal(size=(80, 5)) @ rng.normal(size=(5, 30))
    X = [signal + rng.normal(size=signal.shape) for _ in range(4)]
    seen = np.arange(80)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        warnings.simplefilter("ignore", SeparateSubjectsWarning)
        model = GDM(graph="time").fit(X, [seen, seen, seen, seen + 500])
    features = model.transform(X)
    assert features[0].shape == (80, 5)
    assert alignment_check(model).worked
    linked = [f.std(axis=0) for f in features[:3]]
    mu = model.eigenvalues_
    assert_allclose(np.sqrt(np.mean(np.square(linked), axis=0)), mu / mu[0], rtol=0.02)
    for k in range(5):
        assert np.corrcoef(features[0][:, k], features[3][:, k])[0, 1] > 0.8


def test_features_that_tell_groups_apart_alike_are_as_distinct_as_they_are_many(rng):
    A, noise = np.eye(4), rng.normal(size=(3, 400, 4))
    assert_allclose(distinctness([A, A, A]), np.sqrt(3))  # less one for the mean
    assert np.abs(distinctness(list(noise))).max() < 0.3
    lacks = np.where(np.arange(4)[:, None] < 1, A, np.nan)
    assert np.isnan(distinctness([A, A, lacks])[2])


@pytest.mark.parametrize("n", [12, 30])
def test_other_samples_are_mapped_from_few_or_many_samples_alike(rng, n):
    x = rng.normal(size=(40, 20))
    x -= x.mean(axis=0)
    some, others = np.arange(n), np.arange(n, 40)
    target, part = rng.normal(size=(n, 3)), x[:n] - x[:n].mean(axis=0)
    whole = NarrowSmoother(x, 2.0)
    smoother = whole.subset(some)
    assert isinstance(smoother, GramSmoother if n == 12 else NarrowSmoother)
    found = whole.between(others, some) @ smoother.coefficients(target)
    centred = target - target.mean(axis=0)
    weights = np.linalg.solve(part.T @ part + 2 * np.eye(20), part.T @ centred)
    by_hand = x[others] @ weights
    assert_allclose(found - found[0], by_hand - by_hand[0], atol=1e-12)


def test_factors_that_were_freed_do_not_change_the_choice(rng, monkeypatch):
    X = film(rng, noise=1.0)
    whole = GDM(2, graph="time").fit(X)
    monkeypatch.setattr("brainweave.aligners.gdm.agreement_choice.RECENT", 1)
    again = GDM(2, graph="time").fit(X)
    assert whole.shrinkage_by_ == "agreement"
    assert again.place_ == whole.place_
    assert_allclose(again.shrinkage_, whole.shrinkage_, rtol=0)
    assert_allclose(again.eigenvalues_, whole.eigenvalues_, rtol=1e-12)


def test_the_covariance_decides_where_nothing_can_be_held_out(rng, monkeypatch):
    X = film(rng)
    wanted = GDM(2, graph="time", shrinkage="ledoit-wolf", place=None).fit(X)
    monkeypatch.setattr(default, "choose_by_agreement", lambda *_, **__: None)
    found = GDM(2, graph="time", place=None).fit(X)
    assert found.shrinkage_by_ == "ledoit-wolf"
    assert found.shrinkage_ == wanted.shrinkage_
