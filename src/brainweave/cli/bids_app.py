"""The BIDS App: bases of single subjects, their alignment, and the derivative."""

import json
import os
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property, partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from brainweave._core.exceptions import ModelFileError
from brainweave._core.io import check_can_write, file_stamp, has_changed
from brainweave.cli import command as c
from brainweave.cli import files
from brainweave.cli.console import Console, PartlyFailed, UsageError, error_message
from brainweave.cli.data import LOAD_OPTIONS, load_options
from brainweave.cli.models import make_aligner, resolved_options, summarize_model

if TYPE_CHECKING:
    from brainweave.study.formats.bids import Dataset
    from brainweave.study.formats.bids_derivative import Derivative
    from brainweave.study.study import Study

# how a basis is made, where the aligner does not say
BASIS_DEFAULTS = {"kernel": "linear", "kernel_params": None, "energy": 1.0}
BASIS_DEFAULTS |= {"standardize": True}


def run(
    context: typer.Context,
    bids_dir: Annotated[Path, typer.Argument(help="BIDS dataset, or fMRIPrep output.")],
    output_dir: Annotated[Path, typer.Argument(help="Folder of the derivative.")],
    analysis_level: Annotated[
        str | None, typer.Argument(help="participant or group. Default: both.")
    ] = None,
    *,
    participant_label: c.Participants = None,
    session_label: c.Sessions = None,
    bids_filter_file: c.FilterFile = None,
    task: c.Task = None,
    space: c.Space = None,
    samples: c.Samples = None,
    films: c.Films = None,
    ignore: c.Ignore = None,
    confounds: c.Confounds = None,
    smoothing_fwhm: c.Smoothing = None,
    mask: c.Mask = None,
    bids_param: c.BidsParam = None,
    method: c.Method = "gdm",
    n_components: c.Components = None,
    graph: c.Graph = None,
    param: c.MethodParam = None,
    report: c.Report = True,
    n_jobs: c.Cores = None,
    dask: c.Dask = None,
    config: c.Config = None,
    quiet: c.Quiet = False,
) -> None:
    """Run as a BIDS App.

    The level participant writes one basis file per subject; run it for all subjects, or
    as one job per subject. The level group aligns these files. Exit codes: 0 success, 1
    a subject failed (it is listed; the others are complete), 2 wrong usage.
    """
    from brainweave.study.formats.bids_derivative import Derivative

    levels = {"participant": make_bases, "group": align_group}
    if analysis_level not in (None, *levels):
        raise UsageError(
            f"The level must be participant or group; got {analysis_level!r}."
        )
    if not bids_dir.is_dir():
        raise UsageError(f"There is no folder {str(bids_dir)!r}. Check BIDS_DIR.")
    if output_dir.is_file() or output_dir.resolve() == bids_dir.resolve():
        raise UsageError("OUTPUT_DIR must be a folder, and not BIDS_DIR itself.")
    data, aligner = data_options(context.params), make_aligner(method, context.params)
    if method.lower() == "gdmcv" or not aligner._from_grams:
        raise UsageError(
            f"--method {method} does not align bases. Convert the dataset to a study "
            "folder, and use brainweave fit."
        )
    folders = data.pop("derivatives", "auto"), Derivative(output_dir, bids_dir)
    job = Job(context.obj, bids_dir, data, *folders, context.params, aligner)
    for level, work in levels.items():
        if analysis_level in (None, level):
            work(job)


def data_options(params: dict[str, Any]) -> dict[str, Any]:
    """Return the options of ``load_bids``, but for the subjects."""
    from brainweave.study.formats.any_format import option_names
    from brainweave.study.formats.bids import load_bids

    others = c.parse_params(params["bids_param"], option="--bids-param")
    known = {*option_names(load_bids)[1:], "derivatives"}  # but for those of options
    known -= {*LOAD_OPTIONS, "subjects", "name"}
    c.refuse_unknown(others, known, "--bids-param has no setting '{}'")
    options = load_options(params) | others
    options |= filter_options(params["bids_filter_file"])
    if params["session_label"]:
        labels = params["session_label"]
        options["sessions"] = [label.removeprefix("ses-") for label in labels]
    if options.get("mask") == "common":
        raise UsageError(
            "--mask common needs all subjects at once, and participant jobs see one "
            "each. Give a mask image: --mask FILE."
        )
    return {"samples": "volumes", **options}


def filter_options(path: Path | None) -> dict[str, Any]:
    """Return the options of ``load_bids`` for the entry bold of a filter file."""
    if path is None:
        return {}
    try:
        chosen = dict(json.loads(path.read_text("utf-8")).get("bold", {}))
    except (OSError, ValueError, AttributeError) as error:
        raise UsageError(
            f"--bids-filter-file {str(path)!r} is not a JSON file such as "
            f'{{"bold": {{"session": ["01"], "task": "film"}}}} ({error}).'
        ) from error
    short = {"acquisition": "acq", "direction": "dir", "reconstruction": "rec"}
    options: dict[str, Any] = {}
    for name, value in chosen.items():
        if name in ("session", "run"):
            options[f"{name}s"] = value if isinstance(value, list) else [value]
        elif name in ("task", "space"):
            options[name] = str(value)
        elif name not in ("datatype", "suffix"):
            options.setdefault("entities", {})[short.get(name, name)] = value
    return options


@dataclass
class Job:
    """One run of the app: its options, its dataset, and where its files go."""

    console: Console
    folder: Path  # of the dataset
    data: dict[str, Any]  # options of load_bids
    derivatives: str
    derivative: "Derivative"
    params: dict[str, Any]  # all options
    aligner: Any

    @cached_property
    def dataset(self) -> "Dataset":
        """The list of its files."""
        from brainweave.study.formats.bids import open_dataset

        return open_dataset(self.folder, self.derivatives)

    def sources(self, id: str) -> dict[str, Path]:
        """Return the files that a subject's basis depends on, by name."""
        from brainweave.study.formats.bids_derivative import source_files

        here, paths = self.folder, source_files(self.dataset, id, self.data)
        films = self.data.get("films", "runs")
        if films != "runs":
            paths.append(Path(films))
        return {
            (p.relative_to(here) if here in p.parents else p.absolute()).as_posix(): p
            for p in paths
        }

    @cached_property
    def options(self) -> dict[str, Any]:
        """All options as they were used."""
        return files.used_options(self.console, **resolved_options(self.aligner))

    @cached_property
    def settings(self) -> dict[str, Any]:
        """What a basis depends on: how it is made, and from which data."""
        from brainweave.persistence.codec import plain

        params = self.aligner.get_params(deep=False)
        basis = {name: params.get(name, v) for name, v in BASIS_DEFAULTS.items()}
        basis["energy"] = basis["energy"] or BASIS_DEFAULTS["energy"]
        data = dict(self.data)
        if self.derivatives != "auto":
            data["derivatives"] = self.derivatives
        known = {
            "basis": {k: v for k, v in basis.items() if v is not None},
            "data": {k: "none" if v is None else v for k, v in data.items()},
        }
        return dict(plain(known, other=str))


# -- participant -----------------------------------------------------------------------


def make_bases(job: Job) -> None:
    """Write the basis of each subject; name those that failed."""
    from brainweave._core.workers import blas_threads, cluster_workers, on_workers
    from brainweave.study.formats.bids_derivative import entities_of

    folder = job.folder
    ids = sorted(
        p.name.removeprefix("sub-") for p in folder.glob("sub-*") if p.is_dir()
    )
    if not ids:
        raise UsageError(f"{str(folder)!r} has no subjects (folders sub-...).")
    if given := job.params["participant_label"]:
        asked = [label.removeprefix("sub-") for label in given]
        c.refuse_unknown(asked, ids, f"There is no subject '{{}}' in {str(folder)!r}")
        ids = list(dict.fromkeys(asked))
    job.derivative.write_description()
    job.console.resume_hint = "Run the same command again; finished subjects are kept."
    path_of, kind_of = job.derivative.basis_path, partial(entities_of, job.dataset)
    targets = [path_of(id, kind_of(id, job.data)) for id in ids]
    n_jobs = job.params["n_jobs"] or cluster_workers() or 1
    calls = [(*pair, job) for pair in zip(ids, targets, strict=True)]
    failed = []
    with (
        job.console.stage("Making bases", len(ids)) as tick,
        blas_threads(max(1, (os.cpu_count() or 1) // n_jobs)),
    ):
        errors = on_workers(_try_basis, calls, n_jobs)
        for id, target, error in zip(ids, targets, errors, strict=True):
            tick(f"sub-{id}")
            if error:
                failed.append(f"sub-{id}: {error}")
            else:
                job.console.result(str(target))
    if failed:
        reasons = "; ".join(failed)
        raise PartlyFailed(f"{len(failed)} of {len(ids)} subjects failed. {reasons}")


def _try_basis(id: str, target: Path, job: Job) -> str:
    """Make a basis; return the message of its error, if any, so that others go on."""
    try:
        _make_basis(id, target, job)
    except Exception as error:
        return error_message(error)
    return ""


def _make_basis(id: str, target: Path, job: Job) -> None:
    """Write the basis file of a subject and its sidecar, unless they are there."""
    from brainweave import save
    from brainweave.basis.basis import SubjectBasis
    from brainweave.study.formats.any_format import call_with
    from brainweave.study.formats.bids import load_bids
    from brainweave.study.formats.bids_derivative import first_image
    from brainweave.study.subject import Subject, fingerprint

    if _is_finished(id, target, job):
        return
    check_can_write(target)
    stamps = {name: file_stamp(path) for name, path in job.sources(id).items()}
    study: Study = call_with(load_bids, job.dataset, subjects=[id], **job.data)
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
    save(basis, target, subject=subject, provenance=made)
    image = first_image(job.dataset, id, job.data)
    job.derivative.write_mask(target, lazy.space, image)
    about = {
        "Description": "Kernel coordinates of the samples of one subject",
        "Sources": [f"bids:source:sub-{id}"],
        "NumberOfSamples": basis.n_samples,
        "Options": job.options,
        "Settings": job.settings,
        "Preprocessing": study.record or {},
        "Inputs": sorted(stamps),
    }
    job.derivative.write_sidecar(target, about)


def _is_finished(id: str, path: Path, job: Job) -> bool:
    """Whether a basis was made with these settings from these very files."""
    from brainweave import describe

    if not (path.is_file() and path.with_suffix(".json").is_file()):
        return False
    try:
        made = describe(path)["provenance"]
    except ModelFileError:
        return False  # damaged: made again
    stamps, sources = made.get("inputs") or {}, job.sources(id)
    if made.get("settings") != job.settings or set(stamps) != set(sources):
        return False
    return not any(has_changed(path, stamps[name]) for name, path in sources.items())


# -- group -----------------------------------------------------------------------------


def align_group(job: Job) -> None:
    """Align all subjects from their basis files; write the model and its features."""
    import numpy as np

    from brainweave.evaluation.metrics import study_timeline
    from brainweave.evaluation.splits import Split
    from brainweave.study.formats.bids_derivative import study_without_voxels

    chosen = {name: job.params[name] for name in ("task", "space")}
    labels = job.params["participant_label"] or ()
    entities, paths = job.derivative.find_bases(labels, **chosen)
    what = job.params["method"]
    label = "".join(filter(str.isalnum, what))
    named = f"{entities}_desc-{label}"
    target = job.derivative.model_path(named)
    files.check_writable(*map(target.with_suffix, (".safetensors", ".html", ".toml")))
    bases, made = _open_bases(job, paths)
    settings = _common_settings(job, made)
    study = study_without_voxels(bases, [m.get("record") for m in made.values()])
    if not study.categories:
        study_timeline(study)  # refuses ids of other units
        job.aligner = make_aligner(what, job.params, study=study)
        if Split(study, study).for_aligner(job.aligner).aligning is not study:
            raise UsageError(
                f"--method {what} needs equal rows, and these subjects saw different "
                "parts. Use gdm, or brainweave convert and brainweave fit."
            )
    job.derivative.write_description()
    job.derivative.describe(label, f"Aligned by the method {what}")
    job.console.subject_ids = list(study.ids)
    with job.console.stage("Aligning"):
        model = job.aligner.fit(bases)
    origin = files.provenance(
        "run group",
        job.options,
        list(made),
        settings=settings,
        bases={id: m.get("study_fingerprint") for id, m in made.items()},
        seconds=dict(job.console.seconds),
        warnings=list(job.console.warnings),
    )
    files.save_model(model, target, origin, job.console)
    sources = [path.relative_to(job.derivative.root) for path in paths.values()]
    about = {
        "Description": f"{type(model).__name__} of {len(paths)} subjects",
        "Sources": [f"bids::{path.as_posix()}" for path in sources],
        "Subjects": [f"sub-{id}" for id in paths],
        "NumberOfSharedFeatures": model.n_components_,
        "Options": job.options,
        "Settings": settings,
    }
    job.derivative.write_sidecar(target, about)
    with job.console.stage("Writing shared features", len(bases)) as tick:
        kind = settings["data"]["samples"]
        for i, basis in enumerate(bases):
            aligned = np.full(basis.n_samples, model._joins_samples)
            values = model._features(i)
            job.derivative.write_features(basis, values, aligned, named, kind)
            tick(basis.id)
    if job.params["report"]:
        content = {"study": study, "model": model, "config": job.options}
        files.write_page(target.with_suffix(".html"), job.console, **content)
    job.console.result(f"{target}: {summarize_model(model)}")


def _open_bases(job: Job, paths: dict[str, Path]) -> tuple[list[Any], dict[str, Any]]:
    """Return the bases, and the provenance of each by subject; check both."""
    from brainweave import describe, load

    bases, made = [], {}
    for id, path in paths.items():
        basis, origin = load(path), describe(path)["provenance"]
        inputs = origin.get("inputs")
        if getattr(basis, "id", None) != id or not inputs or not origin.get("settings"):
            raise UsageError(
                f"{str(path)!r} holds no basis of sub-{id} that the level participant "
                f"made. Run participant again for sub-{id}."
            )
        for name, stamp in inputs.items():
            source = job.folder / name
            if source.is_file() and has_changed(source, stamp):  # it may be gone
                raise UsageError(
                    f"{name!r} has changed since the basis of sub-{id} was made. Run "
                    "participant again; finished subjects are kept."
                )
        bases.append(basis)
        made[id] = origin
    return bases, made


def _common_settings(job: Job, made: Mapping[str, Any]) -> dict[str, Any]:
    """Return the settings of all bases; refuse if they differ among them or from ours.

    A basis holds all energies up to its own, so energies may differ.
    """
    known: dict[str, Any] = {f"sub-{id}": m["settings"] for id, m in made.items()}
    first, common = next(iter(known.items()))
    # of what was asked for here, the aligner checks the kernel
    given = {*c.parse_params(job.params["param"])} - {"kernel", "kernel_params"}
    data = dict(job.settings["data"])
    if "samples" not in job.console.given:
        del data["samples"]
    basis = {k: v for k, v in job.settings["basis"].items() if k in given}
    known["these options"] = {
        "basis": {**common["basis"], **basis},
        "data": {**common["data"], **data},
    }
    for who, own in known.items():
        for part in ("basis", "data"):
            for name in sorted({*own[part], *common[part]} - {"energy"}):
                a, b = (one[part].get(name, "not given") for one in (common, own))
                if a != b:
                    raise UsageError(
                        f"{name} of the {part} is {a} for {first}, and {b} for {who}. "
                        "Run participant again with the same options for all."
                    )
    return dict(common)
