"""Commands that make studies: simulate, convert, fetch."""

from pathlib import Path
from typing import Any

from brainweave._core.exceptions import StudyError, warn_user
from brainweave.cli import files
from brainweave.cli.console import Console, UsageError
from brainweave.cli.methods import format_range
from brainweave.cli.options import (
    Overwrite,
    Param,
    argument,
    command,
    option,
    parse_params,
    refuse_unknown,
    with_params,
)
from brainweave.cli.reading import Reading, call_with, load_any, option_names

PUBLIC = "raider, raider-movie, haxby, or an OpenNeuro accession such as ds000105"


def _print_summary(console: Console, out: Path, study: Any) -> None:
    samples = format_range(s.n_samples for s in study)
    voxels = format_range(s.n_voxels for s in study)
    console.result(f"{out}: {len(study)} subjects, {samples} samples, {voxels} voxels")


@command()
def simulate(
    out: Path = argument("Folder to make."),
    *,
    n_subjects: int = option("Number of subjects.", default=8),
    categories: str | None = option("Number of categories, or names with commas."),
    design: str | None = option("blocks, events or movie."),
    n_runs: int | None = option("Runs per subject."),
    n_voxels: str | None = option("One number, or a range such as 1200-1800."),
    own_sequence: bool | None = option("Each subject sees an order of its own."),
    missing_samples: float | None = option("Share of samples that each subject lacks."),
    signal: float | None = option("Strength of the responses."),
    dtype: str = option("float32 or float64.", default="float32"),
    bids: bool = option("Write a BIDS dataset, not a study folder.", default=False),
    random_state: int = option("Seed.", default=0),
    param: Param = None,
    overwrite: Overwrite = False,
    console: Console,
) -> None:
    """Make a study whose shared space is known, to try things on."""
    from brainweave.study.simulation.bids_writer import check_empty
    from brainweave.study.simulation.simulate import simulate_study

    if bids:
        files.check_writable(out)
        try:
            check_empty(out)
        except StudyError as error:
            raise UsageError(str(error)) from error
    else:
        files.check_new_folder(out, overwrite)
    params = parse_params(param)
    refuse_unknown(params, option_names(simulate_study), "simulate has no setting '{}'")
    options: dict[str, Any] = {
        "n_subjects": n_subjects,
        "categories": categories and _parse_categories(categories, design),
        "design": design,
        "n_runs": n_runs,
        "n_voxels": None if n_voxels is None else _parse_voxels(n_voxels),
        "own_sequence": own_sequence,
        "missing_samples": missing_samples,
        "signal": signal,
        "dtype": dtype,
        "random_state": random_state,
    }
    options = with_params(options, params)
    with console.stage("Simulating"):
        study = call_with(simulate_study, **options)
    if bids:
        image_dtype = dtype if dtype in ("float32", "float64") else "float32"
        with console.stage("Writing BIDS files"):
            study.to_bids(out, image_dtype=image_dtype)
    else:
        files.save_study(study, out, console, overwrite=overwrite)
    _print_summary(console, out, study)


def _parse_categories(text: str, design: str | None) -> int | list[str]:
    names = [name.strip() for name in text.split(",") if name.strip()]
    number = int(text) if text.strip().isdigit() else None
    if (len(set(names)) if number is None else number) < 2 and design != "movie":
        raise UsageError(
            f"--categories must be 2 or more, to be told apart; got {text!r}."
        )
    return names if number is None else number


def _parse_voxels(text: str) -> int | tuple[int, ...]:
    try:
        numbers = tuple(int(part) for part in text.split("-"))
    except ValueError:
        numbers = ()
    if len(numbers) not in (1, 2):
        raise UsageError(
            f"--n-voxels must be a number or a range such as 300-400; got {text!r}."
        )
    return numbers[0] if len(numbers) == 1 else numbers


def record_lines(record: dict[str, Any] | None) -> list[str]:
    """Return lines on what was done to the data, and on the samples of each subject."""
    from brainweave.study.provenance import describe_record

    lines = [f"{name}: {text}" for name, text in describe_record(record)]
    for id, counts in ((record or {}).get("samples") or {}).items():
        listed = ", ".join(f"{label} {n}" for label, n in counts.items())
        lines.append(f"sub-{id}: {listed}")
    return lines


@command(reading=Reading)
def convert(
    sources: list[Path] = argument(
        "A BIDS or OpenfMRI folder, .mat files, or the .nii.gz, .dtseries.nii or .gii "
        "files of all subjects; then the folder to make."
    ),
    *,
    form: str = option(
        "auto, bids, nifti, cifti, gifti, matlab, openfmri or study (a copy).",
        "--format",
        default="auto",
    ),
    labels: Path | None = option(
        "Labels of samples: a .tsv file with columns label and, if they differ, "
        "subject; a .mat file for MATLAB."
    ),
    detrend: bool = option("Remove trends.", default=False),
    dtype: str | None = option("Type to store samples in."),
    name: str | None = option("Name of the study."),
    param: Param = None,
    n_jobs: int | None = option("Subjects at a time."),
    overwrite: Overwrite = False,
    reading: Reading,
    console: Console,
) -> None:
    """Turn BIDS, NIfTI, CIFTI, GIfTI, MATLAB or OpenfMRI files into a study folder."""
    from brainweave.study.provenance import cautions

    if len(sources) < 2:
        raise UsageError("Name the files to read, then the folder to make.")
    *inputs, out = sources
    files.check_new_folder(out, overwrite)
    console.resume_hint = "Nothing was left behind; run the same command again."
    options = {
        **reading.load_options(),
        "subjects": reading.participant_label or None,
        "labels": labels,
        "detrend": detrend or None,
        "name": name,
    }
    params = parse_params(param)
    for choice in ("confounds", "high_pass"):
        if options.get(choice, "") is None:  # none is a choice, not a gap
            params = {choice: None, **params}
    with console.stage("Looking at the files"):
        study = load_any(inputs, form, with_params(options, params))
    files.save_study(
        study, out, console, overwrite=overwrite, dtype=dtype, n_jobs=n_jobs
    )
    for text in cautions(study.record):
        warn_user(text)
    _print_summary(console, out, study)
    if not console.quiet:
        for line in record_lines(study.record):
            console.result(f"  {line}")


@command()
def fetch(
    dataset: str = argument("raider, raider-movie, haxby, or an OpenNeuro ds000000."),
    out: Path | None = argument(
        "Study folder to make; for OpenNeuro see convert.", None
    ),
    *,
    participant_label: list[str] | None = option("Subjects to fetch; may be repeated."),
    task: str | None = option("Task (OpenNeuro)."),
    cache_dir: Path | None = option("Where to keep downloads."),
    dry_run: bool = option("Say what would be downloaded.", default=False),
    overwrite: Overwrite = False,
    console: Console,
) -> None:
    """Download a public dataset and make a study folder of it."""
    console.resume_hint = (
        "Run the same command again: files that have arrived are kept."
    )
    download, plan, options = _find_dataset(dataset, participant_label or None, task)
    if dry_run:
        console.result(str(plan(**options, cache_dir=cache_dir)))
        return
    is_openneuro = "accession" in options
    if out is not None and is_openneuro:
        raise UsageError(
            "OpenNeuro datasets are fetched as BIDS. Leave out the folder, then: "
            "brainweave convert FETCHED STUDY."
        )
    if out is None and not is_openneuro:
        raise UsageError(f"Name the folder to make: brainweave fetch {dataset} STUDY.")
    if out is not None:
        files.check_new_folder(out, overwrite)
    if not is_openneuro:  # whose client shows its own progress
        options["progress"] = not console.quiet
    found = download(**options, cache_dir=cache_dir)
    if out is None:
        console.result(str(found))
        return
    files.save_study(found, out, console, overwrite=overwrite)
    _print_summary(console, out, found)


def _find_dataset(
    dataset: str, subjects: list[str] | None, task: str | None
) -> tuple[Any, Any, dict[str, Any]]:
    """Return the functions that download a dataset or plan that, and their options."""
    from brainweave.study import public

    name = dataset.lower()
    if name.startswith("ds") and name[2:].isdigit():
        options = {"accession": name, "subjects": subjects, "task": task}
        return public.fetch_openneuro, public.openneuro_plan, options

    if name == "haxby":
        try:
            ids: Any = subjects and [int(id.removeprefix("sub-")) for id in subjects]
        except ValueError:
            got = ", ".join(subjects or [])
            raise UsageError(
                f"Haxby's subjects have numbers from 1 to 6; got {got}."
            ) from None
        return public.fetch_haxby, public.haxby_plan, {"subjects": ids}
    if name not in ("raider", "raider-movie"):
        raise UsageError(f"There is no dataset {dataset!r}; choose {PUBLIC}.")
    if subjects is not None:
        raise UsageError("The Raider study comes whole: leave out --participant-label.")
    part = "movie" if name == "raider-movie" else "images"
    return public.fetch_raider, public.raider_plan, {"part": part}
