"""Split a study into aligning and scored samples.

A :class:`Split` keeps what costs a pass over voxels: the bases of the subjects and the
products of the scored samples with them. Every method and setting that is evaluated on
the same split uses them again.
"""

import logging
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from functools import partial
from itertools import zip_longest
from typing import Any

import numpy as np
from numpy.typing import NDArray

from brainweave._core.arrays import Matrix, to_numpy
from brainweave._core.exceptions import InputError
from brainweave._core.labels import check_labels_overlap, encode_labels, sort_labels
from brainweave._core.validation import (
    NamedSamples,
    check_int,
    check_list_of_subjects,
    check_option,
    labels_per_subject,
)
from brainweave._core.workers import map_subjects
from brainweave.aligners.base import BaseAligner
from brainweave.aligners.maps import BasisMap, SubjectMap
from brainweave.basis.basis import SubjectBasis
from brainweave.basis.kernels import Kernel
from brainweave.basis.voxels import SampleProducts, same_samples, sample_signatures
from brainweave.evaluation.metrics import refuse_strangers, timeline
from brainweave.study.provenance import scaled_within
from brainweave.study.samples import HOW, match_samples
from brainweave.study.study import Study, Subject

logger = logging.getLogger(__name__)

Key = tuple[int, Kernel, bool | str]  # subject, kernel, how voxels are scaled


class Split:
    """Samples that align and other samples of the same subjects that are scored.

    Keeps the bases and products that were computed for them so far.
    """

    def __init__(self, aligning: Study, scored: Study) -> None:
        self.aligning, self.scored = aligning, scored
        self._locked: Split | None = None  # of what all have
        self.clear()

    def for_aligner(self, aligner: Any) -> "Split":
        """Return this split, with the aligning samples that a method can use.

        Of a film that people saw in part, methods that join samples by row get what all
        saw. Where there are categories, it is up to `match` to choose samples.
        """
        film = not self.aligning.categories and _differ(self.aligning)
        if not film or not self._by_row(aligner):
            return self
        if self._locked is None:
            locked = match_study(self.aligning, "intersect")
            self._locked = Split(locked, self.scored)
        return self._locked

    def _by_row(self, aligner: Any) -> bool:
        ours = isinstance(aligner, BaseAligner)
        return ours and "rows" in aligner._joined_by(self.y_for(aligner))

    @property
    def n_subjects(self) -> int:
        """Number of subjects."""
        return len(self.aligning)

    def clear(self) -> None:
        """Forget all bases and products, to free their memory."""
        self._bases: dict[Key, SubjectBasis] = {}
        self._products: dict[tuple[int, bool | str], SampleProducts] = {}
        self._kernels: dict[Key, Matrix] = {}
        self._locked = None

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
        if not self._by_row(aligner):
            return
        first = self.aligning.subjects[0]
        for subject in self.aligning:
            labelled = first.labels is not None and subject.labels is not None
            shown = "categories" if labelled else "stimuli"
            expected, found = (
                s.labels if labelled else s.stimuli for s in (first, subject)
            )
            if expected is None or found is None or len(expected) != len(found):
                continue  # the aligner itself refuses other numbers of samples
            if not np.array_equal(found, expected):
                raise InputError(
                    f"{type(aligner).__name__} joins samples by their row, but the "
                    f"aligning samples of subject {subject.id!r} show other {shown} "
                    f"than those of {first.id!r} in the same rows. Reorder them by "
                    "split_study(..., match='truncate'), or use GDM(graph='labels')."
                )

    # -- bases -------------------------------------------------------------------------

    def prepare(self, aligner: BaseAligner, *, n_jobs: int | None = None) -> None:
        """Compute now what an aligner needs of all subjects.

        Several threads may then evaluate such aligners on this split at the same time.
        """
        everyone = list(range(self.n_subjects))
        bases = self.bases_for(aligner, everyone, n_jobs=n_jobs)
        self._read_scored(everyone, bases, n_jobs=n_jobs)
        for i, basis in enumerate(bases):
            self._kernel_of(i, basis)

    def bases_for(
        self, aligner: BaseAligner, who: list[int], *, n_jobs: int | None = None
    ) -> list[SubjectBasis]:
        """Return the bases of some subjects, as an aligner wants them."""
        standardize = aligner.get_params(deep=False).get("standardize", True)
        settings = aligner._basis_settings(self.n_subjects)
        keys = {i: (i, settings[i][0], standardize) for i in who}
        full = {i: aligner._needs_eigenbasis or settings[i][1] < 1 for i in who}
        new = [
            i
            for i in who
            if (basis := self._bases.get(keys[i])) is None
            or (full[i] and not basis.is_decomposed)
        ]
        told = type(aligner).__name__, len(new), len(who) - len(new)
        logger.debug("%s: %d bases are made, %d used again", *told)
        recipes = [self._recipe(*keys[i]) for i in new]
        made = map_subjects(_make_basis, recipes, [full[i] for i in new], n_jobs=n_jobs)
        self._bases.update(zip([keys[i] for i in new], made, strict=True))
        cut = []
        for i in who:
            basis, energy = self._bases[keys[i]], settings[i][1]
            cut.append(basis if energy == basis.energy else basis.cut(energy))
            cut[-1].space = self.aligning.subjects[i].space  # which knows the places
        return cut

    def _recipe(
        self, i: int, kernel: Kernel, standardize: bool | str
    ) -> Callable[[], SubjectBasis]:
        """Return what makes a basis, from the voxels or from a basis that is there."""
        if kernel.name == "precomputed":
            raise InputError(
                "kernel='precomputed' cannot be evaluated: a Gram matrix cannot be "
                "split into halves. Pass the samples and a kernel."
            )
        known = {
            k: b for (j, k, s), b in self._bases.items() if (j, s) == (i, standardize)
        }
        if known:
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
        self, maps: list[Any], *, from_bases: bool, n_jobs: int | None = None
    ) -> list[Matrix]:
        """Map the scored samples of all; maps `from_bases` of this split read none."""
        shared = [  # what a map shares with others lies in places, not in products
            i
            for i, m in enumerate(maps)
            if from_bases and isinstance(m, BasisMap) and m.place is None
        ]
        self._read_scored(shared, [maps[i].basis for i in shared], n_jobs=n_jobs)
        rest = [i for i in range(len(maps)) if i not in shared]
        # features that are the voxels themselves are read here, not sent by workers
        widths = [getattr(maps[i], "n_components", 0) for i in rest]
        voxels = [self.scored.subjects[i].n_voxels for i in rest]
        read = map_subjects(
            _transformed,
            [maps[i] for i in rest],
            [self.scored.subjects[i].samples for i in rest],
            [self._name_of(i) for i in rest],
            n_jobs=n_jobs,
            threads_only=widths == voxels,
        )
        features = dict(zip(rest, read, strict=True))
        for i in shared:
            m = maps[i]
            features[i] = np.asarray(self._kernel_of(i, m.basis) @ m._weight_mixing())
        return [features[i] for i in range(len(maps))]

    def _name_of(self, i: int) -> str:
        return f"subject {self.scored.subjects[i].id!r} (scored samples)"

    def _read_scored(
        self, who: list[int], bases: list[SubjectBasis], *, n_jobs: int | None
    ) -> None:
        """Make the pass over the scored samples of subjects who had none yet."""
        new = [
            (i, basis)
            for i, basis in zip(who, bases, strict=True)
            if basis.kernel.from_products
            and (i, basis.standardize) not in self._products
        ]
        found = map_subjects(
            SubjectBasis.products_with,
            [basis.without_matrices() for _, basis in new],
            [self.scored.subjects[i].samples for i, _ in new],
            [self._name_of(i) for i, _ in new],
            n_jobs=n_jobs,
        )
        keys = [(i, basis.standardize) for i, basis in new]
        self._products.update(zip(keys, found, strict=True))

    def _kernel_of(self, i: int, basis: SubjectBasis) -> Matrix:
        key = (i, basis.kernel, basis.standardize)
        if key not in self._kernels:
            other: Any = self.scored.subjects[i].samples
            if basis.kernel.from_products:
                other = self._products[i, basis.standardize]
            self._kernels[key] = basis.kernel_to(other, self._name_of(i))
        return self._kernels[key]


# at the top of the module, so that workers in other processes find them


def _make_basis(recipe: Callable[[], SubjectBasis], full: bool) -> SubjectBasis:
    """Make a basis, and compute now what all its cuts share."""
    basis = recipe()
    basis.memory = {}
    if not basis.uses_covariance:
        _ = basis.gram
    if full:
        _ = basis.spectrum
    return basis


def _transformed(fitted: Any, samples: Any, name: str) -> Matrix:
    called = {"name": name} if isinstance(fitted, SubjectMap) else {}
    return to_numpy(fitted.transform(samples, **called))


class SplitStudy:
    """A study divided for evaluation, with the work that evaluations share.

    Made by :func:`split_study`; every evaluation takes it in place of a study, so that
    several methods, energies or protocols share one pass over the voxels.

    Attributes
    ----------
    splits : list of Split
        Each aligns with some samples and scores others.
    design : dict of str to Any
        How the study was divided: ``halves`` and ``match``.
    ids : list of str
        The subjects.
    categories : list
        Categories of the scored samples, sorted.
    """

    def __init__(
        self,
        splits: Sequence[Split],
        *,
        name: str = "",
        fingerprint: str | None = None,
        design: dict[str, Any] | None = None,
    ) -> None:
        self.splits = list(splits)
        self.name, self.fingerprint = name, fingerprint
        self.design = dict(design or {})
        self.ids = self.splits[0].scored.ids
        found = {c for split in self.splits for c in split.scored.categories}
        self.categories = sort_labels(found)

    @property
    def n_subjects(self) -> int:
        """Number of subjects."""
        return len(self.ids)

    @property
    def shape(self) -> tuple[int, int]:
        """Numbers of splits and of subjects."""
        return len(self.splits), len(self.ids)

    def about(self, aligner: Any = None) -> dict[str, Any]:
        """Return what results record of the study, as an aligner uses it."""
        used = [part.aligning for part in self.splits]
        with suppress(InputError):  # it fails again when it is fitted
            used = [part.for_aligner(aligner).aligning for part in self.splits]
        return {
            "name": self.name,
            "fingerprint": self.fingerprint,
            "subjects": list(self.ids),
            "n_aligning": [[s.n_samples for s in part] for part in used],
            "n_scored": [[s.n_samples for s in p.scored] for p in self.splits],
        }

    def __repr__(self) -> str:
        return f"SplitStudy({self.n_subjects} subjects, {len(self.splits)} splits)"


def split_study(
    study: Any,
    y: Any = None,
    *,
    halves: Any = "category",
    block: int | None = None,
    border: int = 0,
    align: Sequence[Any] | None = None,
    match: str | None = None,
) -> SplitStudy:
    """Split a study into aligning and scored samples.

    Parameters
    ----------
    study : Study, or list of arrays of shape (n_samples_i, n_voxels_i)
        Samples of each subject. Files are read here, once.
    y : list of array-like, optional
        Categories, or, where no value occurs twice in a subject, stimulus ids; by
        default those of the study.
    halves : {"category", "run", "film", "time"} or list of boolean arrays
        "category", the default: the first half of the samples of each category, against
        the rest, and without categories as "time"; "run": the first half of the runs,
        against the rest (see :meth:`brainweave.Study.split_halves`); "film": the first
        half of the films that stimulus ids name; "time": the first half of the film's
        clock (the stimulus ids, else the rows), or every other `block` of it; or one
        mask per subject, True for the first half. Each half aligns once and is scored
        once.
    block : int, optional
        Time steps per block for ``halves="time"``, so that people who left early have
        samples in both halves.
    border : int, default=0
        How many time steps are left out between blocks, whose responses overlap.
    align : list of Study, or of lists of arrays, optional
        Separate samples of the same subjects to align with, such as thirds of a movie;
        each aligns once, all samples of `study` are scored, and `halves` is not used.
        Matching, reconstruction and inter-subject correlation allow samples of `study`
        among them: those are not scored, but stand in the average of the others.
    match : {"truncate", "average", "intersect"}, optional
        Make the aligning samples correspond row by row, for methods that need them
        locked in time; see :func:`brainweave.match_samples`. "intersect" goes by the
        stimuli if all subjects have them. By default samples stay as they are, but
        methods that need equal rows align with what all saw of a film.

    Returns
    -------
    SplitStudy
        The divided study, which every evaluation takes in place of a study.

    Examples
    --------
    >>> X = [np.random.default_rng(i).normal(size=(8, 30)) for i in range(3)]
    >>> split = split_study(X, [list("aabbaabb")] * 3)
    >>> split
    SplitStudy(3 subjects, 2 splits)
    >>> split.splits[0].aligning[0].labels.tolist()
    ['a', 'a', 'b', 'b']
    """
    if isinstance(study, SplitStudy):
        by_category = isinstance(halves, str) and halves == "category"
        given = (y, align, match, block)
        if not by_category or border or any(g is not None for g in given):
            raise InputError(
                "This study is split already: give y, halves, block, border, align and "
                "match to split_study."
            )
        return study
    whole = _in_memory(as_study(study, y, keep_labels=align is not None))
    refuse_aligned(whole)
    _refuse_copies(whole)
    design: dict[str, Any] = {"match": match}
    if align is not None:
        design["halves"] = "align"
        splits = _aligning_parts(whole, align, named=isinstance(study, Study))
        parts = [split.aligning for split in splits]
    else:
        design["halves"] = halves if isinstance(halves, str) else "masks"
        if block is not None or border:
            design |= {"block": block, "border": border}
        masks = half_masks(whole, halves, block, border)
        pairs, scaled = zip(whole, masks[0], strict=True), scaled_within(whole.record)
        runs_are_cut = any(
            s.runs is None or {*s.runs[half].tolist()} & {*s.runs[~half].tolist()}
            for s, half in pairs
        )
        if scaled is not None and (scaled != "run" or runs_are_cut):
            design["standardised_together"] = scaled
        splits, parts = split_in_halves(whole, masks), []
    for each in (whole, *parts):
        check_labels_overlap([s.labels for s in each], list(map(repr, each.ids)))
    if match is not None:
        splits = [Split(match_study(s.aligning, match), s.scored) for s in splits]
    return SplitStudy(
        splits, name=whole.name, fingerprint=whole.fingerprint(), design=design
    )


def split_in_halves(study: Study, masks: Any) -> list[Split]:
    """Return two splits: each half aligns once, and is scored once."""
    first, second = (
        Study((s.select(m) for s, m in zip(study, rows, strict=True)), study.name)
        for rows in masks
    )
    return [Split(first, second), Split(second, first)]


def refuse_aligned(study: Iterable[Subject]) -> None:
    """Refuse samples that took part in the alignment that made their features.

    Their labels, or ids, have shaped the features: even noise would score near 100 %.
    """
    for subject in study:
        if subject.aligned is not None and np.any(subject.aligned):
            raise InputError(
                f"{np.count_nonzero(subject.aligned)} of {subject.n_samples} samples "
                f"of subject {subject.id!r} took part in the alignment; scoring them "
                "would be circular (even noise scores near 100 %). Score other samples "
                "than those that align: a study as it was before it was transformed, "
                "or subject.select(~subject.aligned)."
            )


def _refuse_copies(study: Study) -> None:
    """Refuse a subject, or a run, that is there twice: its copy would train for it."""
    of_subjects: dict[bytes, str] = {}
    for subject in study:
        step = max(1, subject.n_voxels // 16)  # some voxels tell; no need to read all
        probe = np.ascontiguousarray(subject.samples[:, ::step])
        runs = np.zeros(0, int) if subject.runs is None else np.asarray(subject.runs)
        parts: Any = [(of_subjects, f"subject {subject.id!r}", probe)]
        of_runs: dict[bytes, str] = {}
        for run in np.unique(runs).tolist():
            name = f"run {run!r} of subject {subject.id!r}"
            parts.append((of_runs, name, probe[runs == run]))
        for known, name, part in parts:
            if (part == part[:1]).all():
                continue  # nothing that could be told from another
            before = known.setdefault(part.tobytes(), name)
            if before != name:
                raise InputError(
                    f"The samples of {before} and {name} are the same, so scores would "
                    "be too good. Check which files were read."
                )


def subject_folds(n_subjects: int, leave_out: int) -> list[list[int]]:
    """Leave out consecutive groups of subjects; the last may be smaller."""
    check_int("leave_out", leave_out, minimum=1, owner="the evaluation")
    if leave_out >= n_subjects:
        raise InputError(
            f"leave_out={leave_out} leaves no subject to train on; the study has "
            f"{n_subjects}."
        )
    everyone = list(range(n_subjects))
    return [everyone[i : i + leave_out] for i in everyone[::leave_out]]


def as_study(study: Any, y: Any = None, *, keep_labels: bool = False) -> Study:
    """Return a Study from a Study or lists; y replaces its labels.

    Where no value of y occurs twice in any subject they are stimulus ids, which replace
    its stimuli (and, with `keep_labels`, may still be categories as well).
    """
    if not isinstance(study, Study):
        subjects = []
        entries = check_list_of_subjects(study, owner="The evaluation")
        for i, entry in enumerate(entries):
            if isinstance(entry, NamedSamples):
                entry = Subject(entry.id, entry.data())
            known = isinstance(entry, Subject)
            subjects.append(entry if known else Subject(str(i), entry))
        study = Study(subjects)
    if y is None:
        return study
    labels = labels_per_subject(list(study), y, owner="the evaluation")
    pairs = list(zip(study, labels or [None] * len(study), strict=True))
    labelled = Study((s._replace(labels=known) for s, known in pairs), study.name)
    values = [[] if s.labels is None else s.labels.tolist() for s in labelled]
    given = [[v for v in own if v is not None] for own in values]
    if not all(len(own) > 1 and len(set(own)) == len(own) for own in given):
        return labelled
    base = labelled if keep_labels else study
    with_ids = zip(base, (ids for _, ids in pairs), strict=True)
    return Study((s._replace(stimuli=ids) for s, ids in with_ids), study.name)


def _in_memory(study: Study) -> Study:
    """Read the subjects that wait in files; arrays and memory maps stay as they are."""
    return study.map(lambda s: s._replace(samples=s.data()) if s.is_lazy else s)


Masks = list[NDArray[np.bool_]]


def half_masks(
    study: Study, halves: Any, block: int | None = None, border: int = 0
) -> tuple[Masks, Masks]:
    """Return which samples of all subjects are in the first half, and in the second."""
    if isinstance(halves, str):
        known = ("category", "run", "film", "time")
        if halves not in known:
            raise InputError(
                "halves must be 'category', 'run', 'film', 'time' or one boolean mask "
                f"per subject; got {halves!r}."
            )
        gaps = halves == "category" and not study.categories and _differ(study)
        if halves in ("film", "time") or gaps or block is not None or border:
            return _halves_of_clock(study, halves, block, border)
        masks = study._first_halves(halves)
        return masks, [~mask for mask in masks]
    given = check_list_of_subjects(halves, owner="halves", minimum=1)
    masks = [np.asarray(mask) for mask in given]
    if len(masks) != len(study):
        raise InputError(f"halves has {len(masks)} masks for {len(study)} subjects.")
    for subject, mask in zip(study, masks, strict=True):
        n = subject.n_samples
        if mask.dtype != bool or mask.shape != (n,) or not 0 < mask.sum() < n:
            raise InputError(
                f"The mask of subject {subject.id!r} must hold {n} booleans, True for "
                f"the first half; got {mask.dtype} of shape {mask.shape}, "
                f"{np.count_nonzero(mask)} of them True."
            )
    return masks, [~mask for mask in masks]


def _differ(study: Study) -> bool:
    """Whether all subjects have stimulus ids, but not the same in the same rows."""
    ids: list[Any] = [s.stimuli for s in study]
    if any(own is None for own in ids):
        return False
    return not all(np.array_equal(own, ids[0]) for own in ids)


def _halves_of_clock(
    study: Study, halves: str, block: int | None, border: int
) -> tuple[Masks, Masks]:
    """Divide by films, or by blocks of time with a border, alike for all subjects."""
    check_int("border", border, minimum=0, owner="split_study")
    if halves == "run" or (halves == "category" and study.categories):
        raise InputError("block and border divide time: use them with halves='time'.")
    known = all(s.stimuli is not None for s in study)
    if halves == "film" and not known:
        raise InputError(
            "halves='film' needs stimulus ids that name films, such as 'film@12', for "
            "the samples of all subjects."
        )
    ids: list[Any] = [np.arange(s.n_samples) for s in study]
    if known and (_differ(study) or halves == "film"):
        ids = [np.asarray(s.stimuli, object) for s in study]
    clock = timeline([own.tolist() for own in ids], study.ids)
    refuse_strangers(clock.seen, ids, study.ids)
    at = np.arange(clock.films.size)
    if halves == "film":
        if block is not None:
            raise InputError("block divides time: use it with halves='time'.")
        if len(clock.names) < 2:
            raise InputError(
                f"halves='film' needs at least two films; the ids name "
                f"{clock.names}. Use halves='time'."
            )
        half = clock.films >= (len(clock.names) + 1) // 2
    else:
        size = -(-at.size // 2) if block is None else block
        check_int("block", size, minimum=1, owner="split_study")
        half = (at // size) % 2 == 1
    near = np.zeros(at.size, bool)
    for start in np.flatnonzero(np.diff(half)) + 1:
        near[start : start + border] = True
    masks = [(half == side) & ~near for side in (False, True)]
    for side, name in ((0, "first"), (1, "second")):
        for subject, places in zip(study, clock.places, strict=True):
            if not masks[side][places[places >= 0]].any():
                raise InputError(
                    f"Subject {subject.id!r} saw nothing of the {name} half of the "
                    "film. Divide it into shorter blocks (halves='time', block=...), "
                    "or leave this subject out."
                )
    first, second = (
        [np.where(places >= 0, mask[places], False) for places in clock.places]
        for mask in masks
    )
    return first, second


def _aligning_parts(study: Study, align: Sequence[Any], *, named: bool) -> list[Split]:
    """Return splits with separate samples to align with.

    Scored samples that are among these are marked as aligned.
    """
    if isinstance(align, Study) or not isinstance(align, (list, tuple)) or not align:
        raise TypeError(
            "align takes a list with one entry per part, each a Study or a list of "
            "arrays: align=[movie] or align=[third1, third2, third3]."
        )
    parts = []
    for number, entry in enumerate(align):
        aligning = _in_memory(as_study(entry))
        ids = named and isinstance(entry, Study)  # else subjects are counted
        has, wanted = (
            [(s.id if ids else i, s.n_voxels) for i, s in enumerate(each)]
            for each in (aligning, study)
        )
        for own, known in zip_longest(has, wanted):
            if own != known:
                raise InputError(
                    f"align[{number}] has other subjects or voxels than the study: "
                    f"{own} where that has {known} (subject, number of voxels)."
                )
        refuse_aligned(aligning)
        scored_before = []
        for a, s in zip(aligning, study, strict=True):
            scored, aligns = (sample_signatures(x.samples) for x in (s, a))
            # empty samples are alike and tell nothing
            shared = same_samples(scored, aligns) & scored.any(axis=1)
            scored_before.append(s._replace(aligned=shared) if shared.any() else s)
        same = all(a is b for a, b in zip(scored_before, study, strict=True))
        parts.append(Split(aligning, study if same else Study(scored_before)))
    return parts


def match_study(study: Study, how: str) -> Study:
    """Make rows correspond; samples are averaged or chosen, in order.

    What was dropped is in the record of the study that comes back.
    """
    check_option("match", how, HOW, owner="the evaluation")
    stimuli = [s.stimuli for s in study]
    by_stimulus = how == "intersect" and all(s is not None for s in stimuli)
    y = stimuli if by_stimulus else [s.labels for s in study]
    if any(known is None for known in y):
        raise InputError(
            f"match={how!r} needs the categories of all aligning samples; subject "
            f"{study.ids[[k is None for k in y].index(True)]!r} has none."
        )
    rows = [np.arange(s.n_samples)[:, None] for s in study]  # suffice to choose
    found = match_samples(study if how == "average" else rows, y, how)
    chosen = zip(study, found.X, found.y or y, found.kept, strict=True)
    subjects = [
        Subject(s.id, x, labels=known, space=s.space)
        if how == "average"
        else s.select(kept)
        for s, x, known, kept in chosen
    ]
    had, used = [s.n_samples for s in study], [len(kept) for kept in found.kept]
    dropped = {id: n - m for id, n, m in zip(study.ids, had, used, strict=True)}
    told = {"how": how, "had": sum(had), "used": sum(used), "dropped": dropped}
    return Study(subjects, study.name, {**(study.record or {}), "match": told})
