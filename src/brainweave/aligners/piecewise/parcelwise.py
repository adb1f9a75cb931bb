"""Any aligner, parcel by parcel."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from typing import Any, ClassVar

import numpy as np
import scipy.sparse
from numpy.typing import NDArray
from sklearn.utils.validation import check_is_fitted

from brainweave._core.arrays import to_numpy
from brainweave._core.exceptions import InputError
from brainweave._core.labels import sort_labels
from brainweave._core.validation import check_samples
from brainweave.aligners.base import BaseAligner
from brainweave.aligners.maps import SubjectMap
from brainweave.aligners.piecewise.piecewise import (
    Columns,
    Fits,
    MapSettings,
    Pieces,
    PiecewiseAligner,
    once_per_space,
    places_per_subject,
)
from brainweave.basis.places import is_atlas, is_per_subject, labels_at

Labels = NDArray[Any]


class ParcelwiseMap(SubjectMap):
    """The maps of all parcels of one subject, side by side.

    Parts are the voxels of each parcel, its map, and its number of features, which are
    zero without a map. The mean is that of all voxels, also outside the parcels.
    """

    _stored: ClassVar[dict[str, Any]] = {"parts": [tuple], "scale": None}

    def __init__(
        self,
        parts: list[tuple[Columns, SubjectMap | None, int]],
        *,
        mean: NDArray[np.float64],
        **common: Any,
    ) -> None:
        scale = np.full(mean.size, np.inf)
        for columns, local, _ in parts:
            if local is not None:
                scale[columns] = local.scale
        super().__init__(mean=mean, scale=scale, **common)
        self.parts = parts

    @property
    def kernel(self) -> str:
        """Name of the kernel: linear if all parcels' are."""
        names = {local.kernel for _, local, _ in self.parts if local is not None}
        return names.pop() if len(names) == 1 else "several"

    @property
    def n_components(self) -> int:
        """Number of shared features over all parcels."""
        return sum(k for _, _, k in self.parts)

    @property
    def weights(self) -> scipy.sparse.csc_array:
        """Shared features per standardised voxel, sparse (n_voxels, n_components)."""
        return self._side_by_side(lambda local: local.weights)

    @property
    def patterns(self) -> scipy.sparse.csr_array:
        """Standardised voxels per shared feature, sparse (n_components, n_voxels)."""
        return self._side_by_side(lambda local: local.patterns.T).T

    def _side_by_side(self, part: Callable[[Any], Any]) -> scipy.sparse.csc_array:
        """Join parts of the maps (voxels of a parcel x features) to a sparse matrix."""
        blocks = []
        for columns, local, k in self.parts:
            full = np.zeros((columns.size, k)) if local is None else part(local)
            ends = columns.size * np.arange(k + 1)
            entries = (np.ravel(full, order="F"), np.tile(columns, k), ends)
            blocks.append(scipy.sparse.csc_array(entries, (self.n_voxels, k)))
        return scipy.sparse.csc_array(scipy.sparse.hstack(blocks))

    def transform(self, Z: Any, *, name: str = "Z") -> NDArray[Any]:
        """Map samples of this subject, (n_samples, n_components), parcel by parcel."""
        Z = check_samples(Z, self.n_voxels, name)
        features = [
            np.zeros((Z.shape[0], k))
            if local is None
            else to_numpy(local.transform(Z[:, columns], name=name))
            for columns, local, k in self.parts
        ]
        dtype = next(f.dtype for f, p in zip(features, self.parts, strict=True) if p[1])
        return np.hstack(features).astype(dtype, copy=False)

    def inverse_transform(self, features: Any) -> NDArray[Any]:
        """Return voxel patterns for shared features; the mean outside all parcels."""
        shared = self._check_features(features)
        voxels = np.tile(self.mean.astype(shared.dtype), (len(shared), 1))
        start = 0
        for columns, local, k in self.parts:
            if local is not None:
                part = shared[:, start : start + k]
                voxels[:, columns] = local.inverse_transform(part)
            start += k
        return voxels

    def detach(self) -> "ParcelwiseMap":
        """Return the same map without a reference to the data, where kernels allow."""
        parts = [(c, None if m is None else m.detach(), k) for c, m, k in self.parts]
        return ParcelwiseMap(
            parts, mean=self.mean, space=self.space, signatures=self.signatures
        )


@dataclass(eq=False, repr=False)
class Parcelwise(PiecewiseAligner):
    r"""Align every parcel of the brain by itself.

    Each parcel :math:`p` gets its own fit of an aligner, with maps :math:`W_{ip}`; the
    shared features of a sample are those of all parcels, one after the other,
    :math:`( x_{i1} W_{i1}, \dots, x_{iP} W_{iP} )`: the map of a subject is block
    diagonal. Other packages call this a piecewise alignment.

    Parameters
    ----------
    aligner : aligner
        Fitted anew to each parcel. Its parameters can be set through this one, as in
        ``set_params(aligner__n_components=5)``.
    parcels : array of shape (n_voxels,), list of such arrays, or atlas
        A label per voxel, the same for all subjects or one array per subject (then
        parcels are matched by label, and voxel counts may differ). Or an atlas, for
        subjects that know their brain space: a file or an image of labels (NIfTI,
        dlabel, a mapping of hemisphere to GIfTI labels or FreeSurfer annotations,
        nilearn's SurfaceImage), what nilearn's fetchers return, its fitted
        ``Parcellations``, or a name such as "schaefer-400". Atlases with a table of
        names give these. 0, None and the empty string are background.
    n_jobs : int, optional
        Parcels worked on at the same time, in threads, or in processes if this takes
        longer than 20 seconds of one core; default one per core. Inside
        ``joblib.parallel_config`` the configured backend is used instead. The result
        does not depend on it.
    progress : bool or callable, default=False
        True draws a bar; a callable is called with (done, total, what) after each
        parcel.

    Attributes
    ----------
    maps_ : list of ParcelwiseMap
        One map per subject; sparse weights.
    parcels_ : list
        The labels of the aligned parcels, sorted: the order of the features.
    n_features_ : list of int
        Number of shared features of each of them.
    feature_parcels_ : ndarray of shape (n_components,)
        The label of the parcel that each shared feature belongs to.
    skipped_ : dict
        Label of each skipped parcel, and why.
    aligners_ : list
        What a new subject joins, one per parcel.

    Notes
    -----
    Time and memory are those of the aligner, summed over parcels. Those with fewer than
    two voxels in any subject are skipped. Voxels outside all
    parcels have no weight, and ``inverse_transform`` gives their mean. For a local
    :class:`GDM`, voxels of one grid or mesh are places, also where masks differ (in
    parcels of more than 2,048, supervoxels or patches).

    References
    ----------
    Bazeille, T., DuPre, E., Richard, H., Poline, J.-B., & Thirion, B. (2021). An
    empirical evaluation of functional alignment using inter-subject decoding.
    NeuroImage 245.

    Examples
    --------
    >>> from brainweave.aligners.srm.srm import DetSRM
    >>> rng = np.random.default_rng(0)
    >>> X = [rng.normal(size=(30, 50)) for _ in range(3)]
    >>> parcels = np.repeat([0, 1, 2], [10, 25, 15])
    >>> model = Parcelwise(DetSRM(4, random_state=0), parcels).fit(X)
    >>> model.transform(X)[0].shape, model.maps_[0].weights[:10].nnz
    ((30, 8), 0)
    """

    _piece = "parcel"
    _stored: ClassVar[dict[str, Any]] = {
        "parcels_": list,
        "n_features_": [int],
        "aligners_": [BaseAligner],
        "feature_parcels_": "K of any",
    }

    parcels: Any = None

    def _find_pieces(self, n_voxels: list[int], spaces: list[Any]) -> Pieces:
        labels = parcel_labels(self.parcels, n_voxels, spaces, owner=self._owner)
        found = {label for part in labels for label in part.tolist()}
        found -= {None, "", 0, "0"}  # background, as is NaN
        names = sort_labels(name for name in found if name == name)  # noqa: PLR0124
        if not names:
            raise InputError(
                "All voxels are background (label 0); there is no parcel. Is the atlas "
                "in the space of the images?"
            )
        return Pieces(names, [columns_of_parcels(part, names) for part in labels])

    def _combine(self, pieces: Pieces, fits: Fits, settings: list[MapSettings]) -> None:
        parts: list[list[Any]] = [[] for _ in settings]
        self.parcels_, self.aligners_, self.n_features_ = [], [], []
        for k, local in fits:
            for own, at, m in zip(parts, pieces.columns, local.maps_, strict=True):
                own.append((at[k], m, m.n_components))
            local.maps_ = []  # new subjects can still join
            self.parcels_.append(pieces.names[k])
            self.aligners_.append(local)
            self.n_features_.append(parts[0][-1][-1])
        self.feature_parcels_ = np.repeat(np.array(self.parcels_), self.n_features_)
        self.n_components_ = sum(self.n_features_)
        pairs = zip(parts, settings, strict=True)
        self.maps_ = [ParcelwiseMap(own, **of_map) for own, of_map in pairs]

    def fit_new_subject(
        self, X: Any, y: Any = None, *, parcels: Any = None
    ) -> ParcelwiseMap:
        """Learn the map of a subject that was not in the fit; the model is unchanged.

        Parameters
        ----------
        X, y : list of array-like
            Samples of the new subject, and what is known of them.
        parcels : array of shape (n_voxels,), or image, optional
            Its parcels; needed if those of the others differ from subject to subject.

        Returns
        -------
        ParcelwiseMap
            Parcels in which the new subject cannot be aligned give features of zero,
            and a warning.
        """
        check_is_fitted(self, "maps_")
        given = self.parcels if parcels is None else parcels
        if parcels is None and is_per_subject(given):
            raise InputError(
                "The parcels differ from subject to subject: pass those of the new "
                "one, fit_new_subject(X, parcels=...)."
            )

        def columns_of(n: int, space: Any) -> list[Columns]:
            (labels,) = parcel_labels(given, [n], [space], owner=self._owner)
            return columns_of_parcels(labels, self.parcels_)

        numbers = list(range(len(self.parcels_)))
        found = self._join_pieces(X, y, numbers, self.parcels_, columns_of)
        columns, maps, settings = found
        parts = [(columns[k], maps.get(k), self.n_features_[k]) for k in numbers]
        return ParcelwiseMap(parts, **settings)

    def _places_of_pieces(self) -> tuple[SubjectMap, dict[Any, Columns]]:
        own: Any = self.maps_[0]
        columns = (columns for columns, _, _ in own.parts)
        return own, dict(zip(self.parcels_, columns, strict=True))


def parcel_labels(
    parcels: Any, n_voxels: list[int], spaces: Sequence[Any], *, owner: str
) -> list[Labels]:
    """Return one array of labels per subject, from any of the ways to give them."""
    if parcels is None:
        raise TypeError(
            f"parcels of {owner} must be a label per voxel, an array per subject, or "
            "an atlas: an image, a file, or a name such as 'schaefer-400'; got None."
        )
    if is_atlas(parcels):
        return once_per_space(partial(labels_at, parcels), spaces)
    return places_per_subject("parcels", parcels, n_voxels, owner=owner)


def columns_of_parcels(labels: Labels, names: Sequence[Any]) -> list[Columns]:
    """Return the voxels of each parcel."""
    place = {name: k for k, name in enumerate(names)}
    codes = np.array([place.get(label, -1) for label in labels.tolist()])
    order = np.argsort(codes, kind="stable")
    ends = np.searchsorted(codes[order], np.arange(len(names) + 1))
    return [order[a:b] for a, b in pairwise(ends)]
