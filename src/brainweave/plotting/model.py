"""Figures of what an aligner learned: eigenvalues, the shared space, brain maps."""

from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from brainweave._core.arrays import to_numpy
from brainweave._core.exceptions import InputError
from brainweave.aligners.check.alignment_check import graph_fit
from brainweave.plotting import style
from brainweave.plotting.results import MAX_LEGEND, read_sequences
from brainweave.plotting.style import ACCENT, DASHED, GRID, INK, MUTED, PAPER

if TYPE_CHECKING:
    from matplotlib.figure import Figure


@style.styled
def plot_eigenvalues(model: Any) -> "Figure":
    """Plot the fit of each shared feature to the graph; larger is better.

    Parameters
    ----------
    model : GDM
        Or another fitted aligner with ``eigenvalues_`` (and ``n_informative_``).

    Returns
    -------
    Figure
        Filled dots are features that gain from the graph, as those of noise do too;
        open ones gain nothing and have arbitrary directions. Numbered from 0.
    """
    from matplotlib.ticker import MaxNLocator

    if getattr(model, "eigenvalues_", None) is None:
        raise InputError(
            f"This {type(model).__name__} has no eigenvalues to draw: it is not fitted "
            "yet, or its method has none."
        )
    values = graph_fit(model)
    n = len(values)
    informative = int(getattr(model, "n_informative_", n))
    number = np.arange(n)
    figure, (ax,) = style.new_figure(4.6, 3.0)
    ax.plot(number, values, color=GRID, linewidth=1, zorder=1)
    gains, rest = number < informative, number >= informative
    ax.scatter(number[gains], values[gains], s=34, color=ACCENT, zorder=3)
    ax.scatter(
        number[rest], values[rest], s=30, facecolors=PAPER, edgecolors=MUTED, zorder=3
    )
    ax.set_xlim(-0.5, n - 0.5)
    ax.margins(y=0.14)
    if informative < n:
        ax.axvspan(informative - 0.5, n - 0.5, color=MUTED, alpha=0.1, linewidth=0)
        ax.axvline(informative - 0.5, color=INK, linestyle=DASHED, linewidth=1)
    for start, end, what, color in (
        (0, informative, "gain from the graph", ACCENT),
        (informative, n, "arbitrary", MUTED),
    ):
        if end > start:
            text, place = f"{end - start} {what}", ax.get_xaxis_transform()
            middle = (start + end - 1) / 2
            ax.text(middle, 1.03, text, color=color, ha="center", transform=place)
    ax.xaxis.set_major_locator(MaxNLocator(integer=True, min_n_ticks=1))
    ax.set(xlabel="shared feature", ylabel="fit to the graph (larger: better)")
    return figure


def energy_curves(bases: Sequence[Any]) -> list[NDArray[np.float64]]:
    """Return, per subject, the cumulative share of its singular values."""
    curves = []
    for basis in bases:
        singular = np.sqrt(np.asarray(basis.spectrum, dtype=float))
        curves.append(np.cumsum(singular) / singular.sum())
    return curves


@style.styled
def plot_energy(model: Any, *, names: Sequence[Any] | None = None) -> "Figure":
    """Plot the cumulative singular values of each subject, and the cut.

    Parameters
    ----------
    model : aligner
        Fitted, with its ``bases_``; or a list of :class:`SubjectBasis`.
    names : sequence of str, optional
        Names of the subjects.

    Returns
    -------
    Figure
        The dot on each curve is the number of components that the energy keeps.
    """
    bases = getattr(model, "bases_", model)
    if not isinstance(bases, (list, tuple)):
        raise InputError(
            f"This {type(model).__name__} does not hold the subjects' bases: it is not "
            "fitted, or was loaded without them."
        )
    style.check_not_empty(bases, "bases")
    names = style.name_subjects(names, len(bases))
    colors = style.palette(len(bases))
    figure, (ax,) = style.new_figure(4.6, 3.0)
    handles = []
    for basis, share, color in zip(bases, energy_curves(bases), colors, strict=True):
        number = np.arange(1, len(share) + 1)
        (line,) = ax.plot(number, share, color=color, linewidth=1.2, alpha=0.9)
        handles.append(line)
        kept = basis.n_kept
        ax.scatter(kept, share[kept - 1], s=26, color=color, edgecolors=PAPER, zorder=3)
    for energy in sorted({float(b.energy) for b in bases}):
        if energy < 1:
            ax.axhline(energy, color=INK, linestyle=DASHED, linewidth=1)
            text, place = f"kept: {style.percent(energy)}", ax.get_yaxis_transform()
            ax.text(0.99, energy - 0.015, text, ha="right", va="top", transform=place)
    ax.set(ylim=(0, 1.03), xlabel="components", ylabel="cumulative singular values")
    ax.set_xlim(left=0)
    ax.set_yticks(np.linspace(0, 1, 6), [f"{p} %" for p in range(0, 101, 20)])
    if len(bases) <= len(style.palette(10)):
        style.add_legend(ax, handles, names)
    return figure


@style.styled
def plot_shared_space(
    shared: Sequence[Any],
    labels: Sequence[Any],
    *,
    components: tuple[int, int] = (0, 1),
    color_by: str = "label",
) -> "Figure":
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

    Returns
    -------
    Figure
    """
    if color_by not in ("label", "subject"):
        raise InputError(f"color_by takes 'label' or 'subject'; got {color_by!r}.")
    style.check_not_empty(shared, "subjects")
    arrays = [np.asarray(to_numpy(s), dtype=float) for s in shared]
    sequences = read_sequences(labels)
    if len(labels) != len(arrays):
        raise InputError(f"{len(labels)} lists of labels for {len(arrays)} subjects.")
    for i, (array, n) in enumerate(zip(arrays, sequences.lengths, strict=True)):
        if len(array) != n:
            raise InputError(f"labels[{i}] has {n} for {len(array)} samples.")
        if max(components) >= array.shape[1] or min(components) < 0:
            raise InputError(
                f"components={components}, but shared[{i}] has {array.shape[1]} "
                "features, counted from 0."
            )
    points = np.concatenate(arrays)[:, list(components)]
    kinds = sequences.names if color_by == "subject" else sequences.categories
    of_sample = [label for subject in sequences.labels for label in subject]
    if color_by == "subject":
        of_sample = list(np.repeat(np.array(kinds, dtype=object), sequences.lengths))
    figure, (ax,) = style.new_figure(5.6, 4.2)
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
    return figure


# -- shared features on the brain ------------------------------------------------------

# What nilearn's glass brain covers, in mm (the MNI152 template, and a little room).
_GLASS_LOW = np.array([-80.0, -115.0, -75.0])
_GLASS_HIGH = np.array([80.0, 80.0, 95.0])
_FSAVERAGE5 = 10242  # vertices of a hemisphere
_VOLUME_SIZE = (6.6, 2.4)  # of a figure, in inches


def plot_feature_map(
    subject_map: Any,
    component: int = 0,
    *,
    title: str | None = None,
    limit: float | None = None,
    colorbar: bool = True,
) -> "Figure":
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
    Figure
    """
    image = subject_map.to_image(component)
    if _is_volume(image):
        return _draw_volume(image, limit, title=title, colorbar=colorbar)
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


def feature_map_figures(
    maps: Iterable[tuple[Any, int]], *, limit: float
) -> Iterator["Figure"]:
    """Yield a figure for each map and component, as :func:`plot_feature_map` draws it.

    All on one colour scale. A figure is valid until the next is asked for: glass brains
    share one, since drawing their outlines takes nilearn most of the time.
    """
    from matplotlib.figure import Figure
    from nilearn import plotting

    shared = Figure(figsize=_VOLUME_SIZE)
    glass_brain = None
    for subject_map, component in maps:
        image = subject_map.to_image(component)
        if not (_is_volume(image) and fits_glass_brain(image)):
            yield plot_feature_map(subject_map, component, limit=limit, colorbar=False)
            continue
        if glass_brain is None:
            glass_brain = plotting.plot_glass_brain(None, figure=shared, plot_abs=False)
        glass_brain.add_overlay(image, threshold=0, **_colors(limit))
        yield shared
        for axes in glass_brain.axes.values():
            for drawn in list(axes.ax.images):
                drawn.remove()


def _is_volume(image: Any) -> bool:
    return hasattr(image, "affine") and len(getattr(image, "shape", ())) == 3


def fits_glass_brain(image: Any) -> bool:
    """Return whether all values of a volume lie within the MNI template."""
    values = np.asarray(image.dataobj)
    inside = np.argwhere(np.nan_to_num(values) != 0)
    if len(inside) == 0:
        return False
    corners = np.stack([inside.min(axis=0), inside.max(axis=0)])
    low, high = np.sort(corners @ image.affine[:3, :3].T + image.affine[:3, 3], axis=0)
    return bool((low >= _GLASS_LOW).all() and (high <= _GLASS_HIGH).all())


def _draw_volume(image: Any, limit: float | None, **options: Any) -> "Figure":
    from matplotlib.figure import Figure
    from nilearn import plotting

    figure = Figure(figsize=_VOLUME_SIZE)
    options |= {"figure": figure, **_colors(limit or _largest(image.dataobj))}
    if fits_glass_brain(image):
        plotting.plot_glass_brain(image, plot_abs=False, threshold=0, **options)
    else:
        plotting.plot_img(image, draw_cross=False, **options)
    return figure


def _colors(limit: float) -> dict[str, Any]:
    return {"cmap": "RdBu_r", "vmin": -limit, "vmax": limit}


def _largest(values: Any) -> float:
    return float(np.abs(np.nan_to_num(np.asarray(values))).max()) or 1.0


def _fsaverage5_parts(image: Any) -> dict[str, Any]:
    """Return the values of each hemisphere, if these are GIfTI images on fsaverage5."""
    found = {
        str(structure).lower().removeprefix("cortex"): part.darrays[0].data
        for structure, part in (image.items() if isinstance(image, dict) else ())
        if hasattr(part, "darrays")
    }
    fits = set(found) <= {"left", "right"}
    return found if fits and {*map(len, found.values())} == {_FSAVERAGE5} else {}


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
