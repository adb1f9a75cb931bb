"""Place: a shared map and each subject's deviation from it."""

import pickle
import tracemalloc
import warnings

import numpy as np
import pytest
import scipy.linalg
from numpy.testing import assert_allclose

from brainweave import GDM, alignment_check, load, save
from brainweave._core.exceptions import InputError, SeparateSubjectsWarning
from brainweave.aligners.gdm.agreement_choice import leading_directions
from brainweave.aligners.gdm.joint import JointRidge
from brainweave.aligners.gdm.ridge import solve_shrinkage
from brainweave.aligners.gdm.smoother import GramSmoother, NarrowSmoother
from brainweave.graphs.builders import label_graph, time_graph, weigh_groups
from sizes import few_or_many


def centred(x):
    return x - x.mean(axis=0)


def study(rng, lengths=(14, 11, 17), voxels=(9, 12, 30), n_places=6):
    X = [centred(rng.normal(size=s)) for s in zip(lengths, voxels, strict=True)]
    B = [
        rng.normal(size=(v, n_places)) * (rng.random((v, n_places)) < 0.4)
        for v in voxels
    ]
    B[1][:, 2] = 0  # a place that this subject lacks
    return X, [x @ b for x, b in zip(X, B, strict=True)], B


def smoothers_of(X, g, kind):
    if kind == "voxels":
        return [NarrowSmoother(x, s) for x, s in zip(X, g, strict=True)]
    return [GramSmoother(x @ x.T, s) for x, s in zip(X, g, strict=True)]


def dense(X, Z, g, h):
    """Kernel and design of the multi-task problem, written out."""
    sizes = np.cumsum([0, *(x.shape[1] for x in X)])
    n, p = sum(map(len, X)), Z[0].shape[1]
    design = np.zeros((n, sizes[-1] + p))
    row = 0
    for i, (x, z) in enumerate(zip(X, Z, strict=True)):
        rows = slice(row, row := row + len(x))
        design[rows, sizes[i] : sizes[i + 1]] = x / np.sqrt(g[i])
        design[rows, sizes[-1] :] = z / np.sqrt(h)
    return design, sizes


GRAPHS = {
    "labels": lambda rng, n: weigh_groups(
        label_graph([rng.integers(0, 5, size=m) for m in n], different=0), "groups"
    ),
    "labels apart": lambda rng, n: label_graph([rng.integers(0, 4, size=m) for m in n]),
    "incomplete film": lambda rng, n: weigh_groups(
        time_graph([rng.permutation(20)[:m] for m in n]), "subjects"
    ),
    "both": lambda rng, n: (
        label_graph([rng.integers(0, 4, size=m) for m in n], different=0)
        + time_graph([rng.permutation(20)[:m] for m in n])
    ),
}


@pytest.mark.parametrize("kind", ["samples", "voxels"])
@pytest.mark.parametrize("route", ["closed", "operator"])
@pytest.mark.parametrize("name", GRAPHS)
def test_components_are_those_of_the_dense_multi_task_problem(rng, name, route, kind):
    if (route, name) == ("operator", "labels apart"):
        pytest.skip("the operator needs weights that are not negative")
    X, Z, _ = study(rng)
    g, h, k = (0.7, 2.0, 5.0), 1.3, 3
    graph = GRAPHS[name](rng, [len(x) for x in X])
    joint = JointRidge(smoothers_of(X, g, kind), Z, h)
    found = solve_shrinkage(joint, graph, k, route=route)
    design, sizes = dense(X, Z, g, h)
    G = graph.to_sparse().toarray()
    # maximise tr(W^T F^T G F W) subject to W^T (F^T F + I) W = I
    values, W = scipy.linalg.eigh(
        design.T @ G @ design, design.T @ design + np.eye(design.shape[1])
    )
    values, W = values[::-1][:k], W[:, ::-1][:, :k]
    assert_allclose(found.eigenvalues[:k], values, rtol=1e-8, atol=1e-10)
    ours = np.concatenate(found.features)
    signs = np.sign((ours * (design @ W)).sum(axis=0))
    assert_allclose(ours, design @ W * signs, atol=1e-8)
    assert_allclose(found.shared, W[sizes[-1] :] / np.sqrt(h) * signs, atol=1e-8)
    for i, x in enumerate(X):
        own = W[sizes[i] : sizes[i + 1]] / np.sqrt(g[i]) * signs
        assert_allclose(x.T @ found.maps[i], own, atol=1e-8)


@pytest.mark.parametrize("name", GRAPHS)
def test_an_infinite_ridge_of_the_shared_map_is_the_model_without_place(rng, name):
    X, Z, _ = study(rng)
    graph = GRAPHS[name](rng, [len(x) for x in X])
    smoothers = smoothers_of(X, (0.7, 2.0, 5.0), "samples")
    without = solve_shrinkage(JointRidge(smoothers), graph, 3)
    assert solve_shrinkage(JointRidge(smoothers, Z, np.inf), graph, 3).shared is None
    nearly = solve_shrinkage(JointRidge(smoothers, Z, 1e14), graph, 3)
    assert_allclose(nearly.eigenvalues, without.eigenvalues, rtol=1e-10, atol=1e-12)
    for a, b in zip(nearly.features, without.features, strict=True):
        assert_allclose(a @ a.T, b @ b.T, atol=1e-10)


def test_with_strong_ridges_of_the_deviations_all_have_one_map(rng):
    X, Z, _ = study(rng)
    targets = [centred(rng.normal(size=(len(x), 2))) for x in X]
    joint = JointRidge(smoothers_of(X, (1e12,) * 3, "samples"), Z, 0.5)
    found = joint.regress(targets)
    pooled, wanted = np.concatenate(Z), np.concatenate(targets)
    one = np.linalg.solve(pooled.T @ pooled + 0.5 * np.eye(6), pooled.T @ wanted)
    assert_allclose(found.shared, one, atol=1e-8)
    assert_allclose(np.concatenate(found.features), pooled @ one, atol=1e-8)


def test_places_that_are_the_voxels_take_a_route_of_their_own(rng):
    X = [centred(rng.normal(size=(n, 8))) for n in (20, 15, 30)]
    graph = GRAPHS["incomplete film"](rng, [20, 15, 20])
    X[2] = centred(X[2][:20])
    known = smoothers_of(X, (0.3, 1.0, 2.0), "voxels")
    by_voxels = JointRidge(known, [s.samples for s in known], 0.4)
    general = JointRidge(smoothers_of(X, (0.3, 1.0, 2.0), "samples"), X, 0.4)
    one, other = (solve_shrinkage(j, graph, 3) for j in (by_voxels, general))
    assert_allclose(one.eigenvalues, other.eigenvalues, rtol=1e-9)
    signs = np.sign((one.shared * other.shared).sum(axis=0))
    assert_allclose(one.shared, other.shared * signs, atol=1e-9)


def test_sums_over_subjects_are_kept_for_other_ridges_of_the_shared_map(rng):
    X, Z, _ = study(rng)
    graph = GRAPHS["labels"](rng, [len(x) for x in X])
    smoothers = smoothers_of(X, (0.7, 2.0, 5.0), "samples")
    joint = JointRidge(smoothers, Z, 0.1)
    solve_shrinkage(joint, graph, 2)
    again = solve_shrinkage(joint.at(3.0), graph, 2)
    fresh = solve_shrinkage(JointRidge(smoothers, Z, 3.0), graph, 2)
    assert_allclose(again.eigenvalues, fresh.eigenvalues, rtol=1e-12)
    assert_allclose(np.abs(again.shared), np.abs(fresh.shared), atol=1e-10)


@pytest.mark.parametrize("kind", ["samples", "voxels"])
def test_as_a_new_one_a_subject_has_the_shared_map_of_the_others(rng, kind):
    X, Z, _ = study(rng)
    g, h = (0.7, 2.0, 5.0), 1.3
    targets = [centred(rng.normal(size=(len(x), 2))) for x in X]
    joint = JointRidge(smoothers_of(X, g, kind), Z, h)
    for i, (found, shared) in enumerate(joint.as_new(targets)):
        rest = [j for j in range(3) if j != i]
        smoothers = smoothers_of([X[j] for j in rest], [g[j] for j in rest], kind)
        others = JointRidge(smoothers, [Z[j] for j in rest], h)
        expected = others.regress([targets[j] for j in rest]).shared
        assert_allclose(shared, expected, atol=1e-9)
        left = targets[i] - Z[i] @ expected
        K = X[i] @ X[i].T + g[i] * np.eye(len(X[i]))
        weights = found if kind == "voxels" else X[i].T @ found
        assert_allclose(weights, X[i].T @ np.linalg.solve(K, left), atol=1e-9)


def test_penalties_are_those_of_the_maps(rng):
    X, Z, _ = study(rng)
    g, h = (0.7, 2.0, 5.0), 1.3
    joint = JointRidge(smoothers_of(X, g, "samples"), Z, h)
    found = joint.regress([centred(rng.normal(size=(len(x), 2))) for x in X])
    for x, m, s, penalty in zip(X, found.maps, g, joint.penalties(found), strict=True):
        D = x.T @ m
        expected = s * D.T @ D + h / 3 * found.shared.T @ found.shared
        assert_allclose(penalty, expected, atol=1e-9)


# -- as GDM does it --------------------------------------------------------------------


def registered(rng, n_subjects=6, n=80, voxels=60, noise=8.0, *, shuffled=False):
    """Shared time courses on maps that are alike in all subjects, and some noise."""
    courses = rng.normal(size=(n, 5))
    maps = rng.normal(size=(5, voxels))
    X = []
    for _ in range(n_subjects):
        own = maps + 0.5 * rng.normal(size=maps.shape)
        x = courses @ own + noise * rng.normal(size=(n, voxels))
        X.append(x[:, rng.permutation(voxels)] if shuffled else x)
    return X, courses


def found_courses(features, courses):
    """How well the courses are predicted by the features of each subject."""
    found = []
    for f in features:
        design = np.column_stack([np.ones(len(f)), f])
        fitted = design @ np.linalg.lstsq(design, courses, rcond=None)[0]
        found.append(
            np.mean(
                [
                    np.corrcoef(a, b)[0, 1]
                    for a, b in zip(fitted.T, courses.T, strict=True)
                ]
            )
        )
    return np.mean(found)


def test_places_are_used_where_they_correspond_and_only_there(rng):
    X, _ = registered(rng)
    gdm = GDM(5, graph="time").fit(X)
    assert gdm.place_.used
    assert "60 places (equal columns)" in str(gdm.place_)
    Y, _ = registered(rng, shuffled=True)
    other = GDM(5, graph="time").fit(Y)
    assert not other.place_.used
    assert other.shared_ is None
    without = GDM(5, graph="time", place=None).fit(Y)
    for a, b in zip(other.transform(Y), without.transform(Y), strict=True):
        assert_allclose(a, b, atol=1e-12)
    with pytest.raises(AttributeError, match="did not clearly improve"):
        _ = other.shared_map_


def test_maps_are_the_shared_one_and_a_deviation(rng):
    X, _ = registered(rng)
    gdm = GDM(5, graph="time").fit(X)
    gram = GDM(5, graph="time").fit([x[:50] for x in X])  # more voxels than samples
    for model, samples in ((gdm, X), (gram, [x[:50] for x in X])):
        for m, x in zip(model.maps_, samples, strict=True):
            z = (x - m.mean) / m.scale
            assert_allclose(m.transform(x), z @ m.weights, atol=1e-9)
            assert_allclose(m.aligning_features(), m.transform(x), atol=1e-8)
            alone = z @ (m.weights - m.place.weights)
            again = alone + z @ m.place.weights
            assert_allclose(again, m.transform(x), atol=1e-9)


def test_someone_without_aligning_data_gets_the_shared_map(rng):
    X, courses = registered(rng, n_subjects=9, n=160)
    gdm = GDM(5, graph="time").fit([x[:80] for x in X[:6]])
    for x in X[6:]:
        zero = gdm.shared_map_.transform(x[80:])
        assert found_courses([zero], courses[80:]) > 0.4
    labels = [np.arange(80) % 8] * 6
    by_label = GDM(5, shrinkage=1.0, place_shrinkage=0.1)
    by_label.fit([x[:80] for x in X[:6]], labels)
    new = by_label.fit_new_subject(X[7][80:])  # without labels
    z = X[7][80:]
    z = (z - z.mean(axis=0)) / z.std(axis=0)
    assert_allclose(
        new.transform(X[7][80:]), z @ by_label.shared_map_.weights, atol=1e-9
    )
    nobody = by_label.fit_new_subject(X[7][80:], [None] * 80)
    assert_allclose(nobody.weights, new.weights, atol=1e-12)
    new = gdm.fit_new_subject(X[7][80:], np.arange(80, 160))  # which nobody else saw
    assert_allclose(new.weights, gdm.shared_map_.weights, atol=1e-12)


def test_a_new_subject_is_the_regression_of_what_the_shared_map_leaves(rng):
    X, _ = registered(rng, n_subjects=7)
    how = {"graph": "time", "shrinkage": 2.0, "place_shrinkage": 0.1}
    gdm = GDM(4, **how).fit(X[:6])
    new = gdm.fit_new_subject(X[6])
    z = (X[6] - X[6].mean(axis=0)) / X[6].std(axis=0)
    sums, term = gdm.group_sums_[0], gdm.graph_.groups[0]
    target = term.affinity @ sums
    target -= target.mean(axis=0)
    g = 2.0 * (z**2).sum() / len(z)
    left = target - z @ gdm.shared_
    D = np.linalg.solve(z.T @ z + g * np.eye(60), z.T @ left)
    weights = D + gdm.shared_
    found = new.weights
    factor = (found * weights).sum(axis=0) / (weights**2).sum(axis=0)
    assert_allclose(found, weights * factor, atol=1e-9)
    assert_allclose(factor / gdm.scale_, (factor / gdm.scale_)[0], rtol=1e-9)


def test_groups_that_saw_nothing_in_common_are_tied_by_places(rng):
    X, _ = registered(rng, n_subjects=8, n=240, noise=2.0)
    first, second = np.arange(80), np.arange(80, 160)
    ids = [first if i < 4 else second for i in range(8)]
    seen = [x[i] for x, i in zip(X, ids, strict=True)]
    with pytest.warns(SeparateSubjectsWarning, match="only the 60 places"):
        gdm = GDM(5, graph="time").fit(seen, ids)
    shared = gdm.transform([x[160:] for x in X])
    one, other = np.mean(shared[:4], axis=0), np.mean(shared[4:], axis=0)
    alike = [np.corrcoef(a, b)[0, 1] for a, b in zip(one.T, other.T, strict=True)]
    assert np.mean(alike) > 0.5
    with pytest.raises(InputError, match="fall into 2 groups"):
        GDM(5, graph="time", place=None).fit(seen, ids)
    cut = [x[:, : 50 + i] for i, x in enumerate(seen)]  # different columns
    with pytest.raises(InputError, match="fall into 2 groups"):
        GDM(5, graph="time").fit(cut, ids)


# 5 % are expected; more than 2 of 6 or 4 of 20 has p < .003
@pytest.mark.parametrize(("n", "most"), few_or_many((6, 2), (20, 4)))
def test_noise_in_a_common_space_is_called_noise(n, most):
    worked = 0
    for seed in range(n):
        rng = np.random.default_rng(seed)
        noise = [rng.normal(size=(60, 30)) for _ in range(5)]
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            check = alignment_check(GDM(graph="time").fit(noise))
        worked += bool(check.worked)
    assert worked <= most


def test_the_check_and_model_files_know_the_shared_map(rng, tmp_path):
    X, _ = registered(rng)
    gdm = GDM(graph="time").fit(X)
    assert alignment_check(gdm).worked
    back = load(save(gdm, tmp_path / "model.safetensors"))
    assert back.place_ == gdm.place_
    assert_allclose(back.shared_map_.transform(X[0]), gdm.shared_map_.transform(X[0]))
    for a, b in zip(back.transform(X), gdm.transform(X), strict=True):
        assert_allclose(a, b, atol=1e-9)
    joined = back.fit_new_subject(X[2])
    assert_allclose(joined.weights, gdm.fit_new_subject(X[2]).weights, atol=1e-9)
    again = pickle.loads(pickle.dumps(gdm))
    assert_allclose(again.shared_map_.weights, gdm.shared_map_.weights)


def test_parcels_of_ones_own(rng):
    X, _ = registered(rng)
    parcels = np.arange(60) // 3 + 1
    given = GDM(3, graph="time", place=parcels, place_shrinkage=0.1).fit(X)
    assert given.place_.n_places == 20
    B = np.eye(20)[parcels - 1] / 3
    same = GDM(3, graph="time", place=B, place_shrinkage=0.1).fit(X)
    for a, b in zip(given.transform(X), same.transform(X), strict=True):
        assert_allclose(a, b, atol=1e-9)
    new = given.fit_new_subject(X[1])
    assert_allclose(new.weights, same.fit_new_subject(X[1]).weights, atol=1e-9)
    # other voxels per subject, in the same parcels
    kept = [np.sort(rng.permutation(60)[: 50 - i]) for i in range(6)]
    own = [parcels[k] for k in kept]
    gdm = GDM(3, graph="time", place=own, place_shrinkage=0.1)
    gdm.fit([x[:, k] for x, k in zip(X, kept, strict=True)])
    assert gdm.maps_[2].place.matrix.shape == (48, 20)
    for wrong, said in (
        (np.arange(59), "a label for each of the 60 voxels"),
        ([parcels] * 5, "5 entries for 6 subjects"),
        (np.ones((59, 4)), r"must be voxels x places, \(60, 4\)"),
    ):
        with pytest.raises(InputError, match=said):
            GDM(3, graph="time", place=wrong).fit(X)


def test_where_there_are_no_places_the_reason_is_kept(rng):
    X, _ = registered(rng)
    cut = [x[:, : 50 + i] for i, x in enumerate(X)]
    assert "different numbers of columns" in str(GDM(2, graph="time").fit(cut).place_)
    assert "place=None" in str(GDM(2, graph="time", place=None).fit(X).place_)
    wide = [rng.normal(size=(12, 2100)) for _ in range(3)]
    model = GDM(2, graph="time", shrinkage=1.0).fit(wide)
    assert "too many to be places by themselves" in str(model.place_)
    kernel = GDM(2, graph="time", kernel="gaussian", kernel_params={"hp": 100}).fit(X)
    assert "only linear kernels" in str(kernel.place_)
    joined = time_graph([range(80)] * 6).to_sparse()
    weights = GDM(2, graph=joined, shrinkage=1.0).fit(X)
    assert "weights between samples" in str(weights.place_)


@pytest.mark.parametrize("wrong", [-1, 0, "strong", float("nan"), None])
def test_a_ridge_of_the_shared_map_that_is_none_is_refused(rng, wrong):
    X, _ = registered(rng)
    with pytest.raises((InputError, TypeError), match=r"place_shrinkage of .* > 0"):
        GDM(2, graph="time", place_shrinkage=wrong).fit(X)


@pytest.mark.parametrize("n_samples", [150, 700])
def test_directions_of_many_places_are_those_of_the_pooled_samples(rng, n_samples):
    # by the samples where they are fewer than the places, else by the places
    places = [rng.normal(size=(n_samples, 500)) * np.arange(1, 501) for _ in range(2)]
    found = leading_directions(places)
    pooled = sum(Z.T @ Z for Z in places)
    expected = np.linalg.eigh(pooled)[1][:, -200:]
    assert found.shape == (500, 200)
    assert_allclose(found @ found.T, expected @ expected.T, atol=1e-8)


def test_directions_are_no_more_than_samples_have(rng):
    places = [rng.normal(size=(20, 300)) for _ in range(2)]
    found = leading_directions(places)
    assert found.shape == (300, 40)
    assert_allclose(np.vstack(places) @ found @ found.T, np.vstack(places), atol=1e-8)


@pytest.mark.parametrize(("m", "n", "p"), [(8, 120, 900), (12, 500, 600)])
def test_places_take_the_memory_that_the_notes_state(rng, m, n, p):
    X = [rng.normal(size=(n, p)) for _ in range(m)]
    used = []
    for place in ({"place": None}, {"place_shrinkage": 0.1}):
        model = GDM(2, graph="time", shrinkage=0.3, n_jobs=1, **place)
        model.fit(X)  # so that nothing is imported while it is measured
        tracemalloc.start()
        model.fit(X)
        used.append(tracemalloc.get_traced_memory())
        tracemalloc.stop()
    (kept, peak), (kept_with, peak_with) = used
    table, q = 8 * m * n * p, min(p, 200)
    stated = table + 8 * m * (n * q + q**2) + 24 * p**2
    assert 0.9 * table < kept_with - kept < 1.1 * table
    assert 0.5 * stated < peak_with - peak < stated


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_many_subjects_keep_half_a_matrix_of_their_voxels_each(rng, monkeypatch, dtype):
    m, n, v = 12, 260, 220
    X = [rng.normal(size=(n, v)).astype(dtype) for _ in range(m)]
    y = [np.arange(n) % 4] * m
    models, peaks = [], []
    for room in (2**28, 0):
        monkeypatch.setattr("brainweave.aligners.gdm.gdm.ROOM", room)
        model = GDM(2, shrinkage=0.3, place=None, n_jobs=1)
        model.fit(X, y)  # so that nothing is imported while it is measured
        tracemalloc.start()
        models.append(model.fit(X, y))
        peaks.append(tracemalloc.get_traced_memory()[1])
        tracemalloc.stop()
    stated = m * v * (np.dtype(dtype).itemsize * n + 4 * v)
    assert 0.9 * stated < peaks[1] < 1.5 * stated < peaks[0]
    for own, other in zip(models[0].maps_, models[1].maps_, strict=True):
        assert_allclose(own.mixing, other.mixing, rtol=0, atol=1e-12)


@pytest.mark.parametrize("ridge", ["auto", 0.1])
def test_the_default_is_the_same_where_products_are_not_kept(rng, monkeypatch, ridge):
    shared = rng.normal(size=(240, 3))
    X = [
        rng.normal(size=(240, 210)) + shared @ rng.normal(size=(3, 210))
        for _ in range(4)
    ]
    how = {"graph": "time", "place_shrinkage": ridge, "n_jobs": 1}
    models = [GDM(**how).fit(X)]
    monkeypatch.setattr("brainweave.aligners.gdm.gdm.ROOM", 0)
    models.append(GDM(**how).fit(X))
    assert models[0].place_.used == models[1].place_.used == (ridge != "auto")
    first, second = (model.transform(X) for model in models)
    assert_allclose(first, second, rtol=0, atol=1e-10)
