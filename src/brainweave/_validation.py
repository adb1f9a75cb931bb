"""Checks of what users pass in; each message names the subject and the way out."""

from collections.abc import Mapping, Sequence
from numbers import Integral, Real
from typing import Any

import numpy as np
import scipy.sparse

from brainweave.exceptions import InputError


def check_int(name: str, value: Any, *, minimum: int, owner: str) -> int:
    """Return value as an int that is at least minimum."""
    if isinstance(value, bool) or not isinstance(value, Integral):
        raise TypeError(
            f"{name} of {owner} must be an integer >= {minimum}, got {value!r}."
        )
    if value < minimum:
        raise InputError(f"{name} of {owner} must be >= {minimum}, got {value}.")
    return int(value)


def check_fraction(name: str, value: Any, *, owner: str) -> float:
    """Return value as a float in (0, 1]."""
    if isinstance(value, bool) or not isinstance(value, Real):
        raise TypeError(f"{name} of {owner} must be a number in (0, 1], got {value!r}.")
    if not 0 < float(value) <= 1:
        raise InputError(
            f"{name} of {owner} must be in (0, 1], got {value}. "
            "82 % is written 0.82; 1 keeps everything."
        )
    return float(value)


def check_option(name: str, value: Any, allowed: Sequence[str], *, owner: str) -> str:
    """Return value if it is one of the allowed names."""
    if not isinstance(value, str) or value not in allowed:
        listed = ", ".join(map(repr, allowed))
        raise InputError(f"{name} of {owner} must be one of {listed}; got {value!r}.")
    return value


def check_list_option(name: str, value: Any, owner: str) -> list[Any]:
    """Return value as a list; one string or one number stands for a list of one.

    Without this, ``list("rest")`` would be four letters that match nothing.

    Examples
    --------
    >>> check_list_option("ignore", "rest", "load_bids")
    ['rest']
    """
    if isinstance(value, str | Integral):
        return [value]
    try:
        if isinstance(value, bytes | Mapping):
            raise TypeError
        return list(value)
    except TypeError:
        raise TypeError(
            f"{name} of {owner} must be a list, got {type(value).__name__} {value!r}."
        ) from None


def check_numbers(X: Any, name: str) -> None:
    """Refuse arrays whose numbers would be lost on the way: part of them, or a mask."""
    if scipy.sparse.issparse(X) or getattr(X, "is_sparse", False) is True:
        raise TypeError(
            f"{name} is sparse; samples x voxels must be dense. Pass X.toarray()."
        )
    if isinstance(X, np.ma.MaskedArray) and np.ma.is_masked(X):
        raise InputError(
            f"{name} is a masked array with {int(np.ma.getmaskarray(X).sum())} masked "
            "values, which alignment cannot leave out one by one. Drop these voxels or "
            "samples, or fill them: X.filled(...)."
        )
    dtype = getattr(X, "dtype", None)
    if "complex" in str(dtype):
        raise TypeError(
            f"{name} must hold real numbers, got dtype {dtype}. Pass np.abs(X), or the "
            "real and imaginary parts as voxels of their own."
        )
    if getattr(dtype, "kind", "f") not in "fiub":
        raise TypeError(f"{name} must hold real numbers, got dtype {dtype}.")


def check_shape(X: Any, name: str) -> tuple[int, int]:
    """Return (n_samples, n_voxels) of something two-dimensional with enough samples."""
    check_numbers(X, name)
    shape = getattr(X, "shape", None)
    if shape is None or not hasattr(X, "dtype"):
        raise TypeError(
            f"{name} must be a 2-D array (samples x voxels), got {type(X).__name__}."
        )
    if len(shape) != 2:
        raise InputError(
            f"{name} must be 2-D (samples x voxels), got shape {tuple(shape)}."
        )
    n_samples, n_voxels = int(shape[0]), int(shape[1])
    if n_samples < 2:
        raise InputError(
            f"{name} has {n_samples} sample(s); at least 2 are needed per subject."
        )
    if n_voxels < 1:
        raise InputError(f"{name} has no voxels (shape {tuple(shape)}).")
    return n_samples, n_voxels


def check_samples(Z: Any, n_voxels: int, name: str) -> Any:
    """Return samples of a subject as a 2-D array that has as many voxels as its map."""
    if not hasattr(Z, "shape") or not hasattr(Z, "dtype"):
        Z = np.asarray(Z)
    check_numbers(Z, name)
    if len(Z.shape) != 2 or Z.shape[1] != n_voxels:
        raise InputError(
            f"{name} must be samples x {n_voxels} voxels; got shape {tuple(Z.shape)}. "
            "Use the same mask as for fitting."
        )
    return Z


def check_list_of_subjects(X: Any, *, owner: str, minimum: int = 2) -> list[Any]:
    """Return X as a list with one entry per subject."""
    if isinstance(X, Mapping):
        raise TypeError(
            f"{owner} takes a list with one entry per subject, got a dict. Pass its "
            "values in the order of the subjects, or a Study."
        )
    if isinstance(X, np.ndarray) or hasattr(X, "shape"):
        raise TypeError(
            f"{owner} takes a list with one array (samples x voxels) per subject; got "
            f"one array of shape {tuple(X.shape)}. Pass [X1, X2, ...]."
        )
    try:
        subjects = list(X)
    except TypeError:
        raise TypeError(
            f"{owner} takes a list with one array (samples x voxels) per subject; got "
            f"{type(X).__name__}."
        ) from None
    if len(subjects) < minimum:
        raise InputError(
            f"{owner} needs at least {minimum} subject(s); got {len(subjects)}."
        )
    return subjects


def one_per_subject(name: str, value: Any, n_subjects: int, *, owner: str) -> list[Any]:
    """Repeat a single setting for all subjects, or check a list of one per subject."""
    if not isinstance(value, (list, tuple)):
        return [value] * n_subjects
    if len(value) != n_subjects:
        raise InputError(
            f"{name} of {owner} has {len(value)} entries for {n_subjects} subjects. "
            "Give one value for all, or one per subject."
        )
    return list(value)
