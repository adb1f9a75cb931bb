"""Who is who: subjects are found by id, and by position where ids are unknown."""

from collections.abc import Iterable, Sequence
from numbers import Integral
from typing import Any

import numpy as np

from brainweave._validation import (
    check_known,
    check_list_option,
    refuse_files,
    refuse_other_shapes,
)
from brainweave.exceptions import InputError


def ids_of(entries: Iterable[Any], *, owner: str) -> list[str] | None:
    """Return the ids of subjects or bases; None unless every entry has one."""
    ids: list[str] = []
    for entry in entries:
        id = getattr(entry, "id", None)
        if not isinstance(id, str) or not id:
            return None
        ids.append(id)
    twice = sorted({id for id in ids if ids.count(id) > 1})
    if twice:
        raise InputError(
            f"{owner} was given subject {named(twice)} more than once. Give every "
            "subject once."
        )
    return ids


def refuse_two_meanings(position: int, ids: Sequence[str], *, owner: str) -> None:
    """Refuse a number that is one subject's position and the id of another.

    Examples
    --------
    >>> refuse_two_meanings(1, ["1", "2"], owner="The study")
    Traceback (most recent call last):
    brainweave.exceptions.InputError: 1 could mean two subjects. The study has '1' at
    position 0 and '2' at position 1. Write the id of the one you mean, as a string.
    """
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

    Parameters
    ----------
    subjects : iterable of str or int
        Who is meant.
    ids : sequence of str, or None
        The ids of the fitted subjects in order, if they are known.
    n_subjects : int
        Number of fitted subjects.
    owner : str
        The fitted aligner, for messages.
    """
    found = []
    for key in check_list_option("subjects", subjects, owner=owner):
        if isinstance(key, str) and ids is not None and key in ids:
            found.append(list(ids).index(key))
            continue
        if isinstance(key, str):
            known = "arrays, which have no ids" if ids is None else named(ids)
            raise InputError(
                f"Unknown subject {key!r}: this {owner} was fitted on {known}. "
                + (
                    "Name subjects by position, or fit on a Study."
                    if ids is None
                    else "A new one joins by fit_new_subject."
                )
            )
        if isinstance(key, bool) or not isinstance(key, Integral):
            raise TypeError(f"subjects are numbers 0, 1, ... or ids; got {key!r}.")
        position = int(key)
        if ids is not None:
            refuse_two_meanings(position, ids, owner=f"This {owner}")
        if not 0 <= position < n_subjects:
            raise InputError(
                f"Unknown subject {position}: this {owner} was fitted on subjects 0 to "
                f"{n_subjects - 1}. A new one joins by fit_new_subject."
            )
        found.append(position)
    return found


def pair(
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
    if subjects is None:
        who = list(range(n_subjects))
    else:
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


def labels_of(
    known: Sequence[Any], ids: Sequence[str] | None, *, owner: str
) -> list[Any] | None:
    """Return the labels of subjects that know theirs, in the order of some ids.

    Parameters
    ----------
    known : sequence of Subject, or of anything else with labels
        Whose labels are wanted.
    ids : sequence of str, or None
        The order wanted; None keeps theirs.
    owner : str
        Who asks, for messages.
    """
    own = ids_of(known, owner=f"y of {owner}")
    chosen = list(known)
    if ids is not None and own is not None:
        absent = [id for id in ids if id not in own]
        if absent:
            raise InputError(
                f"y of {owner} has no subject {named(absent)}; it has {named(own)}."
            )
        chosen = [known[own.index(id)] for id in ids]
    if all(s.labels is None for s in chosen):
        return None
    return [
        np.full(s.n_samples, None, object) if s.labels is None else s.labels
        for s in chosen
    ]


def named(ids: Iterable[Any], limit: int = 8) -> str:
    """Return ids for a message, some of them if they are many."""
    texts = [repr(id) for id in ids]
    more = f" and {len(texts) - limit} more" if len(texts) > limit else ""
    return ", ".join(texts[:limit]) + more


def samples_of(subject: Any) -> Any:
    """Return the samples of a Subject, which knows its labels, or the array itself."""
    return subject.data() if hasattr(subject, "labels") else subject


def known_samples(
    subjects: list[Any],
    y: Any,
    known_of: Any = lambda subject: subject.labels,
    *,
    owner: str,
) -> list[Any] | None:
    """Return y as given, or from subjects that know it, with one entry per subject."""
    if y is None and all(hasattr(s, "labels") for s in subjects):
        found = [known_of(s) for s in subjects]
        y = None if any(known is None for known in found) else found
    if y is None:
        return None
    counts = [
        s.n_samples if hasattr(s, "n_samples") else _n_rows(s, f"X[{i}]")
        for i, s in enumerate(subjects)
    ]
    ids = ids_of(subjects, owner=owner)
    y = check_known(y, ids, counts, owner=owner)
    if all(hasattr(known, "labels") for known in y):  # a Study
        y = labels_of(y, ids, owner=owner)
        if y is None:
            return None
    if len(y) != len(subjects):
        raise InputError(f"y has {len(y)} entries for {len(subjects)} subjects.")
    for i, (n, known) in enumerate(zip(counts, y, strict=True)):
        if len(known) != n:
            raise InputError(f"y[{i}] has {len(known)} labels for {n} samples.")
    return list(y)


def _n_rows(X: Any, name: str) -> int:
    refuse_files(X, name)
    if not getattr(X, "shape", None):
        raise TypeError(
            f"{name} must be a 2-D array (samples x voxels), got {type(X).__name__}."
        )
    refuse_other_shapes(X, name)
    return int(X.shape[0])
