"""Block PRESS equals refits without the block; the fallbacks equal scikit-learn."""

import joblib
import numpy as np
import pytest
from numpy.testing import assert_allclose
from sklearn.covariance import ledoit_wolf, ledoit_wolf_shrinkage
from sklearn.linear_model import Ridge

from brainweave import GDM, Parcelwise, Study, Subject, SubjectBasis, load, save
from brainweave._core.exceptions import InputError
from brainweave._core.labels import encode_labels
from brainweave.aligners.gdm.smoother import (
    GramSmoother,
    NarrowSmoother,
    mean_eigenvalue,
)
from brainweave.aligners.gdm.strength import (
    GRID,
    block_criterion,
    covariance_shrinkage,
    covariance_strength,
    group_contrasts,
    leave_out_blocks,
    search_grid,
    smoother_of,
)
from brainweave.evaluation.evaluate import align_folds
from brainweave.evaluation.splits import split_study
from brainweave.graphs.builders import NO_GROUP
from planted import planted_study


def centred(x):
    return x - x.mean(axis=0)


def criterion(grams, codes, runs=None, **options):
    """The mean over subjects."""
    runs = [None] * len(grams) if runs is None else runs
    each = zip(grams, codes, runs, strict=True)
    return np.mean(
        [block_criterion(GramSmoother(g, **options), c, runs=r) for g, c, r in each],
        axis=0,
    )


@pytest.mark.parametrize("rho", [GRID[0], 0.1, GRID[-1]])
@pytest.mark.parametrize("voxels", [15, 80])
def test_predictions_are_those_of_refits_without_the_block(rng, rho, voxels):
    x = centred(rng.normal(size=(30, voxels)))
    codes, blocks = rng.integers(3, size=30), np.repeat(np.arange(5), 6)
    gram, Q = x @ x.T, group_contrasts(codes)
    g = rho * mean_eigenvalue(gram)
    for smoother in (GramSmoother(gram, g), NarrowSmoother(x, g)):
        ours = smoother.leave_out(Q, blocks)
        for b in range(5):
            out = blocks == b
            # the intercept is refitted too: nothing of the block is left in
            refit = Ridge(alpha=g, solver="svd").fit(x[~out], Q[~out])
            assert_allclose(ours[out], refit.predict(x[out]), atol=1e-8)


def test_the_best_value_is_the_one_that_predicts_best(rng):
    X, y = planted_study(rng, (40, 40), (60, 70), noise=2)
    runs = [np.arange(40) // 10] * 2
    grams = [centred(x) @ centred(x).T for x in X]
    criteria = [
        block_criterion(GramSmoother(gram), own, runs=r)
        for gram, own, r in zip(grams, y, runs, strict=True)
    ]
    brute = np.zeros(len(GRID))
    for x, codes, gram in zip(X, y, grams, strict=True):
        Q = group_contrasts(codes)
        for r, rho in enumerate(GRID):
            P = np.empty_like(Q)
            for b in range(4):
                out = runs[0] == b
                ridge = Ridge(alpha=rho * mean_eigenvalue(gram), solver="svd")
                P[out] = ridge.fit(centred(x)[~out], Q[~out]).predict(
                    x[out] - x.mean(0)
                )
            brute[r] += np.corrcoef(P.ravel(), Q.ravel())[0, 1] / 2
    assert_allclose(np.mean(criteria, axis=0), brute, atol=1e-8)


def test_more_noise_asks_for_more_shrinkage(rng):
    def rho(noise):
        X, y = planted_study(rng, (60, 60), (150, 150), noise=noise)
        grams = [centred(x) @ centred(x).T for x in X]
        return GRID[criterion(grams, y).argmax()]

    assert rho(0.2) < rho(8)


def test_unlabelled_samples_take_no_part(rng):
    X, y = planted_study(rng, (40, 40), (60, 70))
    some = [np.where(np.arange(40) < 30, codes, NO_GROUP) for codes in y]
    whole = criterion([centred(x) @ centred(x).T for x in X], some)
    cut = criterion(
        [centred(x[:30]) @ centred(x[:30]).T for x in X], [codes[:30] for codes in y]
    )
    assert_allclose(whole, cut, atol=1e-9)


def test_an_indefinite_kernel_is_taken_by_its_positive_part(rng):
    X, y = planted_study(rng, (40,), (60,))
    gram = centred(X[0]) @ centred(X[0]).T
    values, V = np.linalg.eigh(gram)
    values[1:4] = -0.5 * values.mean()
    bad = (V * values) @ V.T
    with pytest.raises(InputError, match="negative eigenvalues"):
        criterion([bad], y)
    clipped = (V * np.maximum(values, 0)) @ V.T
    whole = smoother_of(SubjectBasis(bad, kernel="precomputed"), 1.0)
    assert_allclose(block_criterion(whole, y[0]), criterion([clipped], y), atol=1e-9)


def test_runs_are_the_blocks_where_there_are_runs():
    codes = np.tile([0, 1], 6)
    runs = np.repeat([0, 1, 2], 4)
    assert leave_out_blocks(codes, runs).tolist() == runs.tolist()
    by_group = leave_out_blocks(codes)
    for group in (0, 1):
        assert np.unique(by_group[codes == group]).size == 4
    # one run holds each category alone: no run can be predicted from the others
    alone = leave_out_blocks(np.repeat([0, 1], 6), np.repeat([0, 1], 6))
    assert np.unique(alone).size == 4


def test_nothing_repeats_in_a_movie_seen_once(rng):
    x = centred(rng.normal(size=(30, 50)))
    assert leave_out_blocks(np.arange(30)) is None
    assert leave_out_blocks(np.zeros(0, int)) is None  # nobody knows a label
    assert block_criterion(GramSmoother(x @ x.T), np.arange(30)) is None
    assert block_criterion(GramSmoother(x @ x.T), np.full(30, NO_GROUP)) is None


@pytest.mark.parametrize("shape", [(40, 12), (25, 90)])
def test_covariance_shrinkage_is_that_of_scikit_learn(rng, shape):
    x = centred(rng.normal(size=shape) * rng.uniform(0.5, 3, size=shape[1]))
    gram = x @ x.T
    v = shape[1]
    delta = ledoit_wolf_shrinkage(x, assume_centered=True)
    assert_allclose(covariance_shrinkage(gram, v), delta)
    if v < len(x):  # the samples alone will do
        assert_allclose(covariance_shrinkage(x, v), delta)
    # the ridge has the eigenvectors and relative eigenvalues of the shrunk covariance
    rho = covariance_strength([gram], [v])
    ridged = x.T @ x + rho * mean_eigenvalue(gram) * np.eye(v)
    shrunk = ledoit_wolf(x, assume_centered=True)[0]
    assert_allclose(ridged / np.trace(ridged), shrunk / np.trace(shrunk), atol=1e-12)


def test_a_covariance_that_shrinking_leaves_as_it_is_decides_nothing(rng):
    x = centred(rng.normal(size=(40, 90)))
    alone = covariance_strength([x @ x.T], [90])
    square = np.linalg.qr(centred(rng.normal(size=(40, 5))))[0]  # all alike, apart
    for factor in 10.0 ** rng.uniform(-3, 3, size=20):  # rounding falls either way
        one = factor * centred(rng.normal(size=(40, 1)))
        for silent in (one, factor * square):
            grams, voxels = [x @ x.T, silent @ silent.T], [90, silent.shape[1]]
            assert covariance_strength(grams, voxels) == alone
            assert covariance_strength(grams[1:], voxels[1:]) == GRID[0]


def test_a_subject_of_one_voxel_does_not_set_the_ridge_of_all(rng):
    X = [rng.normal(size=(40, v)) for v in (60, 70, 1)]
    how = {"graph": "time", "shrinkage": "ledoit-wolf"}
    gdm = GDM(1, **how).fit(X)
    assert gdm.shrinkage_by_ == "ledoit-wolf"
    assert_allclose(gdm.shrinkage_, GDM(1, **how).fit(X[:2]).shrinkage_)


def test_many_subjects_are_not_all_asked(rng, monkeypatch):
    from brainweave import label_graph
    from brainweave.aligners.gdm import strength

    X, y = planted_study(rng, (12,) * 6, (20,) * 6)
    bases, asked = [SubjectBasis(x) for x in X], []
    whole = strength._criterion_at

    def counted(part, rhos):
        asked.append(part[0])
        return whole(part, rhos)

    monkeypatch.setattr(strength, "_criterion_at", counted)
    monkeypatch.setattr(strength, "MOST_SUBJECTS", 3)
    _, how = strength.choose_strength(
        "auto", bases, label_graph(y), n_jobs=1, owner="GDM"
    )
    assert {bases.index(b) for b in asked} == {0, 2, 5}
    assert how == "blocks"


def test_the_search_finds_what_all_values_would(rng):
    asked = []
    for noise in (0.1, 0.5, 1, 2, 4, 8, 16):
        X, y = planted_study(rng, (40, 40), (60, 70), noise=noise)
        grams = [centred(x) @ centred(x).T for x in X]
        values = criterion(grams, y)

        def means(places, values=values):
            asked.extend(places)
            return values[places].tolist()

        assert values[search_grid(means)] >= values.max() - 1e-3
    assert len(asked) <= 7 * 8


@pytest.mark.parametrize("summit", range(len(GRID)))
def test_the_search_finds_a_summit_at_every_place_of_the_grid(summit):
    assert search_grid(lambda places: [-abs(i - summit) for i in places]) == summit


@pytest.mark.parametrize("rho", [0, 0.0, -1, np.inf, np.nan, True])
def test_a_strength_that_is_none_is_refused(rng, rho):
    X, y = planted_study(rng, (12, 12), (20, 20))
    with pytest.raises(
        (InputError, TypeError), match=r"shrinkage of GDM must be .*> 0"
    ):
        GDM(2, shrinkage=rho).fit(X, y)


def test_a_kernel_without_voxels_has_as_many_as_samples_allow(rng):
    x = centred(rng.normal(size=(25, 90)))
    gram = x @ x.T
    assert covariance_strength([gram], [None]) == covariance_strength([gram], [24])


# -- runs, from a study to the strength ------------------------------------------------


def with_runs(rng, n_runs=6, lengths=(48, 48, 48)):
    """A study whose categories look different in every run; rows mix the runs."""
    X, y = planted_study(rng, lengths, (60, 70, 80), noise=2)
    names = np.array(list("cabfde"))
    subjects = []
    for i, (x, labels) in enumerate(zip(X, y, strict=True)):
        runs = rng.permutation(len(x)) % n_runs
        own = rng.normal(size=(n_runs, 4, x.shape[1]))
        x = x + 4 * own[runs, labels]
        subjects.append(Subject(f"s{i}", x, labels=labels, runs=names[runs]))
    return Study(subjects)


def by_hand(study):
    """Leave-one-run-out by every subject's samples alone."""
    criteria = []
    for subject in study:
        x = centred(subject.data())
        x = x / x.std(axis=0)
        codes, runs = (encode_labels([v])[0][0] for v in (subject.labels, subject.runs))
        criteria.append(block_criterion(GramSmoother(x @ x.T), codes, runs=runs))
    return GRID[np.mean(criteria, axis=0).argmax()]


def test_a_study_brings_its_runs(rng, tmp_path):
    study = with_runs(rng)
    bare = Study(Subject(s.id, s.data(), labels=s.labels) for s in study)
    gdm, without = GDM().fit(study), GDM().fit(bare)
    assert (gdm.shrinkage_by_, without.shrinkage_by_) == ("runs", "blocks")
    assert gdm.shrinkage_ == by_hand(study)
    assert without.shrinkage_ != gdm.shrinkage_  # or this would show nothing
    # the same bases, with what was found for other blocks kept
    again = GDM(2).fit(gdm.bases_, [s.labels for s in study])
    assert again.shrinkage_by_ == "runs"
    for basis in gdm.bases_:
        basis.runs = None
    assert (
        GDM().fit(gdm.bases_, [s.labels for s in study]).shrinkage_
        == without.shrinkage_
    )
    save(gdm, tmp_path / "m.safetensors")
    assert load(tmp_path / "m.safetensors").shrinkage_by_ == "runs"
    # in pieces of the brain
    parcels = [np.arange(s.n_voxels) % 2 + 1 for s in study]
    pieces = Parcelwise(GDM(2), parcels).fit(study)
    assert [a.shrinkage_by_ for a in pieces.aligners_] == ["runs"] * 2
    # and one subject without runs: all are asked, not all by runs
    mixed = Study([*study.subjects[:2], bare.subjects[2]])
    assert GDM().fit(mixed).shrinkage_by_ == "blocks"


@pytest.mark.parametrize("protocol", ["joint", "held-out"])
@pytest.mark.parametrize(
    "design", [{"halves": "run"}, {"halves": "category", "match": "truncate"}, "align"]
)
def test_evaluations_leave_out_runs_of_the_aligning_samples(rng, protocol, design):
    study = with_runs(rng)
    if design == "align":
        first, second = study.split_halves("run")
        split = split_study(first, align=[second])
    else:
        split = split_study(study, **design)
    parcels = [np.arange(s.n_voxels) % 2 + 1 for s in study]
    for batch in align_folds(GDM(2), split, protocol=protocol):
        for fold in batch:
            aligning = split.splits[fold.half].aligning
            who = fold.train if protocol == "held-out" else range(len(study))
            own = Study(aligning.subjects[i] for i in who)
            assert fold.aligner.shrinkage_by_ == "runs"
            assert fold.aligner.shrinkage_ == by_hand(own)
    for batch in align_folds(Parcelwise(GDM(2), parcels), split, protocol=protocol):
        assert [a.shrinkage_by_ for a in batch[0].aligner.aligners_] == ["runs"] * 2


@pytest.mark.slow
def test_runs_reach_other_processes(rng):
    split = split_study(with_runs(rng), halves="run")
    found = []
    for options in ({}, {"backend": "loky", "n_jobs": 2}):
        with joblib.parallel_config(**options):
            (first, *_), *_ = align_folds(GDM(2), split)
        found.append((first.aligner.shrinkage_, first.aligner.shrinkage_by_))
    assert found[0] == found[1]
    assert found[0][1] == "runs"


def test_runs_that_are_too_few_are_refused(rng):
    with pytest.raises(InputError, match="X has 6 samples and 5 runs"):
        SubjectBasis(rng.normal(size=(6, 9)), runs=range(5))
