"""The BIDS App: bases of single subjects, their alignment, and the derivative."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
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
BASIS_DEFAULTS = {
    "kernel": "linear",
    "kernel_params": None,
    "energy": 1.0,
    "standardize": True,
}


def run(
    context: typer.Context,
    bids_dir: Annotated[Path, typer.Argument(help="BIDS dataset, or fMRIPrep output.")],
    output_dir: Annotated[Path, typer.Argument(help="Folder of the derivative.")],
    analysis_level: Annotated[
        str | None,
        typer.Argument(help="participant or group; by default one after the other."),
    ] = None,
    *,
    participant_label: c.Participants = None,
    session_label: Annotated[
        list[str] | None,
        c.option(
            "Sessions, with or without ses-; all by default. May be repeated.",
            *("--session-label", "--session_label"),
            panel=c.READ,
        ),
    ] = None,
    bids_filter_file: Annotated[
        Path | None,
        c.option(
            "JSON file whose entry bold chooses runs by their entities, as fMRIPrep's.",
            *("--bids-filter-file", "--bids_filter_file"),
            panel=c.READ,
        ),
    ] = None,
    task: c.Task = None,
    space: c.Space = None,
    samples: c.Samples = None,
    films: c.Films = None,
    ignore: c.Ignore = None,
    confounds: c.Confounds = None,
    smoothing_fwhm: c.Smoothing = None,
    mask: c.Mask = None,
    bids_param: Annotated[
        list[str] | None,
        c.option("Any other option of load_bids, NAME=VALUE.", panel=c.READ),
    ] = None,
    method: c.Method = "gdm",
    n_components: c.Components = None,
    graph: c.Graph = None,
    param: c.MethodParam = None,
    report: c.Report = True,
    overwrite: Annotated[
        bool, c.option("Make bases that are there again.", "--overwrite", panel=c.RUN)
    ] = False,
    skip_bids_validation: Annotated[
        bool,
        c.option(
            "Do not check whether BIDS_DIR is a BIDS dataset.",
            "--skip-bids-validation",
            "--skip_bids_validation",
            panel=c.RUN,
        ),
    ] = False,
    n_jobs: Annotated[
        int | None,
        c.option(
            "Subjects at the same time; default one per core.",
            *("--n-jobs", "--n_cpus", "--n-cpus"),
            panel=c.RUN,
        ),
    ] = None,
    dask: c.Dask = None,
    config: c.Config = None,
    quiet: c.Quiet = False,
) -> None:
    """Run as a BIDS App.

    participant writes one basis file per subject; run it for all, or as one job per
    subject on any scheduler. group aligns from these files. Exit codes: 0 done, 1 a
    subject failed (it is named, the others are done), 2 wrong usage.
    """
    from brainweave.study.formats.bids_derivative import Derivative

    levels = {"participant": make_bases, "group": align_group}
    if analysis_level not in (None, *levels):
        raise UsageError(
            f"The level must be participant or group; got {analysis_level!r}."
        )
    if not bids_dir.is_dir():
        raise UsageError(f"There is no folder {str(bids_dir)!r}. Check BIDS_DIR.")
    described = (bids_dir / "dataset_description.json").is_file()
    if not described and not skip_bids_validation:
        raise UsageError(
            f"{str(bids_dir)!r} has no dataset_description.json, so it is no BIDS "
            "dataset. If it is one all the same, add --skip-bids-validation."
        )
    if output_dir.exists() and not output_dir.is_dir():
        raise UsageError(f"{str(output_dir)!r} is a file, not a folder.")
    if output_dir.resolve() == bids_dir.resolve():
        raise UsageError("OUTPUT_DIR must not be BIDS_DIR itself.")
    if method.lower() == "gdmcv":
        raise UsageError("--method gdmcv needs a study folder: use brainweave fit.")
    data = data_options(context.params)
    job = Job(
        context.obj,
        bids_dir,
        data,
        data.pop("derivatives", "auto"),
        Derivative(output_dir, bids_dir),
        context.params,
        make_aligner(method, context.params),
    )
    if not job.aligner._from_grams:
        raise UsageError(
            f"--method {method} aligns voxels, and the group level aligns bases. "
            "Convert the dataset to a study folder, and use brainweave fit."
        )
    for level, work in levels.items():
        if analysis_level in (None, level):
            work(job)


def data_options(params: dict[str, Any]) -> dict[str, Any]:
    """Return the options of ``load_bids``, but for the subjects."""
    from brainweave.study.formats.any_format import option_names
    from brainweave.study.formats.bids import load_bids

    others = c.parse_params(params["bids_param"], option="--bids-param")
    taken = {*LOAD_OPTIONS, "subjects", "name"}  # which have options of their own
    known = {*option_names(load_bids)[1:], "derivatives"} - taken
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
        filters = json.loads(path.read_text("utf-8")).get("bold", {})
        chosen = {str(k): v for k, v in filters.items()}
    except (OSError, ValueError, AttributeError) as error:
        raise UsageError(
            f"--bids-filter-file {str(path)!r} is no JSON file such as "
            f'{{"bold": {{"session": ["01"], "task": "film"}}}} ({error}).'
        ) from error
    several = {"session": "sessions", "run": "runs"}
    options: dict[str, Any] = {}
    for name in [n for n in several if n in chosen]:
        given = chosen.pop(name)
        options[several[name]] = given if isinstance(given, list) else [given]
    short = {"acquisition": "acq", "direction": "dir", "reconstruction": "rec"}
    others = {k: v for k, v in chosen.items() if k not in ("datatype", "suffix")}
    chosen = {short.get(k, k): v for k, v in others.items()}
    options |= {k: str(chosen.pop(k)) for k in ("task", "space") if k in chosen}
    return options | ({"entities": chosen} if chosen else {})


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

    def study(self, id: str) -> "Study":
        """Return a study of one subject."""
        from brainweave.study.formats.any_format import call_with
        from brainweave.study.formats.bids import load_bids

        return call_with(load_bids, self.dataset, subjects=[id], **self.data)

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
    from brainweave._core.workers import LocalCallback, cluster_workers, map_subjects
    from brainweave.study.formats.bids_derivative import entities_of

    ids = _chosen_subjects(job)
    job.derivative.write_description()
    job.console.resume_hint = (
        "Run the same command again: subjects that are done are kept."
    )
    kinds = [entities_of(job.dataset, id, job.data) for id in ids]
    targets = [
        job.derivative.basis_path(*pair) for pair in zip(ids, kinds, strict=True)
    ]
    with job.console.stage("Making bases", len(ids)) as tick:
        arguments = targets, [job] * len(ids), [LocalCallback(tick)] * len(ids)
        n_jobs = job.params["n_jobs"] or cluster_workers() or 1
        errors = map_subjects(_try_basis, ids, *arguments, n_jobs=n_jobs)
    for target, error in zip(targets, errors, strict=True):
        if not error:
            job.console.result(str(target))
    failed = {id: error for id, error in zip(ids, errors, strict=True) if error}
    if failed:
        rest = "" if len(failed) == len(ids) else ", the others are done"
        reasons = "; ".join(f"sub-{id}: {error}" for id, error in failed.items())
        raise PartlyFailed(
            f"{len(failed)} of {len(ids)} subjects failed{rest}. {reasons}"
        )


def _try_basis(id: str, target: Path, job: Job, tick: Any) -> str:
    """Make a basis; return the message of its error, if any, so that others go on."""
    try:
        _make_basis(id, target, job)
    except Exception as error:
        return error_message(error)
    finally:
        tick(f"sub-{id}")
    return ""


def _chosen_subjects(job: Job) -> list[str]:
    """Return the ids given by --participant-label, else those of all subjects."""
    folder = job.folder
    found = sorted(
        {p.name.removeprefix("sub-") for p in folder.glob("sub-*") if p.is_dir()}
    )
    if not found:
        raise UsageError(f"{str(folder)!r} has no subjects (folders sub-...).")
    given = job.params["participant_label"]
    if not given:
        return found
    ids = [label.removeprefix("sub-") for label in given]
    c.refuse_unknown(ids, found, f"There is no subject '{{}}' in {str(folder)!r}")
    return list(dict.fromkeys(ids))


def _make_basis(id: str, target: Path, job: Job) -> None:
    """Write the basis file of a subject and its sidecar, unless they are there."""
    from brainweave import describe, save_basis
    from brainweave.basis.basis import SubjectBasis
    from brainweave.study.subject import Subject, fingerprint

    if not job.params["overwrite"] and _is_finished(id, target, job):
        return
    check_can_write(target)
    sources = job.sources(id).items()
    stamps = {name: file_stamp(path) for name, path in sources}  # before they are read
    study = job.study(id)
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
    facts = describe(target)["facts"]
    job.derivative.write_sidecar(
        target,
        {
            "Description": "Kernel coordinates of the samples of one subject",
            "Sources": [f"bids:source:sub-{id}"],
            "NumberOfSamples": facts["n_samples"],
            "NumberOfVoxels": facts["n_voxels"],
            "NumberOfDirections": facts["n_kept"],
            "Energy": facts["energy"],
            "Kernel": facts["kernel"],
            "Options": job.options,
            "Settings": job.settings,
            "Preprocessing": study.record or {},
            "Inputs": sorted(stamps),
        },
    )


def _is_finished(id: str, path: Path, job: Job) -> bool:
    """Whether a basis was made with these settings from these very files."""
    from brainweave import describe

    if not (path.is_file() and path.with_suffix(".json").is_file()):
        return False
    try:
        made = describe(path)["provenance"]
    except ModelFileError:
        return False  # damaged: made again
    stamps, sources = made.get("inputs"), job.sources(id)
    if made.get("settings") != job.settings or not isinstance(stamps, dict):
        return False
    return set(stamps) == set(sources) and not any(
        has_changed(path, stamps[name]) for name, path in sources.items()
    )


# -- group -----------------------------------------------------------------------------


def align_group(job: Job) -> None:
    """Align all subjects from their basis files; write the model and its features."""
    from brainweave.evaluation.splits import Split
    from brainweave.evaluation.timeline import study_timeline
    from brainweave.study.formats.bids_derivative import study_without_voxels

    chosen = {name: job.params[name] for name in ("task", "space")}
    labels = job.params["participant_label"] or ()
    entities, paths = job.derivative.find_bases(labels, **chosen)
    what = job.params["method"]
    label = "".join(filter(str.isalnum, what))
    named = f"{entities}_desc-{label}"
    target = job.derivative.model_path(named)
    for path in (target, target.with_suffix(".html"), target.with_suffix(".toml")):
        check_can_write(path)
    bases, made = _open_bases(job, paths)
    settings = _common_settings(job, made)
    for id, origin in made.items():
        for name, stamp in origin["inputs"].items():
            path = job.folder / name
            if path.is_file() and has_changed(path, stamp):  # what is gone may be gone
                raise UsageError(
                    f"{name!r} has changed since the basis of sub-{id} was made. Run "
                    "participant again: subjects that are done are kept."
                )
    study = study_without_voxels(bases, [m.get("record") for m in made.values()])
    if not study.categories:
        study_timeline(study)  # refuses ids of other units
        job.aligner = make_aligner(what, job.params, study=study)
        if Split(study, study).for_aligner(job.aligner).aligning is not study:
            raise UsageError(
                f"--method {what} needs equal rows, and these subjects saw different "
                "parts. Use gdm, or align what all saw from a study folder: brainweave "
                "convert, then brainweave fit."
            )
    job.derivative.write_description()
    job.derivative.describe(label, f"Aligned by the method {what}")
    job.console.subject_ids = list(study.ids)
    with job.console.stage("Aligning"):
        model = job.aligner.fit(bases)
    fingerprints = {id: m.get("study_fingerprint") for id, m in made.items()}
    origin = files.provenance(
        "run group",
        job.options,
        list(made),
        settings=settings,
        bases=fingerprints,
        seconds=dict(job.console.seconds),
        warnings=list(job.console.warnings),
    )
    files.save_model(model, target, origin, job.console)
    root = job.derivative.root
    names = [path.relative_to(root).as_posix() for path in paths.values()]
    job.derivative.write_sidecar(
        target,
        {
            "Description": f"{type(model).__name__} of {len(paths)} subjects",
            "Sources": [f"bids::{name}" for name in names],
            "Subjects": [f"sub-{id}" for id in paths],
            "NumberOfSharedFeatures": model.n_components_,
            "Options": job.options,
            "Settings": settings,
        },
    )
    shared = [model._features(i) for i in range(len(model.maps_))]
    with job.console.stage("Writing shared features", len(bases)) as tick:
        details = {
            "n_informative": getattr(model, "n_informative_", None),
            "samples": settings["data"]["samples"],
        }
        aligned = took_part(model, bases)
        for basis, values, flags in zip(bases, shared, aligned, strict=True):
            job.derivative.write_features(basis, values, flags, named, **details)
            tick(basis.id)
    if job.params["report"]:
        files.write_page(
            target.with_suffix(".html"),
            job.console,
            study=study,
            model=model,
            config=job.options,
        )
    job.console.result(f"{target}: {summarize_model(model)}")


def _open_bases(job: Job, paths: dict[str, Path]) -> tuple[list[Any], dict[str, Any]]:
    """Return the bases, and the provenance of each by subject; check both."""
    from brainweave import describe, load_basis

    bases, made = [], {}
    with job.console.stage("Opening bases", len(paths)) as tick:
        for id, path in paths.items():
            basis, made[id] = load_basis(path), describe(path)["provenance"]
            if basis.id != id:
                raise UsageError(
                    f"{str(path)!r} holds the basis of subject {basis.id!r}. Run "
                    f"participant again for sub-{id}."
                )
            settings, inputs = made[id].get("settings"), made[id].get("inputs")
            known = isinstance(settings, dict) and set(settings) == {"basis", "data"}
            if not known or not isinstance(inputs, dict):
                raise UsageError(
                    f"The basis of sub-{id} does not say how it was made, or was made "
                    "by another version. Run participant again for it."
                )
            bases.append(basis)
            tick(id)
    return bases, made


def took_part(model: Any, bases: list[Any]) -> list[Any]:
    """Return, per subject, which samples shaped the maps by their labels or ids."""
    import numpy as np

    from brainweave._core.labels import is_missing

    if not model._joins_samples:
        return [np.zeros(basis.n_samples, bool) for basis in bases]
    by_graph = "graph" in model.get_params(deep=False)
    ys = model._find_y(bases, None) if by_graph else None
    if ys is None:  # row by row
        return [np.ones(basis.n_samples, bool) for basis in bases]
    # a label or an id is enough
    tables = [np.asarray(y, dtype=object).reshape(len(y), -1) for y in ys]
    return [
        np.array([not all(map(is_missing, row)) for row in table]) for table in tables
    ]


# -- bases must have been made alike, and as the options say ---------------------------


def _common_settings(job: Job, made: Mapping[str, Any]) -> dict[str, Any]:
    """Return the settings that all bases were made with; refuse if they differ."""
    flat = {id: _flatten(origin["settings"]) for id, origin in made.items()}
    for name in sorted({name for settings in flat.values() for name in settings}):
        subjects: dict[str, list[str]] = {}  # by the value that they have
        for id, settings in flat.items():
            value = str(settings.get(name, "not given"))
            subjects.setdefault(value, []).append(f"sub-{id}")
        if len(subjects) > 1:
            listed = "; ".join(f"{v} for {', '.join(s)}" for v, s in subjects.items())
            raise UsageError(
                f"The bases were not made in the same way: {name} was {listed}. Run "
                "participant again with the same options for all."
            )
    common = next(iter(flat.values()))
    for name, wanted in _flatten(job.settings).items():
        option = name.removeprefix("--").replace("-", "_")
        is_default = option in job.params and option not in job.console.given
        by_aligner = option in ("param kernel", "param hp")  # which checks them itself
        used = common.get(name, "not given")
        if wanted != used and not is_default and not by_aligner:
            raise UsageError(
                f"{name} is {wanted} here, and was {used} when the bases were made. "
                "Leave it out, or run participant again."
            )
    return dict(next(iter(made.values()))["settings"])


def _flatten(settings: dict[str, Any]) -> dict[str, Any]:
    """Return settings by the options that set them.

    A basis holds all energies up to its own, so energies may differ.

    Examples
    --------
    >>> _flatten({"basis": {"kernel": "linear"}, "data": {"smoothing_fwhm": 4}})
    {'--smoothing-fwhm': 4, '--param kernel': 'linear'}
    """
    flat = {
        f"--{k.replace('_', '-')}" if k in LOAD_OPTIONS else f"--bids-param {k}": v
        for k, v in settings["data"].items()
    }
    for name, value in settings["basis"].items():
        if name != "energy":
            flat[f"--param {'hp' if name == 'kernel_params' else name}"] = value
    return flat
