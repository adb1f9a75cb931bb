"""The outcome of a grid: a table of cells, and what they say together."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from brainweave.evaluation.grid import Cell
from brainweave.evaluation.store import ResultStore, write_atomically

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["GridResult"]

_FIRST = ("study", "method", "protocol", "missing", "repeat", "half", "fold")


class GridResult:
    """All cells of a grid.

    Parameters
    ----------
    store : ResultStore
        Where their records are.
    cells : sequence of Cell
        The cells. Which settings are varied is up to the grid that asks: a record may
        have been made for another.
    """

    def __init__(self, store: ResultStore, cells: Sequence[Cell]) -> None:
        self.store = store
        #: one dict per cell, in the order of the grid
        self.records: list[dict[str, Any]] = []
        for cell in cells:
            record = store.get(cell.name)
            if record is not None:
                self.records.append({**record, **vars(cell)})

    def __len__(self) -> int:
        return len(self.records)

    def to_frame(self) -> "pd.DataFrame":
        """Give a tidy table with one row per cell.

        Settings that vary are columns ``param_<name>``; ``error`` says why a cell has
        no score.
        """
        import pandas as pd

        frame = pd.DataFrame([_row(record) for record in self.records])
        if frame.empty:
            return frame
        params = sorted(c for c in frame.columns if c.startswith("param_"))
        return frame.sort_values(
            [*_FIRST, *params], kind="stable", key=_sortable, ignore_index=True
        )

    def summary(self) -> "pd.DataFrame":
        """Give one row per study, method, setting, protocol and share missing.

        ``mean`` and ``std`` are over folds and repetitions (divided by their number);
        ``p_value`` comes from permutations, if there were any; ``error`` is the first
        reason why a cell failed.
        """
        import pandas as pd

        groups: dict[tuple[Any, ...], list[dict[str, Any]]] = {}
        for record in self.records:
            varied = tuple(sorted(record["params"].items(), key=str))
            key = (*(record[k] for k in _FIRST[:4]), repr(varied))
            groups.setdefault(key, []).append(record)
        frame = pd.DataFrame([_summary(records) for records in groups.values()])
        if frame.empty:
            return frame
        params = sorted(c for c in frame.columns if c.startswith("param_"))
        return frame.sort_values(
            [*_FIRST[:4], *params], kind="stable", key=_sortable, ignore_index=True
        )

    def write_csv(self, path: Path) -> None:
        """Write the table of cells; a reader never sees half of it."""
        write_atomically(path, self.to_frame().to_csv(index=False))

    def __repr__(self) -> str:
        failed = sum(bool(r["error"]) for r in self.records)
        return f"GridResult({len(self)} cells, {failed} failed)"


def _sortable(column: Any) -> Any:
    """Numbers by size, all else by its text."""
    return column.map(str) if column.dtype == object else column


def _row(record: dict[str, Any]) -> dict[str, Any]:
    row = {name: record[name] for name in _FIRST}
    row |= {f"param_{k}": v for k, v in record["params"].items()}
    row["test_subjects"] = ", ".join(record["test_subjects"])
    for name in ("score", "balanced_accuracy", "chance", "n_train", "n_test", "nu"):
        row[name] = record.get(name)
    row["chance"] = _chance(record)
    row["best_params"] = (
        "" if record.get("best_params") is None else str(record["best_params"])
    )
    row["error"] = record["error"]
    row["warnings"] = " | ".join(record["warnings"])
    row["seconds"] = round(sum(record["seconds"].values()), 4)
    row["prepared_seconds"] = record.get("prepared_seconds")
    row["peak_mb"], row["seed"] = record["peak_mb"], record["seed"]
    row |= record["versions"]
    row["finished"], row["cell"] = record["finished"], record["name"]
    return row


def _chance(record: dict[str, Any]) -> float | None:
    """Give what guessing the most frequent category would reach."""
    if "confusion" not in record:
        return record.get("chance")
    counts = np.sum(record["confusion"], axis=1)
    return float(counts.max() / counts.sum())


def _summary(records: list[dict[str, Any]]) -> dict[str, Any]:
    first = records[0]
    good = [r for r in records if not r["error"]]
    scores = np.array([r["score"] for r in good])
    row = {name: first[name] for name in _FIRST[:4]}
    row |= {f"param_{k}": v for k, v in first["params"].items()}
    row["n_folds"], row["n_failed"] = len(records), len(records) - len(good)
    row["mean"] = float(scores.mean()) if good else np.nan
    row["std"] = float(scores.std()) if good else np.nan
    balanced = [r["balanced_accuracy"] for r in good if "balanced_accuracy" in r]
    row["balanced_accuracy"] = float(np.mean(balanced)) if balanced else np.nan
    row["chance"] = _pooled_chance(good)
    row["p_value"] = _p_value(good)
    row["seconds"] = round(sum(sum(r["seconds"].values()) for r in records), 3)
    row["peak_mb"] = max(r["peak_mb"] for r in records)
    row["error"] = next((r["error"] for r in records if r["error"]), "")
    row["warnings"] = " | ".join(
        dict.fromkeys(text for r in records for text in r["warnings"])
    )
    return row


def _pooled_chance(records: list[dict[str, Any]]) -> float:
    if records and all("confusion" in r for r in records):
        counts = np.sum([np.sum(r["confusion"], axis=1) for r in records], axis=0)
        return float(counts.max() / counts.sum())
    known = [r["chance"] for r in records if r.get("chance") is not None]
    return float(np.mean(known)) if known else np.nan


def _p_value(records: list[dict[str, Any]]) -> float:
    """Compare the mean over folds with the means under permuted labels."""
    if not records or not all("permuted_hits" in r for r in records):
        return float("nan")
    permuted = np.mean(
        [np.divide(r["permuted_hits"], r["n_test"]) for r in records], axis=0
    )
    mean = np.mean([r["score"] for r in records])
    # a tie counts against the alignment, also one broken by rounding
    return float((1 + (permuted >= mean - 1e-12).sum()) / (1 + permuted.size))
