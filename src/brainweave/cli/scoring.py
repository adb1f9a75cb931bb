"""Commands that score alignments: evaluate and compare."""

import re
import warnings
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from brainweave.cli.config import effective, write_config, write_whole
from brainweave.cli.console import Console, Tick, table
from brainweave.cli.errors import PartlyFailed, UsageError, resume_with
from brainweave.cli.methods import (
    make_aligner,
    matched,
    on_common_voxels,
    open_study,
    resolved,
    tell_matching,
)
from brainweave.cli.modelling import StudyFolder
from brainweave.cli.options import Method, Parcels, Running, SearchlightRadius, bundled
from brainweave.cli.results import HEADER, row_of, write_folds, write_results

if TYPE_CHECKING:
    from brainweave.evaluation.results import ClassificationResult, GridResult
    from brainweave.evaluation.splits import SplitStudy
    from brainweave.study.study import Study

GROUP = "Evaluation"
PROTOCOLS = ("held-out", "joint")  # the one that favours nobody first


def _option(text: str, *names: str) -> Any:
    return typer.Option(*names, help=text, rich_help_panel=GROUP)


@dataclass
class Scoring:
    """How to score."""

    halves: Annotated[
        str, _option("How samples are divided to align and to score: category or run.")
    ] = "category"
    leave_out: Annotated[int, _option("Subjects tested at a time.")] = 1
    protocol: Annotated[
        str,
        _option(
            "held-out (test subjects join a finished space), joint (the paper's; they "
            "take part in the alignment, which is known to inflate accuracy), or both."
        ),
    ] = "both"
    n_permutations: Annotated[int, _option("Permutations for a p-value.")] = 0
    report: Annotated[
        bool, _option("Write report.html too.", "--report/--no-report")
    ] = True

    def protocols(self) -> tuple[str, ...]:
        """Return the protocols asked for."""
        if self.protocol == "both":
            return PROTOCOLS
        if self.protocol not in PROTOCOLS:
            raise UsageError(
                f"--protocol must be joint, held-out or both; got {self.protocol!r}."
            )
        return (self.protocol,)


OutFolder = Annotated[
    Path, typer.Option("--output", "-o", help="Folder for the results.")
]


def prepare_folder(folder: Path) -> None:
    """Make the folder of the results, or say why that cannot be."""
    if folder.exists() and not folder.is_dir():
        raise UsageError(f"{str(folder)!r} is a file; --output names a folder.")
    folder.mkdir(parents=True, exist_ok=True)
    probe = folder / ".brainweave.partial"
    probe.touch()
    probe.unlink()


def score(
    aligner: Any,
    study: "Study | SplitStudy",
    scoring: Scoring,
    *,
    protocol: str,
    method: Method,
    tick: Tick,
) -> "ClassificationResult":
    """Classify the samples of subjects that were left out; tick at each step."""
    from brainweave.evaluation.evaluate import between_subject_classification

    return between_subject_classification(
        aligner,
        study,
        halves=scoring.halves,
        leave_out=scoring.leave_out,
        protocol=protocol,
        n_permutations=scoring.n_permutations,
        random_state=method.random_state or 0,
        n_jobs=method.n_jobs,
        progress=lambda done, total, what: tick(protocol),
    )


def n_classifiers(study: "Study", scoring: Scoring) -> int:
    """Return the steps of one evaluation: halves, folds, blocks of permutations."""
    from brainweave.evaluation.measures import Classification

    n_folds = -(-len(study) // max(1, scoring.leave_out))
    return 2 * n_folds * Classification(None, scoring.n_permutations).n_steps()


def divided(
    study: "Study", match: str | None, halves: Any, *, common: bool = False
) -> "SplitStudy":
    """Split a study; what is matched or cut first is still known as that study.

    Parameters
    ----------
    study : Study
        The whole of it.
    match : str or None
        How to make samples correspond.
    halves : str
        How to divide them.
    common : bool, default=False
        Keep only the voxels that all subjects have.
    """
    from brainweave.evaluation.splits import split_study
    from brainweave.study.spaces import common_voxels

    used = common_voxels(study) if common else study
    split = split_study(matched(used, match), halves=halves)
    if match is not None:
        split.design["match"] = match
    if common:
        split.design["voxels"] = "common"
    if match is not None or common:
        split.fingerprint = study.fingerprint()
    return split


@bundled(method=Method, scoring=Scoring, running=Running)
def evaluate(
    context: typer.Context,
    study: StudyFolder,
    output: OutFolder = Path("evaluation"),
    *,
    method: Method,
    scoring: Scoring,
    running: Running,
) -> None:
    """Score one method by classifying subjects that were left out."""
    console = Console(running.quiet)
    protocols = scoring.protocols()
    aligner = make_aligner(method)
    subjects = open_study(study)
    prepare_folder(output)
    tell_matching(subjects, method.match, console)
    results: dict[str, ClassificationResult] = {}
    with console.collect_warnings():
        total = len(protocols) * n_classifiers(subjects, scoring)
        with console.stage("Scoring", total) as tick:
            common = bool(on_common_voxels({method.method: aligner}, subjects))
            split = divided(subjects, method.match, scoring.halves, common=common)
            for protocol in protocols:
                name = _name(method.method, protocol, protocols)
                results[name] = score(
                    aligner,
                    split,
                    scoring,
                    protocol=protocol,
                    method=method,
                    tick=tick,
                )
        options = effective(context, **resolved(aligner))
        _write(output, results, "evaluate", options)
        if scoring.report:
            _report(output, subjects, results, options, console)
    _show(console, output, results)


def _name(method: str, protocol: str, protocols: tuple[str, ...]) -> str:
    return method if len(protocols) == 1 else f"{method} ({protocol})"


def _write(
    output: Path,
    results: "dict[str, ClassificationResult]",
    command: str,
    options: dict[str, Any],
) -> None:
    write_results(output / "results.json", results)
    write_folds(output / "folds.tsv", results)
    write_config(output / f"{command}.toml", command, options)


def _report(
    output: Path, study: "Study", results: Any, options: Any, console: Console
) -> None:
    from brainweave.report import write_report

    with console.stage("Writing the report"):
        write_report(
            output / "report.html",
            study=study,
            results=results,
            config=options,
            warnings=console.warnings,
            seconds=console.seconds,
        )


def _show(
    console: Console, output: Path, results: Any, failed: list[list[Any]] | None = None
) -> None:
    rows = [row_of(name, result) for name, result in results.items()]
    if failed:
        header = [*HEADER, "error"]
        console.result(table([*([*r, ""] for r in rows), *failed], header))
    else:
        console.result(table(rows, HEADER))
    console.result(str(output))


@bundled(scoring=Scoring, running=Running)
def compare(
    context: typer.Context,
    study: StudyFolder,
    *,
    method: Annotated[
        list[str] | None,
        typer.Option(help="Methods to compare, one after another; gdm none."),
    ] = None,
    n_components: Annotated[
        str | None, typer.Option(help="Shared features, for all methods.")
    ] = None,
    energy: Annotated[
        float | None, typer.Option(help="Energy, for all methods that take it.")
    ] = None,
    match: Annotated[
        str | None,
        typer.Option(help="truncate or intersect, for methods locked in time."),
    ] = None,
    parcels: Parcels = None,
    searchlight: SearchlightRadius = None,
    random_state: Annotated[int | None, typer.Option(help="Seed.")] = None,
    n_jobs: Annotated[int | None, typer.Option(help="Subjects at a time.")] = None,
    output: OutFolder = Path("comparison"),
    scoring: Scoring,
    running: Running,
) -> None:
    """Score several methods on the same samples; finished folds are not done again.

    A method that cannot be scored is a row with the reason; the others go on.
    """
    console = Console(running.quiet)
    protocols = scoring.protocols()
    names = list(dict.fromkeys(method or ["gdm", "none"]))
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
    options = effective(context, method=names)
    results: dict[str, ClassificationResult] = {}
    failed: list[list[Any]] = []
    with console.collect_warnings():
        with console.counted("Scoring methods") as progress:
            found = _scored(
                study,
                subjects,
                aligners,
                scoring,
                base,
                store=output / "store",
                progress=progress,
            )
        for name, protocol, result in _in_order(found, names, protocols):
            if isinstance(result, str):
                failed.append([name, protocol, *["n/a"] * (len(HEADER) - 2), result])
            else:
                results[_name(name, protocol, protocols)] = result
        for name in names:
            for text in _said_once(found.warnings_of(name)):
                warnings.warn(f"{name}: {text}", stacklevel=1)
        rows = [[*row_of(name, result), ""] for name, result in results.items()]
        lines = [
            "\t".join(" ".join(str(cell).split()) for cell in row)
            for row in [[*HEADER, "error"], *rows, *failed]
        ]
        write_whole(output / "comparison.tsv", "\n".join(lines) + "\n")
        if results:
            _write(output, results, "compare", options)
            if scoring.report:
                _report(output, subjects, results, options, console)
    _show(console, output, results, failed)
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


def _scored(
    path: Path,
    study: "Study",
    aligners: dict[str, Any],
    scoring: Scoring,
    method: Method,
    *,
    store: Path,
    progress: Any,
) -> "GridResult":
    """Score methods under all protocols; bases are shared, finished folds are kept."""
    from brainweave.evaluation.grid import Grid, GridStudy
    from brainweave.evaluation.measures import Classification
    from brainweave.evaluation.runner import run_grid

    halves, match = scoring.halves, method.match
    cut = on_common_voxels(aligners, study)
    grids = []
    for common in (False, True):
        members = {n: a for n, a in aligners.items() if (n in cut) == common}
        how = f"{_index(path)}, match {match}, halves {halves}"
        source = GridStudy(
            study.name or "study",
            partial(divided, study, match, halves, common=common),
            leave_out=scoring.leave_out,
            version=f"{how}, common voxels" if common else how,
            shape=(2, len(study)),
        )
        if members:
            grid = Grid(
                source,
                members,
                protocols=scoring.protocols(),
                measure=Classification(None, scoring.n_permutations),
                random_state=method.random_state or 0,
            )
            grids.append(grid)
    return run_grid(
        grids, store, n_jobs=method.n_jobs, retry_failed=True, progress=progress
    )


def _in_order(
    found: "GridResult", names: list[str], protocols: tuple[str, ...]
) -> list[tuple[str, str, Any]]:
    results = {(name, p): result for name, p, result in found.classifications()}
    return [(n, p, results[n, p]) for p in protocols for n in names]


def _index(study: Path) -> str:
    """Return the checksum of a study's index, which lists those of all its files."""
    import hashlib

    return hashlib.sha256((study / "study.json").read_bytes()).hexdigest()
