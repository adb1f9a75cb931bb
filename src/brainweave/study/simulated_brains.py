"""Simulate brains in one space: smooth functional maps, registered more or less well.

What :func:`brainweave.simulate_study` leaves out: here the functional maps of subjects
have something to do with each other before they are aligned. Every subject's maps are
those of all, displaced by what registration left, mixed with maps of its own.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from brainweave._core.exceptions import InputError
from brainweave._core.validation import check_number
from brainweave.study.simulation import autoregressive_noise, smooth_fields
from brainweave.study.spaces import VolumeSpace
from brainweave.study.study import Study
from brainweave.study.subject import Subject

_FILM_AUTOCORRELATION = 0.7  # of responses, from one sample to the next
_WARP_MM = 16.0  # width of the kernel that smooths displacements
_N_NOISE_MAPS = 20  # smooth patterns of a subject's noise, beside that of voxels
# Random streams, one number per purpose.
_MAPS, _FILM, _WARP, _OWN_MAPS, _MASK, _NOISE, _MISSING, _ARTEFACT, _NOISE_MAPS = range(
    9
)


@dataclass(frozen=True)
class BrainsTruth:
    """What simulated brains were made of.

    Attributes
    ----------
    responses : list of ndarray of shape (n_samples_i, n_components)
        The responses to the films that each subject saw.
    maps : list of ndarray of shape (n_components, n_voxels_i)
        Where each subject shows them; mean square 1.
    displacements : list of ndarray of shape (n_voxels_i, 3)
        Where the shared maps are found, in mm from each voxel.
    """

    responses: list[NDArray[np.float32]]
    maps: list[NDArray[np.float32]]
    displacements: list[NDArray[np.float32]]


class SimulatedBrains(Study):
    """A :class:`Study` with its ``truth``, returned by :func:`simulate_brains`."""

    truth: BrainsTruth


def simulate_brains(
    n_subjects: int = 6,
    *,
    shape: Sequence[int] = (12, 14, 12),
    voxel_mm: float = 4.0,
    n_components: int = 10,
    n_samples: int = 150,
    films: Sequence[str] | Sequence[Sequence[str]] = ("film",),
    signal: float = 0.3,
    misregistration_mm: float = 0.0,
    own_topography: float = 0.0,
    smoothness_mm: float = 8.0,
    mask_variability: float = 0.0,
    missing: float = 0.0,
    noise_ar: float = 0.3,
    artefact: float = 0.0,
    random_state: int = 0,
) -> SimulatedBrains:
    """Simulate subjects in one space who watch films.

    Parameters
    ----------
    n_subjects : int, default=6
        Number of subjects.
    shape, voxel_mm : tuple of int, float
        The grid, and the size of its voxels in mm. The brain is an ellipsoid in it.
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
    smoothness_mm : float, default=8
        Standard deviation of the kernel that smooths the maps.
    mask_variability : float, default=0
        How far the border of subjects' masks differs, as a share of the radius.
    missing : float, default=0
        Share of the samples that each subject lacks: a stretch somewhere.
    noise_ar : float, default=0.3
        Autocorrelation of noise, half of whose variance is smooth in space.
    artefact : float, default=0
        Standard deviation of a global signal: at the same places in all subjects, at
        times of their own.
    random_state : int, default=0
        Seed; the same gives the same study.

    Returns
    -------
    SimulatedBrains
        A study with brain spaces, ``stimuli`` and ``truth``.

    Examples
    --------
    >>> study = simulate_brains(3, n_samples=40, misregistration_mm=4)
    >>> study[0]
    Subject('01': 40 samples x 1072 voxels, 1 runs)
    >>> study[0].stimuli[:2].tolist()
    ['film 0', 'film 1']
    """
    grid = tuple(int(n) for n in shape)
    seen = _films_of(films, n_subjects)
    for interval, sizes in (
        ("(0, inf]", {"voxel_mm": voxel_mm, "smoothness_mm": smoothness_mm}),
        ("[0, 1]", {"own_topography": own_topography, "missing": missing}),
        ("[0, inf]", {"signal": signal, "artefact": artefact, "noise_ar": noise_ar}),
        ("[0, inf]", {"misregistration_mm": misregistration_mm}),
    ):
        for name, value in sizes.items():
            check_number(name, value, interval, owner="simulate_brains")

    def stream(*purpose: int) -> np.random.Generator:
        return np.random.default_rng([random_state, *purpose])

    def fields(n: int, width_mm: float, *purpose: int) -> NDArray[np.float32]:
        drawn = smooth_fields(grid, n, width_mm / voxel_mm, stream(*purpose))
        drawn -= drawn.mean(axis=(1, 2, 3), keepdims=True)  # of variance 1 already
        return drawn

    names = list(dict.fromkeys(film for own in seen for film in own))
    responses = {
        film: autoregressive_noise(
            n_samples, n_components, _FILM_AUTOCORRELATION, stream(_FILM, number)
        )
        for number, film in enumerate(names)
    }
    shared = fields(n_components, smoothness_mm, _MAPS)
    whole_brain = 1 + 0.3 * fields(1, 2 * smoothness_mm, _ARTEFACT)[0]
    affine = np.diag([voxel_mm] * 3 + [1.0])
    affine[:3, 3] = -voxel_mm * (np.array(grid) - 1) / 2
    subjects = []
    truth = BrainsTruth([], [], [])
    for i, own_films in enumerate(seen):
        border = 1 + mask_variability * fields(1, 2 * smoothness_mm, _MASK, i)[0]
        space = VolumeSpace.from_mask(_radius(grid) <= border, affine)
        mask = space.mask
        warp = fields(3, _WARP_MM, _WARP, i)
        warp *= misregistration_mm / np.sqrt((warp**2).sum(axis=0).mean())
        own = fields(n_components, smoothness_mm, _OWN_MAPS, i)[:, mask]
        maps = (
            np.sqrt(1 - own_topography) * _displaced(shared, warp / voxel_mm)[:, mask]
        )
        maps = maps + np.sqrt(own_topography) * own
        maps /= np.sqrt((maps**2).mean(axis=1, keepdims=True))
        kept = _kept(n_samples * len(own_films), missing, stream(_MISSING, i))
        shown = np.concatenate([responses[film] for film in own_films])[kept]
        stimuli = [f"{film} {t}" for film in own_films for t in range(n_samples)]
        rng = stream(_NOISE, i)
        patterns = fields(_N_NOISE_MAPS, smoothness_mm, _NOISE_MAPS, i)
        series = autoregressive_noise(len(shown), _N_NOISE_MAPS, noise_ar, rng)
        noise = series @ patterns[:, mask] / np.sqrt(_N_NOISE_MAPS)
        noise += autoregressive_noise(len(shown), space.n_voxels, noise_ar, rng)
        everywhere = autoregressive_noise(len(shown), 1, noise_ar, rng)
        samples = noise / np.sqrt(2) + artefact * everywhere * whole_brain[mask]
        samples += signal * shown @ maps / np.sqrt(n_components)
        runs = np.repeat(own_films, n_samples)
        subjects.append(
            Subject(
                f"{i + 1:02}",
                samples.astype(np.float32),
                runs=runs[kept],
                stimuli=np.array(stimuli)[kept],
                space=space,
            )
        )
        truth.responses.append(shown)
        truth.maps.append(maps.astype(np.float32))
        truth.displacements.append(warp[:, mask].T)
    study = SimulatedBrains(subjects, name="simulated brains")
    study.truth = truth
    return study


def _films_of(films: Any, n_subjects: int) -> list[list[str]]:
    """Return the films that each subject sees."""
    each = list(films)
    if all(isinstance(film, str) for film in each):
        return [each] * n_subjects
    if len(each) != n_subjects or not all(each):
        raise InputError(
            f"films has {len(each)} lists for {n_subjects} subjects. Give each subject "
            "a list of one film at least, or one list for all."
        )
    return [list(own) for own in each]


def _radius(shape: tuple[int, ...]) -> NDArray[np.float64]:
    """Return how far voxels are from the centre; 1 is the border of the brain."""
    axes = [(np.arange(n) - (n - 1) / 2) / (n / 2) for n in shape]
    x, y, z = np.meshgrid(*axes, indexing="ij")
    return np.asarray(np.sqrt(x**2 + y**2 + z**2))


def _displaced(
    fields: NDArray[np.float32], voxels: NDArray[np.float32]
) -> NDArray[np.float32]:
    """Return periodic fields, read at displaced voxels."""
    from scipy.ndimage import map_coordinates

    at = np.indices(fields.shape[1:]) + voxels
    return np.array([map_coordinates(f, at, order=3, mode="grid-wrap") for f in fields])


def _kept(n: int, missing: float, rng: np.random.Generator) -> NDArray[np.bool_]:
    """Return which samples a subject has: all but a stretch."""
    length = round(missing * n)
    start = int(rng.integers(n - length + 1))
    kept = np.ones(n, bool)
    kept[start : start + length] = False
    return kept
