"""Commands that score alignments: evaluate, compare, tune."""

import json
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from brainweave.cli.config import effective, write_config, write_whole
from brainweave.cli.console import Console, Tick, table
from brainweave.cli.errors import UsageError, resume_with
from brainweave.cli.methods import make_aligner, matched, open_study, resolved
from brainweave.cli.modelling import StudyFolder, provenance
from brainweave.cli.options import Method, Running, bundled
from brainweave.cli.results import (
    HEADER,
    read_results,
    row_of,
    write_folds,
    write_results,
)

if TYPE_CHECKING:
    from brainweave.evaluation.classification import ClassificationResult
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
        """Give the protocols asked for."""
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
    study: "Study",
    scoring: Scoring,
    *,
    protocol: str,
    method: Method,
    tick: Tick,
) -> "ClassificationResult":
    """Classify the samples of subjects that were left out; tick at each classifier."""
    from brainweave.evaluation.classification import between_subject_classification

    return between_subject_classification(
        aligner,
        study,
        halves=scoring.halves,
        leave_out=scoring.leave_out,
        protocol=protocol,
        classifier=_counted_classifier(lambda: tick(protocol)),
        n_permutations=scoring.n_permutations,
        random_state=method.random_state or 0,
        n_jobs=method.n_jobs,
    )


def _counted_classifier(tick: Callable[[], None]) -> Any:
    """Give the default classifier, telling whenever it was trained."""
    from brainweave.evaluation.classifiers import default_classifier

    plain = default_classifier()
    kind: Any = type(plain)

    class Counted(kind):
        def fit(self, *arguments: Any, **options: Any) -> Any:
            fitted = super().fit(*arguments, **options)
            tick()
            return fitted

    return Counted(**plain.get_params())


def n_classifiers(study: "Study", scoring: Scoring) -> int:
    """Give how many classifiers one evaluation trains: halves, folds, permutations."""
    n_folds = -(-len(study) // max(1, scoring.leave_out))
    return 2 * n_folds * (1 + max(0, scoring.n_permutations))


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
    subjects = matched(open_study(study), method.match)
    prepare_folder(output)
    results: dict[str, ClassificationResult] = {}
    with console.collect_warnings():
        total = len(protocols) * n_classifiers(subjects, scoring)
        with console.stage("Scoring", total) as tick:
            for protocol in protocols:
                name = _name(method.method, protocol, protocols)
                results[name] = score(
                    aligner,
                    subjects,
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


def _show(console: Console, output: Path, results: Any) -> None:
    rows = [row_of(name, result) for name, result in results.items()]
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
    """Score several methods on the same samples; finished ones are not done again."""
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
    subjects = matched(open_study(study), match)
    prepare_folder(output)
    resume_with("Run the same command again: methods that are done are kept.")
    options = effective(context, method=names)
    results: dict[str, ClassificationResult] = {}
    with console.collect_warnings():
        cells = [(n, p) for n in names for p in protocols]
        each = n_classifiers(subjects, scoring)
        settings = {**options, "index": _fingerprint(study)}
        with console.stage("Scoring methods", len(cells) * each) as tick:
            for name, protocol in cells:
                title = _name(name, protocol, protocols)
                cell = _Cell(output / "cells" / f"{name}_{protocol}.json", settings)
                known = cell.known()
                for _ in range(0 if known is None else each):
                    tick(title)
                results[title] = known or cell.keep(
                    score(
                        aligners[name],
                        subjects,
                        scoring,
                        protocol=protocol,
                        method=base,
                        tick=partial(_tick_of, tick, title),
                    )
                )
        _write(output, results, "compare", options)
        rows = [row_of(name, result) for name, result in results.items()]
        lines = ["\t".join(map(str, row)) for row in [HEADER, *rows]]
        write_whole(output / "comparison.tsv", "\n".join(lines) + "\n")
        if scoring.report:
            _report(output, subjects, results, options, console)
    _show(console, output, results)


def _tick_of(tick: Tick, title: str, _: str) -> None:
    tick(title)


def _fingerprint(study: Path) -> str:
    """Give the checksum of a study's index, which lists those of all its files."""
    import hashlib

    return hashlib.sha256((study / "study.json").read_bytes()).hexdigest()


class _Cell:
    """The result of one method, kept so that an interrupted comparison goes on."""

    def __init__(self, path: Path, options: dict[str, Any]) -> None:
        self.path = path
        # what a result depends on; which other methods are compared does not matter
        rest = {"method", "output", "report", "n_jobs"}
        self.settings = {k: v for k, v in options.items() if k not in rest}

    def known(self) -> "ClassificationResult | None":
        beside = self.path.with_suffix(".settings.json")
        if not self.path.is_file() or not beside.is_file():
            return None
        if json.loads(beside.read_text(encoding="utf-8")) != self.settings:
            return None
        return read_results(self.path)["result"]

    def keep(self, result: "ClassificationResult") -> "ClassificationResult":
        write_results(self.path, {"result": result})
        text = json.dumps(self.settings, indent=1)
        write_whole(self.path.with_suffix(".settings.json"), text + "\n")
        return result


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
    search_class, count = _counting_search()
    search = search_class(
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
        with console.stage("Trying settings", n_settings) as tick:
            count.append(tick)
            search.fit(subjects)
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


def _counting_search() -> tuple[Any, list[Tick]]:
    """Give a GDMCV that tells whenever a setting was tried."""
    from brainweave.evaluation.tuning import GDMCV

    ticks: list[Tick] = []

    class Search(GDMCV):
        def _score(self, *arguments: Any, **options: Any) -> Any:
            scored = super()._score(*arguments, **options)
            for tick in ticks:
                tick("")
            return scored

    Search.__name__ = "GDMCV"
    return Search, ticks


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
