"""Commands that score and show: compare, map, info, report and demo."""

from pathlib import Path
from typing import Annotated, Any

import typer

from brainweave.cli import command as c
from brainweave.cli import files
from brainweave.cli.console import Console, PartlyFailed, UsageError
from brainweave.cli.models import make_aligner, match_and_report, named_aligners

PROTOCOLS = ("held-out", "joint")  # the one that favours nobody first


def compare(
    context: typer.Context,
    study: c.StudyFolder,
    *,
    method: Annotated[
        list[str] | None,
        c.option(
            "Methods, separated by commas or repeated. Default: gdm,none.",
            panel=c.METHOD,
        ),
    ] = None,
    output: c.OutFolder = Path("comparison"),
    n_components: c.Components = None,
    graph: c.Graph = None,
    match: c.Match = None,
    parcels: c.Parcels = None,
    searchlight: c.Radius = None,
    param: c.ScoreParam = None,
    measure: c.Measure = None,
    halves: c.Halves = "category",
    protocol: Annotated[
        str,
        c.score(
            "held-out (test subjects join a finished template), joint (they take part "
            "in the fit, as in the paper, which inflates accuracy), or both."
        ),
    ] = "both",
    n_permutations: Annotated[
        int, c.score("Number of permutations for a p-value.")
    ] = 0,
    report: c.Report = True,
    n_jobs: c.Jobs = None,
    dask: c.Dask = None,
    config: c.Config = None,
    quiet: c.Quiet = False,
) -> None:
    """Compare methods on left-out subjects.

    Classify categories, or match segments of a film. All methods are scored on the same
    samples. Finished folds are kept and not computed again. An option of a method is
    ignored by methods without it. A method that fails gets a row with its error; the
    others still run.
    """
    from brainweave.evaluation.comparison import compare_methods
    from brainweave.evaluation.splits import split_study

    console: Console = context.obj
    if protocol not in (*PROTOCOLS, "both"):
        raise UsageError(f"--protocol must be held-out, joint or both; got {protocol}.")
    subjects = files.open_study(study)
    splitting, scoring, others = c.scoring_params(param)
    if n_permutations:
        scoring["n_permutations"] = n_permutations
    aligners = named_aligners({**context.params, "param": others}, "gdm,none", subjects)
    files.prepare_folder(output)
    people = match_and_report(subjects, match, console)
    split = split_study(people, halves=halves, **splitting)
    split.fingerprint = subjects.fingerprint()  # also of what was matched
    console.resume_hint = "Run the same command again; finished folds are kept."
    options = files.used_options(console)
    with console.progress("Scoring methods") as progress:
        comparison = compare_methods(
            split,
            aligners,
            measure=measure,
            protocols=PROTOCOLS if protocol == "both" else (protocol,),
            store=output / "store",
            n_jobs=n_jobs,
            progress=progress,
            **scoring,
        )
    comparison.save(output)
    files.write_config(output / "compare.toml", "compare", options)
    if report and comparison.results:
        page = {"study": subjects, "results": comparison.results, "config": options}
        lost = [f"{who} was not scored: {e}" for who, e in comparison.errors.items()]
        page |= {"warnings": [*console.warnings, *lost]}
        files.write_page(output / "report.html", console, **page)
    console.result(str(comparison))
    if not comparison.results:
        error = next(iter(comparison.errors.values()))
        raise PartlyFailed(f"None of the methods could be scored: {error}")
    console.note(f"Results are in {output}")


def information_map(
    context: typer.Context,
    study: c.StudyFolder,
    *,
    output: c.OutFolder = Path("map"),
    parcels: c.Parcels = None,
    searchlight: c.Radius = None,
    method: c.Method = "gdm",
    n_components: c.Components = None,
    graph: c.Graph = None,
    match: c.Match = None,
    param: c.ScoreParam = None,
    measure: c.Measure = None,
    halves: c.Halves = "category",
    n_jobs: c.Jobs = None,
    dask: c.Dask = None,
    config: c.Config = None,
    quiet: c.Quiet = False,
) -> None:
    """Map where in the brain subjects share information.

    Align and score every parcel or neighbourhood on held-out samples of left-out
    subjects, with and without alignment. Write images, a table with corrected p-values,
    and a report.
    """
    import brainweave

    console: Console = context.obj
    if (parcels is None) == (searchlight is None):
        raise UsageError("Choose places with --parcels ATLAS or --searchlight MM.")
    people = match_and_report(files.open_study(study), match, console)
    splitting, scoring, others = c.scoring_params(param)
    aligner = make_aligner(method, {**context.params, "param": others}, study=people)
    if searchlight is not None:
        aligner.set_params(spacing=searchlight / 2)
    aligner.set_params(n_jobs=n_jobs)
    files.prepare_folder(output)
    with console.progress("Scoring places") as progress:
        aligner.set_params(progress=lambda *done: progress(*done))
        split = brainweave.split_study(people, halves=halves, **splitting)
        found = brainweave.information_map(aligner, split, measure=measure, **scoring)
    paths = found.save(output)
    files.write_page(output / "report.html", console, information=found)
    files.write_config(output / "map.toml", "map", files.used_options(console))
    console.result(f"{output}: {found} ({len(paths)} files)")


def info(
    context: typer.Context,
    path: Annotated[
        Path, typer.Argument(help="Study folder, model file or basis file.")
    ],
    *,
    verify: Annotated[bool, c.option("Verify all checksums.", "--verify")] = False,
) -> None:
    """Describe a study, a model or a basis file."""
    describe = _describe_study if path.is_dir() else _describe_model
    context.obj.result("\n".join(describe(path, verify)))


def _describe_study(path: Path, verify: bool) -> list[str]:
    from brainweave.study.provenance import cautions, describe_record

    study = files.open_study(path, verify=verify or None)
    shown = [s.labels if study.categories else s.stimuli for s in study]
    orders = {
        tuple(range(s.n_samples) if own is None else own.tolist())
        for s, own in zip(study, shown, strict=True)
    }
    order = "sequences differ: GDM, or --match for time-locked methods"
    if len(orders) == 1:
        order = "the same sequence for all subjects; all methods can be used"
    lines = [
        f"Study {study.name or path.name!r}: {len(study)} subjects",
        f"Categories: {', '.join(map(str, study.categories)) or 'none'}",
        f"Samples: {order}",
        "",
        study.summary().reset_index().to_string(index=False),
    ]
    if done := describe_record(study.record):
        lines += ["", "Preprocessing", *(f"  {name}: {text}" for name, text in done)]
        lines += [f"Warning: {text}" for text in cautions(study.record)]
    return lines


def _describe_model(path: Path, verify: bool) -> list[str]:
    from rich.filesize import decimal

    import brainweave

    found = brainweave.describe(path, verify=verify)
    made, facts = found["provenance"], found["facts"]
    if made.get("subjects"):
        facts = {"subjects": ", ".join(map(str, made["subjects"])), **facts}
    if "command" in made:
        facts = {**facts, "made by": f"{made['command']} {made.get('made', '')}"}
    return [
        f"{path}: {found['what']}",
        f"{found['kind']} file, written by brainweave {found['brainweave']}, "
        f"{decimal(found['n_bytes'])}",
        *(f"  {name}: {value}" for name, value in facts.items()),
    ]


# -- report and demo -------------------------------------------------------------------


def report(
    context: typer.Context,
    out: Annotated[Path, typer.Argument(help="HTML file to write.")],
    *,
    study: Annotated[Path | None, c.option("Study folder.")] = None,
    model: Annotated[Path | None, c.option("Model file.")] = None,
    results: Annotated[
        list[Path] | None,
        c.option("Folder of a comparison, or its results.json. May be repeated."),
    ] = None,
    config: c.Config = None,
    quiet: c.Quiet = False,
) -> None:
    """Write an HTML report on a study, a model and results."""
    from brainweave.evaluation.comparison import Comparison

    console: Console = context.obj
    if study is None and model is None and not results:
        raise UsageError("A report needs --study, --model or --results.")
    if out.suffix.lower() not in (".html", ".htm"):
        raise UsageError(f"The report is an HTML file; got {str(out)!r}.")
    files.check_writable(out, out.with_suffix(".toml"))
    people = None if study is None else files.open_study(study)
    fitted, ids, made = (None, [], {}) if model is None else files.load_model(model)
    if fitted is not None:
        # the report refuses a model of another study than the one given
        fitted.study_fingerprint = made.get("study_fingerprint")
    if people is not None and fitted is not None:
        people = people.subset(subjects=ids)
    scores: dict[str, Any] = {}
    for path in results or []:
        for name, result in Comparison.load(path).results.items():
            scores[f"{path.stem} {name}" if name in scores else name] = result
    page = {"study": people, "model": fitted, "results": scores or None}
    page |= {"warnings": [*made.get("warnings", []), *console.warnings]}
    files.write_page(out, console, config=made.get("options"), **page)
    options = files.used_options(console)
    files.write_config(out.with_suffix(".toml"), "report", options)
    console.result(str(out))


def demo(
    context: typer.Context,
    out: Annotated[Path, typer.Argument(help="Folder for all output.")] = Path(
        "out/demo"
    ),
    *,
    n_subjects: Annotated[int, c.option("Number of simulated subjects.", min=3)] = 8,
    quiet: c.Quiet = False,
) -> None:
    """Simulate a study, align it, score methods, and write a report.

    The subjects saw different sequences, differ in their number of voxels, and miss
    samples, runs and categories, so time-locked methods cannot align them.
    """
    import brainweave
    from brainweave.evaluation.comparison import compare_methods

    console: Console = context.obj
    folder, options = out / "study", files.used_options(console)
    files.prepare_folder(out)
    with console.stage("Simulating"):
        gaps: Any = {"missing_categories": 2, "missing_runs": 2, "missing_samples": 0.1}
        simulated = brainweave.simulate_study(
            n_subjects=n_subjects, random_state=0, **gaps
        )
        study = simulated.save(folder, overwrite=folder.exists())
    gdm = brainweave.GDM()
    methods = {
        "GDM": gdm,
        "GDM as published": brainweave.PaperGDM("auto", energy=0.82),
        "without alignment": brainweave.NoAlignment(),
    }
    with console.progress("Scoring methods") as progress:
        comparison = compare_methods(
            study, methods, protocols=PROTOCOLS, random_state=0, progress=progress
        )
    comparison.save(out)
    with console.stage("Reading and aligning subjects"):
        model = gdm.fit(study)
    made = files.provenance("demo", options, study.ids)
    files.save_model(model, out / "model.safetensors", made, console)
    content = {"study": study, "model": model, "results": comparison.results}
    page = files.write_page(out / "report.html", console, **content)
    console.result(str(comparison))
    console.result(f"Report: {page}")
