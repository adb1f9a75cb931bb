"""Any aligner in every neighbourhood of voxels, averaged to one whole-brain map."""

from collections.abc import Iterable
from numbers import Real
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.utils.validation import check_is_fitted

from brainweave._validation import check_int
from brainweave.aligners.maps import SubjectMap
from brainweave.aligners.neighborhoods import (
    Neighborhoods,
    coordinates_per_subject,
    given_neighborhoods,
    neighborhoods_within,
)
from brainweave.aligners.piecewise import (
    Columns,
    Layout,
    LocalFit,
    PiecewiseAligner,
    check_finite,
    covered,
    read_samples,
)
from brainweave.aligners.whole_brain import Collector, Places, SearchlightMap
from brainweave.exceptions import InputError


class Searchlight(PiecewiseAligner):
    r"""Align every neighbourhood of voxels, and average to one map of the whole brain.

    In each neighbourhood :math:`s` an aligner is fitted, with weights :math:`W_{is}`
    and patterns :math:`P_{is}` of subject i. Together they take voxels of subject i to
    voxels of a reference subject r, :math:`W_{is} P_{rs}`. The whole-brain map averages
    them over the :math:`n_u` neighbourhoods that contain a voxel u of the reference,

    .. math:: T_i[\cdot, u] = \frac{1}{n_u} \sum_{s \ni u} (W_{is} P_{rs})[\cdot, u],

    so that values do not grow with the number of neighbourhoods. The shared features
    are the standardised voxels of the reference: local structure stays where it is.

    Parameters
    ----------
    aligner : aligner
        Fitted anew to each neighbourhood; its kernel must be linear. Its parameters can
        be set through this one, as in ``set_params(aligner__n_components=5)``.
    radius : float, optional
        Neighbourhoods are all voxels within this distance of a centre, in the units of
        the coordinates (mm for volumes).
    coordinates : array of shape (n_voxels, n_dimensions), or one per subject, optional
        Positions of the voxels; by default those of the subjects' volumes. Subjects
        may differ in voxels; centres are voxels of the reference.
    centers : array-like of int, optional
        The voxels of the reference that are centres; by default all.
    neighborhoods : list of arrays of int, or (sparse) matrix, or one per subject
        The neighbourhoods themselves, in place of a radius: voxel numbers of each, or a
        boolean matrix of neighbourhoods x voxels. If given per subject they correspond
        one by one.
    reference : int, default=0
        The subject whose voxels are the common space.
    min_voxels : int, default=2
        Neighbourhoods with fewer voxels in any subject are skipped.
    keep_local : bool, default=True
        Keep what a new subject needs to join. False saves memory.
    n_jobs : int, optional
        Neighbourhoods worked on at the same time, in threads; default one per core.
        Inside ``joblib.parallel_config`` the configured backend is used instead. The
        result does not depend on it.
    progress : bool or callable, default=False
        True draws a bar; a callable is told (done, total) after each neighbourhood.

    Attributes
    ----------
    maps_ : list of SearchlightMap
        One map per subject; sparse weights (n_voxels_i, n_voxels_reference).
    coverage_ : ndarray of shape (n_voxels_reference,)
        Number of neighbourhoods that contain each voxel; where it is zero the feature
        is zero.
    skipped_ : dict
        Number of each skipped neighbourhood, and why.
    n_searchlights_ : int
        Neighbourhoods that were aligned.
    neighborhoods_ : list of ndarray
        The neighbourhoods in the reference.
    centers_ : ndarray or None
        Positions of the centres, if there was a radius.
    joinable_, aligners_, reference_maps_ : list
        Numbers of the neighbourhoods that a new subject can join, what it joins there,
        and the local map of the reference; empty without ``keep_local``.

    Notes
    -----
    With s voxels in each of N neighbourhoods, the maps take O(N s^2) time and memory
    for pairs of voxels that are neighbours' neighbours; they are summed as they come,
    in place. The fits take what the aligner takes, N times.

    References
    ----------
    Guntupalli, J. S., Hanke, M., Halchenko, Y. O., Connolly, A. C., Ramadge, P. J., &
    Haxby, J. V. (2016). A model of representational spaces in human cortex. Cerebral
    Cortex 26.

    Examples
    --------
    Voxels on a line whose neighbours are swapped from subject to subject:

    >>> from brainweave.aligners.hyperalignment import Hyperalignment
    >>> rng = np.random.default_rng(0)
    >>> first = rng.normal(size=(40, 12))
    >>> second = first.reshape(40, 6, 2)[:, :, ::-1].reshape(40, 12)
    >>> model = Searchlight(
    ...     Hyperalignment(), radius=2, coordinates=np.arange(12.0)[:, None]
    ... )
    >>> a, b = model.fit([first, second]).transform([first, second])
    >>> bool(np.corrcoef(a[:, 5], b[:, 5])[0, 1] > 0.9)
    True
    >>> bool(np.corrcoef(first[:, 5], second[:, 5])[0, 1] < 0.3)
    True
    """

    _piece = "neighborhood"

    def __init__(
        self,
        aligner: Any,
        radius: float | None = None,
        *,
        coordinates: Any = None,
        centers: Any = None,
        neighborhoods: Any = None,
        reference: int = 0,
        min_voxels: int = 2,
        keep_local: bool = True,
        n_jobs: int | None = None,
        progress: Any = False,
    ) -> None:
        self.aligner = aligner
        self.radius = radius
        self.coordinates = coordinates
        self.centers = centers
        self.neighborhoods = neighborhoods
        self.reference = reference
        self.min_voxels = min_voxels
        self.keep_local = keep_local
        self.n_jobs = n_jobs
        self.progress = progress

    # -- fitting -----------------------------------------------------------------------

    def _lay_out(self, n_voxels: list[int], spaces: list[Any]) -> Layout:
        ref = check_int("reference", self.reference, minimum=0, owner=self._owner)
        if ref >= len(n_voxels):
            raise InputError(
                f"reference={ref} of {self._owner} is not one of the {len(n_voxels)} "
                f"subjects, 0 to {len(n_voxels) - 1}."
            )
        lists, self.centers_ = self._neighborhoods(n_voxels, spaces, ref)
        if not lists[ref]:
            raise InputError("There are no neighborhoods.")
        return Layout(list(range(len(lists[ref]))), lists)

    def _gather(
        self,
        layout: Layout,
        fits: Iterable[tuple[int, LocalFit]],
        read: list[tuple[NDArray[Any], NDArray[Any]]],
        spaces: list[Any],
    ) -> None:
        ref, known = self.reference, dict[tuple[int, int], Places]()
        common, n_common = layout.columns[ref], read[ref][0].size
        collectors = [
            Collector(own, common, mean.size, n_common, known)
            for own, (mean, _) in zip(layout.columns, read, strict=True)
        ]
        kept: list[tuple[int, LocalFit]] = []
        self.n_searchlights_ = 0
        for k, local in fits:
            self.n_searchlights_ += 1
            for collector, m in zip(collectors, local.maps, strict=True):
                collector.add(k, m, local.maps[ref])
            if self.keep_local:
                kept.append((k, LocalFit(local.aligner, [local.maps[ref]])))
        self.neighborhoods_ = common
        self.joinable_ = [k for k, _ in kept]
        self.aligners_ = [local.aligner for _, local in kept]
        self.reference_maps_ = [local.maps[0] for _, local in kept]
        self.coverage_ = collectors[ref].coverage
        self.maps_: list[SubjectMap] = [
            collector.finish(*known, space)
            for collector, known, space in zip(collectors, read, spaces, strict=True)
        ]
        self.n_components_ = n_common

    def _neighborhoods(
        self, n_voxels: list[int], spaces: list[Any], ref: int
    ) -> tuple[list[Neighborhoods], NDArray[np.float64] | None]:
        """Return the neighbourhoods of each subject, one by one, and their centres."""
        if self.neighborhoods is not None:
            if self.radius is not None:
                raise InputError(
                    f"{self._owner} takes a radius or neighborhoods, not both."
                )
            return given_neighborhoods(self.neighborhoods, n_voxels), None
        radius = self._radius()
        positions = coordinates_per_subject(self.coordinates, n_voxels, spaces)
        at = positions[ref][self._center_numbers(n_voxels[ref])]
        different = {id(p): p for p in positions}
        found = {i: neighborhoods_within(p, at, radius) for i, p in different.items()}
        return [found[id(p)] for p in positions], at

    def _radius(self) -> float:
        radius: Any = self.radius
        if radius is None:
            raise InputError(f"{self._owner} needs a radius or neighborhoods.")
        if isinstance(radius, bool) or not isinstance(radius, Real):
            raise TypeError(
                f"radius of {self._owner} must be a number, got {radius!r}."
            )
        if not 0 < float(radius) < np.inf:
            raise InputError(f"radius of {self._owner} must be > 0, got {radius}.")
        return float(radius)

    def _center_numbers(self, n_voxels: int) -> Columns:
        if self.centers is None:
            return np.arange(n_voxels)
        centers = np.asarray(self.centers)
        if centers.ndim != 1 or centers.dtype.kind not in "iu" or not centers.size:
            raise TypeError(
                f"centers of {self._owner} must be a list of voxel numbers."
            )
        if centers.min() < 0 or centers.max() >= n_voxels:
            raise InputError(
                f"centers of {self._owner} must be voxels 0 to {n_voxels - 1} of the "
                f"reference; got {centers.min()} to {centers.max()}."
            )
        return centers.astype(np.intp)

    # -- a new subject -----------------------------------------------------------------

    def fit_new_subject(
        self,
        X: Any,
        y: Any = None,
        *,
        neighborhoods: Any = None,
        coordinates: Any = None,
    ) -> SearchlightMap:
        """Learn the map of a subject that was not in the fit; the model is unchanged.

        Parameters
        ----------
        X : array of shape (n_samples, n_voxels), or a Subject
            Samples of the new subject.
        y : array-like, optional
            What is known of them, as in :meth:`fit`.
        neighborhoods, coordinates : optional
            Those of the new subject, if its voxels are not those of the reference.

        Returns
        -------
        SearchlightMap
            Averaged over the neighbourhoods in which the new subject can be aligned;
            a warning names the others.
        """
        check_is_fitted(self, "maps_")
        if not self.aligners_:
            raise InputError(
                f"This {self._owner} was fitted with keep_local=False, so no subject "
                "can join. Fit again with keep_local=True."
            )
        samples, name = read_samples(X, "the new subject"), "the new subject"
        v, space = int(samples.shape[1]), getattr(X, "space", None)
        own = self._new_neighborhoods(v, space, neighborhoods, coordinates)
        y = getattr(X, "labels", None) if y is None else y
        mean, signatures = check_finite(samples, covered(own, v), name)
        joinable = [own[k] for k in self.joinable_]
        maps = self._join(samples, y, self.joinable_, joinable)
        collector = Collector(own, self.neighborhoods_, v, self.n_components_, {})
        for k, reference, joined in zip(
            self.joinable_, self.reference_maps_, maps, strict=True
        ):
            if joined is not None:
                collector.add(k, joined, reference)
        return collector.finish(mean, signatures, space)

    def _new_neighborhoods(
        self, n_voxels: int, space: Any, neighborhoods: Any, coordinates: Any
    ) -> Neighborhoods:
        if neighborhoods is not None:
            (own,) = given_neighborhoods([neighborhoods], [n_voxels])
        elif self.centers_ is not None and (coordinates is not None or space):
            (at,) = coordinates_per_subject(coordinates, [n_voxels], [space])
            own = neighborhoods_within(at, self.centers_, self._radius())
        elif n_voxels == self.n_components_:
            own = self.neighborhoods_
        else:
            raise InputError(
                f"The new subject has {n_voxels} voxels, the reference "
                f"{self.n_components_}: pass its coordinates, or its neighborhoods."
            )
        if len(own) != len(self.neighborhoods_):
            raise InputError(
                f"The new subject has {len(own)} neighborhoods, the others "
                f"{len(self.neighborhoods_)}; they must correspond one by one."
            )
        return own
