"""Who is who: each answer and each refusal, to the letter."""

import re
from types import SimpleNamespace

import numpy as np
import pytest

from brainweave._core.exceptions import InputError
from brainweave._core.validation import (
    find_subjects,
    match_subjects,
    refuse_ambiguous_number,
)

IDS = ["a", "1", "c"]


def entries(*ids):
    return [SimpleNamespace(id=id) for id in ids]


def refused(message):
    return pytest.raises(InputError, match=f"^{re.escape(message)}$")


def test_a_number_is_ambiguous_if_it_is_another_position_and_an_id():
    for position, ids in (
        (1, IDS),
        (-2, IDS),
        (0, ["1", "0"][::-1]),
        (5, IDS),
        (0, []),
    ):
        refuse_ambiguous_number(position, ids, owner="The study")
    with refused(
        "0 could mean two subjects. The study has '0' at position 2 and 'a' at "
        "position 0. Write the id of the one you mean, as a string."
    ):
        refuse_ambiguous_number(0, ["a", "b", "0"], owner="The study")
    with refused(
        "3 could mean two subjects. The study has '3' at position 1. Write the id of "
        "the one you mean, as a string."
    ):
        refuse_ambiguous_number(3, ["a", "3", "c"], owner="The study")
    refuse_ambiguous_number(4, ["a", "4", "c"], owner="The study")  # the same one
    with pytest.raises(InputError, match="at position 0 and 'c' at position -1"):
        refuse_ambiguous_number(-1, ["-1", "b", "c"], owner="The study")


def test_subjects_are_found_by_position_or_id():
    find = lambda subjects, ids=IDS: find_subjects(subjects, ids, 3, owner="GDM")  # noqa: E731
    assert find(["c", 0, "1", np.int64(2), 1]) == [2, 0, 1, 2, 1]
    assert find([0, 2], None) == [0, 2]
    assert find("c") == [2]
    assert find([]) == []
    tail = " A new one joins by fit_new_subject."
    fitted = "this GDM was fitted on subjects 0 to 2"
    for key in ("b", 3, -1):
        with refused(f"Unknown subject {key!r}: {fitted} ('a', '1', 'c').{tail}"):
            find([key])
    for key in ("a", 3):
        with refused(
            f"Unknown subject {key!r}: {fitted} (arrays, which have no ids).{tail}"
        ):
            find([key], None)
    with refused(
        "0 could mean two subjects. This GDM has '0' at position 1 and 'a' at position "
        "0. Write the id of the one you mean, as a string."
    ):
        find_subjects([0], ["a", "0"], 2, owner="GDM")
    for key in (True, 1.0, None, b"a"):
        with pytest.raises(TypeError, match=re.escape(f"or ids; got {key!r}.")):
            find([key])


def test_entries_are_matched_by_id_if_all_have_one():
    def match(found, subjects=None, ids=IDS):
        return match_subjects(found, subjects, ids, 3, owner="GDM")

    assert match(entries("c", "a")) == [2, 0]
    assert match(entries("c", None, "a")) == [0, 1, 2]  # one has none: by position
    assert match(entries("c", "x"), None, ids=[*IDS[:2], "c", "x"]) == [2, 3]
    assert match(entries("c", "z", "a"), ids=None) == [0, 1, 2]
    assert match(entries("c", "a"), [2, "a"]) == [2, 0]
    assert match(entries("z", "y"), [2, 0]) == [2, 0]  # other names are no hindrance
    assert match(entries("z", "c"), ["a", "c"]) == [0, 2]
    assert match(entries("a", "c"), [2, 0], ids=None) == [2, 0]
    for found in (entries("a", "c"), entries("z", "c")):
        with refused(
            "X[1] is subject 'c', but subjects= says that it is 'a'. Leave out "
            "subjects=: a Study is matched by its ids."
        ):
            match(found, [0, 0])
    for n, subjects, wanted in (
        (2, None, 3),
        (4, None, 3),
        (2, [0], 1),
        (1, [0, 1], 2),
    ):
        with refused(
            f"{n} arrays for {wanted} subjects. Name the subjects they belong to: "
            "transform(X, subjects=[...]), out of 3."
        ):
            match(entries(*[None] * n), subjects)
    with pytest.raises(InputError, match="GDM was given subject 'a' more than once"):
        match(entries("a", "a"))
