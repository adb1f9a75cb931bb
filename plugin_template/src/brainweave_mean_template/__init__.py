"""Template for a new aligner: least squares onto the mean of the subjects."""

import numpy as np

from brainweave.aligners.timelocked import TimeLocked


class MeanTemplate(TimeLocked):
    """Map every subject onto the mean response in leading kernel coordinates."""

    def __init__(self, n_components=5, *, energy=0.9, standardize=True, n_jobs=None):
        self.n_components = n_components
        self.energy = energy
        self.standardize = standardize
        self.n_jobs = n_jobs

    def _solve(self, bases, y):
        mean = sum(basis.gram for basis in bases) / len(bases)  # samples x samples
        self._wanted_components(bases)  # raises an error if too many
        values, vectors = np.linalg.eigh(mean)
        leading = slice(-1, -self.n_components - 1, -1)
        self.shared_response_ = vectors[:, leading] * np.sqrt(values[leading])
        return [self._solve_new(basis, None) for basis in bases]

    def _solve_new(self, basis, y):
        return np.linalg.lstsq(basis.coordinates, self.shared_response_)[0]
