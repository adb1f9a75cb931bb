"""Subjects who share a film, with voxels of their own."""

import numpy as np

import brainweave as bw
from benchopt import BaseDataset


class Dataset(BaseDataset):
    """Two runs of a film: one aligns, one is scored."""

    name = "simulated"
    parameters = {"n_subjects": [6], "n_voxels": [150], "random_state": [0]}  # noqa: RUF012

    def get_data(self):
        """Return lists of samples x voxels, standardised."""
        study = bw.simulate_study(
            design="movie",
            n_subjects=self.n_subjects,
            n_voxels=self.n_voxels,
            n_runs=2,
            random_state=self.random_state,
        )
        X, Z = [], []
        for subject in study:
            x, runs = np.asarray(subject.data()), np.asarray(subject.runs)
            first = runs == runs[0]
            mean, scale = x[first].mean(axis=0), x[first].std(axis=0)
            X.append((x[first] - mean) / scale)
            Z.append((x[~first] - mean) / scale)
        return {"X": X, "Z": Z}
