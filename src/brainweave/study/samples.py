"""Match the samples of subjects by their labels, or drop some of them."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from sklearn.utils import check_random_state

from brainweave._core.arrays import is_torch
from brainweave._core.exceptions import InputError
from brainweave._core.labels import as_label_list, encode_labels, object_array
from brainweave._core.validation import (
    check_2d,
    check_list_of_subjects,
    check_number,
    check_option,
    format_list,
    labels_per_subject,
)

if TYPE_CHECKING:
    import pandas as pd

HOW = ("truncate", "average", "intersect")
UNLABELLED = "(unlabelled)"
Indices = NDArray[np.intp]


class Samples(NamedTuple):
    """Samples of all subjects, where they come from, and what was left out.

    Attributes
    ----------
    X : list of arrays
        One array per subject.
    y : list of ndarray, or None
        Their labels.
    kept : list of ndarray of int
        Per subject, the rows of the given X that went into the result.
    summary : DataFrame
        How many samples of each subject and category there were, and how many of them
        were used and dropped.
    """

    X: list[Any]
    y: list[NDArray[Any]] | None
    kept: list[Indices]
    summary: "pd.DataFrame"


def match_samples(X: Any, y: Any = None, how: str = "truncate") -> Samples:
    """Match the rows of all subjects by their labels.

    Parameters
    ----------
    X : list of arrays of shape (n_samples_i, n_voxels_i), or a Study
        One entry per subject.
    y : list of array-like
        Categories (or, for "intersect", stimulus ids), one array per subject; None,
        NaN, "" or "n/a" for samples without a label, which are dropped. A Study brings
        its own.
    how : {"truncate", "average", "intersect"}, default="truncate"
        "truncate": order samples by category and keep of each category as many as the
        subject with fewest has, the first ones. "average": one sample per category, the
        mean. "intersect": keep the stimuli that all subjects have, in the order of the
        first; of a repeated stimulus as many repetitions as all have.

    Returns
    -------
    Samples
        A named tuple ``(X, y, kept, summary)``; the table ``summary`` lists the dropped
        samples. Afterwards all entries of y are equal.

    Examples
    --------
    >>> X = [np.arange(4.0)[:, None], np.arange(5.0)[:, None]]
    >>> y = [["cat", "dog", "cat", "dog"], ["dog", "dog", "dog", "cat", "cat"]]
    >>> matched = match_samples(X, y)
    >>> matched.kept
    [array([0, 2, 1, 3]), array([3, 4, 0, 1])]
    >>> matched.summary.query("dropped > 0")
                      had  used  dropped
    subject category
    1       dog         3     2        1
    """
    check_option("how", how, HOW, owner="match_samples")
    arrays, labels = _read(X, y, owner="match_samples", minimum=2)
    if labels is None:
        raise InputError(
            "match_samples needs the labels of the samples: match_samples(X, y)."
        )
    codes, names = encode_labels(labels)
    where = [[np.flatnonzero(c == g) for g in range(len(names))] for c in codes]
    counts = [min(len(rows[g]) for rows in where) for g in range(len(names))]
    common = [g for g, count in enumerate(counts) if count > 0]
    if not common:
        raise InputError(
            "No label occurs in all subjects, so nothing can be matched; the labels of "
            f"all are {format_list(map(repr, names), 8) or 'missing'}."
        )
    if how == "average":
        groups = [[rows[g] for g in common] for rows in where]
        kept = [np.sort(np.concatenate(own)) for own in groups]
        matched = [_means(x, own) for x, own in zip(arrays, groups, strict=True)]
        new_y = [_label_array([names[g] for g in common]) for _ in arrays]
    else:
        pairs = [(g, k) for g in common for k in range(counts[g])]
        if how == "intersect":  # as the first subject saw them
            pairs.sort(key=lambda pair: int(where[0][pair[0]][pair[1]]))
        kept = [np.array([rows[g][k] for g, k in pairs]) for rows in where]
        matched = [_take(x, rows) for x, rows in zip(arrays, kept, strict=True)]
        new_y = [own[rows] for own, rows in zip(labels, kept, strict=True)]
    return Samples(matched, new_y, kept, _summarise(labels, kept))


def drop_samples(
    X: Any, y: Any = None, fraction: Any = 0.2, random_state: Any = None
) -> Samples:
    """Remove a share of every subject's samples at random: an incomplete study.

    Parameters
    ----------
    X, y : list of array-like
        As in :func:`match_samples`; labels, if there are any, go with their samples.
    fraction : float in [0, 1), default=0.2
        Share of the samples to remove, rounded to whole samples; two must be left.
    random_state : int, RandomState or None
        Seed of the draw.

    Returns
    -------
    Samples
        A named tuple ``(X, y, kept, summary)``.

    Examples
    --------
    >>> X = [np.zeros((10, 3)), np.zeros((20, 3))]
    >>> [len(x) for x in drop_samples(X, fraction=0.3, random_state=0).X]
    [7, 14]
    """
    share = check_number(
        "fraction", fraction, "[0, 1)", owner="drop_samples", hint="20 % is 0.2."
    )
    arrays, labels = _read(X, y, owner="drop_samples", minimum=1)
    rng = check_random_state(random_state)
    kept = []
    for i, x in enumerate(arrays):
        n = int(x.shape[0])
        left = n - round(share * n)
        if left < 2:
            raise InputError(
                f"X[{i}] has {n} samples; without {fraction:.0%} of them {left} would "
                "be left, and at least 2 are needed. Use a smaller fraction."
            )
        kept.append(np.sort(rng.permutation(n)[:left]))
    rest = [_take(x, rows) for x, rows in zip(arrays, kept, strict=True)]
    new_y = labels and [k[rows] for k, rows in zip(labels, kept, strict=True)]
    unknown: Any = [[None] * len(x) for x in arrays]
    return Samples(rest, new_y, kept, _summarise(labels or unknown, kept))


def _read(X: Any, y: Any, *, owner: str, minimum: int) -> tuple[list[Any], Any]:
    """Return arrays, and labels if there are any: of lists, or of subjects."""
    subjects = check_list_of_subjects(X, owner=owner, minimum=minimum)
    arrays = [s.data() if hasattr(s, "labels") else s for s in subjects]
    for i, x in enumerate(arrays):
        check_2d(x, f"X[{i}]")
    labels = labels_per_subject(subjects, y, owner=owner)
    if labels is None:
        return arrays, None
    return arrays, [_label_array(own, f"y[{i}]") for i, own in enumerate(labels)]


def _label_array(values: Any, name: str = "y") -> NDArray[Any]:
    """Return labels as an array: of numbers, of text, or with None if some lack one."""
    listed = as_label_list(values, name)
    kinds = {type(v) for v in listed}
    if len(kinds) == 1 and kinds <= {str, int, float, bool}:
        return np.asarray(listed)
    return object_array(listed)


def _take(x: Any, rows: Indices) -> Any:
    return x[rows.tolist()] if is_torch(x) else np.asarray(x)[rows]


def _means(x: Any, groups: list[Indices]) -> Any:
    """Average groups of rows, in the dtype of the data."""
    if is_torch(x):
        out = x.new_empty((len(groups), x.shape[1]))
        for row, group in enumerate(groups):
            out[row] = x[group.tolist()].mean(0)
        return out
    data = np.asarray(x)
    means = np.stack([data[g].mean(axis=0, dtype=np.float64) for g in groups])
    return means.astype(data.dtype if data.dtype.kind == "f" else np.float64)


def _summarise(labels: Sequence[Any], kept: list[Indices]) -> "pd.DataFrame":
    import pandas as pd

    tables = []
    for own, rows in zip(labels, kept, strict=True):
        listed = as_label_list(own, "y")
        names = [UNLABELLED if label is None else str(label) for label in listed]
        series = pd.Series(names, dtype=object)
        counts = {"had": series, "used": series.iloc[rows]}
        tables.append(pd.DataFrame({n: v.value_counts() for n, v in counts.items()}))
    table = pd.concat(tables, names=["subject", "category"], keys=range(len(tables)))
    table = table.fillna(0).astype(int)
    table["dropped"] = table["had"] - table["used"]
    return table
