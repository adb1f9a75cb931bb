"""Checks of what users pass in; each message names the subject and the way out."""

from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from numbers import Integral, Real
from os import PathLike
from typing import Any

import numpy as np
import scipy.sparse
from numpy.typing import NDArray

from brainweave._core.exceptions import InputError


def check_int(
    name: str, value: Any, *, minimum: int, maximum: float = np.inf, owner: str
) -> int:
    """Return value as an int within limits."""
    limits = f"between {minimum} and {maximum}" if maximum < np.inf else f">= {minimum}"
    if isinstance(value, bool) or not isinstance(value, Integral):
        raise TypeError(
            f"{name} of {owner} must be an integer {limits}, got {value!r}."
        )
    if not minimum <= int(value) <= maximum:
        message = f"{name} of {owner} must be {limits}, got {value}."
        raise InputError(message, parameter=name)
    return int(value)


def check_n_jobs(value: Any) -> int | None:
    """Return n_jobs; None and negative numbers mean one job per core."""
    whole = isinstance(value, Integral) and not isinstance(value, bool)
    if value is not None and not (whole and value):
        message = f"n_jobs must be an integer other than 0, or None; got {value!r}."
        raise InputError(message, parameter="n_jobs")
    return None if value is None else int(value)


def check_number(
    name: str, value: Any, interval: str, *, owner: str, hint: str = ""
) -> float:
    """Return value as a float in an interval, which is written as in "(0, 1]"."""
    low, high = (float(end) for end in interval[1:-1].split(","))
    wanted = f"in {interval}"
    if high == np.inf:
        wanted = f"{'>' if interval[0] == '(' else '>='} {low:g}"
    if isinstance(value, bool) or not isinstance(value, Real):
        message = f"{name} of {owner} must be a number {wanted}, got {value!r}. {hint}"
        raise TypeError(message.rstrip())
    number = float(value)
    ends = [low] * (interval[0] == "[") + [high] * (interval[-1] == "]")
    if not (low < number < high or number in ends):
        message = f"{name} of {owner} must be {wanted}, got {value}. {hint}"
        raise InputError(message.rstrip(), parameter=name)
    return number


def check_fraction(name: str, value: Any, *, owner: str, hint: str = "") -> float:
    """Return value as a float in (0, 1]."""
    hint = f"82 % is written 0.82; 1 keeps everything. {hint}".rstrip()
    return check_number(name, value, "(0, 1]", owner=owner, hint=hint)


def check_indices(name: str, values: Any, n: int, *, what: str) -> NDArray[np.intp]:
    """Return values as an array of indices below n; `what` they count is for errors."""
    numbers = np.asarray(values)
    inside = numbers.dtype.kind in "iu" and ((numbers >= 0) & (numbers < n)).all()
    if numbers.ndim != 1 or (numbers.size and not inside):
        raise InputError(f"{name} must be {what} numbers from 0 to {n - 1}.")
    return numbers.astype(np.intp)


def check_option(name: str, value: Any, allowed: Sequence[str], *, owner: str) -> str:
    """Return value if it is one of the allowed names."""
    if not isinstance(value, str) or value not in allowed:
        listed = ", ".join(map(repr, allowed))
        raise InputError(
            f"{name} of {owner} must be one of {listed}; got {value!r}.",
            parameter=name,
        )
    return value


def check_list_option(name: str, value: Any, owner: str) -> list[Any]:
    """Return value as a list; one string or one number stands for a list of one."""
    if isinstance(value, str | Integral):  # list("rest") would be four letters
        return [value]
    if isinstance(value, bytes | Mapping) or not isinstance(value, Iterable):
        raise TypeError(
            f"{name} of {owner} must be a list, got {type(value).__name__} {value!r}."
        )
    return list(value)


def check_numbers(X: Any, name: str) -> None:
    """Refuse files, and arrays that are sparse, masked or not of real numbers."""
    refuse_files(X, name)
    if scipy.sparse.issparse(X) or getattr(X, "is_sparse", False) is True:
        raise TypeError(
            f"{name} is sparse; samples x voxels must be dense. Pass X.toarray()."
        )
    if np.ma.is_masked(X):
        raise InputError(
            f"{name} is a masked array with {int(np.ma.getmaskarray(X).sum())} masked "
            "values. Drop these voxels or samples, or fill them: X.filled(...)."
        )
    texts = isinstance(X, list | tuple) and X and isinstance(X[0], str)
    dtype = "text" if texts else getattr(X, "dtype", np.dtype(float))
    kind = "c" if "complex" in str(dtype) else getattr(dtype, "kind", "U" * bool(texts))
    if kind not in ("", *"fiub"):
        swapped = " Samples come first, labels second: are X and y swapped?"
        raise TypeError(
            f"{name} must hold real numbers, got {dtype}.{swapped * (kind == 'U')}"
        )


def refuse_files(X: Any, name: str) -> None:
    """Refuse paths, images, maskers and aligners; name what turns them into samples."""
    got = f"a {type(X).__name__}"
    if isinstance(X, (str, PathLike)):
        got = f"the path {str(X)!r}"
    elif hasattr(X, "fit_new_subject"):
        got = f"the aligner {type(X).__name__}"
    elif not hasattr(X, "dataobj") and not hasattr(X, "inverse_transform"):
        return
    raise TypeError(
        f"{name} is {got}, not samples. Use brainweave.load_nifti({{'01': image}}, "
        "mask=...) for images, brainweave.Study.open for study folders."
    )


def ask_if_turned(n_samples: int, n_voxels: int, wanted: int) -> str:
    """Return a question for a message if there are as many voxels as samples wanted."""
    if n_voxels != wanted:
        return ""
    return (
        f" The array is {n_samples} x {n_voxels}: is it voxels x samples? Rows are "
        "samples here, so pass its transpose, x.T."
    )


def check_2d(X: Any, name: str) -> tuple[int, int]:
    """Return the shape of samples x voxels; refuse all else."""
    check_numbers(X, name)
    if not hasattr(X, "shape") or not hasattr(X, "dtype"):
        raise TypeError(
            f"{name} must be a 2-D array (samples x voxels), got {type(X).__name__}."
        )
    if len(X.shape) != 2:
        raise InputError(
            f"{name} must be 2-D (samples x voxels), got shape {tuple(X.shape)}. One "
            "voxel is X.reshape(-1, 1); labels are y, the second argument; images are "
            "masked by load_nifti."
        )
    return int(X.shape[0]), int(X.shape[1])


def check_shape(X: Any, name: str) -> tuple[int, int]:
    """Return (n_samples, n_voxels) of samples that are enough to be fitted."""
    n_samples, n_voxels = check_2d(X, name)
    if n_samples < 2:
        raise InputError(
            f"{name} has {n_samples} sample(s); at least 2 are needed per subject."
        )
    if n_voxels < 1:
        raise InputError(f"{name} has no voxels (shape {tuple(X.shape)}).")
    return n_samples, n_voxels


def check_samples(Z: Any, n_voxels: int, name: str, what: str = "voxels") -> Any:
    """Return samples of a subject as a 2-D array that has as many voxels as its map."""
    if callable(getattr(Z, "data", None)):  # a Subject
        Z = Z.data()
    Z = as_samples(Z)
    check_numbers(Z, name)
    shape = tuple(getattr(Z, "shape", ()))
    if len(shape) != 2 or shape[1] != n_voxels:
        got = f"shape {shape}" if shape else f"a {type(Z).__name__}"
        remedy = "Use the same mask as for fitting."
        if len(shape) == 2 and shape[0] == n_voxels:
            remedy = "Is it voxels x samples? Then pass its transpose, x.T."
        raise InputError(
            f"{name} must be samples x {n_voxels} {what}, one array of one subject; "
            f"got {got}. {remedy}"
        )
    return Z


class NamedSamples:
    """An entry of a dict of subjects: an id and its samples."""

    labels = space = None

    def __init__(self, id: str, samples: Any) -> None:
        samples = as_samples(samples)
        self.n_samples, self.n_voxels = check_2d(samples, f"X[{id!r}]")
        self.id, self._samples = id, samples

    def data(self) -> Any:
        """Return the samples."""
        return self._samples


def as_samples(X: Any) -> Any:
    """Return a DataFrame or a list of rows as an array; anything else as it is."""
    if hasattr(X, "iloc") and hasattr(X, "columns"):  # a DataFrame
        return X.to_numpy()
    if isinstance(X, (list, tuple)):
        with suppress(TypeError, ValueError):  # what is ragged is refused later
            return np.asarray(X, dtype=np.float64)
    return X


def check_list_of_subjects(X: Any, *, owner: str, minimum: int = 2) -> list[Any]:
    """Return X (a list, dict, study or stack) as a list with one entry per subject."""
    if isinstance(X, Mapping):
        X = [NamedSamples(str(id), x) for id, x in X.items()]
    refuse_files(X, "X")
    if getattr(X, "ndim", 0) == 3 and hasattr(X, "dtype"):
        X = list(X)
    if hasattr(X, "shape") or not (hasattr(X, "__iter__") or hasattr(X, "__getitem__")):
        shaped = hasattr(X, "shape")
        got = f"one array of shape {tuple(X.shape)}" if shaped else type(X).__name__
        raise TypeError(
            f"{owner} takes a list with one array (samples x voxels) per subject, "
            f"[X1, X2, ...]; got {got}."
        )
    subjects = [as_samples(s) for s in X]
    if len(subjects) < minimum:
        raise InputError(
            f"{owner} needs at least {minimum} subject{'s' * (minimum > 1)}; got "
            f"{len(subjects)}. Pass one array per subject, [X1, X2, ...]."
        )
    return subjects


def labels_per_subject(
    subjects: list[Any],
    y: Any,
    labels_of: Any = lambda subject: subject.labels,
    *,
    owner: str,
) -> list[Any] | None:
    """Return labels with one entry per subject: y, else those that subjects have.

    y has one entry per subject; or it is a dict of them, by id; or one list of labels
    that holds for all subjects. None if there are no labels at all.
    """
    if y is None and all(hasattr(s, "labels") for s in subjects):
        found = [labels_of(s) for s in subjects]
        y = None if any(labels is None for labels in found) else found
    if y is None:
        return None
    if isinstance(y, Mapping):
        given = {str(id): own for id, own in y.items()}
        ids = ids_of(subjects, owner=owner)
        if ids is None or not given.keys() >= set(ids):
            held = "arrays, which have no ids" if ids is None else format_ids(ids)
            raise InputError(
                f"y of {owner} is a dict of {format_ids(given)}, but X holds {held}. "
                "Give X as a dict or a Study, and labels for every subject."
            )
        y = [given[id] for id in ids]
    whole = hasattr(y, "columns") or hasattr(y, "subjects")
    if whole or not hasattr(y, "__iter__") or isinstance(y, (str, bytes)):
        got = f"the text {y!r}" if isinstance(y, str) else f"a {type(y).__name__}"
        raise TypeError(f"y of {owner} must hold labels, got {got}.")
    entries = list(y)
    single = (str, Real, np.generic, type(None))
    for_all = bool(entries) and all(isinstance(entry, single) for entry in entries)
    if for_all:
        entries = [entries] * len(subjects)
    if len(entries) != len(subjects):
        raise InputError(f"y has {len(entries)} entries for {len(subjects)} subjects.")
    for i, (subject, labels) in enumerate(zip(subjects, entries, strict=True)):
        known = hasattr(subject, "n_samples")
        n = subject.n_samples if known else check_2d(subject, f"X[{i}]")[0]
        if labels is None:
            entries[i] = np.full(n, None)
        elif len(labels) != n:
            n_voxels = getattr(subject, "n_voxels", 0) if known else subject.shape[1]
            remedy = ask_if_turned(n, n_voxels, len(labels))
            if for_all:
                remedy = " y is one list for all: pass [y1, y2, ...]."
            raise InputError(
                f"y[{i}] has {len(labels)} labels for {n} samples.{remedy}"
            )
    return entries


def ids_of(entries: Iterable[Any], *, owner: str) -> list[str] | None:
    """Return the ids of subjects or bases; None unless every entry has one."""
    ids: list[Any] = [getattr(entry, "id", None) for entry in entries]
    if not all(isinstance(id, str) and id for id in ids):
        return None
    twice = sorted({id for id in ids if ids.count(id) > 1})
    if twice:
        raise InputError(
            f"{owner} was given subject {format_ids(twice)} more than once. Give every "
            "subject once."
        )
    return ids


def format_ids(ids: Iterable[Any]) -> str:
    """Return ids for a message: the first eight, and how many more there are."""
    return format_list(map(repr, ids))


def format_list(texts: Iterable[str], limit: int = 8, separator: str = ", ") -> str:
    """Join texts for a message: the first few, and how many more there are."""
    listed = list(texts)
    if len(listed) > limit:
        listed = [*listed[:limit], f"and {len(listed) - limit} more"]
    return separator.join(listed)


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


# -- subjects by number or name --------------------------------------------------------


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
    """Return the positions of subjects given by id (str) or position (int)."""
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
