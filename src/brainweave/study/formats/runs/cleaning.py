"""Cleaning the time course of a run: trends, filters, confounds, by nilearn."""

from dataclasses import dataclass
from os import PathLike
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from brainweave.exceptions import InputError, StudyError
from brainweave.study.formats.image_files import reading

__all__ = ["Cleaning", "read_confounds"]


@dataclass(frozen=True)
class Cleaning:
    """What to do with the time course of each voxel, run by run.

    Parameters
    ----------
    detrend : bool, default=False
        Remove a linear trend.
    standardize : {None, "zscore", "psc"}, default=None
        Scale each voxel over the run, to unit variance or percent signal change.
    high_pass, low_pass : float, optional
        Cut-offs in Hz, Butterworth (the repetition time must be known).
    smoothing_fwhm : float, optional
        Spatial smoothing in mm, for volumes only.
    nan : {"error", "zero"}, default="error"
        What to do if a voxel inside the mask is not finite at some time: refuse the
        run, or set that voxel to zero throughout the run.

    Notes
    -----
    The work is done by :func:`nilearn.signal.clean`, in its order: detrend, filter,
    confounds, standardise.
    """

    detrend: bool = False
    standardize: Literal["zscore", "psc"] | None = None
    high_pass: float | None = None
    low_pass: float | None = None
    smoothing_fwhm: float | None = None
    nan: Literal["error", "zero"] = "error"

    def __post_init__(self) -> None:
        if self.standardize not in (None, "zscore", "psc"):
            raise InputError(
                f'standardize takes None, "zscore" or "psc", got {self.standardize!r}.'
            )
        if self.nan not in ("error", "zero"):
            raise InputError(f'nan takes "error" or "zero", got {self.nan!r}.')
        for name in ("high_pass", "low_pass", "smoothing_fwhm"):
            value = getattr(self, name)
            if value is not None and not value > 0:
                raise InputError(f"{name} must be above zero, got {value}.")

    def apply(
        self,
        values: NDArray[Any],
        *,
        name: str,
        confounds: NDArray[Any] | None = None,
        sample_mask: NDArray[np.intp] | None = None,
        t_r: float | None = None,
    ) -> NDArray[Any]:
        """Clean one run (n_samples x n_voxels); the input is not modified.

        Parameters
        ----------
        values : ndarray of shape (n_samples, n_voxels)
            The run as read.
        name : str
            Name of the run, for messages.
        confounds : ndarray of shape (n_samples, n_confounds), optional
            Time courses to remove.
        sample_mask : ndarray of int, optional
            Volumes to use; the others are left out of all steps and of the result.
        t_r : float, optional
            Repetition time in seconds, needed to filter.

        Returns
        -------
        ndarray
        """
        values = self._finite(values, name)
        filters = self.high_pass is not None or self.low_pass is not None
        if filters and t_r is None:
            raise InputError(
                f"{name!r} states no repetition time, which filtering needs. Give t_r."
            )
        wants_nothing = not (self.detrend or self.standardize or filters)
        if confounds is None and wants_nothing:
            return values if sample_mask is None else values[sample_mask]
        if filters and t_r is not None:
            self._check_cutoffs(t_r, name)
        from nilearn.signal import clean  # slow to import, and seldom needed

        cleaned = clean(
            values,
            detrend=self.detrend,
            standardize=_nilearn_standardize(self.standardize),
            sample_mask=sample_mask,
            confounds=confounds,
            filter="butterworth" if filters else False,
            low_pass=self.low_pass,
            high_pass=self.high_pass,
            t_r=t_r if filters else None,
        )
        return np.asarray(cleaned)

    def _finite(self, values: NDArray[Any], name: str) -> NDArray[Any]:
        # A sum is finite if all its terms are: one pass, nothing of the data's size.
        with np.errstate(invalid="ignore", over="ignore"):
            suspects = np.flatnonzero(
                ~np.isfinite(values.sum(axis=0, dtype=np.float64))
            )
        bad = suspects[~np.isfinite(values[:, suspects]).all(axis=0)]
        if bad.size == 0:
            return values
        if self.nan == "error":
            raise StudyError(
                f"{name!r}: {bad.size} of {values.shape[1]} voxels in the mask are NaN "
                'or infinite. Use a tighter mask, or nan="zero" to set them to zero.'
            )
        values = values.copy()
        values[:, bad] = 0
        return values

    def _check_cutoffs(self, t_r: float, name: str) -> None:
        nyquist = 0.5 / t_r
        for option in ("high_pass", "low_pass"):
            value = getattr(self, option)
            if value is not None and value >= nyquist:
                raise InputError(
                    f"{option}={value} Hz is not below half the sampling rate of "
                    f"{name!r}, {nyquist:.3g} Hz (repetition time {t_r:g} s)."
                )


def _nilearn_standardize(standardize: str | None) -> Any:
    if standardize == "zscore":
        return "zscore_sample"
    if standardize is None:
        import nilearn

        # "off" is spelled False up to nilearn 0.12 and None from 0.13 on
        major, minor = nilearn.__version__.split(".")[:2]
        return None if (int(major), int(minor)) >= (0, 13) else False
    return standardize


def read_confounds(
    confounds: Any, n_samples: int, name: str
) -> NDArray[np.float64] | None:
    """Return the confounds of one run as an array, from an array, a table or a file.

    Parameters
    ----------
    confounds : array-like, DataFrame, path or None
        A path is read as tab-separated with a header (``.tsv``), comma-separated with
        a header (``.csv``), or as bare columns of numbers (anything else, such as
        motion parameters).
    n_samples : int
        Number of volumes of the run.
    name : str
        Name of the run, for messages.

    Returns
    -------
    ndarray of shape (n_samples, n_confounds), or None
        Missing values in the first row, where derivatives have none, become zero.
    """
    if confounds is None:
        return None
    source = "its confounds"
    if isinstance(confounds, str | PathLike):
        source = f"its confounds {str(confounds)!r}"
        confounds = _read_table(Path(confounds))
    try:
        values = np.asarray(confounds, dtype=np.float64)
    except (TypeError, ValueError) as error:
        raise StudyError(
            f"{name!r}: {source} are not all numbers ({error}). Leave out columns of "
            "text."
        ) from None
    if values.ndim == 1:
        values = values[:, None]
    if values.ndim != 2 or len(values) != n_samples:
        raise StudyError(
            f"{name!r} has {n_samples} volumes, but {source} have shape "
            f"{values.shape}. Give one row per volume."
        )
    values = values.copy()
    values[0, np.isnan(values[0])] = 0.0
    if not np.isfinite(values).all():
        row, column = np.argwhere(~np.isfinite(values))[0]
        raise StudyError(
            f"{name!r}: {source} are not finite in row {row}, column {column}. Leave "
            "that column out, or fill it."
        )
    return values


def _read_table(path: Path) -> Any:
    import pandas as pd

    with reading(path):
        try:
            if path.suffix in (".tsv", ".csv"):
                separator = "\t" if path.suffix == ".tsv" else ","
                return pd.read_csv(path, sep=separator, na_values=["n/a"])
            return pd.read_csv(path, sep=r"\s+", header=None)
        except ValueError as error:  # pandas' parser errors are ValueErrors
            raise StudyError(
                f"{str(path)!r} is not a table of numbers ({error})."
            ) from error
