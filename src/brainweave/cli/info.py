"""The command that says what a file or folder holds: info."""

import json
from pathlib import Path
from typing import Annotated, Any

import typer

from brainweave.cli.console import Console, table
from brainweave.cli.errors import UsageError
from brainweave.cli.options import Running, bundled


@bundled(running=Running)
def info(
    path: Annotated[
        Path, typer.Argument(help="A study folder, a model, or a basis file.")
    ],
    verify: Annotated[
        bool, typer.Option("--verify", help="Compare all checksums.")
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
    *,
    running: Running,
) -> None:
    """Say what is in a study or a model, how large it is, and why."""
    console = Console(running.quiet)
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
    console.result(json.dumps(facts, indent=1, default=str) if as_json else text)


def _study(path: Path, verify: bool) -> tuple[dict[str, Any], str]:
    from brainweave.cli.data import record_lines
    from brainweave.cli.methods import open_study
    from brainweave.study.study import Study
    from brainweave.study.told import cautions

    study = open_study(path)
    if verify:
        study = Study.open(path, verify=True)
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
    named = ", ".join(map(str, study.categories)) or "none"
    order = (
        "the same sequence for all: any method can align it"
        if locked
        else "sequences differ: GDM, or --match for methods locked in time"
    )
    lines = [
        f"Study {study.name or path.name!r}: {len(study)} subjects",
        f"Categories: {named}",
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
    first = study.subjects[0]
    for subject in study:
        if subject.n_samples != first.n_samples:
            return False
        a, b = first.labels, subject.labels
        if a is not None and b is not None and a.tolist() != b.tolist():
            return False
    return True


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
    if subjects:
        lines.append(f"  subjects: {', '.join(map(str, subjects))}")
    if "command" in found.provenance:
        made = found.provenance.get("made", "")
        lines.append(f"  made by: {found.provenance['command']} {made}".rstrip())
    return facts, "\n".join(lines)
