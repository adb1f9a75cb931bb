"""No alignment at all, which all other methods have to beat."""

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from brainweave._core.arrays import Matrix, to_numpy
from brainweave._core.exceptions import InputError
from brainweave._core.validation import check_samples
from brainweave.aligners.base import BaseAligner
from brainweave.aligners.maps import SubjectMap, common_settings, refuse_non_finite
from brainweave.basis.basis import SubjectBasis


class VoxelMap(SubjectMap):
    """The map of a subject that keeps its voxels: standardising, and its inverse."""

    _stored: ClassVar[dict[str, Any]] = {}

    def __init__(self, **common: Any) -> None:
        super().__init__(isometric=True, **common)

    n_components = SubjectMap.n_voxels  # every feature is a voxel

    @property
    def weights(self) -> NDArray[Any]:
        """There are none worth forming: every feature is a voxel."""
        raise InputError(
            "Without alignment every feature is one standardised voxel; there are no "
            "weights or patterns. Use transform and inverse_transform."
        )

    patterns = weights

    def transform(self, Z: Any, *, name: str = "Z") -> Any:
        """Standardise samples of this subject, (n_samples, n_voxels)."""
        Z = check_samples(Z, self.n_voxels, name)
        features = np.hstack([to_numpy(z) for _, z in self._standardized(Z)])
        refuse_non_finite(features, name)
        return features

    def inverse_transform(self, features: Any) -> NDArray[Any]:
        """Undo the standardising: scale and mean restored."""
        voxels = to_numpy(check_samples(features, self.n_voxels, "features"))
        return self._unstandardize(voxels, voxels.dtype)


@dataclass(eq=False, repr=False, kw_only=True)
class NoAlignment(BaseAligner):
    r"""Standardise every voxel and align nothing.

    The features of a sample are its voxels, :math:`(x - \mu_i) / \sigma_i`, with the
    mean and deviation of the aligning samples of subject i. Subjects share a space only
    as far as anatomy aligned them, so they must have the same voxels.

    Parameters
    ----------
    standardize, n_jobs : various
        As in :class:`DetSRM`.

    Attributes
    ----------
    maps_ : list of VoxelMap
    bases_ : list of SubjectBasis
        Reusable: pass them in place of X to other aligners.

    Examples
    --------
    >>> X = [np.random.default_rng(i).normal(5, 3, size=(20, 4)) for i in range(2)]
    >>> a, b = NoAlignment().fit_transform(X)
    >>> bool(np.allclose(a.mean(axis=0), 0) and np.allclose(b.std(axis=0), 1))
    True
    """

    _solution_name = ""  # the bases hold mean and scale
    _needs_eigenbasis = False

    standardize: bool | str = True
    n_jobs: int | None = None

    def _joined_by(self, y: Any = None) -> set[str]:
        return set()

    def _solve(self, bases: list[SubjectBasis], y: list[Any] | None) -> list[Matrix]:
        self.n_components_ = bases[0].n_voxels
        return [self._solve_new(basis, None) for basis in bases]

    def _make_map(self, basis: SubjectBasis, solution: Matrix) -> SubjectMap:
        return VoxelMap(**common_settings(basis))

    def _features(self, i: int) -> NDArray[Any]:
        return np.hstack([to_numpy(z) for _, z in self.bases_[i].chunks()])

    def _solve_new(self, basis: SubjectBasis, y: Any) -> Matrix:
        if basis.n_voxels != self.n_components_:
            raise InputError(
                f"{basis.name} has {basis.n_voxels} voxels, the others have "
                f"{self.n_components_}; {self._owner} compares voxel by voxel. Use one "
                "mask for all subjects, or an aligner such as SRM or GDM."
            )
        return np.empty((basis.n_voxels, 0))
