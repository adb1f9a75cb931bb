"""Hyperalignment and its kin against plain voxel-space versions and planted truths."""

import warnings

import numpy as np
import pytest
import scipy.linalg
import scipy.stats
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.testing import assert_allclose
from sklearn.exceptions import ConvergenceWarning

from brainweave import (
    Hyperalignment,
    KernelHyperalignment,
    RegularizedHyperalignment,
    Subject,
    SubjectBasis,
    SVDHyperalignment,
    alignment_check,
    load,
    save,
)
from brainweave._core.exceptions import InputError, UniquenessWarning
from brainweave.aligners.gdm.smoother import GramSmoother
from brainweave.aligners.gdm.strength import (
    GRID,
    block_criterion,
    covariance_strength,
)
from brainweave.aligners.timelocked import warn_of_tie

LEVELS = (Hyperalignment, RegularizedHyperalignment, KernelHyperalignment)


def study(seed=0, n=14, voxels=(9, 9, 9), noise=0.3):
    """Give subjects that share a response of five dimensions, centred."""
    rng = np.random.default_rng(seed)
    shared = rng.normal(size=(n, 5))
    X = []
    for v in voxels:
        x = shared @ rng.normal(size=(5, v)) + noise * rng.normal(size=(n, v))
        X.append(x - x.mean(axis=0))
    return X


def voxel_hyperalign(X, passes=1):
    """Hyperalignment as published, on voxels x voxels rotations."""
    width = max(x.shape[1] for x in X)
    X = [np.pad(x, ((0, 0), (0, width - x.shape[1]))) for x in X]
    aligned = {0: X[0]}
    for i in range(1, len(X)):
        mean = np.mean(list(aligned.values()), axis=0)
        aligned[i] = X[i] @ scipy.linalg.orthogonal_procrustes(X[i], mean)[0]
    for _ in range(passes):
        for i in range(len(X)):
            mean = np.mean([aligned[j] for j in aligned if j != i], axis=0)
            aligned[i] = X[i] @ scipy.linalg.orthogonal_procrustes(X[i], mean)[0]
    common = np.mean([aligned[i] for i in range(len(X))], axis=0)
    R = [scipy.linalg.orthogonal_procrustes(x, common)[0] for x in X]
    axes = np.linalg.svd(common, full_matrices=False)[2].T
    signs = np.sign(
        (common @ axes)[np.abs(common @ axes).argmax(0), range(len(axes.T))]
    )
    return [x @ r @ (axes * signs) for x, r in zip(X, R, strict=True)]


@pytest.mark.parametrize("voxels", [(9, 9, 9), (30, 30, 30), (9, 12, 7), (40, 25, 30)])
def test_reduced_coordinates_give_the_voxel_space_solution(voxels):
    X = study(voxels=voxels)
    expected = voxel_hyperalign(X, passes=3)
    k = 5
    model = Hyperalignment(k, max_iter=3, standardize=False)
    features = model.fit_transform(X)
    for a, b in zip(features, expected, strict=True):
        assert_allclose(a, b[:, :k], atol=1e-8 * np.abs(b).max())


@pytest.mark.parametrize("alpha", [0.0, 0.3, 0.99])
@pytest.mark.parametrize("voxels", [(9, 9, 9), (20, 20, 20)])
def test_whitening_in_coordinates_is_whitening_in_voxels(alpha, voxels):
    X = study(1, voxels=voxels)
    white = []
    for x in X:
        values, U = np.linalg.eigh((1 - alpha) * x.T @ x + alpha * np.eye(x.shape[1]))
        keep = values > 1e-9  # CCA leaves out what a subject does not span
        root = (U[:, keep] / np.sqrt(values[keep])) @ U[:, keep].T
        white.append(x @ root)
    expected = voxel_hyperalign(white)
    model = RegularizedHyperalignment(alpha=alpha, standardize=False).fit(X)
    # features up to the rotation that tied dimensions of the template leave open
    for x, b, a in zip(X, expected, model.transform(X), strict=True):
        assert_allclose(a @ a.T, b @ b.T, atol=1e-7 * np.abs(b @ b.T).max())
        assert x.shape[0] == a.shape[0]


@pytest.mark.parametrize("kind", [Hyperalignment, RegularizedHyperalignment])
def test_planted_rotations_are_recovered_exactly(kind):
    rng = np.random.default_rng(3)
    X = rng.normal(size=(20, 35))
    Q = [scipy.stats.ortho_group.rvs(35, random_state=rng) for _ in range(3)]
    subjects = [X @ q for q in Q]
    model = kind(standardize=False).fit(subjects)
    first, *others = model.transform(subjects)
    for other in others:
        assert_allclose(other, first, atol=1e-9)
    new = rng.normal(size=(6, 35)) @ np.linalg.pinv(X) @ X  # within what X spans
    first, *others = model.transform([new @ q for q in Q])
    for other in others:
        assert_allclose(other, first, atol=1e-8)
    assert_allclose(model.objective_history_[-1], 0, atol=1e-8 * (X**2).sum())


def test_svd_hyperalignment_recovers_planted_maps():
    rng = np.random.default_rng(3)
    S = rng.normal(size=(30, 4))
    W = [np.linalg.qr(rng.normal(size=(v, 4)))[0] for v in (50, 40, 45)]
    X = [S @ w.T for w in W]
    model = SVDHyperalignment(4, standardize=False).fit(X)
    first, *others = model.transform(X)
    for other in others:
        assert_allclose(other, first, atol=1e-10)
    back = model.inverse_transform(model.transform(X))
    for x, b in zip(X, back, strict=True):
        assert_allclose(b, x, atol=1e-9)


@pytest.mark.parametrize("voxels", [(9, 9, 9), (30, 20, 25)])
def test_svd_hyperalignment_equals_the_voxel_space_version(voxels):
    X = study(4, voxels=voxels)
    k = 4
    V = np.linalg.svd(np.hstack(X), full_matrices=False)[2][:k].T
    blocks = np.split(V, np.cumsum(voxels)[:-1])
    Y = [np.sqrt(len(X)) * x @ v for x, v in zip(X, blocks, strict=True)]
    expected = voxel_hyperalign(Y)
    features = SVDHyperalignment(k, standardize=False).fit_transform(X)
    for a, b in zip(features, expected, strict=True):
        assert_allclose(a, b, atol=1e-8 * np.abs(b).max())


def test_linear_kernel_is_hyperalignment():
    X = study(5, voxels=(30, 20, 25))
    a = Hyperalignment(6).fit(X).transform(X)
    b = KernelHyperalignment(6, kernel="linear").fit(X).transform(X)
    for one, two in zip(a, b, strict=True):
        assert_allclose(one, two, atol=1e-12)


def test_alpha_one_is_hyperalignment():
    X = study(6, voxels=(30, 20, 25))
    a = Hyperalignment(6).fit(X)
    b = RegularizedHyperalignment(6, alpha=1).fit(X)
    for one, two in zip(a.transform(X), b.transform(X), strict=True):
        assert_allclose(one, two, atol=1e-12)
    for one, two in zip(a.maps_, b.maps_, strict=True):
        assert_allclose(one.patterns, two.patterns, atol=1e-12)


def test_alpha_zero_gives_canonical_correlations():
    rng = np.random.default_rng(8)
    n, z = 60, rng.normal(size=(60, 2))
    X = [np.hstack([z + 0.5 * rng.normal(size=z.shape), rng.normal(size=(n, 3))])]
    X.append(np.hstack([rng.normal(size=(n, 4)), z + 0.5 * rng.normal(size=z.shape)]))
    model = RegularizedHyperalignment(
        2, alpha=0, standardize=False, max_iter=200, tol=1e-12
    )
    a, b = model.fit_transform(X)
    found = [np.corrcoef(a[:, j], b[:, j])[0, 1] for j in range(2)]
    Q = [np.linalg.qr(x - x.mean(axis=0))[0] for x in X]
    expected = np.linalg.svd(Q[0].T @ Q[1], compute_uv=False)[:2]
    assert_allclose(found, expected, atol=1e-6)


def test_any_kernel_aligns_in_its_feature_space():
    """A rotation of samples is invisible to the kernels, so subjects become equal."""
    rng = np.random.default_rng(9)
    X = rng.normal(size=(20, 30))
    Q = scipy.stats.ortho_group.rvs(30, random_state=rng)
    for kernel, hp in (("gaussian", 50.0), ("quadratic", 10.0)):
        model = KernelHyperalignment(
            5, kernel=kernel, kernel_params={"hp": hp}, standardize=False
        )
        a, b = model.fit([X, X @ Q]).transform([X, X @ Q])
        assert_allclose(a, b, atol=1e-8 * np.abs(a).max())


@pytest.mark.parametrize("kind", [*LEVELS, SVDHyperalignment])
@settings(max_examples=10, deadline=None)
@given(seed=st.integers(0, 1000), noise=st.floats(0.1, 5))
def test_objective_never_rises(kind, seed, noise):
    X = study(seed, voxels=(20, 16, 12, 9), noise=noise)
    model = kind(5, max_iter=15).fit(X)
    history = np.array(model.objective_history_)
    assert len(history) == 17  # level 1, fifteen passes, level 3
    assert (np.diff(history) <= 1e-10 * history[0]).all()
    assert model.n_iter_ == 15


@pytest.mark.parametrize("voxels", [(30, 30, 30), (9, 9, 9)])
def test_rotations_are_orthonormal_and_lose_nothing(voxels):
    X = study(10, voxels=voxels)
    model = Hyperalignment(standardize=False).fit(X)
    for x, m in zip(X, model.maps_, strict=True):
        W = m.weights
        assert_allclose(W.T @ W, np.eye(W.shape[1]), atol=1e-10)
        assert_allclose(m.inverse_transform(m.transform(x)), x, atol=1e-9)
    assert model.n_components_ == min(13, voxels[0])


def test_components_come_largest_first():
    X = study(11, voxels=(30, 20, 25))
    model = Hyperalignment().fit(X)
    assert (np.diff((model.template_**2).sum(axis=0)) <= 1e-6).all()
    three = Hyperalignment(3).fit(X)
    assert_allclose(three.shared_response_, model.shared_response_[:, :3], atol=1e-12)


def test_regularised_way_back_undoes_the_whitening():
    X = study(12, voxels=(30, 20, 25))
    model = RegularizedHyperalignment(alpha=0.7).fit(X)
    for x, back in zip(X, model.inverse_transform(model.transform(X)), strict=True):
        assert_allclose(back, x, atol=1e-8)


@pytest.mark.parametrize("kind", [*LEVELS, SVDHyperalignment])
def test_the_template_is_the_mean_of_the_features(kind):
    X = study(21, voxels=(30, 20, 25))
    model = kind(4)
    features = model.fit_transform(X)
    assert_allclose(model.shared_response_, np.mean(features, axis=0), atol=1e-10)
    if kind is not SVDHyperalignment:
        assert model.template_.shape[1] == max(b.n_kept for b in model.bases_)
        assert_allclose(model.template_[:, :4], model.shared_response_, rtol=0)


def test_only_rotations_keep_distances():
    X = study(22, voxels=(30, 20, 25))
    for kind, isometric in (
        (Hyperalignment(), True),
        (RegularizedHyperalignment(alpha=1), True),
        (RegularizedHyperalignment(alpha=0.5), False),
    ):
        model = kind.fit(X)
        assert [m.isometric for m in model.maps_] == [isometric] * 3
        assert model.fit_new_subject(X[0]).isometric is isometric


def test_more_passes_end_when_they_settle():
    X = study(13, voxels=(30, 20, 25))
    model = Hyperalignment(max_iter=500, tol=1e-6).fit(X)
    assert model.converged_
    assert 1 < model.n_iter_ < 500
    with pytest.warns(ConvergenceWarning, match="did not converge in 2 iterations"):
        Hyperalignment(max_iter=2, tol=1e-12).fit(X)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        Hyperalignment(max_iter=2).fit(X)  # tol=0 asks for just that


@pytest.mark.parametrize("kind", [*LEVELS, SVDHyperalignment])
def test_a_new_subject_joins_the_template(kind):
    X = study(14, n=40, voxels=(60, 50, 55, 45), noise=0.2)
    model = kind(3).fit(X[:3])
    new = model.fit_new_subject(X[3]).transform(X[3])
    fit = [np.corrcoef(new[:, j], model.shared_response_[:, j])[0, 1] for j in range(3)]
    assert min(fit) > 0.95
    with pytest.raises(ValueError, match=r"30 samples for 40 rows.*GDM"):
        model.fit_new_subject(X[3][:30])


def test_unequal_samples_name_both_ways_out():
    X = study(15, voxels=(20, 16))
    with pytest.raises(
        ValueError, match=r"X\[0\] has 14 samples and X\[1\] has 11.*match_samples.*GDM"
    ):
        Hyperalignment().fit([X[0], X[1][:-3]])


def test_labels_in_another_order_are_refused():
    X = study(16, voxels=(20, 16))
    y = [["a", "b"] * 7, ["a", "b"] * 6 + ["b", "a"]]
    with pytest.raises(ValueError, match=r"y\[1\] differs from y\[0\], .* sample 12"):
        Hyperalignment().fit(X, y)
    Hyperalignment().fit(X, [["a", None] * 7] * 2)


@pytest.mark.parametrize(
    ("settings_", "message"),
    [
        ({"n_components": 19}, "n_components=19 is more than the 13"),
        ({"max_iter": 0}, "max_iter"),
        ({"tol": -1}, "tol of Hyperalignment must be >= 0"),
    ],
)
def test_bad_settings_are_named(settings_, message):
    X = study(17, voxels=(20, 16))
    with pytest.raises(ValueError, match=message):
        Hyperalignment(**settings_).fit(X)


@pytest.mark.parametrize("alpha", [-0.1, 1.5])
def test_alpha_outside_its_range_is_refused(alpha):
    with pytest.raises(ValueError, match=r"from 0 .CCA. to 1"):
        RegularizedHyperalignment(alpha=alpha).fit(study(18))
    with pytest.raises(TypeError, match="alpha"):
        RegularizedHyperalignment(alpha="0.5").fit(study(18))


def labelled(seed=20, n=48, noise=4.0):
    """Give three subjects with 80 voxels, 4 categories in 6 runs, and the labels."""
    rng = np.random.default_rng(seed)
    y = np.tile(np.arange(4), n // 4)
    shared = rng.normal(size=(4, 5))[y]
    X = [
        shared @ rng.normal(size=(5, 80)) + noise * rng.normal(size=(n, 80))
        for _ in range(3)
    ]
    return X, y, np.repeat(np.arange(6), n // 6)


def test_alpha_by_itself_is_the_ridge_that_predicts_the_labels_best(tmp_path):
    X, y, runs = labelled()
    subjects = [
        Subject(f"s{i}", x, labels=y, runs=runs.astype(str)) for i, x in enumerate(X)
    ]
    rha = RegularizedHyperalignment(3, alpha="auto").fit(subjects)
    assert rha.alpha_by_ == "runs"
    Z = [(x - x.mean(axis=0)) / x.std(axis=0) for x in X]
    grams = [z @ z.T for z in Z]
    found = [block_criterion(GramSmoother(g), y, runs=runs) for g in grams]
    ridge = (
        GRID[np.mean(found, axis=0).argmax()] * 80
    )  # of standardised voxels, their mean eigenvalue
    assert_allclose(rha.alpha_, ridge / (1 + ridge))
    given = RegularizedHyperalignment(3, alpha=rha.alpha_).fit(X)
    assert given.alpha_by_ == "given"
    assert_allclose(rha.transform(X)[1], given.transform(X)[1], atol=1e-10)
    save(rha, tmp_path / "m.safetensors")
    loaded = load(tmp_path / "m.safetensors")
    assert (loaded.alpha_, loaded.alpha_by_) == (rha.alpha_, "runs")
    joined, expected = (m.fit_new_subject(X[0]) for m in (loaded, given))
    assert_allclose(joined.transform(X[0]), expected.transform(X[0]), atol=1e-10)
    # what is checked on halves of the samples is chosen in these
    assert alignment_check(rha, subjects).worked


def test_alpha_by_itself_falls_back_where_nothing_repeats():
    X, y, _ = labelled()
    assert RegularizedHyperalignment(3, alpha="auto").fit(X, [y] * 3).alpha_by_ == (
        "blocks"
    )
    bare = RegularizedHyperalignment(3, alpha="auto", energy=0.9).fit(X)
    assert bare.alpha_by_ == "ledoit-wolf"
    grams = [SubjectBasis(x).gram for x in X]
    ridge = covariance_strength(grams, [80] * 3) * 80
    assert_allclose(bare.alpha_, ridge / (1 + ridge))


def test_more_joint_dimensions_than_there_are_is_refused():
    rng = np.random.default_rng(19)
    S = rng.normal(size=(20, 3))
    X = [S @ rng.normal(size=(3, 10)) for _ in range(2)]
    with pytest.raises(ValueError, match="more than the 3 dimensions"):
        SVDHyperalignment(5, standardize=False).fit(X)


@pytest.mark.parametrize("unit", [1e-6, 1.0, 1e6])
def test_a_cut_between_equal_variances_is_warned_about(unit):
    values = unit * np.array([4.0, 2.0, 2.0 * (1 - 1e-10), 1e-12, 0.0])
    with pytest.warns(UniquenessWarning, match="not unique"):
        warn_of_tie(values, 2)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for k in (1, 3, 4, 5, 6):  # a gap, nothing left to part, or no more values
            warn_of_tie(values, k)
        warn_of_tie(unit * np.array([2.0, 2.0 * (1 - 1e-7)]), 1)


def test_a_joint_decomposition_may_keep_all_dimensions(rng):
    X = [rng.normal(size=(8, 12)) for _ in range(3)]
    model = SVDHyperalignment(7).fit(X)
    Z = [(x - x.mean(axis=0)) / x.std(axis=0) for x in X]
    values = np.linalg.svd(np.hstack(Z), compute_uv=False)
    assert_allclose(model.singular_values_, values[:7], rtol=1e-10)


def test_weak_dimensions_are_shared_too(rng):
    """Of a variance of 1e-10 of the largest; those of rounding are refused."""
    noise = rng.normal(size=(12, 4))
    U = np.linalg.qr(noise - noise.mean(axis=0))[0] * [1.0, 0.5, 1e-5, 1e-9]
    X = [U @ np.linalg.qr(rng.normal(size=(v, 4)))[0].T for v in (6, 8)]
    fitted = SVDHyperalignment(3, standardize=False).fit(X)
    assert fitted.n_components_ == 3
    strength = fitted.singular_values_ / fitted.singular_values_[0]
    assert_allclose(strength, [1, 0.5, 1e-5], rtol=1e-4)
    with pytest.raises(InputError, match="more than the 3 dimensions that all"):
        SVDHyperalignment(4, standardize=False).fit(X)


def test_ties_are_measured_by_the_strongest_component():
    values = np.array([1000.0, 1.0, 1.0 - 1e-7, 0.5])
    with pytest.warns(UniquenessWarning, match="not unique"):
        warn_of_tie(values, 2)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        warn_of_tie(values, 1)
        warn_of_tie(values, 3)
        warn_of_tie(values[1:], 1)  # of its own size, 1e-7 is no tie
