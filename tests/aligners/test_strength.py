"""Block PRESS equals refits without the block; the fallbacks equal scikit-learn."""

import numpy as np
import pytest
from numpy.testing import assert_allclose
from sklearn.covariance import ledoit_wolf_shrinkage, oas
from sklearn.linear_model import Ridge

from brainweave.aligners.smoother import GramSmoother, NarrowSmoother, mean_eigenvalue
from brainweave.aligners.strength import (
    GRID,
    best_of_grid,
    block_criterion,
    covariance_shrinkage,
    covariance_strength,
    group_contrasts,
    leave_out_blocks,
)
from brainweave.exceptions import InputError
from brainweave.graphs import NO_GROUP
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
    assert best_of_grid([*criteria, None]) == GRID[brute.argmax()]


def test_more_noise_asks_for_more_shrinkage(rng):
    def rho(noise):
        X, y = planted_study(rng, (60, 60), (150, 150), noise=noise)
        grams = [centred(x) @ centred(x).T for x in X]
        return best_of_grid(list(map(block_criterion, map(GramSmoother, grams), y)))

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
    assert_allclose(
        criterion([bad], y, semidefinite=False),
        criterion([clipped], y),
        atol=1e-9,
    )


def test_runs_are_the_blocks_where_there_are_runs():
    codes = np.tile([0, 1], 6)
    assert leave_out_blocks(codes, list("aaaabbbbcccc")).tolist() == (
        [0] * 4 + [1] * 4 + [2] * 4
    )
    by_group = leave_out_blocks(codes)
    for group in (0, 1):
        assert np.unique(by_group[codes == group]).size == 4
    # one run holds each category alone: no run can be predicted from the others
    alone = leave_out_blocks(np.repeat([0, 1], 6), np.repeat([0, 1], 6))
    assert np.unique(alone).size == 4


def test_nothing_repeats_in_a_movie_seen_once(rng):
    x = centred(rng.normal(size=(30, 50)))
    assert leave_out_blocks(np.arange(30)) is None
    assert block_criterion(GramSmoother(x @ x.T), np.arange(30)) is None
    assert block_criterion(GramSmoother(x @ x.T), np.full(30, NO_GROUP)) is None
    assert best_of_grid([None]) is None


@pytest.mark.parametrize("shape", [(40, 12), (25, 90)])
def test_covariance_shrinkage_is_that_of_scikit_learn(rng, shape):
    x = centred(rng.normal(size=shape) * rng.uniform(0.5, 3, size=shape[1]))
    gram = x @ x.T
    v = shape[1]
    assert_allclose(
        covariance_shrinkage(gram, v, "ledoit-wolf"),
        ledoit_wolf_shrinkage(x, assume_centered=True),
    )
    delta = oas(x, assume_centered=True)[1]
    assert_allclose(covariance_shrinkage(gram, v, "oas"), delta)
    # the ridge has the eigenvectors and relative eigenvalues of the shrunk covariance
    rho = covariance_strength([gram], [v], "oas")
    ridged = x.T @ x + rho * mean_eigenvalue(gram) * np.eye(v)
    shrunk = oas(x, assume_centered=True)[0]
    assert_allclose(ridged / np.trace(ridged), shrunk / np.trace(shrunk), atol=1e-12)


def test_many_subjects_are_not_all_asked(rng, monkeypatch):
    from brainweave import SubjectBasis, label_graph
    from brainweave.aligners import strength

    X, y = planted_study(rng, (12,) * 6, (20,) * 6)
    bases, asked = [SubjectBasis(x) for x in X], []
    whole = strength._criterion

    def counted(basis, codes):
        asked.append(basis)
        return whole(basis, codes)

    monkeypatch.setattr(strength, "_criterion", counted)
    monkeypatch.setattr(strength, "N_ASKED", 3)
    rhos, how = strength.choose_strengths(
        "auto", bases, label_graph(y), n_jobs=1, owner="GDM"
    )
    assert [bases.index(b) for b in asked] == [0, 2, 5]
    assert how == "blocks"
    assert len(rhos) == 6
