"""p-values of classification: uniform for noise, small for signal."""

import warnings
from itertools import permutations, product

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from scipy import stats
from scipy.signal import lfilter
from sklearn.base import BaseEstimator, ClassifierMixin

from brainweave import (
    GDM,
    NoAlignment,
    PaperGDM,
    Study,
    Subject,
    between_subject_classification,
    split_study,
)
from brainweave._core.exceptions import ClassifierWarning
from brainweave.evaluation.classifiers import LabelOrders, p_value, smallest_p
from brainweave.evaluation.evaluate import score_folds
from brainweave.evaluation.measures import Classification
from evaluation_studies import unrelated_study
from sizes import few_or_many


class NearerMean(ClassifierMixin, BaseEstimator):
    """Takes the category with the nearest mean, in a tenth of a millisecond."""

    def fit(self, X, y):
        self.classes_ = np.unique(y)
        self.means_ = np.array([X[y == c].mean(axis=0) for c in self.classes_])
        return self

    def predict(self, X):
        nearness = X @ self.means_.T - (self.means_**2).sum(axis=1) / 2
        return self.classes_[nearness.argmax(axis=1)]


def noise_study(rng, n_subjects, design, voxels=15):
    """Three categories: as events in any order, or as blocks in smooth noise."""
    X, y = [], []
    for _ in range(n_subjects):
        if design == "events":
            labels = rng.permutation(np.repeat([0, 1, 2], 10))
            smooth = 0.0
        else:
            order = np.concatenate([rng.permutation(3) for _ in range(4)])
            labels, smooth = np.repeat(order, 5), 0.8
        e = rng.normal(size=(len(labels) + 30, voxels))
        X.append(lfilter([1], [1, -smooth], e, axis=0)[30:])
        y.append(labels)
    return X, y


def p_values(model, n_subjects, design, n_studies, n_permutations=39):
    """p of each study, and p where ties are broken at random, of methods apart."""
    found, broken = [], []
    for seed in range(n_studies):
        rng = np.random.default_rng([seed, n_subjects])
        X, y = noise_study(rng, n_subjects, design)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", UserWarning)  # said of noise, rightly
            result = between_subject_classification(
                model,
                X,
                y,
                protocol="joint",
                leave_out=max(1, n_subjects // 4),
                classifier=NearerMean(),
                n_permutations=n_permutations,
                random_state=seed,
                n_jobs=1,
            )
        found.append(result.p_value)
        above = (result.permutation_scores > result.mean + 1e-12).sum()
        ties = 1 + (np.abs(result.permutation_scores - result.mean) <= 1e-12).sum()
        broken.append((above + rng.uniform() * ties) / (1 + n_permutations))
    return np.array(found), np.array(broken)


N_STUDIES = 1000
LEVELS = (0.05, 0.1, 0.2)


def spread_of(level):
    return np.sqrt(level * (1 - level) / N_STUDIES)


@pytest.mark.thorough
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("n_subjects", [2, 3, 5, 8, 16])
def test_p_is_uniform_over_studies_of_noise(n_subjects):
    found, broken = p_values(NoAlignment(), n_subjects, "events", N_STUDIES)
    assert stats.kstest(broken, "uniform").pvalue > 1e-3
    for level in LEVELS:
        assert (found <= level).mean() <= level + 3 * spread_of(level)
        assert abs((broken <= level).mean() - level) <= 3 * spread_of(level)


@pytest.mark.thorough
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("n_subjects", [2, 4, 16])
@pytest.mark.parametrize(
    ("model", "design"),
    [(NoAlignment(), "blocks"), (GDM(2), "events"), (GDM(2), "blocks")],
    ids=["none-blocks", "GDM-events", "GDM-blocks"],
)
def test_p_is_at_most_too_large(n_subjects, model, design):
    """Of smooth noise, and of halves that align for each other; but not far too large.

    Blocks that are shown in turn vary less than those in any order.
    """
    found, _ = p_values(model, n_subjects, design, N_STUDIES)
    for level in LEVELS:
        assert (found <= level).mean() <= level + 3 * spread_of(level)
    assert (found <= 0.1).mean() >= 0.02


# 5 % are expected; more than 10 of 100, or 4 of 30, in less than 2 % of tries
@pytest.mark.parametrize(
    ("model", "n", "most"),
    [(NoAlignment(), 100, 10), *few_or_many((GDM(2), 30, 4), (GDM(2), 100, 10))],
)
def test_a_few_studies_of_noise_are_not_too_often_findings(model, n, most):
    """Two subjects, smooth noise: before, one in nine had p at most .05."""
    found, _ = p_values(model, 2, "blocks", n)
    assert (found <= 0.05).sum() <= most


# -- what is permuted ------------------------------------------------------------------


def hits_of(model, split, n_permutations=200, **options):
    measure = Classification(NearerMean(), n_permutations)
    found = score_folds(model, split, measure, protocol="joint", seed=0, **options)
    return list(found)


def test_folds_of_two_subjects_rise_and_fall_together_under_permutation(rng):
    """They train for each other, so one resemblance makes both scores."""
    X, y = noise_study(rng, 2, "events")
    records = hits_of(NoAlignment(), split_study(X, y))
    first, second = (r["permuted_hits"] for r in records if r["half"] == 0)
    assert np.corrcoef(first, second)[0, 1] > 0.3


def test_permutations_are_others_in_the_other_half(rng):
    X, y = noise_study(rng, 2, "events")
    both = [
        np.concatenate([x[np.argsort(k, kind="stable")]] * 2)
        for x, k in zip(X, y, strict=True)
    ]
    labels = [np.tile(np.sort(k), 2) for k in y]
    first = [np.arange(60) < 30] * 2
    study = Study(
        Subject(str(i), x + 1e-9 * rng.normal(size=x.shape), labels=k)
        for i, (x, k) in enumerate(zip(both, labels, strict=True))
    )
    records = hits_of(NoAlignment(), split_study(study, halves=first), 30)
    one, other = (
        [r["permuted_hits"] for r in records if r["half"] == half] for half in (0, 1)
    )
    assert one != other  # though the samples are alike


def test_blocks_stay_whole_and_in_their_run():
    codes = np.array([0, 0, 1, 1, 1, -1, 1, 2, 2, 0, 0, 1])
    runs = np.array(list("aaaaaaaaabbb"))
    orders = LabelOrders([codes], [runs], [0])
    seen = {tuple(orders.draw(0, number).tolist()) for number in range(500)}
    # three blocks of 1 or 2 samples besides one of 3; then two of the other run
    a = {
        tuple(np.concatenate(order))
        for order in permutations([[0, 0], [1, 1, 1], [1], [2, 2]])
    }
    b = {(0, 0, 1), (1, 0, 0)}
    assert seen == {x + y for x, y in product(a, b)}
    assert orders.n_orders == 24 * 2
    again = LabelOrders([codes], [runs], [0])
    assert_array_equal(again.draw(0, 3), orders.draw(0, 3))


def test_whole_runs_change_places_where_each_shows_one_category():
    codes, runs = np.array([0, 0, 1, 1, 0, 0]), np.array([1, 1, 2, 2, 3, 3])
    orders = LabelOrders([codes], [runs], [0])
    seen = {tuple(orders.draw(0, number).tolist()) for number in range(60)}
    assert seen == {(0, 0, 1, 1, 0, 0), (1, 1, 0, 0, 0, 0), (0, 0, 0, 0, 1, 1)}
    # without knowing the runs the neighbours are one block
    blocks = LabelOrders([np.array([0, 0, 0, 0, 1, 1])], [None], [0])
    assert {tuple(blocks.draw(0, n).tolist()) for n in range(20)} == {
        (0, 0, 0, 0, 1, 1),
        (1, 1, 0, 0, 0, 0),
    }


@pytest.mark.parametrize(
    ("codes", "expected"),
    [
        ([[0, 1]], 1),  # a renaming
        ([[0, 1], [0, 1]], 2),
        ([[0, 1], [1, 0], [0, 1]], 4),
        ([[0, 0, 1], [0, 0, 1]], 4),  # categories of other sizes are no renaming
        ([[0, 1, 2], [0, 1, 2]], 6),
        ([[0, 1, 0, 1], [0, 1, 0, 1]], 18),
    ],
)
def test_orders_are_counted_up_to_renaming(codes, expected):
    """Against all orders drawn, renamed in all ways."""
    orders = LabelOrders([np.array(c) for c in codes], [None] * len(codes), [0])
    assert orders.n_orders == expected
    names = range(max(map(max, codes)) + 1)
    seen = set()
    for number in range(3000):
        drawn = [tuple(orders.draw(i, number).tolist()) for i in range(len(codes))]
        renamed = [
            tuple(tuple(way[c] for c in own) for own in drawn)
            for way in permutations(names)
        ]
        sizes = [[own.count(c) for c in names] for own in codes]
        kept = [r for r in renamed if [[o.count(c) for c in names] for o in r] == sizes]
        seen.add(min(kept))
    assert len(seen) == expected


# -- p ---------------------------------------------------------------------------------


def test_signal_is_found_though_one_feature_tells_two_categories(rng):
    """Permuting the labels that train alone left 100 % right by luck."""
    y = [np.tile([0, 1], 8)] * 4
    X = [rng.normal(size=(16, 5)) + 3 * labels[:, None] for labels in y]
    result = between_subject_classification(
        GDM(n_components=1), X, y, n_permutations=99, random_state=0
    )
    assert result.p_value == result.smallest_p == pytest.approx(1 / 100)


def record(half, score, permuted, **more):
    hits = (100 * np.array(permuted)).round().astype(int).tolist()
    return {"half": half, "score": score, "permuted_hits": hits, "n_test": 100, **more}


def test_p_compares_means_and_counts_ties():
    records = [record(0, score, [0.5, 0.6, 0.7]) for score in (0.5, 0.7)]
    assert p_value(records) == 3 / 4
    records[1]["score"] = 0.7 + 1e-9  # more than rounding
    assert p_value(records) == 2 / 4


def test_halves_that_align_for_each_other_are_combined_by_cauchy_quantiles():
    permuted = np.linspace(0.2, 0.79, 59)
    tied = [record(h, 0.8, permuted) for h in (0, 1)]
    assert p_value(tied) == pytest.approx(1 / 60)  # equal ones stay what they are
    tied[1]["score"] = 0.5
    second = (1 + (permuted.round(2) >= 0.5).sum()) / 60
    quantiles = stats.cauchy.isf([1 / 60, second])
    assert_allclose(p_value(tied), stats.cauchy.sf(quantiles.mean()), rtol=1e-9)
    tied[1]["score"] = 0.0  # p = 1, which is no proof against the other half
    assert 1 / 60 < p_value(tied) < 1


def test_few_blocks_are_said_to_be_too_few(rng):
    y = [np.repeat([0, 1], 20)] * 4
    X = [rng.normal(size=(40, 6)) + 2 * k[:, None] for k in y]
    with pytest.warns(ClassifierWarning, match=r"no p can be below 0.12.*runs"):
        result = between_subject_classification(
            GDM(1), X, y, n_permutations=99, random_state=0
        )
    assert result.smallest_p == pytest.approx(1 / 8)
    assert result.p_value >= 1 / 8 - 0.1
    assert "at least 0.125" in str(result)
    # estimates of single trials are no blocks
    study = Study(
        Subject(str(i), x, labels=k, runs=np.tile(np.arange(20), 2))
        for i, (x, k) in enumerate(zip(X, y, strict=True))
    )
    trials = between_subject_classification(
        GDM(1), study, n_permutations=99, random_state=0
    )
    assert trials.p_value == trials.smallest_p == pytest.approx(1 / 100)


def test_names_of_runs_do_not_matter():
    numbers = np.repeat([7, 3, 5], 4)
    mixed = [n if n == 3 else f"run-{n}" for n in numbers]
    for codes in (np.arange(12) % 2, np.repeat([0, 1, 0], 4)):
        drawn = [
            [LabelOrders([codes], [runs], [0]).draw(0, i).tolist() for i in range(9)]
            for runs in (numbers, [f"run-{n}" for n in numbers], mixed)
        ]
        assert drawn[0] == drawn[1] == drawn[2]


@pytest.mark.parametrize("protocol", ["joint", "held-out"])
@pytest.mark.parametrize(("n", "most"), few_or_many((6, 2), (12, 3)))
def test_p_values_of_noise_are_no_news(protocol, n, most):
    found = []
    for seed in range(n):
        rng = np.random.default_rng(seed)
        study = unrelated_study(rng, n_subjects=3, n_samples=28, n_voxels=20)
        result = between_subject_classification(
            PaperGDM(2, energy=0.6),
            study,
            protocol=protocol,
            n_permutations=19,
            random_state=seed,
        )
        found.append(result.p_value)
    # uniform on twentieths: P(more than 2 of 6, or 3 of 12, are 0.05) is below 0.003
    assert sum(p <= 0.05 for p in found) <= most
    assert 0.25 < np.mean(found) < 0.8


def test_one_part_that_is_scored_is_permuted_too(rng):
    study, other = unrelated_study(rng), unrelated_study(rng)
    result = between_subject_classification(
        NoAlignment(), split_study(study, align=[other]), n_permutations=3
    )
    assert result.permutation_scores.shape == (3,)
    assert {fold["half"] for fold in result.folds} == {0}


def test_neighbouring_runs_of_one_category_are_two_blocks():
    codes, runs = np.array([0, 0, 0, 0, 1, 1]), np.array([1, 1, 2, 2, 3, 3])
    orders = LabelOrders([codes], [runs], [0])
    seen = {tuple(orders.draw(0, number).tolist()) for number in range(60)}
    assert seen == {(0, 0, 0, 0, 1, 1), (0, 0, 1, 1, 0, 0), (1, 1, 0, 0, 0, 0)}
    assert orders.n_orders == 3


def test_few_orders_bound_p():
    records = [record(h, 0.6, [0.5] * 99, n_orders=4) for h in (0, 1)]
    assert smallest_p(records) == pytest.approx(1 / 4)
    assert smallest_p([record(0, 0.6, [0.5] * 99)]) == pytest.approx(1 / 100)
