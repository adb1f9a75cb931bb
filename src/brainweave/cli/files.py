"""Files and folders that commands read and write; beside them, how they were made."""

import datetime
import json
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from brainweave._core import __version__, versions
from brainweave._core.exceptions import BrainweaveError
from brainweave._core.io import check_can_write, write_text
from brainweave.cli.command import MADE, NOT_WRITTEN
from brainweave.cli.console import Console, UsageError

if TYPE_CHECKING:
    from brainweave.study.study import Study


# -- files and folders to write --------------------------------------------------------


def check_writable(*paths: Path) -> None:
    """Refuse paths that cannot be written to, before any work is done."""
    for path in paths:
        if path.suffix and path.is_dir():
            raise UsageError(f"{str(path)!r} is a folder. Name a file in it.")
        try:
            check_can_write(path)
        except OSError as error:
            raise BrainweaveError(
                f"{str(path)!r} cannot be written ({error.strerror}). Choose another."
            ) from error


def check_new_model(path: Path) -> None:
    """Refuse a model file that cannot be written."""
    if path.suffix != ".safetensors":
        raise UsageError(f"--output must end in .safetensors; got {str(path)!r}.")
    if not path.absolute().parent.is_dir():
        raise UsageError(f"There is no folder {str(path.parent)!r} to write to.")
    check_writable(path, path.with_suffix(".toml"))


def check_new_folder(folder: Path) -> None:
    """Refuse a study folder that is there, or cannot be made."""
    check_writable(folder)
    if folder.exists() or folder.is_symlink():
        raise UsageError(f"{str(folder)!r} exists. Choose another folder.")


def prepare_folder(folder: Path) -> None:
    """Make the folder of the results; refuse one that cannot be written to."""
    folder.mkdir(parents=True, exist_ok=True)
    check_writable(folder / "report.html")


def save_study(
    study: "Study",
    folder: Path,
    console: Console,
    *,
    made_from: dict[str, Any] | None = None,
    **settings: Any,
) -> None:
    """Write a study folder and, in it, the options of the command that made it."""
    with console.stage("Writing subjects", len(study)) as tick:
        saved = study.save(folder, progress=lambda _, __, id: tick(id), **settings)
    origin = {"study_fingerprint": saved.fingerprint(), **(made_from or {})}
    made = provenance(console.command, {}, saved.ids, **origin)
    options = used_options(console)
    write_config(folder / "brainweave.toml", console.command, options, made)


def save_model(model: Any, path: Path, made: Any, console: Console) -> None:
    """Write a model and, beside it, the options of the command that made it."""
    import brainweave

    with console.stage("Writing the model"):
        brainweave.save(model, path, provenance=made)
    _, command, *_ = made["command"].split()
    write_config(path.with_suffix(".toml"), command, made["options"])


def write_page(path: Path, console: Console, **content: Any) -> Path:
    """Write a report, with the warnings of this command; return its path."""
    from brainweave.report import write_report

    with console.stage("Writing the report"):
        return write_report(path, **{"warnings": console.warnings, **content})


# -- studies and models that are there -------------------------------------------------


def open_study(path: Path, **settings: Any) -> "Study":
    """Open a study folder; refuse anything else with a way out."""
    from brainweave.study.study import Study

    if not (path / "study.json").is_file():
        raise UsageError(
            f"{str(path)!r} is not a study folder. Make one with: brainweave convert "
            f"{path} STUDY."
        )
    return Study.open(path, **settings)


def load_model(path: Path) -> tuple[Any, list[str], dict[str, Any]]:
    """Return a model of several subjects, their ids, and its provenance."""
    import brainweave
    from brainweave.aligners.base import BaseAligner

    model = brainweave.load(path)
    if not isinstance(model, BaseAligner):
        raise UsageError(f"{str(path)!r} holds the map of one subject, not a model.")
    ids = getattr(model, "ids_", None)
    if ids is None:
        raise UsageError(
            f"{str(path)!r} does not say who its {model.n_subjects_} subjects are: it "
            "was fitted on arrays, without ids. Fit it on a Study."
        )
    return model, list(ids), brainweave.describe(path)["provenance"]


# -- options as they were used, beside every result ------------------------------------


def used_options(console: Console, **resolved: Any) -> dict[str, Any]:
    """Return all options of the command that runs, with defaults as they were used."""
    from brainweave.persistence.codec import plain

    options = {k: v for k, v in console.params.items() if k not in NOT_WRITTEN}
    options.update(resolved)
    given = {k: v for k, v in options.items() if v not in (None, (), [])}
    return dict(plain(given, other=str))


def write_config(
    path: Path,
    command: str,
    options: Mapping[str, Any],
    made: Mapping[str, Any] | None = None,
) -> None:
    """Write options so that ``--config`` gives the same run again."""
    again = f"brainweave {command} --config {path.name}"
    lines = [f"# brainweave {__version__}; the same again: {again}"]
    for name, table in ((command, options), (MADE, made)):
        if table:
            known = {k: v for k, v in table.items() if v is not None}
            lines += [f"[{name}]", *(f"{k} = {toml(v)}" for k, v in known.items()), ""]
    write_text(path, "\n".join(lines))


def toml(value: Any) -> str:
    r"""Write a value as TOML.

    Examples
    --------
    >>> toml({"energy": 0.82, "names": ["a", 'b"'], "on": True})
    '{"energy" = 0.82, "names" = ["a", "b\\""], "on" = true}'
    """
    if isinstance(value, Mapping):
        # TOML has no value that means none; any key may be written as JSON
        known = {json.dumps(k): toml(v) for k, v in value.items() if v is not None}
        return "{" + ", ".join(f"{k} = {v}" for k, v in known.items()) + "}"
    if isinstance(value, (list, tuple)):
        return "[" + ", ".join(toml(v) for v in value) + "]"
    if isinstance(value, float):
        return repr(value)  # also inf, which JSON does not have
    # JSON's escapes are TOML's, but for the one character TOML forbids in addition
    text = json.dumps(value, ensure_ascii=False, default=str)
    return text.replace("\x7f", "\\u007f")


def provenance(
    command: str, options: dict[str, Any], ids: list[str], **more: Any
) -> dict[str, Any]:
    """Return when, with which command, options and versions something was made."""
    now = datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds")
    return {
        "made": now,
        "command": f"brainweave {command}",
        **({"options": options} if options else {}),
        "subjects": list(ids),
        "versions": versions(),
        **more,
    }
