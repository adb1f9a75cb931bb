"""What a fit to a graph finds: its components, and how far subjects share them."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from brainweave._core.arrays import Matrix


@dataclass(frozen=True)
class Solution:
    """Components of a fit to a graph, the best first."""

    eigenvalues: Matrix  # (K + 1,): one more than asked for, where there are so many
    gains: Matrix  # (K + 1,): what each gains from the edges between samples
    scale: float  # size of the numbers, which rounding goes with
    maps: list[Matrix]
    features: list[Matrix]  # of the aligning samples of each subject
    template: Matrix  # (n_samples, K): times edges, what a new subject is fitted to
    route: str
    shared: Matrix | None = None  # (n_places, K): the shared map, with places

    def n_informative(self, k: int) -> int:
        """Count the first k components that gain from the edges."""
        return int((self.gains[:k] > 1e-9 * self.scale).sum())

    def is_unique(self, k: int) -> bool:
        """Whether there is a gap after component k (Proposition 3)."""
        if self.gains.size <= k:
            return True
        return bool(self.gains[k - 1] - self.gains[k] > 1e-9 * self.scale)

    def first(self, k: int) -> "Solution":
        """Return the first k components; what lies behind them stays known."""
        return replace(
            self,
            eigenvalues=self.eigenvalues[:k],
            maps=[m[:, :k] for m in self.maps],
            features=[f[:, :k] for f in self.features],
            template=self.template[:, :k],
            shared=None if self.shared is None else self.shared[:, :k],
        )


def subject_overlap(covariances: list[Matrix], lengths: Sequence[int]) -> float:
    """Return how far the subjects share their features, from 0 to 1.

    In coordinates in which the covariances of all subjects' features add up to the
    identity, they are proportional where all subjects use all features alike (1) and
    orthogonal where every feature belongs to one subject (0).
    """
    total = np.sum(covariances, axis=0)
    values, vectors = np.linalg.eigh((total + total.T) / 2)
    kept = values > 1e-12 * max(float(values[-1]), 1e-300)
    root = vectors[:, kept] / np.sqrt(values[kept])
    k = int(kept.sum())
    alone = sum(float(((root.T @ C @ root) ** 2).sum()) for C in covariances)
    shares = np.asarray(lengths) / np.sum(lengths)
    return float(min(1.0, (k - alone) / (k * (1 - (shares**2).sum()))))
