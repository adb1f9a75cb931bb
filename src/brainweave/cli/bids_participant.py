"""The level of the BIDS App that reads voxels: one basis file per subject."""

from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from brainweave._io import check_can_write
from brainweave.cli.bids_inputs import BASIS_SETTINGS, Inputs, settings_of
from brainweave.cli.bids_output import Derivative, kind_of
from brainweave.cli.config import effective
from brainweave.cli.console import Console
from brainweave.cli.errors import PartlyFailed, UsageError, explained, resume_with
from brainweave.cli.methods import make_aligner, resolved
from brainweave.cli.origin import provenance
from brainweave.exceptions import BrainweaveError

if TYPE_CHECKING:
    from brainweave.basis import SubjectBasis
    from brainweave.models.describe import Description


@dataclass
class Job:
    """What one run of the app has to do, and with what."""

    console: Console
    inputs: Inputs
    derivative: Derivative
    selection: Any
    method: Any
    resources: Any
    context: Any

    def __post_init__(self) -> None:
        self.aligner = make_aligner(self.method)

    @property
    def options(self) -> dict[str, Any]:
        """All options as they were used."""
        return effective(self.context, **resolved(self.aligner))

    @cached_property
    def settings(self) -> dict[str, Any]:
        """What a basis depends on."""
        given = {**self.inputs.options}
        if self.inputs.derivatives != "auto":
            given["derivatives"] = self.inputs.derivatives
        return settings_of(self.aligner, given)


def make_bases(job: Job) -> None:
    """Write the basis of each subject; name those that failed."""
    from brainweave._arrays import map_subjects

    ids = _wanted(job)
    job.derivative.describe()
    resume_with("Run the same command again: subjects that are done are kept.")
    kind, failed = kind_of(job.selection), dict[str, str]()
    _ = job.inputs.dataset.runs  # listed once, before several threads ask for it
    with job.console.stage("Making bases", len(ids)) as tick:

        def one(id: str) -> None:
            try:
                _make_basis(job, id, job.derivative.basis(id, kind))
            except Exception as error:  # of one subject; the others go on
                failed[id] = explained(error)
            tick(f"sub-{id}")

        map_subjects(one, ids, n_jobs=_n_jobs(job, ids))
    for id in ids:
        if id not in failed:
            job.console.result(str(job.derivative.basis(id, kind)))
    if failed:
        raise PartlyFailed(_told(failed, ids))


def _told(failed: dict[str, str], ids: list[str]) -> str:
    """Name the subjects that failed and why; a reason that all share only once."""
    rest = "" if len(failed) == len(ids) else ", the others are done"
    text = f"{len(failed)} of {len(ids)} subjects failed{rest}. "
    if len(failed) > 1 and len(set(failed.values())) == 1:
        return f"{text}For all of them: {failed[next(iter(failed))]}"
    return text + "; ".join(f"sub-{id}: {failed[id]}" for id in ids if id in failed)


def _wanted(job: Job) -> list[str]:
    folder = job.inputs.folder
    found = sorted(
        {p.name.removeprefix("sub-") for p in folder.glob("sub-*") if p.is_dir()}
    )
    given = job.selection.participant_label
    if not given:
        return found
    wanted = [label.removeprefix("sub-") for label in given]
    unknown = [id for id in wanted if id not in found]
    if unknown:
        raise UsageError(
            f"There is no subject {unknown[0]!r} in {str(folder)!r}; there are "
            f"{', '.join(found[:20])}."
        )
    return list(dict.fromkeys(wanted))


def _n_jobs(job: Job, ids: list[str]) -> int:
    """Return how many subjects fit into the memory at the same time."""
    import joblib

    jobs = job.method.n_jobs or 1
    jobs = joblib.cpu_count() if jobs < 0 else jobs
    if job.resources.mem_mb is None or jobs == 1:
        return int(jobs)
    try:
        subject = job.inputs.load(ids[0])
    except (BrainweaveError, OSError):
        return 1
    # the samples, a copy while they are cleaned, and the inner products
    needed = 3 * subject.n_samples * subject.n_voxels * 4 + 16 * subject.n_samples**2
    return max(1, min(int(jobs), int(job.resources.mem_mb * 1e6 // needed)))


def _make_basis(job: Job, id: str, target: Path) -> None:
    from brainweave.models import describe, save_basis
    from brainweave.study.fingerprint import fingerprint
    from brainweave.study.subject import Subject

    if not job.resources.overwrite:
        known = _description(target)
        if known is not None and _is_done(known, job, id):
            if not target.with_suffix(".json").is_file():
                _describe_basis(job, id, known)
            return
    check_can_write(target)
    stamps = job.inputs.stamps(id)  # before they are read: later changes will show
    study = job.inputs.study(id)
    (lazy,) = study
    samples = lazy.data()
    subject = Subject(
        id,
        samples,
        labels=lazy.labels,
        runs=lazy.runs,
        onsets=lazy.onsets,
        stimuli=lazy.stimuli,
        space=lazy.space,
    )
    basis = _basis_of(subject, job.settings["basis"])
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


def _basis_of(subject: Any, settings: dict[str, Any]) -> "SubjectBasis":
    from brainweave.basis import SubjectBasis

    given: dict[str, Any] = {k: v for k, v in settings.items() if k in BASIS_SETTINGS}
    basis = SubjectBasis(subject.data(), name=f"sub-{subject.id}", **given)
    _ = basis.n_kept  # the eigenbasis belongs to this level
    return basis


def _description(path: Path) -> "Description | None":
    from brainweave.exceptions import ModelFileError
    from brainweave.models import describe

    if not path.is_file():
        return None
    try:
        return describe(path)
    except ModelFileError:
        return None  # damaged: made again


def _is_done(known: "Description", job: Job, id: str) -> bool:
    """Tell whether a basis was made with these settings from these very files."""
    made = known.provenance
    same = made.get("settings") == job.settings
    return same and job.inputs.are(id, made.get("inputs"))


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
