"""The BIDS App: one independent job per subject, then one small job for the group."""

import tempfile
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

import typer

from brainweave._io import check_can_write
from brainweave.cli.bids_files import Derivative, Inputs, kind_of
from brainweave.cli.console import (
    Console,
    PartlyFailed,
    UsageError,
    explained,
    resume_with,
)
from brainweave.cli.methods import Engine, Method, make_aligner, resolved
from brainweave.cli.options import (
    RUN_PANEL,
    argument,
    command,
    effective,
    option,
    parse_params,
    plain,
    provenance,
    refuse_unknown,
)
from brainweave.cli.reading import Reading
from brainweave.exceptions import BrainweaveError, ModelFileError

if TYPE_CHECKING:
    from brainweave.models.files import Description

# what a basis is made by, where the aligner does not say
BASIS = {"kernel": "linear", "kernel_params": None, "energy": 1.0, "standardize": True}
# --bids-param takes what became an option later as well, for scripts that have it
WAS_FLAT = ("task", "space", "samples", "label", "stimulus", "smoothing_fwhm")


@dataclass
class Selection(Reading):
    """What of the dataset to use."""

    bids_param: list[str] | None = option("Any other option of load_bids, NAME=VALUE.")

    def options(self) -> dict[str, Any]:
        """Return the options of ``load_bids``, but for the subjects."""
        given = self.given()
        others = parse_params(self.bids_param, option="--bids-param")
        for name in others:
            if name in WAS_FLAT or name in given:
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


@dataclass
class Job:
    """What one run of the app has to do, and with what."""

    console: Console
    inputs: Inputs
    derivative: Derivative
    selection: Any
    method: Any
    resources: Any
    given: set[str]  # options that were not left at their defaults

    def __post_init__(self) -> None:
        self.aligner = make_aligner(self.method)

    @cached_property
    def options(self) -> dict[str, Any]:
        """All options as they were used."""
        return effective(self.console, **resolved(self.aligner))

    @cached_property
    def settings(self) -> dict[str, Any]:
        """What a basis depends on: how it is made, and from which data."""
        params = self.aligner.get_params(deep=False)
        made = {**BASIS, **{k: v for k, v in params.items() if k in BASIS}}
        if made["energy"] is None:
            made["energy"] = BASIS["energy"]
        data = dict(self.inputs.options)
        if self.inputs.derivatives != "auto":
            data["derivatives"] = self.inputs.derivatives
        return {
            "basis": {k: plain(v) for k, v in made.items() if v is not None},
            "data": {k: "none" if v is None else plain(v) for k, v in data.items()},
        }


@command(selection=Selection, method=Method, resources=Resources, engine=Engine)
def run(
    context: typer.Context,
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
    sources = {name: context.get_parameter_source(name) for name in context.params}
    job = Job(
        console=console,
        inputs=Inputs(bids_dir, selection.options()),
        derivative=Derivative(output_dir, bids_dir),
        selection=selection,
        method=method,
        resources=resources,
        given={n for n, s in sources.items() if getattr(s, "name", "") != "DEFAULT"},
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
    from brainweave._workers import LocalCallback, map_subjects

    ids = _wanted(job)
    job.derivative.describe()
    resume_with("Run the same command again: subjects that are done are kept.")
    targets = [job.derivative.basis(id, kind_of(job.selection)) for id in ids]
    _ = job.inputs.dataset.runs  # listed once, before several threads ask for it
    with job.console.stage("Making bases", len(ids)) as tick:
        each = [job] * len(ids), targets, [LocalCallback(tick)] * len(ids)
        reasons = map_subjects(_try_basis, ids, *each, n_jobs=_n_jobs(job, ids))
    failed = {}
    for id, target, why in zip(ids, targets, reasons, strict=True):
        if why:
            failed[id] = why
        else:
            job.console.result(str(target))
    if failed:
        raise PartlyFailed(_told(failed, ids))


def _try_basis(id: str, job: Job, target: Path, tick: Any) -> str:
    """Make a basis; return why it failed, if it did: the others go on."""
    try:
        _make_basis(job, id, target)
    except Exception as error:
        return explained(error)
    finally:
        tick(f"sub-{id}")
    return ""


def _told(failed: dict[str, str], ids: list[str]) -> str:
    """Name the subjects that failed and why; a reason that all share only once."""
    rest = "" if len(failed) == len(ids) else ", the others are done"
    text = f"{len(failed)} of {len(ids)} subjects failed{rest}. "
    if len(failed) > 1 and len(set(failed.values())) == 1:
        return f"{text}For all of them: {failed[next(iter(failed))]}"
    return text + "; ".join(f"sub-{id}: {why}" for id, why in failed.items())


def _wanted(job: Job) -> list[str]:
    folder = job.inputs.folder
    found = sorted(
        {p.name.removeprefix("sub-") for p in folder.glob("sub-*") if p.is_dir()}
    )
    given = job.selection.participant_label
    if not given:
        return found
    wanted = [label.removeprefix("sub-") for label in given]
    refuse_unknown(wanted, found, f"There is no subject '{{}}' in {str(folder)!r}")
    return list(dict.fromkeys(wanted))


def _n_jobs(job: Job, ids: list[str]) -> int:
    """Return how many subjects fit into the memory at the same time."""
    import joblib

    from brainweave._workers import cluster_workers

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


def _make_basis(job: Job, id: str, target: Path) -> None:
    from brainweave.basis import SubjectBasis
    from brainweave.models import describe, save_basis
    from brainweave.study.subject import Subject, fingerprint

    known = None if job.resources.overwrite else _done(job, id, target)
    if known is not None:
        if not target.with_suffix(".json").is_file():
            _describe_basis(job, id, known)
        return
    check_can_write(target)
    stamps = job.inputs.stamps(id)  # before they are read: later changes will show
    study = job.inputs.study(id)
    (lazy,) = study
    samples = lazy.data()
    names = ("labels", "runs", "onsets", "stimuli", "space")
    subject = Subject(id, samples, **{name: getattr(lazy, name) for name in names})
    basis = SubjectBasis(samples, name=f"sub-{id}", **job.settings["basis"])
    made = provenance(
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
    _describe_basis(job, id, describe(target))


def _done(job: Job, id: str, path: Path) -> "Description | None":
    """Describe a basis that was made with these settings from these very files."""
    from brainweave.models import describe

    try:
        known = describe(path) if path.is_file() else None
    except ModelFileError:
        return None  # damaged: made again
    made: Any = {} if known is None else known.provenance
    same = made.get("settings") == job.settings
    return known if same and job.inputs.are(id, made.get("inputs")) else None


def _describe_basis(job: Job, id: str, known: "Description") -> None:
    """Write the sidecar, all of it from what the basis file says."""
    job.derivative.sidecar(
        known.path,
        {
            "Description": "Kernel coordinates of the samples of one subject",
            "Sources": job.derivative.sources(id),
            "NumberOfSamples": known.facts["n_samples"],
            "NumberOfVoxels": known.facts["n_voxels"],
            "NumberOfDirections": known.facts["n_kept"],
            "Energy": known.facts["energy"],
            "Kernel": known.facts["kernel"],
            "Options": known.provenance.get("options", {}),
            "Settings": known.provenance.get("settings", {}),
            "Preprocessing": known.provenance.get("record") or {},
            "Inputs": sorted(known.provenance.get("inputs", {})),
        },
    )
