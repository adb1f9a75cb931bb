"""How much aligning data of their own people need: scores against its amount.

People are left out in turn. The others align with one half of their samples; those left
out join with the first part of theirs, or, where the aligner has a map that all share,
with none, and are scored on the other half.
"""

import warnings
from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import chain
from typing import Any

import numpy as np

from brainweave._core.arrays import to_numpy
from brainweave._core.exceptions import BrainweaveError, InputError
from brainweave._core.validation import check_list_option
from brainweave._core.workers import shown_progress
from brainweave.evaluation.evaluate import align_folds, check_scored, join_with
from brainweave.evaluation.measures import (
    AlignedFold,
    Classification,
    ScoringContext,
    choose_measure,
    copy_with_seed,
)
from brainweave.evaluation.results import LearningCurve, chance_level
from brainweave.evaluation.splits import SplitStudy, split_study, subject_folds
from brainweave.persistence.codec import plain
from brainweave.study.provenance import volume_seconds
from brainweave.study.shared import shared_map_of

FRACTIONS = (0, 1 / 8, 1 / 4, 1 / 2, 1)


def learning_curve(
    aligner: Any,
    study: Any,
    y: Any = None,
    *,
    fractions: Sequence[float] = FRACTIONS,
    measure: Any = None,
    halves: Any = "category",
    leave_out: int = 1,
    random_state: int | None = None,
    n_jobs: int | None = None,
    progress: Any = None,
    **options: Any,
) -> LearningCurve:
    """Score left-out subjects as a function of the amount of their aligning data.

    Parameters
    ----------
    aligner : aligner, or mapping of names to aligners
        One method, or several by name: ``{"GDM": GDM(), "SRM": SRM()}``.
    study, y : various
        As in :func:`brainweave.between_subject_classification`.
    fractions : sequence of float in [0, 1]
        Shares of the aligning half that left-out subjects use, its first samples. At
        zero they have no aligning data and are mapped by ``shared_map_``, if the
        aligner has one.
    measure : {"classification", "matching", "reconstruction", "isc"}, optional
        As in :func:`brainweave.score_alignment`.
    halves : various
        As in :func:`brainweave.between_subject_classification`.
    leave_out : int, default=1
        Number of subjects that are left out at a time.
    random_state, n_jobs, progress : various
        As in :func:`brainweave.between_subject_classification`.
    **options : various
        The parameters of the measure, such as `classifier` or `window`.

    Returns
    -------
    LearningCurve
        Amounts that are too small for a subject are left out; ``notes`` explain why.

    Examples
    --------
    >>> from brainweave import GDM
    >>> rng = np.random.default_rng(0)
    >>> patterns, y = rng.normal(size=(3, 20)), [[0, 1, 2] * 8] * 5
    >>> X = [patterns[l] + 0.3 * rng.normal(size=(24, 20)) for l in y]
    >>> curve = learning_curve(GDM(2, place_shrinkage=0.1), X, y, fractions=(0, 0.5, 1))
    >>> curve.to_frame()[["fraction", "samples", "mean", "n_subjects"]]
       fraction  samples  mean  n_subjects
    0       0.0        0   1.0           5
    1       0.5        6   1.0           5
    2       1.0       12   1.0           5
    """
    given = check_list_option("fractions", fractions, "learning_curve")
    amounts = sorted({float(f) for f in given})
    if not amounts or not 0 <= amounts[0] <= amounts[-1] <= 1:
        raise InputError(f"fractions must lie between 0 and 1; got {given}.")
    split = split_study(study, y, halves=halves)
    scorer: Any = choose_measure(measure, split.categories, **options)
    check_scored(scorer, split)
    seconds = volume_seconds(getattr(study, "record", None))
    several = isinstance(aligner, Mapping) and aligner
    named = aligner if several else {type(aligner).__name__: aligner}
    context = ScoringContext(0, random_state, n_jobs)
    scores: list[tuple[Any, ...]] = []
    records, notes, spread = [], [], set()
    n_folds = len(split.splits) * len(subject_folds(split.n_subjects, leave_out))
    with shown_progress(progress, n_folds * len(named), "learning curve") as tick:
        for name, model in named.items():
            own: list[tuple[Any, ...]] = []
            left = set(amounts)
            seeded = copy_with_seed(model, random_state)
            batches = align_folds(seeded, split, leave_out=leave_out, n_jobs=n_jobs)
            for fold in chain.from_iterable(batches):
                for amount in sorted(left):
                    try:
                        part, sizes = _with_part(fold, model, split, amount)
                    except BrainweaveError as error:
                        left.remove(amount)  # a mean over some people would mislead
                        share = f"{amount:.3g} of the aligning data"
                        notes.append(f"{name} has no score at {share}: {error}")
                        continue
                    ((_, record),) = scorer.folds([part], split, context)
                    records.append({**record, "half": fold.half})
                    found = zip(fold.test, record["subject_scores"], sizes, strict=True)
                    own += [(name, amount, *person) for person in found]
                    if record.get("standardized") is False:
                        spread.add(name)
                tick()
            scores += [row for row in own if row[1] in left]
    if not scores:
        raise InputError(f"No amount could be scored. {' '.join(notes)}")
    if spread:
        who = ", ".join(sorted(spread))
        notes.append(f"Matched by the spread of their features: {who}.")
    design = {**split.design, "leave_out": leave_out, "t_r": seconds}
    return LearningCurve(
        points=_points(scores, seconds),
        score="accuracy"
        if isinstance(scorer, Classification)
        else getattr(scorer, "score", scorer.name),
        chance=chance_level(records),
        notes=notes,
        design={**design, **plain(vars(scorer), other=str, arrays=False)},
    )


def _points(scores: list[tuple[Any, ...]], t_r: float | None) -> list[dict[str, Any]]:
    """Return the points of curves: means over people, of each one's halves."""
    import pandas as pd

    of_person = ["method", "fraction", "subject"]
    table = pd.DataFrame(scores, columns=[*of_person, "score", "samples"])
    people = table.astype({"score": float}).groupby(of_person, sort=False).mean()
    points = people.groupby(of_person[:2], sort=False).agg(
        samples=("samples", "mean"),
        mean=("score", "mean"),
        se=("score", "sem"),
        n_subjects=("score", "count"),
    )
    minutes = None if t_r is None else points["samples"] * t_r / 60
    points.insert(1, "minutes", minutes)
    points["samples"] = points["samples"].round().astype(int)
    return [dict(row) for row in points.reset_index().to_dict("records")]


def _with_part(
    fold: AlignedFold, aligner: Any, split: SplitStudy, amount: float
) -> tuple[AlignedFold, list[int]]:
    """Return a fold whose left-out people joined with a part, and sizes of parts."""
    half = split.splits[fold.half].for_aligner(aligner)
    aligning = [half.aligning.subjects[i] for i in fold.test]
    if amount == 1:
        return fold, [s.n_samples for s in aligning]
    features, maps, sizes = list(fold.features), list(fold.maps), []
    for i, own in zip(fold.test, aligning, strict=True):
        rows, scored = np.arange(own.n_samples), half.scored.subjects[i]
        rows = rows[: int(np.ceil(amount * rows.size))]
        if not rows.size:
            maps[i] = shared_map_of(fold.aligner).map_for(scored)
        else:
            with warnings.catch_warnings():
                # little is known by design; the join with all has warned of the rest
                warnings.simplefilter("ignore", UserWarning)
                maps[i] = join_with(
                    aligner, fold.aligner, half, fold.train, i=i, rows=rows
                )
        features[i] = to_numpy(maps[i].transform(scored.samples))
        sizes.append(rows.size)
    return replace(fold, features=features, maps=maps), sizes
