"""What a label is: when one is missing, how labels are ordered, coded and compared.

A label names the category, stimulus or run of a sample. It is a text or a whole number
(where only equality counts, as in graphs, anything hashable). ``None``, NaN, NaT,
``pandas.NA``, ``""`` and ``"n/a"`` (BIDS) mean that there is none. So do the texts
``"nan"``, ``"NaN"``, ``"NaT"`` and ``"<NA>"``, which NumPy and pandas write when they
turn such values into text (``np.array(["face", np.nan])``), but not without a warning.
"""

from collections.abc import Hashable, Iterable, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from brainweave._core.arrays import Codes, to_numpy
from brainweave._core.exceptions import InputError, LabelWarning, warn_user
from brainweave._core.validation import format_ids, format_list

NO_LABEL = -1  # the code of a sample without a label
MISSING_TEXT = ("", "n/a")  # spreadsheets leave cells empty; BIDS writes "n/a"
MISSING_MADE_TEXT = ("nan", "NaN", "NaT", "<NA>")  # what str() makes of missing values


class EncodedLabels(NamedTuple):
    """Labels of several subjects as places in the sorted names, or ``NO_LABEL``."""

    codes: list[Codes]
    names: tuple[Hashable, ...]


def is_missing(value: Any) -> bool:
    """Whether a label means that there is none."""
    value = _to_python(value)
    if value is None or type(value).__name__ in ("NAType", "NaTType"):
        return True
    if isinstance(value, float):
        return bool(np.isnan(value))
    return isinstance(value, str) and value in (*MISSING_TEXT, *MISSING_MADE_TEXT)


def as_label_list(values: Any, name: str) -> list[Any]:
    """Return labels as a list of Python objects, with ``None`` where one is missing."""
    if isinstance(values, str | bytes):
        raise TypeError(
            f"{name} must be a list with one label per sample, got {values!r}."
        )
    # NumPy would turn [1, None, "a"] or [1, "a"] into text without a word
    if not isinstance(values, list | tuple | range):
        masked = isinstance(values, np.ma.MaskedArray)
        array = values if masked else to_numpy(values)
        if array.ndim != 1:
            raise InputError(
                f"{name} must be a list with one label per sample; got shape "
                f"{array.shape}."
            )
        if array.dtype.kind == "M":
            array = array.astype("datetime64[us]").astype(object)
        values = array.tolist()  # masked entries become None
    listed = [_to_python(v) for v in values]
    for value in listed:
        if not isinstance(value, Hashable):
            raise InputError(
                f"{name} must be a list with one label per sample, text or a number "
                f"each; got {type(value).__name__} {value!r}."
            )
    missing = {v for v in set(listed) if type(v) is not int and is_missing(v)}
    if made_text := missing.intersection(MISSING_MADE_TEXT):
        warn_user(
            f"{name}: {min(made_text)!r} is taken as a missing label, made text by "
            "NumPy or pandas. Use None for no label, and another name for such a "
            "category.",
            LabelWarning,
        )
    return [None if v in missing else v for v in listed] if missing else listed


def sort_labels(labels: Iterable[Any]) -> list[Any]:
    """Return the distinct labels: numbers, then texts, then others by type."""
    present = {_to_python(v) for v in set(labels) if not is_missing(v)}
    numbers = [v for v in present if isinstance(v, int | float)]
    texts = [v for v in present if isinstance(v, str)]
    others = present.difference(numbers, texts)
    by_type = sorted(others, key=lambda v: (type(v).__name__, str(v)))
    return sorted(numbers) + sorted(texts) + by_type


def encode_labels(labels: Sequence[Any]) -> EncodedLabels:
    """Return the labels of all subjects as numbers, and the labels in that order."""
    lists = [as_label_list(part, f"y[{i}]") for i, part in enumerate(labels)]
    names = tuple(sort_labels(value for part in lists for value in part))
    code_of = {label: code for code, label in enumerate(names)}
    codes = [
        np.array([NO_LABEL if v is None else code_of[v] for v in part], dtype=np.intp)
        for part in lists
    ]
    return EncodedLabels(codes, names)


def encode_new_labels(y: Any, names: Sequence[Any]) -> Codes:
    """Return a new subject's labels as indices of the names that a model has."""
    values = as_label_list(y, "y of the new subject")
    code_of = {name: code for code, name in enumerate(names)}
    unknown = sort_labels(v for v in values if v is not None and v not in code_of)
    if unknown:
        raise InputError(
            "The new subject has labels that the model does not know: "
            f"{format_ids(unknown)}; it has {format_ids(names)}. Set them to None to "
            "leave those samples unlabelled."
        )
    return np.array([code_of.get(v, NO_LABEL) for v in values], dtype=np.intp)


def object_array(values: Iterable[Any]) -> NDArray[Any]:
    """Return a one-dimensional array of Python objects, none of them changed."""
    listed = list(values)
    array = np.empty(len(listed), object)
    array[:] = listed
    return array


def check_labels_overlap(
    labels: Sequence[Any],
    names: Sequence[str],
    *,
    refuse: bool = True,
    warn: bool = True,
) -> None:
    """Refuse groups of subjects that share no label; warn if some lack a category."""
    categories = {
        name: set(as_label_list(own, f"labels of {name}")) - {None}
        for own, name in zip(labels, names, strict=True)
        if own is not None
    }
    categories = {name: own for name, own in categories.items() if own}
    if refuse:
        _refuse_separate_groups(categories)
    if not warn:
        return
    lacking = []
    all_labels = sort_labels(set().union(*categories.values()))
    for label in all_labels:
        lack = [name for name, own in categories.items() if label not in own]
        if lack:
            lacking.append(f"{label!r} in {format_list(lack)}")
    if lacking:
        warn_user(
            f"{len(lacking)} of {len(all_labels)} categories are missing in some "
            f"subjects: {format_list(lacking, separator='; ')}.",
            LabelWarning,
        )


def _refuse_separate_groups(categories: dict[str, set[Any]]) -> None:
    groups: list[tuple[list[str], set[Any]]] = []  # subjects, and their categories
    for name, own in categories.items():
        joined = [group for group in groups if group[1] & own]
        groups = [group for group in groups if group not in joined]
        members = [other for group in joined for other in group[0]]
        groups.append(([*members, name], own.union(*(group[1] for group in joined))))
    if len(groups) < 2:
        return
    numbers = set().union(*categories.values())
    if all(isinstance(v, float) and not v.is_integer() for v in numbers):
        raise InputError(
            f"The labels are numbers such as {min(numbers):.3g}, and no subject shares "
            "one with all others. Ratings and other measures are no categories: use "
            "GDM(graph=neighbor_graph) or feature_graph, with one row of numbers per "
            "sample, or cut them into categories."
        )
    listed = "; ".join(
        f"{format_list(members)}: {format_ids(sort_labels(own))}"
        for members, own in groups[:3]
    )
    raise InputError(
        f"The subjects fall into {len(groups)} groups that share no label, so nothing "
        f"ties one group to another ({listed}). Give the same category the same label "
        "for all subjects (case, blanks and type count), or align the groups apart."
    )


def _to_python(value: Any) -> Any:
    if isinstance(value, np.generic):
        value = value.item()
    return value.decode() if isinstance(value, bytes) else value
