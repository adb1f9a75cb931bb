"""A small grid whose fits are slow and leave a trace; also run by itself, to be killed.

``python small_grid.py STORE`` computes it; ``FIT_LOG`` names a file that gets a line
for every fit, ``FIT_SECONDS`` says how long a fit takes.
"""

import os
import sys
import time

import numpy as np
import pandas as pd

from brainweave import NoAlignment, PaperGDM, split_study
from brainweave.evaluation.grid import Grid, GridStudy, run_grid


def frame_of(result):
    """A table of the folds of a grid."""
    rows = []
    for r in result.records:
        row = {k: v for k, v in r.items() if not isinstance(v, dict | list)}
        row["test_subjects"] = ", ".join(r["test_subjects"])
        row["warnings"] = " | ".join(r["warnings"])
        rows.append({**row, **r["tags"], **r["versions"]})
    return pd.DataFrame(rows)


class TracedGDM(PaperGDM):
    """GDM that says when it is fitted."""

    def fit(self, X, y=None):
        log = os.environ.get("FIT_LOG")
        if log:
            with open(log, "a") as file:
                file.write(f"{os.getpid()}\n")
        time.sleep(float(os.environ.get("FIT_SECONDS", "0")))
        return super().fit(X, y)


def small_data(n_subjects=4, seed=0):
    rng = np.random.default_rng(seed)
    patterns, y = rng.normal(size=(3, 5)), [[0, 1, 2] * 8] * n_subjects
    X = [patterns[known] @ rng.normal(size=(5, 30)) for known in y]
    return [x + 4 * rng.normal(size=x.shape) for x in X], y


def small_grid(**options):
    X, y = small_data()
    settings = {
        "methods": {
            "GDM": TracedGDM(2, energy=0.5),
            "GDM, more": TracedGDM(2, energy=0.8),
            "none": NoAlignment(),
        },
        "protocols": ("joint", "held-out"),
    }
    source = GridStudy("small", split_study(X, y), leave_out=2)
    return Grid(source, **{**settings, **options})


if __name__ == "__main__":
    # under its own name, so that cells have the same names as in the tests
    import small_grid

    run_grid(small_grid.small_grid(), sys.argv[1], n_jobs=1)
