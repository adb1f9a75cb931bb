"""Simulate brains in one space: smooth functional maps, registered more or less well.

What :func:`brainweave.simulate_study` leaves out: here the functional maps of subjects
have something to do with each other before they are aligned. Every subject's maps are
those of all, displaced by what registration left, mixed with maps of its own.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from brainweave._core.exceptions import InputError
from brainweave._core.validation import check_number
from brainweave.study.simulation import (
    SimulatedStudy,
    SimulationTruth,
    autoregressive_noise,
    draw_stretch,
    smooth_fields,
)
from brainweave.study.spaces import VolumeSpace
from brainweave.study.subject import Subject

_FILM_AUTOCORRELATION = 0.7  # of responses, from one sample to the next
_NOISE_AR = 0.3  # autocorrelation of noise, half of whose variance is smooth
_VOXEL_MM = 4.0
_SMOOTHNESS_MM = 8.0  # width of the kernel that smooths the maps
_WARP_MM = 16.0  # width of the kernel that smooths displacements
_N_NOISE_MAPS = 20  # smooth patterns of a subject's noise, beside that of voxels
# Random streams, one number per purpose.
_MAPS, _FILM, _WARP, _OWN_MAPS, _MASK, _NOISE, _MISSING, _ARTEFACT, _NOISE_MAPS = range(
    9
)


def simulate_brains(
    n_subjects: int = 6,
    *,
    shape: Sequence[int] = (12, 14, 12),
    n_components: int = 10,
    n_samples: int = 150,
    films: Sequence[str] | Sequence[Sequence[str]] = ("film",),
    signal: float = 0.3,
    misregistration_mm: float = 0.0,
    own_topography: float = 0.0,
    mask_variability: float = 0.0,
    missing: float = 0.0,
    artefact: float = 0.0,
    random_state: int = 0,
) -> SimulatedStudy:
    """Simulate subjects in one space who watch films.

    Parameters
    ----------
    n_subjects : int, default=6
        Number of subjects.
    shape : tuple of int, default=(12, 14, 12)
        The grid, of voxels of 4 mm. The brain is an ellipsoid in it.
    n_components : int, default=10
        Number of functional maps, and of responses that show in them.
    n_samples : int, default=150
        Samples of each film. A film is a run.
    films : list of str, or a list of them per subject, default=("film",)
        What subjects see. Equal names have equal responses in all subjects, and equal
        ``stimuli``: ``[["a"], ["a"], ["b"], ["b"]]`` are groups without a common film.
    signal : float, default=0.3
        Standard deviation of all responses together in a voxel; that of noise is 1.
    misregistration_mm : float, default=0
        Root mean square length of the smooth displacements of each subject's maps.
    own_topography : float, default=0
        Share of the maps' variance that a subject has alone: 0, all is shared, to 1.
    mask_variability : float, default=0
        How far the border of subjects' masks differs, as a share of the radius.
    missing : float, default=0
        Share of the samples that each subject lacks: a stretch somewhere.
    artefact : float, default=0
        Standard deviation of a global signal: at the same places in all subjects, at
        times of their own.
    random_state : int, default=0
        Seed; the same gives the same study.

    Returns
    -------
    SimulatedStudy
        A study with brain spaces, ``stimuli`` and ``truth``.

    Examples
    --------
    >>> study = simulate_brains(3, n_samples=40, misregistration_mm=4)
    >>> study[0]
    Subject('01': 40 samples x 1072 voxels, 1 runs)
    >>> study[0].stimuli[:2].tolist()
    ['film 0', 'film 1']
    """
    from scipy.ndimage import map_coordinates

    grid = tuple(int(n) for n in shape)
    seen: list[Any] = list(films)
    if all(isinstance(film, str) for film in seen):
        seen = [seen] * n_subjects
    if len(seen) != n_subjects or not all(seen):
        raise InputError(
            f"films has {len(seen)} lists for {n_subjects} subjects. Give each subject "
            "a list of one film at least, or one list for all."
        )
    for name, value, interval in (
        ("own_topography", own_topography, "[0, 1]"),
        ("missing", missing, "[0, 1]"),
        ("signal", signal, "[0, inf]"),
        ("artefact", artefact, "[0, inf]"),
        ("misregistration_mm", misregistration_mm, "[0, inf]"),
    ):
        check_number(name, value, interval, owner="simulate_brains")

    def stream(*purpose: int) -> np.random.Generator:
        return np.random.default_rng([random_state, *purpose])

    def fields(n: int, width_mm: float, *purpose: int) -> NDArray[np.float32]:
        drawn = smooth_fields(grid, n, width_mm / _VOXEL_MM, stream(*purpose))
        drawn -= drawn.mean(axis=(1, 2, 3), keepdims=True)  # of variance 1 already
        return drawn

    names = list(dict.fromkeys(film for own in seen for film in own))
    responses = {
        film: autoregressive_noise(
            n_samples, n_components, _FILM_AUTOCORRELATION, stream(_FILM, number)
        )
        for number, film in enumerate(names)
    }
    shared = fields(n_components, _SMOOTHNESS_MM, _MAPS)
    whole_brain = 1 + 0.3 * fields(1, 2 * _SMOOTHNESS_MM, _ARTEFACT)[0]
    # how far voxels are from the centre; 1 is the border of the brain
    axes = [(np.arange(n) - (n - 1) / 2) / (n / 2) for n in grid]
    x, y, z = np.meshgrid(*axes, indexing="ij")
    radius = np.sqrt(x**2 + y**2 + z**2)
    affine = np.diag([_VOXEL_MM] * 3 + [1.0])
    affine[:3, 3] = -_VOXEL_MM * (np.array(grid) - 1) / 2
    subjects, truth = [], SimulationTruth([], [])
    for i, own_films in enumerate(seen):
        border = 1 + mask_variability * fields(1, 2 * _SMOOTHNESS_MM, _MASK, i)[0]
        space = VolumeSpace.from_mask(radius <= border, affine)
        mask = space.mask
        warp = fields(3, _WARP_MM, _WARP, i)
        warp *= misregistration_mm / np.sqrt((warp**2).sum(axis=0).mean())
        at = np.indices(grid) + warp / _VOXEL_MM
        moved = np.array(
            [map_coordinates(f, at, order=3, mode="grid-wrap") for f in shared]
        )
        maps = np.sqrt(1 - own_topography) * moved[:, mask]
        own = fields(n_components, _SMOOTHNESS_MM, _OWN_MAPS, i)[:, mask]
        maps = maps + np.sqrt(own_topography) * own
        maps /= np.sqrt((maps**2).mean(axis=1, keepdims=True))
        n = n_samples * len(own_films)
        kept = np.ones(n, bool)
        kept[draw_stretch(n, round(missing * n), stream(_MISSING, i))] = False
        shown = np.concatenate([responses[film] for film in own_films])[kept]
        stimuli = [f"{film} {t}" for film in own_films for t in range(n_samples)]
        rng = stream(_NOISE, i)
        patterns = fields(_N_NOISE_MAPS, _SMOOTHNESS_MM, _NOISE_MAPS, i)
        series = autoregressive_noise(len(shown), _N_NOISE_MAPS, _NOISE_AR, rng)
        noise = series @ patterns[:, mask] / np.sqrt(_N_NOISE_MAPS)
        noise += autoregressive_noise(len(shown), space.n_voxels, _NOISE_AR, rng)
        everywhere = autoregressive_noise(len(shown), 1, _NOISE_AR, rng)
        samples = noise / np.sqrt(2) + artefact * everywhere * whole_brain[mask]
        samples += signal * shown @ maps / np.sqrt(n_components)
        subjects.append(
            Subject(
                f"{i + 1:02}",
                samples.astype(np.float32),
                runs=np.repeat(own_films, n_samples)[kept],
                stimuli=np.array(stimuli)[kept],
                space=space,
            )
        )
        truth.shared.append(shown)
        truth.maps.append(maps.astype(np.float32))
    return SimulatedStudy(subjects, "simulated brains", truth)
