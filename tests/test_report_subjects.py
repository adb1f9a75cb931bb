"""Intervals and tests over subjects, as the report tells them."""

from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pytest
from scipy import stats

from brainweave.evaluation.comparison import (
    above_chance,
    compare_results,
    subject_interval,
    subject_means,
)
from brainweave.plotting.results import Scored


@dataclass
class Result:
    scores: Any
    folds: list = field(default_factory=list)
    chance: float = 0.25
    protocol: str = "held-out"
    method: str = "GDM"


def of_subjects(values, **options):
    """Two folds a subject, whose mean is the value."""
    scores, folds = [], []
    for i, value in enumerate(values):
        for shift in (-0.05, 0.05):
            scores.append(value + shift)
            folds.append({"test_subjects": [f"{i:02}"]})
    return Scored("GDM", Result(np.array(scores), folds, **options))


def test_folds_of_a_subject_are_one_value():
    result = of_subjects([0.5, 0.75])
    assert subject_means(result) == pytest.approx({"00": 0.5, "01": 0.75})
    assert subject_means(Scored("GDM", Result(np.array([0.5])))) == {}
    assert subject_interval(result) is None  # two subjects tell no interval


def test_the_interval_is_that_of_student(rng):
    values = rng.uniform(0.3, 0.9, 12)
    want = stats.ttest_1samp(values, 0).confidence_interval(0.95)
    assert subject_interval(of_subjects(values)) == pytest.approx(tuple(want))
    assert subject_interval(of_subjects([0.2, 0.9, 1.0])) == pytest.approx(
        (0, 1)
    )  # no more


def test_the_interval_holds_the_mean_as_often_as_it_says(rng):
    """Of 5 subjects resampling would give 84 %."""
    found = [
        subject_interval(of_subjects(rng.normal(0.5, 0.05, 5))) for _ in range(400)
    ]
    assert 0.92 < np.mean([low < 0.5 < high for low, high in found]) < 0.98


def test_sign_flips_are_those_of_scipy(rng):
    values = rng.normal(0.3, 0.1, 9)
    want = stats.permutation_test(
        (values - 0.25,),
        np.mean,
        permutation_type="samples",
        alternative="greater",
        n_resamples=np.inf,
    )
    assert above_chance(of_subjects(values)).p == pytest.approx(want.pvalue)
    assert not above_chance(of_subjects(values[:4])).can_tell  # never below .05
    assert above_chance(of_subjects(values, protocol="joint")) is None


def test_methods_are_compared_over_subjects_and_corrected(rng):
    base = rng.uniform(0.4, 0.6, 10)
    results = [
        ("a", of_subjects(base + 0.2)),
        ("b", of_subjects(base)),
        ("c", of_subjects(base + rng.normal(0, 0.01, 10))),
    ]
    found = {(c.better, c.other): c for c in compare_results(results)}
    assert set(found) >= {("a", "b"), ("a", "c")}
    assert found["a", "b"].difference == pytest.approx(0.2)
    assert found["a", "b"].p == pytest.approx(2 / 2**10)
    same = next(c for pair, c in found.items() if "a" not in pair)
    assert same.p > 0.05


def test_many_subjects_are_flipped_at_random(rng):
    """Beyond 14 subjects not all flips are tried; p is close to that of all."""
    values = rng.normal(0.02, 0.05, 15)
    got = above_chance(of_subjects(0.25 + values)).p
    signs = np.array(list(np.ndindex(*[2] * 15))) * 2 - 1
    want = (signs @ values >= values.sum() - 1e-12).mean()
    assert got == pytest.approx(want, abs=0.02)
    best = above_chance(of_subjects([0.9] * 20))
    assert best.p == pytest.approx(1e-4, abs=1e-12)
    assert "the smallest p possible" in str(best)
