"""Studies, models and folders that commands read and write."""

import warnings
from pathlib import Path
from typing import TYPE_CHECKING, Any

from brainweave.cli.console import Console, Unwritable, UsageError, subjects_are
from brainweave.cli.options import effective, provenance, write_config

if TYPE_CHECKING:
    from brainweave.evaluation.splits import SplitStudy
    from brainweave.study.study import Study


# -- places to write to ----------------------------------------------------------------


def check_writable(*paths: Path) -> None:
    """Refuse places that cannot be written to, before any work is done."""
    from brainweave._io import check_can_write

    for path in paths:
        if path.suffix and path.is_dir():
            raise UsageError(f"{str(path)!r} is a folder. Name a file in it.")
        try:
            check_can_write(path)
        except OSError as error:
            reason = error.strerror or str(error)
            raise Unwritable(
                f"{str(path)!r} cannot be written ({reason}). Choose another place."
            ) from error


def check_new_model(path: Path) -> None:
    """Refuse a model file that cannot be written."""
    if path.suffix != ".safetensors":
        raise UsageError(f"--output must end in .safetensors; got {str(path)!r}.")
    folder = path.absolute().parent
    if not folder.is_dir():
        raise UsageError(f"There is no folder {str(folder)!r} to write to.")
    check_writable(path, path.with_suffix(".toml"))


def check_new_folder(folder: Path, overwrite: bool) -> None:
    """Refuse a study folder that is there, or cannot be made."""
    from brainweave.study.formats.folder import INDEX

    check_writable(folder)
    if (folder.exists() or folder.is_symlink()) and not overwrite:
        raise UsageError(
            f"{str(folder)!r} exists. Choose another folder, or add --overwrite to "
            "replace the study in it."
        )
    if folder.exists() and not (folder / INDEX).is_file():
        raise UsageError(f"{str(folder)!r} holds no study, so it is not replaced.")


def prepare_folder(folder: Path) -> None:
    """Make the folder of the results, or say why that cannot be."""
    if folder.exists() and not folder.is_dir():
        raise UsageError(f"{str(folder)!r} is a file; --output names a folder.")
    folder.mkdir(parents=True, exist_ok=True)
    probe = folder / ".brainweave.partial"
    probe.touch()
    probe.unlink()


def save_study(
    study: "Study",
    folder: Path,
    console: Console,
    *,
    told: bool = True,
    about: dict[str, Any] | None = None,
    **settings: Any,
) -> None:
    """Write a study folder and, of the command that made it, options and versions."""
    config = folder / "brainweave.toml"
    # a configuration tells of the study beside it, never of the one before
    config.unlink(missing_ok=True)
    with console.stage("Writing subjects", len(study)) as tick:
        saved = study.save(folder, progress=lambda _, __, id: tick(id), **settings)
    if told:
        known = {"study_fingerprint": saved.fingerprint(), **(about or {})}
        made = provenance(console.command, {}, saved.ids, **known)
        write_config(config, console.command, effective(console), made)


def save_model(model: Any, path: Path, made: Any, console: Console) -> None:
    """Write a model and, beside it, the options of the command that made it."""
    import brainweave

    with console.stage("Writing the model"):
        brainweave.save(model, path, provenance=made)
    _, command, *_ = made["command"].split()
    write_config(path.with_suffix(".toml"), command, made["options"])


def write_page(path: Path, console: Console, **content: Any) -> Path:
    """Write a report, with what was warned of and how long it took; return its path."""
    from brainweave.report import write_report

    known = {"warnings": console.warnings, "seconds": console.seconds}
    with console.stage("Writing the report"):
        return write_report(path, **{**known, **content})


# -- studies and models that are there -------------------------------------------------


def open_study(path: Path, **settings: Any) -> "Study":
    """Open a study folder; say what to do with anything else."""
    from brainweave.study.study import Study

    if not path.exists():
        raise UsageError(f"There is no folder {str(path)!r}. Check the path.")
    if not (path / "study.json").is_file():
        raise UsageError(
            f"{str(path)!r} is not a study folder. Make one with: brainweave convert "
            f"{path} STUDY, or: brainweave simulate STUDY."
        )
    return Study.open(path, **settings)


def load_model(
    path: Path, subjects: str | None = None
) -> tuple[Any, list[str], dict[str, Any]]:
    """Load a model of several subjects, their ids, and how it was made."""
    import brainweave
    from brainweave.aligners.base import BaseAligner

    if not path.is_file():
        raise UsageError(f"There is no model file {str(path)!r}. Check the path.")
    model = brainweave.load(path)
    if not isinstance(model, BaseAligner):
        raise UsageError(f"{str(path)!r} holds the map of one subject, not a model.")
    made = brainweave.describe(path).provenance
    known = getattr(model, "ids_", None) or made.get("subjects")
    if not isinstance(known, list) or len(known) != model.n_subjects_:
        known = None
    ids = None if known is None else [str(id) for id in known]
    return model, _ids(path, model.n_subjects_, ids, subjects), made


def _ids(path: Path, n: int, known: list[str] | None, given: str | None) -> list[str]:
    """Return who the model's subjects are; nobody is guessed."""
    if given is None:
        if known is None:
            raise UsageError(
                f"{str(path)!r} does not say who its {n} subjects are: it was fitted "
                "on arrays, without ids. Name them in the order of the fit, such as "
                "--subjects 01,02,03, or fit on a Study."
            )
        return known
    ids = [id.strip().removeprefix("sub-") for id in given.split(",") if id.strip()]
    if known is not None and ids != known:
        raise UsageError(
            f"--subjects {given} contradicts the model, which has {', '.join(known)}. "
            "Leave it out."
        )
    if len(ids) != n or len(set(ids)) != n:
        raise UsageError(
            f"--subjects must name the {n} subjects of the model, each once; got "
            f"{given!r}."
        )
    return ids


# -- samples that correspond, voxels that correspond -----------------------------------


def matched(study: "Study", how: str | None) -> "Study":
    """Make the samples of all subjects correspond, if that was asked."""
    if how is None:
        return study
    from brainweave.evaluation import splits

    use = "stimuli" if how == "intersect" else "labels"
    if any(getattr(s, use) is None for s in study):
        raise UsageError(f"--match {how} needs the {use} of all samples.")
    return splits.match_study(study, how)


def divided(
    study: "Study", match: str | None, halves: Any, *, common: bool = False
) -> "SplitStudy":
    """Split a study; what is matched or cut first is still known as that study."""
    from brainweave.evaluation.splits import split_study
    from brainweave.study.spaces import common_voxels

    used = common_voxels(study) if common else study
    split = split_study(matched(used, match), halves=halves)
    if match is not None:
        split.design["match"] = match
    if common:
        split.design["voxels"] = "common"
    if match is not None or common:
        split.fingerprint = study.fingerprint()
    return split


def tell_matching(study: "Study", how: str | None, console: Console) -> "Study":
    """Return the matched study; say what was dropped, in the record of both too."""
    found = matched(study, how)
    if how is not None:
        from brainweave.study.provenance import describe_record

        study.record = found.record
        console.note(f"--match {dict(describe_record(found.record))['matching']}")
    return found


def on_common_voxels(aligners: dict[str, Any], study: "Study") -> list[str]:
    """Return the methods that need the voxels which all subjects have; say so.

    Only where masks differ: equal numbers of voxels are not the same voxels.
    """
    import numpy as np

    from brainweave.exceptions import StudyError
    from brainweave.study.spaces import common_space

    names = [n for n, a in aligners.items() if type(a).__name__ == "NoAlignment"]
    masks: list[Any] = [getattr(s.space, "mask", None) for s in study]
    if not names or any(m is None for m in masks):
        return []
    if all(np.array_equal(m, masks[0]) for m in masks):
        return []
    try:
        n = common_space((s.id, s.space) for s in study).n_voxels
    except StudyError:
        return []  # the method itself says why it cannot go on
    own = spread_of(s.n_voxels for s in study)
    warnings.warn(
        f"The masks differ: {', '.join(names)} compares voxel by voxel, so it is "
        f"scored on the {n} voxels that all subjects have ({own} each).",
        stacklevel=2,
    )
    return names


def spread_of(numbers: Any) -> str:
    """Return the least and the most of numbers, as text.

    Examples
    --------
    >>> spread_of([4, 4]), spread_of([9, 4, 5])
    ('4', '4 to 9')
    """
    found = list(numbers)
    low, high = min(found), max(found)
    return str(low) if low == high else f"{low} to {high}"


# -- fits ------------------------------------------------------------------------------


class Watched:
    """A subject that tells when it has been read."""

    def __init__(self, subject: Any, tick: Any) -> None:
        from brainweave._workers import LocalCallback

        self._subject, self._tick = subject, LocalCallback(tick)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):  # asked of it while it is unpickled
            raise AttributeError(name)
        return getattr(self._subject, name)

    def data(self) -> Any:
        """Read the samples."""
        samples = self._subject.data()
        self._tick(f"subject {self._subject.id}")
        return samples


def fit_study(aligner: Any, study: "Study", console: Console) -> Any:
    """Fit an aligner on a study with a bar that counts subjects."""
    subjects_are(study.ids)
    with console.stage("Reading and aligning subjects", len(study)) as tick:
        return aligner.fit([Watched(s, tick) for s in study])
