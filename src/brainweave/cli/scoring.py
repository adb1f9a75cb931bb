"""Commands that score alignments: evaluate and compare."""

import json
import re
import warnings
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import partial
from itertools import product
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from brainweave._io import write_text
from brainweave._version import __version__
from brainweave.cli.console import Console, PartlyFailed, UsageError, resume_with, table
from brainweave.cli.methods import (
    Engine,
    Method,
    Parcels,
    SearchlightRadius,
    make_aligner,
    resolved,
)
from brainweave.cli.options import (
    OutFolder,
    StudyFolder,
    command,
    effective,
    option,
    write_config,
)
from brainweave.cli.studies import (
    divided,
    on_common_voxels,
    open_study,
    prepare_folder,
    tell_matching,
    write_page,
)

if TYPE_CHECKING:
    from brainweave.evaluation.results import ClassificationResult
    from brainweave.study.study import Study

PROTOCOLS = ("held-out", "joint")  # the one that favours nobody first


@dataclass
class Scoring:
    """How to score."""

    panel: ClassVar[str] = "Evaluation"
    halves: str = option(
        "How samples are divided to align and to score: category or run.",
        default="category",
    )
    leave_out: int = option("Subjects tested at a time.", default=1)
    protocol: str = option(
        "held-out (test subjects join a finished space), joint (the paper's; they "
        "take part in the alignment, which is known to inflate accuracy), or both.",
        default="both",
    )
    n_permutations: int = option("Permutations for a p-value.", default=0)
    report: bool = option("Write report.html too.", default=True)

    def protocols(self) -> tuple[str, ...]:
        """Return the protocols asked for."""
        if self.protocol not in (*PROTOCOLS, "both"):
            raise UsageError(
                f"--protocol must be joint, held-out or both; got {self.protocol!r}."
            )
        return PROTOCOLS if self.protocol == "both" else (self.protocol,)


def score_all(
    title: str,
    rivals: dict[str, tuple[Any, Any, str]],
    scoring: Scoring,
    *,
    seed: int | None,
    n_jobs: int | None = None,
    console: Console,
) -> "dict[str, ClassificationResult]":
    """Score (aligner, study, protocol) one after another; a bar counts all steps."""
    from brainweave.evaluation.evaluate import between_subject_classification

    results: dict[str, ClassificationResult] = {}
    with console.counted(title) as show:

        def tell(done: int, total: int, _: str) -> None:
            show(len(results) * total + done, len(rivals) * total, protocol)

        for name, (aligner, study, protocol) in rivals.items():
            results[name] = between_subject_classification(
                aligner,
                study,
                halves=scoring.halves,
                leave_out=scoring.leave_out,
                protocol=protocol,
                n_permutations=scoring.n_permutations,
                random_state=seed or 0,
                n_jobs=n_jobs,
                progress=tell,
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
    aligner = make_aligner(method)
    subjects = open_study(study)
    prepare_folder(output)
    tell_matching(subjects, method.match, console)
    common = bool(on_common_voxels({method.method: aligner}, subjects))
    split = divided(subjects, method.match, scoring.halves, common=common)
    results = score_all(
        "Scoring",
        {_name(method.method, p, protocols): (aligner, split, p) for p in protocols},
        scoring,
        seed=method.random_state,
        n_jobs=method.n_jobs,
        console=console,
    )
    options = effective(console, **resolved(aligner))
    write_scores(output, results, options, console)
    if scoring.report:
        page = output / "report.html"
        write_page(page, console, study=subjects, results=results, config=options)
    console.result(table(rows_of(results), HEADER))
    console.result(str(output))


def _name(method: str, protocol: str, protocols: tuple[str, ...]) -> str:
    return method if len(protocols) == 1 else f"{method} ({protocol})"


@command(scoring=Scoring, engine=Engine)
def compare(
    study: StudyFolder,
    *,
    method: list[str] | None = option(
        "Methods to compare, one after another or with commas; gdm none."
    ),
    n_components: str | None = option("Shared features, for all methods."),
    energy: float | None = option("Energy, for all methods that take it."),
    match: str | None = option("truncate or intersect, for methods locked in time."),
    parcels: Parcels = None,
    searchlight: SearchlightRadius = None,
    random_state: int | None = option("Seed."),
    n_jobs: int | None = option("Subjects at a time."),
    output: OutFolder = Path("comparison"),
    scoring: Scoring,
    console: Console,
) -> None:
    """Score several methods on the same samples; finished folds are not done again.

    A method that cannot be scored is a row with the reason; the others go on.
    """
    from brainweave.evaluation.runner import run_grid

    protocols = scoring.protocols()
    given = [n.strip() for text in method or ["gdm,none"] for n in text.split(",")]
    names = list(dict.fromkeys(given))
    base = Method(
        n_components=n_components,
        energy=energy,
        match=match,
        parcels=parcels,
        searchlight=searchlight,
        random_state=random_state,
        n_jobs=n_jobs,
    )
    aligners = {n: make_aligner(replace(base, method=n), lenient=True) for n in names}
    subjects = open_study(study)
    prepare_folder(output)
    tell_matching(subjects, match, console)
    resume_with("Run the same command again: folds of methods that are done are kept.")
    options = effective(console, method=names)
    with console.counted("Scoring methods") as progress:
        grids = _grids(study, subjects, aligners, scoring, base)
        found = run_grid(
            grids,
            output / "store",
            n_jobs=n_jobs,
            retry_failed=True,
            progress=progress,
        )
    results: dict[str, ClassificationResult] = {}
    failed: list[list[Any]] = []
    outcomes = {(name, p): result for name, p, result in found.classifications()}
    for protocol, name in product(protocols, names):
        result = outcomes[name, protocol]
        if isinstance(result, str):
            failed.append([name, protocol, *["n/a"] * (len(HEADER) - 2), result])
        else:
            results[_name(name, protocol, protocols)] = result
    for name in names:
        for text in _said_once(found.warnings_of(name)):
            warnings.warn(f"{name}: {text}", stacklevel=1)
    rows, header = rows_of(results), [*HEADER, "error"]
    with_error = [*([*row, ""] for row in rows), *failed]
    lines = (
        "\t".join(" ".join(str(cell).split()) for cell in row)
        for row in [header, *with_error]
    )
    write_text(output / "comparison.tsv", "\n".join(lines) + "\n")
    if results:
        write_scores(output, results, options, console)
        if scoring.report:
            page = output / "report.html"
            write_page(page, console, study=subjects, results=results, config=options)
    shown = table(with_error, header) if failed else table(rows, HEADER)
    console.result(f"{shown}\n{output}")
    if not results:
        raise PartlyFailed(f"None of the methods could be scored: {failed[0][-1]}")


def _said_once(texts: list[str]) -> list[str]:
    """Return warnings that differ in more than their numbers.

    Examples
    --------
    >>> _said_once(["eigenvalue 3 is 0.1", "eigenvalue 3 is 0.2", "no labels"])
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


def _grids(
    path: Path,
    study: "Study",
    aligners: dict[str, Any],
    scoring: Scoring,
    method: Method,
) -> list[Any]:
    """Return what to score: methods on all voxels, and those on common ones."""
    import hashlib

    from brainweave.evaluation.grid import Grid, GridStudy
    from brainweave.evaluation.measures import Classification

    # the index of a study lists the checksums of all its files
    index = hashlib.sha256((path / "study.json").read_bytes()).hexdigest()
    halves, match = scoring.halves, method.match
    version = f"{index}, match {match}, halves {halves}"
    cut = on_common_voxels(aligners, study)
    grids = []
    for common in (False, True):
        members = {n: a for n, a in aligners.items() if (n in cut) == common}
        if members:
            source = GridStudy(
                study.name or "study",
                partial(divided, study, match, halves, common=common),
                leave_out=scoring.leave_out,
                version=f"{version}, common voxels" if common else version,
                shape=(2, len(study)),
            )
            grid = Grid(
                source,
                members,
                protocols=scoring.protocols(),
                measure=Classification(None, scoring.n_permutations),
                random_state=method.random_state or 0,
            )
            grids.append(grid)
    return grids


# -- results in files, and back --------------------------------------------------------

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
    **{"half": int, "fold": int, "n_train": int, "n_test": int},
    **{"test_subjects": list, "accuracy": (int, float)},
    "balanced_accuracy": (int, float),
}
MAY_LACK: dict[str, Any] = {
    **{"nu": (int, float), "n_by_means": int, "n_components": int},
    "best_params": dict,
}


def write_scores(
    output: Path,
    results: "Mapping[str, ClassificationResult]",
    options: dict[str, Any],
    console: Console,
) -> None:
    """Write results, one row per method and fold, and options to a folder."""
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
    write_config(output / f"{console.command}.toml", console.command, options)


def _to_json(result: "ClassificationResult") -> dict[str, Any]:
    values = {name: getattr(result, name) for name in (*FIELDS, *ADDED)}
    plain: dict[str, Any] = json.loads(json.dumps(values, default=_plain))
    return {**plain, "mean": result.mean, "std": result.std}


def _plain(value: Any) -> Any:
    return value.tolist() if hasattr(value, "tolist") else str(value)


def rows_of(results: "Mapping[str, ClassificationResult]") -> list[list[Any]]:
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
        _check(isinstance(document, dict), "it is not an object")
        _check(document.get("format") == FORMAT, "its 'format' is another")
        results = document.get("results")
        _check(isinstance(results, dict), "it has no 'results'")
        return {name: _from_json(v) for name, v in results.items()}
    except FileNotFoundError:
        raise UsageError(f"There is no file {str(path)!r} with results.") from None
    except (TypeError, ValueError, OverflowError, RecursionError) as error:
        raise UsageError(
            f"{str(path)!r} does not hold results of evaluate or compare, or is "
            f"damaged: {error}. Run evaluate or compare again."
        ) from None


def _from_json(values: Any) -> "ClassificationResult":
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
    for name, kind in (OF_A_FOLD | MAY_LACK).items():
        value = fold.get(name)
        known = isinstance(value, kind) and not isinstance(value, bool)
        lacks = name in MAY_LACK and value is None
        _check(known or lacks, f"{name!r} of a fold is missing or wrong")
    texts = all(isinstance(id, str) for id in fold["test_subjects"])
    _check(texts, "'test_subjects' of a fold are no texts")
    _check(fold["accuracy"] == score, "'accuracy' of a fold is not its score")
    _check(_is_share(fold["balanced_accuracy"]), "'balanced_accuracy' is no share")


def _check(holds: bool, message: str) -> None:
    if not holds:
        raise ValueError(message)


def _is_number(value: Any) -> bool:
    return isinstance(value, (int, float)) and type(value) is not bool


def _is_share(value: Any) -> bool:
    return _is_number(value) and 0 <= value <= 1
