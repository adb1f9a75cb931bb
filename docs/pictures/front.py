"""The picture of the front page: different sequences in, one shared space out."""

import warnings

import numpy as np
from matplotlib.figure import Figure

from brainweave import GDM, simulate_study
from brainweave._core.exceptions import LabelWarning
from brainweave.plotting import palette

N_SUBJECTS = 5
CATEGORIES = ("face", "house", "cat", "shoe", "chair")


def draw() -> dict[str, Figure]:
    """Draw the sequences, the voxels and held-out samples, side by side and stacked."""
    study = simulate_study(
        n_subjects=N_SUBJECTS,
        categories=CATEGORIES,
        missing_runs=1,
        missing_categories=1,
        random_state=0,
    )
    aligning, other = study.split_halves(by="category")
    with warnings.catch_warnings():
        # a category is missing on purpose
        warnings.simplefilter("ignore", LabelWarning)
        gdm = GDM(n_components=4).fit(aligning)
    shared = gdm.transform(other)  # samples that the fit did not see
    clouds = {
        "voxel space: axes differ between subjects": _voxel_axes(other),
        "shared space: categories correspond": [features[:, :2] for features in shared],
    }
    wide = Figure(figsize=(11, 3.5), layout="constrained")
    _fill(wide, wide.subplots(1, 3, width_ratios=(1.25, 1, 1)), study, other, clouds)
    narrow = Figure(figsize=(5, 10.5), layout="constrained")
    _fill(narrow, narrow.subplots(3, 1), study, other, clouds)
    return {"front": wide, "front_narrow": narrow}


def _fill(figure, axes, study, other, clouds) -> None:
    color = dict(zip(CATEGORIES, palette(len(CATEGORIES)), strict=True))
    _draw_sequences(axes[0], study, color)
    for ax, (title, points) in zip(axes[1:], clouds.items(), strict=True):
        for subject, xy, marker in zip(other, points, "os^Dv", strict=True):
            ax.scatter(
                *np.asarray(xy).T,
                c=[color[label] for label in subject.labels],
                s=15,
                marker=marker,
                linewidths=0,
                alpha=0.8,
            )
        ax.set_title(title, fontsize=11)
        ax.set_xticks([])
        ax.set_yticks([])
        ax.spines[["top", "right"]].set_visible(False)
    handles = [axes[2].scatter([], [], c=c, s=30, label=n) for n, c in color.items()]
    figure.legend(handles=handles, loc="outside lower center", ncols=5, frameon=False)


def _draw_sequences(ax, study, color) -> None:
    for i, subject in enumerate(study):
        labels = np.asarray(subject.labels)
        starts = np.flatnonzero(np.append(True, labels[1:] != labels[:-1]))
        spans = list(zip(starts, np.diff(starts, append=len(labels)), strict=True))
        colors = [color[label] for label in labels[starts]]
        ax.broken_barh(spans, (i - 0.35, 0.7), facecolors=colors, linewidth=0)
    ax.set_yticks(range(len(study)), [f"sub-{id}" for id in study.ids])
    ax.invert_yaxis()
    ax.set_xlabel("samples")
    ax.set_title("each subject has a different sequence", fontsize=11)
    ax.spines[["top", "right", "left"]].set_visible(False)
    ax.tick_params(left=False)


def _voxel_axes(study) -> list[np.ndarray]:
    """Return the samples on two axes of each subject's own voxels, side by side."""
    points = []
    for subject in study:
        X = subject.data() - subject.data().mean(axis=0)
        U, s, _ = np.linalg.svd(X, full_matrices=False)
        points.append((U * s)[:, :2] / s[0])
    return points
