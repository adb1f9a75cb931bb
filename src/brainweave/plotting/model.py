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
    surfaces of fsaverage or fsLR-32k as inflated hemispheres.

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

    Examples
    --------
    >>> from brainweave import GDM, simulate_study
    >>> study = simulate_study(n_subjects=3, categories=4, n_voxels=40, random_state=0)
    >>> gdm = GDM(n_components=3).fit(study)
    >>> display = plot_feature_map(gdm.maps_[0], component=0, title="shared feature 0")
    >>> display.savefig("feature.png")
    """
    image = subject_map.to_image(component)
    how: Any = {"title": title, "limit": limit, "colorbar": colorbar}
    return plot_brain(image, subject_map.space, **how)


def plot_brain(
    image: Any,
    space: Any = None,
    *,
    title: str | None = None,
    limit: float | None = None,
    colorbar: bool = True,
    views: Sequence[str] = ("lateral",),
    mesh: Any = "auto",
) -> Any:
    """Plot a map on the brain: a glass brain, cuts, or inflated surfaces.

    Parameters
    ----------
    image : image
        What ``to_image`` of a space, a map or an :class:`InformationMap` gives.
    space : object, optional
        The space it is of, for hemispheres that do not name themselves.
    title, limit, colorbar : various
        As in :func:`plot_feature_map`.
    views : sequence of str, default=("lateral",)
        From where surfaces are seen, a row for each.
    mesh : str, mesh or mapping, default="auto"
        What surfaces are drawn on; "auto" takes the inflated fsaverage or fsLR-32k.
        Else as ``mesh`` of :class:`brainweave.Searchlight`.

    Returns
    -------
    nilearn display or Figure
        What nilearn returns: a display for volumes, a figure for surfaces.

    Examples
    --------
    >>> import nibabel as nib
    >>> values = np.ones((4, 5, 4), np.float32)
    >>> display = plot_brain(nib.Nifti1Image(values, np.diag([9.0, 9, 9, 1])))
    """
    import matplotlib.pyplot as plt
    from nilearn import plotting

    options: dict[str, Any] = {"cmap": "RdBu_r", "title": title}
    sides = _hemispheres(image, space)
    if sides:
        return _plot_surfaces(sides, limit, colorbar, views, mesh, **options)
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
            raise InputError(
                "These grayordinates have no surface to draw. Save the map, "
                "image.to_filename(path), and open it in a viewer of CIFTI files."
            )
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
    sides: dict[str, Any],
    limit: float | None,
    colorbar: bool,
    views: Sequence[str],
    mesh: Any,
    *,
    cmap: str,
    title: Any,
) -> Any:
    """Plot hemispheres side by side, a row for each view."""
    import matplotlib.pyplot as plt
    from nilearn import plotting

    from brainweave.study.meshes import NAMED, meshes_of, named_mesh, side_of

    names = {n: name for name, n in NAMED.items()}
    sizes = {structure: len(values) for structure, values in sides.items()}
    known = mesh != "auto" or all(n in names for n in sizes.values())
    if not known:
        raise InputError(
            f"There is no picture for surfaces of {sizes} vertices: no mesh of that "
            "size is known by name. Pass mesh={'left': 'lh.inflated.surf.gii', ...} to "
            "plotting.plot_brain, or save the map and open it in a surface viewer."
        )
    figure = plt.figure(figsize=(3.3 * len(sides), 2.5 * len(views)))
    limit = limit or max(map(_largest, sides.values()))
    panels = [(view, structure) for view in views for structure in sorted(sides)]
    for number, (view, structure) in enumerate(panels, start=1):
        side, n = side_of(structure), sizes[structure]
        if mesh == "auto":
            drawn = named_mesh(names[n], side, "inflated")
        else:
            drawn = meshes_of(mesh, {structure: n})[structure]
        plotting.plot_surf_stat_map(
            tuple(drawn),
            sides[structure],
            hemi="right" if side == "R" else "left",
            view=view,
            bg_map=_folds(names.get(n, ""), side),
            axes=figure.add_subplot(len(views), len(sides), number, projection="3d"),
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


def _folds(name: str, side: str) -> Any:
    """Return the sulcal depth to draw behind a map, of fsaverage5 and coarser ones."""
    from brainweave.study.meshes import NAMED

    if name not in ("fsaverage3", "fsaverage4", "fsaverage5"):
        return None
    from nilearn.datasets import load_fsaverage_data

    depth = load_fsaverage_data("fsaverage5", data_type="sulcal").data
    return depth.parts["right" if side == "R" else "left"][: NAMED[name]]
