"""Who is who: subjects are found by id, and by position where ids are unknown."""

from collections.abc import Sequence
from numbers import Integral
from typing import Any

from brainweave._validation import check_list_option, format_ids
from brainweave._validation import ids_of as ids_of
from brainweave.exceptions import InputError


def refuse_ambiguous_number(position: int, ids: Sequence[str], *, owner: str) -> None:
    """Refuse a number that is one subject's position and the id of another."""
    if str(position) not in ids:
        return
    here, other = position % len(ids), list(ids).index(str(position))
    if here == other:
        return
    there = f" and {ids[here]!r} at position {position}" if position < len(ids) else ""
    raise InputError(
        f"{position} could mean two subjects. {owner} has '{position}' at position "
        f"{other}{there}. Write the id of the one you mean, as a string."
    )


def find_subjects(
    subjects: Any, ids: Sequence[str] | None, n_subjects: int, *, owner: str
) -> list[int]:
    """Return the positions of subjects that are named by ids (str) or positions (int).

    `ids` are those of the fitted subjects in order, if they are known, and `owner` is
    the fitted aligner, for messages.
    """
    found = []
    for key in check_list_option("subjects", subjects, owner=owner):
        known: Sequence[Any] = ids or ()
        told, remedy = format_ids(known), "A new one joins by fit_new_subject"
        if isinstance(key, bool) or not isinstance(key, str | Integral):
            raise TypeError(f"subjects are numbers 0, 1, ... or ids; got {key!r}.")
        if not isinstance(key, str):
            key, told = int(key), f"subjects 0 to {n_subjects - 1}"
            refuse_ambiguous_number(key, known, owner=f"This {owner}")
            known = range(n_subjects)
        elif ids is None:
            told = "arrays, which have no ids"
            remedy = "Name subjects by position, or fit on a Study"
        if key not in known:
            raise InputError(
                f"Unknown subject {key!r}: this {owner} was fitted on {told}. {remedy}."
            )
        found.append(known.index(key))
    return found


def match_subjects(
    entries: Sequence[Any],
    subjects: Any,
    ids: Sequence[str] | None,
    n_subjects: int,
    *,
    owner: str,
) -> list[int]:
    """Return to which fitted subject each entry belongs.

    Entries with an id (subjects of a Study, bases) are matched by it if the aligner
    knows the ids of its subjects, whatever their order and number; arrays go by
    `subjects`, or by position.
    """
    own = None if ids is None else ids_of(entries, owner=owner)
    if subjects is None and own is not None:
        return find_subjects(own, ids, n_subjects, owner=owner)
    who = list(range(n_subjects))
    if subjects is not None:
        who = find_subjects(subjects, ids, n_subjects, owner=owner)
    if len(entries) != len(who):
        raise InputError(
            f"{len(entries)} arrays for {len(who)} subjects. Name the subjects they "
            f"belong to: transform(X, subjects=[...]), out of {n_subjects}."
        )
    for k, i in enumerate(who):
        if own is not None and ids is not None and own[k] in ids and own[k] != ids[i]:
            raise InputError(
                f"X[{k}] is subject {own[k]!r}, but subjects= says that it is "
                f"{ids[i]!r}. Leave out subjects=: a Study is matched by its ids."
            )
    return who
