"""Commands that score alignments: evaluate, compare, tune."""

import warnings
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from brainweave.cli.config import effective, write_config, write_whole
from brainweave.cli.console import Console, Tick, table
from brainweave.cli.errors import PartlyFailed, UsageError, resume_with
from brainweave.cli.methods import make_aligner, matched, open_study, resolved
from brainweave.cli.modelling import StudyFolder, provenance
from brainweave.cli.options import Method, Running, bundled
from brainweave.cli.results import HEADER, row_of, write_folds, write_results

if TYPE_CHECKING:
    from brainweave.evaluation.grid_result import GridResult
    from brainweave.evaluation.results import ClassificationResult
    from brainweave.evaluation.splits import SplitStudy
    from brainweave.study.study import Study

GROUP = "Evaluation"
PROTOCOLS = ("joint", "held-out")


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
            "joint (the paper's; test subjects take part in the alignment, which is "
            "known to inflate accuracy), held-out, or both."
        ),
    ] = "joint"
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
    from brainweave.evaluation.classification import between_subject_classification

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


def divided(study: "Study", match: str | None, halves: Any) -> "SplitStudy":
    """Split a study; what is matched first is still known as that study."""
    from brainweave.evaluation.splits import split_study

    split = split_study(matched(study, match), halves=halves)
    if match is not None:
        split.fingerprint, split.design["match"] = study.fingerprint(), match
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
    results: dict[str, ClassificationResult] = {}
    with console.collect_warnings():
        total = len(protocols) * n_classifiers(subjects, scoring)
        with console.stage("Scoring", total) as tick:
            split = divided(subjects, method.match, scoring.halves)
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
        typer.Option(help="Method to compare; repeat it. Default: gdm and none."),
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
        random_state=random_state,
        n_jobs=n_jobs,
    )
    aligners = {n: make_aligner(replace(base, method=n), lenient=True) for n in names}
    subjects = open_study(study)
    prepare_folder(output)
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
            for text in found.warnings_of(name):
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
    source = GridStudy(
        study.name or "study",
        partial(divided, study, match, halves),
        leave_out=scoring.leave_out,
        version=f"{_index(path)}, match {match}, halves {halves}",
        shape=(2, len(study)),
    )
    grid = Grid(
        source,
        aligners,
        protocols=scoring.protocols(),
        measure=Classification(None, scoring.n_permutations),
        random_state=method.random_state or 0,
    )
    return run_grid(
        grid, store, n_jobs=method.n_jobs, retry_failed=True, progress=progress
    )


def _in_order(
    found: "GridResult", names: list[str], protocols: tuple[str, ...]
) -> list[tuple[str, str, Any]]:
    results = {(name, p): result for name, p, result in found.classifications()}
    return [(n, p, results[n, p]) for n in names for p in protocols]


def _index(study: Path) -> str:
    """Return the checksum of a study's index, which lists those of all its files."""
    import hashlib

    return hashlib.sha256((study / "study.json").read_bytes()).hexdigest()


@bundled(running=Running)
def tune(
    context: typer.Context,
    study: StudyFolder,
    *,
    energies: Annotated[
        str, typer.Option(help="Energies to try, with commas.")
    ] = "0.2,0.35,0.5,0.65,0.82,1",
    n_components: Annotated[
        str, typer.Option(help="Numbers of components to try, with commas, or auto.")
    ] = "auto",
    kernels: Annotated[
        str,
        typer.Option(help="Kernels to try, with commas; gaussian:5000 sets hp."),
    ] = "linear",
    protocol: Annotated[str, typer.Option(help="joint or held-out.")] = "joint",
    leave_out: Annotated[int, typer.Option(help="Subjects tested at a time.")] = 1,
    n_jobs: Annotated[int | None, typer.Option(help="Subjects at a time.")] = None,
    output: OutFolder = Path("tuning"),
    running: Running,
) -> None:
    """Choose the settings of GDM inside the study; write the best model."""
    import brainweave

    console = Console(running.quiet)
    counts: Any = [c if c == "auto" else _whole(c) for c in _parts(n_components)]
    search = brainweave.GDMCV(
        energies=[_real("energies", e) for e in _parts(energies)],
        n_components=counts,
        kernels=[_kernel(k) for k in _parts(kernels)],
        protocol=protocol,
        leave_out=leave_out,
        n_jobs=n_jobs,
    )
    subjects = open_study(study)
    prepare_folder(output)
    with console.collect_warnings():
        n_settings = len(search.energies) * len(counts) * len(search.kernels)
        with console.counted("Trying settings") as progress:
            search.fit(subjects, progress=progress)
        options = effective(context)
        made = provenance("tune", options, subjects.ids, score=search.best_score_)
        target = output / "model.safetensors"
        brainweave.save(search.best_estimator_, target, provenance=made)
        write_whole(output / "settings.tsv", _settings_table(search.cv_results_))
        best = resolved(search.best_estimator_)
        chosen = {"method": "gdm", **best, "study": str(study)}
        write_config(output / "best.toml", "fit", chosen)
        write_config(output / "tune.toml", "tune", options)
    shown = ", ".join(f"{k} {v}" for k, v in best.items() if k in _SHOWN)
    console.result(f"Best of {n_settings}: {shown}; accuracy {search.best_score_:.3f}")
    console.result(f"{target}; the same by: brainweave fit --config {output}/best.toml")


_SHOWN = ("n_components", "energy", "kernel", "hp")


def _settings_table(found: dict[str, Any]) -> str:
    rows = ["energy\tn_components\tkernel\thp\tmean\tstd\trank\terror"]
    for i, params in enumerate(found["params"]):
        hp = (params["kernel_params"] or {}).get("hp", "n/a")
        cells = [params["energy"], params["n_components"], params["kernel"], hp]
        cells += [found["mean_test_score"][i], found["std_test_score"][i]]
        cells += [found["rank_test_score"][i], found["error"][i] or "n/a"]
        rows.append("\t".join(" ".join(str(c).split()) for c in cells))
    return "\n".join(rows) + "\n"


def _parts(text: str) -> list[str]:
    return [part.strip() for part in str(text).split(",") if part.strip()]


def _real(name: str, text: str) -> float:
    try:
        return float(text)
    except ValueError:
        raise UsageError(f"--{name} takes numbers with commas; got {text!r}.") from None


def _whole(text: str) -> int:
    try:
        return int(text)
    except ValueError:
        raise UsageError(
            f"--n-components takes whole numbers with commas, or auto; got {text!r}."
        ) from None


def _kernel(text: str) -> Any:
    name, colon, hp = text.partition(":")
    return (name, _real("kernels", hp)) if colon else name
