"""Held-out samples: nothing of noise holds up there, and what is shared does."""

import warnings
from dataclasses import replace

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from scipy.ndimage import gaussian_filter1d

import brainweave as bw
from brainweave._core.exceptions import AlignmentWarning, InputError
from brainweave.aligners.check.alignment_check import AlignmentCheck
from brainweave.aligners.check.held_out import fit_by_grams, halves_of, remove_trends
from evaluation_studies import signal_or_noise
from sizes import few_or_many
from tests.planted import planted_study

# subjects, samples, voxels, categories, unbalanced, runs
SHAPES = [
    *((2, 24, 30, 3, False, 1), (3, 24, 40, 2, False, 1), (3, 30, 8, 3, False, 1)),
    *((4, 40, 25, 4, True, 1), (5, 24, 60, 4, False, 1), (3, 60, 12, 6, False, 1)),
    *((6, 20, 50, 2, False, 1), (2, 48, 100, 4, True, 1), (3, 36, 20, 3, False, 3)),
    *((4, 32, 15, 4, False, 2), (3, 24, 200, 3, False, 4), (8, 16, 30, 2, False, 1)),
    *((3, 80, 10, 5, False, 4), (4, 24, 24, 3, True, 2), (2, 60, 6, 2, False, 1)),
    *((5, 30, 40, 5, False, 1), (3, 42, 33, 7, False, 1), (4, 28, 18, 2, True, 2)),
    *((3, 40, 50, 8, False, 2), (6, 24, 12, 3, False, 2)),
]
PARCELS, FIRST = "parcels", np.arange(18)
METHODS = {
    "GDM": bw.GDM(3),
    "GDM, all": bw.GDM("auto"),
    "GDM, time": bw.GDM(3, graph="time"),
    "GDM, gaussian": bw.GDM(3, kernel="gaussian", kernel_params={"hp": 20.0}),
    "GDM, energy": bw.PaperGDM(2, energy=0.4),
    "SRM": bw.SRM(3, max_iter=20, tol=0, random_state=0),
    "DetSRM": bw.DetSRM(3, max_iter=20, tol=0, random_state=0),
    "RobustSRM": bw.RobustSRM(3, max_iter=10, tol=0, random_state=0),
    "SemiSupervisedSRM": bw.SemiSupervisedSRM(3, max_iter=5, tol=0, random_state=0),
    "Hyperalignment": bw.Hyperalignment(),
    "RegularizedHyperalignment": bw.RegularizedHyperalignment(alpha=0.9),
    "KernelHyperalignment": bw.KernelHyperalignment(),
    "SVDHyperalignment": bw.SVDHyperalignment(3),
    "GDMCV": bw.GDMCV(energies=(0.5, 0.9), n_components=2),
    "Parcelwise": bw.Parcelwise(bw.DetSRM(2, random_state=0), PARCELS),
    "Searchlight": bw.Searchlight(bw.Hyperalignment(2)),
    "Parcelwise, GDM": bw.Parcelwise(bw.GDM(2), PARCELS),
}
BY_LABEL = {
    *("GDM", "GDM, all", "GDM, gaussian", "GDM, energy"),
    *("GDMCV", "Parcelwise, GDM"),
}
PIECEWISE = {"Parcelwise", "Searchlight"}


def noise_study(number, *, same_order):
    n_subjects, n, v, n_categories, unbalanced, n_runs = SHAPES[number]
    rng = np.random.default_rng(1000 + number)
    X, y, runs = [], [], []
    for _ in range(n_subjects):
        codes = np.arange(n) % n_categories
        if unbalanced:
            codes[4 * n_categories :: 2] = 0
        order = rng.permutation(n) if not (same_order and y) else None
        y.append(codes[order] if order is not None else y[0])
        X.append(rng.normal(size=(n, v)))
        runs.append(np.arange(n) * n_runs // n if n_runs > 1 else None)
    return X, y, (None if n_runs == 1 else runs)


def check_noise(name, number):
    X, y, runs = noise_study(number, same_order=name not in BY_LABEL)
    aligner = METHODS[name]
    if "Parcelwise" in name:
        parcels = np.arange(X[0].shape[1]) % 2 + 1
        aligner = bw.Parcelwise(aligner.aligner, parcels)
    if name == "Searchlight":
        v = X[0].shape[1]
        place = np.sort(np.arange(v) % max(2, v // 10))
        lights = {"coordinates": place[:, None], "centers": np.unique(place, True)[1]}
        aligner = bw.Searchlight(bw.Hyperalignment(2), radius=0.5, **lights)
    y = None if name == "GDM, time" else y
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model = aligner.fit(X, y)
        check = bw.alignment_check(model, X, y, runs=runs, n_permutations=99)
    assert check.available, check.reason
    return check


@pytest.mark.parametrize("name", METHODS)
@pytest.mark.parametrize(("step", "most"), few_or_many((3, 1), (1, 2)))
def test_twenty_noise_studies_hold_nothing(name, step, most):
    p = [check_noise(name, i).p_value for i in range(0, len(SHAPES), step)]
    assert len(p) == (20 if step == 1 else 7)
    assert sum(v < 0.05 for v in p) <= most
    assert np.mean(p) > 0.3  # not merely spared: p has no lean towards small values


@pytest.mark.parametrize("name", [n for n in METHODS if n not in BY_LABEL | PIECEWISE])
def test_a_shared_time_course_holds_up(name):
    rng = np.random.default_rng(0)
    S = rng.normal(size=(60, 3))
    X = [S @ rng.normal(size=(3, v)) + rng.normal(size=(60, v)) for v in (30, 40, 35)]
    y = [list(np.arange(60) % 4)] * 3
    model = METHODS[name].fit(X, y if name == "SemiSupervisedSRM" else None)
    check = bw.alignment_check(model, y=y)
    assert check.worked
    assert check.verdict.startswith("Alignment worked: ")


@pytest.mark.parametrize(
    ("kernel", "energy"), [("linear", 0.5), ("gaussian", 0.8), ("quadratic", 1.0)]
)
def test_categories_hold_up_whatever_the_kernel(kernel, energy):
    X, y = planted_study(np.random.default_rng(0), noise=0.5)
    model = bw.PaperGDM(3, kernel=kernel, energy=energy).fit(X, y)
    assert bw.alignment_check(model).n_holding >= 2


@pytest.mark.parametrize(("n", "most"), few_or_many((8, 2), (20, 4)))
def test_slow_signals_of_their_own_are_not_shared(n, most):
    """Autocorrelated noise: neighbours in time are alike, subjects are not."""
    p = []
    for seed in range(n):
        rng = np.random.default_rng(seed)
        X = [rng.normal(size=(80, 20)) for _ in range(3)]
        for x in X:
            for t in range(1, len(x)):
                x[t] = 0.7 * x[t - 1] + 0.7 * x[t]
        model = bw.DetSRM(2, max_iter=20, tol=0, random_state=0).fit(X)
        p.append(bw.alignment_check(model, n_permutations=99).p_value)
        y = [np.repeat(rng.permutation(np.arange(16) % 4), 5) for _ in X]
        model = bw.GDM(3).fit(X, y)
        p.append(bw.alignment_check(model, n_permutations=99).p_value)
    assert sum(v < 0.05 for v in p) <= most


def test_held_out_features_do_not_know_the_held_out_labels():
    """Half the samples change their labels: the other half's model stays the same."""
    X, y = planted_study(np.random.default_rng(1))
    codes = [np.asarray(v) for v in y]
    halves = halves_of(codes, None)
    swapped = []
    rng = np.random.default_rng(0)
    for labels, half in zip(codes, halves, strict=True):
        other = labels.copy()
        other[half] = rng.permutation(other[half])
        swapped.append(other)
    found = []
    for labels in (codes, swapped):
        model = bw.GDM(3).fit(X, labels)
        rows = [np.flatnonzero(~h) for h in halves]
        held_out = [np.flatnonzero(h) for h in halves]
        graph, whole = model.graph_, [[np.arange(len(r))] for r in rows]
        _, new = fit_by_grams(
            model, model.bases_, 3, rows, held_out, whole, graph=graph
        )
        found.append(new)
    for a, b in zip(*found, strict=True):
        assert_array_equal(a, b)


def test_half_models_equal_those_fitted_on_half_the_samples():
    """Submatrices of the Gram matrix hold all that a fit on the samples would see."""
    X, y = planted_study(np.random.default_rng(2))
    model = bw.PaperGDM(3, energy=0.7, standardize=False).fit(X, y)
    rows, held_out, whole = [np.arange(18)] * 3, [np.arange(18, 36)] * 3, [[FIRST]] * 3
    graph = model.graph_
    _, new = fit_by_grams(model, model.bases_, 3, rows, held_out, whole, graph=graph)
    own = bw.PaperGDM(3, energy=0.7, standardize=False).fit(
        [remove_trends(x[:18], FIRST, [FIRST]) for x in X], [v[:18] for v in y]
    )
    for a, b in zip(new, own.transform([x[18:] for x in X]), strict=True):
        # they are compared without trends, so that the mean is not part of a model
        assert_allclose(a - a.mean(axis=0), b - b.mean(axis=0), atol=1e-8)


def test_few_voxels_take_the_shorter_way_to_the_same():
    X, y = planted_study(np.random.default_rng(2), voxels=(10, 12, 14))
    model = bw.PaperGDM(3, energy=0.9, standardize=False).fit(X, y)
    assert model.bases_[0].uses_covariance
    rows, held_out, whole = [np.arange(18)] * 3, [np.arange(18, 36)] * 3, [[FIRST]] * 3
    graph = model.graph_
    _, new = fit_by_grams(model, model.bases_, 3, rows, held_out, whole, graph=graph)
    own = bw.PaperGDM(3, energy=0.9, standardize=False).fit(
        [remove_trends(x[:18], FIRST, [FIRST]) for x in X], [v[:18] for v in y]
    )
    for a, b in zip(new, own.transform([x[18:] for x in X]), strict=True):
        # they are compared without trends, so that the mean is not part of a model
        assert_allclose(a - a.mean(axis=0), b - b.mean(axis=0), atol=1e-8)


def test_halves_keep_categories_and_time_points_and_runs():
    first, second = halves_of([np.array([0, 1, 0, 1, 0, 1, 0, 1])] * 2, None)
    assert [first[[0, 2, 4, 6]].sum(), first[[1, 3, 5, 7]].sum()] == [2, 2]
    assert_array_equal(first, second)
    film = np.arange(6)
    one, _, other = halves_of([film, film, film[::-1]], None)
    assert_array_equal(one, [False] * 3 + [True] * 3)
    assert_array_equal(other, one[::-1])  # the same time points in all
    runs = [np.array([0, 0, 1, 1, 2, 2])] * 2
    (by_run, _) = halves_of([np.array([0, 1] * 3)] * 2, runs)
    assert_array_equal(by_run, [False, False, True, True, False, False])


def test_a_graph_of_weights_cannot_be_checked_and_says_so():
    X, y = planted_study(np.random.default_rng(0))
    weights = bw.label_graph(y).to_sparse()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model = bw.GDM(3, graph=weights).fit(X)
    check = bw.alignment_check(model)
    assert check.worked is None
    assert "a matrix of weights, without groups" in check.verdict
    table = model.component_summary()
    assert table["p"].isna().all()


def test_what_cannot_be_checked_says_why():
    rng = np.random.default_rng(0)
    X = [rng.normal(size=(20, 12)) for _ in range(3)]
    none = bw.alignment_check(bw.NoAlignment().fit(X))
    assert "nothing was aligned" in none.verdict
    parcels = bw.Parcelwise(bw.DetSRM(2, random_state=0), np.arange(12) % 2 + 1).fit(X)
    assert "pass X" in bw.alignment_check(parcels).verdict
    tiny = bw.GDM(1).fit([x[:4] for x in X], [["a", "b", "a", "b"]] * 3)
    assert bw.alignment_check(tiny).worked is None
    with pytest.raises(InputError, match="got 2 subjects; the model was fitted on 3"):
        bw.alignment_check(parcels, X[:2])


def test_the_answer_travels_with_a_model_file(tmp_path):
    X, y = planted_study(np.random.default_rng(0))
    model = bw.GDM(3).fit(X, y)
    bw.save(model, tmp_path / "m.safetensors")
    loaded = bw.load(tmp_path / "m.safetensors")
    check, known = bw.alignment_check(model), bw.alignment_check(loaded)
    assert_allclose(known.p, check.p)
    assert known.verdict == check.verdict
    again = bw.alignment_check(loaded, X)
    assert_allclose(again.p, check.p)


def test_auto_keeps_what_holds_up_and_warns_of_noise():
    X, y = planted_study(np.random.default_rng(0))
    assert bw.GDM("auto").fit(X, y).n_components_ == 3
    rng = np.random.default_rng(0)
    noise = [rng.normal(size=x.shape) for x in X]
    with pytest.warns(AlignmentWarning, match="No evidence of a shared space"):
        bw.GDM("auto").fit(noise, y)


def test_components_hold_up_in_their_order():
    check = AlignmentCheck(
        agreement_cv=np.array([0.9, 0.5, 0.1, 0.0]),
        p=np.array([0.005, 0.02, 0.3, 0.3]),
        n_together=2,
    )
    assert check.worked
    assert (check.n_holding, check.p_value, check.agreement) == (2, 0.005, 0.7)
    assert "in 2 of 4 shared features" in check.verdict
    assert "(correlation of the first 2: 0.70" in check.verdict
    none = replace(check, p=np.full(4, 0.3), n_together=1)
    assert (none.worked, none.n_holding) == (False, 0)
    assert none.verdict.startswith("No evidence")
    cannot = AlignmentCheck("cannot be tested with this design: why")
    assert cannot.verdict == "Whether alignment worked " + cannot.reason


def weak_story(seed):
    """Twelve weak time courses that eight subjects share, in noise."""
    rng = np.random.default_rng(seed)
    shared = gaussian_filter1d(rng.normal(size=(160, 12)), 1.5, axis=0)
    shared /= shared.std(axis=0)
    return [
        shared @ rng.normal(size=(12, 60)) + 9 * rng.normal(size=(160, 60))
        for _ in range(8)
    ]


def test_auto_keeps_many_weak_components():
    assert bw.GDM(graph="time").fit(weak_story(0)).n_components_ >= 4


@pytest.mark.thorough
def test_smooth_noise_does_not_add_up_over_components():
    worked = 0
    for seed in range(100):
        rng = np.random.default_rng(seed)
        noise = [
            gaussian_filter1d(rng.normal(size=(80, 60)), 2, axis=0) for _ in range(5)
        ]
        check = bw.alignment_check(bw.GDM(20, graph="time").fit(noise))
        worked += check.worked
    assert worked <= 11  # 5 are expected: 1 in 100 for more than 10


def test_the_same_seed_gives_the_same_p():
    X, y = planted_study(np.random.default_rng(0), noise=3)
    model = bw.GDM(3).fit(X, y)
    one, two = (bw.alignment_check(model, random_state=4) for _ in range(2))
    assert_array_equal(one.p, two.p)


def test_components_of_noise_look_like_noise():
    """ "Agreement 0.98, informative": of pure noise, in the samples that aligned."""
    model = bw.GDM(n_components=2, place=None)
    table = model.fit(signal_or_noise(0, signal=0)).component_summary()
    assert (table["agreement"] > 0.9).all()
    assert (table["agreement_cv"].abs() < 0.6).all()
    assert (table["p"] > 0.05).all()
    assert not table["informative"].any()
    table = bw.GDM(n_components=2).fit(signal_or_noise(0, signal=1)).component_summary()
    assert table["informative"].all()


def test_auto_warns_that_components_of_noise_mean_nothing():
    said = "No evidence of a shared space.*do not interpret them"
    with pytest.warns(AlignmentWarning, match=said):
        model = bw.GDM("auto").fit(signal_or_noise(0, signal=0))
    assert not model.component_summary()["informative"].any()


def test_checks_are_compared_and_shown_by_their_answer():
    p = np.array([0.01])
    bare = AlignmentCheck(agreement_cv=p, p=p, n_permutations=99)
    full = replace(bare, features=[p], _statistic=2.0, _null=np.ones((1, 3)))
    assert bare == full
    assert repr(bare) == repr(full)
    assert bare == replace(bare, pieces="a table")
    assert AlignmentCheck().n_together == 1
    assert AlignmentCheck().n_permutations == 0
    assert AlignmentCheck().available
    assert not AlignmentCheck("too few samples").available


@pytest.mark.parametrize("energy", [0.5, 0.9])
def test_the_share_of_variance_is_of_all_directions(energy):
    X, y = planted_study(np.random.default_rng(0))
    model = bw.PaperGDM(2, energy=energy).fit(X, y)
    table = model.component_summary()
    for i, x in enumerate(X):
        z = (x - x.mean(axis=0)) / x.std(axis=0)
        left, strength, right = np.linalg.svd(z, full_matrices=False)
        kept = model.bases_[i].n_kept
        z_kept = (left[:, :kept] * strength[:kept]) @ right[:kept]
        features = model.transform([x], [i])[0]
        weights = z_kept.T @ features / np.linalg.norm(features, axis=0)
        want = (weights**2).sum(axis=0) / (z**2).sum()
        assert_allclose(table[f"variance_{i}"], want, rtol=1e-9)


def test_two_categories_have_one_component():
    study = signal_or_noise(0, signal=2, categories="ab", repeats=20)
    assert bw.GDM("auto").fit(study).n_components_ == 1


def test_one_piece_needs_no_correction_for_pieces():
    X, y = planted_study(np.random.default_rng(0), voxels=(30, 30, 30))
    whole = bw.Parcelwise(bw.GDM(2), np.ones(30, int)).fit(X, y)
    check = bw.alignment_check(whole, X, y, n_permutations=49)
    assert check.n_permutations == 49
    assert check.pieces["p_max"].tolist() == check.pieces["p"].tolist()
    assert check.pieces["p_fdr"].tolist() == check.pieces["p"].tolist()
    halves = bw.Parcelwise(bw.GDM(2), 1 + np.arange(30) % 2).fit(X, y)
    pieces = bw.alignment_check(halves, X, y, n_permutations=49).pieces
    assert (pieces["p_max"] >= pieces["p"]).all()
    assert pieces["n_features"].tolist() == [2, 2]
