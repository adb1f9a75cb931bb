"""Find out what files are, and read them as a study."""

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from brainweave.cli.errors import UsageError

if TYPE_CHECKING:
    from brainweave.study.study import Study

_BIDS_ONLY = (
    *("task", "space", "samples", "label", "stimulus", "ignore", "overlap"),
    *("hrf_delay", "hrf_model", "confounds", "scrub"),
)
FORMATS = ("auto", "bids", "nifti", "matlab", "openfmri", "study")


def load_any(inputs: list[Path], form: str, options: dict[str, Any]) -> "Study":
    """Read files of any supported kind.

    Parameters
    ----------
    inputs : list of Path
        A folder, or files.
    form : str
        One of the formats, or "auto" to look.
    options : dict
        For the reader.
    """
    for path in inputs:
        if not path.exists():
            raise UsageError(f"There is no {str(path)!r}. Check the path.")
    if form not in FORMATS:
        raise UsageError(f"--format must be one of {', '.join(FORMATS)}; got {form!r}.")
    kind = guess_format(inputs) if form == "auto" else form
    readers: dict[str, Callable[..., Study]] = {
        "bids": _bids,
        "nifti": _nifti,
        "matlab": _matlab,
        "openfmri": _openfmri,
        "study": _copy,
    }
    return readers[kind](inputs, dict(options))


def guess_format(inputs: list[Path]) -> str:
    """Tell the format of files from their names and neighbours."""
    names = [path.name.lower() for path in inputs]
    if all(name.endswith(".mat") for name in names):
        return "matlab"
    if all(name.endswith((".nii", ".nii.gz")) for name in names):
        return "nifti"
    if len(inputs) == 1 and inputs[0].is_dir():
        folder = inputs[0]
        if (folder / "study.json").is_file():
            return "study"
        if any(folder.glob("sub-*")):
            return "bids"
        if any(folder.glob("sub[0-9]*")):
            return "openfmri"
        files = sorted(
            p.name for e in ("*.mat", "*.nii", "*.nii.gz") for p in folder.glob(e)
        )
        if files:
            raise UsageError(
                f"'{folder}' is a folder with files such as '{files[0]}': name the "
                f"files themselves, brainweave convert {folder / files[0]} ... STUDY."
            )
    raise UsageError(
        f"What {', '.join(map(repr, map(str, inputs)))} holds is not clear: neither "
        "BIDS (folders sub-...), nor OpenfMRI (sub001), nor .mat or .nii.gz files. "
        "Say it with --format."
    )


def _one_folder(inputs: list[Path], what: str) -> Path:
    if len(inputs) != 1 or not inputs[0].is_dir():
        raise UsageError(f"A {what} dataset is one folder; got {len(inputs)} paths.")
    return inputs[0]


def _checked(function: Any, options: dict[str, Any], what: str) -> dict[str, Any]:
    from brainweave.study.options import option_names

    known = option_names(function)
    for name in options:
        if name not in known:
            raise UsageError(
                f"{what} files have no option {name.replace('_', '-')!r}; there are "
                f"{', '.join(known[1:])}."
            )
    return options


def _bids(inputs: list[Path], options: dict[str, Any]) -> "Study":
    from brainweave.study.formats.bids.load import load_bids

    _refuse(options, "labels", "BIDS datasets bring their labels in events files.")
    folder = _one_folder(inputs, "BIDS")
    return load_bids(folder, **_checked(load_bids, options, "BIDS"))


def _openfmri(inputs: list[Path], options: dict[str, Any]) -> "Study":
    from brainweave.study.formats.openfmri import load_openfmri

    _refuse(options, "labels", "OpenfMRI datasets bring their labels in onset files.")
    _refuse(options, "space", "OpenfMRI datasets have no spaces.")
    folder = _one_folder(inputs, "OpenfMRI")
    if "task" in options:
        options["task"] = _number("task", options["task"])
    return load_openfmri(folder, **_checked(load_openfmri, options, "OpenfMRI"))


def _matlab(inputs: list[Path], options: dict[str, Any]) -> "Study":
    from brainweave.study.formats.matlab import load_matlab

    if "labels" in options and Path(options["labels"]).suffix == ".tsv":
        options["labels"] = read_labels(Path(options["labels"]))
        if isinstance(options["labels"], dict):
            options["labels"] = list(options["labels"].values())
    return load_matlab(inputs, **_checked(load_matlab, options, "MATLAB"))


def _nifti(inputs: list[Path], options: dict[str, Any]) -> "Study":
    from brainweave.study.formats.images import load_nifti

    for name in _BIDS_ONLY:
        _refuse(options, name, "it needs a BIDS dataset.")
    wanted = options.pop("subjects", None)
    files: dict[str, list[Path]] = {}
    for path in inputs:
        files.setdefault(_subject_of(path), []).append(path)
    if wanted is not None:
        ids = [id.removeprefix("sub-") for id in wanted]
        unknown = [id for id in ids if id not in files]
        if unknown:
            raise UsageError(
                f"There is no file of subject {unknown[0]!r}; there are "
                f"{', '.join(files)}."
            )
        files = {id: files[id] for id in ids}
    if "labels" in options:
        options["labels"] = read_labels(Path(options["labels"]))
    return load_nifti(files, **options)


def _subject_of(path: Path) -> str:
    """Take the subject's id from a file's name.

    Examples
    --------
    >>> _subject_of(Path("sub-07_task-faces_run-1_bold.nii.gz"))
    '07'
    >>> _subject_of(Path("anna.nii.gz"))
    'anna'
    """
    stem = path.name.removesuffix(".gz").removesuffix(".nii")
    return stem.split("_")[0].removeprefix("sub-") if stem[:4] == "sub-" else stem


def _copy(inputs: list[Path], options: dict[str, Any]) -> "Study":
    from brainweave.cli.methods import open_study

    study = open_study(_one_folder(inputs, "study"))
    wanted = options.pop("subjects", None)
    name = options.pop("name", None)
    if options:
        raise UsageError(f"A study folder is copied without {', '.join(options)}.")
    if wanted is not None:
        study = study.subset(subjects=wanted)
    if name is not None:
        study.name = name
    return study


def read_labels(path: Path) -> Any:
    """Read a table with columns label and, if subjects differ, subject."""
    import csv

    if not path.is_file():
        raise UsageError(f"There is no file {str(path)!r} with labels.")
    with path.open(encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file, delimiter="\t"))
    if not rows or "label" not in rows[0]:
        raise UsageError(f"{str(path)!r} must be a .tsv table with a column 'label'.")
    if "subject" not in rows[0]:
        return [row["label"] for row in rows]
    labels: dict[str, list[str]] = {}
    for row in rows:
        labels.setdefault(row["subject"].removeprefix("sub-"), []).append(row["label"])
    return labels


def _refuse(options: dict[str, Any], name: str, why: str) -> None:
    if options.get(name) is not None:
        raise UsageError(f"--{name.replace('_', '-')} cannot be used here: {why}")


def _number(name: str, text: Any) -> int:
    try:
        return int(text)
    except ValueError:
        raise UsageError(f"--{name} must be a number here; got {text!r}.") from None
