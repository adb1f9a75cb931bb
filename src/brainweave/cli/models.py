"""Make aligners from options; the commands fit, transform and add-subject."""

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

# classes at the top of the package, and what people type, with dashes or without
CLASSES = (
    *("GDM", "PaperGDM", "GDMCV", "Hyperalignment", "RegularizedHyperalignment"),
    *("KernelHyperalignment", "SVDHyperalignment", "SRM", "DetSRM", "RobustSRM"),
    *("SemiSupervisedSRM", "GCCA", "ProMises"),
)
METHODS = {name.lower(): name for name in CLASSES}
METHODS |= {"ridge": "RidgeAlignment", "none": "NoAlignment"}
# options that are parameters of aligners, in the order of a configuration file
SHARED = ("n_components", "graph", "n_jobs")
# parameters that commands of several methods give to those that have them
OF_SOME = {*SHARED, "random_state", "energy", "kernel"}

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
    from brainweave.persistence.models import load_plugin, plugins

    asked = method.lower().replace("_", "-")
    foreign = "Adapter" if ":" in asked else None  # such as fmralign:ot
    class_name = METHODS.get(asked.replace("-", ""), foreign)
    offered = {} if class_name else plugins()
    if class_name is None and asked not in offered:
        names = ", ".join([*METHODS, *offered])
        raise UsageError(f"There is no method {method!r}; choose one of {names}.")
    cls = getattr(brainweave, class_name) if class_name else load_plugin(offered[asked])
    parameters = set(inspect.signature(cls).parameters)
    options = options or {}
    given = {name: options.get(name) for name in SHARED}
    n_components = str(given["n_components"] or "auto")
    if n_components.isdigit():
        given["n_components"] = int(n_components)
    elif n_components != "auto":
        raise UsageError(
            f"--n-components must be a number or auto; got {n_components!r}."
        )
    values = c.with_params(given, c.parse_params(options.get("param")))
    for name in [n for n in values if n not in parameters]:
        if name == "n_jobs" or (lenient and name in OF_SOME):
            del values[name]
    if class_name == "Adapter":  # what it does not have goes to the package
        others = {n: values.pop(n) for n in [*values] if n not in parameters}
        values |= {"method": asked, "params": others or None}
    c.refuse_unknown(values, parameters, f"{method} has no parameter '{{}}'")
    film = study is not None and not study.categories
    if film and "graph" in parameters and all(s.stimuli is not None for s in study):
        values.setdefault("graph", "time")
    return by_region(cls(**values), options.get("parcels"), options.get("searchlight"))


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
    message = "None of these methods has a parameter '{}'"
    c.refuse_unknown([*asked, *c.parse_params(params["param"])], known, message)
    return made


def resolved_options(aligner: Any) -> dict[str, Any]:
    """Return the parameters of an aligner (of a region), defaults too, as options."""
    params = dict(getattr(aligner, "aligner", aligner).get_params(deep=False))
    kinds = (bool, int, float, str, dict)
    simple = {k: v for k, v in params.items() if isinstance(v, kinds)}
    options: dict[str, Any] = {k: simple.pop(k) for k in SHARED if k in simple}
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
    if parcels is None:
        return aligner if radius is None else brainweave.Searchlight(aligner, radius)
    from brainweave.study.atlases import open_atlas

    files = parcels.split(",")
    opened = [open_atlas(file)[0] for file in files]
    atlas: Any = opened[0] if Path(parcels).exists() else parcels
    if len(files) == 2:
        atlas = dict(zip(("left", "right"), opened, strict=True))
    return brainweave.Parcelwise(aligner, atlas)


def match_and_report(study: "Study", how: str | None, console: Console) -> "Study":
    """Make the samples of all subjects correspond; record what is dropped."""
    from brainweave.evaluation.splits import match_study
    from brainweave.study.provenance import describe_record

    if how is None:
        return study
    matched = match_study(study, how)
    study.record = matched.record
    console.note(f"--match {dict(describe_record(matched.record))['matching']}")
    return matched


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
    """Align the subjects of a study and write the model to one file."""
    from brainweave.evaluation.splits import Split

    console: Console = context.obj
    files.check_new_model(output)
    whole = files.open_study(study)
    aligner = make_aligner(method, context.params, study=whole)
    matched = first_half(match_and_report(whole, match, console), halves)
    # methods that join samples by their rows use those of a film that all have seen
    subjects = Split(matched, matched).for_aligner(aligner).aligning
    if subjects is not matched:
        n, most = subjects[0].n_samples, max(s.n_samples for s in matched)
        who = type(aligner).__name__
        console.note(f"{who} aligns the {n} samples that all subjects have, of {most}.")
    console.subject_ids = list(subjects.ids)
    with console.stage("Reading and aligning subjects"):
        model = aligner.fit(subjects)
    if hasattr(model, "best_estimator_"):
        best = {k: v for k, v in model.best_params_.items() if v is not None}
        console.result(
            f"Best: {best}; accuracy {model.best_score_:.3f}, chosen on these data and "
            "therefore biased. Use brainweave compare --method gdmcv."
        )
        model = aligner = model.best_estimator_
        method = "gdm" if type(model).__name__ == "GDM" else "paper-gdm"
    resolved = {"method": method, "param": None, **resolved_options(aligner)}
    facts: Any = {"seconds": dict(console.seconds), "warnings": list(console.warnings)}
    facts |= {"study": subjects.name, "study_fingerprint": whole.fingerprint()}
    options = files.used_options(console, **resolved)
    made = files.provenance("fit", options, subjects.ids, **facts)
    files.save_model(model, output, made, console)
    console.result(f"{output}: {summarize_model(model)}")


def first_half(study: "Study", by: str | None) -> "Study":
    """Return the half of a study that aligns, or all of it."""
    from brainweave.evaluation.splits import half_masks, split_in_halves

    if by is None:
        return study
    return split_in_halves(study, half_masks(study, by))[0].aligning


def summarize_model(model: Any) -> str:
    """Describe a model in a sentence or two, and whether alignment worked."""
    from brainweave.aligners.check.alignment_check import stored_check

    who = f"{type(model).__name__} of {model.n_subjects_} subjects"
    text, check = f"{who}, {model.n_components_} shared features", stored_check(model)
    # a model of another method that comes from a file never knows
    known = check.available or hasattr(model, "graph_")
    return f"{text}. {check.verdict}" if known else text


def transform(
    context: typer.Context,
    model: Model,
    study: c.StudyFolder,
    out: Annotated[Path, typer.Argument(help="Study folder to create.")],
    *,
    only_new: Annotated[
        bool,
        c.option("Write only samples that were not used in the fit.", "--only-new"),
    ] = False,
    new: Annotated[
        bool,
        c.option(
            "Map subjects that are not in the model by its shared map, without "
            "aligning data (zero-shot).",
            "--new",
        ),
    ] = False,
    config: c.Config = None,
    quiet: c.Quiet = False,
) -> None:
    """Map samples into the shared space and write a study of shared features.

    Subjects are identified by their ids. In the tables of samples, the column "aligned"
    is 1 for samples used in the fit. Scoring these would be circular, so compare
    rejects them. To hold out samples, fit with --halves.
    """
    from brainweave.study.shared import ZERO_SHOT, transform_study

    console: Console = context.obj
    files.check_new_folder(out)
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
        console.result(f"{', '.join(zero_shot)}: {ZERO_SHOT}")
    files.save_study(shared, out, console, made_from=origin)
    n_all = sum(s.n_samples for s in people)
    flags = [s.aligned for s in shared if s.aligned is not None]
    n_new = sum(len(f) - int(f.sum()) for f in flags)
    n_aligned, which = n_all - n_new, "left out" if only_new else "marked as aligned"
    console.result(
        f"{out}: {len(shared)} subjects, {fitted.n_components_} shared features; "
        f"{n_aligned} of {n_all} samples took part in the alignment and are {which}"
    )
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
        c.option("Subject to add. May be repeated. Default: all new ones."),
    ] = None,
    output: Annotated[
        Path | None,
        c.option("Model file to write. Default: the same file.", "--output", "-o"),
    ] = None,
    halves: c.AligningHalf = None,
    config: c.Config = None,
    quiet: c.Quiet = False,
) -> None:
    """Add new subjects to a model without a refit.

    The maps of the subjects in the model do not change.
    """
    from brainweave.study.shared import add_subjects

    console: Console = context.obj
    target = model if output is None else output
    fitted, ids, made = files.load_model(model)
    files.check_new_model(target)
    people = files.open_study(study)
    wanted = [i if i in people.ids else i.removeprefix("sub-") for i in subject or []]
    joining = wanted or [id for id in people.ids if id not in ids]
    known = [id for id in joining or people.ids if id in ids]
    if known:
        raise UsageError(f"Subject {known[0]!r} is already in the model.")
    new = first_half(people.subset(subjects=joining), halves)
    fitted.ids_ = list(ids)
    with console.stage("Adding subjects", len(new)) as tick:
        add_subjects(fitted, new, tick=tick)
    options = files.used_options(console, subject=joining, output=target)
    origin = files.provenance(
        "add-subject", options, fitted.ids_, joined_from=people.fingerprint()
    )
    # a model of several studies has the fingerprint of none
    origin["fitted_on"] = made.pop("study_fingerprint", made.get("fitted_on"))
    files.save_model(fitted, target, {**made, **origin}, console)
    console.result(f"{target}: {summarize_model(fitted)}; joined: {', '.join(joining)}")
