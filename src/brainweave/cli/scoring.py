"""Commands that score alignments: evaluate and compare."""

import re
import warnings
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

import typer

from brainweave._io import write_text
from brainweave.cli.config import effective, write_config
from brainweave.cli.console import Console, table
from brainweave.cli.errors import PartlyFailed, UsageError, resume_with
from brainweave.cli.methods import (
    Method,
    Parcels,
    SearchlightRadius,
    make_aligner,
    resolved,
)
from brainweave.cli.options import Engine, OutFolder, StudyFolder, command, option
from brainweave.cli.results import HEADER, row_of, write_folds, write_results
from brainweave.cli.studies import (
    matched,
    on_common_voxels,
    open_study,
    prepare_folder,
    tell_matching,
)

if TYPE_CHECKING:
    from brainweave.evaluation.results import ClassificationResult
    from brainweave.evaluation.splits import SplitStudy
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
    report: bool = option(
        "Write report.html too.", "--report/--no-report", default=True
    )

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
    n_subjects: int,
    scoring: Scoring,
    *,
    seed: int | None,
    n_jobs: int | None = None,
    console: Console,
) -> "dict[str, ClassificationResult]":
    """Score (aligner, study, protocol) one after another; a bar counts all steps."""
    from brainweave.evaluation.evaluate import between_subject_classification
    from brainweave.evaluation.measures import Classification

    n_folds = -(-n_subjects // max(1, scoring.leave_out))
    n_steps = 2 * n_folds * Classification(None, scoring.n_permutations).n_steps()
    results = {}
    with console.stage(title, len(rivals) * n_steps) as tick:
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
                progress=lambda *_, what=protocol: tick(what),
            )
    return results


def divided(
    study: "Study", match: str | None, halves: Any, *, common: bool = False
) -> "SplitStudy":
    """Split a study; what is matched or cut first is still known as that study."""
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


@command(method=Method, scoring=Scoring, engine=Engine)
def evaluate(
    context: typer.Context,
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
        len(subjects),
        scoring,
        seed=method.random_state,
        n_jobs=method.n_jobs,
        console=console,
    )
    options = effective(context, **resolved(aligner))
    write_scores(output, results, "evaluate", options)
    if scoring.report:
        write_page(output, console, study=subjects, results=results, config=options)
    console.result(table([row_of(*item) for item in results.items()], HEADER))
    console.result(str(output))


def _name(method: str, protocol: str, protocols: tuple[str, ...]) -> str:
    return method if len(protocols) == 1 else f"{method} ({protocol})"


def write_scores(
    output: Path,
    results: "dict[str, ClassificationResult]",
    command: str,
    options: dict[str, Any],
) -> None:
    """Write results, folds and options to a folder."""
    write_results(output / "results.json", results)
    write_folds(output / "folds.tsv", results)
    write_config(output / f"{command}.toml", command, options)


def write_page(output: Path, console: Console, **content: Any) -> Path:
    """Write the report of a folder; return its path."""
    from brainweave.report import write_report

    with console.stage("Writing the report"):
        return write_report(
            output / "report.html",
            warnings=console.warnings,
            seconds=console.seconds,
            **content,
        )


@command(scoring=Scoring, engine=Engine)
def compare(
    context: typer.Context,
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
    options = effective(context, method=names)
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
    for protocol in protocols:
        for name in names:
            result = outcomes[name, protocol]
            if isinstance(result, str):
                failed.append([name, protocol, *["n/a"] * (len(HEADER) - 2), result])
            else:
                results[_name(name, protocol, protocols)] = result
    for name in names:
        for text in _said_once(found.warnings_of(name)):
            warnings.warn(f"{name}: {text}", stacklevel=1)
    rows = [row_of(*item) for item in results.items()]
    with_error = [*([*row, ""] for row in rows), *failed]
    lines = [
        "\t".join(" ".join(str(cell).split()) for cell in row)
        for row in [[*HEADER, "error"], *with_error]
    ]
    write_text(output / "comparison.tsv", "\n".join(lines) + "\n")
    if results:
        write_scores(output, results, "compare", options)
        if scoring.report:
            write_page(output, console, study=subjects, results=results, config=options)
    if failed:
        console.result(table(with_error, [*HEADER, "error"]))
    else:
        console.result(table(rows, HEADER))
    console.result(str(output))
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
