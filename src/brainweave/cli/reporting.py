"""Commands for reading: info, report, and demo, which shows the whole way."""

import json
import webbrowser
from pathlib import Path
from typing import Any

from brainweave.cli import files
from brainweave.cli.console import Console, UsageError, table
from brainweave.cli.data import record_lines
from brainweave.cli.methods import fit_study, split_matched
from brainweave.cli.options import Subjects, argument, command, option
from brainweave.cli.scoring import (
    HEADER,
    PROTOCOLS,
    Scoring,
    conclusion,
    read_results,
    result_rows,
    score_all,
    table_note,
    write_scores,
)


@command()
def info(
    path: Path = argument("A study folder, a model, or a basis file."),
    verify: bool = option("Compare all checksums.", default=False),
    as_json: bool = option("Print JSON.", "--json", default=False),
    *,
    console: Console,
) -> None:
    """Say what is in a study or a model, how large it is, and why."""
    from brainweave.persistence.codec import plain

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
    if as_json:
        text = json.dumps(plain(facts, other=str), indent=1)
    console.result(text)


def _study(path: Path, verify: bool) -> tuple[dict[str, Any], str]:
    from brainweave.study.provenance import cautions

    study = files.open_study(path, verify=verify or None)
    frame = study.summary().reset_index()
    rows = frame.astype(object).values.tolist()
    header = [str(c) for c in frame.columns]
    locked = _locked(study)
    facts = {
        "path": str(path),
        "name": study.name,
        "categories": study.categories,
        "locked_in_time": locked,
        "subjects": [dict(zip(header, row, strict=True)) for row in rows],
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
        table(rows, header),
    ]
    done = record_lines(study.record)
    if done:
        lines += ["", "What was done to the data", *(f"  {line}" for line in done)]
        lines += [f"Warning: {text}" for text in cautions(study.record)]
    return facts, "\n".join(lines)


def _locked(study: Any) -> bool:
    """Whether row t is the same category, or stimulus, in all subjects."""
    lengths = {s.n_samples for s in study}
    labels = [s.labels.tolist() for s in study if s.labels is not None]
    return len(lengths) == 1 and all(known == labels[0] for known in labels)


def _model(path: Path, verify: bool) -> tuple[dict[str, Any], str]:
    import brainweave

    found = brainweave.describe(path, verify=verify)
    facts = {
        "path": str(path),
        "kind": found.kind,
        "format_version": found.version,
        "brainweave": found.brainweave,
        "what": found.what,
        "facts": found.facts,
        "provenance": found.provenance,
        "bytes": found.n_bytes,
        "parts": {k: {"bytes": n, "why": why} for k, (n, why) in found.parts.items()},
    }
    lines = [str(found)]
    subjects = found.provenance.get("subjects")
    if subjects and "subjects" not in found.facts:
        lines.append(f"  subjects: {', '.join(map(str, subjects))}")
    if "command" in found.provenance:
        made = found.provenance.get("made", "")
        lines.append(f"  made by: {found.provenance['command']} {made}".rstrip())
    return facts, "\n".join(lines)


@command()
def report(
    out: Path = argument("HTML file to write."),
    *,
    study: Path | None = option("Study folder."),
    model: Path | None = option("Model file."),
    results: list[Path] | None = option(
        "Folder, or results.json, of evaluate or compare; or several."
    ),
    title: str = option("Heading.", default="Functional alignment"),
    subjects: Subjects = None,
    open_it: bool = option("Open it in the browser.", "--open", default=False),
    console: Console,
) -> None:
    """Write one HTML file about a study, a model and results."""
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
        for name, result in read_results(path).items():
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


@command()
def demo(
    out: Path = argument("Folder for all that is made.", Path("out/demo")),
    *,
    study: Path | None = option("Use this study folder; default: simulate one."),
    energy: float = option("Share of the singular values to keep.", default=0.82),
    n_subjects: int = option("Subjects to simulate.", default=8),
    n_permutations: int = option("For a p-value; 100 take a few minutes.", default=0),
    random_state: int = option("Seed.", default=0),
    console: Console,
) -> None:
    """Show the whole way: simulate, align, evaluate, and write a report.

    The simulated subjects saw the categories in orders of their own, differ in voxels,
    and lack samples, runs and categories: no method that is locked in time can align
    them.
    """
    import brainweave

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
    scoring = Scoring(n_permutations=n_permutations)
    gdm = brainweave.PaperGDM("auto", energy=energy)
    rivals: dict[str, tuple[Any, Any, str]] = {}
    anatomy = _anatomically_aligned(people, scoring.halves)
    for protocol in PROTOCOLS:
        rivals[f"GDM ({protocol})"] = (gdm, people, protocol)
        if anatomy is not None:
            none = brainweave.NoAlignment()
            rivals[f"without alignment ({protocol})"] = (none, anatomy, protocol)
    results = score_all(
        "Scoring methods", rivals, scoring, seed=random_state, console=console
    )
    model = fit_study(brainweave.PaperGDM("auto", energy=energy), people, console)
    options = files.used_options(console)
    made = files.provenance(
        "demo", options, people.ids, study_fingerprint=people.fingerprint()
    )
    brainweave.save(model, out / "model.safetensors", provenance=made)
    write_scores(out, results, options, console)
    content = {"study": people, "model": model, "results": results}
    page = files.write_page(
        out / "report.html", console, title="brainweave demo", **content
    )
    console.result(f"{table(result_rows(results), HEADER)}\n{table_note(results)}")
    console.result(conclusion(results))
    console.result(f"Report: {page}")


def _demo_study(folder: Path, n_subjects: int, seed: int, console: Console) -> Any:
    from brainweave.study.simulation.simulate import simulate_study

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


def _anatomically_aligned(study: Any, halves: str) -> Any:
    """Return the study on the voxels that all subjects have; None if unknown."""
    from brainweave._core.exceptions import StudyError

    try:
        return split_matched(study, None, halves, common=True)
    except StudyError:
        return study if len({s.n_voxels for s in study}) == 1 else None
