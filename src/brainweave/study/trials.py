"""One estimate per trial: general linear models as weights over volumes."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from brainweave.exceptions import StudyError
from brainweave.study.events import Events

__all__ = ["trial_weights"]


def trial_weights(
    events: Events,
    n_volumes: int,
    tr: float,
    *,
    separate: bool,
    usable: NDArray[np.bool_] | None = None,
    confounds: NDArray[np.float64] | None = None,
    hrf_model: str = "glover",
    high_pass: float | None = None,
) -> NDArray[np.float64]:
    r"""Weights that turn volumes into one amplitude per trial.

    With all trials in one model (least squares all), :math:`\hat\beta = X^+ Y`, and the
    weights are the trials' rows of :math:`X^+`. With a model per trial (least squares
    separate, [1]_), :math:`X_j` holds trial j, the sum of the other trials of each
    category, and the rest, and only the first row of :math:`X_j^+` is kept; that
    trades a little bias for far less variance when trials follow each other quickly.

    Parameters
    ----------
    events : Events
        One trial per event.
    n_volumes : int
        Number of volumes of the run.
    tr : float
        Seconds from one volume to the next.
    separate : bool
        Whether each trial has a model of its own.
    usable : ndarray of bool of shape (n_volumes,) or None
        Volumes that enter the model; the others get weight zero.
    confounds : ndarray of shape (n_volumes, n_confounds) or None
        Further columns of the model.
    hrf_model : str, default="glover"
        The assumed response, one of nilearn's.
    high_pass : float or None
        Cut-off of the cosine drift terms in Hz; None for a constant alone.

    Returns
    -------
    ndarray of shape (n_trials, n_volumes)

    References
    ----------
    .. [1] Mumford, J. A., Turner, B. O., Ashby, F. G. and Poldrack, R. A. (2012).
       Deconvolving BOLD activation in event-related designs for multivoxel pattern
       classification analyses. NeuroImage, 59(3), 2636-2643.
    """
    usable = np.ones(n_volumes, dtype=bool) if usable is None else usable
    regressors = _regressors(events, n_volumes, tr, hrf_model)[usable]
    nuisance = _nuisance(n_volumes, tr, high_pass, confounds)[usable]
    weights = np.zeros((len(events), n_volumes))
    if not separate:
        n_columns = regressors.shape[1] + nuisance.shape[1]
        if n_columns > len(regressors):
            raise StudyError(
                f"{len(events)} trials and {nuisance.shape[1]} other columns do not "
                f'fit {len(regressors)} volumes. Use samples="trials-lss", which has '
                "a model per trial, or fewer confounds."
            )
        inverse = np.linalg.pinv(np.hstack([regressors, nuisance]))
        weights[:, usable] = inverse[: len(events)]
        return weights
    categories, member = np.unique(events.label, return_inverse=True)
    sums = regressors @ np.eye(len(categories))[member]
    for j, category in enumerate(member):
        others = sums.copy()
        others[:, category] -= regressors[:, j]
        # a category with this trial alone leaves a column of rounding errors
        n_others = np.bincount(member) - (np.arange(len(categories)) == category)
        others = others[:, n_others > 0]
        design = np.hstack([regressors[:, j : j + 1], others, nuisance])
        weights[j, usable] = np.linalg.pinv(design)[0]
    return weights


def _regressors(
    events: Events, n_volumes: int, tr: float, hrf_model: str
) -> NDArray[np.float64]:
    from nilearn.glm.first_level import compute_regressor

    times = np.arange(n_volumes) * tr
    columns = [
        compute_regressor((([onset]), ([duration]), ([1.0])), hrf_model, times)[0][:, 0]
        for onset, duration in zip(events.onset, events.duration, strict=True)
    ]
    return np.column_stack(columns) if columns else np.empty((n_volumes, 0))


def _nuisance(
    n_volumes: int,
    tr: float,
    high_pass: float | None,
    confounds: NDArray[np.float64] | None,
) -> NDArray[np.float64]:
    from nilearn.glm.first_level import make_first_level_design_matrix

    drifts = make_first_level_design_matrix(
        np.arange(n_volumes) * tr,
        drift_model=None if high_pass is None else "cosine",
        high_pass=high_pass,
    )
    columns = [drifts.to_numpy(dtype=np.float64)]  # a constant, and cosines
    if confounds is not None and confounds.shape[1]:
        centred = confounds - confounds.mean(axis=0)
        scale = centred.std(axis=0)
        columns.append(centred / np.where(scale > 0, scale, 1.0))
    return np.hstack(columns)
