"""The one way from a split study to scores: align, fold by fold, and measure.

Whatever scores an alignment comes through here: the functions for users, the search for
settings, and the runner of grids. They differ in who asks, and in where records go.
"""

import time
from collections.abc import Callable, Collection, Iterator
from typing import Any

import numpy as np

from brainweave._progress import shown_progress
from brainweave.evaluation.align_folds import Clock, align_folds, seed_from, seeded
from brainweave.evaluation.fingerprint import plain_settings
from brainweave.evaluation.measures import Measure, Scoring
from brainweave.evaluation.splits import SplitStudy, split_study, subject_folds

__all__ = ["about", "evaluate", "score_folds"]


def score_folds(
    aligner: Any,
    split: SplitStudy,
    measure: Measure,
    *,
    leave_out: int = 1,
    protocol: str = "joint",
    seed: int | None = None,
    only: Collection[tuple[int, int]] | None = None,
    n_jobs: int | None = None,
    clock: Clock | None = None,
    shared: Clock | None = None,
    tick: Callable[[], None] | None = None,
) -> Iterator[dict[str, Any]]:
    """Align and score, fold by fold.

    Parameters
    ----------
    aligner : aligner
        It is copied, not changed.
    split : SplitStudy
        The data.
    measure : Measure
        What folds are scored by.
    leave_out, protocol, only
        As in :func:`brainweave.evaluation.align_folds.align_folds`.
    seed : int, optional
        For all that is random.
    n_jobs : int, optional
        Subjects and folds at the same time; default one per core. With 1 every record
        comes as soon as its fold is scored.
    clock, shared : Clock, optional
        Told of the time that folds take, and of what folds share; one may be both.
    tick : callable, optional
        Called after each step of a fold.

    Yields
    ------
    dict
        A record per fold: ``half``, ``fold``, ``test_subjects``, ``n_components``,
        ``best_params`` (of an aligner that tunes itself), and what was measured.
    """
    clock = Clock() if clock is None else clock
    measure.check(split)
    # once, so that permutations are the same in all folds also without a seed
    draw = int(np.random.SeedSequence(seed).generate_state(1)[0])
    how = Scoring(clock, draw, seed, n_jobs, tick)
    batches = align_folds(
        seeded(aligner, seed),
        split,
        leave_out=leave_out,
        protocol=protocol,
        only=only,
        n_jobs=n_jobs,
        clock=clock if shared is None else shared,
    )
    for batch in batches:
        for fold, found in measure.folds(batch, split, how):
            n_components = getattr(fold.aligner, "n_components_", None)
            yield {
                "half": fold.part,
                "fold": fold.fold,
                "test_subjects": [split.ids[i] for i in fold.test],
                "n_components": None if n_components is None else int(n_components),
                "best_params": getattr(fold.aligner, "best_params_", None),
                **found,
            }


def evaluate(
    aligner: Any,
    study: Any,
    y: Any,
    measure: Measure,
    *,
    split: dict[str, Any],
    leave_out: int,
    protocol: str,
    random_state: Any,
    n_jobs: int | None,
    progress: Any,
) -> tuple[SplitStudy, list[dict[str, Any]], dict[str, Any]]:
    """Split a study, and align and score every fold.

    Parameters
    ----------
    aligner, study, y, leave_out, protocol, random_state, n_jobs, progress
        As in :func:`brainweave.between_subject_classification`.
    measure : Measure
        What folds are scored by.
    split : dict
        Further options of :func:`brainweave.split_study`.

    Returns
    -------
    split : SplitStudy
        What was scored.
    records : list of dict
        One per fold.
    known : dict
        What a result says beside its scores.
    """
    start, clock, seed = time.perf_counter(), Clock(), seed_from(random_state)
    with clock("bases"):
        divided = split_study(study, y, **split)
    folds = subject_folds(divided.n_subjects, leave_out)
    n_steps = len(divided.parts) * len(folds) * measure.n_steps()
    what = f"{type(aligner).__name__}, {protocol}"
    with shown_progress(progress, n_steps, what) as tick:
        records = list(
            score_folds(
                aligner,
                divided,
                measure,
                leave_out=leave_out,
                protocol=protocol,
                seed=seed,
                n_jobs=n_jobs,
                clock=clock,
                tick=tick,
            )
        )
    clock.seconds["total"] = time.perf_counter() - start
    known = about(aligner, divided, measure, leave_out=leave_out, random_state=seed)
    return divided, records, {**known, "protocol": protocol, "seconds": clock.seconds}


def about(
    aligner: Any, split: SplitStudy, measure: Measure, **design: Any
) -> dict[str, Any]:
    """Return what a result says of its aligner, its study and its design."""
    return {
        "method": type(aligner).__name__,
        "settings": plain_settings(aligner),
        "study": split.about(),
        "design": {**split.design, **design, **_settings_of(measure)},
    }


def _settings_of(measure: Measure) -> dict[str, Any]:
    settings = {k: v for k, v in vars(measure).items() if not k.startswith("_")}
    simple = (type(None), bool, int, float, str)
    return {k: v if isinstance(v, simple) else repr(v) for k, v in settings.items()}
