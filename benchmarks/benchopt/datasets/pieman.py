"""A story in 36 people, in 100 factors (Manning et al.)."""

from pathlib import Path

import numpy as np

from benchopt import BaseDataset


class Dataset(BaseDataset):
    """Half of the story aligns, half is scored."""

    name = "pieman"
    parameters = {"data": ["../shared/data"], "n_subjects": [36]}  # noqa: RUF012

    def skip(self, data, n_subjects):
        """Say where the file is expected, if it is not there."""
        if (Path(data) / "pieman_htfa/weights.mat").exists():
            return False, None
        return True, f"no pieman_htfa/weights.mat in {data}"

    def get_data(self):
        """Return lists of samples x factors, standardised."""
        import sys

        sys.path.insert(0, str(Path(__file__).parents[3]))
        from reproduction.real import load_pieman

        X, Z = [], []
        for subject in load_pieman(self.data).subjects[: self.n_subjects]:
            x = np.asarray(subject.data())
            half = len(x) // 2
            mean, scale = x[:half].mean(axis=0), x[:half].std(axis=0)
            X.append((x[:half] - mean) / scale)
            Z.append((x[half:] - mean) / scale)
        return {"X": X, "Z": Z}
