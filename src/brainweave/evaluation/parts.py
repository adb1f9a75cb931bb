"""Samples that align and samples that are scored, with the work they share.

A :class:`Part` divides the samples of every subject into aligning and scored ones, and
keeps what costs a pass over voxels: the subjects' inner products and eigenbases (per
kernel), and the coordinates of the scored samples. Every fold, energy, number of
components, graph and method that is evaluated on the same part reuses them.
"""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from brainweave._arrays import map_subjects, to_numpy
from brainweave._validation import one_per_subject
from brainweave.aligners.base import BaseAligner
from brainweave.aligners.maps import SubjectMap
from brainweave.aligners.timelocked import TimeLocked
from brainweave.basis import SampleProducts, SubjectBasis
from brainweave.exceptions import InputError
from brainweave.kernels import Kernel, check_kernel
from brainweave.study.study import Study

__all__ = ["GramPart", "Part"]

Matrix = NDArray[np.float64]
PER_SUBJECT = ("kernel", "kernel_params", "energy")  # settings that may be lists


class Part:
    """One division of a study, and the bases and coordinates computed for it so far.

    Parameters
    ----------
    aligning : Study
        The samples that align.
    scored : Study
        Other samples of the same subjects, in the same order.
    name : str
        How tables call this part.
    """

    def __init__(self, aligning: Study, scored: Study, *, name: str) -> None:
        self.aligning, self.scored, self.name = aligning, scored, name
        self._bases: dict[tuple[int, Kernel, bool], SubjectBasis] = {}
        self._products: dict[tuple[int, bool], SampleProducts] = {}
        self._kernels: dict[tuple[int, Kernel, bool], Matrix] = {}
        # with the spectrum that they belong to
        self._coordinates: dict[tuple[int, Kernel, bool], tuple[Matrix, Matrix]] = {}

    @property
    def n_subjects(self) -> int:
        """Number of subjects."""
        return len(self.aligning)

    def clear(self) -> None:
        """Forget all bases and coordinates, to free their memory."""
        for kept in (self._bases, self._products, self._kernels, self._coordinates):
            kept.clear()

    # -- what is known of the samples --------------------------------------------------

    def known(self, aligner: Any) -> list[Any] | None:
        """Give the y to align with: categories, or stimulus ids for time graphs."""
        what = "stimuli" if uses_time_graph(aligner) else "labels"
        values = [getattr(subject, what) for subject in self.aligning]
        if all(v is None for v in values):
            return None
        return [
            np.full(s.n_samples, None, object) if v is None else v
            for s, v in zip(self.aligning, values, strict=True)
        ]

    def check_locked(self, aligner: Any) -> None:
        """Refuse samples in different orders for a method that joins them by row."""
        by_row = uses_time_graph(aligner) and self.known(aligner) is None
        if not (by_row or is_time_locked(aligner)):
            return
        first = self.aligning.subjects[0]
        for subject in self.aligning:
            what, known, shown = "categories", first.labels, subject.labels
            if known is None or shown is None:
                what, known, shown = "stimuli", first.stimuli, subject.stimuli
            if known is None or shown is None:
                continue
            if subject.n_samples == first.n_samples and not np.array_equal(
                shown, known
            ):
                raise InputError(
                    f"{type(aligner).__name__} joins samples by their row, but the "
                    f"aligning samples of subject {subject.id!r} show other {what} "
                    f"than those of {first.id!r} in the same rows. Pass "
                    "match='truncate' to reorder them by category, or use GDM with "
                    "graph='labels'."
                )

    # -- bases -------------------------------------------------------------------------

    def prepare(self, aligner: BaseAligner, *, n_jobs: int | None = None) -> None:
        """Compute now what an aligner needs of all subjects, so that it is only read.

        Several threads may then evaluate such aligners on this part at the same time.
        """
        everyone = list(range(self.n_subjects))
        bases = self.bases_for(aligner, everyone, n_jobs=n_jobs)

        def scored(i: int, basis: SubjectBasis) -> None:
            self._kernel_of(i, basis)
            if "_spectrum" in basis.__dict__:
                self._coordinates_of(i, basis)

        map_subjects(scored, everyone, bases, n_jobs=n_jobs)

    def bases_for(
        self, aligner: BaseAligner, who: list[int], *, n_jobs: int | None = None
    ) -> list[SubjectBasis]:
        """Give the bases of some subjects with the kernel and energy of an aligner."""
        standardize = bool(aligner.get_params(deep=False).get("standardize", True))
        settings = {i: self._settings(aligner, i) for i in who}
        full = {
            i: aligner._needs_eigenbasis or energy < 1
            for i, (_, energy) in settings.items()
        }

        def read(i: int) -> None:
            basis = self._basis(i, settings[i][0], standardize)
            if full[i]:
                _ = basis.spectrum

        # threads cost more than looking up what is known
        new = [i for i in who if not self._has(i, settings[i][0], standardize, full[i])]
        map_subjects(read, new, n_jobs=n_jobs)
        bases = [self._bases[i, settings[i][0], standardize] for i in who]
        return [
            basis if settings[i][1] == basis.energy else basis.cut(settings[i][1])
            for i, basis in zip(who, bases, strict=True)
        ]

    def _has(self, i: int, kernel: Kernel, standardize: bool, full: bool) -> bool:
        basis = self._bases.get((i, kernel, standardize))
        return basis is not None and (not full or "_spectrum" in basis.__dict__)

    def _settings(self, aligner: BaseAligner, i: int) -> tuple[Kernel, float]:
        owner, n = type(aligner).__name__, self.n_subjects
        params = aligner.get_params(deep=False)
        kernels, hps, energies = (
            one_per_subject(name, params.get(name, default), n, owner=owner)
            for name, default in zip(PER_SUBJECT, ("linear", None, 1.0), strict=True)
        )
        return check_kernel(kernels[i], hps[i], owner=owner), energies[i]

    def _basis(self, i: int, kernel: Kernel, standardize: bool) -> SubjectBasis:
        key = (i, kernel, standardize)
        if key not in self._bases:
            self._bases[key] = basis = self._make_basis(i, kernel, standardize)
            if not basis.uses_covariance:
                _ = basis.gram  # now, so that every cut of the basis shares it
        return self._bases[key]

    def _make_basis(self, i: int, kernel: Kernel, standardize: bool) -> SubjectBasis:
        if kernel.name == "precomputed":
            raise InputError(
                "kernel='precomputed' cannot be evaluated: a Gram matrix cannot be "
                "split into halves. Pass the samples and a kernel."
            )
        same = [b for (j, _, s), b in self._bases.items() if (j, s) == (i, standardize)]
        if same:
            return same[0].with_kernel(kernel)
        subject = self.aligning.subjects[i]
        return SubjectBasis(
            subject.samples,
            kernel=kernel,
            standardize=standardize,
            name=f"subject {subject.id!r} (aligning samples)",
        )

    # -- scored samples ----------------------------------------------------------------

    def features(self, i: int, fitted: SubjectMap) -> Matrix:
        """Map the scored samples of subject i, without their voxels where possible."""
        basis, name = fitted.basis, self._name_of(i)
        if basis is None or not _is_plain(fitted) or not self._is_ours(i, basis):
            return to_numpy(
                fitted.transform(self.scored.subjects[i].samples, name=name)
            )
        if fitted.mixing is not None:
            return self._kernel_of(i, basis) @ fitted.mixing
        if fitted.coef is None:
            raise InputError(f"The map of {name} has neither coefficients nor weights.")
        return self._coordinates_of(i, basis)[:, : basis.n_kept] @ fitted.coef

    def is_mapped(self, i: int, fitted: SubjectMap) -> bool:
        """Whether mapping the scored samples takes no pass over voxels any more."""
        basis = fitted.basis
        if basis is None or not _is_plain(fitted):
            return False
        return (i, basis.kernel, basis.standardize) in self._kernels

    def _is_ours(self, i: int, basis: SubjectBasis) -> bool:
        """Whether a basis comes from this part's pass over the voxels of subject i."""
        return any(
            j == i and known.mean is basis.mean and s == basis.standardize
            for (j, _, s), known in self._bases.items()
        )

    def _name_of(self, i: int) -> str:
        return f"subject {self.scored.subjects[i].id!r} (scored samples)"

    def _kernel_of(self, i: int, basis: SubjectBasis) -> Matrix:
        key = (i, basis.kernel, basis.standardize)
        if key not in self._kernels:
            self._kernels[key] = self._make_kernel(i, basis)
        return self._kernels[key]

    def _make_kernel(self, i: int, basis: SubjectBasis) -> Matrix:
        samples, name = self.scored.subjects[i].samples, self._name_of(i)
        if not basis.kernel.from_products:
            return basis.kernel_to(samples, name)
        key = (i, basis.standardize)
        if key not in self._products:
            self._products[key] = basis.products_with(samples, name)
        return basis.kernel_to(self._products[key], name)

    def _coordinates_of(self, i: int, basis: SubjectBasis) -> Matrix:
        """Give coordinates at full energy; a lower one takes the leading columns."""
        key = (i, basis.kernel, basis.standardize)
        spectrum, coordinates = self._coordinates.get(key, (None, None))
        if coordinates is None or spectrum is not basis.spectrum:
            full = basis.cut(1.0)
            coordinates = self._kernel_of(i, basis) @ (
                full.vectors / np.sqrt(full.values)
            )
            self._coordinates[key] = basis.spectrum, coordinates
        return coordinates


class GramPart(Part):
    """A part whose inner products are known already: no voxel is read.

    The halves of one set of samples have submatrices of its Gram matrix, so tuning
    inside the aligning samples needs nothing but that matrix. Centring a submatrix of
    a centred Gram matrix is the same as centring it alone. Voxels keep the scale of all
    the samples. Aligners must have ``kernel="precomputed"``.

    Parameters
    ----------
    aligning, scored : Study
        What is known of the samples (their values are not used).
    grams : list of ndarray of shape (n_i, n_i)
        Centred Gram matrix of all samples of each subject.
    rows, others : list of ndarray of int
        Which of them align, and which are scored.
    name : str
        How tables call this part.
    """

    def __init__(
        self,
        aligning: Study,
        scored: Study,
        *,
        grams: list[NDArray[Any]],
        rows: list[NDArray[np.intp]],
        others: list[NDArray[np.intp]],
        name: str,
    ) -> None:
        super().__init__(aligning, scored, name=name)
        self._grams, self._rows, self._others = grams, rows, others

    def _make_basis(self, i: int, kernel: Kernel, standardize: bool) -> SubjectBasis:
        rows = self._rows[i]
        return SubjectBasis(
            self._grams[i][np.ix_(rows, rows)],
            kernel=kernel,
            standardize=standardize,
            name=f"subject {self.aligning.subjects[i].id!r} (inner half)",
        )

    def _make_kernel(self, i: int, basis: SubjectBasis) -> Matrix:
        return basis.kernel_to(self._grams[i][np.ix_(self._others[i], self._rows[i])])


def _is_plain(fitted: SubjectMap) -> bool:
    """Whether a map is coefficients on a basis, and not a class with its own ways."""
    return type(fitted).transform is SubjectMap.transform


def is_time_locked(aligner: Any) -> bool:
    """Whether an aligner, or one inside it, needs samples locked in time."""
    inside = aligner.get_params(deep=True) if hasattr(aligner, "get_params") else {}
    return any(isinstance(a, TimeLocked) for a in (aligner, *inside.values()))


def uses_time_graph(aligner: Any) -> bool:
    """Whether an aligner, or one inside it, joins samples by time or stimulus."""
    params = aligner.get_params(deep=True) if hasattr(aligner, "get_params") else {}
    return any(
        isinstance(value, str) and value == "time"
        for name, value in params.items()
        if name.split("__")[-1] == "graph"
    )
