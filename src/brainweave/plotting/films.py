"""Figures of films: who saw what, shared time courses, where people are alike."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from brainweave._core.arrays import Matrix, to_numpy
from brainweave._core.exceptions import InputError
from brainweave._core.labels import is_missing
from brainweave.evaluation import metrics
from brainweave.evaluation.metrics import seen_means, zscored
from brainweave.plotting import style
from brainweave.plotting.style import ACCENT, DASHED, GRID, MUTED

if TYPE_CHECKING:
    from matplotlib.axes import Axes

N_TICKS = 9


@dataclass(frozen=True)
class Timeline(metrics.Timeline):
    """Time steps of films, in order, and the step that each sample shows."""

    seconds: Matrix | None = None  # into the film at each step, if ids tell

    def standardized(self, shared: Sequence[Any]) -> list[Matrix]:
        """Bring the features of each person to unit variance within each film."""
        out = [np.array(to_numpy(x), float) for x in shared]
        for x, places in zip(out, self.places, strict=True):
            film = np.where(places < 0, -1, self.films[places])
            for one in np.unique(film):
                x[film == one] = zscored(x[film == one])
        return out

    def name(self, step: int) -> str:
        """Return the time of a step in its film, and the film if there are several."""
        since = step - int(np.argmax(self.films == self.films[step]))
        time = str(since)
        if self.seconds is not None:
            time = f"{int(self.seconds[step] // 60)}:{self.seconds[step] % 60:02.0f}"
        film = self.names[self.films[step]] if len(self.names) > 1 else ""
        return f"{film} {time}".strip()


def read_timeline(study: Any) -> Timeline:
    """Return the time steps of a study of films, or those that are given.

    Samples correspond by their stimulus ids, or, without categories, row by row.
    """
    if isinstance(study, Timeline):
        return study
    ids = [s.stimuli for s in study]
    lengths = {s.n_samples for s in study}
    if any(own is None for own in ids):
        if len(lengths) > 1 or study.categories:
            raise InputError(
                "The samples have no stimulus ids, so nothing tells who saw what when: "
                "see brainweave.study.film_clock."
            )
        ids = [np.arange(n) for n in lengths] * len(study)
    known = [[None if is_missing(v) else v for v in own.tolist()] for own in ids]
    clock = metrics.timeline(known, study.ids)
    seconds: Any = np.full(clock.films.size, np.nan)
    for subject, places in zip(study, clock.places, strict=True):
        if subject.times is not None:
            seconds[places[places >= 0]] = subject.times[places >= 0]
    steps, shown = np.arange(seconds.size), ~np.isnan(seconds)
    seconds = np.interp(steps, steps[shown], seconds[shown]) if shown.any() else None
    names = [style.clean_text(name.rstrip("@:-_ ")) for name in clock.names]
    return Timeline(clock.places, clock.films, names, seconds)


def _label_clock(ax: Any, timeline: Timeline) -> None:
    """Name times below the axes, and films above them."""
    films, n = timeline.films, timeline.films.size
    starts = [int(np.argmax(films == f)) for f in range(len(timeline.names))]
    one = replace(timeline, names=timeline.names[:1])
    ticks = np.unique(np.linspace(0, n, N_TICKS, endpoint=False).astype(int)).tolist()
    style.name_ticks(ax.xaxis, ticks, map(one.name, ticks))
    for start in starts[1:]:
        ax.axvline(start, color=MUTED, linewidth=0.8, linestyle=DASHED)
    if 1 < len(starts) <= N_TICKS:
        for name, start in zip(timeline.names, starts, strict=True):
            how: Any = {"xycoords": ax.get_xaxis_transform(), "color": MUTED}
            how |= {"xytext": (2, 3), "textcoords": "offset points", "fontsize": 8}
            ax.annotate(name, (start, 1.0), parse_math=False, **how)
    told = "time in the film (minutes:seconds)"
    ax.set(xlim=(0, n), xlabel="sample" if timeline.seconds is None else told)


@style.styled
def plot_coverage(
    study: Any, *, names: Sequence[str] | None = None, axes: "Axes | None" = None
) -> "Axes":
    """Plot who saw which part of the films, a strip per subject.

    Parameters
    ----------
    study : Study
        With stimulus ids; see :func:`brainweave.study.film_clock`.
    names : sequence of str, optional
        Names of the subjects; by default their ids.
    axes : matplotlib Axes, optional
        Where to draw; by default in a new figure.

    Returns
    -------
    Axes
        One colour per film; what a subject did not see is empty.

    Examples
    --------
    >>> from brainweave import simulate_study
    >>> film = simulate_study(
    ...     n_subjects=3, design="movie", n_voxels=50, missing_parts=1
    ... )
    >>> plot_coverage(film).get_xlabel()
    'time in the film (minutes:seconds)'
    """
    from matplotlib.colors import to_rgba

    timeline = read_timeline(study)
    names = names or [s.id for s in study]
    colors = [to_rgba(color) for color in style.palette(len(timeline.names))]
    image = np.array(colors)[timeline.films] * timeline.seen[:, :, None]
    ax = style.draw_strips(image, names, axes)
    _label_clock(ax, timeline)
    return ax


@style.styled
def plot_time_courses(
    shared: Sequence[Any],
    study: Any,
    *,
    components: Sequence[int] = (0, 1, 2, 3),
    axes: "Axes | None" = None,
) -> "Axes":
    """Plot shared features over the film: the mean, and each person around it.

    Parameters
    ----------
    shared : list of arrays of shape (n_samples_i, n_components)
        What ``transform`` returns.
    study : Study
        Whose samples they are.
    components : sequence of int, default=(0, 1, 2, 3)
        Features to plot, numbered from 0; those that there are.
    axes : matplotlib Axes, optional
        Where to draw; by default in a new figure.

    Returns
    -------
    Axes
        Features lie above each other; each is standardised in each person and film.

    Examples
    --------
    >>> from brainweave import simulate_study
    >>> film = simulate_study(
    ...     n_subjects=3, design="movie", n_voxels=50, n_runs=1, repetitions=1
    ... )
    >>> plot_time_courses([s.data() for s in film], film).get_xlabel()
    'time in the film (minutes:seconds)'
    """
    timeline = read_timeline(study)
    wanted = [k for k in components if k < to_numpy(shared[0]).shape[1]]
    scaled = timeline.standardized([to_numpy(x)[:, wanted] for x in shared])
    laid = [timeline.place(x, i) for i, x in enumerate(scaled)]
    ax = style.new_axes(axes, 6.8, 0.8 + 0.85 * len(wanted))
    places = [-5.0 * row for row in range(len(wanted))]
    mean = seen_means(laid, axis=0)
    for column, low in enumerate(places):
        ax.axhline(low, color=GRID, linewidth=0.8)
        for own in laid:  # as an image: many lines would make a page slow
            curve: Any = {"color": style.UNLABELLED, "alpha": 0.5, "linewidth": 0.6}
            ax.plot(low + own[:, column], rasterized=True, **curve)
        ax.plot(low + mean[:, column], color=ACCENT, linewidth=1.3)
    style.name_ticks(ax.yaxis, places, [f"feature {k}" for k in wanted])
    ax.tick_params(axis="y", length=0)
    ax.spines[:].set_visible(False)
    _label_clock(ax, timeline)
    return ax
