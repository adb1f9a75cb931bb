"""Read a study from files or a folder of any supported format."""

import inspect
from collections.abc import Callable, Sequence
from dataclasses import fields, is_dataclass
from os import PathLike
from pathlib import Path
from typing import Any, get_args, get_type_hints

from brainweave._core.exceptions import InputError
from brainweave.study.spaces import read_table
from brainweave.study.study import Study

IMAGES = ("nifti", "cifti", "gifti")
ENDINGS = {
    "matlab": (".mat",),
    "cifti": (".dtseries.nii", ".dscalar.nii"),
    "gifti": (".gii",),
    "nifti": (".nii", ".nii.gz"),
}


def load_study(
    paths: str | PathLike[str] | Sequence[str | PathLike[str]],
    *,
    subjects: Sequence[str] | None = None,
    labels: str | PathLike[str] | None = None,
    name: str | None = None,
    **options: Any,
) -> Study:
    """Read a BIDS or study folder, or the files of all subjects, in one format.

    `labels` is a ``.tsv`` table with a column ``label`` or ``stimulus`` or both and, if
    subjects differ, ``subject``; `options` are those of the format's own function.
    """
    import brainweave

    listed = [paths] if isinstance(paths, str | PathLike) else paths
    inputs = [Path(path) for path in listed]
    kind = _format_of(inputs)
    given = {"subjects": subjects, "labels": labels, "name": name, **options}
    given = {k: v for k, v in given.items() if v is not None or k in options}
    if kind == "study":
        study = Study.open(inputs[0])
        study = study if subjects is None else study.subset(subjects)
        study.name = study.name if name is None else name
        if others := given.keys() - {"subjects", "name"}:
            raise InputError(f"A study folder is copied without {', '.join(others)}.")
        return study
    source: Any = inputs[0] if kind == "bids" else inputs
    if kind in IMAGES:
        source = _images_by_subject(inputs, given)
    if labels is not None and (kind in IMAGES or Path(labels).suffix == ".tsv"):
        del given["labels"]
        given |= _read_labels(Path(labels))
    loader = getattr(brainweave, f"load_{kind}")
    known = option_names(loader)[1:]
    if kind in IMAGES:
        known += option_names(brainweave.load_nifti)[2:]
    for option in given.keys() - known:
        raise InputError(
            f"load_{kind} has no option {option!r}. It has {', '.join(known)}.",
            parameter=option,
        )
    study = call_with(loader, source, **given)
    if labels is not None and study.record is not None:
        study.record["settings"]["labels"] = Path(labels).name
    return study


def _settings_of(function: Callable[..., Any]) -> dict[str, Any]:
    """Return the kinds of settings objects that a function takes, by parameter."""
    hints = get_type_hints(function).items()
    return {n: k for n, hint in hints for k in get_args(hint) if is_dataclass(k)}


def option_names(function: Callable[..., Any]) -> list[str]:
    """List the options of a function, with the fields of settings that it takes."""
    kinds, names = _settings_of(function), []
    for name in inspect.signature(function).parameters:
        names += [f.name for f in fields(kinds[name])] if name in kinds else [name]
    return names


def call_with(function: Callable[..., Any], *args: Any, **options: Any) -> Any:
    """Call a function with options, some of which are fields of its settings."""
    for parameter, kind in _settings_of(function).items():
        names = [field.name for field in fields(kind) if field.name in options]
        if names:
            options[parameter] = kind(**{name: options.pop(name) for name in names})
    return function(*args, **options)


def _images_by_subject(inputs: list[Path], options: dict[str, Any]) -> dict[str, Any]:
    """Return the files of each subject that is wanted."""
    paths: dict[str, list[Path]] = {}
    for path in inputs:
        stem = path.name
        for ending in (".gz", ".nii", ".gii", ".dtseries", ".dscalar", ".func"):
            stem = stem.removesuffix(ending)
        stem = stem.replace("_hemi-L", "").replace("_hemi-R", "")
        is_bids = stem.startswith("sub-")
        id = stem.split("_")[0].removeprefix("sub-") if is_bids else stem
        paths.setdefault(id, []).append(path)
    wanted = options.pop("subjects", None) or list(paths)
    ids = [id.removeprefix("sub-") for id in wanted]
    for id in set(ids) - set(paths):
        raise InputError(
            f"There is no file of subject {id!r}; there are {list(paths)}."
        )
    return {id: paths[id] for id in ids}


def _format_of(inputs: list[Path]) -> str:
    """Return the format that the names of files, or the content of a folder, show."""
    for path in inputs:
        if not path.exists():
            raise InputError(f"There is no file {str(path)!r}. Check the path.")
    for kind, endings in ENDINGS.items():
        if all(path.name.lower().endswith(endings) for path in inputs):
            return kind
    for kind, pattern in (("study", "study.json"), ("bids", "sub-*")):
        if len(inputs) == 1 and any(inputs[0].glob(pattern)):
            return kind
    raise InputError(
        f"The format of {', '.join(map(repr, map(str, inputs)))} is not clear. Name "
        "one BIDS or study folder, or files that all end in .mat, .nii(.gz) or .gii."
    )


def _read_labels(path: Path) -> dict[str, Any]:
    """Read a table with columns label, stimulus and, if subjects differ, subject."""
    if not path.is_file():
        raise InputError(f"There is no file {str(path)!r} with labels.")
    table = read_table(path, dtype=str, keep_default_na=False)
    columns = {"labels": "label", "stimuli": "stimulus"}
    columns = {what: column for what, column in columns.items() if column in table}
    if not len(table) or not columns:
        raise InputError(
            f"{str(path)!r} must be a .tsv table with a column 'label' or 'stimulus'."
        )
    table = table.fillna("")  # of rows that end early
    if "subject" not in table:
        return {what: table[column].tolist() for what, column in columns.items()}
    groups = table.groupby(table["subject"].str.removeprefix("sub-"), sort=False)
    return {
        what: {id: values.tolist() for id, values in groups[column]}
        for what, column in columns.items()
    }
