"""Commands that make studies: simulate, convert, fetch."""

import warnings
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from brainweave.cli.config import effective, write_config
from brainweave.cli.console import Console
from brainweave.cli.errors import Unwritable, UsageError, resume_with
from brainweave.cli.options import Running, bundled, parse_params, with_params
from brainweave.cli.origin import provenance
from brainweave.cli.reading import Reading
from brainweave.exceptions import StudyError

if TYPE_CHECKING:
    from brainweave.study.study import Study

CONFIG = "brainweave.toml"

Overwrite = Annotated[
    bool, typer.Option("--overwrite", help="Replace a study that is there.")
]
Param = Annotated[
    list[str] | None,
    typer.Option(help="Any other setting, NAME=VALUE; may be repeated."),
]


def check_writable(*paths: Path) -> None:
    """Refuse places that cannot be written to, before any work is done."""
    from brainweave._io import check_can_write

    for path in paths:
        if path.suffix and path.is_dir():
            raise UsageError(f"{str(path)!r} is a folder. Name a file in it.")
        try:
            check_can_write(path)
        except OSError as error:
            reason = error.strerror or str(error)
            raise Unwritable(
                f"{str(path)!r} cannot be written ({reason}). Choose another place."
            ) from error


def check_new_folder(folder: Path, overwrite: bool) -> None:
    """Refuse a target that is there, or cannot be made, before any work is done."""
    from brainweave.study.formats.folder.folder import INDEX

    check_writable(folder)
    if (folder.exists() or folder.is_symlink()) and not overwrite:
        raise UsageError(
            f"{str(folder)!r} exists. Choose another folder, or add --overwrite to "
            "replace the study in it."
        )
    if folder.exists() and not (folder / INDEX).is_file():
        raise UsageError(f"{str(folder)!r} holds no study, so it is not replaced.")


def check_new_dataset(folder: Path, overwrite: bool) -> None:
    """Refuse a BIDS folder that is there, or cannot be made, before the work."""
    from brainweave.study.simulation.bids_writer import files_to_replace

    check_writable(folder)
    try:
        files_to_replace(folder, overwrite)
    except StudyError as error:
        said = str(error).replace("overwrite=True", "--overwrite")
        raise UsageError(said) from error


def save_study(study: "Study", folder: Path, console: Console, **options: Any) -> Any:
    """Write a study folder with a bar that counts subjects; return the study in it."""
    # a configuration tells of the study beside it, never of the one before
    (folder / CONFIG).unlink(missing_ok=True)
    with console.stage("Writing subjects", len(study)) as tick:
        return study.save(folder, progress=lambda done, total, id: tick(id), **options)


def describe_study(
    study: "Study", folder: Path, command: str, options: dict[str, Any], **more: Any
) -> None:
    """Write how a study folder came about beside it: options, fingerprint, versions."""
    made = provenance(
        command, {}, study.ids, study_fingerprint=study.fingerprint(), **more
    )
    write_config(folder / CONFIG, command, options, made)


@bundled(running=Running)
def simulate(
    context: typer.Context,
    out: Annotated[Path, typer.Argument(help="Folder to make.")],
    *,
    n_subjects: Annotated[int, typer.Option(help="Number of subjects.")] = 8,
    categories: Annotated[
        str | None, typer.Option(help="Number of categories, or names with commas.")
    ] = None,
    design: Annotated[str | None, typer.Option(help="blocks, events or movie.")] = None,
    n_runs: Annotated[int | None, typer.Option(help="Runs per subject.")] = None,
    n_voxels: Annotated[
        str | None, typer.Option(help="One number, or a range such as 1200-1800.")
    ] = None,
    own_sequence: Annotated[
        bool | None, typer.Option(help="Each subject sees an order of its own.")
    ] = None,
    missing_samples: Annotated[
        float | None, typer.Option(help="Share of samples that each subject lacks.")
    ] = None,
    signal: Annotated[
        float | None, typer.Option(help="Strength of the responses.")
    ] = None,
    dtype: Annotated[str, typer.Option(help="float32 or float64.")] = "float32",
    bids: Annotated[
        bool, typer.Option("--bids", help="Write a BIDS dataset, not a study folder.")
    ] = False,
    random_state: Annotated[int, typer.Option(help="Seed.")] = 0,
    param: Param = None,
    overwrite: Overwrite = False,
    running: Running,
) -> None:
    """Make a study whose shared space is known, to try things on."""
    console = Console(running.quiet)
    if bids:
        check_new_dataset(out, overwrite)
    else:
        check_new_folder(out, overwrite)
    with console.collect_warnings():
        study = _simulated(
            console,
            n_subjects=n_subjects,
            categories=categories and _categories(categories, design),
            design=design,
            n_runs=n_runs,
            n_voxels=None if n_voxels is None else _voxels(n_voxels),
            own_sequence=own_sequence,
            missing_samples=missing_samples,
            signal=signal,
            dtype=dtype,
            random_state=random_state,
            others=parse_params(param),
        )
        if bids:
            with console.stage("Writing BIDS files"):
                study.to_bids(out, image_dtype=_image_dtype(dtype), overwrite=overwrite)
        else:
            saved = save_study(study, out, console, overwrite=overwrite)
            describe_study(saved, out, "simulate", effective(context))
    console.result(f"{out}: {len(study)} subjects, {_sizes(study)}")


def _image_dtype(dtype: str) -> str:
    return dtype if dtype in ("float32", "float64") else "float32"


def _simulated(console: Console, *, others: dict[str, Any], **options: Any) -> Any:
    from brainweave.study.options import option_names
    from brainweave.study.simulation.simulate import simulate_study

    known = option_names(simulate_study)
    for name in others:
        if name not in known:
            raise UsageError(
                f"simulate has no setting {name!r}; there are {', '.join(known)}."
            )
    with console.stage("Simulating"):
        return simulate_study(**with_params(options, others))


def _categories(text: str, design: str | None) -> int | list[str]:
    names = [name.strip() for name in text.split(",") if name.strip()]
    chosen = int(text) if text.strip().isdigit() else names
    n = chosen if isinstance(chosen, int) else len(set(names))
    if n < 2 and design != "movie":
        raise UsageError(
            f"--categories must be 2 or more, to be told apart; got {text!r}."
        )
    return chosen


def _voxels(text: str) -> int | tuple[int, int]:
    parts = text.split("-")
    try:
        numbers = [int(part) for part in parts]
    except ValueError:
        numbers = []
    if len(numbers) == 1:
        return numbers[0]
    if len(numbers) == 2:
        return numbers[0], numbers[1]
    raise UsageError(
        f"--n-voxels must be a number or a range such as 300-400; got {text!r}."
    )


def record_lines(record: dict[str, Any] | None) -> list[str]:
    """Say what was done to the data, and what each subject has, a line each."""
    from brainweave.study.told import preprocessing

    lines = [f"{name}: {text}" for name, text in preprocessing(record)]
    for id, counts in ((record or {}).get("samples") or {}).items():
        listed = ", ".join(f"{label} {n}" for label, n in counts.items())
        lines.append(f"sub-{id}: {listed}")
    return lines


def _sizes(study: Any) -> str:
    samples = sorted(s.n_samples for s in study)
    voxels = sorted(s.n_voxels for s in study)

    def spread(numbers: list[int]) -> str:
        low, high = numbers[0], numbers[-1]
        return str(low) if low == high else f"{low} to {high}"

    return f"{spread(samples)} samples, {spread(voxels)} voxels"


@bundled(reading=Reading, running=Running)
def convert(
    context: typer.Context,
    sources: Annotated[
        list[Path],
        typer.Argument(
            help="A BIDS or OpenfMRI folder, .mat files, or one .nii.gz per subject; "
            "then the folder to make."
        ),
    ],
    *,
    form: Annotated[
        str,
        typer.Option(
            "--format", help="auto, bids, nifti, matlab, openfmri or study (a copy)."
        ),
    ] = "auto",
    labels: Annotated[
        Path | None,
        typer.Option(
            help="Labels of samples: a .tsv file with columns label and, if they "
            "differ, subject; a .mat file for MATLAB."
        ),
    ] = None,
    detrend: Annotated[bool, typer.Option("--detrend", help="Remove trends.")] = False,
    dtype: Annotated[str | None, typer.Option(help="Type to store samples in.")] = None,
    name: Annotated[str | None, typer.Option(help="Name of the study.")] = None,
    param: Param = None,
    n_jobs: Annotated[int | None, typer.Option(help="Subjects at a time.")] = None,
    overwrite: Overwrite = False,
    reading: Reading,
    running: Running,
) -> None:
    """Turn BIDS, NIfTI, MATLAB or OpenfMRI files into a study folder."""
    from brainweave.cli.loading import load_any
    from brainweave.study.told import cautions

    console = Console(running.quiet)
    if len(sources) < 2:
        raise UsageError("Name the files to read, then the folder to make.")
    *inputs, out = sources
    check_new_folder(out, overwrite)
    resume_with("Nothing was left behind; run the same command again.")
    said = {
        **reading.given(),
        "subjects": reading.participant_label or None,
        "labels": labels,
        "detrend": detrend or None,
        "name": name,
    }
    others = parse_params(param)
    if said.get("confounds", "") is None:  # none is a choice, not a gap
        others = {"confounds": None, **others}
    with console.collect_warnings():
        with console.stage("Looking at the files"):
            study = load_any(inputs, form, with_params(said, others))
        given = {"overwrite": overwrite, "dtype": dtype, "n_jobs": n_jobs}
        saved = save_study(study, out, console, **given)
        describe_study(saved, out, "convert", effective(context))
        for text in cautions(study.record):
            warnings.warn(text, stacklevel=1)
    console.result(f"{out}: {len(study)} subjects, {_sizes(study)}")
    if not running.quiet:
        for line in record_lines(study.record):
            console.result(f"  {line}")


@bundled(running=Running)
def fetch(
    context: typer.Context,
    dataset: Annotated[
        str,
        typer.Argument(help="raider, raider-movie, haxby, or an OpenNeuro ds000000."),
    ],
    out: Annotated[
        Path | None,
        typer.Argument(help="Study folder to make; for OpenNeuro see convert."),
    ] = None,
    *,
    participant_label: Annotated[
        list[str] | None, typer.Option(help="Subjects to fetch; may be repeated.")
    ] = None,
    task: Annotated[str | None, typer.Option(help="Task (OpenNeuro).")] = None,
    cache_dir: Annotated[
        Path | None, typer.Option(help="Where to keep downloads.")
    ] = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Say what would be downloaded.")
    ] = False,
    overwrite: Overwrite = False,
    running: Running,
) -> None:
    """Download a public dataset and make a study folder of it."""
    from brainweave.cli.downloads import fetch_dataset, kind_of, plan_of

    console = Console(running.quiet)
    resume_with("Run the same command again: the download goes on where it stopped.")
    options = {
        "subjects": participant_label or None,
        "task": task,
        "cache_dir": cache_dir,
    }
    if dry_run:
        console.result(str(plan_of(dataset, options)))
        return
    is_openneuro = kind_of(dataset) == "openneuro"
    if out is not None and is_openneuro:
        raise UsageError(
            "OpenNeuro datasets are fetched as BIDS. Leave out the folder, then: "
            "brainweave convert FETCHED STUDY."
        )
    if out is None and not is_openneuro:
        raise UsageError(f"Name the folder to make: brainweave fetch {dataset} STUDY.")
    if out is not None:
        check_new_folder(out, overwrite)
    with console.collect_warnings():
        found = fetch_dataset(dataset, options, quiet=running.quiet)
        if out is None:
            console.result(str(found))
            return
        saved = save_study(found, out, console, overwrite=overwrite)
        describe_study(saved, out, "fetch", effective(context))
    console.result(f"{out}: {len(found)} subjects, {_sizes(found)}")
