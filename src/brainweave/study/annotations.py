"""What is known of each sample: labels, runs and times, checked and in one form."""

from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from brainweave.exceptions import InputError
from brainweave.labels import as_label_list, object_array, sort_labels

__all__ = [
    "as_flags",
    "as_labels",
    "as_onsets",
    "as_runs",
    "is_missing",
    "ordered_unique",
]

LARGEST = int(np.iinfo(np.int64).max)


def is_missing(values: NDArray[Any]) -> NDArray[np.bool_]:
    """Mark the entries that :func:`as_labels` set to ``None``."""
    if values.dtype != object:
        return np.zeros(values.shape, bool)
    return np.array([value is None for value in values], dtype=bool)


def ordered_unique(values: NDArray[Any] | None) -> list[Any]:
    """Sort the distinct values, without the missing ones, as Python objects."""
    return [] if values is None else sort_labels(values.tolist())


def as_labels(
    name: str, id: str, values: ArrayLike | None, n_samples: int
) -> NDArray[Any] | None:
    """Check one label per sample; return an array of int, of str, or with ``None``.

    Parameters
    ----------
    name : str
        What the values are, for messages.
    id : str
        The subject they belong to, for messages.
    values : array-like or None
        Strings or whole numbers; floats that are whole numbers become int (MATLAB
        stores labels so). What is missing, :mod:`brainweave.labels` says.
    n_samples : int
        How many there must be.

    Returns
    -------
    ndarray or None
        Of dtype int64 or str; of dtype object if some are missing, those being
        ``None``. None if all are missing.

    Examples
    --------
    >>> as_labels("labels", "01", [2.0, float("nan"), 1.0], 3)
    array([2, None, 1], dtype=object)
    """
    if values is None:
        return None
    array = _one_per_sample(name, id, values, n_samples)
    if array.dtype.kind in "iu" and (not array.size or array.max() <= LARGEST):
        return array.astype(np.int64)
    known = as_label_list(array, f"Subject {id!r}: {name}")
    cleaned = [None if v is None else _clean(name, id, v) for v in known]
    kinds = {type(value) for value in cleaned if value is not None}
    if len(kinds) > 1:
        raise InputError(
            f"Subject {id!r}: {name} mix text and numbers. Make all of them strings "
            "or all of them whole numbers."
        )
    if not kinds:
        return None
    if None in cleaned:
        return object_array(cleaned)
    return np.array(cleaned)


def as_runs(id: str, values: ArrayLike | None, n_samples: int) -> NDArray[Any] | None:
    """Check one run per sample; as labels, but none may be missing."""
    runs = as_labels("runs", id, values, n_samples)
    if values is not None and (runs is None or is_missing(runs).any()) and n_samples:
        raise InputError(
            f"Subject {id!r}: a run is missing for some samples. Give one per sample, "
            "or no runs at all."
        )
    return runs


def as_onsets(
    id: str, values: ArrayLike | None, n_samples: int
) -> NDArray[np.float64] | None:
    """Check one time in seconds per sample; NaN where it is not known."""
    if values is None:
        return None
    array = _one_per_sample("onsets", id, values, n_samples)
    try:
        return array.astype(np.float64)
    except (TypeError, ValueError):
        raise InputError(
            f"Subject {id!r}: onsets must be numbers, in seconds; got {array[0]!r}."
        ) from None


def as_flags(
    name: str, id: str, values: ArrayLike | None, n_samples: int
) -> NDArray[np.bool_] | None:
    """Check one boolean per sample."""
    if values is None:
        return None
    array = np.asarray(values)
    if array.dtype != bool and array.size:
        raise TypeError(
            f"Subject {id!r}: {name} holds one True or False per sample, got "
            f"{array.dtype}."
        )
    if array.shape != (n_samples,):
        raise InputError(
            f"Subject {id!r} has {n_samples} samples, but {name} has shape "
            f"{array.shape}. Give one per sample."
        )
    return array.astype(bool)


def _one_per_sample(
    name: str, id: str, values: ArrayLike, n_samples: int
) -> NDArray[Any]:
    if isinstance(values, list | tuple | range):
        # NumPy would turn [1, None, "a"] or [1, "a"] into text without a word.
        array = object_array(values)
    elif isinstance(values, np.ma.MaskedArray) and values.ndim == 1:
        array = object_array(values.tolist())  # None where masked
    else:
        array = np.asarray(values)
    if array.shape != (n_samples,):
        raise InputError(
            f"Subject {id!r} has {n_samples} samples, but {name} have shape "
            f"{array.shape}. Give one per sample."
        )
    return array


def _clean(name: str, id: str, value: Any) -> int | str:
    if isinstance(value, str):
        return value
    if isinstance(value, float):
        if not value.is_integer():
            raise InputError(
                f"Subject {id!r}: {name} are strings or whole numbers, got {value}. "
                "Turn categories into strings first."
            )
        value = int(value)
    if isinstance(value, int):  # bool too
        if abs(value) > LARGEST:
            raise InputError(
                f"Subject {id!r}: {name} hold the number {value}, which is larger than "
                f"{LARGEST}, the largest that is kept exactly. Turn them into strings."
            )
        return int(value)
    raise TypeError(
        f"Subject {id!r}: {name} are strings or whole numbers, got "
        f"{type(value).__name__} {value!r}."
    )
