"""The BIDS App: its command, and the level that makes a basis of each subject."""

import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from brainweave._core.exceptions import BrainweaveError, ModelFileError
from brainweave._core.io import check_can_write, file_stamp, has_changed
from brainweave.cli import files
from brainweave.cli.bids_derivative import Derivative, name_entities
from brainweave.cli.cluster import Engine
from brainweave.cli.console import (
    Console,
    PartlyFailed,
    UsageError,
    error_message,
)
from brainweave.cli.methods import Method, make_aligner, resolved_options
from brainweave.cli.options import (
    RUN_PANEL,
    argument,
    command,
    option,
    parse_params,
    refuse_unknown,
)
from brainweave.cli.reading import Reading, call_with, option_names

if TYPE_CHECKING:
    from brainweave.persistence.models import Description
    from brainweave.study.formats.bids import BidsRun, Dataset
    from brainweave.study.study import Study

# how a basis is made, where the aligner does not say
BASIS_DEFAULTS = {
    "kernel": "linear",
    "kernel_params": None,
    "energy": 1.0,
    "standardize": True,
}
# options of load_bids that choose files
FILE_OPTIONS = ("task", "space", "sessions", "runs", "entities")
# options since the first version; --bids-param still takes those that came later
NEVER_BIDS_PARAM = ("task", "space", "samples", "label", "stimulus", "smoothing_fwhm")


@dataclass
class Selection(Reading):
    """What of the dataset to use."""

    bids_param: list[str] | None = option("Any other option of load_bids, NAME=VALUE.")

    def load_options(self) -> dict[str, Any]:
        """Return the options of ``load_bids``, but for the subjects."""
        given = super().load_options()
        others = parse_params(self.bids_param, option="--bids-param")
        for name in others:
            if name in NEVER_BIDS_PARAM or name in given:
                raise UsageError(
                    f"--bids-param {name}=... has an option of its own: "
                    f"--{name.replace('_', '-')}."
                )
        return {"samples": "volumes", "label": "trial_type", **given, **others}


@dataclass
class Resources:
    """What the machine may spend."""

    panel: ClassVar[str] = RUN_PANEL
    work_dir: Path | None = option("Folder for temporary files.", "--work-dir", "-w")
    mem_mb: int | None = option("Most memory to use, in MB.", "--mem-mb", "--mem_mb")
    verbose: int = option("Say more.", "--verbose", "-v", default=0, count=True)
    skip_bids_validation: bool = option(
        "Do not look whether BIDS_DIR is a BIDS dataset.",
        "--skip-bids-validation",
        "--skip_bids_validation",
        default=False,
    )
    report: bool = option("Write an HTML report (group).", default=True)
    overwrite: bool = option("Make bases that are there again.", default=False)


class Inputs:
    """A BIDS dataset, and how subjects are read from it."""

    def __init__(self, folder: Path, options: dict[str, Any]) -> None:
        from brainweave.study.formats.bids import load_bids

        self.folder, self.options = folder, dict(options)
        self.derivatives = self.options.pop("derivatives", "auto")
        message = "--bids-param {}: load_bids has no such option"
        refuse_unknown(self.options, option_names(load_bids)[1:], message)
        for name in ("subjects", "name"):
            if name in self.options:
                raise UsageError(
                    f"--bids-param {name} cannot be used here; subjects are chosen "
                    "with --participant-label."
                )
        if self.options.get("mask") == "common":
            raise UsageError(
                "--mask common needs all subjects at once, and participant jobs see "
                "one each. Give a mask image: --mask FILE."
            )

    @cached_property
    def dataset(self) -> "Dataset":
        """The list of its files."""
        from brainweave.study.formats.bids import open_dataset

        return open_dataset(self.folder, self.derivatives)

    def entities(self, id: str) -> str:
        """Return the task and the space of a subject's files, chosen or the only one.

        Where there are several to choose from, reading the subject is an error.
        """
        runs, chosen = self.dataset.runs, {}
        for key in ("task", "space"):
            if key == "space":
                runs = [run for run in runs if run.entities["sub"] == id]
            found = {run.value(key) for run in runs}
            only = found.pop() if len(found) == 1 else ""
            chosen[key] = str(self.options.get(key) or only)
            wanted = chosen[key].removeprefix(f"{key}-")
            runs = [run for run in runs if run.value(key) == wanted]
        return name_entities(**chosen)

    def study(self, id: str) -> "Study":
        """Return a study of one subject."""
        from brainweave.study.formats.bids import load_bids

        return call_with(load_bids, self.dataset, subjects=[id], **self.options)

    def stamps(self, id: str) -> dict[str, Any]:
        """Return a stamp of each file that a subject's basis depends on, by name."""
        return {self._name(path): file_stamp(path) for path in self._files(id)}

    def unchanged(self, id: str, stamps: Any) -> bool:
        """Whether a subject's files are those that were stamped, and no others."""
        files = {self._name(path): path for path in self._files(id)}
        if not isinstance(stamps, dict) or set(stamps) != set(files):
            return False
        return not any(has_changed(path, stamps[name]) for name, path in files.items())

    def _files(self, id: str) -> list[Path]:
        from brainweave.study.formats.bids import find_runs

        chosen = {k: v for k, v in self.options.items() if k in FILE_OPTIONS}
        found = find_runs(self.dataset, subjects=[id], **chosen)
        paths = {path for run in found.get(id, []) for path in self._run_files(run)}
        mask = self.options.get("mask")
        if isinstance(mask, str) and Path(mask).is_file():
            paths.add(Path(mask))
        return sorted(paths)

    def _run_files(self, run: "BidsRun") -> Iterator[Path]:
        from brainweave.study.formats.bids import inherited_files

        yield from run.image.values() if isinstance(run.image, dict) else [run.image]
        raw, images = self.dataset.raw, self.dataset.images
        for root, suffix, ending in (
            (raw, "events", ".tsv"),
            (raw, "bold", ".json"),
            (images, "bold", ".json"),
            (images, "desc-confounds_timeseries", ".tsv"),
            (images, "desc-confounds_timeseries", ".json"),
            (images, "desc-brain_mask", ".nii.gz"),
        ):
            yield from inherited_files(root, run, suffix, ending)

    def _name(self, path: Path) -> str:
        inside = path.is_relative_to(self.folder)
        return (path.relative_to(self.folder) if inside else path.absolute()).as_posix()


@dataclass
class Job:
    """One run of the app: its options, its inputs, and where its files go."""

    console: Console
    inputs: Inputs
    derivative: Derivative
    selection: Selection
    method: Method
    resources: Resources

    def __post_init__(self) -> None:
        self.aligner = make_aligner(self.method)

    @cached_property
    def options(self) -> dict[str, Any]:
        """All options as they were used."""
        return files.used_options(self.console, **resolved_options(self.aligner))

    @cached_property
    def settings(self) -> dict[str, Any]:
        """What a basis depends on: how it is made, and from which data."""
        from brainweave.persistence.codec import plain

        params = self.aligner.get_params(deep=False)
        basis = {
            name: params.get(name, BASIS_DEFAULTS[name]) for name in BASIS_DEFAULTS
        }
        if basis["energy"] is None:
            basis["energy"] = BASIS_DEFAULTS["energy"]
        data = dict(self.inputs.options)
        if self.inputs.derivatives != "auto":
            data["derivatives"] = self.inputs.derivatives
        known = {
            "basis": {k: v for k, v in basis.items() if v is not None},
            "data": {k: "none" if v is None else v for k, v in data.items()},
        }
        return dict(plain(known, other=str))


@command(selection=Selection, method=Method, resources=Resources, engine=Engine)
def run(
    bids_dir: Path = argument("BIDS dataset, or fMRIPrep output."),
    output_dir: Path = argument("Folder of the derivative."),
    analysis_level: str = argument("participant or group."),
    *,
    selection: Selection,
    method: Method,
    resources: Resources,
    console: Console,
) -> None:
    """Run as a BIDS App.

    participant writes one basis file per subject; run it for all, or as one job per
    subject on any scheduler. group aligns from these files. Exit codes: 0 done, 1 a
    subject failed (it is named, the others are done), 2 wrong usage.
    """
    from brainweave.cli.bids_group import align_group

    levels = {"participant": make_bases, "group": align_group}
    if analysis_level not in levels:
        raise UsageError(
            f"The level must be participant or group; got {analysis_level!r}."
        )
    check_dataset(bids_dir, resources.skip_bids_validation)
    if output_dir.exists() and not output_dir.is_dir():
        raise UsageError(f"{str(output_dir)!r} is a file, not a folder.")
    if output_dir.resolve() == bids_dir.resolve():
        raise UsageError("OUTPUT_DIR must not be BIDS_DIR itself.")
    for name in ("match", "parcels", "searchlight"):
        if getattr(method, name) is not None:
            raise UsageError(f"--{name} needs a study folder: use brainweave fit.")
    if method.method.lower() == "gdmcv":
        raise UsageError("--method gdmcv needs a study folder: use brainweave tune.")
    if resources.mem_mb is not None and resources.mem_mb < 1:
        raise UsageError(f"--mem-mb must be 1 or more; got {resources.mem_mb}.")
    job = Job(
        console=console,
        inputs=Inputs(bids_dir, selection.load_options()),
        derivative=Derivative(output_dir, bids_dir),
        selection=selection,
        method=method,
        resources=resources,
    )
    if not job.aligner._from_grams:
        raise UsageError(
            f"--method {method.method} needs voxels, which basis files do not hold. "
            "Convert the dataset to a study folder, and use brainweave fit."
        )
    if resources.work_dir is not None:
        resources.work_dir.mkdir(parents=True, exist_ok=True)
        tempfile.tempdir = str(resources.work_dir)
    levels[analysis_level](job)


def check_dataset(folder: Path, skip: bool) -> None:
    """Refuse what is not a BIDS dataset."""
    if not folder.is_dir():
        raise UsageError(f"There is no folder {str(folder)!r}. Check BIDS_DIR.")
    if skip:
        return
    if not (folder / "dataset_description.json").is_file():
        raise UsageError(
            f"{str(folder)!r} has no dataset_description.json, so it is no BIDS "
            "dataset. If it is one all the same, add --skip-bids-validation."
        )
    if not any(folder.glob("sub-*")):
        raise UsageError(f"{str(folder)!r} has no subjects (folders sub-...).")


# -- participant -----------------------------------------------------------------------


def make_bases(job: Job) -> None:
    """Write the basis of each subject; name those that failed."""
    from brainweave._core.workers import LocalCallback, map_subjects

    ids = _chosen_subjects(job)
    job.derivative.write_description()
    job.console.resume_hint = (
        "Run the same command again: subjects that are done are kept."
    )
    # this lists the files once, before several threads ask for them
    targets = [job.derivative.basis_path(id, job.inputs.entities(id)) for id in ids]
    with job.console.stage("Making bases", len(ids)) as tick:
        arguments = targets, [job] * len(ids), [LocalCallback(tick)] * len(ids)
        errors = map_subjects(_try_basis, ids, *arguments, n_jobs=_n_jobs(job, ids))
    for target, error in zip(targets, errors, strict=True):
        if not error:
            job.console.result(str(target))
    failed = {id: error for id, error in zip(ids, errors, strict=True) if error}
    if failed:
        raise PartlyFailed(_failure_message(failed, len(ids)))


def _try_basis(id: str, target: Path, job: Job, tick: Any) -> str:
    """Make a basis; return the message of its error, if any, so that others go on."""
    try:
        _make_basis(id, target, job)
    except Exception as error:
        return error_message(error)
    finally:
        tick(f"sub-{id}")
    return ""


def _failure_message(failed: dict[str, str], n_subjects: int) -> str:
    """Name the subjects that failed and why; a reason that all share only once."""
    rest = "" if len(failed) == n_subjects else ", the others are done"
    text = f"{len(failed)} of {n_subjects} subjects failed{rest}. "
    if len(failed) > 1 and len(set(failed.values())) == 1:
        return f"{text}For all of them: {failed[next(iter(failed))]}"
    return text + "; ".join(f"sub-{id}: {error}" for id, error in failed.items())


def _chosen_subjects(job: Job) -> list[str]:
    """Return the ids given by --participant-label, else those of all subjects."""
    folder = job.inputs.folder
    found = sorted(
        {p.name.removeprefix("sub-") for p in folder.glob("sub-*") if p.is_dir()}
    )
    given = job.selection.participant_label
    if not given:
        return found
    ids = [label.removeprefix("sub-") for label in given]
    refuse_unknown(ids, found, f"There is no subject '{{}}' in {str(folder)!r}")
    return list(dict.fromkeys(ids))


def _n_jobs(job: Job, ids: list[str]) -> int:
    """Return how many subjects fit into the memory at the same time."""
    import joblib

    from brainweave._core.workers import cluster_workers

    jobs = job.method.n_jobs or cluster_workers() or 1
    jobs = joblib.cpu_count() if jobs < 0 else jobs
    if job.resources.mem_mb is None or jobs == 1:
        return int(jobs)
    try:
        (subject,) = job.inputs.study(ids[0])
    except (BrainweaveError, OSError):
        return 1
    # the samples, a copy while they are cleaned, and the inner products
    needed = 3 * subject.n_samples * subject.n_voxels * 4 + 16 * subject.n_samples**2
    return max(1, min(int(jobs), int(job.resources.mem_mb * 1e6 // needed)))


def _make_basis(id: str, target: Path, job: Job) -> None:
    """Write the basis file of a subject and its sidecar, unless they are there."""
    from brainweave import describe, save_basis
    from brainweave.basis.basis import SubjectBasis
    from brainweave.study.subject import Subject, fingerprint

    finished = None if job.resources.overwrite else _finished_basis(id, target, job)
    if finished is not None:
        if not target.with_suffix(".json").is_file():
            _write_sidecar(id, finished, job)
        return
    check_can_write(target)
    stamps = job.inputs.stamps(id)  # before they are read: later changes will show
    study = job.inputs.study(id)
    (lazy,) = study
    samples = lazy.data()
    names = ("labels", "runs", "onsets", "stimuli", "space")
    subject = Subject(id, samples, **{name: getattr(lazy, name) for name in names})
    basis = SubjectBasis(samples, name=f"sub-{id}", **job.settings["basis"])
    made = files.provenance(
        "run participant",
        job.options,
        [id],
        settings=job.settings,
        inputs=stamps,
        record=study.record,
        study_fingerprint=fingerprint([subject]),
    )
    target.parent.mkdir(parents=True, exist_ok=True)
    save_basis(basis, target, subject=subject, provenance=made)
    if job.resources.verbose:
        job.console.note(
            f"sub-{id}: {basis.n_samples} samples, {basis.n_voxels} voxels, "
            f"{basis.n_kept} directions"
        )
    _write_sidecar(id, describe(target), job)


def _finished_basis(id: str, path: Path, job: Job) -> "Description | None":
    """Describe a basis file that was made with these settings from these very files."""
    from brainweave import describe

    try:
        found = describe(path) if path.is_file() else None
    except ModelFileError:
        return None  # damaged: made again
    if found is None or found.provenance.get("settings") != job.settings:
        return None
    return found if job.inputs.unchanged(id, found.provenance.get("inputs")) else None


def _write_sidecar(id: str, basis: "Description", job: Job) -> None:
    """Write the sidecar of a basis, all of it from what the basis file says."""
    facts, made = basis.facts, basis.provenance
    job.derivative.write_sidecar(
        basis.path,
        {
            "Description": "Kernel coordinates of the samples of one subject",
            "Sources": job.derivative.sources(id),
            "NumberOfSamples": facts["n_samples"],
            "NumberOfVoxels": facts["n_voxels"],
            "NumberOfDirections": facts["n_kept"],
            "Energy": facts["energy"],
            "Kernel": facts["kernel"],
            "Options": made.get("options", {}),
            "Settings": made.get("settings", {}),
            "Preprocessing": made.get("record") or {},
            "Inputs": sorted(made.get("inputs", {})),
        },
    )
