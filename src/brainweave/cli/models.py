"""From options to aligners, and commands with models: fit, transform, add-subject."""

import inspect
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from brainweave._core.exceptions import warn_user
from brainweave.cli import command as c
from brainweave.cli import files
from brainweave.cli.console import Console, UsageError

if TYPE_CHECKING:
    from brainweave.study.study import Study

# what people type -> the class at the top of the package
METHODS = {
    "gdm": "GDM",
    "paper-gdm": "PaperGDM",
    "gdmcv": "GDMCV",
    "hyperalignment": "Hyperalignment",
    "regularized-hyperalignment": "RegularizedHyperalignment",
    "kernel-hyperalignment": "KernelHyperalignment",
    "svd-hyperalignment": "SVDHyperalignment",
    "srm": "SRM",
    "detsrm": "DetSRM",
    "robust-srm": "RobustSRM",
    "semi-supervised-srm": "SemiSupervisedSRM",
    "gcca": "GCCA",
    "promises": "ProMises",
    "ridge": "RidgeAlignment",
    "none": "NoAlignment",
}
SHORT = {  # as papers call them
    "ha": "hyperalignment",
    "rha": "regularized-hyperalignment",
    "kha": "kernel-hyperalignment",
    "svdha": "svd-hyperalignment",
    "rsrm": "robust-srm",
    "sssrm": "semi-supervised-srm",
}
# options that are parameters of aligners, in the order of a configuration file
SHARED = ("n_components", "graph", "random_state", "n_jobs")
# parameters that commands of several methods give to those that have them
OF_SOME = {*SHARED, "energy", "kernel"}

Model = Annotated[Path, typer.Argument(help="Model file.")]


# -- aligners --------------------------------------------------------------------------


def make_aligner(
    method: str,
    options: Mapping[str, Any] | None = None,
    *,
    lenient: bool = False,
    study: Any = None,
) -> Any:
    """Make the aligner that the options of a command ask for.

    Options that are None leave the aligner's own default; the samples of a `study` of
    films are joined by time. A `lenient` command, which has several methods,
    ignores shared options that a method does not have.
    """
    import brainweave
    from brainweave.aligners.plugins import load_plugin, plugins

    asked = method.lower().replace("_", "-")
    foreign = "Adapter" if ":" in asked else None  # such as fmralign:ot
    class_name = METHODS.get(SHORT.get(asked, asked), foreign)
    offered = {} if class_name else plugins()
    if class_name is None and asked not in offered:
        several = " (one; compare takes several)" if "," in method else ""
        raise UsageError(
            f"There is no method {method!r}; choose one of "
            f"{', '.join([*METHODS, *offered])}{several}."
        )
    cls = getattr(brainweave, class_name) if class_name else load_plugin(offered[asked])
    parameters = set(inspect.signature(cls).parameters)
    options = options or {}
    given = {name: options.get(name) for name in SHARED}
    if given["n_components"] not in (None, "auto"):
        try:
            given["n_components"] = int(given["n_components"])
        except ValueError:
            raise UsageError(
                "--n-components must be a number or auto; got "
                f"{given['n_components']!r}."
            ) from None
    values = c.with_params(given, c.parse_params(options.get("param")))
    if "hp" in values:
        if values.get("kernel", "linear") == "linear":
            raise UsageError(
                "hp is the parameter of a kernel that is not linear: choose one with "
                "--param kernel=gaussian, quadratic or sigmoid."
            )
        values["kernel_params"] = {"hp": values.pop("hp")}
    for name in [n for n in values if n not in parameters]:
        if name == "n_jobs" or (lenient and name in OF_SOME):
            del values[name]
    if class_name == "Adapter":  # what it does not have goes to the package
        others = {n: values.pop(n) for n in [*values] if n not in parameters}
        values |= {"method": asked, "params": others or None}
    if class_name == "GDM" and {"energy", "solver"} & set(values):
        raise UsageError("--method gdm has no energy or solver: use paper-gdm.")
    c.refuse_unknown(values, parameters, f"{method} has no parameter '{{}}'")
    if study is not None and "graph" in parameters and is_film(study):
        values.setdefault("graph", "time")
    aligner = cls(**values)
    return by_region(aligner, options.get("parcels"), options.get("searchlight"))


def is_film(study: "Study") -> bool:
    """Whether samples have stimulus ids, but no categories."""
    return not study.categories and all(s.stimuli is not None for s in study)


def named_aligners(
    params: Mapping[str, Any], default: str, study: "Study"
) -> dict[str, Any]:
    """Make the aligners of all --method, with commas or repeated, by their names."""
    from brainweave.plotting.results import method_label

    given = ",".join(params["method"] or [default]).split(",")
    names = list(dict.fromkeys(name.strip() for name in given))
    lenient = len(names) > 1
    made = {
        method_label(n): make_aligner(n, params, lenient=lenient, study=study)
        for n in names
    }
    known = {p.split("__")[-1] for a in made.values() for p in a.get_params()}
    asked = [n for n in SHARED if params.get(n) is not None]
    asked += c.parse_params(params["param"])
    message = "None of these methods has a parameter '{}'"
    c.refuse_unknown(asked, known | {"hp", "n_jobs", "random_state"}, message)
    return made


def resolved_options(aligner: Any) -> dict[str, Any]:
    """Return the parameters of an aligner, defaults too, as options."""
    # of an aligner that works region by region, those of a region
    params = dict(getattr(aligner, "aligner", aligner).get_params(deep=False))
    kernel_params = params.pop("kernel_params", None)
    if isinstance(kernel_params, dict):
        params["hp"] = kernel_params.get("hp")
    simple = {k: v for k, v in params.items() if isinstance(v, (bool, int, float, str))}
    own = ("n_components", "graph", "n_jobs")
    options: dict[str, Any] = {k: simple.pop(k) for k in own if k in simple}
    if "n_components" in options:
        options["n_components"] = str(options["n_components"])
    rest = [f"{k}={files.toml(v)}" for k, v in simple.items()]
    return {**options, "param": rest} if rest else options


def by_region(aligner: Any, parcels: str | None, radius: float | None) -> Any:
    """Return the aligner, or one that applies it to every region of the brain."""
    import brainweave

    if parcels is not None and radius is not None:
        raise UsageError("--parcels and --searchlight are two ways: choose one.")
    if type(aligner).__name__ == "NoAlignment":
        return aligner
    if parcels is not None:
        return brainweave.Parcelwise(aligner, _atlas(parcels))
    return aligner if radius is None else brainweave.Searchlight(aligner, radius)


def _atlas(parcels: str) -> Any:
    """Return the atlas of --parcels: a name, an image, or one for each hemisphere."""
    from brainweave._core.exceptions import StudyError
    from brainweave.study.atlases import open_atlas

    files = parcels.split(",")
    try:
        opened = [open_atlas(file)[0] for file in files]
    except StudyError as error:
        raise UsageError(
            f"--parcels must be an atlas file, two with a comma, or schaefer-100: "
            f"{error}"
        ) from error
    if len(files) == 2:
        return dict(zip(("left", "right"), opened, strict=True))
    return opened[0] if Path(parcels).exists() else parcels


def match_and_report(study: "Study", how: str | None, console: Console) -> "Study":
    """Make the samples of all subjects correspond; record what is dropped."""
    if how is None:
        return study
    from brainweave.evaluation.splits import match_study
    from brainweave.study.provenance import describe_record

    matched = match_study(study, how)
    study.record = matched.record
    console.note(f"--match {dict(describe_record(matched.record))['matching']}")
    return matched


def fit_study(aligner: Any, study: "Study", console: Console) -> Any:
    """Fit an aligner on a study."""
    console.subject_ids = list(study.ids)
    with console.stage("Reading and aligning subjects"):
        return aligner.fit(study)


# -- commands --------------------------------------------------------------------------


def fit(
    context: typer.Context,
    study: c.StudyFolder,
    *,
    output: Annotated[
        Path, c.option("Model file to write (.safetensors).", "--output", "-o")
    ] = Path("model.safetensors"),
    halves: c.AligningHalf = None,
    method: c.Method = "gdm",
    n_components: c.Components = None,
    graph: c.Graph = None,
    match: c.Match = None,
    parcels: c.Parcels = None,
    searchlight: c.Radius = None,
    param: c.MethodParam = None,
    n_jobs: c.Jobs = None,
    dask: c.Dask = None,
    config: c.Config = None,
    quiet: c.Quiet = False,
) -> None:
    """Align the subjects of a study; write the model to one file.

    With --method gdmcv the settings are chosen inside the study, and the best model is
    written.
    """
    console: Console = context.obj
    files.check_new_model(output)
    whole = files.open_study(study)
    aligner = make_aligner(method, context.params, study=whole)
    subjects = first_half(match_and_report(whole, match, console), halves)
    subjects = what_all_saw(subjects, aligner, console)
    model = fit_study(aligner, subjects, console)
    resolved: dict[str, Any] = {"param": None}
    if hasattr(model, "best_estimator_"):
        _report_search(model, console)
        model = aligner = model.best_estimator_
        resolved["method"] = "gdm" if type(model).__name__ == "GDM" else "paper-gdm"
    resolved |= resolved_options(aligner)
    options = files.used_options(console, **resolved)
    made = files.provenance(
        "fit",
        options,
        subjects.ids,
        study=subjects.name,
        study_fingerprint=whole.fingerprint(),
        seconds=dict(console.seconds),
        warnings=list(console.warnings),
    )
    files.save_model(model, output, made, console)
    console.result(f"{output}: {summarize_model(model)}")


def _report_search(search: Any, console: Console) -> None:
    """Print the settings that a search chose."""
    best = {k: v for k, v in search.best_params_.items() if v is not None}
    shown = ", ".join(f"{name} {value}" for name, value in best.items())
    console.result(
        f"Best of {len(search.cv_results_['params'])}: {shown}; accuracy "
        f"{search.best_score_:.3f}, chosen on these data and so too high: score it "
        "with brainweave compare --method gdmcv"
    )


def first_half(study: "Study", by: str | None) -> "Study":
    """Return the half of a study that aligns, or all of it."""
    from brainweave.evaluation.splits import half_masks, split_in_halves

    if by is None:
        return study
    return split_in_halves(study, half_masks(study, by))[0].aligning


def what_all_saw(study: "Study", aligner: Any, console: Console) -> "Study":
    """Return the samples of a film that a method can use: all, or those that all have.

    Methods that join samples by their rows need equal rows.
    """
    from brainweave.evaluation.splits import Split

    used = Split(study, study).for_aligner(aligner).aligning
    if used is not study:
        had = sorted(s.n_samples for s in study)
        console.note(
            f"{type(aligner).__name__} needs equal rows: it aligns the "
            f"{used.subjects[0].n_samples} samples that all subjects have, of {had[0]} "
            f"to {had[-1]}."
        )
    return used


def summarize_model(model: Any) -> str:
    """Describe a model in a sentence or two, and whether alignment worked."""
    from brainweave.aligners.check.alignment_check import stored_check

    text = (
        f"{type(model).__name__} of {model.n_subjects_} subjects, "
        f"{model.n_components_} shared features"
    )
    check = stored_check(model)
    # a model of another method that comes from a file never knows
    known = check.available or hasattr(model, "component_summary")
    return f"{text}. {check.verdict}" if known else text


def transform(
    context: typer.Context,
    model: Model,
    study: c.StudyFolder,
    out: Annotated[Path, typer.Argument(help="Study folder to make.")],
    *,
    only_new: Annotated[
        bool,
        c.option(
            "Write only the samples that did not take part in the alignment.",
            "--only-new",
        ),
    ] = False,
    new: Annotated[
        bool,
        c.option(
            "Map subjects that the model does not know by its shared map, without "
            "aligning data (zero-shot).",
            "--new",
        ),
    ] = False,
    overwrite: c.Overwrite = False,
    config: c.Config = None,
    quiet: c.Quiet = False,
) -> None:
    """Map samples into the shared space; write them as a study of shared features.

    Subjects of the study are found in the model by their ids. The tables of the samples
    have a column "aligned": 1 where a sample took part in the alignment. Scoring those
    would be circular, so compare refuses them. Fit with --halves to have others.
    With --new, subjects that the model does not know are mapped by what all share.
    """
    from brainweave.study.shared import ZERO_SHOT, transform_study

    console: Console = context.obj
    files.check_new_folder(out, overwrite)
    fitted, ids, made = files.load_model(model)
    people = files.open_study(study)
    fingerprint = people.fingerprint()
    averaged = (made.get("options") or {}).get("match") == "average"
    with console.stage("Mapping subjects", len(people)) as tick:
        shared = transform_study(
            fitted,
            people,
            ids=ids,
            only_new=only_new,
            all_aligned=averaged and made.get("study_fingerprint") == fingerprint,
            new=new,
            tick=tick,
        )
    origin = {
        "source_fingerprint": fingerprint,
        "model_fingerprint": made.get("study_fingerprint"),
    }
    zero_shot = (shared.record or {}).get("zero_shot", {}).get("subjects", [])
    if zero_shot:
        origin |= {"new_subjects": zero_shot, "new_subjects_are": ZERO_SHOT}
    files.save_study(shared, out, console, made_from=origin, overwrite=overwrite)
    n_all = sum(s.n_samples for s in people)
    flags = [s.aligned for s in shared if s.aligned is not None]
    n_new = sum(len(f) - int(f.sum()) for f in flags)
    n_aligned, which = n_all - n_new, "left out" if only_new else "marked as aligned"
    console.result(
        f"{out}: {len(shared)} subjects, {fitted.n_components_} shared features; "
        f"{n_aligned} of {n_all} samples took part in the alignment and are {which}"
    )
    if zero_shot:
        console.result(f"{', '.join(zero_shot)}: {ZERO_SHOT}")
    if n_new == 0:
        warn_user(
            f"All {n_all} samples took part in the alignment, so that nothing can be "
            "tested on their features: noise would score near 100 %. Align with a part "
            "of them: brainweave fit --halves run."
        )


def add_subject(
    context: typer.Context,
    model: Model,
    study: c.StudyFolder,
    *,
    subject: Annotated[
        list[str] | None,
        c.option("Who joins; all subjects the model lacks by default."),
    ] = None,
    output: Annotated[
        Path | None,
        c.option("Model file to write; default: the same.", "--output", "-o"),
    ] = None,
    halves: c.AligningHalf = None,
    config: c.Config = None,
    quiet: c.Quiet = False,
) -> None:
    """Let new subjects join a model without fitting it again.

    The maps of the subjects that are in the model do not change.
    """
    from brainweave.study.shared import add_subjects

    console: Console = context.obj
    target = model if output is None else output
    files.check_new_model(target)
    fitted, ids, made = files.load_model(model)
    people = files.open_study(study)
    wanted = [i if i in people.ids else i.removeprefix("sub-") for i in subject or []]
    joining = wanted or [id for id in people.ids if id not in ids]
    for id in joining:
        if id in ids:
            raise UsageError(f"Subject {id!r} is in the model already.")
    if not joining:
        raise UsageError("Every subject of the study is in the model already.")
    new = first_half(people.subset(subjects=joining), halves)
    fitted.ids_ = list(ids)
    with console.stage("Joining subjects", len(new)) as tick:
        add_subjects(fitted, new, tick=tick)
    options = files.used_options(console, subject=joining, output=target)
    origin = files.provenance(
        "add-subject", options, fitted.ids_, joined_from=people.fingerprint()
    )
    # a model of several studies has the fingerprint of none
    origin["fitted_on"] = made.pop("study_fingerprint", made.get("fitted_on"))
    files.save_model(fitted, target, {**made, **origin}, console)
    console.result(f"{target}: {summarize_model(fitted)}; joined: {', '.join(joining)}")
