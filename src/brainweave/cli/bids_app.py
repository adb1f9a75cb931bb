"""The BIDS App: one independent job per subject, then one small job for the group."""

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from brainweave.cli.bids_output import Derivative
from brainweave.cli.config import effective, write_config
from brainweave.cli.console import Console
from brainweave.cli.errors import PartlyFailed, UsageError, resume_with
from brainweave.cli.methods import make_aligner, resolved
from brainweave.cli.modelling import provenance
from brainweave.cli.options import RUN_GROUP, Method, Running, bundled
from brainweave.exceptions import BrainweaveError

if TYPE_CHECKING:
    from brainweave.basis import SubjectBasis

LEVELS = ("participant", "group")
BIDS_GROUP = "Which data"


def _option(text: str, *names: str, group: str = BIDS_GROUP) -> Any:
    return typer.Option(*names, help=text, rich_help_panel=group)


@dataclass
class Selection:
    """What of the dataset to use."""

    participant_label: Annotated[
        list[str] | None,
        _option(
            "Subjects, with or without sub-; all by default.",
            "--participant-label",
            "--participant_label",
        ),
    ] = None
    task: Annotated[str | None, _option("Task.", "--task", "-t")] = None
    space: Annotated[str | None, _option("Space of the images.")] = None
    samples: Annotated[str, _option("volumes, blocks or trials.")] = "volumes"
    label: Annotated[str, _option("Column of the events with the category.")] = (
        "trial_type"
    )
    stimulus: Annotated[
        str | None, _option("Column of the events with the stimulus.")
    ] = None
    smoothing_fwhm: Annotated[float | None, _option("Smooth by so many mm.")] = None
    bids_param: Annotated[
        list[str] | None, _option("Any other option of load_bids, NAME=VALUE.")
    ] = None

    def options(self) -> dict[str, Any]:
        """Give the options of ``load_bids``, but for the subjects."""
        from brainweave.cli.options import parse_params

        return {
            "task": self.task,
            "space": self.space,
            "samples": self.samples,
            "label": self.label,
            "stimulus": self.stimulus,
            "smoothing_fwhm": self.smoothing_fwhm,
            **parse_params(self.bids_param),
        }


@dataclass
class Resources:
    """What the machine may spend."""

    work_dir: Annotated[
        Path | None,
        _option("Folder for temporary files.", "--work-dir", "-w", group=RUN_GROUP),
    ] = None
    mem_mb: Annotated[
        int | None,
        _option("Most memory to use, in MB.", "--mem-mb", "--mem_mb", group=RUN_GROUP),
    ] = None
    verbose: Annotated[
        int,
        typer.Option(
            "--verbose", "-v", count=True, help="Say more.", rich_help_panel=RUN_GROUP
        ),
    ] = 0
    skip_bids_validation: Annotated[
        bool,
        _option(
            "Do not look whether BIDS_DIR is a BIDS dataset.",
            "--skip-bids-validation",
            "--skip_bids_validation",
            group=RUN_GROUP,
        ),
    ] = False
    overwrite: Annotated[
        bool,
        _option("Make bases that are there again.", "--overwrite", group=RUN_GROUP),
    ] = False


@bundled(selection=Selection, method=Method, resources=Resources, running=Running)
def run(
    context: typer.Context,
    bids_dir: Annotated[Path, typer.Argument(help="BIDS dataset, or fMRIPrep output.")],
    output_dir: Annotated[Path, typer.Argument(help="Folder of the derivative.")],
    analysis_level: Annotated[str, typer.Argument(help="participant or group.")],
    *,
    selection: Selection,
    method: Method,
    resources: Resources,
    running: Running,
) -> None:
    """Run as a BIDS App.

    participant writes one basis file per subject; run it for all, or as one job per
    subject on any scheduler. group aligns from these files. Exit codes: 0 done, 1 a
    subject failed (it is named, the others are done), 2 wrong usage.
    """
    if analysis_level not in LEVELS:
        raise UsageError(
            f"The level must be participant or group; got {analysis_level!r}."
        )
    check_dataset(bids_dir, resources.skip_bids_validation)
    if output_dir.exists() and not output_dir.is_dir():
        raise UsageError(f"{str(output_dir)!r} is a file, not a folder.")
    if output_dir.resolve() == bids_dir.resolve():
        raise UsageError("OUTPUT_DIR must not be BIDS_DIR itself.")
    if method.match is not None:
        raise UsageError("--match needs a study folder: use brainweave fit.")
    aligner = make_aligner(method)
    console = Console(running.quiet)
    use_work_dir(resources.work_dir)
    derivative = Derivative(output_dir, bids_dir)
    derivative.describe()
    with console.collect_warnings():
        job = _Job(
            console,
            derivative,
            selection=selection,
            aligner=aligner,
            resources=resources,
            method=method,
            context=context,
        )
        if analysis_level == "participant":
            job.participants(bids_dir)
        else:
            job.group()


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


def use_work_dir(folder: Path | None) -> None:
    """Put temporary files into a folder of the user's choice."""
    if folder is None:
        return
    import tempfile

    folder.mkdir(parents=True, exist_ok=True)
    tempfile.tempdir = str(folder)


class _Job:
    """One level of the app."""

    def __init__(
        self,
        console: Console,
        derivative: Derivative,
        *,
        selection: Selection,
        aligner: Any,
        resources: Resources,
        method: Method,
        context: Any,
    ) -> None:
        self.console, self.derivative = console, derivative
        self.selection, self.aligner = selection, aligner
        self.resources, self.method = resources, method
        self.options = effective(context, **resolved(aligner))

    # -- participant ------------------------------------------------------------------

    def participants(self, bids_dir: Path) -> None:
        """Write the basis of each subject; name those that failed."""
        from brainweave._arrays import map_subjects

        ids = self._wanted(bids_dir)
        resume_with("Run the same command again: subjects that are done are kept.")
        failed: dict[str, str] = {}
        with self.console.stage("Making bases", len(ids)) as tick:

            def one(id: str) -> None:
                try:
                    self._participant(bids_dir, id)
                except (BrainweaveError, OSError, TypeError, MemoryError) as error:
                    failed[id] = " ".join(str(error).split())
                tick(f"sub-{id}")

            map_subjects(one, ids, n_jobs=self._jobs(bids_dir, ids))
        for id in ids:
            if id not in failed:
                self.console.result(str(self.derivative.basis(id, self.selection)))
        if failed:
            named = "; ".join(f"sub-{id}: {why}" for id, why in failed.items())
            raise PartlyFailed(
                f"{len(failed)} of {len(ids)} subjects failed, the others are done. "
                f"{named}"
            )

    def _wanted(self, bids_dir: Path) -> list[str]:
        found = sorted(
            {p.name.removeprefix("sub-") for p in bids_dir.glob("sub-*") if p.is_dir()}
        )
        given = self.selection.participant_label
        if not given:
            return found
        wanted = [label.removeprefix("sub-") for label in given]
        unknown = [id for id in wanted if id not in found]
        if unknown:
            raise UsageError(
                f"There is no subject {unknown[0]!r} in {str(bids_dir)!r}; there are "
                f"{', '.join(found[:20])}."
            )
        return list(dict.fromkeys(wanted))

    def _jobs(self, bids_dir: Path, ids: list[str]) -> int:
        """Give how many subjects fit into the memory at the same time."""
        import joblib

        jobs = self.method.n_jobs or 1
        jobs = joblib.cpu_count() if jobs < 0 else jobs
        if self.resources.mem_mb is None or jobs == 1:
            return int(jobs)
        try:
            subject = self._load(bids_dir, ids[0])[0]
        except (BrainweaveError, OSError):
            return 1
        # the samples, a copy while they are cleaned, and the inner products
        needed = 3 * subject.n_samples * subject.n_voxels * 4 + 16 * (
            subject.n_samples**2
        )
        return max(1, min(int(jobs), int(self.resources.mem_mb * 1e6 // needed)))

    def _load(self, bids_dir: Path, id: str) -> Any:
        import inspect

        from brainweave.study.bids import load_bids

        options = {k: v for k, v in self.selection.options().items() if v is not None}
        for name in options:
            if name not in inspect.signature(load_bids).parameters:
                raise UsageError(f"load_bids has no option {name!r}.")
        return load_bids(bids_dir, subjects=[id], **options)

    def _participant(self, bids_dir: Path, id: str) -> None:
        from brainweave.models import save_basis

        target = self.derivative.basis(id, self.selection)
        settings = self._settings()
        if not self.resources.overwrite and _is_done(target, settings):
            return
        (subject,) = self._load(bids_dir, id)
        basis = self._basis(subject)
        target.parent.mkdir(parents=True, exist_ok=True)
        made = provenance("run participant", self.options, [id], settings=settings)
        save_basis(basis, target, subject=subject, provenance=made)
        if self.resources.verbose:
            self.console.note(
                f"sub-{id}: {basis.n_samples} samples, {basis.n_voxels} voxels, "
                f"{basis.n_kept} directions"
            )
        self.derivative.sidecar(
            target,
            {
                "Description": "Kernel coordinates of the samples of one subject",
                "Sources": self.derivative.sources(id),
                "NumberOfSamples": basis.n_samples,
                "NumberOfVoxels": basis.n_voxels,
                "NumberOfDirections": basis.n_kept,
                "Energy": basis.energy,
                "Kernel": basis.kernel.name,
                "Options": self.options,
            },
        )

    def _settings(self) -> dict[str, Any]:
        """Give what a basis depends on."""
        params = self.aligner.get_params(deep=False)
        kept = {
            "kernel": params.get("kernel", "linear"),
            "kernel_params": params.get("kernel_params"),
            "energy": params.get("energy", 1.0),
            "standardize": params.get("standardize", True),
        }
        return {**kept, **self.selection.options()}

    def _basis(self, subject: Any) -> "SubjectBasis":
        from brainweave.basis import SubjectBasis

        settings = self._settings()
        names = ("kernel", "kernel_params", "energy", "standardize")
        basis = SubjectBasis(
            subject.data(),
            name=f"sub-{subject.id}",
            **{name: settings[name] for name in names},
        )
        _ = basis.n_kept  # the eigenbasis belongs to this level
        return basis

    # -- group ------------------------------------------------------------------------

    def group(self) -> None:
        """Align all subjects from their basis files."""
        import brainweave
        from brainweave.models import load_basis

        paths = self.derivative.bases(self.selection)
        bases = []
        with self.console.stage("Opening bases", len(paths)) as tick:
            for path in paths:
                bases.append(load_basis(path))
                tick(bases[-1].id)
        with self.console.stage("Aligning"):
            known = _known(self.aligner, bases)
            model = self.aligner.fit(bases, known)
        target = self.derivative.model(self.selection, self.method.method)
        ids = [basis.id for basis in bases]
        made = provenance(
            "run group",
            self.options,
            ids,
            seconds=dict(self.console.seconds),
            warnings=list(self.console.warnings),
        )
        target.parent.mkdir(parents=True, exist_ok=True)
        with self.console.stage("Writing the model"):
            brainweave.save(model, target, provenance=made)
        self.derivative.sidecar(
            target,
            {
                "Description": f"{type(model).__name__} of {len(ids)} subjects",
                "Sources": [self.derivative.uri(path) for path in paths],
                "Subjects": [f"sub-{id}" for id in ids],
                "NumberOfSharedFeatures": model.n_components_,
                "Options": self.options,
            },
        )
        write_config(target.with_suffix(".toml"), "run", self.options)
        with self.console.stage("Writing shared features", len(bases)) as tick:
            for basis, map_ in zip(bases, model.maps_, strict=True):
                self.derivative.mask(basis, self.selection)
                self.derivative.features(
                    basis, map_.aligning_features(), self.selection, self.method.method
                )
                tick(basis.id)
        with self.console.stage("Writing the report"):
            self._report(target, model, bases)
        self.console.result(str(target))

    def _report(self, target: Path, model: Any, bases: list[Any]) -> None:
        from brainweave.report import write_report

        write_report(
            target.with_suffix(".html"),
            study=_without_voxels(bases),
            model=model,
            shared=[m.aligning_features() for m in model.maps_],
            config=self.options,
            warnings=self.console.warnings,
            seconds=self.console.seconds,
        )


def _is_done(path: Path, settings: dict[str, Any]) -> bool:
    """Whether a basis is there and was made with the same settings."""
    from brainweave.exceptions import ModelFileError
    from brainweave.models import describe

    if not path.is_file():
        return False
    try:
        return bool(describe(path).provenance.get("settings") == settings)
    except ModelFileError:
        return False


def _known(aligner: Any, bases: list[Any]) -> list[Any] | None:
    from brainweave.cli.methods import samples_known

    return samples_known(aligner, bases)  # type: ignore[arg-type]


def _without_voxels(bases: list[Any]) -> Any:
    """Give what is known of the samples as a study whose voxels nobody reads."""
    import numpy as np

    from brainweave.study.study import Study, Subject

    return Study(
        Subject(
            basis.id,
            np.broadcast_to(np.float32(0), (basis.n_samples, basis.n_voxels)),
            labels=basis.labels,
            runs=basis.runs,
            stimuli=basis.stimuli,
            space=basis.space,
        )
        for basis in bases
    )
