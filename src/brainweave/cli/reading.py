"""How files become a study: the options of BIDS data, and readers of all formats."""

from dataclasses import dataclass, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from brainweave.cli.console import UsageError
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
FORMATS = {
    **{"bids": "BIDS", "nifti": "NIfTI", "cifti": "CIFTI", "gifti": "GIfTI"},
    **{"matlab": "MATLAB", "openfmri": "OpenfMRI", "study": "study"},
}
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


# options of commands that formats have no use for, and why
IMAGES = ("nifti", "cifti", "gifti")
OF_BIDS = {
    "it needs a BIDS dataset.": [
        name for name in READING if name not in ("smoothing_fwhm", "high_pass", "mask")
    ]
}
REFUSED = {
    "bids": {"BIDS datasets bring their labels in events files.": ["labels"]},
    "openfmri": {
        "OpenfMRI datasets bring their labels in onset files.": ["labels"],
        "OpenfMRI datasets have no spaces.": ["space"],
    },
    "matlab": {},
}


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
    import brainweave
    from brainweave.study.options import option_names

    kind, options = _kind(inputs, form), dict(options)
    source = _source(inputs, kind)
    if kind == "study":
        return _copy(source, options)
    for why, names in REFUSED.get(kind, OF_BIDS).items():
        for name in names:
            if options.get(name) is not None:
                shown = name.replace("_", "-")
                raise UsageError(f"--{shown} cannot be used here: {why}")
    if kind in IMAGES:
        if options.get("mask") == "common":
            raise UsageError("--mask common needs a BIDS dataset; name an image file.")
        source = _of_subjects(source, options.pop("subjects", None))
    if kind == "openfmri" and "task" in options:
        options["task"] = number_or(options["task"], int, "task")
    labels = options.get("labels")
    if labels is not None and (kind in IMAGES or Path(labels).suffix == ".tsv"):
        options["labels"] = _read_labels(Path(labels))
    loader = getattr(brainweave, f"load_{kind}")
    if kind not in IMAGES:  # those check their options themselves
        known = option_names(loader)[1:]
        unknown = [name.replace("_", "-") for name in options if name not in known]
        refuse_unknown(unknown, known, f"{FORMATS[kind]} files have no option '{{}}'")
    study: Study = loader(source, **options)
    if labels is not None and study.record is not None:
        study.record["settings"]["labels"] = Path(labels).name  # who brought them
    return study


def _kind(inputs: list[Path], form: str) -> str:
    """Return the format of files, told from their names and neighbours if need be."""
    for path in inputs:
        if not path.exists():
            raise UsageError(f"There is no {str(path)!r}. Check the path.")
    if form in FORMATS:
        return form
    if form != "auto":
        listed = ", ".join(("auto", *FORMATS))
        raise UsageError(f"--format must be one of {listed}; got {form!r}.")
    names = [path.name.lower() for path in inputs]
    for kind, endings in ENDINGS.items():
        if all(name.endswith(endings) for name in names):
            return kind
    if len(inputs) == 1 and inputs[0].is_dir():
        folder = inputs[0]
        patterns = {"study": "study.json", "bids": "sub-*", "openfmri": "sub[0-9]*"}
        for kind, pattern in patterns.items():
            if any(folder.glob(pattern)):
                return kind
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


def _source(inputs: list[Path], kind: str) -> Any:
    """Return what a format is read from: a folder, files, or files by subject."""
    if kind == "matlab":
        return inputs
    if kind in IMAGES:
        files: dict[str, list[Any]] = {}
        for path in inputs:
            files.setdefault(_subject_of(path), []).append(path)
        if kind == "gifti":
            files = {id: _hemispheres(paths) for id, paths in files.items()}
        return files
    if len(inputs) != 1 or not inputs[0].is_dir():
        raise UsageError(
            f"A {FORMATS[kind]} dataset is one folder; got {len(inputs)} paths."
        )
    return inputs[0]


def _of_subjects(files: dict[str, Any], wanted: list[str] | None) -> dict[str, Any]:
    ids = list(files) if wanted is None else [id.removeprefix("sub-") for id in wanted]
    refuse_unknown(ids, list(files), "There is no file of subject '{}'")
    return {id: files[id] for id in ids}


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


def _copy(folder: Path, options: dict[str, Any]) -> "Study":
    study = open_study(folder)
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
