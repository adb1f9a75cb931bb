"""Who is who: subjects are found by id, and by position where ids are unknown."""

from collections.abc import Sequence
from numbers import Integral
from typing import Any

from brainweave._core.exceptions import InputError
from brainweave._core.validation import check_list_option, format_ids, ids_of


def refuse_ambiguous_number(position: int, ids: Sequence[str], *, owner: str) -> None:
    """Refuse a number that is one subject's position and the id of another."""
    other = list(ids).index(str(position)) if str(position) in ids else None
    if other is None or (here := position % len(ids)) == other:
        return
    there = f" and {ids[here]!r} at position {position}" if position < len(ids) else ""
    raise InputError(
        f"{position} could mean two subjects. {owner} has '{position}' at position "
        f"{other}{there}. Write the id of the one you mean, as a string."
    )


def find_subjects(
    subjects: Any, ids: Sequence[str] | None, n_subjects: int, *, owner: str
) -> list[int]:
    """Return the positions of subjects that are given by id (str) or position (int).

    `ids` are those of the fitted subjects in order, if they are known.
    """
    positions = []
    for key in check_list_option("subjects", subjects, owner=owner):
        if isinstance(key, bool) or not isinstance(key, str | Integral):
            raise TypeError(f"subjects are numbers 0, 1, ... or ids; got {key!r}.")
        if not isinstance(key, str):
            refuse_ambiguous_number(int(key), ids or (), owner=f"This {owner}")
        choices: Any = (ids or ()) if isinstance(key, str) else range(n_subjects)
        if key not in choices:
            known = "arrays, which have no ids" if ids is None else format_ids(ids)
            raise InputError(
                f"Unknown subject {key!r}: this {owner} was fitted on subjects 0 to "
                f"{n_subjects - 1} ({known}). A new one joins by fit_new_subject."
            )
        positions.append(choices.index(key))
    return positions


def match_subjects(
    entries: Sequence[Any],
    subjects: Any,
    ids: Sequence[str] | None,
    n_subjects: int,
    *,
    owner: str,
) -> list[int]:
    """Return the position of the fitted subject that each entry belongs to.

    Entries with an id are matched by it if the aligner knows the ids of its subjects,
    whatever their order and number; arrays go by `subjects`, or by position.
    """
    entry_ids = None if ids is None else ids_of(entries, owner=owner)
    if subjects is None and entry_ids is not None:
        return find_subjects(entry_ids, ids, n_subjects, owner=owner)
    positions = list(range(n_subjects))
    if subjects is not None:
        positions = find_subjects(subjects, ids, n_subjects, owner=owner)
    if len(entries) != len(positions):
        raise InputError(
            f"{len(entries)} arrays for {len(positions)} subjects. Name the subjects "
            f"they belong to: transform(X, subjects=[...]), out of {n_subjects}."
        )
    if entry_ids is None or ids is None:
        return positions
    for k, (id, i) in enumerate(zip(entry_ids, positions, strict=True)):
        if id in ids and id != ids[i]:
            raise InputError(
                f"X[{k}] is subject {id!r}, but subjects= says that it is {ids[i]!r}. "
                "Leave out subjects=: a Study is matched by its ids."
            )
    return positions
