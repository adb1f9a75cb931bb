"""Commands that score and show: compare, report, info, and demo, the whole way."""

import hashlib
import json
import warnings
import webbrowser
from pathlib import Path
from typing import Annotated, Any

import typer

from brainweave.cli import command as c
from brainweave.cli import files
from brainweave.cli.console import Console, PartlyFailed, UsageError
from brainweave.cli.data import record_lines
from brainweave.cli.models import fit_study, make_aligner, match_and_report

PROTOCOLS = ("held-out", "joint")  # the one that favours nobody first


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
    energy: c.Energy = None,
    kernel: c.Kernel = None,
    graph: c.Graph = None,
    random_state: c.RandomState = None,
    match: c.Match = None,
    parcels: c.Parcels = None,
    searchlight: c.Radius = None,
    param: c.MethodParam = None,
    halves: Annotated[
        str,
        c.option(
            "How samples are split, to align with one half and score the other: "
            "category or run.",
            panel=c.SCORE,
        ),
    ] = "category",
    leave_out: Annotated[
        int, c.option("Subjects tested at a time.", panel=c.SCORE)
    ] = 1,
    protocol: Annotated[
        str,
        c.option(
            "held-out (test subjects join a finished space), joint (the paper's; they "
            "take part in the alignment, which is known to inflate accuracy), or both.",
            panel=c.SCORE,
        ),
    ] = "both",
    classifier: Annotated[
        str,
        c.option(
            "nu-svm-means (pairs of categories that overlap go by their means), or "
            "nu-svm, that of LIBSVM and of the paper.",
            panel=c.SCORE,
        ),
    ] = "nu-svm-means",
    n_permutations: Annotated[
        int, c.option("Permutations for a p-value.", panel=c.SCORE)
    ] = 0,
    report: c.Report = True,
    n_jobs: c.Jobs = None,
    dask: c.Dask = None,
    config: c.Config = None,
    quiet: c.Quiet = False,
) -> None:
    """Score one method or several by classifying subjects that are left out.

    All are scored on the same samples, and finished folds are not done again. Options
    of methods apply to those that have them. A method that fails gets a row with its
    error; the others still run.
    """
    from brainweave.evaluation.comparison import compare_methods
    from brainweave.plotting.results import method_label

    console: Console = context.obj
    if protocol not in (*PROTOCOLS, "both"):
        raise UsageError(
            f"--protocol must be joint, held-out or both; got {protocol!r}."
        )
    given = [n.strip() for text in method or ["gdm,none"] for n in text.split(",")]
    names = list(dict.fromkeys(given))
    several = len(names) > 1
    aligners = {
        method_label(n): make_aligner(n, context.params, lenient=several) for n in names
    }
    if several:
        known = {p.split("__")[-1] for a in aligners.values() for p in a.get_params()}
        unknown = "None of these methods has a parameter '{}'"
        c.refuse_unknown(c.parse_params(param), known | {"hp"}, unknown)
    subjects = files.open_study(study)
    files.prepare_folder(output)
    match_and_report(subjects, match, console)
    console.resume_hint = (
        "Run the same command again: folds of methods that are done are kept."
    )
    options = files.used_options(console, method=names)
    with console.progress("Scoring methods") as progress:
        comparison = compare_methods(
            subjects,
            aligners,
            halves=halves,
            leave_out=leave_out,
            protocols=PROTOCOLS if protocol == "both" else (protocol,),
            match=match,
            classifier=classifier,
            n_permutations=n_permutations,
            random_state=random_state or 0,
            store=output / "store",
            # the index of a study lists the checksums of all its files
            version=hashlib.sha256((study / "study.json").read_bytes()).hexdigest(),
            n_jobs=n_jobs,
            progress=progress,
        )
    comparison.save(output)
    files.write_config(output / "compare.toml", "compare", options)
    if report and comparison.results:
        errors = comparison.errors.items()
        lost = [f"{name} could not be scored: {error}" for name, error in errors]
        files.write_page(
            output / "report.html",
            console,
            study=subjects,
            results=comparison.results,
            config=options,
            warnings=[*console.warnings, *lost],
        )
    console.result(str(comparison))
    console.note(f"Results are in {output}")
    if not comparison.results:
        error = next(iter(comparison.errors.values()))
        raise PartlyFailed(f"None of the methods could be scored: {error}")


# -- info ------------------------------------------------------------------------------


def info(
    context: typer.Context,
    path: Annotated[
        Path, typer.Argument(help="A study folder, a model, or a basis file.")
    ],
    *,
    verify: Annotated[bool, c.option("Compare all checksums.", "--verify")] = False,
    as_json: Annotated[bool, c.option("Print JSON.", "--json")] = False,
    config: c.Config = None,
    quiet: c.Quiet = False,
) -> None:
    """Show what is in a study or a model, how large it is, and why."""
    from brainweave.persistence.codec import plain

    console: Console = context.obj
    if not path.exists():
        raise UsageError(f"There is nothing at {str(path)!r}. Check the path.")
    if path.is_dir():
        facts, text = _study(path, verify)
    elif path.suffix == ".safetensors":
        facts, text = _model(path, verify)
    else:
        raise UsageError(
            f"{str(path)!r} is neither a study folder nor a .safetensors file."
        )
    console.result(json.dumps(plain(facts, other=str), indent=1) if as_json else text)


def _study(path: Path, verify: bool) -> tuple[dict[str, Any], str]:
    from brainweave.study.provenance import cautions

    study = files.open_study(path, verify=verify or None)
    frame = study.summary().reset_index()
    # row t is the same category in all subjects
    labels = [s.labels.tolist() for s in study if s.labels is not None]
    same_length = len({s.n_samples for s in study}) == 1
    locked = same_length and all(known == labels[0] for known in labels)
    facts = {
        "path": str(path),
        "name": study.name,
        "categories": study.categories,
        "locked_in_time": locked,
        "subjects": frame.astype(object).to_dict("records"),
        "record": study.record,
    }
    order = (
        "the same sequence for all: any method can align it"
        if locked
        else "sequences differ: GDM, or --match for methods locked in time"
    )
    lines = [
        f"Study {study.name or path.name!r}: {len(study)} subjects",
        f"Categories: {', '.join(map(str, study.categories)) or 'none'}",
        f"Samples: {order}",
        "",
        frame.to_string(index=False),
    ]
    done = record_lines(study.record)
    if done:
        lines += ["", "What was done to the data", *(f"  {line}" for line in done)]
        lines += [f"Warning: {text}" for text in cautions(study.record)]
    return facts, "\n".join(lines)


def _model(path: Path, verify: bool) -> tuple[dict[str, Any], str]:
    import brainweave

    found = brainweave.describe(path, verify=verify)
    facts = {**vars(found), "bytes": found.n_bytes}
    lines = [str(found)]
    subjects = found.provenance.get("subjects")
    if subjects and "subjects" not in found.facts:
        lines.append(f"  subjects: {', '.join(map(str, subjects))}")
    if "command" in found.provenance:
        made = found.provenance.get("made", "")
        lines.append(f"  made by: {found.provenance['command']} {made}".rstrip())
    return facts, "\n".join(lines)


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
    title: Annotated[str, c.option("Heading.")] = "Functional alignment",
    subjects: c.Subjects = None,
    open_it: Annotated[bool, c.option("Open it in the browser.", "--open")] = False,
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
    fitted, ids, made = (
        (None, [], {}) if model is None else files.load_model(model, subjects)
    )
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
        title=title,
        warnings=[*made.get("warnings", []), *console.warnings],
        seconds=made.get("seconds"),
    )
    kept = {k: v for k, v in files.used_options(console).items() if k != "open_it"}
    files.write_config(out.with_suffix(".toml"), "report", kept)
    console.result(str(out))
    if open_it and not webbrowser.open(out.absolute().as_uri()):
        console.note("No browser was found; open the file by hand.")


def demo(
    context: typer.Context,
    out: Annotated[Path, typer.Argument(help="Folder for all that is made.")] = Path(
        "out/demo"
    ),
    *,
    study: Annotated[
        Path | None, c.option("Use this study folder; default: simulate one.")
    ] = None,
    n_subjects: Annotated[int, c.option("Subjects to simulate.")] = 8,
    n_permutations: Annotated[
        int, c.option("For a p-value; 100 take a few minutes.")
    ] = 0,
    random_state: c.Seed = 0,
    config: c.Config = None,
    quiet: c.Quiet = False,
) -> None:
    """Show the whole way: simulate, align, score, and write a report.

    The simulated subjects saw the categories in orders of their own, differ in voxels,
    and lack samples, runs and categories: no method that is locked in time can align
    them.
    """
    import brainweave
    from brainweave.evaluation.comparison import Comparison, compare_methods

    console: Console = context.obj
    people = None if study is None else files.open_study(study)
    n_subjects = n_subjects if people is None else len(people)
    if n_subjects < 3:
        what = "--n-subjects must be" if people is None else f"{study} must have"
        raise UsageError(
            f"{what} 3 or more: one subject is tested in a space that two or more "
            f"others made; got {n_subjects}."
        )
    files.prepare_folder(out)
    if people is None:
        people = _demo_study(out / "study", n_subjects, random_state, console)
    gdm = brainweave.PaperGDM("auto", energy=0.82)
    methods = {"GDM": gdm, "without alignment": brainweave.NoAlignment()}
    with console.progress("Scoring methods") as progress, warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="The masks differ")
        found = compare_methods(
            people,
            methods,
            protocols=PROTOCOLS,
            n_permutations=n_permutations,
            random_state=random_state,
            progress=progress,
        )
    if lost := [error for name, error in found.errors.items() if name[:3] == "GDM"]:
        raise PartlyFailed(f"GDM could not be scored: {lost[0]}")
    comparison = Comparison(found.results)  # voxels may not correspond: no baseline
    model = fit_study(gdm, people, console)
    options = files.used_options(console)
    made = files.provenance(
        "demo", options, people.ids, study_fingerprint=people.fingerprint()
    )
    brainweave.save(model, out / "model.safetensors", provenance=made)
    comparison.save(out)
    files.write_config(out / "demo.toml", "demo", options)
    content = {"study": people, "model": model, "results": comparison.results}
    page = files.write_page(
        out / "report.html", console, title="brainweave demo", **content
    )
    console.result(str(comparison))
    console.result(f"Report: {page}")


def _demo_study(folder: Path, n_subjects: int, seed: int, console: Console) -> Any:
    from brainweave.study.simulation import simulate_study

    with console.stage("Simulating"):
        study = simulate_study(
            n_subjects=n_subjects,
            missing_categories=2,
            missing_runs=2,
            missing_samples=0.1,
            random_state=seed,
        )
    files.save_study(
        study, folder, console, with_config=False, overwrite=folder.exists()
    )
    return files.open_study(folder)
