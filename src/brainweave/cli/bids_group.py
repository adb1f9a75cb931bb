"""The level of the BIDS App that aligns, from basis files that fit each other."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from brainweave._io import check_can_write, has_changed
from brainweave.cli.bids_app import Job
from brainweave.cli.bids_files import named, option_name
from brainweave.cli.console import UsageError
from brainweave.cli.options import provenance, toml
from brainweave.cli.reading import READING
from brainweave.cli.studies import save_model, write_page


def align_group(job: Job) -> None:
    """Align all subjects from their basis files."""
    kind, paths = job.derivative.bases(job.selection)
    target = job.derivative.model(kind, job.method.method)
    for path in (target, target.with_suffix(".html"), target.with_suffix(".toml")):
        check_can_write(path)
    bases, made_by = _opened(job, paths)
    settings = _common_settings(job, made_by)
    for id, made in made_by.items():
        for name, stamp in made["inputs"].items():
            path = job.inputs.folder / name
            if path.is_file() and has_changed(path, stamp):  # what is gone may be gone
                raise UsageError(
                    f"{name!r} has changed since the basis of sub-{id} was made. Run "
                    "participant again: subjects that are done are kept."
                )
    job.derivative.describe()
    with job.console.stage("Aligning"):
        model = job.aligner.fit(bases)
    ids = list(paths)
    options = {**job.options, **_options_of(settings["data"])}
    made = provenance(
        "run group",
        options,
        ids,
        settings=settings,
        bases={id: m.get("study_fingerprint") for id, m in made_by.items()},
        seconds=dict(job.console.seconds),
        warnings=list(job.console.warnings),
    )
    save_model(model, target, made, job.console)
    job.derivative.sidecar(
        target,
        {
            "Description": f"{type(model).__name__} of {len(ids)} subjects",
            "Sources": [job.derivative.uri(path) for path in paths.values()],
            "Subjects": [f"sub-{id}" for id in ids],
            "NumberOfSharedFeatures": model.n_components_,
            "Options": options,
            "Settings": settings,
        },
    )
    shared = [map_.aligning_features() for map_ in model.maps_]
    with job.console.stage("Writing shared features", len(bases)) as tick:
        name = named(kind, job.method.method)
        informative = getattr(model, "n_informative_", None)
        flags = took_part(model, bases)
        for basis, values, aligned in zip(bases, shared, flags, strict=True):
            job.derivative.mask(basis, kind)
            job.derivative.features(basis, values, aligned, name, informative)
            tick(basis.id)
    if job.resources.report:
        record = joined_records([m.get("record") for m in made_by.values()])
        write_page(
            target.with_suffix(".html"),
            job.console,
            study=_without_voxels(bases, record),
            model=model,
            shared=shared,
            config=job.options,
        )
    job.console.result(str(target))


def _opened(job: Job, paths: dict[str, Path]) -> tuple[list[Any], dict[str, Any]]:
    """Open the bases; check that each is the one of the subject it is named for."""
    from brainweave.models import describe, load_basis

    bases, made_by = [], {}
    with job.console.stage("Opening bases", len(paths)) as tick:
        for id, path in paths.items():
            basis, made = load_basis(path), describe(path).provenance
            settings, inputs = made.get("settings"), made.get("inputs")
            if basis.id != id:
                raise UsageError(
                    f"{str(path)!r} holds the basis of subject {basis.id!r}. Run "
                    f"participant again for sub-{id}."
                )
            known = isinstance(settings, dict) and isinstance(inputs, dict)
            if not known or set(made["settings"]) != {"basis", "data"}:
                raise UsageError(
                    f"The basis of sub-{id} does not say how it was made, or was made "
                    "by another version. Run participant again for it."
                )
            bases.append(basis)
            made_by[id] = made
            tick(id)
    return bases, made_by


def took_part(model: Any, bases: list[Any]) -> list[Any]:
    """Return which samples shaped the maps by what is known of them, per subject."""
    import numpy as np

    from brainweave.labels import is_missing

    if not model._joins_samples:
        return [np.zeros(basis.n_samples, bool) for basis in bases]
    by_graph = "graph" in model.get_params(deep=False)
    known = model._find_y(bases, None) if by_graph else None
    if known is None:  # row by row
        return [np.ones(basis.n_samples, bool) for basis in bases]
    # of labels and ids, either joins a sample
    tables = [np.asarray(of, dtype=object).reshape(len(of), -1) for of in known]
    return [np.array([not all(map(is_missing, row)) for row in of]) for of in tables]


# -- what is combined must fit ---------------------------------------------------------


def _common_settings(job: Job, made_by: Mapping[str, Any]) -> dict[str, Any]:
    """Return the settings that all bases were made with; refuse if there are several.

    A basis holds all energies up to its own, so energies may differ.
    """
    tables = {id: _flat(made["settings"]) for id, made in made_by.items()}
    names = sorted({name for table in tables.values() for name in table})
    differing = []
    for name in names:
        holders: dict[str, list[str]] = {}
        for id, table in tables.items():
            holders.setdefault(_text(table.get(name)), []).append(f"sub-{id}")
        if len(holders) > 1:
            listed = "; ".join(f"{v} for {', '.join(w)}" for v, w in holders.items())
            differing.append(f"{option_name(name)} was {listed}")
    if differing:
        raise UsageError(
            f"The bases were not made in the same way: {'. '.join(differing)}. Run "
            "participant again with the same options for all."
        )
    first: dict[str, Any] = next(iter(made_by.values()))["settings"]
    _check_given(job, first)
    return first


def _flat(settings: dict[str, Any]) -> dict[str, Any]:
    own = {k: v for k, v in settings["basis"].items() if k != "energy"}
    return {**settings["data"], **{f"basis {k}": v for k, v in own.items()}}


def _text(value: Any) -> str:
    return "not given" if value is None else str(value)


def _check_given(job: Job, settings: dict[str, Any]) -> None:
    """Refuse options of this level that the bases contradict; others are theirs."""
    wanted = job.settings["data"]
    asked = {n for n in wanted if n in job.given or n not in job.console.params}
    for name in sorted(asked):
        held = settings["data"].get(name)
        if wanted[name] != held:
            raise UsageError(
                f"{option_name(name)} is {wanted[name]} here, and was {_text(held)} "
                "when the bases were made. Leave it out, or run participant again."
            )
    held = settings["basis"].get("standardize", True)
    if job.settings["basis"].get("standardize", True) != held:
        option = "--standardize" if held else "--no-standardize"
        raise UsageError(
            f"The bases were made with {option}: give it to group too, or run "
            "participant again."
        )


def _options_of(data: Mapping[str, Any]) -> dict[str, Any]:
    """Return settings of the data as options of the command, for the record."""
    flat = {k: v for k, v in data.items() if k in READING}
    for name in ("ignore", "confounds"):  # which take several values
        if isinstance(flat.get(name), str):
            flat[name] = [flat[name]]
    rest = [f"{k}={toml(v)}" for k, v in data.items() if k not in READING]
    return {**flat, **({"bids_param": rest} if rest else {})}


# -- the report ------------------------------------------------------------------------


def joined_records(records: list[Any]) -> dict[str, Any] | None:
    """Return one record of what was done to all subjects, if all of them say."""
    if not records or not all(isinstance(r, dict) for r in records):
        return None
    joined = dict(records[0])
    for part in ("runs", "runs_without_events", "samples"):
        joined[part] = {k: v for r in records for k, v in (r.get(part) or {}).items()}
    everywhere = {run for of in joined["runs"].values() for run in of}
    joined["missing_runs"] = {
        id: sorted(everywhere - set(of))
        for id, of in joined["runs"].items()
        if everywhere - set(of)
    }
    return joined


def _without_voxels(bases: list[Any], record: dict[str, Any] | None) -> Any:
    """Return what is known of the samples as a study whose voxels nobody reads."""
    import numpy as np

    from brainweave.study.study import Study, Subject

    names = ("labels", "runs", "stimuli", "space")
    subjects = []
    for basis in bases:
        nothing = np.broadcast_to(np.float32(0), (basis.n_samples, basis.n_voxels))
        known = {name: getattr(basis, name) for name in names}
        subjects.append(Subject(basis.id, nothing, **known))
    return Study(subjects, record=record)
