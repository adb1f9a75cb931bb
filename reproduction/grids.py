"""Grids that vary a setting or lose samples, and tables over their folds."""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import lru_cache, partial
from itertools import product
from typing import TYPE_CHECKING, Any

import numpy as np
from sklearn.base import clone

from brainweave._core.exceptions import InputError
from brainweave._core.validation import check_fraction, check_int
from brainweave.evaluation.classifiers import (
    make_classifier,
    p_value,
    prepare_tasks,
    run_task,
)
from brainweave.evaluation.grid import Grid, GridStudy
from brainweave.evaluation.measures import (
    AlignedFold,
    Classification,
    ScoringContext,
    coded_labels,
    copy_with_seed,
)
from brainweave.evaluation.results import GridResult, chance_level
from brainweave.evaluation.splits import Split, SplitStudy
from brainweave.study.samples import drop_samples
from brainweave.study.study import Study

if TYPE_CHECKING:
    import pandas as pd

Record = dict[str, Any]


# -- what varies -----------------------------------------------------------------------


def vary(grid: Grid, name: str, values: Sequence[Any]) -> list[Grid]:
    """Return a grid per value of a setting of all methods; tables tell it apart."""
    return [
        replace(
            grid,
            methods={
                m: clone(a).set_params(**{name: value}) for m, a in grid.methods.items()
            },
            tags={**grid.tags, f"param_{name}": value},
        )
        for value in values
    ]


def with_missing(grid: Grid, shares: Sequence[float], repeats: int = 1) -> list[Grid]:
    """Return a grid per share of the aligning samples to remove, and repetition.

    Repetition r has the seed ``grid.random_state + r``.
    """
    check_int("repeats", repeats, minimum=1, owner="The experiment")
    grids = []
    for share, repeat in product(shares, range(repeats)):
        check_fraction("1 - missing", 1 - share, owner="The experiment")
        source, seed = grid.study, grid.random_state + repeat
        if share:
            source = replace(
                source,
                study=partial(_open_and_drop, source, float(share), seed),
                version=f"{source.identity}, {share} missing, seed {seed}",
            )
        tags = {**grid.tags, "missing": float(share), "repeat": repeat}
        grids.append(replace(grid, study=source, random_state=seed, tags=tags))
    return grids


@lru_cache(maxsize=1)
def _opened(source: GridStudy) -> SplitStudy:
    return source.open()


def _open_and_drop(source: GridStudy, share: float, seed: int) -> SplitStudy:
    return drop_aligning_samples(_opened(source), share, seed)


def drop_aligning_samples(split: SplitStudy, share: float, seed: int) -> SplitStudy:
    """Remove a share of every subject's aligning samples, at random.

    Samples without stimulus ids get their row numbers, so that it stays known which
    belong to the same moment.
    """
    splits = []
    for number, half in enumerate(split.splits):
        with_ids = half.aligning.map(
            lambda s: (
                s._replace(stimuli=np.arange(s.n_samples)) if s.stimuli is None else s
            )
        )
        rows = [np.arange(s.n_samples)[:, None] for s in with_ids]
        drawn = np.random.SeedSequence([seed, number]).generate_state(1)[0]
        kept = drop_samples(rows, fraction=share, random_state=int(drawn)).kept
        chosen = zip(with_ids, kept, strict=True)
        some = Study((s.select(own) for s, own in chosen), with_ids.name)
        splits.append(Split(some, half.scored))
    return SplitStudy(
        splits, name=split.name, fingerprint=split.fingerprint, design=split.design
    )


# -- two classifiers on the same folds -------------------------------------------------


class BothNuSVMs(Classification):
    """The default nu-SVM, and LIBSVM's beside it, whose accuracy is ``beside_score``.

    None where LIBSVM's cannot be trained.

    Parameters
    ----------
    nu : float, default=0.5
        Of both.
    n_permutations : int, default=0
        How often to permute the labels for the default one.
    """

    def __init__(self, nu: float = 0.5, n_permutations: int = 0) -> None:
        super().__init__(make_classifier(None, nu), n_permutations)
        self.beside = make_classifier("nu-svm", nu)

    def folds(
        self, batch: list[AlignedFold], split: SplitStudy, context: ScoringContext
    ) -> Iterator[tuple[AlignedFold, Record]]:
        """Add the score of LIBSVM's nu-SVM to every fold."""
        codes = coded_labels(split, batch[0].half)
        seeded = copy_with_seed(self.beside, context.seed)
        make, beside = prepare_tasks(batch[0].features, codes, split.ids, seeded)
        for fold, record in super().folds(batch, split, context):
            task = make(fold)
            try:
                predicted, _ = run_task(task, beside)
                hits = predicted == np.concatenate(task.test_codes)
                record["beside_score"] = float(np.mean(hits))
            except InputError:  # LIBSVM finds no finite boundary
                record["beside_score"] = None
            yield fold, record


# -- tables ----------------------------------------------------------------------------


def summarise(result: GridResult) -> "pd.DataFrame":
    """Return one row per study, method, protocol, setting and share missing.

    ``mean`` and ``std`` are over folds and repetitions (divided by their number);
    ``p_value`` comes from permutations, if there were any; ``error`` is the first
    reason why a fold failed.
    """
    import pandas as pd

    groups: dict[str, list[Record]] = {}
    for r in result.records:
        columns = {k: r[k] for k in ("study", "method", "protocol")}
        columns |= {"missing": 0.0, **r["tags"], "repeat": None}
        groups.setdefault(repr(columns), []).append(r)
    frame = pd.DataFrame([_summary(records) for records in groups.values()])
    params = sorted(c for c in frame.columns if c.startswith("param_"))
    return frame.sort_values(
        ["study", "method", "protocol", "missing", *params],
        kind="stable",
        key=lambda column: column.map(str) if column.dtype == object else column,
        ignore_index=True,
    )


def _summary(records: list[Record]) -> Record:
    good = [r for r in records if not r["error"]]
    scores = np.array([r["score"] for r in good] or [np.nan])
    balanced = [r["balanced_accuracy"] for r in good if "balanced_accuracy" in r]
    row = {k: records[0][k] for k in ("study", "method", "protocol")}
    row |= {"missing": 0.0, **records[0]["tags"]}
    row.pop("repeat", None)
    beside = [r["beside_score"] for r in good if "beside_score" in r]
    if beside:
        whole = np.array([np.nan if score is None else score for score in beside])
        row |= {"beside_mean": float(whole.mean()), "beside_std": float(whole.std())}
    return {
        **row,
        "n_folds": len(records),
        "n_failed": len(records) - len(good),
        "mean": float(scores.mean()),
        "std": float(scores.std()),
        "balanced_accuracy": float(np.mean(balanced)) if balanced else np.nan,
        "chance": chance_level(good),
        "p_value": p_value(good),
        "seconds": round(sum(r["seconds"] for r in records), 3),
        "error": next((r["error"] for r in records if r["error"]), ""),
        "warnings": " | ".join(
            dict.fromkeys(t for r in records for t in r["warnings"])
        ),
    }
