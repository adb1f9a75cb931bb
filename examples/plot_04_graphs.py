"""
Building graphs
===============

A graph defines which samples, across all subjects, belong together (positive weight) or
apart (negative weight). This example builds each kind of graph and shows the resulting
shared space.
"""

# %%
# We simulate four categories: two of living things and two of objects.
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
    """Simulate a study of five subjects."""
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
# A label graph has weights +1 within and -1 between categories. The default,
# ``graph="labels"``, builds one in which all categories have equal weight, regardless
# of their numbers of samples.
categories = label_graph(labels)

# %%
# By stimulus or time
# -------------------
# A time graph (``graph="time"``) has weights +1 between equal ids and no others. With
# row numbers as ids this is the assumption of hyperalignment and SRM. Ids can be any
# labels; here the category and a count, which connects the first cat of one subject
# with the first cat of another.
ids = []
for y in labels:
    count = pd.Series(y).groupby(y).cumcount()
    ids.append([f"{label}-{number}" for label, number in zip(y, count, strict=True)])
same_moment = time_graph(ids)

# %%
# By similarity of meaning
# ------------------------
# Use any symmetric affinity of the groups: ratings, word embeddings, a representational
# similarity matrix. Data frames are matched by their names.
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
# Without categories, describe every sample by numbers (ratings, activations of a
# network); it is connected with its nearest samples of other subjects.
rng = np.random.default_rng(0)
described = [
    similarity.loc[list(y)].to_numpy() + 0.1 * rng.normal(size=(len(y), 4))
    for y in labels
]
neighbours = neighbor_graph(described, n_neighbors=8)

# %%
# Sums, multiples and matrices
# ----------------------------
# Graphs over the same samples can be added and scaled. ``matrix_graph`` takes any
# symmetric matrix.
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
# Effect on the shared space
# --------------------------
# We plot held-out samples on the first two shared features. The label graph treats all
# categories equally. The graph of meaning separates living things from objects on its
# first axis. The graphs of neighbours and time only attract: their first features are
# those with the highest agreement between subjects.
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
# To compare graphs, score them on held-out data. Pass a graph that depends on the
# labels as a function of them, so that every fold builds its own. We print the mean and
# standard error over four simulated studies:
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
# With one component, the graph of meaning separates living things from objects but not
# single categories. With C - 1 components all categories can be separated. The strength
# of repulsion makes no difference here: samples are centred and categories balanced, so
# attraction within categories implies repulsion between them.
