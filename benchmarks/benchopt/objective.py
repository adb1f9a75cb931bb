"""How many segments of unseen time are not found in the mean of the others."""

import numpy as np

import brainweave as bw
from benchopt import BaseObjective


class Objective(BaseObjective):
    """Solvers align samples that are locked in time and map other samples."""

    name = "time segments not found"
    url = "https://github.com/brainweave/brainweave"
    requirements = ("pip::brainweave",)
    min_benchopt_version = "1.6"
    parameters = {"window": [9]}  # noqa: RUF012 - as benchopt wants it
    sampling_strategy = "run_once"

    def set_data(self, X, Z):
        """Take the samples that align and those that are scored."""
        self.X, self.Z = X, Z

    def get_objective(self):
        """Hand both to the solvers: nothing tells them what is alike in Z."""
        return {"X": self.X, "Z": self.Z}

    def evaluate_result(self, features):
        """Return the error, and the share that is found."""
        features = [(f - f.mean(0)) / (f.std(0) + 1e-12) for f in features]
        found = bw.time_segment_matching(features, window=self.window).scores
        return {"value": float(1 - np.mean(found)), "found": float(np.mean(found))}

    def get_one_result(self):
        """Return features of the right shape."""
        return {"features": [z[:, :2] for z in self.Z]}
