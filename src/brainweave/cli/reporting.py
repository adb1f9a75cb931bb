"""Commands that score and show: compare, report, info, and demo, the whole way."""

from pathlib import Path
from typing import Annotated, Any

import typer

from brainweave.cli import command as c
from brainweave.cli import files
from brainweave.cli.console import Console, PartlyFailed, UsageError
from brainweave.cli.data import record_lines
from brainweave.cli.models import fit_study, match_and_report, named_aligners

PROTOCOLS = ("held-out", "joint")  # the one that favours nobody first
# parameters of measures that --param sets; all others are those of methods
OF_MEASURES = ("classifier", "window", "step", "enough", "score")


# -- compare ---------------------------------------------------------------------------


def compare(
    context: typer.Context,
    study: c.StudyFolder,
    *,
    method: Annotated[
        list[str] | None,
        c.option(
            "Methods to score, one after another or with commas; gdm,none by default.",
            panel=c.METHOD,
        ),
    ] = None,
    output: c.OutFolder = Path("comparison"),
    n_components: c.Components = None,
    graph: c.Graph = None,
    random_state: c.RandomState = None,
    match: c.Match = None,
    parcels: c.Parcels = None,
    searchlight: c.Radius = None,
    param: c.MethodParam = None,
    measure: c.Measure = None,
    halves: c.Halves = "category",
    block: c.Block = None,
    border: c.Border = 0,
    leave_out: c.LeaveOut = 1,
    protocol: Annotated[
        str,
        c.score(
            "held-out (test subjects join a finished space), joint (the paper's; they "
            "take part in the alignment, which is known to inflate accuracy), or both."
        ),
    ] = "both",
    n_permutations: Annotated[
        int, c.score("Permutations of labels for a p-value.")
    ] = 0,
    report: c.Report = True,
    n_jobs: c.Jobs = None,
    dask: c.Dask = None,
    config: c.Config = None,
    quiet: c.Quiet = False,
) -> None:
    """Score one method or several on subjects that are left out.

    Categories are classified; segments of a film are matched, by what people saw. All
    methods are scored on the same samples, and finished folds are not done again.
    Options of methods apply to those that have them, and --param also sets parameters
    of the measure, such as classifier=nu-svm or window=6. A method that fails gets a
    row with its error; the others still run.
    """
    from brainweave.evaluation.comparison import compare_methods
    from brainweave.evaluation.splits import split_study

    console: Console = context.obj
    if protocol not in (*PROTOCOLS, "both"):
        raise UsageError(
            f"--protocol must be joint, held-out or both; got {protocol!r}."
        )
    subjects = files.open_study(study)
    of_measure = [e for e in param or () if e.partition("=")[0].strip() in OF_MEASURES]
    others = [entry for entry in param or () if entry not in of_measure]
    scoring = c.parse_params(of_measure)
    if n_permutations:
        scoring["n_permutations"] = n_permutations
    aligners = named_aligners({**context.params, "param": others}, "gdm,none", subjects)
    files.prepare_folder(output)
    people = match_and_report(subjects, match, console)
    split = split_study(people, halves=halves, block=block, border=border)
    split.fingerprint = subjects.fingerprint()  # also of what was matched
    console.resume_hint = (
        "Run the same command again: folds of methods that are done are kept."
    )
    options = files.used_options(console)
    with console.progress("Scoring methods") as progress:
        comparison = compare_methods(
            split,
            aligners,
            measure=measure,
            leave_out=leave_out,
            protocols=PROTOCOLS if protocol == "both" else (protocol,),
            random_state=random_state or 0,
            store=output / "store",
            n_jobs=n_jobs,
            progress=progress,
            **scoring,
        )
    comparison.save(output)
    files.write_config(output / "compare.toml", "compare", options)
    if report and comparison.results:
        failed = comparison.errors.items()
        lost = [f"{name} could not be scored: {error}" for name, error in failed]
        page = {"study": subjects, "results": comparison.results, "config": options}
        said = [*console.warnings, *lost]
        files.write_page(output / "report.html", console, **page, warnings=said)
    console.result(str(comparison))
    console.note(f"Results are in {output}")
    if not comparison.results:
        error = next(iter(comparison.errors.values()))
        raise PartlyFailed(f"None of the methods could be scored: {error}")


# -- learning-curve --------------------------------------------------------------------


def learning_curve(
    context: typer.Context,
    study: c.StudyFolder,
    out: Annotated[Path, typer.Argument(help="Folder for the results.")],
    *,
    method: Annotated[
        list[str] | None, c.option("Methods; gdm by default.", panel=c.METHOD)
    ] = None,
    n_components: c.Components = None,
    graph: c.Graph = None,
    random_state: c.RandomState = None,
    param: c.MethodParam = None,
    measure: c.Measure = None,
    fraction: Annotated[
        list[float] | None,
        c.score("Share of the aligning data, 0 to 1; repeatable."),
    ] = None,
    halves: c.Halves = "category",
    leave_out: c.LeaveOut = 1,
    n_jobs: c.Jobs = None,
    config: c.Config = None,
    quiet: c.Quiet = False,
) -> None:
    """Score left-out people by how much aligning data of their own they have.

    At a fraction of 0 they have none and are mapped by what all subjects share, if the
    model has such a map.
    """
    from brainweave.evaluation.learning_curve import FRACTIONS, learning_curve

    console: Console = context.obj
    people = files.open_study(study)
    models = named_aligners(context.params, "gdm", people)
    files.prepare_folder(out)
    how: dict[str, Any] = {"halves": halves, "leave_out": leave_out, "n_jobs": n_jobs}
    how |= {"fractions": fraction or FRACTIONS, "random_state": random_state or 0}
    with console.progress("Scoring amounts") as progress:
        curve = learning_curve(
            models, people, measure=measure, progress=progress, **how
        )
    curve.save(out / "learning_curve.json")
    options = files.used_options(console)
    files.write_config(out / "learning-curve.toml", "learning-curve", options)
    page = {"study": people, "learning_curve": curve, "config": options}
    files.write_page(out / "report.html", console, **page)
    console.result(str(curve))
    console.note(f"Results are in {out}")


# -- info ------------------------------------------------------------------------------


def info(
    context: typer.Context,
    path: Annotated[
        Path, typer.Argument(help="A study folder, a model, or a basis file.")
    ],
    *,
    verify: Annotated[bool, c.option("Compare all checksums.", "--verify")] = False,
    quiet: c.Quiet = False,
) -> None:
    """Show what is in a study or a model, how large it is, and why."""
    if not path.exists():
        raise UsageError(f"There is nothing at {str(path)!r}. Check the path.")
    if not path.is_dir() and path.suffix != ".safetensors":
        raise UsageError(
            f"{str(path)!r} is neither a study folder nor a .safetensors file."
        )
    describe = _describe_study if path.is_dir() else _describe_model
    context.obj.result("\n".join(describe(path, verify)))


def _describe_study(path: Path, verify: bool) -> list[str]:
    from brainweave.study.provenance import cautions

    study = files.open_study(path, verify=verify or None)
    lines = [
        f"Study {study.name or path.name!r}: {len(study)} subjects",
        f"Categories: {', '.join(map(str, study.categories)) or 'none'}",
        f"Samples: {_order_of(study)}",
        "",
        study.summary().reset_index().to_string(index=False),
    ]
    done = record_lines(study.record)
    if done:
        lines += ["", "What was done to the data", *(f"  {line}" for line in done)]
        lines += [f"Warning: {text}" for text in cautions(study.record)]
    return lines


def _order_of(study: Any) -> str:
    """Say which methods the order of the samples allows."""
    from brainweave.plotting.films import read_timeline

    film = None if study.categories else read_timeline(study)
    if film is not None:
        n, seen = film.films.size, film.seen
        films = ", ".join(filter(None, film.names))
        told = f"a film ({films}) of {n} time steps" if films else f"{n} time steps"
        if seen.all():
            return f"{told}, seen by all: any method can align it"
        least, most = seen.sum(axis=1).min(), seen.sum(axis=1).max()
        return (
            f"{told}; subjects saw {least} to {most}, all of them "
            f"{seen.all(axis=0).sum()}: GDM uses what each one saw, methods locked in "
            "time what all saw"
        )
    # row t is the same category in all subjects
    labels = [s.labels.tolist() for s in study if s.labels is not None]
    same_length = len({s.n_samples for s in study}) == 1
    if same_length and all(known == labels[0] for known in labels):
        return "the same sequence for all: any method can align it"
    return "sequences differ: GDM, or --match for methods locked in time"


def _describe_model(path: Path, verify: bool) -> list[str]:
    from rich.filesize import decimal

    import brainweave

    found = brainweave.describe(path, verify=verify)
    made, facts = found["provenance"], found["facts"]
    lines = [
        f"{path}: {found['what']}",
        f"{found['kind']} file, written by brainweave {found['brainweave']}, "
        f"{decimal(found['n_bytes'])}",
        *(f"  {name}: {value}" for name, value in facts.items()),
    ]
    if made.get("subjects") and "subjects" not in facts:
        lines.append(f"  subjects: {', '.join(map(str, made['subjects']))}")
    if "command" in made:
        lines.append(f"  made by: {made['command']} {made.get('made', '')}".rstrip())
    return lines


# -- report and demo -------------------------------------------------------------------


def report(
    context: typer.Context,
    out: Annotated[Path, typer.Argument(help="HTML file to write.")],
    *,
    study: Annotated[Path | None, c.option("Study folder.")] = None,
    model: Annotated[Path | None, c.option("Model file.")] = None,
    results: Annotated[
        list[Path] | None,
        c.option("Folder of a comparison, or its results.json; may be repeated."),
    ] = None,
    config: c.Config = None,
    quiet: c.Quiet = False,
) -> None:
    """Write one HTML file about a study, a model and results."""
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
        missing = [id for id in ids if id not in people.ids]
        if missing:
            raise UsageError(
                f"The study lacks subject {missing[0]!r} of the model. Give the study "
                "that the model was fitted on."
            )
        people = people.subset(subjects=ids)
    scores: dict[str, Any] = {}
    for path in results or []:
        for name, result in Comparison.load(path).results.items():
            scores[f"{path.stem} {name}" if name in scores else name] = result
    files.write_page(
        out,
        console,
        study=people,
        model=fitted,
        results=scores or None,
        config=made.get("options"),
        warnings=[*made.get("warnings", []), *console.warnings],
    )
    options = files.used_options(console)
    files.write_config(out.with_suffix(".toml"), "report", options)
    console.result(str(out))


def demo(
    context: typer.Context,
    out: Annotated[Path, typer.Argument(help="Folder for all that is made.")] = Path(
        "out/demo"
    ),
    *,
    n_subjects: Annotated[int, c.option("Subjects to simulate.", min=3)] = 8,
    config: c.Config = None,
    quiet: c.Quiet = False,
) -> None:
    """Show the whole way: simulate, align, score, and write a report.

    The simulated subjects saw the categories in orders of their own, differ in voxels,
    and lack samples, runs and categories: no method that is locked in time can align
    them.
    """
    import brainweave
    from brainweave.evaluation.comparison import compare_methods

    console: Console = context.obj
    folder, options = out / "study", files.used_options(console)
    files.prepare_folder(out)
    with console.stage("Simulating"):
        simulated = brainweave.simulate_study(
            n_subjects=n_subjects,
            missing_categories=2,
            missing_runs=2,
            missing_samples=0.1,
            random_state=0,
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
    model = fit_study(gdm, study, console)
    made = files.provenance(
        "demo", options, study.ids, study_fingerprint=study.fingerprint()
    )
    files.save_model(model, out / "model.safetensors", made, console)
    content = {"study": study, "model": model, "results": comparison.results}
    page = files.write_page(
        out / "report.html", console, title="brainweave demo", **content
    )
    console.result(str(comparison))
    console.result(f"Report: {page}")
