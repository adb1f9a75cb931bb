"""The level of the BIDS App that aligns, from basis files that fit each other."""

from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from brainweave._core.io import check_can_write, has_changed
from brainweave.cli import files
from brainweave.cli.bids_app import Job
from brainweave.cli.bids_derivative import with_method
from brainweave.cli.console import UsageError
from brainweave.cli.modelling import summarize_model
from brainweave.cli.reading import LOAD_OPTIONS


def align_group(job: Job) -> None:
    """Align all subjects from their basis files; write the model and its features."""
    entities, paths = job.derivative.find_bases(job.selection)
    named = with_method(entities, job.method.method)
    target = job.derivative.model_path(named)
    for path in (target, target.with_suffix(".html"), target.with_suffix(".toml")):
        check_can_write(path)
    bases, made = _open_bases(job, paths)
    settings = _common_settings(job, made)
    _check_inputs_unchanged(job, made)
    job.derivative.write_description()
    with job.console.stage("Aligning"):
        model = job.aligner.fit(bases)
    origin = _model_provenance(job, made, settings)
    files.save_model(model, target, origin, job.console)
    job.derivative.write_sidecar(
        target,
        {
            "Description": f"{type(model).__name__} of {len(paths)} subjects",
            "Sources": [job.derivative.uri(path) for path in paths.values()],
            "Subjects": [f"sub-{id}" for id in paths],
            "NumberOfSharedFeatures": model.n_components_,
            "Options": origin["options"],
            "Settings": settings,
        },
    )
    shared = [map_.aligning_features() for map_ in model.maps_]
    with job.console.stage("Writing shared features", len(bases)) as tick:
        n_informative = getattr(model, "n_informative_", None)
        aligned = took_part(model, bases)
        for basis, values, flags in zip(bases, shared, aligned, strict=True):
            job.derivative.write_mask(basis, entities, sorted(made[basis.id]["inputs"]))
            job.derivative.write_features(
                basis,
                values,
                flags,
                named,
                n_informative=n_informative,
                samples=settings["data"]["samples"],
            )
            tick(basis.id)
    if job.resources.report:
        record = join_records([m.get("record") for m in made.values()])
        files.write_page(
            target.with_suffix(".html"),
            job.console,
            study=_study_without_voxels(bases, record),
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
            basis, made[id] = load_basis(path), describe(path).provenance
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


def _check_inputs_unchanged(job: Job, made: Mapping[str, Any]) -> None:
    for id, origin in made.items():
        for name, stamp in origin["inputs"].items():
            path = job.inputs.folder / name
            if path.is_file() and has_changed(path, stamp):  # what is gone may be gone
                raise UsageError(
                    f"{name!r} has changed since the basis of sub-{id} was made. Run "
                    "participant again: subjects that are done are kept."
                )


def _model_provenance(
    job: Job, made: Mapping[str, Any], settings: dict[str, Any]
) -> dict[str, Any]:
    return files.provenance(
        "run group",
        {**job.options, **_data_options(settings["data"])},
        list(made),
        settings=settings,
        bases={id: origin.get("study_fingerprint") for id, origin in made.items()},
        seconds=dict(job.console.seconds),
        warnings=list(job.console.warnings),
    )


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
    """Return the settings that all bases were made with; refuse if they differ.

    A basis holds all energies up to its own, so energies may differ.
    """
    flat = {id: _flatten(origin["settings"]) for id, origin in made.items()}
    differing = []
    for name in sorted({name for settings in flat.values() for name in settings}):
        subjects: dict[str, list[str]] = {}  # by the value that they have
        for id, settings in flat.items():
            subjects.setdefault(_text(settings.get(name)), []).append(f"sub-{id}")
        if len(subjects) > 1:
            listed = "; ".join(f"{v} for {', '.join(s)}" for v, s in subjects.items())
            differing.append(f"{option_name(name)} was {listed}")
    if differing:
        raise UsageError(
            f"The bases were not made in the same way: {'. '.join(differing)}. Run "
            "participant again with the same options for all."
        )
    common: dict[str, Any] = next(iter(made.values()))["settings"]
    _check_options(job, common)
    return common


def _flatten(settings: dict[str, Any]) -> dict[str, Any]:
    basis = {f"basis {k}": v for k, v in settings["basis"].items() if k != "energy"}
    return {**settings["data"], **basis}


def _text(value: Any) -> str:
    return "not given" if value is None else str(value)


def _check_options(job: Job, settings: dict[str, Any]) -> None:
    """Refuse options of this level that contradict the settings of the bases."""
    wanted, console = job.settings["data"], job.console
    for name in sorted(wanted):
        if name in console.params and name not in console.given:
            continue  # a default: what holds is what the bases were made with
        used = settings["data"].get(name)
        if wanted[name] != used:
            raise UsageError(
                f"{option_name(name)} is {wanted[name]} here, and was {_text(used)} "
                "when the bases were made. Leave it out, or run participant again."
            )
    used = settings["basis"].get("standardize", True)
    if job.settings["basis"].get("standardize", True) != used:
        option = "--standardize" if used else "--no-standardize"
        raise UsageError(
            f"The bases were made with {option}: give it to group too, or run "
            "participant again."
        )


def option_name(name: str) -> str:
    """Return the option that sets a flattened setting of bases.

    Examples
    --------
    >>> option_name("smoothing_fwhm"), option_name("standardize")
    ('--smoothing-fwhm', '--bids-param standardize')
    >>> option_name("basis standardize"), option_name("basis kernel_params")
    ('--standardize', '--hp')
    """
    if name == "basis kernel_params":
        return "--hp"
    bare = name.removeprefix("basis ")
    if bare != name or name in LOAD_OPTIONS:
        return f"--{bare.replace('_', '-')}"
    return f"--bids-param {name}"


def _data_options(data: Mapping[str, Any]) -> dict[str, Any]:
    """Return settings of the data as options of the command, for the record."""
    options = {k: v for k, v in data.items() if k in LOAD_OPTIONS}
    for name in ("ignore", "keep", "confounds"):  # which take several values
        if isinstance(options.get(name), str):
            options[name] = [options[name]]
    rest = [f"{k}={files.toml(v)}" for k, v in data.items() if k not in LOAD_OPTIONS]
    return {**options, **({"bids_param": rest} if rest else {})}


# -- the report ------------------------------------------------------------------------


def join_records(records: list[Any]) -> dict[str, Any] | None:
    """Return one record of what was done to all subjects; None if one has none."""
    if not records or not all(isinstance(r, dict) for r in records):
        return None
    joined = dict(records[0])
    for part in ("runs", "runs_without_events", "samples"):
        joined[part] = {k: v for r in records for k, v in (r.get(part) or {}).items()}
    left_out = sum((Counter(r.get("left_out") or {}) for r in records), Counter())
    joined["left_out"] = dict(sorted(left_out.items()))
    all_runs = {run for runs in joined["runs"].values() for run in runs}
    joined["missing_runs"] = {
        id: sorted(all_runs - set(runs))
        for id, runs in joined["runs"].items()
        if all_runs - set(runs)
    }
    return joined


def _study_without_voxels(bases: list[Any], record: dict[str, Any] | None) -> Any:
    """Return a study with the labels and runs of the samples, and zeros as voxels."""
    import numpy as np

    from brainweave.study.study import Study, Subject

    names = ("labels", "runs", "stimuli", "space")
    subjects = []
    for basis in bases:
        zeros = np.broadcast_to(np.float32(0), (basis.n_samples, basis.n_voxels))
        metadata = {name: getattr(basis, name) for name in names}
        subjects.append(Subject(basis.id, zeros, **metadata))
    return Study(subjects, record=record)
