"""A subject that was not in the fit joins the model."""

import pickle
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest
import scipy.sparse
from numpy.testing import assert_allclose
from sklearn.linear_model import Ridge
from sklearn.svm import NuSVC
from threadpoolctl import threadpool_limits

from brainweave import (
    GDM,
    PaperGDM,
    SubjectBasis,
    label_graph,
    matrix_graph,
    simulate_study,
)
from brainweave._core.exceptions import (
    InputError,
    UndeterminedWarning,
    UniquenessWarning,
)
from brainweave.aligners.gdm.new_subject import descend, regress_new
from planted import planted_study


@pytest.fixture
def study(rng):
    return planted_study(
        rng, lengths=(80, 84, 88, 92), voxels=(120, 130, 140, 150), noise=0.9
    )


def accuracy(train, y_train, test, y_test):
    classifier = NuSVC(nu=0.5, kernel="linear").fit(train, y_train)
    return (classifier.predict(test) == y_test).mean()


def test_objective_never_rises(rng):
    lengths = (80, 84, 88, 92)
    seen = [rng.choice(4, size=n, p=[0.5, 0.25, 0.15, 0.1]) for n in lengths]
    X, y = planted_study(rng, lengths, voxels=(120, 130, 140, 150), labels=seen)
    gdm = PaperGDM(3, energy=0.5).fit(X[:3], y[:3])
    history = np.array(gdm.fit_new_subject(X[3], y[3]).objective_history)
    assert len(history) > 2
    assert (np.diff(history) <= 1e-12 * np.abs(history[1:])).all()


def test_descent_from_anywhere_is_monotone_and_stationary(rng):
    N = rng.normal(size=(30, 30))
    N, F = N + N.T, rng.normal(size=(30, 4))
    result = descend(N, F, max_iter=20_000, tol=1e-14)
    assert (np.diff(result.history) <= 1e-9).all()
    assert_allclose(result.map.T @ result.map, np.eye(4), atol=1e-10)
    gradient = N @ result.map - F
    # on the Stiefel manifold the gradient must be Q times a symmetric matrix
    multiplier = result.map.T @ gradient
    assert_allclose(multiplier, multiplier.T, atol=1e-3)
    assert_allclose(gradient, result.map @ multiplier, atol=1e-3)


def test_accuracy_is_within_five_points_of_a_joint_fit(rng):
    X, y = planted_study(
        rng, lengths=(120,) * 5, voxels=(150, 160, 140, 170, 155), noise=5.0
    )
    align, rest = np.arange(120) < 60, np.arange(120) >= 60
    X_align, y_align = [x[align] for x in X], [part[align] for part in y]
    joint, alone = [], []
    for out in range(5):
        others = [i for i in range(5) if i != out]
        test = X[out][rest], y[out][rest]
        y_train = np.concatenate([y[i][rest] for i in others])

        both = PaperGDM(3, energy=0.6).fit(X_align, y_align)
        train = np.concatenate(both.transform([X[i][rest] for i in others], others))
        mapped = both.transform([test[0]], [out])[0]
        joint.append(accuracy(train, y_train, mapped, test[1]))

        gdm = PaperGDM(3, energy=0.6).fit(
            [X_align[i] for i in others], [y_align[i] for i in others]
        )
        train = np.concatenate(gdm.transform([X[i][rest] for i in others]))
        new = gdm.fit_new_subject(X_align[out], y_align[out])
        alone.append(accuracy(train, y_train, new.transform(test[0]), test[1]))
    assert np.mean(joint) > 0.6  # chance is 0.25
    assert np.mean(joint) < 0.99  # not a ceiling that hides a difference
    assert abs(np.mean(alone) - np.mean(joint)) < 0.05


def test_features_have_unit_variance_and_the_model_is_unchanged(study):
    X, y = study
    gdm = PaperGDM(3, energy=0.5).fit(X[:3], y[:3])
    before = [c.copy() for c in gdm.coef_]
    shared = gdm.fit_new_subject(X[3], y[3]).transform(X[3])
    assert_allclose(shared.var(axis=0), 1, rtol=1e-8)
    for a, b in zip(before, gdm.coef_, strict=True):
        assert np.array_equal(a, b)


@pytest.mark.parametrize("kind", ["labels", "matrix"])
def test_the_objective_is_that_of_the_graph_with_the_new_subject(study, rng, kind):
    X, y = study
    n = len(X[3])
    G = label_graph(y, same=2).to_sparse().toarray()
    if kind == "labels":
        gdm = PaperGDM(3, energy=0.5, graph=label_graph(y[:3], same=2)).fit(X[:3])
        new = gdm.fit_new_subject(X[3], y[3])
    else:
        weights = rng.uniform(size=G.shape)
        G = G * (weights + weights.T)
        G[-n:, -n:] = 0  # edges are to the aligning samples alone
        inner = matrix_graph(G[:-n, :-n], [len(x) for x in X[:3]])
        gdm = PaperGDM(3, energy=0.5, graph=inner).fit(X[:3])
        new = gdm.fit_new_subject(X[3], edges=G[-n:, :-n])
    Y = np.concatenate([*gdm.transform(X[:3]), new.transform(X[3])])
    Y /= np.sqrt(len(G))  # the paper's scale
    own, others = Y[-n:], Y[:-n]
    laplacian = np.diag(G[-n:].sum(axis=1)) - G[-n:, -n:]
    expected = (own * (laplacian @ own - 2 * G[-n:, :-n] @ others)).sum()
    assert_allclose(new.objective_history[-1], expected, rtol=1e-8)


def test_with_shrinkage_it_is_a_ridge_regression_on_what_the_model_has(study):
    X, y = study
    gdm = GDM(3, shrinkage=0.3).fit(X[:3], y[:3])
    new = gdm.fit_new_subject(X[3], y[3])
    assert new.n_undetermined == 0
    (term,), (sums,) = gdm.graph_.groups, gdm.group_sums_
    target = (term.affinity @ sums)[np.searchsorted(term.names, y[3])]
    z = (X[3] - X[3].mean(axis=0)) / X[3].std(axis=0)
    ridge = Ridge(alpha=0.3 * (z * z).sum() / len(z), solver="svd").fit(z, target)
    expected = ridge.predict(z) - target.mean(axis=0)
    mu, wanted = gdm.eigenvalues_, target.std(axis=0)
    size = np.linalg.norm(mu * wanted) / np.linalg.norm(mu * expected.std(axis=0))
    assert_allclose(new.transform(X[3]), size * gdm.scale_ * expected, atol=1e-8)


def test_the_order_of_subjects_does_not_move_a_new_one(study):
    X, y = study
    found = []
    for order in ([0, 1, 2], [2, 0, 1], [1, 2, 0]):
        gdm = GDM(3).fit([X[i] for i in order], [y[i] for i in order])
        found.append(gdm.fit_new_subject(X[3], y[3]).transform(X[3]))
    signs = np.sign((found[0] * found[1:]).sum(axis=1, keepdims=True))
    for other in found[1:] * signs:
        assert_allclose(other, found[0], atol=1e-9)


OPTIONS = ({}, {"constraint": "subject"}, {"scale": "unit"})


@pytest.mark.parametrize("options", OPTIONS)
@pytest.mark.parametrize("joins", [False, True])
@pytest.mark.filterwarnings("ignore::brainweave._core.exceptions.UndeterminedWarning")
def test_what_a_subject_did_not_see_stays_small_in_it(rng, options, joins):
    """Two of four categories: the features differ as theirs do in other subjects."""
    labels = [np.arange(80) % 4 for _ in range(4)] + [np.arange(80) % 2]
    both = planted_study(rng, (80,) * 5, (120,) * 5, noise=0.5, labels=labels)
    X, y = ([a[:40] for a in both[i]] for i in (0, 1))
    held, wanted = ([a[40:] for a in both[i]] for i in (0, 1))
    model = GDM(3, shrinkage=0.3, **options)
    if joins:
        model.fit(X[:4], y[:4])
        maps = [*model.maps_, model.fit_new_subject(X[4], y[4])]
    else:
        maps = model.fit(X, y).maps_
    features = [m.transform(x) for m, x in zip(maps, held, strict=True)]
    train, known = np.concatenate(features[:4]), np.concatenate(wanted[:4])
    assert accuracy(train, known, features[4], wanted[4]) == 1
    gap = features[4][wanted[4] == 0].mean(axis=0) - features[4][wanted[4] == 1].mean(0)
    others = train[known == 0].mean(axis=0) - train[known == 1].mean(axis=0)
    along = gap @ others / (others @ others)
    assert 0.5 < along < 1.5
    assert np.linalg.norm(gap - along * others) < 0.2 * np.linalg.norm(gap)
    # of the aligning samples exactly: all lie on one line
    values = np.linalg.svd(maps[4].aligning_features(), compute_uv=False)
    assert values[1] < 1e-8 * values[0]


def test_with_shrinkage_a_missing_category_leaves_a_dimension_undetermined(study):
    X, y = study
    gdm = GDM(3, shrinkage=0.3).fit(X[:3], y[:3])
    some = y[3] < 3
    with pytest.warns(UndeterminedWarning, match="determine 2 dimensions .* of 3"):
        new = gdm.fit_new_subject(X[3][some], y[3][some])
    assert new.n_undetermined == 1


@pytest.mark.parametrize("unit", [1e-8, 1.0, 1e8])
def test_with_shrinkage_the_unit_of_the_edges_does_not_matter(rng, unit):
    basis = SubjectBasis(rng.normal(size=(20, 30)))
    target = rng.normal(size=(20, 2)) @ rng.normal(size=(2, 3))
    model = SimpleNamespace(shrinkage_=0.3, eigenvalues_=np.ones(3), scale_=np.ones(3))
    assert regress_new(basis, unit * target, model).n_determined == 2


def test_labels_alone_join_a_model_of_labels_and_rows(rng):
    labels = np.arange(40) % 4
    X, _ = planted_study(rng, (40,) * 4, (60,) * 4, labels=[labels] * 4)
    gdm = GDM(3, shrinkage=0.3, graph="labels+time").fit(X[:3], [labels] * 3)
    by_row = gdm.fit_new_subject(X[3], labels).transform(X[3])
    both = np.column_stack([labels, np.arange(40)])
    assert_allclose(gdm.fit_new_subject(X[3], both).transform(X[3]), by_row, atol=1e-9)
    with pytest.raises(InputError, match="pass both for the new subject"):
        gdm.fit_new_subject(X[3])


def test_edges_alone_join_a_model_of_groups_and_a_matrix(study):
    X, y = study
    lengths = [len(x) for x in X[:3]]
    flat = np.concatenate(y[:3])
    same = (flat[:, None] == flat).astype(float)
    graph = label_graph(y[:3]) + matrix_graph(same, lengths)
    gdm = PaperGDM(3, energy=0.5, graph=graph).fit(X[:3])
    edges = (y[3][:, None] == flat).astype(float)
    alone = gdm.fit_new_subject(X[3], edges=edges).transform(X[3])
    both = gdm.fit_new_subject(X[3], y[3], edges=edges).transform(X[3])
    assert np.corrcoef(alone[:, 0], both[:, 0])[0, 1] > 0.9


def test_a_fitted_subject_comes_back_to_its_place(study):
    X, y = study
    gdm = PaperGDM(3, energy=0.5).fit(X, y)
    again = gdm.fit_new_subject(X[1], y[1]).transform(X[1])
    there = gdm.transform([X[1]], [1])[0]
    for k in range(3):
        assert np.corrcoef(again[:, k], there[:, k])[0, 1] > 0.97


def test_unlabelled_samples_and_a_missing_category_are_fine(study):
    X, y = study
    gdm = PaperGDM(3, energy=0.5).fit(X[:3], y[:3])
    labels = np.array(y[3], dtype=object)
    labels[labels == 2] = None
    assert gdm.fit_new_subject(X[3], labels).n_components == 3


def test_matrix_graphs_take_edges(study):
    X, y = study
    lengths = [len(x) for x in X[:3]]
    flat, new = np.concatenate(y[:3]), y[3]
    signs = np.where(flat[:, None] == flat[None, :], 1.0, -1.0)
    edges = np.where(new[:, None] == flat[None, :], 1.0, -1.0)
    by_matrix = PaperGDM(3, energy=0.5, graph=matrix_graph(signs, lengths)).fit(X[:3])
    by_labels = PaperGDM(3, energy=0.5).fit(X[:3], y[:3])
    a = by_matrix.fit_new_subject(X[3], edges=scipy.sparse.csr_array(edges))
    b = by_labels.fit_new_subject(X[3], y[3])
    # edges among the new samples themselves are all that differs
    first, second = a.transform(X[3])[:, 0], b.transform(X[3])[:, 0]
    assert np.corrcoef(first, second)[0, 1] ** 2 > 0.9
    with pytest.raises(InputError, match="pass edges"):
        by_matrix.fit_new_subject(X[3])
    with pytest.raises(InputError, match="new samples x aligning samples"):
        by_matrix.fit_new_subject(X[3], edges=edges[:, 1:])


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"y": lambda y: np.full_like(y, 9)}, "does not know: 9;"),
        ({"y": lambda y: y[:-1]}, "91 labels for 92 samples"),
        ({"y": lambda y: None}, "pass those of the new subject"),
        ({"y": lambda y: [None] * len(y)}, "No sample of the new subject has an edge"),
        ({"X": lambda X: X[:3]}, "3 samples of the new subject"),
        ({"X": lambda X: X * np.nan}, "NaN or infinite"),
    ],
)
def test_errors_say_what_to_do(study, change, message):
    X, y = study
    gdm = PaperGDM(3, energy=0.5).fit(X[:3], y[:3])
    new_X = change.get("X", lambda v: v)(X[3])
    new_y = change.get("y", lambda v: v)(y[3])
    with pytest.raises(InputError, match=message):
        gdm.fit_new_subject(new_X, new_y)


def test_too_few_dimensions_for_the_shared_features(study):
    X, y = study
    gdm = PaperGDM(3, energy=0.5).fit(X[:3], y[:3])
    with pytest.raises(InputError, match="fewer than the 3 shared features"):
        gdm.fit_new_subject(X[3][:3], y[3][:3])


# -- what the edges determine, and what they do not ------------------------------------


def uneven(rng, n_categories=4):
    """Unbalanced labels and unequal lengths, so that every count matters."""
    lengths = (40, 33, 52, 47)
    shares = np.arange(1, n_categories + 1) / sum(range(1, n_categories + 1))
    seen = [rng.choice(n_categories, size=n, p=shares) for n in lengths]
    return planted_study(rng, lengths, (60, 70, 80, 90), n_categories, labels=seen)


def test_the_objective_is_that_of_the_whole_graph(rng):
    """Its terms that hold new samples, written out over all pairs of samples."""
    X, y = uneven(rng)
    gdm = PaperGDM(3, energy=0.6).fit(X[:3], y[:3])
    new = gdm.fit_new_subject(X[3], y[3])
    before = np.concatenate([gdm._features(i) for i in range(3)])
    after = new.aligning_features()
    total = len(before) + len(after)
    labels = np.concatenate(y)
    G = np.where(labels[:, None] == labels[None, :], 1.0, -1.0)
    L, old = np.diag(G.sum(axis=1)) - G, len(before)
    within = np.trace(after.T @ L[old:, old:] @ after)
    across = 2 * np.trace(before.T @ L[:old, old:] @ after)
    expected = (within + across) / total
    assert_allclose(new.objective_history[-1], expected, rtol=1e-9)


def test_the_objective_with_edges(rng):
    X, y = uneven(rng)
    flat = np.concatenate(y[:3])
    signs = np.where(flat[:, None] == flat[None, :], 1.0, -1.0)
    edges = np.where(y[3][:, None] == flat[None, :], 1.0, -0.5)
    graph = matrix_graph(signs, [len(x) for x in X[:3]])
    gdm = PaperGDM(3, energy=0.6, graph=graph).fit(X[:3])
    new = gdm.fit_new_subject(X[3], edges=edges)
    before = np.concatenate([gdm._features(i) for i in range(3)])
    after = new.aligning_features()
    squares = (edges.sum(axis=1)[:, None] * after**2).sum()
    expected = (squares - 2 * ((edges @ before) * after).sum()) / (
        len(before) + len(after)
    )
    assert_allclose(new.objective_history[-1], expected, rtol=1e-9)


@pytest.mark.parametrize("seed", range(8))
def test_a_new_subject_who_lacks_a_category_is_stable(seed):
    """Rounding of its data and threads do not move it; undetermined parts are zero."""
    rng = np.random.default_rng(seed)
    X, y = planted_study(rng, (40, 44, 48, 41), (60, 70, 80, 90))
    keep = y[3] != 2
    mine, known = X[3][keep], y[3][keep]
    gdm = PaperGDM(3, energy=(0.5, 1.0)[seed % 2]).fit(X[:3], y[:3])
    with pytest.warns(UndeterminedWarning, match=r"determine 2 dim.* of 3 that are"):
        new = gdm.fit_new_subject(mine, known)
    assert new.n_undetermined == 1
    assert pickle.loads(pickle.dumps(new)).n_undetermined == 1
    features = new.aligning_features()
    values = np.linalg.svd(features, compute_uv=False)
    # unit variance along what is determined, nothing beside
    assert_allclose(values, np.sqrt(keep.sum()) * np.array([1, 1, 0]), atol=1e-10)
    others = (
        mine * (1 + 1e-12),
        mine * (1 + 1e-12 * rng.normal(size=mine.shape)),
        np.asfortranarray(mine),
    )
    for changed in others:
        with pytest.warns(UndeterminedWarning):
            again = gdm.fit_new_subject(changed, known)
        assert_allclose(again.aligning_features(), features, atol=1e-8)
    for threads in (1, 2):
        with threadpool_limits(threads), pytest.warns(UndeterminedWarning):
            again = gdm.fit_new_subject(mine, known)
        assert_allclose(again.aligning_features(), features, atol=1e-8)


def test_components_that_no_edge_informs_are_zero_without_a_warning(study):
    """The fit has told of them; the new subject lacks nothing."""
    X, y = study
    with pytest.warns(UniquenessWarning):
        gdm = PaperGDM(7, energy=0.5).fit(X[:3], [np.arange(len(x)) % 4 for x in X[:3]])
    new = gdm.fit_new_subject(X[3], y[3])
    assert gdm.n_informative_ == 3
    assert new.n_undetermined == 4
    assert np.linalg.matrix_rank(new.aligning_features(), tol=1e-8) == 3
    back = new.inverse_transform(new.transform(X[3]))
    assert np.isfinite(back).all()


def test_one_category_determines_nothing(study):
    X, y = study
    gdm = PaperGDM(3, energy=0.5).fit(X[:3], y[:3])
    same = np.zeros(len(X[3]), dtype=int)
    with pytest.raises(InputError, match=r"same for all its samples.*two categ"):
        gdm.fit_new_subject(X[3], same)


def test_a_descent_without_edges_stays_at_zero(rng):
    result = descend(np.eye(5), np.zeros((5, 2)))
    assert result.n_determined == 0
    assert not result.map.any()


def test_rows_stand_for_ids_only_where_the_fit_had_none(rng):
    X, _ = planted_study(rng)
    by_row = PaperGDM(3, energy=0.5, graph="time").fit(X[:2])
    rows = np.arange(36)
    assert_allclose(
        by_row.fit_new_subject(X[2]).aligning_features(),
        by_row.fit_new_subject(X[2], rows).aligning_features(),
    )
    with pytest.raises(InputError, match="pass those of the new subject's 30 samples"):
        by_row.fit_new_subject(X[2][:30])
    shuffled = [rng.permutation(36) for _ in range(2)]
    by_id = PaperGDM(3, energy=0.5, graph="time").fit(X[:2], shuffled)
    labelled = PaperGDM(2, energy=0.5).fit(X[:2], [rows % 36] * 2)
    for model in (by_id, labelled):
        with pytest.raises(InputError, match="pass those of the new subject"):
            model.fit_new_subject(X[2])


@pytest.mark.parametrize(
    "missing", [None, np.nan, pd.NaT, pd.NA, "", "n/a", np.datetime64("NaT")]
)
def test_every_way_to_say_unlabelled(study, missing):
    X, y = study
    gdm = PaperGDM(3, energy=0.5).fit(X[:3], y[:3])
    labels = np.array(y[3], dtype=object)
    labels[5] = None
    expected = gdm.fit_new_subject(X[3], labels).aligning_features()
    labels[5] = missing
    found = gdm.fit_new_subject(X[3], labels).aligning_features()
    assert_allclose(found, expected)


@pytest.mark.parametrize(
    ("y", "message"),
    [
        (
            lambda y: np.stack([y, y], axis=1),
            r"one label per sample; got shape \(92, 2",
        ),
        (lambda y: [[c] for c in y], "one label per sample, text or a number each"),
        (lambda y: [{"a": 1}, *y[1:]], "one label per sample.* got dict"),
    ],
)
def test_labels_that_are_no_list_of_labels(study, y, message):
    X, labels = study
    gdm = PaperGDM(3, energy=0.5).fit(X[:3], labels[:3])
    with pytest.raises(InputError, match=message):
        gdm.fit_new_subject(X[3], y(labels[3]))


@pytest.mark.parametrize("weak", [1e-2, 1e-6])
def test_weak_edges_determine_as_strong_ones_do(rng, weak):
    left = np.linalg.qr(rng.normal(size=(8, 3)))[0]
    right = np.linalg.qr(rng.normal(size=(3, 3)))[0]
    found = descend(np.zeros((8, 8)), (left * [1, 0.5, weak]) @ right.T)
    assert found.n_determined == 3
    assert_allclose(found.map, left @ right.T, atol=1e-8)


def test_a_descent_that_is_cut_short_says_how_far_it_came(rng):
    N, F = rng.normal(size=(8, 8)), rng.normal(size=(8, 2))
    cut, whole = (descend(N + N.T, F, max_iter=n) for n in (1, 1000))
    assert len(cut.history) == 2 < len(whole.history)
    assert whole.history[-1] < cut.history[-1]


def test_directions_that_only_rounding_determines_do_not_count(rng):
    F = rng.normal(size=(8, 2)) @ rng.normal(size=(2, 3))
    found = descend(np.eye(8), F)
    assert found.n_determined == 2
    assert np.linalg.matrix_rank(found.map) == 2


def test_a_new_subject_without_a_category_does_not_depend_on_the_last_bit():
    """Scaling its data by 1 + 1e-12 moved its features by 3.7."""
    study = simulate_study(
        n_subjects=6, categories=4, missing_categories=1, random_state=1
    )
    lacking = next(s for s in study if len(set(s.labels)) == 3)
    others = [s for s in study if s is not lacking]
    gdm = GDM(3).fit([s.data() for s in others], [s.labels for s in others])
    data = lacking.data().astype(np.float64)
    with pytest.warns(UndeterminedWarning, match="features are zero in the others"):
        once = gdm.fit_new_subject(data, lacking.labels)
    with pytest.warns(UndeterminedWarning):
        again = gdm.fit_new_subject(data * (1 + 1e-12), lacking.labels)
    assert once.n_undetermined == 1
    np.testing.assert_allclose(again.transform(data), once.transform(data), atol=1e-8)
