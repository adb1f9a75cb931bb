"""Commands that make and use models: fit, transform, add-subject, tune."""

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from brainweave._core.exceptions import warn_user
from brainweave.cli import files
from brainweave.cli.cluster import Engine
from brainweave.cli.console import Console, UsageError
from brainweave.cli.methods import (
    Method,
    fit_study,
    make_aligner,
    match_and_report,
    region_aligner,
    resolved_options,
)
from brainweave.cli.options import (
    Halves,
    OutFolder,
    Overwrite,
    StudyFolder,
    Subjects,
    argument,
    command,
    option,
)

if TYPE_CHECKING:
    from brainweave.study.study import Study

Model = Annotated[Path, typer.Argument(help="Model file.")]


@command(method=Method, engine=Engine)
def fit(
    study: StudyFolder,
    output: Path = option(
        "Model file to write (.safetensors).",
        "--output",
        "-o",
        default=Path("model.safetensors"),
    ),
    *,
    halves: Halves = None,
    method: Method,
    console: Console,
) -> None:
    """Align the subjects of a study; write the model to one file."""
    files.check_new_model(output)
    aligner = make_aligner(method)
    whole = files.open_study(study)
    subjects = first_half(match_and_report(whole, method.match, console), halves)
    model = fit_study(aligner, subjects, console)
    # of a search, the model that it chose is saved
    model = getattr(model, "best_estimator_", model)
    aligner = model if hasattr(aligner, "best_estimator_") else aligner
    options = files.used_options(console, **resolved_options(aligner))
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


def first_half(study: "Study", by: str | None) -> "Study":
    """Return the half of a study that aligns, or all of it."""
    if by is None:
        return study
    if by not in ("category", "run"):
        raise UsageError(f"--halves must be category or run; got {by!r}.")
    return study.split_halves(by)[0]  # type: ignore[arg-type]


def summarize_model(model: Any) -> str:
    """Say in a sentence or two what a model is, and whether alignment worked."""
    text = (
        f"{type(model).__name__} of {model.n_subjects_} subjects, "
        f"{model.n_components_} shared features"
    )
    # what gains from the graph is no finding: noise gains too
    from brainweave.aligners.check.alignment_check import stored_check

    check = stored_check(model)
    # a model of another method that comes from a file never knows
    told = check.available or hasattr(model, "component_summary")
    return f"{text}. {check.verdict}" if told else text


@command()
def transform(
    model: Model,
    study: StudyFolder,
    out: Path = argument("Study folder to make."),
    overwrite: Overwrite = False,
    *,
    only_new: bool = option(
        "Write the samples that did not take part in the alignment, and no others.",
        default=False,
    ),
    subjects: Subjects = None,
    console: Console,
) -> None:
    """Map samples into the shared space; write them as a study of shared features.

    Subjects of the study are found in the model by their ids. The tables of the samples
    have a column "aligned": 1 where a sample took part in the alignment. Scoring those
    would be circular, so evaluate and compare refuse them. Fit with --halves to have
    others.
    """
    import numpy as np

    from brainweave.study.study import Study, Subject

    files.check_new_folder(out, overwrite)
    fitted, ids, made = files.load_model(model, subjects)
    people = files.open_study(study)
    unknown = [id for id in people.ids if id not in ids]
    if unknown:
        raise UsageError(
            f"The model does not know subject {unknown[0]!r}; it has "
            f"{', '.join(ids)}. A new one joins by: brainweave add-subject."
        )
    shared, n_aligned, n_all = [], 0, 0
    with console.stage("Mapping subjects", len(people)) as tick:
        for s in people:
            samples, position = s.data(), ids.index(s.id)
            map_ = fitted.maps_[position]
            features = map_.transform(samples, name=f"Subject {s.id!r}")
            names = ("labels", "runs", "onsets", "stimuli")
            metadata = {name: getattr(s, name) for name in names}
            flags = fitted._took_part(samples, position)
            if fitted._joins_samples and _averaged(made, people):
                flags[:] = True
            if s.aligned is not None:
                flags |= s.aligned
            new = Subject(s.id, features, aligned=flags, **metadata)
            shared.append(new.select(~flags) if only_new else new)
            n_aligned, n_all = n_aligned + int(np.sum(flags)), n_all + len(flags)
            if only_new and flags.all():
                raise UsageError(
                    f"All {len(flags)} samples of subject {s.id!r} took part in the "
                    "alignment. Fit on a part of them: brainweave fit --halves run."
                )
            tick(s.id)
    files.save_study(
        Study(shared, f"{people.name}, shared features" if people.name else ""),
        out,
        console,
        made_from={
            "source_fingerprint": people.fingerprint(),
            "model_fingerprint": made.get("study_fingerprint"),
        },
        overwrite=overwrite,
    )
    which = "left out" if only_new else "marked as aligned"
    console.result(
        f"{out}: {len(shared)} subjects, {fitted.n_components_} shared features; "
        f"{n_aligned} of {n_all} samples took part in the alignment and are {which}"
    )
    if n_aligned == n_all:
        warn_user(
            f"All {n_all} samples took part in the alignment, so that nothing can be "
            "tested on their features: noise would score near 100 %. Align with a part "
            "of them: brainweave fit --halves run.",
        )


def _averaged(made: dict[str, Any], study: "Study") -> bool:
    """Whether averages of the study's samples aligned, which are not known again."""
    averaged = (made.get("options") or {}).get("match") == "average"
    return averaged and made.get("study_fingerprint") == study.fingerprint()


@command()
def add_subject(
    model: Model,
    study: StudyFolder,
    subject: list[str] | None = option(
        "Who joins; all subjects the model lacks by default."
    ),
    output: Path | None = option(
        "Model file to write; default: the same.", "--output", "-o"
    ),
    *,
    halves: Halves = None,
    subjects: Subjects = None,
    console: Console,
) -> None:
    """Let new subjects join a model without fitting it again.

    The maps of the subjects that are in the model do not change.
    """
    target = model if output is None else output
    files.check_new_model(target)
    fitted, ids, made = files.load_model(model, subjects)
    people = files.open_study(study)
    wanted = [i if i in people.ids else i.removeprefix("sub-") for i in subject or []]
    joining = wanted or [id for id in people.ids if id not in ids]
    for id in joining:
        if id in ids:
            raise UsageError(f"Subject {id!r} is in the model already.")
    if not joining:
        raise UsageError("Every subject of the study is in the model already.")
    new = first_half(people.subset(subjects=joining), halves)
    local = region_aligner(fitted)
    by_row = local.get_params(deep=False).get("graph") == "time"
    with console.stage("Joining subjects", len(new)) as tick:
        for s in new:
            y = local._y_of(s)
            if y is None and by_row:
                y = list(range(s.n_samples))
            _append_map(fitted, fitted.fit_new_subject(s, y))
            tick(s.id)
    options = files.used_options(console, subject=joining, output=target)
    fitted.ids_ = [*ids, *joining]
    origin = files.provenance(
        "add-subject", options, fitted.ids_, joined_from=people.fingerprint()
    )
    # a model of several studies has the fingerprint of none
    origin["fitted_on"] = made.pop("study_fingerprint", made.get("fitted_on"))
    files.save_model(fitted, target, {**made, **origin}, console)
    console.result(f"{target}: {summarize_model(fitted)}; joined: {', '.join(joining)}")


def _append_map(model: Any, new: Any) -> None:
    """Append the map of a new subject; those of the others do not change."""
    model.maps_ = [*model.maps_, new.detach()]
    model.n_subjects_ = len(model.maps_)
    for name in ("coef", "mixing"):
        arrays, array = vars(model).get(f"{name}_"), getattr(new, name)
        if isinstance(arrays, list) and array is not None:
            setattr(model, f"{name}_", [*arrays, array])
    vars(model).pop("bases_", None)


# -- settings --------------------------------------------------------------------------


@command()
def tune(
    study: StudyFolder,
    *,
    energies: str = option(
        "Energies to try, with commas; auto: no cut, but GDM's own shrinkage.",
        default="0.2,0.35,0.5,0.65,0.82,1",
    ),
    n_components: str = option(
        "Numbers of components to try, with commas, or auto.", default="auto"
    ),
    kernels: str = option(
        "Kernels to try, with commas; gaussian:5000 sets hp.", default="linear"
    ),
    protocol: str = option("held-out or joint.", default="held-out"),
    leave_out: int = option("Subjects tested at a time.", default=1),
    n_jobs: int | None = option("Subjects at a time."),
    output: OutFolder = Path("tuning"),
    console: Console,
) -> None:
    """Choose the settings of GDM inside the study; write the best model."""
    import brainweave

    counts: Any = [
        c if c == "auto" else _parse_number("n-components", c, int)
        for c in _split_commas(n_components)
    ]
    search = brainweave.GDMCV(
        energies=[_parse_energy(e) for e in _split_commas(energies)],
        n_components=counts,
        kernels=[_parse_kernel(k) for k in _split_commas(kernels)],
        protocol=protocol,
        leave_out=leave_out,
        n_jobs=n_jobs,
    )
    subjects = files.open_study(study)
    files.prepare_folder(output)
    n_settings = len(search.energies) * len(counts) * len(search.kernels)
    with console.progress("Trying settings") as progress:
        search.fit(subjects, progress=progress)
    options = files.used_options(console)
    made = files.provenance("tune", options, subjects.ids, score=search.best_score_)
    target = output / "model.safetensors"
    brainweave.save(search.best_estimator_, target, provenance=made)
    files.write_tsv(output / "settings.tsv", _settings_rows(search.cv_results_))
    best = resolved_options(search.best_estimator_)
    method = "gdm" if search.best_params_["energy"] is None else "paper-gdm"
    chosen = {"method": method, **best, "study": str(study)}
    files.write_config(output / "best.toml", "fit", chosen)
    files.write_config(output / "tune.toml", "tune", options)
    _warn_at_the_edge("energies", search.energies, best.get("energy"), most=1.0)
    _warn_at_the_edge("n_components", counts, best.get("n_components"))
    names = ("n_components", "energy", "kernel", "hp")
    shown = ", ".join(f"{k} {v}" for k, v in best.items() if k in names)
    console.result(
        f"Best of {n_settings}: {shown}; accuracy {search.best_score_:.3f}, chosen on "
        "these data and so too high: score it with brainweave evaluate --method gdmcv"
    )
    console.result(f"{target}; the same by: brainweave fit --config {output}/best.toml")


def _warn_at_the_edge(
    name: str, tried: Any, chosen: Any, most: float | None = None
) -> None:
    """Warn if the best value is the first or last that was tried."""
    values = [float(value) for value in tried if value not in (None, "auto")]
    if chosen in (None, "auto") or len(values) < 2 or float(chosen) == most:
        return  # nothing is beyond the most there is
    for edge, which, side in (
        (min(values), "least", "less"),
        (max(values), "most", "more"),
    ):
        if float(chosen) == edge:
            warn_user(
                f"{name}={chosen} is the {which} that was tried: {side} may be better. "
                "Try more values.",
            )


def _settings_rows(found: dict[str, Any]) -> Iterator[list[Any]]:
    """Yield the header and a row per setting that GDMCV tried."""
    yield ["energy", "n_components", "kernel", "hp", "mean", "std", "rank", "error"]
    for i, params in enumerate(found["params"]):
        yield [
            params["energy"] or "auto",
            params["n_components"],
            params["kernel"],
            (params["kernel_params"] or {}).get("hp", "n/a"),
            *(found[f"{name}_test_score"][i] for name in ("mean", "std", "rank")),
            found["error"][i] or "n/a",
        ]


def _split_commas(text: str) -> list[str]:
    return [part.strip() for part in str(text).split(",") if part.strip()]


def _parse_number(name: str, text: str, kind: Any = float) -> Any:
    try:
        return kind(text)
    except ValueError:
        what = (
            "numbers with commas"
            if kind is float
            else "whole numbers with commas, or auto"
        )
        raise UsageError(f"--{name} takes {what}; got {text!r}.") from None


def _parse_energy(text: str) -> float | None:
    return None if text == "auto" else float(_parse_number("energies", text))


def _parse_kernel(text: str) -> Any:
    name, colon, hp = text.partition(":")
    return (name, _parse_number("kernels", hp)) if colon else name
