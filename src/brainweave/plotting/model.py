"""Figures of what an aligner learned: the shared space and maps of the brain."""

from collections.abc import Sequence
from itertools import product
from typing import TYPE_CHECKING, Any

import numpy as np

from brainweave._core.arrays import to_numpy
from brainweave._core.exceptions import InputError
from brainweave.plotting import style
from brainweave.plotting.results import MAX_LEGEND, labelled_study, labels_of

if TYPE_CHECKING:
    from matplotlib.axes import Axes

MANY = 1000  # samples


@style.styled
def plot_shared_space(
    shared: Sequence[Any],
    labels: Sequence[Any],
    *,
    components: tuple[int, int] = (0, 1),
    axes: "Axes | None" = None,
) -> "Axes":
    """Plot the samples of all subjects in two dimensions of the shared space.

    Parameters
    ----------
    shared : list of arrays of shape (n_samples_i, n_components)
        What ``transform`` or ``fit_transform`` returns.
    labels : list of array-like
        Category of each sample; None for unlabelled ones.
    components : (int, int), default=(0, 1)
        Shared features to plot, numbered from 0.
    axes : matplotlib Axes, optional
        Where to draw; by default in a new figure.

    Returns
    -------
    Axes

    Examples
    --------
    >>> from brainweave import GDM, simulate_study
    >>> study = simulate_study(n_subjects=3, categories=4, n_voxels=40, random_state=0)
    >>> aligning, other = study.split_halves()
    >>> shared = GDM(n_components=3).fit(aligning).transform(other)
    >>> axes = plot_shared_space(shared, [subject.labels for subject in other])
    >>> axes.get_xlabel()
    'shared feature 0'
    """
    style.check_not_empty(shared, "subjects")
    arrays = [np.asarray(to_numpy(s), dtype=float) for s in shared]
    people = labelled_study(labels)
    if [len(array) for array in arrays] != [s.n_samples for s in people]:
        raise InputError("labels must have one label per sample, one list per subject.")
    points = np.concatenate(arrays)[:, list(components)]
    kinds = people.categories
    of_sample = [label for subject in people for label in labels_of(subject)]
    ax = style.new_axes(axes, 5.6, 4.2)
    shown = {}
    colors = [*style.palette(len(kinds)), style.UNLABELLED]
    for kind, color in zip([*kinds, None], colors, strict=True):
        x, y = points[[v == kind for v in of_sample]].T
        if len(x):
            # as an image: many dots would make a page slow
            look: Any = {"s": 12, "linewidths": 0, "rasterized": len(points) > MANY}
            dots = ax.scatter(x, y, color=color, alpha=0.75, **look)
            shown["unlabelled" if kind is None else kind] = dots
    ax.set_xlabel(f"shared feature {components[0]}")
    ax.set_ylabel(f"shared feature {components[1]}")
    if len(shown) <= MAX_LEGEND:
        style.add_legend(ax, list(shown.values()), shown)
    return ax


# What nilearn's glass brain covers, in mm (the MNI152 template, and a little room).
_GLASS_LOW = np.array([-80.0, -115.0, -75.0])
_GLASS_HIGH = np.array([80.0, 80.0, 95.0])


def plot_brain(
    image: Any,
    space: Any = None,
    *,
    title: str | None = None,
    limit: float | None = None,
    colorbar: bool = True,
) -> Any:
    """Plot a map on the brain: a glass brain, cuts, or inflated surfaces.

    Parameters
    ----------
    image : image
        What ``to_image`` of a space, a map or an :class:`InformationMap` gives.
    space : object, optional
        The space it is of, for hemispheres that do not name themselves.
    title : str, optional
        Title of the figure.
    limit : float, optional
        Value at the ends of the colour scale; by default the largest of this map.
    colorbar : bool, default=True
        Whether to show the colour scale.

    Returns
    -------
    nilearn display or Figure
        What nilearn returns: a display for volumes, a figure for surfaces.

    Examples
    --------
    >>> from brainweave import GDM, simulate_study
    >>> study = simulate_study(n_subjects=3, categories=4, n_voxels=40, random_state=0)
    >>> gdm = GDM(n_components=3).fit(study)
    >>> display = plot_brain(gdm.maps_[0].to_image(0), title="shared feature 0")
    >>> display.savefig("feature.png")
    """
    import matplotlib.pyplot as plt
    from nilearn import plotting

    options: dict[str, Any] = {"cmap": "RdBu_r", "title": title}
    sides = _hemispheres(image, space)
    if sides:
        return _plot_surfaces(sides, limit, colorbar, **options)
    limit = limit or _largest(image.dataobj)
    options |= {"vmin": -limit, "vmax": limit, "colorbar": colorbar}
    options["figure"] = plt.figure(figsize=(6.6, 2.4))
    if fits_glass_brain(image):
        return plotting.plot_glass_brain(image, plot_abs=False, threshold=0, **options)
    return plotting.plot_img(image, draw_cross=False, **options)


def fits_glass_brain(image: Any) -> bool:
    """Return whether all values of a volume lie within the MNI template."""
    inside = np.argwhere(np.nan_to_num(np.asarray(image.dataobj)) != 0)
    if len(inside) == 0:
        return False
    corners = np.stack([inside.min(axis=0), inside.max(axis=0)])
    low, high = np.sort(corners @ image.affine[:3, :3].T + image.affine[:3, 3], axis=0)
    return bool((low >= _GLASS_LOW).all() and (high <= _GLASS_HIGH).all())


def _largest(values: Any) -> float:
    return float(np.abs(np.nan_to_num(np.asarray(values))).max()) or 1.0


def _hemispheres(image: Any, space: Any) -> dict[str, Any]:
    """Return the values of each hemisphere of a surface; nothing for a volume."""
    axis_of = getattr(getattr(image, "header", None), "get_axis", None)
    if axis_of is not None:  # grayordinates: those of the volume are not drawn
        axis, values = axis_of(1), np.asarray(image.dataobj)[0]
        found = {}
        for structure, n in axis.nvertices.items():
            here = np.asarray(axis.name) == structure
            found[structure] = np.zeros(n)
            found[structure][axis.vertex[here]] = values[here]
        if not found:
            raise InputError("These grayordinates have no surface to draw.")
        return found
    if hasattr(image, "darrays"):  # one structure alone; its name is in the space
        image = {next(iter(space.masks)): image}
    data = getattr(image, "data", image)  # of nilearn's SurfaceImage
    parts = getattr(data, "parts", data)
    if not isinstance(parts, dict):
        return {}
    return {
        name: np.ravel(part.darrays[0].data if hasattr(part, "darrays") else part)
        for name, part in parts.items()
    }


def _plot_surfaces(
    sides: dict[str, Any], limit: float | None, colorbar: bool, *, cmap: str, title: Any
) -> Any:
    """Plot inflated hemispheres of fsaverage or fsLR-32k from outside and inside."""
    import matplotlib.pyplot as plt
    from nilearn import datasets, plotting

    from brainweave.study.meshes import NAMED, named_mesh, side_of

    names = {n: name for name, n in NAMED.items()}
    sizes = {structure: len(values) for structure, values in sides.items()}
    if not {*sizes.values()} <= {*names}:
        raise InputError(
            f"There is no picture for surfaces of {sizes} vertices: no mesh of that "
            "size is known by name. Save the map and open it in a surface viewer."
        )
    # fsaverage5 and coarser meshes, its first vertices, have folds that nilearn holds
    depth = datasets.load_fsaverage_data("fsaverage5", data_type="sulcal").data.parts
    figure = plt.figure(figsize=(3.3 * len(sides), 5.0))
    limit = limit or max(map(_largest, sides.values()))
    panels = list(product(("lateral", "medial"), sorted(sides)))
    for number, (view, structure) in enumerate(panels, start=1):
        n, side = sizes[structure], side_of(structure)
        hemi = "right" if side == "R" else "left"
        plotting.plot_surf_stat_map(
            tuple(named_mesh(names[n], side, "inflated")),
            sides[structure],
            hemi=hemi,
            view=view,
            bg_map=depth[hemi][:n] if n <= NAMED["fsaverage5"] else None,
            axes=figure.add_subplot(2, len(sides), number, projection="3d"),
            figure=figure,
            vmax=limit,
            threshold=1e-6 * limit,  # where there is nothing, folds are seen
            cmap=cmap,
            colorbar=colorbar and number == len(panels),
        )
    figure.subplots_adjust(0, 0, 0.85, 0.95, wspace=0, hspace=0)
    if title:
        figure.suptitle(title, fontsize=10)
    return figure
