"""Find the runs of a BIDS dataset, raw or preprocessed, by the names of its files."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property, partial
from os import PathLike
from pathlib import Path
from typing import Any

from brainweave._validation import check_list_option
from brainweave.exceptions import StudyError
from brainweave.study.timing import checked_tr

__all__ = ["NATIVE", "BidsRun", "Dataset", "find_runs", "inherited", "open_dataset"]

#: Name of the space of files without a ``space`` entity.
NATIVE = "native"

_KINDS = {
    ".nii.gz": "volume",
    ".nii": "volume",
    ".dtseries.nii": "cifti",
    ".func.gii": "surface",
}
# Entities that tell versions of one and the same run apart.
_ALTERNATIVES = ("res", "den", "desc", "rec", "echo")
_ENTITY = re.compile(r"([a-zA-Z]+)-([a-zA-Z0-9+]+)")


@dataclass(frozen=True)
class Dataset:
    """A BIDS dataset: where images are looked for, and where the raw files are.

    Parameters
    ----------
    images : Path
        The root of the dataset with the images.
    raw : Path
        The root of the raw dataset, which has the events.
    preprocessed : bool
        Whether the images are derivatives.
    """

    images: Path
    raw: Path
    preprocessed: bool

    def __fspath__(self) -> str:
        """Stand for the folder, so that ``load_bids`` takes a dataset in its place."""
        return str(self.images if self.raw == self.images else self.raw)

    @cached_property
    def runs(self) -> list[BidsRun]:
        """All runs; the folders are listed once, however many subjects are loaded."""
        return _all_runs(self)


@dataclass(frozen=True)
class BidsRun:
    """One run of one subject.

    Parameters
    ----------
    entities : dict
        What the file name says, such as ``{"sub": "01", "task": "objects"}``.
    kind : {"volume", "cifti", "surface"}
        What the image is.
    image : Path or dict of str to Path
        The image; for surfaces, one per hemisphere.
    """

    entities: dict[str, str] = field(hash=False)
    kind: str
    image: Any

    @property
    def path(self) -> Path:
        """The image's path, or that of its first hemisphere."""
        return self.image if isinstance(self.image, Path) else min(self.image.values())

    @property
    def space(self) -> str:
        """The space, :data:`NATIVE` if the name has none."""
        return self.entities.get("space", NATIVE)

    @property
    def run(self) -> int | str:
        """Number of the run, from 1; with sessions ``"ses-<session>_run-<run>"``."""
        number = self.entities.get("run", "1")
        if "ses" in self.entities:
            return f"ses-{self.entities['ses']}_run-{number}"
        return int(number) if number.isdigit() else number

    @property
    def order(self) -> tuple[Any, ...]:
        """What runs of a subject are sorted by."""
        number = self.entities.get("run", "1")
        return (
            self.entities.get("ses", ""),
            int(number) if number.isdigit() else 0,
            number,
        )

    def stem(self, *entities: str) -> str:
        """Rebuild the beginning of a name from some entities, in their order."""
        return "_".join(f"{k}-{v}" for k, v in self.entities.items() if k in entities)


def open_dataset(folder: str | PathLike[str], derivatives: Any = "auto") -> Dataset:
    """Find out what a folder is: raw BIDS, with or without derivatives, or those.

    Parameters
    ----------
    folder : path or Dataset
        The root of a raw dataset, or of derivatives. The raw dataset of the latter is
        two folders up (``derivatives/fmriprep``), if there is one. What is open
        already is returned as it is.
    derivatives : "auto", path or None, default="auto"
        Where preprocessed images are: ``"auto"`` looks into ``derivatives``, None
        keeps to the raw images.
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
    if _is_derivative(root):
        above = root.resolve().parent.parent
        raw = above if any(above.glob("sub-*")) else root
        return Dataset(root, raw, True)
    found = [
        candidate
        for candidate in sorted((root / "derivatives").glob("*"))
        if candidate.is_dir() and _has_bold(candidate)
    ]
    named = [candidate for candidate in found if "fmriprep" in candidate.name.lower()]
    if len(found) > 1 and len(named) != 1:
        names = ", ".join(repr(f"derivatives/{f.name}") for f in found)
        raise StudyError(
            f"{str(root)!r} has several derivatives with BOLD images: {names}. Choose "
            "one with derivatives=..., or None for the raw images."
        )
    if not found:
        return Dataset(root, root, False)
    return Dataset((named or found)[0], root, True)


def _is_derivative(root: Path) -> bool:
    description = root / "dataset_description.json"
    if not description.exists():
        return False
    return bool(_read_json(description).get("DatasetType") == "derivative")


def _has_bold(root: Path) -> bool:
    return next(_bold_files(root, "sub-*"), None) is not None


def _bold_files(root: Path, subject: str) -> Any:
    for pattern in ("func", "ses-*/func"):
        for ending in _KINDS:
            yield from sorted(root.glob(f"{subject}/{pattern}/*_bold{ending}"))


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
    tasks = _Choice("task", lambda run: run.entities.get("task", ""))
    found = tasks.pick_one(found, task, where)
    wanted = None if subjects is None else _bare_list("subjects", subjects, "sub")
    found = _Choice("subjects", lambda run: run.entities["sub"]).pick(
        found, wanted, where
    )
    chosen = None if sessions is None else _bare_list("sessions", sessions, "ses")
    found = _Choice("sessions", lambda run: run.entities.get("ses", "")).pick(
        found, chosen, where
    )
    found = _Choice("space", lambda run: run.space).pick_one(found, space, where)
    for key, value in (entities or {}).items():
        found = _Choice(key, partial(_entity, key=key)).pick(
            found, [_bare(value, key)], where
        )
    for key in _ALTERNATIVES:
        values = sorted({_entity(run, key) for run in found})
        if len(values) > 1:
            found = _prefer(found, key, values, where)
    if runs is not None:
        numbers = _bare_list("runs", runs, "run")
        numbers = [n.lstrip("0") or "0" for n in numbers]
        found = _Choice(
            "runs", lambda run: run.entities.get("run", "1").lstrip("0") or "0"
        ).pick(found, numbers, where)
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


@dataclass(frozen=True)
class _Choice:
    """One thing that files differ in."""

    name: str
    value: Callable[[BidsRun], str]

    def values(self, runs: Sequence[BidsRun]) -> list[str]:
        return sorted({self.value(run) for run in runs})

    def pick(
        self, runs: list[BidsRun], wanted: list[str] | None, where: str
    ) -> list[BidsRun]:
        if wanted is None:
            return runs
        known = self.values(runs)
        unknown = [value for value in wanted if value not in known]
        if unknown:
            raise StudyError(
                f"{where} has no {self.name} {_quoted(unknown)}; it has "
                f"{_quoted(known)}."
            )
        return [run for run in runs if self.value(run) in wanted]

    def pick_one(
        self, runs: list[BidsRun], wanted: str | None, where: str
    ) -> list[BidsRun]:
        if wanted is not None:
            wanted = _bare(wanted, self.name)
            return self.pick(runs, [wanted], where)
        known = self.values(runs)
        if len(known) > 1:
            raise StudyError(
                f"{where} has more than one {self.name}: {_quoted(known)}. Choose one "
                f"with {self.name}=..."
            )
        return runs


def _entity(run: BidsRun, key: str) -> str:
    return run.entities.get(key, "")


def _prefer(
    runs: list[BidsRun], key: str, values: list[str], where: str
) -> list[BidsRun]:
    # fMRIPrep's preprocessed series; its other series have other descriptions
    if key == "desc" and "preproc" in values:
        return [run for run in runs if _entity(run, key) == "preproc"]
    raise StudyError(
        f"{where} has images that differ in {key!r}: {_quoted(values)}. Choose one "
        f"with entities={{{key!r}: ...}}."
    )


def _all_runs(dataset: Dataset) -> list[BidsRun]:
    runs: list[BidsRun] = []
    hemispheres: dict[tuple[tuple[str, str], ...], dict[str, Path]] = {}
    for path in _bold_files(dataset.images, "sub-*"):
        ending = max((e for e in _KINDS if path.name.endswith(e)), key=len)
        entities = dict(_ENTITY.findall(path.name.removesuffix(f"_bold{ending}")))
        kind = _KINDS[ending]
        if ending == ".nii" and path.name.endswith(".dtseries.nii"):
            continue
        if "sub" not in entities:
            continue
        if kind == "surface":
            side = str(entities.pop("hemi", "L"))
            key = tuple(entities.items())
            name = {"L": "CortexLeft", "R": "CortexRight"}.get(side, side)
            hemispheres.setdefault(key, {})[name] = path
        elif entities.get("part", "mag") == "mag":
            runs.append(BidsRun(entities, kind, path))
    for key, sides in hemispheres.items():
        image: Any = dict(sorted(sides.items()))
        runs.append(
            BidsRun(
                dict(key),
                "surface",
                image if len(image) > 1 else next(iter(image.values())),
            )
        )
    return runs


def inherited(dataset_root: Path, run: BidsRun, suffix: str, ending: str) -> list[Path]:
    """Find files that apply to a run by the inheritance principle, nearest first.

    A file applies if all entities in its name are those of the run, at the run's own
    level or at a level above.
    """
    func = f"sub-{run.entities['sub']}"
    levels = [dataset_root, dataset_root / func]
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
            if all(_same(run.entities.get(k), v) for k, v in entities.items()):
                fitting.append((len(entities), path))
        found.extend(path for _, path in sorted(fitting, reverse=True))
    return found


def _same(mine: str | None, other: str) -> bool:
    if mine is None:
        return False
    if mine.isdigit() and other.isdigit():
        return int(mine) == int(other)  # run-1 and run-01
    return mine == other


def repetition_time(dataset: Dataset, run: BidsRun) -> tuple[float | None, str]:
    """Read the repetition time from the sidecars, the image's own before the raw ones.

    Returns
    -------
    seconds : float or None
        None if no sidecar states it.
    where : str
        Which file does, for messages.
    """
    for root in dict.fromkeys((dataset.images, dataset.raw)):
        for path in inherited(root, run, "bold", ".json"):
            value = _read_json(path).get("RepetitionTime")
            if value is not None:
                where = f"RepetitionTime in {str(path)!r}"
                return checked_tr(value, where), where
    return None, ""


def _read_json(path: Path) -> dict[str, Any]:
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise StudyError(f"{str(path)!r} is not readable JSON ({error}).") from error
    if not isinstance(content, dict):
        raise StudyError(f"{str(path)!r} holds no JSON object.")
    return content


def _bare(label: Any, prefix: str) -> str:
    text = str(label)
    return text.removeprefix(f"{prefix}-")


def _bare_list(name: str, values: Any, prefix: str) -> list[str]:
    return [_bare(v, prefix) for v in check_list_option(name, values, "load_bids")]


def _quoted(values: Sequence[str]) -> str:
    return ", ".join(repr(value) for value in values)
