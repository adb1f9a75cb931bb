"""The check on held-out samples: false alarms, power, and how many are kept."""

import re
import warnings
from pathlib import Path

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from scipy.ndimage import gaussian_filter1d
from scipy.signal import lfilter

import brainweave as bw
from brainweave._core.exceptions import AlignmentWarning
from brainweave.aligners.check.alignment_check import stored_check
from brainweave.aligners.check.held_out import _half_basis, remove_trends
from brainweave.report import write_report
from sizes import few_or_many

QUICK = {"n_permutations": 99}


def noise(rng, n, v, ar):
    """Autocorrelated noise with strong patterns of its own."""

    def one(columns):
        white = rng.normal(size=(n + 100, columns))
        return lfilter([1], [1, -ar], white, axis=0)[100:] * np.sqrt(1 - ar**2)

    return one(v) + one(5) @ rng.normal(size=(5, v))


def alarms(studies):
    """Count the studies of noise in which alignment is said to have worked."""
    found = [bw.alignment_check(*study) for study in studies]
    assert all(check.available for check in found)
    return sum(bool(check.worked) for check in found)


def blocks_of_noise(seed, *, ar, runs, n_subjects=3):
    """Four categories, one block of each per half, in the same order for all."""
    rng = np.random.default_rng(seed)
    y = np.concatenate([np.repeat(rng.permutation(4), 10) for _ in range(2)])
    X = [noise(rng, 80, 30, ar) for _ in range(n_subjects)]
    of_run = np.repeat([1, 2], 40)
    subjects = [
        bw.Subject(f"{i}", x, labels=y, runs=of_run if runs else None)
        for i, x in enumerate(X)
    ]
    return bw.Study(subjects)


@pytest.mark.parametrize("runs", [True, False])
@pytest.mark.parametrize("ar", [0.5, 0.9])
# 5 % are expected; more than 2 of 10, or 4 of 30, in less than 1.6 % of all cases
@pytest.mark.parametrize(("n", "most"), few_or_many((10, 2), (30, 4)))
def test_autocorrelated_noise_in_single_blocks_is_called_noise(n, most, ar, runs):
    studies = [blocks_of_noise(seed, ar=ar, runs=runs) for seed in range(n)]
    models = ((bw.GDM(3).fit(study), study) for study in studies)
    assert alarms(models) <= most


def film_of_noise(seed, *, ar=0.0, drift=0.0, n=150):
    rng = np.random.default_rng(seed)
    time = np.linspace(-1, 1, n)[:, None] ** 2
    return [
        noise(rng, n, 30, ar) + drift * time * rng.normal(size=30) for _ in range(3)
    ]


@pytest.mark.parametrize("ar", [0.0, 0.5])
@pytest.mark.parametrize(("n", "most"), few_or_many((6, 1), (20, 3)))
def test_drifts_of_a_film_are_not_shared(n, most, ar):
    films = [film_of_noise(seed, ar=ar, drift=5.0) for seed in range(n)]
    models = ((bw.GDM(5, graph="time").fit(film),) for film in films)
    assert alarms(models) <= most


@pytest.mark.parametrize(("n", "most"), few_or_many((10, 2), (30, 4)))
def test_slow_noise_of_a_film_is_not_shared(n, most):
    def film(seed):
        rng = np.random.default_rng(seed)
        white = [rng.normal(size=(200, 50)) for _ in range(3)]
        return [lfilter([1], [1, -0.95], x, axis=0) for x in white]

    models = ((bw.GDM(2, graph="time").fit(film(seed)),) for seed in range(n))
    assert alarms(models) <= most


@pytest.mark.parametrize(("n", "most"), few_or_many((10, 2), (30, 4)))
def test_drifts_are_not_categories_shown_in_the_same_order(n, most):
    def study(seed):
        rng = np.random.default_rng(seed)
        y = np.concatenate([np.repeat(rng.permutation(4), 10) for _ in range(2)])
        time = np.linspace(-1, 1, 80)[:, None]
        X = [noise(rng, 80, 30, 0.3) + 5 * time * rng.normal(size=30) for _ in range(3)]
        return X, [y] * 3

    models = ((bw.GDM(3).fit(*study(seed)),) for seed in range(n))
    assert alarms(models) <= most


@pytest.mark.parametrize(("n", "least"), few_or_many((4, 4), (10, 9)))
def test_weak_signals_are_found(n, least):
    """In events and films of which a single sample shows little."""
    worked = {"events": 0, "film": 0}
    for seed in range(n):
        rng = np.random.default_rng(seed)
        values = rng.normal(size=(200, 3))
        orders = [rng.permutation(np.arange(96) % 4) for _ in range(3)]
        for name, rows in (("events", orders), ("film", [np.arange(150)] * 3)):
            X = [
                0.3 * values[own] @ rng.normal(size=(3, 40))
                + noise(rng, len(own), 40, 0.5)
                for own in rows
            ]
            gdm = bw.GDM(3, graph="labels" if name == "events" else "time")
            worked[name] += bool(bw.alignment_check(gdm.fit(X, rows), **QUICK).worked)
    assert min(worked.values()) >= least


def test_a_design_that_cannot_tell_says_so_and_more_runs_can():
    rng = np.random.default_rng(0)
    y, runs = [np.tile(np.repeat([0, 1], 10), 2)] * 2, [np.repeat([0, 1], 20)] * 2
    X = [rng.normal(size=(40, 30)) for _ in y]
    check = bw.alignment_check(bw.GDM(1).fit(X, y), runs=runs)
    assert check.worked is None
    assert check.verdict.startswith(
        "Whether alignment worked cannot be tested with this design: "
    )
    assert "6 runs like these would do" in check.verdict
    X, y = [np.tile(x, (3, 1)) for x in X], [np.tile(v, 3) for v in y]
    runs = [np.repeat(np.arange(6), 20)] * 2
    assert bw.alignment_check(bw.GDM(1).fit(X, y), runs=runs).available
    # nor can samples sorted by category, but if each is an estimate of its own
    y = [np.repeat([0, 1, 2], 10)] * 3
    X = [np.eye(3)[v] @ rng.normal(size=(3, 30)) + rng.normal(size=(30, 30)) for v in y]
    model = bw.GDM(2).fit(X, y)
    assert "the run of every sample" in bw.alignment_check(model).verdict
    assert bw.alignment_check(model, runs=[np.arange(30)] * 3).worked


# -- names -----------------------------------------------------------------------------


@pytest.mark.parametrize("seed", [0, 1, *few_or_many(2, *range(3, 12))])
def test_names_of_labels_change_nothing(seed):
    rng = np.random.default_rng(seed)
    counts = rng.choice([3, 5, 7, 9], size=4)
    codes = [rng.permutation(np.repeat(np.arange(4), counts)) for _ in range(3)]
    means = rng.normal(size=(4, 4))
    X = [
        means[own] @ rng.normal(size=(4, 40)) + 2 * rng.normal(size=(own.size, 40))
        for own in codes
    ]
    found = []
    for names in (["a", "b", "c", "d"], ["b", "a", "d", "c"], ["d", "c", "a", "b"]):
        y = [np.array(names)[own] for own in codes]
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", AlignmentWarning)
            model = bw.GDM().fit(X, y)
        found.append((model.n_components_, bw.alignment_check(model)))
    for k, check in found[1:]:
        assert k == found[0][0]
        assert_array_equal(check.p, found[0][1].p)
        assert_allclose(check.agreement_cv, found[0][1].agreement_cv, atol=1e-9)
        assert check.verdict == found[0][1].verdict


# -- how many --------------------------------------------------------------------------


def film_with(k, seed, *, ar=0.0, gaps=True, v=600):
    """Six subjects who share k time courses; three lack a sixth of the film."""
    rng = np.random.default_rng([seed, k])
    shared = gaussian_filter1d(rng.normal(size=(300, k)), 1.5, axis=0)
    shared /= shared.std(axis=0)
    X, ids = [], []
    for i in range(6):
        kept = np.arange(300)
        if gaps and i < 3:
            kept = np.delete(kept, np.arange(40 + 60 * i, 90 + 60 * i))
        own = noise(rng, 300, v, ar) if ar else 3 * rng.normal(size=(300, v))
        X.append((shared @ rng.normal(size=(k, v)) + own)[kept])
        ids.append(kept)
    return X, ids


@pytest.mark.parametrize("k", [1, *few_or_many(20, 3, 8)])
def test_auto_keeps_as_many_as_a_film_shares(k):
    kept = [bw.GDM(graph="time").fit(*film_with(k, 0)).n_components_]
    # noise that is slow holds something of what is shared
    slow = film_with(k, 1, ar=0.9, gaps=False, v=200)
    kept += [bw.GDM(graph="time").fit(*slow).n_components_]
    assert all(abs(n - k) <= 0.25 * k for n in kept), kept


def test_auto_keeps_few_of_a_film_from_files(tmp_path):
    """Confounds are removed there, so that what is left has fewer dimensions."""
    film = bw.simulate_study(
        n_subjects=6,
        n_voxels=150,
        n_runs=2,
        design="movie",
        missing_parts=3,
        random_state=0,
    )
    film.to_bids(tmp_path / "bids", task="movie", events=False)
    film = bw.load_bids(tmp_path / "bids", task="movie", films="runs")
    assert 8 <= bw.GDM(graph="time").fit(film).n_components_ <= 13  # 10 are shared


@pytest.mark.parametrize(("k", "n_categories"), [(1, 8), (3, 8), (8, 24), (20, 24)])
def test_auto_keeps_as_many_as_categories_differ_in(k, n_categories):
    rng = np.random.default_rng(k)
    means = rng.normal(size=(n_categories, k))
    y = [
        np.concatenate([rng.permutation(n_categories) for _ in range(16)])
        for _ in range(6)
    ]
    X = [
        means[own] @ rng.normal(size=(k, 200)) + 2 * rng.normal(size=(own.size, 200))
        for own in y
    ]
    n = bw.GDM().fit(X, y).n_components_
    assert abs(n - k) <= 0.25 * k


def test_components_are_kept_from_the_first_without_a_gap():
    model = bw.GDM(20, graph="time").fit(*film_with(8, 2, v=100))
    check = bw.alignment_check(model)
    assert (np.diff(check.p) >= 0).all()
    assert check.holds.tolist() == [k < check.n_holding for k in range(20)]
    table = model.component_summary()
    assert table["informative"].tolist() == check.holds.tolist()


@pytest.mark.parametrize("graph", ["time", "labels"])
def test_a_half_has_the_strength_of_a_fit_of_its_samples(graph):
    rng = np.random.default_rng(0)
    X = [rng.normal(size=(60, 200)) for _ in range(3)]
    ids = [np.arange(60) if graph == "time" else np.arange(60) % 4] * 3
    model = bw.GDM(2, graph=graph, standardize=False).fit(X, ids)
    rows, held = np.arange(30), np.arange(30, 60)
    halves = [_half_basis(b, rows, held, [rows])[0] for b in model.bases_]
    own = bw.GDM(2, graph=graph, standardize=False).fit(
        [remove_trends(x[:30], rows, [rows]) for x in X], [v[:30] for v in ids]
    )
    half = bw.GDM(2, graph=own.graph_, standardize=False)
    half._solve(halves, None)
    assert half.shrinkage_by_ == own.shrinkage_by_
    assert_allclose(half.shrinkage_, own.shrinkage_, rtol=1e-9)


# -- one number ------------------------------------------------------------------------


def test_what_worked_has_a_positive_correlation():
    """Of three subjects and two categories single correlations are 1 or -1."""
    worked = 0
    for seed in range(30):
        rng = np.random.default_rng(seed)
        y = [rng.permutation(np.arange(24) % 2) for _ in range(3)]
        X = [
            0.3 * (own[:, None] - 0.5) * rng.normal(size=20) + rng.normal(size=(24, 20))
            for own in y
        ]
        check = bw.alignment_check(bw.GDM(1).fit(X, y), **QUICK)
        assert f" {check.agreement:.2f} without slow trends" in check.verdict
        worked += check.worked
        assert check.agreement > 0 or not check.worked
    assert worked > 2


def study_with_runs(seed=0):
    return bw.simulate_study(
        n_subjects=4, categories=4, n_voxels=60, n_runs=4, random_state=seed
    )


@pytest.mark.parametrize("n_components", few_or_many("auto", 3))
def test_fit_file_report_and_description_have_one_number(tmp_path, n_components):
    study = study_with_runs()
    model = bw.GDM(n_components).fit(study)
    stored = stored_check(model)
    assert stored.available
    verdict = stored.verdict
    assert bw.alignment_check(model).verdict == verdict
    assert bw.alignment_check(model, study).verdict == verdict
    path = bw.save(model, tmp_path / "model.safetensors")
    loaded = bw.load(path)
    assert bw.alignment_check(loaded).verdict == verdict
    again = bw.alignment_check(loaded, study)
    assert again.verdict == verdict
    assert again.features is not None  # for pictures
    assert bw.describe(path)["facts"]["held-out check"] == verdict
    out = write_report(tmp_path / "report.html", study=study, model=loaded)
    page = Path(out).read_text()
    (number,) = set(re.findall(r"correlation[^(]*? (-?\d\.\d\d) without slow", page))
    assert number == f"{stored.agreement:.2f}"
    table = loaded.component_summary()
    assert_allclose(table["p"], stored.p)


def test_another_fit_has_another_answer():
    X, ids = film_with(2, 0, v=50, gaps=False)
    model = bw.GDM(2, graph="time").fit(X, ids)
    assert bw.alignment_check(model).worked
    rng = np.random.default_rng(0)
    model.fit([rng.normal(size=x.shape) for x in X], ids)
    assert not bw.alignment_check(model).worked


# -- pieces ----------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["parcels", "searchlight"])
def test_pieces_are_checked_one_by_one(kind, tmp_path):
    """Two of eight share something."""
    rng = np.random.default_rng(0)
    X = [noise(rng, 100, 80, 0.5) for _ in range(4)]
    for piece in (2, 5):
        shared = rng.normal(size=(100, 2))
        for x in X:
            x[:, 10 * piece : 10 * piece + 10] += 2 * shared @ rng.normal(size=(2, 10))
    inner = bw.DetSRM(2, max_iter=20, tol=0, random_state=0)
    model = bw.Parcelwise(inner, np.repeat(np.arange(8), 10) + 1)
    if kind == "searchlight":
        lights = {"coordinates": np.arange(80)[:, None] // 10, "radius": 0.5}
        model = bw.Searchlight(inner, centers=range(0, 80, 10), **lights)
    model.fit(X)
    assert "pass X" in bw.alignment_check(model).verdict
    check = bw.alignment_check(model, X)
    table = check.pieces
    assert list(table.columns) == ["n_features", "agreement", "p", "p_max", "p_fdr"]
    assert len(table) == 8
    shared = np.isin(np.arange(8), [2, 5])
    assert_array_equal(table["p_max"] < 0.05, shared)
    assert_array_equal(table["p_fdr"] < 0.05, shared)
    assert (table["p_max"] >= table["p"]).all()
    assert (table["agreement"][shared] > 0.5).all()
    assert check.worked
    assert "subjects agree in 2 of 8 " in check.verdict
    path = bw.save(model, tmp_path / "pieces.safetensors")
    known = bw.alignment_check(bw.load(path))
    assert known.verdict == check.verdict
    assert_allclose(known.pieces, table)
    rows = model.component_summary()
    assert rows.index.tolist() == np.repeat(table.index, 2).tolist()
    assert rows["component"].tolist() == [0, 1] * 8
    assert_array_equal(rows["informative"], rows["p"] < 0.05)
    # each piece as it is checked alone
    own = inner.fit([x[:, 50:60] for x in X])
    alone = bw.alignment_check(own, [x[:, 50:60] for x in X])
    assert_allclose(rows["p"].iloc[10:12], alone.p)
    assert_allclose(rows["agreement_cv"].iloc[10:12], alone.agreement_cv)
    assert_allclose(known.components.astype(float), rows.astype(float))


def test_components_of_pieces_are_those_of_a_gdm_in_each():
    rng = np.random.default_rng(0)
    y = [["a", "b", "c"] * 8] * 3
    X = [rng.normal(size=(24, 20)) + rng.normal(size=(3, 20))[[0, 1, 2] * 8] for _ in y]
    inner = bw.GDM(2, shrinkage=0.5, place=None)
    model = bw.Parcelwise(inner, np.repeat([1, 2], 10)).fit(X, y)
    with pytest.raises(bw.InputError, match=r"Call alignment_check\(model, study\)"):
        model.component_summary()
    found = model.component_summary(check=bw.alignment_check(model, X, y)).loc[2]
    alone = bw.GDM(2, shrinkage=0.5).fit([x[:, 10:] for x in X], y)
    known = alone.component_summary()
    assert found["component"].tolist() == [0, 1]
    same = ["graph_fit", "agreement", "agreement_cv", "p"]
    assert_allclose(found[same], known[same])
    assert_allclose(found["variance"], known.filter(like="variance_").mean(axis=1))


@pytest.mark.parametrize(("n", "most"), few_or_many((4, 1), (20, 3)))
def test_pieces_of_noise_hold_nothing(n, most):
    worked = 0
    for seed in range(n):
        rng = np.random.default_rng(seed)
        X = [noise(rng, 80, 30, 0.5) for _ in range(3)]
        model = bw.Parcelwise(bw.GDM(2, graph="time"), np.repeat(np.arange(5), 6) + 1)
        worked += bool(bw.alignment_check(model.fit(X), X, **QUICK).worked)
    assert worked <= most
