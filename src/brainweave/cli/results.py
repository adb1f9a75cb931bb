"""Results of evaluations in files, and back."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from brainweave._io import write_text
from brainweave._version import __version__
from brainweave.cli.errors import UsageError

if TYPE_CHECKING:
    from brainweave.evaluation.results import ClassificationResult

FORMAT = "brainweave-results"
HEADER = ["method", "protocol", "mean", "std", "chance", "p", "folds", "seconds"]
ARRAYS = ("scores", "confusion", "permutation_scores")
KINDS: dict[str, type] = {
    **{"folds": list, "categories": list, "protocol": str, "method": str},
    "seconds": dict,
}
ADDED: dict[str, type] = {"settings": dict, "study": dict, "design": dict}
SHARES = ("chance", "p_value")
FIELDS = (*ARRAYS, *KINDS, *SHARES)
OF_A_FOLD: dict[str, Any] = {
    "half": int,
    "fold": int,
    "test_subjects": list,
    "accuracy": (int, float),
    "balanced_accuracy": (int, float),
    "n_train": int,
    "n_test": int,
}


def to_json(result: "ClassificationResult") -> dict[str, Any]:
    """Return a result as JSON values."""
    values = {name: getattr(result, name) for name in (*FIELDS, *ADDED)}
    plain: dict[str, Any] = json.loads(json.dumps(values, default=_plain))
    return {**plain, "mean": result.mean, "std": result.std}


def _plain(value: Any) -> Any:
    return value.tolist() if hasattr(value, "tolist") else str(value)


def from_json(values: Any) -> "ClassificationResult":
    """Make a result of JSON values; refuse, with a ValueError, what is none."""
    import numpy as np

    from brainweave.evaluation.results import ClassificationResult

    _check(isinstance(values, dict), "a result is not an object")
    for name in FIELDS:
        _check(name in values, f"{name!r} is missing")
    given = {name: values[name] for name in FIELDS}
    # files of earlier versions do not have all
    given |= {name: values.get(name) or {} for name in ADDED}
    for name, kind in (KINDS | ADDED).items():
        _check(isinstance(given[name], kind), f"{name!r} is no {kind.__name__}")
    for name in SHARES:
        known = name == "chance" or given[name] is not None
        _check(not known or _is_share(given[name]), f"{name!r} is no share")
    _check(all(map(_is_number, given["seconds"].values())), "'seconds' are no numbers")
    for name in ARRAYS:
        given[name] = np.asarray(given[name], dtype=float)
        finite = bool(np.isfinite(given[name]).all())
        _check(finite, f"{name!r} has values that are none")
    scores, counts, n = given["scores"], given["confusion"], len(given["categories"])
    simple = all(isinstance(c, (str, int, float, bool)) for c in given["categories"])
    _check(simple, "'categories' are no labels")
    _check(scores.ndim == 1 and scores.size > 0, "'scores' is no list")
    _check(bool(((scores >= 0) & (scores <= 1)).all()), "'scores' are no shares")
    _check(given["permutation_scores"].ndim == 1, "'permutation_scores' is no list")
    _check(counts.shape == (n, n), "'confusion' does not fit 'categories'")
    whole = (counts >= 0) & (counts == np.round(counts)) & (counts < 2**53)
    _check(bool(whole.all()), "'confusion' has values that are no counts")
    given["confusion"] = counts.astype(np.intp)
    _check(len(given["folds"]) == scores.size, "'folds' does not fit 'scores'")
    for fold, score in zip(given["folds"], scores, strict=True):
        _check_fold(fold, float(score))
    return ClassificationResult(**given)


def _check_fold(fold: Any, score: float) -> None:
    _check(isinstance(fold, dict), "a fold is not an object")
    for name, kind in OF_A_FOLD.items():
        known = isinstance(fold.get(name), kind) and not isinstance(fold[name], bool)
        _check(known, f"{name!r} of a fold is missing or wrong")
    texts = all(isinstance(id, str) for id in fold["test_subjects"])
    _check(texts, "'test_subjects' of a fold are no texts")
    _check(fold["accuracy"] == score, "'accuracy' of a fold is not its score")
    _check(_is_share(fold["balanced_accuracy"]), "'balanced_accuracy' is no share")
    nu, params, k = (fold.get(n) for n in ("nu", "best_params", "n_components"))
    _check(nu is None or _is_number(nu), "'nu' of a fold is no number")
    by_means = fold.get("n_by_means")
    _check(by_means is None or type(by_means) is int, "'n_by_means' is no number")
    _check(params is None or isinstance(params, dict), "'best_params' is no object")
    _check(k is None or type(k) is int, "'n_components' of a fold is no number")


def _check(holds: bool, message: str) -> None:
    if not holds:
        raise ValueError(message)


def _is_number(value: Any) -> bool:
    return isinstance(value, (int, float)) and type(value) is not bool


def _is_share(value: Any) -> bool:
    return _is_number(value) and 0 <= value <= 1


def write_results(path: Path, results: Mapping[str, "ClassificationResult"]) -> None:
    """Write named results to one JSON file."""
    document = {
        "format": FORMAT,
        "brainweave": __version__,
        "results": {name: to_json(result) for name, result in results.items()},
    }
    write_text(path, json.dumps(document, indent=1) + "\n")


def read_results(path: Path) -> dict[str, "ClassificationResult"]:
    """Read what :func:`write_results` wrote, from the file or the folder it is in."""
    if path.is_dir():
        folder, path = path, path / "results.json"
        if not path.is_file():
            raise UsageError(
                f"{str(folder)!r} holds no results.json. Name a folder that evaluate "
                "or compare wrote."
            )
    try:
        document = json.loads(path.read_text(encoding="utf-8"))
        _check(isinstance(document, dict), "it is not an object")
        _check(document.get("format") == FORMAT, "its 'format' is another")
        results = document.get("results")
        _check(isinstance(results, dict), "it has no 'results'")
        return {name: from_json(v) for name, v in results.items()}
    except FileNotFoundError:
        raise UsageError(f"There is no file {str(path)!r} with results.") from None
    except (TypeError, ValueError, OverflowError, RecursionError) as error:
        raise UsageError(
            f"{str(path)!r} does not hold results of evaluate or compare, or is "
            f"damaged: {error}. Run evaluate or compare again."
        ) from None


def write_folds(path: Path, results: Mapping[str, "ClassificationResult"]) -> None:
    """Write one row per method and fold."""
    import pandas as pd

    frames = [r.to_frame().assign(method=name) for name, r in results.items()]
    whole = pd.concat(frames, ignore_index=True)
    write_text(path, whole.to_csv(sep="\t", index=False, na_rep="n/a"))


def row_of(name: str, result: "ClassificationResult") -> list[Any]:
    """Return the row of a table of methods."""
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
