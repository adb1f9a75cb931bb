"""Find the runs of a BIDS dataset, and what lies beside them, by the names of files."""

from __future__ import annotations

import json
import re
import warnings
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cached_property
from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from brainweave._core.exceptions import StudyError
from brainweave._core.validation import check_list_option, check_option
from brainweave.study.spaces import read_table

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
        """What preprocessed the images, with its version, as far as it says so."""
        content: dict[str, Any] = {}
        if self.preprocessed:
            with suppress(StudyError):  # no reason not to read the images
                content = _read_json(self.images / "dataset_description.json")
        made = content.get("GeneratedBy") or content.get("PipelineDescription") or ()
        tools = [made] if isinstance(made, Mapping) else made
        names = (
            f"{tool.get('Name', '')} {tool.get('Version', '')}".strip()
            for tool in tools
            if isinstance(tool, Mapping)
        )
        return ", ".join(name for name in names if name)

    @cached_property
    def runs(self) -> list[BidsRun]:
        """All runs; the folders are listed once, however many subjects are loaded."""
        return _all_runs(self)


@dataclass(frozen=True)
class BidsRun:
    """One run of one subject: what its name says, and its image.

    The kind is "volume", "cifti" or "surface"; the image of a surface may be a dict of
    one path per hemisphere.
    """

    entities: dict[str, str] = field(hash=False)
    kind: str
    image: Any

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

    @property
    def order(self) -> tuple[Any, ...]:
        """What runs of a subject are sorted by."""
        number = self.value("run")
        return self.value("ses"), int(number) if number.isdigit() else 0, number

    def value(self, entity: str) -> str:
        """Return what the name says of an entity, or its default."""
        return self.entities.get(entity, _DEFAULTS.get(entity, ""))


def open_dataset(folder: str | PathLike[str], derivatives: Any = "auto") -> Dataset:
    """Find out what a folder is: raw BIDS, with or without derivatives, or those.

    The raw dataset of derivatives is two folders up (``derivatives/fmriprep``), if
    there is one. What is open already is returned as it is.
    """
    if isinstance(folder, Dataset):
        return folder
    root = Path(folder)
    if not root.is_dir():
        raise StudyError(f"There is no folder {str(root)!r}. Check the path.")
    if derivatives is None:
        return Dataset(root, root, False)
    if not (isinstance(derivatives, str) and derivatives == "auto"):
        # relative to the dataset, if it is there
        inside = root / derivatives
        chosen = inside if inside.is_dir() else Path(derivatives)
        if not chosen.is_dir():
            raise StudyError(
                f"There is no folder {str(derivatives)!r}, neither in {str(root)!r} "
                "nor by itself. Check derivatives=..."
            )
        return Dataset(chosen, root, True)
    about = root / "dataset_description.json"
    if about.exists() and _read_json(about).get("DatasetType") == "derivative":
        above = root.resolve().parent.parent
        return Dataset(root, above if any(above.glob("sub-*")) else root, True)
    found = [
        path for path in sorted(root.glob("derivatives/*")) if any(_bold_files(path))
    ]
    named = [path for path in found if "fmriprep" in path.name.lower()]
    if len(found) > 1 and len(named) != 1:
        raise StudyError(
            f"{str(root)!r} has several derivatives with BOLD images: "
            f"{_quoted(f'derivatives/{path.name}' for path in found)}. Choose one with "
            "derivatives=..., or None for the raw images."
        )
    if not found:
        return Dataset(root, root, False)
    return Dataset((named or found)[0], root, True)


def _bold_files(root: Path) -> Iterator[tuple[Path, str]]:
    """Yield the images of a dataset, and their endings."""
    for folder in ("func", "ses-*/func"):
        for path in sorted(root.glob(f"sub-*/{folder}/*_bold.*")):
            ending = path.name.rpartition("_bold")[2]
            if ending in _KINDS:
                yield path, ending


def _all_runs(dataset: Dataset) -> list[BidsRun]:
    runs: list[BidsRun] = []
    hemispheres: dict[tuple[tuple[str, str], ...], dict[str, Path]] = {}
    for path, ending in _bold_files(dataset.images):
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
    """List the runs of each subject, in order, by task, space, session and run.

    Whatever is None must be the same for all files (sessions and runs: all are
    taken); an error lists what there is to choose from.
    """
    found = dataset.runs
    where = f"{str(dataset.images)!r}"
    if not found:
        raise StudyError(
            f"{where} has no BOLD images (sub-*/[ses-*/]func/*_bold.nii.gz). "
            "Is it the root of a BIDS dataset?"
        )
    found = _pick_one(found, "task", task, where)
    found = _pick(found, "subjects", subjects, where)
    found = _pick(found, "sessions", sessions, where)
    found = _pick_one(found, "space", space, where)
    for key, value in (entities or {}).items():
        found = _pick_one(found, key, value, where)
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
        found = _pick_one(found, "desc", "preproc", where)
    found = _pick(found, "runs", runs, where)
    by_subject: dict[str, list[BidsRun]] = {}
    for run in sorted(found, key=lambda run: run.order):
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


def _pick_one(
    runs: list[BidsRun], key: str, wanted: str | None, where: str
) -> list[BidsRun]:
    known = sorted({run.value(key) for run in runs})
    if wanted is None and len(known) > 1:
        raise StudyError(
            f"{where} has more than one {key}: {_quoted(known)}. Choose one with "
            f"{key}=..."
        )
    return _pick(runs, key, None if wanted is None else [wanted], where)


def _pick(runs: list[BidsRun], option: str, wanted: Any, where: str) -> list[BidsRun]:
    """Keep the runs that an option asks for; all, if it is None."""
    if wanted is None:
        return runs
    key = _OPTIONS.get(option, option)
    listed = check_list_option(option, wanted, "load_bids")
    value_of = _unpadded if key == "run" else str
    chosen = [value_of(str(value).removeprefix(f"{key}-")) for value in listed]
    known = sorted({value_of(run.value(key)) for run in runs})
    unknown = [value for value in chosen if value not in known]
    if unknown:
        raise StudyError(
            f"{where} has no {option} {_quoted(unknown)}; it has {_quoted(known)}."
        )
    return [run for run in runs if value_of(run.value(key)) in chosen]


def _unpadded(value: str) -> str:
    """Return a number without leading zeros, so that run-01 is run-1."""
    return value.lstrip("0") or "0" if value.isdigit() else value


def inherited_files(root: Path, run: BidsRun, suffix: str, ending: str) -> list[Path]:
    """Find files that apply to a run by the inheritance principle, nearest first.

    A file applies if all entities in its name are those of the run, at the run's own
    level or at a level above.
    """
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

    Return the columns to remove (a DataFrame) and a mask of the volumes that may be
    used, both None if nothing is asked for; and how many of the others were scanned
    before the magnetisation was steady.
    """
    if confounds is None and scrub is None:
        return None, None, 0
    tables = inherited_files(dataset.images, run, "desc-confounds_timeseries", ".tsv")
    if not tables:
        raise StudyError(
            f"{str(run.path)!r} has no confounds (*_desc-confounds_timeseries.tsv) "
            "beside it. Use confounds=None and scrub=None, or the output of fMRIPrep."
        )
    table, kept = tables[0], None
    columns = _columns(table, confounds if isinstance(confounds, list) else [])
    usable = np.ones(len(columns), bool)
    if not (confounds is None or isinstance(confounds, list)):
        loaded, kept = _nilearn_confounds(run.path, table, confounds)
        columns = columns if loaded is None else loaded
        if kept is not None:
            usable = np.isin(np.arange(len(usable)), kept)
    if scrub is not None:
        displacement = _columns(table, ["framewise_displacement"]).to_numpy()[:, 0]
        usable &= ~(displacement > scrub)
    if not usable.any():
        raise StudyError(
            f"{str(table)!r}: scrubbing leaves no volume of this run. Raise scrub=..., "
            "or leave the run out."
        )
    names = read_table(table, nrows=0).columns
    flags = [name for name in names if name.startswith("non_steady_state")]
    unsteady = (_columns(table, flags).to_numpy() > 0).any(axis=1) & ~usable
    return columns, usable, int(unsteady.sum())


def _columns(table: Path, names: list[str]) -> Any:
    frame = read_table(table)
    unknown = [name for name in names if name not in frame.columns]
    if unknown:
        raise StudyError(
            f"{str(table)!r} has no column {_quoted(unknown)}; it has "
            f"{_quoted(frame.columns)}."
        )
    try:
        return frame[names].astype(np.float64)
    except (TypeError, ValueError) as error:
        raise StudyError(
            f"{str(table)!r}: {_quoted(names)} are not all numbers ({error})."
        ) from None


def _nilearn_confounds(image: Path, table: Path, confounds: Any) -> tuple[Any, Any]:
    """Load confounds by one of nilearn's strategies, components, or options."""
    from nilearn.interfaces.fmriprep import load_confounds, load_confounds_strategy

    if isinstance(confounds, str):
        check_option("confounds", confounds, _STRATEGIES, owner="load_bids")
    elif isinstance(confounds, tuple):
        confounds = {"strategy": confounds}
    elif not isinstance(confounds, Mapping):
        raise TypeError(
            "confounds must be a name, a tuple, a list, a mapping or None, got "
            f"{type(confounds).__name__}."
        )
    try:
        with warnings.catch_warnings():
            # nilearn notes that columns are missing for compcor and the like
            warnings.simplefilter("ignore", UserWarning)
            if isinstance(confounds, str):
                return load_confounds_strategy(str(image), confounds)
            return load_confounds(str(image), **confounds)
    except Exception as error:
        # a damaged table or sidecar makes nilearn fail in any way
        said = " ".join(str(error).split())[:200] or type(error).__name__
        raise StudyError(
            f"{str(table)!r} does not serve confounds={confounds!r}: "
            f"{_odd_cell(table)}{said}"
        ) from error


def _odd_cell(table: Path) -> str:
    """Name the first cell that is neither a finite number nor missing."""
    import pandas as pd

    frame = read_table(table)
    numbers = frame.apply(pd.to_numeric, errors="coerce")
    odd = np.argwhere(frame.notna().to_numpy() & ~np.isfinite(numbers.to_numpy(float)))
    if not len(odd):
        return ""
    row, column = odd[0]
    name, cell = frame.columns[column], frame.iat[row, column]
    return f"{name!r} is {cell} in row {row + 1}. "


def _quoted(values: Iterable[str]) -> str:
    return ", ".join(map(repr, values))
