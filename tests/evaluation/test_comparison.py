"""Tests over left-out subjects, and the sentence that says what they found."""

from types import SimpleNamespace

import numpy as np
import pytest
from scipy import stats

from brainweave import GDM, NoAlignment, between_subject_classification
from brainweave.evaluation.comparison import (
    compare_results,
    sign_flip_p,
    smallest_flip_p,
    subject_means,
    verdict,
)


def result_of(scores, *, leave_out=1, protocol="held-out", chance=0.25):
    """One fold per group of subjects."""
    ids = [f"{i:02}" for i in range(len(scores) * leave_out)]
    groups = [ids[s : s + leave_out] for s in range(0, len(ids), leave_out)]
    return SimpleNamespace(
        scores=np.array(scores),
        folds=[{"test_subjects": group} for group in groups],
        protocol=protocol,
        chance=chance,
    )


@pytest.mark.parametrize("two_sided", [False, True])
@pytest.mark.parametrize("n", [3, 6, 9])
def test_p_is_that_of_all_sign_flips(rng, n, two_sided):
    values = rng.normal(0.3, 1, n)
    want = stats.permutation_test(
        (values,),
        np.mean,
        permutation_type="samples",
        alternative="two-sided" if two_sided else "greater",
        n_resamples=np.inf,
    )
    assert sign_flip_p(values, two_sided=two_sided) == pytest.approx(want.pvalue)


@pytest.mark.parametrize("two_sided", [False, True])
@pytest.mark.parametrize("n", [1, 2, 5, 14, 25])
def test_no_p_is_below_the_smallest(n, two_sided):
    """Where all agree, the bound is reached."""
    got = sign_flip_p(np.full(n, 0.5), two_sided=two_sided)
    assert got == pytest.approx(smallest_flip_p(n, two_sided=two_sided))


def test_subjects_that_share_a_fold_are_not_several(rng):
    """Four folds of four subjects are four numbers, unless each has its own."""
    a, b = ([0.5, 0.6, 0.7, 0.6], [0.4, 0.5, 0.5, 0.5])
    (pair,) = compare_results(
        {"a": result_of(a, leave_out=4), "b": result_of(b, leave_out=4)}
    )
    assert pair.n_subjects == 4
    assert pair.p == pytest.approx(2 / 2**4)
    y = [np.tile([0, 1], 8)] * 4
    X = [rng.normal(size=(16, 5)) + 0.5 * np.array(labels)[:, None] for labels in y]
    result = between_subject_classification(NoAlignment(), X, y, leave_out=2)
    means = subject_means(result)
    assert list(means) == ["0", "1", "2", "3"]
    for fold in result.folds:
        assert np.mean(fold["subject_scores"]) == pytest.approx(fold["accuracy"])
    assert np.mean(list(means.values())) == pytest.approx(result.mean)
    assert len(set(means.values())) > 2


def test_holm_corrects_and_says_what_is_possible():
    base = np.linspace(0.4, 0.6, 6)
    results = {
        "a": result_of(base + 0.2),
        "b": result_of(base + 0.1),
        "c": result_of(base),
    }
    pairs = compare_results(results)
    assert [p.p for p in pairs] == pytest.approx([3 * 2 / 2**6] * 3)
    assert [p.smallest_p for p in pairs] == pytest.approx([3 * 2 / 2**6] * 3)


def test_the_verdict_is_one_sentence_with_p_and_its_bound():
    base = np.linspace(0.4, 0.6, 8)
    noise = base + 0.01 * np.array([1, -1, 1, -1, 1, -1, 1, -2])
    results = {
        "gdm (held-out)": result_of(base + 0.2),
        "none (held-out)": result_of(base),
        "gdm (joint)": result_of(base, protocol="joint"),
        "none (joint)": result_of(base + 0.4, protocol="joint"),
    }
    said = verdict(results)
    assert said.startswith("Held-out: gdm scores highest, 70.0% (chance 25.0%): ")
    assert "20.0 points higher than none, p = 0.0078 (two-sided" in said
    assert "over 8 subjects; no p can be below 0.0078" in said
    assert "joint" not in said
    alike = verdict({"a": result_of(base), "b": result_of(noise)})
    assert "a scores highest" in alike
    assert "which does not tell them apart" in alike
    few = verdict({"a": result_of(base[:5] + 0.2), "b": result_of(base[:5])})
    assert "p = 0.062, which does not tell them apart" in few
    assert "no p can be below 0.062" in few
    two = verdict({"a": result_of(base[:2] + 0.2), "b": result_of(base[:2])})
    assert "fewer than 3 subjects" in two


def test_one_result_is_compared_with_chance(rng):
    assert (
        "above chance, p = 0.031 (sign flips over 5 subjects; no p can be below 0.031)"
    ) in verdict({"gdm": result_of([0.5, 0.4, 0.6, 0.5, 0.5])})
    joint = verdict({"gdm": result_of([0.5] * 5, protocol="joint")})
    assert joint.endswith("whether that is above chance was not tested.")
    y = [np.tile([0, 1], 8)] * 4
    X = [rng.normal(size=(16, 5)) + 3 * np.array(labels)[:, None] for labels in y]
    result = between_subject_classification(
        GDM(n_components=1), X, y, n_permutations=39, random_state=0
    )
    assert result.smallest_p == pytest.approx(1 / 40)
    said = verdict({"gdm": result})
    assert "the most frequent category" in said
    assert "(permuted labels; no p can be below 0.025)" in said
