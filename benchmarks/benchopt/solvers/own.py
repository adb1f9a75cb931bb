"""The time-locked methods of brainweave."""

from benchopt import BaseSolver
from brainweave.cli.models import make_aligner


class Solver(BaseSolver):
    """Fit, and map the other samples."""

    name = "brainweave"
    requirements = ("pip::brainweave",)
    sampling_strategy = "run_once"
    parameters = {  # noqa: RUF012 - as benchopt wants it
        "method": [
            "gdm",
            "srm",
            "ha",
            "rha",
            "svdha",
            "gcca",
            "promises",
            "ridge",
            "none",
        ],
        "n_components": [10],
    }

    def set_objective(self, X, Z):
        """Keep the samples and make the aligner."""
        self.X, self.Z = X, Z
        options = {"n_jobs": 1, "random_state": 0}
        if self.method != "none":
            options["n_components"] = str(self.n_components)
        if self.method == "gdm":
            options["graph"] = "time"
        self.aligner = make_aligner(self.method, options, lenient=True)

    def run(self, n_iter):
        """Align, and map."""
        self.features = self.aligner.fit(self.X).transform(self.Z)

    def get_result(self):
        """Return the features of the other samples."""
        return {"features": self.features}
