"""Confounds that fMRIPrep wrote, chosen by nilearn's strategies."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from brainweave.exceptions import InputError, StudyError
from brainweave.study.formats.runs.events import MISSING

__all__ = ["RunConfounds", "read_fmriprep_confounds"]

_STRATEGIES = ("simple", "scrubbing", "compcor", "ica_aroma")


@dataclass(frozen=True)
class RunConfounds:
    """Columns to remove from a run, and the volumes that may be used.

    Parameters
    ----------
    columns : ndarray of shape (n_volumes, n_columns) or None
        What to remove; None for nothing.
    kept : ndarray of int or None
        The volumes that may be used; None for all.
    names : tuple of str
        What the columns are called in fMRIPrep's table.
    """

    columns: NDArray[np.float64] | None = None
    kept: NDArray[np.int64] | None = None
    names: tuple[str, ...] = ()


def read_fmriprep_confounds(
    image: Path, table: Path | None, *, confounds: Any, scrub: float | None
) -> RunConfounds:
    """Read what is asked for from the confounds of one run.

    Parameters
    ----------
    image : Path
        The preprocessed image, which nilearn finds the table by.
    table : Path or None
        The table itself, None if there is none.
    confounds : str, tuple of str, list of str, mapping or None
        One of nilearn's strategies ("simple", "scrubbing", "compcor", "ica_aroma"); a
        tuple of its components, such as ``("motion", "wm_csf")``; a list of column
        names; options for :func:`nilearn.interfaces.fmriprep.load_confounds`; or None.
    scrub : float or None
        Framewise displacement in mm above which a volume is left out.
    """
    if confounds is None and scrub is None:
        return RunConfounds()
    if table is None:
        raise StudyError(
            f"{str(image)!r} has no confounds (*_desc-confounds_timeseries.tsv) beside "
            "it. Use confounds=None and scrub=None, or the output of fMRIPrep."
        )
    columns, kept, names = _read(image, table, confounds)
    if scrub is not None:
        still = _still_volumes(table, scrub)
        kept = still if kept is None else np.intersect1d(kept, still)
    if kept is not None and len(kept) == 0:
        raise StudyError(
            f"{str(table)!r}: scrubbing leaves no volume of this run. Raise scrub=..., "
            "or leave the run out."
        )
    return RunConfounds(columns, kept, names)


def _read(
    image: Path, table: Path, confounds: Any
) -> tuple[NDArray[np.float64] | None, NDArray[np.int64] | None, tuple[str, ...]]:
    if confounds is None:
        return None, None, ()
    if isinstance(confounds, list):
        return _named_columns(table, confounds), None, tuple(confounds)
    from nilearn.interfaces.fmriprep import load_confounds, load_confounds_strategy

    try:
        with warnings.catch_warnings():
            # nilearn notes that columns are missing for compcor and the like
            warnings.simplefilter("ignore", UserWarning)
            if isinstance(confounds, str):
                if confounds not in _STRATEGIES:
                    raise InputError(
                        f"confounds={confounds!r} is not known; choose one of "
                        f"{', '.join(map(repr, _STRATEGIES))}, a tuple of nilearn's "
                        "components, a list of columns, or None."
                    )
                loaded, kept = load_confounds_strategy(str(image), confounds)
            elif isinstance(confounds, Mapping):
                loaded, kept = load_confounds(str(image), **confounds)
            elif isinstance(confounds, tuple):
                loaded, kept = load_confounds(str(image), strategy=confounds)
            else:
                raise TypeError(
                    "confounds must be a name, a tuple, a list, a mapping or None, got "
                    f"{type(confounds).__name__}."
                )
    except InputError:
        raise
    except (ValueError, KeyError) as error:
        raise StudyError(
            f"{str(table)!r} does not serve confounds={confounds!r}: {error}"
        ) from error
    values: NDArray[np.float64] | None = None
    names: tuple[str, ...] = ()
    if loaded is not None and loaded.shape[1]:
        values = np.nan_to_num(loaded.to_numpy(dtype=np.float64))
        names = tuple(map(str, loaded.columns))
    return values, None if kept is None else np.asarray(kept, dtype=np.int64), names


def _named_columns(table: Path, names: list[str]) -> NDArray[np.float64]:
    columns = _read_columns(table, names)
    # derivatives have no first value
    return np.nan_to_num(np.column_stack(columns))


def _still_volumes(table: Path, scrub: float) -> NDArray[np.int64]:
    (displacement,) = _read_columns(table, ["framewise_displacement"])
    return np.flatnonzero(~(displacement > scrub))


def _read_columns(table: Path, names: list[str]) -> list[NDArray[np.float64]]:
    import pandas as pd

    try:
        frame = pd.read_csv(table, sep="\t", na_values=sorted(MISSING))
    except (pd.errors.ParserError, pd.errors.EmptyDataError) as error:
        raise StudyError(f"{str(table)!r} is not a table ({error}).") from None
    unknown = [name for name in names if name not in frame.columns]
    if unknown:
        raise StudyError(
            f"{str(table)!r} has no column {', '.join(map(repr, unknown))}; it has "
            f"{', '.join(map(repr, frame.columns))}."
        )
    return [frame[name].to_numpy(dtype=np.float64) for name in names]
