"""BIDS datasets and the output of fMRIPrep, as studies."""

from __future__ import annotations

import json
import logging
import re
import warnings
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass, field, replace
from functools import cached_property
from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from brainweave._core.exceptions import InputError, StudyError, warn_user
from brainweave._core.validation import check_list_option, check_option
from brainweave.study.films import clocked
from brainweave.study.formats.events import (
    NOT_STIMULI,
    SAMPLES,
    EventRules,
    Events,
    Sampling,
    names_no_stimulus,
    read_events,
    resolve_tr,
)
from brainweave.study.formats.images import volume_space
from brainweave.study.formats.runs import (
    Cleaning,
    Run,
    errors_name_subject,
    plan_run,
    study_of_runs,
    warn_of_runs,
)
from brainweave.study.provenance import AS_GIVEN
from brainweave.study.spaces import VolumeSpace, common_space, read_table
from brainweave.study.study import Study
from brainweave.study.surface import CiftiSpace, SurfaceSpace

logger = logging.getLogger(__name__)

_KINDS = {
    ".nii.gz": "volume",
    ".nii": "volume",
    ".dtseries.nii": "cifti",
    ".func.gii": "surface",
}
# Entities that tell versions of one and the same run apart.
_ALTERNATIVES = ("res", "den", "desc", "rec", "echo")
_ENTITY = re.compile(r"([a-zA-Z]+)-([a-zA-Z0-9+]+)")
# Options that choose by an entity of another name, and what an entity is by default.
_OPTIONS = {"subjects": "sub", "sessions": "ses", "runs": "run"}
_DEFAULTS = {"run": "1", "space": "native"}
_STRATEGIES = ("simple", "scrubbing", "compcor", "ica_aroma")
_OTHER_GRID = "Read one session or space at a time, or give a mask."


def load_bids(
    folder: str | PathLike[str],
    *,
    task: str | None = None,
    space: str | None = None,
    subjects: Iterable[str] | None = None,
    sessions: Iterable[str] | None = None,
    runs: Iterable[int | str] | None = None,
    entities: Mapping[str, str] | None = None,
    derivatives: Any = "auto",
    mask: Any = None,
    samples: str = "volumes",
    label: str | None = "trial_type",
    stimulus: str | None = None,
    films: Any = None,
    confounds: Any = "auto",
    scrub: float | None = None,
    events: EventRules | None = None,
    sampling: Sampling | None = None,
    cleaning: Cleaning | None = None,
    dtype: Any = np.float32,
    name: str | None = None,
) -> Study:
    """Read a BIDS dataset, raw or preprocessed by fMRIPrep, as a study.

    Images are read when needed (but a computed mask reads the runs once). Subjects may
    differ in runs, samples, categories and voxels.

    Parameters
    ----------
    folder : path
        Root of a raw BIDS dataset, or of fMRIPrep's output.
    task, space : str, optional
        Needed where there are several. Surfaces (``"fsaverage5"``) and CIFTI
        (``"fsLR"``) are read as such; ``"native"`` means files without a space.
    subjects, sessions, runs : iterable, optional
        Which to read, with or without ``sub-``, ``ses-`` and ``run-``; all by default.
    entities : mapping of str to str, optional
        Other parts that file names must have, such as ``{"res": "2"}``.
    derivatives : "auto", path or None, default="auto"
        Where the preprocessed images are, or None for raw images in their native
        space; ``"auto"`` prefers ``derivatives/fmriprep``.
    mask : path, image, mapping of subject to either, "epi", "common" or None
        By default voxels in fMRIPrep's brain masks of all runs of each subject; for
        raw images ``"epi"``, computed from the images. ``"common"``: voxels in the
        brain masks of all subjects.
    samples : {"volumes", "blocks", "trials", "trials-lsa", "trials-lss"}
        Every volume that shows an event; the mean of each block's volumes; or one
        estimate of a general linear model per trial, with all trials of a run in one
        model (least squares all, also ``"trials"``) or with a model per trial (least
        squares separate).
    label : str or None, default="trial_type"
        Column of the events that holds the category. None: no events are needed, and
        every volume is a sample without a label. So it is if no run has an events
        file; runs are then films, with a warning, unless `films` says so or the task
        is rest.
    stimulus : str, optional
        Column of the events that holds the stimulus id, such as ``"stim_file"``.
        ``EventRules(moments=True)`` adds the seconds since it began.
    films : "runs", mapping, DataFrame or path, optional
        The film that each run shows, for ids by its clock: see
        :func:`brainweave.study.film_clock`.
    confounds : "auto", str, tuple, list or None, default="auto"
        What to remove: one of nilearn's strategies (``"simple"``, ``"scrubbing"``,
        ``"compcor"``, ``"ica_aroma"``), a tuple of its components, or a list of
        columns. ``"auto"`` is ``"simple"`` for preprocessed images and nothing for raw
        ones. See :class:`brainweave.study.Cleaning`.
    scrub : float, optional
        Leave out volumes with a framewise displacement above so many mm.
    events : EventRules, optional
        Which labels are no category, and how stimuli are named, such as
        ``EventRules(ignore="cue")``. Rest and responses are none unless kept.
    sampling : Sampling, optional
        The repetition time, the delay of responses, and whether rest is kept, such as
        ``Sampling(keep_rest=True)``.
    cleaning : Cleaning, optional
        Filter, scaling and smoothing, such as ``Cleaning(smoothing_fwhm=6)``. Drifts
        below 1/128 Hz (`high_pass`) are removed by default.
    dtype : dtype, default=float32
        Of the samples.
    name : str, optional
        Name of the study, by default that of the folder.

    Returns
    -------
    Study
        Lazy. Runs are numbered as in the file names. Its ``record`` says what was done.

    Raises
    ------
    StudyError
        Nothing matches (the message lists what there is), or a file is not what it
        should be: times in milliseconds, a sidecar that contradicts the header.

    Warns
    -----
    UserWarning
        A run has no events and is left out; repetition times differ; events lie outside
        their run; volumes lie under several events; responses are left out.

    Examples
    --------
    >>> from brainweave import simulate_study
    >>> simulated = simulate_study(n_subjects=2, n_voxels=40, n_runs=2, random_state=0)
    >>> folder = simulated.to_bids("bids", raw=False)
    >>> study = load_bids(folder, task="objects", confounds=None)
    >>> study.ids, study[0].run_ids
    (['01', '02'], [1, 2])
    """
    check_option("samples", samples, SAMPLES, owner="load_bids")
    rules, sampling = events or EventRules(), sampling or Sampling()
    cleaning = cleaning or Cleaning()
    if scrub is not None and not scrub > 0:
        raise InputError(f"scrub={scrub} must be a displacement above zero, in mm.")
    dataset = open_dataset(folder, derivatives)
    files = find_runs(
        dataset,
        task=task,
        space=space,
        subjects=subjects,
        sessions=sessions,
        runs=runs,
        entities=entities,
    )
    if isinstance(confounds, str) and confounds == "auto":
        confounds = "simple" if dataset.preprocessed else None
    without: dict[str, list[str]] = {}
    if films is None and label is None and rules.moments:
        films = "runs"
    label, films = _choose_films(dataset, files, label, films, samples)
    if label is None:
        sampling = replace(sampling, keep_rest=True)
    else:
        files, without = _with_events(dataset, files)
    spaces, mask_used = _find_spaces(dataset, files, mask)
    planned: dict[str, dict[Any, Run]] = {id: {} for id in files}
    by_name: dict[str, Run] = {}
    confound_names: dict[str, None] = {}  # in order, each once
    left_out = Counter[str]()
    for id, file in ((id, file) for id, listed in files.items() for file in listed):
        shown = Events.from_rows([])
        if label is not None:
            table = inherited_files(dataset.raw, file, "events", ".tsv")[0]
            shown = read_events(table, label=label, stimulus=stimulus, rules=rules)
        left_out.update(shown.left_out)
        columns, usable, unsteady = read_confounds(dataset, file, confounds, scrub)
        if columns is not None:
            confound_names.update(dict.fromkeys(map(str, columns.columns)))
        run = Run(file.image, columns, sample_mask=usable, t_r=sampling.t_r)
        with errors_name_subject(id):
            run = run.opened(spaces[id])
            if run.t_r is None:
                stated = repetition_time(dataset, file)
                run = replace(run, t_r=resolve_tr(*stated, run.header, run.name))
            planned[id][file.run] = plan_run(
                run,
                shown,
                samples=samples,
                rules=rules,
                sampling=sampling,
                high_pass=cleaning.high_pass,
                unsteady=unsteady,
            )
        by_name[file.path.name] = planned[id][file.run]
    warn_of_runs(by_name)
    _warn_of_events(left_out, rules)
    every = {str(run) for own in planned.values() for run in own}
    lacking = {i: sorted(every.difference(map(str, r))) for i, r in planned.items()}
    missing = {id: names for id, names in lacking.items() if names}
    for id, names in missing.items():
        logger.info("Subject %s lacks the runs %s", id, ", ".join(names))
    first = next(iter(files.values()))[0]
    study = study_of_runs(
        Path(folder).resolve().name if name is None else name,
        planned,
        spaces,
        replace(cleaning, high_pass=None),  # the plans hold the drifts already
        {
            "source": "bids",
            "task": first.entities.get("task"),
            "space": first.entities.get("space") if space is None else space,
            "preprocessed": dataset.preprocessed,
            "pipeline": dataset.pipeline,
            "confounds": confounds,
            "mask": mask_used,
            "label": label,
            "films": films if films is None or isinstance(films, str) else AS_GIVEN,
            "scrub": scrub,
            **asdict(rules),
            **asdict(sampling),
            "samples": samples,
        },
        dtype=dtype,
        confounds=list(confound_names),
        missing_runs=missing,
        runs_without_events=without,
        left_out=dict(sorted(left_out.items())),
    )
    return clocked(study, films)


def _choose_films(
    dataset: Dataset,
    found: Mapping[str, list[BidsRun]],
    label: str | None,
    films: Any,
    samples: str,
) -> tuple[str | None, Any]:
    """Return the column of labels, if there are events to read, and what runs show."""
    runs = [run for listed in found.values() for run in listed]
    if label == "trial_type" and samples == "volumes":
        tables = (inherited_files(dataset.raw, r, "events", ".tsv") for r in runs)
        if not any(tables):
            label, task = None, runs[0].value("task")
        if label is None and films is None:
            is_rest = names_no_stimulus(task, ("rest", "resting state"))
            films = None if is_rest else "runs"
            shown = "shows no film, by the task's name" if is_rest else "is a film"
            warn_user(
                f"No run of task {task!r} has an events file: every volume is a sample "
                f"without a label, and each run {shown}. Pass films='runs' to "
                "accept this, or a table of the films; label=None is for other data.",
                UserWarning,
            )
    if samples != "volumes" and (label is None or films is not None):
        needs = "events: give label=..." if label is None else "events, not films=..."
        raise InputError(f"samples={samples!r} needs {needs}")
    return label, films


def _warn_of_events(left_out: Mapping[str, int], rules: EventRules) -> None:
    """Warn of labels that were left out unasked, other than rest and the like."""
    named = [
        f"{label} ({left_out[label]})"
        for label in sorted(left_out)
        if label not in {*rules.ignore, "n/a"}
        and not names_no_stimulus(label, NOT_STIMULI[:3])
    ]
    if named:
        warn_user(
            "Events that are no stimuli by their labels are left out: "
            f"{', '.join(named)}. Keep one as a category with keep=..., or accept this "
            "with ignore=...",
            UserWarning,
        )


def _with_events(
    dataset: Dataset, found: Mapping[str, list[BidsRun]]
) -> tuple[dict[str, list[BidsRun]], dict[str, list[str]]]:
    """Return each subject's runs that have events, and the files of those without."""
    kept: dict[str, list[BidsRun]] = {}
    without: dict[str, list[str]] = {}
    for id, run in ((id, run) for id, runs in found.items() for run in runs):
        if inherited_files(dataset.raw, run, "events", ".tsv"):
            kept.setdefault(id, []).append(run)
            continue
        without.setdefault(id, []).append(run.path.name)
        warn_user(
            f"Subject {id!r}: {run.path.name} has no events file and is left out.",
            UserWarning,
        )
    if not kept:
        raise StudyError(
            f"No run in {str(dataset.images)!r} has an events file. Check the raw "
            f"dataset {str(dataset.raw)!r}, or use label=None."
        )
    return kept, without


def _find_spaces(
    dataset: Dataset, runs: Mapping[str, list[BidsRun]], mask: Any
) -> tuple[dict[str, Any], Any]:
    """Return the voxels of each subject, and the mask for the record."""
    kinds = {run.kind for listed in runs.values() for run in listed}
    if len(kinds) > 1:
        raise StudyError(
            f"The images are of several kinds: {', '.join(sorted(kinds))}."
        )
    images = {id: [run.image for run in listed] for id, listed in runs.items()}
    if kinds == {"cifti"}:
        spaces: dict[str, Any] = {id: CiftiSpace(own[0]) for id, own in images.items()}
        return spaces, "all grayordinates"
    if kinds == {"surface"}:
        spaces = {id: SurfaceSpace.from_run(o[0], mask) for id, o in images.items()}
        return spaces, "all vertices" if mask is None else mask
    if mask is None:
        mask = "runs" if dataset.preprocessed else "epi"
    if isinstance(mask, str) and mask in ("runs", "common"):
        spaces = {
            id: common_space(((id, _brain_mask(dataset, r)) for r in own), _OTHER_GRID)
            for id, own in runs.items()
        }
        if mask == "common":
            spaces = dict.fromkeys(spaces, common_space(spaces.items(), _OTHER_GRID))
        return spaces, mask
    by_id = mask
    if isinstance(mask, Mapping):
        by_id = {str(key).removeprefix("sub-"): value for key, value in mask.items()}
    spaces = {id: volume_space(id, by_id, o) for id, o in images.items()}
    return spaces, mask


def _brain_mask(dataset: Dataset, run: BidsRun) -> VolumeSpace:
    files = inherited_files(dataset.images, run, "desc-brain_mask", ".nii.gz")
    files = [f for f in files if ("space-" in f.name) == ("space" in run.entities)]
    if not files:
        raise StudyError(
            f"{str(run.path)!r} has no brain mask (*_desc-brain_mask.nii.gz) beside "
            'it. Give mask=..., or mask="epi" to compute one.'
        )
    return VolumeSpace(files[0])


@dataclass(frozen=True)
class Dataset:
    """A BIDS dataset: where images are looked for, and where the raw files are."""

    images: Path
    raw: Path  # has the events
    preprocessed: bool  # whether the images are derivatives

    def __fspath__(self) -> str:
        """Stand for the folder, so that ``load_bids`` takes a dataset in its place."""
        return str(self.raw)

    @cached_property
    def pipeline(self) -> str:
        """Name and version of the pipeline that made the images, if it is stated."""
        content: dict[str, Any] = {}
        if self.preprocessed:
            with suppress(StudyError):  # no reason not to read the images
                content = _read_json(self.images / "dataset_description.json")
        tools = [t for t in content.get("GeneratedBy") or () if isinstance(t, Mapping)]
        names = [f"{t.get('Name', '')} {t.get('Version', '')}".strip() for t in tools]
        return ", ".join(filter(None, names))

    @cached_property
    def runs(self) -> list[BidsRun]:
        """All runs; the folders are listed once, however many subjects are loaded."""
        runs: list[BidsRun] = []
        hemispheres: dict[tuple[tuple[str, str], ...], dict[str, Path]] = {}
        for path, ending in _bold_files(self.images):
            entities = dict(_ENTITY.findall(path.name.removesuffix(f"_bold{ending}")))
            if "sub" not in entities:
                continue
            if _KINDS[ending] == "surface":
                side = str(entities.pop("hemi", "L"))
                name = {"L": "CortexLeft", "R": "CortexRight"}.get(side, side)
                hemispheres.setdefault(tuple(entities.items()), {})[name] = path
            elif entities.get("part", "mag") == "mag":
                runs.append(BidsRun(entities, _KINDS[ending], path))
        for key, sides in hemispheres.items():
            image: Any = dict(sorted(sides.items()))
            if len(image) == 1:
                (image,) = image.values()
            runs.append(BidsRun(dict(key), "surface", image))
        return runs


@dataclass(frozen=True)
class BidsRun:
    """One run of one subject: what its name says, and its image."""

    entities: dict[str, str] = field(hash=False)
    kind: str  # "volume", "cifti" or "surface"
    image: Any  # a path; for both hemispheres of a surface a dict of two

    @property
    def path(self) -> Path:
        """The image's path, or that of its first hemisphere."""
        return self.image if isinstance(self.image, Path) else min(self.image.values())

    @property
    def run(self) -> int | str:
        """Number of the run, from 1; with sessions ``"ses-<session>_run-<run>"``."""
        number = self.value("run")
        if "ses" in self.entities:
            return f"ses-{self.entities['ses']}_run-{number}"
        return int(number) if number.isdigit() else number

    def value(self, entity: str) -> str:
        """Return what the name says of an entity, or its default."""
        return self.entities.get(entity, _DEFAULTS.get(entity, ""))


def open_dataset(folder: str | PathLike[str], derivatives: Any = "auto") -> Dataset:
    """Find out what a folder is: raw BIDS, with or without derivatives, or those.

    The raw dataset of derivatives is two folders up, if there is one.
    """
    if isinstance(folder, Dataset):
        return folder
    root = Path(folder)
    if not root.is_dir():
        raise StudyError(f"There is no folder {str(root)!r}. Check the path.")
    if derivatives is None:
        return Dataset(root, root, False)
    if not (isinstance(derivatives, str) and derivatives == "auto"):
        for chosen in (root / derivatives, Path(derivatives)):
            if chosen.is_dir():
                return Dataset(chosen, root, True)
        raise StudyError(
            f"There is no folder {str(derivatives)!r}, neither in {str(root)!r} nor by "
            "itself. Check derivatives=..."
        )
    about = root / "dataset_description.json"
    if about.exists() and _read_json(about).get("DatasetType") == "derivative":
        above = root.resolve().parent.parent
        return Dataset(root, above if any(above.glob("sub-*")) else root, True)
    found = [p for p in sorted(root.glob("derivatives/*")) if any(_bold_files(p))]
    named = [path for path in found if "fmriprep" in path.name.lower()]
    if len(found) > 1 and len(named) != 1:
        raise StudyError(
            f"{str(root)!r} has several derivatives with BOLD images: "
            f"{_quoted(f'derivatives/{path.name}' for path in found)}. Choose one with "
            "derivatives=..., or None for the raw images."
        )
    return Dataset((named or found or [root])[0], root, bool(found))


def _bold_files(root: Path) -> Iterator[tuple[Path, str]]:
    """Yield the images of a dataset, and their endings."""
    for folder in ("func", "ses-*/func"):
        for path in sorted(root.glob(f"sub-*/{folder}/*_bold.*")):
            ending = path.name.rpartition("_bold")[2]
            if ending in _KINDS:
                yield path, ending


def find_runs(
    dataset: Dataset,
    *,
    task: str | None = None,
    space: str | None = None,
    subjects: Iterable[str] | None = None,
    sessions: Iterable[str] | None = None,
    runs: Iterable[int | str] | None = None,
    entities: Mapping[str, str] | None = None,
) -> dict[str, list[BidsRun]]:
    """List the runs of each subject, in order, by task, space, session and run."""
    found = dataset.runs
    where = f"{str(dataset.images)!r}"
    if not found:
        raise StudyError(
            f"{where} has no BOLD images (sub-*/[ses-*/]func/*_bold.nii.gz). "
            "Is it the root of a BIDS dataset?"
        )
    found = _pick(found, "task", task, where, single=True)
    found = _pick(found, "subjects", subjects, where)
    found = _pick(found, "sessions", sessions, where)
    found = _pick(found, "space", space, where, single=True)
    for key, value in (entities or {}).items():
        found = _pick(found, key, [value], where)
    for key in _ALTERNATIVES:
        values = sorted({run.value(key) for run in found})
        if len(values) == 1:
            continue
        # fMRIPrep's preprocessed series; its other series have other descriptions
        if key != "desc" or "preproc" not in values:
            raise StudyError(
                f"{where} has images that differ in {key!r}: {_quoted(values)}. Choose "
                f"one with entities={{{key!r}: ...}}."
            )
        found = _pick(found, "desc", ["preproc"], where)
    found = _pick(found, "runs", runs, where)
    by_subject: dict[str, list[BidsRun]] = {}
    for run in sorted(found, key=_order):
        by_subject.setdefault(run.entities["sub"], []).append(run)
    for id, listed in by_subject.items():
        names = [run.run for run in listed]
        twice = {str(name) for name in names if names.count(name) > 1}
        if twice:
            files = ", ".join(run.path.name for run in listed if str(run.run) in twice)
            raise StudyError(
                f"Subject {id!r} has more than one file for run {min(twice)}: {files}."
            )
    return dict(sorted(by_subject.items()))


def _pick(
    runs: list[BidsRun], option: str, wanted: Any, where: str, *, single: bool = False
) -> list[BidsRun]:
    """Keep the runs that an option asks for; if it is None, all, or the only kind."""
    key = _OPTIONS.get(option, option)
    value_of = _unpadded if key == "run" else str
    known = sorted({value_of(run.value(key)) for run in runs})
    if wanted is None:
        if single and len(known) > 1:
            raise StudyError(
                f"{where} has more than one {key}: {_quoted(known)}. Choose one with "
                f"{key}=..."
            )
        return runs
    listed = check_list_option(option, wanted, "load_bids")
    chosen = [value_of(str(value).removeprefix(f"{key}-")) for value in listed]
    unknown = [value for value in chosen if value not in known]
    if unknown:
        raise StudyError(
            f"{where} has no {option} {_quoted(unknown)}; it has {_quoted(known)}."
        )
    return [run for run in runs if value_of(run.value(key)) in chosen]


def _order(run: BidsRun) -> tuple[Any, ...]:
    number = run.value("run")
    return run.value("ses"), int(number) if number.isdigit() else 0, number


def _unpadded(value: str) -> str:
    """Return a number without leading zeros, so that run-01 is run-1."""
    return value.lstrip("0") or "0" if value.isdigit() else value


def inherited_files(root: Path, run: BidsRun, suffix: str, ending: str) -> list[Path]:
    """Find files that apply to a run by the inheritance principle, nearest first."""
    levels = [root, root / f"sub-{run.entities['sub']}"]
    if "ses" in run.entities:
        levels.append(levels[-1] / f"ses-{run.entities['ses']}")
    levels.append(levels[-1] / "func")
    found: list[Path] = []
    for level in reversed(levels):
        fitting = []
        for path in level.glob(f"*{suffix}{ending}"):
            name = path.name.removesuffix(ending)
            if name != suffix and not name.endswith(f"_{suffix}"):
                continue
            # the suffix may hold an entity of its own, such as desc-brain
            entities = dict(_ENTITY.findall(name.removesuffix(suffix)))
            if all(
                key in run.entities and _unpadded(run.entities[key]) == _unpadded(value)
                for key, value in entities.items()
            ):
                fitting.append((len(entities), path))
        found.extend(path for _, path in sorted(fitting, reverse=True))
    return found


def repetition_time(dataset: Dataset, run: BidsRun) -> tuple[Any, str]:
    """Read what a sidecar states, the image's own before the raw ones, and which."""
    for root in dict.fromkeys((dataset.images, dataset.raw)):
        for path in inherited_files(root, run, "bold", ".json"):
            value = _read_json(path).get("RepetitionTime")
            if value is not None:
                return value, f"RepetitionTime in {str(path)!r}"
    return None, ""


def _read_json(path: Path) -> dict[str, Any]:
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        raise StudyError(f"{str(path)!r} is not readable JSON ({error}).") from error
    if not isinstance(content, dict):
        raise StudyError(f"{str(path)!r} holds no JSON object.")
    return content


def read_confounds(
    dataset: Dataset, run: BidsRun, confounds: Any, scrub: float | None
) -> tuple[Any, NDArray[np.bool_] | None, int]:
    """Read fMRIPrep's confounds of a run, as ``load_bids`` is asked for them.

    Return the columns to remove, a mask of the volumes that may be used, and how many
    others were scanned before the magnetisation was steady.
    """
    if confounds is None and scrub is None:
        return None, None, 0
    tables = inherited_files(dataset.images, run, "desc-confounds_timeseries", ".tsv")
    if not tables:
        raise StudyError(
            f"{str(run.path)!r} has no confounds (*_desc-confounds_timeseries.tsv) "
            "beside it. Use confounds=None and scrub=None, or the output of fMRIPrep."
        )
    table = _confounds_table(tables[0])
    names = [*confounds] if isinstance(confounds, list) else []
    names += [] if scrub is None else ["framewise_displacement"]
    unknown = [name for name in names if name not in table]
    if unknown:
        raise StudyError(
            f"{str(tables[0])!r} has no column {_quoted(unknown)}; it has "
            f"{_quoted(table.columns)}."
        )
    columns = table[confounds if isinstance(confounds, list) else []]
    usable = np.ones(len(table), bool)
    if not (confounds is None or isinstance(confounds, list)):
        loaded, kept = _nilearn_confounds(run.path, tables[0], confounds)
        columns = columns if loaded is None else loaded
        if kept is not None:
            usable = np.isin(np.arange(len(usable)), kept)
    if scrub is not None:
        usable &= ~(table["framewise_displacement"].to_numpy() > scrub)
    if not usable.any():
        raise StudyError(
            f"{str(tables[0])!r}: scrubbing leaves no volume of this run. Raise "
            "scrub=..., or leave the run out."
        )
    flags = table.filter(regex="^non_steady_state").to_numpy() > 0
    return columns, usable, int((flags.any(axis=1) & ~usable).sum())


def _confounds_table(path: Path) -> Any:
    """Read a table of numbers, some of which may be missing."""
    import pandas as pd

    frame = read_table(path)
    numbers = frame.apply(pd.to_numeric, errors="coerce").astype(np.float64)
    odd = np.argwhere(frame.notna().to_numpy() & ~np.isfinite(numbers.to_numpy()))
    if len(odd):
        row, column = odd[0]
        raise StudyError(
            f"{str(path)!r}: {frame.columns[column]!r} is {frame.iat[row, column]} in "
            f"row {row + 1}, not a finite number."
        )
    return numbers


def _nilearn_confounds(image: Path, table: Path, confounds: Any) -> tuple[Any, Any]:
    """Load confounds by one of nilearn's strategies, or by its components."""
    from nilearn.interfaces.fmriprep import load_confounds, load_confounds_strategy

    if isinstance(confounds, str):
        check_option("confounds", confounds, _STRATEGIES, owner="load_bids")
    elif not isinstance(confounds, tuple):
        raise InputError(
            "confounds must be a name, a tuple, a list or None, got "
            f"{type(confounds).__name__}.",
            parameter="confounds",
        )
    try:
        with warnings.catch_warnings():
            # nilearn notes that columns are missing for compcor and the like
            warnings.simplefilter("ignore", UserWarning)
            if isinstance(confounds, str):
                return load_confounds_strategy(str(image), confounds)
            return load_confounds(str(image), strategy=confounds)
    except Exception as error:  # of a damaged table or sidecar, anything
        said = " ".join(str(error).split())[:200] or type(error).__name__
        raise StudyError(
            f"{str(table)!r} cannot be used with confounds={confounds!r}: {said}"
        ) from error


def _quoted(values: Iterable[str]) -> str:
    return ", ".join(map(repr, values))
