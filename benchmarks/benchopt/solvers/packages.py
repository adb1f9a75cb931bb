"""Methods of other packages, by the adapters of brainweave."""

from importlib.metadata import PackageNotFoundError, version

import brainweave as bw
from benchopt import BaseSolver
from brainweave.aligners.adapters import METHODS


class Solver(BaseSolver):
    """Fit, and map the other samples."""

    name = "package"
    requirements = ("pip::brainweave[peers]",)
    sampling_strategy = "run_once"
    parameters = {  # noqa: RUF012 - as benchopt wants it
        "method": [name for name, method in METHODS.items() if not method.geometry],
        "n_components": [10],
    }

    def skip(self, X, Z):
        """Say which package is not there, or that voxels differ."""
        package = METHODS[self.method].package
        try:
            version(package)
        except PackageNotFoundError:
            return True, f"{package} is not installed"
        if METHODS[self.method].equal_voxels and len({x.shape[1] for x in X}) > 1:
            return True, "voxels differ"
        return False, None

    def set_objective(self, X, Z):
        """Keep the samples and make the adapter."""
        self.X, self.Z = X, Z
        wanted = METHODS[self.method].n_components
        k = None if wanted is None else self.n_components
        self.aligner = bw.Adapter(self.method, k, random_state=0)

    def run(self, n_iter):
        """Align, and map."""
        self.features = self.aligner.fit(self.X).transform(self.Z)

    def get_result(self):
        """Return the features of the other samples."""
        return {"features": self.features}
