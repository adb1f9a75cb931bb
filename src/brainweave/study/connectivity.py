"""Samples of connectivity: to align people who saw different things, or rested."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import scipy.sparse
from numpy.typing import NDArray

from brainweave._core.arrays import Matrix, to_numpy
from brainweave._core.exceptions import InputError
from brainweave.basis.places import find_places
from brainweave.study.study import Study
from brainweave.study.subject import Subject

_MOST = 0.9999  # correlation, beyond which Fisher's z is cut


def connectivity_samples(
    study: Study, targets: Any, *, responses: Study | None = None, weigh: bool = True
) -> Study:
    r"""Return samples of connectivity: the correlation of voxels with targets.

    A row per target t, with Fisher's z of the correlation over time of each voxel v
    with the mean time course of the target, centred over targets. Time courses need not
    correspond between people, only targets do: rows have the names of targets as
    stimulus ids, so any aligner that joins samples by ids or by rows takes them.

    Parameters
    ----------
    study : Study
        Runs of each subject, cleaned: what scanner and body make alike everywhere is
        connectivity, too.
    targets : atlas, array of labels, list of arrays, or "auto"
        Targets as ``place`` of :class:`brainweave.GDM`: an atlas or its name, a label
        per voxel, or "auto", the supervoxels or patches of the subjects' spaces. Or a
        list of time courses, an array (n_samples_i, n_targets) per subject, such as the
        shared features of a model: connectivity with these refines it.
    responses : Study, optional
        Samples to add, of people who saw the same: rows of both kinds, with their ids,
        align together (hybrid alignment). Each kind has half of the variance of a
        voxel. Subjects without responses have connectivity alone.
    weigh : bool, default=True
        Multiply each row by its reliability: the root of the correlation, over voxels,
        of the row in one half of a subject's runs with that in the other, averaged over
        subjects and corrected for the length (Spearman and Brown).

    Returns
    -------
    Study
        With the spaces of the subjects; ``runs`` tell "connectivity" from "responses".
        Targets that someone has no voxel in, or that are not reliable, are left out.

    Notes
    -----
    A voxel does not count in its own target. Time O(n v t) for n samples, v voxels and
    t targets.

    References
    ----------
    Guntupalli, J. S., Feilong, M., & Haxby, J. V. (2018). A computational model of
    shared fine-scale structure in the human connectome. PLoS Computational Biology 14.
    Busch, E. L., et al. (2021). Hybrid hyperalignment: a single high-dimensional model
    of shared information embedded in cortical patterns of response and functional
    connectivity. NeuroImage 233.

    Examples
    --------
    People of two groups who saw different films:

    >>> from brainweave import GDM, simulate_brains
    >>> films = [["a"], ["a"], ["b"], ["b"]]
    >>> study = simulate_brains(4, films=films, shape=(6, 6, 6), n_samples=80)
    >>> rows = connectivity_samples(study, "auto")
    >>> rows[0].n_samples == rows[2].n_samples, rows[0].n_voxels == study[0].n_voxels
    (True, True)
    >>> model = GDM(3, graph="time").fit(rows)
    """
    given = isinstance(targets, list | tuple) and all(np.ndim(t) == 2 for t in targets)
    if same := given and [len(t) for t in targets] == [s.n_samples for s in study]:
        makers: list[Any] = [np.asarray(to_numpy(t), np.float64) for t in targets]
        columns = {course.shape[1] for course in makers}
        if len(columns) > 1:
            raise InputError(
                f"targets have {sorted(columns)} columns; they must be the same in all "
                "subjects."
            )
        names = [f"target {k}" for k in range(*columns)]
    else:
        found = find_places(targets, list(study), owner="connectivity_samples")
        if isinstance(found, str):
            raise InputError(
                f"There are no targets: {found}. Give an atlas, or a label per voxel."
            )
        whole = scipy.sparse.eye_array(found.n_places, format="csr")
        makers = [
            whole if m is None else scipy.sparse.csr_array(m) for m in found.matrices
        ]
        everyone = np.all([np.ravel(abs(m).sum(axis=0)) > 0 for m in makers], axis=0)
        makers = [m[:, np.flatnonzero(everyone)] for m in makers]
        labels = found.names or range(found.n_places)
        names = [str(name) for name, held in zip(labels, everyone, strict=True) if held]
    if not names:
        raise InputError("No target has voxels in all subjects. Give coarser targets.")
    rows, reliabilities = [], []
    for subject, maker in zip(study, makers, strict=True):
        samples = subject.data()
        rows.append(_fisher_z(samples, maker))
        if weigh:
            halves = [
                _fisher_z(samples[half], maker[half] if same else maker)
                for half in _halves(subject)
            ]
            a, b = (z - z.mean(axis=1, keepdims=True) for z in halves)
            norm = np.sqrt((a * a).sum(axis=1) * (b * b).sum(axis=1))
            r = (a * b).sum(axis=1) / np.where(norm > 0, norm, np.inf)
            reliabilities.append(r)
    weights = np.ones(len(names))
    if weigh:
        r = np.clip(np.mean(reliabilities, axis=0), 0, None)
        weights = np.sqrt(2 * r / (1 + r))
        if not (weights > 0).any():
            raise InputError(
                "No target's connectivity repeats from one half of the runs to the "
                "other. Give longer runs or coarser targets, or pass weigh=False."
            )
    kept = np.flatnonzero(weights > 0)
    ids = [f"connectivity {names[k]}" for k in kept]
    made = [
        Subject(
            subject.id,
            ((z[kept] - z[kept].mean(axis=0)) * weights[kept, None]).astype(np.float32),
            stimuli=ids,
            runs=["connectivity"] * len(ids),
            space=subject.space,
        )
        for subject, z in zip(study, rows, strict=True)
    ]
    if responses is not None:
        made = _with_responses(made, responses)
    told = {"targets": len(kept), "weighed": weigh, "responses": responses is not None}
    record = {**(study.record or {}), "connectivity": told}
    return Study(made, f"{study.name}, connectivity" if study.name else "", record)


def _fisher_z(samples: Any, maker: Any) -> Matrix:
    """Return Fisher's z, targets x voxels; makers average voxels, or are courses."""
    x = np.asarray(samples, np.float64)
    x = x - x.mean(axis=0)
    size = np.sqrt((x * x).mean(axis=0))
    x /= np.where(size > 0, size, 1)
    n = len(x)
    by_voxels = scipy.sparse.issparse(maker)
    courses = x @ maker if by_voxels else maker - maker.mean(axis=0)
    covariance = courses.T @ x / n
    spread = np.tile((courses * courses).mean(axis=0)[:, None], x.shape[1])
    if by_voxels:
        # a voxel does not count in its own target
        own = scipy.sparse.coo_array(maker)
        at, b = (own.col, own.row), own.data * (size[own.row] > 0)
        before = covariance[at]
        covariance[at] = before - b
        spread[at] = spread[at] - 2 * b * before + b * b
    scale = np.sqrt(np.maximum(spread, 1e-12))
    return np.arctanh(np.clip(covariance / scale, -_MOST, _MOST))


def _halves(subject: Subject) -> list[NDArray[np.intp]]:
    """Return the samples of one half of the runs, or of the time, and of the other."""
    runs = subject.run_ids
    if len(runs) > 1 and subject.runs is not None:
        first = np.isin(subject.runs, runs[: (len(runs) + 1) // 2])
    else:
        first = np.arange(subject.n_samples) < subject.n_samples // 2
    if min(first.sum(), (~first).sum()) < 3:
        raise InputError(
            f"Subject {subject.id!r} has too few samples to tell how reliable its "
            "connectivity is. Give longer runs, or pass weigh=False."
        )
    return [np.flatnonzero(first), np.flatnonzero(~first)]


def _with_responses(made: Sequence[Subject], responses: Study) -> list[Subject]:
    """Add rows of responses, as large as those of connectivity in each voxel."""
    both = []
    for subject in made:
        if subject.id not in responses.ids:
            both.append(subject)
            continue
        own = responses[subject.id]
        if own.stimuli is None or own.n_voxels != subject.n_voxels:
            raise InputError(
                f"Subject {subject.id!r}: responses need stimulus ids and the "
                f"{subject.n_voxels} voxels of the connectivity."
            )
        z = np.asarray(subject.samples, np.float64)
        x = np.asarray(own.data(), np.float64)
        x = x - x.mean(axis=0)
        spread = np.sqrt((x * x).sum(axis=0))
        x *= np.sqrt((z * z).sum(axis=0)) / np.where(spread > 0, spread, np.inf)
        both.append(
            Subject(
                subject.id,
                np.concatenate([z, x]).astype(np.float32),
                stimuli=[*subject.stimuli, *own.stimuli],  # type: ignore[misc]
                runs=["connectivity"] * len(z) + ["responses"] * len(x),
                space=subject.space,
            )
        )
    return both
