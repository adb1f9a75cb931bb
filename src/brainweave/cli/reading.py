"""How files become a study: the options of BIDS data, and readers of all formats."""

from dataclasses import dataclass, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from brainweave.cli.errors import UsageError
from brainweave.cli.methods import number_or
from brainweave.cli.options import option, refuse_unknown
from brainweave.cli.studies import open_study

if TYPE_CHECKING:
    from brainweave.study.study import Study

# what nilearn's load_confounds calls its components
COMPONENTS = (
    *("motion", "high_pass", "wm_csf", "global_signal", "compcor", "ica_aroma"),
    *("scrub", "non_steady_state"),
)
STRATEGIES = ("simple", "scrubbing", "compcor", "ica_aroma")
FORMATS = ("auto", "bids", "nifti", "cifti", "gifti", "matlab", "openfmri", "study")
ENDINGS = {
    "matlab": (".mat",),
    "cifti": (".dtseries.nii", ".dscalar.nii"),
    "gifti": (".gii",),
    "nifti": (".nii", ".nii.gz"),
}


@dataclass
class Reading:
    """What becomes a sample, and what is removed from it."""

    panel: ClassVar[str] = "How to read BIDS data"
    participant_label: list[str] | None = option(
        "Subjects, with or without sub-; all by default. Several may follow.",
        "--participant-label",
        "--participant_label",
    )
    task: str | None = option("Task; needed where there are several.", "--task", "-t")
    space: str | None = option(
        "Space of the images, such as MNI152NLin2009cAsym, T1w, fsaverage5."
    )
    samples: str | None = option(
        "What a sample is: volumes, blocks (means), or GLM betas of single trials, "
        "trials-lsa (one model per run) or trials-lss (one per trial)."
    )
    label: str | None = option(
        "Column of the events that holds the category; trial_type by default."
    )
    stimulus: str | None = option("Column of the events with the stimulus.")
    ignore: list[str] | None = option(
        "Labels that are no category; several may follow. Default: rest, baseline, "
        "fixation."
    )
    overlap: str | None = option(
        "Which event a volume shows that lies under several: longest (default), "
        "last, drop or error."
    )
    hrf_delay: float | None = option(
        "Seconds from stimulus to response, for volumes and blocks; 5."
    )
    hrf_model: str | None = option("Response of GLM betas, one of nilearn's; glover.")
    confounds: list[str] | None = option(
        "What to remove: simple (default for fMRIPrep), scrubbing, compcor or "
        "ica_aroma; components such as motion wm_csf; columns; or none."
    )
    scrub: float | None = option(
        "Leave out volumes that moved by more than so many mm."
    )
    smoothing_fwhm: float | None = option("Smooth by so many mm.")
    high_pass: float | None = option("High-pass cut-off in Hz.")
    mask: str | None = option(
        "own (fMRIPrep's mask of each subject; default), common (voxels in all of "
        "them), epi (computed), or an image file."
    )

    def given(self) -> dict[str, Any]:
        """Return what was said, as options of ``load_bids``, but for the subjects."""
        said = {name: getattr(self, name) for name in READING}
        found = {k: v for k, v in said.items() if v not in (None, [], ())}
        if found.get("ignore") == ["none"]:
            found["ignore"] = []
        if "confounds" in found:
            found["confounds"] = confounds_of(found["confounds"])
        mask = found.get("mask", "own")
        if mask not in ("own", "common", "epi") and not Path(mask).is_file():
            raise UsageError(
                "--mask must be own, common, epi or an image file; there is no "
                f"{mask!r}."
            )
        if mask == "own":
            found.pop("mask", None)
        return found


# options of load_bids that are options of commands
READING = tuple(f.name for f in fields(Reading) if f.name != "participant_label")


def confounds_of(given: list[str]) -> Any:
    """Return what ``load_bids`` takes: a strategy, components, columns or None.

    Examples
    --------
    >>> confounds_of(["simple"]), confounds_of(["none"])
    ('simple', None)
    >>> confounds_of(["motion", "wm_csf"]), confounds_of(["trans_x", "csf"])
    (('motion', 'wm_csf'), ['trans_x', 'csf'])
    """
    if given == ["none"]:
        return None
    alone = [name for name in given if name in ("none", *STRATEGIES)]
    if len(given) == 1 and alone:
        return given[0]
    mixed = [name for name in alone if name not in COMPONENTS]
    if mixed:
        raise UsageError(
            f"--confounds {mixed[0]} stands alone; got {' '.join(given)!r}. Name "
            f"components ({', '.join(COMPONENTS)}) or columns to combine them."
        )
    return tuple(given) if set(given) <= set(COMPONENTS) else list(given)


# -- formats ---------------------------------------------------------------------------


def load_any(inputs: list[Path], form: str, options: dict[str, Any]) -> "Study":
    """Read files of any supported kind."""
    for path in inputs:
        if not path.exists():
            raise UsageError(f"There is no {str(path)!r}. Check the path.")
    if form not in FORMATS:
        raise UsageError(f"--format must be one of {', '.join(FORMATS)}; got {form!r}.")
    kind = _guessed(inputs) if form == "auto" else form
    if kind in ("nifti", "cifti", "gifti"):
        return _images(inputs, dict(options), kind)
    readers = {"bids": _bids, "matlab": _matlab, "openfmri": _openfmri, "study": _copy}
    return readers[kind](inputs, dict(options))


def _guessed(inputs: list[Path]) -> str:
    """Tell the format of files from their names and neighbours."""
    names = [path.name.lower() for path in inputs]
    for form, endings in ENDINGS.items():
        if all(name.endswith(endings) for name in names):
            return form
    if len(inputs) == 1 and inputs[0].is_dir():
        folder = inputs[0]
        for pattern, form in (
            ("study.json", "study"),
            ("sub-*", "bids"),
            ("sub[0-9]*", "openfmri"),
        ):
            if any(folder.glob(pattern)):
                return form
        files = sorted(
            p.name
            for e in ("mat", "nii", "nii.gz", "gii")
            for p in folder.glob(f"*.{e}")
        )
        if files:
            raise UsageError(
                f"'{folder}' is a folder with files such as '{files[0]}': name the "
                f"files themselves, brainweave convert {folder / files[0]} ... STUDY."
            )
    raise UsageError(
        f"What {', '.join(map(repr, map(str, inputs)))} holds is not clear: neither "
        "BIDS (folders sub-...), nor OpenfMRI (sub001), nor files that all end in "
        ".mat, .nii, .nii.gz or .gii. Say it with --format."
    )


def _one_folder(inputs: list[Path], what: str) -> Path:
    if len(inputs) != 1 or not inputs[0].is_dir():
        raise UsageError(f"A {what} dataset is one folder; got {len(inputs)} paths.")
    return inputs[0]


def _read(function: Any, source: Any, options: dict[str, Any], what: str) -> "Study":
    from brainweave.study.told import option_names

    known = option_names(function)[1:]
    shown = {name.replace("_", "-"): name for name in options}
    unknown = [s for s, name in shown.items() if name not in known]
    refuse_unknown(unknown, known, what + " files have no option '{}'")
    study: Study = function(source, **options)
    return study


def _bids(inputs: list[Path], options: dict[str, Any]) -> "Study":
    from brainweave.study.formats.bids import load_bids

    _refuse(options, "BIDS datasets bring their labels in events files.", "labels")
    return _read(load_bids, _one_folder(inputs, "BIDS"), options, "BIDS")


def _openfmri(inputs: list[Path], options: dict[str, Any]) -> "Study":
    from brainweave.study.formats.openfmri import load_openfmri

    _refuse(options, "OpenfMRI datasets bring their labels in onset files.", "labels")
    _refuse(options, "OpenfMRI datasets have no spaces.", "space")
    folder = _one_folder(inputs, "OpenfMRI")
    if "task" in options:
        options["task"] = number_or(options["task"], int, "task")
    return _read(load_openfmri, folder, options, "OpenfMRI")


def _matlab(inputs: list[Path], options: dict[str, Any]) -> "Study":
    from brainweave.study.formats.matlab import load_matlab

    file = options.get("labels")
    if file is not None and Path(file).suffix == ".tsv":
        options["labels"] = _read_labels(Path(file))
    return _labels_from(file, _read(load_matlab, inputs, options, "MATLAB"))


def _labels_from(file: Any, study: "Study") -> "Study":
    """Write into the record which file brought the labels."""
    if file is not None and study.record is not None:
        study.record["settings"]["labels"] = Path(file).name
    return study


def _images(inputs: list[Path], options: dict[str, Any], kind: str) -> "Study":
    from brainweave.study.formats import images

    for_images = ("smoothing_fwhm", "high_pass", "mask")
    of_bids = [name for name in READING if name not in for_images]
    _refuse(options, "it needs a BIDS dataset.", *of_bids)
    if options.get("mask") == "common":
        raise UsageError("--mask common needs a BIDS dataset; name an image file.")
    wanted = options.pop("subjects", None)
    files: dict[str, list[Any]] = {}
    for path in inputs:
        files.setdefault(_subject_of(path), []).append(path)
    if kind == "gifti":
        files = {id: _hemispheres(paths) for id, paths in files.items()}
    if wanted is not None:
        ids = [id.removeprefix("sub-") for id in wanted]
        refuse_unknown(ids, list(files), "There is no file of subject '{}'")
        files = {id: files[id] for id in ids}
    file = options.get("labels")
    if file is not None:
        options["labels"] = _read_labels(Path(file))
    loader = {"nifti": "load_nifti", "cifti": "load_cifti", "gifti": "load_gifti"}[kind]
    return _labels_from(file, getattr(images, loader)(files, **options))


def _hemispheres(paths: list[Path]) -> list[Any]:
    """Join files of the left and the right hemisphere into runs, by their names.

    Examples
    --------
    >>> names = ["sub-1_hemi-L.func.gii", "sub-1_hemi-R.func.gii"]
    >>> [sorted(run) for run in _hemispheres([Path(name) for name in names])]
    [['CortexLeft', 'CortexRight']]
    """
    runs: dict[str, dict[str, Path]] = {}
    for path in paths:
        left = "hemi-L" in path.name
        side = "CortexLeft" if left else "CortexRight"
        runs.setdefault(path.name.replace("hemi-L", "hemi-R"), {})[side] = path
    if any("hemi-R" not in name for name in runs):
        return list(paths)  # names that tell no hemisphere: a run each
    return list(runs.values())


def _subject_of(path: Path) -> str:
    """Take the subject's id from a file's name.

    Examples
    --------
    >>> _subject_of(Path("sub-07_task-faces_run-1_bold.nii.gz"))
    '07'
    >>> _subject_of(Path("anna.nii.gz"))
    'anna'
    """
    stem = path.name
    for ending in (".gz", ".nii", ".gii", ".dtseries", ".dscalar", ".func"):
        stem = stem.removesuffix(ending)
    stem = stem.replace("_hemi-L", "").replace("_hemi-R", "")
    return stem.split("_")[0].removeprefix("sub-") if stem[:4] == "sub-" else stem


def _copy(inputs: list[Path], options: dict[str, Any]) -> "Study":
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


def _read_labels(path: Path) -> Any:
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


def _refuse(options: dict[str, Any], why: str, *names: str) -> None:
    for name in names:
        if options.get(name) is not None:
            shown = name.replace("_", "-")
            raise UsageError(f"--{shown} cannot be used here: {why}")
