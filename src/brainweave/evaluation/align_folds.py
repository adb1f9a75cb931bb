"""Align a split study, fold by fold, under one of two protocols.

"held-out": the template is learned without the test subjects, who then join it with
their own aligning samples (``fit_new_subject``). "joint", the paper's: all take part in
the fit with their aligning samples, so that one fit serves all folds of a part.
Labels of scored samples are never used; what is known of aligning samples is.
"""

import re
import time
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np
from sklearn.base import clone

from brainweave._core.arrays import Floats
from brainweave._core.exceptions import BrainweaveError, InputError
from brainweave._core.validation import check_option
from brainweave.aligners.base import BaseAligner, seeded_copy
from brainweave.aligners.piecewise.piecewise import PER_SUBJECT
from brainweave.evaluation.shared_bases import Part
from brainweave.evaluation.splits import SplitStudy, subject_folds
from brainweave.study.study import Subject

__all__ = [
    "PROTOCOLS",
    "AlignedFold",
    "Clock",
    "align_folds",
    "as_seed",
    "copy_with_seed",
    "takes_bases",
]

PROTOCOLS = ("joint", "held-out")


class Clock:
    """Seconds spent in each stage."""

    def __init__(self) -> None:
        self.seconds: dict[str, float] = {}

    @contextmanager
    def __call__(self, stage: str) -> Iterator[None]:
        """Add the time that passes inside to a stage."""
        start = time.perf_counter()
        try:
            yield
        finally:
            spent = time.perf_counter() - start
            self.seconds[stage] = self.seconds.get(stage, 0.0) + spent


@dataclass(frozen=True)
class AlignedFold:
    """What one fold is scored on."""

    part: int
    fold: int
    test: list[int]
    train: list[int]
    features: list[Floats]  # shared features of every subject's scored samples
    maps: list[Any]  # one per subject
    aligner: Any  # fitted


def align_folds(
    aligner: Any,
    split: SplitStudy,
    *,
    leave_out: int = 1,
    protocol: str = "held-out",
    only: Collection[tuple[int, int]] | None = None,
    n_jobs: int | None = None,
    clock: Clock | None = None,
) -> Iterator[list[AlignedFold]]:
    """Fit an aligner for every fold and map all scored samples.

    With `only`, pairs of part and fold, nothing is done for the others.

    Yields
    ------
    list of AlignedFold
        The folds that share one fit: all of a part under "joint", one under "held-out".
    """
    check_option("protocol", protocol, PROTOCOLS, owner="the evaluation")
    clock = Clock() if clock is None else clock
    n = split.n_subjects
    folds = list(enumerate(subject_folds(n, leave_out)))
    if protocol == "held-out" and n - leave_out < 2:
        raise InputError(
            f"protocol='held-out' with leave_out={leave_out} leaves {n - leave_out} of "
            f"{n} subjects to make a template; at least 2 are needed. Leave fewer out, "
            "or pass protocol='joint', which lets test subjects take part in the "
            "alignment and favours them."
        )
    if protocol == "held-out" and not hasattr(aligner, "fit_new_subject"):
        raise InputError(
            f"{type(aligner).__name__} has no fit_new_subject, by which a subject that "
            "is held out joins the others. Add it, or pass protocol='joint', which "
            "lets test subjects take part in the alignment and favours them."
        )
    for number, part in enumerate(split.parts):
        chosen = [fold for fold in folds if only is None or (number, fold[0]) in only]
        if not chosen:
            continue
        part.check_locked(aligner)
        for batch in [chosen] if protocol == "joint" else [[fold] for fold in chosen]:
            joining = [] if protocol == "joint" else batch[0][1]
            found = _align(aligner, part, joining, n_jobs=n_jobs, clock=clock)
            yield [
                AlignedFold(
                    number, fold, test, [i for i in range(n) if i not in test], *found
                )
                for fold, test in batch
            ]


def _align(
    aligner: Any, part: Part, joining: list[int], *, n_jobs: int | None, clock: Clock
) -> tuple[list[Floats], list[Any], Any]:
    """Align the subjects of a part, of whom some join when the template is finished.

    Return the features of everyone's scored samples, the maps, and the fitted aligner.
    """
    n = part.n_subjects
    who = [i for i in range(n) if i not in joining]
    fitted, y = _for_subjects(aligner, who, n), part.y_for(aligner)
    X = _inputs(aligner, part, who, n_jobs=n_jobs, clock=clock)
    with clock("align"), _errors_by_subject_id(part, who):
        fitted.fit(X, None if y is None else [y[i] for i in who])
    found = dict(zip(who, fitted.maps_, strict=True))
    if joining:
        new = _inputs(aligner, part, joining, n_jobs=n_jobs, clock=clock)
        with clock("join"):
            for i, x in zip(joining, new, strict=True):
                own_y = None if y is None else _known_to(y, who, y[i])
                places = _voxel_places(aligner, i, n)
                with _errors_by_subject_id(part, [i], new=True):
                    found[i] = fitted.fit_new_subject(x, own_y, **places)
    maps = [found[i] for i in range(n)]
    with clock("map"):
        return part.map_scored(maps, n_jobs=n_jobs), maps, fitted


def _known_to(y: list[Any], who: list[int], own: Any) -> Any:
    """Forget the labels, or ids, of a newcomer that no other has: they join nothing."""
    table = np.array(own, dtype=object)
    columns = table.reshape(len(table), -1)  # one, or labels and ids
    for number, column in enumerate(columns.T):
        others = (np.asarray(y[i], dtype=object).reshape(len(y[i]), -1) for i in who)
        known = {value for other in others for value in other[:, number].tolist()}
        column[[value not in known for value in column.tolist()]] = None
    return table


def _inputs(
    aligner: Any, part: Part, who: list[int], *, n_jobs: int | None, clock: Clock
) -> list[Any]:
    """Return what an aligner is fitted on: bases, subjects, or plain arrays."""
    if takes_bases(aligner):
        with clock("bases"):
            return part.bases_for(aligner, who, n_jobs=n_jobs)
    subjects = [part.aligning.subjects[i] for i in who]
    if not isinstance(aligner, BaseAligner):
        return [s.data() for s in subjects]
    # with the space, which says where voxels lie; other knowledge is passed as y
    return [Subject(s.id, s.samples, runs=s.runs, space=s.space) for s in subjects]


@contextmanager
def _errors_by_subject_id(
    part: Part, who: list[int], *, new: bool = False
) -> Iterator[None]:
    """Replace X[0], X[1], ... in errors by the ids of subjects."""
    ids = part.aligning.ids
    if ids == [str(i) for i in range(len(ids))]:  # arrays, counted
        names = [f"X[{i}]" for i in range(len(ids))]
    else:
        names = [f"sub-{id.removeprefix('sub-')}" for id in ids]
    try:
        yield
    except BrainweaveError as error:
        said = str(error)
        text = re.sub(r"\bX\[(\d+)\]", lambda k: names[who[int(k[1])]], said)
        if new and names[who[0]] not in text:
            text = f"{names[who[0]]}, which joins the others: {said}"
        if text == said:
            raise
        raise type(error)(text) from error


def takes_bases(aligner: Any) -> bool:
    """Whether an aligner works on bases; some cut the brain into pieces themselves."""
    return isinstance(aligner, BaseAligner) and aligner._takes_bases


def _for_subjects(aligner: Any, who: list[int], n_subjects: int) -> Any:
    """Copy an aligner; settings given per subject are cut to these subjects."""
    copy = clone(aligner)
    if not isinstance(copy, BaseAligner):
        return copy
    copy._warns_of_input = False  # said once, of the whole study
    lists = {
        name: [value[i] for i in who]
        for name, value in copy.get_params(deep=True).items()
        if _is_per_subject(name.split("__")[-1], value, n_subjects)
    }
    return copy if len(who) == n_subjects else copy.set_params(**lists)


def _is_per_subject(name: str, value: Any, n_subjects: int) -> bool:
    """Whether a setting has one entry per subject, rather than one for all."""
    if not isinstance(value, list | tuple) or len(value) != n_subjects:
        return False
    if name in PER_SUBJECT:
        return PER_SUBJECT[name](value)
    return name in ("kernel", "kernel_params", "energy")


def _voxel_places(aligner: Any, i: int, n_subjects: int) -> dict[str, Any]:
    """Return where one subject's voxels lie, as settings of a piecewise aligner.

    Only settings that have an entry per subject; others hold for all subjects.
    """
    if not isinstance(aligner, BaseAligner) or takes_bases(aligner):
        return {}
    params = aligner.get_params(deep=False)
    return {
        name: params[name][i]
        for name in PER_SUBJECT
        if _is_per_subject(name, params.get(name), n_subjects)
    }


def copy_with_seed(estimator: Any, random_state: int | None) -> Any:
    """Copy an estimator; what has no random_state of its own gets this one."""
    if isinstance(estimator, type) or not hasattr(estimator, "fit"):
        raise TypeError(
            "The evaluation takes an aligner, and a classifier, as objects such as "
            f"GDM(n_components=10); got {estimator!r}."
        )
    return seeded_copy(estimator, random_state)


def as_seed(random_state: Any) -> int | None:
    """Return a whole number from None, an int, a Generator or a RandomState."""
    if random_state is None or isinstance(random_state, (int, np.integer)):
        return None if random_state is None else int(random_state)
    if isinstance(random_state, np.random.Generator):
        return int(random_state.integers(2**31 - 1))
    if isinstance(random_state, np.random.RandomState):
        return int(random_state.randint(2**31 - 1))
    raise TypeError(
        f"random_state must be None, an integer or a generator; got {random_state!r}."
    )
