"""BIDS datasets and the output of fMRIPrep, as studies."""

from __future__ import annotations

import json
import re
import warnings
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, field, replace
from functools import cached_property
from os import PathLike
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from brainweave._core.exceptions import InputError, StudyError, warn_user
from brainweave._core.validation import check_list_option, check_option, format_ids
from brainweave.study.films import clocked
from brainweave.study.formats.events import (
    NOT_STIMULI,
    SAMPLES,
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
from brainweave.study.surface import SIDES, CiftiSpace, SurfaceSpace

_KINDS = {
    ".nii.gz": "volume",
    ".nii": "volume",
    ".dtseries.nii": "cifti",
    ".func.gii": "surface",
}
_ENTITY = re.compile(r"([a-zA-Z]+)-([a-zA-Z0-9+]+)")
# Options that choose by an entity of another name, and what an entity is by default.
_OPTIONS = {"subjects": "sub", "sessions": "ses", "runs": "run"}
_DEFAULTS = {"run": "1", "space": "native"}
Found: TypeAlias = "dict[str, list[BidsRun]]"  # by subject
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
    ignore: Sequence[str] | str = (),
    keep: Sequence[str] | str = (),
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
    samples : {"volumes", "blocks", "trials"}
        Every volume that shows an event; the mean of each block's volumes; or the
        amplitude of each trial, by a general linear model of its own (least squares
        separate).
    label : str or None, default="trial_type"
        Column of the events that holds the category. None: no events are needed, and
        every volume is a sample without a label. So it is if no run has an events file
        and `films` says what they show.
    stimulus : str, optional
        Column of the events that holds the stimulus id, such as ``"stim_file"``.
    films : "runs", mapping, DataFrame or path, optional
        The film that each run shows, for ids by its clock: see
        :func:`brainweave.study.film_clock`.
    confounds : "auto", str, tuple, list or None, default="auto"
        What to remove: one of nilearn's strategies (``"simple"``, ``"scrubbing"``,
        ``"compcor"``, ``"ica_aroma"``), a tuple of its components, or a list of
        columns. ``"auto"`` is ``"simple"`` for preprocessed images and nothing for raw
        ones. See :class:`brainweave.study.Cleaning`.
    scrub : float, optional
        Leave out volumes with a framewise displacement above this, in mm.
    ignore, keep : str or sequence of str, default=()
        Labels to exclude in addition to ``n/a``, rest, baseline, fixation, blank, null,
        ITI, ISI, response, button (press), key press and trigger (in any case, plural
        or numbered), and labels of this list to keep. The record lists all excluded
        labels.
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
        Lazy. Runs are numbered as in file names. ``record`` lists the preprocessing.

    Raises
    ------
    StudyError
        If no file matches (the message lists what exists) or a file is invalid: times
        in milliseconds, a sidecar that contradicts the header.

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
    ignore = list(map(str, check_list_option("ignore", ignore, "load_bids")))
    keep = list(map(str, check_list_option("keep", keep, "load_bids")))
    sampling, cleaning = sampling or Sampling(), cleaning or Cleaning()
    if scrub is not None and not scrub > 0:
        raise InputError(f"scrub={scrub} must be a displacement above zero, in mm.")
    dataset = open_dataset(folder, derivatives)
    wanted = {"task": task, "space": space, "runs": runs, "entities": entities}
    files = find_runs(dataset, subjects=subjects, sessions=sessions, **wanted)
    if isinstance(confounds, str) and confounds == "auto":
        confounds = "simple" if dataset.preprocessed else None
    without: dict[str, list[str]] = {}
    tables = {
        file.path: inherited_files(dataset.raw, file, "events", ".tsv")
        for own in files.values()
        for file in own
    }
    if films is not None and label == "trial_type" and not any(tables.values()):
        label = None
    if samples != "volumes" and (label is None or films is not None):
        raise InputError(f"samples={samples!r} needs label=..., and no films=...")
    if label is None:
        sampling = replace(sampling, keep_rest=True)
    else:
        files, without = _with_events(dataset, files, tables)
    spaces, mask_used = _find_spaces(dataset, files, mask)
    planned: dict[str, dict[Any, Run]] = {id: {} for id in files}
    confound_names: dict[str, None] = {}  # in order, each once
    left_out = Counter[str]()
    for id, file in ((id, file) for id, listed in files.items() for file in listed):
        shown = Events.from_rows([])
        if label is not None:
            table = tables[file.path][0]
            shown = read_events(
                table, label=label, stimulus=stimulus, ignore=ignore, keep=keep
            )
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
            run = plan_run(run, shown, samples, sampling, cleaning.high_pass)
        run.plan.counts["unsteady"] = unsteady
        planned[id][file.run] = run
    warn_of_runs([run for own in planned.values() for run in own.values()])
    _warn_of_events(left_out, ignore)
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
            "ignore": ignore,
            "keep": keep,
            **asdict(sampling),
            "samples": samples,
        },
        dtype=dtype,
        confounds=list(confound_names),
        missing_runs=missing_runs(planned),
        runs_without_events=without,
        left_out=dict(sorted(left_out.items())),
    )
    return clocked(study, films)


def missing_runs(found: Mapping[str, Iterable[Any]]) -> dict[str, list[str]]:
    """List the runs that subjects lack and others have."""
    every = {str(run) for own in found.values() for run in own}
    lacking = {id: sorted(every.difference(map(str, r))) for id, r in found.items()}
    return {id: names for id, names in lacking.items() if names}


def _warn_of_events(left_out: Mapping[str, int], ignore: Sequence[str]) -> None:
    """Warn of labels that were left out unasked, other than rest and the like."""
    silent = NOT_STIMULI[:3]
    named = [
        f"{label} ({n})"
        for label, n in sorted(left_out.items())
        if label not in (*ignore, "n/a") and not names_no_stimulus(label, silent)
    ]
    if named:
        warn_user(
            "Events that are no stimuli by their labels are left out: "
            f"{', '.join(named)}. Keep one as a category with keep=..., or accept this "
            "with ignore=..."
        )


def _with_events(
    dataset: Dataset, found: Found, tables: Mapping[Path, Any]
) -> tuple[Found, dict[str, list[str]]]:
    """Return each subject's runs that have events, and the files of those without."""
    kept: Found = {}
    without: dict[str, list[str]] = {}
    for id, run in ((id, run) for id, runs in found.items() for run in runs):
        if tables[run.path]:
            kept.setdefault(id, []).append(run)
        else:
            without.setdefault(id, []).append(run.path.name)
            what = f"Subject {id!r}: {run.path.name}"
            warn_user(f"{what} has no events file and is left out.")
    if not kept:
        raise StudyError(
            f"No run in {str(dataset.images)!r} has an events file in "
            f"{str(dataset.raw)!r}. Give films='runs' if each run shows a film, or "
            "label=None for rest and other data."
        )
    return kept, without


def _find_spaces(dataset: Dataset, runs: Found, mask: Any) -> tuple[Any, Any]:
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
    return {id: volume_space(id, mask, own) for id, own in images.items()}, mask


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
        tools: Any = ()
        if self.preprocessed:
            with suppress(StudyError):  # no reason not to read the images
                about = _read_json(self.images / "dataset_description.json")
                tools = about.get("GeneratedBy") or ()
        tools = [t for t in tools if isinstance(t, Mapping)]
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
                both = hemispheres.setdefault(tuple(entities.items()), {})
                both[SIDES.get(side, side)] = path
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
    """Find out what a folder is: raw BIDS, with or without derivatives, or those."""
    if isinstance(folder, Dataset):
        return folder
    root = Path(folder)
    if not root.is_dir():
        raise StudyError(f"There is no folder {str(root)!r}. Check the path.")
    if derivatives is None:
        return Dataset(root, root, False)
    if not (isinstance(derivatives, str) and derivatives == "auto"):
        chosen = root / derivatives
        if not chosen.is_dir():
            raise StudyError(f"There is no folder {str(chosen)!r}; see derivatives=...")
        return Dataset(chosen, root, True)
    about = root / "dataset_description.json"
    if about.exists() and _read_json(about).get("DatasetType") == "derivative":
        above = root.resolve().parent.parent
        return Dataset(root, above if any(above.glob("sub-*")) else root, True)
    found = [p for p in sorted(root.glob("derivatives/*")) if any(_bold_files(p))]
    named = [path for path in found if "fmriprep" in path.name.lower()]
    if len(found) > 1 and len(named) != 1:
        raise StudyError(
            f"{str(root)!r} has several derivatives with BOLD images: "
            f"{format_ids(f'derivatives/{path.name}' for path in found)}. Choose one "
            "with derivatives=..., or None for the raw images."
        )
    return Dataset((named or found or [root])[0], root, bool(found))


def _bold_files(root: Path) -> Iterator[tuple[Path, str]]:
    """Yield the images of a dataset, and their endings."""
    for folder in ("func", "ses-*/func"):
        for path in sorted(root.glob(f"sub-*/{folder}/*_bold.*")):
            ending = path.name.rpartition("_bold")[2]
            if ending in _KINDS:
                yield path, ending


def find_runs(dataset: Dataset, **wanted: Any) -> Found:
    """List the runs of each subject in order; `wanted` is chosen as in `load_bids`."""
    found = dataset.runs
    where = f"{str(dataset.images)!r}"
    if not found:
        raise StudyError(
            f"{where} has no BOLD images (sub-*/[ses-*/]func/*_bold.nii.gz). "
            "Is it the root of a BIDS dataset?"
        )
    for option in ("task", "subjects", "sessions", "space"):
        found = _pick(found, option, wanted.get(option), where)
    for key, value in (wanted.get("entities") or {}).items():
        found = _pick(found, key, [value], where)
    if any(run.value("desc") == "preproc" for run in found):  # not fMRIPrep's others
        found = _pick(found, "desc", ["preproc"], where)
    found = _pick(found, "runs", wanted.get("runs"), where)
    by_subject: Found = {}
    for run in sorted(found, key=_order):
        by_subject.setdefault(run.entities["sub"], []).append(run)
    for id, listed in by_subject.items():
        names = Counter(str(run.run) for run in listed)
        name, n_files = names.most_common(1)[0]
        if n_files > 1:
            files = ", ".join(r.path.name for r in listed if str(r.run) == name)
            raise StudyError(
                f"Subject {id!r} has {n_files} files for run {name}: {files}. Choose "
                "one by a part of its name, such as entities={'res': '2'}."
            )
    return dict(sorted(by_subject.items()))


def _pick(runs: list[BidsRun], option: str, wanted: Any, where: str) -> list[BidsRun]:
    """Keep the runs that an option asks for; if it is None, all, or the only kind."""
    key = _OPTIONS.get(option, option)
    value_of = _unpadded if key == "run" else str
    known = sorted({value_of(run.value(key)) for run in runs})
    if wanted is None:
        if key in ("task", "space") and len(known) > 1:
            raise StudyError(
                f"{where} has more than one {key}: {format_ids(known)}. Choose one "
                f"with {key}=..."
            )
        return runs
    listed = check_list_option(option, wanted, "load_bids")
    chosen = [value_of(str(value).removeprefix(f"{key}-")) for value in listed]
    unknown = [value for value in chosen if value not in known]
    if unknown:
        raise StudyError(
            f"{where} has no {option} {format_ids(unknown)}; it has "
            f"{format_ids(known)}."
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
    table = read_table(tables[0])
    names = [*confounds] if isinstance(confounds, list) else []
    used = [*names, *([] if scrub is None else ["framewise_displacement"])]
    unknown = [name for name in used if name not in table]
    if unknown:
        raise StudyError(
            f"{str(tables[0])!r} has no column {format_ids(unknown)}; it has "
            f"{format_ids(table.columns)}."
        )
    try:
        table = table.astype(np.float64)
    except ValueError as error:
        raise StudyError(f"{str(tables[0])!r} is not all numbers ({error}).") from error
    columns, usable = table[names], np.ones(len(table), bool)
    if isinstance(confounds, str | tuple):
        loaded, kept = _nilearn_confounds(run.path, tables[0], confounds)
        columns = columns if loaded is None else loaded
        if kept is not None:
            usable = np.isin(np.arange(len(usable)), kept)
    elif not (confounds is None or isinstance(confounds, list)):
        raise InputError("confounds must be a name, a tuple, a list or None.")
    if scrub is not None:
        usable &= ~(table["framewise_displacement"].to_numpy() > scrub)
    if not usable.any():
        raise StudyError(
            f"{str(tables[0])!r}: scrubbing leaves no volume of this run. Raise "
            "scrub=..., or leave the run out."
        )
    flags = table.filter(regex="^non_steady_state").to_numpy() > 0
    return columns, usable, int((flags.any(axis=1) & ~usable).sum())


def _nilearn_confounds(image: Path, table: Path, confounds: Any) -> tuple[Any, Any]:
    """Load confounds by one of nilearn's strategies, or by its components."""
    from nilearn.interfaces.fmriprep import load_confounds, load_confounds_strategy

    load = load_confounds if isinstance(confounds, tuple) else load_confounds_strategy
    try:
        with warnings.catch_warnings():
            # nilearn notes that columns are missing for compcor and the like
            warnings.simplefilter("ignore", UserWarning)
            return load(str(image), confounds)
    except Exception as error:  # of a damaged table or sidecar, anything
        said = " ".join(str(error).split())[:200] or type(error).__name__
        raise StudyError(
            f"{str(table)!r} cannot be used with confounds={confounds!r}: {said}"
        ) from error
