"""Results of evaluations in files, and back."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from brainweave._version import __version__
from brainweave.cli.config import write_whole
from brainweave.cli.errors import UsageError

if TYPE_CHECKING:
    from brainweave.evaluation.classification import ClassificationResult

FORMAT = "brainweave-results"
ARRAYS = ("scores", "confusion", "permutation_scores")
FIELDS = (
    *ARRAYS,
    "folds",
    "categories",
    "chance",
    "protocol",
    "method",
    "p_value",
    "seconds",
)


def to_json(result: "ClassificationResult") -> dict[str, Any]:
    """Give a result as JSON values."""
    values = {name: getattr(result, name) for name in FIELDS}
    for name in ARRAYS:
        values[name] = values[name].tolist()
    plain: dict[str, Any] = json.loads(json.dumps(values, default=_plain))
    return {**plain, "mean": result.mean, "std": result.std}


def _plain(value: Any) -> Any:
    if hasattr(value, "item"):
        return value.item()
    return value.tolist() if hasattr(value, "tolist") else str(value)


def from_json(values: Mapping[str, Any]) -> "ClassificationResult":
    """Make a result of JSON values."""
    import numpy as np

    from brainweave.evaluation.classification import ClassificationResult

    given = {name: values[name] for name in FIELDS}
    given["scores"] = np.asarray(given["scores"], dtype=float)
    given["confusion"] = np.asarray(given["confusion"], dtype=np.intp)
    given["permutation_scores"] = np.asarray(given["permutation_scores"], dtype=float)
    return ClassificationResult(**given)


def write_results(path: Path, results: Mapping[str, "ClassificationResult"]) -> None:
    """Write named results to one JSON file."""
    document = {
        "format": FORMAT,
        "brainweave": __version__,
        "results": {name: to_json(result) for name, result in results.items()},
    }
    write_whole(path, json.dumps(document, indent=1) + "\n")


def read_results(path: Path) -> dict[str, "ClassificationResult"]:
    """Read what :func:`write_results` wrote."""
    try:
        document = json.loads(path.read_text(encoding="utf-8"))
        if document["format"] != FORMAT:
            raise KeyError("format")
        return {name: from_json(v) for name, v in document["results"].items()}
    except FileNotFoundError:
        raise UsageError(f"There is no file {str(path)!r} with results.") from None
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise UsageError(
            f"{str(path)!r} does not hold results of evaluate or compare ({error!r})."
        ) from None


def write_folds(path: Path, results: Mapping[str, "ClassificationResult"]) -> None:
    """Write one row per method and fold."""
    import pandas as pd

    frames = []
    for name, result in results.items():
        frame = result.to_frame()
        frame["method"] = name
        frames.append(frame)
    whole = pd.concat(frames, ignore_index=True)
    write_whole(path, whole.to_csv(sep="\t", index=False, na_rep="n/a"))


def row_of(name: str, result: "ClassificationResult") -> list[Any]:
    """Give the row of a table of methods."""
    p = "n/a" if result.p_value is None else f"{result.p_value:.3g}"
    return [
        name,
        result.protocol,
        f"{result.mean:.3f}",
        f"{result.std:.3f}",
        f"{result.chance:.3f}",
        p,
        len(result.folds),
        f"{result.seconds.get('total', 0):.1f}",
    ]


HEADER = ["method", "protocol", "mean", "std", "chance", "p", "folds", "seconds"]
