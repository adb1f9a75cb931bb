"""How files become a study: the options of BIDS data, and readers of all formats."""

import inspect
from collections.abc import Callable
from dataclasses import dataclass, fields, is_dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, get_args, get_type_hints

from brainweave.cli import files
from brainweave.cli.console import UsageError
from brainweave.cli.methods import number_or
from brainweave.cli.options import option, refuse_unknown

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


_LONGEST_LABEL = 1000  # characters


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
        "More labels that are no category; several may follow. Rest, fixation, "
        "responses, button presses and the like never are, unless kept."
    )
    keep: list[str] | None = option(
        "Labels that are categories though their names say rest, response or the "
        "like; several may follow."
    )
    overlap: str | None = option(
        "Which event a volume shows that lies under several: longest (default), "
        "or drop for none."
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
    high_pass: str | None = option(
        "Cut-off in Hz of the slow drifts to remove, or none; 1/128 by default, where "
        "the repetition time is known and fMRIPrep's cosines are not removed."
    )
    mask: str | None = option(
        "own (fMRIPrep's mask of each subject; default), common (voxels in all of "
        "them), epi (computed), or an image file."
    )

    def load_options(self) -> dict[str, Any]:
        """Return what was given, as options of ``load_bids``, but for the subjects."""
        options = {name: getattr(self, name) for name in LOAD_OPTIONS}
        given = {k: v for k, v in options.items() if v not in (None, [], ())}
        if "confounds" in given:
            given["confounds"] = parse_confounds(given["confounds"])
        if "high_pass" in given:
            cutoff = number_or(given["high_pass"], float, "high-pass", "none")
            given["high_pass"] = None if cutoff == "none" else cutoff
        mask = given.get("mask", "own")
        if mask not in ("own", "common", "epi") and not Path(mask).is_file():
            raise UsageError(
                "--mask must be own, common, epi or an image file; there is no "
                f"{mask!r}."
            )
        if mask == "own":
            given.pop("mask", None)
        return given


# options of load_bids that are options of commands
LOAD_OPTIONS = tuple(f.name for f in fields(Reading) if f.name != "participant_label")


def parse_confounds(given: list[str]) -> Any:
    """Return what ``load_bids`` takes: a strategy, components, columns or None.

    Examples
    --------
    >>> parse_confounds(["simple"]), parse_confounds(["none"])
    ('simple', None)
    >>> parse_confounds(["motion", "wm_csf"]), parse_confounds(["trans_x", "csf"])
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


# -- settings objects ------------------------------------------------------------------


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


# -- formats ---------------------------------------------------------------------------

IMAGES = ("nifti", "cifti", "gifti")
# of each format, options that it has no use for, and why; for all others ONLY_BIDS
USELESS = {
    "bids": {"BIDS datasets bring their labels in events files.": ["labels"]},
    "openfmri": {
        "OpenfMRI datasets bring their labels in onset files.": ["labels"],
        "OpenfMRI datasets have no spaces.": ["space"],
    },
    "matlab": {},
}
ONLY_BIDS = {
    "it needs a BIDS dataset.": [
        name
        for name in LOAD_OPTIONS
        if name not in ("smoothing_fwhm", "high_pass", "mask")
    ]
}


def load_any(inputs: list[Path], form: str, options: dict[str, Any]) -> "Study":
    """Read a study from files or a folder of any supported format."""
    import brainweave

    kind, options = _format_of(inputs, form), dict(options)
    source = _source(inputs, kind)
    if kind == "study":
        return _copy_study(source, options)
    for reason, names in USELESS.get(kind, ONLY_BIDS).items():
        for name in names:
            if options.get(name) is not None:
                option = name.replace("_", "-")
                raise UsageError(f"--{option} cannot be used here: {reason}")
    if kind in IMAGES:
        if options.get("mask") == "common":
            raise UsageError("--mask common needs a BIDS dataset; name an image file.")
        source = _select_subjects(source, options.pop("subjects", None))
    if kind == "openfmri" and "task" in options:
        options["task"] = number_or(options["task"], int, "task")
    labels = options.get("labels")
    if labels is not None and (kind in IMAGES or Path(labels).suffix == ".tsv"):
        options["labels"] = _read_labels(Path(labels))
    loader = getattr(brainweave, f"load_{kind}")
    known = option_names(loader)[1:]
    unknown = [name.replace("_", "-") for name in options if name not in known]
    refuse_unknown(unknown, known, f"{FORMATS[kind]} files have no option '{{}}'")
    study: Study = call_with(loader, source, **options)
    if labels is not None and study.record is not None:
        study.record["settings"]["labels"] = Path(labels).name
    return study


def _format_of(inputs: list[Path], form: str) -> str:
    """Return the format given, or for "auto" that of the names and neighbours."""
    for path in inputs:
        if not path.exists():
            raise UsageError(f"There is no {str(path)!r}. Check the path.")
    if form in FORMATS:
        return form
    if form != "auto":
        listed = ", ".join(("auto", *FORMATS))
        raise UsageError(f"--format must be one of {listed}; got {form!r}.")
    for kind, endings in ENDINGS.items():
        if all(path.name.lower().endswith(endings) for path in inputs):
            return kind
    if len(inputs) == 1 and inputs[0].is_dir():
        folder = inputs[0]
        patterns = {"study": "study.json", "bids": "sub-*", "openfmri": "sub[0-9]*"}
        for kind, pattern in patterns.items():
            if any(folder.glob(pattern)):
                return kind
        endings = (".mat", ".nii", ".nii.gz", ".gii")
        names = sorted(p.name for p in folder.iterdir() if p.name.endswith(endings))
        if names:
            raise UsageError(
                f"'{folder}' is a folder with files such as '{names[0]}': name the "
                f"files themselves, brainweave convert {folder / names[0]} ... STUDY."
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
        paths: dict[str, list[Any]] = {}
        for path in inputs:
            paths.setdefault(_subject_id(path), []).append(path)
        return paths
    if len(inputs) != 1 or not inputs[0].is_dir():
        raise UsageError(
            f"A {FORMATS[kind]} dataset is one folder; got {len(inputs)} paths."
        )
    return inputs[0]


def _select_subjects(paths: dict[str, Any], wanted: list[str] | None) -> dict[str, Any]:
    ids = list(paths) if wanted is None else [id.removeprefix("sub-") for id in wanted]
    refuse_unknown(ids, list(paths), "There is no file of subject '{}'")
    return {id: paths[id] for id in ids}


def _subject_id(path: Path) -> str:
    """Take the subject's id from a file's name.

    Examples
    --------
    >>> _subject_id(Path("sub-07_task-faces_run-1_bold.nii.gz"))
    '07'
    >>> _subject_id(Path("anna.nii.gz"))
    'anna'
    """
    stem = path.name
    for ending in (".gz", ".nii", ".gii", ".dtseries", ".dscalar", ".func"):
        stem = stem.removesuffix(ending)
    stem = stem.replace("_hemi-L", "").replace("_hemi-R", "")
    return stem.split("_")[0].removeprefix("sub-") if stem[:4] == "sub-" else stem


def _copy_study(folder: Path, options: dict[str, Any]) -> "Study":
    study = files.open_study(folder)
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
    from brainweave.study.spaces import read_table

    if not path.is_file():
        raise UsageError(f"There is no file {str(path)!r} with labels.")
    table = read_table(path, dtype=str, keep_default_na=False)
    if not len(table) or "label" not in table:
        raise UsageError(f"{str(path)!r} must be a .tsv table with a column 'label'.")
    table = table.fillna("")  # of rows that end early
    longest = max(table["label"], key=len)
    if len(longest) > _LONGEST_LABEL:
        raise UsageError(
            f"{str(path)!r} has a label of {len(longest)} characters, which begins "
            f"{longest[:20]!r}. Check its quotation marks and tabs."
        )
    if "subject" not in table:
        return table["label"].tolist()
    groups = table.groupby(table["subject"].str.removeprefix("sub-"), sort=False)
    return {id: labels.tolist() for id, labels in groups["label"]}
