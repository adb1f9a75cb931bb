"""Tests over left-out subjects, and the sentence that says what they found."""

import itertools
import re
import warnings
from types import SimpleNamespace

import numpy as np
import pytest
from scipy import stats

from brainweave import (
    GDM,
    SRM,
    ClassificationResult,
    Comparison,
    InputError,
    NoAlignment,
    between_subject_classification,
    compare_methods,
    simulate_study,
    split_study,
)
from brainweave.evaluation.comparison import (
    ChanceTest,
    above_chance,
    compare_results,
    judge_alignment,
    percent,
    sign_flip_p,
    smallest_flip_p,
    subject_interval,
    subject_means,
)
from brainweave.evaluation.results import SubjectScores
from brainweave.evaluation.splits import match_study


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


def test_pairs_are_corrected_by_flipping_their_signs_together(rng):
    """The same p as a plain loop over all flips, pair by pair."""
    scores = {c: rng.uniform(0.3, 0.7, 6) for c in "abc"}
    scores["a"] += 0.15
    found = compare_results({c: result_of(v) for c, v in scores.items()})
    rows = [scores[p.better] - scores[p.other] for p in found]
    rows = [row / np.sqrt(np.mean(row**2)) for row in rows]
    order = sorted(range(3), key=lambda i: -abs(rows[i].mean()))
    want, so_far = [0.0] * 3, 0.0
    for rank, i in enumerate(order):
        as_far = [
            max(abs((signs * rows[k]).mean()) for k in order[rank:])
            >= abs(rows[i].mean()) - 1e-12
            for signs in itertools.product((1, -1), repeat=6)
        ]
        want[i] = so_far = max(so_far, np.mean(as_far))
    assert [p.p for p in found] == pytest.approx(want)
    assert [p.smallest_p for p in found] == pytest.approx([2 / 2**6] * 3)
    # three times the smallest p, as by their number, would be above .05
    steps = {
        c: result_of(np.linspace(0.2, 0.3, 6) + k / 5) for k, c in enumerate("abc")
    }
    assert [p.p for p in compare_results(steps)] == pytest.approx([2 / 2**6] * 3)


def test_methods_that_do_not_differ_are_told_apart_in_few_studies(rng):
    alarms = 0
    for _ in range(200):
        subjects = rng.normal(0.5, 0.1, 7)
        results = {
            str(sd): result_of(subjects + rng.normal(0, sd, 7))
            for sd in (0.02, 0.05, 0.1, 0.2)
        }
        alarms += min(pair.p for pair in compare_results(results)) < 0.05
    assert alarms <= 18  # .05 of 200, and two and a half standard errors


def test_the_verdict_names_the_best_with_p_and_its_bound():
    base = np.linspace(0.4, 0.6, 8)
    results = {
        "gdm (held-out)": result_of(base + 0.2),
        "none (held-out)": result_of(base),
        "gdm (joint)": result_of(base, protocol="joint"),
        "none (joint)": result_of(base + 0.4, protocol="joint"),
    }
    said = Comparison(results).verdict
    assert said.startswith("With gdm, 70\u00a0% of the samples of left-out subjects")
    assert "corrected for the choice among 2 methods" in said
    assert said.endswith(
        "With gdm, accuracy is 20.0 percentage points higher than with none (p = "
        "0.0078, two-sided sign flips over 8 subjects: the smallest p possible)."
    )
    assert "joint" not in said
    # folds of two and of one: the mean over folds may say otherwise
    odd = {"a": result_of([0.4, 0.4, 0.9]), "b": result_of([0.55, 0.55, 0.5])}
    for result, own in zip(odd.values(), ([0.4] * 4, [0.55] * 4), strict=True):
        for number, fold in enumerate(result.folds):
            fold["test_subjects"] = ["st", "uv", "w"][number]
            fold["subject_scores"] = own[:2] if number < 2 else [result.scores[2]]
            fold["test_subjects"] = list(fold["test_subjects"])
    turned = Comparison(odd).verdict
    assert turned.startswith("With a, 56.7")
    assert "4.0 percentage points lower than with b (p = " in turned
    two = Comparison({"a": result_of(base[:2] + 0.2), "b": result_of(base[:2])}).verdict
    assert two.endswith("Methods cannot be compared with fewer than 3 subjects.")


def test_one_result_is_compared_with_chance(rng):
    said = Comparison({"gdm": result_of([0.5, 0.4, 0.6, 0.5, 0.5])}).verdict
    assert "above chance (p = 0.031, sign flips over 5 subjects: the smallest" in said
    y = [np.tile([0, 1], 8)] * 4
    X = [rng.normal(size=(16, 5)) + 3 * np.array(labels)[:, None] for labels in y]
    result = between_subject_classification(
        GDM(n_components=1), X, y, n_permutations=39, random_state=0
    )
    assert result.smallest_p == pytest.approx(1 / 40)
    said = Comparison({"gdm": result}).verdict
    assert "the most frequent category" in said
    assert "permuted labels: the smallest p possible" in said


# -- several methods on one study ------------------------------------------------------


@pytest.fixture(scope="module")
def study():
    return simulate_study(n_subjects=4, n_voxels=(50, 60), categories=3, n_runs=2)


def test_methods_are_compared_as_they_are_scored_alone(study, tmp_path):
    methods = {"GDM": GDM(2), "none": NoAlignment()}
    options = {"protocols": ("held-out", "joint"), "n_permutations": 3}
    with pytest.warns(UserWarning, match="The masks differ"):
        found = compare_methods(study, methods, **options, store=tmp_path / "store")
    assert list(found.results) == [
        f"{m} ({p})" for p in ("held-out", "joint") for m in methods
    ]
    want = between_subject_classification(
        GDM(2), study, n_permutations=3, random_state=0
    )
    got = found.results["GDM (held-out)"]
    assert got.scores.tolist() == want.scores.tolist()
    assert got.p_value == want.p_value
    assert got.study_fingerprint == study.fingerprint()
    common = found.results["none (joint)"]
    assert common.design["voxels"] == "common"
    assert common.study_fingerprint == study.fingerprint()
    assert found.verdict == Comparison(found.results).verdict
    assert {(t.better, t.n_subjects) for t in found.tests} == {
        ("GDM (held-out)", 4),
        ("GDM (joint)", 4),
    }
    # finished folds are found again
    cells = {p: p.stat().st_mtime_ns for p in (tmp_path / "store").rglob("*half*")}
    with pytest.warns(UserWarning, match="The masks differ"):
        compare_methods(study, methods, **options, store=tmp_path / "store")
    assert {p: p.stat().st_mtime_ns for p in cells} == cells


def test_what_rounds_to_zero_has_no_sign():
    nothing = SubjectScores(
        scores=np.array([[-1e-5, -2e-5, 0.0]]),
        chance=-1e-9,
        protocol="held-out",
        method="GDM",
        subjects=list("abc"),
        score="isc",
    )
    found = Comparison({"GDM": nothing})
    for text in (str(nothing), str(found), found.verdict, nothing._repr_html_()):
        assert "0.000" in text
        assert "-0.0" not in text
    assert [percent(share) for share in (-1e-5, 0.0, -0.01)] == [
        "0\u00a0%",
        "0\u00a0%",
        "-1\u00a0%",
    ]


def test_a_method_that_fails_is_an_error_and_a_comparison_is_read_again(
    study, tmp_path
):
    found = compare_methods(study, {"GDM": GDM(2), "SRM": SRM(2)})
    assert list(found.results) == ["GDM"]
    assert "SRM joins samples by their row" in found.errors["SRM"]
    assert found.to_frame()["method"].tolist() == ["GDM", "SRM"]
    found.save(tmp_path / "c")
    again = Comparison.load(tmp_path / "c")
    assert again.errors == found.errors
    assert str(again.results["GDM"]) == str(found.results["GDM"])
    assert (tmp_path / "c" / "folds.tsv").is_file()
    nothing = compare_methods(study, {"SRM": SRM(2)})
    assert nothing.verdict == "None of the methods could be scored."
    nothing.save(tmp_path / "n")
    assert Comparison.load(tmp_path / "n" / "results.json").results == {}


def test_what_is_no_aligner_is_an_error_too(study):
    found = compare_methods(study, {"x": None, "y": GDM, "GDM": GDM(2)}, n_jobs=1)
    assert list(found.results) == ["GDM"]
    assert found.errors["x"].endswith("such as GDM(n_components=10); got None.")
    assert "got <class" in found.errors["y"]
    with pytest.raises(InputError, match=r"protocols .* got 'fair'"):
        compare_methods(study, {"GDM": GDM(2)}, protocols="fair")
    with pytest.raises(InputError, match="n_jobs must be an integer other than 0"):
        compare_methods(study, {"GDM": GDM(2)}, n_jobs="all")
    for methods in ([GDM(2)], {}):
        with pytest.raises(InputError, match="names the aligners, as in"):
            compare_methods(study, methods)
    # a setting that no later run could recognise matters only if results are kept
    kernel = {"own": GDM(2, kernel=lambda a, b: a @ b.T)}
    own, known = (compare_methods(study, m).results for m in (kernel, {"own": GDM(2)}))
    assert own["own"].scores == pytest.approx(known["own"].scores)


def test_a_result_is_saved_with_its_folds(study, tmp_path):
    result = between_subject_classification(GDM(2), study)
    result.save(tmp_path / "r.json")
    again = ClassificationResult.load(tmp_path / "r.json")
    assert again.scores.tolist() == result.scores.tolist()
    assert again.folds == result.folds
    assert again.confusion.tolist() == result.confusion.tolist()
    assert len((tmp_path / "r.tsv").read_text().splitlines()) == 1 + len(result.folds)
    Comparison({"a": result, "b": result}).save(tmp_path / "two")
    with pytest.raises(InputError, match="holds 2 results"):
        ClassificationResult.load(tmp_path / "two" / "results.json")
    with pytest.raises(InputError, match=r"no file .*results\.json' with results"):
        Comparison.load(tmp_path)


def test_a_study_that_is_split_is_compared_as_it_is(study):
    split = split_study(match_study(study, "truncate"), halves="run")
    found = compare_methods(split, {"SRM": SRM(2)})
    want = between_subject_classification(SRM(2), split, random_state=0)
    assert found.results["SRM"].scores.tolist() == want.scores.tolist()
    with pytest.raises(InputError, match="halves must be"):
        compare_methods(study, {"GDM": GDM(2)}, halves="odd")


def test_mutated_results_are_refused_in_one_sentence(study, tmp_path, rng):
    path = tmp_path / "r.json"
    between_subject_classification(GDM(2), study, n_permutations=2).save(path)
    good = path.read_bytes()
    replacements = [b"null", b"[]", b"{}", b"-1", b'"x"', b"1e999", b"9" * 30, b"[[]]"]
    refused = 0
    for number in range(600):
        text = bytearray(good)
        at = int(rng.integers(len(text)))
        if number % 2:
            text[at] = int(rng.integers(256))
        else:
            spot = re.search(rb'(?<=: )("[^"]*"|-?[\d.]+|null)', good[at:])
            if spot is None:
                continue
            new = replacements[number // 2 % len(replacements)]
            text[at + spot.start() : at + spot.end()] = new
        path.write_bytes(bytes(text))
        try:
            for result in Comparison.load(path).results.values():
                str(result), result.to_frame(), result.balanced_accuracy
        except InputError:
            refused += 1
    assert refused > 200


def test_a_comparison_is_printed_as_a_table_with_a_verdict(study):
    found = compare_methods(study, {"GDM": GDM(2), "SRM": SRM(2)}, n_permutations=3)
    head, first, second, note, last = str(found).splitlines()
    assert head.split()[:3] == ["method", "protocol", "mean"]
    assert first.startswith("GDM     held-out  ")
    gdm = found.results["GDM"]
    shown = [f"{v:.3f}" for v in (gdm.mean, gdm.std, gdm.chance)]
    assert first.split()[2:7] == [*shown, f"{gdm.p_value:.3g}", "8"]
    assert second.startswith("SRM     n/a       n/a")
    assert head.index("error") == second.index("InputError: SRM joins")
    assert note.startswith("chance: the most frequent category; p: permuted labels")
    assert last == found.verdict


def test_a_comparison_names_the_better_of_each_pair():
    low, high = np.array([0.3, 0.4, 0.5]), np.array([0.5, 0.6, 0.6])
    found = compare_results(
        [("low", result_of(low)), ("high", result_of(high)), ("same", result_of(high))]
    )
    assert [(p.better, p.other) for p in found] == [
        ("high", "low"),
        ("same", "low"),
        ("high", "same"),  # in their order where they do not differ
    ]
    assert [p.difference for p in found] == pytest.approx([1 / 6, 1 / 6, 0])
    assert [p.n_subjects for p in found] == [3] * 3
    assert found[2].p == 1
    assert not compare_results({"a": result_of(low[:2]), "b": result_of(high[:2])})
    assert not compare_results({})
    assert not compare_results({"alone": result_of(high)})


def test_subjects_that_not_all_methods_have_are_left_out():
    a, b = result_of([0.3, 0.4, 0.5, 0.9]), result_of([0.1, 0.2, 0.3])
    unknown = SimpleNamespace(scores=np.ones(3), folds=[{}] * 3)
    (pair,) = compare_results({"a": a, "b": b, "unknown": unknown})
    assert (pair.better, pair.n_subjects) == ("a", 3)
    assert pair.difference == pytest.approx(0.2)


def test_a_subject_counts_by_the_mean_of_its_folds():
    folds = [
        {"test_subjects": ["a", "b"], "subject_scores": s} for s in ([1, 0], [0, 0])
    ]
    twice = SimpleNamespace(scores=[0.5, 0.0], folds=folds)
    assert subject_means(twice) == {"a": 0.5, "b": 0.0}
    rows = SimpleNamespace(subjects=[1, 2], scores=np.array([[0.2, 0.4], [0.4, 0.8]]))
    assert subject_means(rows) == pytest.approx({"1": 0.3, "2": 0.6})


# -- whether an alignment worked -------------------------------------------------------

EIGHT = np.linspace(0.4, 0.6, 8)
BASELINE = "without alignment"
GOOD = SimpleNamespace(worked=True, verdict="Alignment worked: samples agree.")
BAD = SimpleNamespace(worked=False, verdict="No evidence of a shared space: none.")
OPEN = SimpleNamespace(worked=None, verdict="Too few samples.")


def test_the_interval_is_that_of_students_t():
    values = np.array([0.3, 0.5, 0.4, 0.6])
    want = stats.t.interval(0.95, 3, values.mean(), stats.sem(values))
    assert subject_interval(result_of(values)) == pytest.approx(want)
    assert subject_interval(result_of(values[:3])) is not None
    assert subject_interval(result_of(values[:2])) is None
    assert subject_interval(result_of([0.0, 0.9, 1.0])) == (0.0, 1.0)
    worse = SimpleNamespace(
        scores=-np.array([values]), subjects=list("abcd"), score="r2"
    )
    low, high = want
    assert subject_interval(worse) == pytest.approx((-high, -low))  # no share


def test_a_p_is_shown_with_the_smallest_that_is_possible():
    assert str(ChanceTest(0.012, None, "flips")) == "p = 0.012, flips"
    assert str(ChanceTest(0.05, 0.05, "f")) == "p = 0.05, f: the smallest p possible"
    assert str(ChanceTest(0.5, 0.1, "f")) == "p = 0.5, f; smallest p possible 0.1"
    assert ChanceTest(1.0, None, "").can_tell
    assert ChanceTest(1.0, 0.049, "").can_tell
    assert not ChanceTest(1.0, 0.05, "").can_tell


def test_permutations_are_corrected_for_the_choice_of_the_method():
    result, other = result_of(EIGHT), result_of(EIGHT)
    result.p_value, result.smallest_p = 0.02, 0.01
    assert above_chance(result) == ChanceTest(0.02, 0.01, "permuted labels")
    how = "permuted labels, corrected for the choice among 2 methods"
    assert above_chance(result, other) == ChanceTest(0.04, 0.02, how)
    result.p_value, result.smallest_p = 0.6, 0.7
    test = above_chance(result, other)
    assert (test.p, test.smallest_p) == (1.0, 1.0)
    result.smallest_p = None
    assert above_chance(result).smallest_p is None


def test_sign_flips_test_held_out_scores_of_the_subjects_that_all_have():
    result = result_of(EIGHT)
    flips = above_chance(result)
    assert (flips.p, flips.smallest_p) == pytest.approx((2**-8, 2**-8))
    assert flips.how == "sign flips over 8 subjects"
    few = above_chance(result, result_of(EIGHT[:5], chance=0.3))
    assert few.smallest_p == pytest.approx(2**-5)
    assert few.how.startswith("sign flips over 5 subjects, corrected for the choice")
    rows = [EIGHT[:5] - 0.25, EIGHT[:5] - 0.3]
    assert few.p == pytest.approx(sign_flip_p(rows))
    assert above_chance(result_of(EIGHT, protocol="joint")) is None
    unknown = SimpleNamespace(scores=[1], folds=[{}], chance=0.5, protocol="held-out")
    assert above_chance(unknown) is None


def test_accuracy_and_gain_make_a_verdict():
    results = {"gdm": result_of(EIGHT + 0.2), BASELINE: result_of(EIGHT)}
    found = judge_alignment(results)
    assert (found.kind, found.title) == ("good", "Alignment worked")
    accuracy, gain = found.reasons
    low, high = (f"{100 * v:.1f}" for v in subject_interval(results["gdm"]))
    assert accuracy == (
        "With gdm, 70\u00a0% of the samples of left-out subjects are classified "
        f"correctly (held-out; 95 % interval over subjects {low}\u00a0% to "
        f"{high}\u00a0%); chance is 25\u00a0%: above chance (p = 0.0039, sign flips "
        "over 8 subjects: the smallest p possible)."
    )
    assert gain == (
        "With gdm, accuracy is 20.0 percentage points higher than without alignment "
        "(p = 0.0078, two-sided sign flips over 8 subjects: the smallest p possible)."
    )
    worse = {"gdm": result_of(EIGHT), BASELINE: result_of(EIGHT + 0.2)}
    found = judge_alignment(worse)
    assert (found.kind, found.title) == ("open", "Unclear whether alignment worked")
    assert "20.0 percentage points lower than" in found.reasons[1]
    noise = 0.01 * np.array([1, -1, 1, -1, 1, -1, 1, -2])
    alike = {"gdm": result_of(EIGHT), BASELINE: result_of(EIGHT + noise)}
    assert judge_alignment(alike).reasons[1].endswith("which may be chance.")
    few = {"gdm": result_of(EIGHT[:5]), BASELINE: result_of(EIGHT[:5] - 0.1)}
    found = judge_alignment(few)
    assert found.reasons[1].endswith("too few subjects to tell them apart.")
    assert found.kind == "good"  # above chance, p = 1 / 32


def test_the_best_method_is_judged_unless_one_is_named():
    results = {"srm": result_of(EIGHT), "gdm": result_of(EIGHT + 0.1)}
    results[BASELINE] = result_of(EIGHT - 0.1)
    best, gain = judge_alignment(results).reasons
    assert best.startswith("With gdm, 60")
    assert "corrected for the choice among 2 methods" in best
    assert "20.0 percentage points higher" in gain
    assert "corrected for all pairs of methods" in gain
    named, gain = judge_alignment(results, method="srm").reasons
    assert named.startswith("With srm, 50")
    assert "choice" not in named
    assert "10.0 percentage points higher" in gain


def test_what_was_not_tested_decides_nothing():
    joint = {"gdm": result_of(EIGHT, protocol="joint")}
    found = judge_alignment(joint)
    assert found.kind == "open"
    assert found.title == "Whether alignment worked cannot be tested"
    assert found.reasons[0].endswith("This difference was not tested.")
    four = judge_alignment({"gdm": result_of([0.5, 0.5, 0.5, 0.5])})
    assert four.kind == "open"
    assert "Too few subjects, or permutations, to tell" in four.reasons[0]
    chance = judge_alignment({"gdm": result_of(EIGHT, chance=0.5)})
    assert chance.kind == "bad"
    assert "not above chance" in chance.reasons[0]
    meant = result_of(EIGHT)
    meant.chance_is = "the most frequent category"
    said = judge_alignment({"gdm": meant}).reasons[0]
    assert "chance, the most frequent category, is 25" in said
    assert Comparison({"gdm": meant}).verdict == said


def test_held_out_samples_join_the_verdict():
    assert judge_alignment({}) is None
    assert judge_alignment({BASELINE: result_of(EIGHT)}) is None
    assert judge_alignment({}, GOOD).reasons == ["Samples agree."]
    bad = judge_alignment({}, BAD)
    assert (bad.kind, bad.title) == ("bad", "No evidence of a shared space")
    assert bad.reasons == ["None."]
    assert judge_alignment({}, OPEN).kind == "open"
    above = {"gdm": result_of(EIGHT)}
    assert judge_alignment(above, GOOD).kind == "good"
    assert judge_alignment(above, OPEN).kind == "good"
    mixed = judge_alignment(above, BAD)
    assert (mixed.kind, len(mixed.reasons)) == ("open", 2)


def test_methods_are_tested_within_their_protocol():
    results = {
        f"{name} ({protocol})": result_of(EIGHT + k / 10, protocol=protocol)
        for protocol in ("held-out", "joint")
        for k, name in enumerate("ab")
    }
    pairs = [(t.better, t.other) for t in Comparison(results).tests]
    assert pairs == [("b (held-out)", "a (held-out)"), ("b (joint)", "a (joint)")]
    three = [result_of(EIGHT + k / 10) for k in range(3)]
    said = Comparison(dict(zip("abc", three, strict=True))).verdict
    assert "corrected for all pairs" in said
    assert "20.0 percentage points higher than with a" in said
    assert "10.0 percentage points higher than with b" in said


def test_scores_that_are_no_shares_are_shown_as_numbers():
    rows = [
        SimpleNamespace(
            scores=np.array([EIGHT + k / 10]),
            subjects=list("abcdefgh"),
            protocol="held-out",
            chance=0.0,
            score="isc",
        )
        for k in range(2)
    ]
    said = Comparison({"low": rows[0], "high": rows[1]}).verdict
    assert "features of left-out subjects correlate 0.600" in said
    assert "the score is 0.100 higher than with low" in said
    # who saw too little has no score, and is not counted
    rows[1].scores = np.append(rows[1].scores, [EIGHT * np.nan], axis=0)
    assert Comparison({"low": rows[0], "high": rows[1]}).verdict == said
    judged = judge_alignment({"high": rows[1]}).reasons[0]
    assert "correlate 0.600" in judged
    assert "nan" not in judged


def test_a_saved_comparison_has_its_tables(study, tmp_path):
    found = compare_methods(study, {"GDM": GDM(2)}, n_permutations=3)
    frame, result = found.to_frame(), found.results["GDM"]
    assert frame["folds"].tolist() == [len(result.folds)] == [8]
    assert frame["p"].tolist() == [result.p_value]
    assert frame["seconds"].tolist() == [result.seconds]
    assert frame["error"].tolist() == [""]
    assert "error" not in str(found).splitlines()[0]
    found.save(tmp_path / "made" / "c")
    found.save(tmp_path / "made" / "c")  # a folder that is there is taken
    head, *rows = (tmp_path / "made" / "c" / "folds.tsv").read_text().splitlines()
    assert "method" in head.split("\t")
    assert len(rows) == 8
    text = (tmp_path / "made" / "c" / "comparison.tsv").read_text()
    assert text.splitlines()[0].split("\t") == list(frame)


class Talkative(NoAlignment):
    """Warns at each fit, of another number."""

    numbers = itertools.count()

    def fit(self, X, y=None):
        warnings.warn(f"{next(self.numbers)} of 90 voxels.", stacklevel=2)
        return super().fit(X, y)


def test_warnings_that_differ_in_their_numbers_are_said_once():
    study = simulate_study(n_subjects=3, n_voxels=20, categories=2, n_runs=2)
    X, y = [s.samples for s in study], [s.labels for s in study]
    with pytest.warns(UserWarning, match="of 90 voxels") as said:
        compare_methods(X, {"none": Talkative()}, y, n_jobs=1)
    (one,) = {str(w.message) for w in said}
    assert re.fullmatch(r"none: \d+ of 90 voxels \(in 6 fits\)\.", one)
