"""Figures of the samples of a study, of accuracies and of confusions."""

from collections.abc import Iterable, Mapping, Sequence
from itertools import count
from typing import TYPE_CHECKING, Any

import numpy as np

from brainweave._core.exceptions import InputError
from brainweave.evaluation.comparison import UNALIGNED, subject_interval, write_score
from brainweave.plotting import style
from brainweave.plotting.style import ACCENT, DASHED, INK, MUTED, PAPER
from brainweave.study.study import Study, Subject

if TYPE_CHECKING:
    from matplotlib.axes import Axes

MAX_LEGEND = 24  # more categories are told by the order of their colours alone


def labelled_study(study: Any) -> Study:
    """Return a study, also of one list of labels per subject."""
    entries = list(study)
    style.check_not_empty(entries, "subjects")
    return Study(
        s if hasattr(s, "n_samples") else Subject(name, np.zeros((len(s), 1)), labels=s)
        for name, s in zip(map("subject {}".format, count()), entries, strict=False)
    )


def labels_of(subject: Subject) -> list[Any]:
    """Return the label of each sample, None where there is none."""
    labels = subject.labels
    return [None] * subject.n_samples if labels is None else labels.tolist()


@style.styled
def plot_sequences(study: Any, *, axes: "Axes | None" = None) -> "Axes":
    """Plot a strip of coloured samples per subject, one colour per category.

    Parameters
    ----------
    study : Study, or list of array-like
        Subjects with labels (and runs), or one array of labels per subject.
    axes : matplotlib Axes, optional
        Where to draw; by default in a new figure.

    Returns
    -------
    Axes
        Gaps in a strip are borders of runs; grey samples are unlabelled. A legend
        names up to 24 categories.

    Examples
    --------
    >>> axes = plot_sequences([["face", "house"], ["house", "face", "face"]])
    >>> axes.images[0].get_array().shape  # subjects x samples x RGBA
    (2, 3, 4)
    """
    from matplotlib.colors import to_rgba
    from matplotlib.patches import Patch

    people = labelled_study(study)
    categories = people.categories
    colors = dict(zip(categories, style.palette(len(categories)), strict=True))
    longest = max(s.n_samples for s in people)
    image = np.zeros((len(people), longest, 4))  # after the last sample: nothing
    for row, subject in enumerate(people):
        for column, label in enumerate(labels_of(subject)):
            image[row, column] = to_rgba(colors.get(label, style.UNLABELLED))
    ax = style.draw_strips(image, people.ids, axes)
    for row, subject in enumerate(people):
        runs = [] if subject.runs is None else subject.runs.tolist()
        borders = [i for i in range(1, len(runs)) if runs[i] != runs[i - 1]]
        ax.vlines(borders, row, row + 1, color=style.PAPER, linewidth=1.6)
    ax.set_xlabel("sample, in the order seen")
    if 0 < len(categories) <= MAX_LEGEND:
        if any(s.n_unlabelled for s in people):
            colors["unlabelled"] = style.UNLABELLED
        style.add_legend(ax, [Patch(color=c) for c in colors.values()], colors)
    return ax


BASELINES = ("noalignment", "withoutalignment", "none")
MAX_NUMBERS = 12  # categories up to which cells of a confusion matrix hold numbers
MAX_NAMES = 30  # categories up to which rows and columns are named
# what a score is called, and how it is written
SCORES = {
    "accuracy": "accuracy",
    "matching": "segments matched",
    "isc": "inter-subject correlation",
    "correlation": "correlation with predicted voxels",
    "r2": "explained variance of voxels",
}


# of attributes that some results lack
DEFAULTS: dict[str, Any] = {"protocol": "", "study": {}, "design": {}, "chance_is": ""}
DEFAULTS |= {"p_value": None, "smallest_p": None, "score": "accuracy", "chance": 0.0}


class Scored:
    """A result and its name; it has the attributes of the result in DEFAULTS.

    ``method`` is the class of the aligner, ``label`` its name to show; ``folds`` has a
    mapping, maybe empty, for each score. Scores subject by subject have a fold for
    each.
    """

    def __init__(self, name: str, result: Any) -> None:
        if not np.size(getattr(result, "scores", ())):
            raise InputError(f"Result {name!r} has no scores.")
        self.name, self.result = name, result
        self.method = str(getattr(result, "method", "") or name)
        self.label = method_label(self.method)
        self.aligns_nothing = self.label == UNALIGNED
        self.scores = np.asarray(result.scores, dtype=float)
        self.folds: list[Mapping[str, Any]] = list(getattr(result, "folds", None) or [])
        if self.scores.ndim == 2:
            self.folds = [
                {"half": half, "test_subjects": [id], "subject_scores": [score]}
                for half, row in enumerate(self.scores)
                for id, score in zip(result.subjects, row, strict=True)
                if not np.isnan(score)
            ]
            self.scores = self.scores[~np.isnan(self.scores)]
        self.folds = self.folds or [{} for _ in self.scores]
        self.mean = float(self.scores.mean())

    def __getattr__(self, name: str) -> Any:
        """Return an attribute of the result."""
        if name not in DEFAULTS:
            raise AttributeError(name)
        return getattr(self.result, name, DEFAULTS[name])

    @property
    def called(self) -> str:
        """What its score is called."""
        return SCORES.get(self.score, self.score)

    @property
    def aligned_on(self) -> int | None:
        """How many samples a subject aligned with, in the mean; None if not known."""
        found = self.study.get("n_aligning")
        return round(float(np.mean(found))) if found else None

    def write(self, value: float) -> str:
        """Write a score as people read it: shares in per cent."""
        return write_score(self, value)

    def shown(self, members: Sequence["Scored"]) -> str:
        """Return the label of the method, or the name where members share the label."""
        alike = [m for m in members if m.label == self.label]
        return style.clean_text(self.label if len(alike) < 2 else self.name)


def method_label(method: str) -> str:
    """Return the name to show for a method, the same for all that align nothing."""
    squeezed = "".join(c for c in method.casefold() if c.isalnum())
    return UNALIGNED if squeezed in BASELINES else method


def list_results(results: Any) -> list[Scored]:
    """Name one result, a list or a mapping of results, or those of a comparison."""
    results = getattr(results, "results", results)  # of a Comparison
    if isinstance(results, Mapping):
        return [Scored(str(name), result) for name, result in results.items()]
    single = hasattr(results, "scores") or not isinstance(results, Iterable)
    listed = [results] if single else results
    return [Scored(method_label(str(getattr(r, "method", "?"))), r) for r in listed]


@style.styled
def plot_accuracy(results: Any, *, axes: "Axes | None" = None) -> "Axes":
    """Plot a bar per result, its folds (or subjects) as dots, and the chance level.

    Brackets are 95 % intervals of the mean over subjects, from three of them on.

    Parameters
    ----------
    results : result, list of results, or mapping of names to results
        What :func:`brainweave.between_subject_classification`,
        :func:`brainweave.score_alignment` and others return; a mapping names
        the bars, else ``method`` does.
    axes : matplotlib Axes, optional
        Where to draw; by default in a new figure.

    Returns
    -------
    Axes

    Examples
    --------
    >>> from brainweave import GDM, between_subject_classification, simulate_study
    >>> study = simulate_study(n_subjects=3, categories=3, n_voxels=40, random_state=0)
    >>> axes = plot_accuracy(between_subject_classification(GDM(2), study))
    >>> axes.figure.savefig("accuracy.svg")
    """
    listed = list_results(results)
    style.check_not_empty(listed, "results")
    chances = {s.chance for s in listed}
    ax = style.new_axes(axes, 6.0, 0.75 + 0.34 * len(listed))
    for y, scored in enumerate(listed):
        scores, write = scored.scores, scored.write
        color, alpha = (MUTED, 0.45) if scored.aligns_nothing else (ACCENT, 0.8)
        ax.barh(y, scored.mean, height=0.62, color=color, alpha=alpha, linewidth=0)
        heights = y + np.linspace(-0.2, 0.2, len(scores)) if len(scores) > 1 else [y]
        look: Any = {"color": INK, "edgecolors": PAPER, "linewidths": 0.6}
        ax.scatter(scores, heights, s=13, zorder=3, clip_on=False, **look)
        if between := subject_interval(scored):
            ax.plot(between, (y, y), color=INK, marker="|", linewidth=1.6)
        text, unit = write(scored.mean), "\u00a0%"
        if len(scores) > 1:
            text = f"{text.removesuffix(unit)} ± {write(scores.std())}"
        ax.text(1.03, y, text, va="center", transform=ax.get_yaxis_transform())
        ends = y - 0.5, y + 0.5
        ax.vlines(scored.chance, *ends, color=INK, linestyle=DASHED, linewidth=1.1)
    several = len({s.protocol for s in listed}) > 1
    names = [
        s.name if not several or s.protocol in s.name else f"{s.name}, {s.protocol}"
        for s in listed
    ]
    style.name_ticks(ax.yaxis, list(range(len(listed))), names)
    ax.tick_params(axis="y", length=0)
    low = min(s.scores.min() for s in listed)
    ax.set(xlim=(low - 0.03 if low < 0 else 0, 1), ylim=(len(listed) - 0.4, -0.6))
    ticks, write = np.linspace(0, 1, 6), listed[0].write
    ax.set_xticks(ticks, [write(t).removesuffix("00") for t in ticks])
    ax.spines["left"].set_visible(False)
    level = f" ({write(chances.pop())})" if len(chances) == 1 else ""
    each = "fold" if listed[0].score == "accuracy" else "subject"
    ax.set_xlabel(f"{listed[0].called} per {each}, and mean; dashed: chance{level}")
    return ax


@style.styled
def plot_confusion(result: Any, *, axes: "Axes | None" = None) -> "Axes":
    """Plot the confusion matrix of a result as shares of the true category.

    Parameters
    ----------
    result : ClassificationResult
        With ``confusion`` (counts; rows are the true categories) and ``categories``.
    axes : matplotlib Axes, optional
        Where to draw; by default in a new figure.

    Returns
    -------
    Axes
        A row without test samples stays empty.

    Examples
    --------
    >>> from brainweave import GDM, between_subject_classification, simulate_study
    >>> study = simulate_study(n_subjects=3, categories=3, n_voxels=40, random_state=0)
    >>> axes = plot_confusion(between_subject_classification(GDM(2), study))
    >>> len(axes.get_xticks())
    3
    """
    from matplotlib.colors import LinearSegmentedColormap, to_rgba

    counts = np.asarray(result.confusion, dtype=float)
    totals = counts.sum(axis=1, keepdims=True)
    shares = counts / np.where(totals > 0, totals, np.nan)
    categories = list(result.categories)
    n = len(categories)
    size = min(1.4 + 0.36 * max(n, 3), 6.4)
    ax = style.new_axes(axes, size + 0.5, size)
    # from nothing to the accent colour, so that it also lies on dark paper
    r, g, b, _ = to_rgba(ACCENT)
    cmap = LinearSegmentedColormap.from_list("accent", [(r, g, b, 0.04), (r, g, b, 1)])
    ax.imshow(np.nan_to_num(shares), cmap=cmap, vmin=0, vmax=1, interpolation="none")
    if n <= MAX_NUMBERS:
        for (i, j), share in np.ndenumerate(shares):
            if np.isfinite(share) and round(100 * share) > 0:
                color = PAPER if share > 0.55 else INK
                text = f"{100 * share:.0f}"
                ax.text(j, i, text, ha="center", va="center", color=color, size=8.5)
    if n <= MAX_NAMES:
        for axis in (ax.xaxis, ax.yaxis):
            style.name_ticks(axis, list(range(n)), categories)
        for label in ax.get_xticklabels():
            label.set(rotation=45, ha="right", rotation_mode="anchor")
    ax.tick_params(length=0)
    ax.spines[:].set_visible(False)
    ax.set(xlabel="predicted", ylabel="true")
    return ax


@style.styled
def plot_learning_curve(curve: Any, *, axes: "Axes | None" = None) -> "Axes":
    """Plot scores against the amount of people's own aligning data, a line per method.

    Parameters
    ----------
    curve : LearningCurve
        What :func:`brainweave.learning_curve` returns.
    axes : matplotlib Axes, optional
        Where to draw; by default in a new figure.

    Returns
    -------
    Axes
        Bars are standard errors over people; the dashed line is chance.

    Examples
    --------
    >>> from brainweave import GDM, learning_curve, simulate_study
    >>> study = simulate_study(n_subjects=3, categories=3, n_voxels=40, random_state=0)
    >>> axes = plot_learning_curve(learning_curve({"GDM": GDM(2)}, study))
    >>> axes.get_ylabel()
    'accuracy'
    """
    style.check_not_empty(curve.points, "points")
    methods = list(dict.fromkeys(p["method"] for p in curve.points))
    known = all(p["minutes"] is not None for p in curve.points)
    across = "minutes" if known else "samples"
    ax = style.new_axes(axes, 6.0, 3.2)
    drawn = []
    for method, color in zip(methods, style.palette(len(methods)), strict=True):
        own = [p for p in curve.points if p["method"] == method]
        x, y, bars = ([p[name] for p in own] for name in (across, "mean", "se"))
        look: Any = {"color": color, "marker": "o", "markersize": 4, "clip_on": False}
        drawn.append(ax.errorbar(x, y, bars, linewidth=1.6, elinewidth=1, **look))
    ax.axhline(curve.chance, color=INK, linestyle=DASHED, linewidth=1.1)
    ax.set_xlabel(f"aligning data of the person, {across}; dashed: chance")
    ax.set_ylabel({"matching": "segments matched"}.get(curve.score, curve.score))
    ax.set_xlim(left=0)
    style.add_legend(ax, drawn, methods)
    return ax
