"""Where samples lie by their stimulus ids: every place, and every refusal."""

import re

import numpy as np
import pytest

from brainweave import Study, Subject
from brainweave._core.exceptions import InputError
from brainweave.evaluation.metrics import (
    LONGEST,
    Timeline,
    refuse_strangers,
    study_timeline,
    timeline,
)


def places(ids, names="abc"):
    line = timeline(ids, list(names)[: len(ids)])
    return [own.tolist() for own in line.places], line.films.tolist()


def refused(message):
    return pytest.raises(InputError, match=f"^{re.escape(message)}")


def test_samples_are_put_among_rows_that_nobody_saw():
    line = Timeline([np.array([2, -1, 0]), np.array([3])], np.zeros(4, int), [])
    x = np.arange(6.0).reshape(3, 2)
    np.testing.assert_array_equal(
        line.place(x, 0), [x[2], [np.nan] * 2, x[0], [np.nan] * 2]
    )
    np.testing.assert_array_equal(line.place(x[:1], 1)[3], x[0])
    assert line.seen.tolist() == [[True, False, True, False], [False] * 3 + [True]]


def test_times_lie_on_a_grid_of_their_usual_step():
    assert places([[0, 2, 4, 10]]) == ([[0, 1, 2, 5]], [0] * 6)
    assert places([[7]]) == ([[0]], [0])
    assert places([[3, None, 1]]) == ([[1, -1, 0]], [0, 0])
    assert places([[0.0, 1.1, 1.9, 4.0]]) == ([[0, 1, 2, 4]], [0] * 5)
    # moments that the grid cannot tell apart, or that are too far apart, are numbered
    assert places([[0, 0.1, 1, 2, 3]]) == ([[0, 1, 2, 3, 4]], [0] * 5)
    far = [0, 1, 2, LONGEST * 4]
    assert places([far]) == ([far], [0] * (LONGEST * 4 + 1))
    assert places([[*far[:3], far[3] + 1]]) == ([[0, 1, 2, 3]], [0] * 4)


def test_films_follow_one_another_in_the_order_in_which_they_appear():
    ids = [["b@4", "b@0", "b@2", "a@3", None], ["a@1", "a@2", "c@9", "b@8"]]
    found, films = places(ids)
    assert found == [[2, 0, 1, 7, -1], [5, 6, 8, 4]]
    assert films == [0] * 5 + [1] * 3 + [2]
    assert timeline(ids, ["a", "b"]).names == ["b", "a", "c"]
    mixed = [["b@4", "x", "q"], ["q", "b@0"]]  # one is no moment: all in their order
    assert places(mixed) == ([[0, 1, 2], [2, 3]], [0] * 4)


def test_an_id_occurs_once_in_a_subject():
    told = "has the stimulus id {} more than once; the ids of a film are unique"
    with refused("Subject 'b' " + told.format(2)):
        timeline([[1, 2, 3], [2, None, None, 3, 2]], ["a", "b"])
    assert places([[None, None, 1]])[0] == [[-1, -1, 0]]


def test_longer_steps_to_where_nobody_else_is_are_other_units():
    fine = list(range(20))
    told = "The stimulus ids of subject 'b' advance by {}, those of 'a' by 1. Give them"
    with refused(told.format(2)):
        timeline([fine, [2 * t for t in fine]], ["a", "b"])
    with refused(told.format("1.5")):
        timeline([fine, [1.5 * t for t in fine]], ["a", "b"])
    timeline([fine, [1.05 * t for t in fine]], ["a", "b"])  # rounded
    with refused(told.format("1.06")):
        timeline([fine, [1.06 * t for t in fine]], ["a", "b"])
    # what is within the film of another, but for a tenth, is not elsewhere
    timeline([fine, [*range(0, 18, 2), 40]], ["a", "b"])
    with refused(told.format(2)):
        timeline([fine, [*range(0, 16, 2), 40, 60]], ["a", "b"])
    timeline([fine, [40, 60]], ["a", "b"])  # two moments have no step
    with refused(told.format(20)):
        timeline([fine, [40, 60, 80]], ["a", "b"])
    films = [f"f@{t}" for t in fine] + [f"g@{3 * t}" for t in fine]
    timeline([films, films[::-1]], ["a", "b"])  # each film has its own step


def subject(id, n=3, **known):
    return Subject(id, np.ones((n, 2)), **known)


def test_subjects_correspond_by_rows_unless_these_differ():
    same = dict(labels=list("xyz"), stimuli=[5, 7, 9])
    for study in (
        [subject("a"), subject("b")],
        [subject("a", **same), subject("b", **same)],
        [subject("a", **same), subject("b")],  # of whom nothing is known
        [subject("a"), subject("b", **same)],
    ):
        line = study_timeline(Study(study))
        assert [own.tolist() for own in line.places] == [[0, 1, 2]] * 2
        assert line.names == []
    line = study_timeline(
        Study([subject("a", **same), subject("b", stimuli=[9, 11, 5])])
    )
    assert [own.tolist() for own in line.places] == [[0, 1, 2], [2, 3, 0]]
    line = study_timeline(
        Study([subject("a", 2, stimuli=[1, 2]), subject("b", stimuli=[1, 2, 3])])
    )
    assert [own.tolist() for own in line.places] == [[0, 1], [0, 1, 2]]
    for other, shown in (
        (subject("b", 4), "4 samples"),
        (subject("b", labels=list("xyy")), "other categories"),
        (subject("b", stimuli=[5, 7, 8]), "other stimuli"),
    ):
        first = subject("a", **same)
        if shown == "other stimuli":
            study = Study([first, other, subject("c")])
        else:
            study = Study([first, other])
        with refused(
            f"The samples of subject 'b' differ from those of 'a' ({shown}). This "
            "compares subjects sample by sample: give the stimulus id of every sample"
        ):
            study_timeline(study)


def test_a_subject_who_shares_no_sample_is_a_stranger():
    ids = [[1, 2, 3], [2, 9], [5, 6, 7]]
    seen = timeline(ids, list("abc")).seen
    with refused(
        "Subject 'c' has no stimulus id in common with the others: it has 5 to 7, "
        "subject 'a' has 1 to 3. Give the ids"
    ):
        refuse_strangers(seen, ids, list("abc"))
    refuse_strangers(seen[:2], ids[:2], list("ab"))
    seen[2] = seen[1]
    refuse_strangers(seen, ids, list("abc"))
    ids = [[5, 6, 7], [1, 2], [2, 1]]
    with refused(
        "Subject 'a' has no stimulus id in common with the others: it has 5 to 7, "
        "subject 'b' has 1 to 2. Give the ids"
    ):
        refuse_strangers(timeline(ids, list("abc")).seen, ids, list("abc"))
