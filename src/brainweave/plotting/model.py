"""Figures of what an aligner learned: the shared space and maps of the brain."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from brainweave._core.arrays import to_numpy
from brainweave._core.exceptions import InputError
from brainweave.plotting import style
from brainweave.plotting.results import MAX_LEGEND, read_sequences

if TYPE_CHECKING:
    from matplotlib.axes import Axes


@style.styled
def plot_shared_space(
    shared: Sequence[Any],
    labels: Sequence[Any],
    *,
    components: tuple[int, int] = (0, 1),
    color_by: str = "label",
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
    color_by : {"label", "subject"}, default="label"
        What the colours show.
    axes : matplotlib Axes, optional
        Where to draw; by default in a new figure.

    Returns
    -------
    Axes
    """
    if color_by not in ("label", "subject"):
        raise InputError(f"color_by takes 'label' or 'subject'; got {color_by!r}.")
    style.check_not_empty(shared, "subjects")
    arrays = [np.asarray(to_numpy(s), dtype=float) for s in shared]
    sequences = read_sequences(labels)
    lengths = [len(array) for array in arrays]
    if lengths != sequences.lengths:
        raise InputError(
            f"labels of {sequences.lengths} samples do not fit features of {lengths}: "
            "give one label per sample, one list per subject."
        )
    points = np.concatenate(arrays)[:, list(components)]
    kinds = sequences.names if color_by == "subject" else sequences.categories
    of_sample = [label for subject in sequences.labels for label in subject]
    if color_by == "subject":
        of_sample = list(np.repeat(np.array(kinds, dtype=object), sequences.lengths))
    ax = style.new_axes(axes, 5.6, 4.2)
    shown = {}
    colors = [*style.palette(len(kinds)), style.UNLABELLED]
    for kind, color in zip([*kinds, None], colors, strict=True):
        x, y = points[[v == kind for v in of_sample]].T
        if len(x):
            dots = ax.scatter(x, y, s=12, color=color, alpha=0.75, linewidths=0)
            shown["unlabelled" if kind is None else kind] = dots
    ax.set_xlabel(f"shared feature {components[0]}")
    ax.set_ylabel(f"shared feature {components[1]}")
    if len(shown) <= MAX_LEGEND:
        style.add_legend(ax, list(shown.values()), shown)
    return ax


# -- shared features on the brain ------------------------------------------------------

# What nilearn's glass brain covers, in mm (the MNI152 template, and a little room).
_GLASS_LOW = np.array([-80.0, -115.0, -75.0])
_GLASS_HIGH = np.array([80.0, 80.0, 95.0])
_FSAVERAGE5 = 10242  # vertices of a hemisphere


def plot_feature_map(
    subject_map: Any,
    component: int = 0,
    *,
    title: str | None = None,
    limit: float | None = None,
    colorbar: bool = True,
) -> Any:
    """Plot the pattern of one shared feature on a subject's brain.

    Volumes within the MNI template are shown as a glass brain, others as three cuts;
    surfaces on fsaverage5 as hemispheres.

    Parameters
    ----------
    subject_map : SubjectMap
        Of a model that was fitted on images, so that its ``space`` is known.
    component : int, default=0
        Shared feature, numbered from 0.
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
    """
    import matplotlib.pyplot as plt
    from nilearn import plotting

    image = subject_map.to_image(component)
    options: dict[str, Any] = {"cmap": "RdBu_r", "title": title}
    if not hasattr(image, "affine") or len(image.shape) != 3:
        return _plot_surfaces(image, subject_map.space, limit, colorbar, **options)
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


def _plot_surfaces(
    image: Any,
    space: Any,
    limit: float | None,
    colorbar: bool,
    *,
    cmap: str,
    title: Any,
) -> Any:
    """Plot hemispheres side by side; refuse other surfaces than fsaverage5."""
    import matplotlib.pyplot as plt
    from nilearn import datasets, plotting

    if hasattr(image, "darrays"):  # one structure alone; its name is in the space
        image = {next(iter(space.masks)): image}
    found = image.items() if isinstance(image, dict) else ()
    parts = {
        str(structure).lower().removeprefix("cortex"): part.darrays[0].data
        for structure, part in found
        if hasattr(part, "darrays")
    }
    sizes = {*map(len, parts.values())}
    if not set(parts) <= {"left", "right"} or sizes != {_FSAVERAGE5}:
        raise InputError(
            f"There is no picture for this {getattr(space, 'kind', '')} space: only "
            f"fsaverage5 ({_FSAVERAGE5} vertices a hemisphere) can be drawn. Save the "
            "map, subject_map.to_image(component), and open it in a surface viewer."
        )
    mesh = datasets.fetch_surf_fsaverage("fsaverage5")
    figure = plt.figure(figsize=(3.3 * len(parts), 2.6))
    for number, (side, values) in enumerate(sorted(parts.items()), start=1):
        plotting.plot_surf_stat_map(
            mesh[f"infl_{side}"],
            values,
            hemi=side,
            bg_map=mesh[f"sulc_{side}"],
            axes=figure.add_subplot(1, len(parts), number, projection="3d"),
            figure=figure,
            vmax=limit or max(map(_largest, parts.values())),
            cmap=cmap,
            colorbar=colorbar and number == len(parts),
        )
    if title:
        figure.suptitle(title, fontsize=10)
    return figure
