"""Checks of what users pass in; each message names the subject and the way out."""

from collections.abc import Mapping, Sequence
from numbers import Integral, Real
from os import PathLike
from typing import Any

import numpy as np
import scipy.sparse
from numpy.typing import NDArray

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


def check_number(
    name: str, value: Any, interval: str, *, owner: str, hint: str = ""
) -> float:
    """Return value as a float in an interval, which is written as in "(0, 1]"."""
    low, high = (float(end) for end in interval[1:-1].split(","))
    open_below, open_above = interval.startswith("("), interval.endswith(")")
    wanted = f"in {interval}"
    if high == float("inf"):
        wanted = f"{'>' if open_below else '>='} {low:g}"
    elif open_below and open_above:
        wanted = f"between {low:g} and {high:g}"
    if isinstance(value, bool) or not isinstance(value, Real):
        raise TypeError(f"{name} of {owner} must be a number {wanted}, got {value!r}.")
    number = float(value)
    high_enough = number > low if open_below else number >= low
    low_enough = number < high if open_above else number <= high
    if not (high_enough and low_enough):
        message = f"{name} of {owner} must be {wanted}, got {value}. {hint}"
        raise InputError(message.rstrip())
    return number


def check_fraction(name: str, value: Any, *, owner: str) -> float:
    """Return value as a float in (0, 1]."""
    hint = "82 % is written 0.82; 1 keeps everything."
    return check_number(name, value, "(0, 1]", owner=owner, hint=hint)


def check_subject_number(name: str, value: Any, n_subjects: int, *, owner: str) -> int:
    """Return value as the number of one of the subjects."""
    number = check_int(name, value, minimum=0, owner=owner)
    if number >= n_subjects:
        raise InputError(
            f"{name}={number} of {owner} is not one of the {n_subjects} subjects, 0 to "
            f"{n_subjects - 1}."
        )
    return number


def check_indices(name: str, values: Any, n: int, *, what: str) -> NDArray[np.intp]:
    """Return values as an array of numbers below n, of rows or voxels or so."""
    numbers = np.asarray(values)
    if numbers.ndim != 1 or (numbers.size and numbers.dtype.kind not in "iu"):
        raise TypeError(f"{name} must be a list of {what} numbers.")
    if numbers.size and not (numbers.min() >= 0 and numbers.max() < n):
        raise InputError(
            f"{name} must be {what} numbers from 0 to {n - 1}; got {numbers.min()} to "
            f"{numbers.max()}."
        )
    return numbers.astype(np.intp)


def check_option(name: str, value: Any, allowed: Sequence[str], *, owner: str) -> str:
    """Return value if it is one of the allowed names."""
    if not isinstance(value, str) or value not in allowed:
        listed = ", ".join(map(repr, allowed))
        number = isinstance(value, str) and value.strip().isdigit()
        hint = f" A number has no quotes: {name}={value.strip()}." if number else ""
        raise InputError(
            f"{name} of {owner} must be one of {listed}; got {value!r}.{hint}"
        )
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
    refuse_files(X, name)
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


def refuse_files(X: Any, name: str) -> None:
    """Refuse files, images and maskers, which say nothing of voxels by themselves."""
    what = type(X).__name__
    if isinstance(X, (str, PathLike)):
        raise TypeError(
            f"{name} is the path {str(X)!r}, not samples. Read it: "
            "brainweave.load_nifti({'01': path, ...}, mask=...) for images, "
            "numpy.load for arrays, or brainweave.Study.open for study folders."
        )
    if hasattr(X, "dataobj") and hasattr(X, "affine"):
        raise TypeError(
            f"{name} is an image ({what}); which of its voxels to use is not said. "
            "Pass masker.transform(image) of a nilearn masker, or make a study: "
            "brainweave.load_nifti({'01': image, ...}, mask=...)."
        )
    if hasattr(X, "mask_img_") or hasattr(X, "inverse_transform"):
        raise TypeError(
            f"{name} is a {what}, not samples. Pass what it gives: "
            "masker.transform(image)."
        )


def check_shape(X: Any, name: str) -> tuple[int, int]:
    """Return (n_samples, n_voxels) of something two-dimensional with enough samples."""
    check_numbers(X, name)
    shape = getattr(X, "shape", None)
    if shape is None or not hasattr(X, "dtype"):
        raise TypeError(
            f"{name} must be a 2-D array (samples x voxels), got {type(X).__name__}."
        )
    refuse_other_shapes(X, name)
    n_samples, n_voxels = int(shape[0]), int(shape[1])
    if n_samples < 2:
        raise InputError(
            f"{name} has {n_samples} sample(s); at least 2 are needed per subject."
        )
    if n_voxels < 1:
        raise InputError(f"{name} has no voxels (shape {tuple(shape)}).")
    return n_samples, n_voxels


def refuse_other_shapes(X: Any, name: str) -> None:
    """Refuse what is not samples x voxels, with the likely remedy."""
    shape = tuple(X.shape)
    if len(shape) == 2:
        return
    hint = ""
    if len(shape) == 1:
        hint = " One voxel is X.reshape(-1, 1), one sample X.reshape(1, -1)."
    elif len(shape) == 4:
        hint = " An image is turned into samples x voxels by a mask: load_nifti."
    raise InputError(f"{name} must be 2-D (samples x voxels), got shape {shape}.{hint}")


def check_samples(Z: Any, n_voxels: int, name: str) -> Any:
    """Return samples of a subject as a 2-D array that has as many voxels as its map."""
    refuse_files(Z, name)
    if not hasattr(Z, "shape") or not hasattr(Z, "dtype"):
        Z = as_samples(Z, name)
    Z = np.asarray(Z) if isinstance(Z, list) else Z
    check_numbers(Z, name)
    if len(Z.shape) != 2 or Z.shape[1] != n_voxels:
        raise InputError(
            f"{name} must be samples x {n_voxels} voxels; got shape {tuple(Z.shape)}. "
            "Use the same mask as for fitting."
        )
    return Z


class NamedSamples:
    """Samples with the id of their subject: what an entry of a dict stands for.

    Parameters
    ----------
    id : str
        The subject.
    samples : array of shape (n_samples, n_voxels)
        Its samples.
    """

    labels = None
    space = None

    def __init__(self, id: str, samples: Any) -> None:
        self.id, self._samples = id, samples

    @property
    def n_samples(self) -> int:
        """Number of samples."""
        return int(self._samples.shape[0])

    @property
    def n_voxels(self) -> int:
        """Number of voxels."""
        return int(self._samples.shape[1])

    def data(self) -> Any:
        """Return the samples."""
        return self._samples


def as_samples(X: Any, name: str) -> Any:
    """Return a DataFrame or a list of rows as an array; anything else as it is."""
    if hasattr(X, "iloc") and hasattr(X, "columns"):
        texts = [c for c in X.columns if getattr(X[c].dtype, "kind", "O") not in "fiub"]
        if texts:
            raise TypeError(
                f"{name} is a table whose column {texts[0]!r} holds no numbers. Keep "
                "the columns that are voxels."
            )
        return X.to_numpy()
    nested = isinstance(X, (list, tuple)) and len(X) > 0
    if not nested or not all(isinstance(r, (list, tuple, np.ndarray)) for r in X):
        return X
    lengths = {len(row) for row in X}
    if len(lengths) > 1:
        raise InputError(
            f"{name} is a list of rows of {min(lengths)} to {max(lengths)} numbers; "
            "every sample needs all voxels."
        )
    try:
        return np.asarray(X, dtype=np.float64)
    except (TypeError, ValueError):
        return X  # no numbers: labels, or what later checks refuse by name


def check_list_of_subjects(X: Any, *, owner: str, minimum: int = 2) -> list[Any]:
    """Return X as a list with one entry per subject.

    A dict of subjects is a list whose entries know their ids, a stack of shape
    (n_subjects, n_samples, n_voxels) a list of its layers; data frames and lists of
    rows become arrays.
    """
    if isinstance(X, Mapping):
        named = {str(id): as_samples(x, f"X[{id!r}]") for id, x in X.items()}
        for id, x in named.items():
            check_numbers(x, f"X[{id!r}]")
            if not hasattr(x, "shape"):
                raise TypeError(
                    f"X[{id!r}] must be a 2-D array (samples x voxels), got "
                    f"{type(x).__name__}."
                )
            refuse_other_shapes(x, f"X[{id!r}]")
        X = [NamedSamples(id, x) for id, x in named.items()]
    if isinstance(X, (str, bytes, PathLike)):
        refuse_files(str(X), f"What {owner} was given")
    if getattr(X, "ndim", 0) == 3 and hasattr(X, "dtype"):
        X = [X[i] for i in range(X.shape[0])]
    if hasattr(X, "iloc") and hasattr(X, "columns"):
        raise TypeError(
            f"{owner} takes a list with one array (samples x voxels) per subject; got "
            f"one table of shape {tuple(X.shape)}. Pass one table per subject, such as "
            "[rows for _, rows in table.groupby('subject')] without that column."
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
    subjects = [as_samples(s, f"X[{i}]") for i, s in enumerate(subjects)]
    if len(subjects) < minimum:
        raise InputError(
            f"{owner} needs at least {minimum} subject(s); got {len(subjects)}."
        )
    return subjects


def check_known(
    y: Any, ids: Sequence[str] | None, n_samples: Sequence[int], *, owner: str
) -> list[Any]:
    """Return what is known of the samples as a list with one entry per subject.

    Parameters
    ----------
    y : list, dict, array
        One entry per subject; a dict of them, by id; or one list of labels that holds
        for all subjects.
    ids : sequence of str, or None
        The subjects, if they have ids.
    n_samples : sequence of int
        Of each subject.
    owner : str
        Whose y it is, for messages.
    """
    if isinstance(y, Mapping):
        if ids is None:
            raise TypeError(
                f"y of {owner} is a dict of subjects, but X has no ids to match it "
                "with. Pass X as a dict or a Study, too."
            )
        given = {str(id): known for id, known in y.items()}
        lacking = [id for id in ids if id not in given]
        if lacking:
            raise InputError(
                f"y of {owner} has no entry for subject {lacking[0]!r}; it has "
                f"{', '.join(map(repr, given))}."
            )
        return [given[id] for id in ids]
    if isinstance(y, (str, bytes)):
        raise TypeError(f"y of {owner} must hold labels, got the text {y!r}.")
    if getattr(y, "ndim", 0) == 2 and not hasattr(y, "columns"):
        return list(y)
    flat = getattr(y, "ndim", 0) == 1 and getattr(y, "dtype", None) is not None
    entries = list(y) if flat else check_list_of_subjects(y, owner=owner, minimum=1)
    if not entries or not all(_is_label(entry) for entry in entries):
        return entries
    other = [i for i, n in enumerate(n_samples) if n != len(entries)]
    if other:
        raise InputError(
            f"y of {owner} is one list of {len(entries)} labels, which would hold for "
            f"all subjects, but X[{other[0]}] has {n_samples[other[0]]} samples. Pass "
            "one list per subject: [y1, y2, ...]."
        )
    return [entries] * len(n_samples)


def _is_label(value: Any) -> bool:
    return value is None or isinstance(value, (str, Real, np.generic))


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
