"""The command that says what a file or folder holds: info."""

import json
from pathlib import Path
from typing import Any

from brainweave.cli.console import Console, table
from brainweave.cli.data import record_lines
from brainweave.cli.errors import UsageError
from brainweave.cli.options import argument, command, option
from brainweave.cli.studies import open_study


@command()
def info(
    path: Path = argument("A study folder, a model, or a basis file."),
    verify: bool = option("Compare all checksums.", "--verify", default=False),
    as_json: bool = option("Print JSON.", "--json", default=False),
    *,
    console: Console,
) -> None:
    """Say what is in a study or a model, how large it is, and why."""
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
    from brainweave.study.told import cautions

    study = open_study(path, verify=verify or None)
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
    if subjects:
        lines.append(f"  subjects: {', '.join(map(str, subjects))}")
    if "command" in found.provenance:
        made = found.provenance.get("made", "")
        lines.append(f"  made by: {found.provenance['command']} {made}".rstrip())
    return facts, "\n".join(lines)
