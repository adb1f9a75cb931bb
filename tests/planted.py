"""Small studies with a known shared structure, for tests."""

import numpy as np


def planted_study(
    rng,
    lengths=(36, 36, 36),
    voxels=(70, 80, 90),
    n_categories=4,
    noise=1.0,
    labels=None,
):
    """Categories with shared centroids, seen through each subject's own random map.

    Returns X (samples x voxels) and y, one per subject; every subject has its own
    order, and low-rank structured noise on top of white noise.
    """
    centroids = rng.normal(size=(n_categories, 6))
    X, y = [], []
    for i, (n, v) in enumerate(zip(lengths, voxels, strict=True)):
        seen = rng.permutation(np.arange(n) % n_categories)
        seen = seen if labels is None else np.asarray(labels[i])
        signal = centroids[seen] @ rng.normal(size=(6, v))
        structured = rng.normal(size=(n, 4)) @ rng.normal(size=(4, v))
        X.append(signal + structured + noise * 2 * rng.normal(size=(n, v)))
        y.append(seen)
    return X, y


def projector(Y):
    """Orthogonal projector on the row space of Y (K x T)."""
    Q = np.linalg.qr(Y.T)[0]
    return Q @ Q.T
