"""What a label is: missing, order, codes, and whether subjects' labels meet."""

import warnings

import numpy as np
import pandas as pd
import pytest

from brainweave import (
    GDM,
    SemiSupervisedSRM,
    between_subject_classification,
    label_graph,
    match_samples,
    time_graph,
)
from brainweave._core.exceptions import InputError, LabelWarning
from brainweave._core.labels import (
    as_label_list,
    check_labels_overlap,
    encode_labels,
    encode_new_labels,
    is_missing,
    object_array,
    sort_labels,
)
from brainweave.study import Study, Subject
from evaluation_studies import labelled_study, three_subjects

NONE = [None, float("nan"), np.float32("nan"), pd.NA, pd.NaT, np.datetime64("NaT")]


@pytest.mark.parametrize("value", [*NONE, "", "n/a", np.str_("n/a")])
def test_no_label_has_one_meaning_everywhere(value):
    assert is_missing(value)
    labels = ["a", value, "b", "a"]
    assert as_label_list(labels, "y") == ["a", None, "b", "a"]
    assert encode_labels([labels]).codes[0].tolist() == [0, -1, 1, 0]
    assert Subject("01", np.zeros((4, 2)), labels=labels).unlabelled().sum() == 1
    graph = label_graph([labels, ["a", "b"]])
    assert graph.groups[0].names == ("a", "b")
    assert graph.degrees()[1] == 0
    X = [np.zeros((4, 2)), np.zeros((2, 2))]
    assert match_samples(X, [labels, ["a", "b"]]).kept[0].tolist() == [0, 2]


def test_containers_of_labels():
    values = ["b", None, "a"]
    for given in (
        pd.Series(values),
        pd.Series(values, dtype="string"),
        pd.Categorical(values),
        np.array(values, dtype=object),
        np.ma.MaskedArray(["b", "x", "a"], mask=[False, True, False]),
    ):
        assert as_label_list(given, "y") == values
        subject = Subject("01", np.zeros((3, 2)), labels=given)
        assert subject.labels.tolist() == values
    assert as_label_list(np.array([b"x", b"y"]), "y") == ["x", "y"]
    assert as_label_list(range(3), "y") == [0, 1, 2]
    assert as_label_list([1, "a", float("nan")], "y") == [1, "a", None]


def test_nan_that_numpy_made_text_is_no_category():
    labels = np.array(["a", np.nan, "b"])
    with pytest.warns(LabelWarning, match="'nan' is taken as a missing label"):
        assert as_label_list(labels, "y") == ["a", None, "b"]
    with pytest.warns(LabelWarning, match="Subject '01': labels: 'nan'"):
        subject = Subject("01", np.zeros((3, 2)), labels=labels)
    assert subject.categories == ["a", "b"]


@pytest.mark.parametrize("shape", [(4, 1), (2, 2), ()])
def test_labels_are_one_dimensional(shape):
    with pytest.raises(InputError, match="one label per sample; got shape"):
        as_label_list(np.zeros(shape), "y")
    with pytest.raises(TypeError, match="one label per sample, got 'abc'"):
        as_label_list("abc", "y")
    with pytest.raises(InputError, match="got list"):
        as_label_list([["a"], ["b"]], "y")


def test_labels_that_arrays_cannot_hold_are_refused():
    large = np.array([2**63, 2**63 + 1], dtype=np.uint64)
    with pytest.raises(InputError, match="got 9223372036854775808"):
        Subject("01", np.zeros((2, 2)), labels=large)
    assert label_graph([large, large]).groups[0].names == (2**63, 2**63 + 1)
    small = np.array([1, 2], dtype=np.uint64)
    assert Subject("01", np.zeros((2, 2)), labels=small).categories == [1, 2]


def test_one_order_for_all():
    values = [10, 2, "b", "a", (1, 2), True, 2.5, None, "n/a"]
    assert sort_labels(values) == [True, 2, 2.5, 10, "a", "b", (1, 2)]
    assert encode_labels([values]).names == tuple(sort_labels(values))
    assert time_graph([values, values]).groups[0].names == tuple(sort_labels(values))


@pytest.mark.filterwarnings("error::brainweave._core.exceptions.LabelWarning")
def test_equal_sets_of_labels_meet():
    check_labels_overlap([["a", "b", None], ["b", "a"], None], ["s1", "s2", "s3"])


def test_a_category_that_some_lack_is_named_with_who():
    labels = [["a", "b"], ["a", "b", "c"], ["b", "c"]]
    with pytest.warns(LabelWarning) as said:
        check_labels_overlap(labels, ["s1", "s2", "s3"])
    assert len(said) == 1
    text = str(said[0].message)
    assert "2 of 3 categories are missing in some subjects" in text
    assert "'a' in s3; 'c' in s1" in text


def test_groups_that_share_no_label_are_refused():
    labels = [["a", "b"], ["b", "c"], ["x", "y"], ["y"], None]
    with pytest.raises(InputError) as error:
        check_labels_overlap(labels, ["s1", "s2", "s3", "s4", "s5"])
    assert "(s1, s2: 'a', 'b', 'c'; s3, s4: 'x', 'y')" in str(error.value)


def test_measures_that_differ_by_subject_are_no_categories():
    names = ["s1", "s2"]
    with pytest.raises(InputError) as error:
        check_labels_overlap([[1.25, 0.1234], [3.5]], names)
    assert "The labels are numbers such as 0.123, and no" in str(error.value)
    for whole in ([[1.5, 2.0], [3.5]], [[1.0], [2.0]], [[1.5], ["a"]], [[1], [2]]):
        with pytest.raises(InputError, match="fall into 2 groups that share no label"):
            check_labels_overlap(whole, names)
    check_labels_overlap([[1.5, 2.5], [2.5, 1.5]], names)


def test_groups_apart_are_refused_and_lacking_categories_told_only_if_asked():
    apart = [["a"], ["b"], ["c"], ["d"]]
    names = ["s1", "s2", "s3", "s4"]
    with pytest.raises(InputError) as error:
        check_labels_overlap(apart, names, warn=False)
    assert "4 groups" in str(error.value)
    assert "(s1: 'a'; s2: 'b'; s3: 'c'). Give" in str(error.value)  # the first three
    check_labels_overlap(apart, names, refuse=False, warn=False)
    with pytest.warns(LabelWarning, match="4 of 4 categories are missing in some"):
        check_labels_overlap(apart, names, refuse=False)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        check_labels_overlap([["a", "b"], ["b"]], names[:2], warn=False)
        check_labels_overlap(
            [["a"], [None], None], names[:3]
        )  # nothing is known of two
    chain = [["a"], ["x"], ["a", "b"], ["b", "x"]]  # the last joins all
    check_labels_overlap(chain, names, warn=False)


def test_labels_of_a_new_subject_are_those_that_the_model_has():
    names = ["a", "b", "c"]
    codes = encode_new_labels(["c", None, "a", "n/a"], names)
    assert codes.tolist() == [2, -1, 0, -1]
    assert codes.dtype == np.intp
    with pytest.raises(InputError) as error:
        encode_new_labels(["z", "a", None, "x", "z"], names)
    assert str(error.value) == (
        "The new subject has labels that the model does not know: 'x', 'z'; it has "
        "'a', 'b', 'c'. Set them to None to leave those samples unlabelled."
    )


def test_whole_numbers_are_labels_whatever_their_value():
    assert as_label_list([0, -1, 2], "y") == [0, -1, 2]
    assert as_label_list([True, False], "y") == [True, False]
    assert as_label_list([0.0, float("inf")], "y") == [0.0, float("inf")]
    assert not any(map(is_missing, [0, 0.0, False, "None", "N/A", (), 1.5]))
    for text in ("nan", "NaN", "NaT", "<NA>"):
        assert is_missing(text)
        with pytest.warns(LabelWarning, match=f"^y: '{text}' is taken as a missing"):
            assert as_label_list(["a", text], "y") == ["a", None]
    with pytest.warns(LabelWarning, match="'NaN' is taken"):  # the first of them
        as_label_list(["nan", "NaN"], "y")


def test_objects_are_kept_as_they_are_in_an_array():
    values = [(1, 2), [3], None]
    array = object_array(iter(values))
    assert array.shape == (3,)
    assert array.dtype == object
    assert all(a is b for a, b in zip(array, values, strict=True))


def incomplete_study(n=4):
    rng = np.random.default_rng(0)
    subjects = []
    for i in range(n):
        y = [c for c in "abcd" if c != "abcd"[i % 4]] * 8
        values = np.array([ord(c) - 97 for c in y])[:, None]
        X = np.eye(4)[values.ravel()] @ rng.normal(size=(4, 20))
        subjects.append(Subject(f"s{i}", X + rng.normal(size=X.shape), labels=y))
    return Study(subjects)


@pytest.mark.filterwarnings("default::brainweave._core.exceptions.LabelWarning")
def test_a_fit_and_an_evaluation_say_so_once():
    study = incomplete_study()
    for work in (
        lambda: GDM(2).fit(study),
        lambda: between_subject_classification(GDM(2), study),
        lambda: between_subject_classification(GDM(2), study, protocol="held-out"),
    ):
        with pytest.warns(LabelWarning, match="'a' in 's0'; 'b' in") as said:
            work()
        assert len([w for w in said if w.category is LabelWarning]) == 1
        assert said[0].filename == __file__


def test_locked_samples_tie_subjects_without_common_labels():
    rng = np.random.default_rng(0)
    X = [rng.normal(size=(30, 8)) for _ in range(3)]
    y = [
        [None] * 22 + ["ab"[k % 2] + ("'" if i else "") for k in range(8)]
        for i in range(3)
    ]
    model = SemiSupervisedSRM(2, random_state=0, max_iter=3, tol=0).fit(X, y)
    assert len(model.classes_) == 4


def test_time_graphs_of_groups_apart_are_refused():
    rng = np.random.default_rng(0)
    X = [rng.normal(size=(10, 8)) for _ in range(4)]
    ids = [range(10), range(10), range(10, 20), range(10, 20)]
    with pytest.raises(InputError, match=r"2 groups without an edge.* X\[0\], X\[1\];"):
        GDM(2, graph="time", place=None).fit(X, ids)


def test_days_are_labels_in_their_order():
    days = np.array(["2020-03-02", "2019-01-01", "NaT"], dtype="datetime64[D]")
    codes, names = encode_labels([days])
    assert codes[0].tolist() == [1, 0, -1]
    assert [name.year for name in names] == [2019, 2020]


def test_labels_without_an_order_are_sorted_by_their_text():
    assert sort_labels([2j, 1j, "a", 3]) == [3, "a", 1j, 2j]


def _relabelled(study, who, old, new):
    return study.map(
        lambda s: (
            s._replace(labels=[new if v == old else v for v in s.labels])
            if s.id in who
            else s
        )
    )


def test_groups_of_subjects_without_a_common_label_are_not_aligned():
    study = labelled_study()
    for old in ("cat", "dog", "face"):
        study = _relabelled(study, ("s0", "s1"), old, old.upper())
    message = "'s0', 's1': 'CAT', 'DOG', 'FACE'; 's2', 's3': "
    with pytest.raises(InputError, match=message):
        GDM(2).fit(study)
    with pytest.raises(InputError, match=message):
        between_subject_classification(GDM(2), study)


@pytest.mark.parametrize("missing", [None, float("nan"), "", "n/a"])
def test_samples_without_a_label_are_no_category_anywhere(missing):
    study = labelled_study()
    labels = [[missing if v == "face" else v for v in s.labels] for s in study]
    X = [s.samples for s in study]
    by_lists = GDM(1).fit(X, labels)
    known = Study(s._replace(labels=y) for s, y in zip(study, labels, strict=True))
    assert by_lists.graph_.groups[0].names == ("cat", "dog")
    assert GDM(1).fit(known).graph_.groups[0].names == ("cat", "dog")


@pytest.mark.filterwarnings("default::brainweave._core.exceptions.LabelWarning")
@pytest.mark.parametrize("other", ["1", "1 ", " 1"])
def test_the_label_1_and_the_text_1_are_not_two_categories_in_silence(other):
    X, y = three_subjects()
    mine = [other if label == 1 else str(label) for label in y[0]]
    with pytest.raises(InputError, match=r"share no label.* \(case, blanks and type"):
        GDM(3).fit(X, [mine, *y[1:]])
    some = [other if label == 1 else label for label in y[0]]
    with pytest.warns(LabelWarning, match=rf"{other!r} in X\[1\]"):
        GDM(3).fit(X, [some, *y[1:]])
