"""Studies, models and folders that commands read and write."""

import warnings
from pathlib import Path
from typing import TYPE_CHECKING, Any

from brainweave.cli.config import provenance, write_config
from brainweave.cli.console import Console
from brainweave.cli.errors import Unwritable, UsageError, subjects_are
from brainweave.cli.methods import inner

if TYPE_CHECKING:
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
    made_by: tuple[str, dict[str, Any]] | None = None,
    *,
    about: dict[str, Any] | None = None,
    **settings: Any,
) -> None:
    """Write a study folder and, of the command that made it, options and versions."""
    config = folder / "brainweave.toml"
    # a configuration tells of the study beside it, never of the one before
    config.unlink(missing_ok=True)
    with console.stage("Writing subjects", len(study)) as tick:
        saved = study.save(folder, progress=lambda _, __, id: tick(id), **settings)
    if made_by is not None:
        known = {"study_fingerprint": saved.fingerprint(), **(about or {})}
        made = provenance(made_by[0], {}, saved.ids, **known)
        write_config(config, *made_by, made)


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
    return splits.matched(study, how)


def tell_matching(study: "Study", how: str | None, console: Console) -> "Study":
    """Return the matched study; say what was dropped, in the record of both too."""
    found = matched(study, how)
    if how is not None:
        from brainweave.study.told import preprocessing

        study.record = found.record
        console.note(f"--match {dict(preprocessing(found.record))['matching']}")
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
        from brainweave._workers import Here

        self._subject, self._tick = subject, Here(tick)

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
    known = samples_known(aligner, study)
    subjects_are(study.ids)
    with console.stage("Reading and aligning subjects", len(study)) as tick:
        return aligner.fit([Watched(s, tick) for s in study], known)


def samples_known(aligner: Any, study: "Study | list[Any]") -> list[Any] | None:
    """Return what a fit is to know of samples: categories, stimuli, or nothing."""
    graph = inner(aligner).get_params(deep=False).get("graph")
    known: list[Any] = [s.stimuli for s in study]
    if graph == "labels+time":
        from brainweave.aligners.gdm_graph import paired

        labels = [s.labels for s in study]
        if any(v is None for v in (*known, *labels)):
            return None  # the labels alone, which then have to be locked in time
        return [paired(*both) for both in zip(labels, known, strict=True)]
    if graph != "time":
        return None  # the study's own labels
    if all(k is not None for k in known):
        return known
    counts = {s.n_samples for s in study}
    if len(counts) > 1:
        raise UsageError(
            "--graph time joins samples by their stimuli, which this study does not "
            f"have, or by their number, but the subjects have {sorted(counts)} samples."
        )
    return [list(range(s.n_samples)) for s in study]


def took_part(model: Any, basis: Any, known: Any = None) -> Any:
    """Return which aligning samples shaped the maps by what is known of them."""
    import numpy as np

    from brainweave.study.subject import is_missing

    n = basis.n_samples
    if not model._joins_samples:
        return np.zeros(n, bool)
    graph = inner(model).get_params(deep=False).get("graph")
    if known is None and graph in ("labels", "labels+time"):
        known = basis.labels
    if known is None:
        return np.ones(n, bool)
    table = np.asarray(known, dtype=object)
    if table.ndim == 2:  # labels and ids: either joins a sample
        return np.any([~is_missing(column) for column in table.T], axis=0)
    return ~is_missing(table)
