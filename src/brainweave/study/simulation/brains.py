"""Simulated brains: masks, smooth maps, haemodynamics and noise."""

from __future__ import annotations

from dataclasses import dataclass
from math import factorial

import numpy as np
from numpy.typing import NDArray

__all__ = [
    "Brain",
    "autoregressive_noise",
    "choose_grid",
    "double_gamma",
    "draw_brain",
    "draw_maps",
    "draw_mask",
    "smooth_fields",
]

# Half-axes of the ellipsoid: left-right, front-back and up-down, about 1.
_AXES = np.array([0.88, 1.16, 0.96])
# A human brain's volume and where its middle lies in MNI space, in mm.
_BRAIN_VOLUME = 1.2e6
_BRAIN_CENTRE = np.array([0.0, -18.0, 10.0])


@dataclass(frozen=True)
class Brain:
    """Where the voxels of one subject lie and what they respond to."""

    mask: NDArray[np.bool_]  # the voxels, in a volume
    affine: NDArray[np.float64]  # from voxel indices to millimetres
    maps: NDArray[np.float32]  # dimensions of the shared space x voxels
    baseline: NDArray[np.float32]  # the mean image

    @property
    def n_voxels(self) -> int:
        """Number of voxels in the mask."""
        return int(self.maps.shape[1])


def choose_grid(n_voxels: int) -> tuple[tuple[int, int, int], NDArray[np.float64]]:
    """Choose a volume for brains of up to `n_voxels` voxels: its shape and affine.

    The voxel size makes the largest brain as large as a human one. There is a margin
    of a voxel or two for brains of another form.
    """
    radius = (3.0 * n_voxels / (4.0 * np.pi)) ** (1.0 / 3.0)
    # forms differ by up to a tenth (see draw_mask)
    half = np.ceil(1.1 * radius * _AXES + 0.5).astype(int)
    shape = tuple(int(2 * h + 1) for h in half)
    size = max(round(2.0 * (_BRAIN_VOLUME / n_voxels) ** (1.0 / 3.0)) / 2.0, 0.5)
    affine = np.diag([size, size, size, 1.0])
    affine[:3, 3] = _BRAIN_CENTRE - size * half
    return (shape[0], shape[1], shape[2]), affine


def draw_mask(
    shape: tuple[int, int, int], n_voxels: int, rng: np.random.Generator | None = None
) -> NDArray[np.bool_]:
    """Draw an ellipsoid of exactly `n_voxels` voxels; `rng` varies its form.

    Examples
    --------
    >>> shape, _ = choose_grid(500)
    >>> int(draw_mask(shape, 437, np.random.default_rng(0)).sum())
    437
    """
    axes = _AXES if rng is None else _AXES * rng.uniform(0.95, 1.05, size=3)
    grid = np.meshgrid(*(np.arange(n) - (n - 1) / 2 for n in shape), indexing="ij")
    radius = np.sqrt(sum((g / a) ** 2 for g, a in zip(grid, axes, strict=True)))
    if rng is not None:
        radius *= 1 + 0.05 * smooth_fields(shape, 1, 3.0, rng)[0]
    nearest = np.argsort(radius, axis=None, kind="stable")[:n_voxels]
    mask = np.zeros(radius.size, dtype=bool)
    mask[nearest] = True
    return mask.reshape(shape)


def smooth_fields(
    shape: tuple[int, int, int], n_fields: int, width: float, rng: np.random.Generator
) -> NDArray[np.float32]:
    """Draw Gaussian random fields with unit variance.

    `width` is the standard deviation of the smoothing kernel in voxels.
    """
    from scipy.ndimage import gaussian_filter

    fields = rng.standard_normal((n_fields, *shape), dtype=np.float32)
    for field in fields:
        gaussian_filter(field, width, output=field, mode="wrap")
    scale = fields.std(axis=(1, 2, 3), keepdims=True)
    fields /= np.where(scale > 0, scale, 1)
    return fields


def draw_maps(
    mask: NDArray[np.bool_], n_maps: int, smoothness: float, rng: np.random.Generator
) -> NDArray[np.float32]:
    """Draw smooth maps over the voxels of a mask, with zero mean and unit power."""
    shape = (mask.shape[0], mask.shape[1], mask.shape[2])
    maps = smooth_fields(shape, n_maps, smoothness, rng)[:, mask]
    maps -= maps.mean(axis=1, keepdims=True)
    scale = np.sqrt((maps**2).mean(axis=1, keepdims=True))
    maps /= np.where(scale > 0, scale, 1)
    return maps


def draw_brain(
    mask: NDArray[np.bool_],
    affine: NDArray[np.float64],
    *,
    n_shared: int,
    smoothness: float,
    baseline: float,
    rng: np.random.Generator,
) -> Brain:
    """Draw one subject's maps inside a mask.

    The maps are independent between subjects: the same place in two brains has
    nothing in common.
    """
    maps = draw_maps(mask, n_shared + 1, smoothness, rng)
    level = baseline * (1 + 0.05 * np.clip(maps[-1], -3, 3))
    return Brain(mask, affine, maps[:-1], level.astype(np.float32))


def double_gamma(step: float, *, length: float = 32.0) -> NDArray[np.float64]:
    """Sample the canonical haemodynamic response, scaled to unit sum.

    The difference of two gamma densities, with a peak near 5 s and an undershoot near
    15 s, as in Friston et al. (1998), NeuroImage 7(1), 30-40.

    Examples
    --------
    >>> response = double_gamma(0.1)
    >>> float(round(response.argmax() * 0.1, 1))
    5.0
    """
    times = np.arange(0.0, length, step)
    # gamma densities of shape 6 and 16
    peak = times**5 * np.exp(-times) / factorial(5)
    undershoot = times**15 * np.exp(-times) / factorial(15)
    response = peak - undershoot / 6.0
    return np.asarray(response / response.sum())


def autoregressive_noise(
    n_samples: int,
    n_series: int,
    coefficient: float | NDArray[np.float64],
    rng: np.random.Generator,
) -> NDArray[np.float32]:
    """Draw AR(1) series with unit variance, stationary from the first sample.

    `coefficient` is one number, or one per series.
    """
    noise = rng.standard_normal((n_samples, n_series), dtype=np.float32)
    phi = np.broadcast_to(np.asarray(coefficient, dtype=np.float32), (n_series,))
    noise[1:] *= np.sqrt(1 - phi**2)
    for t in range(1, n_samples):
        noise[t] += phi * noise[t - 1]
    return noise
