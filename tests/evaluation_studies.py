"""Small studies for tests."""

from functools import partial

import numpy as np

from brainweave import Study, Subject, score_alignment

score_matching = partial(score_alignment, measure="matching")
score_reconstruction = partial(score_alignment, measure="reconstruction")


def study_lists(rng, n_subjects=4, n_samples=24, n_categories=3, voxels=40, noise=0.7):
    """Every subject sees the categories in its own order through its own random map."""
    centroids = rng.normal(size=(n_categories, 5))
    X, y = [], []
    for i in range(n_subjects):
        seen = rng.permutation(np.arange(n_samples) % n_categories)
        maps = rng.normal(size=(5, voxels + i))
        X.append(
            centroids[seen] @ maps + noise * rng.normal(size=(n_samples, voxels + i))
        )
        y.append(seen)
    return X, y


def locked_lists(rng, n_subjects=4, n_samples=60, voxels=40, noise=0.5):
    """All subjects follow one course of time through their own random maps."""
    story = rng.normal(size=(n_samples, 4))
    return [
        story @ rng.normal(size=(4, voxels))
        + noise * rng.normal(size=(n_samples, voxels))
        for _ in range(n_subjects)
    ]


def as_named_study(X, y, runs=None):
    return Study(
        Subject(f"s{i}", x, labels=known, runs=None if runs is None else runs[i])
        for i, (x, known) in enumerate(zip(X, y, strict=True))
    )


class CountedArray:
    """An array that counts how many of its columns were read."""

    def __init__(self, values):
        self.values, self.columns_read = values, 0
        self.shape, self.dtype, self.ndim = values.shape, values.dtype, 2

    def __getitem__(self, key):
        out = self.values[key]
        self.columns_read += out.shape[1]
        return out

    @property
    def passes(self):
        """Full passes over all voxels."""
        return self.columns_read / self.shape[1]


def labelled_study(n_subjects=4, seed=0):
    rng = np.random.default_rng(seed)
    patterns = 2 * rng.normal(size=(3, 6))
    y = np.tile(["cat", "dog", "face"], 12)
    codes = np.tile([0, 1, 2], 12)
    return Study(
        Subject(
            f"s{i}",
            patterns[codes] @ rng.normal(size=(6, 30)) + rng.normal(size=(36, 30)),
            labels=y,
        )
        for i in range(n_subjects)
    )


def three_subjects(n_voxels=120, n_samples=40):
    rng = np.random.default_rng(0)
    y = [np.arange(n_samples) % 4] * 3
    means = rng.standard_normal((4, 6))
    X = [
        means[y[0]] @ rng.standard_normal((6, n_voxels))
        + rng.standard_normal((n_samples, n_voxels))
        for _ in range(3)
    ]
    return X, y


def unrelated_study(rng, n_subjects=4, n_samples=28, n_voxels=40, **known):
    labels = np.arange(n_samples) % 7
    return Study(
        Subject(str(i), rng.normal(size=(n_samples, n_voxels)), labels=labels, **known)
        for i in range(n_subjects)
    )


def signal_or_noise(seed, *, signal, n_subjects=4, categories="abc", repeats=12):
    rng = np.random.default_rng(seed)
    centroids = signal * rng.normal(size=(len(categories), 5))
    subjects = []
    for i in range(n_subjects):
        codes = rng.permutation(np.arange(repeats * len(categories)) % len(categories))
        X = centroids[codes] @ rng.normal(size=(5, 60)) + rng.normal(
            size=(len(codes), 60)
        )
        labels = np.array(list(categories))[codes]
        runs = np.arange(len(codes)) * 4 // len(codes)
        subjects.append(Subject(f"{i + 1:02d}", X, labels=labels, runs=runs))
    return Study(subjects, f"study {seed}")
