"""What is known of each sample: labels, runs and times, checked and in one form."""

from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from brainweave.exceptions import InputError

__all__ = [
    "as_flags",
    "as_labels",
    "as_onsets",
    "as_runs",
    "is_missing",
    "ordered_unique",
]

# BIDS writes "n/a"; spreadsheets and pandas leave cells empty.
_MISSING_TEXT = ("", "n/a")


def is_missing(values: NDArray[Any]) -> NDArray[np.bool_]:
    """Mark the entries that :func:`as_labels` set to ``None``."""
    if values.dtype != object:
        return np.zeros(values.shape, bool)
    return np.array([value is None for value in values], dtype=bool)


def ordered_unique(values: NDArray[Any] | None) -> list[Any]:
    """Sort the distinct values, without the missing ones, as Python objects."""
    if values is None:
        return []
    return sorted({_plain(v) for v in values if v is not None})


def as_labels(
    name: str, id: str, values: ArrayLike | None, n_samples: int
) -> NDArray[Any] | None:
    """Check one label per sample, and give an array of int, of str, or with ``None``.

    Parameters
    ----------
    name : str
        What the values are, for messages.
    id : str
        The subject they belong to, for messages.
    values : array-like or None
        Strings or whole numbers; floats that are whole numbers become int (MATLAB
        stores labels so). ``None``, NaN, ``""`` and ``"n/a"`` are missing.
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
    if array.dtype.kind in "iu":
        return array.astype(np.int64)
    if array.dtype.kind == "U" and not np.isin(array, _MISSING_TEXT).any():
        return array.copy()
    cleaned = [_clean(name, id, value) for value in array.tolist()]
    kinds = {type(value) for value in cleaned if value is not None}
    if len(kinds) > 1:
        raise InputError(
            f"Subject {id!r}: {name} mix text and numbers. Make all of them strings "
            "or all of them whole numbers."
        )
    if not kinds:
        return None
    if None in cleaned:
        return _object_array(cleaned)
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
    if isinstance(values, list | tuple):
        # NumPy would turn [1, None, "a"] or [1, "a"] into text without a word.
        array = _object_array(list(values))
        if all(isinstance(value, str) for value in values) and n_samples:
            array = np.array(values)
    else:
        array = np.asarray(values)
        if array.dtype.kind == "T":
            array = array.astype(str)
    if array.shape != (n_samples,):
        raise InputError(
            f"Subject {id!r} has {n_samples} samples, but {name} have shape "
            f"{array.shape}. Give one per sample."
        )
    return array


def _object_array(values: list[Any]) -> NDArray[Any]:
    array = np.empty(len(values), object)
    array[:] = values
    return array


def _plain(value: Any) -> Any:
    return value.item() if isinstance(value, np.generic) else value


def _clean(name: str, id: str, value: Any) -> int | str | None:
    value = _plain(value)
    if value is None or type(value).__name__ in ("NAType", "NaTType"):
        return None
    if isinstance(value, bytes):
        value = value.decode()
    if isinstance(value, str):
        return None if value in _MISSING_TEXT else value
    if isinstance(value, float):
        if np.isnan(value):
            return None
        if not value.is_integer():
            raise InputError(
                f"Subject {id!r}: {name} are strings or whole numbers, got {value}. "
                "Turn categories into strings first."
            )
        return int(value)
    if isinstance(value, int):  # bool too
        return int(value)
    raise TypeError(
        f"Subject {id!r}: {name} are strings or whole numbers, got "
        f"{type(value).__name__} {value!r}."
    )
