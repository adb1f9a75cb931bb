"""What a label is: when one is missing, how labels are ordered, coded and compared.

A label names the category, stimulus or run of a sample. It is a text or a whole number
(where only equality counts, as in graphs, anything hashable). ``None``, NaN, NaT,
``pandas.NA``, ``""`` and ``"n/a"`` (BIDS) mean that there is none. So do the texts
``"nan"``, ``"NaN"``, ``"NaT"`` and ``"<NA>"``, which NumPy and pandas write when they
turn such values into text (``np.array(["face", np.nan])``), but not without a warning.
"""

import warnings
from collections.abc import Hashable, Iterable, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from brainweave._arrays import Codes, is_torch, to_numpy
from brainweave._validation import format_list
from brainweave.exceptions import InputError, LabelWarning

NO_LABEL = -1  # the code of a sample without a label
MISSING_TEXT = ("", "n/a")  # spreadsheets leave cells empty; BIDS writes "n/a"
MISSING_MADE_TEXT = ("nan", "NaN", "NaT", "<NA>")  # what str() makes of missing values


class Encoded(NamedTuple):
    """Labels of several subjects as places in the sorted names, or ``NO_LABEL``."""

    codes: list[Codes]
    names: tuple[Hashable, ...]


def is_missing(value: Any) -> bool:
    """Tell whether a label stands for none.

    Examples
    --------
    >>> [is_missing(v) for v in (None, float("nan"), "", "n/a", "face", 0)]
    [True, True, True, True, False, False]
    """
    value = _plain(value)
    if value is None or type(value).__name__ in ("NAType", "NaTType"):
        return True
    if isinstance(value, float):
        return bool(np.isnan(value))
    return isinstance(value, str) and value in (*MISSING_TEXT, *MISSING_MADE_TEXT)


def as_label_list(values: Any, name: str, *, missing: Any = None) -> list[Any]:
    """Return labels as a list of Python objects, with ``None`` where one is missing.

    `missing` is one more value that means that there is none.

    Examples
    --------
    >>> as_label_list(np.array([2.0, np.nan]), "y")
    [2.0, None]
    """
    listed = _listed(values, name)
    if missing is None and set(map(type, listed)) <= {int, str}:
        # the usual case: judge each distinct text once
        texts = {v for v in listed if type(v) is str}
        if not any(is_missing(v) or v.endswith("\0") for v in texts):
            return listed
    labels: list[Any] = []
    made_text: set[str] = set()
    missing = _plain(missing)
    for value in listed:
        same = missing is not None and isinstance(value, Hashable) and value == missing
        if is_missing(value) or same:
            labels.append(None)
            if isinstance(value, str) and value in MISSING_MADE_TEXT:
                made_text.add(value)
        else:
            labels.append(value)
            _check_one(value, name)
    if made_text - {missing}:
        text = min(made_text)
        warnings.warn(
            f"{name}: {text!r} is taken as a missing label, as NumPy and pandas write "
            "missing values so when they turn them into text. Use None for samples "
            "without a label; give a category of that name another one.",
            LabelWarning,
            stacklevel=3,
        )
    return labels


def sort_labels(labels: Iterable[Any]) -> list[Any]:
    """Return the distinct labels in order, without the missing ones.

    Numbers come first, by value, then texts, then anything else, by type.

    Examples
    --------
    >>> sort_labels(["b", 10, None, "a", 2, "b"])
    [2, 10, 'a', 'b']
    """
    distinct = set(labels)
    if set(map(type, distinct)) == {int}:
        return sorted(distinct)
    known = {_plain(v) for v in distinct if not is_missing(v)}
    numbers = [v for v in known if isinstance(v, int | float)]
    texts = [v for v in known if isinstance(v, str)]
    others = [(type(v).__name__, v) for v in known.difference(numbers, texts)]
    try:
        others.sort()
    except TypeError:  # of a type without an order
        others.sort(key=lambda pair: (pair[0], str(pair[1])))
    return sorted(numbers) + sorted(texts) + [v for _, v in others]


def encode_labels(labels: Sequence[Any], *, missing: Any = None) -> Encoded:
    """Turn the labels of all subjects into numbers, in one order.

    Examples
    --------
    >>> codes, names = encode_labels([["b", "a"], ["a", "n/a"]])
    >>> [c.tolist() for c in codes], names
    ([[1, 0], [0, -1]], ('a', 'b'))
    """
    lists = [
        as_label_list(part, f"y[{i}]", missing=missing) for i, part in enumerate(labels)
    ]
    names = tuple(sort_labels(value for part in lists for value in part))
    code_of = {label: code for code, label in enumerate(names)}
    codes = [
        np.array([NO_LABEL if v is None else code_of[v] for v in part], dtype=np.intp)
        for part in lists
    ]
    return Encoded(codes, names)


def encode_new_labels(y: Any, names: Sequence[Any]) -> Codes:
    """Return the places of a new subject's labels among the names that a model has."""
    values = as_label_list(y, "y of the new subject")
    code_of = {name: code for code, name in enumerate(names)}
    unknown = sort_labels(v for v in values if v is not None and v not in code_of)
    if unknown:
        raise InputError(
            f"The new subject has labels that the model does not know: {unknown}; it "
            f"has {list(names[:8])}. Set them to None to leave those samples "
            "unlabelled."
        )
    return np.array([code_of.get(v, NO_LABEL) for v in values], dtype=np.intp)


def object_array(values: Iterable[Any]) -> NDArray[Any]:
    """Return a one-dimensional array of Python objects, none of them changed."""
    listed = list(values)
    array = np.empty(len(listed), object)
    array[:] = listed
    return array


# -- do the labels of different subjects meet? -----------------------------------------


def check_labels_overlap(
    labels: Sequence[Any],
    names: Sequence[str],
    *,
    refuse: bool = True,
    warn: bool = True,
    stacklevel: int = 2,
) -> None:
    """Refuse groups of subjects that share no label; warn if some lack a category.

    Subjects without any labels are passed over. `names` are what messages call the
    subjects, `stacklevel` whose line the warning names, as in :func:`warnings.warn`.
    """
    held = {
        name: set(as_label_list(known, f"labels of {name}")) - {None}
        for known, name in zip(labels, names, strict=True)
        if known is not None
    }
    held = {name: own for name, own in held.items() if own}
    if refuse:
        _refuse_groups_apart(held)
    if warn:
        _warn_of_partly_held(held, stacklevel=stacklevel + 1)


def _refuse_groups_apart(held: dict[str, set[Any]]) -> None:
    groups: list[tuple[list[str], set[Any]]] = []
    for name, own in held.items():
        met = [group for group in groups if group[1] & own]
        people = [other for group in met for other in group[0]]
        groups = [group for group in groups if group not in met]
        groups.append(([*people, name], own.union(*(group[1] for group in met))))
    if len(groups) < 2:
        return
    groups.sort(key=lambda group: len(group[0]), reverse=True)
    told = "; ".join(
        f"{_some(people)} {'has' if len(people) == 1 else 'have'} "
        f"{_some(map(repr, sort_labels(labels)))}"
        for people, labels in groups[:3]
    )
    raise InputError(
        f"The subjects fall into {len(groups)} groups that share no label, so nothing "
        f"ties one group to another: {told}.{_suggestion(held)} Give the same category "
        "the same label for all subjects, or align the groups apart."
    )


def _warn_of_partly_held(held: dict[str, set[Any]], *, stacklevel: int) -> None:
    partly = []
    categories = sort_labels(set().union(*held.values()))
    for label in categories:
        have = [name for name, own in held.items() if label in own]
        lack = [name for name in held if name not in have]
        if lack and len(have) <= len(lack):
            partly.append(f"{label!r} by {_some(have)} only")
        elif lack:
            partly.append(f"{label!r} not by {_some(lack)}")
    if partly:
        warnings.warn(
            f"{len(partly)} of {len(categories)} categories are not held by all "
            f"subjects: {_some(partly, '; ')}.{_suggestion(held)}",
            LabelWarning,
            stacklevel=stacklevel + 1,
        )


def _suggestion(held: dict[str, set[Any]]) -> str:
    """Name labels that look the same and are not, if they do not occur together."""
    alike: dict[str, list[Any]] = {}
    for label in sort_labels(set().union(*held.values())):
        alike.setdefault(_looks_like(label), []).append(label)
    pairs = []
    for labels in alike.values():
        lacking = any(0 < len(own & set(labels)) < len(labels) for own in held.values())
        if len(labels) > 1 and lacking:
            pairs.append(" and ".join(map(repr, labels)))
    if not pairs:
        return ""
    return f" {_some(pairs, '; ')} differ by case, blanks or type only: are they one?"


def _looks_like(label: Any) -> str:
    text = "".join(str(label).split()).casefold()
    try:
        return repr(float(text))
    except ValueError:
        return text.replace("_", "").replace("-", "")


def _some(texts: Iterable[str], between: str = ", ") -> str:
    return format_list(texts, 6, between)


# -- single values ---------------------------------------------------------------------


def _listed(values: Any, name: str) -> list[Any]:
    if isinstance(values, str | bytes):
        raise TypeError(
            f"{name} must be a list with one label per sample, got {values!r}."
        )
    if isinstance(values, list | tuple | range):
        # NumPy would turn [1, None, "a"] or [1, "a"] into text without a word
        return [_plain(v) for v in values]
    if is_torch(values):
        values = to_numpy(values)
    masked = isinstance(values, np.ma.MaskedArray)
    array = values if masked else np.asarray(values)
    if array.ndim != 1:
        raise InputError(
            f"{name} must be a list with one label per sample; got shape {array.shape}."
        )
    if array.dtype.kind == "M":
        array = array.astype("datetime64[us]").astype(object)
    listed = array.tolist()
    if array.dtype.kind in "iuU" and not masked:
        return listed
    return [_plain(v) for v in listed]  # masked entries become None


def _plain(value: Any) -> Any:
    if isinstance(value, np.generic):
        value = value.item()
    return value.decode() if isinstance(value, bytes) else value


def _check_one(value: Any, name: str) -> None:
    if isinstance(value, str) and value.endswith("\0"):
        raise InputError(
            f"{name}: the label {value!r} ends in a NUL character, which arrays of "
            "text cut off. Remove it."
        )
    try:
        hash(value)
    except TypeError:
        raise InputError(
            f"{name} must be a list with one label per sample, text or a number each; "
            f"got {type(value).__name__} {value!r}."
        ) from None
