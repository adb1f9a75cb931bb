"""Who is who: subjects are found by id, and by position where ids are unknown."""

from collections.abc import Iterable, Sequence
from numbers import Integral
from typing import Any

from brainweave.exceptions import InputError


def ids_of(entries: Iterable[Any], *, owner: str) -> list[str] | None:
    """Return the ids of subjects or bases; None unless every entry has one."""
    ids = [getattr(entry, "id", None) for entry in entries]
    if not all(isinstance(id, str) and id for id in ids):
        return None
    twice = sorted({id for id in ids if ids.count(id) > 1})
    if twice:
        raise InputError(
            f"{owner} was given subject {named(twice)} more than once. Give every "
            "subject once."
        )
    return ids


def find_subject(key: Any, ids: Sequence[str] | None, n: int, *, owner: str) -> int:
    """Return the position of a subject that is named by its id or by its position.

    A text is an id, a whole number a position. A number that is also the id of a
    subject at another position is refused, since it could mean either of two people.

    Parameters
    ----------
    key : str or int
        Who is meant.
    ids : sequence of str, or None
        The ids in order, if they are known.
    n : int
        Number of subjects.
    owner : str
        Who asks, for messages.

    Examples
    --------
    >>> find_subject("7", ["5", "6", "7"], 3, owner="the study")
    2
    """
    if isinstance(key, str):
        if ids is None:
            raise InputError(
                f"Subject {key!r} cannot be found: {owner} was fitted on arrays, which "
                "have no ids. Name subjects by position, 0, 1, ..., or fit on a Study."
            )
        if key not in ids:
            raise InputError(
                f"There is no subject {key!r} in {owner}; it has {named(ids)}."
            )
        return list(ids).index(key)
    if isinstance(key, bool) or not isinstance(key, Integral):
        raise TypeError(
            f"subjects are ids or positions 0, 1, ...; got {key!r}, a "
            f"{type(key).__name__}."
        )
    position = int(key)
    if ids is not None and str(position) in ids:
        other = list(ids).index(str(position))
        if other != position % n:
            here = f"'{ids[position]}'" if -n <= position < n else "nobody"
            raise InputError(
                f"{position} could be the id of a subject, which is at position "
                f"{other} in {owner}, or position {position}, where {here} is. Write "
                f"'{position}' for the id, or name the other by its id."
            )
    if not -n <= position < n:
        raise InputError(
            f"There is no subject {position} in {owner}, which has {n}: 0 to {n - 1}."
        )
    return position % n


def named(ids: Iterable[Any], limit: int = 8) -> str:
    """Return ids for a message, some of them if they are many."""
    texts = [repr(id) for id in ids]
    more = f" and {len(texts) - limit} more" if len(texts) > limit else ""
    return ", ".join(texts[:limit]) + more
