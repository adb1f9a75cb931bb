"""How a study is divided: halves that align and are scored, and subjects left out."""

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from brainweave._core.exceptions import InputError
from brainweave._core.labels import check_labels_overlap, sort_labels
from brainweave._core.validation import (
    NamedSamples,
    check_int,
    check_list_of_subjects,
    check_option,
    labels_per_subject,
)
from brainweave.basis.signatures import same_samples, sample_signatures
from brainweave.evaluation.shared_bases import Part
from brainweave.study.provenance import scaled_within
from brainweave.study.samples import HOW, match_samples
from brainweave.study.study import Study, Subject

__all__ = [
    "SplitStudy",
    "as_study",
    "half_masks",
    "match_study",
    "refuse_aligned",
    "select_samples",
    "split_study",
    "subject_folds",
]


class SplitStudy:
    """A study divided for evaluation, with the work that evaluations share.

    Made by :func:`split_study`; every function of this package that takes a study takes
    this instead, so that several methods, energies or protocols share one pass over the
    voxels.

    Attributes
    ----------
    parts : list of Part
        Each aligns with some samples and scores others.
    ids : list of str
        The subjects.
    categories : list
        Categories of the scored samples, sorted.
    name : str
        Name of the study.
    fingerprint : str or None
        Of the study before it was divided; None if it is not known.
    design : dict of str to Any
        How it was divided: ``halves`` and ``match``.
    """

    def __init__(
        self,
        parts: Sequence[Part],
        *,
        name: str = "",
        fingerprint: str | None = None,
        design: dict[str, Any] | None = None,
    ) -> None:
        self.parts = list(parts)
        self.name, self.fingerprint = name, fingerprint
        self.design = dict(design or {})
        self.ids = self.parts[0].scored.ids
        found = {c for part in self.parts for c in part.scored.categories}
        self.categories = sort_labels(found)

    @property
    def n_subjects(self) -> int:
        """Number of subjects."""
        return len(self.ids)

    @property
    def shape(self) -> tuple[int, int]:
        """Numbers of parts and of subjects."""
        return len(self.parts), len(self.ids)

    def about(self) -> dict[str, Any]:
        """Return what results say of the study."""
        return {
            "name": self.name,
            "fingerprint": self.fingerprint,
            "subjects": list(self.ids),
            "n_aligning": [[s.n_samples for s in p.aligning] for p in self.parts],
            "n_scored": [[s.n_samples for s in p.scored] for p in self.parts],
        }

    def with_parts(self, parts: Sequence[Part]) -> "SplitStudy":
        """Return the same study with other parts."""
        return SplitStudy(
            parts, name=self.name, fingerprint=self.fingerprint, design=self.design
        )

    def clear(self) -> None:
        """Forget all bases and coordinates, to free their memory."""
        for part in self.parts:
            part.clear()

    def __repr__(self) -> str:
        return (
            f"SplitStudy({self.n_subjects} subjects, {len(self.parts)} parts, "
            f"{len(self.categories)} categories)"
        )


def split_study(
    study: Any,
    y: Any = None,
    *,
    halves: Any = "category",
    align: Sequence[Any] | None = None,
    match: str | None = None,
) -> SplitStudy:
    """Divide a study into samples that align and samples that are scored.

    Parameters
    ----------
    study : Study, or list of arrays of shape (n_samples_i, n_voxels_i)
        Samples of each subject. Files are read here, once.
    y : list of array-like, optional
        Categories; by default those of the study.
    halves : {"category", "run"} or list of boolean arrays, default="category"
        "category": the first half of the samples of each category, against the rest;
        "run": the first half of the runs, against the rest (see
        :meth:`brainweave.Study.split_halves`); or one mask per subject, True for the
        first half. Each half aligns once and is scored once.
    align : list of Study, or of lists of arrays, optional
        Separate samples of the same subjects to align with, such as three thirds of a
        movie; each aligns once, and all samples of `study` are scored. `halves` is then
        not used.
    match : {"truncate", "average", "intersect"}, optional
        Make the aligning samples correspond row by row, for methods that need them
        locked in time; see :func:`brainweave.match_samples`. "intersect" goes by the
        stimuli if all subjects have them. By default samples stay as they are.

    Returns
    -------
    SplitStudy

    Examples
    --------
    >>> X = [np.random.default_rng(i).normal(size=(8, 30)) for i in range(3)]
    >>> split = split_study(X, [list("aabbaabb")] * 3)
    >>> split
    SplitStudy(3 subjects, 2 parts, 2 categories)
    >>> split.parts[0].aligning[0].labels.tolist()
    ['a', 'a', 'b', 'b']
    """
    if isinstance(study, SplitStudy):
        if any(given is not None for given in (y, align, match)):
            raise InputError(
                "This study is split already: give y, align and match to split_study."
            )
        return study
    whole = _in_memory(as_study(study, y))
    refuse_aligned(whole)
    _refuse_copies(whole)
    design: dict[str, Any] = {"match": match}
    if align is not None:
        design["halves"] = "align"
        pairs = _pairs_with_separate_samples(
            whole, align, named=isinstance(study, Study)
        )
    else:
        design["halves"] = halves if isinstance(halves, str) else "masks"
        masks = half_masks(whole, halves)
        first, second = (
            select_samples(whole, masks),
            select_samples(whole, [~m for m in masks]),
        )
        pairs = [("first half", first, second), ("second half", second, first)]
    parts = [
        Part(
            aligning if match is None else match_study(aligning, match),
            scored,
            name=name,
        )
        for name, aligning, scored in pairs
    ]
    if align is None and (shared := _scaled_together(whole, masks)):
        design["standardised_together"] = shared
    for each in [whole] if align is None else [whole, *(a for _, a, _ in pairs)]:
        names = [repr(id) for id in each.ids]
        check_labels_overlap([s.labels for s in each], names)
    return SplitStudy(
        parts, name=whole.name, fingerprint=whole.fingerprint(), design=design
    )


def _scaled_together(study: Study, masks: Sequence[Any]) -> str | None:
    """Name what was standardised as one and is now divided: "all", "run" or nothing."""
    within = scaled_within(study.record)
    if within != "run":
        return within
    for subject, mask in zip(study, masks, strict=True):
        runs = subject.runs
        if runs is None or set(runs[mask].tolist()) & set(runs[~mask].tolist()):
            return within
    return None


def refuse_aligned(study: Iterable[Subject]) -> None:
    """Refuse samples that took part in the alignment that made their features.

    Their labels, or ids, have shaped the features: even noise would score near 100 %.
    """
    for subject in study:
        took_part = subject.aligned
        if took_part is None or not np.any(took_part):
            continue
        raise InputError(
            f"{np.count_nonzero(took_part)} of {subject.n_samples} samples of subject "
            f"{subject.id!r} took part, with what is known of them, in the alignment "
            "that made these features; scoring them would be circular (even noise "
            "scores near 100 %). Score the study as it was before it was transformed: "
            "the evaluation aligns with one half and scores the other by itself. Or "
            "keep only samples that did not align: subject.select(~subject.aligned)."
        )


def _refuse_copies(study: Study) -> None:
    """Refuse a subject, or a run, that is there twice: its copy would train for it."""
    of_subjects: dict[bytes, str] = {}
    for subject in study:
        step = max(1, subject.n_voxels // 16)  # some voxels tell; no need to read all
        probe = np.ascontiguousarray(subject.samples[:, ::step])
        runs = np.zeros(0, int) if subject.runs is None else np.asarray(subject.runs)
        parts = {f"run {run!r}": probe[runs == run] for run in np.unique(runs).tolist()}
        of_runs: dict[bytes, str] = {}
        for known, name, part in (
            (of_subjects, f"subject {subject.id!r}", probe),
            *((of_runs, name, part) for name, part in parts.items()),
        ):
            if len(part) < 2 or (part == part[0]).all():
                continue  # nothing that could be told from another
            before = known.setdefault(part.tobytes(), name)
            if before != name:
                where = "" if known is of_subjects else f" of subject {subject.id!r}"
                raise InputError(
                    f"The samples of {before} and {name}{where} are the same ones, so "
                    "scores would be too good. Leave one of them out, or check which "
                    "files were read."
                )


def subject_folds(n_subjects: int, leave_out: int) -> list[list[int]]:
    """Leave out consecutive groups of subjects; the last may be smaller.

    Examples
    --------
    >>> subject_folds(5, 2)
    [[0, 1], [2, 3], [4]]
    """
    check_int("leave_out", leave_out, minimum=1, owner="the evaluation")
    if leave_out >= n_subjects:
        raise InputError(
            f"leave_out={leave_out} leaves no subject to train on; the study has "
            f"{n_subjects}."
        )
    return [
        list(range(start, min(start + leave_out, n_subjects)))
        for start in range(0, n_subjects, leave_out)
    ]


def as_study(study: Any, y: Any = None) -> Study:
    """Return a Study from a Study or lists; y replaces its labels."""
    if not isinstance(study, Study):
        entries = check_list_of_subjects(study, owner="The evaluation")
        study = Study(
            s
            if isinstance(s, Subject)
            else Subject(s.id, s.data())
            if isinstance(s, NamedSamples)
            else Subject(str(i), s)
            for i, s in enumerate(entries)
        )
    if y is None:
        return study
    labels = labels_per_subject(list(study), y, owner="the evaluation")
    pairs = zip(study, labels or [None] * len(study), strict=True)
    return Study((s._replace(labels=known) for s, known in pairs), study.name)


def _in_memory(study: Study) -> Study:
    """Read the subjects that wait in files; arrays and memory maps stay as they are."""
    return study.map(lambda s: s._replace(samples=s.data()) if s.is_lazy else s)


def select_samples(study: Study, rows: Iterable[Any]) -> Study:
    """Return some samples of every subject, by masks or row numbers."""
    chosen = (s.select(own) for s, own in zip(study, rows, strict=True))
    return Study(chosen, study.name)


def half_masks(study: Study, halves: Any) -> list[NDArray[np.bool_]]:
    """Return which samples of every subject are of the first half."""
    if not isinstance(halves, str):
        return _given_masks(study, halves)
    if halves not in ("category", "run"):
        raise InputError(
            "halves must be 'category', 'run' or one boolean mask per subject; got "
            f"{halves!r}."
        )
    # the study splits row numbers in place of samples, which may be large or on a GPU
    rows = study.map(
        lambda s: s._replace(samples=np.arange(s.n_samples)[:, None], space=None)
    )
    by: Any = halves
    first, _ = rows.split_halves(by)
    return [
        np.isin(np.arange(s.n_samples), np.ravel(kept.data()))
        for s, kept in zip(study, first, strict=True)
    ]


def _given_masks(study: Study, masks: Any) -> list[NDArray[np.bool_]]:
    given = check_list_of_subjects(masks, owner="halves", minimum=1)
    if len(given) != len(study):
        raise InputError(
            f"halves has {len(given)} masks for {len(study)} subjects. Give one "
            "boolean mask per subject, True for the first half."
        )
    checked = []
    for subject, mask in zip(study, given, strict=True):
        array = np.asarray(mask)
        if array.dtype != bool or array.shape != (subject.n_samples,):
            raise InputError(
                f"The mask of subject {subject.id!r} must hold {subject.n_samples} "
                f"booleans; got {array.dtype} of shape {array.shape}."
            )
        if array.all() or not array.any():
            raise InputError(
                f"The mask of subject {subject.id!r} puts all its {len(array)} samples "
                "into one half."
            )
        checked.append(array)
    return checked


def _pairs_with_separate_samples(
    study: Study, align: Sequence[Any], *, named: bool
) -> list[tuple[str, Study, Study]]:
    if isinstance(align, Study) or not isinstance(align, (list, tuple)) or not align:
        raise TypeError(
            "align takes a list with one entry per part, each a Study or a list of "
            "arrays: align=[movie] or align=[third1, third2, third3]."
        )
    parts: list[tuple[str, Study, Study]] = []
    for number, entry in enumerate(align):
        aligning = _in_memory(as_study(entry))
        name = aligning.name or f"part {number + 1}"
        if len(aligning) != len(study):
            raise InputError(
                f"align[{number}] has {len(aligning)} subjects; the study has "
                f"{len(study)}. Give the same subjects in the same order."
            )
        for a, s in zip(aligning, study, strict=True):
            other = named and isinstance(entry, Study) and a.id != s.id
            if other or a.n_voxels != s.n_voxels:
                raise InputError(
                    f"align[{number}] has subject {a.id!r} with {a.n_voxels} voxels "
                    f"where the study has {s.id!r} with {s.n_voxels}. Give the same "
                    "subjects and voxels in the same order."
                )
        refuse_aligned(aligning)
        _refuse_overlap(aligning, study, number)
        parts.append((name, aligning, study))
    return parts


def _refuse_overlap(aligning: Study, study: Study, number: int) -> None:
    """Refuse to align with samples that are scored: noise would score 100 %."""
    for a, s in zip(aligning, study, strict=True):
        of_both = [sample_signatures(x.samples) for x in (a, s)]
        blank = ~of_both[1].any(axis=1)  # empty samples are alike and tell nothing
        shared = same_samples(of_both[1], of_both[0]) & ~blank
        if shared.any():
            raise InputError(
                f"{np.count_nonzero(shared)} of the {s.n_samples} samples of subject "
                f"{s.id!r} are in align[{number}] too; scoring samples that aligned "
                "would be circular (even noise scores near 100 %). Align with other "
                "samples, or leave align out and let halves divide the study."
            )


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
    average = how == "average"
    # rows suffice to choose among samples; a mean needs the samples themselves
    found = match_samples(
        [s.data() if s.is_lazy else s.samples for s in study]
        if average
        else [np.arange(s.n_samples)[:, None] for s in study],
        y,
        how,
    )
    if average:
        averaged = zip(study, found.X, found.y or y, strict=True)
        subjects = [Subject(s.id, x, labels=k, space=s.space) for s, x, k in averaged]
    else:
        subjects = list(select_samples(study, found.kept))
    dropped = found.summary.dropped.sum(axis=1)
    told = {
        "how": how,
        "had": int(found.summary.had.sum()),
        "used": int(found.summary.used.sum()),
        "dropped": {s.id: int(n) for s, n in zip(study, dropped, strict=True)},
    }
    return Study(subjects, study.name, {**(study.record or {}), "match": told})
