"""Commands for reading: report, and demo, which shows the whole way."""

import webbrowser
from pathlib import Path
from typing import Annotated, Any

import typer

from brainweave.cli.config import effective, write_config
from brainweave.cli.console import Console, table
from brainweave.cli.data import check_writable
from brainweave.cli.errors import UsageError
from brainweave.cli.methods import open_study
from brainweave.cli.modelling import Subjects, fit_study, load_model
from brainweave.cli.options import Method, Running, bundled
from brainweave.cli.origin import provenance
from brainweave.cli.results import HEADER, read_results, row_of, write_folds
from brainweave.cli.results import write_results as _write_results


@bundled(running=Running)
def report(
    context: typer.Context,
    out: Annotated[Path, typer.Argument(help="HTML file to write.")],
    *,
    study: Annotated[Path | None, typer.Option(help="Study folder.")] = None,
    model: Annotated[Path | None, typer.Option(help="Model file.")] = None,
    results: Annotated[
        list[Path] | None,
        typer.Option(
            help="Folder, or results.json, of evaluate or compare; or several."
        ),
    ] = None,
    title: Annotated[str, typer.Option(help="Heading.")] = "Functional alignment",
    subjects: Subjects = None,
    open_it: Annotated[
        bool, typer.Option("--open", help="Open it in the browser.")
    ] = False,
    running: Running,
) -> None:
    """Write one HTML file about a study, a model and results."""
    from brainweave.report import write_report

    console = Console(running.quiet)
    if study is None and model is None and not results:
        raise UsageError("A report needs --study, --model or --results.")
    if out.suffix.lower() not in (".html", ".htm"):
        raise UsageError(f"The report is an HTML file; got {str(out)!r}.")
    check_writable(out, out.with_suffix(".toml"))
    people = None if study is None else open_study(study)
    fitted, ids, made = (None, [], {}) if model is None else load_model(model, subjects)
    if fitted is not None:
        # the report refuses a model of another study than the one given
        fitted.study_fingerprint = made.get("study_fingerprint")
    if people is not None and fitted is not None:
        people = _in_order(people, ids)
    scores: dict[str, Any] = {}
    for path in results or []:
        found = read_results(path)
        for name, result in found.items():
            known = name in scores
            scores[f"{path.stem} {name}" if known else name] = result
    with console.collect_warnings():
        with console.stage("Writing the report"):
            write_report(
                out,
                study=people,
                model=fitted,
                results=scores or None,
                config=made.get("options"),
                title=title,
                warnings=[*made.get("warnings", []), *console.warnings],
                seconds=made.get("seconds"),
            )
        kept = {k: v for k, v in effective(context).items() if k != "open_it"}
        write_config(out.with_suffix(".toml"), "report", kept)
    console.result(str(out))
    if open_it and not webbrowser.open(out.absolute().as_uri()):
        console.note("No browser was found; open the file by hand.")


def _in_order(study: Any, ids: list[str]) -> Any:
    """Return the model's subjects of a study, in the order of the model."""
    missing = [id for id in ids if id not in study]
    if missing:
        raise UsageError(
            f"The study lacks subject {missing[0]!r} of the model. Give the study that "
            "the model was fitted on."
        )
    return study.subset(subjects=ids)


@bundled(running=Running)
def demo(
    context: typer.Context,
    out: Annotated[Path, typer.Argument(help="Folder for all that is made.")] = Path(
        "out/demo"
    ),
    *,
    study: Annotated[
        Path | None, typer.Option(help="Use this study folder; default: simulate one.")
    ] = None,
    energy: Annotated[
        float, typer.Option(help="Share of the singular values to keep.")
    ] = 0.82,
    n_subjects: Annotated[int, typer.Option(help="Subjects to simulate.")] = 8,
    n_permutations: Annotated[
        int, typer.Option(help="For a p-value; 100 take a few minutes.")
    ] = 0,
    random_state: Annotated[int, typer.Option(help="Seed.")] = 0,
    running: Running,
) -> None:
    """Show the whole way: simulate, align, evaluate, and write a report.

    The simulated subjects saw the categories in orders of their own, differ in voxels,
    and lack samples, runs and categories: no method that is locked in time can align
    them.
    """
    import brainweave
    from brainweave.cli.scoring import (
        PROTOCOLS,
        Scoring,
        n_classifiers,
        prepare_folder,
        score,
    )
    from brainweave.report import write_report

    console = Console(running.quiet)
    people = None if study is None else open_study(study)
    prepare_folder(out)
    with console.collect_warnings():
        if people is None:
            people = _demo_study(out / "study", n_subjects, random_state, console)
        gdm = brainweave.GDM("auto", energy=energy)
        results = {}
        scoring = Scoring(n_permutations=n_permutations)
        rivals: dict[str, tuple[Any, Any, str]] = {}
        anatomy = _anatomically_aligned(people, scoring.halves)
        for protocol in PROTOCOLS:
            rivals[f"GDM ({protocol})"] = (gdm, people, protocol)
            if anatomy is not None:
                none = brainweave.NoAlignment()
                rivals[f"no alignment ({protocol})"] = (none, anatomy, protocol)
        total = len(rivals) * n_classifiers(people, scoring)
        with console.stage("Scoring methods", total) as tick:
            for name, (aligner, data, protocol) in rivals.items():
                results[name] = score(
                    aligner,
                    data,
                    scoring,
                    protocol=protocol,
                    method=Method(random_state=random_state),
                    tick=tick,
                )
        model = fit_study(brainweave.GDM("auto", energy=energy), people, console)
        options = effective(context)
        made = provenance(
            "demo", options, people.ids, study_fingerprint=people.fingerprint()
        )
        brainweave.save(model, out / "model.safetensors", provenance=made)
        _write_results(out / "results.json", results)
        write_folds(out / "folds.tsv", results)
        with console.stage("Writing the report"):
            page = write_report(
                out / "report.html",
                study=people,
                model=model,
                results=results,
                title="brainweave demo",
                warnings=console.warnings,
                seconds=console.seconds,
            )
        write_config(out / "demo.toml", "demo", options)
    console.result(table([row_of(n, r) for n, r in results.items()], HEADER))
    console.result(f"Report: {page}")


def _demo_study(folder: Path, n_subjects: int, seed: int, console: Console) -> Any:
    from brainweave.cli.data import save_study
    from brainweave.study.simulation.simulate import simulate_study
    from brainweave.study.study import Study

    with console.stage("Simulating"):
        study = simulate_study(
            n_subjects=n_subjects,
            missing_categories=min(2, n_subjects - 1),
            missing_runs=min(2, n_subjects - 1),
            missing_samples=0.1,
            random_state=seed,
        )
    save_study(study, folder, console, overwrite=folder.exists())
    return Study.open(folder)


def _anatomically_aligned(study: Any, halves: str) -> Any:
    """Return the study on the voxels that all subjects have; None if unknown."""
    from brainweave.cli.scoring import divided
    from brainweave.exceptions import StudyError

    try:
        return divided(study, None, halves, common=True)
    except StudyError:
        return study if len({s.n_voxels for s in study}) == 1 else None
