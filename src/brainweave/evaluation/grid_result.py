"""The outcome of a grid: a table of cells, and what they say together."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from brainweave._io import write_text
from brainweave.evaluation.grid import Cell
from brainweave.evaluation.results import ClassificationResult, chance_level, p_value
from brainweave.evaluation.store import ResultStore
from brainweave.exceptions import InputError

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["GridResult", "is_sound"]

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
        known: dict[str, Any] = {}
        for cell in cells:
            if cell.name not in known:
                known[cell.name] = store.get(cell.name)
            record = known[cell.name]
            if record is None:  # a mean over fewer folds would look like any other
                raise InputError(
                    f"The record of {cell.name!r} vanished from {str(store.folder)!r}, "
                    "or was damaged, after it was computed. Run the same again."
                )
            self.records.append({**record, **vars(cell)})

    def __len__(self) -> int:
        return len(self.records)

    def to_frame(self) -> "pd.DataFrame":
        """Return a tidy table with one row per cell.

        Settings that vary are columns ``param_<name>``; ``error`` says why a cell has
        no score.
        """
        import pandas as pd

        return _sorted(pd.DataFrame([_row(record) for record in self.records]), _FIRST)

    def summary(self) -> "pd.DataFrame":
        """Return one row per study, method, setting, protocol and share missing.

        ``mean`` and ``std`` are over folds and repetitions (divided by their number);
        ``p_value`` comes from permutations, if there were any; ``error`` is the first
        reason why a cell failed.
        """
        import pandas as pd

        rows = [_summary(records) for records in self._groups().values()]
        return _sorted(pd.DataFrame(rows), _FIRST[:4])

    def classifications(self) -> list[tuple[str, str, ClassificationResult | str]]:
        """Return method, protocol, and the result or why there is none, of all groups.

        Under the names that the grid gives to its methods. What failed in any fold has
        no result: a mean over some folds is not comparable with one over all.
        """
        found: list[tuple[str, str, ClassificationResult | str]] = []
        for records in self._groups().values():
            errors = [r["error"] for r in records if r["error"]]
            group = records[0]["method"], records[0]["protocol"]
            if errors:
                found.append((*group, errors[0]))
                continue
            seconds: dict[str, float] = {}
            for record in records:
                for stage, spent in record["seconds"].items():
                    seconds[stage] = seconds.get(stage, 0.0) + spent
            seconds["total"] = sum(seconds.values())
            result = ClassificationResult.from_records(
                records,
                categories=records[0]["categories"],
                protocol=records[0]["protocol"],
                seconds=seconds,
                **records[0]["about"],
            )
            found.append((*group, result))
        return found

    def warnings_of(self, method: str) -> list[str]:
        """Return the warnings of a method, each once, without their categories."""
        own = (r["warnings"] for r in self.records if r["method"] == method)
        texts = (text for warned in own for text in warned)
        return list(dict.fromkeys(t.partition(": ")[2] for t in texts))

    def _groups(self) -> dict[tuple[Any, ...], list[dict[str, Any]]]:
        groups: dict[tuple[Any, ...], list[dict[str, Any]]] = {}
        for record in self.records:
            varied = tuple(sorted(record["params"].items(), key=str))
            key = (*(record[k] for k in _FIRST[:4]), repr(varied))
            groups.setdefault(key, []).append(record)
        return groups

    def write_csv(self, path: Path) -> None:
        """Write the table of cells; a reader never sees half of it."""
        write_text(path, self.to_frame().to_csv(index=False))

    def __repr__(self) -> str:
        failed = sum(bool(r["error"]) for r in self.records)
        return f"GridResult({len(self)} cells, {failed} failed)"


def is_sound(record: dict[str, Any], name: str) -> bool:
    """Whether a record is of this cell, and has all that tables are made of."""
    wanted = (*_FIRST, "error", "seconds", "warnings", "peak_mb", "versions", "about")
    if record.get("name") != name or any(key not in record for key in wanted):
        return False
    return bool(record["error"]) or isinstance(record.get("score"), int | float)


def _sorted(frame: "pd.DataFrame", by: Sequence[str]) -> "pd.DataFrame":
    if frame.empty:
        return frame
    params = sorted(c for c in frame.columns if c.startswith("param_"))
    return frame.sort_values(
        [*by, *params], kind="stable", key=_sortable, ignore_index=True
    )


def _sortable(column: Any) -> Any:
    """Numbers by size, all else by its text."""
    return column.map(str) if column.dtype == object else column


def _row(record: dict[str, Any]) -> dict[str, Any]:
    row = {name: record[name] for name in _FIRST}
    row |= {f"param_{k}": v for k, v in record["params"].items()}
    row["test_subjects"] = ", ".join(record["test_subjects"])
    for name in ("score", "balanced_accuracy", "n_components", "n_train", "n_test"):
        row[name] = record.get(name)
    row["nu"] = record.get("nu")
    row["chance"] = None if record["error"] else chance_level([record])
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
    row["chance"] = chance_level(good)
    row["p_value"] = p_value(good)
    row["seconds"] = round(sum(sum(r["seconds"].values()) for r in records), 3)
    row["peak_mb"] = max(r["peak_mb"] for r in records)
    row["error"] = next((r["error"] for r in records if r["error"]), "")
    row["warnings"] = " | ".join(
        dict.fromkeys(text for r in records for text in r["warnings"])
    )
    return row
