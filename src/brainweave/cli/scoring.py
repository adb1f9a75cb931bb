"""Commands that score alignments: evaluate and compare."""

import json
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import product
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from brainweave._core.exceptions import warn_user
from brainweave._core.io import write_text
from brainweave._core.version import __version__
from brainweave.cli import files
from brainweave.cli.cluster import Engine
from brainweave.cli.console import (
    Console,
    PartlyFailed,
    UsageError,
    table,
)
from brainweave.cli.methods import (
    Method,
    SharedOptions,
    make_aligner,
    match_and_report,
    needing_common_voxels,
    resolved_options,
    split_matched,
)
from brainweave.cli.options import OutFolder, StudyFolder, command, option

if TYPE_CHECKING:
    from brainweave.evaluation.results import ClassificationResult
    from brainweave.study.study import Study

PROTOCOLS = ("held-out", "joint")  # the one that favours nobody first


@dataclass
class Scoring:
    """How to score."""

    panel: ClassVar[str] = "Evaluation"
    halves: str = option(
        "How samples are split, to align with one half and score the other: "
        "category or run.",
        default="category",
    )
    leave_out: int = option("Subjects tested at a time.", default=1)
    protocol: str = option(
        "held-out (test subjects join a finished space), joint (the paper's; they "
        "take part in the alignment, which is known to inflate accuracy), or both.",
        default="both",
    )
    classifier: str = option(
        "nu-svm-means (pairs of categories that overlap go by their means), or nu-svm, "
        "that of LIBSVM and of the paper.",
        default="nu-svm-means",
    )
    n_permutations: int = option("Permutations for a p-value.", default=0)
    report: bool = option("Write report.html too.", default=True)

    def protocols(self) -> tuple[str, ...]:
        """Return the protocols to score by."""
        if self.protocol not in (*PROTOCOLS, "both"):
            raise UsageError(
                f"--protocol must be joint, held-out or both; got {self.protocol!r}."
            )
        return PROTOCOLS if self.protocol == "both" else (self.protocol,)


def score_all(
    title: str,
    entries: dict[str, tuple[Any, Any, str]],
    scoring: Scoring,
    *,
    seed: int | None,
    n_jobs: int | None = None,
    console: Console,
) -> "dict[str, ClassificationResult]":
    """Score named (aligner, study, protocol); one bar counts the steps of all."""
    from brainweave.evaluation.evaluate import between_subject_classification

    results: dict[str, ClassificationResult] = {}
    with console.progress(title) as show:

        def show_step(done: int, total: int, _: str) -> None:
            show(len(results) * total + done, len(entries) * total, protocol)

        for name, (aligner, study, protocol) in entries.items():
            results[name] = between_subject_classification(
                aligner,
                study,
                halves=scoring.halves,
                leave_out=scoring.leave_out,
                protocol=protocol,
                classifier=scoring.classifier,
                n_permutations=scoring.n_permutations,
                random_state=seed or 0,
                n_jobs=n_jobs,
                progress=show_step,
            )
    return results


@command(method=Method, scoring=Scoring, engine=Engine)
def evaluate(
    study: StudyFolder,
    output: OutFolder = Path("evaluation"),
    *,
    method: Method,
    scoring: Scoring,
    console: Console,
) -> None:
    """Score one method by classifying subjects that were left out."""
    protocols = scoring.protocols()
    name, aligner = method.method, make_aligner(method)
    subjects = files.open_study(study)
    files.prepare_folder(output)
    match_and_report(subjects, method.match, console)
    common = bool(needing_common_voxels({name: aligner}, subjects))
    split = split_matched(subjects, method.match, scoring.halves, common=common)
    results = score_all(
        "Scoring",
        {
            _row_name(method.method, p, protocols): (aligner, split, p)
            for p in protocols
        },
        scoring,
        seed=method.random_state,
        n_jobs=method.n_jobs,
        console=console,
    )
    options = files.used_options(console, **resolved_options(aligner))
    report_on = subjects if scoring.report else None
    write_scores(output, results, options, console, report_on=report_on)
    shown = table(result_rows(results), HEADER)
    console.result(f"{shown}\n{table_note(results)}\n{output}")
    console.result(conclusion(results))


def _row_name(method: str, protocol: str, protocols: tuple[str, ...]) -> str:
    """Name a row; what aligns nothing has one name wherever it is shown."""
    from brainweave.plotting.results import method_label

    label = method_label(method)
    return label if len(protocols) == 1 else f"{label} ({protocol})"


@command(shared=SharedOptions, scoring=Scoring, engine=Engine)
def compare(
    study: StudyFolder,
    *,
    method: list[str] | None = option(
        "Methods to compare, one after another or with commas; gdm none."
    ),
    output: OutFolder = Path("comparison"),
    shared: SharedOptions,
    scoring: Scoring,
    console: Console,
) -> None:
    """Score several methods on the same samples; finished folds are not done again.

    A method that cannot be scored is a row with the reason; the others go on.
    """
    from brainweave.evaluation.grid import run_grid

    protocols = scoring.protocols()
    given = [n.strip() for text in method or ["gdm,none"] for n in text.split(",")]
    names = list(dict.fromkeys(given))
    methods = {name: Method(method=name, **vars(shared)) for name in names}
    aligners = {n: make_aligner(m, lenient=True) for n, m in methods.items()}
    subjects = files.open_study(study)
    files.prepare_folder(output)
    match_and_report(subjects, shared.match, console)
    console.resume_hint = (
        "Run the same command again: folds of methods that are done are kept."
    )
    options = files.used_options(console, method=names)
    with console.progress("Scoring methods") as progress:
        grids = _make_grids(study, subjects, aligners, scoring, shared)
        how: Any = {"n_jobs": shared.n_jobs, "retry_failed": True, "progress": progress}
        found = run_grid(grids, output / "store", **how)
    outcomes = {(name, p): result for name, p, result in found.classifications()}
    results: dict[str, ClassificationResult] = {}
    failed: list[list[Any]] = []
    for protocol, name in product(protocols, names):
        result = outcomes[name, protocol]
        if isinstance(result, str):
            row = [_row_name(name, protocol, protocols), protocol]
            failed.append([*row, *["n/a"] * (len(HEADER) - 2), result])
        else:
            results[_row_name(name, protocol, protocols)] = result
    for name in names:
        for text in _group_warnings(found.warnings_of(name)):
            warn_user(f"{name}: {text}")
    rows, header = result_rows(results), [*HEADER, "error"]
    with_errors = [*([*row, ""] for row in rows), *failed]
    files.write_tsv(output / "comparison.tsv", [header, *with_errors])
    if results:
        report_on = subjects if scoring.report else None
        lost = [f"{row[0]} could not be scored: {row[-1]}" for row in failed]
        write_scores(output, results, options, console, report_on=report_on, lost=lost)
    shown = table(with_errors, header) if failed else table(rows, HEADER)
    note = f"\n{table_note(results)}" if results else ""
    console.result(f"{shown}{note}\n{output}")
    if results:
        console.result(conclusion(results))
    if not results:
        raise PartlyFailed(f"None of the methods could be scored: {failed[0][-1]}")


def _group_warnings(texts: list[str]) -> list[str]:
    """Return one warning of those that differ in their numbers alone.

    Examples
    --------
    >>> _group_warnings(["eigenvalue 3 is 0.1", "eigenvalue 3 is 0.2", "no labels"])
    ['eigenvalue 3 is 0.1 (in 2 fits)', 'no labels']
    """
    alike: dict[str, list[str]] = {}
    for text in texts:
        alike.setdefault(re.sub(r"-?\d+(\.\d+)?", "0", text), []).append(text)
    return [
        found[0]
        if len(found) == 1
        else f"{found[0].rstrip('.')} (in {len(found)} fits)"
        for found in alike.values()
    ]


def _make_grids(
    path: Path,
    study: "Study",
    aligners: dict[str, Any],
    scoring: Scoring,
    shared: SharedOptions,
) -> list[Any]:
    """Return a grid of the methods on all voxels, and one of those on common ones."""
    import hashlib

    from brainweave.evaluation.grid import Grid, GridStudy
    from brainweave.evaluation.measures import Classification

    # the index of a study lists the checksums of all its files
    index = hashlib.sha256((path / "study.json").read_bytes()).hexdigest()
    halves, match = scoring.halves, shared.match
    version = f"{index}, match {match}, halves {halves}"
    on_common = needing_common_voxels(aligners, study)
    grids = []
    for common in (False, True):
        members = {n: a for n, a in aligners.items() if (n in on_common) == common}
        if members:
            source = GridStudy(
                study.name or "study",
                partial(split_matched, study, match, halves, common=common),
                leave_out=scoring.leave_out,
                version=f"{version}, common voxels" if common else version,
                shape=(2, len(study)),
            )
            grid = Grid(
                source,
                members,
                protocols=scoring.protocols(),
                measure=Classification(scoring.classifier, scoring.n_permutations),
                random_state=shared.random_state or 0,
            )
            grids.append(grid)
    return grids


# -- results in files, and back --------------------------------------------------------

FORMAT = "brainweave-results"
HEADER = ["method", "protocol", "mean", "std", "chance", "p", "folds", "seconds"]


def write_scores(
    output: Path,
    results: "Mapping[str, ClassificationResult]",
    options: dict[str, Any],
    console: Console,
    *,
    report_on: "Study | None" = None,
    lost: Sequence[str] = (),
) -> None:
    """Write results, a table of all folds, options, and a report to a folder.

    What could not be scored is told in the report too, where its row would be missed.
    """
    import pandas as pd

    document = {
        "format": FORMAT,
        "brainweave": __version__,
        "results": {name: _to_json(result) for name, result in results.items()},
    }
    write_text(output / "results.json", json.dumps(document, indent=1) + "\n")
    frames = [r.to_frame().assign(method=name) for name, r in results.items()]
    folds = pd.concat(frames, ignore_index=True)
    text = folds.to_csv(sep="\t", index=False, na_rep="n/a")
    write_text(output / "folds.tsv", text)
    files.write_config(output / f"{console.command}.toml", console.command, options)
    if report_on is not None:
        content: dict[str, Any] = {"study": report_on, "results": results}
        content |= {"config": options, "warnings": [*console.warnings, *lost]}
        files.write_page(output / "report.html", console, **content)


def _to_json(result: "ClassificationResult") -> dict[str, Any]:
    from brainweave.persistence.codec import plain

    values = {name: getattr(result, name) for name in RESULT_FIELDS}
    return {**plain(values, other=str), "mean": result.mean, "std": result.std}


def result_rows(results: "Mapping[str, ClassificationResult]") -> list[list[Any]]:
    """Return the rows of a table of methods."""
    return [
        [
            name,
            r.protocol,
            *(f"{share:.3f}" for share in (r.mean, r.std, r.chance)),
            "n/a" if r.p_value is None else f"{r.p_value:.3g}",
            len(r.folds),
            f"{r.seconds.get('total', 0):.1f}",
        ]
        for name, r in results.items()
    ]


def conclusion(results: "Mapping[str, ClassificationResult]") -> str:
    """Say in one sentence what the table shows, with a p-value."""
    from brainweave.evaluation.comparison import verdict

    return verdict(results)


def table_note(results: "Mapping[str, ClassificationResult]") -> str:
    """Say what the columns of the table mean: chance, p, and the classifier."""
    one = next(iter(results.values()))
    least = [r.smallest_p for r in results.values() if r.smallest_p is not None]
    p = f"p: permuted labels, at least {max(least):.2g}; " if least else ""
    return f"chance: {one.chance_is}; {p}classifier: {one.classifier}"


def read_results(path: Path) -> "dict[str, ClassificationResult]":
    """Read what :func:`write_scores` wrote, from the file or the folder it is in."""
    if path.is_dir():
        folder, path = path, path / "results.json"
        if not path.is_file():
            raise UsageError(
                f"{str(folder)!r} holds no results.json. Name a folder that evaluate "
                "or compare wrote."
            )
    try:
        document = json.loads(path.read_text(encoding="utf-8"))
        _require(isinstance(document, dict), "it is not an object")
        _require(document.get("format") == FORMAT, "its 'format' is another")
        results = document.get("results")
        _require(isinstance(results, dict), "it has no 'results'")
        return {name: _from_json(values) for name, values in results.items()}
    except FileNotFoundError:
        raise UsageError(f"There is no file {str(path)!r} with results.") from None
    except (ValueError, RecursionError) as error:
        raise UsageError(
            f"{str(path)!r} does not hold results of evaluate or compare, or is "
            f"damaged: {error}. Run evaluate or compare again."
        ) from None


def _from_json(values: Any) -> "ClassificationResult":
    """Make a result of JSON values; raise a ValueError if they are none."""
    import numpy as np

    from brainweave.evaluation.results import ClassificationResult

    _require(isinstance(values, dict), "a result is not an object")
    _require_fields(values, RESULT_FIELDS, "a result")
    given = {name: values.get(name) for name in RESULT_FIELDS}
    accuracies = [fold["accuracy"] for fold in given["folds"]]
    _require(bool(accuracies), "it has no folds")
    _require(given["scores"] == accuracies, "'scores' are not those of 'folds'")
    n = len(given["categories"])
    square = n > 0 and [len(row) for row in given["confusion"]] == [n] * n
    _require(square, "'confusion' does not fit 'categories'")
    for name in ("scores", "permutation_scores"):
        given[name] = np.array(given[name], dtype=np.float64)
    given["confusion"] = np.array(given["confusion"], dtype=np.intp)
    return ClassificationResult(**given)


def _require_fields(values: Any, fields: Mapping[str, Any], what: str) -> None:
    from brainweave.persistence.codec import problems_with

    _require(isinstance(values, dict), f"{what} is not an object")
    for name, problem in problems_with(values, fields):
        raise ValueError(f"{name!r} of {what} {problem}")


def _require(holds: bool, message: str) -> None:
    if not holds:
        raise ValueError(message)


def _is_number(value: Any) -> bool:
    return type(value) in (int, float) and abs(value) < 2**53


def _is_count(value: Any) -> bool:
    return type(value) is int and 0 <= value < 2**53


def _is_share(value: Any) -> bool:
    return _is_number(value) and 0 <= value <= 1


def _are_shares(value: Any) -> bool:
    return isinstance(value, list) and all(map(_is_share, value))


def _or_none(holds: Callable[[Any], bool]) -> Callable[[Any], bool]:
    return lambda value: value is None or holds(value)


def _is_fold(value: Any) -> bool:
    _require_fields(value, FOLD_FIELDS, "a fold")
    return True


# what the values of a fold and of a result must be: a type, a check, or a list of such
FOLD_FIELDS: dict[str, Any] = {
    "half": _is_count,
    "fold": _is_count,
    "n_train": _is_count,
    "n_test": _is_count,
    "test_subjects": [str],
    "accuracy": _is_share,
    "subject_scores": _or_none(_are_shares),
    "balanced_accuracy": _is_share,
    "nu": _or_none(_is_number),
    "n_by_means": _or_none(_is_count),
    "n_components": _or_none(_is_count),
    "best_params": lambda value: isinstance(value, dict | None),
}
RESULT_FIELDS: dict[str, Any] = {
    "scores": [_is_share],
    "confusion": [[_is_count]],
    "permutation_scores": [_is_number],
    "folds": [_is_fold],
    "categories": [lambda value: isinstance(value, str | int | float)],
    "protocol": str,
    "method": str,
    "seconds": lambda v: isinstance(v, dict) and all(map(_is_number, v.values())),
    "chance": _is_share,
    "p_value": _or_none(_is_share),
    "smallest_p": _or_none(_is_share),
    "settings": dict,
    "study": dict,
    "design": dict,
}
