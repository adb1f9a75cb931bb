"""What results tell of the records of their folds."""

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

from brainweave.evaluation.results import (
    GridResult,
    chance_level,
    make_result,
    read_results,
    write_results,
)

ABOUT = {"method": "GDM", "design": {"classifier": "NuSVC"}, "settings": {"energy": 1}}


def record(half, fold, score, **more):
    """Return the record of one fold, as a grid keeps it."""
    return {
        "half": half,
        "fold": fold,
        "score": score,
        "test_subjects": [f"s{fold}", f"t{fold}"],
        "subject_scores": [score - 0.1, score + 0.1],
        "confusion": [[3, 1], [0, 2]],
        "balanced_accuracy": score / 2,
        "n_components": 2 + fold,
        "n_train": 10,
        "n_test": 6,
        "permuted_hits": [1, 3, 6],
        "method": "GDM",
        "protocol": "joint",
        "error": "",
        "warnings": [],
        "seconds": 0.75,
        "tags": {"k": half},
        "versions": {"numpy": "2"},
        "categories": ["a", "b"],
        "about": ABOUT,
        **more,
    }


RECORDS = [record(0, 0, 0.5), record(0, 1, 0.75), record(1, 0, 1.0)]


def classified(records=RECORDS):
    fields = {"categories": ["a", "b"], "protocol": "joint", "seconds": 1.5}
    return make_result(records, **fields, **ABOUT)


def test_a_result_sums_up_its_folds():
    result = classified()
    assert_array_equal(result.scores, [0.5, 0.75, 1.0])
    assert_allclose(result.mean, 0.75, rtol=1e-12)
    assert_allclose(result.std, np.std([0.5, 0.75, 1.0]), rtol=1e-12)
    assert_allclose(result.balanced_accuracy, 0.375, rtol=1e-12)
    assert result.confusion.tolist() == [[9, 3], [0, 6]]
    assert_allclose(result.chance, 12 / 18, rtol=1e-12)
    assert result.n_components == [2, 3]
    assert result.classifier == "NuSVC"
    assert [f["accuracy"] for f in result.folds] == [0.5, 0.75, 1.0]
    assert result.folds[1]["nu"] is None  # none was recorded
    assert_allclose(result.permutation_scores, [1 / 6, 1 / 2, 1], rtol=1e-12)
    assert (result.p_value, result.smallest_p) == (0.5, 0.25)
    assert result.study_fingerprint is None


def test_a_result_without_permutations_has_no_p():
    plain = [
        {k: v for k, v in r.items() if k not in ("permuted_hits", "n_components")}
        for r in RECORDS
    ]
    result = classified(plain)
    assert result.p_value is None
    assert result.smallest_p is None
    assert result.permutation_scores.size == 0
    assert result.n_components == []
    assert str(result).endswith("chance 66.7% (the most frequent category); NuSVC")


def test_a_result_is_one_line():
    result = classified()
    assert str(result) == (
        "GDM (joint): 75.0% ± 20.4% over 3 folds, chance 66.7% (the most frequent "
        "category), p = 0.5 (at least 0.25); NuSVC"
    )
    result.design = {}
    assert str(result).endswith("(at least 0.25)")
    for long in ("seconds", "settings", "study", "design", "permutation_scores"):
        assert f"{long}=" not in repr(result)


def test_the_table_of_a_result_has_a_row_per_fold():
    table = classified().to_frame()
    assert list(table)[:3] == ["method", "protocol", "classifier"]
    assert table["test_subjects"].tolist() == ["s0, t0", "s1, t1", "s0, t0"]
    assert table["subject_scores"][1] == "0.65, 0.85"
    assert_allclose(table["chance"], 2 / 3)
    untold = [{**r, "subject_scores": None} for r in RECORDS]
    assert classified(untold).to_frame()["subject_scores"].tolist() == [""] * 3


def test_scores_of_subjects_find_their_place():
    subjects = ["t1", "s1", "s0", "t0"]
    records = [{**r, "chance": 0.2} for r in RECORDS]
    for r in records:
        del r["confusion"]
    records[2]["chance"] = 0.4
    about = {"study": {"subjects": subjects}, "design": {"measure": "matching"}}
    about |= {"protocol": "joint", "method": "GDM", "categories": []}
    result = make_result(records, **about)
    nan = np.nan
    assert_allclose(result.scores, [[0.85, 0.65, 0.4, 0.6], [nan, nan, 0.9, 1.1]])
    assert_allclose(result.chance, 0.3)  # halves weigh the same
    assert result.chance_is == "a guess among segments that do not overlap"
    result.score, result.scores = "r2", np.array([[0.1, 0.3, 0.5, 0.7]])
    assert result.chance_is == "no relation"
    assert str(result) == "GDM (joint): r2 0.400 ± 0.224, chance 0.300"
    table = result.to_frame()
    assert table["subject"].tolist() == subjects
    assert table["half"].tolist() == [0] * 4
    assert table["r2"].tolist() == [0.1, 0.3, 0.5, 0.7]


def test_chance_is_unknown_where_nobody_told():
    assert np.isnan(chance_level([]))
    assert np.isnan(chance_level([{"half": 0}, {"half": 1, "chance": None}]))


def test_a_grid_is_a_table_of_folds():
    found = GridResult(
        [
            *RECORDS,
            record(0, 0, 0.1, protocol="held-out"),
            record(0, 0, 0.0, method="SRM", error="it failed"),
        ]
    )
    assert len(found) == 5
    assert repr(found) == "GridResult(5 cells, 1 failed)"
    result = found.result_of("GDM", "joint")
    assert_array_equal(result.scores, [0.5, 0.75, 1.0])
    assert result.seconds == 2.25
    assert result.protocol == "joint"
    assert found.result_of("GDM", "held-out").scores.tolist() == [0.1]
    assert found.result_of("SRM", "joint") == "it failed"


def test_a_method_that_scored_nobody_has_a_reason_in_place_of_a_result():
    about = {"method": "GDM", "study": {"subjects": ["s0", "t0"]}}
    about["design"] = {"measure": "matching"}
    nobody = record(0, 0, 0.0, subject_scores=[None, None], about=about)
    del nobody["confusion"]
    outcome = GridResult([nobody]).result_of("GDM", "joint")
    assert outcome.startswith("InputError: No subject could be scored: too few")


def test_results_are_read_as_they_were_written(tmp_path):
    path = tmp_path / "r.json"
    written = classified()
    written.settings = {"place_shrinkage": np.inf, "energy": np.nan}
    write_results(path, {"GDM": written}, {"SRM": "it failed"})
    results, errors = read_results(path)
    assert errors == {"SRM": "it failed"}
    again = results["GDM"]
    assert again.settings == {"place_shrinkage": np.inf, "energy": None}
    assert again.scores.dtype == again.permutation_scores.dtype == np.float64
    assert_array_equal(again.scores, [0.5, 0.75, 1.0])
    assert_array_equal(again.confusion, [[9, 3], [0, 6]])
    assert again.folds == classified().folds
    for old, new, said in (
        ("brainweave-results", "other", "its 'format' is another"),
        ('"protocol": "joint"', '"protocol": "other"', "its checksum is wrong"),
    ):
        path.with_name("x.json").write_text(path.read_text("utf-8").replace(old, new))
        with pytest.raises(ValueError, match=said):
            read_results(path.with_name("x.json"))
