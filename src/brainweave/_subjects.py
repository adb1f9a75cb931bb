"""Who is who: subjects are found by id, and by position where ids are unknown."""

from collections.abc import Iterable, Sequence
from numbers import Integral
from typing import Any

import numpy as np

from brainweave._arrays import is_torch
from brainweave._validation import (
    check_2d,
    check_known,
    check_list_option,
    some_of,
)
from brainweave.exceptions import InputError


def ids_of(entries: Iterable[Any], *, owner: str) -> list[str] | None:
    """Return the ids of subjects or bases; None unless every entry has one."""
    ids: list[Any] = [getattr(entry, "id", None) for entry in entries]
    if not all(isinstance(id, str) and id for id in ids):
        return None
    twice = sorted({id for id in ids if ids.count(id) > 1})
    if twice:
        raise InputError(
            f"{owner} was given subject {named(twice)} more than once. Give every "
            "subject once."
        )
    return ids


def refuse_two_meanings(position: int, ids: Sequence[str], *, owner: str) -> None:
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
        told, remedy = named(known), "A new one joins by fit_new_subject"
        if isinstance(key, bool) or not isinstance(key, str | Integral):
            raise TypeError(f"subjects are numbers 0, 1, ... or ids; got {key!r}.")
        if not isinstance(key, str):
            key, told = int(key), f"subjects 0 to {n_subjects - 1}"
            refuse_two_meanings(key, known, owner=f"This {owner}")
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


def labels_of(
    known: Sequence[Any], ids: Sequence[str] | None, *, owner: str
) -> list[Any] | None:
    """Return the labels of subjects that know theirs, in the order of some ids."""
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


def named(ids: Iterable[Any]) -> str:
    """Return ids for a message, some of them if they are many."""
    return some_of(map(repr, ids))


def samples_of(subject: Any) -> Any:
    """Return the samples of a Subject, which knows its labels, or the array itself.

    What is sliced by columns stays where it is, to be read chunk by chunk.
    """
    if not hasattr(subject, "labels"):
        return subject
    whole = getattr(subject, "is_lazy", True) or is_torch(subject.samples)
    return subject.data() if whole else subject.samples


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
        s.n_samples if hasattr(s, "n_samples") else check_2d(s, f"X[{i}]")[0]
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
