"""Small studies for the tests of the evaluation."""

import numpy as np

from brainweave import Study, Subject


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
