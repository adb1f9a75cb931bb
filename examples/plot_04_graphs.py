"""
Building graphs, and what they do
=================================

A graph says which samples, of whichever subjects, belong together (positive weight) or
apart (negative). It is the only thing GDM is told. This page builds each kind and shows
the shared space it makes.
"""

# %%
# Four categories; living things are like each other, and so are lifeless ones.
import matplotlib.pyplot as plt
import numpy as np
import pandas as pd

# sphinx_gallery_thumbnail_number = 2

from brainweave import (
    GDM,
    affinity_graph,
    label_graph,
    matrix_graph,
    neighbor_graph,
    simulate_study,
    time_graph,
)

names = ["cat", "bird", "house", "chair"]


def simulate(seed):
    """Simulate a study of five people."""
    return simulate_study(
        n_subjects=5, categories=names, n_voxels=(300, 400), random_state=seed
    )


study = simulate(0)
aligning, other = study.split_halves()
labels = [subject.labels for subject in aligning]


def show(ax, graph, title):
    """Draw the edges among the first samples of two subjects."""
    first, second = graph.slices()[:2]
    dense = graph.to_sparse().toarray()[first, second][:36, :36]
    image = ax.imshow(dense, cmap="RdBu_r", vmin=-1, vmax=1)
    ax.set(title=title, xticks=[], yticks=[], xlabel="subject 2", ylabel="subject 1")
    return image


# %%
# By label
# --------
# +1 within a category and -1 between. ``graph="labels"``, the default, makes one from
# the labels, in which all categories count alike, however many samples they have.
categories = label_graph(labels)

# %%
# By stimulus or time
# -------------------
# +1 between equal ids, nothing else: ``graph="time"``. With the row number as id this
# is what hyperalignment and SRM assume. An id may be any label; here the category and a
# count, so that the first cat of one person meets the first cat of another.
ids = []
for y in labels:
    count = pd.Series(y).groupby(y).cumcount()
    ids.append([f"{label}-{number}" for label, number in zip(y, count, strict=True)])
same_moment = time_graph(ids)

# %%
# By similarity of meaning
# ------------------------
# Any symmetric affinity of the groups: ratings, word embeddings, a representational
# similarity matrix. A table is matched by its names.
similarity = pd.DataFrame(
    [
        [1.0, 0.5, -1.0, -1.0],
        [0.5, 1.0, -1.0, -1.0],
        [-1.0, -1.0, 1.0, 0.5],
        [-1.0, -1.0, 0.5, 1.0],
    ],
    index=names,
    columns=names,
)
meaning = affinity_graph(labels, similarity)

# %%
# By neighbours in a space of features
# ------------------------------------
# No categories at all: every sample is described by numbers (ratings, activations of a
# network), and joined with its nearest samples of other subjects.
rng = np.random.default_rng(0)
described = [
    similarity.loc[list(y)].to_numpy() + 0.1 * rng.normal(size=(len(y), 4))
    for y in labels
]
neighbours = neighbor_graph(described, n_neighbors=8)

# %%
# Sums, multiples, and anything else
# ----------------------------------
# Graphs over the same samples add up. ``matrix_graph`` takes any symmetric matrix.
both = 0.3 * categories + 0.7 * same_moment
anything = matrix_graph(both.to_sparse(), both.lengths)

figure, axes = plt.subplots(1, 5, figsize=(11, 2.6), layout="constrained")
for ax, graph, title in zip(
    axes,
    (categories, same_moment, meaning, neighbours, both),
    ("label_graph", "time_graph", "affinity_graph", "neighbor_graph", "sum"),
    strict=True,
):
    image = show(ax, graph, title)
figure.colorbar(image, ax=axes, shrink=0.7, label="weight")

# %%
# What they do to the shared space
# --------------------------------
# Samples that did not align, on the first two shared features (across and up). The
# label graph treats all categories alike. The graph of meaning puts living and lifeless
# things apart on its first axis. Neighbours and time only attract: what they put first
# is what subjects agree on best.
from brainweave.plotting import palette

color = dict(zip(names, palette(4), strict=True))
figure, axes = plt.subplots(1, 4, figsize=(11, 3.2), layout="constrained")
for ax, graph, title in zip(
    axes,
    (categories, meaning, neighbours, same_moment),
    ("labels", "meaning", "neighbours", "time"),
    strict=True,
):
    shared = GDM(2, graph=graph).fit(aligning).transform(other)
    for subject, features in zip(other, shared, strict=True):
        points = [color[label] for label in subject.labels]
        ax.scatter(*features[:, :2].T, c=points, s=10, alpha=0.7, linewidths=0)
    ax.set(title=title, xticks=[], yticks=[])
handles = [
    plt.Line2D([], [], marker="o", ls="", color=color[n], label=n) for n in names
]
figure.legend(handles=handles, loc="outside lower center", ncols=4, frameon=False)

# %%
# Which is better is a question for held-out data, not for pictures. A graph that
# depends on the labels is given as a function of them, so that every fold makes its
# own. Four simulated studies, mean and standard error:
from functools import partial

from brainweave import between_subject_classification, split_study

splits = [split_study(simulate(seed)) for seed in range(4)]
for name, graph in {
    "labels": "labels",
    "meaning": partial(affinity_graph, affinity=similarity),
    "labels, weaker repulsion": partial(label_graph, different=-0.3),
}.items():
    print(f"{name:26s}", end="")
    for k in (1, 3):
        method = GDM(k, graph=graph)
        scores = [between_subject_classification(method, s).mean for s in splits]
        error = np.std(scores, ddof=1) / len(scores) ** 0.5
        print(f"K = {k}: {np.mean(scores):.1%} ± {error:.1%}   ", end="")
    print()

# %%
# One component shows what the graph puts first; the graph of meaning puts first what
# tells living from lifeless, not one category from another. With C - 1 components there
# is room for all. How strongly categories repel makes no difference here: samples are
# centred and categories balanced, so attraction within is repulsion between.
