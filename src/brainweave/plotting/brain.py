"""Shared features on the brain."""

from typing import TYPE_CHECKING, Any

import numpy as np

from brainweave.exceptions import InputError

if TYPE_CHECKING:
    from matplotlib.figure import Figure

# What nilearn's glass brain covers, in mm (the MNI152 template, and a little room).
_GLASS_LOW = np.array([-80.0, -115.0, -75.0])
_GLASS_HIGH = np.array([80.0, 80.0, 95.0])
_FSAVERAGE5 = 10242  # vertices of a hemisphere


def plot_feature_map(
    subject_map: Any,
    component: int = 0,
    *,
    what: str = "patterns",
    title: str | None = None,
    limit: float | None = None,
    colorbar: bool = True,
) -> "Figure":
    """Draw one shared feature on a subject's brain.

    Volumes that lie within the MNI template are drawn as a glass brain, others as three
    cuts; surfaces on fsaverage5 as hemispheres.

    Parameters
    ----------
    subject_map : SubjectMap
        Of a model that was fitted on images, so that its ``space`` is known.
    component : int, default=0
        Which shared feature, counted from 0.
    what : {"patterns", "weights"}
        What the voxels show when the feature is active, or how they are weighed.
    title : str, optional
        Written into the figure.
    limit : float, optional
        Value at the ends of the colour scale; by default the largest of this map.
    colorbar : bool, default=True
        Draw the colour scale.

    Returns
    -------
    Figure
    """
    image = subject_map.to_image(component, what=what)
    if hasattr(image, "affine") and len(getattr(image, "shape", ())) == 3:
        return _draw_volume(image, title, limit, colorbar)
    if hasattr(image, "darrays"):  # one structure alone; its name is in the space
        image = {next(iter(subject_map.space.masks)): image}
    surfaces = _fsaverage5_parts(image)
    if surfaces:
        return _draw_surfaces(surfaces, title, limit, colorbar)
    kind = getattr(subject_map.space, "kind", type(image).__name__)
    raise InputError(
        f"There is no picture for this {kind} space: nilearn brings the surface "
        f"fsaverage5 alone ({_FSAVERAGE5} vertices a hemisphere). Save the map, "
        "subject_map.to_image(component), and open it in a viewer of your surface."
    )


def fits_glass_brain(image: Any) -> bool:
    """Say whether all values of a volume lie where the MNI template has its brain."""
    values = np.asarray(image.dataobj)
    inside = np.argwhere(np.nan_to_num(values) != 0)
    if len(inside) == 0:
        return False
    corners = np.stack([inside.min(axis=0), inside.max(axis=0)])
    low, high = np.sort(corners @ image.affine[:3, :3].T + image.affine[:3, 3], axis=0)
    return bool((low >= _GLASS_LOW).all() and (high <= _GLASS_HIGH).all())


def _draw_volume(
    image: Any, title: str | None, limit: float | None, colorbar: bool
) -> "Figure":
    from matplotlib.figure import Figure
    from nilearn import plotting

    figure = Figure(figsize=(6.6, 2.4))
    limit = limit or _largest(image.dataobj)
    shared: dict[str, Any] = {"figure": figure, "title": title, "colorbar": colorbar}
    shared |= {"cmap": "RdBu_r", "vmin": -limit, "vmax": limit}
    if fits_glass_brain(image):
        plotting.plot_glass_brain(image, plot_abs=False, threshold=0, **shared)
    else:
        plotting.plot_img(image, draw_cross=False, **shared)
    return figure


def _largest(values: Any) -> float:
    return float(np.abs(np.nan_to_num(np.asarray(values))).max()) or 1.0


def _fsaverage5_parts(image: Any) -> dict[str, Any]:
    """Return the values of each hemisphere, if these are GIfTI images on fsaverage5."""
    found = {}
    for structure, part in image.items() if isinstance(image, dict) else ():
        side = str(structure).lower().removeprefix("cortex")
        if side not in ("left", "right") or not hasattr(part, "darrays"):
            return {}
        found[side] = np.asarray(part.darrays[0].data, dtype=float)
        if len(found[side]) != _FSAVERAGE5:
            return {}
    return found


def _draw_surfaces(
    parts: dict[str, Any], title: str | None, limit: float | None, colorbar: bool
) -> "Figure":
    from matplotlib.figure import Figure
    from nilearn import datasets, plotting

    mesh = datasets.fetch_surf_fsaverage("fsaverage5")
    figure = Figure(figsize=(3.3 * len(parts), 2.6))
    limit = limit or max(map(_largest, parts.values()))
    for number, (side, values) in enumerate(sorted(parts.items()), start=1):
        plotting.plot_surf_stat_map(
            mesh[f"infl_{side}"],
            values,
            hemi=side,
            bg_map=mesh[f"sulc_{side}"],
            axes=figure.add_subplot(1, len(parts), number, projection="3d"),
            figure=figure,
            vmax=limit,
            cmap="RdBu_r",
            colorbar=colorbar and number == len(parts),
        )
    if title:
        figure.suptitle(title, fontsize=10)
    return figure
