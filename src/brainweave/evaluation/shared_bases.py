"""Samples that align and samples that are scored, with the work they share.

A :class:`Part` divides the samples of every subject into aligning and scored ones, and
keeps what costs a pass over voxels: the subjects' inner products and eigenbases (per
kernel), and the coordinates of the scored samples. Every fold, energy, number of
components, graph and method that is evaluated on the same part reuses them.
"""

import logging
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

from brainweave._core.arrays import Matrix, to_numpy
from brainweave._core.exceptions import InputError
from brainweave._core.labels import encode_labels
from brainweave._core.workers import map_subjects
from brainweave.aligners.base import BaseAligner
from brainweave.aligners.maps import BasisMap, SubjectMap
from brainweave.basis.basis import SubjectBasis
from brainweave.basis.kernels import Kernel
from brainweave.basis.voxels import SampleProducts
from brainweave.study.study import Study

logger = logging.getLogger(__name__)

__all__ = ["Part"]

Key = tuple[int, Kernel, bool | str]  # subject, kernel, how voxels are scaled


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
    of_grams : bool, default=False
        Whether samples are rows of Gram matrices: of the aligning samples with
        themselves, and of the scored with the aligning ones. No voxel is read then, and
        aligners must have ``kernel="precomputed"``.
    """

    def __init__(
        self, aligning: Study, scored: Study, *, name: str, of_grams: bool = False
    ) -> None:
        self.aligning, self.scored, self.name = aligning, scored, name
        self.of_grams = of_grams
        self._bases: dict[Key, SubjectBasis] = {}
        self._products: dict[tuple[int, bool | str], SampleProducts] = {}
        self._kernels: dict[Key, Matrix] = {}
        # with the spectrum that they belong to
        self._coordinates: dict[Key, tuple[Matrix, Matrix]] = {}

    @property
    def n_subjects(self) -> int:
        """Number of subjects."""
        return len(self.aligning)

    def clear(self) -> None:
        """Forget all bases and coordinates, to free their memory."""
        for kept in (self._bases, self._products, self._kernels, self._coordinates):
            kept.clear()

    # -- what is known of the samples --------------------------------------------------

    def y_for(self, aligner: Any) -> list[Any] | None:
        """Return the y to align with: categories, or stimulus ids for time graphs."""
        ours = isinstance(aligner, BaseAligner)
        values = [aligner._y_of(s) if ours else s.labels for s in self.aligning]
        if all(v is None for v in values):
            return None
        return [
            np.full(s.n_samples, None, object) if v is None else v
            for s, v in zip(self.aligning, values, strict=True)
        ]

    def check_locked(self, aligner: Any) -> None:
        """Refuse samples in different orders for a method that joins them by row."""
        ours = isinstance(aligner, BaseAligner)
        if not (ours and "rows" in aligner._joined_by(self.y_for(aligner))):
            return
        first = self.aligning.subjects[0]
        for subject in self.aligning:
            if subject.n_samples != first.n_samples:
                continue  # the aligner says so
            what, expected, found = "categories", first.labels, subject.labels
            if expected is None or found is None:
                what, expected, found = "stimuli", first.stimuli, subject.stimuli
            if expected is None or found is None:
                continue
            if not np.array_equal(found, expected):
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
        self._read_scored(everyone, bases, n_jobs=n_jobs)
        for i, basis in enumerate(bases):
            if basis.is_decomposed:
                self._coordinates_of(i, basis)

    def bases_for(
        self, aligner: BaseAligner, who: list[int], *, n_jobs: int | None = None
    ) -> list[SubjectBasis]:
        """Return the bases of some subjects with the kernel and energy of an aligner.

        What is new is computed by functions that return it: a worker may be another
        process, whose memory is not ours.
        """
        standardize = aligner.get_params(deep=False).get("standardize", True)
        settings = aligner.basis_settings(self.n_subjects)
        keys = {i: (i, settings[i][0], standardize) for i in who}
        energy = {i: settings[i][1] for i in who}
        full = {i: aligner._needs_eigenbasis or energy[i] < 1 for i in who}
        # threads cost more than looking up what is known
        new = [
            i
            for i in who
            if (basis := self._bases.get(keys[i])) is None
            or (full[i] and not basis.is_decomposed)
        ]
        logger.debug(
            "%s: %d bases are made, %d used again",
            type(aligner).__name__,
            len(new),
            len(who) - len(new),
        )
        made = map_subjects(
            _make_basis,
            [self._recipe(*keys[i]) for i in new],
            [full[i] for i in new],
            n_jobs=n_jobs,
        )
        self._bases.update(zip([keys[i] for i in new], made, strict=True))
        bases = {i: self._bases[keys[i]] for i in who}
        return [
            basis if energy[i] == basis.energy else basis.cut(energy[i])
            for i, basis in bases.items()
        ]

    def _recipe(
        self, i: int, kernel: Kernel, standardize: bool | str
    ) -> Callable[[], SubjectBasis]:
        """Return what makes a basis, from the voxels or from a basis that is there."""
        if kernel.name == "precomputed" and not self.of_grams:
            raise InputError(
                "kernel='precomputed' cannot be evaluated: a Gram matrix cannot be "
                "split into halves. Pass the samples and a kernel."
            )
        known = {
            k: b for (j, k, s), b in self._bases.items() if (j, s) == (i, standardize)
        }
        if known and not self.of_grams:
            nearest = known.get(kernel, next(iter(known.values())))
            return partial(nearest.with_kernel, kernel)
        subject = self.aligning.subjects[i]
        labels = subject.labels
        return partial(
            SubjectBasis,
            subject.samples,
            kernel=kernel,
            standardize=standardize,
            groups=None if labels is None else encode_labels([labels])[0][0],
            runs=subject.runs,
            name=f"subject {subject.id!r} (aligning samples)",
        )

    # -- scored samples ----------------------------------------------------------------

    def map_scored(
        self, maps: list[SubjectMap], *, n_jobs: int | None = None
    ) -> list[Matrix]:
        """Map the scored samples of all, without their voxels where possible."""
        shared = {
            i: m
            for i, m in enumerate(maps)
            if isinstance(m, BasisMap) and self._is_ours(i, m.basis)
        }
        bases = [m.basis for m in shared.values()]
        self._read_scored(list(shared), bases, n_jobs=n_jobs)
        rest = [i for i in range(len(maps)) if i not in shared]
        read = map_subjects(
            _transformed,
            [maps[i] for i in rest],
            [self.scored.subjects[i].samples for i in rest],
            [self._name_of(i) for i in rest],
            n_jobs=n_jobs,
        )
        features = dict(zip(rest, read, strict=True))
        features |= {i: self._from_basis(i, m) for i, m in shared.items()}
        return [features[i] for i in range(len(maps))]

    def _from_basis(self, i: int, fitted: BasisMap) -> Matrix:
        basis = fitted.basis
        if fitted.mixing is not None:
            return np.asarray(self._kernel_of(i, basis) @ fitted.mixing)
        coordinates = self._coordinates_of(i, basis)[:, : basis.n_kept]
        return np.asarray(coordinates @ fitted.coef)

    def _is_ours(self, i: int, basis: SubjectBasis) -> bool:
        """Whether a basis comes from this part's pass over the voxels of subject i.

        By value, too: a basis that another process worked on is a copy.
        """
        return any(
            j == i
            and s == basis.standardize
            and (known.mean is basis.mean or np.array_equal(known.mean, basis.mean))
            for (j, _, s), known in self._bases.items()
        )

    def _name_of(self, i: int) -> str:
        return f"subject {self.scored.subjects[i].id!r} (scored samples)"

    def _read_scored(
        self, who: list[int], bases: list[SubjectBasis], *, n_jobs: int | None
    ) -> None:
        """Make the pass over the scored samples of subjects who had none yet."""
        new = [
            (i, basis)
            for i, basis in zip(who, bases, strict=True)
            if (i, basis.kernel, basis.standardize) not in self._kernels
            and (i, basis.standardize) not in self._products
        ]
        found = map_subjects(
            _products_or_kernel,
            [basis.without_matrices() for _, basis in new],
            [self.scored.subjects[i].samples for i, _ in new],
            [self._name_of(i) for i, _ in new],
            n_jobs=n_jobs,
        )
        for (i, basis), products in zip(new, found, strict=True):
            if isinstance(products, SampleProducts):
                self._products[i, basis.standardize] = products
            else:
                self._kernels[i, basis.kernel, basis.standardize] = products

    def _kernel_of(self, i: int, basis: SubjectBasis) -> Matrix:
        key = (i, basis.kernel, basis.standardize)
        if key not in self._kernels:
            known = self._products.get((i, basis.standardize))
            with_samples = known is None or not basis.kernel.from_products
            other = self.scored.subjects[i].samples if with_samples else known
            self._kernels[key] = basis.kernel_to(other, self._name_of(i))
        return self._kernels[key]

    def _coordinates_of(self, i: int, basis: SubjectBasis) -> Matrix:
        """Return coordinates at full energy; a lower one takes the leading columns."""
        key = (i, basis.kernel, basis.standardize)
        spectrum, coordinates = self._coordinates.get(key, (None, None))
        if coordinates is None or spectrum is not basis.spectrum:
            full = basis.cut(1.0)
            coordinates = self._kernel_of(i, basis) @ (
                full.vectors / np.sqrt(full.values)
            )
            self._coordinates[key] = basis.spectrum, coordinates
        return coordinates


def _make_basis(recipe: Callable[[], SubjectBasis], full: bool) -> SubjectBasis:
    """Make a basis, and compute now what all its cuts share."""
    basis = recipe()
    if not basis.uses_covariance:
        _ = basis.gram
    if full:
        _ = basis.spectrum
    return basis


def _products_or_kernel(basis: SubjectBasis, samples: Any, name: str) -> Any:
    """Return products that serve every kernel, or the kernel that needs the samples."""
    if basis.kernel.from_products:
        return basis.products_with(samples, name)
    return basis.kernel_to(samples, name)


def _transformed(fitted: Any, samples: Any, name: str) -> Matrix:
    called = {"name": name} if isinstance(fitted, SubjectMap) else {}
    return to_numpy(fitted.transform(samples, **called))
