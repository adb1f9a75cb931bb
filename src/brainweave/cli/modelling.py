"""Commands that make and use models: fit, transform, add-subject."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from brainweave.cli.config import effective, write_config
from brainweave.cli.console import Console
from brainweave.cli.data import (
    Overwrite,
    check_new_folder,
    check_writable,
    describe_study,
    save_study,
)
from brainweave.cli.errors import UsageError, subjects_are
from brainweave.cli.methods import (
    Watched,
    make_aligner,
    matched,
    open_study,
    resolved,
    samples_known,
    tell_matching,
    uses_samples,
)
from brainweave.cli.options import Method, Running, bundled
from brainweave.cli.origin import provenance

if TYPE_CHECKING:
    from brainweave.study.study import Study

__all__ = [
    "StudyFolder",
    "Subjects",
    "add_subject",
    "fit",
    "fit_study",
    "load_model",
    "provenance",
    "transform",
]

Model = Annotated[Path, typer.Argument(help="Model file.")]
StudyFolder = Annotated[Path, typer.Argument(help="Study folder.")]
Subjects = Annotated[
    str | None,
    typer.Option(
        "--subjects",
        help="Ids of the model's subjects in their order, with commas: for a model "
        "that was fitted on arrays, which have no ids.",
    ),
]
ModelOut = Annotated[
    Path, typer.Option("--output", "-o", help="Model file to write (.safetensors).")
]


def check_new_model(path: Path) -> None:
    """Refuse a file that cannot be written, before any work is done."""
    if path.suffix != ".safetensors":
        raise UsageError(f"--output must end in .safetensors; got {str(path)!r}.")
    if path.is_dir():
        raise UsageError(f"{str(path)!r} is a folder. Name a file in it.")
    if not path.absolute().parent.is_dir():
        raise UsageError(
            f"There is no folder {str(path.absolute().parent)!r} to write to."
        )
    check_writable(path, path.with_suffix(".toml"))


def fit_study(aligner: Any, study: "Study", console: Console) -> Any:
    """Fit an aligner on a study with a bar that counts subjects."""
    known = samples_known(aligner, study)
    subjects_are(study.ids)
    with console.stage("Reading and aligning subjects", len(study)) as tick:
        return aligner.fit([Watched(s, tick) for s in study], known)


@bundled(method=Method, running=Running)
def fit(
    context: typer.Context,
    study: StudyFolder,
    output: ModelOut = Path("model.safetensors"),
    *,
    method: Method,
    running: Running,
) -> None:
    """Align the subjects of a study; write the model to one file."""
    import brainweave

    console = Console(running.quiet)
    check_new_model(output)
    aligner = make_aligner(method)
    whole = open_study(study)
    tell_matching(whole, method.match, console)
    subjects = matched(whole, method.match)
    with console.collect_warnings():
        model = fit_study(aligner, subjects, console)
        # a search is kept as what it chose
        model = getattr(model, "best_estimator_", model)
        aligner = model if hasattr(aligner, "best_estimator_") else aligner
        options = effective(context, **resolved(aligner))
        made = provenance(
            "fit",
            options,
            subjects.ids,
            study=subjects.name,
            study_fingerprint=whole.fingerprint(),
            seconds=dict(console.seconds),
            warnings=list(console.warnings),
        )
        with console.stage("Writing the model"):
            brainweave.save(model, output, provenance=made)
        write_config(output.with_suffix(".toml"), "fit", options)
    console.result(f"{output}: {_summary(model)}")


def _summary(model: Any) -> str:
    text = (
        f"{type(model).__name__} of {model.n_subjects_} subjects, "
        f"{model.n_components_} shared features"
    )
    if not hasattr(model, "component_summary"):
        return text
    # what gains from the graph is no finding: noise gains too
    from brainweave.aligners.components import alignment_check

    return f"{text}. {alignment_check(model).verdict}"


def load_model(
    path: Path, subjects: str | None = None
) -> tuple[Any, list[str], dict[str, Any]]:
    """Load a model of several subjects, their ids, and how it was made.

    Parameters
    ----------
    path : Path
        The file.
    subjects : str, optional
        Ids with commas, for a model that does not know them.
    """
    import brainweave
    from brainweave.aligners.base import BaseAligner

    if not path.is_file():
        raise UsageError(f"There is no model file {str(path)!r}. Check the path.")
    model = brainweave.load(path)
    if not isinstance(model, BaseAligner):
        raise UsageError(f"{str(path)!r} holds the map of one subject, not a model.")
    made = brainweave.describe(path).provenance
    known = getattr(model, "ids_", None) or made.get("subjects")
    if not isinstance(known, list) or len(known) != model.n_subjects_:
        known = None
    ids = None if known is None else [str(id) for id in known]
    return model, _ids(path, model.n_subjects_, ids, subjects), made


def _ids(path: Path, n: int, known: list[str] | None, given: str | None) -> list[str]:
    """Return who the model's subjects are; nobody is guessed."""
    if given is None:
        if known is None:
            raise UsageError(
                f"{str(path)!r} does not say who its {n} subjects are: it was fitted "
                "on arrays, without ids. Name them in the order of the fit, such as "
                "--subjects 01,02,03, or fit on a Study."
            )
        return known
    ids = [id.strip().removeprefix("sub-") for id in given.split(",") if id.strip()]
    if known is not None and ids != known:
        raise UsageError(
            f"--subjects {given} contradicts the model, which has {', '.join(known)}. "
            "Leave it out."
        )
    if len(ids) != n or len(set(ids)) != n:
        raise UsageError(
            f"--subjects must name the {n} subjects of the model, each once; got "
            f"{given!r}."
        )
    return ids


@bundled(running=Running)
def transform(
    context: typer.Context,
    model: Model,
    study: StudyFolder,
    out: Annotated[Path, typer.Argument(help="Study folder to make.")],
    overwrite: Overwrite = False,
    *,
    subjects: Subjects = None,
    running: Running,
) -> None:
    """Map samples into the shared space; write them as a study of shared features.

    Subjects of the study are found in the model by their ids. Samples that made the
    model's maps are marked as aligned: scoring them would be circular, so evaluate and
    compare refuse them.
    """
    from brainweave.study.study import Study, Subject

    console = Console(running.quiet)
    check_new_folder(out, overwrite)
    fitted, ids, made = load_model(model, subjects)
    people = open_study(study)
    unknown = [id for id in people.ids if id not in ids]
    if unknown:
        raise UsageError(
            f"The model does not know subject {unknown[0]!r}; it has "
            f"{', '.join(ids)}. A new one joins by: brainweave add-subject."
        )
    shared = []
    with console.collect_warnings():
        with console.stage("Mapping subjects", len(people)) as tick:
            for s in people:
                samples, map_ = s.data(), fitted.maps_[ids.index(s.id)]
                features = map_.transform(samples, name=f"Subject {s.id!r}")
                known = {n: getattr(s, n) for n in ("labels", "runs", "onsets")}
                flags = _aligned(fitted, map_, samples, s.aligned)
                shared.append(
                    Subject(s.id, features, stimuli=s.stimuli, aligned=flags, **known)
                )
                tick(s.id)
        name = f"{people.name}, shared features" if people.name else ""
        saved = save_study(Study(shared, name), out, console, overwrite=overwrite)
        describe_study(
            saved,
            out,
            "transform",
            effective(context),
            source_fingerprint=people.fingerprint(),
            model_fingerprint=made.get("study_fingerprint"),
        )
    n_aligned = sum(int(s.aligned.sum()) for s in shared if s.aligned is not None)
    console.result(
        f"{out}: {len(shared)} subjects, {fitted.n_components_} shared features, "
        f"{n_aligned} of {sum(s.n_samples for s in shared)} samples took part in the "
        "alignment"
    )


def _aligned(model: Any, map_: Any, samples: Any, before: Any) -> Any:
    """Return which samples made the maps by what is known of them."""
    import numpy as np

    flags = np.zeros(len(samples), bool) if before is None else before.copy()
    if not uses_samples(model):
        return flags
    if getattr(map_, "signatures", None) is None:
        # a model of an older version does not say: then no sample is known to be free
        return np.ones(len(samples), bool)
    return flags | map_.took_part(samples)


@bundled(running=Running)
def add_subject(
    context: typer.Context,
    model: Model,
    study: StudyFolder,
    subject: Annotated[
        list[str] | None,
        typer.Option(help="Who joins; all subjects the model lacks by default."),
    ] = None,
    output: Annotated[
        Path | None,
        typer.Option("--output", "-o", help="Model file to write; default: the same."),
    ] = None,
    *,
    subjects: Subjects = None,
    running: Running,
) -> None:
    """Let new subjects join a model without fitting it again.

    The maps of the subjects that are in the model do not change.
    """
    import brainweave

    console = Console(running.quiet)
    target = model if output is None else output
    check_new_model(target)
    fitted, ids, made = load_model(model, subjects)
    people = open_study(study)
    wanted = [i if i in people.ids else i.removeprefix("sub-") for i in subject or []]
    joining = wanted or [id for id in people.ids if id not in ids]
    for id in joining:
        if id in ids:
            raise UsageError(f"Subject {id!r} is in the model already.")
    if not joining:
        raise UsageError("Every subject of the study is in the model already.")
    new = people.subset(subjects=joining)
    with console.collect_warnings():
        with console.stage("Joining subjects", len(new)) as tick:
            for s, known in zip(new, _known_of_new(fitted, new), strict=True):
                join(fitted, fitted.fit_new_subject(s, known))
                tick(s.id)
        options = effective(context, subject=joining, output=target)
        fitted.ids_ = [*ids, *joining]
        origin = provenance(
            "add-subject", options, fitted.ids_, joined_from=people.fingerprint()
        )
        # of several studies now: none of them is the one that it stands for
        origin["fitted_on"] = made.pop("study_fingerprint", made.get("fitted_on"))
        made = {**made, **origin}
        with console.stage("Writing the model"):
            brainweave.save(fitted, target, provenance=made)
        write_config(target.with_suffix(".toml"), "add-subject", options)
    console.result(f"{target}: {_summary(fitted)}; joined: {', '.join(joining)}")


def _known_of_new(model: Any, study: "Study") -> list[Any]:
    known = samples_known(model, study)
    return [None] * len(study) if known is None else known


def join(model: Any, new: Any) -> None:
    """Append the map of a new subject; what the others' maps rest on is unchanged."""
    model.maps_ = [*model.maps_, new.detach()]
    model.n_subjects_ = len(model.maps_)
    if isinstance(vars(model).get("coef_"), list) and new.coef is not None:
        model.coef_ = [*model.coef_, new.coef]
    if isinstance(vars(model).get("mixing_"), list) and new.mixing is not None:
        model.mixing_ = [*model.mixing_, new.mixing]
    vars(model).pop("bases_", None)
