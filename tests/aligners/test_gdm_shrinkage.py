"""GDM with shrinkage: the class gives what the closed form, and the dense one, give."""

import pickle
import warnings
from functools import partial

import numpy as np
import pytest
from numpy.testing import assert_allclose
from sklearn.base import clone

from brainweave import (
    GDM,
    PaperGDM,
    Parcelwise,
    Study,
    Subject,
    affinity_graph,
    alignment_check,
    between_subject_classification,
    label_graph,
    load,
    matrix_graph,
    save,
    time_graph,
)
from brainweave._core.exceptions import (
    AlignmentWarning,
    InputError,
    SeparateSubjectsWarning,
    UndeterminedWarning,
    UniquenessWarning,
)
from brainweave.aligners.gdm.graph_parsing import labels_and_ids, y_for_graph
from brainweave.basis.basis import SubjectBasis
from brainweave.graphs.builders import equal_group_weights, weigh_groups
from planted import planted_study
from sizes import few_or_many

RHO = 0.3


@pytest.fixture
def study(rng):
    return planted_study(rng, lengths=(30, 41, 36), n_categories=4)


def dense(bases, graph, rhos, k):
    """The generalised eigenproblem of the model, over mixings of all samples."""
    grams = [b.gram for b in bases]
    n = sum(map(len, grams))
    left, right = np.zeros((n, n)), np.zeros((n, n))
    start = 0
    for K, rho in zip(grams, rhos, strict=True):
        rows = slice(start, start + len(K))
        g = rho * np.trace(K) / len(K)
        left[rows, rows] = K
        right[rows, rows] = K @ (K + g * np.eye(len(K)))
        start += len(K)
    # in the range of the Gram matrices, where the right side has an inverse
    values, vectors = np.linalg.eigh((right + right.T) / 2)
    keep = values > 1e-10 * values[-1]
    root = vectors[:, keep] / np.sqrt(values[keep])
    M = root.T @ left @ graph.to_sparse().toarray() @ left @ root
    mu, q = np.linalg.eigh((M + M.T) / 2)
    return mu[::-1][:k], left @ root @ q[:, ::-1][:, :k]


def graphs_of(y, rng):
    ids = [np.arange(len(known)) for known in y]
    names = sorted(set(np.concatenate(y).tolist()))
    A = rng.normal(size=(len(names), len(names)))
    table = A + A.T + 4 * np.eye(len(names))
    n = sum(map(len, y))
    W = rng.normal(size=(n, n))
    return {
        "labels": "labels",
        "time": time_graph(ids, balance="subjects"),
        "sum": label_graph(y, different=0, balance="groups")
        + 0.5 * time_graph(ids, balance="subjects"),
        "negative": affinity_graph(y, table, balance="groups"),
        "paper's": label_graph(y),
        "matrix": matrix_graph((W + W.T) / 2, [len(known) for known in y]),
    }


@pytest.mark.parametrize("kernel", ["linear", "gaussian", "quadratic", "sigmoid"])
@pytest.mark.parametrize(
    "kind", ["labels", "time", "sum", "negative", "paper's", "matrix"]
)
@pytest.mark.filterwarnings("ignore::brainweave._core.exceptions.KernelWarning")
def test_the_fit_is_the_dense_problem(study, rng, kind, kernel):
    X, y = study
    params = None if kernel == "linear" else {"hp": 200.0}
    gdm = GDM(
        3,
        shrinkage=RHO,
        kernel=kernel,
        kernel_params=params,
        graph=graphs_of(y, rng)[kind],
        scale="unit",
    ).fit(X, y)
    if kernel == "sigmoid":  # what is negative of it is set to zero
        for b in gdm.bases_:
            b.gram[:] = b.cut(1.0).coordinates @ b.cut(1.0).coordinates.T
    mu, features = dense(gdm.bases_, gdm.graph_, [RHO] * 3, 3)
    assert_allclose(gdm.eigenvalues_, mu, rtol=1e-8)
    # all subjects as large as their targets, and every feature of spread 1 over them
    G = gdm.graph_.to_sparse().toarray()
    expected, squares = [], 0.0
    for rows in gdm.graph_.slices():
        own, linked = features[rows], G[rows].any(axis=1)
        target = G[rows] @ features / mu
        target = (target - target.mean(axis=0))[linked]
        size = np.linalg.norm(target * mu) / np.linalg.norm(own[linked] * mu)
        expected.append(size * own)
        squares += (expected[-1][linked] ** 2).mean(axis=0) / 3
    signs = np.sign((gdm._features(0) * expected[0]).sum(axis=0))
    for i, own in enumerate(expected):
        assert_allclose(gdm._features(i), signs * own / np.sqrt(squares), atol=1e-7)


def test_without_a_ridge_it_is_the_papers_model_where_degrees_are_equal(rng):
    X, _ = planted_study(rng, lengths=(30, 30, 30), voxels=(60, 70, 80))
    ids = [np.arange(30)] * 3
    ours = GDM(4, shrinkage=1e-8, graph="time", scale="unit", constraint="global").fit(
        X, ids
    )
    paper = PaperGDM(4, energy=1.0, graph=time_graph(ids, balance="subjects"))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UniquenessWarning)  # all have eigenvalue 0
        paper.fit(X)
    assert_allclose(1 - ours.eigenvalues_, paper.eigenvalues_, atol=1e-6)


def test_defaults_shrink_and_choose_for_themselves(study):
    X, y = study
    gdm = GDM().fit(X, y)
    assert gdm.n_components_ == 3
    assert gdm.shrinkage_by_ == "blocks"
    assert gdm.n_informative_ == 3
    assert gdm.is_unique_
    assert (np.diff(gdm.eigenvalues_) < 0).all()
    spread = np.sqrt(np.mean([gdm._features(i).var(axis=0) for i in range(3)], axis=0))
    assert_allclose(spread, gdm.eigenvalues_ / gdm.eigenvalues_[0])
    assert alignment_check(gdm).worked
    table = gdm.component_summary()
    assert table["informative"].all()
    assert ((table.filter(like="variance") > 0) & (table.filter(like="var") < 1)).all(
        axis=None
    )


def test_the_papers_model_is_a_class_of_its_own(study):
    X, y = study
    with pytest.warns(UniquenessWarning):
        assert PaperGDM().fit(X, y).n_components_ == 10
    paper = PaperGDM(3).fit(X, y)
    assert not hasattr(paper, "shrinkage_")
    assert not hasattr(paper, "mixing_")
    assert paper.graph_.groups[0].affinity.min() == -1
    for name in ("energy",):
        with pytest.raises(TypeError, match=rf"the paper's model is PaperGDM\({name}="):
            GDM(3, **{name: 0.82})


def test_no_more_components_than_the_graph_informs(study):
    X, y = study
    with pytest.warns(UniquenessWarning, match="the graph informs 3 components"):
        assert GDM(10).fit(X, y).n_components_ == 3


@pytest.mark.parametrize("model", [partial(GDM, shrinkage=RHO), PaperGDM])
@pytest.mark.parametrize("n_categories", [2, 4])
def test_components_are_chosen_whatever_the_graph_is_made_of(rng, model, n_categories):
    X, y = planted_study(rng, (36, 42, 40), n_categories=n_categories)
    groups = label_graph(y, different=0)
    by_groups = model("auto", graph=groups).fit(X)
    by_matrix = model("auto", graph=groups.to_sparse()).fit(X)
    assert by_groups.n_components_ == n_categories - 1
    # samples of a matrix have no labels to hold out: all that the edges inform
    assert by_matrix.n_components_ == by_matrix.n_informative_
    shared = slice(n_categories - 1)
    assert_allclose(by_matrix.eigenvalues_[shared], by_groups.eigenvalues_, rtol=1e-8)


def test_edges_within_subjects_alone_share_nothing_and_this_is_told(rng):
    """Wide and narrow data: the dimensions are samples less one, or voxels."""
    X, y = planted_study(rng, (20, 30), (70, 12))
    within = np.zeros((50, 50))
    for rows, labels in ((slice(20), y[0]), (slice(20, 50), y[1])):
        within[rows, rows] = labels[:, None] == labels
    within[0, -1] = within[-1, 0] = 1e-6  # hardly a tie
    with pytest.warns(SeparateSubjectsWarning, match="of 31 dimensions"):
        gdm = GDM(4, graph=within, shrinkage=RHO).fit(X)
    assert gdm.overlap_ < 1e-3


@pytest.mark.parametrize(("k", "advises"), [(2, True), ("auto", False)])
def test_auto_is_not_advised_to_those_who_use_it(study, monkeypatch, k, advises):
    monkeypatch.setattr("brainweave.aligners.gdm.base.LEAST_OVERLAP", 2)
    with pytest.warns(SeparateSubjectsWarning) as said:
        GDM(k).fit(*study)
    text = " ".join(str(warning.message) for warning in said)
    assert ("n_components='auto'" in text) == advises


def test_what_cannot_be_checked_is_kept(rng):
    X = [rng.normal(size=(4, 9)) for _ in range(3)]
    gdm = GDM("auto", graph="time").fit(X)
    assert not alignment_check(gdm).available
    assert gdm.n_components_ == gdm.n_informative_ == 3


def test_groups_that_link_nobody_play_no_part(rng):
    X, y = planted_study(rng, lengths=(40, 40, 40), n_categories=4)
    y = [np.asarray(known, object) for known in y]
    y[0] = np.where(y[0] == 3, "mine", y[0])
    y[1], y[2] = (np.where(known == 3, None, known) for known in y[1:])
    gdm = GDM(2, shrinkage=RHO).fit(X, y)
    mine = gdm.graph_.groups[0].names.index("mine")
    assert not gdm.graph_.groups[0].affinity[mine].any()
    unlabelled = [np.where(known == "mine", None, known) for known in y]
    same = GDM(2, shrinkage=RHO).fit(X, unlabelled)
    assert_allclose(gdm.transform(X)[1], same.transform(X)[1], atol=1e-10)


def test_groups_that_count_alike():
    ids = [[0, 1, 2], [1, 2, 3], [1, 2, 3]]
    start = time_graph(ids, balance="subjects")
    alike = equal_group_weights(start).groups[0]
    shares = alike.affinity.diagonal() * alike.counts
    assert_allclose(shares[1:], shares[1])
    assert shares[0] == 0  # one subject alone
    labels = weigh_groups(label_graph([["a", "a", "b"], ["a", "b", "b"]]), "groups")
    diagonal = label_graph(
        [["a", "a", "b"], ["a", "b", "b"]], different=0, balance="groups"
    )
    assert equal_group_weights(labels) == labels
    assert_allclose(
        equal_group_weights(diagonal).groups[0].affinity, diagonal.groups[0].affinity
    )


@pytest.mark.parametrize("constraint", ["global", "subject"])
def test_a_subject_of_the_fit_joins_as_itself(study, constraint):
    X, y = study
    gdm = GDM(3, shrinkage=RHO, constraint=constraint).fit(X, y)
    for i in range(3):
        new = gdm.fit_new_subject(X[i], y[i])
        assert_allclose(new.transform(X[i]), gdm.transform([X[i]], [i])[0], atol=1e-9)
        assert new.n_undetermined == 0


def test_a_new_subject_is_brute_force_regression(study):
    X, y = study
    gdm = GDM(3, shrinkage=RHO, scale="unit").fit(X[:2], y[:2])
    new = gdm.fit_new_subject(X[2], y[2])
    term = gdm.graph_.groups[0]
    scores = term.affinity @ gdm.group_sums_[0]
    K = SubjectBasis(X[2]).gram
    g = RHO * np.trace(K) / len(K)
    target = scores[[term.names.index(label) for label in y[2]]]
    features = K @ np.linalg.solve(K + g * np.eye(len(K)), target - target.mean(axis=0))
    mu = gdm.eigenvalues_
    sizes = [np.linalg.norm(mu * of.std(axis=0)) for of in (target, features)]
    features *= gdm.scale_ * sizes[0] / sizes[1]
    assert_allclose(new.aligning_features(), features, atol=1e-9)


def test_a_new_subject_who_lacks_a_category_is_told(study, tmp_path):
    X, y = study
    gdm = GDM(3, shrinkage=RHO).fit(X[:2], y[:2])
    keep = np.asarray(y[2]) != y[2][0]
    with pytest.warns(UndeterminedWarning, match=r"determine 2 dim.* of 3"):
        new = gdm.fit_new_subject(X[2][keep], y[2][keep])
    assert new.n_undetermined == 1
    values = np.linalg.svd(new.aligning_features(), compute_uv=False)
    assert values[-1] < 1e-9 * values[0]
    gdm.maps_ = [*gdm.maps_, new]  # as the command line adds a subject
    gdm.n_subjects_ = 3
    del gdm.bases_
    save(gdm, tmp_path / "m.safetensors")
    assert load(tmp_path / "m.safetensors").maps_[2].n_undetermined == 1
    with pytest.raises(InputError, match="at least two categories"):
        gdm.fit_new_subject(X[2], [y[2][0]] * len(y[2]))


def test_edges_of_a_new_subject_where_the_graph_is_a_matrix(study):
    X, y = study
    graph = label_graph(y[:2], different=0, balance="groups")
    by_label = GDM(3, shrinkage=RHO, graph=graph).fit(X[:2])
    by_edges = GDM(3, shrinkage=RHO, graph=graph.to_sparse()).fit(X[:2])
    assert_allclose(by_edges.eigenvalues_, by_label.eigenvalues_, rtol=1e-8)
    joined = np.concatenate(y[:2])
    term = graph.groups[0]
    weights = np.array(
        [
            [
                a == b and term.affinity[term.names.index(a), term.names.index(a)]
                for b in joined
            ]
            for a in y[2]
        ],
        dtype=float,
    )
    one = by_label.fit_new_subject(X[2], y[2]).transform(X[2])
    other = by_edges.fit_new_subject(X[2], edges=weights).transform(X[2])
    signs = np.sign((one * other).sum(axis=0))
    assert_allclose(other * signs, one, atol=1e-6)


@pytest.mark.parametrize("kernel", ["linear", "gaussian"])
@pytest.mark.parametrize("constraint", ["global", "subject"])
def test_it_comes_back_from_files_and_pickles(study, tmp_path, kernel, constraint):
    X, y = study
    params = None if kernel == "linear" else {"hp": 200.0}
    gdm = GDM(kernel=kernel, kernel_params=params, constraint=constraint).fit(X, y)
    save(gdm, tmp_path / "m.safetensors")
    for other in (load(tmp_path / "m.safetensors"), pickle.loads(pickle.dumps(gdm))):
        assert other.get_params() == gdm.get_params()
        assert other.shrinkage_ == gdm.shrinkage_
        assert_allclose(other.transform(X)[2], gdm.transform(X)[2], atol=1e-10)
        new, expected = (m.fit_new_subject(X[0], y[0]) for m in (other, gdm))
        assert_allclose(new.transform(X[0]), expected.transform(X[0]), atol=1e-10)
    assert clone(gdm).get_params() == gdm.get_params()


def test_fewer_voxels_than_samples(rng):
    X, y = planted_study(rng, lengths=(50, 60, 55), voxels=(20, 25, 30))
    narrow = GDM(2, shrinkage=RHO).fit(X, y)
    grams = [SubjectBasis(x).gram for x in X]
    wide = GDM(2, shrinkage=RHO, kernel="precomputed").fit(grams, y)
    assert_allclose(narrow.eigenvalues_, wide.eigenvalues_, rtol=1e-9)
    assert_allclose(narrow._features(0), wide._features(0), atol=1e-8)


@pytest.mark.parametrize(
    ("params", "message"),
    [
        ({"shrinkage": "much"}, "shrinkage of GDM must be a number"),
        ({"shrinkage": 0}, "shrinkage of GDM must be > 0"),
        ({"shrinkage": [0.1, 0.2]}, "shrinkage of GDM must be a number > 0"),
        ({"constraint": "none"}, "constraint of GDM must be one of"),
        ({"scale": 2}, "scale of GDM must be one of"),
        ({"graph": "labels+times"}, "graph of GDM must be one of"),
        ({"constraint": "subject", "graph": label_graph}, "constraint='subject' of"),
    ],
)
def test_wrong_parameters_are_told(study, params, message):
    X, y = study
    with pytest.raises((InputError, TypeError), match=message):
        GDM(2, **params).fit(X, y)


# -- labels and time together ----------------------------------------------------------


def test_labels_and_ids_come_as_two_columns(rng):
    X, y = planted_study(rng, lengths=(36, 36, 36))
    ids = [rng.permutation(36) for _ in X]
    both = [labels_and_ids(known, own) for known, own in zip(y, ids, strict=True)]
    gdm = GDM(4, shrinkage=RHO, graph="labels+time").fit(X, both)
    graph = label_graph(y, different=0, balance="groups") + time_graph(
        ids, balance="subjects"
    )
    same = GDM(4, shrinkage=RHO, graph=graph).fit(X)
    assert_allclose(gdm.transform(X)[1], same.transform(X)[1], atol=1e-10)
    new = gdm.fit_new_subject(X[0], both[0])
    assert_allclose(new.transform(X[0]), gdm.transform([X[0]], [0])[0], atol=1e-9)
    people = [
        Subject(f"s{i}", x, labels=known, stimuli=own)
        for i, (x, known, own) in enumerate(zip(X, y, ids, strict=True))
    ]
    known = GDM(4, shrinkage=RHO, graph="labels+time").fit(Study(people, "a study"))
    assert_allclose(known.transform(X)[1], gdm.transform(X)[1], atol=1e-10)
    joined = known.fit_new_subject(people[2])
    assert_allclose(joined.transform(X[2]), gdm.transform([X[2]], [2])[0], atol=1e-9)


def test_a_graph_takes_of_a_subject_what_it_needs():
    both = Subject("1", np.eye(2), labels=["a", "b"], stimuli=[7, 9])
    labelled = Subject("1", np.eye(2), labels=["a", "b"])
    assert list(y_for_graph(both, "labels")) == ["a", "b"]
    assert list(y_for_graph(both, "time")) == [7, 9]
    assert y_for_graph(both, "labels+time").tolist() == [["a", 7], ["b", 9]]
    assert list(y_for_graph(labelled, "labels+time")) == ["a", "b"]
    assert y_for_graph(labelled, "time") is None
    assert y_for_graph(Subject("1", np.eye(2), stimuli=[7, 9]), "labels+time") is None
    assert list(y_for_graph(both, label_graph)) == ["a", "b"]


def test_rows_are_ids_where_all_show_the_same(rng):
    y = np.arange(36) % 3
    X, _ = planted_study(rng, lengths=(36,) * 3, labels=[y] * 3)
    gdm = GDM(4, shrinkage=RHO, graph="labels+time").fit(X, [y] * 3)
    assert gdm.joined_by_row_
    same = GDM(4, shrinkage=RHO, graph="labels+time")
    same.fit(X, [labels_and_ids(y, range(36))] * 3)
    assert_allclose(gdm.transform(X)[0], same.transform(X)[0], atol=1e-10)
    new = gdm.fit_new_subject(X[0], y)
    assert_allclose(new.transform(X[0]), gdm.transform([X[0]], [0])[0], atol=1e-9)
    with pytest.raises(InputError, match="unless all subjects have the same"):
        GDM(4, graph="labels+time").fit(X, [y, y[::-1], y])
    with pytest.raises(InputError, match="pass both"):
        same.fit_new_subject(X[0], y)
    with pytest.raises(InputError, match="two columns"):
        GDM(4, graph="labels+time").fit(X, [np.tile(y[:, None], 3)] * 3)


@pytest.mark.parametrize("protocol", ["joint", "held-out"])
def test_a_study_is_scored_by_labels_and_time(rng, protocol):
    X, y = planted_study(rng, lengths=(36,) * 4, voxels=(60, 70, 80, 65))
    ids = [rng.permutation(36) for _ in X]
    people = [
        Subject(f"s{i}", x, labels=known, stimuli=own)
        for i, (x, known, own) in enumerate(zip(X, y, ids, strict=True))
    ]
    result = between_subject_classification(
        GDM(4, graph="labels+time"), Study(people, "a study"), protocol=protocol
    )
    assert result.mean > 0.6


# -- it finds nothing where there is nothing -------------------------------------------


@pytest.mark.parametrize("protocol", ["joint", "held-out"])
@pytest.mark.parametrize("constraint", ["global", "subject"])
@pytest.mark.parametrize("n", few_or_many(2, 6))
def test_noise_is_at_chance(n, protocol, constraint):
    """The mean of several studies; 0.25 by guessing."""
    means = []
    for seed in range(n):
        rng = np.random.default_rng(seed)
        y = [rng.permutation(np.arange(48) % 4) for _ in range(4)]
        X = [rng.normal(size=(48, 60)) for _ in y]
        gdm = GDM(3, constraint=constraint)
        result = between_subject_classification(gdm, X, y, protocol=protocol)
        means.append(result.mean)
    assert abs(np.mean(means) - 0.25) < 3 * 0.035  # 4 x 48 answers in each study


def test_of_noise_all_that_the_graph_informs_is_kept_with_a_warning(rng):
    y = [rng.permutation(np.arange(48) % 4) for _ in range(4)]
    X = [rng.normal(size=(48, 60)) for _ in y]
    with pytest.warns(AlignmentWarning, match="keeps 3, since their number"):
        assert GDM().fit(X, y).n_components_ == 3
    with pytest.warns(AlignmentWarning, match="keeps 10, since their number"):
        assert GDM(graph="time").fit(X).n_components_ == 10


def test_parcels_take_it(rng):
    X, y = planted_study(rng, voxels=(60, 60, 60))
    parcels = [1 + np.arange(60) // 30] * 3
    whole = Parcelwise(GDM(2), parcels=parcels).fit(X, y)
    assert whole.n_components_ == 4


def test_graphs_by_name_are_those_of_the_graph_functions(study):
    X, y = study
    rows = [list(y[0])] * 3
    X = [x[:30] for x in X]
    sizes = label_graph(rows, different=0, balance="groups")
    ids = time_graph([range(30)] * 3, balance="subjects")
    for name, graph in {"labels": sizes, "labels+time": sizes + ids}.items():
        named = GDM(3, shrinkage=RHO, graph=name).fit(X, rows)
        made = GDM(3, shrinkage=RHO, graph=graph, constraint=named.constraint_).fit(X)
        assert_allclose(named.eigenvalues_, made.eigenvalues_, rtol=1e-12)
        # halves of the samples have weights already, which are not divided again
        ours, theirs = alignment_check(named), alignment_check(made)
        assert_allclose(ours.agreement_cv, theirs.agreement_cv, atol=1e-9)
